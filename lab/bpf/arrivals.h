/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the far end of a forwarder and its user-space part share; `src/arrivals.rs` mirrors it. */
#ifndef LANEWAY_LAB_ARRIVALS_H
#define LANEWAY_LAB_ARRIVALS_H

#include <linux/types.h>

#include "times.h"
#include "trips.h"

/* What is coming, set before its first frame is due. */
struct lw_coming {
	__u64 epoch; /* another one for every segment */
	__u64 segment;
	__u64 frames; /* 0: nothing is */
	__u64 late_ns; /* what arrives this long after it was due is late */
	struct lw_when when;
};

/* What arrived, read after the segment. */
struct lw_arrived {
	__u64 distinct;
	__u64 duplicates;
	__u64 reordered;
	__u64 foreign; /* of another segment */
	__u64 strangers; /* without a number */
	__u64 next; /* number after the highest seen */
	__u64 first_ns;
	__u64 last_ns; /* of the sampled ones */
	struct lw_trips trips; /* likewise, since each was due */
};

/* 64 numbers; the bits count only if the epoch is this segment's. */
struct lw_tick {
	__u64 epoch;
	__u64 bits;
};

#endif
