// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The far end of a bounce: counts, by segment, the frames of ours that come back, and drops every
 * frame. It reads the number in the UDP payload, because the MACs are the arm's to rewrite; what
 * carries none counts as segment 0.
 *
 * One queue, so one writer at a time: plain additions.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PAYLOAD_AT 42 /* Ethernet, IPv4 without options, UDP */
#define NUMBER_BYTES 6

/* Frames by segment. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} returned SEC(".maps");

SEC("xdp")
int returns(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data;
	__u8 *end = (__u8 *)(long)ctx->data_end;
	__u32 segment = 0;
	__u64 *frames;

	if (data + PAYLOAD_AT + NUMBER_BYTES <= end && data[12] == 0x08 && data[13] == 0 &&
	    data[23] == 17 && data[PAYLOAD_AT] == 0x02)
		segment = data[PAYLOAD_AT + 1];
	frames = bpf_map_lookup_elem(&returned, &segment);
	if (frames)
		(*frames)++;
	return XDP_DROP;
}
