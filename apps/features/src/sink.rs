//! Where records and ended flows go: to files ([`crate::RowSink`]), or to the lab's ledger.

use laneway_core::{Counters, DropReason};
use laneway_flow::{EndedFlow, Record};

/// Takes what the extractor makes. Called per record, so dispatched statically.
pub trait Sink {
    /// A packet's record, at level [`Packet`](crate::Level::Packet).
    fn packet(&mut self, record: &Record);

    /// A flow that has ended, at level [`Flow`](crate::Level::Flow).
    fn flow(&mut self, ended: &EndedFlow<'_>);

    /// The frame (or kernel record) with this number is taken up next: its bytes are in user hands
    /// and nothing has been done with them yet.
    #[inline]
    fn take(&mut self, _seq_no: u64) {}

    /// Time has passed, with or without traffic: at least every 10 ms, and at the end.
    fn tick(&mut self, _now_ns: u64) {}

    /// The lane has ended, so no frame waits behind this sink any more: from now on it may wait
    /// rather than lose rows.
    fn take_time(&mut self) {}

    /// The run is over: what is kept goes on.
    fn close(self)
    where
        Self: Sized,
    {
    }

    /// Frames so far whose rows the sink could not take: of a flow, all its frames.
    fn lost_frames(&self) -> u64 {
        0
    }

    /// True when nothing more can be taken (the output failed or is complete).
    fn is_done(&self) -> bool {
        false
    }
}

/// Moves the frames whose rows the sink lost from those delivered to those dropped. Only this counts
/// under [`DropReason::SinkFull`] in an app's counters.
#[inline]
pub(crate) fn count_lost(counters: &mut Counters, sink: &impl Sink) {
    let more = sink.lost_frames() - counters.drops(DropReason::SinkFull);
    if more > 0 {
        counters.rx_frames -= more;
        counters.drop_many(DropReason::SinkFull, more);
    }
}
