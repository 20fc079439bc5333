//! The consumer of an arm's records: proves frame by frame what arrived, and when.
//!
//! It lives in the arm's worker and is told of each segment before its first frame is due. Every
//! record costs one look at a bitmap; every [`SAMPLE`]th frame number is also stamped and its
//! features are mixed into a checksum, so that arms which delivered the same frames can be seen to
//! have delivered the same features. All arms run the same sink, so its cost is in every arm's
//! figure alike and pulls ratios towards 1.

use crate::plan::{Plant, SegmentPlan, SegmentSeen};
use crate::traffic::split_number;
use laneway_core::Clock;
use laneway_engine::MonotonicClock;
use laneway_features::Sink;
use laneway_flow::{EndedFlow, Record};
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc::{Receiver, Sender};

/// One frame in so many is stamped. A power of two.
pub(crate) const SAMPLE: u32 = 8;

/// What the arm's control thread tells the sink; looked at on every tick.
#[derive(Clone, Debug)]
pub(crate) enum Tell {
    /// This segment is coming.
    Segment(SegmentPlan),
    /// Answer with what was seen so far.
    Report,
}

/// What the sink saw of all segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// In order of segment.
    pub segments: Vec<SegmentSeen>,
    /// Records of frames that no announced segment sent.
    pub foreign: u64,
}

/// The sink.
pub(crate) struct LedgerSink {
    tells: Receiver<Tell>,
    answers: Sender<Seen>,
    segments: Vec<Open>,
    foreign: u64,
    plant: Plant,
    taken_ns: u64,
    records: u64,
    spun_cpu_ns: u64,
}

/// A segment under way.
struct Open {
    plan: SegmentPlan,
    /// One bit per frame number.
    arrived: Vec<u64>,
    next: u32,
    seen: SegmentSeen,
}

impl LedgerSink {
    /// A sink that listens to `tells` and answers on `answers`; `plant` is the fault it plays.
    pub(crate) fn new(tells: Receiver<Tell>, answers: Sender<Seen>, plant: Plant) -> LedgerSink {
        LedgerSink {
            tells,
            answers,
            segments: Vec::new(),
            foreign: 0,
            plant,
            taken_ns: 0,
            records: 0,
            spun_cpu_ns: thread_cpu_ns(),
        }
    }

    fn arrived(&mut self, record: &Record) {
        let (segment, number) = split_number(record.seq_no);
        let index = usize::from(segment).checked_sub(1);
        let Some(open) = index.and_then(|index| self.segments.get_mut(index)) else {
            self.foreign += 1;
            return;
        };
        let sent = number < open.plan.frames;
        let Some(word) = open.arrived.get_mut(number as usize / 64).filter(|_| sent) else {
            open.seen.foreign += 1;
            return;
        };
        let bit = 1 << (number % 64);
        if *word & bit != 0 {
            open.seen.duplicates += 1;
            return;
        }
        *word |= bit;
        open.seen.delivered += 1;
        if number < open.next {
            open.seen.reordered += 1;
        } else {
            open.next = number + 1;
        }
        if number.is_multiple_of(SAMPLE) {
            open.seen.sample(&open.plan, record, self.taken_ns);
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
    fn sample(&mut self, plan: &SegmentPlan, record: &Record, taken_ns: u64) {
        let handled_ns = MonotonicClock.now_ns();
        if self.first_ns == 0 {
            self.first_ns = handled_ns;
        }
        self.last_ns = handled_ns;
        self.samples += 1;
        self.checksum = self.checksum.wrapping_add(mix(record));
        let due_ns = plan.due_ns(record.seq_no as u32);
        self.wire_to_app.record(taken_ns.saturating_sub(due_ns));
        self.app_only.record(handled_ns.saturating_sub(taken_ns));
    }
}

impl Sink for LedgerSink {
    #[inline]
    fn take(&mut self, seq_no: u64) {
        if (seq_no as u32).is_multiple_of(SAMPLE) {
            self.taken_ns = MonotonicClock.now_ns();
        }
    }

    fn packet(&mut self, record: &Record) {
        self.arrived(record);
        if let Plant::CountTwice { every } = self.plant {
            self.records += 1;
            if self.records.is_multiple_of(every.max(1)) {
                self.arrived(record);
            }
        }
    }

    fn flow(&mut self, _ended: &EndedFlow<'_>) {
        // Races run at level packet: a flow row cannot be told back to its frames.
    }

    fn tick(&mut self, _now_ns: u64) {
        if let Plant::Slow { share } = self.plant {
            self.slow_down(share);
        }
        while let Ok(tell) = self.tells.try_recv() {
            match tell {
                Tell::Segment(plan) => self.segments.push(Open {
                    plan,
                    arrived: vec![0; (plan.frames as usize).div_ceil(64)],
                    next: 0,
                    seen: SegmentSeen { segment: plan.segment, ..SegmentSeen::default() },
                }),
                Tell::Report => {
                    let segments = self.segments.iter().map(|open| open.seen.clone()).collect();
                    // Nobody listens any more when the arm is ending.
                    let _ = self.answers.send(Seen { segments, foreign: self.foreign });
                }
            }
        }
    }
}

/// A mix of what the record says about its frame: everything but when, where and as which number it
/// came, which differ between arms.
fn mix(record: &Record) -> u64 {
    let features = Record { ts_ns: 0, seq_no: 0, ifindex: 0, rx_queue: 0, ..*record }.to_bytes();
    features.chunks(8).fold(0x9e37_79b9_7f4a_7c15, |hash: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        // The multiplier is that of FNV-1a; the rotation brings the high bits back down.
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const PLAN: SegmentPlan =
        SegmentPlan { segment: 1, t0_ns: 1_000, frames: 200, interval_ns: 100, burst: 1 };

    fn record(segment: u64, number: u64) -> Record {
        Record { seq_no: segment << 32 | number, ..Record::default() }
    }

    /// What a sink that was told of [`PLAN`] sees of `records`.
    fn seen(records: &[Record], plant: Plant) -> Seen {
        let (tell, tells) = mpsc::channel();
        let (answers, answer) = mpsc::channel();
        let mut sink = LedgerSink::new(tells, answers, plant);
        tell.send(Tell::Segment(PLAN)).unwrap();
        sink.tick(0);
        for record in records {
            sink.take(record.seq_no);
            sink.packet(record);
        }
        tell.send(Tell::Report).unwrap();
        sink.tick(0);
        answer.recv().unwrap()
    }

    #[test]
    fn each_frame_counts_once_and_the_rest_is_named() {
        let came = [0, 1, 3, 2, 3, 199, 200].map(|n| record(1, n));
        let strangers = [record(0, 0), record(2, 5)];
        let seen = seen(&[&came[..], &strangers[..]].concat(), Plant::None);
        let segment = &seen.segments[0];
        assert_eq!((segment.delivered, segment.duplicates, segment.reordered), (5, 1, 1));
        assert_eq!((segment.foreign, seen.foreign), (1, 2));
    }

    #[test]
    fn sampled_frames_are_stamped_and_mixed_into_the_checksum() {
        let numbers = 0..200;
        let segment =
            &seen(&numbers.map(|n| record(1, n)).collect::<Vec<_>>(), Plant::None).segments[0];
        assert_eq!((segment.samples, segment.wire_to_app.n(), segment.app_only.n()), (25, 25, 25));
        assert!(segment.first_ns > 0 && segment.last_ns >= segment.first_ns);
    }

    #[test]
    fn the_checksum_tells_features_apart_and_not_time_or_place() {
        let one = Record { cap_len: 60, ..Record::default() };
        let moved = Record { ts_ns: 5, seq_no: 6, ifindex: 7, rx_queue: 1, ..one };
        assert_eq!(mix(&one), mix(&moved));
        assert_ne!(mix(&one), mix(&Record { cap_len: 61, ..one }));
    }

    #[test]
    fn a_planted_double_count_shows_as_duplicates() {
        let records: Vec<Record> = (0..200).map(|n| record(1, n)).collect();
        let segment = &seen(&records, Plant::CountTwice { every: 100 }).segments[0];
        assert_eq!((segment.delivered, segment.duplicates), (200, 2));
    }

    #[test]
    fn a_planted_slow_down_burns_processor_time() {
        let mut sink = {
            let (_, tells) = mpsc::channel();
            let (answers, _) = mpsc::channel();
            LedgerSink::new(tells, answers, Plant::Slow { share: 1.0 })
        };
        let start_ns = thread_cpu_ns();
        while thread_cpu_ns() < start_ns + 1_000_000 {}
        let worked_ns = thread_cpu_ns() - start_ns;
        sink.tick(0);
        assert!(thread_cpu_ns() - start_ns >= worked_ns * 2 - worked_ns / 10);
    }
}
