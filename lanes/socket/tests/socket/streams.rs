//! The stream contract over TCP, both families.

use crate::place::Powerless;
use laneway_core::{Cap, LaneError, PortId};
use laneway_socket::TcpLane;
use laneway_spec::LaneSpec;
use laneway_testkit::{
    Impossible, PeerId, PeerRead, StreamProperties, StreamRig, service::MonotonicClock,
};
use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    time::Duration,
};

const PORTS_MAX: usize = 2;
/// More than the kernel grants without force.
const IMPOSSIBLE: &str = "rcvbuf=512m";

/// Plain sockets at a loopback address.
struct LoopbackRig {
    spec: &'static str,
    ip: IpAddr,
    /// Chosen by the kernel at the first opening, asked for afterwards.
    near: Vec<SocketAddr>,
    peers: Vec<(TcpStream, SocketAddr)>,
}

impl LoopbackRig {
    fn new(spec: &'static str, ip: impl Into<IpAddr>) -> Result<LoopbackRig, String> {
        let ip = ip.into();
        TcpListener::bind((ip, 0)).map_err(|e| format!("no TCP at {ip}: {e}"))?;
        let near = vec![SocketAddr::new(ip, 0); PORTS_MAX];
        Ok(LoopbackRig { spec, ip, near, peers: Vec::new() })
    }

    /// Opens the lane at its addresses. Between two openings another test's client may be given one
    /// of the ports, and another test's child process has a copy of every descriptor between its fork
    /// and its exec: such an address is free again in a moment.
    fn open_when_free(&self, spec: &LaneSpec, ports: usize) -> Result<TcpLane, LaneError> {
        /// Of 10 ms each.
        const ATTEMPTS: usize = 3000;
        for _ in 0..ATTEMPTS {
            match TcpLane::open(spec, &self.near[..ports]) {
                Err(LaneError::Busy { .. }) => std::thread::sleep(Duration::from_millis(10)),
                other => return other,
            }
        }
        TcpLane::open(spec, &self.near[..ports])
    }
}

impl StreamRig for LoopbackRig {
    type Lane = TcpLane;
    type Clock = MonotonicClock;

    fn properties(&self) -> StreamProperties {
        StreamProperties {
            spec: self.spec,
            ports_max: PORTS_MAX,
            peers_max: 200,
            small_queues: "buffer=4k,queue=4k,sndbuf=4k",
            hasty_close: "buffer=4k,queue=4k,sndbuf=4k,close=300",
            few_connections: Some(("conns=3", 3)),
            impossible: Some(Impossible { knobs: IMPOSSIBLE, cap: Cap::SocketBuffers }),
            misspelt: ("backlogs", "backlog"),
        }
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<TcpLane, LaneError> {
        let _powerless = spec.to_string().contains(IMPOSSIBLE).then(Powerless::new);
        self.peers.clear();
        let lane = self.open_when_free(spec, ports)?;
        for port in 0..ports {
            self.near[port] = lane.local_address(PortId(port as u32));
            assert_eq!(self.near[port].ip(), self.ip);
        }
        Ok(lane)
    }

    fn connect(&mut self, port: PortId) -> PeerId {
        let stream = TcpStream::connect(self.near[port.index()]).expect("the backlog has room");
        stream.set_nonblocking(true).expect("a socket can be non-blocking");
        stream.set_nodelay(true).expect("TCP has this option");
        let address = stream.local_addr().expect("it is connected");
        self.peers.push((stream, address));
        PeerId(self.peers.len() - 1)
    }

    fn address(&self, peer: PeerId) -> SocketAddr {
        self.peers[peer.0].1
    }

    fn write(&mut self, peer: PeerId, bytes: &[u8]) -> usize {
        self.peers[peer.0].0.write(bytes).unwrap_or(0)
    }

    fn write_urgent(&mut self, peer: PeerId, bytes: &[u8]) -> bool {
        let taken = rustix::net::send(&self.peers[peer.0].0, bytes, rustix::net::SendFlags::OOB);
        taken == Ok(bytes.len())
    }

    fn read(&mut self, peer: PeerId, bytes_max: usize) -> PeerRead {
        let mut bytes = vec![0; bytes_max];
        match self.peers[peer.0].0.read(&mut bytes) {
            Ok(0) => PeerRead::End,
            Ok(count) => {
                bytes.truncate(count);
                PeerRead::Bytes(bytes)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => PeerRead::Nothing,
            Err(_) => PeerRead::Reset,
        }
    }

    fn finish(&mut self, peer: PeerId) {
        // One that was reset cannot be finished, and need not be.
        let _ = self.peers[peer.0].0.shutdown(Shutdown::Write);
    }

    fn reset(&mut self, peer: PeerId) {
        let stream = &self.peers[peer.0].0;
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: the value lives across the call.
        let result = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const at_once).cast(),
                size_of_val(&at_once) as libc::socklen_t,
            )
        };
        assert_eq!(result, 0, "SO_LINGER: {}", io::Error::last_os_error());
        // Another stream in its place closes this one; what it is connected to does not matter.
        let listener = TcpListener::bind((self.ip, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        self.peers[peer.0].0 = TcpStream::connect(address).expect("the backlog has room");
    }

    fn arrivals(&mut self, peer: PeerId) -> Option<Box<dyn FnMut() -> bool>> {
        let stream = self.peers[peer.0].0.try_clone().expect("a descriptor is free");
        Some(Box::new(move || stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)))
    }
}

mod v4 {
    use super::*;
    laneway_testkit::stream_conformance!(|| LoopbackRig::new("socket", Ipv4Addr::LOCALHOST));
}

mod v6 {
    use super::*;
    laneway_testkit::stream_conformance!(|| {
        LoopbackRig::new("socket:reuseport", Ipv6Addr::LOCALHOST)
    });
}
