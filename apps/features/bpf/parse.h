/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frame -> record. Compiled for eBPF and, as the tests' referee, for the host; `src/parse.rs` is an
 * independent implementation in Rust, and all three must agree on every byte of every record.
 *
 * Lengths are believed in this order: what was captured bounds every read; the IP length bounds
 * layer 4, so that Ethernet padding is never taken for a header or payload. Where the IP header
 * states no length (0: segmentation offload, jumbograms) or more than the frame has, the record's
 * ip_len is what the frame has.
 *
 * lw_parse() expects a zeroed record with ts_ns, seq_no, frame_len, cap_len, rx_queue and ifindex
 * filled in.
 */
#ifndef LANEWAY_FEATURES_PARSE_H
#define LANEWAY_FEATURES_PARSE_H

#include <laneway/headers.h>

#include "record.h"

#define LW_TCP_OPTIONS_MAX 40

struct lw_option_walk {
	__u8 opt[64]; /* 40 are read; the rest lets the masked index run past the last option */
	__u32 at;
	__u32 len;
	__u16 mss;
	__u16 has;
	__u8 wscale;
};

static long lw_option_step(__u32 i, void *state)
{
	struct lw_option_walk *w = state;
	__u32 at = w->at;
	__u8 kind, size;

	if (at >= w->len || at >= LW_TCP_OPTIONS_MAX)
		return 1;
	kind = w->opt[at & 63];
	if (kind == 0)
		return 1;
	if (kind == 1) {
		w->at = at + 1;
		return 0;
	}
	size = w->opt[(at + 1) & 63];
	if (at + 1 >= w->len || size < 2 || size > w->len - at) {
		w->has |= LW_HAS_BAD_TCP_OPTIONS;
		return 1;
	}
	if (kind == 2 && size == 4) {
		w->mss = (__u16)(w->opt[(at + 2) & 63] << 8 | w->opt[(at + 3) & 63]);
		w->has |= LW_HAS_MSS;
	} else if (kind == 3 && size == 3) {
		w->wscale = w->opt[(at + 2) & 63];
		w->has |= LW_HAS_WSCALE;
	}
	w->at = at + size;
	return 0;
}

/* MSS and window scale from the options of a SYN. */
LW_INLINE void lw_parse_syn_options(const struct lw_view *view, __u32 off, __u32 len,
				    struct lw_record *r)
{
	struct lw_option_walk w = { .len = len };

	/*
	 * len is a multiple of 4 from 0 to 40 here. The upper bound is for the verifier, and so is the
	 * form of the lower one: it takes no length that may be 0, and on Linux 6.1 it does not conclude
	 * from `len != 0` that it is more.
	 */
	if (len > LW_TCP_OPTIONS_MAX)
		return;
	LW_FORGET(len);
	if (len < 4)
		return;
	if (lw_load(view, off, w.opt, len) < 0) {
		r->has |= LW_HAS_BAD_TCP_OPTIONS;
		return;
	}
	LW_LOOP(LW_TCP_OPTIONS_MAX, lw_option_step, &w);
	r->tcp_mss = w.mss;
	r->tcp_wscale = w.wscale;
	r->has |= w.has;
}

/*
 * The ports of a layer-4 header that is not whole, by its packet's length (a short first fragment)
 * or by the capture's: they stand in its first four bytes.
 */
LW_INLINE void lw_parse_ports(const struct lw_view *view, __u32 off, __u32 avail,
			      struct lw_record *r)
{
	__u8 h[4] = {};

	if (r->proto != 6 && r->proto != 17 && r->proto != 132)
		return;
	if (avail < 4 || lw_load(view, off, h, 4) < 0)
		return;
	r->src_port = lw_be16(h);
	r->dst_port = lw_be16(h + 2);
	r->has |= LW_HAS_PORTS;
}

/* Layer 4 at `off`; the IP packet has `avail` bytes for it. */
LW_INLINE __u8 lw_parse_l4(const struct lw_view *view, __u32 off, __u32 avail,
			   struct lw_record *r)
{
	__u8 h[20] = {};
	__u32 need;

	switch (r->proto) {
	case 6:
		need = 20;
		break;
	case 17:
		need = 8;
		break;
	case 132:
		need = 12;
		break;
	case 1:
		if (!(r->has & LW_HAS_IPV4))
			return LW_L4_UNKNOWN;
		need = 8;
		break;
	case 58:
		if (!(r->has & LW_HAS_IPV6))
			return LW_L4_UNKNOWN;
		need = 8;
		break;
	default:
		return LW_L4_UNKNOWN;
	}
	if (avail < need) {
		lw_parse_ports(view, off, avail, r);
		return LW_L4_BAD_LENGTH;
	}

	/* Straight from the linear part where it reaches; the helper for the rest. */
	if (off <= 4096 && view->data + off + 20 <= view->end) {
		const __u8 *p = view->data + off;

		__builtin_memcpy(h, p, 20);
	} else {
		long bad;

		if (r->proto == 6)
			bad = lw_load(view, off, h, 20);
		else if (r->proto == 132)
			bad = lw_load(view, off, h, 12);
		else
			bad = lw_load(view, off, h, 8);
		if (bad < 0) {
			lw_parse_ports(view, off, avail, r);
			return LW_L4_TRUNCATED;
		}
	}

	if (r->proto == 1 || r->proto == 58) {
		r->icmp_type = h[0];
		r->icmp_code = h[1];
		r->l4_hdr_len = 8;
		r->has |= LW_HAS_ICMP;
		return LW_OK;
	}

	r->src_port = lw_be16(h);
	r->dst_port = lw_be16(h + 2);
	r->has |= LW_HAS_PORTS;
	if (r->proto != 6) {
		r->l4_hdr_len = (__u8)need;
		return LW_OK;
	}

	need = (h[12] >> 4) * 4;
	if (need < 20 || need > avail) {
		/* Ports are as sure as ever; the rest of a header this wrong is not. */
		return LW_L4_BAD_LENGTH;
	}
	r->tcp_seq = lw_be32(h + 4);
	r->tcp_ack = lw_be32(h + 8);
	r->tcp_flags = (__u16)((h[12] & 0x01) << 8 | h[13]);
	r->tcp_win = lw_be16(h + 14);
	r->l4_hdr_len = (__u8)need;
	r->has |= LW_HAS_TCP;
	if (off + need > view->len)
		return LW_L4_TRUNCATED;
	if (r->tcp_flags & 0x02)
		lw_parse_syn_options(view, off + 20, need - 20, r);
	return LW_OK;
}

/* Where layer 4 starts and how many bytes the IP packet has for it. */
struct lw_l4 {
	__u32 off;
	__u32 avail;
};

/* What the layer-3 parsers return when layer 4 is next. */
#define LW_GO_ON LW_STATUS_COUNT

LW_INLINE __u8 lw_parse_ipv4(const struct lw_view *view, __u32 off, struct lw_record *r,
			     struct lw_l4 *l4)
{
	const __u8 *p = view->data + off;
	__u32 wire = r->frame_len > off ? r->frame_len - off : 0;
	__u32 ihl, total, len;
	__u16 odd = 0;

	if (p + 20 > view->end)
		return LW_L3_TRUNCATED;
	if (p[0] >> 4 != 4)
		return LW_L3_BAD_VERSION;
	ihl = (p[0] & 0x0f) * 4;
	total = len = lw_be16(p + 2);
	if (!total) {
		odd = LW_HAS_LEN_UNSTATED;
		total = len = wire;
	} else if (total > wire) {
		odd = LW_HAS_LEN_BEYOND;
		len = wire;
	}
	if (ihl < 20 || total < ihl)
		return LW_L3_BAD_LENGTH;
	if (off + ihl > view->len)
		return LW_L3_TRUNCATED;

	r->has |= LW_HAS_IPV4 | odd;
	r->tos = p[1];
	r->ip_len = (__u16)len;
	r->ip_id = lw_be16(p + 4);
	r->frag = lw_be16(p + 6);
	r->ttl = p[8];
	r->proto = p[9];
	r->src_ip[10] = r->src_ip[11] = 0xff;
	r->dst_ip[10] = r->dst_ip[11] = 0xff;
	__builtin_memcpy(&r->src_ip[12], p + 12, 4);
	__builtin_memcpy(&r->dst_ip[12], p + 16, 4);
	r->l3_hdr_len = (__u16)ihl;
	if (ihl > 20)
		r->has |= LW_HAS_IP_OPTIONS;
	if (r->frag & 0x3fff)
		r->has |= LW_HAS_FRAG;
	if (r->frag & 0x1fff)
		return LW_FRAGMENT;
	l4->off = off + ihl;
	l4->avail = total - ihl;
	return LW_GO_ON;
}

struct lw_ext_walk {
	const struct lw_view *view;
	__u32 off;   /* of the next extension header */
	__u32 avail; /* bytes the IP packet has from there on */
	__u32 bytes; /* extension headers so far */
	__u16 frag;
	__u16 ip_id;
	__u8 next;
	__u8 has_frag;
	__u8 status;
};

static long lw_ext_step(__u32 i, void *state)
{
	struct lw_ext_walk *w = state;
	__u8 h[8] = {};
	__u32 size;

	if (!lw_is_extension(w->next)) {
		w->status = LW_GO_ON;
		return 1;
	}
	if (i == LW_EXTENSIONS_MAX)
		return 1;
	if (w->avail < 8) {
		w->status = LW_L3_BAD_LENGTH;
		return 1;
	}
	if (lw_load(w->view, w->off, h, 8) < 0) {
		w->status = LW_L3_TRUNCATED;
		return 1;
	}
	size = lw_extension_bytes(w->next, h[1]);
	if (size > w->avail) {
		w->status = LW_L3_BAD_LENGTH;
		return 1;
	}
	w->off += size;
	w->avail -= size;
	w->bytes += size;
	if (w->next == LW_FRAGMENT_HEADER) {
		w->has_frag = 1;
		w->frag = lw_fragment_word(h);
		w->ip_id = lw_be16(h + 6);
	}
	w->next = h[0];
	if (w->frag & 0x1fff) {
		w->status = LW_FRAGMENT;
		return 1;
	}
	return 0;
}

LW_INLINE __u8 lw_parse_ipv6(const struct lw_view *view, __u32 off, struct lw_record *r,
			     struct lw_l4 *l4)
{
	const __u8 *p = view->data + off;
	__u32 wire = r->frame_len > off + 40 ? r->frame_len - off - 40 : 0;
	__u32 payload;

	if (p + 40 > view->end)
		return LW_L3_TRUNCATED;
	if (p[0] >> 4 != 6)
		return LW_L3_BAD_VERSION;
	r->has |= LW_HAS_IPV6;
	r->tos = (__u8)(p[0] << 4 | p[1] >> 4);
	payload = lw_be16(p + 4);
	r->ip_len = (__u16)payload;
	if (!payload && p[6] != 59) { /* 59: no next header, a packet that ends here */
		r->has |= LW_HAS_LEN_UNSTATED;
		payload = wire;
		r->ip_len = (__u16)wire;
	} else if (payload > wire) {
		r->has |= LW_HAS_LEN_BEYOND;
		r->ip_len = (__u16)wire;
	}
	r->ttl = p[7];
	__builtin_memcpy(r->src_ip, p + 8, 16);
	__builtin_memcpy(r->dst_ip, p + 24, 16);
	r->proto = p[6];
	r->l3_hdr_len = 40;
	l4->off = off + 40;
	l4->avail = payload;
	if (r->proto != 6 && r->proto != 17 && r->proto != 58) {
		struct lw_ext_walk w = {
			.view = view,
			.off = l4->off,
			.avail = l4->avail,
			.next = r->proto,
			.status = LW_L3_EXT_LIMIT,
		};

		LW_LOOP(LW_EXTENSIONS_MAX + 1, lw_ext_step, &w);
		r->proto = w.next;
		r->l3_hdr_len = (__u16)(40 + w.bytes);
		r->frag = w.frag;
		r->ip_id = w.ip_id;
		if (w.bytes)
			r->has |= LW_HAS_IP_OPTIONS;
		if (w.has_frag)
			r->has |= LW_HAS_FRAG;
		l4->off = w.off;
		l4->avail = w.avail;
		return w.status;
	}
	return LW_GO_ON;
}

LW_INLINE void lw_parse(const struct lw_view *view, struct lw_record *r)
{
	const __u8 *p = view->data;
	struct lw_l4 l4 = {};
	__u32 off = LW_ETH_BYTES;

	if (p + LW_ETH_BYTES > view->end) {
		r->status = LW_L2_TRUNCATED;
		return;
	}
	r->eth_type = lw_be16(p + 12);
	if (lw_is_vlan(r->eth_type)) {
		if (p + off + 4 > view->end) {
			r->status = LW_L2_TRUNCATED;
			return;
		}
		r->vlan_tci = lw_be16(p + off);
		r->eth_type = lw_be16(p + off + 2);
		r->has |= LW_HAS_VLAN;
		off += 4;
		if (lw_is_vlan(r->eth_type)) {
			if (p + off + 4 > view->end) {
				r->status = LW_L2_TRUNCATED;
				return;
			}
			r->vlan_tci2 = lw_be16(p + off);
			r->eth_type = lw_be16(p + off + 2);
			r->has |= LW_HAS_VLAN2;
			off += 4;
		}
	}
	if (r->eth_type == 0x0800)
		r->status = lw_parse_ipv4(view, off, r, &l4);
	else if (r->eth_type == 0x86dd)
		r->status = lw_parse_ipv6(view, off, r, &l4);
	else
		r->status = LW_L3_UNKNOWN;
	if (r->status == LW_GO_ON)
		r->status = lw_parse_l4(view, l4.off, l4.avail, r);
}

#endif
