// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Counts the frames that found the queue of their CPU full. The map itself counts nothing; the kernel
 * tells only this tracepoint, for every map of the machine.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading: the number of our map. */
const volatile __u32 lw_map_id;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

/* int map_id, unsigned int processed, unsigned int drops, int to_cpu */
SEC("tp_btf/xdp_cpumap_enqueue")
int on_enqueue(__u64 *ctx)
{
	const __u32 zero = 0;
	__u64 *n;

	if ((__u32)ctx[0] != lw_map_id)
		return 0;
	n = bpf_map_lookup_elem(&dropped, &zero);
	if (n)
		*n += (__u32)ctx[2];
	return 0;
}
