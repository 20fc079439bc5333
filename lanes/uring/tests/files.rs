//! Lane `uring` when its process has no descriptor left. A program of its own: the limit is that of the process.

use laneway_core::{
    App, Clock, Close, ConnId, Counters, DropReason, Lane, Opened, PortId, StreamApp, StreamLane,
    StreamOut, Turn,
};
use laneway_testkit::{service::MonotonicClock, skip};
use laneway_uring::UringTcp;
use std::{
    fs::File,
    io::{ErrorKind, Read},
    iter, mem,
    net::{Ipv4Addr, TcpStream},
    process::{self, Command},
    time::Duration,
};

const PORT: PortId = PortId(0);
/// More than the lane keeps for itself, and few enough to use up.
const FILES: usize = 100;

/// Keeps connections open.
#[derive(Default)]
struct Idle {
    open: usize,
    counters: Counters,
}

impl App for Idle {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for Idle {
    fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {
        self.open += 1;
    }

    fn on_bytes<O: StreamOut>(&mut self, _conn: ConnId, bytes: &[u8], _out: &mut O) -> usize {
        bytes.len()
    }

    fn on_close(&mut self, _conn: ConnId, _why: Close) {
        self.open -= 1;
    }
}

/// Lets this process have so many files open; an error says why not.
fn limit_files(files: usize) -> Result<(), String> {
    let (pid, soft) = (process::id().to_string(), format!("--nofile={files}:"));
    match Command::new("prlimit").args(["--pid", &pid, &soft]).status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("`prlimit {soft}`: {other:?}")),
    }
}

/// Turns of 10 ms and more, with a tick each.
fn turns(lane: &mut UringTcp, app: &mut Idle, count: usize) {
    for _ in 0..count {
        lane.serve(app, &MonotonicClock).expect("the lane serves");
        lane.wait(Duration::from_millis(10)).expect("the lane waits");
        lane.tick(app, Turn { now_ns: MonotonicClock.now_ns() }).expect("the lane ticks");
    }
}

/// Each tick counted one, whether a connection waited or not, and none was closed.
#[test]
fn without_descriptors_a_connection_is_closed_and_counted_once() {
    if let Err(reason) = limit_files(FILES) {
        return skip(reason);
    }
    let lane =
        UringTcp::open(&"uring".parse().expect("well formed"), &[(Ipv4Addr::LOCALHOST, 0).into()]);
    let mut lane = match lane {
        Ok(lane) => lane,
        Err(reason) => return skip(reason),
    };
    let at = lane.local_addr(PORT);
    let mut app = Idle::default();
    let refused = |lane: &mut UringTcp| lane.counters(PORT).drops(DropReason::ConnTableFull);
    let mut files: Vec<File> = iter::from_fn(|| File::open("/dev/null").ok()).collect();
    for round in 1..=2 {
        // Its place is the peer's.
        files.pop().expect("there are some");
        let mut far = TcpStream::connect(at).expect("it listens");
        far.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket has timeouts");
        turns(&mut lane, &mut app, 50);
        assert_eq!((refused(&mut lane), app.open), (round, 0));
        let end = far.read(&mut [0]);
        let is_closed = match &end {
            Ok(bytes) => *bytes == 0,
            Err(e) => e.kind() == ErrorKind::ConnectionReset,
        };
        assert!(is_closed, "{end:?}");
        // It stays, so that there is no descriptor again.
        mem::forget(far);
    }
    // Two are free: a peer's end and the lane's.
    files.truncate(files.len() - 2);
    let far = TcpStream::connect(at).expect("it listens");
    turns(&mut lane, &mut app, 50);
    assert_eq!((refused(&mut lane), app.open), (2, 1), "it accepts again");
    drop(far);
}
