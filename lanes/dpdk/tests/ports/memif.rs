//! net_memif between two processes: the lane at one end, DPDK's own `dpdk-testpmd` at the other, which
//! gives every frame back with its MAC addresses swapped.

use crate::world::{Alone, spec};
use laneway_core::{FrameLane, Lane, LaneError, PortId, Verdict, Wake};
use laneway_dpdk::DpdkLane;
use laneway_testkit::{UdpFrame, lend_and_send, skip};
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::Duration,
};

const PORT: PortId = PortId(0);
/// The connection's number at both ends.
const ID: u32 = 3;
/// Frames per send, the lane's default burst.
const BURST_FRAMES: usize = 64;
const TESTPMD: &str = "dpdk-testpmd";
const NAP: Duration = Duration::from_millis(10);
/// Naps until the peer has started, has ended, or the link has changed.
const NAPS_MAX: usize = 3000;
/// Naps until a client knows that it started before the server was ready: such a client does not retry.
const LINK_NAPS: usize = 50;
/// Attempts to connect to a peer that is still starting.
const CONNECT_TRIES: usize = 60;
/// Waits of [`NAP`] without a frame after which one that should come counts as lost.
const SILENT_WAITS_MAX: usize = 3000;
/// Waits of [`NAP`] in which nothing comes from a peer that is not there.
const LONELY_WAITS: usize = 200;
/// Lengths of the frames sent, in turn.
const LENGTHS: [usize; 6] = [60, 64, 65, 576, 1513, 1514];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

impl Role {
    fn name(self) -> &'static str {
        if self == Role::Server { "server" } else { "client" }
    }
}

/// A folder that is removed with everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new(of: &str) -> Folder {
        let name = format!("laneway-memif-{of}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).expect("the folder for temporary files is writable");
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What testpmd says of its port when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PeerCounters {
    received: u64,
    sent: u64,
}

/// The other process; killed when dropped.
struct Peer {
    child: Child,
    input: Option<ChildStdin>,
}

impl Peer {
    /// Starts testpmd with the other role on `socket`, which is a path, or a name after `@`.
    /// Everything that DPDK writes of its own accord goes to `folder`.
    fn start(role: Role, socket: &str, folder: &Path) -> Peer {
        let (name, is_abstract) = match socket.strip_prefix('@') {
            Some(name) => (name, "yes"),
            None => (socket, "no"),
        };
        let role = role.name();
        let device =
            format!("net_memif0,role={role},socket={name},socket-abstract={is_abstract},id={ID}");
        let mut child = Command::new(TESTPMD)
            .args(["--no-shconf", "--no-huge", "-m", "128", "--no-pci", "--no-telemetry"])
            // testpmd wants two workers; one of them sleeps.
            .args(["--lcores", &format!("(0,1)@{}", first_processor()), "--vdev", &device])
            // Frames that arrived before it began belong to the test.
            .args(["--", "--forward-mode=macswap", "--no-flush-rx", "--total-num-mbufs=4096"])
            .arg("--no-mlockall")
            .env("RUNTIME_DIRECTORY", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it was found a moment ago");
        let input = child.stdin.take();
        Peer { child, input }
    }

    /// Ends it by the end of its input, as testpmd wants it, and reads its last words.
    fn end(mut self) -> PeerCounters {
        drop(self.input.take());
        let has_ended =
            within_naps(NAPS_MAX, || self.child.try_wait().expect("it is our child").is_some());
        assert!(has_ended, "testpmd does not end");
        let mut said = String::new();
        let output = self.child.stdout.as_mut().expect("piped");
        output.read_to_string(&mut said).expect("text");
        let number = |label: &str| {
            let after = said.split(label).nth(1).and_then(|rest| rest.split_whitespace().next());
            after.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {label} in: {said}"))
        };
        PeerCounters { received: number("RX-packets:"), sent: number("TX-packets:") }
    }

    fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True when `holds` does within so many naps.
fn within_naps(naps: usize, mut holds: impl FnMut() -> bool) -> bool {
    (0..naps).any(|_| {
        let held = holds();
        if !held {
            thread::sleep(NAP);
        }
        held
    })
}

/// DPDK for this test alone and a peer to start, or a printed reason why not.
fn alone_with_testpmd() -> Option<Alone> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&folders).any(|folder| folder.join(TESTPMD).exists()) {
        skip(format!("no {TESTPMD} here (`apt-get install dpdk-dev`)"));
        return None;
    }
    Alone::new().map_err(skip).ok()
}

/// The first processor that this process may use.
fn first_processor() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let list = status.split("Cpus_allowed_list:").nth(1).expect("Linux says it").trim_start();
    list.chars().take_while(char::is_ascii_digit).collect()
}

fn open(role: Role, socket: &str) -> Result<DpdkLane, LaneError> {
    let role = role.name();
    let text = format!("dpdk:net_memif,no-huge,role={role},id={ID},socket={socket}");
    DpdkLane::open(&spec(&text), &["m0"], false)
}

/// A lane of this role, connected to a new peer of the other.
fn connect(role: Role, socket: &str, folder: &Path) -> (DpdkLane, Peer) {
    if role == Role::Server {
        let lane = open(role, socket).expect("opens");
        let peer = Peer::start(Role::Client, socket, folder);
        assert!(within_naps(NAPS_MAX, || lane.is_linked(PORT)), "testpmd does not connect");
        return (lane, peer);
    }
    let peer = Peer::start(Role::Server, socket, folder);
    for _ in 0..CONNECT_TRIES {
        match open(role, socket) {
            Ok(lane) if within_naps(LINK_NAPS, || lane.is_linked(PORT)) => return (lane, peer),
            Ok(_) => {}
            Err(LaneError::Os { .. }) => thread::sleep(NAP * LINK_NAPS as u32),
            Err(e) => panic!("{e}"),
        }
    }
    panic!("testpmd does not listen");
}

fn frames(count: usize) -> Vec<Vec<u8>> {
    let build = |i: usize| {
        let bytes = LENGTHS[i % LENGTHS.len()];
        UdpFrame { sequence: i as u64, bytes, ..UdpFrame::default() }.build()
    };
    (0..count).map(build).collect()
}

/// Lends, fills and sends all of them, burst by burst.
fn send(lane: &mut DpdkLane, frames: &[Vec<u8>]) {
    for chunk in frames.chunks(BURST_FRAMES) {
        let got = lend_and_send(lane, PORT, chunk.len(), chunk, Verdict::Tx);
        assert_eq!(got, chunk.len());
    }
}

/// What comes, until `expected` frames are there or it stays silent; with none expected, what comes
/// nevertheless.
fn receive(lane: &mut DpdkLane, expected: usize) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    let mut silent_waits = 0;
    let silent_waits_max = if expected > 0 { SILENT_WAITS_MAX } else { LONELY_WAITS };
    while (expected == 0 || received.len() < expected) && silent_waits < silent_waits_max {
        let wake = lane.wait(NAP).expect("the lane waits");
        silent_waits += usize::from(wake == Wake::Timeout);
        let burst = lane.receive(PORT).expect("the lane receives");
        received.extend((0..burst.len()).map(|i| burst.frame(i).bytes.to_vec()));
        lane.settle(PORT).expect("the lane settles");
    }
    received
}

fn swapped(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}

/// Sends the first frame of a connection. A client makes room for the server's frames by receiving, so
/// a linked server is refused until its peer has received once, and as a client the lane begins so.
fn send_first(lane: &mut DpdkLane, frame: &[Vec<u8>]) {
    let sent = |lane: &mut DpdkLane| lane.counters(PORT).tx_frames;
    let before = sent(lane);
    let leaves = within_naps(NAPS_MAX, || {
        assert!(lane.receive(PORT).expect("the lane receives").is_empty());
        send(lane, frame);
        sent(lane) > before
    });
    assert!(leaves, "the peer makes no room");
}

/// Sends, gets everything back, and compares what all three count.
fn round_trip(lane: &mut DpdkLane, peer: Peer, count: usize) {
    let before = lane.counters(PORT);
    let sent = frames(count);
    send_first(lane, &sent[..1]);
    let lost_before = lane.counters(PORT).lost();
    send(lane, &sent[1..]);
    let want: Vec<_> = sent.iter().map(|frame| swapped(frame)).collect();
    let received = receive(lane, count);
    assert_eq!(received.len(), want.len());
    assert!(received == want, "bytes or their order changed");
    let counters = lane.counters(PORT);
    let bytes = sent.iter().map(|frame| frame.len() as u64).sum::<u64>();
    let count = count as u64;
    assert_eq!((counters.tx_frames - before.tx_frames, counters.lost()), (count, lost_before));
    assert_eq!(counters.rx_frames - before.rx_frames, count);
    assert_eq!(counters.tx_bytes - before.tx_bytes, bytes);
    assert_eq!(counters.rx_bytes - before.rx_bytes, bytes);
    assert_eq!(peer.end(), PeerCounters { received: count, sent: count });
    assert_eq!(lane.mbufs_in_use(), 0);
}

/// What this process still has of a connection: mappings of its memory, and its socket's name.
fn traces(socket: &str) -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux has it");
    let sockets = fs::read_to_string("/proc/thread-self/net/unix").expect("Linux has it");
    let mapped = maps.lines().filter(|line| line.contains("memfd:memif"));
    let named = sockets.lines().filter(|line| line.ends_with(socket));
    mapped.chain(named).map(str::to_owned).collect()
}

#[track_caller]
fn comes_back(role: Role, abstract_name: bool) {
    let Some(_alone) = alone_with_testpmd() else { return };
    let folder = Folder::new(role.name());
    let socket = match abstract_name {
        true => format!("@laneway-{}-{}", role.name(), std::process::id()),
        false => folder.0.join("socket").display().to_string(),
    };
    let (mut lane, peer) = connect(role, &socket, &folder.0);
    round_trip(&mut lane, peer, 4 * BURST_FRAMES);
    drop(lane);
    assert!(!folder.0.join("socket").exists());
    assert_eq!(traces(&socket), Vec::<String>::new());
}

#[test]
fn a_servers_frames_come_back_from_another_process() {
    comes_back(Role::Server, false);
}

#[test]
fn a_clients_frames_come_back_from_another_process() {
    comes_back(Role::Client, false);
}

#[test]
fn a_servers_frames_come_back_by_an_abstract_socket() {
    comes_back(Role::Server, true);
}

#[test]
fn a_clients_frames_come_back_by_an_abstract_socket() {
    comes_back(Role::Client, true);
}

/// Without a peer: nothing comes, nothing is an error, and what is sent is counted as refused.
fn stays_alone(lane: &mut DpdkLane) {
    assert!(within_naps(NAPS_MAX, || !lane.is_linked(PORT)), "the link stays up");
    let before = lane.counters(PORT);
    assert_eq!(receive(lane, 0), Vec::<Vec<u8>>::new());
    send(lane, &frames(BURST_FRAMES));
    let counters = lane.counters(PORT);
    assert_eq!(counters.tx_frames, before.tx_frames);
    assert_eq!(counters.lost() - before.lost(), BURST_FRAMES as u64);
    assert_eq!(lane.mbufs_in_use(), 0);
}

#[test]
fn a_server_outlives_a_killed_client_and_takes_the_next() {
    let Some(_alone) = alone_with_testpmd() else { return };
    let folder = Folder::new("killed");
    let socket = folder.0.join("socket").display().to_string();
    let (mut lane, peer) = connect(Role::Server, &socket, &folder.0);
    peer.kill();
    stays_alone(&mut lane);
    let peer = Peer::start(Role::Client, &socket, &folder.0);
    assert!(within_naps(NAPS_MAX, || lane.is_linked(PORT)), "testpmd does not connect");
    round_trip(&mut lane, peer, BURST_FRAMES);
    stays_alone(&mut lane);
}

#[test]
fn a_client_outlives_its_server_and_opens_again() {
    let Some(_alone) = alone_with_testpmd() else { return };
    let folder = Folder::new("ended");
    let socket = folder.0.join("socket").display().to_string();
    let (mut lane, peer) = connect(Role::Client, &socket, &folder.0);
    peer.end();
    stays_alone(&mut lane);
    drop(lane);
    let (mut lane, peer) = connect(Role::Client, &socket, &folder.0);
    round_trip(&mut lane, peer, BURST_FRAMES);
}

#[test]
fn a_client_without_a_server_is_refused() {
    let Some(_alone) = alone_with_testpmd() else { return };
    let folder = Folder::new("nobody");
    let socket = folder.0.join("socket").display().to_string();
    let sentence = match open(Role::Client, &socket) {
        Ok(_) => panic!("it opened"),
        Err(e) => e.to_string(),
    };
    assert!(sentence.contains(&socket) && sentence.contains("server"), "{sentence}");
}
