// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The referee: the kernel half's relay.h on the host.
 *
 *   stdin:  u32 ttl_min, ifindex and slot, lw_relay_output, then frames: u32 length and bytes
 *   stdout: for each frame its fate, lw_relay_datagram, s32 bytes of payload after the rewriting, the frame
 *           with its ticket, the frame as the output has it; the last three are the frame's own where it
 *           is not sent
 *
 * Each frame lies in memory of exactly its length, so that a sanitizer sees a read beyond it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay.h"

int main(void)
{
	__u32 head[3], len;
	struct lw_relay_output output;

	if (fread(head, sizeof(head), 1, stdin) != 1 || fread(&output, sizeof(output), 1, stdin) != 1)
		return 1;
	while (fread(&len, sizeof(len), 1, stdin) == 1) {
		__u8 *bytes = malloc(len), *marked = malloc(len), fate;
		struct lw_view view = { .data = bytes, .end = bytes + len, .len = len };
		struct lw_relay_datagram d;
		__s32 payload = -1;

		memset(&d, 0, sizeof(d));
		d.to.ifindex = head[1];
		if (!bytes || !marked || fread(bytes, len, 1, stdin) != 1)
			return 1;
		fate = lw_relay_parse(&view, head[0], &d);
		memcpy(marked, bytes, len);
		if (fate == LW_RELAY_SENT) {
			struct lw_relay_ticket ticket;

			if (!lw_relay_mark(bytes, view.end, head[2], &d))
				return 1;
			memcpy(marked, bytes, len);
			memcpy(&ticket, bytes, sizeof(ticket));
			payload = lw_relay_rewrite(bytes, view.end, &ticket, &output);
		}
		fwrite(&fate, 1, 1, stdout);
		fwrite(&d, sizeof(d), 1, stdout);
		fwrite(&payload, sizeof(payload), 1, stdout);
		fwrite(marked, len, 1, stdout);
		fwrite(bytes, len, 1, stdout);
		free(bytes);
		free(marked);
	}
	return 0;
}
