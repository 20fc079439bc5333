//! In steady state a turn allocates nothing: neither per datagram nor per turn, neither for a train
//! nor for a connection.
//!
//! The allocator of this test counts what the thread asks for while it is asked to.

use laneway_core::{
    App, Close, ConnId, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut, Lane, Opened,
    PortId, StreamApp, StreamLane, StreamOut, Turn,
};
use laneway_socket::{TcpLane, UdpLane};
use laneway_testkit::service::MonotonicClock;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

struct Counting;

thread_local! {
    static COUNTED: Cell<Option<usize>> = const { Cell::new(None) };
}

// SAFETY: everything is the system allocator's; counting touches a cell of this thread only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no cell any more, and nothing to count.
        let _ = COUNTED.try_with(|counted| counted.set(counted.get().map(|n| n + 1)));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` allocates.
fn allocations(work: impl FnOnce()) -> usize {
    COUNTED.set(Some(0));
    work();
    COUNTED.replace(None).expect("it was set above")
}

const PORT: PortId = PortId(0);
const WARM_UP_ROUNDS: usize = 20;
const ROUNDS: usize = 200;

struct Bounce {
    counters: Counters,
}

impl App for Bounce {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Bounce {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        for datagram in batch {
            out.forward(datagram, datagram.ingress, datagram.source);
            out.send(datagram.ingress, datagram.source, 100, |room| room.len());
        }
    }
}

impl StreamApp for Bounce {
    fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {}

    /// Leaves the last byte, so that something is kept in every turn.
    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let taken = &bytes[..bytes.len() - 1];
        out.send(conn, taken)
    }

    fn on_close(&mut self, _conn: ConnId, _why: Close) {}
}

#[test]
fn a_turn_over_datagrams_allocates_nothing() {
    for spec in ["socket", "socket:batch=32,gso,gro"] {
        let spec = spec.parse().expect("a spec");
        let listen: SocketAddr = "0.0.0.0:0".parse().expect("an address");
        let mut lane = UdpLane::open(&spec, &[listen]).expect("a free port");
        let near = SocketAddr::from(([127, 0, 0, 1], lane.local_address(PORT).port()));
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        peer.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket has timeouts");
        let mut app = Bounce { counters: Counters::default() };
        let mut buffer = [0; 2000];
        let mut round = || {
            for _ in 0..8 {
                peer.send_to(&[7; 1000], near).expect("loopback takes it");
            }
            let mut served = 0;
            while served < 8 {
                served += lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
            }
            for _ in 0..16 {
                peer.recv(&mut buffer).expect("all come back");
            }
        };
        (0..WARM_UP_ROUNDS).for_each(|_| round());
        assert_eq!(allocations(|| (0..ROUNDS).for_each(|_| round())), 0, "`{spec}`");
    }
}

#[test]
fn a_turn_over_streams_allocates_nothing() {
    let spec = "socket".parse().expect("a spec");
    let listen: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut lane = TcpLane::open(&spec, &[listen]).expect("a free port");
    let mut app = Bounce { counters: Counters::default() };
    let mut peers: Vec<TcpStream> = (0..8)
        .map(|_| TcpStream::connect(lane.local_address(PORT)).expect("the backlog has room"))
        .collect();
    for peer in &mut peers {
        peer.set_nonblocking(true).expect("a socket can be non-blocking");
        peer.write_all(&[0]).expect("the kernel takes it");
    }
    let mut buffer = [0; 2000];
    let mut round = || {
        for peer in &mut peers {
            peer.write_all(&[7; 1000]).expect("the kernel takes it");
        }
        for peer in &mut peers {
            let mut back = 0;
            while back < 1000 {
                lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
                lane.wait(Duration::from_millis(1)).expect("the lane waits");
                back += peer.read(&mut buffer).unwrap_or(0);
            }
        }
    };
    (0..WARM_UP_ROUNDS).for_each(|_| round());
    assert_eq!(allocations(|| (0..ROUNDS).for_each(|_| round())), 0);
}
