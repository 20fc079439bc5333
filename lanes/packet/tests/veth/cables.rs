//! Cables between a near namespace, where a lane is opened, and a far one, where plain packet sockets of the test's own
//! send and receive. Shared by the tests of every lane that takes frames from interfaces (`#[path]`).
//!
//! The far end shares no code with any lane. Everything disappears when the cables are dropped.

use laneway_core::PortId;
use laneway_netns::{Mac, Namespace, VethOptions, VethPair, can_create, wait_for_carrier};
use laneway_testkit::Disturbance;
use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

/// Most cables of a test.
pub(crate) const PORTS_MAX: usize = 3;
/// Names of the near ends, by port.
pub(crate) const NEAR: [&str; PORTS_MAX] = ["near0", "near1", "near2"];
pub(crate) const FAR: [&str; PORTS_MAX] = ["far0", "far1", "far2"];
/// Attempts to send a frame that finds a queue full, a millisecond apart: the thread that empties it may have lost its
/// CPU.
const SENDS_MAX: usize = 30_000;
/// Longest wait for a frame that should be at a far end, ms: a busy machine delivers late.
const RECEIVE_WAIT_MS: i32 = 30_000;
/// Longest wait for one that may be on its way, or need a push of the lane's, ms.
const COLLECT_WAIT_MS: i32 = 50;
const FRAME_BYTES_MAX: usize = 1 << 16;

/// Cables and their far ends.
pub(crate) struct Cables {
    pub(crate) far_ends: Vec<FarEnd>,
    /// By port; none where one was removed.
    cables: Vec<Option<VethPair>>,
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
    options: VethOptions,
}

/// `ip link set` of an end in its namespace.
#[track_caller]
pub(crate) fn set_link(room: &Namespace, name: &str, what: &[&str]) {
    let status = room.command("ip").args(["link", "set", name]).args(what).status();
    assert!(status.is_ok_and(|status| status.success()), "ip link set {name} {what:?}");
}

impl Cables {
    /// Lays `ports` cables, or says why that cannot be done here. The last byte of a MAC address is the port's.
    pub(crate) fn new(ports: usize, options: VethOptions) -> Result<Cables, String> {
        can_create().map_err(|e| e.to_string())?;
        let namespace = |end: &str| {
            let lane = env!("CARGO_PKG_NAME").trim_start_matches("laneway-");
            Namespace::create(&format!("{lane}-{end}")).unwrap_or_else(|e| panic!("{e}"))
        };
        let (near, far) = (namespace("near"), namespace("far"));
        let cables = (0..ports).map(|_| None).collect();
        let mut laid = Cables { far_ends: Vec::new(), cables, near, far, options };
        laid.refresh();
        Ok(laid)
    }

    /// Opens the far ends anew, so that nothing received before is left in them. Cables that were removed are laid
    /// again.
    pub(crate) fn refresh(&mut self) {
        self.far_ends.clear();
        let ports = self.cables.len();
        for (port, cable) in self.cables.iter_mut().enumerate() {
            cable.get_or_insert_with(|| {
                let mut options = self.options.clone();
                for end in [&mut options.a, &mut options.b] {
                    end.mac.0[5] = port as u8;
                }
                VethPair::create(&self.near, NEAR[port], &self.far, FAR[port], &options)
                    .expect("a machine with namespaces has veth")
            });
        }
        let open = || FAR[..ports].iter().map(|name| FarEnd::open(name)).collect();
        self.far_ends = self.far.enter(open).expect("the far namespace is there");
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

    /// Runs `ip` in the near namespace.
    pub(crate) fn ip(&self, arguments: &[&str]) {
        let ran = self.near.command("ip").args(arguments).output().expect("ip runs");
        assert!(ran.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// Options of cables without IP addresses; the fifth byte of their MAC addresses tells the ends apart.
pub(crate) fn silent() -> VethOptions {
    let mut options = VethOptions::default();
    for (side, end) in [&mut options.a, &mut options.b].into_iter().enumerate() {
        end.mac = Mac([0x02, 0x4c, 0x57, 0x10, side as u8, 0]);
        end.addresses.clear();
    }
    options
}

/// This thread, in another network namespace until dropped. A lane is not `Send`, so it cannot be opened on a thread of
/// its own.
pub(crate) struct Inside {
    home: File,
}

impl Inside {
    pub(crate) fn enter(namespace: &Namespace) -> Inside {
        let home = File::open("/proc/thread-self/ns/net").expect("Linux has namespaces");
        let there = File::open(namespace.path()).expect("the namespace is there");
        set_namespace(&there);
        Inside { home }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        set_namespace(&self.home);
    }
}

fn set_namespace(namespace: &File) {
    // SAFETY: no pointers; only this thread moves.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "setns: {}", io::Error::last_os_error());
}

/// Takes every capability from this thread, for good.
pub(crate) fn give_up_capabilities() {
    /// `_LINUX_CAPABILITY_VERSION_3`, then the thread itself.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    // SAFETY: capset reads a header of two words and, in this version, six words of sets.
    let result = unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0, "giving up privileges needs none");
}

/// A plain packet socket on one interface, blind to what it sends itself.
pub(crate) struct FarEnd {
    socket: OwnedFd,
}

impl FarEnd {
    /// On an interface of the current namespace.
    pub(crate) fn open(interface: &str) -> FarEnd {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers. Protocol 0: it receives nothing before it is bound to its interface.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        assert!(fd >= 0, "socket: {}", io::Error::last_os_error());
        // SAFETY: just made, nothing else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let set = |level, name, value: libc::c_int| {
            let (value, bytes) = ((&raw const value).cast(), size_of_val(&value) as u32);
            // SAFETY: the value lives across the call.
            let result = unsafe { libc::setsockopt(fd, level, name, value, bytes) };
            assert_eq!(result, 0, "setsockopt: {}", io::Error::last_os_error());
        };
        set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
        let name = CString::new(interface).expect("no zero in it");
        // SAFETY: a terminated string that lives across the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        assert!(index > 0, "no interface {interface}");
        // SAFETY: made of integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        let bytes = size_of_val(&address) as u32;
        // SAFETY: the address lives across the call and this is its size.
        let result = unsafe { libc::bind(fd, (&raw const address).cast(), bytes) };
        assert_eq!(result, 0, "bind to {interface}: {}", io::Error::last_os_error());
        FarEnd { socket }
    }

    /// Sends in order; a full queue on the way is waited out.
    pub(crate) fn send(&self, frames: &[Vec<u8>]) {
        let fd = self.socket.as_raw_fd();
        for frame in frames {
            let sent = (0..SENDS_MAX).any(|_| {
                // SAFETY: the frame lives across the call.
                let sent = unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), 0) };
                if sent < 0 {
                    let error = io::Error::last_os_error();
                    // net_tap interrupts its process by signals.
                    let again = [libc::ENOBUFS, libc::EAGAIN, libc::EINTR].map(Some);
                    let may_retry = again.contains(&error.raw_os_error());
                    assert!(may_retry, "send of {} bytes: {error}", frame.len());
                    std::thread::sleep(Duration::from_millis(1));
                }
                sent >= 0
            });
            assert!(sent, "the cable does not drain");
        }
    }

    /// What arrived since the last call; waits patiently for `expected` frames.
    pub(crate) fn receive(&self, expected: usize) -> Vec<Vec<u8>> {
        self.take(expected, RECEIVE_WAIT_MS)
    }

    /// As [`receive`](Self::receive), for a rig: waits a moment.
    pub(crate) fn collect(&self, expected: usize) -> Vec<Vec<u8>> {
        self.take(expected, COLLECT_WAIT_MS)
    }

    fn take(&self, expected: usize, longest_ms: i32) -> Vec<Vec<u8>> {
        let fd = self.socket.as_raw_fd();
        let mut frames = Vec::new();
        let mut buffer = vec![0u8; FRAME_BYTES_MAX];
        loop {
            // SAFETY: the buffer lives across the call and is this long.
            let bytes = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
            if let Ok(bytes) = usize::try_from(bytes) {
                frames.push(buffer[..bytes].to_vec());
                continue;
            }
            let mut ready = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let wait_ms = if frames.len() < expected { longest_ms } else { 0 };
            // SAFETY: one descriptor, ours, that lives across the call.
            let polled = unsafe { libc::poll(&raw mut ready, 1, wait_ms) };
            // net_tap's signals are no reason to come back without a frame.
            let is_interrupted = || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            if polled == 0 || (polled < 0 && !is_interrupted()) {
                return frames;
            }
        }
    }
}
