//! What the scheduler knows of a program's threads, read from `/proc` while it runs.
//!
//! `/proc/PID/task/TID/schedstat` has the time on the CPU and the time in the queue for it, to the nanosecond, but ends
//! with its thread: so it is read every [`EVERY`], and the last reading counts.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two readings: by so much at most the last one is too early.
const EVERY: Duration = Duration::from_millis(10);
/// Most generations of children that are followed: `trace record` starts the program, `nsenter` nothing.
const GENERATIONS_MAX: usize = 4;

/// A thread, as last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    /// Its name.
    pub(crate) name: String,
    /// On the CPU, ns.
    pub(crate) ran_ns: u64,
    /// Ready, and another thread had the CPU, ns.
    pub(crate) delayed_ns: u64,
}

/// Reads until it is asked for what it read.
#[derive(Debug)]
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<BTreeMap<u32, Task>>,
}

impl Watch {
    /// Watches all threads of process `pid` and of its children; `children_only` where `pid` is their recorder.
    #[must_use]
    pub(crate) fn begin(pid: u32, children_only: bool) -> Watch {
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = Arc::clone(&over);
            move || {
                let mut tasks = BTreeMap::new();
                // Relaxed: nothing but the flag itself is handed over.
                while !over.load(Ordering::Relaxed) {
                    look(pid, &mut tasks, children_only, 0);
                    thread::sleep(EVERY);
                }
                tasks
            }
        });
        Watch { over, thread }
    }

    /// Every thread that was seen, by its number.
    #[must_use]
    pub(crate) fn end(self) -> BTreeMap<u32, Task> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn look(pid: u32, tasks: &mut BTreeMap<u32, Task>, children_only: bool, generation: usize) {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
        if let Some(task) = task(&read("comm"), &read("schedstat"))
            && !children_only
        {
            tasks.insert(tid, task);
        }
        if generation < GENERATIONS_MAX {
            for child in read("children").split_whitespace().filter_map(|word| word.parse().ok()) {
                look(child, tasks, false, generation + 1);
            }
        }
    }
}

fn task(name: &str, schedstat: &str) -> Option<Task> {
    let mut numbers = schedstat.split_whitespace().map(str::parse);
    let (ran_ns, delayed_ns) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Task { name: name.trim().to_owned(), ran_ns, delayed_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    #[test]
    fn a_line_of_schedstat_is_two_times_and_a_count() {
        let read = task("worker-0\n", "120 7 3\n");
        assert_eq!(read, Some(Task { name: "worker-0".to_owned(), ran_ns: 120, delayed_ns: 7 }));
        assert_eq!(task("x", ""), None);
        assert_eq!(task("x", "a b c"), None);
    }

    #[test]
    fn own_threads_are_seen_and_a_process_that_is_gone_has_none() {
        let mut tasks = BTreeMap::new();
        look(process::id(), &mut tasks, false, GENERATIONS_MAX);
        assert!(tasks.contains_key(&process::id()), "{tasks:?}");
        let mut none = BTreeMap::new();
        look(u32::MAX, &mut none, false, 0);
        assert!(none.is_empty());
    }
}
