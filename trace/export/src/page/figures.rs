//! The tables of the page: functions with their durations, polls and sends, pools, threads.
//!
//! Every figure is one of the analysis; a dash stands for what the trace does not carry.

use super::{NO_SCRIPT, PAGE_FUNCTIONS_MAX, cell, drawing, name, shortened, thread_name};
use crate::figure::{duration_ns, moment};
use laneway_page::markup::{escape, put};
use laneway_page::number::{ABSENT, count, duration, figure, percent};
use laneway_trace::result::{Analysis, FunctionRow, InWorker, PollRow};

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

pub(super) fn functions(out: &mut String, analysis: &Analysis) {
    let time = |ns: u64| Some((ns as f64, duration_ns(ns)));
    const fn column(
        head: &'static str,
        unit: &'static str,
        cell: fn(&FunctionRow) -> Option<(f64, String)>,
    ) -> Column {
        Column { head, unit, cell }
    }
    let columns = [
        column("calls", "", |row| Some((row.calls as f64, count(row.calls)))),
        column("calls", "per packet", |row| row.calls_per_packet.map(|n| (n, figure(n)))),
        column("self", "corrected", |row| {
            Some((row.self_corrected_ns, duration(row.self_corrected_ns)))
        }),
        column("share", "corrected self", |row| {
            Some((row.share_corrected, percent(row.share_corrected)))
        }),
        column("self", "raw", |row| Some((row.self_ns as f64, duration_ns(row.self_ns)))),
        column("total", "corrected", |row| {
            Some((row.total_corrected_ns, duration(row.total_corrected_ns)))
        }),
        column("total", "raw", |row| Some((row.total_ns as f64, duration_ns(row.total_ns)))),
        column("mean", "raw", |row| row.durations.avg_ns.map(|ns| (ns, duration(ns)))),
        column("p50", "raw", |row| row.durations.p50_ns.map(|ns| (ns as f64, duration_ns(ns)))),
        column("p99", "raw", |row| row.durations.p99_ns.map(|ns| (ns as f64, duration_ns(ns)))),
        column("p99.9", "raw", |row| row.durations.p999_ns.map(|ns| (ns as f64, duration_ns(ns)))),
    ];
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
    for column in &columns {
        put!(
            out,
            "<th scope=\"col\" class=\"number\">{}<span class=\"unit\">{}</span></th>",
            column.head,
            column.unit
        );
    }
    out.push_str("<th scope=\"col\" class=\"number\">longest<span class=\"unit\">raw</span></th></tr></thead>\n<tbody>\n");
    for (at, row) in analysis.functions.iter().take(shown).enumerate() {
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
        for column in &columns {
            match (column.cell)(row) {
                Some((value, words)) => {
                    put!(out, "<td class=\"number\" data-value=\"{value}\">{words}</td>");
                }
                None => put!(out, "<td class=\"absent\">{ABSENT}</td>"),
            }
        }
        match row.durations.max.and_then(|max| time(max.duration_ns).map(|shown| (max, shown))) {
            Some((max, (value, words))) => put!(
                out,
                "<td class=\"number\" data-value=\"{value}\"><a href=\"#at-{}-{}-{}\">{words}</a></td>",
                max.thread,
                max.at_ns,
                max.duration_ns
            ),
            None => put!(out, "<td class=\"absent\">{ABSENT}</td>"),
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n</section>\n");
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
        out.push_str("<p class=\"gap\">The trace tells of no polls.</p>\n");
    } else {
        out.push_str(
            "<p class=\"quiet\">An empty poll is idle capacity, not a fault: it is waste only where packets were lost or queued \
             meanwhile.</p>\n<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr><th scope=\"col\">queue</th>\
             <th scope=\"col\">thread</th><th scope=\"col\" class=\"number\">polls</th><th scope=\"col\" class=\"number\">empty</th>\
             <th scope=\"col\" class=\"number\">full</th><th scope=\"col\" class=\"number\">packets</th>\
             <th scope=\"col\" class=\"number\">packets<span class=\"unit\">per poll that found any</span></th>\
             <th scope=\"col\" class=\"number\">empty poll<span class=\"unit\">mean</span></th>\
             <th scope=\"col\" class=\"number\">polls that found any<span class=\"unit\">their time, per packet</span></th></tr></thead>\n<tbody>\n",
        );
        for row in &analysis.polls {
            let per = |ns: u64, n: u64| (n > 0 && ns > 0).then(|| ns as f64 / n as f64);
            put!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{} ({})</td>\
                 <td class=\"number\">{}</td><td class=\"number\">{}</td>{}{}{}</tr>\n",
                queue(row.port, row.queue),
                escape(&thread_name(analysis, row.thread)),
                count(row.polls),
                count(row.empty),
                percent(row.empty as f64 / (row.polls as f64).max(1.0)),
                count(row.full),
                count(row.packets),
                cell(row.packets_per_productive, figure),
                cell(per(row.empty_ns, row.empty), duration),
                cell(per(row.productive_ns, row.packets), duration)
            );
        }
        out.push_str("</tbody>\n</table>\n</div>\n");
        let drawn: Vec<&PollRow> =
            analysis.polls.iter().filter(|row| !row.sizes.is_empty()).collect();
        out.push_str("<div class=\"panels\">\n");
        for row in drawn.iter().take(POLL_DRAWINGS_MAX) {
            let title = format!(
                "{}, {}: packets per poll",
                queue(row.port, row.queue),
                thread_name(analysis, row.thread)
            );
            put!(
                out,
                "<figure><figcaption>{}</figcaption>{}</figure>\n",
                escape(&title),
                drawing::poll_sizes(row, &title)
            );
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
    if !analysis.sends.is_empty() {
        out.push_str(
            "<h3>Sends</h3>\n<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr><th scope=\"col\">queue</th>\
             <th scope=\"col\">thread</th><th scope=\"col\" class=\"number\">calls</th><th scope=\"col\" class=\"number\">handed over</th>\
             <th scope=\"col\" class=\"number\">taken</th><th scope=\"col\" class=\"number\">calls that took fewer</th></tr></thead>\n<tbody>\n",
        );
        for row in &analysis.sends {
            put!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
                 <td class=\"number\">{}</td><td class=\"number\">{}{}</td></tr>\n",
                queue(Some(row.port), Some(row.queue)),
                escape(&thread_name(analysis, row.thread)),
                count(row.calls),
                count(row.asked),
                count(row.sent),
                count(row.short),
                first_at(row.first_short_ns, i64::from(row.thread))
            );
        }
        out.push_str("</tbody>\n</table>\n</div>\n");
    }
    out.push_str("</section>\n");
}

fn first_at(at_ns: Option<u64>, thread: i64) -> String {
    at_ns.map_or_else(String::new, |at_ns| {
        format!(", first <a href=\"#at-{thread}-{at_ns}-0\">at {}</a>", moment(at_ns))
    })
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
    out.push_str(
        "<section>\n<h2 id=\"pools\">Buffer pools</h2>\n<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr>\
         <th scope=\"col\">pool</th><th scope=\"col\" class=\"number\">taken</th><th scope=\"col\" class=\"number\">given back</th>\
         <th scope=\"col\" class=\"number\">in use<span class=\"unit\">most, since the start</span></th>\
         <th scope=\"col\" class=\"number\">refills<span class=\"unit\">of the cache</span></th>\
         <th scope=\"col\" class=\"number\">buffers<span class=\"unit\">between refills</span></th>\
         <th scope=\"col\" class=\"number\">drains</th><th scope=\"col\" class=\"number\">failures</th></tr></thead>\n<tbody>\n",
    );
    for row in &analysis.pools {
        put!(
            out,
            "<tr><th scope=\"row\">pool {}</th><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td>{}<td class=\"number\">{}</td><td class=\"number\">{}{}</td></tr>\n",
            row.pool,
            count(row.taken),
            count(row.given),
            row.in_use_max,
            count(row.refills),
            cell(row.refill_interval, figure),
            count(row.drains),
            count(row.failures),
            first_at(row.first_failure_ns, -1)
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n<div class=\"panels\">\n");
    for row in analysis.pools.iter().filter(|row| row.in_use.len() > 1) {
        let title = format!("Pool {}: buffers in use, counted from the first event", row.pool);
        put!(
            out,
            "<figure><figcaption>{}</figcaption>{}</figure>\n",
            escape(&title),
            drawing::in_use(row, &title)
        );
    }
    out.push_str("</div>\n</section>\n");
}

/// Percentiles of the time of a packet in a worker.
fn in_worker(times: InWorker) -> String {
    let time = |ns: Option<u64>| ns.map_or_else(|| ABSENT.to_owned(), duration_ns);
    format!("{}, {}", time(times.p50_ns), time(times.p99_ns))
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
    out.push_str(
        "</p>\n<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr><th scope=\"col\">CPU</th>\
         <th scope=\"col\" class=\"number\">used</th><th scope=\"col\" class=\"number\">of the span</th>\
         <th scope=\"col\" class=\"number\">in polls that found nothing<span class=\"unit\">of the span</span></th>\
         <th scope=\"col\">threads</th></tr></thead>\n<tbody>\n",
    );
    let span_ns = analysis.coverage.span.length_ns.max(1) as f64;
    for row in &analysis.cores {
        let threads = row.threads.iter().map(|&[thread, ns]| {
            let thread = thread_name(analysis, u32::try_from(thread).unwrap_or(u32::MAX));
            format!("{} {}", escape(&thread), duration_ns(ns))
        });
        put!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td></tr>\n",
            row.cpu.map_or_else(|| "not told".to_owned(), |cpu| format!("CPU {cpu}")),
            duration_ns(row.used_ns),
            percent(row.share),
            percent(row.idle_ns as f64 / span_ns),
            threads.collect::<Vec<_>>().join(", ")
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n</section>\n");
}

pub(super) fn threads(out: &mut String, analysis: &Analysis) {
    out.push_str(
        "<section>\n<h2 id=\"threads\">Threads</h2>\n<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr>\
         <th scope=\"col\">thread</th><th scope=\"col\">process/thread</th><th scope=\"col\">CPUs</th>\
         <th scope=\"col\" class=\"number\">events</th><th scope=\"col\" class=\"number\">packets</th>\
         <th scope=\"col\" class=\"number\">a packet in it<span class=\"unit\">half, 99 %: poll to next send</span></th>\
         <th scope=\"col\" class=\"number\">traced</th><th scope=\"col\" class=\"number\">idle polls</th>\
         <th scope=\"col\" class=\"number\">preempted</th><th scope=\"col\" class=\"number\">waiting</th>\
         <th scope=\"col\" class=\"number\">interrupts</th><th scope=\"col\" class=\"number\">system calls</th></tr></thead>\n<tbody>\n",
    );
    let has_kernel = analysis.coverage.kernel_events > 0;
    let kernel = |ns: u64| cell(has_kernel.then_some(ns), duration_ns);
    for row in &analysis.threads {
        let cpus: Vec<String> = row.cpus.iter().map(u32::to_string).collect();
        put!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}/{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>{}{}{}{}</tr>\n",
            escape(&name(&row.name)),
            row.pid,
            row.tid,
            if cpus.is_empty() { ABSENT.to_owned() } else { cpus.join(", ") },
            count(row.events),
            count(row.packets),
            row.in_worker.map_or_else(|| ABSENT.to_owned(), in_worker),
            duration_ns(row.traced_ns),
            duration_ns(row.idle_ns),
            kernel(row.preempted_ns),
            kernel(row.waiting_ns),
            kernel(row.interrupt_ns),
            kernel(row.syscall_ns)
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    if !has_kernel {
        out.push_str(
            "<p class=\"quiet\">Time off the CPU, interrupts and system calls are not known: the trace has no kernel events.</p>\n",
        );
    }
    out.push_str("</section>\n");
}
