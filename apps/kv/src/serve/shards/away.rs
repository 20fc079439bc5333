//! The side of the client's worker: sends commands away, keeps those that must wait, and takes the answers.

use super::super::OWED_BYTES_MAX;
use super::super::client::{Client, Ending, Replies};
use super::super::server::Server;
use super::apart::{Apart, Flight, Gather};
use super::exchange::{Asking, ClientRef, Fate, How, Message};
use super::join::join;
use super::reach::Reach;
use super::{FLIGHT_MAX, Route, Shards, slot_of};
use crate::command::Flags;
use laneway_resp::Protocol;

fn place(client: &Client) -> ClientRef {
    ClientRef { key: client.key, id: client.id }
}

impl Shards {
    /// What a client asks of another worker, which hears of it first if it has not yet.
    fn ask(&mut self, client: &mut Client, to: usize, asking: Asking, args: &[&[u8]]) {
        let (from, peer, local) = (place(client), client.peer, client.local);
        let apart = client.apart_mut();
        if apart.visited & 1 << to == 0 {
            apart.visited |= 1 << to;
            self.seat.push(to, Message::Visit { from, peer, local }, &[]);
        }
        self.seat.push(to, Message::Ask { from, asking, args: args.len() }, args);
    }
}

impl Server {
    /// True if a command must wait: for others of its client that are on their way, or for room in a queue. Without a
    /// route it is one that is refused.
    pub(crate) fn must_wait(&mut self, client: &Client, route: Option<Route>) -> bool {
        let Some(shards) = &mut self.shards else { return false };
        let flight = client.apart.as_ref().and_then(|apart| apart.flight);
        match (flight, route) {
            (None, Some(Route::To(_))) => {}
            (None, _) => return false,
            (Some(flight), Some(Route::To(to)))
                if flight.to == to
                    && !flight.is_alone
                    && flight.commands < FLIGHT_MAX
                    && client.replies == Replies::On => {}
            (Some(_), _) => return true,
        }
        let Some(Route::To(to)) = route else { return false };
        let is_crowded = shards.seat.is_full(to);
        if is_crowded {
            shards.crowded.push_back(client.key);
        }
        is_crowded
    }

    /// Keeps a command until it need not wait.
    pub(crate) fn defer(&mut self, client: &mut Client, args: &[&[u8]]) {
        client.apart_mut().deferred = Some(args.iter().map(|&arg| arg.into()).collect());
    }

    /// Does the command that was kept, if it need not wait any longer; false if it must.
    fn try_deferred(&mut self, client: &mut Client) -> bool {
        let deferred = client.apart.as_mut().and_then(|apart| apart.deferred.take());
        if let Some(args) = deferred
            && client.ending == Ending::Open
            && !client.out.is_cut()
        {
            let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
            self.dispatch(client, &args);
        }
        client.apart.as_ref().is_none_or(|apart| apart.deferred.is_none())
    }

    /// Has another worker do a command.
    pub(crate) fn send_away(
        &mut self,
        client: &mut Client,
        index: usize,
        args: &[&[u8]],
        to: usize,
    ) {
        let row = *self.table.row(index);
        let Some(shards) = &mut self.shards else { return };
        client.last = Some(index);
        let (database, protocol, user) = (client.database, client.out.protocol(), client.user);
        let asking = Asking { how: How::Whole, database, protocol, user };
        let is_transaction = row.command.name == "exec";
        if is_transaction && let Some(transaction) = client.transaction.take() {
            for kept in &transaction.queued {
                shards.ask(client, to, Asking { how: How::Queued, ..asking }, &kept.args());
            }
            // Its guest has what it watched, and forgets it with this.
            client.apart_mut().watched = None;
        }
        if row.command.name == "watch" {
            client.apart_mut().watched = args.get(1).map(|key| slot_of(key));
        }
        shards.ask(client, to, asking, args);
        let may_block = row.command.flags.has(Flags::BLOCKING);
        let flight = &mut client.apart_mut().flight;
        let (commands, bytes) = flight.map_or((0, 0), |flight| (flight.commands, flight.bytes));
        let commands = commands + 1;
        // A transaction may select another database.
        let is_alone = is_transaction || may_block;
        *flight = Some(Flight { to, commands, is_alone, may_block, bytes });
        if client.is_finished {
            self.finish_away(client);
        }
    }

    /// Has every worker, this one included, do its part of a command.
    pub(crate) fn lead(&mut self, client: &mut Client, index: usize, args: &[&[u8]]) {
        let Some(shards) = &mut self.shards else { return };
        client.last = Some(index);
        let (database, user) = (client.database, client.user);
        let asking = Asking { how: How::Part, database, protocol: Protocol::Resp2, user };
        let workers = shards.seat.workers();
        for to in 0..workers {
            shards.ask(client, to, asking, args);
        }
        let args = args.iter().map(|&arg| arg.into()).collect();
        client.apart_mut().gather = Some(Gather { index, args, parts: vec![None; workers] });
    }

    /// An answer of a worker for one of this worker's clients, or for a guest that leads.
    pub(super) fn answered(&mut self, from: usize, message: Message, bytes: &[u8]) {
        let Message::Answer { to, commands, database, fate } = message else { return };
        let Some(mut client) = self.clients.take(to.key) else { return };
        // The client may be gone, and another in its place.
        if client.id == to.id {
            self.take_answer(&mut client, from, (commands, database, fate), bytes);
            self.note_taken(&mut client);
        }
        self.clients.put_back(client);
    }

    fn take_answer(
        &mut self,
        client: &mut Client,
        from: usize,
        (commands, database, fate): (usize, usize, Fate),
        bytes: &[u8],
    ) {
        let is_wanted = !client.is_silent();
        self.bound_output(client);
        let Some(apart) = &mut client.apart else { return };
        if let Some(gather) = &mut apart.gather {
            if is_wanted && gather.bytes() + bytes.len() > client.out.bytes_max() {
                // The parts of one reply are bounded as it is.
                apart.gather = None;
                client.out.cut();
                return;
            }
            gather.parts[from] = Some(bytes.to_vec());
            if fate == Fate::CutOff {
                client.ending = Ending::Abort;
            }
            let is_whole =
                apart.gather.as_ref().is_some_and(|g| g.parts.iter().all(Option::is_some));
            if let Some(gather) = apart.gather.take_if(|_| is_whole)
                && is_wanted
            {
                let Reach::All(how) = self.table.row(gather.index).reach else { return };
                let args: Vec<&[u8]> = gather.args.iter().map(AsRef::as_ref).collect();
                let parts: Vec<Vec<u8>> = gather.parts.into_iter().flatten().collect();
                join(how, &args, &parts, &mut client.out);
            }
            return;
        }
        let Some(flight) = &mut apart.flight else { return };
        flight.commands = flight.commands.saturating_sub(commands);
        flight.bytes += bytes.len();
        let is_over = flight.commands == 0 || fate != Fate::Open;
        if flight.is_alone && is_over {
            client.database = database;
        }
        if is_over {
            apart.flight = None;
        }
        if is_wanted {
            client.out.raw(bytes);
        }
        match fate {
            Fate::Open => {}
            Fate::Closed => client.ending = Ending::Close,
            Fate::CutOff => client.ending = Ending::Abort,
        }
        if is_over {
            self.try_deferred(client);
        }
    }

    /// The peer of a client has finished sending: if a command of it waits for data elsewhere, it gets none.
    pub(crate) fn finish_away(&mut self, client: &mut Client) {
        let flight = client.apart.as_ref().and_then(|apart| apart.flight);
        if let Some(flight) = flight.filter(|flight| flight.may_block)
            && let Some(shards) = &mut self.shards
        {
            shards.seat.push(flight.to, Message::Finish(place(client)), &[]);
        }
    }

    /// The worker that has more for a client goes on, if the client has read most of what it was sent.
    pub(crate) fn ask_for_more(&mut self, client: &mut Client) {
        let (owed, from) = (client.owed(), place(client));
        let flight = client.apart.as_mut().and_then(|apart| apart.flight.as_mut());
        if let Some(flight) = flight.filter(|flight| flight.bytes > OWED_BYTES_MAX)
            && owed <= OWED_BYTES_MAX / 2
            && let Some(shards) = &mut self.shards
        {
            flight.bytes = 0;
            shards.seat.push(flight.to, Message::Read(from), &[]);
        }
    }

    /// What is watched here binds the slot of what is watched next, and of the transaction, as it does elsewhere.
    pub(crate) fn bind_watched(&mut self, client: &mut Client, args: &[&[u8]]) {
        if self.shards.is_some() && !client.is_guest() {
            client.apart_mut().watched = args.get(1).map(|key| slot_of(key));
        }
    }

    /// What a client watches elsewhere is forgotten there.
    pub(crate) fn unwatch_away(&mut self, client: &mut Client) {
        let (Some(shards), Some(apart)) = (&mut self.shards, &mut client.apart) else { return };
        let watcher = apart.watched_by(shards);
        apart.watched = None;
        if let Some(worker) = watcher.filter(|&worker| worker != shards.seat.worker()) {
            shards.seat.push(
                worker,
                Message::Unwatch(ClientRef { key: client.key, id: client.id }),
                &[],
            );
        }
    }

    /// Every guest of a client goes: it is gone, or begins anew.
    pub(crate) fn depart(&mut self, client: &mut Client) {
        let (Some(shards), Some(apart)) = (&mut self.shards, client.apart.take()) else { return };
        let gone = Message::Gone(ClientRef { key: client.key, id: client.id });
        for worker in (0..shards.seat.workers()).filter(|worker| apart.visited & 1 << worker != 0) {
            shards.seat.push(worker, gone, &[]);
        }
        // A guest stays one.
        client.apart =
            apart.guest.map(|guest| Box::new(Apart { guest: Some(guest), ..Apart::default() }));
    }

    /// Messages of this turn go on their way; a client that waited for room has its command tried again. True if one
    /// need not wait any longer.
    pub(crate) fn send_messages(&mut self) -> bool {
        let Some(shards) = &mut self.shards else { return false };
        shards.seat.flush();
        let crowded = std::mem::take(&mut shards.crowded);
        let mut is_any = false;
        for key in crowded {
            let Some(mut client) = self.clients.take(key) else { continue };
            if self.try_deferred(&mut client) {
                is_any = true;
                self.note_taken(&mut client);
            }
            self.clients.put_back(client);
        }
        is_any
    }
}
