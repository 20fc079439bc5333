//! The datagram conformance suite over UDP, in each mode.

use crate::world::{World, until_free};
use laneway_core::{Cap, LaneError, PortId, PortPlan};
use laneway_spec::LaneSpec;
use laneway_testkit::{
    DatagramProperties, DatagramRig, Impossible, Overload, service::MonotonicClock,
};
use laneway_uring::UringUdp;
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    time::Duration,
};

const PORTS_MAX: usize = 2;
const NEAR_PORT: u16 = 7001;
const FAR_PORT: u16 = 8001;

/// A lane and plain UDP sockets on the loopback of a namespace of their own.
struct UdpRig {
    spec: &'static str,
    trains: bool,
    far: Vec<UdpSocket>,
    world: World,
}

impl UdpRig {
    fn new(spec: &'static str) -> Result<UdpRig, String> {
        let world = World::new()?;
        let far = Vec::new();
        Ok(UdpRig { spec, trains: spec.contains("gro"), far, world })
    }
}

fn address(base: u16, port: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, base + port as u16).into()
}

fn far_socket(port: usize) -> UdpSocket {
    let bind = || UdpSocket::bind(address(FAR_PORT, port));
    let socket = until_free(bind, |e| e.kind() == ErrorKind::AddrInUse).expect("it is ours");
    socket.set_nonblocking(true).expect("a socket can");
    socket
}

/// Cuts what `socket` sends every so many bytes (UDP_SEGMENT); 0: not.
pub(crate) fn set_segment(socket: &UdpSocket, bytes: usize) {
    let value = bytes as libc::c_int;
    let (fd, length) = (socket.as_raw_fd(), size_of_val(&value) as u32);
    // SAFETY: the value lives across the call.
    let result = unsafe {
        libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const value).cast(), length)
    };
    assert_eq!(result, 0, "UDP_SEGMENT: {}", std::io::Error::last_os_error());
}

/// Lets this process open as many files as it may be allowed to, which must be enough for the suite's ports.
pub(crate) fn allow_files() -> Result<(), String> {
    const FILES: u64 = 1500;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    if limit.rlim_cur < FILES && limit.rlim_max >= FILES {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` lives across the call.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
    if limit.rlim_cur >= FILES { Ok(()) } else { Err(format!("`ulimit -Hn` is below {FILES}")) }
}

impl DatagramRig for UdpRig {
    type Lane = UringUdp;
    type Clock = MonotonicClock;

    fn properties(&self) -> DatagramProperties {
        DatagramProperties {
            spec: self.spec,
            ports_max: PORTS_MAX,
            send_max: 32,
            payload_bytes_max: 1400,
            too_long_bytes: Some(65_508),
            small_batch: ("batch=8", 8),
            trains: self.trains,
            carries_empty: true,
            overload: Some(Overload { knobs: "rcvbuf=16k", frames: 2000 }),
            impossible: Some(Impossible { knobs: "rcvbuf=1024m", cap: Cap::SocketBuffers }),
            misspelt: ("reuseprt", "reuseport"),
        }
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<UringUdp, LaneError> {
        self.far.clear();
        let addresses: Vec<_> = (0..ports).map(|port| address(NEAR_PORT, port)).collect();
        let (lane, far) = self.world.inside(|| {
            let lane = until_free(
                || UringUdp::open(spec, &addresses),
                |e| matches!(e, LaneError::Busy { .. }),
            );
            (lane, (0..ports).map(far_socket).collect())
        });
        self.far = far;
        lane
    }

    fn near(&self, port: PortId) -> SocketAddr {
        address(NEAR_PORT, port.index())
    }

    fn far(&self, port: PortId) -> SocketAddr {
        address(FAR_PORT, port.index())
    }

    fn plan(&mut self) -> Result<PortPlan, String> {
        allow_files()?;
        Ok(PortPlan::at((Ipv4Addr::LOCALHOST, 0).into()))
    }

    fn inside<T>(&mut self, action: impl FnOnce() -> T) -> T {
        self.world.inside(action)
    }

    fn send_to(&mut self, near: SocketAddr, payloads: &[&[u8]]) {
        for payload in payloads {
            let sent = self.far[0].send_to(payload, near);
            assert_eq!(sent.expect("the far end sends"), payload.len());
        }
    }

    fn send(&mut self, port: PortId, payloads: &[&[u8]]) {
        for payload in payloads {
            let sent = self.far[port.index()].send_to(payload, self.near(port));
            assert_eq!(sent.expect("the far end sends"), payload.len());
        }
    }

    fn send_train(&mut self, port: PortId, bytes: &[u8], segment_bytes: usize) {
        let socket = &self.far[port.index()];
        set_segment(socket, segment_bytes);
        let sent = socket.send_to(bytes, self.near(port));
        set_segment(socket, 0);
        assert_eq!(sent.expect("the far end sends"), bytes.len());
    }

    fn collect(&mut self, port: PortId, expected: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        /// Waits of 1 ms in vain.
        const WAITS_MAX: usize = 10;
        let mut buffer = vec![0; 1 << 16];
        let mut collected = Vec::new();
        for _ in 0..WAITS_MAX {
            loop {
                match self.far[port.index()].recv_from(&mut buffer) {
                    Ok((bytes, source)) => collected.push((source, buffer[..bytes].to_vec())),
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => panic!("the far end receives: {e}"),
                }
            }
            if collected.len() >= expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        collected
    }
}

mod plain {
    laneway_testkit::datagram_conformance!(|| super::UdpRig::new("uring"));
}

mod gso {
    laneway_testkit::datagram_conformance!(|| super::UdpRig::new("uring:gso"));
}

mod gro {
    laneway_testkit::datagram_conformance!(|| super::UdpRig::new("uring:gro,timestamps"));
}

mod trains {
    laneway_testkit::datagram_conformance!(|| super::UdpRig::new("uring:gso,gro"));
}

mod send_zc {
    laneway_testkit::datagram_conformance!(|| super::UdpRig::new("uring:gso,send_zc=100"));
}

mod tiny {
    laneway_testkit::datagram_conformance!(|| super::UdpRig::new("uring:depth=2,buffers=2"));
}
