/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The kernel's copy of the drop-reason table of crates/core/src/counters.rs. A test there
 * compares the two; a per-CPU counter array of a kernel half is indexed by these codes.
 */
#ifndef LANEWAY_DROP_REASON_H
#define LANEWAY_DROP_REASON_H

enum lw_drop_reason {
	LW_DROP_RX_QUEUE_FULL = 0,
	LW_DROP_RX_NO_FRAME = 1,
	LW_DROP_RX_ERROR = 2,
	LW_DROP_RX_TOO_LONG = 3,
	LW_DROP_RECORD_RING_FULL = 4,
	LW_DROP_TX_REFUSED = 5,
	LW_DROP_TX_TOO_LONG = 6,
	LW_DROP_TX_NO_PORT = 7,
	LW_DROP_LINK_LOSS = 8,
	LW_DROP_LINK_QUEUE_FULL = 9,
	LW_DROP_SAMPLED_OUT = 10,
	LW_DROP_FILTERED_OUT = 11,
	LW_DROP_RATE_LIMITED = 12,
	LW_DROP_SINK_FULL = 13,
	LW_DROP_FLOW_TABLE_FULL = 14,
	LW_DROP_LINK_TYPE_UNKNOWN = 15,
	LW_DROP_MALFORMED = 16,
	LW_DROP_BAD_CHECKSUM = 17,
	LW_DROP_NOT_FOR_US = 18,
	LW_DROP_NO_LISTENER = 19,
	LW_DROP_FRAGMENT = 20,
	LW_DROP_NO_NEIGHBOUR = 21,
	LW_DROP_NO_ROUTE = 22,
	LW_DROP_CONN_TABLE_FULL = 23,
	LW_DROP_TTL_EXPIRED = 24,
	LW_DROP_COUNT = 25,
};

#endif
