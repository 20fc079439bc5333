//! Snapshots of all data: asked for by BGSAVE, SAVE and BGREWRITEAOF, or due because the log has outgrown the last one.
//!
//! ```text
//!   a turn's record is in the log ─▶ begin ─▶ some keys per turn ─▶ pieces ─▶ the log's writer ─▶ in place
//!                                      ╰─ until then a key is copied before it changes
//! ```
//!
//! A snapshot is of the moment between two records, exactly, so a start loads it and does the records behind it again,
//! once each. The data see to that by copying what is about to change (`data/snapshot` says why no other way will do).
//! All three commands make the same one, which takes the place of Redis's RDB file and of its rewritten AOF in one.
//!
//! What must always hold: a snapshot begins when no command is done that is not in a record; a turn gives it no more
//! than [`Bounds`] say, and one turn in [`PAUSE_US`] gives it any; a worker with commands to do gives it a tenth of its
//! time. Where half as much was copied as the bounds allow it hurries, and where more was, writes wait as they do for a
//! full log. A snapshot that fails leaves the log as it is.
//!
//! What it does not do: a single value is written whole in one turn, however long it is. Nothing is saved by the hour
//! (`save` of Redis): the log has it all.

use super::client::{Client, Kept, Key};
use super::info_line::line;
use super::log::{NotTaken, Snapshot};
use super::saving::{Cause, Ended, Running, Saving};
use super::server::Server;
use crate::data::SnapshotStep;
use std::fmt::Write;

/// From one step to the next, so that short turns do not spend most of their time on it.
const PAUSE_US: u64 = 100;
/// While there are commands to do: so many times as long as the step took, so that it has a tenth of the time.
const PAUSE_PER_STEP: u64 = 9;
/// However long a step took, the next one is due behind this.
const PAUSE_US_MAX: u64 = 5_000;
/// A piece of entries, as the log takes it.
const PIECE_BYTES: usize = 64 << 10;
/// A buffer that has grown beyond this is given back when it is empty.
const KEPT_BYTES: usize = 1 << 20;
/// Behind one that failed, how long it takes until the next begins by itself.
const RETRY_US: u64 = 60_000_000;

/// In front of a piece: its last entry goes on in the next piece, or ends with it.
const GOES_ON: u8 = 0;
const ENDS: u8 = 1;

impl Server {
    /// At the end of a turn whose commands are in a record: begins what is wanted, and does a step of what is on its
    /// way.
    pub(crate) fn go_on_saving(&mut self) {
        if self.saving.running.is_none() {
            self.begin_saving();
        }
        // Of most turns that is all: to ask the log takes a lock.
        if self.saving.running.is_none() {
            return;
        }
        match self.journal.snapshot() {
            Snapshot::Writing => match self.store.snapshot_failed() {
                None => self.step(),
                Some(why) => self.end_saving(Err(format!("{why}; the log goes on as before"))),
            },
            Snapshot::InPlace => self.end_saving(Ok(())),
            Snapshot::Failed(why) => self.end_saving(Err(why)),
            Snapshot::None => {
                let why = self.journal.failed();
                self.end_saving(Err(why.unwrap_or_else(|| "it was given up".to_owned())));
            }
        }
    }

    fn begin_saving(&mut self) {
        let cause = match (self.saving.wants_save, self.saving.wants_rewrite) {
            (true, _) => Cause::Save,
            (false, true) => Cause::Rewrite,
            (false, false) => return,
        };
        let begun = self.journal.begin_snapshot();
        if begun == Err(NotTaken::Full) {
            return;
        }
        match cause {
            Cause::Save => self.saving.wants_save = false,
            Cause::Rewrite => self.saving.wants_rewrite = false,
        }
        self.saving.running = Some(Running {
            cause,
            began_us: self.time.now_us,
            changes: self.changes,
            stepped_us: 0,
            pause_us: PAUSE_US,
            commands: self.stats.commands,
            is_walked: false,
            is_given: false,
            waits_for_room: false,
            waits_for_values: false,
        });
        match begun {
            Ok(()) => self.store.snapshot_begin(),
            Err(_) => self.end_saving(Err(self.why_not_saved().unwrap_or_default())),
        }
    }

    fn step(&mut self) {
        let now_us = self.time.now_us;
        let commands = self.stats.commands;
        let Saving { bounds, running, pending, given, piece, .. } = &mut self.saving;
        let Some(running) = running.as_mut().filter(|running| !running.is_given) else { return };
        running.waits_for_values = self.store.snapshot_waits();
        // The clock of the calendar may be set back.
        if !running.waits_for_room && now_us.abs_diff(running.stepped_us) < running.pause_us {
            return;
        }
        running.stepped_us = now_us;
        let began_us = (self.time.read_us)();
        if pending.is_empty() {
            let step = self.store.snapshot_step(bounds.keys_max, bounds.step_bytes, pending);
            running.is_walked = step == SnapshotStep::Done;
            running.waits_for_values = self.store.snapshot_waits();
        }
        running.waits_for_room = false;
        while *given < pending.len() {
            let rest = &pending[*given..];
            let taken = &rest[..rest.len().min(PIECE_BYTES)];
            piece.clear();
            piece.push(if taken.len() == rest.len() { ENDS } else { GOES_ON });
            piece.extend_from_slice(taken);
            // Why it has ended is seen in the next turn.
            if self.journal.give_piece(piece).is_err() {
                running.waits_for_room = true;
                break;
            }
            *given += taken.len();
        }
        if !running.waits_for_room {
            pending.clear();
            pending.shrink_to(KEPT_BYTES);
            *given = 0;
            if running.is_walked {
                running.is_given = true;
                self.journal.finish_snapshot();
            }
        }
        let copied_bytes = self.store.snapshot_copied_bytes();
        let is_idle = commands == running.commands;
        running.commands = commands;
        running.pause_us = if is_idle || copied_bytes > bounds.copied_bytes_max / 2 {
            PAUSE_US
        } else {
            let took_us = (self.time.read_us)().saturating_sub(began_us);
            (took_us * PAUSE_PER_STEP).clamp(PAUSE_US, PAUSE_US_MAX)
        };
        self.saving.is_behind = copied_bytes > bounds.copied_bytes_max;
    }

    fn end_saving(&mut self, ended: Result<(), String>) {
        let Some(running) = self.saving.running.take() else { return };
        self.journal.give_up_snapshot();
        self.store.snapshot_end();
        let now_us = self.time.now_us;
        let bytes = self.journal.bytes().total();
        let saving = &mut self.saving;
        (saving.pending, saving.given, saving.is_behind) = (Vec::new(), 0, false);
        match &ended {
            Ok(()) => {
                saving.saved_us = Some(now_us);
                saving.saves += 1;
                saving.changes_saved = running.changes;
                saving.base_bytes = bytes;
            }
            Err(_) => saving.failed_us = now_us,
        }
        let took_s = now_us.saturating_sub(running.began_us) / 1_000_000;
        *saving.ended_mut(running.cause) =
            Ended { failed: ended.as_ref().err().cloned(), took_s: Some(took_s) };
        if running.cause == Cause::Save
            && let Some((key, id)) = saving.asked_by.take()
        {
            self.answer_save(key, id, ended);
        }
    }

    fn answer_save(&mut self, key: Key, id: u64, ended: Result<(), String>) {
        let Some(client) = self.clients.get_mut(key).filter(|client| client.id == id) else {
            return;
        };
        client.postponed = None;
        if !client.is_silent() {
            match ended {
                Ok(()) => client.out.ok(),
                Err(why) => client.out.error(&format!("ERR {why}")),
            }
        }
        self.note(key);
    }

    /// Asks for a snapshot when the log has outgrown the last one.
    pub(crate) fn watch_growth(&mut self) {
        let (percentage, bytes_min) =
            (self.config.rewrite_percentage, self.config.rewrite_bytes_min);
        let is_idle = !self.saving.is_under_way(Cause::Save)
            && !self.saving.is_under_way(Cause::Rewrite)
            && self.journal.is_on()
            && self.journal.failed().is_none();
        let is_new_failure = self.time.now_us.abs_diff(self.saving.failed_us) < RETRY_US;
        if percentage == 0 || !is_idle || is_new_failure {
            return;
        }
        let bytes = self.journal.bytes().total();
        // The segment before a snapshot may go behind the moment at which this was set, with the first record of the
        // next.
        self.saving.base_bytes = self.saving.base_bytes.min(bytes);
        let base_bytes = u128::from(self.saving.base_bytes.max(1));
        let growth = (u128::from(bytes) * 100 / base_bytes).saturating_sub(100);
        self.saving.wants_rewrite = bytes > bytes_min && growth >= u128::from(percentage);
    }

    /// Adds a piece of a snapshot to the data: at the start.
    pub(crate) fn load(&mut self, piece: &[u8]) -> Result<(), String> {
        let (kind, bytes) = piece.split_first().ok_or("a piece of the snapshot is empty")?;
        let mut entries = std::mem::take(&mut self.saving.loading);
        entries.extend_from_slice(bytes);
        match *kind {
            ENDS => {}
            GOES_ON => {
                self.saving.loading = entries;
                return Ok(());
            }
            other => return Err(format!("the snapshot has a piece of an unknown kind, {other}")),
        }
        let mut at = 0;
        while at < entries.len() {
            at += self.store.load_entry(&entries[at..]).map_err(|damaged| damaged.to_string())?;
            self.store.spill_excess(0);
            self.saving.loaded_keys += 1;
        }
        let mut beyond = self.store.databases().enumerate().skip(self.config.data.databases);
        if let Some((number, _)) = beyond.find(|(_, database)| database.keys > 0) {
            return Err(format!(
                "the snapshot has keys of database {number}, which there is not; raise --databases"
            ));
        }
        entries.clear();
        self.saving.loading = entries;
        Ok(())
    }

    /// When the last snapshot was in place; like Redis, the start if there was none since.
    fn saved_us(&self) -> u64 {
        self.saving.saved_us.unwrap_or(self.time.started_us)
    }

    /// Why no snapshot can be made.
    fn why_not_saved(&self) -> Option<String> {
        if !self.journal.is_on() {
            return Some(
                "there is no folder to save in: start with --appendonly yes --dir PATH".to_owned(),
            );
        }
        self.journal.failed()
    }
}

const ALREADY_SAVING: &str = "ERR Background save already in progress";
const IS_REWRITING: &str = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in \
order to schedule a BGSAVE whenever possible.";

pub(crate) fn bgsave(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let is_scheduled = match args[1..] {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"schedule") => true,
        _ => return client.out.error("ERR syntax error"),
    };
    if let Some(why) = server.why_not_saved() {
        return client.out.error(&format!("ERR {why}"));
    }
    if server.saving.is_under_way(Cause::Save) {
        return client.out.error(ALREADY_SAVING);
    }
    let is_rewriting = server.saving.is_under_way(Cause::Rewrite);
    if is_rewriting && !is_scheduled {
        return client.out.error(IS_REWRITING);
    }
    server.saving.wants_save = true;
    client.out.simple(if is_rewriting {
        "Background saving scheduled"
    } else {
        "Background saving started"
    });
}

/// Answered when the snapshot is in place; other clients are served meanwhile.
pub(crate) fn save(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    if let Some(why) = server.why_not_saved() {
        return client.out.error(&format!("ERR {why}"));
    }
    if server.saving.is_under_way(Cause::Save) {
        return client.out.error(ALREADY_SAVING);
    }
    let index = server.table.index_of(b"save").expect("it is this row");
    client.postponed = Some(Box::new(Kept::new(index, args)));
    server.saving.asked_by = Some((client.key, client.id));
    server.saving.wants_save = true;
}

pub(crate) fn bgrewriteaof(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    if let Some(why) = server.why_not_saved() {
        return client.out.error(&format!("ERR {why}"));
    }
    if server.saving.is_under_way(Cause::Rewrite) {
        return client.out.error("ERR Background append only file rewriting already in progress");
    }
    let is_saving = server.saving.is_under_way(Cause::Save);
    server.saving.wants_rewrite = true;
    client.out.simple(if is_saving {
        "Background append only file rewriting scheduled"
    } else {
        "Background append only file rewriting started"
    });
}

pub(crate) fn lastsave(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.integer((server.saved_us() / 1_000_000) as i64);
}

/// INFO persistence, by the names of Redis.
pub(crate) fn about_persistence(server: &Server, text: &mut String) {
    let saving = &server.saving;
    let status = |failed: bool| if failed { "err" } else { "ok" };
    let took = |ended: &Ended| ended.took_s.map_or(-1, |s| s as i64);
    let current = |cause: Cause| {
        let of_cause = saving.running.as_ref().filter(|running| running.cause == cause);
        let s = of_cause.map(|one| server.time.now_us.saturating_sub(one.began_us) / 1_000_000);
        (u8::from(s.is_some()), s.map_or(-1, |s| s as i64))
    };
    let (is_saving, saving_s) = current(Cause::Save);
    let (is_rewriting, rewriting_s) = current(Cause::Rewrite);
    line!(text, "loading", 0);
    line!(text, "rdb_changes_since_last_save", server.changes - saving.changes_saved);
    line!(text, "rdb_bgsave_in_progress", is_saving);
    line!(text, "rdb_last_save_time", server.saved_us() / 1_000_000);
    line!(text, "rdb_last_bgsave_status", status(saving.save.failed.is_some()));
    line!(text, "rdb_last_bgsave_time_sec", took(&saving.save));
    line!(text, "rdb_current_bgsave_time_sec", saving_s);
    line!(text, "rdb_saves", saving.saves);
    line!(text, "rdb_last_load_keys_loaded", saving.loaded_keys);
    line!(text, "aof_enabled", u8::from(server.journal.is_on()));
    line!(text, "aof_rewrite_in_progress", is_rewriting);
    let is_scheduled = saving.wants_rewrite && saving.running.is_some();
    line!(text, "aof_rewrite_scheduled", u8::from(is_scheduled));
    line!(text, "aof_last_rewrite_time_sec", took(&saving.rewrite));
    line!(text, "aof_current_rewrite_time_sec", rewriting_s);
    line!(text, "aof_last_bgrewrite_status", status(saving.rewrite.failed.is_some()));
    line!(text, "aof_last_write_status", status(server.journal.failed().is_some()));
    if server.journal.is_on() {
        let bytes = server.journal.bytes();
        line!(text, "aof_current_size", bytes.total());
        line!(text, "aof_base_size", saving.base_bytes);
        line!(text, "aof_snapshot_size", bytes.snapshot);
        let syncs = server.journal.syncs();
        line!(text, "aof_pending_records", server.journal.pending());
        line!(text, "aof_syncs", syncs.count);
        line!(text, "aof_syncs_usec", syncs.took_us);
        line!(text, "aof_synced_records", syncs.records);
        line!(text, "aof_synced_commands", syncs.commands);
        line!(text, "aof_synced_commands_max", syncs.commands_max);
        line!(text, "aof_syncs_held", syncs.held);
        line!(text, "appendfsync", server.journal.fsync().name());
        line!(text, "aof_recovered", server.config.recovered);
        for (name, ended) in [("bgsave", &saving.save), ("bgrewrite", &saving.rewrite)] {
            if let Some(why) = &ended.failed {
                let _ = write!(text, "last_{name}_error:{why}\r\n");
            }
        }
    }
}
