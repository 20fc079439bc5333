// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel half of app echo: one XDP program that answers in the received frame and sends it back
 * by its ingress interface. What it passes goes to the kernel, or to the program in `next`.
 *
 * Counters are per CPU. The two rate limits hold over all CPUs: a schedule is one word that is
 * advanced by compare-and-swap. What a run does not use is switched off by constants below, which
 * the verifier then removes.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#include "echo.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading; see src/kernel.rs. */
const volatile struct lw_echo_config lw_config;
const volatile struct lw_echo_schedule lw_per_source;
const volatile struct lw_echo_schedule lw_global;
const volatile struct lw_echo_key lw_own[LW_ECHO_OWN_MAX];
const volatile __u32 lw_own_count; /* 0: they are in the map `owned` */
const volatile bool lw_has_next;
const volatile bool lw_coarse; /* the limits are wide: time may be a tick old */
const volatile bool lw_stamped; /* tests: the time comes as metadata */

struct lw_seen {
	__u64 frames;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_seen);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_DROP_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

/* Frames by fate; behind them the bytes of the answers. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_ECHO_FATES + 1);
	__type(key, __u32);
	__type(value, __u64);
} fates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct lw_echo_key);
	__type(value, __u8);
} owned SEC(".maps");

/* When the next question of each source is due. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct lw_echo_key);
	__type(value, __u64);
} sources SEC(".maps");

/* When the next question of any host is due. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} due SEC(".maps");

/* The program that sees what this one passes. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

LW_INLINE int lw_echo_owns(const struct lw_echo_key *key)
{
	if (!lw_own_count)
		return bpf_map_lookup_elem(&owned, key) != 0;
	for (__u32 i = 0; i < LW_ECHO_OWN_MAX && i < lw_own_count; i++) {
		__u32 differs = 0;

		for (int w = 0; w < 4; w++)
			differs |= key->word[w] ^ lw_own[i].word[w];
		if (!differs)
			return 1;
	}
	return 0;
}

LW_INLINE __u64 *lw_echo_source_due(const struct lw_echo_key *key)
{
	__u64 *found = bpf_map_lookup_elem(&sources, key);
	const __u64 at_once = 0;

	if (found)
		return found;
	/* Fails when another CPU was first: the second look finds its entry. */
	bpf_map_update_elem(&sources, key, &at_once, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sources, key);
}

LW_INLINE __u64 *lw_echo_global_due(void)
{
	const __u32 zero = 0;

	return bpf_map_lookup_elem(&due, &zero);
}

LW_INLINE __u64 lw_echo_now_ns(const struct lw_view *view)
{
	if (lw_stamped) {
		const __u64 *stamp = (void *)(long)view->ctx->data_meta;

		if ((const __u8 *)(stamp + 1) <= (const __u8 *)(long)view->ctx->data)
			return *stamp;
	}
	return lw_coarse ? bpf_ktime_get_coarse_ns() : bpf_ktime_get_ns();
}

static __always_inline void add(void *map, __u32 at, __u64 n)
{
	__u64 *sum = bpf_map_lookup_elem(map, &at);

	if (sum)
		*sum += n;
}

/* A program can call only programs that take fragments if it does: echo_linear.bpf.c takes none. */
#ifndef LW_ECHO_SECTION
#define LW_ECHO_SECTION "xdp.frags"
#endif

SEC(LW_ECHO_SECTION)
int echo(struct xdp_md *ctx)
{
	const struct lw_view view = {
		.data = (const __u8 *)(long)ctx->data,
		.end = (const __u8 *)(long)ctx->data_end,
		.len = (__u32)bpf_xdp_get_buff_len(ctx),
		.ctx = ctx,
	};
	/* Read as volatile, field by field: a cast would let the compiler fold the zeros it sees. */
	const struct lw_echo_config config = {
		.mac = { lw_config.mac[0], lw_config.mac[1], lw_config.mac[2], lw_config.mac[3],
			 lw_config.mac[4], lw_config.mac[5] },
		.ttl = lw_config.ttl,
		.answers_neighbours = lw_config.answers_neighbours,
	};
	const struct lw_echo_limits limits = { .per_source = &lw_per_source, .global = &lw_global };
	const __u32 zero = 0;
	struct lw_seen *s = bpf_map_lookup_elem(&seen, &zero);
	__u32 fate;

	if (s) {
		s->frames++;
		s->bytes += view.len;
	}
	fate = lw_echo(&view, &config, &limits);
	add(&fates, fate, 1);
	if (fate < LW_ECHO_PASSES_FROM) {
		add(&fates, LW_ECHO_FATES, view.len);
		return XDP_TX;
	}
	if (fate >= LW_ECHO_DROPS_FROM && fate < LW_ECHO_FATES) {
		add(&drops, lw_echo_reasons[fate - LW_ECHO_DROPS_FROM], 1);
		return XDP_DROP;
	}
	if (lw_has_next)
		bpf_tail_call(ctx, &next, 0);
	return XDP_PASS;
}
