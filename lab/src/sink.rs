//! The consumer of the extractor's records: a [`Tally`] that also stamps when a record was taken and
//! when it was handled.

use crate::tally::{SAMPLE, Tally, mix};
use laneway_core::Clock;
use laneway_engine::MonotonicClock;
use laneway_features::Sink;
use laneway_flow::{EndedFlow, Record};

/// The sink.
pub(crate) struct LedgerSink {
    tally: Tally,
    taken_ns: u64,
}

impl LedgerSink {
    /// A sink that ticks off on `tally`.
    pub(crate) fn new(tally: Tally) -> LedgerSink {
        LedgerSink { tally, taken_ns: 0 }
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
        if let Some((plan, seen)) = self.tally.arrived(record.seq_no) {
            let handled_ns = MonotonicClock.now_ns();
            let due_ns = plan.due_ns(record.seq_no as u32);
            seen.sample(due_ns, self.taken_ns, Some(handled_ns), content(record));
        }
    }

    fn flow(&mut self, _ended: &EndedFlow<'_>) {
        // Races run at level packet: a flow row cannot be told back to its frames.
    }

    fn tick(&mut self, _now_ns: u64) {
        self.tally.tick();
    }
}

/// A mix of what the record says about its frame: everything but when, where and as which number it
/// came, which differ between arms.
fn content(record: &Record) -> u64 {
    mix(&Record { ts_ns: 0, seq_no: 0, ifindex: 0, rx_queue: 0, ..*record }.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plant, SegmentPlan};
    use crate::tally::{Seen, Tell};
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
        let mut sink = LedgerSink::new(Tally::new(tells, answers, plant));
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
        assert_eq!(content(&one), content(&moved));
        assert_ne!(content(&one), content(&Record { cap_len: 61, ..one }));
    }

    #[test]
    fn a_planted_double_count_shows_as_duplicates() {
        let records: Vec<Record> = (0..200).map(|n| record(1, n)).collect();
        let segment = &seen(&records, Plant::CountTwice { every: 100 }).segments[0];
        assert_eq!((segment.delivered, segment.duplicates), (200, 2));
    }
}
