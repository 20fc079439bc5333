//! What polls, sends and pools add up to: counts per thread, port and queue, and per pool.
//!
//! Counting only. Tables have limits; what finds no room is counted in `refused` and reported in the coverage.
//!
//! Full polls of a queue that follow each other without a poll that found room form a [`Streak`]. Where the producer
//! writes empty polls of a thread as one record that names no queue, they end the streak of a queue if it must have been
//! among them: a worker that polls its queues in turn cannot make as many polls as it has queues and leave one out.

use std::collections::HashMap;

use laneway_trace_read::PoolAction;

use crate::histogram::{Histogram, bucket_of};

/// Queues that are distinguished per thread.
const QUEUES_MAX: usize = 256;
/// Largest poll with a count of its own; larger ones count as this.
const POLL_SIZE_MAX: usize = 1_024;
/// Pools that are distinguished.
const POOLS_MAX: usize = 64;
/// Buckets of a pool's course; where they are too few, neighbours are added up.
const COURSE_MAX: u64 = 1_024;
/// Their first width, as a power of two, ns.
const COURSE_SHIFT: u32 = 10;
/// Refill intervals kept per pool and thread.
const INTERVALS_MAX: usize = 4_096;

/// Full polls in a row from which, and frames in them above which, a streak is kept (detect/backlog.rs says why).
pub(crate) const STREAK_POLLS_MIN: u64 = 8;
pub(crate) const STREAK_FRAMES_MIN: u64 = 1_024;
/// Streaks kept per queue before neighbours are added up.
const STREAKS_MAX: usize = 1_024;

/// A round that finds nothing takes less: in a longer one something else happened, ns.
const EMPTY_ROUND_NS_MAX: u64 = 20_000;

/// Points without a rule that are distinguished per thread.
const OTHERS_MAX: usize = 4_096;

/// Port and queue.
pub(crate) type Queue = (u16, u16);

/// Receive polls of one queue.
#[derive(Debug, Clone)]
pub(crate) struct Polls {
    pub(crate) queue: Option<Queue>,
    pub(crate) polls: u64,
    pub(crate) empty: u64,
    pub(crate) packets: u64,
    pub(crate) full: u64,
    /// Productive polls that reported how many they asked for.
    pub(crate) asked: u64,
    pub(crate) empty_ns: u64,
    pub(crate) productive_ns: u64,
    pub(crate) squares: u64,
    pub(crate) sizes: Vec<u64>,
    /// Time of the first and the last poll, ns since the epoch.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// The longest streak, by frames, however short.
    pub(crate) longest: Streak,
    /// The streak that the last poll belongs to.
    open: Streak,
    streaks: Vec<Streak>,
    /// [`Points::made`] and [`Points::unnamed`] after the last poll.
    made: u64,
    unnamed: u64,
}

/// Full polls in a row, or several such rows added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Streak {
    pub(crate) count: u64,
    pub(crate) polls: u64,
    pub(crate) frames: u64,
    /// Return of the first and of the last poll, ns since the epoch.
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// Within that, the time of the streaks themselves, ns.
    pub(crate) held_ns: u64,
}

impl Streak {
    fn grow(&mut self, got: u16, now: u64) {
        if self.polls == 0 {
            *self = Self { count: 1, from_ns: now, ..Self::default() };
        }
        self.polls += 1;
        self.frames += u64::from(got);
        self.until_ns = now;
        self.held_ns = now.saturating_sub(self.from_ns);
    }

    const fn is_long(&self) -> bool {
        self.polls >= STREAK_POLLS_MIN && self.frames > STREAK_FRAMES_MIN
    }

    /// `later` comes after all of these.
    pub(crate) fn add(&mut self, later: &Self) {
        if self.count == 0 {
            *self = *later;
            return;
        }
        self.count += later.count;
        self.polls += later.polls;
        self.frames += later.frames;
        self.until_ns = later.until_ns;
        self.held_ns += later.held_ns;
    }
}

impl Polls {
    /// Streaks too long for a batch, in order of time.
    pub(crate) fn streaks(&self) -> impl Iterator<Item = &Streak> {
        self.streaks.iter().chain(Some(&self.open).filter(|open| open.is_long()))
    }

    /// The queue had room to spare, or what follows is unknown.
    fn end_streak(&mut self) {
        let ended = std::mem::take(&mut self.open);
        if !ended.is_long() {
            return;
        }
        if self.streaks.len() >= STREAKS_MAX {
            for pair in 0..STREAKS_MAX / 2 {
                let mut both = self.streaks[2 * pair];
                both.add(&self.streaks[2 * pair + 1]);
                self.streaks[pair] = both;
            }
            self.streaks.truncate(STREAKS_MAX / 2);
        }
        self.streaks.push(ended);
    }
}

/// Send calls of one queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sends {
    pub(crate) queue: Queue,
    pub(crate) calls: u64,
    pub(crate) asked: u64,
    pub(crate) sent: u64,
    pub(crate) short: u64,
    pub(crate) first_short_ns: Option<u64>,
    pub(crate) ns: u64,
}

/// A point without a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherPoint {
    pub(crate) count: u64,
    /// Time of the first and the last one, ns since the epoch.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// Polls and sends of one thread.
#[derive(Debug, Default)]
pub(crate) struct Points {
    pub(crate) polls: Vec<Polls>,
    pub(crate) sends: Vec<Sends>,
    /// Points without a rule, by their number.
    pub(crate) others: HashMap<u32, OtherPoint>,
    pub(crate) refused: u64,
    /// Polls by queue of the last productive poll, for the time of what follows.
    last: usize,
    running: bool,
    /// Polls so far, and how many of them in records that name no queue.
    made: u64,
    unnamed: u64,
    /// Rows of `polls` that name a queue.
    queues: u64,
    /// Time of rounds that found nothing, ns.
    pub(crate) idle_ns: u64,
    /// The last poll, if it found nothing: when, and how long the thread had been off its CPU until then, ns.
    nothing: Option<(u64, u64)>,
    /// The last poll, if it found packets and nothing was sent since: when, and how many.
    found: Option<(u64, u16)>,
    /// How long packets were in the worker, from a poll to the next send.
    pub(crate) stays: Histogram,
}

impl Points {
    /// There was a point before, so the time since then is known.
    pub(crate) const fn running(&self) -> bool {
        self.running
    }

    pub(crate) fn run(&mut self) {
        self.running = true;
    }

    /// Events are missing from here on.
    pub(crate) fn pause(&mut self) {
        self.running = false;
        (self.nothing, self.found) = (None, None);
        self.polls.iter_mut().for_each(Polls::end_streak);
    }

    #[inline]
    pub(crate) fn receive(&mut self, queue: Queue, asked: u16, got: u16, call_ns: u64, now: u64) {
        self.found = (got > 0).then_some((now, got));
        let Some(place) = self.place(Some(queue)) else {
            self.refused += 1;
            return;
        };
        let row = &mut self.polls[place];
        if row.polls == 0 {
            row.first_ns = now;
        }
        row.last_ns = now;
        // Not named, but it must have been among the empty ones.
        let polled_between = self.unnamed > row.unnamed && self.made - row.made >= self.queues;
        let is_full = asked > 0 && got >= asked;
        if polled_between || !is_full {
            row.end_streak();
        }
        if is_full {
            row.open.grow(got, now);
            if row.open.frames > row.longest.frames {
                row.longest = row.open;
            }
        }
        self.made += 1;
        (row.made, row.unnamed) = (self.made, self.unnamed);
        row.polls += 1;
        if got == 0 {
            row.empty += 1;
            row.empty_ns += call_ns;
        } else {
            self.last = place;
            row.packets += u64::from(got);
            row.squares += u64::from(got) * u64::from(got);
            row.asked += u64::from(asked > 0);
            row.full += u64::from(is_full);
            row.productive_ns += call_ns;
        }
        row.sizes[usize::from(got).min(POLL_SIZE_MAX)] += 1;
    }

    /// A point that no rule is for.
    pub(crate) fn other(&mut self, point: u32, now: u64) {
        let full = self.others.len() >= OTHERS_MAX;
        match self.others.get_mut(&point) {
            Some(row) => {
                row.count += 1;
                row.last_ns = now;
            }
            None if full => self.refused += 1,
            None => {
                self.others.insert(point, OtherPoint { count: 1, first_ns: now, last_ns: now });
            }
        }
    }

    /// Polls that found nothing; without a queue they belong to none in particular: the producer polls all of them in turn.
    pub(crate) fn empty_run(&mut self, queue: Option<Queue>, polls: u32, lasted_ns: u64, now: u64) {
        let Some(place) = self.place(queue) else {
            self.refused += 1;
            return;
        };
        let row = &mut self.polls[place];
        if row.polls == 0 {
            row.first_ns = now.saturating_sub(lasted_ns);
        }
        row.last_ns = now;
        row.polls += u64::from(polls);
        row.empty += u64::from(polls);
        row.empty_ns += lasted_ns;
        row.sizes[0] += u64::from(polls);
        self.made += u64::from(polls);
        match queue {
            Some(_) => {
                row.end_streak();
                (row.made, row.unnamed) = (self.made, self.unnamed);
            }
            None => self.unnamed += u64::from(polls),
        }
        self.running = true;
    }

    /// A poll returned: the time since the one before on its CPU, if both found nothing, ns.
    ///
    /// What a worker does between two such polls is polling, whatever its functions are called.
    pub(crate) fn round(&mut self, empty: bool, now: u64, off_cpu_ns: u64) -> u64 {
        let before = self.nothing.take();
        if !empty {
            return 0;
        }
        self.nothing = Some((now, off_cpu_ns));
        let Some((then, off_then_ns)) = before else { return 0 };
        let lasted = now.saturating_sub(then).saturating_sub(off_cpu_ns - off_then_ns);
        if lasted > EMPTY_ROUND_NS_MAX {
            return 0;
        }
        self.idle_ns += lasted;
        lasted
    }

    /// Empty polls that were reported afterwards.
    pub(crate) fn rounds(&mut self, lasted_ns: u64, now: u64, off_cpu_ns: u64) {
        self.nothing = Some((now, off_cpu_ns));
        self.idle_ns += lasted_ns;
    }

    fn place(&mut self, queue: Option<Queue>) -> Option<usize> {
        if let Some(place) = self.polls.iter().position(|row| row.queue == queue) {
            return Some(place);
        }
        if self.polls.len() >= QUEUES_MAX {
            return None;
        }
        self.queues += u64::from(queue.is_some());
        self.polls.push(Polls {
            queue,
            polls: 0,
            empty: 0,
            packets: 0,
            full: 0,
            asked: 0,
            empty_ns: 0,
            productive_ns: 0,
            squares: 0,
            sizes: vec![0; POLL_SIZE_MAX + 1],
            first_ns: 0,
            last_ns: 0,
            longest: Streak::default(),
            open: Streak::default(),
            streaks: Vec::new(),
            made: 0,
            unnamed: 0,
        });
        Some(self.polls.len() - 1)
    }

    pub(crate) fn send(&mut self, queue: Queue, asked: u16, sent: u16, call_ns: u64, now: u64) {
        if let Some((found_ns, packets)) = self.found.take() {
            let stay_ns = now.saturating_sub(found_ns);
            self.stays.record_many(bucket_of(stay_ns), packets.into());
        }
        let place = match self.sends.iter().position(|row| row.queue == queue) {
            Some(place) => place,
            None if self.sends.len() < QUEUES_MAX => {
                self.sends.push(Sends { queue, ..Sends::default() });
                self.sends.len() - 1
            }
            None => {
                self.refused += 1;
                return;
            }
        };
        let row = &mut self.sends[place];
        row.calls += 1;
        row.asked += u64::from(asked);
        row.sent += u64::from(sent);
        row.ns += call_ns;
        if sent < asked {
            row.short += 1;
            row.first_short_ns.get_or_insert(now);
        }
        if let Some(polls) = self.polls.get_mut(self.last) {
            polls.productive_ns += call_ns;
        }
    }
}

/// One pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool {
    pub(crate) pool: u16,
    pub(crate) taken: u64,
    pub(crate) given: u64,
    /// Most in use so far, as long as one thread alone takes and gives.
    most: i64,
    user: Option<u32>,
    is_shared: bool,
    pub(crate) refills: u64,
    pub(crate) refill_buffers: Vec<u32>,
    /// Buffers taken by a thread between its fills, and when the later fill was.
    pub(crate) intervals: Vec<(u64, u64)>,
    pub(crate) drains: u64,
    pub(crate) failures: u64,
    pub(crate) first_failure_ns: Option<u64>,
    pub(crate) failures_ns: Vec<u64>,
    changes: Changes,
    /// Per thread: buffers taken at its last fill, and taken so far.
    threads: Vec<(u32, Option<u64>, u64)>,
}

/// All pools.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pub(crate) pools: Vec<Pool>,
    pub(crate) refused: u64,
}

impl Pools {
    pub(crate) fn used(
        &mut self,
        thread: u32,
        pool: u16,
        action: PoolAction,
        buffers: u32,
        now: u64,
    ) {
        let place = match self.pools.iter().position(|row| row.pool == pool) {
            Some(place) => place,
            None if self.pools.len() < POOLS_MAX => {
                self.pools.push(Pool { pool, ..Pool::default() });
                self.pools.len() - 1
            }
            None => {
                self.refused += 1;
                return;
            }
        };
        let row = &mut self.pools[place];
        let mine = match row.threads.iter().position(|entry| entry.0 == thread) {
            Some(mine) => mine,
            None => {
                row.threads.push((thread, None, 0));
                row.threads.len() - 1
            }
        };
        match action {
            PoolAction::Get => {
                row.taken += u64::from(buffers);
                row.threads[mine].2 += u64::from(buffers);
                row.follow(thread, now, i64::from(buffers));
            }
            PoolAction::Put => {
                row.given += u64::from(buffers);
                row.follow(thread, now, -i64::from(buffers));
            }
            PoolAction::Refill => row.refill(mine, buffers, now),
            PoolAction::Drain => row.drains += 1,
            PoolAction::Failed => {
                row.failures += 1;
                row.first_failure_ns.get_or_insert(now);
                if row.failures_ns.len() < crate::result::MARKS_MAX {
                    row.failures_ns.push(now);
                }
            }
        }
    }
}

impl Pool {
    fn refill(&mut self, mine: usize, buffers: u32, now: u64) {
        self.refills += 1;
        let (_, since, taken) = &mut self.threads[mine];
        if let Some(since) = since.replace(*taken)
            && self.intervals.len() < INTERVALS_MAX
        {
            self.intervals.push((*taken - since, now));
        }
        if self.refill_buffers.len() < INTERVALS_MAX {
            self.refill_buffers.push(buffers);
        }
    }

    fn follow(&mut self, thread: u32, now: u64, change: i64) {
        self.is_shared |= *self.user.get_or_insert(thread) != thread;
        self.most = self.most.max(self.taken as i64 - self.given as i64);
        self.changes.add(now, change);
    }

    /// Most in use at once; `None` where several threads use it: they are read one after the other, in no common order.
    pub(crate) fn in_use_max(&self) -> Option<i64> {
        (!self.is_shared).then_some(self.most)
    }

    /// What is in use by the end of each bucket of time, with the bucket's begin, ns since the epoch.
    pub(crate) fn course(&self) -> Vec<(u64, i64)> {
        self.changes.sums()
    }
}

/// Changes of a number by time, which threads report in no common order: buckets on one grid, counted from the epoch.
#[derive(Debug, Clone)]
struct Changes {
    /// Their width, as a power of two, ns.
    shift: u32,
    /// Number of the first on the grid.
    base: u64,
    buckets: Vec<i64>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { shift: COURSE_SHIFT, base: 0, buckets: Vec::new() }
    }
}

impl Changes {
    fn add(&mut self, now: u64, change: i64) {
        if self.buckets.is_empty() {
            self.base = now >> self.shift;
        }
        while self.last().max(now >> self.shift) - self.base.min(now >> self.shift) >= COURSE_MAX {
            self.widen();
        }
        let at = now >> self.shift;
        if at < self.base {
            let before = (self.base - at) as usize;
            self.buckets.splice(..0, std::iter::repeat_n(0, before));
            self.base = at;
        }
        let place = (at - self.base) as usize;
        if place >= self.buckets.len() {
            self.buckets.resize(place + 1, 0);
        }
        self.buckets[place] = self.buckets[place].saturating_add(change);
    }

    /// Number of the last bucket on the grid, of the first where there is none.
    fn last(&self) -> u64 {
        self.base + (self.buckets.len() as u64).saturating_sub(1)
    }

    /// Twice the width.
    fn widen(&mut self) {
        let first = self.base >> 1;
        let mut wider = vec![0i64; ((self.last() >> 1) - first) as usize + 1];
        for (at, &change) in (self.base..).zip(&self.buckets) {
            let sum = &mut wider[((at >> 1) - first) as usize];
            *sum = sum.saturating_add(change);
        }
        (self.shift, self.base, self.buckets) = (self.shift + 1, first, wider);
    }

    /// The number by the end of each bucket, with the bucket's begin.
    fn sums(&self) -> Vec<(u64, i64)> {
        let mut sum = 0i64;
        let rows = (self.base..).zip(&self.buckets).map(|(at, &change)| {
            sum = sum.saturating_add(change);
            (at << self.shift, sum)
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Queue = (0, 0);
    const OTHER: Queue = (1, 0);

    fn streaks(points: &Points, queue: Queue) -> Vec<(u64, u64)> {
        let row = points.polls.iter().find(|row| row.queue == Some(queue)).expect("polled");
        row.streaks().map(|streak| (streak.polls, streak.frames)).collect()
    }

    fn full(points: &mut Points, polls: std::ops::Range<u64>) {
        for poll in polls {
            points.receive(BUSY, 32, 32, 0, 10 * poll);
        }
    }

    #[test]
    fn full_polls_in_a_row_are_a_streak_even_if_the_trace_ends_in_it() {
        let mut points = Points::default();
        full(&mut points, 0..40);
        assert_eq!(streaks(&points, BUSY), [(40, 1_280)]);
        assert_eq!(points.polls[0].longest.held_ns, 390);
    }

    #[test]
    fn a_poll_with_room_to_spare_ends_a_streak() {
        for got in [0, 31] {
            let mut points = Points::default();
            full(&mut points, 0..30);
            points.receive(BUSY, 32, got, 0, 300);
            full(&mut points, 31..61);
            assert_eq!(streaks(&points, BUSY), []);
            assert_eq!(points.polls[0].longest.polls, 30);
        }
    }

    #[test]
    fn a_hole_ends_a_streak() {
        let mut points = Points::default();
        full(&mut points, 0..30);
        points.pause();
        full(&mut points, 30..60);
        assert_eq!(streaks(&points, BUSY), []);
    }

    #[test]
    fn polls_of_other_queues_leave_a_streak_alone() {
        let mut points = Points::default();
        for poll in 0..40 {
            full(&mut points, poll..poll + 1);
            points.receive(OTHER, 32, 0, 0, 10 * poll + 5);
        }
        assert_eq!(streaks(&points, BUSY), [(40, 1_280)]);
    }

    #[test]
    fn empty_polls_that_name_no_queue_end_a_streak_if_they_must_be_of_it() {
        for (unnamed, expected) in [(1, vec![(40, 1_280)]), (3, Vec::new())] {
            let mut points = Points::default();
            points.receive(OTHER, 32, 1, 0, 0);
            for poll in 1..=40 {
                full(&mut points, poll..poll + 1);
                points.empty_run(None, unnamed, 1, 10 * poll + 6);
            }
            assert_eq!(streaks(&points, BUSY), expected, "{unnamed}");
        }
        let mut points = Points::default();
        for poll in 0..40 {
            full(&mut points, poll..poll + 1);
            points.empty_run(None, 1, 1, 10 * poll + 6);
        }
        assert_eq!(streaks(&points, BUSY), [], "it is the only queue");
    }

    #[test]
    fn empty_polls_of_another_queue_leave_a_streak_alone_and_own_ones_end_it() {
        for (queue, expected) in [(OTHER, vec![(40, 1_280)]), (BUSY, Vec::new())] {
            let mut points = Points::default();
            for poll in 0..40 {
                full(&mut points, poll..poll + 1);
                points.empty_run(Some(queue), 3, 1, 10 * poll + 6);
            }
            assert_eq!(streaks(&points, BUSY), expected, "{queue:?}");
        }
    }

    /// A takes 32 buffers every microsecond, B gives them back half of one later; each use is of the thread given.
    fn uses(threads: [u32; 2]) -> Vec<(u64, u32, PoolAction)> {
        let uses = (1..=1_000u64).flat_map(|at| {
            [
                (1_000 * at, threads[0], PoolAction::Get),
                (1_000 * at + 500, threads[1], PoolAction::Put),
            ]
        });
        uses.collect()
    }

    fn used(uses: &[(u64, u32, PoolAction)]) -> Pool {
        let mut pools = Pools::default();
        for &(now, thread, action) in uses {
            pools.used(thread, 0, action, 32, now);
        }
        pools.pools.remove(0)
    }

    #[test]
    fn what_is_in_use_does_not_depend_on_the_order_in_which_threads_are_read() {
        let by_time = uses([0, 1]);
        let mut by_thread = by_time.clone();
        for threads in [[0, 1], [1, 0]] {
            by_thread.sort_by_key(|&(_, thread, _)| threads[thread as usize]);
            let pool = used(&by_thread);
            assert_eq!(pool.in_use_max(), None, "in their order it was 32,000, or none");
            let course = pool.course();
            assert_eq!(course, used(&by_time).course());
            assert!(course.iter().all(|&(_, in_use)| in_use == 0 || in_use == 32), "{course:?}");
        }
        assert_eq!(used(&uses([0, 0])).in_use_max(), Some(32));
    }

    #[test]
    fn a_course_of_any_length_keeps_what_is_in_use() {
        let mut pools = Pools::default();
        for (thread, at) in [(0, 1u64 << 50), (1, 3), (0, (1 << 50) + 1), (1, 1 << 40)] {
            pools.used(thread, 0, PoolAction::Get, 5, at);
        }
        let course = pools.pools[0].course();
        assert!(course.len() as u64 <= COURSE_MAX, "{}", course.len());
        assert_eq!((course[0], course.last().map(|end| end.1)), ((0, 10), Some(20)));
        // 32 buffers every microsecond and a half, the last first.
        let gets = (1..=3_000).rev().map(|at| (1_500 * at, 0, PoolAction::Get));
        let course = used(&gets.collect::<Vec<_>>()).course();
        let width_ns = course[1].0 - course[0].0;
        for (begin_ns, in_use) in course {
            let taken = 32 * ((begin_ns + width_ns - 1) / 1_500).min(3_000);
            assert_eq!(in_use as u64, taken, "at {begin_ns}");
        }
    }

    #[test]
    fn only_rounds_between_two_empty_polls_are_idle() {
        let mut points = Points::default();
        let polls = [(true, 0), (true, 300), (false, 900), (true, 5_000), (true, 5_200)];
        let idle: Vec<u64> =
            polls.iter().map(|&(empty, now)| points.round(empty, now, 0)).collect();
        assert_eq!(idle, [0, 300, 0, 0, 200]);
        assert_eq!(points.round(true, 9_200, 3_800), 200, "the rest was off the CPU");
        assert_eq!(points.round(true, 9_200 + EMPTY_ROUND_NS_MAX + 1, 3_800), 0, "too long");
        points.pause();
        assert_eq!(points.round(true, 30_000, 3_800), 0, "what was before is not known");
        assert_eq!(points.idle_ns, 700);
    }

    #[test]
    fn many_streaks_are_added_up_without_losing_any() {
        let mut points = Points::default();
        let all = 3 * STREAKS_MAX as u64;
        for streak in 0..all {
            full(&mut points, 100 * streak..100 * streak + 33);
            points.receive(BUSY, 32, 0, 0, 10 * (100 * streak + 33));
        }
        let row = &points.polls[0];
        assert!(row.streaks().count() <= STREAKS_MAX);
        assert_eq!(row.streaks().map(|streak| streak.count).sum::<u64>(), all);
        assert_eq!(row.streaks().map(|streak| streak.held_ns).sum::<u64>(), 320 * all);
    }
}
