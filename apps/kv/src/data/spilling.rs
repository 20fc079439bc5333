//! Values that memory has no room for: which go to a value store, and how they come back before a command needs them.
//!
//! ```text
//!   over the limit ─▶ spill_one: of a sample the value unused for longest ─▶ put ─▶ value store
//!   a command ─▶ fetch: asks for what its keys lack ··· answered ─▶ the command is done
//!             ─▶ fetch_now: the same, and waits; for what could not be foreseen, and at the start
//! ```
//!
//! Keys, deadlines and uses stay in memory, so whatever asks for no value (SCAN, DBSIZE, TTL, expiry, eviction) is as
//! it is without a value store, and so is what asks for a key that does not exist. `maxmemory` is for keys and values
//! in memory together: where keys alone take more, the policy of eviction decides, as in Redis.
//!
//! What must always hold: a command sees no key without its value; to spill and to fetch changes nothing, so neither is
//! logged, nor seen by a snapshot or by a client that watches a key. The value store is no place of safety: it begins
//! empty, and a value that it loses is an error to the client that asks for it, never another value and never an absent
//! key.
//!
//! What it does not do: a value whose key is longer than 255 bytes, or that takes no more than its number, is not
//! spilled.

use super::encoding::{kind_of, stored_value, with_stored_value};
use super::spill::{Spill, SpillCounts, Spilling, ValueStore};
use super::store::{Store, Wants};
use crate::command::{Command, keys_of};
use std::collections::HashSet;

impl Store {
    /// From now on values beyond `maxmemory` go to this value store, which is empty.
    pub fn spill_to(&mut self, values: Box<dyn ValueStore>) {
        self.spill = Some(Spill::new(values));
    }

    /// True if there is a value store.
    pub fn can_spill(&self) -> bool {
        self.spill.is_some()
    }

    /// What was spilled and fetched; nothing without a value store.
    pub fn spill_counts(&self) -> Option<SpillCounts> {
        let Spill { counts, values, .. } = self.spill.as_ref()?;
        let spilled = self.databases.iter().map(|database| database.entries.spilled()).sum();
        Some(SpillCounts { values: spilled, disk_bytes: values.disk_bytes(), ..*counts })
    }

    /// Why nothing is spilled any more, if that is so.
    pub fn spill_failed(&self) -> Option<String> {
        self.spill.as_ref()?.values.failed()
    }

    /// Moves a value from memory to the value store: of a sample the one that the policy of eviction likes least.
    pub fn spill_one(&mut self, now_ms: u64) -> Spilling {
        let Some(spill) = &self.spill else { return Spilling::Nothing };
        if spill.values.failed().is_some() {
            return Spilling::Nothing;
        }
        if !spill.values.has_room() {
            return Spilling::Behind;
        }
        // A database is drawn by its share of the values in memory; the next ones are looked at if none of them is to
        // be spilled.
        let all: usize = self.databases.iter().map(|database| database.entries.in_memory()).sum();
        let mut drawn = self.chance.index(all);
        let first = self.databases.iter().position(|database| {
            let here = drawn < database.entries.in_memory();
            drawn = drawn.saturating_sub(database.entries.in_memory());
            here
        });
        let count = self.databases.len();
        let mut order = (0..count).map(|at| (first.unwrap_or(0) + at) % count);
        let found =
            order.find_map(|number| Some((number, self.worst(number, now_ms, Wants::Value)?)));
        let Some((number, (hash, key))) = found else { return Spilling::Nothing };
        let (Some(spill), database) = (&mut self.spill, &mut self.databases[number]) else {
            return Spilling::Nothing;
        };
        let Some(entry) = database.entries.find(hash, &key) else { return Spilling::Nothing };
        let copy = database.entries.copy(hash);
        let Some(spilled) = entry.spilled(copy.unwrap_or(spill.next), kind_of(entry)) else {
            return Spilling::Nothing;
        };
        if copy.is_some() {
            spill.counts.unwritten += 1;
        } else {
            spill.values.put(spill.next, stored_value(entry));
            spill.counts.written += 1;
            spill.next += 1;
        }
        database.spill(hash, spilled);
        Spilling::Done
    }

    /// Spills until the data take no more than they may, and waits for the value store where it must: at the start.
    pub fn spill_excess(&mut self, now_ms: u64) {
        while self.spill.is_some() && self.is_over_limit() {
            self.ask_and_release();
            match self.spill_one(now_ms) {
                Spilling::Done => {}
                Spilling::Behind => {
                    self.spill.iter_mut().for_each(|spill| spill.values.wait());
                    self.fetches_ended = self.answered();
                }
                Spilling::Nothing => return,
            }
        }
    }

    /// Asks for the values that a command needs and that are not in memory; their numbers. The command may be done when
    /// all were among the [`answered`](Store::answered), and if one is away again by then it is fetched while it is
    /// done.
    pub fn fetch(&mut self, command: &Command, database: usize, args: &[&[u8]]) -> Vec<u64> {
        let (mut numbers, mut known) = (Vec::new(), HashSet::new());
        for (hash, number) in self.lacking(command, database, args) {
            let Some(spill) = &mut self.spill else { break };
            if known.insert(number) {
                spill.ask(number);
                spill.asked.insert(number, (database, hash));
                numbers.push(number);
            }
        }
        numbers
    }

    /// Brings the values that a command needs into memory, and waits for them.
    ///
    /// # Errors
    /// A value is lost, and why.
    pub fn fetch_now(
        &mut self,
        command: &Command,
        database: usize,
        args: &[&[u8]],
    ) -> Result<(), String> {
        loop {
            let mut awaited: HashSet<u64> =
                self.fetch(command, database, args).into_iter().collect();
            if awaited.is_empty() {
                return Ok(());
            }
            self.spill.iter_mut().for_each(|spill| spill.counts.waited += 1);
            while !awaited.is_empty() {
                for (number, result) in self.answered() {
                    if awaited.remove(&number) {
                        result?;
                    } else {
                        // A client that waits for it learns of it by the next call.
                        self.fetches_ended.push((number, result));
                    }
                }
                if let Some(spill) = self.spill.as_mut().filter(|_| !awaited.is_empty()) {
                    spill.values.wait();
                }
            }
        }
    }

    /// What the value store has answered: values are in memory again, unless their keys are gone meanwhile. The
    /// numbers, and why a value is lost.
    pub fn answered(&mut self) -> Vec<(u64, Result<(), String>)> {
        let Some(spill) = &mut self.spill else { return Vec::new() };
        let mut done = std::mem::take(&mut self.fetches_ended);
        for (number, answer) in spill.values.answers() {
            if let Some(owed) = spill.owed.remove(&number) {
                match &answer {
                    Ok(value) => owed.write(value, &mut spill.arrived),
                    Err(why) => spill.owed_failed = Some(why.clone()),
                }
            }
            let Some((database, hash)) = spill.asked.remove(&number) else { continue };
            let database = &mut self.databases[database];
            let Some(entry) = database.entries.find_spilled(hash, number) else {
                // Deleted, overwritten, or of another database now: a command that waits looks again.
                done.push((number, Ok(())));
                continue;
            };
            let fetched = answer.and_then(|value| {
                with_stored_value(entry, &value, &self.hasher)
                    .ok_or_else(|| format!("value {number} of the value store is damaged"))
            });
            done.push((
                number,
                fetched.map(|entry| {
                    spill.counts.fetched += 1;
                    database.fetched(hash, entry);
                }),
            ));
        }
        done
    }

    /// Values that a command needs and that are not in memory: the hashes of their keys, and their numbers.
    fn lacking(&mut self, command: &Command, database: usize, args: &[&[u8]]) -> Vec<(u64, u64)> {
        let entries = &self.databases[database].entries;
        if entries.spilled() == 0 || !needs_values(command.name, args) {
            return Vec::new();
        }
        let stored = |key: &[u8]| {
            let hash = entries.hash(key);
            Some((hash, entries.find(hash, key)?.stored()?.0))
        };
        keys_of(command.keys, args).into_iter().filter_map(stored).collect()
    }

    /// Asks for what a snapshot needs, and then has the value store forget what nothing names any more.
    pub(super) fn ask_and_release(&mut self) {
        let Some(spill) = &mut self.spill else { return };
        for database in self.flushed.iter_mut().chain(&mut self.databases) {
            if let Some(walk) = database.walk.as_mut().filter(|walk| !walk.owed.is_empty()) {
                spill.ask_owed(std::mem::take(&mut walk.owed));
            }
        }
        for database in self.flushed.iter_mut().chain(&mut self.databases) {
            database.entries.released.drain(..).for_each(|number| spill.values.forget(number));
        }
        self.dropped.released.drain(..).for_each(|number| spill.values.forget(number));
    }
}

/// True if a command looks at the values of its keys, or changes them: every one but those that are known not to.
fn needs_values(name: &str, args: &[&[u8]]) -> bool {
    match name {
        "del" | "unlink" | "exists" | "touch" | "type" | "ttl" | "pttl" | "expiretime"
        | "pexpiretime" | "expire" | "pexpire" | "expireat" | "pexpireat" | "persist" | "setex"
        | "psetex" | "setnx" | "mset" | "msetnx" | "object|idletime" | "object|freq"
        | "memory|usage" => false,
        "set" => {
            args.get(3..).unwrap_or_default().iter().any(|arg| arg.eq_ignore_ascii_case(b"get"))
        }
        _ => true,
    }
}
