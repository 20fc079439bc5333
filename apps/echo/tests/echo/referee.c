// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The referee: the kernel half's echo.h on the host.
 *
 * On stdin: lw_echo_config, two lw_echo_schedule, the number of addresses of ours and their keys;
 * then time, length and bytes of each frame. On stdout: fate (one byte) and bytes of each.
 *
 * Each frame lies in memory of exactly its length, so that a sanitizer sees an access beyond it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echo.h"

#define SOURCES_MAX 65536

static struct lw_echo_config config;
static struct lw_echo_schedule per_source, global;
static struct lw_echo_key *owned;
static __u32 owned_count;
static struct {
	struct lw_echo_key key;
	__u64 due_ns;
} sources[SOURCES_MAX];
static __u32 source_count;
static __u64 due_ns, now_ns;

static int same(const struct lw_echo_key *a, const struct lw_echo_key *b)
{
	return !memcmp(a, b, sizeof(*a));
}

LW_INLINE int lw_echo_owns(const struct lw_echo_key *key)
{
	for (__u32 i = 0; i < owned_count; i++)
		if (same(&owned[i], key))
			return 1;
	return 0;
}

LW_INLINE __u64 *lw_echo_source_due(const struct lw_echo_key *key)
{
	__u32 i = 0;

	while (i < source_count && !same(&sources[i].key, key))
		i++;
	if (i == SOURCES_MAX)
		return NULL;
	if (i == source_count)
		sources[source_count++].key = *key;
	return &sources[i].due_ns;
}

LW_INLINE __u64 *lw_echo_global_due(void)
{
	return &due_ns;
}

LW_INLINE __u64 lw_echo_now_ns(const struct lw_view *view)
{
	return now_ns;
}

static int take(void *to, size_t bytes)
{
	return !bytes || fread(to, bytes, 1, stdin) == 1;
}

int main(void)
{
	const struct lw_echo_limits limits = { .per_source = &per_source, .global = &global };
	__u32 len;

	if (!take(&config, sizeof(config)) || !take(&per_source, sizeof(per_source)) ||
	    !take(&global, sizeof(global)) || !take(&owned_count, sizeof(owned_count)))
		return 1;
	owned = calloc(owned_count, sizeof(*owned));
	if (!owned || !take(owned, owned_count * sizeof(*owned)))
		return 1;
	while (take(&now_ns, sizeof(now_ns))) {
		__u8 *bytes;
		struct lw_view view;

		if (!take(&len, sizeof(len)))
			return 1;
		bytes = malloc(len);
		view = (struct lw_view){ .data = bytes, .end = bytes + len, .len = len };
		if (len && (!bytes || !take(bytes, len)))
			return 1;
		putchar((int)lw_echo(&view, &config, &limits));
		fwrite(bytes, len, 1, stdout);
		free(bytes);
	}
	free(owned);
	return 0;
}
