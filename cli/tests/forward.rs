//! `laneway run forward` as a user meets it: between two real cables, on captures, with rules from a
//! file, the command line and standard input.
//!
//! Tests that need root say so and pass without it.
#![forbid(unsafe_code)]

use laneway_capture::{Layout, LinkType, Reader, Record, Writer};
use laneway_core::{FrameLane, Lane, PortId, Verdict};
use laneway_engine::usable_cpus;
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_testkit::{UdpFrame, skip, udp_frames};
use laneway_wire::{ETHERNET_BYTES, checksum};
use laneway_xdp::PassGuard;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{self, Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The binary under test.
const LANEWAY: &str = env!("CARGO_BIN_EXE_laneway");
const NEAR: [&str; 2] = ["near0", "near1"];
const FAR: [&str; 2] = ["far0", "far1"];
/// Frames into each end: no more than a veth queue holds.
const FRAMES: usize = 60;
/// A far end that has seen nothing for so long gives up. Long, because it ends nothing but a test that
/// fails: a test that waits knows what is to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two cables between a near namespace, where the program runs, and a far one.
struct World {
    _cables: Vec<VethPair>,
    near: Namespace,
    far: Namespace,
}

fn near_mac(port: usize) -> [u8; 6] {
    [0x02, 0x4c, 0x57, 0x31, 0, port as u8]
}

impl World {
    /// Builds it; `None`, and says so, where that cannot be done.
    fn new() -> Option<World> {
        World::with_queues(1)
    }

    /// As [`new`](Self::new), with so many queues at every end.
    fn with_queues(queues: u32) -> Option<World> {
        if let Err(why) = can_create() {
            skip(why);
            return None;
        }
        let near = Namespace::create("cli-forward-near").unwrap();
        let far = Namespace::create("cli-forward-far").unwrap();
        let cable = |port: usize| {
            let end = |mac: [u8; 6]| VethEnd {
                mac: Mac(mac),
                addresses: Vec::new(),
                ..VethOptions::default().a
            };
            let far_mac = [0x02, 0x4c, 0x57, 0x31, 1, port as u8];
            let options = VethOptions {
                a: end(near_mac(port)),
                b: end(far_mac),
                queues,
                ..VethOptions::default()
            };
            VethPair::create(&near, NEAR[port], &far, FAR[port], &options).unwrap()
        };
        Some(World { _cables: vec![cable(0), cable(1)], near, far })
    }

    /// Runs the program with `arguments` while `far` does what it does at the far ends; ends it with
    /// Ctrl-C, unless `far` has ended it, and gives what it printed.
    fn run<R: Send>(
        &self,
        arguments: &[&str],
        far: impl FnOnce(&mut FarEnds, &mut Running) -> R + Send,
    ) -> (Output, R) {
        let mut command = self.near.command(LANEWAY);
        command.args(["run", "forward", "--on", "near0", "--on", "near1"]).args(arguments);
        let look = || {
            // A veth end to which frames are redirected takes them only with a program of its own.
            let _guards = FAR.map(|name| PassGuard::attach(name).unwrap());
            let mut ends = FarEnds::open();
            let mut running = Running::start(command);
            let seen = far(&mut ends, &mut running);
            (running.end(), seen)
        };
        self.far.enter(look).unwrap()
    }
}

/// The program, ready to forward.
struct Running {
    child: Child,
    err: BufReader<ChildStderr>,
    printed: String,
}

impl Running {
    fn start(mut command: Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut printed = String::new();
        while err.read_line(&mut printed).unwrap() > 0 && !printed.contains("forwarding, mode") {}
        assert!(printed.contains("forwarding, mode"), "{printed}");
        Running { child, err, printed }
    }

    /// Says a line and gives the first `lines` lines of the answer.
    fn ask(&mut self, line: &str, lines: usize) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        let out = self.child.stdout.as_mut().unwrap();
        let mut byte = [0];
        while answer.matches('\n').count() < lines && out.read(&mut byte).unwrap() > 0 {
            answer.push(byte[0].into());
        }
        answer
    }

    fn end(mut self) -> Output {
        if self.child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        }
        self.err.read_to_string(&mut self.printed).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Output { stderr: self.printed.into_bytes(), ..output }
    }
}

/// The far ends of both cables.
struct FarEnds(PacketLane);

impl FarEnds {
    fn open() -> FarEnds {
        let spec = "packet".parse().unwrap();
        FarEnds(PacketLane::open(&spec, &FAR, OpenOptions::default()).unwrap())
    }

    fn send(&mut self, port: u8, mut frames: &[Vec<u8>]) {
        while !frames.is_empty() {
            let burst = self.0.lend(PortId(port.into()), frames.len()).unwrap();
            let sent = burst.len().min(frames.len());
            for (i, bytes) in frames[..sent].iter().enumerate() {
                let mut frame = burst.frame_mut(i);
                assert!(frame.set_len(bytes.len()));
                frame.bytes_mut().copy_from_slice(bytes);
                frame.set_verdict(Verdict::Tx);
            }
            frames = &frames[sent..];
            self.0.settle(PortId(port.into())).unwrap();
        }
    }

    /// The IPv4 frames that come, by port, until there are as many as expected or patience ends. (The
    /// kernel's own neighbour discovery crosses as well.)
    fn collect(&mut self, expected: usize) -> [Vec<Vec<u8>>; 2] {
        let mut received = [Vec::new(), Vec::new()];
        let mut since = Instant::now();
        while received.iter().map(Vec::len).sum::<usize>() < expected && since.elapsed() < PATIENCE
        {
            let mut found = false;
            for (port, received) in (0..).zip(&mut received) {
                let burst = self.0.receive(PortId(port)).unwrap();
                found |= !burst.is_empty();
                let frames = (0..burst.len()).map(|i| burst.frame(i).bytes.to_vec());
                received.extend(frames.filter(|frame| frame[12..14] == [8, 0]));
                self.0.settle(PortId(port)).unwrap();
            }
            if found {
                since = Instant::now();
            } else {
                self.0.wait(Duration::from_millis(20)).unwrap();
            }
        }
        received
    }
}

fn errors_of(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The run ended well.
#[track_caller]
fn done(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", errors_of(output));
}

/// The run ended with exit code 2 and one sentence that says each of `parts`.
#[track_caller]
fn refused(output: &Output, parts: &[&str]) {
    let err = errors_of(output);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.starts_with("laneway: ") && err.trim_end().lines().count() == 1, "{err}");
    parts.iter().for_each(|part| assert!(err.contains(part), "`{part}` is missing in: {err}"));
}

fn laneway(arguments: &[&str]) -> Output {
    Command::new(LANEWAY).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// A folder of its own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("laneway-forward-{}-{n}", process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn capture(&self, name: &str, frames: &[Vec<u8>]) -> String {
        let path = self.file(name);
        let link = LinkType::Ethernet;
        let mut writer = Writer::create(&path, Layout::Pcap, &[link]).unwrap();
        for (ts_ns, data) in (1..).zip(frames) {
            let wire_len = data.len() as u32;
            writer.write(&Record { ts_ns, interface: 0, link, wire_len, data }).unwrap();
        }
        writer.commit().unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed has reported why already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Frames to be routed by port `port`.
fn to_route(port: usize) -> Vec<Vec<u8>> {
    let mut frames = udp_frames(0, FRAMES, 80);
    frames.iter_mut().for_each(|frame| frame[..6].copy_from_slice(&near_mac(port)));
    frames
}

fn swapped(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}

/// As a router leaves it: one hop less, new link addresses, the header's sum right.
fn routed(frame: &[u8], egress: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[6..12].copy_from_slice(&near_mac(egress));
    frame[ETHERNET_BYTES + 8] -= 1;
    frame[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12].fill(0);
    let sum = checksum::of(&frame[ETHERNET_BYTES..ETHERNET_BYTES + 20]);
    frame[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// What the mode makes of a frame that leaves by `egress`; no mode here looks at more than this.
fn after(mode: &str, egress: usize, frame: &[u8]) -> Vec<u8> {
    match mode {
        "mac" => [&[2, 0, 0, 0, 0, egress as u8], &near_mac(egress)[..], &frame[12..]].concat(),
        "macswap" => swapped(frame),
        "5tswap" => {
            let mut frame = swapped(frame);
            let (addresses, ports) = (frame[26..34].to_vec(), frame[34..38].to_vec());
            frame[26..34].copy_from_slice(&[&addresses[4..], &addresses[..4]].concat());
            frame[34..38].copy_from_slice(&[&ports[2..], &ports[..2]].concat());
            frame
        }
        _ => frame.to_vec(),
    }
}

/// False, and says why, for a lane that cannot be opened here.
fn can_open(world: &World, lane: &str) -> bool {
    if !lane.starts_with("dpdk") {
        return true;
    }
    let mut probe = world.near.command(LANEWAY);
    probe.args(["run", "forward", "--on", "near0,near1", "--duration", "1ms", "--lane", lane]);
    let output = probe.stdin(Stdio::null()).output().unwrap();
    if output.status.code() == Some(2) {
        skip(format!("{lane}: {}", errors_of(&output)));
    }
    output.status.code() != Some(2)
}

#[test]
fn frames_cross_between_two_cables_as_the_mode_says() {
    let Some(world) = World::new() else { return };
    for lane in ["packet", "uring", "afxdp", "xdp", "dpdk:net_af_packet"] {
        if !can_open(&world, lane) {
            continue;
        }
        for mode in ["io", "mac", "macswap", "5tswap", "l2"] {
            if (lane, mode) == ("xdp", "l2") {
                continue;
            }
            let line = ["--lane", lane, "--mode", mode];
            let frames = udp_frames(0, FRAMES, 64);
            let (output, received) = world.run(&line, |far, _| {
                far.send(0, &frames);
                far.collect(FRAMES)
            });
            done(&output);
            let expected: Vec<Vec<u8>> = frames.iter().map(|f| after(mode, 1, f)).collect();
            assert_eq!(received[1].len(), FRAMES, "{lane} {mode}: {}", errors_of(&output));
            assert!(received[1] == expected, "{lane} {mode}: other bytes or order");
            assert!(received[0].is_empty(), "{lane} {mode}: sent back");
            let fate = if mode == "l2" { "  flooded" } else { "  forwarded" };
            for part in [fate, "port  interface"] {
                assert!(errors_of(&output).contains(part), "{lane} {mode}: {}", errors_of(&output));
            }
        }
    }
}

#[test]
fn frames_that_the_kernel_drops_behind_a_redirect_are_reported() {
    let Some(world) = World::new() else { return };
    // With GRO a veth's far end takes redirected frames, without any program.
    let far_gro = |state: &str| {
        let gro = ["-K", "far1", "gro", state];
        assert!(world.far.command("ethtool").args(gro).status().unwrap().success());
    };
    let folder = Folder::new();
    let path = folder.file("lost.sock");
    let run = |frame_bytes: usize| {
        let mut command = world.near.command(LANEWAY);
        command.args(["run", "forward", "--on", "near0", "--on", "near1", "--lane", "xdp"]);
        command.args(["--mode", "io", "--control", &path]);
        let look = || {
            // Without a program at the far ends.
            let mut ends = FarEnds::open();
            let running = Running::start(command);
            ends.send(0, &udp_frames(0, FRAMES, frame_bytes));
            let since = Instant::now();
            while count_of(&path, "forwarded") < FRAMES as u64 && since.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(20));
            }
            running.end()
        };
        let output = world.far.enter(look).unwrap();
        done(&output);
        errors_of(&output).to_owned()
    };
    far_gro("off");
    let refused = run(64);
    assert!(refused.contains(&format!("port 0 lost {FRAMES} tx_refused")), "{refused}");
    let mtu = ["link", "set", "near1", "mtu", "500"];
    assert!(world.near.command("ip").args(mtu).status().unwrap().success());
    far_gro("on");
    let too_long = run(600);
    assert!(too_long.contains(&format!("port 0 lost {FRAMES} tx_too_long")), "{too_long}");
}

#[test]
fn mode_drop_receives_everything_and_sends_nothing() {
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    for lane in ["packet", "uring", "afxdp", "xdp", "dpdk:net_af_packet"] {
        if !can_open(&world, lane) {
            continue;
        }
        let path = folder.file("drop.sock");
        let line = ["--lane", lane, "--mode", "drop", "--control", &path];
        let (output, sent) = world.run(&line, |far, _| {
            far.send(0, &udp_frames(0, FRAMES, 64));
            // Nothing comes that would say that all are there: the program does.
            let since = Instant::now();
            while count_of(&path, "consumed") < FRAMES as u64 && since.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(20));
            }
            ["forwarded", "flooded", "passed"].map(|fate| count_of(&path, fate))
        });
        done(&output);
        assert_eq!(sent, [0; 3], "{lane}");
        assert!(errors_of(&output).contains("  consumed"), "{lane}: {}", errors_of(&output));
    }
}

/// `show stats` of a forwarder, one of its lines.
fn count_of(path: &str, name: &str) -> u64 {
    let answer = Client::connect(path).say("show stats");
    let line = answer.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no `{name}` in {answer}")).parse().unwrap()
}

/// A conversation over the control socket, as any program could lead it.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &str) -> Client {
        Client(BufReader::new(UnixStream::connect(path).unwrap()))
    }

    /// Says a line and gives the answer without the empty line that ends it.
    fn say(&mut self, line: &str) -> String {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        while !answer.ends_with("\n\n") && answer != "\n" {
            assert!(self.0.read_line(&mut answer).unwrap() > 0, "{line}: closed after {answer}");
        }
        answer.trim_end().to_owned()
    }
}

/// `laneway rules`, which is to end well.
fn rules(path: &str, commands: &[&str]) -> String {
    let output = laneway(&[&["rules", "--control", path], commands].concat());
    done(&output);
    String::from_utf8(output.stdout).unwrap()
}

/// Frames of a window: no more than a veth queue holds.
const WINDOW: usize = 32;

#[test]
fn rules_are_swapped_by_the_control_socket_under_traffic_and_no_frame_is_lost() {
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    // The kernel half takes a set with its tick, some 10 ms apart.
    for (lane, swaps) in [("packet", 1000), ("afxdp", 1000), ("xdp", 100)] {
        let path = folder.file("live.sock");
        let line = ["--lane", lane, "--control", &path];
        let (output, (sent, swapped, hits)) = world.run(&line, |far, _| {
            let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let mut sent = 0;
            let mut window = |far: &mut FarEnds| {
                let frame =
                    |sequence| UdpFrame { sequence, destination_port: 99, ..UdpFrame::default() };
                let frames: Vec<_> =
                    (sent..sent + WINDOW as u64).map(|sequence| frame(sequence).build()).collect();
                far.send(0, &frames);
                let [back, through] = far.collect(WINDOW);
                assert!(back.is_empty() && through == frames, "{lane}: lost, doubled or reordered");
                sent += WINDOW as u64;
            };
            window(far);
            let counts = DROP.replace("53", "99").replace("drop / count", "count");
            assert_eq!(rules(&path, &[&counts]), "Flow rule #0 created\n");
            let done = AtomicBool::new(false);
            let swapped = thread::scope(|scope| {
                let swap = scope.spawn(|| {
                    let mut client = Client::connect(&path);
                    for _ in 0..swaps / 2 {
                        assert_eq!(client.say(DROP), "Flow rule #1 created");
                        assert_eq!(client.say("flow destroy 0 rule 1"), "Flow rule #1 destroyed");
                    }
                    done.store(true, Ordering::Relaxed);
                });
                while !done.load(Ordering::Relaxed) && !swap.is_finished() {
                    window(far);
                }
                swap.join().is_ok()
            });
            window(far);
            // On lane xdp the counters are read every 100 ms.
            let since = Instant::now();
            let mut hits = String::new();
            let expected = format!(" hits: {}\n", sent - WINDOW as u64);
            while !hits.contains(&expected) && since.elapsed() < PATIENCE {
                hits = rules(&path, &["flow query 0 0 count"]);
            }
            let shown = rules(&path, &["show rules 0"]);
            assert!(
                shown.starts_with("port 0 rule 0 hits ") && shown.contains(" place "),
                "{shown}"
            );
            (sent, swapped, hits)
        });
        done(&output);
        assert!(swapped, "{lane}");
        assert!(hits.contains(&format!(" hits: {}\n", sent - WINDOW as u64)), "{lane}: {hits}");
        assert!(!fs::exists(&path).unwrap(), "the socket goes with the run");
    }
}

#[test]
fn several_speak_at_once_and_refusals_show_the_place() {
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    let path = folder.file("talk.sock");
    let line = ["--lane", "packet", "--control", &path, "--interactive"];
    let (output, ()) = world.run(&line, |_, running| {
        let (mut one, mut two) = (Client::connect(&path), Client::connect(&path));
        assert_eq!(one.say(DROP), "Flow rule #0 created");
        assert_eq!(two.say(DROP), "Flow rule #1 created");
        assert_eq!(running.ask(DROP, 1), "Flow rule #2 created\n");
        let wrong = two.say("flow crate 0");
        assert!(wrong.starts_with("error: flow rule, column 6: found `crate`"), "{wrong}");
        assert!(one.say(&"x".repeat(10_000)).contains("4096 are the most"));
        assert!(one.say("\u{1b}]0;\u{7}").starts_with("error: "));

        let output = laneway(&["rules", "--control", &path, "flow lst 0", "flow list 0 group 0"]);
        assert_eq!(output.status.code(), Some(2), "{}", errors_of(&output));
        assert!(errors_of(&output).contains("did you mean `list`?"), "{}", errors_of(&output));
        assert!(errors_of(&output).contains("1 of 2 commands refused"), "{}", errors_of(&output));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).lines().count(),
            4,
            "the second is reported"
        );

        let mut client = Command::new(LANEWAY);
        client.args(["rules", "--control", &path, "--json"]).stdin(Stdio::piped());
        let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
        client.stdin.take().unwrap().write_all(b"# all\nflow flush 0\nshow rules\nquit\n").unwrap();
        let report = client.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(report["commands"][1]["command"], "flow flush 0", "{report:#}");
        assert_eq!(report["commands"][2]["lines"], Value::Array(Vec::new()), "{report:#}");
        assert_eq!(report["commands"][2]["done"], true, "{report:#}");

        // A second server leaves the first alone.
        let again = ["run", "forward", "--lane", "packet", "--on", "lo", "--control", &path];
        refused(&laneway(&again), &[&path, "another program is listening there"]);
        assert_eq!(one.say("show rules"), "");
    });
    done(&output);
    assert!(!fs::exists(&path).unwrap());
    refused(&laneway(&["rules", "--control", &path, "help"]), &[&path, "run forward --control"]);
    fs::write(&path, "precious").unwrap();
    let file = ["run", "forward", "--lane", "packet", "--on", "lo", "--control", &path];
    refused(&laneway(&file), &["no socket", "choose another path"]);
}

/// The least that a machine needs for two workers, or a skip.
fn has_two_cpus() -> bool {
    let has = usable_cpus().is_ok_and(|cpus| cpus.len() >= 2);
    if !has {
        skip("two workers need two CPUs");
    }
    has
}

/// Flows of a test with two workers: enough that both have some.
const FLOWS: u16 = 24;

/// Frames of many flows in turn, each flow's in the order of their numbers.
fn of_many_flows(frames: u64) -> Vec<Vec<u8>> {
    (0..frames)
        .map(|sequence| {
            let flow = (sequence % u64::from(FLOWS)) as u16;
            let destination_port = [53, 99, 4000][usize::from(flow % 3)];
            let source_port = 2000 + flow;
            UdpFrame { sequence, source_port, destination_port, ..UdpFrame::default() }.build()
        })
        .collect()
}

/// Frames by flow, in the order in which they arrived.
fn by_flow(frames: &[Vec<u8>]) -> BTreeMap<[u8; 4], Vec<&Vec<u8>>> {
    let mut flows: BTreeMap<[u8; 4], Vec<&Vec<u8>>> = BTreeMap::new();
    for frame in frames {
        flows.entry(frame[34..38].try_into().unwrap()).or_default().push(frame);
    }
    flows
}

/// What each of several workers received, as the table at the end says.
fn received_by_worker(printed: &str) -> Vec<u64> {
    let table = printed.lines().skip_while(|line| !line.starts_with("worker  CPU")).skip(1);
    let rows = table.take_while(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    rows.map(|row| row.split_whitespace().nth(2).unwrap().replace(',', "").parse().unwrap())
        .collect()
}

/// What a run under rules made of [`of_many_flows`]: frames that arrived, and what was reported by the program that
/// was asked.
#[derive(Debug, PartialEq)]
struct Fated {
    through: Vec<Vec<u8>>,
    counts: Vec<String>,
}

fn under_rules(world: &World, lane: &str, more: &[&str]) -> (Output, Fated) {
    let folder = Folder::new();
    let path = folder.file("fates.sock");
    let to_queue = DROP.replace("dst is 53", "dst is 99").replace("drop", "queue index 1");
    let all = ["--lane", lane, "--queues", "2", "--control", &path, "--rule", DROP];
    let frames = of_many_flows(120);
    let (output, fated) = world.run(&[&all, more].concat(), |far, _| {
        // Under way, so that it reaches the programs that are there.
        assert_eq!(rules(&path, &[&to_queue]), "Flow rule #1 created\n");
        far.send(0, &frames);
        let [back, through] = far.collect(frames.len() * 2 / 3);
        assert!(back.is_empty());
        // The counts follow with the next tick of every worker.
        let since = Instant::now();
        let all_counted =
            |path: &str| count_of(path, "rule_drop") == 40 && count_of(path, "forwarded") >= 80;
        while !all_counted(&path) && since.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(20));
        }
        let mut counts: Vec<String> =
            [0, 1].map(|id| rules(&path, &[&format!("flow query 0 {id} count")])).into();
        let stats = rules(&path, &["show stats"]);
        let wanted = |line: &&str| line.starts_with("rule_drop") || line.starts_with("queue");
        counts.extend(stats.lines().filter(wanted).map(str::to_owned));
        Fated { through, counts }
    });
    (output, fated)
}

#[test]
fn two_workers_give_every_frame_the_fate_that_one_gives_and_answer_for_both() {
    if !has_two_cpus() {
        return;
    }
    let (Some(one), Some(two)) = (World::new(), World::with_queues(2)) else { return };
    for lane in ["packet", "packet:ring", "afxdp", "dpdk:net_af_packet,no-huge"] {
        if !can_open(&one, lane) {
            continue;
        }
        let (alone, of_one) = under_rules(&one, lane, &[]);
        done(&alone);
        let (both, of_two) = under_rules(&two, lane, &["--workers", "2"]);
        done(&both);
        assert_eq!(of_one.through.len(), 80, "{lane}: {}", errors_of(&alone));
        assert_eq!(of_two.through.len(), 80, "{lane}: {}", errors_of(&both));
        // In the order that they were sent in, flow by flow: nothing lost, doubled or overtaken.
        assert_eq!(by_flow(&of_one.through), by_flow(&of_two.through), "{lane}");
        assert_eq!(of_one.counts, of_two.counts, "{lane}");
        assert!(of_two.counts[1].contains(" hits: 40\n"), "{lane}: {:?}", of_two.counts);
        let workers = received_by_worker(errors_of(&both));
        assert_eq!(workers.len(), 2, "{lane}: {}", errors_of(&both));
        assert!(workers.iter().all(|&frames| frames > 0), "{lane}: {}", errors_of(&both));
        assert!(
            errors_of(&both).contains("flow query 0 1: hits: 40"),
            "{lane}: {}",
            errors_of(&both)
        );
    }
}

#[test]
fn a_bridge_of_two_workers_sends_answers_by_what_the_other_one_learned() {
    if !has_two_cpus() {
        return;
    }
    let Some(world) = World::with_queues(2) else { return };
    for lane in ["packet", "afxdp"] {
        let line = ["--lane", lane, "--mode", "l2", "--workers", "2"];
        // One flow there, so that one worker alone learns; many back, which both forward.
        let there = to_port(7, 1);
        let back: Vec<Vec<u8>> = of_many_flows(96).iter().map(|frame| swapped(frame)).collect();
        let (output, received) = world.run(&line, |far, _| {
            far.send(0, &there);
            let flooded = far.collect(1);
            assert_eq!(flooded[1], there);
            far.send(1, &back);
            far.collect(back.len())
        });
        done(&output);
        assert_eq!(by_flow(&received[0]), by_flow(&back), "{lane}");
        let err = errors_of(&output);
        let forwarded = err.lines().find_map(|line| line.strip_prefix("  forwarded"));
        // The kernel's own frames that cross are to groups, and flooded.
        assert_eq!(forwarded.map(str::trim), Some("96"), "{lane}: {err}");
        let workers = received_by_worker(err);
        assert!(workers.iter().all(|&frames| frames > 0), "{lane}: {err}");
    }
}

#[test]
fn what_does_not_take_several_workers_says_why() {
    let base = ["run", "forward", "--on", "lo"];
    let run = |more: &[&str]| laneway(&[&base[..], more].concat());
    refused(&run(&["--lane", "packet", "--workers", "2", "--cpu", "0"]), &["--cpu", "--workers"]);
    refused(&run(&["--lane", "packet", "--workers", "60"]), &["--workers 60", "use --workers"]);
    refused(&run(&["--lane", "packet", "--workers", "2", "--cpus", "0"]), &["do not fit"]);
    if has_two_cpus() {
        refused(&run(&["--lane", "uring", "--workers", "2"]), &["fan-out", "use packet"]);
        refused(&run(&["--lane", "xdp", "--workers", "2"]), &["every CPU", "leave --workers out"]);
        refused(&run(&["--lane", "pcap", "--workers", "2"]), &["order", "leave --workers out"]);
        let lb = ["--lane", "packet:fanout=lb", "--workers", "2"];
        refused(&run(&lb), &["one flow to different workers", "fanout=hash"]);
    }
}

/// A foreign client, as the README shows it; ended with the test that started it.
struct Socat(Child, BufReader<ChildStdout>);

impl Socat {
    /// Starts it; `None`, and says so, where there is none.
    fn start(path: &str) -> Option<Socat> {
        let mut command = Command::new("socat");
        // When its input ends it waits for the answers to what it has sent.
        command.args(["-t", "60", "-", &format!("UNIX-CONNECT:{path}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        match command.spawn() {
            Ok(mut child) => {
                let out = BufReader::new(child.stdout.take().unwrap());
                Some(Socat(child, out))
            }
            Err(why) => {
                skip(format!("socat: {why}"));
                None
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// The next answer, without the empty line that ends it.
    fn answer(&mut self) -> String {
        let mut answer = String::new();
        while !answer.ends_with("\n\n") && answer != "\n" {
            assert!(self.1.read_line(&mut answer).unwrap() > 0, "closed after {answer}");
        }
        answer.trim_end().to_owned()
    }

    fn say(&mut self, line: &str) -> String {
        self.write(format!("{line}\n").as_bytes());
        self.answer()
    }

    /// Ends the input and returns all answers that still arrive.
    fn rest(mut self) -> String {
        drop(self.0.stdin.take());
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Socat {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kilobytes of memory that a process has.
fn resident_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_foreign_client_leads_the_conversation_and_hostile_ones_do_no_harm() {
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    let path = folder.file("foreign.sock");
    let line = ["--lane", "packet", "--control", &path];
    let (output, ()) = world.run(&line, |far, running| {
        let Some(mut one) = Socat::start(&path) else { return };
        let Some(mut two) = Socat::start(&path) else { return };
        assert_eq!(one.say(DROP), "Flow rule #0 created");
        assert_eq!(two.say(&DROP.replace("53", "99")), "Flow rule #1 created");
        let list = one.say("flow list 0");
        assert_eq!(list.lines().count(), 3, "{list}");
        assert!(list.ends_with("1\t0\t0\ti--\tETH IPV4 UDP => DROP COUNT"), "{list}");
        far.send(0, &to_port(53, 20));
        far.send(0, &to_port(4000, 1));
        assert_eq!(far.collect(1)[1].len(), 1);
        let query = two.say("flow query 0 0 count");
        assert_eq!(query, "COUNT:\n hits_set: 1\n bytes_set: 1\n hits: 20\n bytes: 1280");
        let wrong = one.say("flow create 0 ingress pattern eth / ipv5 / end actions drop / end");
        let place = "error: flow rule, column 37: found `ipv5`, expected";
        assert!(wrong.starts_with(place) && wrong.contains("did you mean `ipv4`?"), "{wrong}");
        assert!(wrong.ends_with(&format!("\n  {}^", " ".repeat(36))), "{wrong}");

        // One that leaves in the middle of a word: `rule 1` was not all that it meant to say.
        let mut cut = Socat::start(&path).unwrap();
        cut.write(b"flow destroy 0 rule 1");
        drop(cut);
        let mut cut = Socat::start(&path).unwrap();
        cut.write(b"flow destroy 0 rule 1");
        assert!(cut.rest().starts_with("error: the line has no end, so nothing was done"));
        assert!(two.say("flow list 0").contains("\n1\t"), "it is still there");

        // Garbage is answered line by line.
        let mut garbage = Socat::start(&path).unwrap();
        garbage.write(b"\x00\xff\xfe\x1b[2J\nflow \x80\n\n");
        let answers = garbage.rest();
        assert_eq!(answers.matches("error: ").count(), 2, "{answers}");
        assert!(!answers.contains('\u{1b}'), "what it sent is not sent back to a terminal");

        // A line without end costs no memory, and nothing waits for it.
        let mut endless = Socat::start(&path).unwrap();
        endless.write(b"x");
        let before_kb = resident_kb(running.child.id());
        for _ in 0..64 {
            endless.write(&[b'x'; 1 << 20]);
        }
        assert_eq!(one.say("flow destroy 0 rule 0"), "Flow rule #0 destroyed");
        let after_kb = resident_kb(running.child.id());
        assert!(after_kb < before_kb + 16 * 1024, "{before_kb} kB, then {after_kb} kB");
        endless.write(b"\nshow rules\n");
        assert!(endless.answer().contains("4096 are the most"));
        assert!(endless.answer().starts_with("port 0 rule 1 "));

        assert_eq!(one.say("flow flush 0"), "");
        assert_eq!(two.say("show rules"), "");
        one.write(b"quit\n");
        assert_eq!(one.rest(), "\n");
        assert_eq!(two.say("flow list 0"), "", "the other one goes on");
    });
    done(&output);
    assert!(!fs::exists(&path).unwrap());
}

#[test]
fn a_router_sends_by_the_longest_prefix_with_its_own_address() {
    let Some(world) = World::new() else { return };
    let destination = UdpFrame::default().build()[30..34].to_vec();
    let exact = format!(
        "{}.{}.{}.{}/32 via 192.0.2.1 port 1",
        destination[0], destination[1], destination[2], destination[3]
    );
    for lane in ["packet", "afxdp", "xdp"] {
        let line = [
            "--lane",
            lane,
            "--mode",
            "l3",
            "--route",
            "0.0.0.0/0 port 0",
            "--route",
            &exact,
            "--neighbour",
            "192.0.2.1 02:00:00:00:00:09",
        ];
        let frames = to_route(0);
        let (output, received) = world.run(&line, |far, _| {
            // Not for the router; in front, so that they have been seen when the others have arrived.
            far.send(0, &udp_frames(900, 5, 64));
            far.send(0, &frames);
            far.collect(FRAMES)
        });
        done(&output);
        let expected: Vec<Vec<u8>> = frames.iter().map(|frame| routed(frame, 1)).collect();
        let arrived: Vec<&Vec<u8>> =
            received[1].iter().filter(|frame| frame[..6] == [2, 0, 0, 0, 0, 9]).collect();
        assert_eq!(arrived.len(), FRAMES, "{lane}: {}", errors_of(&output));
        assert!(arrived.into_iter().eq(&expected), "{lane}");
        assert!(errors_of(&output).contains("not_for_us"), "{lane}: {}", errors_of(&output));
    }
}

const DROP: &str = "flow create 0 ingress pattern eth / ipv4 / udp dst is 53 / end \
                    actions drop / count / end";

fn to_port(destination_port: u16, frames: usize) -> Vec<Vec<u8>> {
    (0..frames as u64)
        .map(|sequence| UdpFrame { sequence, destination_port, ..UdpFrame::default() }.build())
        .collect()
}

#[test]
fn rules_come_and_go_by_standard_input_while_frames_cross() {
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    let file = folder.file("rules.txt");
    fs::write(&file, format!("# names\n\n{DROP}\n")).unwrap();
    let to_99 = DROP.replace("53", "99");
    for (lane, place) in [("packet", "user: "), ("afxdp", "user: "), ("xdp", "kernel: ")] {
        let line = ["--lane", lane, "--rules", &file, "--interactive"];
        let (output, counts) = world.run(&line, |far, running| {
            let mut counts = Vec::new();
            // Behind the frames goes one that no rule looks at: then nothing is under way any more.
            let mut look = |far: &mut FarEnds, port, expected: usize| {
                far.send(0, &to_port(port, 20));
                far.send(0, &to_port(4000, 1));
                let received = far.collect(expected + 1);
                counts.push(received[1].len() - 1);
            };
            look(far, 53, 0);
            assert_eq!(running.ask(&to_99, 1), "Flow rule #1 created\n", "{lane}");
            look(far, 99, 0);
            assert!(running.ask("flow list 0", 3).contains("ETH IPV4 UDP => DROP COUNT"), "{lane}");
            assert!(running.ask("flow crate 0", 3).contains("column 6"), "{lane}");
            assert_eq!(running.ask("flow destroy 0 rule 0", 1), "Flow rule #0 destroyed\n");
            look(far, 53, 20);
            let answer = running.ask("flow query 0 1 count", 5);
            assert!(answer.contains("hits_set: 1"), "{lane}: {answer}");
            writeln!(running.child.stdin.as_mut().unwrap(), "quit").unwrap();
            running.err.read_to_string(&mut running.printed).unwrap();
            counts
        });
        done(&output);
        assert_eq!(counts, [0, 0, 20], "{lane}: {}", errors_of(&output));
        for part in ["  rule_drop", "flow list 0", "flow query 0 1: hits: 20 bytes: ", place] {
            assert!(
                errors_of(&output).contains(part),
                "`{part}` on {lane}: {}",
                errors_of(&output)
            );
        }
    }
}

#[test]
fn a_run_on_captures_tells_fates_rules_and_places_as_json() {
    let folder = Folder::new();
    let frames = [to_port(53, 7), to_port(99, 3)].concat();
    let (a, b) = (folder.capture("a.pcap", &frames), folder.capture("b.pcap", &to_port(7, 2)));
    let out = folder.file("out.pcapng");
    let lane = format!("pcap:out={out}");
    let line = ["run", "forward", "--lane", &lane, "--on", &a, "--on", &b, "--mode", "macswap"];
    let output = laneway(&[&line[..], &["--json", "--rule", DROP]].concat());
    done(&output);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["seen"], &report["closed"]), (&12.into(), &true.into()), "{report:#}");
    assert_eq!(report["fates"]["rule_drop"], 7);
    assert_eq!(report["fates"]["forwarded"], 5);
    assert_eq!(
        (&report["mode"], &report["unconfirmed"]),
        (&"macswap".into(), &0.into()),
        "{report:#}"
    );
    for list in ["interfaces", "ports"] {
        assert_eq!(report[list].as_array().map(Vec::len), Some(2), "{report:#}");
    }
    assert_eq!(report["report"]["ended"], "exhausted", "{report:#}");
    assert_eq!(report["workers"], Value::Array(Vec::new()), "there was one");
    let rule = &report["rules"][0];
    assert_eq!(
        (&rule["hits"], &rule["place"], &rule["port"]),
        (&7.into(), &"user".into(), &0.into())
    );
    assert_eq!(rule["bytes"], 7 * frames[0].len());
    let mut reader = Reader::open(&out).unwrap();
    let mut written = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        written.push((record.interface, record.data.to_vec()));
    }
    let expected = |interface, frames: &[Vec<u8>]| -> Vec<_> {
        frames.iter().map(|frame| (interface, swapped(frame))).collect()
    };
    written.sort_by_key(|(interface, _)| *interface);
    assert_eq!(written, [expected(0, &to_port(7, 2)), expected(1, &frames[7..])].concat());
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence_with_its_place() {
    let folder = Folder::new();
    let rules = folder.file("rules.txt");
    let base = ["run", "forward", "--lane", "packet", "--on", "lo"];
    let run = |more: &[&str]| laneway(&[&base[..], more].concat());
    fs::write(&rules, format!("# first\n{DROP}\n  flow create 0 ingres pattern eth / end\n"))
        .unwrap();
    refused(
        &run(&["--rules", &rules]),
        &[&rules, "line 3, column 17", "found `ingres`", "did you mean `ingress`?"],
    );
    fs::write(&rules, DROP.replace("create 0", "create 4")).unwrap();
    refused(&run(&["--rules", &rules]), &["line 1", "there is no port 4"]);
    refused(&run(&["--rules", &folder.file("gone")]), &["gone", "No such file", "--rules"]);
    refused(&run(&["--rule", "flow crate 0"]), &["column 6", "did you mean `create`?"]);
    refused(&run(&["--mode", "macswp"]), &["macswp", "did you mean `macswap`?"]);
    refused(&run(&["--mode", "l3", "--route", "10.0.0.0/8 port 3"]), &["10.0.0.0/8", "no port 3"]);
    refused(&run(&["--route", "10.0.0.0/40 port 0"]), &["--route", "32 bits"]);
    refused(&run(&["--peer", "nobody"]), &["--peer", "nobody"]);
    // What would be left undone in silence.
    let peer = ["--mode", "macswap", "--peer", "02:00:00:00:00:09"];
    refused(&run(&peer), &["--peer is for mode mac", "mode macswap"]);
    refused(&run(&["--route", "10.0.0.0/8 port 0"]), &["--route is for mode l3", "mode io"]);
    let neighbour = ["--mode", "l2", "--neighbour", "10.0.0.1 02:00:00:00:00:09"];
    refused(&run(&neighbour), &["--neighbour is for mode l3", "mode l2"]);
    refused(&run(&["--mode", "l3"]), &["no --route", "0.0.0.0/0 port 0"]);
    refused(&run(&["--mode", "bridge"]), &["`bridge`", "l2 is a bridge"]);
    refused(&run(&["--on", "lo"]), &["--on lo is given twice", "for ever"]);
    refused(&laneway(&["run", "forward", "--lane", "packet"]), &["which ports?", "--on IFACE"]);
    let queue = DROP.replace("drop", "queue index 3");
    refused(&run(&["--rule", &queue]), &["no queue 3", "--queues"]);
    fs::write(&rules, "flow create 0 ingress pattern \u{1b}[31mred / end\n").unwrap();
    let output = run(&["--rules", &rules]);
    refused(&output, &["line 1, column 31"]);
    assert!(
        !errors_of(&output).contains('\u{1b}'),
        "what a file holds is no command to a terminal"
    );
    refused(&run(&["--queues", "0"]), &["--queues", "1..=16"]);
    let on = |lane: &str, on: &str| laneway(&["run", "forward", "--lane", lane, "--on", on]);
    refused(&on("packet:rin", "lo"), &["rin", "did you mean `ring`?"]);
    refused(&on("afxpd", "lo"), &["afxpd", "did you mean `afxdp`?"]);
    if can_create().is_ok() {
        refused(&on("packet", "loo"), &["loo", "did you mean `lo`?"]);
    }
    let kernel = ["run", "forward", "--lane", "xdp", "--on", "lo", "--mode", "l2"];
    refused(&laneway(&kernel), &["mode l2", "user space"]);
    let sim = ["run", "forward", "--lane", "sim", "--on", "x"];
    refused(&laneway(&sim), &["sim", "use lane pcap"]);
}

/// Runs a command on a kernel that has tc flower; its answer where it cannot.
const GUEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lanes/dpdk/tests/guest.sh");
const GUEST_MISSING: i32 = 77;
const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/captures/tiny.pcap");
const TAPS: [&str; 2] = ["tap0", "tap1"];
/// The longest frame that a tap carries.
const TAP_FRAME_BYTES_MAX: usize = 1514;

#[test]
fn a_rule_is_executed_by_a_port_that_can_and_reported_so() {
    if std::env::var_os("LANEWAY_GUEST").is_some() {
        return skip("this is the kernel that it would start");
    }
    let name = "what_a_tap_steers_has_the_fate_that_software_gives_it";
    let mut guest = Command::new(GUEST);
    guest.arg(std::env::current_exe().unwrap());
    let ran = guest.args(["--ignored", "--nocapture", "--exact", name]).output().unwrap();
    let [out, err] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text));
    if ran.status.code() == Some(GUEST_MISSING) {
        return skip(err.trim());
    }
    if let Some(left_out) = err.lines().find_map(|line| line.strip_prefix("skipped: ")) {
        return skip(left_out);
    }
    assert!(ran.status.success() && out.contains("1 passed"), "{out}{err}");
}

#[test]
#[ignore = "wants a kernel with tc flower: the test before this one brings it"]
fn what_a_tap_steers_has_the_fate_that_software_gives_it() {
    let folder = Folder::new();
    let mut frames = of_many_flows(96);
    let mut reader = Reader::open(CAPTURE).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        frames.push(record.data.to_vec());
    }
    frames.retain(|frame| (ETHERNET_BYTES..=TAP_FRAME_BYTES_MAX).contains(&frame.len()));
    let to_queue = DROP.replace("drop / count", "queue index 1");
    let dropped = DROP.replace("53", "99");
    let rules_of = ["--queues", "2", "--rule", &to_queue, "--rule", &dropped];

    // In software, from a capture.
    let (a, b) = (folder.capture("a.pcap", &frames), folder.capture("b.pcap", &[]));
    let out = format!("pcap:out={}", folder.file("out.pcapng"));
    let line = ["run", "forward", "--json", "--lane", &out, "--on", &a, "--on", &b];
    let software = laneway(&[&line[..], &rules_of].concat());
    done(&software);
    let software: Value = serde_json::from_slice(&software.stdout).unwrap();

    let near = Namespace::create("cli-forward-taps").unwrap();
    let path = folder.file("taps.sock");
    let mut command = near.command(LANEWAY);
    let on = ["--on", TAPS[0], "--on", TAPS[1], "--control", &path];
    command
        .args(["run", "forward", "--lane", "dpdk:net_tap,no-huge,rxq=2"])
        .args(on)
        .args(rules_of);
    let live = || {
        let running = Running::start(command);
        let spec = "packet".parse().unwrap();
        let mut taps = FarEnds(PacketLane::open(&spec, &TAPS, OpenOptions::default()).unwrap());
        taps.send(0, &frames);
        let since = Instant::now();
        while count_of(&path, "frames") < frames.len() as u64 && since.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(20));
        }
        let answers = rules(&path, &["show rules", "show stats"]);
        assert_eq!(rules(&path, &["flow destroy 0 rule 0"]), "Flow rule #0 destroyed\n");
        assert_eq!(rules(&path, &["flow flush 0"]), "");
        (running.end(), answers)
    };
    let (output, answers) = near.enter(live).unwrap();
    done(&output);
    if answers.contains("Function not implemented") {
        return skip("net_tap keeps no rule here: its kernel has no tc flower");
    }
    let line =
        |begin: &str| answers.lines().find(|line| line.starts_with(begin)).unwrap_or_default();
    assert!(line("port 0 rule 0").contains("place offloaded (the port takes it;"), "{answers}");
    let why = "the port refuses it: action not supported: COUNT (rte_flow_validate, error 95)";
    assert!(line("port 0 rule 1").contains("place user (") && answers.contains(why), "{answers}");
    for id in [0, 1] {
        let rule = &software["rules"][id];
        let hits = format!("port 0 rule {id} hits {} bytes {} ", rule["hits"], rule["bytes"]);
        assert!(rule["hits"].as_u64() >= Some(32) && answers.contains(&hits), "{hits}: {answers}");
    }
    for (fate, frames) in software["fates"].as_object().unwrap() {
        assert_eq!(line(&format!("{fate} ")), format!("{fate} {frames}"), "{answers}");
    }
    assert_eq!(line("queue 1"), format!("queue 1 {}", software["rules"][0]["hits"]), "{answers}");
}
