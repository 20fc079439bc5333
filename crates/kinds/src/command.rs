//! An app as a verb of `laneway run`: its arguments, what it says when it begins, and its account at the end.
//!
//! What all runs have in common (lane, interfaces, workers, CPUs, duration, traces) is the runner's to read. An app
//! adds its own arguments, turns them into a run, and accounts for what became of everything it was given.

use crate::{AppKind, LaneFacts, RunReport};
use clap::Args;
use laneway_core::LaneError;
use laneway_spec::LaneSpec;

use serde_json::{Map, Value};

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

/// Why a run cannot begin.
#[derive(Debug)]
pub enum Refusal {
    /// A sentence with the value and what to try.
    Sentence(String),
    /// The lane's, or of what the lane needs.
    Lane(LaneError),
}

impl From<LaneError> for Refusal {
    fn from(error: LaneError) -> Refusal {
        Refusal::Lane(error)
    }
}

impl Refusal {
    /// A sentence with the value and what to try.
    pub fn new(sentence: impl ToString) -> Refusal {
        Refusal::Sentence(sentence.to_string())
    }
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
    /// Fates and losses, below the heading.
    pub lines: Vec<Line>,
    /// What a program reads, beside what every run reports.
    pub json: Map<String, Value>,
}

impl Account {
    /// True when everything has exactly one fate.
    pub fn is_closed(&self) -> bool {
        self.seen == self.accounted
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

/// An app that `laneway run` runs from its own arguments.
pub trait AppCommand: AppKind
where
    Self::Report: Clone,
{
    /// Its own arguments, beside those that every run has.
    type Arguments: Args;

    /// What `--help` adds, with an example that begins with the program's name.
    const HELP: &'static str;

    /// A run, checked before anything is opened. What it has no use for is refused rather than ignored.
    ///
    /// # Errors
    /// Why not, with the value and what to try.
    fn plan(arguments: &Self::Arguments, on: On<'_>) -> Result<Self::Run, Refusal>;

    /// Where each port is: `on eth1`, `at 192.0.2.9:7`.
    fn places(_run: &Self::Run, on: On<'_>) -> Vec<String> {
        on.interfaces.iter().map(|name| format!("on {name}")).collect()
    }

    /// What the run does, in a line or several, printed when every lane is open.
    fn begun(run: &Self::Run, on: On<'_>) -> String;

    /// What became of everything that all workers together were given.
    fn account(run: &Self::Run, on: On<'_>, lane: &RunReport, report: &Self::Report) -> Account;

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

    /// What to try where the lane could not be opened, beyond the lane's own words.
    fn hint(_error: &LaneError, _run: &Self::Run, _on: On<'_>) -> Option<&'static str> {
        None
    }
}
