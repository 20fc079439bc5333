//! A client of TCP servers, or of one that answers a datagram by a datagram: up to a thousand connections by one
//! thread, which asks and checks what is answered.
//!
//! ```text
//!   schedule ─▶ due ─▶ connection n mod connections ─▶ at most `in_flight` asked ─▶ socket
//!                            answered ◀─ every byte as the protocol has it ◀─ socket
//! ```
//!
//! Open loop: a request is due at a time of its own, whatever became of those before it, and its latency counts from
//! then, so what waits behind a slow answer is not left out. Closed loop: each connection has `in_flight` requests
//! outstanding, and the next is due when one was answered.
//!
//! What must always hold: requests due = answered + every named [`Fate`], closed before a segment's report; behind it
//! nothing is in flight, so the server may be stopped. The kernel's sockets do the rest (level-triggered epoll); what
//! they carry is a [`Conversation`], of which the client knows no byte: [`SameBytes`], which come back as they
//! went, [`Values`] of a store, and [`Gets`] of the same by datagrams. A connection of datagrams is a connected UDP
//! socket with one request in flight; what is lost there has timed out.

mod connection;
mod conversation;
mod draws;
mod gets;
mod hand;
#[cfg(test)]
mod honest;
mod keys;
mod open;
mod resp;
mod same_bytes;
mod segment;
mod tally;
#[cfg(test)]
mod tests;
mod values;

pub use hand::{Answered, Pace, Until, ask};
pub use keys::{KEYS_MAX, Store};

pub(crate) use conversation::{Conversation, Terms, Wrong};
pub(crate) use gets::Gets;
pub(crate) use same_bytes::SameBytes;
pub(crate) use segment::Asking;
pub(crate) use tally::{Asked, WRONG};
pub(crate) use values::Values;

use keys::STAMP_BYTES;

use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use connection::{Connection, Moved};
use laneway_core::Clock;
use laneway_engine::MonotonicClock;
use laneway_kinds::Protocol;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tally::Fate;

/// Most connections.
pub const CONNECTIONS_MAX: u32 = 1_000;
/// Most requests outstanding on one.
pub const IN_FLIGHT_MAX: u32 = 1_024;
/// Longest request, bytes.
pub const REQUEST_BYTES_MAX: u32 = 1 << 16;
/// Most bytes of requests that may be outstanding at a time.
pub const OUTSTANDING_BYTES_MAX: u64 = 256 << 20;
/// Longest that an answer is waited for behind the last request, ms.
pub const TIMEOUT_MS_MAX: u32 = 60_000;
/// Longest value of a store, bytes.
pub const VALUE_BYTES_MAX: u32 = 1 << 20;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 16;
/// What is asked before anything is due is done within so long, and this many at a time over all connections, at most
/// that many on one.
const OPENING_MAX: Duration = Duration::from_secs(600);
const OPENING_AT_ONCE: u32 = 1_024;
const OPENING_IN_FLIGHT_MAX: u32 = 64;
/// Connections over which keys are set before datagrams ask for them.
const FILLING_CONNECTIONS_MAX: u32 = 16;
/// Longest value that is asked for by datagrams, bytes: the reply is to fit into a packet, and the request is as long.
pub const DATAGRAM_VALUE_BYTES_MAX: u32 = 1_400;

/// What a client is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientPlan {
    /// The arm that it asks.
    pub to: SocketAddr,
    /// What it says, and how it knows the answer.
    pub protocol: Protocol,
    /// How many connections it has; 1 to [`CONNECTIONS_MAX`].
    pub connections: u32,
    /// Requests outstanding on each at most; 1 to [`IN_FLIGHT_MAX`].
    pub in_flight: u32,
    /// Length of a request, of a store that of a value, bytes: drawn anew for each between these two, both included.
    pub request_bytes: [u32; 2],
    /// Of a store: what is set and got. Of nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
    /// Of a store: values are asked for by datagrams, here, and `to` is where keys are set before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<SocketAddr>,
    /// How long answers are waited for behind the last request that was due, ms.
    pub timeout_ms: u32,
    /// Of lengths and contents.
    pub seed: u64,
}

impl ClientPlan {
    /// What is wrong with it: the value's name, the value, and what it may be.
    ///
    /// # Errors
    /// The first that cannot be.
    pub fn check(&self) -> Result<(), (&'static str, String, String)> {
        let between = |name, value: u32, most: u32| match value {
            1.. if value <= most => Ok(()),
            _ => Err((name, value.to_string(), format!("1 to {most}"))),
        };
        between("connections", self.connections, CONNECTIONS_MAX)?;
        between("in_flight", self.in_flight, IN_FLIGHT_MAX)?;
        between("timeout_ms", self.timeout_ms, TIMEOUT_MS_MAX)?;
        let [least, most] = self.request_bytes;
        let (shortest, longest) = match (self.protocol, &self.store) {
            (Protocol::Echo, None) => (1, REQUEST_BYTES_MAX),
            (Protocol::Resp, Some(store)) => {
                store.check()?;
                (STAMP_BYTES as u32, VALUE_BYTES_MAX)
            }
            (Protocol::Echo, Some(_)) => {
                let hint = "nothing is set or got here: leave it out";
                return Err(("store", "given".to_owned(), hint.to_owned()));
            }
            (Protocol::Resp, None) => {
                let hint = "say what is set and got: { keys = 100_000, get_share = 0.5 }";
                return Err(("store", "missing".to_owned(), hint.to_owned()));
            }
        };
        let longest = match (self.datagrams, &self.store) {
            (None, _) => longest,
            (Some(_), Some(store)) if store.get_share >= 1.0 && self.in_flight == 1 => {
                DATAGRAM_VALUE_BYTES_MAX
            }
            (Some(at), _) => {
                let hint = "a datagram gets a value and sets none, one in flight on each socket: give a store with \
                            get_share = 1, and in_flight = 1";
                return Err(("datagrams", at.to_string(), hint.to_owned()));
            }
        };
        if least < shortest || least > most || most > longest {
            let hint = format!("two lengths, the shorter first, each {shortest} to {longest}");
            return Err(("request_bytes", format!("[{least}, {most}]"), hint));
        }
        let outstanding = u64::from(self.connections) * u64::from(self.in_flight) * u64::from(most);
        if outstanding > OUTSTANDING_BYTES_MAX {
            let hint = format!(
                "at most {} MiB outstanding at a time: fewer connections, fewer in flight, or shorter requests",
                OUTSTANDING_BYTES_MAX >> 20
            );
            return Err(("connections x in_flight x request_bytes", outstanding.to_string(), hint));
        }
        Ok(())
    }

    /// How it asks, in a few words.
    pub(crate) fn sentence(&self) -> String {
        let [least, most] = self.request_bytes;
        let bytes = if least == most {
            format!("{least} bytes")
        } else {
            format!("{least} to {most} bytes")
        };
        let connections = match (self.datagrams, self.connections) {
            (None, 1) => "one connection".to_owned(),
            (None, n) => format!("{n} connections"),
            (Some(_), 1) => "one socket of datagrams".to_owned(),
            (Some(_), n) => format!("{n} sockets of datagrams"),
        };
        let what = match &self.store {
            None => format!("requests of {bytes}"),
            Some(store) => format!("{}, values of {bytes}", store.sentence()),
        };
        format!(
            "{connections} to {}, at most {} in flight on each, {what}",
            self.asked(),
            self.in_flight
        )
    }

    /// The same with values asked for by datagrams, where connections lead.
    pub(crate) fn by_datagrams(self) -> ClientPlan {
        ClientPlan { datagrams: Some(self.to), ..self }
    }

    /// The arm that is asked: where, and by what.
    pub fn asked_at(&self) -> String {
        format!("{} {}", if self.datagrams.is_some() { "UDP" } else { "TCP" }, self.asked())
    }

    /// Where the sockets of the client lead to.
    pub(crate) fn asked(&self) -> SocketAddr {
        self.datagrams.unwrap_or(self.to)
    }
}

/// What a client found of its connections between two segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reopened {
    /// Those that had gone since the last answer.
    pub lost: u32,
    /// Of them, those on which bytes arrived without a request.
    pub unasked: u64,
    /// Those that are open again, whenever they had gone.
    pub reopened: u32,
}

/// A client with its connections, between segments.
pub(crate) struct Client<C> {
    plan: ClientPlan,
    /// When what is asked is due.
    timetable: Timetable,
    terms: Rc<Terms>,
    epoll: OwnedFd,
    connections: Vec<Connection<C>>,
    /// What was read last; of one connection at a time.
    bytes: Vec<u8>,
    events: Vec<epoll::Event>,
}

/// How long it is waited at most at a time, so that a client that is to end does.
const LOOK: Duration = Duration::from_millis(100);

impl<C: Conversation> Client<C> {
    /// Opens every connection of `plan` and asks what comes before all that is measured: how many requests those were.
    /// What it asks is due by `timetable`; `is_over` ends it before. For datagrams keys are set over connections, which
    /// are closed then.
    ///
    /// # Errors
    /// A sentence: the first that cannot be opened, too few descriptors, or not all was answered.
    pub(crate) fn opened(
        plan: &ClientPlan,
        timetable: Timetable,
        is_over: impl Fn() -> bool,
    ) -> Result<(Client<C>, u64), String> {
        let terms = Rc::new(Terms::new(plan));
        let mut opening = 0;
        if plan.datagrams.is_some() {
            let connections = plan.connections.min(FILLING_CONNECTIONS_MAX);
            let filling = ClientPlan { datagrams: None, connections, ..plan.clone() };
            let mut values =
                Client::<Values>::open_by(&filling, timetable.clone(), Rc::clone(&terms))?;
            opening = values.prepare(&is_over)?;
        }
        let mut client = Client::open_by(plan, timetable, terms)?;
        opening += client.prepare(&is_over)?;
        Ok((client, opening))
    }

    /// Opens every connection of `plan`.
    ///
    /// # Errors
    /// A sentence: the first that cannot be opened, or too few descriptors.
    #[cfg(test)]
    fn open(plan: &ClientPlan, timetable: Timetable) -> Result<Client<C>, String> {
        Client::open_by(plan, timetable, Rc::new(Terms::new(plan)))
    }

    fn open_by(
        plan: &ClientPlan,
        timetable: Timetable,
        terms: Rc<Terms>,
    ) -> Result<Client<C>, String> {
        open::allow_descriptors(plan.connections)?;
        // Otherwise a wait of microseconds takes 50 more; where it may not, it says so by its lateness.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let sentence = |error: Errno| format!("epoll: {error}; see `ulimit -n`");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(sentence)?;
        let connections =
            (0..plan.connections).map(|number| Connection::closed(number, &terms)).collect();
        let mut client = Client {
            plan: plan.clone(),
            timetable,
            terms,
            epoll,
            connections,
            bytes: vec![0; READ_BYTES],
            events: Vec::with_capacity(plan.connections.min(256) as usize),
        };
        client.connect(Duration::from_millis(plan.timeout_ms.into()).max(open::CONNECT_MAX))?;
        let refused = client.connections.iter().find_map(|it| it.refusal());
        match refused {
            Some((number, why)) => Err(format!(
                "connection {} of {} to {} could not be opened: {why}",
                number + 1,
                plan.connections,
                plan.asked_at()
            )),
            None => Ok(client),
        }
    }

    /// Asks what comes before all that is measured, such as setting every key of a store once; what was answered.
    /// `is_over` ends it before.
    ///
    /// # Errors
    /// A sentence, when not all of it was answered.
    fn prepare(&mut self, is_over: impl Fn() -> bool) -> Result<u64, String> {
        let Some(requests) = NonZeroU32::new(C::opening(&self.terms)) else { return Ok(0) };
        let [_, most] = self.plan.request_bytes;
        let room =
            (OUTSTANDING_BYTES_MAX / u64::from(most.max(1))).min(OPENING_AT_ONCE.into()) as u32;
        let many = (room / self.plan.connections).min(OPENING_IN_FLIGHT_MAX);
        let own = self.plan.in_flight;
        self.plan.in_flight = own.max(many);
        let schedule = SegmentPlan {
            segment: 1,
            entry: 0,
            t0_ns: MonotonicClock.now_ns(),
            frames: OPENING_MAX.as_millis() as u32,
            interval_ns: 1_000_000,
            burst: 1,
        };
        let asked =
            self.ask(Asking { schedule, is_closed: true, requests: Some(requests) }, is_over);
        self.plan.in_flight = own;
        let asked = asked?;
        if asked.answered == u64::from(requests.get()) {
            return Ok(asked.answered);
        }
        let fates = asked.fates.iter().map(|(fate, n)| format!("{n} {fate}"));
        let why = asked.wrong.into_iter().chain(fates).collect::<Vec<_>>().join("; ");
        Err(format!(
            "of {requests} requests to be answered before the first is due, {} were: {why}",
            asked.answered
        ))
    }

    /// Between segments: finds out what has gone, and opens again what is not there; what cannot be stays closed.
    ///
    /// # Errors
    /// When there is no epoll any more, or no descriptor.
    pub(crate) fn reopen(&mut self) -> Result<Reopened, String> {
        let mut found = self.sweep()?;
        let closed = self.closed();
        if closed > 0 {
            self.connect(Duration::from_millis(self.plan.timeout_ms.into()))?;
        }
        found.reopened = closed - self.closed();
        Ok(found)
    }

    /// Closes what ended, or sent something, when nothing was asked.
    fn sweep(&mut self) -> Result<Reopened, String> {
        let mut found = Reopened::default();
        loop {
            self.wait(Duration::ZERO)?;
            if self.events.is_empty() {
                return Ok(found);
            }
            for event in &self.events {
                let at = event.data.u64() as usize;
                let Some(connection) = self.connections.get_mut(at) else { continue };
                match connection.read(&mut self.bytes) {
                    Moved::Bytes(0) => {}
                    Moved::Bytes(bytes) => {
                        found.unasked += 1;
                        found.lost += 1;
                        let _ = connection.close(Fate::Lost, Wrong::Unasked { bytes }.to_string());
                    }
                    Moved::Ended(_, why) => {
                        found.lost += 1;
                        let _ = connection.close(Fate::Lost, why);
                    }
                }
            }
        }
    }

    /// Connections that are not there.
    fn closed(&self) -> u32 {
        self.connections.iter().filter(|connection| !connection.is_open()).count() as u32
    }

    /// Waits until a connection has something, for at most `wait`.
    fn wait(&mut self, wait: Duration) -> Result<(), String> {
        let timeout = Timespec::try_from(wait.min(LOOK)).expect("it is short");
        self.events.clear();
        let buffer = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, buffer, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(format!("epoll: {}", io::Error::from(error))),
        }
    }
}
