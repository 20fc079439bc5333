//! Differences between sides of several recordings, on planted traces of machines by lot.
//!
//! A machine runs a recording at a pace of its own, which deviates from run to run and drifts. Equal sides must be
//! called equal or unclear; a difference that is there must be found. A failure prints its seed, and `LANEWAY_SEED=N`
//! repeats it.

#![expect(clippy::print_stdout, reason = "the seed of a failure")]

use laneway_testkit::{Random, seed};
use laneway_trace::result::{ChangeVerdict, Difference, DifferenceRow, RecordingOrder};
use laneway_trace::{Analyzer, Options, Report, Source, diff};
use laneway_trace_planted::{Fault, Planted};
use laneway_trace_read::{Consumer, Event, Loss, Producer, Thread, ThreadId};

/// Between -1 and 1, more often near 0.
fn deviation(random: &mut Random) -> f64 {
    random.unit() + random.unit() - 1.0
}

/// Makes every moment of a trace come later: by a pace, and by a start.
struct Paced<'a> {
    to: &'a mut Analyzer,
    pace: f64,
    later_ns: u64,
    origin_ns: Option<u64>,
}

impl Paced<'_> {
    fn moved(&mut self, time_ns: u64) -> u64 {
        let origin_ns = *self.origin_ns.get_or_insert(time_ns);
        let since = time_ns.saturating_sub(origin_ns) as f64;
        origin_ns + self.later_ns + (since * self.pace) as u64
    }
}

impl Consumer for Paced<'_> {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        self.to.thread(id, thread);
    }

    fn events(&mut self, id: ThreadId, cpu: Option<u32>, events: &[Event]) {
        let moved: Vec<Event> = events
            .iter()
            .map(|event| Event { time_ns: self.moved(event.time_ns), ..*event })
            .collect();
        self.to.events(id, cpu, &moved);
    }

    fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
        let (from_ns, to_ns) = (self.moved(loss.from_ns), self.moved(loss.to_ns));
        self.to.lost(&Loss { from_ns, to_ns, ..loss.clone() }, threads);
    }
}

/// The recording that was made as the `place`th.
fn recording(fault: Fault, seed: u64, place: u64, pace: f64) -> Report {
    let planted = Planted::new(fault, seed, 1_000);
    let mut analyzer = Analyzer::new(Options::default());
    let later_ns = place * 60_000_000_000;
    planted.feed(&mut Paced { to: &mut analyzer, pace, later_ns, origin_ns: None });
    let source = Source { producers: vec![Producer::Laneway], ..Source::default() };
    analyzer.finish(&source, &mut |key| planted.name(key))
}

/// `each` recordings of both sides in turns, or one side after the other.
fn sides(faults: [Fault; 2], each: u64, in_turns: bool, lot: &mut Random) -> [Vec<Report>; 2] {
    let (deviates, drifts) = (0.1 * deviation(lot).abs(), 0.03 * deviation(lot));
    let mut sides = [Vec::new(), Vec::new()];
    for place in 0..2 * each {
        let side = if in_turns { place % 2 } else { place / each } as usize;
        let pace = (deviates * deviation(lot) + drifts * place as f64).exp();
        sides[side].push(recording(faults[side], lot.draw(), place, pace));
    }
    sides
}

fn rows(difference: &Difference) -> impl Iterator<Item = &DifferenceRow> {
    difference.tables.iter().flat_map(|table| &table.rows)
}

fn is_called(row: &&DifferenceRow) -> bool {
    use ChangeVerdict::{Better, Gone, Higher, Lower, New, Worse};
    matches!(row.verdict, Better | Worse | Higher | Lower | New | Gone)
}

#[test]
fn equal_sides_are_called_different_in_at_most_5_percent() {
    let mut lot = Random::seeded(seed());
    let (mut alarms, machines) = (0, 40);
    for machine in 0..machines {
        let each = 3 + machine % 3;
        let [before, after] = sides([Fault::Healthy; 2], each, machine % 2 == 0, &mut lot);
        let difference = diff(&before, &after);
        assert_eq!(difference.before.len() as u64, each);
        let called = rows(&difference).find(is_called);
        if let Some(row) = called {
            println!("machine {machine}: {row:?}");
        }
        alarms += u32::from(called.is_some());
    }
    // Of 40 tables at 5 % more than 8 are false in 1 of 10,000 test runs.
    assert!(alarms <= 8, "{alarms} of {machines} tables");
}

#[test]
fn what_a_costly_pool_costs_is_found() {
    let mut lot = Random::seeded(seed());
    let [before, after] = sides([Fault::Healthy, Fault::Cycle], 6, true, &mut lot);
    let difference = diff(&before, &after);
    assert_eq!(difference.order, RecordingOrder::InTurns);
    let mempool = rows(&difference).find(|row| row.name == "mempool and mbuf").expect("a row");
    assert!(mempool.change.is_some_and(|change| change > 1.3), "{mempool:?}");
    assert!(matches!(mempool.verdict, ChangeVerdict::Worse | ChangeVerdict::Higher), "{mempool:?}");
}

#[test]
fn under_another_load_nothing_is_better() {
    let mut lot = Random::seeded(seed());
    for faults in [[Fault::Healthy, Fault::Backlog], [Fault::Backlog, Fault::Healthy]] {
        let [before, after] = sides(faults, 5, true, &mut lot);
        let difference = diff(&before, &after);
        assert_eq!(difference.same_load, Some(false), "{:?}", difference.tables[0]);
        assert!(difference.doubts.iter().any(|doubt| doubt.contains("load was not the same")));
        for row in rows(&difference) {
            let is_judged = matches!(row.verdict, ChangeVerdict::Better | ChangeVerdict::Worse);
            assert!(!is_judged, "{row:?}");
        }
        let found = rows(&difference).find(|row| row.name == "packets per poll with any");
        assert!(found.as_ref().is_some_and(is_called), "{found:?}");
    }
}

#[test]
fn one_recording_of_each_side_has_no_verdict_and_says_how_to_get_one() {
    let (before, after) =
        (recording(Fault::Healthy, 1, 0, 1.0), recording(Fault::Contention, 2, 1, 1.0));
    let difference = diff(&[before], &[after]);
    assert!(rows(&difference).all(|row| row.verdict == ChangeVerdict::NoVerdict));
    assert!(rows(&difference).any(|row| row.change.is_some_and(|change| change > 1.5)));
    assert!(rows(&difference).all(|row| row.low.is_none() && row.p.is_none()));
    assert!(
        difference.doubts[0].contains("laneway trace diff --before"),
        "{:?}",
        difference.doubts
    );
}

#[test]
fn recordings_do_not_differ_from_themselves_in_time_order() {
    let make = |places: [u64; 3]| places.map(|place| recording(Fault::Healthy, 7, place, 1.0));
    let difference = diff(&make([0, 2, 4]), &make([1, 3, 5]));
    assert_eq!(difference.order, RecordingOrder::InTurns);
    for row in rows(&difference) {
        let is_none =
            row.change.is_none_or(|change| change.abs() < 1e-9 || (change - 1.0).abs() < 1e-9);
        // What the tracer may have wholly, as far as its cost is known, is left open.
        let is_open = row.verdict == ChangeVerdict::Unclear && row.p.is_none();
        assert!(is_none && (row.verdict == ChangeVerdict::Same || is_open), "{row:?}");
    }
    let [before, after] = [make([0, 1, 2]), make([3, 4, 5])];
    let difference = diff(&before, &after);
    assert_eq!(difference.order, RecordingOrder::OneByOne);
    assert!(difference.doubts.iter().any(|doubt| doubt.contains("Record in turns")));
}
