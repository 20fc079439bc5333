/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What both far ends of a fan-out do with one copy: is it one of this segment, for this output, and the first?
 *
 * One queue, so one writer at a time: plain additions.
 */
#ifndef LANEWAY_LAB_TICKS_H
#define LANEWAY_LAB_TICKS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "copies.h"

#define IP_AT 14
#define UDP_AT 34 /* IPv4 without options */
#define PAYLOAD_AT 42
#define NUMBER_BYTES 6
#define NUMBERED_BYTES (2 * NUMBER_BYTES) /* a number and its complement */
#define NUMBER_MARK 0x02
#define FILLED_AT 16 /* of a payload: behind a number, its complement, and zeros */
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

/* Where a datagram was sent out. */
struct lw_place {
	__u32 group;
	__u32 output;
};

static __always_inline __u32 be16(const __u8 *at)
{
	return (__u32)at[0] << 8 | at[1];
}

static __always_inline __u32 be32(const __u8 *at)
{
	return be16(at) << 16 | be16(at + 2);
}

/* Whether the header of a frame is that of whole UDP over IPv4, to a group. */
static __always_inline int is_to_a_group(const __u8 *header)
{
	return header[12] == 0x08 && !header[13] && header[IP_AT] == 0x45 && header[IP_AT + 9] == 17 &&
	       !(be16(header + IP_AT + 6) & 0x3fff) && header[IP_AT + 16] >> 4 == 0xe;
}

static __always_inline struct lw_place place_of(const __u8 *header)
{
	struct lw_place place = {
		.group = be32(header + IP_AT + 16) - lw_group,
		.output = be16(header + UDP_AT + 2) - lw_port,
	};

	return place;
}

static __always_inline int is_output(struct lw_place place)
{
	return place.group < lw_groups && place.output < lw_outputs;
}

/* Whether a payload begins with a number of ours, and its complement. */
static __always_inline int is_numbered(const __u8 *payload)
{
	for (int i = 0; i < NUMBER_BYTES; i++)
		if ((payload[i] ^ payload[NUMBER_BYTES + i]) != 0xff)
			return 0;
	return payload[0] == NUMBER_MARK;
}

static __always_inline __u32 number_of(const __u8 *payload)
{
	return be32(payload + 2);
}

/* Whether the words behind a number are what their places say; `end` is behind the payload's last byte. */
static __always_inline int is_filled(const __u8 *payload, const __u8 *end)
{
	const __u32 words = lw_payload_bytes > FILLED_AT ? (lw_payload_bytes - FILLED_AT) / 8 : 0;

	for (__u32 i = 0; i < WORDS_MAX; i++) {
		const __u8 *at = payload + FILLED_AT + i * 8;

		if (i >= words)
			break;
		if (at + 8 > end || *(const __u64 *)at != (i + 1) * FILLER)
			return 0;
	}
	return 1;
}

/* Whether a numbered datagram is one of this segment that belongs to this group; counts it if it does not. */
static __always_inline int is_expected(const struct lw_coming *c, struct lw_copied *a, __u32 group,
				       const __u8 *payload)
{
	const __u32 number = number_of(payload);

	if (payload[1] != c->segment || number >= c->frames) {
		a->foreign++;
		return 0;
	}
	if (number / (lw_run ?: 1) % (lw_groups ?: 1) != group) {
		a->misled++;
		return 0;
	}
	return 1;
}

/* Ticks off one that is expected. `now` is when it arrived; 0: the clock was not read yet. */
static __always_inline void tick_off(const struct lw_coming *c, struct lw_copied *a, __u32 output,
				     __u32 number, __u64 *now)
{
	__u32 word = output * (__u32)((c->frames + 63) / 64) + number / 64;
	__u64 bit = 1ULL << (number % 64), due;
	struct lw_output *o = bpf_map_lookup_elem(&outputs, &output);
	struct lw_tick *t = bpf_map_lookup_elem(&ticks, &word);

	if (!t || !o) {
		a->foreign++;
		return;
	}
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
		return;
	}
	t->bits |= bit;
	a->distinct++;
	o->distinct++;
	if (number < o->next)
		a->reordered++;
	else
		o->next = number + 1ULL;
	if (a->first_ns && number % SAMPLE)
		return;
	if (!*now)
		*now = bpf_ktime_get_ns();
	if (!a->first_ns)
		a->first_ns = *now;
	a->last_ns = *now;
	if (number % SAMPLE)
		return;
	due = due_ns(&c->when, number);
	book_trip(&a->trips, *now > due ? *now - due : 0, c->late_ns);
}

#endif
