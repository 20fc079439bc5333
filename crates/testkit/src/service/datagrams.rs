//! What every datagram lane must do, one function per behaviour.
//!
//! What the suite assumes beyond the wording of the contract, because an engine does too: a batch
//! is of one port; a datagram is counted on the port that received it, or sent it; one that names a
//! missing port is counted on the port that was being served, or on port 0 when the app sent it on
//! its own account.
//!
//! That no app keeps a datagram beyond the call that shows it, so that its token is always of the
//! batch in hand, is the compiler's to check:
//!
//! ```compile_fail,E0521
//! struct Keeper(Option<laneway_core::Payload<'static>>);
//!
//! impl Keeper {
//!     fn on_datagrams(&mut self, batch: &[laneway_core::Datagram<'_>]) {
//!         self.0 = Some(batch[0].payload);
//!     }
//! }
//! ```

use super::bench::{Bench, PORT, assert_same};
pub use super::live_ports::*;
use super::{
    Answer, DatagramRig, TickSend, WAIT, WAITS_MAX, middle, ok, payload, payloads,
    ring_after_ticks, spec, stop_after_ticks,
};
use crate::refusal::refusal;
use crate::{hearing, patience::Patience, skip};
use laneway_core::{
    Bell, Cap, Clock, DatagramLane, DropReason, Lane, LaneError, PortId, PortMask, Wake,
};
use laneway_engine::{Control, Ended, Stop, run_datagrams};
use laneway_spec::{IdlePolicy, SpecError};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

const OTHER: PortId = PortId(1);
/// A port that no rig opens.
const NOWHERE: PortId = PortId(PortMask::PORTS_MAX as u32 - 1);

fn assert_collected(got: &[Vec<u8>], wanted: &[Vec<u8>]) {
    assert_same(got.iter().map(Vec::as_slice), wanted);
}

/// True (and a printed reason) when the rig opens only one port.
fn lacks_ports<R: DatagramRig>(rig: &R) -> bool {
    let lacks = rig.properties().ports_max < 2;
    if lacks {
        skip("the rig opens only one port");
    }
    lacks
}

/// Datagrams of many lengths arrive with the bytes, the order, the source and the destination that they
/// were sent with. Their time stamps do not go back.
pub fn datagrams_arrive_unchanged_in_order_with_their_addresses<R: DatagramRig>(rig: &mut R) {
    let longest = rig.properties().payload_bytes_max;
    let lengths = [1, 18, 64, 65, 512, 577, 999, longest - 1, longest];
    let sent: Vec<_> = (0..45).map(|i| payload(i as u64, lengths[i % lengths.len()])).collect();
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    let opened_ns = bench.clock.now_ns();
    bench.pump(PORT, &sent);
    bench.assert_seen(&sent);
    let (near, far) = (bench.rig.near(PORT), bench.rig.far(PORT));
    let mut last_ns = 0;
    for seen in &bench.probe.seen {
        assert_eq!((seen.source, seen.destination, seen.ingress), (far, near, PORT));
        assert!(seen.ts_ns >= last_ns, "stamps go back from {last_ns} to {}", seen.ts_ns);
        last_ns = seen.ts_ns;
    }
    // A kernel stamp is converted between clocks and may be off by what that costs.
    const CONVERSION_NS_MAX: u64 = 1_000_000;
    let now_ns = bench.clock.now_ns();
    let stamps = bench.probe.seen.iter().map(|seen| seen.ts_ns);
    for ts_ns in stamps {
        assert!(
            ts_ns + CONVERSION_NS_MAX >= opened_ns && ts_ns <= now_ns + CONVERSION_NS_MAX,
            "a stamp of {ts_ns} outside {opened_ns}..{now_ns}"
        );
    }
}

/// Every port gets its own datagrams, in its own order, and says so.
pub fn datagrams_of_each_port_keep_to_it<R: DatagramRig>(rig: &mut R) {
    if lacks_ports(rig) {
        return;
    }
    let (some, others) = (payloads(0, 12, 100), payloads(100, 12, 100));
    let mut bench = Bench::open(rig, "", 2, Answer::Nothing);
    for (one, another) in some.iter().zip(&others) {
        bench.rig.send(PORT, &[one]);
        bench.rig.send(OTHER, &[another]);
    }
    bench.serve_until(some.len() + others.len());
    for (port, wanted) in [(PORT, &some), (OTHER, &others)] {
        let near = bench.rig.near(port);
        let own = || bench.probe.seen.iter().filter(|seen| seen.ingress == port);
        assert!(own().all(|seen| seen.destination == near), "destination at port {}", port.0);
        assert_same(own().flat_map(super::Seen::datagrams), wanted);
    }
}

/// The lane's batch knob bounds what the app is shown at once.
pub fn a_batch_never_exceeds_its_knob<R: DatagramRig>(rig: &mut R) {
    let (knobs, entries_max) = rig.properties().small_batch;
    let mut bench = Bench::open(rig, knobs, 1, Answer::Nothing);
    let sent = payloads(0, 5 * entries_max, 64);
    bench.pump(PORT, &sent);
    bench.assert_seen(&sent);
    let longest = bench.probe.batches.iter().max();
    assert!(longest <= Some(&entries_max), "a batch of {longest:?} entries, not {entries_max}");
}

/// A datagram without payload is one datagram, both ways, and does not disturb its neighbours.
pub fn an_empty_datagram_survives<R: DatagramRig>(rig: &mut R) {
    if !rig.properties().carries_empty {
        return skip("an empty datagram cannot be distinguished from none here");
    }
    let sent = [payload(0, 64), Vec::new(), payload(2, 64), Vec::new(), Vec::new(), payload(5, 9)];
    for answer in [Answer::Reply, Answer::ForwardBack] {
        let mut bench = Bench::open(rig, "", 1, answer);
        let back = bench.pump_and_collect(&sent, PORT);
        bench.assert_seen(&sent);
        assert_collected(&back, &sent);
        let counters = bench.lane.counters(PORT);
        assert_eq!((counters.rx_frames, counters.tx_frames), (6, 6), "{counters:?}");
    }
}

/// New bytes sent to a datagram's source arrive there, from the address that it was sent to.
pub fn a_reply_reaches_its_sender<R: DatagramRig>(rig: &mut R) {
    let longest = rig.properties().payload_bytes_max;
    let mut sent = payloads(0, 30, 200);
    sent.extend(payloads(30, 4, longest));
    let mut bench = Bench::open(rig, "", 1, Answer::Reply);
    let back = bench.pump_and_collect(&sent, PORT);
    bench.assert_seen(&sent);
    assert_collected(&back, &sent);
    bench.assert_silent(PORT);
}

/// What is forwarded leaves byte for byte, in order, once.
pub fn a_forwarded_datagram_keeps_its_bytes<R: DatagramRig>(rig: &mut R) {
    let longest = rig.properties().payload_bytes_max;
    let lengths = [300, 300, 300, 40, 300, longest, 1];
    let sent: Vec<_> = (0..70).map(|i| payload(i as u64, lengths[i % lengths.len()])).collect();
    let mut bench = Bench::open(rig, "", 1, Answer::ForwardBack);
    let back = bench.pump_and_collect(&sent, PORT);
    bench.assert_seen(&sent);
    assert_collected(&back, &sent);
    bench.assert_silent(PORT);
}

/// A part of a datagram, or of a train, is forwarded with just its own bytes.
pub fn a_part_of_a_datagram_is_forwarded_alone<R: DatagramRig>(rig: &mut R) {
    let longest = rig.properties().payload_bytes_max;
    let lengths = [300, 300, 300, 40, longest, 6];
    let sent: Vec<_> = (0..60).map(|i| payload(i as u64, lengths[i % lengths.len()])).collect();
    let middles: Vec<_> = sent.iter().map(|bytes| bytes[middle(bytes.len())].to_vec()).collect();
    let mut bench = Bench::open(rig, "", 1, Answer::ForwardParts);
    let back = bench.pump_and_collect(&sent, PORT);
    bench.assert_seen(&sent);
    assert_collected(&back, &middles);
    bench.assert_silent(PORT);
}

/// What the lane did not receive is forwarded as it is when the app says so, whatever else lies in
/// the lane's memory and wherever another lane has it.
pub fn bytes_that_the_lane_did_not_receive_are_forwarded<R: DatagramRig>(rig: &mut R) {
    let sent: Vec<_> = (0..20).map(|i| payload(i, 100 + i as usize)).collect();
    let backwards: Vec<Vec<u8>> =
        sent.iter().map(|bytes| bytes.iter().rev().copied().collect()).collect();
    let mut bench = Bench::open(rig, "", 1, Answer::ForwardForeign);
    let back = bench.pump_and_collect(&sent, PORT);
    bench.assert_seen(&sent);
    assert_collected(&back, &backwards);
    bench.assert_silent(PORT);
}

/// What is forwarded through another port leaves there, from that port's address, and is counted
/// there.
pub fn a_datagram_leaves_by_the_port_it_is_sent_through<R: DatagramRig>(rig: &mut R) {
    if lacks_ports(rig) {
        return;
    }
    let sent = payloads(0, 20, 200);
    let mut bench = Bench::open(rig, "", 2, Answer::Nothing);
    bench.probe.answer = Answer::ForwardTo(OTHER, bench.rig.far(OTHER));
    let left = bench.pump_and_collect(&sent, OTHER);
    assert_collected(&left, &sent);
    bench.assert_silent(PORT);
    assert_eq!(bench.lane.counters(OTHER).tx_frames, sent.len() as u64);
    assert_eq!(bench.lane.counters(PORT).tx_frames, 0);
}

/// Whatever a lane makes of consecutive sends (trains of equal ones, say), the far end sees every
/// datagram with its own length, in order.
pub fn sends_of_any_sizes_leave_as_they_were<R: DatagramRig>(rig: &mut R) {
    /// Runs of equal sizes, rises, falls, and a run that ends in a shorter one.
    const LENGTHS: [usize; 18] =
        [500, 500, 500, 200, 500, 500, 900, 900, 3, 3, 3, 3, 2, 1, 1, 700, 699, 700];
    let sent: Vec<_> = (0..90).map(|i| payload(i as u64, LENGTHS[i % LENGTHS.len()])).collect();
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    let far = bench.rig.far(PORT);
    for chunk in sent.chunks(bench.is.send_max) {
        bench.probe.on_tick =
            chunk.iter().map(|bytes| TickSend::exact(PORT, far, bytes.clone())).collect();
        bench.tick();
        let left = bench.collect(PORT, chunk.len());
        assert_collected(&left, chunk);
    }
    assert_eq!(bench.lane.counters(PORT).tx_frames, sent.len() as u64);
    assert_eq!(bench.probe.shortened, 0, "the lane has room for what passes");
}

/// A train comes in whole or cut, always with the size that cuts it right, and leaves as the
/// same datagrams.
pub fn a_train_arrives_and_leaves_as_its_datagrams<R: DatagramRig>(rig: &mut R) {
    const TRAINS: [(usize, usize); 5] = [(8, 800), (3, 1000), (1, 700), (16, 100), (2, 1)];
    let mut bench = Bench::open(rig, "", 1, Answer::ForwardBack);
    let mut whole = 0;
    for (sequence, (segments, segment_bytes)) in (0u64..).zip(TRAINS) {
        // A datagram of one byte cannot be shorter and still be in its train.
        // The last datagram of every other train is shorter.
        let shorter = if sequence % 2 == 0 { segment_bytes / 3 } else { 0 };
        let bytes = payload(sequence, segments * segment_bytes - shorter);
        let cut: Vec<Vec<u8>> = bytes.chunks(segment_bytes).map(<[u8]>::to_vec).collect();
        if cut.len() > bench.is.send_max {
            continue;
        }
        bench.probe.seen.clear();
        bench.rig.send_train(PORT, &bytes, segment_bytes);
        bench.serve_until(cut.len());
        bench.assert_seen(&cut);
        whole += usize::from(cut.len() > 1 && bench.probe.seen.len() == 1);
        let left = bench.collect(PORT, cut.len());
        assert_collected(&left, &cut);
    }
    if bench.is.trains {
        assert!(whole > 0, "no train arrived in one piece");
    } else {
        skip("trains do not arrive in one piece here; their datagrams were checked");
    }
}

/// What the app sends on its own account leaves before the tick returns, and so does nothing else.
pub fn what_a_tick_sends_leaves<R: DatagramRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    let far = bench.rig.far(PORT);
    let sent = payloads(0, bench.is.send_max.min(12), 333);
    bench.probe.on_tick =
        sent.iter().map(|bytes| TickSend::exact(PORT, far, bytes.clone())).collect();
    bench.tick();
    assert_collected(&bench.collect(PORT, sent.len()), &sent);
    bench.tick();
    bench.assert_silent(PORT);
}

/// The length that the app's closure returns is the length that leaves.
pub fn a_send_of_less_than_was_offered_leaves_with_that_length<R: DatagramRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    let (far, bytes_max) = (bench.rig.far(PORT), bench.is.payload_bytes_max);
    let sent: Vec<_> = (1..6).map(|i| payload(i as u64, i * 10)).collect();
    bench.probe.on_tick = sent
        .iter()
        .map(|bytes| TickSend { bytes_max, ..TickSend::exact(PORT, far, bytes.clone()) })
        .collect();
    bench.tick();
    assert_collected(&bench.collect(PORT, sent.len()), &sent);
}

/// A datagram that no packet can carry is counted, keeps no other back, and is no reason to stop.
pub fn a_datagram_too_long_to_leave_is_counted<R: DatagramRig>(rig: &mut R) {
    let Some(too_long) = rig.properties().too_long_bytes else {
        return skip("the lane cannot be asked to send what is too long");
    };
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    let far = bench.rig.far(PORT);
    let short = payloads(0, 4, 200);
    let mut sends: Vec<_> =
        short.iter().map(|bytes| TickSend::exact(PORT, far, bytes.clone())).collect();
    sends.insert(2, TickSend::exact(PORT, far, payload(9, too_long)));
    bench.probe.on_tick = sends;
    bench.tick();
    if bench.probe.shortened > 0 {
        return skip(format!("the lane's buffers end before {too_long} bytes"));
    }
    assert_collected(&bench.collect(PORT, short.len()), &short);
    bench.assert_silent(PORT);
    assert_eq!(bench.drops(DropReason::TxTooLong), 1, "{:?}", bench.lane.counters(PORT));
    assert_eq!(bench.lane.counters(PORT).tx_frames, short.len() as u64);
}

/// Sending or forwarding through a port that is not there loses that datagram by name and no other.
pub fn a_port_that_is_not_there_is_counted<R: DatagramRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    let far = bench.rig.far(PORT);
    let sent = payloads(0, 4, 64);
    bench.probe.answer = Answer::ForwardTo(NOWHERE, far);
    bench.pump(PORT, &sent);
    bench.assert_seen(&sent);
    assert_eq!(bench.drops(DropReason::TxNoPort), 4);
    bench.probe.on_tick = vec![
        TickSend::exact(NOWHERE, far, payload(7, 64)),
        TickSend::exact(PORT, far, payload(8, 64)),
    ];
    bench.tick();
    assert_collected(&bench.collect(PORT, 1), &[payload(8, 64)]);
    assert_eq!(bench.drops(DropReason::TxNoPort), 5);
    bench.assert_silent(PORT);
}

/// Counters equal what the app saw and the far end collected, in datagrams and bytes.
pub fn counters_match_what_was_seen<R: DatagramRig>(rig: &mut R) {
    let mut sent = payloads(0, 20, 64);
    sent.extend(payloads(20, 20, 700));
    let mut bench = Bench::open(rig, "", 1, Answer::ForwardBack);
    let left = bench.pump_and_collect(&sent, PORT);
    let bytes = |datagrams: &[Vec<u8>]| datagrams.iter().map(|d| d.len() as u64).sum::<u64>();
    let counters = bench.lane.counters(PORT);
    assert_eq!(counters.rx_frames, sent.len() as u64, "rx_frames");
    assert_eq!(counters.rx_bytes, bytes(&sent), "rx_bytes");
    assert_eq!(counters.tx_frames, left.len() as u64, "tx_frames");
    assert_eq!(counters.tx_bytes, bytes(&left), "tx_bytes");
    assert_eq!(counters.lost(), 0, "{counters:?}");
}

/// More datagrams than can be queued: each is seen or lost under a name, and the lane goes on.
pub fn the_ledger_closes_when_the_lane_is_overrun<R: DatagramRig>(rig: &mut R) {
    let Some(overload) = rig.properties().overload else {
        return skip("the lane's own queues cannot be overrun here");
    };
    let mut bench = Bench::open(rig, overload.knobs, 1, Answer::Nothing);
    let sent = payloads(0, overload.frames, 64);
    let borrowed: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    bench.rig.send(PORT, &borrowed);
    let mut patience = Patience::new(WAITS_MAX);
    while !patience.is_over() {
        while bench.serve() > 0 {
            patience.note_arrival();
        }
        let lost = bench.lane.counters(PORT).lost();
        if bench.arrived() as u64 + lost >= overload.frames as u64 {
            break;
        }
        patience.wait(|| ok(bench.lane.wait(WAIT)));
    }
    let (seen, counters) = (bench.arrived() as u64, bench.lane.counters(PORT));
    assert!(counters.lost() > 0, "{} datagrams did not overrun the lane", overload.frames);
    assert_eq!(seen + counters.lost(), overload.frames as u64, "{counters:?}");
    let later = payloads(overload.frames as u64, 5, 64);
    bench.probe.seen.clear();
    bench.pump(PORT, &later);
    bench.assert_seen(&later);
}

/// Without traffic the app is not called, and the lane does not sleep in it by itself.
pub fn a_serve_without_traffic_shows_nothing<R: DatagramRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    for _ in 0..100 {
        assert_eq!(bench.serve(), 0);
    }
    assert!(bench.probe.batches.is_empty());
    assert_eq!(bench.lane.counters(PORT).rx_frames, 0);
}

/// A wait without traffic comes to its end and says so; a wait with traffic says that it is there,
/// and takes nothing away.
pub fn wait_is_ready_with_traffic_and_times_out_without<R: DatagramRig>(rig: &mut R) {
    /// Early wake-ups are allowed, but not for ever.
    const ATTEMPTS: usize = 50;
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    let timed_out = (0..ATTEMPTS).any(|_| {
        bench.serve();
        ok(bench.lane.wait(Duration::from_millis(2))) == Wake::Timeout
    });
    assert!(timed_out, "no wait without traffic times out");
    let sent = payloads(0, 3, 64);
    let borrowed: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    bench.rig.send(PORT, &borrowed);
    let ready =
        (0..WAITS_MAX).any(|_| ok(bench.lane.wait(Duration::from_millis(50))) == Wake::Ready);
    assert!(ready, "no wait with traffic is ready");
    bench.serve_until(sent.len());
    bench.assert_seen(&sent);
}

/// A bell rung before a wait ends it.
pub fn a_bell_rung_before_a_wait_ends_it<R: DatagramRig>(rig: &mut R) {
    let Bench { mut lane, mut probe, clock, .. } = Bench::open(rig, "", 1, Answer::Nothing);
    hearing::before(&mut lane, &mut |lane| {
        ok(lane.serve(&mut probe, &clock));
    });
}

/// A bell rung by another thread during a wait ends it.
pub fn a_bell_rung_during_a_wait_ends_it<R: DatagramRig>(rig: &mut R) {
    let Bench { mut lane, mut probe, clock, .. } = Bench::open(rig, "", 1, Answer::Nothing);
    hearing::during(&mut lane, &mut |lane| {
        ok(lane.serve(&mut probe, &clock));
    });
}

/// A worker that waits calls its app when another thread rings, and what the app sends then leaves.
pub fn what_a_bell_releases_leaves<R: DatagramRig>(rig: &mut R) {
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    let sent = payload(5, 200);
    let far = bench.rig.far(PORT);
    bench.probe.until_bell = true;
    bench.probe.on_tick = vec![TickSend::exact(PORT, far, sent.clone())];
    let bell = Bell::new().unwrap_or_else(|e| panic!("no bell: {e}"));
    let control = Control { bell: Some(bell.clone()), ..Control::default() };
    let ticks = Arc::clone(&bench.probe.ticks);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| ring_after_ticks(&ticks, &bell));
        let Bench { lane, probe, clock, .. } = &mut bench;
        run_datagrams(lane, probe, clock, IdlePolicy::Block, &control)
    });
    let report = ran.unwrap_or_else(|failed| panic!("the worker failed: {}", failed.error));
    assert_eq!((report.ended, bench.probe.bells), (Ended::App, 1));
    assert_collected(&bench.collect(PORT, 1), &[sent]);
}

/// A worker without traffic ends when it is asked to from another thread, its app has ticked and
/// was asked to stop once; and what it leaves lets the same lane open again at once.
pub fn a_worker_stops_and_the_lane_opens_again<R: DatagramRig>(rig: &mut R) {
    for _ in 0..2 {
        let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
        let stop = Stop::new();
        let control = Control::from(stop.clone());
        let ticks = Arc::clone(&bench.probe.ticks);
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| stop_after_ticks(&ticks, &stop));
            let Bench { lane, probe, clock, .. } = &mut bench;
            run_datagrams(lane, probe, clock, IdlePolicy::Block, &control)
        });
        let report = ran.unwrap_or_else(|failed| panic!("the worker failed: {}", failed.error));
        assert_eq!((report.ended, bench.probe.stops), (Ended::Stopped, 1));
        assert!(report.waits > 0, "a worker without traffic blocks");
        assert!(ticks.load(Ordering::SeqCst) > 0, "the app ticks without traffic");
    }
    let sent = payloads(0, 4, 64);
    let mut bench = Bench::open(rig, "", 1, Answer::Nothing);
    bench.pump(PORT, &sent);
    bench.assert_seen(&sent);
}

/// What was asked for and cannot be had fails the opening, unless `allow=` names it; then the
/// report says so.
pub fn an_impossible_capability_is_refused_unless_allowed<R: DatagramRig>(rig: &mut R) {
    let is = rig.properties();
    let Some(impossible) = is.impossible else {
        return skip("nothing that the lane can be asked for is impossible here");
    };
    let (cap, asking) = (impossible.cap, spec(is.spec, impossible.knobs));
    match rig.open(&asking, 1) {
        Err(LaneError::CapMissing { cap: missing, .. }) => assert_eq!(missing, cap),
        Err(e) => panic!("`{asking}` must fail because {} is missing, not: {e}", cap.name()),
        Ok(_) => panic!("`{asking}` opened without {}", cap.name()),
    }
    let allowing = format!("{},allow={}", impossible.knobs, cap.name());
    let mut bench = Bench::open(rig, &allowing, 1, Answer::Reply);
    let report = bench.lane.caps(PORT);
    assert!(report.requested.has(cap), "{report:?}");
    assert!(!report.obtained.has(cap), "{report:?}");
    assert!(report.allowed_missing.has(cap), "{report:?}");
    let sent = payloads(0, 4, 64);
    let back = bench.pump_and_collect(&sent, PORT);
    assert_collected(&back, &sent);
}

/// Every port has a report that admits itself and says that the lane transmits.
pub fn every_port_reports_its_capabilities<R: DatagramRig>(rig: &mut R) {
    let ports = rig.properties().ports_max;
    let bench = Bench::open(rig, "", ports, Answer::Nothing);
    for port in (0..ports).map(|p| PortId(p as u32)) {
        let report = bench.lane.caps(port);
        ok(report.admit(bench.lane.name(), |_| None));
        assert!(report.obtained.has(Cap::Transmit), "port {}: {report:?}", port.0);
    }
}

/// A misspelt knob is refused with the right one, not ignored.
pub fn an_unknown_knob_is_refused_with_a_suggestion<R: DatagramRig>(rig: &mut R) {
    let (misspelt, right) = rig.properties().misspelt;
    let spec = spec(rig.properties().spec, misspelt);
    match refusal(rig.open(&spec, 1), &spec) {
        SpecError::UnknownKnob { knob, nearest, .. } => {
            assert_eq!((knob.as_str(), nearest.as_deref()), (misspelt, Some(right)));
        }
        e => panic!("`{spec}` must fail for its knob, not: {e}"),
    }
}

/// All forms of `idle=` open, and traffic flows; anything else is refused.
pub fn every_idle_policy_is_accepted<R: DatagramRig>(rig: &mut R) {
    for policy in ["idle=spin", "idle=block", "idle=adaptive", "idle=adaptive:200"] {
        let sent = payloads(0, 4, 64);
        let mut bench = Bench::open(rig, policy, 1, Answer::Nothing);
        bench.pump(PORT, &sent);
        bench.assert_seen(&sent);
    }
    let spec = spec(rig.properties().spec, "idle=sleepy");
    match refusal(rig.open(&spec, 1), &spec) {
        SpecError::BadValue { knob, .. } => assert_eq!(knob, "idle"),
        e => panic!("`{spec}` must fail for its value, not: {e}"),
    }
}
