//! What the worker and the writer have in common: a place for one batch, one piece of a snapshot, and numbers.
//!
//! ```text
//!   worker                          mail (a lock held for a swap)            writer
//!   filling ── commit: swap ──────▶ batch ── taken: swap ─────────────────▶ in hand ──▶ the log
//!           ╲─ or copied behind ──▶   (while the writer is busy)
//!   sequence numbers, bytes ◀────── written, durable, failure ◀─────────────┘
//! ```
//!
//! Three buffers go round, so that neither side allocates once they have grown. The lock is never held during I/O.

use crate::error::JournalError;
use crate::files::FolderLock;
use crate::format::{MARK_BYTES, push_item};
use crate::snapshot_mail::{SnapshotMail, SnapshotState};
use laneway_core::Bell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A buffer that has grown beyond this is given back when it is empty.
const KEPT_BYTES: usize = 8 << 20;
/// A turn of so many bytes is copied behind the one that waits; a longer one waits on the worker's side.
const COPIED_BYTES_MAX: usize = 256 << 10;

/// Records of one turn or of several, for one write. Begins with room for a mark, unless it is empty.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    /// The number of its last record.
    pub(crate) last: u64,
    /// Commands that wait for it, if their number was given.
    pub(crate) commands: u64,
    /// When its oldest record was committed.
    pub(crate) since_ns: Option<u64>,
}

impl Batch {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub(crate) fn push(&mut self, sequence: u64, record: &[u8]) {
        if self.is_empty() {
            self.bytes.resize(MARK_BYTES, 0);
        }
        push_item(&mut self.bytes, sequence, record);
        self.last = sequence;
    }

    /// Takes what another has, behind what is here.
    fn take(&mut self, other: &mut Batch) {
        self.bytes.extend_from_slice(&other.bytes[MARK_BYTES..]);
        self.last = other.last;
        self.commands += other.commands;
        other.clear();
    }

    pub(crate) fn clear(&mut self) {
        self.since_ns = None;
        self.commands = 0;
        clear(&mut self.bytes);
    }
}

/// Empties a buffer, which keeps its memory unless that is much.
pub(crate) fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES);
}

/// What is handed from one side to the other.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) batch: Batch,
    /// When the oldest record was committed that the writer has and that is not durable.
    pub(crate) unsynced_since_ns: Option<u64>,
    /// The worker has a batch that it could not hand over.
    pub(crate) is_more_there: bool,
    pub(crate) snapshot: SnapshotMail,
    pub(crate) is_closing: bool,
    /// The writer leaves a batch of fewer commands where it is.
    wanted_commands: u64,
    /// The writer sleeps until it is woken.
    is_asleep: bool,
}

impl Mail {
    /// Nothing can be done by a writer that has written up to `written`.
    fn is_idle(&self, written: u64) -> bool {
        let is_held = self.batch.commands < self.wanted_commands && !self.is_more_there;
        (self.batch.is_empty() || is_held) && self.snapshot.is_idle(written) && !self.is_closing
    }
}

/// What the journal has done; for INFO and for deciding when to make a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Writes to the log.
    pub batches: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// How long they took, ns: with the time until the writer's thread had a CPU again.
    pub sync_ns: u64,
    /// Records that they made durable.
    pub synced_records: u64,
    /// Commands in those, where [`Journal::awaited`](crate::Journal::awaited) gave their number.
    pub synced_commands: u64,
    /// The most commands that one sync made durable.
    pub synced_commands_max: u64,
    /// Batches that were held for more commands, see [`Policy::Always`](crate::Policy::Always).
    pub holds: u64,
    /// Segments in the folder.
    pub segments: u64,
    /// The bytes in them.
    pub log_bytes: u64,
    /// The bytes of the snapshot that a start would begin with; 0 without one.
    pub snapshot_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tallies {
    pub(crate) batches: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_ns: AtomicU64,
    pub(crate) synced_records: AtomicU64,
    pub(crate) synced_commands: AtomicU64,
    pub(crate) synced_commands_max: AtomicU64,
    pub(crate) holds: AtomicU64,
    pub(crate) segments: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) snapshot_bytes: AtomicU64,
}

impl Tallies {
    pub(crate) fn figures(&self) -> Figures {
        Figures {
            batches: self.batches.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            sync_ns: self.sync_ns.load(Ordering::Relaxed),
            synced_records: self.synced_records.load(Ordering::Relaxed),
            synced_commands: self.synced_commands.load(Ordering::Relaxed),
            synced_commands_max: self.synced_commands_max.load(Ordering::Relaxed),
            holds: self.holds.load(Ordering::Relaxed),
            segments: self.segments.load(Ordering::Relaxed),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
            snapshot_bytes: self.snapshot_bytes.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    mail: Mutex<Mail>,
    wake: Condvar,
    written: AtomicU64,
    durable: AtomicU64,
    /// All bytes of records that were taken off the worker's account.
    written_bytes: AtomicU64,
    /// The worker was refused for want of room.
    wants_room: AtomicBool,
    failure: OnceLock<JournalError>,
    bell: Option<Bell>,
    pub(crate) tallies: Tallies,
    /// The folder is ours until both sides are gone: a writer that has failed ends, and its worker goes on.
    _lock: FolderLock,
}

impl Shared {
    pub(crate) fn new(last: u64, bell: Option<Bell>, lock: FolderLock) -> Shared {
        Shared {
            mail: Mutex::default(),
            wake: Condvar::new(),
            written: AtomicU64::new(last),
            durable: AtomicU64::new(last),
            written_bytes: AtomicU64::new(0),
            wants_room: AtomicBool::new(false),
            failure: OnceLock::new(),
            bell,
            tallies: Tallies::default(),
            _lock: lock,
        }
    }

    /// Held for a few swaps only. A side that panicked left whole values: there is no panic between two of them.
    pub(crate) fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker's side: there is something for the writer. One that works already, or waits for more, costs no system
    /// call.
    pub(crate) fn wake(&self, mut mail: MutexGuard<'_, Mail>) {
        let is_woken = mail.is_asleep && !mail.is_idle(self.written());
        mail.is_asleep &= !is_woken;
        drop(mail);
        if is_woken {
            self.wake.notify_one();
        }
    }

    /// The writer's side: returns when there is something to do, at the latest after `timeout`. A batch of fewer
    /// commands than `wanted_commands` is nothing to do.
    pub(crate) fn sleep(&self, timeout: Option<Duration>, wanted_commands: u64) {
        let mut mail = self.mail();
        mail.wanted_commands = wanted_commands;
        if !mail.is_idle(self.written()) {
            return;
        }
        mail.is_asleep = true;
        let is_asleep = |mail: &mut Mail| mail.is_asleep;
        let mut mail = match timeout {
            None => self.wake.wait_while(mail, is_asleep).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.wake.wait_timeout_while(mail, timeout, is_asleep);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        mail.is_asleep = false;
    }

    pub(crate) fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    #[inline]
    pub(crate) fn written(&self) -> u64 {
        // Pairs with `set_written`: what a reader sees of the file behind it is there.
        self.written.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn written_bytes(&self) -> u64 {
        // In one order with `wants_room`: see `want_room`.
        self.written_bytes.load(Ordering::SeqCst)
    }

    /// The writer's side: `bytes` of records less wait, the last of them is `written`. True when the worker waits for
    /// that.
    pub(crate) fn set_written(&self, written: u64, bytes: u64) -> bool {
        self.written.store(written, Ordering::Release);
        self.written_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.wants_room.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn set_durable(&self, durable: u64) {
        self.durable.store(durable, Ordering::Release);
    }

    /// The worker's side: ring when there is room. It must look again behind this: either it sees the room then, or
    /// the writer sees the flag behind making it.
    pub(crate) fn want_room(&self) {
        self.wants_room.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn failure(&self) -> Option<&JournalError> {
        self.failure.get()
    }

    /// Writes have ended. The first failure is the one that is reported.
    pub(crate) fn fail(&self, failure: JournalError) {
        let _ = self.failure.set(failure);
        let mut mail = self.mail();
        mail.batch.clear();
        mail.snapshot.end(SnapshotState::None);
        drop(mail);
        self.ring();
    }

    /// Hands a batch over. What is too long to be copied behind another stays, unless `is_forced`, and the bell says
    /// when it can be handed over.
    pub(crate) fn hand_over(&self, filling: &mut Batch, now_ns: u64, is_forced: bool) {
        let mut mail = self.mail();
        if mail.batch.is_empty() {
            filling.since_ns.get_or_insert(now_ns);
            std::mem::swap(&mut mail.batch, filling);
        } else if is_forced || filling.bytes.len() <= COPIED_BYTES_MAX {
            mail.batch.take(filling);
        } else {
            filling.since_ns.get_or_insert(now_ns);
            mail.is_more_there = true;
        }
        self.wake(mail);
    }

    /// When the oldest record was committed that is with the writer and not durable.
    pub(crate) fn unsynced_since_ns(&self) -> Option<u64> {
        let mail = self.mail();
        // What the writer has is older than what waits for it.
        mail.unsynced_since_ns.or(mail.batch.since_ns)
    }
}
