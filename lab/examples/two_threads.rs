//! A relay of the founding report's first kind, to race: one thread receives by a ring of its own and hands what it
//! received to another, which sends a copy to every output by a second ring.
//!
//! Question: does one loop for both directions beat it? `scenarios/relay.toml` (variant `report`) asks; lane `uring` of
//! the relay is the one loop, with the same knobs.
//!
//! ```text
//! cargo build --release -p laneway-lab --example two_threads
//! sudo env "PATH=$PWD/target/release/examples:$PATH" laneway race relay --variant report
//!
//! usage: two_threads INTERFACE GROUP[,GROUP...] PORT INTERFACE:PORT[,INTERFACE:PORT...] CPU
//! ```
//!
//! ```text
//!   receiver: ring ─▶ copied into the shelf ─ bell ─▶ sender: takes the whole shelf ─▶ a message per copy ─▶ ring
//! ```
//!
//! The shelf has room for a bounded number of datagrams. What finds none is dropped, and no counter tells: the race
//! names it as lost by the program. Both threads are on one CPU, as every arm of a race is.
#![forbid(unsafe_code)]

use laneway_core::{
    App, Bell, Clock, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut, DatagramPorts,
    Lane, Membership, PortId, PortPlan, Turn,
};
use laneway_engine::{MonotonicClock, pin_to_cpu};
use laneway_spec::LaneSpec;
use laneway_uring::UringUdp;
use std::{
    env,
    error::Error,
    mem,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// The report's configuration after its cures.
const SPEC: &str = "uring:depth=1024,batch=64,sndbuf=4m";
/// Datagrams that may wait to be sent, and their bytes.
const SHELF_DATAGRAMS: usize = 4096;
const SHELF_BYTES: usize = 8 << 20;
/// How long a thread sleeps that has nothing to do.
const NAP: Duration = Duration::from_secs(1);

type Failure = Box<dyn Error + Send + Sync>;

/// Datagrams on their way from one thread to the other.
struct Shelf {
    bytes: Vec<u8>,
    /// Where each ends in `bytes`, and the group that it was sent to.
    ends: Vec<(usize, IpAddr)>,
}

impl Shelf {
    fn new() -> Shelf {
        Shelf { bytes: Vec::with_capacity(SHELF_BYTES), ends: Vec::with_capacity(SHELF_DATAGRAMS) }
    }

    fn put(&mut self, payload: &[u8], group: IpAddr) {
        if self.ends.len() < SHELF_DATAGRAMS && self.bytes.len() + payload.len() <= SHELF_BYTES {
            self.bytes.extend_from_slice(payload);
            self.ends.push((self.bytes.len(), group));
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// The receiver's half.
struct Receiver {
    shelf: Arc<Mutex<Shelf>>,
    bell: Bell,
    counters: Counters,
}

impl App for Receiver {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Receiver {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _: Turn, _: &mut O) {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        batch.iter().for_each(|datagram| shelf.put(&datagram.payload, datagram.destination.ip()));
        drop(shelf);
        self.bell.ring();
    }
}

/// The sender's half.
struct Sender {
    shelf: Arc<Mutex<Shelf>>,
    /// What it sends now; empty in between.
    taken: Shelf,
    /// By output: its port, and the UDP port that copies go to.
    outputs: Vec<(PortId, u16)>,
    counters: Counters,
}

impl App for Sender {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Sender {
    fn on_datagrams<O: DatagramOut>(&mut self, _: &[Datagram<'_>], _: Turn, _: &mut O) {}

    fn on_tick<O: DatagramOut>(&mut self, _: Turn, out: &mut O) {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut *shelf, &mut self.taken);
        drop(shelf);
        for &(port, to) in &self.outputs {
            let mut begin = 0;
            for &(end, group) in &self.taken.ends {
                let payload = &self.taken.bytes[begin..end];
                begin = end;
                out.send(port, SocketAddr::new(group, to), payload.len(), |room| {
                    room.copy_from_slice(payload);
                    payload.len()
                });
            }
        }
        self.taken.clear();
    }
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [input, groups, port, outputs, cpu] = words.as_slice() else {
        return Err(
            "usage: two_threads INTERFACE GROUP[,GROUP...] PORT INTERFACE:PORT[,...] CPU".into()
        );
    };
    pin_to_cpu(cpu.parse()?)?;
    let spec: LaneSpec = SPEC.parse()?;
    let anywhere = |port: u16| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    let outputs = outputs.split(',').map(|output| {
        let (interface, port) = output.rsplit_once(':').ok_or("an output is INTERFACE:PORT")?;
        Ok((interface.to_owned(), port.parse::<u16>()?))
    });
    let outputs = outputs.collect::<Result<Vec<_>, Failure>>()?;
    let groups = groups.split(',').map(str::parse).collect::<Result<Vec<IpAddr>, _>>()?;
    let membership =
        |group: &IpAddr| Membership { group: *group, interface: Some(input.clone()), source: None };
    let plan = PortPlan {
        interface: Some(input.clone()),
        memberships: groups.iter().map(membership).collect(),
        ..PortPlan::at(anywhere(port.parse()?))
    };

    let shelf = Arc::new(Mutex::new(Shelf::new()));
    let bell = Bell::new()?;
    let (shelf_there, bell_there, spec_there) = (shelf.clone(), bell.clone(), spec.clone());
    // A ring belongs to the thread that opened it.
    let sender = thread::spawn(move || -> Result<(), Failure> {
        let mut lane = UringUdp::open(&spec_there, &[])?;
        lane.hear(&bell_there);
        let mut opened = Vec::new();
        for (interface, to) in outputs {
            let plan = PortPlan { interface: Some(interface), ..PortPlan::at(anywhere(0)) };
            opened.push((lane.open_port(&plan)?, to));
        }
        let (taken, counters) = (Shelf::new(), Counters::default());
        let mut app = Sender { shelf: shelf_there, taken, outputs: opened, counters };
        loop {
            lane.wait(NAP)?;
            bell_there.answer();
            lane.tick(&mut app, Turn { now_ns: MonotonicClock.now_ns() })?;
        }
    });
    let mut lane = UringUdp::open(&spec, &[])?;
    lane.open_port(&plan)?;
    let mut app = Receiver { shelf, bell, counters: Counters::default() };
    while !sender.is_finished() {
        if lane.serve(&mut app, &MonotonicClock)? == 0 {
            lane.wait(NAP)?;
        }
    }
    sender.join().map_err(|_| "the sender panicked")?
}
