//! The server: clients and what they may, transactions, messages, blocked clients, and what operators ask.
//!
//! ```text
//!   lane ─ on_bytes ─▶ parser ─▶ Server::dispatch ─▶ the client's buffer ─ settle ─▶ lane's send queue
//!                                     ╰─ effects ─▶ the turn's record ─ on_turn_end ─▶ log ─ bell ─▶ settle
//! ```
//!
//! [`Kv`] is the part that knows the lane. What must always hold: replies of a client leave in the order of its
//! commands; what a client has not read is bounded, and beyond the bound no more of it is read; whatever a client is in
//! the middle of ends with its connection.

mod access;
mod acl;
mod blocked;
mod channels;
mod client;
mod config;
mod connection;
mod datagrams;
mod denied;
mod describe;
mod fetch;
mod fetching;
mod front;
mod info_line;
mod key;
mod log;
mod messages;
mod notifications;
mod operate;
mod rows;
mod save;
mod saving;
mod server;
mod shards;
mod slow;
mod table;
mod transaction;
mod udp;
mod upstream;
mod users;
mod waiters;
mod watched;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{START_US, World, answer, answers};

pub use config::{ClientsMemory, Config, OutputLimit};
pub(crate) use config::{bytes_of, policy};
pub use log::{Fsync, Log, LogBytes, NotTaken, Snapshot, Syncs};
pub(crate) use shards::slot_of;
pub use shards::{Exchange, Seat};

use crate::command::Run;
use crate::data::{Store, ValueStore};
use crate::get::Allowed;
use crate::get::cache::{Cache, CacheSetup};
use crate::upstream::Far;
use client::{Client, Ending, Key};
use datagrams::Datagrams;
use laneway_core::{
    App, Close, ConnId, Counters, Datagram, DatagramOut, KernelHalf, KernelMaps, LaneError, Opened,
    StreamApp, StreamOut, Turn,
};
use laneway_resp::{Limits, Parser, ProtocolError, Reply};
use laneway_tls::Counts;
use log::Journal;
use server::{Server, Time};
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use table::Found;

/// What a server starts with.
pub struct Setup {
    /// The configuration.
    pub config: Config,
    /// The default user's password.
    pub password: Option<String>,
    /// The data, as recovered or empty.
    pub store: Store,
    /// Reads the time: microseconds since 1970.
    pub now_us: Box<dyn Fn() -> u64>,
    /// Names this run of the server; 40 letters.
    pub run_id: String,
}

/// The store as a stream app: one worker's clients, and all of its data.
pub struct Kv {
    server: Server,
    counters: Counters,
    /// Borrowed by the client that is being served.
    scratch: Reply,
    /// The memory of the arguments of a command.
    argv: Vec<&'static [u8]>,
    /// Clients with replies that wait for a record, in the order of records.
    releases: BTreeSet<(u64, Key)>,
    /// When clients that do nothing, or read nothing, were looked for last.
    patrol_us: u64,
    /// When the last upkeep of one of several workers was.
    upkeep_us: u64,
    /// Of the last turn, by the lane's clock and by ours.
    turn_ns: u64,
    turn_us: u64,
    accepted: u64,
    failed: u64,
    /// What is done when the log has failed; nothing once it was done.
    log_fails: Option<LogFails>,
}

/// Hears why the log takes no more.
type LogFails = Box<dyn FnOnce(&str)>;

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("clients", &self.server.clients.len()).finish_non_exhaustive()
    }
}

/// Beyond so many bytes of output that a client has not read, no more of its input is read until half of them are gone.
const OWED_BYTES_MAX: usize = 16 << 20;
/// Memory of replies that is kept while nothing is owed: for all clients together, and for one.
const SCRATCH_BYTES_MAX: usize = 1 << 20;
const IDLE_OUT_BYTES_MAX: usize = 4 << 10;
/// How often clients are looked at that do nothing.
const PATROL_US: u64 = 500_000;
/// How often one of several workers does its upkeep at most.
const UPKEEP_US: u64 = 1_000;

impl Kv {
    /// A server with these data.
    pub fn new(setup: Setup) -> Kv {
        let Setup { config, password, mut store, now_us, run_id } = setup;
        *store.settings_mut() = config.data.clone();
        let (table, does) = rows::all();
        let users = users::Users::new(&table, password.as_deref());
        let started_us = now_us();
        let time = Time { read_us: now_us, now_us: started_us, is_read: false, started_us };
        let effects = crate::Effects { wants_events: config.events, ..crate::Effects::default() };
        let server = Server {
            config,
            table,
            does,
            store,
            users,
            time,
            run_id,
            tls: None,
            clients: client::Clients::default(),
            channels: channels::Channels::default(),
            waiters: waiters::Waiters::default(),
            watched: watched::Watched::default(),
            journal: Journal::default(),
            saving: saving::Saving::default(),
            fetching: fetching::Fetching::default(),
            slowlog: slow::Slowlog::default(),
            attempts: denied::Attempts::default(),
            stats: server::Stats::default(),
            datagrams: Datagrams::default(),
            effects,
            notifications: notifications::Notifications::default(),
            changes: 0,
            noted: Vec::new(),
            is_stopping: false,
            shards: None,
            front: None,
        };
        Kv {
            server,
            counters: Counters::default(),
            scratch: Reply::default(),
            argv: Vec::new(),
            releases: BTreeSet::new(),
            patrol_us: 0,
            upkeep_us: 0,
            turn_ns: 0,
            turn_us: started_us,
            accepted: 0,
            failed: 0,
            log_fails: None,
        }
    }

    /// Does the commands of a record again: before the log is joined, at the start.
    ///
    /// # Errors
    /// The record holds something that no server of this version wrote.
    pub fn restore(&mut self, record: &[u8]) -> Result<(), String> {
        if self.is_loading() {
            return Err("the snapshot before it ends inside an entry".to_owned());
        }
        let mut parser = Parser::new();
        // A record has more arguments than a client may send in one command, where an older version logged the members
        // of a SPOP so; it has no more than bytes.
        let limits = Limits { args_max: record.len(), ..Limits::default() };
        let mut reply = Reply::default();
        let (mut at, mut database) = (0, 0);
        loop {
            let step = parser.next(&record[at..], &limits).map_err(|error| error.to_string())?;
            at += step.consumed;
            let Some(args) = step.command else { break };
            let args: Vec<&[u8]> = args.iter().collect();
            let name = || String::from_utf8_lossy(args[0]).into_owned();
            if args.len() == 2 && args[0].eq_ignore_ascii_case(b"select") {
                let number = laneway_resp::integer(args[1]).and_then(|n| usize::try_from(n).ok());
                database = number
                    .filter(|&number| number < self.server.config.data.databases)
                    .ok_or("a record selects a database that there is not; raise --databases")?;
                continue;
            }
            let Found::Row(index) = self.server.table.find(&args) else {
                return Err(format!("a record has the command `{}`, which there is not", name()));
            };
            let command = self.server.table.command(index);
            let Run::Data(run) = command.run else {
                return Err(format!("a record has the command `{}`, which writes nothing", name()));
            };
            reply.clear();
            self.server.fetch_now(&command, database, &args)?;
            self.server.restore(run, database, &args, &mut reply);
            self.server.store.spill_excess(0);
            if reply.bytes().first() == Some(&b'-') {
                let why = String::from_utf8_lossy(reply.bytes()).trim_end().to_owned();
                let hint = match why.contains("DB index") {
                    // Older versions let a key go where clients could not select it.
                    true => "; raise --databases",
                    false => "",
                };
                return Err(format!("a record's `{}` fails: {why}{hint}", name()));
            }
        }
        if parser.kept_bytes() > 0 {
            return Err("a record ends inside a command".to_owned());
        }
        Ok(())
    }

    /// Adds a piece of a snapshot to the data: before the records behind it are done again.
    ///
    /// # Errors
    /// The piece is not as any server of this version writes it.
    pub fn load(&mut self, piece: &[u8]) -> Result<(), String> {
        self.server.load(piece)
    }

    /// True if an entry of the snapshot was not read to its end: then there are pieces behind the last that are
    /// missing.
    pub(crate) fn is_loading(&self) -> bool {
        self.server.saving.is_loading()
    }

    /// From now on values that memory has no room for go to this value store, which is empty: before what was logged is
    /// done again.
    pub fn spill_to(&mut self, values: Box<dyn ValueStore>) {
        self.server.store.spill_to(values);
    }

    /// True while a command waits for a value that was spilled.
    pub fn awaits_values(&self) -> bool {
        self.server.fetching.is_waited_for()
    }

    /// From now on writes are logged; `recovered` is what INFO says of the start.
    pub fn join_log(&mut self, log: Box<dyn Log>, recovered: String) {
        self.server.config.recovered = recovered;
        self.server.config.appendonly = true;
        self.server.config.appendfsync = log.fsync().name();
        self.server.saving.begin_from(log.bytes().snapshot);
        self.server.journal = Journal::new(Some(log));
    }

    /// From now on this is one of several workers: it has their share of the keys, the memory and the clients.
    pub fn take_seat(&mut self, seat: Seat) {
        let (worker, workers) = (seat.worker(), seat.workers());
        self.server.clients.number_for(worker, workers);
        self.server.slowlog.number_for(worker, workers);
        self.server.shards = Some(Box::new(shards::Shards::new(seat)));
        self.server.share_settings();
    }

    /// From now on the data are a cache of a cluster's, whose answers `far` has; its own databases but the first are
    /// none.
    pub(crate) fn join_cluster(&mut self, far: Box<dyn Far>, bound_us: u64) {
        self.server.front = Some(Box::new(front::Front::new(far, bound_us)));
    }

    /// From now on INFO shows the figures of the TLS that is in front.
    pub fn join_tls(&mut self, counts: Rc<Counts>) {
        self.server.tls = Some(counts);
    }

    /// The figures of the TLS that is in front, if there is some.
    pub(crate) fn tls(&self) -> Option<&Counts> {
        self.server.tls.as_deref()
    }

    /// Serves GET over UDP as well, to the networks of the list, and in the kernel if there is a half for that.
    pub fn serve_datagrams(&mut self, allowed: Allowed, cache: Option<CacheSetup>) {
        self.server.datagrams = Datagrams::new(allowed, cache.map(Cache::new));
    }

    /// What became of datagrams, by name.
    pub fn datagrams(&self) -> Vec<(&'static str, u64)> {
        self.server.datagrams.counts()
    }

    /// Connections so far, and those of them that ended in an error.
    pub fn connections(&self) -> (u64, u64) {
        (self.accepted, self.failed)
    }

    /// Commands so far.
    pub fn commands(&self) -> u64 {
        self.server.stats.commands
    }

    /// Does this when the log fails, once, with the reason: the server goes on, and a person may look at it.
    pub(crate) fn when_log_fails(&mut self, does: impl FnOnce(&str) + 'static) {
        self.log_fails = Some(Box::new(does));
    }

    /// Why the log takes no more, if that is so; at the end of a run, why not all of it is durable.
    pub fn log_failed(&self) -> Option<String> {
        self.server.journal.failed()
    }

    /// Reads the time at the first call of a turn.
    fn begin(&mut self) {
        let time = &mut self.server.time;
        if !time.is_read {
            time.is_read = true;
            time.now_us = (time.read_us)();
        }
    }

    /// Does the commands in `bytes` until the client is held; how many bytes were taken.
    fn commands_of(&mut self, client: &mut Client, bytes: &[u8]) -> usize {
        if bytes.first() == Some(&TLS_HANDSHAKE) && client.parser.is_at_start() {
            self.server.stats.tls_at_plain_port += 1;
            client.out.error(NOT_TLS);
            client.ending = Ending::Close;
            return bytes.len();
        }
        let mut at = 0;
        // The arguments borrow from the parser, not from the client.
        let mut parser = std::mem::take(&mut client.parser);
        while !client.is_held() && client.owed() <= OWED_BYTES_MAX {
            let mut limits = self.server.config.limits;
            limits.is_stranger = !client.is_authenticated;
            match parser.next(&bytes[at..], &limits) {
                Ok(step) => {
                    at += step.consumed;
                    let Some(args) = step.command else { break };
                    let mut argv = recycled(std::mem::take(&mut self.argv));
                    argv.extend(args.iter());
                    self.server.dispatch(client, &argv);
                    self.argv = recycled(argv);
                }
                Err(error) => {
                    self.refuse(client, error);
                    at = bytes.len();
                    break;
                }
            }
        }
        client.parser = parser;
        at
    }

    /// What a client sends has no meaning.
    fn refuse(&mut self, client: &mut Client, error: ProtocolError) {
        if error == ProtocolError::LongQuery {
            self.server.stats.query_disconnections += 1;
            client.ending = Ending::Abort;
            return;
        }
        client.out.error(&format!("ERR {error}"));
        client.ending = Ending::Close;
    }

    /// Sends what may be sent, and asks the lane for what follows from the client's state.
    fn settle<O: StreamOut>(&mut self, client: &mut Client, out: &mut O) {
        if client.is_guest() {
            self.server.settle_guest(client);
            return self.note_release(client);
        }
        if client.is_finished && self.server.unblock(client).is_some() {
            // A client that waits for data and has hung up gets none, whichever of the two was first.
            client.has_unread = false;
        }
        let conn = client.conn;
        let releasable = client.releasable(self.server.journal.durable()).min(client.out.len());
        if client.ending == Ending::Asked {
            return;
        }
        if !client.is_refused
            && client.sent < releasable
            && client.ending != Ending::Abort
            && !client.out.is_cut()
        {
            let piece = &client.out.bytes()[client.sent..releasable];
            let taken = out.send(conn, piece);
            client.is_refused = taken < piece.len();
            client.sent += taken;
            if taken > 0 {
                client.active_us = self.server.time.now_us;
            }
            self.server.stats.output_bytes += taken as u64;
            self.counters.tx_bytes += taken as u64;
            self.counters.tx_frames += 1;
        }
        client.forget_sent();
        self.server.bound_output(client);
        self.server.ask_for_more(client);
        if client.ending != Ending::Abort && self.server.is_beyond(client) {
            self.server.stats.output_disconnections += 1;
            client.ending = Ending::Abort;
        }
        if client.ending == Ending::Abort {
            client.ending = Ending::Asked;
            client.forget_owed();
            return out.abort(conn);
        }
        let owes = client.owed() > 0 || client.is_awaiting();
        let has_finished = client.is_finished
            && !client.has_unread
            && client.blocked.is_none()
            && client.postponed.is_none();
        if !owes && (client.ending == Ending::Close || has_finished) {
            client.ending = Ending::Asked;
            return out.close(conn);
        }
        let bound = if client.is_paused { OWED_BYTES_MAX / 2 } else { OWED_BYTES_MAX };
        let is_held = client.is_held() || client.owed() > bound;
        if is_held != client.is_paused {
            client.is_paused = is_held;
            if is_held { out.pause(conn) } else { out.resume(conn) }
        }
        self.note_release(client);
    }

    /// The client is settled again when what its replies wait for is durable.
    fn note_release(&mut self, client: &Client) {
        if let Some(&(_, record)) = client.waits.back() {
            self.releases.insert((record, client.key));
        }
    }

    /// Settles a client that is in the table.
    fn settle_key<O: StreamOut>(&mut self, key: Key, out: &mut O) {
        if let Some(mut client) = self.server.clients.take(key) {
            client.is_noted = false;
            self.settle(&mut client, out);
            if client.out.is_empty() && client.out.capacity() > IDLE_OUT_BYTES_MAX {
                client.out = Reply::new(client.out.protocol());
            }
            self.server.clients.put_back(client);
        }
    }

    fn settle_noted<O: StreamOut>(&mut self, out: &mut O) {
        while !self.server.noted.is_empty() || self.server.read_own() {
            for key in std::mem::take(&mut self.server.noted) {
                self.settle_key(key, out);
            }
        }
    }

    /// Lends the client memory for its replies, if it has none of its own.
    fn lend(&mut self, client: &mut Client) -> bool {
        let is_borrowed = client.out.is_empty() && client.out.capacity() == 0;
        if is_borrowed {
            self.scratch.set_protocol(client.out.protocol());
            std::mem::swap(&mut self.scratch, &mut client.out);
        }
        self.server.bound_output(client);
        is_borrowed
    }

    /// Takes it back, if nothing stands in it.
    fn take_back(&mut self, client: &mut Client) {
        if client.out.is_empty() {
            let own = Reply::new(client.out.protocol());
            self.scratch = std::mem::replace(&mut client.out, own);
            if self.scratch.capacity() > SCRATCH_BYTES_MAX {
                self.scratch = Reply::default();
            }
        } else {
            self.scratch = Reply::default();
        }
    }

    /// Looks for clients that have done nothing for too long, or read nothing.
    fn patrol(&mut self) {
        let now_us = self.server.time.now_us;
        // The clock of the calendar may be set back.
        if now_us.abs_diff(self.patrol_us) < PATROL_US {
            return;
        }
        self.patrol_us = now_us;
        let idle_us = self.server.config.idle_s * 1_000_000;
        for key in self.server.clients.keys() {
            let Some(client) = self.server.clients.get(key) else { continue };
            let is_idle = idle_us > 0
                && now_us.saturating_sub(client.active_us) > idle_us
                && client.ending == Ending::Open
                && client.blocked.is_none()
                && client.postponed.is_none()
                && !client.is_awaiting()
                && !client.is_subscribed();
            if is_idle {
                self.server.end(key, Ending::Close);
            } else if client.owed() > 0 {
                self.server.note(key);
            }
        }
        self.evict_clients();
    }

    /// Cuts off the clients with the most memory, until all of this worker together have its share of what all may
    /// have. Those that CLIENT NO-EVICT names are spared.
    fn evict_clients(&mut self) {
        let Config { clients_memory, data, .. } = &self.server.config;
        let Some(of_all) = clients_memory.bytes_max(data.memory_bytes_max) else { return };
        let most = (of_all / self.server.workers()).max(1);
        let mut bytes: usize = self.server.clients.iter().map(Client::memory_bytes).sum();
        if bytes <= most {
            return;
        }
        let may_end = |one: &&Client| one.is_evictable && one.ending != Ending::Asked;
        let evictable = self.server.clients.iter().filter(may_end);
        let mut evictable: Vec<(usize, Key)> =
            evictable.map(|one| (one.memory_bytes(), one.key)).collect();
        evictable.sort_unstable();
        while bytes > most
            && let Some((of_one, key)) = evictable.pop()
        {
            bytes -= of_one;
            self.server.stats.evicted_clients += 1;
            self.server.end(key, Ending::Abort);
        }
    }
}

/// The same memory for references of another life; there are none in it.
fn recycled<'a>(mut empty: Vec<&[u8]>) -> Vec<&'a [u8]> {
    empty.clear();
    empty.into_iter().map(|_| unreachable!("it was emptied")).collect()
}

/// What Redis says to strangers from elsewhere, where no password is set.
const PROTECTED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is enabled \
and no password is set for the default user. In this mode connections are only accepted from the loopback \
interface. If you want to connect from external computers, start the server with --requirepass PASSWORD, or \
with --protected-mode no if no other program can reach it over the network.\r\n";

/// The first byte of a client that speaks TLS (RFC 8446, section 5.1); no command begins so.
const TLS_HANDSHAKE: u8 = 22;

const NOT_TLS: &str =
    "ERR TLS is not spoken at this port: connect without it, or to a port of --tls-listen";

const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

impl App for Kv {
    fn on_stop(&mut self, _turn: Turn) {
        self.server.journal.end();
        self.server.datagrams.give_up();
    }

    fn wants_stop(&self) -> bool {
        let is_stopping = |shards: &shards::Shards| shards.seat.is_stopping();
        self.server.is_stopping || self.server.shards.as_deref().is_some_and(is_stopping)
    }

    fn due_ns(&self) -> Option<u64> {
        let waiters_us = self.server.waiters.due_ms().map(|ms| ms.saturating_mul(1000));
        let due_us = waiters_us.into_iter().chain(self.server.saving.due_us()).min()?;
        let ahead_us = due_us.saturating_sub(self.turn_us);
        Some(self.turn_ns.saturating_add(ahead_us.saturating_mul(1000)))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for Kv {
    fn on_open<O: StreamOut>(&mut self, opened: Opened, out: &mut O) {
        self.begin();
        let Opened { conn, peer, local, .. } = opened;
        self.accepted += 1;
        self.server.stats.connections += 1;
        let clients_max = self.server.config.clients_max;
        let refusal = if self.server.clients.len() >= clients_max {
            Some(TOO_MANY)
        } else if self.server.config.is_protected
            && self.server.users.default_needs_no_password()
            && !peer.ip().to_canonical().is_loopback()
        {
            Some(PROTECTED)
        } else {
            let shards = self.server.shards.as_ref();
            let has_room = shards.is_none_or(|shards| shards.seat.enter(clients_max));
            (!has_room).then_some(TOO_MANY)
        };
        if let Some(text) = refusal {
            self.server.stats.rejected += 1;
            // A new connection's queue has room for a line; what does not fit is not worth waiting for.
            let _ = out.send(conn, text);
            return out.close(conn);
        }
        let now_us = self.server.time.now_us;
        let is_authenticated = self.server.users.default_needs_no_password();
        self.server.clients.add(|key, id| {
            let mut client = Client::new(key, id, peer, local, now_us);
            client.conn = conn;
            client.is_authenticated = is_authenticated;
            client
        });
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        self.begin();
        let key = self.server.clients.key_of(conn);
        // Of a connection that was refused, or is being closed, nothing is read any more.
        let Some(mut client) = key.and_then(|key| self.server.clients.take(key)) else {
            return bytes.len();
        };
        let consumed = if client.ending == Ending::Open {
            client.active_us = self.server.time.now_us;
            let is_borrowed = self.lend(&mut client);
            let consumed = self.commands_of(&mut client, bytes);
            client.has_unread = consumed < bytes.len() && client.ending == Ending::Open;
            self.settle(&mut client, out);
            if is_borrowed {
                self.take_back(&mut client);
            }
            consumed
        } else {
            bytes.len()
        };
        self.counters.rx_frames += 1;
        self.counters.rx_bytes += consumed as u64;
        self.server.stats.input_bytes += consumed as u64;
        self.server.clients.put_back(client);
        consumed
    }

    fn on_room<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        self.begin();
        let Some(key) = self.server.clients.key_of(conn) else { return };
        if let Some(client) = self.server.clients.get_mut(key) {
            client.is_refused = false;
        }
        self.settle_key(key, out);
    }

    fn on_finish<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        self.begin();
        let key = self.server.clients.key_of(conn);
        let Some(mut client) = key.and_then(|key| self.server.clients.take(key)) else {
            return out.close(conn);
        };
        client.is_finished = true;
        self.server.finish_away(&mut client);
        self.settle(&mut client, out);
        self.server.clients.put_back(client);
    }

    fn on_turn_end<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        self.begin();
        // What is done now belongs to this turn's record, and what was answered to a snapshot's next step.
        self.server.go_on_fetching();
        self.server.journal.commit();
        self.server.go_on_saving();
        let durable = self.server.journal.durable();
        if let Some(why) = self.server.journal.failed() {
            if let Some(does) = self.log_fails.take() {
                does(&why);
            }
            // What they wait for will never be durable, and must not be sent: their connections end instead.
            for (_, key) in std::mem::take(&mut self.releases) {
                let has_waits =
                    self.server.clients.get(key).is_some_and(|one| !one.waits.is_empty());
                if has_waits {
                    self.server.end(key, Ending::Abort);
                }
            }
        }
        while let Some(&(record, key)) = self.releases.first().filter(|(at, _)| *at <= durable) {
            self.releases.remove(&(record, key));
            self.settle_key(key, out);
        }
        self.settle_noted(out);
        // What was done while others were settled belongs to this turn as well.
        self.server.journal.commit();
        while self.server.publish_events() | self.server.send_messages() || self.server.try_held() {
            self.settle_noted(out);
            self.server.journal.commit();
        }
        self.server.send_to_cluster();
        (self.turn_ns, self.turn_us) = (turn.now_ns, self.server.time.now_us);
        self.server.time.is_read = false;
    }

    fn on_close(&mut self, conn: ConnId, why: Close) {
        self.failed += u64::from(why == Close::Error);
        let key = self.server.clients.key_of(conn);
        if let Some(mut client) = key.and_then(|key| self.server.clients.take(key)) {
            self.server.release(&mut client);
            self.server.clients.remove(&client);
            if let Some(shards) = &self.server.shards {
                shards.seat.leave();
            }
        }
    }

    fn on_tick<O: StreamOut>(&mut self, _turn: Turn, _out: &mut O) {
        self.begin();
        self.server.read_messages();
        self.server.read_cluster();
        self.server.time_passed();
        // Other workers ring in most turns, and the upkeep is for every tick, not for every ring.
        // So does the thread that asks a cluster.
        let now_us = self.server.time.now_us;
        let is_rung_often = self.server.shards.is_some() || self.server.front.is_some();
        if !is_rung_often || now_us.abs_diff(self.upkeep_us) >= UPKEEP_US {
            self.upkeep_us = now_us;
            if !self.server.is_paused() {
                self.server.expire();
                // A snapshot has copies of what is evicted, and the log has it deleted.
                if !self.server.holds_writes() {
                    self.server.evict();
                }
            }
            self.server.watch_growth();
            self.patrol();
        }
        self.server.serve_waiters();
    }

    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        self.begin();
        self.server.on_datagrams(batch, &mut self.counters, out);
        // A key whose time has come is deleted by the command that asks for it.
        self.server.journal.commit();
        self.server.time.is_read = false;
    }

    fn half(&self) -> Option<KernelHalf> {
        self.server.datagrams.cache.as_ref().map(Cache::half)
    }

    fn on_maps(&mut self, maps: &dyn KernelMaps, turn: Turn) -> Result<(), LaneError> {
        self.server.datagrams.agree(maps, turn)
    }
}
