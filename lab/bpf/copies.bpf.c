// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The far end of a fan-out, on one of its cables: ticks off every copy of every datagram of ours, at the output
 * that it was sent to, and drops every frame. An output is a UDP port; the group is the datagram's own.
 *
 * It runs in the softirq of whoever sends, before anything of the receiver's stack.
 *
 * One queue, so one writer at a time: plain additions.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "copies.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define IP_AT 14
#define UDP_AT 34 /* IPv4 without options */
#define PAYLOAD_AT 42
#define NUMBER_BYTES 6
#define NUMBER_MARK 0x02
#define FILLED_AT (PAYLOAD_AT + 16) /* behind a number, its complement, and zeros */
#define FILLER 0x9e3779b97f4a7c15ULL
#define WORDS_MAX 182 /* of 8 bytes, of the longest payload */
/* One number in so many is stamped, and booked as long as it took since it was due. */
#define SAMPLE 8
/* And one in so many is compared byte by byte; of the others, the number and the length. */
#define COMPARED 64

const volatile __u32 lw_group = 0; /* the first, as a number */
const volatile __u32 lw_groups = 1;
const volatile __u32 lw_port = 0; /* of the first output */
const volatile __u32 lw_outputs = 1; /* on this cable */
const volatile __u32 lw_run = 1; /* datagrams to a group before the next one's turn */
const volatile __u32 lw_payload_bytes = 18;

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
	__type(value, struct lw_copied);
} copied SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_output);
} outputs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_tick);
} ticks SEC(".maps");

static __always_inline __u32 be16(const __u8 *at)
{
	return (__u32)at[0] << 8 | at[1];
}

static __always_inline __u32 be32(const __u8 *at)
{
	return be16(at) << 16 | be16(at + 2);
}

/* Whether the words behind the number are what their places say. */
static __always_inline int is_filled(const __u8 *data, const __u8 *end)
{
	const __u32 words = lw_payload_bytes > 16 ? (lw_payload_bytes - 16) / 8 : 0;

	for (__u32 i = 0; i < WORDS_MAX; i++) {
		const __u8 *at = data + FILLED_AT + i * 8;

		if (i >= words)
			break;
		if (at + 8 > end || *(const __u64 *)at != (i + 1) * FILLER)
			return 0;
	}
	return 1;
}

SEC("xdp")
int take_copies(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data;
	__u8 *end = (__u8 *)(long)ctx->data_end;
	const __u32 zero = 0;
	struct lw_coming *c;
	struct lw_copied *a;
	struct lw_output *o;
	struct lw_tick *t;
	__u32 number, output, group, word;
	__u64 bit, now, due;

	a = bpf_map_lookup_elem(&copied, &zero);
	c = bpf_map_lookup_elem(&coming, &zero);
	if (!a || !c)
		return XDP_DROP;
	/* Whole UDP over IPv4, to a group. */
	if (data + PAYLOAD_AT + 2 * NUMBER_BYTES > end || data[12] != 0x08 || data[13] ||
	    data[IP_AT] != 0x45 || data[IP_AT + 9] != 17 || be16(data + IP_AT + 6) & 0x3fff ||
	    data[IP_AT + 16] >> 4 != 0xe) {
		a->strangers++;
		return XDP_DROP;
	}
	group = be32(data + IP_AT + 16) - lw_group;
	output = be16(data + UDP_AT + 2) - lw_port;
	if (group >= lw_groups || output >= lw_outputs) {
		a->unknown++;
		return XDP_DROP;
	}
	for (int i = 0; i < NUMBER_BYTES; i++)
		if ((data[PAYLOAD_AT + i] ^ data[PAYLOAD_AT + NUMBER_BYTES + i]) != 0xff)
			goto spoilt;
	if (data[PAYLOAD_AT] != NUMBER_MARK || be16(data + UDP_AT + 4) != lw_payload_bytes + 8 ||
	    data + PAYLOAD_AT + lw_payload_bytes > end)
		goto spoilt;
	number = be32(data + PAYLOAD_AT + 2);
	if (data[PAYLOAD_AT + 1] != c->segment || number >= c->frames) {
		a->foreign++;
		return XDP_DROP;
	}
	if (number / (lw_run ?: 1) % (lw_groups ?: 1) != group) {
		a->misled++;
		return XDP_DROP;
	}
	if (number % COMPARED == 0 && !is_filled(data, end))
		goto spoilt;
	word = output * (__u32)((c->frames + 63) / 64) + number / 64;
	t = bpf_map_lookup_elem(&ticks, &word);
	o = bpf_map_lookup_elem(&outputs, &output);
	if (!t || !o) {
		a->foreign++;
		return XDP_DROP;
	}
	bit = 1ULL << (number % 64);
	if (t->epoch != c->epoch) {
		t->epoch = c->epoch;
		t->bits = 0;
	}
	if (o->epoch != c->epoch) {
		o->epoch = c->epoch;
		o->distinct = 0;
		o->next = 0;
	}
	if (t->bits & bit) {
		a->duplicates++;
		return XDP_DROP;
	}
	t->bits |= bit;
	a->distinct++;
	o->distinct++;
	if (number < o->next)
		a->reordered++;
	else
		o->next = number + 1ULL;
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

spoilt:
	a->spoilt++;
	return XDP_DROP;
}
