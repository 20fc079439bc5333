/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A packet program with one planted fault, which keeps the account of that fault itself.
 *
 * It stands for a user's program on DPDK: its functions carry DPDK's names, its device is imaginary. Packets arrive by
 * the clock, in trains, into a ring of so many slots; what does not fit is lost and counted. The worker polls, works
 * on each packet, sends. `-finstrument-functions` makes every function below a pair of events, but for those marked
 * QUIET, which are its instruments: the clock, the spinning, the truth.
 *
 *     worker truth=FILE key=value ...      the keys are those of `struct setting`
 *     worker neighbour=1 cpu=0 ...         no packets: takes a CPU for busy_us in every period_us
 *     worker calibrate=N truth=FILE        no packets: times N calls of an instrumented function that does nothing
 *
 * What it knows goes to FILE as JSON: nanoseconds by CLOCK_MONOTONIC around the fault, how often it happened, page
 * faults by getrusage, time on and off the CPU by schedstat. It ends by itself after `seconds`.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define QUIET __attribute__((no_instrument_function))
#define CALL __attribute__((noinline))

enum { BURST_MAX = 32, PAGE_BYTES = 4096, ARENA_PAGES = 2048 };

/* What is asked for, all whole numbers; 0 leaves a part out. */
static struct setting {
	long milliseconds; /* how long packets are served */
	long cpu; /* CPU + 1 to stay on */
	long setup_ms; /* busy before the first poll, as a program that starts is */
	long begin_ms; /* when, after the first poll, traffic begins */
	long rate; /* packets per second; 0: none ever */
	long endless; /* 1: the device always has packets */
	long train; /* packets that arrive at once */
	long ring; /* slots of the device's ring */
	long poll_ns; /* what a look at the device takes */
	long work_ns; /* work on a packet: a third each to parse, look up and rewrite */
	long wait; /* 1: sleep until the next packet where there is none, at most a millisecond */

	long period_us; /* of housekeeping, lock or neighbour */
	long busy_us; /* housekeeping or neighbour: busy for so long */
	long sleep_us; /* housekeeping: asleep for so long */
	long hold_us; /* a second thread holds the table's lock for so long */
	long pages; /* pages of fresh memory touched per packet */
	long slow_ns; /* one function that takes so long per packet */
	long allocate_ns; /* taking and giving back memory takes so long per packet */
	long tiny; /* calls per packet of a function that does next to nothing */

	long neighbour, calibrate; /* the other two programs */
} set = { .milliseconds = 1000, .train = 1, .ring = 1024, .poll_ns = 1000 };

static const struct {
	const char *name;
	long *value;
} KEYS[] = {
	{ "milliseconds", &set.milliseconds }, { "cpu", &set.cpu },
	{ "setup_ms", &set.setup_ms },	       { "begin_ms", &set.begin_ms },
	{ "rate", &set.rate },		       { "endless", &set.endless },
	{ "train", &set.train },	       { "ring", &set.ring },
	{ "poll_ns", &set.poll_ns },	       { "work_ns", &set.work_ns },
	{ "wait", &set.wait },		       { "period_us", &set.period_us },
	{ "busy_us", &set.busy_us },	       { "sleep_us", &set.sleep_us },
	{ "hold_us", &set.hold_us },	       { "pages", &set.pages },
	{ "slow_ns", &set.slow_ns },	       { "allocate_ns", &set.allocate_ns },
	{ "tiny", &set.tiny },		       { "neighbour", &set.neighbour },
	{ "calibrate", &set.calibrate },
};

/* What is true. Written by the worker alone. */
static struct {
	uint64_t span_ns; /* first poll to the end */
	uint64_t fault_ns; /* in what was planted */
	uint64_t fault_cpu_ns; /* of it, on the CPU; of housekeeping only */
	uint64_t fault_times;
	uint64_t calls; /* of instrumented functions */
	uint64_t polls, empty_polls, packets, lost;
	uint64_t busy_ns; /* in rounds that found packets */
	uint64_t run_ns, delay_ns; /* of the span, by schedstat */
} truth;

static uint64_t start_ns;
static volatile bool over; /* read by the holder of the lock */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile uint64_t sink; /* what is computed, so that it is */

/* The instruments. */

static QUIET uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static QUIET uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static QUIET void spin(uint64_t ns)
{
	uint64_t end = now_ns() + ns;
	while (ns && now_ns() < end)
		;
}

static QUIET void sleep_ns(uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
	nanosleep(&t, NULL);
}

static QUIET void count_fault(uint64_t began_ns)
{
	truth.fault_ns += now_ns() - began_ns;
	truth.fault_times++;
}

/* The device: how many packets arrived and were not taken, the ring's overflow taken off. */

static QUIET uint64_t waiting(uint64_t t)
{
	if (set.endless)
		return BURST_MAX;
	uint64_t begin = start_ns + (uint64_t)set.begin_ms * 1000000u;
	if (!set.rate || t < begin)
		return 0;
	uint64_t gap_ns = 1000000000u * (uint64_t)set.train / (uint64_t)set.rate;
	uint64_t arrived = ((t - begin) / gap_ns + 1) * (uint64_t)set.train;
	uint64_t there = arrived - truth.packets - truth.lost;
	if (there > (uint64_t)set.ring) {
		truth.lost += there - (uint64_t)set.ring;
		there = (uint64_t)set.ring;
	}
	return there;
}

static CALL void *rte_pktmbuf_alloc(void)
{
	truth.calls++;
	sink++;
	return (void *)&sink;
}

static CALL void rte_pktmbuf_free(void)
{
	truth.calls++;
	sink++;
}

static CALL unsigned vdev_rx_burst(void)
{
	truth.calls++;
	spin((uint64_t)set.poll_ns);
	uint64_t there = waiting(now_ns());
	unsigned n = there < BURST_MAX ? (unsigned)there : BURST_MAX;
	for (unsigned i = 0; i < n; i++)
		rte_pktmbuf_alloc();
	return n;
}

static CALL unsigned rte_eth_rx_burst(void)
{
	truth.calls++;
	return vdev_rx_burst();
}

static CALL void vdev_tx_burst(unsigned n)
{
	truth.calls++;
	for (unsigned i = 0; i < n; i++)
		rte_pktmbuf_free();
}

static CALL void rte_eth_tx_burst(unsigned n)
{
	truth.calls++;
	vdev_tx_burst(n);
}

/* Where a worker that may sleep waits for packets. */
static CALL void rte_epoll_wait(void)
{
	truth.calls++;
	sleep_ns(200000);
}

/* The work on a packet. */

static CALL void parse_headers(void)
{
	truth.calls++;
	spin((uint64_t)set.work_ns / 3);
}

static CALL void lookup_flow(void)
{
	truth.calls++;
	spin((uint64_t)set.work_ns / 3);
}

static CALL void rewrite_headers(void)
{
	truth.calls++;
	spin((uint64_t)set.work_ns / 3);
}

static CALL void inspect_payload(void)
{
	truth.calls++;
	uint64_t began = now_ns();
	spin((uint64_t)set.slow_ns);
	count_fault(began);
}

static CALL void *rte_malloc(void)
{
	truth.calls++;
	void *memory = malloc(2048);
	spin((uint64_t)set.allocate_ns / 2);
	return memory;
}

static CALL void rte_free(void *memory)
{
	truth.calls++;
	free(memory);
	spin((uint64_t)set.allocate_ns / 2);
}

static CALL void copy_and_drop(void)
{
	truth.calls++;
	uint64_t began = now_ns();
	char *memory = rte_malloc();
	if (memory)
		memory[0] = 1;
	rte_free(memory);
	count_fault(began);
}

static CALL void tiny_step(void)
{
	truth.calls++;
	sink++;
}

/* Touches pages that the kernel has to give first; the arena goes back when it is used up. */
static CALL void use_fresh_memory(void)
{
	static char *arena;
	static long used;
	truth.calls++;
	if (!arena) {
		arena = mmap(NULL, (size_t)ARENA_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (arena == MAP_FAILED) {
			perror("worker: mmap");
			exit(2);
		}
		madvise(arena, (size_t)ARENA_PAGES * PAGE_BYTES, MADV_NOHUGEPAGE);
	}
	if (used + set.pages > ARENA_PAGES) {
		madvise(arena, (size_t)ARENA_PAGES * PAGE_BYTES, MADV_DONTNEED);
		used = 0;
	}
	uint64_t began = now_ns();
	for (long i = 0; i < set.pages; i++)
		arena[(used + i) * PAGE_BYTES] = 1;
	used += set.pages;
	count_fault(began);
}

/* The table is shared with a second thread. A lock that is free costs no time that counts. */
static CALL void update_table(void)
{
	truth.calls++;
	if (pthread_mutex_trylock(&table_lock) != 0) {
		uint64_t began = now_ns();
		pthread_mutex_lock(&table_lock);
		count_fault(began);
	}
	sink++;
	pthread_mutex_unlock(&table_lock);
}

static CALL void handle_packet(void)
{
	truth.calls++;
	parse_headers();
	lookup_flow();
	rewrite_headers();
	if (set.slow_ns)
		inspect_payload();
	if (set.allocate_ns)
		copy_and_drop();
	if (set.pages)
		use_fresh_memory();
	for (long i = 0; i < set.tiny; i++)
		tiny_step();
}

/* What keeps the loop from polling, every period. */
static CALL void expire_flows(void)
{
	truth.calls++;
	uint64_t began = now_ns(), began_cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	spin((uint64_t)set.busy_us * 1000);
	if (set.sleep_us)
		sleep_ns((uint64_t)set.sleep_us * 1000);
	count_fault(began);
	truth.fault_cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - began_cpu;
}

static CALL bool serve(void)
{
	truth.calls++;
	unsigned n = rte_eth_rx_burst();
	truth.polls++;
	if (n == 0) {
		truth.empty_polls++;
		if (set.wait)
			rte_epoll_wait();
		return false;
	}
	for (unsigned i = 0; i < n; i++)
		handle_packet();
	if (set.hold_us)
		update_table();
	rte_eth_tx_burst(n);
	truth.packets += n;
	return true;
}

/* What the scheduler knows of this thread: time on the CPU, and time ready while another thread had it. */
static QUIET void read_schedstat(uint64_t *ran_ns, uint64_t *delayed_ns)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "r");
	if (!file || fscanf(file, "%lu %lu", ran_ns, delayed_ns) != 2)
		*ran_ns = *delayed_ns = 0;
	if (file)
		fclose(file);
}

static CALL void worker_loop(void)
{
	uint64_t ran_ns, delayed_ns;
	read_schedstat(&ran_ns, &delayed_ns);
	truth.calls++;
	uint64_t t = start_ns = now_ns();
	uint64_t end = t + (uint64_t)set.milliseconds * 1000000u;
	uint64_t period = (uint64_t)set.period_us * 1000, due = t + period;
	while (t < end) {
		bool found = serve();
		uint64_t after = now_ns();
		truth.busy_ns += found ? after - t : 0;
		if ((set.busy_us || set.sleep_us) && after >= due) {
			expire_flows();
			after = now_ns();
			while (due <= after) /* on its grid; what was missed is not made up for */
				due += period;
		}
		t = after;
	}
	truth.span_ns = t - start_ns;
	read_schedstat(&truth.run_ns, &truth.delay_ns);
	truth.run_ns -= ran_ns;
	truth.delay_ns -= delayed_ns;
}

static QUIET void *hold_the_lock(void *unused)
{
	prctl(PR_SET_NAME, "table-writer");
	while (!over) {
		sleep_ns((uint64_t)(set.period_us - set.hold_us) * 1000);
		pthread_mutex_lock(&table_lock);
		sleep_ns((uint64_t)set.hold_us * 1000);
		pthread_mutex_unlock(&table_lock);
	}
	return unused;
}

/* The other two programs. */

static QUIET void be_a_neighbour(void)
{
	prctl(PR_SET_NAME, "neighbour");
	uint64_t end = now_ns() + (uint64_t)set.milliseconds * 1000000u;
	while (now_ns() < end) {
		spin((uint64_t)set.busy_us * 1000);
		if (set.period_us > set.busy_us)
			sleep_ns((uint64_t)(set.period_us - set.busy_us) * 1000);
	}
}

static QUIET void calibrate(void)
{
	uint64_t began = now_ns();
	for (long i = 0; i < set.calibrate; i++)
		tiny_step();
	truth.span_ns = now_ns() - began;
}

static QUIET int tell(const char *file)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	FILE *out = fopen(file, "w");
	if (!out) {
		perror(file);
		return 2;
	}
	fprintf(out,
		"{\"tid\": %ld, \"span_ns\": %lu, \"fault_ns\": %lu, \"fault_cpu_ns\": %lu, "
		"\"fault_times\": %lu, "
		"\"calls\": %lu, \"polls\": %lu, \"empty_polls\": %lu, \"packets\": %lu, \"lost\": %lu, "
		"\"busy_ns\": %lu, \"minor_faults\": %ld, \"run_ns\": %lu, \"delay_ns\": %lu}\n",
		syscall(SYS_gettid), truth.span_ns, truth.fault_ns, truth.fault_cpu_ns,
		truth.fault_times, truth.calls, truth.polls, truth.empty_polls, truth.packets, truth.lost, truth.busy_ns,
		usage.ru_minflt, truth.run_ns, truth.delay_ns);
	return fclose(out) == 0 ? 0 : 2;
}

static QUIET int read_argument(const char *argument, const char **file)
{
	const char *equals = strchr(argument, '=');
	size_t length = equals ? (size_t)(equals - argument) : 0;
	if (equals && strncmp(argument, "truth=", 6) == 0) {
		*file = equals + 1;
		return 0;
	}
	for (size_t i = 0; equals && i < sizeof(KEYS) / sizeof(*KEYS); i++) {
		char *rest;
		if (strlen(KEYS[i].name) != length || strncmp(argument, KEYS[i].name, length) != 0)
			continue;
		*KEYS[i].value = strtol(equals + 1, &rest, 10);
		return *rest == 0 && rest != equals + 1 && *KEYS[i].value >= 0 ? 0 : 2;
	}
	return 2;
}

QUIET int main(int count, char **arguments)
{
	const char *file = NULL;
	for (int i = 1; i < count; i++) {
		if (read_argument(arguments[i], &file) != 0) {
			fprintf(stderr, "worker: no argument `%s`\n", arguments[i]);
			return 2;
		}
	}
	if (set.cpu) {
		cpu_set_t cpus;
		CPU_ZERO(&cpus);
		CPU_SET((size_t)set.cpu - 1, &cpus);
		if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0) {
			perror("worker: sched_setaffinity");
			return 2;
		}
	}
	if (set.neighbour) {
		be_a_neighbour();
		return 0;
	}
	pthread_t holder;
	bool held = set.hold_us && pthread_create(&holder, NULL, hold_the_lock, NULL) == 0;
	if (set.calibrate)
		calibrate();
	else {
		spin((uint64_t)set.setup_ms * 1000000u);
		worker_loop();
	}
	over = true;
	if (held)
		pthread_join(holder, NULL);
	return file ? tell(file) : 0;
}
