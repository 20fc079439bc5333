//! The lanes of this build, one row each.

use laneway_afxdp::AfXdpKind;
use laneway_dpdk::DpdkKind;
use laneway_kinds::LaneKind;
use laneway_packet::PacketKind;
use laneway_pcap::PcapKind;
use laneway_sim::SimKind;
use laneway_socket::SocketKind;
use laneway_uring::UringKind;
use laneway_xdp::XdpKind;

/// The table of lanes: a list of types, because each lane is compiled for each app.
#[rustfmt::skip] // a table
pub type Lanes =
    (PacketKind,
    (SocketKind,
    (UringKind,
    (XdpKind,
    (AfXdpKind,
    (DpdkKind,
    (PcapKind,
    (SimKind,
    ()))))))));

/// The lane of a verb that was given none: every machine has it.
pub const USUAL_LANE: &str = <PacketKind as LaneKind>::FACTS.name;
