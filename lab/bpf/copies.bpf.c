// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The far end of a fan-out as frames, on one of its cables: ticks off every copy of every datagram of ours, at the
 * output that it was sent to, and drops every frame. An output is a UDP port; the group is the datagram's own.
 *
 * It runs in the softirq of the sender, before anything of the receiver's stack. A veth end whose peer has such a
 * program offers no segmentation: trains are cut on their way out, on the sender's CPU. `trains.bpf.c` takes them
 * whole.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "ticks.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp")
int take_copies(struct xdp_md *ctx)
{
	const __u8 *data = (const __u8 *)(long)ctx->data;
	const __u8 *end = (const __u8 *)(long)ctx->data_end;
	const __u8 *payload = data + PAYLOAD_AT;
	const __u32 zero = 0;
	struct lw_coming *c;
	struct lw_copied *a;
	struct lw_place place;
	__u64 now = 0;

	a = bpf_map_lookup_elem(&copied, &zero);
	c = bpf_map_lookup_elem(&coming, &zero);
	if (!a || !c)
		return XDP_DROP;
	if (payload + NUMBERED_BYTES > end || !is_to_a_group(data)) {
		a->strangers++;
		return XDP_DROP;
	}
	place = place_of(data);
	if (!is_output(place)) {
		a->unknown++;
		return XDP_DROP;
	}
	if (!is_numbered(payload) || be16(data + UDP_AT + 4) != lw_payload_bytes + 8 ||
	    payload + lw_payload_bytes > end)
		goto spoilt;
	if (!is_expected(c, a, place.group, payload))
		return XDP_DROP;
	if (number_of(payload) % COMPARED == 0 && !is_filled(payload, end))
		goto spoilt;
	tick_off(c, a, place.output, number_of(payload), &now);
	return XDP_DROP;

spoilt:
	a->spoilt++;
	return XDP_DROP;
}
