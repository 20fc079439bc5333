/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Frame -> fate, and question -> answer in place. Compiled for eBPF and, as the tests' referee, for
 * the host; `src/sort.rs` and `src/answer.rs` are an independent implementation in Rust, and all
 * three must agree on every fate and every byte. The table of fates is in `src/fate.rs`.
 *
 * Only the linear part of a frame is read and written: headers and, of an ARP or neighbour
 * discovery packet, all of it. An echo request may be longer; its data stays where it is.
 *
 * The includer defines the four functions declared first.
 */
#ifndef LANEWAY_ECHO_H
#define LANEWAY_ECHO_H

#include <laneway/headers.h>

#include "fate.h"

#define LW_ECHO_ARP_BYTES 28
#define LW_ECHO_NS_BYTES 24
#define LW_ECHO_NS_OPTION_BYTES 8
/* So few addresses of ours are compared one by one: two look-ups in a map would be much of the work. */
#define LW_ECHO_OWN_MAX 4
/* Tries to take a place in a schedule before other CPUs; losing them all counts as too early. */
#define LW_ECHO_RACES_MAX 8

/* Mirror of `Checked` in src/config.rs; see `half` in src/kernel.rs. */
struct lw_echo_config {
	__u8 mac[6];
	__u8 ttl;
	__u8 answers_neighbours;
};

/* A rate limit; see src/limit.rs. */
struct lw_echo_schedule {
	__u64 interval_ns; /* 0: no limit */
	__u64 tolerance_ns;
	__u64 step_ns;
};

/* 16 bytes: an IPv6 address, or an IPv4 address behind twelve bytes of ones. */
struct lw_echo_key {
	__u32 word[4];
};

struct lw_echo_limits {
	const volatile struct lw_echo_schedule *per_source;
	const volatile struct lw_echo_schedule *global;
};

/* Is this address ours? */
LW_INLINE int lw_echo_owns(const struct lw_echo_key *key);
/* When the next question of this source is due; null if there is no place for it. */
LW_INLINE __u64 *lw_echo_source_due(const struct lw_echo_key *key);
/* The same for all sources together. */
LW_INLINE __u64 *lw_echo_global_due(void);
/* When the frame arrived. */
LW_INLINE __u64 lw_echo_now_ns(const struct lw_view *view);

LW_INLINE void lw_echo_put16(__u8 *p, __u16 word)
{
	p[0] = (__u8)(word >> 8);
	p[1] = (__u8)word;
}

LW_INLINE __u16 lw_echo_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/* RFC 1624, equation 3. */
LW_INLINE __u16 lw_echo_follow(__u16 checksum, __u16 before, __u16 after)
{
	return (__u16)~lw_echo_fold((__u32)(__u16)~checksum + (__u16)~before + after);
}

LW_INLINE struct lw_echo_key lw_echo_key_v4(const __u8 *p)
{
	struct lw_echo_key key = { .word = { ~0u, ~0u, ~0u, 0 } };

	__builtin_memcpy(&key.word[3], p, 4);
	return key;
}

LW_INLINE struct lw_echo_key lw_echo_key_v6(const __u8 *p)
{
	struct lw_echo_key key;

	__builtin_memcpy(&key, p, 16);
	return key;
}

LW_INLINE int lw_echo_owns_v4(const __u8 *p)
{
	struct lw_echo_key key = lw_echo_key_v4(p);

	return lw_echo_owns(&key);
}

LW_INLINE int lw_echo_owns_v6(const __u8 *p)
{
	struct lw_echo_key key = lw_echo_key_v6(p);

	return p[0] != 0xff && lw_echo_owns(&key);
}

LW_INLINE int lw_echo_is_sender_v4(const __u8 *p)
{
	return !(p[0] == 0 || p[0] == 127 || p[0] >= 224);
}

LW_INLINE int lw_echo_is_sender_v6(const __u8 *p)
{
	struct lw_echo_key key = lw_echo_key_v6(p);
	int is_low = !(key.word[0] | key.word[1] | key.word[2]) && !(p[12] | p[13] | p[14]);

	return p[0] != 0xff && !(is_low && p[15] <= 1);
}

LW_INLINE int lw_echo_is_own_mac(const __u8 *p, const struct lw_echo_config *c)
{
	__u8 differs = 0;

	for (int i = 0; i < 6; i++)
		differs |= p[i] ^ c->mac[i];
	return !differs;
}

/* Takes a place in the schedule; false if it is too early. */
LW_INLINE int lw_echo_admit(const volatile struct lw_echo_schedule *s, __u64 *due_ns, __u64 now_ns)
{
	__u64 interval_ns = s->interval_ns, tolerance_ns = s->tolerance_ns, step_ns = s->step_ns;

	for (int i = 0; i < LW_ECHO_RACES_MAX; i++) {
		__u64 was = *(volatile __u64 *)due_ns;
		__u64 due = was > now_ns ? was : now_ns, next;

		if (due - now_ns > step_ns)
			due = now_ns;
		if (due - now_ns > tolerance_ns)
			return 0;
		next = due + interval_ns;
		if (next < due)
			next = ~0ull;
		if (__sync_val_compare_and_swap(due_ns, was, next) == was)
			return 1;
	}
	return 0;
}

/* The fate of an echo request as far as the limits decide it, or `answered`. */
LW_INLINE __u32 lw_echo_limit(const struct lw_view *view, const struct lw_echo_limits *limits,
			      const struct lw_echo_key *source, __u32 answered)
{
	__u64 *due_ns, now_ns;

	if (!limits->per_source->interval_ns && !limits->global->interval_ns)
		return answered;
	now_ns = lw_echo_now_ns(view);
	if (limits->per_source->interval_ns) {
		due_ns = lw_echo_source_due(source);
		if (due_ns && !lw_echo_admit(limits->per_source, due_ns, now_ns))
			return LW_ECHO_DROPPED_SOURCE_LIMIT;
	}
	if (limits->global->interval_ns) {
		due_ns = lw_echo_global_due();
		if (due_ns && !lw_echo_admit(limits->global, due_ns, now_ns))
			return LW_ECHO_DROPPED_GLOBAL_LIMIT;
	}
	return answered;
}

/* The frame goes back to its sender. */
LW_INLINE void lw_echo_turn_round(__u8 *eth, const struct lw_echo_config *c)
{
	__builtin_memcpy(eth, eth + 6, 6);
	__builtin_memcpy(eth + 6, c->mac, 6);
}

/* Is it for us alone? LW_ECHO_FATES means yes. */
LW_INLINE __u32 lw_echo_audience(const __u8 *eth, const struct lw_echo_config *c, int is_group)
{
	if (is_group || (eth[0] & 1))
		return LW_ECHO_PASSED_GROUP;
	if (!lw_echo_is_own_mac(eth, c))
		return LW_ECHO_PASSED_FOREIGN_MAC;
	return LW_ECHO_FATES;
}

LW_INLINE __u32 lw_echo_ipv4(const struct lw_view *view, __u32 off, const struct lw_echo_config *c,
			     const struct lw_echo_limits *limits)
{
	__u8 *eth = (__u8 *)view->data, *p = eth + off;
	__u32 total, sum = 0, fate;
	struct lw_echo_key source;
	__u16 before, after;

	if (p + 20 > view->end)
		return LW_ECHO_PASSED_TRUNCATED;
	total = lw_be16(p + 2);
	if (p[0] >> 4 != 4 || (p[0] & 0x0f) < 5 || total < (p[0] & 0x0fu) * 4)
		return LW_ECHO_PASSED_BAD_HEADER;
	if (p[9] != 1)
		return LW_ECHO_PASSED_PROTOCOL;
	fate = lw_echo_audience(eth, c, p[16] >> 4 == 0x0e || lw_be32(p + 16) == 0xffffffff);
	if (fate != LW_ECHO_FATES)
		return fate;
	if (!lw_echo_owns_v4(p + 16))
		return LW_ECHO_PASSED_FOREIGN_ADDRESS;
	if (lw_be16(p + 6) & 0x3fff)
		return LW_ECHO_PASSED_FRAGMENT;
	if ((p[0] & 0x0f) > 5)
		return LW_ECHO_PASSED_OPTIONS;
	if (p + 28 > view->end || total < 28)
		return LW_ECHO_PASSED_TRUNCATED;
	if (lw_be16(p + 20) != 0x0800)
		return LW_ECHO_PASSED_OTHER_ICMP;
	if (off + total > view->len)
		return LW_ECHO_DROPPED_LENGTH;
	for (int i = 0; i < 20; i += 2)
		sum += lw_be16(p + i);
	if (lw_echo_fold(sum) != 0xffff)
		return LW_ECHO_DROPPED_CHECKSUM;
	if (!lw_echo_is_sender_v4(p + 12) || lw_echo_owns_v4(p + 12) || (eth[6] & 1))
		return LW_ECHO_DROPPED_SOURCE;
	source = lw_echo_key_v4(p + 12);
	fate = lw_echo_limit(view, limits, &source, LW_ECHO_ANSWERED_ECHO_V4);
	if (fate != LW_ECHO_ANSWERED_ECHO_V4)
		return fate;

	lw_echo_turn_round(eth, c);
	before = lw_be16(p + 8);
	p[8] = c->ttl;
	after = lw_be16(p + 8);
	lw_echo_put16(p + 10, lw_echo_follow(lw_be16(p + 10), before, after));
	__builtin_memcpy(p + 12, p + 16, 4);
	__builtin_memcpy(p + 16, &source.word[3], 4);
	lw_echo_put16(p + 20, 0);
	/* A reply of zeros alone sums up with 0xffff only; see followed_v4 in src/answer.rs. */
	after = lw_echo_follow(lw_be16(p + 22), 0x0800, 0);
	lw_echo_put16(p + 22, after ? after : 0xffff);
	return fate;
}

/* Sum over pseudo-header and message of 24 or 32 bytes at `p`, an IPv6 header. */
LW_INLINE __u16 lw_echo_nd_sum(const __u8 *p, int has_option)
{
	__u32 sum = 58 + LW_ECHO_NS_BYTES;

	for (int i = 8; i < 40 + LW_ECHO_NS_BYTES; i += 2)
		sum += lw_be16(p + i);
	if (has_option) {
		sum += LW_ECHO_NS_OPTION_BYTES;
		for (int i = 40 + LW_ECHO_NS_BYTES; i < 40 + LW_ECHO_NS_BYTES + 8; i += 2)
			sum += lw_be16(p + i);
	}
	return lw_echo_fold(sum);
}

/* A neighbour solicitation: RFC 4861, 7.1.1 and 7.2.4. */
LW_INLINE __u32 lw_echo_nd(const struct lw_view *view, __u32 off, const struct lw_echo_config *c)
{
	__u8 *eth = (__u8 *)view->data, *p = eth + off, *message = p + 40, *target = message + 8;
	int has_option, is_to_target, is_to_group;
	__u32 payload, differs;

	if (message + LW_ECHO_NS_BYTES > view->end)
		return LW_ECHO_PASSED_TRUNCATED;
	payload = lw_be16(p + 4);
	if (payload < LW_ECHO_NS_BYTES)
		return LW_ECHO_PASSED_TRUNCATED;
	if (!c->answers_neighbours)
		return LW_ECHO_PASSED_NEIGHBOUR;
	if (!lw_echo_owns_v6(target))
		return LW_ECHO_PASSED_FOREIGN_ADDRESS;
	if (!(eth[0] & 1) && !lw_echo_is_own_mac(eth, c))
		return LW_ECHO_PASSED_FOREIGN_MAC;
	has_option = payload == LW_ECHO_NS_BYTES + LW_ECHO_NS_OPTION_BYTES;
	if (!has_option && payload != LW_ECHO_NS_BYTES)
		return LW_ECHO_PASSED_NEIGHBOUR;
	differs = 0;
	for (int i = 0; i < 16; i++)
		differs |= p[24 + i] ^ target[i];
	is_to_target = !differs;
	/* ff02::1:ff00:0/104 and the target's last three bytes */
	is_to_group = lw_be32(p + 24) == 0xff020000 && lw_be32(p + 28) == 0 &&
		      lw_be32(p + 32) == 1 &&
		      lw_be32(p + 36) == (0xff000000 | (lw_be32(target + 12) & 0x00ffffff));
	if (!is_to_target && !(has_option && is_to_group))
		return LW_ECHO_PASSED_NEIGHBOUR;
	if (message[1] != 0 || p[7] != 255 || !lw_echo_is_sender_v6(p + 8) ||
	    lw_echo_owns_v6(p + 8) || (eth[6] & 1))
		return LW_ECHO_PASSED_NEIGHBOUR;
	if (has_option) {
		if (message + LW_ECHO_NS_BYTES + LW_ECHO_NS_OPTION_BYTES > view->end)
			return LW_ECHO_DROPPED_LENGTH;
		if (lw_be16(message + LW_ECHO_NS_BYTES) != 0x0101)
			return LW_ECHO_PASSED_NEIGHBOUR;
		if (lw_echo_nd_sum(p, 1) != 0xffff)
			return LW_ECHO_DROPPED_CHECKSUM;
	} else if (lw_echo_nd_sum(p, 0) != 0xffff) {
		return LW_ECHO_DROPPED_CHECKSUM;
	}

	lw_echo_turn_round(eth, c);
	p[7] = 255;
	__builtin_memcpy(p + 24, p + 8, 16);
	__builtin_memcpy(p + 8, target, 16);
	/* Advertisement; solicited, override; the checksum follows. */
	lw_echo_put16(message, 136 << 8);
	lw_echo_put16(message + 2, 0);
	lw_echo_put16(message + 4, 0x6000);
	lw_echo_put16(message + 6, 0);
	if (has_option) {
		if (message + LW_ECHO_NS_BYTES + LW_ECHO_NS_OPTION_BYTES > view->end)
			return LW_ECHO_DROPPED_LENGTH; /* for the verifier: seen above */
		lw_echo_put16(message + LW_ECHO_NS_BYTES, 0x0201);
		__builtin_memcpy(message + LW_ECHO_NS_BYTES + 2, c->mac, 6);
		lw_echo_put16(message + 2, (__u16)~lw_echo_nd_sum(p, 1));
	} else {
		lw_echo_put16(message + 2, (__u16)~lw_echo_nd_sum(p, 0));
	}
	return LW_ECHO_ANSWERED_ND;
}

LW_INLINE __u32 lw_echo_ipv6(const struct lw_view *view, __u32 off, const struct lw_echo_config *c,
			     const struct lw_echo_limits *limits)
{
	__u8 *eth = (__u8 *)view->data, *p = eth + off;
	struct lw_echo_key source;
	__u32 payload, fate;

	if (p + 40 > view->end)
		return LW_ECHO_PASSED_TRUNCATED;
	if (p[0] >> 4 != 6)
		return LW_ECHO_PASSED_BAD_HEADER;
	if (p[6] != 58 && !lw_is_extension(p[6]))
		return LW_ECHO_PASSED_PROTOCOL;
	if (p[6] == 58 && p + 41 <= view->end && p[40] == 135)
		return lw_echo_nd(view, off, c);
	fate = lw_echo_audience(eth, c, p[24] == 0xff);
	if (fate != LW_ECHO_FATES)
		return fate;
	if (!lw_echo_owns_v6(p + 24))
		return LW_ECHO_PASSED_FOREIGN_ADDRESS;
	if (p[6] == 44)
		return LW_ECHO_PASSED_FRAGMENT;
	if (p[6] != 58)
		return LW_ECHO_PASSED_OPTIONS;
	payload = lw_be16(p + 4);
	if (p + 48 > view->end || payload < 8)
		return LW_ECHO_PASSED_TRUNCATED;
	if (lw_be16(p + 40) != 128 << 8)
		return LW_ECHO_PASSED_OTHER_ICMP;
	if (off + 40 + payload > view->len)
		return LW_ECHO_DROPPED_LENGTH;
	if (!lw_echo_is_sender_v6(p + 8) || lw_echo_owns_v6(p + 8) || (eth[6] & 1))
		return LW_ECHO_DROPPED_SOURCE;
	source = lw_echo_key_v6(p + 8);
	fate = lw_echo_limit(view, limits, &source, LW_ECHO_ANSWERED_ECHO_V6);
	if (fate != LW_ECHO_ANSWERED_ECHO_V6)
		return fate;

	lw_echo_turn_round(eth, c);
	p[7] = c->ttl;
	__builtin_memcpy(p + 8, p + 24, 16);
	__builtin_memcpy(p + 24, &source, 16);
	lw_echo_put16(p + 40, 129 << 8);
	lw_echo_put16(p + 42, lw_echo_follow(lw_be16(p + 42), 128 << 8, 129 << 8));
	return fate;
}

LW_INLINE __u32 lw_echo_arp(const struct lw_view *view, __u32 off, const struct lw_echo_config *c)
{
	__u8 *eth = (__u8 *)view->data, *p = eth + off;
	__u8 sender[10];

	if (p + LW_ECHO_ARP_BYTES > view->end)
		return LW_ECHO_PASSED_TRUNCATED;
	/* Ethernet, IPv4, 6 and 4 bytes, a request. */
	if (!c->answers_neighbours || lw_be32(p) != 0x00010800 || lw_be32(p + 4) != 0x06040001)
		return LW_ECHO_PASSED_NEIGHBOUR;
	if (!lw_echo_owns_v4(p + 24))
		return LW_ECHO_PASSED_FOREIGN_ADDRESS;
	if (!(eth[0] & 1) && !lw_echo_is_own_mac(eth, c))
		return LW_ECHO_PASSED_FOREIGN_MAC;
	if (lw_be32(p + 14) != 0 && (!lw_echo_is_sender_v4(p + 14) || lw_echo_owns_v4(p + 14)))
		return LW_ECHO_PASSED_NEIGHBOUR;
	if ((p[8] & 1) || (eth[6] & 1))
		return LW_ECHO_PASSED_NEIGHBOUR;

	lw_echo_turn_round(eth, c);
	p[7] = 2;
	__builtin_memcpy(sender, p + 8, 10);
	__builtin_memcpy(p + 8, c->mac, 6);
	__builtin_memcpy(p + 14, p + 24, 4);
	__builtin_memcpy(p + 18, sender, 10);
	return LW_ECHO_ANSWERED_ARP;
}

/* What becomes of the frame; an answer has been written into it. */
LW_INLINE __u32 lw_echo(const struct lw_view *view, const struct lw_echo_config *c,
			const struct lw_echo_limits *limits)
{
	const __u8 *p = view->data;
	__u32 off = LW_ETH_BYTES;
	__u16 eth_type;

	if (p + LW_ETH_BYTES > view->end)
		return LW_ECHO_PASSED_TRUNCATED;
	eth_type = lw_be16(p + 12);
	for (int i = 0; i < LW_VLAN_TAGS_MAX && lw_is_vlan(eth_type); i++) {
		if (p + off + 4 > view->end)
			return LW_ECHO_PASSED_TRUNCATED;
		eth_type = lw_be16(p + off + 2);
		off += 4;
	}
	if (eth_type == 0x0800)
		return lw_echo_ipv4(view, off, c, limits);
	if (eth_type == 0x86dd)
		return lw_echo_ipv6(view, off, c, limits);
	if (eth_type == 0x0806)
		return lw_echo_arp(view, off, c);
	return LW_ECHO_PASSED_PROTOCOL;
}

#endif
