// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel half of app forward: one XDP program that decides by forward.h and sends by a device map.
 *
 * The mode and the interfaces are constants, so that the verifier removes what a run does not use.
 * Rules lie in one of two banks, which `active` names, and in `entries`. src/kernel.rs adds the entries
 * of a new set, which no reader of an older bank sees, writes the other bank, changes `active`, and
 * waits for a grace period before it writes the first bank again or takes entries out: no run of the
 * program sees a bank or an entry change. A frame from an interface that is none of ours is passed.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#include "forward.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading; see src/kernel.rs. */
const volatile struct lw_config lw_config;

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
	__uint(max_entries, LW_DROP_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_FATE_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} fates SEC(".maps");

/* Frames by the queue that a rule chose. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_QUEUES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} queues SEC(".maps");

/* What rules matched, by slot: it stays when the rules move to the other bank. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_SLOTS_AT_HAND);
	__type(key, __u32);
	__type(value, struct lw_counts);
} hits SEC(".maps");

/* The same of later slots: blocks that user space makes when it needs them, one per CPU. */
struct lw_block_key {
	__u32 block;
	__u32 cpu;
};

struct lw_block {
	struct lw_counts counts[LW_SLOTS_PER_BLOCK];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lw_block_key);
	__type(value, struct lw_block);
} hits_beyond SEC(".maps");

/* The values of all masks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lw_key);
	__type(value, struct lw_entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct lw_bank);
} banks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} active SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, LW_PORTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

struct lw_prefix4 {
	__u32 bits;
	__u8 address[4];
};

struct lw_prefix6 {
	__u32 bits;
	__u8 address[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lw_prefix4);
	__type(value, __u32);
} routes4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lw_prefix6);
	__type(value, __u32);
} routes6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_hop);
} hops SEC(".maps");

/* IPv4 as ::ffff:a.b.c.d, which is an IPv6 address as well. */
struct lw_address {
	__u8 bytes[16];
	__u32 is_v4;
};

struct lw_mac {
	__u8 bytes[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct lw_address);
	__type(value, struct lw_mac);
} neighbours SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_room);
} scratch SEC(".maps");

/* Tests: what was decided on the last frame. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_outcome);
} outcome SEC(".maps");

static __always_inline void add(struct lw_counts *n, __u32 bytes)
{
	n->frames++;
	n->bytes += bytes;
}

LW_INLINE void lw_hit(__u32 slot, __u32 bytes)
{
	if (slot < LW_SLOTS_AT_HAND) {
		struct lw_counts *n = bpf_map_lookup_elem(&hits, &slot);

		if (n)
			add(n, bytes);
	} else {
		struct lw_block_key key = {
			.block = slot / LW_SLOTS_PER_BLOCK, .cpu = bpf_get_smp_processor_id(),
		};
		struct lw_block *block = bpf_map_lookup_elem(&hits_beyond, &key);

		if (!block)
			return;
		/* The place is found after the check, not before. */
		LW_OPAQUE(slot);
		add(&block->counts[slot % LW_SLOTS_PER_BLOCK], bytes);
	}
}

LW_INLINE const struct lw_entry *lw_entry(const struct lw_key *key)
{
	return bpf_map_lookup_elem(&entries, key);
}

LW_INLINE int lw_route(const struct lw_fields *now, int is_v4, struct lw_hop *hop)
{
	const struct lw_hop *found;
	__u32 *number;

	if (is_v4) {
		struct lw_prefix4 key = { .bits = 32 };

		__builtin_memcpy(key.address, &now->dst_ip[12], 4);
		number = bpf_map_lookup_elem(&routes4, &key);
	} else {
		struct lw_prefix6 key = { .bits = 128 };

		__builtin_memcpy(key.address, now->dst_ip, 16);
		number = bpf_map_lookup_elem(&routes6, &key);
	}
	found = number ? bpf_map_lookup_elem(&hops, number) : 0;
	if (!found)
		return -1;
	*hop = *found;
	return 0;
}

LW_INLINE int lw_neighbour(const struct lw_fields *now, int is_v4, __u8 *mac)
{
	struct lw_address key = { .is_v4 = !!is_v4 };
	const struct lw_mac *found;

	__builtin_memcpy(key.bytes, now->dst_ip, 16);
	found = bpf_map_lookup_elem(&neighbours, &key);
	if (!found)
		return -1;
	__builtin_memcpy(mac, found->bytes, 6);
	return 0;
}

static __always_inline void count(void *map, __u32 at)
{
	__u64 *n = bpf_map_lookup_elem(map, &at);

	if (n)
		(*n)++;
}

/* The port of an interface; LW_PORTS_MAX for a foreign one. */
static __always_inline __u32 port_of(__u32 ifindex)
{
#pragma clang loop unroll(full)
	for (__u32 port = 0; port < LW_PORTS_MAX; port++) {
		if (port >= lw_config.ports)
			break;
		if (lw_config.ifindex[port] == ifindex)
			return port;
	}
	return LW_PORTS_MAX;
}

static __always_inline const struct lw_bank *bank_in_force(void)
{
	const __u32 zero = 0;
	const struct lw_bank *bank;
	__u32 *number;

	if (!lw_config.has_rules)
		return 0;
	number = bpf_map_lookup_elem(&active, &zero);
	if (!number)
		return 0;
	bank = bpf_map_lookup_elem(&banks, number);
	return bank && (bank->count || bank->tuples) ? bank : 0;
}

SEC("xdp.frags")
int forward(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct lw_view view = {
		.data = (const __u8 *)(long)ctx->data,
		.end = (const __u8 *)(long)ctx->data_end,
		.len = (__u32)bpf_xdp_get_buff_len(ctx),
		.ctx = ctx,
	};
	struct lw_counts *s = bpf_map_lookup_elem(&seen, &zero);
	struct lw_room *room = bpf_map_lookup_elem(&scratch, &zero);
	__u32 port = port_of(ctx->ingress_ifindex), reason;
	struct lw_outcome t;
	int verdict = XDP_TX;

	if (!s || !room || port >= LW_PORTS_MAX)
		return XDP_PASS;
	s->frames++;
	s->bytes += view.len;

	lw_forward(&lw_config, bank_in_force(), port, &view, (__u8 *)(long)view.data, room);
	t = room->outcome;
	if (t.fate == LW_FATE_FORWARDED && t.port != port) {
		verdict = (int)bpf_redirect_map(&egress, t.port, XDP_DROP);
		/* The interface has gone, and its entry with it: no tracepoint reports that. */
		if (verdict != XDP_REDIRECT)
			t.fate = LW_FATE_NO_PORT;
	}

	count(&fates, t.fate);
	if (t.queue != 0xff)
		count(&queues, t.queue);
	if (lw_config.tells)
		bpf_map_update_elem(&outcome, &zero, &t, 0);
	reason = lw_drop_reason(t.fate);
	if (reason < LW_DROP_COUNT)
		count(&drops, reason);
	switch (t.fate) {
	case LW_FATE_FORWARDED:
		return verdict;
	case LW_FATE_PASSED:
		return XDP_PASS;
	default:
		return XDP_DROP;
	}
}
