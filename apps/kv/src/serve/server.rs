//! The server: admits a command, does it, and does what follows from it.
//!
//! ```text
//!   words ─▶ row ─▶ arity, rights, state ─▶ queued by MULTI, held by CLIENT PAUSE, or done
//!       ─▶ effects: log, watchers, waiters
//! ```
//!
//! Nothing here knows the lane: replies are written into clients' buffers, and clients that something is to be done for
//! at the end of the turn are noted.

use super::{
    channels::Channels,
    client::{Client, Clients, Ending, Kept, Key, Nothing, Replies, Transaction},
    config::{Config, OutputLimit},
    datagrams::Datagrams,
    denied::{Attempts, Denied},
    fetching::Fetching,
    front::{Front, why_not},
    log::{Journal, logged_bytes},
    notifications::Notifications,
    saving::Saving,
    shards::{Route, Shards, slot_of_command},
    slow::Slowlog,
    table::{Found, Table, is_done_inside_multi, keys_of},
    users::Users,
    waiters::Waiters,
    watched::Watched,
};
use crate::command::{Call, Command, Flags, Outcome, Run};
use crate::data::Store;
use crate::effects::{Effects, Logged};
use laneway_resp::{Protocol, Reply};
use laneway_tls::Counts;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Figures since the start, or CONFIG RESETSTAT.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) connections: u64,
    pub(crate) rejected: u64,
    pub(crate) commands: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) output_disconnections: u64,
    pub(crate) query_disconnections: u64,
    pub(crate) auth_failures: u64,
    pub(crate) tls_at_plain_port: u64,
    pub(crate) http_disconnections: u64,
    pub(crate) evicted_clients: u64,
    pub(crate) error_replies: u64,
    pub(crate) errors: BTreeMap<String, u64>,
}

/// Kinds of errors that are counted apart.
const ERROR_KINDS_MAX: usize = 128;

/// Does a command of the server's.
pub(crate) type ServerFn = fn(&mut Server, &mut Client, &[&[u8]]);

/// The time, as the server reads it.
pub(crate) struct Time {
    /// Microseconds since 1970.
    pub(crate) read_us: Box<dyn Fn() -> u64>,
    /// As read at the beginning of this turn.
    pub(crate) now_us: u64,
    /// It has been read in this turn.
    pub(crate) is_read: bool,
    pub(crate) started_us: u64,
}

impl Time {
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }
}

/// All but the lane.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) table: Table,
    /// What the server does for each row of the table; nothing for the data's.
    pub(crate) does: Box<[ServerFn]>,
    pub(crate) store: Store,
    pub(crate) clients: Clients,
    pub(crate) users: Users,
    pub(crate) channels: Channels,
    pub(crate) waiters: Waiters,
    pub(crate) watched: Watched,
    pub(crate) journal: Journal,
    pub(crate) saving: Saving,
    pub(crate) fetching: Fetching,
    pub(crate) slowlog: Slowlog,
    /// What users were not allowed.
    pub(crate) attempts: Attempts,
    pub(crate) stats: Stats,
    pub(crate) datagrams: Datagrams,
    pub(crate) time: Time,
    pub(crate) effects: Effects,
    pub(crate) notifications: Notifications,
    /// Changes since the start.
    pub(crate) changes: u64,
    /// Clients that something is to be done for at the end of the turn.
    pub(crate) noted: Vec<Key>,
    /// SHUTDOWN was asked for.
    pub(crate) is_stopping: bool,
    /// Names this run of the server.
    pub(crate) run_id: String,
    /// The other workers, if there are any.
    pub(crate) shards: Option<Box<Shards>>,
    /// The cluster whose data are here as a cache, if there is one.
    pub(crate) front: Option<Box<Front>>,
    /// The figures of the TLS that is in front, for INFO.
    pub(crate) tls: Option<Rc<Counts>>,
}

/// A command that is refused, and the error that says why.
struct Refused {
    /// Its row, if there is one.
    index: Option<usize>,
    /// What its user may not do, if that is why.
    denied: Option<Denied>,
    text: Vec<u8>,
}

impl Refused {
    fn of(index: usize, text: String) -> Refused {
        Refused { index: Some(index), denied: None, text: text.into_bytes() }
    }
}

impl Server {
    /// Does the next command of a client, has another worker do it, or keeps it until either may be.
    pub(crate) fn dispatch(&mut self, client: &mut Client, args: &[&[u8]]) {
        let before = client.out.len();
        let admitted = self.admit(client, args);
        let route = admitted.as_ref().ok().map(|(_, route)| *route);
        if self.must_wait(client, route) {
            return self.defer(client, args);
        }
        // A command that waits is admitted again: what its admission does to others, it does behind that.
        let admitted = admitted.and_then(|(index, route)| {
            let mut room = self.why_not_kept(client, index);
            if room.is_ok() && route == Route::Here {
                room = self.why_no_room_here(client, index, args);
            }
            room.map_or_else(|text| Err(Refused::of(index, text)), |()| Ok((index, route)))
        });
        client.replies = match client.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            other => other,
        };
        match admitted {
            Ok((index, route)) => self.begin(client, index, route, args),
            Err(Refused { index: None, .. }) if is_http(args[0]) => {
                self.stats.http_disconnections += 1;
                client.ending = Ending::Abort;
            }
            Err(Refused { index, denied, text }) => {
                if let (Some(index), Some(denied)) = (index, denied) {
                    let what = denied.what(self.table.command(index).name);
                    self.note_denied(client, what, client.transaction.is_some());
                }
                self.refuse(client, index, &text);
                if let Some(transaction) = &mut client.transaction {
                    transaction.is_broken = true;
                }
            }
        }
        if client.is_silent() {
            client.leave_out(before);
        }
        self.serve_waiters();
    }

    /// Queues a command that was admitted, has another worker do it, holds it back or does it.
    fn begin(&mut self, client: &mut Client, index: usize, route: Route, args: &[&[u8]]) {
        let command = self.table.command(index);
        if let Some(transaction) = &mut client.transaction
            && !is_done_inside_multi(command.name)
        {
            if self.shards.is_some() && transaction.slot.is_none() {
                transaction.slot = slot_of_command(self.table.row(index), args);
            }
            let bytes_max = self.config.limits.query_bytes_max;
            return queue(transaction, index, args, bytes_max, &mut client.out);
        }
        match route {
            Route::To(worker) => self.send_away(client, index, args, worker),
            Route::Lead => self.lead(client, index, args),
            Route::Here if self.holds_back(client, index, args) => {
                self.hold(client, Box::new(Kept::new(index, args)));
            }
            Route::Here if self.awaits_values(client, index, args) => {}
            Route::Here => self.call(client, index, args),
        }
    }

    /// True while writes must wait: for room in the log, or for a snapshot's copies or spilled values to be written.
    pub(crate) fn holds_writes(&self) -> bool {
        self.journal.is_full()
            || self.notifications.is_behind()
            || self.saving.is_behind()
            || self.fetching.is_behind()
    }

    /// True while no client may change the data: then no time that is up and no want of memory does either.
    pub(crate) fn is_paused(&self) -> bool {
        self.waiters.pause_holds(true, self.time.now_ms())
    }

    /// True if a client's command must wait: for the end of a pause, until writes need not, or until the cluster has
    /// answered others.
    pub(crate) fn holds_back(&self, client: &Client, index: usize, args: &[&[u8]]) -> bool {
        let may_write = |index| {
            let command = self.table.command(index);
            command.flags.has(Flags::WRITE) || publishes(command.name)
        };
        let name = self.table.command(index).name;
        // The end of a transaction writes if a command of it does.
        let queued = client.transaction.iter().flat_map(|transaction| &transaction.queued);
        let may_write = may_write(index)
            || name == "exec" && queued.into_iter().any(|kept| may_write(kept.index));
        // What ends a pause must not wait for its end.
        let is_of_pause = matches!(name, "client|unpause" | "client|pause");
        may_write && self.holds_writes()
            || self.is_cluster_full() && self.needs_cluster(index, args)
            || !is_of_pause && self.waiters.pause_holds(may_write, self.time.now_ms())
    }

    /// The row of a command that may be done, and where; or why not. Nothing is another by that.
    fn admit(&self, client: &Client, args: &[&[u8]]) -> Result<(usize, Route), Refused> {
        let unknown = |text| Err(Refused { index: None, denied: None, text });
        let index = match self.table.find(args) {
            Found::Row(index) => index,
            Found::NoSubcommand => return unknown(no_subcommand(args)),
            Found::Unknown => return unknown(unknown_command(args)),
        };
        let command = self.table.command(index);
        if !command.takes(args.len()) {
            let text = format!("ERR wrong number of arguments for '{}' command", command.name);
            return Err(Refused::of(index, text));
        }
        Ok((index, self.why_not(client, index, &command, args)?))
    }

    /// Where a command may be done now, or why it may not.
    fn why_not(
        &self,
        client: &Client,
        index: usize,
        command: &Command,
        args: &[&[u8]],
    ) -> Result<Route, Refused> {
        let (flags, refused) = (command.flags, |text| Refused::of(index, text));
        if !client.is_authenticated && !flags.has(Flags::NO_AUTH) {
            return Err(refused("NOAUTH Authentication required.".to_owned()));
        }
        if client.transaction.is_some() && flags.has(Flags::NO_MULTI) {
            return Err(refused("ERR Command not allowed inside a transaction".to_owned()));
        }
        if !flags.has(Flags::NO_AUTH)
            && let Err(denied) = self.users.of(client.user).may(index, command, args)
        {
            let text = denied.text(command.name);
            return Err(Refused { denied: Some(denied), ..refused(text) });
        }
        let row = &self.table.rows()[index];
        if self.front.is_some() {
            why_not(row, args).map_err(refused)?;
        }
        let route = match &self.shards {
            None => Route::Here,
            Some(shards) => shards.route(client, row, args).map_err(refused)?,
        };
        let is_for_subscribers = flags.has(Flags::PUBSUB) && !publishes(command.name)
            || matches!(command.name, "ping" | "quit" | "reset");
        if client.is_subscribed()
            && client.out.protocol() == Protocol::Resp2
            && (!is_for_subscribers || command.name.starts_with("pubsub"))
        {
            return Err(refused(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
                 are allowed in this context",
                command.name
            )));
        }
        Ok(route)
    }

    /// Why there is no memory for a client's transaction to grow: whatever a command does, it is kept until EXEC.
    fn why_not_kept(&mut self, client: &Client, index: usize) -> Result<(), String> {
        let ends = |name| matches!(name, "exec" | "discard" | "quit" | "reset");
        let is_kept = client.transaction.is_some() && !ends(self.table.command(index).name);
        if is_kept && self.front.is_none() && !self.is_paused() && self.is_out_of_memory() {
            return Err(NO_MEMORY.to_owned());
        }
        Ok(())
    }

    /// Why a client's command that is to be done here finds no room; one that ends a transaction, for what is in it.
    pub(crate) fn why_no_room_here(
        &mut self,
        client: &Client,
        index: usize,
        args: &[&[u8]],
    ) -> Result<(), String> {
        let command = self.table.command(index);
        self.why_no_room(&command, args)?;
        if command.name == "exec" { self.why_no_room_inside(client) } else { Ok(()) }
    }

    /// Why the data or the log of this worker take no such command now.
    pub(crate) fn why_no_room(&mut self, command: &Command, args: &[&[u8]]) -> Result<(), String> {
        let flags = command.flags;
        if self.front.is_some() {
            // The cluster has the data, and says so itself.
            return Ok(());
        }
        // What needs memory waits for the end of a pause, and nothing goes for it before.
        if flags.has(Flags::DENYOOM) && !self.is_paused() && self.is_out_of_memory() {
            return Err(NO_MEMORY.to_owned());
        }
        if flags.has(Flags::WRITE)
            && let Some(why) = self.journal.failed()
        {
            return Err(format!("MISCONF Errors writing to the AOF file: {why}"));
        }
        if flags.has(Flags::WRITE) && self.journal.is_on() {
            let bytes = logged_bytes(args.iter().map(|arg| arg.len()));
            if !self.journal.make_room(bytes) {
                return Err(format!("ERR the log takes no command of {bytes} bytes"));
            }
        }
        Ok(())
    }

    /// The same of what a client's transaction holds: there was room when its commands were queued.
    fn why_no_room_inside(&mut self, client: &Client) -> Result<(), String> {
        let queued = client.transaction.iter().flat_map(|transaction| &transaction.queued);
        queued.into_iter().try_for_each(|kept| {
            let command = self.table.command(kept.index);
            self.why_no_room(&command, &kept.args())
        })
    }

    /// Answers with an error that no command gave.
    pub(crate) fn refuse(&mut self, client: &mut Client, index: Option<usize>, text: &[u8]) {
        if let Some(index) = index {
            self.table.row(index).rejected += 1;
        }
        let from = client.out.len();
        let is_exec = index.is_some_and(|index| self.table.command(index).name == "exec");
        if is_exec {
            // A transaction whose end is refused is over.
            client.transaction = None;
            self.unwatch_all(client);
            let why = text.strip_prefix(b"ERR ").unwrap_or(text);
            let text = [b"EXECABORT Transaction discarded because of: ", why].concat();
            client.out.error_bytes(&text);
        } else {
            client.out.error_bytes(text);
        }
        self.count_error(client, from);
    }

    pub(crate) fn count_error(&mut self, client: &Client, from: usize) {
        self.stats.error_replies += 1;
        if client.out.is_cut() {
            return;
        }
        let text = &client.out.bytes()[from..];
        let kind = text[1..].split(|byte| matches!(byte, b' ' | b'\r')).next().unwrap_or_default();
        let kind = String::from_utf8_lossy(kind).into_owned();
        if self.stats.errors.len() < ERROR_KINDS_MAX || self.stats.errors.contains_key(&kind) {
            *self.stats.errors.entry(kind).or_default() += 1;
        }
    }

    /// Does a command that was admitted.
    pub(crate) fn call(&mut self, client: &mut Client, index: usize, args: &[&[u8]]) {
        let command = self.table.command(index);
        let from = client.out.len();
        self.bound_output(client);
        client.last = Some(index);
        // What all workers do is one command, and worker 0 counts it.
        let is_counted = !client.is_part() || self.worker() == 0;
        self.stats.commands += u64::from(is_counted);
        // What is always quick need not be timed: a clock costs as much as a GET of a small value.
        let is_timed =
            !command.flags.has(Flags::FAST) || self.config.slower_than_us < QUICK_SURELY_US;
        let began_us = if is_timed { (self.time.read_us)() } else { 0 };
        match command.run {
            Run::Server => {
                let run = self.does[index];
                run(self, client, args);
                if command.flags.has(Flags::ADMIN) {
                    // It may have changed the rights of users.
                    self.datagrams.forget_all();
                }
            }
            Run::Data(_) if self.front.is_some() && self.ask_cluster(client, index, args) => {}
            Run::Data(_) => self.call_data(client, index, args),
        }
        let took_us = if is_timed { (self.time.read_us)().saturating_sub(began_us) } else { 0 };
        let is_error = client.out.bytes().get(from) == Some(&b'-');
        let row = self.table.row(index);
        row.calls += u64::from(is_counted);
        row.usec += took_us;
        row.failed += u64::from(is_error && is_counted);
        if is_error {
            self.count_error(client, from);
        }
        if is_timed && self.config.is_slow(took_us) && command.name != "exec" {
            let who = (client.peer.to_string(), &*client.name);
            let len_max = self.config.slowlog_len_max;
            let what = (command.name, args);
            self.slowlog.add(self.time.now_us, took_us, what, who, len_max);
        }
    }

    /// Has the data here do a command, and does what follows from it.
    pub(crate) fn call_data(&mut self, client: &mut Client, index: usize, args: &[&[u8]]) {
        let (command, database, from) =
            (self.table.command(index), client.database, client.out.len());
        let outcome = match (self.fetch_now(&command, database, args), &self.shards) {
            (Err(lost), _) => {
                client.out.error(&lost);
                Outcome::Done
            }
            (_, Some(_)) if command.name == "scan" => self.scan_shard(&command, client, args),
            _ => self.run_data(&command, client, args, None),
        };
        self.follow(database, args, &command, client, from);
        if let Outcome::Waits { until_ms, null_array } = outcome {
            let nothing = if null_array { Nothing::Array } else { Nothing::Value };
            self.block(client, index, args, until_ms, nothing);
        }
    }

    /// Has the data do a command for a client, of which it has waited for the `ready` key if there is one; what it
    /// changed is in the effects.
    pub(crate) fn run_data(
        &mut self,
        command: &Command,
        client: &mut Client,
        args: &[&[u8]],
        ready: Option<&[u8]>,
    ) -> Outcome {
        let Run::Data(run) = command.run else { unreachable!("a row of the data") };
        self.begin_effects(command.flags.has(Flags::WRITE));
        let mut call = Call {
            args,
            store: &mut self.store,
            database: client.database,
            reply: &mut client.out,
            now_ms: self.time.now_us / 1000,
            ready,
            effects: &mut self.effects,
        };
        run(&mut call)
    }

    /// Before the data do something: what matters of its effects. What only reads has none while clients are paused.
    pub(crate) fn begin_effects(&mut self, may_write: bool) {
        self.effects.wants_touched = self.wants_touched();
        self.effects.is_frozen = !may_write && self.is_paused();
    }

    /// True if it matters whose value changes.
    pub(crate) fn wants_touched(&self) -> bool {
        self.journal.waits()
            || !self.watched.is_empty()
            || !self.waiters.is_empty()
            || self.datagrams.caches()
            || self.front.is_some()
    }

    /// Does what follows from a command of the data: the log has it, its reply waits for it, and a client that watches
    /// or waits for its keys is noted.
    pub(crate) fn follow(
        &mut self,
        database: usize,
        args: &[&[u8]],
        command: &Command,
        client: &mut Client,
        from: usize,
    ) {
        let is_logged = self.follow_effects(database, args);
        if !self.journal.waits() {
            return;
        }
        let record = if is_logged {
            Some(self.journal.current())
        } else {
            let keys = keys_of(command.keys, args);
            if keys.is_empty() {
                self.journal.newest_unfinished()
            } else {
                keys.iter().filter_map(|key| self.journal.unfinished(database, key)).max()
            }
        };
        if let Some(record) = record {
            client.wait_for(from, record);
        }
    }

    /// The part of it that concerns no client. True: the log has something.
    pub(crate) fn follow_effects(&mut self, database: usize, args: &[&[u8]]) -> bool {
        let logged = std::mem::take(&mut self.effects.logged);
        let is_logged = logged != Logged::Nothing && self.journal.is_on();
        match logged {
            Logged::Nothing => {}
            Logged::AsGiven => self.journal.add(database, args),
            Logged::Instead(commands) => {
                for command in &commands {
                    let args: Vec<&[u8]> = command.iter().map(AsRef::as_ref).collect();
                    self.journal.add(database, &args);
                }
            }
        }
        self.changes += std::mem::take(&mut self.effects.changes);
        if !self.effects.events.is_empty() {
            self.keep_events(is_logged);
        }
        if !self.effects.touched.is_empty() {
            let mut touched = std::mem::take(&mut self.effects.touched);
            for (database, key) in touched.drain(..) {
                self.datagrams.touched(database, key.as_deref());
                if let (Some(front), Some(key)) = (&mut self.front, &key) {
                    front.forget(key);
                }
                match key {
                    Some(key) => {
                        let key = (database, key);
                        let store = &self.store;
                        let is_there = || store.deadline_ms(database, &key.1).is_some();
                        self.watched.touch(&key, is_there, &mut self.clients);
                        self.waiters.touch(&key);
                        if is_logged {
                            self.journal.touched(&key);
                        }
                    }
                    None => {
                        let store = &self.store;
                        let is_there = |key: &[u8]| store.deadline_ms(database, key).is_some();
                        self.watched.replace(database, is_there, &mut self.clients);
                        self.waiters.touch_all(database);
                        self.journal.emptied(database);
                    }
                }
            }
            self.effects.touched = touched;
        }
        is_logged
    }

    /// True if there is no memory for more data, and nothing can be evicted.
    pub(crate) fn is_out_of_memory(&mut self) -> bool {
        self.lacks_memory(EVICTED_MAX)
    }

    /// Evicts what is over the limit, a bounded part of it: the limit may have been lowered, and nothing is written.
    pub(crate) fn evict(&mut self) {
        self.lacks_memory(EVICTED_PER_TICK);
    }

    fn lacks_memory(&mut self, evicted_max: usize) -> bool {
        for _ in 0..evicted_max {
            if !self.store.is_over_limit() {
                return false;
            }
            if self.spill_one() {
                continue;
            }
            if self.fetching.is_behind() {
                // The command waits until there is room.
                return false;
            }
            self.effects.wants_touched = true;
            let now_ms = self.time.now_ms();
            let Some(database) = self.store.evict_one(now_ms, &mut self.effects) else {
                return true;
            };
            self.follow_effects(database, &[]);
        }
        // More can go, so nothing is refused, as by Redis where it has run out of time.
        false
    }

    /// Deletes keys whose time has come, a bounded number of them. True: there may be more.
    pub(crate) fn expire(&mut self) -> bool {
        for _ in 0..EXPIRED_ROUNDS_MAX {
            self.effects.wants_touched = true;
            let now_ms = self.time.now_ms();
            let done = self.store.expire_some(now_ms, EXPIRED_ROUND, &mut self.effects);
            let Some(database) = done else { return false };
            self.follow_effects(database, &[]);
        }
        true
    }

    /// Does a command of the log again: no client waits for it, and it is not logged.
    pub(crate) fn restore(
        &mut self,
        run: fn(&mut Call<'_>) -> Outcome,
        database: usize,
        args: &[&[u8]],
        reply: &mut Reply,
    ) {
        // Its own: what it changed is followed by nothing.
        let (store, effects) = (&mut self.store, &mut Effects::default());
        // At time 0 nothing is due: what became due is deleted by a command of its own.
        run(&mut Call { args, store, database, reply, now_ms: 0, ready: None, effects });
    }

    /// The output that a client's class may have.
    fn output_limit(&self, client: &Client) -> OutputLimit {
        if client.is_subscribed() { self.config.pubsub } else { self.config.normal }
    }

    /// What is written for a client is cut where it would be owed more than its class may be: one command can ask for
    /// more than there is memory.
    pub(crate) fn bound_output(&self, client: &mut Client) {
        let most = match self.output_limit(client).hard_bytes {
            0 => usize::MAX,
            hard_bytes => client.sent.saturating_add(hard_bytes),
        };
        client.out.set_bytes_max(most);
    }

    /// True if a client has more output than its class may have, or would have if it had not been cut.
    pub(crate) fn is_beyond(&self, client: &mut Client) -> bool {
        let owed = client.owed();
        let limit = self.output_limit(client);
        if limit.soft_bytes == 0 || owed <= limit.soft_bytes {
            client.soft_since_us = None;
        } else if client.soft_since_us.is_none() {
            client.soft_since_us = Some(self.time.now_us);
        }
        let is_soft = client.soft_since_us.is_some_and(|since_us| {
            self.time.now_us.saturating_sub(since_us) > limit.soft_s.saturating_mul(1_000_000)
        });
        client.out.is_cut() || limit.hard_bytes > 0 && owed > limit.hard_bytes || is_soft
    }

    /// Notes a client for the end of the turn.
    pub(crate) fn note(&mut self, key: Key) {
        if let Some(client) = self.clients.get_mut(key)
            && !std::mem::replace(&mut client.is_noted, true)
        {
            self.noted.push(key);
        }
    }

    /// Lets go of everything that a client holds: it is gone, or begins anew.
    pub(crate) fn release(&mut self, client: &mut Client) {
        client.transaction = None;
        self.unwatch_all(client);
        self.unsubscribe_all(client);
        self.unblock(client);
        client.awaited = None;
        self.depart(client);
        if client.postponed.take().is_some() {
            self.fetching.forget(client.key);
            self.waiters.postponed.retain(|&key| key != client.key);
        }
    }

    /// Cuts off a client by the word of another; one that asked for it itself, by a guest, is still answered.
    pub(crate) fn cut_off(&mut self, key: Key, by: &Client) {
        let is_own = self.clients.get(key).is_some_and(|client| client.id == by.id);
        self.end(key, if is_own { Ending::Close } else { Ending::Abort });
    }

    /// The server is to end, with all workers.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        if let Some(shards) = &self.shards {
            shards.seat.stop_all();
        }
    }

    /// Which of the workers this is.
    pub(crate) fn worker(&self) -> usize {
        self.shards.as_ref().map_or(0, |shards| shards.seat.worker())
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.shards.as_ref().map_or(1, |shards| shards.seat.workers())
    }

    /// The data may take their share of the memory that all may take together.
    pub(crate) fn share_settings(&mut self) {
        let mut settings = self.config.data.clone();
        settings.memory_bytes_max =
            settings.memory_bytes_max.map(|max| (max / self.workers()).max(1));
        *self.store.settings_mut() = settings;
        self.effects.wants_events = self.config.events;
    }

    /// Ends a connection, its client's own included.
    pub(crate) fn end(&mut self, key: Key, ending: Ending) {
        if let Some(client) = self.clients.get_mut(key) {
            client.ending = ending;
        }
        self.note(key);
    }
}

const NO_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Less than any command that is not of constant time should take.
const QUICK_SURELY_US: i64 = 1000;

/// Keeps a command of a transaction for EXEC.
fn queue(
    transaction: &mut Transaction,
    index: usize,
    args: &[&[u8]],
    bytes_max: usize,
    reply: &mut Reply,
) {
    let kept = Kept::new(index, args);
    transaction.bytes += kept.bytes();
    if transaction.bytes > bytes_max {
        *transaction = Transaction { is_broken: true, ..Transaction::default() };
        return reply.error(
            "ERR the transaction is longer than client-query-buffer-limit and was discarded",
        );
    }
    transaction.queued.push(kept);
    reply.simple("QUEUED");
}

/// Keys that one command may have evicted, and one tick.
const EVICTED_MAX: usize = 10_000;
const EVICTED_PER_TICK: usize = 2_000;
/// Keys that one call of the data deletes because their time has come, and calls per tick.
const EXPIRED_ROUND: usize = 200;
const EXPIRED_ROUNDS_MAX: usize = 20;

/// True for a command that sends to those who listen, of a channel or of one of shards.
fn publishes(name: &str) -> bool {
    matches!(name, "publish" | "spublish")
}

/// True if the first word of what should be a command is one of HTTP. A browser that a foreign page makes send it is
/// cut off at once, as by Redis: what follows would be commands in the name of its user.
fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

/// Bytes of a client's words that an error repeats.
const REPEATED_BYTES_MAX: usize = 128;

fn shortened(word: &[u8], len_max: usize) -> &[u8] {
    // As a C string, whose end is a zero.
    let end = word.iter().position(|&byte| byte == 0).unwrap_or(word.len());
    &word[..end.min(len_max)]
}

fn unknown_command(args: &[&[u8]]) -> Vec<u8> {
    let mut repeated = Vec::new();
    for arg in &args[1..] {
        if repeated.len() >= REPEATED_BYTES_MAX {
            break;
        }
        let room = REPEATED_BYTES_MAX - repeated.len();
        repeated.push(b'\'');
        repeated.extend_from_slice(shortened(arg, room));
        repeated.extend_from_slice(b"' ");
    }
    let name = shortened(args[0], REPEATED_BYTES_MAX);
    [b"ERR unknown command '", name, b"', with args beginning with: ", &repeated].concat()
}

/// The error for a subcommand with arguments that its arity allows and it does not.
pub(crate) fn wrong_arguments(args: &[&[u8]]) -> Vec<u8> {
    let sub = shortened(args[1], REPEATED_BYTES_MAX);
    let name = args[0].to_ascii_uppercase();
    let what = b"ERR unknown subcommand or wrong number of arguments for '";
    [&what[..], sub, b"'. Try ", &*name, b" HELP."].concat()
}

fn no_subcommand(args: &[&[u8]]) -> Vec<u8> {
    let Some(sub) = args.get(1) else {
        let name = args[0].to_ascii_lowercase();
        return [b"ERR wrong number of arguments for '", &*name, b"' command"].concat();
    };
    let sub = shortened(sub, REPEATED_BYTES_MAX);
    let name = args[0].to_ascii_uppercase();
    [b"ERR unknown subcommand '", sub, b"'. Try ", &*name, b" HELP."].concat()
}
