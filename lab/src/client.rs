//! A client of TCP servers: up to a thousand connections by one thread, which asks and checks what is answered.
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
//! nothing is in flight, so the server may be stopped. The kernel's sockets do the rest (level-triggered epoll); what is
//! said over them is a [`Conversation`], of which the client knows no byte.

mod connection;
mod conversation;
mod hand;
mod open;
mod said;
mod segment;
#[cfg(test)]
mod tests;

pub use hand::{Answered, Pace, ask};

pub(crate) use conversation::{Conversation, SameBytes, Terms, Wrong};
pub(crate) use said::{Asked, WRONG};
pub(crate) use segment::Asking;

use crate::timetable::Timetable;
use connection::{Connection, Moved};
use laneway_kinds::Protocol;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;
use said::Fate;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

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
/// Bytes read at once.
const READ_BYTES: usize = 1 << 16;

/// What a client is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientPlan {
    /// Whom it asks.
    pub to: SocketAddr,
    /// What it says, and how it knows the answer.
    pub protocol: Protocol,
    /// How many connections it has; 1 to [`CONNECTIONS_MAX`].
    pub connections: u32,
    /// Requests outstanding on each at most; 1 to [`IN_FLIGHT_MAX`].
    pub in_flight: u32,
    /// Length of a request, bytes: drawn anew for each between these two, both included.
    pub request_bytes: [u32; 2],
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
        if least == 0 || least > most || most > REQUEST_BYTES_MAX {
            let hint = format!("two lengths, the shorter first, each 1 to {REQUEST_BYTES_MAX}");
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
        let connections = match self.connections {
            1 => "one connection".to_owned(),
            n => format!("{n} connections"),
        };
        format!(
            "{connections} to {}, at most {} in flight on each, requests of {bytes}",
            self.to, self.in_flight
        )
    }
}

/// What a client found of its connections between two segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reopened {
    /// Those that had gone since the last answer.
    pub lost: u32,
    /// Of them, those on which something came that nobody had asked for.
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
    /// Opens every connection of `plan`; what it asks is due by `timetable`.
    ///
    /// # Errors
    /// A sentence: the first that cannot be opened, or too few descriptors.
    pub(crate) fn open(plan: &ClientPlan, timetable: Timetable) -> Result<Client<C>, String> {
        open::allow_descriptors(plan.connections)?;
        // Otherwise a wait of microseconds takes 50 more; where it may not, it says so by its lateness.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let sentence = |error: Errno| format!("epoll: {error}; see `ulimit -n`");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(sentence)?;
        let terms = Rc::new(Terms::new(plan.request_bytes, plan.seed));
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
                "connection {} of {} to TCP {} could not be opened: {why}",
                number + 1,
                plan.connections,
                plan.to
            )),
            None => Ok(client),
        }
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

    /// Closes what ended, or said something, when nothing was asked.
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
                    Moved::Ended(why) => {
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
