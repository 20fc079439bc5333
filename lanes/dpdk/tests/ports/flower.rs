//! Rules that a tap executes: frames of a capture dropped and steered by the port itself. net_tap gives
//! its rules to the kernel's tc flower, so each test needs a kernel that has it, and says so where it runs
//! on another; `flow_rules` runs all of them on one that is an ordinary program (`tests/guest.sh`).

use crate::{
    workers::{FLOW_STEP, FLOWS, WORKERS, flows, run},
    world::{World, spec},
};
use laneway_core::{FrameLane, Lane, PortId, Verdict};
use laneway_dpdk::{DpdkLane, DpdkPorts, FlowRules};
use laneway_flow::{Header, HeaderMatch, Offload, PortAction, PortHits, PortRule};
use laneway_testkit::{UdpFrame, skip};
use laneway_wire::{ether_type, is_vlan_type};
use std::{fs, time::Duration};

const PORT: PortId = PortId(0);
/// Waits of 10 ms in vain after which a frame counts as lost.
const WAITS_MAX: usize = 3000;
/// Number and type of the frame behind all others, which no rule here asks for (IEEE 802: local use).
const LAST: u64 = 999_999;
const LAST_TYPE: [u8; 2] = [0x88, 0xb6];
/// What a tap carries.
const FRAME_BYTES_MAX: usize = 1514;
const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/captures/tiny.pcap");

/// From which byte on, the value there, and which bits of it count.
type Ask<'a> = (usize, &'a [u8], &'a [u8]);

fn header(header: Header, asks: &[Ask<'_>]) -> HeaderMatch {
    let mut any = HeaderMatch::any(header);
    asks.iter().for_each(|(at, value, mask)| any.ask(*at, value, value, mask));
    any
}

fn rule(pattern: Vec<HeaderMatch>, action: PortAction) -> PortRule {
    PortRule { priority: 0, pattern, actions: vec![action] }
}

/// UDP over IPv4 with these bytes asked for.
fn udp(asks: &[Ask<'_>]) -> Vec<HeaderMatch> {
    let any = HeaderMatch::any;
    vec![any(Header::Eth), any(Header::Ipv4), header(Header::Udp, asks)]
}

/// A tap with queues for so many workers, and room for its rules; `None`, and says so, where its kernel
/// has no tc flower.
fn tap(workers: usize) -> Option<(World, DpdkPorts, FlowRules)> {
    let mut world = World::taps().map_err(skip).ok()?;
    let ports = world.open_shared(&spec("dpdk:net_tap,no-huge"), 1, workers).expect("opens");
    let mut rules = FlowRules::new(&ports);
    if let Err(why) = rules.install(0, 0, &rule(udp(&[]), PortAction::Queue(0))) {
        skip(format!("net_tap keeps no rule here: {why}"));
        return None;
    }
    rules.remove(0, 0);
    Some((world, ports, rules))
}

/// What the lane receives of these frames: all that arrived before the last one, which is no IP frame.
fn received(world: &World, lane: &mut DpdkLane, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut last = UdpFrame { sequence: LAST, ..UdpFrame::default() }.build();
    last[12..14].copy_from_slice(&LAST_TYPE);
    world.inject(0, frames);
    world.inject(0, &[last.clone()]);
    let mut received = Vec::new();
    for _ in 0..WAITS_MAX {
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
        let burst = lane.receive(PORT).expect("the lane receives");
        received.extend((0..burst.len()).map(|i| burst.frame(i).bytes.to_vec()));
        lane.settle(PORT).expect("the lane settles");
        if received.last() == Some(&last) {
            received.pop();
            return received;
        }
    }
    panic!("the last frame does not come; {} did", received.len());
}

/// The capture's frames that a tap can carry.
fn captured() -> Vec<Vec<u8>> {
    let file = fs::read(CAPTURE).expect("the repository has it");
    let mut frames = Vec::new();
    // The file's header, then each record's: two words of time, the length kept and the true one.
    let mut rest = &file[24..];
    while !rest.is_empty() {
        let kept = u32::from_le_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        frames.push(rest[16..16 + kept].to_vec());
        rest = &rest[16 + kept..];
    }
    frames.retain(|frame| (14..=FRAME_BYTES_MAX).contains(&frame.len()));
    assert!(frames.len() > 100, "{} frames", frames.len());
    frames
}

/// Whether a frame has what the pattern asks for, byte by byte: a header stands directly behind the one
/// before it, and a later fragment has no ports.
fn matches(pattern: &[HeaderMatch], frame: &[u8]) -> bool {
    let word = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let (mut at, mut next, mut protocol) = (0, None, None);
    pattern.iter().all(|want| {
        let Some(there) = frame.get(at..at + want.header.bytes()) else { return false };
        let holds = there.iter().enumerate().all(|(i, byte)| byte & want.mask[i] == want.spec[i]);
        let follows = match want.header {
            Header::Eth => true,
            Header::Vlan => next.is_some_and(is_vlan_type),
            Header::Ipv4 => next == Some(ether_type::IPV4),
            Header::Ipv6 => next == Some(ether_type::IPV6),
            Header::Udp => protocol == Some(17),
            Header::Tcp => protocol == Some(6),
            other => panic!("no rule here asks for {other:?}"),
        };
        match want.header {
            Header::Eth => next = word(12),
            Header::Vlan => next = word(at + 2),
            Header::Ipv4 => {
                let is_first = word(at + 6).is_some_and(|fragment| fragment & 0x1fff == 0);
                protocol = Some(there[9]).filter(|_| is_first);
            }
            Header::Ipv6 => protocol = Some(there[6]),
            _ => {}
        }
        at += match want.header {
            Header::Ipv4 => usize::from(there[0] & 0x0f) * 4,
            header => header.bytes(),
        };
        follows && holds
    })
}

#[test]
#[ignore = "wants a kernel with tc flower: `flow_rules` brings one"]
fn a_tap_drops_the_frames_of_a_capture_that_a_rule_says_and_no_other() {
    let Some((world, ports, mut rules)) = tap(1) else { return };
    let mut lane = DpdkLane::open_shared(&ports, 0).expect("opens");
    // No tags: this kernel's packet sockets put a tagged frame's network header behind its tags, where
    // flower looks for the tag; of a VLAN interface it would find it.
    let (frames, any) = (captured(), HeaderMatch::any);
    assert_eq!(received(&world, &mut lane, &frames), frames, "without a rule");
    let patterns = [
        udp(&[(2, &[0, 53], &[0xff; 2])]),
        udp(&[(0, &[0, 53], &[0xff; 2])]),
        vec![
            any(Header::Eth),
            any(Header::Ipv4),
            header(Header::Tcp, &[(2, &[0, 80], &[0xff; 2])]),
        ],
        vec![
            any(Header::Eth),
            any(Header::Ipv6),
            header(Header::Udp, &[(2, &[0, 53], &[0xff; 2])]),
        ],
        vec![any(Header::Eth), any(Header::Ipv6)],
        vec![any(Header::Eth), header(Header::Ipv4, &[(12, &[192, 0, 2, 2], &[0xff; 4])])],
        vec![any(Header::Eth), header(Header::Ipv4, &[(9, &[6], &[0xff])])],
        vec![header(Header::Eth, &[(12, &[8, 6], &[0xff; 2])])],
        vec![header(Header::Eth, &[(0, &[0xff; 6], &[0xff; 6])])],
    ];
    for (id, pattern) in (0..).zip(patterns) {
        rules.install(0, id, &rule(pattern.clone(), PortAction::Drop)).expect("it is taken");
        let left: Vec<_> = frames.iter().filter(|f| !matches(&pattern, f)).cloned().collect();
        let through = received(&world, &mut lane, &frames);
        assert!(through == left, "pattern {id}: {} of {} frames", through.len(), left.len());
        assert!(left.len() < frames.len(), "pattern {id} is about no frame");
        assert_eq!(rules.remove(0, id), PortHits::default(), "it was not asked to count");
    }
    assert_eq!(received(&world, &mut lane, &frames), frames, "without a rule again");
}

#[test]
#[ignore = "wants a kernel with tc flower: `flow_rules` brings one"]
fn udp_without_a_port_is_for_a_tap_whatever_says_so_in_its_ip_header() {
    let Some((world, ports, mut rules)) = tap(1) else { return };
    let mut lane = DpdkLane::open_shared(&ports, 0).expect("opens");
    let first = UdpFrame::default().build();
    let mut later = first.clone();
    later[21] = 100; // the fragment's offset, in units of 8 bytes
    assert!(matches(&udp(&[]), &first) && !matches(&udp(&[]), &later));
    // Steered, it has the fate that it has on any queue; this is why an app must not ask for a drop.
    rules.install(0, 0, &rule(udp(&[]), PortAction::Drop)).expect("taken");
    assert!(received(&world, &mut lane, &[first, later]).is_empty());
}

#[test]
#[ignore = "wants a kernel with tc flower: `flow_rules` brings one"]
fn a_tap_gives_each_flow_to_the_queue_that_its_rule_says() {
    let Some((world, ports, mut rules)) = tap(WORKERS) else { return };
    let queue = |flow: u64| (flow / 3 % WORKERS as u64) as u16;
    for flow in 0..FLOWS {
        let source = (4000 + flow as u16).to_be_bytes();
        let pattern = udp(&[(0, &source, &[0xff; 2])]);
        rules
            .install(0, flow as u32, &rule(pattern, PortAction::Queue(queue(flow))))
            .expect("taken");
    }
    assert_eq!(rules.len() as u64, FLOWS);
    let sent = flows();
    let seen = run(&ports, sent.len(), Verdict::Drop, || world.inject(0, &sent));
    assert_eq!(seen.iter().map(|seen| seen.sequences.len()).sum::<usize>(), sent.len());
    for (worker, seen) in (0..).zip(&seen) {
        let strays: Vec<_> =
            seen.sequences.iter().filter(|n| queue(*n / FLOW_STEP) != worker).collect();
        assert!(strays.is_empty(), "at worker {worker}: {strays:?}");
    }
}

#[test]
#[ignore = "wants a kernel with tc flower: `flow_rules` brings one"]
fn the_rule_of_the_lower_priority_comes_first() {
    let Some((world, ports, mut rules)) = tap(1) else { return };
    let mut lane = DpdkLane::open_shared(&ports, 0).expect("opens");
    let to = |destination_port| UdpFrame { destination_port, ..UdpFrame::default() }.build();
    let asks = |port: u8| udp(&[(2, &[0, port], &[0xff; 2])]);
    let source = UdpFrame::default().source_port.to_be_bytes();
    let kept = PortRule { priority: 3, ..rule(asks(53), PortAction::Queue(0)) };
    let dropped = udp(&[(0, &source, &[0xff; 2]), (2, &[0, 53], &[0xff; 2])]);
    let dropped = PortRule { priority: 4, ..rule(dropped, PortAction::Drop) };
    rules.install(0, 1, &dropped).expect("taken");
    assert!(received(&world, &mut lane, &[to(53)]).is_empty());
    rules.install(0, 0, &kept).expect("taken");
    assert_eq!(received(&world, &mut lane, &[to(53)]), [to(53)]);
    rules.remove(0, 0);
    assert!(received(&world, &mut lane, &[to(53)]).is_empty());
}

#[test]
#[ignore = "wants a kernel with tc flower: `flow_rules` brings one"]
fn what_a_tap_does_not_know_is_refused_by_name_and_leaves_nothing() {
    let Some((world, ports, mut rules)) = tap(1) else { return };
    let mut lane = DpdkLane::open_shared(&ports, 0).expect("opens");
    let frames = vec![UdpFrame::default().build()];
    let mut refused = |rule: &PortRule, parts: &[&str]| {
        let why = rules.install(0, 1, rule).expect_err("a tap does not take it");
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
        assert!(rules.is_empty());
    };
    let counted = PortRule {
        actions: vec![PortAction::Drop, PortAction::Count],
        ..rule(udp(&[]), PortAction::Drop)
    };
    refused(&counted, &["action not supported: COUNT (rte_flow_validate, error 95)"]);
    refused(&rule(udp(&[]), PortAction::Mark(7)), &["MARK"]);
    refused(&rule(udp(&[]), PortAction::Queue(1)), &["queue index out of range: QUEUE"]);
    let mut range = HeaderMatch::any(Header::Udp);
    range.ask(2, &[0, 1], &[0, 9], &[0xff; 2]);
    let pattern = vec![HeaderMatch::any(Header::Eth), HeaderMatch::any(Header::Ipv4), range];
    refused(&rule(pattern, PortAction::Drop), &["item not supported: UDP"]);
    let half = udp(&[(2, &[0, 0], &[0xff, 0])]);
    refused(&rule(half, PortAction::Drop), &["item not supported: UDP (rte_flow_create"]);
    let icmp = vec![HeaderMatch::any(Header::Eth), HeaderMatch::any(Header::Ipv4)];
    let icmp = [icmp, vec![HeaderMatch::any(Header::Icmp)]].concat();
    refused(&rule(icmp, PortAction::Drop), &["item not supported: ICMP"]);
    let late = PortRule { priority: 1 << 20, ..rule(udp(&[]), PortAction::Drop) };
    refused(&late, &["priority value too big"]);
    let tag = header(Header::Vlan, &[(0, &[0, 53], &[0x0f, 0xff])]);
    let tagged = vec![HeaderMatch::any(Header::Eth), tag, HeaderMatch::any(Header::Ipv4)];
    refused(&rule(tagged, PortAction::Drop), &["reads 0x0035 in a tag as 0x0005"]);
    assert_eq!(received(&world, &mut lane, &frames), frames);
}

#[test]
#[ignore = "wants a kernel with tc flower: `flow_rules` brings one"]
fn rules_go_in_any_order_and_all_with_their_owner() {
    let Some((world, ports, mut rules)) = tap(1) else { return };
    let mut lane = DpdkLane::open_shared(&ports, 0).expect("opens");
    let to = |port| UdpFrame { destination_port: port, ..UdpFrame::default() }.build();
    let frames: Vec<_> = (50..58).map(to).collect();
    for port in 50..58u8 {
        let pattern = udp(&[(2, &[0, port], &[0xff; 2])]);
        rules.install(0, port.into(), &rule(pattern, PortAction::Drop)).expect("taken");
    }
    assert!(received(&world, &mut lane, &frames).is_empty());
    for port in [50, 57, 53] {
        rules.remove(0, port);
    }
    assert_eq!(received(&world, &mut lane, &frames), [to(50), to(53), to(57)]);
    assert_eq!(rules.len(), 5);
    drop(rules);
    assert_eq!(received(&world, &mut lane, &frames), frames);
    // The interface goes before its rules and its port: what cannot be taken away ends with the port.
    let mut rules = FlowRules::new(&ports);
    rules.install(0, 0, &rule(udp(&[]), PortAction::Drop)).expect("taken");
    world.ip(&["link", "del", crate::world::NEAR[0]]);
    rules.remove(0, 0);
    drop((lane, ports, rules, world));
    let (world, ports, rules) = tap(1).expect("as before");
    let mut lane = DpdkLane::open_shared(&ports, 0).expect("opens");
    assert!(rules.is_empty());
    assert_eq!(received(&world, &mut lane, &frames), frames, "a new tap has no old rules");
}
