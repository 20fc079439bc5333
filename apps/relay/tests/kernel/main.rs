//! The kernel half: an independent implementation in Rust, the half's header on the host, and the loaded
//! programs give every frame the same fate and the same bytes; rules change under way; and over real
//! cables one group arrives at two outputs.
//!
//! What needs root or a compiler says so when it is not there.

mod cables;
mod frames;
mod model;
mod referee;

use frames::{Made, by_hand, frames, mapped};
use laneway_bpf::{BpfError, Loaded, RunInput, prog_run};
use laneway_core::{KernelApp, KernelHalf, KernelMaps, MapValue, Turn};
use laneway_relay::kernel::{
    KernelCounts, KernelFate, KernelOutput, KernelRelay, KernelRule, KernelRules,
};
use laneway_testkit::skip;
use proptest::prelude::*;
use referee::referee;
use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// The interface that frames come in by where none is named: `lo`, as BPF_PROG_RUN has it.
const IFINDEX: u32 = 1;
const SLOT: u32 = 0x0102_fffe;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// An output of the family of `like`, drawn by `number`.
fn output(like: IpAddr, number: u64) -> KernelOutput {
    let bytes = number.to_be_bytes();
    let (source_ip, destination): (IpAddr, IpAddr) = if like.is_ipv6() {
        let mut group = [0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        group[8..].copy_from_slice(&bytes);
        ("2001:db8::1".parse().expect("an address"), group.into())
    } else {
        ([192, 0, 2, bytes[7]].into(), [239, bytes[5], bytes[6], bytes[7]].into())
    };
    KernelOutput {
        ifindex: IFINDEX,
        own_mac: [2, 0, 0, 0, 0, bytes[7]],
        next_hop_mac: number.is_multiple_of(3).then_some([2, 1, 1, 1, 1, bytes[7]]),
        source_ip,
        source_port: 7000 ^ number as u16,
        destination: SocketAddr::new(destination, (6000 ^ number as u16).max(1)),
        hop_limit: (number as u8).max(1),
        dscp: number as u8 % 64,
    }
}

/// A rule for each of the inputs that these frames have, but for some; some with sources, of which not all
/// are there.
fn rules_for(frames: &[Vec<u8>]) -> Vec<KernelRule> {
    let mut inputs = HashSet::new();
    let mut rules = Vec::new();
    for frame in frames {
        let Ok(datagram) = model::read(frame, 0) else { continue };
        let input = (datagram.vlan, datagram.destination, datagram.port);
        if !inputs.insert(input) || inputs.len() % 5 == 4 {
            continue;
        }
        let number = 77 * inputs.len() as u64;
        let sources = match inputs.len() % 4 {
            1 => vec![datagram.source],
            2 if rules.len() > 8 => vec![output(datagram.source, 5).source_ip],
            _ => Vec::new(),
        };
        rules.push(KernelRule {
            ifindex: IFINDEX,
            vlan: datagram.vlan,
            destination: datagram.destination,
            port: datagram.port,
            sources,
            outputs: vec![output(datagram.source, number)],
        });
    }
    rules
}

/// A set of rules that was checked.
fn checked(rules: &[KernelRule]) -> KernelRules {
    KernelRules::new(rules.to_vec()).unwrap_or_else(|e| panic!("{e}"))
}

/// `struct lw_relay_output` of a rule's only output.
fn output_bytes(rule: &KernelRule) -> Vec<u8> {
    let half = KernelRelay::new(checked(std::slice::from_ref(rule)), 1).half();
    let entry = half.entries.into_iter().find(|(map, ..)| *map == "outputs");
    let Some((_, _, MapValue::Bytes(bytes))) = entry else { panic!("it has an output") };
    bytes
}

/// Compares the header on the host with the model, as if each frame had a rule with an output drawn by
/// `number`.
fn compare_header(frames: &[Vec<u8>], number: u64, ttl_min: u8) {
    let Some(referee) = referee() else { return };
    for like in ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse::<IpAddr>().expect("an address")) {
        let mut rule = KernelRule {
            ifindex: IFINDEX,
            vlan: 0,
            destination: like,
            port: 1,
            sources: Vec::new(),
            outputs: vec![output(like, number)],
        };
        let bytes = output_bytes(&rule);
        let output = rule.outputs.remove(0);
        let seen = referee.run([ttl_min.into(), IFINDEX, SLOT], &bytes, frames);
        for (frame, seen) in frames.iter().zip(seen) {
            let what = || format!("{frame:02x?}\n{seen:02x?}");
            let datagram = match model::read(frame, ttl_min) {
                Ok(datagram) => datagram,
                Err(fate) => {
                    assert_eq!(seen.fate, fate as u8, "{}", what());
                    assert!(seen.sent == *frame && seen.marked == *frame, "{}", what());
                    continue;
                }
            };
            assert_eq!(seen.fate, KernelFate::Sent as u8, "{}", what());
            let mapped = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let is_v6 = datagram.source.is_ipv6();
            let vlan = (datagram.vlan | u16::from(is_v6) << 15).to_be_bytes();
            let port = datagram.port.to_be_bytes();
            let want = [
                &IFINDEX.to_ne_bytes()[..],
                &vlan,
                &port,
                &mapped(datagram.destination),
                &mapped(datagram.source),
                &(datagram.payload as u32).to_ne_bytes(),
                &[datagram.l3 as u8, u8::from(is_v6), 0, 0],
            ];
            assert_eq!(seen.datagram, want.concat(), "{}", what());
            let ticket = [&SLOT.to_ne_bytes()[..], &[datagram.l3 as u8, u8::from(is_v6)]].concat();
            assert_eq!(seen.marked, [&ticket, &frame[6..]].concat(), "{}", what());
            // A rule's outputs are of its family.
            if is_v6 == like.is_ipv6() {
                assert_eq!(seen.payload, datagram.payload as i32, "{}", what());
                assert_eq!(seen.sent, model::output(frame, &datagram, &output), "{}", what());
            }
        }
    }
}

#[test]
fn the_header_agrees_on_every_frame_of_every_capture() {
    for (number, ttl_min) in [(0, 2), (13, 1), (0xffff_ffff, 0)] {
        compare_header(frames(), number, ttl_min);
    }
    let fates: HashSet<_> = by_hand()
        .iter()
        .map(|frame| model::read(frame, 2).err().unwrap_or(KernelFate::Sent))
        .collect();
    // Those of the source and of the driver are none of the bytes'.
    assert_eq!(fates.len(), KernelFate::COUNT - 2, "{fates:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_header_agrees_on_damaged_frames(
        number: u64,
        ttl_min in 0u8..4,
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::collection::vec((0usize..70, any::<u8>()), 0..4), 0usize..90),
            1..200,
        ),
    ) {
        let whole = by_hand();
        let damaged: Vec<Vec<u8>> = damage.into_iter().map(|(which, bytes, cut)| {
            let mut frame = whole[which.index(whole.len())].clone();
            for (at, byte) in bytes {
                let at = at % frame.len();
                frame[at] = byte;
            }
            if cut >= 14 {
                frame.truncate(cut);
            }
            frame
        }).collect();
        compare_header(&damaged, number, ttl_min);
    }
}

/// Loads a half; `None`, and says so, where that is not permitted.
fn load(half: &KernelHalf) -> Option<Loaded> {
    match Loaded::load(half) {
        Ok(loaded) => Some(loaded),
        Err(BpfError::NotPermitted { doing }) => {
            skip(format!("not permitted to {doing}: loading eBPF programs needs root"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The second program by itself, as if on the way to the interface that all outputs of `half` have. The
/// kernel runs it on given bytes only when it was not loaded for the way out.
fn load_out(half: &KernelHalf) -> Option<Loaded> {
    let mut out = KernelHalf { program: "relay_out", ..half.clone() };
    out.config[0].bytes[4..].copy_from_slice(&IFINDEX.to_ne_bytes());
    out.entries.retain(|(map, ..)| *map == "outputs");
    load(&out)
}

fn run(loaded: &Loaded, frame: &[u8]) -> (u32, Vec<u8>) {
    let input = RunInput { frame, meta: &[], repeat: 1 };
    let output = prog_run(loaded.program(), input).unwrap_or_else(|e| panic!("{e}"));
    (output.verdict, output.frame)
}

#[test]
fn the_loaded_programs_agree_on_every_frame_of_every_capture() {
    const TTL_MIN: u8 = 2;
    let rules = rules_for(frames());
    let mut app = KernelRelay::new(checked(&rules), TTL_MIN);
    let half = app.half();
    let (Some(loaded), Some(out)) = (load(&half), load_out(&half)) else { return };
    let (mut fates, mut slots) = ([0; KernelFate::COUNT], HashMap::new());
    let mut payload: HashMap<u32, (u64, u64)> = HashMap::new();
    for frame in frames() {
        let (verdict, marked) = run(&loaded, frame);
        let (rule, datagram) = match model::decide(&rules, IFINDEX, frame, TTL_MIN) {
            Ok(decided) => decided,
            Err(fate) => {
                fates[fate as usize] += 1;
                assert!(verdict == XDP_PASS && marked == *frame, "{fate:?} {frame:02x?}");
                continue;
            }
        };
        fates[KernelFate::Sent as usize] += 1;
        assert_eq!(verdict, XDP_REDIRECT, "{frame:02x?}");
        let slot = u32::from_ne_bytes(*marked.first_chunk().expect("a ticket"));
        let first = *slots.entry((rule.vlan, rule.destination, rule.port)).or_insert(slot);
        assert_eq!(slot, first, "one rule, one slot");
        let want = model::output(frame, &datagram, &rule.outputs[0]);
        assert_eq!(run(&out, &marked), (XDP_PASS, want), "{frame:02x?}");
        let counts = payload.entry(slot).or_default();
        *counts = (counts.0 + 1, counts.1 + datagram.payload as u64);
    }
    assert!(slots.len() > 8, "{} rules with datagrams show nothing", slots.len());
    app.on_detached(loaded.maps(), Turn::default());
    assert!(app.failure().is_none(), "{:?}", app.failure());
    let counts = app.counts();
    assert_eq!(counts.fates, fates);
    assert!(fates[KernelFate::Source as usize] > 0);
    for (rule, counted) in rules.iter().zip(&counts.rules) {
        let slot = slots.get(&(rule.vlan, rule.destination, rule.port));
        let want = slot.map_or((0, 0), |slot| payload[slot]);
        assert_eq!((counted.taken.count, counted.taken.bytes), want);
    }
    // The programs ran by themselves, so nothing passed from the first to the second.
    assert_eq!(counts.passed_over, fates[KernelFate::Sent as usize]);
    let mut sent = 0;
    out.maps()
        .visit("outputs", &mut |_, values| sent += laneway_bpf::sum_per_cpu(values, 9)[7])
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sent, fates[KernelFate::Sent as usize]);
}

#[test]
fn a_ticket_that_no_relay_wrote_is_dropped() {
    let rules = rules_for(&by_hand());
    let Some(out) = load_out(&KernelRelay::new(checked(&rules), 1).half()) else { return };
    let whole = Made::between("192.0.2.7", "239.1.1.1").build();
    for ticket in [[0xff, 0xff, 0xff, 0xff, 14, 0], [0, 0, 0, 0, 15, 0], [0, 0, 0, 0, 255, 1]] {
        let frame = [&ticket, &whole[6..]].concat();
        assert_eq!(run(&out, &frame).0, 1, "{ticket:?}");
        assert_eq!(run(&out, &frame[..20]).0, 1, "{ticket:?}");
    }
}

#[test]
fn ipv6_to_a_mapped_group_is_no_datagram_of_the_group() {
    let group = "239.1.1.1".parse().expect("an address");
    let rule = KernelRule {
        ifindex: IFINDEX,
        vlan: 0,
        destination: group,
        port: 5000,
        sources: Vec::new(),
        outputs: vec![output(group, 1)],
    };
    let Some(loaded) = load(&KernelRelay::new(checked(&[rule]), 1).half()) else { return };
    assert_eq!(run(&loaded, &Made::between("192.0.2.7", "239.1.1.1").build()).0, XDP_REDIRECT);
    assert_eq!(run(&loaded, &mapped()), (XDP_PASS, mapped()));
}

/// How many datagrams each rule took.
fn taken(counts: &KernelCounts) -> Vec<u64> {
    counts.rules.iter().map(|rule| rule.taken.count).collect()
}

#[test]
fn rules_change_under_way_and_the_others_keep_their_counts() {
    let group: IpAddr = "239.1.1.1".parse().expect("an address");
    let rule = |port: u16, number: u64| KernelRule {
        ifindex: IFINDEX,
        vlan: 0,
        destination: group,
        port,
        sources: Vec::new(),
        outputs: vec![output(group, number)],
    };
    let mut app = KernelRelay::new(checked(&[rule(1, 1), rule(2, 2)]), 1);
    let Some(loaded) = load(&app.half()) else { return };
    let feed = app.feed();
    let send = |port: u16, count: u32| {
        let made = Made::between("192.0.2.7", "239.1.1.1");
        let frame = Made { ports: [9, port], ..made }.build();
        let redirected = (0..count).filter(|_| run(&loaded, &frame).0 == XDP_REDIRECT);
        redirected.count() as u32
    };
    let mut now_ns = 0;
    let mut tick = |app: &mut KernelRelay| {
        now_ns += 1_000_000_000;
        app.on_tick(loaded.maps(), Turn { now_ns });
        assert!(app.failure().is_none(), "{:?}", app.failure());
    };
    assert_eq!((send(1, 3), send(2, 4), send(3, 5)), (3, 4, 0));
    tick(&mut app);
    assert_eq!(taken(&feed.counts()), [3, 4]);
    // The first goes on as it is, the second changes, a third comes; then the first goes.
    let number = feed.replace(checked(&[rule(3, 3), rule(2, 9), rule(1, 1)]));
    assert!(!feed.wait(number, Duration::ZERO), "no worker has taken it");
    assert_eq!(send(3, 1), 0);
    tick(&mut app);
    assert!(feed.wait(number, Duration::ZERO));
    assert_eq!((send(1, 1), send(2, 1), send(3, 6)), (1, 1, 6));
    tick(&mut app);
    assert_eq!(taken(&feed.counts()), [6, 5, 4]);
    feed.replace(checked(&[rule(2, 9)]));
    let number = feed.replace(checked(&[rule(2, 9), rule(3, 3)]));
    tick(&mut app);
    assert!(feed.wait(number, Duration::ZERO), "the later one is in force, which is after both");
    assert_eq!((send(1, 2), send(2, 1), send(3, 1)), (0, 1, 1));
    app.on_detached(loaded.maps(), Turn::default());
    assert_eq!(taken(&feed.counts()), [6, 7]);
    assert_eq!(feed.counts().taken.count, 3 + 4 + 1 + 1 + 6 + 1 + 1);
    let mut slots = 0;
    for map in ["rules", "outputs"] {
        loaded.maps().visit(map, &mut |_, _| slots += 1).unwrap_or_else(|e| panic!("{e}"));
    }
    assert_eq!(slots, 4, "what is gone is not there any more");
}

#[test]
fn as_many_rules_as_may_be_are_loaded_and_replaced() {
    use laneway_relay::kernel::KERNEL_RULES_MAX;
    let rules = |ports: u32| -> KernelRules {
        let rule = |at: u32| {
            let group = IpAddr::from([239, 1, (at >> 8) as u8, at as u8]);
            let outputs = vec![output(group, u64::from(at ^ ports))];
            KernelRule {
                ifindex: IFINDEX,
                vlan: 0,
                destination: group,
                port: 5000,
                sources: Vec::new(),
                outputs,
            }
        };
        checked(&(0..KERNEL_RULES_MAX as u32).map(rule).collect::<Vec<_>>())
    };
    let mut app = KernelRelay::new(rules(0), 1);
    let Some(loaded) = load(&app.half()) else { return };
    let number = app.feed().replace(rules(1));
    app.on_tick(loaded.maps(), Turn::default());
    assert!(app.failure().is_none(), "{:?}", app.failure());
    assert!(app.feed().wait(number, Duration::ZERO));
    let last = Made::between("192.0.2.7", "239.1.39.15").build();
    assert_eq!(run(&loaded, &last).0, XDP_REDIRECT);
}
