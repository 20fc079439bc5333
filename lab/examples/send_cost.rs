//! What sending a datagram costs on lanes `socket` and `uring`, by how many leave in one call.
//!
//! Question: is a train cheaper than single sends, and does io_uring change that?
//!
//! ```text
//! cargo run --release -p laneway-lab --example send_cost [-- ROUNDS [SPEC...]]
//! ```
//!
//! Datagrams of 1316 bytes (7 MPEG-TS packets) to one destination, over a veth pair with
//! `tx-udp-segmentation` off, so that the kernel cuts every train into packets before they cross, and
//! to a MAC address that no interface has, so that the far end drops each at once. All arms are opened in
//! one process and visited in turn, one round after the other. Measured is the CPU time of the sending
//! thread, which on veth includes the receiver's soft interrupt, and that of ksoftirqd; each figure
//! is per datagram that the far end counted. The first arm runs twice, for the noise floor.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it is a program")]

use laneway_core::{
    App, Clock, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut, Lane, PortId, Turn,
};
use laneway_engine::{MonotonicClock, pin_to_cpu};
use laneway_netns::{Topology, TopologyOptions, interface_counters};
use laneway_socket::UdpLane;
use laneway_spec::LaneSpec;
use laneway_uring::UringUdp;
use rustix::time::{ClockId, clock_gettime};
use std::{error::Error, fs, net::SocketAddr};

const ARMS: [&str; 7] = [
    "socket",
    "socket",
    "socket:batch=64",
    "socket:gso,batch=64",
    "uring:batch=64",
    "uring:gso,batch=64",
    "uring:gso,batch=64,send_zc=16384",
];
const ROUNDS_DEFAULT: usize = 15;
const PAYLOAD_BYTES: usize = 1316;
/// Datagrams of one tick, and ticks of one round.
const BURST: usize = 64;
const TICKS: usize = 400;
const CPU: usize = 0;
/// Documentation addresses; no interface has the second.
const NEAR: &str = "192.0.2.10";
const UNUSED_ADDRESS: &str = "192.0.2.99";
const UNOWNED_MAC: &str = "02:00:00:00:00:99";

/// Sends a burst per tick.
struct Source {
    to: SocketAddr,
    counters: Counters,
}

impl App for Source {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Source {
    fn on_datagrams<O: DatagramOut>(&mut self, _: &[Datagram<'_>], _: Turn, _: &mut O) {}

    fn on_tick<O: DatagramOut>(&mut self, _turn: Turn, out: &mut O) {
        for _ in 0..BURST {
            out.send(PortId(0), self.to, PAYLOAD_BYTES, |bytes| {
                bytes[..PAYLOAD_BYTES].fill(0x47);
                PAYLOAD_BYTES
            });
        }
    }
}

enum Arm {
    Socket(Box<UdpLane>),
    Uring(Box<UringUdp>),
}

impl Arm {
    fn open(spec: &str) -> Result<Arm, Box<dyn Error>> {
        let join = if spec.contains(':') { ',' } else { ':' };
        let parsed: LaneSpec = format!("{spec}{join}sndbuf=4m").parse()?;
        let at = SocketAddr::new(NEAR.parse()?, 0);
        Ok(match parsed.lane() {
            "socket" => Arm::Socket(Box::new(UdpLane::open(&parsed, &[at])?)),
            _ => Arm::Uring(Box::new(UringUdp::open(&parsed, &[at])?)),
        })
    }

    /// One round: CPU ns.
    fn round(&mut self, app: &mut Source) -> Result<u64, Box<dyn Error>> {
        let before_ns = cpu_ns()?;
        match self {
            Arm::Socket(lane) => ticks(&mut **lane, app)?,
            Arm::Uring(lane) => ticks(&mut **lane, app)?,
        }
        Ok(cpu_ns()? - before_ns)
    }

    fn sent(&mut self) -> u64 {
        match self {
            Arm::Socket(lane) => lane.counters(PortId(0)).tx_frames,
            Arm::Uring(lane) => lane.counters(PortId(0)).tx_frames,
        }
    }
}

fn ticks<L: DatagramLane>(lane: &mut L, app: &mut Source) -> Result<(), Box<dyn Error>> {
    for _ in 0..TICKS {
        lane.tick(app, Turn { now_ns: MonotonicClock.now_ns() })?;
        // A ring hands its slots back when it is served.
        lane.serve(app, &MonotonicClock)?;
    }
    Ok(())
}

/// This thread's CPU time and that of every ksoftirqd, exact to the task switch.
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let own = clock_gettime(ClockId::ThreadCPUTime);
    let mut ns = own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64;
    for entry in fs::read_dir("/proc")?.flatten() {
        let is_softirq = fs::read_to_string(entry.path().join("comm"))
            .is_ok_and(|name| name.starts_with("ksoftirqd/"));
        if is_softirq {
            let schedstat = fs::read_to_string(entry.path().join("schedstat"))?;
            ns += schedstat.split(' ').next().unwrap_or("0").parse::<u64>()?;
        }
    }
    Ok(ns)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS_DEFAULT), |text| text.parse())?;
    let mut specs: Vec<String> = std::env::args().skip(2).collect();
    if specs.is_empty() {
        specs = ARMS.map(str::to_owned).to_vec();
    }
    let topology = Topology::create(&TopologyOptions::new("send"))?;
    let interface = topology.sut.interface;
    for arguments in [
        vec!["address", "replace", "192.0.2.10/24", "dev", interface],
        vec!["neighbour", "replace", UNUSED_ADDRESS, "lladdr", UNOWNED_MAC, "dev", interface],
    ] {
        let status = topology.sut.namespace.command("ip").args(&arguments).status()?;
        if !status.success() {
            return Err(format!("ip {} failed", arguments.join(" ")).into());
        }
    }
    let outcome =
        topology.sut.namespace.enter(|| race(rounds, &specs, &topology).map_err(|e| e.to_string()));
    outcome??;
    Ok(())
}

fn race(rounds: usize, specs: &[String], topology: &Topology) -> Result<(), Box<dyn Error>> {
    pin_to_cpu(CPU)?;
    let mut app =
        Source { to: SocketAddr::new(UNUSED_ADDRESS.parse()?, 9), counters: Counters::default() };
    let mut arms = Vec::new();
    for spec in specs {
        arms.push(Arm::open(spec)?);
    }
    let far_end = || topology.generator.namespace.enter(|| interface_counters("gen0"));
    let mut costs = vec![Vec::new(); specs.len()];
    // The first round warms up and is not counted.
    for round in 0..=rounds {
        for turn in 0..specs.len() {
            let i = (round + turn) % specs.len();
            let arm = &mut arms[i];
            let (sent, crossed) = (arm.sent(), far_end()??.rx_packets);
            let ns = arm.round(&mut app)?;
            let (sent, crossed) = (arm.sent() - sent, far_end()??.rx_packets - crossed);
            if sent != crossed {
                println!("{}: {sent} sent, the far end counted {crossed}", specs[i]);
            }
            if round > 0 {
                costs[i].push(ns as f64 / crossed.max(1) as f64);
            }
        }
    }
    println!(
        "{rounds} rounds of {} datagrams of {PAYLOAD_BYTES} bytes per arm, interleaved, CPU {CPU}",
        BURST * TICKS
    );
    println!("{:<36} {:>9} {:>17} {:>22}", "arm", "ns", "least-most", "ratio to the first");
    for (i, spec) in specs.iter().enumerate() {
        let mut ratios: Vec<f64> =
            costs[i].iter().zip(&costs[0]).map(|(own, base)| own / base).collect();
        let ratio = median(&mut ratios);
        let mut own = costs[i].clone();
        println!(
            "{spec:<36} {:>9.0} {:>8.0}-{:<8.0} {ratio:>8.3} [{:.3}, {:.3}]",
            median(&mut own),
            own[0],
            own[own.len() - 1],
            ratios[ratios.len() / 10],
            ratios[ratios.len() - 1 - ratios.len() / 10],
        );
    }
    Ok(())
}
