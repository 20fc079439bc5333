//! A recording of the instrumented program ([`program/worker.c`](../program/worker.c)) under LTTng-UST.
//!
//! It keeps the account of its fault itself; what the scheduler did to it is in that account, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::ours::{self, Neighbour};
use crate::world::{NotMade, Running, World, json};

/// Calls by which the tracer's cost is measured.
const CALIBRATION_CALLS: u64 = 200_000;

/// What is run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// How long, ms.
    pub(crate) ms: u64,
    /// The program's arguments by name.
    pub(crate) arguments: Vec<(&'static str, u64)>,
    /// With what the kernel does.
    pub(crate) kernel: bool,
    /// What runs beside it.
    pub(crate) neighbour: Option<Neighbour>,
}

impl Plan {
    /// So many ms with these arguments.
    #[must_use]
    pub(crate) fn new(ms: u64, arguments: &[(&'static str, u64)]) -> Plan {
        Plan { ms, arguments: arguments.to_vec(), kernel: false, neighbour: None }
    }

    /// One argument more.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: u64) -> Plan {
        self.arguments.push((name, value));
        self
    }

    fn words(&self, truth: &Path) -> Vec<String> {
        let mut words = vec![format!("milliseconds={}", self.ms)];
        words.extend(self.arguments.iter().map(|(name, value)| format!("{name}={value}")));
        words.push(format!("truth={}", truth.display()));
        words
    }
}

/// What was recorded, and what the program knows of it.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The trace.
    pub(crate) trace: PathBuf,
    /// The kernel's part of it has page faults.
    pub(crate) has_faults: bool,
    own: Value,
}

impl Recorded {
    /// A figure of the program's account, by its name there.
    #[must_use]
    pub(crate) fn figure(&self, name: &str) -> u64 {
        self.own[name].as_u64().unwrap_or(0)
    }
}

/// Records it into `folder`.
///
/// # Errors
/// Whatever failed, with its message.
pub(crate) fn record(world: &World, plan: &Plan, folder: &Path) -> Result<Recorded, NotMade> {
    let (trace, truth) = (folder.join("trace"), folder.join("own.json"));
    let program = world.worker()?;
    let mut command = Command::new(world.laneway());
    command.args(["trace", "record", "--json", "--lttng"]).arg("--out").arg(&trace);
    if plan.kernel {
        command.arg("--kernel");
    }
    command.arg("--").arg(program).args(plan.words(&truth));
    let neighbour = plan.neighbour.map(|n| ours::neighbour(world, n, plan.ms)).transpose()?;
    let ended = Running::start("the recorder", &mut command)?.end();
    drop(neighbour);
    let report = ended.map_err(|why| match why {
        // As `trace record` says of a package that is not there.
        NotMade::Failed(words) if words.contains("apt") => NotMade::Skipped(words),
        other => other,
    })?;
    let report = json("the recorder", &report.stdout)?;
    let has_faults = plan.kernel && report["kernel"]["without_page_faults"].is_null();
    Ok(Recorded { trace, has_faults, own: own(&truth)? })
}

/// Runs it without a recorder.
///
/// # Errors
/// Whatever failed, with its message.
pub(crate) fn run_untraced(world: &World, plan: &Plan, folder: &Path) -> Result<Recorded, NotMade> {
    let truth = folder.join("untraced.json");
    let mut command = Command::new(world.worker()?);
    command.args(plan.words(&truth));
    Running::start("the program", &mut command)?.end()?;
    Ok(Recorded { trace: PathBuf::new(), has_faults: false, own: own(&truth)? })
}

impl World {
    /// What LTTng takes per call here, ns: the same calls with and without a recorder, measured once.
    ///
    /// # Errors
    /// It cannot be measured.
    pub fn tracer_ns_per_call(&self) -> Result<f64, NotMade> {
        let measure = || {
            let folder = self.folder("calibration")?;
            let plan = Plan::new(0, &[("calibrate", CALIBRATION_CALLS)]);
            let without = run_untraced(self, &plan, &folder)?.figure("span_ns");
            let with = record(self, &plan, &folder)?.figure("span_ns");
            // The trace is not wanted; what cannot be removed goes with the folder around it.
            let _ = fs::remove_dir_all(&folder);
            Ok((with as f64 - without as f64).max(0.0) / CALIBRATION_CALLS as f64)
        };
        self.tracer.get_or_init(measure).clone()
    }
}

fn own(truth: &Path) -> Result<Value, NotMade> {
    let bytes = fs::read(truth)
        .map_err(|error| NotMade::Failed(format!("the program left no truth: {error}")))?;
    json("the program", &bytes)
}
