// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* A program that the verifier must refuse: it reads the frame without asking where it ends. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int refused(struct xdp_md *ctx)
{
	return *(__u8 *)(long)ctx->data;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
