//! When a batch under `always` is taken: at once, or a little later, so that one sync is enough for all clients that
//! ask again.
//!
//! ```text
//!   sync ends: n replies leave ──▶ their clients ask again, within less than a sync
//!   at once:   the first of them has a sync, the others wait for its end and for a sync of their own: two per round
//!   held:      all of them have the next one: a sync and the way to the client and back per round
//! ```
//!
//! Commands that wait are counted by the caller that appends them. After a sync the writer holds what there is until as
//! many wait as waited then and were answered by it, and no longer than half of what a sync takes. Whether those that
//! were answered ask again is what it learns: where they do not (an open loop, clients that are slow), it stops trying,
//! and tries one window of at most 64 again. So a load that has nothing of it pays half a sync in one of 64.
//!
//! No I/O and no clock of its own; times are in nanoseconds of the caller's.

use std::mem;

/// However long a sync takes, nothing is held longer.
const HOLD_NS_MAX: u64 = 1_000_000;
/// Between two tries there are at most 2 to the power of this windows, but one.
const MISSES_MAX: u32 = 6;
/// Of what a sync takes, the last has this part in the estimate.
const NEWEST_PART: u64 = 8;
/// One that took longer than so many times the estimate was held up by something else.
const OUTLIER: u64 = 4;

/// Decides how long a batch is held.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// What a sync takes.
    sync_ns: u64,
    window: Option<Window>,
    /// Windows in succession in which too few asked again, up to [`MISSES_MAX`].
    misses: u32,
    /// So many windows are left out.
    left_out: u32,
    /// Windows in which a batch was held.
    held: u64,
}

/// The time behind a sync.
#[derive(Clone, Copy, Debug)]
struct Window {
    ends_ns: u64,
    /// Commands that the sync answered.
    answered: u64,
    /// Commands that waited at its end.
    waiting: u64,
    /// Some commands were held in it.
    has_held: bool,
}

/// What is to be done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It is taken.
    No,
    /// It is left until this time, or until so many commands wait.
    Until { ns: u64, commands: u64 },
}

impl Gather {
    /// A sync has taken so long up to now; it answered some commands, and others wait for the next.
    pub(crate) fn synced(&mut self, took_ns: u64, now_ns: u64, answered: u64, waiting: u64) {
        self.sync_ns = match self.sync_ns {
            0 => took_ns,
            ns => {
                let took_ns = took_ns.min(ns.saturating_mul(OUTLIER));
                ns - ns / NEWEST_PART + took_ns / NEWEST_PART
            }
        };
        self.window = None;
        if answered == 0 || answered + waiting < 2 {
            return;
        }
        if self.left_out > 0 {
            self.left_out -= 1;
            return;
        }
        let ends_ns = now_ns.saturating_add((self.sync_ns / 2).min(HOLD_NS_MAX));
        self.window = Some(Window { ends_ns, answered, waiting, has_held: false });
    }

    /// Whether a batch of so many commands is held.
    pub(crate) fn hold(&mut self, now_ns: u64, commands: u64) -> Hold {
        let Some(window) = &mut self.window else { return Hold::No };
        let wanted = window.answered + window.waiting;
        let is_over = now_ns >= window.ends_ns;
        if commands < wanted && !is_over {
            if commands > 0 && !mem::replace(&mut window.has_held, true) {
                self.held += 1;
            }
            return Hold::Until { ns: window.ends_ns, commands: wanted };
        }
        let arrived = commands.saturating_sub(window.waiting);
        let is_worth_it = 4 * arrived >= 3 * window.answered;
        self.window = None;
        if is_worth_it {
            // Not all at once: of few commands as many come by chance.
            self.misses /= 2;
        } else if commands > 0 {
            // Where nothing was held, nothing was lost by waiting.
            self.misses = (self.misses + 1).min(MISSES_MAX);
            self.left_out = (1 << self.misses) - 1;
        }
        Hold::No
    }

    /// How often a batch was held.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// What waits is taken, whatever was hoped for.
    pub(crate) fn give_up(&mut self) {
        self.window = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC_NS: u64 = 300_000;

    fn learnt() -> Gather {
        let mut gather = Gather::default();
        gather.synced(SYNC_NS, 0, 0, 0);
        gather
    }

    #[test]
    fn a_batch_is_held_until_all_ask_again_and_no_longer_than_half_a_sync() {
        let mut gather = learnt();
        gather.synced(SYNC_NS, 1_000, 6, 4);
        let held = Hold::Until { ns: 1_000 + SYNC_NS / 2, commands: 10 };
        for (now_ns, commands) in [(1_000, 4), (2_000, 9), (1_000 + SYNC_NS / 2 - 1, 0)] {
            assert_eq!(gather.hold(now_ns, commands), held);
        }
        assert_eq!(gather.hold(2_000, 10), Hold::No);
        assert_eq!(gather.hold(2_000, 1), Hold::No, "what comes behind it is not held");
        gather.synced(SYNC_NS, 1_000, 6, 4);
        assert_eq!(gather.hold(1_000 + SYNC_NS / 2, 4), Hold::No);
    }

    #[test]
    fn who_is_alone_is_never_held() {
        let mut gather = learnt();
        gather.synced(SYNC_NS, 1_000, 1, 0);
        assert_eq!(gather.hold(1_000, 0), Hold::No);
        assert_eq!(gather.hold(1_000, 1), Hold::No);
    }

    #[test]
    fn where_too_few_ask_again_it_is_tried_ever_more_seldom_and_at_once_when_they_do() {
        let mut gather = learnt();
        let mut held = 0;
        for round in 0..1_000 {
            gather.synced(SYNC_NS, round * SYNC_NS, 8, 2);
            held += u64::from(gather.hold(round * SYNC_NS, 2) != Hold::No);
            let _ = gather.hold(round * SYNC_NS + SYNC_NS / 2, 7);
        }
        assert!((15..=25).contains(&held), "{held} of 1,000 windows");
        // From the next try on every window.
        held = 0;
        for round in 1_000..1_200 {
            gather.synced(SYNC_NS, round * SYNC_NS, 8, 2);
            held += u64::from(gather.hold(round * SYNC_NS, 2) != Hold::No);
            let _ = gather.hold(round * SYNC_NS + 1, 10);
        }
        assert!(held > 130, "{held} of 200 windows");
    }

    #[test]
    fn a_slow_disk_holds_nothing_for_long_and_an_outlier_changes_little() {
        let mut gather = learnt();
        gather.synced(1_000 * SYNC_NS, 0, 6, 4);
        let Hold::Until { ns, .. } = gather.hold(0, 4) else { panic!("held") };
        assert!(ns < SYNC_NS, "{ns}");
        for _ in 0..100 {
            gather.synced(1_000 * SYNC_NS, 0, 6, 4);
        }
        assert_eq!(gather.hold(0, 4), Hold::Until { ns: HOLD_NS_MAX, commands: 10 });
    }
}
