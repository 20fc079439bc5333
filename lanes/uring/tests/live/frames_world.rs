//! The world of the frame tests: three cables between a near namespace, where the lane is opened, and
//! a far one, where plain packet sockets of the test's own send and receive.
//!
//! The far end shares no code with the lane. Everything disappears when the rig is dropped.

use crate::world::Inside;
use laneway_core::{FrameLane, LaneError, LaneSpec, PortId};
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create, wait_for_carrier};
use laneway_testkit::Disturbance;
use laneway_uring::{OpenOptions, UringFrames};
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

pub(crate) const PORTS_MAX: usize = 3;
pub(crate) const NEAR: [&str; PORTS_MAX] = ["near0", "near1", "near2"];
const FAR: [&str; PORTS_MAX] = ["far0", "far1", "far2"];
/// Attempts to send a frame that finds a queue full.
const SENDS_MAX: usize = 100_000;

/// Cables and their far ends.
pub(crate) struct World {
    pub(crate) far_ends: Vec<FarEnd>,
    /// By port; none where one was removed.
    pub(crate) cables: Vec<Option<VethPair>>,
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
}

impl World {
    /// Builds it, or says why that cannot be done here.
    pub(crate) fn new() -> Result<World, String> {
        can_create().map_err(|e| e.to_string())?;
        World::build().map_err(|e| panic!("{e}"))
    }

    fn build() -> Result<World, laneway_netns::Error> {
        let (near, far) = (Namespace::create("uring-near")?, Namespace::create("uring-far")?);
        let cables = (0..PORTS_MAX).map(|port| lay_cable(&near, &far, port).map(Some));
        let cables = cables.collect::<Result<_, _>>()?;
        let far_ends = open_far_ends(&far)?;
        Ok(World { far_ends, cables, near, far })
    }

    /// Opens the lane on the first `ports` near ends, with far ends that have received nothing.
    pub(crate) fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<UringFrames, LaneError> {
        for port in 0..PORTS_MAX {
            if self.cables[port].is_none() {
                let cable = lay_cable(&self.near, &self.far, port);
                self.cables[port] = Some(cable.unwrap_or_else(|e| panic!("{e}")));
            }
        }
        self.far_ends = open_far_ends(&self.far).expect("the far namespace is there");
        self.open_on(spec, &NEAR[..ports], OpenOptions::default())
    }

    /// Does this to a near end.
    pub(crate) fn disturb(&mut self, port: PortId, how: Disturbance) {
        let name = NEAR[port.index()];
        match how {
            Disturbance::Remove => self.cables[port.index()] = None,
            Disturbance::Down => self.ip(&["link", "set", "dev", name, "down"]),
            Disturbance::Up => {
                self.ip(&["link", "set", "dev", name, "up"]);
                let up = self.near.enter(|| wait_for_carrier(name));
                up.and_then(|carrier| carrier).unwrap_or_else(|e| panic!("{e}"));
            }
            Disturbance::Mtu(bytes) => {
                self.ip(&["link", "set", "dev", name, "mtu", &bytes.to_string()]);
            }
        }
    }

    fn ip(&self, arguments: &[&str]) {
        let status = self.near.command("ip").args(arguments).status().expect("ip runs");
        assert!(status.success(), "ip {arguments:?}");
    }

    /// Opens the lane on named interfaces of the near namespace.
    pub(crate) fn open_on(
        &self,
        spec: &LaneSpec,
        interfaces: &[&str],
        options: OpenOptions,
    ) -> Result<UringFrames, LaneError> {
        let _inside = Inside::enter(&self.near);
        UringFrames::open(spec, interfaces, options)
    }
}

fn lay_cable(
    near: &Namespace,
    far: &Namespace,
    port: usize,
) -> Result<VethPair, laneway_netns::Error> {
    let end = |side: u8| VethEnd {
        mac: Mac([0x02, 0x4c, 0x57, 0x20, side, port as u8]),
        addresses: Vec::new(),
        ..VethOptions::default().a
    };
    let options = VethOptions { a: end(0), b: end(1), ..VethOptions::default() };
    VethPair::create(near, NEAR[port], far, FAR[port], &options)
}

fn open_far_ends(far: &Namespace) -> Result<Vec<FarEnd>, laneway_netns::Error> {
    far.enter(|| FAR.iter().map(|name| FarEnd::open(name)).collect())
}

/// A plain packet socket.
pub(crate) struct FarEnd {
    socket: OwnedFd,
}

impl FarEnd {
    fn open(name: &str) -> FarEnd {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        assert!(fd >= 0, "socket: {}", io::Error::last_os_error());
        // SAFETY: just made, nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let set = |level, name, value: libc::c_int| {
            // SAFETY: the value lives across the call.
            let result = unsafe {
                libc::setsockopt(
                    fd,
                    level,
                    name,
                    (&raw const value).cast(),
                    size_of_val(&value) as u32,
                )
            };
            assert_eq!(result, 0, "setsockopt: {}", io::Error::last_os_error());
        };
        set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
        let c_name = std::ffi::CString::new(name).expect("no zero in it");
        // SAFETY: a terminated string that lives across the call.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        assert!(index > 0, "no interface {name}");
        // SAFETY: made of integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        // SAFETY: the address lives across the call and this is its size.
        let result =
            unsafe { libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32) };
        assert_eq!(result, 0, "bind: {}", io::Error::last_os_error());
        FarEnd { socket }
    }

    /// Sends in order; a full queue on the way is waited out.
    pub(crate) fn send(&self, frames: &[Vec<u8>]) {
        for frame in frames {
            let sent = (0..SENDS_MAX).any(|_| {
                let fd = self.socket.as_raw_fd();
                // SAFETY: the frame lives across the call.
                let sent = unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), 0) };
                if sent < 0 {
                    let error = io::Error::last_os_error();
                    let full = matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN));
                    assert!(full, "send of {} bytes: {error}", frame.len());
                    std::thread::yield_now();
                }
                sent >= 0
            });
            assert!(sent, "the cable does not drain");
        }
    }

    /// What came since the last call; waits a moment for `expected` frames.
    pub(crate) fn receive(&self, expected: usize) -> Vec<Vec<u8>> {
        /// Waits of 5 ms in vain.
        const WAITS_MAX: usize = 10;
        let mut frames = Vec::new();
        let mut buffer = vec![0u8; 1 << 16];
        for _ in 0..WAITS_MAX {
            loop {
                let (fd, at) = (self.socket.as_raw_fd(), buffer.as_mut_ptr().cast());
                // SAFETY: the buffer lives across the call and is this long.
                let bytes = unsafe { libc::recv(fd, at, buffer.len(), 0) };
                let Ok(bytes) = usize::try_from(bytes) else { break };
                frames.push(buffer[..bytes].to_vec());
            }
            if frames.len() >= expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        frames
    }
}

/// The frames that `lane` receives on `port` until there are `expected` or patience ends, each with
/// its wire length and stamp.
pub(crate) fn receive_all(
    lane: &mut UringFrames,
    port: PortId,
    expected: usize,
) -> Vec<(Vec<u8>, u32, u64)> {
    const EMPTY_MAX: usize = 20;
    let mut received = Vec::new();
    let mut empty = 0;
    while received.len() < expected && empty < EMPTY_MAX {
        let burst = lane.receive(port).expect("the lane receives");
        for i in 0..burst.len() {
            let frame = burst.frame(i);
            received.push((frame.bytes.to_vec(), frame.wire_len, frame.ts_ns));
        }
        if burst.is_empty() {
            empty += 1;
            lane.wait(Duration::from_millis(20)).expect("the lane waits");
        }
        lane.settle(port).expect("the lane settles");
    }
    received
}

/// Takes every capability from this thread, for good.
pub(crate) fn give_up_capabilities() {
    // _LINUX_CAPABILITY_VERSION_3, then the thread itself.
    let header: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    // SAFETY: capset reads a header of two words and, in this version, six words of sets.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0, "giving up privileges needs none");
}
