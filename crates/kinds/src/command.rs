//! An app as a verb of `laneway run`: its arguments, what it says when it begins, and its account at the end.
//!
//! What all runs have in common (lane, interfaces, workers, CPUs, duration, traces) is the runner's to read. An app
//! adds its own arguments, turns them into a run, and accounts for what became of everything it was given.

use crate::{AppKind, ArmPlace, Keeps, LaneFacts, RunReport, Traffic, Witness};
use clap::{ArgMatches, Args, Command};
use laneway_confine::{Capability, ConfineError, Confinement, Forbidden};
use laneway_core::LaneError;
use laneway_doctor::Ask;
use laneway_metrics::Page;
use laneway_spec::LaneSpec;
use laneway_terminal::{Exit, Failure};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;

/// What the common arguments of a run say.
#[derive(Clone, Copy, Debug)]
pub struct On<'a> {
    /// The lane and its knobs.
    pub spec: &'a LaneSpec,
    /// The lane's row.
    pub lane: &'static LaneFacts,
    /// Interfaces, or files on lanes that read some, by port.
    pub interfaces: &'a [String],
    /// How many workers there will be.
    pub workers: usize,
}

/// A run that is about to begin, for an app that opens something of its own.
pub struct Session<'a> {
    /// Standard error carries JSON, so no sentences are printed.
    pub json: bool,
    /// CPUs that workers are kept on; none where the one worker is kept on no CPU in particular.
    pub worker_cpus: &'a [usize],
    /// Ends the run.
    pub stop: Arc<dyn Fn() + Send + Sync>,
    /// What the run is confined to once its lanes are open.
    pub confinement: Option<&'a Confinement>,
}

impl Session<'_> {
    /// Starts threads that help: what `start` starts is confined as the run will be, from its beginning.
    ///
    /// # Errors
    /// The kernel does not confine it; `start` was not called.
    pub fn helpers<R: Send>(&self, start: impl FnOnce() -> R + Send) -> Result<R, Failure> {
        match self.confinement {
            None => Ok(start()),
            Some(confinement) => confinement.beside(start).map_err(Failure::input),
        }
    }
}

/// What becomes of the privileges of a run once its lanes are open.
#[derive(Clone, Debug)]
pub enum Privileges {
    /// The app gives none up.
    Kept,
    /// The app would give some up, and this is why the run does not.
    KeptBecause(&'static str),
    /// No thread of the run has more than this.
    ConfinedTo(Confinement),
}

impl Privileges {
    /// Those of a run of `A`, be it `laneway run` or an arm of a race; a trace is written with all of them.
    ///
    /// # Errors
    /// On a processor that nothing can be confined on.
    pub fn of<A: AppCommand<Report: Clone>>(
        run: &A::Run,
        on: On<'_>,
        is_traced: bool,
    ) -> Result<Privileges, ConfineError> {
        let Some(Confines { capabilities: own, forbidden }) = A::confines(run, on) else {
            return Ok(Privileges::Kept);
        };
        Ok(match (on.lane.keeps)(on.spec) {
            Keeps::All(why) => Privileges::KeptBecause(why),
            Keeps::Only { .. } if is_traced => {
                Privileges::KeptBecause("a trace is written as the user who asked for it")
            }
            Keeps::Only { capabilities, calls } => {
                let kept = [capabilities, &own].concat();
                Privileges::ConfinedTo(Confinement::new(&kept, calls, forbidden)?)
            }
        })
    }

    /// What threads are to enter.
    pub fn confinement(self) -> Option<Confinement> {
        match self {
            Privileges::ConfinedTo(confinement) => Some(confinement),
            Privileges::Kept | Privileges::KeptBecause(_) => None,
        }
    }
}

/// What a run gives up once its lanes are open, beside what the lane keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confines {
    /// Privileges that it keeps for itself.
    pub capabilities: Vec<Capability>,
    /// What becomes of system calls that no run makes.
    pub forbidden: Forbidden,
}

/// How a run went, for an app's account of it.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a, R> {
    /// What the lane says of all workers together.
    pub lane: &'a RunReport,
    /// What all workers together leave behind.
    pub report: &'a R,
    /// Why the lane or the app failed, if that is what ended the run.
    pub failure: Option<&'a LaneError>,
}

/// A line of an account: name, figure, note.
pub type Line = (String, u64, &'static str);

/// What became of everything that a run was given.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// What one of them is called: `frame`, `datagram`, `connection`.
    pub one: &'static str,
    /// The heading of what was seen: `frames seen`.
    pub seen_heading: &'static str,
    /// How many the lane gave the app.
    pub seen: u64,
    /// How many of them have a fate.
    pub accounted: u64,
    /// How many were to leave, and have neither left nor been counted as lost by a lane that tells of each.
    pub unconfirmed: u64,
    /// The first line for a person, without its time: `120 rows to x.csv`. None: the number seen.
    pub headline: Option<String>,
    /// Why it ended, where that is not the lane's to say: `to the count asked for`.
    pub ended: Option<&'static str>,
    /// Fates and losses, below the heading.
    pub lines: Vec<Line>,
    /// What else a person reads, below the lines: tables of the app's own.
    pub text: String,
    /// What a program reads, beside what every run reports.
    pub json: Map<String, Value>,
}

impl Account {
    /// True when everything has exactly one fate, and nothing that was to leave is missing.
    pub fn is_closed(&self) -> bool {
        self.seen == self.accounted && self.unconfirmed == 0
    }

    /// Valid when it is closed.
    ///
    /// # Errors
    /// [`Exit::Invalid`] with the numbers.
    pub fn judge(&self) -> Result<Exit, Failure> {
        if self.is_closed() {
            return Ok(Exit::Done);
        }
        let missing = match self.unconfirmed {
            0 => String::new(),
            n => format!(", {n} neither sent nor lost"),
        };
        Err(Failure::Because(
            Exit::Invalid,
            format!(
                "the ledger is open: {} seen, {} with a fate{missing}; please report this with the command",
                self.seen, self.accounted
            ),
        ))
    }
}

/// What one of several workers did, in a line.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLine {
    /// What it was given.
    pub seen: u64,
    /// What it sent.
    pub sent: u64,
}

/// Headings of [`WorkerLine`].
#[derive(Clone, Copy, Debug)]
pub struct WorkerHeadings {
    /// Of what a worker was given.
    pub seen: &'static str,
    /// Of what it sent.
    pub sent: &'static str,
}

/// A verb of an app's own: `laneway rules`.
#[derive(Clone, Copy, Debug)]
pub struct AppVerb {
    /// Its name.
    pub name: &'static str,
    /// Its arguments; of this name, with an example that begins with the program's name.
    pub command: fn() -> Command,
    /// Does it; `json` asks for JSON instead of sentences.
    pub run: fn(&ArgMatches, json: bool) -> Result<Exit, Failure>,
}

/// A table of the reference, made from what the code itself reads.
#[derive(Clone, Debug)]
pub struct ReferenceTable {
    /// Its file, without an ending: `features-packets`.
    pub name: String,
    /// What it lists, as a heading.
    pub title: String,
    /// What its columns are.
    pub headings: Vec<&'static str>,
    /// A cell for every heading.
    pub rows: Vec<Vec<String>>,
}

/// An app that `laneway run` runs from its own arguments.
pub trait AppCommand: AppKind
where
    Self::Report: Clone,
{
    /// Its own arguments, beside those that every run has.
    type Arguments: Args;

    /// What a load asks of the host: `laneway doctor --app NAME` looks at it.
    const ASKS_OF_HOST: &'static [Ask] = &[];

    /// What `--help` adds, with an example that begins with the program's name.
    const HELP: &'static str;

    /// What a user looks up of it: the columns of its rows, its fates. `laneway manual` writes them.
    fn reference() -> Vec<ReferenceTable> {
        Vec::new()
    }

    /// A run, checked before anything is opened. What it has no use for is refused rather than ignored.
    ///
    /// # Errors
    /// Why not, with the value and what to try.
    fn plan(arguments: &Self::Arguments, on: On<'_>) -> Result<Self::Run, Failure>;

    /// What the run gives up once its lanes are open; nothing by itself.
    fn confines(_run: &Self::Run, _on: On<'_>) -> Option<Confines> {
        None
    }

    /// The interfaces to open where the user names none (`--on`) and the lane takes interfaces: those that the app's
    /// own configuration names.
    ///
    /// # Errors
    /// The configuration cannot be read: why, with the value and what to try.
    fn interfaces(_arguments: &Self::Arguments) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    /// Where each port is: `on eth1`, `at 192.0.2.9:7`.
    fn places(_run: &Self::Run, on: On<'_>) -> Vec<String> {
        on.interfaces.iter().map(|name| format!("on {name}")).collect()
    }

    /// Opens what must be there before a lane is: an output, a control socket. Called once, by the thread that
    /// starts the workers, before it is kept on a CPU.
    ///
    /// # Errors
    /// Why not, with the value and what to try.
    fn begin(_run: &Self::Run, _on: On<'_>, _session: &Session<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// A file that is removed where a second signal ends the process at once; asked for behind
    /// [`begin`](Self::begin).
    fn leftover(_run: &Self::Run) -> Option<PathBuf> {
        None
    }

    /// What the run does, in a line or several, printed when every lane is open. None: rows on standard output say
    /// it.
    fn begun(run: &Self::Run, on: On<'_>) -> Option<String>;

    /// What a result says of the run beside what its ports obtained, known when every lane is open: where flow rules
    /// are executed.
    fn opened_facts(_run: &Self::Run) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Adds the app's own figures to those that every run has, for readers of `--metrics` while it runs. Called by
    /// another thread than the workers', at most a few times per second; nothing of a worker may wait for it.
    fn metrics(_run: &Self::Run, _page: &mut Page) {}

    /// The lanes are closed: closes what [`begin`](Self::begin) opened. Called once, also when no lane could be
    /// opened.
    ///
    /// # Errors
    /// When that fails: the run's account is not given.
    fn finish(
        _run: &Self::Run,
        _on: On<'_>,
        _finished: Option<Finished<'_, Self::Report>>,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// What became of everything that all workers together were given.
    fn account(run: &Self::Run, on: On<'_>, lane: &RunReport, report: &Self::Report) -> Account;

    /// True when rows go to standard output, so that JSON goes to standard error.
    fn stdout_has_rows(_run: &Self::Run) -> bool {
        false
    }

    /// How a run that did not fail ends.
    ///
    /// # Errors
    /// An exit code with its reason; by itself, that the account is open.
    fn judge(_run: &Self::Run, account: &Account, _report: &Self::Report) -> Result<Exit, Failure> {
        account.judge()
    }

    /// The app as an arm of a race: the same, with a witness of what it is handed or delivers. By itself
    /// [`Watched`](crate::Watched).
    type Arm<'a, W: Witness + 'a>: AppKind<Report = Self::Report>
    where
        Self: 'a;

    /// A run that was planned and begun, as an arm. By itself [`WatchedRun::new`](crate::WatchedRun::new).
    fn arm<'a, W: Witness + 'a>(
        run: &'a Self::Run,
        witness: W,
    ) -> <Self::Arm<'a, W> as AppKind>::Run;

    /// The arguments that say where an arm is, such as `--address 192.0.2.9`: those of a user with the same
    /// interfaces.
    fn place(_place: &ArmPlace<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Why an arm with these arguments cannot be raced under this traffic.
    ///
    /// # Errors
    /// A sentence with the value and what to try.
    fn check_arm(_arguments: &Self::Arguments, _traffic: Traffic) -> Result<(), String> {
        Ok(())
    }

    /// The forwarding mode in which `dpdk-testpmd` does the same.
    fn testpmd_mode(_arguments: &Self::Arguments) -> Option<&'static str> {
        None
    }

    /// Verbs of its own, beside `run`.
    fn verbs() -> Vec<AppVerb> {
        Vec::new()
    }

    /// A worker's own figures for a program.
    fn worker_json(_report: &Self::Report) -> Map<String, Value> {
        Map::new()
    }

    /// What the columns of a worker's line are called.
    fn worker_headings(_run: &Self::Run) -> WorkerHeadings {
        WorkerHeadings { seen: "seen", sent: "sent" }
    }

    /// A worker's line.
    fn worker_line(_run: &Self::Run, lane: &RunReport, _report: &Self::Report) -> WorkerLine {
        let counters = lane.counters();
        WorkerLine { seen: counters.rx_frames, sent: counters.tx_frames }
    }

    /// What a worker lost, on either way.
    fn worker_lost(lane: &RunReport, _report: &Self::Report) -> u64 {
        lane.counters().lost()
    }

    /// What to try where the lane could not be opened, beyond the lane's own words.
    fn hint(_error: &LaneError, _run: &Self::Run, _on: On<'_>) -> Option<&'static str> {
        None
    }
}
