//! The tables of the page: functions with their durations, polls and sends, pools, threads.
//!
//! Every figure is one of the analysis; a dash stands for what the trace does not carry.

use super::{NO_SCRIPT, PAGE_FUNCTIONS_MAX, drawing, name, shortened, thread_name};
use crate::figure::{duration_ns, moment};
use laneway_page::document::gap;
use laneway_page::markup::{escape, put};
use laneway_page::number::{ABSENT, count, duration, figure, percent};
use laneway_page::table::{self, Cell, Table, column};
use laneway_trace::result::{Analysis, FunctionRow, PollRow};

/// Polls rows with a histogram of their own.
const POLL_DRAWINGS_MAX: usize = 32;
/// Letters of a name in the choice of a function.
const OPTION_CHARS_MAX: usize = 90;

/// A column of the functions table.
struct Column {
    head: &'static str,
    unit: &'static str,
    /// What sorts, and how it is shown; nothing where it is not known.
    cell: fn(&FunctionRow) -> Option<(f64, String)>,
}

impl Column {
    const fn new(
        head: &'static str,
        unit: &'static str,
        cell: fn(&FunctionRow) -> Option<(f64, String)>,
    ) -> Column {
        Column { head, unit, cell }
    }
}

/// Between a function's layer and its longest call.
const COLUMNS: [Column; 11] = [
    Column::new("calls", "", |row| Some((row.calls as f64, count(row.calls)))),
    Column::new("calls", "per packet", |row| row.calls_per_packet.map(|n| (n, figure(n)))),
    Column::new("self", "corrected", |row| {
        Some((row.self_corrected_ns, duration(row.self_corrected_ns)))
    }),
    Column::new("share", "corrected self", |row| {
        Some((row.share_corrected, percent(row.share_corrected)))
    }),
    Column::new("self", "raw", |row| Some((row.self_ns as f64, duration_ns(row.self_ns)))),
    Column::new("total", "corrected", |row| {
        Some((row.total_corrected_ns, duration(row.total_corrected_ns)))
    }),
    Column::new("total", "raw", |row| Some((row.total_ns as f64, duration_ns(row.total_ns)))),
    Column::new("mean", "raw", |row| row.durations.avg_ns.map(|ns| (ns, duration(ns)))),
    Column::new("p50", "raw", |row| row.durations.p50_ns.map(|ns| (ns as f64, duration_ns(ns)))),
    Column::new("p99", "raw", |row| row.durations.p99_ns.map(|ns| (ns as f64, duration_ns(ns)))),
    Column::new("p99.9", "raw", |row| row.durations.p999_ns.map(|ns| (ns as f64, duration_ns(ns)))),
];

pub(super) fn functions(out: &mut String, analysis: &Analysis) {
    let shown = analysis.functions.len().min(PAGE_FUNCTIONS_MAX);
    let total = analysis.functions.len();
    put!(
        out,
        "<section>\n<h2 id=\"functions\">Functions</h2>\n<p class=\"quiet\">By corrected self time. Where the tracer's cost is more than \
         half of a function's time, it has no rank and nothing is concluded from it.{} A dash is a figure that \
         the trace does not carry: percentiles need enough calls.</p>\n\
         <div class=\"controls\"><label>Filter <input type=\"search\" id=\"filter\" placeholder=\"function or layer\" \
         autocomplete=\"off\"/></label><span id=\"filter-count\" class=\"quiet\" aria-live=\"polite\"></span></div>\n\
         <div class=\"scroll tall\" tabindex=\"0\">\n<table class=\"sortable\" id=\"functions-table\">\n<thead><tr>\
         <th scope=\"col\">function</th><th scope=\"col\">layer</th>",
        if shown < total {
            format!(
                " The first {shown} of {}; all are in functions.csv (<code>--csv DIR</code>).",
                count(total as u64)
            )
        } else {
            String::new()
        }
    );
    for column in &COLUMNS {
        put!(
            out,
            "<th scope=\"col\" class=\"number\">{}<span class=\"unit\">{}</span></th>",
            column.head,
            column.unit
        );
    }
    out.push_str("<th scope=\"col\" class=\"number\">longest<span class=\"unit\">raw</span></th></tr></thead>\n<tbody>\n");
    for (at, row) in analysis.functions.iter().take(shown).enumerate() {
        function_row(out, at, row);
    }
    out.push_str("</tbody>\n</table>\n</div>\n</section>\n");
}

/// One row of that table; `at` is its number, by which the page finds its durations.
fn function_row(out: &mut String, at: usize, row: &FunctionRow) {
    let class = if row.dominated { " class=\"unranked\"" } else { "" };
    put!(out, "<tr{class}><th scope=\"row\">");
    let shown_name = name(&row.name);
    if row.histogram.is_empty() {
        put!(out, "{}", escape(&shown_name));
    } else {
        put!(
            out,
            "<button type=\"button\" class=\"name\" data-function=\"{at}\" title=\"Show its durations\">{}</button>",
            escape(&shown_name)
        );
    }
    let tags = [
        (row.dominated, "the tracer's cost"),
        (row.asynchronous, "asynchronous"),
        (row.cut > 0, "some calls cut"),
    ];
    for (_, tag) in tags.iter().filter(|(is_so, _)| *is_so) {
        put!(out, " <span class=\"tag\">{tag}</span>");
    }
    put!(out, "</th><td>{}</td>", row.layer.name());
    for column in &COLUMNS {
        match (column.cell)(row) {
            Some((value, words)) => {
                put!(out, "<td class=\"number\" data-value=\"{value}\">{words}</td>");
            }
            None => put!(out, "<td class=\"absent\">{ABSENT}</td>"),
        }
    }
    match row.durations.max {
        Some(max) => put!(
            out,
            "<td class=\"number\" data-value=\"{}\"><a href=\"#at-{}-{}-{}\">{}</a></td>",
            max.duration_ns,
            max.thread,
            max.at_ns,
            max.duration_ns,
            duration_ns(max.duration_ns)
        ),
        None => put!(out, "<td class=\"absent\">{ABSENT}</td>"),
    }
    out.push_str("</tr>\n");
}

pub(super) fn durations(out: &mut String, analysis: &Analysis) {
    out.push_str("<section>\n<h2 id=\"durations\">Durations of a function</h2>\n");
    let rows: Vec<(usize, &FunctionRow)> = analysis
        .functions
        .iter()
        .take(PAGE_FUNCTIONS_MAX)
        .enumerate()
        .filter(|(_, row)| !row.histogram.is_empty())
        .collect();
    if rows.is_empty() {
        out.push_str("<p class=\"gap\">No call was seen whole.</p>\n</section>\n");
        return;
    }
    out.push_str("<div class=\"controls\"><label>Function <select id=\"histogram-of\">");
    for (at, row) in rows {
        let short = shortened(&row.name, OPTION_CHARS_MAX);
        put!(out, "<option value=\"{at}\">{}</option>", escape(&short));
    }
    put!(
        out,
        "</select></label></div>\n<div id=\"histogram\"></div>\n<p class=\"quiet\" id=\"histogram-reading\" aria-live=\"polite\"></p>\n\
         {NO_SCRIPT}</section>\n"
    );
}

pub(super) fn polls(out: &mut String, analysis: &Analysis) {
    out.push_str("<section>\n<h2 id=\"polls\">Polls and sends</h2>\n");
    if analysis.polls.is_empty() {
        gap(out, "The trace tells of no polls.");
    } else {
        out.push_str(
            "<p class=\"quiet\">An empty poll is idle capacity, not a fault: it is waste only where packets were lost or queued \
             meanwhile.</p>\n",
        );
        table::html(out, &polls_table(analysis));
        poll_drawings(out, analysis);
    }
    if !analysis.sends.is_empty() {
        out.push_str("<h3>Sends</h3>\n");
        table::html(out, &sends_table(analysis));
    }
    out.push_str("</section>\n");
}

fn polls_table(analysis: &Analysis) -> Table {
    let columns = vec![
        column("queue", "", ""),
        column("thread", "", ""),
        column("polls", "", ""),
        column("empty", "", "Polls that found nothing."),
        column("empty", "of all", ""),
        column("full", "", "Polls that found as many packets as they asked for."),
        column("packets", "", ""),
        column("packets", "per poll that found any", ""),
        column("empty poll", "mean", ""),
        column("polls that found any", "their time, per packet", ""),
    ];
    let rows = analysis.polls.iter().map(|row| {
        let per = |ns: u64, n: u64| (n > 0 && ns > 0).then(|| ns as f64 / n as f64);
        vec![
            Cell::Words(queue(row.port, row.queue)),
            Cell::Words(thread_name(analysis, row.thread)),
            Cell::figure(row.polls, count),
            Cell::figure(row.empty, count),
            Cell::figure(row.empty as f64 / (row.polls as f64).max(1.0), percent),
            Cell::figure(row.full, count),
            Cell::figure(row.packets, count),
            Cell::maybe(row.packets_per_productive, figure),
            Cell::maybe(per(row.empty_ns, row.empty), duration),
            Cell::maybe(per(row.productive_ns, row.packets), duration),
        ]
    });
    Table::of(columns, rows)
}

/// How many packets the polls of each queue found.
fn poll_drawings(out: &mut String, analysis: &Analysis) {
    let drawn: Vec<&PollRow> = analysis.polls.iter().filter(|row| !row.sizes.is_empty()).collect();
    out.push_str("<div class=\"panels\">\n");
    for row in drawn.iter().take(POLL_DRAWINGS_MAX) {
        let of = queue(row.port, row.queue);
        let title = format!("{of}, {}: packets per poll", thread_name(analysis, row.thread));
        panel(out, &title, &drawing::poll_sizes(row, &title));
    }
    out.push_str("</div>\n");
    if drawn.len() > POLL_DRAWINGS_MAX {
        put!(
            out,
            "<p class=\"quiet\">{} more queues are not drawn.</p>\n",
            drawn.len() - POLL_DRAWINGS_MAX
        );
    }
}

/// A drawing with its title.
fn panel(out: &mut String, title: &str, svg: &str) {
    put!(out, "<figure><figcaption>{}</figcaption>{svg}</figure>\n", escape(title));
}

fn sends_table(analysis: &Analysis) -> Table {
    let columns = vec![
        column("queue", "", ""),
        column("thread", "", ""),
        column("calls", "", ""),
        column("handed over", "", "Packets that the calls were given."),
        column("taken", "", "Packets that the device took."),
        column("calls that took fewer", "", ""),
        column("the first", "", "When a call first took fewer than it was given."),
    ];
    let rows = analysis.sends.iter().map(|row| {
        vec![
            Cell::Words(queue(Some(row.port), Some(row.queue))),
            Cell::Words(thread_name(analysis, row.thread)),
            Cell::figure(row.calls, count),
            Cell::figure(row.asked, count),
            Cell::figure(row.sent, count),
            Cell::figure(row.short, count),
            first_at(row.first_short_ns, i64::from(row.thread)),
        ]
    });
    Table::of(columns, rows)
}

/// A place in the time chart, if there is one.
fn first_at(at_ns: Option<u64>, thread: i64) -> Cell {
    match at_ns {
        Some(at_ns) => Cell::Link(moment(at_ns), format!("#at-{thread}-{at_ns}-0")),
        None => Cell::Absent(String::new()),
    }
}

fn queue(port: Option<u16>, queue: Option<u16>) -> String {
    match (port, queue) {
        (Some(port), Some(queue)) => format!("port {port} queue {queue}"),
        (Some(port), None) => format!("port {port}"),
        _ => "all ports".to_owned(),
    }
}

pub(super) fn pools(out: &mut String, analysis: &Analysis) {
    if analysis.pools.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2 id=\"pools\">Buffer pools</h2>\n");
    let columns = vec![
        column("pool", "", ""),
        column(
            "taken",
            "",
            "Buffers asked for: requests that failed are in it where the trace does not show which.",
        ),
        column("given back", "", ""),
        column("in use", "most, since the start", "Where one thread alone takes and gives."),
        column("refills", "of the cache", ""),
        column("buffers", "between refills", ""),
        column("drains", "", "Buffers went from the cache back to the pool."),
        column("failures", "", "No buffer was left, where the trace shows it."),
        column("the first", "", "When no buffer was left for the first time."),
    ];
    let rows = analysis.pools.iter().map(|row| {
        vec![
            Cell::Words(format!("pool {}", row.pool)),
            Cell::figure(row.taken, count),
            Cell::figure(row.given, count),
            Cell::maybe(row.in_use_max, |n| n.to_string()),
            Cell::figure(row.refills, count),
            Cell::maybe(row.refill_interval, figure),
            Cell::figure(row.drains, count),
            Cell::maybe((row.failures > 0).then_some(row.failures), count),
            first_at(row.first_failure_ns, -1),
        ]
    });
    table::html(out, &Table::of(columns, rows));
    out.push_str("<div class=\"panels\">\n");
    for row in analysis.pools.iter().filter(|row| row.in_use.len() > 1) {
        let title = format!("Pool {}: buffers in use, counted from the first event", row.pool);
        panel(out, &title, &drawing::in_use(row, &title));
    }
    out.push_str("</div>\n</section>\n");
}

/// How far CPUs were used by the threads of the trace.
pub(super) fn cores(out: &mut String, analysis: &Analysis) {
    if analysis.cores.is_empty() {
        return;
    }
    out.push_str(
        "<section>\n<h2 id=\"cores\">CPUs</h2>\n<p class=\"quiet\">Time of the threads of this trace on each CPU; other threads of the \
         machine are not in it.",
    );
    if analysis.coverage.kernel_events == 0 {
        out.push_str(" Without kernel events a thread counts as on its CPU from its first event to its last.");
    }
    out.push_str("</p>\n");
    let columns = vec![
        column("CPU", "", ""),
        column("used", "", ""),
        column("used", "of the span", ""),
        column("in polls that found nothing", "of the span", ""),
        column("threads", "", ""),
    ];
    let span_ns = analysis.coverage.span.length_ns.max(1) as f64;
    let rows = analysis.cores.iter().map(|row| {
        let threads = row.threads.iter().map(|&[thread, ns]| {
            let thread = thread_name(analysis, u32::try_from(thread).unwrap_or(u32::MAX));
            format!("{thread} {}", duration_ns(ns))
        });
        vec![
            Cell::Words(row.cpu.map_or_else(|| "unknown".to_owned(), |cpu| format!("CPU {cpu}"))),
            Cell::figure(row.used_ns, duration_ns),
            Cell::figure(row.share, percent),
            Cell::figure(row.idle_ns as f64 / span_ns, percent),
            Cell::Words(threads.collect::<Vec<_>>().join(", ")),
        ]
    });
    table::html(out, &Table::of(columns, rows));
    out.push_str("</section>\n");
}

pub(super) fn threads(out: &mut String, analysis: &Analysis) {
    out.push_str("<section>\n<h2 id=\"threads\">Threads</h2>\n");
    let columns = vec![
        column("thread", "", ""),
        column("process/thread", "", ""),
        column("CPUs", "", ""),
        column("events", "", ""),
        column("packets", "", ""),
        column("a packet in it", "half, poll to next send", ""),
        column("a packet in it", "99 %", ""),
        column("traced", "", "From the first event of the thread to its last."),
        column("idle polls", "", "Time in polls that found nothing."),
        column("preempted", "", ""),
        column("waiting", "", ""),
        column("interrupts", "", ""),
        column("system calls", "", ""),
    ];
    let has_kernel = analysis.coverage.kernel_events > 0;
    let kernel = |ns: u64| Cell::maybe(has_kernel.then_some(ns), duration_ns);
    let rows = analysis.threads.iter().map(|row| {
        let cpus: Vec<String> = row.cpus.iter().map(u32::to_string).collect();
        vec![
            Cell::Words(name(&row.name)),
            Cell::Words(format!("{}/{}", row.pid, row.tid)),
            Cell::Words(if cpus.is_empty() { ABSENT.to_owned() } else { cpus.join(", ") }),
            Cell::figure(row.events, count),
            Cell::figure(row.packets, count),
            Cell::maybe(row.in_worker.and_then(|times| times.p50_ns), duration_ns),
            Cell::maybe(row.in_worker.and_then(|times| times.p99_ns), duration_ns),
            Cell::figure(row.traced_ns, duration_ns),
            Cell::figure(row.idle_ns, duration_ns),
            kernel(row.preempted_ns),
            kernel(row.waiting_ns),
            kernel(row.interrupt_ns),
            kernel(row.syscall_ns),
        ]
    });
    table::html(out, &Table::of(columns, rows));
    if !has_kernel {
        out.push_str(
            "<p class=\"quiet\">Time off the CPU, interrupts and system calls are not known: the trace has no kernel events.</p>\n",
        );
    }
    out.push_str("</section>\n");
}
