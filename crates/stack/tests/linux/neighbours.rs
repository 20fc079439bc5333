//! Neighbours that the kernel knows, below the lanes of its own interfaces.

use crate::world::{NEAR, World, config};
use laneway_afxdp::AfXdpKind;
use laneway_core::{DatagramLane, Lane, PortId, Turn};
use laneway_kinds::{LaneKind, Opening, Shape};
use laneway_packet::PacketKind;
use laneway_stack::DatagramStack;
use laneway_testkit::{
    service::{Answer, DatagramProbe, TickSend},
    skip,
};
use std::{net::UdpSocket, time::Duration};

/// The far end answers no question, so only the kernel's table tells where it is.
fn a_datagram_leaves_for_whom_the_kernel_knows<K: LaneKind>(spec: &str) {
    let world = match World::new(&["10.77.0.2/24"]) {
        Ok(world) => world,
        Err(reason) => return skip(reason),
    };
    let ip = |namespace: &laneway_netns::Namespace, arguments: &str| {
        let done = namespace.command("ip").args(arguments.split(' ')).output().expect("ip runs");
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    };
    ip(&world.far, "link set far0 arp off");
    ip(
        &world.near,
        &format!("neigh replace 10.77.0.2 lladdr 02:4c:57:53:01:01 dev {NEAR} nud permanent"),
    );
    let far = world.far.enter(|| UdpSocket::bind("10.77.0.2:9000").expect("a free port"));
    let far = far.expect("a namespace");
    far.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket can be set");
    let inside = || {
        let (spec, interfaces) = (spec.parse().expect("a spec"), [NEAR]);
        let shared = K::share(&Opening::on(&spec, Shape::Frames, &interfaces));
        let shared = shared.unwrap_or_else(|e| panic!("{e}"));
        let lane = K::frames(&shared, 0).unwrap_or_else(|e| panic!("{e}"));
        let mut config = config(&["10.77.0.1:7".parse().unwrap()]);
        config.interfaces[0].name = NEAR.to_owned();
        let known = K::link_addresses(&shared).expect("the lane has the kernel's interfaces");
        let stack = DatagramStack::new(lane, &config).unwrap_or_else(|e| panic!("{e}"));
        let mut stack = stack.with_link_addresses(known);
        let mut probe = DatagramProbe::new(Answer::Nothing);
        let to = "10.77.0.2:9000".parse().unwrap();
        probe.on_tick.push(TickSend::exact(PortId(0), to, b"known".to_vec()));
        stack.tick(&mut probe, Turn { now_ns: 1 }).unwrap_or_else(|e| panic!("{e}"));
        let counters = stack.counters(PortId(0));
        assert_eq!((counters.tx_frames, stack.events().solicitations_sent), (1, 0), "{counters:?}");
        let mut bytes = [0; 64];
        let received = far.recv(&mut bytes).unwrap_or_else(|e| panic!("nothing arrived: {e}"));
        assert_eq!(bytes[..received], *b"known");
    };
    world.near.enter(inside).expect("the namespace is there");
}

#[test]
fn a_datagram_leaves_for_whom_the_kernel_knows_below_packet() {
    a_datagram_leaves_for_whom_the_kernel_knows::<PacketKind>("packet");
}

#[test]
fn a_datagram_leaves_for_whom_the_kernel_knows_below_afxdp() {
    a_datagram_leaves_for_whom_the_kernel_knows::<AfXdpKind>("afxdp:copy");
}
