//! A child's end of the conversation, and of its life: see [`watch`].

use crate::plan::{Order, Reply};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal, setsid};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Write};
use std::thread;
use std::time::Duration;

/// Longest line taken, bytes: an order is a few hundred.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// Reads one line; `None` when the other end is gone or does not speak our language.
fn read_line<T: DeserializeOwned>() -> Option<T> {
    let mut line = String::new();
    let mut input = io::Read::take(io::stdin().lock(), LINE_BYTES_MAX);
    match input.read_line(&mut line) {
        Ok(n) if n > 0 => serde_json::from_str(&line).ok(),
        _ => None,
    }
}

/// How long a child may take to end once its parent is gone: to finish a poll, to detach, to end a program of its own.
/// Longer than a parent that lives waits before it kills ([`CHILD_END_MAX`](crate::plan::CHILD_END_MAX)), so that this
/// changes nothing in a race that is well.
const END_MAX: Duration = Duration::from_secs(5);

/// Has this process end soon after its parent, busy or not: within a long segment nothing reads standard input, and a
/// lane may be stuck in the kernel. What it started in turn goes with it (`setpriv --pdeathsig`).
fn watch() -> io::Result<()> {
    let watch = || {
        let stdin = io::stdin();
        // Nothing is asked for, so only the end of the last writer is reported, whatever is still to be read.
        while poll(&mut [PollFd::new(&stdin, PollFlags::empty())], None)
            .is_err_and(|error| error == rustix::io::Errno::INTR)
        {}
        thread::sleep(END_MAX);
        // No exit handlers: those of a foreign library may wait for the threads that are stuck.
        let _ = kill_process(getpid(), Signal::KILL);
    };
    thread::Builder::new().name("parent-watch".to_owned()).spawn(watch).map(drop)
}

/// The first line. From here on the process does not outlive its parent.
pub(super) fn setup<T: DeserializeOwned>() -> Result<T, String> {
    // A session of its own: it is parked with whatever it starts, and its priority is its own where the kernel gives
    // each session its share (sched_autogroup). It is no leader yet, so this cannot fail.
    setsid().map_err(|e| e.to_string())?;
    // A parked child would not see the end of its parent.
    set_parent_process_death_signal(Some(Signal::CONT)).map_err(|e| e.to_string())?;
    watch().map_err(|e| format!("cannot start a thread: {e}; see `ulimit -u`"))?;
    read_line().ok_or_else(|| {
        "this verb is the inside of `laneway race`, which tells it on standard input what to be; \
         run `laneway race features`"
            .to_owned()
    })
}

/// The next order; `Stop` when there are no more.
pub(super) fn order() -> Order {
    read_line().unwrap_or(Order::Stop)
}

/// Answers. A parent that no longer listens is noticed at the next order.
pub(super) fn reply(reply: &Reply) {
    let mut line = serde_json::to_string(reply).expect("replies are plain data");
    line.push('\n');
    let mut out = io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
