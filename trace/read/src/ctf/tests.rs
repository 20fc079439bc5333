//! CTF written here, byte by byte, and read back: byte orders, headers, wraps, losses, migration, and whatever is broken.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::testing::{Folder, Log, read};
use crate::{Event, FunctionKey, Kind, OpenError};

/// Event header of LTTng.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    Compact,
    Large,
}

/// A small trace as LTTng-UST would write it.
#[derive(Clone, Debug)]
struct Writer {
    big_endian: bool,
    header: Header,
    packets: Vec<Vec<u8>>,
}

/// What the trace states about a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Packet {
    begin: u64,
    end: u64,
    sequence: u64,
    discarded: u64,
    cpu: u32,
}

/// An event: id, time, process, thread, address.
type Row = (u32, u64, u32, u32, u64);

const ENTRY: u32 = 1;
const EXIT: u32 = 2;
const WORDS: u32 = 3;
const FAST_EXIT: u32 = 70_000;

impl Writer {
    fn new(big_endian: bool, header: Header) -> Self {
        Self { big_endian, header, packets: Vec::new() }
    }

    fn metadata(&self) -> String {
        let order = if self.big_endian { "be" } else { "le" };
        let header = match self.header {
            Header::Compact => {
                "struct { enum : u5 { compact = 0 ... 30, extended = 31 } id; variant <id> {
                    struct { t27 timestamp; } compact;
                    struct { u32 id; t64 timestamp; } extended; } v; } align(8)"
            }
            Header::Large => {
                "struct { enum : u16 { compact = 0 ... 65534, extended = 65535 } id; variant <id> {
                    struct { t32 timestamp; } compact;
                    struct { u32 id; t64 timestamp; } extended; } v; } align(8)"
            }
        };
        let integer = |bits: u32, align: u32, map: &str, name: &str| {
            format!(
                "typealias integer {{ size = {bits}; align = {align}; signed = false; {map} }} := {name};\n"
            )
        };
        let map = "map = clock.c.value;";
        let mut text = "/* CTF 1.8 */\n".to_owned();
        for (bits, align, map, name) in [
            (5, 1, "", "u5"),
            (8, 8, "", "u8"),
            (16, 8, "", "u16"),
            (32, 8, "", "u32"),
            (64, 8, "", "u64"),
        ] {
            text += &integer(bits, align, map, name);
        }
        text += &format!(
            "trace {{ major = 1; minor = 8; byte_order = {order}; packet.header := struct {{ u32 magic; }}; }};
             env {{ tracer_name = \"lttng-ust\"; hostname = \"here\"; }};
             clock {{ name = c; freq = 1000000000; offset = 1000; }};\n"
        );
        text += &integer(27, 1, map, "t27");
        text += &integer(32, 8, map, "t32");
        text += &integer(64, 8, map, "t64");
        text += &format!(
            "stream {{ id = 0; event.header := {header};
               packet.context := struct {{ t64 timestamp_begin; t64 timestamp_end; u64 content_size; u64 packet_size;
                 u64 packet_seq_num; u64 events_discarded; u32 cpu_id; }};
               event.context := struct {{ u32 _vpid; u32 _vtid;
                 integer {{ size = 8; align = 8; signed = 1; encoding = UTF8; }} _procname[17]; }}; }};
             event {{ id = {ENTRY}; name = \"lttng_ust_cyg_profile:func_entry\"; fields := struct {{ u64 _addr; u64 _call_site; }}; }};
             event {{ id = {EXIT}; name = \"lttng_ust_cyg_profile:func_exit\"; fields := struct {{ u64 _addr; u64 _call_site; }}; }};
             event {{ id = {FAST_EXIT}; name = \"lttng_ust_cyg_profile_fast:func_exit\"; fields := struct {{ }}; }};
             event {{ id = {WORDS}; name = \"mine:words\"; fields := struct {{ u32 _n; u16 _x[_n]; string _s; }}; }};\n"
        );
        text
    }

    fn number(&self, bytes: &mut Vec<u8>, value: u64, size: usize) {
        if self.big_endian {
            bytes.extend(&value.to_be_bytes()[8 - size..]);
        } else {
            bytes.extend(&value.to_le_bytes()[..size]);
        }
    }

    /// Adds a packet; times that the short header cannot tell are written with the long one.
    fn packet(&mut self, about: Packet, rows: &[Row]) {
        let mut body = Vec::new();
        let mut last = about.begin;
        for &(id, time, pid, tid, address) in rows {
            let (bits, most) = match self.header {
                Header::Compact => (27, 30),
                Header::Large => (32, 65_534),
            };
            let long = id > most || time < last || time - last >= 1 << bits;
            last = time;
            match (self.header, long) {
                (Header::Compact, false) => {
                    let time = time & ((1 << 27) - 1);
                    let id = u64::from(id);
                    let word = if self.big_endian { (id << 27) | time } else { (time << 5) | id };
                    self.number(&mut body, word, 4);
                }
                (Header::Large, false) => {
                    self.number(&mut body, id.into(), 2);
                    self.number(&mut body, time & 0xffff_ffff, 4);
                }
                (Header::Compact, true) => {
                    body.push(if self.big_endian { 31 << 3 } else { 31 });
                    self.number(&mut body, id.into(), 4);
                    self.number(&mut body, time, 8);
                }
                (Header::Large, true) => {
                    self.number(&mut body, 65_535, 2);
                    self.number(&mut body, id.into(), 4);
                    self.number(&mut body, time, 8);
                }
            }
            self.number(&mut body, pid.into(), 4);
            self.number(&mut body, tid.into(), 4);
            let mut name = [0; 17];
            name[..6].copy_from_slice(b"worker");
            name[7] = 0x55; // behind the end of the text: LTTng writes what was there
            body.extend(name);
            match id {
                ENTRY | EXIT => {
                    self.number(&mut body, address, 8);
                    self.number(&mut body, 7, 8);
                }
                WORDS => {
                    self.number(&mut body, 2, 4);
                    self.number(&mut body, address, 2);
                    self.number(&mut body, 9, 2);
                    body.extend(b"text\0");
                }
                _ => {}
            }
        }
        self.raw(about, &body);
    }

    fn raw(&mut self, about: Packet, body: &[u8]) {
        let content = 4 + 6 * 8 + 4 + body.len();
        let size = content.next_multiple_of(64);
        let mut packet = Vec::new();
        self.number(&mut packet, 0xc1fc_1fc1, 4);
        for value in [
            about.begin,
            about.end,
            content as u64 * 8,
            size as u64 * 8,
            about.sequence,
            about.discarded,
        ] {
            self.number(&mut packet, value, 8);
        }
        self.number(&mut packet, about.cpu.into(), 4);
        packet.extend(body);
        packet.resize(size, 0xee);
        self.packets.push(packet);
    }

    fn bytes(&self) -> Vec<u8> {
        self.packets.concat()
    }

    fn read(&self) -> Log {
        self.read_by(&self.metadata())
    }

    /// The same layout as [`Writer::metadata`] in the JSON of CTF 2.
    fn second_metadata(&self) -> String {
        let order = if self.big_endian { "big-endian" } else { "little-endian" };
        let integer = |bits: u32, align: u32, role: &str| {
            json!({ "type": "fixed-length-unsigned-integer", "byte-order": order, "length": bits,
                    "alignment": align, "roles": if role.is_empty() { vec![] } else { vec![role] } })
        };
        let member = |name: &str, class: Value| json!({ "name": name, "field-class": class });
        let of = |members: Vec<Value>, align: u32| json!({ "type": "structure", "member-classes": members, "minimum-alignment": align });
        let stamp = "default-clock-timestamp";
        let (tag, time, last) = match self.header {
            Header::Compact => ((5, 1), (27, 1), 30),
            Header::Large => ((16, 8), (32, 8), 65_534),
        };
        let mut id = integer(tag.0, tag.1, "event-record-class-id");
        id["mappings"] = json!({ "compact": [[0, last]], "extended": [[last + 1, last + 1]] });
        let short = of(vec![member("timestamp", integer(time.0, time.1, stamp))], 1);
        let long = of(
            vec![
                member("id", integer(32, 8, "event-record-class-id")),
                member("timestamp", integer(64, 8, stamp)),
            ],
            1,
        );
        let options = json!([
            { "name": "compact", "field-class": short, "selector-field-ranges": [[0, last]] },
            { "name": "extended", "field-class": long, "selector-field-ranges": [[last + 1, last + 1]] },
        ]);
        let variant = json!({ "type": "variant", "options": options,
            "selector-field-location": { "origin": "event-record-header", "path": ["id"] } });
        let u = |bits: u32| integer(bits, 8, "");
        let context = [
            ("timestamp_begin", stamp),
            ("timestamp_end", "packet-end-default-clock-timestamp"),
            ("content_size", "packet-content-length"),
            ("packet_size", "packet-total-length"),
            ("packet_seq_num", "packet-sequence-number"),
            ("events_discarded", "discarded-event-record-counter-snapshot"),
        ];
        let mut context: Vec<Value> =
            context.iter().map(|(name, role)| member(name, integer(64, 8, role))).collect();
        context.push(member("cpu_id", u(32)));
        let who = vec![
            member("vpid", u(32)),
            member("vtid", u(32)),
            member("procname", json!({ "type": "static-length-string", "length": 17 })),
        ];
        let address =
            || of(vec![member("addr", json!("u64")), member("call_site", json!("u64"))], 1);
        let words = of(
            vec![
                member("n", u(32)),
                member(
                    "x",
                    json!({ "type": "dynamic-length-array", "element-field-class": u(16),
                                    "length-field-location": { "path": ["n"] } }),
                ),
                member("s", json!({ "type": "null-terminated-string" })),
            ],
            1,
        );
        let event = |id: u32, name: &str, payload: Value| json!({ "type": "event-record-class", "id": id, "name": name, "payload-field-class": payload });
        let fragments = [
            json!({ "type": "preamble", "version": 2 }),
            json!({ "type": "field-class-alias", "name": "u64", "field-class": u(64) }),
            json!({ "type": "trace-class",
                    "environment": { "tracer_name": "lttng-ust", "hostname": "here" },
                    "packet-header-field-class":
                        of(vec![member("magic", integer(32, 8, "packet-magic-number"))], 1) }),
            json!({ "type": "clock-class", "id": "c", "frequency": 1_000_000_000,
                    "offset-from-origin": { "seconds": 0, "cycles": 1000 } }),
            json!({ "type": "data-stream-class", "default-clock-class-id": "c",
                    "packet-context-field-class": of(context, 1),
                    "event-record-header-field-class":
                        of(vec![member("id", id), member("v", variant)], 8),
                    "event-record-common-context-field-class": of(who, 1) }),
            event(ENTRY, "lttng_ust_cyg_profile:func_entry", address()),
            event(EXIT, "lttng_ust_cyg_profile:func_exit", address()),
            event(FAST_EXIT, "lttng_ust_cyg_profile_fast:func_exit", of(vec![], 1)),
            event(WORDS, "mine:words", words),
        ];
        fragments.iter().map(|fragment| format!("\u{1e}{fragment}\n")).collect()
    }

    fn read_by(&self, metadata: &str) -> Log {
        let folder = Folder::new();
        folder.write("metadata", metadata.as_bytes());
        folder.write("channel0_0", &self.bytes());
        read(folder.path()).expect("a trace")
    }
}

fn call(time: u64, tid: u32, address: u64) -> [Row; 2] {
    [(ENTRY, time, 1, tid, address), (EXIT, time + 10, 1, tid, address)]
}

/// The event that a row should become.
fn event(row: &Row) -> Event {
    let &(id, time, _, _, address) = row;
    let key = FunctionKey(address);
    let kind = match id {
        ENTRY => Kind::Enter(key),
        EXIT => Kind::Leave(key),
        WORDS => Kind::Point { point: 0, value: 2 },
        _ => Kind::LeaveInnermost,
    };
    Event { time_ns: time + 1000, kind }
}

/// Whole traces in every layout, as metadata and two streams: for the fuzzer.
pub(crate) fn samples() -> Vec<(String, String, [Vec<u8>; 2])> {
    let sample = |(big_endian, header): (bool, Header)| {
        let mut streams = [0, 1].map(|cpu| {
            let mut writer = Writer::new(big_endian, header);
            let rows = |from: u64| -> Vec<Row> {
                let calls =
                    (0..6).flat_map(|n| call(from + 40 * n + 5 * u64::from(cpu), 2, 0x1000 + n));
                let others = [(WORDS, from + 300, 1, 3, 5), (FAST_EXIT, from + 310, 1, 3, 0)];
                calls.chain(others).collect()
            };
            let about = Packet { begin: 90, end: 500, cpu, ..Packet::default() };
            writer.packet(about, &rows(100));
            let later =
                Packet { begin: 1 << 33, end: (1 << 33) + 900, sequence: 1, discarded: 3, cpu };
            writer.packet(later, &rows(1 << 33));
            // babeltrace2 wants a stream with an id to be named by its packets.
            (writer.metadata().replace("stream { id = 0;", "stream {"), writer.bytes())
        });
        let name = format!("{}-{header:?}", if big_endian { "big" } else { "little" });
        let metadata = std::mem::take(&mut streams[0].0);
        (name.to_lowercase(), metadata, streams.map(|stream| stream.1))
    };
    let mut all: Vec<(String, String, [Vec<u8>; 2])> = every_layout().map(sample).into();
    // The same streams by the JSON of CTF 2, and a trace of the kernel.
    for layout in [(false, Header::Compact), (true, Header::Large)] {
        let (name, _, streams) = sample(layout);
        let metadata = Writer::new(layout.0, layout.1).second_metadata();
        all.push((format!("second-{name}"), metadata, streams));
    }
    all.push(("kernel".into(), kernel_metadata(), kernel_streams()));
    all
}

fn every_layout() -> [(bool, Header); 4] {
    [
        (false, Header::Compact),
        (false, Header::Large),
        (true, Header::Compact),
        (true, Header::Large),
    ]
}

#[test]
fn every_byte_order_and_header_gives_the_same_events() {
    for (big_endian, header) in every_layout() {
        let mut writer = Writer::new(big_endian, header);
        let rows: Vec<Row> = vec![
            (ENTRY, 100, 1, 2, 0xffff_ffff_0000_1111),
            (WORDS, 101, 1, 2, 5),
            (FAST_EXIT, 102, 1, 2, 0),
            (EXIT, 1 << 40, 1, 3, 0x1234),
        ];
        writer.packet(Packet { begin: 50, end: 1 << 41, cpu: 3, ..Packet::default() }, &rows);
        for metadata in [writer.metadata(), writer.second_metadata()] {
            let log = writer.read_by(&metadata);
            assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
            let mut found: Vec<Event> = log.events.iter().map(|&(_, _, event)| event).collect();
            found.sort_by_key(|event| event.time_ns);
            assert_eq!(
                found,
                rows.iter().map(event).collect::<Vec<_>>(),
                "{big_endian} {header:?}"
            );
            assert!(log.events.iter().all(|&(_, cpu, _)| cpu == Some(3)));
            let threads: Vec<_> =
                log.threads.iter().map(|t| (t.pid, t.tid, t.name.as_str())).collect();
            assert_eq!(threads, [(1, 2, "worker"), (1, 3, "worker")]);
            assert_eq!((log.read.entries, log.read.exits, log.read.records), (1, 2, 4));
        }
    }
}

#[test]
fn short_times_wrap() {
    for (big_endian, header) in every_layout() {
        let step = if header == Header::Compact { 1 << 26 } else { 1 << 31 };
        let rows: Vec<Row> = (1..20).map(|n| (ENTRY, n * step + 7, 1, 2, n)).collect();
        let mut writer = Writer::new(big_endian, header);
        writer.packet(Packet { begin: 7, end: 20 * step, ..Packet::default() }, &rows);
        let times: Vec<u64> = writer.read().events.iter().map(|event| event.2.time_ns).collect();
        assert_eq!(times, rows.iter().map(|row| row.1 + 1000).collect::<Vec<_>>());
    }
}

#[test]
fn discarded_events_are_reported_behind_the_packet_that_counts_them() {
    let mut writer = Writer::new(false, Header::Large);
    writer.packet(Packet { begin: 0, end: 50, ..Packet::default() }, &call(10, 2, 1));
    let second = Packet { begin: 50, end: 500, sequence: 1, discarded: 40, ..Packet::default() };
    writer.packet(second, &call(60, 2, 1));
    let third = Packet { begin: 500, end: 600, sequence: 2, discarded: 40, ..Packet::default() };
    writer.packet(third, &call(510, 2, 1));
    let log = writer.read();
    assert_eq!(log.losses.len(), 1);
    let (loss, threads, before) = &log.losses[0];
    assert_eq!((loss.from_ns, loss.to_ns, loss.events), (1070, 1500, Some(40)));
    assert_eq!(
        (threads.len(), *before),
        (1, 4),
        "reported between the second and the third packet"
    );
    assert_eq!((log.read.discarded, log.read.losses), (40, 1));
}

#[test]
fn missing_packets_are_reported_before_the_one_that_shows_it() {
    let mut writer = Writer::new(false, Header::Large);
    writer.packet(Packet { begin: 0, end: 50, ..Packet::default() }, &call(10, 2, 1));
    let late = Packet { begin: 100, end: 200, sequence: 5, ..Packet::default() };
    writer.packet(late, &call(110, 2, 1));
    let log = writer.read();
    let (loss, _, before) = &log.losses[0];
    assert_eq!((loss.from_ns, loss.to_ns, loss.events, *before), (1020, 1100, None, 2));
}

#[test]
fn behind_the_last_number_that_there_is_no_packet_is_missing() {
    let mut writer = Writer::new(false, Header::Large);
    for (begin, sequence) in [(0, u64::MAX), (50, 0), (100, u64::MAX)] {
        let packet = Packet { begin, end: begin + 50, sequence, ..Packet::default() };
        writer.packet(packet, &call(begin + 10, 2, 1));
    }
    let log = writer.read();
    // Two of the three have their neighbours' numbers; before the last many are missing.
    assert_eq!((log.events.len(), log.losses.len()), (6, 1), "{:?}", log.losses);
}

#[test]
fn what_is_left_out_of_a_packet_is_a_loss_up_to_its_end() {
    let mut writer = Writer::new(false, Header::Large);
    let rows: Vec<Row> = [10, 30, 60].into_iter().flat_map(|at| call(at, 2, 1)).collect();
    writer.packet(Packet { begin: 0, end: 100, ..Packet::default() }, &rows);
    let second = Packet { begin: 100, end: 200, sequence: 1, ..Packet::default() };
    writer.packet(second, &call(110, 2, 1));
    let mut bytes = writer.bytes();
    // The id of the third event: behind the header of the packet, and two events of id, time, context and addresses.
    let third = 56 + 2 * (2 + 4 + 25 + 16);
    assert_eq!(bytes[third..third + 2], [ENTRY as u8, 0]);
    bytes[third] = 99;
    let log = damaged(&bytes);
    assert_eq!((log.events.len(), log.read.damages.len()), (4, 1), "{:?}", log.read.damages);
    let (loss, threads, before) = &log.losses[0];
    assert_eq!((loss.from_ns, loss.to_ns, loss.events), (1020, 1100, None));
    assert_eq!((log.losses.len(), threads.len(), *before), (1, 1, 2));
}

#[test]
fn a_file_that_ends_within_a_packet_lost_what_follows() {
    let bytes = small().bytes();
    let first = small().packets[0].len();
    // Within the header of the second packet, within its first event, and behind that, before the second one.
    for length in [first + 30, first + 56 + 20, first + 56 + 47] {
        let log = damaged(&bytes[..length]);
        assert_eq!((log.losses.len(), log.losses[0].0.events), (1, None), "cut at {length}");
        assert_eq!(log.losses[0].2, log.events.len(), "cut at {length}");
    }
    let padding = damaged(&bytes[..bytes.len() - 1]);
    assert_eq!((padding.losses.len(), padding.events.len()), (0, 13), "nothing was in it");
}

#[test]
fn a_first_packet_that_is_not_the_first_of_the_session_counts_no_loss() {
    for (sequence, lost) in [(0, 40), (3, 0)] {
        let mut writer = Writer::new(false, Header::Large);
        let first = Packet { begin: 0, end: 50, sequence, discarded: 40, ..Packet::default() };
        writer.packet(first, &call(10, 2, 1));
        assert_eq!(writer.read().read.discarded, lost);
    }
}

#[test]
fn a_thread_that_moves_between_cpus_stays_in_order() {
    // Thread 2 alternates between two CPUs with every event; thread 3 stays.
    let rows: Vec<Row> = (0..20_000_u32)
        .map(|n| (ENTRY, u64::from(n) * 3, 1, 2 + u32::from(n % 7 == 0), n.into()))
        .collect();
    let folder = Folder::new();
    let mut streams = [Writer::new(false, Header::Compact), Writer::new(false, Header::Compact)];
    for (cpu, writer) in streams.iter_mut().enumerate() {
        let mine: Vec<Row> = rows
            .iter()
            .filter(|row| if row.3 == 3 { cpu == 0 } else { row.4 as usize % 2 == cpu })
            .copied()
            .collect();
        for (sequence, rows) in mine.chunks(1000).enumerate() {
            let about = Packet {
                begin: rows[0].1,
                end: rows[rows.len() - 1].1,
                sequence: sequence as u64,
                cpu: cpu as u32,
                ..Packet::default()
            };
            writer.packet(about, rows);
        }
        folder.write(&format!("channel0_{cpu}"), &writer.bytes());
    }
    folder.write("metadata", streams[0].metadata().as_bytes());
    let log = read(folder.path()).expect("a trace");
    assert_eq!(log.events.len(), rows.len());
    for thread in 0..2 {
        let mine: Vec<u64> = log
            .events
            .iter()
            .filter(|event| event.0 == thread)
            .map(|event| event.2.time_ns)
            .collect();
        assert!(mine.is_sorted(), "thread {thread}");
        let tid = log.threads[thread].tid;
        assert_eq!(mine.len(), rows.iter().filter(|row| row.3 == tid).count());
    }
}

#[test]
fn reading_twice_gives_the_same() {
    let mut writer = Writer::new(false, Header::Large);
    let rows: Vec<Row> = (0..30_000).flat_map(|n| call(n * 20, 2 + (n % 3) as u32, n)).collect();
    writer.packet(Packet { end: 600_000, ..Packet::default() }, &rows);
    assert_eq!(writer.read().events, writer.read().events);
}

#[test]
fn time_that_goes_back_is_held_and_named() {
    let mut writer = Writer::new(false, Header::Large);
    writer.packet(
        Packet { begin: 100, end: 300, ..Packet::default() },
        &[(ENTRY, 200, 1, 2, 1), (EXIT, 150, 1, 2, 1), (ENTRY, 210, 1, 2, 1)],
    );
    let log = writer.read();
    let times: Vec<u64> = log.events.iter().map(|event| event.2.time_ns).collect();
    assert_eq!(times, [1200, 1200, 1210]);
    let damage = &log.read.damages[0];
    assert!(damage.what.contains("time goes back"), "{damage:?}");
    assert_eq!(damage.offset, 56 + 6 + 25 + 16, "the second event");
}

fn damaged(bytes: &[u8]) -> Log {
    let folder = Folder::new();
    folder.write("metadata", Writer::new(false, Header::Large).metadata().as_bytes());
    folder.write("channel0_0", bytes);
    read(folder.path()).expect("the metadata is whole")
}

fn small() -> Writer {
    let mut writer = Writer::new(false, Header::Large);
    let mut rows: Vec<Row> = (0..5).flat_map(|n| call(n * 20, 2, n)).collect();
    rows.push((WORDS, 110, 1, 2, 7));
    writer.packet(Packet { end: 120, ..Packet::default() }, &rows);
    writer.packet(
        Packet { begin: 120, end: 150, sequence: 1, ..Packet::default() },
        &call(130, 2, 9),
    );
    writer
}

#[test]
fn a_file_cut_off_anywhere_is_read_as_far_as_it_goes() {
    let bytes = small().bytes();
    let whole = damaged(&bytes);
    assert!(whole.read.damages.is_empty(), "{:?}", whole.read.damages);
    let first = small().packets[0].len();
    for length in 1..bytes.len() {
        let log = damaged(&bytes[..length]);
        assert!(whole.events.starts_with(&log.events), "cut at {length}");
        if length != first {
            assert!(!log.read.damages.is_empty(), "cut at {length}");
            assert!(log.read.damages.iter().all(|damage| damage.offset <= length as u64));
        }
    }
}

#[test]
fn each_broken_header_is_named() {
    let check = |offset: usize, value: u64, part: &str| {
        let mut bytes = small().bytes();
        let size = if offset == 0 { 4 } else { 8 };
        bytes[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
        let log = damaged(&bytes);
        let is_reported = log.read.damages.iter().any(|damage| damage.what.contains(part));
        assert!(is_reported, "{part}: {:?}", log.read.damages);
        log
    };
    check(0, 0x1234, "magic is 0x00001234");
    check(0, 0xc11f_fcc1, "other byte order");
    check(20, 1 << 60, "claims");
    check(20, 7, "claims");
    check(28, 0, "a packet of 0 bits");
    check(28, 12, "a packet of 12 bits");
    check(28, 1 << 50, "the file ends");
    check(28, !7, "the file ends");
    let unknown = check(56, 0x1111_2222_3333_0063, "no kind of event has the id 99");
    assert_eq!(unknown.events.len(), 2, "the next packet is read");
    let offset = unknown.read.damages[0].offset;
    assert_eq!(offset, 56, "the first event");
}

#[test]
fn a_huge_sequence_is_refused() {
    let mut writer = Writer::new(false, Header::Large);
    let mut body = vec![3, 0, 9, 0, 0, 0];
    body.extend([0; 25]);
    body.extend(u32::MAX.to_le_bytes());
    body.extend([1; 100]);
    writer.raw(Packet { end: 100, ..Packet::default() }, &body);
    let log = writer.read();
    assert!(log.events.is_empty());
    assert!(log.read.damages[0].what.contains("mine:words"), "{:?}", log.read.damages);
}

#[test]
fn directories_without_a_readable_trace_are_refused_with_a_reason() {
    let folder = Folder::new();
    let error = read(folder.path()).expect_err("nothing in it");
    assert!(matches!(error, OpenError::NotATrace { .. }), "{error}");
    for (metadata, part) in [
        ("trace { byte_order = middle; };", "byte order `middle`"),
        ("stream { };", "no `byte_order`"),
        (
            "trace { byte_order = le; }; stream { event.header := struct { uint5_t id; }; };",
            "uint5_t",
        ),
        (
            "trace { byte_order = le; }; typealias integer { size = 8; } := u8; stream { };
             event { fields := struct { u8 x[n]; }; };",
            "no member `n`",
        ),
        ("\u{7f}ELF", "0x7f"),
    ] {
        folder.write("metadata", metadata.as_bytes());
        folder.write("channel0_0", b"x");
        let error = read(folder.path()).expect_err(metadata).to_string();
        assert!(error.contains(part) && error.contains("metadata"), "{error}");
    }
    let missing = PathBuf::from("/nonexistent/trace");
    assert!(matches!(read(&missing), Err(OpenError::Io { .. })));
    let text = folder.write("text", b"hello, world");
    assert!(matches!(read(&text), Err(OpenError::NotATrace { .. })));
}

#[test]
fn what_metadata_leaves_out_is_taken_as_babeltrace2_takes_it() {
    let folder = Folder::new();
    // Neither stream nor event header: the bytes are one kind of event.
    let bytes = "typealias integer { size = 8; } := u8; event { name = \"a:b\"; fields := struct { u8 n; }; };";
    let plain = format!("trace {{ byte_order = le; }}; {bytes}");
    folder.write("metadata", plain.as_bytes());
    folder.write("stream", &[7, 8]);
    let log = read(folder.path()).expect("a trace");
    let values: Vec<Kind> = log.events.iter().map(|event| event.2.kind).collect();
    assert_eq!(values, [7, 8].map(|value| Kind::Point { point: 0, value }));
    // A trace of nothing, and one that nothing was written into.
    folder.write("metadata", b"trace { byte_order = le; };");
    folder.write("stream", b"");
    assert_eq!(read(folder.path()).expect("a trace").events.len(), 0);
    // A packet of another trace is read, and reported once.
    let uuid = "2a6422d0-6cee-11e0-8c08-cb07d7b3a564";
    let header = "packet.header := struct { u8 uuid[16]; };";
    let strange = format!(
        "typealias integer {{ size = 8; }} := u8; trace {{ byte_order = le; uuid = \"{uuid}\"; {header} }}; {bytes}"
    );
    folder.write("metadata", strange.replace("event", "stream {}; event").as_bytes());
    folder.write("stream", &[[1; 16].as_slice(), &[9]].concat());
    let log = read(folder.path()).expect("a trace");
    assert_eq!((log.events.len(), log.read.damages.len()), (1, 1), "{:?}", log.read.damages);
    assert!(log.read.damages[0].what.contains("uuid"), "{:?}", log.read.damages);
}

#[test]
fn an_error_of_a_layout_has_the_place_of_its_block() {
    let folder = Folder::new();
    for (metadata, line, offset) in [
        (
            "trace { byte_order = le; };\n stream { };\n\nevent { fields := struct { string x[n]; }; };",
            4,
            42,
        ),
        ("env { };\n\ntrace { };", 3, 10),
        ("{\"type\": \"preamble\", \"version\": 2}\n{\"type\":\n7x}", 3, 45),
        ("{\"type\": \"preamble\", \"version\": 2}\n\x1e{\"type\": \"clock-class\"}", 2, 36),
    ] {
        folder.write("metadata", metadata.as_bytes());
        match read(folder.path()) {
            Err(OpenError::Metadata { line: l, offset: o, what, .. }) => {
                assert_eq!((l, o), (line, offset), "{metadata}: {what}");
            }
            other => panic!("{metadata}: {other:?}"),
        }
    }
}

#[test]
fn fields_that_only_the_second_format_has_are_read() {
    let integer = |order: &str, bits: u32| json!({ "type": "fixed-length-unsigned-integer", "byte-order": order, "length": bits });
    let member = |name: &str, class: Value| json!({ "name": name, "field-class": class });
    let here = |path: &str| json!({ "origin": "event-record-payload", "path": [path] });
    let payload = json!({ "type": "structure", "member-classes": [
        member("flag", json!({ "type": "fixed-length-boolean", "byte-order": "little-endian", "length": 8 })),
        member("maybe", json!({ "type": "optional", "field-class": integer("big-endian", 16),
                                "selector-field-location": here("flag") })),
        member("n", json!({ "type": "variable-length-unsigned-integer" })),
        member("text", json!({ "type": "dynamic-length-string", "length-field-location": here("n") })),
        member("inner", json!({ "type": "structure", "member-classes": [
            member("blob", json!({ "type": "dynamic-length-blob",
                                   "length-field-location": { "path": [null, "n"] } })),
            member("odd.name", json!({ "type": "variable-length-signed-integer" })),
            member("choice", json!({ "type": "variant", "selector-field-location": { "path": ["odd.name"] },
                "options": [
                    { "selector-field-ranges": [[-2, -1]], "field-class": integer("little-endian", 8) },
                    { "name": "b", "selector-field-ranges": [[0, 5]], "field-class": { "type": "null-terminated-string" } },
                ] })),
        ] })),
    ] });
    let metadata: String = [
        json!({ "type": "preamble", "version": 2 }),
        json!({ "type": "data-stream-class" }),
        json!({ "type": "event-record-class", "name": "e", "payload-field-class": payload }),
    ]
    .iter()
    .map(|fragment| format!("\u{1e}{fragment}"))
    .collect();
    let folder = Folder::new();
    folder.write("metadata", metadata.as_bytes());
    folder.write(
        "stream",
        &[1, 0x12, 0x34, 0x82, 0, b'h', b'i', 8, 9, 0x7e, 200, 0, 0, 0x80, 0x01, 0],
    );
    let trace = crate::Trace::open(folder.path()).expect("a trace");
    let mut found = Vec::new();
    trace.records(&mut |record| found.push(record.fields.to_owned())).expect("files can be read");
    assert_eq!(
        found,
        ["{ flag = 1, maybe = 4660, n = 2, text = \"hi\", inner = { blob = [ [0] = 8, [1] = 9 ], \
             odd.name = -2, choice = { 0 = 200 } } }",]
    );
}

#[test]
fn two_points_of_one_name_are_a_call() {
    let writer = |names: [&str; 2]| {
        let mut writer = Writer::new(false, Header::Large);
        writer.packet(Packet { end: 120, ..Packet::default() }, &call(20, 2, 7));
        let folder = Folder::new();
        let old = ["lttng_ust_cyg_profile:func_entry", "lttng_ust_cyg_profile:func_exit"];
        let metadata = writer.metadata().replace(old[0], names[0]).replace(old[1], names[1]);
        folder.write("metadata", metadata.as_bytes());
        folder.write("channel0_0", &writer.bytes());
        read(folder.path()).expect("a trace")
    };
    let log = writer(["my:work_begin", "my:work_end"]);
    assert_eq!(log.calls(), ["1020 +my:work", "1030 -my:work"]);
    assert_eq!((log.read.entries, log.read.exits), (1, 1));
    let log = writer(["my:work_begin", "my:other_end"]);
    assert!(log.events.iter().all(|event| matches!(event.2.kind, Kind::Point { value: 7, .. })));
}

/// Metadata of a kernel's trace: per CPU, without contexts.
fn kernel_metadata() -> String {
    kernel_metadata_of(&[])
}

/// The same, with further members of 64 bits in the context of a packet: their roles.
fn kernel_metadata_of(roles: &[&str]) -> String {
    let integer = |bits: u32, signed: &str, role: &str| {
        json!({ "type": format!("fixed-length-{signed}signed-integer"), "byte-order": "little-endian",
                "length": bits, "alignment": 8, "roles": [role] })
    };
    let u = |bits| integer(bits, "un", "");
    let structure = |members: Vec<(&str, Value)>| {
        let members: Vec<Value> = members
            .into_iter()
            .map(|(name, class)| json!({ "name": name, "field-class": class }))
            .collect();
        json!({ "type": "structure", "member-classes": members })
    };
    let comm = json!({ "type": "static-length-string", "length": 16 });
    let events = [
        (
            "sched_switch",
            vec![
                ("prev_comm", comm.clone()),
                ("prev_tid", u(32)),
                ("prev_state", integer(64, "", "")),
                ("next_comm", comm),
                ("next_tid", u(32)),
            ],
        ),
        ("irq_handler_entry", vec![("irq", u(32))]),
        ("irq_handler_exit", vec![("irq", u(32))]),
        ("softirq_entry", vec![("vec", u(32))]),
        ("softirq_exit", vec![("vec", u(32))]),
        ("syscall_entry_futex", vec![("op", u(32))]),
        ("syscall_exit_futex", vec![("ret", u(32))]),
        ("sched_wakeup", vec![("tid", u(32))]),
        ("sched_waking", vec![("tid", u(32))]),
    ];
    let mut context = vec![("cpu_id", u(32))];
    context.extend(roles.iter().map(|role| (*role, integer(64, "un", role))));
    let mut fragments = vec![
        json!({ "type": "preamble", "version": 2 }),
        json!({ "type": "trace-class", "environment": { "domain": "kernel", "tracer_name": "lttng-modules" } }),
        json!({ "type": "clock-class", "id": "c", "frequency": 1_000_000_000,
                "offset-from-origin": { "seconds": 0, "cycles": 1000 } }),
        json!({ "type": "data-stream-class", "default-clock-class-id": "c",
                "packet-context-field-class": structure(context),
                "event-record-header-field-class": structure(vec![
                    ("id", integer(8, "un", "event-record-class-id")),
                    ("timestamp", integer(64, "un", "default-clock-timestamp")) ]) }),
    ];
    for (id, (name, fields)) in events.into_iter().enumerate() {
        fragments.push(json!({ "type": "event-record-class", "id": id, "name": name,
                               "payload-field-class": structure(fields) }));
    }
    fragments.iter().map(|fragment| format!("\u{1e}{fragment}")).collect()
}

/// Time, id by its place in the metadata, and the first fields: of a switch the thread before, its state, the next one.
type KernelRow = (u64, u8, [u32; 3]);

const SWITCH: u8 = 0;

fn kernel_events(events: &[KernelRow]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(time, id, [first, state, next]) in events {
        bytes.push(id);
        bytes.extend(time.to_le_bytes());
        let comm = |tid: u32| if tid == 7 { *b"worker\0\0\0\0\0\0\0\0\0\0" } else { [b'o'; 16] };
        if id == SWITCH {
            bytes.extend(comm(first));
            bytes.extend(first.to_le_bytes());
            bytes.extend(u64::from(state).to_le_bytes());
            bytes.extend(comm(next));
            bytes.extend(next.to_le_bytes());
        } else {
            bytes.extend(first.to_le_bytes());
        }
    }
    bytes
}

/// What the kernel's tracer tells of thread 7: it is preempted on CPU 0, goes on on CPU 1, waits in futex, and is woken there.
fn kernel_streams() -> [Vec<u8>; 2] {
    let stream = |cpu: u32, events: &[KernelRow]| {
        [cpu.to_le_bytes().to_vec(), kernel_events(events)].concat()
    };
    let first = [
        (5, 1, [9, 0, 0]), // no thread is known to be on the CPU
        (10, SWITCH, [0, 0, 7]),
        (20, 1, [9, 0, 0]),
        (24, 2, [9, 0, 0]),
        (30, SWITCH, [7, 256, 8]),
        (33, 3, [3, 0, 0]),
        (35, 4, [3, 0, 0]),
    ];
    let second = [
        (40, SWITCH, [0, 0, 7]),
        (50, 5, [0, 0, 0]),
        (60, SWITCH, [7, 1, 0]),
        (61, 1, [9, 0, 0]), // of the idle task
        (65, 8, [7, 0, 0]), // an interrupt wakes it
        (66, 7, [7, 0, 0]),
        (70, SWITCH, [0, 0, 7]),
        (80, 6, [0, 0, 0]),
    ];
    [stream(0, &first), stream(1, &second)]
}

#[test]
fn what_the_kernels_tracer_tells_belongs_to_the_thread_on_the_cpu() {
    let folder = Folder::new();
    let kernel = folder.path().join("kernel");
    let user = folder.path().join("ust");
    for folder in [&kernel, &user] {
        std::fs::create_dir(folder).expect("the folder can be written");
    }
    folder.write("kernel/metadata", kernel_metadata().as_bytes());
    let [first, second] = kernel_streams();
    folder.write("kernel/channel0_0", &first);
    folder.write("kernel/channel0_1", &second);
    let mut writer = Writer::new(false, Header::Large);
    writer.packet(Packet { begin: 40, end: 90, ..Packet::default() }, &call(45, 7, 0x1234));
    folder.write("ust/metadata", writer.metadata().as_bytes());
    folder.write("ust/channel0_0", &writer.bytes());
    let log = read(folder.path()).expect("a trace");
    assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
    let of = |tid: u32| {
        let number =
            log.threads.iter().position(|thread| thread.tid == tid).expect("a thread of the log");
        let mine = log.events.iter().filter(move |event| event.0 == number);
        mine.map(|event| (event.2.time_ns - 1000, event.2.kind)).collect::<Vec<_>>()
    };
    let task = |name: &str| {
        let found = log.names.iter().find(|(_, text)| text.as_str() == name);
        *found.expect("a task that is named").0
    };
    let (other, interrupt) = (task("oooooooooooooooo"), task(""));
    let key = FunctionKey(0x1234);
    assert_eq!(
        of(7),
        [
            (10, Kind::TookOver(other)),
            (10, Kind::SwitchedIn),
            (20, Kind::InterruptIn(9)),
            (24, Kind::InterruptOut(9)),
            (30, Kind::SwitchedOut { runnable: true }),
            (30, Kind::TookOver(other)),
            (40, Kind::TookOver(other)),
            (40, Kind::SwitchedIn),
            (45, Kind::Enter(key)),
            (50, Kind::SyscallIn(202)),
            (55, Kind::Leave(key)),
            (60, Kind::SwitchedOut { runnable: false }),
            (60, Kind::TookOver(other)),
            (65, Kind::WokenBy(interrupt)),
            (70, Kind::TookOver(other)),
            (70, Kind::SwitchedIn),
            (80, Kind::SyscallOut(202)),
        ]
    );
    let softirq = 65_536 + 3;
    assert_eq!(
        of(8),
        [
            (30, Kind::TookOver(task("worker"))),
            (30, Kind::SwitchedIn),
            (33, Kind::InterruptIn(softirq)),
            (35, Kind::InterruptOut(softirq)),
        ]
    );
    let threads: Vec<_> = log.threads.iter().map(|t| (t.pid, t.tid, t.name.as_str())).collect();
    assert_eq!(threads.len(), 2, "a thread of both traces is one: {threads:?}");
    assert!(threads.contains(&(1, 7, "worker")), "{threads:?}");
}

#[test]
fn an_interrupt_wakes_in_no_tasks_name() {
    let [irq_in, irq_out, softirq_in, softirq_out, wakeup, waking] = [1, 2, 3, 4, 7, 8];
    let wakers = |metadata: &str, events: &[KernelRow]| {
        let folder = Folder::new();
        folder.write("metadata", metadata.as_bytes());
        let bytes = [0_u32.to_le_bytes().to_vec(), kernel_events(events)].concat();
        folder.write("channel0_0", &bytes);
        let log = read(folder.path()).expect("a trace");
        let waker = |event: &Event| match event.kind {
            Kind::WokenBy(key) => Some((event.time_ns - 1000, log.names[&key].clone())),
            _ => None,
        };
        log.events.iter().filter_map(|(_, _, event)| waker(event)).collect::<Vec<_>>()
    };
    let others = "o".repeat(16);
    let named = |rows: &[(u64, &str)]| {
        rows.iter().map(|&(at, name)| (at, name.to_owned())).collect::<Vec<_>>()
    };
    let events = [
        (10, SWITCH, [0, 0, 8]),
        (20, irq_in, [9, 0, 0]),
        (21, waking, [7, 0, 0]),
        (22, softirq_in, [3, 0, 0]),
        (23, softirq_out, [3, 0, 0]),
        (24, waking, [7, 0, 0]), // still within the interrupt
        (25, irq_out, [9, 0, 0]),
        (30, waking, [7, 0, 0]), // 8 itself
        (31, wakeup, [6, 0, 0]), // whichever task woke 6, on whichever CPU
        (40, irq_in, [9, 0, 0]), // its end is missing
        (50, SWITCH, [8, 1, 5]),
        (60, waking, [7, 0, 0]),
    ];
    assert_eq!(
        wakers(&kernel_metadata(), &events),
        named(&[(21, ""), (24, ""), (30, &others), (60, &others)])
    );
    // Timers and calls of other CPUs have events of their own.
    for [begin, end] in [
        ["x86_irq_vectors_local_timer_entry", "x86_irq_vectors_local_timer_exit"],
        ["timer_hrtimer_expire_entry", "timer_hrtimer_expire_exit"],
    ] {
        let metadata =
            kernel_metadata().replace("irq_handler_entry", begin).replace("irq_handler_exit", end);
        assert_eq!(
            wakers(&metadata, &events),
            named(&[(21, ""), (24, ""), (30, &others), (60, &others)]),
            "{begin}"
        );
    }
}

#[test]
fn behind_lost_events_no_thread_is_known_to_be_on_the_cpu() {
    let packet = |sequence: u64, events: &[KernelRow]| {
        let events = kernel_events(events);
        let size = (4 + 8 + 8 + events.len()) as u64 * 8;
        [&0_u32.to_le_bytes()[..], &size.to_le_bytes(), &sequence.to_le_bytes(), &events].concat()
    };
    let metadata = kernel_metadata_of(&["packet-total-length", "packet-sequence-number"]);
    let first = packet(0, &[(10, SWITCH, [0, 0, 7]), (15, 8, [9, 0, 0]), (20, 5, [0, 0, 0])]);
    // What 7 did before the gap it need not do behind it: a system call, and letting thread 9 go on.
    let behind = |sequence| packet(sequence, &[(50, 5, [0, 0, 0]), (60, 8, [9, 0, 0])]);
    let events = |stream: &[&[u8]]| {
        let folder = Folder::new();
        folder.write("metadata", metadata.as_bytes());
        folder.write("channel0_0", &stream.concat());
        let log = read(folder.path()).expect("a trace");
        (log.events.len(), log.losses.len())
    };
    assert_eq!(events(&[&first, &behind(1)]), (6, 0));
    assert_eq!(events(&[&first, &behind(2)]), (4, 1), "a packet is missing");
    // The same, with an id that the metadata does not have in the last event of the first packet.
    let mut broken = first.clone();
    let at = broken.len() - (1 + 8 + 4);
    broken[at] = 99;
    assert_eq!(events(&[&broken, &behind(1)]), (3, 1), "an event was skipped");
}

/// DPDK's layout: no packet size, no time in the packet.
fn dpdk(streams: &[&[(u64, u16, u8)]]) -> Log {
    let folder = Folder::new();
    folder.write(
        "metadata",
        b"typealias integer {size = 8; base = x;} := uint8_t;
          typealias integer {size = 16; base = x;} := uint16_t;
          typealias integer {size = 32; base = x;} := uint32_t;
          typealias integer {size = 8; signed = false; encoding = ASCII; } := string_bounded_t;
          trace { major = 1; minor = 8; byte_order = le; packet.header := struct { uint32_t magic; }; };
          env { tracer_name = \"dpdk\"; };
          clock { name = \"dpdk\"; freq = 2000000000; offset_s = 1; offset = 0; };
          typealias integer { size = 48; align = 1; signed = false; map = clock.dpdk.value; } := time_t;
          stream { packet.context := struct { uint32_t cpu_id; string_bounded_t name[32]; };
                   event.header := struct { time_t timestamp; uint16_t id; } align(64); };
          event { id = 4; name = \"lib.ethdev.rx.burst.nonempty\";
                  fields := struct { uint16_t port_id; uint16_t queue_id; uint8_t nb_rx; }; };
          event { id = 5; name = \"lib.ethdev.rx.burst.empty\";
                  fields := struct { uint16_t port_id; uint16_t queue_id; }; };",
    );
    for (index, rows) in streams.iter().enumerate() {
        let mut bytes = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
        bytes.extend((index as u32).to_le_bytes());
        let mut name = [0; 32];
        name[0] = b'a' + index as u8;
        bytes.extend(name);
        for &(time, id, got) in *rows {
            bytes.resize(bytes.len().next_multiple_of(8), 0xee);
            bytes.extend((time | u64::from(id) << 48).to_le_bytes());
            bytes.extend([1, 0, 2, 0]);
            if id == 4 {
                bytes.push(got);
            }
        }
        folder.write(&format!("channel0_{index}"), &bytes);
    }
    read(folder.path()).expect("a trace")
}

#[test]
fn polls_of_dpdk_are_reported_with_port_queue_and_count() {
    let log = dpdk(&[&[(20, 5, 0), (40, 4, 32)]]);
    let receive = |got| Kind::Receive { port: 1, queue: 2, asked: 0, got };
    let found: Vec<Event> = log.events.iter().map(|event| event.2).collect();
    assert_eq!(
        found,
        [
            Event { time_ns: 1_000_000_010, kind: receive(0) },
            Event { time_ns: 1_000_000_020, kind: receive(32) }
        ]
    );
    assert_eq!(log.threads[0].name, "a");
    assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
}

#[test]
fn a_clock_of_48_bits_wraps_in_and_between_threads() {
    const WRAP: u64 = 1 << 48;
    let log = dpdk(&[&[(WRAP - 4, 5, 0), (2, 5, 0)], &[(6, 5, 0)]]);
    let mut times: Vec<u64> = log.events.iter().map(|event| event.2.time_ns).collect();
    times.sort_unstable();
    let ns = |ticks: u64| 1_000_000_000 + ticks / 2;
    assert_eq!(times, [ns(WRAP - 4), ns(WRAP + 2), ns(WRAP + 6)]);
    assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
}

#[test]
fn a_buffer_written_around_is_distinguished_from_a_wrap_of_the_clock() {
    let log = dpdk(&[&[(2000, 5, 0), (2010, 5, 0), (1500, 5, 0), (1510, 5, 0)]]);
    assert_eq!(log.events.len(), 2);
    assert_eq!(log.losses.len(), 1);
    assert!(log.read.damages[0].what.contains("written around"), "{:?}", log.read.damages);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The fast path and the general one agree: rows that only the general one can read (`WORDS`) lie between.
    #[test]
    fn what_is_written_is_read(
        big_endian: bool,
        compact: bool,
        second: bool,
        steps in prop::collection::vec((0_u64..1 << 40, 0_u32..4, 0_u32..3, any::<u64>()), 1..200),
        cut in 1_usize..60,
    ) {
        let header = if compact { Header::Compact } else { Header::Large };
        let mut time = 0;
        let rows: Vec<Row> = steps
            .iter()
            .map(|&(step, kind, tid, address)| {
                time += step >> (address % 41);
                let id = [ENTRY, EXIT, WORDS, FAST_EXIT][kind as usize];
                (id, time, 1, tid, address)
            })
            .collect();
        let mut writer = Writer::new(big_endian, header);
        let mut begin = 0;
        for (sequence, rows) in rows.chunks(cut).enumerate() {
            let end = rows[rows.len() - 1].1;
            writer.packet(Packet { begin, end, sequence: sequence as u64, ..Packet::default() }, rows);
            begin = end;
        }
        let log = if second { writer.read_by(&writer.second_metadata()) } else { writer.read() };
        prop_assert!(log.read.damages.is_empty(), "{:?}", log.read.damages);
        prop_assert_eq!(log.events.len(), rows.len());
        for (number, thread) in log.threads.iter().enumerate() {
            let found: Vec<Event> =
                log.events.iter().filter(|event| event.0 == number).map(|event| event.2).collect();
            let wanted: Vec<Event> = rows.iter().filter(|row| row.3 == thread.tid).map(event).collect();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn flipped_bits_never_panic_and_never_disorder(flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..12)) {
        let mut bytes = small().bytes();
        for (index, bit) in flips {
            let at = index.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let log = damaged(&bytes);
        for thread in 0..log.threads.len() {
            let times = log.events.iter().filter(|event| event.0 == thread).map(|event| event.2.time_ns);
            prop_assert!(times.is_sorted());
        }
    }

    #[test]
    fn changed_metadata_never_panics(second: bool, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let writer = small();
        let text = if second { writer.second_metadata() } else { writer.metadata() };
        let mut text = text.into_bytes();
        for (index, byte) in flips {
            let at = index.index(text.len());
            text[at] = byte;
        }
        let folder = Folder::new();
        folder.write("metadata", &text);
        folder.write("channel0_0", &writer.bytes());
        let _ = read(folder.path());
    }
}
