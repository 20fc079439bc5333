//! What is closed leaves the kernel, whatever else its ring is still asked for.

use crate::{
    in_flight::{Echo, Relay, anywhere, tcp, world},
    world::{World, until_free},
};
use laneway_core::{DatagramLane, DatagramPorts, Lane, PortId, PortPlan, StreamLane};
use laneway_testkit::service::MonotonicClock;
use std::{
    fs,
    io::ErrorKind,
    net::{TcpStream, UdpSocket},
    time::Duration,
};

const PORT: PortId = PortId(0);
/// Turns of 10 ms after which a socket should be gone: a busy machine is late.
const TURNS_MAX: usize = 3000;

/// Sockets in the namespace.
fn sockets(world: &World) -> usize {
    let text = world.inside(|| fs::read_to_string("/proc/thread-self/net/sockstat"));
    let text = text.expect("the kernel counts sockets");
    let used = text.strip_prefix("sockets: used ").and_then(|rest| rest.lines().next());
    used.and_then(|used| used.parse().ok()).unwrap_or_else(|| panic!("no count in {text:?}"))
}

/// An older connection stays, and the accept of its port: both are requests older than those that end.
#[test]
fn the_kernel_keeps_no_socket_of_a_connection_that_ended() {
    let Some(world) = world() else { return };
    let mut lane = tcp(&world, "uring");
    let mut app = Echo::default();
    let at = lane.local_addr(PORT);
    let mut turns = |what: &str, done: &dyn Fn(usize) -> bool| {
        for _ in 0..TURNS_MAX {
            lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
            if done(lane.connections()) {
                return;
            }
            lane.wait(Duration::from_millis(10)).expect("the lane waits");
        }
        panic!("not within {TURNS_MAX} turns: {what}");
    };
    let older = world.inside(|| TcpStream::connect(at)).expect("it listens");
    turns("the older connection is open", &|connections| connections == 1);
    let before = sockets(&world);
    for _ in 0..10 {
        let younger: Vec<_> =
            world.inside(|| (0..10).map(|_| TcpStream::connect(at).expect("it listens")).collect());
        turns("ten connections are open", &|connections| connections == 11);
        drop(younger);
        turns("they have ended", &|connections| connections == 1);
    }
    turns("their sockets are gone", &|_| sockets(&world) <= before);
    drop(older);
}

#[test]
fn the_address_of_a_closed_port_is_free_while_older_ports_receive() {
    let Some(world) = world() else { return };
    let (mut lane, _far) = world.udp("uring");
    let mut app = Relay::default();
    lane.wait(Duration::ZERO).expect("the lane waits"); // and arms its receive
    let before = sockets(&world);
    for _ in 0..10 {
        let plan = PortPlan::at(anywhere());
        let port = world.inside(|| lane.open_port(&plan)).unwrap_or_else(|e| panic!("{e}"));
        let at = lane.local_addr(port);
        lane.wait(Duration::ZERO).expect("the lane waits");
        lane.close_port(port).unwrap_or_else(|e| panic!("{e}"));
        let taken = world
            .inside(|| until_free(|| UdpSocket::bind(at), |e| e.kind() == ErrorKind::AddrInUse));
        taken.unwrap_or_else(|e| panic!("{at}: {e}"));
        lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
    }
    // Another test's child process may have copies of descriptors for a moment.
    let gone = || if sockets(&world) <= before { Ok(()) } else { Err(()) };
    until_free(gone, |()| true).expect("the sockets of closed ports are gone");
}
