// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel join: where the threads of the followed processes lose their CPU, are interrupted, and enter
 * the kernel. Together with a trace of the program itself it turns "a call took 3 ms" into "it was
 * preempted", "a softirq took it", or "nothing happened: look at the program".
 *
 * Followed are the processes in `followed`, and every child of one. A child of `lw_parent` is followed
 * as well, though that process itself is not: so a command is followed from its first instruction.
 *
 * A switch that the kernel does not report (laneway/running.h) is found in the next event: without that, a
 * thread that left its CPU for a moment would count as off it until its next switch.
 *
 * The task that took the CPU, the one that had it until the thread is back on it, and the one that woke the thread are
 * reported by name. The waker's record is in the ring of the CPU that it runs on: the reader sorts by time.
 *
 * A page fault is reported like an interrupt, from the tracepoint at its begin and the software event at its end; one
 * that the kernel's own code meets is part of its system call.
 *
 * Timer and inter-processor interrupts have no tracepoint that can be used here; their time belongs to
 * whatever they interrupted. What a timer does when it is due has two, so what it wakes is known to be its.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <laneway/rings.h>
#include <laneway/running.h>

#include "join.h"

#define SIGBUS 7
#define SIGSEGV 11

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __u32 lw_parent; /* its children are followed; 0: no process's */
const volatile __u32 overlooked; /* a process whose switches away are overlooked, for a test; 0: none */

/* Just enough of the kernel's types; the fields' places are found when the program is loaded. */
struct task_struct {
	int pid;
	int tgid;
	char comm[16];
} __attribute__((preserve_access_index));

/* Thread group ids. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} followed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_JOIN_DROPS);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_running);
} running SEC(".maps");

/* Interrupts, softirqs and timers that a CPU is in, one inside the other. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} interrupts SEC(".maps");

static __always_inline __u32 *depth(void)
{
	const __u32 zero = 0;

	return bpf_map_lookup_elem(&interrupts, &zero);
}

static __always_inline void interrupt_begins(void)
{
	__u32 *n = depth();

	if (n)
		(*n)++;
}

/* One that began before the programs were attached has not been counted. */
static __always_inline void interrupt_ends(void)
{
	__u32 *n = depth();

	if (n && *n)
		(*n)--;
}

static __always_inline _Bool in_interrupt(void)
{
	__u32 *n = depth();

	return n && *n;
}

static __always_inline void count_drop(__u32 why)
{
	__u64 *n = bpf_map_lookup_elem(&drops, &why);

	if (n)
		(*n)++;
}

static __always_inline int is_followed(__u32 tgid)
{
	return tgid && bpf_map_lookup_elem(&followed, &tgid);
}

static __always_inline void tell(__u64 ts_ns, __u32 tgid, __u32 tid, __u16 point, __u16 small, __u64 value)
{
	const __u32 zero = 0;
	__u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&rings, &cpu);
	struct lw_join *r;

	if (!ring)
		return;
	r = bpf_ringbuf_reserve(ring, sizeof(*r), 0);
	if (!r) {
		count_drop(LW_JOIN_RING_FULL);
		return;
	}
	r->ts_ns = ts_ns;
	r->value = value;
	r->tgid = tgid;
	r->tid = tid;
	r->cpu = cpu;
	r->point = point;
	r->small = small;
	bpf_ringbuf_submit(r, lw_wake_flags(ring, bpf_map_lookup_elem(&wanted, &zero)));
}

/* What the task with this name has to do with the thread: `what` is LW_JOIN_TOOK_OVER or LW_JOIN_WOKEN_BY. */
static __always_inline void tell_task(__u64 ts_ns, __u32 tgid, __u32 tid, __u16 what, const __u64 name[2])
{
	tell(ts_ns, tgid, tid, LW_JOIN_TASK, 0, name[0]);
	tell(ts_ns, tgid, tid, what, 0, name[1]);
}

/* If another thread is known to run than this one, which runs and is followed: records its arrival and the time. */
static __always_inline void look(__u32 tgid, __u32 tid)
{
	const __u32 zero = 0;
	struct lw_running *r = bpf_map_lookup_elem(&running, &zero);
	__u64 left_ns;
	_Bool is_first;

	if (!r || !lw_running_changed(r))
		return;
	left_ns = lw_running_left_ns(r, r->came_ns, bpf_ktime_get_ns());
	/* The time at which the first one that is seen arrived is not known. */
	is_first = !r->task;
	/* Before the record: an interrupt in between finds it known, and does not record it again. */
	lw_running_found(r, left_ns);
	if (!is_first)
		tell(left_ns, tgid, tid, LW_JOIN_SWITCHED_IN, 0, 0);
}

/* Whatever happens to the thread that this CPU runs. */
static __always_inline void tell_current(__u16 point, __u64 value)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = (__u32)(id >> 32);

	if (!is_followed(tgid))
		return;
	look(tgid, (__u32)id);
	tell(bpf_ktime_get_ns(), tgid, (__u32)id, point, 0, value);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	const __u32 zero = 0;
	struct lw_running *r = bpf_map_lookup_elem(&running, &zero);
	__u32 *interrupted = depth();
	__u64 now_ns;

	/* No interrupt switches: one whose end was not seen is over. */
	if (interrupted)
		*interrupted = 0;
	if (!r || (overlooked && (__u32)prev->tgid == overlooked))
		return 0;
	/* Reported before `next` comes on: one thread's end, then another one's beginning. */
	if (is_followed(prev->tgid)) {
		__u64 name[2] = {};

		look(prev->tgid, prev->pid);
		now_ns = bpf_ktime_get_ns();
		tell(now_ns, prev->tgid, prev->pid, LW_JOIN_SWITCHED_OUT, preempt || !prev_state, 0);
		BPF_CORE_READ_INTO(&name, next, comm);
		tell_task(now_ns, prev->tgid, prev->pid, LW_JOIN_TOOK_OVER, name);
	}
	now_ns = bpf_ktime_get_ns();
	lw_running_next(r, next, now_ns);
	if (is_followed(next->tgid)) {
		__u64 name[2] = {};

		/* Whom it waited for. A thread that was woken cannot know this from the switch away from it. */
		BPF_CORE_READ_INTO(&name, prev, comm);
		tell_task(now_ns, next->tgid, next->pid, LW_JOIN_TOOK_OVER, name);
		tell(now_ns, next->tgid, next->pid, LW_JOIN_SWITCHED_IN, 0, 0);
	}
	return 0;
}

/* An interrupt wakes in the name of whatever it interrupted, which has no part in it: it is reported without a name. */
SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *woken)
{
	__u64 name[2] = {};

	if (!is_followed(woken->tgid))
		return 0;
	if ((__u32)bpf_get_current_pid_tgid() && !in_interrupt())
		bpf_get_current_comm(&name, sizeof(name));
	tell_task(bpf_ktime_get_ns(), woken->tgid, woken->pid, LW_JOIN_WOKEN_BY, name);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_interrupt, int irq)
{
	interrupt_begins();
	tell_current(LW_JOIN_IRQ_IN, (__u32)irq);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_interrupt_done, int irq)
{
	interrupt_ends();
	tell_current(LW_JOIN_IRQ_OUT, (__u32)irq);
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_timer)
{
	interrupt_begins();
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(on_timer_done)
{
	interrupt_ends();
	return 0;
}

/* Optional: not every kernel has the tracepoint, or lets a program listen to the event. */
SEC("?tp_btf/page_fault_user")
int BPF_PROG(on_fault)
{
	tell_current(LW_JOIN_IRQ_IN, LW_JOIN_PAGE_FAULT);
	return 0;
}

/* When what was missing is there: PERF_COUNT_SW_PAGE_FAULTS_MIN and _MAJ, in user space alone. */
SEC("?perf_event")
int on_fault_served(void *context)
{
	tell_current(LW_JOIN_IRQ_OUT, LW_JOIN_PAGE_FAULT);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq, unsigned int vector)
{
	interrupt_begins();
	tell_current(LW_JOIN_SOFTIRQ_IN, LW_JOIN_SOFTIRQ_BASE + (__u64)vector);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_done, unsigned int vector)
{
	interrupt_ends();
	tell_current(LW_JOIN_SOFTIRQ_OUT, LW_JOIN_SOFTIRQ_BASE + (__u64)vector);
	return 0;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(on_napi_poll, void *napi, int work, int budget)
{
	tell_current(LW_JOIN_NAPI_POLL, (__u32)work);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_syscall, void *regs, long number)
{
	tell_current(LW_JOIN_SYSCALL_IN, (__u64)number);
	return 0;
}

/* Which call it was is where an architecture keeps it, and gone after a return from a signal handler:
 * the reader of this knows, because it has seen the entry. What it returned is reported. */
SEC("tp_btf/sys_exit")
int BPF_PROG(on_syscall_done, void *regs, long returned)
{
	tell_current(LW_JOIN_SYSCALL_OUT, (__u64)returned);
	return 0;
}

SEC("tp_btf/signal_deliver")
int BPF_PROG(on_signal, int number)
{
	/* A fault that could not be served ends so, and is not reported otherwise. */
	if (number == SIGSEGV || number == SIGBUS)
		tell_current(LW_JOIN_IRQ_OUT, LW_JOIN_PAGE_FAULT);
	tell_current(LW_JOIN_SIGNAL, (__u32)number);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = child->tgid, yes = 1;

	/* A new thread is followed with its process. */
	if (tgid == (__u32)parent->tgid)
		return 0;
	if (((__u32)parent->tgid == lw_parent && lw_parent) || is_followed(parent->tgid))
		if (bpf_map_update_elem(&followed, &tgid, &yes, BPF_ANY))
			count_drop(LW_JOIN_NOT_FOLLOWED);
	return 0;
}
