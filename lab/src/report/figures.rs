//! The figure that holds today: for each question that races asked, the answer of the newest race that is valid.
//!
//! A question is a goal of a scenario or, where a scenario states none, a comparison of an arm with the base at one
//! load. Two races ask the same question when their titles and its words are the same; the rate of the saturating load,
//! which each race finds anew, is in the answer. A race that offered none of its goals' loads answers nothing. An
//! invalid race never replaces an answer; a question that only invalid races asked keeps its row, without a figure.
//! Every word beyond the headings is from a result file, so the page is made again from the files and never by hand.

use super::summary::inline;
use super::wording::{
    arm_name, asked_load, base_name, disclaimer, estimated_effect, goal_word, interval,
    is_noise_floor, noise_floor_beside, saturating_rate, shell_command,
};
use crate::result::{Finding, RaceResult};
use laneway_page::markup::put;
use laneway_page::number::{ABSENT, utc};
use serde::Serialize;

const HEAD: &str = "\
# The figures that hold today

Made by `laneway report --figures` from the result files of the races below: change those, not this page. Each row is a
question and the answer of the newest valid race that asked it; `invalid` stands where no valid race did.

";

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Title of the race: `packet features, kernel sockets against XDP`.
    pub race: String,
    /// The question: `CPU per record of xdp at 200000/s: at most 0.2 times packet`.
    pub asked: String,
    /// What was measured, with its interval; absent where no race that asked is valid.
    pub measured: Option<String>,
    /// `met`, `missed`, `inconclusive`, or the verdict of a comparison; `invalid` without a figure.
    pub verdict: String,
    /// The commit that was built; the version, where the commit is not known.
    pub commit: String,
    /// When the race started, ns since 1970.
    pub started_unix_ns: u64,
    /// The command line.
    pub command: String,
}

/// The figures that hold, race by race in the order given, questions in the order of their scenario.
pub(super) fn figures(results: &[RaceResult]) -> Vec<Figure> {
    let mut held: Vec<Figure> = Vec::new();
    for figure in results.iter().flat_map(answers) {
        let is_same =
            |other: &&mut Figure| (&other.race, &other.asked) == (&figure.race, &figure.asked);
        match held.iter_mut().find(is_same) {
            Some(other) if replaces(&figure, other) => *other = figure,
            Some(_) => {}
            None => held.push(figure),
        }
    }
    held
}

/// A valid answer before an invalid one, then the newer.
fn replaces(figure: &Figure, other: &Figure) -> bool {
    let rank = |figure: &Figure| (figure.measured.is_some(), figure.started_unix_ns);
    rank(figure) > rank(other)
}

/// The whole page, ending in a line feed.
pub(super) fn page(results: &[RaceResult]) -> String {
    let figures = figures(results);
    let mut races: Vec<&str> = figures.iter().map(|figure| figure.race.as_str()).collect();
    let mut out = HEAD.to_owned();
    // One table for each title: results of one race may lie apart.
    let mut seen = std::collections::BTreeSet::new();
    races.retain(|race| seen.insert(*race));
    for race in races {
        put!(
            &mut out,
            "## {}\n\n| asked | measured, with its interval | verdict | commit | started | command |\n\
             |---|---|---|---|---|---|\n",
            inline(race)
        );
        figures
            .iter()
            .filter(|figure| figure.race == race)
            .for_each(|figure| row(&mut out, figure));
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn row(out: &mut String, figure: &Figure) {
    put!(
        out,
        "| {} | {} | **{}** | {} | {} | {} |\n",
        inline(&figure.asked),
        inline(figure.measured.as_deref().unwrap_or(ABSENT)),
        inline(&figure.verdict),
        inline(&figure.commit),
        utc(figure.started_unix_ns),
        inline(&figure.command)
    );
}

/// What one race answers.
fn answers(result: &RaceResult) -> Vec<Figure> {
    let figure = |(asked, measured, verdict): (String, String, String)| {
        let is_valid = disclaimer(result).is_none();
        Figure {
            race: result.title.clone(),
            asked,
            measured: is_valid.then_some(measured),
            verdict: if is_valid { verdict } else { "invalid".to_owned() },
            commit: commit_of(&result.version),
            started_unix_ns: result.started_unix_ns,
            command: shell_command(&result.command),
        }
    };
    if !states_goals(result) {
        let compared = result.findings.iter().filter(|f| !is_noise_floor(result, f.arm));
        return compared.map(|finding| figure(comparison(result, finding))).collect();
    }
    let goals = result.goals.iter();
    let goals = goals
        .map(|goal| (goal.goal.clone(), goal.measured.clone(), goal_word(goal.status).to_owned()));
    goals.map(figure).collect()
}

/// Whether its scenario has goals: those at loads that this race did not offer are not among the result's.
fn states_goals(result: &RaceResult) -> bool {
    let stated = |scenario: toml::Table| {
        scenario.get("goal").and_then(toml::Value::as_array).is_some_and(|goals| !goals.is_empty())
    };
    !result.goals.is_empty() || toml::from_str(&result.scenario).is_ok_and(stated)
}

/// The question, the figure and the verdict of one comparison.
fn comparison(result: &RaceResult, finding: &Finding) -> (String, String, String) {
    let asked = format!(
        "{} of {} at {}, against {}",
        finding.metric,
        arm_name(result, finding.arm),
        asked_load(result, finding.load),
        base_name(result)
    );
    let parts = [
        Some(estimated_effect(finding)),
        interval(finding),
        Some(noise_floor_beside(result, finding)),
    ];
    let measured: Vec<String> =
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let rate = saturating_rate(result, finding.load);
    let rate = rate.map_or_else(String::new, |rate| format!(", at {rate}"));
    (asked, measured.join(" ") + &rate, finding.judgement.verdict.to_string())
}

/// `7c1d2e9` of `0.1.0 (7c1d2e9)`.
fn commit_of(version: &str) -> String {
    let inside = version.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    inside.map_or(version, |(commit, _)| commit).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::example::{empty, hostile, invalid, race};
    use super::*;
    use crate::result::GoalStatus;
    use laneway_page::number::plain;

    /// The example, started so many seconds later, with this answer to its first goal.
    fn later(seconds: u64, measured: &str, mut result: RaceResult) -> RaceResult {
        result.started_unix_ns += seconds * 1_000_000_000;
        result.version = format!("0.1.0 (commit{seconds})");
        result.goals[0].measured = measured.to_owned();
        result
    }

    #[test]
    fn the_newest_valid_race_answers_in_whatever_order_the_files_are_given() {
        let newest_is_invalid = later(300, "9 times", invalid());
        let mut results =
            [race(), later(200, "0.201 times (0.199 to 0.203)", race()), newest_is_invalid];
        results[1].goals[0].status = GoalStatus::Missed;
        for _ in 0..results.len() {
            results.rotate_left(1);
            let held = figures(&results);
            assert_eq!(held.len(), race().goals.len(), "one row for each question");
            let first =
                held.iter().find(|f| f.asked == race().goals[0].goal).expect("it was asked");
            assert_eq!(first.measured.as_deref(), Some("0.201 times (0.199 to 0.203)"));
            assert_eq!((first.verdict.as_str(), first.commit.as_str()), ("missed", "commit200"));
        }
    }

    #[test]
    fn a_question_that_only_invalid_races_asked_has_no_figure() {
        let held = figures(&[invalid()]);
        assert!(!held.is_empty());
        assert!(held.iter().all(|f| f.measured.is_none() && f.verdict == "invalid"), "{held:?}");
        assert!(page(&[invalid()]).contains(" | - | **invalid** | 7c1d2e9 | "));
    }

    #[test]
    fn a_race_without_goals_answers_by_its_comparisons() {
        let mut result = race();
        result.goals.clear();
        let twin = result.findings.iter().filter(|f| is_noise_floor(&result, f.arm)).count();
        let held = figures(&[result.clone()]);
        assert_eq!(held.len(), result.findings.len() - twin, "all but the base against itself");
        assert!(held.iter().all(|f| f.asked.ends_with(", against packet")), "{held:?}");
        let figure = held.iter().find_map(|f| f.measured.as_deref()).expect("one is valid");
        assert!(figure.contains('[') && figure.contains("A/A"), "{figure}");
    }

    #[test]
    fn a_saturating_load_is_one_question_whatever_its_rate_was() {
        let found = |pps: u64| {
            let mut result = race();
            result.goals.clear();
            result.loads_pps[2] = pps;
            result.saturating_pps = Some(pps);
            result.started_unix_ns += pps;
            result
        };
        let held = figures(&[found(2_400_000), found(2_300_000)]);
        assert_eq!(held.len(), figures(&[found(2_300_000)]).len(), "{held:?}");
        let saturating =
            held.iter().filter(|f| f.asked.contains(" at the saturating load, against "));
        let answers: Vec<String> =
            saturating.filter_map(|f| f.measured.as_deref()).map(plain).collect();
        assert!(
            !answers.is_empty() && answers.iter().all(|a| a.ends_with(" at 2,400,000/s")),
            "{answers:?}"
        );
        assert!(
            held.iter().any(|f| plain(&f.asked).contains(" at 200,000/s, against ")),
            "{held:?}"
        );
    }

    #[test]
    fn a_race_that_offered_no_load_of_its_goals_answers_nothing() {
        let mut result = race();
        result.goals.clear();
        result
            .scenario
            .push_str("\n[[goal]]\nmetric = \"loss\"\narm = \"packet\"\nat_most = 0.0\n");
        let held = figures(&[result]);
        assert!(held.is_empty(), "{held:?}");
    }

    #[test]
    fn races_of_one_title_share_a_table_and_the_page_is_the_same_each_time() {
        let other = RaceResult { title: "another race".to_owned(), ..race() };
        let results = [race(), other, later(5, "0.2 times", race()), empty()];
        let whole = page(&results);
        assert_eq!(whole, page(&results));
        assert_eq!(whole.matches("\n## ").count(), 2, "{whole}");
        assert!(whole.ends_with('\n') && !whole.ends_with("\n\n"));
        for part in ["| commit5 |", "UTC |", "laneway race features --quick --out /tmp/race |"] {
            assert!(whole.contains(part), "{part}: {whole}");
        }
    }

    #[test]
    fn nothing_of_a_result_leaves_its_cell() {
        let page = page(&[hostile()]);
        assert!(page.contains("script") && !page.contains("<script>"));
        let wider = |line: &&str| line.starts_with('|') && line.matches(" | ").count() != 5;
        assert_eq!(page.lines().filter(|line| !line.starts_with("|--")).find(wider), None);
        assert_eq!(page.chars().find(|c| c.is_control() && *c != '\n'), None);
    }

    #[test]
    fn a_version_without_a_commit_stands_for_itself() {
        assert_eq!(commit_of("0.1.0 (7c1d2e9)"), "7c1d2e9");
        assert_eq!(commit_of("0.1.0"), "0.1.0");
    }
}
