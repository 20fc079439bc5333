//! Several workers of one store: each has the keys of a range of slots, and the clients that the kernel gave it.
//!
//! ```text
//!   client ─▶ its worker: rights, state ─┬─ its own slots ────────────────▶ done here, without a message
//!                                        ├─ another's ─▶ queue ─▶ bell ─▶ a guest there does it ─▶ queue ─▶ reply
//!                                        └─ all workers ─▶ worker 0 leads: a part each, one reply of all
//! ```
//!
//! A *guest* stands for the client at another worker: what it watches, waits for and is owed there is the guest's, so
//! all that the server does for clients it does for guests. What must always hold:
//!
//! - A client's commands take effect in their order: while some are on their way to one worker, a command for another
//!   waits, and so does one that is done here. So replies are in order as well.
//! - A key is one worker's alone. A read behind an answered write sees that write or a later one.
//! - What concerns all workers is led by worker 0, so all workers do such commands in one order.
//! - A client has at most [`FLIGHT_MAX`] commands on their way; when the queue to a worker is full, clients with
//!   commands for it are paused.
//!
//! With one worker nothing of this is there: [`Server::shards`](super::server::Server) is empty.

pub(crate) mod apart;
mod away;
mod exchange;
mod guest;
mod info;
mod join;
pub(crate) mod reach;
pub(crate) mod slot;

pub use exchange::{Exchange, Seat};
pub(crate) use info::names as names_for_info;
pub(crate) use slot::slot_of;

use super::client::{Client, Key, Transaction};
use super::table::{Row, is_done_inside_multi, keys_of};
use crate::command::Command;
use apart::{Apart, Guest};
use exchange::Message;
use laneway_resp::integer;
use reach::Reach;
use std::collections::VecDeque;

/// Commands of one client on their way to another worker.
const FLIGHT_MAX: usize = 128;

/// Where a command is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// At this worker.
    Here,
    /// At that worker.
    To(usize),
    /// At all workers, led by this one.
    Lead,
}

/// A worker among others.
#[derive(Debug)]
pub(crate) struct Shards {
    pub(crate) seat: Seat,
    /// Guests, by the worker and the place of the client that each stands for.
    guests: Vec<Vec<Option<Key>>>,
    /// Clients whose command waits for room in a queue.
    crowded: VecDeque<Key>,
}

impl Client {
    fn apart_mut(&mut self) -> &mut Apart {
        self.apart.get_or_insert_default()
    }

    /// The guest's part of it, if it is one.
    pub(crate) fn guest(&self) -> Option<&Guest> {
        self.apart.as_ref()?.guest.as_ref()
    }

    fn guest_mut(&mut self) -> Option<&mut Guest> {
        self.apart.as_mut()?.guest.as_mut()
    }

    /// True if it stands for a client of another worker.
    pub(crate) fn is_guest(&self) -> bool {
        self.guest().is_some()
    }

    /// True while it does a part of what concerns all workers, which worker 0 counts.
    pub(crate) fn is_part(&self) -> bool {
        self.guest().is_some_and(Guest::is_part)
    }
}

impl Apart {
    fn watched_by(&self, shards: &Shards) -> Option<usize> {
        self.watched.map(|slot| shards.worker_of(slot))
    }
}

/// What Redis Cluster says.
const CROSSSLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

impl Shards {
    pub(crate) fn new(seat: Seat) -> Shards {
        let guests = (0..seat.workers()).map(|_| Vec::new()).collect();
        Shards { seat, guests, crowded: VecDeque::new() }
    }

    /// Sends a message to the other workers that have listeners.
    pub(crate) fn publish_elsewhere(&mut self, channel: &[u8], message: &[u8]) {
        for to in 0..self.seat.workers() {
            if self.seat.is_listening(to) {
                self.seat.push(to, Message::Publish, &[channel, message]);
            }
        }
    }

    /// True if another worker has listeners.
    pub(crate) fn has_listeners(&self) -> bool {
        (0..self.seat.workers()).any(|to| self.seat.is_listening(to))
    }

    /// True if every other worker that has listeners can be sent more.
    pub(crate) fn listeners_have_room(&mut self) -> bool {
        (0..self.seat.workers()).all(|to| !self.seat.is_listening(to) || !self.seat.is_full(to))
    }

    /// The worker that has a slot.
    fn worker_of(&self, slot: u16) -> usize {
        slot::worker_of(slot, self.seat.workers())
    }

    fn route_to(&self, worker: usize) -> Route {
        if worker == self.seat.worker() { Route::Here } else { Route::To(worker) }
    }

    /// Where a client's command is to be done.
    ///
    /// # Errors
    /// It concerns more than one worker in a manner that none can do; Redis's sentence, where it has one.
    pub(crate) fn route(
        &self,
        client: &Client,
        row: &Row,
        args: &[&[u8]],
    ) -> Result<Route, String> {
        let command = &row.command;
        if let Some(transaction) = &client.transaction {
            if command.name == "exec" && !transaction.is_broken {
                let watched = client.apart.as_ref().and_then(|apart| apart.watched);
                let slot = transaction.slot.or(watched);
                return Ok(slot.map_or(Route::Here, |slot| self.route_to(self.worker_of(slot))));
            }
            if is_done_inside_multi(command.name) {
                return Ok(Route::Here);
            }
            if !reach::may_be_queued(command, row.reach) {
                return Err(format!(
                    "ERR '{}' cannot be part of a transaction while the store has several workers: a \
                     transaction is done by the one that has its keys",
                    command.name
                ));
            }
        }
        match row.reach {
            Reach::Client => Ok(Route::Here),
            Reach::All(_) if self.seat.worker() == 0 => Ok(Route::Lead),
            Reach::All(_) => Ok(Route::To(0)),
            Reach::Cursor => {
                Ok(self.scanned(args).map_or(Route::Here, |(worker, _)| self.route_to(worker)))
            }
            Reach::Keys => {
                let Some(slot) = one_slot(&row.command, args)? else { return Ok(Route::Here) };
                let apart = client.apart.as_ref();
                // What is watched binds the transaction, and what is watched beside it.
                let bound = match client.transaction.as_deref() {
                    Some(Transaction { slot: Some(slot), .. }) => Some(*slot),
                    Some(_) => apart.and_then(|apart| apart.watched),
                    None if command.name == "watch" => apart.and_then(|apart| apart.watched),
                    None => None,
                };
                if bound.is_some_and(|bound| bound != slot) {
                    return Err(CROSSSLOT.to_owned());
                }
                Ok(self.route_to(self.worker_of(slot)))
            }
        }
    }

    /// The worker and its own cursor that a cursor of SCAN means: it has both, so that 48 bits of place and the number
    /// of up to 32 workers are whole in a floating-point number.
    fn scanned(&self, args: &[&[u8]]) -> Option<(usize, u64)> {
        let cursor: u64 = std::str::from_utf8(args.get(1)?).ok()?.parse().ok()?;
        let workers = self.seat.workers() as u64;
        Some(((cursor % workers) as usize, cursor / workers))
    }

    /// The cursor behind one of this worker's: at its end the next worker's first, and behind the last worker 0.
    fn scan_next(&self, own: u64) -> u64 {
        let (worker, workers) = (self.seat.worker() as u64, self.seat.workers() as u64);
        match own {
            0 if worker + 1 == workers => 0,
            0 => worker + 1,
            own => own * workers + worker,
        }
    }
}

/// The slot of all keys of a command; none if it has no keys.
pub(crate) fn one_slot(command: &Command, args: &[&[u8]]) -> Result<Option<u16>, String> {
    let keys = command.keys;
    if (keys.first, keys.last, keys.numkeys) == (1, 1, 0) {
        return Ok(args.get(1).map(|key| slot_of(key)));
    }
    let mut slots = keys_of(keys, args).into_iter().map(slot_of);
    let Some(first) = slots.next() else { return Ok(None) };
    if slots.all(|slot| slot == first) { Ok(Some(first)) } else { Err(CROSSSLOT.to_owned()) }
}

/// The slot of a command's first key, for a transaction that it becomes a part of.
pub(crate) fn slot_of_command(row: &Row, args: &[&[u8]]) -> Option<u16> {
    if row.reach == Reach::Keys { one_slot(&row.command, args).ok().flatten() } else { None }
}

/// What SCAN answers, with another cursor.
fn with_cursor(reply: &[u8], next: impl FnOnce(u64) -> u64) -> Option<Vec<u8>> {
    // `*2`, a bulk that is the cursor, the elements.
    let rest = reply.strip_prefix(b"*2\r\n$")?;
    let line = rest.windows(2).position(|end| end == b"\r\n")?;
    let len = usize::try_from(integer(&rest[..line])?).ok()?;
    let rest = &rest[line + 2..];
    let (cursor, rest) = rest.split_at_checked(len)?;
    let own: u64 = std::str::from_utf8(cursor).ok()?.parse().ok()?;
    let text = next(own).to_string();
    Some([format!("*2\r\n${}\r\n{text}", text.len()).as_bytes(), rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_replaced_and_the_elements_stay() {
        let reply = b"*2\r\n$2\r\n17\r\n*1\r\n$1\r\nk\r\n";
        let other = with_cursor(reply, |own| own * 100);
        assert_eq!(other.as_deref(), Some(&b"*2\r\n$4\r\n1700\r\n*1\r\n$1\r\nk\r\n"[..]));
        assert_eq!(with_cursor(b"-ERR invalid cursor\r\n", |own| own), None);
    }
}
