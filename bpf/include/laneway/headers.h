/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which headers stand between Ethernet and layer 4, and how long they are: the counterpart of
 * `laneway-wire`'s `Layer2` and `Extensions`.
 *
 * The walks themselves stay with the programs: what a walk may read, and how far, is what the verifier
 * has to be shown in each of them.
 */
#ifndef LANEWAY_HEADERS_H
#define LANEWAY_HEADERS_H

#include <laneway/bytes.h>

#define LW_ETH_BYTES	  14
#define LW_VLAN_TAGS_MAX  2 /* tags that are stepped over; a third is layer 3 */
#define LW_EXTENSIONS_MAX 8 /* IPv6 extension headers that are stepped over */

#define LW_FRAGMENT_HEADER 44

/* True for the EtherTypes behind which a VLAN tag follows: 802.1Q, 802.1ad, and the one before it. */
LW_INLINE int lw_is_vlan(__u16 eth_type)
{
	return eth_type == 0x8100 || eth_type == 0x88a8 || eth_type == 0x9100;
}

/*
 * True for the next-header numbers that lead to an extension header whose length is known: hop-by-hop
 * and destination options, routing, fragment, authentication, mobility, host identity, shim6.
 */
LW_INLINE int lw_is_extension(__u8 next)
{
	return next == 0 || next == 43 || next == LW_FRAGMENT_HEADER || next == 51 || next == 60 ||
	       next == 135 || next == 139 || next == 140;
}

/* Bytes of the extension header of type `next` whose second byte is `length`. */
LW_INLINE __u32 lw_extension_bytes(__u8 next, __u8 length)
{
	if (next == LW_FRAGMENT_HEADER)
		return 8;
	return next == 51 ? (length + 2u) * 4 : (length + 1u) * 8;
}

/* What the fragment header at `h` says, as IPv4 has it: MF 0x2000, offset in units of 8 bytes. */
LW_INLINE __u16 lw_fragment_word(const __u8 *h)
{
	__u16 word = (__u16)(h[2] << 8 | h[3]);

	return (__u16)(word >> 3 | (word & 1) << 13);
}

#endif
