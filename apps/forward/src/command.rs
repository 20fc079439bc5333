//! `laneway run forward`: testpmd's modes and flow rules between interfaces, or on captures.
//!
//! ```text
//!   --rules, --rule ── given ────┐
//!   standard input ─── talk ─────┼─▶ Console ─▶ rule set ─▶ workers, kernel, ports
//!   control socket ───────────────┘
//! ```
//! All of them have their commands carried out by the run's [`Console`](crate::Console), which answers a command when
//! its change is in force.

use crate::account::{self, placed};
use crate::client;
use crate::given::{Given, given};
use crate::talk::Talk;
use crate::{
    Bounds, Config, Fate, ForwardKind, ForwardReport, ForwardRun, Mode, Neighbour, QUEUES_MAX,
    Route, RuleSet, check_on,
};
use clap::Args;
use laneway_control::ControlSocket;
use laneway_kinds::{
    Account, AppCommand, AppVerb, Failure, Finished, On, Page, Ports, RunReport, Session, Traffic,
    Watched, WatchedRun, Witness, WorkerHeadings,
};
use laneway_linux::{Mac, sysfs};
use laneway_metrics::{Family, table};
use laneway_terminal as terminal;
use serde_json::{Map, Value, json};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Queues that rules can name, as the app counts them.
const QUEUES: i64 = QUEUES_MAX as i64;

/// The modes that send every frame on, so that each can be counted where it comes out.
const RACED: [Mode; 4] = [Mode::Io, Mode::Mac, Mode::MacSwap, Mode::FiveTupleSwap];

/// Flow rules that are there.
const RULES: Family = Family::gauge("laneway_forward_rules", "Flow rules of all ports.");

/// Its options beside those of every run.
#[derive(Args, Debug)]
pub struct ForwardArguments {
    /// What is done with frames that no rule decides on: io, mac, macswap, 5tswap, l2, l3, drop
    #[arg(long, value_name = "MODE", default_value = "io")]
    mode: Mode,
    /// Mode mac: link addresses at the other end, by port [default: 02:00:00:00:00:PORT]
    #[arg(long, value_name = "MAC", value_delimiter = ',')]
    peer: Vec<Mac>,
    /// Mode l3: a route, such as '10.0.0.0/8 via 192.0.2.1 port 1' or '2001:db8::/64 port 0'
    #[arg(long, value_name = "ROUTE")]
    route: Vec<Route>,
    /// Mode l3: a next hop's link address, such as '192.0.2.1 02:00:00:00:00:09'
    #[arg(long, value_name = "NEIGHBOUR")]
    neighbour: Vec<Neighbour>,
    /// A file of `flow create` lines
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// A `flow` command, after those of the file
    #[arg(long, value_name = "COMMAND")]
    rule: Vec<String>,
    /// Queues that rules may name [default: as many as workers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=QUEUES))]
    queues: Option<u16>,
    /// Read `flow` commands from standard input while it runs
    #[arg(long)]
    interactive: bool,
    /// Answer commands on a Unix socket at this path, made for its owner alone and removed at the end
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// The clients that may talk to a run beside its file and its command line, and what is open for them while it runs.
#[derive(Default)]
pub(crate) struct Talks {
    /// What was answered to every `--rule`.
    answers: String,
    /// Where the control socket is to be.
    control: Option<PathBuf>,
    /// From [`AppCommand::begin`] to [`AppCommand::finish`].
    socket: Mutex<Option<ControlSocket>>,
    /// Standard input is read as well.
    interactive: bool,
    /// From [`AppCommand::begin`] until the lanes are open.
    talk: Mutex<Option<Talk>>,
}

impl AppCommand for ForwardKind {
    type Arguments = ForwardArguments;

    const HELP: &'static str = "\
Ports are numbered in the order of --on, from 0, and forward in pairs (0 and 1, 2 and 3, ...); one
without a partner sends back. Runs on lanes packet, uring, afxdp, dpdk, on captures (lane pcap, sent
frames go to out=) and, but for mode l2, as an XDP program on lane xdp, where the far end of a veth
cable needs a program of its own to be sent to.

Rules are those of testpmd's `flow` commands: of --rules, then of every --rule, then, while it runs,
line by line from standard input with --interactive, and from clients of the --control socket
(`laneway rules`, or socat); each is answered when it is in force. `show stats`, `show rules` and `help`
are answered as well; `quit` on standard input ends the run. On lane dpdk a rule goes to the port where
that can execute it. What becomes of every frame, what every rule matched and where
it was executed go to standard error at the end: at Ctrl-C, after --duration, or at the end of the
captures. An interface that carries a default route is refused without --force.

Several workers (--workers, on lanes packet, afxdp and dpdk) share ports, rules, routes, neighbours
and the stations of mode l2; every answer and every number is that of all of them together. A flow
stays with one worker, so its frames stay in order. `queue index N` and `rss` bring frames to another worker where the port executes the
rule itself; elsewhere the choice is counted and the frame stays with its worker.

Examples:
  sudo laneway run forward --lane afxdp --on eth1 --on eth2
  sudo laneway run forward --lane xdp --on eth1,eth2 --mode macswap --duration 60
  sudo laneway run forward --lane packet --on eth1,eth2 --mode l3 \\
      --route '10.1.0.0/16 port 0' --route '0.0.0.0/0 via 10.2.0.1 port 1' \\
      --neighbour '10.2.0.1 02:00:00:00:00:09'
  sudo laneway run forward --lane packet --on eth1,eth2 --rules rules.txt --interactive --rule \\
      'flow create 0 ingress pattern eth / ipv4 / udp dst is 53 / end actions drop / count / end'
  sudo laneway run forward --lane afxdp --on eth1,eth2 --control /run/forward.sock
  sudo laneway run forward --lane packet:ring --on eth1,eth2 --workers 2 --mode l2
  laneway run forward --lane pcap:out=b.pcapng --on a.pcap --mode 5tswap";

    fn plan(arguments: &ForwardArguments, on: On<'_>) -> Result<ForwardRun, Failure> {
        check(arguments, on)?;
        let config = config(arguments, on);
        check_on(on.lane, &config).map_err(Failure::input)?;
        let can_come = arguments.interactive || arguments.control.is_some();
        let are_given = arguments.rules.is_some() || !arguments.rule.is_empty();
        let Given { console, answers } = match can_come || are_given {
            true => given(arguments.rules.as_deref(), &arguments.rule, on.lane, &config)?,
            false => Given::default(),
        };
        let mut run = ForwardRun::new(config, console).map_err(Failure::input)?;
        run.talks = Talks {
            answers,
            control: arguments.control.clone(),
            interactive: arguments.interactive,
            ..Talks::default()
        };
        Ok(run)
    }

    fn begin(run: &ForwardRun, _on: On<'_>, session: &Session<'_>) -> Result<(), Failure> {
        let talks = &run.talks;
        if !session.json && !talks.answers.is_empty() {
            terminal::note(talks.answers.trim_end());
        }
        let Some(console) = &run.console else { return Ok(()) };
        if let Some(path) = &talks.control {
            let mut socket = ControlSocket::open(path).map_err(Failure::input)?;
            let console = Arc::clone(console);
            socket.serve(console).map_err(Failure::input)?;
            put(&talks.socket, socket);
        }
        if talks.interactive {
            let (console, stop) = (Arc::clone(console), Arc::clone(&session.stop));
            put(&talks.talk, Talk { console, stop, json: session.json });
        }
        Ok(())
    }

    fn leftover(run: &ForwardRun) -> Option<PathBuf> {
        run.talks.control.clone()
    }

    fn begun(run: &ForwardRun, _on: On<'_>) -> Option<String> {
        if let Some(talk) = take(&run.talks.talk) {
            // Ends with the process; a run that is over already does not mind.
            thread::spawn(move || talk.listen(io::stdin().lock()));
        }
        let end = if run.talks.interactive { "`quit` or Ctrl-C ends" } else { "Ctrl-C ends" };
        Some(format!("forwarding, mode {}; {end}", run.config.mode.word()))
    }

    fn opened_facts(run: &ForwardRun) -> Vec<(&'static str, String)> {
        // Ports have been offered the rules by now.
        let console = run.console.as_ref();
        vec![("rules", console.map_or_else(|| "none".to_owned(), |it| placed(&it.rules())))]
    }

    fn metrics(run: &ForwardRun, page: &mut Page) {
        let stats = run.live.sum();
        for fate in Fate::ALL {
            page.add(&table::FATES, &[("fate", fate.name())], stats.frames(*fate));
        }
        if let Some(console) = &run.console {
            page.add(&RULES, &[], console.rules().len() as u64);
        }
    }

    fn finish(
        run: &ForwardRun,
        _on: On<'_>,
        _finished: Option<Finished<'_, ForwardReport>>,
    ) -> Result<(), Failure> {
        // From here on no new client may change what is reported.
        drop(take(&run.talks.socket));
        Ok(())
    }

    fn account(run: &ForwardRun, on: On<'_>, lane: &RunReport, report: &ForwardReport) -> Account {
        account::collect(run, on, lane, report)
    }

    fn verbs() -> Vec<AppVerb> {
        vec![client::VERB]
    }

    type Arm<'a, W: Witness + 'a> = Watched<'a, ForwardKind, W>;

    fn arm<'a, W: Witness + 'a>(run: &'a ForwardRun, witness: W) -> WatchedRun<'a, ForwardKind, W> {
        WatchedRun::new(run, witness)
    }

    fn check_arm(arguments: &ForwardArguments, traffic: Traffic) -> Result<(), String> {
        let mode = arguments.mode;
        if !RACED.contains(&mode) {
            let words = RACED.map(Mode::word).join(", ");
            return Err(format!(
                "raced are the modes {words}: the others do not send every frame on"
            ));
        }
        if matches!(traffic, Traffic::Capture { .. }) && mode != Mode::Io {
            let why =
                "the number of a replayed frame is in its source MAC: only mode io leaves it there";
            return Err(why.to_owned());
        }
        let mut rules = RuleSet::for_user(Bounds { ports: 2, queues: QUEUES_MAX as u16 });
        arguments.rule.iter().try_for_each(|line| {
            rules.run(line).map(drop).map_err(|why| format!("`{line}`: {why}"))
        })
    }

    fn testpmd_mode(arguments: &ForwardArguments) -> Option<&'static str> {
        Some(arguments.mode.word())
    }

    fn worker_json(report: &ForwardReport) -> Map<String, Value> {
        Map::from_iter([
            ("fates".to_owned(), Value::Object(account::fates_by_name(&report.stats))),
            ("unlearned".to_owned(), json!(report.unlearned)),
        ])
    }

    fn worker_headings(_run: &ForwardRun) -> WorkerHeadings {
        WorkerHeadings { seen: "received", sent: "sent" }
    }
}

fn put<T>(place: &Mutex<Option<T>>, it: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(it);
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// What would be left undone in silence, or never end.
fn check(arguments: &ForwardArguments, on: On<'_>) -> Result<(), Failure> {
    let On { lane, interfaces, .. } = on;
    let refused = |why: String| Err(Failure::input(why));
    if interfaces.is_empty() {
        return refused(
            "which ports? Give --on IFACE for each interface to forward between, or --on FILE for each \
             capture on lane pcap"
                .to_owned(),
        );
    }
    if interfaces.iter().any(String::is_empty) {
        return refused("--on has an empty name; give names with one comma between two".to_owned());
    }
    let twice = (1..interfaces.len()).find(|&port| interfaces[..port].contains(&interfaces[port]));
    if let Some(port) = twice.filter(|_| lane.ports != Ports::Files) {
        return refused(format!(
            "--on {} is given twice: what it sends would come back to it for ever; name each interface \
             once (a port alone sends back)",
            interfaces[port]
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

fn config(arguments: &ForwardArguments, on: On<'_>) -> Config {
    let own = on.interfaces.iter().map_while(|name| own_mac(name));
    Config {
        mode: arguments.mode,
        ports: on.interfaces.len(),
        queues: arguments.queues.unwrap_or_else(|| on.workers.min(QUEUES_MAX) as u16),
        // The list is by port: from the first port without an address on, the app's own choice holds.
        own: own.map(|mac| mac.0).collect(),
        peers: arguments.peer.iter().map(|mac| mac.0).collect(),
        routes: arguments.route.clone(),
        neighbours: arguments.neighbour.clone(),
        hash_seed: RandomState::new().build_hasher().finish(),
        ..Config::default()
    }
}

/// The interface's own address, if it is an interface that has one now.
fn own_mac(interface: &str) -> Option<Mac> {
    sysfs(interface, "address")?.parse().ok().filter(|mac: &Mac| mac.is_assignable())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stats;

    #[test]
    fn a_run_without_rules_shows_what_became_of_its_frames() {
        let run = ForwardRun::new(Config::default(), None).unwrap();
        let mut stats = Stats::default();
        stats.count(Fate::Forwarded);
        run.live.slot().publish(&stats);
        let mut page = Page::new();
        ForwardKind::metrics(&run, &mut page);
        let page = page.render();
        for fate in Fate::ALL {
            let frames = u64::from(*fate == Fate::Forwarded);
            let sample = format!("fate=\"{}\"}} {frames}\n", fate.name());
            assert!(page.contains(&sample), "{sample}{page}");
        }
        assert!(!page.contains("laneway_forward_rules"), "{page}");
    }
}
