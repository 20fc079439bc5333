// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Counts the frames that the half sent (XDP_TX, redirect) and the kernel dropped behind it. The half
 * cannot see them: the driver takes frames in bulks, after the program. The kernel tells only these
 * tracepoints, for every interface of the machine; counted is what arrived by one of the lane's, which
 * are known by number and network namespace, under the interface that it was to leave by.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <laneway/net_device.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define LW_BEHIND_PORTS_MAX 32
#define LW_BEHIND_ELSEWHERE LW_BEHIND_PORTS_MAX /* not by one of the lane's, or unknown */
#define LW_EMSGSIZE	    90

/* Set before loading; see src/behind.rs. */
const volatile __u32 lw_ifindexes[LW_BEHIND_PORTS_MAX];
const volatile __u32 lw_namespace; /* inode of the interfaces' network namespace */

/* Just enough of the kernel's types; the fields' places are found when the programs are loaded. */
struct bpf_prog;

struct lw_behind {
	__u64 refused;
	__u64 too_long;
	__u64 full; /* the driver took some of a bulk, and had no room for the rest */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LW_BEHIND_PORTS_MAX + 1);
	__type(key, __u32);
	__type(value, struct lw_behind);
} behind SEC(".maps");

/* Which of the lane's interfaces it is. */
static __always_inline __u32 port_of(const struct net_device *dev)
{
	__u32 ifindex = dev->ifindex;

	if (dev->nd_net.net->ns.inum != lw_namespace)
		return LW_BEHIND_ELSEWHERE;
	for (__u32 i = 0; i < LW_BEHIND_PORTS_MAX; i++)
		if (ifindex == lw_ifindexes[i])
			return i;
	return LW_BEHIND_ELSEWHERE;
}

static __always_inline struct lw_behind *counts_of(const struct net_device *from, __u32 to)
{
	return port_of(from) == LW_BEHIND_ELSEWHERE ? 0 : bpf_map_lookup_elem(&behind, &to);
}

/* Of a bulk, these were not taken. */
static __always_inline void count_bulk(const struct net_device *from, const struct net_device *to,
				       int drops, int err)
{
	struct lw_behind *n;

	if (drops <= 0)
		return;
	n = counts_of(from, port_of(to));
	if (!n)
		return;
	if (err < 0)
		n->refused += drops;
	else
		n->full += drops;
}

/* A bulk of XDP_TX; of it `drops` were not taken. */
SEC("tp_btf/xdp_bulk_tx")
int BPF_PROG(on_bulk_tx, const struct net_device *dev, int sent, int drops, int err)
{
	count_bulk(dev, dev, drops, err);
	return 0;
}

/* A bulk that was redirected through a map of devices; what the programs there dropped is among it. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(on_devmap_xmit, const struct net_device *from, const struct net_device *to, int sent,
	     int drops, int err)
{
	count_bulk(from, to, drops, err);
	return 0;
}

/* A frame whose redirect was refused at once: longer than the MTU there, interface down. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(on_redirect_err, const struct net_device *from, const struct bpf_prog *program,
	     const void *target, int err)
{
	struct lw_behind *n = counts_of(from, LW_BEHIND_ELSEWHERE);

	if (n && err == -LW_EMSGSIZE)
		n->too_long++;
	else if (n)
		n->refused++;
	return 0;
}

/*
 * A frame that the driver could not put into a bulk, or the core could not send in generic mode. Of a
 * redirect the driver may say it as well, after the tracepoint above; other verdicts are none of sending.
 */
SEC("tp_btf/xdp_exception")
int BPF_PROG(on_exception, const struct net_device *dev, const struct bpf_prog *program, __u32 act)
{
	struct lw_behind *n = act == XDP_TX ? counts_of(dev, port_of(dev)) : 0;

	if (n)
		n->refused++;
	return 0;
}
