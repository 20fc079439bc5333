//! What a planted trace is made of besides chance: names, costs, traffic, and how large its fault is.
//!
//! [`Setting::plain`] is one situation per fault, far from the limits of the detectors. [`Setting::drawn`] draws one:
//! other programs, CPUs, loads and trains of packets, faults from just above the stated limit of their detector to
//! many times that, and beside them what lies just below the limit of another one (short silences, a CPU a little
//! slower
//! at times, single refused packets, workers not quite even). What no detector promises to find is not drawn: the fault
//! is always there, and nothing else is. Numbers of detectors are repeated here on purpose, as promises.

use super::{Benign, Fault};
use laneway_random::Random;

/// Functions of the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) round: &'static str,
    pub(super) clock: &'static str,
    /// Between the round and the receive, in some programs.
    pub(super) stream: Option<&'static str>,
    pub(super) receive: &'static str,
    pub(super) take: &'static str,
    pub(super) classify: &'static str,
    pub(super) count: &'static str,
    pub(super) send: &'static str,
    pub(super) put: &'static str,
    pub(super) write: &'static str,
}

const TESTPMD_TAP: Names = Names {
    round: "pkt_burst_io_forward",
    clock: "get_start_cycles",
    stream: None,
    receive: "rte_eth_rx_burst",
    take: "pmd_rx_burst",
    classify: "rte_net_get_ptype",
    count: "inc_rx_burst_stats",
    send: "rte_eth_tx_burst",
    put: "pmd_tx_burst",
    write: "tap_write_mbufs",
};

/// Programs that traces are drawn from. The last is one of which no rule knows a name.
const PROGRAMS: [Names; 4] = [
    TESTPMD_TAP,
    Names {
        round: "l2fwd_main_loop",
        clock: "rte_rdtsc",
        take: "eth_af_packet_rx",
        count: "l2fwd_count",
        put: "eth_af_packet_tx",
        write: "rte_memcpy",
        ..TESTPMD_TAP
    },
    Names {
        round: "pkt_burst_mac_forward",
        stream: Some("common_fwd_stream_receive"),
        take: "virtio_recv_pkts",
        put: "virtio_xmit_pkts",
        write: "virtqueue_enqueue_xmit",
        ..TESTPMD_TAP
    },
    Names {
        round: "Gateway::round",
        clock: "Clock::now",
        stream: None,
        receive: "Nic::poll",
        take: "Ring::take",
        classify: "Classifier::look",
        count: "Meter::add",
        send: "Nic::push",
        put: "Ring::put",
        write: "Ring::copy",
    },
];

/// Own time of the functions, ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    pub(super) round: f64,
    pub(super) clock: f64,
    pub(super) stream: f64,
    pub(super) receive: f64,
    pub(super) take: f64,
    pub(super) classify: f64,
    pub(super) count: f64,
    pub(super) allocate: f64,
    pub(super) get: f64,
    pub(super) send: f64,
    pub(super) put: f64,
    pub(super) write: f64,
    pub(super) free: f64,
    pub(super) give: f64,
}

impl Costs {
    fn all(&mut self) -> [&mut f64; 14] {
        [
            &mut self.round,
            &mut self.clock,
            &mut self.stream,
            &mut self.receive,
            &mut self.take,
            &mut self.classify,
            &mut self.count,
            &mut self.allocate,
            &mut self.get,
            &mut self.send,
            &mut self.put,
            &mut self.write,
            &mut self.free,
            &mut self.give,
        ]
    }
}

const PLAIN_COSTS: Costs = Costs {
    round: 30.0,
    clock: 15.0,
    stream: 20.0,
    receive: 40.0,
    take: 60.0,
    classify: 200.0,
    count: 18.0,
    allocate: 25.0,
    get: 90.0,
    send: 40.0,
    put: 50.0,
    write: 400.0,
    free: 30.0,
    give: 50.0,
};

/// Where a fault sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultSite {
    Round,
    Take,
    Classify,
    Get,
    Write,
}

/// A function is slow for part of every period.
#[derive(Debug, Clone, Copy)]
pub(super) struct Periodic {
    pub(super) low_ns: u64,
    pub(super) spread_ns: u64,
    /// Of a period, how much is slow, percent.
    pub(super) slow_percent: u64,
    pub(super) slow_ns: f64,
    pub(super) place: FaultSite,
}

/// Fills of the cache of buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refills {
    /// Buffers taken between two.
    pub(super) every: u32,
    pub(super) ns: f64,
}

/// Silences.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silences {
    /// 1 to this many.
    pub(super) most: usize,
    pub(super) low_ns: f64,
    pub(super) spread_ns: f64,
    pub(super) place: FaultSite,
}

/// Missing events.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holes {
    pub(super) count: u32,
    pub(super) ns: f64,
    /// Missing in each.
    pub(super) events: u64,
}

/// A CPU of two speeds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speeds {
    pub(super) factor: f64,
    /// Chance per poll to change.
    pub(super) chance: f64,
}

/// Packets that come by the clock and wait in a ring, whatever the worker does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrivals {
    /// As many come at once.
    pub(super) batch: u32,
    /// Mean time between two batches, ns.
    pub(super) every_ns: f64,
    /// They come at any time, not evenly.
    pub(super) random: bool,
    /// At times, or always, so many times as fast.
    pub(super) rush: Option<Rush>,
    /// More do not fit.
    pub(super) ring: u32,
    /// In it at the start.
    pub(super) waiting: u32,
    /// The trace ends after so many packets.
    pub(super) packets: u64,
}

/// Times in which more comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rush {
    pub(super) factor: f64,
    /// From one to the next, and how long each lasts, ns.
    pub(super) every_ns: f64,
    pub(super) lasts_ns: f64,
}

/// Something small that is done by the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chore {
    pub(super) every_ns: f64,
    pub(super) ns: f64,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) names: Names,
    pub(super) costs: Costs,
    /// Deviation of the logarithm of every duration.
    pub(super) noise: f64,
    /// Cost of a traced call inside and outside of its interval, ns.
    pub(super) inside_ns: f64,
    pub(super) outside_ns: f64,
    /// Everything takes so many times as long.
    pub(super) pace: f64,
    pub(super) workers: u16,
    pub(super) polls: u32,
    /// Share of polls with packets, of the first worker and of the others.
    pub(super) productive: [f64; 2],
    /// Packets of a poll that has any: least, and how many numbers there are from there.
    pub(super) burst: (u16, u16),
    /// Packets come in trains: chance per poll that one begins or ends.
    pub(super) trains: Option<f64>,
    pub(super) period: Option<Periodic>,
    /// Share of allocations that fail.
    pub(super) failing: f64,
    pub(super) refills: Option<Refills>,
    pub(super) stalls: Option<Silences>,
    /// Short silences, which are no stalls.
    pub(super) pauses: u32,
    pub(super) holes: Option<Holes>,
    pub(super) speeds: Option<Speeds>,
    /// Share of sends that refuse a packet.
    pub(super) refusing: f64,
    /// Most packets of a call.
    pub(super) asked: u16,
    /// In place of `productive` and `burst`, of the first worker and of the others.
    pub(super) arrivals: [Option<Arrivals>; 2],
    /// One silence in the first polls, ns.
    pub(super) start_ns: f64,
    /// So many polls at first take so many times as long, falling off.
    pub(super) cold: Option<(u32, f64)>,
    pub(super) chore: Option<Chore>,
    /// After so many empty polls the worker sleeps for this long, ns.
    pub(super) sleeps: Option<(u32, f64)>,
}

impl Setting {
    /// One situation per fault.
    pub(super) fn plain(fault: Fault, polls: u32) -> Self {
        let silent = matches!(fault, Fault::Stall | Fault::Preemption);
        let costly = fault == Fault::Overhead;
        let mut setting = Self {
            names: TESTPMD_TAP,
            costs: PLAIN_COSTS,
            noise: 0.1,
            inside_ns: if costly { 375.0 } else { 12.0 },
            outside_ns: if costly { 300.0 } else { 10.0 },
            pace: 1.0,
            workers: if fault == Fault::Imbalance { 4 } else { 1 },
            polls,
            productive: match fault {
                Fault::Imbalance => [0.40, 0.06],
                Fault::Backpressure | Fault::Depletion | Fault::Period | Fault::Cycle => [0.30; 2],
                Fault::Contention => [0.20; 2],
                _ => [0.04; 2],
            },
            burst: (1, 6),
            trains: None,
            period: (fault == Fault::Period).then_some(Periodic {
                low_ns: 100_000,
                spread_ns: 100_000,
                slow_percent: 20,
                slow_ns: 400.0,
                place: FaultSite::Get,
            }),
            failing: if fault == Fault::Depletion { 0.02 } else { 0.0 },
            refills: (fault == Fault::Cycle).then_some(Refills { every: 125, ns: 40_000.0 }),
            stalls: silent.then_some(Silences {
                most: 4,
                low_ns: 300_000.0,
                spread_ns: 2_000_000.0,
                place: FaultSite::Take,
            }),
            pauses: 0,
            holes: (fault == Fault::Loss).then_some(Holes { count: 20, ns: 200_000.0, events: 40 }),
            speeds: (fault == Fault::Contention).then_some(Speeds { factor: 2.5, chance: 0.002 }),
            refusing: if fault == Fault::Backpressure { 0.05 } else { 0.0 },
            asked: 32,
            arrivals: [None; 2],
            start_ns: 0.0,
            cold: None,
            chore: None,
            sleeps: None,
        };
        match fault {
            Fault::Backlog => setting.arrivals[0] = Some(setting.flood(1.5)),
            Fault::Misplaced => {
                setting.workers = 4;
                // The idle ones poll as long as the first is at work.
                setting.polls = polls.saturating_mul(10);
                setting.productive[1] = 0.002;
                setting.arrivals[0] = Some(setting.flood(1.5));
            }
            _ => {}
        }
        setting
    }

    /// Too much all the time, by this factor.
    fn flood(&self, factor: f64) -> Arrivals {
        Arrivals {
            batch: 4,
            every_ns: 4.0 / f64::from(self.asked) * self.burst_ns(self.asked) / factor,
            random: true,
            rush: None,
            ring: 1_024,
            waiting: 0,
            packets: 4_000,
        }
    }

    /// A situation by chance; see the module.
    pub(super) fn drawn(fault: Fault, random: &mut Random) -> Self {
        let mut setting = Self::plain(fault, 0);
        setting.names = PROGRAMS[random.index(PROGRAMS.len())];
        setting.noise = between(random, 0.03, 0.25);
        setting.pace = log_between(random, 0.5, 2.0);
        setting.draw_tracer(fault, random);
        setting.draw_traffic(fault, random);
        setting.draw_costs(random);
        setting.draw_near_misses(fault, random);
        let packets = setting.productive[0] * setting.mean_burst();
        // Some 90,000 events in all.
        let calls = f64::from(setting.workers) * (5.0 + 7.0 * packets);
        setting.polls = (45_000.0 / calls).clamp(1_500.0, 6_000.0) as u32;
        setting.draw_fault(fault, packets, random);
        setting.balance();
        setting.lighten(fault);
        match fault {
            Fault::Backlog => setting.draw_backlog(random),
            Fault::Misplaced => setting.draw_misplaced(random),
            _ => {}
        }
        setting.refuse_as_few();
        setting
    }

    /// A healthy situation by chance.
    pub(super) fn benign(benign: Benign, random: &mut Random) -> Self {
        let mut setting = Self::drawn(Fault::Healthy, random);
        match benign {
            Benign::FullBursts => {
                setting.asked = [16, 32, 64][random.index(3)];
                let batch = setting.asked.into();
                setting.arrivals = [Some(setting.kept_up(batch, random)); 2];
            }
            Benign::Batches => {
                setting.asked = [16, 32, 64][random.index(3)];
                let batch = u32::from(setting.asked) * (2 + random.index(7) as u32);
                setting.arrivals = [Some(setting.kept_up(batch, random)); 2];
            }
            Benign::OneByOne => {
                setting.asked = 1;
                let batch = 1 + random.index(8) as u32;
                setting.arrivals = [Some(setting.kept_up(batch, random)); 2];
            }
            Benign::OtherSizes => {
                setting.asked = [2, 4, 8, 128, 256, 512][random.index(6)];
                let batch = 1 + random.index(64) as u32;
                setting.arrivals = [Some(setting.kept_up(batch, random)); 2];
            }
            Benign::FullRing => {
                let batch = 1 + random.index(16) as u32;
                let mut arrivals = setting.kept_up(batch, random);
                arrivals.waiting = [256, 512, 1_024, 1_536][random.index(4)];
                // It takes a while until the ring is empty: what comes meanwhile is served as well.
                arrivals.every_ns *= 1.7;
                arrivals.packets += 6 * u64::from(arrivals.waiting);
                setting.workers = 1;
                setting.arrivals[0] = Some(arrivals);
                setting.polls = 20_000;
            }
            Benign::IdleQueue => {
                setting.workers = 2;
                setting.trains = None;
                let most = 0.3 / setting.packet_load();
                let productive = between(random, 0.5 * most, most).min(0.8);
                setting.productive = [productive, 0.0];
                setting.polls = (1_100.0 / (productive * setting.mean_burst())).max(4_000.0) as u32;
            }
            Benign::SlowStart => setting.start_ns = log_between(random, 200_000.0, 10_000_000.0),
            Benign::WarmUp => {
                let share = log_between(random, 0.003, 0.03);
                let polls = (share * f64::from(setting.polls)) as u32;
                setting.cold = Some((polls.max(1), log_between(random, 2.0, 10.0)));
            }
            Benign::Housekeeping => {
                let every_ns = setting.span_ns() / log_between(random, 20.0, 400.0);
                let ns = (every_ns * log_between(random, 0.001, 0.01)).min(50_000.0);
                setting.chore = Some(Chore { every_ns, ns });
            }
            Benign::CheapFills => {
                let every = [32, 64, 128, 256, 384][random.index(5)];
                let packet_ns = setting.per_packet_ns();
                let share = log_between(random, 0.002, 0.03);
                let ns = f64::from(every) * packet_ns * share;
                setting.refills = Some(Refills { every, ns });
            }
            Benign::Sleeping => {
                let after = 1 + random.index(64) as u32;
                setting.sleeps = Some((after, log_between(random, 20_000.0, 3_000_000.0)));
            }
            Benign::Nothing => setting.productive = [0.0; 2],
        }
        setting.refuse_as_few();
        setting
    }

    /// Single refused packets stay single where other bursts come than were drawn.
    fn refuse_as_few(&mut self) {
        if let Some(arrivals) = self.arrivals[0]
            && self.refusing > 0.0
        {
            self.refusing = 0.0004 * f64::from(arrivals.batch.min(self.asked.into()));
        }
    }

    /// Batches that the worker has time for: at most 85 % of it if they come evenly, half if they do not.
    fn kept_up(&self, batch: u32, random: &mut Random) -> Arrivals {
        let asked = u32::from(self.asked);
        let full = f64::from(batch / asked) * self.burst_ns(self.asked);
        let rest = batch % asked;
        let rest = if rest > 0 { self.burst_ns(rest as u16) } else { 0.0 };
        // Near misses make it up to 10 % slower, noise another 3 %.
        let service_ns = 1.15 * (full + rest);
        let is_random = random.unit() < 0.3;
        let load = between(random, 0.1, if is_random { 0.5 } else { 0.85 });
        Arrivals {
            batch,
            every_ns: service_ns / load,
            random: is_random,
            rush: None,
            ring: 4_096,
            waiting: 0,
            packets: 6_000,
        }
    }

    /// 1.25 to 3 times what the worker takes, always or in several stretches: 2,000 packets each, a quarter of the
    /// time.
    fn draw_backlog(&mut self, random: &mut Random) {
        self.workers = 1;
        self.asked = [8, 16, 32, 64][random.index(4)];
        let factor = log_between(random, 1.25, 3.0);
        let mut arrivals = self.flood(factor);
        arrivals.batch = 1 + random.index(usize::from(self.asked)) as u32;
        arrivals.ring = [256, 512, 1_024, 2_048][random.index(4)];
        arrivals.random = random.unit() < 0.5;
        let packet_ns = self.burst_ns(self.asked) / f64::from(self.asked);
        arrivals.every_ns = f64::from(arrivals.batch) * packet_ns / factor;
        if random.unit() < 0.6 {
            let load = between(random, 0.1, 0.6);
            arrivals.every_ns = f64::from(arrivals.batch) * packet_ns / load;
            let lasts_ns = between(random, 2_000.0, 4_000.0) * packet_ns;
            let every_ns = lasts_ns * between(random, 1.3, 3.0);
            arrivals.rush = Some(Rush { factor: factor / load, every_ns, lasts_ns });
        }
        arrivals.packets = 10_000;
        self.arrivals[0] = Some(arrivals);
        self.polls = 40_000;
    }

    /// One worker has too much, all the time, and 2 to 4 have next to nothing.
    fn draw_misplaced(&mut self, random: &mut Random) {
        self.draw_backlog(random);
        self.workers = 3 + random.index(3) as u16;
        self.trains = None;
        self.productive[1] = log_between(random, 0.001, 0.02) / self.mean_burst();
        if let Some(arrivals) = &mut self.arrivals[0] {
            arrivals.packets = 3_500;
            if let Some(rush) = arrivals.rush.take() {
                arrivals.every_ns /= rush.factor;
            }
        }
    }

    /// A call that returns `packets`, and what is done with them, on average, ns.
    fn burst_ns(&self, packets: u16) -> f64 {
        let costs = &self.costs;
        let call = self.inside_ns + self.outside_ns;
        let stream = if self.names.stream.is_some() { costs.stream + call } else { 0.0 };
        let poll = costs.round + costs.clock + costs.receive + costs.take + costs.count + stream;
        let sent = costs.send + costs.put + 2.0 * call;
        let per_packet = self.per_packet_ns() + 6.0 * call;
        self.pace * (poll + 5.0 * call + sent + f64::from(packets) * per_packet)
    }

    /// What one packet takes, as a multiple of an empty poll.
    fn packet_load(&self) -> f64 {
        let empty = self.poll_ns(0.0);
        (self.poll_ns(self.mean_burst()) - empty) / empty
    }

    fn span_ns(&self) -> f64 {
        self.poll_ns(self.productive[0] * self.mean_burst()) * f64::from(self.polls)
    }

    fn draw_tracer(&mut self, fault: Fault, random: &mut Random) {
        (self.inside_ns, self.outside_ns) = if fault == Fault::Overhead {
            // Times the pace below 1 us, from which on a shortest leaf is not taken for the tracer's cost.
            (log_between(random, 60.0, 450.0), log_between(random, 60.0, 450.0))
        } else {
            (between(random, 3.0, 12.0), between(random, 2.0, 10.0))
        };
    }

    fn draw_traffic(&mut self, fault: Fault, random: &mut Random) {
        let bursts = [(1, 1), (1, 6), (1, 16), (4, 24)];
        // What a cycle of fills or a period is seen by are packets, steadily.
        let (least, choices) = match fault {
            Fault::Cycle => (0.30, 2),
            // Loads of queues are compared from 1,000 packets on.
            Fault::Imbalance => (0.40, 4),
            Fault::Period | Fault::Depletion | Fault::Backpressure => (0.15, 4),
            Fault::Contention => (0.05, 4),
            _ => (0.01, 4),
        };
        let productive = log_between(random, least, 0.8);
        self.productive = [productive; 2];
        self.burst = bursts[random.index(choices)];
        if random.unit() < 0.4 && !matches!(fault, Fault::Cycle | Fault::Imbalance) {
            self.trains = Some(log_between(random, 0.003, 0.05));
        }
    }

    fn draw_costs(&mut self, random: &mut Random) {
        let costs = &mut self.costs;
        for cost in costs.all() {
            *cost *= log_between(random, 0.8, 1.25);
        }
        let driver = log_between(random, 1.0, 4.0);
        costs.classify *= driver;
        costs.write *= driver;
    }

    /// Below the limits: 100 us of silence, 1.25 of a slow CPU, 0.1 % refused, 1.5 times the mean.
    fn draw_near_misses(&mut self, fault: Fault, random: &mut Random) {
        self.pauses = random.index(6) as u32;
        if random.unit() < 0.5 {
            let factor = between(random, 1.0, 1.1);
            self.speeds = Some(Speeds { factor, chance: log_between(random, 0.001, 0.01) });
        }
        if random.unit() < 0.3 {
            self.refusing = 0.0004 * self.mean_burst();
        }
        if random.unit() < 0.3 && matches!(fault, Fault::Healthy | Fault::Stall | Fault::Depletion)
        {
            self.workers = 2;
            // A few trains more would be a real imbalance.
            self.trains = None;
            self.productive[1] = self.productive[0] * between(random, 0.6, 1.0);
        } else {
            self.workers = 1;
        }
    }

    /// `packets`: mean of a poll.
    fn draw_fault(&mut self, fault: Fault, packets: f64, random: &mut Random) {
        let poll_ns = self.poll_ns(packets);
        let span_ns = poll_ns * f64::from(self.polls);
        match fault {
            // Drawn when the costs are settled.
            Fault::Healthy | Fault::Overhead | Fault::Backlog | Fault::Misplaced => {}
            Fault::Period => {
                let period_ns = log_between(random, 100_000.0, (span_ns / 16.0).max(150_000.0));
                let place =
                    [FaultSite::Get, FaultSite::Classify, FaultSite::Write][random.index(3)];
                let usual = match place {
                    FaultSite::Get => self.costs.get,
                    FaultSite::Classify => self.costs.classify,
                    FaultSite::Round | FaultSite::Take | FaultSite::Write => self.costs.write,
                };
                self.period = Some(Periodic {
                    low_ns: period_ns as u64,
                    spread_ns: 1,
                    slow_percent: 10 + random.index(35) as u64,
                    slow_ns: usual * between(random, 2.0, 6.0),
                    place,
                });
            }
            Fault::Depletion => self.failing = log_between(random, 0.01, 0.2),
            Fault::Cycle => {
                let per_buffer_ns = poll_ns / packets;
                let share = between(random, 0.12, 0.5);
                let longest = (span_ns / 24.0 / per_buffer_ns).max(100.0);
                let every = log_between(random, 90.0, longest.clamp(91.0, 250.0));
                let ns = every * per_buffer_ns * share / (1.0 - share) / self.pace;
                self.refills = Some(Refills { every: every as u32, ns });
            }
            Fault::Stall | Fault::Preemption => {
                // 20 times the longest that the slowest function around usually takes, or 100 us.
                let most = f64::from(self.burst.0 + self.burst.1);
                let burst_ns = most * (self.per_packet_ns() + 6.0 * self.inside_ns) + 500.0;
                let limit = (20.0 * 1.5 * burst_ns * self.pace).max(100_000.0);
                let low_ns = limit * log_between(random, 1.2, 5.0);
                let place = [FaultSite::Round, FaultSite::Take, FaultSite::Write][random.index(3)];
                self.stalls =
                    Some(Silences { most: 1 + random.index(8), low_ns, spread_ns: low_ns, place });
            }
            Fault::Loss => {
                self.holes = Some(Holes {
                    count: 3 + random.index(40) as u32,
                    ns: log_between(random, 20_000.0, 2_000_000.0),
                    events: 1 + random.index(5_000) as u64,
                });
            }
            Fault::Contention => {
                let changes = log_between(random, 10.0, 60.0);
                let chance = changes / f64::from(self.polls);
                self.speeds = Some(Speeds { factor: log_between(random, 1.4, 4.0), chance });
            }
            Fault::Imbalance => {
                self.workers = 2 + random.index(4) as u16;
                let count = f64::from(self.workers);
                let times = between(random, 1.7, count.min(4.0) - 0.05).max(1.7);
                let other = self.productive[0] * (count - times) / times / (count - 1.0);
                self.productive[1] = other.min(self.productive[0]);
                self.polls /= 2;
            }
            Fault::Backpressure => {
                let all = packets * f64::from(self.polls);
                let share = log_between(random, 0.003f64.max(20.0 / all), 0.15);
                self.refusing = (share * self.mean_burst()).min(0.9);
            }
        }
    }

    /// Keeps the shape from having a second fault: receive against send within 0.6 to 1.65, buffers below a fifth.
    fn balance(&mut self) {
        let mean = self.mean_burst();
        let (mut refill, mut received, mut written) = (0.0, 0.0, 0.0);
        if let Some(refills) = self.refills {
            refill = refills.ns / f64::from(refills.every);
        }
        if let Some(period) = self.period {
            let share = period.slow_percent as f64 / 100.0;
            match period.place {
                FaultSite::Get => refill += share * (period.slow_ns - self.costs.get),
                FaultSite::Classify => received = share * (period.slow_ns - self.costs.classify),
                _ => written = share * (period.slow_ns - self.costs.write),
            }
        }
        let costs = &mut self.costs;
        let buffers = costs.allocate + costs.get + costs.free + costs.give;
        let burst = costs.receive + costs.take + costs.send + costs.put + costs.round + costs.count;
        let all = |costs: &Costs| {
            buffers + refill + received + written + costs.classify + costs.write + burst / mean
        };
        while self.refills.is_none() && buffers + refill > 0.2 * all(costs) {
            costs.classify *= 1.1;
            costs.write *= 1.1;
        }
        let fixed_receive =
            costs.allocate + costs.get + refill + received + (costs.receive + costs.take) / mean;
        let fixed_send = costs.free + costs.give + written + (costs.send + costs.put) / mean;
        while fixed_receive + costs.classify > 1.65 * (fixed_send + costs.write) {
            costs.write *= 1.1;
        }
        while fixed_receive + costs.classify < 0.6 * (fixed_send + costs.write) {
            costs.classify *= 1.1;
        }
        // What is slow at times keeps its distance from the usual.
        if let Some(period) = &mut self.period {
            let usual = match period.place {
                FaultSite::Get => costs.get,
                FaultSite::Classify => costs.classify,
                _ => costs.write,
            };
            period.slow_ns = period.slow_ns.max(2.0 * usual);
        }
    }

    /// A costly tracer takes 70 % of the time at least: what the functions do is cheap beside it.
    fn lighten(&mut self, fault: Fault) {
        let packets = self.productive[0] * self.mean_burst();
        let calls = 5.0 + 6.0 * packets + 2.0 * self.productive[0];
        let share = |setting: &Self| {
            let tracer = setting.pace * calls * (setting.inside_ns + setting.outside_ns);
            tracer / setting.poll_ns(packets)
        };
        while fault == Fault::Overhead && share(self) < 0.7 {
            for cost in self.costs.all() {
                *cost *= 0.9;
            }
        }
    }

    fn mean_burst(&self) -> f64 {
        f64::from(self.burst.0) + (f64::from(self.burst.1) - 1.0) / 2.0
    }

    fn per_packet_ns(&self) -> f64 {
        let costs = &self.costs;
        let received = costs.allocate + costs.get + costs.classify;
        received + costs.write + costs.free + costs.give
    }

    /// What a poll takes on average, without its fault.
    fn poll_ns(&self, packets: f64) -> f64 {
        let costs = &self.costs;
        let call = self.inside_ns + self.outside_ns;
        let poll = costs.round + costs.clock + costs.receive + costs.take + costs.count;
        let sent = self.productive[0] * (costs.send + costs.put);
        let per_packet = self.per_packet_ns() + 6.0 * call;
        self.pace * (poll + 5.0 * call + sent + packets * per_packet)
    }
}

fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low).max(0.0) * random.unit()
}

/// As many draws per doubling everywhere.
fn log_between(random: &mut Random, low: f64, high: f64) -> f64 {
    between(random, low.ln(), high.ln()).exp()
}
