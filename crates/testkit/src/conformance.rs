//! The conformance suite: what every frame lane must do.
//!
//! A lane brings a [`Rig`]; [`conformance!`](crate::conformance) turns the suite into one test per
//! behaviour, and [`run`] runs all of it in one go. A behaviour that the lane cannot show (it
//! cannot transmit, it reads a file) is skipped with its reason, never silently.
//!
//! What the suite assumes beyond the wording of the contract, because an engine does too:
//! * [`settle`](laneway_core::FrameLane::settle) may be called at any time, also after an empty
//!   burst or twice.
//! * `rx_*` is counted on the port that received a frame, `tx_*` on the port it left by.
//! * The knobs `burst`, `idle` and `allow` exist on every frame lane.
//!
//! * When an interface is gone, down (unless the lane lives through that), or unusable, whichever call
//!   finds out fails with [`LaneError::Gone`], and so does [`receive`](laneway_core::FrameLane::receive)
//!   from then on: the engine looks there.
//!
//! Every wait is bounded by a number of turns or of the engine's ticks; no wall-clock time is
//! asserted.

mod account;
mod bench;
mod disturb;
mod leak;
mod open;
mod receive;
mod transmit;
mod workers;

pub use account::*;
pub use disturb::*;
pub use leak::*;
pub use open::*;
pub use receive::*;
pub use transmit::*;
pub use workers::*;

use laneway_core::{Cap, Clock, FrameLane, LaneError, PortId};
use laneway_engine::MonotonicClock;
use laneway_spec::LaneSpec;

/// A lane with two ends: the suite works the near one, the rig the far one.
///
/// A rig removes what it created (namespaces, interfaces, files) when it is dropped, also during a
/// panic, and keeps its interfaces quiet (no IPv6, no ARP): foreign frames are tolerated but
/// make the ledger of an overrun inexact.
pub trait Rig {
    /// The lane under test.
    type Lane: FrameLane;

    /// What may be expected of it.
    fn properties(&self) -> Properties;

    /// Opens the lane with ports `0..ports` in a world without frames in flight. The lane opened
    /// before is gone by then.
    ///
    /// # Errors
    /// What the lane says; the suite checks it.
    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<Self::Lane, LaneError>;

    /// Sends `frames` from the far end of `port`, in order, as fast as it can; returns when all
    /// are on their way. At most [`Properties::inject_frames_max`] at a time, except for an
    /// [`Overload`]. Never called when [`Properties::live`] is false.
    fn inject(&mut self, port: PortId, frames: &[Vec<u8>]);

    /// What the far end of `port` received since the last call, in order. Waits, bounded (some
    /// tens of milliseconds), until there are `expected` frames; may return fewer or more. Frames
    /// that the far end itself sent are left out.
    fn collect(&mut self, port: PortId, expected: usize) -> Vec<Vec<u8>>;

    /// Opens the lane with `frames` waiting on port 0. A rig whose lane reads a file overrides
    /// this; for others the suite opens, then injects.
    ///
    /// # Errors
    /// What the lane says.
    fn open_with(
        &mut self,
        spec: &LaneSpec,
        ports: usize,
        _frames: &[Vec<u8>],
    ) -> Result<Self::Lane, LaneError> {
        self.open(spec, ports)
    }

    /// The clock that stamps the lane's frames. A rig whose lane has no real one overrides this.
    fn clock(&self) -> Box<dyn Clock> {
        Box::new(MonotonicClock)
    }

    /// Does this to the near interface of `port` while the lane is open, and returns, when it has
    /// happened, the name that the lane knows the interface by. The next [`open`](Self::open) finds
    /// an interface that [`Disturbance::Remove`] took away back in its place.
    ///
    /// # Errors
    /// Why the rig cannot do that; behaviours that need it are skipped with this reason.
    fn disturb(&mut self, _port: PortId, _how: Disturbance) -> Result<String, String> {
        Err("the rig has no interface to disturb".to_owned())
    }

    /// Opens the lane on port 0 as a process without any capability, drops it, and says how it was
    /// refused; nothing if it opened.
    ///
    /// # Errors
    /// Why the rig cannot try that, or why the lane needs no privilege.
    fn open_unprivileged(&mut self, _spec: &LaneSpec) -> Result<Option<LaneError>, String> {
        Err("the lane needs no privilege".to_owned())
    }
}

/// What may happen to an interface while a lane is open on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// It is removed for good.
    Remove,
    /// It is set down.
    Down,
    /// It is set up again, and carries frames when the rig returns.
    Up,
    /// It gets another MTU, in bytes without the Ethernet header.
    Mtu(usize),
}

/// What the suite may expect of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// The spec to test, such as `packet:ring`. It must not give `burst`, `idle`, `allow` or
    /// a knob that [`small_pool`](Self::small_pool) and others give: the suite appends those.
    pub spec: &'static str,
    /// Frames sent on a port leave it.
    pub transmits: bool,
    /// How many ports the rig can open, at least 1.
    pub ports_max: usize,
    /// Frames can be injected while the lane is open. False for a lane that reads a file: then all
    /// input is given to [`Rig::open_with`].
    pub live: bool,
    /// Frames that may be injected at once without loss.
    pub inject_frames_max: usize,
    /// The longest frame that passes the link, without the frame check sequence.
    pub frame_bytes_max: usize,
    /// Knobs that make the pool of buffers small (may be empty), and how many buffers of one port
    /// there are then, at most. Many times as many frames are run to show that none leaks.
    pub small_pool: (&'static str, usize),
    /// How to lose frames in the lane's own queues, for lanes that count every such loss.
    pub overload: Option<Overload>,
    /// Something that can be asked for and is not to be had in the rig's world.
    pub impossible: Option<Impossible>,
}

/// More frames than a lane can queue.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// Knobs that make the queue small; may be empty.
    pub knobs: &'static str,
    /// How many frames, injected at once and not received, overrun it.
    pub frames: usize,
}

/// A request that cannot be granted.
#[derive(Clone, Copy, Debug)]
pub struct Impossible {
    /// The knobs that ask for it.
    pub knobs: &'static str,
    /// The capability that will be missing.
    pub cap: Cap,
}

/// Every behaviour once, as arguments for the macro `$with`.
#[doc(hidden)]
#[macro_export]
macro_rules! each_conformance_behaviour {
    ($with:ident $($args:tt)*) => {
        $crate::$with! { $($args)*
            frames_arrive_unchanged_and_in_order
            a_burst_never_exceeds_its_knob
            an_empty_receive_returns_at_once
            wait_is_ready_with_traffic_and_times_out_without
            a_bell_rung_before_a_wait_ends_it
            a_bell_rung_during_a_wait_ends_it
            a_bounced_frame_leaves_byte_for_byte
            edits_in_place_are_what_leaves
            only_frames_with_a_verdict_to_leave_leave
            a_frame_leaves_by_the_port_it_is_sent_to
            a_fanned_out_frame_leaves_by_every_port
            a_port_that_is_not_there_is_counted
            a_frame_longer_than_the_link_is_counted
            gathered_frames_leave_behind_their_heads
            a_gathered_frame_that_cannot_leave_is_counted
            borrowed_frames_are_sent_when_their_verdict_says_so
            lending_survives_a_shortage_of_buffers
            no_buffer_leaks
            counters_match_what_was_seen
            the_ledger_closes_when_the_lane_is_overrun
            a_worker_stops_and_the_lane_opens_again
            an_impossible_capability_is_refused_unless_allowed
            every_port_reports_its_capabilities
            an_unknown_knob_is_refused_with_a_suggestion
            every_idle_policy_is_accepted
            a_burst_outside_its_bounds_is_refused
            a_removed_interface_ends_the_lane
            an_interface_that_goes_down_and_up_loses_no_account
            a_changed_mtu_loses_no_frame_silently
            a_request_to_stop_ends_a_blocked_worker
            a_missing_privilege_is_named
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ({ $rig:expr } $($behaviour:ident)+) => {
        $(
            #[test]
            fn $behaviour() {
                match ($rig)() {
                    Ok(mut rig) => $crate::conformance::$behaviour(&mut rig),
                    Err(reason) => $crate::skip(reason),
                }
            }
        )+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_run {
    ({ $rig:expr } $($behaviour:ident)+) => {
        $( $crate::conformance::$behaviour($rig); )+
    };
}

/// One test per behaviour. Takes an expression that, called without arguments, gives
/// `Result<impl Rig, impl Display>`; an error is the reason to skip. Use it once per module:
///
/// ```ignore
/// mod ring {
///     laneway_testkit::conformance!(|| super::VethRig::new("packet:ring"));
/// }
/// ```
#[macro_export]
macro_rules! conformance {
    ($rig:expr) => {
        $crate::each_conformance_behaviour! { conformance_tests { $rig } }
    };
}

/// Every behaviour in turn; panics at the first that fails.
pub fn run<R: Rig>(rig: &mut R) {
    crate::each_conformance_behaviour! { conformance_run { rig } }
}
