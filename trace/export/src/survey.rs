//! A first look at a trace: when it begins and ends, which threads are in it, which functions are named.
//!
//! Exports are written in one pass and need names before the first event, but a trace tells its names while it is read.
//! So it is read twice: once for this, once to write.

use crate::moments::Mark;
use crate::names::Names;
use laneway_trace::result::{Analysis, State};
use laneway_trace_read::{Consumer, Event, FunctionKey, Kind, Loss, Symbols, Thread, ThreadId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Functions that are given a name; further ones are shown by their key.
const FUNCTIONS_MAX: usize = 1 << 20;

/// What a first reading finds.
#[derive(Debug, Default)]
pub struct Survey {
    /// First event, ns since the epoch; `None` without events.
    pub from_ns: Option<u64>,
    /// Last event, ns since the epoch.
    pub to_ns: u64,
    /// Threads by their number.
    pub threads: BTreeMap<ThreadId, Thread>,
    functions: BTreeSet<FunctionKey>,
    points: BTreeSet<u32>,
    pools: BTreeSet<u16>,
}

impl Survey {
    /// The functions that were seen, in the order of their keys.
    #[must_use]
    pub fn functions(&self) -> Vec<FunctionKey> {
        self.functions.iter().copied().collect()
    }

    /// Asks `symbols` for every name that was seen.
    #[must_use]
    pub fn names(&self, symbols: &Symbols) -> KnownNames {
        let function = |&key: &FunctionKey| (key, symbols.function(key).demangled);
        let point = |&point: &u32| Some((point, symbols.point(point)?.to_owned()));
        KnownNames {
            functions: self.functions.iter().map(function).collect(),
            points: self.points.iter().filter_map(point).collect(),
            pools: self
                .pools
                .iter()
                .filter_map(|&pool| Some((pool, format!("pool {}", symbols.pool(pool)?))))
                .collect(),
        }
    }

    /// The one thread that `wanted` means: its number in the process table, or its name.
    #[must_use]
    pub fn thread_named(&self, wanted: &str) -> Option<ThreadId> {
        let number = wanted.parse::<u32>().ok();
        let is_wanted = |thread: &Thread| Some(thread.tid) == number || thread.name == wanted;
        let mut found = self.threads.iter().filter(|(_, thread)| is_wanted(thread));
        match (found.next(), found.next()) {
            (Some((&id, _)), None) => Some(id),
            _ => None,
        }
    }
}

impl Consumer for Survey {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        self.threads.insert(id, thread.clone());
    }

    fn events(&mut self, _: ThreadId, _: Option<u32>, events: &[Event]) {
        let first_ns = events.first().map_or(u64::MAX, |event| event.time_ns);
        self.from_ns = Some(self.from_ns.map_or(first_ns, |from_ns| from_ns.min(first_ns)));
        let mut last = None;
        for event in events {
            self.to_ns = self.to_ns.max(event.time_ns);
            match event.kind {
                // A function left was entered, unless the trace began inside it; then it is not shown.
                Kind::Enter(key) if last != Some(key) && self.functions.len() < FUNCTIONS_MAX => {
                    last = Some(key);
                    self.functions.insert(key);
                }
                Kind::Point { point, .. } => {
                    self.points.insert(point);
                }
                Kind::Pool { pool, .. } => {
                    self.pools.insert(pool);
                }
                _ => {}
            }
        }
    }

    fn lost(&mut self, _: &Loss, _: &[ThreadId]) {}
}

/// The names of a trace, asked for once.
#[derive(Debug, Default)]
pub struct KnownNames {
    functions: HashMap<FunctionKey, String>,
    points: HashMap<u32, String>,
    pools: HashMap<u16, String>,
}

impl Names for KnownNames {
    fn function(&self, key: FunctionKey) -> String {
        self.functions.get(&key).cloned().unwrap_or_else(|| format!("{:#x}", key.0))
    }

    fn point(&self, point: u32) -> String {
        self.points.get(&point).cloned().unwrap_or_else(|| format!("point {point}"))
    }

    fn pool(&self, pool: u16) -> String {
        self.pools.get(&pool).cloned().unwrap_or_else(|| format!("pool {pool}"))
    }
}

/// What the detectors found, as marks for an export of the same trace.
#[must_use]
pub fn marks(analysis: &Analysis) -> Vec<Mark> {
    let start_ns = analysis.coverage.span.start_ns;
    let mut marks = Vec::new();
    for finding in analysis.findings.iter().filter(|finding| finding.state == State::Fired) {
        let places = match finding.marks.as_slice() {
            [] => finding.span.as_slice(),
            places => places,
        };
        marks.extend(places.iter().map(|place| Mark {
            time_ns: start_ns + place.at_ns,
            thread: place.thread.map(ThreadId),
            title: format!("{} {}", finding.id, place.label),
            detail: finding.sentence.clone(),
        }));
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_ends_are_those_of_all_threads() {
        let mut survey = Survey::default();
        example::trace(&mut survey);
        assert_eq!(survey.from_ns, Some(example::ORIGIN_NS));
        assert_eq!(survey.to_ns, example::ORIGIN_NS + 2_000_020);
        assert_eq!(survey.functions(), [1, 2, 3].map(FunctionKey));
    }

    #[test]
    fn a_thread_is_found_by_what_only_it_has() {
        let mut survey = Survey::default();
        let thread = |tid, name: &str| Thread { pid: 1, tid, name: name.to_owned() };
        survey.thread(ThreadId(0), &thread(7, "main"));
        survey.thread(ThreadId(1), &thread(8, "worker"));
        survey.thread(ThreadId(2), &thread(9, "worker"));
        let found = ["8", "main", "worker", "10"].map(|wanted| survey.thread_named(wanted));
        assert_eq!(found, [Some(ThreadId(1)), Some(ThreadId(0)), None, None]);
    }

    #[test]
    fn only_what_fired_is_marked() {
        let marks = marks(&example::analysis());
        assert_eq!(marks.len(), 1);
        assert_eq!(marks[0].time_ns, example::ORIGIN_NS + 300_000_000);
        assert_eq!(marks[0].title, "D1 empty polls here");
    }
}
