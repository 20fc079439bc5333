//! What every lane must do, what a lane of Ethernet frames must do beside, and time as a given value.

use crate::{Bell, Burst, CapsReport, Counters, LaneError, PortId};
use serde::{Deserialize, Serialize};
use std::{os::fd::BorrowedFd, time::Duration};

/// A source of nanoseconds. The engine owns the only real one.
pub trait Clock {
    /// Nanoseconds since the epoch of [`Clock::domain`]; never decreases.
    fn now_ns(&self) -> u64;
    /// Which epoch the nanoseconds count from.
    fn domain(&self) -> ClockDomain;
}

/// What a time stamp counts from. Stamps of different domains are never subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockDomain {
    /// CLOCK_MONOTONIC, which `bpf_ktime_get_ns` reads as well.
    Monotonic,
    /// Nanoseconds since 1970 UTC, as capture files carry them.
    Unix,
    /// The simulated clock of a `sim` lane.
    Virtual,
}

/// Why [`Lane::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something may be waiting, a transmit queue may have drained, or the bell rings.
    Ready,
    /// The time was up.
    Timeout,
}

/// All ports of one worker on one kind of lane. A lane is used by one thread and shares nothing.
/// What it carries is the business of the trait on top of this one.
///
/// # Errors
/// A method fails only for what ends the lane (interface gone, unreadable input). A frame, datagram
/// or connection that fails is counted or closed.
pub trait Lane {
    /// The lane's name in specs and results.
    fn name(&self) -> &'static str;

    /// How many ports there are now.
    fn ports(&self) -> usize;

    /// The id of the `at`th of them, `at` below [`ports`](Self::ports). Where no port comes or goes, that
    /// is its number.
    fn port(&self, at: usize) -> PortId {
        PortId(at as u32)
    }

    /// What ports have counted that are there no more.
    fn past(&self) -> Counters {
        Counters::default()
    }

    /// The clock that stamps what this lane carries, and that its timers run on.
    fn clock_domain(&self) -> ClockDomain;

    /// From now on a [`wait`](Self::wait) ends when `bell` rings, and none begins while it does. The lane
    /// keeps a clone and has it in what it polls; it leaves the answer to the engine. Called before the
    /// first wait, or never. A lane that leaves this out ends its waits when their time is up.
    fn hear(&mut self, _bell: &Bell) {}

    /// Blocks until something may be there on any port, at most for `timeout`. May wake early.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError>;

    /// What is readable as soon as something may be there, behind a [`wait`](Self::wait) of no time that found
    /// nothing: by it one worker waits for two lanes at once. A lane that leaves this out is waited for alone.
    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// When the lane must have its next turn even if nothing arrives (timers of a stack).
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// True when nothing will ever arrive again (end of a file, simulated peers done).
    fn exhausted(&self) -> bool {
        false
    }

    /// What `port` was asked for and what it obtained.
    fn caps(&self, port: PortId) -> &CapsReport;

    /// The counters of `port`, the kernel's drops read afresh. They are read while the lane works, too, and no drop is
    /// taken back: what waits to be sent is none yet (see [`drop_unsent`](Self::drop_unsent)).
    fn counters(&mut self, port: PortId) -> Counters;

    /// Drops what waits to be sent, and counts it under the reason for which it waits. Called when a run has ended, in
    /// front of the last look at the counters: it will not leave any more. A lane that keeps nothing leaves this out.
    fn drop_unsent(&mut self) {}
}

/// A lane of Ethernet frames: a port is one queue of an interface, a file, or a simulated link.
/// A turn, per port: [`receive`](Self::receive) or [`lend`](Self::lend), the app, [`settle`](Self::settle).
pub trait FrameLane: Lane {
    /// Takes what is there on `port` without waiting, up to the burst's capacity; perhaps nothing.
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError>;

    /// Lends up to `frames` free buffers of `port` to be filled: frames of length 0, with
    /// [`HEADROOM_BYTES_MIN`](crate::HEADROOM_BYTES_MIN) in front. What the app leaves at
    /// [`Verdict::Drop`](crate::Verdict::Drop) returns unsent. Fewer, or none, when buffers are short,
    /// and none while a source's frames wait for room in a transmit queue (see [`settle`](Self::settle)).
    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError>;

    /// Acts on the verdicts of the burst that `port` gave last. Afterwards every frame is free or sent,
    /// and transmissions are on their way to the kernel. Not needed after an empty burst: what a lane
    /// does without frames (take back sent ones, retry a full queue), [`receive`](Self::receive) does.
    ///
    /// A lane may keep frames that it lends and that a full queue refused and offer them again, in order, at each
    /// later call (counted as `tx_retries`): a source then waits for the queue, while a frame that was
    /// received is dropped and counted, so that a lane that forwards never stands still. If the queue
    /// takes nothing for a second, they are counted as refused.
    fn settle(&mut self, port: PortId) -> Result<(), LaneError>;

    /// How many frames that were to leave by `port` have been counted as refused so far
    /// ([`TxRefused`](crate::DropReason::TxRefused)), without a system call: for apps that count what they sent
    /// themselves. A lane that leaves this out has its refusals counted beside that.
    fn refused(&self, _port: PortId) -> u64 {
        0
    }

    /// Goes on without `port`, whose [`LaneError::Gone`] was returned: it receives nothing more, what is sent by
    /// it is counted as refused, no wait ends for it, and the error is not returned again. A lane that leaves this
    /// out returns it again and again.
    fn give_up(&mut self, _port: PortId) {}
}
