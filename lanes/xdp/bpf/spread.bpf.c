// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Hands each frame to the CPU that its flow hashes to, where the app's own program runs as the program
 * of that CPU's entry in the map.
 *
 * Both directions of a flow have the same hash: each end is mixed for itself and the two are added.
 * Fragments and frames without ports are distinguished by their addresses, frames that are not IP by
 * their MAC addresses. A frame that is cut short is hashed by what is there.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include <laneway/headers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define LW_SPREAD_CPUS_MAX 64
#define LW_IPV4_BYTES	   20
#define LW_IPV6_BYTES	   40
#define LW_MIX		   0x9e3779b97f4a7c15ull /* 2^64 over the golden ratio */

/* Set before loading; see src/spread.rs. */
const volatile __u32 lw_cpus[LW_SPREAD_CPUS_MAX];
const volatile __u32 lw_cpu_count;

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} cpus SEC(".maps");

struct lw_entered {
	__u64 frames;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_entered);
} entered SEC(".maps");

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * LW_MIX;
	return hash ^ hash >> 32;
}

/* Of `words` 32-bit words at `p`, which the caller has checked. */
static __always_inline __u64 mix_words(const __u8 *p, int words)
{
	__u64 hash = 0;

	for (int i = 0; i < words; i++)
		hash = mix(hash, lw_be32(p + 4 * i));
	return hash;
}

static __always_inline int has_ports(__u8 protocol)
{
	return protocol == 6 || protocol == 17 || protocol == 132; /* TCP, UDP, SCTP */
}

static __always_inline __u64 flow_hash(const __u8 *data, const __u8 *end)
{
	const __u8 *p = data + LW_ETH_BYTES, *ports = 0;
	__u64 source, destination;
	__u16 type;

	if (p > end)
		return 0;
	type = lw_be16(data + 12);
	for (int i = 0; i < LW_VLAN_TAGS_MAX; i++) {
		if (!lw_is_vlan(type))
			break;
		if (p + 4 > end)
			return 0;
		type = lw_be16(p + 2);
		p += 4;
	}
	if (type == 0x0800 && p + LW_IPV4_BYTES <= end) {
		__u32 header_bytes = (p[0] & 0xf) * 4;

		source = mix_words(p + 12, 1);
		destination = mix_words(p + 16, 1);
		/* More fragments, or not the first. */
		if (has_ports(p[9]) && !(lw_be16(p + 6) & 0x3fff))
			ports = p + header_bytes;
	} else if (type == 0x86dd && p + LW_IPV6_BYTES <= end) {
		source = mix_words(p + 8, 4);
		destination = mix_words(p + 24, 4);
		if (has_ports(p[6]))
			ports = p + LW_IPV6_BYTES;
	} else {
		source = mix(lw_be16(data + 6), lw_be32(data + 8));
		destination = mix(lw_be16(data), lw_be32(data + 2));
	}
	if (ports && ports + 4 <= end) {
		source = mix(source, lw_be16(ports));
		destination = mix(destination, lw_be16(ports + 2));
	}
	return mix(0, source + destination);
}

SEC("xdp.frags")
int spread(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct lw_entered *e = bpf_map_lookup_elem(&entered, &zero);
	__u32 at;

	if (e) {
		e->frames++;
		e->bytes += bpf_xdp_get_buff_len(ctx);
	}
	at = (__u32)(flow_hash((const __u8 *)(long)ctx->data, (const __u8 *)(long)ctx->data_end) >>
		     16) %
	     (lw_cpu_count ? lw_cpu_count : 1);
	/* No entry: that frame reaches no app, and is found out by the count above. */
	return bpf_redirect_map(&cpus, lw_cpus[at % LW_SPREAD_CPUS_MAX], XDP_DROP);
}
