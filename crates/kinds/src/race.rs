//! What a race of an app is, as data: what is sent to it, where what it did is counted, what is compared.
//!
//! An arm of a race is the app that `run` runs, from the same arguments. Where the lab has to see what the app is
//! handed, it stands between lane and app as a [`Witness`] ([`Watched`]); an app whose product is not frames tells
//! the witness itself ([`AppCommand::Arm`](crate::AppCommand::Arm)).

use crate::{AppFacts, AppKind, Asks, Conclude, KernelOffer, LaneFacts, Place, RunReport, Shape};
use laneway_core::{
    App, Burst, Counters, Datagram, DatagramApp, DatagramOut, DatagramPorts, Fill, FrameApp,
    LaneError, PortId, Turn,
};
use laneway_flow::Offload;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What is sent in a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// The frames of a capture.
    Capture {
        /// Whether they may have VLAN tags: what is sent on through a kernel's interface may not.
        tagged: bool,
    },
    /// UDP datagrams of one flow, made by the lab.
    Udp,
    /// ICMP echo requests of one source, made by the lab.
    Pings,
    /// Requests over TCP connections, by a client of the lab's.
    Tcp(Protocol),
    /// UDP datagrams to multicast groups, made by the lab, each of which is to come out at several outputs
    /// ([`Fanout`]).
    Fanout,
}

/// What a race of fan-out asks of an arm, as the rules of a relay say it: each datagram to one of `groups` that
/// `input` receives is to leave by every one of `outputs`, once, to the same group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout<'a> {
    /// The interface that receives datagrams.
    pub input: &'a str,
    /// The address of ours on it.
    pub address: Ipv4Addr,
    /// The groups, and the UDP port that is the same for all.
    pub groups: &'a [SocketAddrV4],
    /// Where a copy is to go.
    pub outputs: &'a [FanoutOutput<'a>],
}

/// An output of every group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanoutOutput<'a> {
    /// The interface that copies leave by.
    pub interface: &'a str,
    /// The address of ours on it.
    pub source: Ipv4Addr,
    /// The UDP port that they are sent to, at the group that they were sent to.
    pub port: u16,
}

/// Bits that the addresses of one cable of a race have in common.
pub const CABLE_BITS: u8 = 24;

/// What a client says over a connection, and how it knows the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Any bytes, and the same bytes come back (RFC 862).
    Echo,
    /// Values are set for keys and got back (RESP2, the protocol of Redis).
    Resp,
}

impl Protocol {
    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Echo => "echo",
            Protocol::Resp => "SET and GET (RESP2)",
        }
    }

    /// Programs of others that speak it.
    pub const fn peers(self) -> &'static [Peer] {
        match self {
            Protocol::Echo => &[],
            Protocol::Resp => &[Peer::RedisServer],
        }
    }
}

/// Where the packets of a race are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// By the app, which tells the witness of each of its records.
    Records,
    /// Where the app is handed them.
    Handed,
    /// There, and where they come back or out of the other port, which is what counts as delivered.
    Returned,
    /// One by one where they come out of the other port.
    Forwarded,
    /// By the replies, at the source of the requests.
    Replies,
    /// By the client, whose requests over connections are answered.
    Answered,
    /// One by one at each output, out of the ports beyond the first: as many of each datagram as there are outputs.
    Copies,
}

impl Counted {
    /// Whether a witness in the arm sees each packet.
    pub const fn by_witness(self) -> bool {
        matches!(self, Counted::Records | Counted::Handed | Counted::Returned)
    }

    /// Whether what is delivered comes out of the arm, to the generator's side.
    pub const fn comes_out(self) -> bool {
        matches!(self, Counted::Returned | Counted::Forwarded | Counted::Copies)
    }
}

/// A foreign program that is an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// DPDK's own test program, `dpdk-testpmd`; the lane is the name of its virtual device.
    Testpmd,
    /// The kernel's own stack, with nothing started at all, which is given the address of the pings.
    Stack,
    /// The kernel's bridge over both ports.
    Bridge,
    /// `xdp-bench redirect` of xdp-tools.
    XdpBench,
    /// The kernel's multicast routing, set up by `smcrouted`: an output is an interface, and rewrites nothing.
    Smcroute,
    /// `redis-server`; the lane is its name with the knobs that it is given, as in `redis-server:appendfsync=always`.
    RedisServer,
    /// Any other program, in place of the lane its command line. An app need not name it: a program may
    /// stand for any app that can be raced.
    Command,
}

impl Peer {
    /// As in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Testpmd => "testpmd",
            Peer::Stack => "stack",
            Peer::Bridge => "bridge",
            Peer::XdpBench => "xdp-bench",
            Peer::Smcroute => "smcroute",
            Peer::RedisServer => "redis-server",
            Peer::Command => "command",
        }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Metric {
    /// Records delivered per second.
    #[serde(rename = "records/s")]
    Rate,
    /// CPU time of the arm's own per delivered record, ns; nothing is subtracted.
    #[serde(rename = "CPU per record")]
    Cpu,
    /// The same the other way round: replies delivered per second of CPU time. For goals; of one without a load it is
    /// what is left of a CPU under a load beyond the arm.
    #[serde(rename = "replies per CPU-second")]
    PerCpu,
    /// 99th percentile from the scheduled send time to the app, ns.
    #[serde(rename = "p99 wire to app")]
    WireToApp,
    /// 99th percentile from the frame in user hands to the record handled, ns.
    #[serde(rename = "p99 app only")]
    AppOnly,
    /// Median from the scheduled time of a request to its reply, ns.
    #[serde(rename = "p50 rtt")]
    RttP50,
    /// 99th percentile from the scheduled time of a request to its reply, ns.
    #[serde(rename = "p99 rtt")]
    RttP99,
    /// 99.9th percentile of that, ns. For goals and claims.
    #[serde(rename = "p99.9 rtt")]
    RttP999,
    /// Median from the scheduled time of a frame to its arrival at the far end, ns.
    #[serde(rename = "p50 due to arrival")]
    ArrivalP50,
    /// 99th percentile from the scheduled time of a frame to its arrival at the far end, ns.
    #[serde(rename = "p99 due to arrival")]
    ArrivalP99,
    /// Lost frames as a share of the offered.
    #[serde(rename = "loss")]
    Loss,
    /// Copies lost on every cable but the first, as a share of theirs: where that one is limited, what it costs the
    /// others. For goals and claims, as are those that follow.
    #[serde(rename = "loss of the others")]
    LossOfOthers,
    /// CPU time per second of the schedule, a share of one CPU.
    #[serde(rename = "CPU used")]
    CpuUsed,
    /// Median from the scheduled send time to the app, ns.
    #[serde(rename = "p50 wire to app")]
    WireToAppP50,
    /// What the arm holds for packets on their way: maps and rings of the kernel, socket buffers, locked pages, bytes.
    #[serde(rename = "ring memory")]
    RingMemory,
    /// What the arm's process holds: its resident set and huge pages, which are not in it, bytes.
    #[serde(rename = "resident memory")]
    Resident,
    /// Of the machine's own `ping`, with nothing else sent: mean, ns.
    #[serde(rename = "ping avg")]
    PingAvg,
    /// The shortest.
    #[serde(rename = "ping min")]
    PingMin,
    /// The longest, of as many pings for each arm.
    #[serde(rename = "ping max")]
    PingMax,
    /// Mean deviation, as `ping` has it.
    #[serde(rename = "ping mdev")]
    PingMdev,
    /// The highest offered rate of which no more than a stated share is lost, found by a search.
    #[serde(rename = "capacity")]
    Capacity,
    /// The highest of which nothing is.
    #[serde(rename = "zero-loss rate")]
    ZeroLoss,
}

impl Metric {
    /// The name in tables and scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Rate => "records/s",
            Metric::Cpu => "CPU per record",
            Metric::PerCpu => "replies per CPU-second",
            Metric::WireToApp => "p99 wire to app",
            Metric::AppOnly => "p99 app only",
            Metric::RttP50 => "p50 rtt",
            Metric::RttP99 => "p99 rtt",
            Metric::RttP999 => "p99.9 rtt",
            Metric::ArrivalP50 => "p50 due to arrival",
            Metric::ArrivalP99 => "p99 due to arrival",
            Metric::Loss => "loss",
            Metric::LossOfOthers => "loss of the others",
            Metric::CpuUsed => "CPU used",
            Metric::WireToAppP50 => "p50 wire to app",
            Metric::RingMemory => "ring memory",
            Metric::Resident => "resident memory",
            Metric::PingAvg => "ping avg",
            Metric::PingMin => "ping min",
            Metric::PingMax => "ping max",
            Metric::PingMdev => "ping mdev",
            Metric::Capacity => "capacity",
            Metric::ZeroLoss => "zero-loss rate",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Rate | Metric::PerCpu | Metric::Capacity | Metric::ZeroLoss => "1/s",
            Metric::Loss | Metric::LossOfOthers => "share",
            Metric::CpuUsed => "of a CPU",
            Metric::RingMemory | Metric::Resident => "bytes",
            _ => "ns",
        }
    }

    /// A value of it, or a limit, with its unit: `2000/s`, `410 ns`.
    pub fn in_unit(self, value: &str) -> String {
        match self.unit() {
            "1/s" => format!("{value}/s"),
            unit => format!("{value} {unit}"),
        }
    }

    /// Whether it is taken of the machine's own `ping`, without an offered load.
    pub fn is_of_pings(self) -> bool {
        matches!(self, Metric::PingAvg | Metric::PingMin | Metric::PingMax | Metric::PingMdev)
    }

    /// Whether a search finds it, which has loads of its own.
    pub fn is_searched(self) -> bool {
        matches!(self, Metric::Capacity | Metric::ZeroLoss)
    }

    /// Whether it is taken beside the offered loads, once in a generation.
    pub fn has_no_load(self) -> bool {
        self.is_of_pings() || self.is_searched()
    }

    /// Whether it is a share that was lost, which may honestly be zero.
    pub fn is_loss(self) -> bool {
        matches!(self, Metric::Loss | Metric::LossOfOthers)
    }

    /// Whether it says nothing where what was delivered is not known.
    pub fn is_of_delivery(self) -> bool {
        let is_it = matches!(self, Metric::Rate | Metric::PerCpu) || self.is_loss();
        is_it || self.is_searched()
    }

    /// Whether it is of CPU time, which other programs are no part of.
    pub fn is_of_cpu(self) -> bool {
        matches!(self, Metric::Cpu | Metric::PerCpu | Metric::CpuUsed)
    }

    /// Whether it is what a packet costs or takes: of an arm that loses packets, it is another thing.
    pub fn is_cost(self) -> bool {
        let is_other = matches!(self, Metric::Rate | Metric::RingMemory | Metric::Resident);
        !is_other && !self.is_loss() && !self.is_searched()
    }
}

/// What is compared where a client asks over connections.
const ANSWERED: &[Metric] =
    &[Metric::RttP50, Metric::RttP99, Metric::Rate, Metric::Cpu, Metric::Loss];

/// What is compared of what comes out: nothing is known of such an app's inside, so its latency is that of arrivals.
const ARRIVED: &[Metric] =
    &[Metric::Rate, Metric::Cpu, Metric::ArrivalP50, Metric::ArrivalP99, Metric::Loss];

/// A race of an app, as the lab needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct RaceFacts {
    /// What may be sent to it.
    pub traffic: &'static [Traffic],
    /// Where that is counted.
    pub counted: Counted,
    /// Ports that it needs, each with a cable: 1 or 2. Under [`Traffic::Fanout`] the scenario says how many there are
    /// beyond the first.
    pub ports: usize,
    /// What is compared, in the order shown.
    pub metrics: &'static [Metric],
    /// Programs of others that do the same.
    pub peers: &'static [Peer],
}

impl RaceFacts {
    /// The race under this traffic: what is asked over connections is counted by the client, for every app.
    pub const fn under(self, traffic: Traffic) -> RaceFacts {
        match traffic {
            Traffic::Tcp(protocol) => RaceFacts {
                counted: Counted::Answered,
                ports: 1,
                metrics: ANSWERED,
                peers: protocol.peers(),
                ..self
            },
            Traffic::Capture { .. } | Traffic::Udp | Traffic::Pings | Traffic::Fanout => self,
        }
    }

    /// Of an app that is handed frames or datagrams, and may do anything with them.
    pub const HANDED: RaceFacts = RaceFacts {
        traffic: &[Traffic::Udp],
        counted: Counted::Handed,
        ports: 1,
        metrics: &[Metric::Rate, Metric::Cpu, Metric::WireToApp, Metric::Loss],
        peers: &[],
    };
    /// Of an app that sends every frame on, out of the other of two ports.
    pub const FORWARDED: RaceFacts = RaceFacts {
        traffic: &[Traffic::Udp, Traffic::Capture { tagged: false }],
        counted: Counted::Forwarded,
        ports: 2,
        metrics: ARRIVED,
        peers: &[],
    };
    /// Of an app that sends every datagram on to several outputs: a record is a copy that arrived.
    pub const COPIED: RaceFacts = RaceFacts {
        traffic: &[Traffic::Fanout],
        counted: Counted::Copies,
        ports: 2,
        metrics: ARRIVED,
        peers: &[Peer::Smcroute],
    };
}

/// Where an arm is, for the arguments that say so.
#[derive(Clone, Copy, Debug)]
pub struct ArmPlace<'a> {
    /// The lane's row.
    pub lane: &'static LaneFacts,
    /// The CPU of its worker. A thread beside it belongs there, too: the generator's CPU is to be the generator's.
    pub cpu: usize,
    /// Interfaces, by port.
    pub interfaces: &'a [String],
    /// Where it listens, or what it answers for, by port.
    pub addresses: &'a [SocketAddr],
    /// What it is asked there over TCP connections, if it is.
    pub protocol: Option<Protocol>,
    /// What is to be copied where, if that is what is raced.
    pub fanout: Option<Fanout<'a>>,
    /// The link address that frames for it have.
    pub mac: [u8; 6],
    /// Where what it sends on goes to.
    pub onward: SocketAddr,
    /// An empty folder in memory, which goes with the arm.
    pub memory: &'a Path,
    /// An empty folder on a disk, which goes with the arm, for an app that keeps data.
    pub disk: Option<&'a Path>,
}

/// Sees each packet that an arm is handed or delivers: the lab's ledger. Called per packet, so dispatched
/// statically.
pub trait Witness: Send {
    /// The app is about to be handed these frames.
    fn burst(&mut self, burst: &Burst, turn: Turn);

    /// The app is about to be handed these datagrams.
    fn datagrams(&mut self, batch: &[Datagram<'_>], turn: Turn);

    /// The frame (or kernel record) with this number is taken up next.
    fn taken(&mut self, seq_no: u64);

    /// Its record was delivered; `content` mixes what the record says, and is asked for now and then.
    fn record(&mut self, seq_no: u64, content: impl FnOnce() -> u64);

    /// Time has passed: at least every 10 ms.
    fn tick(&mut self);
}

/// Mixes `bytes` into 64 bits.
pub fn mix(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0x9e37_79b9_7f4a_7c15, |hash: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        // The multiplier is that of FNV-1a; the rotation brings the high bits back down.
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

/// An app as an arm: the same app, with a witness in front of it where its race is counted there.
#[derive(Debug)]
pub struct Watched<'a, A, W>(PhantomData<(&'a A, W)>);

/// The run of an arm.
pub struct WatchedRun<'a, A: AppKind, W> {
    run: &'a A::Run,
    witness: Mutex<Option<W>>,
}

impl<'a, A: AppKind, W> WatchedRun<'a, A, W> {
    /// `run` before the eyes of `witness`. An arm has one worker.
    pub fn new(run: &'a A::Run, witness: W) -> WatchedRun<'a, A, W> {
        let is_there = A::FACTS.race.counted.by_witness();
        WatchedRun { run, witness: Mutex::new(is_there.then_some(witness)) }
    }

    fn witness(&self) -> Option<W> {
        self.witness.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A worker of an arm.
pub struct WatchedWorker<F, W> {
    app: F,
    witness: Option<W>,
}

impl<'a, A: AppKind, W: Witness + 'a> AppKind for Watched<'a, A, W> {
    const FACTS: AppFacts = A::FACTS;
    type Run = WatchedRun<'a, A, W>;
    type Report = A::Report;
    type Frames = WatchedWorker<A::Frames, W>;
    type Datagrams = WatchedWorker<A::Datagrams, W>;
    type Streams = A::Streams;
    type Kernel = A::Kernel;

    fn shape(run: &Self::Run, lane: &LaneFacts) -> Result<Shape, LaneError> {
        A::shape(run.run, lane)
    }

    fn asks(run: &Self::Run) -> Asks {
        A::asks(run.run)
    }

    fn frames(run: &Self::Run, place: Place<'_>) -> Result<Self::Frames, LaneError> {
        Ok(WatchedWorker { app: A::frames(run.run, place)?, witness: run.witness() })
    }

    fn datagrams(run: &Self::Run, place: Place<'_>) -> Result<Self::Datagrams, LaneError> {
        Ok(WatchedWorker { app: A::datagrams(run.run, place)?, witness: run.witness() })
    }

    fn streams(run: &Self::Run, place: Place<'_>) -> Result<A::Streams, LaneError> {
        A::streams(run.run, place)
    }

    fn kernel(
        run: &Self::Run,
        place: Place<'_>,
        offer: &dyn KernelOffer,
    ) -> Result<A::Kernel, LaneError> {
        A::kernel(run.run, place, offer)
    }

    fn offer(run: &Self::Run, offload: Box<dyn Offload>) {
        A::offer(run.run, offload);
    }

    fn withdraw(run: &Self::Run) {
        A::withdraw(run.run);
    }
}

impl<R, F: Conclude<R>, W> Conclude<R> for WatchedWorker<F, W> {
    const IS_THERE: bool = F::IS_THERE;

    fn conclude(self, run: &RunReport) -> R {
        self.app.conclude(run)
    }
}

impl<F: App, W: Witness> App for WatchedWorker<F, W> {
    fn on_bell(&mut self, turn: Turn) {
        self.app.on_bell(turn);
    }

    fn on_stop(&mut self, turn: Turn) {
        self.app.on_stop(turn);
    }

    fn wants_stop(&self) -> bool {
        self.app.wants_stop()
    }

    fn due_ns(&self) -> Option<u64> {
        self.app.due_ns()
    }

    fn counters(&self) -> &Counters {
        self.app.counters()
    }
}

impl<F: FrameApp, W: Witness> FrameApp for WatchedWorker<F, W> {
    #[inline]
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn) {
        if let Some(witness) = &mut self.witness {
            witness.burst(burst, turn);
        }
        self.app.on_burst(port, burst, turn);
    }

    fn fill(&mut self, port: PortId, burst: &mut Burst, turn: Turn) -> Fill {
        self.app.fill(port, burst, turn)
    }

    fn on_tick(&mut self, turn: Turn) {
        if let Some(witness) = &mut self.witness {
            witness.tick();
        }
        self.app.on_tick(turn);
    }
}

impl<F: DatagramApp, W: Witness> DatagramApp for WatchedWorker<F, W> {
    #[inline]
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        if let Some(witness) = &mut self.witness {
            witness.datagrams(batch, turn);
        }
        self.app.on_datagrams(batch, turn, out);
    }

    fn on_ports<P: DatagramPorts>(&mut self, ports: &mut P, turn: Turn) {
        self.app.on_ports(ports, turn);
    }

    fn on_tick<O: DatagramOut>(&mut self, turn: Turn, out: &mut O) {
        if let Some(witness) = &mut self.witness {
            witness.tick();
        }
        self.app.on_tick(turn, out);
    }

    fn awaits_sent(&self) -> bool {
        self.app.awaits_sent()
    }

    fn on_sent(&mut self, turn: Turn) {
        self.app.on_sent(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::{
        CapsReport, ClockDomain, Counters, Lane, LaneError, PortId, PortPlan, Wake,
    };
    use std::time::Duration;

    struct Blind;

    impl Witness for Blind {
        fn burst(&mut self, _: &Burst, _: Turn) {}
        fn datagrams(&mut self, _: &[Datagram<'_>], _: Turn) {}
        fn taken(&mut self, _: u64) {}
        fn record(&mut self, _: u64, _: impl FnOnce() -> u64) {}
        fn tick(&mut self) {}
    }

    /// A lane with fixed ports.
    struct Fixed;

    impl Lane for Fixed {
        fn name(&self) -> &'static str {
            "fixed"
        }
        fn ports(&self) -> usize {
            0
        }
        fn clock_domain(&self) -> ClockDomain {
            ClockDomain::Virtual
        }
        fn wait(&mut self, _: Duration) -> Result<Wake, LaneError> {
            Ok(Wake::Timeout)
        }
        fn caps(&self, _: PortId) -> &CapsReport {
            unreachable!("it has no port")
        }
        fn counters(&mut self, _: PortId) -> Counters {
            Counters::default()
        }
    }

    impl DatagramPorts for Fixed {}

    #[derive(Default)]
    struct Called {
        counters: Counters,
        bells: usize,
        refusals: Vec<String>,
    }

    impl App for Called {
        fn on_bell(&mut self, _: Turn) {
            self.bells += 1;
        }
        fn counters(&self) -> &Counters {
            &self.counters
        }
    }

    impl DatagramApp for Called {
        fn on_datagrams<O: DatagramOut>(&mut self, _: &[Datagram<'_>], _: Turn, _: &mut O) {}
        fn on_ports<P: DatagramPorts>(&mut self, ports: &mut P, _: Turn) {
            let plan = PortPlan::at(([192, 0, 2, 1], 7).into());
            self.refusals.extend(ports.open_port(&plan).err().map(|e| e.to_string()));
        }
    }

    #[test]
    fn an_arm_hears_its_bell_and_may_ask_for_ports() {
        let mut arm = WatchedWorker { app: Called::default(), witness: Some(Blind) };
        arm.on_bell(Turn::default());
        arm.on_ports(&mut Fixed, Turn::default());
        assert_eq!(arm.app.bells, 1);
        let refusal = &arm.app.refusals[0];
        assert!(refusal.contains("fixed: refused to use `192.0.2.1:7`"), "{refusal}");
    }
}
