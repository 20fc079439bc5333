//! The tests' world: cables between two namespaces, or one namespace for taps, and plain sockets at
//! the far ends. The thread that makes a world stands in the near namespace until the world is
//! dropped, which removes everything, also during a panic.
//!
//! DPDK exists once per process, so only one world at a time does: the others wait.

use laneway_core::LaneError;
use laneway_dpdk::{DpdkLane, DpdkPorts};
use laneway_linux::Interface;
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, wait_for_carrier};
use laneway_spec::LaneSpec;
use laneway_testkit::Disturbance;
use std::{
    ffi::CString,
    fs::{self, File},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Names of the near ends, by port.
pub(crate) const NEAR: [&str; 3] = ["near0", "near1", "near2"];
const FAR: [&str; 3] = ["far0", "far1", "far2"];
/// Longest wait for frames that should be at a far end: a busy machine delivers late.
const RECEIVE_WAIT: Duration = Duration::from_secs(30);
/// Longest wait for those that may be on their way, or need a push of the lane's.
const COLLECT_WAIT: Duration = Duration::from_millis(50);
/// Tries to send a frame that the cable's queue had no room for, a millisecond apart: the thread that empties
/// it may have lost its CPU.
const SEND_TRIES: usize = 30_000;
const FRAME_BYTES_MAX: usize = 65_536;

static TURN: Mutex<()> = Mutex::new(());

/// The sole use of DPDK in this process, until dropped.
pub(crate) struct Alone(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Alone {
    /// Waits for its turn, or says why DPDK cannot be used here.
    pub(crate) fn new() -> Result<Alone, String> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let null = spec("dpdk:net_null,no-huge");
        match DpdkLane::open(&null, &["null"], false) {
            Ok(_) => Ok(Alone(turn)),
            // DPDK, or the driver, is not installed; anything else is a fault to be seen.
            Err(e @ LaneError::NotFound { .. }) => Err(e.to_string()),
            Err(e) if !DpdkLane::is_built() => Err(e.to_string()),
            Err(e) => panic!("{e}"),
        }
    }
}

pub(crate) fn spec(text: &str) -> LaneSpec {
    text.parse().expect("well formed")
}

/// Where the far ends are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// At the other ends of cables.
    Cables,
    /// On the interfaces that the lane itself creates.
    Taps,
}

pub(crate) struct World {
    // Dropped first: a namespace that a thread stands in would outlive its removal.
    _home: Home,
    ends: Ends,
    sockets: Vec<OwnedFd>,
    /// By port; none where one was removed.
    cables: Vec<Option<VethPair>>,
    near: Namespace,
    far: Namespace,
    _alone: Alone,
}

/// The namespace that the thread left; dropping it returns there.
struct Home(File);

impl Drop for Home {
    fn drop(&mut self) {
        enter(&self.0).expect("the thread was there before");
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
    /// Silent cables, or the reason why there can be none.
    pub(crate) fn cables(cables: usize) -> Result<World, String> {
        World::new(cables, Ends::Cables)
    }

    /// A namespace for taps.
    pub(crate) fn taps() -> Result<World, String> {
        World::new(0, Ends::Taps)
    }

    fn new(cables: usize, ends: Ends) -> Result<World, String> {
        laneway_netns::can_create().map_err(|e| e.to_string())?;
        let alone = Alone::new()?;
        let near = Namespace::create("dpdk-near").map_err(|e| e.to_string())?;
        let far = Namespace::create("dpdk-far").map_err(|e| e.to_string())?;
        let cables = (0..cables).map(|port| Some(lay_cable(&near, &far, port))).collect();
        let home = Home(File::open("/proc/thread-self/ns/net").expect("Linux has namespaces"));
        enter(&File::open(near.path()).expect("just made")).expect("root may enter it");
        // Taps come and go: none is to speak of its own accord.
        let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        Ok(World { _home: home, ends, sockets: Vec::new(), cables, near, far, _alone: alone })
    }

    /// Opens the lane on the first `ports` near ends, and the far ends' sockets anew, so that nothing
    /// received before is left in them.
    pub(crate) fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<DpdkLane, LaneError> {
        self.prepare(ports);
        let lane = DpdkLane::open(spec, &NEAR[..ports], false)?;
        self.listen_on_taps(ports);
        Ok(lane)
    }

    /// As [`open`](Self::open), for several workers.
    pub(crate) fn open_shared(
        &mut self,
        spec: &LaneSpec,
        ports: usize,
        workers: usize,
    ) -> Result<DpdkPorts, LaneError> {
        self.prepare(ports);
        let shared = DpdkPorts::open(spec, &NEAR[..ports], false, workers)?;
        self.listen_on_taps(ports);
        Ok(shared)
    }

    fn prepare(&mut self, ports: usize) {
        self.sockets.clear();
        for port in 0..self.cables.len() {
            if self.cables[port].is_none() {
                self.cables[port] = Some(lay_cable(&self.near, &self.far, port));
            }
        }
        if self.ends == Ends::Cables {
            let far = &self.far;
            self.sockets = far
                .enter(|| FAR[..ports].iter().map(|name| packet_socket(name)).collect())
                .expect("the far namespace lives as long as the world");
        }
    }

    fn listen_on_taps(&mut self, ports: usize) {
        if self.ends == Ends::Taps {
            self.sockets = NEAR[..ports].iter().map(|name| packet_socket(name)).collect();
        }
    }

    /// Does this to the near interface of `port`.
    pub(crate) fn disturb(&mut self, port: usize, how: Disturbance) {
        let name = NEAR[port];
        match how {
            Disturbance::Remove if self.ends == Ends::Cables => self.cables[port] = None,
            Disturbance::Remove => self.ip(&["link", "del", name]),
            Disturbance::Down => self.ip(&["link", "set", "dev", name, "down"]),
            Disturbance::Up => {
                self.ip(&["link", "set", "dev", name, "up"]);
                if self.ends == Ends::Cables {
                    let up = self.near.enter(|| wait_for_carrier(name));
                    up.and_then(|carrier| carrier).unwrap_or_else(|e| panic!("{e}"));
                }
            }
            Disturbance::Mtu(bytes) => {
                self.ip(&["link", "set", "dev", name, "mtu", &bytes.to_string()]);
            }
        }
    }

    /// Gives both ends of a cable this MTU.
    pub(crate) fn stretch(&self, port: usize, mtu: usize) {
        let mtu = mtu.to_string();
        self.ip(&["link", "set", "dev", NEAR[port], "mtu", &mtu]);
        let far =
            self.far.command("ip").args(["link", "set", "dev", FAR[port], "mtu", &mtu]).status();
        assert!(far.expect("laneway-netns needs it as well").success());
    }

    /// Runs `ip` in the near namespace.
    pub(crate) fn ip(&self, args: &[&str]) {
        let ran = self.near.command("ip").args(args).output();
        let ran = ran.expect("laneway-netns needs it as well");
        assert!(ran.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// How the lane is refused to a thread without capabilities; nothing if it opens.
    pub(crate) fn open_unprivileged(&self, spec: &LaneSpec) -> Option<LaneError> {
        // Capabilities belong to the thread: this one gives its own up and ends.
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                give_up_capabilities();
                DpdkLane::open(spec, &NEAR[..1], false).err()
            });
            opening.join().expect("opening does not panic")
        })
    }

    /// Sends frames from the far end of `port`.
    pub(crate) fn inject(&self, port: usize, frames: &[Vec<u8>]) {
        let fd = self.sockets[port].as_raw_fd();
        for frame in frames {
            let sent = (0..SEND_TRIES).any(|_| {
                // SAFETY: the frame is borrowed for the call.
                let sent = unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), 0) };
                if sent < 0 {
                    let e = io::Error::last_os_error();
                    // net_tap interrupts its process by signals.
                    let again = [Some(libc::ENOBUFS), Some(libc::EINTR)];
                    assert!(again.contains(&e.raw_os_error()), "{e}");
                    std::thread::sleep(Duration::from_millis(1));
                }
                sent >= 0
            });
            assert!(sent, "the cable's queue stays full");
        }
    }

    /// What the far end of `port` received, waiting patiently for `expected` frames.
    pub(crate) fn receive(&self, port: usize, expected: usize) -> Vec<Vec<u8>> {
        self.take(port, expected, RECEIVE_WAIT)
    }

    /// As [`receive`](Self::receive), for a rig: waits a moment.
    pub(crate) fn collect(&self, port: usize, expected: usize) -> Vec<Vec<u8>> {
        self.take(port, expected, COLLECT_WAIT)
    }

    fn take(&self, port: usize, expected: usize, longest: Duration) -> Vec<Vec<u8>> {
        let fd = self.sockets[port].as_raw_fd();
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
            let polled = unsafe { libc::poll(&mut wait, 1, longest.as_millis() as i32) };
            // net_tap's signals are no reason to come back without a frame.
            let is_interrupted = || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            if polled == 0 || (polled < 0 && !is_interrupted()) {
                return frames;
            }
        }
    }
}

/// True when an interface of this thread's namespace is in promiscuous mode as an administrator sets it.
pub(crate) fn is_promiscuous(interface: &str) -> bool {
    let found = Interface::find("test", interface).expect("the cable is there");
    found.found().flags & libc::IFF_PROMISC as u32 != 0
}

fn give_up_capabilities() {
    // _LINUX_CAPABILITY_VERSION_3, then the thread itself.
    let header: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    // SAFETY: capset reads a header of two words and, in this version, six words of sets.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0, "giving up privileges needs none");
}

fn lay_cable(near: &Namespace, far: &Namespace, port: usize) -> VethPair {
    let end = |side: u8| VethEnd {
        mac: Mac([0x02, 0x4c, 0x57, 0x20, side, port as u8]),
        addresses: Vec::new(),
        ..VethOptions::default().a
    };
    let options = VethOptions { a: end(0), b: end(1), ..VethOptions::default() };
    VethPair::create(near, NEAR[port], far, FAR[port], &options)
        .expect("a machine with namespaces has veth")
}

/// A raw socket on one interface of the current namespace, blind to what it sends itself.
fn packet_socket(interface: &str) -> OwnedFd {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers. Protocol 0: it receives nothing before it is bound to its interface.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: just given to us.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let set = |level, name, value: i32| {
        // SAFETY: `value` is an i32 on this stack frame.
        let failed = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), 4) };
        assert_eq!(failed, 0, "{}", io::Error::last_os_error());
    };
    set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
    set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
    let name = CString::new(interface).expect("no zero in it");
    // SAFETY: a terminated string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the address is ours and the length is its.
    let failed =
        unsafe { libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32) };
    assert_eq!(failed, 0, "{interface}: {}", io::Error::last_os_error());
    socket
}
