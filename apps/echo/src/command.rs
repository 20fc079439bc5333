//! `laneway run echo`: pings answered on interfaces, or the echo service over UDP or TCP.
//!
//! One rule says which shape runs: `--udp` and `--tcp` are the echo service at `--listen`; without them pings are
//! answered for `--address`, by raw sockets on a lane that has nothing below datagrams. Everything that the shape or
//! the lane has no use for is refused rather than ignored.

use crate::{
    Class, Config, EchoKind, EchoRun, Fate, Limits, Rate, TTL_DEFAULT, UdpEcho, UdpEchoConfig,
};
use clap::Args;
use laneway_bpf::XdpProgram;
use laneway_core::{DropReason, LaneError};
use laneway_kinds::{
    Account, AppCommand, ArmPlace, Ask, Failure, FateReport, Line, On, Own, RunReport, Service,
    Shape as Carried, Traffic, Watched, WatchedRun, Witness, WorkerHeadings, WorkerLine,
    link_address,
};
use laneway_linux::Mac;
use laneway_page::text::grouped;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Its options beside those of every run.
#[derive(Args, Debug)]
pub struct EchoArguments {
    /// Addresses to answer for, separated by commas
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    address: Vec<IpAddr>,
    /// MAC address that they are at [default: the interface's]
    #[arg(long, value_name = "MAC")]
    mac: Option<Mac>,
    /// Be the echo service over UDP at --listen
    #[arg(long, conflicts_with = "tcp")]
    udp: bool,
    /// Be the echo service over TCP at --listen
    #[arg(long)]
    tcp: bool,
    /// Where the echo service listens, separated by commas; the service's own port is 7
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// Requests per second that one source is answered, and how many at once; or none for no limit
    /// [default: 1000/1000]
    #[arg(long, value_name = "RATE[/BURST]", value_parser = rate)]
    source_rate: Option<RateLimit>,
    /// Requests per second that are answered altogether, likewise [default: 100000/10000]
    #[arg(long, value_name = "RATE[/BURST]", value_parser = rate)]
    total_rate: Option<RateLimit>,
    /// Answer every request, however many come: no rate limits
    #[arg(long, conflicts_with_all = ["source_rate", "total_rate", "sources_max"])]
    no_limits: bool,
    /// Sources whose rate is known at a time; beyond it the one not seen for longest is forgotten
    /// [default: 32768]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sources_max: Option<u32>,
    /// TTL and hop limit of answers: a mark by which one sees that this program answered [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    ttl: Option<u8>,
    /// Leave ARP and neighbour discovery to another program
    #[arg(long)]
    no_neighbours: bool,
    /// XDP program that sees what echo leaves: its number (`bpftool prog list`), or where it is pinned.
    /// For lane xdp; an interface has room for one program, so take that one off it first
    #[arg(long, value_name = "PROGRAM")]
    before: Option<String>,
    /// The lowest source port that --udp answers: services have lower ones, and might answer back
    /// [default: 1024]
    #[arg(long, value_name = "PORT")]
    source_port_min: Option<u16>,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RateLimit(Option<Rate>);

/// So many may come at once where only a rate was given.
const BURST_DEFAULT_MAX: u32 = 10_000;

/// `RATE`, `RATE/BURST` or `none`.
fn rate(text: &str) -> Result<RateLimit, String> {
    if text == "none" {
        return Ok(RateLimit(None));
    }
    let number = |text: &str| match text.parse::<u32>() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("use a number per second such as 500, with a burst 500/50, or none".to_owned()),
    };
    let (per_second, burst) = match text.split_once('/') {
        Some((per_second, burst)) => (number(per_second)?, number(burst)?),
        None => (number(text)?, number(text)?.min(BURST_DEFAULT_MAX)),
    };
    Ok(RateLimit(Some(Rate { per_second, burst })))
}

/// What the app does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Pings,
    Udp,
    Tcp,
}

impl Shape {
    fn of(run: &EchoRun) -> Shape {
        match run {
            EchoRun::Pings { .. } => Shape::Pings,
            EchoRun::Udp { .. } => Shape::Udp,
            EchoRun::Tcp { .. } => Shape::Tcp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Shape::Pings => "pings",
            Shape::Udp => "udp",
            Shape::Tcp => "tcp",
        }
    }
}

impl AppCommand for EchoKind {
    type Arguments = EchoArguments;

    const ASKS_OF_HOST: &'static [Ask] =
        &[Ask::SendBuffer, Ask::ReceiveBuffer, Ask::Backlog, Ask::Budget];

    const HELP: &'static str = "\
Without --udp and --tcp it answers pings, ARP and neighbour discovery for --address, on lanes
packet, uring, afxdp, dpdk, pcap and, as an XDP program, xdp. With --udp or --tcp it is the echo
service (RFC 862) at --listen: by the kernel's sockets on lanes socket and uring, by a stack of its
own on packet, afxdp and dpdk, which need --on as well. Only for the kernel's sockets and lane xdp
may the address be one that the machine itself has; elsewhere both would answer. On a veth pair
lane xdp sends nothing unless there is an XDP program at the far end as well.

By raw sockets (socket:raw) pings are answered at addresses that the machine has, without --on, and
only where the kernel's own answers are off: knob mute switches them off for as long as the run
lasts, in a network namespace that is not the machine's first.

Ends at Ctrl-C or after --duration; what each port obtained, and what became of every frame, go to
standard error. An interface that carries a default route is refused without --force.

Examples:
  sudo laneway run echo --lane afxdp --on eth1 --address 192.0.2.9,2001:db8::9
  sudo laneway run echo --lane xdp:generic --on eth1 --address 192.0.2.9 --ttl 99 --source-rate 100
  sudo laneway run echo --lane xdp --on eth1 --address 192.0.2.9 --before /sys/fs/bpf/filter
  sudo ip netns exec blue laneway run echo --lane socket:raw,mute --address 192.0.2.9
  laneway run echo --lane uring --udp --listen 0.0.0.0:7007,[::]:7007 --workers 4
  sudo laneway run echo --lane afxdp --on eth1 --tcp --listen 192.0.2.9:7
  laneway run echo --lane pcap:out=answers.pcapng --on pings.pcap --address 192.0.2.9 \\
      --mac 02:00:00:00:00:09";

    fn plan(arguments: &EchoArguments, on: On<'_>) -> Result<EchoRun, Failure> {
        let shape = shape_of(arguments, on)?;
        plan(arguments, on, shape)
    }

    fn places(run: &EchoRun, on: On<'_>) -> Vec<String> {
        match run {
            EchoRun::Pings { config, .. } if on.interfaces.is_empty() => {
                config.addresses.iter().map(|address| format!("at {address}")).collect()
            }
            EchoRun::Pings { .. } => {
                on.interfaces.iter().map(|name| format!("on {name}")).collect()
            }
            EchoRun::Udp { service, .. } | EchoRun::Tcp { service } => {
                service.listen.iter().map(|address| format!("at {address}")).collect()
            }
        }
    }

    fn begun(run: &EchoRun, on: On<'_>) -> Option<String> {
        Some(match run {
            EchoRun::Pings { config, before } => {
                let addresses: Vec<String> =
                    config.addresses.iter().map(IpAddr::to_string).collect();
                let addresses = addresses.join(", ");
                let by = if on.interfaces.is_empty() {
                    "by raw sockets, the kernel's own answers are off".to_owned()
                } else {
                    let ttl = config.ttl_marker.unwrap_or(TTL_DEFAULT);
                    let rest = before
                        .as_ref()
                        .map_or_else(String::new, |next| format!(", the rest goes on to {next}"));
                    format!("at {} with TTL {ttl}{rest}", Mac(config.mac))
                };
                let limits = limits_text(&config.limits);
                format!("answering pings for {addresses} {by}; Ctrl-C ends\n{limits}")
            }
            EchoRun::Udp { config, .. } => {
                let limits = limits_text(&config.limits);
                format!("echoing datagrams; Ctrl-C ends\n{limits}")
            }
            EchoRun::Tcp { .. } => "echoing streams; Ctrl-C ends".to_owned(),
        })
    }

    fn account(run: &EchoRun, on: On<'_>, lane: &RunReport, report: &FateReport) -> Account {
        let shape = Shape::of(run);
        let counters = lane.counters();
        let accounted = report.total();
        // In the kernel the lane counts the app's drops, which have fates: what is left is lost behind the program.
        let has_fate = |reason| {
            let is_of = |fate: &Fate| fate.class() == Class::Dropped(reason);
            on.lane.carries.has(Carried::Kernel) && Fate::ALL.iter().any(is_of)
        };
        let lane_drops: BTreeMap<DropReason, u64> =
            counters.nonzero_drops().filter(|&(reason, _)| !has_fate(reason)).collect();
        let there = report.fates.iter().filter(|(_, n)| *n > 0);
        let mut lines: Vec<Line> =
            there.map(|&(name, n)| (format!("  {name}"), n, note_on(name))).collect();
        if shape == Shape::Tcp {
            lines.push(("bytes received".to_owned(), lane.app.rx_bytes, ""));
            lines.push(("bytes sent back".to_owned(), lane.app.tx_bytes, ""));
        }
        let lost = lane_drops.iter();
        lines.extend(lost.map(|(reason, &n)| (reason.name().to_owned(), n, "by the lane")));
        let (one, seen_heading) = match shape {
            Shape::Pings => ("frame", "frames seen"),
            Shape::Udp => ("datagram", "datagrams seen"),
            Shape::Tcp => ("connection", "connections accepted"),
        };
        let (addresses, listen) = match run {
            EchoRun::Pings { config, .. } => (config.addresses.clone(), Vec::new()),
            EchoRun::Udp { service, .. } | EchoRun::Tcp { service } => {
                let own = service.own.first().map(|own| &own.addresses[..]).unwrap_or_default();
                (own.iter().map(|&(ip, _)| ip).collect(), service.listen.clone())
            }
        };
        let mut json = Map::new();
        json.insert("shape".to_owned(), json!(shape.name()));
        json.insert("addresses".to_owned(), json!(addresses));
        json.insert("listen".to_owned(), json!(listen));
        json.insert("fates".to_owned(), Value::Object(report.by_name()));
        json.insert("lane_drops".to_owned(), json!(lane_drops));
        let seen = if shape == Shape::Tcp { accounted } else { counters.rx_frames };
        Account { one, seen_heading, seen, accounted, lines, json, ..Account::default() }
    }

    type Arm<'a, W: Witness + 'a> = Watched<'a, EchoKind, W>;

    fn arm<'a, W: Witness + 'a>(run: &'a EchoRun, witness: W) -> WatchedRun<'a, EchoKind, W> {
        WatchedRun::new(run, witness)
    }

    fn place(place: &ArmPlace<'_>) -> Vec<String> {
        if place.protocol.is_some() {
            let listen: Vec<String> = place.addresses.iter().map(SocketAddr::to_string).collect();
            let mut words = vec!["--tcp".to_owned(), "--listen".to_owned(), listen.join(",")];
            // By the kernel's sockets the address on the wire is the kernel's.
            if !place.lane.carries.has(Carried::Streams) {
                words.extend(["--mac".to_owned(), Mac(place.mac).to_string()]);
            }
            return words;
        }
        let addresses: Vec<String> = place.addresses.iter().map(|at| at.ip().to_string()).collect();
        let mut words = vec!["--address".to_owned(), addresses.join(",")];
        // Elsewhere the address on the wire is the kernel's.
        if !place.lane.is_sockets_alone() {
            words.extend(["--mac".to_owned(), Mac(place.mac).to_string()]);
        }
        words
    }

    fn check_arm(arguments: &EchoArguments, traffic: Traffic) -> Result<(), String> {
        match (traffic, arguments) {
            (Traffic::Tcp(_), EchoArguments { udp: true, .. }) => {
                Err("a client asks over TCP connections; leave --udp out".to_owned())
            }
            (Traffic::Pings, EchoArguments { udp: true, .. } | EchoArguments { tcp: true, .. }) => {
                Err("what is sent are pings; leave --udp and --tcp out, or give the scenario `[client]`".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn testpmd_mode(_arguments: &EchoArguments) -> Option<&'static str> {
        Some("icmpecho")
    }

    fn worker_json(report: &FateReport) -> Map<String, Value> {
        Map::from_iter([("fates".to_owned(), Value::Object(report.by_name()))])
    }

    fn worker_headings(run: &EchoRun) -> WorkerHeadings {
        match Shape::of(run) {
            Shape::Tcp => WorkerHeadings { seen: "accepted", sent: "bytes sent back" },
            Shape::Pings | Shape::Udp => WorkerHeadings { seen: "seen", sent: "sent" },
        }
    }

    fn worker_line(run: &EchoRun, lane: &RunReport, report: &FateReport) -> WorkerLine {
        let counters = lane.counters();
        match Shape::of(run) {
            Shape::Tcp => WorkerLine { seen: report.total(), sent: lane.app.tx_bytes },
            Shape::Pings | Shape::Udp => {
                WorkerLine { seen: counters.rx_frames, sent: counters.tx_frames }
            }
        }
    }

    fn hint(error: &LaneError, run: &EchoRun, on: On<'_>) -> Option<&'static str> {
        let is_taken = matches!(error, LaneError::Busy { .. });
        let in_kernel = on.lane.carries.has(Carried::Kernel);
        (is_taken && in_kernel && Shape::of(run) == Shape::Pings).then_some(
            "to run beside that program, pin it (`bpftool prog pin id N PATH`), take it off the \
             interface, and give --before PATH: it then sees what echo leaves",
        )
    }
}

/// The limits of the run in a sentence, with the flags that change them.
fn limits_text(limits: &Limits) -> String {
    let text = |rate: Option<Rate>, to: &str| {
        rate.map(|Rate { per_second, burst }| {
            let (per_second, burst) = (grouped(per_second.into()), grouped(burst.into()));
            format!("{per_second} replies/s to {to} ({burst} at once)")
        })
    };
    let rates = [text(limits.per_source, "a source"), text(limits.global, "all sources together")];
    let rates: Vec<String> = rates.into_iter().flatten().collect();
    if rates.is_empty() {
        return "limits: none".to_owned();
    }
    format!("limits: {}; --source-rate and --total-rate change them", rates.join(", "))
}

/// What is printed beside the count of a fate.
fn note_on(fate: &str) -> &'static str {
    match fate {
        "dropped_source_limit" => "held back by --source-rate",
        "dropped_global_limit" => "held back by --total-rate",
        _ => "",
    }
}

/// Which shape was asked for, and whether this lane has it.
fn shape_of(arguments: &EchoArguments, on: On<'_>) -> Result<Shape, Failure> {
    let On { spec, lane, .. } = on;
    let shape = match (arguments.udp, arguments.tcp) {
        (true, _) => Shape::Udp,
        (_, true) => Shape::Tcp,
        _ => Shape::Pings,
    };
    let name = lane.name;
    let knobs = spec.knobs();
    // Of another protocol, or misspelt, it is the lane's to refuse.
    let is_raw = lane.is_sockets_alone() && knobs.flag("raw") == Ok(true);
    match shape {
        Shape::Pings if lane.is_sockets_alone() && !is_raw => Err(Failure::input(format!(
            "lane `{}` carries no pings; use socket:raw for them, add --udp or --tcp for the echo \
             service, or use lane packet, uring, afxdp, dpdk or xdp",
            spec
        ))),
        Shape::Udp | Shape::Tcp if is_raw => Err(Failure::input(format!(
            "lane `{}` is for pings; leave --{} out, or the knob raw",
            spec,
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
fn plan(arguments: &EchoArguments, on: On<'_>, shape: Shape) -> Result<EchoRun, Failure> {
    let On { lane, interfaces, .. } = on;
    refuse_unused(arguments, on, shape)?;
    let limits = limits_of(arguments)?;
    if shape == Shape::Pings && lane.is_sockets_alone() {
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
            .map(|name| link_address(lane, name, arguments.mac))
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
        let before = arguments.before.as_deref().map(XdpProgram::find).transpose();
        let before = before.map_err(|error| error.in_lane(lane.name))?;
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
        own: Own::of_service(
            lane,
            interfaces,
            &arguments.listen,
            &arguments.address,
            arguments.mac,
        )?,
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
fn refuse_unused(arguments: &EchoArguments, on: On<'_>, shape: Shape) -> Result<(), Failure> {
    let On { lane, interfaces, .. } = on;
    let is_pings = shape == Shape::Pings;
    let is_raw = is_pings && lane.is_sockets_alone();
    let by_the_kernel = is_raw || !is_pings && lane.is_the_kernels();
    let has_rates = [arguments.source_rate, arguments.total_rate].iter().any(Option::is_some)
        || arguments.sources_max.is_some()
        || arguments.no_limits;
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
            "a stack that answers no ARP is of no use; it goes with pings",
        ),
        (by_the_kernel && !interfaces.is_empty(), "--on", &of_the_kernel),
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
    if arguments.no_limits {
        return Ok(Limits::none());
    }
    let defaults = Limits::default();
    let rate = |given: Option<RateLimit>, default| given.map_or(default, |RateLimit(rate)| rate);
    Ok(Limits {
        per_source: rate(arguments.source_rate, defaults.per_source),
        global: rate(arguments.total_rate, defaults.global),
        sources_max: arguments.sources_max.map_or(defaults.sources_max, |n| n as usize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_burst_as_large_as_itself_up_to_a_bound() {
        let limit = |per_second, burst| Ok(RateLimit(Some(Rate { per_second, burst })));
        assert_eq!(rate("500"), limit(500, 500));
        assert_eq!(rate("500/50"), limit(500, 50));
        assert_eq!(rate("1000000"), limit(1_000_000, 10_000));
        assert_eq!(rate("none"), Ok(RateLimit(None)));
        for text in ["", "0", "5/0", "5/", "-1", "many", "5/5/5"] {
            assert!(rate(text).is_err(), "{text:?}");
        }
    }
}
