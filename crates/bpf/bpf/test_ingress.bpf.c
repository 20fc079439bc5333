// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* A test attaches it behind a driver: counts what an interface receives, how long its trains are, and drops it. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Packets, and the sum of their gso_size. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

static __always_inline void add(__u32 what, __u64 n)
{
	__u64 *sum = bpf_map_lookup_elem(&seen, &what);

	if (sum)
		*sum += n;
}

SEC("tc")
int take(struct __sk_buff *skb)
{
	add(0, 1);
	add(1, skb->gso_size);
	return TC_ACT_SHOT;
}
