/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the far ends of a fan-out and their user-space part share; `src/copies.rs` mirrors it. */
#ifndef LANEWAY_LAB_COPIES_H
#define LANEWAY_LAB_COPIES_H

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
struct lw_copied {
	__u64 distinct;
	__u64 duplicates;
	__u64 reordered;
	__u64 foreign; /* of another segment */
	__u64 strangers; /* the kernel's own talk */
	__u64 unknown; /* sent to a group or port that is no output */
	__u64 misled; /* sent to another group than the one that it was received for */
	__u64 spoilt; /* not the bytes that were sent, or not as many */
	__u64 first_ns;
	__u64 last_ns; /* of the sampled ones */
	__u64 trains; /* of two datagrams and more, that arrived uncut */
	__u64 in_trains; /* datagrams in them */
	struct lw_trips trips; /* likewise, since each was due */
};

/* An output of this cable; it counts only if the epoch is this segment's. */
struct lw_output {
	__u64 epoch;
	__u64 distinct;
	__u64 next; /* number after the highest seen */
};

/* 64 numbers of one output; likewise. */
struct lw_tick {
	__u64 epoch;
	__u64 bits;
};

#endif
