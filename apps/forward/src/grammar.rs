//! Flow rules as values: attributes, pattern, actions, and their text.
//!
//! The grammar is that of DPDK's testpmd; `README.md` lists every word of it. Patterns are those of
//! [`laneway_flow::pattern`]. What a rule prints parses to the same rule, and equal rules are equal values.

use crate::fields::{at, has};
use laneway_flow::pattern::{self, HeaderKind, Notation};
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Where [`crate::fields::Fields`] has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFields {
    /// Offset of the big-endian integer that it is part of.
    pub(crate) at: usize,
    /// Bytes of that integer.
    pub(crate) bytes: usize,
    /// Lowest bit of the field in it.
    pub(crate) shift: u32,
}

/// A field of an item.
pub(crate) type Field = pattern::Field<InFields>;
/// What a field must be.
pub type Test = pattern::Test<InFields>;
/// One header of a pattern and what its fields must be.
pub type Item = pattern::Item<ItemKind>;

const fn number(name: &'static str, at: usize, bytes: usize, shift: u32, bits: u32) -> Field {
    Field { name, bits, notation: Notation::Number, place: InFields { at, bytes, shift } }
}

const fn address(name: &'static str, at: usize, bytes: usize, notation: Notation) -> Field {
    Field { name, bits: bytes as u32 * 8, notation, place: InFields { at, bytes, shift: 0 } }
}

const PORTS: &[Field] =
    &[number("src", at::SRC_PORT, 2, 0, 16), number("dst", at::DST_PORT, 2, 0, 16)];
const ICMP: &[Field] =
    &[number("type", at::ICMP_TYPE, 1, 0, 8), number("code", at::ICMP_CODE, 1, 0, 8)];

const TAG: &[Field] = &[
    number("tci", at::VLAN_TCI, 2, 0, 16),
    number("pcp", at::VLAN_TCI, 2, 13, 3),
    number("dei", at::VLAN_TCI, 2, 12, 1),
    number("vid", at::VLAN_TCI, 2, 0, 12),
];

macro_rules! items {
    ($($(#[doc = $doc:literal])+ $variant:ident $word:literal $layer:literal $has:path, $fields:expr;)+) => {
        /// A header that a pattern names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ItemKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl ItemKind {
            /// The bit that says that the header is there.
            pub(crate) fn has(self) -> u16 {
                match self { $(ItemKind::$variant => $has),+ }
            }
        }

        impl HeaderKind for ItemKind {
            type Place = InFields;

            const ALL: &'static [ItemKind] = &[$(ItemKind::$variant),+];

            fn word(self) -> &'static str {
                match self { $(ItemKind::$variant => $word),+ }
            }

            fn layer(self) -> u8 {
                match self { $(ItemKind::$variant => $layer),+ }
            }

            fn count_max(self) -> usize {
                if self == ItemKind::Vlan { 2 } else { 1 }
            }

            fn fields(self) -> &'static [Field] {
                match self { $(ItemKind::$variant => const { $fields }),+ }
            }

            fn why_not_behind(self, before: ItemKind) -> Option<&'static str> {
                (before == ItemKind::Vxlan)
                    .then_some("but headers inside VXLAN cannot be matched; expected `end`")
            }
        }
    };
}

items! {
    /// The Ethernet header; `type` is the one behind the VLAN tags.
    Eth "eth" 1 has::ETH, &[
        address("dst", at::ETH_DST, 6, Notation::Mac),
        address("src", at::ETH_SRC, 6, Notation::Mac),
        number("type", at::ETH_TYPE, 2, 0, 16),
    ];
    /// A VLAN tag; the second one in a pattern is the inner one.
    Vlan "vlan" 2 has::VLAN, TAG;
    /// IPv4.
    Ipv4 "ipv4" 3 has::IPV4, &[
        number("tos", at::TOS, 1, 0, 8),
        number("ttl", at::TTL, 1, 0, 8),
        number("proto", at::PROTO, 1, 0, 8),
        number("fragment_offset", at::FRAGMENT, 2, 0, 16),
        address("src", at::SRC_IP + 12, 4, Notation::Ipv4),
        address("dst", at::DST_IP + 12, 4, Notation::Ipv4),
    ];
    /// IPv6; `proto` is the one behind the extension headers.
    Ipv6 "ipv6" 3 has::IPV6, &[
        number("tc", at::TOS, 1, 0, 8),
        number("hop", at::TTL, 1, 0, 8),
        number("proto", at::PROTO, 1, 0, 8),
        address("src", at::SRC_IP, 16, Notation::Ipv6),
        address("dst", at::DST_IP, 16, Notation::Ipv6),
    ];
    /// TCP.
    Tcp "tcp" 4 has::TCP, &[
        number("src", at::SRC_PORT, 2, 0, 16),
        number("dst", at::DST_PORT, 2, 0, 16),
        number("flags", at::TCP_FLAGS, 1, 0, 8),
    ];
    /// UDP.
    Udp "udp" 4 has::UDP, PORTS;
    /// ICMP in IPv4.
    Icmp "icmp" 4 has::ICMP, ICMP;
    /// ICMPv6 in IPv6.
    Icmp6 "icmp6" 4 has::ICMP6, ICMP;
    /// VXLAN: UDP to port 4789 with the I flag set.
    Vxlan "vxlan" 5 has::VXLAN, &[number("vni", at::VNI, 3, 0, 24)];
}

/// What is done with a frame that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It ends here.
    Drop,
    /// The mode handles it; it counts for this queue.
    Queue(u16),
    /// The mode handles it; it counts for one of these queues, chosen by the hash of its addresses
    /// and ports; without a list, for one of all.
    Rss(Vec<u16>),
    /// It leaves by this port, whatever the mode says.
    PortId(u8),
    /// Rules of this group decide next.
    Jump(u32),
    /// Rules that come later in the group decide next.
    Passthru,
    /// It is counted. (Every rule counts; this makes it readable by `flow query`.)
    Count,
    /// It carries this number from here on.
    Mark(u32),
    /// New Ethernet source.
    SetMacSrc([u8; 6]),
    /// New Ethernet destination.
    SetMacDst([u8; 6]),
    /// New IPv4 source; checksums follow.
    SetIpv4Src(Ipv4Addr),
    /// New IPv4 destination; checksums follow.
    SetIpv4Dst(Ipv4Addr),
    /// New IPv6 source; checksums follow.
    SetIpv6Src(Ipv6Addr),
    /// New IPv6 destination; checksums follow.
    SetIpv6Dst(Ipv6Addr),
    /// New source port; the checksum follows.
    SetTpSrc(u16),
    /// New destination port; the checksum follows.
    SetTpDst(u16),
    /// One less time to live or hop limit; at 1 the frame ends here.
    DecTtl,
}

impl Action {
    /// The word in a rule.
    pub fn word(&self) -> &'static str {
        match self {
            Action::Drop => "drop",
            Action::Queue(_) => "queue",
            Action::Rss(_) => "rss",
            Action::PortId(_) => "port_id",
            Action::Jump(_) => "jump",
            Action::Passthru => "passthru",
            Action::Count => "count",
            Action::Mark(_) => "mark",
            Action::SetMacSrc(_) => "set_mac_src",
            Action::SetMacDst(_) => "set_mac_dst",
            Action::SetIpv4Src(_) => "set_ipv4_src",
            Action::SetIpv4Dst(_) => "set_ipv4_dst",
            Action::SetIpv6Src(_) => "set_ipv6_src",
            Action::SetIpv6Dst(_) => "set_ipv6_dst",
            Action::SetTpSrc(_) => "set_tp_src",
            Action::SetTpDst(_) => "set_tp_dst",
            Action::DecTtl => "dec_ttl",
        }
    }

    /// True for what decides where the frame goes next; a rule has at most one of these.
    pub(crate) fn is_fate(&self) -> bool {
        matches!(
            self,
            Action::Drop
                | Action::Queue(_)
                | Action::Rss(_)
                | Action::PortId(_)
                | Action::Jump(_)
                | Action::Passthru
        )
    }
}

/// Where and when a rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Rules of group 0 see every frame, those of others what jumped there.
    pub group: u32,
    /// Lower numbers first; among equals the older rule.
    pub priority: u32,
    /// It applies to what comes in on the port.
    pub ingress: bool,
    /// It applies to the switch behind the port: here the same as ingress.
    pub transfer: bool,
}

/// A flow rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where and when it applies.
    pub attributes: Attributes,
    /// The headers that must be there, outermost first.
    pub pattern: Vec<Item>,
    /// What is done.
    pub actions: Vec<Action>,
}

/// A line of the `flow` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `flow validate <port> <rule>`
    Validate(u16, Rule),
    /// `flow create <port> <rule>`
    Create(u16, Rule),
    /// `flow destroy <port> rule <id> [rule <id>]...`
    Destroy(u16, Vec<u32>),
    /// `flow flush <port>`
    Flush(u16),
    /// `flow query <port> <id> count`
    Query(u16, u32),
    /// `flow list <port> [group <group>]...`
    List(u16, Vec<u32>),
}

impl fmt::Display for Rule {
    /// The rule as it stands behind `flow create <port>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attributes { group, priority, ingress, transfer } = self.attributes;
        if group > 0 {
            write!(f, "group {group} ")?;
        }
        if priority > 0 {
            write!(f, "priority {priority} ")?;
        }
        for (word, on) in [("ingress", ingress), ("transfer", transfer)] {
            if on {
                write!(f, "{word} ")?;
            }
        }
        write!(f, "pattern ")?;
        for item in &self.pattern {
            write!(f, "{item} / ")?;
        }
        write!(f, "end actions ")?;
        for action in &self.actions {
            write!(f, "{}", action.word())?;
            match action {
                Action::Queue(index) => write!(f, " index {index}")?,
                Action::Rss(queues) if !queues.is_empty() => {
                    write!(f, " queues")?;
                    queues.iter().try_for_each(|queue| write!(f, " {queue}"))?;
                    write!(f, " end")?;
                }
                Action::PortId(id) => write!(f, " id {id}")?,
                Action::Jump(group) => write!(f, " group {group}")?,
                Action::Mark(id) => write!(f, " id {id}")?,
                Action::SetMacSrc(mac) | Action::SetMacDst(mac) => {
                    let value = mac.iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
                    write!(f, " mac_addr {}", Notation::Mac.print(value))?;
                }
                Action::SetIpv4Src(ip) | Action::SetIpv4Dst(ip) => write!(f, " ipv4_addr {ip}")?,
                Action::SetIpv6Src(ip) | Action::SetIpv6Dst(ip) => write!(f, " ipv6_addr {ip}")?,
                Action::SetTpSrc(port) | Action::SetTpDst(port) => write!(f, " port {port}")?,
                Action::Drop
                | Action::Rss(_)
                | Action::Passthru
                | Action::Count
                | Action::DecTtl => {}
            }
            write!(f, " / ")?;
        }
        write!(f, "end")
    }
}
