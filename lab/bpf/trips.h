/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* How long frames took since they were due; `src/round_trips.rs` reads it. */
#ifndef LANEWAY_LAB_TRIPS_H
#define LANEWAY_LAB_TRIPS_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* 64 per power of two from 64 ns on, so within 1.6 %; below that one per ns. */
#define LW_TRIP_BINS 2048

struct lw_trips {
	__u64 late;
	__u64 shortest_ns;
	__u64 longest_ns;
	__u64 sum_ns;
	__u64 squares_low; /* sum of squares, 128 bits */
	__u64 squares_high;
	__u64 bins[LW_TRIP_BINS];
};

static __always_inline __u32 trip_bin(__u64 ns)
{
	__u32 power = 0, bin;

	if (ns < 64)
		return (__u32)ns;
	for (int shift = 32; shift; shift >>= 1)
		if (ns >> (power + shift))
			power += shift;
	bin = (power - 5) * 64 + (ns >> (power - 6) & 63);
	return bin < LW_TRIP_BINS ? bin : LW_TRIP_BINS - 1;
}

/* One that took longer than `late_ns` is late, and booked as long as it took. */
static __always_inline void book_trip(struct lw_trips *trips, __u64 ns, __u64 late_ns)
{
	__u64 square, kept = ns > 0xffffffff ? 0xffffffff : ns;
	__u32 bin = trip_bin(ns);

	if (bin < LW_TRIP_BINS)
		trips->bins[bin]++;
	if (!trips->shortest_ns || ns < trips->shortest_ns)
		trips->shortest_ns = ns ?: 1;
	if (ns > trips->longest_ns)
		trips->longest_ns = ns;
	if (ns > late_ns)
		trips->late++;
	trips->sum_ns += ns;
	square = kept * kept;
	trips->squares_low += square;
	if (trips->squares_low < square)
		trips->squares_high++;
}

#endif
