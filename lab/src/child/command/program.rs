//! A foreign program, started so that nothing of it can stay, however it or we end.
//!
//! ```text
//!   this process ── unshare ──┤ PID namespace: sh (its first process) ── the program ── all that it starts
//!        └── dies? the kernel kills unshare, so sh, so every process of the namespace
//! ```
//!
//! The program has a session of its own and no terminal, nothing on standard input, its output read by us, the
//! namespaces and the CPU of the thread that starts it, and the user's environment. It is not the first process of
//! its PID namespace, which signals would not end. Assumes root, `sh`, and `setpriv`, `unshare` and `setsid`
//! (util-linux). The thread that starts it must outlive it: the kernel takes that thread for its parent.

use super::output::{Lines, Output};
use laneway_engine::starting_on;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::sched_getaffinity;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the first process of the namespace does: it runs the program in the foreground, says how that ended in a line
/// that only we know, and keeps what the program left behind until its own input ends.
const FIRST: &str = r#""$@" </dev/null
printf '\n%s%d\n' "$0" "$?"
read -r _"#;
/// How it comes to be the first.
const ROOM: [&str; 12] = [
    "--pdeathsig",
    "KILL",
    "--",
    "unshare",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
    "--",
    "setsid",
    "sh",
    "-c",
];
/// How long it may take to end once it is asked to.
const END_MAX: Duration = Duration::from_millis(800);
const LOOK: Duration = Duration::from_millis(5);
/// What a shell adds to the number of a signal that ended a program.
const BY_SIGNAL: i32 = 128;
/// Processes that are named in a sentence.
const NAMED_MAX: usize = 3;

/// The running program; it and all that it started are ended when this is dropped.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    /// The input of the first process.
    input: Option<ChildStdin>,
    pub(super) output: Output,
}

impl Program {
    /// Starts `words` on the CPUs of the calling thread. What it prints is read on `readers`, for counters if it
    /// `has_counters`.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn start(
        words: &[String],
        has_counters: bool,
        readers: &[usize],
    ) -> Result<Program, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = format!("laneway {}.{}: ", std::process::id(), now.as_nanos());
        let mut child = Command::new("setpriv")
            .args(ROOM)
            .args([FIRST, &mark])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start setpriv (package util-linux): {error}"))?;
        let (input, printed, complained) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let program = Program { child, input, output: Output::default() };
        let read = || {
            let lines = Lines { mark, has_counters };
            printed.map_or(Ok(()), |from| program.output.read(from, Some(lines)))?;
            complained.map_or(Ok(()), |from| program.output.read(from, None))
        };
        let started = starting_on(readers, read).map_err(|error| error.to_string())?;
        started.map_err(|error| format!("cannot start a thread: {error}; see `ulimit -u`"))?;
        Ok(program)
    }

    /// Every process whose time is its own, those that carry it included.
    pub(super) fn processes(&self) -> Vec<u32> {
        let mut processes = vec![self.child.id()];
        processes.extend(self.inside());
        processes
    }

    /// Its own processes, without those that carry it.
    pub(super) fn own(&self) -> Vec<u32> {
        let first = self.first();
        self.inside().into_iter().filter(|id| Some(*id) != first).collect()
    }

    /// Whether each of its threads may run on `cpu` and nowhere else: what it used elsewhere would be booked as its
    /// CPU time, and be faster than any arm that is kept.
    ///
    /// # Errors
    /// A sentence on the first that may.
    pub(super) fn check_cpu(&self, cpu: usize) -> Result<(), String> {
        for process in self.own() {
            let threads = fs::read_dir(format!("/proc/{process}/task"));
            let threads = threads.into_iter().flatten().flatten();
            for id in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
                // One that has ended runs nowhere.
                let Ok(cpus) = sched_getaffinity(Pid::from_raw(id)) else { continue };
                let is_kept = cpus.is_set(cpu) && cpus.count() == 1;
                if !is_kept && !is_io_worker(process, id) {
                    return Err(strayed(process, id, cpu));
                }
            }
        }
        Ok(())
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// A sentence on how it ended.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let how = match (self.output.status(), self.child.try_wait()) {
            (None, Ok(None)) => return Ok(()),
            (Some(0), _) => self.left(),
            (Some(status), _) if status > BY_SIGNAL => {
                format!("it was killed by signal {}", status - BY_SIGNAL)
            }
            (Some(status), _) => format!("it ended with exit status {status}"),
            (None, Ok(Some(status))) => {
                format!("it was ended with what it ran in ({status})")
            }
            (None, Err(error)) => format!("its exit status is not known ({error})"),
        };
        Err(format!("{how}; {}", self.output.last_words()))
    }

    /// What to say of one that ended well.
    fn left(&self) -> String {
        let behind = self.own();
        if behind.is_empty() {
            return "it ended by itself (exit status 0), and an arm runs until it is asked to end"
                .to_owned();
        }
        let name = |id: &u32| fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        let names: Vec<String> =
            behind.iter().take(NAMED_MAX).map(|id| format!("`{}`", name(id).trim_end())).collect();
        format!(
            "it went into the background, where {} of its processes ran on ({}); have it stay in the foreground, \
             most programs have an option for that",
            behind.len(),
            names.join(", ")
        )
    }

    /// The processes of its PID namespace.
    fn inside(&self) -> Vec<u32> {
        let Some(room) = self.room() else { return Vec::new() };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_inside =
            |id: &u32| fs::read_link(format!("/proc/{id}/ns/pid")).is_ok_and(|of| of == room);
        ids.filter(is_inside).collect()
    }

    /// Its PID namespace; `None` as long as it has none of its own, where every other process would be found.
    fn room(&self) -> Option<PathBuf> {
        let own = fs::read_link("/proc/self/ns/pid").ok()?;
        let its = fs::read_link(format!("/proc/{}/ns/pid_for_children", self.child.id())).ok()?;
        (own != its).then_some(its)
    }

    /// The first process of the namespace; with it everything in there ends.
    fn first(&self) -> Option<u32> {
        self.inside().into_iter().find(|id| {
            let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            ids.and_then(|ids| ids.split_whitespace().last()) == Some("1")
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let first = self.first();
        let others = || self.inside().into_iter().filter(|id| Some(*id) != first);
        for id in others() {
            // One that was stopped hears of it only when it goes on.
            signal(id, Signal::TERM);
            signal(id, Signal::CONT);
        }
        let until = Instant::now() + END_MAX;
        while first.is_some() && others().next().is_some() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        self.input = None;
        match first {
            Some(id) => signal(id, Signal::KILL),
            // It can only fail if it has ended.
            None => drop(self.child.kill()),
        }
        // The first process is gone when all others are, and its parent ends behind it.
        let _ = self.child.wait();
    }
}

/// Whether a thread is the kernel's, for requests of io_uring that block. No mask of its program's reaches it (io-wq
/// gives it all CPUs, IORING_REGISTER_IOWQ_AFF aside), and to refuse it would keep such programs out.
fn is_io_worker(process: u32, thread: i32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
    name.is_ok_and(|name| name.starts_with("iou-wrk-"))
}

/// What to say of a thread that is not kept on `cpu`.
fn strayed(process: u32, thread: i32, cpu: usize) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status"));
    let status = status.unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("?", str::trim).to_owned()
    };
    format!(
        "its thread `{}` ({thread}) may run on CPUs {}, and an arm is kept on its own, CPU {cpu} (`{{cpu}}`); start it \
         without `taskset`, and without an option that pins its threads",
        value("Name:"),
        value("Cpus_allowed_list:")
    )
}

/// It may have ended meanwhile.
fn signal(id: u32, signal: Signal) {
    if let Some(id) = Pid::from_raw(id.cast_signed()) {
        let _ = kill_process(id, signal);
    }
}
