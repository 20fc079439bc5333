//! `laneway report`: a race's report made again from its result file, or one page of the claims or the figures of
//! several races.

use crate::arguments::ReportArguments;
use laneway_lab::result::{RaceResult, SCHEMA, is_readable};
use laneway_lab::{race, report};
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use std::fs;
use std::path::{Path, PathBuf};

/// What a race calls its result.
const RESULT: &str = "result.json";

pub(crate) fn run(arguments: &ReportArguments, json: bool) -> Result<Exit, Failure> {
    let results = arguments.races.iter().map(|race| read(race)).collect::<Result<Vec<_>, _>>()?;
    match (arguments.claims, arguments.figures) {
        (true, _) => claims(&results, json)?,
        (false, true) => figures(&results, json)?,
        (false, false) => {
            let races = arguments.races.iter().zip(&results);
            races.into_iter().try_for_each(|(race, result)| again(race, result, json))?;
        }
    }
    Ok(Exit::Done)
}

/// The same report from the result file.
fn again(given: &Path, result: &RaceResult, json: bool) -> Result<(), Failure> {
    let file = file_of(given);
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    race::write_report(result, folder).map_err(Failure::input)?;
    if json {
        terminal::print_json(&serde_json::to_value(result).map_err(Failure::input)?, false)?;
    } else {
        terminal::print(&report::text(result))?;
    }
    terminal::note(&format!("report: {}", folder.join("report.html").display()));
    Ok(())
}

/// The claims of all of them on one page; with `--json`, an object for each race.
fn claims(results: &[RaceResult], json: bool) -> Result<(), Failure> {
    if results.iter().all(|result| result.claims.is_empty()) {
        return Err(Failure::input(
            "none of these races was asked a claim; give results of scenarios with `[[claim]]`, such as features, ping \
             and tap",
        ));
    }
    if !json {
        return terminal::print(&report::claims(results));
    }
    let race = |result: &RaceResult| {
        serde_json::json!({
            "title": result.title,
            "claims_of": result.claims_of,
            "claims": result.claims,
            "command": result.command,
            "version": result.version,
            "started_unix_ns": result.started_unix_ns,
            "outcome": result.outcome,
        })
    };
    terminal::print_json(&results.iter().map(race).collect(), false)
}

/// The figure that holds for each question, on one page; with `--json`, an object for each question.
fn figures(results: &[RaceResult], json: bool) -> Result<(), Failure> {
    let figures = report::figures(results);
    if figures.is_empty() {
        return Err(Failure::input(
            "none of these races has a comparison, or a goal at a load that it offered; give results of races that \
             measured something",
        ));
    }
    if !json {
        return terminal::print(&report::figures_page(results));
    }
    terminal::print_json(&serde_json::to_value(figures).map_err(Failure::input)?, false)
}

/// The result of a race.
fn read(given: &Path) -> Result<RaceResult, Failure> {
    let path = file_of(given);
    let name = path.display();
    let text = fs::read_to_string(&path).map_err(|error| {
        Failure::input(format!("cannot read {name}: {error}; give the folder of a race (--out)"))
    })?;
    let result: RaceResult = serde_json::from_str(&text).map_err(|error| {
        Failure::input(format!("{name} is no result of a race that this version reads: {error}"))
    })?;
    if !is_readable(&result.schema) {
        return Err(Failure::input(format!(
            "{name} has schema {}, this version reads {SCHEMA}; use the laneway that wrote it ({})",
            result.schema, result.version
        )));
    }
    Ok(result)
}

fn file_of(given: &Path) -> PathBuf {
    if given.is_file() { given.to_owned() } else { given.join(RESULT) }
}
