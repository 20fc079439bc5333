//! A lane that has warmed up allocates nothing any more: neither per packet nor per turn.
//!
//! The allocator of this test program counts, per thread, what is asked of it.

use crate::{frames_world, world::World};
use laneway_core::{
    App, Close, ConnId, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut, FrameLane,
    Lane, Opened, PortId, StreamApp, StreamLane, StreamOut, Turn, Verdict,
};
use laneway_testkit::{service::MonotonicClock, skip, udp_frames};
use laneway_uring::UringTcp;
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

const PORT: PortId = PortId(0);
/// Turns before and after which allocations are counted.
const TURNS: usize = 200;
const WAIT: Duration = Duration::from_millis(1);

pub(crate) struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes every request on to the system's allocator as it is. Counting touches a thread-local
// without a destructor or lazy value, so it never allocates itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

/// Runs turns until everything has the size it needs, then as many again, which may not allocate.
fn assert_steady(what: &str, mut turn: impl FnMut()) {
    (0..TURNS).for_each(|_| turn());
    let before = ALLOCATIONS.get();
    (0..TURNS).for_each(|_| turn());
    assert_eq!(ALLOCATIONS.get() - before, 0, "{what}: allocations in {TURNS} turns");
}

/// Sends everything back, and datagrams with one of its own.
#[derive(Default)]
pub(crate) struct Echo {
    seen: u64,
    counters: Counters,
}

impl App for Echo {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Echo {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        for datagram in batch {
            self.seen += 1;
            out.forward(datagram, PORT, datagram.source);
            out.send(PORT, datagram.source, 16, |room| {
                room.fill(1);
                room.len()
            });
        }
    }
}

impl StreamApp for Echo {
    fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {}

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        self.seen += 1;
        // Odd lengths are left for the next time, so that leftovers are part of the test.
        let consumed = bytes.len() / 2 * 2;
        out.send(conn, &bytes[..consumed])
    }

    fn on_close(&mut self, _conn: ConnId, _why: Close) {}
}

#[test]
fn datagrams_allocate_nothing() {
    let Some(world) = World::new().map_err(skip).ok() else { return };
    let specs = ["uring", "uring:gso,gro", "uring:send_zc=1", "uring:depth=2,buffers=2"];
    for (text, rests) in specs.into_iter().flat_map(|text| [(text, true), (text, false)]) {
        let (mut lane, far) = world.udp(text);
        let (near, mut app) = (lane.local_addr(PORT), Echo::default());
        let mut buffer = [0; 2048];
        assert_steady(text, || {
            for _ in 0..5 {
                far.send_to(&[7; 300], near).expect("the far end sends");
            }
            lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
            if rests {
                lane.wait(Duration::ZERO).expect("the lane waits");
            }
            while far.recv(&mut buffer).is_ok() {}
        });
        assert!(app.seen as usize > TURNS, "{text}: {} datagrams", app.seen);
    }
}

#[test]
fn streams_allocate_nothing() {
    let Some(world) = World::new().map_err(skip).ok() else { return };
    let specs = ["uring", "uring:bundle,buffer=64", "uring:send_zc=1", "uring:depth=2,buffers=2"];
    for text in world.obtained(&specs) {
        let spec = text.parse().expect("well formed");
        let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let lane = world.inside(|| UringTcp::open(&spec, &[anywhere]));
        let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
        let at = lane.local_addr(PORT);
        let mut far = world.inside(|| TcpStream::connect(at)).expect("it listens");
        far.set_nonblocking(true).expect("a socket can");
        let mut app = Echo::default();
        let mut buffer = [0; 2048];
        assert_steady(text, || {
            far.write_all(&[7; 301]).expect("the kernel queues that much");
            lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
            lane.wait(WAIT).expect("the lane waits");
            while far.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        });
        assert!(app.seen as usize > TURNS, "{text}: shown {} times", app.seen);
    }
}

#[test]
fn frames_allocate_nothing() {
    let Some(mut world) = frames_world::World::new().map_err(skip).ok() else { return };
    for text in ["uring", "uring:depth=2,buffers=2"] {
        let spec = text.parse().expect("well formed");
        let mut lane = world.open(&spec, 1).unwrap_or_else(|e| panic!("`{text}`: {e}"));
        let frames = udp_frames(0, 5, 200);
        let mut seen = 0;
        assert_steady(text, || {
            world.far_ends[0].send(&frames);
            let burst = lane.receive(PORT).expect("the lane receives");
            seen += burst.len();
            (0..burst.len()).for_each(|i| burst.set_verdict(i, Verdict::Tx));
            lane.settle(PORT).expect("the lane settles");
            lane.wait(Duration::ZERO).expect("the lane waits");
        });
        assert!(seen > TURNS, "{text}: {seen} frames");
    }
}
