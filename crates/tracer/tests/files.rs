//! What is recorded is read, as far as a file goes, and holes are reported.

use laneway_tracer::{
    FILE_BYTES_MAX, FileWriter, Happening, Header, NotATrace, PointId, RING_RECORDS_MAX, Record,
    Recorder, Session, SessionOptions, SyncPoint, ThreadInfo, Ticks, TraceError, TraceFile,
    TraceSlot, What, points,
};
use proptest::prelude::*;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("laneway-tracer-{}-{number}", process::id()));
        fs::create_dir(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a worker may do, with ticks between and during.
#[derive(Clone, Copy, Debug)]
enum Step {
    Call(u16, u32, u32),
    Nest(u16, u32),
    Receive(u8, u16, u16, u32),
    Nothing(u32),
    Send(u8, u16, u16),
    ReceivedWithin(u8, u16, u16),
    Tell(u64),
    Silence,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let function =
        prop::sample::select(vec![points::SETTLE.0, points::WAIT.0, points::APP_FRAMES.0]);
    let step =
        prop_oneof![
            (function.clone(), any::<u16>(), any::<u32>())
                .prop_map(|(f, ticks, argument)| Step::Call(f, ticks.into(), argument)),
            (function, any::<u16>()).prop_map(|(f, ticks)| Step::Nest(f, ticks.into())),
            (any::<u8>(), any::<u16>(), 1u16.., any::<u16>()).prop_map(
                |(port, asked, got, ticks)| Step::Receive(port, asked, got, ticks.into())
            ),
            any::<u8>().prop_map(|ticks| Step::Nothing(ticks.into())),
            (any::<u8>(), any::<u16>(), any::<u16>()).prop_map(|(p, a, s)| Step::Send(p, a, s)),
            (any::<u8>(), any::<u16>(), any::<u16>())
                .prop_map(|(p, a, g)| Step::ReceivedWithin(p, a, g)),
            any::<u64>().prop_map(Step::Tell),
            Just(Step::Silence),
        ];
    prop::collection::vec(step, 0..80)
}

/// Where a run of empty polls ends: at what follows, or, behind a silence, at the last poll.
fn ends(last: u64, next: u64) -> u64 {
    if is_silence(last, next) { last } else { next }
}

fn is_silence(last: u64, next: u64) -> bool {
    next - last > 1 << 20
}

/// Does the steps; gives what a reader should get, without times, and the time in ticks of each.
fn act(recorder: &mut Recorder, steps: &[Step]) -> Vec<(What, u64)> {
    let mut now = recorder.now();
    let mut expected = Vec::new();
    let mut empty: Option<(u32, u64)> = None;
    let port = None;
    for &step in steps {
        let from = now;
        if !matches!(step, Step::Nothing(_) | Step::Silence) {
            expected.extend(empty.take().map(|(polls, last)| {
                (What::EmptyRun { port, polls, lasted_ns: 0 }, ends(last, from))
            }));
        }
        match step {
            Step::Call(function, ticks, argument) => {
                let function = PointId(function);
                now += u64::from(ticks);
                recorder.called(function, from, now, argument);
                expected.push((What::Enter(function), from));
                expected.push((What::Leave(function), now));
            }
            Step::Nest(function, ticks) => {
                let function = PointId(function);
                recorder.entered(function, from);
                now += u64::from(ticks);
                recorder.left(function, now);
                expected.push((What::Enter(function), from));
                expected.push((What::Leave(function), now));
            }
            Step::Receive(port, asked, got, ticks) => {
                now += u64::from(ticks);
                recorder.received(port, asked, got, from, now);
                expected.push((What::Enter(points::RECEIVE), from));
                expected.push((What::Receive { port, asked, got }, now));
                expected.push((What::Leave(points::RECEIVE), now));
            }
            Step::Nothing(ticks) => {
                if let Some((polls, last)) = empty.filter(|&(_, last)| is_silence(last, from)) {
                    expected.push((What::EmptyRun { port, polls, lasted_ns: 0 }, last));
                    empty = None;
                }
                recorder.received_nothing(port, from);
                now += u64::from(ticks);
                empty = Some((empty.map_or(1, |(polls, _)| polls + 1), from));
            }
            Step::Send(port, asked, sent) => {
                recorder.sent(port, asked, sent, now);
                expected.push((What::Send { port, asked, sent }, now));
            }
            Step::ReceivedWithin(port, asked, got) => {
                recorder.received_within(port, asked, got, now);
                expected.push((What::Receive { port, asked, got }, now));
            }
            Step::Tell(value) => {
                recorder.instant(points::NAPI_POLL, now, value);
                expected.push((What::Instant { point: points::NAPI_POLL, value }, now));
            }
            Step::Silence => now += 1 << 33,
        }
    }
    expected.extend(
        empty.map(|(polls, last)| (What::EmptyRun { port, polls, lasted_ns: 0 }, ends(last, now))),
    );
    expected
}

/// Lengths of time depend on the counter's rate; everything else does not.
fn without_lengths(what: What) -> What {
    match what {
        What::EmptyRun { port, polls, .. } => What::EmptyRun { port, polls, lasted_ns: 0 },
        other => other,
    }
}

fn traced(folder: &Folder, name: &str, steps: &[Step]) -> (Vec<u8>, Vec<(What, u64)>) {
    let session = Session::create(&folder.0, SessionOptions::default()).unwrap();
    let mut recorder = session.recorder(&ThreadInfo::current(name)).unwrap();
    let expected = act(&mut recorder, steps);
    drop(recorder);
    let summaries = session.finish().unwrap();
    assert_eq!((summaries.len(), summaries[0].lost), (1, 0));
    (fs::read(&summaries[0].path).unwrap(), expected)
}

/// What is read from memory, which must be what is read from a file, and per thread what is read in the order of time.
fn happened(bytes: &[u8]) -> Vec<Happening> {
    let folder = Folder::new();
    let path = folder.file("file.lwt");
    fs::write(&path, bytes).unwrap();
    let in_memory = TraceFile::open(bytes).unwrap();
    let in_file = TraceFile::open_file(fs::File::open(path).unwrap()).unwrap();
    assert_eq!(in_memory.threads(), in_file.threads());
    assert_eq!(in_memory.damage(), in_file.damage());
    assert_eq!(in_memory.tasks(), in_file.tasks());
    let all: Vec<Happening> = in_memory.happenings().collect();
    let mut from_file = in_file.happenings();
    assert!(all.iter().copied().eq(&mut from_file) && from_file.failed().is_none());
    let mut ordered: Vec<Happening> = in_file.in_order().collect();
    let mut expected = all.clone();
    ordered.sort_by_key(|happening| happening.thread);
    expected.sort_by_key(|happening| happening.thread);
    assert_eq!(ordered, expected);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_was_written_is_read(steps in steps()) {
        let folder = Folder::new();
        let (bytes, expected) = traced(&folder, "worker-0", &steps);
        let file = TraceFile::open(&bytes).unwrap();
        prop_assert_eq!(file.damage(), &[]);
        prop_assert_eq!(file.lost(), Some(0));
        prop_assert_eq!(&file.threads()[0].name, "worker-0");
        let read: Vec<Happening> = file.happenings().collect();
        let what: Vec<What> = read.iter().map(|h| without_lengths(h.what)).collect();
        prop_assert_eq!(what, expected.iter().map(|(what, _)| *what).collect::<Vec<_>>());
        prop_assert!(read.is_sorted_by_key(|h| h.time_ns));
    }

    /// Whatever byte is broken, and wherever the file is cut: nothing panics, time does not go back, and what is
    /// read was written.
    #[test]
    fn a_damaged_file_is_read_as_far_as_it_goes(
        steps in steps(),
        cut in any::<prop::sample::Index>(),
        broken in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let folder = Folder::new();
        let (whole, _) = traced(&folder, "worker-0", &steps);
        let expected = happened(&whole);

        let cut = &whole[..cut.index(whole.len())];
        if let Ok(file) = TraceFile::open(cut) {
            prop_assert!(!file.damage().is_empty(), "the end is missing and no damage says so");
            let read = happened(cut).into_iter();
            let read: Vec<What> = read.map(|h| without_lengths(h.what)).collect();
            let prefix: Vec<What> =
                expected.iter().take(read.len()).map(|h| without_lengths(h.what)).collect();
            prop_assert_eq!(read, prefix);
        }

        let mut bytes = whole.clone();
        let at = broken.index(bytes.len());
        bytes[at] ^= 1 << bit;
        // Two bytes of the head are not used.
        if let Ok(file) = TraceFile::open(&bytes) {
            prop_assert!(!file.damage().is_empty() || (10..12).contains(&at), "byte {at}");
            let read = happened(&bytes);
            prop_assert!(read.is_sorted_by_key(|h| h.time_ns));
            prop_assert!(read.len() <= expected.len());
        }
    }

    #[test]
    fn any_bytes_behind_a_good_header_are_read_without_panic(
        tail in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let folder = Folder::new();
        let path = folder.file("a.lwt");
        let header = Header::of_this_program();
        FileWriter::create(&path, &header, FILE_BYTES_MAX).unwrap().finish(0).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend(tail);
        let _ = happened(&bytes);
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_ends_with_the_error() {
    let folder = Folder::new();
    let path = folder.file("a.lwt");
    let mut file = FileWriter::create(&path, &Header::of_this_program(), FILE_BYTES_MAX).unwrap();
    let record = |n: u32| Record { delta: n, point: points::NAPI_POLL, small: 0, value: 1 };
    let records: Vec<Record> = (0..1_000).map(record).collect();
    let threads = ["one", "two"].map(|name| file.thread(&ThreadInfo::current(name)).unwrap());
    for thread in threads.repeat(100) {
        assert!(file.records(thread, None, 0, &records).unwrap());
    }
    file.finish(0).unwrap();
    let file = TraceFile::open_file(fs::File::open(&path).unwrap()).unwrap();
    assert_eq!((file.records(), file.damage()), (200_000, &[][..]));
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let (mut whole, mut ordered) = (file.happenings(), file.in_order());
    assert!(whole.by_ref().count() < 200_000 && ordered.by_ref().count() < 200_000);
    assert!(whole.failed().is_some() && ordered.failed().is_some());
}

#[test]
fn of_too_many_clock_readings_those_that_are_kept_cover_the_file() {
    const READINGS: u64 = 200_000;
    let folder = Folder::new();
    let path = folder.file("a.lwt");
    let mut file = FileWriter::create(&path, &Header::of_this_program(), FILE_BYTES_MAX).unwrap();
    // The counter runs at half the rate from the middle on.
    for reading in 0..=READINGS {
        let monotonic_ns = 1_000 * (reading + reading.saturating_sub(READINGS / 2));
        let at = SyncPoint { ticks: 1_000 * reading, monotonic_ns, realtime_ns: monotonic_ns };
        file.sync(at).unwrap();
    }
    let thread = file.thread(&ThreadInfo::current("worker")).unwrap();
    let at = |ticks| Record { delta: 0, point: points::TIME, small: 0, value: ticks };
    let instant = Record { delta: 0, point: points::NAPI_POLL, small: 0, value: 1 };
    let moments = [0, 1_000 * READINGS / 2, 1_000 * READINGS];
    let records: Vec<Record> = moments.iter().flat_map(|&ticks| [at(ticks), instant]).collect();
    assert!(file.records(thread, None, 0, &records).unwrap());
    file.finish(0).unwrap();
    let file = TraceFile::open_file(fs::File::open(&path).unwrap()).unwrap();
    let times: Vec<u64> = file.happenings().map(|happening| happening.time_ns).collect();
    let since: Vec<u64> = times.iter().map(|time| time - times[0]).collect();
    assert_eq!((file.damage(), since), (&[][..], vec![0, 100_000_000, 300_000_000]));
}

#[test]
fn records_that_reach_the_limit_of_a_file_are_written_or_lost_and_never_both() {
    /// Records of one block, and its bytes with its header.
    const PART: usize = 1 << 16;
    const PART_BYTES: u64 = (1 << 20) + 32;
    let folder = Folder::new();
    let record = Record { delta: 1, point: points::NAPI_POLL, small: 0, value: 1 };
    let header = Header::of_this_program();
    let begun = |name: &str, bytes_max: u64| {
        FileWriter::create(&folder.file(name), &header, bytes_max).unwrap()
    };
    begun("empty", FILE_BYTES_MAX).finish(0).unwrap();
    let (head, end) = (fs::metadata(folder.file("empty")).unwrap().len(), 32 + 16);
    let pushed = 2 * PART;
    for (name, bytes_max, fits) in [
        ("one", head - end + PART_BYTES, false),
        ("nearly", head - end + 2 * PART_BYTES - 1, false),
        ("two", head - end + 2 * PART_BYTES, true),
    ] {
        let mut file = begun(name, bytes_max);
        assert_eq!(file.records(0, None, 0, &vec![record; pushed]).unwrap(), fits, "{name}");
        let lost = if fits { 0 } else { pushed as u64 };
        let written = file.finish(lost).unwrap();
        assert_eq!(written + lost, pushed as u64, "{name}");
    }
}

#[test]
fn a_full_ring_drops_counts_and_tells_where() {
    let folder = Folder::new();
    let options = SessionOptions { ring_records: 64, ..SessionOptions::default() };
    let session = Session::create(&folder.0, options).unwrap();
    let mut recorder = session.recorder(&ThreadInfo::current("worker-0")).unwrap();
    let written = 100_000;
    for value in 0..written {
        recorder.instant(points::NAPI_POLL, recorder.now(), value);
    }
    drop(recorder);
    let summary = session.finish().unwrap().remove(0);
    let bytes = fs::read(&summary.path).unwrap();
    let file = TraceFile::open(&bytes).unwrap();
    assert_eq!(file.damage(), []);
    assert!(summary.lost > 0, "64 slots held {written} records");
    assert_eq!(file.lost(), Some(summary.lost));
    let (mut next, mut kept, mut lost) = (0, 0, 0);
    for happening in file.happenings() {
        match happening.what {
            What::Instant { value, .. } => {
                assert_eq!(value, next, "a hole that no record reports");
                next += 1;
                kept += 1;
            }
            What::Lost { records, from_ns } => {
                assert!(from_ns <= happening.time_ns);
                next += records;
                lost += records;
            }
            other => panic!("{other:?} was never written"),
        }
    }
    assert_eq!((kept + lost, lost), (written, summary.lost));
}

#[test]
fn a_file_at_its_limit_says_what_is_missing() {
    let folder = Folder::new();
    let options = SessionOptions { file_bytes_max: 8 << 10, ..SessionOptions::default() };
    let session = Session::create(&folder.0, options).unwrap();
    let mut recorder = session.recorder(&ThreadInfo::current("worker-0")).unwrap();
    for value in 0..10_000 {
        recorder.instant(points::NAPI_POLL, recorder.now(), value);
    }
    drop(recorder);
    let summary = session.finish().unwrap().remove(0);
    let bytes = fs::read(&summary.path).unwrap();
    let file = TraceFile::open(&bytes).unwrap();
    assert_eq!(file.lost(), Some(summary.lost));
    let kept = file.happenings().filter(|h| matches!(h.what, What::Instant { .. })).count() as u64;
    assert_eq!(kept + summary.lost, 10_000);
}

#[test]
fn only_the_window_is_written_and_the_rest_is_no_loss() {
    let folder = Folder::new();
    let options = SessionOptions { ring_records: 64, ..SessionOptions::default() };
    let session = Session::create(&folder.0, options).unwrap();
    session.keep_only(0..=0);
    let mut recorder = session.recorder(&ThreadInfo::current("worker-0")).unwrap();
    // Far beyond the ring, so that there are holes, and all of them outside.
    for value in 0..10_000 {
        recorder.instant(points::NAPI_POLL, recorder.now(), value);
    }
    // One finds room once the drainer has emptied the ring.
    while {
        let lost = recorder.lost();
        recorder.instant(points::NAPI_POLL, recorder.now(), 0);
        recorder.lost() > lost
    } {
        std::thread::sleep(Duration::from_millis(1));
    }
    let second = 1_000_000_000;
    let sync = SyncPoint::of_monotonic();
    session.keep_only(sync.monotonic_ns + second..=sync.monotonic_ns + 3 * second);
    let ticks = Ticks::new();
    let per_ns = ticks.per_second() as f64 / 1e9;
    let begin = ticks.sync();
    let at = |from_now_ns: u64| {
        let since_ns = begin.monotonic_ns - sync.monotonic_ns;
        begin.ticks + ((from_now_ns - since_ns) as f64 * per_ns) as u64
    };
    for (value, seconds) in [0.5, 0.9, 1.1, 2.0, 2.9, 3.1, 4.0].into_iter().enumerate() {
        recorder.instant(points::NAPI_POLL, at((seconds * 1e9) as u64), value as u64);
    }
    drop(recorder);
    let summary = session.finish().unwrap().remove(0);
    let bytes = fs::read(&summary.path).unwrap();
    let file = TraceFile::open(&bytes).unwrap();
    assert_eq!(file.damage(), []);
    let kept: Vec<(What, u64)> =
        file.happenings().map(|happening| (happening.what, happening.time_ns)).collect();
    let values = kept.iter().map(|(what, _)| match what {
        What::Instant { value, .. } => *value,
        other => panic!("outside of the window: {other:?}"),
    });
    assert_eq!(values.collect::<Vec<_>>(), [2, 3, 4]);
    // Their times are right, though the records before them are not in the file.
    let apart = kept[2].1 - kept[0].1;
    assert!(apart.abs_diff(1_800_000_000) < 20_000_000, "{apart} ns");
    let after = kept[0].1 - sync.realtime_ns;
    assert!(after.abs_diff(1_100_000_000) < 20_000_000, "{after} ns");
    assert_eq!((file.lost(), summary.lost, summary.records), (Some(0), 0, 3));
}

#[test]
fn each_thread_has_a_file_and_a_second_run_takes_another_folder() {
    let folder = Folder::new();
    let session = Session::create(&folder.0, SessionOptions::default()).unwrap();
    let first = session.recorder(&ThreadInfo::current("worker-0")).unwrap();
    let slot = TraceSlot::holding(session.recorder(&ThreadInfo::current("worker-1")).unwrap());
    let error = session.recorder(&ThreadInfo::current("worker-1")).unwrap_err();
    assert!(matches!(error, TraceError::Taken { .. }), "{error}");
    let second = std::thread::spawn({
        let slot = slot.clone();
        move || (slot.take(), ThreadInfo::current("").tid)
    });
    let (second, tid) = second.join().unwrap();
    assert!(second.is_some() && slot.take().is_none() && TraceSlot::empty().take().is_none());
    drop((first, second));
    let names: Vec<_> = session.finish().unwrap().into_iter().map(|s| s.name).collect();
    assert_eq!(names, ["worker-0", "worker-1"]);
    let bytes = fs::read(folder.file("worker-1.lwt")).unwrap();
    let thread = TraceFile::open(&bytes).unwrap().threads()[0].clone();
    assert_eq!(thread.tid, tid, "the taker of the recorder recorded");
}

#[test]
fn a_limit_that_cannot_be_is_named() {
    let folder = Folder::new();
    for ring_records in [0, 63, 100, RING_RECORDS_MAX * 2] {
        let options = SessionOptions { ring_records, ..SessionOptions::default() };
        let error = Session::create(&folder.0, options).err().unwrap().to_string();
        assert!(error.contains(&ring_records.to_string()), "{error}");
    }
    let missing = Path::new("/proc/laneway");
    let error = Session::create(missing, SessionOptions::default()).err().unwrap().to_string();
    assert!(error.contains("/proc/laneway"), "{error}");
}

#[test]
fn a_writer_that_was_killed_leaves_what_it_wrote() {
    let folder = Folder::new();
    let path = folder.file("kernel.lwt");
    let header = Header::of_this_program();
    let mut writer = FileWriter::create(&path, &header, FILE_BYTES_MAX).unwrap();
    writer.sync(SyncPoint { ticks: 1000, monotonic_ns: 1000, realtime_ns: 0 }).unwrap();
    let thread = ThreadInfo { pid: 7, tid: 8, name: "a thread".to_owned(), cpu: None, queue: 0 };
    let number = writer.thread(&thread).unwrap();
    let records = [
        Record { delta: 5, point: points::SWITCHED_OUT, small: 1, value: 0 },
        Record { delta: 10, point: points::SWITCHED_IN, small: 0, value: 0 },
        Record { delta: 1, point: points::SYSCALL_IN, small: 0, value: 44 },
    ];
    assert!(writer.records(number, Some(1), 2000, &records).unwrap());
    drop(writer); // no end block

    let bytes = fs::read(&path).unwrap();
    let file = TraceFile::open(&bytes).unwrap();
    assert!(file.damage()[0].what.contains("no end block"), "{:?}", file.damage());
    assert_eq!((file.lost(), &file.threads()[0]), (None, &thread));
    let read: Vec<Happening> = file.happenings().collect();
    assert_eq!(
        read.iter().map(|h| h.what).collect::<Vec<_>>(),
        [What::SwitchedOut { runnable: true }, What::SwitchedIn, What::SyscallIn(44)]
    );
    let unix_ns = |monotonic_ns: u64| monotonic_ns.saturating_add_signed(header.unix_offset_ns);
    assert_eq!(read.iter().map(|h| h.time_ns).collect::<Vec<_>>(), [2005, 2015, 2016].map(unix_ns));
    assert!(read.iter().all(|h| h.cpu == Some(1)));
}

#[test]
fn other_files_are_refused_by_name() {
    assert_eq!(TraceFile::open(b"\x7fELF").err(), Some(NotATrace::Magic));
    assert!(matches!(TraceFile::open(b"").err(), Some(NotATrace::Short { bytes: 0, .. })));
}

#[test]
fn a_broken_block_costs_one_block() {
    let folder = Folder::new();
    let path = folder.file("a.lwt");
    let header = Header::of_this_program();
    let mut writer = FileWriter::create(&path, &header, FILE_BYTES_MAX).unwrap();
    let thread = writer.thread(&ThreadInfo::current("a")).unwrap();
    for value in 0..3 {
        let record = Record { delta: 1, point: points::NAPI_POLL, small: 0, value };
        writer.records(thread, None, 1000 + value, &[record]).unwrap();
    }
    writer.finish(0).unwrap();
    let whole = fs::read(&path).unwrap();
    // From the end: the end block, 48 bytes; before it three blocks of one record, 48 bytes each.
    let second = whole.len() - 48 * 3;
    for at in [second + 1, second + 40] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        let file = TraceFile::open(&bytes).unwrap();
        assert_eq!(file.damage()[0].offset, second as u64, "{:?}", file.damage());
        let values: Vec<u64> = file
            .happenings()
            .map(|h| match h.what {
                What::Instant { value, .. } => value,
                other => panic!("{other:?} was never written"),
            })
            .collect();
        assert_eq!(values, [0, 2]);
    }
}
