//! Traces with a planted truth, made from a seed: a forwarding loop as a function tracer sees it.
//!
//! For tests of whatever draws conclusions from a trace: what is wrong with it is known, and so is that nothing else
//! is. The loop polls, allocates per packet, sends and frees, as testpmd does on net_tap; every
//! duration is noisy, arrivals are random, and the tracer costs what it is told to.

use laneway_trace_read::{Consumer, Event, FunctionKey, Kind, Loss, PoolAction, Thread, ThreadId};

use crate::model::Name;
use crate::random::Random;

/// What is wrong with a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: few packets, much idling, no loss.
    Healthy,
    /// One function gets slow every so often, at a fixed period.
    Period,
    /// The pool runs out of buffers.
    Depletion,
    /// The cache of the pool is filled from the backend again and again, at great cost.
    Cycle,
    /// Long silences; nothing tells why.
    Stall,
    /// Long silences, and the kernel tells that the thread was preempted.
    Preemption,
    /// Events are missing in several places.
    Loss,
    /// The tracer costs more than the work.
    Overhead,
    /// The CPU is slower at times, for everything.
    Contention,
    /// One of four workers gets most packets.
    Imbalance,
    /// Send takes less than it is given.
    Backpressure,
}

/// A trace in memory, with its truth.
#[derive(Debug, Clone)]
pub struct Planted {
    /// What was planted.
    pub fault: Fault,
    /// Packets received.
    pub packets: u64,
    /// Calls that holes cut, and holes.
    pub cut: u64,
    /// Period planted, ns; 0 without one.
    pub period_ns: u64,
    names: Vec<&'static str>,
    workers: Vec<Worker>,
}

/// Events of one thread, in pieces between holes.
#[derive(Debug, Clone)]
struct Worker {
    pieces: Vec<Vec<Event>>,
}

/// Epoch time of the first event.
const START_NS: u64 = 1_795_192_290_000_000_000;

impl Planted {
    /// A trace of about `polls` polls per worker with `fault`.
    pub fn new(fault: Fault, seed: u64, polls: u32) -> Self {
        let mut random = Random::seeded(seed ^ (fault as u64) << 32);
        let workers = match fault {
            Fault::Imbalance => 4,
            _ => 1,
        };
        let mut planted = Self {
            fault,
            packets: 0,
            cut: 0,
            period_ns: 0,
            names: Vec::new(),
            workers: Vec::new(),
        };
        for worker in 0..workers {
            let names = std::mem::take(&mut planted.names);
            let mut run = Run::new(fault, worker, polls, random.next(), names);
            run.work();
            planted.packets += run.packets;
            planted.cut += run.cut;
            planted.period_ns = run.period_ns;
            planted.names = run.names;
            run.pieces.push(run.events);
            planted.workers.push(Worker { pieces: run.pieces });
        }
        planted
    }

    /// The situation of the founding report: 48.7 k calls of the loop in 1.56 s, 491 of them with packets, 3.1 k
    /// packets, no loss, a tracer that costs more than anything else, and stalls that nothing explains.
    pub fn founding_report(seed: u64) -> Self {
        let mut run = Run::new(Fault::Overhead, 0, 48_727, seed, Vec::new());
        run.points = false;
        run.founding_report();
        let packets = run.packets;
        run.pieces.push(run.events);
        Self {
            fault: Fault::Overhead,
            packets,
            cut: 0,
            period_ns: 0,
            names: run.names,
            workers: vec![Worker { pieces: run.pieces }],
        }
    }

    /// Gives all events to `consumer`, in batches.
    pub fn feed(&self, consumer: &mut dyn Consumer) {
        for (id, worker) in (0u32..).map(ThreadId).zip(&self.workers) {
            let name = format!("rte-worker-{}", id.0 + 1);
            consumer.thread(id, &Thread { pid: 100, tid: 101 + id.0, name });
            let mut before: Option<&Event> = None;
            for piece in &worker.pieces {
                if let (Some(before), Some(first)) = (before, piece.first()) {
                    let place = format!("planted/worker-{}", id.0);
                    let (from_ns, to_ns) = (before.time_ns, first.time_ns);
                    consumer.lost(&Loss { from_ns, to_ns, events: Some(40), place }, &[id]);
                }
                for batch in piece.chunks(1_000) {
                    consumer.events(id, Some(id.0), batch);
                }
                before = piece.last().or(before);
            }
        }
    }

    /// Name of a function of the trace.
    pub fn name(&self, key: FunctionKey) -> Name {
        let text = usize::try_from(key.0).ok().and_then(|at| self.names.get(at));
        Name { text: text.map_or("?", |text| text).to_owned(), known: text.is_some() }
    }

    /// Events in it.
    pub fn events(&self) -> usize {
        self.workers.iter().flat_map(|worker| &worker.pieces).map(Vec::len).sum()
    }
}

/// A run of the loop.
struct Run {
    fault: Fault,
    worker: u16,
    polls: u32,
    random: Random,
    now: f64,
    events: Vec<Event>,
    pieces: Vec<Vec<Event>>,
    names: Vec<&'static str>,
    open: Vec<&'static str>,
    packets: u64,
    cut: u64,
    period_ns: u64,
    /// Cost of a traced call inside and outside of its interval, ns.
    inside: f64,
    outside: f64,
    /// Everything takes so many times longer.
    slow: f64,
    points: bool,
    taken: u64,
}

impl Run {
    fn new(fault: Fault, worker: u16, polls: u32, seed: u64, names: Vec<&'static str>) -> Self {
        let (inside, outside) =
            if fault == Fault::Overhead { (375.0, 300.0) } else { (12.0, 10.0) };
        Self {
            fault,
            worker,
            polls,
            random: Random::seeded(seed),
            now: 0.0,
            events: Vec::new(),
            pieces: Vec::new(),
            names,
            open: Vec::new(),
            packets: 0,
            cut: 0,
            period_ns: 0,
            inside,
            outside,
            slow: 1.0,
            points: true,
            taken: 0,
        }
    }

    fn time(&self) -> u64 {
        START_NS + self.now as u64
    }

    fn event(&mut self, kind: Kind) {
        let event = Event { time_ns: self.time(), kind };
        self.events.push(event);
    }

    fn point(&mut self, kind: Kind) {
        if self.points {
            self.event(kind);
        }
    }

    fn key(&mut self, name: &'static str) -> FunctionKey {
        let at = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        FunctionKey(at as u64)
    }

    /// Calls `name`: work of its own of about `ns`, then what `body` does.
    fn call(&mut self, name: &'static str, ns: f64, body: impl FnOnce(&mut Self)) {
        let key = self.key(name);
        self.now += 0.5 * self.outside * self.slow;
        self.event(Kind::Enter(key));
        self.open.push(name);
        self.now += 0.5 * self.inside * self.slow;
        self.spend(ns);
        body(self);
        self.now += 0.5 * self.inside * self.slow;
        self.event(Kind::Leave(key));
        self.open.pop();
        self.now += 0.5 * self.outside * self.slow;
    }

    /// Log-normal noise of 10 %.
    fn spend(&mut self, ns: f64) {
        let noise = (0.1 * self.random.normal()).exp();
        self.now += ns * noise * self.slow;
    }

    fn leaf(&mut self, name: &'static str, ns: f64) {
        self.call(name, ns, |_| {});
    }

    fn work(&mut self) {
        // All workers see the same machine: what is chance per trace comes from the run's own seed.
        let productive = match (self.fault, self.worker) {
            (Fault::Imbalance, 0) => 0.40,
            (Fault::Imbalance, _) => 0.06,
            (Fault::Backpressure | Fault::Depletion | Fault::Period | Fault::Cycle, _) => 0.30,
            (Fault::Contention, _) => 0.20,
            _ => 0.04,
        };
        if self.fault == Fault::Period {
            self.period_ns = 100_000 + self.random.below(100_000) as u64;
        }
        let mut stalls: Vec<u32> = match self.fault {
            Fault::Stall | Fault::Preemption => (0..1 + self.random.below(4))
                .map(|_| self.random.below(self.polls as usize) as u32)
                .collect(),
            _ => Vec::new(),
        };
        stalls.sort_unstable();
        let holes: Vec<u32> = match self.fault {
            Fault::Loss => (1..=20).map(|hole| hole * self.polls / 21).collect(),
            _ => Vec::new(),
        };
        for poll in 0..self.polls {
            if self.fault == Fault::Contention {
                // Stretches of some 500 polls.
                if self.random.unit() < 0.002 {
                    self.slow = if self.slow > 1.0 { 1.0 } else { 2.5 };
                }
            }
            let got =
                if self.random.unit() < productive { 1 + self.random.below(6) as u16 } else { 0 };
            let stall = stalls.contains(&poll);
            let hole = holes.contains(&poll);
            self.forward(got, stall, hole);
        }
    }

    fn forward(&mut self, got: u16, stall: bool, hole: bool) {
        let worker = self.worker;
        self.call("pkt_burst_io_forward", 30.0, |run| {
            run.leaf("get_start_cycles", 15.0);
            run.call("rte_eth_rx_burst", 40.0, |run| {
                run.call("pmd_rx_burst", 60.0, |run| {
                    if stall {
                        run.stall();
                    }
                    for _ in 0..got {
                        run.allocate();
                        run.leaf("rte_net_get_ptype", 200.0);
                    }
                    if hole {
                        run.hole();
                    }
                });
            });
            run.packets += u64::from(got);
            run.point(Kind::Receive { port: 0, queue: worker, asked: 32, got });
            run.leaf("inc_rx_burst_stats", 18.0);
            if got > 0 {
                run.send(got);
            }
        });
    }

    fn allocate(&mut self) {
        let periodic =
            self.period_ns > 0 && (self.now as u64) % self.period_ns < self.period_ns / 5;
        let failed = self.fault == Fault::Depletion && self.random.unit() < 0.02;
        self.call("rte_pktmbuf_alloc", 25.0, |run| {
            let ns = if periodic { 400.0 } else { 90.0 };
            run.call("rte_mempool_get", ns, |run| {
                run.taken += 1;
                if failed {
                    run.point(Kind::Pool { action: PoolAction::Failed, pool: 0, buffers: 1 });
                    return;
                }
                if run.fault == Fault::Cycle && run.taken.is_multiple_of(125) {
                    run.leaf("rte_mempool_ops_dequeue_bulk", 40_000.0);
                    run.point(Kind::Pool { action: PoolAction::Refill, pool: 0, buffers: 125 });
                }
                run.point(Kind::Pool { action: PoolAction::Get, pool: 0, buffers: 1 });
            });
        });
    }

    fn send(&mut self, got: u16) {
        let worker = self.worker;
        self.call("rte_eth_tx_burst", 40.0, |run| {
            run.call("pmd_tx_burst", 50.0, |run| {
                for _ in 0..got {
                    run.leaf("tap_write_mbufs", 400.0);
                    run.call("rte_pktmbuf_free", 30.0, |run| {
                        run.leaf("rte_mempool_put", 50.0);
                        run.point(Kind::Pool { action: PoolAction::Put, pool: 0, buffers: 1 });
                    });
                }
            });
        });
        let refused = self.fault == Fault::Backpressure && self.random.unit() < 0.05;
        let sent = if refused { got - 1 } else { got };
        self.point(Kind::Send { port: 1, queue: worker, asked: got, sent });
    }

    fn stall(&mut self) {
        let length = 300_000.0 + 2_000_000.0 * self.random.unit();
        if self.fault == Fault::Preemption {
            self.now += 20.0;
            self.event(Kind::SwitchedOut { runnable: true });
            self.now += length;
            self.event(Kind::SwitchedIn);
            self.now += 20.0;
        } else {
            self.now += length;
        }
    }

    fn hole(&mut self) {
        self.pieces.push(std::mem::take(&mut self.events));
        self.cut += self.open.len() as u64;
        self.now += 200_000.0;
    }

    fn founding_report(&mut self) {
        let productive_every = self.polls / 491;
        let mut left = 491;
        let stalls: Vec<u32> =
            (0..6).map(|_| self.random.below(self.polls as usize) as u32).collect();
        for poll in 0..self.polls {
            let productive = poll % productive_every == 7 && left > 0;
            left -= u32::from(productive);
            // 6.3 packets per productive burst.
            let got = if productive { 6 + u16::from(self.random.unit() < 0.3) } else { 0 };
            let stall = stalls.contains(&poll);
            self.packets += u64::from(got);
            self.call("pkt_burst_io_forward", 300.0, |run| {
                run.leaf("get_start_cycles", 2.0);
                run.call("common_fwd_stream_receive", 60.0, |run| {
                    run.call("rte_eth_rx_burst", 100.0, |run| {
                        run.call("pmd_rx_burst", 60.0, |run| {
                            if stall {
                                run.now += 4e6 + 18e6 * run.random.unit();
                            }
                            for _ in 0..got {
                                run.founding_allocation();
                            }
                        });
                        let helper = if got == 0 {
                            "rte_ethdev_trace_rx_burst_empty"
                        } else {
                            "rte_ethdev_trace_rx_burst_nonempty"
                        };
                        run.call(helper, 100.0, |run| {
                            run.leaf("__rte_trace_point_fp_is_enabled", 2.0);
                            for _ in 0..3 {
                                run.leaf("__rte_trace_mem_get", 5.0);
                            }
                        });
                    });
                    run.leaf("inc_rx_burst_stats", 5.0);
                });
                if got > 0 {
                    run.call("common_fwd_stream_transmit", 60.0, |run| {
                        run.call("rte_eth_tx_burst", 100.0, |run| {
                            run.call("pmd_tx_burst", 500.0, |run| {
                                for _ in 0..got {
                                    run.leaf("tap_write_mbufs", 25_000.0);
                                    run.founding_free();
                                }
                            });
                        });
                    });
                }
            });
        }
    }

    fn founding_allocation(&mut self) {
        self.call("rte_pktmbuf_alloc", 15.0, |run| {
            run.call("rte_mbuf_raw_alloc", 10.0, |run| {
                run.call("rte_mempool_get", 8.0, |run| {
                    run.call("rte_mempool_get_bulk", 10.0, |run| {
                        run.leaf("rte_lcore_id", 2.0);
                        run.call("rte_mempool_default_cache", 6.0, |run| {
                            run.leaf("rte_mempool_trace_default_cache", 3.0);
                        });
                        run.call("rte_mempool_generic_get", 15.0, |run| {
                            run.leaf("rte_mempool_do_generic_get", 20.0);
                        });
                    });
                });
                run.leaf("__rte_mbuf_raw_sanity_check", 2.0);
            });
            run.leaf("rte_pktmbuf_reset", 8.0);
        });
    }

    fn founding_free(&mut self) {
        self.call("rte_pktmbuf_free", 10.0, |run| {
            run.call("rte_mempool_put", 8.0, |run| {
                run.leaf("rte_mempool_do_generic_put", 15.0);
            });
        });
    }
}
