// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The referee of tests/referee.rs: the kernel half's flow.h and filter.h on the host, with the
 * plainest table there is (a list that is searched from the start, no scan, no capacity).
 *
 *   referee flows IDLE_NS ACTIVE_NS END_NS   lw_record* on stdin -> lw_flow_record* on stdout
 *   referee filter                           lw_filter, lw_record* -> one byte 0 or 1 per record
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter.h"
#include "flow.h"

struct entry {
	struct lw_flow_record r;
	struct entry *next;
};

static void end(struct entry *e, __u8 why)
{
	lw_flow_close(&e->r.flow, why);
	fwrite(&e->r, sizeof(e->r), 1, stdout);
	memset(&e->r.flow, 0, sizeof(e->r.flow));
}

static int flows(const struct lw_flow_limits *limits)
{
	struct entry *first = NULL, *e;
	struct lw_record r;
	struct lw_clock clock = {};
	__u64 floor;

	while (fread(&r, sizeof(r), 1, stdin) == 1) {
		struct lw_flow_key key;
		__u64 now = lw_clock_tick(&clock, &r);
		__u8 src_is_lo, why;

		if (!lw_flow_eligible(&r))
			continue;
		memset(&key, 0, sizeof(key));
		src_is_lo = lw_flow_key_of(&r, &key);
		for (e = first; e; e = e->next)
			if (!memcmp(&e->r.key, &key, sizeof(key)))
				break;
		if (!e) {
			e = calloc(1, sizeof(*e));
			if (!e)
				return 1;
			e->r.key = key;
			e->next = first;
			first = e;
		} else {
			why = lw_flow_ended(&e->r.flow, limits, &r, now);
			if (why)
				end(e, why);
		}
		lw_flow_add(&e->r.flow, &r, now, src_is_lo);
	}
	floor = clock.now_ns > LW_CLOCK_BEHIND_NS ? clock.now_ns - LW_CLOCK_BEHIND_NS : 0;
	if (clock.stamps < 2)
		floor = 0;
	while ((e = first)) {
		__u8 why = lw_flow_ended(&e->r.flow, limits, NULL, floor);

		end(e, why ? why : LW_END_FORCED);
		first = e->next;
		free(e);
	}
	return 0;
}

static int filter(void)
{
	static struct lw_filter rules;
	struct lw_record r;

	if (fread(&rules, sizeof(rules), 1, stdin) != 1)
		return 1;
	while (fread(&r, sizeof(r), 1, stdin) == 1)
		putchar(lw_filter_admits(&rules, &r));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "flows")) {
		struct lw_flow_limits limits = {
			.idle_ns = strtoull(argv[2], NULL, 10),
			.active_ns = strtoull(argv[3], NULL, 10),
			.end_ns = strtoull(argv[4], NULL, 10),
		};

		return flows(&limits);
	}
	if (argc == 2 && !strcmp(argv[1], "filter"))
		return filter();
	fprintf(stderr, "referee: say flows IDLE_NS ACTIVE_NS END_NS, or filter\n");
	return 2;
}
