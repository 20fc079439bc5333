//! What the tests of this crate and of the `xdp` lane share: a private network namespace per test,
//! a virtual cable in it, and the kernel half of `bpf/test_count.bpf.c`.
//!
//! The namespace belongs to a thread and has no name, so it disappears with the thread (or the
//! process, however that ends) and takes the cable with it: there is nothing to clean up.

use laneway_core::{ConfigValue, KernelHalf, RecordStream};
use std::{
    fs, io,
    io::Write,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    panic,
    process::Command,
    thread,
    time::Duration,
};

/// Attempts to send a frame, a millisecond apart.
const SENDS_MAX: usize = 30_000;
/// Bytes of `struct record` in `bpf/test_count.bpf.c`.
pub(crate) const RECORD_BYTES: usize = 32;

/// `struct record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) n: u64,
    pub(crate) meta: u64,
    pub(crate) len: u32,
    pub(crate) cpu: u32,
    pub(crate) tag: u64,
}

impl Record {
    pub(crate) fn read(bytes: &[u8]) -> Record {
        let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        Record { n: u64_at(0), meta: u64_at(8), len: u32_at(16), cpu: u32_at(20), tag: u64_at(24) }
    }
}

/// The counting half with rings of `ring_bytes` and the given constants.
pub(crate) fn half(object: &'static [u8], ring_bytes: u32, config: Vec<ConfigValue>) -> KernelHalf {
    KernelHalf {
        name: "test_count",
        object,
        program: "count",
        config,
        entries: Vec::new(),
        map_sizes: Vec::new(),
        records: Some(RecordStream {
            map: "records",
            record_bytes: RECORD_BYTES,
            ring_bytes,
            wanted_map: "wanted",
        }),
        drops_map: Some("drops"),
        seen_map: Some("seen"),
    }
}

pub(crate) fn verdict(action: u32) -> ConfigValue {
    ConfigValue { name: "verdict", bytes: action.to_ne_bytes().to_vec() }
}

/// A minimal Ethernet frame of an experimental type, to a MAC that no interface has.
pub(crate) fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 0x99, 0x02, 0, 0, 0, 0, 0x01, 0x88, 0xb5];
    frame.resize(len, 0xa5);
    frame
}

/// Why tests that load programs cannot run here; printed on the error stream, which the test harness
/// does not swallow.
pub(crate) fn skipped() -> bool {
    // SAFETY: reads the process's own user id.
    if unsafe { libc::geteuid() } == 0 {
        return false;
    }
    say("skipped: loading eBPF and making network namespaces needs root");
    true
}

pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Runs `test` on a thread with a network namespace of its own.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if skipped() {
        return;
    }
    let run = thread::spawn(|| {
        // SAFETY: changes only this thread's namespace; the thread shares nothing that depends
        // on it.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "unshare");
        // Silence: no neighbour discovery between the counted frames.
        let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        ip("link set lo up");
        test();
    });
    if let Err(failure) = run.join() {
        panic::resume_unwind(failure);
    }
}

/// Runs `ip` in this thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is here");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A cable with the ends `left` and `right`, both up, in this thread's namespace.
pub(crate) fn cable(left: &str, right: &str) {
    ip(&format!("link add {left} type veth peer name {right}"));
    ip(&format!("link set {left} up"));
    ip(&format!("link set {right} up"));
}

pub(crate) fn ifindex(interface: &str) -> u32 {
    let path = std::ffi::CString::new(interface).unwrap();
    // SAFETY: a C string, live during the call.
    unsafe { libc::if_nametoindex(path.as_ptr()) }
}

/// Sends raw frames out of an interface.
pub(crate) struct Sender(OwnedFd);

impl Sender {
    pub(crate) fn on(interface: &str) -> Sender {
        // Protocol 0: receive nothing.
        Sender::bound(interface, 0)
    }

    fn bound(interface: &str, protocol: u16) -> Sender {
        // SAFETY: plain system call without memory.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: new and owned by nothing else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero is a valid link-layer address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = ifindex(interface) as i32;
        // SAFETY: the address is live and as long as stated.
        let code = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        assert_eq!(code, 0, "{}", io::Error::last_os_error());
        Sender(fd)
    }

    /// Sends one frame; waits while the cable is full because no thread has had time to empty it.
    pub(crate) fn send(&self, frame: &[u8]) {
        for _ in 0..SENDS_MAX {
            // SAFETY: reads exactly the frame's bytes.
            let sent =
                unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            if sent == frame.len() as isize {
                return;
            }
            let error = io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "{error}");
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the cable does not drain");
    }
}

/// Sees what arrives on an interface, not what leaves it.
pub(crate) struct Receiver(OwnedFd);

impl Receiver {
    pub(crate) fn on(interface: &str) -> Receiver {
        let Sender(fd) = Sender::bound(interface, (libc::ETH_P_ALL as u16).to_be());
        let patience = libc::timeval { tv_sec: 20, tv_usec: 0 };
        let one: libc::c_int = 1;
        option(&fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience);
        option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &one);
        Receiver(fd)
    }

    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut frame = vec![0; 2048];
        // SAFETY: writes at most the vector's length.
        let len =
            unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        assert!(len >= 0, "{}", io::Error::last_os_error());
        frame.truncate(len as usize);
        frame
    }
}

fn option<T>(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) {
    // SAFETY: reads exactly the value's bytes.
    let code = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            size_of::<T>() as u32,
        )
    };
    assert_eq!(code, 0, "{}", io::Error::last_os_error());
}
