//! The way of a change to the kernel half: one bank, and one change at a time on its way.

use super::{Hits, Slots, lock};
use crate::bank::{Bank, Change, Whole};
use laneway_core::Bell;
use std::sync::{Arc, Mutex, OnceLock};

pub(super) struct KernelPublisher {
    pub(super) shared: Arc<KernelShared>,
    /// The rules with all changes so far.
    pub(super) bank: Bank,
    pub(super) changed: bool,
    /// There is a kernel half that takes changes; before that a commit only prepares the first set.
    pub(super) is_read: bool,
}

impl KernelPublisher {
    /// `None` while the kernel does not have the changes before, else whether there was anything to do.
    pub(super) fn commit(&mut self, slots: &Slots) -> Option<bool> {
        let mut next = lock(&self.shared.next);
        if !matches!(*next, Handover::Nothing) {
            return None;
        }
        self.bank.settle();
        if !std::mem::take(&mut self.changed) {
            return Some(false);
        }
        let change = self.bank.commit();
        if self.is_read {
            let (slots, frees_slots) = (slots.used, !slots.leaving.is_empty());
            *next = Handover::Waits(KernelChange { change, slots, frees_slots });
            self.shared.bell.get().inspect(|bell| bell.ring());
        } else {
            self.bank.settle();
        }
        Some(true)
    }
}

/// A change on its way into the kernel.
pub(crate) struct KernelChange {
    pub(crate) change: Change,
    /// Rules have slots below this.
    pub(crate) slots: u32,
    /// Rules are gone, whose slots will be used again.
    pub(crate) frees_slots: bool,
}

/// The slot between the set and the kernel half.
#[derive(Default)]
pub(super) enum Handover {
    /// The kernel has everything.
    #[default]
    Nothing,
    /// For the tick behind the bell.
    Waits(KernelChange),
    /// The kernel half is at it.
    InHand,
}

/// Between the set and the user side of the kernel half.
#[derive(Default)]
pub(super) struct KernelShared {
    pub(super) next: Mutex<Handover>,
    /// By rule slot, as last read from the kernel; none of later slots.
    pub(super) hits: Mutex<Vec<Hits>>,
    /// Rung when a change waits.
    pub(super) bell: OnceLock<Bell>,
}

/// The kernel half's end: changes to carry out, counters to report.
pub struct KernelFeed {
    /// What the kernel begins with; taken out when that is described.
    pub(crate) first: Whole,
    /// Rules have slots below this to begin with.
    pub(crate) slots: u32,
    pub(super) shared: Arc<KernelShared>,
}

impl KernelFeed {
    /// Has `bell` rung whenever a change waits.
    #[must_use]
    pub fn with_bell(self, bell: &Bell) -> KernelFeed {
        self.shared.bell.get_or_init(|| bell.clone());
        self
    }

    /// A change that waits. A commit waits until it is [`taken`](Self::taken).
    pub(crate) fn next(&self) -> Option<KernelChange> {
        let mut next = lock(&self.shared.next);
        match std::mem::take(&mut *next) {
            Handover::Waits(change) => {
                *next = Handover::InHand;
                Some(change)
            }
            other => {
                *next = other;
                None
            }
        }
    }

    /// The change is in force and no CPU executes what was before it any more.
    pub(crate) fn taken(&self) {
        *lock(&self.shared.next) = Handover::Nothing;
    }

    /// What was counted, by slot; all that there are.
    pub(crate) fn report(&self, hits: Vec<Hits>) {
        *lock(&self.shared.hits) = hits;
    }
}
