//! What must hold for any input: writing then reading is the identity, and no bytes make the reader panic, hang, or
//! disagree with itself. Failures print the smallest input that shows them.

use laneway_capture::{Layout, LinkType, Reader, Record, Writer, fuzz_reader};
use proptest::prelude::*;
use std::io::Cursor;

const LINKS: [LinkType; 3] = [LinkType::Ethernet, LinkType::LinuxSll2, LinkType::Other(147)];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    ts_ns: u64,
    interface: u32,
    wire_len: u32,
    data: Vec<u8>,
}

impl Owned {
    fn record(&self) -> Record<'_> {
        let Self { ts_ns, interface, wire_len, ref data } = *self;
        Record { ts_ns, interface, link: LINKS[interface as usize], wire_len, data }
    }
}

prop_compose! {
    fn a_record(interfaces: u32, ts_max: u64)(
        ts_ns in 0..=ts_max,
        interface in 0..interfaces,
        data in prop::collection::vec(any::<u8>(), 0..200),
        beyond in prop_oneof![Just(0u32), 0..10_000u32, Just(u32::MAX - 200)],
    ) -> Owned {
        Owned { ts_ns, interface, wire_len: data.len() as u32 + beyond, data }
    }
}

fn a_capture() -> impl Strategy<Value = (Layout, Vec<Owned>)> {
    let pcap_max = (1u64 << 32) * 1_000_000_000 - 1;
    prop_oneof![
        (Just(Layout::Pcap), prop::collection::vec(a_record(1, pcap_max), 0..20)),
        (Just(Layout::Pcapng), prop::collection::vec(a_record(3, u64::MAX), 0..20)),
    ]
}

fn written(layout: Layout, records: &[Owned], counts: Option<(u64, u64)>) -> Vec<u8> {
    let links = match layout {
        Layout::Pcap => &LINKS[..1],
        Layout::Pcapng => &LINKS[..],
    };
    let mut writer = Writer::new(Vec::new(), layout, links).expect("valid links");
    for record in records {
        writer.write(&record.record()).expect("a valid record");
    }
    if let Some((received, dropped)) = counts {
        writer.set_counts(0, received, dropped).expect("interface 0 exists");
    }
    writer.finish().expect("memory does not fail")
}

/// The same capture as another machine would write it: every number of a classic pcap in big endian.
fn swapped_pcap(bytes: &[u8]) -> Vec<u8> {
    let swap4 = |out: &mut Vec<u8>, part: &[u8]| {
        for word in part.chunks(4) {
            out.extend(word.iter().rev());
        }
    };
    let mut out = Vec::new();
    swap4(&mut out, &bytes[..4]);
    out.extend([bytes[5], bytes[4], bytes[7], bytes[6]]);
    swap4(&mut out, &bytes[8..24]);
    let mut rest = &bytes[24..];
    while !rest.is_empty() {
        swap4(&mut out, &rest[..16]);
        let len = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize;
        out.extend(&rest[16..16 + len]);
        rest = &rest[16 + len..];
    }
    out
}

fn read(bytes: Vec<u8>) -> (Vec<Owned>, Reader) {
    let mut reader = Reader::from_read(Cursor::new(bytes)).expect("memory does not fail");
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().expect("a valid capture") {
        let Record { ts_ns, interface, link, wire_len, data } = record;
        assert_eq!(link, LINKS[interface as usize]);
        records.push(Owned { ts_ns, interface, wire_len, data: data.to_vec() });
    }
    (records, reader)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn writing_then_reading_is_the_identity(
        (layout, records) in a_capture(),
        counts in any::<Option<(u64, u64)>>(),
    ) {
        let bytes = written(layout, &records, counts);
        if layout == Layout::Pcap {
            prop_assert_eq!(&read(swapped_pcap(&bytes)).0, &records);
        }
        let (back, reader) = read(bytes);
        prop_assert_eq!(back, records);
        if layout == Layout::Pcapng {
            let interface = reader.interfaces()[0];
            prop_assert_eq!(interface.received.zip(interface.dropped), counts);
        }
    }

    #[test]
    fn a_cut_capture_yields_a_prefix_and_then_an_error_or_the_end(
        (layout, records) in a_capture(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = written(layout, &records, None);
        bytes.truncate(cut.index(bytes.len()));
        fuzz_reader(&bytes);
        let mut reader = Reader::from_read(Cursor::new(bytes)).expect("memory does not fail");
        let mut count = 0;
        while let Ok(Some(record)) = reader.next_record() {
            prop_assert_eq!(record, records[count].record());
            count += 1;
        }
        prop_assert_eq!(reader.counts().records, count as u64);
    }

    #[test]
    fn flipped_bits_never_panic_and_always_end(
        (layout, records) in a_capture(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..8),
    ) {
        let mut bytes = written(layout, &records, Some((1, 2)));
        let len = bytes.len();
        for (index, bit) in flips {
            bytes[index.index(len)] ^= 1 << bit;
        }
        fuzz_reader(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_always_end(
        start in prop::sample::select(vec![
            &b""[..],
            b"\xd4\xc3\xb2\xa1\x02\0\x04\0",
            b"\xa1\xb2\x3c\x4d\0\x02\0\x04",
            b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\0\0\0\0\0\0\0\0\x1c\0\0\0",
            b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
            b"\x28\xb5\x2f\xfd",
        ]),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        fuzz_reader(&[start, &bytes].concat());
    }

    #[test]
    fn arbitrary_blocks_in_a_valid_chain_never_panic_and_always_end(
        blocks in prop::collection::vec(
            (0..8u32, prop::collection::vec(any::<u8>(), 0..60), any::<bool>()), 0..12),
    ) {
        // Well-formed frames around arbitrary bodies, so that every block's own parser is reached.
        let mut bytes = written(Layout::Pcapng, &[], None);
        for (kind, mut body, zeroed) in blocks {
            body.resize(body.len().next_multiple_of(4), 0);
            if zeroed {
                // A zero interface number gets past the first check.
                body.iter_mut().take(4).for_each(|byte| *byte = 0);
            }
            let total = (body.len() as u32 + 12).to_le_bytes();
            bytes.extend(kind.to_le_bytes());
            bytes.extend(total);
            bytes.extend(body);
            bytes.extend(total);
        }
        fuzz_reader(&bytes);
    }
}
