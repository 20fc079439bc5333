// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The generator for rates that sockets cannot reach: run by BPF_PROG_RUN in live-frames mode, it
 * turns each page it is given into the next frame of the capture and redirects it into the wire.
 *
 * The kernel recycles those pages without restoring them, so every byte of a frame is written each
 * time. The schedule is open loop: a frame is due when `times.h` says whatever happened before, the
 * program waits for that time and never skips; what is late keeps its due time and shows in the
 * histogram.
 *
 * The number of a frame of a capture travels in its source MAC, which no feature reads; addresses are
 * rewritten once per pass over the capture, so that every pass makes new flows. The number of a frame
 * made by the lab travels in its payload alone, so that a receiver may merge the frames of a flow.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "generate.h"
#include "times.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __u32 lw_ifindex;     /* egress */
const volatile __u32 lw_templates = 1;
const volatile __u32 lw_run = 1;      /* how often each is sent before the next one's turn */
const volatile __u32 lw_number_at;   /* where the number and its complement go; 0: it goes into the source MAC */
const volatile __u8 lw_packet_info;  /* 4 bytes of packet information in front, for a TAP device */

/* Set per run, in `plan`. */
struct lw_plan {
	__u64 frames;
	__u64 segment; /* 0..255, in front of the frame's number */
	struct lw_when when;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_plan);
} plan SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_generated);
} generated SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_template);
} templates SEC(".maps");

/* Looks at the clock in one bpf_loop, which has 2^23 steps at most: 0.3 s where one takes 71 ns. */
#define LW_LOOKS (1 << 22)
/*
 * Such loops in which a frame is waited for: seconds on any machine, and 30 s there. Softirqs are
 * off meanwhile, so loads have no such gaps: of the lowest, one frame per second, the longest that
 * a Poisson process is likely to have is 11 s.
 */
#define LW_WAITS 100

struct lw_wait {
	__u64 due_ns;
	__u64 now_ns;
};

static long wait_step(__u32 i, void *state)
{
	struct lw_wait *w = state;

	w->now_ns = bpf_ktime_get_ns();
	return w->now_ns >= w->due_ns;
}

static long wait_loop(__u32 i, void *state)
{
	struct lw_wait *w = state;

	bpf_loop(LW_LOOKS, wait_step, w, 0);
	return w->now_ns >= w->due_ns;
}

/* 4 bins per power of two, as a histogram with 19 % resolution. */
static __always_inline __u32 late_bin(__u64 ns)
{
	__u32 power = 0;

	for (int shift = 32; shift; shift >>= 1)
		if (ns >> (power + shift))
			power += shift;
	return (power * 4 + (power >= 2 ? ns >> (power - 2) & 3 : 0)) & (LW_LATE_BINS - 1);
}

/*
 * Adds k to one 16-bit word of an address and takes it from the next, in ones' complement: the
 * checksums of IP, TCP and UDP stay right without being touched.
 */
static __always_inline void shift_address(__u8 *word, __u32 k)
{
	__u32 a = (word[0] << 8 | word[1]) + k;
	__u32 b = (word[2] << 8 | word[3]) + (~k & 0xffff);

	a = (a & 0xffff) + (a >> 16);
	b = (b & 0xffff) + (b >> 16);
	word[0] = (__u8)(a >> 8);
	word[1] = (__u8)a;
	word[2] = (__u8)(b >> 8);
	word[3] = (__u8)b;
}

static __always_inline void put_number(__u8 *to, __u64 segment, __u64 number)
{
	to[0] = 0x02;
	to[1] = (__u8)segment;
	to[2] = (__u8)(number >> 24);
	to[3] = (__u8)(number >> 16);
	to[4] = (__u8)(number >> 8);
	to[5] = (__u8)number;
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct lw_plan *p = bpf_map_lookup_elem(&plan, &zero);
	struct lw_generated *g = bpf_map_lookup_elem(&generated, &zero);
	struct lw_template *t;
	struct lw_wait w = {};
	__u8 *data, *end;
	__u32 key, len, off;
	__u64 number, pass, late;

	if (!p || !g || g->next >= p->frames)
		return XDP_DROP;
	number = g->next++;
	pass = number / (lw_run ?: 1);
	key = (__u32)(pass % lw_templates);
	pass /= lw_templates;
	t = bpf_map_lookup_elem(&templates, &key);
	if (!t)
		goto refused;

	/* A burst is due at once, so its first frame waits for all of it and answers for all of it. */
	if (number % (p->when.burst ?: 1) == 0) {
		w.due_ns = due_ns(&p->when, number);
		bpf_loop(LW_WAITS, wait_loop, &w, 0);
		if (w.now_ns < w.due_ns)
			g->early += p->when.burst;
		late = w.now_ns > w.due_ns ? w.now_ns - w.due_ns : 0;
		g->late[late_bin(late)] += p->when.burst;
		if (late > g->late_max_ns)
			g->late_max_ns = late;
		if (!g->first_ns)
			g->first_ns = w.now_ns;
		g->last_ns = w.now_ns;
	}

	len = t->len;
	if (len < 14 || len > LW_FRAME_MAX)
		goto refused;
	if (bpf_xdp_adjust_tail(ctx, (int)len - (int)bpf_xdp_get_buff_len(ctx)))
		goto refused;
	if (bpf_xdp_store_bytes(ctx, 0, t->frame, len))
		goto refused;
	data = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	if (data + 14 > end)
		goto refused;
	off = lw_number_at;
	if (!off)
		put_number(data + 6, p->segment, number);
	if (off && off < 128 && data + off + 12 <= end) {
		put_number(data + off, p->segment, number);
		for (int i = 0; i < 6; i++)
			data[off + 6 + i] = ~data[off + i];
	}
	if (pass && t->src_off) {
		__u32 k = (__u32)(pass % 65533) + 1;

		off = t->src_off;
		if (off < 128 && data + off + 4 <= end)
			shift_address(data + off, k);
		off = t->dst_off;
		if (off < 128 && data + off + 4 <= end)
			shift_address(data + off, k);
	}
	/*
	 * The reader of a TAP device that asked for packet information (flags and protocol, 4 bytes in
	 * front) gets it with a socket buffer; of a frame redirected into the device the kernel hands
	 * over the bare bytes, and the reader would take the first 4 of the frame for it.
	 */
	if (lw_packet_info) {
		if (bpf_xdp_adjust_head(ctx, -4))
			goto refused;
		data = (__u8 *)(long)ctx->data;
		end = (__u8 *)(long)ctx->data_end;
		if (data + 18 > end)
			goto refused;
		data[0] = 0;
		data[1] = 0;
		data[2] = data[16];
		data[3] = data[17];
	}
	g->bytes += len;
	return bpf_redirect(lw_ifindex, 0);

refused:
	g->refused++;
	return XDP_DROP;
}
