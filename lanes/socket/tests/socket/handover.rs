//! A port goes from one lane to another as its socket: with what is queued there, with its memberships, and with
//! only one of them taking from it. Shared by the lanes of kernel sockets; a test that includes it says which lane by
//! `crate::kernel_lane`.

use crate::kernel_lane::{self, Lane};
use laneway_core::{
    DatagramLane, DatagramPorts, Lane as _, LaneError, Membership, PortId, PortPlan,
};
use laneway_testkit::{
    service::{Answer, DatagramProbe, MonotonicClock},
    skip,
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

/// Rounds in which what is there must have been seen, with a wait of 10 ms where there is nothing.
const ROUNDS_MAX: usize = 500;

/// What a lane and its app are.
struct Side {
    lane: Lane,
    app: DatagramProbe,
}

impl Side {
    fn open() -> Result<Side, LaneError> {
        let lane = kernel_lane::open(&[])?;
        Ok(Side { lane, app: DatagramProbe::new(Answer::Nothing) })
    }

    fn round(&mut self) {
        if self.lane.serve(&mut self.app, &MonotonicClock).expect("it serves") == 0 {
            self.lane.wait(Duration::from_millis(10)).expect("it waits");
        }
    }

    /// Serves until the app has seen so many; the numbers that they bear.
    #[track_caller]
    fn numbers(&mut self, wanted: usize) -> Vec<u8> {
        for _ in 0..ROUNDS_MAX {
            if self.app.datagrams().len() >= wanted {
                break;
            }
            self.round();
        }
        self.app.datagrams().iter().map(|datagram| datagram[0]).collect()
    }

    /// Holds a port and serves until all that it took has been shown.
    fn cease(&mut self, port: PortId) {
        self.lane.hold_port(port, true).expect("it is a socket");
        let settled = (0..ROUNDS_MAX).any(|_| {
            self.round();
            self.lane.has_settled()
        });
        assert!(settled, "something is under way for good");
    }
}

/// What is sent by number, here and nowhere else.
struct Sender {
    socket: UdpSocket,
    to: SocketAddr,
    next: u8,
}

impl Sender {
    fn to(to: SocketAddr) -> Sender {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        Sender { socket, to, next: 0 }
    }

    fn send(&mut self, count: u8) {
        for _ in 0..count {
            self.socket.send_to(&[self.next; 20], self.to).expect("loopback takes it");
            self.next += 1;
        }
    }
}

#[test]
fn what_is_queued_goes_to_the_successor_and_what_was_taken_stays() {
    let (mut one, mut two) = match (Side::open(), Side::open()) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(reason), _) | (_, Err(reason)) => return skip(reason),
    };
    let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let port = one.lane.open_port(&PortPlan::at(anywhere)).expect("a free port");
    let at = one.lane.bound(port).expect("it is open");
    let mut sender = Sender::to(at);
    // As many turns as make a port a busy one.
    for _ in 0..20 {
        sender.send(2);
        one.round();
    }
    assert_eq!(one.numbers(40), (0..40).collect::<Vec<u8>>());

    let socket = one.lane.share_port(port).expect("it is open").expect("it is a socket");
    let plan = PortPlan::at(at);
    let adopted = two.lane.adopt_port(&plan, socket).expect("it is what the plan says");
    // The successor holds it, and its predecessor goes on.
    sender.send(3);
    two.round();
    assert_eq!((one.numbers(43).len(), two.app.datagrams().len()), (43, 0));

    one.cease(port);
    sender.send(5);
    one.round();
    two.round();
    assert_eq!((one.numbers(43).len(), two.app.datagrams().len()), (43, 0), "no app takes them");
    // One that is followed no more goes on where it was.
    one.lane.hold_port(port, false).expect("it is a socket");
    assert_eq!(one.numbers(48), (0..48).collect::<Vec<u8>>());
    one.cease(port);
    sender.send(5);
    two.lane.hold_port(adopted, false).expect("it is a socket");
    assert_eq!(two.numbers(5), (48..53).collect::<Vec<u8>>());
    one.lane.close_port(port).expect("it is open");
    drop(one);
    sender.send(5);
    assert_eq!(two.numbers(10), (48..58).collect::<Vec<u8>>());
    assert!(two.lane.counters(adopted).rx_frames == 10 && two.lane.has_settled());
}

#[test]
fn memberships_stay_however_many_sockets_hold_them() {
    /// More than one socket may have (igmp_max_memberships).
    const GROUPS: u8 = 45;
    let (mut one, mut two) = match (Side::open(), Side::open()) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(reason), _) | (_, Err(reason)) => return skip(reason),
    };
    let group = |n: u8| IpAddr::from([239, 7, 77, n + 1]);
    let member = |n: u8| {
        let source = (n % 9 == 8).then_some(IpAddr::from(Ipv4Addr::LOCALHOST));
        Membership { group: group(n), interface: Some("lo".to_owned()), source }
    };
    // Any port that is free for all addresses.
    let free = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.local_addr());
    let plan = PortPlan {
        memberships: (0..GROUPS).map(member).collect(),
        ..PortPlan::at(free.expect("a free port"))
    };
    let port = match one.lane.open_port(&plan) {
        Ok(port) => port,
        Err(reason) => return skip(reason),
    };
    let socket = one.lane.share_port(port).expect("it is open").expect("it is a socket");
    let adopted = two.lane.adopt_port(&plan, socket).expect("it is what the plan says");
    one.cease(port);
    two.lane.hold_port(adopted, false).expect("it is a socket");
    one.lane.close_port(port).expect("it is open");
    drop(one);
    let mut sender = Sender::to(plan.bind);
    for n in 0..GROUPS {
        let to = SocketAddr::new(group(n), plan.bind.port());
        sender.socket.set_multicast_loop_v4(true).expect("an option");
        if let Err(reason) = sender.socket.send_to(&[n; 20], to) {
            return skip(format!("no route for groups here: {reason}"));
        }
        sender.next += 1;
    }
    if sender.socket.local_addr().is_ok_and(|at| at.ip().is_loopback()) {
        assert_eq!(two.numbers(GROUPS.into()), (0..GROUPS).collect::<Vec<u8>>());
    }
    two.lane.leave(adopted, &member(0)).expect("it is a member");
    two.lane.leave(adopted, &member(GROUPS - 1)).expect("it is a member");
    two.lane.leave(adopted, &member(0)).expect_err("it has left");
}

#[test]
fn a_socket_at_another_address_is_refused() {
    let mut side = match Side::open() {
        Ok(side) => side,
        Err(reason) => return skip(reason),
    };
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let plan = PortPlan::at("127.0.0.1:9".parse().expect("an address"));
    let refused = side.lane.adopt_port(&plan, socket.into()).expect_err("another address");
    assert!(refused.to_string().contains("another address"), "{refused}");
    assert_eq!(side.lane.ports(), 0);
}
