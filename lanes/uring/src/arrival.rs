//! What a multishot `recvmsg` leaves in a provided buffer, read with checks.
//!
//! ```text
//!   │ io_uring_recvmsg_out │ source address │ control messages │ payload ...   │
//!   │ 16 bytes             │ as asked for   │ as asked for     │ up to the end │
//! ```
//!
//! The fields have the asked-for size for every arrival, so the payload always begins at the same
//! place. Assumes nothing about the bytes: takes any, returns an arrival or nothing, never panics.

use laneway_linux::{Ipv4Info, Repairs};
use std::net::{IpAddr, Ipv6Addr};

/// Bytes of `struct io_uring_recvmsg_out`.
const HEADER_BYTES: usize = 16;
/// Control messages are aligned like this, and their header is this long.
const CONTROL_ALIGN: usize = size_of::<usize>();
const CONTROL_HEADER: usize = size_of::<libc::cmsghdr>();

/// The sizes that a request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) name_bytes: usize,
    pub(crate) control_bytes: usize,
}

impl Fields {
    /// Where the payload begins.
    pub(crate) const fn payload_at(self) -> usize {
        HEADER_BYTES + self.name_bytes + self.control_bytes
    }
}

/// One received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) control: &'a [u8],
    pub(crate) payload: &'a [u8],
    /// The payload was longer than the buffer.
    pub(crate) is_cut: bool,
}

impl<'a> Message<'a> {
    /// Reads the bytes that a completion says were written.
    pub(crate) fn parse(buffer: &'a [u8], fields: Fields) -> Option<Message<'a>> {
        let header = buffer.first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_ne_bytes(bytes)
        };
        let (name_len, control_len, payload_len, flags) = (word(0), word(4), word(8), word(12));
        let (name, rest) = buffer[HEADER_BYTES..].split_at_checked(fields.name_bytes)?;
        let (control, payload) = rest.split_at_checked(fields.control_bytes)?;
        let cut = |field: &'a [u8], len: u32| &field[..field.len().min(len as usize)];
        Some(Message {
            name: cut(name, name_len),
            control: cut(control, control_len),
            payload: cut(payload, payload_len),
            is_cut: flags & libc::MSG_TRUNC as u32 != 0 || payload_len as usize > payload.len(),
        })
    }
}

/// What control messages stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// The address a datagram was sent to (IP_PKTINFO, IPV6_PKTINFO).
    pub(crate) destination: Option<IpAddr>,
    /// That is a broadcast address.
    pub(crate) is_broadcast: bool,
    /// The number of the interface that it arrived at; 0 where that is not known.
    pub(crate) interface: u32,
    /// Bytes per datagram of a train (UDP_GRO).
    pub(crate) segment_bytes: Option<usize>,
    /// When the kernel stamped it, by CLOCK_REALTIME (SO_TIMESTAMPNS).
    pub(crate) real_ns: Option<u64>,
    /// What a frame lacks of one on a wire (PACKET_AUXDATA).
    pub(crate) repairs: Repairs,
    /// Length of the frame on the wire, without the VLAN tag that the kernel took off (PACKET_AUXDATA).
    pub(crate) wire_bytes: Option<u32>,
}

impl Notes {
    /// Reads control messages; what is not understood is left out.
    pub(crate) fn parse(mut control: &[u8]) -> Notes {
        let mut notes = Notes::default();
        while let Some((header, _)) = control.split_at_checked(CONTROL_HEADER) {
            let (length, kind) = header.split_at(size_of::<usize>());
            let length = usize::from_ne_bytes(length.try_into().expect("split to this length"));
            let level = u32_at(kind, 0).map(|level| level as i32);
            let kind = u32_at(kind, 4).map(|kind| kind as i32);
            let Some(data) = control.get(CONTROL_HEADER..length) else { break };
            match (level, kind) {
                (Some(libc::IPPROTO_IP), Some(libc::IP_PKTINFO)) => {
                    if let Some(info) = Ipv4Info::read(data) {
                        notes.destination = Some(info.destination.into());
                        notes.is_broadcast = info.is_broadcast();
                        notes.interface = info.interface;
                    }
                }
                (Some(libc::IPPROTO_IPV6), Some(libc::IPV6_PKTINFO)) => {
                    let ip = data.first_chunk::<16>();
                    notes.destination = ip.map(|ip| Ipv6Addr::from(*ip).into());
                    notes.interface = u32_at(data, 16).unwrap_or(0);
                }
                (Some(libc::SOL_UDP), Some(libc::UDP_GRO)) => {
                    notes.segment_bytes = u32_at(data, 0).map(|bytes| bytes as usize);
                }
                (Some(libc::SOL_SOCKET), Some(libc::SCM_TIMESTAMPNS)) => {
                    notes.real_ns = parse_stamp(data);
                }
                (Some(libc::SOL_PACKET), Some(libc::PACKET_AUXDATA)) => {
                    notes.repairs = Repairs::from_auxdata(data);
                    notes.wire_bytes = u32_at(data, 4);
                }
                _ => (),
            }
            let next = length.next_multiple_of(CONTROL_ALIGN);
            control = control.get(next..).unwrap_or_default();
        }
        notes
    }
}

/// `struct timespec`: seconds and nanoseconds since 1970.
fn parse_stamp(data: &[u8]) -> Option<u64> {
    const WORD: usize = size_of::<libc::time_t>();
    let word = |at: usize| {
        let word = data.get(at..)?.first_chunk::<WORD>()?;
        u64::try_from(libc::time_t::from_ne_bytes(*word)).ok()
    };
    Some(word(0)?.wrapping_mul(1_000_000_000).wrapping_add(word(WORD)?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*data.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIELDS: Fields = Fields { name_bytes: 32, control_bytes: 96 };

    fn note(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (CONTROL_HEADER + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(CONTROL_ALIGN), 0);
        bytes
    }

    fn buffer(name: u32, control: u32, payload: u32, flags: u32, bytes: usize) -> Vec<u8> {
        let mut buffer: Vec<u8> =
            [name, control, payload, flags].iter().flat_map(|word| word.to_ne_bytes()).collect();
        buffer.extend((0..bytes).map(|i| i as u8));
        buffer
    }

    #[test]
    fn fields_have_their_asked_size_and_their_filled_length() {
        let bytes = buffer(16, 24, 5, 0, 32 + 96 + 5);
        let message = Message::parse(&bytes, FIELDS).expect("long enough");
        assert_eq!((message.name.len(), message.control.len()), (16, 24));
        assert_eq!((message.name[0], message.control[0]), (0, 32));
        assert_eq!(message.payload, [128, 129, 130, 131, 132]);
        assert!(!message.is_cut);
    }

    #[test]
    fn a_payload_beyond_its_buffer_is_cut() {
        let bytes = buffer(16, 0, 6, 0, 32 + 96 + 5);
        assert!(Message::parse(&bytes, FIELDS).expect("long enough").is_cut);
        let bytes = buffer(16, 0, 5, libc::MSG_TRUNC as u32, 32 + 96 + 5);
        assert!(Message::parse(&bytes, FIELDS).expect("long enough").is_cut);
    }

    #[test]
    fn a_buffer_without_its_fields_is_nothing() {
        assert_eq!(Message::parse(&buffer(0, 0, 0, 0, 32 + 95), FIELDS), None);
        assert_eq!(Message::parse(&[0; 15], FIELDS), None);
    }

    #[test]
    fn destination_and_segment_are_found_in_either_order() {
        let info =
            note(libc::IPPROTO_IP, libc::IP_PKTINFO, &[1, 0, 0, 0, 9, 9, 9, 9, 239, 1, 2, 3]);
        let train = note(libc::SOL_UDP, libc::UDP_GRO, &1316u32.to_ne_bytes());
        let expected = Notes {
            destination: Some(IpAddr::from([239, 1, 2, 3])),
            interface: u32::from_ne_bytes([1, 0, 0, 0]),
            segment_bytes: Some(1316),
            ..Notes::default()
        };
        assert_eq!(Notes::parse(&[info.clone(), train.clone()].concat()), expected);
        assert_eq!(Notes::parse(&[train, info].concat()), expected);
    }

    #[test]
    fn a_stamp_is_found_beside_all_else_that_may_come_with_a_datagram() {
        let info = note(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &[7; 20]);
        let train = note(libc::SOL_UDP, libc::UDP_GRO, &1316u32.to_ne_bytes());
        let stamp = [3i64.to_ne_bytes(), 4i64.to_ne_bytes()].concat();
        let stamp = note(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &stamp);
        let all = [info, train, stamp].concat();
        assert!(all.len() <= FIELDS.control_bytes, "{} bytes", all.len());
        let notes = Notes::parse(&all);
        assert_eq!((notes.real_ns, notes.segment_bytes), (Some(3_000_000_004), Some(1316)));
        assert_eq!(notes.interface, u32::from_ne_bytes([7; 4]));
        let before = [(-1i64).to_ne_bytes(), 4i64.to_ne_bytes()].concat();
        let before = note(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &before);
        assert_eq!(Notes::parse(&before).real_ns, None);
    }

    #[test]
    fn the_tag_of_a_frame_is_found() {
        let status = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        let mut aux = [status, 60, 60, 0].iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<_>>();
        aux.extend(100u16.to_ne_bytes());
        aux.extend(0x8100u16.to_ne_bytes());
        let notes = Notes::parse(&note(libc::SOL_PACKET, libc::PACKET_AUXDATA, &aux));
        assert_eq!(notes.repairs, Repairs::from_kernel(status, 100, 0x8100));
        assert_eq!(notes.wire_bytes, Some(60));
    }

    proptest! {
        #[test]
        fn any_buffer_is_a_message_or_nothing(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            name_bytes in 0usize..64,
            control_bytes in 0usize..128,
        ) {
            let fields = Fields { name_bytes, control_bytes };
            let message = Message::parse(&bytes, fields);
            prop_assert_eq!(message.is_some(), bytes.len() >= fields.payload_at());
            if let Some(message) = message {
                Notes::parse(message.control);
                prop_assert!(message.payload.len() <= bytes.len() - fields.payload_at());
            }
        }

        #[test]
        fn any_control_bytes_are_read_without_a_panic(
            control in prop::collection::vec(any::<u8>(), 0..128),
        ) {
            Notes::parse(&control);
        }

        #[test]
        fn a_hostile_length_ends_the_notes(length: usize) {
            let mut bytes = note(libc::SOL_UDP, libc::UDP_GRO, &[0; 4]);
            bytes[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
            Notes::parse(&bytes);
        }
    }
}
