//! A part of a trace: from one moment to another, or one thread.
//!
//! What lies before the part is read but not passed on, except for its end: calls that are open there are entered at
//! the first moment of the part, so that a loop that was begun long before is not missing in it. Calls that are open at
//! its last moment stay open, as at the end of any trace.

use std::collections::HashMap;

use laneway_page::number::utc;
use laneway_trace_read::{Consumer, Event, FunctionKey, Kind, Loss, Thread, ThreadId};

/// Deepest stack that is followed before the part.
const DEPTH_MAX: usize = 1_024;

/// Which part; the default is the whole trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Only {
    /// Nothing before this, ns since the Unix epoch.
    pub from_ns: Option<u64>,
    /// Nothing at or after this.
    pub to_ns: Option<u64>,
    /// No other thread.
    pub thread: Option<ThreadId>,
}

impl Only {
    /// What is left out, as a sentence; `None` if nothing is.
    pub fn note(&self) -> Option<String> {
        let moment = |ns: u64| {
            let date = utc(ns);
            format!("{}.{:09} UTC", date.trim_end_matches(" UTC"), ns % 1_000_000_000)
        };
        let from = self.from_ns.map(|ns| format!(" from {}", moment(ns)));
        let to = self.to_ns.map(|ns| format!(" until {}", moment(ns)));
        let thread = self.thread.map(|_| " of one thread");
        if from.is_none() && to.is_none() && thread.is_none() {
            return None;
        }
        Some(format!(
            "only a part of the trace is analysed: what lies{}{}{}; times count from its first event",
            from.unwrap_or_default(),
            to.unwrap_or_default(),
            thread.unwrap_or_default()
        ))
    }

    fn has(&self, id: ThreadId) -> bool {
        self.thread.is_none_or(|thread| thread == id)
    }
}

/// Passes on what belongs to the part.
#[derive(Debug)]
pub(crate) struct Within<'a, C> {
    to: &'a mut C,
    only: Only,
    /// What is open before the part, per thread that has not reached it.
    open: HashMap<ThreadId, Vec<Kind>>,
}

impl<'a, C: Consumer> Within<'a, C> {
    pub(crate) fn new(to: &'a mut C, only: Only) -> Self {
        Self { to, only, open: HashMap::new() }
    }

    /// Enters at the first moment what is open then.
    fn begin(&mut self, id: ThreadId, cpu: Option<u32>) {
        let Some(from_ns) = self.only.from_ns else { return };
        let open = self.open.remove(&id).unwrap_or_default();
        let entered: Vec<Event> =
            open.into_iter().map(|kind| Event { time_ns: from_ns, kind }).collect();
        if !entered.is_empty() {
            self.to.events(id, cpu, &entered);
        }
    }
}

/// Keeps what is open after an event.
fn follow(open: &mut Vec<Kind>, kind: Kind) {
    let is_same = |opened: &Kind| match (kind, *opened) {
        (Kind::Leave(left), Kind::Enter(entered)) => left == entered,
        (Kind::SyscallOut(left), Kind::SyscallIn(entered)) => left == entered,
        (Kind::InterruptOut(left), Kind::InterruptIn(entered)) => left == entered,
        (Kind::SwitchedIn, Kind::SwitchedOut { .. }) => true,
        _ => false,
    };
    match kind {
        Kind::Enter(_) | Kind::SyscallIn(_) | Kind::InterruptIn(_) | Kind::SwitchedOut { .. } => {
            if open.len() < DEPTH_MAX {
                open.push(kind);
            }
        }
        Kind::LeaveInnermost => {
            open.pop();
        }
        _ => {
            if let Some(at) = open.iter().rposition(is_same) {
                open.truncate(at);
            }
        }
    }
}

impl<C: Consumer> Consumer for Within<'_, C> {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        if self.only.has(id) {
            self.to.thread(id, thread);
        }
    }

    fn events(&mut self, id: ThreadId, cpu: Option<u32>, events: &[Event]) {
        if !self.only.has(id) {
            return;
        }
        let first =
            self.only.from_ns.map_or(0, |from| events.partition_point(|e| e.time_ns < from));
        let (before, rest) = events.split_at(first);
        if !before.is_empty() {
            let open = self.open.entry(id).or_default();
            before.iter().for_each(|event| follow(open, event.kind));
        }
        let last =
            self.only.to_ns.map_or(rest.len(), |to| rest.partition_point(|e| e.time_ns < to));
        let inside = &rest[..last];
        // A thread that does nothing within the part was in what it had begun all the same.
        if !rest.is_empty() {
            self.begin(id, cpu);
        }
        if !inside.is_empty() {
            self.to.events(id, cpu, inside);
        }
    }

    fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
        let Only { from_ns, to_ns, .. } = self.only;
        let threads: Vec<ThreadId> =
            threads.iter().copied().filter(|&id| self.only.has(id)).collect();
        if threads.is_empty() {
            return;
        }
        for id in &threads {
            self.open.remove(id);
        }
        let is_before = from_ns.is_some_and(|from_ns| loss.to_ns < from_ns);
        let is_after = to_ns.is_some_and(|to_ns| loss.from_ns >= to_ns);
        if !is_before && !is_after {
            self.to.lost(loss, &threads);
        }
    }

    fn sample(
        &mut self,
        id: ThreadId,
        cpu: Option<u32>,
        time_ns: u64,
        weight: u64,
        stack: &[FunctionKey],
    ) {
        let Only { from_ns, to_ns, .. } = self.only;
        let is_inside = from_ns.is_none_or(|from_ns| time_ns >= from_ns)
            && to_ns.is_none_or(|to_ns| time_ns < to_ns);
        if self.only.has(id) && is_inside {
            self.to.sample(id, cpu, time_ns, weight, stack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Witness(Vec<String>);

    impl Consumer for Witness {
        fn thread(&mut self, id: ThreadId, _: &Thread) {
            self.0.push(format!("thread {}", id.0));
        }

        fn events(&mut self, id: ThreadId, _: Option<u32>, events: &[Event]) {
            for event in events {
                let what = match event.kind {
                    Kind::Enter(key) => format!("+{}", key.0),
                    Kind::Leave(key) => format!("-{}", key.0),
                    other => format!("{other:?}"),
                };
                self.0.push(format!("{}: {} {what}", id.0, event.time_ns));
            }
        }

        fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
            self.0.push(format!("lost {} of {}", loss.from_ns, threads.len()));
        }
    }

    const T: ThreadId = ThreadId(0);

    fn enter(time_ns: u64, key: u64) -> Event {
        Event { time_ns, kind: Kind::Enter(FunctionKey(key)) }
    }

    fn leave(time_ns: u64, key: u64) -> Event {
        Event { time_ns, kind: Kind::Leave(FunctionKey(key)) }
    }

    fn seen(only: Only, act: impl FnOnce(&mut Within<'_, Witness>)) -> String {
        let mut witness = Witness::default();
        act(&mut Within::new(&mut witness, only));
        witness.0.join(", ")
    }

    #[test]
    fn a_call_that_is_open_at_the_begin_is_entered_there() {
        let only = Only { from_ns: Some(10), to_ns: Some(20), thread: None };
        let events = seen(only, |within| {
            within.events(T, None, &[enter(1, 1), enter(2, 2), leave(3, 2), enter(4, 3)]);
            within.events(T, None, &[enter(12, 4), leave(13, 4), leave(14, 3)]);
            within.events(T, None, &[enter(19, 5), leave(20, 5), leave(30, 1)]);
        });
        assert_eq!(events, "0: 10 +1, 0: 10 +3, 0: 12 +4, 0: 13 -4, 0: 14 -3, 0: 19 +5");
    }

    #[test]
    fn a_thread_that_only_waits_in_the_part_is_there() {
        let only = Only { from_ns: Some(10), to_ns: Some(20), thread: None };
        let events = seen(only, |within| within.events(T, None, &[enter(1, 1), leave(30, 1)]));
        assert_eq!(events, "0: 10 +1");
    }

    #[test]
    fn a_hole_before_the_part_closes_what_was_open() {
        let only = Only { from_ns: Some(10), ..Only::default() };
        let loss = |from_ns, to_ns| Loss { from_ns, to_ns, events: None, place: String::new() };
        let events = seen(only, |within| {
            within.events(T, None, &[enter(1, 1)]);
            within.lost(&loss(2, 3), &[T]);
            within.events(T, None, &[enter(11, 2)]);
            within.lost(&loss(12, 15), &[T, ThreadId(1)]);
        });
        assert_eq!(events, "0: 11 +2, lost 12 of 2");
    }

    #[test]
    fn other_threads_are_left_out_and_the_default_is_everything() {
        let act = |within: &mut Within<'_, Witness>| {
            for id in [T, ThreadId(1)] {
                within.thread(id, &Thread { pid: 1, tid: 1, name: String::new() });
                within.events(id, None, &[enter(5, 1)]);
            }
        };
        let only = Only { thread: Some(ThreadId(1)), ..Only::default() };
        assert_eq!(seen(only, act), "thread 1, 1: 5 +1");
        assert!(only.note().is_some_and(|note| note.contains("of one thread")));
        assert_eq!(seen(Only::default(), act), "thread 0, 0: 5 +1, thread 1, 1: 5 +1");
        assert_eq!(Only::default().note(), None);
    }
}
