//! How one thread spent its time, bucket by bucket, in bounded memory and without knowing the span.
//!
//! Buckets are powers of two wide and lie on one grid for all threads, counted from the epoch. When
//! a thread outgrows its buckets, neighbours are added up and the width doubles; that is why a
//! bucket holds sums only (time, calls, sum of logarithms) and the level of a function in a bucket
//! is the geometric mean of its durations, not their median: medians cannot be added up. Like a
//! median it does not follow a single long call.

use crate::histogram::level_of;

/// First width, as a power of two: 16 us.
const FIRST_SHIFT: u32 = 14;
/// Functions kept per bucket; the least of them are added up under [`OTHERS`].
const CELLS_MAX: usize = 48;
/// What stands for functions beyond [`CELLS_MAX`] in a bucket.
pub(crate) const OTHERS: u32 = u32::MAX;

/// One function in one bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) function: u32,
    /// Calls that ended here.
    pub(crate) calls: u32,
    pub(crate) self_ns: u64,
    /// Sum over the calls of 32 log2(duration, ns).
    pub(crate) log_sum: u64,
}

/// One bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bucket {
    pub(crate) cells: Vec<Cell>,
    pub(crate) events: u32,
    pub(crate) packets: u32,
    /// In rounds that found nothing and ended here.
    pub(crate) idle_ns: u64,
}

/// The buckets of a thread.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    shift: u32,
    limit: usize,
    /// Number of the first bucket on the grid.
    base: u64,
    buckets: Vec<Bucket>,
    /// Number of the open bucket on the grid, and when it ends.
    open: u64,
    open_end_ns: u64,
    sums: Vec<Cell>,
    touched: Vec<u32>,
    events: u32,
    packets: u32,
    idle_ns: u64,
    started: bool,
}

impl Series {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shift: FIRST_SHIFT,
            limit,
            base: 0,
            buckets: Vec::new(),
            open: 0,
            open_end_ns: 0,
            sums: Vec::new(),
            touched: Vec::new(),
            events: 0,
            packets: 0,
            idle_ns: 0,
            started: false,
        }
    }

    /// Time has come to `time_ns`; closes what lies before. Time never goes back here.
    #[inline]
    pub(crate) fn reach(&mut self, time_ns: u64) {
        if time_ns >= self.open_end_ns {
            self.turn(time_ns);
        }
    }

    /// The time from `from_ns` to `to_ns` was the function's own.
    #[inline]
    pub(crate) fn spend(&mut self, function: u32, from_ns: u64, to_ns: u64) {
        if to_ns < self.open_end_ns {
            self.sum(function).self_ns += to_ns - from_ns;
        } else {
            self.spend_across(function, from_ns, to_ns);
        }
    }

    #[cold]
    fn spend_across(&mut self, function: u32, mut from_ns: u64, to_ns: u64) {
        while to_ns >= self.open_end_ns {
            let end = self.open_end_ns;
            if end > from_ns {
                self.sum(function).self_ns += end - from_ns;
                from_ns = end;
            }
            if end == u64::MAX {
                break;
            }
            // A pause may be longer than all buckets: double instead of walking them.
            self.turn(end);
        }
        self.sum(function).self_ns += to_ns.saturating_sub(from_ns);
    }

    /// No bucket ends before this moment.
    #[inline]
    pub(crate) fn open_end_ns(&self) -> u64 {
        self.open_end_ns
    }

    /// A call of the function ended.
    #[inline]
    pub(crate) fn call(&mut self, function: u32, log: u32) {
        self.sum(function).call(log);
    }

    #[inline]
    pub(crate) fn events(&mut self, events: u32) {
        self.events = self.events.saturating_add(events);
    }

    pub(crate) fn packets(&mut self, packets: u32) {
        self.packets = self.packets.saturating_add(packets);
    }

    pub(crate) fn idle(&mut self, lasted_ns: u64) {
        self.idle_ns += lasted_ns;
    }

    /// What the function adds up to in the open bucket.
    #[inline]
    pub(crate) fn sum(&mut self, function: u32) -> &mut Cell {
        if function as usize >= self.sums.len() {
            self.widen(function);
        }
        let sum = &mut self.sums[function as usize];
        if sum.function == OTHERS {
            sum.function = function;
            self.touched.push(function);
        }
        sum
    }

    #[cold]
    fn widen(&mut self, function: u32) {
        let empty = Cell { function: OTHERS, ..Cell::default() };
        self.sums.resize((function as usize + 1).next_power_of_two(), empty);
    }

    #[cold]
    fn turn(&mut self, time_ns: u64) {
        if self.started {
            self.close();
        } else {
            self.started = true;
            self.base = time_ns >> self.shift;
        }
        while ((time_ns >> self.shift) - self.base) as usize >= self.limit {
            self.double();
        }
        self.open = time_ns >> self.shift;
        // The last bucket of all ends with time itself.
        let last = self.open >= u64::MAX >> self.shift;
        self.open_end_ns = if last { u64::MAX } else { (self.open + 1) << self.shift };
    }

    fn close(&mut self) {
        let place = (self.open - self.base) as usize;
        if self.buckets.len() <= place {
            self.buckets.resize_with(place + 1, Bucket::default);
        }
        let sums = &mut self.sums;
        let empty = Cell { function: OTHERS, ..Cell::default() };
        let cells: Vec<Cell> = self
            .touched
            .drain(..)
            .map(|function| std::mem::replace(&mut sums[function as usize], empty))
            .collect();
        let closed = Bucket {
            cells,
            events: std::mem::take(&mut self.events),
            packets: std::mem::take(&mut self.packets),
            idle_ns: std::mem::take(&mut self.idle_ns),
        };
        self.buckets[place].add(closed);
    }

    fn double(&mut self) {
        let odd = (self.base & 1) as usize;
        let old = std::mem::take(&mut self.buckets);
        self.buckets = Vec::with_capacity(old.len() / 2 + 1);
        for (index, bucket) in old.into_iter().enumerate() {
            let place = (index + odd) / 2;
            if self.buckets.len() <= place {
                self.buckets.push(Bucket::default());
            }
            self.buckets[place].add(bucket);
        }
        self.base >>= 1;
        self.shift += 1;
    }

    /// Time spent so far in all functions but `others`, ns.
    pub(crate) fn spent(&self, others: &[u32]) -> u64 {
        let open = self.touched.iter().map(|&function| &self.sums[function as usize]);
        let cells = self.buckets.iter().flat_map(|bucket| &bucket.cells).chain(open);
        let counted = cells.filter(|cell| !others.contains(&cell.function));
        counted.fold(0, |sum: u64, cell| sum.saturating_add(cell.self_ns))
    }

    /// All buckets, with the start of the first and their width in ns.
    pub(crate) fn finish(mut self) -> Timed {
        if self.started {
            self.close();
        }
        Timed {
            start_ns: self.base << self.shift,
            width_ns: 1 << self.shift,
            buckets: self.buckets,
        }
    }
}

impl Bucket {
    fn add(&mut self, other: Self) {
        self.events = self.events.saturating_add(other.events);
        self.packets = self.packets.saturating_add(other.packets);
        self.idle_ns += other.idle_ns;
        if self.cells.is_empty() {
            self.cells = other.cells;
        } else {
            // What happens again happens in the same order, mostly: look behind the last one first. What stands for the
            // others may be there twice, after two rounds of adding up; the first takes it.
            let mut next = 0;
            for cell in other.cells {
                let is_it = |mine: &Cell| mine.function == cell.function;
                let from = if cell.function == OTHERS { 0 } else { next };
                let behind = self.cells[from..].iter().position(is_it).map(|at| from + at);
                match behind.or_else(|| self.cells[..from].iter().position(is_it)) {
                    Some(at) => {
                        self.cells[at].add(cell);
                        next = at + 1;
                    }
                    None => self.cells.push(cell),
                }
            }
        }
        if self.cells.len() > CELLS_MAX {
            self.cells.sort_unstable_by_key(|cell| std::cmp::Reverse(cell.self_ns));
            let rest = self.cells.split_off(CELLS_MAX - 1);
            let mut others = Cell { function: OTHERS, ..Cell::default() };
            rest.into_iter().for_each(|cell| others.add(cell));
            self.cells.push(others);
        }
        self.cells.shrink_to_fit();
    }
}

impl Cell {
    /// A call with this histogram bucket ended.
    #[inline]
    pub(crate) fn call(&mut self, bucket: u32) {
        self.calls = self.calls.saturating_add(1);
        self.log_sum += u64::from(level_of(bucket));
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.self_ns += other.self_ns;
        self.log_sum += other.log_sum;
    }
}

/// Finished buckets of a thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timed {
    pub(crate) start_ns: u64,
    pub(crate) width_ns: u64,
    pub(crate) buckets: Vec<Bucket>,
}

impl Timed {
    /// The same in at most `limit` buckets.
    pub(crate) fn reduced(&self, limit: usize) -> Self {
        let by = self.buckets.len().div_ceil(limit).max(1);
        let buckets = self
            .buckets
            .chunks(by)
            .map(|chunk| {
                let mut sum = Bucket::default();
                chunk.iter().for_each(|bucket| sum.add(bucket.clone()));
                sum
            })
            .collect();
        Self { start_ns: self.start_ns, width_ns: self.width_ns * by as u64, buckets }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_time_is_lost_or_made_whatever_the_span(
            steps in prop::collection::vec((0u32..5, 0u64..3_000_000), 1..200), limit in 4usize..64,
        ) {
            let mut series = Series::new(limit);
            let mut now = 1_795_192_290_102_064_283u64;
            series.reach(now);
            let mut spent = [0u64; 5];
            for &(function, step) in &steps {
                series.spend(function, now, now + step);
                spent[function as usize] += step;
                now += step;
                series.call(function, 7);
            }
            let timed = series.finish();
            prop_assert!(timed.buckets.len() <= limit);
            let mut found = [0u64; 5];
            let mut calls = 0;
            for cell in timed.buckets.iter().flat_map(|bucket| &bucket.cells) {
                found[cell.function as usize] += cell.self_ns;
                calls += cell.calls as usize;
            }
            prop_assert_eq!(found, spent);
            prop_assert_eq!(calls, steps.len());
            for bucket in &timed.buckets {
                let sum: u64 = bucket.cells.iter().map(|cell| cell.self_ns).sum();
                prop_assert!(sum <= timed.width_ns);
            }
        }
    }
}
