//! The loop itself: polls, allocates per packet, sends and frees, and writes down what a tracer would.

use laneway_trace_read::{Event, FunctionKey, Kind, PoolAction};

use super::setting::{Arrivals, FaultSite, Rush, Setting};
use super::{Fault, START_NS};
use laneway_random::Random;

/// Length of a short silence: least, and spread above it, ns.
const PAUSE_NS: (f64, f64) = (30_000.0, 50_000.0);

/// A run of the loop.
pub(super) struct Run {
    fault: Fault,
    worker: u16,
    setting: Setting,
    random: Random,
    pub(super) now: f64,
    pub(super) events: Vec<Event>,
    pub(super) pieces: Vec<Vec<Event>>,
    pub(super) names: Vec<&'static str>,
    open: Vec<&'static str>,
    pub(super) packets: u64,
    pub(super) cut: u64,
    pub(super) period_ns: u64,
    /// Everything takes so many times longer now.
    slow: f64,
    points: bool,
    taken: u32,
    /// Of a train of packets, or between two.
    busy: bool,
    /// In the ring, and when the next packets come, ns.
    waiting: u32,
    arrives_ns: f64,
    chore_ns: f64,
    empty_in_a_row: u32,
    /// When the trace is over at the latest.
    pub(super) until_ns: f64,
}

/// What happens besides, in one poll.
#[derive(Debug, Clone, Copy, Default)]
struct Incidents {
    start: bool,
    stall: bool,
    pause: bool,
    hole: bool,
}

impl Run {
    pub(super) fn new(
        fault: Fault,
        setting: Setting,
        worker: u16,
        seed: u64,
        names: Vec<&'static str>,
    ) -> Self {
        let slow = setting.pace;
        let arrivals = setting.arrivals[usize::from(worker > 0)];
        Self {
            fault,
            worker,
            setting,
            random: Random::seeded(seed),
            now: 0.0,
            events: Vec::new(),
            pieces: Vec::new(),
            names,
            open: Vec::new(),
            packets: 0,
            cut: 0,
            period_ns: 0,
            slow,
            points: true,
            taken: 0,
            busy: false,
            waiting: arrivals.map_or(0, |arrivals| arrivals.waiting),
            arrives_ns: 0.0,
            chore_ns: 0.0,
            empty_in_a_row: 0,
            until_ns: f64::INFINITY,
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
        self.now += 0.5 * self.setting.outside_ns * self.slow;
        self.event(Kind::Enter(key));
        self.open.push(name);
        self.now += 0.5 * self.setting.inside_ns * self.slow;
        self.spend(ns);
        body(self);
        self.now += 0.5 * self.setting.inside_ns * self.slow;
        self.event(Kind::Leave(key));
        self.open.pop();
        self.now += 0.5 * self.setting.outside_ns * self.slow;
    }

    /// Log-normal noise.
    fn spend(&mut self, ns: f64) {
        let noise = (self.setting.noise * self.random.normal()).exp();
        self.now += ns * noise * self.slow;
    }

    fn leaf(&mut self, name: &'static str, ns: f64) {
        self.call(name, ns, |_| {});
    }

    pub(super) fn work(&mut self) {
        let polls = self.setting.polls;
        let productive = self.setting.productive[usize::from(self.worker > 0)];
        if let Some(period) = self.setting.period {
            self.period_ns = period.low_ns + self.random.index(period.spread_ns as usize) as u64;
        }
        let stalls = match self.setting.stalls {
            Some(stalls) => {
                let count = 1 + self.random.index(stalls.most);
                self.places(count)
            }
            None => Vec::new(),
        };
        let pauses = self.places(self.setting.pauses as usize);
        let holes: Vec<u32> = match self.setting.holes {
            Some(holes) => {
                let count = holes.count;
                (1..=count).map(|hole| hole * polls / (count + 1)).collect()
            }
            None => Vec::new(),
        };
        for poll in 0..polls {
            if let Some(speeds) = self.setting.speeds
                && self.random.unit() < speeds.chance
            {
                let pace = self.setting.pace;
                self.slow = if self.slow > pace { pace } else { pace * speeds.factor };
            }
            if let Some((polls, times)) = self.setting.cold
                && poll <= polls
            {
                let cold = 1.0 - f64::from(poll) / f64::from(polls);
                self.slow = self.setting.pace * times.powf(cold);
            }
            let arrivals = self.setting.arrivals[usize::from(self.worker > 0)];
            if arrivals.is_some_and(|arrivals| self.packets >= arrivals.packets) || self.is_late() {
                break;
            }
            let got = match arrivals {
                Some(arrivals) => self.arrived(&arrivals),
                None => self.drawn(productive),
            };
            let incidents = Incidents {
                start: poll == 1,
                stall: stalls.contains(&poll),
                pause: pauses.contains(&poll),
                hole: holes.contains(&poll),
            };
            self.forward(got, incidents);
            self.between(got);
        }
    }

    /// What the worker does besides forwarding.
    fn between(&mut self, got: u16) {
        if let Some(chore) = self.setting.chore
            && self.now >= self.chore_ns
        {
            if self.chore_ns > 0.0 {
                self.leaf("rte_timer_manage", chore.ns / self.setting.pace);
            }
            self.chore_ns += chore.every_ns;
        }
        self.empty_in_a_row = if got > 0 { 0 } else { self.empty_in_a_row + 1 };
        if let Some((after, lasts_ns)) = self.setting.sleeps
            && self.empty_in_a_row >= after
        {
            self.empty_in_a_row = 0;
            let lasts_ns = lasts_ns * (0.5 + self.random.unit());
            self.call("epoll_wait", 200.0, |run| {
                run.event(Kind::SwitchedOut { runnable: false });
                run.now += lasts_ns;
                run.event(Kind::SwitchedIn);
            });
        }
    }

    /// Packets of a poll by chance.
    fn drawn(&mut self, productive: f64) -> u16 {
        let mut chance = productive;
        if let Some(change) = self.setting.trains {
            self.busy ^= self.random.unit() < change;
            chance *= if self.busy { 1.8 } else { 0.2 };
        }
        let (least, choices) = self.setting.burst;
        if self.random.unit() < chance {
            least + self.random.index(usize::from(choices)) as u16
        } else {
            0
        }
    }

    /// Packets of a poll that looks into the ring now.
    fn arrived(&mut self, arrivals: &Arrivals) -> u16 {
        while self.arrives_ns <= self.now {
            self.waiting = (self.waiting + arrivals.batch).min(arrivals.ring.max(arrivals.waiting));
            let rushing = |rush: &Rush| self.arrives_ns % rush.every_ns < rush.lasts_ns;
            let faster = arrivals.rush.filter(rushing).map_or(1.0, |rush| rush.factor);
            let spread = if arrivals.random { -(1.0 - self.random.unit()).ln() } else { 1.0 };
            self.arrives_ns += spread * arrivals.every_ns / faster;
        }
        let got = self.waiting.min(self.setting.asked.into());
        self.waiting -= got;
        got as u16
    }

    /// The others of a worker whose trace is over are not traced for longer.
    fn is_late(&self) -> bool {
        self.worker > 0 && self.now >= self.until_ns
    }

    /// Polls by chance.
    fn places(&mut self, count: usize) -> Vec<u32> {
        let polls = self.setting.polls as usize;
        (0..count).map(|_| self.random.index(polls) as u32).collect()
    }

    fn stalls_in(&self, place: FaultSite) -> bool {
        self.setting.stalls.is_some_and(|stalls| stalls.place == place)
    }

    fn forward(&mut self, got: u16, incidents: Incidents) {
        let worker = self.worker;
        let (names, costs) = (self.setting.names, self.setting.costs);
        self.call(names.round, costs.round, |run| {
            run.leaf(names.clock, costs.clock);
            match names.stream {
                Some(stream) => {
                    run.call(stream, costs.stream, |run| run.receive(got, incidents));
                }
                None => run.receive(got, incidents),
            }
            run.packets += u64::from(got);
            run.point(Kind::Receive { port: 0, queue: worker, asked: run.setting.asked, got });
            run.leaf(names.count, costs.count);
            // Without packets there is nothing to send, so the silence comes in the round.
            let writes = run.stalls_in(FaultSite::Write) && got > 0;
            if incidents.stall && !writes && !run.stalls_in(FaultSite::Take) {
                run.stall();
            }
            if got > 0 {
                run.send(got, incidents.stall && writes);
            }
        });
    }

    fn receive(&mut self, got: u16, incidents: Incidents) {
        let (names, costs) = (self.setting.names, self.setting.costs);
        self.call(names.receive, costs.receive, |run| {
            run.call(names.take, costs.take, |run| {
                if incidents.stall && run.stalls_in(FaultSite::Take) {
                    run.stall();
                }
                if incidents.start {
                    run.now += run.setting.start_ns;
                }
                if incidents.pause {
                    run.now += PAUSE_NS.0 + PAUSE_NS.1 * run.random.unit();
                }
                for _ in 0..got {
                    run.allocate();
                    let ns = run.periodic(FaultSite::Classify, costs.classify);
                    run.leaf(names.classify, ns);
                }
                if incidents.hole {
                    run.hole();
                }
            });
        });
    }

    /// What `place` takes now, where it usually takes `ns`.
    fn periodic(&self, place: FaultSite, ns: f64) -> f64 {
        match self.setting.period {
            Some(period)
                if period.place == place
                    && (self.now as u64) % self.period_ns
                        < self.period_ns * period.slow_percent / 100 =>
            {
                period.slow_ns
            }
            _ => ns,
        }
    }

    fn allocate(&mut self) {
        let costs = self.setting.costs;
        let ns = self.periodic(FaultSite::Get, costs.get);
        let failing = self.setting.failing;
        let failed = failing > 0.0 && self.random.unit() < failing;
        self.call("rte_pktmbuf_alloc", costs.allocate, |run| {
            run.call("rte_mempool_get", ns, |run| {
                run.taken += 1;
                if failed {
                    run.point(Kind::Pool { action: PoolAction::Failed, pool: 0, buffers: 1 });
                    return;
                }
                if let Some(refills) = run.setting.refills
                    && run.taken.is_multiple_of(refills.every)
                {
                    run.leaf("rte_mempool_ops_dequeue_bulk", refills.ns);
                    let buffers = refills.every;
                    run.point(Kind::Pool { action: PoolAction::Refill, pool: 0, buffers });
                }
                run.point(Kind::Pool { action: PoolAction::Get, pool: 0, buffers: 1 });
            });
        });
    }

    fn send(&mut self, got: u16, mut stall: bool) {
        let worker = self.worker;
        let (names, costs) = (self.setting.names, self.setting.costs);
        self.call(names.send, costs.send, |run| {
            run.call(names.put, costs.put, |run| {
                for _ in 0..got {
                    let ns = run.periodic(FaultSite::Write, costs.write);
                    run.call(names.write, ns, |run| {
                        if std::mem::take(&mut stall) {
                            run.stall();
                        }
                    });
                    run.call("rte_pktmbuf_free", costs.free, |run| {
                        run.leaf("rte_mempool_put", costs.give);
                        run.point(Kind::Pool { action: PoolAction::Put, pool: 0, buffers: 1 });
                    });
                }
            });
        });
        let refusing = self.setting.refusing;
        let refused = refusing > 0.0 && self.random.unit() < refusing;
        let sent = if refused { got - 1 } else { got };
        self.point(Kind::Send { port: 1, queue: worker, asked: got, sent });
    }

    fn stall(&mut self) {
        let Some(stalls) = self.setting.stalls else { return };
        let length = stalls.low_ns + stalls.spread_ns * self.random.unit();
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
        let Some(holes) = self.setting.holes else { return };
        self.pieces.push(std::mem::take(&mut self.events));
        self.cut += self.open.len() as u64;
        self.now += holes.ns;
    }

    pub(super) fn founding_report(&mut self) {
        self.points = false;
        let polls = self.setting.polls;
        let productive_every = polls / 491;
        let mut left = 491;
        let stalls: Vec<u32> = (0..6).map(|_| self.random.index(polls as usize) as u32).collect();
        for poll in 0..polls {
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
