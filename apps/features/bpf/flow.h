/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Records -> flows: the accumulators and the rules that both placements share. Compiled for eBPF
 * and, as the tests' referee, for the host; `crates/flow` is the independent implementation in
 * Rust, and all integers must agree.
 *
 * Everything is an integer. Means and deviations are computed once, in user space, from n, sum and
 * sum of squares, by one function for both placements. Squares of times take two words: a deviation
 * is a small difference of large numbers, so squares of times rounded to us would make it wrong by
 * more than itself (even frames 1 ms apart: by 32 us), and squares of ns do not fit one word.
 *
 * Flows live by flow time, which lw_clock_tick() makes of a frame's stamp. Time within a flow never
 * runs backwards: a frame before its predecessor counts at its predecessor's time.
 */
#ifndef LANEWAY_FEATURES_FLOW_H
#define LANEWAY_FEATURES_FLOW_H

#include <laneway/bytes.h>

#include "record.h"

#define LW_TCP_FIN 0x001
#define LW_TCP_SYN 0x002
#define LW_TCP_RST 0x004
#define LW_TCP_ACK 0x010
#define LW_TCP_FLAGS 9 /* FIN SYN RST PSH ACK URG ECE CWR AE, in bit order */
#define LW_HIST_BINS 8

/* IPFIX flowEndReason (RFC 5102, 5.11.3). */
enum lw_end {
	LW_END_NONE = 0,
	LW_END_IDLE = 1,
	LW_END_ACTIVE = 2,
	LW_END_SEEN = 3,   /* RST, or FIN from both sides */
	LW_END_FORCED = 4, /* the run ended */
	LW_END_RESOURCES = 5,
};

/* The two ends in the order of their bytes, so that both directions have one key. */
struct lw_flow_key {
	__u8 ip_lo[16];
	__u8 ip_hi[16];
	__u16 port_lo;
	__u16 port_hi;
	__u16 vlan; /* outer VLAN id, 0 without a tag */
	__u8 proto;
	__u8 version; /* 4 or 6 */
	__u16 vlan2; /* inner VLAN id, 0 without a second tag */
	__u8 unused[6]; /* zero: all bytes of a key are compared */
};

/* The clock of flows; `crates/flow/src/clock.rs` says what it is for. Zeroed before the first frame. */
struct lw_clock {
	__u64 now_ns;
	__u64 offset_ns;       /* from stamps to flow time */
	__u64 other_offset_ns; /* the offset before the last step back */
	__u64 suspect_ns;      /* the last stamp, where it was out of order; valid with the flag */
	__u32 stamps;          /* stamps seen, up to 2 */
	__u32 has_suspect;
};

#define LW_CLOCK_AHEAD_NS 1000000000ull
#define LW_CLOCK_BEHIND_NS 2000000000ull

struct lw_span { /* a running minimum, maximum and sum; min is only valid with n > 0 */
	__u64 n;
	__u64 sum;
	__u64 min;
	__u64 max;
};

struct lw_square { /* a sum of squares: hi * 2^64 + lo */
	__u64 lo;
	__u64 hi;
};

struct lw_flow_side {
	__u64 pkts;
	__u64 bytes;         /* frame_len */
	__u64 ip_bytes;      /* IP header and payload, see lw_ip_bytes() */
	__u64 l4_bytes;      /* IP payload: layer-4 header and payload */
	__u64 payload_bytes; /* behind the layer-4 header */
	__u64 hdr_bytes;     /* IP and layer-4 headers */
	__u64 data_pkts;     /* with payload */
	__u64 len_sq;        /* sum of frame_len squared; wraps only for lengths no link has */
	__u64 payload_sq;
	struct lw_span iat;  /* ns between frames of this side */
	struct lw_square iat_sq; /* ns^2 */
	__u64 last_ns;       /* time of the last frame of this side */
	__u64 bulk_n;        /* runs of 4 or more data frames, each at most 1 s after the last */
	__u64 bulk_pkts;
	__u64 bulk_bytes;
	__u64 bulk_ns;
	__u64 run_start_ns;  /* the run of data frames now open */
	__u64 run_last_ns;
	__u64 run_bytes;
	__u32 run_pkts;
	__u32 len_min;
	__u32 len_max;
	__u32 payload_min;
	__u32 payload_max;
	__u32 flags[LW_TCP_FLAGS];
	__u32 retrans_pkts;  /* with sequence space, ending at or before the highest end seen, or
				starting before it */
	__u32 ahead_pkts;    /* starting beyond the highest end seen: something before is missing */
	__u32 dup_ack_pkts;
	__u32 zero_win_pkts;
	__u32 seq_end;       /* highest end of sequence space seen; valid with state bit */
	__u32 last_ack;
	__u32 len_hist[LW_HIST_BINS]; /* < 64, < 128, < 256, < 512, < 1024, < 1519, < 4096, rest */
	__u32 iat_hist[LW_HIST_BINS]; /* < 10us, < 100us, < 1ms, < 10ms, < 100ms, < 1s, < 10s, rest */
	__u16 win_first;
	__u16 win_last;
	__u16 win_min;
	__u16 win_max;
	__u16 mss;
	__u8 ttl_first;
	__u8 ttl_last;
	__u8 ttl_min;
	__u8 ttl_max;
	__u8 wscale;
	__u8 state; /* LW_SIDE_* */
};

#define LW_SIDE_SEQ 0x01  /* seq_end is valid */
#define LW_SIDE_ACK 0x02  /* last_ack and win_last are valid */
#define LW_SIDE_WIN 0x04  /* win_first..win_max are valid */
#define LW_SIDE_FIN 0x08
#define LW_SIDE_MSS 0x10
#define LW_SIDE_WSCALE 0x20
#define LW_SIDE_SYN 0x40     /* it sent a SYN without ACK */
#define LW_SIDE_SYN_ACK 0x80 /* it sent a SYN with ACK */

struct lw_flow {
	__u64 first_ns;   /* flow time, as are all times but the stamps */
	__u64 last_ns;
	__u64 syn_ns;     /* last SYN without ACK before the SYN+ACK; 0: none */
	__u64 syn_ack_ns; /* first SYN+ACK after it, from the other side */
	__u64 ack_ns;     /* first ACK after that, from the SYN's side */
	__u64 subflows;   /* gaps over 1 s, plus 1 */
	__u64 active_since_ns;
	struct lw_square iat_sq; /* ns^2, as are the next two */
	struct lw_square active_sq;
	struct lw_square idle_sq;
	struct lw_span iat;    /* ns between frames of either side */
	struct lw_span active; /* ns of stretches without a gap over 5 s, the last one still open */
	struct lw_span idle;   /* ns of gaps over 5 s */
	struct lw_flow_side side[2]; /* 0 forward: the sender of the first frame */
	__u8 fwd_is_lo;
	__u8 state; /* LW_FLOW_* */
	__u8 end;   /* enum lw_end */
	__u8 syn_side;
	__u32 len_odd_pkts; /* frames whose IP length is not the header's: LEN_UNSTATED, LEN_BEYOND */
	__u64 first_stamp_ns; /* what the first frame was stamped */
	__u64 last_stamp_ns;  /* what the frame of last_ns was stamped */
};

#define LW_FLOW_RST 0x01
#define LW_FLOW_NO_TIME 0x02 /* a frame without a time is in it: the stamps say nothing */

/* What a kernel half hands over when a flow ends. */
struct lw_flow_record {
	struct lw_flow_key key;
	struct lw_flow flow;
};

struct lw_flow_limits {
	__u64 idle_ns;
	__u64 active_ns;
	__u64 end_ns; /* how long a flow whose end was seen lingers; 0: ends are not looked at */
};

#define LW_GAP_SUBFLOW_NS 1000000000ull
#define LW_GAP_ACTIVE_NS 5000000000ull
#define LW_BULK_PKTS_MIN 4

/* True if the record belongs to a flow: its IP header was understood. */
LW_INLINE int lw_flow_eligible(const struct lw_record *r)
{
	return (r->has & (LW_HAS_IPV4 | LW_HAS_IPV6)) != 0;
}

/* Fills the key; returns 1 if the record's source is the low end. */
LW_INLINE __u8 lw_flow_key_of(const struct lw_record *r, struct lw_flow_key *key)
{
	int order = 0;
	__u8 src_is_lo;

	for (int i = 0; i < 16; i++)
		if (!order && r->src_ip[i] != r->dst_ip[i])
			order = r->src_ip[i] < r->dst_ip[i] ? -1 : 1;
	if (!order && r->src_port != r->dst_port)
		order = r->src_port < r->dst_port ? -1 : 1;
	src_is_lo = order <= 0;
	__builtin_memcpy(key->ip_lo, src_is_lo ? r->src_ip : r->dst_ip, 16);
	__builtin_memcpy(key->ip_hi, src_is_lo ? r->dst_ip : r->src_ip, 16);
	key->port_lo = src_is_lo ? r->src_port : r->dst_port;
	key->port_hi = src_is_lo ? r->dst_port : r->src_port;
	key->vlan = r->has & LW_HAS_VLAN ? r->vlan_tci & 0x0fff : 0;
	key->proto = r->proto;
	key->version = r->has & LW_HAS_IPV4 ? 4 : 6;
	key->vlan2 = r->has & LW_HAS_VLAN2 ? r->vlan_tci2 & 0x0fff : 0;
	return src_is_lo;
}

LW_INLINE __u64 lw_sum(__u64 a, __u64 b)
{
	return a + b < a ? ~0ull : a + b;
}

LW_INLINE int lw_clock_is_ahead(const struct lw_clock *c, __u64 time)
{
	return time > lw_sum(c->now_ns, LW_CLOCK_AHEAD_NS);
}

LW_INLINE int lw_clock_is_behind(const struct lw_clock *c, __u64 time)
{
	return c->now_ns > LW_CLOCK_BEHIND_NS && time < c->now_ns - LW_CLOCK_BEHIND_NS;
}

LW_INLINE int lw_clock_is_out(const struct lw_clock *c, __u64 time)
{
	return lw_clock_is_ahead(c, time) || lw_clock_is_behind(c, time);
}

/* Takes `time` for the clock's, unless it is ahead of it. */
LW_INLINE void lw_clock_follow(struct lw_clock *c, __u64 stamp, __u64 time)
{
	c->suspect_ns = stamp;
	c->has_suspect = lw_clock_is_ahead(c, time);
	if (!c->has_suspect && time > c->now_ns)
		c->now_ns = time;
}

/* The flow time of the next record. */
LW_INLINE __u64 lw_clock_tick(struct lw_clock *c, const struct lw_record *r)
{
	__u64 stamp = r->ts_ns, time, other, before;

	if (r->has & LW_HAS_NO_TIME)
		return c->now_ns;
	if (c->stamps < 2) {
		c->stamps++;
		if (c->stamps == 1) {
			c->now_ns = stamp;
		} else if (lw_clock_is_behind(c, stamp)) {
			/* The first stamp is no better than the second. */
			c->suspect_ns = c->now_ns;
			c->has_suspect = 1;
			c->now_ns = stamp;
			return stamp;
		}
	}
	time = lw_sum(stamp, c->offset_ns);
	other = lw_sum(stamp, c->other_offset_ns);
	if (lw_clock_is_out(c, time) && !lw_clock_is_out(c, other))
		time = other;
	before = lw_sum(c->suspect_ns, c->offset_ns);
	if (!lw_clock_is_behind(c, time)) {
		/* Two in a row are ahead: the earlier of both is confirmed. */
		if (c->has_suspect && lw_clock_is_ahead(c, before) && lw_clock_is_ahead(c, time))
			c->now_ns = before < time ? before : time;
		lw_clock_follow(c, stamp, time);
		return time;
	}
	if (c->has_suspect && lw_clock_is_behind(c, before) &&
	    lw_sum(stamp, LW_CLOCK_AHEAD_NS) >= c->suspect_ns) {
		/* Two in a row are behind: the stamps have stepped back, time goes on. */
		c->other_offset_ns = c->offset_ns;
		c->offset_ns = c->now_ns - c->suspect_ns;
		time = lw_sum(stamp, c->offset_ns);
		lw_clock_follow(c, stamp, time);
		return time;
	}
	c->suspect_ns = stamp;
	c->has_suspect = 1;
	return c->now_ns;
}

/*
 * Bytes of the IP packet, header included. A packet whose length is not stated may exceed 16 bits,
 * but it ends with the frame and begins less than 64 KiB behind its start: the low bits tell.
 */
LW_INLINE __u32 lw_ip_bytes(const struct lw_record *r)
{
	__u32 bytes = (r->has & LW_HAS_IPV4 ? 0 : 40) + r->ip_len;
	__u32 before;

	if (!(r->has & LW_HAS_LEN_UNSTATED))
		return bytes;
	before = (r->frame_len - bytes) & 0xffff;
	return r->frame_len > before ? r->frame_len - before : 0;
}

LW_INLINE int lw_flow_end_seen(const struct lw_flow *f)
{
	return f->state & LW_FLOW_RST ||
	       (f->side[0].state & LW_SIDE_FIN && f->side[1].state & LW_SIDE_FIN);
}

/*
 * Whether the flow had ended before this record arrived (the record then starts another one), and why.
 * `r` may be NULL: has it ended by `now_ns`?
 *
 * `now_ns` is the record's flow time, or without a record the clock's floor, before which no later
 * frame's flow time is. end_ns is at most idle_ns. So it makes no difference whether a quiet flow is
 * found by its next frame, by a scan or at the end of the run.
 */
LW_INLINE __u8 lw_flow_ended(const struct lw_flow *f, const struct lw_flow_limits *limits,
			     const struct lw_record *r, __u64 now_ns)
{
	__u64 quiet = now_ns > f->last_ns ? now_ns - f->last_ns : 0;
	__u64 age = now_ns > f->first_ns ? now_ns - f->first_ns : 0;

	if (limits->end_ns && lw_flow_end_seen(f)) {
		if (quiet >= limits->end_ns)
			return LW_END_SEEN;
		/* The ports are used again: a new connection, not a tail of the old one. */
		if (r && r->has & LW_HAS_TCP &&
		    (r->tcp_flags & (LW_TCP_SYN | LW_TCP_ACK)) == LW_TCP_SYN)
			return LW_END_SEEN;
	}
	if (quiet >= limits->idle_ns)
		return LW_END_IDLE;
	if (age >= limits->active_ns)
		return LW_END_ACTIVE;
	/* Its last frame was stamped far ahead, and that proves wrong. */
	if (r && f->last_ns >= lw_sum(lw_sum(now_ns, limits->idle_ns), LW_CLOCK_BEHIND_NS))
		return LW_END_IDLE;
	return LW_END_NONE;
}

LW_INLINE void lw_span_add(struct lw_span *s, __u64 value)
{
	s->sum += value;
	if (!s->n || value < s->min)
		s->min = value;
	if (value > s->max)
		s->max = value;
	s->n++;
}

LW_INLINE void lw_square_add(struct lw_square *q, __u64 x)
{
	__u64 a = x >> 32, b = x & 0xffffffff, cross = a * b;
	__u64 lo = b * b, hi = a * a + (cross >> 31);

	cross <<= 33;
	lo += cross;
	hi += lo < cross;
	q->lo += lo;
	q->hi += hi + (q->lo < lo);
}

LW_INLINE __u32 lw_len_bin(__u32 len)
{
	return len < 64 ? 0 : len < 128 ? 1 : len < 256 ? 2 : len < 512 ? 3 : len < 1024 ? 4 :
	       len < 1519 ? 5 : len < 4096 ? 6 : 7;
}

LW_INLINE __u32 lw_iat_bin(__u64 ns)
{
	return ns < 10000ull ? 0 : ns < 100000ull ? 1 : ns < 1000000ull ? 2 :
	       ns < 10000000ull ? 3 : ns < 100000000ull ? 4 : ns < 1000000000ull ? 5 :
	       ns < 10000000000ull ? 6 : 7;
}

/* Closes the run of data frames and books it if it was a bulk. Called on a gap and at the end. */
LW_INLINE void lw_side_close_run(struct lw_flow_side *s)
{
	if (s->run_pkts >= LW_BULK_PKTS_MIN) {
		s->bulk_n++;
		s->bulk_pkts += s->run_pkts;
		s->bulk_bytes += s->run_bytes;
		s->bulk_ns += s->run_last_ns - s->run_start_ns;
	}
	s->run_pkts = 0;
	s->run_bytes = 0;
}

LW_INLINE void lw_side_add_tcp(struct lw_flow_side *s, const struct lw_record *r, __u32 payload)
{
	__u32 space = payload + !!(r->tcp_flags & LW_TCP_SYN) + !!(r->tcp_flags & LW_TCP_FIN);
	__u32 end = r->tcp_seq + space;

	for (int i = 0; i < LW_TCP_FLAGS; i++)
		s->flags[i] += r->tcp_flags >> i & 1;

	if (space && !(r->tcp_flags & LW_TCP_RST)) {
		if (!(s->state & LW_SIDE_SEQ)) {
			s->seq_end = end;
			s->state |= LW_SIDE_SEQ;
		} else {
			__s32 start_ahead = (__s32)(r->tcp_seq - s->seq_end);

			if (start_ahead < 0)
				s->retrans_pkts++;
			else if (start_ahead > 0)
				s->ahead_pkts++;
			if ((__s32)(end - s->seq_end) > 0)
				s->seq_end = end;
		}
	}
	if (r->tcp_flags & LW_TCP_ACK) {
		if (s->state & LW_SIDE_ACK && !space && !(r->tcp_flags & LW_TCP_RST) &&
		    r->tcp_ack == s->last_ack && r->tcp_win == s->win_last)
			s->dup_ack_pkts++;
		s->last_ack = r->tcp_ack;
		s->state |= LW_SIDE_ACK;
	}
	if (!r->tcp_win && !(r->tcp_flags & LW_TCP_RST))
		s->zero_win_pkts++;
	if (!(s->state & LW_SIDE_WIN)) {
		s->win_first = s->win_min = s->win_max = r->tcp_win;
		s->state |= LW_SIDE_WIN;
	}
	if (r->tcp_win < s->win_min)
		s->win_min = r->tcp_win;
	if (r->tcp_win > s->win_max)
		s->win_max = r->tcp_win;
	s->win_last = r->tcp_win;
	if (r->has & LW_HAS_MSS && !(s->state & LW_SIDE_MSS)) {
		s->mss = r->tcp_mss;
		s->state |= LW_SIDE_MSS;
	}
	if (r->has & LW_HAS_WSCALE && !(s->state & LW_SIDE_WSCALE)) {
		s->wscale = r->tcp_wscale;
		s->state |= LW_SIDE_WSCALE;
	}
	if (r->tcp_flags & LW_TCP_FIN)
		s->state |= LW_SIDE_FIN;
	if (r->tcp_flags & LW_TCP_SYN)
		s->state |= r->tcp_flags & LW_TCP_ACK ? LW_SIDE_SYN_ACK : LW_SIDE_SYN;
}

/*
 * Adds a record to a flow that has not ended; `now` is the record's flow time. A zeroed flow is a
 * new one.
 */
LW_INLINE void lw_flow_add(struct lw_flow *f, const struct lw_record *r, __u64 now,
			   __u8 src_is_lo)
{
	__u32 ip_bytes = lw_ip_bytes(r);
	__u32 l4_bytes = ip_bytes > r->l3_hdr_len ? ip_bytes - r->l3_hdr_len : 0;
	__u32 payload = l4_bytes > r->l4_hdr_len ? l4_bytes - r->l4_hdr_len : 0;
	int is_new = !(f->side[0].pkts | f->side[1].pkts);
	struct lw_flow_side *s;
	__u64 gap;
	__u8 dir;

	if (is_new) {
		f->fwd_is_lo = src_is_lo;
		f->first_ns = f->last_ns = f->active_since_ns = now;
		f->first_stamp_ns = f->last_stamp_ns = r->ts_ns;
		f->subflows = 1;
	} else {
		if (now < f->last_ns)
			now = f->last_ns;
		else
			f->last_stamp_ns = r->ts_ns;
		gap = now - f->last_ns;
		lw_span_add(&f->iat, gap);
		lw_square_add(&f->iat_sq, gap);
		if (gap > LW_GAP_SUBFLOW_NS)
			f->subflows++;
		if (gap > LW_GAP_ACTIVE_NS) {
			__u64 active = f->last_ns - f->active_since_ns;

			lw_span_add(&f->active, active);
			lw_square_add(&f->active_sq, active);
			lw_span_add(&f->idle, gap);
			lw_square_add(&f->idle_sq, gap);
			f->active_since_ns = now;
		}
		f->last_ns = now;
	}

	dir = src_is_lo != f->fwd_is_lo;
	s = &f->side[dir & 1];
	if (!s->pkts) {
		s->len_min = s->len_max = r->frame_len;
		s->payload_min = s->payload_max = payload;
		s->ttl_first = s->ttl_min = s->ttl_max = r->ttl;
	} else {
		gap = now - s->last_ns;
		lw_span_add(&s->iat, gap);
		lw_square_add(&s->iat_sq, gap);
		s->iat_hist[lw_iat_bin(gap) & (LW_HIST_BINS - 1)]++;
		if (r->frame_len < s->len_min)
			s->len_min = r->frame_len;
		if (r->frame_len > s->len_max)
			s->len_max = r->frame_len;
		if (payload < s->payload_min)
			s->payload_min = payload;
		if (payload > s->payload_max)
			s->payload_max = payload;
		if (r->ttl < s->ttl_min)
			s->ttl_min = r->ttl;
		if (r->ttl > s->ttl_max)
			s->ttl_max = r->ttl;
	}
	if (r->has & (LW_HAS_LEN_UNSTATED | LW_HAS_LEN_BEYOND))
		f->len_odd_pkts++;
	if (r->has & LW_HAS_NO_TIME)
		f->state |= LW_FLOW_NO_TIME;
	s->ttl_last = r->ttl;
	s->last_ns = now;
	s->pkts++;
	s->bytes += r->frame_len;
	s->ip_bytes += ip_bytes;
	s->l4_bytes += l4_bytes;
	s->payload_bytes += payload;
	s->hdr_bytes += (__u64)r->l3_hdr_len + r->l4_hdr_len;
	s->len_sq += (__u64)r->frame_len * r->frame_len;
	s->payload_sq += (__u64)payload * payload;
	s->len_hist[lw_len_bin(r->frame_len) & (LW_HIST_BINS - 1)]++;

	if (payload) {
		s->data_pkts++;
		if (s->run_pkts && now - s->run_last_ns > LW_GAP_SUBFLOW_NS)
			lw_side_close_run(s);
		if (!s->run_pkts)
			s->run_start_ns = now;
		s->run_pkts++;
		s->run_bytes += payload;
		s->run_last_ns = now;
	}

	if (r->has & LW_HAS_TCP) {
		__u16 syn = r->tcp_flags & (LW_TCP_SYN | LW_TCP_ACK);

		lw_side_add_tcp(s, r, payload);
		if (r->tcp_flags & LW_TCP_RST)
			f->state |= LW_FLOW_RST;
		if (syn == LW_TCP_SYN && !f->syn_ack_ns && (!f->syn_ns || dir == f->syn_side)) {
			/* Sent again: the answer that comes is to the last one, as in Wireshark. */
			f->syn_ns = now;
			f->syn_side = dir;
		} else if (syn == (LW_TCP_SYN | LW_TCP_ACK) && f->syn_ns && !f->syn_ack_ns &&
			   dir != f->syn_side) {
			f->syn_ack_ns = now;
		} else if (syn == LW_TCP_ACK && f->syn_ack_ns && !f->ack_ns &&
			   dir == f->syn_side) {
			f->ack_ns = now;
		}
	}
}

/* Books what is still open. Called once, when the flow has ended for `why`. */
LW_INLINE void lw_flow_close(struct lw_flow *f, __u8 why)
{
	__u64 active = f->last_ns - f->active_since_ns;

	lw_side_close_run(&f->side[0]);
	lw_side_close_run(&f->side[1]);
	lw_span_add(&f->active, active);
	lw_square_add(&f->active_sq, active);
	f->end = why;
}

#endif
