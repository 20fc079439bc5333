/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the kernel join tells: one record per event. `kernel.rs` reads the same bytes; a test there holds
 * the numbers below against the tracer's table of points.
 */
#ifndef LANEWAY_JOIN_H
#define LANEWAY_JOIN_H

#include <linux/types.h>

#define LW_JOIN_SWITCHED_OUT 64
#define LW_JOIN_SWITCHED_IN 65
#define LW_JOIN_IRQ_IN 66
#define LW_JOIN_IRQ_OUT 67
#define LW_JOIN_SOFTIRQ_IN 68
#define LW_JOIN_SOFTIRQ_OUT 69
#define LW_JOIN_SYSCALL_IN 70
#define LW_JOIN_SYSCALL_OUT 71
#define LW_JOIN_NAPI_POLL 72
#define LW_JOIN_SIGNAL 73
#define LW_JOIN_TASK 76
#define LW_JOIN_TOOK_OVER 77
#define LW_JOIN_WOKEN_BY 78

/* Softirq vectors are numbered from here, so that no device interrupt has their numbers. */
#define LW_JOIN_SOFTIRQ_BASE 65536

/* A page fault of a program in user space is an interrupt with this number. */
#define LW_JOIN_PAGE_FAULT 131072

/* The number of a system call whose entry was not seen. */
#define LW_JOIN_UNKNOWN 0xffffffff

struct lw_join {
	__u64 ts_ns; /* CLOCK_MONOTONIC */
	__u64 value;
	__u32 tgid;
	__u32 tid;
	__u32 cpu;
	__u16 point;
	__u16 small;
};

/* Indices of the map `drops`. */
#define LW_JOIN_RING_FULL 0    /* events that found no room */
#define LW_JOIN_NOT_FOLLOWED 1 /* processes beyond the limit */
#define LW_JOIN_DROPS 2

#endif
