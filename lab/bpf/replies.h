/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the far end of a race of pings and its user-space part share; `src/replies.rs` mirrors it. */
#ifndef LANEWAY_LAB_REPLIES_H
#define LANEWAY_LAB_REPLIES_H

#include <linux/types.h>

#include "times.h"
#include "trips.h"

#define LW_PROBE_ID 0x4c57 /* ICMP identifier of every request of ours */

/* What is coming, set before its first frame is due. */
struct lw_expected {
	__u64 epoch; /* another one for every segment */
	__u64 segment;
	__u64 frames; /* 0: nothing is */
	__u64 late_ns; /* a reply after this long is late */
	struct lw_when when;
};

/* What arrived, read after the segment. */
struct lw_replies {
	__u64 distinct;
	__u64 duplicates;
	__u64 reordered;
	__u64 foreign; /* of another segment, or with other data than was sent */
	__u64 next; /* number after the highest seen */
	__u64 first_ns;
	__u64 last_ns;
	struct lw_trips trips;
};

/* 64 numbers; the bits count only if the epoch is this segment's. */
struct lw_ticked {
	__u64 epoch;
	__u64 bits;
};

#endif
