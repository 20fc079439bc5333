//! What happens below the program: D7 stalls, D8 kernel crossings.
//!
//! A stall has a cause only if events of the kernel cover most of it; otherwise it is "unattributed".

use laneway_page::number::nouns;

use crate::blocks::count_interval;
use crate::model::{Model, recorded_ns};
use crate::result::{Confidence, Finding, Layer, MARKS_MAX, Mark, State};
use crate::worst::{JOINS, Join, Silence};

use super::{Case, Detector, Facts, blank, fired, percent};

const STALL_FACTOR: u64 = 20;
const STALL_NS_MIN: u64 = 100_000;
/// Calls before a function's usual duration is known.
const STALL_CALLS_MIN: u64 = 100;
/// A thread's start: at most so many events, and at most one in so many of all it has.
const START_EVENTS_MAX: u64 = 1_000;
const START_SHARE: u64 = 100;
/// Share of a stall that the kernel join must explain.
const CAUSE_SHARE: f64 = 0.5;
const CROSSINGS_PER_PACKET: f64 = 1.0;

/// A stall and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Stall<'a> {
    pub(crate) thread: u32,
    pub(crate) silence: &'a Silence,
}

/// What the kernel join says of a silence.
pub(crate) fn cause(silence: &Silence) -> Option<Join> {
    let joins = [Join::Preempted, Join::Interrupt, Join::Waiting, Join::PageFault, Join::Syscall];
    let needed = CAUSE_SHARE * silence.length_ns as f64;
    joins.into_iter().find(|&join| silence.kernel_ns[join as usize] as f64 >= needed)
}

/// The cause in words.
pub(crate) const fn cause_name(cause: Option<Join>) -> &'static str {
    match cause {
        Some(Join::Preempted) => "preempted",
        Some(Join::Interrupt) => "interrupt",
        Some(Join::Waiting) => "waiting",
        Some(Join::Syscall) => "system call",
        Some(Join::PageFault) => "page faults",
        None => "unattributed",
    }
}

/// Silences that are stalls: far beyond what their function usually takes.
pub(crate) fn stalls(model: &Model) -> Vec<Stall<'_>> {
    let limits: Vec<Option<u64>> = model
        .rows
        .iter()
        .map(|row| {
            let usual = row.histogram.quantile(0.99)?;
            (row.calls >= STALL_CALLS_MIN).then(|| (STALL_FACTOR * usual).max(STALL_NS_MIN))
        })
        .collect();
    let mut stalls: Vec<Stall<'_>> = Vec::new();
    for (thread, state) in model.states.iter().enumerate() {
        for silence in &state.worst.silences {
            let row = model.row_of[silence.function as usize] as usize;
            let layer = model.contexts.get(silence.node as usize).map(|context| context.layer);
            let meant_to_wait = layer == Some(Layer::Idle) && !model.rows[row].own;
            if limits[row].is_some_and(|limit| silence.length_ns > limit) && !meant_to_wait {
                stalls.push(Stall { thread: thread as u32, silence });
            }
        }
    }
    stalls.sort_by_key(|stall| std::cmp::Reverse(stall.silence.length_ns));
    stalls
}

/// A thread's first events are its start, or the tracer's. Where the kernel names a cause, there is no need to guess.
fn is_at_start(model: &Model, stall: &Stall<'_>) -> bool {
    let events = model.states[stall.thread as usize].events;
    cause(stall.silence).is_none()
        && stall.silence.place() < START_EVENTS_MAX.min(events / START_SHARE)
}

pub(super) fn stalled(case: &Case<'_>, common: bool, facts: &mut Facts) -> Finding {
    let finding = blank(Detector::Stalls, "per second");
    let model = case.model;
    if case.is_holey() {
        return case.withheld(finding);
    }
    if model.calls() == 0 && model.counts.receives == 0 {
        return finding.unmeasurable("The trace holds no calls and no polls.");
    }
    let (at_start, stalls): (Vec<_>, Vec<_>) =
        stalls(model).into_iter().partition(|stall| is_at_start(model, stall));
    let recorded_ns = recorded_ns(model.span, &model.counts.holes);
    let seconds = (recorded_ns as f64 / 1e9).max(1e-9);
    let mut finding = finding;
    finding.span = case.whole();
    finding.value = Some(stalls.len() as f64 / seconds);
    let (low, high) = count_interval(stalls.len() as u64);
    (finding.low, finding.high) = (Some(low / seconds), Some(high / seconds));
    if let Some(longest) = at_start.first() {
        let length_ms = longest.silence.length_ns as f64 / 1e6;
        finding.figure(
            "in the first events",
            format!("{}, the longest {length_ms:.3} ms", at_start.len()),
        );
    }
    let Some(longest) = stalls.first() else {
        finding.confidence = Confidence::Medium;
        finding.sentence = format!(
            "No silence is longer than {STALL_FACTOR} times the p99 of its function and {} us{}.",
            STALL_NS_MIN / 1_000,
            if at_start.is_empty() {
                ""
            } else {
                ", but for those in the first events of a thread, in which pages, libraries and tracer come up"
            }
        );
        return finding;
    };
    let mut by_cause = [0usize; JOINS + 1];
    for stall in &stalls {
        let cause = cause(stall.silence);
        by_cause[cause.map_or(JOINS, |join| join as usize)] += 1;
    }
    facts.unattributed_stalls = by_cause[JOINS];
    finding.state = State::Fired;
    finding.confidence =
        if by_cause[JOINS] * 2 > stalls.len() { Confidence::Low } else { Confidence::High };
    let total: u64 = stalls.iter().map(|stall| stall.silence.length_ns).sum();
    finding.figure("stalls", stalls.len().to_string());
    finding.figure("together", format!("{:.3} ms", total as f64 / 1e6));
    finding.figure("longest", format!("{:.3} ms", longest.silence.length_ns as f64 / 1e6));
    let mut causes = Vec::new();
    for join in [
        None,
        Some(Join::Preempted),
        Some(Join::Waiting),
        Some(Join::Interrupt),
        Some(Join::Syscall),
        Some(Join::PageFault),
    ] {
        let place = join.map_or(JOINS, |join| join as usize);
        if by_cause[place] > 0 {
            finding.figure(cause_name(join), by_cause[place].to_string());
            causes.push(format!("{} {}", by_cause[place], cause_name(join)));
        }
    }
    finding.marks = stalls
        .iter()
        .take(MARKS_MAX)
        .map(|stall| Mark {
            at_ns: model.since(stall.silence.at_ns),
            length_ns: stall.silence.length_ns,
            thread: Some(stall.thread),
            label: format!("stall, {}", cause_name(cause(stall.silence))),
        })
        .collect();
    let name = &model.rows[model.row_of[longest.silence.function as usize] as usize].name;
    let joined = if model.counts.kernel == 0 {
        " Without kernel events none can be attributed."
    } else {
        ""
    };
    let slowed =
        if common { " The CPU was slow at times (D5), which lengthens all of them." } else { "" };
    finding.sentence = format!(
        "{} {} ({}), the longest {:.3} ms in {name}.{joined}{slowed}",
        stalls.len(),
        nouns(stalls.len() as u64, "stall"),
        causes.join(", "),
        longest.silence.length_ns as f64 / 1e6,
    );
    finding
}

/// Share of the productive time of the program's threads that they are in the kernel, the tracer's cost taken off.
fn kernel_share(model: &Model) -> f64 {
    let (mut kernel, mut productive) = (0.0, 0.0);
    for state in model.states.iter().filter(|state| state.is_programs()) {
        for (context, &spent) in model.contexts.iter().zip(&state.spent) {
            let busy = 1.0 - context.idle_ns as f64 / (context.self_ns as f64).max(1.0);
            let part = spent as f64 / (context.self_ns as f64).max(1.0);
            let ns = context.self_corrected_ns * busy * part;
            match context.layer {
                Layer::Idle | Layer::OffCpu | Layer::Tracer => continue,
                Layer::Kernel => kernel += ns,
                _ => {}
            }
            productive += ns;
        }
    }
    kernel / productive.max(1.0)
}

/// Of the program's threads alone: the kernel's events may be those of the whole machine.
pub(super) fn crossings(case: &Case<'_>) -> Finding {
    let finding = blank(Detector::Crossings, "per packet");
    let model = case.model;
    let own = || model.states.iter().filter(|state| state.is_programs());
    let named: u64 = model
        .rows
        .iter()
        .filter(|row| !row.own && crate::rules::layer(&row.name) == Some(Layer::Kernel))
        .map(|row| row.calls)
        .sum();
    let handlers: u64 = model.rows.iter().filter(|row| row.asynchronous).map(|row| row.calls).sum();
    let signals = own().map(|state| state.signals).sum::<u64>().max(handlers);
    let syscalls = own().map(|state| state.syscalls).sum::<u64>().max(named);
    let switches: u64 = own().map(|state| state.switches).sum();
    let crossings = syscalls + signals + switches;
    let Some(packets) = model.packets.received.filter(|&packets| packets > 0) else {
        return finding.unmeasurable("No packet was received, or the trace does not tell.");
    };
    if model.counts.kernel == 0 && named == 0 && signals == 0 {
        return finding.unmeasurable(
            "Neither kernel events nor wrappers of system calls are in the trace; record with the kernel join.",
        );
    }
    let mut finding = finding;
    let per_packet = crossings as f64 / packets as f64;
    let (low, high) = count_interval(crossings);
    finding.value = Some(per_packet);
    finding = finding.interval(Some((low / packets as f64, high / packets as f64)));
    finding.state = fired(finding.low > Some(CROSSINGS_PER_PACKET));
    finding.span = case.whole();
    let share = kernel_share(model);
    finding.figure("system calls", syscalls.to_string());
    finding.figure("signals", signals.to_string());
    finding.figure("switches", switches.to_string());
    finding.figure("share of productive time", percent(share));
    let complete = own().any(|state| state.kernel_events > 0) || named > 0;
    finding.confidence = if complete { Confidence::High } else { Confidence::Medium };
    finding.sentence = format!(
        "{per_packet:.2} crossings per packet{}{}.",
        if complete {
            format!(", {} of the productive time", percent(share))
        } else {
            ", signals only".to_owned()
        },
        if complete {
            ""
        } else {
            "; system calls are not in this trace, so this is a lower bound"
        }
    );
    finding
}

#[cfg(test)]
mod tests {
    use laneway_trace_read::{Consumer, Event, Kind, Thread, ThreadId};

    use super::*;
    use crate::{Analyzer, Name, Options, Source};

    /// What a thread does every microsecond: `kinds`, a thousand times.
    fn repeated(kinds: &[Kind]) -> Vec<Event> {
        let times = (1..).map(|at| 1_000_000 + 1_000 * at);
        let kinds = kinds.iter().cycle().take(1_000 * kinds.len());
        kinds.zip(times).map(|(&kind, time_ns)| Event { time_ns, kind }).collect()
    }

    #[test]
    fn what_other_threads_of_the_machine_do_in_the_kernel_is_no_crossing() {
        let mut analyzer = Analyzer::new(Options::default());
        for (id, name) in [(0, "worker-0"), (1, "other")] {
            analyzer.thread(ThreadId(id), &Thread { pid: id, tid: id, name: name.to_owned() });
        }
        let poll = Kind::Receive { port: 0, queue: 0, asked: 32, got: 1 };
        let mut polls = repeated(&[poll, poll, poll, poll, poll]);
        let time_ns = polls[4_999].time_ns + 500;
        polls.push(Event { time_ns, kind: Kind::SwitchedOut { runnable: true } });
        analyzer.events(ThreadId(0), Some(0), &polls);
        let call = [Kind::SyscallIn(1), Kind::SyscallOut(1)];
        let mut calls = call.repeat(10);
        calls.push(Kind::Point { point: 0, value: 0 });
        analyzer.events(ThreadId(1), Some(1), &repeated(&calls));
        let mut name = |_| Name { text: String::new(), known: false };
        let analysis = analyzer.finish(&Source::default(), &mut name).analysis;
        let crossings = &analysis.findings[Detector::Crossings.place()];
        assert_eq!(crossings.state, State::Silent, "{}", crossings.sentence);
        assert_eq!(crossings.value, Some(1.0 / 5_000.0));
        let switches = crossings.figures.iter().find(|figure| figure[0] == "switches");
        assert_eq!(switches.map(|figure| figure[1].as_str()), Some("1"));
        assert!(crossings.sentence.contains(", 0.0 % of the"), "{}", crossings.sentence);
    }
}
