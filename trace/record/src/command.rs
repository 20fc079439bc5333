//! The command that is recorded: started, watched, asked to end.

use crate::RecordError;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsString,
    fs,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How often the command and the wish to end it are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// After Ctrl-C a terminal has sent the signal to the command as well; if the command has not ended after
/// this long, the signal was sent to this process alone. A program that gets the signal twice often ends without
/// finishing.
const TERMINAL_GRACE: Duration = Duration::from_millis(1500);

/// How urgently the command is to end. Clones are the same wish.
#[derive(Clone, Debug, Default)]
pub struct Urgency(Arc<AtomicU8>);

impl Urgency {
    /// No end is requested.
    pub fn new() -> Urgency {
        Urgency::default()
    }

    /// One more call to end it: first it is interrupted, then terminated, then killed. A command that ignores
    /// interrupts, as any that a script starts in the background does (POSIX XCU 2.11), is terminated at the first.
    pub fn rise(&self) {
        // Relaxed, here and below: the number carries nothing else. It need not pass the last stage.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(1));
    }

    fn level(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// How long it ran.
    pub lasted: Duration,
    /// It was asked to end.
    pub interrupted: bool,
}

/// Runs `command` to its end, or until it is asked to end.
pub(crate) fn run(
    command: &[OsString],
    environment: &[(&str, OsString)],
    urgency: &Urgency,
) -> Result<Ended, RecordError> {
    let (program, arguments) = command.split_first().ok_or(RecordError::NoCommand)?;
    let mut builder = Command::new(program);
    builder.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
    let started = Instant::now();
    let mut child = Guarded(builder.spawn().map_err(|source| RecordError::Command {
        command: program.to_string_lossy().into_owned(),
        source,
    })?);
    let status = child.wait(urgency)?;
    Ok(Ended {
        code: status.code(),
        signal: status.signal(),
        lasted: started.elapsed(),
        interrupted: urgency.level() > 0,
    })
}

/// A child that does not outlive its recording.
struct Guarded(Child);

impl Guarded {
    fn wait(&mut self, urgency: &Urgency) -> Result<ExitStatus, RecordError> {
        let mut asked_at: Option<Instant> = None;
        let mut sent_level = 0;
        loop {
            let ended = self.0.try_wait().map_err(|source| RecordError::Command {
                command: format!("process {}", self.0.id()),
                source,
            })?;
            if let Some(status) = ended {
                return Ok(status);
            }
            let level = urgency.level();
            if level > 0 {
                let asked_at = *asked_at.get_or_insert_with(Instant::now);
                if level > sent_level && (level > 1 || asked_at.elapsed() >= TERMINAL_GRACE) {
                    self.send(match level {
                        1 if !ignores(self.0.id(), Signal::INT) => Signal::INT,
                        1 | 2 => Signal::TERM,
                        _ => Signal::KILL,
                    });
                    sent_level = level;
                }
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    fn send(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It has just ended, or the next call sends it another signal.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Whether a process ignores a signal; no if that is unknown.
fn ignores(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Both fail on a child that has been waited for, which is the usual case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_end_of_a_command_is_reported_as_it_was() {
        let run = |script: &str| run(&words(&["sh", "-c", script]), &[], &Urgency::new()).unwrap();
        assert_eq!((run("exit 3").code, run("exit 3").signal), (Some(3), None));
        assert_eq!((run("kill -9 $$").code, run("kill -9 $$").signal), (None, Some(9)));
        assert!(!run("true").interrupted);
    }

    #[test]
    fn the_environment_reaches_the_command() {
        let environment = [("LANEWAY_WORD", OsString::from("word"))];
        let command = words(&["sh", "-c", "test \"$LANEWAY_WORD\" = word"]);
        assert_eq!(run(&command, &environment, &Urgency::new()).unwrap().code, Some(0));
    }

    #[test]
    fn a_command_that_ignores_interrupts_is_terminated_at_the_first_call() {
        let urgency = Urgency::new();
        urgency.rise();
        let command = words(&["env", "--ignore-signal=INT", "sleep", "600"]);
        assert_eq!(run(&command, &[], &urgency).unwrap().signal, Some(15));
    }

    #[test]
    fn a_command_that_does_not_listen_is_killed_at_the_third_call() {
        let urgency = Urgency::new();
        (0..3).for_each(|_| urgency.rise());
        let command = words(&["sh", "-c", "trap '' INT TERM; while :; do sleep 0.1; done"]);
        let ended = run(&command, &[], &urgency).unwrap();
        assert_eq!((ended.signal, ended.interrupted), (Some(9), true));
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let error = run(&words(&["laneway-no-such-program"]), &[], &Urgency::new()).unwrap_err();
        assert!(error.to_string().contains("laneway-no-such-program"), "{error}");
        assert!(matches!(run(&[], &[], &Urgency::new()), Err(RecordError::NoCommand)));
    }
}
