/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which task a CPU runs, where sched_switch does not report every switch. The guest kernel 6.18 of
 * Firecracker that this was found on reports none away from threads of pid 1, to ftrace neither: by
 * sched_switch alone, all that the next task runs up to its own switch is booked on the one before it.
 *
 * So a program compares the task that it knows with the one that runs, in every event. Where they differ,
 * the scheduler's count of what the task that is gone has run tells when it left.
 */
#ifndef LANEWAY_RUNNING_H
#define LANEWAY_RUNNING_H

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

struct sched_entity {
	__u64 sum_exec_runtime; /* up to the last tick, or to when the task left its CPU */
	__u64 prev_sum_exec_runtime; /* of these, before the task was switched in */
} __attribute__((preserve_access_index));

struct task_struct___lw_running {
	struct sched_entity se;
} __attribute__((preserve_access_index));

/* One per CPU. */
struct lw_running {
	__u64 task; /* its address; 0: not known yet. It may be gone, and then what is read of it is anything */
	__u64 came_ns; /* when it was switched in on this CPU */
	__u64 ran_ns; /* how long it had run before, by the scheduler's count */
};

/* What the scheduler counted for the task at this address; a function, so that only the task's fields are relocated. */
static __always_inline __u64 lw_ran_ns(__u64 task)
{
	struct task_struct___lw_running *counted = (void *)task;

	return BPF_CORE_READ(counted, se.sum_exec_runtime);
}

static __always_inline __u64 lw_ran_before_ns(__u64 task)
{
	struct task_struct___lw_running *counted = (void *)task;

	return BPF_CORE_READ(counted, se.prev_sum_exec_runtime);
}

/* The switch to `next` was seen `now_ns`. */
static __always_inline void lw_running_next(struct lw_running *r, const void *next, __u64 now_ns)
{
	r->task = (__u64)next;
	r->came_ns = now_ns;
	r->ran_ns = lw_ran_ns(r->task);
}

/* Whether another task runs than the one that is known. */
static __always_inline _Bool lw_running_changed(const struct lw_running *r)
{
	return r->task != bpf_get_current_task();
}

/* When the task that is known left unseen: not before `since_ns`, an event in which it ran, nor after `now_ns`. */
static __always_inline __u64 lw_running_left_ns(const struct lw_running *r, __u64 since_ns, __u64 now_ns)
{
	__u64 left_ns;

	if (!r->task)
		return now_ns;
	left_ns = r->came_ns + lw_ran_ns(r->task) - r->ran_ns;
	if (left_ns < since_ns)
		left_ns = since_ns;
	return left_ns < now_ns ? left_ns : now_ns;
}

/* The task that runs has since `came_ns`. */
static __always_inline void lw_running_found(struct lw_running *r, __u64 came_ns)
{
	r->task = bpf_get_current_task();
	r->came_ns = came_ns;
	r->ran_ns = lw_ran_before_ns(r->task);
}

#endif
