//! A TCP lane without free descriptors: it refuses by the one in reserve, and without that it waits for its next
//! tick, in place of asking the kernel in round after round.
//!
//! The limit is the whole process's, so this test has one of its own.

use laneway_core::{Clock, DropReason, Lane, PortId, StreamLane, Turn, Wake};
use laneway_socket::TcpLane;
use laneway_testkit::service::{Manner, MonotonicClock, StreamProbe};
use std::{
    fs::File,
    io::{self, Read},
    mem,
    net::TcpStream,
    time::Duration,
};

const PORT: PortId = PortId(0);
const TICKS: usize = 50;

/// Sets how many descriptors this process may have; gives how many it could have before.
fn limit_files(files: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    let before = mem::replace(&mut limit.rlim_cur, files.min(limit.rlim_max));
    // SAFETY: `limit` lives across the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    before
}

/// The rounds of a worker until its waits have ended in a tick so often.
fn rounds(lane: &mut TcpLane, probe: &mut StreamProbe) -> usize {
    let mut rounds = 0;
    for _ in 0..TICKS {
        loop {
            lane.serve(probe, &MonotonicClock).expect("the lane serves");
            rounds += 1;
            assert!(rounds < 100 * TICKS, "no wait ends in a tick");
            if lane.wait(Duration::from_millis(1)).expect("the lane waits") == Wake::Timeout {
                break;
            }
        }
        let turn = Turn { now_ns: MonotonicClock.now_ns() };
        lane.tick(probe, turn).expect("the lane ticks");
    }
    rounds
}

#[test]
fn without_descriptors_a_lane_refuses_by_its_reserve_and_without_that_waits_for_a_tick() {
    let listen = "127.0.0.1:0".parse().expect("an address");
    let mut lane = TcpLane::open(&"socket".parse().expect("a spec"), &[listen]).expect("opens");
    let address = lane.local_address(PORT);
    let connect = || TcpStream::connect(address).expect("the backlog has room");
    let mut probe = StreamProbe::new(Manner::Echo);

    // Not even the one in reserve is granted again.
    let _accepted = connect();
    let before = limit_files(0);
    let asked = rounds(&mut lane, &mut probe);
    limit_files(before);
    assert!(asked <= 2 * TICKS, "{asked} rounds in {TICKS} ticks");
    assert_eq!((probe.open(), lane.counters(PORT).lost()), (0, 0), "the client waits");
    rounds(&mut lane, &mut probe);
    assert_eq!((probe.open(), lane.counters(PORT).lost()), (1, 0), "it is accepted");

    // All others are taken: the client is refused, and what the kernel says behind it is that no other waits.
    let mut refused = connect();
    let before = limit_files(256);
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let asked = rounds(&mut lane, &mut probe);
    drop(files);
    limit_files(before);
    assert!(asked <= 2 * TICKS, "{asked} rounds in {TICKS} ticks");
    assert_eq!(lane.counters(PORT).drops(DropReason::ConnTableFull), 1);
    let end = refused.read(&mut [0]).or_else(|e| match e.kind() {
        io::ErrorKind::ConnectionReset => Ok(0),
        _ => Err(e),
    });
    assert_eq!(end.expect("the lane has closed it"), 0);
}
