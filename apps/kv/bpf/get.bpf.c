// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel half of app kv: answers GET over UDP from a cache that the worker fills and clears, in the frame that it
 * got. What it leaves goes to the kernel's sockets.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include <laneway/drop_reason.h>

#include "get.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * Set before loading; see src/get/cache.rs. As it stands here every list is full, so that a verifier that is shown the
 * object alone follows every path.
 */
const volatile struct lw_kv_config lw_config = {
	.slots = 1,
	.listen_count = LW_KV_LISTEN_MAX,
	.allowed_count = LW_KV_ALLOWED_MAX,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_kv_entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} versions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} epoch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_kv_copy);
} copies SEC(".maps");

struct lw_kv_fates {
	__u64 of[LW_KV_FATES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_kv_fates);
} fates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_DROP_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

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

LW_INLINE const struct lw_kv_entry *lw_kv_entry(__u32 slot)
{
	return bpf_map_lookup_elem(&entries, &slot);
}

LW_INLINE const volatile __u64 *lw_kv_version(__u32 slot)
{
	return bpf_map_lookup_elem(&versions, &slot);
}

LW_INLINE struct lw_kv_copy *lw_kv_copy(void)
{
	const __u32 zero = 0;

	return bpf_map_lookup_elem(&copies, &zero);
}

LW_INLINE __u32 lw_kv_epoch(void)
{
	const __u32 zero = 0;
	const volatile __u64 *now = bpf_map_lookup_elem(&epoch, &zero);

	return now ? (__u32)*now : 0;
}

/* An atomic that fetches orders everything; on a word of our own it shares no cache line. */
LW_INLINE void lw_kv_barrier(void)
{
	__u64 word = 0, was = __sync_fetch_and_add(&word, 1);

	asm volatile("" : : "r"(was) : "memory");
}

LW_INLINE long lw_kv_store(struct lw_view *view, __u32 off, const void *from, __u32 len)
{
	return bpf_xdp_store_bytes(view->ctx, off, (void *)from, len);
}

LW_INLINE void lw_kv_cut(struct lw_view *view, __u32 len)
{
	/* What is longer than its headers say is no harm. */
	bpf_xdp_adjust_tail(view->ctx, (int)len - (int)view->len);
}

static __always_inline void drop(__u32 reason)
{
	__u64 *count = bpf_map_lookup_elem(&drops, &reason);

	if (count)
		++*count;
}

SEC("xdp.frags")
int get(struct xdp_md *ctx)
{
	struct lw_view view = {
		.data = (const __u8 *)(long)ctx->data,
		.end = (const __u8 *)(long)ctx->data_end,
		.len = (__u32)bpf_xdp_get_buff_len(ctx),
		.ctx = ctx,
	};
	const __u32 zero = 0;
	struct lw_seen *s = bpf_map_lookup_elem(&seen, &zero);
	struct lw_kv_fates *f;
	__u32 fate;

	if (s) {
		s->frames++;
		s->bytes += view.len;
	}
	fate = lw_kv_get(&view, &lw_config);
	f = bpf_map_lookup_elem(&fates, &zero);
	if (f && fate < LW_KV_FATES)
		f->of[fate]++;
	switch (fate) {
	case LW_KV_HIT:
		return XDP_TX;
	case LW_KV_DROPPED_SOURCE:
		drop(LW_DROP_FILTERED_OUT);
		return XDP_DROP;
	default:
		return XDP_PASS;
	}
}
