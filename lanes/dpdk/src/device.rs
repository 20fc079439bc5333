//! What is known of each driver: its arguments, its bounds, and what its counters mean.
//!
//! Drawn from the sources of DPDK 22.11, because drivers differ in what they count: some count a
//! frame as a transmit error that the caller still owns, others one that is lost. What it
//! does not do: it calls nothing, and writes no argument ([`asked`](crate::asked)).

use laneway_flow::{Header, HeaderMatch, PortRule};

/// A driver (poll mode driver, PMD) for devices without hardware of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    AfPacket,
    AfXdp,
    Tap,
    Memif,
    Pcap,
    Ring,
    Null,
}

impl Driver {
    pub(crate) const ALL: &[Driver] = &[
        Driver::Tap,
        Driver::AfPacket,
        Driver::AfXdp,
        Driver::Memif,
        Driver::Pcap,
        Driver::Ring,
        Driver::Null,
    ];

    /// DPDK's name, which is the knob's as well.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Driver::AfPacket => "net_af_packet",
            Driver::AfXdp => "net_af_xdp",
            Driver::Tap => "net_tap",
            Driver::Memif => "net_memif",
            Driver::Pcap => "net_pcap",
            Driver::Ring => "net_ring",
            Driver::Null => "net_null",
        }
    }
}

/// The capture files of net_pcap, if the interfaces do not name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pcap {
    pub(crate) receive: Option<String>,
    pub(crate) transmit: Option<String>,
}

/// What the ports of a lane are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    AfPacket,
    /// From this queue of the interface on.
    AfXdp {
        queue: u16,
    },
    Tap,
    /// `socket` is a path, or an abstract name after `@`; port `i` has id `id + i`.
    Memif {
        server: bool,
        socket: String,
        id: u32,
    },
    Pcap(Pcap),
    Ring,
    Null,
    /// The addresses of the ports.
    Pci(Vec<String>),
}

/// Queues each way that a virtual device has at most (`RTE_PMD_*_MAX_RINGS` and the like).
const VIRTUAL_QUEUES_MAX: usize = 16;
/// What net_af_xdp fills its fill ring with (`ETH_AF_XDP_DFLT_NUM_DESCS`).
const AF_XDP_FILL_MBUFS: usize = 2048;
/// net_af_packet's own sizes, which hold an ordinary MTU.
pub(crate) const AF_PACKET_FRAME_BYTES: usize = 2048;
const AF_PACKET_BLOCK_BYTES: usize = 4096;
/// The header in front of a frame in net_af_packet's ring, and the gap the kernel leaves.
const AF_PACKET_HEADER_BYTES: usize = 96;
/// Where the kernel puts a frame in a slot of that ring (`tpacket_rcv`: TPACKET2_HDRLEN and an Ethernet header).
pub(crate) const AF_PACKET_OFFSET_BYTES: usize = 66;
/// What the kernel leaves free in front of a frame for XDP programs.
const XDP_HEADROOM_BYTES: usize = 256;

impl Device {
    /// The driver; `None` for a PCI device, whose driver DPDK chooses.
    pub(crate) fn driver(&self) -> Option<Driver> {
        match self {
            Device::AfPacket => Some(Driver::AfPacket),
            Device::AfXdp { .. } => Some(Driver::AfXdp),
            Device::Tap => Some(Driver::Tap),
            Device::Memif { .. } => Some(Driver::Memif),
            Device::Pcap(_) => Some(Driver::Pcap),
            Device::Ring => Some(Driver::Ring),
            Device::Null => Some(Driver::Null),
            Device::Pci(_) => None,
        }
    }

    /// For messages: the driver or `pci`.
    pub(crate) fn name(&self) -> &'static str {
        self.driver().map_or("pci", Driver::name)
    }

    /// The bus that DPDK finds it on.
    pub(crate) fn bus(&self) -> &'static str {
        if matches!(self, Device::Pci(_)) { "pci" } else { "vdev" }
    }

    /// True when a device is one of the kernel's, which takes a privilege to open.
    pub(crate) fn needs_privilege(&self) -> bool {
        !matches!(self, Device::Memif { .. } | Device::Ring | Device::Null)
    }

    /// True when a port works on an interface that is there already and is not its own.
    pub(crate) fn borrows_interface(&self) -> bool {
        matches!(self, Device::AfPacket | Device::AfXdp { .. })
    }

    /// Queues each way at most, where the number follows from the arguments and the device itself
    /// would not say.
    pub(crate) fn queues_max(&self) -> Option<usize> {
        match self {
            Device::AfPacket | Device::Tap | Device::Ring => Some(VIRTUAL_QUEUES_MAX),
            Device::Pcap(_) => Some(1),
            _ => None,
        }
    }

    /// True for hardware, which spreads frames over its queues by a configured hash (RSS).
    pub(crate) fn is_hardware(&self) -> bool {
        matches!(self, Device::Pci(_))
    }

    /// What decides on the queue of a frame, for reports.
    pub(crate) fn steering(&self) -> &'static str {
        match self {
            Device::AfPacket => {
                "PACKET_FANOUT by the kernel's flow hash; a full ring rolls over to the next queue"
            }
            Device::AfXdp { .. } => "the interface's own receive queues (`ethtool -x`)",
            Device::Tap => {
                "the kernel's flow hash; a flow that was answered by another queue moves there"
            }
            Device::Memif { .. } => "the peer: each queue is a ring of its own",
            Device::Ring => "the sender: what leaves by a queue comes back by it",
            Device::Null => "nothing: each queue makes frames of its own",
            Device::Pcap(_) => "nothing: there is one queue",
            Device::Pci(_) => "RSS",
        }
    }

    /// True when the driver counts sent frames by queue, exactly: only those that left.
    pub(crate) fn counts_queues(&self) -> bool {
        matches!(self, Device::AfPacket)
    }

    /// True when a device must have as many transmit as receive queues.
    pub(crate) fn pairs_queues(&self) -> bool {
        matches!(self, Device::AfPacket | Device::AfXdp { .. } | Device::Tap)
    }

    /// mbufs that one queue keeps to receive into: none, one per descriptor (0), or a fixed number.
    pub(crate) fn keeps_mbufs(&self) -> Option<usize> {
        match self {
            Device::Tap | Device::Pci(_) => Some(0),
            Device::AfXdp { .. } => Some(AF_XDP_FILL_MBUFS),
            _ => None,
        }
    }

    /// True when a frame that is sent may come back as the very same mbuf, which then must not have
    /// been sent by another port as well.
    pub(crate) fn hands_mbufs_over(&self) -> bool {
        matches!(self, Device::Ring)
    }

    /// True when a frame of several mbufs leaves whole, if the driver says that it sends such. net_af_xdp would
    /// hand the kernel the first mbuf of it as if it were all; net_ring's reader would have to copy.
    pub(crate) fn sends_pieces(&self) -> bool {
        !matches!(self, Device::AfXdp { .. } | Device::Ring)
    }

    /// True when a transmit error is a frame that the driver took and lost. Else it is one that the
    /// caller still has, and counts itself.
    pub(crate) fn loses_transmit_errors(&self) -> bool {
        matches!(self, Device::AfPacket | Device::Pcap(_) | Device::Pci(_))
    }

    /// True when a shortage of mbufs costs the frame. Else the frame waits for the next receive.
    pub(crate) fn loses_without_mbuf(&self) -> bool {
        matches!(self, Device::Tap | Device::Pcap(_) | Device::Pci(_))
    }

    /// Why a rule must not be given to the driver, as part of a sentence: it would take it and make
    /// something else of it.
    pub(crate) fn misreads(&self, rule: &PortRule) -> Option<String> {
        match self {
            Device::Tap => rule.pattern.iter().find_map(tap_misreads),
            _ => None,
        }
    }

    /// What happens to a passed frame, for reports.
    pub(crate) fn passing(&self) -> &'static str {
        match self {
            Device::AfPacket => "the kernel has the original",
            _ => "consumed: no way back into the kernel's stack",
        }
    }

    /// Bytes of an mbuf, behind its headroom, that a frame of `mtu` bytes payload needs.
    pub(crate) fn frame_bytes_needed(&self, mtu: usize) -> usize {
        let frame = mtu + ETHERNET_BYTES + VLAN_TAG_BYTES;
        match self {
            Device::AfXdp { .. } => frame + XDP_HEADROOM_BYTES,
            Device::AfPacket => af_packet_ring(mtu).0,
            _ => frame,
        }
    }

    /// True when frames sent by port `name` go anywhere: capture files that are only read take none.
    pub(crate) fn transmits(&self, name: &str) -> bool {
        match self {
            Device::Pcap(Pcap { receive: None, transmit: None }) => !is_file(name),
            Device::Pcap(Pcap { transmit, .. }) => transmit.is_some(),
            _ => true,
        }
    }

    /// True when port names are those of network interfaces that exist now.
    pub(crate) fn needs_interface(&self, name: &str) -> bool {
        match self {
            Device::AfPacket | Device::AfXdp { .. } => true,
            Device::Pcap(Pcap { receive: None, transmit: None }) => !is_file(name),
            _ => false,
        }
    }
}

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_BYTES: usize = 14;
/// Bytes of one VLAN tag, which a link carries on top of its MTU.
pub(crate) const VLAN_TAG_BYTES: usize = 4;

/// What net_tap (22.11, tap_flow.c) reads wrongly of a header. It looks at a field's value where it should
/// look at the mask, so that 0 is anything; and it applies a tag's mask with its bytes in the wrong order, so
/// that VLAN 53 becomes VLAN 5.
fn tap_misreads(header: &HeaderMatch) -> Option<String> {
    let HeaderMatch { spec, mask, .. } = header;
    let word = |bytes: &[u8; laneway_flow::HEADER_BYTES_MAX], at: usize| {
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    };
    let is_zero = |at: usize, bits: u16| word(mask, at) & bits != 0 && word(spec, at) & bits == 0;
    let zero = |what: &str| Some(format!("net_tap reads {what} 0 as any"));
    match header.header {
        Header::Eth if is_zero(12, u16::MAX) => zero("the type"),
        Header::Vlan if is_zero(0, TAG_VLAN) => zero("the VLAN"),
        Header::Vlan if is_zero(0, TAG_PRIORITY) => zero("the priority"),
        Header::Vlan if word(spec, 0) & word(mask, 0).swap_bytes() != word(spec, 0) => {
            Some(format!(
                "net_tap reads {:#06x} in a tag as {:#06x}",
                word(spec, 0),
                word(spec, 0) & word(mask, 0).swap_bytes()
            ))
        }
        Header::Ipv4 if mask[9] != 0 && spec[9] == 0 => zero("the protocol"),
        Header::Ipv6 if mask[6] != 0 && spec[6] == 0 => zero("the protocol"),
        _ => None,
    }
}

/// Bits of a tag's control information.
const TAG_VLAN: u16 = 0x0fff;
const TAG_PRIORITY: u16 = 0xe000;

/// A capture file, by its looks: a path, or a name with the ending of one.
pub(crate) fn is_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".pcap") || name.ends_with(".pcapng")
}

/// Frame and block size of net_af_packet's rings for this MTU. The driver takes them as they are and
/// loses what is longer without a word.
pub(crate) fn af_packet_ring(mtu: usize) -> (usize, usize) {
    let need = mtu + ETHERNET_BYTES + VLAN_TAG_BYTES + AF_PACKET_HEADER_BYTES;
    let frame = need.next_power_of_two().max(AF_PACKET_FRAME_BYTES);
    (frame, frame.max(AF_PACKET_BLOCK_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_is_not_asked_for_what_its_driver_takes_for_something_else() {
        let misread = |header, at, spec: &[u8], mask: &[u8]| {
            let mut any = HeaderMatch::any(header);
            any.ask(at, spec, spec, mask);
            let rule = PortRule { priority: 0, pattern: vec![any], actions: Vec::new() };
            assert_eq!(Device::Ring.misreads(&rule), None);
            Device::Tap.misreads(&rule).unwrap_or_default()
        };
        let vlan = |id: u8| misread(Header::Vlan, 0, &[0, id], &[0x0f, 0xff]);
        assert_eq!(vlan(53), "net_tap reads 0x0035 in a tag as 0x0005");
        assert_eq!((vlan(5), vlan(15)), (String::new(), String::new()));
        assert_eq!(vlan(0), "net_tap reads the VLAN 0 as any");
        assert_eq!(misread(Header::Vlan, 2, &[8, 0], &[0xff; 2]), "", "no tag's bits");
        let priority = |tci: u8| misread(Header::Vlan, 0, &[tci, 0], &[0xe0, 0]);
        assert!(priority(0).contains("priority 0"), "{}", priority(0));
        assert!(priority(0x60).contains("0x6000 in a tag as 0x0000"), "{}", priority(0x60));
        assert!(misread(Header::Eth, 12, &[0, 0], &[0xff; 2]).contains("type 0"));
        assert_eq!(misread(Header::Eth, 12, &[8, 0], &[0xff; 2]), "");
        assert!(misread(Header::Ipv4, 9, &[0], &[0xff]).contains("protocol 0"));
        assert!(misread(Header::Ipv6, 6, &[0], &[0x80]).contains("protocol 0"));
        assert_eq!(misread(Header::Ipv6, 6, &[17], &[0xff]), "");
        assert_eq!(misread(Header::Udp, 0, &[0, 0], &[0xff; 2]), "", "seen by the mask");
    }
}
