//! In which contexts a thread was, over the whole span, coarsely: what a chart of calls is drawn from.
//!
//! The machine adds up each thread's time by context anyway; here that sum is looked at where a bucket of time ends, and what it
//! grew by is the bucket's. So nothing is done per event. Time without an event is spread over the buckets it covers.
//!
//! What must hold: at most twice [`COURSE_BUCKETS_MAX`] buckets, of [`COURSE_CONTEXTS_MAX`] contexts each, whatever the span: buckets
//! are merged in pairs and become twice as long.

use crate::result::{COURSE_BUCKETS_MAX, COURSE_CONTEXTS_MAX};
use crate::tree::NONE;

/// Length of a bucket at first, ns.
const BUCKET_NS: u64 = 1 << 16;

/// Context and time in it, ns, longest first.
type Cells = Vec<(u32, u64)>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// Where the first bucket begins, ns since the epoch; `None` before the first event, and where no course is kept.
    origin_ns: Option<u64>,
    pub(crate) bucket_ns: u64,
    pub(crate) buckets: Vec<Cells>,
    /// Time by context that is in a bucket.
    seen: Vec<u64>,
    /// Where the bucket ends that events fall in.
    end_ns: u64,
}

impl Course {
    /// Begins with the first event of the thread.
    pub(crate) fn begin(&mut self, now: u64) {
        if self.origin_ns.is_none() {
            self.origin_ns = Some(now);
            self.bucket_ns = BUCKET_NS;
            self.end_ns = now.saturating_add(BUCKET_NS);
        }
    }

    /// Where the bucket ends that events fall in.
    #[inline]
    pub(crate) const fn open_end_ns(&self) -> u64 {
        if self.origin_ns.is_some() { self.end_ns } else { u64::MAX }
    }

    /// An event at `now` is beyond the bucket, so that [`cross`](Self::cross) is to be called.
    #[inline]
    pub(crate) const fn is_over(&self, now: u64) -> bool {
        now >= self.open_end_ns()
    }

    /// Ends the bucket. `spent`: time by context up to `last_ns`, the event before; since then the thread is in `top`.
    pub(crate) fn cross(&mut self, spent: &[u64], top: u32, last_ns: u64, now: u64) {
        self.gather(spent, last_ns);
        if top != NONE {
            self.spend(top, last_ns, now);
            // It will be in the sum when the event is settled.
            let place = top as usize;
            if place >= self.seen.len() {
                self.seen.resize(place + 1, 0);
            }
            self.seen[place] += now.saturating_sub(last_ns);
        }
        let at = self.place(now);
        let origin_ns = self.origin_ns.unwrap_or(0);
        self.end_ns = origin_ns.saturating_add((at as u64 + 1).saturating_mul(self.bucket_ns));
    }

    /// Puts what was spent until `last_ns` and is in no bucket into that of `last_ns`.
    pub(crate) fn gather(&mut self, spent: &[u64], last_ns: u64) {
        if self.origin_ns.is_none() {
            return;
        }
        if self.seen.len() < spent.len() {
            self.seen.resize(spent.len(), 0);
        }
        let at = self.place(last_ns);
        let cells = &mut self.buckets[at];
        for ((node, &now), before) in (0..).zip(spent).zip(&mut self.seen) {
            add(cells, node, now.saturating_sub(*before));
            // Time that is in a bucket already and not yet in the sum stays noted.
            *before = (*before).max(now);
        }
        settle(cells);
    }

    /// The thread was in `node`.
    pub(crate) fn spend(&mut self, node: u32, from_ns: u64, to_ns: u64) {
        if self.origin_ns.is_none() || to_ns <= from_ns {
            return;
        }
        let last = self.place(to_ns - 1);
        let first = self.place(from_ns);
        let origin_ns = self.origin_ns.unwrap_or(0);
        for at in first..=last {
            let begin = origin_ns.saturating_add(at as u64 * self.bucket_ns);
            let end = begin.saturating_add(self.bucket_ns);
            add(&mut self.buckets[at], node, to_ns.min(end).saturating_sub(from_ns.max(begin)));
            settle(&mut self.buckets[at]);
        }
    }

    /// Where the first bucket begins.
    pub(crate) fn start_ns(&self) -> u64 {
        self.origin_ns.unwrap_or(0)
    }

    /// The bucket of a moment, which is there then.
    fn place(&mut self, now: u64) -> usize {
        let since = now.saturating_sub(self.origin_ns.unwrap_or(0));
        while since / self.bucket_ns.max(1) >= 2 * COURSE_BUCKETS_MAX as u64 {
            let merged = self.buckets.chunks(2).map(|pair| {
                let mut both = pair[0].clone();
                for &(node, ns) in pair.iter().skip(1).flatten() {
                    add(&mut both, node, ns);
                }
                settle(&mut both);
                both
            });
            self.buckets = merged.collect();
            self.bucket_ns = self.bucket_ns.saturating_mul(2);
        }
        let at = (since / self.bucket_ns.max(1)) as usize;
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, Cells::new());
        }
        at
    }
}

fn add(cells: &mut Cells, node: u32, ns: u64) {
    if ns == 0 {
        return;
    }
    match cells.iter_mut().find(|cell| cell.0 == node) {
        Some(cell) => cell.1 += ns,
        None => cells.push((node, ns)),
    }
}

/// Keeps the longest.
fn settle(cells: &mut Cells) {
    cells.sort_by_key(|&(node, ns)| (std::cmp::Reverse(ns), node));
    cells.truncate(COURSE_CONTEXTS_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nanosecond_is_in_its_bucket() {
        let mut course = Course::default();
        course.begin(1_000);
        // 10 us in context 0 by events, then no event for three buckets in context 1.
        let last = 1_000 + 10_000;
        let now = 1_000 + 3 * BUCKET_NS + 5;
        assert!(course.is_over(now) && !course.is_over(last));
        course.cross(&[10_000], 1, last, now);
        course.gather(&[10_000, now - last, 7], now);
        let whole: Vec<u64> =
            course.buckets.iter().map(|cells| cells.iter().map(|cell| cell.1).sum()).collect();
        assert_eq!(whole, [BUCKET_NS, BUCKET_NS, BUCKET_NS, 5 + 7]);
        assert_eq!(course.buckets[0], [(1, BUCKET_NS - 10_000), (0, 10_000)]);
        assert_eq!(course.buckets[3], [(2, 7), (1, 5)]);
    }

    #[test]
    fn of_any_span_the_buckets_are_as_many() {
        let mut course = Course::default();
        course.begin(5);
        let (mut last, mut spent) = (5, 0);
        for power in 0..53 {
            let now = 5 + (1 << power);
            if course.is_over(now) {
                course.cross(&[spent], 0, last, now);
            }
            spent += now - last;
            last = now;
        }
        course.gather(&[spent], last);
        assert!(course.buckets.len() <= 2 * COURSE_BUCKETS_MAX);
        let whole: u64 = course.buckets.iter().flatten().map(|cell| cell.1).sum();
        assert_eq!(whole, spent);
    }

    #[test]
    fn a_bucket_keeps_the_longest() {
        let mut course = Course::default();
        course.begin(0);
        let spent: Vec<u64> = (1..=100).collect();
        course.gather(&spent, 10);
        assert_eq!(course.buckets[0].len(), COURSE_CONTEXTS_MAX);
        assert_eq!(course.buckets[0][0], (99, 100));
    }
}
