//! A race's end of the conversation with a child process.

use crate::disk;
use crate::error::RaceError;
use crate::leftovers::Leftovers;
use crate::meter::{Meter, Owner};
use crate::plan::{CHILD_END_MAX, Order, Ready, Reply};
use laneway_netns::Namespace;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How long a child may take to set itself up: to load a program and open a lane, or to set a million keys of a store.
const SETUP_MAX: Duration = Duration::from_secs(120);
/// Times that the processes of a child are named anew until all of them are stopped.
const STOPS_MAX: usize = 16;
/// Looks at processes that are to stop: one that waits for a disk does so later.
const STOP_LOOKS_MAX: usize = 400;
/// Between two of them.
const STOP_LOOK: Duration = Duration::from_micros(500);

/// A child; it is ended when this is dropped.
pub(crate) struct ChildProcess {
    what: String,
    child: Child,
    orders: Option<ChildStdin>,
    replies: Receiver<Reply>,
    /// What it obtained.
    pub(crate) ready: Ready,
    /// Declared last: what it leaves is removed when it has ended.
    leftovers: Option<Leftovers>,
}

impl ChildProcess {
    /// Starts this very program with the verb `verb` inside `namespace`, tells it what to be, and
    /// waits until it is.
    pub(crate) fn start(
        what: String,
        verb: &str,
        namespace: &Namespace,
        setup: &impl Serialize,
    ) -> Result<ChildProcess, RaceError> {
        let program = std::env::current_exe()
            .map_err(|error| RaceError::Child { what: what.clone(), why: error.to_string() })?;
        let mut command = Command::new(program);
        command.arg(verb);
        ChildProcess::start_command(what, command, namespace, setup)
    }

    /// The same of any program that talks as one of ours does.
    pub(crate) fn start_command(
        what: String,
        mut command: Command,
        namespace: &Namespace,
        setup: &impl Serialize,
    ) -> Result<ChildProcess, RaceError> {
        let failed = |why: String| RaceError::Child { what: what.clone(), why };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A child stays in the namespaces of the thread that starts it.
        let child = namespace.enter(|| command.spawn())?;
        let mut child = child.map_err(|e| failed(e.to_string()))?;
        let orders = child.stdin.take();
        let output = child.stdout.take();
        let (send, replies) = mpsc::channel();
        // Ends with the child's output.
        thread::spawn(move || {
            for line in BufReader::new(output.expect("it was asked for")).lines() {
                let Some(reply) = line.ok().and_then(|line| serde_json::from_str(&line).ok())
                else {
                    return;
                };
                if send.send(reply).is_err() {
                    return;
                }
            }
        });
        let mut child_process =
            ChildProcess { what, child, orders, replies, ready: Ready::default(), leftovers: None };
        child_process.write(setup)?;
        match child_process.reply(SETUP_MAX)? {
            Reply::Ready(ready) => child_process.ready = ready,
            _ => return Err(child_process.failed("it answered out of turn")),
        }
        Ok(child_process)
    }

    /// Has what it leaves in its namespace removed when it has ended.
    pub(crate) fn remove(&mut self, leftovers: Leftovers) {
        self.leftovers = Some(leftovers);
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops every process of it where it stands, or has them go on: its own, and those that `meter` books as
    /// `owner`'s, which is asked again until it names no more: those that were started later, in sessions of their own,
    /// are known to the meter alone. A worker that polls takes no CPU from others while it is parked, and nothing of
    /// the arm's own code takes part in it, so ours and other programs are parked alike.
    ///
    /// What its kernel half does goes on: a parked arm is sent nothing.
    pub(crate) fn park(
        &self,
        is_parked: bool,
        meter: &Meter,
        owner: Owner,
    ) -> Result<(), RaceError> {
        self.signal(if is_parked { Signal::STOP } else { Signal::CONT })?;
        let processes = || meter.processes(owner);
        match is_parked {
            true => stop_all(processes)?,
            false => processes()?.into_iter().for_each(|process| send(process, Signal::CONT)),
        }
        Ok(())
    }

    /// Sends this to its group.
    fn signal(&self, signal: Signal) -> Result<(), RaceError> {
        let Some(group) = Pid::from_raw(self.pid().cast_signed()) else { return Ok(()) };
        kill_process_group(group, signal)
            .map_err(|error| self.failed(&format!("cannot be parked: {error}")))
    }

    pub(crate) fn order(&mut self, order: &Order) -> Result<(), RaceError> {
        self.write(order)
    }

    /// The next reply; a child that failed, ended or says nothing for `patience` is an error.
    pub(crate) fn reply(&mut self, patience: Duration) -> Result<Reply, RaceError> {
        match self.replies.recv_timeout(patience) {
            Ok(Reply::Failed(why)) => Err(self.failed(&why)),
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => {
                Err(self.failed(&format!("no answer within {} s", patience.as_secs())))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
                Err(self.failed(&format!("it ended early ({status})")))
            }
        }
    }

    fn write(&mut self, message: &impl Serialize) -> Result<(), RaceError> {
        let mut line = serde_json::to_string(message).expect("orders are plain data");
        line.push('\n');
        let written = match &mut self.orders {
            Some(orders) => orders.write_all(line.as_bytes()).and_then(|()| orders.flush()),
            None => Ok(()),
        };
        match written {
            Ok(()) => Ok(()),
            // It has ended; its last words say why.
            Err(_) => match self.reply(CHILD_END_MAX) {
                Err(error) => Err(error),
                Ok(_) => Err(self.failed("it ended early")),
            },
        }
    }

    pub(crate) fn failed(&self, why: &str) -> RaceError {
        RaceError::Child { what: self.what.clone(), why: why.to_owned() }
    }
}

/// Stops all that `processes` names. What one of them starts before it stands is named the next time, and once all
/// stand none starts another.
fn stop_all<E>(mut processes: impl FnMut() -> Result<Vec<u32>, E>) -> Result<(), E> {
    let mut stopped = BTreeSet::new();
    for _ in 0..STOPS_MAX {
        let more: Vec<u32> =
            processes()?.into_iter().filter(|process| stopped.insert(*process)).collect();
        if more.is_empty() {
            break;
        }
        more.iter().for_each(|process| send(*process, Signal::STOP));
        // One that is about to fork when it is sent the signal forks, and stops then.
        for _ in 0..STOP_LOOKS_MAX {
            if more.iter().all(|process| stands(*process)) {
                break;
            }
            thread::sleep(STOP_LOOK);
        }
    }
    Ok(())
}

/// Whether each of its threads is stopped or has ended: proc_pid_stat(5).
fn stands(process: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // In front of the state is a name, which may have brackets.
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 't', 'Z', 'X']))
    })
}

/// One that has ended is missed where it is needed.
fn send(process: u32, signal: Signal) {
    if let Some(process) = Pid::from_raw(process.cast_signed()) {
        let _ = kill_process(process, signal);
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // One that is parked would not hear.
        let _ = self.signal(Signal::CONT);
        // The end of its input tells it to end.
        self.orders = None;
        for _ in 0..CHILD_END_MAX.as_millis() / 5 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // It does not listen; both calls can only fail if it has ended meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // It could not do that itself any more.
        disk::remove_of(self.pid());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_engine::pin_to_cpu;
    use laneway_netns::can_create;
    use laneway_testkit::skip;
    use std::convert::Infallible;
    use std::path::PathBuf;

    /// As does the keeper of a program that takes too long to end.
    #[test]
    fn a_child_that_does_not_end_leaves_no_folder() {
        if can_create().map_err(skip).is_err() {
            return;
        }
        let namespace = Namespace::create("keeper").unwrap();
        let ready = serde_json::to_string(&Reply::Ready(Ready::default())).unwrap();
        let script = "read setup; mkdir /var/tmp/laneway-arm-$$-0 && echo \"$0\"; exec sleep 60";
        let mut keeper = Command::new("sh");
        keeper.args(["-c", script, &ready]);
        let keeper =
            ChildProcess::start_command("a keeper".to_owned(), keeper, &namespace, &()).unwrap();
        let folder = PathBuf::from(format!("/var/tmp/laneway-arm-{}-0", keeper.pid()));
        assert!(folder.exists());
        drop(keeper);
        assert!(!folder.exists());
    }

    /// What `show` prints of the namespace in which a keeper, whose script this is, has ended.
    fn left_behind(script: &str, show: &str) -> Option<String> {
        can_create().map_err(skip).ok()?;
        let namespace = Namespace::create("keeper").unwrap();
        let cable = "ip link add sut0 type veth peer name sut1 && ip link set dev sut0 up";
        let run = |script: &str| Command::new("sh").args(["-c", script]).output().unwrap();
        assert!(namespace.enter(|| run(cable)).unwrap().status.success());
        let leftovers = Leftovers::of(&namespace).unwrap();
        let ready = serde_json::to_string(&Reply::Ready(Ready::default())).unwrap();
        let mut keeper = Command::new("sh");
        keeper.args(["-c", script, &ready]);
        let mut keeper =
            ChildProcess::start_command("a keeper".to_owned(), keeper, &namespace, &()).unwrap();
        keeper.remove(leftovers);
        let shown = || String::from_utf8(namespace.enter(|| run(show)).unwrap().stdout).unwrap();
        let there = shown();
        assert!(!there.is_empty());
        drop(keeper);
        Some(shown())
    }

    #[test]
    fn what_an_arm_leaves_on_its_interface_is_gone_behind_it() {
        let script = "read setup; tc qdisc add dev sut0 clsact; ip address add 10.9.9.9/24 dev sut0; echo \"$0\"; read stop";
        let show = "ip address show dev sut0 | grep 10.9.9.9; tc qdisc show dev sut0 | grep clsact";
        let Some(left) = left_behind(script, show) else { return };
        assert_eq!(left, "");
    }

    /// As a keeper does whose program takes too long to end.
    #[test]
    fn a_keeper_that_is_killed_leaves_its_address_to_the_next() {
        let script = "read setup; ip address add 10.77.0.3/32 dev sut0; echo \"$0\"; exec sleep 60";
        let Some(left) = left_behind(script, "ip address show dev sut0 | grep 10.77.0.3") else {
            return;
        };
        assert_eq!(left, "");
    }

    /// Beside this thread on one CPU it does not stop at once.
    #[test]
    fn what_a_process_started_is_asked_when_it_stands() {
        pin_to_cpu(0).unwrap();
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut stood = Vec::new();
        let named = || {
            stood.push(stands(busy.id()));
            Ok::<_, Infallible>(vec![busy.id()])
        };
        stop_all(named).unwrap();
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert_eq!(stood, [false, true]);
    }
}
