//! The snapshots that are asked for, on their way and done. [`save`](super::save) is what the server does with them.

use super::key::Key;

/// What a snapshot may take.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Keys in one turn: some ten microseconds in all.
    pub(crate) keys_max: usize,
    /// Bytes behind which a turn gives no further key.
    pub(crate) step_bytes: usize,
    /// Copies of what has changed that wait for the next step.
    pub(crate) copied_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { keys_max: 128, step_bytes: 64 << 10, copied_bytes_max: 64 << 20 }
    }
}

/// What a snapshot is for, and so which fields of INFO report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// BGSAVE or SAVE.
    Save,
    /// BGREWRITEAOF, or the size of the log.
    Rewrite,
}

/// How the last snapshot of a cause ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Ended {
    pub(super) failed: Option<String>,
    pub(super) took_s: Option<u64>,
}

/// A snapshot on its way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) cause: Cause,
    pub(super) began_us: u64,
    /// Changes that it holds.
    pub(super) changes: u64,
    pub(super) stepped_us: u64,
    /// From there to the next step.
    pub(super) pause_us: u64,
    /// Commands done by then.
    pub(super) commands: u64,
    /// Every key is among the pieces.
    pub(super) is_walked: bool,
    /// Every piece is with the log, which has yet to put it in place.
    pub(super) is_given: bool,
    /// The log's writer is behind; the bell rings when it is not.
    pub(super) waits_for_room: bool,
    /// The value store has yet to answer; the bell rings when it has.
    pub(super) waits_for_values: bool,
}

/// Snapshots: what is asked for, on its way, and done.
#[derive(Debug, Default)]
pub(crate) struct Saving {
    pub(crate) bounds: Bounds,
    pub(super) wants_save: bool,
    pub(super) wants_rewrite: bool,
    pub(super) running: Option<Running>,
    /// Whose SAVE waits, by place and number.
    pub(super) asked_by: Option<(Key, u64)>,
    /// Entries, of which the log has the first `given` bytes.
    pub(super) pending: Vec<u8>,
    pub(super) given: usize,
    pub(super) piece: Vec<u8>,
    /// There are more copies than may wait.
    pub(super) is_behind: bool,
    /// Entries whose end has not been read, at the start.
    pub(super) loading: Vec<u8>,
    pub(super) loaded_keys: u64,
    pub(super) saved_us: Option<u64>,
    /// Changes that the last snapshot holds.
    pub(super) changes_saved: u64,
    pub(super) saves: u64,
    pub(super) save: Ended,
    pub(super) rewrite: Ended,
    /// What the log took behind the last snapshot: its growth is from there on.
    pub(super) base_bytes: u64,
    /// When the last one failed; 0 if none has.
    pub(super) failed_us: u64,
}

impl Saving {
    /// True while writes must wait for the snapshot.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// When it wants a turn, microseconds since 1970.
    pub(crate) fn due_us(&self) -> Option<u64> {
        let running = self.running.as_ref()?;
        let waits = running.waits_for_room || running.waits_for_values;
        (!running.is_given && !waits).then(|| running.stepped_us + running.pause_us)
    }

    /// A log was joined that takes so many bytes for its snapshot.
    pub(crate) fn begin_from(&mut self, snapshot_bytes: u64) {
        self.base_bytes = snapshot_bytes;
    }

    /// True if an entry of a snapshot was not read to its end.
    pub(crate) fn is_loading(&self) -> bool {
        !self.loading.is_empty()
    }

    fn is_wanted(&self, cause: Cause) -> bool {
        match cause {
            Cause::Save => self.wants_save,
            Cause::Rewrite => self.wants_rewrite,
        }
    }

    pub(super) fn is_under_way(&self, cause: Cause) -> bool {
        self.is_wanted(cause) || self.running.as_ref().is_some_and(|one| one.cause == cause)
    }

    pub(super) fn ended_mut(&mut self, cause: Cause) -> &mut Ended {
        match cause {
            Cause::Save => &mut self.save,
            Cause::Rewrite => &mut self.rewrite,
        }
    }
}
