//! `laneway race`: arms in turn under the same load, and a verdict per metric.

#[cfg(test)]
mod as_run;
mod explain;
mod progress;

use crate::arguments::RaceArguments;
use crate::shipped::ResolvedScenario;
use explain::TraceExplainer;
use laneway_lab::race::{self, Length, Options, RaceError};
use laneway_lab::report;
use laneway_lab::result::{Outcome, RaceResult};
use laneway_lab::scenario::Scenario;
use laneway_lab::wakeup;
use laneway_lab::why::Explain;
use laneway_lab::{Tables, TablesOf};
use laneway_registry::{AppTable, LaneTable, apps};
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use progress::ProgressLine;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) fn run<P: AppTable, L: LaneTable>(
    arguments: &RaceArguments,
    json: bool,
) -> Result<Exit, Failure> {
    let out = arguments.out.clone().unwrap_or_else(|| {
        let name = Path::new(&arguments.scenario).file_stem().unwrap_or_default();
        PathBuf::from("out").join(format!("race-{}", name.to_string_lossy()))
    });
    let mut asked = ResolvedScenario::read(&arguments.scenario, &out, &apps::<P>())?;
    let scenario = &mut asked.scenario;
    overrule(scenario, arguments);
    let tables = TablesOf::<P, L>::new();
    scenario.check_races(&arguments.variant, &tables).map_err(Failure::input)?;
    let races = scenario.races(&arguments.variant).map_err(Failure::input)?;
    laneway_netns::can_create().map_err(Failure::input)?;
    asked.extract()?;

    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    // Relaxed: the flag carries no data, only itself.
    terminal::on_signal(None, json, move || {
        flag.store(true, Ordering::Relaxed);
        progress::clear();
    })?;

    if arguments.wakeup {
        let options = options(arguments, &out, &interrupted, &tables);
        return wake(asked.scenario, &options, arguments.time.map(Duration::from_secs), json);
    }
    let mut worst = Exit::Done;
    for (variant, scenario) in races {
        // A scenario without variants has one race without a name.
        let out = out.join(variant);
        let options = options(arguments, &out, &interrupted, &tables);
        terminal::note(&progress::announced(
            &scenario.title,
            &race::expected(&scenario, options.length),
        ));
        let mut line = ProgressLine::new();
        let result = race::run(scenario, &options, |progress| line.show(progress));
        drop(line);
        let result = result.map_err(failure)?;
        worst = worst.max(print_outcome(&result, &out, json, arguments.verbose)?);
        if result.interrupted {
            break;
        }
    }
    Ok(worst)
}

fn options<'a>(
    arguments: &RaceArguments,
    out: &'a Path,
    interrupted: &'a AtomicBool,
    tables: &'a dyn Tables,
) -> Options<'a> {
    Options {
        tables,
        length: if arguments.full { Length::Full } else { Length::Quick },
        out,
        command: std::env::args().collect(),
        version: version(),
        explain: arguments.trace.then_some(&TraceExplainer as &dyn Explain),
        interrupted,
    }
}

fn failure(error: RaceError) -> Failure {
    match error {
        RaceError::Interrupted | RaceError::InterruptedEarly { .. } => {
            Failure::Because(Exit::Inconclusive, error.to_string())
        }
        other => Failure::input(other),
    }
}

/// Prints the answer of a race, or its `whole` report; with `--json`, its result, one object after the other.
fn print_outcome(
    result: &RaceResult,
    out: &Path,
    json: bool,
    whole: bool,
) -> Result<Exit, Failure> {
    if json {
        let value = serde_json::to_value(result).map_err(Failure::input)?;
        terminal::print_json(&value, false)?;
    } else {
        let style = if terminal::stdout_is_terminal() {
            report::Style::Colour
        } else {
            report::Style::Plain
        };
        let text = match whole {
            true => report::styled_text(result, style),
            false => report::screen(result, style),
        };
        terminal::print(&text)?;
    }
    terminal::note(&format!("report: {}", out.join("report.html").display()));
    Ok(match result.outcome {
        Outcome::Done => Exit::Done,
        Outcome::GoalMissed => Exit::GoalMissed,
        Outcome::Inconclusive => Exit::Inconclusive,
        Outcome::Invalid => Exit::Invalid,
    })
}

/// `--wakeup`: idle lanes instead of a race.
fn wake(
    scenario: Scenario,
    options: &Options<'_>,
    time: Option<Duration>,
    json: bool,
) -> Result<Exit, Failure> {
    let show = |row: &wakeup::IdleRow| {
        terminal::note(&format!("{:<20} idle={:<12} done", row.arm, row.policy));
    };
    let result = wakeup::run(scenario, options, time, show).map_err(failure)?;
    if json {
        let value = serde_json::to_value(&result).map_err(Failure::input)?;
        terminal::print_json(&value, false)?;
    } else {
        terminal::print(&wakeup::text(&result))?;
    }
    terminal::note(&format!("result: {}", options.out.join("idle.json").display()));
    Ok(Exit::Done)
}

fn version() -> String {
    let commit = option_env!("LANEWAY_COMMIT").map(|commit| format!(" ({commit})"));
    format!("{}{}", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default())
}

fn overrule(scenario: &mut Scenario, arguments: &RaceArguments) {
    if let Some(pcap) = &arguments.pcap {
        scenario.capture = Some(pcap.clone());
    }
    if let Some(generator) = &arguments.generator {
        scenario.generator.clone_from(generator);
    }
    if !arguments.lane.is_empty() {
        scenario.race_these(&arguments.lane);
    }
    scenario.race_also(&arguments.arm);
    scenario.race_uncounted(&arguments.arm_uncounted);
    let Scenario { quick, full, variants, .. } = scenario;
    let own = if arguments.full { full } else { quick };
    let of_variants = variants.iter_mut().filter_map(|variant| match arguments.full {
        true => variant.full.as_mut(),
        false => variant.quick.as_mut(),
    });
    for extent in of_variants.chain([own]) {
        if !arguments.load.is_empty() {
            extent.loads_pps.clone_from(&arguments.load);
            // These and no other.
            (extent.saturate, extent.topspeed, extent.closed_loop) = (false, false, false);
            extent.closed_requests.clear();
            extent.own_share = None;
        }
        if let Some(ms) = arguments.segment_ms {
            extent.segment_ms = ms;
        }
        extent.time_s = arguments.time.unwrap_or(extent.time_s);
        extent.generations = arguments.generations.unwrap_or(extent.generations);
        extent.rounds = arguments.rounds.or(extent.rounds);
    }
    if let Some(seed) = arguments.seed {
        scenario.seed = seed;
    }
    scenario.awake |= arguments.awake;
}
