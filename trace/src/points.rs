//! What polls, sends and pools add up to: counts per thread, port and queue, and per pool.
//!
//! Counting only. Tables have limits; what finds no room is counted in `refused` and told in the coverage.

use laneway_trace_read::PoolAction;

/// Queues told apart per thread.
const QUEUES_MAX: usize = 256;
/// Largest poll with a count of its own; larger ones count as this.
const POLL_SIZE_MAX: usize = 1_024;
/// Pools told apart.
const POOLS_MAX: usize = 64;
/// Points of a pool's course before neighbours are merged.
const COURSE_MAX: usize = 1_024;
/// Refill intervals kept per pool and thread.
const INTERVALS_MAX: usize = 4_096;

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
    /// Productive polls that told how many they asked for.
    pub(crate) asked: u64,
    pub(crate) empty_ns: u64,
    pub(crate) productive_ns: u64,
    pub(crate) squares: u64,
    pub(crate) sizes: Vec<u64>,
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

/// Polls and sends of one thread.
#[derive(Debug, Default)]
pub(crate) struct Points {
    pub(crate) polls: Vec<Polls>,
    pub(crate) sends: Vec<Sends>,
    pub(crate) refused: u64,
    /// Polls by queue of the last productive poll, for the time of what follows.
    last: usize,
    running: bool,
}

impl Points {
    /// There was a point before, so the time since then is known.
    pub(crate) const fn running(&self) -> bool {
        self.running
    }

    pub(crate) fn run(&mut self) {
        self.running = true;
    }

    pub(crate) fn pause(&mut self) {
        self.running = false;
    }

    #[inline]
    pub(crate) fn receive(&mut self, queue: Queue, asked: u16, got: u16, told_ns: u64) {
        let Some(place) = self.place(Some(queue)) else {
            self.refused += 1;
            return;
        };
        let row = &mut self.polls[place];
        row.polls += 1;
        if got == 0 {
            row.empty += 1;
            row.empty_ns += told_ns;
        } else {
            self.last = place;
            row.packets += u64::from(got);
            row.squares += u64::from(got) * u64::from(got);
            row.asked += u64::from(asked > 0);
            row.full += u64::from(asked > 0 && got >= asked);
            row.productive_ns += told_ns;
        }
        row.sizes[usize::from(got).min(POLL_SIZE_MAX)] += 1;
    }

    /// A run belongs to no queue in particular: the producer polls all of them in turn.
    pub(crate) fn empty_run(&mut self, polls: u32, lasted_ns: u64) {
        let Some(place) = self.place(None) else {
            self.refused += 1;
            return;
        };
        let row = &mut self.polls[place];
        row.polls += u64::from(polls);
        row.empty += u64::from(polls);
        row.empty_ns += lasted_ns;
        row.sizes[0] += u64::from(polls);
        self.running = true;
    }

    fn place(&mut self, queue: Option<Queue>) -> Option<usize> {
        if let Some(place) = self.polls.iter().position(|row| row.queue == queue) {
            return Some(place);
        }
        if self.polls.len() >= QUEUES_MAX {
            return None;
        }
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
        });
        Some(self.polls.len() - 1)
    }

    pub(crate) fn send(&mut self, queue: Queue, asked: u16, sent: u16, told_ns: u64, now: u64) {
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
        row.ns += told_ns;
        if sent < asked {
            row.short += 1;
            row.first_short_ns.get_or_insert(now);
        }
        if let Some(polls) = self.polls.get_mut(self.last) {
            polls.productive_ns += told_ns;
        }
    }
}

/// One pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool {
    pub(crate) pool: u16,
    pub(crate) taken: u64,
    pub(crate) given: u64,
    pub(crate) in_use_max: i64,
    pub(crate) refills: u64,
    pub(crate) refill_buffers: Vec<u32>,
    /// Buffers taken by a thread between its fills, and when the later fill was.
    pub(crate) intervals: Vec<(u64, u64)>,
    pub(crate) drains: u64,
    pub(crate) failures: u64,
    pub(crate) first_failure_ns: Option<u64>,
    pub(crate) failures_ns: Vec<u64>,
    pub(crate) course: Vec<(u64, i64)>,
    course_step_ns: u64,
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
            }
            PoolAction::Put => row.given += u64::from(buffers),
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
        row.follow(now);
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

    /// Keeps the course of what is in use, at a step that doubles when the room is full.
    fn follow(&mut self, now: u64) {
        let in_use = self.taken as i64 - self.given as i64;
        self.in_use_max = self.in_use_max.max(in_use);
        match self.course.last() {
            Some(&(at, _)) if now < at.saturating_add(self.course_step_ns) => return,
            _ => self.course.push((now, in_use)),
        }
        if self.course.len() >= COURSE_MAX {
            let mut keep = false;
            self.course.retain(|_| {
                keep = !keep;
                keep
            });
            let span = now - self.course[0].0;
            self.course_step_ns = (2 * span / COURSE_MAX as u64).max(1);
        }
    }
}
