/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * GET over UDP, answered where a frame arrives: which frames ask for a key, and the answer in place. Compiled for eBPF
 * and, as the tests' referee, for the host. src/get/ has the protocol in Rust; what this leaves, the worker answers.
 *
 * A request: 8 bytes (number, sequence 0, total 1, reserved 0; big-endian, as memcached's), then one RESP GET, then
 * padding up to the longest reply that is wanted. A reply has the same 8 bytes and is never longer than its request.
 *
 * The cache is two arrays, an entry and a version per slot. A key stands in the slot that its hash says or in that
 * slot's neighbour, so that two keys with one hash need not take turns. A version is the epoch in its upper half and
 * a count in its lower one; the entry may be used while the count is even and not 0 and the epoch is that of now. The
 * writer, one thread, makes the version odd, writes the entry, and makes the version even; to forget a key it makes
 * it odd, to forget all it changes the epoch. So a reader that finds the same version behind its copy has copied one
 * entry whole.
 *
 * The includer defines the functions declared first.
 */
#ifndef LANEWAY_KV_GET_H
#define LANEWAY_KV_GET_H

#include <laneway/bytes.h>

/* The longest key and reply in the cache, bytes. Mirrors of src/get/cache.rs. */
#define LW_KV_KEY_BYTES_MAX 128
#define LW_KV_REPLY_BYTES_MAX 1024
#define LW_KV_KEY_WORDS (LW_KV_KEY_BYTES_MAX / 8)
#define LW_KV_REPLY_WORDS (LW_KV_REPLY_BYTES_MAX / 8)
#define LW_KV_LISTEN_MAX 4
#define LW_KV_ALLOWED_MAX 16

#define LW_KV_ETH_BYTES 14
#define LW_KV_HEAD_BYTES 8
/* "*2\r\n$3\r\nGET\r\n$", then as few bytes as a GET of a key of one byte has. */
#define LW_KV_PREFIX_BYTES 14
#define LW_KV_BODY_BYTES_MIN 20
/* Services have lower ports; an answer to one might be a question to it. */
#define LW_KV_SOURCE_PORT_MIN 1024
/* Ethernet wants so many bytes at least, without its checksum. */
#define LW_KV_FRAME_BYTES_MIN 60

/* What became of a frame; mirror of `KernelFate` in src/get/cache.rs. */
enum lw_kv_fate {
	LW_KV_OTHER = 0, /* no datagram for us */
	LW_KV_HIT = 1,
	LW_KV_LEFT_MISS = 2,
	LW_KV_LEFT_FORM = 3, /* another header, another command, or cut */
	LW_KV_LEFT_LONG_KEY = 4,
	LW_KV_LEFT_LONG_REPLY = 5, /* than its request */
	LW_KV_LEFT_CHANGED = 6, /* the entry, while it was copied */
	LW_KV_DROPPED_SOURCE = 7,
	LW_KV_FATES = 8,
};

/* 16 bytes: an IPv6 address, or an IPv4 address mapped (::ffff:0:0/96). */
struct lw_kv_address {
	__u32 word[4];
};

struct lw_kv_listen {
	struct lw_kv_address address;
	__u32 port;
};

struct lw_kv_allowed {
	struct lw_kv_address address;
	struct lw_kv_address mask;
};

struct lw_kv_config {
	__u64 seed;
	__u32 slots; /* a power of two */
	__u32 listen_count;
	__u32 allowed_count;
	__u32 unused;
	struct lw_kv_listen listen[LW_KV_LISTEN_MAX];
	struct lw_kv_allowed allowed[LW_KV_ALLOWED_MAX];
};

struct lw_kv_entry {
	__u32 key_bytes;
	__u32 reply_bytes;
	__u32 reply_sum; /* of the reply's big-endian words, folded */
	__u32 unused;
	__u64 key[LW_KV_KEY_WORDS]; /* behind its end zeros */
	__u64 reply[LW_KV_REPLY_WORDS];
};

/* A copy of a reply: an entry may change at any time, and what was written over a request cannot be left any more. */
struct lw_kv_copy {
	__u64 reply[LW_KV_REPLY_WORDS];
};

/* The entry of a slot, and its version; null if there is none. */
LW_INLINE const struct lw_kv_entry *lw_kv_entry(__u32 slot);
LW_INLINE const volatile __u64 *lw_kv_version(__u32 slot);
/* This CPU's copy. */
LW_INLINE struct lw_kv_copy *lw_kv_copy(void);
/* The epoch of now. */
LW_INLINE __u32 lw_kv_epoch(void);
/* What was read before is read before what is read behind. */
LW_INLINE void lw_kv_barrier(void);
/* Copies to the frame; negative if it is not that long. */
LW_INLINE long lw_kv_store(struct lw_view *view, __u32 off, const void *from, __u32 len);
/* Cuts the frame to `len` bytes. */
LW_INLINE void lw_kv_cut(struct lw_view *view, __u32 len);

LW_INLINE void lw_kv_put16(__u8 *p, __u32 word)
{
	p[0] = (__u8)(word >> 8);
	p[1] = (__u8)word;
}

LW_INLINE __u32 lw_kv_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

LW_INLINE struct lw_kv_address lw_kv_address_v4(const __u8 *p)
{
	struct lw_kv_address address = { .word = { 0, 0, 0, 0 } };
	__u8 ones[4] = { 0, 0, 0xff, 0xff };

	__builtin_memcpy(&address.word[2], ones, 4);
	__builtin_memcpy(&address.word[3], p, 4);
	return address;
}

LW_INLINE struct lw_kv_address lw_kv_address_v6(const __u8 *p)
{
	struct lw_kv_address address;

	__builtin_memcpy(&address, p, 16);
	return address;
}

LW_INLINE int lw_kv_listens(const volatile struct lw_kv_config *c, const struct lw_kv_address *at,
			    __u32 port)
{
	for (__u32 i = 0; i < LW_KV_LISTEN_MAX && i < c->listen_count; i++) {
		__u32 differs = c->listen[i].port ^ port;

		for (int w = 0; w < 4; w++)
			differs |= at->word[w] ^ c->listen[i].address.word[w];
		if (!differs)
			return 1;
	}
	return 0;
}

LW_INLINE int lw_kv_allows(const volatile struct lw_kv_config *c, const struct lw_kv_address *from)
{
	for (__u32 i = 0; i < LW_KV_ALLOWED_MAX && i < c->allowed_count; i++) {
		__u32 differs = 0;

		for (int w = 0; w < 4; w++)
			differs |= (from->word[w] & c->allowed[i].mask.word[w]) ^
				   c->allowed[i].address.word[w];
		if (!differs)
			return 1;
	}
	return 0;
}

/* May be used now? */
LW_INLINE int lw_kv_is_valid(__u64 version)
{
	return (version & 0xffffffff) && !(version & 1) && version >> 32 == lw_kv_epoch();
}

LW_INLINE __u64 lw_kv_hash(__u64 seed, const __u64 *key, __u32 key_bytes)
{
	__u64 hash = seed ^ key_bytes;

#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (int i = 0; i < LW_KV_KEY_WORDS; i++) {
		hash = (hash ^ key[i]) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 32;
	}
	return hash;
}

/* The digit that this is, or 10. */
LW_INLINE __u32 lw_kv_digit(__u8 byte)
{
	return byte >= '0' && byte <= '9' ? byte - '0' : 10;
}

/*
 * `bytes`, which are from 1 to `most`, a power of two, in a form that shows it to the verifier of Linux 6.1: a helper
 * takes no length that may be 0, and 6.1 does not conclude from `bytes != 0` that it is more.
 */
LW_INLINE __u32 lw_kv_length(__u32 bytes, __u32 most)
{
	bytes -= 1;
	LW_FORGET(bytes);
	return (bytes & (most - 1)) + 1;
}

/* A valid entry, with the version that it had when its key was compared. */
struct lw_kv_found {
	const struct lw_kv_entry *entry;
	const volatile __u64 *version_at;
	__u64 version;
};

/* The entry of a key in one slot; false if another is there, or none. */
LW_INLINE int lw_kv_is_in(__u32 slot, const __u64 *key, __u32 key_bytes, struct lw_kv_found *found)
{
	__u64 differs;

	found->version_at = lw_kv_version(slot);
	found->entry = lw_kv_entry(slot);
	if (!found->version_at || !found->entry)
		return 0;
	found->version = *found->version_at;
	if (!lw_kv_is_valid(found->version))
		return 0;
	lw_kv_barrier();
	differs = found->entry->key_bytes ^ key_bytes;
#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (int i = 0; i < LW_KV_KEY_WORDS; i++)
		differs |= found->entry->key[i] ^ key[i];
	return !differs;
}

/*
 * The answer to the datagram whose UDP header is at `udp_at`, written over it with its header; the caller turns the
 * headers in front round. `bytes` are those of the answer's UDP datagram, header included; `sum` that of its bytes
 * behind the checksum field, folded.
 */
LW_INLINE __u32 lw_kv_answer(struct lw_view *view, const volatile struct lw_kv_config *c,
			     __u32 udp_at, __u32 *bytes, __u32 *sum)
{
	__u8 *udp = (__u8 *)view->data + udp_at, *head = udp + 8, *body = head + LW_KV_HEAD_BYTES;
	__u32 udp_bytes, key_bytes, digit, key_at, reply_bytes;
	struct lw_kv_found found = { 0 };
	struct lw_kv_copy *copy;
	__u64 key[LW_KV_KEY_WORDS] = { 0 };
	__u8 end[2];
	__u32 slot;

	if (body + LW_KV_BODY_BYTES_MIN > view->end)
		return LW_KV_LEFT_FORM;
	udp_bytes = lw_be16(udp + 4);
	if (udp_bytes < 8 + LW_KV_HEAD_BYTES + LW_KV_BODY_BYTES_MIN ||
	    udp_at + udp_bytes > view->len)
		return LW_KV_LEFT_FORM;
	/* The only datagram of its request. */
	if (lw_be16(head + 2) || lw_be16(head + 4) != 1 || lw_be16(head + 6))
		return LW_KV_LEFT_FORM;
	if (lw_be32(body) != 0x2a320d0a || lw_be32(body + 4) != 0x24330d0a ||
	    ((lw_be32(body + 8) | 0x20202000) & 0xffffff00) != 0x67657400 ||
	    body[11] != '\r' || body[12] != '\n' || body[13] != '$')
		return LW_KV_LEFT_FORM;
	/* One to three digits, the first not 0. */
	key_bytes = lw_kv_digit(body[14]);
	if (key_bytes == 0 || key_bytes > 9)
		return LW_KV_LEFT_FORM;
	key_at = 15;
	digit = lw_kv_digit(body[15]);
	if (digit < 10) {
		key_bytes = key_bytes * 10 + digit;
		key_at = 16;
		digit = lw_kv_digit(body[16]);
		if (digit < 10) {
			key_bytes = key_bytes * 10 + digit;
			key_at = 17;
		}
	}
	key_at += udp_at + 8 + LW_KV_HEAD_BYTES;
	if (lw_load(view, key_at, end, 2) || end[0] != '\r' || end[1] != '\n')
		return key_bytes > 99 ? LW_KV_LEFT_LONG_KEY : LW_KV_LEFT_FORM;
	key_at += 2;
	LW_FORGET(key_bytes);
	if (key_bytes < 1 || key_bytes > LW_KV_KEY_BYTES_MAX)
		return LW_KV_LEFT_LONG_KEY;
	if (key_at + key_bytes + 2 > udp_at + udp_bytes ||
	    lw_load(view, key_at, key, lw_kv_length(key_bytes, LW_KV_KEY_BYTES_MAX)) ||
	    lw_load(view, key_at + key_bytes, end, 2) || end[0] != '\r' || end[1] != '\n')
		return LW_KV_LEFT_FORM;

	slot = (__u32)lw_kv_hash(c->seed, key, key_bytes) & (c->slots - 1);
	copy = lw_kv_copy();
	if (!copy)
		return LW_KV_LEFT_MISS;
	if (!lw_kv_is_in(slot, key, key_bytes, &found) &&
	    !lw_kv_is_in((slot ^ 1) & (c->slots - 1), key, key_bytes, &found))
		return LW_KV_LEFT_MISS;
	/* Shown to the verifier once more: it does not follow that what was found is there. */
	if (!found.entry || !found.version_at)
		return LW_KV_LEFT_MISS;
	reply_bytes = *(const volatile __u32 *)&found.entry->reply_bytes;
	LW_FORGET(reply_bytes);
	if (reply_bytes < 1 || reply_bytes > LW_KV_REPLY_BYTES_MAX)
		return LW_KV_LEFT_MISS;
	if (8 + LW_KV_HEAD_BYTES + reply_bytes > udp_bytes)
		return LW_KV_LEFT_LONG_REPLY;
	*sum = *(const volatile __u32 *)&found.entry->reply_sum;
	for (__u32 i = 0; i < LW_KV_REPLY_WORDS && i * 8 < reply_bytes; i++)
		copy->reply[i] = ((const volatile __u64 *)found.entry->reply)[i];
	lw_kv_barrier();
	if (*found.version_at != found.version)
		return LW_KV_LEFT_CHANGED;
	if (lw_kv_store(view, udp_at + 8 + LW_KV_HEAD_BYTES, copy->reply,
			lw_kv_length(reply_bytes, LW_KV_REPLY_BYTES_MAX)))
		return LW_KV_LEFT_FORM;
	*bytes = 8 + LW_KV_HEAD_BYTES + reply_bytes;
	for (int i = 0; i < LW_KV_HEAD_BYTES; i += 2)
		*sum += lw_be16(head + i);
	return LW_KV_HIT;
}

/* The UDP header of an answer; `sum` is that of its addresses and bytes. */
LW_INLINE void lw_kv_turn_udp(__u8 *udp, __u32 bytes, __u32 sum)
{
	__u8 port[2];

	__builtin_memcpy(port, udp, 2);
	__builtin_memcpy(udp, udp + 2, 2);
	__builtin_memcpy(udp + 2, port, 2);
	lw_kv_put16(udp + 4, bytes);
	/* The pseudo-header has the length as well, and the protocol. */
	sum += lw_be16(udp) + lw_be16(udp + 2) + 2 * bytes + 17;
	sum = (__u16)~lw_kv_fold(sum);
	lw_kv_put16(udp + 6, sum ? sum : 0xffff);
}

LW_INLINE void lw_kv_turn_eth(__u8 *eth)
{
	__u8 mac[6];

	__builtin_memcpy(mac, eth, 6);
	__builtin_memcpy(eth, eth + 6, 6);
	__builtin_memcpy(eth + 6, mac, 6);
}

LW_INLINE void lw_kv_end(struct lw_view *view, __u32 len)
{
	if (len < LW_KV_FRAME_BYTES_MIN)
		len = LW_KV_FRAME_BYTES_MIN;
	if (len < view->len)
		lw_kv_cut(view, len);
}

/* May the sender of this frame be answered? */
LW_INLINE int lw_kv_is_source(const __u8 *eth, const __u8 *udp)
{
	__u32 port = lw_be16(udp);

	return port >= LW_KV_SOURCE_PORT_MIN && port != lw_be16(udp + 2) && !(eth[6] & 1);
}

LW_INLINE __u32 lw_kv_get_v4(struct lw_view *view, const volatile struct lw_kv_config *c)
{
	__u8 *eth = (__u8 *)view->data, *ip = eth + LW_KV_ETH_BYTES, *udp = ip + 20;
	struct lw_kv_address from, to;
	__u32 bytes, sum, header = 0, fate;
	__u8 address[4];

	if (udp + 8 > view->end)
		return LW_KV_OTHER;
	to = lw_kv_address_v4(ip + 16);
	if (ip[0] != 0x45 || ip[9] != 17 || !lw_kv_listens(c, &to, lw_be16(udp + 2)))
		return LW_KV_OTHER;
	from = lw_kv_address_v4(ip + 12);
	if (ip[12] == 0 || ip[12] >= 224 || lw_be32(ip + 12) == lw_be32(ip + 16) ||
	    !lw_kv_is_source(eth, udp) || !lw_kv_allows(c, &from))
		return LW_KV_DROPPED_SOURCE;
	if ((lw_be16(ip + 6) & 0x3fff) || lw_be16(ip + 2) != 20u + lw_be16(udp + 4))
		return LW_KV_LEFT_FORM;
	fate = lw_kv_answer(view, c, LW_KV_ETH_BYTES + 20, &bytes, &sum);
	if (fate != LW_KV_HIT)
		return fate;
	__builtin_memcpy(address, ip + 12, 4);
	__builtin_memcpy(ip + 12, ip + 16, 4);
	__builtin_memcpy(ip + 16, address, 4);
	lw_kv_put16(ip + 2, 20 + bytes);
	/* Not to be cut: the reply is no longer than the request. */
	ip[1] = 0;
	lw_kv_put16(ip + 4, 0);
	lw_kv_put16(ip + 6, 0x4000);
	ip[8] = 64;
	lw_kv_put16(ip + 10, 0);
	for (int i = 0; i < 20; i += 2)
		header += lw_be16(ip + i);
	lw_kv_put16(ip + 10, (__u16)~lw_kv_fold(header));
	for (int i = 12; i < 20; i += 2)
		sum += lw_be16(ip + i);
	lw_kv_turn_udp(udp, bytes, sum);
	lw_kv_turn_eth(eth);
	lw_kv_end(view, LW_KV_ETH_BYTES + 20 + bytes);
	return fate;
}

LW_INLINE __u32 lw_kv_get_v6(struct lw_view *view, const volatile struct lw_kv_config *c)
{
	__u8 *eth = (__u8 *)view->data, *ip = eth + LW_KV_ETH_BYTES, *udp = ip + 40;
	struct lw_kv_address from, to;
	__u32 bytes, sum, fate;

	if (udp + 8 > view->end)
		return LW_KV_OTHER;
	to = lw_kv_address_v6(ip + 24);
	if (ip[0] >> 4 != 6 || ip[6] != 17 || !lw_kv_listens(c, &to, lw_be16(udp + 2)))
		return LW_KV_OTHER;
	from = lw_kv_address_v6(ip + 8);
	if (ip[8] == 0xff || !lw_kv_is_source(eth, udp) || !lw_kv_allows(c, &from))
		return LW_KV_DROPPED_SOURCE;
	if (lw_be16(ip + 4) != lw_be16(udp + 4))
		return LW_KV_LEFT_FORM;
	fate = lw_kv_answer(view, c, LW_KV_ETH_BYTES + 40, &bytes, &sum);
	if (fate != LW_KV_HIT)
		return fate;
	__builtin_memcpy(ip + 8, &to, 16);
	__builtin_memcpy(ip + 24, &from, 16);
	lw_kv_put16(ip, 0x6000);
	lw_kv_put16(ip + 2, 0);
	lw_kv_put16(ip + 4, bytes);
	ip[7] = 64;
	for (int i = 8; i < 40; i += 2)
		sum += lw_be16(ip + i);
	lw_kv_turn_udp(udp, bytes, sum);
	lw_kv_turn_eth(eth);
	lw_kv_end(view, LW_KV_ETH_BYTES + 40 + bytes);
	return fate;
}

/* What becomes of the frame; an answer has been written into it. */
LW_INLINE __u32 lw_kv_get(struct lw_view *view, const volatile struct lw_kv_config *c)
{
	const __u8 *eth = view->data;

	if (eth + LW_KV_ETH_BYTES > view->end || (eth[0] & 1))
		return LW_KV_OTHER;
	if (lw_be16(eth + 12) == 0x0800)
		return lw_kv_get_v4(view, c);
	if (lw_be16(eth + 12) == 0x86dd)
		return lw_kv_get_v6(view, c);
	return LW_KV_OTHER;
}

#endif
