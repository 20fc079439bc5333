// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Counts system calls and context switches, per CPU: one program of each kind of tracepoint. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} events SEC(".maps");

static void count(__u32 event)
{
	__u64 *events_here = bpf_map_lookup_elem(&events, &event);

	if (events_here)
		*events_here += 1;
}

SEC("raw_tp/sys_enter")
int on_system_call(void *ctx)
{
	count(0);
	return 0;
}

SEC("tp_btf/sched_switch")
int on_switch(void *ctx)
{
	count(1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
