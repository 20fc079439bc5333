//! Where the time of the workers went, as bars that add up to all of it, and what is wrong, first things first.

use super::{optional, thread_name};
use laneway_page::markup::{escape, put};
use laneway_page::number::{count, duration, percent};
use laneway_page::table::{self, Cell, Table, column};
use laneway_trace::result::{Account, AccountPart, Analysis, Cause, Part};

/// Workers whose account is drawn; more are counted.
const ACCOUNTS_SHOWN: usize = 8;
/// A part narrower than this has no words in the bar, only in the table below it.
const WORDS_SHARE_MIN: f64 = 0.09;

/// The causes, ranked.
pub(super) fn causes(out: &mut String, analysis: &Analysis) {
    out.push_str("<section>\n<h2 id=\"causes\">What is wrong</h2>\n");
    if !analysis.causes.is_empty() {
        out.push_str("<ol class=\"causes\">\n");
        for cause in &analysis.causes {
            one_cause(out, analysis, cause);
        }
        out.push_str("</ol>\n");
    }
    for sentence in known(analysis) {
        put!(out, "<p class=\"quiet\">{sentence}</p>\n");
    }
    out.push_str("</section>\n");
}

/// What is known where no cause is named, and of losses. What the trace cannot show is never stated to be absent.
fn known(analysis: &Analysis) -> impl Iterator<Item = &'static str> {
    let causes = match (analysis.causes.is_empty(), analysis.accounts.is_empty()) {
        (true, false) => Some("No worker is known to lose 1 % of its time."),
        (true, true) => Some("No cause can be given: the work of no thread is in this trace."),
        (false, _) => None,
    };
    let losses = match (analysis.losses.known, analysis.losses.rows.is_empty()) {
        (false, _) => Some("Whether packets were lost cannot be known: the trace counts none."),
        (true, true) => Some("No packet was lost, by the counters of lane and app."),
        (true, false) => None,
    };
    causes.into_iter().chain(losses)
}

fn one_cause(out: &mut String, analysis: &Analysis, cause: &Cause) {
    put!(out, "<li><b>{}</b> ", escape(&cause.title()));
    let mut facts = vec![format!("{} of the worker's time", percent(cause.share))];
    if let (Some(low), Some(high)) = (cause.low, cause.high) {
        facts.push(format!("95 %: {} to {}", percent(low), percent(high)));
    }
    if let Some(lost) = cause.lost_packets {
        facts.push(format!("{} packets lost", count(lost)));
    }
    if let Some(period) = cause.period_ns {
        facts.push(format!("every {}", duration(period as f64)));
    }
    facts.push(optional(cause.thread, |thread| thread_name(analysis, thread)));
    facts.push(format!("confidence {}", cause.confidence.name()));
    put!(
        out,
        "<span class=\"quiet\">{}</span><p>{}</p></li>\n",
        escape(&facts.join("; ")),
        escape(&cause.sentence)
    );
}

/// The accounts, a bar and a table for each worker.
pub(super) fn accounts(out: &mut String, analysis: &Analysis) {
    if analysis.accounts.is_empty() {
        return;
    }
    out.push_str(
        "<section>\n<h2 id=\"account\">Where the time of the workers went</h2>\n<p class=\"quiet\">Every nanosecond from the first to \
         the last event of a worker is in one part; the parts add up to all of it.</p>\n",
    );
    for account in analysis.accounts.iter().take(ACCOUNTS_SHOWN) {
        one_account(out, account);
    }
    let more = analysis.accounts.len().saturating_sub(ACCOUNTS_SHOWN);
    if more > 0 {
        put!(out, "<p class=\"quiet\">{more} more workers are in the result as JSON.</p>\n");
    }
    out.push_str("</section>\n");
}

fn one_account(out: &mut String, account: &Account) {
    let name = super::name(&account.name);
    put!(
        out,
        "<div class=\"account\"><h3>{}</h3><p class=\"quiet\">{}, {} packets</p>\n<div class=\"stack\" role=\"img\" aria-label=\"{}\">",
        escape(&name),
        duration(account.span_ns as f64),
        count(account.packets),
        escape(&spoken(account))
    );
    for part in &account.parts {
        let words = if part.share >= WORDS_SHARE_MIN { words(part) } else { String::new() };
        put!(
            out,
            "<span class=\"p{}\" style=\"width:{:.3}%\" title=\"{}: {}\">{}</span>",
            place(part.part),
            100.0 * part.share.clamp(0.0, 1.0),
            escape(&words_of(part)),
            percent(part.share),
            escape(&words)
        );
    }
    out.push_str("</div>\n");
    let columns = vec![
        column("part", "", ""),
        column("which", "", ""),
        column("time", "", ""),
        column("share", "", ""),
        column("give or take", "", "What the tracer's cost and its clock leave open."),
    ];
    let rows = account.parts.iter().map(|part| {
        vec![
            Cell::Key("p", place(part.part), part.part.name().to_owned()),
            Cell::Words(super::name(&part.detail)),
            Cell::figure(part.ns as f64, duration),
            Cell::figure(part.share, percent),
            Cell::figure(part.uncertainty_ns as f64, duration),
        ]
    });
    table::html(out, &Table::of(columns, rows));
    out.push_str("</div>\n");
}

fn words(part: &AccountPart) -> String {
    format!("{} {}", words_of(part), percent(part.share))
}

fn words_of(part: &AccountPart) -> String {
    match part.detail.as_str() {
        "" => part.part.name().to_owned(),
        detail => format!("{}: {}", part.part.name(), super::name(detail)),
    }
}

/// The bar for readers who hear it.
fn spoken(account: &Account) -> String {
    account.parts.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// The number of a part's colour.
const fn place(part: Part) -> usize {
    part as usize
}
