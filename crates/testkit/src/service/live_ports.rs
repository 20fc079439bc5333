//! What every datagram lane must do whose ports come and go while it runs; the others refuse, and say so.

use super::{
    Answer, DatagramRig, WAITS_MAX,
    bench::{Bench, PORT, assert_same},
    ok, payloads,
};
use crate::skip;
use laneway_core::{Counters, DatagramPorts, DropReason, Lane, LaneError, PortId, PortPlan};
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

/// Ports that are opened and never used.
const IDLE_PORTS: usize = 1000;
/// Rounds over which calls are counted.
const ROUNDS: u64 = 50;

/// An open lane, and what a further port of it can be. A lane whose ports are fixed has refused one by then.
fn bench<R: DatagramRig>(rig: &mut R, answer: Answer) -> Option<(Bench<'_, R>, PortPlan)> {
    let plan = rig.plan();
    let mut bench = Bench::open(rig, "", 1, answer);
    match plan {
        Ok(plan) => Some((bench, plan)),
        Err(reason) => {
            let near = bench.rig.near(PORT);
            let refused = bench.lane.open_port(&PortPlan::at(near));
            assert!(matches!(refused, Err(LaneError::Refused { .. })), "{refused:?}");
            let refused = bench.lane.close_port(PORT);
            assert!(matches!(refused, Err(LaneError::Refused { .. })), "{refused:?}");
            skip(reason);
            None
        }
    }
}

impl<R: DatagramRig> Bench<'_, R> {
    fn open_port(&mut self, plan: &PortPlan) -> (PortId, SocketAddr) {
        let Bench { rig, lane, .. } = self;
        let port = ok(rig.inside(|| lane.open_port(plan)));
        let bound = self.lane.bound(port).expect("a port that was opened is bound");
        (port, bound)
    }

    /// What reaches the far end of port 0, with its source address: `wanted`, or what patience brings.
    fn reached(&mut self, wanted: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut reached = Vec::new();
        for _ in 0..WAITS_MAX {
            reached.extend(self.rig.collect(PORT, wanted.saturating_sub(reached.len())));
            if reached.len() >= wanted {
                break;
            }
            self.nudge();
        }
        reached
    }

    fn send_to(&mut self, near: SocketAddr, payloads: &[Vec<u8>]) {
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        self.rig.send_to(near, &payloads);
    }

    fn all_counters(&mut self) -> Counters {
        let mut sum = self.lane.past();
        (0..self.lane.ports()).for_each(|at| sum.merge(&self.lane.counters(self.lane.port(at))));
        sum
    }
}

/// A port that was opened while the lane runs receives and sends like the first, is counted apart, and the
/// first goes on.
pub fn a_port_opened_in_a_running_lane_receives_and_sends<R: DatagramRig>(rig: &mut R) {
    let Some((mut bench, plan)) = bench(rig, Answer::Nothing) else { return };
    let (before, to_new, forwarded) =
        (payloads(0, 5, 100), payloads(10, 9, 200), payloads(20, 7, 300));
    bench.pump(PORT, &before);
    let (port, bound) = bench.open_port(&plan);
    assert_ne!(port, PORT);
    assert_eq!((bench.lane.ports(), bench.lane.port(1)), (2, port));
    ok(bench.lane.caps(port).admit(bench.lane.name(), |_| None));

    bench.send_to(bound, &to_new);
    bench.serve_until(before.len() + to_new.len());
    let far = bench.rig.far(PORT);
    let seen: Vec<_> = bench.probe.seen.iter().filter(|seen| seen.ingress == port).collect();
    assert!(seen.iter().all(|seen| (seen.source, seen.destination) == (far, bound)));
    assert_same(seen.into_iter().flat_map(super::Seen::datagrams), &to_new);

    bench.probe.answer = Answer::ForwardTo(port, far);
    bench.pump(PORT, &forwarded);
    let reached = bench.reached(forwarded.len());
    assert!(reached.iter().all(|(source, _)| *source == bound), "{bound}: {reached:?}");
    assert_same(reached.iter().map(|(_, bytes)| &bytes[..]), &forwarded);

    let counters = bench.lane.counters(port);
    assert_eq!((counters.rx_frames, counters.tx_frames), (9, 7), "{counters:?}");
    assert_eq!((counters.rx_bytes, counters.tx_bytes), (1800, 2100), "{counters:?}");
    let first = bench.lane.counters(PORT);
    assert_eq!((first.rx_frames, first.tx_frames, first.lost()), (12, 0, 0), "{first:?}");
}

/// A closed port shows and sends nothing any more, what it counted is kept, and ports that are opened later
/// have other numbers.
pub fn a_closed_port_is_silent_and_its_number_not_used_again<R: DatagramRig>(rig: &mut R) {
    let Some((mut bench, plan)) = bench(rig, Answer::Nothing) else { return };
    let far = bench.rig.far(PORT);
    let mut numbers = BTreeSet::from([PORT]);
    for coming in 1..=5 {
        let (port, bound) = bench.open_port(&plan);
        assert!(numbers.insert(port), "port {} was there before", port.0);
        let arrived = bench.arrived();
        bench.send_to(bound, &payloads(coming, 4, 100));
        bench.serve_until(arrived + 4);
        // On its way when the port is closed.
        bench.send_to(bound, &payloads(coming, 3, 100));
        let counters = ok(bench.lane.close_port(port));
        assert_eq!(counters.rx_frames, 4, "{counters:?}");
        assert_eq!((bench.lane.ports(), bench.lane.bound(port)), (1, None));
        assert_eq!(bench.lane.past().rx_frames, 4 * coming, "what it counted is kept");
        let again = bench.lane.close_port(port);
        assert!(matches!(again, Err(LaneError::NotFound { .. })), "{again:?}");

        bench.probe.answer = Answer::ForwardTo(port, far);
        let arrived = bench.arrived();
        bench.pump(PORT, &payloads(coming, 6, 100));
        assert_eq!(bench.arrived(), arrived + 6, "the closed port showed something");
        bench.assert_silent(PORT);
        assert_eq!(bench.drops(DropReason::TxNoPort), 6 * coming);
        bench.probe.answer = Answer::Nothing;
    }
}

/// What belongs to no port is counted at the first. When that is closed it is the lane's past, and the next port counts
/// what comes from then on: what one was seen to count never turns up at another.
pub fn what_no_port_counts_stays_when_the_first_port_is_closed<R: DatagramRig>(rig: &mut R) {
    let Some((mut bench, plan)) = bench(rig, Answer::Nothing) else { return };
    let (second, _) = bench.open_port(&plan);
    let wait = |bench: &mut Bench<'_, R>| {
        for _ in 0..3 {
            ok(bench.lane.wait(Duration::ZERO));
        }
    };
    wait(&mut bench);
    let counted = bench.lane.counters(PORT).waits;
    ok(bench.lane.close_port(PORT));
    assert_eq!((bench.lane.past().waits, bench.lane.counters(second).waits), (counted, 0));
    wait(&mut bench);
    let counted = counted + bench.lane.counters(second).waits;
    ok(bench.lane.close_port(second));
    assert_eq!(bench.lane.past().waits, counted);
    wait(&mut bench);
    let (third, _) = bench.open_port(&plan);
    assert_eq!(bench.lane.counters(third).waits, 0);
    assert!(bench.lane.past().waits >= counted, "{:?}", bench.lane.past());
}

/// Figures of a plan are in the port's report, as the kernel has them; another port has its own.
pub fn what_a_port_was_granted_is_read_back<R: DatagramRig>(rig: &mut R) {
    let Some((mut bench, plan)) = bench(rig, Answer::Nothing) else { return };
    let has_queues = bench.rig.has_queues();
    if !has_queues {
        let asked = PortPlan { priority: Some(5), ..plan.clone() };
        let refused = bench.lane.open_port(&asked).expect_err("no queue to have it in").to_string();
        assert!(refused.contains("priority 5"), "{refused}");
    }
    let asked = PortPlan {
        hop_limit: Some(7),
        dscp: Some(34),
        priority: has_queues.then_some(5),
        rcvbuf_bytes: Some(64 << 10),
        sndbuf_bytes: Some(48 << 10),
        ..plan.clone()
    };
    let (port, _) = bench.open_port(&asked);
    let facts = &bench.lane.caps(port).facts;
    let priority = has_queues.then_some(("priority", "5"));
    for (name, wanted) in [("ttl", "7"), ("dscp", "34")].into_iter().chain(priority) {
        assert_eq!(facts.get(name).map(String::as_str), Some(wanted), "{name}: {facts:?}");
    }
    let received = has_queues.then_some(("rcvbuf_bytes", 64 << 10));
    assert!(facts.contains_key("rcvbuf_bytes"), "{facts:?}");
    for (name, least) in [("sndbuf_bytes", 48 << 10)].into_iter().chain(received) {
        let granted: usize = facts[name].parse().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(granted >= least, "{name}: {granted} of {least}");
    }
    let (plain, _) = bench.open_port(&plan);
    assert!(!bench.lane.caps(plain).facts.contains_key("dscp"));
}

/// A plan that is refused is refused by a sentence with the value, and leaves neither a port nor a number.
pub fn a_plan_that_cannot_be_had_leaves_no_port<R: DatagramRig>(rig: &mut R) {
    let Some((mut bench, plan)) = bench(rig, Answer::Nothing) else { return };
    let elsewhere = SocketAddr::new("192.0.2.77".parse().expect("an address"), 7);
    let nowhere = Some("nowhere0".to_owned());
    for (plan, says) in [
        (PortPlan { dscp: Some(64), ..plan.clone() }, "DSCP 64"),
        (PortPlan { hop_limit: Some(0), ..plan.clone() }, "hop limit of 0"),
        (PortPlan { interface: nowhere, ..plan.clone() }, "nowhere0"),
        (PortPlan::at(elsewhere), "192.0.2.77"),
    ] {
        let Bench { rig, lane, .. } = &mut bench;
        let refused = rig.inside(|| lane.open_port(&plan)).expect_err("refused").to_string();
        assert!(refused.contains(says), "{refused}");
        assert_eq!(bench.lane.ports(), 1);
    }
    let (port, _) = bench.open_port(&plan);
    assert_eq!(port, PortId(1), "a number that no port had");
}

/// With a thousand ports on which nothing moves a round asks the kernel as often as with two, in silence
/// and under traffic, and the traffic is not disturbed.
pub fn a_thousand_idle_ports_cost_a_round_no_call<R: DatagramRig>(rig: &mut R) {
    let Some((mut bench, plan)) = bench(rig, Answer::ForwardBack) else { return };
    bench.open_port(&plan);
    bench.open_port(&plan);
    let polls_of_rounds = |bench: &mut Bench<'_, R>| {
        ok(bench.lane.wait(Duration::ZERO));
        let before = bench.all_counters().polls_empty;
        (0..ROUNDS).for_each(|_| assert_eq!(bench.serve(), 0));
        bench.all_counters().polls_empty - before
    };
    let of_few = polls_of_rounds(&mut bench);
    for _ in 0..IDLE_PORTS {
        bench.open_port(&plan);
    }
    assert_eq!(bench.lane.ports(), IDLE_PORTS + 3);
    let of_many = polls_of_rounds(&mut bench);
    assert_eq!((of_many, of_few), (ROUNDS, ROUNDS), "empty polls in {ROUNDS} rounds");
    let sent = payloads(0, 40, 300);
    let back = bench.pump_and_collect(&sent, PORT);
    assert_same(back.iter().map(Vec::as_slice), &sent);
    assert_eq!(bench.all_counters().lost(), 0);
}
