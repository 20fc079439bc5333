//! Two forwarders that are no app: the kernel's own bridge, and `xdp-bench redirect` of
//! xdp-tools. Both run in the receive stack of the arm's interfaces; what is started here is undone
//! here.

use crate::program_end::end;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The bridge's name; it is the only one in its namespace.
const BRIDGE: &str = "race0";
/// The program of xdp-tools, and what it is from.
const XDP_BENCH: &str = "xdp-bench";
/// How long it may take to attach its program.
const ATTACH_MAX: Duration = Duration::from_secs(10);
/// Characters of its output that are kept for an error.
const TAIL_CHARS: usize = 400;

/// A bridge over all interfaces; gone when this is dropped.
///
/// It forwards by one static entry and learns nothing: every frame of a race has a source address of
/// its own. Netfilter is not called, which this kernel does by default and which costs half as much
/// again.
pub(super) struct Bridge;

impl Bridge {
    /// Makes it, with frames to `destination` going out of the last of `interfaces`.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn create(interfaces: &[String], destination: &str) -> Result<Bridge, String> {
        let nothing = ["nf_call_iptables", "nf_call_ip6tables", "nf_call_arptables"];
        let mut add = vec!["link", "add", "name", BRIDGE, "type", "bridge", "mcast_snooping", "0"];
        add.extend(nothing.iter().flat_map(|&hook| [hook, "0"]));
        call("ip", &add)?;
        let bridge = Bridge;
        // Absent where the kernel has no netfilter for bridges: then nothing is called anyway.
        for hook in ["iptables", "ip6tables", "arptables"] {
            let _ = fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{hook}"), "0");
        }
        for interface in interfaces {
            call("ip", &["link", "set", "dev", interface, "master", BRIDGE])?;
            call("bridge", &["link", "set", "dev", interface, "learning", "off"])?;
        }
        if let Some(out) = interfaces.last() {
            call("bridge", &["fdb", "add", destination, "dev", out, "master", "static"])?;
        }
        call("ip", &["link", "set", "dev", BRIDGE, "up"])?;
        Ok(bridge)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // The namespace that it lies in goes at the end of the race, whatever comes of this.
        let _ = call("ip", &["link", "del", "dev", BRIDGE]);
    }
}

/// The running `xdp-bench redirect`; ended when this is dropped.
pub(super) struct XdpBench {
    child: Child,
    interfaces: Vec<String>,
}

impl XdpBench {
    /// Starts it from the first of `interfaces` to the last, and waits until its program is attached.
    ///
    /// # Errors
    /// A sentence: it is not installed, or it does not start.
    pub(super) fn start(interfaces: &[String]) -> Result<XdpBench, String> {
        let (Some(from), Some(to)) = (interfaces.first(), interfaces.last()) else {
            return Err(format!("{XDP_BENCH} redirects between two interfaces"));
        };
        let child = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "--",
                XDP_BENCH,
                "redirect",
                "--mode",
                "native",
                from,
                to,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start setpriv (package util-linux): {e}"))?;
        let mut bench = XdpBench { child, interfaces: interfaces.to_vec() };
        let until = Instant::now() + ATTACH_MAX;
        loop {
            bench.check()?;
            if is_attached(from) && (from == to || is_attached(to)) {
                return Ok(bench);
            }
            if Instant::now() > until {
                let seconds = ATTACH_MAX.as_secs();
                return Err(format!("{XDP_BENCH} attached no program within {seconds} s"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it still runs: its program goes with it.
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

    fn last_words(&mut self) -> String {
        let mut printed = String::new();
        if let Some(errors) = self.child.stderr.take() {
            // What cannot be read is not reported.
            let _ = errors.take(1 << 16).read_to_string(&mut printed);
        }
        let words: Vec<&str> = printed.split_whitespace().collect();
        let line: String = words.join(" ").chars().take(TAIL_CHARS).collect();
        let hint = "it must be new enough for this kernel, which Debian 12's is not for 6.18; \
             docs/xdp-bench.sh builds one";
        format!("{XDP_BENCH} ended: {line}; {hint}")
    }
}

impl Drop for XdpBench {
    fn drop(&mut self) {
        // It detaches on an interrupt; one that does not listen is killed, and its program with it.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        end(&mut self.child);
        for interface in &self.interfaces {
            let _ = call("ip", &["link", "set", "dev", interface, "xdp", "off"]);
        }
    }
}

/// Whether an XDP program is attached to `interface`.
pub(super) fn is_attached(interface: &str) -> bool {
    let ran = Command::new("ip").args(["link", "show", "dev", interface]).output();
    ran.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("prog/xdp"))
}

/// Runs a program of iproute2.
///
/// # Errors
/// A sentence.
pub(super) fn call(program: &str, arguments: &[&str]) -> Result<(), String> {
    let ran = Command::new(program).args(arguments).output();
    let output =
        ran.map_err(|e| format!("cannot run `{program}`: {e}; try `apt install iproute2`"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("`{program} {}` failed: {words}", arguments.join(" ")))
}
