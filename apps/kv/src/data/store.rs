//! All databases of one shard, and what is done to them without a command: expiry, eviction, memory.

use super::chance::KeyHasher;
use super::database::Database;
use super::directory::Keyed;
use super::dropped::Dropped;
use super::entry::Entry;
use super::spill::{Spill, is_worth_spilling};
use crate::effects::{Effects, Logged, deletion};
use crate::event::{DUE, NO_ROOM};
use laneway_random::Random;
use std::hash::{BuildHasher, RandomState};

/// How many databases a store has at most.
pub const DATABASES: usize = 16;
/// Entries that are looked at for one sample of entries with a deadline.
const SAMPLE_LOOKS_MAX: usize = 256;
/// Pieces of what was deleted that one call frees: some 4,000 entries.
const FREED_PIECES: usize = 16;
/// New keys have been used so often, or they would be the first to go (Redis's LFU_INIT_VAL).
const NEW_USES: u32 = 5;

/// What goes when memory is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Nothing: commands that need memory are refused.
    #[default]
    None,
    /// Of all keys, one that was not used for long.
    AllKeysLru,
    /// Of all keys, one that is seldom used.
    AllKeysLfu,
    /// Any key.
    AllKeysRandom,
    /// Of the keys with a deadline, one that was not used for long.
    VolatileLru,
    /// Of the keys with a deadline, one that is seldom used.
    VolatileLfu,
    /// Any key with a deadline.
    VolatileRandom,
    /// The key with the soonest deadline.
    VolatileTtl,
}

impl Eviction {
    /// Every policy, by Redis's name and in its order.
    pub const NAMES: [(&'static str, Eviction); 8] = [
        ("volatile-lru", Eviction::VolatileLru),
        ("volatile-lfu", Eviction::VolatileLfu),
        ("volatile-random", Eviction::VolatileRandom),
        ("volatile-ttl", Eviction::VolatileTtl),
        ("allkeys-lru", Eviction::AllKeysLru),
        ("allkeys-lfu", Eviction::AllKeysLfu),
        ("allkeys-random", Eviction::AllKeysRandom),
        ("noeviction", Eviction::None),
    ];

    pub(super) fn counts_uses(self) -> bool {
        matches!(self, Eviction::AllKeysLfu | Eviction::VolatileLfu)
    }

    fn needs_deadline(self) -> bool {
        use Eviction::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl)
    }
}

/// What an operator may set while the store runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Databases that a client may name, at most [`DATABASES`] (`databases`).
    pub databases: usize,
    /// Bytes that data may take; no limit if there is none (`maxmemory`).
    pub memory_bytes_max: Option<usize>,
    /// What goes beyond it (`maxmemory-policy`).
    pub eviction: Eviction,
    /// How many keys are compared to find the one that goes (`maxmemory-samples`).
    pub samples: usize,
    /// The greater, the more uses a count of uses stands for (`lfu-log-factor`).
    pub lfu_log_factor: u32,
    /// Minutes after which a count of uses falls by one; never if 0 (`lfu-decay-time`).
    pub lfu_decay_minutes: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            databases: DATABASES,
            memory_bytes_max: None,
            eviction: Eviction::None,
            samples: 5,
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
        }
    }
}

/// What is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// A key with all it has: eviction.
    Key,
    /// A value in memory.
    Value,
}

/// What INFO says of the data since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Look-ups by reading commands that found a value.
    pub hits: u64,
    /// Look-ups by reading commands that found none.
    pub misses: u64,
    /// Keys that were deleted at their deadline.
    pub expired: u64,
    /// Keys that were deleted for memory.
    pub evicted: u64,
}

/// What INFO says of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseCounts {
    /// Its keys.
    pub keys: usize,
    /// Those of them that have a deadline.
    pub deadlines: usize,
}

/// All databases of one shard.
#[derive(Debug)]
pub struct Store {
    pub(super) databases: Vec<Database>,
    /// Flushed before a snapshot had walked them.
    pub(super) flushed: Vec<Database>,
    pub(super) hasher: KeyHasher,
    pub(super) chance: Random,
    pub(super) settings: Settings,
    pub(super) counts: StoreCounts,
    /// Deleted and not freed yet.
    pub(super) dropped: Dropped,
    /// Where values go that memory has no room for, if there is such a place.
    pub(super) spill: Option<Spill>,
    /// Fetches that ended while a command waited for another.
    pub(super) fetches_ended: Vec<(u64, Result<(), String>)>,
    /// Where the next turn of active expiry begins.
    expires_next: usize,
}

impl Default for Store {
    /// A store whose hashes start from the system's chance.
    fn default() -> Store {
        Store::with_seed(RandomState::new().hash_one(std::process::id()))
    }
}

impl Store {
    /// A store whose hashes and draws follow from `seed`, which clients must not know.
    pub fn with_seed(seed: u64) -> Store {
        let mut chance = Random::seeded(seed);
        let hasher = KeyHasher::new(&mut chance);
        let databases = (0..DATABASES).map(|_| Database::new(hasher.clone())).collect();
        let (settings, counts) = (Settings::default(), StoreCounts::default());
        Store {
            databases,
            flushed: Vec::new(),
            hasher,
            chance,
            settings,
            counts,
            dropped: Dropped::default(),
            spill: None,
            fetches_ended: Vec::new(),
            expires_next: 0,
        }
    }

    /// What an operator has set.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets what an operator may.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// What happened since the start, or since [`Store::reset_counts`].
    pub fn counts(&self) -> StoreCounts {
        self.counts
    }

    /// Counts from 0 again.
    pub fn reset_counts(&mut self) {
        self.counts = StoreCounts::default();
    }

    /// Keys of each database, by number.
    pub fn databases(&self) -> impl Iterator<Item = DatabaseCounts> {
        self.databases.iter().map(|database| DatabaseCounts {
            keys: database.entries.len(),
            deadlines: database.deadlines(),
        })
    }

    /// Bytes that the data take: an estimate, kept as a sum over the entries as an allocator rounds them.
    pub fn used_bytes(&self) -> usize {
        self.databases.iter().map(Database::bytes).sum()
    }

    /// True if the data take more than they may.
    pub fn is_over_limit(&self) -> bool {
        self.settings.memory_bytes_max.is_some_and(|max| self.used_bytes() > max)
    }

    /// Deletes up to `budget` keys of one database whose deadline has passed, the next database at the next call. Where
    /// there are none, looks at all databases once. Each call frees a part of what was deleted and was too large to be
    /// freed at once.
    ///
    /// Returns the database that the effects are of: the log has a DEL of each key there.
    pub fn expire_some(
        &mut self,
        now_ms: u64,
        budget: usize,
        effects: &mut Effects,
    ) -> Option<usize> {
        self.dropped.free(FREED_PIECES);
        self.ask_and_release();
        let due = |database: &Database| database.soonest_ms().is_some_and(|ms| ms < now_ms);
        let order = (0..self.databases.len()).map(|n| (self.expires_next + n) % DATABASES);
        let number = order.into_iter().find(|number| due(&self.databases[*number]))?;
        self.expires_next = (number + 1) % DATABASES;
        let mut deletions = Vec::new();
        for _ in 0..budget {
            let database = &mut self.databases[number];
            let Some((hash, key)) = due(database).then(|| database.soonest()).flatten() else {
                break;
            };
            let key: Box<[u8]> = key.into();
            self.expire(number, hash, &key, effects);
            deletions.push(deletion(&key));
        }
        effects.changes += deletions.len() as u64;
        effects.logged = Logged::Instead(deletions);
        Some(number)
    }

    /// Deletes a key that is due.
    pub(super) fn expire(&mut self, number: usize, hash: u64, key: &[u8], effects: &mut Effects) {
        let entry = self.databases[number].remove(hash, key);
        entry.into_iter().for_each(|entry| self.dropped.entry(entry));
        self.counts.expired += 1;
        effects.touch(number, key);
        effects.notify(number, key, DUE);
    }

    /// True if there is such a key. One that is due is deleted, and the log has a DEL of it, or it is absent and stays
    /// for now.
    pub(crate) fn has(
        &mut self,
        number: usize,
        key: &[u8],
        now_ms: u64,
        effects: &mut Effects,
    ) -> bool {
        if self.is_due(number, key, now_ms) {
            if effects.is_frozen {
                return false;
            }
            self.expire(number, self.hash(key), key, effects);
            effects.changes += 1;
            effects.logged = Logged::Instead(vec![deletion(key)]);
        }
        self.deadline_ms(number, key).is_some()
    }

    /// True if there is such a key and its time is up.
    pub(crate) fn is_due(&self, number: usize, key: &[u8], now_ms: u64) -> bool {
        self.deadline_ms(number, key).flatten().is_some_and(|deadline_ms| deadline_ms < now_ms)
    }

    /// Deletes the one key that the policy chooses from a sample.
    ///
    /// Returns the database that the effects are of; `None` if the policy allows none to go. To be called until
    /// [`Store::is_over_limit`] is false, a bounded number of times per command.
    pub fn evict_one(&mut self, now_ms: u64, effects: &mut Effects) -> Option<usize> {
        let policy = self.settings.eviction;
        let candidates = |database: &Database| match policy {
            Eviction::None => 0,
            _ if policy.needs_deadline() => database.deadlines(),
            _ => database.entries.len(),
        };
        // A database is drawn by its share of the candidates.
        let all: usize = self.databases.iter().map(candidates).sum();
        let mut drawn = self.chance.index(all);
        let number = self.databases.iter().position(|database| {
            let count = candidates(database);
            let here = drawn < count;
            drawn = drawn.saturating_sub(count);
            here
        })?;
        let (hash, key) = self.worst(number, now_ms, Wants::Key)?;
        let entry = self.databases[number].remove(hash, &key);
        entry.into_iter().for_each(|entry| self.dropped.entry(entry));
        self.counts.evicted += 1;
        effects.touch(number, &key);
        effects.notify(number, &key, NO_ROOM);
        effects.changes += 1;
        effects.logged = Logged::Instead(vec![deletion(&key)]);
        Some(number)
    }

    /// Of a sample of a database's keys, the one that goes first.
    pub(super) fn worst(
        &mut self,
        number: usize,
        now_ms: u64,
        wants: Wants,
    ) -> Option<(u64, Box<[u8]>)> {
        let database = &self.databases[number];
        let soonest = || {
            let soonest = database.soonest().filter(|_| wants == Wants::Key);
            soonest.map(|(hash, key)| (hash, Box::from(key)))
        };
        let policy = self.settings.eviction;
        if policy == Eviction::VolatileTtl && wants == Wants::Key {
            return soonest();
        }
        let samples = match policy {
            Eviction::AllKeysRandom | Eviction::VolatileRandom => 1,
            _ => self.settings.samples.clamp(1, SAMPLE_LOOKS_MAX),
        };
        let (mut worst, mut seen): (Option<(u32, &Entry)>, usize) = (None, 0);
        for _ in 0..SAMPLE_LOOKS_MAX {
            let entry = match wants {
                Wants::Key => database.entries.random(&mut self.chance),
                Wants::Value => database.entries.random_in_memory(&mut self.chance),
            }?;
            let is_candidate = match wants {
                Wants::Key => !policy.needs_deadline() || entry.deadline_ms().is_some(),
                Wants::Value => is_worth_spilling(entry),
            };
            if !is_candidate {
                continue;
            }
            let age = match policy.counts_uses() {
                true => u32::MAX - uses(&self.settings, entry.last_use(), now_ms),
                false => lru_clock(now_ms).wrapping_sub(entry.last_use()),
            };
            if worst.is_none_or(|(oldest, _)| age > oldest) {
                worst = Some((age, entry));
            }
            seen += 1;
            if seen == samples {
                break;
            }
        }
        match worst {
            Some((_, entry)) => Some((database.entries.hash(entry.key()), entry.key().into())),
            // Where keys with a deadline are rare, the one whose deadline is the soonest goes.
            None => soonest(),
        }
    }

    /// Empties a database. A snapshot that has not walked it goes on with what it was.
    pub(super) fn flush(&mut self, number: usize) {
        let empty = Database::new(self.hasher.clone());
        let old = std::mem::replace(&mut self.databases[number], empty);
        match old.walk {
            Some(_) => self.flushed.push(old),
            None => self.dropped.entries(old.entries),
        }
    }

    /// When the key's time has come, milliseconds since 1970, if it has one; nothing if there is no such key.
    pub(crate) fn deadline_ms(&self, database: usize, key: &[u8]) -> Option<Option<u64>> {
        let entry = self.databases[database].entries.find(self.hash(key), key)?;
        Some(entry.deadline_ms())
    }

    /// What TYPE says of a key's value, whether its time is up or not; nothing if there is no such key.
    pub(crate) fn kind(&self, database: usize, key: &[u8]) -> Option<&'static str> {
        Some(self.databases[database].entries.find(self.hash(key), key)?.kind())
    }

    /// The hash by which a key is found and placed in a snapshot.
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }
}

/// What an entry that is used now has as its last use.
pub(super) fn use_now(
    settings: &Settings,
    chance: &mut Random,
    last_use: Option<u32>,
    now_ms: u64,
) -> u32 {
    if !settings.eviction.counts_uses() {
        return lru_clock(now_ms);
    }
    let mut count = last_use.map_or(NEW_USES, |last_use| uses(settings, last_use, now_ms));
    if last_use.is_some() && count < 255 {
        // The more uses are counted, the fewer of them count.
        count += u32::from(chance.draw().is_multiple_of(odds(count, settings.lfu_log_factor)));
    }
    minutes(now_ms) << 8 | count
}

/// One of so many uses counts, where this many are counted already.
pub(super) fn odds(count: u32, log_factor: u32) -> u64 {
    u64::from(count.saturating_sub(NEW_USES)) * u64::from(log_factor) + 1
}

/// The time of a last use: 64 ms a step, around in eight years.
pub(super) fn lru_clock(now_ms: u64) -> u32 {
    (now_ms >> LRU_SHIFT) as u32
}

/// Milliseconds since a last use.
pub(super) fn idle_ms(last_use: u32, now_ms: u64) -> u64 {
    u64::from(lru_clock(now_ms).wrapping_sub(last_use)) << LRU_SHIFT
}

const LRU_SHIFT: u32 = 6;

fn minutes(now_ms: u64) -> u32 {
    (now_ms / 60_000) as u32 & 0xffff
}

/// How often an entry was used, less what it lost since.
pub(super) fn uses(settings: &Settings, last_use: u32, now_ms: u64) -> u32 {
    let (since, count) = (last_use >> 8, last_use & 0xff);
    let passed = minutes(now_ms).wrapping_sub(since) & 0xffff;
    count.saturating_sub(passed.checked_div(settings.lfu_decay_minutes).unwrap_or(0))
}
