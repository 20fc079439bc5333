//! A cable between a near namespace, where the lane is opened and the kernel has no address, and a
//! far one, where the kernel is the peer. Everything disappears when it is dropped.

use laneway_afxdp::AfXdp;
use laneway_core::{FrameLane, LaneError};
use laneway_netns::{Mac, Namespace, Offloads, VethEnd, VethOptions, VethPair, can_create};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_spec::LaneSpec;
use laneway_stack::{InterfaceConfig, StackConfig};
use laneway_uring::UringFrames;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{fs::File, net::SocketAddr, os::fd::AsFd};

pub(crate) const NEAR: &str = "near0";
const FAR: &str = "far0";
/// Not that of the interface, so that the kernel at the near end takes no notice.
const STACK_MAC: [u8; 6] = [0x02, 0x4c, 0x57, 0x53, 0, 1];
pub(crate) const NEAR_V4: &str = "10.77.0.1";
pub(crate) const NEAR_V6: &str = "fd77::1";
pub(crate) const FAR_V4: &str = "10.77.0.2";

/// Opens a lane in the namespace of the calling thread.
pub(crate) type Open<L> = fn(&LaneSpec) -> Result<L, LaneError>;

pub(crate) fn open_packet(spec: &LaneSpec) -> Result<PacketLane, LaneError> {
    PacketLane::open(spec, &[NEAR], OpenOptions::default())
}

pub(crate) fn open_afxdp(spec: &LaneSpec) -> Result<AfXdp, LaneError> {
    AfXdp::open(spec, &[NEAR], false)
}

pub(crate) fn open_uring(spec: &LaneSpec) -> Result<UringFrames, LaneError> {
    UringFrames::open(spec, &[NEAR], laneway_uring::OpenOptions::default())
}

pub(crate) struct World {
    _cable: VethPair,
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
}

impl World {
    /// Builds it, or says why that cannot be done here.
    pub(crate) fn new(far_addresses: &[&str]) -> Result<World, String> {
        // The default offloads of this crate leave no checksum unfinished. Without GRO at the near
        // end, no segments are put together there to more than a frame holds.
        let far = Offloads::default();
        World::with(far_addresses, Offloads { gro: false, ..far }, far)
    }

    /// The same with the defaults of a veth: checksums and segmentation are left to a device.
    pub(crate) fn plain(far_addresses: &[&str]) -> Result<World, String> {
        let plain = Offloads {
            gso: true,
            tso: true,
            tx_checksum: true,
            tx_udp_segmentation: true,
            ..Offloads::default()
        };
        World::with(far_addresses, plain, plain)
    }

    fn with(far_addresses: &[&str], near: Offloads, far: Offloads) -> Result<World, String> {
        can_create().map_err(|e| e.to_string())?;
        World::build(far_addresses, near, far).map_err(|e| panic!("{e}"))
    }

    fn build(
        far_addresses: &[&str],
        near_offloads: Offloads,
        far_offloads: Offloads,
    ) -> Result<World, laneway_netns::Error> {
        let (near, far) = (Namespace::create("stack-near")?, Namespace::create("stack-far")?);
        let end = |last: u8, addresses: &[&str], offloads: Offloads| {
            let mac = Mac([0x02, 0x4c, 0x57, 0x53, 1, last]);
            let end = VethEnd::new(mac, addresses).expect("well-formed addresses");
            VethEnd { offloads, ..end }
        };
        let (a, b) = (end(0, &[], near_offloads), end(1, far_addresses, far_offloads));
        let options = VethOptions { a, b, ..VethOptions::default() };
        let cable = VethPair::create(&near, NEAR, &far, FAR, &options)?;
        Ok(World { _cable: cable, near, far })
    }

    /// Gives both ends of the cable this MTU.
    pub(crate) fn stretch(&self, mtu: &str) {
        for (namespace, name) in [(&self.near, NEAR), (&self.far, FAR)] {
            let ran =
                namespace.command("ip").args(["link", "set", "dev", name, "mtu", mtu]).output();
            let ran = ran.expect("laneway-netns needs it as well");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        }
    }

    /// Opens a lane at the near end.
    pub(crate) fn open<L: FrameLane>(
        &self,
        open: Open<L>,
        spec: &LaneSpec,
    ) -> Result<L, LaneError> {
        let home = File::open("/proc/thread-self/ns/net").expect("Linux has namespaces");
        let there = File::open(self.near.path()).expect("the namespace is there");
        enter(&there);
        let lane = open(spec);
        enter(&home);
        lane
    }
}

fn enter(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("the maker of a namespace may enter it");
}

/// A stack with an address of each IP version.
pub(crate) fn config(listen: &[SocketAddr]) -> StackConfig {
    let addresses = vec![(NEAR_V4.parse().unwrap(), 24), (NEAR_V6.parse().unwrap(), 64)];
    StackConfig::new(InterfaceConfig::new(STACK_MAC, addresses), listen.to_vec())
}
