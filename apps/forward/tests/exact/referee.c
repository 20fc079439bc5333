// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The referee: the kernel half's forward.h on the host, with the same maps in plain arrays.
 *
 *   stdin:  lw_config, lw_bank, counts of routes, hops, neighbours and entries, those, then frames: u32
 *           length and bytes, each arriving on port 0
 *   stdout: for each frame lw_outcome and its bytes; then how many matches there were
 *
 * Each frame lies in memory of exactly its length, so that a sanitizer sees a read beyond it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forward.h"

struct route {
	__u32 bits;
	__u8 is_v4;
	__u8 zero[3];
	__u8 address[16]; /* on the left */
	__u32 hop;
};

struct neighbour {
	__u8 address[16];
	__u32 is_v4;
	__u8 mac[8];
};

/* An entry of the hash table; here they stand by their keys. */
struct stored {
	struct lw_key key;
	struct lw_entry entry;
};

static struct {
	__u32 routes;
	__u32 hops;
	__u32 neighbours;
	__u32 stored;
} sizes;
static struct route *routes;
static struct lw_hop *hops;
static struct neighbour *neighbours;
static struct stored *stored;
static __u64 matches;

LW_INLINE void lw_hit(__u32 slot, __u32 bytes)
{
	matches++;
}

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct lw_key));
}

LW_INLINE const struct lw_entry *lw_entry(const struct lw_key *key)
{
	const struct stored *found = bsearch(key, stored, sizes.stored, sizeof(*stored), by_key);

	return found ? &found->entry : 0;
}

static int covers(const struct route *r, const __u8 *address)
{
	for (__u32 bit = 0; bit < r->bits; bit++)
		if (((r->address[bit / 8] ^ address[bit / 8]) >> (7 - bit % 8)) & 1)
			return 0;
	return 1;
}

LW_INLINE int lw_route(const struct lw_fields *now, int is_v4, struct lw_hop *hop)
{
	const __u8 *address = is_v4 ? &now->dst_ip[12] : now->dst_ip;
	const struct route *best = 0;

	for (__u32 i = 0; i < sizes.routes; i++)
		if (!!is_v4 == routes[i].is_v4 && covers(&routes[i], address) &&
		    (!best || routes[i].bits >= best->bits))
			best = &routes[i];
	if (!best)
		return -1;
	*hop = hops[best->hop];
	return 0;
}

LW_INLINE int lw_neighbour(const struct lw_fields *now, int is_v4, __u8 *mac)
{
	for (__u32 i = 0; i < sizes.neighbours; i++)
		if (!!is_v4 == neighbours[i].is_v4 && !memcmp(neighbours[i].address, now->dst_ip, 16)) {
			memcpy(mac, neighbours[i].mac, 6);
			return 0;
		}
	return -1;
}

static void *read_array(__u32 count, size_t bytes)
{
	void *array = calloc(count + 1, bytes);

	if (!array || fread(array, bytes, count, stdin) != count)
		exit(1);
	return array;
}

int main(void)
{
	struct lw_config *config = read_array(1, sizeof(*config));
	struct lw_bank *bank = read_array(1, sizeof(*bank));
	__u32 len;

	if (fread(&sizes, sizeof(sizes), 1, stdin) != 1)
		return 1;
	routes = read_array(sizes.routes, sizeof(*routes));
	hops = read_array(sizes.hops, sizeof(*hops));
	neighbours = read_array(sizes.neighbours, sizeof(*neighbours));
	stored = read_array(sizes.stored, sizeof(*stored));
	qsort(stored, sizes.stored, sizeof(*stored), by_key);
	while (fread(&len, sizeof(len), 1, stdin) == 1) {
		__u8 *bytes = malloc(len);
		struct lw_view view = { .data = bytes, .end = bytes + len, .len = len };
		struct lw_room room;

		if (!bytes || fread(bytes, len, 1, stdin) != 1)
			return 1;
		lw_forward(config, bank->count || bank->tuples ? bank : 0, 0, &view, bytes, &room);
		fwrite(&room.outcome, sizeof(room.outcome), 1, stdout);
		fwrite(bytes, len, 1, stdout);
		free(bytes);
	}
	fwrite(&matches, sizeof(matches), 1, stdout);
	free(config);
	free(bank);
	free(routes);
	free(hops);
	free(neighbours);
	free(stored);
	return 0;
}
