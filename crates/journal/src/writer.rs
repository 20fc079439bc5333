//! The writer: it owns the files, and does what the worker has put into the mail.
//!
//! One [`turn`](Writer::turn) writes one batch, syncs when the policy says so, and does a piece of a snapshot. A thread
//! runs turns until there is nothing to do, then sleeps; a simulation calls them itself. A write or a sync of the log
//! that fails is the last: what the kernel does with pages that it could not write is not known, so nothing is tried
//! again. A snapshot that fails takes only itself with it.

use crate::error::JournalError;
use crate::files::Files;
use crate::format::{IS_CLOSED, ItemHead, Kind, MARK_BYTES, Sequence, push_mark, seal};
use crate::gather::{Gather, Hold};
use crate::options::{Clock, Options, Policy, SYNC_AFTER};
use crate::recover::{Earlier, Past};
use crate::segment::{Failed, Segment, SnapshotFile};
use crate::shared::{Batch, Shared, clear};
use crate::snapshot_mail::{Finish, Job, SnapshotState};
use rustix::thread::set_current_timer_slack;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// After a write that no reply waits for, the writer sleeps so long: commits of that time are one write, and the
/// worker pays for none of them the system call that wakes a thread.
const NAP: Duration = Duration::from_millis(1);

/// The writer of one journal.
pub struct Writer {
    files: Box<dyn Files>,
    /// For messages.
    folder: PathBuf,
    shared: Arc<Shared>,
    options: Options,
    segment: Segment,
    /// Full segments, oldest first.
    earlier: VecDeque<Earlier>,
    /// What each snapshot in place is from.
    snapshots: Vec<u64>,
    /// What the newest snapshot is from that this writer has put in place: records up to here are not needed.
    base: u64,
    /// The bytes of the snapshot that a start would begin with.
    snapshot_bytes: u64,
    /// A snapshot is from the record before this one, which begins a segment: so the segments up to there can go.
    begins_segment: Option<u64>,
    in_hand: Batch,
    gather: Gather,
    written: u64,
    /// Commands in what is written and not durable.
    unsynced_commands: u64,
    durable: u64,
    job: Job,
    snapshot: Option<SnapshotFile>,
}

/// What a turn leaves to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until the worker hands something over.
    Idle,
    /// A sync at this time of the clock, in nanoseconds.
    At(u64),
    /// A batch is held until this time, or until so many commands wait.
    Held {
        /// Of the clock, in nanoseconds.
        until_ns: u64,
        /// See [`Journal::awaited`](crate::Journal::awaited).
        commands: u64,
    },
    /// Nothing any more: the journal was closed, or writes have ended.
    Ended,
}

impl Writer {
    pub(crate) fn begin(
        files: Box<dyn Files>,
        folder: &Path,
        shared: Arc<Shared>,
        options: Options,
        past: Past,
    ) -> Result<Writer, Failed> {
        let Past { last, earlier, snapshots, snapshot_bytes } = past;
        let Options { shard, segment_bytes, .. } = options;
        let is_synced_often = options.policy == Policy::Always;
        let segment = Segment::create(&*files, shard, last + 1, segment_bytes, 0, is_synced_often)?;
        let writer = Writer {
            files,
            folder: folder.to_owned(),
            shared,
            options,
            segment,
            earlier,
            snapshots,
            base: 0,
            snapshot_bytes,
            begins_segment: None,
            in_hand: Batch::default(),
            gather: Gather::default(),
            written: last,
            unsynced_commands: 0,
            durable: last,
            job: Job::default(),
            snapshot: None,
        };
        writer.tally();
        Ok(writer)
    }

    /// Runs turns until the journal is closed.
    pub(crate) fn run(mut self) {
        let _says_so = SaysWhenItPanics(Arc::clone(&self.shared));
        let is_waited_for = self.options.policy == Policy::Always || self.options.ring_when_written;
        if is_waited_for {
            // Otherwise what is held is held for 50 us more.
            let _ = set_current_timer_slack(NonZeroU64::new(1));
        }
        loop {
            let written = self.written;
            let in_time = |clock: &Clock, due_ns: u64| {
                Some(Duration::from_nanos(due_ns.saturating_sub(clock.now_ns())))
            };
            let mut wanted = 0;
            let timeout = match self.turn() {
                Next::Idle | Next::At(_) | Next::Held { .. }
                    if self.written > written && !is_waited_for =>
                {
                    thread::sleep(NAP);
                    continue;
                }
                Next::Ended => return,
                Next::Idle => None,
                Next::At(due_ns) => in_time(&self.options.clock, due_ns),
                Next::Held { until_ns, commands } => {
                    wanted = commands;
                    in_time(&self.options.clock, until_ns)
                }
            };
            self.shared.sleep(timeout, wanted);
        }
    }

    /// Does what is there to be done.
    pub fn turn(&mut self) -> Next {
        if self.shared.failure().is_some() {
            return Next::Ended;
        }
        self.work().unwrap_or_else(|error| {
            self.snapshot = None;
            self.shared.fail(error.below(&self.folder));
            Next::Ended
        })
    }

    fn work(&mut self) -> Result<Next, Failed> {
        if let Some(held) = self.held() {
            return Ok(held);
        }
        let is_closing = self.take();
        if !self.in_hand.is_empty() {
            self.write_batch()?;
        }
        let due_ns = self.sync_due_ns();
        let is_due = due_ns.is_some_and(|due_ns| due_ns <= self.options.clock.now_ns());
        if is_due {
            self.sync()?;
            if !is_closing {
                self.mark_end()?;
            }
        }
        self.do_job()?;
        if is_closing {
            self.close()?;
            return Ok(Next::Ended);
        }
        if let Some(held) = self.held() {
            return Ok(held);
        }
        Ok(self.sync_due_ns().map_or(Next::Idle, Next::At))
    }

    /// What there is to wait for, if what is in the mail is held.
    fn held(&mut self) -> Option<Next> {
        let now_ns = self.options.clock.now_ns();
        let mail = self.shared.mail();
        if mail.is_closing || mail.is_more_there || !mail.snapshot.is_idle(self.written) {
            self.gather.give_up();
            return None;
        }
        match self.gather.hold(now_ns, mail.batch.commands) {
            Hold::No => None,
            Hold::Until { ns, commands } => {
                self.shared.tallies.holds.store(self.gather.held(), Ordering::Relaxed);
                Some(Next::Held { until_ns: ns, commands })
            }
        }
    }

    /// Takes what the worker has handed over; true when it is the last.
    fn take(&mut self) -> bool {
        let mut mail = self.shared.mail();
        mem::swap(&mut mail.batch, &mut self.in_hand);
        let since_ns = self.in_hand.since_ns;
        mail.unsynced_since_ns = mail.unsynced_since_ns.or(since_ns);
        let written = if self.in_hand.is_empty() { self.written } else { self.in_hand.last };
        mail.snapshot.take(&mut self.job, written);
        // What comes behind it was appended later, so none of it is written yet.
        self.begins_segment = self.job.begin.map(|from| from + 1).or(self.begins_segment);
        let is_more_there = mem::take(&mut mail.is_more_there);
        let is_closing = mail.is_closing;
        drop(mail);
        if is_more_there {
            self.shared.ring();
        }
        is_closing
    }

    /// When what is written has to be made durable.
    fn sync_due_ns(&self) -> Option<u64> {
        if self.written == self.durable {
            return None;
        }
        let since_ns = self.shared.mail().unsynced_since_ns?;
        match self.options.policy {
            Policy::Always => Some(0),
            Policy::EverySecond => Some(since_ns.saturating_add(SYNC_AFTER.as_nanos() as u64)),
            Policy::No => None,
        }
    }

    /// Writes the batch in hand: in one piece, or in one per segment that it reaches into.
    fn write_batch(&mut self) -> Result<(), Failed> {
        let mut batch = mem::take(&mut self.in_hand);
        self.unsynced_commands += batch.commands;
        let done = self.write_items(&mut batch);
        batch.clear();
        self.in_hand = batch;
        self.shared.tallies.batches.fetch_add(1, Ordering::Relaxed);
        self.tally();
        done
    }

    fn write_items(&mut self, batch: &mut Batch) -> Result<(), Failed> {
        let bytes = &mut batch.bytes[..];
        // The mark goes into the room that the worker left for it. A new segment needs none: its head is one.
        bytes[..MARK_BYTES].copy_from_slice(&self.mark(self.durable));
        let (mut begin, mut end) = (0, MARK_BYTES);
        while let Some(head) = ItemHead::parse(&bytes[end..]) {
            let item_bytes = head.item_bytes();
            let is_begun = self.begins_segment.take_if(|first| *first == head.sequence).is_some()
                && self.segment.first < head.sequence;
            if is_begun || !self.segment.has_room((end + item_bytes - begin) as u64) {
                if end > MARK_BYTES {
                    self.write(&bytes[begin..end], begin, head.sequence - 1)?;
                }
                self.next_segment(head.sequence, item_bytes)?;
                begin = end;
            }
            seal(&mut bytes[end..end + item_bytes], self.segment.salt);
            end += item_bytes;
        }
        self.write(&bytes[begin..end], begin, batch.last)
    }

    /// Writes items of a batch, of which `last` is the last; `begin` is where in it, and 0 is with its mark.
    fn write(&mut self, items: &[u8], begin: usize, last: u64) -> Result<(), Failed> {
        self.segment.write(items)?;
        self.written = last;
        let mark_bytes = if begin == 0 { MARK_BYTES } else { 0 };
        let is_room_wanted = self.shared.set_written(last, (items.len() - mark_bytes) as u64);
        if is_room_wanted || self.options.ring_when_written {
            self.shared.ring();
        }
        Ok(())
    }

    /// What says in the log that all up to `durable` was so before what follows.
    fn mark(&self, durable: u64) -> [u8; MARK_BYTES] {
        let mut mark = Vec::with_capacity(MARK_BYTES);
        push_mark(&mut mark, self.written + 1, &[durable]);
        seal(&mut mark, self.segment.salt);
        mark.try_into().expect("a head and one number")
    }

    /// Goes on in a new segment. What the one before holds is durable from here on, whatever the policy: only the last
    /// segment may have a torn end.
    fn next_segment(&mut self, first: u64, item_bytes: usize) -> Result<(), Failed> {
        self.segment.trim()?;
        self.sync_segment()?;
        self.set_durable();
        let Options { shard, segment_bytes, policy, .. } = self.options;
        let (item_bytes, is_synced_often) = (item_bytes as u64, policy == Policy::Always);
        let files = &*self.files;
        let next = Segment::create(files, shard, first, segment_bytes, item_bytes, is_synced_often);
        let next = next?;
        let full = mem::replace(&mut self.segment, next);
        // One without a record had the same name, and is gone.
        if full.first < first {
            self.earlier.push_back(Earlier { first: full.first, bytes: full.offset });
        }
        self.prune_log();
        Ok(())
    }

    /// Makes durable what is written.
    fn sync(&mut self) -> Result<(), Failed> {
        if self.written > self.durable {
            let commands = self.unsynced_commands;
            let took_ns = self.sync_segment()?;
            self.shared.mail().unsynced_since_ns = None;
            self.set_durable();
            if self.options.policy == Policy::Always {
                let waiting = self.shared.mail().batch.commands;
                let now_ns = self.options.clock.now_ns();
                self.gather.synced(took_ns, now_ns, commands, waiting);
            }
        }
        Ok(())
    }

    /// Syncs the segment; how long it took, in nanoseconds.
    fn sync_segment(&mut self) -> Result<u64, Failed> {
        let began_ns = self.options.clock.now_ns();
        self.segment.sync()?;
        let took_ns = self.options.clock.now_ns().saturating_sub(began_ns);
        self.shared.tallies.sync_ns.fetch_add(took_ns, Ordering::Relaxed);
        Ok(took_ns)
    }

    /// Says behind the last batch that it is durable, unless the next one is there to do so. Is not synced itself: a kill
    /// of the process leaves it, and a damaged byte before it is then not taken for a torn end.
    fn mark_end(&mut self) -> Result<(), Failed> {
        let is_next_there = !self.shared.mail().batch.is_empty();
        if !is_next_there && self.segment.has_room(MARK_BYTES as u64) {
            self.segment.write(&self.mark(self.durable))?;
        }
        Ok(())
    }

    fn set_durable(&mut self) {
        let records = self.written - self.durable;
        self.durable = self.written;
        let commands = mem::take(&mut self.unsynced_commands);
        let tallies = &self.shared.tallies;
        tallies.syncs.fetch_add(1, Ordering::Relaxed);
        tallies.synced_records.fetch_add(records, Ordering::Relaxed);
        tallies.synced_commands.fetch_add(commands, Ordering::Relaxed);
        tallies.synced_commands_max.fetch_max(commands, Ordering::Relaxed);
        self.shared.set_durable(self.durable);
        self.shared.ring();
    }

    fn tally(&self) {
        let tallies = &self.shared.tallies;
        let earlier: u64 = self.earlier.iter().map(|segment| segment.bytes).sum();
        tallies.segments.store(self.earlier.len() as u64 + 1, Ordering::Relaxed);
        tallies.log_bytes.store(earlier + self.segment.offset, Ordering::Relaxed);
        tallies.snapshot_bytes.store(self.snapshot_bytes, Ordering::Relaxed);
    }

    /// Does what is to be done for a snapshot.
    fn do_job(&mut self) -> Result<(), Failed> {
        let mut job = mem::take(&mut self.job);
        if job.is_given_up
            && let Some(snapshot) = self.snapshot.take()
        {
            snapshot.abandon(&*self.files);
        }
        if job.finish.is_some() {
            // The log reaches what any entry knows before a start can begin with it.
            self.sync()?;
        }
        let is_done = job.finish.is_some();
        let is_chunk = !job.chunk.is_empty();
        match self.write_snapshot(&mut job) {
            Ok(None) if is_chunk => self.shared.ring(),
            Ok(None) => {}
            Ok(Some(state)) => self.end_snapshot(state),
            Err(error) => {
                if let Some(snapshot) = self.snapshot.take() {
                    snapshot.abandon(&*self.files);
                }
                self.end_snapshot(SnapshotState::Failed(error.below(&self.folder)));
            }
        }
        debug_assert!(!is_done || self.snapshot.is_none());
        clear(&mut job.chunk);
        self.job.chunk = job.chunk;
        Ok(())
    }

    /// Does what is handed over of a snapshot, if it has not failed; its state when it has come to its end.
    fn write_snapshot(&mut self, job: &mut Job) -> Result<Option<SnapshotState>, Failed> {
        if let Some(from) = job.begin {
            self.snapshot = Some(SnapshotFile::create(&*self.files, self.options.shard, from)?);
        }
        let Some(snapshot) = &mut self.snapshot else { return Ok(None) };
        if !job.chunk.is_empty() {
            snapshot.write(&mut job.chunk)?;
        }
        let Some(Finish { rest, entries, .. }) = &mut job.finish else { return Ok(None) };
        snapshot.write(rest)?;
        let (from, entries, bytes) = (snapshot.from, *entries, snapshot.offset);
        if let Some(snapshot) = self.snapshot.take() {
            snapshot.place(&*self.files)?;
        }
        self.snapshot_bytes = bytes;
        self.prune(from);
        Ok(Some(SnapshotState::InPlace { from: Sequence(from), entries }))
    }

    fn end_snapshot(&self, state: SnapshotState) {
        self.shared.mail().snapshot.end(state);
        self.shared.ring();
    }

    /// Removes what the snapshot from `from` stands for. What cannot be removed is tried again behind the next one.
    fn prune(&mut self, from: u64) {
        self.snapshots.retain(|older| {
            *older < from && self.files.remove(&Kind::Snapshot.name(*older)).is_err()
        });
        self.snapshots.push(from);
        self.base = from;
        self.prune_log();
        self.tally();
    }

    /// Removes the segments that hold nothing behind the newest snapshot.
    fn prune_log(&mut self) {
        while let Some(oldest) = self.earlier.front() {
            let next = self.earlier.get(1).map_or(self.segment.first, |segment| segment.first);
            if next > self.base + 1 || self.files.remove(&Kind::Log.name(oldest.first)).is_err() {
                break;
            }
            self.earlier.pop_front();
        }
    }

    /// The last there is: says in the log that nothing is missing, and gives back space.
    fn close(&mut self) -> Result<(), Failed> {
        self.sync()?;
        if let Some(snapshot) = self.snapshot.take() {
            snapshot.abandon(&*self.files);
        }
        self.segment.write(&self.mark(self.written | IS_CLOSED))?;
        self.segment.trim()?;
        self.segment.sync()
    }
}

/// A writer that panics is a journal that takes no write any more.
struct SaysWhenItPanics(Arc<Shared>);

impl Drop for SaysWhenItPanics {
    fn drop(&mut self) {
        if thread::panicking() {
            let error = io::Error::other("its thread panicked");
            self.0.fail(JournalError::new("run", "the journal's writer", &error));
        }
    }
}
