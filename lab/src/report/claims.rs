//! Claims and answers: the claims of several races as one page of Markdown, a table for each race and
//! below it how that race was made.
//!
//! Every word beyond the headings comes from a result, so the page is made again from the files and never by hand.

use super::summary::{circumstances, inline};
use super::wording::{claim_figure, claim_word, disclaimer, outcome_word};
use crate::result::{ClaimOutcome, RaceResult};
use laneway_page::markup::put;
use laneway_page::number::ABSENT;

const HEAD: &str = "\
# Claims and answers

Made by `laneway report --claims` from the result files of the races below: change those, not this page. Each sentence is
quoted from its report; *then* is the figure given with it, *asked as* what the lab made of it, *now* what the lab measured.

- **confirmed**: the whole interval keeps the limit, or the author's own figures come to the claim.
- **refuted**: the whole interval is beyond the limit, or the figures come to something else.
- **inconclusive**: the interval holds the limit, or is nearer to it than the base is to itself.
- **cannot be answered here**: the race has nothing to say to it, for the reason that stands there.
- **for a trace**: no race answers it, but a trace may.

";

/// The whole page, ending in a line feed.
pub(super) fn page(results: &[RaceResult]) -> String {
    let mut out = HEAD.to_owned();
    results.iter().for_each(|result| section(&mut out, result));
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// One race.
fn section(out: &mut String, result: &RaceResult) {
    put!(out, "## {}\n\n", inline(&result.title));
    if let Some(source) = &result.claims_of {
        put!(out, "Source: {}\n\n", inline(source));
    }
    if let Some(disclaimer) = disclaimer(result) {
        put!(out, "**{disclaimer}**\n\n");
    }
    if result.claims.is_empty() {
        out.push_str("No claim was put to this race.\n\n");
    } else {
        out.push_str("| claim | then | asked as | now | verdict |\n|---|---|---|---|---|\n");
        result.claims.iter().for_each(|claim| row(out, claim));
        out.push('\n');
    }
    put!(
        out,
        "How it ended: {} (exit {}).\n\n",
        outcome_word(result.outcome),
        result.outcome.exit_code()
    );
    circumstances(out, result);
}

fn row(out: &mut String, claim: &ClaimOutcome) {
    put!(
        out,
        "| \"{}\" | {} | {} | {} | **{}** |\n",
        inline(&claim.says),
        inline(claim.then.as_deref().unwrap_or(ABSENT)),
        inline(&claim.test),
        inline(&claim_figure(claim)),
        claim_word(claim.status)
    );
}

#[cfg(test)]
mod tests {
    use super::super::example::{empty, hostile, invalid, race};
    use super::*;
    use crate::result::ClaimStatus;

    fn claim(says: &str, status: ClaimStatus) -> ClaimOutcome {
        ClaimOutcome {
            says: says.to_owned(),
            then: None,
            test: "what it comes to".to_owned(),
            measured: "what was measured".to_owned(),
            note: String::new(),
            status,
        }
    }

    #[test]
    fn each_sentence_stands_beside_its_figures_and_above_how_the_race_was_made() {
        let mut result = race();
        result.claims_of = Some("report 0".to_owned());
        result.claims = vec![
            ClaimOutcome {
                then: Some("8.22 against 0.01 % of CPU".to_owned()),
                test: "CPU per record of xdp at 200000/s: at most 0.00122 times packet".to_owned(),
                measured: "0.167 times (0.160 to 0.175)".to_owned(),
                note: "the report left the kernel out".to_owned(),
                ..claim("822 times | as efficient", ClaimStatus::Refuted)
            },
            claim("stalls of 28.5 ms", ClaimStatus::ForTrace),
        ];
        let page = page(&[result.clone()]);
        let rows = "\
| claim | then | asked as | now | verdict |
|---|---|---|---|---|
| \"822 times \\| as efficient\" | 8.22 against 0.01 % of CPU | CPU per record of xdp at 200000/s: at most 0.00122 times packet \
| 0.167 times (0.160 to 0.175); the report left the kernel out | **refuted** |
| \"stalls of 28.5 ms\" | - | what it comes to | what was measured | **for a trace** |

How it ended: inconclusive (exit 3).

```
laneway race features --quick --out /tmp/race
```
";
        assert!(page.contains(rows), "{page}");
        let made = page.split(rows).nth(1).expect("it was found");
        for part in [
            "Version: laneway 0.1.0 (7c1d2e9); app features",
            "Started: 2026-11-21",
            "Repetitions: 6 rounds in 3 generations of fresh processes, 5 arms at 3 loads",
            "Placement: Arm and receive stack",
            "kernel: 6.18.44",
            "cpu: Example CPU",
        ] {
            assert!(made.contains(part), "{part}: {made}");
        }
        assert!(page.contains("Source: report 0\n"));
        let wider = |line: &&str| line.starts_with('|') && line.matches(" | ").count() != 4;
        assert_eq!(page.lines().filter(|line| !line.starts_with("|--")).find(wider), None);
    }

    #[test]
    fn the_same_results_give_the_same_page_one_race_after_the_other() {
        let results = [race(), empty(), race()];
        let whole = page(&results);
        assert_eq!(whole, page(&results));
        assert_eq!(whole.matches("\n## ").count(), 3);
        assert!(whole.contains("No claim was put to this race."));
        assert!(whole.ends_with('\n') && !whole.ends_with("\n\n"));
    }

    #[test]
    fn every_verdict_has_its_word_and_an_invalid_race_has_none_to_believe() {
        let mut result = invalid();
        let all = [
            (ClaimStatus::Confirmed, "confirmed"),
            (ClaimStatus::Refuted, "refuted"),
            (ClaimStatus::Inconclusive, "inconclusive"),
            (ClaimStatus::Unanswered, "cannot be answered here"),
            (ClaimStatus::ForTrace, "for a trace"),
        ];
        result.claims = all.iter().map(|(status, word)| claim(word, *status)).collect();
        let page = page(&[result]);
        for (_, word) in all {
            assert!(page.contains(&format!("| **{word}** |")) && HEAD.contains(word), "{word}");
        }
        let disclaimed = page.find("no verdict below is to be believed").expect("it says so");
        assert!(disclaimed < page.find("| claim |").expect("there is a table"));
    }

    #[test]
    fn nothing_of_a_result_leaves_its_cell() {
        let page = page(&[hostile()]);
        assert_eq!(page.matches("```").count(), 2);
        // Inside the fence of the command Markdown shows everything as it is.
        let unfenced: String = page.split("```").step_by(2).collect();
        assert!(unfenced.contains("script") && !unfenced.contains("<script>"));
        assert_eq!(page.chars().find(|c| c.is_control() && *c != '\n'), None);
    }
}
