//! Time between frames: when the worker ticks, spins and blocks.
//!
//! The caller says what a turn found; this says whether to block and for
//! how long, and adds up where the time went.

use crate::{Ended, PortReport, RunReport, Stop, TICK_NS};
use laneway_core::{Clock, Counters};
use laneway_spec::IdlePolicy;
use std::time::Duration;

/// What waking up may cost: the timer's slack (50 us by default), the scheduler, and a CPU that slept. A
/// worker with frames to send at a time wakes this much earlier and spins for the rest, with any
/// idle policy, which says how it waits for arrivals. Without it a schedule of a frame every 10 us
/// leaves as trains of nine.
pub const WAKE_NS: u64 = 100_000;

/// The longest a worker blocks at a time: a stop flag is seen this much later at most.
pub const BLOCK_NS_MAX: u64 = 10_000_000;

pub(crate) struct Pace<'a, C> {
    pub(crate) clock: &'a C,
    idle: IdlePolicy,
    pub(crate) now_ns: u64,
    pub(crate) started_ns: u64,
    worked_at_ns: u64,
    tick_at_ns: u64,
    pub(crate) turns: u64,
    pub(crate) waits: u64,
    pub(crate) spun_ns: u64,
    pub(crate) blocked_ns: u64,
}

impl<'a, C: Clock> Pace<'a, C> {
    pub(crate) fn new(clock: &'a C, idle: IdlePolicy) -> Self {
        let now_ns = clock.now_ns();
        Pace {
            clock,
            idle,
            now_ns,
            started_ns: now_ns,
            worked_at_ns: now_ns,
            tick_at_ns: now_ns.saturating_add(TICK_NS),
            turns: 0,
            waits: 0,
            spun_ns: 0,
            blocked_ns: 0,
        }
    }

    /// Reads the clock.
    #[inline]
    pub(crate) fn read(&mut self) -> u64 {
        self.now_ns = self.clock.now_ns();
        self.now_ns
    }

    /// True once per tick, which comes no later than the app wants it.
    #[inline]
    pub(crate) fn tick_is_due(&mut self, app_due_ns: Option<u64>) -> bool {
        let at_ns = app_due_ns.map_or(self.tick_at_ns, |due_ns| due_ns.min(self.tick_at_ns));
        let due = self.now_ns >= at_ns;
        if due {
            self.tick_at_ns = self.now_ns.saturating_add(TICK_NS);
        }
        due
    }

    /// Ends a turn that found work.
    #[inline]
    pub(crate) fn worked(&mut self) {
        self.turns += 1;
        self.worked_at_ns = self.now_ns;
    }

    /// Ends a turn that found nothing. Gives how long to block, if that is what the policy says;
    /// at most until the next tick, the stop's deadline and `wake_at_ns`. At `send_at_ns` the app is to
    /// be called on time, so the worker blocks until [`WAKE_NS`] before it and no longer.
    pub(crate) fn found_nothing(
        &mut self,
        stop: &Stop,
        wake_at_ns: Option<u64>,
        send_at_ns: Option<u64>,
    ) -> Option<Duration> {
        self.turns += 1;
        let turn_began_ns = self.now_ns;
        self.spun_ns += self.read() - turn_began_ns;
        let spins = match self.idle {
            IdlePolicy::Spin => true,
            IdlePolicy::SpinThenBlock(spin) => {
                u128::from(self.now_ns - self.worked_at_ns) < spin.as_nanos()
            }
            IdlePolicy::Block => false,
        };
        let send_at_ns = send_at_ns.map(|at_ns| at_ns.saturating_sub(WAKE_NS));
        let until_ns = [Some(self.tick_at_ns), stop.deadline_ns(), wake_at_ns, send_at_ns];
        let until_ns = until_ns.into_iter().flatten().min().unwrap_or(u64::MAX);
        let block_ns = until_ns.saturating_sub(self.now_ns).min(BLOCK_NS_MAX);
        if spins || block_ns == 0 {
            std::hint::spin_loop();
            return None;
        }
        Some(Duration::from_nanos(block_ns))
    }

    /// The worker blocked from the last reading until now.
    pub(crate) fn blocked(&mut self) {
        let blocked_at_ns = self.now_ns;
        self.waits += 1;
        self.blocked_ns += self.read() - blocked_at_ns;
    }

    /// What the run was up to now.
    pub(crate) fn report(
        &self,
        lane: &str,
        ended: Ended,
        (ports, past): (Vec<PortReport>, Counters),
        app: &Counters,
    ) -> RunReport {
        RunReport {
            lane: lane.to_owned(),
            ended,
            ports,
            past,
            app: app.clone(),
            clock: self.clock.domain(),
            started_ns: self.started_ns,
            ended_ns: self.now_ns,
            turns: self.turns,
            waits: self.waits,
            spun_ns: self.spun_ns,
            blocked_ns: self.blocked_ns,
        }
    }
}
