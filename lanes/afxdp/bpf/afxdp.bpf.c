// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel side of lane `afxdp`: every frame of a queue that has an AF_XDP socket goes to that
 * socket, every other frame to the kernel's stack as if no program were there. It counts nothing:
 * the kernel's own XDP_STATISTICS of the socket name each loss.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* As QUEUES_MAX in config.rs. */
#define XSKS_ENTRIES 64

/* Set in generic mode; the verifier removes the branch otherwise. */
const volatile __u8 lw_generic = 0;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, XSKS_ENTRIES);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

/* 1 while lw_pass hands a frame to the stack on this CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} passing SEC(".maps");

static __always_inline int redirect(struct xdp_md *ctx)
{
	if (lw_generic) {
		/*
		 * In generic mode a frame that lw_pass hands to the stack meets this program again
		 * on its way, on the same CPU and before any other frame (lw_pass and its delivery
		 * run with softirqs off): let that one through.
		 */
		__u32 zero = 0;
		__u32 *mark = bpf_map_lookup_elem(&passing, &zero);

		if (mark && *mark) {
			*mark = 0;
			return XDP_PASS;
		}
	}
	return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

SEC("xdp")
int lw_redirect(struct xdp_md *ctx)
{
	return redirect(ctx);
}

/* For multi-buffer: without the section the driver refuses an MTU beyond one page. */
SEC("xdp.frags")
int lw_redirect_frags(struct xdp_md *ctx)
{
	return redirect(ctx);
}

/*
 * Run on one live frame (BPF_F_TEST_XDP_LIVE_FRAMES) to give it back to the stack of the interface
 * it was received on: the only way back, a socket cannot do it.
 */
SEC("xdp")
int lw_pass(struct xdp_md *ctx)
{
	if (lw_generic) {
		__u32 zero = 0;
		__u32 *mark = bpf_map_lookup_elem(&passing, &zero);

		if (mark)
			*mark = 1;
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
