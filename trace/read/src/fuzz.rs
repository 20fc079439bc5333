//! Every reader on bytes in memory: what the fuzz targets and the tests of hostile input call.
//!
//! Each function takes any bytes, reads them as one kind of input, and panics when a promise is broken: threads are
//! announced before their events and events are counted; those of a thread are in the order of time where the input is sorted
//! or a stream; what is read does not depend on chance. Returning is the proof. No file, no clock.

use std::path::Path;

use crate::about::{DAMAGES_MAX, Read};
use crate::block::Source;
use crate::delivery::Delivery;
use crate::event::{Consumer, Event, FunctionKey, Loss, Thread, ThreadId};
use crate::symbols::{ListingPlace, Symbols};
use crate::{chrome, ctf, merge, own, perf, uftrace};

/// A consumer that checks what it is given and adds it up.
#[derive(Debug, Default)]
struct Checker {
    /// Time of the last event of each thread.
    last_ns: Vec<u64>,
    events: u64,
    samples: u64,
    losses: u64,
    /// Sum over what was received, in its order per thread.
    sum: u64,
    /// Events out of the order of time.
    back: u64,
}

impl Consumer for Checker {
    fn thread(&mut self, id: ThreadId, _: &Thread) {
        let id = id.0 as usize;
        assert!(id <= self.last_ns.len(), "threads are counted from 0");
        if id == self.last_ns.len() {
            self.last_ns.push(0);
        }
    }

    fn events(&mut self, id: ThreadId, _: Option<u32>, events: &[Event]) {
        assert!(!events.is_empty(), "a batch holds something");
        let last = self.last_ns.get_mut(id.0 as usize).expect("a thread is announced first");
        for event in events {
            self.back += u64::from(event.time_ns < *last);
            *last = event.time_ns;
            self.sum = self.sum.wrapping_mul(31).wrapping_add(event.time_ns ^ u64::from(id.0));
        }
        self.events += events.len() as u64;
    }

    fn lost(&mut self, _: &Loss, threads: &[ThreadId]) {
        assert!(threads.iter().all(|id| (id.0 as usize) < self.last_ns.len()));
        self.losses += 1;
    }

    fn sample(
        &mut self,
        id: ThreadId,
        _: Option<u32>,
        time_ns: u64,
        _: u64,
        stack: &[FunctionKey],
    ) {
        assert!((id.0 as usize) < self.last_ns.len(), "a thread is announced first");
        self.sum = self.sum.wrapping_add(time_ns ^ stack.len() as u64);
        self.samples += 1;
    }
}

/// Reads twice and compares; `sorted`: no event may be before the one before it of its thread.
fn check(sorted: bool, read: impl Fn(&mut Delivery<'_>)) {
    let once = || -> (Checker, Read) {
        let mut checker = Checker::default();
        let mut delivery = Delivery::new(&mut checker);
        read(&mut delivery);
        let read = delivery.finish();
        (checker, read)
    };
    let (checker, read) = once();
    assert_eq!(checker.events, read.events, "events are counted");
    assert_eq!((checker.samples, checker.losses), (read.samples, read.losses));
    assert_eq!(checker.last_ns.len(), read.threads.len());
    assert!(read.damages.len() <= DAMAGES_MAX);
    assert!(!sorted || checker.back == 0, "events of a thread are in the order of time");
    let (again, _) = once();
    assert_eq!((again.events, again.sum), (checker.events, checker.sum), "twice the same");
}

/// A CTF trace: the length of its metadata (4 bytes, little-endian), the metadata, the length of the first
/// stream likewise, that stream, and a second one.
///
/// # Panics
/// When a promise is broken.
pub fn ctf(data: &[u8]) {
    fn split(data: &[u8]) -> (&[u8], &[u8]) {
        let Some((length, rest)) = data.split_first_chunk::<4>() else { return (data, &[]) };
        rest.split_at((u32::from_le_bytes(*length) as usize).min(rest.len()))
    }
    let (metadata, rest) = split(data);
    let (first, second) = split(rest);
    let mut symbols = Symbols::default();
    let Ok(trace) = ctf::in_memory(metadata, vec![first.into(), second.into()], &mut symbols)
    else {
        return;
    };
    check(true, |delivery| {
        let sources = trace.sources().expect("memory does not fail");
        merge::read(sources, delivery, &mut Symbols::default()).expect("memory does not fail");
    });
    let mut last_ns = 0;
    let shown = trace.records(&mut |record| {
        assert!(record.time_ns >= last_ns, "records are in the order of time");
        last_ns = record.time_ns;
    });
    shown.expect("memory does not fail");
}

/// A file of our own tracer.
///
/// # Panics
/// When a promise is broken.
pub fn own(data: &[u8]) {
    // Not sorted: a file of one thread is passed on as it stands.
    check(false, |delivery| {
        let files = vec![(Path::new("own.lwt"), laneway_tracer::TraceFile::open(data))];
        let files = own::index(files, delivery);
        let mut symbols = Symbols::default();
        let sources: Vec<Box<dyn Source + '_>> = own::sources(&files, &mut symbols);
        merge::read(sources, delivery, &mut symbols).expect("memory does not fail");
    });
}

/// Chrome JSON.
///
/// # Panics
/// When a promise is broken.
pub fn chrome(data: &[u8]) {
    let _ = chrome::is(data);
    check(true, |delivery| {
        let read = chrome::read(data, Path::new("trace"), delivery, &mut Symbols::default());
        read.expect("memory does not fail");
    });
}

/// Text of `uftrace dump`.
///
/// # Panics
/// When a promise is broken.
pub fn uftrace(data: &[u8]) {
    let _ = uftrace::is(data);
    check(true, |delivery| {
        let read = uftrace::read(data, Path::new("trace"), delivery, &mut Symbols::default());
        read.expect("memory does not fail");
    });
}

/// Text of `perf script`.
///
/// # Panics
/// When a promise is broken.
pub fn perf(data: &[u8]) {
    let _ = perf::is(data);
    check(false, |delivery| {
        let read = perf::read(data, Path::new("trace"), delivery, &mut Symbols::default());
        read.expect("memory does not fail");
    });
}

/// A listing of `nm`, plain or gzip, and the symbols of an ELF file.
///
/// # Panics
/// When a promise is broken.
pub fn symbols(data: &[u8]) {
    let fit = ListingPlace::Fit(vec![FunctionKey(0x5555_0000_1000), FunctionKey(0x5555_0000_2000)]);
    for place in [ListingPlace::Bias(0), ListingPlace::Module("program".into()), fit] {
        ascending(Symbols::try_listing(data, &place));
    }
    ascending(Symbols::try_elf(data));
}

fn ascending(extents: Option<Vec<(u64, u64)>>) {
    let extents = extents.unwrap_or_default();
    assert!(extents.windows(2).all(|pair| pair[0].0 < pair[1].0), "one function per address");
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};
    use std::io::Write as _;
    use std::path::PathBuf;

    use laneway_testkit::Random;
    use laneway_tracer::{FileWriter, Header, PointId, Record, SyncPoint, ThreadInfo, points};

    use super::*;
    use crate::testing::Folder;

    /// Changed inputs per reader.
    const CHANGED: usize = 1_500;
    /// Bytes that a changed input may have.
    const BYTES_MAX: usize = 32 << 10;

    type Target = (&'static str, fn(&[u8]));
    const TARGETS: [Target; 6] = [
        ("trace_ctf", ctf),
        ("trace_own", own),
        ("trace_chrome", chrome),
        ("trace_uftrace", uftrace),
        ("trace_perf", perf),
        ("trace_symbols", symbols),
    ];

    fn lengths_and(parts: [&[u8]; 3]) -> Vec<u8> {
        let [metadata, first, second] = parts;
        let length = |part: &[u8]| u32::try_from(part.len()).expect("small").to_le_bytes();
        [&length(metadata)[..], metadata, &length(first), first, second].concat()
    }

    fn own_file(threads: &[u32]) -> Vec<u8> {
        let folder = Folder::new();
        let header = Header {
            host: "here".into(),
            program: "seed".into(),
            ticks_per_s: 1_000_000_000,
            calibration: None,
            unix_offset_ns: 1_000,
            ..Header::of_this_program()
        };
        let path = folder.path().join("seed.lwt");
        let mut file = FileWriter::create(&path, &header, 1 << 20).expect("a new file");
        for at in [0, 1_000_000] {
            let sync = SyncPoint { ticks: at, monotonic_ns: at, realtime_ns: at + 1000 };
            file.sync(sync).expect("room");
        }
        let record = |delta: u32, point: PointId, small: u16, value: u64| Record {
            delta,
            point,
            small,
            value,
        };
        for &tid in threads {
            let name = format!("worker-{tid}");
            let info = ThreadInfo { pid: 1, tid, name, cpu: Some(1), queue: 3 };
            let number = file.thread(&info).expect("room");
            let records = [
                record(100, points::SERVE, 0, 0),
                record(30, points::SEND, 2, 7 | 6 << 16),
                record(30, points::SERVE, 1, 0),
                record(10, points::LOST, 0, 5),
                record(10, points::SWITCHED_OUT, 1, 0),
                record(10, points::SWITCHED_IN, 0, 0),
            ];
            file.records(number, Some(1), 0, &records).expect("room");
        }
        file.finish(0).expect("room");
        std::fs::read(&path).expect("written above")
    }

    /// A little-endian ELF file of 64 bits with a table of symbols: `inner` and `outer`.
    fn elf() -> Vec<u8> {
        fn numbers(bytes: &mut Vec<u8>, values: &[(u64, usize)]) {
            values.iter().for_each(|&(value, size)| bytes.extend(&value.to_le_bytes()[..size]));
        }
        let strings = b"\0inner\0outer\0";
        let names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
        let mut symbols = vec![0; 24];
        for (name, address) in [(1, 0x1000), (7, 0x1020)] {
            // A global function of section 1.
            let row = [(name, 4), (0x12, 1), (0, 1), (1, 2), (address, 8), (0x20, 8)];
            numbers(&mut symbols, &row);
        }
        let (text_at, symbols_at) = (64, 64 + 64);
        let strings_at = symbols_at + symbols.len() as u64;
        let names_at = strings_at + strings.len() as u64;
        let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        let header = [
            (3, 2),
            (62, 2),
            (1, 4),
            (0, 8),
            (0, 8),
            (sections_at, 8),
            (0, 4),
            (64, 2),
            (56, 2),
            (0, 2),
            (64, 2),
            (5, 2),
            (4, 2),
        ];
        numbers(&mut bytes, &header);
        bytes.resize(symbols_at as usize, 0x90);
        bytes.extend(&symbols);
        bytes.extend(strings);
        bytes.extend(names);
        bytes.resize(sections_at as usize, 0);
        let symbols_size = symbols.len() as u64;
        // Name, kind, flags, address, offset, size, link, info, alignment, size of an entry.
        for [name, kind, flags, address, offset, size, link, info, align, entry] in [
            [0; 10],
            [1, 1, 6, 0x1000, text_at, 64, 0, 0, 16, 0],
            [7, 2, 0, 0, symbols_at, symbols_size, 3, 1, 8, 24],
            [15, 3, 0, 0, strings_at, strings.len() as u64, 0, 0, 1, 0],
            [23, 3, 0, 0, names_at, names.len() as u64, 0, 0, 1, 0],
        ] {
            let row = [
                (name, 4),
                (kind, 4),
                (flags, 8),
                (address, 8),
                (offset, 8),
                (size, 8),
                (link, 4),
                (info, 4),
                (align, 8),
                (entry, 8),
            ];
            numbers(&mut bytes, &row);
        }
        bytes
    }

    const LISTING: &str = "0000000000001000 0000000000000020 T inner\n\
        0000000000001020 0000000000000020 t outer\n0000000000002000 W later\n\
        \u{20}                U malloc\n0000000000083000 d data\n";

    /// Inputs from which others are made: target, name, bytes.
    fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
        let mut all: Vec<(&'static str, String, Vec<u8>)> = Vec::new();
        for (name, metadata, [first, second]) in ctf::tests::samples() {
            all.push(("trace_ctf", name, lengths_and([metadata.as_bytes(), &first, &second])));
        }
        all.push(("trace_own", "one".into(), own_file(&[7])));
        all.push(("trace_own", "many".into(), own_file(&[7, 8, 9])));
        let mut packed = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::none());
        packed.write_all(LISTING.as_bytes()).expect("memory does not fail");
        let packed = packed.finish().expect("memory does not fail");
        for (target, name, text) in [
            ("trace_symbols", "plain", LISTING.as_bytes().to_vec()),
            ("trace_symbols", "packed", packed),
            ("trace_symbols", "elf", elf()),
        ] {
            all.push((target, name.into(), text));
        }
        for (target, name, text) in [
            (
                "trace_chrome",
                "object",
                "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n\
                 {\"ph\": \"X\", \"name\": \"inner\", \"ts\": 1, \"dur\": 2, \"pid\": 7, \"tid\": 8, \"args\": {\"a\": [1, {\"b\": null}]}},\n\
                 {\"ph\": \"X\", \"name\": \"outer\", \"ts\": 1, \"dur\": 5.5, \"pid\": 7, \"tid\": 8},\n\
                 {\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 7, \"tid\": 8, \"args\": {\"name\": \"worker\"}}]}\n",
            ),
            (
                "trace_chrome",
                "array",
                "[{\"ph\":\"B\",\"name\":\"f\",\"ts\":1,\"pid\":1,\"tid\":\"a\"},\n\
                 {\"ph\":\"C\",\"name\":\"free\",\"ts\":0.5,\"pid\":\"b\",\"args\":{\"mbufs\":12}},\n\
                 {\"ph\":\"i\",\"name\":\"mark\",\"ts\":1,\"pid\":2},{\"ph\":\"E\",\"ts\":2,\"pid\":1,\"tid\":\"a\"},\n",
            ),
            (
                "trace_uftrace",
                "dump",
                "uftrace file header: magic = 4674\n\nreading 7.dat\n\
                 10.000000100      7: [entry] main(55) depth: 0\n\
                 10.000000100      7: [args ] length = 8\n  args[0] d64: 0x0\n\
                 10.000000900      7: [exit ] main(55) depth: 0\n\
                 10.000001000      8: [lost ] 12 records\nreading perf-cpu0.dat\n\
                 10.000000300      7: [event] linux:sched-out (pre-empted)(200007)\n\
                 10.000000500      7: [event] linux:sched-in(200001)\n",
            ),
            (
                "trace_perf",
                "script",
                "# header\nweb server 7/8 [001]  10.5:     250000 cpu-clock:pppH: \n\
                 \t    e4dd inner+0x8bd (/usr/lib/ld.so)\n\t 1 [unknown] ([unknown])\n\
                 \t 2 [unknown] (/x/lib.so)\n\na 9 11.000001: cycles:  ff f+0x1 (k)\n",
            ),
        ] {
            all.push((target, name.into(), text.as_bytes().to_vec()));
        }
        all
    }

    /// The folder of seeds, if this crate lies in its repository.
    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
    }

    /// `LANEWAY_WRITE_SEEDS=1` writes them anew.
    #[test]
    fn seeds_of_the_fuzzer_are_those_made_here() {
        for (target, name, bytes) in seeds() {
            let path = folder().join(target).join(name);
            if std::env::var_os("LANEWAY_WRITE_SEEDS").is_some() {
                std::fs::create_dir_all(folder().join(target)).expect("the repository is ours");
                std::fs::write(&path, &bytes).expect("the repository is ours");
            }
            let there = std::fs::read(&path).expect("seeds ship with the repository");
            assert!(there == bytes, "{} is old; LANEWAY_WRITE_SEEDS=1 writes it", path.display());
        }
    }

    #[test]
    fn seeds_are_whole() {
        for (target, name, bytes) in seeds() {
            let (_, run) = TARGETS.iter().find(|known| known.0 == target).expect("a target");
            run(&bytes);
            if target == "trace_symbols" {
                let found = match name.as_str() {
                    "elf" => Symbols::try_elf(&bytes),
                    _ => Symbols::try_listing(&bytes, &ListingPlace::Bias(0)),
                };
                assert!(found.expect("symbols").starts_with(&[(0x1000, 0x20), (0x1020, 0x20)]));
            }
        }
    }

    /// Changes files at random.
    struct Chance(Random);

    impl Chance {
        fn next(&mut self) -> u64 {
            self.0.draw()
        }

        fn below(&mut self, limit: usize) -> usize {
            self.0.index(limit)
        }

        /// One of the ways in which files go wrong: bits, bytes, cuts, splices, lengths.
        fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
            let at = self.below(bytes.len() + 1);
            let rest = bytes.len() - at;
            match self.below(8) {
                0 if rest > 0 => bytes[at] ^= 1 << self.below(8),
                1 if rest > 0 => bytes[at] = self.next() as u8,
                2 => bytes.truncate(at),
                3 => {
                    let run = self.below(32).min(rest);
                    bytes.drain(at..at + run);
                }
                4 => {
                    let run = self.below(64).min(rest);
                    bytes.extend_from_within(at..at + run);
                }
                5 => {
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[self.below(other.len() + 1)..]);
                }
                6 if rest >= 8 => {
                    // Two numbers change places: a length becomes an offset, a size a time.
                    let width = [1, 2, 4][self.below(3)];
                    let to = self.below(bytes.len() - width + 1);
                    if at.abs_diff(to) >= width && at + width <= bytes.len() {
                        (0..width).for_each(|byte| bytes.swap(at + byte, to + byte));
                    }
                }
                _ if rest >= 8 => {
                    let edges = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 1 << 31, u64::MAX];
                    let edge = edges[self.below(edges.len())].to_le_bytes();
                    let width = [1, 2, 4, 8][self.below(4)];
                    bytes[at..at + width].copy_from_slice(&edge[..width]);
                }
                _ => bytes.push(self.next() as u8),
            }
        }
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "a seed is printed, so that it can be drawn again")]
    fn changed_input_breaks_no_reader() {
        let given = std::env::var("LANEWAY_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = given.unwrap_or_else(|| RandomState::new().hash_one("changes") >> 32);
        println!("LANEWAY_SEED={seed}");
        let seeds = seeds();
        for (target, run) in TARGETS {
            let own: Vec<&Vec<u8>> =
                seeds.iter().filter(|seed| seed.0 == target).map(|seed| &seed.2).collect();
            let mut chance = Chance(Random::seeded(seed));
            for number in 0..CHANGED {
                let mut bytes = own[chance.below(own.len())].clone();
                for _ in 0..=chance.below(6) {
                    let other = own[chance.below(own.len())];
                    chance.change(&mut bytes, other);
                }
                bytes.truncate(BYTES_MAX);
                let ran = std::panic::catch_unwind(|| run(&bytes));
                assert!(ran.is_ok(), "{target}: changed input {number} of LANEWAY_SEED={seed}");
            }
        }
    }

    /// Metadata of one stream and one kind of event with these fields.
    fn with_fields(fields: &str) -> String {
        format!(
            "/* CTF 1.8 */ typealias integer {{ size = 8; align = 8; signed = false; }} := u8;
             trace {{ major = 1; minor = 8; byte_order = le; }};
             stream {{ id = 0; }};
             event {{ id = 0; name = \"e\"; fields := struct {{ {fields} }}; }};"
        )
    }

    #[test]
    fn events_and_values_of_no_bits_end() {
        let empty = "struct { } ";
        for fields in [
            String::new(),
            format!("{empty} a[1000000]; u8 b;"),
            format!("u8 n; {empty} a[n]; "),
            (0..60_000).map(|n| format!("{empty} f{n}; ")).collect::<String>() + "u8 b;",
        ] {
            let metadata = with_fields(&fields);
            let opened = ctf::in_memory(metadata.as_bytes(), Vec::new(), &mut Symbols::default());
            opened.expect("understood, so that its events are read");
            ctf(&lengths_and([metadata.as_bytes(), &[0xff; 20_000], &[]]));
        }
    }

    #[test]
    fn a_line_of_colons_and_many_threads_take_no_time_that_grows_with_the_square() {
        perf(":".repeat(4 << 20).as_bytes());
        let many: String =
            (0..60_000).map(|tid| format!("1.0 {tid}: [entry] f(1) depth: 0\n")).collect();
        uftrace(many.as_bytes());
    }
}
