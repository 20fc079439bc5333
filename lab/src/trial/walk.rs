//! The way of one arm through its segments: its processes are begun, asked, parked and ended, and each segment is sent
//! and waited for until nothing changes any more.

use super::{
    BEGIN, Capacity, CapacityStep, DRAIN, ECHO_BURSTS_PER_S_MAX, LEAD_NS, MISSING_LOOKS_MAX,
    OPEN_NS, PATIENCE, PING_LOAD_MORE, PING_LOAD_STRETCH, PING_RETRIES_MAX, SETTLE_STEP,
    SETTLE_STEPS_MAX, Search, TrialPlan, UNCOUNTED, cpu, disturbed, keeps_up, lateness,
    lost_on_the_cable, rate, unclear,
    window::{self, Closed, Idling, Watched},
};
use crate::addresses::{DESTINATION, ECHO, FAR_END, SUT_MAC};
use crate::arrivals::Arrived;
use crate::bench::FarEndCounts;
use crate::bench::{Bench, WireLosses};
use crate::child_process::ChildProcess;
use crate::client::{Asked, Asking};
use crate::copies::Copied;
use crate::error::RaceError;
use crate::leftovers::Leftovers;
use crate::meter::{Owner, Reading, Usage, cpumap_threads};
use crate::ping::{self, PingLoad, PingOrder, PingTrial};
use crate::plan::{ArmReport, ArmSetup, GeneratorSetup, Order, Reply, Shape, TraceEnd, WayIn};
use crate::replies::Replied;
use crate::result::{GeneratorReport, Ledger, Resent, Segment};
use crate::round_trips::RoundTrips;
use crate::scenario::PingPlan;
use crate::search::bisect;
use crate::segment::{SegmentPlan, SegmentSeen};
use crate::tables::wiring;
use crate::traffic::TrafficPlan;
use crate::wire::{self, Wire};
use laneway_bpf::PassGuard;
use laneway_core::Clock;
use laneway_engine::{MonotonicClock, pin_to_cpu};
use laneway_kinds::Counted;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// A trial under way: its two children, and what was known before the next segment.
pub(super) struct Walk<'a> {
    pub(super) bench: &'a Bench,
    pub(super) plan: TrialPlan<'a>,
    /// Declared before the arm: the far end of taps detaches before they go.
    pub(super) wire: Wire<'a>,
    /// Of a client that asks by datagrams, which a kernel half may answer.
    _far_end: Option<PassGuard>,
    pub(super) arm: ChildProcess,
    pub(super) generator: ChildProcess,
    pub(super) way: WayIn,
    pub(super) before: State,
    /// What the arm does though nothing is sent to it.
    pub(super) idling: Idling,
    /// What a poll that finds nothing costs it, ns; `None` of one that waits, or does not say.
    pub(super) empty_poll_ns: Option<f64>,
    /// Segments so far.
    pub(super) segments: u8,
    /// The round it is in: base and arm of a pair are sent the same at the same times.
    pub(super) round: u32,
}

/// What a segment's window was like.
pub(super) struct Metered {
    pub(super) sent: GeneratorReport,
    /// What is booked: until all is handled, or of an arm that polls, to the end of the schedule.
    pub(super) usage: Usage,
    /// How that ended.
    pub(super) closed: Closed,
    /// The arm's report when it had heard of the segment, and when that was.
    pub(super) heard: (ArmReport, u64),
    /// Of a client: what it has to say.
    pub(super) asked: Option<Asked>,
}

/// When what is sent is due.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// At times of its own.
    Open,
    /// When what a client asked before was answered; until so many were due, if so.
    Closed(Option<NonZeroU32>),
}

/// One segment, offered.
pub(super) struct Offered {
    pub(super) segment: Segment,
    pub(super) seen: SegmentSeen,
    /// Round trips, or ways from due to arrival.
    pub(super) trips: Option<RoundTrips>,
}

impl<'a> Walk<'a> {
    /// Starts arm and generator.
    pub(super) fn begin(bench: &'a Bench, plan: TrialPlan<'a>) -> Result<Walk<'a>, RaceError> {
        let mut arm = start_arm(bench, &plan)?;
        let far_end = plan.is_by_datagrams.then(|| bench.pass_at_the_far_end()).transpose()?;
        let wire = Wire::lay(bench, wiring(plan.tables, plan.peer, plan.lane), &plan.app)?;
        let way = wire.way_in(plan.way)?;
        let who = match plan.sending.traffic.client() {
            Some(_) => format!("the client of arm `{}`", plan.name),
            None => "generator".to_owned(),
        };
        let mut generator = ChildProcess::start(
            who,
            "generate",
            wire.namespace(),
            &GeneratorSetup {
                traffic: plan.traffic(),
                times: plan.sending.times.clone(),
                way: way.clone(),
                // A lane of datagrams is reached through the stack, and so is a responder to pings;
                // of other frames, the stack is to have none.
                destination: match (arm.ready.shape, plan.app.race.counted) {
                    (Shape::Frames, Counted::Replies) | (Shape::Datagrams, _) => SUT_MAC,
                    (Shape::Frames, _) => DESTINATION,
                },
                cpu: bench.placement().generator_cpu,
            },
        )?;
        bench.meter().classify(generator.pid(), Owner::Generator(plan.arm))?;
        switch_once(bench.placement().generator_cpu)?;
        let before = State::read(&wire, &mut arm, &mut generator)?;
        let mut walk = Walk {
            bench,
            plan,
            wire,
            _far_end: far_end,
            arm,
            generator,
            way,
            before,
            idling: Idling::default(),
            empty_poll_ns: None,
            segments: 0,
            round: 0,
        };
        walk.look_at_the_idle_arm()?;
        Ok(walk)
    }

    /// Finds out, before anything is sent, what the arm does then, and what a poll that finds nothing costs it.
    fn look_at_the_idle_arm(&mut self) -> Result<(), RaceError> {
        let before = report(&mut self.arm)?;
        let (idling, usage) = Idling::seen(self.plan.arm, BEGIN, self)?;
        // Both reports are within a tick of the readings, and so is what is made of them.
        let empty = report(&mut self.arm)?.lane.polls_empty.saturating_sub(before.lane.polls_empty);
        self.idling = idling;
        self.empty_poll_ns = (idling.polls() && empty > 0)
            .then(|| usage.own_ns(self.plan.arm) as f64 / empty as f64);
        Ok(())
    }

    /// Both children end when they are dropped; ordered to stop first, they do so side by side. An arm that is traced
    /// reports when its trace is complete.
    pub(super) fn end(mut self) -> Result<Option<TraceEnd>, RaceError> {
        self.park(false)?;
        self.generator.order(&Order::Stop)?;
        self.arm.order(&Order::Stop)?;
        self.bench.meter().disown(self.plan.arm)?;
        if self.plan.trace.is_none() {
            return Ok(None);
        }
        match self.arm.reply(PATIENCE)? {
            Reply::Traced(end) => Ok(Some(end)),
            _ => Err(self.arm.failed("it answered out of turn")),
        }
    }

    /// Parks both sides, or has them go on. Generators poll, too: that of a memif stands at the far end of shared
    /// memory, and one that is not parked takes its CPU from the generators of all other arms.
    pub(super) fn park(&self, is_parked: bool) -> Result<(), RaceError> {
        let meter = self.bench.meter();
        self.arm.park(is_parked, meter, Owner::Arm(self.plan.arm))?;
        self.generator.park(is_parked, meter, Owner::Generator(self.plan.arm))
    }

    pub(super) fn is_wanted(&self) -> Result<(), RaceError> {
        match self.plan.interrupted.load(Ordering::Relaxed) {
            true => Err(RaceError::Interrupted),
            false => Ok(()),
        }
    }

    /// Makes ready for the next segment.
    pub(super) fn next_schedule(
        &mut self,
        pps: u64,
        length: Duration,
    ) -> Result<SegmentPlan, RaceError> {
        self.is_wanted()?;
        self.bench.forget_fragments()?;
        // Of hundreds, tried again and again, none has the number 0, which belongs to no segment.
        self.segments = self.segments.checked_add(1).unwrap_or(1);
        let plan = schedule(&self.plan, pps, length, self.segments);
        Ok(SegmentPlan { entry: self.round, ..plan })
    }

    /// Offers `pps` for `length`, and waits until all that will ever come has.
    pub(super) fn offer(&mut self, pps: u64, length: Duration) -> Result<Offered, RaceError> {
        let schedule = self.next_schedule(pps, length)?;
        let metered = self.send(&schedule)?;
        self.account(&schedule, metered, None)
    }

    /// Has the client ask in a closed loop for `length`, or until so many `requests` were due.
    pub(super) fn converse(
        &mut self,
        length: Duration,
        requests: Option<NonZeroU32>,
    ) -> Result<Offered, RaceError> {
        let clock = SegmentPlan {
            frames: (length.as_millis() as u32).max(1),
            interval_ns: 1_000_000,
            burst: 1,
            ..self.next_schedule(1, length)?
        };
        let metered = self.send_at(&clock, Pace::Closed(requests))?;
        let mut offered = self.account(&clock, metered, None)?;
        let due = offered.segment.ledger.offered;
        if let Some(requests) = requests.filter(|n| due < u64::from(n.get())) {
            offered.segment.invalid.push(format!(
                "{due} of {requests} requests were due: nothing more was answered, or it took more than {} s",
                length.as_secs()
            ));
        }
        Ok(offered)
    }

    /// Offers as many frames as `pps` for `length` are, all due at once.
    pub(super) fn pour(&mut self, pps: u64, length: Duration) -> Result<Offered, RaceError> {
        let schedule = SegmentPlan { interval_ns: 0, ..self.next_schedule(pps, length)? };
        let mut metered = self.send(&schedule)?;
        metered.sent.asked_pps = pps as f64;
        self.account(&schedule, metered, None)
    }

    /// Real pings with nothing else sent; all of them `again` where `ping` did not wait for the last one. An arm
    /// that loses it each time shows it.
    pub(super) fn ping(
        &self,
        order: PingOrder,
        again: &mut Vec<String>,
    ) -> Result<PingTrial, RaceError> {
        let cpu = self.bench.placement().generator_cpu;
        let mut trial = ping::run(self.wire.namespace(), cpu, order)?;
        for _ in 0..PING_RETRIES_MAX {
            if !trial.is_cut {
                break;
            }
            let (replied, sent) = (trial.replied, trial.sent);
            again.push(format!(
                "ping: it ended without a reply to the last one, {replied} of {sent}"
            ));
            trial = ping::run(self.wire.namespace(), cpu, order)?;
        }
        Ok(trial)
    }

    /// Real pings while `pps` requests of ours are offered; `None` if they outlasted the load.
    pub(super) fn ping_beside(
        &mut self,
        order: PingOrder,
        pps: u64,
    ) -> Result<Option<PingTrial>, RaceError> {
        let pinging = Duration::from_micros(u64::from(order.pings) * u64::from(order.interval_us));
        let length = pinging.mul_f64(PING_LOAD_STRETCH) + PING_LOAD_MORE;
        let schedule = self.next_schedule(pps, length)?;
        let namespace = self.wire.namespace();
        let cpu = self.bench.placement().generator_cpu;
        let (sent, pinged) = thread::scope(|scope| {
            let ping = scope.spawn(move || {
                thread::sleep(Duration::from_nanos(LEAD_NS) + DRAIN);
                (ping::run(namespace, cpu, order), MonotonicClock.now_ns())
            });
            (self.send(&schedule), ping.join().expect("it does not panic"))
        });
        let metered = sent?;
        let (pinged, ended_ns) = pinged;
        let pinged = pinged?;
        let is_covered = metered.closed.covers(ended_ns);
        let Offered { segment, .. } = self.account(&schedule, metered, Some(&pinged))?;
        let load = Some(PingLoad { pps, ledger: segment.ledger });
        Ok(is_covered.then_some(PingTrial { load, ..pinged }))
    }

    /// The outcome of a segment that was sent, and of the real pings `beside` it, when all that will ever
    /// come has.
    pub(super) fn account(
        &mut self,
        schedule: &SegmentPlan,
        metered: Metered,
        beside: Option<&PingTrial>,
    ) -> Result<Offered, RaceError> {
        let Metered { sent, usage, closed, heard, asked } = metered;
        let mut looks = 0;
        let (after, mut seen, ledger) = loop {
            // A client has seen to it that every request has an end.
            if let Some(asked) = &asked {
                let after = State::read(&self.wire, &mut self.arm, &mut self.generator)?;
                break (after, seen_by_replies(self.segments, &asked.replied()), asked.ledger());
            }
            let cpus = [self.bench.placement().arm_cpu, self.bench.placement().generator_cpu];
            // What is all there at once needs no second look.
            let after = match looks {
                0 => State::read(&self.wire, &mut self.arm, &mut self.generator)?,
                _ => State::settled(&self.wire, &mut self.arm, &mut self.generator, cpus)?,
            };
            let FarEndCounts { replied, arrived, copied, .. } = &after.far_end;
            let seen = match (replied, arrived, copied) {
                (Some(replied), ..) => seen_by_replies(self.segments, replied),
                (_, Some(arrived), _) => seen_by_arrivals(self.segments, arrived),
                (.., Some(copied)) => seen_by_copies(self.segments, copied),
                (None, None, None) => after.arm.segment.clone().unwrap_or_default(),
            };
            let ledger = self.ledger(schedule, &sent, &after, &seen, beside);
            looks += 1;
            let is_whole = ledger.is_closed() && ledger.dropped() == 0;
            let is_missing = ledger.unexplained > 0 || ledger.drops.contains_key(UNCOUNTED);
            if is_whole || (looks > 1 && !is_missing) || looks > MISSING_LOOKS_MAX {
                break (after, seen, ledger);
            }
        };
        let spun_ns = self.spun_ns(&usage, &heard, &after.arm);
        let plan = &self.plan;
        // What had no time of its own was not late.
        let has_latency = !schedule.is_topspeed();
        if !has_latency {
            (seen.wire_to_app, seen.app_only) = Default::default();
        }
        let is_seen = plan.app.race.counted.by_witness() && has_latency;
        // A program of others reports none of its own.
        if is_seen && plan.peer.is_none() {
            let missing = ledger.missing_beside(seen.wire_to_app.n());
            seen.wire_to_app.miss(missing);
        }
        let is_timed = has_latency && !self.bench.placement().waits_for_generator();
        let answered = asked.as_ref().map(Asked::replied).filter(|_| has_latency);
        let replied = after.far_end.replied.as_ref().map(|replied| &replied.round_trips);
        let [round_trips, ways] = [replied, after.far_end.trips.as_ref()]
            .map(|trips| trips.filter(|_| is_timed).map(|trips| with_missing(trips, &ledger)));
        let round_trips = answered.map(|replied| replied.round_trips).or(round_trips);
        let mut segment = Segment {
            arm: plan.arm,
            generation: plan.generation,
            round: 0,
            order: 0,
            warm_up: false,
            replaced: false,
            load: 0,
            window_ns: usage.window_ns,
            records_per_s: match &asked {
                Some(asked) => asked.per_second(),
                None => {
                    rate(plan.sending.timetable.length_ns(schedule), &sent, &seen, ledger.delivered)
                }
            },
            cpu: cpu(&usage, plan.arm, closed.end, spun_ns, ledger.paid_for()),
            ledger,
            generator: GeneratorReport { cpu_ns: usage.generator_task_ns(plan.arm), ..sent },
            wire_to_app: is_seen.then(|| seen.wire_to_app.summary()),
            app_only: is_seen.then(|| seen.app_only.summary()),
            rtt: round_trips.as_ref().map(RoundTrips::figures),
            due_to_arrival: ways.as_ref().map(RoundTrips::figures),
            connections: asked.as_ref().map(|asked| asked.connections),
            resent: asked.as_ref().and_then(|_| self.resent(&after)),
            memory: after.arm.memory.clone(),
            invalid: Vec::new(),
            disturbed: None,
            disturbed_by: None,
        };
        let late = match has_latency {
            true => lateness(&segment.generator, plan.late_p99_ns_max),
            false => Vec::new(),
        };
        segment.invalid = late;
        segment.invalid.extend(unclear(&usage, plan.arm));
        segment.invalid.extend(closed.end.invalid());
        let disturbance =
            disturbed(&usage, plan.arm, plan.others_max).or_else(|| lost_on_the_cable(&segment));
        (segment.disturbed_by, segment.disturbed) = disturbance.unzip();
        self.before = after;
        Ok(Offered { segment, seen, trips: round_trips.or(ways) })
    }

    /// What found no room on the way since the last segment, of connections that send it again.
    fn resent(&self, after: &State) -> Option<Resent> {
        let packets = after.wire.in_full_rings() - self.before.wire.in_full_rings();
        (packets > 0).then(|| Resent { place: self.wire.ring().to_owned(), packets })
    }

    /// What the arm spent of its window on polls that found nothing: by their number, and by what one costs where
    /// nothing comes. `None` where that is not known.
    pub(super) fn spun_ns(
        &self,
        window: &Usage,
        (heard, heard_ns): &(ArmReport, u64),
        after: &ArmReport,
    ) -> Option<u64> {
        let empty = after.lane.polls_empty.saturating_sub(heard.lane.polls_empty);
        let outside_ns =
            MonotonicClock.now_ns().saturating_sub(*heard_ns).saturating_sub(window.window_ns);
        let empty_poll_ns = self.empty_poll_ns.filter(|_| self.idling.polls())?;
        let spun_ns = empty_poll_ns * empty as f64 - outside_ns as f64;
        Some((spun_ns.max(0.0) as u64).min(window.own_ns(self.plan.arm)))
    }

    /// Searches for the highest rate that comes through.
    pub(super) fn search(&mut self, search: Search) -> Result<Capacity, RaceError> {
        let Search { loss_max, length, .. } = search;
        let mut capacity = Capacity::default();
        let (mut limited_pps, mut disturbed_pps) = (None, None);
        let bounds = bisect(search.pps, search.steps, |pps| {
            for _ in 0..search.trials {
                let mut segment = self.offer(pps, length)?.segment;
                if let StepOutcome { passed: false, is_disturbed: true, .. } =
                    of(&segment, loss_max)
                {
                    // It failed while something disturbed it: that is asked once more.
                    segment = self.offer(pps, length)?.segment;
                }
                let StepOutcome { passed, is_limited, is_disturbed } = of(&segment, loss_max);
                if !passed && is_limited {
                    limited_pps = Some(pps);
                } else if !passed && is_disturbed {
                    disturbed_pps = Some(pps);
                }
                let (loss_share, ledger) = (segment.ledger.loss_share(), segment.ledger);
                capacity.steps.push(CapacityStep { pps, loss_share, passed, ledger });
                if !passed {
                    return Ok::<_, RaceError>(false);
                }
            }
            Ok(true)
        })?;
        (capacity.pps, capacity.beyond_pps) = (bounds.passed, bounds.failed);
        let is_beyond = |pps: Option<u64>| pps.is_some() && pps == bounds.failed;
        capacity.is_generator_limited = is_beyond(limited_pps);
        capacity.is_disturbed = bounds.passed.is_none() && is_beyond(disturbed_pps);
        Ok(capacity)
    }
}

/// What a step of a search is, by one trial.
#[derive(Debug, PartialEq)]
struct StepOutcome {
    passed: bool,
    /// Nothing but the generator kept it from passing.
    is_limited: bool,
    /// Something else than the arm had a part in it.
    is_disturbed: bool,
}

/// The outcome of a segment of a search.
fn of(segment: &Segment, loss_max: f64) -> StepOutcome {
    let GeneratorReport { asked_pps, achieved_pps, .. } = segment.generator;
    let (keeps_up, is_within) =
        (keeps_up(asked_pps, achieved_pps), segment.ledger.loss_share() <= loss_max);
    StepOutcome {
        passed: is_within && keeps_up,
        is_limited: is_within && !keeps_up,
        is_disturbed: !segment.invalid.is_empty() || segment.disturbed.is_some(),
    }
}

/// Everything cumulative, read outside of windows.
pub(super) struct State {
    pub(super) wire: WireLosses,
    pub(super) arm: ArmReport,
    pub(super) far_end: FarEndCounts,
}

impl State {
    pub(super) fn read(
        wire: &Wire<'_>,
        arm: &mut ChildProcess,
        generator: &mut ChildProcess,
    ) -> Result<State, RaceError> {
        let report = report(arm)?;
        let (far_end, wire) = wire.look(generator, PATIENCE)?;
        Ok(State { wire, arm: report, far_end })
    }

    /// Waits until the arm has handled all that will ever come. Nothing gets on while a hypervisor has taken
    /// one of `cpus` away, so each has had a turn between two looks.
    pub(super) fn settled(
        wire: &Wire<'_>,
        arm: &mut ChildProcess,
        generator: &mut ChildProcess,
        cpus: [usize; 2],
    ) -> Result<State, RaceError> {
        let mut last = State::read(wire, arm, generator)?;
        for _ in 0..SETTLE_STEPS_MAX {
            thread::sleep(SETTLE_STEP);
            cpus.into_iter().try_for_each(switch_once)?;
            let now = State::read(wire, arm, generator)?;
            if now.progress() == last.progress() {
                return Ok(now);
            }
            last = now;
        }
        // A frame still on its way shows as unexplained.
        Ok(last)
    }

    pub(super) fn progress(&self) -> [u64; 4] {
        let FarEndCounts { returned, replied, arrived, copied, .. } = &self.far_end;
        let returned: u64 = returned.iter().flatten().sum();
        let replied = replied.iter().map(|r| r.distinct + r.duplicates + r.foreign);
        let arrived = arrived.iter().map(|a| a.distinct + a.duplicates + a.foreign);
        let copied = copied.iter().map(Copied::seen);
        let returned = returned + replied.chain(arrived).chain(copied).sum::<u64>();
        let lost = self.arm.lane.lost() + self.arm.app.lost();
        [self.arm.records, returned, self.arm.lane.rx_frames, lost]
    }

    /// Frames that were returned otherwise than they were sent, so far.
    pub(super) fn changed(&self) -> u64 {
        let returned = self.far_end.returned.iter().flatten();
        returned.copied().nth(crate::returns::CHANGED).unwrap_or(0)
    }

    /// Frames of `segment` that were returned; `None` where none are to be.
    pub(super) fn returned(&self, segment: u8) -> Option<u64> {
        let returned = self.far_end.returned.as_ref()?;
        Some(returned.get(usize::from(segment)).copied().unwrap_or(0))
    }
}

impl Walk<'_> {
    /// Has one segment sent, and meters its window.
    pub(super) fn send(&mut self, schedule: &SegmentPlan) -> Result<Metered, RaceError> {
        self.send_at(schedule, Pace::Open)
    }

    pub(super) fn send_at(
        &mut self,
        schedule: &SegmentPlan,
        pace: Pace,
    ) -> Result<Metered, RaceError> {
        let Walk { bench, plan, wire, arm, generator, .. } = self;
        let schedule = SegmentPlan { t0_ns: MonotonicClock.now_ns() + LEAD_NS, ..*schedule };
        wire.expect(&schedule)?;
        arm.order(&Order::Segment(schedule))?;
        // A frame that arrived before the arm knew its segment would belong to no segment. Where that took
        // longer than the lead, the generator is late, and reports it.
        let heard = (report(arm)?, MonotonicClock.now_ns());
        generator.order(&match plan.sending.traffic.client() {
            Some(_) => Order::Ask(match pace {
                Pace::Open => Asking { schedule, is_closed: false, requests: None },
                Pace::Closed(requests) => Asking { schedule, is_closed: true, requests },
            }),
            None => Order::Segment(schedule),
        })?;
        let open_ns = schedule.t0_ns - OPEN_NS;
        thread::sleep(Duration::from_nanos(open_ns.saturating_sub(MonotonicClock.now_ns())));
        let start: Reading = bench.meter().read()?;
        let length = Duration::from_nanos(plan.sending.timetable.length_ns(&schedule));
        let waits_ms = plan.sending.traffic.client().map_or(0, |client| client.timeout_ms);
        let patience = PATIENCE + Duration::from_millis(waits_ms.into());
        let (sent, mut asked) = match generator.reply(length * 4 + patience)? {
            Reply::Sent(sent) => (sent, None),
            Reply::Asked(asked) => (asked.generator.clone(), Some(*asked)),
            _ => return Err(generator.failed("it answered out of turn")),
        };
        // A client has waited for its answers.
        let mut idling = self.idling;
        let closed = window::close(self.plan.arm, &mut idling, asked.is_some(), self)?;
        self.idling = idling;
        let usage = closed.at.since(&start);
        if let Some(asked) = &mut asked {
            // The arm takes part in it, so this is before it is parked; and behind the window, since it is no request's.
            self.generator.order(&Order::Report)?;
            let Reply::Reopened(found) = self.generator.reply(patience)? else {
                return Err(self.generator.failed("it answered out of turn"));
            };
            asked.found(found);
        }
        Ok(Metered { sent, usage, closed, heard, asked })
    }
}

impl Watched for Walk<'_> {
    fn read(&mut self) -> Result<Reading, RaceError> {
        Ok(self.bench.meter().read()?)
    }

    fn handled(&mut self) -> Result<Option<[u64; 4]>, RaceError> {
        let Walk { plan, wire, arm, generator, .. } = self;
        plan.counts.then(|| Ok(State::read(wire, arm, generator)?.progress())).transpose()
    }

    fn wait(&mut self, time: Duration) -> Result<(), RaceError> {
        thread::sleep(time);
        Ok(())
    }
}

/// Starts the arm of `plan` and books its time and that of its receive stack. What a program of others leaves in its
/// namespace is removed behind it.
pub(crate) fn start_arm(bench: &Bench, plan: &TrialPlan<'_>) -> Result<ChildProcess, RaceError> {
    let (namespace, _) = bench.sut();
    bench.renew_neighbours()?;
    let others = cpumap_threads();
    let limit_mbit = plan.sending.traffic.fanout().and_then(|plan| plan.fanout.limit_mbit);
    bench.limit(limit_mbit.filter(|_| !plan.is_unlimited))?;
    let leftovers = plan.peer.map(|_| Leftovers::of(namespace)).transpose()?;
    let mut arm = ChildProcess::start(
        format!("arm `{}`", plan.name),
        "arm",
        namespace,
        &ArmSetup {
            app: plan.app.name.to_owned(),
            arguments: plan.arguments.to_vec(),
            peer: plan.peer,
            counts: plan.counts,
            mode: plan.tables.testpmd_mode(plan.app.name, plan.arguments).map(str::to_owned),
            lane: plan.lane.to_owned(),
            payload_bytes: plan.sending.traffic.payload_bytes(),
            client: plan.traffic().client().cloned(),
            fanout: plan.sending.traffic.fanout().copied(),
            interfaces: wire::interfaces(
                &wiring(plan.tables, plan.peer, plan.lane),
                bench,
                plan.app.race.ports,
            ),
            addresses: bench.sut_addresses(),
            onward: FAR_END,
            times: plan.sending.times.clone(),
            cpu: bench.placement().arm_cpu,
            plant: plan.plant,
            trace: plan.trace.clone(),
        },
    )?;
    if let Some(leftovers) = leftovers {
        arm.remove(leftovers);
    }
    // What the keeper of a program of others does for it, such as to read what it prints, is no work of the arm's.
    let keeper = if plan.peer.is_some() { Owner::Lab } else { Owner::Arm(plan.arm) };
    bench.meter().classify(arm.pid(), keeper)?;
    bench.meter().classify_all(&arm.ready.processes, Owner::Arm(plan.arm))?;
    bench.meter().claim_cpumap_threads(&others, Owner::Arm(plan.arm))?;
    bench.claim_napi_threads(plan.arm)?;
    switch_once(bench.placement().arm_cpu)?;
    Ok(arm)
}

/// Takes a turn on `cpu`. The meter books a task as what it is from its next switch on, and one
/// that polls has none of its own accord.
pub(super) fn switch_once(cpu: usize) -> Result<(), RaceError> {
    let turn = thread::spawn(move || pin_to_cpu(cpu));
    Ok(turn.join().expect("pinning does not panic")?)
}

/// The segment that offers `pps` for `length`, without its time.
pub(crate) fn schedule(
    plan: &TrialPlan<'_>,
    pps: u64,
    length: Duration,
    segment: u8,
) -> SegmentPlan {
    let pps = pps.max(1);
    let most = u64::from(plan.burst.max(1));
    let burst = match plan.app.race.counted {
        Counted::Replies | Counted::Answered => pps.div_ceil(ECHO_BURSTS_PER_S_MAX).min(most),
        _ => most,
    };
    let interval_ns = (burst * 1_000_000_000 / pps).max(1);
    let bursts = (length.as_nanos() as u64 / interval_ns).max(1);
    SegmentPlan {
        segment,
        t0_ns: 0,
        frames: u32::try_from(plan.sending.timetable.frames(bursts * burst)).unwrap_or(u32::MAX),
        interval_ns,
        burst: u32::try_from(burst).unwrap_or(u32::MAX),
        entry: 0,
    }
}

/// What the arm reports of itself, when it has handled all orders before this one.
pub(super) fn report(arm: &mut ChildProcess) -> Result<ArmReport, RaceError> {
    arm.order(&Order::Report)?;
    match arm.reply(PATIENCE)? {
        Reply::Report(report) => Ok(*report),
        _ => Err(arm.failed("it answered out of turn")),
    }
}

/// Round trips, or ways, of a probe that sees those alone that end: with the others, by the ledger.
fn with_missing(trips: &RoundTrips, ledger: &Ledger) -> RoundTrips {
    let mut trips = trips.clone();
    trips.miss(ledger.missing_beside(trips.n()));
    trips
}

/// The replies, as an arm's own sink would report them.
pub(super) fn seen_by_replies(segment: u8, replied: &Replied) -> SegmentSeen {
    SegmentSeen {
        segment,
        delivered: replied.distinct,
        duplicates: replied.duplicates,
        reordered: replied.reordered,
        foreign: replied.foreign,
        first_ns: replied.first_ns,
        last_ns: replied.last_ns,
        ..SegmentSeen::default()
    }
}

/// The same of what was forwarded.
pub(super) fn seen_by_arrivals(segment: u8, arrived: &Arrived) -> SegmentSeen {
    SegmentSeen {
        segment,
        delivered: arrived.distinct,
        duplicates: arrived.duplicates,
        reordered: arrived.reordered,
        foreign: arrived.foreign,
        first_ns: arrived.first_ns,
        last_ns: arrived.last_ns,
        ..SegmentSeen::default()
    }
}

/// The same of copies, of all outputs together.
pub(super) fn seen_by_copies(segment: u8, copied: &Copied) -> SegmentSeen {
    SegmentSeen {
        segment,
        delivered: copied.distinct,
        duplicates: copied.duplicates,
        reordered: copied.reordered,
        foreign: copied.foreign,
        first_ns: copied.first_ns,
        last_ns: copied.last_ns,
        ..SegmentSeen::default()
    }
}

/// The pings of a trial; `None` where none are wanted.
pub(super) fn ping_order(plan: &TrialPlan<'_>, echo: &PingPlan) -> Option<PingOrder> {
    let TrafficPlan::Ping { payload_bytes, .. } = plan.sending.traffic else { return None };
    (echo.pings > 0).then_some(PingOrder {
        destination: ECHO,
        pings: echo.pings,
        interval_us: echo.ping_interval_us,
        payload_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn what_keeps_a_rate_from_passing_is_known_apart() {
        let outcome = |delivered: u64, achieved_pps: f64, is_late: bool| {
            let mut segment = report::example().segments.remove(0);
            segment.ledger = Ledger { offered: 100, delivered, ..Ledger::default() };
            (segment.generator.asked_pps, segment.generator.achieved_pps) = (100.0, achieved_pps);
            segment.invalid = is_late.then(|| "it was late".to_owned()).into_iter().collect();
            let StepOutcome { passed, is_limited, is_disturbed } = of(&segment, 0.01);
            [passed, is_limited, is_disturbed]
        };
        assert_eq!(outcome(99, 99.0, false), [true, false, false]);
        assert_eq!(outcome(98, 99.0, false), [false, false, false]);
        // Late, so that it is asked again; if that is of no use, the generator is the limit.
        assert_eq!(outcome(99, 98.0, true), [false, true, true]);
        assert_eq!(outcome(98, 98.0, true), [false, false, true]);
        // What passed although something disturbed it has passed.
        assert_eq!(outcome(100, 100.0, true), [true, false, true]);
    }
}
