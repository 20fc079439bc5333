//! Do frames wait because the worker does not keep up? What D1 and D9 take for queueing.
//!
//! What a poll returns says how long frames can have waited. One that returns fewer than it asked for leaves its queue
//! empty, so what the next one returns arrived after it. A full poll says only that there was no room to spare at that
//! moment: a generator that sends 32 frames at a time fills a burst of 32 with each arrival, although nothing waits,
//! and the next poll finds the queue empty. Counting full polls therefore counts habits of senders. What a worker that
//! keeps up cannot produce are full polls *one after the other*: whatever spare time it has shows as a poll that found
//! room, because an empty poll takes less time than anything else it does.
//!
//! A streak of full polls has two explanations. Either all its frames were there at its beginning: one batch, served at
//! once and as fast as can be. Or they kept coming at least as fast as they were taken, as long as the streak lasts. By
//! Little's law the frames waiting are the arrival rate times the time they wait, and in the second case neither is
//! bounded by anything but the ring. Poll sizes cannot tell the two apart, but batches have sizes: `sendmmsg` takes at
//! most 1,024 messages, a train of segments has 45 frames, generators send 32 to 512 at a time. So only a streak of
//! more than [`STREAK_FRAMES_MIN`] frames is called a backlog (and of [`STREAK_POLLS_MIN`] polls at least, whatever one
//! returns). Then either some frame waited as long as the streak, or the worker was too slow all that time. Beyond
//! [`RING_FRAMES_MAX`] frames, which is more than rings hold, the first is ruled out as well, and the finding is sure.
//!
//! What counts is not how many backlogs there are but their share of the time in which the queue was polled, from the
//! first to the last full poll of each: one burst of traffic is shown but is no finding. Nor is a backlog that is there
//! at the first poll, is no larger than a ring, is gone before half of the time, and never comes again: the ring filled
//! before the program ran. The interval is a bootstrap over [`BLOCKS`] blocks of time, so that one stretch counts for
//! less than the same time in several. Each queue is judged by itself: one that overflows is not excused by others that
//! are empty.
//!
//! Not seen: a backlog behind a driver that returns fewer frames than it is asked for at most; backlogs of traces that
//! do not tell the sizes of polls or what was asked for; where empty polls are recorded without their queue, a backlog
//! of the only queue with packets of a worker that polls more than one. A closed loop whose peers keep just a burst in
//! flight looks like a backlog while the worker has no pause: it is as loaded, but nothing more can be waiting.

use laneway_page::number::nouns;

use crate::blocks::{BLOCKS, ratio_interval};
use crate::points::{Polls, Queue, STREAK_FRAMES_MIN, STREAK_POLLS_MIN, Streak};
use crate::result::{Confidence, Mark};

use super::{Case, percent};

/// Share of the time of a queue above which its backlogs are a finding.
const BACKLOG_SHARE: f64 = 0.05;
/// More frames than rings hold: these were not there when the streak began.
const RING_FRAMES_MAX: u64 = 8_192;

/// Backlogs of one queue.
#[derive(Debug, Clone)]
pub(super) struct Backlog {
    pub(super) thread: u32,
    worker: String,
    queue: Queue,
    /// Share of the time in which the queue was polled, with its 95 % interval.
    pub(super) share: f64,
    pub(super) interval: Option<(f64, f64)>,
    polled_ns: u64,
    sum: Streak,
    longest: Streak,
    is_start: bool,
    pub(super) marks: Vec<Mark>,
}

/// The queue with the largest share of its time in backlogs, `None` if there is none anywhere.
pub(super) fn worst(case: &Case<'_>) -> Option<Backlog> {
    let mut worst: Option<Backlog> = None;
    for (thread, state) in (0u32..).zip(&case.model.states) {
        for row in &state.points.polls {
            let Some(found) = of_queue(case, thread, row) else { continue };
            let surest = (found.is_found(), found.share);
            if worst.as_ref().is_none_or(|other| surest > (other.is_found(), other.share)) {
                worst = Some(found);
            }
        }
    }
    worst
}

fn of_queue(case: &Case<'_>, thread: u32, row: &Polls) -> Option<Backlog> {
    let queue = row.queue?;
    let polled_ns = row.last_ns.saturating_sub(row.first_ns);
    row.streaks().next()?;
    let mut sum = Streak::default();
    let mut held = vec![0.0; BLOCKS];
    let block_ns = (polled_ns as f64 / BLOCKS as f64).max(1.0);
    for streak in row.streaks() {
        sum.add(streak);
        // Several that were added up fill their stretch evenly.
        let (from, until) = (streak.from_ns - row.first_ns, streak.until_ns - row.first_ns);
        let density = streak.held_ns as f64 / ((until - from) as f64).max(1.0);
        for (at, held) in held.iter_mut().enumerate() {
            let begin = (from as f64).max(at as f64 * block_ns);
            let end = (until as f64).min((at + 1) as f64 * block_ns);
            *held += density * (end - begin).max(0.0);
        }
    }
    let marks = row.streaks().map(|streak| Mark {
        at_ns: case.model.since(streak.from_ns),
        length_ns: streak.until_ns - streak.from_ns,
        thread: Some(thread),
        label: "backlog".to_owned(),
    });
    Some(Backlog {
        thread,
        worker: case.model.states[thread as usize].thread.name.clone(),
        queue,
        share: sum.held_ns as f64 / polled_ns.max(1) as f64,
        interval: ratio_interval(&held, &[block_ns; BLOCKS], case.seed ^ 9),
        polled_ns,
        sum,
        longest: row.longest,
        is_start: sum.count == 1
            && sum.from_ns == row.first_ns
            && sum.frames <= RING_FRAMES_MAX
            && sum.held_ns < polled_ns / 2,
        marks: marks.take(crate::result::MARKS_MAX).collect(),
    })
}

impl Backlog {
    /// Is it more than an episode?
    pub(super) fn is_found(&self) -> bool {
        !self.is_start && self.interval.is_some_and(|(low, _)| low > BACKLOG_SHARE)
    }

    pub(super) fn confidence(&self) -> Confidence {
        if self.longest.frames > RING_FRAMES_MAX { Confidence::High } else { Confidence::Medium }
    }

    /// What was counted, as evidence that can be checked.
    pub(super) fn words(&self) -> String {
        let Self { sum, longest, .. } = self;
        format!(
            "{} was behind on port {} queue {} {} {} for {:.3} of {:.3} ms ({}): {} full polls one after the other, {} frames; up to {} frames in {:.3} ms",
            self.worker,
            self.queue.0,
            self.queue.1,
            sum.count,
            nouns(sum.count, "time"),
            sum.held_ns as f64 / 1e6,
            self.polled_ns as f64 / 1e6,
            percent(self.share),
            sum.polls,
            sum.frames,
            longest.frames,
            longest.held_ns as f64 / 1e6,
        )
    }
}

/// What full polls mean where they are no backlog: the most in a row of any queue.
pub(super) fn drained(case: &Case<'_>) -> Option<String> {
    let rows = case.model.states.iter().flat_map(|state| &state.points.polls);
    let longest =
        rows.map(|row| row.longest).max_by_key(|streak| (streak.frames, streak.held_ns))?;
    if longest.polls == 0 {
        return None;
    }
    let (full, bursts) = case.full();
    Some(format!(
        "{full} of {bursts} {} were full, but at most {} in a row ({} frames in {:.3} ms) before the queue was empty again",
        nouns(bursts, "burst"),
        longest.polls,
        longest.frames,
        longest.held_ns as f64 / 1e6,
    ))
}

/// The rule, for a figure.
pub(super) fn rule() -> String {
    format!(
        "more than {STREAK_FRAMES_MIN} frames in {STREAK_POLLS_MIN} full polls or more with no other between, above {} of the time",
        percent(BACKLOG_SHARE)
    )
}
