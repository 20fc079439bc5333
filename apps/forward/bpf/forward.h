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
LW_INLINE int lw_neighbour(const struct lw_fields *now, int is_v4, __u8 *mac);

#include "parse.h"
#include "match.h"
#include "edit.h"

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
	if (hop.is_link ? lw_neighbour(now, is_v4, hop.mac) : !hop.has_mac)
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
