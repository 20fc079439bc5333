//! What may be said to `laneway run forward`.

use super::{LIVE_WORKERS_MAX, cpu_range, duration};
use clap::Args;
use laneway_forward::{Mode, Neighbour, QUEUES_MAX, Route};
use laneway_netns::Mac;
use laneway_spec::LaneSpec;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const EXAMPLES: &str = "\
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

Several workers (--workers) share ports, rules, routes, neighbours and the stations of mode l2; every
answer and every number is that of all of them together. A flow stays with one worker, so its frames
stay in order. `queue index N` and `rss` bring frames to another worker where the port executes the
rule itself; elsewhere the choice is counted and the frame stays where it came.

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

/// Queues that rules can name, as the app counts them.
const QUEUES: i64 = QUEUES_MAX as i64;

#[derive(Args, Debug)]
pub(crate) struct ForwardArguments {
    /// Lane and knobs, such as packet:ring, afxdp, xdp, dpdk:net_tap; `laneway lanes` lists them
    #[arg(long, value_name = "SPEC")]
    pub(crate) lane: LaneSpec,
    /// Interfaces, or capture files on lane pcap; given several times or separated by commas
    #[arg(long, value_name = "IFACE", value_delimiter = ',', required = true)]
    pub(crate) on: Vec<String>,
    /// What is done with frames that no rule decides on: io, mac, macswap, 5tswap, l2, l3, drop
    #[arg(long, value_name = "MODE", default_value = "io")]
    pub(crate) mode: Mode,
    /// Mode mac: link addresses at the other end, by port [default: 02:00:00:00:00:PORT]
    #[arg(long, value_name = "MAC", value_delimiter = ',')]
    pub(crate) peer: Vec<Mac>,
    /// Mode l3: a route, such as '10.0.0.0/8 via 192.0.2.1 port 1' or '2001:db8::/64 port 0'
    #[arg(long, value_name = "ROUTE")]
    pub(crate) route: Vec<Route>,
    /// Mode l3: a next hop's link address, such as '192.0.2.1 02:00:00:00:00:09'
    #[arg(long, value_name = "NEIGHBOUR")]
    pub(crate) neighbour: Vec<Neighbour>,
    /// A file of `flow create` lines
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// A `flow` command, after those of the file
    #[arg(long, value_name = "COMMAND")]
    pub(crate) rule: Vec<String>,
    /// Queues that rules may name [default: as many as workers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=QUEUES))]
    pub(crate) queues: Option<u16>,
    /// Read `flow` commands from standard input while it runs
    #[arg(long)]
    pub(crate) interactive: bool,
    /// Answer commands on a Unix socket at this path, made for its owner alone and removed at the end
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// End after this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Keep the worker on this CPU
    #[arg(long, value_name = "CPU", conflicts_with_all = ["workers", "cpus"])]
    pub(crate) cpu: Option<usize>,
    /// Threads, each with a CPU and queues of its own; the kernel or the device spreads flows over them
    /// (lanes packet, afxdp and dpdk) [default: 1, on no CPU in particular]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=LIVE_WORKERS_MAX))]
    pub(crate) workers: Option<u8>,
    /// CPUs of the workers, such as 0,2 or 4-7 [default: the first that may be used]
    #[arg(long, value_name = "LIST", value_parser = cpu_range, value_delimiter = ',')]
    pub(crate) cpus: Vec<RangeInclusive<usize>>,
    /// Trace the workers into this folder, a file each; `laneway trace analyze DIR` reads it
    #[arg(long, value_name = "DIR")]
    pub(crate) trace: Option<PathBuf>,
    /// Use interfaces that carry a default route as well
    #[arg(long)]
    pub(crate) force: bool,
}
