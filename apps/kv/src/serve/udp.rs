//! GET over UDP, as the server answers it: rights, the data, the log, and the kernel half's cache.
//!
//! A datagram asks as the default user does, which needs no password then, and of database 0. An answer that tells of a
//! write which must be durable first waits for the log like a connection's. What is put into the cache is what was just
//! answered, if it has no deadline and nothing of it waits; what changes a key makes the cache forget it in the same
//! turn ([`Server::follow_effects`]), and a command of operators, which may change the rights of users, makes it forget
//! all.

use super::datagrams::{Datagrams, Waiting};
use super::server::Server;
use super::table::Found;
use crate::command::{Call, Run};
use crate::data::Store;
use crate::get::{Fate, HEAD_BYTES, ONLY_GET, Request, begin, fit};
use laneway_core::{Counters, Datagram, DatagramOut, DropReason, PortId};
use laneway_resp::Reply;
use std::net::SocketAddr;

/// Answers that wait for the log, at most.
const WAITING_MAX: usize = 1024;

impl Server {
    /// Answers a batch of datagrams, of which each may be a train.
    pub(crate) fn on_datagrams<O: DatagramOut>(
        &mut self,
        batch: &[Datagram<'_>],
        counters: &mut Counters,
        out: &mut O,
    ) {
        self.send_durable(counters, out);
        for datagram in batch {
            // A datagram without bytes is one all the same.
            let pieces = datagram.payload.chunks(datagram.segment_bytes.max(1));
            let empty = datagram.payload.is_empty().then_some(&[][..]);
            for piece in pieces.chain(empty) {
                counters.rx_frames += 1;
                counters.rx_bytes += piece.len() as u64;
                let fate = self.on_datagram(piece, datagram, counters, out);
                if let Some(fate) = fate {
                    self.datagrams.fates[fate.index()] += 1;
                    match fate {
                        Fate::Hit | Fate::Miss | Fate::TooLong | Fate::Error => {}
                        Fate::Source => counters.drop_one(DropReason::Filtered),
                        Fate::NotDurable => counters.drop_one(DropReason::SinkFull),
                        Fate::Short | Fate::Header | Fate::Cut | Fate::Garbage => {
                            counters.drop_one(DropReason::Malformed);
                        }
                    }
                }
            }
        }
    }

    /// Answers one datagram; its fate, unless its answer waits.
    fn on_datagram<O: DatagramOut>(
        &mut self,
        piece: &[u8],
        of: &Datagram<'_>,
        counters: &mut Counters,
        out: &mut O,
    ) -> Option<Fate> {
        let is_allowed = self
            .datagrams
            .allowed
            .as_ref()
            .is_some_and(|list| list.lets(of.source, of.destination));
        // One forged datagram to a subnet would have every host there answer its source.
        if !is_allowed || of.is_broadcast {
            return Some(Fate::Source);
        }
        let mut requests = std::mem::take(&mut self.datagrams.requests);
        let mut reply = std::mem::take(&mut self.datagrams.reply);
        begin(&mut reply);
        let outcome = match requests.read(piece) {
            Request::None(fate) => Err(fate),
            Request::Other => {
                reply.error(ONLY_GET);
                Ok(None)
            }
            Request::Get(key) => Ok(self.get_over_udp(key, &mut reply)),
        };
        let fate = match outcome {
            Err(fate) => Some(fate),
            Ok(record) => {
                let fate = fit(&mut reply, piece.len());
                let parts = [&piece[..HEAD_BYTES], reply.bytes()];
                match record {
                    None => {
                        send(parts, of.ingress, of.source, counters, out);
                        Some(fate)
                    }
                    Some(_) if self.datagrams.waiting.len() >= WAITING_MAX => {
                        Some(Fate::NotDurable)
                    }
                    Some(record) => {
                        let bytes = parts.concat().into();
                        let (port, to) = (of.ingress, of.source);
                        self.datagrams.waiting.push_back(Waiting { record, port, to, fate, bytes });
                        None
                    }
                }
            }
        };
        self.datagrams.requests = requests;
        self.datagrams.reply = reply;
        fate
    }

    /// Sends the answers whose records are durable by now.
    fn send_durable<O: DatagramOut>(&mut self, counters: &mut Counters, out: &mut O) {
        if self.datagrams.waiting.is_empty() {
            return;
        }
        if self.journal.failed().is_some() {
            counters.drop_many(DropReason::SinkFull, self.datagrams.waiting.len() as u64);
            return self.datagrams.give_up();
        }
        let durable = self.journal.durable();
        let Datagrams { waiting, fates, .. } = &mut self.datagrams;
        // Later ones may wait for earlier records: each for that of its key.
        waiting.retain(|one| {
            let is_durable = one.record <= durable;
            if is_durable {
                fates[one.fate.index()] += 1;
                send([&one.bytes, &[]], one.port, one.to, counters, out);
            }
            !is_durable
        });
    }

    /// Does a GET as the default user; the record that its reply waits for.
    fn get_over_udp(&mut self, key: &[u8], reply: &mut Reply) -> Option<u64> {
        let args = [&b"get"[..], key];
        let Found::Row(index) = self.table.find(&args) else { unreachable!("GET is in the table") };
        let command = self.table.command(index);
        let Run::Data(run) = command.run else { unreachable!("GET is of the data") };
        if !self.users.default_needs_no_password() {
            reply.error("NOAUTH Authentication required.");
            return None;
        }
        if let Err(denied) = self.users.of(0).may(index, &command, &args) {
            let text = denied.text(command.name);
            reply.error(&text);
            return None;
        }
        self.stats.commands += 1;
        self.table.row(index).calls += 1;
        self.begin_effects(false);
        let (store, effects, now_ms) = (&mut self.store, &mut self.effects, self.time.now_ms());
        run(&mut Call { args: &args, store, database: 0, reply, now_ms, ready: None, effects });
        let is_logged = self.follow_effects(0, &args);
        if self.journal.waits() {
            let record = if is_logged {
                Some(self.journal.current())
            } else {
                self.journal.unfinished(0, key)
            };
            let record = record.filter(|&record| record > self.journal.durable());
            if record.is_some() {
                return record;
            }
        }
        if let Some(cache) = &mut self.datagrams.cache
            && reply.bytes().first() == Some(&b'$')
            && !reply.is_cut()
            && is_lasting(&self.store, key)
        {
            cache.fill(key, reply.bytes());
        }
        None
    }
}

/// True if the key is there and has no deadline.
fn is_lasting(store: &Store, key: &[u8]) -> bool {
    store.deadline_ms(0, key) == Some(None)
}

fn send<O: DatagramOut>(
    parts: [&[u8]; 2],
    port: PortId,
    to: SocketAddr,
    counters: &mut Counters,
    out: &mut O,
) {
    let bytes = parts[0].len() + parts[1].len();
    counters.tx_frames += 1;
    counters.tx_bytes += bytes as u64;
    out.send(port, to, bytes, |room| {
        // Less room than asked for: nothing that is cut is sent.
        let Some(room) = room.get_mut(..bytes) else { return 0 };
        let (first, rest) = room.split_at_mut(parts[0].len());
        first.copy_from_slice(parts[0]);
        rest.copy_from_slice(parts[1]);
        bytes
    });
}
