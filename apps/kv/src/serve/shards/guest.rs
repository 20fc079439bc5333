//! The side of the worker that is asked: guests, and what they do.
//!
//! A guest is a client without a connection. It does one command at a time, in the order in which they were asked; one
//! that waits (for data, for the end of CLIENT PAUSE, for room in the log) keeps those behind it in the guest, and so
//! does a client that does not read. Replies go back whole, when they may be sent.

use super::super::client::{Client, Ending, Kept};
use super::super::server::Server;
use super::super::table::Found;
use super::apart::{Apart, Asked, Guest};
use super::exchange::{Asking, Batch, ClientRef, Fate, How, Message};
use super::reach::Reach;
use super::with_cursor;
use crate::command::{Command, Outcome};
use std::collections::VecDeque;
use std::net::SocketAddr;

impl Server {
    /// Hears what other workers have to say.
    pub(crate) fn read_messages(&mut self) {
        let workers = self.shards.as_ref().map_or(0, |shards| shards.seat.workers());
        for from in 0..workers {
            let batches = self.shards.as_mut().map(|shards| shards.seat.take(from));
            for batch in batches.into_iter().flatten() {
                self.read_batch(from, &batch);
            }
        }
    }

    /// Hears what this worker has to say to itself; false if that is nothing.
    pub(crate) fn read_own(&mut self) -> bool {
        let Some(shards) = &mut self.shards else { return false };
        let own = shards.seat.worker();
        let Some(batch) = shards.seat.take_own() else { return false };
        self.read_batch(own, &batch);
        true
    }

    fn read_batch(&mut self, from: usize, batch: &Batch) {
        batch.each(|message, args| match message {
            Message::Visit { from: place, peer, local } => self.welcome(from, place, peer, local),
            Message::Ask { from: place, asking, .. } => {
                self.with_guest(from, place, |server, guest| server.asked(guest, asking, args));
            }
            Message::Unwatch(place) => {
                self.with_guest(from, place, |server, guest| server.unwatch_all(guest));
            }
            Message::Finish(place) => {
                self.with_guest(from, place, |_, guest| guest.is_finished = true);
            }
            Message::Read(place) => self.with_guest(from, place, |_, guest| {
                guest.guest_mut().into_iter().for_each(|guest| guest.bytes = 0);
            }),
            Message::Gone(place) => self.dismiss(from, place),
            Message::Publish => {
                if let [channel, message] = *args {
                    self.publish(None, channel, message);
                }
            }
            Message::Answer { .. } => {
                self.answered(from, message, args.first().copied().unwrap_or_default());
            }
        });
    }

    fn welcome(&mut self, home: usize, place: ClientRef, peer: SocketAddr, local: SocketAddr) {
        let now_us = self.time.now_us;
        let guest = Guest {
            home,
            place,
            is_running: false,
            is_part: false,
            inbox: VecDeque::new(),
            ends: VecDeque::new(),
            bytes: 0,
        };
        let key = self.clients.add_guest(|key| {
            let mut client = Client::new(key, place.id, peer, local, now_us);
            client.is_authenticated = true;
            client.apart = Some(Box::new(Apart { guest: Some(guest), ..Apart::default() }));
            client
        });
        let Some(shards) = &mut self.shards else { return };
        let guests = &mut shards.guests[home];
        let at = place.key as usize;
        if guests.len() <= at {
            guests.resize(at + 1, None);
        }
        guests[at] = Some(key);
    }

    /// Does something with the guest that stands for a client, and looks after it at the end of the turn.
    fn with_guest(
        &mut self,
        home: usize,
        place: ClientRef,
        then: impl FnOnce(&mut Server, &mut Client),
    ) {
        let guests = self.shards.as_ref().and_then(|shards| shards.guests.get(home));
        let key = guests.and_then(|guests| guests.get(place.key as usize).copied().flatten());
        let Some(mut guest) = key.and_then(|key| self.clients.take(key)) else { return };
        if guest.id == place.id {
            then(self, &mut guest);
            self.note_taken(&mut guest);
        }
        self.clients.put_back(guest);
        self.serve_waiters();
    }

    fn dismiss(&mut self, home: usize, place: ClientRef) {
        let Some(shards) = &mut self.shards else { return };
        let known = shards.guests[home].get_mut(place.key as usize).and_then(Option::take);
        let Some(mut guest) = known.and_then(|key| self.clients.take(key)) else { return };
        self.release(&mut guest);
        self.clients.remove_guest(&guest);
    }

    fn asked(&mut self, client: &mut Client, asking: Asking, args: &[&[u8]]) {
        let (is_held, waiting) = (client.is_held(), client.out.len());
        let Some(guest) = client.guest_mut() else { return };
        if is_held || guest.is_busy(waiting) || !guest.inbox.is_empty() {
            let args = args.iter().map(|&arg| arg.into()).collect();
            guest.inbox.push_back(Asked { asking, args });
        } else {
            self.run_asked(client, asking, args);
        }
    }

    /// Begins a command of a guest that has none; one that was asked for was admitted at the client's worker, so what
    /// is left is what only this one knows.
    fn run_asked(&mut self, client: &mut Client, asking: Asking, args: &[&[u8]]) {
        client.database = asking.database;
        client.user = asking.user;
        client.out.set_protocol(asking.protocol);
        let Found::Row(index) = self.table.find(args) else { return };
        let row = *self.table.row(index);
        if asking.how == How::Queued {
            let is_refused = self.why_no_room(&row.command, args).is_err();
            let transaction = client.transaction.get_or_insert_default();
            transaction.is_broken |= is_refused;
            transaction.queued.push(Kept::new(index, args));
            return;
        }
        if let Some(guest) = client.guest_mut() {
            guest.is_running = true;
            guest.is_part = asking.how == How::Part;
        }
        if row.command.name == "exec" {
            // One without commands is done here for what it watches.
            client.transaction.get_or_insert_default();
        }
        if asking.how == How::Whole && matches!(row.reach, Reach::All(_)) {
            self.lead(client, index, args);
        } else if let Err(text) = self.why_no_room(&row.command, args) {
            self.refuse(client, Some(index), text.as_bytes());
        } else if self.holds_back(client, index, args) {
            self.hold(client, Box::new(Kept::new(index, args)));
        } else if !self.awaits_values(client, index, args) {
            self.call(client, index, args);
        }
        end_if_done(client);
    }

    /// Goes on with what a guest was asked, and sends the replies that may be sent by now.
    pub(crate) fn settle_guest(&mut self, client: &mut Client) {
        loop {
            end_if_done(client);
            let (is_held, waiting) = (client.is_held(), client.out.len());
            let is_free = |guest: &&mut Guest| !is_held && !guest.is_busy(waiting);
            let Some(guest) = client.guest_mut().filter(is_free) else { break };
            let Some(Asked { asking, args }) = guest.inbox.pop_front() else { break };
            let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
            self.run_asked(client, asking, &args);
            self.serve_waiters();
        }
        if client.is_finished && self.unblock(client).is_some() {
            // A client that has hung up is sent nothing, as at its own worker.
            client.ending = Ending::Close;
        }
        if client.out.is_cut() {
            self.stats.output_disconnections += 1;
            client.ending = Ending::Abort;
            client.forget_owed();
            client.guest_mut().into_iter().for_each(|guest| guest.ends.clear());
        }
        let releasable = client.releasable(self.journal.durable()).min(client.out.len());
        let (database, ending) = (client.database, client.ending);
        let Some(guest) = client.guest_mut() else { return };
        let (mut commands, mut end) = (0, 0);
        while let Some(at) = guest.ends.pop_front_if(|at| *at <= releasable) {
            (commands, end) = (commands + 1, at);
        }
        let fate = match ending {
            Ending::Open => Fate::Open,
            Ending::Abort => Fate::CutOff,
            Ending::Close | Ending::Asked => Fate::Closed,
        };
        if commands == 0 && fate == Fate::Open {
            return;
        }
        guest.ends.iter_mut().for_each(|at| *at -= end);
        let is_idle = guest.ends.is_empty() && guest.inbox.is_empty() && !guest.is_running;
        guest.bytes = if is_idle { 0 } else { guest.bytes + end };
        let (home, to) = (guest.home, guest.place);
        if fate != Fate::Open {
            // Nothing more is asked: the client ends.
            guest.is_running = false;
            guest.inbox.clear();
            client.ending = Ending::Open;
        }
        if let Some(shards) = &mut self.shards {
            let answer = Message::Answer { to, commands, database, fate };
            shards.seat.push(home, answer, &[&client.out.bytes()[..end]]);
        }
        client.sent = end;
        client.drop_sent();
    }

    /// SCAN by a cursor of all workers.
    pub(crate) fn scan_shard(
        &mut self,
        command: &Command,
        client: &mut Client,
        args: &[&[u8]],
    ) -> Outcome {
        let Some((_, own)) = self.shards.as_ref().and_then(|shards| shards.scanned(args)) else {
            return self.run_data(command, client, args, None);
        };
        let (own, from) = (own.to_string(), client.out.len());
        let mut args = args.to_vec();
        args[1] = own.as_bytes();
        let outcome = self.run_data(command, client, &args, None);
        let reply = &client.out.bytes()[from..];
        let next =
            self.shards.as_ref().and_then(|shards| with_cursor(reply, |own| shards.scan_next(own)));
        if let Some(reply) = next {
            client.out.truncate(from);
            client.out.raw(&reply);
        }
        outcome
    }
}

/// Notes where the reply of a guest's command ends, if it has ended.
fn end_if_done(client: &mut Client) {
    let (is_held, end) = (client.is_held(), client.out.len());
    if let Some(guest) = client.guest_mut().filter(|guest| guest.is_running && !is_held) {
        (guest.is_running, guest.is_part) = (false, false);
        guest.ends.push_back(end);
    }
}
