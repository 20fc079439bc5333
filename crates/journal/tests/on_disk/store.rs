//! A store small enough to check: each key holds the bytes that were added to it. Adding is not idempotent, so a record
//! that is done twice or left out shows.

use laneway_journal::faults::Disk;
use laneway_journal::{Journal, OpenError, Options, Policy, Recovered, Restored, Sequence, Writer};
use laneway_random::Random;
use std::collections::BTreeMap;
use std::path::Path;

/// Keys are below this.
pub(crate) const KEYS: u64 = 24;

/// What a store holds.
pub(crate) type Values = BTreeMap<u8, Vec<u8>>;

/// A record: some keys, and what is added to each.
pub(crate) fn record(random: &mut Random) -> Vec<u8> {
    let mut record = Vec::new();
    for _ in 0..=random.below(3) {
        let length = match random.below(40) {
            0 => 6_000 + random.below(3_000), // longer than a segment of the tests
            1..=4 => random.below(1_500),
            _ => random.below(40),
        };
        record.push(random.below(KEYS) as u8);
        record.extend((length as u32).to_le_bytes());
        record.extend((0..length).map(|_| random.draw() as u8));
    }
    record
}

/// Adds what a record says to each key of which `is_due`.
pub(crate) fn apply(values: &mut Values, mut record: &[u8], is_due: impl Fn(u8) -> bool) {
    while let [key, a, b, c, d, rest @ ..] = record {
        let (added, rest) = rest.split_at(u32::from_le_bytes([*a, *b, *c, *d]) as usize);
        if is_due(*key) {
            values.entry(*key).or_default().extend(added);
        }
        record = rest;
    }
}

/// What a store holds that has done these records.
pub(crate) fn values_of(records: &[Vec<u8>]) -> Values {
    let mut values = Values::new();
    records.iter().for_each(|record| apply(&mut values, record, |_| true));
    values
}

/// What a start was handed.
#[derive(Default)]
pub(crate) struct Started {
    pub(crate) values: Values,
    captured: BTreeMap<u8, Sequence>,
}

impl Started {
    /// For [`Journal::open`].
    pub(crate) fn restore(&mut self, restored: Restored<'_>) -> Result<(), String> {
        match restored {
            Restored::Entry { captured, bytes } => {
                let (key, value) = bytes.split_first().ok_or("an entry without a key")?;
                self.values.insert(*key, value.to_vec());
                self.captured.insert(*key, captured);
            }
            Restored::Record { sequence, bytes } => {
                let captured = &self.captured;
                apply(&mut self.values, bytes, |key| {
                    captured.get(&key).is_none_or(|captured| sequence > *captured)
                });
            }
        }
        Ok(())
    }
}

/// Short segments and little room, on a simulated disk.
pub(crate) fn options(disk: &Disk, policy: Policy) -> Options {
    Options {
        policy,
        segment_bytes: 4096,
        waiting_bytes_max: 64 << 10,
        snapshot_chunk_bytes: 1 << 10,
        clock: disk.clock(),
        ..Options::default()
    }
}

/// A start on a simulated disk.
pub(crate) fn start(
    disk: &Disk,
    policy: Policy,
) -> Result<(Journal, Writer, Recovered, Values), OpenError> {
    start_with(disk, options(disk, policy))
}

/// The same with options of its own.
pub(crate) fn start_with(
    disk: &Disk,
    options: Options,
) -> Result<(Journal, Writer, Recovered, Values), OpenError> {
    let mut started = Started::default();
    let files = Box::new(disk.clone());
    let restore = |restored: Restored<'_>| started.restore(restored);
    let (journal, writer, recovered) =
        Journal::open_by_hand(files, Path::new("data"), options, restore)?;
    Ok((journal, writer, recovered, started.values))
}
