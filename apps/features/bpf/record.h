/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The packet record: what the extractor says about one frame. One layout for the kernel half, the
 * host and the tests' referee; `src/record.rs` mirrors it and a test compares the two.
 *
 * Host byte order throughout, addresses as on the wire (IPv4 as ::ffff:a.b.c.d). A field whose
 * LW_HAS_* bit is clear is zero. 104 bytes: the schema's fields need 94 for IPv6 and TCP; the rest
 * is interface, queue and alignment. Two address families in one layout cost IPv4 24 bytes and save
 * the consumer a branch per record.
 */
#ifndef LANEWAY_FEATURES_RECORD_H
#define LANEWAY_FEATURES_RECORD_H

#include <linux/types.h>

/* Why a frame has no more fields than it has. */
enum lw_status {
	LW_OK = 0,             /* parsed through layer 4 */
	LW_L2_TRUNCATED = 1,   /* fewer than 14 bytes, or a cut VLAN tag */
	LW_L3_UNKNOWN = 2,     /* neither IPv4 nor IPv6: ARP, LLC, a third VLAN tag ... */
	LW_L3_TRUNCATED = 3,   /* the IP header is cut */
	LW_L3_BAD_VERSION = 4, /* EtherType and version nibble disagree */
	LW_L3_BAD_LENGTH = 5,  /* header length below the minimum, or total below header length */
	LW_L3_EXT_LIMIT = 6,   /* more than LW_EXTENSIONS_MAX IPv6 extension headers */
	LW_FRAGMENT = 7,       /* not the first fragment: no layer-4 header here */
	LW_L4_UNKNOWN = 8,     /* a protocol whose header is not decoded: ESP, GRE, OSPF ... */
	LW_L4_TRUNCATED = 9,   /* the layer-4 header is cut by the capture */
	LW_L4_BAD_LENGTH = 10, /* the IP packet is too short for its layer-4 header */
	LW_STATUS_COUNT = 11,
};

#define LW_HAS_IPV4 0x0001
#define LW_HAS_IPV6 0x0002
#define LW_HAS_VLAN 0x0004
#define LW_HAS_VLAN2 0x0008
#define LW_HAS_FRAG 0x0010 /* IPv4: MF or offset; IPv6: a fragment header */
#define LW_HAS_PORTS 0x0020
#define LW_HAS_TCP 0x0040
#define LW_HAS_ICMP 0x0080
#define LW_HAS_MSS 0x0100
#define LW_HAS_WSCALE 0x0200
#define LW_HAS_IP_OPTIONS 0x0400     /* IPv4 options or IPv6 extension headers */
#define LW_HAS_BAD_TCP_OPTIONS 0x0800 /* SYN options that do not parse, or are cut */
#define LW_HAS_LEN_UNSTATED 0x1000 /* the IP header states length 0: ip_len is the frame's */
#define LW_HAS_LEN_BEYOND 0x2000   /* it states more than the frame has: ip_len is the frame's */

#define LW_HAS_NO_TIME 0x4000      /* the capture has no time for the frame: ts_ns is 0 */


struct lw_record {
	__u64 ts_ns;
	__u64 seq_no; /* number of the frame at its source (kernel half: on its CPU); gaps show loss */
	__u8 src_ip[16];
	__u8 dst_ip[16];
	__u32 frame_len; /* on the wire, without FCS */
	__u32 cap_len;
	__u32 tcp_seq;
	__u32 tcp_ack;
	__u16 src_port;
	__u16 dst_port;
	__u16 eth_type; /* after VLAN tags */
	__u16 vlan_tci; /* outer tag: PCP, DEI, VID */
	__u16 vlan_tci2;
	__u16 ip_len;  /* IPv4 total length, IPv6 payload length; low 16 bits if LEN_UNSTATED */
	__u16 ip_id;   /* IPv4 identification; low half of the IPv6 fragment's */
	__u16 frag;    /* IPv4's word: DF 0x4000, MF 0x2000, offset in units of 8 */
	__u16 tcp_win;
	__u16 tcp_mss;
	__u16 tcp_flags; /* FIN 1 SYN 2 RST 4 PSH 8 ACK 16 URG 32 ECE 64 CWR 128 AE 256 */
	__u16 l3_hdr_len; /* IPv6: with extension headers */
	__u8 l4_hdr_len;
	__u8 proto; /* IPv6: after extension headers */
	__u8 ttl;
	__u8 tos;
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 tcp_wscale;
	__u8 status; /* enum lw_status */
	__u16 has;   /* LW_HAS_* */
	__u16 rx_queue;
	__u32 ifindex; /* 0: not from an interface */
};

_Static_assert(sizeof(struct lw_record) == 104, "the record is part of the contract");

#endif
