// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The CPU meter: where every nanosecond of every CPU goes, by who runs (class) and on whose behalf
 * (context). Exact, not sampled: time is booked at every task switch and at entry and exit of every
 * softirq and device interrupt. Tick accounting cannot do this: it charges whole ticks, and softirq
 * work to whomever it interrupted.
 *
 * Timer and inter-processor interrupts have no tracepoint that can be used here; their time is
 * booked to what they interrupted.
 *
 * The meter costs about 0.1 us per event. Its own time falls into the interval in which it runs, so
 * arms that cause more switches and softirqs carry more of it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "meter.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Just enough of the kernel's type; the field's place is found when the program is loaded. */
struct task_struct {
	int pid, tgid;
} __attribute__((preserve_access_index));

/* Who is of interest, while it lives: thread group id -> class. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} classes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_meter);
} meter SEC(".maps");

static __always_inline struct lw_meter *my_meter(void)
{
	const __u32 zero = 0;

	return bpf_map_lookup_elem(&meter, &zero);
}

/* Books the time since the last event to what ran until now. */
static __always_inline void book(struct lw_meter *m)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 class = m->class, context = m->context;

	if (m->since_ns && class < LW_CLASS_COUNT && context < LW_CONTEXT_COUNT)
		m->ns[class][context] += now - m->since_ns;
	m->since_ns = now;
}

static __always_inline __u32 class_of(__u32 tgid)
{
	__u32 *class;

	if (!tgid)
		return LW_CLASS_IDLE;
	class = bpf_map_lookup_elem(&classes, &tgid);
	return class ? *class : LW_CLASS_OTHER;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct lw_meter *m = my_meter();

	if (!m)
		return 0;
	book(m);
	m->class = class_of(next->tgid);
	m->context = LW_CONTEXT_TASK;
	m->switches++;
	return 0;
}

/*
 * Whoever is gone leaves its place to the next of thousands, and its number to a program that has
 * no class. What it still runs stays booked as its own until the next switch.
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	if (task->pid == task->tgid)
		bpf_map_delete_elem(&classes, &tgid);
	return 0;
}

static __always_inline __u32 context_of_vector(__u32 vector)
{
	/* enum of include/linux/interrupt.h: NET_TX_SOFTIRQ 2, NET_RX_SOFTIRQ 3 */
	return vector == 3 ? LW_CONTEXT_NET_RX : vector == 2 ? LW_CONTEXT_NET_TX :
							       LW_CONTEXT_SOFTIRQ;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq, unsigned int vector)
{
	struct lw_meter *m = my_meter();

	if (!m)
		return 0;
	book(m);
	m->context = context_of_vector(vector);
	m->softirqs++;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_done, unsigned int vector)
{
	struct lw_meter *m = my_meter();

	if (!m)
		return 0;
	book(m);
	m->context = LW_CONTEXT_TASK;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_interrupt)
{
	struct lw_meter *m = my_meter();

	if (!m)
		return 0;
	book(m);
	m->interrupted = m->context;
	m->context = LW_CONTEXT_HARDIRQ;
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_interrupt_done)
{
	struct lw_meter *m = my_meter();

	if (!m)
		return 0;
	book(m);
	m->context = m->interrupted;
	return 0;
}
