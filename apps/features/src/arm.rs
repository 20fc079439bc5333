//! The app as an arm of a race: the run as it is, with a witness that sees each row that the output takes.

use crate::{LimitedRows, RowSinks, Sink, Sinks};
use laneway_flow::{EndedFlow, Record};
use laneway_kinds::{Witness, mix};
use std::sync::{Mutex, PoisonError};

/// The sinks of a run before the eyes of a witness. An arm has one worker.
pub struct WitnessedRows<'a, W> {
    sinks: &'a RowSinks,
    witness: Mutex<Option<W>>,
}

impl<'a, W> WitnessedRows<'a, W> {
    pub(crate) fn new(sinks: &'a RowSinks, witness: W) -> WitnessedRows<'a, W> {
        WitnessedRows { sinks, witness: Mutex::new(Some(witness)) }
    }
}

impl<W: Witness> Sinks for WitnessedRows<'_, W> {
    type Sink = WitnessedSink<W>;

    fn open(&self, worker: usize) -> WitnessedSink<W> {
        let witness = self.witness.lock().unwrap_or_else(PoisonError::into_inner).take();
        let witness = witness.expect("an arm has one worker");
        WitnessedSink { rows: self.sinks.open(worker), witness }
    }
}

/// The rows of an arm's worker.
pub struct WitnessedSink<W> {
    rows: LimitedRows,
    witness: W,
}

impl<W: Witness> Sink for WitnessedSink<W> {
    #[inline]
    fn take(&mut self, seq_no: u64) {
        self.witness.taken(seq_no);
    }

    #[inline]
    fn packet(&mut self, record: &Record) {
        let lost_before = self.rows.lost_frames();
        self.rows.packet(record);
        // A row that was lost is counted as that, and is not delivered.
        if self.rows.lost_frames() == lost_before {
            self.witness.record(record.seq_no, || content(record));
        }
    }

    fn flow(&mut self, ended: &EndedFlow<'_>) {
        // A flow's row cannot be traced back to its frames: races run at level packet.
        self.rows.flow(ended);
    }

    fn tick(&mut self, now_ns: u64) {
        self.witness.tick();
        self.rows.tick(now_ns);
    }

    fn take_time(&mut self) {
        self.rows.take_time();
    }

    fn close(self) {
        self.rows.close();
    }

    fn lost_frames(&self) -> u64 {
        self.rows.lost_frames()
    }

    fn is_done(&self) -> bool {
        self.rows.is_done()
    }
}

/// A mix of what the record says about its frame: everything but its arrival time, sequence
/// number, interface and queue, which differ between arms.
fn content(record: &Record) -> u64 {
    mix(&Record { ts_ns: 0, seq_no: 0, ifindex: 0, rx_queue: 0, ..*record }.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_tells_features_apart_and_not_time_or_place() {
        let one = Record { cap_len: 60, ..Record::default() };
        let moved = Record { ts_ns: 5, seq_no: 6, ifindex: 7, rx_queue: 1, ..one };
        assert_eq!(content(&one), content(&moved));
        assert_ne!(content(&one), content(&Record { cap_len: 61, ..one }));
    }
}
