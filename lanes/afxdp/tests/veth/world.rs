//! The tests' world: up to three cables between two namespaces, raw sockets at the far ends. The
//! thread that makes a world stands in the near namespace until the world is dropped, which removes
//! everything, also during a panic.

use laneway_netns::{Namespace, VethEnd, VethOptions, VethPair, wait_for_carrier};
use laneway_testkit::Disturbance;
use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process::Command,
    ptr,
    time::Duration,
};

/// Names of the near ends, by port.
pub(crate) const NEAR: [&str; 3] = ["near0", "near1", "near2"];
const FAR: [&str; 3] = ["far0", "far1", "far2"];
/// MAC addresses of port 0's ends; the last byte counts the ports.
pub(crate) const NEAR_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 1, 0, 0];
const FAR_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 2, 0, 0];

/// Longest wait for frames at a far end.
const COLLECT_WAIT: Duration = Duration::from_millis(50);
/// Tries to send a frame that the cable's queue had no room for.
const SEND_TRIES: usize = 10_000;
const FRAME_BYTES_MAX: usize = 65_536;

pub(crate) struct World {
    // Dropped first: a namespace that a thread stands in would outlive its removal.
    _home: OwnedNamespace,
    far_sockets: Vec<OwnedFd>,
    /// By port; none where one was removed.
    cables: Vec<Option<VethPair>>,
    near: Namespace,
    far: Namespace,
    options: VethOptions,
}

/// The namespace that the thread came from; dropping it goes back there.
struct OwnedNamespace(File);

impl Drop for OwnedNamespace {
    fn drop(&mut self) {
        enter(&self.0).expect("the thread came from there");
    }
}

fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: a descriptor that is open during the call; only this thread moves.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl World {
    /// `cables` silent cables of this MTU and number of queues, or the reason why there can be none.
    pub(crate) fn new(cables: usize, mtu_bytes: u32, queues: u32) -> Result<World, String> {
        World::with_addresses(cables, mtu_bytes, queues, [&[], &[]])
    }

    /// Likewise, with IP addresses at the near and the far end.
    pub(crate) fn with_addresses(
        cables: usize,
        mtu_bytes: u32,
        queues: u32,
        addresses: [&[&str]; 2],
    ) -> Result<World, String> {
        laneway_netns::can_create().map_err(|e| e.to_string())?;
        let near = Namespace::create("afxdp-near").map_err(|e| e.to_string())?;
        let far = Namespace::create("afxdp-far").map_err(|e| e.to_string())?;
        let end = |mac: [u8; 6], addresses: &[&str]| {
            VethEnd::new(laneway_netns::Mac(mac), addresses).expect("addresses of the test")
        };
        let (a, b) = (end(NEAR_MAC, addresses[0]), end(FAR_MAC, addresses[1]));
        let options = VethOptions { mtu_bytes, queues, a, b };
        let cables = (0..cables).map(|port| Some(lay_cable(&near, &far, port, &options))).collect();
        let home = OwnedNamespace(
            File::open("/proc/thread-self/ns/net").expect("every thread has a namespace"),
        );
        enter(&File::open(near.path()).expect("just made")).expect("root may enter it");
        let mut world = World { _home: home, far_sockets: Vec::new(), cables, near, far, options };
        world.fresh_sockets();
        Ok(world)
    }

    /// Opens the far ends' sockets anew, so that nothing received before is left in them. Cables that
    /// were removed are laid again.
    pub(crate) fn fresh_sockets(&mut self) {
        self.far_sockets.clear();
        let ports = self.cables.len();
        for (port, cable) in self.cables.iter_mut().enumerate() {
            cable.get_or_insert_with(|| lay_cable(&self.near, &self.far, port, &self.options));
        }
        self.far_sockets = self
            .far
            .enter(|| (0..ports).map(|port| packet_socket(FAR[port])).collect::<Vec<_>>())
            .expect("the far namespace lives as long as the world");
    }

    /// Does this to a near end.
    pub(crate) fn disturb(&mut self, port: usize, how: Disturbance) {
        let name = NEAR[port];
        match how {
            Disturbance::Remove => self.cables[port] = None,
            Disturbance::Down => ip(&["link", "set", name, "down"]),
            Disturbance::Up => {
                ip(&["link", "set", name, "up"]);
                let up = self.near.enter(|| wait_for_carrier(name));
                up.expect("the near namespace is there").expect("the far end is up");
            }
            Disturbance::Mtu(bytes) => ip(&["link", "set", name, "mtu", &bytes.to_string()]),
        }
    }

    /// Sends frames from the far end of `port`.
    pub(crate) fn inject(&self, port: usize, frames: &[Vec<u8>]) {
        let fd = self.far_sockets[port].as_raw_fd();
        for frame in frames {
            let sent = (0..SEND_TRIES).any(|_| {
                // SAFETY: the frame is borrowed for the call.
                let sent = unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), 0) };
                if sent < 0 {
                    let e = io::Error::last_os_error();
                    assert_eq!(e.raw_os_error(), Some(libc::ENOBUFS), "{e}");
                    std::thread::yield_now();
                }
                sent >= 0
            });
            assert!(sent, "the cable's queue stays full");
        }
    }

    /// What the far end of `port` received, waiting for `expected` frames.
    pub(crate) fn collect(&self, port: usize, expected: usize) -> Vec<Vec<u8>> {
        let fd = self.far_sockets[port].as_raw_fd();
        let mut frames = Vec::new();
        let mut buffer = vec![0u8; FRAME_BYTES_MAX];
        loop {
            // SAFETY: the buffer is ours and the length is its.
            let got = unsafe {
                libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
            };
            if let Ok(bytes) = usize::try_from(got) {
                frames.push(buffer[..bytes].to_vec());
                continue;
            }
            if frames.len() >= expected {
                return frames;
            }
            let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor, ours.
            if unsafe { libc::poll(&mut wait, 1, COLLECT_WAIT.as_millis() as i32) } <= 0 {
                return frames;
            }
        }
    }
}

/// Runs `ip` where this thread stands: in the near namespace.
pub(crate) fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().expect("laneway-netns needs it as well");
    assert!(status.success(), "ip {args:?}");
}

/// Takes every capability from this thread, for good.
pub(crate) fn give_up_capabilities() {
    /// _LINUX_CAPABILITY_VERSION_3, then the thread itself.
    const HEADER: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    // SAFETY: capset reads a header of two words and, in this version, six words of sets.
    let result = unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0, "giving up privileges needs none");
}

fn lay_cable(near: &Namespace, far: &Namespace, port: usize, options: &VethOptions) -> VethPair {
    let mut options = options.clone();
    for end in [&mut options.a, &mut options.b] {
        end.mac.0[5] = port as u8;
    }
    VethPair::create(near, NEAR[port], far, FAR[port], &options)
        .expect("a machine with namespaces has veth")
}

/// A raw socket on one interface of the current namespace, blind to what it sends itself.
fn packet_socket(interface: &str) -> OwnedFd {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers. Protocol 0: it receives nothing before it is bound to its interface.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: just given to us.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let set = |level, name, value: i32| {
        let value = ptr::from_ref(&value).cast();
        // SAFETY: `value` is an i32 on this stack frame.
        let failed = unsafe { libc::setsockopt(fd, level, name, value, 4) };
        assert_eq!(failed, 0, "{}", io::Error::last_os_error());
    };
    set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
    set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
    let name = std::ffi::CString::new(interface).expect("no zero in it");
    // SAFETY: a C string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index as i32;
    let length = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address is ours and the length is its.
    let failed = unsafe { libc::bind(fd, ptr::from_ref(&address).cast(), length) };
    assert_eq!(failed, 0, "{}", io::Error::last_os_error());
    socket
}
