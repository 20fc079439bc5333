//! Losses that are named, and what is not explained away.

use super::ledger::{
    bulk_losses, changed_on_the_way, leave_unknown, peer_losses, refused_pings, return_losses,
    train_losses,
};
use super::*;
use crate::meter::Reading;
use crate::result::VETH_RING;
use laneway_core::Counters;

fn ledger(offered: u64, delivered: u64, refused: u64) -> Ledger {
    let mut ledger = Ledger { offered, delivered, ..Ledger::default() };
    if refused > 0 {
        ledger.drops.insert(DropReason::TxRefused.name().to_owned(), refused);
    }
    ledger.balance();
    ledger
}

#[test]
fn a_refusal_that_ring_and_lane_both_counted_is_named_once() {
    // All 10 were reported to the lane.
    let mut counted = ledger(100, 90, 10);
    return_losses(&mut counted, RETURN_RING, 10);
    assert_eq!((counted.unexplained, counted.dropped()), (0, 10));
    // The lane refused 4 itself; the ring refused 10 more and reported none.
    let mut uncounted = ledger(100, 86, 4);
    return_losses(&mut uncounted, RETURN_RING, 10);
    assert_eq!((uncounted.unexplained, uncounted.drops["return ring full"]), (0, 10));
}

#[test]
fn the_rest_of_a_refused_bulk_is_named_within_three_bounds() {
    let lost = |counted: u64, missing: u64| {
        let mut ledger = ledger(1_000, 1_000 - counted - missing, 0);
        ledger.drops.insert("tap queue full".to_owned(), counted);
        ledger.balance();
        ledger
    };
    let mut whole = lost(10, 120);
    bulk_losses(&mut whole, 10, 120);
    assert_eq!((whole.unexplained, whole.drops[REST_OF_BULK]), (0, 120));
    let mut beyond_the_bulks = lost(2, 31);
    bulk_losses(&mut beyond_the_bulks, 2, 31);
    assert_eq!(beyond_the_bulks.unexplained, 1);
    let mut behind_the_arm = lost(10, 20);
    bulk_losses(&mut behind_the_arm, 10, 15);
    assert_eq!(behind_the_arm.unexplained, 5);
    let mut nothing_refused = lost(0, 3);
    bulk_losses(&mut nothing_refused, 0, 3);
    assert_eq!(nothing_refused.unexplained, 3);
}

#[test]
fn a_cpu_that_the_hypervisor_took_away_costs_the_segment_its_rate() {
    let stolen = |ms: u64| {
        let steal_ns = [(0, 0), (1, ms * 1_000_000)].into();
        let mut usage = Usage::default();
        (usage.window_ns, usage.cpus, usage.steal_ns) = (100_000_000, 2, steal_ns);
        disturbed(&usage, 0, 0.1)
    };
    assert_eq!(stolen(20), None);
    let why = "the hypervisor took CPU 1 away for 30 ms".to_owned();
    assert_eq!(stolen(30), Some((Disturber::Hypervisor, why)));
}

#[test]
fn an_arm_that_runs_though_it_is_parked_costs_the_segment_its_rate() {
    let beside = |ms: u64| {
        let usage = Reading::of_arm(100_000_000, 1, ms * 1_000_000).since(&Reading::default());
        [0, 1].map(|arm| disturbed(&usage, arm, 0.1))
    };
    assert_eq!(beside(9), [None, None]);
    let why = "other arms of the race used 11 % of a CPU, though they are parked".to_owned();
    assert_eq!(beside(11), [Some((Disturber::Arms, why)), None]);
}

#[test]
fn a_cable_that_dropped_packets_costs_the_segment_its_latency_and_a_tap_does_not() {
    let why = |place: &str| {
        let mut segment = crate::report::example().segments.swap_remove(0);
        segment.resent = Some(Resent { place: place.to_owned(), packets: 3 });
        lost_on_the_cable(&segment)
    };
    let (by, why_lost) = why(VETH_RING).expect("the cable's");
    assert!(by == Disturber::Cable && why_lost.starts_with("3 packets found no room"));
    assert_eq!(why("tap queue full"), None);
}

#[test]
fn the_rest_of_a_refused_train_is_named_and_nothing_beyond_it() {
    let lost = |counted: u64, missing: u64| {
        let mut ledger = ledger(1_000, 1_000 - counted - missing, 0);
        ledger.drops.insert(DropReason::RxQueueFull.name().to_owned(), counted);
        ledger.balance();
        train_losses(&mut ledger, counted);
        (ledger.unexplained, ledger.dropped())
    };
    assert_eq!((lost(3, 60), lost(1, 63), lost(5, 0)), ((0, 63), (0, 64), (0, 5)));
    assert_eq!((lost(1, 64), lost(0, 7)), ((1, 64), (7, 0)));
}

#[test]
fn a_peer_that_only_counts_has_a_rate_at_top_speed() {
    let sent = GeneratorReport { sent: 1_000_000, achieved_pps: 2e6, ..GeneratorReport::default() };
    let silent = SegmentSeen::default();
    assert_eq!(rate(0, &sent, &silent, 800_000), 1.6e6);
    // With known arrival times, the time from the first record to the last counts.
    let timed = SegmentSeen { first_ns: 7, last_ns: 800_000_007, ..silent };
    assert_eq!(rate(0, &sent, &timed, 800_000), 1e6);
    // By a schedule, what is handled in time has the schedule's rate.
    assert_eq!(rate(1_000_000_000, &sent, &SegmentSeen::default(), 1_000_000), 1e6);
}

#[test]
fn a_generator_keeps_its_schedule_if_it_is_neither_slow_nor_late_nor_early() {
    let kept = GeneratorReport {
        asked_pps: 100.0,
        achieved_pps: 99.5,
        late_p99_ns: 9_000,
        ..GeneratorReport::default()
    };
    let missed = |sent: GeneratorReport| lateness(&sent, 10_000).concat();
    assert_eq!(missed(kept.clone()), "");
    for (sent, why) in [
        (GeneratorReport { achieved_pps: 98.5, ..kept.clone() }, "sent 98 of 100 frames/s"),
        (GeneratorReport { late_p99_ns: 11_000, ..kept.clone() }, "late: p99 11 us"),
        (GeneratorReport { early: 2, ..kept.clone() }, "2 frames before they were due"),
    ] {
        assert!(missed(sent).contains(why), "{why}");
    }
}

#[test]
fn a_ping_that_was_refused_and_tried_again_is_no_loss() {
    let with_ring = |offered, delivered, counted| {
        let mut ledger = ledger(offered, delivered, 0);
        ledger.drops.insert("veth ring full".to_owned(), counted);
        ledger.balance();
        refused_pings(&mut ledger, "veth ring full");
        (ledger.unexplained, ledger.dropped())
    };
    assert_eq!(with_ring(100, 80, 37), (0, 20));
    assert_eq!(with_ring(100, 100, 5), (0, 0));
    // What is lost without a name stays so, and what was delivered twice beyond the ring's count.
    assert_eq!(with_ring(100, 80, 15), (5, 15));
    assert_eq!(with_ring(100, 110, 4), (-10, 0));
}

#[test]
fn a_peers_counters_name_what_is_missing_and_nothing_beyond_it() {
    let mut after = Counters::default();
    after.set_drops(DropReason::RxQueueFull, 15);
    let mut counted_twice = ledger(100, 90, 0);
    counted_twice.drops.insert("veth receive".to_owned(), 8);
    counted_twice.balance();
    peer_losses(&mut counted_twice, &Counters::default(), &after);
    assert_eq!((counted_twice.unexplained, counted_twice.drops["peer: rx_queue_full"]), (0, 2));
    let mut uncounted = ledger(100, 80, 0);
    peer_losses(&mut uncounted, &Counters::default(), &after);
    assert_eq!((uncounted.unexplained, uncounted.drops[UNCOUNTED]), (0, 5));
    // A frame that was delivered twice is not explained away.
    let mut twice = ledger(100, 105, 0);
    peer_losses(&mut twice, &Counters::default(), &after);
    assert_eq!((twice.unexplained, twice.dropped()), (-5, 0));
}

#[test]
fn what_a_program_does_not_tell_is_unknown_and_paid_for_as_offered() {
    let mut silent = ledger(100, 0, 30);
    leave_unknown(&mut silent);
    assert_eq!((silent.unknown, silent.unexplained, silent.dropped()), (Some(70), 0, 30));
    assert_eq!((silent.paid_for(), silent.delivers()), (100, false));
    // What is counted twice is not hidden by it.
    let mut twice = ledger(100, 0, 130);
    leave_unknown(&mut twice);
    assert_eq!((twice.unknown, twice.unexplained), (Some(0), -30));
}

#[test]
fn what_returned_changed_is_named_as_far_as_it_is_missing() {
    let mut lost = ledger(100, 70, 0);
    changed_on_the_way(&mut lost, 20);
    assert_eq!((lost.unexplained, lost.drops[CHANGED]), (10, 20));
    let mut more = ledger(100, 90, 0);
    changed_on_the_way(&mut more, 25);
    assert_eq!((more.unexplained, more.dropped()), (0, 10));
}

#[test]
fn neither_a_loss_nor_a_count_too_many_is_explained_away() {
    let mut lost = ledger(100, 80, 0);
    return_losses(&mut lost, RETURN_RING, 10);
    assert_eq!(lost.unexplained, 10);
    let mut twice = ledger(100, 95, 0);
    return_losses(&mut twice, RETURN_RING, 10);
    assert_eq!(twice.unexplained, -5);
}

#[test]
fn latencies_of_rounds_that_were_warm_up_are_in_no_load() {
    let mut trial = Trial { round_trips: vec![RoundTrips::default(); 2], ..Trial::empty(1, 0) };
    (trial.wire_to_app, trial.app_only) =
        (vec![Latency::default(); 2], vec![Latency::default(); 2]);
    for (round, ns) in [(7, 900_000), (8, 800_000), (9, 1_000), (10, 2_000)] {
        let mut segment = crate::report::example().segments.swap_remove(0);
        (segment.round, segment.load, segment.warm_up) = (round, 1, false);
        (segment.invalid, segment.disturbed) = (Vec::new(), None);
        let (mut seen, mut trips) = (SegmentSeen::default(), RoundTrips::default());
        seen.wire_to_app.record(ns);
        seen.app_only.record(ns);
        trips.record(ns);
        trial.add(Offered { segment, seen, trips: Some(trips) });
    }
    trial.settle(9);
    let all = [&trial.wire_to_app[1], &trial.app_only[1], trial.round_trips[1].latency()];
    for summary in all.map(Latency::summary) {
        assert_eq!((summary.n, summary.max_ns), (2, Some(2_000)));
    }
    assert!(trial.wire_to_app[0].summary().n == 0);
    assert_eq!(trial.segments.iter().filter(|s| s.warm_up).count(), 2);
    trial.settle(9);
    assert_eq!(trial.wire_to_app[1].summary().n, 2, "each is merged once");
}
