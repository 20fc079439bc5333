//! Timers of all connections: one due time each, kept in a ring of lists.
//!
//! Setting a timer is O(1), and free when the new time is later than the one it already waits for:
//! the entry stays where it is and is looked at once too early. So the timers that every request
//! moves (delayed acknowledgement, retransmission) cost nothing in steady state. A time beyond the
//! ring's end waits in its last list and is moved on from there.
//!
//! What must always hold: an entry is never reported before its list's time, which is at most one
//! tick after the time asked for and never before it, except for entries beyond the ring's end.

/// One tick of the ring: about a millisecond.
const TICK_SHIFT: u32 = 20;
/// Lists in the ring: 4.3 s ahead.
const LISTS: usize = 4096;
const WORDS: usize = LISTS / 64;
const NONE: u32 = u32::MAX;

/// The links of one entry.
#[derive(Clone, Copy, Debug)]
struct Entry {
    next: u32,
    previous: u32,
    /// The tick whose list it is in; `u64::MAX` while it is in none.
    tick: u64,
}

const IDLE: Entry = Entry { next: NONE, previous: NONE, tick: u64::MAX };

/// One timer per entry; entries are numbered from 0.
pub(crate) struct Wheel {
    heads: Box<[u32; LISTS]>,
    /// Which lists are not empty.
    occupied: [u64; WORDS],
    entries: Vec<Entry>,
    /// Every list before this tick is empty.
    tick: u64,
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel { heads: Box::new([NONE; LISTS]), occupied: [0; WORDS], entries: Vec::new(), tick: 0 }
    }

    /// Makes room for one more entry.
    pub(crate) fn add_entry(&mut self) {
        self.entries.push(IDLE);
    }

    /// Looks at `entry` again at `due_ns`, or earlier if it waits for an earlier time already.
    pub(crate) fn set(&mut self, entry: u32, due_ns: u64, now_ns: u64) {
        if self.occupied == [0; WORDS] {
            // Nothing waits: no list needs to be walked up to now.
            self.tick = self.tick.max(now_ns >> TICK_SHIFT);
        }
        let last = self.tick + LISTS as u64 - 1;
        let tick = (due_ns >> TICK_SHIFT).saturating_add(1).clamp(self.tick, last);
        if self.entries[entry as usize].tick <= tick {
            return;
        }
        self.cancel(entry);
        let list = tick as usize % LISTS;
        let head = std::mem::replace(&mut self.heads[list], entry);
        if let Some(follower) = self.entries.get_mut(head as usize) {
            follower.previous = entry;
        }
        self.entries[entry as usize] = Entry { next: head, previous: NONE, tick };
        self.occupied[list / 64] |= 1 << (list % 64);
    }

    /// Forgets the time of `entry`.
    pub(crate) fn cancel(&mut self, entry: u32) {
        let Entry { next, previous, tick } =
            std::mem::replace(&mut self.entries[entry as usize], IDLE);
        if tick == u64::MAX {
            return;
        }
        if let Some(follower) = self.entries.get_mut(next as usize) {
            follower.previous = previous;
        }
        match self.entries.get_mut(previous as usize) {
            Some(leader) => leader.next = next,
            None => {
                let list = tick as usize % LISTS;
                self.heads[list] = next;
                if next == NONE {
                    self.occupied[list / 64] &= !(1 << (list % 64));
                }
            }
        }
    }

    /// Takes one entry that is due; it waits for nothing afterwards.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<u32> {
        let now_tick = now_ns >> TICK_SHIFT;
        let tick = self.first_tick()?;
        if tick > now_tick {
            self.tick = self.tick.max(now_tick);
            return None;
        }
        self.tick = tick;
        let entry = self.heads[tick as usize % LISTS];
        self.cancel(entry);
        Some(entry)
    }

    /// When [`Wheel::take`] next has something.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.first_tick().map(|tick| tick << TICK_SHIFT)
    }

    /// The first list that is not empty, at or after the present one.
    fn first_tick(&self) -> Option<u64> {
        let start = self.tick as usize % LISTS;
        // The word of the start is looked at twice: first from the start on, last up to it.
        for step in 0..=WORDS {
            let at = (start / 64 + step) % WORDS;
            let mut word = self.occupied[at];
            if step == 0 {
                word &= u64::MAX << (start % 64);
            }
            if word != 0 {
                let list = at * 64 + word.trailing_zeros() as usize;
                let ahead = (list + LISTS - start) % LISTS;
                return Some(self.tick + ahead as u64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK_NS: u64 = 1 << TICK_SHIFT;

    fn wheel(entries: usize) -> Wheel {
        let mut wheel = Wheel::new();
        (0..entries).for_each(|_| wheel.add_entry());
        wheel
    }

    #[test]
    fn an_entry_comes_within_a_tick_after_its_time_and_once() {
        let mut w = wheel(1);
        let due = 1_234_567_890;
        w.set(0, due, 1_000_000_000);
        assert_eq!(w.take(due), None);
        assert!(w.due_ns().is_some_and(|at| at >= due && at <= due + TICK_NS));
        assert_eq!(w.take(due + TICK_NS), Some(0));
        assert_eq!((w.take(u64::MAX), w.due_ns()), (None, None));
    }

    #[test]
    fn a_later_time_leaves_an_entry_where_it_is_and_an_earlier_one_moves_it() {
        let mut w = wheel(1);
        w.set(0, 100 * TICK_NS, 0);
        w.set(0, 200 * TICK_NS, 0);
        assert_eq!(w.due_ns(), Some(101 * TICK_NS));
        w.set(0, 10 * TICK_NS, 0);
        assert_eq!(w.due_ns(), Some(11 * TICK_NS));
        w.cancel(0);
        assert_eq!(w.due_ns(), None);
    }

    #[test]
    fn a_far_time_is_looked_at_early_rather_than_never() {
        let mut w = wheel(1);
        w.set(0, u64::MAX, 0);
        assert_eq!(w.due_ns(), Some((LISTS as u64 - 1) * TICK_NS));
    }

    proptest! {
        #[test]
        fn every_entry_comes_in_order_of_its_tick(
            start in 0u64..1 << 40, dues in proptest::collection::vec(0u64..4_000_000_000, 1..50)
        ) {
            let mut w = wheel(dues.len());
            for (i, due) in dues.iter().enumerate() {
                w.set(i as u32, start + due, start);
            }
            let mut seen = vec![false; dues.len()];
            let mut before = 0;
            while let Some(at) = w.due_ns() {
                prop_assert!(at >= before);
                before = at;
                prop_assert_eq!(w.take(at - 1), None);
                let i = w.take(at).unwrap() as usize;
                prop_assert!(!std::mem::replace(&mut seen[i], true));
                prop_assert!(at > start + dues[i] && at <= start + dues[i] + TICK_NS);
            }
            prop_assert!(seen.iter().all(|s| *s));
        }
    }
}
