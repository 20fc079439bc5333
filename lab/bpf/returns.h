/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the far end of a bounce and its user-space part share; `src/returns.rs` mirrors it. */
#ifndef LANEWAY_LAB_RETURNS_H
#define LANEWAY_LAB_RETURNS_H

#include <linux/types.h>

#include "times.h"
#include "trips.h"

/* What is coming, set before its first frame is due. */
struct lw_under_way {
	__u64 segment;
	__u64 frames; /* 0: nothing is */
	__u64 late_ns; /* what comes back this long after it was due is late */
	struct lw_when when;
};

#endif
