//! Clients that wait: for data (BLPOP), and for the end of CLIENT PAUSE.
//!
//! A blocked client's command is kept and done again when one of its keys is touched, in the order in which clients
//! began to wait for that key; a value that is not of its kind leaves it waiting. Its input is paused meanwhile. Keys
//! that are touched by a command are served when that command, or the transaction it belongs to, is done.

use super::client::{Blocked, Client, Ending, Kept, Key, Nothing};
use super::server::{Server, wrong_arguments};
use super::table::keys_of;
use super::waiters::Pause;
use crate::command::{Command, Flags, Outcome};
use laneway_resp::integer;
use std::collections::HashSet;

impl Server {
    /// The client waits for the keys of this command.
    pub(crate) fn block(
        &mut self,
        client: &mut Client,
        index: usize,
        args: &[&[u8]],
        until_ms: Option<u64>,
        nothing: Nothing,
    ) {
        let mut known: HashSet<&[u8]> = HashSet::new();
        let named = keys_of(self.table.command(index).keys, args);
        let keys: Vec<Box<[u8]>> =
            named.into_iter().filter(|&key| known.insert(key)).map(Box::from).collect();
        for key in &keys {
            let waiting = self.waiters.by_key.entry((client.database, key.clone())).or_default();
            waiting.push_back(client.key);
        }
        if let Some(until_ms) = until_ms {
            self.waiters.by_time.insert((until_ms, client.key));
        }
        self.waiters.count += 1;
        let (call, database) = (Kept::new(index, args), client.database);
        client.blocked = Some(Box::new(Blocked { call, database, keys, until_ms, nothing }));
    }

    /// The client waits for data no longer; it is sent nothing about it.
    pub(crate) fn unblock(&mut self, client: &mut Client) -> Option<Box<Blocked>> {
        let blocked = client.blocked.take()?;
        for key in &blocked.keys {
            let key = (blocked.database, key.clone());
            if let Some(waiting) = self.waiters.by_key.get_mut(&key) {
                // Mostly the first: who has waited for the longest is served.
                if let Some(at) = waiting.iter().position(|&other| other == client.key) {
                    waiting.remove(at);
                }
                if waiting.is_empty() {
                    self.waiters.by_key.remove(&key);
                }
            }
        }
        if let Some(until_ms) = blocked.until_ms {
            self.waiters.by_time.remove(&(until_ms, client.key));
        }
        self.waiters.count -= 1;
        Some(blocked)
    }

    /// Serves the clients that wait for keys that were touched, as long as there is something to take.
    pub(crate) fn serve_waiters(&mut self) {
        while let Some(key) = self.waiters.next_ready() {
            // Commands for which nothing is left: a later client with the same command receives nothing either.
            let mut in_vain: Vec<usize> = Vec::new();
            let mut at = 0;
            while self.store.kind(key.0, &key.1).is_some()
                && let Some(&waiter) = self.waiters.by_key.get(&key).and_then(|all| all.get(at))
            {
                at += 1;
                let Some(mut client) = self.clients.take(waiter) else { continue };
                // One that is cut off takes nothing any more.
                let is_open = client.ending == Ending::Open;
                let blocked = client.blocked.as_ref().filter(|_| is_open);
                let index = blocked.map(|blocked| blocked.call.index);
                if let Some(index) = index.filter(|index| !in_vain.contains(index)) {
                    if self.try_again(&mut client, &key.1) {
                        // It waits no longer, so the next one has its place.
                        at -= 1;
                    } else {
                        in_vain.push(index);
                    }
                }
                self.clients.put_back(client);
            }
        }
    }

    /// Does a blocked client's command again, with the key that is ready. False: it waits on.
    fn try_again(&mut self, client: &mut Client, ready: &[u8]) -> bool {
        let Some(blocked) = client.blocked.take() else { return false };
        let command = self.table.command(blocked.call.index);
        if self.store.kind(blocked.database, ready) != Some(awaited_kind(&command)) {
            // To look at all that it asks for would take as long as it is, for every key that is touched.
            client.blocked = Some(blocked);
            return false;
        }
        let (from, args) = (client.out.len(), blocked.call.args());
        if self.fetch_now(&command, blocked.database, &args).is_err() {
            // As long as a value is lost there is nothing to take.
            drop(args);
            client.blocked = Some(blocked);
            return false;
        }
        self.bound_output(client);
        let database = std::mem::replace(&mut client.database, blocked.database);
        let outcome = self.run_data(&command, client, &args, Some(ready));
        client.database = database;
        if outcome != Outcome::Done {
            self.follow_effects(blocked.database, &args);
            client.blocked = Some(blocked);
            return false;
        }
        self.follow(blocked.database, &args, &command, client, from);
        client.blocked = Some(blocked);
        self.unblock(client);
        if client.is_silent() {
            client.leave_out(from);
        }
        self.note_taken(client);
        true
    }

    /// Answers a blocked client: what it waits for does not come.
    fn give_up(&mut self, key: Key, error: Option<&str>) -> bool {
        let Some(mut client) = self.clients.take(key) else { return false };
        let blocked = self.unblock(&mut client);
        if let Some(blocked) = &blocked {
            match error {
                _ if client.is_silent() => {}
                Some(text) => client.out.error(text),
                None if blocked.nothing == Nothing::Zero => client.out.integer(0),
                // Of every command, as in Redis 7.0; only inside EXEC is the nothing of BLMOVE a value.
                None => client.out.null_array(),
            }
            self.note_taken(&mut client);
        }
        self.clients.put_back(client);
        blocked.is_some()
    }

    /// Notes a client that is taken out of the table, because something was done for it: it is not idle.
    pub(crate) fn note_taken(&mut self, client: &mut Client) {
        client.active_us = self.time.now_us;
        if !std::mem::replace(&mut client.is_noted, true) {
            self.noted.push(client.key);
        }
    }

    /// Answers clients that have waited long enough, and ends a pause whose time is up.
    pub(crate) fn time_passed(&mut self) {
        let now_ms = self.time.now_ms();
        while let Some(&(until_ms, key)) = self.waiters.by_time.first() {
            if until_ms > now_ms {
                break;
            }
            if !self.give_up(key, None) {
                self.waiters.by_time.remove(&(until_ms, key));
            }
        }
        if self.waiters.pause.is_some_and(|pause| pause.until_ms <= now_ms) {
            self.end_pause();
        }
    }

    fn end_pause(&mut self) {
        self.waiters.pause = None;
        self.try_postponed();
    }

    /// Holds a client's command back.
    pub(crate) fn hold(&mut self, client: &mut Client, kept: Box<Kept>) {
        client.postponed = Some(kept);
        self.waiters.postponed.push(client.key);
        self.waiters.awaits_cluster |= self.is_cluster_full();
    }

    /// Does the commands that were held back, if what held them has an end: at the end of every turn. That end may be
    /// anywhere in a turn, where a client makes room for its own command, so it is not looked for there. True if there
    /// were some.
    pub(crate) fn try_held(&mut self) -> bool {
        // In front of a cluster what a pause lets pass is held back, too.
        let may_be_due = self.waiters.pause.is_none() || self.waiters.awaits_cluster;
        may_be_due && !self.holds_writes() && !self.is_cluster_full() && self.try_postponed()
    }

    /// Does the commands that were held back and are so no longer, in their order. True if there were some.
    fn try_postponed(&mut self) -> bool {
        let postponed = std::mem::take(&mut self.waiters.postponed);
        self.waiters.awaits_cluster = false;
        postponed.into_iter().filter(|&key| self.try_kept(key)).count() > 0
    }

    /// Does a command that was kept, unless it is held back. True if it is kept no longer.
    pub(crate) fn try_kept(&mut self, key: Key) -> bool {
        let Some(mut client) = self.clients.take(key) else { return false };
        let kept = client.postponed.take();
        // One that is cut off has no command done any more.
        if let Some(kept) = kept.filter(|_| client.ending == Ending::Open) {
            if let Some(admitted) = self.admit_kept(&client, &kept) {
                let before = client.out.len();
                match admitted {
                    Ok(()) => self.call(&mut client, kept.index, &kept.args()),
                    Err(why) => self.refuse(&mut client, Some(kept.index), why.as_bytes()),
                }
                if client.is_silent() {
                    client.leave_out(before);
                }
                self.note_taken(&mut client);
            } else {
                self.hold(&mut client, kept);
            }
        }
        let is_done = client.postponed.is_none();
        self.clients.put_back(client);
        self.serve_waiters();
        is_done
    }

    /// Admits a command again that was kept, because rights and room may be others by now; nothing while it is held
    /// back.
    fn admit_kept(&mut self, client: &Client, kept: &Kept) -> Option<Result<(), String>> {
        let (index, args) = (kept.index, kept.args());
        if self.holds_back(client, index, &args) {
            return None;
        }
        let admitted = self.why_not_now(client, index, &args);
        // What was done before it in this turn may have taken the room.
        let is_held = admitted.is_ok() && self.holds_back(client, index, &args);
        (!is_held).then_some(admitted)
    }

    /// Why a command that was admitted before may not be done now.
    fn why_not_now(&mut self, client: &Client, index: usize, args: &[&[u8]]) -> Result<(), String> {
        let command = self.table.command(index);
        if !command.flags.has(Flags::NO_AUTH)
            && let Err(denied) = self.users.may(client.user, index, &command, args)
        {
            let is_in_multi = client.transaction.is_some();
            self.note_denied(client, denied.what(command.name), is_in_multi);
            return Err(denied.text(command.name));
        }
        self.why_no_room_here(client, index, args)
    }
}

/// The kind of value that a command waits for, as TYPE says it.
fn awaited_kind(command: &Command) -> &'static str {
    if command.categories.contains(&"sortedset") { "zset" } else { "list" }
}

/// When a time is over that is not negative, and not more than can be counted; else why it is none.
fn until_ms(arg: &[u8], now_ms: u64) -> Result<u64, &'static str> {
    let timeout = integer(arg).ok_or("ERR timeout is not an integer or out of range")?;
    let timeout_ms = u64::try_from(timeout).map_err(|_| "ERR timeout is negative")?;
    let until_ms = now_ms.checked_add(timeout_ms).filter(|ms| *ms <= i64::MAX as u64);
    until_ms.ok_or("ERR timeout is out of range")
}

/// No replica is there to have what was written, so the time of a client that waits for one passes.
pub(crate) fn wait(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let Some(replicas) = integer(args[1]) else {
        return client.out.error("ERR value is not an integer or out of range");
    };
    let now_ms = server.time.now_ms();
    let until_ms = match until_ms(args[2], now_ms) {
        Ok(until_ms) => (until_ms > now_ms).then_some(until_ms),
        Err(why) => return client.out.error(why),
    };
    match client.last {
        Some(index) if replicas > 0 => {
            server.block(client, index, args, until_ms, Nothing::Zero);
        }
        _ => client.out.integer(0),
    }
}

pub(crate) fn client_pause(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    if args.len() > 4 {
        return client.out.error_bytes(&wrong_arguments(args));
    }
    let holds_all = match args.get(3) {
        None => true,
        Some(word) if word.eq_ignore_ascii_case(b"all") => true,
        Some(word) if word.eq_ignore_ascii_case(b"write") => false,
        Some(_) => return client.out.error("ERR CLIENT PAUSE mode must be WRITE or ALL"),
    };
    let until_ms = match until_ms(args[2], server.time.now_ms()) {
        Ok(until_ms) => until_ms,
        Err(why) => return client.out.error(why),
    };
    // A pause in force is never shortened nor weakened by another.
    let former = server.waiters.pause;
    server.waiters.pause = Some(Pause {
        until_ms: former.map_or(until_ms, |former| former.until_ms.max(until_ms)),
        holds_all: holds_all || former.is_some_and(|former| former.holds_all),
    });
    client.out.ok();
}

pub(crate) fn client_unpause(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.ok();
    // What was held back is done at the end of the turn: it may be a message to this client.
    server.waiters.pause = None;
}

pub(crate) fn client_unblock(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let error = match args.get(3) {
        None => None,
        Some(word) if word.eq_ignore_ascii_case(b"timeout") => None,
        Some(word) if word.eq_ignore_ascii_case(b"error") => {
            Some("UNBLOCKED client unblocked via CLIENT UNBLOCK")
        }
        Some(_) => {
            return client.out.error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        }
    };
    let Some(id) = integer(args[2]) else {
        return client.out.error("ERR value is not an integer or out of range");
    };
    let key = u64::try_from(id).ok().and_then(|id| match client.is_guest() {
        false => server.clients.key_of_id(id),
        // Of several workers, the one that has the keys has the clients that wait for them.
        true => server.clients.waiting_guest(id).or_else(|| server.clients.key_of_id(id)),
    });
    let is_freed = key.is_some_and(|key| server.give_up(key, error));
    client.out.integer(is_freed.into());
}
