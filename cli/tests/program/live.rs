//! `laneway run features` on real lanes, between two namespaces.

use crate::output::{Folder, LANEWAY, RunOutput};
use laneway_netns::{Topology, TopologyOptions, can_create, interface_counters};
use laneway_testkit::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// Frames that a test sends.
const FRAMES: usize = 200;
const TO: &str = "10.77.0.2:9999";
/// Only what the test sends, not what the kernels say to each other.
const FILTER: &str = "eth / ipv4 / udp dst is 9999 / end";

/// The binary as a user without privileges, or a skip where that cannot be.
pub(crate) fn as_unprivileged(arguments: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        let mut command = Command::new(LANEWAY);
        command.args(arguments).stdin(Stdio::null());
        return Some(command);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", LANEWAY]);
    command.args(arguments).stdin(Stdio::null());
    let can = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", LANEWAY, "--version"])
        .output();
    match can {
        Ok(output) if output.status.success() => Some(command),
        Ok(output) => {
            skip(format!(
                "the user `nobody` may not run {LANEWAY}: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
            None
        }
        Err(error) => {
            skip(format!("setpriv: {error}; install util-linux"));
            None
        }
    }
}

/// Two namespaces, or a skip.
pub(crate) fn world() -> Option<Topology> {
    world_of(&TopologyOptions::new("cli"))
}

/// As asked for, or a skip.
pub(crate) fn world_of(options: &TopologyOptions) -> Option<Topology> {
    match can_create() {
        Ok(()) => Some(Topology::create(options).unwrap()),
        Err(why) => {
            skip(why);
            None
        }
    }
}

/// A run whose lane is open.
pub(crate) struct Running {
    child: Child,
    err: BufReader<ChildStderr>,
    output: String,
}

impl Running {
    /// Runs app `features` on the interface under test.
    fn start(world: &Topology, spec: &str, out: &str, more: &[&str]) -> Running {
        let app = ["features", "--lane", spec, "--on", world.sut.interface, "-o", out];
        Running::app(world, &[&app, more].concat())
    }

    /// Runs an app in the namespace under test and waits until it says what its first port obtained.
    pub(crate) fn app(world: &Topology, words: &[&str]) -> Running {
        let mut child = world
            .sut
            .namespace
            .command(LANEWAY)
            .arg("run")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let mut running = Running { child, err, output: String::new() };
        running.await_line("asked for");
        assert!(running.output.contains("obtained"), "{words:?}: {}", running.output);
        running
    }

    /// Waits for the next line that is no note of a port, which must say `what`.
    #[track_caller]
    pub(crate) fn await_line(&mut self, what: &str) -> String {
        let mut line = String::new();
        while self.err.read_line(&mut line).unwrap() > 0 && line.starts_with("  note: ") {
            self.output.push_str(&line);
            line.clear();
        }
        assert!(line.contains(what), "not `{what}`: {line}");
        self.output.push_str(&line);
        line
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until each worker has gone to sleep many times from now on: it does when it finds nothing to
    /// do, so what was in its queue is with it.
    pub(crate) fn await_idle(&self) {
        /// Some sleeps have another reason, such as a lock.
        const SLEEPS: u64 = 20;
        /// Of 10 ms each.
        const NAPS_MAX: usize = 3000;
        let before = self.sleeps();
        for _ in 0..NAPS_MAX {
            let now = self.sleeps();
            if now.iter().zip(&before).all(|(now, before)| *now >= before + SLEEPS) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// How often each worker's thread has gone to sleep; a run of one works on its main thread.
    fn sleeps(&self) -> Vec<u64> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let statuses = tasks.flatten().filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let is_main = task.file_name().to_string_lossy() == self.child.id().to_string();
            Some((task.file_name(), is_main, status))
        });
        let statuses: Vec<_> = statuses.collect();
        let is_worker = |status: &str| status.starts_with("Name:\tworker-");
        let has_workers = statuses.iter().any(|(_, _, status)| is_worker(status));
        let mut sleeps: Vec<_> = statuses
            .iter()
            .filter(|(_, is_main, status)| if has_workers { is_worker(status) } else { *is_main })
            .map(|(task, _, status)| {
                let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
                (task, line.unwrap().trim().parse().unwrap())
            })
            .collect();
        sleeps.sort();
        sleeps.into_iter().map(|(_, sleeps)| sleeps).collect()
    }

    pub(crate) fn end(mut self) -> RunOutput {
        self.err.read_to_string(&mut self.output).unwrap();
        let output = self.child.wait_with_output().unwrap();
        RunOutput { err: self.output, ..RunOutput::of(output) }
    }
}

/// Waits until a count in the namespace under test has reached `expected`. The sender has returned by
/// then, but the softirq that delivers its frames may have lost its CPU.
fn await_count(world: &Topology, count: fn() -> u64, expected: u64) {
    /// Of 10 ms each.
    const NAPS_MAX: usize = 3000;
    let reached = (0..NAPS_MAX).any(|_| {
        let is_reached = world.sut.namespace.enter(count).unwrap() >= expected;
        if !is_reached {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_reached
    });
    assert!(reached, "not {expected} after all");
}

/// Frames that the interface has received; with a native XDP program on it, those that this has seen.
fn received_frames() -> u64 {
    interface_counters("sut0").unwrap().rx_packets
}

/// Datagrams for which the stack found no socket: listeners on the interface have seen them before.
fn datagrams_without_receiver() -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let names = lines.next().unwrap().split_whitespace();
    let values = lines.next().unwrap().split_whitespace();
    let value = names.zip(values).find_map(|(name, value)| (name == "NoPorts").then_some(value));
    value.unwrap().parse().unwrap()
}

fn send(world: &Topology, frames: usize) {
    let send = || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        for i in 0..frames {
            // The far end may answer that nothing listens; the frame was sent all the same.
            let _ = socket.send_to(&i.to_be_bytes(), TO);
        }
    };
    world.generator.namespace.enter(send).unwrap();
}

/// Rows of a CSV file without its header.
fn rows(path: &str) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().skip(1).map(str::to_owned).collect()
}

/// The programs attached to the interface under test.
pub(crate) fn attached(world: &Topology) -> String {
    let output = world.sut.namespace.command("ip").args(["link", "show", "sut0"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.contains("xdp")).collect()
}

#[test]
fn every_lane_makes_a_row_of_every_frame_and_closes_its_ledger() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let out = folder.file("o.csv");
    for spec in ["packet", "packet:mmsg=16", "packet:ring", "xdp", "xdp:generic", "afxdp"] {
        let count = FRAMES.to_string();
        let more = ["--filter", FILTER, "--count", &count, "--strict", "--pass"];
        let running = Running::start(&world, spec, &out, &more);
        // More than asked for: the count is exact all the same.
        send(&world, FRAMES + 30);
        let output = running.end().done();
        assert!(output.err.contains("frames seen"), "{spec}: {}", output.err);
        let rows = rows(&out);
        assert_eq!(rows.len(), FRAMES, "{spec}");
        let is_ours =
            |row: &String| row.contains("10.77.0.1,10.77.0.2,") && row.contains(",9999,17,");
        assert!(rows.iter().all(is_ours), "{spec}: {rows:?}");
        assert_eq!(attached(&world), "", "{spec}");
        assert_eq!(folder.names(), ["o.csv"], "{spec}");
    }
}

#[test]
fn an_interrupt_ends_a_run_in_order_and_leaves_nothing_behind() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let out = folder.file("o.csv");
    let flow = ["--level", "flow", "--filter", FILTER, "--pass"];
    for (spec, in_kernel, signal) in [
        ("packet", false, Signal::INT),
        ("afxdp", false, Signal::TERM),
        ("xdp", false, Signal::INT),
        ("xdp", true, Signal::TERM),
        ("xdp", true, Signal::HUP),
    ] {
        let mut more = flow.to_vec();
        more.extend(in_kernel.then_some("--in-kernel"));
        let running = Running::start(&world, spec, &out, &more);
        let before = world.sut.namespace.enter(received_frames).unwrap();
        send(&world, FRAMES);
        await_count(&world, received_frames, before + FRAMES as u64);
        running.signal(signal);
        let output = running.end().done();
        // Frames are in the lane's queue then, or were taken before: the flow is whole where the lane
        // drains, which kernel lanes do.
        if spec == "xdp" {
            let rows = rows(&out);
            assert_eq!(rows.len(), 1, "{spec}: {rows:?} {}", output.err);
        }
        assert_eq!(attached(&world), "", "{spec}");
        assert_eq!(folder.names(), ["o.csv"], "{spec}");
    }
}

#[test]
fn a_duration_ends_a_run_and_json_tells_all_of_it() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let out = folder.file("o.parquet");
    let line = ["run", "features", "--lane", "xdp", "--on", "sut0", "-o", &out, "--json"];
    let output = world
        .sut
        .namespace
        .command(LANEWAY)
        .args(line)
        .args(["--duration", "50ms"])
        .output()
        .unwrap();
    let output = RunOutput::of(output).done();
    assert_eq!(output.err, "", "all is on standard output");
    let json = output.json();
    assert_eq!((&json["closed"], &json["lane"]), (&true.into(), &"xdp".into()));
    assert_eq!(json["ports"][0]["obtained"], serde_json::json!(["native-xdp"]));
    assert_eq!(json["report"]["ended"], "stopped");
}

#[test]
fn an_interface_with_a_program_on_it_is_busy() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let (first, second) = (folder.file("a.csv"), folder.file("b.csv"));
    let running = Running::start(&world, "xdp", &first, &[]);
    for spec in ["xdp", "afxdp"] {
        let line = ["run", "features", "--lane", spec, "--on", "sut0", "-o", &second, "--pass"];
        let output = world.sut.namespace.command(LANEWAY).args(line).output().unwrap();
        RunOutput::of(output).refused(2, &["`sut0` is busy", "program"]);
        assert_eq!(folder.names(), ["a.csv.partial"], "{spec}");
    }
    running.signal(Signal::INT);
    running.end().done();
    assert_eq!(folder.names(), ["a.csv"]);
}

/// As `timeout` and supervisors do: one to the process, one to its group.
#[test]
fn two_signals_at_once_are_one_wish_to_end() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let out = folder.file("o.csv");
    let running = Running::start(&world, "packet", &out, &[]);
    running.signal(Signal::TERM);
    running.signal(Signal::INT);
    running.end().done();
    assert_eq!(folder.names(), ["o.csv"]);
}

#[test]
fn an_interface_that_disappears_ends_the_run_with_its_rows() {
    let Some(world) = world() else { return };
    let folder = Folder::new();
    let out = folder.file("o.csv");
    let running = Running::start(&world, "packet", &out, &["--filter", FILTER]);
    let before = world.sut.namespace.enter(datagrams_without_receiver).unwrap();
    send(&world, FRAMES);
    await_count(&world, datagrams_without_receiver, before + FRAMES as u64);
    let delete = world.sut.namespace.command("ip").args(["link", "del", "sut0"]).status();
    assert!(delete.unwrap().success());
    let output = running.end();
    assert_eq!(output.code, Some(2), "{}", output.err);
    assert!(output.err.lines().last().unwrap().contains("`sut0` disappeared"), "{}", output.err);
    assert_eq!(rows(&out).len(), FRAMES);
    assert_eq!(folder.names(), ["o.csv"]);
}

#[test]
fn rows_to_standard_output_end_when_their_reader_goes() {
    let Some(world) = world() else { return };
    let mut child = world
        .sut
        .namespace
        .command(LANEWAY)
        .args(["run", "features", "--lane", "packet", "--on", "sut0", "--filter", FILTER])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut opened = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut opened).unwrap();
    drop(child.stdout.take());
    // Until it notices: a row is written only some time after it was made.
    while child.try_wait().unwrap().is_none() {
        send(&world, FRAMES);
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
