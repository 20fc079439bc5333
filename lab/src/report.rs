//! The report of a race, made from its result alone: one offline HTML page, a text for the
//! terminal, a Markdown summary.
//!
//! Assumes nothing about the result but its types: it may come from a file, so indexes may point
//! nowhere and strings may hold anything. Must always hold: the same result gives the same bytes;
//! every string is escaped; every figure has its unit; a figure that was not measured shows as a
//! dash with its reason; latencies of two scopes never share a table column or an axis; no
//! adjective but a verdict of the statistics stands beside a figure.
//!
//! What it does not do: it measures, judges and writes nothing, and reads no clock, so a report
//! made again years later is the same.
//!
//! The three forms share the phrases of `wording` and the tables of `table`; only the layout is
//! theirs.

mod account;
mod claims;
mod figures;
mod page;
mod pings;
mod plots;
mod summary;
mod table;
mod terminal;
mod why;
mod wording;

#[cfg(test)]
mod example;

#[cfg(test)]
pub(crate) use example::{pings as example_of_pings, race as example};
pub use figures::Figure;
pub use terminal::Style;

use crate::result::RaceResult;

/// The whole report as one HTML file that needs no network and no script.
pub fn html(result: &RaceResult) -> String {
    page::page(result)
}

/// The report for a terminal or a log: at most 100 columns, no control codes.
pub fn text(result: &RaceResult) -> String {
    terminal::report(result, Style::Plain)
}

/// The same in the given style; [`Style::Colour`] is for a terminal that shows ANSI colour.
pub fn styled_text(result: &RaceResult, style: Style) -> String {
    terminal::report(result, style)
}

/// The answer on one screen; what else there is, the whole report has.
pub fn screen(result: &RaceResult, style: Style) -> String {
    terminal::screen(result, style)
}

/// The claims of several races as one page for `docs/measurements`: each sentence with the figure then and the figure
/// now. Nothing is in it that is not in the results.
pub fn claims(results: &[RaceResult]) -> String {
    claims::page(results)
}

/// The figure that holds for each question of several races: the answer of the newest valid one.
pub fn figures(results: &[RaceResult]) -> Vec<Figure> {
    figures::figures(results)
}

/// The same as one page for `docs/measurements`, a table for each title.
pub fn figures_page(results: &[RaceResult]) -> String {
    figures::page(results)
}

/// The summary for `docs/measurements`.
pub fn markdown(result: &RaceResult) -> String {
    summary::summary(result)
}

#[cfg(test)]
mod tests {
    use super::example::{
        bare, empty, hostile, invalid, not_numbers, one_block, pings, race, single_point, traced,
    };
    use super::*;
    use laneway_page::number::plain;
    use std::io::Write;

    /// Elements that have no content and need no slash.
    const VOID: [&str; 2] = ["meta", "br"];

    #[test]
    fn the_answer_fits_its_columns_and_says_each_arm_once() {
        for (name, result) in variants() {
            let screen = screen(&result, Style::Plain);
            let widest = screen.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(widest <= 100, "{name}: {widest}\n{screen}");
        }
        let screen = screen(&race(), Style::Plain);
        for arm in ["packet:batch", "xdp"] {
            let lines = screen.lines().filter(|line| line.starts_with(&format!("  {arm}: ")));
            assert_eq!(lines.count(), 1, "{arm}\n{screen}");
        }
        assert!(screen.contains("times less CPU per record than packet"), "{screen}");
    }

    /// Every variant that a page must survive.
    fn variants() -> Vec<(&'static str, RaceResult)> {
        vec![
            ("race", race()),
            ("invalid", invalid()),
            ("single point", single_point()),
            ("one block", one_block()),
            ("bare", bare()),
            ("empty", empty()),
            ("not numbers", not_numbers()),
            ("hostile", hostile()),
            ("pings", pings()),
            ("traced", traced()),
        ]
    }

    /// Names of the open elements' tags in order, checked to balance; style and script skipped.
    fn check_balance(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = page;
        while let Some(start) = rest.find('<') {
            let tag = &rest[start + 1..];
            let end = tag.find('>').expect("every < begins a tag that ends");
            let (inside, after) = (&tag[..end], &tag[end + 1..]);
            assert!(!inside.contains('<'), "stray < before {inside:?}");
            assert_eq!(inside.matches('"').count() % 2, 0, "open quote in <{inside}>");
            rest = after;
            if inside.starts_with('!') || inside.ends_with('/') {
                continue;
            }
            if let Some(name) = inside.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "closing </{name}> where it is not open");
                continue;
            }
            let name = inside.split([' ', '\n']).next().unwrap_or_default();
            if VOID.contains(&name) {
                continue;
            }
            open.push(name);
            if name == "style" || name == "script" {
                let close = format!("</{name}>");
                rest = &rest[rest.find(&close).expect("raw text ends")..];
            }
        }
        assert!(open.is_empty(), "left open: {open:?}");
    }

    #[test]
    fn the_page_is_well_formed_for_every_kind_of_result() {
        for (name, result) in variants() {
            let page = html(&result);
            check_balance(&page);
            assert!(page.contains("<main>"), "{name}");
        }
    }

    #[test]
    fn what_is_no_number_is_never_shown_as_one() {
        let is_odd = |word: &str| matches!(word, "NaN" | "NaNG" | "inf" | "infinity");
        for (name, result) in variants() {
            for form in [html, text, markdown] {
                let report = form(&result);
                // The script of the page is the same for all and names the type.
                let report = report.split("<script>\n").next().unwrap_or_default();
                let odd = report.split(|c: char| !c.is_ascii_alphabetic()).find(|w| is_odd(w));
                assert_eq!(odd, None, "{name}");
            }
        }
    }

    #[test]
    fn an_arm_that_does_not_say_what_it_received_is_never_taken_for_one_that_does() {
        let mut result = race();
        let arm = 4;
        assert_eq!(result.arms[arm].name, "xdp");
        result.arms[arm].delivered_unknown = true;
        for summary in result.summaries.iter_mut().filter(|s| s.arm == arm) {
            (summary.ledger.delivered, summary.ledger.unknown) = (0, Some(summary.ledger.offered));
            summary.ledger.drops.clear();
            summary.ledger.balance();
            summary.records_per_s = None;
        }
        result.findings.retain(|f| f.arm != arm || f.metric == "CPU per record");
        let screen = screen(&result, Style::Plain).replace("\n      ", " ");
        let line = screen.lines().find(|line| line.starts_with("  [per offered] xdp: "));
        let line = line.expect("it has a line");
        assert!(
            line.contains("less CPU per offered packet (delivered: unknown) than packet"),
            "{line}"
        );
        assert!(!screen.contains("Least CPU per record: [per offered] xdp"), "{screen}");
        for form in [html, text, markdown] {
            let page = form(&result).replace('\\', "");
            assert!(page.matches("[per offered] xdp").count() > 3, "{page}");
            // The ledgers of three loads, each as much unknown as was offered.
            assert!(page.matches(" unknown").count() >= 3, "{page}");
        }
    }

    #[test]
    fn the_noise_floor_stands_beside_every_ratio() {
        let result = race();
        let judged = result.findings.iter().filter(|f| !result.arms[f.arm].is_noise_floor).count();
        assert_eq!(html(&result).matches("<span>A/A ").count(), judged);
        assert_eq!(text(&result).matches("  A/A ").count(), judged);
        let pair = result.findings.iter().filter(|f| result.arms[f.arm].is_noise_floor);
        for width in pair.filter_map(wording::half_width) {
            assert!(html(&result).contains(&format!("<span>A/A {width}</span>")), "{width}");
            assert!(text(&result).contains(&plain(&format!("  A/A {width}"))), "{width}");
        }
        let alone = single_point();
        assert!(html(&alone).contains("<span>A/A unknown</span>"));
        assert!(text(&alone).contains("noise floor is unknown"));
    }

    #[test]
    fn modes_asked_for_and_not_obtained_are_named_in_all_three_forms() {
        for form in [html, text, markdown] {
            let report = form(&race());
            assert!(report.contains("zero-copy (allowed by the spec)"), "{report}");
        }
    }

    #[test]
    fn the_page_refers_to_nothing_outside_itself() {
        let page = html(&race());
        for outside in ["http://", "https://", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn ids_are_unique_and_every_link_has_its_target() {
        let page = html(&race());
        let values = |key: &str| -> Vec<String> {
            let parts = page.split(key).skip(1);
            parts.filter_map(|part| Some(part.split('"').next()?.to_owned())).collect()
        };
        let ids = values(" id=\"");
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id), "{id} twice");
        }
        for target in values("href=\"#") {
            assert!(ids.contains(&target), "#{target} leads nowhere");
        }
    }

    #[test]
    fn hostile_strings_stay_text() {
        let result = hostile();
        let page = html(&result);
        assert!(!page.contains("<script>alert"), "markup from a string reached the page");
        assert!(!page.contains("onmouseover=\""), "an attribute from a string reached the page");
        assert!(page.contains("&#60;script&#62;alert"));
        for report in [text(&result), markdown(&result)] {
            let obeyed = |c: &char| c.is_control() && *c != '\n';
            assert_eq!(report.chars().find(obeyed), None);
            assert!(!report.contains('\u{202e}'));
        }
        // Inside a fence Markdown shows everything as it is; the fence must hold, that is all.
        let markdown = markdown(&result);
        assert_eq!(markdown.matches("```").count(), 2);
        let unfenced: String = markdown.split("```").step_by(2).collect();
        assert!(unfenced.contains("script") && !unfenced.contains("<script>"));
    }

    #[test]
    fn absent_figures_are_dashes_with_their_reason() {
        let page = html(&race());
        assert!(page.contains("title=\"no latency was recorded\"><abbr"));
        assert!(page.contains("samples recorded, 50\u{202f}000 needed"));
        let absent = page.matches("class=\"absent\"").count();
        assert_eq!(page.matches("<td class=\"absent\" title=\"\"").count(), 0, "{absent} absent");
    }

    #[test]
    fn text_fits_a_hundred_columns_and_has_no_control_codes() {
        for (name, result) in variants() {
            for line in text(&result).lines() {
                assert!(line.chars().count() <= 100, "{name}: {line}");
                assert!(!line.contains('\u{1b}'), "{name}: {line}");
            }
        }
    }

    #[test]
    fn colour_adds_codes_and_changes_no_word() {
        let coloured = styled_text(&race(), Style::Colour);
        let mut stripped = String::new();
        for (index, part) in coloured.split("\u{1b}[").enumerate() {
            let words = if index == 0 { part } else { part.split_once('m').expect("a code").1 };
            stripped.push_str(words);
        }
        assert_ne!(coloured, stripped);
        assert_eq!(stripped, text(&race()));
    }

    #[test]
    fn the_same_result_gives_the_same_bytes() {
        for form in [html, text, markdown] {
            assert_eq!(form(&race()), form(&race()));
        }
    }

    #[test]
    fn an_invalid_race_says_why_before_any_verdict() {
        let result = invalid();
        let page = html(&result);
        let reason = page.find("ledger of xdp").expect("the reason is shown");
        assert!(reason < page.find("id=\"verdicts\"").expect("verdicts follow"));
        let text = text(&result);
        assert!(text.find("ledger of xdp") < text.find("against packet"));
        assert!(page.contains("exit code 4") || page.contains("Exit code 4"));
    }

    #[test]
    fn an_open_ledger_shows_its_number() {
        let result = invalid();
        let open = result.summaries.iter().find(|s| s.ledger.unexplained != 0).expect("one is");
        let (words, is_closed) = table::closing(&open.ledger);
        assert!(!is_closed && words.contains("unexplained"));
        assert!(html(&result).contains(&format!("<td class=\"bad\">{words}</td>")));
        assert!(text(&result).contains(&plain(&words)));
        assert!(!html(&race()).contains("unexplained</td>"));
    }

    #[test]
    fn every_finding_is_listed_in_all_three_forms_or_as_noise_floor() {
        let result = race();
        let pairs = result.findings.len();
        let rows = markdown(&result).lines().filter(|line| line.contains("(A/A pair)")).count();
        assert_eq!(rows * 4, pairs, "one arm of four compared is the A/A pair");
        let doubts = result.findings.iter().filter(|f| f.judgement.doubt.is_some()).count();
        assert!(doubts > 0, "the example holds an inconclusive verdict");
        assert!(html(&result).contains(&format!("Inconclusive: {doubts} of {pairs}")));
    }

    #[test]
    fn indexes_that_point_nowhere_are_named_not_followed() {
        let mut result = race();
        for finding in &mut result.findings {
            (finding.arm, finding.load) = (77, 88);
        }
        for segment in &mut result.segments {
            segment.arm = 77;
        }
        result.summaries[0].load = 99;
        assert!(text(&result).contains("arm 77 (not listed)"));
        check_balance(&html(&result));
        assert!(markdown(&result).contains("load 88"));
    }

    #[test]
    fn the_tables_of_pings_stand_in_all_three_forms_and_nowhere_else() {
        let result = pings();
        let tables = pings::tables(&result);
        assert_eq!(tables.len(), 4);
        for form in [html, text, markdown] {
            let page = form(&result);
            for word in
                ["mdev", "ping avg", "under load", "CPU-second", "capacity", "no fixed load"]
            {
                assert!(page.contains(word), "{word}");
            }
            assert!(!page.contains("Latency, wire to app"));
            assert!(!form(&race()).contains("mdev"));
        }
        assert!(text(&result).lines().all(|line| line.chars().count() <= 100));
        // Both probes name their arm and never share a row's group.
        let groups = tables[0].rows.iter().filter(|row| row.opens_group).count();
        assert_eq!(groups, result.loads_pps.len() + 2, "ping by itself and beside a load");
    }

    #[test]
    fn a_race_with_traces_says_why_in_all_three_forms_and_links_the_pages() {
        let result = traced();
        for form in [html, text, markdown] {
            let page = form(&result);
            for word in ["Why", "Where the worker's time went", "Not traced", "no verdict", "D1"] {
                let escaped = laneway_page::markup::escape(word).to_string();
                assert!(page.contains(word) || page.contains(&escaped), "{word}");
            }
            assert!(!form(&race()).contains("a trace of each worker"));
        }
        assert!(html(&result).contains("<a href=\"traces/packet.html\">"));
        let mut evil = result;
        evil.traces[0].page = Some("javascript:alert(1)//\" onclick=\"x".to_owned());
        let page = html(&evil);
        assert!(page.contains("href=\"javascript%3Aalert"), "no scheme gets through");
        assert!(!page.contains("onclick=\""));
    }

    #[test]
    fn the_scopes_of_latency_never_share_a_table() {
        for scope in table::Scope::ALL {
            let caption = table::latency(&race(), scope).caption;
            let other = table::Scope::ALL.into_iter().find(|&s| s != scope).expect("two");
            assert!(caption.contains(scope.name()) && !caption.contains(other.name()));
        }
    }

    /// Writes the pages where a person can look at them; does nothing unless asked.
    #[test]
    fn pages_are_written_where_asked() {
        let Some(folder) = std::env::var_os("LANEWAY_REPORT_DIR").map(std::path::PathBuf::from)
        else {
            let line = b"skipped: LANEWAY_REPORT_DIR names no folder to write example pages to\n";
            // Losing the line to a closed stderr is no reason to fail the test.
            let _ = std::io::stderr().write_all(line);
            return;
        };
        for (name, result) in variants() {
            let stem = folder.join(name.replace(' ', "-"));
            for (ending, form) in
                [("html", html as fn(&RaceResult) -> String), ("txt", text), ("md", markdown)]
            {
                std::fs::write(stem.with_extension(ending), form(&result)).expect("writable");
            }
        }
    }
}
