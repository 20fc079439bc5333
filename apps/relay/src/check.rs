//! What a rule set must keep: every rule by itself, and all of them together.
//!
//! A set that passes has no input twice and no loop: no datagram that comes in can come in again by any way
//! through the rules. Nothing is opened to find out.

use crate::{
    rule::{Full, Input, Output, Rule, RuleId},
    sockets::{InTheWay, Sockets},
};
use laneway_core::PortId;
use laneway_linux::Cidr;
use std::{
    borrow::Cow,
    collections::HashMap,
    net::{IpAddr, SocketAddr, UdpSocket},
};

/// Rules of a set.
pub const RULES_MAX: usize = 10_000;
/// Outputs of a rule.
pub const OUTPUTS_MAX: usize = 1_024;
/// Sources of an input. Where they are more than a socket may list for a group (`net.ipv4.igmp_max_msf`), several do.
pub const SOURCES_MAX: usize = 64;
/// Bytes of a rule's name.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// Bytes of an interface's name (`IFNAMSIZ` less its end).
const INTERFACE_BYTES_MAX: usize = 15;
/// Bytes that an output may keep waiting.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;

/// What is permitted beside the rules. It comes from the user that starts the relay, never over the control socket.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The networks whose hosts may be sent to. A relay sends many times what it receives, so hosts that are
    /// not named are not sent to; groups need no permission.
    pub allow: Vec<Cidr>,
    /// Groups of 224.0.0.0/24 and ff02::/16, which routers and their protocols use, may be relayed.
    pub local_groups: bool,
    /// Whether an address is this machine's own; asked for few.
    pub is_own: fn(IpAddr) -> bool,
    /// The workers that rules are spread over, each with sockets of the kernel's; none where inputs are no such
    /// sockets.
    pub socket_workers: usize,
}

impl Default for Policy {
    /// Nothing is allowed, and of the machine's own addresses those are known that every machine has.
    fn default() -> Policy {
        let is_own = |ip: IpAddr| ip.is_loopback();
        Policy { allow: Vec::new(), local_groups: false, is_own, socket_workers: 1 }
    }
}

/// Whether this machine has an address now: whether a socket can be there.
pub(crate) fn can_bind(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Why a rule set is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct RuleError {
    /// Which rule of those that were looked at, from 0; none for all together.
    pub at: Option<usize>,
    place: String,
    why: String,
}

/// A name as far as a message has room for it.
fn begin(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(NAME_BYTES_MAX) {
        Some((at, _)) => format!("{}...", &name[..at]).into(),
        None => name.into(),
    }
}

fn refused(at: usize, rule: &Rule, output: Option<usize>, why: impl Into<String>) -> RuleError {
    let called = rule.name.as_ref().map_or_else(String::new, |name| format!(" `{}`", begin(name)));
    let output = output.map_or_else(String::new, |output| format!(", output {}", output + 1));
    let place = format!("rule {}{called} ({}){output}", at + 1, rule.input);
    RuleError { at: Some(at), place, why: why.into() }
}

/// Checks a whole set.
///
/// # Errors
/// The first thing that is wrong, with the rule, the value and what to try.
pub fn check(rules: &[&Rule], policy: &Policy) -> Result<(), RuleError> {
    let whole = |why| Err(RuleError { at: None, place: "the rules".to_owned(), why });
    if rules.len() > RULES_MAX {
        return whole(format!(
            "{} are more than {RULES_MAX}; split them over two relays",
            rules.len()
        ));
    }
    for (at, rule) in rules.iter().enumerate() {
        check_rule(at, rule, policy)?;
    }
    no_input_twice(rules)?;
    if policy.socket_workers > 0 {
        no_socket_in_the_way(rules, policy.socket_workers)?;
    }
    let ports = rules.iter().map(|rule| 1 + rule.outputs.len()).sum::<usize>();
    if ports > PortId::OPEN_MAX {
        return whole(format!(
            "their inputs and outputs are {ports} sockets, and a relay has {}; split them over two relays",
            PortId::OPEN_MAX
        ));
    }
    no_loop(rules, policy)
}

fn check_rule(at: usize, rule: &Rule, policy: &Policy) -> Result<(), RuleError> {
    let wrong = |why: String| Err(refused(at, rule, None, why));
    if rule
        .name
        .as_ref()
        .is_some_and(|name| name.len() > NAME_BYTES_MAX || name.contains(char::is_control))
    {
        return wrong(format!("a name has at most {NAME_BYTES_MAX} bytes, all of them printable"));
    }
    if let Some(why) = wrong_input(&rule.input, policy) {
        return wrong(why);
    }
    if rule.bytes_per_second == Some(0) {
        return wrong("bytes_per_second = 0 relays nothing; leave it out for no limit".to_owned());
    }
    match rule.outputs.len() {
        0 => return wrong("it has no outputs; give it one, or remove it".to_owned()),
        n if n > OUTPUTS_MAX => return wrong(format!("{n} outputs are more than {OUTPUTS_MAX}")),
        _ => {}
    }
    for (i, output) in rule.outputs.iter().enumerate() {
        if let Some(why) = wrong_output(output, rule, policy) {
            return Err(refused(at, rule, Some(i), why));
        }
    }
    let mut seen = HashMap::with_capacity(rule.outputs.len());
    for (i, output) in rule.outputs.iter().enumerate() {
        if let Some(first) = seen.insert((output.destination, &output.interface), i) {
            let why = format!(
                "output {} sends to {} as well; name it once",
                first + 1,
                output.destination
            );
            return Err(refused(at, rule, Some(i), why));
        }
    }
    Ok(())
}

fn wrong_input(input: &Input, policy: &Policy) -> Option<String> {
    if let Some(why) = wrong_interface(&input.interface) {
        return Some(why);
    }
    let Some(destination) = input.destination() else {
        return Some(
            "say where datagrams are sent to: one of `group`, `address` and `family` (any address of ours)"
                .to_owned(),
        );
    };
    if input.port == 0 {
        return Some("nothing is sent to UDP port 0; use 1 to 65535".to_owned());
    }
    if let Some(group) = input.group {
        if !group.is_multicast() {
            return Some(format!(
                "{group} is no group (224.0.0.0/4, ff00::/8); for an address of ours use `address`"
            ));
        }
        if is_local_group(group) && !policy.local_groups {
            return Some(local_group(group));
        }
    }
    if let Some(address) = input.address.filter(|ip| ip.is_multicast() || ip.is_unspecified()) {
        let instead = if address.is_multicast() { "`group`" } else { "`family`" };
        return Some(format!("{address} is no host's address; use {instead} for it"));
    }
    if input.sources.len() > SOURCES_MAX {
        let n = input.sources.len();
        return Some(format!(
            "{n} sources are more than {SOURCES_MAX}; leave them out to relay all"
        ));
    }
    for (i, source) in input.sources.iter().enumerate() {
        if source.is_ipv4() != destination.is_ipv4() {
            return Some(format!("source {source} is not of the family of {destination}"));
        }
        if source.is_multicast() || source.is_unspecified() {
            return Some(format!("source {source} is no host's address"));
        }
        if input.sources[..i].contains(source) {
            return Some(format!("source {source} is there twice"));
        }
    }
    None
}

fn wrong_output(output: &Output, rule: &Rule, policy: &Policy) -> Option<String> {
    let Output { destination, source, ttl, dscp, when_full, queue_bytes, .. } = output;
    let ip = destination.ip();
    if let Some(why) = wrong_interface(&output.interface) {
        return Some(why);
    }
    if destination.port() == 0 {
        return Some(format!("{destination} has no UDP port; use 1 to 65535"));
    }
    if ip.is_unspecified() || ip == IpAddr::from([255; 4]) {
        return Some(format!("{ip} is neither a host nor a group"));
    }
    if ip.is_multicast() {
        if is_local_group(ip) && !policy.local_groups {
            return Some(local_group(ip));
        }
    } else if !policy.allow.iter().any(|network| holds(*network, ip)) {
        return Some(format!(
            "{ip} is in no network that may be sent to; a relay multiplies traffic, so allow its hosts by \
             `allow = [\"{ip}/{}\"]` in the file or --allow",
            if ip.is_ipv4() { 32 } else { 128 }
        ));
    }
    if let Some(source) = source.filter(|source| source.is_ipv4() != ip.is_ipv4()) {
        return Some(format!("source {source} is not of the family of {destination}"));
    }
    if let Some(source) = source.filter(|ip| ip.is_multicast() || ip.is_unspecified()) {
        return Some(format!(
            "source {source} is no host's address; leave it out for the interface's own"
        ));
    }
    if *ttl == Some(0) {
        return Some("nothing leaves with a TTL of 0; use 1 to 255".to_owned());
    }
    if let Some(dscp) = dscp.filter(|dscp| *dscp > 63) {
        return Some(format!("DSCP {dscp} has more than six bits; use 0 to 63"));
    }
    if output.bytes_per_second == Some(0) {
        return Some("bytes_per_second = 0 sends nothing; leave it out for no limit".to_owned());
    }
    match (when_full, queue_bytes) {
        (Full::Newest, Some(_)) => Some(
            "queue_bytes goes with when_full = \"oldest\": newest keeps nothing waiting".to_owned(),
        ),
        (Full::Oldest, Some(bytes)) if !(1..=QUEUE_BYTES_MAX).contains(bytes) => {
            Some(format!("a queue of {bytes} bytes; use 1 to {QUEUE_BYTES_MAX}"))
        }
        _ => (meets(output, &rule.input, policy))
            .then(|| "it would come in again by the rule's own input, for ever".to_owned()),
    }
}

fn wrong_interface(interface: &Option<String>) -> Option<String> {
    let name = interface.as_ref()?;
    let is_name = (1..=INTERFACE_BYTES_MAX).contains(&name.len())
        && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
    (!is_name).then(|| format!("`{}` is no interface's name; `ip link` lists them", begin(name)))
}

/// The blocks that routers keep for their own protocols (RFC 5771, section 4; RFC 4291, section 2.7).
fn is_local_group(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
        IpAddr::V6(group) => group.segments()[0] & 0xff0f == 0xff02,
    }
}

fn local_group(group: IpAddr) -> String {
    format!(
        "{group} belongs to the protocols of one network and is never routed; `local_groups = true` in the file or \
         --local-groups relays it all the same"
    )
}

/// Whether an address lies in a network.
fn holds(network: Cidr, ip: IpAddr) -> bool {
    fn alike<const N: usize>(a: [u8; N], b: [u8; N], bits: usize) -> bool {
        let (whole, rest) = (bits / 8, bits % 8);
        a[..whole] == b[..whole] && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0)
    }
    let bits = network.prefix_bits().into();
    match (network.address(), ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => alike(network.octets(), ip.octets(), bits),
        (IpAddr::V6(network), IpAddr::V6(ip)) => alike(network.octets(), ip.octets(), bits),
        _ => false,
    }
}

/// Two rules may be about one group where each has sources of its own.
fn no_input_twice(rules: &[&Rule]) -> Result<(), RuleError> {
    let mut seen: HashMap<_, Vec<usize>> = HashMap::new();
    let mut ids = HashMap::new();
    for (at, rule) in rules.iter().enumerate() {
        let input = &rule.input;
        let others = seen.entry((input.destination(), input.port)).or_default();
        let is_same = |other: &usize| {
            let Input { interface, sources, .. } = &rules[*other].input;
            let is_apart =
                interface.is_some() && input.interface.is_some() && *interface != input.interface;
            let is_another = !sources.is_empty()
                && !input.sources.is_empty()
                && sources.iter().all(|source| !input.sources.contains(source));
            !is_apart && !is_another
        };
        if let Some(other) = others.iter().copied().find(is_same) {
            let why = format!(
                "rule {} has this input already; put all outputs into one rule, or give each its own sources",
                other + 1
            );
            return Err(refused(at, rule, None, why));
        }
        others.push(at);
        if let Some(other) = ids.insert(RuleId::of(input), at) {
            let why = format!(
                "its id is that of rule {} by chance; change the order of nothing, but its \
                               interface or sources",
                other + 1
            );
            return Err(refused(at, rule, None, why));
        }
    }
    Ok(())
}

fn no_socket_in_the_way(rules: &[&Rule], workers: usize) -> Result<(), RuleError> {
    let mut sockets = Sockets::of(workers);
    for (at, rule) in rules.iter().enumerate() {
        let input = &rule.input;
        if let Some(InTheWay { other, hint }) = sockets.in_the_way_of(input) {
            let why = format!(
                "the kernel gives what is sent to a host at UDP port {} to one socket, and rule {} ({}) wants it too: \
                 {hint}",
                input.port,
                other + 1,
                rules[other].input
            );
            return Err(refused(at, rule, None, why));
        }
        sockets.add(at, input);
    }
    Ok(())
}

/// Whether what leaves by `output` may come in by `input`, as far as can be known without opening either.
fn meets(output: &Output, input: &Input, policy: &Policy) -> bool {
    let ip = output.destination.ip();
    if output.destination.port() != input.port {
        return false;
    }
    let is_same_interface = match (&output.interface, &input.interface) {
        (Some(output), Some(input)) => output == input,
        _ => true,
    };
    match input.destination() {
        Some(group) if group.is_multicast() => group == ip && is_same_interface,
        // What goes to an address of ours never leaves the machine, whichever interface is named.
        Some(any) if any.is_unspecified() => {
            any.is_ipv4() == ip.is_ipv4() && !ip.is_multicast() && (policy.is_own)(ip)
        }
        Some(address) => address == ip,
        None => false,
    }
}

/// Refuses every way round, over however many rules.
fn no_loop(rules: &[&Rule], policy: &Policy) -> Result<(), RuleError> {
    /// How far a rule has been followed.
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Never,
        OnTheWay,
        Through,
    }
    let mut by_port: HashMap<u16, Vec<usize>> = HashMap::new();
    let mut exact: HashMap<SocketAddr, Vec<usize>> = HashMap::new();
    for (at, rule) in rules.iter().enumerate() {
        match rule.input.destination() {
            Some(any) if any.is_unspecified() => {
                by_port.entry(rule.input.port).or_default().push(at)
            }
            Some(ip) => exact.entry(SocketAddr::new(ip, rule.input.port)).or_default().push(at),
            None => {}
        }
    }
    let next = |at: usize| -> Vec<(usize, usize)> {
        let outputs = rules[at].outputs.iter().enumerate();
        let reached = outputs.flat_map(|(i, output)| {
            let exact = exact.get(&output.destination).into_iter().flatten();
            let any = by_port.get(&output.destination.port()).into_iter().flatten();
            exact.chain(any).map(move |rule| (i, output, *rule))
        });
        let met = reached.filter(|(_, output, rule)| meets(output, &rules[*rule].input, policy));
        met.map(|(i, _, rule)| (i, rule)).collect()
    };
    let mut seen = vec![Seen::Never; rules.len()];
    for start in 0..rules.len() {
        if seen[start] != Seen::Never {
            continue;
        }
        seen[start] = Seen::OnTheWay;
        let mut way = vec![(start, next(start))];
        while let Some((at, ahead)) = way.last_mut() {
            let at = *at;
            match ahead.pop() {
                None => {
                    seen[at] = Seen::Through;
                    way.pop();
                }
                Some((_, rule)) if seen[rule] == Seen::Through => {}
                Some((_, rule)) if seen[rule] == Seen::Never => {
                    seen[rule] = Seen::OnTheWay;
                    way.push((rule, next(rule)));
                }
                Some((output, rule)) => {
                    let why = format!(
                        "what it sends to {} comes in by rule {} and, from there, here again: a loop without end",
                        rules[at].outputs[output].destination,
                        rule + 1
                    );
                    return Err(refused(at, rules[at], Some(output), why));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn rule(text: &str) -> Rule {
        serde_json::from_str(text).expect("well formed")
    }

    fn policy() -> Policy {
        Policy {
            allow: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            local_groups: false,
            is_own: |ip| ip == IpAddr::from([192, 0, 2, 1]),
            socket_workers: 1,
        }
    }

    fn verdict(rules: &[&str]) -> Result<(), String> {
        let rules: Vec<Rule> = rules.iter().map(|text| rule(text)).collect();
        check(&rules.iter().collect::<Vec<_>>(), &policy()).map_err(|why| why.to_string())
    }

    const PLAIN: &str = r#"{"name":"tv","input":{"interface":"eth1","group":"239.1.1.1","port":5000},
        "outputs":[{"destination":"192.0.2.9:6000"},{"destination":"239.2.2.2:5000","interface":"eth3"}]}"#;

    #[test]
    fn what_may_be_passes() {
        assert_eq!(verdict(&[PLAIN]), Ok(()));
        // The same group onto another interface: what a relay is for.
        let across = PLAIN.replace("239.2.2.2:5000", "239.1.1.1:5000");
        assert_eq!(verdict(&[&across]), Ok(()));
        let from =
            |source: &str| PLAIN.replace("5000}", &format!("5000,\"sources\":[\"{source}\"]}}"));
        assert_eq!(verdict(&[&from("192.0.2.7"), &from("192.0.2.8")]), Ok(()));
        assert_eq!(verdict(&[]), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_reported_with_the_place_the_value_and_what_to_try() {
        let edit = |from: &str, to: &str| {
            assert!(PLAIN.contains(from), "{from}");
            PLAIN.replacen(from, to, 1)
        };
        for (text, says) in [
            (
                edit("239.1.1.1", "192.0.2.1"),
                "rule 1 `tv` (192.0.2.1:5000 on eth1): 192.0.2.1 is no group",
            ),
            (edit("239.1.1.1", "224.0.0.5"), "--local-groups"),
            (edit("\"port\":5000", "\"port\":0"), "UDP port 0"),
            (edit("\"group\":\"239.1.1.1\",", ""), "one of `group`, `address` and `family`"),
            (edit("\"group\"", "\"address\""), "use `group` for it"),
            (edit("eth1", "a/b"), "`a/b` is no interface's name"),
            (edit("eth1", "an-interface-name"), "no interface's name"),
            (
                edit("192.0.2.9:6000", "198.51.100.1:6000"),
                "output 1: 198.51.100.1 is in no network",
            ),
            (edit("192.0.2.9:6000", "192.0.2.9:0"), "no UDP port"),
            (edit("192.0.2.9:6000", "0.0.0.0:6000"), "neither a host nor a group"),
            (edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"ttl\":0"), "TTL of 0"),
            (edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"dscp\":64"), "DSCP 64"),
            (edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"source\":\"::1\""), "not of the family"),
            (
                edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"queue_bytes\":1"),
                "when_full = \"oldest\"",
            ),
            (edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"bytes_per_second\":0"), "sends nothing"),
            (
                edit("239.2.2.2:5000\",\"interface\":\"eth3\"", "192.0.2.9:6000\""),
                "output 1 sends to",
            ),
            (
                edit("239.2.2.2:5000\",\"interface\":\"eth3\"", "239.1.1.1:5000\""),
                "output 2: it would come in again",
            ),
            (edit("5000}", "5000,\"sources\":[\"::1\"]}"), "source ::1 is not of the family"),
            (edit("5000}", "5000,\"sources\":[\"192.0.2.7\",\"192.0.2.7\"]}"), "there twice"),
        ] {
            let error = verdict(&[&text]).expect_err(&text);
            assert!(error.contains(says), "{error}");
        }
        let error = verdict(&[PLAIN, PLAIN]).expect_err("twice");
        assert!(
            error.starts_with("rule 2") && error.contains("rule 1 has this input already"),
            "{error}"
        );
    }

    #[test]
    fn a_loop_over_two_rules_and_one_through_an_address_of_ours_are_refused() {
        let there = PLAIN.replace("239.2.2.2:5000", "239.1.1.1:5000");
        let back = r#"{"input":{"interface":"eth3","group":"239.1.1.1","port":5000},
            "outputs":[{"destination":"239.1.1.1:5000","interface":"eth1"}]}"#;
        let error = verdict(&[&there, back]).expect_err("a loop");
        assert!(error.contains("a loop without end"), "{error}");
        let to_us = r#"{"input":{"family":"ipv4","port":6000},"outputs":[{"destination":"192.0.2.1:6000"}]}"#;
        assert!(verdict(&[to_us]).expect_err("ours").contains("come in again"));
        let elsewhere = to_us.replace("192.0.2.1", "192.0.2.2");
        assert_eq!(verdict(&[&elsewhere]), Ok(()), "another machine's");
    }

    #[test]
    fn a_host_and_a_group_at_one_udp_port_share_a_socket_or_are_refused() {
        let inputs = |inputs: [&str; 2], socket_workers| {
            let rules = inputs.map(|input| {
                let input = input.replace('\'', "\"");
                rule(&format!(
                    r#"{{"input":{{{input}}},"outputs":[{{"destination":"239.9.9.9:9"}}]}}"#
                ))
            });
            let policy = Policy { socket_workers, ..policy() };
            let turned = [&rules[1], &rules[0]];
            let both = [check(&[&rules[0], &rules[1]], &policy), check(&turned, &policy)];
            assert_eq!(both[0].is_ok(), both[1].is_ok(), "{inputs:?}: by their order");
            both.into_iter().find_map(Result::err).map(|why| why.to_string())
        };
        let group = "'group':'239.1.1.1','port':5000,'interface':'eth1'";
        let anywhere = "'group':'239.1.1.1','port':5000";
        for (other, says) in [
            ("'address':'192.0.2.1','port':5000", "each an interface of its own"),
            (
                "'address':'192.0.2.1','port':5000,'interface':'eth1'",
                "each an interface of its own",
            ),
            ("'family':'ipv4','port':5000", "both the same interface"),
        ] {
            let why = inputs([group, other], 1).expect(other);
            assert!(why.contains(says) && why.contains("rule 1") && why.contains("5000"), "{why}");
            assert_eq!(inputs([group, other], 0), None, "{other}: no socket of the kernel's");
        }
        for other in [
            "'address':'192.0.2.1','port':5000,'interface':'eth2'",
            "'family':'ipv4','port':5000,'interface':'eth2'",
            "'family':'ipv4','port':5000,'interface':'eth1'",
            "'family':'ipv6','port':5000",
            "'address':'192.0.2.1','port':5001",
            "'group':'239.1.1.2','port':5000",
        ] {
            assert_eq!(inputs([group, other], 1), None, "{other}");
        }
        let family = "'family':'ipv4','port':5000";
        assert_eq!(inputs([anywhere, family], 1), None);
        // Of many workers two rules have two.
        let workers = (2..50).filter(|workers| inputs([anywhere, family], *workers).is_some());
        assert!(workers.count() > 30);
        let address = "'address':'192.0.2.1','port':5000";
        assert!(inputs([family, address], 1).is_some());
    }

    #[test]
    fn networks_hold_their_hosts_alone() {
        let holds = |network: &str, ip: &str| holds(network.parse().unwrap(), ip.parse().unwrap());
        assert!(holds("192.0.2.0/24", "192.0.2.255") && !holds("192.0.2.0/24", "192.0.3.0"));
        assert!(holds("192.0.2.8/29", "192.0.2.15") && !holds("192.0.2.8/29", "192.0.2.16"));
        assert!(holds("0.0.0.0/0", "8.8.8.8") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("2001:db8::/32", "2001:db8:1::") && !holds("2001:db8::/32", "2001:db9::"));
    }

    /// Few addresses, ports and interfaces, so that rules meet.
    fn random_rule() -> impl Strategy<Value = Rule> {
        let interface = || prop::option::of(prop::sample::select(vec!["eth1", "eth2"]));
        let address =
            || prop::sample::select(vec!["239.1.1.1", "239.1.1.2", "192.0.2.1", "192.0.2.2"]);
        let output = (address(), 1u16..3, interface());
        (address(), 1u16..3, interface(), prop::collection::vec(output, 1..3)).prop_map(
            |(to, port, interface, outputs)| {
                let ip: IpAddr = to.parse().unwrap();
                let (group, address) =
                    if ip.is_multicast() { (Some(ip), None) } else { (None, Some(ip)) };
                let input = Input {
                    interface: interface.map(str::to_owned),
                    group,
                    address,
                    family: None,
                    port,
                    sources: Vec::new(),
                };
                let outputs = outputs.into_iter().map(|(to, port, interface)| {
                    let mut output = rule(PLAIN).outputs.remove(0);
                    output.destination = SocketAddr::new(to.parse().unwrap(), port);
                    output.interface = interface.map(str::to_owned);
                    output
                });
                Rule { name: None, input, outputs: outputs.collect(), bytes_per_second: None }
            },
        )
    }

    proptest! {
        #[test]
        fn in_a_set_that_passes_nothing_goes_round(rules in prop::collection::vec(random_rule(), 1..6)) {
            let all: Vec<&Rule> = rules.iter().collect();
            let passes = check(&all, &policy()).is_ok();
            // Another way of finding out: send a datagram into each input and follow every copy. Without a loop
            // no copy has gone through more rules than there are.
            let mut goes_round = false;
            for first in 0..all.len() {
                let mut copies = VecDeque::from([(first, 0)]);
                while let Some((at, rules)) = copies.pop_front() {
                    if rules > all.len() {
                        goes_round = true;
                        break;
                    }
                    for output in &all[at].outputs {
                        let to = output.destination;
                        for (i, other) in all.iter().enumerate() {
                            let input = &other.input;
                            let there = input.group.or(input.address) == Some(to.ip()) && input.port == to.port();
                            let wire = !to.ip().is_multicast()
                                || output.interface.is_none()
                                || input.interface.is_none()
                                || output.interface == input.interface;
                            if there && wire {
                                copies.push_back((i, rules + 1));
                            }
                        }
                    }
                }
            }
            prop_assert!(!(passes && goes_round), "{rules:?}");
        }
    }
}
