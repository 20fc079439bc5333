/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the live-frame generator and its user-space part share; `src/generate/live.rs` mirrors it. */
#ifndef LANEWAY_LAB_GENERATE_H
#define LANEWAY_LAB_GENERATE_H

#include <linux/types.h>

#define LW_FRAME_MAX 1522 /* MTU 1500, Ethernet header, two VLAN tags */
#define LW_LATE_BINS 256  /* 4 per power of two */

/* A frame of the capture, ready to be sent. */
struct lw_template {
	__u32 len;
	__u16 src_off; /* of the 4 address bytes that a loop changes; 0: none */
	__u16 dst_off;
	__u8 frame[LW_FRAME_MAX + 6];
};

/* What the program did, read after the run. */
struct lw_generated {
	__u64 next;    /* frames attempted so far */
	__u64 refused; /* attempts that the program could not complete */
	__u64 bytes;
	__u64 first_ns;
	__u64 last_ns;
	__u64 late_max_ns;
	__u64 early; /* frames that left before they were due */
	__u64 late[LW_LATE_BINS];
};

#endif
