//! What the loops record for a tracer, if there is one.
//!
//! Each method is one predictable branch without a tracer. With one, an edge between two things is
//! read once: what a method gives back is where the next thing begins. Receive calls that found nothing are
//! counted, not written, and so is what a loop does around them.
//!
//! What it does not record: how many frames of a burst a lane sent, and which were lost. `settle` does not say; the
//! counters of lane and app do, so they are read at each tick (of a traced run only) and the difference is recorded.

use crate::{Control, ports::ports};
use laneway_core::{Counters, DropReason, Lane, PortId};
use laneway_tracer::{PointId, Recorder, points};
use std::collections::{BTreeMap, BTreeSet};

/// The hooks of one run.
pub(crate) struct Probe(Option<Tracing>);

/// The hooks of a run that is traced.
pub(crate) struct Tracing {
    recorder: Recorder,
    /// What is recorded, as it was counted at the last tick.
    recorded: BTreeMap<CountedBy, Counters>,
}

/// Who counts. A trace tells fewer ports apart than there are, so its numbers are none to count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CountedBy {
    App,
    /// Ports that are there no more.
    Closed,
    Port(PortId),
}

impl CountedBy {
    /// Its port in a trace.
    fn number(self) -> u8 {
        match self {
            CountedBy::App | CountedBy::Closed => NO_PORT,
            CountedBy::Port(port) => number(port),
        }
    }
}

/// Stands for no port: what the app dropped, or ports that are gone.
const NO_PORT: u8 = u8::MAX;

/// Reasons for which the way out did not take what was to be sent: it was full. What is refused for what it is, too
/// long or for no port, was not offered.
const REFUSALS: [DropReason; 3] =
    [DropReason::TxRefused, DropReason::TxSocketFull, DropReason::TxInterfaceFull];

impl Probe {
    /// Takes the recorder that waits for this run, if one does.
    pub(crate) fn of(control: &Control) -> Probe {
        let tracing = |recorder| Tracing { recorder, recorded: BTreeMap::new() };
        Probe(control.trace.take().map(tracing))
    }

    /// Where something begins.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.0.as_ref().map_or(0, |tracing| tracing.recorder.now())
    }

    /// `function` ran from `from` until now.
    #[inline]
    pub(crate) fn called(&mut self, function: PointId, from: u64, argument: usize) -> u64 {
        self.0.as_mut().map_or(0, |tracing| tracing.called(function, from, argument))
    }

    /// A receive call found `got` frames.
    #[inline]
    pub(crate) fn received(&mut self, port: PortId, asked: usize, got: usize, from: u64) -> u64 {
        let Some(Tracing { recorder, .. }) = &mut self.0 else { return 0 };
        let now = recorder.now();
        let mut rest = got;
        let first = clipped(rest);
        recorder.received(number(port), clipped(asked), first, from, now);
        rest -= usize::from(first);
        while rest > 0 {
            let more = clipped(rest);
            recorder.received_within(number(port), clipped(asked), more, now);
            rest -= usize::from(more);
        }
        now
    }

    /// A receive call found nothing.
    #[inline]
    pub(crate) fn received_nothing(&mut self, port: PortId, from: u64) {
        if let Some(Tracing { recorder, .. }) = &mut self.0 {
            recorder.received_nothing(Some(number(port)), from);
        }
    }

    /// What a round of a lane that calls the app itself tells, if the run is traced.
    #[inline]
    pub(crate) fn tracing(&mut self) -> Option<&mut Tracing> {
        self.0.as_mut()
    }

    /// At a tick and at the end of a run: tells what the lane sent and was refused since the last time, and what it and
    /// the app, whose counters are `of_app`, lost.
    #[inline]
    pub(crate) fn count(&mut self, lane: &mut dyn Lane, of_app: &Counters) {
        if let Some(tracing) = &mut self.0 {
            tracing.count(lane, of_app);
        }
    }
}

impl Tracing {
    fn count(&mut self, lane: &mut dyn Lane, of_app: &Counters) {
        let open = ports(lane);
        self.forget_closed(&open);
        self.record(CountedBy::App, of_app.clone());
        for port in open {
            self.record(CountedBy::Port(port), lane.counters(port));
        }
        self.record(CountedBy::Closed, lane.past());
    }

    /// What ports have counted that are there no more is the lane's past by now: what is recorded of it must not be
    /// recorded again, and the rest, behind their last tick, must be.
    fn forget_closed(&mut self, open: &[PortId]) {
        let open: BTreeSet<PortId> = open.iter().copied().collect();
        let mut past = self.recorded.remove(&CountedBy::Closed).unwrap_or_default();
        self.recorded.retain(|source, counters| match source {
            CountedBy::Port(port) if !open.contains(port) => {
                past.merge(counters);
                false
            }
            _ => true,
        });
        self.recorded.insert(CountedBy::Closed, past);
    }

    /// Records what was counted since the last time.
    fn record(&mut self, source: CountedBy, now: Counters) {
        let Tracing { recorder, recorded } = self;
        let before = recorded.entry(source).or_default();
        let new = now.since(before);
        *before = now;
        for (reason, packets) in new.nonzero_drops().filter(|(reason, _)| !reason.is_asked_for()) {
            let at = recorder.now();
            recorder.dropped(source.number(), points::drop(reason as u8), packets, at);
        }
        if source == CountedBy::App {
            return;
        }
        let mut sent = new.tx_frames;
        let mut refused: u64 = REFUSALS.iter().map(|&reason| new.drops(reason)).sum();
        let at = recorder.now();
        while sent + refused > 0 {
            let some_sent = sent.min(u64::from(u16::MAX));
            let some_refused = refused.min(u64::from(u16::MAX) - some_sent);
            recorder.sent(source.number(), (some_sent + some_refused) as u16, some_sent as u16, at);
            sent -= some_sent;
            refused -= some_refused;
        }
    }

    /// Where something begins.
    pub(crate) fn now(&self) -> u64 {
        self.recorder.now()
    }

    /// As [`Probe::called`].
    pub(crate) fn called(&mut self, function: PointId, from: u64, argument: usize) -> u64 {
        let now = self.recorder.now();
        self.recorder.called(function, from, now, argument as u32);
        now
    }

    /// The app is about to be called in a round that began at `from`. The round is recorded only now: most
    /// rounds of an idle worker find nothing.
    pub(crate) fn enter_round(&mut self, from: u64) {
        self.recorder.entered(points::SERVE, from);
    }

    /// The end of a round that began at `from`; `entered` once the app was called in it.
    pub(crate) fn served(&mut self, from: u64, entered: bool, served: usize) {
        let Tracing { recorder, .. } = self;
        if !entered && served == 0 {
            return recorder.received_nothing(None, from);
        }
        if !entered {
            recorder.entered(points::SERVE, from);
        }
        let now = recorder.now();
        recorder.received_within(0, 0, clipped(served), now);
        recorder.left(points::SERVE, now);
    }
}

/// A trace knows the ports of a lane of frames by number; of datagrams, those beyond are one.
fn number(port: PortId) -> u8 {
    u8::try_from(port.0).unwrap_or(u8::MAX)
}

fn clipped(frames: usize) -> u16 {
    u16::try_from(frames).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_names_drops_as_the_core_does() {
        let names: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(points::DROPPED, names);
    }
}
