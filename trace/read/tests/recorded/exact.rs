//! Recorded traces, event by event against babeltrace2.
//!
//! Needs the recorded traces, whose folder `LANEWAY_TRACES` names, `tar` with zstd, and babeltrace2; says so and passes
//! without them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use crate::oracle::{Babeltrace, field, number, parts, same_records};
use laneway_testkit::{skip, trace_file};
use laneway_trace_read::{
    Consumer, Event, FunctionKey, Kind, ListingPlace, Loss, PoolAction, Thread, ThreadId, Trace,
};

/// A recorded trace, unpacked, and removed in the end.
struct Unpacked(PathBuf);

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn unpack(name: &str, test: &str) -> Option<Unpacked> {
    let archive = trace_file(name)?;
    let folder = std::env::temp_dir().join(format!("laneway-exact-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    let unpacked = Unpacked(folder);
    let done = Command::new("tar")
        .args(["--zstd", "-xf"])
        .arg(&archive)
        .arg("-C")
        .arg(&unpacked.0)
        .status();
    if !done.is_ok_and(|status| status.success()) {
        skip(format!("tar cannot unpack {}", archive.display()));
        return None;
    }
    Some(unpacked)
}

#[derive(Default)]
struct Log {
    threads: Vec<Thread>,
    /// Time, CPU, thread, kind.
    events: Vec<(u64, Option<u32>, u32, Kind)>,
    losses: Vec<(Loss, Vec<ThreadId>)>,
    last: HashMap<u32, u64>,
}

impl Consumer for Log {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        assert_eq!(id.0 as usize, self.threads.len(), "no thread changes its name in these traces");
        self.threads.push(thread.clone());
    }
    fn events(&mut self, id: ThreadId, cpu: Option<u32>, events: &[Event]) {
        for event in events {
            let last = self.last.entry(id.0).or_insert(0);
            assert!(*last <= event.time_ns, "thread {id:?} goes back");
            *last = event.time_ns;
            self.events.push((event.time_ns, cpu, id.0, event.kind));
        }
    }
    fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
        self.losses.push((loss.clone(), threads.to_vec()));
    }
}

#[test]
fn lttng_every_field_equals_babeltrace2() {
    let Some(folder) = unpack("testpmd-tap-lttng.tar.zst", "lttng-fields") else { return };
    let Some(records) = same_records(&folder.0) else { return };
    assert_eq!(records, 1_751_468);
}

#[test]
fn dpdk_every_field_equals_babeltrace2() {
    let Some(folder) = unpack("testpmd-tap-rte.tar.zst", "dpdk-fields") else { return };
    let Some(records) = same_records(&folder.0) else { return };
    assert_eq!(records, 148_043);
}

#[test]
fn lttng_every_call_equals_babeltrace2() {
    let Some(folder) = unpack("testpmd-tap-lttng.tar.zst", "lttng-calls") else { return };
    let mut trace = Trace::open(&folder.0).expect("a trace");
    let mut log = Log::default();
    let read = trace.read(&mut log).expect("files can be read");
    assert_eq!((read.entries, read.exits, read.records), (875_676, 875_677, 1_751_468));
    assert_eq!((read.discarded, read.losses), (40_395_002, 1));
    assert!(read.damages.is_empty(), "{:?}", read.damages);
    let loss = &log.losses[0].0;
    assert!(loss.to_ns - loss.from_ns > 3_000_000_000, "40 million events took seconds: {loss:?}");

    let Some(mut oracle) = Babeltrace::start(&folder.0) else { return };
    let mut events = std::mem::take(&mut log.events);
    events.sort_by_key(|&(time_ns, ..)| time_ns);
    let mut ours = events.iter().peekable();
    for line in oracle.lines() {
        let (time_ns, name, fields) = parts(&line).expect("a line of babeltrace2");
        let key = |fields| FunctionKey(number(fields, "addr"));
        let kind = match name {
            "lttng_ust_cyg_profile:func_entry" => Kind::Enter(key(fields)),
            "lttng_ust_cyg_profile:func_exit" => Kind::Leave(key(fields)),
            _ => continue,
        };
        let &(found_ns, cpu, thread, found) = ours.next().expect("as many events");
        assert_eq!((found_ns, found), (time_ns, kind), "{line}");
        assert_eq!(cpu.map(u64::from), Some(number(fields, "cpu_id")), "{line}");
        let thread = &log.threads[thread as usize];
        assert_eq!(u64::from(thread.pid), number(fields, "vpid"));
        assert_eq!(u64::from(thread.tid), number(fields, "vtid"));
        assert_eq!(Some(thread.name.as_str()), field(fields, "procname"));
    }
    assert_eq!(ours.next(), None);
}

#[test]
fn dpdk_every_event_equals_babeltrace2() {
    let Some(folder) = unpack("testpmd-tap-rte.tar.zst", "dpdk-events") else { return };
    let mut trace = Trace::open(&folder.0).expect("a trace");
    let mut log = Log::default();
    let read = trace.read(&mut log).expect("files can be read");
    assert!(read.damages.is_empty(), "{:?}", read.damages);
    assert_eq!(read.events, 148_043);
    let Some(mut oracle) = Babeltrace::start(&folder.0) else { return };
    let mut by_thread: HashMap<String, std::vec::IntoIter<(u64, Kind)>> = HashMap::new();
    for (number, thread) in log.threads.iter().enumerate() {
        let mine: Vec<(u64, Kind)> = log
            .events
            .iter()
            .filter(|event| event.2 as usize == number)
            .map(|event| (event.0, event.3))
            .collect();
        by_thread.insert(thread.name.clone(), mine.into_iter());
    }
    for line in oracle.lines() {
        let (time_ns, name, fields) = parts(&line).expect("a line of babeltrace2");
        let thread = field(fields, "name").expect("the packet names its thread");
        let ours = by_thread.get_mut(thread).expect("a thread of ours");
        let (found_ns, kind) = ours.next().expect("as many events");
        assert_eq!(found_ns, time_ns, "{line}");
        let (port, queue) = match name {
            "lib.ethdev.rx.burst" => {
                (number(fields, "port_id") as u16, number(fields, "queue_id") as u16)
            }
            _ => (0, 0),
        };
        match kind {
            Kind::Receive { asked: 0, got, port: found, queue: at } => {
                assert_eq!((name, found, at), ("lib.ethdev.rx.burst", port, queue));
                assert_eq!(u64::from(got), number(fields, "nb_rx"));
            }
            Kind::Pool { action: PoolAction::Refill, pool, buffers } => {
                assert_eq!(name, "lib.mempool.ops.deq.bulk");
                assert_eq!(u64::from(buffers), number(fields, "nb_objs"));
                let address = format!("{:#x}", number(fields, "mempool"));
                assert_eq!(trace.symbols().pool(pool), Some(address));
            }
            Kind::Point { point, .. } => assert_eq!(trace.symbols().point(point), Some(name)),
            other => panic!("{other:?} for {line}"),
        }
    }
    assert!(by_thread.values_mut().all(|rest| rest.next().is_none()));
}

#[test]
fn functions_get_their_names_from_a_listing() {
    let Some(folder) = unpack("testpmd-tap-lttng.tar.zst", "names") else { return };
    let mut trace = Trace::open(&folder.0).expect("a trace");
    let mut log = Log::default();
    trace.read(&mut log).expect("files can be read");
    let mut calls: HashMap<FunctionKey, u64> = HashMap::new();
    for (.., kind) in &log.events {
        if let Kind::Enter(key) = kind {
            *calls.entry(*key).or_default() += 1;
        }
    }
    let keys: Vec<FunctionKey> = calls.keys().copied().collect();
    let program = trace
        .symbols()
        .modules()
        .iter()
        .find(|module| module.path.ends_with("dpdk-testpmd-traced") || module.bytes > 20_000_000)
        .expect("the statedump tells the program")
        .clone();
    let name = program.path.file_name().expect("a file").to_string_lossy().into_owned();
    for key in &keys {
        let function = trace.symbols().function(*key);
        assert!(
            !function.known && function.name.starts_with(&format!("{name}+0x")),
            "{function:?}"
        );
    }
    let listing = trace_file("testpmd.nm.gz").expect("it is beside the recordings");
    let symbols = trace.symbols_mut();
    symbols.add_listing(&listing, &ListingPlace::Module(name.clone())).expect("a listing");
    let by_module: Vec<String> =
        keys.iter().map(|&key| trace.symbols().function(key).name).collect();
    for key in &keys {
        let function = trace.symbols().function(*key);
        assert!(function.known && function.module == name, "{function:?}");
    }
    let most = calls.iter().max_by_key(|(_, count)| **count).expect("calls");
    println!("most called: {} ({} times)", trace.symbols().function(*most.0).name, most.1);
    assert!(by_module.iter().any(|name| name == "pkt_burst_io_forward"));

    // Without statedump the place is found by where the addresses fit.
    let mut fitted = Trace::open(&folder.0).expect("a trace");
    fitted.symbols_mut().add_listing(&listing, &ListingPlace::Fit(keys.clone())).expect("it fits");
    let by_fit: Vec<String> = keys.iter().map(|&key| fitted.symbols().function(key).name).collect();
    assert_eq!(by_module, by_fit);
}
