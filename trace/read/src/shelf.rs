//! Events of inputs that are not in the order of time, kept until all are read.
//!
//! Chrome JSON writes a span when it ends, and `uftrace dump` writes one file after the other; order is known only at
//! the end. What is kept is bounded by [`EVENTS_MAX`]; what goes beyond is reported as damage.

use std::collections::HashMap;

use crate::delivery::Delivery;
use crate::event::{Damage, Event, Kind, Loss, Thread};

/// Most events of an input that must be sorted; 24 bytes each.
pub(crate) const EVENTS_MAX: usize = 12_000_000;

#[derive(Default)]
pub(crate) struct Shelf {
    threads: Vec<OnShelf>,
    /// By process, thread, and what else tells them apart: a hostile file has a new thread for every event.
    places: HashMap<(u32, u32, String), usize>,
    events: usize,
    left_out: u64,
}

struct OnShelf {
    thread: Thread,
    of: String,
    rows: Vec<Row>,
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
    /// The place of a thread; `of` tells threads apart that have no number.
    pub(crate) fn thread(&mut self, thread: &Thread, of: &str) -> usize {
        let next = self.threads.len();
        let place = *self.places.entry((thread.pid, thread.tid, of.to_owned())).or_insert(next);
        if place == next {
            let rows = Vec::new();
            self.threads.push(OnShelf { thread: thread.clone(), of: of.into(), rows });
        }
        place
    }

    /// Gives a thread its name.
    pub(crate) fn rename(&mut self, place: usize, name: String) {
        if let Some(known) = self.threads.get_mut(place) {
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
        if self.events == EVENTS_MAX {
            self.left_out += 1;
        } else if let Some(thread) = self.threads.get_mut(place) {
            thread.rows.push(row);
            self.events += 1;
        }
    }

    /// Passes all on, thread by thread.
    pub(crate) fn deliver(self, place: &str, delivery: &mut Delivery<'_>) {
        for OnShelf { thread, of, mut rows } in self.threads {
            rows.sort_by_key(|row| (row.time_ns, row.rank));
            // The sort kept the order of arrival: of equal spans the last to arrive is the innermost.
            rows.chunk_by_mut(Row::ends_with).for_each(<[Row]>::reverse);
            let id = delivery.thread(thread, &of);
            let mut last_ns = None;
            for Row { time_ns, what, .. } in rows {
                match what {
                    What::Happened(kind) => delivery.event(id, None, Event { time_ns, kind }),
                    What::Lost(events) => {
                        let loss = Loss {
                            from_ns: last_ns.unwrap_or(time_ns),
                            to_ns: time_ns,
                            events: (events > 0).then_some(events),
                            place: place.into(),
                        };
                        delivery.lost(&loss, &[id]);
                    }
                }
                last_ns = Some(time_ns);
            }
            delivery.flush();
        }
        if self.left_out > 0 {
            delivery.damage(Damage {
                place: place.into(),
                offset: 0,
                what: format!(
                    "{} events beyond the first {EVENTS_MAX} are left out",
                    self.left_out
                ),
            });
        }
    }
}
