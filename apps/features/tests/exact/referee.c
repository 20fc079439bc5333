// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The referee: the kernel half's parse.h and filter.h on the host.
 *
 *   referee parse    head and bytes of each frame on stdin -> one lw_record each
 *   referee filter   lw_filter, lw_record* on stdin -> one byte 0 or 1 per record
 *
 * Each frame lies in memory of exactly its length, so that a sanitizer sees a read beyond it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter.h"
#include "parse.h"

struct head {
	__u64 ts_ns;
	__u64 seq_no;
	__u32 frame_len;
	__u32 cap_len;
};

static int parse(void)
{
	struct head head;

	while (fread(&head, sizeof(head), 1, stdin) == 1) {
		struct lw_record r = {
			.ts_ns = head.ts_ns,
			.seq_no = head.seq_no,
			.frame_len = head.frame_len,
			.cap_len = head.cap_len,
		};
		__u8 *bytes = malloc(head.cap_len);
		struct lw_view view = { .data = bytes, .end = bytes + head.cap_len,
					.len = head.cap_len };

		if (head.cap_len && (!bytes || fread(bytes, head.cap_len, 1, stdin) != 1))
			return 1;
		lw_parse(&view, &r);
		fwrite(&r, sizeof(r), 1, stdout);
		free(bytes);
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
	if (argc == 2 && !strcmp(argv[1], "parse"))
		return parse();
	if (argc == 2 && !strcmp(argv[1], "filter"))
		return filter();
	fprintf(stderr, "referee: say parse or filter\n");
	return 2;
}
