// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Counts the frames that the half sent (XDP_TX, redirect) and the kernel dropped behind it. The half
 * cannot see them: the driver takes frames in bulks, after the program. The kernel tells only these
 * tracepoints, for every interface of the machine; counted are those of the lane's, which are known by
 * number and network namespace.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define LW_BEHIND_PORTS_MAX 32
#define LW_EMSGSIZE	    90

/* Set before loading; see src/behind.rs. */
const volatile __u32 lw_ifindexes[LW_BEHIND_PORTS_MAX];
const volatile __u32 lw_namespace; /* inode of the interfaces' network namespace */

/* Just enough of the kernel's types; the fields' places are found when the programs are loaded. */
struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

struct bpf_prog;

struct lw_behind {
	__u64 refused;
	__u64 too_long;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lw_behind);
} behind SEC(".maps");

static __always_inline int is_ours(const struct net_device *dev)
{
	__u32 ifindex = dev->ifindex;

	if (dev->nd_net.net->ns.inum != lw_namespace)
		return 0;
	for (int i = 0; i < LW_BEHIND_PORTS_MAX; i++)
		if (ifindex == lw_ifindexes[i])
			return 1;
	return 0;
}

static __always_inline void count(const struct net_device *dev, int frames, int err)
{
	const __u32 zero = 0;
	struct lw_behind *n;

	if (frames <= 0 || !is_ours(dev))
		return;
	n = bpf_map_lookup_elem(&behind, &zero);
	if (!n)
		return;
	if (err == -LW_EMSGSIZE)
		n->too_long += frames;
	else
		n->refused += frames;
}

/* A bulk of XDP_TX; of it `drops` were not taken. */
SEC("tp_btf/xdp_bulk_tx")
int BPF_PROG(on_bulk_tx, const struct net_device *dev, int sent, int drops, int err)
{
	count(dev, drops, 0);
	return 0;
}

/* A bulk that was redirected through a map of devices. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(on_devmap_xmit, const struct net_device *from, const struct net_device *to, int sent,
	     int drops, int err)
{
	count(from, drops, 0);
	return 0;
}

/* A frame whose redirect was refused at once: longer than the MTU there, interface down. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(on_redirect_err, const struct net_device *from, const struct bpf_prog *program,
	     const void *target, int err)
{
	count(from, 1, err);
	return 0;
}

/*
 * A frame that the driver could not put into a bulk, or the core could not send in generic mode. Of a
 * redirect the driver may say it as well, after the tracepoint above; other verdicts are none of sending.
 */
SEC("tp_btf/xdp_exception")
int BPF_PROG(on_exception, const struct net_device *dev, const struct bpf_prog *program, __u32 act)
{
	if (act == XDP_TX)
		count(dev, 1, 0);
	return 0;
}
