//! Events of inputs that are not in the order of time, kept until all are read.
//!
//! Chrome JSON writes a span when it ends, and `uftrace dump` writes one file after the other; order is known only at
//! the end. What is kept is bounded by [`EVENTS_MAX`]; what goes beyond is reported as damage, and as a loss of each
//! thread. Threads that are new then, or beyond [`THREADS_MAX`], are one.

use std::collections::HashMap;

use crate::delivery::{Delivery, FURTHER_THREADS, THREADS_MAX, further_threads};
use crate::event::{Damage, Event, Kind, Loss, Thread};

/// Most events of an input that must be sorted; 24 bytes each.
pub(crate) const EVENTS_MAX: usize = 12_000_000;

pub(crate) struct Shelf {
    /// [`EVENTS_MAX`], but for tests.
    events_max: usize,
    threads: Vec<OnShelf>,
    /// By process, thread, and what else tells them apart: a hostile file has a new thread for every event.
    places: HashMap<(u32, u32, String), usize>,
    events: usize,
    left_out: u64,
    /// The input was not read to its end.
    is_cut: bool,
}

impl Default for Shelf {
    fn default() -> Self {
        Self::of(EVENTS_MAX)
    }
}

struct OnShelf {
    thread: Thread,
    of: String,
    rows: Vec<Row>,
    left_out: Option<LeftOut>,
}

/// Events of a thread for which there was no room.
struct LeftOut {
    events: u64,
    /// Time of the earliest, and of the latest.
    from_ns: u64,
    to_ns: u64,
}

/// What happened and where it stands among what did at the same moment: first what ends, innermost (latest begun)
/// first, then the others, what lasts longest first, then in the order of arrival; ends of equal spans in the opposite
/// order.
struct Row {
    time_ns: u64,
    what: What,
    rank: u64,
}

/// What a row holds.
enum What {
    Happened(Kind),
    /// Events are missing before this moment: how many, 0 where they were not counted.
    Lost(u64),
}

/// Ranks up to here are those of ends.
const HALF: u64 = u64::MAX / 2;

impl Row {
    /// Both end a span from and to the same moments.
    fn ends_with(&self, other: &Self) -> bool {
        self.rank <= HALF && (self.time_ns, self.rank) == (other.time_ns, other.rank)
    }
}

impl Shelf {
    /// With room for so many events.
    pub(crate) fn of(events_max: usize) -> Self {
        Self {
            events_max,
            threads: Vec::new(),
            places: HashMap::new(),
            events: 0,
            left_out: 0,
            is_cut: false,
        }
    }

    /// The place of a thread; `of` tells threads apart that have no number.
    pub(crate) fn thread(&mut self, thread: &Thread, of: &str) -> usize {
        if let Some(&place) = self.places.get(&(thread.pid, thread.tid, of.to_owned())) {
            return place;
        }
        let is_room = self.places.len() < THREADS_MAX && !self.is_full();
        let (thread, of) =
            if is_room { (thread.clone(), of) } else { (further_threads(), FURTHER_THREADS) };
        let next = self.threads.len();
        let place = *self.places.entry((thread.pid, thread.tid, of.to_owned())).or_insert(next);
        if place == next {
            self.threads.push(OnShelf { thread, of: of.into(), rows: Vec::new(), left_out: None });
        }
        place
    }

    /// No further event is kept, so that nothing in it needs a name.
    pub(crate) fn is_full(&self) -> bool {
        self.events >= self.events_max
    }

    /// Gives a thread its name.
    pub(crate) fn rename(&mut self, place: usize, name: String) {
        if let Some(known) = self.threads.get_mut(place)
            && known.of != FURTHER_THREADS
        {
            known.thread.name = name;
        }
    }

    /// An event of the thread at `place`, in the order of coming.
    pub(crate) fn put(&mut self, place: usize, event: Event) {
        let Event { time_ns, kind } = event;
        self.row(place, Row { time_ns, what: What::Happened(kind), rank: u64::MAX });
    }

    /// Events of the thread at `place` are missing between the one before `time_ns` and this moment; `None` where they
    /// were not counted.
    pub(crate) fn lost(&mut self, place: usize, time_ns: u64, events: Option<u64>) {
        self.row(place, Row { time_ns, what: What::Lost(events.unwrap_or(0)), rank: u64::MAX });
    }

    /// The rest of the input is left out: events of each thread may be in it.
    pub(crate) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// A call that lasted from `from_ns` to `to_ns`.
    pub(crate) fn span(
        &mut self,
        place: usize,
        from_ns: u64,
        to_ns: u64,
        enter: Kind,
        leave: Kind,
    ) {
        let lasted = to_ns.saturating_sub(from_ns);
        let longest_first = HALF + (HALF - lasted.min(HALF - 1));
        let what = What::Happened(enter);
        self.row(place, Row { time_ns: from_ns, what, rank: longest_first });
        // What takes no time ends where it began, not before.
        let rank = if lasted == 0 { longest_first } else { HALF - from_ns.min(HALF) };
        self.row(place, Row { time_ns: to_ns.max(from_ns), what: What::Happened(leave), rank });
    }

    fn row(&mut self, place: usize, row: Row) {
        let Some(thread) = self.threads.get_mut(place) else { return };
        if self.events >= self.events_max {
            thread.leave_out(row.time_ns);
            self.left_out += 1;
        } else {
            thread.rows.push(row);
            self.events += 1;
        }
    }

    /// Passes all on, thread by thread.
    pub(crate) fn deliver(self, place: &str, delivery: &mut Delivery<'_>) {
        for thread in self.threads {
            thread.deliver(place, self.is_cut, delivery);
        }
        if self.left_out > 0 {
            delivery.damage(Damage {
                place: place.into(),
                offset: 0,
                what: format!(
                    "{} events beyond the first {} are left out",
                    self.left_out, self.events_max
                ),
            });
        }
    }
}

impl OnShelf {
    fn leave_out(&mut self, time_ns: u64) {
        let none = LeftOut { events: 0, from_ns: time_ns, to_ns: time_ns };
        let out = self.left_out.get_or_insert(none);
        out.events += 1;
        (out.from_ns, out.to_ns) = (out.from_ns.min(time_ns), out.to_ns.max(time_ns));
    }

    /// What was left out is reported where the first of it would have been.
    fn deliver(self, place: &str, is_cut: bool, delivery: &mut Delivery<'_>) {
        let Self { thread, of, mut rows, mut left_out } = self;
        rows.sort_by_key(|row| (row.time_ns, row.rank));
        // The sort kept the order of arrival: of equal spans the last to arrive is the innermost.
        rows.chunk_by_mut(Row::ends_with).for_each(<[Row]>::reverse);
        let id = delivery.thread(thread, &of);
        let lost = |from_ns, to_ns, events, delivery: &mut Delivery<'_>| {
            delivery.lost(&Loss { from_ns, to_ns, events, place: place.into() }, &[id]);
        };
        let mut last_ns = None;
        for Row { time_ns, what, .. } in rows {
            if let Some(out) = left_out.take_if(|out| out.from_ns < time_ns) {
                lost(out.from_ns, out.to_ns, Some(out.events), delivery);
            }
            match what {
                What::Happened(kind) => delivery.event(id, None, Event { time_ns, kind }),
                What::Lost(events) => {
                    let counted = (events > 0).then_some(events);
                    lost(last_ns.unwrap_or(time_ns), time_ns, counted, delivery);
                }
            }
            last_ns = Some(time_ns);
        }
        if let Some(out) = left_out {
            lost(out.from_ns, out.to_ns, Some(out.events), delivery);
        }
        if let (true, Some(last_ns)) = (is_cut, last_ns) {
            lost(last_ns, last_ns, None, delivery);
        }
        delivery.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::FunctionKey;
    use crate::testing::Log;

    fn thread(tid: u32) -> Thread {
        Thread { pid: 1, tid, name: "worker".into() }
    }

    fn delivered(shelf: Shelf) -> (Log, crate::Read) {
        let mut log = Log::default();
        let mut delivery = Delivery::new(&mut log);
        shelf.deliver("trace", &mut delivery);
        let read = delivery.finish();
        (log, read)
    }

    #[test]
    fn what_is_left_out_is_a_loss_of_its_thread_where_it_would_have_been() {
        let mut shelf = Shelf::of(4);
        let [first, second] = [1, 2].map(|tid| shelf.thread(&thread(tid), ""));
        let key = FunctionKey(7);
        let event = |time_ns, kind| Event { time_ns, kind };
        shelf.put(first, event(10, Kind::Enter(key)));
        shelf.put(first, event(60, Kind::Leave(key)));
        shelf.put(second, event(15, Kind::Enter(key)));
        // The end of a span has no room any more, nor has what follows.
        shelf.span(first, 30, 50, Kind::Enter(key), Kind::Leave(key));
        shelf.put(first, event(40, Kind::Enter(key)));
        shelf.put(second, event(45, Kind::Leave(key)));
        let (log, read) = delivered(shelf);
        let lost = log.losses.iter().map(|(loss, threads, before)| {
            (threads[0].0, loss.from_ns, loss.to_ns, loss.events, *before)
        });
        assert_eq!(lost.collect::<Vec<_>>(), [(0, 40, 50, Some(2), 2), (1, 45, 45, Some(1), 4)]);
        assert_eq!((read.events, read.losses, read.damages.len()), (4, 2, 1));
        assert!(read.damages[0].what.starts_with("3 events"), "{:?}", read.damages);
    }
    #[test]
    fn threads_beyond_the_limit_are_one() {
        let mut shelf = Shelf::default();
        let last = THREADS_MAX as u32;
        for tid in 0..last + 2 {
            let place = shelf.thread(&thread(tid), "");
            shelf.rename(place, "named".into());
            // Later threads have earlier events.
            let time_ns = (2 * last - tid).into();
            shelf.put(place, Event { time_ns, kind: Kind::LeaveInnermost });
        }
        assert_eq!(shelf.thread(&thread(7), ""), 7, "what is known keeps its place");
        let (log, _) = delivered(shelf);
        assert_eq!(log.threads.len(), THREADS_MAX + 1);
        assert_eq!(log.threads[THREADS_MAX].name, "(further threads)");
        let further = log.events.iter().filter(|event| event.0 == THREADS_MAX);
        let times: Vec<u64> = further.map(|event| event.2.time_ns).collect();
        assert_eq!(times, [u64::from(last) - 1, last.into()]);
    }

    #[test]
    fn a_full_shelf_has_no_further_threads() {
        let mut shelf = Shelf::of(1);
        for tid in 0..10 {
            let place = shelf.thread(&thread(tid), "");
            shelf.put(place, Event { time_ns: 10, kind: Kind::LeaveInnermost });
        }
        let (log, read) = delivered(shelf);
        let names: Vec<&str> = log.threads.iter().map(|thread| thread.name.as_str()).collect();
        assert_eq!(names, ["worker", "(further threads)"]);
        assert_eq!((read.events, read.losses, read.discarded), (1, 1, 9));
    }
}
