//! `laneway run echo`: pings answered on interfaces, or the echo service over UDP or TCP.
//!
//! One rule says which shape runs: `--udp` and `--tcp` are the echo service at `--listen`; without
//! them pings are answered for `--address`, on lane `socket` by raw sockets. Everything that the shape
//! or the lane has no use for is refused rather than ignored.

mod workers;

use super::trace::RunTrace;
use super::{end_after, lane_failure, opened, worker_cpus};
use crate::arguments::{EchoArguments, RateLimit};
use crate::exit::{Exit, Failure};
use crate::ledger::{aligned, grouped};
use crate::registry::{
    self, EchoRun, Lane, LaneEntry, OpenOptions, Service, is_the_kernels, takes_a_stack,
};
use crate::{interrupt, terminal};
use laneway_core::{CapsReport, DropReason, LaneError};
use laneway_echo::{Config, Limits, Rate, TTL_DEFAULT, UdpEcho, UdpEchoConfig};
use laneway_engine::{Control, Ended};
use laneway_netns::Mac;
use laneway_stack::InterfaceConfig;
use laneway_xdp::XdpProgram;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

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

/// A run, checked before anything is opened.
enum Plan<'a> {
    /// What it answers, and who sees the rest.
    Pings(Config, Option<XdpProgram>),
    Udp(Service<'a>, UdpEchoConfig),
    Tcp(Service<'a>),
}

pub(super) fn run(arguments: &EchoArguments, json: bool) -> Result<Exit, Failure> {
    let spec = &arguments.lane;
    let entry = Lane::of(spec).map_err(Failure::input)?;
    let shape = shape_of(arguments, entry)?;
    let interfaces: Vec<&str> = arguments.on.iter().map(String::as_str).collect();
    let plan = plan(arguments, entry, shape, &interfaces)?;
    if let Some(cpus) = worker_cpus(arguments.workers, &arguments.cpus)? {
        return workers::run(arguments, entry, shape, &plan, &cpus, json);
    }

    let trace = RunTrace::begin(arguments.trace.as_deref())?;
    let control = Control { trace: trace.slot(0, arguments.cpu)?, ..Control::default() };
    let stop = control.stop.clone();
    interrupt::on_signal(None, json, move || stop.request())?;
    let mut ports = Vec::new();
    let mut started = Instant::now();
    let on_open = |caps: &[CapsReport]| {
        ports = caps.to_vec();
        started = Instant::now();
        if !json {
            say_ports("", arguments, &plan, caps);
            say_doing(arguments, &plan);
        }
        end_after(arguments.duration, &control.stop);
    };
    let options = OpenOptions { force: arguments.force, cpu: arguments.cpu };
    let run = match &plan {
        Plan::Pings(config, next) => {
            let next = next.as_ref();
            registry::run_pings(spec, &interfaces, config, next, options, &control, on_open)
        }
        Plan::Udp(service, config) => {
            registry::run_udp_echo(spec, service, config, options, &control, on_open)
        }
        Plan::Tcp(service) => registry::run_tcp_echo(spec, service, options, &control, on_open),
    };
    let run = run.map_err(|error| failure(&error, entry.lane, shape))?;
    let elapsed = started.elapsed();
    trace.end(json)?;
    let account = Account::of(&run, shape, entry.lane);
    if json {
        let fates: Map<String, Value> =
            run.fates.iter().map(|&(name, n)| (name.to_owned(), n.into())).collect();
        let value = json!({
            "verb": "run",
            "app": "echo",
            "shape": shape.name(),
            "lane": spec.to_string(),
            "interfaces": interfaces,
            "addresses": arguments.address,
            "listen": arguments.listen,
            "ports": ports,
            "seen": account.seen,
            "fates": fates,
            "lane_drops": account.lane_drops,
            "closed": account.is_closed(),
            "failure": run.failure.as_ref().map(ToString::to_string),
            "elapsed_ns": elapsed.as_nanos() as u64,
            "report": run.report,
        });
        terminal::print_json(&value, false)?;
    } else {
        terminal::note(account.table(&run, shape, elapsed).trim_end());
    }
    if let Some(error) = &run.failure {
        return Err(lane_failure(error));
    }
    account.judge()
}

/// The lane's sentence, and how to run beside whoever is there already.
fn failure(error: &LaneError, lane: Lane, shape: Shape) -> Failure {
    match (error, lane, shape) {
        (LaneError::Busy { .. }, Lane::Xdp, Shape::Pings) => Failure::input(format!(
            "{error}; to run beside that program, pin it (`bpftool prog pin id N PATH`), take it off \
             the interface, and give --before PATH: it then sees what echo leaves"
        )),
        _ => lane_failure(error),
    }
}

/// Which shape was asked for, and whether this lane has it.
fn shape_of(arguments: &EchoArguments, entry: &LaneEntry) -> Result<Shape, Failure> {
    let shape = match (arguments.udp, arguments.tcp) {
        (true, _) => Shape::Udp,
        (_, true) => Shape::Tcp,
        _ => Shape::Pings,
    };
    let (lane, name) = (entry.lane, entry.name);
    let knobs = arguments.lane.knobs();
    // Of another protocol, or misspelt, it is the lane's to refuse.
    let is_raw = lane == Lane::Socket && knobs.flag("raw") == Ok(true);
    match shape {
        Shape::Pings if lane == Lane::Socket && !is_raw => Err(Failure::input(format!(
            "lane `{}` carries no pings; use socket:raw for them, add --udp or --tcp for the echo \
             service, or use lane packet, uring, afxdp, dpdk or xdp",
            arguments.lane
        ))),
        Shape::Udp | Shape::Tcp if is_raw => Err(Failure::input(format!(
            "lane `{}` is for pings; leave --{} out, or the knob raw",
            arguments.lane,
            shape.name()
        ))),
        Shape::Udp | Shape::Tcp if !is_the_kernels(lane) && !takes_a_stack(lane) => {
            Err(Failure::input(format!(
                "lane {name} has no {}: it takes socket, uring, packet, afxdp or dpdk; without --{} \
                 it answers pings",
                if shape == Shape::Udp { "datagrams" } else { "streams" },
                shape.name(),
            )))
        }
        shape => Ok(shape),
    }
}

/// Everything that the run needs, and nothing that it has no use for.
fn plan<'a>(
    arguments: &'a EchoArguments,
    entry: &LaneEntry,
    shape: Shape,
    interfaces: &'a [&'a str],
) -> Result<Plan<'a>, Failure> {
    refuse_unused(arguments, entry, shape)?;
    let limits = limits_of(arguments)?;
    if shape == Shape::Pings && entry.lane == Lane::Socket {
        if arguments.address.is_empty() {
            return Err(Failure::input(
                "raw sockets answer pings at addresses that this machine has: give --address ADDR",
            ));
        }
        // Neighbours, and so MAC addresses, are the kernel's.
        let config = Config { limits, ..Config::new([0; 6], arguments.address.iter().copied()) };
        config.check().map_err(Failure::input)?;
        return Ok(Plan::Pings(config, None));
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
            .map(|name| mac_of(arguments, entry, name))
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
        return Ok(Plan::Pings(config, next.map_err(|error| lane_failure(&error))?));
    }
    if arguments.listen.is_empty() {
        return Err(Failure::input(format!(
            "--{} listens: give --listen ADDR:PORT, such as 192.0.2.9:7",
            shape.name()
        )));
    }
    let service = Service {
        listen: &arguments.listen,
        interfaces,
        own: own_interfaces(arguments, entry, interfaces)?,
        hop_limit: arguments.ttl,
    };
    if shape == Shape::Tcp {
        return Ok(Plan::Tcp(service));
    }
    let defaults = UdpEchoConfig::default();
    let source_port_min = arguments.source_port_min.unwrap_or(defaults.source_port_min);
    let config = UdpEchoConfig { source_port_min, limits };
    // Made here to be checked; the run makes its own.
    UdpEcho::new(&config).map_err(Failure::input)?;
    Ok(Plan::Udp(service, config))
}

/// A flag that the shape, or the lane, has no use for was meant for something that will not happen.
fn refuse_unused(
    arguments: &EchoArguments,
    entry: &LaneEntry,
    shape: Shape,
) -> Result<(), Failure> {
    let is_pings = shape == Shape::Pings;
    let is_raw = is_pings && entry.lane == Lane::Socket;
    let by_the_kernel = is_raw || !is_pings && is_the_kernels(entry.lane);
    let has_rates = [arguments.source_rate, arguments.total_rate].iter().any(Option::is_some)
        || arguments.sources_max.is_some();
    let of_the_kernel =
        format!("lane {} listens by the kernel's sockets, whose interface it is", entry.name);
    let flags = [
        (
            arguments.before.is_some() && !(is_pings && entry.lane == Lane::Xdp),
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
    entry: &LaneEntry,
    interfaces: &[&str],
) -> Result<Vec<InterfaceConfig>, Failure> {
    if is_the_kernels(entry.lane) {
        return Ok(Vec::new());
    }
    if interfaces.is_empty() {
        return Err(Failure::input(format!(
            "lane {} needs the interfaces to listen on: give --on IFACE, or use lane socket or uring",
            entry.name
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
            let mac = mac_of(arguments, entry, name)?;
            let mut own = InterfaceConfig::new(mac.0, addresses.clone());
            // An interface that the lane creates has the usual MTU.
            if let Some(mtu_bytes) = read(name, "mtu").and_then(|text| text.parse().ok()) {
                own.mtu_bytes = mtu_bytes;
            }
            Ok(own)
        })
        .collect()
}

/// The MAC address to answer at: as given, or the interface's.
fn mac_of(arguments: &EchoArguments, entry: &LaneEntry, name: &str) -> Result<Mac, Failure> {
    let found = read(name, "address").and_then(|text| text.parse::<Mac>().ok());
    match (arguments.mac, found.filter(|mac| mac.is_assignable())) {
        (Some(mac), _) => Ok(mac),
        (None, Some(mac)) => Ok(mac),
        // Captures, and devices that the lane makes, have none before they are there.
        (None, None) if matches!(entry.lane, Lane::Pcap | Lane::Dpdk) => {
            Err(Failure::input(format!(
                "`{name}` has no MAC address to answer at; give --mac, such as 02:00:00:00:00:09"
            )))
        }
        (None, None) if read(name, "address").is_some() => Err(Failure::input(format!(
            "interface `{name}` has no MAC address of its own; give --mac, such as 02:00:00:00:00:09"
        ))),
        (None, None) => Err(lane_failure(&LaneError::no_interface(entry.name, name))),
    }
}

/// What the kernel says of an interface, in the network namespace that this process stands in.
fn read(interface: &str, file: &str) -> Option<String> {
    let is_one_name = !interface.contains('/') && !interface.is_empty() && interface != "..";
    let path = Path::new("/sys/class/net").join(interface).join(file);
    is_one_name.then(|| fs::read_to_string(path).ok())?.map(|text| text.trim().to_owned())
}

/// What the ports of `who` obtained, one line each.
fn say_ports(who: &str, arguments: &EchoArguments, plan: &Plan<'_>, caps: &[CapsReport]) {
    let spec = arguments.lane.to_string();
    let places: Vec<String> = match plan {
        Plan::Pings(config, _) if arguments.on.is_empty() => {
            config.addresses.iter().map(|address| format!("at {address}")).collect()
        }
        Plan::Pings(..) => arguments.on.iter().map(|name| format!("on {name}")).collect(),
        Plan::Udp(service, _) | Plan::Tcp(service) => {
            service.listen.iter().map(|address| format!("at {address}")).collect()
        }
    };
    for (place, caps) in places.iter().zip(caps) {
        terminal::note(&format!("{who}{}", opened(&spec, place, caps)));
    }
}

fn say_doing(arguments: &EchoArguments, plan: &Plan<'_>) {
    terminal::note(&match plan {
        Plan::Pings(config, next) => {
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
        Plan::Udp(..) => "echoing datagrams; Ctrl-C ends".to_owned(),
        Plan::Tcp(_) => "echoing streams; Ctrl-C ends".to_owned(),
    });
    match plan {
        Plan::Pings(Config { limits, .. }, _) | Plan::Udp(_, UdpEchoConfig { limits, .. }) => {
            terminal::note(&limits_text(limits, arguments.workers.is_some()));
        }
        Plan::Tcp(_) => (),
    }
}

/// The limits in a sentence, with the flags that change them.
fn limits_text(limits: &Limits, has_workers: bool) -> String {
    let text = |rate: Option<Rate>, to: &str| {
        rate.map(|Rate { per_second, burst }| {
            let (per_second, burst) = (grouped(per_second.into()), grouped(burst.into()));
            format!("{per_second} replies/s to {to} ({burst} at once)")
        })
    };
    let rates = [text(limits.per_source, "a source"), text(limits.global, "all sources together")];
    let rates: Vec<String> = rates.into_iter().flatten().collect();
    match (rates.is_empty(), has_workers) {
        (true, _) => "limits: none".to_owned(),
        (false, false) => {
            format!("limits: {}; --source-rate and --total-rate change them", rates.join(", "))
        }
        (false, true) => format!(
            "limits of each worker: {}; --source-rate and --total-rate change them",
            rates.join(", ")
        ),
    }
}

/// What a fate needs said beside its count.
fn note_on(fate: &str) -> &'static str {
    match fate {
        "dropped_source_limit" => "held back by --source-rate",
        "dropped_global_limit" => "held back by --total-rate",
        _ => "",
    }
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
    fn of(run: &EchoRun, shape: Shape, lane: Lane) -> Account {
        let counters = run.report.counters();
        let with_fate: u64 = run.fates.iter().map(|(_, n)| n).sum();
        let seen = if shape == Shape::Tcp { with_fate } else { counters.rx_frames };
        // There the app's drops, which have fates, are the lane's to count.
        let lane_drops = match lane {
            Lane::Xdp => BTreeMap::new(),
            _ => counters.nonzero_drops().collect(),
        };
        Account { seen, with_fate, lane_drops }
    }

    fn is_closed(&self) -> bool {
        self.seen == self.with_fate
    }

    fn table(&self, run: &EchoRun, shape: Shape, elapsed: Duration) -> String {
        let (one, seen) = match shape {
            Shape::Pings => ("frame", "frames seen"),
            Shape::Udp => ("datagram", "datagrams seen"),
            Shape::Tcp => ("connection", "connections accepted"),
        };
        let plural = if self.seen == 1 { "" } else { "s" };
        let end = match run.report.ended {
            Ended::Exhausted => ", to the end of the input",
            _ => "",
        };
        let mut lines = vec![(seen.to_owned(), self.seen, "")];
        let there = run.fates.iter().filter(|(_, n)| *n > 0);
        lines.extend(there.map(|&(name, n)| (format!("  {name}"), n, note_on(name))));
        if shape == Shape::Tcp {
            lines.push(("bytes received".to_owned(), run.report.app.rx_bytes, ""));
            lines.push(("bytes sent back".to_owned(), run.report.app.tx_bytes, ""));
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
