//! Where the window of a segment ends: what is booked in it is what was spent on the frames that its ledger counts as
//! delivered.
//!
//! ```text
//!   an arm that waits, and is idle     last frame ─ drain ─┤
//!   one that has a queue to work off   last frame ─ drain ─ until it is idle, or handles nothing more ─┤
//!   one that polls                     last frame ─┤
//! ```
//!
//! Both a queue and polling keep an arm busy behind the last frame. Which of them it is, is known from a time when
//! nothing was offered.

use super::{DRAIN, IDLE_LOOK, SETTLE_STEP, SETTLE_STEPS_MAX};
use crate::error::RaceError;
use crate::meter::{Reading, Usage};
use std::time::Duration;

/// An arm that uses more than this share of a CPU while nothing is sent is polling.
const POLLING_MIN: f64 = 0.5;
/// One that waits and uses more than this behind the drain may still work off its queue: it is asked.
const WORKING_MIN: f64 = 0.02;
/// An arm is busy in so many looks before it is polling: a program that has just started has other work, too.
const POLLING_LOOKS: usize = 3;
/// Looks at one that works and handles nothing before it has handled all: a frame may take it longer than a look.
const STILL_LOOKS: usize = 3;

/// How a window ended.
pub(super) struct Closed {
    /// When all was sent, CLOCK_MONOTONIC, ns.
    sent_ns: u64,
    /// What is booked until its end.
    pub(super) at: Reading,
    /// The arm had more to do when it was left.
    pub(super) is_cut: bool,
}

impl Closed {
    /// Whether the load was still offered at this time. An arm may work for seconds behind it.
    pub(super) fn covers(&self, at_ns: u64) -> bool {
        at_ns <= self.sent_ns
    }
}

/// What can be seen of an arm.
pub(super) trait Watched {
    /// Whose the CPU time is, until now.
    fn read(&mut self) -> Result<Reading, RaceError>;

    /// What was handled until now; `None` of an arm that does not say. It costs the arm, and takes so long that frames
    /// are handled meanwhile.
    fn handled(&mut self) -> Result<Option<[u64; 4]>, RaceError>;

    /// Lets time pass.
    fn wait(&mut self, time: Duration) -> Result<(), RaceError>;
}

/// Whether this arm polls, by what it does while nothing is offered to it, and the last look at it.
pub(super) fn polls(
    arm: usize,
    look: Duration,
    watched: &mut impl Watched,
) -> Result<(bool, Usage), RaceError> {
    let mut looks = 0;
    loop {
        let start = watched.read()?;
        watched.wait(look)?;
        let idle = watched.read()?.since(&start);
        looks += 1;
        let is_busy = share(&idle, arm) > POLLING_MIN;
        if !is_busy || looks == POLLING_LOOKS {
            return Ok((is_busy, idle));
        }
    }
}

/// Ends the window of an arm to which all was sent just now, and whose answers were waited for or were not.
pub(super) fn close(
    arm: usize,
    polls: bool,
    is_answered: bool,
    watched: &mut impl Watched,
) -> Result<Closed, RaceError> {
    let sent = watched.read()?;
    let sent_ns = sent.at_ns;
    let (at, is_cut) = match (polls, is_answered) {
        // Polling goes on for ever: of that behind the last frame nothing is a record's.
        (true, _) => {
            watched.wait(DRAIN)?;
            (sent, false)
        }
        (_, true) => {
            watched.wait(DRAIN)?;
            (watched.read()?, false)
        }
        _ => worked_off(arm, watched)?,
    };
    Ok(Closed { sent_ns, at, is_cut })
}

/// Lets what an arm that waits has in its queues be handled. Where its window ends, and whether it had more to do when
/// it was left.
fn worked_off(arm: usize, watched: &mut impl Watched) -> Result<(Reading, bool), RaceError> {
    watched.wait(DRAIN - IDLE_LOOK)?;
    let drained = watched.read()?;
    watched.wait(IDLE_LOOK)?;
    let mut close = watched.read()?;
    if share(&close.since(&drained), arm) <= WORKING_MIN {
        return Ok((close, false));
    }
    // The meter is read second: what is counted as handled is booked by then.
    let mut handled = watched.handled()?;
    close = watched.read()?;
    let mut still = 0;
    for _ in 0..SETTLE_STEPS_MAX {
        watched.wait(SETTLE_STEP)?;
        let handled_now = watched.handled()?;
        let now = watched.read()?;
        let is_working = share(&now.since(&close), arm) > WORKING_MIN;
        still = if handled_now.is_some() && handled_now == handled { still + 1 } else { 0 };
        if still == 0 {
            (close, handled) = (now, handled_now);
        }
        // What it does without handling any is for no frame of the segment.
        if !is_working || still == STILL_LOOKS {
            return Ok((close, false));
        }
    }
    Ok((close, true))
}

/// How much of a CPU the arm used.
fn share(usage: &Usage, arm: usize) -> f64 {
    usage.own_ns(arm) as f64 / usage.window_ns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARM: usize = 3;
    const MS: u64 = 1_000_000;
    /// How long one that is asked what it has handled takes to say so.
    const ASKED: Duration = Duration::from_millis(8);

    /// An arm that spends `each_ns` on each of `queued` frames and is then idle, or does something else all the time.
    struct Simulated {
        now_ns: u64,
        queued: u64,
        each_ns: u64,
        /// Of this share of a CPU; frames are waited for in the rest.
        share: f64,
        /// What it does when all is handled.
        idle_share: f64,
        counts: bool,
    }

    impl Simulated {
        fn with_queue(queued: u64) -> Simulated {
            let (each_ns, share, idle_share) = (MS, 1.0, 0.0);
            Simulated { now_ns: 0, queued, each_ns, share, idle_share, counts: true }
        }

        fn work_ns(&self) -> u64 {
            self.queued * self.each_ns
        }

        fn spent_ns(&self) -> u64 {
            let busy_ns = (self.now_ns as f64 * self.share) as u64;
            let until_ns = (self.work_ns() as f64 / self.share) as u64;
            let idle_ns = self.now_ns.saturating_sub(until_ns) as f64 * self.idle_share;
            busy_ns.min(self.work_ns()) + idle_ns as u64
        }
    }

    impl Watched for Simulated {
        fn read(&mut self) -> Result<Reading, RaceError> {
            Ok(Reading::of_arm(self.now_ns, ARM, self.spent_ns()))
        }

        fn handled(&mut self) -> Result<Option<[u64; 4]>, RaceError> {
            if self.counts {
                self.wait(ASKED)?;
            }
            let spent_ns = ((self.now_ns as f64 * self.share) as u64).min(self.work_ns());
            Ok(self.counts.then_some([spent_ns / self.each_ns, 0, 0, 0]))
        }

        fn wait(&mut self, time: Duration) -> Result<(), RaceError> {
            self.now_ns += time.as_nanos() as u64;
            Ok(())
        }
    }

    /// What is booked of it behind the last frame, when, and whether its window was cut.
    fn booked(arm: &mut Simulated) -> (u64, Duration, bool) {
        let closed = close(ARM, false, false, arm).unwrap();
        let usage = closed.at.since(&Reading::of_arm(0, ARM, 0));
        (usage.own_ns(ARM), Duration::from_nanos(usage.window_ns), closed.is_cut)
    }

    #[test]
    fn an_arm_that_is_idle_has_its_drain() {
        assert_eq!(booked(&mut Simulated::with_queue(5)), (5 * MS, DRAIN, false));
        assert_eq!(booked(&mut Simulated::with_queue(0)), (0, DRAIN, false));
    }

    #[test]
    fn a_queue_that_outlasts_the_drain_is_paid_for() {
        for counts in [true, false] {
            let mut arm = Simulated { counts, ..Simulated::with_queue(237) };
            let (own_ns, _, is_cut) = booked(&mut arm);
            assert_eq!((own_ns, is_cut), (237 * MS, false), "it counts: {counts}");
        }
    }

    #[test]
    fn one_that_waits_between_its_frames_is_paid_for_as_well() {
        let mut arm = Simulated { share: 0.05, ..Simulated::with_queue(10) };
        assert_eq!(booked(&mut arm).0, 10 * MS);
    }

    #[test]
    fn what_is_no_work_on_frames_keeps_no_window_open() {
        let mut arm = Simulated { idle_share: 1.0, ..Simulated::with_queue(0) };
        assert_eq!(booked(&mut arm), (23 * MS, DRAIN + ASKED, false));
    }

    #[test]
    fn a_window_that_was_cut_says_so() {
        let (.., is_cut) = booked(&mut Simulated::with_queue(1_000_000));
        assert!(is_cut);
    }

    #[test]
    fn no_load_is_offered_while_a_queue_is_worked_off() {
        let closed = close(ARM, false, false, &mut Simulated::with_queue(237)).unwrap();
        assert!(closed.at.at_ns >= 237 * MS);
        assert!(closed.covers(0) && !closed.covers(MS));
    }

    #[test]
    fn an_arm_polls_that_is_busy_whenever_nothing_is_offered() {
        let polls = |mut arm: Simulated| polls(ARM, Duration::from_millis(30), &mut arm).unwrap().0;
        assert!(polls(Simulated { idle_share: 1.0, ..Simulated::with_queue(0) }));
        assert!(!polls(Simulated::with_queue(0)));
        // It has just started.
        assert!(!polls(Simulated::with_queue(50)));
    }
}
