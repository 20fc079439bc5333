//! pcapng: a chain of typed blocks, in sections that may each have their own byte order and interfaces.
//!
//! Reference: draft-ietf-opsawg-pcapng. Read: section header, interface description, enhanced, simple and obsolete
//! packet block, interface statistics. Every other block is skipped and counted. Interfaces are numbered over the
//! whole file, so an index stays valid across sections. A section's stated length is not used (as in libpcap): the
//! chain of blocks says the same and is checked.
//!
//! Differs from libpcap on purpose: interfaces with different link types in one file are fine, and any timestamp
//! resolution the field can hold is converted exactly instead of refused.

use super::{
    BLOCK_BYTES_MAX, FRAME_BYTES_MAX, FormatError, INTERFACES_MAX, Interface, Order, ReadCounts,
    RecordRef, Step,
};
use crate::link::LinkType;

/// First bytes of a section header block: a palindrome, the same in both byte orders.
pub(super) const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

const BLOCK_SECTION: u32 = 0x0a0d_0d0a;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_OBSOLETE_PACKET: u32 = 2;
const BLOCK_SIMPLE_PACKET: u32 = 3;
const BLOCK_STATISTICS: u32 = 5;
const BLOCK_ENHANCED_PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_TSRESOL: u16 = 9;
const OPTION_FCSLEN: u16 = 13;
const OPTION_TSOFFSET: u16 = 14;
const OPTION_RECEIVED: u16 = 4;
const OPTION_DROPPED: u16 = 5;

/// Type and length at the head, the length again at the tail.
const HEAD_BYTES: usize = 8;
const TAIL_BYTES: usize = 4;

const NS_PER_S: u64 = 1_000_000_000;

/// How an interface's 64-bit times become nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    scale: Scale,
    offset_s: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// Units of 10^-9 s or more.
    Times(u64),
    /// Decimal units below 10^-9 s.
    Over(u64),
    /// Units of 2^-n s.
    Shift(u8),
    /// Decimal units so small that 2^64 of them are less than a nanosecond.
    Zero,
}

impl Default for Clock {
    /// Microseconds, as the format defines when an interface says nothing.
    fn default() -> Self {
        Self { scale: Scale::Times(1_000), offset_s: 0 }
    }
}

impl Scale {
    fn from_tsresol(resolution: u8) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        if resolution & 0x80 != 0 {
            return Self::Shift(exponent as u8);
        }
        if exponent <= 9 {
            return Self::Times(10u64.pow(9 - exponent));
        }
        10u64.checked_pow(exponent - 9).map_or(Self::Zero, Self::Over)
    }
}

impl Clock {
    /// Nanoseconds since 1970 and whether they had to be saturated. Rounds towards the past.
    #[inline]
    fn unix_ns(self, ticks: u64) -> (u64, bool) {
        if let (Scale::Times(unit_ns), 0) = (self.scale, self.offset_s) {
            return ticks.checked_mul(unit_ns).map_or((u64::MAX, true), |ns| (ns, false));
        }
        let ns = match self.scale {
            Scale::Times(unit_ns) => u128::from(ticks) * u128::from(unit_ns),
            Scale::Over(units) => u128::from(ticks / units),
            // The product is below 2^94 and the shift below 128.
            Scale::Shift(bits) => (u128::from(ticks) * u128::from(NS_PER_S)) >> bits,
            Scale::Zero => 0,
        };
        // Both terms are below 2^94 in size, so neither the cast nor the sum can overflow.
        let ns = ns as i128 + i128::from(self.offset_s) * i128::from(NS_PER_S);
        match u64::try_from(ns) {
            Ok(ns) => (ns, false),
            Err(_) if ns < 0 => (0, true),
            Err(_) => (u64::MAX, true),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Pcapng {
    order: Order,
    /// Sections seen; the current one has index `sections - 1`.
    sections: u32,
    /// Index of the current section's first interface.
    base: usize,
}

impl Pcapng {
    #[inline]
    pub(super) fn step(
        &mut self,
        window: &[u8],
        interfaces: &mut Vec<Interface>,
        counts: &mut ReadCounts,
    ) -> Result<Step, FormatError> {
        let Some(head) = window.first_chunk::<HEAD_BYTES>() else {
            return Ok(Step::Need { bytes: HEAD_BYTES, what: "a pcapng block header" });
        };
        if head[..4] == SECTION_MAGIC {
            // The order comes first: the length of this very block is written in it.
            let Some(start) = window.first_chunk::<12>() else {
                return Ok(Step::Need { bytes: 12, what: "a pcapng section header" });
            };
            self.order = section_order([start[8], start[9], start[10], start[11]])?;
        }
        let order = self.order;
        let kind = order.u32_at(head, 0);
        let total = order.u32_at(head, 4);
        let min = least_bytes(kind);
        if total < min || total > BLOCK_BYTES_MAX || !total.is_multiple_of(4) {
            return Err(FormatError::BlockLength { kind, claimed: total, min });
        }
        let advance = total as usize;
        let Some(block) = window.get(..advance) else {
            return Ok(Step::Need { bytes: advance, what: "a pcapng block" });
        };
        let tail: &[u8; TAIL_BYTES] = block.last_chunk().expect("a block has at least 12 bytes");
        let tail = order.u32(*tail);
        if tail != total {
            return Err(FormatError::BlockTail { kind, head: total, tail });
        }
        let body = &block[HEAD_BYTES..advance - TAIL_BYTES];

        let record = match kind {
            BLOCK_ENHANCED_PACKET => {
                let fixed: &[u8; 20] = body.first_chunk().expect("least_bytes says so");
                let id = order.u32_at(fixed, 0);
                self.timed_packet(kind, id, fixed, body.len() - 20, interfaces, counts)?
            }
            BLOCK_OBSOLETE_PACKET => {
                let fixed: &[u8; 20] = body.first_chunk().expect("least_bytes says so");
                let id = u32::from(order.u16_at(fixed, 0));
                self.timed_packet(kind, id, fixed, body.len() - 20, interfaces, counts)?
            }
            BLOCK_SIMPLE_PACKET => {
                let fixed: &[u8; 4] = body.first_chunk().expect("least_bytes says so");
                self.simple_packet(order.u32(*fixed), body.len() - 4, interfaces, counts)?
            }
            BLOCK_INTERFACE => {
                if interfaces.len() == INTERFACES_MAX {
                    return Err(FormatError::TooManyInterfaces);
                }
                interfaces.push(self.interface(body)?);
                return Ok(Step::Skip { advance });
            }
            BLOCK_STATISTICS => {
                self.statistics(body, interfaces, counts);
                return Ok(Step::Skip { advance });
            }
            BLOCK_SECTION => {
                let fixed: &[u8; 16] = body.first_chunk().expect("least_bytes says so");
                let (major, minor) = (order.u16_at(fixed, 4), order.u16_at(fixed, 6));
                if major != 1 {
                    return Err(FormatError::PcapngVersion { major, minor });
                }
                self.sections += 1;
                self.base = interfaces.len();
                return Ok(Step::Skip { advance });
            }
            _ => {
                counts.blocks_skipped += 1;
                return Ok(Step::Skip { advance });
            }
        };
        counts.records += 1;
        counts.lengths_raised += u64::from(record.wire_len < record.len);
        let record = RecordRef { wire_len: record.wire_len.max(record.len), ..record };
        let record = record.without_fcs(interfaces[record.interface as usize].fcs_bytes);
        Ok(Step::Record { record, advance })
    }

    /// Enhanced and obsolete packet block: the same layout behind the interface number.
    #[inline]
    fn timed_packet(
        &self,
        kind: u32,
        id: u32,
        fixed: &[u8; 20],
        room: usize,
        interfaces: &[Interface],
        counts: &mut ReadCounts,
    ) -> Result<RecordRef, FormatError> {
        let order = self.order;
        let (index, interface) = self.described(id, interfaces)?;
        let high = u64::from(order.u32_at(fixed, 4));
        let low = u64::from(order.u32_at(fixed, 8));
        let len = order.u32_at(fixed, 12);
        if len > FRAME_BYTES_MAX {
            return Err(FormatError::FrameTooLong { claimed: len });
        }
        if len as usize > room {
            return Err(FormatError::BlockRoom { kind, claimed: len, room: room as u32 });
        }
        let (ts_ns, saturated) = interface.clock.unix_ns(high << 32 | low);
        counts.timestamps_saturated += u64::from(saturated);
        Ok(RecordRef {
            ts_ns,
            offset: HEAD_BYTES + fixed.len(),
            len,
            wire_len: order.u32_at(fixed, 16),
            interface: index,
            link: interface.link,
            has_time: !saturated,
        })
    }

    /// Simple packet block: always the section's first interface; the captured length is the wire length cut to the
    /// interface's snaplen, and there is no time.
    fn simple_packet(
        &self,
        wire_len: u32,
        room: usize,
        interfaces: &[Interface],
        counts: &mut ReadCounts,
    ) -> Result<RecordRef, FormatError> {
        let (index, interface) = self.described(0, interfaces)?;
        let len = match interface.snaplen {
            0 => wire_len,
            snaplen => wire_len.min(snaplen),
        };
        if len > FRAME_BYTES_MAX {
            return Err(FormatError::FrameTooLong { claimed: len });
        }
        if len as usize > room {
            return Err(FormatError::BlockRoom {
                kind: BLOCK_SIMPLE_PACKET,
                claimed: len,
                room: room as u32,
            });
        }
        counts.times_missing += 1;
        Ok(RecordRef {
            ts_ns: 0,
            offset: HEAD_BYTES + 4,
            len,
            wire_len,
            interface: index,
            link: interface.link,
            has_time: false,
        })
    }

    #[inline]
    fn described<'a>(
        &self,
        id: u32,
        interfaces: &'a [Interface],
    ) -> Result<(u32, &'a Interface), FormatError> {
        let index = self.base + id as usize;
        match interfaces.get(index) {
            // INTERFACES_MAX keeps the index far below 2^32.
            Some(interface) => Ok((index as u32, interface)),
            None => Err(FormatError::UnknownInterface {
                id,
                known: (interfaces.len() - self.base) as u32,
            }),
        }
    }

    fn interface(&self, body: &[u8]) -> Result<Interface, FormatError> {
        let order = self.order;
        let (fixed, mut options) = body.split_first_chunk::<8>().expect("least_bytes says so");
        let mut clock = Clock::default();
        let mut fcs_bytes = None;
        while let Some((code, value)) = next_option(order, &mut options)? {
            let wrong = FormatError::OptionLength { code, len: value.len() as u16 };
            match code {
                OPTION_TSRESOL => {
                    let [resolution] = value.try_into().map_err(|_| wrong)?;
                    clock.scale = Scale::from_tsresol(resolution);
                }
                OPTION_TSOFFSET => {
                    let bytes = value.try_into().map_err(|_| wrong)?;
                    clock.offset_s = order.u64(bytes) as i64;
                }
                OPTION_FCSLEN => {
                    let [length] = value.try_into().map_err(|_| wrong)?;
                    // In bits by the format's draft, in bytes by Wireshark: no sequence is as long as 8 bytes.
                    fcs_bytes = Some(if length < 8 { length } else { length / 8 });
                }
                _ => {}
            }
        }
        Ok(Interface {
            link: LinkType::from_number(u32::from(order.u16_at(fixed, 0))),
            snaplen: order.u32_at(fixed, 4),
            section: self.sections.saturating_sub(1),
            fcs_bytes,
            received: None,
            dropped: None,
            clock,
        })
    }

    /// Statistics are a courtesy at the end of a file: a broken one is skipped and counted, not a reason to fail.
    fn statistics(&self, body: &[u8], interfaces: &mut [Interface], counts: &mut ReadCounts) {
        let order = self.order;
        let (fixed, mut options) = body.split_first_chunk::<12>().expect("least_bytes says so");
        let index = self.base + order.u32_at(fixed, 0) as usize;
        let Some(interface) = interfaces.get_mut(index) else {
            counts.blocks_skipped += 1;
            return;
        };
        loop {
            match next_option(order, &mut options) {
                Ok(None) => return,
                Ok(Some((OPTION_RECEIVED, value))) if value.len() == 8 => {
                    interface.received = value.try_into().ok().map(|bytes| order.u64(bytes));
                }
                Ok(Some((OPTION_DROPPED, value))) if value.len() == 8 => {
                    interface.dropped = value.try_into().ok().map(|bytes| order.u64(bytes));
                }
                Ok(Some(_)) => {}
                Err(_) => {
                    counts.blocks_skipped += 1;
                    return;
                }
            }
        }
    }
}

fn section_order(magic: [u8; 4]) -> Result<Order, FormatError> {
    if u32::from_le_bytes(magic) == BYTE_ORDER_MAGIC {
        Ok(Order::Little)
    } else if u32::from_be_bytes(magic) == BYTE_ORDER_MAGIC {
        Ok(Order::Big)
    } else {
        Err(FormatError::ByteOrderMagic(u32::from_be_bytes(magic)))
    }
}

/// Head, fixed part and tail of each kind of block.
#[inline]
fn least_bytes(kind: u32) -> u32 {
    match kind {
        BLOCK_ENHANCED_PACKET | BLOCK_OBSOLETE_PACKET => 32,
        BLOCK_SECTION => 28,
        BLOCK_STATISTICS => 24,
        BLOCK_INTERFACE => 20,
        BLOCK_SIMPLE_PACKET => 16,
        _ => 12,
    }
}

/// The next option, or `None` at the end of the list. Each call consumes at least four bytes.
fn next_option<'a>(
    order: Order,
    options: &mut &'a [u8],
) -> Result<Option<(u16, &'a [u8])>, FormatError> {
    let Some((head, rest)) = options.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let (code, len) = (order.u16_at(head, 0), order.u16_at(head, 2));
    if code == OPTION_END {
        return Ok(None);
    }
    let padded = usize::from(len).next_multiple_of(4);
    let (Some(value), Some(rest)) = (rest.get(..usize::from(len)), rest.get(padded..)) else {
        return Err(FormatError::OptionLength { code, len });
    };
    *options = rest;
    Ok(Some((code, value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Records;
    use crate::{ReadError, Reader};

    /// Builds pcapng bytes in one byte order; `with_order` goes on in another one.
    #[derive(Default)]
    struct Builder {
        big: bool,
        bytes: Vec<u8>,
    }

    impl Builder {
        fn with_order(mut self, big: bool) -> Self {
            self.big = big;
            self
        }
        fn n16(&self, n: u16) -> [u8; 2] {
            if self.big { n.to_be_bytes() } else { n.to_le_bytes() }
        }
        fn n32(&self, n: u32) -> [u8; 4] {
            if self.big { n.to_be_bytes() } else { n.to_le_bytes() }
        }
        fn n64(&self, n: u64) -> [u8; 8] {
            if self.big { n.to_be_bytes() } else { n.to_le_bytes() }
        }
        fn block(mut self, kind: u32, body: &[u8]) -> Self {
            let padded = body.len().next_multiple_of(4);
            let total = self.n32(padded as u32 + 12);
            let kind = self.n32(kind);
            self.bytes.extend(kind);
            self.bytes.extend(total);
            self.bytes.extend(body);
            self.bytes.resize(self.bytes.len() + padded - body.len(), 0);
            self.bytes.extend(total);
            self
        }
        fn section(self) -> Self {
            let mut body = self.n32(BYTE_ORDER_MAGIC).to_vec();
            body.extend(self.n16(1));
            body.extend(self.n16(0));
            body.extend(self.n64(u64::MAX));
            self.block(BLOCK_SECTION, &body)
        }
        fn interface(self, link: u16, snaplen: u32, options: &[(u16, &[u8])]) -> Self {
            let mut body = self.n16(link).to_vec();
            body.extend(self.n16(0));
            body.extend(self.n32(snaplen));
            body.extend(self.options(options));
            self.block(BLOCK_INTERFACE, &body)
        }
        fn options(&self, options: &[(u16, &[u8])]) -> Vec<u8> {
            let mut out = Vec::new();
            for (code, value) in options {
                out.extend(self.n16(*code));
                out.extend(self.n16(value.len() as u16));
                out.extend(*value);
                out.resize(out.len().next_multiple_of(4), 0);
            }
            out
        }
        fn enhanced(self, id: u32, ticks: u64, wire_len: u32, data: &[u8]) -> Self {
            let mut body = self.n32(id).to_vec();
            body.extend(self.n32((ticks >> 32) as u32));
            body.extend(self.n32(ticks as u32));
            body.extend(self.n32(data.len() as u32));
            body.extend(self.n32(wire_len));
            body.extend(data);
            self.block(BLOCK_ENHANCED_PACKET, &body)
        }
    }

    fn reason(bytes: &[u8]) -> FormatError {
        let mut records = Records::new(bytes);
        loop {
            match records.next_record() {
                Ok(Some(_)) => {}
                Err(ReadError::Malformed { reason, .. }) => return reason,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn reads_sections_of_both_byte_orders_and_numbers_interfaces_over_the_file() {
        let bytes = Builder::default()
            .section()
            .interface(1, 0, &[])
            .enhanced(0, 5, 60, b"abc")
            .with_order(true)
            .section()
            .interface(101, 0, &[])
            .interface(276, 0, &[])
            .enhanced(1, 6, 61, b"defg")
            .bytes;
        let mut records = Records::new(&bytes);
        let first = records.next_record().unwrap().unwrap();
        assert_eq!((first.ts_ns, first.interface, first.link), (5_000, 0, LinkType::Ethernet));
        assert_eq!((first.wire_len, first.data), (60, &b"abc"[..]));
        let second = records.next_record().unwrap().unwrap();
        assert_eq!((second.ts_ns, second.interface, second.link), (6_000, 2, LinkType::LinuxSll2));
        assert!(records.next_record().unwrap().is_none());
        assert_eq!(records.parser().interfaces()[2].section, 1);
    }

    #[test]
    fn an_interface_of_an_earlier_section_is_unknown_in_the_next() {
        let bytes = Builder::default()
            .section()
            .interface(1, 0, &[])
            .section()
            .enhanced(0, 5, 60, b"abc")
            .bytes;
        assert_eq!(reason(&bytes), FormatError::UnknownInterface { id: 0, known: 0 });
    }

    /// Which records of a chunk have a time.
    fn have_time(bytes: &[u8]) -> Vec<bool> {
        let mut reader = Reader::from_read(std::io::Cursor::new(bytes.to_vec())).unwrap();
        reader.next_chunk(9).unwrap().unwrap().have_time().collect()
    }

    #[test]
    fn converts_every_resolution_and_offset() {
        let check = |resolution: u8, offset_s: i64, ticks: u64, ns: u64, saturated: u64| {
            let bytes = Builder::default()
                .section()
                .interface(
                    1,
                    0,
                    &[(OPTION_TSRESOL, &[resolution]), (OPTION_TSOFFSET, &offset_s.to_le_bytes())],
                )
                .enhanced(0, ticks, 0, b"")
                .bytes;
            let mut records = Records::new(&bytes);
            let record = records.next_record().unwrap().unwrap();
            assert_eq!(record.ts_ns, ns, "resolution {resolution:#x}, offset {offset_s}");
            assert_eq!(records.parser().counts().timestamps_saturated, saturated);
            assert_eq!(have_time(&bytes), [saturated == 0], "no time that is not the capture's");
        };
        check(0, 0, 3, 3_000_000_000, 0);
        check(6, 0, 3, 3_000, 0);
        check(9, 0, 3, 3, 0);
        check(12, 0, 3_999, 3, 0);
        check(28, 0, u64::MAX, 1, 0);
        check(127, 0, u64::MAX, 0, 0);
        check(0x80, 0, 3, 3_000_000_000, 0);
        check(0x80 | 10, 0, 1_025, 1_000_976_562, 0);
        check(0x80 | 64, 0, u64::MAX, 999_999_999, 0);
        check(0xff, 0, u64::MAX, 0, 0);
        check(9, 10, 3, 10_000_000_003, 0);
        check(9, -1, 1_000_000_003, 3, 0);
        check(9, -2, 1_000_000_003, 0, 1);
        check(6, 0, u64::MAX, u64::MAX, 1);
        check(0, i64::MAX, u64::MAX, u64::MAX, 1);
        check(0x80, i64::MIN, u64::MAX, u64::MAX, 1);
    }

    #[test]
    fn simple_packets_are_cut_to_the_snaplen_and_have_no_time() {
        let builder = Builder::default().section().interface(1, 3, &[]);
        let mut body = builder.n32(60).to_vec();
        body.extend(b"abc\0");
        let bytes = builder.block(BLOCK_SIMPLE_PACKET, &body).bytes;
        let mut records = Records::new(&bytes);
        let record = records.next_record().unwrap().unwrap();
        assert_eq!((record.ts_ns, record.wire_len, record.data), (0, 60, &b"abc"[..]));
        assert_eq!(records.parser().counts().times_missing, 1);
        assert_eq!(have_time(&bytes), [false]);
    }

    #[test]
    fn a_frame_check_sequence_is_no_part_of_a_record() {
        // In bytes, and in bits.
        for length in [4, 32] {
            let options: &[(u16, &[u8])] = &[(OPTION_FCSLEN, &[length])];
            let builder = Builder::default().section().interface(1, 0, options);
            let bytes = builder.enhanced(0, 1, 64, &[7; 64]).enhanced(0, 2, 64, &[7; 61]).bytes;
            let mut records = Records::new(&bytes);
            for _ in 0..2 {
                let record = records.next_record().unwrap().unwrap();
                assert_eq!((record.wire_len, record.data), (60, &[7; 60][..]), "{length}");
            }
            assert!(records.next_record().unwrap().is_none());
        }
    }

    #[test]
    fn obsolete_packets_have_a_short_interface_number() {
        for big in [false, true] {
            let builder = Builder::default().with_order(big).section().interface(1, 0, &[]);
            let mut body = builder.n16(0).to_vec();
            body.extend(builder.n16(77)); // drops, which must not read as part of the interface
            for n in [0, 9, 2, 60] {
                body.extend(builder.n32(n));
            }
            body.extend(b"ab");
            let bytes = builder.block(BLOCK_OBSOLETE_PACKET, &body).bytes;
            let mut records = Records::new(&bytes);
            let record = records.next_record().unwrap().unwrap();
            assert_eq!((record.ts_ns, record.wire_len, record.data), (9_000, 60, &b"ab"[..]));
        }
    }

    #[test]
    fn unknown_blocks_are_skipped_and_counted_and_statistics_kept() {
        let builder = Builder::default().section().interface(1, 0, &[]);
        let mut body = builder.n32(0).to_vec();
        body.extend([0; 8]);
        body.extend(builder.options(&[
            (OPTION_RECEIVED, &7u64.to_le_bytes()),
            (99, b"x"),
            (OPTION_DROPPED, &2u64.to_le_bytes()),
        ]));
        let bytes = builder
            .block(0x0bad_cafe, b"anything")
            .enhanced(0, 1, 1, b"a")
            .block(BLOCK_STATISTICS, &body)
            .bytes;
        let mut records = Records::new(&bytes);
        assert!(records.next_record().unwrap().is_some());
        assert!(records.next_record().unwrap().is_none());
        assert_eq!(records.parser().counts().blocks_skipped, 1);
        let interface = records.parser().interfaces()[0];
        assert_eq!((interface.received, interface.dropped), (Some(7), Some(2)));
    }

    #[test]
    fn damage_is_named() {
        let start = || Builder::default().section().interface(1, 0, &[]);
        let good = start().enhanced(0, 1, 1, b"abcd").bytes;
        let at = start().bytes.len();

        let mut tail = good.clone();
        *tail.last_mut().unwrap() ^= 1;
        assert!(matches!(reason(&tail), FormatError::BlockTail { kind: 6, head: 36, .. }));

        for claimed in [0u32, 4, 28, 35, BLOCK_BYTES_MAX + 4, u32::MAX] {
            let mut length = good.clone();
            length[at + 4..at + 8].copy_from_slice(&claimed.to_le_bytes());
            assert_eq!(
                reason(&length),
                FormatError::BlockLength { kind: 6, claimed, min: 32 },
                "claimed {claimed}"
            );
        }

        let mut room = good.clone();
        room[at + 20..at + 24].copy_from_slice(&5u32.to_le_bytes());
        assert_eq!(reason(&room), FormatError::BlockRoom { kind: 6, claimed: 5, room: 4 });

        let mut long = good.clone();
        long[at + 20..at + 24].copy_from_slice(&262_145u32.to_le_bytes());
        assert_eq!(reason(&long), FormatError::FrameTooLong { claimed: 262_145 });

        let interface = Builder::default().section().interface(1, 0, &[(OPTION_TSRESOL, b"no")]);
        assert_eq!(
            reason(&interface.bytes),
            FormatError::OptionLength { code: OPTION_TSRESOL, len: 2 }
        );

        let mut order = good;
        order[8] ^= 1;
        assert!(matches!(reason(&order), FormatError::ByteOrderMagic(_)));
    }

    #[test]
    fn an_option_that_leaves_its_block_is_an_error() {
        let mut builder = Builder::default().section();
        let at = builder.bytes.len();
        builder = builder.interface(1, 0, &[(2, b"eth0")]);
        builder.bytes[at + 18..at + 20].copy_from_slice(&9u16.to_le_bytes());
        assert_eq!(reason(&builder.bytes), FormatError::OptionLength { code: 2, len: 9 });
    }

    #[test]
    fn the_interface_limit_holds() {
        let mut bytes = Builder::default().section().bytes;
        let one = Builder::default().interface(1, 0, &[]).bytes;
        for _ in 0..=INTERFACES_MAX {
            bytes.extend(&one);
        }
        assert_eq!(reason(&bytes), FormatError::TooManyInterfaces);
    }
}
