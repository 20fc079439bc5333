//! The stream conformance suite over TCP, in each mode.

use crate::world::{World, until_free};
use laneway_core::{Cap, LaneError, PortId};
use laneway_spec::LaneSpec;
use laneway_testkit::{
    Impossible, PeerId, PeerRead, StreamProperties, StreamRig, service::MonotonicClock,
};
use laneway_uring::UringTcp;
use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    os::fd::AsRawFd,
};

const PORTS_MAX: usize = 2;
const NEAR_PORT: u16 = 7001;

/// A lane and plain TCP sockets on the loopback of a namespace of their own.
struct TcpRig {
    spec: &'static str,
    peers: Vec<(Option<TcpStream>, SocketAddr)>,
    world: World,
}

impl TcpRig {
    fn new(spec: &'static str) -> Result<TcpRig, String> {
        let world = World::new()?;
        world.obtains(spec)?;
        Ok(TcpRig { spec, peers: Vec::new(), world })
    }

    fn stream(&mut self, peer: PeerId) -> &mut TcpStream {
        self.peers[peer.0].0.as_mut().expect("the connection was not reset")
    }
}

fn address(port: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, NEAR_PORT + port as u16).into()
}

impl StreamRig for TcpRig {
    type Lane = UringTcp;
    type Clock = MonotonicClock;

    fn properties(&self) -> StreamProperties {
        StreamProperties {
            spec: self.spec,
            ports_max: PORTS_MAX,
            peers_max: 200,
            small_queues: "queue=4k",
            hasty_close: "queue=4k,close=300",
            few_connections: Some(("conns=3", 3)),
            impossible: Some(Impossible { knobs: "rcvbuf=1024m", cap: Cap::SocketBuffers }),
            misspelt: ("cons", "conns"),
        }
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<UringTcp, LaneError> {
        for (stream, _) in &mut self.peers {
            *stream = None;
        }
        let addresses: Vec<_> = (0..ports).map(address).collect();
        let open = || UringTcp::open(spec, &addresses);
        self.world.inside(|| until_free(open, |e| matches!(e, LaneError::Busy { .. })))
    }

    fn connect(&mut self, port: PortId) -> PeerId {
        let stream = self.world.inside(|| TcpStream::connect(address(port.index())));
        let stream = stream.expect("the lane listens");
        stream.set_nonblocking(true).expect("a socket can");
        let own = stream.local_addr().expect("it is connected");
        self.peers.push((Some(stream), own));
        PeerId(self.peers.len() - 1)
    }

    fn address(&self, peer: PeerId) -> SocketAddr {
        self.peers[peer.0].1
    }

    fn write(&mut self, peer: PeerId, bytes: &[u8]) -> usize {
        match self.stream(peer).write(bytes) {
            Ok(bytes) => bytes,
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => 0,
                _ => panic!("the far end writes: {e}"),
            },
        }
    }

    fn write_urgent(&mut self, peer: PeerId, bytes: &[u8]) -> bool {
        let taken = rustix::net::send(&*self.stream(peer), bytes, rustix::net::SendFlags::OOB);
        taken == Ok(bytes.len())
    }

    fn read(&mut self, peer: PeerId, bytes_max: usize) -> PeerRead {
        let mut bytes = vec![0; bytes_max];
        match self.stream(peer).read(&mut bytes) {
            Ok(0) => PeerRead::End,
            Ok(read) => {
                bytes.truncate(read);
                PeerRead::Bytes(bytes)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => PeerRead::Nothing,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => PeerRead::Reset,
            Err(e) => panic!("the far end reads: {e}"),
        }
    }

    fn finish(&mut self, peer: PeerId) {
        self.stream(peer).shutdown(Shutdown::Write).expect("it is connected");
    }

    fn reset(&mut self, peer: PeerId) {
        let stream = self.peers[peer.0].0.take().expect("the connection was not reset");
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let (fd, bytes) = (stream.as_raw_fd(), size_of_val(&linger) as u32);
        // SAFETY: the value lives across the call.
        let result = unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                bytes,
            )
        };
        assert_eq!(result, 0, "SO_LINGER: {}", std::io::Error::last_os_error());
    }

    fn arrivals(&mut self, peer: PeerId) -> Option<Box<dyn FnMut() -> bool>> {
        let stream = self.stream(peer).try_clone().expect("a descriptor can be had");
        Some(Box::new(move || stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)))
    }
}

mod plain {
    laneway_testkit::stream_conformance!(|| super::TcpRig::new("uring"));
}

mod bundle {
    laneway_testkit::stream_conformance!(|| super::TcpRig::new("uring:bundle,buffer=1k"));
}

mod send_zc {
    laneway_testkit::stream_conformance!(|| super::TcpRig::new("uring:send_zc=1"));
}

mod tiny {
    laneway_testkit::stream_conformance!(|| super::TcpRig::new(
        "uring:depth=2,buffers=2,buffer=1k"
    ));
}
