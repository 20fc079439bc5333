// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Lets every frame pass. A veth end accepts frames that the other end sends with XDP_TX or a
 * redirect only while it has an XDP program itself: without one the kernel drops them.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
