//! From question to answer, in place: the frame keeps its length, its tags and its data.
//!
//! Assumes a frame that `sort` found to be this question. Checksums are followed, not recomputed
//! (RFC 1624, equation 3), so that an answer costs the same for 64 bytes and for 64 kilobytes and does
//! not hide damage that happened on the way. That of a neighbour advertisement, which was verified
//! and is short, is computed.

use crate::sort::{
    ARP_BYTES, Kind, LINK_OPTION_BYTES, Question, SOLICITATION_BYTES, advertised_sum,
};
use laneway_wire::{IPV4_BYTES_MIN, IPV6_BYTES, Mac, checksum};

/// Types and codes of requests and replies, as the 16-bit words that they are to a checksum.
const REQUEST_V4: u16 = 8 << 8;
const REPLY_V4: u16 = 0;
const REQUEST_V6: u16 = 128 << 8;
const REPLY_V6: u16 = 129 << 8;
const ADVERTISEMENT: u8 = 136;
/// Solicited, override; not a router.
const ADVERTISEMENT_FLAGS: [u8; 4] = [0x60, 0, 0, 0];
/// Target link-layer address, one unit of 8 bytes.
const LINK_OPTION: [u8; 2] = [2, 1];
/// Neighbour discovery never crosses a router (RFC 4861, 7.1).
const LINK_HOP_LIMIT: u8 = 255;

/// Turns `question`, which `bytes` are, into its answer from `mac`.
#[inline]
pub(crate) fn answer(bytes: &mut [u8], question: Question, mac: Mac, ttl: u8) {
    // Back to its source MAC address: an echo app has no routes and no neighbours.
    bytes.copy_within(6..12, 0);
    bytes[6..12].copy_from_slice(&mac);
    let packet = &mut bytes[question.at..];
    match question.kind {
        Kind::EchoV4 => echo_v4(packet, ttl),
        Kind::EchoV6 => echo_v6(packet, ttl),
        Kind::Arp => arp(packet, mac),
        Kind::Nd { message_bytes } => nd(packet, message_bytes, mac),
    }
}

fn echo_v4(packet: &mut [u8], ttl: u8) {
    // Swapped addresses sum up as before; the TTL shares its word with the protocol.
    swap::<4>(packet, 12, 16);
    let before = be16(packet, 8);
    packet[8] = ttl;
    let after = be16(packet, 8);
    let sum = checksum::replace(be16(packet, 10), before, after);
    put16(packet, 10, sum);
    reply_v4(&mut packet[IPV4_BYTES_MIN..]);
}

/// Turns an ICMP echo request into its reply.
#[inline]
pub(crate) fn reply_v4(message: &mut [u8]) {
    put16(message, 0, REPLY_V4);
    let sum = followed_v4(be16(message, 2));
    put16(message, 2, sum);
}

/// The checksum of a reply from that of its request.
///
/// Where equation 3 gives 0, the reply has 0xffff: both are zero to a receiver that sums up, except that a
/// reply of nothing but zeros (identifier 0, number 0, data of zeros), which only ICMPv4 has, sums up
/// with 0xffff alone.
#[inline]
fn followed_v4(request: u16) -> u16 {
    match checksum::replace(request, REQUEST_V4, REPLY_V4) {
        0 => 0xffff,
        sum => sum,
    }
}

fn echo_v6(packet: &mut [u8], hop_limit: u8) {
    // The hop limit is in no checksum, the swapped addresses are in the pseudo-header as before.
    packet[7] = hop_limit;
    swap::<16>(packet, 8, 24);
    reply_v6(&mut packet[IPV6_BYTES..]);
}

/// Turns an ICMPv6 echo request into its reply.
#[inline]
pub(crate) fn reply_v6(message: &mut [u8]) {
    put16(message, 0, REPLY_V6);
    let sum = checksum::replace(be16(message, 2), REQUEST_V6, REPLY_V6);
    put16(message, 2, sum);
}

fn arp(packet: &mut [u8], mac: Mac) {
    let arp = &mut packet[..ARP_BYTES];
    arp[7] = 2;
    // Sender and target change places, hardware and protocol address each; ours is the news.
    swap::<10>(arp, 8, 18);
    arp[8..14].copy_from_slice(&mac);
}

fn nd(packet: &mut [u8], message_bytes: usize, mac: Mac) {
    // From the target, whatever group was asked, to the host that asked.
    packet[7] = LINK_HOP_LIMIT;
    packet.copy_within(8..24, 24);
    packet.copy_within(IPV6_BYTES + 8..IPV6_BYTES + 24, 8);
    let message = &mut packet[IPV6_BYTES..IPV6_BYTES + message_bytes];
    message[..4].copy_from_slice(&[ADVERTISEMENT, 0, 0, 0]);
    message[4..8].copy_from_slice(&ADVERTISEMENT_FLAGS);
    if message_bytes == SOLICITATION_BYTES + LINK_OPTION_BYTES {
        message[24..26].copy_from_slice(&LINK_OPTION);
        message[26..32].copy_from_slice(&mac);
    }
    let sum = !advertised_sum(packet, message_bytes);
    put16(packet, IPV6_BYTES + 2, sum);
}

/// Exchanges the `N` bytes at `a` with those at `b`, behind them.
#[inline]
fn swap<const N: usize>(bytes: &mut [u8], a: usize, b: usize) {
    let (front, back) = bytes.split_at_mut(b);
    front[a..a + N].swap_with_slice(&mut back[..N]);
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn put16(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// True if a message with these words and this checksum sums up.
    fn verifies(words: &[u16], checksum: u16) -> bool {
        let sum = words.iter().map(|&w| u64::from(w)).sum::<u64>() + u64::from(checksum);
        checksum::fold(sum) == 0xffff
    }

    /// For every checksum that a request can carry there is one word of data for which it is right;
    /// there the reply's must be right too, and for every other word wrong.
    #[test]
    fn every_one_of_65536_checksums_is_followed_from_8_to_0() {
        for request in 0..=u16::MAX {
            let word = !checksum::fold(u64::from(REQUEST_V4) + u64::from(request));
            assert!(verifies(&[REQUEST_V4, word], request));
            let reply = followed_v4(request);
            assert!(verifies(&[REPLY_V4, word], reply), "{request:04x}");
            let wrong = word.wrapping_add(0x0101);
            assert!(!verifies(&[REQUEST_V4, wrong], request));
            assert!(!verifies(&[REPLY_V4, wrong], reply), "{request:04x} was repaired");
            // Recomputing gives the same value but for the two forms of zero.
            let recomputed = !checksum::fold(u64::from(REPLY_V4) + u64::from(word));
            assert!(reply == recomputed || (reply == 0xffff && recomputed == 0), "{request:04x}");
        }
    }

    #[test]
    fn every_one_of_65536_checksums_is_followed_from_128_to_129() {
        for request in 0..=u16::MAX {
            let word = !checksum::fold(u64::from(REQUEST_V6) + u64::from(request));
            let reply = checksum::replace(request, REQUEST_V6, REPLY_V6);
            assert!(verifies(&[REPLY_V6, word], reply), "{request:04x}");
            assert!(!verifies(&[REPLY_V6, word.wrapping_add(0x0101)], reply), "{request:04x}");
            let recomputed = !checksum::fold(u64::from(REPLY_V6) + u64::from(word));
            assert_eq!(reply, recomputed, "{request:04x}");
        }
    }

    #[test]
    fn every_one_of_65536_header_checksums_is_followed_through_every_ttl() {
        for request in 0..=u16::MAX {
            // A sample of pairs that covers every TTL on either side over 256 checksums.
            let (old, new) = (request as u8, (request >> 8) as u8 ^ request as u8);
            let word = |ttl: u8| u16::from(ttl) << 8 | 1;
            let rest = !checksum::fold(u64::from(word(old)) + u64::from(request));
            let reply = checksum::replace(request, word(old), word(new));
            assert!(verifies(&[word(new), rest], reply), "{request:04x}: {old} to {new}");
        }
    }

    #[test]
    fn a_reply_of_zeros_alone_sums_up() {
        let reply = followed_v4(!REQUEST_V4);
        assert!(verifies(&[REPLY_V4, 0, 0, 0], reply), "{reply:04x}");
    }

    proptest! {
        #[test]
        fn a_reply_sums_up_exactly_if_its_request_did(
            mut words in proptest::collection::vec(any::<u16>(), 3..40), damage in any::<u16>()
        ) {
            words[0] = REQUEST_V4;
            let right = !checksum::fold(words.iter().map(|&w| u64::from(w)).sum());
            for request in [right, right ^ damage] {
                let before = verifies(&words, request);
                let mut reply = words.clone();
                reply[0] = REPLY_V4;
                prop_assert_eq!(verifies(&reply, followed_v4(request)), before);
            }
        }
    }
}
