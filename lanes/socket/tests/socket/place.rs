//! Where a test runs: its privileges and its network namespace, both of which belong to the thread
//! and are given back when the guard is dropped.

use laneway_netns::{Namespace, can_create};
use std::{fs::File, io, os::fd::AsRawFd};

/// This thread, in another network namespace until dropped.
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
    // SAFETY: no pointers.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "setns: {}", io::Error::last_os_error());
}

/// A namespace with a loopback of many addresses, and this thread in it.
pub(crate) struct Loopback {
    _inside: Inside,
    _namespace: Namespace,
}

impl Loopback {
    /// `addresses` are given to the loopback interface besides its own.
    pub(crate) fn new(addresses: &[&str]) -> Result<Loopback, String> {
        can_create().map_err(|e| e.to_string())?;
        let namespace = Namespace::create("socket-lo").map_err(|e| e.to_string())?;
        run(&namespace, "ip", &["link", "set", "dev", "lo", "up"]);
        for address in addresses {
            run(&namespace, "ip", &["address", "add", address, "dev", "lo", "nodad"]);
        }
        let inside = Inside::enter(&namespace);
        Ok(Loopback { _inside: inside, _namespace: namespace })
    }
}

/// Runs a program in a namespace; it must succeed.
pub(crate) fn run(namespace: &Namespace, program: &str, arguments: &[&str]) {
    let status = namespace.command(program).args(arguments).status().expect("the program runs");
    assert!(status.success(), "{program} {}", arguments.join(" "));
}

/// This thread without its effective capabilities until dropped.
pub(crate) struct Powerless {
    before: [u32; 6],
}

/// _LINUX_CAPABILITY_VERSION_3, then the thread itself.
const CAP_HEADER: [u32; 2] = [0x2008_0522, 0];

impl Powerless {
    pub(crate) fn new() -> Powerless {
        let mut sets = [0u32; 6];
        // SAFETY: capget reads a header of two words and, in this version, writes six words.
        let result =
            unsafe { libc::syscall(libc::SYS_capget, CAP_HEADER.as_ptr(), sets.as_mut_ptr()) };
        assert_eq!(result, 0, "capget: {}", io::Error::last_os_error());
        // Two triples: effective, permitted, inheritable.
        let mut none = sets;
        (none[0], none[3]) = (0, 0);
        set_capabilities(&none);
        Powerless { before: sets }
    }
}

impl Drop for Powerless {
    fn drop(&mut self) {
        set_capabilities(&self.before);
    }
}

fn set_capabilities(sets: &[u32; 6]) {
    // SAFETY: capset reads a header of two words and, in this version, six words of sets.
    let result = unsafe { libc::syscall(libc::SYS_capset, CAP_HEADER.as_ptr(), sets.as_ptr()) };
    assert_eq!(result, 0, "capset: {}", io::Error::last_os_error());
}
