//! Rules as people write them, made into rules of the kernel half: names of interfaces become numbers, what is left
//! out gets its value, the next hop its MAC address. What the half cannot do is refused here, with a lane that can.

use super::rule::{KernelOutput, KernelRule, KernelRules};
use crate::{
    rule::{Full, Output, Rule},
    user::in_rule,
};
use laneway_kinds::Own;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

/// An interface of the run.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    /// Its name.
    pub(crate) name: String,
    /// Its number.
    pub(crate) ifindex: u32,
    /// The relay's addresses there; an interface that nothing leaves by needs no address.
    pub(crate) own: Own,
}

/// The ports that outputs are sent from, which no other program on this machine has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourcePorts {
    pub(crate) v4: u16,
    pub(crate) v6: u16,
}

/// Finds the link address of a neighbour on an interface.
pub(crate) type FindHop<'a> = &'a mut dyn FnMut(&str, IpAddr) -> Option<[u8; 6]>;

/// Says whether the half can have these rules, as far as that can be known before the run begins.
///
/// # Errors
/// What it cannot, in one sentence.
pub(crate) fn refuse<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    interfaces: &[String],
    own: &[Own],
) -> Result<(), String> {
    let wires = (1..).zip(interfaces).zip(own);
    let wires =
        wires.map(|((ifindex, name), own)| Wire { name: name.clone(), ifindex, own: own.clone() });
    let ports = SourcePorts { v4: 1, v6: 1 };
    resolve(rules, &wires.collect::<Vec<_>>(), ports, &mut |_, _| Some([0; 6])).map(drop)
}

/// The whole set, in the order of the rules.
///
/// # Errors
/// The first rule that the half cannot have, and why.
pub(crate) fn resolve<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    wires: &[Wire],
    ports: SourcePorts,
    hop: FindHop<'_>,
) -> Result<KernelRules, String> {
    let (mut inputs, mut all) = (HashMap::new(), Vec::new());
    for rule in rules {
        let resolved = one(rule, wires, ports, hop).map_err(|why| in_rule(rule, why))?;
        let input = (resolved.ifindex, resolved.destination, resolved.port);
        if let Some(other) = inputs.insert(input, &rule.input) {
            let why = format!(
                "another rule ({other}) is about the same datagrams from other senders, and lane xdp has one rule \
                 for them; join the two, or use lane socket or uring"
            );
            return Err(in_rule(rule, why));
        }
        all.push(resolved);
    }
    KernelRules::new(all).map_err(|why| why.to_string())
}

fn one(
    rule: &Rule,
    wires: &[Wire],
    ports: SourcePorts,
    hop: FindHop<'_>,
) -> Result<KernelRule, String> {
    let input = &rule.input;
    if rule.bytes_per_second.is_some() {
        return Err(lacks("bytes_per_second"));
    }
    let Some(destination) = input.destination().filter(|ip| !ip.is_unspecified()) else {
        return Err("lane xdp takes what is sent to one group or address, not to any of a `family`; name it by \
                    `address`, or use lane socket or uring"
            .to_owned());
    };
    let wire = wire_of(wires, input.interface.as_deref())?;
    let mut outputs: Vec<KernelOutput> = Vec::with_capacity(rule.outputs.len());
    for output in &rule.outputs {
        let wrong = |why| format!("output {}: {why}", output.destination);
        let resolved = output_of(output, destination, wires, ports, hop).map_err(wrong)?;
        if outputs.iter().any(|other| other.ifindex == resolved.ifindex) {
            let name = output.interface.as_deref().unwrap_or_default();
            return Err(wrong(format!(
                "the rule has another output on `{name}`, and lane xdp sends one copy by each interface; use one \
                 group for both, or lane socket or uring"
            )));
        }
        outputs.push(resolved);
    }
    let sources = input.sources.clone();
    Ok(KernelRule {
        ifindex: wire.ifindex,
        vlan: 0,
        destination,
        port: input.port,
        sources,
        outputs,
    })
}

fn output_of(
    output: &Output,
    input: IpAddr,
    wires: &[Wire],
    ports: SourcePorts,
    hop: FindHop<'_>,
) -> Result<KernelOutput, String> {
    let to: SocketAddr = output.destination;
    let Output { priority, when_full, bytes_per_second, sample, multicast_loop, .. } = output;
    let cannot = [
        (priority.is_some(), "priority"),
        (*when_full != Full::Newest, "when_full = \"oldest\""),
        (bytes_per_second.is_some(), "bytes_per_second"),
        (sample.is_some(), "sample"),
        (*multicast_loop, "multicast_loop"),
    ];
    if let Some((_, key)) = cannot.iter().find(|(is_asked, _)| *is_asked) {
        return Err(lacks(key));
    }
    if to.is_ipv4() != input.is_ipv4() {
        return Err(
            "it is of another family than the input, and lane xdp rewrites within one; use lane socket or uring"
                .to_owned(),
        );
    }
    let wire = wire_of(wires, output.interface.as_deref())?;
    let own = wire.own.addresses.iter().map(|(ip, _)| *ip);
    let own = own.into_iter().find(|ip| ip.is_ipv4() == to.is_ipv4());
    let Some(source_ip) = output.source.or(own) else {
        let (name, bits) = (&wire.name, if to.is_ipv4() { 24 } else { 64 });
        return Err(format!(
            "which address does it leave from? Give the output a `source`, or the run --address ADDR/{bits}@{name}"
        ));
    };
    let next_hop_mac = match to.ip() {
        group if group.is_multicast() => None,
        host => Some(hop(&wire.name, host).ok_or_else(|| unknown_hop(host, &wire.name))?),
    };
    let plan = output.plan();
    Ok(KernelOutput {
        ifindex: wire.ifindex,
        own_mac: wire.own.mac,
        next_hop_mac,
        source_ip,
        source_port: if to.is_ipv4() { ports.v4 } else { ports.v6 },
        destination: to,
        hop_limit: plan.hop_limit.expect("every output's plan has one"),
        dscp: plan.dscp.unwrap_or_default(),
    })
}

fn lacks(key: &str) -> String {
    format!(
        "lane xdp has no `{key}`: its programs keep nothing and send at once; leave it out, or use lane socket"
    )
}

fn unknown_hop(host: IpAddr, interface: &str) -> String {
    format!(
        "the kernel does not know the link address of {host} on `{interface}`, and lane xdp asks no neighbour; \
         `ping -c 1 -I {interface} {host}` first, or use lane socket or uring, which also reach hosts behind a router"
    )
}

fn wire_of<'a>(wires: &'a [Wire], name: Option<&str>) -> Result<&'a Wire, String> {
    let Some(name) = name else {
        return Err("the kernel's routes do not count on lane xdp; name an interface for the input and for every \
                    output, or use lane socket or uring"
            .to_owned());
    };
    wires.iter().find(|wire| wire.name == name).ok_or_else(|| {
        let all: Vec<&str> = wires.iter().map(|wire| &*wire.name).collect();
        let all = all.join(", ");
        format!(
            "the run has no interface `{name}`; it has {all}. Start it with `{name}` in --on, or use lane socket or uring"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wires() -> Vec<Wire> {
        let wire = |(ifindex, name, ip): (u32, &str, &[&str])| Wire {
            name: name.to_owned(),
            ifindex,
            own: Own {
                mac: [2, 0, 0, 0, 0, ifindex as u8],
                addresses: ip.iter().map(|ip| (ip.parse().expect("an address"), 24)).collect(),
                mtu_bytes: None,
            },
        };
        let all: [(u32, &str, &[&str]); 3] = [
            (11, "in0", &[]),
            (12, "out0", &["198.51.100.1", "198.51.100.9", "fd02::1"]),
            (13, "out1", &["203.0.113.1"]),
        ];
        all.map(wire).into()
    }

    fn rules(toml: &str) -> Vec<Rule> {
        crate::RuleFile::from_toml(toml).expect("well formed").rules
    }

    fn resolved(toml: &str) -> Result<KernelRules, String> {
        let mut hop = |name: &str, ip: IpAddr| {
            let is_known = (name, ip) == ("out0", [198, 51, 100, 4].into());
            is_known.then_some([6, 0, 0, 0, 0, 4])
        };
        resolve(&rules(toml), &wires(), SourcePorts { v4: 4000, v6: 6000 }, &mut hop)
    }

    const RULE: &str = "[[rule]]
        input = { interface = 'in0', group = '239.1.1.1', port = 5000, sources = ['192.0.2.7'] }
        outputs = [ { destination = '198.51.100.4:6000', interface = 'out0', dscp = 34 },
                    { destination = '239.2.2.2:5000', interface = 'out1', source = '203.0.113.7', ttl = 4 } ]";

    #[test]
    fn everything_that_a_rule_says_or_leaves_out_has_a_value() {
        let all = resolved(RULE).expect("it can be had");
        let [rule] = all.all() else { panic!("one rule") };
        let of = |output: &KernelOutput| (output.source_ip.to_string(), output.source_port);
        assert_eq!((rule.ifindex, rule.vlan, rule.port), (11, 0, 5000));
        assert_eq!(rule.sources, [IpAddr::from([192, 0, 2, 7])]);
        let [host, group] = &rule.outputs[..] else { panic!("two outputs") };
        assert_eq!(of(host), ("198.51.100.1".to_owned(), 4000), "the first of its family");
        assert_eq!((host.ifindex, host.hop_limit, host.dscp), (12, 64, 34));
        assert_eq!(
            (host.next_hop_mac, host.own_mac),
            (Some([6, 0, 0, 0, 0, 4]), [2, 0, 0, 0, 0, 12])
        );
        assert_eq!(of(group), ("203.0.113.7".to_owned(), 4000));
        assert_eq!((group.ifindex, group.hop_limit, group.dscp), (13, 4, 0));
        assert_eq!(group.next_hop_mac, None);
        let six = "[[rule]]\ninput = { interface = 'in0', group = 'ff15::1', port = 1 }
            outputs = [ { destination = '[ff15::2]:2', interface = 'out0' } ]";
        let all = resolved(six).expect("it can be had");
        assert_eq!(of(&all.all()[0].outputs[0]), ("fd02::1".to_owned(), 6000));
        assert_eq!(all.all()[0].outputs[0].hop_limit, 1);
    }

    #[test]
    fn what_the_half_cannot_do_is_refused_with_a_lane_that_can() {
        for (from, to, parts) in [
            ("dscp = 34", "sample = 3", &["sample", "lane socket"][..]),
            ("dscp = 34", "bytes_per_second = 3", &["bytes_per_second", "lane socket"]),
            ("dscp = 34", "priority = 3", &["priority", "lane socket"]),
            ("dscp = 34", "when_full = 'oldest'", &["when_full = \"oldest\"", "lane socket"]),
            ("dscp = 34", "multicast_loop = true", &["multicast_loop", "lane socket"]),
            ("outputs", "bytes_per_second = 7\noutputs", &["bytes_per_second", "lane socket"]),
            ("interface = 'in0', ", "", &["name an interface", "lane socket"]),
            ("interface = 'out0', ", "", &["198.51.100.4:6000", "name an interface"]),
            ("'in0'", "'eth7'", &["eth7", "in0, out0, out1", "--on"]),
            ("'out1'", "'out0'", &["239.2.2.2:5000", "another output on `out0`", "lane socket"]),
            ("group = '239.1.1.1'", "family = 'ipv4'", &["`address`", "lane socket"]),
            ("198.51.100.4:6000", "198.51.100.5:6000", &["198.51.100.5", "ping", "lane socket"]),
            ("198.51.100.4:6000", "[ff15::2]:6000", &["another family", "lane socket"]),
            ("source = '203.0.113.7', ", "", &[]),
        ] {
            assert!(RULE.contains(from), "{from}");
            let result = resolved(&RULE.replacen(from, to, 1)).map(drop);
            match result {
                Ok(()) => assert!(parts.is_empty(), "{to} is not refused"),
                Err(why) => {
                    assert!(why.starts_with("rule ("), "{why}");
                    assert!(!parts.is_empty(), "{why}");
                    parts.iter().for_each(|part| assert!(why.contains(part), "{part}: {why}"));
                }
            }
        }
        let other = RULE.replace("192.0.2.7", "192.0.2.8");
        let why = resolved(&format!("{RULE}\n{other}")).expect_err("one input, two rules");
        assert!(why.contains("other senders") && why.contains("192.0.2.7"), "{why}");
        let six = "[[rule]]\ninput = { interface = 'in0', group = 'ff15::1', port = 1 }
            outputs = [ { destination = '[ff15::2]:2', interface = 'out1' } ]";
        let why = resolved(six).expect_err("no address of IPv6 there");
        assert!(why.contains("--address ADDR/64@out1"), "{why}");
    }
}
