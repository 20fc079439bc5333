//! The way to end a run from outside: a flag that a signal thread may set, and a deadline.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Asks workers to stop. Clones share the flag; the deadline is each clone's own.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    deadline_ns: Option<u64>,
}

impl Stop {
    /// Not requested, no deadline.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// The same flag with a deadline, in the domain of the worker's clock.
    #[must_use]
    pub fn with_deadline_ns(mut self, deadline_ns: u64) -> Stop {
        self.deadline_ns = Some(deadline_ns);
        self
    }

    /// Asks every worker that has a clone to stop.
    pub fn request(&self) {
        // Relaxed, here and below: the flag carries no data, only itself.
        self.flag.store(true, Ordering::Relaxed);
    }

    /// True when the flag is set or the deadline has come.
    #[inline]
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.flag.load(Ordering::Relaxed) || self.deadline_ns.is_some_and(|at| now_ns >= at)
    }

    /// When the worker must be awake at the latest.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_shares_the_flag_and_has_its_own_deadline() {
        let stop = Stop::new();
        let timed = stop.clone().with_deadline_ns(10);
        assert!(!stop.is_due(10) && !timed.is_due(9) && timed.is_due(10));
        timed.request();
        assert!(stop.is_due(0));
    }
}
