//! The rows of app `features` are the same on every live lane: frames of captures cross a cable into
//! `packet`, `packet:batch`, `afxdp` and `xdp`, and each row equals the parser's in every column but
//! time.
//!
//! The frames are sent by a lane, too, a few at a time: the next ones leave when the last ones have
//! become rows, so that no queue overflows and an order is certain. Needs root; says so otherwise.

use laneway_afxdp::AfXdp;
use laneway_capture::{Reader, ethernet};
use laneway_core::{FrameApp, FrameLane, KernelApp, KernelLane, Lane, PortId, Turn, Verdict};
use laneway_engine::pin_to_cpu;
use laneway_features::{
    Config, Disposition, Features, KernelFeatures, PacketRow, Profile, Sink, Stamp, Tables, parse,
};
use laneway_flow::{EndedFlow, Record};
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_spec::LaneSpec;
use laneway_testkit::{Patience, captures, skip};
use laneway_xdp::{Options, XdpLane};
use std::{
    fs,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// Frames taken from each capture.
const FRAMES_PER_CAPTURE: usize = 400;
/// Frames in flight at a time: a veth ring has 256 slots.
const FRAMES_IN_FLIGHT: usize = 32;
/// An untagged frame of MTU 1500, and the shortest that a device takes.
const FRAME_BYTES: std::ops::RangeInclusive<usize> = 14..=1514;
/// Empty turns in a row after which either end gives up on the other: at least 10 s, whatever the
/// lane says to a wait.
const TURNS_MAX: usize = 2000;
const TURN: Duration = Duration::from_millis(10);
const NEAR: &str = "near0";
const FAR: &str = "far0";

#[derive(Default)]
struct Kept(Vec<Record>);

impl Sink for Kept {
    fn packet(&mut self, record: &Record) {
        self.0.push(*record);
    }

    fn flow(&mut self, _ended: &EndedFlow<'_>) {}
}

/// Frames that a device takes as they are.
fn frames() -> Vec<Vec<u8>> {
    let (mut frames, mut scratch, mut unsent) = (Vec::new(), Vec::new(), 0);
    for file in captures() {
        let Ok(mut reader) = Reader::open(&file.path) else { continue };
        let mut taken = 0;
        while let (Ok(Some(record)), true) = (reader.next_record(), taken < FRAMES_PER_CAPTURE) {
            let Ok(frame) = ethernet(&record, &mut scratch) else { continue };
            taken += 1;
            if FRAME_BYTES.contains(&frame.data.len()) && !is_cut_tag(frame.data) {
                frames.push(frame.data.to_vec());
            } else {
                unsent += 1;
            }
        }
    }
    skip(format!(
        "{unsent} frames that a cable of MTU 1500 does not carry: shorter than a header, longer than \
         the MTU, or with half a VLAN tag, which the kernel drops before any socket"
    ));
    frames
}

/// The kernel takes the outer tag off, for which it must be whole and followed by a type.
fn is_cut_tag(frame: &[u8]) -> bool {
    let is_tagged = matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xa8]);
    is_tagged && frame.len() < 20
}

struct World {
    _cable: VethPair,
    near: Namespace,
    far: Namespace,
}

fn world() -> Option<World> {
    if let Err(missing) = can_create() {
        skip(missing);
        return None;
    }
    let make = || {
        let (near, far) = (Namespace::create("rows-near")?, Namespace::create("rows-far")?);
        let mut options = VethOptions::default();
        for (end, side) in [(&mut options.a, 0), (&mut options.b, 1)] {
            let mac = Mac([0x02, 0x4c, 0x57, 0x20, 0, side]);
            *end = VethEnd { mac, addresses: Vec::new(), ..end.clone() };
            // Segments of one connection would be received as one frame.
            end.offloads.gro = false;
        }
        let cable = VethPair::create(&near, NEAR, &far, FAR, &options)?;
        Ok(World { _cable: cable, near, far })
    };
    Some(make().unwrap_or_else(|e: laneway_netns::Error| panic!("{e}")))
}

/// Sends every frame from the far end, a few at a time, as `received` grows.
fn send(frames: &[Vec<u8>], received: &AtomicUsize) {
    // A veth frame is received on its sender's CPU, and the kernel half numbers frames per CPU.
    assert!((0..1024).any(|cpu| pin_to_cpu(cpu).is_ok()), "a CPU that may be used");
    let spec: LaneSpec = "packet".parse().expect("a spec");
    let mut lane =
        PacketLane::open(&spec, &[FAR], OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let port = PortId(0);
    let mut sent = 0;
    for chunk in frames.chunks(FRAMES_IN_FLIGHT) {
        let burst = lane.lend(port, chunk.len()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(burst.len(), chunk.len(), "free buffers");
        for (i, bytes) in chunk.iter().enumerate() {
            let mut frame = burst.frame_mut(i);
            assert!(frame.set_len(bytes.len()), "a frame fits its buffer");
            frame.bytes_mut().copy_from_slice(bytes);
            frame.set_verdict(Verdict::Tx);
        }
        lane.settle(port).unwrap_or_else(|e| panic!("{e}"));
        sent += chunk.len();
        let is_through = (0..TURNS_MAX * 10).any(|_| {
            let through = received.load(Ordering::Acquire) >= sent;
            if !through {
                thread::sleep(TURN / 10);
            }
            through
        });
        if !is_through {
            // The rows tell which frame is missing.
            return;
        }
    }
}

/// Receives with `receive` in the near namespace while the frames are sent; it gets the interface's
/// index, a signal to give when it is open, and the count to keep up to date.
fn rows(
    world: &World,
    frames: &[Vec<u8>],
    receive: impl FnOnce(u32, mpsc::Sender<()>, &AtomicUsize) -> Vec<Record> + Send,
) -> Vec<Record> {
    let received = AtomicUsize::new(0);
    let (open, is_open) = mpsc::channel();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let inside = || {
                let index = fs::read_to_string(format!("/sys/class/net/{NEAR}/ifindex"));
                let index = index.expect("it is there").trim().parse().expect("a number");
                receive(index, open, &received)
            };
            world.near.enter(inside).unwrap_or_else(|e| panic!("{e}"))
        });
        if is_open.recv().is_ok() {
            world.far.enter(|| send(frames, &received)).unwrap_or_else(|e| panic!("{e}"));
        }
        receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn config() -> Config {
    Config { disposition: Disposition::Drop, ..Config::default() }
}

/// The rows of a frame lane.
fn rows_of_frames<L: FrameLane>(
    mut lane: L,
    index: u32,
    want: usize,
    open: &mpsc::Sender<()>,
    received: &AtomicUsize,
) -> Vec<Record> {
    let mut app = Features::new(&config(), vec![index], Kept::default());
    let (port, turn) = (PortId(0), Turn::default());
    let _ = open.send(());
    let mut patience = Patience::new(TURNS_MAX);
    while app.sink().0.len() < want && !patience.is_over() {
        let burst = lane.receive(port).unwrap_or_else(|e| panic!("{e}"));
        let is_empty = burst.is_empty();
        app.on_burst(port, burst, turn);
        lane.settle(port).unwrap_or_else(|e| panic!("{e}"));
        received.store(app.sink().0.len(), Ordering::Release);
        if is_empty {
            patience.wait(|| lane.wait(TURN).unwrap_or_else(|e| panic!("{e}")));
        } else {
            patience = Patience::new(TURNS_MAX);
        }
    }
    assert_eq!(lane.counters(port).lost(), 0);
    app.into_sink().0
}

/// The rows of the kernel half.
fn rows_of_kernel(
    spec: &LaneSpec,
    want: usize,
    open: &mpsc::Sender<()>,
    received: &AtomicUsize,
) -> Vec<Record> {
    let mut app = KernelFeatures::new(config(), Kept::default());
    let mut lane = XdpLane::open(spec, &[NEAR], app.half(), Options::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let _ = open.send(());
    let mut patience = Patience::new(TURNS_MAX);
    while app.sink().0.len() < want && !patience.is_over() {
        let records = lane
            .receive(|records| app.on_records(records, Turn::default()))
            .unwrap_or_else(|e| panic!("{e}"));
        received.store(app.sink().0.len(), Ordering::Release);
        if records == 0 {
            patience.wait(|| lane.wait(TURN).unwrap_or_else(|e| panic!("{e}")));
        } else {
            patience = Patience::new(TURNS_MAX);
        }
    }
    lane.detach();
    assert_eq!(lane.counters(PortId(0)).lost(), 0);
    assert_eq!(lane.counters(PortId(0)).rx_frames, app.sink().0.len() as u64);
    app.into_sink().0
}

/// Each record against the parser's, all fields but the time; then the columns as they are written.
fn check(spec: &str, frames: &[Vec<u8>], index: u32, rows: Vec<Record>) {
    let ours: Vec<Record> = (0..)
        .zip(frames)
        .map(|(seq_no, bytes)| {
            let wire_len = bytes.len() as u32;
            parse(bytes, Stamp { ts_ns: 0, seq_no, wire_len, ifindex: index, rx_queue: 0 })
        })
        .collect();
    let mut last_ns = 0;
    let mut theirs = rows;
    for record in &mut theirs {
        assert!(record.ts_ns >= last_ns && record.ts_ns > 0, "{spec}: time runs backwards");
        last_ns = record.ts_ns;
        record.ts_ns = 0;
    }
    for (i, bytes) in frames.iter().enumerate() {
        assert_eq!(theirs.get(i), Some(&ours[i]), "{spec}: frame {i}: {bytes:02x?}");
    }
    assert_eq!(theirs.len(), ours.len(), "{spec}");
    let Tables::Packets(table) = Tables::new(&config(), Profile::Core, 0) else { unreachable!() };
    let batch = |records: &[Record]| {
        let rows: Vec<_> = records.iter().map(|r| PacketRow { source: 0, record: *r }).collect();
        table.batch(&rows)
    };
    assert_eq!(batch(&theirs), batch(&ours), "{spec}");
}

fn frame_lane_gives_the_parsers_rows<L: FrameLane>(
    text: &'static str,
    lane: impl FnOnce(&LaneSpec) -> Result<L, laneway_core::LaneError> + Send,
) {
    let Some(world) = world() else { return };
    let frames = frames();
    let mut interface = 0;
    let rows = rows(&world, &frames, |index, open, received| {
        interface = index;
        let spec: LaneSpec = text.parse().expect("a spec");
        let lane = lane(&spec).unwrap_or_else(|e| panic!("{e}"));
        rows_of_frames(lane, index, frames.len(), &open, received)
    });
    check(text, &frames, interface, rows);
}

#[test]
fn lane_packet_gives_the_parsers_rows() {
    frame_lane_gives_the_parsers_rows("packet", |spec| {
        PacketLane::open(spec, &[NEAR], OpenOptions::default())
    });
}

#[test]
fn lane_packet_in_batches_gives_the_parsers_rows() {
    frame_lane_gives_the_parsers_rows("packet:batch", |spec| {
        PacketLane::open(spec, &[NEAR], OpenOptions::default())
    });
}

#[test]
fn lane_afxdp_gives_the_parsers_rows() {
    frame_lane_gives_the_parsers_rows("afxdp:copy", |spec| AfXdp::open(spec, &[NEAR], false));
}

#[test]
fn lane_xdp_gives_the_parsers_rows() {
    for text in ["xdp", "xdp:generic"] {
        let Some(world) = world() else { return };
        let frames = frames();
        let mut interface = 0;
        let rows = rows(&world, &frames, |index, open, received| {
            interface = index;
            let spec: LaneSpec = text.parse().expect("a spec");
            rows_of_kernel(&spec, frames.len(), &open, received)
        });
        check(text, &frames, interface, rows);
    }
}
