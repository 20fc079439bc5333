//! Runs of kinds, each judged, and what they come to.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::judge::{RunScore, judge, reported_causes, unanswered, unclosed};
use crate::kinds::{Kind, Made};
use crate::world::{NotMade, Running, World, last_words};

/// How often a run is made again that did not become what it should be.
const TRIES: u64 = 3;
/// Most misses that are reported of a kind.
const MISSES_MAX: usize = 10;

/// The result of one run.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// There is no recording, or no analysis of it.
    NotMade(NotMade),
    /// The analysis names no causes at all, rightly or wrongly: its sentence.
    NoCauses(String),
    /// It was judged.
    Judged(RunScore),
}

/// Makes, analyses and judges one run of `kind`. A situation that did not become what it should be is made again.
#[must_use]
pub fn run(world: &World, kind: &Kind, seed: u64) -> Outcome {
    let mut outcome = Outcome::NotMade(NotMade::Missed("it was never tried".to_owned()));
    for _ in 0..TRIES {
        outcome = match kind.make(world, seed) {
            Ok(made) => analysed(world, &made).unwrap_or_else(Outcome::NotMade),
            Err(why) => Outcome::NotMade(why),
        };
        world.clear(kind.name);
        if !matches!(outcome, Outcome::NotMade(NotMade::Missed(_))) {
            break;
        }
    }
    outcome
}

fn analysed(world: &World, made: &Made) -> Result<Outcome, NotMade> {
    let mut command = Command::new(world.laneway());
    command.args(["trace", "analyze", "--json"]).arg(&made.trace);
    if let Some(drops) = made.truth.drops {
        command.args(["--drops", &drops.to_string()]);
    }
    let output = Running::start("the analysis", &mut command)?.end()?;
    let result: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let words = last_words(&output.stderr);
        NotMade::Failed(format!("the analysis printed no JSON: {error}: {words}"))
    })?;
    if let Some(folder) = made.trace.parent() {
        let file = folder.join("analysis.json");
        fs::write(&file, &output.stdout).map_err(|error| {
            NotMade::Failed(format!("cannot write {}: {error}", file.display()))
        })?;
    }
    Ok(match reported_causes(&result) {
        Ok(reported) => {
            Outcome::Judged(judge(&made.truth, &reported, &unanswered(&result), unclosed(&result)))
        }
        Err(sentence) => Outcome::NoCauses(sentence),
    })
}

/// All runs of a kind.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Runs that were judged.
    pub judged: u64,
    /// A true cause named and no false one.
    pub right: u64,
    /// A true cause first.
    pub first: u64,
    /// A false cause named.
    pub wrong: u64,
    /// At confidence "high".
    pub wrong_high: u64,
    /// Nothing named.
    pub silent: u64,
    /// Sizes within the tolerance.
    pub size: u64,
    /// Sizes compared.
    pub sized: u64,
    /// Intervals that hold the true period.
    pub period: u64,
    /// Periods compared.
    pub periods: u64,
    /// Results without a list of causes.
    pub no_causes: u64,
    /// Runs that were not made.
    pub not_made: u64,
    /// Seeds of what was not right, and why.
    pub misses: Vec<(u64, String)>,
}

impl Row {
    /// Takes up one run.
    pub fn add(&mut self, seed: u64, outcome: &Outcome) {
        let miss = match outcome {
            Outcome::NotMade(why) => {
                self.not_made += 1;
                Some(match why {
                    NotMade::Skipped(words) => format!("skipped: {words}"),
                    NotMade::Missed(words) => format!("no case: {words}"),
                    NotMade::Failed(words) => format!("failed: {words}"),
                })
            }
            Outcome::NoCauses(sentence) => {
                self.no_causes += 1;
                (self.no_causes == 1).then(|| sentence.clone())
            }
            Outcome::Judged(verdict) => {
                self.judged += 1;
                self.right += u64::from(verdict.right);
                self.first += u64::from(verdict.first);
                self.wrong += u64::from(verdict.wrong);
                self.wrong_high += u64::from(verdict.wrong_high);
                self.silent += u64::from(verdict.silent);
                self.size += u64::from(verdict.size == Some(true));
                self.sized += u64::from(verdict.size.is_some());
                self.period += u64::from(verdict.period == Some(true));
                self.periods += u64::from(verdict.period.is_some());
                let missed = !verdict.right
                    || !verdict.first
                    || verdict.size == Some(false)
                    || verdict.period == Some(false);
                match &verdict.unclosed {
                    Some(words) => Some(format!("account open: {words}; {}", verdict.words)),
                    None => missed.then(|| verdict.words.clone()),
                }
            }
        };
        if let Some(words) = miss
            && self.misses.len() < MISSES_MAX
        {
            self.misses.push((seed, words));
        }
    }

    /// The row of the table.
    #[must_use]
    pub fn line(&self, kind: &Kind) -> String {
        format!(
            "{:<26} {:>4} {:>5} {:>5} {:>5} {:>5} {:>6} {:>7} {:>7}  {}",
            kind.name,
            self.judged,
            self.right,
            self.first,
            self.wrong,
            self.wrong_high,
            self.silent,
            part(self.size, self.sized),
            part(self.period, self.periods),
            match (self.not_made, self.no_causes) {
                (0, 0) => String::new(),
                (0, n) => format!("{n} without causes"),
                (n, 0) => format!("{n} not made"),
                (n, m) => format!("{n} not made, {m} without causes"),
            }
        )
    }
}

fn part(of: u64, all: u64) -> String {
    if all > 0 { format!("{of}/{all}") } else { "-".to_owned() }
}

/// The head of the table.
pub const HEAD: &str =
    "kind                       runs right first wrong  high silent    size  period";

/// A table of all kinds.
#[derive(Debug, Default)]
pub struct Table {
    /// A row per kind that was asked for.
    pub rows: Vec<(Kind, Row)>,
    /// Rounds that were made in full.
    pub rounds: u64,
}

impl Table {
    /// Runs `kinds` for so many rounds, a run of each kind per round, or until `limit` is over. `each` is called with each.
    pub fn fill(
        world: &World,
        kinds: &[Kind],
        seed: u64,
        rounds: u64,
        limit: Duration,
        mut each: impl FnMut(&Kind, u64, &Outcome),
    ) -> Table {
        let began = Instant::now();
        let mut table = Table::default();
        table.rows.extend(kinds.iter().map(|kind| (*kind, Row::default())));
        'all: for round in 0..rounds {
            for (kind, row) in &mut table.rows {
                // A run must not begin that may end beyond the limit by more than its own time.
                if began.elapsed() >= limit {
                    break 'all;
                }
                let seed = seed.wrapping_add(round);
                let outcome = run(world, kind, seed);
                row.add(seed, &outcome);
                each(kind, seed, &outcome);
            }
            table.rounds += 1;
        }
        table
    }

    /// Whether anything was judged.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        self.rows.iter().any(|(_, row)| row.judged > 0)
    }

    /// What is asked of the judgement, and what it comes to: words, and whether it is met.
    #[must_use]
    pub fn goals(&self) -> Vec<(String, bool)> {
        let sum = |healthy: bool, count: fn(&Row) -> u64| -> u64 {
            self.rows.iter().filter(|(k, _)| k.healthy == healthy).map(|(_, row)| count(row)).sum()
        };
        let goal = |what: &str, part: u64, whole: u64, least: f64| {
            let share = if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
            let words = format!(
                "{what}: {part} of {whole} ({:.1} %), asked {:.0} %",
                share * 100.0,
                least * 100.0
            );
            (words, share >= least)
        };
        let faulty = sum(false, |row| row.judged);
        let mut goals = vec![
            goal("the true cause first", sum(false, |row| row.first), faulty, 0.95),
            goal(
                "its size within 20 %",
                sum(false, |row| row.size),
                sum(false, |row| row.sized),
                0.9,
            ),
            goal(
                "its period within the interval",
                sum(false, |row| row.period),
                sum(false, |row| row.periods),
                0.93,
            ),
            goal(
                "healthy ones without a cause",
                sum(true, |row| row.right),
                sum(true, |row| row.judged),
                0.98,
            ),
        ];
        let high = sum(true, |row| row.wrong_high) + sum(false, |row| row.wrong_high);
        goals.push((format!("wrong causes with confidence high: {high}, asked none"), high == 0));
        for (kind, row) in self.rows.iter().filter(|(kind, row)| !kind.healthy && row.judged > 0) {
            if (row.first as f64) < 0.85 * row.judged as f64 {
                goals.push((
                    format!("{}: first in {} of {}, asked 85 %", kind.name, row.first, row.judged),
                    false,
                ));
            }
        }
        goals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KINDS;

    fn verdict(right: bool) -> Outcome {
        Outcome::Judged(RunScore {
            right,
            first: right,
            wrong: !right,
            wrong_high: !right,
            silent: false,
            size: Some(right),
            period: Some(right),
            words: "named that".to_owned(),
            unclosed: None,
        })
    }

    #[test]
    fn a_row_counts_and_keeps_the_seeds_of_misses() {
        let mut row = Row::default();
        row.add(1, &verdict(true));
        row.add(2, &verdict(false));
        row.add(3, &Outcome::NoCauses("no causes in this result".to_owned()));
        row.add(4, &Outcome::NotMade(NotMade::Skipped("no DPDK".to_owned())));
        assert_eq!(
            (row.judged, row.right, row.wrong_high, row.no_causes, row.not_made),
            (2, 1, 1, 1, 1)
        );
        let seeds: Vec<u64> = row.misses.iter().map(|(seed, _)| *seed).collect();
        assert_eq!(seeds, [2, 3, 4]);
        assert!(row.line(&KINDS[0]).contains("1/2"));
    }

    #[test]
    fn goals_are_met_by_what_is_right_alone() {
        let table = |right| {
            let mut table = Table::default();
            for kind in KINDS {
                let mut row = Row::default();
                row.add(1, &verdict(right));
                table.rows.push((*kind, row));
            }
            table
        };
        assert!(table(true).goals().iter().all(|(_, met)| *met));
        assert!(table(false).goals().iter().all(|(_, met)| !*met));
    }
}
