//! `laneway run`: an app on a lane, until it is told to end.
//!
//! Everything that can be wrong with the request is found before the output is made, and the output
//! is made before the lane is opened: a program is attached to an interface only when its rows have
//! a place to go.

use crate::arguments::{App, LiveArguments};
use crate::exit::{Exit, Failure};
use crate::extraction::{Extraction, output_failure};
use crate::ledger::grouped;
use crate::registry::{self, FeaturesRun, Lane, OpenOptions};
use crate::{interrupt, terminal};
use laneway_core::{CapSet, CapsReport, ClockDomain, LaneError, nearest};
use laneway_engine::{Control, Ended, unix_offset_ns};
use laneway_features::{Aggregation, Disposition, Level, RowSink, Sink};
use laneway_flow::{EndedFlow, Record};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

pub(crate) fn run(app: App, json: bool) -> Result<Exit, Failure> {
    match app {
        App::Features(arguments) => features(&arguments, json),
    }
}

fn features(arguments: &LiveArguments, json: bool) -> Result<Exit, Failure> {
    let spec = &arguments.lane;
    let entry = Lane::of(spec).map_err(Failure::input)?;
    let mut plan = arguments.extract.plan()?;
    plan.config.disposition = if arguments.drop { Disposition::Drop } else { Disposition::Pass };
    if arguments.in_kernel {
        if entry.lane != Lane::Xdp || plan.config.level != Level::Flow {
            return Err(Failure::input(format!(
                "--in-kernel puts flows together in an XDP program, and this is lane {} at level \
                 {}; use --lane xdp --level flow",
                entry.name,
                if plan.config.level == Level::Flow { "flow" } else { "packet" },
            )));
        }
        plan.config.aggregation = Aggregation::Kernel;
    }
    plan.fact("lane", spec);
    for (index, interface) in arguments.on.iter().enumerate() {
        plan.fact(&format!("interface.{index}"), interface);
    }
    let offset_ns = match entry.clock {
        ClockDomain::Monotonic => unix_offset_ns(),
        ClockDomain::Unix | ClockDomain::Virtual => 0,
    };
    let (tables, output) = plan.open_output(offset_ns)?;
    let left = arguments.count.unwrap_or(u64::MAX);
    let sink = Limited { rows: RowSink::new(tables, output), left, beyond: 0 };

    let control = Control::default();
    let stop = control.stop.clone();
    interrupt::on_signal(plan.partial_file(), json, move || stop.request())?;
    let interfaces: Vec<&str> = arguments.on.iter().map(String::as_str).collect();
    let mut ports = Vec::new();
    let options = OpenOptions { force: arguments.force, cpu: arguments.cpu };
    let mut started = Instant::now();
    let on_open = |caps: &[CapsReport]| {
        ports = caps.to_vec();
        started = Instant::now();
        if !json {
            for (interface, caps) in interfaces.iter().zip(caps) {
                terminal::note(&opened(&spec.to_string(), interface, caps));
            }
        }
        if let Some(duration) = arguments.duration {
            let stop = control.stop.clone();
            // Ends with the process; a run that is over already does not mind.
            thread::spawn(move || {
                thread::sleep(duration);
                stop.request();
            });
        }
    };
    let config = plan.config.clone();
    let run = registry::run_features(spec, &interfaces, config, sink, options, &control, on_open)
        .map_err(|error| lane_failure(&error))?;
    let elapsed = started.elapsed();
    let FeaturesRun { report, ledger, failure, sink } = run;
    let (beyond, counted) = (sink.beyond, sink.left == 0);
    let output = sink.rows.into_output().map_err(output_failure)?;
    let rows = output.finish(&ledger.losses()).map_err(output_failure)?;

    if json {
        let value = json!({
            "verb": "run",
            "app": "features",
            "lane": spec.to_string(),
            "interfaces": interfaces,
            "ports": ports,
            "output": plan.output_file(),
            "rows": rows,
            "rows_beyond_count": beyond,
            "ledger": ledger,
            "closed": ledger.is_closed(),
            "failure": failure.as_ref().map(ToString::to_string),
            "elapsed_ns": elapsed.as_nanos() as u64,
            "report": report,
        });
        terminal::print_json(&value, plan.to_stdout())?;
    } else {
        tell(rows, counted, &plan, elapsed, report.ended);
        terminal::note(ledger.table().trim_end());
    }
    if let Some(error) = failure {
        return Err(lane_failure(&error));
    }
    if let Some(complaint) = ledger.complaint() {
        return Err(Failure::Because(Exit::Invalid, complaint));
    }
    ledger.strictly(arguments.extract.strict)
}

fn tell(rows: u64, counted: bool, plan: &Extraction, elapsed: Duration, ended: Ended) {
    let why = match ended {
        Ended::Exhausted => ", to the end of the input",
        Ended::App if counted => ", to the count asked for",
        _ => "",
    };
    terminal::note(&format!(
        "{} rows to {} in {:.1} s{why}",
        grouped(rows),
        plan.output_name(),
        elapsed.as_secs_f64(),
    ));
}

/// What a port asked for and obtained, on one line.
fn opened(spec: &str, interface: &str, caps: &CapsReport) -> String {
    let names = |set: CapSet| -> String {
        let names: Vec<&str> = set.iter().map(|cap| cap.name()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(" ") }
    };
    let (asked, obtained) = (names(caps.requested), names(caps.obtained));
    let mut line = format!("{spec} on {interface}: asked for {asked}; obtained {obtained}");
    if caps.missing() != CapSet::default() {
        line.push_str(&format!("; missing as allowed {}", names(caps.missing())));
    }
    let facts: Vec<String> =
        caps.facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if !facts.is_empty() {
        line.push_str(&format!(" ({})", facts.join(", ")));
    }
    line
}

/// The lane's sentence; with the nearest name, where an interface does not exist.
fn lane_failure(error: &LaneError) -> Failure {
    let mut sentence = error.to_string();
    if let LaneError::NotFound { what: "interface", name, .. } = error {
        let there = interface_names();
        let names: Vec<&str> = there.iter().map(String::as_str).collect();
        if let Some(nearest) = nearest(name, &names) {
            sentence.push_str(&format!(" (did you mean `{nearest}`?)"));
        }
    }
    Failure::input(sentence)
}

/// As far as they can be listed.
fn interface_names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(Path::new("/sys/class/net")) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Rows up to a count; what comes behind it is counted.
struct Limited {
    rows: RowSink,
    left: u64,
    beyond: u64,
}

impl Limited {
    /// True when one more row is wanted.
    #[inline]
    fn admits(&mut self) -> bool {
        let wanted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        self.beyond += u64::from(!wanted);
        wanted
    }
}

impl Sink for Limited {
    #[inline]
    fn packet(&mut self, record: &Record) {
        if self.admits() {
            self.rows.packet(record);
        }
    }

    fn flow(&mut self, ended: &EndedFlow<'_>) {
        if self.admits() {
            self.rows.flow(ended);
        }
    }

    fn tick(&mut self, now_ns: u64) {
        self.rows.tick(now_ns);
    }

    fn is_done(&self) -> bool {
        self.left == 0 || self.rows.is_done()
    }
}
