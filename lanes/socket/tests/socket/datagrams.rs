//! The datagram contract over UDP, in each mode, both families and from a wildcard address.

use crate::place::Powerless;
use laneway_core::{Cap, LaneError, PortId, PortPlan};
use laneway_socket::UdpLane;
use laneway_spec::LaneSpec;
use laneway_testkit::{
    DatagramProperties, DatagramRig, Impossible, Overload, service::MonotonicClock,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    time::Duration,
};

const PORTS_MAX: usize = 3;
/// More than the kernel grants without force.
const IMPOSSIBLE: &str = "rcvbuf=512m";

/// Plain sockets at loopback addresses.
pub(crate) struct LoopbackRig {
    spec: &'static str,
    small_batch: (&'static str, usize),
    trains: bool,
    listen: IpAddr,
    /// The address that far ends write to.
    reached_at: IpAddr,
    near: Vec<SocketAddr>,
    far: Vec<UdpSocket>,
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
/// An address of the loopback that the kernel would not choose by itself.
const OTHER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

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

impl LoopbackRig {
    fn new(
        spec: &'static str,
        small_batch: (&'static str, usize),
        address: IpAddr,
    ) -> Result<LoopbackRig, String> {
        UdpSocket::bind((address, 0)).map_err(|e| format!("no UDP at {address}: {e}"))?;
        let (listen, reached_at, trains) = (address, address, spec.contains("gro"));
        let (near, far) = (Vec::new(), Vec::new());
        Ok(LoopbackRig { spec, small_batch, trains, listen, reached_at, near, far })
    }

    /// The lane listens at every address; far ends write to one of them.
    fn wildcard(mut self, reached_at: IpAddr) -> LoopbackRig {
        self.listen = match reached_at {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        self.reached_at = reached_at;
        self
    }
}

impl DatagramRig for LoopbackRig {
    type Lane = UdpLane;
    type Clock = MonotonicClock;

    fn properties(&self) -> DatagramProperties {
        DatagramProperties {
            spec: self.spec,
            ports_max: PORTS_MAX,
            send_max: 16,
            payload_bytes_max: 9000,
            too_long_bytes: Some(65_535),
            small_batch: self.small_batch,
            trains: self.trains,
            carries_empty: true,
            overload: Some(Overload { knobs: "rcvbuf=4k", frames: 2000 }),
            impossible: Some(Impossible { knobs: IMPOSSIBLE, cap: Cap::SocketBuffers }),
            misspelt: ("timestamp", "timestamps"),
        }
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<UdpLane, LaneError> {
        let _powerless = spec.to_string().contains(IMPOSSIBLE).then(Powerless::new);
        let lane = UdpLane::open(spec, &vec![SocketAddr::new(self.listen, 0); ports])?;
        let ids = (0..ports).map(|port| PortId(port as u32));
        self.near = ids
            .map(|port| SocketAddr::new(self.reached_at, lane.local_address(port).port()))
            .collect();
        let home = if self.reached_at.is_ipv4() { V4 } else { V6 };
        let far = (0..ports).map(|_| {
            let socket = UdpSocket::bind((home, 0)).expect("a free port");
            socket.set_nonblocking(true).expect("a socket can be non-blocking");
            socket
        });
        self.far = far.collect();
        Ok(lane)
    }

    fn near(&self, port: PortId) -> SocketAddr {
        self.near[port.index()]
    }

    fn near_unasked(&self, port: PortId) -> SocketAddr {
        // To a loopback address the kernel sends from the first of its family.
        let chosen = if self.reached_at.is_ipv4() { V4 } else { V6 };
        let ip = if self.listen.is_unspecified() { chosen } else { self.listen };
        SocketAddr::new(ip, self.near(port).port())
    }

    fn far(&self, port: PortId) -> SocketAddr {
        self.far[port.index()].local_addr().expect("it is bound")
    }

    fn plan(&mut self) -> Result<PortPlan, String> {
        allow_files()?;
        Ok(PortPlan::at(SocketAddr::new(self.reached_at, 0)))
    }

    fn send_to(&mut self, near: SocketAddr, payloads: &[&[u8]]) {
        for payload in payloads {
            let sent = self.far[0].send_to(payload, near);
            assert_eq!(sent.expect("loopback takes it"), payload.len());
        }
    }

    fn send(&mut self, port: PortId, payloads: &[&[u8]]) {
        for payload in payloads {
            let sent = self.far[port.index()].send_to(payload, self.near(port));
            assert_eq!(sent.expect("loopback takes it"), payload.len());
        }
    }

    fn send_train(&mut self, port: PortId, bytes: &[u8], segment_bytes: usize) {
        let socket = &self.far[port.index()];
        set_segment(socket, segment_bytes);
        let sent = socket.send_to(bytes, self.near(port));
        set_segment(socket, 0);
        assert_eq!(sent.expect("loopback takes trains"), bytes.len());
    }

    fn collect(&mut self, port: PortId, expected: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        /// Waits of 1 ms in vain.
        const WAITS_MAX: usize = 5;
        let mut collected = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..WAITS_MAX {
            while let Ok((bytes, source)) = self.far[port.index()].recv_from(&mut buffer) {
                collected.push((source, buffer[..bytes].to_vec()));
            }
            if collected.len() >= expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        collected
    }
}

/// Has the kernel cut what is sent; 0 for no more.
pub(crate) fn set_segment(socket: &UdpSocket, segment_bytes: usize) {
    let value = segment_bytes as libc::c_int;
    // SAFETY: the value lives across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "UDP_SEGMENT: {}", io::Error::last_os_error());
}

const SINGLE: (&str, usize) = ("burst=4", 4);
/// The specs below give `batch=8` themselves.
const BATCH: (&str, usize) = ("", 8);

mod plain {
    use super::*;
    laneway_testkit::datagram_conformance!(|| LoopbackRig::new("socket", SINGLE, V4));
}

mod plain_v6 {
    use super::*;
    laneway_testkit::datagram_conformance!(|| LoopbackRig::new("socket", SINGLE, V6));
}

mod batch {
    use super::*;
    laneway_testkit::datagram_conformance!(|| LoopbackRig::new("socket:batch=8", BATCH, V4));
}

mod gso {
    use super::*;
    laneway_testkit::datagram_conformance!(|| LoopbackRig::new("socket:gso", SINGLE, V4));
}

mod gro {
    use super::*;
    laneway_testkit::datagram_conformance!(|| LoopbackRig::new("socket:gro", SINGLE, V4));
}

mod all_of_it {
    use super::*;
    laneway_testkit::datagram_conformance!(|| {
        LoopbackRig::new("socket:batch=8,gso,gro,timestamps", BATCH, V4)
    });
}

mod all_of_it_v6 {
    use super::*;
    laneway_testkit::datagram_conformance!(|| {
        LoopbackRig::new("socket:batch=8,gso,gro,timestamps", BATCH, V6)
    });
}

mod wildcard {
    use super::*;
    laneway_testkit::datagram_conformance!(|| {
        LoopbackRig::new("socket:batch=8,gso,gro", BATCH, V4).map(|rig| rig.wildcard(OTHER_V4))
    });
}

mod wildcard_v6 {
    use super::*;
    laneway_testkit::datagram_conformance!(|| {
        LoopbackRig::new("socket:timestamps", SINGLE, V6).map(|rig| rig.wildcard(V6))
    });
}
