//! `laneway run`: an app on a lane, until it is asked to end.
//!
//! Everything that can be wrong with the request is found before anything is opened; what each port
//! asked for and obtained is printed when it is.

mod live;
mod metrics;
mod table;
mod trace;

pub(crate) use table::{RunVerb, TableVerb};

use crate::arguments::RunApp;
use laneway_core::{CapSet, CapsReport};
use laneway_engine::{Stop, usable_cpus};
use laneway_terminal::{Exit, Failure};
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

/// Runs the app of the table that the arguments name.
pub(crate) fn run(app: &RunApp, table: &[Box<dyn RunVerb>], json: bool) -> Result<Exit, Failure> {
    match table.iter().find(|known| known.facts().name == app.name) {
        Some(known) => known.run(&app.matches, json),
        None => Err(Failure::input(format!("there is no app `{}`", app.name))),
    }
}

/// Ends the run after `duration`, counted from now.
pub(super) fn end_after(duration: Option<Duration>, stop: &Stop) {
    let Some(duration) = duration else { return };
    let stop = stop.clone();
    // Ends with the process; a run that is over already does not mind.
    thread::spawn(move || {
        thread::sleep(duration);
        stop.request();
    });
}

/// The CPUs of several workers; nothing where one was asked for, on whatever CPU.
pub(super) fn worker_cpus(
    workers: Option<u8>,
    cpus: &[RangeInclusive<usize>],
) -> Result<Option<Vec<usize>>, Failure> {
    let named: Vec<usize> = cpus.iter().cloned().flatten().collect();
    let wanted = workers.map(usize::from);
    if !named.is_empty() {
        return match wanted {
            Some(wanted) if wanted != named.len() => Err(Failure::input(format!(
                "--workers {wanted} and --cpus with {} CPUs do not fit; every worker needs one: \
                 name as many, or leave --workers out",
                named.len()
            ))),
            _ => Ok(Some(named)),
        };
    }
    let Some(wanted) = wanted.filter(|&wanted| wanted > 1) else { return Ok(None) };
    let mut usable = usable_cpus().map_err(Failure::input)?;
    if usable.len() < wanted {
        return Err(Failure::input(format!(
            "--workers {wanted} need a CPU each, and this process may use {}; use --workers {0}",
            usable.len()
        )));
    }
    usable.truncate(wanted);
    Ok(Some(usable))
}

/// What a port asked for and obtained, on one line; `place` is where it is: `on eth1`.
pub(super) fn opened(spec: &str, place: &str, caps: &CapsReport) -> String {
    let names = |set: CapSet| -> String {
        let names: Vec<&str> = set.iter().map(|cap| cap.name()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(" ") }
    };
    let (asked, obtained) = (names(caps.requested), names(caps.obtained));
    let mut line = format!("{spec} {place}: asked for {asked}; obtained {obtained}");
    if caps.missing() != CapSet::default() {
        line.push_str(&format!("; missing as allowed {}", names(caps.missing())));
    }
    let facts: Vec<String> =
        caps.facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if !facts.is_empty() {
        line.push_str(&format!(" ({})", facts.join(", ")));
    }
    for note in &caps.notes {
        line.push_str(&format!("\n  note: {note}"));
    }
    line
}
