/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the CPU meter keeps per CPU; `src/meter/layout.rs` reads it. */
#ifndef LANEWAY_LAB_METER_H
#define LANEWAY_LAB_METER_H

#include <linux/types.h>
#include <laneway/running.h>

/* Arms are numbered from 0. */
#define LW_ARMS 33
/* Processes of arms and generators that live at once. */
#define LW_TASKS_MAX 65536

enum lw_owner { /* whose time it is */
	LW_OWNER_FOREIGN = 0,
	LW_OWNER_IDLE = 1,
	LW_OWNER_LAB = 2, /* the process that runs the race */
	LW_OWNER_HOST = 3, /* ksoftirqd: works for whomever */
	LW_OWNER_ARM = 4, /* of arm a: LW_OWNER_ARM + a */
	LW_OWNER_GENERATOR = LW_OWNER_ARM + LW_ARMS, /* of arm a's generator: likewise */
	LW_OWNER_COUNT = LW_OWNER_GENERATOR + LW_ARMS,
};

enum lw_part { /* which part of it */
	LW_PART_TASK = 0,
	LW_PART_NAPI = 1, /* a thread that polls the owner's interface */
	LW_PART_NET_RX = 2, /* softirq that polls the owner's interface, or sends by it */
	/* Beside the owner: what interrupted its task, or its NAPI thread, of unknown cause. */
	LW_PART_BESIDE_NET_RX = 3,
	LW_PART_BESIDE_NET_TX = 4,
	LW_PART_BESIDE_SOFTIRQ = 5,
	LW_PART_BESIDE_HARDIRQ = 6,
	LW_PART_COUNT = 7,
};

#define LW_CELLS (LW_OWNER_COUNT * LW_PART_COUNT)
/* A power of two that holds all owners: the verifier of kernel 6.1 keeps the bounds of a mask. */
#define LW_OWNER_ROOM 128

enum lw_context { /* what runs */
	LW_CONTEXT_TASK = 0,
	LW_CONTEXT_NET_RX = 1,
	LW_CONTEXT_NET_TX = 2,
	LW_CONTEXT_SOFTIRQ = 3,
	LW_CONTEXT_HARDIRQ = 4,
	LW_CONTEXT_SENDING = 5, /* a softirq that sent: of the owner of the interface */
};

/* An owner, and as which part of it a task runs. */
struct lw_who {
	__u32 owner;
	__u32 part;
};

/* An interface; its number alone is one in every network namespace. */
struct lw_device {
	__u32 netns;
	__u32 ifindex;
};

struct lw_name {
	char comm[16];
};

struct lw_meter {
	/*
	 * The last change that is complete. The kernel copies this struct from its first word to its last while the
	 * programs run on: a copy in which `done` is `begun` was not written to meanwhile.
	 */
	__u64 done;
	__u64 since_ns; /* start of the interval now open */
	struct lw_who task; /* that runs, or is interrupted */
	__u32 context;
	__u32 interrupted; /* the context that a device interrupt arrived in */
	struct lw_who device; /* that was polled, or sent by, last in this softirq; else `beside` of the task */
	__u64 pending_ns; /* of this softirq: without an owner until a device was polled or sent by */
	__u64 events; /* booked */
	__u64 ns[LW_CELLS]; /* by owner, and in each by part */
	__u64 unnamed_ns; /* of the foreign task that runs: not yet under its name */
	struct lw_running running; /* the task that runs */
	__u64 pending_events; /* of this softirq, as pending_ns */
	__u64 own_events[LW_OWNER_ROOM]; /* of what is an owner's own: the meter's work for it */
	__u64 begun; /* changes so far */
};

#endif
