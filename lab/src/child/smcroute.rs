//! The kernel's multicast routing as a forwarder: `smcrouted` (package smcroute) sets it up, and has nothing to do with
//! a datagram after that. An output is an interface, and nothing is rewritten.
//!
//! A route names its source, so it is there before the first datagram is and no program is asked for one. The kernel
//! switches `mc_forwarding` on by itself, in this namespace, while the program is there; the reverse path filter is
//! switched off, though the source is on the cable that datagrams come by.

use crate::fanout::FanoutPlan;
use crate::program_end::end;
use laneway_engine::pin_to_cpu;
use laneway_netns::memory_folder;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAM: &str = "smcrouted";
/// How long it may take until every route is there.
const ROUTES_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// Characters of its output that are kept for an error.
const TAIL_CHARS: usize = 400;
/// Routes of the kernel, of the thread's namespace: a line each, behind a heading.
const ROUTES: &str = "/proc/thread-self/net/ip_mr_cache";

/// The running program; ended when this is dropped, and its routes with it.
pub(super) struct Smcroute {
    child: Child,
    routes: usize,
}

impl Smcroute {
    /// Starts it for what `plan` sends, from the first of `interfaces` to all others, on `cpu`, and waits until every
    /// route is there.
    ///
    /// # Errors
    /// A sentence: it is not installed, or it does not start.
    pub(super) fn start(
        plan: &FanoutPlan,
        interfaces: &[String],
        cpu: usize,
    ) -> Result<Smcroute, String> {
        for name in interfaces.iter().map(String::as_str).chain(["all"]) {
            let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
            fs::write(&path, "0").map_err(|error| format!("writing {path}: {error}"))?;
        }
        let folder = memory_folder().map_err(|error| error.to_string())?;
        let path = |name: &str| folder.join(name).display().to_string();
        let (file, pid_file, socket) = (path("smcroute.conf"), path("pid"), path("socket"));
        fs::write(&file, configuration(plan, interfaces)?)
            .map_err(|error| format!("writing {file}: {error}"))?;
        // Its thread stays where this one is.
        pin_to_cpu(cpu).map_err(|error| error.to_string())?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", PROGRAM, "-n", "-N", "-l", "err"])
            .args(["-f", &file, "-P", &pid_file, "-u", &socket])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start setpriv (package util-linux): {error}"))?;
        let mut program = Smcroute { child, routes: plan.fanout.groups.into() };
        let until = Instant::now() + ROUTES_MAX;
        loop {
            program.check()?;
            let there = fs::read_to_string(ROUTES).map_or(0, |text| text.lines().skip(1).count());
            if there >= program.routes {
                return Ok(program);
            }
            if Instant::now() > until {
                return Err(format!(
                    "{PROGRAM} set up {there} of {} routes within {} s",
                    program.routes,
                    ROUTES_MAX.as_secs()
                ));
            }
            thread::sleep(LOOK);
        }
    }

    /// Whether it still runs: its routes go with it.
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

    /// How many routes there are.
    pub(super) fn routes(&self) -> usize {
        self.routes
    }

    fn last_words(&mut self) -> String {
        let mut printed = String::new();
        if let Some(errors) = self.child.stderr.take() {
            // What cannot be read is not reported.
            let _ = errors.take(1 << 16).read_to_string(&mut printed);
        }
        let words: Vec<&str> = printed.split_whitespace().collect();
        let line: String = words.join(" ").chars().take(TAIL_CHARS).collect();
        format!("{PROGRAM} ended: {line}; it is in Debian's package smcroute")
    }
}

impl Drop for Smcroute {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        end(&mut self.child);
    }
}

/// Its file (smcroute.conf(5)).
fn configuration(plan: &FanoutPlan, interfaces: &[String]) -> Result<String, String> {
    let Some((input, outputs)) = interfaces.split_first().filter(|(_, out)| !out.is_empty()) else {
        return Err(format!("{PROGRAM} routes between two interfaces at least"));
    };
    let mut text = String::new();
    for interface in interfaces {
        text.push_str(&format!("phyint {interface} enable\n"));
    }
    for group in plan.fanout.groups() {
        text.push_str(&format!(
            "mroute from {input} source {} group {} to {}\n",
            plan.source.ip(),
            group.ip(),
            outputs.join(" ")
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::GENERATOR;
    use crate::fanout::Fanout;

    #[test]
    fn its_file_has_a_route_for_each_group_to_every_output() {
        let fanout = Fanout {
            groups: 2,
            outputs: 2,
            cables: 2,
            limit_mbit: None,
            far_end: Default::default(),
        };
        let plan = FanoutPlan { fanout, payload_bytes: 100, run: 1, source: GENERATOR };
        let interfaces = ["sut0", "sut1", "sut2"].map(str::to_owned);
        let text = configuration(&plan, &interfaces).unwrap();
        let routes: Vec<&str> = text.lines().filter(|line| line.starts_with("mroute")).collect();
        assert_eq!(
            routes,
            [
                "mroute from sut0 source 10.77.0.1 group 239.77.0.1 to sut1 sut2",
                "mroute from sut0 source 10.77.0.1 group 239.77.0.2 to sut1 sut2",
            ]
        );
        assert_eq!(text.matches("phyint").count(), 3);
        assert!(configuration(&plan, &interfaces[..1]).is_err());
    }
}
