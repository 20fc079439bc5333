//! Proof, frame by frame, of what arrived, and when: the part that all sinks of an arm share.
//!
//! It lives in the arm's worker and learns of each segment before its first frame is due. Every
//! frame costs one look at a bitmap; every [`SAMPLE`]th frame number is also stamped and what is
//! known of it is mixed into a checksum, so that arms which delivered the same frames can be seen
//! to have delivered the same content. All arms run the same tally, so its cost is in every arm's
//! figure alike and pulls ratios towards 1.

use crate::segment::{PROBES_MAX, Plant, SegmentPlan, SegmentSeen};
use crate::timetable::Timetable;
use crate::traffic::split_number;
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc::{Receiver, Sender};

/// One frame in so many is stamped. A power of two.
pub(crate) const SAMPLE: u32 = 8;

/// What the arm's control thread asks of the tally; looked at on every tick.
#[derive(Clone, Debug)]
pub(crate) enum TallyOrder {
    /// This segment is coming.
    Segment(SegmentPlan),
    /// Answer with what was seen so far.
    Report,
}

/// What was seen so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Of the segment that was announced last.
    pub(crate) segment: Option<SegmentSeen>,
    /// Records of all segments, those that arrived twice included: what arrived late of an earlier one shows here.
    pub(crate) records: u64,
    /// Frames that no announced segment sent.
    pub(crate) foreign: u64,
    /// Latencies of wake-up probes, ns.
    pub(crate) wakeups_ns: Vec<u64>,
}

/// The tally.
pub(crate) struct Tally {
    orders: Receiver<TallyOrder>,
    answers: Sender<Seen>,
    /// By number, from 1; a number that comes again takes the place of the one long ago.
    segments: Vec<Ticks>,
    /// Index of the one that was announced last.
    last: usize,
    /// Records of segments whose number was used again.
    retired: u64,
    foreign: u64,
    wakeups_ns: Vec<u64>,
    times: Timetable,
    plant: Plant,
    frames: u64,
    spun_cpu_ns: u64,
}

/// The frames of one segment, ticked off.
pub(crate) struct Ticks {
    plan: SegmentPlan,
    /// One bit per frame number.
    arrived: Vec<u64>,
    next: u32,
    pub(crate) seen: SegmentSeen,
}

impl Ticks {
    /// None of `plan` has come yet.
    pub(crate) fn of(plan: SegmentPlan) -> Ticks {
        Ticks {
            plan,
            arrived: vec![0; (plan.frames as usize).div_ceil(64)],
            next: 0,
            seen: SegmentSeen { segment: plan.segment, ..SegmentSeen::default() },
        }
    }

    /// What it is.
    pub(crate) fn plan(&self) -> &SegmentPlan {
        &self.plan
    }

    /// True for the first arrival of a frame that is to be sampled.
    #[inline]
    pub(crate) fn tick_off(&mut self, number: u32) -> bool {
        let sent = number < self.plan.frames;
        let Some(word) = self.arrived.get_mut(number as usize / 64).filter(|_| sent) else {
            self.seen.foreign += 1;
            return false;
        };
        let bit = 1 << (number % 64);
        if *word & bit != 0 {
            self.seen.duplicates += 1;
            return false;
        }
        *word |= bit;
        self.seen.delivered += 1;
        if number < self.next {
            self.seen.reordered += 1;
        } else {
            self.next = number + 1;
        }
        number.is_multiple_of(SAMPLE)
    }
}

impl Tally {
    /// A tally that listens to `orders` and answers on `answers`; frames are due steadily, and `plant` is the fault it
    /// plays.
    pub(crate) fn new(orders: Receiver<TallyOrder>, answers: Sender<Seen>, plant: Plant) -> Tally {
        Tally {
            orders,
            answers,
            segments: Vec::new(),
            last: 0,
            retired: 0,
            foreign: 0,
            wakeups_ns: Vec::new(),
            times: Timetable::default(),
            plant,
            frames: 0,
            spun_cpu_ns: thread_cpu_ns(),
        }
    }

    /// The same for frames that are due at these times.
    pub(crate) fn by(self, times: Timetable) -> Tally {
        Tally { times, ..self }
    }

    /// Ticks off a frame by its number ([`split_number`]), and by a planted fault once more. Gives when a frame that is
    /// to be sampled was due, CLOCK_MONOTONIC ns, and where to note it.
    #[inline]
    pub(crate) fn arrived(&mut self, seq_no: u64) -> Option<(u64, &mut SegmentSeen)> {
        let is_sample = self.tick_off(seq_no);
        if let Plant::CountTwice { every } = self.plant {
            self.frames += 1;
            if self.frames.is_multiple_of(every.max(1)) {
                self.tick_off(seq_no);
            }
        }
        if !is_sample {
            return None;
        }
        let (segment, number) = split_number(seq_no);
        let ticks = self.segments.get_mut(usize::from(segment) - 1)?;
        Some((self.times.due_ns(&ticks.plan, number), &mut ticks.seen))
    }

    /// True for the first arrival of a frame that is to be sampled.
    #[inline]
    fn tick_off(&mut self, seq_no: u64) -> bool {
        let (segment, number) = split_number(seq_no);
        let index = usize::from(segment).checked_sub(1);
        let Some(ticks) = index.and_then(|index| self.segments.get_mut(index)) else {
            self.foreign += 1;
            return false;
        };
        ticks.tick_off(number)
    }

    /// Counts a frame without a number.
    pub(crate) fn stranger(&mut self) {
        self.foreign += 1;
    }

    /// Notes a wake-up probe.
    pub(crate) fn woke(&mut self, latency_ns: u64) {
        if self.wakeups_ns.len() < PROBES_MAX {
            self.wakeups_ns.push(latency_ns);
        }
    }

    /// Handles the messages that it received, and plays its fault.
    pub(crate) fn tick(&mut self) {
        if let Plant::Slow { share } = self.plant {
            self.slow_down(share);
        }
        while let Ok(order) = self.orders.try_recv() {
            match order {
                TallyOrder::Segment(plan) => self.announce(plan),
                TallyOrder::Report => {
                    // Nothing listens any more when the arm is ending.
                    let _ = self.answers.send(self.seen());
                }
            }
        }
    }

    fn announce(&mut self, plan: SegmentPlan) {
        self.last = usize::from(plan.segment).saturating_sub(1).min(self.segments.len());
        let ticks = Ticks::of(plan);
        match self.segments.get_mut(self.last) {
            Some(place) => {
                self.retired += place.seen.records();
                *place = ticks;
            }
            None => self.segments.push(ticks),
        }
    }

    fn seen(&self) -> Seen {
        let records: u64 = self.segments.iter().map(|ticks| ticks.seen.records()).sum();
        Seen {
            segment: self.segments.get(self.last).map(|ticks| ticks.seen.clone()),
            records: self.retired + records,
            foreign: self.foreign,
            wakeups_ns: self.wakeups_ns.clone(),
        }
    }

    /// Burns the planted share of the processor time that this thread used since last time.
    fn slow_down(&mut self, share: f64) {
        let used_ns = thread_cpu_ns().saturating_sub(self.spun_cpu_ns);
        let until_ns = thread_cpu_ns() + (used_ns as f64 * share) as u64;
        while thread_cpu_ns() < until_ns {
            std::hint::spin_loop();
        }
        self.spun_cpu_ns = thread_cpu_ns();
    }
}

impl SegmentSeen {
    /// Every record of it, those that arrived twice included.
    pub(crate) fn records(&self) -> u64 {
        self.delivered + self.duplicates
    }

    /// Notes a sampled frame: when the app had it in its hands and when it was done with it (if
    /// that is a reading of its own), and a mix of its content.
    pub(crate) fn sample(
        &mut self,
        due_ns: u64,
        taken_ns: u64,
        handled_ns: Option<u64>,
        content: u64,
    ) {
        self.stamp(handled_ns.unwrap_or(taken_ns));
        self.samples += 1;
        self.checksum = self.checksum.wrapping_add(content);
        self.wire_to_app.record(taken_ns.saturating_sub(due_ns));
        if let Some(handled_ns) = handled_ns {
            self.app_only.record(handled_ns.saturating_sub(taken_ns));
        }
    }

    /// Notes when a sampled frame arrived.
    pub(crate) fn stamp(&mut self, at_ns: u64) {
        if self.first_ns == 0 {
            self.first_ns = at_ns;
        }
        self.last_ns = at_ns;
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_planted_slow_down_burns_processor_time() {
        let mut tally = {
            let (_, orders) = mpsc::channel();
            let (answers, _) = mpsc::channel();
            Tally::new(orders, answers, Plant::Slow { share: 1.0 })
        };
        let start_ns = thread_cpu_ns();
        while thread_cpu_ns() < start_ns + 1_000_000 {}
        let worked_ns = thread_cpu_ns() - start_ns;
        tally.tick();
        assert!(thread_cpu_ns() - start_ns >= worked_ns * 2 - worked_ns / 10);
    }

    #[test]
    fn wake_up_probes_are_remembered_up_to_their_limit() {
        let (_, orders) = mpsc::channel();
        let (answers, _) = mpsc::channel();
        let mut tally = Tally::new(orders, answers, Plant::None);
        (0..PROBES_MAX as u64 + 5).for_each(|ns| tally.woke(ns));
        assert_eq!((tally.wakeups_ns.len(), tally.wakeups_ns.last()), (PROBES_MAX, Some(&9_999)));
    }
}
