//! Programs of third parties, against the lanes: curl over TCP, Python's sockets over UDP.

use laneway_core::{
    App, Close, ConnId, Counters, DatagramLane, Lane, Opened, PortId, StreamApp, StreamLane,
    StreamOut,
};
use laneway_socket::{TcpLane, UdpLane};
use laneway_testkit::{
    service::{Answer, DatagramProbe, MonotonicClock, payload},
    skip,
};
use std::{
    io::Read,
    process::{Child, Command, Stdio},
    time::Duration,
};

const PORT: PortId = PortId(0);

/// Starts a program whose output is kept; says why if it cannot.
fn start(program: &str, arguments: &[&str]) -> Option<Child> {
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn();
    match started {
        Ok(child) => Some(child),
        Err(e) => {
            skip(format!("{program} does not run: {e}"));
            None
        }
    }
}

/// What a running program prints, read aside so that its pipe never fills.
fn output(child: &mut Child) -> std::thread::JoinHandle<Vec<u8>> {
    let mut pipe = child.stdout.take().expect("its output is kept");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    })
}

/// Answers every request with the same long body, which its queue takes piece by piece, and lets the
/// client close.
struct Server {
    answer: Vec<u8>,
    /// What each connection is still to be sent.
    owed: Vec<(ConnId, usize)>,
    opened: usize,
    counters: Counters,
}

impl Server {
    fn pay(&mut self, out: &mut impl StreamOut) {
        for (conn, at) in &mut self.owed {
            while *at < self.answer.len() {
                let taken = out.send(*conn, &self.answer[*at..]);
                *at += taken;
                if taken == 0 {
                    break;
                }
            }
        }
        self.owed.retain(|(_, at)| *at < self.answer.len());
    }
}

impl App for Server {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for Server {
    fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {
        self.opened += 1;
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else { return 0 };
        self.owed.push((conn, 0));
        self.pay(out);
        end + 4
    }

    fn on_close(&mut self, conn: ConnId, _why: Close) {
        self.owed.retain(|(owed, _)| *owed != conn);
    }

    fn on_room<O: StreamOut>(&mut self, _conn: ConnId, out: &mut O) {
        self.pay(out);
    }
}

#[test]
fn curl_gets_a_long_answer_over_kept_connections() {
    const BODY_BYTES: usize = 1_000_000;
    let body = payload(1, BODY_BYTES);
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n").into_bytes();
    answer.extend_from_slice(&body);
    let listen = "127.0.0.1:0".parse().expect("an address");
    let spec = "socket:queue=64k".parse().expect("a spec");
    let mut lane = TcpLane::open(&spec, &[listen]).expect("a free port");
    let url = format!("http://{}/", lane.local_address(PORT));
    let Some(mut curl) = start("curl", &["-sS", "--max-time", "30", &url, &url, &url]) else {
        return;
    };
    let printed = output(&mut curl);
    let mut server = Server { answer, owed: Vec::new(), opened: 0, counters: Counters::default() };
    let clock = MonotonicClock;
    let status = loop {
        lane.serve(&mut server, &clock).expect("the lane serves");
        lane.wait(Duration::from_millis(5)).expect("the lane waits");
        if let Some(status) = curl.try_wait().expect("it was started") {
            break status; // curl ends by itself, at the latest after its longest time
        }
    };
    assert!(status.success(), "curl: {status}");
    let printed = printed.join().expect("reading does not panic");
    assert!(printed == body.repeat(3), "curl got {} bytes", printed.len());
    assert_eq!(server.opened, 1, "one connection for all");
}

#[test]
fn python_gets_its_datagrams_back() {
    /// Sends each size, waits for the echo, compares.
    const CLIENT: &str = "
import socket, sys
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
peer.settimeout(10)
address = ('127.0.0.1', int(sys.argv[1]))
for size in [0, 1, 100, 1472, 9000, 65507]:
    sent = bytes(i % 251 for i in range(size))
    peer.sendto(sent, address)
    back, source = peer.recvfrom(1 << 16)
    assert back == sent and source == address, (size, len(back), source)
print('all')
";
    let listen = "0.0.0.0:0".parse().expect("an address");
    let spec = "socket:batch=16,gso,gro".parse().expect("a spec");
    let mut lane = UdpLane::open(&spec, &[listen]).expect("a free port");
    let port = lane.local_address(PORT).port().to_string();
    let Some(mut python) = start("python3", &["-c", CLIENT, &port]) else { return };
    let printed = output(&mut python);
    let mut probe = DatagramProbe::new(Answer::Reply);
    let status = loop {
        lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
        lane.wait(Duration::from_millis(5)).expect("the lane waits");
        if let Some(status) = python.try_wait().expect("it was started") {
            break status; // it ends by itself, at the latest after its timeout
        }
    };
    assert!(status.success(), "python3: {status}");
    assert_eq!(printed.join().expect("reading does not panic"), b"all\n");
}
