//! Rate limits on time as a value: how often one source, and all together, are answered.
//!
//! A schedule of all together, and one of each source that was seen lately.
//!
//! What must always hold: nothing allocates after the table of sources was made; the table never
//! grows; which sources it knows depends on their order alone (exact LRU), never on the hash, whose
//! seed is random so that no sender can choose addresses that collide.

use crate::{config::Limits, own::Key, schedule::Schedule};
use std::hash::{BuildHasher, RandomState};

/// Which limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Source,
    Global,
}

/// Both limits and their state.
pub(crate) struct Limiter {
    per_source: Schedule,
    global: Schedule,
    global_due_ns: u64,
    sources: Sources,
}

impl Limiter {
    pub(crate) fn new(per_source: Schedule, global: Schedule, sources_max: usize) -> Limiter {
        let sources = Sources::new(if per_source.is_off() { 1 } else { sources_max });
        Limiter { per_source, global, global_due_ns: 0, sources }
    }

    /// For trains of datagrams.
    pub(crate) fn of_trains(limits: &Limits) -> Limiter {
        let [per_source, global] = [limits.per_source, limits.global].map(Schedule::of_trains);
        Limiter::new(per_source, global, limits.sources_max)
    }

    /// Admits `count` questions of `source`, or says which limit refused. A question that the global
    /// limit refuses has been charged to its source.
    #[inline]
    pub(crate) fn admit(&mut self, source: &Key, now_ns: u64, count: u64) -> Result<(), Refused> {
        if !self.per_source.is_off() {
            let due_ns = self.sources.due(source);
            if !self.per_source.admit(due_ns, now_ns, count) {
                return Err(Refused::Source);
            }
        }
        if !self.global.is_off() && !self.global.admit(&mut self.global_due_ns, now_ns, count) {
            return Err(Refused::Global);
        }
        Ok(())
    }
}

/// No entry.
const NONE: u32 = u32::MAX;

/// The sources seen last, with their schedules: a chained hash table whose entries also form a list
/// by time of use.
struct Sources {
    hasher: RandomState,
    /// First entry of each chain; a power of two of chains.
    heads: Vec<u32>,
    entries: Vec<Entry>,
    entries_max: usize,
    newest: u32,
    oldest: u32,
}

struct Entry {
    key: Key,
    due_ns: u64,
    chain: u32,
    newer: u32,
    older: u32,
}

impl Sources {
    fn new(entries_max: usize) -> Sources {
        Sources {
            hasher: RandomState::new(),
            heads: vec![NONE; entries_max.next_power_of_two()],
            entries: Vec::with_capacity(entries_max),
            entries_max,
            newest: NONE,
            oldest: NONE,
        }
    }

    /// When the source's next question is due; 0 for one that is new.
    #[inline]
    fn due(&mut self, key: &Key) -> &mut u64 {
        let head = self.head(key);
        let mut at = self.heads[head];
        while at != NONE && self.entries[at as usize].key != *key {
            at = self.entries[at as usize].chain;
        }
        if at == NONE {
            at = self.insert(*key, head);
        } else if at != self.newest {
            self.unlink(at);
            self.link_newest(at);
        }
        &mut self.entries[at as usize].due_ns
    }

    fn head(&self, key: &Key) -> usize {
        self.hasher.hash_one(key) as usize & (self.heads.len() - 1)
    }

    fn insert(&mut self, key: Key, head: usize) -> u32 {
        let entry = |chain| Entry { key, due_ns: 0, chain, newer: NONE, older: NONE };
        let at = if self.entries.len() < self.entries_max {
            self.entries.push(entry(self.heads[head]));
            self.entries.len() as u32 - 1
        } else {
            let at = self.oldest;
            self.unlink(at);
            self.unchain(at);
            self.entries[at as usize] = entry(self.heads[head]);
            at
        };
        self.heads[head] = at;
        self.link_newest(at);
        at
    }

    /// Takes an entry out of its chain.
    fn unchain(&mut self, gone: u32) {
        let Entry { key, chain, .. } = self.entries[gone as usize];
        let head = self.head(&key);
        if self.heads[head] == gone {
            self.heads[head] = chain;
            return;
        }
        let mut at = self.heads[head];
        while self.entries[at as usize].chain != gone {
            at = self.entries[at as usize].chain;
        }
        self.entries[at as usize].chain = chain;
    }

    /// Takes an entry out of the list by use.
    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, before);
        match before {
            NONE => self.oldest = at,
            before => self.entries[before as usize].newer = at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::key_v4;
    use crate::schedule::Rate;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(per_second: u32, burst: u32) -> Option<Rate> {
        Some(Rate { per_second, burst })
    }

    fn limiter(per_source: Option<Rate>, global: Option<Rate>, sources_max: usize) -> Limiter {
        let [per_source, global] = [per_source, global].map(Schedule::of_frames);
        Limiter::new(per_source, global, sources_max)
    }

    fn admitted(limiter: &mut Limiter, source: u8, now_ns: u64, tries: usize) -> usize {
        let key = key_v4([10, 0, 0, source]);
        (0..tries).filter(|_| limiter.admit(&key, now_ns, 1).is_ok()).count()
    }

    #[test]
    fn a_source_gets_its_burst_and_then_its_rate() {
        let mut limiter = limiter(rate(10, 3), None, 8);
        let now = 5 * SECOND;
        assert_eq!(admitted(&mut limiter, 1, now, 10), 3);
        assert_eq!(admitted(&mut limiter, 1, now + SECOND / 10 - 1, 10), 0);
        assert_eq!(admitted(&mut limiter, 1, now + SECOND / 10, 10), 1);
        assert_eq!(admitted(&mut limiter, 1, now + 60 * SECOND, 10), 3, "saved up to the burst");
    }

    #[test]
    fn one_source_does_not_use_up_anothers_rate() {
        let mut limiter = limiter(rate(10, 3), None, 8);
        assert_eq!(admitted(&mut limiter, 1, 0, 10), 3);
        assert_eq!(admitted(&mut limiter, 2, 0, 10), 3);
    }

    #[test]
    fn the_global_limit_holds_over_all_sources() {
        let mut limiter = limiter(rate(10, 3), rate(100, 5), 8);
        let all: usize = (0..8).map(|source| admitted(&mut limiter, source, 0, 3)).sum();
        assert_eq!(all, 5);
        assert_eq!(limiter.admit(&key_v4([9; 4]), 0, 1), Err(Refused::Global));
    }

    #[test]
    fn without_limits_everything_is_admitted() {
        let mut limiter = limiter(None, None, 1);
        assert_eq!(admitted(&mut limiter, 1, 0, 1000), 1000);
    }

    #[test]
    fn the_source_not_seen_for_longest_is_forgotten() {
        let mut limiter = limiter(rate(1, 1), None, 2);
        assert_eq!([1, 2, 1].map(|source| admitted(&mut limiter, source, 0, 1)), [1, 1, 0]);
        // 2 was not asked about since: it gives way to 3, and is new when it comes back.
        assert_eq!([3, 1, 2].map(|source| admitted(&mut limiter, source, 0, 1)), [1, 0, 1]);
    }

    #[test]
    fn a_clock_set_back_by_seconds_starts_anew_and_a_reordered_stamp_does_not() {
        let mut limiter = limiter(rate(10, 3), None, 8);
        let now = 100 * SECOND;
        assert_eq!(admitted(&mut limiter, 1, now, 10), 3);
        assert_eq!(admitted(&mut limiter, 1, now - SECOND / 2, 10), 0);
        assert_eq!(admitted(&mut limiter, 1, now - 50 * SECOND, 10), 3);
    }

    #[test]
    fn a_train_is_answered_whole_and_paid_for_afterwards() {
        let limits = Limits { per_source: rate(10, 3), global: None, sources_max: 8 };
        let mut limiter = Limiter::of_trains(&limits);
        let key = key_v4([10, 0, 0, 1]);
        assert_eq!(limiter.admit(&key, SECOND, 40), Ok(()));
        assert_eq!(limiter.admit(&key, SECOND, 1), Err(Refused::Source));
        // 40 questions at 10 a second, of which 2 may be owed.
        let due = SECOND + 38 * SECOND / 10;
        assert_eq!(limiter.admit(&key, due - 1, 1), Err(Refused::Source));
        assert_eq!(limiter.admit(&key, due, 1), Ok(()));
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_burst_and_rate(
            steps in proptest::collection::vec(0u64..300_000_000, 1..200), per_second in 1u32..50, burst in 1u32..20
        ) {
            let mut limiter = limiter(rate(per_second, burst), None, 1);
            let (mut now, mut times) = (0, Vec::new());
            for step in steps {
                now += step;
                if limiter.admit(&key_v4([1; 4]), now, 1).is_ok() {
                    times.push(now);
                }
            }
            for (i, first) in times.iter().enumerate() {
                for (n, last) in times[i..].iter().enumerate() {
                    let fits = u64::from(burst) + (last - first) * u64::from(per_second) / SECOND;
                    prop_assert!((n as u64) < fits, "{} in {} ns", n + 1, last - first);
                }
            }
        }

        #[test]
        fn the_table_knows_what_a_plain_list_knows(sources in proptest::collection::vec(0u8..12, 1..300), max in 1usize..9) {
            let mut table = Sources::new(max);
            let mut list: Vec<(u8, u64)> = Vec::new();
            for (now, source) in (1..).zip(sources) {
                let known = list.iter().position(|(s, _)| *s == source).map(|at| list.remove(at));
                let due = table.due(&key_v4([10, 0, 0, source]));
                prop_assert_eq!(*due, known.map_or(0, |(_, due)| due));
                *due = now;
                list.push((source, now));
                if list.len() > max {
                    list.remove(0);
                }
            }
            prop_assert!(table.entries.len() <= max);
        }
    }
}
