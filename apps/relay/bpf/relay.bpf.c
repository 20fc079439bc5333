// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel half of app relay: a program that hands each datagram of a rule to the rule's outputs, and
 * one that makes the output's datagram of it on the way out.
 *
 * A rule has a number, its slot, that is never used again while a worker may know it; under it lie what it
 * is, its sources and its outputs. One table says which slot an input has, and a set of rules changes by
 * another table in its place: whatever else a new set needs is written before, under numbers that are
 * not in use yet, and what no set has any more is removed after the kernel says that no program holds
 * the former table. So every frame sees one whole set. Rules with outputs on the same interfaces share a map of
 * devices, so a rule among many costs no map of its own.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "relay.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define LW_RELAY_EXITS_MAX 1024

/* Set before loading; see src/kernel/tables.rs. */
struct lw_relay_config {
	__u32 ttl_min; /* frames with less are the kernel's */
	__u32 out;     /* tests run the second program by itself, as if on the way to this interface */
};
const volatile struct lw_relay_config lw_config;

struct lw_counts {
	__u64 frames;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_counts);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_RELAY_FATES);
	__type(key, __u32);
	__type(value, __u64);
} fates SEC(".maps");

struct inputs {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct lw_relay_input));
	__uint(value_size, sizeof(__u32));
};

/* The slots of the set in force. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct inputs);
} table SEC(".maps");

/*
 * Rules and outputs count where they stand, by atomic additions: a flow comes in on one CPU, so they cost
 * a few nanoseconds, and copies per CPU cannot be made as fast as rules come (the kernel's allocator for
 * them refuses after some thousand).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_relay_rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lw_relay_source);
	__type(value, __u8);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lw_relay_exit);
	__type(value, struct lw_relay_output);
} outputs SEC(".maps");

struct devices {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	/* By size: within a map of maps the compiler keeps no type that it does not use. */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

/* Sets of interfaces. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LW_RELAY_EXITS_MAX);
	__type(key, __u32);
	__array(values, struct devices);
} exits SEC(".maps");

/* The fate of a datagram; where it is sent, `devices` and `rule` are set. */
static __always_inline __u8 find(const struct lw_relay_datagram *d, __u32 *slot, void **devices,
				 struct lw_relay_rule **rule)
{
	const __u32 zero = 0;
	void *inputs = bpf_map_lookup_elem(&table, &zero);
	__u32 *found = inputs ? bpf_map_lookup_elem(inputs, &d->to) : 0;
	struct lw_relay_rule *r;

	if (!found)
		return LW_RELAY_NO_RULE;
	*slot = *found;
	r = bpf_map_lookup_elem(&rules, slot);
	if (!r)
		return LW_RELAY_NO_RULE;
	if (r->has_sources) {
		struct lw_relay_source key = { .slot = *slot };

		__builtin_memcpy(key.address, d->from, 16);
		if (!bpf_map_lookup_elem(&sources, &key))
			return LW_RELAY_SOURCE;
	}
	*rule = r;
	*devices = bpf_map_lookup_elem(&exits, &r->exits);
	return *devices ? LW_RELAY_SENT : LW_RELAY_NO_RULE;
}

SEC("xdp.frags")
int relay(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct lw_view view = {
		.data = (const __u8 *)(long)ctx->data,
		.end = (const __u8 *)(long)ctx->data_end,
		.len = (__u32)bpf_xdp_get_buff_len(ctx),
		.ctx = ctx,
	};
	struct lw_counts *s = bpf_map_lookup_elem(&seen, &zero);
	struct lw_relay_datagram d = { .to.ifindex = ctx->ingress_ifindex };
	struct lw_relay_rule *rule = 0;
	void *devices = 0;
	__u32 slot = 0, fate;
	__u64 *n;

	if (!s)
		return XDP_PASS;
	s->frames++;
	s->bytes += view.len;
	fate = lw_relay_parse(&view, lw_config.ttl_min, &d);
	if (fate == LW_RELAY_SENT)
		fate = find(&d, &slot, &devices, &rule);
	/* A copy that the kernel makes for an output holds the first buffer only. */
	if (fate == LW_RELAY_SENT && view.len != (__u64)(view.end - view.data))
		fate = LW_RELAY_IN_PIECES;
	if (fate == LW_RELAY_SENT &&
	    !lw_relay_mark((__u8 *)(long)view.data, view.end, slot, &d))
		fate = LW_RELAY_LENGTH;
	n = bpf_map_lookup_elem(&fates, &fate);
	if (n)
		(*n)++;
	if (fate != LW_RELAY_SENT || !rule || !devices)
		return XDP_PASS;
	__sync_fetch_and_add(&rule->datagrams, 1);
	__sync_fetch_and_add(&rule->bytes, d.bytes);
	return (int)bpf_redirect_map(devices, 0, BPF_F_BROADCAST);
}

/* A drop here is one of the driver's bulk that did not go out, and counted as such. */
SEC("xdp.frags/devmap")
int relay_out(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data;
	const __u8 *end = (const __u8 *)(long)ctx->data_end;
	struct lw_relay_ticket ticket;
	struct lw_relay_exit key;
	struct lw_relay_output *o;
	__s32 bytes;

	if (data + LW_RELAY_ETH_BYTES > end)
		return XDP_DROP;
	__builtin_memcpy(&ticket, data, sizeof(ticket));
	key.slot = ticket.slot;
	key.ifindex = lw_config.out;
	if (!key.ifindex)
		key.ifindex = ctx->egress_ifindex;
	o = bpf_map_lookup_elem(&outputs, &key);
	if (!o)
		return XDP_DROP;
	bytes = lw_relay_rewrite(data, end, &ticket, o);
	if (bytes < 0)
		return XDP_DROP;
	__sync_fetch_and_add(&o->datagrams, 1);
	__sync_fetch_and_add(&o->bytes, (__u32)bytes);
	return XDP_PASS;
}
