/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Just enough of the kernel's types to know an interface: its number, and the inode of its network namespace. The
 * fields' places are found when a program is loaded.
 */
#ifndef LANEWAY_NET_DEVICE_H
#define LANEWAY_NET_DEVICE_H

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

#endif
