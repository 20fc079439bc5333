//! `laneway run forward`: testpmd's modes and flow rules between interfaces, or on captures.
//!
//! ```text
//!   --rules, --rule ─────────────┐
//!   standard input ── talk ──────┼─▶ Console (the app's) ─▶ rule set ─▶ workers, kernel, ports
//!   control socket ── control ───┘
//! ```
//! All of them have their commands carried out by the app's [`Console`], which answers a command when its
//! change is in force.

mod control;
mod lines;
mod talk;

use self::control::ControlSocket;
use self::talk::Talk;
use super::live::{Finished, Live, on};
use super::trace::RunTrace;
use super::worker_cpus;
use crate::arguments::ForwardArguments;
use laneway_core::{CapsReport, DropReason, LaneError};
use laneway_engine::{Ended, PortReport, RunReport, Stop};
use laneway_forward::{
    CommandError, Config, Console, Fate, ForwardKind, ForwardReport, ForwardRun, LiveStats, Mode,
    QUEUES_MAX, RuleSet, Stats, check_on, parse_command,
};
use laneway_kinds::{LaneFacts, Ports, Shape};
use laneway_netns::Mac;
use laneway_page::text::{aligned, grouped};
use laneway_registry::{LaneTable, WorkerRan, facts_of};
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Bytes of a file of rules: as many as the largest set has, and some.
const RULES_FILE_BYTES_MAX: u64 = 256 << 20;
/// Rules of a port that a person is shown at the end; programs get all.
const RULES_SHOWN_MAX: usize = 100;

pub(super) fn run<L: LaneTable>(arguments: &ForwardArguments, json: bool) -> Result<Exit, Failure> {
    let spec = &arguments.lane;
    let lane = facts_of::<L>(spec).map_err(Failure::input)?;
    check(arguments, lane)?;
    let cpus = worker_cpus(arguments.workers, &arguments.cpus)?;
    let config = config(arguments, cpus.as_ref().map_or(1, Vec::len));
    check_on(lane, &config).map_err(Failure::input)?;
    let console = console(arguments, lane, &config, json)?.map(Arc::new);
    // Removed when it is dropped, or by the second signal.
    let socket = arguments.control.as_deref().map(ControlSocket::open).transpose()?;

    let stop = Stop::default();
    let trace = RunTrace::begin(arguments.trace.as_deref())?;
    let to_stop = stop.clone();
    terminal::on_signal(arguments.control.clone(), json, move || to_stop.request())?;
    if let (Some(socket), Some(console)) = (&socket, &console) {
        socket.serve(console)?;
    }
    let run = ForwardRun::new(config, console.clone()).map_err(Failure::input)?;
    let live = Live {
        spec,
        interfaces: &arguments.on,
        force: arguments.force,
        duration: arguments.duration,
        cpu: arguments.cpu,
        cpus: cpus.as_deref(),
        json,
    };
    let begun = || begin(arguments, json, console.as_ref(), &stop);
    let finished = live.run::<ForwardKind, L>(&run, &trace, &stop, &on(&arguments.on), begun)?;
    // From here on nothing that is reported may change.
    drop(socket);
    let Finished { ran, ports, elapsed } = finished.map_err(Failure::from)?;
    trace.end(json)?;
    stop.request();
    let Some((run, report)) = ran.together() else {
        // A run without a failure has the reports of all, and there is at least one.
        return Ok(Exit::Done);
    };
    let failure = ran.failure.map(|(_, error)| error);
    let workers = if cpus.is_some() { ran.workers } else { Vec::new() };
    let mut set = console.as_ref().map(|console| console.rules());
    let rules = set.as_deref().map(told_rules).unwrap_or_default();
    let told = Told { arguments, run, report, failure, lane, rules, workers };
    if json {
        terminal::print_json(&told.json(&ports, elapsed), false)?;
    } else {
        terminal::note(told.text(elapsed, set.as_deref_mut()).trim_end());
    }
    if let Some(error) = &told.failure {
        return Err(error.into());
    }
    told.judge()
}

/// What would be left undone in silence, or never end.
fn check(arguments: &ForwardArguments, lane: &LaneFacts) -> Result<(), Failure> {
    let refused = |why: String| Err(Failure::input(why));
    let on = &arguments.on;
    let twice = (1..on.len()).find(|&port| on[..port].contains(&on[port]));
    if let Some(port) = twice.filter(|_| lane.ports != Ports::Files) {
        return refused(format!(
            "--on {} is given twice: what it sends would come back to it for ever; name each interface \
             once (a port alone sends back)",
            on[port]
        ));
    }
    let mode = arguments.mode;
    let only = |flag: &str, needs: Mode| {
        refused(format!(
            "{flag} is for mode {}, and this run is in mode {}; use --mode {0}, or leave {flag} out",
            needs.word(),
            mode.word()
        ))
    };
    if mode != Mode::Mac && !arguments.peer.is_empty() {
        return only("--peer", Mode::Mac);
    }
    match mode {
        Mode::L3 if arguments.route.is_empty() => refused(
            "mode l3 has no --route, so it would drop every frame; --route '0.0.0.0/0 port 0' sends all \
             IPv4 to port 0"
                .to_owned(),
        ),
        Mode::L3 => Ok(()),
        _ if !arguments.route.is_empty() => only("--route", Mode::L3),
        _ if !arguments.neighbour.is_empty() => only("--neighbour", Mode::L3),
        _ => Ok(()),
    }
}

/// What is said and begun when the lanes are open.
fn begin(arguments: &ForwardArguments, json: bool, console: Option<&Arc<Console>>, stop: &Stop) {
    if !json {
        let end = if arguments.interactive { "`quit` or Ctrl-C ends" } else { "Ctrl-C ends" };
        terminal::note(&format!("forwarding, mode {}; {end}", arguments.mode.word()));
    }
    if let Some(console) = console.filter(|_| arguments.interactive) {
        let talk = Talk { console: Arc::clone(console), stop: stop.clone(), json };
        // Ends with the process; a run that is over already does not mind.
        thread::spawn(move || talk.listen(io::stdin().lock()));
    }
}

/// What one of several workers did.
fn worker_json(worker: &WorkerRan<ForwardReport>) -> Value {
    let (Some(run), Some(report)) = (&worker.run, &worker.report) else {
        return json!({ "cpu": worker.cpu });
    };
    json!({
        "cpu": worker.cpu,
        "fates": fates_by_name(&report.stats),
        "unlearned": report.unlearned,
        "report": run,
    })
}

fn fates_by_name(stats: &Stats) -> Map<String, Value> {
    let fates = Fate::ALL.iter();
    fates.map(|&fate| (fate.name().to_owned(), stats.frames(fate).into())).collect()
}

fn config(arguments: &ForwardArguments, workers: usize) -> Config {
    let own: Vec<Option<Mac>> = arguments.on.iter().map(|name| own_mac(name)).collect();
    Config {
        mode: arguments.mode,
        ports: arguments.on.len(),
        queues: arguments.queues.unwrap_or_else(|| workers.min(QUEUES_MAX) as u16),
        // The list is by port: from the first port without an address on, the app's own choice holds.
        own: own.into_iter().map_while(|mac| mac.map(|mac| mac.0)).collect(),
        peers: arguments.peer.iter().map(|mac| mac.0).collect(),
        routes: arguments.route.clone(),
        neighbours: arguments.neighbour.clone(),
        hash_seed: RandomState::new().build_hasher().finish(),
        ..Config::default()
    }
}

/// The interface's own address, if it is an interface that has one now.
fn own_mac(interface: &str) -> Option<Mac> {
    let is_one_name = !interface.contains('/') && !interface.is_empty() && interface != "..";
    let path = Path::new("/sys/class/net").join(interface).join("address");
    let text = is_one_name.then(|| fs::read_to_string(path).ok())??;
    text.trim().parse().ok().filter(|mac: &Mac| mac.is_assignable())
}

/// The rules to begin with and whom one can talk to about them; none where none are given and none can
/// come.
fn console(
    arguments: &ForwardArguments,
    lane: &LaneFacts,
    config: &Config,
    json: bool,
) -> Result<Option<Console>, Failure> {
    let can_come = arguments.interactive || arguments.control.is_some();
    if arguments.rules.is_none() && arguments.rule.is_empty() && !can_come {
        return Ok(None);
    }
    // Nobody reads the set yet, so nothing makes a commit wait.
    let set = match lane.carries.has(Shape::Kernel) {
        true => RuleSet::for_kernel(config.bounds()),
        false => RuleSet::for_user(config.bounds()),
    };
    let console = Console::new(set, LiveStats::default());
    if let Some(path) = &arguments.rules {
        let text = read_rules(path)?;
        console.load(&text).map_err(|error| in_file(path, &text, &error))?;
    }
    for line in &arguments.rule {
        let command = parse_command(line).map_err(CommandError::from);
        let said = command
            .and_then(|command| console.execute(command))
            .map_err(|error| Failure::input(one_line(&format!("--rule '{line}'"), 0, &error)))?;
        if !json && !said.is_empty() {
            terminal::note(said.trim_end());
        }
    }
    Ok(Some(console))
}

fn read_rules(path: &Path) -> Result<String, Failure> {
    let cannot = |why: String| {
        Failure::input(format!("cannot read the rules of {}: {why}; check --rules", path.display()))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| cannot(error.to_string()))?;
    file.take(RULES_FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| cannot(error.to_string()))?;
    if text.len() as u64 > RULES_FILE_BYTES_MAX {
        return Err(cannot(format!("it has more than {RULES_FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The place in the file, line and column, and what is wrong there.
fn in_file(path: &Path, text: &str, error: &CommandError) -> Failure {
    let CommandError::InFile { line, why } = error else {
        return Failure::input(one_line(&path.display().to_string(), 0, error));
    };
    let whole = text.lines().nth(line - 1).unwrap_or_default();
    let indent = whole.chars().take_while(|c| c.is_whitespace()).count();
    Failure::input(one_line(&format!("{}, line {line}", path.display()), indent, why))
}

/// The error in one sentence; `indent` characters stand in front of what was read.
fn one_line(place: &str, indent: usize, error: &CommandError) -> String {
    let CommandError::Syntax(wrong) = error else { return format!("{place}: {error}") };
    let found = match wrong.found.as_str() {
        "" => "the end of the line".to_owned(),
        word => format!("`{word}`"),
    };
    format!("{place}, column {}: found {found}, {}", wrong.column + indent, wrong.expected)
}

/// A rule at the end of the run.
struct ToldRule {
    port: u16,
    id: u32,
    text: String,
    hits: u64,
    bytes: u64,
    place: &'static str,
    reason: String,
}

fn told_rules(set: &RuleSet) -> Vec<ToldRule> {
    let ports = 0..set.ports();
    ports
        .flat_map(|port| {
            set.rules(port).map(move |(id, rule, placement)| (port, id, rule, placement))
        })
        .map(|(port, id, rule, placement)| {
            let hits = set.hits(port, id).unwrap_or_default();
            ToldRule {
                port,
                id,
                text: rule.to_string(),
                hits: hits.frames,
                bytes: hits.bytes,
                place: placement.place.name(),
                reason: placement.reason.to_string(),
            }
        })
        .collect()
}

/// What there is to say at the end.
struct Told<'a> {
    arguments: &'a ForwardArguments,
    /// Of all workers together.
    run: RunReport,
    report: ForwardReport,
    failure: Option<LaneError>,
    lane: &'static LaneFacts,
    rules: Vec<ToldRule>,
    /// Where there were several.
    workers: Vec<WorkerRan<ForwardReport>>,
}

/// Reasons under which a lane counts a frame that it was to send and did not.
const NOT_SENT: [DropReason; 3] =
    [DropReason::TxRefused, DropReason::TxTooLong, DropReason::TxNoPort];

impl Told<'_> {
    fn in_kernel(&self) -> bool {
        self.lane.carries.has(Shape::Kernel)
    }

    /// What the lane gave the app.
    fn seen(&self) -> u64 {
        self.run.counters().rx_frames
    }

    /// Frames that were to leave and have neither left nor been counted as lost. In the kernel only the
    /// lost ones are counted.
    fn unconfirmed(&self) -> u64 {
        if self.in_kernel() {
            return 0;
        }
        let counters = self.run.counters();
        let copies = self.arguments.on.len() as u64 - 1;
        let to_leave = self.report.stats.frames(Fate::Forwarded)
            + self.report.stats.frames(Fate::Flooded) * copies;
        let lost: u64 = NOT_SENT.iter().map(|&reason| counters.drops(reason)).sum();
        to_leave.saturating_sub(counters.tx_frames + lost)
    }

    fn is_closed(&self) -> bool {
        // io_uring tells of a frame when it is sent: the last ones are on the way at the end.
        let may_be_on_the_way = self.lane.confirms_late;
        self.seen() == self.report.stats.total() && (may_be_on_the_way || self.unconfirmed() == 0)
    }

    fn judge(&self) -> Result<Exit, Failure> {
        if self.is_closed() {
            return Ok(Exit::Done);
        }
        Err(Failure::Because(
            Exit::Invalid,
            format!(
                "the ledger is open: {} frames seen, {} with a fate, {} neither sent nor lost; please \
                 report this with the command",
                self.seen(),
                self.report.stats.total(),
                self.unconfirmed()
            ),
        ))
    }

    /// Frames by the queue that a rule chose.
    fn queues(&self) -> Vec<(usize, u64)> {
        let frames = self.report.stats.queue_frames.iter().copied().enumerate().take(QUEUES_MAX);
        frames.filter(|&(_, n)| n > 0).collect()
    }

    /// Losses of the lane by port. In the kernel the lane counts the app's as well: those are fates, which
    /// are told as such.
    fn losses(&self) -> Vec<BTreeMap<DropReason, u64>> {
        let has_fate = |reason| {
            let is_of = |fate: &Fate| fate.drop_reason() == Some(reason);
            self.in_kernel() && Fate::ALL.iter().any(is_of)
        };
        let of_port = |port: &PortReport| {
            port.counters.nonzero_drops().filter(|&(reason, _)| !has_fate(reason)).collect()
        };
        self.run.ports.iter().map(of_port).collect()
    }

    fn json(&self, caps: &[CapsReport], elapsed: Duration) -> Value {
        let workers: Vec<Value> = self.workers.iter().map(worker_json).collect();
        let queues: Map<String, Value> =
            self.queues().into_iter().map(|(queue, n)| (queue.to_string(), n.into())).collect();
        let rules: Vec<Value> = self
            .rules
            .iter()
            .map(|rule| {
                json!({
                    "port": rule.port,
                    "id": rule.id,
                    "rule": rule.text,
                    "hits": rule.hits,
                    "bytes": rule.bytes,
                    "place": rule.place,
                    "reason": rule.reason,
                })
            })
            .collect();
        json!({
            "verb": "run",
            "app": "forward",
            "mode": self.arguments.mode.word(),
            "lane": self.arguments.lane.to_string(),
            "interfaces": self.arguments.on,
            "ports": caps,
            "seen": self.seen(),
            "fates": fates_by_name(&self.report.stats),
            "queues": queues,
            "unlearned": self.report.unlearned,
            "unconfirmed": self.unconfirmed(),
            "rules": rules,
            "closed": self.is_closed(),
            "failure": self.failure.as_ref().map(ToString::to_string),
            "elapsed_ns": elapsed.as_nanos() as u64,
            "report": self.run,
            "workers": workers,
        })
    }

    fn text(&self, elapsed: Duration, rules: Option<&mut RuleSet>) -> String {
        let end = match self.run.ended {
            Ended::Exhausted => ", to the end of the input",
            _ => "",
        };
        let seconds = elapsed.as_secs_f64();
        let mut text = format!("{} frames in {seconds:.1} s{end}\n", grouped(self.seen()));
        let mut lines = vec![("frames".to_owned(), self.seen(), "")];
        let fates = self.report.stats.nonzero();
        lines.extend(fates.map(|(fate, n)| (format!("  {}", fate.name()), n, "")));
        let queues = self.queues().into_iter();
        lines.extend(queues.map(|(queue, n)| (format!("to queue {queue}"), n, "by rules")));
        if self.report.unlearned > 0 {
            lines.push((
                "stations not learned".to_owned(),
                self.report.unlearned,
                "the table was full",
            ));
        }
        if self.unconfirmed() > 0 {
            lines.push(("on the way".to_owned(), self.unconfirmed(), "when it ended"));
        }
        text.push_str(&aligned(
            &lines.iter().map(|(name, n, note)| (name.as_str(), *n, *note)).collect::<Vec<_>>(),
        ));
        self.say_ports(&mut text);
        self.say_workers(&mut text);
        if let Some(rules) = rules {
            self.say_rules(&mut text, rules);
        }
        text
    }

    /// A line per port, and one per reason of a loss. The kernel half counts its ports together.
    fn say_ports(&self, text: &mut String) {
        let name = |port: usize| match self.in_kernel() {
            true => "all",
            false => self.arguments.on.get(port).map_or("", String::as_str),
        };
        let names = (0..self.run.ports.len()).map(|port| name(port).len());
        let chars = names.max().unwrap_or(0).max("interface".len());
        // A String takes whatever it is given, here and below.
        let _ = writeln!(
            text,
            "port  {:<chars$}  {:>15}  {:>15}  {:>15}",
            "interface", "received", "sent", "passed"
        );
        for (port, report) in self.run.ports.iter().enumerate() {
            let counters = &report.counters;
            // Of what leaves by a redirect, only the losses are counted.
            let sent = match self.in_kernel() {
                true => "by redirect".to_owned(),
                false => grouped(counters.tx_frames),
            };
            let passed = match self.in_kernel() {
                true => self.report.stats.frames(Fate::Passed),
                false => counters.passed,
            };
            let _ = writeln!(
                text,
                "{port:<4}  {:<chars$}  {:>15}  {sent:>15}  {:>15}",
                name(port),
                grouped(counters.rx_frames),
                grouped(passed),
            );
        }
        for (port, losses) in self.losses().iter().enumerate() {
            for (reason, n) in losses {
                let _ = writeln!(text, "port {port} lost {} {}", grouped(*n), reason.name());
            }
        }
    }

    /// A line for each of several workers: what it saw, what it sent, what its queues lost.
    fn say_workers(&self, text: &mut String) {
        if self.workers.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "worker  {:>3}  {:>15}  {:>15}  {:>15}",
            "CPU", "received", "sent", "lost"
        );
        for (id, worker) in self.workers.iter().enumerate() {
            let cpu = worker.cpu.map_or_else(String::new, |cpu| cpu.to_string());
            let Some(run) = &worker.run else {
                let _ = writeln!(text, "{id:<6}  {cpu:>3}  never began");
                continue;
            };
            let counters = run.counters();
            let _ = writeln!(
                text,
                "{id:<6}  {cpu:>3}  {:>15}  {:>15}  {:>15}",
                grouped(counters.rx_frames),
                grouped(counters.tx_frames),
                grouped(counters.lost()),
            );
        }
    }

    /// As `flow list` and `flow query` say it, and where each rule was executed.
    fn say_rules(&self, text: &mut String, set: &mut RuleSet) {
        let mut set_ports: Vec<u16> = self.rules.iter().map(|rule| rule.port).collect();
        set_ports.dedup();
        for port in set_ports {
            let rules = || self.rules.iter().filter(|rule| rule.port == port);
            let list = format!("flow list {port}");
            let listed = set.run(&list).unwrap_or_default();
            let _ = writeln!(text, "{list}");
            for line in listed.lines().take(RULES_SHOWN_MAX + 1) {
                let _ = writeln!(text, "{line}");
            }
            for rule in rules().take(RULES_SHOWN_MAX) {
                let _ = writeln!(
                    text,
                    "flow query {port} {}: hits: {} bytes: {}; {}: {}",
                    rule.id, rule.hits, rule.bytes, rule.place, rule.reason
                );
            }
            let beyond = rules().count().saturating_sub(RULES_SHOWN_MAX);
            if beyond > 0 {
                let _ =
                    writeln!(text, "... and {} more, which --json tells", grouped(beyond as u64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_forward::Bounds;

    const DROP: &str = "flow create 0 ingress pattern eth / ipv4 / end actions drop / count / end";

    fn set() -> RuleSet {
        RuleSet::for_user(Bounds { ports: 2, queues: 1 })
    }

    fn sentence(failure: &Failure) -> &str {
        let Failure::Because(Exit::BadInput, sentence) = failure else { panic!("{failure:?}") };
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        sentence
    }

    #[test]
    fn an_error_in_a_file_shows_line_and_column_of_the_file() {
        let path = Path::new("rules.txt");
        for (text, place) in [
            (
                format!("# ours\n{DROP}\n   flow crate 0\n"),
                "rules.txt, line 3, column 9: found `crate`",
            ),
            (format!("{DROP} more"), "rules.txt, line 1, column 75: found `more`"),
            ("flow flush 0".to_owned(), "rules.txt, line 1: only `flow create`"),
            (DROP.replace("create 0", "create 7"), "rules.txt, line 1: port 7: flow rule refused"),
        ] {
            let error = set().load(&text).unwrap_err();
            let failure = in_file(path, &text, &error);
            assert!(sentence(&failure).starts_with(place), "{} / {place}", sentence(&failure));
        }
    }
}
