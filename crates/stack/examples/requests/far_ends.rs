//! A stack on a simulated link and its far ends, which ask it over many connections.
//!
//! The far ends are just numbers, so that they cost little beside the stack. Used by this example and by the
//! counts of instructions (`bench/`).

use laneway_core::{
    App, Clock, Close, ConnId, Counters, Opened, PortId, StreamApp, StreamLane, StreamOut,
};
use laneway_sim::{SimLane, SimWorld};
use laneway_stack::{InterfaceConfig, StackConfig, StreamStack};
use laneway_wire::{ETHERNET_BYTES, Ipv4, Tcp, checksum, protocol, tcp_flags};
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

pub(crate) const REQUEST_BYTES: usize = 64;
/// Requests in flight: one usual burst.
const IN_FLIGHT: usize = 64;
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NEAR_PORT: u16 = 7;
const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PORT: PortId = PortId(0);
const WINDOW: u16 = 65_535;

/// Answers each request with as many bytes.
#[derive(Default)]
struct Answerer {
    open: usize,
    counters: Counters,
}

impl App for Answerer {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for Answerer {
    fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {
        self.open += 1;
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        assert_eq!(out.send(conn, bytes), bytes.len(), "a request's answer fits the queue");
        bytes.len()
    }

    fn on_close(&mut self, _conn: ConnId, _why: Close) {
        self.open -= 1;
    }
}

/// One end of a far connection: just the numbers, so that the far end costs little.
#[derive(Clone, Copy)]
struct Far {
    source: Ipv4Addr,
    port: u16,
    sequence: u32,
    acknowledged: u32,
}

/// A stack and its far ends.
pub(crate) struct FarEnds {
    stack: StreamStack<SimLane>,
    world: SimWorld,
    app: Answerer,
    fars: Vec<Far>,
    next: usize,
    frame: Vec<u8>,
    /// The CPU time of this thread.
    cpu_time: fn() -> Duration,
}

impl FarEnds {
    /// A stack with this many connections open; `cpu_time` tells the CPU time of this thread.
    pub(crate) fn open(count: usize, cpu_time: fn() -> Duration) -> FarEnds {
        let spec = "sim:frames=4096,queue=65536".parse().expect("a spec");
        let (lane, world) = SimLane::open(&spec, 1).expect("a simulated lane opens");
        let interface = InterfaceConfig::new(NEAR_MAC, vec![(NEAR.into(), 8)]);
        let mut config = StackConfig::new(interface, vec![SocketAddr::new(NEAR.into(), NEAR_PORT)]);
        config.tcp.half_open_max = count.max(1024);
        let stack = StreamStack::new(lane, &config).expect("a sound config");
        let far = |i: usize| Far {
            source: Ipv4Addr::from_bits(0x0a01_0000 + (i / 50_000) as u32),
            port: 10_000 + (i % 50_000) as u16,
            sequence: 1,
            acknowledged: 0,
        };
        let fars = (0..count).map(far).collect();
        let mut ends = FarEnds {
            stack,
            world,
            app: Answerer::default(),
            fars,
            next: 0,
            frame: Vec::new(),
            cpu_time,
        };
        for chunk in 0..count.div_ceil(IN_FLIGHT) {
            let batch = chunk * IN_FLIGHT..count.min((chunk + 1) * IN_FLIGHT);
            for i in batch.clone() {
                ends.inject(i, tcp_flags::SYN, 0);
                ends.fars[i].sequence += 1;
            }
            ends.serve();
            ends.collect(&batch);
            for i in batch {
                ends.inject(i, tcp_flags::ACK, 0);
            }
            ends.serve();
        }
        assert_eq!(ends.app.open, count, "every connection is open");
        ends
    }

    /// Sends a segment of far end `i`.
    fn inject(&mut self, i: usize, flags: u16, payload_bytes: usize) {
        let far = self.fars[i];
        self.frame.clear();
        self.frame.extend_from_slice(&NEAR_MAC);
        self.frame.extend_from_slice(&FAR_MAC);
        self.frame.extend_from_slice(&[8, 0]);
        self.frame.resize(ETHERNET_BYTES + 40 + payload_bytes, 0x42);
        let ip = Ipv4 {
            header_bytes: 20,
            tos: 0,
            total_bytes: (40 + payload_bytes) as u16,
            id: 0,
            fragment: 0x4000,
            ttl: 64,
            protocol: protocol::TCP,
            checksum: 0,
            source: far.source,
            destination: NEAR,
        };
        let packet = &mut self.frame[ETHERNET_BYTES..];
        assert!(ip.emit(packet) && Ipv4::seal(packet));
        let tcp = Tcp {
            source_port: far.port,
            destination_port: NEAR_PORT,
            sequence: far.sequence,
            acknowledgement: far.acknowledged,
            header_bytes: 20,
            flags,
            window: WINDOW,
            checksum: 0,
            urgent: 0,
        };
        let segment = &mut packet[20..];
        assert!(tcp.emit(segment));
        let ends = u64::from(far.source.to_bits()) + u64::from(NEAR.to_bits());
        let pseudo = ends + u64::from(protocol::TCP) + segment.len() as u64;
        let sum = !checksum::fold(pseudo + checksum::sum(segment));
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        self.world.inject(PORT, &self.frame);
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.fars.len()
    }

    fn serve(&mut self) -> Duration {
        let clock = self.world.clock();
        let before = (self.cpu_time)();
        self.stack.serve(&mut self.app, &clock).expect("a simulated lane does not fail");
        (self.cpu_time)() - before
    }

    /// Takes what arrived for the far ends in `batch`; gives how many payload bytes.
    fn collect(&mut self, batch: &std::ops::Range<usize>) -> usize {
        let mut bytes = 0;
        for arrival in self.world.collect(PORT) {
            let frame = &arrival.bytes;
            let Some(segment) = frame.get(ETHERNET_BYTES + 20..).filter(|_| frame[12] == 8) else {
                continue;
            };
            let Ok(tcp) = Tcp::parse(segment) else { continue };
            let is_it = |far: &Far| {
                far.port == tcp.destination_port && far.source.octets() == frame[30..34]
            };
            let Some(far) = self.fars[batch.clone()].iter_mut().find(|far| is_it(far)) else {
                continue;
            };
            let payload_bytes = segment.len() - tcp.header_bytes;
            let marks = usize::from(tcp.flags & tcp_flags::SYN != 0);
            far.acknowledged = tcp.sequence.wrapping_add((payload_bytes + marks) as u32);
            bytes += payload_bytes;
        }
        bytes
    }

    /// Serves `requests` requests, connection after connection; the stack's time for each, ns.
    pub(crate) fn round(&mut self, requests: usize) -> f64 {
        let mut spent = Duration::ZERO;
        let mut done = 0;
        while done < requests {
            let count = self.fars.len();
            let first = self.next % count;
            let batch = first..count.min(first + IN_FLIGHT);
            self.next = batch.end;
            for i in batch.clone() {
                self.inject(i, tcp_flags::ACK | tcp_flags::PSH, REQUEST_BYTES);
                self.fars[i].sequence = self.fars[i].sequence.wrapping_add(REQUEST_BYTES as u32);
            }
            spent += self.serve();
            let answered = self.collect(&batch);
            assert_eq!(answered, batch.len() * REQUEST_BYTES, "every request is answered");
            done += batch.len();
            // Time passes, so that timers are at work as they would be.
            self.world.advance_to(self.world.clock().now_ns() + 20_000);
        }
        spent.as_nanos() as f64 / done as f64
    }
}
