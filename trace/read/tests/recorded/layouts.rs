//! Layouts that no recorded trace has, against babeltrace2: calls without a call site, events without a thread, buffers
//! per process, short event headers, both byte orders.
//!
//! The traces of LTTng are recorded here, of a small program, by a session daemon of our own in a folder of its own
//! (root's daemon has its sockets at a fixed place: if one runs there, it is used). LTTng-UST writes long event headers
//! only, however few kinds of events there are; traces with the short ones are the seeds of the fuzzer, written by the
//! tests of this crate as the kernel's tracer would.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::oracle::same_records;
use laneway_trace_read::{
    Consumer, Event, FunctionKey, Kind, ListingPlace, Loss, Read, Thread, ThreadId, Trace,
};

/// Looks at a daemon that starts or ends, and the pause between them.
const LOOKS: u32 = 300;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Where root's daemon has its sockets.
const ROOT_RUN_FOLDER: &str = "/var/run/lttng";

/// Calls `inner` a thousand times from `outer`.
const PROGRAM: &str = "
static volatile int sum;
__attribute__((noinline)) void inner(int i) { sum += i; }
__attribute__((noinline)) void outer(void) { for (int i = 0; i < 1000; i++) inner(i); }
int main(void) { outer(); return 0; }
";

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("laneway-layouts-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("the folder for temporary files can be written");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Root's daemon is one: sessions come one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a session is set up.
#[derive(Clone, Copy, Debug)]
struct Layout {
    fast: bool,
    contexts: &'static [&'static str],
    per_process: bool,
    statedump: bool,
}

/// A session daemon, and what it keeps. Fields go in this order.
struct Daemon {
    child: Option<Child>,
    made: bool,
    home: Folder,
}

impl Daemon {
    /// `None`, with a message that states why, where LTTng is not installed.
    fn start() -> Option<Self> {
        let mut daemon = Self { child: None, made: false, home: Folder::new() };
        match daemon.try_lttng(&["list"]) {
            Err(error) => {
                println!("skipped: lttng cannot be run (apt-get install lttng-tools): {error}");
                return None;
            }
            Ok(output) if output.status.success() => return Some(daemon),
            Ok(_) => {}
        }
        let was_there = Path::new(ROOT_RUN_FOLDER).exists();
        // Ends with us even if we are killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "lttng-sessiond", "--no-kernel"])
            .env("LTTNG_HOME", &daemon.home.0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => (daemon.child, daemon.made) = (Some(child), !was_there),
            Err(error) => {
                println!("skipped: lttng-sessiond cannot be run by setpriv: {error}");
                return None;
            }
        }
        for _ in 0..LOOKS {
            if daemon.try_lttng(&["list"]).is_ok_and(|output| output.status.success()) {
                return Some(daemon);
            }
            if daemon.has_ended() {
                break;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        println!("skipped: lttng-sessiond does not get ready");
        None
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|ended| ended.is_some()))
    }

    fn try_lttng(&self, arguments: &[&str]) -> std::io::Result<Output> {
        Command::new("lttng")
            .arg("--no-sessiond")
            .args(arguments)
            .env("LTTNG_HOME", &self.home.0)
            .output()
    }

    fn lttng(&self, arguments: &[&str]) {
        let output = self.try_lttng(arguments).expect("it ran before");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "lttng {arguments:?}: {printed}");
    }

    /// Records `program`, run `times` times, into `output`.
    fn record(&self, layout: Layout, program: &Path, times: u32, library: &Path, output: &Path) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("laneway-layouts-{}-{number}", std::process::id());
        self.lttng(&["create", &name, &format!("--output={}", output.display())]);
        let session = Session { daemon: self, name: &name };
        let of = format!("--session={name}");
        let buffers = if layout.per_process { "--buffers-pid" } else { "--buffers-uid" };
        let room = ["--subbuf-size=1M", "--num-subbuf=4"];
        let mut channel = vec!["enable-channel", "--userspace", &of, "--discard", buffers];
        channel.extend(room);
        channel.push("calls");
        self.lttng(&channel);
        let mut events = vec!["lttng_ust_cyg_profile*"];
        events.extend(layout.statedump.then_some("lttng_ust_statedump:*"));
        for event in events {
            self.lttng(&["enable-event", "--userspace", &of, "--channel=calls", event]);
        }
        for context in layout.contexts {
            let context = format!("--type={context}");
            self.lttng(&["add-context", "--userspace", &of, "--channel=calls", &context]);
        }
        self.lttng(&["start", &name]);
        for _ in 0..times {
            let ended = Command::new(program)
                .env("LD_PRELOAD", library)
                .env("LTTNG_HOME", &self.home.0)
                .env("LTTNG_UST_REGISTER_TIMEOUT", "10000")
                .status();
            assert!(ended.expect("compiled here").success());
        }
        self.lttng(&["stop", &name]);
        drop(session);
    }
}

/// A session that is destroyed however its test ends.
struct Session<'d> {
    daemon: &'d Daemon,
    name: &'d str,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let _ = self.daemon.try_lttng(&["destroy", self.name]);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Some(id) = self.child.as_ref().map(Child::id) else { return };
        if !self.has_ended() {
            let _ = Command::new("kill").args(["-TERM", &id.to_string()]).status();
            for _ in 0..LOOKS {
                if self.has_ended() {
                    break;
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        if let Some(mut child) = self.child.take() {
            // Both fail on a daemon that has ended in order.
            let _ = child.kill();
            let _ = child.wait();
        }
        if self.made {
            let _ = fs::remove_dir_all(ROOT_RUN_FOLDER);
        }
    }
}

/// Our program, position independent, or nothing (with a message) without a compiler.
fn program(folder: &Path) -> Option<PathBuf> {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&source, PROGRAM).expect("a folder of ours");
    let compiled = Command::new("cc")
        .args(["-O1", "-fPIE", "-pie", "-Wl,--build-id", "-finstrument-functions", "-o"])
        .args([&program, &source])
        .status();
    match compiled {
        Ok(status) => {
            assert!(status.success(), "cc: {status}");
            Some(program)
        }
        Err(error) => {
            println!("skipped: no C compiler (apt-get install gcc): {error}");
            None
        }
    }
}

/// The library that reports calls to LTTng, or nothing (with a message).
fn library(fast: bool) -> Option<PathBuf> {
    let name =
        if fast { "liblttng-ust-cyg-profile-fast.so" } else { "liblttng-ust-cyg-profile.so" };
    let folder = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let names = [name.to_owned(), format!("{name}.1"), format!("{name}.0")];
    let found = names.iter().map(|name| Path::new(&folder).join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: no {name} in {folder} (apt-get install liblttng-ust-dev)");
    }
    found
}

/// Counts what is delivered.
#[derive(Default)]
struct Counts {
    entered: BTreeMap<u64, u64>,
    left: u64,
    left_innermost: u64,
    threads: Vec<Thread>,
    depth: Vec<i64>,
    /// Does a thread call anything?
    callers: Vec<bool>,
    losses: u64,
}

impl Consumer for Counts {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        assert_eq!(id.0 as usize, self.threads.len(), "a thread keeps its name here");
        self.threads.push(thread.clone());
        self.depth.push(0);
        self.callers.push(false);
    }

    fn events(&mut self, id: ThreadId, _: Option<u32>, events: &[Event]) {
        for event in events {
            let step = match event.kind {
                Kind::Enter(key) => {
                    *self.entered.entry(key.0).or_default() += 1;
                    1
                }
                Kind::Leave(_) => {
                    self.left += 1;
                    -1
                }
                Kind::LeaveInnermost => {
                    self.left_innermost += 1;
                    -1
                }
                _ => 0,
            };
            self.depth[id.0 as usize] += step;
            self.callers[id.0 as usize] |= step != 0;
        }
    }

    fn lost(&mut self, _: &Loss, _: &[ThreadId]) {
        self.losses += 1;
    }
}

fn counted(trace: &mut Trace) -> (Counts, Read) {
    let mut counts = Counts::default();
    let read = trace.read(&mut counts).expect("files can be read");
    assert!(read.damages.is_empty(), "{:?}", read.damages);
    (counts, read)
}

#[test]
fn every_layout_of_lttng_equals_babeltrace2() {
    let _alone = alone();
    let folder = Folder::new();
    let (Some(program), Some(daemon)) = (program(&folder.0), Daemon::start()) else { return };
    let layouts = [
        Layout { fast: true, contexts: &["vpid", "vtid"], per_process: false, statedump: true },
        Layout { fast: true, contexts: &[], per_process: true, statedump: false },
        Layout { fast: false, contexts: &[], per_process: false, statedump: true },
        Layout { fast: false, contexts: &["vpid", "vtid"], per_process: true, statedump: true },
        Layout { fast: false, contexts: &["vtid"], per_process: false, statedump: false },
    ];
    for (number, layout) in layouts.into_iter().enumerate() {
        let Some(library) = library(layout.fast) else { return };
        let output = folder.0.join(format!("trace-{number}"));
        daemon.record(layout, &program, 2, &library, &output);
        let Some(records) = same_records(&output) else { return };
        // main, outer, and inner a thousand times, in two processes; the statedump comes on top.
        let calls = 2 * 1002;
        assert!(records >= 2 * calls, "{layout:?}: {records}");
        assert_eq!(records > 2 * calls, layout.statedump, "{layout:?}: {records}");

        let mut trace = Trace::open(&output).expect("a trace");
        assert_eq!(trace.about().leaves_are_anonymous, layout.fast);
        let (counts, read) = counted(&mut trace);
        assert_eq!((read.entries, read.exits, read.records), (calls, calls, records), "{layout:?}");
        let exits = if layout.fast { (0, calls) } else { (calls, 0) };
        assert_eq!((counts.left, counts.left_innermost), exits, "{layout:?}");
        assert_eq!((counts.losses, read.discarded), (0, 0));
        assert!(counts.depth.iter().all(|&depth| depth == 0), "{layout:?}: {:?}", counts.depth);
        if layout.contexts.contains(&"vtid") {
            // The statedump is recorded by a thread of LTTng's own.
            let threads = if layout.statedump { 4 } else { 2 };
            assert_eq!(counts.threads.len(), threads, "{layout:?}: {:?}", counts.threads);
            assert_eq!(counts.callers.iter().filter(|&&calls| calls).count(), 2, "{layout:?}");
        } else {
            let is_noted =
                trace.about().notes.iter().any(|note| note.contains("do not tell their thread"));
            assert!(is_noted, "{layout:?}: {:?}", trace.about().notes);
        }
    }
}

#[test]
fn functions_of_a_program_that_was_moved_are_named_by_a_listing() {
    let _alone = alone();
    let folder = Folder::new();
    let (Some(program), Some(daemon)) = (program(&folder.0), Daemon::start()) else { return };
    for fast in [false, true] {
        let Some(library) = library(fast) else { return };
        let output = folder.0.join(format!("named-{fast}"));
        let contexts = &["vpid", "vtid", "procname"];
        let layout = Layout { fast, contexts, per_process: false, statedump: true };
        daemon.record(layout, &program, 1, &library, &output);
        let mut trace = Trace::open(&output).expect("a trace");
        let (counts, _) = counted(&mut trace);

        let nm = match Command::new("nm").arg(&program).output() {
            Ok(output) => output.stdout,
            Err(error) => {
                println!("skipped: no nm (apt-get install binutils): {error}");
                return;
            }
        };
        let listing = folder.0.join("program.nm");
        fs::write(&listing, nm).expect("a folder of ours");
        let module =
            trace.symbols().modules().iter().find(|module| module.path.ends_with("program"));
        let module = module.expect("the statedump tells the program").clone();
        assert!(module.position_independent && module.base > 0 && !module.build_id.is_empty());
        let named = |trace: &Trace| -> BTreeMap<String, u64> {
            let name = |key: u64| trace.symbols().function(FunctionKey(key)).name;
            counts.entered.iter().map(|(&key, &count)| (name(key), count)).collect()
        };
        let expected = BTreeMap::from([
            ("inner".to_owned(), 1000),
            ("main".to_owned(), 1),
            ("outer".to_owned(), 1),
        ]);
        // By the program itself, by its listing at the place that the statedump tells, and where it fits.
        assert_eq!(named(&trace), expected, "by build id");
        let gone = folder.0.join("elsewhere");
        fs::rename(&program, &gone).expect("a folder of ours");
        let mut trace = Trace::open(&output).expect("a trace");
        counted(&mut trace);
        assert!(named(&trace).keys().all(|name| name.starts_with("program+0x")), "unnamed");
        let place = ListingPlace::Module("program".into());
        trace.symbols_mut().add_listing(&listing, &place).expect("a listing");
        assert_eq!(named(&trace), expected, "by listing");
        let mut trace = Trace::open(&output).expect("a trace");
        let keys = counts.entered.keys().map(|&key| FunctionKey(key)).collect();
        trace.symbols_mut().add_listing(&listing, &ListingPlace::Fit(keys)).expect("it fits");
        assert_eq!(named(&trace), expected, "by fit");
        fs::rename(&gone, &program).expect("a folder of ours");
    }
}

/// Short and long event headers in both byte orders.
#[test]
fn every_event_header_and_byte_order_equals_babeltrace2() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/trace_ctf");
    for name in ["little-compact", "little-large", "big-compact", "big-large"] {
        let bytes = fs::read(seeds.join(name)).expect("seeds ship with the repository");
        let split = |bytes: &[u8]| -> (Vec<u8>, Vec<u8>) {
            let (length, rest) = bytes.split_first_chunk::<4>().expect("a length");
            let (part, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            (part.to_vec(), rest.to_vec())
        };
        let (metadata, rest) = split(&bytes);
        let (first, second) = split(&rest);
        let folder = Folder::new();
        for (file, bytes) in [("metadata", metadata), ("calls_0", first), ("calls_1", second)] {
            fs::write(folder.0.join(file), bytes).expect("a folder of ours");
        }
        let Some(records) = same_records(&folder.0) else { return };
        assert_eq!(records, 2 * 2 * 14, "{name}");
    }
}
