// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel half that tests load: one fixed-size record per frame through the ring of the CPU it
 * runs on, every frame counted as seen, every failed reservation counted as a drop. It shows the
 * pattern of a real half in its smallest form. Frames are dropped unless `verdict` says otherwise.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <laneway/drop_reason.h>
#include <laneway/wake.h>

/* tests/support reads the same 32 bytes. */
struct record {
	__u64 n;
	__u64 meta;
	__u32 len;
	__u32 cpu;
	__u64 tag;
};

struct seen {
	__u64 frames;
	__u64 bytes;
};

const volatile __u32 verdict = XDP_DROP;
const volatile __u64 tag = 0;
/* When set, each frame's ring space is taken and given back: a discarded record. */
const volatile __u8 discard_odd = 0;

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct ring);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} wanted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_DROP_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

/* Frames by length, as a plain and as a per-CPU hash: something to visit and drain. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} lengths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} lengths_per_cpu SEC(".maps");

/* A type of map without batch operations, and with holes. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

SEC("xdp.frags")
int count(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	__u64 *meta = (void *)(long)ctx->data_meta;
	__u32 zero = 0, cpu = bpf_get_smp_processor_id();
	__u32 len = bpf_xdp_get_buff_len(ctx);
	struct seen *total = bpf_map_lookup_elem(&seen, &zero);
	__u64 *by_length = bpf_map_lookup_elem(&lengths, &len);
	__u32 *by_length_here = bpf_map_lookup_elem(&lengths_per_cpu, &len);
	__u32 *want = bpf_map_lookup_elem(&wanted, &zero);
	void *ring = bpf_map_lookup_elem(&records, &cpu);
	struct record *record;

	if (!total || !want)
		return XDP_ABORTED;
	if (by_length)
		__sync_fetch_and_add(by_length, 1);
	if (by_length_here)
		*by_length_here += 1;
	total->frames += 1;
	total->bytes += len;

	record = ring ? bpf_ringbuf_reserve(ring, sizeof(*record), 0) : NULL;
	if (!record) {
		__u32 reason = LW_DROP_RECORD_RING_FULL;
		__u64 *full = bpf_map_lookup_elem(&drops, &reason);

		if (full)
			*full += 1;
		return verdict;
	}
	record->n = total->frames - 1;
	record->meta = (void *)(meta + 1) <= data ? *meta : 0;
	record->len = len;
	record->cpu = cpu;
	record->tag = tag;
	if (discard_odd && (record->n & 1)) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return verdict;
	}
	bpf_ringbuf_submit(record, lw_wake_flags(ring, want));
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
