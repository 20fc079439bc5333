//! The one table of commands: the data's rows and the server's, found by name.

use super::shards::reach::{Reach, reach_of};
use crate::command::Command;
pub(crate) use crate::command::{key_places, keys_of};
use std::collections::BTreeMap;

/// A row, with what is counted of it.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) command: Command,
    /// The workers that it concerns, where there are several.
    pub(crate) reach: Reach,
    named_by: NamedBy,
    pub(crate) calls: u64,
    pub(crate) usec: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
}

/// Which of a client's words name a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    First,
    /// The first, where there is no other: the second may name a row of its own.
    FirstAlone,
    /// The first and the second. A bar between the two is the table's way to write it, and no client's.
    FirstAndSecond,
}

/// What a client's words name.
pub(crate) enum Found {
    /// A command.
    Row(usize),
    /// A command that has subcommands, and not this one.
    NoSubcommand,
    /// Nothing.
    Unknown,
}

/// The table.
pub(crate) struct Table {
    rows: Vec<Row>,
    /// Rows by the hash of their name: open addressing.
    slots: Box<[u16]>,
    /// Names that have subcommands, with their rows.
    containers: BTreeMap<&'static str, Vec<usize>>,
}

/// The longest name, its subcommand's included; no client's word is longer and a name.
const NAME_BYTES_MAX: usize = 32;
/// Several times as many as there are rows.
const SLOTS: usize = 2048;
const EMPTY: u16 = u16::MAX;

impl Table {
    /// Of these rows, in this order.
    pub(crate) fn new(commands: impl Iterator<Item = Command>) -> Table {
        let rows: Vec<Row> = commands
            .map(|command| Row {
                command,
                reach: reach_of(&command),
                named_by: NamedBy::First,
                calls: 0,
                usec: 0,
                rejected: 0,
                failed: 0,
            })
            .collect();
        let mut table = Table {
            slots: vec![EMPTY; SLOTS].into_boxed_slice(),
            containers: BTreeMap::new(),
            rows,
        };
        assert!(table.rows.len() * 2 < SLOTS, "the table has room for every row");
        for index in 0..table.rows.len() {
            let name = table.rows[index].command.name;
            assert!(
                name.len() <= NAME_BYTES_MAX,
                "`{name}` is longer than the names that are looked for"
            );
            let mut slot = hash(name.as_bytes());
            while table.slots[slot] != EMPTY {
                slot = (slot + 1) % SLOTS;
            }
            table.slots[slot] = index as u16;
            if let Some((container, _)) = name.split_once('|') {
                table.containers.entry(container).or_default().push(index);
            }
        }
        for row in &mut table.rows {
            if row.command.name.contains('|') {
                row.named_by = NamedBy::FirstAndSecond;
            } else if table.containers.contains_key(row.command.name) {
                row.named_by = NamedBy::FirstAlone;
            }
        }
        table
    }

    /// The row that a command's words name, in any case.
    pub(crate) fn find(&self, args: &[&[u8]]) -> Found {
        let mut name = [0; NAME_BYTES_MAX];
        let Some(len) = lower(args[0], &mut name, 0) else { return Found::Unknown };
        if let Some(index) = self.index_of(&name[..len]) {
            match self.rows[index].named_by {
                NamedBy::First => return Found::Row(index),
                NamedBy::FirstAlone if args.len() == 1 => return Found::Row(index),
                NamedBy::FirstAlone => {}
                NamedBy::FirstAndSecond => return Found::Unknown,
            }
        }
        let Ok(container) = std::str::from_utf8(&name[..len]) else { return Found::Unknown };
        if !self.containers.contains_key(container) {
            return Found::Unknown;
        }
        let Some(sub) = args.get(1) else { return Found::NoSubcommand };
        if len + 1 >= name.len() {
            return Found::NoSubcommand;
        }
        name[len] = b'|';
        let found = lower(sub, &mut name, len + 1).and_then(|len| self.index_of(&name[..len]));
        found.map_or(Found::NoSubcommand, Found::Row)
    }

    /// The row of a name as in the table.
    pub(crate) fn index_of(&self, name: &[u8]) -> Option<usize> {
        let mut slot = hash(name);
        loop {
            let index = self.slots[slot];
            if index == EMPTY {
                return None;
            }
            if self.rows[usize::from(index)].command.name.as_bytes() == name {
                return Some(usize::from(index));
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    pub(crate) fn command(&self, index: usize) -> Command {
        self.rows[index].command
    }

    pub(crate) fn row(&mut self, index: usize) -> &mut Row {
        &mut self.rows[index]
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn rows_mut(&mut self) -> &mut [Row] {
        &mut self.rows
    }

    pub(crate) fn containers(&self) -> &BTreeMap<&'static str, Vec<usize>> {
        &self.containers
    }
}

/// A word in lower case behind the first `from` bytes; where it ends.
fn lower(word: &[u8], into: &mut [u8], from: usize) -> Option<usize> {
    let end = from + word.len();
    let place = into.get_mut(from..end)?;
    place.copy_from_slice(word);
    place.make_ascii_lowercase();
    Some(end)
}

/// FNV-1a. The names are fixed: no client can make them collide.
fn hash(name: &[u8]) -> usize {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) as usize % SLOTS
}

/// What a transaction does at once.
pub(crate) fn is_done_inside_multi(name: &str) -> bool {
    matches!(name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}
