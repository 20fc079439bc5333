/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* When a frame is due; `src/timetable.rs` computes the same. */
#ifndef LANEWAY_LAB_TIMES_H
#define LANEWAY_LAB_TIMES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define LW_STEPS 64 /* in an entry of the map */
#define LW_STEP_BITS 16 /* 2^16 steps are the mean interval */

/* Of a segment. */
struct lw_when {
	__u64 t0_ns;
	__u64 interval_ns; /* between arrivals, on average */
	__u64 burst; /* frames per arrival */
	__u64 start; /* place of the first arrival in the table */
	__u64 start_steps; /* its steps */
};

/* Arrivals of the table; 0: there is none, and arrivals are evenly spaced. */
const volatile __u32 lw_arrivals = 0;

struct lw_steps {
	__u64 at[LW_STEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_steps);
} steps SEC(".maps");

static __always_inline __u64 due_ns(const struct lw_when *when, __u64 number)
{
	__u64 arrival = number / (when->burst ?: 1), pass, place, at;
	const struct lw_steps *row;
	__u32 key;

	if (!lw_arrivals)
		return when->t0_ns + arrival * when->interval_ns;
	pass = (when->start + arrival) / lw_arrivals;
	place = (when->start + arrival) % lw_arrivals;
	key = place / LW_STEPS;
	row = bpf_map_lookup_elem(&steps, &key);
	if (!row)
		return when->t0_ns;
	at = ((pass * lw_arrivals) << LW_STEP_BITS) + row->at[place % LW_STEPS] - when->start_steps;
	/* The product of both would not fit where a segment is long. */
	return when->t0_ns + (at >> LW_STEP_BITS) * when->interval_ns +
	       ((at & ((1 << LW_STEP_BITS) - 1)) * when->interval_ns >> LW_STEP_BITS);
}

#endif
