//! What every app does, and what one does that sees Ethernet frames.

use crate::{Burst, Counters, PortId};

/// What the engine knows when it calls an app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Now, in the lane's clock domain, read once per burst after the lane handed it over.
    pub now_ns: u64,
}

/// An application. What it sees is the business of the trait on top of this one.
///
/// Static dispatch: the engine is compiled once per lane and app. Per frame an app allocates, locks
/// and logs nothing. Each shape has an `on_tick`, called about every 10 ms, with or without traffic, and
/// behind every [`on_bell`](Self::on_bell).
pub trait App {
    /// The worker's [`Bell`](crate::Bell) was rung: at least once behind the last ring, at once when the
    /// worker waited, else in its next turn. The shape's `on_tick` follows: there the app may send.
    fn on_bell(&mut self, _turn: Turn) {}

    /// Nothing more will arrive: finish what is open (flows, files).
    fn on_stop(&mut self, _turn: Turn) {}

    /// True when the app wants to end the run (its output is gone, its limit is reached).
    fn wants_stop(&self) -> bool {
        false
    }

    /// When the app wants its tick at the latest, in the lane's clock domain. Behind that tick it names
    /// a later time or none.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// What the app counted.
    fn counters(&self) -> &Counters;
}

/// What an app that was asked to fill a burst wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// This app sends nothing on its own; do not ask again.
    Never,
    /// Ask again as soon as possible.
    Again,
    /// Nothing to send before this time, in the lane's clock domain.
    At(u64),
    /// All is sent; do not ask again.
    Done,
}

/// An application over frames; the [crate's documentation](crate) has one whole.
pub trait FrameApp: App {
    /// Looks at what arrived on `port`; edits in place, sets a verdict per frame (default: drop).
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn);

    /// Fills free frames of `port` and sets their verdicts. Frames left at `Drop` return unsent.
    fn fill(&mut self, _port: PortId, _burst: &mut Burst, _turn: Turn) -> Fill {
        Fill::Never
    }

    /// Time has passed.
    fn on_tick(&mut self, _turn: Turn) {}
}
