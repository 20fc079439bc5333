// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * How many datagrams were in the packets that a far end's ring refused. The interface that sends counts such packets
 * (tx_dropped), and a train is one of them.
 *
 * A packet has the receiving interface already when veth finds that interface's ring full, and behind the ring there is
 * the far end's program alone, whose drops have a reason of their own: so what else is freed there, the ring refused.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <laneway/net_device.h>

#include "meter.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Just enough of the kernel's types; the fields' places are found when the program is loaded. */
enum skb_drop_reason {
	SKB_DROP_REASON_TC_INGRESS = 1,
};

struct sk_buff {
	struct net_device *dev;
	unsigned int end; /* from the head, on 64 bits */
	unsigned char *head;
} __attribute__((preserve_access_index));

struct skb_shared_info {
	unsigned short gso_segs;
} __attribute__((preserve_access_index));

struct lw_refused {
	__u64 packets;
	__u64 datagrams;
};

/* Of each far end's interface that is watched. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct lw_device);
	__type(value, struct lw_refused);
} refused SEC(".maps");

/* struct sk_buff *skb, void *location, enum skb_drop_reason reason */
SEC("tp_btf/kfree_skb")
int on_free(__u64 *ctx)
{
	const struct sk_buff *skb = (const struct sk_buff *)ctx[0];
	const struct skb_shared_info *shared;
	struct lw_device device;
	struct lw_refused *n;
	struct net_device *dev;
	unsigned short datagrams;

	if ((__u32)ctx[2] == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_TC_INGRESS))
		return 0;
	dev = BPF_CORE_READ(skb, dev);
	if (!dev)
		return 0;
	device.netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	device.ifindex = BPF_CORE_READ(dev, ifindex);
	n = bpf_map_lookup_elem(&refused, &device);
	if (!n)
		return 0;
	shared = (const struct skb_shared_info *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end));
	datagrams = BPF_CORE_READ(shared, gso_segs);
	__sync_fetch_and_add(&n->packets, 1);
	__sync_fetch_and_add(&n->datagrams, datagrams ?: 1);
	return 0;
}
