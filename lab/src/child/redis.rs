//! `redis-server` (package redis-server) as an arm: started with what it is to keep, seen to answer, and ended here.
//!
//! It has one thread that answers, no snapshots, and a log by its knob: `redis-server` writes none,
//! `redis-server:appendfsync=always` (or `everysec`, or `no`) writes one to a [`Disk`], synced as the word says.

use crate::disk::Disk;
use crate::program_end::end;
use laneway_engine::pin_to_cpu;
use laneway_spec::nearest;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = "redis-server";
/// How long it may take until it answers.
const READY_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// How long a piece of its answer may take, and how much of an answer is read.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: u64 = 1 << 16;
/// Characters of its output that are kept for an error.
const TAIL_CHARS: usize = 400;
/// When its log is synced.
const SYNCS: [&str; 3] = ["always", "everysec", "no"];

/// What is configured beyond its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Knobs {
    /// When its log is synced; none: it has no log.
    appendfsync: Option<&'static str>,
}

impl Knobs {
    /// Reads `redis-server:appendfsync=always`.
    ///
    /// # Errors
    /// What is wrong with it, and what it may be.
    pub(crate) fn read(text: &str) -> Result<Knobs, String> {
        let (program, knobs) = text.split_once(':').unwrap_or((text, ""));
        if program != PROGRAM {
            return Err(format!("write `{PROGRAM}`, or `{PROGRAM}:appendfsync=always`"));
        }
        let mut all = Knobs::default();
        for knob in knobs.split(',').filter(|_| text.contains(':')) {
            match knob.split_once('=') {
                Some(("appendfsync", when)) if all.appendfsync.is_none() => {
                    let known = SYNCS.into_iter().find(|known| *known == when);
                    all.appendfsync = Some(known.ok_or_else(|| {
                        let meant =
                            nearest(when, &SYNCS).map(|it| format!("; did you mean `{it}`?"));
                        format!(
                            "appendfsync is always, everysec or no, not `{when}`{}",
                            meant.unwrap_or_default()
                        )
                    })?);
                }
                _ => return Err(format!("`{knob}`: its one knob is appendfsync=, given once")),
            }
        }
        Ok(all)
    }

    fn arguments(self) -> Vec<&'static str> {
        match self.appendfsync {
            None => vec!["--appendonly", "no"],
            Some(when) => vec!["--appendonly", "yes", "--appendfsync", when],
        }
    }
}

/// The running program; ended when this is dropped, and its files with it.
pub(super) struct RedisServer {
    child: Child,
    /// Declared behind it: it writes there until it ends.
    disk: Disk,
    version: String,
}

impl RedisServer {
    /// Starts it at `address` on `cpu`, and waits until it answers.
    ///
    /// # Errors
    /// A sentence: it is not installed, or it does not start.
    pub(super) fn start(
        knobs: Knobs,
        address: SocketAddrV4,
        cpu: usize,
    ) -> Result<RedisServer, String> {
        let disk = Disk::create()?;
        let (folder, log) = (disk.path().display().to_string(), disk.path().join("log"));
        // Its threads stay where this one is.
        pin_to_cpu(cpu).map_err(|error| error.to_string())?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", PROGRAM])
            .args(["--port", &address.port().to_string(), "--bind", &address.ip().to_string()])
            .args(["--save", "", "--dir", &folder, "--protected-mode", "no"])
            .args(["--daemonize", "no", "--loglevel", "warning", "--logfile"])
            .arg(&log)
            .args(knobs.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start setpriv (package util-linux): {error}"))?;
        let mut program = RedisServer { child, disk, version: String::new() };
        let until = Instant::now() + READY_MAX;
        loop {
            program.check()?;
            match version(address) {
                Ok((version, pid)) if pid == program.pid() => {
                    program.version = version;
                    return Ok(program);
                }
                // Another is there already: this one is about to say so.
                Ok((_, pid)) if Instant::now() > until => {
                    return Err(format!("process {pid} listens on {address}, and not {PROGRAM}"));
                }
                Ok(_) => thread::sleep(LOOK),
                Err(why) if Instant::now() > until => {
                    let seconds = READY_MAX.as_secs();
                    return Err(format!("{PROGRAM} did not answer within {seconds} s: {why}"));
                }
                Err(_) => thread::sleep(LOOK),
            }
        }
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// A sentence with its last words.
    pub(super) fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.last_words()),
        }
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it is, and where it keeps what it receives.
    pub(super) fn facts(&self, knobs: Knobs) -> [(&'static str, String); 2] {
        let disk = match knobs.appendfsync {
            None => "none: it keeps no log".to_owned(),
            Some(_) => self.disk.fact(),
        };
        let version = &self.version;
        [
            ("program", format!("{PROGRAM} {version} {}", knobs.arguments().join(" "))),
            ("disk", disk),
        ]
    }

    fn last_words(&mut self) -> String {
        let mut printed = fs::read_to_string(self.disk.path().join("log")).unwrap_or_default();
        if let Some(errors) = self.child.stderr.take() {
            // What cannot be read is not reported.
            let _ = errors.take(1 << 16).read_to_string(&mut printed);
        }
        let words: Vec<&str> = printed.split_whitespace().collect();
        let line: String = words.join(" ").chars().take(TAIL_CHARS).collect();
        format!("{PROGRAM} ended: {line}; it is in Debian's package redis-server")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        end(&mut self.child);
    }
}

/// The version and the process that the listener at `address` reports.
fn version(address: SocketAddrV4) -> Result<(String, u32), String> {
    let failed = |error: io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&address.into(), ANSWER_MAX).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
    stream.write_all(b"INFO server\r\nQUIT\r\n").map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    let value = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name));
    let pid = value("process_id:").and_then(|pid| pid.parse().ok());
    match (value("redis_version:"), pid) {
        (Some(version), Some(pid)) => Ok((version.to_owned(), pid)),
        _ => Err("it does not say which it is".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_configured_when_to_sync_and_nothing_else() {
        for (text, arguments) in [
            ("redis-server", &["--appendonly", "no"][..]),
            ("redis-server:appendfsync=no", &["--appendonly", "yes", "--appendfsync", "no"]),
            (
                "redis-server:appendfsync=everysec",
                &["--appendonly", "yes", "--appendfsync", "everysec"],
            ),
            (
                "redis-server:appendfsync=always",
                &["--appendonly", "yes", "--appendfsync", "always"],
            ),
        ] {
            assert_eq!(Knobs::read(text).unwrap().arguments(), arguments);
        }
        for (text, part) in [
            ("redis", "write `redis-server`"),
            ("redis-server:", "``: its one knob"),
            ("redis-server:save=1", "`save=1`: its one knob"),
            ("redis-server:appendfsync", "its one knob"),
            ("redis-server:appendfsync=alway", "did you mean `always`?"),
            ("redis-server:appendfsync=no,appendfsync=always", "given once"),
        ] {
            let why = Knobs::read(text).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}

#[cfg(test)]
mod live;
