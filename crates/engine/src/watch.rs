//! The way to look at a running worker from outside: ask, and at its next tick it publishes a report.
//!
//! Nothing is shared between requests, so a worker that is not watched pays one relaxed load per
//! tick; where the clock stands still, per turn. The report is a copy; the worker goes on. What must
//! always hold: no look waits for a worker that has ended.

use crate::RunReport;
use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A look at one worker. Clones look at the same one.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    wanted: AtomicBool,
    /// Ports that are looked at, at most.
    ports_max: AtomicUsize,
    published: Mutex<Published>,
    arrived: Condvar,
}

/// What the worker has put there.
#[derive(Debug, Default)]
struct Published {
    /// For the look that waits.
    report: Option<RunReport>,
    /// Once it has ended.
    last: Option<RunReport>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            wanted: AtomicBool::new(false),
            ports_max: AtomicUsize::new(usize::MAX),
            published: Mutex::default(),
            arrived: Condvar::default(),
        }
    }
}

impl Watch {
    /// No request yet.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// From now on a look shows the first so many ports of the lane, because reading the counters of one may be a
    /// system call.
    pub fn look_at_most(&self, ports_max: usize) {
        self.shared.ports_max.store(ports_max, Ordering::Relaxed);
    }

    /// The worker's report as of its next tick, its [`Ended`](crate::Ended) being `Running`; what
    /// the app did in that tick is in it. `None` when the worker published nothing within
    /// `timeout`, because one of its turns takes that long, and at once when it has ended (see [`last`](Self::last)).
    ///
    /// One look at a time: of two at once, one may get nothing.
    pub fn look(&self, timeout: Duration) -> Option<RunReport> {
        let mut published = self.lock();
        published.report = None;
        self.shared.wanted.store(true, Ordering::Relaxed);
        let is_awaited = |it: &mut Published| it.report.is_none() && it.last.is_none();
        let (mut published, _) = self
            .shared
            .arrived
            .wait_timeout_while(published, timeout, is_awaited)
            .unwrap_or_else(PoisonError::into_inner);
        self.shared.wanted.store(false, Ordering::Relaxed);
        published.report.take()
    }

    /// The report that a worker ended with, of as many ports as a look shows; `None` while it runs.
    pub fn last(&self) -> Option<RunReport> {
        self.lock().last.clone()
    }

    /// The worker's side, before it ticks its app: a request made before this sees what the app does
    /// in the tick.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        // Relaxed: the lock orders the report itself.
        self.shared.wanted.load(Ordering::Relaxed)
    }

    /// The worker's side: ports that are to be in what it publishes.
    pub(crate) fn ports_max(&self) -> usize {
        // Relaxed: a look that misses it shows more.
        self.shared.ports_max.load(Ordering::Relaxed)
    }

    /// The worker's side, after the tick.
    pub(crate) fn publish(&self, report: RunReport) {
        self.lock().report = Some(report);
        self.shared.wanted.store(false, Ordering::Relaxed);
        self.shared.arrived.notify_all();
    }

    /// The worker's side, before its first turn: another run may have ended under the same control.
    pub(crate) fn begin(&self) {
        self.lock().last = None;
    }

    /// The worker's side, behind its last turn.
    pub(crate) fn end(&self, mut report: RunReport) {
        report.ports.truncate(self.ports_max());
        self.lock().last = Some(report);
        self.shared.arrived.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Published> {
        // A report is whole or absent, even behind a panic.
        self.shared.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
