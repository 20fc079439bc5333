//! The conformance suites: the far end is made of the kernel's sockets.

use crate::world::{FAR_V4, NEAR_V4, Open, World, config, open_afxdp, open_packet, open_uring};
use laneway_core::{FrameLane, LaneError, PortId, PortPlan};
use laneway_spec::LaneSpec;
use laneway_stack::{DatagramStack, StreamStack};
use laneway_testkit::{
    datagram_conformance,
    service::{
        DatagramProperties, DatagramRig, MonotonicClock, PeerId, PeerRead, StreamProperties,
        StreamRig,
    },
    stream_conformance,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    os::fd::OwnedFd,
    time::Duration,
};

const PORTS_MAX: usize = 2;
const FAR: [&str; 1] = ["10.77.0.2/24"];
/// Connections that the stack takes when it is asked to take few.
const FEW: usize = 4;

fn near(port: PortId) -> SocketAddr {
    SocketAddr::new(NEAR_V4.parse().unwrap(), 7000 + port.0 as u16)
}

fn far_port(port: PortId) -> SocketAddr {
    SocketAddr::new(FAR_V4.parse().unwrap(), 8000 + port.0 as u16)
}

/// Takes the knob `stack=` out, which is the rig's own: the stack's limits are not the lane's.
fn split(spec: &LaneSpec) -> (LaneSpec, Option<&'static str>) {
    let text = spec.to_string();
    for wish in ["few", "small", "hasty"] {
        let knob = format!("stack={wish}");
        if let Some((before, after)) = text.split_once(&knob) {
            let before = before.trim_end_matches([',', ':']);
            let joint = if after.is_empty() {
                ""
            } else if before.contains(':') {
                ","
            } else {
                ":"
            };
            let rest = format!("{before}{joint}{}", after.trim_start_matches(','));
            return (rest.parse().expect("what is left is a spec"), Some(wish));
        }
    }
    (spec.clone(), None)
}

struct Rig<L> {
    world: World,
    open: Open<L>,
    spec: &'static str,
    far: Vec<UdpSocket>,
    peers: Vec<Peer>,
}

struct Peer {
    address: SocketAddr,
    stream: Option<TcpStream>,
    port: PortId,
}

impl<L: FrameLane> Rig<L> {
    fn new(spec: &'static str, open: Open<L>) -> Result<Rig<L>, String> {
        let world = World::new(&FAR)?;
        let sockets = world.far.enter(|| {
            (0..PORTS_MAX as u8)
                .map(|port| {
                    UdpSocket::bind(far_port(PortId(port.into()))).expect("the port is free")
                })
                .collect::<Vec<_>>()
        });
        let far = sockets.map_err(|e| e.to_string())?;
        for socket in &far {
            socket.set_nonblocking(true).expect("a socket can be set");
        }
        Ok(Rig { world, open, spec, far, peers: Vec::new() })
    }

    fn listen(ports: usize) -> Vec<SocketAddr> {
        (0..ports).map(|port| near(PortId(port as u32))).collect()
    }
}

impl<L: FrameLane> DatagramRig for Rig<L> {
    type Lane = DatagramStack<L>;
    type Clock = MonotonicClock;

    fn properties(&self) -> DatagramProperties {
        DatagramProperties {
            spec: self.spec,
            ports_max: PORTS_MAX,
            send_max: 16,
            payload_bytes_max: 1472,
            too_long_bytes: Some(1473),
            small_batch: ("burst=8", 8),
            trains: false,
            carries_empty: true,
            overload: None,
            impossible: None,
            misspelt: ("brust", "burst"),
        }
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<DatagramStack<L>, LaneError> {
        for port in 0..PORTS_MAX as u8 {
            self.collect(PortId(port.into()), 0);
        }
        let lane = self.world.open(self.open, spec)?;
        DatagramStack::new(lane, &config(&Rig::<L>::listen(ports)))
    }

    fn near(&self, port: PortId) -> SocketAddr {
        near(port)
    }

    fn far(&self, port: PortId) -> SocketAddr {
        far_port(port)
    }

    fn plan(&mut self) -> Result<PortPlan, String> {
        Ok(PortPlan::at(SocketAddr::new(NEAR_V4.parse().unwrap(), 0)))
    }

    fn has_queues(&self) -> bool {
        false
    }

    fn send_to(&mut self, near: SocketAddr, payloads: &[&[u8]]) {
        for payload in payloads {
            let sent = self.far[0].send_to(payload, near);
            assert_eq!(sent.expect("a cable takes datagrams"), payload.len());
        }
    }

    fn send(&mut self, port: PortId, payloads: &[&[u8]]) {
        for payload in payloads {
            let sent = self.far[port.index()].send_to(payload, near(port));
            assert_eq!(sent.expect("a cable takes datagrams"), payload.len());
        }
    }

    fn collect(&mut self, port: PortId, expected: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        /// Naps of 1 ms until what is expected counts as not coming for now.
        const NAPS_MAX: usize = 5;
        let mut collected = Vec::new();
        let mut bytes = vec![0; 1 << 16];
        let mut naps = 0;
        loop {
            match self.far[port.index()].recv_from(&mut bytes) {
                Ok((length, source)) => collected.push((source, bytes[..length].to_vec())),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    naps += 1;
                    if collected.len() >= expected || naps > NAPS_MAX {
                        return collected;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                // The kernel tells of an ICMP error of an earlier test once.
                Err(_) => (),
            }
        }
    }
}

impl<L: FrameLane> Rig<L> {
    fn stream(&mut self, peer: PeerId) -> Option<&mut TcpStream> {
        self.peers[peer.0].stream.as_mut()
    }
}

impl<L: FrameLane> StreamRig for Rig<L> {
    type Lane = StreamStack<L>;
    type Clock = MonotonicClock;

    fn properties(&self) -> StreamProperties {
        StreamProperties {
            spec: self.spec,
            ports_max: PORTS_MAX,
            peers_max: 200,
            small_queues: "stack=small",
            hasty_close: "stack=hasty",
            few_connections: Some(("stack=few", FEW)),
            impossible: None,
            misspelt: ("brust", "burst"),
        }
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<StreamStack<L>, LaneError> {
        let (spec, wish) = split(spec);
        let mut config = config(&Rig::<L>::listen(ports));
        match wish {
            Some("few") => config.tcp.connections_max = FEW,
            Some(wish) => {
                if wish == "hasty" {
                    config.tcp.linger_ns = 300_000_000;
                }
                (config.tcp.rx_bytes, config.tcp.tx_bytes) = (2048, 2048);
                config.tcp.window_bytes_max = 2048;
                config.tcp.backlog_bytes_max = 2048;
            }
            None => (),
        }
        let lane = self.world.open(self.open, &spec)?;
        StreamStack::new(lane, &config)
    }

    fn connect(&mut self, port: PortId) -> PeerId {
        let connect = move || -> std::io::Result<TcpStream> {
            let socket = rustix::net::socket_with(
                AddressFamily::INET,
                SocketType::STREAM,
                SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
                None,
            )?;
            let from = SocketAddr::new(FAR_V4.parse().expect("an address"), 0);
            rustix::net::bind(&socket, &from)?;
            match rustix::net::connect(&socket, &near(port)) {
                Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
                Err(e) => Err(e.into()),
            }
        };
        let stream = self.world.far.enter(connect).expect("the namespace is there");
        let stream = stream.expect("a connection begins");
        let address = stream.local_addr().expect("it is bound");
        self.peers.push(Peer { address, stream: Some(stream), port });
        PeerId(self.peers.len() - 1)
    }

    fn address(&self, peer: PeerId) -> SocketAddr {
        self.peers[peer.0].address
    }

    fn write(&mut self, peer: PeerId, bytes: &[u8]) -> usize {
        self.stream(peer).and_then(|stream| stream.write(bytes).ok()).unwrap_or(0)
    }

    fn write_urgent(&mut self, peer: PeerId, bytes: &[u8]) -> bool {
        let Some(stream) = self.stream(peer) else { return false };
        rustix::net::send(stream, bytes, rustix::net::SendFlags::OOB) == Ok(bytes.len())
    }

    fn read(&mut self, peer: PeerId, bytes_max: usize) -> PeerRead {
        let Some(stream) = self.stream(peer) else { return PeerRead::Reset };
        let mut bytes = vec![0; bytes_max];
        match stream.read(&mut bytes) {
            Ok(0) => PeerRead::End,
            Ok(length) => PeerRead::Bytes(bytes[..length].to_vec()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                PeerRead::Nothing
            }
            Err(_) => PeerRead::Reset,
        }
    }

    fn finish(&mut self, peer: PeerId) {
        let port = self.peers[peer.0].port;
        let done = self.stream(peer).map(|stream| stream.shutdown(std::net::Shutdown::Write));
        assert!(done.is_some_and(|done| done.is_ok()), "{peer:?} to {port:?} was connected");
    }

    fn reset(&mut self, peer: PeerId) {
        if let Some(stream) = self.peers[peer.0].stream.take() {
            let socket = OwnedFd::from(stream);
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).expect("it can be set");
        }
    }

    fn arrivals(&mut self, peer: PeerId) -> Option<Box<dyn FnMut() -> bool>> {
        let stream = self.stream(peer)?.try_clone().ok()?;
        Some(Box::new(move || matches!(stream.peek(&mut [0]), Ok(bytes) if bytes > 0)))
    }
}

mod packet_datagrams {
    use super::*;
    datagram_conformance!(|| Rig::new("packet", open_packet));
}

mod uring_datagrams {
    use super::*;
    datagram_conformance!(|| Rig::new("uring", open_uring));
}

mod packet_streams {
    use super::*;
    stream_conformance!(|| Rig::new("packet", open_packet));
}

mod afxdp_datagrams {
    use super::*;
    datagram_conformance!(|| Rig::new("afxdp:copy", open_afxdp));
}

mod afxdp_streams {
    use super::*;
    stream_conformance!(|| Rig::new("afxdp:copy", open_afxdp));
}
