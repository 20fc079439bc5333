//! One port, several workers: each has queues of its own, a flow stays with one of them, and what they
//! counted adds up.

use crate::world::{Alone, NEAR, World, spec};
use laneway_core::{Counters, FrameLane, Lane, LaneError, PortId, Verdict};
use laneway_dpdk::{DpdkLane, DpdkPorts, QueueCounts};
use laneway_testkit::{UdpFrame, lend_and_send, sequence, skip, udp_frames};
use std::{
    collections::BTreeMap,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

const PORT: PortId = PortId(0);
pub(crate) const WORKERS: usize = 2;
pub(crate) const FLOWS: u64 = 32;
const FRAMES_PER_FLOW: u64 = 8;
/// Numbers of a flow's frames begin at its own multiple of this.
pub(crate) const FLOW_STEP: u64 = 1000;
/// Waits of 10 ms until every frame has come.
const WAITS_MAX: usize = 3000;

/// What one worker saw.
pub(crate) struct Seen {
    pub(crate) sequences: Vec<u64>,
    counters: Counters,
    queues: Vec<QueueCounts>,
    facts: BTreeMap<String, String>,
}

/// Frames of many flows, those of one flow never next to each other.
pub(crate) fn flows() -> Vec<Vec<u8>> {
    let one = |n: u64, flow: u64| UdpFrame {
        source_port: 4000 + flow as u16,
        sequence: flow * FLOW_STEP + n,
        ..UdpFrame::default()
    };
    (0..FRAMES_PER_FLOW).flat_map(|n| (0..FLOWS).map(move |flow| one(n, flow).build())).collect()
}

/// Runs every worker until all have seen `frames` frames of ours together; `inject` sends them once all
/// lanes are open. Frames leave again with `verdict`.
pub(crate) fn run(
    ports: &DpdkPorts,
    frames: usize,
    verdict: Verdict,
    inject: impl FnOnce(),
) -> Vec<Seen> {
    let (arrived, open) = (AtomicUsize::new(0), Barrier::new(WORKERS + 1));
    let work = |worker: usize| {
        let mut lane = DpdkLane::open_shared(ports, worker).expect("its queues are free");
        let mut sequences = Vec::new();
        open.wait();
        for _ in 0..WAITS_MAX {
            if arrived.load(Ordering::Relaxed) >= frames {
                break;
            }
            lane.wait(Duration::from_millis(10)).expect("the lane waits");
            let burst = lane.receive(PORT).expect("the lane receives");
            for i in 0..burst.len() {
                if let Some(number) = sequence(burst.frame(i).bytes) {
                    sequences.push(number);
                    burst.set_verdict(i, verdict);
                    arrived.fetch_add(1, Ordering::Relaxed);
                }
            }
            lane.settle(PORT).expect("the lane settles");
        }
        let facts = lane.caps(PORT).facts.clone();
        Seen { sequences, counters: lane.counters(PORT), queues: lane.queue_counts(PORT), facts }
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        open.wait();
        inject();
        threads.into_iter().map(|t| t.join().expect("a worker does not panic")).collect()
    })
}

/// Each flow is one worker's, in order; every worker has some; nothing is missing.
fn check_flows(seen: &[Seen]) {
    let mut owner = BTreeMap::new();
    for (worker, seen) in seen.iter().enumerate() {
        assert!(!seen.sequences.is_empty(), "worker {worker} was idle");
        for flow in 0..FLOWS {
            let own: Vec<u64> =
                seen.sequences.iter().copied().filter(|n| n / FLOW_STEP == flow).collect();
            if own.is_empty() {
                continue;
            }
            let want: Vec<u64> = (0..FRAMES_PER_FLOW).map(|n| flow * FLOW_STEP + n).collect();
            assert_eq!(own, want, "flow {flow} at worker {worker}");
            assert_eq!(owner.insert(flow, worker), None, "flow {flow} went to both");
        }
    }
    assert_eq!(owner.len() as u64, FLOWS);
}

#[test]
fn flows_on_a_tap_stay_with_one_worker_and_the_sum_closes() {
    let Ok(mut world) = World::taps().map_err(skip) else { return };
    let ports = world.open_shared(&spec("dpdk:net_tap,no-huge"), 1, WORKERS).expect("opens");
    let sent = flows();
    let seen = run(&ports, sent.len(), Verdict::Drop, || world.inject(0, &sent));
    check_flows(&seen);
    let lost: u64 = seen.iter().map(|seen| seen.counters.lost()).sum();
    assert_eq!(lost, 0);
    for (worker, seen) in seen.iter().enumerate() {
        assert_eq!(seen.facts["queue"], worker.to_string());
        assert_eq!((&*seen.facts["rx_queues_asked"], &*seen.facts["rx_queues"]), ("2", "2"));
        assert!(seen.facts["steering"].contains("flow hash"), "{}", seen.facts["steering"]);
        let [queue] = seen.queues[..] else { panic!("net_tap counts by queue: {:?}", seen.queues) };
        assert_eq!((queue.queue, queue.rx_frames), (worker as u16, seen.counters.rx_frames));
    }
    let table = || std::fs::read_to_string("/proc/thread-self/net/dev").expect("Linux has it");
    assert!(table().contains(NEAR[0]), "the port is there while a worker shares it");
    drop(ports);
    assert!(!table().contains(NEAR[0]), "and gone after the last");
}

#[test]
fn flows_on_packet_sockets_stay_with_one_worker_that_answers_by_its_own_queue() {
    let Ok(mut world) = World::cables(1).map_err(skip) else { return };
    let spec = spec("dpdk:net_af_packet,no-huge");
    let ports = world.open_shared(&spec, 1, WORKERS).expect("opens");
    let sent = flows();
    let seen = run(&ports, sent.len(), Verdict::Tx, || {
        sent.chunks(32).for_each(|part| world.inject(0, part));
    });
    check_flows(&seen);
    let mut back = world.receive(0, sent.len());
    let mut sent = sent;
    back.sort_unstable();
    sent.sort_unstable();
    assert_eq!(back, sent);
    for (worker, seen) in seen.iter().enumerate() {
        let own = seen.sequences.len() as u64;
        assert_eq!((seen.counters.tx_frames, seen.counters.lost()), (own, 0), "worker {worker}");
        let [queue] = seen.queues[..] else { panic!("it counts by queue: {:?}", seen.queues) };
        assert_eq!(queue.tx_frames, own, "worker {worker}");
        assert!(seen.facts["steering"].contains("PACKET_FANOUT"), "{}", seen.facts["steering"]);
    }
}

#[test]
fn what_a_worker_sends_into_a_ring_comes_back_to_it() {
    let Ok(_alone) = Alone::new().map_err(skip) else { return };
    let spec = spec("dpdk:net_ring,no-huge");
    let ports = DpdkPorts::open(&spec, &["r0"], false, WORKERS).expect("opens");
    let work = |worker: usize| {
        let mut lane = DpdkLane::open_shared(&ports, worker).expect("its queues are free");
        let own = udp_frames(worker as u64 * FLOW_STEP, 20 + worker, 100);
        lend_and_send(&mut lane, PORT, own.len(), &own, Verdict::Tx);
        let burst = lane.receive(PORT).expect("the lane receives");
        let back: Vec<Vec<u8>> = (0..burst.len()).map(|i| burst.frame(i).bytes.to_vec()).collect();
        lane.settle(PORT).expect("the lane settles");
        assert_eq!(back, own, "worker {worker}");
        lane.counters(PORT)
    };
    let counters = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        threads.into_iter().map(|t| t.join().expect("it does not panic")).collect::<Vec<_>>()
    });
    let sent: Vec<_> = counters.iter().map(|c| (c.tx_frames, c.rx_frames, c.lost())).collect();
    assert_eq!(sent, [(20, 20, 0), (21, 21, 0)]);
}

#[test]
fn each_worker_on_a_null_device_has_a_queue_of_its_own() {
    let Ok(_alone) = Alone::new().map_err(skip) else { return };
    let spec = spec("dpdk:net_null,no-huge");
    let ports = DpdkPorts::open(&spec, &["n0"], false, WORKERS).expect("opens");
    let work = |worker: usize| {
        let mut lane = DpdkLane::open_shared(&ports, worker).expect("its queues are free");
        for _ in 0..=worker {
            assert_eq!(lane.receive(PORT).expect("the lane receives").len(), 64);
            lane.settle(PORT).expect("the lane settles");
        }
        (lane.counters(PORT).rx_frames, lane.queue_counts(PORT))
    };
    let seen: Vec<(u64, Vec<QueueCounts>)> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        threads.into_iter().map(|t| t.join().expect("it does not panic")).collect()
    });
    for (worker, (frames, queues)) in seen.iter().enumerate() {
        assert_eq!(*frames, 64 * (1 + worker as u64));
        let counted: Vec<_> = queues.iter().map(|q| (q.queue, q.rx_frames)).collect();
        assert_eq!(counted, [(worker as u16, *frames)]);
    }
}

#[test]
fn one_worker_serves_all_queues_of_a_port_in_turn() {
    let Ok(mut world) = World::cables(1).map_err(skip) else { return };
    let mut lane = world.open(&spec("dpdk:net_af_packet,no-huge,rxq=2"), 1).expect("opens");
    let sent = flows();
    sent.chunks(32).for_each(|part| world.inject(0, part));
    let mut sequences = Vec::new();
    for _ in 0..WAITS_MAX {
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
        let burst = lane.receive(PORT).expect("the lane receives");
        sequences.extend((0..burst.len()).filter_map(|i| sequence(burst.frame(i).bytes)));
        lane.settle(PORT).expect("the lane settles");
        if sequences.len() >= sent.len() {
            break;
        }
    }
    assert_eq!((sequences.len(), lane.counters(PORT).lost()), (sent.len(), 0));
    let queues = lane.queue_counts(PORT);
    assert!(queues.len() == 2 && queues.iter().all(|q| q.rx_frames > 0), "{queues:?}");
    assert_eq!(lane.caps(PORT).facts["queues"], "2");
}

#[test]
fn a_worker_too_many_and_a_queue_too_many_are_refused_with_the_limit() {
    let Ok(_alone) = Alone::new().map_err(skip) else { return };
    let spec_of = spec;
    let null = spec_of("dpdk:net_null,no-huge");
    let ports = DpdkPorts::open(&null, &["n0"], false, WORKERS).expect("opens");
    let lane = DpdkLane::open_shared(&ports, 1).expect("its queues are free");
    let refused = |worker| match DpdkLane::open_shared(&ports, worker) {
        Ok(_) => panic!("worker {worker} opened"),
        Err(e @ LaneError::Refused { .. }) => e.to_string(),
        Err(e) => panic!("{e}"),
    };
    assert!(refused(1).contains("another lane has its queues"), "{}", refused(1));
    assert!(refused(2).contains("opened for 2 workers"), "{}", refused(2));
    drop(lane);
    for (text, workers, words) in [
        ("dpdk:net_tap,no-huge", 17, ["17 workers", "at most 16", "1 to 16"]),
        ("dpdk:net_tap,no-huge,rxq=17", 1, ["rxq=17", "at most 16", "queues"]),
        ("dpdk:net_ring,no-huge,rxq=3", 2, ["rxq=3", "share the queues evenly", "rxq=4"]),
    ] {
        let refused = DpdkPorts::open(&spec_of(text), &["n0"], false, workers).err();
        let sentence = refused.expect(text).to_string();
        assert!(words.iter().all(|word| sentence.contains(word)), "{sentence}");
    }
}

#[test]
fn queues_that_an_interface_does_not_have_are_refused_with_their_number() {
    let Ok(mut world) = World::cables(1).map_err(skip) else { return };
    let opened = world.open_shared(&spec("dpdk:net_af_xdp,no-huge"), 1, WORKERS);
    let sentence = opened.err().expect("a cable has one queue").to_string();
    for words in ["queue count 2 is larger than combined queue count 1", "ethtool -l", "rxq=1"] {
        assert!(sentence.contains(words), "{sentence}");
    }
}
