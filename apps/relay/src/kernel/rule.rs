//! Rules as the kernel half takes them: everything is resolved, nothing is looked up later.

use laneway_core::PortMask;
use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
};

/// Rules in force at a time.
pub const KERNEL_RULES_MAX: usize = 10_000;
/// Outputs of all rules together.
pub const KERNEL_OUTPUTS_MAX: usize = 65_536;
/// Sources of all rules together.
pub const KERNEL_SOURCES_MAX: usize = 65_536;
/// Sets of interfaces that rules send to: rules with outputs on the same interfaces share one.
pub const KERNEL_EXITS_MAX: usize = 512;
/// Outputs of a rule, each on an interface of its own: as many as a lane has.
pub const KERNEL_OUTPUTS_OF_RULE_MAX: usize = PortMask::PORTS_MAX;

/// The highest class of service (RFC 2474).
const DSCP_MAX: u8 = 63;
/// The highest number of a VLAN (802.1Q).
const VLAN_MAX: u16 = 4094;

/// A rule: which datagrams, and what becomes of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRule {
    /// The interface that they come in by.
    pub ifindex: u32,
    /// The VLAN that their frames are tagged with; 0 for none. Their outputs carry the same tag.
    pub vlan: u16,
    /// The group or address that they are sent to.
    pub destination: IpAddr,
    /// The port that they are sent to.
    pub port: u16,
    /// The senders whose datagrams are taken; all, if there are none.
    pub sources: Vec<IpAddr>,
    /// Where they go, one output per interface.
    pub outputs: Vec<KernelOutput>,
}

/// An output of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelOutput {
    /// The interface that it leaves by.
    pub ifindex: u32,
    /// That interface's MAC address, from which frames are sent.
    pub own_mac: [u8; 6],
    /// The MAC address of the next hop; none for a group, whose address follows from its own.
    pub next_hop_mac: Option<[u8; 6]>,
    /// The address that datagrams are sent from.
    pub source_ip: IpAddr,
    /// The port that they are sent from.
    pub source_port: u16,
    /// Where they are sent to.
    pub destination: SocketAddr,
    /// Their time to live or hop limit, whatever it was.
    pub hop_limit: u8,
    /// Their class of service, whatever it was; without ECN, as a datagram begins here.
    pub dscp: u8,
}

impl KernelOutput {
    /// The MAC address that frames are sent to.
    pub(super) fn destination_mac(&self) -> Option<[u8; 6]> {
        self.next_hop_mac.or_else(|| group_mac(self.destination.ip()))
    }
}

/// The MAC address of a group (RFC 1112, RFC 2464); none for what is no group.
fn group_mac(ip: IpAddr) -> Option<[u8; 6]> {
    match ip {
        IpAddr::V4(ip) if ip.is_multicast() => {
            let [_, b, c, d] = ip.octets();
            Some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(ip) if ip.is_multicast() => {
            let [.., a, b, c, d] = ip.octets();
            Some([0x33, 0x33, a, b, c, d])
        }
        _ => None,
    }
}

/// Why the kernel half cannot have a set of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelRefused {
    /// What one rule says cannot be.
    #[error("rule for {destination} on interface {ifindex}: {why}")]
    Rule {
        /// Its interface.
        ifindex: u32,
        /// Its destination and port.
        destination: SocketAddr,
        /// What is wrong, and what to try.
        why: String,
    },
    /// There is too much of something.
    #[error("{have} {what} are too many for lane xdp; use {max} at most, or another lane")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        have: usize,
        /// How much there may be.
        max: usize,
    },
}

/// A set of rules that the kernel half can have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelRules(Vec<KernelRule>);

impl KernelRules {
    /// Checks rules.
    ///
    /// # Errors
    /// [`KernelRefused`], with the first thing that is wrong.
    pub fn new(rules: Vec<KernelRule>) -> Result<KernelRules, KernelRefused> {
        let all = |count: fn(&KernelRule) -> usize| rules.iter().map(count).sum();
        limit("rules", rules.len(), KERNEL_RULES_MAX)?;
        limit("outputs", all(|rule| rule.outputs.len()), KERNEL_OUTPUTS_MAX)?;
        limit("sources", all(|rule| rule.sources.len()), KERNEL_SOURCES_MAX)?;
        let mut inputs = HashMap::with_capacity(rules.len());
        let mut exits = HashSet::new();
        for (at, rule) in rules.iter().enumerate() {
            let wrong = |why: String| KernelRefused::Rule {
                ifindex: rule.ifindex,
                destination: SocketAddr::new(rule.destination, rule.port),
                why,
            };
            check(rule).map_err(wrong)?;
            let input = (rule.ifindex, rule.vlan, rule.destination, rule.port);
            if let Some(first) = inputs.insert(input, at) {
                let why = format!("rules {first} and {at} ask for the same datagrams; join them");
                return Err(wrong(why));
            }
            exits.insert(interfaces(rule));
        }
        limit("different sets of output interfaces", exits.len(), KERNEL_EXITS_MAX)?;
        Ok(KernelRules(rules))
    }

    /// The rules, as they were given.
    pub fn all(&self) -> &[KernelRule] {
        &self.0
    }

    pub(super) fn into_all(self) -> Vec<KernelRule> {
        self.0
    }
}

/// The interfaces of a rule's outputs, in one order for all rules.
pub(super) fn interfaces(rule: &KernelRule) -> Vec<u32> {
    let mut all: Vec<u32> = rule.outputs.iter().map(|output| output.ifindex).collect();
    all.sort_unstable();
    all
}

fn limit(what: &'static str, have: usize, max: usize) -> Result<(), KernelRefused> {
    if have > max { Err(KernelRefused::TooMany { what, have, max }) } else { Ok(()) }
}

fn check(rule: &KernelRule) -> Result<(), String> {
    let is_v6 = rule.destination.is_ipv6();
    if rule.port == 0 {
        return Err("port 0 is no port; use 1 to 65535".to_owned());
    }
    if rule.vlan > VLAN_MAX {
        return Err(format!("there is no VLAN {}; use 0 for none, or up to {VLAN_MAX}", rule.vlan));
    }
    if let Some(source) = rule.sources.iter().find(|source| source.is_ipv6() != is_v6) {
        return Err(format!("source {source} is of another family than the rule"));
    }
    if !(1..=KERNEL_OUTPUTS_OF_RULE_MAX).contains(&rule.outputs.len()) {
        let (have, max) = (rule.outputs.len(), KERNEL_OUTPUTS_OF_RULE_MAX);
        return Err(format!("it has {have} outputs; lane xdp has 1 to {max}"));
    }
    if let Some(twice) = interfaces(rule).windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!(
            "it has two outputs on interface {}; lane xdp has one output per interface and rule, the others \
             have more",
            twice[0]
        ));
    }
    for output in &rule.outputs {
        let to = output.destination;
        if to.is_ipv6() != is_v6 || output.source_ip.is_ipv6() != is_v6 {
            return Err(format!(
                "output {to} from {} is of another family than the rule; lane xdp rewrites within one, \
                 lanes socket and uring between both",
                output.source_ip
            ));
        }
        if to.port() == 0 {
            return Err(format!("output {to} has port 0; use 1 to 65535"));
        }
        if output.destination_mac().is_none() {
            return Err(format!("output {to} is no group, so it needs the MAC of its next hop"));
        }
        if output.hop_limit == 0 {
            return Err(format!("output {to} has TTL 0, so it goes nowhere; use 1 to 255"));
        }
        if output.dscp > DSCP_MAX {
            return Err(format!("output {to} has DSCP {}; use 0 to {DSCP_MAX}", output.dscp));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A rule that may be: from this port of a group to outputs on these interfaces.
    pub(in crate::kernel) fn rule(port: u16, interfaces: &[u32]) -> KernelRule {
        let output = |ifindex: &u32| KernelOutput {
            ifindex: *ifindex,
            own_mac: [2, 0, 0, 0, 0, *ifindex as u8],
            next_hop_mac: None,
            source_ip: "192.0.2.1".parse().expect("an address"),
            source_port: 7,
            destination: "239.2.2.2:6000".parse().expect("an address"),
            hop_limit: 4,
            dscp: 34,
        };
        KernelRule {
            ifindex: 1,
            vlan: 0,
            destination: "239.1.1.1".parse().expect("an address"),
            port,
            sources: Vec::new(),
            outputs: interfaces.iter().map(output).collect(),
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_value_and_what_to_try() {
        let refused = |change: &dyn Fn(&mut KernelRule)| {
            let mut rule = rule(5000, &[2, 3]);
            change(&mut rule);
            KernelRules::new(vec![rule]).unwrap_err().to_string()
        };
        let v6 = || "2001:db8::1".parse().expect("an address");
        for (refused, want) in [
            (refused(&|r| r.port = 0), "port 0"),
            (refused(&|r| r.vlan = 4095), "no VLAN 4095"),
            (refused(&|r| r.sources = vec![v6()]), "source 2001:db8::1 is of another family"),
            (refused(&|r| r.outputs.clear()), "0 outputs"),
            (refused(&|r| r.outputs[0].ifindex = 3), "two outputs on interface 3"),
            (refused(&|r| r.outputs[0].source_ip = v6()), "lanes socket and uring"),
            (refused(&|r| r.outputs[0].destination.set_port(0)), "port 0"),
            (
                refused(&|r| r.outputs[0].destination.set_ip([192, 0, 2, 9].into())),
                "192.0.2.9:6000 is no group, so it needs the MAC",
            ),
            (refused(&|r| r.outputs[1].hop_limit = 0), "TTL 0"),
            (refused(&|r| r.outputs[1].dscp = 64), "DSCP 64"),
        ] {
            assert!(refused.contains(want), "{refused}");
            assert!(refused.contains("239.1.1.1:") && refused.contains("interface 1"), "{refused}");
        }
        let twice = KernelRules::new(vec![rule(1, &[2]), rule(2, &[2]), rule(1, &[3])]);
        assert!(twice.unwrap_err().to_string().contains("rules 0 and 2 ask for the same"));
    }

    #[test]
    fn limits_have_names() {
        let many = (1..=KERNEL_EXITS_MAX as u32 + 1).map(|at| rule(at as u16, &[at, 70_000]));
        let refused = KernelRules::new(many.collect()).unwrap_err().to_string();
        assert!(refused.contains("513 different sets of output interfaces"), "{refused}");
        let many = vec![rule(1, &[2]); KERNEL_RULES_MAX + 1];
        let refused = KernelRules::new(many).unwrap_err().to_string();
        assert!(refused.contains("10001 rules are too many"), "{refused}");
    }

    #[test]
    fn the_mac_of_a_group_follows_from_its_address() {
        let mac = |ip: &str| group_mac(ip.parse().expect("an address"));
        assert_eq!(mac("239.129.2.3"), Some([1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(mac("ff3e::8001:203"), Some([0x33, 0x33, 0x80, 1, 2, 3]));
        assert_eq!((mac("192.0.2.1"), mac("2001:db8::1")), (None, None));
    }
}
