//! Peers that share no code with this project: curl over TCP, and bash's own UDP.

use crate::world::{World, until_free};
use laneway_core::{
    App, Clock, Close, ConnId, Counters, Datagram, DatagramApp, DatagramLane, DatagramOut, Lane,
    LaneError, Opened, PortId, StreamApp, StreamLane, StreamOut, Turn,
};
use laneway_testkit::{service::MonotonicClock, skip};
use laneway_uring::{UringTcp, UringUdp};
use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Output,
    time::Duration,
};

/// One wait of a worker.
const WAIT: Duration = Duration::from_millis(10);

/// Runs a program beside a worker, which turns until it has ended.
fn beside(
    world: &World,
    (program, arguments): (&str, &[&str]),
    mut turn: impl FnMut(),
) -> Option<Output> {
    let mut command = world.namespace.command(program);
    command.args(arguments);
    std::thread::scope(|scope| {
        let running = scope.spawn(move || command.output());
        while !running.is_finished() {
            turn();
        }
        match running.join().expect("no panic") {
            Ok(output) => Some(output),
            Err(e) => {
                skip(format!("{program} does not run here: {e}"));
                None
            }
        }
    })
}

/// Answers every HTTP request with a megabyte.
struct Http {
    body: Vec<u8>,
    counters: Counters,
    owed: Vec<(ConnId, usize)>,
}

impl Http {
    fn pay<O: StreamOut>(&mut self, out: &mut O) {
        self.owed.retain_mut(|(conn, at)| {
            *at += out.send(*conn, &self.body[*at..]);
            let is_owed = *at < self.body.len();
            if !is_owed {
                out.close(*conn);
            }
            is_owed
        });
    }
}

impl App for Http {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for Http {
    fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {}

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        if !bytes.ends_with(b"\r\n\r\n") {
            return 0;
        }
        let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", self.body.len());
        assert_eq!(out.send(conn, head.as_bytes()), head.len(), "a new queue has room");
        self.owed.push((conn, 0));
        bytes.len()
    }

    fn on_turn_end<O: StreamOut>(&mut self, _turn: Turn, out: &mut O) {
        self.pay(out);
    }

    fn on_room<O: StreamOut>(&mut self, _conn: ConnId, out: &mut O) {
        self.pay(out);
    }

    fn on_close(&mut self, conn: ConnId, _why: Close) {
        self.owed.retain(|(owed, _)| *owed != conn);
    }
}

#[test]
fn curl_fetches_a_megabyte() {
    let Some(world) = World::new().map_err(skip).ok() else { return };
    let at: SocketAddr = (Ipv4Addr::LOCALHOST, 7080).into();
    for spec in world.obtained(&["uring", "uring:bundle,send_zc=4k", "uring:queue=20k,depth=2"]) {
        let parsed = spec.parse().expect("well formed");
        let open = || UringTcp::open(&parsed, &[at]);
        let lane = world.inside(|| until_free(open, |e| matches!(e, LaneError::Busy { .. })));
        let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
        let body: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_be_bytes).collect();
        let mut app = Http { body: body.clone(), counters: Counters::default(), owed: Vec::new() };
        let arguments = ["-s", "--max-time", "120", "http://127.0.0.1:7080/"];
        let fetched = beside(&world, ("curl", &arguments), || {
            lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
            lane.wait(WAIT).expect("the lane waits");
        });
        lane.finish(&mut app, Turn { now_ns: MonotonicClock.now_ns() });
        let Some(fetched) = fetched else { return };
        assert!(fetched.status.success(), "{spec}: curl says {}", fetched.status);
        assert!(fetched.stdout == body, "{spec}: {} bytes", fetched.stdout.len());
    }
}

/// Sends every datagram back.
#[derive(Default)]
struct Echo {
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
            out.forward(datagram, datagram.ingress, datagram.source);
        }
    }
}

#[test]
fn bash_gets_its_datagram_back() {
    let Some(world) = World::new().map_err(skip).ok() else { return };
    let at: SocketAddr = (Ipv4Addr::LOCALHOST, 7007).into();
    let lane = world.inside(|| UringUdp::open(&"uring".parse().expect("well formed"), &[at]));
    let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
    let mut app = Echo::default();
    let script = "exec 3<>/dev/udp/127.0.0.1/7007; printf 'hello\\n' >&3; timeout 60 head -c 6 <&3";
    let output = beside(&world, ("bash", &["-c", script]), || {
        lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
        lane.wait(WAIT).expect("the lane waits");
    });
    let Some(output) = output else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
    assert_eq!(lane.counters(PortId(0)).tx_frames, 1);
}
