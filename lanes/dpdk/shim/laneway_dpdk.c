/* SPDX-License-Identifier: MIT OR BSD-3-Clause */
/*
 * What Rust cannot call by itself: DPDK's inline fast path, one function per burst, and its set-up
 * calls with arguments that stay the same from release to release.
 *
 * build.rs compiles this file into a shared object when libdpdk is there, the crate carries the
 * bytes, and src/shim.rs loads them when the first port opens; the records below are declared there
 * once more. Assumes mbufs of one pool, each in one piece: what is otherwise is put right here, once,
 * on receive. A failed call returns a negative error number. Set-up calls are made by one thread at
 * a time; the caller holds the lock. Nothing is printed: DPDK's log and whatever the libraries below
 * it write to stdout or stderr during a set-up call goes to a buffer that lw_log_take empties.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <rte_config.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_ip.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>
#include <rte_tcp.h>
#include <rte_udp.h>
#include <rte_version.h>

/* Frames of one call; BURST_FRAMES_MAX of the core crate, and as many held ones that come back. */
#define LW_FRAMES_MAX	    1024
/* Attempts to hand a burst to a queue that takes it only in part. */
#define LW_TRANSMIT_TRIES   8
/* mbufs begin at cache lines, so that a 32-bit number reaches 256 GiB. */
#define LW_UNIT_SHIFT	    6
#define LW_LOG_BYTES	    8192
#define LW_RX_CHECKSUMS	    RTE_ETH_RX_OFFLOAD_CHECKSUM
#define LW_TX_CHECKSUMS                                                                            \
	(RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM)
#define LW_RSS_FIELDS	    (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP)
#define LW_RSS_KEY_BYTES    40
#define LW_EXPORT __attribute__((visibility("default")))

/* One frame: the mbuf's distance from the pool's first byte in cache lines, and where it lies. */
struct lw_frame {
	uint32_t number;
	uint16_t data_off;
	/* Transmit: references to add first, because the frame leaves by further ports as well. */
	uint16_t references;
	uint32_t bytes;
};

/* A queue of a port and the pool it fills; the counts are the shim's own. */
struct lw_queue {
	struct rte_mempool *pool;
	uintptr_t base;
	uint16_t port;
	uint16_t queue;
	/* Checksums: frames that the device found bad are dropped, sent ones are prepared for it. */
	uint32_t checksums;
	/* The kernel cuts frames for this driver, which hands them over as whole: those of so many bytes or more are
	 * dropped as too long. 0: no such thing. */
	uint32_t cut_at;
	/* Received frames of several mbufs that no single one could hold, and those that were cut. */
	uint64_t too_long;
	/* Received frames that had to be moved when the pool had no mbuf left. */
	uint64_t no_mbuf;
	/* Received frames that were moved: several mbufs, or too little headroom. */
	uint64_t copies;
	uint64_t bad_checksum;
};

struct lw_port_info {
	uint32_t rx_queues_max;
	uint32_t tx_queues_max;
	uint32_t frame_bytes_max;
	uint32_t mtu_max;
	uint32_t rx_checksums;
	uint32_t tx_checksums;
	/* Frames of several mbufs can be sent. */
	uint32_t tx_segments;
	/* Bit 0: takes a hash key of the length that makes it symmetric. */
	uint32_t rss;
	char driver[64];
};

struct lw_port_conf {
	struct rte_mempool *pool;
	uint16_t rx_queues;
	uint16_t tx_queues;
	/* Asked for (0: the driver's own choice), then as granted. */
	uint16_t rx_descriptors;
	uint16_t tx_descriptors;
	/* 0: as the device has it; then as granted. */
	uint16_t mtu;
	uint8_t checksums;
	uint8_t rx_interrupts;
	/* Fields that choose the queue (0: none), then those that the device has of them. */
	uint64_t rss;
};

struct lw_queue_stats {
	uint64_t rx_frames;
	uint64_t tx_frames;
	uint64_t tx_bytes;
};

struct lw_stats {
	uint64_t missed;
	uint64_t no_mbuf;
	uint64_t rx_errors;
	uint64_t tx_errors;
	uint64_t tx_bytes;
};

/* ---- the log ---------------------------------------------------------------------------------- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_bytes[LW_LOG_BYTES];
static size_t log_at;
static FILE *log_file;

/* Keeps the newest bytes: an error stands in the last lines. */
static ssize_t log_write(void *cookie, const char *text, size_t bytes)
{
	size_t taken = RTE_MIN(bytes, sizeof(log_bytes));

	(void)cookie;
	pthread_mutex_lock(&log_lock);
	if (log_at + taken > sizeof(log_bytes)) {
		size_t kept = sizeof(log_bytes) - taken;

		kept = RTE_MIN(kept, log_at);
		memmove(log_bytes, log_bytes + log_at - kept, kept);
		log_at = kept;
	}
	memcpy(log_bytes + log_at, text + bytes - taken, taken);
	log_at += taken;
	pthread_mutex_unlock(&log_lock);
	return (ssize_t)bytes;
}

/* Moves the log into `to`; returns its length. */
LW_EXPORT size_t lw_log_take(char *to, size_t room)
{
	size_t taken;

	pthread_mutex_lock(&log_lock);
	taken = RTE_MIN(room, log_at);
	memcpy(to, log_bytes + log_at - taken, taken);
	log_at = 0;
	pthread_mutex_unlock(&log_lock);
	return taken;
}

struct lw_streams {
	FILE *out;
	FILE *err;
};

/* libbpf, libpcap and the EAL's own last words go to the C library's stdout and stderr, whatever
 * the log is set to. Both are variables. */
static struct lw_streams streams_divert(void)
{
	struct lw_streams saved = {.out = stdout, .err = stderr};

	if (log_file) {
		stdout = log_file;
		stderr = log_file;
	}
	return saved;
}

static void streams_restore(const struct lw_streams *saved)
{
	stdout = saved->out;
	stderr = saved->err;
}

#define LW_QUIETLY                                                                                 \
	__attribute__((cleanup(streams_restore))) const struct lw_streams saved = streams_divert();    \
	(void)saved

/* ---- the EAL ---------------------------------------------------------------------------------- */

LW_EXPORT const char *lw_version(void)
{
	return rte_version();
}

/* Where drivers are looked for, and the number in the names of libraries and packages. */
LW_EXPORT const char *lw_driver_folder(void)
{
	return RTE_EAL_PMD_PATH;
}

/* Where DPDK would keep files; it makes the folder even if it is configured to keep none. */
LW_EXPORT const char *lw_runtime_folder(void)
{
	return rte_eal_get_runtime_dir();
}

LW_EXPORT int lw_eal_start(int argc, char **argv)
{
	static const cookie_io_functions_t io = {.write = log_write};

	log_file = fopencookie(NULL, "w", io);
	if (!log_file)
		return -ENOMEM;
	setvbuf(log_file, NULL, _IONBF, 0);
	if (rte_openlog_stream(log_file) < 0)
		return -EIO;
	LW_QUIETLY;
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

LW_EXPORT int lw_thread_register(void)
{
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

LW_EXPORT void lw_thread_unregister(void)
{
	rte_thread_unregister();
}

/* ---- the pool --------------------------------------------------------------------------------- */

/*
 * `packed`: mbufs may lie across page boundaries, which no hardware could use. net_af_xdp needs it:
 * it takes the pool for one array, and hands the kernel too little memory when there are gaps.
 */
LW_EXPORT int lw_pool_make(const char *name, uint32_t mbufs, uint32_t cache, uint16_t room,
			   int packed, struct rte_mempool **pool)
{
	struct rte_pktmbuf_pool_private conf = {.mbuf_data_room_size = room};
	int failed;

	LW_QUIETLY;
	*pool = rte_mempool_create_empty(name, mbufs, sizeof(struct rte_mbuf) + room, cache,
					 sizeof(conf), SOCKET_ID_ANY,
					 packed ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0);
	if (!*pool)
		return -rte_errno;
	failed = rte_mempool_set_ops_byname(*pool, rte_mbuf_best_mempool_ops(), NULL);
	if (!failed) {
		rte_pktmbuf_pool_init(*pool, &conf);
		failed = rte_mempool_populate_default(*pool);
	}
	if (failed < 0) {
		rte_mempool_free(*pool);
		*pool = NULL;
		return failed;
	}
	rte_mempool_obj_iter(*pool, rte_pktmbuf_init, NULL);
	return 0;
}

struct lw_span {
	uintptr_t first;
	uintptr_t last;
	size_t bytes;
};

static void span_add(struct rte_mempool *pool, void *opaque, struct rte_mempool_memhdr *part,
		     unsigned int index)
{
	struct lw_span *span = opaque;
	uintptr_t at = (uintptr_t)part->addr;

	(void)pool;
	span->first = index ? RTE_MIN(span->first, at) : at;
	span->last = index ? RTE_MAX(span->last, at + part->len) : at + part->len;
	span->bytes += part->len;
}

/* Where the pool's memory lies; -ENOMEM when there are holes in it. */
LW_EXPORT int lw_pool_span(struct rte_mempool *pool, uintptr_t *base, size_t *bytes)
{
	struct lw_span span = {0};

	rte_mempool_mem_iter(pool, span_add, &span);
	*base = RTE_ALIGN_FLOOR(span.first, RTE_CACHE_LINE_SIZE);
	*bytes = span.last - *base;
	return span.last - span.first == span.bytes ? 0 : -ENOMEM;
}

LW_EXPORT void lw_pool_free(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

/* From an mbuf to the first byte of its buffer. */
LW_EXPORT uint32_t lw_pool_buffer_at(struct rte_mempool *pool)
{
	return sizeof(struct rte_mbuf) + rte_pktmbuf_priv_size(pool);
}

LW_EXPORT uint32_t lw_pool_in_use(struct rte_mempool *pool)
{
	return rte_mempool_in_use_count(pool);
}

/* ---- ports ------------------------------------------------------------------------------------ */

LW_EXPORT int lw_device_add(const char *bus, const char *name, const char *arguments,
			    uint16_t *port)
{
	int failed;

	LW_QUIETLY;
	/* A PCI device that the EAL was started for is there already. */
	if (!rte_eth_dev_get_port_by_name(name, port))
		return 0;
	failed = rte_eal_hotplug_add(bus, name, arguments);
	if (failed)
		return failed;
	failed = rte_eth_dev_get_port_by_name(name, port);
	if (failed)
		rte_eal_hotplug_remove(bus, name);
	return failed;
}

LW_EXPORT int lw_device_remove(const char *bus, const char *name)
{
	LW_QUIETLY;
	return rte_eal_hotplug_remove(bus, name);
}

LW_EXPORT int lw_port_info(uint16_t port, struct lw_port_info *to)
{
	struct rte_eth_dev_info info;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed)
		return failed;
	memset(to, 0, sizeof(*to));
	to->rx_queues_max = info.max_rx_queues;
	to->tx_queues_max = info.max_tx_queues;
	to->frame_bytes_max = info.max_rx_pktlen;
	to->mtu_max = info.max_mtu;
	to->rx_checksums = (info.rx_offload_capa & LW_RX_CHECKSUMS) == LW_RX_CHECKSUMS;
	to->tx_checksums = (info.tx_offload_capa & LW_TX_CHECKSUMS) == LW_TX_CHECKSUMS;
	to->tx_segments = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
	to->rss = info.hash_key_size == LW_RSS_KEY_BYTES;
	snprintf(to->driver, sizeof(to->driver), "%s", info.driver_name);
	return 0;
}

/* With this key the Toeplitz hash is the same for both directions of a flow (Woo and Park, 2012). */
static uint8_t symmetric_key[LW_RSS_KEY_BYTES] = {
	0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a,
	0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a,
	0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a, 0x6d, 0x5a,
};

/* Configures a port with all its queues and starts it. */
LW_EXPORT int lw_port_start(uint16_t port, struct lw_port_conf *want)
{
	struct rte_eth_conf conf = {0};
	struct rte_eth_dev_info info;
	uint16_t rx = want->rx_descriptors, tx = want->tx_descriptors, queue;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed)
		return failed;
	LW_QUIETLY;
	conf.intr_conf.rxq = want->rx_interrupts;
	if (want->checksums) {
		conf.rxmode.offloads = LW_RX_CHECKSUMS;
		conf.txmode.offloads = LW_TX_CHECKSUMS;
	}
	if (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (want->mtu)
		conf.rxmode.mtu = want->mtu;
	want->rss &= LW_RSS_FIELDS & info.flow_type_rss_offloads;
	if (want->rss) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = want->rss;
		if (info.hash_key_size == LW_RSS_KEY_BYTES) {
			conf.rx_adv_conf.rss_conf.rss_key = symmetric_key;
			conf.rx_adv_conf.rss_conf.rss_key_len = LW_RSS_KEY_BYTES;
		}
	}
	failed = rte_eth_dev_configure(port, want->rx_queues, want->tx_queues, &conf);
	if (failed)
		return failed;
	rx = rx ? rx : info.default_rxportconf.ring_size;
	tx = tx ? tx : info.default_txportconf.ring_size;
	rx = rx ? rx : RTE_ETH_DEV_FALLBACK_RX_RINGSIZE;
	tx = tx ? tx : RTE_ETH_DEV_FALLBACK_TX_RINGSIZE;
	failed = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);
	for (queue = 0; !failed && queue < want->rx_queues; queue++)
		failed = rte_eth_rx_queue_setup(port, queue, rx, SOCKET_ID_ANY, NULL, want->pool);
	for (queue = 0; !failed && queue < want->tx_queues; queue++)
		failed = rte_eth_tx_queue_setup(port, queue, tx, SOCKET_ID_ANY, NULL);
	if (failed)
		return failed;
	failed = rte_eth_dev_start(port);
	if (failed)
		return failed;
	if (want->rss) {
		struct rte_eth_rss_conf has = {0};

		/* Some drivers hash and do not say by what. */
		if (!rte_eth_dev_rss_hash_conf_get(port, &has))
			want->rss = has.rss_hf;
	}
	want->rx_descriptors = rx;
	want->tx_descriptors = tx;
	return rte_eth_dev_get_mtu(port, &want->mtu);
}

/* Sets the MTU of a started port. */
LW_EXPORT int lw_port_set_mtu(uint16_t port, uint16_t mtu)
{
	LW_QUIETLY;
	return rte_eth_dev_set_mtu(port, mtu);
}

/* Sets promiscuous mode, or leaves it when `on` is negative; 1 when the port is in it then. */
LW_EXPORT int lw_port_promiscuous(uint16_t port, int on)
{
	int failed;

	LW_QUIETLY;
	if (on < 0)
		return rte_eth_promiscuous_get(port);
	failed = on ? rte_eth_promiscuous_enable(port) : rte_eth_promiscuous_disable(port);
	return failed ? failed : rte_eth_promiscuous_get(port);
}

/* 1 when the link is up. */
LW_EXPORT int lw_port_link(uint16_t port)
{
	struct rte_eth_link link;
	int failed = rte_eth_link_get_nowait(port, &link);

	return failed ? failed : link.link_status;
}

LW_EXPORT void lw_port_close(uint16_t port)
{
	LW_QUIETLY;
	(void)rte_eth_dev_stop(port);
	(void)rte_eth_dev_close(port);
}

LW_EXPORT int lw_port_stats(uint16_t port, struct lw_stats *to)
{
	struct rte_eth_stats stats;
	int failed = rte_eth_stats_get(port, &stats);

	if (failed)
		return failed;
	to->missed = stats.imissed;
	to->no_mbuf = stats.rx_nombuf;
	to->rx_errors = stats.ierrors;
	to->tx_errors = stats.oerrors;
	to->tx_bytes = stats.obytes;
	return 0;
}

/* -ENOTSUP when the driver does not count by queue. */
LW_EXPORT int lw_queue_stats(uint16_t port, uint16_t queue, struct lw_queue_stats *to)
{
	struct rte_eth_dev_info info;
	struct rte_eth_stats stats;
	int failed = rte_eth_dev_info_get(port, &info);

	if (!failed && (queue >= RTE_ETHDEV_QUEUE_STAT_CNTRS ||
			!(*info.dev_flags & RTE_ETH_DEV_AUTOFILL_QUEUE_XSTATS)))
		failed = -ENOTSUP;
	if (!failed)
		failed = rte_eth_stats_get(port, &stats);
	if (failed)
		return failed;
	to->rx_frames = stats.q_ipackets[queue];
	to->tx_frames = stats.q_opackets[queue];
	to->tx_bytes = stats.q_obytes[queue];
	return 0;
}

/* A descriptor that is readable while frames wait; negative when the driver has none. */
LW_EXPORT int lw_rx_interrupt_fd(uint16_t port, uint16_t queue)
{
	LW_QUIETLY;
	return rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
}

LW_EXPORT int lw_rx_interrupt(uint16_t port, uint16_t queue, int on)
{
	return on ? rte_eth_dev_rx_intr_enable(port, queue) :
		    rte_eth_dev_rx_intr_disable(port, queue);
}

/* ---- frames ----------------------------------------------------------------------------------- */

static inline struct rte_mbuf *mbuf_of(const struct lw_queue *q, uint32_t number)
{
	return (struct rte_mbuf *)(q->base + ((uintptr_t)number << LW_UNIT_SHIFT));
}

static inline uint32_t number_of(const struct lw_queue *q, const struct rte_mbuf *m)
{
	return (uint32_t)(((uintptr_t)m - q->base) >> LW_UNIT_SHIFT);
}

/* A frame that does not lie in one mbuf of our pool behind full headroom: moves it there. Rare, and
 * kept out of lw_receive, whose loop would lose its registers to it. */
static __attribute__((noinline, cold)) struct rte_mbuf *frame_straighten(struct lw_queue *q, struct rte_mbuf *m)
{
	struct rte_mbuf *own = rte_pktmbuf_alloc(q->pool);
	uint32_t bytes = m->pkt_len;
	const void *from;
	char *to = NULL;

	if (!own) {
		rte_pktmbuf_free(m);
		q->no_mbuf++;
		return NULL;
	}
	if (bytes <= UINT16_MAX)
		to = rte_pktmbuf_append(own, (uint16_t)bytes);
	if (to) {
		/* A copy of the bytes if they lie in pieces, else where they are. */
		from = rte_pktmbuf_read(m, 0, bytes, to);
		if (from != to)
			memcpy(to, from, bytes);
		own->ol_flags = m->ol_flags;
		q->copies++;
	} else {
		rte_pktmbuf_free(own);
		own = NULL;
		q->too_long++;
	}
	rte_pktmbuf_free(m);
	return own;
}

static bool is_bad(const struct rte_mbuf *m)
{
	return (m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_BAD ||
	       (m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD;
}

/* Takes up to `frames` received frames. */
LW_EXPORT uint16_t lw_receive(struct lw_queue *q, struct lw_frame *to, uint16_t frames)
{
	struct rte_mbuf *mbufs[LW_FRAMES_MAX];
	uint16_t got = rte_eth_rx_burst(q->port, q->queue, mbufs, frames), kept = 0, i;
	uint32_t cut_at = q->cut_at ? q->cut_at : UINT32_MAX;

	for (i = 0; i < got; i++) {
		struct rte_mbuf *m = mbufs[i];

		if (unlikely(m->pkt_len >= cut_at)) {
			rte_pktmbuf_free(m);
			q->too_long++;
			continue;
		}
		if (unlikely(m->nb_segs > 1 || m->pool != q->pool || !RTE_MBUF_DIRECT(m) ||
			     m->data_off < RTE_PKTMBUF_HEADROOM)) {
			m = frame_straighten(q, m);
			if (!m)
				continue;
		}
		if (unlikely(q->checksums && is_bad(m))) {
			rte_pktmbuf_free(m);
			q->bad_checksum++;
			continue;
		}
		to[kept].number = number_of(q, m);
		to[kept].data_off = m->data_off;
		to[kept].bytes = m->data_len;
		kept++;
	}
	return kept;
}

/* A program written by hand against DPDK, as a yardstick for the lane: takes up to `frames` received
 * frames, adds the first 16 bytes of each to `sum`, as two numbers, and frees them. */
LW_EXPORT uint16_t lw_read_and_free(struct lw_queue *q, uint16_t frames, uint64_t *sum)
{
	struct rte_mbuf *mbufs[LW_FRAMES_MAX];
	uint16_t got = rte_eth_rx_burst(q->port, q->queue, mbufs, frames), i;

	for (i = 0; i < got; i++) {
		uint64_t words[2] = {0};

		if (likely(mbufs[i]->data_len >= sizeof(words)))
			memcpy(words, rte_pktmbuf_mtod(mbufs[i], const void *), sizeof(words));
		*sum += words[0] + words[1];
	}
	rte_pktmbuf_free_bulk(mbufs, got);
	return got;
}

/* Takes up to `frames` empty mbufs. */
LW_EXPORT uint16_t lw_lend(struct lw_queue *q, struct lw_frame *to, uint16_t frames)
{
	struct rte_mbuf *mbufs[LW_FRAMES_MAX];
	uint16_t got = frames, i;

	if (rte_pktmbuf_alloc_bulk(q->pool, mbufs, frames)) {
		/* All or nothing, so: one by one, as many as there are. */
		for (got = 0; got < frames; got++) {
			mbufs[got] = rte_pktmbuf_alloc(q->pool);
			if (!mbufs[got])
				break;
		}
	}
	for (i = 0; i < got; i++) {
		to[i].number = number_of(q, mbufs[i]);
		to[i].data_off = mbufs[i]->data_off;
		to[i].bytes = 0;
	}
	return got;
}

/* Gives mbufs back that are not sent. */
LW_EXPORT void lw_free(struct lw_queue *q, const uint32_t *numbers, uint32_t count)
{
	struct rte_mbuf *mbufs[LW_FRAMES_MAX];
	uint32_t done = 0, i;

	while (done < count) {
		uint32_t part = RTE_MIN(count - done, (uint32_t)LW_FRAMES_MAX);

		for (i = 0; i < part; i++)
			mbufs[i] = mbuf_of(q, numbers[done + i]);
		rte_pktmbuf_free_bulk(mbufs, part);
		done += part;
	}
}

/* Tells the device which checksums an IPv4 frame has; it wants the pseudo header's sum in place. */
static void checksums_request(struct rte_mbuf *m)
{
	struct rte_ether_hdr *ethernet = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ethernet + 1);
	uint32_t l3_bytes, l4_room;
	void *l4;

	if (m->data_len < sizeof(*ethernet) + sizeof(*ip) ||
	    ethernet->ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
		return;
	l3_bytes = rte_ipv4_hdr_len(ip);
	if (ip->version != 4 || l3_bytes < sizeof(*ip) ||
	    m->data_len < sizeof(*ethernet) + l3_bytes)
		return;
	m->l2_len = sizeof(*ethernet);
	m->l3_len = l3_bytes;
	m->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
	ip->hdr_checksum = 0;
	/* A fragment's sum covers what is not here. */
	if (ip->fragment_offset & rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK))
		return;
	l4 = (char *)ip + l3_bytes;
	l4_room = m->data_len - sizeof(*ethernet) - l3_bytes;
	if (ip->next_proto_id == IPPROTO_UDP && l4_room >= sizeof(struct rte_udp_hdr)) {
		m->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
		((struct rte_udp_hdr *)l4)->dgram_cksum = rte_ipv4_phdr_cksum(ip, m->ol_flags);
	} else if (ip->next_proto_id == IPPROTO_TCP && l4_room >= sizeof(struct rte_tcp_hdr)) {
		m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
		((struct rte_tcp_hdr *)l4)->cksum = rte_ipv4_phdr_cksum(ip, m->ol_flags);
	}
}

/* Sends frames in order; returns how many the port took. The others are given back. */
LW_EXPORT uint32_t lw_transmit(struct lw_queue *q, const struct lw_frame *frames, uint32_t count)
{
	struct rte_mbuf *mbufs[LW_FRAMES_MAX];
	uint32_t sent = 0, i;

	while (sent < count) {
		uint16_t part = (uint16_t)RTE_MIN(count - sent, (uint32_t)LW_FRAMES_MAX), taken = 0;
		unsigned int tries;

		for (i = 0; i < part; i++) {
			const struct lw_frame *frame = &frames[sent + i];
			struct rte_mbuf *m = mbuf_of(q, frame->number);

			m->data_off = frame->data_off;
			m->data_len = (uint16_t)frame->bytes;
			m->pkt_len = frame->bytes;
			if (unlikely(m->nb_segs > 1))
				m->data_len -= m->next->data_len;
			m->ol_flags = 0;
			if (unlikely(frame->references))
				rte_mbuf_refcnt_update(m, (int16_t)frame->references);
			if (q->checksums)
				checksums_request(m);
			mbufs[i] = m;
		}
		for (tries = 0; taken < part && tries < LW_TRANSMIT_TRIES; tries++)
			taken += rte_eth_tx_burst(q->port, q->queue, mbufs + taken, part - taken);
		sent += taken;
		if (taken < part) {
			rte_pktmbuf_free_bulk(mbufs + taken, part - taken);
			for (i = sent + part - taken; i < count; i++) {
				struct rte_mbuf *m = mbuf_of(q, frames[i].number);

				if (frames[i].references)
					rte_mbuf_refcnt_update(m, (int16_t)frames[i].references);
				rte_pktmbuf_free(m);
			}
			break;
		}
	}
	return sent;
}

/* A copy of a frame in a fresh mbuf; false when there is none. */
LW_EXPORT bool lw_copy(struct lw_queue *q, const struct lw_frame *from, struct lw_frame *to)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(q->pool), *source = mbuf_of(q, from->number);

	if (!m)
		return false;
	memcpy((char *)m->buf_addr + from->data_off, (char *)source->buf_addr + from->data_off,
	       from->bytes);
	*to = *from;
	to->number = number_of(q, m);
	to->references = 0;
	return true;
}

/*
 * A frame to send: a head in a fresh mbuf and, behind it, a part of another frame, which stays where it
 * is and has one reference more until this one is sent. False when mbufs are short.
 */
LW_EXPORT bool lw_gather(struct lw_queue *q, const void *head, uint16_t head_bytes,
			 const struct lw_frame *part, struct lw_frame *to)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(q->pool), *piece;
	char *at = m ? rte_pktmbuf_append(m, head_bytes) : NULL;

	piece = at ? rte_pktmbuf_alloc(q->pool) : NULL;
	if (!piece) {
		rte_pktmbuf_free(m);
		return false;
	}
	memcpy(at, head, head_bytes);
	/* Refers to the other's buffer, and has an offset of its own. */
	rte_pktmbuf_attach(piece, mbuf_of(q, part->number));
	piece->data_off = part->data_off;
	piece->data_len = (uint16_t)part->bytes;
	piece->pkt_len = part->bytes;
	m->next = piece;
	m->nb_segs = 2;
	to->number = number_of(q, m);
	to->data_off = m->data_off;
	to->references = 0;
	to->bytes = head_bytes + part->bytes;
	return true;
}

#include "flow_rules.h"

/* src/shim.rs declares the records once more, with these sizes. */
_Static_assert(sizeof(struct lw_frame) == 12, "ShimFrame");
_Static_assert(sizeof(struct lw_queue) == 64, "ShimQueue");
_Static_assert(sizeof(struct lw_port_info) == 96, "PortInfo");
_Static_assert(sizeof(struct lw_port_conf) == 32, "PortConf");
_Static_assert(sizeof(struct lw_queue_stats) == 24, "QueueStats");
_Static_assert(sizeof(struct lw_stats) == 40, "PortStats");
