//! The server in front of a cluster: which commands are done here, which there, and what becomes of the answers.
//!
//! Whether a value may be kept and read is decided by [`Cover`]; its module says why. A client has one command at the
//! cluster at a time, and is held until its answer is here: so its commands take effect and are answered in order.

use super::client::{Client, Kept};
use super::front::{Kind, Manner, Waiter, manner};
use super::server::Server;
use super::shards::slot_of;
use super::table::keys_of;
use crate::command::{Flags, Run};
use crate::upstream::{Answer, Report, Way};
use laneway_resp::{Reply, Value, command};

impl Server {
    /// True while no further command is to be sent to the cluster.
    pub(crate) fn is_cluster_full(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.is_full())
    }

    /// True if a command cannot be done without the cluster.
    pub(crate) fn needs_cluster(&self, index: usize, args: &[&[u8]]) -> bool {
        let row = self.table.command(index);
        match manner(&row) {
            Manner::Here | Manner::Refused => false,
            Manner::Read => !self.has_copies(&keys_of(row.keys, args)),
            Manner::Through => true,
        }
    }

    /// True if copies of all these keys, which are of one slot, are here and may be read.
    fn has_copies(&self, keys: &[&[u8]]) -> bool {
        let (Some(front), now_ms) = (&self.front, self.time.now_ms()) else { return false };
        let (slot, now_us) = (keys.first().map_or(0, |key| slot_of(key)), front.far.now_us());
        !keys.is_empty()
            && keys.iter().all(|key| {
                // At its deadline a value is the cluster's again: it may live there for some microseconds more.
                let ends_ms = self.store.deadline_ms(0, key);
                let lives = ends_ms.is_some_and(|at| at.is_none_or(|at_ms| at_ms > now_ms));
                lives && front.cover.may_read(slot, key, now_us)
            })
    }

    /// Asks the cluster what a client's command says; false if the store here may do it.
    pub(crate) fn ask_cluster(
        &mut self,
        client: &mut Client,
        index: usize,
        args: &[&[u8]],
    ) -> bool {
        let row = self.table.command(index);
        let is_here = !self.needs_cluster(index, args);
        let (keys, now_ms) = (keys_of(row.keys, args), self.time.now_ms());
        let Some(front) = &mut self.front else { return false };
        if is_here {
            front.counts.hits += 1;
            return false;
        }
        if manner(&row) == Manner::Read && row.keys.last == 1 {
            let slot = slot_of(keys[0]);
            front.counts.fills += 1;
            front.cover.begin_fill(slot, keys[0], front.next_id);
            let (mut value, mut ends) = (Vec::new(), Vec::new());
            command(&[b"GET", keys[0]], &mut value);
            command(&[b"PTTL", keys[0]], &mut ends);
            let commands = vec![value, ends];
            let kind = Kind::Fill { call: Kept::new(index, args), asked_ms: now_ms };
            let waiter = Waiter::new(client, index, slot, &commands, kind);
            front.ask(client, waiter, Way::Fill, commands);
            return true;
        }
        self.pass_through(client, index, args);
        true
    }

    /// Has the node of a command's keys do it.
    fn pass_through(&mut self, client: &mut Client, index: usize, args: &[&[u8]]) {
        let row = self.table.command(index);
        let keys = keys_of(row.keys, args);
        let Some(front) = &mut self.front else { return };
        let slot = keys.first().map_or(0, |key| slot_of(key));
        front.counts.through += 1;
        let mut written: Vec<Box<[u8]>> = Vec::new();
        let mut spoiled = Vec::new();
        if row.flags.has(Flags::WRITE) {
            for key in keys {
                if front.cover.begin_write(slot, key) {
                    spoiled.push(Box::from(key));
                }
                written.push(key.into());
            }
        }
        let mut bytes = Vec::new();
        command(args, &mut bytes);
        let commands = vec![bytes];
        let way = Way::Through(client.out.protocol());
        let waiter = Waiter::new(client, index, slot, &commands, Kind::Through { written });
        front.ask(client, waiter, way, commands);
        self.drop_values(&spoiled);
    }

    /// Takes values out of the store.
    fn drop_values(&mut self, keys: &[Box<[u8]>]) {
        for key in keys {
            self.apply_here(&[b"del", key]);
        }
    }

    /// Has the store do a command that no client asked for; false if it does not take it.
    fn apply_here(&mut self, args: &[&[u8]]) -> bool {
        let row = self.table.index_of(args[0]).map(|index| self.table.command(index).run);
        let Some(Run::Data(run)) = row else { return false };
        let mut reply = Reply::default();
        self.restore(run, 0, args, &mut reply);
        reply.bytes().first() != Some(&b'-')
    }

    /// Hands over what this turn asks.
    pub(crate) fn send_to_cluster(&mut self) {
        if let Some(front) = self.front.as_mut().filter(|front| !front.outbox.is_empty()) {
            front.far.ask(front.outbox.drain(..));
        }
    }

    /// Hears what the cluster has to say, in its order.
    pub(crate) fn read_cluster(&mut self) {
        while let Some(report) = self.front.as_mut().and_then(|front| front.far.report()) {
            self.hear(report);
        }
    }

    fn hear(&mut self, report: Report) {
        let Some(front) = &mut self.front else { return };
        let gone = front.cover.apply(&report, slot_of);
        front.counts.invalidated += gone.len() as u64;
        front.counts.lost +=
            u64::from(matches!(report, Report::Lost { .. } | Report::Owner { .. }));
        let mut ended = None;
        if let Report::Answer { id, answer } = report {
            front.counts.failed += u64::from(matches!(answer, Answer::Failed(_)));
            ended = front.waiters.remove(&id).map(|waiter| (id, waiter, answer));
        }
        self.drop_values(&gone);
        if let Some((id, waiter, answer)) = ended {
            self.answered_by_cluster(id, waiter, answer);
        }
    }

    fn answered_by_cluster(&mut self, id: u64, waiter: Waiter, answer: Answer) {
        let Some(front) = &mut self.front else { return };
        let Waiter { client: (key, number), index, slot, bytes, kind } = waiter;
        front.asked_bytes -= bytes;
        if let Kind::Through { written } = &kind {
            written.iter().for_each(|key| front.cover.end_write(key));
        }
        // One that is gone left its place to another, perhaps; its command was done all the same.
        let is_his = |one: &Client| one.id == number && one.awaited == Some(id);
        let waits = self.clients.get(key).is_some_and(is_his);
        let mut client = if waits { self.clients.take(key) } else { None };
        let from = client.as_ref().map_or(0, |client| client.out.len());
        if let Some(client) = &mut client {
            client.awaited = None;
            self.bound_output(client);
        }
        match (kind, answer) {
            (Kind::Fill { call, asked_ms }, Answer::Filled { value, left_ms, is_covered }) => {
                self.fill(
                    id,
                    slot,
                    &call,
                    asked_ms,
                    value,
                    left_ms,
                    is_covered,
                    client.as_deref_mut(),
                );
            }
            (Kind::Fill { call, .. }, answer) => {
                if let Some(front) = &mut self.front {
                    front.cover.end_fill(&call.args[1], id);
                }
                reply(client.as_deref_mut(), answer);
            }
            (Kind::Through { .. }, answer) => reply(client.as_deref_mut(), answer),
        }
        let Some(mut client) = client else { return };
        if client.out.bytes().get(from) == Some(&b'-') {
            self.table.row(index).failed += 1;
            self.count_error(&client, from);
        }
        if client.is_silent() {
            client.leave_out(from);
        }
        self.note_taken(&mut client);
        self.clients.put_back(client);
    }

    /// A fetched value is here: the client's command is done on it, and it stays if it may.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answer")]
    fn fill(
        &mut self,
        id: u64,
        slot: u16,
        call: &Kept,
        asked_ms: u64,
        value: Value,
        left_ms: i64,
        is_covered: bool,
        client: Option<&mut Client>,
    ) {
        let key = call.args[1].clone();
        let Some(front) = &mut self.front else { return };
        let has_ticket = front.cover.end_fill(&key, id);
        front.cover.forget(slot, &key);
        self.apply_here(&[b"del", &key]);
        let is_there = matches!(value, Value::Bulk(_));
        if let Value::Bulk(bytes) = &value {
            let ends = u64::try_from(left_ms).ok().map(|left_ms| asked_ms.saturating_add(left_ms));
            let at = ends.unwrap_or_default().clamp(1, i64::MAX as u64).to_string();
            let args: [&[u8]; 5] = [b"set", &key, bytes, b"pxat", at.as_bytes()];
            if !self.apply_here(if ends.is_some() { &args } else { &args[..3] }) {
                // It is longer than any here: the node does the command itself.
                if let Some(client) = client {
                    self.pass_through(client, call.index, &call.args());
                }
                return;
            }
        }
        if let Some(client) = client {
            // The value was there when the node was asked, so its deadline has not passed for this reader.
            let now_us = std::mem::replace(&mut self.time.now_us, asked_ms * 1000);
            self.call_data(client, call.index, &call.args());
            self.time.now_us = now_us;
        }
        let Some(front) = &mut self.front else { return };
        // -2: it went between the two commands.
        if has_ticket && is_covered && is_there && left_ms != -2 {
            front.cover.keep(slot, &key);
            if !self.is_out_of_memory() {
                return;
            }
        }
        let Some(front) = &mut self.front else { return };
        front.counts.not_kept += u64::from(is_there);
        front.cover.forget(slot, &key);
        self.apply_here(&[b"del", &key]);
    }
}

/// Gives a client the node's reply, or the error that stands for one.
fn reply(client: Option<&mut Client>, answer: Answer) {
    let Some(client) = client else { return };
    match answer {
        Answer::Raw(bytes) => client.out.raw(&bytes),
        Answer::Failed(text) => client.out.error(&text),
        Answer::Filled { .. } => client.out.error("ERR a value is the answer to no such command"),
    }
}
