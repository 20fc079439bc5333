//! The world of the datagram and stream tests: one namespace with nothing but its loopback, where lane
//! and far ends live. It disappears when it is dropped.

use crate::cables::Inside;
use laneway_netns::{Namespace, can_create};
use laneway_testkit::{skip, young_enough};
use laneway_uring::{UringTcp, UringUdp};
use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

/// A namespace whose loopback is up.
pub(crate) struct World {
    pub(crate) namespace: Namespace,
}

impl World {
    /// Builds it, or says why that cannot be done here.
    pub(crate) fn new() -> Result<World, String> {
        can_create().map_err(|e| e.to_string())?;
        let namespace = Namespace::create("uring-lo").map_err(|e| e.to_string())?;
        let up = ["link", "set", "dev", "lo", "up"];
        let done = namespace.command("ip").args(up).status().map_err(|e| e.to_string())?;
        assert!(done.success(), "`ip {}` failed", up.join(" "));
        Ok(World { namespace })
    }

    /// Does something in the namespace, on this thread.
    pub(crate) fn inside<T>(&self, action: impl FnOnce() -> T) -> T {
        let _inside = Inside::enter(&self.namespace);
        action()
    }

    /// Those of some specs of streams that this kernel is young enough for; the others are skipped with the reason.
    pub(crate) fn obtained<'s>(&self, specs: &[&'s str]) -> Vec<&'s str> {
        let is_obtained = |spec: &&&str| self.obtains(spec).map_err(skip).is_ok();
        specs.iter().filter(is_obtained).copied().collect()
    }

    /// An error says why this kernel is too old for a spec of streams.
    pub(crate) fn obtains(&self, spec: &str) -> Result<(), String> {
        let spec = spec.parse().expect("well formed");
        young_enough(&self.inside(|| UringTcp::open(&spec, &[(Ipv4Addr::LOCALHOST, 0).into()])))
    }

    /// A lane with one UDP port and a plain socket, both where the kernel chose.
    pub(crate) fn udp(&self, spec: &str) -> (UringUdp, UdpSocket) {
        let spec = spec.parse().expect("well formed");
        let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let lane = self.inside(|| UringUdp::open(&spec, &[anywhere]));
        let far = self.inside(|| UdpSocket::bind(anywhere)).expect("the namespace is ours");
        far.set_nonblocking(true).expect("a socket can");
        (lane.unwrap_or_else(|e| panic!("{e}")), far)
    }
}

/// Does what needs an address until that is free. Another test's child process has a copy of every
/// descriptor between its fork and its exec, so an address may stay taken for a moment after its
/// socket was closed.
pub(crate) fn until_free<T, E>(
    mut open: impl FnMut() -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<T, E> {
    /// Of a millisecond each, so 30 s: on a busy machine that moment is long.
    const ATTEMPTS: usize = 30_000;
    for _ in 0..ATTEMPTS {
        match open() {
            Err(e) if is_taken(&e) => std::thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
    open()
}
