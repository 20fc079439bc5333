//! The tests' world: up to three cables, packet sockets at the far ends. The thread that makes a world stands in the
//! near namespace until the world is dropped.

use crate::cables::{Cables, Inside, silent};
use laneway_netns::{VethEnd, VethOptions};
use std::{
    ops::{Deref, DerefMut},
    process::Command,
};

pub(crate) struct World {
    // Dropped first: a namespace that a thread stands in would outlive its removal.
    _inside: Inside,
    cables: Cables,
}

impl Deref for World {
    type Target = Cables;

    fn deref(&self) -> &Cables {
        &self.cables
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Cables {
        &mut self.cables
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
        let mut options = VethOptions { mtu_bytes, queues, ..silent() };
        for (end, addresses) in [&mut options.a, &mut options.b].into_iter().zip(addresses) {
            *end = VethEnd::new(end.mac, addresses).expect("addresses of the test");
        }
        let cables = Cables::new(cables, options)?;
        Ok(World { _inside: Inside::enter(&cables.near), cables })
    }

    /// Sends frames from the far end of `port`.
    pub(crate) fn inject(&self, port: usize, frames: &[Vec<u8>]) {
        self.far_ends[port].send(frames);
    }

    /// What the far end of `port` received, waiting patiently for `expected` frames.
    pub(crate) fn receive(&self, port: usize, expected: usize) -> Vec<Vec<u8>> {
        self.far_ends[port].receive(expected)
    }
}

/// Runs `ip` where this thread stands: in the near namespace.
pub(crate) fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().expect("laneway-netns needs it as well");
    assert!(status.success(), "ip {args:?}");
}
