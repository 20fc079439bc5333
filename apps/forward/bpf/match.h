/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Fields -> what the rules say: the line, the masks, and the effects of a rule that matches. Included by forward.h,
 * behind the types.
 */
#ifndef LANEWAY_FORWARD_MATCH_H
#define LANEWAY_FORWARD_MATCH_H

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

#endif
