//! Recordings of small commands: what they did is in the folder, and nothing else is left.

use laneway_bpf::BpfError;
use laneway_trace_record::{
    Ended, Full, LttngOptions, Plan, Profile, RecordError, Recorded, Urgency, With, record,
};
use laneway_tracer::{Happening, TraceFile, What};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(30);
/// The number of an interrupt that is a page fault.
const PAGE_FAULT: u32 = 1 << 17;

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("laneway-record-{}-{number}", process::id()));
        fs::create_dir(&folder).unwrap();
        Folder(folder)
    }

    fn out(&self) -> PathBuf {
        self.0.join("out")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One after the other: the join follows every child of this process, and root's LTTng daemon is one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[allow(clippy::print_stdout, reason = "a test that is skipped says so where cargo shows it")]
fn skipped(why: impl std::fmt::Display) {
    println!("skipped: {why}");
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn plan(command: &[&str], folder: &Folder, with: With, kernel: bool) -> Plan {
    Plan { command: words(command), folder: folder.out(), with, kernel }
}

/// The recording, or nothing (with a message) where this machine cannot make it.
fn recorded(plan: &Plan, urgency: &Urgency) -> Option<Recorded> {
    match record(plan, urgency) {
        Ok(recorded) => Some(recorded),
        Err(
            error @ (RecordError::Missing { .. }
            | RecordError::Kernel(BpfError::NotPermitted { .. } | BpfError::NoBtf { .. })),
        ) => {
            skipped(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_kernels_part_of_a_command_and_its_children_is_reported() {
    let _alone = alone();
    let folder = Folder::new();
    let script = "for i in 1 2 3; do sleep 0.02; done; exit 7";
    let plan = plan(&["sh", "-c", script], &folder, With::Nothing, true);
    let Some(recorded) = recorded(&plan, &Urgency::new()) else { return };
    assert_eq!(recorded.ended.code, Some(7));
    let summary = recorded.kernel.unwrap();
    assert_eq!((summary.lost, summary.not_followed), (0, 0), "{summary:?}");
    assert_eq!(summary.path, folder.out().canonicalize().unwrap().join("kernel.lwt"));

    let bytes = fs::read(&summary.path).unwrap();
    let file = TraceFile::open(&bytes).unwrap();
    assert_eq!(file.damage(), []);
    // The shell and three children.
    assert_eq!(file.threads().len(), 4, "{:?}", file.threads());
    let happenings: Vec<Happening> = file.happenings().collect();
    let count = |is: fn(&What) -> bool| happenings.iter().filter(|h| is(&h.what)).count();
    // What a call returned comes with its end, and a task's name takes two records.
    let returned = count(|what| matches!(what, What::Returned(_)));
    let tasks = count(|what| matches!(what, What::TookOver(_) | What::WokenBy(_)));
    assert_eq!((happenings.len() - returned + tasks) as u64, summary.events);
    assert!(returned > 40 && tasks > 0, "{returned} {tasks}");
    for thread in 0..4 {
        let own: Vec<&Happening> = happenings.iter().filter(|h| h.thread == thread).collect();
        assert!(own.is_sorted_by_key(|h| h.time_ns));
        let syscalls = own.iter().filter(|h| matches!(h.what, What::SyscallIn(_))).count();
        assert!(syscalls > 10, "thread {thread} made {syscalls} system calls");
        // On and off the CPU take turns, whichever is first.
        let switches = own.iter().filter_map(|h| match h.what {
            What::SwitchedOut { .. } => Some(false),
            What::SwitchedIn => Some(true),
            _ => None,
        });
        let switches: Vec<bool> = switches.collect();
        assert!(switches.len() > 1);
        assert!(switches.windows(2).all(|pair| pair[0] != pair[1]), "{switches:?}");
        // Every return is of the call before it; a call that never returns (exit) has none.
        let mut open = None;
        for happening in own {
            match happening.what {
                What::SyscallIn(number) => open = Some(number),
                What::SyscallOut(number) => {
                    if let Some(entered) = open.take() {
                        assert_eq!(entered, number);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Memory that no program has touched: the first touch of each page is a fault, as the process's own account says.
#[test]
fn page_faults_have_a_begin_and_an_end() {
    const PAGES: u64 = 3_000;
    let _alone = alone();
    let folder = Folder::new();
    let account = folder.0.join("account");
    let script = format!(
        "import mmap, resource\n\
         memory = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE)\n\
         for page in range({PAGES}): memory[page * mmap.PAGESIZE] = 1\n\
         used = resource.getrusage(resource.RUSAGE_SELF)\n\
         cpu_ns = int((used.ru_utime + used.ru_stime) * 1e9)\n\
         print(used.ru_minflt + used.ru_majflt, cpu_ns, file=open('{}', 'w'))",
        account.display()
    );
    let plan = plan(&["python3", "-c", &script], &folder, With::Nothing, true);
    let Some(recorded) = recorded(&plan, &Urgency::new()) else { return };
    assert_eq!(recorded.ended.code, Some(0));
    let summary = recorded.kernel.unwrap();
    if let Some(why) = summary.without_faults {
        return skipped(why);
    }
    let account = fs::read_to_string(account).unwrap();
    let mut account = account.split_whitespace().map(|word| word.parse::<u64>().unwrap());
    let (faults, cpu_ns) = (account.next().unwrap(), account.next().unwrap());

    let bytes = fs::read(&summary.path).unwrap();
    let file = TraceFile::open(&bytes).unwrap();
    // What is called python3 may be a script that starts it: by thread, the begin of the open fault, faults, and
    // their time.
    let mut threads: BTreeMap<_, (Option<u64>, u64, u64)> = BTreeMap::new();
    for happening in file.happenings() {
        let (began_ns, times, in_faults_ns) = threads.entry(happening.thread).or_default();
        match happening.what {
            What::InterruptIn(PAGE_FAULT) => {
                assert_eq!(began_ns.replace(happening.time_ns), None, "a fault in a fault");
            }
            What::InterruptOut(PAGE_FAULT) => {
                let began_ns = began_ns.take().expect("a fault that ends has begun");
                *in_faults_ns += happening.time_ns - began_ns;
                *times += 1;
            }
            _ => {}
        }
    }
    let most = threads.values().max_by_key(|(_, times, _)| *times).expect("there is a thread");
    let (_, times, in_faults_ns) = *most;
    // Those of the kernel's own code are in the account and not in the trace; those of the interpreter's end the
    // reverse.
    assert!((PAGES..faults + 1_000).contains(&times), "{times} of {faults} faults");
    assert!(in_faults_ns > 0 && in_faults_ns < cpu_ns + 100_000_000, "{in_faults_ns} {cpu_ns}");
}

#[test]
fn no_other_process_is_in_the_kernels_trace() {
    let _alone = alone();
    let folder = Folder::new();
    let plan = plan(&["sleep", "0.05"], &folder, With::Nothing, true);
    let Some(recorded) = recorded(&plan, &Urgency::new()) else { return };
    let bytes = fs::read(recorded.kernel.unwrap().path).unwrap();
    let file = TraceFile::open(&bytes).unwrap();
    let [thread] = file.threads() else { panic!("{:?}", file.threads()) };
    assert!(thread.pid == thread.tid && thread.pid != process::id());
}

#[test]
fn a_folder_with_something_in_it_is_refused() {
    let folder = Folder::new();
    fs::create_dir(folder.out()).unwrap();
    fs::write(folder.out().join("kernel.lwt"), b"").unwrap();
    let error = record(&plan(&["true"], &folder, With::Nothing, false), &Urgency::new());
    assert!(matches!(error, Err(RecordError::Taken { .. })), "{error:?}");
}

#[test]
fn a_command_that_is_asked_to_end_ends_and_its_trace_is_whole() {
    let _alone = alone();
    let folder = Folder::new();
    let urgency = Urgency::new();
    urgency.rise();
    // Tests in the background of a script ignore interrupts, and so would the command.
    let command = ["env", "--default-signal=INT", "sleep", "600"];
    let plan = plan(&command, &folder, With::Nothing, true);
    let Some(recorded) = recorded(&plan, &urgency) else { return };
    let Ended { signal, interrupted, .. } = recorded.ended;
    assert_eq!((signal, interrupted), (Some(2), true));
    let bytes = fs::read(recorded.kernel.unwrap().path).unwrap();
    let file = TraceFile::open(&bytes).unwrap();
    assert_eq!(file.damage(), []);
    // The kernel turns a signal that ends a process into the one that cannot be refused.
    assert!(file.happenings().any(|h| h.what == What::Signal(9)));
}

/// Calls `inner` a thousand times from `outer`; if given a file, makes it then and stays.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
static volatile int sum;
__attribute__((noinline)) void inner(int i) { sum += i; }
__attribute__((noinline)) void outer(void) { for (int i = 0; i < 1000; i++) inner(i); }
int main(int argc, char **argv)
{
    outer();
    if (argc > 1) {
        fclose(fopen(argv[1], "w"));
        for (;;)
            pause();
    }
    return 0;
}
"#;

/// An instrumented program, or nothing (with a message) without a compiler.
fn instrumented(folder: &Folder) -> Option<PathBuf> {
    let source = folder.0.join("program.c");
    let program = folder.0.join("program");
    fs::write(&source, PROGRAM).unwrap();
    let compiled = Command::new("cc")
        .args(["-O1", "-g", "-finstrument-functions", "-o"])
        .args([&program, &source])
        .status();
    match compiled {
        Ok(status) if status.success() => Some(program),
        Ok(status) => panic!("cc: {status}"),
        Err(error) => {
            skipped(format!("no C compiler (apt-get install gcc): {error}"));
            None
        }
    }
}

/// Events by name, as babeltrace2 counts them.
fn events_by_name(folder: &Path) -> Option<BTreeMap<String, u64>> {
    let output = match Command::new("babeltrace2").arg(folder).output() {
        Ok(output) => output,
        Err(error) => {
            skipped(format!("no babeltrace2 (apt-get install babeltrace2): {error}"));
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut events = BTreeMap::new();
    for word in text.split_whitespace() {
        if let Some(name) = word.strip_suffix(':').filter(|word| word.starts_with("lttng_ust")) {
            *events.entry(name.to_owned()).or_default() += 1;
        }
    }
    Some(events)
}

/// Processes of LTTng.
fn lttng_processes() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        // A daemon that has ended and that its parent has not waited for yet is no leftover.
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let zombie = stat.rsplit(')').next()?.trim_start().starts_with('Z');
        (name.starts_with("lttng") && !zombie).then(|| name.trim().to_owned())
    });
    names.collect()
}

/// Processes of LTTng, and whether its daemon's folder is there.
fn lttng_now() -> (Vec<String>, bool) {
    (lttng_processes(), Path::new("/var/run/lttng").exists())
}

/// Whatever was there before is there again, nothing else.
fn assert_nothing_left(before: &(Vec<String>, bool)) {
    let began = Instant::now();
    while lttng_now() != *before && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(lttng_now(), *before);
    let prefix = format!("laneway-lttng-{}-", process::id());
    let left = fs::read_dir(env::temp_dir()).unwrap().flatten();
    let left: Vec<_> =
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn every_call_of_an_instrumented_program_is_recorded() {
    let _alone = alone();
    for (profile, event) in
        [(Profile::Verbose, "lttng_ust_cyg_profile"), (Profile::Fast, "lttng_ust_cyg_profile_fast")]
    {
        let before = lttng_now();
        let folder = Folder::new();
        let Some(program) = instrumented(&folder) else { return };
        let options = LttngOptions { profile, full: Full::Block, ..LttngOptions::default() };
        let program = program.to_str().unwrap();
        let plan = plan(&[program], &folder, With::Lttng(options), false);
        let Some(recorded) = recorded(&plan, &Urgency::new()) else { return };
        assert_eq!(recorded.ended.code, Some(0));
        let summary = recorded.lttng.unwrap();
        assert!(summary.warnings.is_empty() && summary.bytes > 0, "{summary:?}");
        assert_nothing_left(&before);
        let Some(events) = events_by_name(&summary.path) else { return };
        // main, outer, and inner a thousand times.
        assert_eq!(events[&format!("{event}:func_entry")], 1002, "{events:?}");
        assert_eq!(events[&format!("{event}:func_exit")], 1002, "{events:?}");
        assert!(events.keys().any(|name| name.starts_with("lttng_ust_statedump")), "{events:?}");
    }
}

#[test]
fn an_interrupted_recording_leaves_a_trace_and_nothing_else() {
    let _alone = alone();
    let before = lttng_now();
    let folder = Folder::new();
    let Some(program) = instrumented(&folder) else { return };
    let urgency = Urgency::new();
    let ready = folder.0.join("ready");
    let interrupt = thread::spawn({
        let (urgency, ready) = (urgency.clone(), ready.clone());
        move || {
            let began = Instant::now();
            while !ready.exists() && began.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(10));
            }
            urgency.rise();
        }
    });
    let command = [program.to_str().unwrap(), ready.to_str().unwrap()];
    let plan = plan(&command, &folder, With::Lttng(LttngOptions::default()), false);
    let recorded = recorded(&plan, &urgency);
    fs::write(&ready, b"").unwrap(); // ends the thread where nothing was recorded
    interrupt.join().unwrap();
    let Some(recorded) = recorded else { return };
    assert!(recorded.ended.interrupted);
    assert_nothing_left(&before);
    let Some(events) = events_by_name(&recorded.lttng.unwrap().path) else { return };
    assert_eq!(events["lttng_ust_cyg_profile:func_entry"], 1002, "{events:?}");
}

#[test]
fn a_recording_that_fails_leaves_nothing_of_lttng() {
    let _alone = alone();
    let before = lttng_now();
    let folder = Folder::new();
    let command = ["/laneway-no-such-program"];
    let plan = plan(&command, &folder, With::Lttng(LttngOptions::default()), false);
    match record(&plan, &Urgency::new()) {
        Err(error @ RecordError::Missing { .. }) => skipped(error),
        Err(RecordError::Command { command, .. }) => assert!(command.contains("no-such-program")),
        other => panic!("{other:?}"),
    }
    assert_nothing_left(&before);
}
