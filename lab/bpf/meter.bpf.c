// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The CPU meter: where every nanosecond of every CPU goes, by whose it is (owner) and as what (part).
 * Exact, not sampled: time is booked at every task switch, at entry and exit of every softirq and
 * device interrupt, and after every poll of a NAPI device. Tick accounting cannot do this: it charges
 * whole ticks, and softirq work to whomever it interrupted.
 *
 * A task's time is its thread group's owner's: threads, io_uring's workers and SQPOLL threads are in
 * the group, and what a task of an arm forks is the arm's, too. NET_RX softirq is the owner's of the
 * interface that was polled, whichever task was interrupted for it; where no device was polled (the backlog
 * of `netif_rx`), it is the arm's or generator's that was interrupted, since its own sending raised it. RPS
 * raises it on another CPU, whichever task runs there: meter_packets.bpf.c looks at the packets, too.
 * The cause of other softirqs and of device interrupts is unknown: they are booked beside the owner
 * that was interrupted, and never on it. The cables have no device interrupts. TCP sends on in a softirq of
 * whichever task the far end of a cable took a packet in: meter_packets.bpf.c looks at what it sends.
 *
 * Who runs is looked at in every event, because a kernel may not report every switch (laneway/running.h).
 *
 * Timer and inter-processor interrupts have no tracepoint that can be used here; their time is
 * booked to what they interrupted.
 *
 * BPF programs need no books of their own: an XDP program runs inside the poll of its interface. The
 * kernel's count of their run time (BPF_ENABLE_STATS) stays off, because it reads the clock twice per
 * run and so makes an arm that runs one per frame dearer than one that runs none.
 *
 * The meter's own time falls into the interval in which it runs, so arms that cause more switches and
 * softirqs carry more of it: events are counted by owner, and the race says what they cost.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <laneway/net_device.h>
#include <laneway/running.h>

#include "meter.h"

/* enum of include/linux/interrupt.h */
#define LW_VECTOR_NET_TX 2
#define LW_VECTOR_NET_RX 3

/* A foreign task that never leaves its CPU is put under its name this often. */
#define LW_UNNAMED_NS_MAX 1000000

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A thread group whose switches away are overlooked, so that a test can see what comes of it; 0: none. */
const volatile __u32 overlooked = 0;

/* Just enough of the kernel's types; the fields' places are found when the programs are loaded. */
typedef struct {
	int counter;
} __attribute__((preserve_access_index)) atomic_t;

struct signal_struct {
	atomic_t live; /* threads that have not ended */
} __attribute__((preserve_access_index));

struct task_struct {
	int pid, tgid;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	char comm[16];
} __attribute__((preserve_access_index));

struct napi_struct {
	struct net_device *dev;
} __attribute__((preserve_access_index));

/* Who is of interest, while it lives: thread group id -> who. A server may fork a process for each of thousands. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LW_TASKS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct lw_who);
} tasks SEC(".maps");

/* Processes that found no room there, by the owner that they would have had: they are booked as foreign. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LW_OWNER_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} unplaced SEC(".maps");

/* Whose an interface is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct lw_device);
	__type(value, __u32);
} devices SEC(".maps");

/* Time of foreign tasks by the name of their program; the one that did least lately goes first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct lw_name);
	__type(value, __u64);
} foreigners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_meter);
} meter SEC(".maps");

/*
 * An interrupt may come in between, with a program of its own: so `done` is what was begun, not a count
 * that could stay behind for ever.
 */
static __always_inline void done(struct lw_meter *m)
{
	barrier();
	m->done = m->begun;
}

static __always_inline void add(struct lw_meter *m, struct lw_who who, __u64 ns)
{
	/* One index: the verifier of kernel 6.1 loses the bounds of a row and a column. */
	__u32 cell = who.owner * LW_PART_COUNT + who.part;

	if (cell < LW_CELLS)
		m->ns[cell] += ns;
}

/* An event of what is an owner's own. */
static __always_inline void count(struct lw_meter *m, struct lw_who who, __u64 events)
{
	if (who.part < LW_PART_BESIDE_NET_RX)
		m->own_events[who.owner & (LW_OWNER_ROOM - 1)] += events;
}

static __always_inline struct lw_who beside(struct lw_meter *m, __u32 part)
{
	return (struct lw_who){ m->task.owner, part };
}

/* Books the time since the last event to what ran until then. */
static __always_inline void book_until(struct lw_meter *m, __u64 until_ns)
{
	/* An interrupt's program may have booked meanwhile what this one was about to. */
	__u64 ns = m->since_ns && until_ns > m->since_ns ? until_ns - m->since_ns : 0;

	if (until_ns > m->since_ns)
		m->since_ns = until_ns;
	m->events++;
	switch (m->context) {
	case LW_CONTEXT_TASK:
		add(m, m->task, ns);
		count(m, m->task, 1);
		if (m->task.owner == LW_OWNER_FOREIGN)
			m->unnamed_ns += ns;
		break;
	case LW_CONTEXT_NET_RX:
	case LW_CONTEXT_SENDING:
		m->pending_ns += ns;
		m->pending_events++;
		break;
	case LW_CONTEXT_NET_TX:
		add(m, beside(m, LW_PART_BESIDE_NET_TX), ns);
		break;
	case LW_CONTEXT_SOFTIRQ:
		add(m, beside(m, LW_PART_BESIDE_SOFTIRQ), ns);
		break;
	default:
		add(m, beside(m, LW_PART_BESIDE_HARDIRQ), ns);
	}
}

static __always_inline void book(struct lw_meter *m)
{
	book_until(m, bpf_ktime_get_ns());
}

/* What NET_RX softirq took so far goes to the device polled last. */
static __always_inline void settle(struct lw_meter *m)
{
	add(m, m->device, m->pending_ns);
	count(m, m->device, m->pending_events);
	m->pending_ns = 0;
	m->pending_events = 0;
}

static __always_inline struct lw_who who_is(__u32 tgid)
{
	struct lw_who *known = 0;

	if (!tgid)
		return (struct lw_who){ LW_OWNER_IDLE, LW_PART_TASK };
	known = bpf_map_lookup_elem(&tasks, &tgid);
	return known ? *known : (struct lw_who){ LW_OWNER_FOREIGN, LW_PART_TASK };
}

/* Puts the time of the task that runs, which is foreign, under its program's name: threads have their own. */
static __always_inline void name(struct lw_meter *m)
{
	struct task_struct *task = (void *)m->running.task;
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	__u64 ns = m->unnamed_ns, *sum;
	struct lw_name key = {};

	m->unnamed_ns = 0;
	bpf_probe_read_kernel_str(key.comm, sizeof(key.comm), leader->comm);
	sum = bpf_map_lookup_elem(&foreigners, &key);
	if (sum)
		__sync_fetch_and_add(sum, ns);
	else
		bpf_map_update_elem(&foreigners, &key, &ns, BPF_NOEXIST);
}

/* Finds out who runs if a switch was not seen, and divides the time since the last event at that switch. */
static __always_inline void look(struct lw_meter *m)
{
	__u64 left_ns;

	if (!lw_running_changed(&m->running))
		return;
	left_ns = lw_running_left_ns(&m->running, m->since_ns, bpf_ktime_get_ns());
	if (m->running.task) {
		book_until(m, left_ns);
		if (m->unnamed_ns)
			name(m);
	}
	m->task = who_is(bpf_get_current_pid_tgid() >> 32);
	lw_running_found(&m->running, left_ns);
}

/* This CPU's meter, to be changed until `done`; it is known who runs. */
static __always_inline struct lw_meter *begin(void)
{
	const __u32 zero = 0;
	struct lw_meter *m = bpf_map_lookup_elem(&meter, &zero);

	if (m) {
		m->begun++;
		barrier();
		look(m);
	}
	return m;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct lw_meter *m;

	if (overlooked && (__u32)prev->tgid == overlooked)
		return 0;
	m = begin();
	if (!m)
		return 0;
	book(m);
	settle(m); /* a real-time kernel switches tasks within a softirq */
	if (m->unnamed_ns)
		name(m);
	m->task = who_is(next->tgid);
	lw_running_next(&m->running, next, m->since_ns);
	m->context = LW_CONTEXT_TASK;
	done(m);
	return 0;
}

/* What an arm or its generator starts is its own: a program in any language may fork its workers. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct lw_who who = who_is(parent->tgid);
	__u32 tgid = child->tgid;
	__u64 *missed;

	if (who.owner < LW_OWNER_ARM || tgid == (__u32)parent->tgid)
		return 0;
	if (bpf_map_update_elem(&tasks, &tgid, &who, BPF_ANY)) {
		missed = bpf_map_lookup_elem(&unplaced, &who.owner);
		if (missed)
			__sync_fetch_and_add(missed, 1);
	}
	return 0;
}

/*
 * A process that has ended leaves its place to the next of thousands, and its number to a program that has
 * no owner. It ends with its last thread: the first may end before others, or give its number to one that
 * executes a program. What it still runs stays booked as its own until the next switch.
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	if (!task->signal->live.counter)
		bpf_map_delete_elem(&tasks, &tgid);
	return 0;
}

static __always_inline __u32 context_of_vector(__u32 vector)
{
	return vector == LW_VECTOR_NET_RX ? LW_CONTEXT_NET_RX :
	       vector == LW_VECTOR_NET_TX ? LW_CONTEXT_NET_TX :
					    LW_CONTEXT_SOFTIRQ;
}

/* Whose an interface is. */
static __always_inline struct lw_who whose(struct net_device *dev)
{
	struct lw_device key = {};
	__u32 *owner;

	key.netns = dev->nd_net.net->ns.inum;
	key.ifindex = dev->ifindex;
	owner = bpf_map_lookup_elem(&devices, &key);
	return (struct lw_who){ owner ? *owner : LW_OWNER_FOREIGN, LW_PART_NET_RX };
}

#ifdef LW_METER_PACKETS
struct sk_buff {
	struct net_device *dev;
} __attribute__((preserve_access_index));

/* A packet was received since the last poll; m->device is that of the last one. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} received SEC(".maps");

static __always_inline __u32 take_received(void)
{
	const __u32 zero = 0;
	__u32 *seen = bpf_map_lookup_elem(&received, &zero), was = seen ? *seen : 0;

	if (seen)
		*seen = 0;
	return was;
}

/* Softirq time is the owner's of the packets: what lay between two of different owners goes to the first. */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_received, struct sk_buff *skb)
{
	const __u32 zero = 0;
	struct lw_meter *m = bpf_map_lookup_elem(&meter, &zero);
	__u32 *seen = bpf_map_lookup_elem(&received, &zero);
	struct lw_who who;

	if (!m || !seen || m->context != LW_CONTEXT_NET_RX || !skb->dev)
		return 0;
	who = whose(skb->dev);
	if (*seen && who.owner == m->device.owner)
		return 0;
	m = begin();
	if (!m)
		return 0;
	book(m);
	if (*seen)
		settle(m);
	m->device = who;
	*seen = 1;
	done(m);
	return 0;
}

/*
 * A softirq that sends is TCP's (a tasklet, a timer that paces) or empties a queue: its time is the owner's of the
 * interface it sends by. What lay between two of different owners goes to the first.
 */
static __always_inline int sent(struct net_device *dev)
{
	const __u32 zero = 0;
	struct lw_meter *m = bpf_map_lookup_elem(&meter, &zero);
	struct lw_who who;

	if (!m || !dev || m->context == LW_CONTEXT_TASK || m->context == LW_CONTEXT_NET_RX ||
	    m->context == LW_CONTEXT_HARDIRQ)
		return 0;
	who = whose(dev);
	if (m->context == LW_CONTEXT_SENDING && who.owner == m->device.owner)
		return 0;
	m = begin();
	if (!m)
		return 0;
	if (m->context == LW_CONTEXT_SENDING) {
		book(m);
		settle(m);
	}
	/* From here on, and what it took to get here. */
	m->context = LW_CONTEXT_SENDING;
	book(m);
	m->device = who;
	done(m);
	return 0;
}

/* Put into a queue, or sent at once. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(on_queued, struct sk_buff *skb)
{
	return sent(skb->dev);
}

/* Taken from a queue. */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(on_sent, struct sk_buff *skb, struct net_device *dev)
{
	return sent(dev);
}
#else
static __always_inline __u32 take_received(void)
{
	return 0;
}
#endif

/* Whose NET_RX softirq is before anything was polled in it. */
static __always_inline struct lw_who who_raised(struct lw_meter *m)
{
#ifdef LW_METER_PACKETS
	/*
	 * RPS puts a packet into the backlog of another CPU, and interrupts that CPU in a softirq of the sender's in
	 * which nothing is polled.
	 */
	if (m->task.owner >= LW_OWNER_ARM)
		return beside(m, LW_PART_NET_RX);
#endif
	return beside(m, LW_PART_BESIDE_NET_RX);
}

/* Whose work the poll of no device was: that of its packets, if they were looked at, else the sender's, if known. */
static __always_inline struct lw_who who_queued(struct lw_meter *m, __u32 is_received)
{
	if (is_received)
		return m->device;
	return beside(m, m->task.owner >= LW_OWNER_ARM ? LW_PART_NET_RX : LW_PART_BESIDE_NET_RX);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq, unsigned int vector)
{
	struct lw_meter *m = begin();

	if (!m)
		return 0;
	book(m);
	if (m->unnamed_ns > LW_UNNAMED_NS_MAX)
		name(m);
	m->context = context_of_vector(vector);
	m->device = who_raised(m);
	done(m);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_done, unsigned int vector)
{
	struct lw_meter *m = begin();

	if (!m)
		return 0;
	book(m);
	settle(m);
	m->context = LW_CONTEXT_TASK;
	done(m);
	return 0;
}

/* The kernel says what it polled when it has. Polls outside of softirqs are of the task that makes them. */
SEC("tp_btf/napi_poll")
int BPF_PROG(on_polled, struct napi_struct *napi, int work, int budget)
{
	struct lw_meter *m = begin();

	if (!m)
		return 0;
	if (m->context == LW_CONTEXT_NET_RX) {
		__u32 is_received = take_received();

		book(m);
		m->device = napi->dev ? whose(napi->dev) : who_queued(m, is_received);
		settle(m);
	}
	done(m);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_interrupt)
{
	struct lw_meter *m = begin();

	if (!m)
		return 0;
	book(m);
	m->interrupted = m->context;
	m->context = LW_CONTEXT_HARDIRQ;
	done(m);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_interrupt_done)
{
	struct lw_meter *m = begin();

	if (!m)
		return 0;
	book(m);
	m->context = m->interrupted;
	done(m);
	return 0;
}
