//! `laneway run echo`: pings answered on interfaces, or the echo service over UDP or TCP.
//!
//! One rule says which shape runs: `--udp` and `--tcp` are the echo service at `--listen`; without
//! them pings are answered for `--address`, on lane `socket` by raw sockets. Everything that the shape
//! or the lane has no use for is refused rather than ignored.

use super::live::{Finished, Live};
use super::trace::RunTrace;
use super::{lane_failure, worker_cpus};
use crate::arguments::{EchoArguments, RateLimit};
use crate::exit::{Exit, Failure};
use crate::{interrupt, terminal};
use laneway_core::{DropReason, LaneError};
use laneway_echo::{
    Config, EchoKind, EchoReport, EchoRun, Limits, TTL_DEFAULT, UdpEcho, UdpEchoConfig,
};
use laneway_engine::{Ended, RunReport, Stop};
use laneway_kinds::{LaneFacts, Own, Service, Shape as Carried};
use laneway_netns::Mac;
use laneway_page::text::{aligned, grouped};
use laneway_registry::{Lanes, Ran, facts_of};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// What the app does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Pings,
    Udp,
    Tcp,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::Pings => "pings",
            Shape::Udp => "udp",
            Shape::Tcp => "tcp",
        }
    }
}

pub(super) fn run(arguments: &EchoArguments, json: bool) -> Result<Exit, Failure> {
    let spec = &arguments.lane;
    let lane = facts_of::<Lanes>(spec).map_err(Failure::input)?;
    let shape = shape_of(arguments, lane)?;
    let interfaces: Vec<&str> = arguments.on.iter().map(String::as_str).collect();
    let run = plan(arguments, lane, shape, &interfaces)?;
    let cpus = worker_cpus(arguments.workers, &arguments.cpus)?;

    let trace = RunTrace::begin(arguments.trace.as_deref())?;
    let stop = Stop::default();
    let to_stop = stop.clone();
    interrupt::on_signal(None, json, move || to_stop.request())?;
    let live = Live {
        spec,
        interfaces: &arguments.on,
        force: arguments.force,
        duration: arguments.duration,
        cpu: arguments.cpu,
        cpus: cpus.as_deref(),
        json,
    };
    let begun = || {
        if !json {
            say_doing(arguments, &run);
        }
    };
    let finished = live.run::<EchoKind>(&run, &trace, &stop, &places(arguments, &run), begun)?;
    let Finished { ran, ports, elapsed } =
        finished.map_err(|error| failure(&error, lane, shape))?;
    trace.end(json)?;
    let failed = ran.failure.as_ref().map(|(_, error)| error);
    let Some((report, together)) = ran.together() else {
        // A run without a failure has the reports of all, and there is at least one.
        return failed.map_or(Ok(Exit::Done), |error| Err(lane_failure(error)));
    };
    let account = Account::of(&report, &together, shape, lane);
    if json {
        let mut value = json!({
            "verb": "run",
            "app": "echo",
            "shape": shape.name(),
            "lane": spec.to_string(),
            "interfaces": interfaces,
            "addresses": arguments.address,
            "listen": arguments.listen,
            "seen": account.seen,
            "fates": by_name(&together),
            "lane_drops": account.lane_drops,
            "closed": account.is_closed(),
            "failure": failed.map(ToString::to_string),
            "elapsed_ns": elapsed.as_nanos() as u64,
        });
        if cpus.is_none() {
            value["ports"] = json!(ports);
            value["report"] = json!(report);
        } else {
            let each = ran.workers.iter().enumerate().map(|(id, worker)| {
                let fates = worker.report.as_ref().map(by_name);
                let (cpu, run) = (worker.cpu, &worker.run);
                json!({ "worker": id, "cpu": cpu, "fates": fates, "report": run })
            });
            value["workers"] = Value::Array(each.collect());
        }
        terminal::print_json(&value, false)?;
    } else {
        terminal::note(account.table(&report, &together, shape, elapsed).trim_end());
        if cpus.is_some() {
            terminal::note(by_worker(&ran, shape).trim_end());
        }
    }
    if let Some(error) = failed {
        return Err(lane_failure(error));
    }
    account.judge()
}

fn by_name(report: &EchoReport) -> Map<String, Value> {
    report.fates.iter().map(|&(name, n)| (name.to_owned(), n.into())).collect()
}

/// A line per worker: what it saw, what it answered, what was lost on either way.
fn by_worker(ran: &Ran<EchoReport>, shape: Shape) -> String {
    let (seen, answered) = match shape {
        Shape::Tcp => ("accepted", "bytes sent back"),
        Shape::Pings | Shape::Udp => ("seen", "sent"),
    };
    let mut table =
        format!("{:<6}  {:>3}  {seen:>15}  {answered:>15}  {:>12}\n", "worker", "CPU", "lost");
    for (id, worker) in ran.workers.iter().enumerate() {
        let cpu = worker.cpu.map_or_else(String::new, |cpu| cpu.to_string());
        let line = match (&worker.run, &worker.report) {
            (Some(run), Some(report)) => {
                let counters = run.counters();
                let (seen, answered) = match shape {
                    Shape::Tcp => (report.total(), run.app.tx_bytes),
                    Shape::Pings | Shape::Udp => (counters.rx_frames, counters.tx_frames),
                };
                format!(
                    "{id:<6}  {cpu:>3}  {:>15}  {:>15}  {:>12}\n",
                    grouped(seen),
                    grouped(answered),
                    grouped(counters.lost()),
                )
            }
            _ => format!("{id:<6}  {cpu:>3}  never began\n"),
        };
        table.push_str(&line);
    }
    table
}

/// The lane's sentence, and how to run beside whoever is there already.
fn failure(error: &LaneError, lane: &LaneFacts, shape: Shape) -> Failure {
    match (error, shape) {
        (LaneError::Busy { .. }, Shape::Pings) if lane.carries.has(Carried::Kernel) => {
            Failure::input(format!(
                "{error}; to run beside that program, pin it (`bpftool prog pin id N PATH`), take it off \
             the interface, and give --before PATH: it then sees what echo leaves"
            ))
        }
        _ => lane_failure(error),
    }
}

/// Nothing below datagrams and streams, so that pings are answered by raw sockets.
fn has_sockets_alone(lane: &LaneFacts) -> bool {
    lane.is_the_kernels() && !lane.carries.has(Carried::Frames)
}

/// Which shape was asked for, and whether this lane has it.
fn shape_of(arguments: &EchoArguments, lane: &LaneFacts) -> Result<Shape, Failure> {
    let shape = match (arguments.udp, arguments.tcp) {
        (true, _) => Shape::Udp,
        (_, true) => Shape::Tcp,
        _ => Shape::Pings,
    };
    let name = lane.name;
    let knobs = arguments.lane.knobs();
    // Of another protocol, or misspelt, it is the lane's to refuse.
    let is_raw = has_sockets_alone(lane) && knobs.flag("raw") == Ok(true);
    match shape {
        Shape::Pings if has_sockets_alone(lane) && !is_raw => Err(Failure::input(format!(
            "lane `{}` carries no pings; use socket:raw for them, add --udp or --tcp for the echo \
             service, or use lane packet, uring, afxdp, dpdk or xdp",
            arguments.lane
        ))),
        Shape::Udp | Shape::Tcp if is_raw => Err(Failure::input(format!(
            "lane `{}` is for pings; leave --{} out, or the knob raw",
            arguments.lane,
            shape.name()
        ))),
        Shape::Udp | Shape::Tcp if !lane.runs(Carried::Datagrams) => Err(Failure::input(format!(
            "lane {name} has no {}: it takes socket, uring, packet, afxdp or dpdk; without --{} \
                 it answers pings",
            if shape == Shape::Udp { "datagrams" } else { "streams" },
            shape.name(),
        ))),
        shape => Ok(shape),
    }
}

/// Everything that the run needs, and nothing that it has no use for.
fn plan(
    arguments: &EchoArguments,
    lane: &LaneFacts,
    shape: Shape,
    interfaces: &[&str],
) -> Result<EchoRun, Failure> {
    refuse_unused(arguments, lane, shape)?;
    let limits = limits_of(arguments)?;
    if shape == Shape::Pings && has_sockets_alone(lane) {
        if arguments.address.is_empty() {
            return Err(Failure::input(
                "raw sockets answer pings at addresses that this machine has: give --address ADDR",
            ));
        }
        // Neighbours, and so MAC addresses, are the kernel's.
        let config = Config { limits, ..Config::new([0; 6], arguments.address.iter().copied()) };
        config.check().map_err(Failure::input)?;
        return Ok(EchoRun::Pings { config, before: None });
    }
    if shape == Shape::Pings {
        if interfaces.is_empty() || arguments.address.is_empty() {
            return Err(Failure::input(
                "pings are answered on interfaces, for addresses: give --on IFACE and --address ADDR, \
                 or --udp or --tcp with --listen ADDR:PORT for the echo service",
            ));
        }
        let macs = interfaces
            .iter()
            .map(|name| mac_of(arguments, lane, name))
            .collect::<Result<Vec<Mac>, Failure>>()?;
        let other = macs.iter().position(|mac| *mac != macs[0]);
        if let Some(other) = other {
            return Err(Failure::input(format!(
                "{} is at {} and {} at {}: name one address for both with --mac, or run echo once for \
                 each",
                interfaces[0], macs[0], interfaces[other], macs[other],
            )));
        }
        let config = Config {
            ttl_marker: arguments.ttl,
            limits,
            answer_neighbours: !arguments.no_neighbours,
            ..Config::new(macs[0].0, arguments.address.iter().copied())
        };
        config.check().map_err(Failure::input)?;
        let next = arguments.before.as_deref().map(laneway_xdp::find_program).transpose();
        let before = next.map_err(|error| lane_failure(&error))?;
        return Ok(EchoRun::Pings { config, before });
    }
    if arguments.listen.is_empty() {
        return Err(Failure::input(format!(
            "--{} listens: give --listen ADDR:PORT, such as 192.0.2.9:7",
            shape.name()
        )));
    }
    let service = Service {
        listen: arguments.listen.clone(),
        own: own_interfaces(arguments, lane, interfaces)?,
        hop_limit: arguments.ttl,
    };
    if shape == Shape::Tcp {
        return Ok(EchoRun::Tcp { service });
    }
    let defaults = UdpEchoConfig::default();
    let source_port_min = arguments.source_port_min.unwrap_or(defaults.source_port_min);
    let config = UdpEchoConfig { source_port_min, limits };
    // Made here to be checked; the run makes its own.
    UdpEcho::new(&config).map_err(Failure::input)?;
    Ok(EchoRun::Udp { service, config })
}

/// A flag that the shape, or the lane, has no use for was meant for something that will not happen.
fn refuse_unused(arguments: &EchoArguments, lane: &LaneFacts, shape: Shape) -> Result<(), Failure> {
    let is_pings = shape == Shape::Pings;
    let is_raw = is_pings && has_sockets_alone(lane);
    let by_the_kernel = is_raw || !is_pings && lane.is_the_kernels();
    let has_rates = [arguments.source_rate, arguments.total_rate].iter().any(Option::is_some)
        || arguments.sources_max.is_some();
    let of_the_kernel =
        format!("lane {} listens by the kernel's sockets, whose interface it is", lane.name);
    let flags = [
        (
            arguments.before.is_some() && !(is_pings && lane.carries.has(Carried::Kernel)),
            "--before",
            "only pings on lane xdp are answered by an XDP program, which can call another",
        ),
        (
            is_raw && arguments.no_neighbours,
            "--no-neighbours",
            "on lane socket ARP and neighbour discovery are the kernel's",
        ),
        (
            is_raw && arguments.ttl.is_some(),
            "--ttl",
            "on lane socket it is a knob of the lane: socket:raw,ttl=N",
        ),
        (
            is_pings && !arguments.listen.is_empty(),
            "--listen",
            "pings have no port; say --udp or --tcp for the echo service, or leave it out",
        ),
        (
            is_pings && arguments.source_port_min.is_some(),
            "--source-port-min",
            "pings have no port; it goes with --udp",
        ),
        (
            shape == Shape::Tcp && (has_rates || arguments.source_port_min.is_some()),
            "a rate, --sources-max or --source-port-min",
            "connections are limited by the lane's knob conns=; leave it out",
        ),
        (
            !is_pings && arguments.no_neighbours,
            "--no-neighbours",
            "a stack that nobody finds is of no use; it goes with pings",
        ),
        (by_the_kernel && !arguments.on.is_empty(), "--on", &of_the_kernel),
        (by_the_kernel && !is_raw && !arguments.address.is_empty(), "--address", &of_the_kernel),
        (by_the_kernel && arguments.mac.is_some(), "--mac", &of_the_kernel),
        (by_the_kernel && arguments.ttl.is_some(), "--ttl", &of_the_kernel),
    ];
    match flags.iter().find(|(unused, ..)| *unused) {
        None => Ok(()),
        Some((_, flag, why)) => Err(Failure::input(format!("{flag} cannot be used here: {why}"))),
    }
}

fn limits_of(arguments: &EchoArguments) -> Result<Limits, Failure> {
    let defaults = Limits::default();
    let rate = |given: Option<RateLimit>, default| given.map_or(default, |RateLimit(rate)| rate);
    Ok(Limits {
        per_source: rate(arguments.source_rate, defaults.per_source),
        global: rate(arguments.total_rate, defaults.global),
        sources_max: arguments.sources_max.map_or(defaults.sources_max, |n| n as usize),
    })
}

/// Who we are on each interface: every address that is given or listened to.
fn own_interfaces(
    arguments: &EchoArguments,
    lane: &LaneFacts,
    interfaces: &[&str],
) -> Result<Vec<Own>, Failure> {
    if lane.is_the_kernels() {
        return Ok(Vec::new());
    }
    if interfaces.is_empty() {
        return Err(Failure::input(format!(
            "lane {} needs the interfaces to listen on: give --on IFACE, or use lane socket or uring",
            lane.name
        )));
    }
    let mut addresses: Vec<IpAddr> = arguments.address.clone();
    for ip in arguments.listen.iter().map(SocketAddr::ip) {
        if !ip.is_unspecified() && !addresses.contains(&ip) {
            addresses.push(ip);
        }
    }
    if addresses.is_empty() {
        return Err(Failure::input(
            "which addresses are ours? The stack has none of its own: give --address ADDR, or --listen \
             with an address",
        ));
    }
    // Whoever asks who has them is on this link, and answers go back to where their question came
    // from: no prefix need be known, and no router.
    let addresses: Vec<(IpAddr, u8)> = addresses.iter().map(|&ip| (ip, 0)).collect();
    interfaces
        .iter()
        .map(|name| {
            let mac = mac_of(arguments, lane, name)?;
            // An interface that the lane creates has the usual MTU.
            let mtu_bytes = read(name, "mtu").and_then(|text| text.parse().ok());
            Ok(Own { mac: mac.0, addresses: addresses.clone(), mtu_bytes })
        })
        .collect()
}

/// The MAC address to answer at: as given, or the interface's.
fn mac_of(arguments: &EchoArguments, lane: &LaneFacts, name: &str) -> Result<Mac, Failure> {
    let found = read(name, "address").and_then(|text| text.parse::<Mac>().ok());
    match (arguments.mac, found.filter(|mac| mac.is_assignable())) {
        (Some(mac), _) => Ok(mac),
        (None, Some(mac)) => Ok(mac),
        // Captures, and devices that the lane makes, have none before they are there.
        (None, None) if !lane.has_interfaces() => Err(Failure::input(format!(
            "`{name}` has no MAC address to answer at; give --mac, such as 02:00:00:00:00:09"
        ))),
        (None, None) if read(name, "address").is_some() => Err(Failure::input(format!(
            "interface `{name}` has no MAC address of its own; give --mac, such as 02:00:00:00:00:09"
        ))),
        (None, None) => Err(lane_failure(&LaneError::no_interface(lane.name, name))),
    }
}

/// What the kernel says of an interface, in the network namespace that this process stands in.
fn read(interface: &str, file: &str) -> Option<String> {
    let is_one_name = !interface.contains('/') && !interface.is_empty() && interface != "..";
    let path = Path::new("/sys/class/net").join(interface).join(file);
    is_one_name.then(|| fs::read_to_string(path).ok())?.map(|text| text.trim().to_owned())
}

/// Where each port is.
fn places(arguments: &EchoArguments, run: &EchoRun) -> Vec<String> {
    match run {
        EchoRun::Pings { config, .. } if arguments.on.is_empty() => {
            config.addresses.iter().map(|address| format!("at {address}")).collect()
        }
        EchoRun::Pings { .. } => super::live::on(&arguments.on),
        EchoRun::Udp { service, .. } | EchoRun::Tcp { service } => {
            service.listen.iter().map(|address| format!("at {address}")).collect()
        }
    }
}

fn say_doing(arguments: &EchoArguments, run: &EchoRun) {
    terminal::note(&match run {
        EchoRun::Pings { config, before: next } => {
            let addresses: Vec<String> = config.addresses.iter().map(IpAddr::to_string).collect();
            let addresses = addresses.join(", ");
            let by = match (arguments.on.is_empty(), next) {
                (true, _) => "by raw sockets, the kernel's own answers are off".to_owned(),
                (false, next) => {
                    let ttl = config.ttl_marker.unwrap_or(TTL_DEFAULT);
                    let rest = next
                        .as_ref()
                        .map_or_else(String::new, |next| format!(", the rest goes on to {next}"));
                    format!("at {} with TTL {ttl}{rest}", Mac(config.mac))
                }
            };
            format!("answering pings for {addresses} {by}; Ctrl-C ends")
        }
        EchoRun::Udp { .. } => "echoing datagrams; Ctrl-C ends".to_owned(),
        EchoRun::Tcp { .. } => "echoing streams; Ctrl-C ends".to_owned(),
    });
}

/// What became of everything that came.
struct Account {
    /// What the lane gave the app; for streams the connections that were accepted.
    seen: u64,
    /// What has a fate.
    with_fate: u64,
    /// What the lane lost on either way, by reason.
    lane_drops: BTreeMap<DropReason, u64>,
}

impl Account {
    fn of(run: &RunReport, report: &EchoReport, shape: Shape, lane: &LaneFacts) -> Account {
        let counters = run.counters();
        let with_fate = report.total();
        let seen = if shape == Shape::Tcp { with_fate } else { counters.rx_frames };
        // In the kernel the app's drops, which have fates, are the lane's to count.
        let lane_drops = match lane.carries.has(Carried::Kernel) {
            true => BTreeMap::new(),
            false => counters.nonzero_drops().collect(),
        };
        Account { seen, with_fate, lane_drops }
    }

    fn is_closed(&self) -> bool {
        self.seen == self.with_fate
    }

    fn table(
        &self,
        run: &RunReport,
        report: &EchoReport,
        shape: Shape,
        elapsed: Duration,
    ) -> String {
        let (one, seen) = match shape {
            Shape::Pings => ("frame", "frames seen"),
            Shape::Udp => ("datagram", "datagrams seen"),
            Shape::Tcp => ("connection", "connections accepted"),
        };
        let plural = if self.seen == 1 { "" } else { "s" };
        let end = match run.ended {
            Ended::Exhausted => ", to the end of the input",
            _ => "",
        };
        let mut lines = vec![(seen.to_owned(), self.seen, "")];
        let there = report.fates.iter().filter(|(_, n)| *n > 0);
        lines.extend(there.map(|&(name, n)| (format!("  {name}"), n, "")));
        if shape == Shape::Tcp {
            lines.push(("bytes received".to_owned(), run.app.rx_bytes, ""));
            lines.push(("bytes sent back".to_owned(), run.app.tx_bytes, ""));
        }
        let lost = self.lane_drops.iter();
        lines.extend(lost.map(|(reason, &n)| (reason.name().to_owned(), n, "by the lane")));
        let lines: Vec<(&str, u64, &str)> =
            lines.iter().map(|(name, n, note)| (name.as_str(), *n, *note)).collect();
        let seconds = elapsed.as_secs_f64();
        format!("{} {one}{plural} in {seconds:.1} s{end}\n{}", grouped(self.seen), aligned(&lines))
    }

    fn judge(&self) -> Result<Exit, Failure> {
        if self.is_closed() {
            return Ok(Exit::Done);
        }
        Err(Failure::Because(
            Exit::Invalid,
            format!(
                "the ledger is open: {} seen, {} with a fate; please report this with the command",
                self.seen, self.with_fate
            ),
        ))
    }
}
