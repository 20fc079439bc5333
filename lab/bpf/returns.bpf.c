// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The far end of a bounce: counts, by segment, the frames of ours that come back, and drops every
 * frame. It reads the number in the UDP payload, because the MACs are the arm's to rewrite; what
 * carries none counts as segment 0, and what is UDP but not as it was sent, as one behind all segments.
 *
 * One queue, so one writer at a time: plain additions.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PAYLOAD_AT 42 /* Ethernet, IPv4 without options, UDP */
#define NUMBER_BYTES 6
/* Of the zeros behind the number so many are looked at: the shortest payload has them. */
#define ZERO_BYTES 12
#define CHANGED 256

/* Bytes of each payload that was sent. */
const volatile __u32 lw_payload_bytes = 0;

/* Frames by segment. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CHANGED + 1);
	__type(key, __u32);
	__type(value, __u64);
} returned SEC(".maps");

/* Of a frame that is long enough: whether its payload is as long as it was, and zero behind the number. */
static __always_inline int is_whole(const __u8 *data)
{
	const __u8 *zeros = data + PAYLOAD_AT + NUMBER_BYTES;
	__u32 bytes = (__u32)data[38] << 8 | data[39];
	__u8 sum = 0;

	for (int i = 0; i < ZERO_BYTES; i++)
		sum |= zeros[i];
	return !sum && bytes == lw_payload_bytes + 8;
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
		if (data + PAYLOAD_AT + NUMBER_BYTES + ZERO_BYTES <= end &&
		    data[PAYLOAD_AT] == 0x02 && is_whole(data))
			segment = data[PAYLOAD_AT + 1];
	}
	frames = bpf_map_lookup_elem(&returned, &segment);
	if (frames)
		(*frames)++;
	return XDP_DROP;
}
