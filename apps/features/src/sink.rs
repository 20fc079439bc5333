//! Where records and ended flows go: to files ([`crate::output`]), or to the lab's ledger.

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

    /// The run is over: what is kept goes on.
    fn close(self)
    where
        Self: Sized,
    {
    }

    /// True when nothing more can be taken (the output failed or is complete).
    fn is_done(&self) -> bool {
        false
    }
}
