/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Fields -> frame: writes what rules and modes changed, and keeps checksums right. Included by forward.h, behind the
 * types.
 */
#ifndef LANEWAY_FORWARD_EDIT_H
#define LANEWAY_FORWARD_EDIT_H

LW_INLINE void lw_write_l4(__u8 *data, const __u8 *end, const struct lw_places *at,
			   const struct lw_fields *now, __u32 sum)
{
	__u32 off = at->l4;
	__u8 *p;

	if (off > LW_HEADERS_MAX - 8)
		return;
	p = data + off;
	if (p + 8 > end)
		return;
	if (at->has & (LW_HAS_TCP | LW_HAS_UDP))
		lw_put_ports(p, now->src_port, now->dst_port, &sum);
	if (at->has & LW_HAS_TCP) {
		if (p + 20 <= end)
			lw_follow_at(p + 16, sum);
	} else if (at->has & LW_HAS_ICMP6) {
		lw_follow_at(p + 2, sum);
	} else if (at->has & LW_HAS_UDP) {
		lw_follow_udp(p, sum);
	}
}

/* Makes the frame agree with `now` where `was` differs from it. */
LW_PART void lw_write_back(__u8 *data, const __u8 *end, const struct lw_places *at,
			   const struct lw_fields *was, const struct lw_fields *now)
{
	__u32 off = at->l3, sum = 0;
	__u64 differs = 0;
	__u8 *p;

#pragma clang loop unroll(full)
	for (int w = 0; w < LW_WORDS; w++)
		differs |= was->words[w] ^ now->words[w];
	if (!differs || data + LW_ETH_BYTES > end)
		return;
	__builtin_memcpy(data, now->eth_dst, 6);
	__builtin_memcpy(data + 6, now->eth_src, 6);
	if (off > 22)
		return;
	p = data + off;
	lw_change(&sum, was->src_ip, now->src_ip, 16);
	lw_change(&sum, was->dst_ip, now->dst_ip, 16);
	if (at->has & LW_HAS_IPV4) {
		if (p + 20 > end)
			return;
		lw_put_ipv4(p, &now->src_ip[12], &now->dst_ip[12], now->tos, now->ttl, sum);
	} else if (at->has & LW_HAS_IPV6) {
		if (p + 40 > end)
			return;
		lw_put_ipv6(p, now->src_ip, now->dst_ip, now->tos, now->ttl);
	} else {
		return;
	}
	lw_write_l4(data, end, at, now, sum);
}

LW_INLINE void lw_swap(__u8 *a, __u8 *b, int bytes)
{
#pragma clang loop unroll(full)
	for (int i = 0; i < bytes; i++) {
		__u8 kept = a[i];

		a[i] = b[i];
		b[i] = kept;
	}
}

/* Exchanges IP addresses and ports; no sum changes by that. */
LW_INLINE void lw_swap_addresses(__u8 *data, const __u8 *end, const struct lw_places *at)
{
	__u32 off = at->l3;
	__u8 *p;

	if (off > 22)
		return;
	p = data + off;
	if (at->has & LW_HAS_IPV4) {
		if (p + 20 > end)
			return;
		lw_swap(p + 12, p + 16, 4);
	} else if (at->has & LW_HAS_IPV6) {
		if (p + 40 > end)
			return;
		lw_swap(p + 8, p + 24, 16);
	} else {
		return;
	}
	off = at->l4;
	if (!(at->has & (LW_HAS_TCP | LW_HAS_UDP)) || off > LW_HEADERS_MAX - 8)
		return;
	p = data + off;
	if (p + 8 <= end)
		lw_swap(p, p + 2, 2);
}

/* True if the IPv4 header, options included, sums up. */
LW_INLINE int lw_ipv4_checksum_fits(const __u8 *data, const __u8 *end, __u32 off)
{
	const __u8 *p = data + off;
	__u32 sum = 0, ihl;

	if (off > 22 || p + 20 > end)
		return 0;
	ihl = (p[0] & 0x0f) * 4;
#pragma clang loop unroll(full)
	for (int i = 0; i < 20; i += 2)
		sum += lw_be16(p + i);
	for (__u32 i = 20; i < 60; i += 4) {
		if (i >= ihl)
			break;
		if (p + i + 4 > end)
			return 0;
		sum += lw_be16(p + i);
		sum += lw_be16(p + i + 2);
	}
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

#endif
