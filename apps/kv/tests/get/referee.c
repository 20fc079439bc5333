// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The referee: the kernel half's get.h on the host.
 *
 * On stdin: lw_kv_config, the epoch (64 bits), then version and entry of each slot; then length and bytes of each
 * frame. On stdout: fate (one byte), length and bytes of each. Each frame lies in memory of exactly its length, so that
 * a sanitizer sees an access beyond it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "get.h"

static struct lw_kv_config config;
static __u64 epoch, *versions;
static struct lw_kv_entry *entries;
static struct lw_kv_copy copy;

LW_INLINE const struct lw_kv_entry *lw_kv_entry(__u32 slot)
{
	return slot < config.slots ? &entries[slot] : NULL;
}

LW_INLINE const volatile __u64 *lw_kv_version(__u32 slot)
{
	return slot < config.slots ? &versions[slot] : NULL;
}

LW_INLINE struct lw_kv_copy *lw_kv_copy(void)
{
	return &copy;
}

LW_INLINE __u32 lw_kv_epoch(void)
{
	return (__u32)epoch;
}

LW_INLINE void lw_kv_barrier(void)
{
}

LW_INLINE long lw_kv_store(struct lw_view *view, __u32 off, const void *from, __u32 len)
{
	if (off > view->len || len > view->len - off)
		return -1;
	memcpy((__u8 *)view->data + off, from, len);
	return 0;
}

LW_INLINE void lw_kv_cut(struct lw_view *view, __u32 len)
{
	view->len = len;
}

static int take(void *to, size_t bytes)
{
	return !bytes || fread(to, bytes, 1, stdin) == 1;
}

int main(void)
{
	__u32 len;

	if (!take(&config, sizeof(config)) || !take(&epoch, sizeof(epoch)))
		return 1;
	versions = calloc(config.slots, sizeof(*versions));
	entries = calloc(config.slots, sizeof(*entries));
	if (!versions || !entries)
		return 1;
	for (__u32 i = 0; i < config.slots; i++)
		if (!take(&versions[i], sizeof(*versions)) || !take(&entries[i], sizeof(*entries)))
			return 1;
	while (take(&len, sizeof(len))) {
		__u8 *bytes = malloc(len);
		struct lw_view view = { .data = bytes, .end = bytes + len, .len = len };

		if (len && (!bytes || !take(bytes, len)))
			return 1;
		putchar((int)lw_kv_get(&view, &config));
		fwrite(&view.len, sizeof(view.len), 1, stdout);
		fwrite(bytes, view.len, 1, stdout);
		free(bytes);
	}
	free(versions);
	free(entries);
	return 0;
}
