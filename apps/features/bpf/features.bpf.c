// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel half of app features: two XDP programs over one parser.
 *
 * features_packets writes one record per frame into the ring of its CPU. features_flows keeps the
 * flow accumulators in a per-CPU hash and writes a flow record when a flow has ended. Both count
 * what they see and everything they leave out; neither allocates, and an unwritable record costs a
 * counter, never a frame.
 *
 * What a run does not use is switched off by constants below, which the verifier then removes.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#include <laneway/drop_reason.h>
#include <laneway/rings.h>

#include "filter.h"
#include "flow.h"
#include "parse.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading; see src/kernel.rs. */
const volatile __u32 lw_verdict = XDP_PASS; /* what becomes of a frame that was looked at */
const volatile __u32 lw_sample = 1;         /* keep one frame in so many */
const volatile __u64 lw_rate_interval_ns;   /* ns per record at the rate limit; 0: no limit */
const volatile __u64 lw_rate_burst_ns;
const volatile bool lw_stamped;      /* tests: time, wire length and number come as metadata */
const volatile bool lw_seq_from_mac; /* the lab: the generator numbers frames in the source MAC */
const volatile struct lw_filter lw_filter;
const volatile struct lw_flow_limits lw_limits;

/* What a stamped frame carries in front of it. */
struct lw_stamp {
	__u64 ts_ns;
	__u64 seq_no;
	__u32 frame_len;
	__u32 unused;
};

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

/* Frames that belong to no flow, by status. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_STATUS_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} unflowed SEC(".maps");

struct lw_scratch {
	struct lw_record record;
	struct lw_flow_key key;
	struct lw_flow empty; /* never written: what a flow is before its first frame */
	__u64 rate_due_ns;
	struct lw_clock clock;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_scratch);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct lw_flow_key);
	__type(value, struct lw_flow);
} flows SEC(".maps");

static __always_inline void count_drop(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&drops, &reason);

	if (n)
		(*n)++;
}

static __always_inline void *my_ring(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&rings, &cpu);
}

/* Call it after the reservation and submit with what it returns. */
static __always_inline __u64 wake_flags(void *ring)
{
	const __u32 zero = 0;

	return lw_wake_flags(ring, bpf_map_lookup_elem(&wanted, &zero));
}

/* The rate limit: a virtual schedule (GCRA), so that only one number is state. */
static __always_inline bool within_rate(struct lw_scratch *s, __u64 now_ns)
{
	__u64 due;

	if (!lw_rate_interval_ns)
		return true;
	due = s->rate_due_ns > now_ns ? s->rate_due_ns : now_ns;
	/* Further ahead than any schedule: a time was wrong. It never is here, and in user space it begins anew so. */
	if (due - now_ns > lw_rate_burst_ns + lw_rate_interval_ns + LW_CLOCK_BEHIND_NS)
		due = now_ns;
	if (due - now_ns > lw_rate_burst_ns)
		return false;
	s->rate_due_ns = due + lw_rate_interval_ns;
	return true;
}

/*
 * Counts the frame and decides by its number alone whether to look at it. Returns its number in
 * `number`, or false.
 */
static __always_inline bool admit(struct xdp_md *ctx, __u64 len, __u64 *number)
{
	const __u32 zero = 0;
	struct lw_seen *s = bpf_map_lookup_elem(&seen, &zero);

	if (!s)
		return false;
	*number = s->frames++;
	s->bytes += len;
	if (lw_sample > 1 && *number % lw_sample) {
		count_drop(LW_DROP_SAMPLED_OUT);
		return false;
	}
	return true;
}

/* Fills `r` from the frame. */
static __always_inline void extract(struct xdp_md *ctx, __u32 len, __u64 number,
				    struct lw_record *r)
{
	struct lw_view view = {
		.data = (const __u8 *)(long)ctx->data,
		.end = (const __u8 *)(long)ctx->data_end,
		.len = len,
		.ctx = ctx,
	};

	__builtin_memset(r, 0, sizeof(*r));
	r->cap_len = len;
	r->frame_len = len;
	r->seq_no = number;
	r->ifindex = ctx->ingress_ifindex;
	r->rx_queue = (__u16)ctx->rx_queue_index;
	if (lw_stamped) {
		const struct lw_stamp *stamp = (void *)(long)ctx->data_meta;

		if ((const __u8 *)(stamp + 1) <= view.data) {
			r->ts_ns = stamp->ts_ns;
			r->seq_no = stamp->seq_no;
			r->frame_len = stamp->frame_len;
			r->ifindex = 0;
			r->rx_queue = 0;
		}
	} else {
		r->ts_ns = bpf_ktime_get_ns();
	}
	if (lw_seq_from_mac && view.data + LW_ETH_BYTES <= view.end)
		r->seq_no = (__u64)view.data[7] << 32 | lw_be32(view.data + 8);
	lw_parse(&view, r);
}

SEC("xdp.frags")
int features_packets(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct lw_scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	__u32 len = (__u32)bpf_xdp_get_buff_len(ctx);
	struct lw_record *r;
	__u64 number;
	void *ring;

	if (!s || !admit(ctx, len, &number))
		return lw_verdict;
	ring = my_ring();
	if (!ring) {
		count_drop(LW_DROP_RECORD_RING_FULL);
		return lw_verdict;
	}

	/* A filter or a rate limit decides on the record, so it is made aside first. */
	if (lw_filter.count || lw_rate_interval_ns) {
		extract(ctx, len, number, &s->record);
		if (!lw_filter_admits(&lw_filter, &s->record)) {
			count_drop(LW_DROP_FILTERED_OUT);
			return lw_verdict;
		}
		if (!within_rate(s, s->record.ts_ns)) {
			count_drop(LW_DROP_RATE_LIMITED);
			return lw_verdict;
		}
		r = bpf_ringbuf_reserve(ring, sizeof(*r), 0);
		if (r)
			__builtin_memcpy(r, &s->record, sizeof(*r));
	} else {
		r = bpf_ringbuf_reserve(ring, sizeof(*r), 0);
		if (r)
			extract(ctx, len, number, r);
	}
	if (!r) {
		count_drop(LW_DROP_RECORD_RING_FULL);
		return lw_verdict;
	}
	bpf_ringbuf_submit(r, wake_flags(ring));
	return lw_verdict;
}

/* Hands an ended flow over; a full ring costs the whole flow, so it is counted by its frames. */
static __always_inline void emit_flow(const struct lw_flow_key *key, struct lw_flow *f, __u8 why)
{
	struct lw_flow_record *out;
	const __u32 reason = LW_DROP_RECORD_RING_FULL;
	void *ring = my_ring();
	__u64 *n;

	lw_flow_close(f, why);
	out = ring ? bpf_ringbuf_reserve(ring, sizeof(*out), 0) : 0;
	if (!out) {
		n = bpf_map_lookup_elem(&drops, &reason);
		if (n)
			*n += f->side[0].pkts + f->side[1].pkts;
		return;
	}
	__builtin_memcpy(&out->key, key, sizeof(*key));
	__builtin_memcpy(&out->flow, f, sizeof(*f));
	bpf_ringbuf_submit(out, wake_flags(ring));
}

SEC("xdp.frags")
int features_flows(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct lw_scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	__u32 len = (__u32)bpf_xdp_get_buff_len(ctx);
	struct lw_record *r;
	struct lw_flow *f;
	__u64 number, now;
	__u8 src_is_lo, why;

	if (!s || !admit(ctx, len, &number))
		return lw_verdict;
	r = &s->record;
	extract(ctx, len, number, r);
	if (lw_filter.count && !lw_filter_admits(&lw_filter, r)) {
		count_drop(LW_DROP_FILTERED_OUT);
		return lw_verdict;
	}
	if (!within_rate(s, r->ts_ns)) {
		count_drop(LW_DROP_RATE_LIMITED);
		return lw_verdict;
	}
	now = lw_clock_tick(&s->clock, r);
	if (!lw_flow_eligible(r)) {
		__u32 status = r->status;
		__u64 *n = bpf_map_lookup_elem(&unflowed, &status);

		if (n)
			(*n)++;
		return lw_verdict;
	}

	src_is_lo = lw_flow_key_of(r, &s->key);
	f = bpf_map_lookup_elem(&flows, &s->key);
	if (!f) {
		/*
		 * Zero on every CPU. This fails when the table is full, or when another CPU was first:
		 * the second look tells which.
		 */
		bpf_map_update_elem(&flows, &s->key, &s->empty, BPF_NOEXIST);
		f = bpf_map_lookup_elem(&flows, &s->key);
		if (!f) {
			count_drop(LW_DROP_FLOW_TABLE_FULL);
			return lw_verdict;
		}
	}
	/* Without frames when it is new, or when only other CPUs saw some. */
	if (f->subflows) {
		/* Read as volatile: a cast would let the compiler fold the zeros it sees here. */
		const struct lw_flow_limits limits = {
			.idle_ns = lw_limits.idle_ns,
			.active_ns = lw_limits.active_ns,
			.end_ns = lw_limits.end_ns,
		};

		why = lw_flow_ended(f, &limits, r, now);
		if (why) {
			emit_flow(&s->key, f, why);
			__builtin_memset(f, 0, sizeof(*f));
		}
	}
	lw_flow_add(f, r, now, src_is_lo);
	return lw_verdict;
}
