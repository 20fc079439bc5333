//! The way of a change to workers in user space: two tables that take turns, and one count per worker and slot.

use super::lock;
use crate::{
    compile::{Effects, Entry},
    decide::Decision,
    fate::Fate,
    fields::{Fields, Parsed},
    table::{SIDE_BY_SIDE, Table},
    tuple::Found,
};
use laneway_core::Bell;
use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// A change of a table.
pub(super) enum Op {
    Insert {
        port: usize,
        group: u32,
        place: (u64, u32),
        entries: Vec<Entry>,
        effects: Box<Effects>,
    },
    Remove {
        port: usize,
        group: u32,
        rank: u64,
        entries: Vec<Entry>,
    },
    Clear {
        port: usize,
    },
}

impl Op {
    pub(super) fn apply(&self, table: &mut Table) {
        match self {
            Op::Insert { port, group, place, entries, effects } => {
                table.insert(*port, *group, *place, entries, **effects);
            }
            Op::Remove { port, group, rank, entries } => {
                table.remove(*port, *group, *rank, entries);
            }
            Op::Clear { port } => table.clear(*port),
        }
    }
}

pub(super) struct Publisher {
    /// What was offered last.
    pub(super) live: Arc<Table>,
    /// What was offered before that; changed when no worker has it any more.
    pub(super) spare: Arc<Table>,
    /// Changes that `live` has and `spare` has not.
    pub(super) backlog: Vec<Op>,
    /// Changes that neither has.
    pub(super) pending: Vec<Op>,
    pub(super) workers: Vec<Arc<Shared>>,
}

impl Publisher {
    /// `None` while a worker still has the spare table, else whether there was anything to do.
    pub(super) fn commit(&mut self) -> Option<bool> {
        if self.pending.is_empty() {
            self.catch_up();
            return Some(false);
        }
        // A worker that has ended takes nothing any more; what it counted stays.
        for worker in self.workers.iter().filter(|worker| Arc::strong_count(worker) == 1) {
            lock(&worker.next).take();
        }
        // Synchronises with the workers' drops: every worker that had it has stopped reading.
        let spare = Arc::get_mut(&mut self.spare)?;
        self.backlog.drain(..).for_each(|op| op.apply(spare));
        self.pending.iter().for_each(|op| op.apply(spare));
        std::mem::swap(&mut self.live, &mut self.spare);
        self.backlog = std::mem::take(&mut self.pending);
        for worker in self.workers.iter().filter(|worker| Arc::strong_count(worker) > 1) {
            *lock(&worker.next) = Some(self.live.clone());
            // Pairs with the load in `RuleFeed::take`.
            worker.is_new.store(true, Ordering::Release);
            worker.bell.get().inspect(|bell| bell.ring());
        }
        self.catch_up();
        Some(true)
    }

    /// Brings the spare table up to date if no worker has it: after many rules were loaded before the workers
    /// began, the first rule that is added to them costs no more than the second.
    pub(super) fn catch_up(&mut self) {
        if let Some(spare) = Arc::get_mut(&mut self.spare) {
            self.backlog.drain(..).for_each(|op| op.apply(spare));
        }
    }
}

/// Between the set and one worker.
pub(super) struct Shared {
    pub(super) is_new: AtomicBool,
    /// The slot: the latest set that the worker has not taken yet.
    pub(super) next: Mutex<Option<Arc<Table>>>,
    /// By rule slot; the worker alone writes.
    pub(super) hits: Box<[Count]>,
    /// Rung when there is a new set.
    pub(super) bell: OnceLock<Bell>,
}

#[derive(Default)]
pub(super) struct Count {
    pub(super) frames: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// A worker's end: the rules it executes now, and its counters.
pub struct RuleFeed {
    pub(super) table: Arc<Table>,
    pub(super) shared: Arc<Shared>,
}

/// The header fields of a frame that rules look at.
#[derive(Clone, Debug)]
pub struct Headers(pub(super) Fields);

impl Headers {
    /// Those of this frame.
    pub fn of(frame: &[u8]) -> Headers {
        Headers(Parsed::of(frame).fields)
    }
}

impl RuleFeed {
    /// Runs the rules of a port on a frame of `bytes` bytes with these headers, as a worker does, and
    /// counts; the fate, if the rules decide it. Nothing is done to a frame.
    #[inline]
    pub fn judge(&self, port: u16, headers: &Headers, bytes: u64) -> Option<Fate> {
        let mut fields = headers.0;
        self.decide(usize::from(port), &mut fields, bytes).fate
    }

    /// As [`judge`](Self::judge), of the frames of a burst, as a worker does it; `bytes` and `report` have
    /// the frames' places in `headers`.
    #[inline]
    pub fn judge_burst(
        &self,
        port: u16,
        headers: &[Headers],
        bytes: impl Fn(usize) -> u64,
        mut report: impl FnMut(usize, Option<Fate>),
    ) {
        for (part, headers) in headers.chunks(SIDE_BY_SIDE).enumerate() {
            let mut first = [Found::NONE; SIDE_BY_SIDE];
            let first = &mut first[..headers.len()];
            self.find_first(usize::from(port), |i| &headers[i].0, first);
            for (i, (headers, first)) in headers.iter().zip(first).enumerate() {
                let (at, mut fields) = (part * SIDE_BY_SIDE + i, headers.0);
                let decision = self.decide_from(usize::from(port), *first, &mut fields, bytes(at));
                report(at, decision.fate);
            }
        }
    }

    /// Has `bell` rung whenever there is a new set.
    #[must_use]
    pub fn with_bell(self, bell: &Bell) -> RuleFeed {
        self.shared.bell.get_or_init(|| bell.clone());
        self
    }

    /// Moves to the latest set, if there is a new one. Between bursts; does not wait, and frees
    /// nothing: the set's owner keeps both tables.
    #[inline]
    pub fn take(&mut self) {
        if self.shared.is_new.load(Ordering::Acquire)
            && let Ok(mut next) = self.shared.next.try_lock()
            && let Some(table) = next.take()
        {
            self.shared.is_new.store(false, Ordering::Relaxed);
            self.table = table;
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self, port: usize) -> bool {
        self.table.is_empty(port)
    }

    /// The first match of each of the frames with these fields, for [`decide_from`](Self::decide_from).
    #[inline]
    pub(crate) fn find_first<'a>(
        &self,
        port: usize,
        fields: impl Fn(usize) -> &'a Fields,
        found: &mut [Found],
    ) {
        self.table.find_first(port, fields, found);
    }

    /// Runs the rules of a port on the fields of a frame of `bytes` bytes.
    #[inline]
    pub(crate) fn decide(&self, port: usize, fields: &mut Fields, bytes: u64) -> Decision {
        let mut first = [Found::NONE];
        self.find_first(port, |_| fields, &mut first);
        self.decide_from(port, first[0], fields, bytes)
    }

    /// As [`decide`](Self::decide), of a frame whose first match is known.
    #[inline]
    pub(crate) fn decide_from(
        &self,
        port: usize,
        first: Found,
        fields: &mut Fields,
        bytes: u64,
    ) -> Decision {
        let hits = &self.shared.hits;
        self.table.decide(port, first, fields, |slot| {
            // Loads and stores instead of additions: this worker alone writes.
            let add = |counter: &AtomicU64, n: u64| {
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
            };
            let Count { frames, bytes: total } = &hits[slot as usize];
            add(frames, 1);
            add(total, bytes);
        })
    }
}
