/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frame -> fields: which headers it has, where they start, what stands in them. Included by forward.h, behind the
 * types.
 */
#ifndef LANEWAY_FORWARD_PARSE_H
#define LANEWAY_FORWARD_PARSE_H

/* Layer 4 at `off`, of which the IP packet has `avail` bytes and the looked-at part ends at `limit`. */
LW_INLINE void lw_parse_l4(const struct lw_view *view, __u32 off, __u32 avail, __u32 limit,
			   int is_v4, struct lw_fields *f, struct lw_places *at)
{
	const __u8 *p;
	__u32 room;

	if (off >= limit)
		return;
	room = limit - off;
	if (room > avail)
		room = avail;
	if (room < 8 || off > LW_HEADERS_MAX - 8)
		return;
	p = view->data + off;
	if (p + 8 > view->end)
		return;
	if (f->proto == 17) {
		at->has |= LW_HAS_UDP;
		__builtin_memcpy(f->src_port, p, 2);
		__builtin_memcpy(f->dst_port, p + 2, 2);
		if (room < 16 || lw_be16(p + 2) != LW_VXLAN_PORT || p + 16 > view->end)
			return;
		if (p[8] & 0x08) {
			at->has |= LW_HAS_VXLAN;
			__builtin_memcpy(f->vni, p + 12, 3);
		}
	} else if (f->proto == 6) {
		if (room < 20 || p + 20 > view->end || p[12] >> 4 < 5)
			return;
		at->has |= LW_HAS_TCP;
		__builtin_memcpy(f->src_port, p, 2);
		__builtin_memcpy(f->dst_port, p + 2, 2);
		f->tcp_flags = p[13];
	} else if (f->proto == (is_v4 ? 1 : 58)) {
		at->has |= is_v4 ? LW_HAS_ICMP : LW_HAS_ICMP6;
		f->icmp_type = p[0];
		f->icmp_code = p[1];
	}
}

LW_INLINE void lw_parse_ipv4(const struct lw_view *view, __u32 limit, struct lw_fields *f,
			     struct lw_places *at)
{
	__u32 off = at->l3, ihl, total;
	const __u8 *p;

	/* After two tags at most, so the sum is small. */
	if (off > 22 || off + 20 > limit)
		return;
	p = view->data + off;
	if (p + 20 > view->end || p[0] >> 4 != 4)
		return;
	ihl = (p[0] & 0x0f) * 4;
	total = lw_be16(p + 2);
	if (ihl < 20 || total < ihl || off + ihl > limit)
		return;
	at->has |= LW_HAS_IPV4;
	at->l4 = off + ihl;
	f->src_ip[10] = f->src_ip[11] = 0xff;
	f->dst_ip[10] = f->dst_ip[11] = 0xff;
	__builtin_memcpy(&f->src_ip[12], p + 12, 4);
	__builtin_memcpy(&f->dst_ip[12], p + 16, 4);
	f->proto = p[9];
	f->ttl = p[8];
	f->tos = p[1];
	f->fragment[0] = p[6];
	f->fragment[1] = p[7];
	if ((lw_be16(p + 6) & 0x1fff) == 0)
		lw_parse_l4(view, off + ihl, total - ihl, limit, 1, f, at);
}

struct lw_ext_walk {
	const struct lw_view *view;
	__u32 off;   /* of the next extension header */
	__u32 avail; /* bytes the IP packet has from there on */
	__u32 limit;
	__u8 next;
	__u8 is_done; /* layer 4 is next */
};

static long lw_ext_step(__u32 i, void *state)
{
	struct lw_ext_walk *w = state;
	__u8 h[8] = {};
	__u32 size;

	if (!lw_is_extension(w->next)) {
		w->is_done = 1;
		return 1;
	}
	if (i == LW_EXTENSIONS_MAX || w->avail < 8 || w->off > LW_HEADERS_MAX ||
	    w->off + 8 > w->limit || lw_load(w->view, w->off, h, 8) < 0)
		return 1;
	size = lw_extension_bytes(w->next, h[1]);
	if (size > w->avail)
		return 1;
	w->off += size;
	w->avail -= size;
	if (w->next == LW_FRAGMENT_HEADER && lw_be16(h + 2) >> 3) {
		w->next = h[0];
		return 1;
	}
	w->next = h[0];
	return 0;
}

LW_INLINE void lw_parse_ipv6(const struct lw_view *view, __u32 limit, struct lw_fields *f,
			     struct lw_places *at)
{
	__u32 off = at->l3, avail;
	const __u8 *p;

	if (off > 22 || off + 40 > limit)
		return;
	p = view->data + off;
	if (p + 40 > view->end || p[0] >> 4 != 6)
		return;
	at->has |= LW_HAS_IPV6;
	__builtin_memcpy(f->src_ip, p + 8, 16);
	__builtin_memcpy(f->dst_ip, p + 24, 16);
	f->proto = p[6];
	f->ttl = p[7];
	f->tos = (__u8)(p[0] << 4 | p[1] >> 4);
	avail = lw_be16(p + 4);
	off += 40;
	if (lw_is_extension(f->proto)) {
		struct lw_ext_walk w = {
			.view = view, .off = off, .avail = avail, .limit = limit, .next = f->proto,
		};

		LW_LOOP(LW_EXTENSIONS_MAX + 1, lw_ext_step, &w);
		f->proto = w.next;
		if (!w.is_done)
			return;
		off = w.off;
		avail = w.avail;
	}
	at->l4 = off;
	lw_parse_l4(view, off, avail, limit, 0, f, at);
}

/* `f` and `at` are zeroed. */
LW_PART void lw_parse(const struct lw_view *view, struct lw_fields *f, struct lw_places *at)
{
	const __u8 *p = view->data;
	__u32 limit = view->len < LW_HEADERS_MAX ? view->len : LW_HEADERS_MAX;
	__u32 off = LW_ETH_BYTES;
	__u16 kind;

	if (p + LW_ETH_BYTES > view->end)
		return;
	at->has |= LW_HAS_ETH;
	__builtin_memcpy(f->eth_dst, p, 6);
	__builtin_memcpy(f->eth_src, p + 6, 6);
	kind = lw_be16(p + 12);
	if (lw_is_vlan(kind) && p + 18 <= view->end) {
		at->has |= LW_HAS_VLAN;
		__builtin_memcpy(f->vlan_tci, p + 14, 2);
		kind = lw_be16(p + 16);
		off = 18;
		if (lw_is_vlan(kind) && p + 22 <= view->end) {
			at->has |= LW_HAS_VLAN2;
			__builtin_memcpy(f->vlan_tci2, p + 18, 2);
			kind = lw_be16(p + 20);
			off = 22;
		}
	}
	f->eth_type[0] = (__u8)(kind >> 8);
	f->eth_type[1] = (__u8)kind;
	at->l3 = off;
	if (kind == 0x0800)
		lw_parse_ipv4(view, limit, f, at);
	else if (kind == 0x86dd)
		lw_parse_ipv6(view, limit, f, at);
	f->has[0] = (__u8)(at->has >> 8);
	f->has[1] = (__u8)at->has;
}

#endif
