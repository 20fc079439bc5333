//! The section "Why": where each worker's time went while one more segment was offered, traced, and whether that
//! explains how the arms differ.
//!
//! Must always hold: the section says before anything else that nothing in it was measured for a verdict; what
//! tracing cost stands beside it without one; an arm without an explanation is named with the reason.

use super::account;
use super::table::arm_column;
use super::wording::{arm_name, load_name, plural};
use crate::result::RaceResult;
use crate::why::{Advice, Detection, Explanation, TRACER, TracedArm, TracingCost};
use laneway_page::markup::file_reference;
use laneway_page::number::{count, duration, figure, ratio, tied};
use laneway_page::table::{Cell, Row, Table, column};

/// The heading of the section, in all three forms.
pub(super) const HEADING: &str = "Why: a trace of each worker";

/// What stands first.
pub(super) fn preface(result: &RaceResult) -> String {
    let loads = result.traces.iter().map(|traced| load_name(result, traced.load));
    let mut loads: Vec<String> = loads.collect();
    loads.dedup();
    let meant = result.arms.iter().filter(|arm| arm.caps.facts.contains_key(TRACER));
    let meant: Vec<&str> = meant.map(|arm| arm.name.as_str()).collect();
    let except = match meant.is_empty() {
        true => String::new(),
        false => format!(" (but those that are to show what tracing costs: {})", meant.join(", ")),
    };
    format!(
        "Behind the last block each arm was started once more, traced, and offered {} once. No process that was \
         measured had a tracer{except}, and no figure of these segments is in any other table. A trace is of one \
         thread, the arm's worker, in time as the clock has it: where the receive stack or another program \
         had the worker's CPU, that time counts for the call that the worker was in.",
        loads.join(", ")
    )
}

/// The tables: where time went, and what tracing cost. `with_links` adds a column with the pages.
pub(super) fn tables(result: &RaceResult, with_links: bool) -> Vec<Table> {
    if result.traces.is_empty() {
        return Vec::new();
    }
    let mut tables = vec![shares(result, with_links), costs(result)];
    tables.extend(account::table(result));
    tables
}

fn shares(result: &RaceResult, with_links: bool) -> Table {
    let of_time = |head: &str, note: &str| column(head, "% time", note);
    let mut columns = vec![
        arm_column(),
        of_time("app", "Of the time that the trace covers: the app's own work."),
        of_time(
            "lane",
            "The lane and its driver: receiving, sending, giving frames back; system calls included.",
        ),
        of_time("waiting", "Blocked until something may be there."),
        of_time("empty", "Polls that found nothing."),
        of_time("tracer", "The tracer itself, by its own calibration."),
        of_time("rest", "Between recorded calls."),
        column("empty", "% polls", "Polls that found nothing, of all polls."),
        column("burst", "frames", "Frames per poll that found some, mean."),
        column("lane", "ns/frame", "Per frame received, the tracer's cost taken off."),
        column("app", "ns/frame", "Likewise."),
    ];
    if with_links {
        columns.push(column("trace", "", "The trace itself: flame graph, time line, worst calls."));
    }
    let rows = result.traces.iter().map(|traced| {
        let mut cells = vec![Cell::Words(arm_name(result, traced.arm))];
        match &traced.explanation {
            Some(explanation) => {
                cells.extend(share_cells(explanation));
                if with_links {
                    cells.push(match &traced.page {
                        Some(page) => Cell::Link("page".to_owned(), file_reference(page)),
                        None => Cell::Absent("no page was written".to_owned()),
                    });
                }
            }
            None => {
                let why = untraced_reason(traced);
                cells.extend(columns.iter().skip(1).map(|_| Cell::Absent(why.clone())));
            }
        }
        Row { cells, opens_group: false }
    });
    let rows = rows.collect();
    Table { caption: "Where the worker's time went".to_owned(), columns, heads: 1, rows }
}

fn share_cells(explanation: &Explanation) -> Vec<Cell> {
    let share = |share: f64| Cell::Figure(format!("{:.1}", share * 100.0), share);
    let shares = &explanation.shares;
    let mut cells: Vec<Cell> = [
        shares.application,
        shares.lane,
        shares.waiting,
        shares.empty_polls,
        shares.tracer,
        shares.other,
    ]
    .map(share)
    .into();
    cells.push(match explanation.polls {
        0 => Cell::Absent("the trace holds no poll".to_owned()),
        polls => share(explanation.empty_polls as f64 / polls as f64),
    });
    cells.push(match explanation.frames_per_productive_poll {
        Some(frames) => Cell::Figure(figure(frames), frames),
        None => Cell::Absent("no poll found a frame".to_owned()),
    });
    let per_frame = |is_app: bool| {
        let stages: Vec<f64> = explanation
            .stages
            .iter()
            .filter(|stage| stage.is_app == is_app)
            .map(|stage| stage.ns_per_frame)
            .collect();
        match stages.is_empty() {
            true => Cell::Absent("the trace does not tell this apart".to_owned()),
            false => Cell::Figure(figure(stages.iter().sum()), stages.iter().sum()),
        }
    };
    cells.extend([per_frame(false), per_frame(true)]);
    cells
}

fn costs(result: &RaceResult) -> Table {
    let rounds = plural(result.rounds, "round");
    let columns = vec![
        arm_column(),
        column("traced", "k/s", "Records delivered per second in the traced segment."),
        column("not traced", "k/s", "In the measured segments at this load: median over rounds."),
        column("min\u{2013}max", "k/s", "The lowest and the highest block."),
        column(
            "CPU traced",
            "ns/record",
            "In the traced segment; the thread that writes the trace is in it.",
        ),
        column("not traced", "ns/record", "In the measured segments: median over rounds."),
        column("min\u{2013}max", "ns/record", "The lowest and the highest block."),
    ];
    let rows = result.traces.iter().filter_map(|traced| {
        let cost = traced.cost.as_ref()?;
        let mut cells = vec![Cell::Words(arm_name(result, traced.arm))];
        cells.extend(cost_cells(Some(cost.traced_records_per_s), cost.records_per_s, 1e3));
        cells.extend(cost_cells(cost.traced_cpu_ns_per_record, cost.cpu_ns_per_record, 1.0));
        Some(Row { cells, opens_group: false })
    });
    let caption = format!(
        "What tracing cost: one segment beside {rounds}, so no verdict; a difference within min\u{2013}max is none"
    );
    Table { caption, columns, heads: 1, rows: rows.collect() }
}

fn cost_cells(traced: Option<f64>, measured: Option<[f64; 3]>, scale: f64) -> [Cell; 3] {
    let none = || Cell::Absent("nothing was delivered, or no segment can be used".to_owned());
    let shown = |value: f64| Cell::Figure(figure(value / scale), value);
    let range = |[_, min, max]: [f64; 3]| {
        let ends = format!("{}\u{2013}{}", figure(min / scale), figure(max / scale));
        Cell::Figure(ends, max - min)
    };
    [
        traced.map_or_else(none, shown),
        measured.map_or_else(none, |[median, ..]| shown(median)),
        measured.map_or_else(none, range),
    ]
}

/// What the traces say: per arm its name and sentences, then what may be tried and what holds of all of them.
pub(super) fn explanations(result: &RaceResult) -> Vec<(String, Vec<String>)> {
    let shared = shared_limits(result);
    let of = |traced: &TracedArm| {
        let name = arm_name(result, traced.arm);
        match &traced.explanation {
            Some(explanation) => (name, sentences(traced, explanation, &shared)),
            None => (name, vec![format!("Not traced: {}.", untraced_reason(traced))]),
        }
    };
    let mut all: Vec<(String, Vec<String>)> = result.traces.iter().map(of).collect();
    if result.traces.iter().any(|traced| traced.explanation.is_some()) {
        all.push(("What may be worth trying".to_owned(), advice(result)));
    }
    if !shared.is_empty() {
        all.push(("What holds of each of these traces".to_owned(), shared));
    }
    all
}

/// The limits of all traces, of which there are several.
fn shared_limits(result: &RaceResult) -> Vec<String> {
    let explanations: Vec<&Explanation> =
        result.traces.iter().filter_map(|traced| traced.explanation.as_ref()).collect();
    let [first, others @ ..] = explanations.as_slice() else { return Vec::new() };
    if others.is_empty() {
        return Vec::new();
    }
    let is_shared = |limit: &&String| others.iter().all(|other| other.limits.contains(limit));
    first.limits.iter().filter(is_shared).cloned().collect()
}

/// Each advice once, with the arms that it is for and the detectors that it rests on there.
fn advice(result: &RaceResult) -> Vec<String> {
    let mut given: Vec<(&Advice, Vec<String>)> = Vec::new();
    for traced in &result.traces {
        let name = arm_name(result, traced.arm);
        for advice in traced.explanation.iter().flat_map(|explanation| &explanation.advice) {
            let arm = match detector_named(&advice.because) {
                Some(detector) => format!("{name} ({detector})"),
                None => name.clone(),
            };
            let is_same = |(other, _): &&mut (&Advice, Vec<String>)| {
                (&other.text, &other.confirm) == (&advice.text, &advice.confirm)
            };
            match given.iter_mut().find(is_same) {
                Some((_, arms)) => arms.push(arm),
                None => given.push((advice, vec![arm])),
            }
        }
    }
    if given.is_empty() {
        return vec!["Nothing: what was found calls for no change.".to_owned()];
    }
    let line = |(advice, arms): (&Advice, Vec<String>)| {
        format!(
            "{}: {} If that is right: {}. Confirm with: {}",
            arms.join(", "),
            advice.text,
            advice.expected,
            advice.confirm
        )
    };
    given.into_iter().map(line).collect()
}

/// `D7` of `D7: 4 stalls, ...`.
fn detector_named(because: &str) -> Option<&str> {
    let (id, _) = because.split_once(':')?;
    let number = id.strip_prefix('D')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(id)
}

fn untraced_reason(traced: &TracedArm) -> String {
    traced.untraced_reason.clone().unwrap_or_else(|| "no reason was given".to_owned())
}

fn sentences(traced: &TracedArm, explanation: &Explanation, shared: &[String]) -> Vec<String> {
    let mut lines = vec![time(explanation)];
    lines.extend(stages(explanation));
    lines.extend(causes(explanation));
    lines.extend(traced.cost.as_ref().and_then(cost));
    let [silent, withheld, unable] = explanation.silent;
    let all = explanation.fired.len() + silent + withheld + unable;
    let mut line =
        format!("Detectors: {} of {all} fired, {silent} found nothing", explanation.fired.len());
    if withheld > 0 {
        line += &format!(", {withheld} cannot be answered because of holes in the trace");
    }
    if unable > 0 {
        line += &format!(", {unable} need events that a worker's own trace does not hold");
    }
    line.push('.');
    lines.push(line);
    lines.extend(explanation.fired.iter().map(detection));
    lines.extend(explanation.limits.iter().filter(|limit| !shared.contains(limit)).cloned());
    if let Some(folder) = &traced.folder {
        let events = plural_count(explanation.events, "event");
        lines.push(format!(
            "The trace: {folder}, {events} in {}; `laneway trace analyze` prints all of it.",
            duration(explanation.span_ns as f64)
        ));
    }
    lines
}

/// The largest share first.
fn time(explanation: &Explanation) -> String {
    let shares = &explanation.shares;
    let mut parts = [
        (shares.application, "in the app"),
        (shares.lane, "in the lane"),
        (shares.waiting, "waiting"),
        (shares.empty_polls, "in polls that found nothing"),
        (shares.tracer, "in the tracer"),
        (shares.other, "between recorded calls"),
    ];
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named = parts.iter().filter(|(share, _)| *share >= 0.0005);
    let named: Vec<String> = named
        .map(|(share, what)| format!("{} {what}", tied(&format!("{:.1}", share * 100.0), "%")))
        .collect();
    let frames = match (explanation.frames, explanation.frames_per_productive_poll) {
        (Some(frames), Some(per_poll)) => format!(
            "; {}, {} per poll that found some",
            plural_count(frames, "frame"),
            figure(per_poll)
        ),
        (Some(frames), None) => format!("; {}", plural_count(frames, "frame")),
        (None, _) => String::new(),
    };
    format!("Time: {}{frames}.", named.join(", "))
}

/// What is wrong by the account of the worker's time, before any detector.
fn causes(explanation: &Explanation) -> Vec<String> {
    match &explanation.causes {
        None => {
            vec!["Causes cannot be named: the trace holds no account of the worker.".to_owned()]
        }
        Some(causes) if causes.is_empty() => vec![
            "No cause: nothing known takes 1 % of the worker's time, and no frame was lost."
                .to_owned(),
        ],
        Some(causes) => causes.iter().map(|cause| format!("Cause: {cause}")).collect(),
    }
}

fn stages(explanation: &Explanation) -> Option<String> {
    let stages = explanation.stages.iter();
    let stages: Vec<String> =
        stages.map(|stage| format!("{} {}", stage.name, duration(stage.ns_per_frame))).collect();
    (!stages.is_empty()).then(|| format!("Per frame: {}.", stages.join(", ")))
}

/// What tracing did to the rate, as a quotient and nothing more.
fn cost(cost: &TracingCost) -> Option<String> {
    let [median, ..] = cost.records_per_s.filter(|[median, ..]| *median > 0.0)?;
    let mut text = format!(
        "Rate while traced: {} times the median of the measured segments",
        ratio(cost.traced_records_per_s / median)
    );
    if !cost.doubts.is_empty() {
        text += &format!(", and the segment was disturbed: {}", cost.doubts.join("; "));
    }
    text.push('.');
    Some(text)
}

fn detection(fired: &Detection) -> String {
    let mut text = format!("{} {}: {}", fired.id, fired.title, fired.sentence);
    let figures = fired.value.map(|value| {
        let interval = fired.interval.map_or_else(String::new, |[low, high]| {
            format!(", 95 % {} to {}", figure(low), figure(high))
        });
        format!("{}{interval} {}; ", figure(value), fired.unit)
    });
    text += &format!(" [{}confidence {}]", figures.unwrap_or_default(), fired.confidence);
    text
}

fn plural_count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{} {noun}s", count(n)) }
}

#[cfg(test)]
mod tests {
    use super::super::example::traced;
    use super::*;
    use laneway_page::number::plain;

    /// The explanation of an arm.
    fn text_of(result: &RaceResult, arm: usize) -> String {
        let name = arm_name(result, arm);
        let all = explanations(result);
        let (_, lines) = all.into_iter().find(|(of, _)| *of == name).expect("it is reported");
        plain(&lines.join("\n"))
    }

    #[test]
    fn an_explanation_names_the_largest_share_first_and_every_figures_unit() {
        let text = text_of(&traced(), 0);
        assert!(
            text.starts_with(
                "Time: 61.3 % in the lane, 30.4 % in polls that found nothing, 4.2 % in the app, \
                 3.1 % in the tracer, 1.0 % between recorded calls; 412,000 frames, 1.80 per poll \
                 that found some."
            ),
            "{text}"
        );
        assert!(text.contains("Per frame: receive 812 ns, app 45.0 ns, send and release 1.90 us."));
        assert!(text.contains("confidence high]") && text.contains("95 % "), "{text}");
    }

    #[test]
    fn what_tracing_cost_is_a_quotient_and_no_verdict() {
        let text = text_of(&traced(), 0);
        assert!(
            text.contains("Rate while traced: 0.980 times the median of the measured"),
            "{text}"
        );
        for word in ["better", "worse", "same", "slow", "fast", "significant"] {
            assert!(!text.contains(word), "`{word}` in: {text}");
        }
        let tables = tables(&traced(), false);
        assert!(tables[1].caption.contains("no verdict"), "{}", tables[1].caption);
    }

    #[test]
    fn an_arm_without_a_trace_says_why_in_its_row_and_in_a_sentence() {
        let result = traced();
        let text = text_of(&result, 2);
        assert_eq!(text, "Not traced: the kernel's bridge forwards: there is no worker to trace.");
        let tables = tables(&result, true);
        let row = tables[0].rows.iter().find(|row| row.cells.len() == tables[0].columns.len());
        assert!(row.is_some() && tables[0].rows.len() == result.traces.len());
        assert_eq!(tables[1].rows.len(), 1, "it cost that arm nothing");
    }

    #[test]
    fn an_advice_for_several_arms_is_given_once_and_names_them_and_its_grounds() {
        let mut result = traced();
        let mut again = result.traces[0].clone();
        again.arm = 3;
        let explanation = again.explanation.as_mut().expect("it has one");
        explanation.advice[0].because = "The way through the kernel is long.".to_owned();
        explanation.limits.push("Only of this one.".to_owned());
        result.traces.push(again);
        let all = explanations(&result);
        let under = |title: &str| {
            let found = all.iter().find(|(heading, _)| heading == title);
            found.map(|(_, lines)| lines.clone()).unwrap_or_default()
        };
        let tried = under("What may be worth trying");
        let (first, second) = (arm_name(&result, 0), arm_name(&result, 3));
        assert_eq!(tried.len(), 1, "{tried:?}");
        assert!(tried[0].starts_with(&format!("{first} (D8), {second}: Race this")), "{tried:?}");
        assert!(tried[0].ends_with("Confirm with: laneway race tap"), "{tried:?}");
        // What holds of both is stated once, what holds of one is stated there.
        assert_eq!(under("What holds of each of these traces").len(), 1);
        let text = text_of(&result, 3);
        assert!(text.contains("Only of this one.") && !text.contains("found no room"), "{text}");
    }

    #[test]
    fn a_share_that_rounds_to_nothing_is_left_out_of_the_sentence() {
        let mut result = traced();
        let explanation = result.traces[0].explanation.as_mut().expect("it has one");
        explanation.shares.tracer = 0.0001;
        assert!(!text_of(&result, 0).contains("in the tracer"));
    }

    #[test]
    fn loss_of_records_is_reported_among_the_limits() {
        let text = text_of(&traced(), 0);
        assert!(text.contains("1,234 of 3,000,000 records found no room"), "{text}");
    }
}
