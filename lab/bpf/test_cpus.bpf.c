// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* A map of CPUs, as an XDP program hands frames on by: the kernel starts a thread for each entry. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} cpus SEC(".maps");

SEC("xdp")
int to_the_first(struct xdp_md *ctx)
{
	return bpf_redirect_map(&cpus, 0, XDP_PASS);
}
