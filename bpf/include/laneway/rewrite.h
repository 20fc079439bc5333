/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Changing a packet's addresses, ports, time to live and class of service, with the checksums that cover
 * them. Compiled for eBPF and, as a referee of tests, for the host.
 *
 * A checksum is followed, never recomputed (RFC 1624): one that was wrong stays wrong by as much. UDP
 * without a checksum stays without; one that becomes zero is written in its other form, 0xffff (RFC
 * 768). The caller has checked that the header is there: 20 bytes of IPv4, 40 of IPv6, 8 of layer 4.
 *
 * What changes addresses changes two sums, that of the IPv4 header and that of layer 4. So a change is
 * added up first (lw_change), and then followed wherever it counts.
 */
#ifndef LANEWAY_REWRITE_H
#define LANEWAY_REWRITE_H

#include <laneway/bytes.h>

/* Keeps the compiler from making a branch of what is computed. */
#ifdef __bpf__
#define LW_OPAQUE(value) asm volatile("" : "+r"(value))
#else
#define LW_OPAQUE(value) ((void)0)
#endif

/* Adds to `sum` what changes a checksum where a word becomes another one. */
LW_INLINE void lw_change_word(__u32 *sum, __u32 old, __u32 new)
{
	/* All ones where they differ. Without a branch: the verifier would follow 2^16 paths. */
	__u32 differs = (__u32)-(__s32)((old - new) >> 31 | (new - old) >> 31);

	LW_OPAQUE(differs);
	*sum += ((__u16)~old + new) & differs;
}

/*
 * Adds to `sum` what changes a checksum where `now` differs from `was`; both of even length. The
 * verifier can count to eight; unrolled, this takes most of the stack.
 */
LW_INLINE void lw_change(__u32 *sum, const __u8 *was, const __u8 *now, int bytes)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < bytes; i += 2)
		lw_change_word(sum, lw_be16(was + i), lw_be16(now + i));
}

/* The checksum after a change. */
LW_INLINE __u16 lw_follow(__u16 checksum, __u32 sum)
{
	sum += (__u16)~checksum;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~sum;
}

LW_INLINE void lw_put16(__u8 *p, __u16 value)
{
	p[0] = (__u8)(value >> 8);
	p[1] = (__u8)value;
}

/* Follows a change at a checksum, unless there is none. */
LW_INLINE void lw_follow_at(__u8 *p, __u32 sum)
{
	if (sum)
		lw_put16(p, lw_follow(lw_be16(p), sum));
}

/* Follows a change at the checksum of a UDP header. */
LW_INLINE void lw_follow_udp(__u8 *udp, __u32 sum)
{
	__u16 checksum = lw_be16(udp + 6);

	if (!sum || !checksum)
		return;
	checksum = lw_follow(checksum, sum);
	lw_put16(udp + 6, checksum ? checksum : 0xffff);
}

/* Writes an IPv4 header's fields; `sum` is the change of its addresses. */
LW_INLINE void lw_put_ipv4(__u8 *ip, const __u8 *src, const __u8 *dst, __u8 tos, __u8 ttl,
			   __u32 sum)
{
	lw_change_word(&sum, ip[1], tos);
	lw_change_word(&sum, (__u32)ip[8] << 8 | ip[9], (__u32)ttl << 8 | ip[9]);
	ip[1] = tos;
	ip[8] = ttl;
	__builtin_memcpy(ip + 12, src, 4);
	__builtin_memcpy(ip + 16, dst, 4);
	lw_follow_at(ip + 10, sum);
}

/* Writes an IPv6 header's fields, which no checksum of its own covers. */
LW_INLINE void lw_put_ipv6(__u8 *ip, const __u8 *src, const __u8 *dst, __u8 tos, __u8 hop_limit)
{
	ip[0] = (__u8)((ip[0] & 0xf0) | tos >> 4);
	ip[1] = (__u8)((ip[1] & 0x0f) | tos << 4);
	ip[7] = hop_limit;
	__builtin_memcpy(ip + 8, src, 16);
	__builtin_memcpy(ip + 24, dst, 16);
}

/* Writes the ports of TCP or UDP, and adds their change to `sum`. */
LW_INLINE void lw_put_ports(__u8 *l4, const __u8 *src, const __u8 *dst, __u32 *sum)
{
	lw_change(sum, l4, src, 2);
	lw_change(sum, l4 + 2, dst, 2);
	__builtin_memcpy(l4, src, 2);
	__builtin_memcpy(l4 + 2, dst, 2);
}

#endif
