//! A rule as what is executed: masks and values over [`Fields`], and [`Effects`].
//!
//! A range becomes the prefixes that make it up, several ranges the product of theirs; at most
//! [`ENTRIES_PER_RULE_MAX`]. Entries of one rule may overlap in no frame, so each frame matches at
//! most one of them. What can never match, or would do something to a header that the pattern does
//! not promise, is refused here with its reason.

use crate::{
    KERNEL_LINE_MAX, KERNEL_MASKS_MAX, QUEUES_MAX,
    fields::{FIELDS_BYTES, Fields, WORDS, at, has},
    grammar::{Action, Field, InFields, Item, ItemKind, Rule},
};
use laneway_core::PortMask;
use laneway_flow::pattern::HeaderKind as _;
use std::net::Ipv4Addr;

/// Rules of a set.
pub const RULES_MAX: usize = 1 << 17;
/// Masks and values that one rule may need.
pub const ENTRIES_PER_RULE_MAX: usize = 1024;

/// Why a rule that is well formed cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleRefused {
    /// The port is not there.
    #[error("there is no port {port}; ports are 0 to {max}", max = .ports - 1)]
    NoPort {
        /// What the rule says.
        port: u32,
        /// How many ports there are.
        ports: usize,
    },
    /// The queue is not there.
    #[error("there is no queue {queue}; queues are 0 to {max}, as --queues says", max = .queues - 1)]
    NoQueue {
        /// What the rule says.
        queue: u16,
        /// How many queues there are.
        queues: u16,
    },
    /// Two parts of the pattern exclude each other.
    #[error("no frame can match: what `{item}` asks for contradicts the rest of the pattern")]
    Contradiction {
        /// The later part.
        item: &'static str,
    },
    /// An action needs a header that the pattern does not ask for.
    #[error("`{action}` needs {needs} in the pattern: other frames have nothing to change")]
    NoHeader {
        /// The action's word.
        action: &'static str,
        /// The item's.
        needs: &'static str,
    },
    /// Jumps lead to higher groups, so that they end.
    #[error("`jump group {to}` from group {from}: jumps lead to higher groups only")]
    JumpBack {
        /// The rule's own group.
        from: u32,
        /// Where it jumps to.
        to: u32,
    },
    /// Too many ranges at once.
    #[error(
        "its ranges come to {entries} masks, and {max} are the most; widen a range to a prefix",
        max = ENTRIES_PER_RULE_MAX
    )]
    TooManyRanges {
        /// How many it would be, as far as they were counted.
        entries: usize,
    },
    /// A table is full.
    #[error("{what} is full: {max} are the most; destroy some first")]
    Full {
        /// Which table.
        what: &'static str,
        /// Its size.
        max: usize,
    },
    /// The kernel half has no room for its masks and values.
    #[error(
        "the XDP program has no room for {over} more: it looks up the values of {masks} masks, and tries \
         {line} masks and values one after the other; give rules the same fields and prefix lengths, \
         widen a range to a prefix, destroy some first, or use a lane that shows frames to user space, \
         where a set has up to {rules} rules of any mask",
        masks = KERNEL_MASKS_MAX,
        line = KERNEL_LINE_MAX,
        rules = RULES_MAX
    )]
    FullInKernel {
        /// Masks and values that have no place.
        over: usize,
    },
}

/// One mask and value: a frame matches if `fields & mask == value` in every word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) mask: [u64; WORDS],
    pub(crate) value: [u64; WORDS],
}

impl Entry {
    #[inline]
    pub(crate) fn matches(&self, fields: &Fields) -> bool {
        (0..WORDS).all(|i| fields.word(i) & self.mask[i] == self.value[i])
    }
}

/// What a rule does, ready to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Effects {
    /// What of the rest applies: bits of [`effect`].
    pub(crate) flags: u32,
    pub(crate) group: u32,
    pub(crate) mark: u32,
    pub(crate) port: u8,
    /// Queues to choose from: one for `queue`.
    pub(crate) queues: [u8; QUEUES_MAX],
    pub(crate) queues_len: u8,
    pub(crate) mac_src: [u8; 6],
    pub(crate) mac_dst: [u8; 6],
    pub(crate) ip_src: [u8; 16],
    pub(crate) ip_dst: [u8; 16],
    pub(crate) tp_src: [u8; 2],
    pub(crate) tp_dst: [u8; 2],
}

/// Bits of [`Effects::flags`]; `bpf/forward.h` has the same.
pub(crate) mod effect {
    pub(crate) const DROP: u32 = 0x001;
    pub(crate) const QUEUE: u32 = 0x002;
    pub(crate) const PORT: u32 = 0x004;
    pub(crate) const JUMP: u32 = 0x008;
    pub(crate) const PASSTHRU: u32 = 0x010;
    pub(crate) const MARK: u32 = 0x020;
    pub(crate) const MAC_SRC: u32 = 0x040;
    pub(crate) const MAC_DST: u32 = 0x080;
    pub(crate) const IP_SRC: u32 = 0x100;
    pub(crate) const IP_DST: u32 = 0x200;
    pub(crate) const TP_SRC: u32 = 0x400;
    pub(crate) const TP_DST: u32 = 0x800;
    pub(crate) const DEC_TTL: u32 = 0x1000;
}

/// What a run has: rules can name no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Ports, 1 to 32.
    pub ports: usize,
    /// Queues that `queue` and `rss` may name, 1 to [`QUEUES_MAX`].
    pub queues: u16,
}

impl Bounds {
    pub(crate) fn check_port(&self, port: u32) -> Result<u8, RuleRefused> {
        let ports = self.ports.min(PortMask::PORTS_MAX);
        match u8::try_from(port) {
            Ok(id) if usize::from(id) < ports => Ok(id),
            _ => Err(RuleRefused::NoPort { port, ports }),
        }
    }

    fn check_queue(&self, queue: u16) -> Result<u8, RuleRefused> {
        let queues = self.queues.min(QUEUES_MAX as u16);
        if queue < queues { Ok(queue as u8) } else { Err(RuleRefused::NoQueue { queue, queues }) }
    }
}

/// A rule, executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    pub(crate) entries: Vec<Entry>,
    pub(crate) effects: Effects,
}

/// Compiles a rule for a run with these ports and queues.
pub(crate) fn compile(rule: &Rule, bounds: Bounds) -> Result<Compiled, RuleRefused> {
    Ok(Compiled { entries: entries(&rule.pattern)?, effects: effects(rule, bounds)? })
}

/// Mask and value as bytes, to put fields into.
#[derive(Clone, Copy)]
struct Bytes {
    mask: [u8; FIELDS_BYTES],
    value: [u8; FIELDS_BYTES],
}

impl Bytes {
    /// Asks for these bits, too; false if others were asked for.
    fn ask(&mut self, field: &Field, value: u128, mask: u128) -> bool {
        let InFields { at, bytes, shift } = field.place;
        let (value, mask) = ((value << shift).to_be_bytes(), (mask << shift).to_be_bytes());
        let from = 16 - bytes;
        (0..bytes).all(|i| {
            let (value, mask) = (value[from + i], mask[from + i]);
            let (old, asked) = (&mut self.value[at + i], &mut self.mask[at + i]);
            let agrees = (*old ^ value) & *asked & mask == 0;
            *old |= value;
            *asked |= mask;
            agrees
        })
    }

    fn ask_bits(&mut self, at: usize, value: &[u8]) {
        for (i, bits) in value.iter().enumerate() {
            self.mask[at + i] |= bits;
            self.value[at + i] |= bits;
        }
    }

    fn entry(&self) -> Entry {
        let words = |bytes: &[u8; FIELDS_BYTES]| {
            let mut fields = Fields::default();
            fields.set(0, bytes);
            std::array::from_fn(|i| fields.word(i))
        };
        Entry { mask: words(&self.mask), value: words(&self.value) }
    }
}

fn entries(pattern: &[Item]) -> Result<Vec<Entry>, RuleRefused> {
    let mut all = vec![Bytes { mask: [0; FIELDS_BYTES], value: [0; FIELDS_BYTES] }];
    // Every frame that has an Ethernet header can match; shorter ones match nothing.
    all[0].ask_bits(at::HAS, &has::ETH.to_be_bytes());
    let mut tags = 0;
    for item in pattern {
        let contradiction = RuleRefused::Contradiction { item: item.kind.word() };
        let is_inner_tag = item.kind == ItemKind::Vlan && tags == 1;
        tags += usize::from(item.kind == ItemKind::Vlan);
        let bit = if is_inner_tag { has::VLAN2 } else { item.kind.has() };
        all.iter_mut().for_each(|bytes| bytes.ask_bits(at::HAS, &bit.to_be_bytes()));
        for test in &item.tests {
            let inner;
            let field = match is_inner_tag {
                true => {
                    let place = InFields { at: at::VLAN_TCI2, ..test.field.place };
                    inner = Field { place, ..*test.field };
                    &inner
                }
                false => test.field,
            };
            let pairs = test.pairs(ENTRIES_PER_RULE_MAX);
            if all.len() * pairs.len() > ENTRIES_PER_RULE_MAX {
                return Err(RuleRefused::TooManyRanges { entries: all.len() * pairs.len() });
            }
            let mut next = Vec::with_capacity(all.len() * pairs.len());
            for bytes in &all {
                for &(value, mask) in &pairs {
                    let mut bytes = *bytes;
                    if bytes.ask(field, value, mask) {
                        next.push(bytes);
                    }
                }
            }
            all = next;
        }
        all.retain(is_possible);
        if all.is_empty() {
            return Err(contradiction);
        }
    }
    Ok(all.iter().map(Bytes::entry).collect())
}

/// False when the headers asked for exclude each other or the protocol number asked for.
fn is_possible(bytes: &Bytes) -> bool {
    let asked = u16::from_be_bytes([bytes.value[at::HAS], bytes.value[at::HAS + 1]]);
    let all = |bits: u16| asked & bits == bits;
    let protocol = |number: u8| (bytes.value[at::PROTO] ^ number) & bytes.mask[at::PROTO] == 0;
    let kind = |number: u16| {
        let [a, b] = number.to_be_bytes();
        (bytes.value[at::ETH_TYPE] ^ a) & bytes.mask[at::ETH_TYPE] == 0
            && (bytes.value[at::ETH_TYPE + 1] ^ b) & bytes.mask[at::ETH_TYPE + 1] == 0
    };
    !(all(has::IPV4 | has::IPV6)
        || all(has::IPV6 | has::ICMP)
        || all(has::IPV4 | has::ICMP6)
        || (all(has::TCP) && !protocol(6))
        || (all(has::UDP) && !protocol(17))
        || (all(has::ICMP) && !protocol(1))
        || (all(has::ICMP6) && !protocol(58))
        || (all(has::VXLAN) && !protocol(17))
        || (all(has::VXLAN) && asked & (has::TCP | has::ICMP | has::ICMP6) != 0)
        || (all(has::IPV4) && !kind(0x0800))
        || (all(has::IPV6) && !kind(0x86dd)))
}

fn effects(rule: &Rule, bounds: Bounds) -> Result<Effects, RuleRefused> {
    let mut e = Effects::default();
    let asks = |kinds: &[ItemKind]| rule.pattern.iter().any(|item| kinds.contains(&item.kind));
    for action in &rule.actions {
        let (needed, needs): (&[ItemKind], &'static str) = match action {
            Action::SetIpv4Src(_) | Action::SetIpv4Dst(_) => (&[ItemKind::Ipv4], "`ipv4`"),
            Action::SetIpv6Src(_) | Action::SetIpv6Dst(_) => (&[ItemKind::Ipv6], "`ipv6`"),
            Action::SetTpSrc(_) | Action::SetTpDst(_) => {
                (&[ItemKind::Tcp, ItemKind::Udp], "`tcp` or `udp`")
            }
            Action::DecTtl => (&[ItemKind::Ipv4, ItemKind::Ipv6], "`ipv4` or `ipv6`"),
            _ => (&[], ""),
        };
        if !needed.is_empty() && !asks(needed) {
            return Err(RuleRefused::NoHeader { action: action.word(), needs });
        }
        e.flags |= match action {
            Action::Drop => effect::DROP,
            Action::Queue(queue) => {
                e.queues[0] = bounds.check_queue(*queue)?;
                e.queues_len = 1;
                effect::QUEUE
            }
            Action::Rss(queues) => {
                let all: Vec<u16> = (0..bounds.queues.min(QUEUES_MAX as u16)).collect();
                let queues = if queues.is_empty() { &all } else { queues };
                for (to, queue) in e.queues.iter_mut().zip(queues) {
                    *to = bounds.check_queue(*queue)?;
                }
                e.queues_len = queues.len().min(QUEUES_MAX) as u8;
                effect::QUEUE
            }
            Action::PortId(port) => {
                e.port = bounds.check_port(u32::from(*port))?;
                effect::PORT
            }
            Action::Jump(group) => {
                let from = rule.attributes.group;
                if *group <= from {
                    return Err(RuleRefused::JumpBack { from, to: *group });
                }
                e.group = *group;
                effect::JUMP
            }
            Action::Passthru => effect::PASSTHRU,
            Action::Count => 0,
            Action::Mark(mark) => {
                e.mark = *mark;
                effect::MARK
            }
            Action::SetMacSrc(mac) => {
                e.mac_src = *mac;
                effect::MAC_SRC
            }
            Action::SetMacDst(mac) => {
                e.mac_dst = *mac;
                effect::MAC_DST
            }
            Action::SetIpv4Src(ip) => {
                e.ip_src = mapped(*ip);
                effect::IP_SRC
            }
            Action::SetIpv4Dst(ip) => {
                e.ip_dst = mapped(*ip);
                effect::IP_DST
            }
            Action::SetIpv6Src(ip) => {
                e.ip_src = ip.octets();
                effect::IP_SRC
            }
            Action::SetIpv6Dst(ip) => {
                e.ip_dst = ip.octets();
                effect::IP_DST
            }
            Action::SetTpSrc(port) => {
                e.tp_src = port.to_be_bytes();
                effect::TP_SRC
            }
            Action::SetTpDst(port) => {
                e.tp_dst = port.to_be_bytes();
                effect::TP_DST
            }
            Action::DecTtl => effect::DEC_TTL,
        };
    }
    Ok(e)
}

/// An IPv4 address as it stands in [`Fields`].
pub(crate) fn mapped(ip: Ipv4Addr) -> [u8; 16] {
    ip.to_ipv6_mapped().octets()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse_rule;

    pub(super) const BOUNDS: Bounds = Bounds { ports: 2, queues: 4 };

    fn compiled(text: &str) -> Result<Compiled, RuleRefused> {
        compile(&parse_rule(text).unwrap_or_else(|e| panic!("{e}")), BOUNDS)
    }

    #[track_caller]
    fn refuses(text: &str, part: &str) {
        let why = compiled(text).expect_err(text).to_string();
        assert!(why.contains(part), "{why}");
    }

    #[test]
    fn what_cannot_match_or_be_done_is_refused_with_its_reason() {
        refuses("ingress pattern ipv4 proto is 6 / udp / end actions drop / end", "`udp`");
        refuses("ingress pattern ipv6 / icmp / end actions drop / end", "`icmp`");
        refuses("ingress pattern ipv4 / tcp / vxlan / end actions drop / end", "`vxlan`");
        refuses("ingress pattern eth type is 0x86dd / ipv4 / end actions drop / end", "`ipv4`");
        refuses("ingress pattern eth / end actions dec_ttl / end", "`ipv4` or `ipv6`");
        refuses("ingress pattern ipv4 / end actions set_tp_src port 1 / end", "`tcp` or `udp`");
        refuses("ingress pattern end actions queue index 4 / end", "queues are 0 to 3");
        refuses("ingress pattern end actions rss queues 0 9 end / end", "no queue 9");
        refuses("ingress pattern end actions port_id id 2 / end", "ports are 0 to 1");
        refuses("group 3 ingress pattern end actions jump group 3 / end", "higher groups");
        let ranges = "ingress pattern tcp src spec 1 src last 65534 dst spec 1 dst last 65534 \
                      flags spec 1 flags last 254 / end actions drop / end";
        refuses(ranges, "1024 are the most");
    }

    #[test]
    fn a_rule_without_ranges_is_one_entry_and_an_inner_tag_has_its_own_place() {
        let one = compiled(
            "ingress pattern eth / vlan vid is 5 / vlan pcp is 3 / ipv4 / end actions drop / end",
        )
        .expect("a rule");
        assert_eq!(one.entries.len(), 1);
        let mut fields = Fields::default();
        let all = has::ETH | has::VLAN | has::VLAN2 | has::IPV4 | has::UDP;
        fields.set(at::HAS, &all.to_be_bytes());
        fields.set(at::VLAN_TCI, &[0xe0, 5, 0x6f, 0xff]);
        assert!(one.entries[0].matches(&fields));
        fields.set(at::VLAN_TCI2, &[0x8f, 0xff]);
        assert!(!one.entries[0].matches(&fields));
    }
}
