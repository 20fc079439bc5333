//! Where the window of a segment ends: what is booked in it is what was spent on the frames that its ledger counts as
//! delivered.
//!
//! ```text
//!   an arm that waits, and is idle     last frame ─ drain ─┤
//!   one that has a queue to work off   last frame ─ drain ─ until it is idle, or handles nothing more ─┤
//!   one that polls                     last frame ─┤
//! ```
//!
//! A queue, polling, and what a program always does (its timers, its collection of garbage) keep an arm busy behind the
//! last frame. Which of them it is, is known from a time when nothing was offered.

use super::{DRAIN, IDLE_LOOK, SETTLE_STEP, SETTLE_STEPS_MAX};
use crate::error::RaceError;
use crate::meter::{Reading, Usage};
use std::time::Duration;

/// An arm that uses more than this share of a CPU while nothing is sent is polling.
const POLLING_MIN: f64 = 0.5;
/// One that waits and uses so much more behind the drain than while nothing is sent may still work off its queue: it is
/// asked.
const WORKING_MIN: f64 = 0.02;
/// Looks at an arm that is busy though nothing was sent: a program that has just started has other work, too.
const IDLE_LOOKS: usize = 3;
/// Looks at one that works and handles nothing before it has handled all: a frame may take it longer than a look.
const STILL_LOOKS: usize = 3;

/// What an arm does while nothing is offered to it.
#[derive(Clone, Copy, Default)]
pub(super) struct Idling {
    /// The least of a CPU that it was seen to use; what it was seen to use later, where it handled nothing either.
    share: f64,
}

/// Where a window ended.
pub(super) struct Closed {
    /// When all was sent, CLOCK_MONOTONIC, ns.
    sent_ns: u64,
    /// What is booked until then.
    pub(super) at: Reading,
    /// Why there.
    pub(super) end: Ending,
}

/// Why a window ended where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All was handled.
    Handled,
    /// The arm polls: with the schedule.
    Polling,
    /// The same, though the arm turns out to be one that waits.
    Misjudged,
    /// The arm still had frames to handle, so long after the last was sent.
    Cut(Duration),
    /// The arm does not say what it has handled, and was busy for so long that it was hardly with frames: with the
    /// drain.
    InDoubt,
}

impl Closed {
    /// Whether the load was still offered at this time. An arm may work for seconds behind it.
    pub(super) fn covers(&self, at_ns: u64) -> bool {
        at_ns <= self.sent_ns
    }
}

impl Ending {
    /// Why the CPU time of the segment cannot be used.
    pub(super) fn invalid(self) -> Option<String> {
        match self {
            Ending::Handled | Ending::Polling | Ending::InDoubt => None,
            Ending::Misjudged => Some(
                "the arm was busy before anything was sent, as one that polls, and is not any more: its window ended \
                 with the schedule, in front of what it had queued"
                    .to_owned(),
            ),
            Ending::Cut(after) => Some(format!(
                "the arm still had frames to handle {:.1} s after the last was sent, and their CPU time is not booked",
                after.as_secs_f64()
            )),
        }
    }

    /// What is to be known of CPU time that can.
    pub(super) fn note(self) -> Option<&'static str> {
        match self {
            Ending::Handled | Ending::Misjudged | Ending::Cut(_) => None,
            Ending::Polling => Some("the arm polls, and its window ends with the schedule"),
            Ending::InDoubt => Some(
                "the arm does not report what it has handled, and was busy long after the last frame: its window ends \
                 with the drain, and what it may have handled later is not booked",
            ),
        }
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

impl Idling {
    /// Looks at an arm to which nothing is offered, and what was used meanwhile.
    pub(super) fn seen(
        arm: usize,
        look: Duration,
        watched: &mut impl Watched,
    ) -> Result<(Idling, Usage), RaceError> {
        let start = watched.read()?;
        let (mut last, mut least) = (start.clone(), f64::INFINITY);
        for _ in 0..IDLE_LOOKS {
            watched.wait(look)?;
            let now = watched.read()?;
            least = least.min(share(&now.since(&last), arm));
            last = now;
            if least <= WORKING_MIN {
                break;
            }
        }
        Ok((Idling { share: least }, last.since(&start)))
    }

    /// Whether it polls.
    pub(super) fn polls(self) -> bool {
        self.share > POLLING_MIN
    }

    /// Whether it does more than that.
    fn is_exceeded(self, usage: &Usage, arm: usize) -> bool {
        share(usage, arm) > self.share + WORKING_MIN
    }
}

/// Ends the window of an arm to which all was sent just now, and whose answers were waited for or were not. One that
/// was long busy with its start was taken for one that polls: behind the last frame it shows.
pub(super) fn close(
    arm: usize,
    idling: &mut Idling,
    is_answered: bool,
    watched: &mut impl Watched,
) -> Result<Closed, RaceError> {
    let sent = watched.read()?;
    let sent_ns = sent.at_ns;
    let (at, end) = match (idling.polls(), is_answered) {
        // Polling goes on for ever: of that behind the last frame nothing is a record's.
        (true, _) => {
            let [before, drained] = drained(watched)?;
            if !may_poll(&drained.since(&before), arm) {
                // A poller that stood still for a moment goes on.
                watched.wait(SETTLE_STEP)?;
                let longer = watched.read()?.since(&drained);
                if !may_poll(&longer, arm) {
                    idling.share = share(&longer, arm);
                }
            }
            (sent, if idling.polls() { Ending::Polling } else { Ending::Misjudged })
        }
        (_, true) => {
            watched.wait(DRAIN)?;
            (watched.read()?, Ending::Handled)
        }
        _ => worked_off(arm, idling, sent, watched)?,
    };
    Ok(Closed { sent_ns, at, end })
}

/// Lets the drain pass. What is read a look before its end, and then.
fn drained(watched: &mut impl Watched) -> Result<[Reading; 2], RaceError> {
    watched.wait(DRAIN - IDLE_LOOK)?;
    let before = watched.read()?;
    watched.wait(IDLE_LOOK)?;
    Ok([before, watched.read()?])
}

/// Lets what an arm that waits has in its queues be handled. One that is seen to be busy with something else is known
/// by that from then on: it polls, though another program had its CPU when that was looked for, or has more to do
/// behind traffic than before.
fn worked_off(
    arm: usize,
    idling: &mut Idling,
    sent: Reading,
    watched: &mut impl Watched,
) -> Result<(Reading, Ending), RaceError> {
    let [before, mut drained] = drained(watched)?;
    let mut last = before;
    for look in 0..2 {
        if look > 0 {
            // In so short a look a tick of its own is much, and to be asked costs the arm.
            watched.wait(IDLE_LOOK)?;
            drained = watched.read()?;
        }
        if !idling.is_exceeded(&drained.since(&last), arm) {
            return Ok((drained, Ending::Handled));
        }
        last = drained.clone();
    }
    // The meter is read second: what is counted as handled is booked by then.
    let mut handled = watched.handled()?;
    let mut close = watched.read()?;
    let mut still = 0;
    for look in 0..SETTLE_STEPS_MAX {
        watched.wait(SETTLE_STEP)?;
        let handled_now = watched.handled()?;
        let now = watched.read()?;
        let is_working = idling.is_exceeded(&now.since(&close), arm);
        let used = share(&now.since(&last), arm);
        last = now.clone();
        still = if handled_now.is_some() && handled_now == handled { still + 1 } else { 0 };
        if still == 0 {
            (close, handled) = (now, handled_now);
        }
        if !is_working {
            return Ok((close, Ending::Handled));
        }
        let is_last = look + 1 == SETTLE_STEPS_MAX && handled.is_none();
        // What it does without handling any is for no frame of the segment.
        if still == STILL_LOOKS || is_last {
            idling.share = used;
            return Ok(match idling.polls() {
                true => (sent, Ending::Polling),
                false if is_last => (drained, Ending::InDoubt),
                false => (close, Ending::Handled),
            });
        }
    }
    let after = Duration::from_nanos(close.at_ns - sent.at_ns);
    Ok((close, Ending::Cut(after)))
}

/// Whether an arm to which nothing is offered polled meanwhile: where another program had its CPU, that is not known.
fn may_poll(usage: &Usage, arm: usize) -> bool {
    let others_ns = usage.foreign_ns() + usage.of_others(arm);
    share(usage, arm) + others_ns as f64 / usage.window_ns.max(1) as f64 > POLLING_MIN
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
        /// What other programs do all the time.
        foreign_share: f64,
        /// It does nothing before.
        rests_ns: u64,
        /// What it does once, by the end of the drain.
        tick_ns: u64,
        counts: bool,
    }

    impl Simulated {
        fn with_queue(queued: u64) -> Simulated {
            Simulated {
                now_ns: 0,
                queued,
                each_ns: MS,
                share: 1.0,
                idle_share: 0.0,
                foreign_share: 0.0,
                rests_ns: 0,
                tick_ns: 0,
                counts: true,
            }
        }

        fn work_ns(&self) -> u64 {
            self.queued * self.each_ns
        }

        fn spent_ns(&self) -> u64 {
            let ran_ns = self.now_ns.saturating_sub(self.rests_ns);
            let busy_ns = (ran_ns as f64 * self.share) as u64;
            let until_ns = (self.work_ns() as f64 / self.share) as u64;
            let idle_ns = ran_ns.saturating_sub(until_ns) as f64 * self.idle_share;
            let has_ticked = self.now_ns >= DRAIN.as_nanos() as u64;
            busy_ns.min(self.work_ns()) + idle_ns as u64 + u64::from(has_ticked) * self.tick_ns
        }
    }

    impl Watched for Simulated {
        fn read(&mut self) -> Result<Reading, RaceError> {
            let foreign_ns = (self.now_ns as f64 * self.foreign_share) as u64;
            Ok(Reading::of_arm(self.now_ns, ARM, self.spent_ns()).beside(foreign_ns))
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

    /// What is booked behind the last frame of one that is idle while nothing is sent, when, and why until then.
    fn booked(arm: &mut Simulated) -> (u64, Duration, Ending) {
        booked_beside(0.0, arm)
    }

    /// The same of one that uses this share of a CPU while nothing is sent.
    fn booked_beside(share: f64, arm: &mut Simulated) -> (u64, Duration, Ending) {
        let closed = close(ARM, &mut Idling { share }, false, arm).unwrap();
        let usage = closed.at.since(&Reading::of_arm(0, ARM, 0));
        (usage.own_ns(ARM), Duration::from_nanos(usage.window_ns), closed.end)
    }

    #[test]
    fn an_arm_that_is_idle_has_its_drain() {
        assert_eq!(booked(&mut Simulated::with_queue(5)), (5 * MS, DRAIN, Ending::Handled));
        assert_eq!(booked(&mut Simulated::with_queue(0)), (0, DRAIN, Ending::Handled));
    }

    #[test]
    fn a_queue_that_outlasts_the_drain_is_paid_for() {
        for counts in [true, false] {
            let mut arm = Simulated { counts, ..Simulated::with_queue(237) };
            let (own_ns, _, end) = booked(&mut arm);
            assert_eq!((own_ns, end), (237 * MS, Ending::Handled), "it counts: {counts}");
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
        // It polls, and is known by that from now on.
        assert_eq!(booked(&mut arm), (0, Duration::ZERO, Ending::Polling));
    }

    #[test]
    fn what_one_is_seen_to_do_besides_frames_is_known_from_then_on() {
        for (counts, first) in [(true, Ending::Handled), (false, Ending::InDoubt)] {
            let mut idling = Idling::default();
            let arm = || Simulated { idle_share: 0.3, counts, ..Simulated::with_queue(5) };
            let mut end = || close(ARM, &mut idling, false, &mut arm()).unwrap();
            assert_eq!(end().end, first);
            let second = end();
            assert_eq!(second.end, Ending::Handled);
            assert_eq!(second.at.at_ns, DRAIN.as_nanos() as u64, "it counts: {counts}");
        }
    }

    #[test]
    fn a_tick_at_the_end_of_the_drain_has_no_arm_asked() {
        let mut arm = Simulated { tick_ns: 100_000, ..Simulated::with_queue(0) };
        let (own_ns, after, end) = booked(&mut arm);
        assert_eq!((own_ns, after, end), (100_000, DRAIN + IDLE_LOOK, Ending::Handled));
    }

    #[test]
    fn a_window_that_was_cut_says_when() {
        let (.., end) = booked(&mut Simulated::with_queue(1_000_000));
        // A look is a step and a question.
        let steps = (SETTLE_STEP + ASKED) * SETTLE_STEPS_MAX as u32;
        assert_eq!(end, Ending::Cut(DRAIN + IDLE_LOOK + ASKED + steps));
        let why = end.invalid().expect("it cannot be used");
        assert!(why.starts_with("the arm still had frames to handle 3.6 s after"), "{why}");
    }

    /// Timers, or the collection of garbage.
    #[test]
    fn what_a_program_always_does_is_no_work_on_frames() {
        for counts in [true, false] {
            let silent = || Simulated { idle_share: 0.3, counts, ..Simulated::with_queue(0) };
            let (own_ns, after, end) = booked_beside(0.3, &mut silent());
            assert_eq!((own_ns, after, end), (45 * MS / 10, DRAIN, Ending::Handled));
            let mut busy = Simulated { queued: 237, ..silent() };
            let (own_ns, after, end) = booked_beside(0.3, &mut busy);
            assert!(own_ns >= 237 * MS && after < Duration::from_millis(300), "{after:?}");
            assert_eq!((end, end.invalid()), (Ending::Handled, None));
        }
    }

    #[test]
    fn one_that_does_not_say_what_it_handled_and_stays_busy_ends_with_the_drain_in_doubt() {
        let mut arm = Simulated { idle_share: 0.3, counts: false, ..Simulated::with_queue(5) };
        let (own_ns, after, end) = booked(&mut arm);
        assert_eq!((own_ns, after, end), (89 * MS / 10, DRAIN + IDLE_LOOK, Ending::InDoubt));
        assert_eq!(end.invalid(), None);
        assert!(end.note().is_some_and(|note| note.contains("ends with the drain")));
    }

    #[test]
    fn no_load_is_offered_while_a_queue_is_worked_off() {
        let closed =
            close(ARM, &mut Idling::default(), false, &mut Simulated::with_queue(237)).unwrap();
        assert!(closed.at.at_ns >= 237 * MS);
        assert!(closed.covers(0) && !closed.covers(MS));
    }

    #[test]
    fn an_arm_polls_that_is_busy_whenever_nothing_is_offered() {
        let seen = |mut arm: Simulated| Idling::seen(ARM, Duration::from_millis(30), &mut arm);
        let idling = |arm| seen(arm).unwrap().0;
        assert!(idling(Simulated { idle_share: 1.0, ..Simulated::with_queue(0) }).polls());
        assert!(!idling(Simulated::with_queue(0)).polls());
        // It has just started.
        assert!(!idling(Simulated::with_queue(50)).polls());
        let started = idling(Simulated { idle_share: 0.3, ..Simulated::with_queue(20) });
        assert!((started.share - 0.3).abs() < 0.01, "{}", started.share);
    }

    #[test]
    fn one_that_was_long_busy_with_its_start_polls_until_it_is_seen_to_wait() {
        let mut idling = Idling { share: 1.0 };
        let mut end = |mut arm: Simulated| close(ARM, &mut idling, false, &mut arm).unwrap().end;
        let poller = || Simulated { idle_share: 1.0, ..Simulated::with_queue(0) };
        assert_eq!(end(poller()), Ending::Polling);
        assert_eq!(end(Simulated { rests_ns: 16 * MS, ..poller() }), Ending::Polling);
        // Another program has its CPU.
        let foreign_share = 0.7;
        let displaced = Simulated { idle_share: 0.3, foreign_share, ..Simulated::with_queue(0) };
        assert_eq!(end(displaced), Ending::Polling);
        let misjudged = end(Simulated::with_queue(0));
        assert_eq!(misjudged, Ending::Misjudged);
        assert!(misjudged.invalid().is_some());
        assert_eq!(end(Simulated::with_queue(0)), Ending::Handled);
        assert!(!idling.polls());
    }

    #[test]
    fn what_was_used_while_an_arm_was_looked_at_is_of_all_looks() {
        let mut arm = Simulated { idle_share: 1.0, ..Simulated::with_queue(0) };
        let (_, usage) = Idling::seen(ARM, Duration::from_millis(30), &mut arm).unwrap();
        assert_eq!((usage.window_ns, usage.own_ns(ARM)), (90 * MS, 90 * MS));
    }
}
