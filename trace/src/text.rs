//! An analysis and a difference as plain text for a terminal: what is known first, then what was
//! found, then tables, then what to do. At most [`COLUMNS`] columns, no colour, no control characters.

mod difference;
mod names;

use laneway_page::number::nouns;
use std::fmt::Write;

use crate::result::{Analysis, CalibrationSource, Coverage, Finding, HoleRow, State, WorstCall};

pub use difference::difference;

/// Widest line.
pub const COLUMNS: usize = 80;
/// Functions printed; the rest are in the JSON and on the page.
const FUNCTIONS_SHOWN: usize = 25;
/// Letters of a function's name in a table.
const NAME: usize = 20;
/// Holes printed.
const HOLES_SHOWN: usize = 6;
/// Contexts, threads, worst calls and differences printed.
const ROWS_SHOWN: usize = 12;

/// How a text is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Below a row whose name was cut stands the whole name.
    pub full_names: bool,
}

/// The analysis for people.
pub fn analysis(analysis: &Analysis) -> String {
    analysis_in(analysis, Style::default())
}

/// The analysis for people, in a style.
pub fn analysis_in(analysis: &Analysis, style: Style) -> String {
    let mut page = Page { style, ..Page::default() };
    causes(&mut page, analysis);
    coverage(&mut page, &analysis.coverage);
    cost(&mut page, analysis);
    accounts(&mut page, analysis);
    findings(&mut page, analysis);
    advice(&mut page, analysis);
    layers(&mut page, analysis);
    polls(&mut page, analysis);
    points(&mut page, analysis);
    functions(&mut page, analysis);
    contexts(&mut page, analysis);
    worst(&mut page, analysis);
    threads(&mut page, analysis);
    in_workers(&mut page, analysis);
    cores(&mut page, analysis);
    page.text
}

fn coverage(page: &mut Page, coverage: &Coverage) {
    page.line("COVERAGE");
    page.field(
        "trace",
        &format!("{} ({})", coverage.inputs.join(", "), coverage.producers.join(", ")),
    );
    let threads = nouns(coverage.threads, "thread");
    let span = seconds(coverage.span.length_ns);
    page.field("span", &format!("{span}, {} {threads}", coverage.threads));
    let [from_ns, length_ns] = coverage.recorded;
    if from_ns > coverage.span.length_ns / 100 {
        let (from, length) = (seconds(from_ns), seconds(length_ns));
        page.field(
            "program",
            &format!("tells of itself from {from} on, for {length}; rates are of this part"),
        );
    }
    page.field(
        "events",
        &format!(
            "{}: {} {}, {} {}, {} {}, {} of them the kernel's",
            number(coverage.events),
            number(coverage.entries),
            if coverage.entries == 1 { "entry" } else { "entries" },
            number(coverage.exits),
            nouns(coverage.exits, "exit"),
            number(coverage.points),
            nouns(coverage.points, "other"),
            number(coverage.kernel_events)
        ),
    );
    let uncounted = match coverage.losses_uncounted {
        0 => String::new(),
        n => format!(", {n} of unknown size"),
    };
    page.field(
        "missing",
        &match coverage.losses {
            0 => "nothing".to_owned(),
            n => format!(
                "{} {} in {n} {}{uncounted}",
                number(coverage.discarded),
                nouns(coverage.discarded, "event"),
                nouns(n, "hole")
            ),
        },
    );
    holes(page, coverage);
    page.field(
        "calls",
        &format!(
            "{} whole, {} cut ({:.3} %), {} open at the end, {} {} without entry",
            number(coverage.calls),
            number(coverage.cut),
            100.0 * coverage.cut_share,
            number(coverage.open),
            number(coverage.unmatched),
            nouns(coverage.unmatched, "exit")
        ),
    );
    let mut notes = Vec::new();
    let mut note = |count: u64, noun: &str, what: &str| {
        if count > 0 {
            notes.push(format!("{} {}{what}", number(count), nouns(count, noun)));
        }
    };
    note(coverage.mismatched, "exit", " skipped open calls");
    note(coverage.unsound, "exit", " cannot be trusted");
    note(coverage.clock_backwards, "clock step", " back");
    note(coverage.unresolved, "function", " without a name");
    note(coverage.damages_total, "damaged part", "");
    if !notes.is_empty() {
        page.field("also", &notes.join(", "));
    }
    if !coverage.asynchronous.is_empty() {
        page.field(
            "handlers",
            &format!("{} (charged to themselves)", coverage.asynchronous.join(", ")),
        );
    }
    for damage in coverage.damages.iter().take(ROWS_SHOWN) {
        page.field(
            "damage",
            &format!("{} at byte {}: {}", damage.place, damage.offset, damage.what),
        );
    }
    for limit in &coverage.limits {
        page.field("note", limit);
    }
    for withheld in &coverage.withheld {
        page.field("withheld", &format!("{}: {}", withheld.what, withheld.why));
    }
}

/// Where events are missing, the longest first.
fn holes(page: &mut Page, coverage: &Coverage) {
    let mut holes: Vec<&HoleRow> = coverage.holes.iter().collect();
    holes.sort_by_key(|hole| std::cmp::Reverse(hole.length_ns));
    for hole in holes.iter().take(HOLES_SHOWN) {
        let events = hole.events.map_or_else(
            || "an unknown number of events".to_owned(),
            |events| format!("{} {}", number(events), nouns(events, "event")),
        );
        page.field(
            "hole",
            &format!(
                "at {:.6} s for {}: {events} of {}",
                hole.at_ns as f64 / 1e9,
                duration(hole.length_ns),
                hole.thread.map_or_else(
                    || "several threads".to_owned(),
                    |thread| format!("thread {thread}")
                )
            ),
        );
    }
    let more = coverage.losses.saturating_sub(HOLES_SHOWN as u64);
    if more > 0 && !holes.is_empty() {
        page.field("", &format!("... and {} more", number(more)));
    }
}

fn cost(page: &mut Page, analysis: &Analysis) {
    let cost = &analysis.calibration;
    let source = match cost.source {
        CalibrationSource::Measured => "measured",
        CalibrationSource::Estimated => {
            "estimated (from the shortest calls, and the gaps between calls)"
        }
        CalibrationSource::None => {
            page.field("tracer", "its cost per call is not known; nothing is taken off");
            return;
        }
    };
    page.field(
        "tracer",
        &format!(
            "{:.0} ns inside and {:.0} ns outside each call, {source}: {:.1} % of the traced time",
            cost.inside_ns,
            cost.outside_ns,
            100.0 * cost.overhead_share
        ),
    );
    if let Some(control) = analysis.control {
        let factor = control.slow_down.map_or_else(
            || "the trace has no packet rate to compare with".to_owned(),
            |factor| format!("tracing slows by {factor:.2}"),
        );
        page.field(
            "control",
            &format!("{:.0} packets/s without instrumentation: {factor}", control.per_second),
        );
    }
    let packets = &analysis.packets;
    if let Some(received) = packets.received {
        page.field(
            "packets",
            &format!(
                "{} received{}, {:.0}/s ({})",
                number(received),
                packets.sent.map_or_else(String::new, |sent| format!(", {} sent", number(sent))),
                packets.per_second.unwrap_or(0.0),
                packets.source
            ),
        );
    }
}

/// What is wrong, first of all.
fn causes(page: &mut Page, analysis: &Analysis) {
    page.line("CAUSES");
    for (at, cause) in analysis.causes.iter().enumerate() {
        let mut text = format!("{}: {}", cause.title(), cause.sentence);
        let _ = write!(text, " [confidence {}", cause.confidence.name());
        if let (Some(low), Some(high)) = (cause.low, cause.high) {
            let _ = write!(text, ", 95 % {:.1} to {:.1} %", 100.0 * low, 100.0 * high);
        }
        text.push(']');
        page.paragraph(&format!("{:>3}. ", at + 1), &text);
    }
    match (analysis.causes.is_empty(), analysis.accounts.is_empty()) {
        (true, false) => {
            page.line("  None: of no worker is known that it loses 1 % of its time.");
        }
        (true, true) => page.line("  None can be named: no thread's work is in this trace."),
        (false, _) => {}
    }
    if !analysis.losses.known {
        page.paragraph(
            "  ",
            "Whether packets were lost is unknown: the trace counts none (--drops N gives what others counted).",
        );
    } else if analysis.losses.rows.is_empty() {
        page.line("  No packet was lost, by the counters of lane and app.");
    }
    page.line("");
}

/// Where the time of each worker went.
fn accounts(page: &mut Page, analysis: &Analysis) {
    for account in analysis.accounts.iter().take(ROWS_SHOWN) {
        page.head(&format!(
            "ACCOUNT of {} ({} from its first to its last event)",
            thread_name(analysis, account.thread),
            seconds(account.span_ns)
        ));
        page.line(&format!("  {:<44} {:>12} {:>7} {:>12}", "", "ms", "%", "+- ms"));
        for row in account.parts.iter().take(FUNCTIONS_SHOWN) {
            let name = match row.detail.as_str() {
                "" => row.part.name().to_owned(),
                detail => format!("{}: {detail}", row.part.name()),
            };
            let unsure = match row.uncertainty_ns {
                0 => String::new(),
                ns => millis(ns as f64),
            };
            page.line(&format!(
                "  {:<44} {:>12} {:>7.2} {:>12}",
                names::label(&name, 44),
                millis(row.ns as f64),
                100.0 * row.share,
                unsure
            ));
        }
        page.more(account.parts.len(), FUNCTIONS_SHOWN);
    }
    page.more(analysis.accounts.len(), ROWS_SHOWN);
}

fn findings(page: &mut Page, analysis: &Analysis) {
    page.head("FINDINGS");
    let order = [State::Fired, State::Silent, State::Withheld, State::NotMeasurable];
    for state in order {
        for finding in analysis.findings.iter().filter(|finding| finding.state == state) {
            page.paragraph(&finding_label(finding), &finding_text(finding));
        }
    }
}

fn finding_label(finding: &Finding) -> String {
    let state = match finding.state {
        State::Fired => "FIRED",
        State::Silent => "silent",
        State::Withheld => "withheld",
        State::NotMeasurable => "unknown",
    };
    format!("{:<4}{state:<10}", finding.id)
}

fn finding_text(finding: &Finding) -> String {
    let mut text = format!("{}: {}", finding.title, finding.sentence);
    let measured = matches!(finding.state, State::Fired | State::Silent);
    if let (Some(value), true) = (finding.value, measured) {
        let _ = write!(text, " [{}", figure(value));
        if let (Some(low), Some(high)) = (finding.low, finding.high) {
            let _ = write!(text, ", 95 % {} to {}", figure(low), figure(high));
        }
        let _ = write!(text, " {}", finding.unit);
        if finding.state == State::Fired {
            let _ = write!(text, "; confidence {}", finding.confidence.name());
        }
        text.push(']');
    }
    text
}

fn advice(page: &mut Page, analysis: &Analysis) {
    page.head("ADVICE");
    if analysis.advice.is_empty() {
        page.line("None: nothing that was found calls for a change.");
    }
    for (at, advice) in analysis.advice.iter().enumerate() {
        page.paragraph(&format!("{:>2}. ", at + 1), &advice.text);
        page.paragraph("    because   ", &advice.because);
        page.paragraph("    expect    ", &advice.expected);
        page.paragraph("    confirm   ", &advice.confirm);
    }
    for silent in &analysis.silent {
        page.paragraph("not: ", &format!("{}. {}", silent.rule, silent.why));
    }
    if !analysis.exclude.is_empty() {
        let shown: Vec<&str> =
            analysis.exclude.iter().take(ROWS_SHOWN).map(String::as_str).collect();
        page.paragraph("exclude: ", &shown.join(","));
        page.more(analysis.exclude.len(), ROWS_SHOWN);
    }
}

fn layers(page: &mut Page, analysis: &Analysis) {
    page.head("LAYERS");
    page.line(&format!(
        "{:<20} {:>14} {:>7} {:>14} {:>7} {:>12}",
        "", "raw ms", "%", "corrected ms", "%", "ns/packet"
    ));
    for row in analysis.layers.iter().filter(|row| row.self_ns > 0) {
        page.line(&format!(
            "{:<20} {:>14} {:>7.1} {:>14} {:>7.1} {:>12}",
            row.layer.name(),
            millis(row.self_ns as f64),
            100.0 * row.share,
            millis(row.corrected_ns),
            100.0 * row.share_corrected,
            row.ns_per_packet.map_or_else(dash, |ns| format!("{ns:.0}"))
        ));
    }
}

fn polls(page: &mut Page, analysis: &Analysis) {
    if analysis.polls.is_empty() {
        return;
    }
    page.head("POLLS");
    page.line(&format!(
        "{:<18} {:>5} {:>5} {:>13} {:>7} {:>11} {:>8} {:>6}",
        "thread", "port", "queue", "polls", "empty %", "packets", "per poll", "full"
    ));
    for row in analysis.polls.iter().take(ROWS_SHOWN) {
        let of = |value: Option<u16>| value.map_or_else(dash, |value| value.to_string());
        page.line(&format!(
            "{:<18} {:>5} {:>5} {:>13} {:>7.2} {:>11} {:>8} {:>6}",
            names::label(&thread_name(analysis, row.thread), 18),
            of(row.port),
            of(row.queue),
            number(row.polls),
            100.0 * row.empty as f64 / row.polls.max(1) as f64,
            number(row.packets),
            row.packets_per_productive.map_or_else(dash, |mean| format!("{mean:.2}")),
            row.full
        ));
    }
    page.more(analysis.polls.len(), ROWS_SHOWN);
}

fn functions(page: &mut Page, analysis: &Analysis) {
    if analysis.functions.is_empty() {
        return;
    }
    page.head("FUNCTIONS");
    page.paragraph(
        "  ",
        "Self and total time are without the tracer's cost, durations with it; ! is a function whose time is mostly the tracer's.",
    );
    page.line(&format!(
        "  {:<NAME$} {:>7} {:>7} {:>9} {:>9} {:>5} {:>7} {:>7}",
        "", "calls", "/packet", "self ms", "total ms", "%", "p50", "p99"
    ));
    let shown = &analysis.functions[..analysis.functions.len().min(FUNCTIONS_SHOWN)];
    let labels = names::labels(shown.iter().map(|row| row.name.as_str()), NAME);
    for (row, label) in shown.iter().zip(labels) {
        page.line(&format!(
            "{} {:<NAME$} {:>7} {:>7} {:>9} {:>9} {:>5.1} {:>7} {:>7}",
            if row.dominated { '!' } else { ' ' },
            label,
            short(row.calls),
            row.calls_per_packet.map_or_else(dash, |calls| format!("{calls:.2}")),
            millis(row.self_corrected_ns),
            millis(row.total_corrected_ns),
            100.0 * row.share_corrected,
            row.durations.p50_ns.map_or_else(dash, duration),
            row.durations.p99_ns.map_or_else(dash, duration)
        ));
        page.whole(&label, &row.name);
    }
    page.more(analysis.functions.len(), FUNCTIONS_SHOWN);
    let maxima: Vec<_> = analysis
        .functions
        .iter()
        .filter(|row| !row.dominated)
        .filter_map(|row| row.durations.max.map(|max| (row, max)))
        .take(ROWS_SHOWN)
        .collect();
    if maxima.is_empty() {
        return;
    }
    page.head("LONGEST CALLS");
    page.line(&format!(
        "  {:<NAME$} {:>7} {:>7} {:>7} {:>7} {:>10}  {}",
        "", "avg", "SD", "p99.9", "max", "at s", "thread"
    ));
    let labels = names::labels(maxima.iter().map(|(row, _)| row.name.as_str()), NAME);
    for ((row, max), label) in maxima.into_iter().zip(labels) {
        let durations = &row.durations;
        page.line(&format!(
            "  {:<NAME$} {:>7} {:>7} {:>7} {:>7} {:>10.6}  {}",
            label,
            durations.avg_ns.map_or_else(dash, |ns| duration(ns as u64)),
            durations.sd_ns.map_or_else(dash, |ns| duration(ns as u64)),
            durations.p999_ns.map_or_else(dash, duration),
            duration(max.duration_ns),
            max.at_ns as f64 / 1e9,
            names::label(&thread_name(analysis, max.thread), 13)
        ));
        page.whole(&label, &row.name);
    }
}

fn contexts(page: &mut Page, analysis: &Analysis) {
    let mut order: Vec<usize> = (0..analysis.contexts.len()).collect();
    let dominated =
        |at: usize| analysis.functions[analysis.contexts[at].function as usize].dominated;
    order.retain(|&at| !dominated(at) && analysis.contexts[at].self_corrected_ns > 0.0);
    order.sort_by(|&a, &b| {
        let own = |at: usize| analysis.contexts[at].self_corrected_ns;
        own(b).total_cmp(&own(a)).then(a.cmp(&b))
    });
    if order.is_empty() {
        return;
    }
    page.head("CONTEXTS (by corrected self time)");
    for &at in order.iter().take(ROWS_SHOWN) {
        let row = &analysis.contexts[at];
        let mut path = Vec::new();
        let mut next = Some(at);
        while let Some(context) = next {
            let row = &analysis.contexts[context];
            path.push(analysis.functions[row.function as usize].name.as_str());
            next = row.parent.map(|parent| parent as usize);
        }
        path.reverse();
        let skipped = path.len().saturating_sub(4);
        let path =
            format!("{}{}", if skipped > 0 { "... > " } else { "" }, path[skipped..].join(" > "));
        page.paragraph(
            &format!("{:>10} ms {:>9} calls  ", millis(row.self_corrected_ns), number(row.calls)),
            &path,
        );
    }
    page.more(order.len(), ROWS_SHOWN);
}

fn worst(page: &mut Page, analysis: &Analysis) {
    if analysis.worst.is_empty() {
        return;
    }
    page.head("LONGEST SILENCES (no event of the thread)");
    let shown = &analysis.worst[..analysis.worst.len().min(ROWS_SHOWN)];
    let name = |call: &WorstCall| analysis.functions[call.function as usize].name.as_str();
    let labels = names::labels(shown.iter().map(name), NAME);
    for (call, label) in shown.iter().zip(labels) {
        page.line(&format!(
            "{:>8} at {:>11.6} s  {:<14} {:<NAME$} {}",
            duration(call.duration_ns),
            call.at_ns as f64 / 1e9,
            cut(&call.cause, 14),
            label,
            names::label(&thread_name(analysis, call.thread), 16)
        ));
        page.whole(&label, name(call));
    }
    page.more(analysis.worst.len(), ROWS_SHOWN);
}

fn points(page: &mut Page, analysis: &Analysis) {
    if analysis.points.is_empty() {
        return;
    }
    page.head("EVENTS");
    page.line(&format!(
        "{:<36} {:>13} {:>7} {:>10} {:>10}",
        "name", "count", "threads", "first s", "last s"
    ));
    for row in analysis.points.iter().take(ROWS_SHOWN) {
        page.line(&format!(
            "{:<36} {:>13} {:>7} {:>10.6} {:>10.6}",
            names::label(&row.name, 36),
            number(row.count),
            row.threads,
            row.first_ns as f64 / 1e9,
            row.last_ns as f64 / 1e9
        ));
    }
    page.more(analysis.points.len(), ROWS_SHOWN);
}

fn threads(page: &mut Page, analysis: &Analysis) {
    page.head("THREADS");
    page.line(&format!(
        "{:<18} {:>7} {:>11} {:>10} {:>10} {:>10}  {}",
        "", "tid", "events", "traced ms", "idle ms", "packets", "CPUs"
    ));
    for (at, row) in analysis.threads.iter().enumerate().take(ROWS_SHOWN) {
        let cpus: Vec<String> = row.cpus.iter().map(u32::to_string).collect();
        page.line(&format!(
            "{:<18} {:>7} {:>11} {:>10} {:>10} {:>10}  {}",
            names::label(&thread_name(analysis, at as u32), 18),
            row.tid,
            number(row.events),
            millis(row.traced_ns as f64),
            millis(row.idle_ns as f64),
            number(row.packets),
            cpus.join(",")
        ));
    }
    page.more(analysis.threads.len(), ROWS_SHOWN);
}

/// How long packets were in each worker.
fn in_workers(page: &mut Page, analysis: &Analysis) {
    let mut known = (0..).zip(&analysis.threads).filter_map(|(at, row)| Some((at, row.in_worker?)));
    let Some(first) = known.next() else { return };
    page.head("A PACKET IN A WORKER (from the poll that found it to the next send)");
    page.line(&format!("{:<24} {:>13} {:>10} {:>10}", "", "packets", "half", "99 %"));
    for (thread, times) in std::iter::once(first).chain(known).take(ROWS_SHOWN) {
        page.line(&format!(
            "{:<24} {:>13} {:>10} {:>10}",
            thread_name(analysis, thread),
            number(times.packets),
            times.p50_ns.map_or_else(dash, duration),
            times.p99_ns.map_or_else(dash, duration)
        ));
    }
}

/// How far CPUs were used by the threads of the trace.
fn cores(page: &mut Page, analysis: &Analysis) {
    if analysis.cores.is_empty() {
        return;
    }
    let title = match analysis.coverage.kernel_events {
        0 => "CPUS (threads count from their first to their last event: no kernel events)",
        _ => "CPUS (by the threads of this trace; % of the span)",
    };
    page.head(title);
    let span_ns = analysis.coverage.span.length_ns.max(1) as f64;
    page.line(&format!("{:<9} {:>12} {:>7} {:>8}  {}", "", "used ms", "%", "idle %", "threads"));
    for row in analysis.cores.iter().take(ROWS_SHOWN) {
        let threads = row.threads.iter().take(3);
        let threads: Vec<String> = threads
            .map(|&[thread, _]| {
                let thread = u32::try_from(thread).unwrap_or(u32::MAX);
                names::label(&thread_name(analysis, thread), 16)
            })
            .collect();
        page.line(&format!(
            "{:<9} {:>12} {:>7.1} {:>8.1}  {}",
            row.cpu.map_or_else(|| "unknown".to_owned(), |cpu| format!("CPU {cpu}")),
            millis(row.used_ns as f64),
            100.0 * row.share,
            100.0 * row.idle_ns as f64 / span_ns,
            threads.join(", ")
        ));
    }
    page.more(analysis.cores.len(), ROWS_SHOWN);
}

fn thread_name(analysis: &Analysis, thread: u32) -> String {
    analysis.threads.get(thread as usize).map_or_else(
        || thread.to_string(),
        |row| {
            if row.name.is_empty() {
                format!("thread {thread}")
            } else {
                names::label(&row.name, 24)
            }
        },
    )
}

/// Lines of at most so many columns.
struct Page {
    text: String,
    style: Style,
    columns: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self { text: String::new(), style: Style::default(), columns: COLUMNS }
    }
}

impl Page {
    fn line(&mut self, line: &str) {
        let line = cut(line, self.columns);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn head(&mut self, title: &str) {
        self.text.push('\n');
        self.line(title);
    }

    fn field(&mut self, name: &str, value: &str) {
        self.paragraph(&format!("  {name:<10}"), value);
    }

    fn more(&mut self, all: usize, shown: usize) {
        if all > shown {
            self.line(&format!("  ... and {} more", all - shown));
        }
    }

    /// The whole name, where it was asked for and is not there already.
    fn whole(&mut self, label: &str, name: &str) {
        if self.style.full_names && label != name {
            self.paragraph("    ", name);
        }
    }

    /// Breaks at spaces, and words that are longer than a line; further lines are indented below the first word.
    fn paragraph(&mut self, label: &str, text: &str) {
        let indent = " ".repeat(label.chars().count());
        let mut line = label.to_owned();
        let mut empty = true;
        for word in text.split_whitespace() {
            let width = line.chars().count() + word.chars().count() + usize::from(!empty);
            if width > self.columns && !empty {
                self.line(&line);
                line.clone_from(&indent);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            for letter in word.chars() {
                if line.chars().count() >= self.columns {
                    self.line(&line);
                    line.clone_from(&indent);
                }
                line.push(letter);
            }
            empty = false;
        }
        self.line(&line);
    }
}

/// At most `columns` characters, control characters shown as `?`: names come from files.
fn cut(text: &str, columns: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '?' } else { c });
    if text.chars().count() <= columns {
        clean.collect()
    } else {
        clean.take(columns - 1).chain(['~']).collect()
    }
}

/// What stands for a figure that is not known.
fn dash() -> String {
    "-".to_owned()
}

/// 1234567 as 1,234,567.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// 12,345,678 as 12.3 M, where a column is narrow.
fn short(value: u64) -> String {
    match value {
        0..1_000_000 => number(value),
        1_000_000..1_000_000_000 => format!("{:.2} M", value as f64 / 1e6),
        _ => format!("{:.2} G", value as f64 / 1e9),
    }
}

fn millis(ns: f64) -> String {
    format!("{:.3}", ns / 1e6)
}

fn seconds(ns: u64) -> String {
    format!("{:.6} s", ns as f64 / 1e9)
}

fn duration(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..100_000 => format!("{:.1} us", ns as f64 / 1e3),
        100_000..10_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        10_000_000..100_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.0} ms", ns as f64 / 1e6),
    }
}

/// Three digits that matter.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 1.0 => format!("{value:.2}"),
        magnitude if magnitude >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(number(12), "12");
        assert_eq!(duration(9_999), "9999 ns");
        assert_eq!(duration(12_345_678), "12.3 ms");
        assert_eq!(figure(0.25), "0.2500");
        assert_eq!(cut("a\u{1b}[31mb", 10), "a?[31mb");
    }

    #[test]
    fn paragraphs_keep_within_the_columns() {
        let mut page = Page::default();
        page.paragraph("label: ", &"word ".repeat(60));
        assert!(page.text.lines().all(|line| line.chars().count() <= COLUMNS));
        assert!(page.text.lines().nth(1).is_some_and(|line| line.starts_with("       word")));
    }
}
