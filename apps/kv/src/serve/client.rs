//! One client: what it is in the middle of, and what it is owed.
//!
//! Output stands in one buffer per client that has some: what the lane's queue did not take, and what waits until a
//! record is durable. A client that is owed nothing has no buffer; the server lends it one while its commands run.

pub(crate) use super::key::{DataKey, Key};
use super::shards::apart::Apart;
use laneway_core::ConnId;
use laneway_resp::{Parser, Reply};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;

/// A command that is kept for later: its row, and its arguments.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) index: usize,
    pub(crate) args: Vec<Box<[u8]>>,
}

impl Kept {
    pub(crate) fn new(index: usize, args: &[&[u8]]) -> Kept {
        Kept { index, args: args.iter().map(|&arg| arg.into()).collect() }
    }

    pub(crate) fn args(&self) -> Vec<&[u8]> {
        self.args.iter().map(AsRef::as_ref).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.args.iter().map(|arg| arg.len() + size_of::<Box<[u8]>>()).sum()
    }
}

/// A command that waits for data.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub(crate) call: Kept,
    pub(crate) database: usize,
    pub(crate) keys: Vec<Box<[u8]>>,
    pub(crate) until_ms: Option<u64>,
    pub(crate) nothing: Nothing,
}

/// What a command that waits is answered with if what it waits for does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    Array,
    Value,
    /// WAIT: so many replicas have what was written.
    Zero,
}

/// An open transaction.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// The one slot of its keys, where there are several workers.
    pub(crate) slot: Option<u16>,
    pub(crate) queued: Vec<Kept>,
    pub(crate) bytes: usize,
    /// A command was refused: EXEC will be, too.
    pub(crate) is_broken: bool,
}

/// What CLIENT REPLY asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    /// The next command's reply is left out.
    SkipNext,
    /// This command's.
    Skip,
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    #[default]
    Open,
    /// When all that it is owed has been sent.
    Close,
    /// Now.
    Abort,
    /// The lane has been asked.
    Asked,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) key: Key,
    pub(crate) id: u64,
    pub(crate) conn: ConnId,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) parser: Parser,
    /// Replies that were not sent.
    pub(crate) out: Reply,
    /// Bytes of `out` that the lane took.
    pub(crate) sent: usize,
    /// The lane took less than given, and will say when there is room.
    pub(crate) is_refused: bool,
    /// Ends of replies in `out`, each with the record that must be durable before it is sent.
    pub(crate) waits: VecDeque<(usize, u64)>,
    pub(crate) ending: Ending,
    /// The peer has finished sending.
    pub(crate) is_finished: bool,
    /// The lane was asked to show no more of its input.
    pub(crate) is_paused: bool,
    /// Bytes that were shown and not taken.
    pub(crate) has_unread: bool,
    /// It is in the list of clients to look after at the end of the turn.
    pub(crate) is_noted: bool,
    pub(crate) database: usize,
    /// Its user's place in the table of users.
    pub(crate) user: usize,
    pub(crate) is_authenticated: bool,
    pub(crate) name: Box<[u8]>,
    pub(crate) lib_name: Box<[u8]>,
    pub(crate) lib_version: Box<[u8]>,
    pub(crate) opened_us: u64,
    /// When it last sent or took bytes, or a command of it that had waited was done.
    pub(crate) active_us: u64,
    pub(crate) last: Option<usize>,
    pub(crate) replies: Replies,
    /// Messages among the replies of the command that is being done, in `out`: they are sent all the same where its
    /// replies are left out.
    pub(crate) messages: Vec<Range<usize>>,
    pub(crate) is_evictable: bool,
    /// Since when it is beyond its class's soft limit of output.
    pub(crate) soft_since_us: Option<u64>,
    pub(crate) blocked: Option<Box<Blocked>>,
    /// A command that is held back, one that waits for values, or SAVE until it has ended.
    pub(crate) postponed: Option<Box<Kept>>,
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) watching: Vec<DataKey>,
    /// A watched key is another now.
    pub(crate) is_spoiled: bool,
    pub(crate) channels: BTreeSet<Box<[u8]>>,
    pub(crate) patterns: BTreeSet<Box<[u8]>>,
    pub(crate) shard_channels: BTreeSet<Box<[u8]>>,
    /// The request at the cluster whose answer it waits for.
    pub(crate) awaited: Option<u64>,
    /// What several workers add.
    pub(crate) apart: Option<Box<Apart>>,
}

impl Client {
    /// A client that has just come, of the default user, which may have a password; without a connection yet.
    pub(crate) fn new(
        key: Key,
        id: u64,
        peer: SocketAddr,
        local: SocketAddr,
        now_us: u64,
    ) -> Client {
        Client {
            key,
            id,
            conn: NO_CONNECTION,
            peer,
            local,
            parser: Parser::new(),
            out: Reply::default(),
            sent: 0,
            is_refused: false,
            waits: VecDeque::new(),
            ending: Ending::Open,
            is_finished: false,
            is_paused: false,
            has_unread: false,
            is_noted: false,
            database: 0,
            user: 0,
            is_authenticated: false,
            name: Box::default(),
            lib_name: Box::default(),
            lib_version: Box::default(),
            opened_us: now_us,
            active_us: now_us,
            last: None,
            replies: Replies::On,
            messages: Vec::new(),
            is_evictable: true,
            soft_since_us: None,
            blocked: None,
            postponed: None,
            transaction: None,
            watching: Vec::new(),
            is_spoiled: false,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shard_channels: BTreeSet::new(),
            awaited: None,
            apart: None,
        }
    }

    /// Bytes that it is owed.
    pub(crate) fn owed(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Up to where `out` may be sent when records up to `durable` are.
    pub(crate) fn releasable(&mut self, durable: u64) -> usize {
        while let Some(&(from, record)) = self.waits.front() {
            if record > durable {
                return from;
            }
            self.waits.pop_front();
        }
        self.out.len()
    }

    /// What was written from `from` on is not sent before `record` is durable. Replies stay in order.
    pub(crate) fn wait_for(&mut self, from: usize, record: u64) {
        if self.waits.back().is_none_or(|&(_, last)| last < record) {
            self.waits.push_back((from, record));
        }
    }

    /// True if the replies to what it asks are left out.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.replies, Replies::Off | Replies::Skip)
    }

    /// What was written from `from` on, while a command of the client is done, is a message to it and no reply.
    pub(crate) fn wrote_message(&mut self, from: usize) {
        if !self.is_silent() {
            return;
        }
        if self.out.is_cut() {
            // What would be left out has taken its room.
            self.ending = Ending::Abort;
        }
        self.messages.push(from..self.out.len());
    }

    /// Leaves out the reply that begins at `from`, but for the messages in it. What it waits for the next one waits
    /// for.
    pub(crate) fn leave_out(&mut self, from: usize) {
        let messages = std::mem::take(&mut self.messages);
        let kept: Vec<&[u8]> =
            messages.into_iter().map(|message| &self.out.bytes()[message]).collect();
        let kept = kept.concat();
        self.out.truncate(from);
        self.out.mend();
        self.out.raw(&kept);
        self.waits.iter_mut().for_each(|(at, _)| *at = from.min(*at));
    }

    /// Forgets what was sent, now and then: not for every few bytes of a long reply.
    pub(crate) fn forget_sent(&mut self) {
        let is_all = self.sent == self.out.len();
        if is_all || self.sent >= SENT_KEPT_MAX && self.sent >= self.out.len() / 2 {
            self.drop_sent();
        }
    }

    /// Forgets what was sent. Behind it there may be replies without a byte, which wait as others do.
    pub(crate) fn drop_sent(&mut self) {
        self.out.drop_front(self.sent);
        for (from, _) in &mut self.waits {
            *from -= self.sent;
        }
        self.sent = 0;
    }

    /// Forgets what it was owed: it is cut off.
    pub(crate) fn forget_owed(&mut self) {
        self.out = Reply::new(self.out.protocol());
        self.waits.clear();
        self.sent = 0;
    }

    /// True while no further command of it is to be read.
    pub(crate) fn is_held(&self) -> bool {
        self.blocked.is_some()
            || self.out.is_cut()
            || self.postponed.is_some()
            || self.awaited.is_some()
            || self.ending != Ending::Open
            || self.apart.as_ref().is_some_and(|apart| apart.is_held())
    }

    /// True while it is owed something that is not written yet.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.awaited.is_some() || self.apart.as_ref().is_some_and(|apart| apart.is_awaited())
    }

    /// True when a client of version 2 may only speak of messages.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscriptions() + self.shard_channels.len() > 0
    }

    /// Channels and patterns that it listens to.
    pub(crate) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Client>()
            + self.parser.memory_bytes()
            + self.out.capacity()
            + self.transaction.as_ref().map_or(0, |transaction| transaction.bytes)
    }
}

/// Sent bytes that may stand in front of unsent ones.
const SENT_KEPT_MAX: usize = 256 << 10;

/// Of a client without one: no lane has so many.
const NO_CONNECTION: ConnId = ConnId(u64::MAX);

/// The table of clients. A client that is being served is taken out of it.
#[derive(Debug)]
pub(crate) struct Clients {
    places: Vec<Option<Box<Client>>>,
    free: Vec<Key>,
    by_conn: HashMap<ConnId, Key>,
    /// By the number that CLIENT ID says, in its order.
    by_id: std::collections::BTreeMap<u64, Key>,
    next_id: u64,
    /// From one number to the next: workers number their clients in turns.
    id_step: u64,
}

impl Default for Clients {
    fn default() -> Clients {
        Clients {
            places: Vec::new(),
            free: Vec::new(),
            by_conn: HashMap::new(),
            by_id: std::collections::BTreeMap::new(),
            next_id: 1,
            id_step: 1,
        }
    }
}

impl Clients {
    /// From now on clients have numbers that no other of so many workers gives.
    pub(crate) fn number_for(&mut self, worker: usize, workers: usize) {
        (self.next_id, self.id_step) = (worker as u64 + 1, workers as u64);
    }

    pub(crate) fn len(&self) -> usize {
        self.by_conn.len()
    }

    pub(crate) fn add(&mut self, make: impl FnOnce(Key, u64) -> Client) -> Key {
        let key = self.free_place();
        let client = make(key, self.next_id);
        self.next_id += self.id_step;
        self.by_conn.insert(client.conn, key);
        self.by_id.insert(client.id, key);
        self.places[key as usize] = Some(Box::new(client));
        key
    }

    /// Adds a client of another worker: it has a place here, and is not among the clients otherwise.
    pub(crate) fn add_guest(&mut self, make: impl FnOnce(Key) -> Client) -> Key {
        let key = self.free_place();
        self.places[key as usize] = Some(Box::new(make(key)));
        key
    }

    fn free_place(&mut self) -> Key {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as Key
        })
    }

    /// Forgets a guest that was taken out.
    pub(crate) fn remove_guest(&mut self, guest: &Client) {
        self.free.push(guest.key);
    }

    /// The guest with that number that waits for data.
    pub(crate) fn waiting_guest(&self, id: u64) -> Option<Key> {
        let guests = self.places.iter().flatten().filter(|one| one.is_guest() && one.id == id);
        guests.filter(|one| one.blocked.is_some()).map(|one| one.key).next()
    }

    /// Forgets a client that was taken out.
    pub(crate) fn remove(&mut self, client: &Client) {
        self.by_conn.remove(&client.conn);
        self.by_id.remove(&client.id);
        self.free.push(client.key);
    }

    pub(crate) fn key_of(&self, conn: ConnId) -> Option<Key> {
        self.by_conn.get(&conn).copied()
    }

    pub(crate) fn key_of_id(&self, id: u64) -> Option<Key> {
        self.by_id.get(&id).copied()
    }

    /// Takes a client out, to be put back.
    pub(crate) fn take(&mut self, key: Key) -> Option<Box<Client>> {
        self.places.get_mut(key as usize)?.take()
    }

    pub(crate) fn put_back(&mut self, client: Box<Client>) {
        let key = client.key as usize;
        self.places[key] = Some(client);
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Client> {
        self.places.get(key as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Client> {
        self.places.get_mut(key as usize)?.as_deref_mut()
    }

    /// Every client that is not taken out, by its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.by_id.values().filter_map(|&key| self.get(key))
    }

    /// The places of all clients, by their numbers.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.by_id.values().copied().collect()
    }
}
