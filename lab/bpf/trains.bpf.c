// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The far end of a fan-out as a receiver sees it, on one of its cables: trains of datagrams that the sender's kernel
 * made of one send (UDP_SEGMENT) arrive uncut, as they leave to a NIC that segments. Each datagram of a train is ticked
 * off at its own offset, as `copies.bpf.c` does a frame; all are dropped here, before the receiver's stack.
 *
 * It runs where the receiver's own filters do (tc ingress), in the softirq of the sender. A frame that was sent by
 * XDP has a socket buffer by then, as it has at any receiver on veth. All datagrams of a train arrived at the same
 * time.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "ticks.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The payload that is compared byte by byte; no datagram of ours is longer. */
struct lw_payload {
	__u8 bytes[FILLED_AT + WORDS_MAX * 8 + 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_payload);
} compared SEC(".maps");

/* A train under way; a frame is a train of one. */
struct train {
	struct __sk_buff *skb;
	const struct lw_coming *c;
	struct lw_copied *a;
	struct lw_place place;
	__u64 now;
};

static __always_inline int is_whole(struct __sk_buff *skb, __u32 at)
{
	const __u32 zero = 0;
	struct lw_payload *payload = bpf_map_lookup_elem(&compared, &zero);

	if (!payload || lw_payload_bytes > sizeof(payload->bytes) ||
	    bpf_skb_load_bytes(skb, at, payload->bytes, lw_payload_bytes))
		return 0;
	return is_filled(payload->bytes, payload->bytes + sizeof(payload->bytes));
}

static long take_datagram(__u32 place, void *context)
{
	struct train *train = context;
	const __u32 at = PAYLOAD_AT + place * lw_payload_bytes;
	__u8 payload[NUMBERED_BYTES];

	if (bpf_skb_load_bytes(train->skb, at, payload, sizeof(payload)) || !is_numbered(payload)) {
		train->a->spoilt++;
		return 0;
	}
	if (!is_expected(train->c, train->a, train->place.group, payload))
		return 0;
	if (number_of(payload) % COMPARED == 0 && !is_whole(train->skb, at)) {
		train->a->spoilt++;
		return 0;
	}
	tick_off(train->c, train->a, train->place.output, number_of(payload), &train->now);
	return 0;
}

SEC("tc")
int take_trains(struct __sk_buff *skb)
{
	__u8 header[PAYLOAD_AT];
	struct train train = { .skb = skb };
	const __u32 zero = 0;
	__u32 bytes, each, datagrams;

	train.a = bpf_map_lookup_elem(&copied, &zero);
	train.c = bpf_map_lookup_elem(&coming, &zero);
	if (!train.a || !train.c)
		return TC_ACT_SHOT;
	if (skb->len < PAYLOAD_AT + NUMBERED_BYTES || skb->vlan_present ||
	    bpf_skb_load_bytes(skb, 0, header, sizeof(header)) || !is_to_a_group(header)) {
		train.a->strangers++;
		return TC_ACT_SHOT;
	}
	/* Of a train, the length in the header is that of all its payloads. */
	bytes = be16(header + UDP_AT + 4);
	bytes = bytes > 8 ? bytes - 8 : 0;
	each = skb->gso_size ?: bytes ?: 1;
	datagrams = (bytes + each - 1) / each ?: 1;
	if (skb->gso_size && datagrams > 1) {
		train.a->trains++;
		train.a->in_trains += datagrams;
	}
	train.place = place_of(header);
	if (!is_output(train.place)) {
		train.a->unknown += datagrams;
		return TC_ACT_SHOT;
	}
	if (each != lw_payload_bytes || PAYLOAD_AT + bytes > skb->len) {
		train.a->spoilt += datagrams;
		return TC_ACT_SHOT;
	}
	/* The last of a train may be shorter; none of ours is. */
	if (bytes % each) {
		train.a->spoilt++;
		datagrams--;
	}
	bpf_loop(datagrams, take_datagram, &train, 0);
	return TC_ACT_SHOT;
}
