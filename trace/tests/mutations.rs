//! Traces that went wrong, from the file to the text: each is refused with a reason or analysed, in bounded memory, and ends.
//!
//! They are the fuzzer's seeds with a few changes drawn at random: CTF 1.8 and 2 of programs and of the kernel, files of our own
//! tracer, Chrome JSON, dumps of uftrace, text of perf. `LANEWAY_SEED=N` draws the same again, `LANEWAY_MUTATIONS=N` so many.
#![expect(clippy::print_stdout, reason = "a seed is printed, so that it can be drawn again")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use laneway_testkit::{Random, seed};
use laneway_trace::{Options, Rules, analyze, text};
use laneway_trace_read::Trace;

/// Changed traces; `LANEWAY_MUTATIONS=5000` for the long form.
const MUTATIONS: u64 = 400;
/// A trace of a few kilobytes that takes so long will never end, however busy the machine.
const HANGS: Duration = Duration::from_secs(300);
/// Most resident memory, over all of them.
const PEAK_BYTES_MAX: u64 = 4 << 30;

/// One of the ways in which files go wrong.
fn change(random: &mut Random, bytes: &mut Vec<u8>) {
    let at = random.index(bytes.len());
    let rest = bytes.len() - at;
    match random.index(6) {
        0 if rest > 0 => bytes[at] ^= 1 << random.below(8),
        1 if rest > 0 => bytes[at] = random.below(256) as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..at + random.index(32).min(rest))),
        4 => bytes.extend_from_within(at..at + random.index(64).min(rest)),
        _ if rest >= 8 => {
            let edges = [0, 1, 0x7f, 0xffff, 0x7fff_ffff, 1 << 31, 1 << 53, u64::MAX];
            let edge = edges[random.index(edges.len())].to_le_bytes();
            let width = [1, 2, 4, 8][random.index(4)];
            bytes[at..at + width].copy_from_slice(&edge[..width]);
        }
        _ => bytes.push(random.below(256) as u8),
    }
}

/// The files of a trace: name and bytes.
type Files = Vec<(&'static str, Vec<u8>)>;

fn seeds() -> Vec<Files> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let mut all = Vec::new();
    let names = [
        ("trace_own", "worker.lwt"),
        ("trace_chrome", "t"),
        ("trace_uftrace", "t"),
        ("trace_perf", "t"),
    ];
    for (target, name) in names {
        all.extend(read(&folder.join(target)).into_iter().map(|bytes| vec![(name, bytes)]));
    }
    for bytes in read(&folder.join("trace_ctf")) {
        // Lengths of the metadata and of the first stream stand before them; the second is the rest.
        let part = |from: usize| {
            let length = bytes[from..from + 4].try_into().expect("four bytes");
            let length = u32::from_le_bytes(length) as usize;
            (bytes[from + 4..from + 4 + length].to_vec(), from + 4 + length)
        };
        let (metadata, next) = part(0);
        let (first, next) = part(next);
        all.push(vec![
            ("metadata", metadata),
            ("channel_0", first),
            ("channel_1", bytes[next..].to_vec()),
        ]);
    }
    all
}

fn read(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).expect("seeds ship with the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a seed").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a seed")).collect()
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// True if it was analysed, false if it was refused.
fn run(folder: &Path, files: &Files) -> bool {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir(folder).expect("the folder for temporary files can be written");
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).expect("the folder for temporary files can be written");
    }
    let path = match files.as_slice() {
        [(name, _)] => folder.join(name),
        _ => folder.to_path_buf(),
    };
    match Trace::open_with(path, Rules::known().calls()) {
        Ok(mut trace) => {
            let report = analyze(&mut trace, Options::default()).expect("files can be read");
            assert!(text::analysis(&report.analysis).contains("COVERAGE"));
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

#[test]
fn a_changed_trace_is_refused_or_analysed() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = seed();
    let mutations = number("LANEWAY_MUTATIONS").unwrap_or(MUTATIONS);
    println!("LANEWAY_MUTATIONS={mutations}");
    let folder = std::env::temp_dir().join(format!("laneway-mutations-{}", std::process::id()));
    let folder = Folder(folder);
    let (path, seeds) = (folder.0.clone(), seeds());
    let (done, is_done) = mpsc::channel();
    let work = thread::spawn(move || {
        let mut random = Random::seeded(seed);
        for files in &seeds {
            assert!(run(&path, files), "a seed is whole");
        }
        for _ in 0..mutations {
            let mut files = seeds[random.index(seeds.len())].clone();
            for _ in 0..=random.below(5) {
                let at = random.index(files.len());
                change(&mut random, &mut files[at].1);
            }
            let analysed = run(&path, &files);
            if done.send(analysed).is_err() {
                return;
            }
        }
    });
    let mut analysed = 0;
    for mutation in 0..mutations {
        match is_done.recv_timeout(HANGS) {
            Ok(was_analysed) => analysed += u64::from(was_analysed),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("mutation {mutation} hangs"),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                println!("mutation {mutation} is the one that panicked");
                break;
            }
        }
    }
    work.join().expect("no mutation panics");
    println!("{analysed} of {mutations} were analysed, the others refused");
    if let Some(peak) = peak_bytes() {
        assert!(peak <= PEAK_BYTES_MAX, "{peak} bytes of memory");
    }
}
