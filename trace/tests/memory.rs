//! The bound on memory, measured from outside: what the kernel says this process has while it reads and analyses traces of
//! our own tracer. Alone in its program, because other tests would use memory at the same time.
//!
//! A trace is made as a run under `laneway trace record --kernel` writes it: a file per worker, and one of the kernel's view with
//! the switches of the workers and of many threads beside them, in rounds of small blocks.
#![expect(clippy::print_stdout, reason = "a seed is printed, so that it can be drawn again")]

use std::path::{Path, PathBuf};

use laneway_testkit::{Random, seed, skip};
use laneway_trace::{Options, analyze};
use laneway_trace_read::Trace;
use laneway_tracer::{FileWriter, Header, PointId, Record, SyncPoint, ThreadInfo, points};

/// Threads with files of their own, and others that the kernel tells of.
const WORKERS: u32 = 4;
const OTHERS: u32 = 60;
/// Calls of a worker in one round, and events that come of the round: two of a call, five of each worker's kernel side (a
/// system call's end tells its result, too), two of one other thread.
const CALLS: u64 = 500;
const EVENTS_OF_ROUND: u64 = WORKERS as u64 * (2 * CALLS + 5) + 2;
/// How much more the peak of a long trace may be than that of a short one: pages of the allocator, and the offsets of blocks.
const SLACK_BYTES: u64 = 6 << 20;
/// What an analysis may take, however long the trace.
const PEAK_BYTES_MAX: u64 = 64 << 20;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("laneway-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("the folder for temporary files can be written");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The most resident memory this process ever had.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn create(folder: &Path, name: &str) -> FileWriter {
    let header =
        Header { ticks_per_s: 1_000_000_000, unix_offset_ns: 0, ..Header::of_this_program() };
    let mut file = FileWriter::create(&folder.join(name), &header, u64::MAX).expect("a new file");
    sync(&mut file, 0);
    file
}

fn sync(file: &mut FileWriter, ns: u64) {
    let sync = SyncPoint { ticks: ns, monotonic_ns: ns, realtime_ns: ns };
    file.sync(sync).expect("room on the disk");
}

const fn record(delta: u32, point: PointId, small: u16, value: u64) -> Record {
    Record { delta, point, small, value }
}

/// Writes a trace of so many rounds of a millisecond; every round is drawn a little different.
fn write(folder: &Path, rounds: u64, random: &mut Random) {
    let info = |tid: u32, name: String| ThreadInfo { pid: 1, tid, name, cpu: None, queue: 0 };
    let mut kernel = create(folder, "kernel.lwt");
    let mut files: Vec<(FileWriter, u16)> = (0..WORKERS)
        .map(|worker| {
            let mut file = create(folder, &format!("worker-{worker}.lwt"));
            let name = format!("worker-{worker}");
            let number = file.thread(&info(100 + worker, name)).expect("room");
            (file, number)
        })
        .collect();
    let threads: Vec<u16> = (0..WORKERS + OTHERS)
        .map(|tid| kernel.thread(&info(100 + tid, format!("comm {tid}"))).expect("room"))
        .collect();
    for round in 0..rounds {
        let base = 1_000_000 * (round + 1);
        for (worker, (file, number)) in (0..).zip(&mut files) {
            let mut calls = Vec::with_capacity(2 * CALLS as usize);
            for _ in 0..CALLS {
                let lasted = 100 + random.below(900) as u32;
                calls.push(record(400, points::SERVE, 0, 0));
                calls.push(record(lasted, points::SERVE, 1, 0));
            }
            assert!(file.records(*number, Some(worker), base, &calls).expect("room"));
            let switches = [
                record(10_000 + random.below(100_000) as u32, points::SWITCHED_OUT, 1, 0),
                record(2_000, points::SWITCHED_IN, 0, 0),
                record(300_000, points::SYSCALL_IN, 0, 44),
                record(1_500, points::SYSCALL_OUT, 0, 44),
            ];
            let number = threads[worker as usize];
            assert!(kernel.records(number, Some(worker), base, &switches).expect("room"));
        }
        // All of them in any length: a thread has its tables from its first event on.
        let other = threads[(u64::from(WORKERS) + round % u64::from(OTHERS)) as usize];
        let switches =
            [record(500_000, points::SWITCHED_IN, 0, 0), record(2_000, points::SWITCHED_OUT, 0, 0)];
        assert!(kernel.records(other, Some(1), base, &switches).expect("room"));
        if round % 1_000 == 999 {
            files.iter_mut().for_each(|(file, _)| sync(file, base));
            sync(&mut kernel, base);
        }
    }
    for (mut file, _) in files {
        sync(&mut file, 1_000_000 * (rounds + 2));
        file.finish(0).expect("room");
    }
    sync(&mut kernel, 1_000_000 * (rounds + 2));
    kernel.finish(0).expect("room");
}

/// Analyses a trace of so many events; gives the peak of memory behind it.
fn analysed(events: u64, random: &mut Random) -> Option<u64> {
    let folder = Folder::new("memory-of-a-trace");
    let rounds = events.div_ceil(EVENTS_OF_ROUND);
    write(&folder.0, rounds, random);
    let mut trace = Trace::open(&folder.0).expect("it was just written");
    let report = analyze(&mut trace, Options::default()).expect("files can be read");
    let coverage = &report.analysis.coverage;
    assert_eq!((coverage.damages_total, coverage.losses), (0, 0));
    assert_eq!(coverage.events, rounds * EVENTS_OF_ROUND);
    assert!(coverage.threads > u64::from(WORKERS), "{} threads", coverage.threads);
    assert!(report.analysis.threads.iter().take(4).all(|row| row.name.starts_with("worker-")));
    peak_bytes()
}

#[test]
fn a_longer_trace_takes_no_more_memory() {
    let mut random = Random::seeded(seed());
    let events = 400_000 + random.below(400_000);
    let Some(short) = analysed(events, &mut random) else {
        skip("/proc/self/status does not tell the peak of resident memory");
        return;
    };
    let long = analysed(6 * events, &mut random).expect("it was there before");
    // The kernel counts pages in batches, so that a peak may seem to sink a little.
    let grown = long.saturating_sub(short);
    println!("{events} events: {short} bytes at most; six times as many: {grown} bytes more");
    assert!(grown <= SLACK_BYTES, "{grown} bytes more for six times {events} events");
    assert!(long <= PEAK_BYTES_MAX, "{long} bytes");
}

/// Minutes, and two gigabytes of disk: `cargo test --release -p laneway-trace --test memory -- --ignored`.
#[test]
#[ignore = "minutes, and two gigabytes of disk"]
fn a_hundred_million_events_take_at_most_64_mb() {
    let mut random = Random::seeded(seed());
    let Some(peak) = analysed(100_000_000, &mut random) else {
        skip("/proc/self/status does not tell the peak of resident memory");
        return;
    };
    println!("100,000,000 events: {peak} bytes at most");
    assert!(peak <= PEAK_BYTES_MAX, "{peak} bytes");
}
