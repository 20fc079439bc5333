//! Drivers without a far end, refusals, and what a lane leaves behind.

use crate::world::{Alone, NEAR, World, is_promiscuous, spec};
use laneway_core::{Cap, DropReason, FrameLane, Lane, LaneError, PortId, PortMask, Verdict};
use laneway_dpdk::DpdkLane;
use laneway_testkit::{Disturbance, is_ours, lend_and_send, skip, udp_frames};
use laneway_wire::checksum;
use std::{fs, path::Path, time::Duration};

const PORT: PortId = PortId(0);
const OTHER: PortId = PortId(1);
/// Turns of 10 ms in vain after which frames count as lost.
const TURNS_MAX: usize = 3000;

/// DPDK for this test alone, or a printed reason why there is none.
fn alone() -> Option<Alone> {
    Alone::new().map_err(skip).ok()
}

#[track_caller]
fn refusal(text: &str, names: &[&str]) -> String {
    match DpdkLane::open(&spec(text), names, false) {
        Ok(_) => panic!("`{text}` opened"),
        Err(e) => e.to_string(),
    }
}

/// Lends and sends `frames` with this verdict.
fn send(lane: &mut DpdkLane, frames: &[Vec<u8>], verdict: Verdict) {
    lend_and_send(lane, PORT, frames.len(), frames, verdict);
}

/// One burst of `port`, consumed.
fn receive(lane: &mut DpdkLane, port: PortId) -> Vec<Vec<u8>> {
    let burst = lane.receive(port).expect("the lane receives");
    let frames = (0..burst.len()).map(|i| burst.frame(i).bytes.to_vec()).collect();
    lane.settle(port).expect("the lane settles");
    frames
}

#[test]
fn a_ring_gives_back_what_is_sent_and_keeps_no_mbuf() {
    let Some(_alone) = alone() else { return };
    let mut lane = DpdkLane::open(&spec("dpdk:net_ring,no-huge"), &["r0"], false).expect("opens");
    let sent = udp_frames(0, 32, 100);
    send(&mut lane, &sent, Verdict::Tx);
    assert_eq!(lane.mbufs_in_use(), 32);
    assert_eq!(receive(&mut lane, PORT), sent);
    assert_eq!(lane.mbufs_in_use(), 0);
}

#[test]
fn ports_that_hand_mbufs_over_get_copies_of_a_fan_out() {
    let Some(_alone) = alone() else { return };
    let names = ["r0", "r1"];
    let mut lane = DpdkLane::open(&spec("dpdk:net_ring,no-huge"), &names, false).expect("opens");
    let sent = udp_frames(0, 8, 100);
    send(&mut lane, &sent, Verdict::Fanout(PortMask(0b11)));
    assert_eq!(lane.mbufs_in_use(), 16, "each port has its own");
    assert_eq!(receive(&mut lane, PORT), sent);
    assert_eq!(receive(&mut lane, OTHER), sent);
    assert_eq!(lane.counters(PORT).copies + lane.counters(OTHER).copies, 8);
    assert_eq!(lane.mbufs_in_use(), 0);
}

#[test]
fn a_full_ring_refuses_the_rest_and_loses_no_mbuf() {
    let Some(_alone) = alone() else { return };
    let mut lane = DpdkLane::open(&spec("dpdk:net_ring,no-huge"), &["r0"], false).expect("opens");
    let frames = udp_frames(0, 64, 64);
    for _ in 0..20 {
        send(&mut lane, &frames, Verdict::Tx);
    }
    let counters = lane.counters(PORT);
    assert!(counters.lost() > 0 && counters.tx_frames + counters.lost() == 20 * 64, "{counters:?}");
    let mut received = 0;
    while received < counters.tx_frames {
        received += receive(&mut lane, PORT).len() as u64;
    }
    assert_eq!(lane.mbufs_in_use(), 0);
}

#[test]
fn a_null_device_has_frames_at_any_time_and_its_arguments_reach_it() {
    let Some(_alone) = alone() else { return };
    let open = |text: &str| DpdkLane::open(&spec(text), &["n0"], false).expect("opens");
    let mut lane = open("dpdk:net_null,no-huge,args=size=128");
    let frames = receive(&mut lane, PORT);
    assert!(frames.len() == 64 && frames.iter().all(|frame| frame.len() == 128));
    drop(lane);
    assert!(receive(&mut open("dpdk:net_null,no-huge,args=no-rx=1"), PORT).is_empty());
}

#[test]
fn an_interrupt_is_obtained_where_there_is_one_and_refused_where_there_is_none() {
    let Some(_alone) = alone() else { return };
    let sentence = refusal("dpdk:net_ring,no-huge,intr", &["r0"]);
    assert!(sentence.contains("allow=rx-interrupt"), "{sentence}");
    let allowed = spec("dpdk:net_ring,no-huge,intr,allow=rx-interrupt");
    let lane = DpdkLane::open(&allowed, &["r0"], false).expect("its absence is allowed");
    assert_eq!(lane.caps(PORT).facts["wake"], "bounded sleep");
    drop((lane, _alone));
    let Ok(mut world) = World::taps().map_err(skip) else { return };
    let lane = world.open(&spec("dpdk:net_tap,no-huge,intr"), 1).expect("opens");
    assert!(lane.caps(PORT).obtained.has(Cap::RxInterrupt));
}

#[test]
fn a_port_whose_interface_is_gone_is_given_up_and_the_other_goes_on() {
    const SHORT: Duration = Duration::from_millis(5);
    let Ok(mut world) = World::cables(2).map_err(skip) else { return };
    for mode in ["dpdk:net_af_packet,no-huge", "dpdk:net_af_xdp,no-huge"] {
        let mut lane = world.open(&spec(mode), 2).expect("opens");
        world.disturb(0, Disturbance::Remove);
        let error = (0..TURNS_MAX).find_map(|_| lane.wait(SHORT).err());
        let is_gone = matches!(&error, Some(LaneError::Gone { name, .. }) if name == NEAR[0]);
        assert!(is_gone, "{mode}: {error:?}");
        lane.give_up(PORT);
        let sent = udp_frames(0, 32, 100);
        world.inject(1, &sent);
        let mut arrived = Vec::new();
        for _ in 0..TURNS_MAX {
            lane.wait(SHORT).expect("it is reported once");
            assert!(receive(&mut lane, PORT).is_empty(), "{mode}");
            arrived.extend(receive(&mut lane, OTHER).into_iter().filter(|frame| is_ours(frame)));
            if arrived.len() >= sent.len() {
                break;
            }
        }
        assert_eq!(arrived, sent, "{mode}");
        assert!(lane.lend(PORT, 4).expect("it lends none").is_empty(), "{mode}");
        // A copy leaves where there is an interface, and the other is counted.
        let burst = lane.lend(OTHER, sent.len()).expect("the lane lends");
        for (i, bytes) in sent.iter().enumerate() {
            let mut frame = burst.frame_mut(i);
            assert!(frame.set_len(bytes.len()));
            frame.bytes_mut().copy_from_slice(bytes);
            frame.set_verdict(Verdict::Fanout(PortMask(0b11)));
        }
        lane.settle(OTHER).expect("the lane settles");
        assert_eq!(world.receive(1, sent.len()), sent, "{mode}");
        assert_eq!(lane.counters(PORT).drops(DropReason::TxRefused), 32, "{mode}");
        assert_eq!(lane.counters(OTHER).lost(), 0, "{mode}");
    }
}

#[test]
fn a_tap_is_there_with_its_lane_and_gone_after_it() {
    let Ok(mut world) = World::taps().map_err(skip) else { return };
    let lane = world.open(&spec("dpdk:net_tap,no-huge,mtu=1400"), 1).expect("opens");
    let table = || fs::read_to_string("/proc/thread-self/net/dev").expect("Linux has it");
    assert!(table().contains(NEAR[0]));
    assert_eq!(lane.caps(PORT).facts["mtu_bytes"], "1400");
    let sentence = refusal("dpdk:net_tap,no-huge", &[NEAR[0]]);
    assert!(sentence.contains("one of this name exists"), "{sentence}");
    drop(lane);
    assert!(!table().contains(NEAR[0]));
    let sentence = refusal("dpdk:net_tap,no-huge,mtu=9000,frame=16k", &[NEAR[0]]);
    assert!(sentence.contains("mtu=9000 asks for more"), "{sentence}");
}

#[test]
fn refusals_name_the_value_and_what_to_try() {
    let Ok(world) = World::cables(1).map_err(skip) else { return };
    let sentence = refusal("dpdk:net_af_packet,no-huge", &["nowhere0"]);
    assert!(sentence.contains("no interface `nowhere0`"), "{sentence}");
    let sentence = refusal("dpdk:net_af_xdp,no-huge,queue=7", &[NEAR[0]]);
    assert!(sentence.contains(NEAR[0]) && sentence.contains("DPDK says"), "{sentence}");
    let sentence = refusal("dpdk:net_null,no-huge,mempool=1m", &["n0"]);
    assert!(sentence.contains("raise mem="), "{sentence}");
    let sentence = refusal("dpdk:net_null,hugepages=1,no-huge", &["n0"]);
    assert!(sentence.contains("contradicts"), "{sentence}");
    world.ip(&["link", "set", "dev", NEAR[0], "down"]);
    let sentence = refusal("dpdk:net_af_packet,no-huge", &[NEAR[0]]);
    assert!(sentence.contains("down") && sentence.contains("ip link set"), "{sentence}");
    for names in [&[][..], &["a", "a"], &["a,b"]] {
        let opened = DpdkLane::open(&spec("dpdk:net_null,no-huge"), names, false);
        assert!(matches!(opened.err(), Some(LaneError::Refused { .. })), "{names:?}");
    }
}

#[test]
fn other_memory_than_dpdk_was_started_with_is_refused() {
    let Some(_alone) = alone() else { return };
    let sentence = refusal("dpdk:net_null,hugepages", &["n0"]);
    assert!(sentence.contains("without huge pages"), "{sentence}");
    let allowed = spec("dpdk:net_null,hugepages,allow=hugepages");
    let lane = DpdkLane::open(&allowed, &["n0"], false).expect("its absence is allowed");
    assert!(!lane.caps(PORT).obtained.has(Cap::HugePages));
    assert_eq!(lane.caps(PORT).facts["memory"], "no-huge");
}

#[test]
fn the_worker_keeps_its_affinity_and_no_folder_stays() {
    let Some(_alone) = alone() else { return };
    let allowed = || {
        let status = fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
        status.lines().find(|l| l.starts_with("Cpus_allowed_list")).map(str::to_owned)
    };
    let before = allowed();
    let _lane = DpdkLane::open(&spec("dpdk:net_null,no-huge"), &["n0"], false).expect("opens");
    assert_eq!(allowed(), before);
    let own = format!("/var/run/dpdk/laneway-{}", std::process::id());
    assert!(!Path::new(&own).exists());
}

#[test]
fn promiscuous_mode_is_obtained_reported_and_given_back() {
    let Ok(mut world) = World::cables(1).map_err(skip) else { return };
    let is_promiscuous = || is_promiscuous(NEAR[0]);
    for driver in ["net_af_packet", "net_af_xdp"] {
        let asked = spec(&format!("dpdk:{driver},no-huge,promisc"));
        let lane = world.open(&asked, 1).expect("opens");
        assert_eq!(lane.caps(PORT).facts["promiscuous"], "on", "{driver}");
        assert!(is_promiscuous(), "{driver}");
        drop(lane);
        assert!(!is_promiscuous(), "{driver} gives it back");
    }
    let lane = world.open(&spec("dpdk:net_af_packet,no-huge"), 1).expect("opens");
    assert_eq!(lane.caps(PORT).facts["promiscuous"], "off");
    drop(lane);
    world.ip(&["link", "set", "dev", NEAR[0], "promisc", "on"]);
    let lane = world.open(&spec("dpdk:net_af_packet,no-huge,promisc"), 1).expect("opens");
    assert_eq!(lane.caps(PORT).facts["promiscuous"], "on");
    drop(lane);
    assert!(is_promiscuous(), "what the user set stays");
    let lane = DpdkLane::open(&spec("dpdk:net_null,no-huge"), &["n0"], false).expect("opens");
    assert_eq!(lane.caps(PORT).facts["promiscuous"], "on", "by its nature");
}

#[test]
fn checksums_are_computed_and_checked_where_the_device_can_and_refused_where_not() {
    let Ok(mut world) = World::taps().map_err(skip) else { return };
    let sentence = refusal("dpdk:net_null,no-huge,csum", &["n0"]);
    assert!(sentence.contains("checksum-offload"), "{sentence}");
    let allowed = spec("dpdk:net_null,no-huge,csum,allow=checksum-offload");
    let lane = DpdkLane::open(&allowed, &["n0"], false).expect("its absence is allowed");
    assert_eq!(lane.caps(PORT).facts["offloads_obtained"], "none");
    drop(lane);

    let mut lane = world.open(&spec("dpdk:net_tap,no-huge,csum"), 1).expect("opens");
    assert!(lane.caps(PORT).obtained.has(Cap::ChecksumOffload));
    let good = udp_frames(0, 4, 100);
    let spoilt: Vec<Vec<u8>> = good
        .iter()
        .map(|frame| {
            let mut frame = frame.clone();
            // The IPv4 header's sum, and the datagram's.
            frame[24] ^= 0xff;
            frame[40] ^= 0xff;
            frame
        })
        .collect();
    send(&mut lane, &spoilt, Verdict::Tx);
    assert_eq!(world.receive(0, good.len()), good, "computed on the way out");

    world.inject(0, &good);
    world.inject(0, &spoilt);
    let (mut arrived, mut refused) = (0, 0);
    for _ in 0..TURNS_MAX {
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
        arrived += receive(&mut lane, PORT).len();
        refused = lane.counters(PORT).drops(DropReason::BadChecksum);
        if arrived + refused as usize >= good.len() + spoilt.len() {
            break;
        }
    }
    assert_eq!((arrived, refused), (good.len(), spoilt.len() as u64), "checked on the way in");
}

/// The kernel shows net_af_packet a part of what is longer than the slots of its ring: the interface's MTU was raised,
/// or a neighbour's segments and fragments are still joined. The driver does not tell it from a whole frame.
#[test]
fn a_frame_that_the_kernel_cut_is_dropped_as_too_long() {
    let Ok(mut world) = World::cables(1).map_err(skip) else { return };
    let mut lane = world.open(&spec("dpdk:net_af_packet,no-huge"), 1).expect("opens");
    world.stretch(0, 4000);
    // The longest that is whole, and the shortest that is not.
    let whole = [udp_frames(0, 1, 1981), udp_frames(1, 1, 100)].concat();
    world.inject(0, &[whole[0].clone(), udp_frames(2, 1, 1982).remove(0)]);
    world.inject(0, &[udp_frames(3, 1, 3000).remove(0), whole[1].clone()]);
    let mut seen = Vec::new();
    for _ in 0..TURNS_MAX {
        if seen.len() == whole.len() {
            break;
        }
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
        seen.extend(receive(&mut lane, PORT).into_iter().filter(|frame| is_ours(frame)));
    }
    assert_eq!(seen, whole);
    assert_eq!(lane.counters(PORT).drops(DropReason::RxTooLong), 2);
    assert_eq!(lane.mbufs_in_use(), 0);
}

#[test]
fn a_pci_address_that_does_not_exist_is_named() {
    let Some(_alone) = alone() else { return };
    let sentence = refusal("dpdk:pci=00ff:ff:1f.7,no-huge", &[]);
    assert!(sentence.contains("no PCI device `00ff:ff:1f.7`"), "{sentence}");
    assert!(sentence.contains("lspci -D"), "{sentence}");
}

/// A frame like the others, whose checksum is left to a device: the field holds the sum of the pseudo-header.
fn unfinished(number: u64) -> Vec<u8> {
    let mut frame = udp_frames(number, 1, 100).remove(0);
    let bytes = frame[38..40].to_vec();
    let length = u64::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let pseudo = checksum::fold(checksum::sum(&frame[26..34]) + 17 + length);
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    frame
}

#[test]
fn what_a_neighbour_on_a_veth_left_to_a_device_is_finished_where_that_is_asked_for() {
    for finishes in [true, false] {
        let Some(mut world) = World::cables(1).map_err(skip).ok() else { return };
        let mut lane = world.open(&spec("dpdk:net_af_packet,no-huge"), 1).expect("opens");
        if finishes {
            lane = lane.finishing_checksums();
        }
        let whole = udp_frames(0, 3, 100);
        let sent: Vec<Vec<u8>> = whole.iter().cloned().chain((3..7).map(unfinished)).collect();
        world.inject(0, &sent);
        let mut seen = Vec::new();
        for _ in 0..TURNS_MAX {
            if seen.len() == sent.len() {
                break;
            }
            lane.wait(Duration::from_millis(10)).expect("the lane waits");
            seen.extend(receive(&mut lane, PORT).into_iter().filter(|frame| is_ours(frame)));
        }
        let finished: Vec<Vec<u8>> = whole.into_iter().chain(udp_frames(3, 4, 100)).collect();
        assert_eq!(seen, if finishes { finished } else { sent });
        lane.counters(PORT);
        let fact = lane.caps(PORT).facts.get("checksums_finished").map(String::as_str);
        assert_eq!(fact, finishes.then_some("4"));
    }
}
