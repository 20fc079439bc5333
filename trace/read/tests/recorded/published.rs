//! Traces that others publish, against babeltrace2 and against themselves.
//!
//! Looked for below `LANEWAY_TRACES`: `babeltrace/` is the folder `tests/data/ctf-traces/succeed` of
//! github.com/efficios/babeltrace, `tracecompass/` the folder `ctf/src/main/resources` of
//! github.com/eclipse-tracecompass/tracecompass-test-traces, whose `CTF2-7.0-NAME` are babeltrace's `NAME` with
//! metadata of CTF 2.

use std::fs;
use std::path::{Path, PathBuf};

use crate::oracle::{Babeltrace, parts};
use laneway_trace_read::{Consumer, Event, Kind, Loss, Thread, ThreadId, Trace};

/// The folder of that name below `LANEWAY_TRACES`.
fn published(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("LANEWAY_TRACES").map(PathBuf::from);
    let found = root.map(|root| root.join(name)).filter(|path| path.is_dir());
    if found.is_none() {
        println!("skipped: LANEWAY_TRACES holds no folder {name} of published traces");
    }
    found
}

/// Folders with metadata in `root` and below.
fn traces(root: &Path, found: &mut Vec<PathBuf>) {
    if root.join("metadata").is_file() {
        found.push(root.to_path_buf());
        return;
    }
    let entries = fs::read_dir(root).expect("the folder can be read");
    for path in entries.map(|entry| entry.expect("the folder can be read").path()) {
        if path.is_dir() {
            traces(&path, found);
        }
    }
}

fn records(path: &Path) -> Vec<(u64, String, String)> {
    let mut all = Vec::new();
    let trace = Trace::open(path).expect("a trace");
    let keep = &mut |record: &laneway_trace_read::Record<'_>| {
        all.push((record.time_ns, record.name.to_owned(), record.fields.to_owned()));
    };
    trace.records(keep).expect("files can be read");
    all
}

#[test]
fn every_trace_of_babeltrace_is_read_as_babeltrace2_does() {
    let Some(root) = published("babeltrace") else { return };
    let mut found = Vec::new();
    traces(&root, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for path in found {
        println!("{}", path.display());
        // The oracle takes the last word for the name of an event, and prints no time where there is no clock.
        let mut ours: Vec<(u64, String)> =
            records(&path).into_iter().map(|(time_ns, name, _)| (time_ns, name)).collect();
        if ours.iter().any(|(time_ns, name)| *time_ns == 0 || name.contains(' ')) {
            continue;
        }
        // Floating-point numbers are drawn otherwise: moments and names are compared, all of them.
        let Some(mut oracle) = Babeltrace::start(&path) else { return };
        let mut theirs: Vec<(u64, String)> = oracle
            .lines()
            .filter_map(|line| parts(&line).map(|(time_ns, name, _)| (time_ns, name.to_owned())))
            .collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{}", path.display());
    }
}

#[test]
fn a_trace_of_the_second_format_holds_what_its_twin_of_the_first_does() {
    let (Some(first), Some(second)) = (published("babeltrace"), published("tracecompass")) else {
        return;
    };
    let mut compared = 0;
    for entry in fs::read_dir(&second).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().expect("it was listed").to_string_lossy().into_owned();
        let Some(twin) = name.strip_prefix("CTF2-7.0-") else { continue };
        // Its stream was made anew, with another name of a library.
        if twin == "debug-info" {
            continue;
        }
        assert_eq!(records(&path), records(&first.join(twin)), "{twin}");
        compared += 1;
    }
    assert!(compared >= 8, "{compared}");
}

/// Switches and system calls by thread.
#[derive(Default)]
struct Kernel {
    switched_in: u64,
    switched_out: u64,
    interrupts: [i64; 2],
}

impl Consumer for Kernel {
    fn thread(&mut self, _: ThreadId, _: &Thread) {}

    fn events(&mut self, _: ThreadId, _: Option<u32>, events: &[Event]) {
        for event in events {
            match event.kind {
                Kind::SwitchedIn => self.switched_in += 1,
                Kind::SwitchedOut { .. } => self.switched_out += 1,
                Kind::InterruptIn(_) => self.interrupts[0] += 1,
                Kind::InterruptOut(_) => self.interrupts[1] += 1,
                _ => {}
            }
        }
    }

    fn lost(&mut self, _: &Loss, _: &[ThreadId]) {}
}

#[test]
fn switches_of_a_published_kernel_trace_are_all_reported() {
    let Some(root) = published("tracecompass") else { return };
    let path = root.join("bug446190");
    let number = |fields: &str, name: &str| -> u64 {
        let (_, rest) = fields.split_once(&format!("{name} = ")).expect("a field of each switch");
        rest.split([',', ' ']).next().and_then(|text| text.parse().ok()).expect("a number")
    };
    let records = records(&path);
    let switches = records.iter().filter(|record| record.1 == "sched_switch");
    let (mut switched_in, mut switched_out) = (0, 0);
    for (_, _, fields) in switches {
        switched_out += u64::from(number(fields, "prev_tid") != 0);
        switched_in += u64::from(number(fields, "next_tid") != 0);
    }
    let mut kernel = Kernel::default();
    Trace::open(&path).expect("a trace").read(&mut kernel).expect("files can be read");
    assert_eq!((kernel.switched_in, kernel.switched_out), (switched_in, switched_out));
    // Each begins and ends on its CPU, but for those at the ends of the trace and of the idle task.
    let [begun, ended] = kernel.interrupts;
    assert!(begun > 50 && (begun - ended).abs() <= 16, "{begun} {ended}");
}
