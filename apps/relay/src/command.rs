//! `laneway run relay`: the rules that a run begins with, which clients may change them, and its account.
//!
//! Rules come from a file, from one rule of the command line, or from nowhere yet, when a control socket is there to
//! bring them.

use crate::{
    book::Book,
    figures,
    file::RuleFile,
    handover::{Asked, FORMAT, Successor},
    kernel::resolve,
    kind::{RelayKind, RelayRun},
    report::RelayReport,
    rule::{Input, Output, Rule},
    verb,
};
use clap::Args;
use laneway_core::{DropReason, RCVBUF_BYTES_DEFAULT};
use laneway_kinds::{
    Account, AppCommand, AppVerb, ArmPlace, Ask, CABLE_BITS, Capability, Confines, Failure, Fanout,
    FanoutOutput, Finished, Forbidden, Line, On, Own, RunReport, Session, Shape, Traffic, Watched,
    WatchedRun, Witness, WorkerHeadings,
};
use laneway_linux::{Cidr, Mac, sysfs};
use laneway_metrics::Page;
use serde_json::{Map, Value, json};
use std::{
    fs,
    net::{SocketAddr, SocketAddrV4},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex},
};

/// Its options beside those of every run.
#[derive(Args, Debug)]
pub struct RelayArguments {
    /// A file of rules (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One rule more: the group or address of ours that datagrams are sent to, and their interface
    #[arg(long, value_name = "ADDR:PORT[@IFACE]", value_parser = interface_address)]
    input: Option<InterfaceAddress>,
    /// Where the datagrams of --input go, separated by commas
    #[arg(long, value_name = "ADDR:PORT[@IFACE]", value_delimiter = ',', value_parser = interface_address, requires = "input")]
    output: Vec<InterfaceAddress>,
    /// On lanes with a stack of their own, and on xdp: an address of the relay's on an interface, with the bits of
    /// its network; the first of a family is what outputs leave from. Separated by commas
    #[arg(long, value_name = "ADDR/BITS@IFACE", value_delimiter = ',', value_parser = own)]
    address: Vec<OwnAddress>,
    /// Networks whose hosts may be sent to, beside those of the file, separated by commas
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    allow: Vec<Cidr>,
    /// Relay groups of 224.0.0.0/24 and ff02::/16 too, which belong to one network's own protocols
    #[arg(long)]
    local_groups: bool,
    /// Go on where the relay ends that is spoken to at this path: with its rules, and on lanes socket and uring with
    /// its sockets and what is queued there, so that nothing is lost. With the same path for --control, that goes on
    /// too
    #[arg(long, value_name = "PATH", conflicts_with_all = ["config", "input"])]
    take_over: Option<PathBuf>,
    /// Keep every capability and allow every system call. By itself a run keeps, once its lane is open, what rules
    /// need that change while it runs: see the README
    #[arg(long)]
    keep_privileges: bool,
    /// What becomes of a system call that no run makes
    #[arg(long, value_name = "WHAT", default_value = "fail", value_parser = forbidden, conflicts_with = "keep_privileges",
          help = "What becomes of a system call that no run makes: fail, log (made, and in the kernel's log) or kill (the process)")]
    forbidden_calls: Forbidden,
    /// Answer `laneway relay` on a Unix socket at this path, made for its owner alone and removed at the end
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

fn forbidden(text: &str) -> Result<Forbidden, String> {
    match text {
        "fail" => Ok(Forbidden::Fail),
        "log" => Ok(Forbidden::Log),
        "kill" => Ok(Forbidden::Kill),
        _ => Err(format!("`{text}` is none of fail, log and kill")),
    }
}

/// An address with a port, and the interface that it is reached by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InterfaceAddress {
    address: SocketAddr,
    interface: Option<String>,
}

fn interface_address(text: &str) -> Result<InterfaceAddress, String> {
    let (address, interface) = match text.split_once('@') {
        Some((address, interface)) => (address, Some(interface.to_owned())),
        None => (text, None),
    };
    let address = address.parse().map_err(|_| {
        format!("`{text}` is no address with a port, such as 239.1.1.1:5000, [ff15::1]:5000 or 239.1.1.1:5000@eth1")
    })?;
    Ok(InterfaceAddress { address, interface })
}

/// An address of the relay's own, on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnAddress {
    address: Cidr,
    interface: String,
}

fn own(text: &str) -> Result<OwnAddress, String> {
    let parts = text.split_once('@');
    let parts =
        parts.and_then(|(address, interface)| Some((address.parse().ok()?, interface.to_owned())));
    let (address, interface) = parts.ok_or_else(|| {
        format!("`{text}` is no address on an interface, such as 192.0.2.1/24@eth1")
    })?;
    Ok(OwnAddress { address, interface })
}

impl AppCommand for RelayKind {
    type Arguments = RelayArguments;

    const ASKS_OF_HOST: &'static [Ask] = &[
        Ask::RingDepth,
        Ask::SendBuffer,
        Ask::ReceiveBuffer,
        Ask::Memberships,
        Ask::Backlog,
        Ask::Budget,
    ];

    const HELP: &'static str = "\
A rule has an input (a group, an address of ours, or any of a family, with a UDP port) and outputs
(groups and hosts). Every datagram that comes in leaves once by each output, payload unchanged. The
file is TOML:

  allow = [\"198.51.100.0/24\"]          # hosts that may be sent to; groups need no permission
  [[rule]]
  input = { interface = \"eth1\", group = \"239.1.1.1\", port = 5000, sources = [\"192.0.2.7\"] }
  outputs = [ { destination = \"198.51.100.4:6000\", interface = \"eth2\", dscp = 34, when_full = \"oldest\" },
              { destination = \"239.2.2.2:5000\", interface = \"eth3\", ttl = 4 } ]

An output may have: interface, source, ttl (64; to a group 1), dscp, priority, when_full (newest or
oldest) with queue_bytes, bytes_per_second, sample (1 of N), multicast_loop. A rule may have a name and
bytes_per_second. Rules that would send in a circle are refused.

Rules change while it runs with `laneway relay add|remove|replace --control PATH`; rules that a change
does not touch lose nothing by it. On lanes socket and uring a rule whose interface is not there waits for it; one
that is removed and made again, under its name, gets its groups and outputs again. Runs on lanes socket and uring, where addresses, routes
and neighbours are the kernel's, and on packet, afxdp and dpdk, where --address says who the relay is on
each interface that the rules name. Several workers (--workers) share the rules. What became of every datagram and
of every copy goes to standard error at the end: at Ctrl-C, or after --duration.

On lane xdp the datagrams never leave the kernel: one output per interface and rule, within one family, and no
bytes_per_second, sample, priority, multicast_loop or when_full = \"oldest\". Every input and output names its
interface; hosts are neighbours that the kernel knows (ping them first), without a router between.

Examples:
  sudo laneway run relay --lane uring:gso,gro --config relay.toml --control /run/relay.sock
  laneway run relay --lane socket:batch=64,gso,gro --input 239.1.1.1:5000@eth1 \\
      --output 239.2.2.2:5000@eth2,198.51.100.4:6000 --allow 198.51.100.0/24
  sudo laneway run relay --lane afxdp --config relay.toml --address 192.0.2.9/24@eth1,198.51.100.9/24@eth2
  sudo laneway run relay --lane xdp --input 239.1.1.1:5000@eth1 --output 239.2.2.2:5000@eth2 \\
      --address 198.51.100.9/24@eth2
  laneway relay check relay.toml
  laneway relay status --control /run/relay.sock";

    fn plan(arguments: &RelayArguments, on: On<'_>) -> Result<RelayRun, Failure> {
        let own = own_interfaces(arguments, on)?;
        let mut followed = followed(arguments, on.workers, on.lane.is_the_kernels())?;
        let mut file = match &arguments.config {
            Some(path) => verb::read(path)?,
            None => RuleFile::default(),
        };
        if let Some(followed) = &mut followed {
            file = RuleFile::of(followed.rules());
            let (allow, local_groups) = followed.permitted();
            (file.allow, file.local_groups) = (allow.to_vec(), local_groups);
        }
        let mut policy = file.policy(&arguments.allow, arguments.local_groups);
        if on.lane.is_the_kernels() {
            policy.socket_workers = on.workers;
        } else {
            policy.socket_workers = 0;
            policy.interfaces = Some(on.interfaces.to_vec());
            policy.own = arguments.address.iter().map(|own| own.address.address()).collect();
            if !on.lane.carries.has(Shape::Kernel) {
                // A stack of its own is another host than the kernel.
                policy.is_own = |_, _| false;
            }
        }
        if let Some(path) = &arguments.config {
            let checked = file.check(&policy);
            checked.map_err(|why| Failure::input(format!("{}: {why}", path.display())))?;
        }
        file.rules.extend(rule_of(arguments)?);
        if on.lane.carries.has(Shape::Kernel) {
            resolve::refuse(&file.rules, on.interfaces, &own).map_err(Failure::input)?;
        }
        if file.rules.is_empty() && arguments.control.is_none() && followed.is_none() {
            return Err(Failure::input(
                "there are no rules, and no way to bring any: give --config FILE, or --input ADDR:PORT with \
                 --output ADDR:PORT, or --control PATH for rules that come later",
            ));
        }
        let book = Book::new(file.rules, policy, on.workers).map_err(Failure::input)?;
        let mut run = RelayRun::new(Arc::new(book));
        run.own = own;
        run.confined = (!arguments.keep_privileges).then_some(arguments.forbidden_calls);
        run.talks.control.clone_from(&arguments.control);
        run.talks.adopts_control = followed.as_ref().is_some_and(Successor::has_control);
        if let Some(mut followed) = followed {
            run.talks.lost = followed.lost().map(str::to_owned);
            match &run.talks.lost {
                None => followed.hand_to(&run.book),
                // What both cannot have: an interface's program, the frames of a port.
                Some(_) => followed
                    .take()
                    .and_then(|_| followed.wait_for_end())
                    .map_err(|why| Failure::input(format!("cannot take over: {why}")))?,
            }
            run.talks.followed = Mutex::new(Some(followed));
        }
        Ok(run)
    }

    fn interfaces(arguments: &RelayArguments) -> Result<Vec<String>, Failure> {
        let file = arguments.config.as_deref().map(verb::read).transpose()?.unwrap_or_default();
        let followed = followed(arguments, 1, false)?.map(|mut followed| followed.rules());
        let rules = file.rules.into_iter().chain(rule_of(arguments)?);
        let rules = rules.chain(followed.into_iter().flatten());
        let named = rules.flat_map(|rule| {
            let outputs = rule.outputs.into_iter().map(|output| output.interface);
            [rule.input.interface].into_iter().chain(outputs).flatten().collect::<Vec<_>>()
        });
        let mut interfaces = Vec::new();
        for interface in named {
            if !interfaces.contains(&interface) {
                interfaces.push(interface);
            }
        }
        Ok(interfaces)
    }

    fn begin(run: &RelayRun, on: On<'_>, session: &Session<'_>) -> Result<(), Failure> {
        run.talks.begin(&run.book, on.spec.to_string(), session)
    }

    fn confines(run: &RelayRun, on: On<'_>) -> Option<Confines> {
        let forbidden = run.confined?;
        let mut capabilities = Vec::new();
        if on.lane.is_the_kernels() {
            let rules = run.book.rules();
            let mut outputs = rules.iter().flat_map(|(_, rule)| &rule.outputs);
            if rules.iter().any(|(_, rule)| rule.input.port < unprivileged_port_min()) {
                capabilities.push(Capability::NetBindService);
            }
            if outputs.any(|output| output.priority.is_some_and(|it| it > PRIORITY_FREE_MAX)) {
                capabilities.push(Capability::NetAdmin);
            }
        }
        Some(Confines { capabilities, forbidden })
    }

    fn leftover(run: &RelayRun) -> Option<PathBuf> {
        // That of the relay that is followed is not ours to remove before it has ceased.
        run.talks.control.clone().filter(|_| !run.talks.adopts_control)
    }

    /// Rules are in force some time after the lanes are open, and that is reported then.
    fn begun(run: &RelayRun, on: On<'_>) -> Option<String> {
        let mut lines = Vec::new();
        if let Some(lost) = &run.talks.lost {
            lines.push(format!("lost by taking over: {lost}"));
        }
        let gives_up_ports = on.lane.is_the_kernels()
            && run.talks.control.is_some()
            && Self::confines(run, on)
                .is_some_and(|it| !it.capabilities.contains(&Capability::NetBindService));
        if let (true, min @ 1..) = (gives_up_ports, unprivileged_port_min()) {
            lines.push(format!(
                "rules that come later may have ports from {min} up; for others begin with one, or with --keep-privileges"
            ));
        }
        // Inputs are opened behind the lane, when a run has given up what goes beyond the host's limits.
        if on.lane.is_the_kernels() && !on.spec.names_any(&["rcvbuf"]) && !exceeds_limits() {
            lines.extend(sysctl("net/core/rmem_max").and_then(shorter_queues));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    fn metrics(run: &RelayRun, page: &mut Page) {
        figures::add(&run.book, page);
    }

    fn finish(
        run: &RelayRun,
        _on: On<'_>,
        _finished: Option<Finished<'_, RelayReport>>,
    ) -> Result<(), Failure> {
        run.talks.end()
    }

    fn account(_run: &RelayRun, on: On<'_>, lane: &RunReport, report: &RelayReport) -> Account {
        let counters = lane.counters();
        let RelayReport { fates, copies, passed, .. } = report;
        let not_sent: u64 = counters
            .nonzero_drops()
            .filter(|&(reason, _)| is_not_sent(reason))
            .map(|(_, n)| n)
            .sum();
        let in_kernel = on.lane.carries.has(Shape::Kernel);
        // A kernel half's copies are the drivers', and the lane knows what those did not take.
        let sent =
            if in_kernel { copies.handed.saturating_sub(not_sent) } else { counters.tx_frames };
        let no_rule = match in_kernel {
            true => {
                "left to the kernel: no rule is about where they were sent to, or they are no UDP"
            }
            false => "no rule is about where they were sent to",
        };
        let passed_over = match in_kernel {
            true => {
                "the output's interface was gone or down, its MTU too small, or it takes no redirected frames (a veth whose \
                 far end has neither GRO nor an XDP program)"
            }
            false => "the output's interface was gone or down, or its MTU too small",
        };
        let seen_lines: [Line; 4] = [
            ("  relayed".to_owned(), fates.relayed, ""),
            ("  no_rule".to_owned(), fates.no_rule, no_rule),
            ("  other_source".to_owned(), fates.other_source, "the rule lists other senders"),
            ("  rate_limited".to_owned(), fates.rate_limited, "beyond the rule's bytes_per_second"),
        ];
        let copy_lines: [Line; 5] = [
            ("copies".to_owned(), copies.asked, "relayed datagrams times outputs"),
            ("  sent".to_owned(), sent, ""),
            ("  sampled_out".to_owned(), copies.sampled_out, "as the output's sample asks"),
            (
                "  rate_limited".to_owned(),
                copies.rate_limited,
                "beyond the output's bytes_per_second",
            ),
            ("  passed_over".to_owned(), copies.passed_over, passed_over),
        ];
        let mut lines: Vec<Line> = seen_lines.into_iter().filter(|(_, n, _)| *n > 0).collect();
        let passed_lines =
            passed.iter().map(|(why, n)| (format!("  {why}"), *n, "left to the kernel"));
        lines.extend(passed_lines);
        lines.extend(
            copy_lines
                .into_iter()
                .enumerate()
                .filter(|(i, (_, n, _))| *i < 2 || *n > 0)
                .map(|(_, l)| l),
        );
        if !in_kernel && counters.passed > 0 {
            let about = "fragments, which our stack does not put together, other ports and protocols, other hosts";
            lines.push(("frames left to the kernel".to_owned(), counters.passed, about));
        }
        lines.extend(counters.nonzero_drops().map(|(reason, n)| {
            let indent = if is_not_sent(reason) { "  " } else { "" };
            (format!("{indent}{}", reason.name()), n, "by the lane")
        }));
        // io_uring tells of a datagram when it is sent: the last ones are on their way at the end.
        let unconfirmed = match on.lane.confirms_late {
            true => 0,
            false => copies.handed.saturating_sub(sent + not_sent),
        };
        let drops: Map<String, Value> = counters
            .nonzero_drops()
            .map(|(reason, n)| (reason.name().to_owned(), json!(n)))
            .collect();
        let fate_members = [
            ("relayed", fates.relayed),
            ("no_rule", fates.no_rule),
            ("other_source", fates.other_source),
            ("rate_limited", fates.rate_limited),
        ];
        let fate_members = fate_members.into_iter().chain(passed.iter().map(|(why, n)| (*why, *n)));
        let fate_members: Map<String, Value> =
            fate_members.map(|(why, n)| (why.to_owned(), json!(n))).collect();
        let json = Map::from_iter([
            ("fates".to_owned(), Value::Object(fate_members)),
            (
                "copies".to_owned(),
                json!({
                    "asked": copies.asked,
                    "sent": sent,
                    "sampled_out": copies.sampled_out,
                    "rate_limited": copies.rate_limited,
                    "passed_over": copies.passed_over,
                }),
            ),
            ("lane_drops".to_owned(), Value::Object(drops)),
        ]);
        Account {
            one: if in_kernel { "frame" } else { "datagram" },
            seen_heading: if in_kernel { "frames seen" } else { "datagrams seen" },
            seen: counters.rx_frames,
            accounted: fates.total() + passed.values().sum::<u64>(),
            unconfirmed,
            lines,
            json,
            ..Account::default()
        }
    }

    fn verbs() -> Vec<AppVerb> {
        vec![verb::VERB]
    }

    type Arm<'a, W: Witness + 'a> = Watched<'a, RelayKind, W>;

    fn arm<'a, W: Witness + 'a>(run: &'a RelayRun, witness: W) -> WatchedRun<'a, RelayKind, W> {
        WatchedRun::new(run, witness)
    }

    fn place(place: &ArmPlace<'_>) -> Vec<String> {
        let Some(Fanout { input, address, groups, outputs }) = place.fanout else {
            return Vec::new();
        };
        let mut words = Vec::new();
        if !place.lane.is_the_kernels() {
            let mut own = vec![format!("{address}/{CABLE_BITS}@{input}")];
            for FanoutOutput { interface, source, .. } in outputs {
                let there = format!("{source}/{CABLE_BITS}@{interface}");
                if !own.contains(&there) {
                    own.push(there);
                }
            }
            words.extend(["--address".to_owned(), own.join(",")]);
        }
        if let [group] = groups {
            let outputs =
                outputs.iter().map(|it| format!("{}:{}@{}", group.ip(), it.port, it.interface));
            let outputs = outputs.collect::<Vec<_>>().join(",");
            let input = format!("{group}@{input}");
            words.extend(["--input".to_owned(), input, "--output".to_owned(), outputs]);
            return words;
        }
        // More rules than a command line takes. Where the file cannot be written, the run says that it is not there.
        let path = place.memory.join("relay.toml");
        let rules = groups.iter().map(|group| rule_text(*group, input, outputs));
        let _ = fs::write(&path, rules.collect::<String>());
        words.extend(["--config".to_owned(), path.display().to_string()]);
        words
    }

    fn check_arm(_arguments: &RelayArguments, _traffic: Traffic) -> Result<(), String> {
        Ok(())
    }

    fn worker_json(report: &RelayReport) -> Map<String, Value> {
        let RelayReport { fates, copies, .. } = report;
        Map::from_iter([
            ("relayed".to_owned(), json!(fates.relayed)),
            ("copies".to_owned(), json!(copies.asked)),
        ])
    }

    fn worker_headings(_run: &RelayRun) -> WorkerHeadings {
        WorkerHeadings { seen: "received", sent: "sent" }
    }
}

/// The relay that is to be followed, asked for what it has.
fn followed(
    arguments: &RelayArguments,
    workers: usize,
    sockets: bool,
) -> Result<Option<Successor>, Failure> {
    let Some(path) = &arguments.take_over else { return Ok(None) };
    let control = arguments.control.as_ref().is_some_and(|control| is_one_file(control, path));
    let asked = Asked { format: FORMAT, workers, sockets, control };
    Successor::ask(path, &asked).map(Some).map_err(Failure::input)
}

/// Whether both paths lead to one file that is there, or are one.
fn is_one_file(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    one == other || file(one).is_some_and(|it| file(other) == Some(it))
}

/// Priorities that any process may give what is sent.
const PRIORITY_FREE_MAX: u32 = 6;

/// The first UDP port that takes no privilege.
fn unprivileged_port_min() -> u16 {
    const USUAL: u16 = 1024;
    sysctl("net/ipv4/ip_unprivileged_port_start").unwrap_or(USUAL)
}

fn sysctl<N: FromStr>(name: &str) -> Option<N> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok()
}

/// Whether this thread may have buffers beyond the host's limits (CAP_NET_ADMIN).
fn exceeds_limits() -> bool {
    const NET_ADMIN: u32 = 12;
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set >> NET_ADMIN & 1 == 1)
}

/// What is reported where the host lets an input queue less than it would.
fn shorter_queues(most: usize) -> Option<String> {
    let wanted = RCVBUF_BYTES_DEFAULT;
    (most < wanted).then(|| {
        format!(
            "each input may queue {most} bytes (net.core.rmem_max) and not {wanted}: raise that, or begin as root with the \
             knob rcvbuf={wanted} or with --keep-privileges"
        )
    })
}

/// The relay's addresses on each interface, for a stack of its own or a kernel half.
fn own_interfaces(arguments: &RelayArguments, on: On<'_>) -> Result<Vec<Own>, Failure> {
    let On { lane, interfaces, .. } = on;
    if lane.is_the_kernels() {
        return match (interfaces.is_empty(), arguments.address.first()) {
            (true, None) => Ok(Vec::new()),
            (false, _) => refused(format!(
                "--on cannot be used here: on lane {} the rules name interfaces; write `interface` in a rule, or @IFACE \
                 behind an address",
                lane.name
            )),
            (true, Some(_)) => refused(format!(
                "--address cannot be used here: on lane {} addresses are the kernel's; an output may have a `source`",
                lane.name
            )),
        };
    }
    let in_kernel = lane.carries.has(Shape::Kernel);
    if !in_kernel && !lane.runs(Shape::Datagrams) {
        return refused(format!(
            "lane {} carries no datagrams; use lane socket or uring, or packet, afxdp, dpdk or xdp with --address",
            lane.name
        ));
    }
    if interfaces.is_empty() {
        return refused(format!(
            "lane {} needs to know its interfaces: name them in the rules, or give --on IFACE",
            lane.name
        ));
    }
    let elsewhere = arguments.address.iter().find(|own| !interfaces.contains(&own.interface));
    if let Some(OwnAddress { address, interface }) = elsewhere {
        return refused(format!(
            "--address {address}@{interface}: the run has no interface `{interface}`; it has {}",
            interfaces.join(", ")
        ));
    }
    let own = interfaces.iter().map(|name| {
        let mac = sysfs(name, "address").and_then(|text| text.parse::<Mac>().ok());
        let Some(mac) = mac.filter(|mac| mac.is_assignable()) else {
            return refused(format!("`{name}` has no link address to be at; `ip link` lists the interfaces"));
        };
        let own = arguments.address.iter().filter(|own| own.interface == *name);
        let addresses: Vec<_> = own.map(|own| (own.address.address(), own.address.prefix_bits())).collect();
        // In the kernel an interface that nothing leaves by needs none.
        if addresses.is_empty() && !in_kernel {
            return refused(format!(
                "who is the relay on `{name}`? Lane {} has a stack of its own: give --address ADDR/BITS@{name}",
                lane.name
            ));
        }
        let mtu_bytes = sysfs(name, "mtu").and_then(|text| text.parse().ok());
        Ok(Own { mac: mac.0, addresses, mtu_bytes })
    });
    own.collect()
}

fn refused<T>(why: String) -> Result<T, Failure> {
    Err(Failure::input(why))
}

/// True where a lane counts a copy that it was to send and did not: a stack also for want of a next hop.
fn is_not_sent(reason: DropReason) -> bool {
    reason.is_refusal() || matches!(reason, DropReason::NoNeighbour | DropReason::NoRoute)
}

/// A rule of a file: a group to its outputs.
fn rule_text(group: SocketAddrV4, input: &str, outputs: &[FanoutOutput<'_>]) -> String {
    let outputs = outputs.iter().map(|it| {
        let destination = SocketAddrV4::new(*group.ip(), it.port);
        format!("  {{ destination = \"{destination}\", interface = \"{}\" }},\n", it.interface)
    });
    format!(
        "[[rule]]\ninput = {{ interface = \"{input}\", group = \"{}\", port = {} }}\noutputs = [\n{}]\n",
        group.ip(),
        group.port(),
        outputs.collect::<String>()
    )
}

/// The rule of the command line, if there is one.
fn rule_of(arguments: &RelayArguments) -> Result<Option<Rule>, Failure> {
    let Some(InterfaceAddress { address, interface }) = &arguments.input else { return Ok(None) };
    if arguments.output.is_empty() {
        return Err(Failure::input("--input has nowhere to go: give --output ADDR:PORT[@IFACE]"));
    }
    let ip = address.ip();
    let (group, own) = if ip.is_multicast() { (Some(ip), None) } else { (None, Some(ip)) };
    let input = Input {
        interface: interface.clone(),
        group,
        address: own,
        family: None,
        port: address.port(),
        sources: Vec::new(),
    };
    let outputs = arguments.output.iter().map(|to| Output::to(to.address, to.interface.clone()));
    Ok(Some(Rule { name: None, input, outputs: outputs.collect(), bytes_per_second: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_the_host_shortens_are_reported_and_others_are_not() {
        let line = shorter_queues(212_992).expect("less than is wanted");
        for part in ["212992 bytes", "net.core.rmem_max", "4194304", "rcvbuf="] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert_eq!(shorter_queues(RCVBUF_BYTES_DEFAULT), None);
    }

    #[test]
    fn a_control_socket_is_known_however_its_path_is_written() {
        let folder = std::env::temp_dir().join(format!("laneway-control-{}", std::process::id()));
        fs::create_dir_all(folder.join("sub")).expect("a folder");
        let (own, link) = (folder.join("own.sock"), folder.join("link.sock"));
        let listener = std::os::unix::net::UnixListener::bind(&own).expect("a free path");
        std::os::unix::fs::symlink(&own, &link).expect("a free path");
        fs::write(folder.join("other"), "").expect("a file");
        for (path, is_one) in [
            ("own.sock", true),
            ("sub/../own.sock", true),
            ("link.sock", true),
            ("other", false),
            ("none", false),
        ] {
            assert_eq!(is_one_file(&folder.join(path), &own), is_one, "{path}");
        }
        // As it is written, though nothing is there.
        assert!(is_one_file(&folder.join("none"), &folder.join("none")));
        drop(listener);
        fs::remove_dir_all(folder).expect("it is there");
    }
}
