//! The frame conformance suite over veth, and what it does not ask: tags, truncation, own frames,
//! other interfaces, lost interfaces, and refusals.

use crate::{
    cables::{FAR, NEAR, PORTS_MAX, give_up_capabilities, set_link},
    frames_world::World,
};
use laneway_core::{Burst, Cap, DropReason, FrameLane, Lane, LaneError, PortId, Verdict};
use laneway_spec::LaneSpec;
use laneway_testkit::{
    Disturbance, Overload, Properties, Rig, lend_and_send, receive_all, return_all, sequence, skip,
    udp_frames, what_waits_is_refused_at_the_end, young_enough,
};
use laneway_uring::{OpenOptions, UringFrames};
use std::time::Duration;

const PORT: PortId = PortId(0);
/// Waits of 10 ms in vain after which a frame, or word of a lost interface, should have come.
const WAITS_MAX: usize = 3000;
const WAIT: Duration = Duration::from_millis(10);
/// Receives in vain after which a lost interface should have been noticed.
const SPINS_MAX: usize = 100_000_000;

struct VethRig {
    spec: &'static str,
    world: World,
}

impl VethRig {
    fn new(spec: &'static str) -> Result<VethRig, String> {
        World::new().map(|world| VethRig { spec, world })
    }
}

impl Rig for VethRig {
    type Lane = UringFrames;

    fn properties(&self) -> Properties {
        Properties {
            spec: self.spec,
            transmits: true,
            ports_max: PORTS_MAX,
            live: true,
            inject_frames_max: 32,
            frame_bytes_max: 1514,
            small_pool: ("buffers=64,frames=32", 96),
            overload: Some(Overload { knobs: "rcvbuf=16k", frames: 5000 }),
            impossible: None,
        }
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<UringFrames, LaneError> {
        self.world.open(spec, ports)
    }

    fn inject(&mut self, port: PortId, frames: &[Vec<u8>]) {
        self.world.far_ends[port.index()].send(frames);
    }

    fn collect(&mut self, port: PortId, expected: usize) -> Vec<Vec<u8>> {
        self.world.far_ends[port.index()].collect(expected)
    }

    fn disturb(&mut self, port: PortId, how: Disturbance) -> Result<String, String> {
        self.world.disturb(port, how);
        Ok(NEAR[port.index()].to_owned())
    }

    fn open_unprivileged(&mut self, spec: &LaneSpec) -> Result<Option<LaneError>, String> {
        let near = &self.world.near;
        let open = || {
            give_up_capabilities();
            UringFrames::open(spec, &NEAR[..1], OpenOptions::default()).err()
        };
        Ok(near.enter(open).expect("the near namespace is there"))
    }
}

mod plain {
    laneway_testkit::conformance!(|| super::VethRig::new("uring"));
}

mod shallow {
    laneway_testkit::conformance!(|| super::VethRig::new("uring:depth=2"));
}

/// The world, or a printed reason why there is none.
fn world() -> Option<World> {
    World::new().map_err(skip).ok()
}

fn spec(text: &str) -> LaneSpec {
    text.parse().expect("well formed")
}

fn open(world: &mut World, text: &str) -> UringFrames {
    world.open(&spec(text), 1).unwrap_or_else(|e| panic!("`{text}`: {e}"))
}

fn bytes(received: Vec<(Vec<u8>, u32, u64)>) -> Vec<Vec<u8>> {
    received.into_iter().map(|(bytes, ..)| bytes).collect()
}

#[test]
fn vlan_tags_are_where_they_were_on_the_wire() {
    let Some(mut world) = world() else { return };
    let tagged = |tags: &[u8]| {
        let plain = udp_frames(7, 1, 200).remove(0);
        [&plain[..12], tags, &plain[12..]].concat()
    };
    let sent = [
        udp_frames(6, 1, 64).remove(0),
        tagged(&[0x81, 0x00, 0x60, 0x64]),
        tagged(&[0x88, 0xa8, 0x00, 0x0a, 0x81, 0x00, 0x20, 0x14]),
        udp_frames(8, 1, 1514).remove(0),
        tagged(&[0x81, 0x00, 0x00, 0x00]), // a priority tag
    ];
    let mut lane = open(&mut world, "uring");
    world.far_ends[0].send(&sent);
    let received = receive_all(&mut lane, PORT, sent.len());
    assert!(received.iter().all(|(bytes, wire, _)| bytes.len() == *wire as usize));
    assert_eq!(bytes(received), sent);
    assert_eq!(lane.counters(PORT).copies, 0, "twelve bytes moved are no copy");
}

#[test]
fn a_tagged_frame_keeps_the_headroom_of_the_contract() {
    let Some(mut world) = world() else { return };
    let plain = udp_frames(0, 1, 100).remove(0);
    let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    let mut lane = open(&mut world, "uring");
    world.far_ends[0].send(std::slice::from_ref(&tagged));
    // A wait may be over before there is a frame.
    let arrived = (0..WAITS_MAX).any(|_| {
        lane.wait(WAIT).expect("the lane waits");
        let burst = lane.receive(PORT).expect("the lane receives");
        let has_room =
            |burst: &mut Burst| burst.frame_mut(0).grow_front(laneway_core::HEADROOM_BYTES_MIN);
        assert!(burst.is_empty() || (burst.len() == 1 && has_room(burst)));
        !burst.is_empty()
    });
    assert!(arrived);
}

#[test]
fn the_lane_sees_its_own_interface_only_and_not_what_that_sends() {
    let Some(mut world) = world() else { return };
    let mut lane = open(&mut world, "uring");
    let near = world.open_on(&spec("uring"), &[NEAR[0]], OpenOptions::default());
    let mut beside = near.expect("a second worker opens");
    let frames = udp_frames(0, 10, 100);
    send(&mut beside, &frames);
    assert_eq!(world.far_ends[0].receive(10), frames);
    world.far_ends[1].send(&udp_frames(50, 10, 100));
    // The probe comes last: what could have been seen before it was not.
    world.far_ends[0].send(&udp_frames(99, 1, 100));
    let received = bytes(receive_all(&mut lane, PORT, 1));
    assert_eq!(received.iter().filter_map(|f| sequence(f)).collect::<Vec<_>>(), [99]);
}

#[test]
fn a_long_frame_is_cut_and_says_how_long_it_was() {
    let Some(mut world) = world() else { return };
    let sent = udp_frames(0, 3, 1000);
    let mut lane = open(&mut world, "uring:frame=256");
    world.far_ends[0].send(&sent);
    for (i, (bytes, wire_len, _)) in receive_all(&mut lane, PORT, 3).into_iter().enumerate() {
        assert_eq!((&bytes[..], wire_len), (&sent[i][..256], 1000));
    }
    assert_eq!(lane.counters(PORT).rx_bytes, 3 * 256);
}

/// A cut frame left as if it were whole.
#[test]
fn a_frame_that_was_cut_is_not_sent_on_and_its_neighbours_are() {
    let Some(mut world) = world() else { return };
    let sent = [(0, 200), (1, 1000), (2, 256)].map(|(n, bytes)| udp_frames(n, 1, bytes).remove(0));
    let mut lane = open(&mut world, "uring:frame=256");
    world.far_ends[0].send(&sent);
    return_all(&mut lane, PORT, sent.len());
    assert_eq!(world.far_ends[0].receive(2), [&sent[0][..], &sent[2][..]]);
    let counters = lane.counters(PORT);
    assert_eq!(counters.drops(DropReason::RxTooLong), 1);
    assert_eq!((counters.tx_frames, counters.lost()), (2, 1));
}

#[test]
fn buffers_have_room_for_the_frames_of_an_interface_unless_told_otherwise() {
    let Some(mut world) = world() else { return };
    for (room, name) in [(&world.near, NEAR[0]), (&world.far, FAR[0])] {
        set_link(room, name, &["mtu", "3400"]);
    }
    let sent = udp_frames(0, 3, 3400);
    for (mode, frame_bytes) in [("uring", "3418"), ("uring:frame=2048", "2048")] {
        let mut lane = open(&mut world, mode);
        world.far_ends[0].send(&sent);
        return_all(&mut lane, PORT, sent.len());
        let is_whole = frame_bytes != "2048";
        let whole = if is_whole { &sent[..] } else { &[] };
        assert_eq!(world.far_ends[0].receive(whole.len()), whole, "{mode}");
        assert_eq!(lane.counters(PORT).lost(), if is_whole { 0 } else { 3 }, "{mode}");
        assert_eq!(lane.caps(PORT).facts["frame_bytes"], frame_bytes, "{mode}");
    }
}

#[test]
fn running_out_of_buffers_loses_no_frame() {
    let Some(mut world) = world() else { return };
    let mut lane = open(&mut world, "uring:buffers=2");
    let sent = udp_frames(0, 200, 300);
    world.far_ends[0].send(&sent);
    assert_eq!(bytes(receive_all(&mut lane, PORT, sent.len())), sent);
    assert_eq!(lane.counters(PORT).lost(), 0);
    assert_ne!(lane.caps(PORT).facts["rearms"], "0");
}

/// Has the first near end send at this rate, two kilobytes at once, and keep two more; an error says why not.
fn slow_down(world: &World, rate: &str) -> Result<(), String> {
    let slow = ["qdisc", "add", "dev", NEAR[0], "root", "tbf", "rate", rate];
    let room = ["burst", "2k", "limit", "2k"];
    match world.near.command("tc").args(slow).args(room).status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("`tc qdisc add ... tbf`: {other:?}")),
    }
}

/// Sends copies of these frames in one burst from `lend`.
fn send(lane: &mut UringFrames, frames: &[Vec<u8>]) {
    lend_and_send(lane, PORT, frames.len(), frames, Verdict::Tx);
}

/// The frames that a dead queue refused were kept for as long as another port sent something.
#[test]
fn a_dead_queue_is_given_up_while_another_port_sends() {
    /// Of a millisecond and more: several times as long as a queue may take nothing.
    const TURNS_MAX: usize = 3000;
    const OTHER: PortId = PortId(1);
    let Some(mut world) = world() else { return };
    // A frame in eight seconds.
    if let Err(reason) = slow_down(&world, "1kbit") {
        return skip(reason);
    }
    let mut lane = world.open(&spec("uring"), 2).unwrap_or_else(|e| panic!("{e}"));
    let frames = udp_frames(0, 20, 1000);
    send(&mut lane, &frames);
    assert!(lane.lend(PORT, 1).expect("the lane lends").is_empty(), "the queue was never full");
    let echoed = udp_frames(0, 1, 100);
    let lends_again = (0..TURNS_MAX).any(|_| {
        world.far_ends[1].send(&echoed);
        return_all(&mut lane, OTHER, 1);
        std::thread::sleep(Duration::from_millis(1));
        !lane.lend(PORT, 1).expect("the lane lends").is_empty()
    });
    assert!(lends_again, "{:?}", lane.counters(PORT));
    let counters = lane.counters(PORT);
    assert_eq!(counters.drops(DropReason::TxRefused), counters.lost());
    assert_eq!(counters.tx_frames + counters.lost(), 20, "{counters:?}");
    assert_eq!(lane.counters(OTHER).lost(), 0);
}

/// A discipline that holds some 15 frames refused the others (ENOBUFS), and they were given up.
#[test]
fn borrowed_frames_wait_for_a_full_queue_and_none_is_lost() {
    let Some(mut world) = world() else { return };
    if let Err(reason) = slow_down(&world, "1mbit") {
        return skip(reason);
    }
    let frames = udp_frames(0, 200, 100);
    for mode in ["uring", "uring:depth=16"] {
        let mut lane = open(&mut world, mode);
        let mut given = 0;
        // Lends nothing while frames wait, so the last turn finds that none does.
        for _ in 0..SPINS_MAX {
            let got = lend_and_send(&mut lane, PORT, 64, &frames[given..], Verdict::Tx);
            if given == frames.len() && got > 0 {
                break;
            }
            given += got.min(frames.len() - given);
            assert_eq!(lane.counters(PORT).lost(), 0, "{mode}: what waits is no drop");
        }
        // The queue may have had room again for frames behind the one that it refused.
        let mut left = world.far_ends[0].receive(frames.len());
        left.sort_by_key(|frame| sequence(frame));
        assert_eq!(left, frames, "{mode}");
        let counters = lane.counters(PORT);
        assert_eq!((counters.tx_frames, counters.lost()), (200, 0), "{mode}");
        assert!(counters.tx_retries > 0, "{mode}: the queue was never full");
        let far = &mut world.far_ends[0];
        what_waits_is_refused_at_the_end(&mut lane, PORT, &frames[..64], |left| {
            far.receive(left).len()
        });
    }
}

#[test]
fn what_arrived_before_the_interface_went_is_delivered_before_the_lane_ends() {
    let Some(mut world) = world() else { return };
    let mut witness = open(&mut world, "uring");
    let mut lane = open(&mut world, "uring:buffers=2");
    let sent = udp_frames(0, 5, 100);
    world.far_ends[0].send(&sent);
    // Removing waits for deliveries that have begun: what one socket has, both will have.
    assert_eq!(bytes(receive_all(&mut witness, PORT, 5)), sent);
    world.disturb(PORT, Disturbance::Remove);
    assert_eq!(bytes(receive_all(&mut lane, PORT, 5)), sent);
    // This worker never waits.
    let error = (0..SPINS_MAX).find_map(|_| lane.receive(PORT).err());
    match error {
        Some(LaneError::Gone { name, .. }) => assert_eq!(name, NEAR[0]),
        other => panic!("{other:?}"),
    }
    lane.counters(PORT); // still answers
    let error = (0..WAITS_MAX)
        .find_map(|_| witness.wait(WAIT).err().or_else(|| witness.receive(PORT).err()));
    assert!(matches!(error, Some(LaneError::Gone { .. })), "{error:?}");
}

#[test]
fn sending_on_a_removed_interface_counts_the_frames_and_ends_the_lane() {
    let Some(mut world) = world() else { return };
    let mut lane = open(&mut world, "uring");
    world.disturb(PORT, Disturbance::Remove);
    let burst = lane.lend(PORT, 2).expect("lending needs no interface");
    for i in 0..2 {
        assert!(burst.frame_mut(i).set_len(64));
        burst.set_verdict(i, Verdict::Tx);
    }
    assert!(matches!(lane.settle(PORT), Err(LaneError::Gone { .. })));
    assert_eq!(lane.counters(PORT).drops(DropReason::TxRefused), 2);
}

#[test]
fn the_interface_of_the_default_route_is_refused_unless_forced() {
    let Some(world) = world() else { return };
    let route = ["route", "add", "default", "dev", NEAR[0]];
    let added = world.near.command("ip").args(route).status().expect("ip runs");
    assert!(added.success());
    let open = |force| world.open_on(&spec("uring"), &[NEAR[0]], OpenOptions { force });
    match open(false).err() {
        Some(refused @ LaneError::Refused { .. }) => {
            let sentence = refused.to_string();
            assert!(sentence.contains(NEAR[0]) && sentence.contains("--force"), "{sentence}");
        }
        other => panic!("{other:?}"),
    }
    assert!(open(true).is_ok());
    assert!(world.open_on(&spec("uring"), &[NEAR[1]], OpenOptions::default()).is_ok());
}

#[test]
fn an_interface_that_is_missing_or_down_is_named() {
    let Some(world) = world() else { return };
    let refusal = |name: &str| {
        let opened = world.open_on(&spec("uring"), &[name], OpenOptions::default());
        opened.err().unwrap_or_else(|| panic!("`{name}` opened"))
    };
    for name in ["nowhere0", "", "a-name-too-long-to-exist"] {
        assert!(matches!(refusal(name), LaneError::NotFound { .. }), "{name}");
    }
    let down = ["link", "set", "dev", NEAR[2], "down"];
    assert!(world.near.command("ip").args(down).status().expect("ip runs").success());
    let sentence = refusal(NEAR[2]).to_string();
    assert!(sentence.contains(NEAR[2]) && sentence.contains("up"), "{sentence}");
}

#[test]
fn a_ring_reports_what_it_was_granted() {
    let Some(mut world) = world() else { return };
    let spec = spec("uring:depth=64,napi=50,rcvbuf=1m");
    let lane = world.open(&spec, 1);
    if let Err(why) = young_enough(&lane) {
        return skip(why);
    }
    let lane = lane.unwrap_or_else(|e| panic!("{e}"));
    let caps = lane.caps(PORT);
    for cap in [Cap::Multishot, Cap::BusyPoll] {
        assert!(caps.obtained.has(cap), "{}", cap.name());
    }
    assert_eq!(caps.facts["cq_entries"], "256");
    assert_eq!(caps.facts["rcvbuf_bytes"], "1048576");
    assert_eq!(caps.kernel_memory.socket_bytes, 1 << 20);
}
