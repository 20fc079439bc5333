// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * A half of two programs, for tests: one sends every frame to all devices of the map that stands under
 * its number, the other stamps it on the way out with the number of the interface.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include <laneway/drop_reason.h>

const volatile __u32 number;

struct devices {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	/* By size: within a map of maps the compiler keeps no type that it does not use. */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct devices);
} exits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_DROP_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

struct seen {
	__u64 frames;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

SEC("xdp.frags")
int scatter(struct xdp_md *ctx)
{
	__u32 zero = 0, at = number;
	struct seen *s = bpf_map_lookup_elem(&seen, &zero);
	void *devices = bpf_map_lookup_elem(&exits, &at);

	if (s) {
		s->frames++;
		s->bytes += bpf_xdp_get_buff_len(ctx);
	}
	if (!devices)
		return XDP_PASS;
	return (int)bpf_redirect_map(devices, 0, BPF_F_BROADCAST);
}

SEC("xdp.frags/devmap")
int stamp(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data;

	if (data + 14 > (__u8 *)(long)ctx->data_end)
		return XDP_DROP;
	data[11] = (__u8)ctx->egress_ifindex;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
