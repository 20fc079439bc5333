//! The journal as the log of a server: a folder, recovered at the start.
//!
//! A snapshot's pieces are entries of the journal's. All of them are captured at the record that it begins behind,
//! because the data copy what is about to change: the journal then does all later records again, each once.

use crate::lsm::{LsmValues, remove_left};
use crate::serve::{Fsync, Kv, Log, LogBytes, NotTaken, Snapshot, Syncs};
use laneway_core::Bell;
use laneway_journal::{
    Folder, Journal, OpenError, Options, Policy, Recovered, Refused, Restored, Shard,
    SnapshotRefused, SnapshotState, SnapshotWriter,
};
use std::io;
use std::path::{Path, PathBuf};

/// A journal, as the server sees it.
#[derive(Debug)]
struct FileLog {
    /// In front of the journal, whose end it must not outlive.
    snapshot: Option<SnapshotWriter>,
    journal: Journal,
    /// A record that could not be taken and had been done.
    too_long: Option<String>,
    /// Commands in the next record.
    commands: u32,
}

impl Log for FileLog {
    fn append(&mut self, record: &[u8]) -> Result<u64, NotTaken> {
        if self.too_long.is_some() {
            return Err(NotTaken::Ended);
        }
        let number = self.journal.append(record).map_err(|refused| match refused {
            Refused::NoRoom => NotTaken::Full,
            Refused::Failed => NotTaken::Ended,
            Refused::TooLong { .. } => {
                self.too_long = Some(refused.to_string());
                NotTaken::Ended
            }
        })?;
        self.journal.awaited(self.commands);
        Ok(number.0)
    }

    fn commit(&mut self) {
        self.journal.commit();
    }

    fn take_all(&mut self) {
        self.journal.take_all();
    }

    fn close(&mut self) {
        // One that is not finished has no end to wait for.
        self.snapshot = None;
        self.journal.end();
    }

    fn awaited(&mut self, commands: u32) {
        self.commands = commands;
    }

    fn syncs(&self) -> Syncs {
        let figures = self.journal.figures();
        Syncs {
            count: figures.syncs,
            took_us: figures.sync_ns / 1_000,
            records: figures.synced_records,
            commands: figures.synced_commands,
            commands_max: figures.synced_commands_max,
            held: figures.holds,
        }
    }

    fn record_bytes_max(&self) -> usize {
        self.journal.record_bytes_max()
    }

    fn last(&self) -> u64 {
        self.journal.last().0
    }

    fn durable(&self) -> u64 {
        self.journal.durable().0
    }

    fn failed(&self) -> Option<String> {
        let of_journal = || self.journal.failed().map(ToString::to_string);
        self.too_long.clone().or_else(of_journal)
    }

    fn fsync(&self) -> Fsync {
        match self.journal.options().policy {
            Policy::Always => Fsync::Always,
            Policy::EverySecond => Fsync::EverySecond,
            Policy::No => Fsync::No,
        }
    }

    fn begin_snapshot(&mut self) -> Result<(), NotTaken> {
        if self.too_long.is_some() {
            return Err(NotTaken::Ended);
        }
        self.snapshot = Some(self.journal.begin_snapshot().map_err(not_taken)?);
        Ok(())
    }

    fn give_piece(&mut self, piece: &[u8]) -> Result<(), NotTaken> {
        let snapshot = self.snapshot.as_mut().ok_or(NotTaken::Ended)?;
        snapshot.entry(snapshot.from(), piece).map_err(not_taken)
    }

    fn finish_snapshot(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            // What it was refused for is its state.
            let _ = self.journal.finish_snapshot(snapshot);
        }
    }

    fn give_up_snapshot(&mut self) {
        self.snapshot = None;
    }

    fn snapshot(&self) -> Snapshot {
        match self.journal.snapshot() {
            SnapshotState::None => Snapshot::None,
            SnapshotState::Writing => Snapshot::Writing,
            SnapshotState::InPlace { .. } => Snapshot::InPlace,
            SnapshotState::Failed(why) => Snapshot::Failed(format!(
                "{}; the log goes on as before: look at the device, then save again",
                why.what()
            )),
        }
    }

    fn bytes(&self) -> LogBytes {
        let figures = self.journal.figures();
        LogBytes { snapshot: figures.snapshot_bytes, records: figures.log_bytes }
    }
}

fn not_taken(refused: SnapshotRefused) -> NotTaken {
    match refused {
        SnapshotRefused::NoRoom | SnapshotRefused::Running => NotTaken::Full,
        SnapshotRefused::Ended | SnapshotRefused::TooLong { .. } => NotTaken::Ended,
    }
}

/// Where one of several workers has its log: a folder in `folder`, whose name says how many there are. The one worker
/// of a store has `folder` itself.
pub(crate) fn shard_folder(folder: &Path, worker: usize, workers: usize) -> (PathBuf, Shard) {
    let shard = Shard { number: worker as u32, count: workers as u32 };
    match workers {
        1 => (folder.to_owned(), shard),
        _ => (folder.join(shard_name(worker, workers)), shard),
    }
}

fn shard_name(worker: usize, workers: usize) -> String {
    format!("shard-{worker}-of-{workers}")
}

/// Has the folders of all workers there, before any of them opens its log: at a first start it makes them. From then on
/// one that is missing has been taken away, and an empty one in its place would be a store without its keys.
///
/// # Errors
/// The log is of another number of workers, by which other keys would be this one's; a folder is missing; or one
/// cannot be read or made.
pub(crate) fn prepare_folders(folder: &Path, workers: usize) -> Result<(), String> {
    let names = names_in(folder)?;
    for name in &names {
        let of_several = name.strip_prefix("shard-").and_then(|rest| rest.split_once("-of-"));
        let logged = match of_several {
            Some((_, count)) => count.parse().ok(),
            None => is_of_log(name).then_some(1),
        };
        if let Some(logged) = logged.filter(|&logged: &usize| logged != workers) {
            return Err(format!(
                "the log there (`{name}`) is of {logged} worker{}, and this run has {workers}, by which keys \
                 are other workers'; start with --workers {logged}, or name another --dir and copy the data \
                 over by a client",
                if logged == 1 { "" } else { "s" }
            ));
        }
    }
    if workers == 1 {
        return Ok(());
    }
    let shards: Vec<String> = (0..workers).map(|worker| shard_name(worker, workers)).collect();
    if let Some(missing) = shards.iter().find(|shard| !names.contains(shard)) {
        for there in shards.iter().filter(|shard| names.contains(shard)) {
            // A first start that was cut off in the middle has left folders without a log.
            if names_in(&folder.join(there))?.iter().any(|name| is_of_log(name)) {
                return Err(format!(
                    "its folder `{missing}` is missing, and `{there}` beside it has a log: the keys of a worker \
                     would be gone; put the folder back, or restore all of them from a copy"
                ));
            }
        }
    }
    for shard in shards {
        let own = folder.join(shard);
        Folder::open(&own)
            .map_err(|error| format!("the folder {} cannot be made: {error}", own.display()))?;
    }
    Ok(())
}

/// What is in a folder; nothing is in one that is not there.
fn names_in(folder: &Path) -> Result<Vec<String>, String> {
    let name = |entry: io::Result<std::fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    match std::fs::read_dir(folder).and_then(|entries| entries.map(name).collect()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|error| format!("the folder cannot be read: {error}")),
    }
}

fn is_of_log(name: &str) -> bool {
    name.ends_with(".log") || name.ends_with(".snapshot")
}

/// Does again what the log in `folder` holds, and logs there from now on; the bell rings when a record is durable. If
/// it `spills`, values beyond memory go to a value store in the same folder, from the first record on.
///
/// # Errors
/// What is in the way, or damaged, and what to try.
pub(crate) fn recover(
    kv: &mut Kv,
    folder: &Path,
    policy: Policy,
    shard: Shard,
    bell: Option<Bell>,
    spills: bool,
) -> Result<(), String> {
    // Opened behind the log, whose lock keeps another server out of both.
    let mut unopened = spills.then(|| bell.clone());
    let mut why_not = None;
    let mut open = |kv: &mut Kv| -> Result<(), String> {
        if let Some(bell) = unopened.take() {
            let values = LsmValues::open(folder, bell).inspect_err(|why| {
                why_not = Some(why.clone());
            })?;
            kv.spill_to(Box::new(values));
        }
        Ok(())
    };
    let options = Options { policy, shard, bell, ..Options::default() };
    let opened = Journal::open(folder, options, |restored| {
        open(kv)?;
        restore(kv, restored)
    });
    let opened = opened.map_err(|error| error.to_string());
    let opened = opened
        .and_then(|opened| if spills { open(kv) } else { remove_left(folder) }.map(|()| opened));
    let (journal, recovered) = opened.map_err(|error| why_not.unwrap_or(error))?;
    join(kv, journal, &recovered).map_err(|error| error.to_string())
}

/// Gives the server what a start was handed.
pub(crate) fn restore(kv: &mut Kv, restored: Restored<'_>) -> Result<(), String> {
    match restored {
        Restored::Entry { bytes, .. } => kv.load(bytes),
        Restored::Record { bytes, .. } => kv.restore(bytes),
    }
}

/// From now on the server logs in this journal.
pub(crate) fn join(kv: &mut Kv, journal: Journal, recovered: &Recovered) -> Result<(), OpenError> {
    if kv.is_loading() {
        let why = "the snapshot ends inside an entry".to_owned();
        return Err(OpenError::Rejected { sequence: recovered.last, why });
    }
    let log = FileLog { snapshot: None, journal, too_long: None, commands: 0 };
    kv.join_log(Box::new(log), recovered.to_string());
    Ok(())
}
