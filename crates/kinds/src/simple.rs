//! An app over frames that is all there is to it: no kernel half, no sockets, nothing shared among workers.
//!
//! [`Simple`] makes a row of the table, and a verb of `laneway run`, from a [`SimpleApp`]: a frame app that is built
//! from its arguments and says at the end how many frames had each fate.

use crate::{
    Account, AppCommand, AppFacts, AppKind, Asks, Conclude, Failure, LaneFacts, NoApp, On, Place,
    RaceFacts, Report, RunReport, Shape, Watched, WatchedRun, Witness,
};
use laneway_core::{App, Burst, Counters, Fill, FrameApp, LaneError, PortId, Turn};
use serde_json::{Map, Value};
use std::marker::PhantomData;

/// How many frames, datagrams or connections had each fate, by its name, those of none included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FateReport {
    /// Name of the fate, and how many had it.
    pub fates: Vec<(&'static str, u64)>,
}

impl FateReport {
    /// How many have a fate.
    pub fn total(&self) -> u64 {
        self.fates.iter().map(|(_, n)| n).sum()
    }

    /// For a program.
    pub fn by_name(&self) -> Map<String, Value> {
        self.fates.iter().map(|&(name, n)| (name.to_owned(), n.into())).collect()
    }
}

impl Report for FateReport {
    fn merge(&mut self, other: &FateReport) {
        for (name, n) in &other.fates {
            match self.fates.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += n,
                None => self.fates.push((name, *n)),
            }
        }
    }
}

/// A frame app, built from its arguments by each worker.
pub trait SimpleApp: FrameApp + Sized + 'static {
    /// Its name on the command line and in results.
    const NAME: &'static str;
    /// What it does, in a few words.
    const ABOUT: &'static str;
    /// What a race of it is.
    const RACE: RaceFacts = RaceFacts::HANDED;
    /// Its arguments, beside those of every run.
    type Arguments: clap::Args + Clone + Sync;

    /// Builds it.
    ///
    /// # Errors
    /// Why its arguments make none: a sentence with the value and what to try.
    fn new(arguments: &Self::Arguments) -> Result<Self, String>;

    /// How many frames had each fate; every frame that it saw has exactly one.
    fn fates(&self) -> Vec<(&'static str, u64)>;
}

/// The row of a simple app.
#[derive(Debug)]
pub struct Simple<A>(PhantomData<A>);

/// A simple app at work.
pub struct SimpleWorker<A>(A);

impl<A: SimpleApp> AppKind for Simple<A> {
    const FACTS: AppFacts = AppFacts { name: A::NAME, about: A::ABOUT, race: A::RACE };
    type Run = A::Arguments;
    type Report = FateReport;
    type Frames = SimpleWorker<A>;
    type Datagrams = NoApp;
    type Streams = NoApp;
    type Kernel = NoApp;

    fn shape(_run: &A::Arguments, _lane: &LaneFacts) -> Result<Shape, LaneError> {
        Ok(Shape::Frames)
    }

    fn asks(_run: &A::Arguments) -> Asks {
        Asks::default()
    }

    fn frames(run: &A::Arguments, _place: Place<'_>) -> Result<SimpleWorker<A>, LaneError> {
        A::new(run).map(SimpleWorker).map_err(|why| LaneError::Refused {
            lane: A::NAME.to_owned(),
            name: "its arguments".to_owned(),
            why,
            hint: "change them".to_owned(),
        })
    }
}

impl<A: SimpleApp> AppCommand for Simple<A> {
    type Arguments = A::Arguments;
    const HELP: &'static str = "\
Ends at Ctrl-C or after --duration; what each port obtained, and what became of every frame, go to
standard error.

Example:
  laneway run APP --lane packet --on eth1 --duration 10";

    fn plan(arguments: &A::Arguments, _on: On<'_>) -> Result<A::Arguments, Failure> {
        A::new(arguments).map(|_| arguments.clone()).map_err(Failure::input)
    }

    fn begun(_run: &A::Arguments, _on: On<'_>) -> Option<String> {
        Some(format!("{}: {}; Ctrl-C ends", A::NAME, A::ABOUT))
    }

    fn account(_: &A::Arguments, _: On<'_>, lane: &RunReport, report: &FateReport) -> Account {
        let counters = lane.counters();
        let fates = report.fates.iter().map(|&(name, n)| (format!("  {name}"), n, ""));
        let lost = counters.nonzero_drops();
        let lost = lost.map(|(reason, n)| (reason.name().to_owned(), n, "by the lane"));
        Account {
            one: "frame",
            seen_heading: "frames seen",
            seen: counters.rx_frames,
            accounted: report.total(),
            lines: fates.chain(lost).collect(),
            json: Map::from_iter([("fates".to_owned(), Value::Object(report.by_name()))]),
            ..Account::default()
        }
    }

    type Arm<'a, W: Witness + 'a> = Watched<'a, Simple<A>, W>;

    fn arm<'a, W: Witness + 'a>(run: &'a A::Arguments, witness: W) -> WatchedRun<'a, Simple<A>, W> {
        WatchedRun::new(run, witness)
    }

    fn worker_json(report: &FateReport) -> Map<String, Value> {
        Map::from_iter([("fates".to_owned(), Value::Object(report.by_name()))])
    }
}

impl<A: SimpleApp> Conclude<FateReport> for SimpleWorker<A> {
    fn conclude(self, _run: &RunReport) -> FateReport {
        FateReport { fates: self.0.fates() }
    }
}

impl<A: SimpleApp> App for SimpleWorker<A> {
    fn on_bell(&mut self, turn: Turn) {
        self.0.on_bell(turn);
    }

    fn on_stop(&mut self, turn: Turn) {
        self.0.on_stop(turn);
    }

    fn wants_stop(&self) -> bool {
        self.0.wants_stop()
    }

    fn due_ns(&self) -> Option<u64> {
        self.0.due_ns()
    }

    fn counters(&self) -> &Counters {
        self.0.counters()
    }
}

impl<A: SimpleApp> FrameApp for SimpleWorker<A> {
    #[inline]
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn) {
        self.0.on_burst(port, burst, turn);
    }

    fn fill(&mut self, port: PortId, burst: &mut Burst, turn: Turn) -> Fill {
        self.0.fill(port, burst, turn)
    }

    fn on_tick(&mut self, turn: Turn) {
        self.0.on_tick(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_workers_add_up_by_the_name_of_the_fate() {
        let mut sum = FateReport { fates: vec![("answered", 2), ("passed", 1)] };
        sum.merge(&FateReport { fates: vec![("passed", 4), ("dropped", 8)] });
        assert_eq!(sum.fates, [("answered", 2), ("passed", 5), ("dropped", 8)]);
        assert_eq!(sum.total(), 15);
    }
}
