//! What lies between calls, as curves and marks: polls, bursts, buffers in use.
//!
//! A trace tells each poll; a picture wants few points. A curve gets a point where its value changes, polls are
//! counted per millisecond, and buffers in use are counted from the first event on (what was taken before is not known,
//! so the curve may fall below zero).

use crate::names::Names;
use laneway_trace_read::{Kind, PoolAction, ThreadId};
use std::collections::HashMap;

/// Curves of one export; further ports, queues and pools have none.
const CURVES_MAX: usize = 1024;
/// Polls are counted per this time.
const POLLS_PER_NS: u64 = 1_000_000;

/// What a curve shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Curve {
    Received { port: u16, queue: u16 },
    Sent { port: u16, queue: u16 },
    Polls(ThreadId),
    InUse(u16),
}

impl Curve {
    pub(crate) fn name(self, names: &dyn Names) -> String {
        match self {
            Curve::Received { port, queue } => {
                format!("port {port} queue {queue}: frames per poll")
            }
            Curve::Sent { port, queue } => format!("port {port} queue {queue}: frames per send"),
            Curve::Polls(ThreadId(id)) => format!("thread {id}: polls per ms"),
            Curve::InUse(pool) => format!("{}: buffers in use", names.pool(pool)),
        }
    }
}

/// A new value of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) curve: Curve,
    pub(crate) time_ns: u64,
    pub(crate) value: i64,
}

#[derive(Default)]
struct Polls {
    from_ns: u64,
    count: i64,
}

/// Turns moments into points.
#[derive(Default)]
pub(crate) struct Curves {
    last: HashMap<Curve, i64>,
    in_use: HashMap<u16, i64>,
    polls: HashMap<ThreadId, Polls>,
}

impl Curves {
    /// The points that a moment adds.
    pub(crate) fn moment(
        &mut self,
        thread: ThreadId,
        time_ns: u64,
        kind: &Kind,
        mut add: impl FnMut(Point),
    ) {
        match *kind {
            Kind::Receive { port, queue, got, .. } => {
                self.changed(Curve::Received { port, queue }, time_ns, i64::from(got), &mut add);
                self.polled(thread, time_ns, 1, &mut add);
            }
            Kind::EmptyRun { polls, .. } => {
                self.polled(thread, time_ns, i64::from(polls), &mut add);
            }
            Kind::Send { port, queue, sent, .. } => {
                self.changed(Curve::Sent { port, queue }, time_ns, i64::from(sent), &mut add);
            }
            Kind::Pool { action: action @ (PoolAction::Get | PoolAction::Put), pool, buffers } => {
                if !self.in_use.contains_key(&pool) && self.in_use.len() == CURVES_MAX {
                    return;
                }
                let change = i64::from(buffers);
                let in_use = self.in_use.entry(pool).or_default();
                let signed = if action == PoolAction::Get { change } else { -change };
                *in_use = in_use.saturating_add(signed);
                let value = *in_use;
                self.changed(Curve::InUse(pool), time_ns, value, &mut add);
            }
            _ => {}
        }
    }

    fn changed(&mut self, curve: Curve, time_ns: u64, value: i64, add: &mut impl FnMut(Point)) {
        if !self.last.contains_key(&curve) && self.last.len() == CURVES_MAX {
            return;
        }
        if self.last.insert(curve, value) != Some(value) {
            add(Point { curve, time_ns, value });
        }
    }

    /// A millisecond that is over becomes a point at its begin.
    fn polled(&mut self, thread: ThreadId, time_ns: u64, count: i64, add: &mut impl FnMut(Point)) {
        let from_ns = time_ns - time_ns % POLLS_PER_NS;
        let polls = self.polls.entry(thread).or_default();
        if polls.from_ns != from_ns {
            let (before_ns, counted) = (polls.from_ns, polls.count);
            *polls = Polls { from_ns, count: 0 };
            if before_ns > 0 {
                self.changed(Curve::Polls(thread), before_ns, counted, add);
                // A pause is a fall to zero, not a slope to the next point.
                if from_ns - before_ns > POLLS_PER_NS {
                    self.changed(Curve::Polls(thread), before_ns + POLLS_PER_NS, 0, add);
                }
            }
        }
        if let Some(polls) = self.polls.get_mut(&thread) {
            polls.count = polls.count.saturating_add(count);
        }
    }

    /// The points of the last, unfinished milliseconds.
    pub(crate) fn finish(&mut self, mut add: impl FnMut(Point)) {
        let mut last: Vec<(ThreadId, u64, i64)> =
            self.polls.drain().map(|(id, polls)| (id, polls.from_ns, polls.count)).collect();
        last.sort_unstable();
        for (thread, from_ns, count) in last {
            self.changed(Curve::Polls(thread), from_ns, count, &mut add);
        }
    }
}

/// What a moment that is no point of a curve is called; `None` for those that are.
pub(crate) fn instant_name(names: &dyn Names, kind: &Kind) -> Option<String> {
    match *kind {
        Kind::Signal(number) => Some(format!("signal {number}")),
        Kind::Point { point, .. } => Some(names.point(point)),
        Kind::Pool { action, pool, buffers } => {
            let what = match action {
                PoolAction::Get | PoolAction::Put => return None,
                PoolAction::Refill => "refill of the cache",
                PoolAction::Drain => "drain of the cache",
                PoolAction::Failed => "no buffers left",
            };
            Some(format!("{}: {what} ({buffers})", names.pool(pool)))
        }
        _ => None,
    }
}

/// Something to show on the time line that is no event of the trace: what a detector found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When, ns since the epoch.
    pub time_ns: u64,
    /// Where; `None` for the whole trace.
    pub thread: Option<ThreadId>,
    /// A few words.
    pub title: String,
    /// The sentence behind them.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(moments: &[(u64, Kind)]) -> Vec<(Curve, u64, i64)> {
        let (mut curves, mut points) = (Curves::default(), Vec::new());
        let mut add = |p: Point| points.push((p.curve, p.time_ns, p.value));
        for (time_ns, kind) in moments {
            curves.moment(ThreadId(0), *time_ns, kind, &mut add);
        }
        curves.finish(&mut add);
        points
    }

    #[test]
    fn equal_values_make_one_point() {
        let poll = |got| Kind::Receive { port: 1, queue: 0, asked: 32, got };
        let ms = 1_000_000;
        let found =
            points(&[(ms, poll(0)), (ms + 1, poll(0)), (ms + 2, poll(4)), (ms + 3, poll(0))]);
        let curve = Curve::Received { port: 1, queue: 0 };
        let polls = Curve::Polls(ThreadId(0));
        assert_eq!(found, [(curve, ms, 0), (curve, ms + 2, 4), (curve, ms + 3, 0), (polls, ms, 4)]);
    }

    #[test]
    fn a_pause_in_polling_shows_as_zero() {
        let run = Kind::EmptyRun { queue: None, polls: 50, lasted_ns: 10 };
        let polls = Curve::Polls(ThreadId(0));
        assert_eq!(
            points(&[(1_000_000, run), (9_500_000, run)]),
            [(polls, 1_000_000, 50), (polls, 2_000_000, 0), (polls, 9_000_000, 50)]
        );
    }

    #[test]
    fn buffers_in_use_are_what_was_taken_less_what_was_returned() {
        let pool = |action, buffers| Kind::Pool { action, pool: 2, buffers };
        let found = points(&[(5, pool(PoolAction::Get, 8)), (6, pool(PoolAction::Put, 3))]);
        assert_eq!(found, [(Curve::InUse(2), 5, 8), (Curve::InUse(2), 6, 5)]);
    }
}
