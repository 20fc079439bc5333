//! The datagram contract over raw sockets: payloads without IP header, addresses without ports.

use crate::place::Loopback;
use laneway_core::{LaneError, PortId};
use laneway_socket::UdpLane;
use laneway_spec::LaneSpec;
use laneway_testkit::{DatagramProperties, DatagramRig, Overload, service::MonotonicClock};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

/// RFC 3692: for experiments.
const PROTOCOL: libc::c_int = 253;
const SPEC: &str = "socket:raw=253";
const NEAR_V4: [&str; 2] = ["127.0.0.2", "127.0.0.4"];
const FAR_V4: [&str; 2] = ["127.0.0.3", "127.0.0.5"];
const NEAR_V6: [&str; 2] = ["fd00::2", "fd00::4"];
const FAR_V6: [&str; 2] = ["fd00::3", "fd00::5"];

struct RawRig {
    near: [IpAddr; 2],
    far_at: [IpAddr; 2],
    far: Vec<OwnedFd>,
    _place: Loopback,
}

impl RawRig {
    fn new(near: [&str; 2], far: [&str; 2]) -> Result<RawRig, String> {
        let addresses = |of: [&str; 2]| of.map(|text| text.parse().expect("an address"));
        let (near_at, far_at): ([IpAddr; 2], [IpAddr; 2]) = (addresses(near), addresses(far));
        let added: Vec<&str> = near.into_iter().chain(far).filter(|a| a.contains(':')).collect();
        let place = Loopback::new(&added)?;
        Ok(RawRig { near: near_at, far_at, far: Vec::new(), _place: place })
    }
}

impl DatagramRig for RawRig {
    type Lane = UdpLane;
    type Clock = MonotonicClock;

    fn properties(&self) -> DatagramProperties {
        DatagramProperties {
            spec: SPEC,
            ports_max: 2,
            send_max: 16,
            payload_bytes_max: 9000,
            // One more than the length field of IPv6 can say.
            too_long_bytes: Some(65_536),
            small_batch: ("batch=4", 4),
            trains: false,
            carries_empty: self.near[0].is_ipv4(),
            overload: Some(Overload { knobs: "rcvbuf=4k", frames: 2000 }),
            impossible: None,
            misspelt: ("timestamp", "timestamps"),
        }
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<UdpLane, LaneError> {
        let listen: Vec<SocketAddr> =
            self.near[..ports].iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
        let lane = UdpLane::open(spec, &listen)?;
        self.far = self.far_at[..ports].iter().map(|ip| raw_socket(*ip)).collect();
        Ok(lane)
    }

    fn near(&self, port: PortId) -> SocketAddr {
        SocketAddr::new(self.near[port.index()], 0)
    }

    fn far(&self, port: PortId) -> SocketAddr {
        SocketAddr::new(self.far_at[port.index()], 0)
    }

    fn send(&mut self, port: PortId, payloads: &[&[u8]]) {
        let (name, bytes) = c_address(self.near[port.index()]);
        for payload in payloads {
            let fd = self.far[port.index()].as_raw_fd();
            // SAFETY: payload and name live across the call and have these lengths.
            let sent = unsafe {
                let at = payload.as_ptr().cast();
                libc::sendto(fd, at, payload.len(), 0, (&raw const name).cast(), bytes)
            };
            assert_eq!(sent, payload.len() as isize, "{}", io::Error::last_os_error());
        }
    }

    fn collect(&mut self, port: PortId, expected: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        /// Waits of 1 ms in vain.
        const WAITS_MAX: usize = 5;
        let mut collected = Vec::new();
        let mut buffer = vec![0u8; 1 << 16];
        for _ in 0..WAITS_MAX {
            while let Some((source, bytes)) = receive(&self.far[port.index()], &mut buffer) {
                let header_bytes = if source.is_ipv4() { 20 } else { 0 };
                let payload = buffer[header_bytes..bytes].to_vec();
                collected.push((SocketAddr::new(source, 0), payload));
            }
            if collected.len() >= expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        collected
    }
}

fn raw_socket(at: IpAddr) -> OwnedFd {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(family, kind, PROTOCOL) };
    assert!(fd >= 0, "socket: {}", io::Error::last_os_error());
    // SAFETY: just made, nothing else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let (name, bytes) = c_address(at);
    // SAFETY: the name lives across the call and has this length.
    let result = unsafe { libc::bind(fd, (&raw const name).cast(), bytes) };
    assert_eq!(result, 0, "bind: {}", io::Error::last_os_error());
    socket
}

fn c_address(ip: IpAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: made of integers.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let at = &raw mut name;
    let bytes = match ip {
        IpAddr::V4(v4) => {
            let at = at.cast::<libc::sockaddr_in>();
            // SAFETY: a storage is as large and as strictly aligned as any address.
            let own = unsafe { &mut *at };
            own.sin_family = libc::AF_INET as libc::sa_family_t;
            own.sin_addr.s_addr = u32::from_ne_bytes(v4.octets());
            size_of::<libc::sockaddr_in>()
        }
        IpAddr::V6(v6) => {
            let at = at.cast::<libc::sockaddr_in6>();
            // SAFETY: as above.
            let own = unsafe { &mut *at };
            own.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            own.sin6_addr.s6_addr = v6.octets();
            size_of::<libc::sockaddr_in6>()
        }
    };
    (name, bytes as libc::socklen_t)
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Option<(IpAddr, usize)> {
    // SAFETY: made of integers.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut name_bytes = size_of_val(&name) as libc::socklen_t;
    let (fd, at) = (socket.as_raw_fd(), buffer.as_mut_ptr().cast());
    // SAFETY: buffer and name live across the call and have these lengths.
    let bytes = unsafe {
        libc::recvfrom(fd, at, buffer.len(), 0, (&raw mut name).cast(), &raw mut name_bytes)
    };
    let bytes = usize::try_from(bytes).ok()?;
    let at = &raw const name;
    let source = if libc::c_int::from(name.ss_family) == libc::AF_INET {
        // SAFETY: the kernel wrote an address of this family.
        let own = unsafe { *at.cast::<libc::sockaddr_in>() };
        IpAddr::from(own.sin_addr.s_addr.to_ne_bytes())
    } else {
        // SAFETY: as above.
        let own = unsafe { *at.cast::<libc::sockaddr_in6>() };
        IpAddr::from(own.sin6_addr.s6_addr)
    };
    Some((source, bytes))
}

mod v4 {
    use super::*;
    laneway_testkit::datagram_conformance!(|| RawRig::new(NEAR_V4, FAR_V4));
}

mod v6 {
    use super::*;
    laneway_testkit::datagram_conformance!(|| RawRig::new(NEAR_V6, FAR_V6));
}
