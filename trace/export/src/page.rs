//! An analysis as one HTML file.
//!
//! What was read and what is missing comes first, since everything below rests on it; then what was found, with links
//! to the places in the time chart that show it; then advice, given and withheld; then tables and pictures. The file
//! asks the network for nothing (a content policy in its head forbids it). Findings and tables need no script; the
//! flame graph, the time chart and the histograms of durations are drawn by the page itself, from [`data`](self::data),
//! which holds levels of detail and never the events, so that a trace of any size gives a page of a few megabytes.

mod account;
mod calls;
mod data;
mod drawing;
mod figures;

use crate::figure::{duration_ns, moment};
use crate::markup::json_in_script;
use crate::table::{confidence_of, state_name};
use laneway_page::document::{self, facts, list};
use laneway_page::markup::{escape, put};
use laneway_page::number::{ABSENT, count, duration, figure, percent, tied, utc};
use laneway_page::script;
use laneway_page::table::{self, Cell, Table, column};
use laneway_trace::result::{Analysis, CalibrationSource, Finding, Layer, Mark, State, TimeLine};

/// Rows of the functions table, and histograms of durations; the rest is in the CSV tables.
pub const PAGE_FUNCTIONS_MAX: usize = 400;
/// Contexts in the flame graph; the narrowest beyond it are left out.
pub const PAGE_CONTEXTS_MAX: usize = 12_000;
/// Buckets of all time lines together; beyond it neighbours are merged.
pub const PAGE_BUCKETS_MAX: usize = 24_576;
/// Letters of a name; longer ones are cut short.
pub const PAGE_NAME_CHARS_MAX: usize = 240;
/// Links to evidence per finding; all its places are marked in the time chart.
const LINKS_MAX: usize = 6;
/// A place longer than this part of the trace is the trace, not a place in it.
const WHOLE_SHARE: f64 = 0.95;
/// Threads with a smaller part of all events than this are folded away in the time chart.
const BUSY_SHARE: f64 = 0.001;
/// Threads whose time charts stand open; more are folded away, however busy.
const LANES_OPEN_MAX: usize = 12;

const STYLE: &str = include_str!("../page/page.css");
const SCRIPT: [&str; 7] = [
    include_str!("../page/figures.js"),
    script::READINGS,
    script::TABLES,
    include_str!("../page/filter.js"),
    include_str!("../page/histogram.js"),
    include_str!("../page/flame.js"),
    include_str!("../page/timeline.js"),
];

/// The whole page.
#[must_use]
pub fn page(analysis: &Analysis) -> String {
    let inputs = analysis.coverage.inputs.join(", ");
    let mut out = document::begin(&format!("Trace: {inputs}"), STYLE);
    heading(&mut out, analysis, &inputs);
    out.push_str("<main>\n");
    coverage(&mut out, analysis);
    account::causes(&mut out, analysis);
    account::accounts(&mut out, analysis);
    findings(&mut out, analysis);
    advice(&mut out, analysis);
    layers(&mut out, analysis);
    time(&mut out, analysis);
    calls::section(&mut out, analysis);
    flame(&mut out, analysis);
    figures::functions(&mut out, analysis);
    figures::durations(&mut out, analysis);
    figures::polls(&mut out, analysis);
    figures::pools(&mut out, analysis);
    figures::threads(&mut out, analysis);
    figures::cores(&mut out, analysis);
    method(&mut out, analysis);
    put!(
        &mut out,
        "</main>\n<footer><p>laneway {}, schema {}.</p></footer>\n<script type=\"application/json\" \
         id=\"trace\">{}</script>\n",
        env!("CARGO_PKG_VERSION"),
        escape(&analysis.schema),
        json_in_script(&data::of(analysis))
    );
    document::end(&mut out, &SCRIPT);
    out
}

/// A name as the page shows it: one line, of bounded length. A long one loses its middle: what tells `map<...>::find`
/// from `map<...>::erase` stands at the end.
fn name(text: &str) -> String {
    shortened(text, PAGE_NAME_CHARS_MAX)
}

fn shortened(text: &str, letters_max: usize) -> String {
    let shown = crate::markup::shown(text);
    let letters = shown.chars().count();
    if letters <= letters_max {
        return shown;
    }
    let tail = letters_max / 3;
    let head = shown.chars().take(letters_max - tail - 1);
    head.chain(std::iter::once('\u{2026}')).chain(shown.chars().skip(letters - tail)).collect()
}

/// The date of a moment. Formats that count from the start of the machine or from nothing name moments soon after 1970,
/// which are no dates.
fn date(unix_ns: u64) -> Option<String> {
    const YEAR_2000_NS: u64 = 946_684_800_000_000_000;
    (unix_ns >= YEAR_2000_NS).then(|| utc(unix_ns).trim_end_matches(" UTC").to_owned())
}

fn heading(out: &mut String, analysis: &Analysis, inputs: &str) {
    let coverage = &analysis.coverage;
    put!(
        out,
        "<header>\n<h1>Trace {}</h1>\n<p class=\"sub\">recorded by {}{}; {}, {} events, {} {}</p>\n\
         <nav aria-label=\"Sections\"><a href=\"#coverage\">Coverage</a> <a href=\"#causes\">Causes</a> <a href=\"#findings\">Findings</a> \
         <a href=\"#advice\">Advice</a> <a href=\"#layers\">Layers</a> <a href=\"#time\">Time chart</a> <a href=\"#calls\">Call chart</a> \
         <a href=\"#flames\">Flame graph</a> <a href=\"#functions\">Functions</a> \
         <a href=\"#durations\">Durations</a> <a href=\"#polls\">Polls</a> <a href=\"#threads\">Threads</a> <a href=\"#cores\">CPUs</a> \
         <a href=\"#method\">Method</a></nav>\n</header>\n",
        escape(inputs),
        escape(&coverage.producers.join(", ")),
        date(coverage.span.start_ns).map_or_else(String::new, |date| format!(" on {date} UTC")),
        duration_ns(coverage.span.length_ns),
        count(coverage.events),
        count(coverage.threads),
        if coverage.threads == 1 { "thread" } else { "threads" }
    );
}

fn coverage(out: &mut String, analysis: &Analysis) {
    let coverage = &analysis.coverage;
    let mut holes = Vec::new();
    let mut hole = |n: u64, one: &str, several: &str| {
        if n > 0 {
            holes.push(format!("{} {}", count(n), if n == 1 { one } else { several }));
        }
    };
    hole(coverage.discarded, "event was not recorded", "events were not recorded");
    hole(coverage.losses_uncounted, "hole of unknown size", "holes of unknown size");
    hole(coverage.damages_total, "part could not be read", "parts could not be read");
    hole(coverage.clock_backwards, "event goes back in time", "events go back in time");
    let (class, word, sentence) = if holes.is_empty() {
        let whole = "Every event that the producer counted was read.".to_owned();
        ("", "Complete.", whole)
    } else {
        (" holes", "Incomplete.", format!("{}.", holes.join("; ")))
    };
    put!(
        out,
        "<section>\n<h2 id=\"coverage\">What was read, and what is missing</h2>\n\
         <div class=\"outcome{class}\"><p><strong>{word}</strong> {} {} of {} calls are cut ({}): they count in totals, \
         not in percentiles.</p></div>\n<div class=\"columns\">\n<div>",
        escape(&sentence),
        count(coverage.cut),
        count(coverage.calls + coverage.cut),
        percent(coverage.cut_share)
    );
    let counted = [
        ("events", coverage.events),
        ("functions entered", coverage.entries),
        ("functions left", coverage.exits),
        ("other events", coverage.points),
        ("of these from the kernel", coverage.kernel_events),
        ("calls seen whole", coverage.calls),
        ("calls open at the end", coverage.open),
        ("exits without an entry", coverage.unmatched),
        ("exits that skipped calls", coverage.mismatched),
        ("exits that cannot be trusted", coverage.unsound),
        ("holes", coverage.losses),
        ("functions without a name", coverage.unresolved),
    ];
    facts(out, counted.iter().map(|(name, n)| ((*name).to_owned(), count(*n))));
    out.push_str("</div>\n<div>");
    facts(out, packets_and_tracer(analysis));
    out.push_str("</div>\n</div>\n");
    if !coverage.withheld.is_empty() {
        out.push_str("<h3>Not answered, because the trace does not carry it</h3>\n<ul>\n");
        for withheld in &coverage.withheld {
            put!(out, "<li><b>{}</b>: {}</li>\n", escape(&withheld.what), escape(&withheld.why));
        }
        out.push_str("</ul>\n");
    }
    hole_places(out, analysis);
    if !coverage.limits.is_empty() {
        out.push_str("<h3>Limits that were reached</h3>\n");
        list(out, "limits", &coverage.limits);
    }
    damages(out, analysis);
    out.push_str("</section>\n");
}

/// How many packets there were, and what recording them cost.
fn packets_and_tracer(analysis: &Analysis) -> Vec<(String, String)> {
    let coverage = &analysis.coverage;
    let mut more = vec![
        ("packets received".to_owned(), optional(analysis.packets.received, count)),
        ("packets sent".to_owned(), optional(analysis.packets.sent, count)),
        ("packets counted by".to_owned(), analysis.packets.source.clone()),
        (
            "received".to_owned(),
            optional(analysis.packets.per_second, |rate| tied(&figure(rate), "packets/s")),
        ),
        ("cost of the tracer".to_owned(), calibration(analysis)),
    ];
    if let Some(control) = analysis.control {
        let slow_down =
            optional(control.slow_down, |times| format!("; {}x the traced rate", figure(times)));
        let rate = tied(&figure(control.per_second), "packets/s");
        more.push(("without instrumentation".to_owned(), format!("{rate}{slow_down}")));
    }
    if !coverage.asynchronous.is_empty() {
        let names: Vec<String> = coverage.asynchronous.iter().map(|text| name(text)).collect();
        more.push(("charged to themselves".to_owned(), names.join(", ")));
    }
    more
}

/// Parts of the trace that could not be read.
fn damages(out: &mut String, analysis: &Analysis) {
    let coverage = &analysis.coverage;
    if coverage.damages.is_empty() {
        return;
    }
    put!(
        out,
        "<details>\n<summary>Parts that could not be read: {}{}</summary>\n<ul>\n",
        count(coverage.damages_total),
        match coverage.damages.len() as u64 {
            shown if shown < coverage.damages_total => format!(", the first {shown}"),
            _ => String::new(),
        }
    );
    for damage in &coverage.damages {
        put!(
            out,
            "<li><code>{}</code>, byte {}: {}</li>\n",
            escape(&damage.place),
            count(damage.offset),
            escape(&damage.what)
        );
    }
    out.push_str("</ul>\n</details>\n");
}

/// Where events are missing; the time chart draws them.
fn hole_places(out: &mut String, analysis: &Analysis) {
    let coverage = &analysis.coverage;
    if coverage.holes.is_empty() {
        return;
    }
    put!(
        out,
        "<details>\n<summary>Holes, where events are missing: {}{}</summary>\n<ul>\n",
        count(coverage.losses),
        match coverage.holes.len() as u64 {
            shown if shown < coverage.losses => format!(", the first {shown}"),
            _ => String::new(),
        }
    );
    for hole in &coverage.holes {
        let place = Mark {
            at_ns: hole.at_ns,
            length_ns: hole.length_ns,
            thread: hole.thread,
            label: String::new(),
        };
        put!(
            out,
            "<li><a href=\"{}\">at {}</a> for {}: {} of {}</li>\n",
            link(&place),
            moment(hole.at_ns),
            duration_ns(hole.length_ns),
            hole.events.map_or_else(
                || "an unknown number of events".to_owned(),
                |events| format!("{} events", count(events))
            ),
            escape(&hole.thread.map_or_else(
                || "several threads".to_owned(),
                |thread| thread_name(analysis, thread)
            ))
        );
    }
    out.push_str("</ul>\n</details>\n");
}

fn calibration(analysis: &Analysis) -> String {
    let calibration = &analysis.calibration;
    let figures = format!(
        "{} inside and {} outside each call, {} of the time",
        duration(calibration.inside_ns),
        duration(calibration.outside_ns),
        percent(calibration.overhead_share)
    );
    match calibration.source {
        CalibrationSource::Measured => format!("{figures}; measured by a null call"),
        CalibrationSource::Estimated => {
            format!(
                "{figures}; estimated from the shortest leaf calls, an upper bound inside, nothing known outside"
            )
        }
        CalibrationSource::None => "not corrected: there is nothing to estimate it from".to_owned(),
    }
}

/// A sign for each state, so that colour is never the only bearer.
fn glyph(state: State) -> &'static str {
    match state {
        State::Fired => "\u{25cf}",
        State::Silent => "\u{25cb}",
        State::Withheld => "\u{2715}",
        State::NotMeasurable => "\u{2013}",
    }
}

fn findings(out: &mut String, analysis: &Analysis) {
    out.push_str("<section>\n<h2 id=\"findings\">Findings</h2>\n");
    if analysis.findings.is_empty() {
        out.push_str("<p class=\"gap\">No detector was run.</p>\n</section>\n");
        return;
    }
    let order = [State::Fired, State::Silent, State::Withheld, State::NotMeasurable];
    let counted: Vec<String> = order
        .iter()
        .map(|state| (analysis.findings.iter().filter(|f| f.state == *state).count(), state))
        .filter(|(n, _)| *n > 0)
        .map(|(n, state)| format!("{n} {}", state_name(*state)))
        .collect();
    put!(
        out,
        "<p class=\"quiet\">{} detectors: {}. A silent one was measured and its condition does not hold; a withheld one \
         has too many holes to be believed.</p>\n<div class=\"scroll\" tabindex=\"0\">\n<table class=\"findings\">\n\
         <thead><tr><th scope=\"col\">id</th><th scope=\"col\">detector</th><th scope=\"col\">state</th>\
         <th scope=\"col\" class=\"number\">value<span class=\"unit\">95 % interval</span></th>\
         <th scope=\"col\">confidence</th><th scope=\"col\">what was found</th><th scope=\"col\">evidence</th></tr></thead>\n<tbody>\n",
        analysis.findings.len(),
        counted.join(", ")
    );
    for state in order {
        for finding in analysis.findings.iter().filter(|finding| finding.state == state) {
            finding_row(out, analysis, finding);
        }
    }
    out.push_str("</tbody>\n</table>\n</div>\n</section>\n");
}

fn finding_row(out: &mut String, analysis: &Analysis, finding: &Finding) {
    let class = match finding.state {
        State::Fired => "fired",
        State::Withheld => "withheld",
        State::Silent | State::NotMeasurable => "other",
    };
    put!(
        out,
        "<tr class=\"{class}\"><td>{}</td><th scope=\"row\">{}</th><td><span class=\"word\">{} {}</span></td>",
        escape(&finding.id),
        escape(&finding.title),
        glyph(finding.state),
        state_name(finding.state)
    );
    match finding.value {
        Some(value) => {
            let (shown, of) = with_unit(value, &finding.unit);
            put!(out, "<td class=\"number\">{shown}<span class=\"unit\">{}</span>", escape(of));
            if let (Some(low), Some(high)) = (finding.low, finding.high) {
                let [low, high] = [low, high].map(|end| with_unit(end, &finding.unit).0);
                put!(out, "<span class=\"unit\">{low} to {high}</span>");
            }
            out.push_str("</td>");
        }
        None => put!(out, "<td class=\"absent\">{ABSENT}</td>"),
    }
    put!(
        out,
        "<td>{}</td><td class=\"prose\">{}",
        confidence_of(finding),
        escape(&finding.sentence)
    );
    if !finding.figures.is_empty() {
        out.push_str("<details><summary>figures</summary>");
        facts(out, finding.figures.iter().map(|[name, value]| (name.clone(), value.clone())));
        out.push_str("</details>");
    }
    out.push_str("</td><td class=\"evidence\">");
    let all = finding.span.iter().chain(&finding.marks);
    let (wholes, places): (Vec<&Mark>, Vec<&Mark>) =
        all.partition(|place| is_whole(analysis, place));
    match (places.is_empty(), wholes.is_empty()) {
        (true, true) => out.push_str(ABSENT),
        (true, false) => out.push_str("the whole trace"),
        _ => {}
    }
    for place in places.iter().take(LINKS_MAX) {
        put!(
            out,
            "<a href=\"{}\" title=\"{}\">at {}</a> ",
            link(place),
            escape(&place.label),
            moment(place.at_ns)
        );
    }
    if places.len() > LINKS_MAX {
        put!(
            out,
            "<span class=\"quiet\">and {} more in the chart</span>",
            places.len() - LINKS_MAX
        );
    }
    out.push_str("</td></tr>\n");
}

/// A figure and the rest of its unit: a share is shown as a percentage.
fn with_unit(value: f64, unit: &str) -> (String, &str) {
    match unit.strip_prefix("share") {
        Some(of) => (percent(value), of.trim_start()),
        None => (figure(value), unit),
    }
}

/// Whether a place is so long that it points nowhere.
fn is_whole(analysis: &Analysis, place: &Mark) -> bool {
    place.length_ns as f64 > analysis.coverage.span.length_ns as f64 * WHOLE_SHARE
}

/// The link that the time chart follows.
fn link(place: &Mark) -> String {
    let thread = place.thread.map_or(-1, i64::from);
    format!("#at-{thread}-{}-{}", place.at_ns, place.length_ns)
}

fn advice(out: &mut String, analysis: &Analysis) {
    out.push_str("<section>\n<h2 id=\"advice\">Advice</h2>\n");
    if analysis.advice.is_empty() {
        out.push_str("<p class=\"gap\">None: no rule has all the evidence that it needs.</p>\n");
    }
    for advice in &analysis.advice {
        put!(
            out,
            "<div class=\"advice\"><p><b>{}</b></p><p>Because: {}</p><p>Expected: {}</p><p>To confirm: <code>{}</code></p></div>\n",
            escape(&advice.text),
            escape(&advice.because),
            escape(&advice.expected),
            escape(&advice.confirm)
        );
    }
    if !analysis.silent.is_empty() {
        out.push_str("<h3>Considered, and not given</h3>\n");
    }
    for silent in &analysis.silent {
        put!(
            out,
            "<div class=\"silent\"><p>{}</p><p class=\"quiet\">Not given: {}</p></div>\n",
            escape(&silent.text),
            escape(&silent.why)
        );
    }
    if !analysis.exclude.is_empty() {
        let names: Vec<String> = analysis.exclude.iter().map(|text| name(text)).collect();
        put!(
            out,
            "<details>\n<summary>Functions that the tracer should leave out: {}</summary>\n\
             <p class=\"quiet\">Called more than 100 000 times and shorter than 10 \u{b5}s: their figures are the tracer's.</p>\n\
             <p><code>-finstrument-functions-exclude-function-list={}</code></p>\n</details>\n",
            names.len(),
            escape(&names.join(","))
        );
    }
    out.push_str("</section>\n");
}

fn layers(out: &mut String, analysis: &Analysis) {
    out.push_str(
        "<section>\n<h2 id=\"layers\">Layers</h2>\n<p class=\"quiet\">Self time of all threads. Polls that found nothing \
         stand apart from what polls with packets cost.</p>\n",
    );
    let columns = vec![
        column("layer", "", ""),
        column("share", "as a bar", ""),
        column("share", "corrected", "Without what the tracer cost."),
        column("time", "corrected", "Without what the tracer cost."),
        column("share", "raw", ""),
        column("time", "raw", ""),
        column("per packet", "corrected", "Per packet received."),
    ];
    let shown = analysis.layers.iter().filter(|row| row.self_ns > 0 || row.corrected_ns > 0.0);
    let rows = shown.map(|row| {
        vec![
            Cell::words(row.layer.name()),
            Cell::Bar("l", row.layer.index(), row.share_corrected),
            Cell::figure(row.share_corrected, percent),
            Cell::figure(row.corrected_ns, duration),
            Cell::figure(row.share, percent),
            Cell::figure(row.self_ns, duration_ns),
            Cell::maybe(row.ns_per_packet, duration),
        ]
    });
    table::html(out, &Table::of(columns, rows));
    out.push_str("</section>\n");
}

fn legend(out: &mut String, analysis: &Analysis) {
    out.push_str("<ul class=\"legend\">");
    for layer in data::layers_present(analysis) {
        put!(out, "<li><span class=\"l{}\"></span>{}</li>", layer.index(), layer.name());
    }
    out.push_str("</ul>\n");
}

const NO_SCRIPT: &str =
    "<noscript><p class=\"gap\">This picture is drawn by the page's script.</p></noscript>\n";

fn time(out: &mut String, analysis: &Analysis) {
    out.push_str("<section>\n<h2 id=\"time\">Time chart</h2>\n");
    if analysis.time_lines.is_empty() {
        out.push_str("<p class=\"gap\">The trace has no time line.</p>\n</section>\n");
        return;
    }
    let windows = analysis.windows.len();
    put!(
        out,
        "<p class=\"quiet\">Per thread: layers over time, below them the function with most self time, packets, and single calls \
         around the worst places ({windows} of them: zoom in where a line under the chart marks one). Triangles are what detectors found and \
         the longest stretches without an event.</p>\n"
    );
    keys(out);
    legend(out, analysis);
    out.push_str(
        "<div class=\"controls\" id=\"time-controls\" role=\"group\" aria-label=\"Time chart\">\
         <button type=\"button\" id=\"chart-worst\">Worst call</button>\
         <button type=\"button\" id=\"chart-mark\">Next finding</button>\
         <button type=\"button\" id=\"chart-left\" aria-label=\"Earlier\">\u{2190}</button>\
         <button type=\"button\" id=\"chart-right\" aria-label=\"Later\">\u{2192}</button>\
         <button type=\"button\" id=\"chart-in\">Zoom in</button><button type=\"button\" id=\"chart-out\">Zoom out</button>\
         <button type=\"button\" id=\"chart-all\">All</button>\
         <label>Search <input type=\"search\" id=\"chart-search\" placeholder=\"function\" autocomplete=\"off\"/></label>\
         <span id=\"chart-found\" class=\"quiet\" aria-live=\"polite\"></span></div>\n\
         <p class=\"quiet\" id=\"chart-range\"></p>\n<output class=\"reading\" id=\"chart-reading\" aria-live=\"polite\">Point at a chart, or give it the focus and use the arrow \
         keys: what is there is read out here.</output>\n\
         <div id=\"chart\">\n",
    );
    let lines = lines_by_events(analysis);
    let busy = lines.iter().take_while(|(_, events)| is_busy(analysis, *events)).count();
    let open = busy.clamp(1, LANES_OPEN_MAX);
    lines[..open].iter().for_each(|(line, _)| lane(out, analysis, line));
    if open < lines.len() {
        put!(
            out,
            "<details>\n<summary>Threads with {} events: {}</summary>\n",
            if busy > open { "fewer" } else { "few" },
            lines.len() - open
        );
        lines[open..].iter().for_each(|(line, _)| lane(out, analysis, line));
        out.push_str("</details>\n");
    }
    put!(out, "</div>\n{NO_SCRIPT}");
    worst(out, analysis);
    out.push_str("</section>\n");
}

/// What mouse and keys do. The letters are those of Perfetto.
fn keys(out: &mut String) {
    let actions = [
        ("w s, + \u{2212}, wheel with Ctrl or focus, double click", "zoom"),
        ("a d, drag", "move earlier, later"),
        ("Shift and drag", "measure a stretch, and zoom to it"),
        ("0, Escape with focus", "the whole trace"),
        ("f", "what is at the cursor over the whole width"),
        ("m, M", "next, previous worst call"),
        ("n, p", "next, previous mark of a finding"),
        ("/", "search; Enter and Shift-Enter go through the places, Escape empties it"),
        ("\u{2190} \u{2192} with focus", "move the cursor and read out what is there"),
    ];
    out.push_str("<details class=\"keys\">\n<summary>Mouse and keys</summary>\n");
    facts(out, actions.iter().map(|(keys, act)| ((*keys).to_owned(), (*act).to_owned())));
    out.push_str("<p class=\"quiet\">The address of the page keeps the view.</p>\n</details>\n");
}

/// Time lines with the events of their threads, the busiest first.
fn lines_by_events(analysis: &Analysis) -> Vec<(&TimeLine, u64)> {
    let events = |line: &TimeLine| line.buckets.iter().map(|b| u64::from(b.events)).sum();
    let mut lines: Vec<_> = analysis.time_lines.iter().map(|line| (line, events(line))).collect();
    lines.sort_by_key(|(_, events)| std::cmp::Reverse(*events));
    lines
}

fn is_busy(analysis: &Analysis, events: u64) -> bool {
    events as f64 >= analysis.coverage.events as f64 * BUSY_SHARE
}

fn lane(out: &mut String, analysis: &Analysis, line: &TimeLine) {
    let thread = usize::try_from(line.thread).ok().and_then(|at| analysis.threads.get(at));
    let title = thread.map_or_else(
        || format!("thread {}", line.thread),
        |thread| match thread.tid {
            0 => name(&thread.name),
            tid => format!("{} ({tid})", name(&thread.name)),
        },
    );
    put!(
        out,
        "<div class=\"lane\"><h3>{0}</h3><canvas id=\"lane-{1}\" tabindex=\"0\" role=\"img\" \
         aria-label=\"Time chart of {0}; arrow keys read it out\"></canvas></div>\n",
        escape(&title),
        line.thread
    );
}

fn worst(out: &mut String, analysis: &Analysis) {
    if analysis.worst.is_empty() {
        return;
    }
    put!(
        out,
        "<details>\n<summary>The longest stretches without an event: {}</summary>\n",
        analysis.worst.len()
    );
    let columns = ["in", "lasted", "at", "thread", "cause"].map(|head| column(head, "", ""));
    let rows = analysis.worst.iter().map(|call| {
        let place = format!("#at-{}-{}-{}", call.thread, call.at_ns, call.duration_ns);
        vec![
            Cell::Words(function_name(analysis, call.function)),
            Cell::figure(call.duration_ns, duration_ns),
            Cell::Link(moment(call.at_ns), place),
            Cell::Words(thread_name(analysis, call.thread)),
            Cell::words(&call.cause),
        ]
    });
    table::html(out, &Table::of(columns.into(), rows));
    out.push_str("</details>\n");
}

fn function_name(analysis: &Analysis, index: u32) -> String {
    let row = usize::try_from(index).ok().and_then(|at| analysis.functions.get(at));
    row.map_or_else(|| "?".to_owned(), |row| name(&row.name))
}

fn thread_name(analysis: &Analysis, index: u32) -> String {
    let row = usize::try_from(index).ok().and_then(|at| analysis.threads.get(at));
    row.map_or_else(|| format!("thread {index}"), |row| name(&row.name))
}

fn flame(out: &mut String, analysis: &Analysis) {
    out.push_str("<section>\n<h2 id=\"flames\">Flame graph</h2>\n");
    if analysis.contexts.is_empty() {
        out.push_str("<p class=\"gap\">The trace has no calls.</p>\n</section>\n");
        return;
    }
    let left_out = analysis.contexts.len().saturating_sub(PAGE_CONTEXTS_MAX);
    let missing = match left_out {
        0 => String::new(),
        left_out => format!(" The {} narrowest contexts are left out.", count(left_out as u64)),
    };
    put!(
        out,
        "<p class=\"quiet\">Outermost calls on top; width is self time of a call and of all that it calls, over all threads. \
         Click or Enter zooms, arrows walk, Escape goes back out, / searches.{missing}</p>\n"
    );
    legend(out, analysis);
    let measures = [
        ("raw", "raw"),
        ("corrected", "corrected for the tracer"),
        ("productive", "corrected, without empty polls"),
    ];
    out.push_str("<div class=\"controls\" role=\"group\" aria-label=\"Flame graph\"><fieldset aria-label=\"Time shown\">");
    for (value, words) in measures {
        let checked = if value == "corrected" { " checked" } else { "" };
        put!(
            out,
            "<label><input type=\"radio\" name=\"measure\" value=\"{value}\"{checked}/> {words}</label>"
        );
    }
    put!(
        out,
        "</fieldset><button type=\"button\" id=\"flame-out\">Zoom out</button><button type=\"button\" id=\"flame-all\">All</button>\
         <label>Search <input type=\"search\" id=\"flame-search\" placeholder=\"function\" autocomplete=\"off\"/></label>\
         <span id=\"flame-found\" class=\"quiet\" aria-live=\"polite\"></span></div>\n\
         <output class=\"reading\" id=\"flame-reading\" aria-live=\"polite\">Point at a frame, or give the graph the focus and use the arrow \
         keys: its figures are read out here.</output>\n\
         <canvas id=\"flame\" tabindex=\"0\" role=\"img\" aria-label=\"Flame graph; arrow keys walk through it and read it out\"></canvas>\n\
         {NO_SCRIPT}</section>\n"
    );
}

fn method(out: &mut String, analysis: &Analysis) {
    put!(
        out,
        "<section>\n<h2 id=\"method\">Method</h2>\n<ul>\n\
         <li>Times count from {}the first event; they are wall time of the thread, so a stretch without an event can be the \
         function, the scheduler, or the host.</li>\n\
         <li>Self time excludes callees; total time includes them and counts recursion once. Corrected: less the tracer's cost \
         per call, never below 0.</li>\n\
         <li>A call is cut when events are missing inside it, when an exit further out ended it, or when the trace ends in it. Cut calls \
         count in totals, not in percentiles. Percentiles are given from enough calls on, to 3 %.</li>\n\
         <li>Layers are known by name, by the rules of the producer. Empty polls are a layer of their own, with all they called.</li>\n\
         <li>Units: 1 \u{b5}s = 1000 ns; \u{201c}per packet\u{201d} is per packet received.</li>\n</ul>\n</section>\n",
        date(analysis.coverage.span.start_ns).map_or_else(String::new, |date| {
            format!("{date}.{:09} UTC, ", analysis.coverage.span.start_ns % 1_000_000_000)
        })
    );
}

fn optional<T>(value: Option<T>, shown: impl Fn(T) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), shown)
}

/// The layers of functions and time lines, in their order.
fn is_present(analysis: &Analysis, layer: Layer) -> bool {
    analysis.functions.iter().any(|row| row.layer == layer)
        || analysis.layers.iter().any(|row| row.layer == layer && row.self_ns > 0)
        || analysis
            .time_lines
            .iter()
            .flat_map(|line| &line.buckets)
            .any(|bucket| bucket.shares.get(layer.index()).is_some_and(|&share| share > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use laneway_trace::result::{ContextRow, FunctionRow};
    use serde_json::Value;

    fn data_of(page: &str) -> Value {
        let (_, rest) = page.split_once("id=\"trace\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        serde_json::from_str(json).expect("the data of the page is JSON")
    }

    #[test]
    fn hostile_names_stay_text() {
        let page = page(&example::analysis());
        assert!(!page.contains("<b>\"x\""), "a name became markup");
        assert_eq!(page.matches("</script>").count(), 2, "a name ended a script");
        let data = data_of(&page);
        let names = data["functions"].as_array().unwrap();
        assert!(names.iter().any(|row| row[0].as_str().unwrap().starts_with("</script><b>")));
        assert!(!page.contains('\u{202e}'), "a name turns the direction of writing");
    }

    #[test]
    fn a_long_name_keeps_its_begin_and_its_end() {
        let long = format!("map<{}>::find", "char, ".repeat(100));
        let shown = name(&long);
        assert_eq!(shown.chars().count(), PAGE_NAME_CHARS_MAX);
        assert!(shown.starts_with("map<char") && shown.ends_with(">::find"), "{shown}");
        assert_eq!(name("short"), "short");
    }

    #[test]
    fn a_moment_soon_after_1970_is_no_date() {
        assert_eq!(date(1_000), None);
        assert_eq!(date(example::ORIGIN_NS).as_deref(), Some("2026-11-21 07:55:26"));
        let mut analysis = example::analysis();
        analysis.coverage.span.start_ns = 1_000;
        assert!(!page(&analysis).contains("1970"));
    }

    #[test]
    fn of_many_busy_threads_only_the_busiest_stand_open() {
        let mut analysis = example::analysis();
        let line = analysis.time_lines[0].clone();
        analysis.time_lines = (0..64).map(|thread| TimeLine { thread, ..line.clone() }).collect();
        let thread = analysis.threads[0].clone();
        analysis.threads.resize(64, thread);
        analysis.coverage.events = 1;
        let page = page(&analysis);
        let (open, folded) = page.split_once("<summary>Threads with fewer events: 52").unwrap();
        assert_eq!(open.matches("<canvas id=\"lane-").count(), LANES_OPEN_MAX);
        assert_eq!(folded.matches("<canvas id=\"lane-").count(), 64 - LANES_OPEN_MAX);
    }

    #[test]
    fn the_page_asks_the_network_for_nothing() {
        let page = page(&example::analysis());
        assert!(page.contains("default-src 'none'"));
        for word in [" src=", "@import", "url(", "fetch(", "XMLHttpRequest", "import("] {
            assert!(!page.contains(word), "{word}");
        }
        let addresses: Vec<_> =
            page.match_indices("http").map(|(at, _)| &page[at..at + 30]).collect();
        let harmless = |text: &&&str| text.starts_with("http-equiv") || text.contains("www.w3.org");
        assert_eq!(addresses.iter().filter(harmless).count(), addresses.len(), "{addresses:?}");
    }

    #[test]
    fn coverage_comes_before_findings_and_findings_before_advice() {
        let page = page(&example::analysis());
        let at = |id: &str| page.find(&format!("<h2 id=\"{id}\">")).expect(id);
        assert!(at("coverage") < at("findings") && at("findings") < at("advice"));
        assert!(page.contains("Incomplete.") && page.contains("the trace has no kernel events"));
        assert!(page.contains("Not given: no refill was seen"));
    }

    #[test]
    fn the_account_is_a_bar_of_all_the_time_and_causes_stand_before_detectors() {
        let page = page(&example::analysis());
        let at = |id: &str| page.find(&format!("<h2 id=\"{id}\">")).expect(id);
        assert!(at("coverage") < at("causes") && at("causes") < at("account"));
        assert!(at("account") < at("findings"));
        let (_, bar) = page.split_once("<div class=\"stack\"").unwrap();
        let (bar, _) = bar.split_once("</div>").unwrap();
        let widths = bar.split("width:").skip(1).map(|rest| {
            let (width, _) = rest.split_once('%').unwrap();
            width.parse::<f64>().unwrap()
        });
        assert!((widths.sum::<f64>() - 100.0).abs() < 0.01, "{bar}");
        assert!(page.contains("packets lost") && page.contains("confidence high"));
        let mut healthy = example::analysis();
        healthy.causes.clear();
        healthy.losses.known = true;
        healthy.losses.rows.clear();
        let page = super::page(&healthy);
        assert!(
            page.contains("No worker is known to lose 1 %") && page.contains("No packet was lost")
        );
    }

    #[test]
    fn what_a_trace_does_not_show_is_not_reported_as_absent() {
        let mut blind = example::analysis();
        blind.causes.clear();
        blind.accounts.clear();
        blind.losses.known = false;
        blind.losses.rows.clear();
        let page = page(&blind);
        assert!(page.contains("No cause can be given") && page.contains("cannot be known"));
        assert!(!page.contains("No packet was lost") && !page.contains("No worker is known"));
        assert!(!page.contains("id=\"account\""));
    }

    #[test]
    fn a_hole_has_a_place_a_length_and_a_size() {
        let page = page(&example::analysis());
        assert!(page.contains("href=\"#at-0-600000000-50000000\""));
        assert!(page.contains("events of dpdk-worker1"));
        let holes = &data_of(&page)["holes"];
        assert_eq!(holes[0], serde_json::json!([600_000_000, 50_000_000, 0, 1_234]));
        let began = data_of(&page)["began"][0].as_u64();
        assert_eq!(began, Some(example::ORIGIN_NS / 1_000_000_000));
    }

    #[test]
    fn evidence_links_lead_into_the_time_chart() {
        let page = page(&example::analysis());
        assert!(page.contains("href=\"#at-0-300000000-20000000\""));
        let marks = &data_of(&page)["marks"];
        assert_eq!(marks[0]["at"], 300_000_000);
        assert_eq!(marks[0]["finding"], "D1");
    }

    #[test]
    fn a_trace_of_any_size_gives_a_page_of_a_few_megabytes() {
        const PAGE_BYTES_MAX: usize = 6_000_000;
        let mut analysis = example::analysis();
        let function = analysis.functions[2].clone();
        analysis.functions = (0..8_192)
            .map(|at| FunctionRow {
                name: format!("function_with_a_name_{at}"),
                ..function.clone()
            })
            .collect();
        let row = analysis.contexts[2].clone();
        analysis.contexts = (0..32_768u32)
            .map(|at| ContextRow {
                parent: at.checked_sub(1).map(|above| above / 3),
                function: at % 8_192,
                self_ns: 1_000_000_007,
                self_corrected_ns: 900_000_001.5,
                ..row.clone()
            })
            .collect();
        let line = analysis.time_lines[0].clone();
        analysis.time_lines = (0..64)
            .map(|thread| {
                let mut line = TimeLine { thread, ..line.clone() };
                let bucket = line.buckets[7].clone();
                line.buckets.resize(2_048, bucket);
                line
            })
            .collect();
        let thread = analysis.threads[0].clone();
        analysis.threads.resize(64, thread);
        let size = page(&analysis).len();
        assert!(size < PAGE_BYTES_MAX, "{size} bytes");
    }
}
