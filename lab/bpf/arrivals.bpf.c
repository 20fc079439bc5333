// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The far end of a forwarder: ticks off every frame of ours that arrives, and drops every frame.
 *
 * A frame's number lies where `lw_number_at` says: in the payload, where a forwarder that rewrites
 * MACs leaves it alone, or in the source MAC of a replayed capture. It runs in the softirq (or, at a
 * TAP device, in the system call) of the sender, before anything of the receiver's stack.
 *
 * One queue, so one writer at a time: plain additions.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "arrivals.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NUMBER_BYTES 6
#define NUMBER_MARK 0x02
/* One frame in so many is stamped, and booked as long as it took since it was due. */
#define SAMPLE 8

const volatile __u32 lw_number_at = 42;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_coming);
} coming SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_arrived);
} arrived SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_tick);
} ticks SEC(".maps");

SEC("xdp")
int take_arrivals(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data;
	__u8 *end = (__u8 *)(long)ctx->data_end;
	const __u32 zero = 0;
	struct lw_coming *c;
	struct lw_arrived *a;
	struct lw_tick *t;
	__u32 number, word;
	__u8 *at = data + lw_number_at;
	__u64 bit, now, due;

	a = bpf_map_lookup_elem(&arrived, &zero);
	c = bpf_map_lookup_elem(&coming, &zero);
	if (!a || !c)
		return XDP_DROP;
	if (at + NUMBER_BYTES > end || at[0] != NUMBER_MARK) {
		a->strangers++;
		return XDP_DROP;
	}
	number = (__u32)at[2] << 24 | (__u32)at[3] << 16 | (__u32)at[4] << 8 | at[5];
	if (at[1] != c->segment || number >= c->frames) {
		a->foreign++;
		return XDP_DROP;
	}
	word = number / 64;
	t = bpf_map_lookup_elem(&ticks, &word);
	if (!t) {
		a->foreign++;
		return XDP_DROP;
	}
	bit = 1ULL << (number % 64);
	if (t->epoch != c->epoch) {
		t->epoch = c->epoch;
		t->bits = 0;
	}
	if (t->bits & bit) {
		a->duplicates++;
		return XDP_DROP;
	}
	t->bits |= bit;
	a->distinct++;
	if (number < a->next)
		a->reordered++;
	else
		a->next = number + 1ULL;
	if (a->first_ns && number % SAMPLE)
		return XDP_DROP;
	now = bpf_ktime_get_ns();
	if (!a->first_ns)
		a->first_ns = now;
	a->last_ns = now;
	if (number % SAMPLE)
		return XDP_DROP;
	due = due_ns(&c->when, number);
	book_trip(&a->trips, now > due ? now - due : 0, c->late_ns);
	return XDP_DROP;
}
