//! The recorded traces: calls and totals against a naive count of what `babeltrace2` prints, and what the analysis
//! concludes from them. Reads the recordings where `LANEWAY_TRACES` names their folder.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use laneway_testkit::{skip, trace_file};
use laneway_trace::result::{Analysis, Layer, State};
use laneway_trace::{Options, analyze};
use laneway_trace_read::{ListingPlace, Producer, Trace};

/// An unpacked recording, removed when dropped.
struct Unpacked(PathBuf);

impl Drop for Unpacked {
    fn drop(&mut self) {
        // Nothing is left to do about a folder that cannot be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn unpack(archive: &str, test: &str) -> Option<Unpacked> {
    let archive = trace_file(archive)?;
    let folder = std::env::temp_dir().join(format!("laneway-trace-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let unpacked = Unpacked(folder);
    let tar = Command::new("tar")
        .arg("--zstd")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(&unpacked.0)
        .status();
    if !tar.is_ok_and(|status| status.success()) {
        skip("tar or zstd is missing");
        return None;
    }
    Some(unpacked)
}

fn analysis(folder: &Path) -> Analysis {
    let mut trace = Trace::open(folder).expect("a trace");
    if trace.about().producer == Producer::Lttng {
        let listing = trace_file("testpmd.nm.gz").expect("it is beside the recordings");
        let place = ListingPlace::Module("dpdk-testpmd-traced".into());
        trace.symbols_mut().add_listing(&listing, &place).expect("a listing");
    }
    analyze(&mut trace, Options::default()).expect("readable").analysis
}

/// Per address: whole calls and their time.
type Naive = BTreeMap<u64, (u64, u64)>;

/// Counts with a list per thread and nothing else.
fn count(folder: &Path) -> Option<Naive> {
    let mut child = Command::new("babeltrace2")
        .arg("--clock-seconds")
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut errors = child.stderr.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).map(|_| text)
    });
    // Calls that span a hole are dropped below: babeltrace2 tells holes apart from events.
    let mut stacks: HashMap<u64, Vec<(u64, u64, u64)>> = HashMap::new();
    let mut calls: Vec<(u64, u64, u64, u64)> = Vec::new();
    let mut times: Vec<(u64, u64)> = Vec::new();
    let mut lines = BufReader::new(child.stdout.take()?);
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if let Some((now, cpu, thread, enters, address)) = event(&line) {
            times.push((cpu, now));
            let stack = stacks.entry(thread).or_default();
            if enters {
                stack.push((address, now, cpu));
            } else if let Some(&(_, entered, cpu)) = stack.last().filter(|top| top.0 == address) {
                stack.pop();
                calls.push((address, cpu, entered, now));
            }
        }
        line.clear();
    }
    child.wait().ok()?;
    let printed = reader.join().ok()?.ok()?;
    let printed = printed.lines().filter_map(hole);
    let holes: Vec<Hole> = printed.filter_map(|hole| longest_silence(hole, &times)).collect();
    let mut naive = Naive::new();
    for (address, cpu, entered, left) in calls {
        let cut = |hole: &Hole| hole.cpu == cpu && entered <= hole.from_ns && hole.to_ns <= left;
        if !holes.iter().any(cut) {
            let sum = naive.entry(address).or_default();
            *sum = (sum.0 + 1, sum.1 + left - entered);
        }
    }
    Some(naive)
}

/// `[1795194777.811406425] ... cyg_profile:func_entry: ... vtid = 7, ... addr = 0x12, ...`
fn event(line: &str) -> Option<(u64, u64, u64, bool, u64)> {
    let enters = line.split_once("cyg_profile:func_")?.1.starts_with("entry");
    let now = stamp(line.strip_prefix('[')?.split_once(']')?.0)?;
    let number = |name: &str| line.split_once(name)?.1.split([',', ' ']).next();
    let cpu = number("cpu_id = ")?.parse().ok()?;
    let thread = number("vtid = ")?.parse().ok()?;
    let address = u64::from_str_radix(number("{ addr = 0x")?, 16).ok()?;
    Some((now, cpu, thread, enters, address))
}

/// Events of a CPU are missing somewhere between two moments.
struct Hole {
    cpu: u64,
    from_ns: u64,
    to_ns: u64,
}

/// `... discarded 40395002 events between [1795194778.031315146] and [1795194781.478379968] ... channel0_1" ...`
fn hole(line: &str) -> Option<Hole> {
    let (_, rest) = line.split_once("discarded ")?.1.split_once("between [")?;
    let (from, rest) = rest.split_once("] and [")?;
    let (to, rest) = rest.split_once(']')?;
    let cpu = rest.split_once("/channel0_")?.1.split_once('"')?.0.parse().ok()?;
    Some(Hole { cpu, from_ns: stamp(from)?, to_ns: stamp(to)? })
}

/// babeltrace2 tells the whole packet in which events are missing; they are missing where that is silent longest.
fn longest_silence(hole: Hole, times: &[(u64, u64)]) -> Option<Hole> {
    let inside = times
        .iter()
        .filter(|&&(cpu, now)| cpu == hole.cpu && hole.from_ns <= now && now <= hole.to_ns);
    let inside: Vec<u64> = inside.map(|&(_, now)| now).collect();
    let longest = inside.windows(2).max_by_key(|pair| pair[1] - pair[0])?;
    Some(Hole { from_ns: longest[0], to_ns: longest[1], ..hole })
}

fn stamp(text: &str) -> Option<u64> {
    let (seconds, ns) = text.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + ns.parse::<u64>().ok()?)
}

#[test]
fn calls_and_totals_of_the_lttng_recording_equal_a_naive_count() {
    let Some(folder) = unpack("testpmd-tap-lttng.tar.zst", "count") else { return };
    let Some(naive) = count(&folder.0) else {
        skip("babeltrace2 is missing");
        return;
    };
    let analysis = analysis(&folder.0);
    assert_eq!(analysis.coverage.entries, 875_676);
    assert_eq!(analysis.coverage.exits, 875_677);
    assert_eq!(analysis.coverage.discarded, 40_395_002);
    // Functions of one name share a row; those compared by name have one address.
    let calls: u64 = naive.values().map(|sum| sum.0).sum();
    assert_eq!(analysis.coverage.calls, calls);
    for name in [
        "rte_pktmbuf_alloc",
        "tap_write_mbufs",
        "rte_mempool_get",
        "rte_eth_tx_burst",
        "tap_trigger_cb",
    ] {
        let row = analysis.functions.iter().find(|row| row.name == name).expect("called");
        let mean = row.durations.avg_ns.expect("called");
        let whole_ns = mean * row.calls as f64;
        let same = naive.values().any(|&(calls, ns)| {
            calls == row.calls && (ns as f64 - whole_ns).abs() <= 1e-9 * whole_ns + 1.0
        });
        assert!(same, "{name}: {} calls, {whole_ns} ns is in no row of the naive count", row.calls);
    }
    let whole_ns: u64 = naive.values().map(|sum| sum.1).sum();
    let found: f64 = analysis
        .functions
        .iter()
        .map(|row| row.durations.avg_ns.unwrap_or(0.0) * row.calls as f64)
        .sum();
    // Three calls of the signal handler ran inside others. The naive count has their time at each level around them
    // too.
    let difference = whole_ns as f64 - found;
    assert!((-1.0..10_000.0).contains(&difference), "{whole_ns} {found}");
}

#[test]
fn the_lttng_recording_is_read_with_its_holes_and_layers() {
    let Some(folder) = unpack("testpmd-tap-lttng.tar.zst", "layers") else { return };
    let analysis = analysis(&folder.0);
    assert_eq!(analysis.packets.received, Some(4_114));
    assert_eq!(analysis.packets.sent, Some(4_114));
    let poll = &analysis.polls[0];
    assert_eq!(poll.polls - poll.empty, 2_794);
    assert!(analysis.coverage.asynchronous.iter().any(|name| name == "tap_trigger_cb"));
    let other = analysis.layers.iter().find(|row| row.layer == Layer::Other).expect("all layers");
    assert!(other.share < 0.01, "names fall into layers: {other:?}");
    let state = |id: &str| analysis.findings.iter().find(|one| one.id == id).expect("all").state;
    assert_eq!(state("D12"), State::Fired, "40 million events are missing");
    assert!(!analysis.advice.iter().any(|advice| advice.rule == "raise the mempool cache"));
}

#[test]
fn the_rte_recording_has_its_polls() {
    let Some(folder) = unpack("testpmd-tap-rte.tar.zst", "rte") else { return };
    let analysis = analysis(&folder.0);
    let polls: u64 = analysis.polls.iter().map(|row| row.polls).sum();
    assert_eq!(polls, 87_578, "as many as babeltrace2 prints");
    let refills: u64 = analysis.pools.iter().map(|row| row.refills).sum();
    assert_eq!(refills, 60_436, "likewise");
    let sizes: u64 = analysis.polls.iter().flat_map(|row| &row.sizes).map(|size| size[1]).sum();
    assert_eq!(sizes, polls, "every poll has a size");
    assert!(!analysis.advice.iter().any(|advice| advice.rule == "raise the mempool cache"));
}
