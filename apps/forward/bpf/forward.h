/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frame -> fate: fields, rules, edits, modes. Compiled for eBPF and, as the tests' referee, for the
 * host; src/ is an independent implementation in Rust, and all three must agree on every fate, egress
 * port and byte.
 *
 * Lengths are believed in this order: what was captured bounds every read, the IP length bounds
 * layer 4. Nothing beyond LW_HEADERS_MAX is looked at, so that a header is seen or not seen in every
 * placement alike. Rules change the fields; the frame is written once, at the end.
 *
 * Rules are masks and values. The few lie in a line and are tried one after the other; where many have
 * the same mask, it has a place in the bank, and their values lie in one hash table of all masks: a
 * frame's fields under a mask are one lookup, whatever the number of rules with it.
 *
 * The includer defines lw_hit(), lw_entry(), lw_route() and lw_neighbour().
 */
#ifndef LANEWAY_FORWARD_H
#define LANEWAY_FORWARD_H

#include <laneway/drop_reason.h>
#include <laneway/headers.h>
#include <laneway/rewrite.h>

#define LW_WORDS 9
#define LW_HEADERS_MAX 512
#define LW_LINE_MAX 64
#define LW_TUPLES_MAX 128
#define LW_GONE_MAX 64
#define LW_MATCHES_MAX 131072 /* of a frame: as many as a set has rules */
#define LW_SLOTS_AT_HAND 192
#define LW_SLOTS_PER_BLOCK 64
#define LW_QUEUES_MAX 16
#define LW_PORTS_MAX 32
#define LW_VXLAN_PORT 4789

enum lw_mode {
	LW_MODE_IO = 0,
	LW_MODE_MAC = 1,
	LW_MODE_MACSWAP = 2,
	LW_MODE_5TSWAP = 3,
	LW_MODE_L2 = 4, /* user space only */
	LW_MODE_L3 = 5,
	LW_MODE_DROP = 6,
};

enum lw_fate {
	LW_FATE_FORWARDED = 0,
	LW_FATE_FLOODED = 1, /* user space only */
	LW_FATE_PASSED = 2,
	LW_FATE_CONSUMED = 3,
	LW_FATE_RULE_DROP = 4,
	LW_FATE_TTL_EXPIRED = 5,
	LW_FATE_NO_ROUTE = 6,
	LW_FATE_NO_NEIGHBOUR = 7,
	LW_FATE_MALFORMED = 8,
	LW_FATE_BAD_CHECKSUM = 9,
	LW_FATE_NOT_FOR_US = 10,
	LW_FATE_NO_PORT = 11,
	LW_FATE_COUNT = 12,
};

/* Not yet decided. */
#define LW_FATE_NONE 0xff

enum lw_has {
	LW_HAS_ETH = 0x001,
	LW_HAS_VLAN = 0x002,
	LW_HAS_VLAN2 = 0x004,
	LW_HAS_IPV4 = 0x008,
	LW_HAS_IPV6 = 0x010,
	LW_HAS_TCP = 0x020,
	LW_HAS_UDP = 0x040,
	LW_HAS_ICMP = 0x080,
	LW_HAS_ICMP6 = 0x100,
	LW_HAS_VXLAN = 0x200,
};

enum lw_effect {
	LW_EFFECT_DROP = 0x001,
	LW_EFFECT_QUEUE = 0x002,
	LW_EFFECT_PORT = 0x004,
	LW_EFFECT_JUMP = 0x008,
	LW_EFFECT_PASSTHRU = 0x010,
	LW_EFFECT_MARK = 0x020,
	LW_EFFECT_MAC_SRC = 0x040,
	LW_EFFECT_MAC_DST = 0x080,
	LW_EFFECT_IP_SRC = 0x100,
	LW_EFFECT_IP_DST = 0x200,
	LW_EFFECT_TP_SRC = 0x400,
	LW_EFFECT_TP_DST = 0x800,
	LW_EFFECT_DEC_TTL = 0x1000,
};

/* Header fields as they stand on the wire; zero where a header is not there. */
struct lw_fields {
	union {
		__u64 words[LW_WORDS];
		struct {
			__u8 src_ip[16]; /* IPv4 as ::ffff:a.b.c.d */
			__u8 dst_ip[16];
			__u8 eth_dst[6];
			__u8 eth_src[6];
			__u8 eth_type[2]; /* behind the VLAN tags */
			__u8 vlan_tci[2];
			__u8 vlan_tci2[2];
			__u8 src_port[2];
			__u8 dst_port[2];
			__u8 proto;
			__u8 ttl;
			__u8 tos;
			__u8 tcp_flags;
			__u8 icmp_type;
			__u8 icmp_code;
			__u8 vni[3];
			__u8 zero;
			__u8 has[2];
			__u8 fragment[2];
			__u8 zeros[4];
		};
	};
};
_Static_assert(sizeof(struct lw_fields) == 72, "src/fields.rs");

/* What a rule does. */
struct lw_effects {
	__u32 flags;
	__u32 jump_group;
	__u32 mark;
	__u32 slot;
	__u8 out_port;
	__u8 queues_len;
	__u8 zero[2];
	__u8 queues[LW_QUEUES_MAX];
	__u8 mac_src[6];
	__u8 mac_dst[6];
	__u8 tp_src[2];
	__u8 tp_dst[2];
	__u8 ip_src[16];
	__u8 ip_dst[16];
	__u8 zeros[4];
};
_Static_assert(sizeof(struct lw_effects) == 88, "src/bank.rs");

/* One that is tried by itself. */
struct lw_rule {
	__u64 mask[LW_WORDS];
	__u64 value[LW_WORDS];
	__u64 rank;
	struct lw_effects effects;
	__u32 group;
	__u8 in_port;
	__u8 zero[3];
};
_Static_assert(sizeof(struct lw_rule) == 248, "src/bank.rs");

/* A mask whose values are looked up. Equal values need a mask each: a value stands once under an id. */
struct lw_tuple {
	__u64 mask[LW_WORDS];
	__u64 has;  /* the headers that all of its rules ask for, as they stand in the last word */
	__u64 best; /* none of its rules has a lower rank */
	__u32 group;
	__u32 id;
	__u8 in_port;
	__u8 zero[7];
};
_Static_assert(sizeof(struct lw_tuple) == 104, "src/bank.rs");

/* A value under a mask, with the mask's id where fields have nothing. */
struct lw_key {
	union {
		__u64 words[LW_WORDS];
		struct {
			__u8 fields[sizeof(struct lw_fields) - 4];
			__u32 id;
		};
	};
};
_Static_assert(sizeof(struct lw_key) == 72, "src/bank.rs");

/* Never written again once it is in the table. */
struct lw_entry {
	__u64 rank;
	__u64 since; /* not there for those who read a bank of an earlier version */
	struct lw_effects effects;
};
_Static_assert(sizeof(struct lw_entry) == 104, "src/bank.rs");

/*
 * A rule set but for the entries: the line by group and rank, so that one pass over it decides (jumps go
 * to higher groups), the masks by port, group and best rank.
 */
struct lw_bank {
	__u64 version;
	__u32 count;
	__u32 tuples;
	__u32 gone; /* rules that are no longer in force, but still in the table */
	__u32 zero;
	__u32 gone_slot[LW_GONE_MAX];
	__u8 first[LW_PORTS_MAX]; /* the first mask of a port, or of one behind it */
	struct lw_rule rule[LW_LINE_MAX];
	struct lw_tuple tuple[LW_TUPLES_MAX];
};
_Static_assert(sizeof(struct lw_bank) == 29496, "src/bank.rs");

struct lw_config {
	__u32 mode;
	__u32 ports;
	__u32 has_rules;
	__u32 tells; /* tests: what was decided is written to a map */
	__u32 ifindex[LW_PORTS_MAX];
	__u8 own[LW_PORTS_MAX][8]; /* byte 6: it is really the port's, so frames must be addressed to it */
	__u8 peer[LW_PORTS_MAX][8];
};

struct lw_hop {
	__u8 mac[6];
	__u8 has_mac;
	__u8 is_link; /* the destination itself is the neighbour */
	__u32 port;
};

/* What was decided on a frame. */
struct lw_outcome {
	__u8 fate;
	__u8 port;
	__u8 queue; /* 0xff: none was chosen */
	__u8 zero;
	__u32 mark;
};

/* A function with a stack frame of its own: a program and what it calls share 512 bytes at a time. */
#ifdef __bpf__
#define LW_PART static __noinline
#else
#define LW_PART static
#endif

/*
 * Where headers start. It lies in a map, as fields and decisions do: what is read back from there is
 * any number to the verifier, so that it does not follow every way through the parser to the end.
 */
struct lw_places {
	__u32 l3;
	__u32 l4;
	__u32 has;
};

/*
 * Counts a match; finds a value under a mask; finds the hop to now->dst_ip; finds its link address. The
 * last two: 0 if found.
 */
LW_INLINE void lw_hit(__u32 slot, __u32 bytes);
LW_INLINE const struct lw_entry *lw_entry(const struct lw_key *key);
LW_INLINE int lw_route(const struct lw_fields *now, int is_v4, struct lw_hop *hop);
LW_INLINE int lw_neighbour(const struct lw_fields *now, __u8 *mac);

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

/* Who matches first, as far as masks have been asked. */
struct lw_found {
	__u64 rank;
	struct lw_effects effects;
};

/* What a frame needs while it is decided on. */
struct lw_room {
	struct lw_fields was;
	struct lw_fields now;
	struct lw_places at;
	__u32 zero;
	struct lw_outcome outcome;
	struct lw_key key;
	struct lw_found found;
};

struct lw_match {
	const struct lw_bank *bank;
	struct lw_room *room;
	__u64 above; /* the rule that matched last: only later ones of the group match */
	__u32 group;
	__u32 bytes;
	__u32 port;
	__u32 first;
};

/* Comes after every rule. */
#define LW_RANK_NOBODY (~0ull)

LW_INLINE __u64 lw_be64(const __u8 *p)
{
	return (__u64)lw_be32(p) << 32 | lw_be32(p + 4);
}

/* A symmetric hash of addresses, ports and protocol. */
LW_INLINE __u32 lw_spread(const struct lw_fields *f)
{
	__u64 high = lw_be64(f->src_ip) ^ lw_be64(f->dst_ip);
	__u64 low = lw_be64(f->src_ip + 8) ^ lw_be64(f->dst_ip + 8);
	__u64 ports = 0;

	if (f->has[1] & (LW_HAS_TCP | LW_HAS_UDP))
		ports = lw_be16(f->src_port) ^ lw_be16(f->dst_port);
	high = (high << 17 | high >> 47) ^ low ^ ports << 8 ^ f->proto;
	return (__u32)(high * 0x9e3779b97f4a7c15ull >> 32);
}

/* Does what a rule says that matches; true if the rules are done with the frame. */
LW_INLINE int lw_do(struct lw_match *m, const struct lw_effects *e)
{
	struct lw_fields *now = &m->room->now;
	struct lw_outcome *outcome = &m->room->outcome;

	lw_hit(e->slot, m->bytes);
	if (e->flags & LW_EFFECT_DROP) {
		outcome->fate = LW_FATE_RULE_DROP;
		return 1;
	}
	if (e->flags & LW_EFFECT_DEC_TTL) {
		if (now->ttl <= 1) {
			outcome->fate = LW_FATE_TTL_EXPIRED;
			return 1;
		}
		now->ttl--;
	}
	if (e->flags & LW_EFFECT_MAC_SRC)
		__builtin_memcpy(now->eth_src, e->mac_src, 6);
	if (e->flags & LW_EFFECT_MAC_DST)
		__builtin_memcpy(now->eth_dst, e->mac_dst, 6);
	if (e->flags & LW_EFFECT_IP_SRC)
		__builtin_memcpy(now->src_ip, e->ip_src, 16);
	if (e->flags & LW_EFFECT_IP_DST)
		__builtin_memcpy(now->dst_ip, e->ip_dst, 16);
	if (e->flags & LW_EFFECT_TP_SRC)
		__builtin_memcpy(now->src_port, e->tp_src, 2);
	if (e->flags & LW_EFFECT_TP_DST)
		__builtin_memcpy(now->dst_port, e->tp_dst, 2);
	if (e->flags & LW_EFFECT_MARK)
		outcome->mark = e->mark;
	if (e->flags & LW_EFFECT_QUEUE) {
		__u32 count = e->queues_len, choice = 0;

		if (count > 1)
			choice = lw_spread(now) % count;
		outcome->queue = e->queues[choice & (LW_QUEUES_MAX - 1)];
	}
	if (e->flags & LW_EFFECT_PORT) {
		outcome->fate = LW_FATE_FORWARDED;
		outcome->port = e->out_port;
		return 1;
	}
	if (e->flags & LW_EFFECT_JUMP) {
		m->group = e->jump_group;
		return 0;
	}
	return !(e->flags & LW_EFFECT_PASSTHRU);
}

LW_INLINE int lw_fits(const struct lw_rule *r, const struct lw_fields *now)
{
	__u64 differs = 0;

#pragma clang loop unroll(full)
	for (int w = 0; w < LW_WORDS; w++)
		differs |= (now->words[w] & r->mask[w]) ^ r->value[w];
	return !differs;
}

/* Where there is a line only: the one pass that decides. */
static long lw_rule_step(__u32 i, void *state)
{
	struct lw_match *m = state;
	const struct lw_rule *r;

	if (i >= LW_LINE_MAX || i >= m->bank->count)
		return 1;
	r = &m->bank->rule[i];
	/* A rule with a range stands in several places: whatever it rewrote, it matches a frame once. */
	if (r->in_port != m->port || r->group != m->group || r->rank == m->above ||
	    !lw_fits(r, &m->room->now))
		return 0;
	m->above = r->rank;
	return lw_do(m, &r->effects);
}

LW_INLINE int lw_is_gone(const struct lw_bank *bank, __u32 slot)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < LW_GONE_MAX; i++) {
		if (i >= bank->gone)
			break;
		if (bank->gone_slot[i] == slot)
			return 1;
	}
	return 0;
}

/* Asks a mask for the frame's value. */
static long lw_tuple_step(__u32 i, void *state)
{
	struct lw_match *m = state;
	const struct lw_bank *bank = m->bank;
	struct lw_fields *now = &m->room->now;
	struct lw_key *key = &m->room->key;
	struct lw_found *found = &m->room->found;
	__u32 at = m->first + i;
	const struct lw_tuple *t;
	const struct lw_entry *e;

	if (at >= LW_TUPLES_MAX || at >= bank->tuples)
		return 1;
	t = &bank->tuple[at];
	if (t->in_port != m->port)
		return 1;
	if (t->group != m->group)
		return t->group > m->group;
	/* No rule of this mask or of a later one precedes the one found. */
	if (t->best >= found->rank)
		return 1;
	if ((now->words[LW_WORDS - 1] & t->has) != t->has)
		return 0;
#pragma clang loop unroll(full)
	for (int w = 0; w < LW_WORDS; w++)
		key->words[w] = now->words[w] & t->mask[w];
	key->id = t->id;
	e = lw_entry(key);
	if (!e || e->rank <= m->above || e->rank >= found->rank || e->since > bank->version)
		return 0;
	if (bank->gone && lw_is_gone(bank, e->effects.slot))
		return 0;
	found->rank = e->rank;
	__builtin_memcpy(&found->effects, &e->effects, sizeof(e->effects));
	return 0;
}

/* Tries one of the line beside the masks. */
static long lw_line_step(__u32 i, void *state)
{
	struct lw_match *m = state;
	struct lw_found *found = &m->room->found;
	const struct lw_rule *r;

	if (i >= LW_LINE_MAX || i >= m->bank->count)
		return 1;
	r = &m->bank->rule[i];
	if (r->group != m->group)
		return r->group > m->group;
	if (r->rank >= found->rank)
		return 1;
	if (r->in_port != m->port || r->rank <= m->above || !lw_fits(r, &m->room->now))
		return 0;
	found->rank = r->rank;
	__builtin_memcpy(&found->effects, &r->effects, sizeof(r->effects));
	return 1;
}

/* Where there are masks: finds the next rule that matches and does what it says. */
static long lw_match_step(__u32 i, void *state)
{
	struct lw_match *m = state;
	struct lw_found *found = &m->room->found;

	found->rank = LW_RANK_NOBODY;
	LW_LOOP(LW_TUPLES_MAX, lw_tuple_step, m);
	LW_LOOP(LW_LINE_MAX, lw_line_step, m);
	if (found->rank == LW_RANK_NOBODY)
		return 1;
	m->above = found->effects.flags & LW_EFFECT_JUMP ? 0 : found->rank;
	return lw_do(m, &found->effects);
}

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

/* Mode l3: the fate; changes `now` and sets the egress port. */
LW_INLINE __u8 lw_mode_l3(const volatile struct lw_config *c, __u32 port, const __u8 *data,
			  const __u8 *end, const struct lw_places *at, struct lw_fields *now,
			  __u8 *egress)
{
	int is_v4 = now->eth_type[0] == 0x08 && now->eth_type[1] == 0x00;
	int is_v6 = now->eth_type[0] == 0x86 && now->eth_type[1] == 0xdd;
	struct lw_hop hop = {};
	__u8 differs = 0;

	if (!(at->has & LW_HAS_ETH))
		return LW_FATE_MALFORMED;
	if (now->eth_dst[0] & 1)
		return LW_FATE_PASSED;
	port &= LW_PORTS_MAX - 1;
	if (c->own[port][6]) {
#pragma clang loop unroll(full)
		for (int i = 0; i < 6; i++)
			differs |= c->own[port][i] ^ now->eth_dst[i];
		if (differs)
			return LW_FATE_NOT_FOR_US;
	}
	if (!is_v4 && !is_v6)
		return LW_FATE_PASSED;
	if (!(at->has & (is_v4 ? LW_HAS_IPV4 : LW_HAS_IPV6)))
		return LW_FATE_MALFORMED;
	if (is_v4 && !lw_ipv4_checksum_fits(data, end, at->l3))
		return LW_FATE_BAD_CHECKSUM;
	if (is_v4 ? now->dst_ip[12] >= 224
		  : now->dst_ip[0] == 0xff ||
			    (now->dst_ip[0] == 0xfe && (now->dst_ip[1] & 0xc0) == 0x80))
		return LW_FATE_PASSED;
	if (now->ttl <= 1)
		return LW_FATE_TTL_EXPIRED;
	if (lw_route(now, is_v4, &hop))
		return LW_FATE_NO_ROUTE;
	if (hop.is_link ? lw_neighbour(now, hop.mac) : !hop.has_mac)
		return LW_FATE_NO_NEIGHBOUR;
	now->ttl--;
	__builtin_memcpy(now->eth_dst, hop.mac, 6);
	port = hop.port & (LW_PORTS_MAX - 1);
#pragma clang loop unroll(full)
	for (int i = 0; i < 6; i++)
		now->eth_src[i] = c->own[port][i];
	*egress = (__u8)port;
	return LW_FATE_FORWARDED;
}

/* Decides on a frame received on `port` and edits it. `bank` may be null. */
LW_INLINE void lw_forward(const volatile struct lw_config *c, const struct lw_bank *bank,
			  __u32 port, const struct lw_view *view, __u8 *data, struct lw_room *room)
{
	struct lw_fields *was = &room->was, *now = &room->now;
	struct lw_places *at = &room->at;
	struct lw_outcome *outcome = &room->outcome;
	const __u8 *end = view->end;
	__u32 partner = (port ^ 1) & (LW_PORTS_MAX - 1);

	outcome->fate = LW_FATE_NONE;
	outcome->port = (__u8)port;
	outcome->queue = 0xff;
	outcome->zero = 0;
	outcome->mark = 0;
	if (partner >= c->ports)
		partner = port & (LW_PORTS_MAX - 1);

	if (bank || c->mode == LW_MODE_L3 || c->mode == LW_MODE_5TSWAP) {
		__builtin_memset(was, 0, sizeof(*was));
		__builtin_memset(at, 0, sizeof(*at));
		lw_parse(view, was, at);
		__builtin_memcpy(now, was, sizeof(*now));
		if (bank) {
			struct lw_match m = {
				.bank = bank, .room = room, .bytes = view->len, .port = port,
			};

			if (bank->tuples) {
				m.first = bank->first[port & (LW_PORTS_MAX - 1)];
				LW_LOOP(LW_MATCHES_MAX, lw_match_step, &m);
			} else {
				LW_LOOP(LW_LINE_MAX, lw_rule_step, &m);
			}
		}
		if (outcome->fate == LW_FATE_NONE && c->mode == LW_MODE_L3)
			outcome->fate = lw_mode_l3(c, port, data, end, at, now, &outcome->port);
		if (outcome->fate == LW_FATE_NONE || outcome->fate == LW_FATE_FORWARDED ||
		    outcome->fate == LW_FATE_PASSED)
			lw_write_back(data, end, at, was, now);
		if (outcome->fate != LW_FATE_NONE)
			return;
	}

	if (c->mode == LW_MODE_DROP) {
		outcome->fate = LW_FATE_CONSUMED;
		return;
	}
	if (c->mode != LW_MODE_IO) {
		if (data + LW_ETH_BYTES > end) {
			outcome->fate = LW_FATE_MALFORMED;
			return;
		}
		if (c->mode == LW_MODE_MAC) {
#pragma clang loop unroll(full)
			for (int i = 0; i < 6; i++) {
				data[i] = c->peer[partner][i];
				data[6 + i] = c->own[partner][i];
			}
		} else {
			lw_swap(data, data + 6, 6);
			if (c->mode == LW_MODE_5TSWAP)
				lw_swap_addresses(data, end, at);
		}
	}
	outcome->fate = LW_FATE_FORWARDED;
	outcome->port = (__u8)partner;
}

/* The name that the shared table of losses knows a fate by; LW_DROP_COUNT for what is no loss. */
LW_INLINE __u32 lw_drop_reason(__u8 fate)
{
	switch (fate) {
	case LW_FATE_RULE_DROP:
		return LW_DROP_FILTERED_OUT;
	case LW_FATE_TTL_EXPIRED:
		return LW_DROP_TTL_EXPIRED;
	case LW_FATE_NO_ROUTE:
		return LW_DROP_NO_ROUTE;
	case LW_FATE_NO_NEIGHBOUR:
		return LW_DROP_NO_NEIGHBOUR;
	case LW_FATE_MALFORMED:
		return LW_DROP_MALFORMED;
	case LW_FATE_BAD_CHECKSUM:
		return LW_DROP_BAD_CHECKSUM;
	case LW_FATE_NOT_FOR_US:
		return LW_DROP_NOT_FOR_US;
	case LW_FATE_NO_PORT:
		return LW_DROP_TX_NO_PORT;
	default:
		return LW_DROP_COUNT;
	}
}

#endif
