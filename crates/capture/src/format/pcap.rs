//! Classic pcap: a 24-byte file header, then records of a 16-byte header and the captured bytes.
//!
//! Reference: draft-ietf-opsawg-pcap. Versions below 2.4 stored the two lengths the other way round; they are read as
//! libpcap reads them. Kuznetzov's "modified" format and its relatives have longer record headers: refused by name.

use super::{FRAME_BYTES_MAX, FormatError, Interface, Order, ReadCounts, RecordRef, Step, pcapng};
use crate::link::LinkType;

pub(super) const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;

/// Magic numbers of pcap's relatives, as Wireshark's `wiretap/libpcap.h` names them.
const VARIANTS: [(u32, &str); 5] = [
    (0xa1b2_cd34, "modified pcap (Kuznetzov)"),
    (0xa1b2_34cd, "modified pcap (IXIA lcap, hardware time)"),
    (0x1c00_01ac, "IXIA lcap (hardware time)"),
    (0x1c00_01ab, "IXIA lcap (software time)"),
    (0xa1e2_cb12, "Navtel pcap"),
];

/// Which of a record's two lengths comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    WireFirst,
    /// Version 2.3 was written both ways: the smaller is the captured length.
    SmallerIsCaptured,
}

#[derive(Debug)]
pub(super) struct Pcap {
    order: Order,
    /// Nanoseconds per unit of the fraction field.
    unit_ns: u32,
    lengths: Lengths,
    link: LinkType,
    fcs_bytes: Option<u8>,
}

pub(super) fn order_of(magic: [u8; 4]) -> Option<Order> {
    [Order::Little, Order::Big]
        .into_iter()
        .find(|order| matches!(order.u32(magic), MAGIC_MICROS | MAGIC_NANOS))
}

pub(super) fn refuse_variants(magic: [u8; 4]) -> Result<(), FormatError> {
    for (variant, name) in VARIANTS {
        if [u32::from_le_bytes(magic), u32::from_be_bytes(magic)].contains(&variant) {
            return Err(FormatError::Variant { name, magic: variant });
        }
    }
    Ok(())
}

impl Pcap {
    pub(super) fn from_header(
        header: &[u8; FILE_HEADER_BYTES],
        order: Order,
    ) -> Result<(Self, Interface), FormatError> {
        let (major, minor) = (order.u16_at(header, 4), order.u16_at(header, 6));
        let lengths = match (major, minor) {
            (2, 0..=2) => Lengths::WireFirst,
            (2, 3) => Lengths::SmallerIsCaptured,
            (2, _) => Lengths::CapturedFirst,
            _ => return Err(FormatError::PcapVersion { major, minor }),
        };
        let unit_ns = if order.u32_at(header, 0) == MAGIC_NANOS { 1 } else { 1_000 };
        // Bits 0..26 are the link type as libpcap masks it; bit 26 says that bits 28..32 are valid and hold the frame
        // check sequence's length in 16-bit words.
        let network = order.u32_at(header, 20);
        let link = LinkType::from_number(network & 0x03ff_ffff);
        let fcs_bytes = (network & 0x0400_0000 != 0).then_some((network >> 28) as u8 * 2);
        let interface = Interface {
            link,
            snaplen: order.u32_at(header, 16),
            section: 0,
            fcs_bytes,
            received: None,
            dropped: None,
            clock: pcapng::Clock::default(),
        };
        Ok((Self { order, unit_ns, lengths, link, fcs_bytes }, interface))
    }

    #[inline]
    pub(super) fn step(&self, window: &[u8], counts: &mut ReadCounts) -> Result<Step, FormatError> {
        let Some(header) = window.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(Step::Need { bytes: RECORD_HEADER_BYTES, what: "a record header" });
        };
        let seconds = self.order.u32_at(header, 0);
        let fraction = self.order.u32_at(header, 4);
        let first = self.order.u32_at(header, 8);
        let second = self.order.u32_at(header, 12);
        let (len, wire_len) = match self.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::WireFirst => (second, first),
            Lengths::SmallerIsCaptured => (first.min(second), first.max(second)),
        };
        if len > FRAME_BYTES_MAX {
            return Err(FormatError::FrameTooLong { claimed: len });
        }
        let advance = RECORD_HEADER_BYTES + len as usize;
        if window.len() < advance {
            return Ok(Step::Need { bytes: advance, what: "a record" });
        }
        // No overflow: (2^32 - 1) * (10^9 + 1000) < 2^63.
        let fraction_ns = u64::from(fraction) * u64::from(self.unit_ns);
        let ts_ns = u64::from(seconds) * 1_000_000_000 + fraction_ns;
        counts.fractions_carried += u64::from(fraction_ns >= 1_000_000_000);
        counts.lengths_raised += u64::from(wire_len < len);
        counts.records += 1;
        let record = RecordRef {
            ts_ns,
            offset: RECORD_HEADER_BYTES,
            len,
            wire_len: wire_len.max(len),
            interface: 0,
            link: self.link,
            has_time: true,
        };
        Ok(Step::Record { record: record.without_fcs(self.fcs_bytes), advance })
    }
}

#[cfg(test)]
mod tests {
    use crate::format::{FormatError, Records};
    use crate::{LinkType, ReadError};

    /// A pcap of the given byte order, `header` and `records` being (seconds, fraction, first length, second length,
    /// data).
    fn file(
        big: bool,
        magic: u32,
        version: (u16, u16),
        network: u32,
        records: &[(u32, u32, u32, u32, &[u8])],
    ) -> Vec<u8> {
        let n32 = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let n16 = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut out = Vec::new();
        out.extend(n32(magic));
        out.extend(n16(version.0));
        out.extend(n16(version.1));
        for n in [0, 0, 65_535, network] {
            out.extend(n32(n));
        }
        for (seconds, fraction, first, second, data) in records {
            for n in [*seconds, *fraction, *first, *second] {
                out.extend(n32(n));
            }
            out.extend(*data);
        }
        out
    }

    #[test]
    fn reads_both_byte_orders_and_both_resolutions() {
        for big in [false, true] {
            for (magic, ns) in [(0xa1b2_c3d4u32, 7_000), (0xa1b2_3c4d, 7)] {
                let bytes = file(big, magic, (2, 4), 1, &[(u32::MAX, 7, 3, 90, b"abc")]);
                let mut records = Records::new(&bytes);
                let record = records.next_record().unwrap().unwrap();
                assert_eq!(record.ts_ns, u64::from(u32::MAX) * 1_000_000_000 + ns);
                assert_eq!((record.wire_len, record.data), (90, &b"abc"[..]));
                assert_eq!((record.link, record.interface), (LinkType::Ethernet, 0));
                assert!(records.next_record().unwrap().is_none());
                assert_eq!(records.parser().interfaces()[0].snaplen, 65_535);
            }
        }
    }

    #[test]
    fn a_fraction_of_a_second_or_more_carries_and_is_counted() {
        let bytes = file(false, 0xa1b2_c3d4, (2, 4), 1, &[(5, 1_000_001, 0, 0, b"")]);
        let mut records = Records::new(&bytes);
        assert_eq!(records.next_record().unwrap().unwrap().ts_ns, 6_000_001_000);
        assert_eq!(records.parser().counts().fractions_carried, 1);
    }

    #[test]
    fn a_wire_length_below_the_captured_length_is_raised_and_counted() {
        let bytes = file(false, 0xa1b2_c3d4, (2, 4), 1, &[(5, 0, 2, 1, b"ab")]);
        let mut records = Records::new(&bytes);
        assert_eq!(records.next_record().unwrap().unwrap().wire_len, 2);
        assert_eq!(records.parser().counts().lengths_raised, 1);
    }

    #[test]
    fn old_versions_store_the_lengths_the_other_way_round() {
        for (minor, first, second) in [(2, 9, 2), (3, 9, 2), (3, 2, 9), (4, 2, 9)] {
            let bytes = file(true, 0xa1b2_c3d4, (2, minor), 1, &[(1, 0, first, second, b"ab")]);
            let mut records = Records::new(&bytes);
            let record = records.next_record().unwrap().unwrap();
            assert_eq!((record.data, record.wire_len), (&b"ab"[..], 9), "version 2.{minor}");
        }
    }

    #[test]
    fn the_fcs_length_is_split_from_the_link_type() {
        let bytes = file(false, 0xa1b2_c3d4, (2, 4), 0x2400_0001, &[]);
        let mut records = Records::new(&bytes);
        assert!(records.next_record().unwrap().is_none());
        let interface = records.parser().interfaces()[0];
        assert_eq!((interface.link, interface.fcs_bytes), (LinkType::Ethernet, Some(4)));
    }

    #[test]
    fn a_frame_check_sequence_is_no_part_of_a_record() {
        let frame = [7; 64];
        // Whole, cut within the sequence, cut in front of it, and of fewer bytes than it has.
        for (len, wire_len, data, left) in
            [(64, 64, 60, 60), (62, 64, 60, 60), (32, 64, 32, 60), (3, 3, 0, 0)]
        {
            let record = (1, 0, len as u32, wire_len, &frame[..len]);
            let bytes = file(false, 0xa1b2_c3d4, (2, 4), 0x2400_0001, &[record, record]);
            let mut records = Records::new(&bytes);
            for _ in 0..2 {
                let record = records.next_record().unwrap().unwrap();
                assert_eq!((record.data, record.wire_len), (&frame[..data], left));
            }
            assert!(records.next_record().unwrap().is_none());
        }
    }

    #[test]
    fn relatives_and_strangers_are_refused_by_name() {
        let refusal = |bytes: &[u8]| match Records::new(bytes).next_record() {
            Err(ReadError::NotUnderstood(reason)) => reason.to_string(),
            other => panic!("{other:?}"),
        };
        for big in [false, true] {
            assert!(refusal(&file(big, 0xa1b2_cd34, (2, 4), 1, &[])).contains("Kuznetzov"));
        }
        assert!(refusal(b"PK\x03\x04 and more").contains("50 4b 03 04;"));
        assert!(refusal(b"ab").contains("61 62"));
        assert!(refusal(b"").contains("empty"));
        assert!(refusal(&file(false, 0xa1b2_c3d4, (3, 1), 1, &[])).contains("version 3.1"));
    }

    #[test]
    fn a_length_beyond_the_limit_is_an_error_with_its_place() {
        let bytes =
            file(false, 0xa1b2_c3d4, (2, 4), 1, &[(0, 0, 1, 1, b"a"), (0, 0, 262_145, 1, b"")]);
        let mut records = Records::new(&bytes);
        assert!(records.next_record().unwrap().is_some());
        match records.next_record() {
            Err(ReadError::Malformed { offset: 41, records: 1, reason }) => {
                assert_eq!(reason, FormatError::FrameTooLong { claimed: 262_145 });
            }
            other => panic!("{other:?}"),
        }
        assert!(records.next_record().unwrap().is_none(), "ended after the error");
    }

    #[test]
    fn a_cut_file_yields_its_complete_records_first() {
        let whole =
            file(false, 0xa1b2_c3d4, (2, 4), 1, &[(0, 0, 1, 1, b"a"), (0, 0, 4, 4, b"abcd")]);
        let mut records = Records::new(&whole[..whole.len() - 1]);
        assert!(records.next_record().unwrap().is_some());
        match records.next_record() {
            Err(ReadError::Truncated { offset: 41, needed: 20, have: 19, records: 1, what }) => {
                assert_eq!(what, "a record");
            }
            other => panic!("{other:?}"),
        }
    }
}
