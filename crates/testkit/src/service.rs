//! The conformance suites of the lanes that carry datagrams and streams.
//!
//! A lane brings a [`DatagramRig`] or a [`StreamRig`]; [`datagram_conformance!`](crate::datagram_conformance)
//! and [`stream_conformance!`](crate::stream_conformance) turn a suite into one test per behaviour.
//! A behaviour that a lane or its rig cannot show is skipped with its reason, never silently.
//!
//! ```ignore
//! mod batch {
//!     laneway_testkit::datagram_conformance!(|| super::VethRig::new("socket:batch=32"));
//! }
//! ```
//!
//! A rig's far end runs on the thread of the test, between two turns of the lane, so none of its
//! functions may wait for the lane to do something. A rig removes what it created (namespaces,
//! interfaces, sockets) when it is dropped, also during a panic.
//!
//! Every wait is bounded by a number of turns; no wall-clock time is asserted. The suites know no
//! lane and make no socket.

mod bench;
mod datagram_probe;
pub mod datagrams;
mod live_ports;
mod stream_probe;
pub mod streams;

use datagram_probe::middle;
pub use datagram_probe::{Answer, DatagramProbe, Seen, TickSend};
pub use laneway_engine::MonotonicClock;
pub use stream_probe::{AMPLIFIED_BYTES, Door, Manner, Order, StreamProbe};

use crate::{Impossible, Overload};
use laneway_core::{Bell, Clock, DatagramLane, LaneError, PortId, PortPlan, StreamLane};
use laneway_engine::Stop;
use laneway_random::Random;
use laneway_spec::LaneSpec;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// One wait for traffic that is on its way.
const WAIT: Duration = Duration::from_millis(10);
/// Waits in vain before traffic counts as not coming: 30 s on a real clock, because a busy machine
/// delivers late.
const WAITS_MAX: usize = 3000;
/// Attempts to see what the far end should not have.
const SILENT_TURNS: usize = 3;
/// Ticks after which a worker that waits for a bell gives up.
const TICKS_WITHOUT_BELL_MAX: usize = 3000;
/// Ticks without traffic before a worker is asked to stop.
const TICKS_BEFORE_STOP: usize = 3;
/// Naps of [`WAIT`] until a worker counts as one that never ticks.
const TICK_NAPS_MAX: usize = 3000;

/// Rings the bell of a worker on another thread, once its app has seen ticks without traffic.
fn ring_after_ticks(ticks: &AtomicUsize, bell: &Bell) {
    wait_for_ticks(ticks);
    bell.ring();
}

/// Asks a worker on another thread to stop, once its app has seen ticks without traffic. An app that
/// never ticks is stopped as well: what it counted tells.
fn stop_after_ticks(ticks: &AtomicUsize, stop: &Stop) {
    wait_for_ticks(ticks);
    stop.request();
}

fn wait_for_ticks(ticks: &AtomicUsize) {
    for _ in 0..TICK_NAPS_MAX {
        if ticks.load(Ordering::SeqCst) >= TICKS_BEFORE_STOP {
            break;
        }
        std::thread::sleep(WAIT);
    }
}

/// A datagram lane with two ends: the suite works the near one, the rig the far one.
pub trait DatagramRig {
    /// The lane under test.
    type Lane: DatagramLane;
    /// A clock of the lane's domain.
    type Clock: Clock;

    /// What may be expected of the lane.
    fn properties(&self) -> DatagramProperties;

    /// The clock that the worker reads.
    fn clock(&self) -> Self::Clock;

    /// Opens the lane with ports `0..ports` in a world without datagrams in flight. The lane opened
    /// before is gone by then.
    ///
    /// # Errors
    /// What the lane says; the suite checks it.
    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<Self::Lane, LaneError>;

    /// The address at which the far end reaches `port` of the open lane.
    fn near(&self, port: PortId) -> SocketAddr;

    /// The source of what the lane sends through `port` without being asked from there. Differs from
    /// [`near`](Self::near) where the lane listens at every address, so that another is chosen.
    fn near_unasked(&self, port: PortId) -> SocketAddr {
        self.near(port)
    }

    /// The address that the far end of `port` sends from and receives at.
    fn far(&self, port: PortId) -> SocketAddr;

    /// What a port beside those of [`open`](Self::open) can be, that the far end of port 0 reaches and that
    /// reaches it; the process may then open a thousand of them.
    ///
    /// # Errors
    /// Why the lane has its ports fixed; behaviours that need others are skipped with this reason.
    fn plan(&mut self) -> Result<PortPlan, String> {
        Err("the lane's ports are those that it was opened with".to_owned())
    }

    /// Ports have queues of their own in the kernel: what a plan says of buffers and priority is granted. Where
    /// they have none a priority is refused.
    fn has_queues(&self) -> bool {
        true
    }

    /// Does something where the lane opens its ports.
    fn inside<T>(&mut self, action: impl FnOnce() -> T) -> T {
        action()
    }

    /// Sends one datagram per payload from the far end of port 0 to `near`, as [`send`](Self::send).
    fn send_to(&mut self, near: SocketAddr, payloads: &[&[u8]]) {
        unimplemented_plan(near, payloads.len())
    }

    /// Sends one datagram per payload from the far end of `port`, in order, as fast as it can;
    /// returns when all are on their way. At most [`DatagramProperties::send_max`] at a time, except
    /// for an [`Overload`].
    fn send(&mut self, port: PortId, payloads: &[&[u8]]);

    /// Sends one train from the far end of `port`: `bytes` cut every `segment_bytes`. A far end that
    /// can send no trains sends the datagrams one by one.
    fn send_train(&mut self, port: PortId, bytes: &[u8], segment_bytes: usize) {
        let payloads: Vec<&[u8]> = bytes.chunks(segment_bytes).collect();
        self.send(port, &payloads);
    }

    /// Source and payload of what the far end of `port` received since the last call, in order,
    /// trains cut. Waits, bounded (some milliseconds), until there are `expected` datagrams; may
    /// return fewer or more.
    fn collect(&mut self, port: PortId, expected: usize) -> Vec<(SocketAddr, Vec<u8>)>;
}

/// A rig that has plans can send to their ports.
fn unimplemented_plan(near: SocketAddr, payloads: usize) {
    panic!("{payloads} datagrams to {near}: the rig has a plan and no way to its port");
}

/// What the suite may expect of a datagram lane.
#[derive(Clone, Copy, Debug)]
pub struct DatagramProperties {
    /// The spec to test, such as `socket:batch=32,gso`. It must not give `idle`, `allow` or a knob
    /// that another property gives: the suite appends those.
    pub spec: &'static str,
    /// How many ports the rig can open, at least 1.
    pub ports_max: usize,
    /// Datagrams that may be sent at once without loss, each of [`payload_bytes_max`](Self::payload_bytes_max).
    pub send_max: usize,
    /// The longest payload that passes, at least 1000.
    pub payload_bytes_max: usize,
    /// A payload that is too long to leave, if the lane can be asked to send one.
    pub too_long_bytes: Option<usize>,
    /// Knobs that bound the batch, and the bound they give, in entries of a batch; at least 2 and at
    /// most 32.
    pub small_batch: (&'static str, usize),
    /// A train that the far end sends in one piece arrives in one piece.
    pub trains: bool,
    /// A datagram without payload can be distinguished from none.
    pub carries_empty: bool,
    /// How to lose datagrams in front of the lane, for lanes that count every such loss.
    pub overload: Option<Overload>,
    /// Something that can be asked for and is not to be had in the rig's world.
    pub impossible: Option<Impossible>,
    /// A misspelt knob, without a value, and the knob that must be suggested.
    pub misspelt: (&'static str, &'static str),
}

/// A connection of the far end, numbered by the rig. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub usize);

/// What a far end found when it read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerRead {
    /// These bytes; at least one.
    Bytes(Vec<u8>),
    /// Nothing now.
    Nothing,
    /// The lane closed in order.
    End,
    /// The lane reset the connection.
    Reset,
}

/// A stream lane with two ends: the suite works the near one, the rig the far one.
pub trait StreamRig {
    /// The lane under test.
    type Lane: StreamLane;
    /// A clock of the lane's domain.
    type Clock: Clock;

    /// What may be expected of the lane.
    fn properties(&self) -> StreamProperties;

    /// The clock that the worker reads.
    fn clock(&self) -> Self::Clock;

    /// Opens the lane with ports `0..ports`, always at the same addresses. The lane opened before
    /// and its connections are gone by then.
    ///
    /// # Errors
    /// What the lane says; the suite checks it.
    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<Self::Lane, LaneError>;

    /// Begins a connection to `port`. It need not be established on return.
    fn connect(&mut self, port: PortId) -> PeerId;

    /// The address that the lane sees as the peer's.
    fn address(&self, peer: PeerId) -> SocketAddr;

    /// Takes as many of `bytes` as can be queued now; returns how many (0 while the connection is
    /// not established).
    fn write(&mut self, peer: PeerId, bytes: &[u8]) -> usize;

    /// Reads up to `bytes_max` bytes without waiting.
    fn read(&mut self, peer: PeerId, bytes_max: usize) -> PeerRead;

    /// Takes all of `bytes`, the last of them as TCP's urgent data. False, and nothing taken, where the far end has
    /// none; what needs it is then skipped.
    fn write_urgent(&mut self, _peer: PeerId, _bytes: &[u8]) -> bool {
        false
    }

    /// Says that nothing more will be written (half close).
    fn finish(&mut self, peer: PeerId);

    /// Breaks the connection by a reset.
    fn reset(&mut self, peer: PeerId);

    /// So many bytes more than an empty queue takes may be queued: a lane that cuts what is sent into pieces may hold a
    /// whole piece behind a full queue.
    fn queue_slack_bytes(&self) -> usize {
        0
    }

    /// A way to see, without the rig and without taking anything, whether bytes wait at `peer` now.
    /// `None` when the far end has none; what needs it is then skipped.
    fn arrivals(&mut self, _peer: PeerId) -> Option<Box<dyn FnMut() -> bool>> {
        None
    }
}

/// What the suite may expect of a stream lane.
#[derive(Clone, Copy, Debug)]
pub struct StreamProperties {
    /// The spec to test, such as `socket`. It must not give `idle`, `allow` or a knob that another
    /// property gives: the suite appends those.
    pub spec: &'static str,
    /// How many ports the rig can open, at least 1.
    pub ports_max: usize,
    /// Connections that the rig can have at once, at least 2; the suite tries 200 if it can.
    pub peers_max: usize,
    /// Knobs that make the queues of a connection small (may be empty).
    pub small_queues: &'static str,
    /// The same, with a closing time so short that a test can wait for it.
    pub hasty_close: &'static str,
    /// Knobs that bound the connections, and the bound they give.
    pub few_connections: Option<(&'static str, usize)>,
    /// Something that can be asked for and is not to be had in the rig's world.
    pub impossible: Option<Impossible>,
    /// A misspelt knob, without a value, and the knob that must be suggested.
    pub misspelt: (&'static str, &'static str),
}

/// Bytes that depend on `sequence` and position, so that no two payloads and no two places of one
/// are mistaken for each other.
pub fn payload(sequence: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::seeded(sequence ^ 0x4c57_4c57);
    let mut payload = Vec::with_capacity(bytes + 8);
    payload.extend_from_slice(&sequence.to_be_bytes());
    while payload.len() < bytes {
        payload.extend_from_slice(&random.draw().to_be_bytes());
    }
    payload.truncate(bytes);
    payload
}

/// `count` payloads of `bytes` bytes, numbered from `first`.
pub fn payloads(first: u64, count: usize, bytes: usize) -> Vec<Vec<u8>> {
    (0..count as u64).map(|i| payload(first + i, bytes)).collect()
}

/// The rig's spec with `knobs` appended.
fn spec(base: &str, knobs: &str) -> LaneSpec {
    let joint = match (knobs.is_empty(), base.contains(':')) {
        (true, _) => "",
        (false, true) => ",",
        (false, false) => ":",
    };
    format!("{base}{joint}{knobs}").parse().expect("a rig gives well-formed specs")
}

/// The value, or a failed test with the lane's own sentence.
fn ok<T>(result: Result<T, LaneError>) -> T {
    result.unwrap_or_else(|e| panic!("the lane failed: {e}"))
}

/// Every behaviour of a datagram lane once, as arguments for the macro `$with`.
#[doc(hidden)]
#[macro_export]
macro_rules! each_datagram_behaviour {
    ($with:ident $($args:tt)*) => {
        $crate::$with! { $($args)* datagrams
            datagrams_arrive_unchanged_in_order_with_their_addresses
            datagrams_of_each_port_keep_to_it
            a_batch_never_exceeds_its_knob
            an_empty_datagram_survives
            a_reply_reaches_its_sender
            a_forwarded_datagram_keeps_its_bytes
            a_part_of_a_datagram_is_forwarded_alone
            bytes_that_the_lane_did_not_receive_are_forwarded
            a_datagram_leaves_by_the_port_it_is_sent_through
            sends_of_any_sizes_leave_as_they_were
            a_train_arrives_and_leaves_as_its_datagrams
            what_a_tick_sends_leaves
            a_send_of_less_than_was_offered_leaves_with_that_length
            a_datagram_too_long_to_leave_is_counted
            a_port_that_is_not_there_is_counted
            a_port_opened_in_a_running_lane_receives_and_sends
            a_closed_port_is_silent_and_its_number_not_used_again
            what_no_port_counts_stays_when_the_first_port_is_closed
            what_a_port_was_granted_is_read_back
            a_plan_that_cannot_be_had_leaves_no_port
            a_thousand_idle_ports_cost_a_round_no_call
            counters_match_what_was_seen
            the_ledger_closes_when_the_lane_is_overrun
            a_serve_without_traffic_shows_nothing
            wait_is_ready_with_traffic_and_times_out_without
            a_bell_rung_before_a_wait_ends_it
            a_bell_rung_during_a_wait_ends_it
            what_a_bell_releases_leaves
            a_worker_stops_and_the_lane_opens_again
            an_impossible_capability_is_refused_unless_allowed
            every_port_reports_its_capabilities
            an_unknown_knob_is_refused_with_a_suggestion
            every_idle_policy_is_accepted
        }
    };
}

/// Every behaviour of a stream lane once, as arguments for the macro `$with`.
#[doc(hidden)]
#[macro_export]
macro_rules! each_stream_behaviour {
    ($with:ident $($args:tt)*) => {
        $crate::$with! { $($args)* streams
            bytes_come_back_in_pieces_of_any_size
            urgent_data_holds_back_nothing_behind_it
            a_connection_is_reported_with_its_peer_and_its_port
            bytes_not_consumed_are_shown_again_with_the_rest
            a_full_send_queue_refuses_and_loses_nothing
            what_a_full_queue_left_is_shown_again_by_itself
            a_send_longer_than_the_queue_is_taken_in_part
            room_is_reported_once_without_unread_bytes
            a_gone_connection_takes_nothing
            a_paused_connection_shows_nothing_until_it_is_resumed
            a_paused_connection_is_read_up_to_a_bound
            a_paused_connection_that_finishes_is_reported_at_once
            a_slow_reader_does_not_hold_up_others
            a_peer_that_finishes_gets_all_it_is_owed
            a_reply_that_is_owed_reaches_a_peer_that_has_finished
            a_close_by_the_app_lets_queued_bytes_leave
            a_close_over_unread_bytes_costs_the_peer_nothing
            a_close_towards_a_peer_that_never_reads_ends
            an_abort_resets_and_drops_what_is_queued
            an_app_may_answer_and_close_when_a_connection_opens
            a_reset_ends_only_its_connection
            replies_leave_only_after_the_turn_ended
            a_turn_ends_whenever_the_app_was_called
            what_a_tick_sends_leaves_a_stream
            a_connection_id_is_never_used_again
            many_connections_are_served_at_once
            megabytes_cut_at_random_come_back_beside_small_requests
            connections_beyond_the_limit_are_counted
            finish_closes_every_connection_for_the_stop
            stream_counters_match_what_was_seen
            a_stream_wait_is_ready_with_traffic_and_times_out_without
            a_bell_rung_before_a_stream_wait_ends_it
            a_bell_rung_during_a_stream_wait_ends_it
            what_a_bell_releases_leaves_a_stream
            what_a_bell_releases_leaves_in_that_turn
            a_due_time_of_the_app_comes_before_the_tick
            a_stream_worker_stops_and_the_lane_opens_again
            an_impossible_capability_of_a_stream_is_refused_unless_allowed
            every_listening_port_reports_its_capabilities
            an_unknown_knob_of_a_stream_is_refused_with_a_suggestion
            every_idle_policy_of_a_stream_is_accepted
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! service_conformance_tests {
    ({ $rig:expr } $suite:ident $($behaviour:ident)+) => {
        $(
            #[test]
            fn $behaviour() {
                match ($rig)() {
                    Ok(mut rig) => $crate::service::$suite::$behaviour(&mut rig),
                    Err(reason) => $crate::skip(reason),
                }
            }
        )+
    };
}

/// One test per behaviour of a datagram lane. Takes an expression that, called without arguments,
/// gives `Result<impl DatagramRig, impl Display>`; an error is the reason to skip. Use it once per
/// module.
#[macro_export]
macro_rules! datagram_conformance {
    ($rig:expr) => {
        $crate::each_datagram_behaviour! { service_conformance_tests { $rig } }
    };
}

/// One test per behaviour of a stream lane. Takes an expression that, called without arguments,
/// gives `Result<impl StreamRig, impl Display>`; an error is the reason to skip. Use it once per
/// module.
#[macro_export]
macro_rules! stream_conformance {
    ($rig:expr) => {
        $crate::each_stream_behaviour! { service_conformance_tests { $rig } }
    };
}
