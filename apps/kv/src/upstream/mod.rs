//! In front of a Redis or Valkey Cluster: reads of strings from the local store, writes through.
//!
//! ```text
//!   worker: Cover ─ requests ─▶ queue ─ bell ─▶ thread: Pilot ─▶ sockets of the cluster's nodes, three for each:
//!                 ◀─ bell ─ queue ◀─ reports ─                    tracked (RESP3: fills, beats, invalidations),
//!                                                                 and one per version of the protocol for the rest
//! ```
//!
//! The cluster is the truth, and the store is a cache of it. The sockets are those of one thread beside the worker: a
//! lane waits for its own descriptors alone, and a node that hangs must hold back no client whose key is here.
//! [`Cover`] (what may be kept and read) and [`Pilot`] (what is asked of which node) do no I/O and read no clock.
//!
//! # The order of a fill, an invalidation and a write
//!
//! A *fill* is a GET whose reply is stored. The node remembers that the tracked connection has read the key, and sends
//! an invalidation on that connection when the key changes. The classic race is a fill's reply, read before an
//! invalidation, that is stored after it. These rules exclude it:
//!
//! 1. **One order.** What the thread reads from a tracked connection it reports in the order of its bytes, in one
//!    queue, and the worker applies the reports in that order. A node writes an invalidation behind every reply that is
//!    older.
//! 2. **A ticket for each fill.** An invalidation of the key, a write to it by us, the loss of its connection and a new
//!    owner of its slot take the ticket away. A reply without a ticket answers its client, and is not stored.
//! 3. **A write covers its key from before it is sent until its reply is here.** It takes the stored value and the
//!    tickets away, and no fill of the key has a ticket meanwhile. A write travels on another connection than fills, so
//!    nothing is concluded from the order of their replies: a fill with a ticket was sent either before the write (and
//!    has lost its ticket) or behind its reply (and reads what it wrote).
//! 4. **A lost connection takes all that it covered.** A value belongs to the owner of its slot as the worker knows it.
//!    The report of the loss stands in the queue behind all that the connection reported and before all that its
//!    successor reports. A new owner of a slot does the same to that slot. A reply behind ASK is never stored.
//! 5. **A lease bounds what is not reported.** A node that still owns a slot and is part of a working cluster answers a
//!    *beat*, a look-up of a key of its own, on the tracked connection. All invalidations before the reply are applied
//!    before it. So values are as new as the time at which the last answered beat was sent; when that is longer ago
//!    than the bound, they are not read.
//!
//! So: behind the reply to a write through us, no read through us sees the value before, by whichever connection of the
//! same worker. Behind a write beside us, no read that begins later than the bound sees it. The order of one client is
//! kept, as it has one command at the cluster at a time.
//!
//! A write whose connection is lost before its reply is not repeated: it may have been done, and its client receives an
//! error that says so.

mod arguments;
mod carrier;
mod cover;
mod map;
mod names;
mod pilot;
#[cfg(test)]
mod simulation;

pub(crate) use arguments::UpstreamArguments;
pub(crate) use carrier::Upstream;
pub(crate) use cover::Cover;
pub use map::{Address, Login, Named, UpstreamSettings};

use laneway_resp::{Protocol, Value};
use std::fmt;

/// Files of the thread, where the cluster has so many nodes: its bell, its connections, and those of the resolver,
/// which has its configuration and a socket open for each name that it looks up.
pub(crate) const fn files(nodes: usize) -> usize {
    1 + nodes * pilot::LINKS + 2 * names::LOOKUPS_MAX
}

/// The worker's end of what asks the cluster.
pub(crate) trait Far: fmt::Debug {
    /// Microseconds by a clock that never goes back; reports have times of the same.
    fn now_us(&self) -> u64;

    /// Takes requests. Each gets one answer.
    fn ask(&mut self, requests: std::vec::Drain<'_, Request>);

    /// The next report, if there is one.
    fn report(&mut self) -> Option<Report>;
}

/// By which connection to a node a command travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A GET of a key and its PTTL, by the tracked one; the answer may be stored.
    Fill,
    /// A command of a client that speaks this version; the reply is the node's, byte for byte.
    Through(Protocol),
}

/// A command for the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Named by the worker; no other has it.
    pub(crate) id: u64,
    /// The slot of its keys.
    pub(crate) slot: u16,
    pub(crate) way: Way,
    /// It may change something: it is not sent again where it may have been done.
    pub(crate) is_write: bool,
    /// Each command of it, as it is sent: two for a fill.
    pub(crate) commands: Vec<Vec<u8>>,
}

/// What the thread has to say to the worker. The order matters (rule 1).
#[derive(Debug)]
pub(crate) enum Report {
    /// The answer to a request; the last report on it.
    Answer { id: u64, answer: Answer },
    /// These keys are others now.
    Invalid(Vec<Box<[u8]>>),
    /// All that a node's connection covered is another now, or the connection is lost.
    Lost { node: u16 },
    /// Slots, both ends included, belong to that node now.
    Owner { first: u16, last: u16, node: u16 },
    /// A beat that was sent at this time was answered.
    Confirmed { node: u16, sent_us: u64 },
}

/// What became of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// Of a fill: the value, the milliseconds it has left (as PTTL says), and whether the slot's owner answered and
    /// not the node of an ASK.
    Filled { value: Value, left_ms: i64, is_covered: bool },
    /// The node's reply.
    Raw(Vec<u8>),
    /// There is none, and an error that says why.
    Failed(String),
}
