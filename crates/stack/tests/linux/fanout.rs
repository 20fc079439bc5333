//! One burst to many outputs over a real cable: every copy was sent or is counted by why not, and what the stack says
//! it sent is what the kernel saw leave.

use crate::world::{NEAR, Open, World, config, open_afxdp, open_packet, open_uring};
use laneway_core::{
    App, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut, FrameLane, Lane, PortId, Turn,
};
use laneway_netns::interface_counters;
use laneway_stack::DatagramStack;
use laneway_testkit::{service::MonotonicClock, skip};
use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

const DATAGRAMS: usize = 64;
const OUTPUTS: usize = 256;
const PAYLOAD_BYTES: usize = 1316;
/// Waits of 10 ms in vain.
const WAITS_MAX: usize = 6000;
/// Our addresses, announced once for each IP version.
const ANNOUNCEMENTS: u64 = 2;

/// Sends each datagram to every group, one group after the other.
struct Fan {
    seen: usize,
    counters: Counters,
}

impl App for Fan {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Fan {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        self.seen += batch.len();
        for i in 0..OUTPUTS {
            let group = SocketAddr::from(([239, 9, (i >> 8) as u8, i as u8], 5000));
            batch.iter().for_each(|datagram| out.forward(datagram, datagram.ingress, group));
        }
    }
}

/// Copies of payloads in user space are one per output at most, or none where the lane `gathers`.
fn every_copy_is_sent_or_has_a_reason<L: FrameLane>(spec: &str, open: Open<L>, gathers: bool) {
    let world = match World::new(&["10.77.0.2/24"]) {
        Ok(world) => world,
        Err(reason) => return skip(reason),
    };
    let far = world.far.enter(|| UdpSocket::bind("10.77.0.2:9000").expect("a free port"));
    let far = far.expect("a namespace");
    let lane = world.open(open, &spec.parse().unwrap()).unwrap_or_else(|e| panic!("{e}"));
    let mut stack = DatagramStack::new(lane, &config(&["10.77.0.1:7".parse().unwrap()])).unwrap();
    let mut app = Fan { seen: 0, counters: Counters::default() };
    for _ in 0..DATAGRAMS {
        far.send_to(&[7; PAYLOAD_BYTES], "10.77.0.1:7").expect("a cable takes datagrams");
    }
    let left = || {
        let counters = world.near.enter(|| interface_counters(NEAR));
        let counters = counters.expect("a namespace").expect("the cable is there");
        counters.tx_packets + counters.tx_dropped
    };
    let (mut waits, mut sent) = (0, 0);
    while waits < WAITS_MAX && (app.seen < DATAGRAMS || left() != sent) {
        stack.serve(&mut app, &MonotonicClock).expect("the lane serves");
        let answered = ANNOUNCEMENTS + stack.events().solicitations_answered;
        sent = stack.counters(PortId(0)).tx_frames + answered;
        stack.wait(Duration::from_millis(10)).expect("the lane waits");
        waits += 1;
    }
    let counters = stack.counters(PortId(0));
    assert_eq!(counters.rx_frames, DATAGRAMS as u64, "{counters:?}");
    assert_eq!(left(), sent, "{counters:?}");
    let asked = (DATAGRAMS * OUTPUTS) as u64;
    assert_eq!(counters.tx_frames + counters.lost(), asked, "{counters:?}");
    let own = ANNOUNCEMENTS + stack.events().solicitations_answered;
    assert!(counters.copies <= if gathers { own } else { asked + own }, "{counters:?}");
}

#[test]
fn every_copy_is_sent_or_has_a_reason_on_packet() {
    every_copy_is_sent_or_has_a_reason("packet:mmsg=64", open_packet, true);
}

#[test]
fn every_copy_is_sent_or_has_a_reason_on_afxdp() {
    every_copy_is_sent_or_has_a_reason("afxdp:copy", open_afxdp, false);
}

#[test]
fn every_copy_is_sent_or_has_a_reason_on_uring() {
    every_copy_is_sent_or_has_a_reason("uring", open_uring, true);
}
