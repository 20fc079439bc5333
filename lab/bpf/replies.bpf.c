// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The far end of a race of pings: takes every echo reply to a request of the generator's, ticks its
 * number off, and books its round trip: the time now minus the time the request was due. Everything
 * else goes on to the stack, so that real pings work beside it; XDP_TX over veth needs a program at
 * this end in any case.
 *
 * It runs in the softirq of the reply's sender, before anything of the receiver's stack, so a
 * round trip ends here when the frame does, whatever the generator is busy with.
 *
 * One queue, so one writer at a time: plain additions.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "replies.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define ICMP_AT 34 /* Ethernet, IPv4 without options */
#define PAYLOAD_AT 42
#define NUMBER_BYTES 6

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_expected);
} expected SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_replies);
} replies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_ticked);
} ticked SEC(".maps");

SEC("xdp")
int take_replies(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data;
	__u8 *end = (__u8 *)(long)ctx->data_end;
	const __u32 zero = 0;
	struct lw_expected *e;
	struct lw_replies *r;
	struct lw_ticked *t;
	__u64 now, due, bit;
	__u32 number, word;

	if (data + PAYLOAD_AT + 2 * NUMBER_BYTES > end)
		return XDP_PASS;
	/* IPv4 without options, ICMP, echo reply, our identifier, our mark. */
	if (data[12] != 0x08 || data[13] || data[14] != 0x45 || data[23] != 1 || data[ICMP_AT] ||
	    data[ICMP_AT + 4] != LW_PROBE_ID >> 8 || data[ICMP_AT + 5] != (LW_PROBE_ID & 0xff) ||
	    data[PAYLOAD_AT] != 0x02)
		return XDP_PASS;
	now = bpf_ktime_get_ns();
	e = bpf_map_lookup_elem(&expected, &zero);
	r = bpf_map_lookup_elem(&replies, &zero);
	if (!e || !r)
		return XDP_DROP;
	for (int i = 0; i < NUMBER_BYTES; i++)
		if ((data[PAYLOAD_AT + i] ^ data[PAYLOAD_AT + NUMBER_BYTES + i]) != 0xff)
			goto foreign;
	number = (__u32)data[PAYLOAD_AT + 2] << 24 | (__u32)data[PAYLOAD_AT + 3] << 16 |
		 (__u32)data[PAYLOAD_AT + 4] << 8 | data[PAYLOAD_AT + 5];
	if (data[PAYLOAD_AT + 1] != e->segment || number >= e->frames)
		goto foreign;
	word = number / 64;
	t = bpf_map_lookup_elem(&ticked, &word);
	if (!t)
		goto foreign;
	bit = 1ULL << (number % 64);
	if (t->epoch != e->epoch) {
		t->epoch = e->epoch;
		t->bits = 0;
	}
	if (t->bits & bit) {
		r->duplicates++;
		return XDP_DROP;
	}
	t->bits |= bit;
	r->distinct++;
	if (number < r->next)
		r->reordered++;
	else
		r->next = number + 1ULL;
	if (!r->first_ns)
		r->first_ns = now;
	r->last_ns = now;
	due = due_ns(&e->when, number);
	book_trip(&r->trips, now > due ? now - due : 0, e->late_ns);
	return XDP_DROP;

foreign:
	r->foreign++;
	return XDP_DROP;
}
