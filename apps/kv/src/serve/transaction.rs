//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! A transaction's commands are kept until EXEC and then done without anything in between; what they change is in one
//! record of the log, as everything of a turn is. Those alone are in several whose log is longer than what was given
//! (SPOP of millions of members), where together it is more than a record may have. A watched key that became another
//! spoils its watchers' transactions, whichever client changed it.

use super::client::{Client, DataKey, Kept, Nothing, Transaction};
use super::log::logged_bytes;
use super::server::Server;
use super::watched::Watcher;

/// Keys that one client may watch.
const WATCHED_MAX: usize = 1 << 16;

impl Server {
    /// The client watches nothing any more.
    pub(crate) fn unwatch_all(&mut self, client: &mut Client) {
        self.unwatch_away(client);
        for key in client.watching.drain(..) {
            self.watched.forget(&key, client.key);
        }
        client.is_spoiled = false;
        self.watched.spoiled.remove(&client.key);
    }

    /// True if a watched key is another now. One whose time is up is gone, deleted already or not.
    fn is_spoiled(&self, client: &Client) -> bool {
        let now_ms = self.time.now_ms();
        let is_due = |key: &DataKey| {
            self.store.is_due(key.0, &key.1, now_ms) && self.watched.was_there(key, client.key)
        };
        client.is_spoiled
            || self.watched.spoiled.contains(&client.key)
            || client.watching.iter().any(is_due)
    }
}

pub(crate) fn multi(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    if client.transaction.is_some() {
        return client.out.error("ERR MULTI calls can not be nested");
    }
    client.transaction = Some(Box::new(Transaction::default()));
    client.out.ok();
}

pub(crate) fn discard(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    if client.transaction.take().is_none() {
        return client.out.error("ERR DISCARD without MULTI");
    }
    server.unwatch_all(client);
    client.out.ok();
}

pub(crate) fn exec(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    let Some(transaction) = client.transaction.take() else {
        return client.out.error("ERR EXEC without MULTI");
    };
    let is_spoiled = server.is_spoiled(client);
    server.unwatch_all(client);
    if transaction.is_broken {
        return client.out.error("EXECABORT Transaction discarded because of previous errors.");
    }
    if is_spoiled {
        return client.out.null_array();
    }
    let of_call = |kept: &Kept| logged_bytes(kept.args.iter().map(|arg| arg.len()));
    let bytes: usize = transaction.queued.iter().map(of_call).sum();
    // A transaction is in one record whole, as far as it is logged as it was given.
    if !server.journal.make_room(bytes) {
        let text =
            format!("EXECABORT Transaction discarded: the log takes no {bytes} bytes at once");
        return client.out.error(&text);
    }
    let from = client.out.len();
    client.out.array(transaction.queued.len());
    for kept in &transaction.queued {
        server.call_inside(client, kept.index, &kept.args());
    }
    // The first element that waits holds back the whole reply.
    if let Some(wait) = client.waits.iter_mut().find(|(at, _)| *at > from) {
        wait.0 = from;
    }
}

impl Server {
    /// Does a command of a transaction: rights may have changed since it was queued, and nothing waits.
    fn call_inside(&mut self, client: &mut Client, index: usize, args: &[&[u8]]) {
        let command = self.table.command(index);
        if let Err(denied) = self.users.may(client.user, index, &command, args) {
            self.note_denied(client, denied.what(command.name), true);
            return client.out.error(&denied.text_at_exec());
        }
        if command.name == "ssubscribe" {
            // The words of Redis, which takes no other subscription for a wait.
            let text = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client";
            return client.out.error(text);
        }
        self.call(client, index, args);
        match self.unblock(client).map(|blocked| blocked.nothing) {
            None => {}
            Some(Nothing::Array) => client.out.null_array(),
            Some(Nothing::Value) => client.out.null(),
            Some(Nothing::Zero) => client.out.integer(0),
        }
    }
}

pub(crate) fn watch(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    if client.transaction.is_some() {
        return client.out.error("ERR WATCH inside MULTI is not allowed");
    }
    if client.watching.len() + args.len() > WATCHED_MAX {
        return client.out.error("ERR too many watched keys, EXEC or UNWATCH first");
    }
    let database = client.database;
    for &key in &args[1..] {
        server.begin_effects(false);
        let now_ms = server.time.now_ms();
        // A key that is due goes before it is watched, not behind it as if another had deleted it, unless clients are
        // paused.
        let was_there = server.store.has(database, key, now_ms, &mut server.effects);
        server.follow_effects(database, &[]);
        let key: DataKey = (database, key.into());
        let watchers = server.watched.by_key.entry(key.clone()).or_default();
        if watchers.iter().all(|watcher| watcher.client != client.key) {
            watchers.push(Watcher { client: client.key, was_there });
            client.watching.push(key);
        }
    }
    server.bind_watched(client, args);
    client.out.ok();
}

pub(crate) fn unwatch(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    server.unwatch_all(client);
    client.out.ok();
}
