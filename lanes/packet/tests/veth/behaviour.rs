//! What the conformance suite does not ask: tags, truncation, own frames, other interfaces, stamps,
//! fan-out, pinned blocks, lost interfaces, and refusals.

use crate::{
    cables::{FAR, NEAR, give_up_capabilities, set_link},
    world::World,
};
use laneway_core::{Burst, Cap, DropReason, FrameLane, Lane, LaneError, PortId, Verdict};
use laneway_packet::{FanoutGroup, OpenOptions, PacketLane};
use laneway_spec::LaneSpec;
use laneway_testkit::{
    Disturbance, UdpFrame, lend_and_send, receive_all, receive_shares, return_all, sequence, skip,
    udp_frames, what_waits_is_refused_at_the_end,
};
use std::time::Duration;

const PORT: PortId = PortId(0);
/// Waits of 10 ms in vain after which a frame, or word of a lost interface, should have come.
const WAITS_MAX: usize = 3000;
const WAIT: Duration = Duration::from_millis(10);
/// Receives in vain after which a lost interface should have been noticed.
const SPINS_MAX: usize = 100_000_000;
const MODES: [&str; 3] = ["packet", "packet:mmsg=32", "packet:ring"];

/// The world, or a printed reason why there is none.
fn world() -> Option<World> {
    World::new().map_err(skip).ok()
}

fn spec(text: &str) -> LaneSpec {
    text.parse().expect("well formed")
}

fn open(world: &mut World, text: &str) -> PacketLane {
    world.open(&spec(text), 1).unwrap_or_else(|e| panic!("`{text}`: {e}"))
}

fn bytes(received: Vec<(Vec<u8>, u32, u64)>) -> Vec<Vec<u8>> {
    received.into_iter().map(|(bytes, ..)| bytes).collect()
}

/// Sends copies of these frames in a burst from `lend`.
fn send(lane: &mut PacketLane, frames: &[Vec<u8>]) {
    lend_and_send(lane, PORT, frames.len(), frames, Verdict::Tx);
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
    for mode in MODES {
        let mut lane = open(&mut world, mode);
        world.far_ends[0].send(&sent);
        let received = receive_all(&mut lane, PORT, sent.len());
        assert!(received.iter().all(|(bytes, wire, _)| bytes.len() == *wire as usize), "{mode}");
        assert_eq!(bytes(received), sent, "{mode}");
        assert_eq!(lane.counters(PORT).copies, 0, "{mode}: twelve bytes moved are no copy");
    }
}

#[test]
fn a_tagged_frame_keeps_the_headroom_of_the_contract() {
    let Some(mut world) = world() else { return };
    let plain = udp_frames(0, 1, 100).remove(0);
    let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    for mode in MODES {
        let mut lane = open(&mut world, mode);
        world.far_ends[0].send(std::slice::from_ref(&tagged));
        // A wait may be over before there is a frame.
        let arrived = (0..WAITS_MAX).any(|_| {
            lane.wait(WAIT).expect("the lane waits");
            let burst = lane.receive(PORT).expect("the lane receives");
            let has_room =
                |burst: &mut Burst| burst.frame_mut(0).grow_front(laneway_core::HEADROOM_BYTES_MIN);
            assert!(burst.is_empty() || (burst.len() == 1 && has_room(burst)), "{mode}");
            !burst.is_empty()
        });
        assert!(arrived, "{mode}");
    }
}

#[test]
fn the_lane_does_not_see_what_its_interface_sends() {
    let Some(mut world) = world() else { return };
    for mode in MODES {
        let mut lane = open(&mut world, mode);
        // The kernel spares a socket its own frames anyway; those of the worker beside it count.
        let near = world.open_on(&spec("packet"), &[NEAR[0]], OpenOptions::default());
        let sent = udp_frames(0, 20, 100);
        send(&mut near.expect("a second worker opens"), &sent[..10]);
        send(&mut lane, &sent[10..]);
        assert_eq!(world.far_ends[0].receive(20), sent, "{mode}");
        // The probe comes last: what could have been seen before it was not.
        world.far_ends[0].send(&udp_frames(99, 1, 100));
        let received = bytes(receive_all(&mut lane, PORT, 1));
        assert_eq!(received.iter().filter_map(|f| sequence(f)).collect::<Vec<_>>(), [99], "{mode}");
    }
}

#[test]
fn the_lane_sees_its_own_interface_only() {
    let Some(mut world) = world() else { return };
    for mode in MODES {
        let mut lane = open(&mut world, mode);
        world.far_ends[1].send(&udp_frames(0, 10, 100));
        world.far_ends[0].send(&udp_frames(99, 1, 100));
        let received = bytes(receive_all(&mut lane, PORT, 1));
        assert_eq!(received.iter().filter_map(|f| sequence(f)).collect::<Vec<_>>(), [99], "{mode}");
    }
}

#[test]
fn a_long_frame_is_cut_and_says_how_long_it_was() {
    let Some(mut world) = world() else { return };
    let sent = udp_frames(0, 3, 1000);
    for mode in ["packet:frame=256", "packet:mmsg=2,frame=256"] {
        let mut lane = open(&mut world, mode);
        world.far_ends[0].send(&sent);
        for (i, (bytes, wire_len, _)) in
            receive_all(&mut lane, PORT, sent.len()).into_iter().enumerate()
        {
            assert_eq!((&bytes[..], wire_len), (&sent[i][..256], 1000), "{mode}");
        }
        assert_eq!(lane.counters(PORT).rx_bytes, 3 * 256, "{mode}");
    }
    let mut lane = open(&mut world, "packet:ring,frame=256");
    world.far_ends[0].send(&sent);
    assert_eq!(bytes(receive_all(&mut lane, PORT, sent.len())), sent, "a ring cuts nothing");
}

/// A cut frame left as if it were whole.
#[test]
fn a_frame_that_was_cut_is_not_sent_on_and_its_neighbours_are() {
    let Some(mut world) = world() else { return };
    let sent = [(0, 200), (1, 1000), (2, 256)].map(|(n, bytes)| udp_frames(n, 1, bytes).remove(0));
    for mode in ["packet:frame=256", "packet:mmsg=2,frame=256"] {
        let mut lane = open(&mut world, mode);
        world.far_ends[0].send(&sent);
        return_all(&mut lane, PORT, sent.len());
        assert_eq!(world.far_ends[0].receive(2), [&sent[0][..], &sent[2][..]], "{mode}");
        let counters = lane.counters(PORT);
        assert_eq!(counters.drops(DropReason::RxTooLong), 1, "{mode}");
        assert_eq!((counters.tx_frames, counters.lost()), (2, 1), "{mode}");
    }
}

#[test]
fn buffers_have_room_for_the_frames_of_an_interface_unless_told_otherwise() {
    let Some(mut world) = world() else { return };
    for (room, name) in [(&world.near, NEAR[0]), (&world.far, FAR[0])] {
        set_link(room, name, &["mtu", "3400"]);
    }
    let sent = udp_frames(0, 3, 3400);
    for (mode, frame_bytes) in
        [("packet", "3418"), ("packet:mmsg=2", "3418"), ("packet:frame=2048", "2048")]
    {
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
fn a_frame_beyond_the_mtu_is_counted_and_its_neighbours_leave() {
    let Some(mut world) = world() else { return };
    for mode in MODES {
        let mut lane = open(&mut world, mode);
        let mut frames = udp_frames(0, 5, 100);
        frames[1] = udp_frames(1, 1, 1614).remove(0); // the lane refuses it
        frames[3] = udp_frames(3, 1, 1516).remove(0); // the kernel refuses it: no room but for a tag
        send(&mut lane, &frames);
        let left = [0, 2, 4].map(|i| frames[i].clone());
        assert_eq!(world.far_ends[0].receive(3), left, "{mode}");
        let counters = lane.counters(PORT);
        assert_eq!(counters.drops(DropReason::TxTooLong), 2, "{mode}");
        assert_eq!((counters.tx_frames, counters.tx_bytes), (3, 300), "{mode}");
    }
}

#[test]
fn a_frame_shorter_than_a_header_is_refused_by_name() {
    let Some(mut world) = world() else { return };
    let mut lane = open(&mut world, "packet");
    let mut frames = udp_frames(0, 3, 64);
    frames[1].clear();
    send(&mut lane, &frames);
    assert_eq!(world.far_ends[0].receive(2), [frames[0].clone(), frames[2].clone()]);
    assert_eq!(lane.counters(PORT).drops(DropReason::TxRefused), 1);
}

/// A discipline that holds some 15 frames refused the others (ENOBUFS), and they were given up.
#[test]
fn borrowed_frames_wait_for_a_full_queue_and_leave_in_order() {
    let Some(mut world) = world() else { return };
    let slow = ["qdisc", "add", "dev", NEAR[0], "root", "tbf", "rate", "8mbit"];
    let room = ["burst", "2k", "limit", "2k"];
    match world.near.command("tc").args(slow).args(room).status() {
        Ok(status) if status.success() => (),
        other => return skip(format!("`tc qdisc add ... tbf`: {other:?}")),
    }
    let frames = udp_frames(0, 200, 100);
    for mode in MODES {
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
        assert_eq!(world.far_ends[0].receive(frames.len()), frames, "{mode}");
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
fn stamps_are_monotonic_time_and_say_who_made_them() {
    /// Between the measured wall clock and a stamp: the width of the measurement, generously.
    const MARGIN_NS: u64 = 1_000_000;
    let Some(mut world) = world() else { return };
    for (mode, by_kernel) in [
        ("packet", false),
        ("packet:timestamps=kernel", true),
        ("packet:mmsg=8,timestamps=kernel", true),
        ("packet:ring", true),
    ] {
        let mut lane = open(&mut world, mode);
        assert_eq!(lane.caps(PORT).obtained.has(Cap::KernelTimestamps), by_kernel, "{mode}");
        let before = monotonic_ns();
        world.far_ends[0].send(&udp_frames(0, 5, 100));
        let received = receive_all(&mut lane, PORT, 5);
        let after = monotonic_ns();
        assert_eq!(received.len(), 5, "{mode}");
        for (_, _, ts_ns) in received {
            let plausible = before - MARGIN_NS..=after + MARGIN_NS;
            assert!(plausible.contains(&ts_ns), "{mode}: {ts_ns} outside {plausible:?}");
        }
    }
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn a_fan_out_group_shares_frames_without_doubling_any() {
    let Some(mut world) = world() else { return };
    let text = "packet:fanout=hash,group=4711";
    let mut lanes = [(); 2].map(|()| open(&mut world, text));
    let flows: Vec<_> = (0..64u16)
        .map(|i| {
            let frame = UdpFrame {
                sequence: u64::from(i),
                source_port: 1000 + i * 7,
                ..UdpFrame::default()
            };
            frame.build()
        })
        .collect();
    world.far_ends[0].send(&flows);
    let shares: Vec<_> = receive_shares(&mut lanes, PORT, 64).into_iter().map(bytes).collect();
    assert!(shares.iter().all(|share| !share.is_empty()), "the hash spreads 64 flows");
    let mut all: Vec<_> = shares.concat().iter().filter_map(|f| sequence(f)).collect();
    all.sort_unstable();
    assert_eq!(all, (0..64).collect::<Vec<u64>>());
}

#[test]
fn both_directions_of_a_flow_go_to_one_worker() {
    /// Flows, each sent in both directions.
    const FLOWS: u16 = 48;
    let Some(mut world) = world() else { return };
    for mode in MODES {
        let joint = if mode.contains(':') { "," } else { ":" };
        let text = format!("{mode}{joint}fanout=hash");
        let group = FanoutGroup::unique();
        world.open(&spec(&text), 1).expect("it opens"); // far ends that have received nothing
        let mut workers = [(); 2].map(|()| world.open_worker(group, &spec(&text)).expect(mode));
        let groups = workers.each_ref().map(|lane| lane.caps(PORT).facts["fanout_group"].clone());
        assert_eq!(groups[0], groups[1], "{mode}");
        let frames: Vec<_> = (0..2 * FLOWS)
            .map(|i| {
                let there = UdpFrame {
                    sequence: u64::from(i),
                    source_port: 1000 + i / 2 * 7,
                    ..UdpFrame::default()
                };
                let back = UdpFrame {
                    source: there.destination,
                    destination: there.source,
                    source_port: there.destination_port,
                    destination_port: there.source_port,
                    ..there
                };
                if i % 2 == 0 { there.build() } else { back.build() }
            })
            .collect();
        world.far_ends[0].send(&frames);
        let shares = receive_shares(&mut workers, PORT, frames.len());
        let flows = shares.into_iter().map(|share| {
            let share: Vec<u64> = bytes(share).iter().filter_map(|f| sequence(f)).collect();
            let flows: std::collections::BTreeSet<u64> = share.iter().map(|s| s / 2).collect();
            assert_eq!(share.len(), 2 * flows.len(), "{mode}: a direction went elsewhere");
            flows
        });
        let flows: Vec<_> = flows.collect();
        assert!(flows.iter().all(|flows| !flows.is_empty()), "{mode}: the hash spreads flows");
        let [one, two] = &flows[..] else { panic!("two workers") };
        assert!(one.is_disjoint(two), "{mode}");
        assert_eq!(one.len() + two.len(), usize::from(FLOWS), "{mode}: every flow has a worker");
    }
}

#[test]
fn runs_of_one_process_do_not_share_frames() {
    let Some(mut world) = world() else { return };
    let text = spec("packet:fanout=lb");
    world.open(&text, 1).expect("it opens"); // far ends that have received nothing
    let mut runs =
        [(); 2].map(|()| world.open_worker(FanoutGroup::unique(), &text).expect("it opens"));
    world.far_ends[0].send(&udp_frames(0, 20, 64));
    for lane in &mut runs {
        assert_eq!(receive_all(lane, PORT, 20).len(), 20, "each run sees every frame");
    }
}

#[test]
fn a_fan_out_group_of_another_kind_is_named_as_the_cause() {
    let Some(mut world) = world() else { return };
    for mode in ["packet:", "packet:ring,"] {
        let _first = open(&mut world, &format!("{mode}fanout=hash,group=4712"));
        let second = world.open(&spec(&format!("{mode}fanout=cpu,group=4712")), 1);
        let sentence = second.err().expect("one group, one kind").to_string();
        assert!(sentence.contains("fan-out group") && sentence.contains("group="), "{sentence}");
        assert!(sentence.contains(NEAR[0]), "{sentence}");
    }
}

#[test]
fn an_unsettled_burst_stops_the_ring_after_one_round_and_the_standstill_is_counted() {
    let Some(mut world) = world() else { return };
    let mut lane = open(&mut world, "packet:ring,block=16k,blocks=4");
    assert_eq!(lane.caps(PORT).kernel_memory.socket_bytes, 4 * 16384);
    let mut received = 0;
    world.far_ends[0].send(&udp_frames(0, 1, 1000));
    while received == 0 {
        lane.wait(WAIT).expect("the lane waits");
        received += lane.receive(PORT).expect("the lane receives").len() as u64;
    }
    // The burst in hand pins the first block of four.
    const FRAMES: u64 = 400;
    for round in 0..FRAMES / 10 {
        world.far_ends[0].send(&udp_frames(1 + round * 10, 10, 1000));
    }
    lane.settle(PORT).expect("the lane settles");
    for _ in 0..WAITS_MAX {
        if received + lane.counters(PORT).drops(DropReason::RxQueueFull) > FRAMES {
            break;
        }
        lane.wait(WAIT).expect("the lane waits");
        received += lane.receive(PORT).expect("the lane receives").len() as u64;
        lane.settle(PORT).expect("the lane settles");
    }
    let counters = lane.counters(PORT);
    let dropped = counters.drops(DropReason::RxQueueFull);
    assert!(dropped > 0, "four blocks take no {FRAMES} frames while one is pinned");
    assert_eq!(received + dropped, 1 + FRAMES, "{counters:?}");
    let again = lane.counters(PORT).drops(DropReason::RxQueueFull);
    assert_eq!(again, dropped, "the kernel forgets its count when it is read, the lane does not");
    assert_ne!(lane.caps(PORT).facts["ring_freezes"], "0");

    world.far_ends[0].send(&udp_frames(1000, 5, 100));
    assert_eq!(receive_all(&mut lane, PORT, 5).len(), 5, "the ring goes on");
}

#[test]
fn frames_of_one_block_wait_for_its_last() {
    let Some(mut world) = world() else { return };
    // A burst of 3 leaves blocks half read between receives; many rounds go round the ring.
    let mut lane = open(&mut world, "packet:ring,block=16k,blocks=2,burst=3");
    let mut expected = 0;
    for _ in 0..30 {
        world.far_ends[0].send(&udp_frames(expected, 10, 700));
        for frame in bytes(receive_all(&mut lane, PORT, 10)) {
            assert_eq!(frame, udp_frames(expected, 1, 700)[0]);
            expected += 1;
        }
    }
    assert_eq!((expected, lane.counters(PORT).lost()), (300, 0));
}

#[test]
fn an_interface_that_is_removed_ends_the_lane() {
    for mode in MODES {
        let Some(mut world) = world() else { return };
        let mut lane = open(&mut world, mode);
        world.disturb(PORT, Disturbance::Remove);
        let error =
            (0..WAITS_MAX).find_map(|_| lane.wait(WAIT).err().or_else(|| lane.receive(PORT).err()));
        match error {
            Some(LaneError::Gone { name, .. }) => assert_eq!(name, NEAR[0], "{mode}"),
            other => panic!("{mode}: {other:?}"),
        }
        lane.counters(PORT); // still answers
    }
}

#[test]
fn what_arrived_before_the_interface_went_is_delivered_before_the_lane_ends() {
    // In the last mode the interface goes while the kernel still fills the block.
    for mode in ["packet", "packet:mmsg=32", "packet:ring", "packet:ring,timeout=100"] {
        let Some(mut world) = world() else { return };
        let mut witness = open(&mut world, "packet");
        let mut lane = open(&mut world, mode);
        let sent = udp_frames(0, 5, 100);
        world.far_ends[0].send(&sent);
        // Removing waits for deliveries that have begun: what one socket has, both will have.
        assert_eq!(bytes(receive_all(&mut witness, PORT, 5)), sent, "{mode}");
        world.disturb(PORT, Disturbance::Remove);
        assert_eq!(bytes(receive_all(&mut lane, PORT, 5)), sent, "{mode}");
        let error = (0..SPINS_MAX).find_map(|_| lane.receive(PORT).err());
        assert!(matches!(error, Some(LaneError::Gone { .. })), "{mode}: {error:?}");
    }
}

#[test]
fn a_worker_that_never_waits_notices_a_removed_interface() {
    for mode in MODES {
        let Some(mut world) = world() else { return };
        let mut lane = open(&mut world, mode);
        world.disturb(PORT, Disturbance::Remove);
        let error = (0..SPINS_MAX).find_map(|_| lane.receive(PORT).err());
        assert!(matches!(error, Some(LaneError::Gone { .. })), "{mode}: {error:?}");
    }
}

#[test]
fn sending_on_a_removed_interface_counts_the_frames_and_ends_the_lane() {
    let Some(mut world) = world() else { return };
    let mut lane = open(&mut world, "packet");
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
    let open = |force| world.open_on(&spec("packet"), &[NEAR[0]], OpenOptions { force });
    match open(false).err() {
        Some(refused @ LaneError::Refused { .. }) => {
            let sentence = refused.to_string();
            assert!(sentence.contains(NEAR[0]) && sentence.contains("--force"), "{sentence}");
        }
        other => panic!("{other:?}"),
    }
    assert!(open(true).is_ok());
    assert!(world.open_on(&spec("packet"), &[NEAR[1]], OpenOptions::default()).is_ok());
}

#[test]
fn an_interface_that_is_missing_or_down_is_named() {
    let Some(world) = world() else { return };
    let refusal = |name: &str| {
        let opened = world.open_on(&spec("packet"), &[name], OpenOptions::default());
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
fn no_interfaces_at_all_are_refused() {
    let refusal = PacketLane::open(&spec("packet"), &[], OpenOptions::default());
    assert!(matches!(refusal.err(), Some(LaneError::Refused { .. })));
}

#[test]
fn without_privilege_the_sentence_says_what_is_needed() {
    // Capabilities belong to the thread: this one gives its own up and ends.
    let refusal = std::thread::spawn(|| {
        give_up_capabilities();
        PacketLane::open(&spec("packet"), &["lo"], OpenOptions::default()).err()
    });
    let refusal = refusal.join().expect("no panic").expect("no packet socket without CAP_NET_RAW");
    assert!(matches!(refusal, LaneError::NotPermitted { .. }), "{refusal}");
    assert!(refusal.to_string().contains("CAP_NET_RAW"), "{refusal}");
}

#[test]
fn the_receive_buffer_is_reported_as_granted() {
    let Some(mut world) = world() else { return };
    let lane = open(&mut world, "packet:rcvbuf=1m");
    let facts = &lane.caps(PORT).facts;
    assert_eq!(
        (facts["rcvbuf_bytes_asked"].as_str(), facts["rcvbuf_bytes"].as_str()),
        ("1048576", "2097152")
    );
    assert_eq!(lane.caps(PORT).kernel_memory.socket_bytes, 2_097_152);
}
