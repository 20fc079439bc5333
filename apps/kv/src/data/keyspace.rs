//! What a command sees of the data: the keys of its database at its time. Whatever it changes goes through here, so
//! that keys that are due are gone, memory is counted, and the log and watching clients learn of it.

use super::chance::KeyHasher;
use super::database::Database;
use super::directory::Keyed;
use super::entry::{Collection, Entry, Form, Value};
use super::numbers;
use super::store::{Store, use_now};
use crate::command::{Call, Command, Flags, Keys, Outcome, Run};
use crate::effects::{Effects, LogCommand, Logged, deletion};
use crate::event::{CREATED, DELETED, Event, MISSED};
use laneway_random::Random;
use laneway_resp::{Protocol, Reply};
use std::borrow::Cow;

/// A value takes no more bytes than this: what a client can send in one piece.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;

/// Members that one command of the log names, and their bytes, where the command that was given names none.
const LOGGED_MEMBERS_MAX: usize = 1024;
const LOGGED_BYTES_MAX: usize = 1 << 20;

/// Why a command is refused: Redis's own words.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Cow<'static, str>);

/// How a command of the data ends.
pub(crate) type Answer = Result<Outcome, Refusal>;
/// The reply is written.
pub(crate) const DONE: Answer = Ok(Outcome::Done);
/// A command of the data.
pub(crate) type Does = fn(&mut Keyspace<'_>, &[&[u8]], &mut Reply) -> Answer;
/// Refuses in these words.
pub(crate) const fn refusal(words: &'static str) -> Refusal {
    Refusal(Cow::Borrowed(words))
}

pub(crate) const WRONG_TYPE: Refusal =
    refusal("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(crate) const SYNTAX: Refusal = refusal("ERR syntax error");
pub(crate) const NOT_INTEGER: Refusal = refusal("ERR value is not an integer or out of range");
pub(crate) const NOT_FLOAT: Refusal = refusal("ERR value is not a valid float");
pub(crate) const OUT_OF_RANGE: Refusal = refusal("ERR value is out of range");
pub(crate) const NOT_SYMMETRIC: Refusal = refusal(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);
pub(crate) const NOT_32_BITS: Refusal =
    refusal("ERR value is out of range, value must between -2147483648 and 2147483647");
pub(crate) const NOT_POSITIVE: Refusal = refusal("ERR value is out of range, must be positive");
pub(crate) const NO_KEY: Refusal = refusal("ERR no such key");
pub(crate) const SAME_OBJECT: Refusal = refusal("ERR source and destination objects are the same");
pub(crate) const DATABASE_RANGE: Refusal = refusal("ERR DB index is out of range");
pub(crate) const OVERFLOW: Refusal = refusal("ERR increment or decrement would overflow");
pub(crate) const TOO_LONG: Refusal =
    refusal("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

pub(crate) fn wrong_arity(command: &[u8]) -> Refusal {
    let name = String::from_utf8_lossy(command).to_ascii_lowercase();
    Refusal(Cow::Owned(format!("ERR wrong number of arguments for '{name}' command")))
}

/// What a look-up leaves behind, as in Redis.
#[derive(Clone, Copy)]
struct LookUp {
    /// INFO has it among the hits or the misses.
    counts: bool,
    /// The entry is used by it.
    uses: bool,
    /// A key that is not there has an event.
    notifies: bool,
}

const TO_CHANGE: LookUp = LookUp { counts: false, uses: true, notifies: false };

/// The keys of one database at one time.
pub(crate) struct Keyspace<'k> {
    pub(crate) store: &'k mut Store,
    pub(crate) database: usize,
    pub(crate) now_ms: u64,
    pub(crate) effects: &'k mut Effects,
    ready: Option<&'k [u8]>,
    /// Of keys that were due, before what the command itself does.
    deletions: Vec<LogCommand>,
    /// The database is another than the client's, which is that of the log.
    is_abroad: bool,
}

/// Does a command: what every row of the table of the data runs.
pub(crate) fn answer(call: &mut Call<'_>, does: Does) -> Outcome {
    let Call { args, store, database, reply, now_ms, ready, effects } = call;
    let (from, deletions) = (reply.len(), Vec::new());
    let (database, now_ms, ready) = (*database, *now_ms, *ready);
    let is_abroad = false;
    let mut keys = Keyspace { store, database, now_ms, effects, ready, deletions, is_abroad };
    let outcome = does(&mut keys, args, reply);
    keys.finish_log(args);
    outcome.unwrap_or_else(|Refusal(words)| {
        reply.truncate(from);
        reply.error(&words);
        Outcome::Done
    })
}

impl Keyspace<'_> {
    /// The entry of a key, for a command that reads its value.
    pub(crate) fn find(&mut self, key: &[u8]) -> Option<&Entry> {
        let hash = self.expire(key);
        self.look_up(hash, key, LookUp { counts: true, uses: true, notifies: true })
    }

    /// The entry of a key, for a command that may change it.
    pub(crate) fn find_to_change(&mut self, key: &[u8]) -> Option<&Entry> {
        let hash = self.expire(key);
        self.look_up(hash, key, TO_CHANGE)
    }

    /// The entry of a key, for a command that asks about it and does not use it: its type, its deadline.
    pub(crate) fn inspect(&mut self, key: &[u8]) -> Option<&Entry> {
        let hash = self.expire(key);
        self.look_up(hash, key, LookUp { counts: true, uses: false, notifies: true })
    }

    /// The entry of a key, for OBJECT, which asks about what is stored.
    pub(crate) fn inspect_object(&mut self, key: &[u8]) -> Option<&Entry> {
        let hash = self.expire(key);
        self.look_up(hash, key, LookUp { counts: true, uses: false, notifies: false })
    }

    fn look_up(&mut self, hash: u64, key: &[u8], leaves: LookUp) -> Option<&Entry> {
        let hides_due = self.effects.is_frozen;
        let Store { databases, settings, chance, counts, .. } = &mut *self.store;
        let found = databases[self.database].entries.find_mut(hash, key);
        let found = found.filter(|entry| !hides_due || !is_due(entry, self.now_ms));
        if leaves.counts {
            match found {
                Some(_) => counts.hits += 1,
                None => {
                    counts.misses += 1;
                    if leaves.notifies {
                        self.effects.notify(self.database, key, MISSED);
                    }
                }
            }
        }
        let entry = found?;
        if leaves.uses {
            let used = use_now(settings, chance, Some(entry.last_use()), self.now_ms);
            if used != entry.last_use() {
                entry.set_last_use(used);
            }
        }
        Some(entry)
    }

    /// The entry of a key, which is not used by that, nor is the look-up counted: where the change that follows uses
    /// it.
    pub(crate) fn peek(&mut self, key: &[u8]) -> Option<&Entry> {
        let hash = self.expire(key);
        let found = self.data().entries.find(hash, key);
        found.filter(|entry| !self.effects.is_frozen || !self.is_due(entry))
    }

    pub(crate) fn exists(&mut self, key: &[u8]) -> bool {
        self.peek(key).is_some()
    }

    /// The string that a key holds.
    pub(crate) fn text(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Refusal> {
        match self.find(key) {
            None => Ok(None),
            Some(entry) => entry.as_text().map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// The string that a key holds, as [`peek`](Self::peek) finds it.
    pub(crate) fn peek_text(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Refusal> {
        match self.peek(key) {
            None => Ok(None),
            Some(entry) => entry.as_text().map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// The collection that a key holds.
    pub(crate) fn read<C: Collection>(&mut self, key: &[u8]) -> Result<Option<&C>, Refusal> {
        match self.find(key) {
            None => Ok(None),
            Some(entry) => entry.value().and_then(C::of).map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// The collection that a key holds, as [`peek`](Self::peek) finds it.
    pub(crate) fn peek_at<C: Collection>(&mut self, key: &[u8]) -> Result<Option<&C>, Refusal> {
        match self.peek(key) {
            None => Ok(None),
            Some(entry) => entry.value().and_then(C::of).map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// The collection that a command takes from, or waits for: as [`peek_at`](Self::peek_at), but where a client has
    /// waited only of the key that is ready, and there a value of another kind is none.
    pub(crate) fn awaited<C: Collection>(&mut self, key: &[u8]) -> Result<Option<&C>, Refusal> {
        match self.ready {
            None => self.peek_at(key),
            Some(ready) if ready == key => Ok(self.peek_at(key).unwrap_or(None)),
            Some(_) => Ok(None),
        }
    }

    /// Changes a collection that is there. Without entries after that, it is gone.
    pub(crate) fn edit<C: Collection, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut C) -> R,
    ) -> Result<Option<R>, Refusal> {
        let hash = self.expire(key);
        match self.look_up(hash, key, TO_CHANGE) {
            None => return Ok(None),
            Some(entry) if entry.value().and_then(C::of).is_none() => return Err(WRONG_TYPE),
            Some(_) => {}
        }
        let database = self.data_mut();
        let changed = database.change(hash, key, |entry| {
            let Entry::Big(object) = entry else { return None };
            let collection = C::of_mut(&mut object.value)?;
            let result = change(collection);
            Some((result, collection.len() == 0))
        });
        let Some((result, is_empty)) = changed.flatten() else { return Ok(None) };
        if is_empty {
            database.remove(hash, key);
        }
        Ok(Some(result))
    }

    /// Changes a collection, a new one if the key holds none. Without entries after that, there is none.
    pub(crate) fn edit_or_create<C: Collection, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut C) -> R,
    ) -> Result<R, Refusal> {
        if self.exists(key) {
            return Ok(self.edit(key, change)?.expect("the key is there"));
        }
        let mut collection = C::empty(&self.store.hasher);
        let result = change(&mut collection);
        if collection.len() > 0 {
            self.put(Entry::object(key, collection.wrap(), Form::Whole, None));
        }
        Ok(result)
    }

    /// Changes a string in place, an empty one if the key holds none.
    pub(crate) fn edit_text<R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<R, Refusal> {
        let hash = self.expire(key);
        match self.look_up(hash, key, TO_CHANGE) {
            None => {
                let mut text = Vec::new();
                let result = change(&mut text);
                self.put(Entry::of_text(key, text, Form::Raw, None));
                return Ok(result);
            }
            Some(entry) if entry.as_text().is_none() => return Err(WRONG_TYPE),
            Some(_) => {}
        }
        let changed = self.data_mut().change(hash, key, |entry| match entry {
            Entry::Big(object) => match &mut object.value {
                Value::Text(text) => Some(change(text)),
                _ => None,
            },
            Entry::Small(_) => {
                let (deadline_ms, last_use) = (entry.deadline_ms(), entry.last_use());
                let mut text = entry.as_text().unwrap_or(&[]).to_vec();
                let result = change(&mut text);
                *entry = Entry::of_text(key, text, Form::Raw, deadline_ms);
                entry.set_last_use(last_use);
                Some(result)
            }
        });
        changed.flatten().ok_or(WRONG_TYPE)
    }

    /// Sets a key to a string, whatever it held.
    pub(crate) fn set_text(
        &mut self,
        key: &[u8],
        value: &[u8],
        form: Form,
        deadline_ms: Option<u64>,
    ) {
        let hash = self.expire(key);
        let used = self.use_over(hash, key);
        let database = self.data_mut();
        let is_plain = deadline_ms.is_none() && form == Form::Whole;
        if is_plain && database.overwrite(hash, key, value, used) {
            return;
        }
        let mut entry = Entry::text(key, value, form, deadline_ms);
        entry.set_last_use(used);
        self.insert(hash, entry);
    }

    /// Puts an entry in the place of whatever its key holds.
    pub(crate) fn put(&mut self, mut entry: Entry) {
        let hash = self.expire(entry.key());
        entry.set_last_use(self.use_over(hash, entry.key()));
        self.insert(hash, entry);
    }

    /// Puts an entry that had another key, or was in another database: it keeps how it was used, and is used by that.
    pub(crate) fn put_moved(&mut self, mut entry: Entry) {
        let hash = self.store.hash(entry.key());
        let Store { settings, chance, .. } = &mut *self.store;
        entry.set_last_use(use_now(settings, chance, Some(entry.last_use()), self.now_ms));
        self.insert(hash, entry);
    }

    fn insert(&mut self, hash: u64, entry: Entry) {
        let is_wanted = self.effects.wants_events.has(CREATED);
        let key: Option<Box<[u8]>> = is_wanted.then(|| entry.key().into());
        let is_new = self.data_mut().insert(hash, entry);
        if let Some(key) = key.filter(|_| is_new) {
            self.notify(&key, CREATED);
        }
    }

    /// The use of a value that is put in the place of whatever a key holds: where uses are counted, it goes on from
    /// those of that, as in Redis.
    fn use_over(&mut self, hash: u64, key: &[u8]) -> u32 {
        let Store { databases, settings, chance, .. } = &mut *self.store;
        let there = settings
            .eviction
            .counts_uses()
            .then(|| databases[self.database].entries.find(hash, key).map(Entry::last_use));
        use_now(settings, chance, there.flatten(), self.now_ms)
    }

    /// Puts a collection in the place of whatever a key holds; nothing, if it is empty. True if that is a change.
    pub(crate) fn store_collection<C: Collection>(&mut self, key: &[u8], collection: C) -> bool {
        if collection.len() == 0 {
            return self.take(key).is_some();
        }
        self.put(Entry::object(key, collection.wrap(), Form::Whole, None));
        true
    }

    /// Takes an entry out.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Entry> {
        let hash = self.expire(key);
        self.data_mut().remove(hash, key)
    }

    pub(crate) fn set_deadline(&mut self, key: &[u8], deadline_ms: Option<u64>) {
        let hash = self.store.hash(key);
        self.data_mut().change(hash, key, |entry| entry.set_deadline_ms(deadline_ms));
    }

    /// The string that a key holds, of one that was read already: nothing is due, used or refused by that.
    pub(crate) fn held_text(&self, key: &[u8]) -> Option<&[u8]> {
        let entries = &self.data().entries;
        entries.find(entries.hash(key), key)?.as_text()
    }

    /// The same of a collection.
    pub(crate) fn held<C: Collection>(&self, key: &[u8]) -> Option<&C> {
        let entries = &self.data().entries;
        entries.find(entries.hash(key), key)?.value().and_then(C::of)
    }

    /// Draws of a command's own.
    pub(crate) fn draws(&mut self) -> Random {
        Random::seeded(self.store.chance.draw())
    }

    pub(crate) fn data(&self) -> &Database {
        &self.store.databases[self.database]
    }

    pub(crate) fn hasher(&self) -> &KeyHasher {
        &self.store.hasher
    }

    /// True if an entry's time is up.
    pub(crate) fn is_due(&self, entry: &Entry) -> bool {
        is_due(entry, self.now_ms)
    }

    /// An event of a key.
    pub(crate) fn notify(&mut self, key: &[u8], event: Event) {
        self.effects.notify(self.database, key, event);
    }

    /// An event of a key that changed. A key that is gone with its last entry was deleted by that.
    fn notify_changed(&mut self, key: &[u8], event: Event) {
        self.notify(key, event);
        // Its time may be up already: it is deleted by that later, and not here.
        let is_there =
            |keys: &Self| keys.data().entries.find(keys.data().entries.hash(key), key).is_some();
        if event != DELETED && self.effects.wants_events.has(DELETED) && !is_there(self) {
            self.notify(key, DELETED);
        }
    }

    /// A key changed; the log has the command as it was given, unless something else is logged.
    pub(crate) fn changed(&mut self, key: &[u8], event: Event, changes: u64) {
        self.notify_changed(key, event);
        self.log_given(key, changes);
    }

    /// The same without an event.
    pub(crate) fn log_given(&mut self, key: &[u8], changes: u64) {
        self.effects.touch(self.database, key);
        self.effects.changed(changes);
    }

    /// A key changed; the log has this command instead of the one that was given.
    pub(crate) fn changed_as(&mut self, key: &[u8], event: Event, command: &[&[u8]]) {
        self.notify_changed(key, event);
        self.log_as(key, command);
    }

    /// The same without an event.
    pub(crate) fn log_as(&mut self, key: &[u8], command: &[&[u8]]) {
        self.effects.touch(self.database, key);
        self.effects.changes += 1;
        self.log_instead(command.iter().map(|arg| Box::from(*arg)).collect());
    }

    /// A key lost these members, which the command that was given does not name; the log has their `removal` by others
    /// that do, or the deletion of a key that is gone with them. No command of the log is much longer than one that a
    /// client sends.
    pub(crate) fn changed_without(
        &mut self,
        key: &[u8],
        event: Event,
        removal: &[u8],
        members: &[Box<[u8]>],
    ) {
        self.notify_changed(key, event);
        self.effects.touch(self.database, key);
        self.effects.changes += members.len() as u64;
        if !self.exists(key) {
            return self.log_instead(deletion(key));
        }
        let mut rest = members;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take(LOGGED_MEMBERS_MAX).take_while(|member| {
                bytes += member.len();
                bytes <= LOGGED_BYTES_MAX
            });
            // A member that is longer than that is one that a client has sent.
            let (piece, others) = rest.split_at(fitting.count().max(1));
            rest = others;
            let head = [removal, key].map(Box::from);
            self.log_instead(head.into_iter().chain(piece.iter().cloned()).collect());
        }
    }

    /// The log has this command, behind others of the kind, and not the one that was given.
    fn log_instead(&mut self, command: LogCommand) {
        match &mut self.effects.logged {
            Logged::Instead(commands) => commands.push(command),
            logged => *logged = Logged::Instead(vec![command]),
        }
    }

    /// Does something in another database. A key that is due there is deleted without a word: what is logged must put
    /// another in its place.
    pub(crate) fn in_database<R>(&mut self, other: usize, run: impl FnOnce(&mut Self) -> R) -> R {
        let own = std::mem::replace(&mut self.database, other);
        self.is_abroad = other != own;
        let result = run(self);
        (self.database, self.is_abroad) = (own, false);
        result
    }

    /// Deletes a key that is due, unless all of them stay for now; the hash of the key.
    fn expire(&mut self, key: &[u8]) -> u64 {
        let hash = self.store.hash(key);
        let database = &mut self.store.databases[self.database];
        if self.effects.is_frozen
            || database.soonest_ms().is_none_or(|soonest_ms| soonest_ms >= self.now_ms)
        {
            return hash;
        }
        if database.entries.find(hash, key).is_some_and(|entry| is_due(entry, self.now_ms)) {
            self.store.expire(self.database, hash, key, self.effects);
            self.effects.changes += 1;
            if !self.is_abroad {
                self.deletions.push(deletion(key));
            }
        }
        hash
    }

    fn data_mut(&mut self) -> &mut Database {
        &mut self.store.databases[self.database]
    }

    /// The log has the deletions of due keys before what the command did.
    fn finish_log(self, args: &[&[u8]]) {
        if self.deletions.is_empty() {
            return;
        }
        let mut commands = self.deletions;
        match std::mem::take(&mut self.effects.logged) {
            Logged::Nothing => {}
            Logged::AsGiven => commands.push(args.iter().map(|arg| Box::from(*arg)).collect()),
            Logged::Instead(others) => commands.extend(others),
        }
        self.effects.logged = Logged::Instead(commands);
    }
}

fn is_due(entry: &Entry, now_ms: u64) -> bool {
    entry.deadline_ms().is_some_and(|deadline_ms| deadline_ms < now_ms)
}

/// True if an argument is this word, which is in lower case.
pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

pub(crate) fn integer(arg: &[u8]) -> Result<i64, Refusal> {
    numbers::integer(arg).ok_or(NOT_INTEGER)
}

/// The number of one of so many databases. Redis reads 32 bits.
pub(crate) fn database_number(arg: &[u8], databases: usize) -> Result<usize, Refusal> {
    let number = i32::try_from(integer(arg)?).map_err(|_| NOT_32_BITS)?;
    let number = usize::try_from(number).ok().filter(|number| *number < databases);
    number.ok_or(DATABASE_RANGE)
}

/// A whole number that is not negative, refused in Redis's words for counts.
pub(crate) fn count(arg: &[u8]) -> Result<usize, Refusal> {
    count_or(arg, NOT_POSITIVE)
}

/// A whole number that is not negative.
pub(crate) fn count_or(arg: &[u8], refusal: Refusal) -> Result<usize, Refusal> {
    let number = numbers::integer(arg).and_then(|number| usize::try_from(number).ok());
    number.ok_or(refusal)
}

/// A whole number of at least 1.
pub(crate) fn at_least_one(arg: &[u8], words: &'static str) -> Result<usize, Refusal> {
    count_or(arg, refusal(words)).and_then(|number| match number {
        0 => Err(refusal(words)),
        number => Ok(number),
    })
}

/// Keys, and the arguments behind them.
pub(crate) type KeysThenRest<'a, 'b> = (&'b [&'a [u8]], &'b [&'a [u8]]);

/// The number of keys that `numkeys` announces, those keys, and the arguments behind them.
pub(crate) fn counted_keys<'a, 'b>(
    args: &'b [&'a [u8]],
    at: usize,
) -> Result<KeysThenRest<'a, 'b>, Refusal> {
    let keys = at_least_one(args[at], "ERR numkeys should be greater than 0")?;
    args[at + 1..].split_at_checked(keys).ok_or(SYNTAX)
}

/// `start` and `stop`, which count from the end if negative, as a range of `0..len`.
pub(crate) fn range(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let end = len as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(end) } else { index };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(end - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

/// A floating-point number as Redis 7.0 writes it.
pub(crate) fn reply_double(reply: &mut Reply, number: f64) {
    let text = numbers::double_text(number);
    match reply.protocol() {
        Protocol::Resp2 => reply.bulk(text.as_bytes()),
        Protocol::Resp3 => {
            reply.raw(b",");
            reply.raw(text.as_bytes());
            reply.raw(b"\r\n");
        }
    }
}

/// A row of the table of commands of the data.
pub(crate) const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    keys: Keys,
    categories: &'static [&'static str],
    run: fn(&mut Call<'_>) -> Outcome,
) -> Command {
    Command { name, arity, flags, keys, categories, run: Run::Data(run) }
}

/// What a row runs.
macro_rules! runs {
    ($does:path) => {
        |call| crate::data::keyspace::answer(call, $does)
    };
}
pub(crate) use runs;

/// Where keys stand, from the first to the last.
pub(crate) const fn keys_at(first: u32, last: i32, step: u32) -> Keys {
    Keys { first, last, step, numkeys: 0 }
}

pub(crate) const NO_KEYS: Keys = keys_at(0, 0, 0);
pub(crate) const ONE_KEY: Keys = keys_at(1, 1, 1);
pub(crate) const TWO_KEYS: Keys = keys_at(1, 2, 1);
pub(crate) const ALL_KEYS: Keys = keys_at(1, -1, 1);
/// All but the last argument: a timeout.
pub(crate) const KEYS_THEN_TIME: Keys = keys_at(1, -2, 1);

/// As many keys as the argument at `numkeys` says.
pub(crate) const fn counted_at(numkeys: u32) -> Keys {
    Keys { first: 0, last: 0, step: 0, numkeys }
}

/// A destination, then as many keys as the next argument says.
pub(crate) const STORE_COUNTED: Keys = Keys { first: 1, last: 1, step: 1, numkeys: 2 };

pub(crate) const READ: Flags = Flags::READONLY;
pub(crate) const READ_FAST: Flags = Flags::READONLY.and(Flags::FAST);
pub(crate) const WRITE: Flags = Flags::WRITE;
pub(crate) const WRITE_FAST: Flags = Flags::WRITE.and(Flags::FAST);
/// Writes what may need memory.
pub(crate) const GROW: Flags = Flags::WRITE.and(Flags::DENYOOM);
pub(crate) const GROW_FAST: Flags = GROW.and(Flags::FAST);
