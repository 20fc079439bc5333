// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The far end of a bounce: counts, by segment, the frames of ours that come back, and drops every
 * frame. Of some it books how long they took since they were due. It reads the number in the UDP
 * payload, because the MACs are the arm's to rewrite; a frame without one counts as segment 0, and a
 * UDP frame that was changed, as one behind all segments.
 *
 * One queue, so one writer at a time: plain additions.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "returns.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PAYLOAD_AT 42 /* Ethernet, IPv4 without options, UDP */
#define NUMBER_BYTES 6
/* Behind the number stands its complement. Of the zeros behind that the shortest payload has so many. */
#define ZERO_BYTES 6
#define CHANGED 256
#define PAYLOADS_MAX 16

/* Bytes of the payloads that were sent, one after the other and over again; and how many these are. */
const volatile __u16 lw_payload_bytes[PAYLOADS_MAX] = {};
const volatile __u32 lw_payloads = 1;

/* Frames by segment. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CHANGED + 1);
	__type(key, __u32);
	__type(value, __u64);
} returned SEC(".maps");

/* One frame in so many is booked as long as it took since it was due. */
#define SAMPLE 8

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_under_way);
} under_way SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_trips);
} trips SEC(".maps");

static __always_inline __u32 number_of(const __u8 *data)
{
	const __u8 *at = data + PAYLOAD_AT + 2;

	return (__u32)at[0] << 24 | (__u32)at[1] << 16 | (__u32)at[2] << 8 | at[3];
}

/* Books a sampled frame of the segment under way. */
static __always_inline void book(__u32 segment, __u32 number)
{
	const __u32 zero = 0;
	struct lw_under_way *u = bpf_map_lookup_elem(&under_way, &zero);
	struct lw_trips *t = bpf_map_lookup_elem(&trips, &zero);
	__u64 now, due;

	if (!u || !t || segment != u->segment || number >= u->frames)
		return;
	now = bpf_ktime_get_ns();
	due = due_ns(&u->when, number);
	book_trip(t, now > due ? now - due : 0, u->late_ns);
}

/* Of a frame that is long enough: whether its payload is as long as it was, and as it was behind the number. */
static __always_inline int is_whole(const __u8 *data)
{
	const __u8 *number = data + PAYLOAD_AT, *zeros = number + 2 * NUMBER_BYTES;
	__u32 bytes = (__u32)data[38] << 8 | data[39], nth = number_of(data) % lw_payloads;
	__u8 changed = 0;

	for (int i = 0; i < NUMBER_BYTES; i++)
		changed |= number[i] ^ number[NUMBER_BYTES + i] ^ 0xff;
	for (int i = 0; i < ZERO_BYTES; i++)
		changed |= zeros[i];
	return !changed && bytes == lw_payload_bytes[nth % PAYLOADS_MAX] + 8;
}

SEC("xdp")
int returns(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data;
	__u8 *end = (__u8 *)(long)ctx->data_end;
	__u32 segment = 0;
	__u64 *frames;

	if (data + 34 <= end && data[12] == 0x08 && data[13] == 0 && data[23] == 17) {
		segment = CHANGED;
		if (data + PAYLOAD_AT + 2 * NUMBER_BYTES + ZERO_BYTES <= end &&
		    data[PAYLOAD_AT] == 0x02 && is_whole(data)) {
			segment = data[PAYLOAD_AT + 1];
			if (number_of(data) % SAMPLE == 0)
				book(segment, number_of(data));
		}
	}
	frames = bpf_map_lookup_elem(&returned, &segment);
	if (frames)
		(*frames)++;
	return XDP_DROP;
}
