/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The capture filter: up to 16 value/mask pairs over a record, any of which admits it. Compiled
 * from a flow-rule expression by `crates/flow` (rule.rs), which evaluates the same words in Rust.
 *
 * Everything of a record behind its time and number is matched: bytes 16 to 103 as eleven 64-bit
 * words of the host's byte order.
 */
#ifndef LANEWAY_FEATURES_FILTER_H
#define LANEWAY_FEATURES_FILTER_H

#include <laneway/bytes.h>

#include "record.h"

#define LW_FILTER_RULES_MAX 16
#define LW_FILTER_WORDS 11

struct lw_filter {
	__u32 count; /* 0: everything is admitted */
	__u32 unused;
	__u64 value[LW_FILTER_RULES_MAX][LW_FILTER_WORDS];
	__u64 mask[LW_FILTER_RULES_MAX][LW_FILTER_WORDS];
};

LW_INLINE int lw_filter_admits(const volatile struct lw_filter *filter, const struct lw_record *r)
{
	const __u64 *word = (const __u64 *)(const void *)r + 2;

	if (!filter->count)
		return 1;
	for (int i = 0; i < LW_FILTER_RULES_MAX && (__u32)i < filter->count; i++) {
		__u64 differs = 0;

		for (int w = 0; w < LW_FILTER_WORDS; w++)
			differs |= (word[w] & filter->mask[i][w]) ^ filter->value[i][w];
		if (!differs)
			return 1;
	}
	return 0;
}

#endif
