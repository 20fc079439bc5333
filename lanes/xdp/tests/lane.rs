//! The lane against the running kernel. Needs root; says so and passes otherwise.

#[path = "../../../crates/bpf/tests/support/exits.rs"]
mod exits;
#[path = "../../../crates/bpf/tests/support/mod.rs"]
mod support;

use exits::{exits, scattering};
use laneway_bpf::{LiveFrames, attachment, live_frames};
use laneway_core::{Cap, DropReason, KernelHalf, KernelLane, Lane, LaneError, PortId, Wake};
use laneway_spec::LaneSpec;
use laneway_xdp::{Options, PassGuard, XdpLane, XdpProgram};
use std::{env, os::fd::AsFd, process::Command, thread, time::Duration};
use support::{Receiver, Record, Sender, cable, frame, in_namespace, ip, verdict};

const COUNT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_count.bpf.o"));
const EXITS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/test_exits.bpf.o"));
const XDP_DROP: u32 = 1;
const XDP_TX: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(20);
/// Set for the child that holds a lane until it is killed.
const HOLDER: &str = "LANEWAY_TEST_HOLDER";

fn half() -> KernelHalf {
    support::half(COUNT, 1 << 16, Vec::new())
}

fn open_half(spec: &str, on: &[&str], half: KernelHalf) -> Result<XdpLane, LaneError> {
    XdpLane::open(&spec.parse::<LaneSpec>()?, on, half, Options::default())
}

fn open(spec: &str, on: &[&str]) -> Result<XdpLane, LaneError> {
    open_half(spec, on, half())
}

fn take(lane: &mut XdpLane) -> Result<Vec<Record>, LaneError> {
    let mut records = Vec::new();
    let n = lane.receive(|run| {
        records.extend(run.chunks_exact(support::RECORD_BYTES).map(Record::read));
    })?;
    assert_eq!(n, records.len());
    Ok(records)
}

/// Receives until `count` records have come.
fn take_all(lane: &mut XdpLane, count: usize) -> Vec<Record> {
    let mut records = Vec::new();
    let mut idle = 0;
    while records.len() < count {
        match lane.wait(PATIENCE).unwrap() {
            Wake::Ready => records.extend(take(lane).unwrap()),
            Wake::Timeout => idle += 1,
        }
        let counters = lane.counters(PortId(0));
        assert!(idle < 100, "{} of {count} records; {counters:?}", records.len());
    }
    records
}

/// Waits until the program has seen `frames` of them: they may still be in the receiver's softirq.
fn await_frames(lane: &mut XdpLane, frames: u64) {
    /// Of 10 ms each.
    const NAPS_MAX: usize = 3000;
    for _ in 0..NAPS_MAX {
        if lane.counters(PortId(0)).rx_frames >= frames {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn each_mode_is_reported_as_read_back() {
    in_namespace(|| {
        cable("left", "right");
        for (spec, mode, native) in [
            ("xdp", "native", true),
            ("xdp:native", "native", true),
            ("xdp:generic", "generic", false),
        ] {
            let lane = open(spec, &["right"]).unwrap();
            let caps = lane.caps(PortId(0));
            assert_eq!(caps.obtained.has(Cap::NativeXdp), native, "{spec}");
            assert_eq!(caps.requested, caps.obtained);
            assert_eq!(caps.facts["attach_mode"], mode);
            assert_eq!(caps.facts["ring_bytes"], "65536");
            let rings: u64 = caps.facts["rings"].parse().expect("a number");
            assert_eq!(caps.kernel_memory.bpf_bytes, 65536 * rings);
            let found = attachment("right").unwrap();
            let id = if native { found.native } else { found.generic };
            assert_eq!(caps.facts["program_id"], id.unwrap().to_string());
        }
    });
}

#[test]
fn a_bell_rung_before_or_during_a_wait_ends_it() {
    in_namespace(|| {
        cable("left", "right");
        let mut lane = open("xdp", &["right"]).unwrap();
        let mut turn = |lane: &mut XdpLane| drop(take(lane).unwrap());
        laneway_testkit::hearing::before(&mut lane, &mut turn);
        laneway_testkit::hearing::during(&mut lane, &mut turn);
        // Records still wake it.
        Sender::on("left").send(&frame(100));
        assert_eq!(take_all(&mut lane, 1).len(), 1);
    });
}

#[test]
fn native_mode_is_never_replaced_silently() {
    in_namespace(|| {
        let refused = open("xdp", &["lo"]).err().unwrap();
        assert!(matches!(refused, LaneError::CapMissing { cap: Cap::NativeXdp, .. }), "{refused}");
        let lane = open("xdp:allow=native-xdp", &["lo"]).unwrap();
        let caps = lane.caps(PortId(0));
        assert!(caps.missing().has(Cap::NativeXdp));
        assert_eq!(caps.facts["attach_mode"], "generic");
        assert!(caps.facts.contains_key("native_refused"));
    });
}

#[test]
fn the_interface_of_the_default_route_needs_force() {
    in_namespace(|| {
        cable("left", "right");
        ip("addr add 198.51.100.1/24 dev right");
        ip("route add default via 198.51.100.2 dev right");
        let refused = open("xdp", &["right"]).err().unwrap();
        assert!(matches!(&refused, LaneError::Refused { .. }), "{refused}");
        assert!(refused.to_string().contains("--force"), "{refused}");
        assert!(matches!(PassGuard::attach("right"), Err(LaneError::Refused { .. })));
        assert_eq!(attachment("right").unwrap(), Default::default());
        open("xdp", &["left"]).unwrap();
        let spec: LaneSpec = "xdp".parse().unwrap();
        XdpLane::open(&spec, &["right"], half(), Options { force: true, ..Options::default() })
            .unwrap();
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    in_namespace(|| {
        cable("left", "right");
        let missing = open("xdp", &["nowhere"]).err().unwrap();
        assert!(matches!(&missing, LaneError::NotFound { .. }), "{missing}");
        let _first = open("xdp", &["right"]).unwrap();
        let busy = open("xdp", &["right"]).err().unwrap();
        assert!(matches!(&busy, LaneError::Busy { .. }), "{busy}");
        let misshapen = KernelHalf { drops_map: Some("seen"), ..half() };
        let refused = open_half("xdp", &["left"], misshapen).err().unwrap().to_string();
        let want = format!("`seen` has 2 u64 values, needed are {}", DropReason::COUNT);
        assert!(refused.contains(&want), "{refused}");
        // The second interface is busy: the first must not stay attached.
        open("xdp", &["left", "right"]).err().unwrap();
        assert_eq!(attachment("left").unwrap(), Default::default());
    });
}

#[test]
fn records_arrive_in_order_and_the_counters_close() {
    for spec in ["xdp", "xdp:generic"] {
        in_namespace(move || {
            cable("left", "right");
            let mut lane = open(spec, &["right"]).unwrap();
            let sender = Sender::on("left");
            for _ in 0..300 {
                sender.send(&frame(100));
            }
            let records = take_all(&mut lane, 300);
            lane.detach();
            assert_eq!(take(&mut lane).unwrap(), [], "nothing after the detach");
            for cpu in 0..64 {
                let of_cpu: Vec<u64> =
                    records.iter().filter(|r| r.cpu == cpu).map(|r| r.n).collect();
                assert_eq!(of_cpu, (0..of_cpu.len() as u64).collect::<Vec<_>>(), "CPU {cpu}");
            }
            let counters = lane.counters(PortId(0));
            assert_eq!((counters.rx_frames, counters.rx_bytes), (300, 30_000));
            assert_eq!(counters.lost(), 0);
        });
    }
}

#[test]
fn a_full_ring_is_counted_and_the_ledger_closes() {
    in_namespace(|| {
        cable("left", "right");
        let mut lane = open("xdp:ring=4k", &["right"]).unwrap();
        let sender = Sender::on("left");
        for _ in 0..1000 {
            sender.send(&frame(60));
        }
        await_frames(&mut lane, 1000);
        lane.detach();
        let records = take(&mut lane).unwrap().len() as u64;
        let counters = lane.counters(PortId(0));
        let full = counters.drops(DropReason::RecordRingFull);
        assert!(full > 0, "{counters:?}");
        assert_eq!(counters.rx_frames, records + full);
        assert_eq!(counters.lost(), full);
    });
}

#[test]
fn two_interfaces_share_one_half() {
    in_namespace(|| {
        cable("left", "right");
        cable("near", "far");
        let mut lane = open("xdp", &["right", "far"]).unwrap();
        assert_eq!(lane.ports(), 2);
        Sender::on("left").send(&frame(60));
        Sender::on("near").send(&frame(70));
        let mut lengths: Vec<u32> = take_all(&mut lane, 2).iter().map(|r| r.len).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [60, 70]);
        assert_eq!(lane.caps(PortId(1)).facts["attach_mode"], "native");
    });
}

#[test]
fn a_dropped_lane_is_detached() {
    in_namespace(|| {
        cable("left", "right");
        drop(open("xdp", &["right"]).unwrap());
        assert_eq!(attachment("right").unwrap(), Default::default());
        open("xdp:generic", &["right"]).unwrap();
    });
}

#[test]
fn a_killed_process_leaves_nothing_attached() {
    in_namespace(|| {
        cable("left", "right");
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "hold_a_lane_until_killed"])
            .env(HOLDER, "right")
            .spawn()
            .unwrap();
        while attachment("right").unwrap().native.is_none() {
            assert!(child.try_wait().unwrap().is_none(), "the holder ended by itself");
            thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(attachment("right").unwrap(), Default::default());
    });
}

/// Not a test by itself: the body of the child process above.
#[test]
fn hold_a_lane_until_killed() {
    let Some(interface) = env::var_os(HOLDER) else { return };
    let _lane = open("xdp", &[interface.to_str().unwrap()]).unwrap();
    // Killed long before; ends by itself should the parent die.
    thread::sleep(Duration::from_secs(600));
}

#[test]
fn an_interface_that_disappears_ends_the_lane() {
    in_namespace(|| {
        cable("left", "right");
        let mut lane = open("xdp", &["right"]).unwrap();
        let sender = Sender::on("left");
        sender.send(&frame(60));
        take_all(&mut lane, 1);
        drop(sender);
        ip("link del left");
        let gone = (0..100).find_map(|_| lane.wait(PATIENCE).err()).expect("noticed");
        assert!(matches!(&gone, LaneError::Gone { name, .. } if name == "right"), "{gone}");
        assert_eq!(lane.counters(PortId(0)).rx_frames, 1, "counters are kept");
    });
}

#[test]
fn an_app_that_outlives_interfaces_goes_on_with_those_that_are_there() {
    in_namespace(|| {
        cable("left", "right");
        cable("near", "far");
        let options = Options { outlives_interfaces: true, ..Options::default() };
        let spec: LaneSpec = "xdp".parse().unwrap();
        let mut lane = XdpLane::open(&spec, &["right", "far"], half(), options).unwrap();
        ip("link del left");
        let near = Sender::on("near");
        for n in 0..10 {
            // Longer than it takes to notice.
            assert_eq!(lane.wait(PATIENCE).unwrap(), Wake::Timeout, "{n}");
        }
        near.send(&frame(60));
        assert_eq!(take_all(&mut lane, 1).len(), 1);
        drop(near);
        ip("link del near");
        let gone = (0..100).find_map(|_| lane.wait(PATIENCE).err()).expect("noticed");
        assert!(matches!(&gone, LaneError::Gone { name, .. } if name == "far"), "{gone}");
    });
}

fn open_spread(spec: &str, half: KernelHalf) -> Result<XdpLane, LaneError> {
    let options = Options { never_transmits: true, ..Options::default() };
    XdpLane::open(&spec.parse::<LaneSpec>()?, &["right"], half, options)
}

/// A UDP frame of `len` bytes; either direction of a flow with this port.
fn flow_frame(port: u16, back: bool, len: usize) -> Vec<u8> {
    let mut frame = frame(len);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
    let ends = [([192, 0, 2, 1], port), ([192, 0, 2, 2], 9)];
    let (source, destination) = if back { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
    frame[26..30].copy_from_slice(&source.0);
    frame[30..34].copy_from_slice(&destination.0);
    frame[34..36].copy_from_slice(&source.1.to_be_bytes());
    frame[36..38].copy_from_slice(&destination.1.to_be_bytes());
    frame
}

fn has_two_cpus() -> bool {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let two = online.trim_end() != "0";
    if !two {
        support::say("skipped: two flows on two CPUs need two CPUs");
    }
    two
}

#[test]
fn each_flow_runs_on_one_cpu_and_the_counters_close() {
    if !has_two_cpus() {
        return;
    }
    const FLOWS: usize = 16;
    const ROUNDS: usize = 20;
    for spec in ["xdp:cpus=0-1", "xdp:generic,cpus=0-1"] {
        in_namespace(move || {
            cable("left", "right");
            let mut lane = open_spread(spec, half()).unwrap();
            let facts = &lane.caps(PortId(0)).facts;
            assert_eq!((&*facts["cpus"], &*facts["cpu_queue_frames"]), ("0-1", "2048"));
            assert!(facts["verdicts"].contains("nothing transmits"));
            let sender = Sender::on("left");
            for round in 0..ROUNDS {
                for flow in 0..FLOWS {
                    // The length tells the flow.
                    let frame = flow_frame(1000 + flow as u16, round % 2 == 1, 60 + flow);
                    sender.send(&frame);
                }
            }
            let records = take_all(&mut lane, FLOWS * ROUNDS);
            lane.detach();
            assert_eq!(take(&mut lane).unwrap(), [], "nothing after the detach");
            let mut cpus: Vec<u32> = (0..FLOWS as u32)
                .map(|flow| {
                    let of_flow = records.iter().filter(|record| record.len == 60 + flow);
                    let cpus: Vec<u32> = of_flow.map(|record| record.cpu).collect();
                    assert_eq!(cpus, vec![cpus[0]; ROUNDS], "flow {flow}, both directions");
                    cpus[0]
                })
                .collect();
            cpus.sort_unstable();
            cpus.dedup();
            assert_eq!(cpus, [0, 1], "both CPUs have flows");
            let counters = lane.counters(PortId(0));
            assert_eq!((counters.rx_frames, counters.lost()), ((FLOWS * ROUNDS) as u64, 0));
        });
    }
}

/// Their MAC addresses are the same: flows that the program cannot see all go to one CPU.
#[test]
fn flows_behind_a_tag_of_any_type_are_spread_as_others_are() {
    if !has_two_cpus() {
        return;
    }
    const FLOWS: u16 = 32;
    for tag in [0x8100_u16, 0x88a8, 0x9100] {
        in_namespace(move || {
            cable("left", "right");
            let mut lane = open_spread("xdp:cpus=0-1", half()).unwrap();
            let sender = Sender::on("left");
            for flow in 0..FLOWS {
                let mut frame = flow_frame(1000 + flow, false, 60);
                let [high, low] = tag.to_be_bytes();
                frame.splice(12..12, [high, low, 0, 5]);
                sender.send(&frame);
            }
            let records = take_all(&mut lane, FLOWS.into());
            for cpu in [0, 1] {
                assert!(records.iter().any(|it| it.cpu == cpu), "{tag:#x}: none on CPU {cpu}");
            }
        });
    }
}

#[test]
fn frames_that_find_the_queue_of_their_cpu_full_are_counted_and_the_ledger_closes() {
    const ROUND: u64 = 3000;
    const FRAMES_MAX: u64 = 100 * ROUND;
    in_namespace(|| {
        cable("left", "right");
        let mut lane = open_spread("xdp:cpus=0,cpu_queue=1,ring=1m", half()).unwrap();
        let sender = Sender::on("left");
        // The thread behind the queue may be quick enough for some thousand frames, one by one.
        let (mut sent, mut records) = (0, 0);
        while sent == 0
            || lane.counters(PortId(0)).drops(DropReason::RxQueueFull) == 0 && sent < FRAMES_MAX
        {
            (0..ROUND).for_each(|_| sender.send(&frame(60)));
            sent += ROUND;
            await_frames(&mut lane, sent);
            records += take(&mut lane).unwrap().len() as u64;
        }
        lane.detach();
        records += take(&mut lane).unwrap().len() as u64;
        let counters = lane.counters(PortId(0));
        let full = counters.drops(DropReason::RxQueueFull);
        assert_eq!(counters.drops(DropReason::RxError), 0, "every frame was found: {counters:?}");
        assert_eq!((counters.rx_frames, counters.rx_frames - full), (sent, records));
        assert_eq!(counters.rx_bytes, sent * 60);
        assert!(full > 0, "a queue of one frame holds {records}");
    });
}

#[test]
fn cpus_are_refused_where_they_cannot_be() {
    in_namespace(|| {
        cable("left", "right");
        let refused = |opened: Result<XdpLane, LaneError>| opened.err().unwrap().to_string();
        let sends = refused(open("xdp:cpus=0", &["right"]));
        assert!(sends.contains("XDP_TX") && sends.contains("leave cpus= out"), "{sends}");
        let missing = refused(open_spread("xdp:cpus=0+999", half()));
        assert!(missing.contains("no CPU `999`"), "{missing}");
        let uncounted = KernelHalf { seen_map: None, ..half() };
        let uncounted = refused(open_spread("xdp:cpus=0", uncounted));
        assert!(uncounted.contains("counts no frames"), "{uncounted}");
        assert_eq!(attachment("right").unwrap(), Default::default());
    });
}

#[test]
fn a_pass_program_lets_the_far_end_see_what_xdp_transmits() {
    in_namespace(|| {
        cable("left", "right");
        let tx = support::half(COUNT, 1 << 16, vec![verdict(XDP_TX)]);
        let mut lane = open_half("xdp", &["right"], tx).unwrap();
        let guard = PassGuard::attach("left").unwrap();
        assert_eq!(attachment("left").unwrap().native, Some(guard.program_id()));
        let back = Receiver::on("left");
        Sender::on("left").send(&frame(77));
        take_all(&mut lane, 1);
        assert_eq!(back.receive(), frame(77));
        drop(guard);
        assert_eq!(attachment("left").unwrap(), Default::default());
    });
}

#[test]
fn programs_on_the_way_out_need_native_mode() {
    in_namespace(|| {
        cable("left", "right");
        let half = || scattering(EXITS, exits(&["right"]));
        for (spec, on) in [("xdp:generic", "right"), ("xdp:allow=native-xdp", "lo")] {
            let refused = open_half(spec, &[on], half()).err().unwrap().to_string();
            assert!(refused.contains("share their bytes"), "{refused}");
            assert_eq!(attachment(on).unwrap(), Default::default());
        }
        open_half("xdp", &["right"], half()).unwrap();
    });
}

#[test]
fn what_the_kernel_drops_on_the_way_out_is_reported_by_interface() {
    const FRAMES: u64 = 37;
    in_namespace(|| {
        for (left, right) in [("left", "right"), ("one", "far1"), ("two", "far2")] {
            cable(left, right);
        }
        let ports = ["right", "one", "two"];
        let mut lane = open_half("xdp", &ports, scattering(EXITS, exits(&["one", "two"]))).unwrap();
        let _guards = ["far1", "far2"].map(|end| PassGuard::attach(end).unwrap());
        // There nothing takes frames any more.
        ip("link set far2 down");
        let (sender, taken) = (Sender::on("left"), Receiver::on("far1"));
        (0..FRAMES).for_each(|_| sender.send(&frame(60)));
        (0..FRAMES).for_each(|_| drop(taken.receive()));
        await_frames(&mut lane, FRAMES);
        lane.detach();
        let dropped = |interface: &str| {
            let counters = lane.maps().exit_drops(support::ifindex(interface));
            (counters.drops(DropReason::TxRefused), counters.lost())
        };
        assert_eq!((dropped("right"), dropped("one")), ((0, 0), (0, 0)));
        assert_eq!(dropped("two"), (FRAMES, FRAMES));
        assert_eq!(lane.counters(PortId(0)).lost(), FRAMES);
    });
}

#[test]
fn a_ring_that_is_full_at_the_far_end_is_named_so() {
    /// Sent within one softirq, so that the far end cannot empty its ring of 256 meanwhile.
    const FRAMES: u32 = 256;
    const COPIES: u64 = 3;
    in_namespace(|| {
        cable("left", "right");
        cable("one", "far1");
        let half = scattering(EXITS, exits(&["one"; COPIES as usize]));
        let mut lane = open_half("xdp", &["right", "one"], half).unwrap();
        let drops = vec![verdict(XDP_DROP)];
        let mut far = open_half("xdp", &["far1"], support::half(COUNT, 1 << 16, drops)).unwrap();
        let program = XdpProgram::find(&lane.caps(PortId(0)).facts["program_id"]).unwrap();
        let ingress_ifindex = support::ifindex("right");
        let frame = &frame(60);
        let live = LiveFrames { frame, meta: &[], frames: FRAMES, batch: FRAMES, ingress_ifindex };
        live_frames(program.as_fd(), live).unwrap();
        lane.detach();
        let dropped = lane.maps().exit_drops(support::ifindex("one"));
        let full = dropped.drops(DropReason::TxInterfaceFull);
        assert_eq!(dropped.lost(), full, "{dropped:?}");
        let all = u64::from(FRAMES) * COPIES;
        assert!((1..all).contains(&full), "{full} of {all}");
        await_frames(&mut far, all - full);
        assert_eq!(far.counters(PortId(0)).rx_frames, all - full);
    });
}

/// Opens a lane on `right` that sends `frames` of them back, and gives what became of them.
fn send_back(frames: u64) -> (u64, Vec<String>) {
    let tx = support::half(COUNT, 1 << 16, vec![verdict(XDP_TX)]);
    let mut lane = open_half("xdp", &["right"], tx).unwrap();
    let sender = Sender::on("left");
    (0..frames).for_each(|_| sender.send(&frame(60)));
    await_frames(&mut lane, frames);
    lane.detach();
    let counters = lane.counters(PortId(0));
    let refused = counters.drops(DropReason::TxRefused);
    assert_eq!((counters.rx_frames, counters.lost()), (frames, refused));
    (refused, lane.caps(PortId(0)).notes.clone())
}

#[test]
fn what_the_kernel_drops_behind_xdp_tx_is_counted() {
    const FRAMES: u64 = 37;
    in_namespace(|| {
        cable("left", "right");
        let (lost, notes) = send_back(FRAMES);
        assert_eq!(lost, FRAMES, "nothing at the far end takes them");
        let note = notes.iter().find(|note| note.contains("`right` is a veth")).expect("a note");
        assert!(note.contains("drops it (counted as tx_refused; "), "{note}");
        assert!(note.contains("receivers drop them: `ethtool -K IF tx off` there"), "{note}");
        assert!(
            note.ends_with("what the program sends has none: `ethtool -K IF txvlan off` there"),
            "{note}"
        );
        let _guard = PassGuard::attach("left").unwrap();
        assert_eq!(send_back(FRAMES).0, 0, "the far end takes them");
    });
}

#[test]
fn what_is_dropped_behind_other_interfaces_is_not_counted() {
    in_namespace(|| {
        cable("left", "right");
        cable("left2", "right2");
        let ours = support::ifindex("right");
        let tx = || support::half(COUNT, 1 << 16, vec![verdict(XDP_TX)]);
        let mut idle = open_half("xdp", &["right"], tx()).unwrap();
        // Of the same namespace with another number, of another namespace with the same one.
        let mut beside = open_half("xdp", &["right2"], tx()).unwrap();
        Sender::on("left2").send(&frame(60));
        await_frames(&mut beside, 1);
        in_namespace(move || {
            cable("left", "right");
            assert_eq!(support::ifindex("right"), ours);
            assert_eq!(send_back(5).0, 5);
        });
        beside.detach();
        assert_eq!(beside.counters(PortId(0)).lost(), 1);
        assert_eq!(idle.counters(PortId(0)).lost(), 0);
    });
}
