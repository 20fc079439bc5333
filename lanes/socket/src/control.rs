//! Control messages: what the kernel reports beside a datagram, and what is asked beside a train.
//!
//! Plain bytes in and out, without pointers: a message is a header (length, level, type), its data, and
//! padding to the size of a word. What must always hold: any bytes are read without a panic, because
//! their length comes from the kernel's answer; and what is written always fits [`Control`].

use laneway_linux::Ipv4Info;
use std::{
    ffi::c_int,
    net::{IpAddr, Ipv6Addr},
};

/// Bytes of the header.
const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
/// What messages are aligned to.
const ALIGN_BYTES: usize = align_of::<libc::cmsghdr>();
/// Room for all that is ever asked for at once: an IPv6 address (40), a segment size (24) and a
/// stamp (32), each with its header, and a little.
const CONTROL_BYTES: usize = 128;

/// The control messages of one datagram or train: nothing but bytes, which the kernel may write.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; CONTROL_BYTES],
}

/// What the kernel reported beside a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControlInfo {
    /// The destination of the packet.
    pub(crate) destination: Option<IpAddr>,
    /// That is a broadcast address.
    pub(crate) is_broadcast: bool,
    /// Our own address that an answer should come from.
    pub(crate) answer_from: Option<IpAddr>,
    /// The number of the interface that it arrived at; 0 where that is not known.
    pub(crate) interface: u32,
    /// Bytes per datagram, if it is a train.
    pub(crate) segment_bytes: Option<usize>,
    /// When it arrived, by the wall clock.
    pub(crate) real_ns: Option<u64>,
}

impl Control {
    pub(crate) const EMPTY: Control = Control { bytes: [0; CONTROL_BYTES] };

    /// Reads the first `bytes` bytes.
    pub(crate) fn read(&self, bytes: usize) -> ControlInfo {
        let mut info = ControlInfo::default();
        let mut rest = self.bytes.get(..bytes).unwrap_or(&self.bytes);
        while let Some((level, kind, data, after)) = next(rest) {
            info.take(level, kind, data);
            rest = after;
        }
        info
    }

    /// Writes the control messages of a train; returns their length, 0 when there are none.
    pub(crate) fn write(&mut self, segment_bytes: Option<usize>, from: Option<IpAddr>) -> usize {
        let mut at = 0;
        if let Some(bytes) = segment_bytes {
            let bytes = u16::try_from(bytes).expect("no datagram of a train is beyond 64 KiB");
            self.push(&mut at, libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
        }
        match from {
            // in_pktinfo: interface 0 (any), the source, the header's destination (unused).
            Some(IpAddr::V4(from)) => {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&from.octets());
                self.push(&mut at, libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            // in6_pktinfo: the source, interface 0 (any).
            Some(IpAddr::V6(from)) => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&from.octets());
                self.push(&mut at, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            None => {}
        }
        at
    }

    fn push(&mut self, at: &mut usize, level: c_int, kind: c_int, data: &[u8]) {
        let length = HEADER_BYTES + data.len();
        let message = &mut self.bytes[*at..*at + length.next_multiple_of(ALIGN_BYTES)];
        message.fill(0);
        message[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
        message[HEADER_BYTES - 8..HEADER_BYTES - 4].copy_from_slice(&level.to_ne_bytes());
        message[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER_BYTES..length].copy_from_slice(data);
        *at += message.len();
    }
}

// The layout that `put` and `next` rely on.
const _: () = assert!(
    std::mem::offset_of!(libc::cmsghdr, cmsg_len) == 0
        && std::mem::offset_of!(libc::cmsghdr, cmsg_level) == HEADER_BYTES - 8
        && std::mem::offset_of!(libc::cmsghdr, cmsg_type) == HEADER_BYTES - 4
        && ALIGN_BYTES <= align_of::<Control>()
);

impl ControlInfo {
    fn take(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let Some(info) = Ipv4Info::read(data) else { return };
                self.answer_from = Some(info.own.into());
                self.destination = Some(info.destination.into());
                self.is_broadcast = info.is_broadcast();
                self.interface = info.interface;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let Some((octets, index)) = data.split_first_chunk::<16>() else { return };
                let address = Ipv6Addr::from(*octets);
                self.interface = index.first_chunk().map_or(0, |index| u32::from_ne_bytes(*index));
                self.destination = Some(address.into());
                // A group cannot be answered from; the kernel then chooses.
                self.answer_from = (!address.is_multicast()).then_some(address.into());
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let Some(bytes) = data.first_chunk::<4>() else { return };
                self.segment_bytes = usize::try_from(c_int::from_ne_bytes(*bytes)).ok();
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                const WORD: usize = size_of::<libc::time_t>();
                let word = |at: usize| {
                    let bytes = data.get(at..at + WORD)?.try_into().ok()?;
                    u64::try_from(libc::time_t::from_ne_bytes(bytes)).ok()
                };
                let stamp = word(0).zip(word(WORD));
                self.real_ns = stamp.map(|(s, ns)| s.wrapping_mul(1_000_000_000).wrapping_add(ns));
            }
            _ => {}
        }
    }
}

/// Level, type and data of the first message, and what follows it.
fn next(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let length = usize::from_ne_bytes(*header.first_chunk()?);
    let level = c_int::from_ne_bytes(*header[HEADER_BYTES - 8..].first_chunk()?);
    let kind = c_int::from_ne_bytes(*header.last_chunk()?);
    let data = bytes.get(HEADER_BYTES..length)?;
    let after = length.checked_next_multiple_of(ALIGN_BYTES)?;
    Some((level, kind, data, bytes.get(after..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_source_and_a_segment_size_are_sent_together() {
        for from in ["192.0.2.7", "2001:db8::7"] {
            let from: IpAddr = from.parse().expect("an address");
            let mut control = Control::EMPTY;
            let bytes = control.write(Some(1316), Some(from));
            let mut rest = &control.bytes[..bytes];
            let mut kinds = Vec::new();
            while let Some((level, kind, data, after)) = next(rest) {
                kinds.push((level, kind, data.len()));
                rest = after;
            }
            assert_eq!(kinds[0], (libc::SOL_UDP, libc::UDP_SEGMENT, 2));
            assert_eq!(kinds.len(), 2);
            // What is passed to the kernel has the form of what it reports.
            assert_eq!(control.read(bytes).answer_from, Some(from));
        }
        let mut control = Control::EMPTY;
        assert_eq!(control.write(None, None), 0);
    }

    #[test]
    fn all_that_can_be_asked_for_is_read() {
        let mut control = Control::EMPTY;
        let mut at = control.write(None, Some("2001:db8::7".parse().expect("an address")));
        let gro = 1200i32.to_ne_bytes();
        control.push(&mut at, libc::SOL_UDP, libc::UDP_GRO, &gro);
        let stamp: Vec<u8> = [3i64, 4].iter().flat_map(|word| word.to_ne_bytes()).collect();
        control.push(&mut at, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &stamp);
        let info = control.read(at);
        assert_eq!((info.segment_bytes, info.real_ns), (Some(1200), Some(3_000_000_004)));
        assert!(info.destination.is_some());
    }

    #[test]
    fn a_group_is_never_answered_from() {
        let mut control = Control::EMPTY;
        let bytes = control.write(None, Some("ff02::1".parse().expect("an address")));
        let info = control.read(bytes);
        assert!(info.destination.is_some() && info.answer_from.is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(noise: [u8; 32], bytes in 0usize..300) {
            let mut control = Control::EMPTY;
            for (i, byte) in control.bytes.iter_mut().enumerate() {
                *byte = noise[i % noise.len()];
            }
            control.read(bytes);
        }
    }
}
