/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Reading packet bytes in code that is compiled twice: for eBPF and for the host (the referee of
 * the tests).
 *
 * A `struct lw_view` is a packet. The common path reads through plain pointers after one bounds
 * check, as the verifier demands; the rare paths (IPv6 extension headers, TCP options) go through
 * lw_load(), which the kernel checks itself and which also reaches the fragments of a multi-buffer
 * frame.
 */
#ifndef LANEWAY_BYTES_H
#define LANEWAY_BYTES_H

#include <linux/types.h>

#ifdef __bpf__
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define LW_INLINE static __always_inline
#else
#include <string.h>
#define LW_INLINE static inline
#endif

struct lw_view {
	const __u8 *data;
	const __u8 *end; /* one past the last directly readable byte */
	__u32 len;       /* captured bytes, fragments included */
#ifdef __bpf__
	struct xdp_md *ctx;
#endif
};

/* Copies `len` bytes at `off`; negative if they are not all there. */
LW_INLINE long lw_load(const struct lw_view *view, __u32 off, void *to, __u32 len)
{
#ifdef __bpf__
	return bpf_xdp_load_bytes(view->ctx, off, to, len);
#else
	if (off > view->len || len > view->len - off)
		return -1;
	memcpy(to, view->data + off, len);
	return 0;
#endif
}

/*
 * Makes the compiler forget what it knows about the variable, so that it compares the variable itself.
 * Otherwise it merges two bounds into one comparison of a difference, from which the verifier of Linux
 * 6.1 learns nothing about the variable.
 */
#ifdef __bpf__
#define LW_FORGET(x) barrier_var(x)
#else
#define LW_FORGET(x) ((void)0)
#endif

/*
 * Calls step(i, state) for i in 0..n until it returns 1. In the kernel the body is verified once for
 * all rounds (bpf_loop, 5.17); an ordinary loop over packet-dependent offsets is verified once per
 * path through it, which exceeds the verifier's million instructions.
 */
#ifdef __bpf__
#define LW_LOOP(n, step, state) bpf_loop(n, step, state, 0)
#else
#define LW_LOOP(n, step, state)                                    \
	do {                                                       \
		for (__u32 lw_i = 0; lw_i < (n); lw_i++)           \
			if (step(lw_i, state))                     \
				break;                             \
	} while (0)
#endif

LW_INLINE __u16 lw_be16(const __u8 *p)
{
	return (__u16)(p[0] << 8 | p[1]);
}

LW_INLINE __u32 lw_be32(const __u8 *p)
{
	return (__u32)p[0] << 24 | (__u32)p[1] << 16 | (__u32)p[2] << 8 | p[3];
}

#endif
