/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Waking the consumer of a kernel half's rings: the program's side of the protocol that
 * crates/bpf/src/rings.rs describes.
 */
#ifndef LANEWAY_WAKE_H
#define LANEWAY_WAKE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/*
 * The flags to submit a record with. `wanted_bytes` is the word of the map that the half declares:
 * 0 while the consumer is awake, else how many bytes must be pending in `ring` for it to be woken.
 *
 * Call it after the reservation. One wake-up per sleep: a wake-up is an interrupt, several
 * microseconds on a virtual machine, and a consumer that shares this CPU does not get to clear the
 * word before we are done. The side that clears it wakes, and the consumer does not block while it sees as
 * many bytes reserved; what is left of a race is in rings.rs.
 */
static __always_inline __u64 lw_wake_flags(void *ring, volatile __u32 *wanted_bytes)
{
	__u32 bytes = wanted_bytes ? *wanted_bytes : 0;

	if (!bytes || (bytes > 1 && bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) < bytes))
		return BPF_RB_NO_WAKEUP;
	*wanted_bytes = 0;
	return BPF_RB_FORCE_WAKEUP;
}

#endif
