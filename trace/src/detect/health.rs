//! D12: can the trace be trusted? Holes, what could not be read, the cost of the tracer, clock steps.

use laneway_page::number::nouns;

use crate::blocks::share_interval;
use crate::model::LEAF_NS;
use crate::result::{CalibrationSource, Confidence, Finding, MARKS_MAX, Mark};

use super::{CUT_SHARE_MAX, Case, Detector, blank, fired, percent};

/// The tracer's share of the traced time from which it hides what it traces.
pub(super) const OVERHEAD_SHARE: f64 = 0.5;
pub(super) fn trace_health(case: &Case<'_>) -> Finding {
    let mut finding = blank(Detector::Health, "share of calls cut");
    let model = case.model;
    let counts = &model.counts;
    let cut = model.cut_share();
    let overhead = model.calibration.overhead_share;
    let missing =
        counts.discarded as f64 / counts.discarded.saturating_add(counts.events).max(1) as f64;
    finding.value = Some(cut);
    finding = finding.interval(share_interval(counts.cut, model.calls() + counts.cut));
    finding.span = case.whole();
    finding.confidence = Confidence::High;
    finding.figure("events missing", format!("{} ({})", counts.discarded, percent(missing)));
    finding.figure("holes", counts.losses.to_string());
    finding.figure("tracer's share of call time", percent(overhead));
    finding.figure("clock steps back", counts.clock_backwards.to_string());
    finding.marks = counts
        .holes
        .iter()
        .take(MARKS_MAX)
        .map(|&(from, to)| Mark {
            at_ns: model.since(from),
            length_ns: to.saturating_sub(from),
            thread: None,
            label: "events missing".to_owned(),
        })
        .collect();
    let mut ills = Vec::new();
    if counts.losses > 0 {
        let holes = nouns(counts.losses, "hole");
        let size = if counts.losses_uncounted == counts.losses {
            "of unknown size".to_owned()
        } else {
            let events = nouns(counts.discarded, "event");
            format!("({} {events}, {} of all, missing)", counts.discarded, percent(missing))
        };
        ills.push(format!("{} {holes} {size}", counts.losses));
    }
    if case.damages > 0 {
        let parts = nouns(case.damages, "damaged part");
        ills.push(format!("{} {parts}", case.damages));
    }
    if cut > CUT_SHARE_MAX {
        ills.push(format!("{} of the calls cut", percent(cut)));
    }
    let cost = &model.calibration;
    let sure = match cost.source {
        CalibrationSource::Measured => overhead,
        CalibrationSource::Estimated | CalibrationSource::None => {
            let whole = (cost.inside_ns + cost.outside_ns).max(1.0);
            overhead * ((cost.inside_ns - LEAF_NS).max(0.0) + cost.outside_ns) / whole
        }
    };
    if sure > OVERHEAD_SHARE {
        ills.push(format!("the tracer takes {} of the traced time", percent(overhead)));
    }
    if counts.clock_backwards > 0 {
        let times = nouns(counts.clock_backwards, "time");
        ills.push(format!("the clock went back {} {times}", counts.clock_backwards));
    }
    if counts.unsound > 0 {
        let exits = nouns(counts.unsound, "exit");
        ills.push(format!("{} {exits} cannot be trusted after a hole", counts.unsound));
    }
    finding.state = fired(!ills.is_empty());
    finding.sentence = if ills.is_empty() {
        format!(
            "No holes, no damage, no clock steps; the tracer takes {} of the traced time.",
            percent(overhead)
        )
    } else {
        format!("Read the figures with care: {}.", ills.join("; "))
    };
    finding
}

#[cfg(test)]
mod tests {
    use laneway_trace_read::{Consumer, Damage, Event, FunctionKey, Kind, Thread, ThreadId};

    use super::*;
    use crate::result::State;
    use crate::{Analyzer, Name, Options, Source};

    fn health(source: &Source) -> Finding {
        let mut analyzer = Analyzer::new(Options::default());
        let thread = Thread { pid: 1, tid: 1, name: "worker-0".to_owned() };
        analyzer.thread(ThreadId(0), &thread);
        let call = [Kind::Enter(FunctionKey(1)), Kind::Leave(FunctionKey(1))];
        let events: Vec<Event> =
            (1..).zip(call).map(|(at, kind)| Event { time_ns: 1_000 * at, kind }).collect();
        analyzer.events(ThreadId(0), Some(0), &events);
        let mut name = |_| Name { text: "f".to_owned(), known: true };
        let mut findings = analyzer.finish(source, &mut name).analysis.findings;
        findings.swap_remove(Detector::Health.place())
    }

    #[test]
    fn a_trace_of_which_a_part_cannot_be_read_is_not_sound() {
        assert_eq!(health(&Source::default()).state, State::Silent);
        let damage = Damage { place: "channel0_0".to_owned(), offset: 64, what: "?".to_owned() };
        let source = Source { damages: vec![damage], damages_more: 2, ..Source::default() };
        let found = health(&source);
        assert_eq!(found.state, State::Fired);
        assert!(found.sentence.contains("3 damaged parts"), "{}", found.sentence);
    }
}
