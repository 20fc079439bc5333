//! SUBSCRIBE, PSUBSCRIBE, PUBLISH and their relatives, among them those of shards (SSUBSCRIBE).
//!
//! A message is written into the buffer of every listener, in the version that it speaks, and leaves at the end of the
//! turn. What a listener does not read is bounded by `client-output-buffer-limit pubsub`; beyond it, it is cut off.

use super::channels::Kind;
use super::client::{Client, Ending, Key};
use super::server::{Server, wrong_arguments};
use crate::data::glob_matches;
use crate::event::KeyEvent;
use std::collections::BTreeSet;

/// What a client listens to, of one kind.
fn own(client: &mut Client, kind: Kind) -> &mut BTreeSet<Box<[u8]>> {
    match kind {
        Kind::Channel => &mut client.channels,
        Kind::Pattern => &mut client.patterns,
        Kind::Shard => &mut client.shard_channels,
    }
}

/// The words by which a kind is begun and ended.
fn verbs(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Channel => ("subscribe", "unsubscribe"),
        Kind::Pattern => ("psubscribe", "punsubscribe"),
        Kind::Shard => ("ssubscribe", "sunsubscribe"),
    }
}

/// Tells a client that it listens to a name, or no longer, and to how many: channels of shards are counted apart.
fn confirm(client: &mut Client, kind: Kind, verb: &str, name: Option<&[u8]>) {
    let count = match kind {
        Kind::Channel | Kind::Pattern => client.subscriptions(),
        Kind::Shard => client.shard_channels.len(),
    };
    let from = client.out.len();
    client.out.push(3);
    client.out.bulk(verb.as_bytes());
    match name {
        Some(name) => client.out.bulk(name),
        None => client.out.null(),
    }
    client.out.integer(count as i64);
    client.wrote_message(from);
}

impl Server {
    /// The client listens to nothing any more; it is sent nothing about it.
    pub(crate) fn unsubscribe_all(&mut self, client: &mut Client) {
        for name in std::mem::take(&mut client.channels) {
            self.channels.leave(Kind::Channel, &name, client.key);
        }
        for name in std::mem::take(&mut client.patterns) {
            self.channels.leave(Kind::Pattern, &name, client.key);
        }
        for name in std::mem::take(&mut client.shard_channels) {
            self.channels.leave(Kind::Shard, &name, client.key);
        }
        self.note_listeners();
    }

    /// Other workers send messages here as long as someone listens.
    fn note_listeners(&self) {
        if let Some(shards) = &self.shards {
            shards.seat.listen(self.channels.has_listeners());
        }
    }

    fn listen(&mut self, client: &mut Client, kind: Kind, names: &[&[u8]]) {
        for &name in names {
            if client.subscriptions() + client.shard_channels.len() >= self.config.subscriptions_max
            {
                client.out.error("ERR too many subscriptions of one client");
                break;
            }
            if own(client, kind).insert(name.into()) {
                self.channels.of(kind).entry(name.into()).or_default().push(client.key);
            }
            confirm(client, kind, verbs(kind).0, Some(name));
        }
        self.note_listeners();
    }

    fn leave(&mut self, client: &mut Client, kind: Kind, names: &[&[u8]]) {
        let all: Vec<Box<[u8]>> = if names.is_empty() {
            own(client, kind).iter().cloned().collect()
        } else {
            names.iter().map(|&name| name.into()).collect()
        };
        let verb = verbs(kind).1;
        if all.is_empty() {
            confirm(client, kind, verb, None);
        }
        for name in all {
            if own(client, kind).remove(&name) {
                self.channels.leave(kind, &name, client.key);
            }
            confirm(client, kind, verb, Some(&name));
        }
        self.note_listeners();
    }

    /// Sends a message to who listens to its channel; how many do.
    pub(crate) fn publish(
        &mut self,
        mut publisher: Option<&mut Client>,
        channel: &[u8],
        message: &[u8],
    ) -> i64 {
        let mut receivers = 0;
        for listener in self.channels.channels.get(channel).cloned().unwrap_or_default() {
            let parts = [&b"message"[..], channel, message];
            self.deliver(publisher.as_deref_mut(), listener, &parts);
            receivers += 1;
        }
        let patterns = self.channels.patterns.iter();
        let matching: Vec<(Box<[u8]>, Vec<Key>)> = patterns
            .filter(|(pattern, _)| glob_matches(pattern, channel))
            .map(|(pattern, listeners)| (pattern.clone(), listeners.clone()))
            .collect();
        for (pattern, listeners) in matching {
            for listener in listeners {
                let parts = [&b"pmessage"[..], &pattern, channel, message];
                self.deliver(publisher.as_deref_mut(), listener, &parts);
                receivers += 1;
            }
        }
        receivers
    }

    /// Keeps what a command did to keys until it may be published, if anyone listens: who begins to listen behind it
    /// is not meant.
    pub(crate) fn keep_events(&mut self, is_logged: bool) {
        let others_listen = || self.shards.as_ref().is_some_and(|shards| shards.has_listeners());
        if !self.channels.has_listeners() && !others_listen() {
            return self.effects.events.clear();
        }
        let record = if is_logged && self.journal.waits() { self.journal.current() } else { 0 };
        for event in self.effects.events.drain(..) {
            self.notifications.add(record, event);
        }
    }

    /// Publishes the events whose time has come. True if there were some: clients are noted that were sent something.
    pub(crate) fn publish_events(&mut self) -> bool {
        if !self.notifications.begin() {
            return false;
        }
        let durable = match self.journal.failed() {
            // What they say may be lost, as the ends of the writers' connections show.
            Some(_) => {
                self.notifications.clear();
                return false;
            }
            None => self.journal.durable(),
        };
        let mut is_any = false;
        while self.shards.as_mut().is_none_or(|shards| shards.listeners_have_room())
            && let Some(event) = self.notifications.next(durable)
        {
            self.publish_event(&event);
            is_any = true;
        }
        is_any
    }

    fn publish_event(&mut self, event: &KeyEvent) {
        let KeyEvent { database, name, key } = event;
        let wanted = self.config.events;
        if wanted.has_keyspace() {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            self.publish_everywhere(&channel, name.as_bytes());
        }
        if wanted.has_keyevent() {
            self.publish_everywhere(format!("__keyevent@{database}__:{name}").as_bytes(), key);
        }
    }

    fn publish_everywhere(&mut self, channel: &[u8], message: &[u8]) {
        self.publish(None, channel, message);
        if let Some(shards) = &mut self.shards {
            shards.publish_elsewhere(channel, message);
        }
    }

    /// Writes a message to one listener, the client that is being served perhaps.
    fn deliver(&mut self, client: Option<&mut Client>, listener: Key, parts: &[&[u8]]) {
        if let Some(client) = client.filter(|client| client.key == listener) {
            let from = client.out.len();
            self.write_message(client, parts);
            return client.wrote_message(from);
        }
        let Some(mut other) = self.clients.take(listener) else { return };
        self.write_message(&mut other, parts);
        self.clients.put_back(other);
        self.note(listener);
    }

    fn write_message(&mut self, listener: &mut Client, parts: &[&[u8]]) {
        if listener.ending != Ending::Open {
            return;
        }
        self.bound_output(listener);
        listener.out.push(parts.len());
        for part in parts {
            listener.out.bulk(part);
        }
        // It is cut off at once: a turn may have many messages.
        if self.is_beyond(listener) {
            self.stats.output_disconnections += 1;
            listener.ending = Ending::Abort;
        }
    }
}

pub(crate) fn subscribe(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    server.listen(client, Kind::Channel, &args[1..]);
}

pub(crate) fn psubscribe(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    server.listen(client, Kind::Pattern, &args[1..]);
}

pub(crate) fn unsubscribe(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    server.leave(client, Kind::Channel, &args[1..]);
}

pub(crate) fn punsubscribe(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    server.leave(client, Kind::Pattern, &args[1..]);
}

pub(crate) fn ssubscribe(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    server.listen(client, Kind::Shard, &args[1..]);
}

pub(crate) fn sunsubscribe(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    server.leave(client, Kind::Shard, &args[1..]);
}

pub(crate) fn publish(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let [_, channel, message] = *args else { return };
    let receivers = server.publish(Some(client), channel, message);
    client.out.integer(receivers);
}

pub(crate) fn spublish(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let [_, channel, message] = *args else { return };
    let listeners = server.channels.shards.get(channel).cloned().unwrap_or_default();
    for &listener in &listeners {
        server.deliver(Some(client), listener, &[b"smessage", channel, message]);
    }
    client.out.integer(listeners.len() as i64);
}

pub(crate) fn channels(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    list(server, client, Kind::Channel, args);
}

pub(crate) fn shardchannels(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    list(server, client, Kind::Shard, args);
}

fn list(server: &mut Server, client: &mut Client, kind: Kind, args: &[&[u8]]) {
    if args.len() > 3 {
        return client.out.error_bytes(&wrong_arguments(args));
    }
    let names: Vec<&[u8]> = server
        .channels
        .of(kind)
        .keys()
        .map(AsRef::as_ref)
        .filter(|name| args.get(2).is_none_or(|pattern| glob_matches(pattern, name)))
        .collect();
    client.out.array(names.len());
    names.iter().for_each(|name| client.out.bulk(name));
}

pub(crate) fn numsub(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    count(server, client, Kind::Channel, args);
}

pub(crate) fn shardnumsub(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    count(server, client, Kind::Shard, args);
}

fn count(server: &mut Server, client: &mut Client, kind: Kind, args: &[&[u8]]) {
    client.out.array((args.len() - 2) * 2);
    for &name in &args[2..] {
        client.out.bulk(name);
        client.out.integer(server.channels.of(kind).get(name).map_or(0, Vec::len) as i64);
    }
}

pub(crate) fn numpat(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    if client.is_part() {
        // Of all workers each pattern is counted once.
        client.out.array(server.channels.patterns.len());
        return server.channels.patterns.keys().for_each(|name| client.out.bulk(name));
    }
    client.out.integer(server.channels.patterns.len() as i64);
}
