/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the CPU meter keeps per CPU; `src/meter.rs` reads it. */
#ifndef LANEWAY_LAB_METER_H
#define LANEWAY_LAB_METER_H

#include <linux/types.h>

enum lw_class { /* who runs */
	LW_CLASS_OTHER = 0,
	LW_CLASS_IDLE = 1,
	LW_CLASS_ARM = 2,
	LW_CLASS_NAPI = 3,
	LW_CLASS_GENERATOR = 4,
	LW_CLASS_KSOFTIRQD = 5,
	LW_CLASS_COUNT = 6,
};

enum lw_context { /* on whose behalf */
	LW_CONTEXT_TASK = 0,
	LW_CONTEXT_NET_RX = 1,
	LW_CONTEXT_NET_TX = 2,
	LW_CONTEXT_SOFTIRQ = 3,
	LW_CONTEXT_HARDIRQ = 4,
	LW_CONTEXT_COUNT = 5,
};

struct lw_meter {
	__u64 since_ns; /* start of the interval now open */
	__u32 class;
	__u32 context;
	__u32 interrupted;
	__u32 unused;
	__u64 switches;
	__u64 softirqs;
	__u64 ns[LW_CLASS_COUNT][LW_CONTEXT_COUNT];
};

#endif
