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
use super::trace::RunTrace;
use super::{end_after, lane_failure, opened, worker_cpus};
use crate::arguments::ForwardArguments;
use crate::exit::{Exit, Failure};
use crate::ledger::{aligned, grouped};
use crate::registry::{
    ForwardRun, ForwardWorkersRun, Lane, OpenOptions, WorkerFates, check_forward, forward_rules,
    run_forward, run_forward_with, run_forward_workers,
};
use crate::{interrupt, terminal};
use laneway_core::{CapsReport, DropReason};
use laneway_engine::{Control, Ended, PortReport, RunReport, Stop, WorkerId, Workers};
use laneway_forward::{
    CommandError, Config, Console, Fate, LiveStats, Mode, QUEUES_MAX, RuleSet, Stats, parse_command,
};
use laneway_netns::Mac;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a file of rules: as many as the largest set has, and some.
const RULES_FILE_BYTES_MAX: u64 = 256 << 20;
/// Rules of a port that a person is shown at the end; programs get all.
const RULES_SHOWN_MAX: usize = 100;

pub(super) fn run(arguments: &ForwardArguments, json: bool) -> Result<Exit, Failure> {
    let spec = &arguments.lane;
    let lane = Lane::of(spec).map_err(Failure::input)?.lane;
    let interfaces: Vec<&str> = arguments.on.iter().map(String::as_str).collect();
    check(arguments, lane)?;
    let cpus = worker_cpus(arguments.workers, &arguments.cpus)?;
    let config = config(arguments, cpus.as_ref().map_or(1, Vec::len));
    check_forward(spec, &config).map_err(Failure::input)?;
    let console = console(arguments, &config, json)?.map(Arc::new);
    // Removed when it is dropped, or by the second signal.
    let socket = arguments.control.as_deref().map(ControlSocket::open).transpose()?;

    let stop = Stop::default();
    let trace = RunTrace::begin(arguments.trace.as_deref())?;
    let to_stop = stop.clone();
    interrupt::on_signal(arguments.control.clone(), json, move || to_stop.request())?;
    if let (Some(socket), Some(console)) = (&socket, &console) {
        socket.serve(console)?;
    }
    let opening = Opening {
        arguments,
        json,
        console: console.as_ref(),
        stop: &stop,
        cpus: cpus.as_deref(),
        opened: Mutex::new(Opened { ports: Vec::new(), workers: 0, started: Instant::now() }),
    };
    let (run, workers) = match &cpus {
        None => {
            let trace = trace.slot(0, arguments.cpu)?;
            let control = Control { stop: stop.clone(), trace, ..Control::default() };
            let options = OpenOptions { force: arguments.force, cpu: arguments.cpu };
            let on_open = |caps: &[CapsReport]| opening.open(None, caps);
            let run = match &console {
                Some(console) => run_forward_with(
                    console,
                    spec,
                    &interfaces,
                    &config,
                    options,
                    &control,
                    on_open,
                ),
                None => run_forward(spec, &interfaces, &config, None, options, &control, on_open),
            };
            (run.map_err(|error| lane_failure(&error))?, Vec::new())
        }
        Some(cpus) => {
            let workers = Workers::new(cpus, stop.clone()).map_err(Failure::input)?;
            let workers = workers.traced(trace.slots(cpus)?);
            let run = run_forward_workers(
                console.as_deref(),
                spec,
                &interfaces,
                &config,
                arguments.force,
                &workers,
                |worker, caps| opening.open(Some(worker), caps),
            );
            let run = run.map_err(|error| lane_failure(&error))?;
            let each = ToldWorker::of(&run);
            let Some(together) = run.together() else {
                // A run without a failure has the reports of all, and there is at least one.
                return Ok(Exit::Done);
            };
            (together, each)
        }
    };
    // From here on nothing that is told may change.
    drop(socket);
    let Opened { ports, started, .. } =
        opening.opened.into_inner().unwrap_or_else(PoisonError::into_inner);
    let elapsed = started.elapsed();
    trace.end(json)?;
    stop.request();
    let mut set = console.as_ref().map(|console| console.rules());
    let rules = set.as_deref().map(told_rules).unwrap_or_default();
    let told = Told { arguments, run, lane, rules, workers };
    if json {
        terminal::print_json(&told.json(&ports, elapsed), false)?;
    } else {
        terminal::note(told.text(elapsed, set.as_deref_mut()).trim_end());
    }
    if let Some(error) = &told.run.failure {
        return Err(lane_failure(error));
    }
    told.judge()
}

/// What would be left undone in silence, or never end.
fn check(arguments: &ForwardArguments, lane: Lane) -> Result<(), Failure> {
    let refused = |why: String| Err(Failure::input(why));
    let on = &arguments.on;
    let twice = (1..on.len()).find(|&port| on[..port].contains(&on[port]));
    if let Some(port) = twice.filter(|_| lane != Lane::Pcap) {
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

/// What is said and begun when the lanes are open, by whichever worker comes last.
struct Opening<'a> {
    arguments: &'a ForwardArguments,
    json: bool,
    console: Option<&'a Arc<Console>>,
    stop: &'a Stop,
    /// Of several workers.
    cpus: Option<&'a [usize]>,
    opened: Mutex<Opened>,
}

struct Opened {
    /// Of the worker that came first.
    ports: Vec<CapsReport>,
    workers: usize,
    started: Instant,
}

impl Opening<'_> {
    /// A worker's lane is open; its number where there are several.
    fn open(&self, worker: Option<WorkerId>, caps: &[CapsReport]) {
        let Opening { arguments, json, .. } = *self;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if !json {
            let who = match (worker, self.cpus) {
                (Some(worker), Some(cpus)) => {
                    format!("worker {} on CPU {}: ", worker.0, cpus[worker.0])
                }
                _ => String::new(),
            };
            for (interface, caps) in arguments.on.iter().zip(caps) {
                let place = format!("on {interface}");
                let line = self::opened(&arguments.lane.to_string(), &place, caps);
                terminal::note(&format!("{who}{line}"));
            }
        }
        if opened.workers == 0 {
            opened.ports = caps.to_vec();
        }
        opened.workers += 1;
        if opened.workers < self.cpus.map_or(1, <[usize]>::len) {
            return;
        }
        opened.started = Instant::now();
        if !json {
            let end = if arguments.interactive { "`quit` or Ctrl-C ends" } else { "Ctrl-C ends" };
            terminal::note(&format!("forwarding, mode {}; {end}", arguments.mode.word()));
        }
        if let Some(console) = self.console.filter(|_| arguments.interactive) {
            let talk = Talk { console: Arc::clone(console), stop: self.stop.clone(), json };
            // Ends with the process; a run that is over already does not mind.
            thread::spawn(move || talk.listen(io::stdin().lock()));
        }
        end_after(arguments.duration, self.stop);
    }
}

/// What one of several workers did, at the end of the run.
struct ToldWorker {
    cpu: usize,
    /// Nothing if it never began.
    run: Option<(RunReport, WorkerFates)>,
}

impl ToldWorker {
    fn of(run: &ForwardWorkersRun) -> Vec<ToldWorker> {
        let each = run.report.workers.iter().zip(&run.fates);
        each.map(|(worker, fates)| ToldWorker {
            cpu: worker.cpu,
            run: worker.run.clone().zip(fates.clone()),
        })
        .collect()
    }

    fn json(&self) -> Value {
        let Some((report, fates)) = &self.run else { return json!({ "cpu": self.cpu }) };
        json!({
            "cpu": self.cpu,
            "fates": fates_by_name(&fates.stats),
            "unlearned": fates.unlearned,
            "report": report,
        })
    }
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
    config: &Config,
    json: bool,
) -> Result<Option<Console>, Failure> {
    let can_come = arguments.interactive || arguments.control.is_some();
    if arguments.rules.is_none() && arguments.rule.is_empty() && !can_come {
        return Ok(None);
    }
    // Nobody reads the set yet, so nothing makes a commit wait.
    let set = forward_rules(&arguments.lane, config).map_err(Failure::input)?;
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
    run: ForwardRun,
    lane: Lane,
    rules: Vec<ToldRule>,
    /// Where there were several.
    workers: Vec<ToldWorker>,
}

/// Reasons under which a lane counts a frame that it was to send and did not.
const NOT_SENT: [DropReason; 3] =
    [DropReason::TxRefused, DropReason::TxTooLong, DropReason::TxNoPort];

impl Told<'_> {
    /// What the lane gave the app.
    fn seen(&self) -> u64 {
        self.run.report.counters().rx_frames
    }

    /// Frames that were to leave and have neither left nor been counted as lost. In the kernel only the
    /// lost ones are counted.
    fn unconfirmed(&self) -> u64 {
        if self.lane == Lane::Xdp {
            return 0;
        }
        let counters = self.run.report.counters();
        let copies = self.arguments.on.len() as u64 - 1;
        let to_leave =
            self.run.stats.frames(Fate::Forwarded) + self.run.stats.frames(Fate::Flooded) * copies;
        let lost: u64 = NOT_SENT.iter().map(|&reason| counters.drops(reason)).sum();
        to_leave.saturating_sub(counters.tx_frames + lost)
    }

    fn is_closed(&self) -> bool {
        // io_uring tells of a frame when it is sent: the last ones are on the way at the end.
        let may_be_on_the_way = self.lane == Lane::Uring;
        self.seen() == self.run.stats.total() && (may_be_on_the_way || self.unconfirmed() == 0)
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
                self.run.stats.total(),
                self.unconfirmed()
            ),
        ))
    }

    /// Frames by the queue that a rule chose.
    fn queues(&self) -> Vec<(usize, u64)> {
        let frames = self.run.stats.queue_frames.iter().copied().enumerate().take(QUEUES_MAX);
        frames.filter(|&(_, n)| n > 0).collect()
    }

    /// Losses of the lane by port. In the kernel the lane counts the app's as well: those are fates, which
    /// are told as such.
    fn losses(&self) -> Vec<BTreeMap<DropReason, u64>> {
        let has_fate = |reason| {
            let is_of = |fate: &Fate| fate.drop_reason() == Some(reason);
            self.lane == Lane::Xdp && Fate::ALL.iter().any(is_of)
        };
        let of_port = |port: &PortReport| {
            port.counters.nonzero_drops().filter(|&(reason, _)| !has_fate(reason)).collect()
        };
        self.run.report.ports.iter().map(of_port).collect()
    }

    fn json(&self, caps: &[CapsReport], elapsed: Duration) -> Value {
        let workers: Vec<Value> = self.workers.iter().map(ToldWorker::json).collect();
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
            "fates": fates_by_name(&self.run.stats),
            "queues": queues,
            "unlearned": self.run.unlearned,
            "unconfirmed": self.unconfirmed(),
            "rules": rules,
            "closed": self.is_closed(),
            "failure": self.run.failure.as_ref().map(ToString::to_string),
            "elapsed_ns": elapsed.as_nanos() as u64,
            "report": self.run.report,
            "workers": workers,
        })
    }

    fn text(&self, elapsed: Duration, rules: Option<&mut RuleSet>) -> String {
        let end = match self.run.report.ended {
            Ended::Exhausted => ", to the end of the input",
            _ => "",
        };
        let seconds = elapsed.as_secs_f64();
        let mut text = format!("{} frames in {seconds:.1} s{end}\n", grouped(self.seen()));
        let mut lines = vec![("frames".to_owned(), self.seen(), "")];
        let fates = self.run.stats.nonzero();
        lines.extend(fates.map(|(fate, n)| (format!("  {}", fate.name()), n, "")));
        let queues = self.queues().into_iter();
        lines.extend(queues.map(|(queue, n)| (format!("to queue {queue}"), n, "by rules")));
        if self.run.unlearned > 0 {
            lines.push((
                "stations not learned".to_owned(),
                self.run.unlearned,
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
        let name = |port: usize| match self.lane {
            Lane::Xdp => "all",
            _ => self.arguments.on.get(port).map_or("", String::as_str),
        };
        let names = (0..self.run.report.ports.len()).map(|port| name(port).len());
        let chars = names.max().unwrap_or(0).max("interface".len());
        // A String takes whatever it is given, here and below.
        let _ = writeln!(
            text,
            "port  {:<chars$}  {:>15}  {:>15}  {:>15}",
            "interface", "received", "sent", "passed"
        );
        for (port, report) in self.run.report.ports.iter().enumerate() {
            let counters = &report.counters;
            // Of what leaves by a redirect, only the losses are counted.
            let sent = match self.lane {
                Lane::Xdp => "by redirect".to_owned(),
                _ => grouped(counters.tx_frames),
            };
            let passed = match self.lane {
                Lane::Xdp => self.run.stats.frames(Fate::Passed),
                _ => counters.passed,
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
            let Some((report, _)) = &worker.run else {
                let _ = writeln!(text, "{id:<6}  {:>3}  never began", worker.cpu);
                continue;
            };
            let counters = report.counters();
            let _ = writeln!(
                text,
                "{id:<6}  {:>3}  {:>15}  {:>15}  {:>15}",
                worker.cpu,
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
