//! `laneway run APP` for any app of a table: what all apps have in common, and the account of what became of
//! everything that the app was given.

use super::live::{Finished, Live};
use super::trace::RunTrace;
use super::worker_cpus;
use crate::arguments::RunArguments;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use laneway_core::DropReason;
use laneway_engine::{Ended, RunReport, Stop};
use laneway_kinds::{
    Account, AppCommand, AppFacts, AppVerb, Ask, Finished as HowItWent, LaneFacts, On, Ports,
    Privileges, ReferenceTable, Session, Shape,
};
use laneway_metrics::Endpoint;
use laneway_page::text::{aligned, grouped};
use laneway_registry::{LaneTable, Ran, facts_of};
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// An app that `laneway run` knows by name.
pub(crate) trait RunVerb {
    /// Its row.
    fn facts(&self) -> &'static AppFacts;

    /// Its command line.
    fn command(&self) -> Command;

    /// Its own verbs, beside `run`.
    fn verbs(&self) -> Vec<AppVerb>;

    /// What a user looks up of it.
    fn reference(&self) -> Vec<ReferenceTable>;

    /// What a load asks of the host.
    fn asks_of_host(&self) -> &'static [Ask];

    /// Runs it as its arguments say.
    ///
    /// # Errors
    /// With a sentence and an exit code.
    fn run(&self, matches: &ArgMatches, json: bool) -> Result<Exit, Failure>;
}

/// The app `A` on the lanes of table `L`.
pub(crate) struct TableVerb<A, L>(PhantomData<fn() -> (A, L)>);

impl<A, L> TableVerb<A, L> {
    pub(crate) fn new() -> Self {
        TableVerb(PhantomData)
    }
}

impl<A: AppCommand<Report: Clone>, L: LaneTable> RunVerb for TableVerb<A, L> {
    fn facts(&self) -> &'static AppFacts {
        &A::FACTS
    }

    fn command(&self) -> Command {
        let command = RunArguments::augment_args(Command::new(A::FACTS.name));
        // The arguments set a description of their own in place of the app's, so the app's is set after them.
        let command = A::Arguments::augment_args(command).about(A::FACTS.about);
        command.after_help(A::HELP).arg_required_else_help(true)
    }

    fn verbs(&self) -> Vec<AppVerb> {
        A::verbs()
    }

    fn reference(&self) -> Vec<ReferenceTable> {
        A::reference()
    }

    fn asks_of_host(&self) -> &'static [Ask] {
        A::ASKS_OF_HOST
    }

    fn run(&self, matches: &ArgMatches, json: bool) -> Result<Exit, Failure> {
        let unread = |error: clap::Error| Failure::input(error.to_string());
        let common = RunArguments::from_arg_matches(matches).map_err(unread)?;
        let own = A::Arguments::from_arg_matches(matches).map_err(unread)?;
        run::<A, L>(&common, &own, json)
    }
}

fn run<A: AppCommand<Report: Clone>, L: LaneTable>(
    common: &RunArguments,
    own: &A::Arguments,
    json: bool,
) -> Result<Exit, Failure> {
    let spec = &common.lane;
    let lane = facts_of::<L>(spec).map_err(Failure::input)?;
    let cpus = worker_cpus(common.workers, &common.cpus)?;
    let workers = cpus.as_ref().map_or(1, Vec::len);
    let of_spec = (lane.named_ports)(spec);
    let named = match (common.on.is_empty(), of_spec.is_empty()) {
        (true, false) => of_spec,
        (true, true) if !lane.is_the_kernels() => A::interfaces(own)?,
        _ => common.on.clone(),
    };
    let on = On { spec, lane, interfaces: &named, workers };
    let run = A::plan(own, on)?;

    let privileges = Privileges::of::<A>(&run, on, common.trace.is_some());
    let privileges = privileges.map_err(Failure::input)?;
    if let (Privileges::KeptBecause(why_not), false) = (&privileges, json) {
        terminal::note(&format!("privileges are kept as they are: {why_not}"));
    }
    let confinement = privileges.confinement().map(Arc::new);
    let trace = RunTrace::begin(common.trace.as_deref())?;
    let stop = Stop::default();
    let to_stop = stop.clone();
    let session = Session {
        json,
        worker_cpus: cpus.as_deref().unwrap_or(common.cpu.as_slice()),
        stop: Arc::new(move || to_stop.request()),
        confinement: confinement.as_deref(),
    };
    let metrics = common.metrics.map(|at| Endpoint::bind(at, common.metrics_anywhere));
    let metrics = metrics.transpose().map_err(Failure::input)?;
    A::begin(&run, on, &session)?;
    let to_stop = stop.clone();
    let leftover = A::leftover(&run);
    session.helpers(|| terminal::on_signal(leftover, json, move || to_stop.request()))??;
    let live = Live {
        spec,
        interfaces: &named,
        force: common.force,
        duration: common.duration,
        cpu: common.cpu,
        cpus: cpus.as_deref(),
        metrics: metrics.as_ref(),
        confinement: confinement.as_ref(),
        json,
    };
    let begun = || {
        if let Some(line) = A::begun(&run, on).filter(|_| !json) {
            terminal::note(&line);
        }
    };
    let finished = live.run::<A, L>(&run, &trace, &stop, &A::places(&run, on), begun);
    let finished = match finished.and_then(|opened| {
        opened.map_err(|error| match (A::hint(&error, &run, on), Failure::from(&error)) {
            (Some(hint), Failure::Because(exit, why)) => {
                Failure::Because(exit, format!("{why}; {hint}"))
            }
            (_, failure) => failure,
        })
    }) {
        Ok(finished) => finished,
        Err(failure) => {
            // Why no lane could be opened says more than what comes of closing the rest.
            let _ = A::finish(&run, on, None);
            return Err(failure);
        }
    };
    let ran = &finished.ran;
    let failed = ran.failure.as_ref().map(|(_, error)| error);
    let together = ran.together();
    let went = together.as_ref().map(|(lane, report)| HowItWent { lane, report, failure: failed });
    A::finish(&run, on, went)?;
    // A trace that could not be written is no reason to keep back the account of what became of everything else.
    let traced = trace.end(json);
    let Some((report, together)) = &together else {
        // A run without a failure has the reports of all, and there is at least one.
        return failed.map_or_else(|| traced.map(|()| Exit::Done), |error| Err(error.into()));
    };
    let account = A::account(&run, on, report, together);
    let ending = Ending::<A> { run: &run, on, finished: &finished, report, account: &account };
    if json {
        terminal::print_json(&ending.json(cpus.is_some()), A::stdout_has_rows(&run))?;
    } else {
        ending.print(cpus.is_some());
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    traced?;
    A::judge(&run, &account, together)
}

/// A run that has ended, with the account of it.
struct Ending<'a, A: AppCommand<Report: Clone>> {
    run: &'a A::Run,
    on: On<'a>,
    finished: &'a Finished<A::Report>,
    /// The report of the lane, over all workers.
    report: &'a RunReport,
    account: &'a Account,
}

impl<A: AppCommand<Report: Clone>> Ending<'_, A> {
    fn json(&self, has_workers: bool) -> Value {
        let Finished { ran, ports, elapsed } = self.finished;
        let several = if has_workers { &ran.workers[..] } else { &[] };
        let workers = several.iter().enumerate().map(|(id, worker)| {
            let mut line = json!({ "worker": id, "cpu": worker.cpu, "report": worker.run });
            for (name, fact) in worker.report.as_ref().map(A::worker_json).unwrap_or_default() {
                line[name] = fact;
            }
            line
        });
        let mut value = json!({
            "verb": "run",
            "app": A::FACTS.name,
            "lane": self.on.spec.to_string(),
            "interfaces": self.on.interfaces,
            "ports": ports,
            "seen": self.account.seen,
            "closed": self.account.is_closed(),
            "failure": ran.failure.as_ref().map(|(_, error)| error.to_string()),
            "elapsed_ns": elapsed.as_nanos() as u64,
            "report": self.report,
            "workers": workers.collect::<Vec<Value>>(),
        });
        for (name, fact) in &self.account.json {
            value[name] = fact.clone();
        }
        value
    }

    fn print(&self, has_workers: bool) {
        let Finished { ran, elapsed, .. } = self.finished;
        terminal::note(text(self.account, self.report.ended, *elapsed).trim_end());
        if has_workers {
            terminal::note(by_worker::<A>(self.run, ran).trim_end());
        }
        let On { spec, lane, interfaces, .. } = self.on;
        let sees_frames = A::shape(self.run, lane).is_ok_and(|shape| sees_frames(lane, shape));
        let joined = self.report.counters().drops(DropReason::RxTooLong);
        // Ports that a spec names are devices, of which `ethtool` knows nothing.
        let known = if (lane.named_ports)(spec).is_empty() { interfaces } else { &[] };
        let uncut = self.report.counters().drops(DropReason::TxTooLong);
        let lines = [too_long(joined, known), too_long_to_leave(uncut, known)];
        for line in lines.into_iter().flatten().filter(|_| sees_frames) {
            terminal::note(&line);
        }
    }
}

/// The account for a person.
fn text(account: &Account, ended: Ended, elapsed: Duration) -> String {
    let plural = if account.seen == 1 { "" } else { "s" };
    let seen = || format!("{} {}{plural}", grouped(account.seen), account.one);
    let end = match (ended, account.ended) {
        (Ended::Exhausted, _) => ", to the end of the input".to_owned(),
        (_, Some(why)) => format!(", {why}"),
        _ => String::new(),
    };
    let mut lines = vec![(account.seen_heading, account.seen, "")];
    lines.extend(account.lines.iter().map(|(name, n, note)| (name.as_str(), *n, *note)));
    format!(
        "{} in {:.1} s{end}\n{}{}",
        account.headline.clone().unwrap_or_else(seen),
        elapsed.as_secs_f64(),
        aligned(&lines),
        account.text
    )
}

/// True when a run of this shape reads frames off interfaces, itself or by a stack.
fn sees_frames(lane: &LaneFacts, shape: Shape) -> bool {
    let by_stack = matches!(shape, Shape::Datagrams | Shape::Streams) && !lane.carries.has(shape);
    matches!(lane.ports, Ports::Interfaces | Ports::Devices) && (shape == Shape::Frames || by_stack)
}

/// What to do about frames that were longer than any buffer: what an interface joins is, and so are the segments that
/// the far end of a veth leaves to a device to cut.
fn too_long(frames: u64, interfaces: &[String]) -> Option<String> {
    let names: Vec<String> = interfaces.iter().map(|name| format!("`{name}`")).collect();
    let (at, off) = match interfaces {
        _ if frames == 0 => return None,
        [] => return None,
        [only] => (names.concat(), format!("ethtool -K {only} gro off lro off")),
        _ => (names.join(" or "), "ethtool -K IF gro off lro off".to_owned()),
    };
    let plural = if frames == 1 { " was" } else { "s were" };
    Some(format!(
        "{} frame{plural} longer than the lane's buffers (rx_too_long), and TCP crawls by such losses: the far end of {at} \
         leaves segments uncut if it is a veth, so `ethtool -K IF tso off gso off` there; else `{off}` here",
        grouped(frames)
    ))
}

/// What to do about frames that were longer than the MTU of the interface they were to leave by.
fn too_long_to_leave(frames: u64, interfaces: &[String]) -> Option<String> {
    if frames == 0 || interfaces.is_empty() {
        return None;
    }
    let names: Vec<String> = interfaces.iter().map(|name| format!("`{name}`")).collect();
    let plural = if frames == 1 { " was" } else { "s were" };
    Some(format!(
        "{} frame{plural} longer than the MTU of the interface to leave by (tx_too_long), and TCP crawls by such losses: \
         where the far end of {} is a veth's it leaves segments uncut, so `ethtool -K IF tso off gso off` there; else give \
         both interfaces one MTU",
        grouped(frames),
        names.join(" or ")
    ))
}

/// A line per worker: what it saw, what it sent, what was lost on either way.
fn by_worker<A: AppCommand<Report: Clone>>(run: &A::Run, ran: &Ran<A::Report>) -> String {
    let headings = A::worker_headings(run);
    let mut table = format!(
        "{:<6}  {:>3}  {:>15}  {:>15}  {:>12}\n",
        "worker", "CPU", headings.seen, headings.sent, "lost"
    );
    for (id, worker) in ran.workers.iter().enumerate() {
        let cpu = worker.cpu.map_or_else(String::new, |cpu| cpu.to_string());
        let line = match (&worker.run, &worker.report) {
            (Some(lane), Some(report)) => {
                let line = A::worker_line(run, lane, report);
                format!(
                    "{id:<6}  {cpu:>3}  {:>15}  {:>15}  {:>12}\n",
                    grouped(line.seen),
                    grouped(line.sent),
                    grouped(A::worker_lost(lane, report)),
                )
            }
            _ => format!("{id:<6}  {cpu:>3}  never began\n"),
        };
        table.push_str(&line);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::ClockDomain;
    use laneway_features::{FeaturesArguments, Ledger, RowsKind};
    use laneway_kinds::RunReport;
    use laneway_registry::{Lanes, WorkerRan};

    #[test]
    fn an_account_is_a_table_and_an_open_one_is_invalid() {
        let mut account = Account {
            one: "frame",
            seen_heading: "frames seen",
            seen: 1234,
            accounted: 1234,
            lines: vec![("  answered".to_owned(), 1234, "as asked")],
            ..Account::default()
        };
        let page = text(&account, Ended::Exhausted, Duration::from_millis(1500));
        assert!(page.starts_with("1,234 frames in 1.5 s, to the end of the input\n"), "{page}");
        assert!(page.contains("  answered") && page.contains("as asked"), "{page}");
        assert!(matches!(account.judge(), Ok(Exit::Done)));
        account.accounted = 1;
        let Err(Failure::Because(Exit::Invalid, why)) = account.judge() else { panic!("open") };
        assert!(why.contains("1234 seen, 1 with a fate; please"), "{why}");
        account = Account { accounted: 1234, unconfirmed: 3, ..account };
        let Err(Failure::Because(Exit::Invalid, why)) = account.judge() else { panic!("open") };
        assert!(why.contains("1234 with a fate, 3 neither sent nor lost;"), "{why}");
    }

    #[test]
    fn frames_beyond_the_buffers_are_reported_once_with_the_interface_and_what_to_do() {
        let names = ["eth1".to_owned(), "eth2".to_owned()];
        assert!(too_long(0, &names).is_none() && too_long(7, &[]).is_none());
        let one = too_long(1, &names[..1]).expect("a sentence");
        assert!(
            one.starts_with("1 frame was longer") && one.contains("far end of `eth1` "),
            "{one}"
        );
        assert!(one.contains("`ethtool -K IF tso off gso off` there"), "{one}");
        assert!(one.contains("`ethtool -K eth1 gro off lro off` here"), "{one}");
        assert!(too_long_to_leave(0, &names).is_none() && too_long_to_leave(7, &[]).is_none());
        let left = too_long_to_leave(1, &names).expect("a sentence");
        assert!(left.starts_with("1 frame was longer than the MTU"), "{left}");
        assert!(left.contains("`eth1` or `eth2`") && left.contains("tso off gso off"), "{left}");
        let two = too_long(1234, &names).expect("a sentence");
        assert!(two.starts_with("1,234 frames were") && two.contains("`eth1` or `eth2`"), "{two}");
        let of = |spec: &str, shape| {
            sees_frames(facts_of::<Lanes>(&spec.parse().expect("a lane")).expect("a lane"), shape)
        };
        for shape in [Shape::Frames, Shape::Datagrams, Shape::Streams] {
            assert!(of("packet", shape), "{shape:?}");
            assert!(!of("pcap", shape) && !of("sim", shape), "{shape:?}");
        }
        assert!(of("uring", Shape::Frames) && !of("uring", Shape::Datagrams));
        assert!(!of("socket", Shape::Datagrams) && !of("socket", Shape::Streams));
    }

    #[test]
    fn each_worker_has_a_line_and_one_that_never_began_says_so() {
        let command = FeaturesArguments::augment_args(Command::new("features"));
        let own = command.try_get_matches_from(["features"]).expect("all have defaults");
        let own = FeaturesArguments::from_arg_matches(&own).expect("likewise");
        let (spec, interfaces) = ("pcap".parse().expect("a lane"), ["a.pcap".to_owned()]);
        let lane = facts_of::<Lanes>(&spec).expect("a lane");
        let on = On { spec: &spec, lane, interfaces: &interfaces, workers: 2 };
        let run = RowsKind::plan(&own, on).unwrap();
        let lane =
            RunReport { ended: Ended::Stopped, ..RunReport::begun("pcap", ClockDomain::Unix) };
        let ledger = Ledger { seen: 1234, delivered: 1233, damaged: 1, ..Ledger::default() };
        let began = WorkerRan { cpu: Some(0), run: Some(lane), report: Some(ledger) };
        let never = WorkerRan { cpu: Some(5), run: None, report: None };
        let ran = Ran { workers: vec![began, never], failure: None };
        let table = by_worker::<RowsKind>(&run, &ran);
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["worker", "CPU", "seen", "delivered", "lost"]);
        assert_eq!(lines[1], ["0", "0", "1,234", "1,233", "1"]);
        assert_eq!(lines[2], ["1", "5", "never", "began"]);
    }
}
