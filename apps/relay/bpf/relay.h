/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frame -> datagram of a rule; datagram -> frame of an output. Compiled for eBPF and, as the tests'
 * referee, for the host; the tests have an independent implementation in Rust, and all must agree on
 * every fate and byte.
 *
 * Taken are whole UDP datagrams over IPv4 without options and IPv6 without extension headers, with one
 * VLAN tag or none. Whatever else comes is the kernel's: it is passed unchanged and counted by reason.
 * Lengths are believed when all of them agree: frame, IP and UDP.
 *
 * Two programs share the work. The first finds the rule and hands the frame to its outputs; the second
 * runs once for each of them, on a copy of its own, and makes the output's datagram of it. Between the
 * two the rule's number travels in the place of the destination's MAC address, which every output writes
 * anew: metadata would need the driver's help, and not every kernel states the ingress interface of a frame
 * to the second program.
 */
#ifndef LANEWAY_RELAY_H
#define LANEWAY_RELAY_H

#include <laneway/headers.h>
#include <laneway/rewrite.h>

#define LW_RELAY_ETH_BYTES 14
#define LW_RELAY_TAG_BYTES 4
#define LW_RELAY_UDP_BYTES 8
#define LW_RELAY_IPV6	   0x80

/* What becomes of a frame that comes in; the codes are those of src/kernel/counts.rs. */
enum lw_relay_fate {
	LW_RELAY_SENT = 0,	  /* to the outputs of a rule */
	LW_RELAY_NO_RULE = 1,	  /* no UDP, or no rule asks for it */
	LW_RELAY_FRAGMENT = 2,
	LW_RELAY_OPTIONS = 3,	  /* of IPv4, or extension headers of IPv6 */
	LW_RELAY_TTL = 4,	  /* below what is taken */
	LW_RELAY_LENGTH = 5,	  /* frame, IP and UDP disagree */
	LW_RELAY_NO_CHECKSUM = 6, /* over IPv6, where receivers must drop it (RFC 8200) */
	LW_RELAY_SOURCE = 7,	  /* not one that the rule lists */
	LW_RELAY_IN_PIECES = 8,	  /* the driver has the frame in several buffers */
	LW_RELAY_FATES = 9,
};

/*
 * What a rule asks for. IPv4 addresses are mapped (::ffff:a.b.c.d); the family stands beside them, for
 * any host can send IPv6 to a mapped address.
 */
struct lw_relay_input {
	__u32 ifindex;
	__u8 vlan[2]; /* 0: without a tag, or with one that names no VLAN; above it LW_RELAY_IPV6 */
	__u8 port[2];
	__u8 destination[16];
};
_Static_assert(sizeof(struct lw_relay_input) == 24, "src/kernel/tables.rs");

struct lw_relay_source {
	__u32 slot;
	__u8 address[16];
};
_Static_assert(sizeof(struct lw_relay_source) == 20, "src/kernel/tables.rs");

/* A rule under its number. */
struct lw_relay_rule {
	__u32 exits;	   /* which set of interfaces */
	__u32 has_sources; /* only they are taken */
	__u64 datagrams;
	__u64 bytes; /* of payload */
};
_Static_assert(sizeof(struct lw_relay_rule) == 24, "src/kernel/tables.rs");

struct lw_relay_exit {
	__u32 slot;
	__u32 ifindex;
};

/* What a rule's datagram looks like on an interface. */
struct lw_relay_output {
	__u8 mac_dst[6];
	__u8 mac_src[6];
	__u8 src_ip[16];
	__u8 dst_ip[16];
	__u8 src_port[2];
	__u8 dst_port[2];
	__u8 tos;
	__u8 ttl;
	__u8 zero[6];
	__u64 datagrams;
	__u64 bytes;
};
_Static_assert(sizeof(struct lw_relay_output) == 72, "src/kernel/tables.rs");

/* What the first program tells the second, in the place of the destination's MAC address. */
struct lw_relay_ticket {
	__u32 slot;
	__u8 l3;
	__u8 is_v6;
} __attribute__((packed));
_Static_assert(sizeof(struct lw_relay_ticket) == 6, "as long as a MAC address");

struct lw_relay_datagram {
	struct lw_relay_input to;
	__u8 from[16];
	__u32 bytes; /* of payload */
	__u8 l3;
	__u8 is_v6;
};

/* The UDP header at `udp`, of which the IP packet has `room` bytes. */
LW_INLINE __u8 lw_relay_udp(const __u8 *udp, __u32 room, struct lw_relay_datagram *d)
{
	if (lw_be16(udp + 4) != room)
		return LW_RELAY_LENGTH;
	d->bytes = room - LW_RELAY_UDP_BYTES;
	__builtin_memcpy(d->to.port, udp + 2, 2);
	return LW_RELAY_SENT;
}

LW_INLINE __u8 lw_relay_ipv4(const struct lw_view *view, const __u8 *ip, __u32 avail,
			     __u32 ttl_min, struct lw_relay_datagram *d)
{
	__u32 total;

	if (ip + 20 > view->end)
		return LW_RELAY_LENGTH;
	if (ip[9] != 17)
		return LW_RELAY_NO_RULE;
	if (ip[0] != 0x45)
		return ip[0] >> 4 == 4 && (ip[0] & 0x0f) > 5 ? LW_RELAY_OPTIONS : LW_RELAY_LENGTH;
	if (lw_be16(ip + 6) & 0x3fff)
		return LW_RELAY_FRAGMENT;
	total = lw_be16(ip + 2);
	if (total < 20 + LW_RELAY_UDP_BYTES || total > avail ||
	    ip + 20 + LW_RELAY_UDP_BYTES > view->end)
		return LW_RELAY_LENGTH;
	if (ip[8] < ttl_min)
		return LW_RELAY_TTL;
	d->from[10] = d->from[11] = 0xff;
	d->to.destination[10] = d->to.destination[11] = 0xff;
	__builtin_memcpy(&d->from[12], ip + 12, 4);
	__builtin_memcpy(&d->to.destination[12], ip + 16, 4);
	return lw_relay_udp(ip + 20, total - 20, d);
}

LW_INLINE __u8 lw_relay_ipv6(const struct lw_view *view, const __u8 *ip, __u32 avail,
			     __u32 ttl_min, struct lw_relay_datagram *d)
{
	const __u8 *udp = ip + 40;
	__u32 room;

	if (udp > view->end)
		return LW_RELAY_LENGTH;
	if (ip[6] == LW_FRAGMENT_HEADER)
		return LW_RELAY_FRAGMENT;
	if (lw_is_extension(ip[6]))
		return LW_RELAY_OPTIONS;
	if (ip[6] != 17)
		return LW_RELAY_NO_RULE;
	room = lw_be16(ip + 4);
	if (ip[0] >> 4 != 6 || room < LW_RELAY_UDP_BYTES || room + 40 > avail ||
	    udp + LW_RELAY_UDP_BYTES > view->end)
		return LW_RELAY_LENGTH;
	if (ip[7] < ttl_min)
		return LW_RELAY_TTL;
	if (!lw_be16(udp + 6))
		return LW_RELAY_NO_CHECKSUM;
	d->is_v6 = 1;
	d->to.vlan[0] |= LW_RELAY_IPV6;
	__builtin_memcpy(d->from, ip + 8, 16);
	__builtin_memcpy(d->to.destination, ip + 24, 16);
	return lw_relay_udp(udp, room, d);
}

/* Reads a frame into `d`, which is zeroed but for the interface; LW_RELAY_SENT if a rule may ask for it. */
LW_INLINE __u8 lw_relay_parse(const struct lw_view *view, __u32 ttl_min,
			      struct lw_relay_datagram *d)
{
	const __u8 *p = view->data, *ip = p + LW_RELAY_ETH_BYTES;
	__u32 l3 = LW_RELAY_ETH_BYTES;
	__u16 kind;

	if (ip > view->end)
		return LW_RELAY_NO_RULE;
	kind = lw_be16(p + 12);
	if (kind == 0x8100) {
		ip += LW_RELAY_TAG_BYTES;
		l3 += LW_RELAY_TAG_BYTES;
		if (ip > view->end)
			return LW_RELAY_NO_RULE;
		d->to.vlan[0] = p[14] & 0x0f;
		d->to.vlan[1] = p[15];
		kind = lw_be16(p + 16);
	}
	d->l3 = (__u8)l3;
	if (kind == 0x0800)
		return lw_relay_ipv4(view, ip, view->len - l3, ttl_min, d);
	if (kind == 0x86dd)
		return lw_relay_ipv6(view, ip, view->len - l3, ttl_min, d);
	return LW_RELAY_NO_RULE;
}

/* Writes the ticket; 0 if there is no room, which cannot be after parsing. */
LW_INLINE int lw_relay_mark(__u8 *data, const __u8 *end, __u32 slot,
			    const struct lw_relay_datagram *d)
{
	struct lw_relay_ticket ticket = { .slot = slot, .l3 = d->l3, .is_v6 = d->is_v6 };

	if (data + LW_RELAY_ETH_BYTES > end)
		return 0;
	__builtin_memcpy(data, &ticket, sizeof(ticket));
	return 1;
}

/*
 * Makes of a frame with a ticket what an output says; gives the bytes of payload, or -1 if the ticket is
 * none. The class of service is the output's alone: its ECN bits are none, as of any new datagram.
 */
LW_INLINE __s32 lw_relay_rewrite(__u8 *data, const __u8 *end, const struct lw_relay_ticket *ticket,
				 const struct lw_relay_output *o)
{
	__u32 l3 = ticket->l3, sum = 0;
	__u8 *ip, *udp;

	if (l3 != LW_RELAY_ETH_BYTES && l3 != LW_RELAY_ETH_BYTES + LW_RELAY_TAG_BYTES)
		return -1;
	ip = data + l3;
	if (ip + 20 + LW_RELAY_UDP_BYTES > end)
		return -1;
	if (ticket->is_v6) {
		udp = ip + 40;
		if (udp + LW_RELAY_UDP_BYTES > end)
			return -1;
		lw_change(&sum, ip + 8, o->src_ip, 16);
		lw_change(&sum, ip + 24, o->dst_ip, 16);
		lw_put_ipv6(ip, o->src_ip, o->dst_ip, o->tos, o->ttl);
	} else {
		udp = ip + 20;
		lw_change(&sum, ip + 12, &o->src_ip[12], 4);
		lw_change(&sum, ip + 16, &o->dst_ip[12], 4);
		lw_put_ipv4(ip, &o->src_ip[12], &o->dst_ip[12], o->tos, o->ttl, sum);
	}
	lw_put_ports(udp, o->src_port, o->dst_port, &sum);
	lw_follow_udp(udp, sum);
	__builtin_memcpy(data, o->mac_dst, 6);
	__builtin_memcpy(data + 6, o->mac_src, 6);
	return (__s32)lw_be16(udp + 4) - LW_RELAY_UDP_BYTES;
}

#endif
