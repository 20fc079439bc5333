//! What a rule set must keep: every rule by itself, and all of them together.
//!
//! A set that passes has no input twice and no loop: no datagram that comes in can come in again by any way
//! through the rules. Nothing is opened to find out.

use crate::{
    rule::{Full, Input, Output, Rule, RuleId},
    sockets::{InTheWay, Sockets},
    user::in_rule,
};
use laneway_core::PortId;
use laneway_linux::{Cidr, LinkWatch, Links};
use std::{
    borrow::Cow,
    cell::OnceCell,
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
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
    /// The interfaces of a run on a lane without the kernel's routes, of which every input and output names one. None
    /// where routes choose for those that name none.
    pub interfaces: Option<Vec<String>>,
    /// Addresses of the relay's that the kernel may not have: those of a stack of its own, or of a kernel half.
    pub own: Vec<IpAddr>,
    /// Whether the kernel has an address, a link-local one on the interface with this number; asked for few.
    pub is_own: fn(IpAddr, Option<u32>) -> bool,
    /// The interfaces that there are; asked at most once for a set.
    pub links: fn() -> Links,
    /// The workers that rules are spread over, each with sockets of the kernel's; none where inputs are no such
    /// sockets.
    pub socket_workers: usize,
}

impl Default for Policy {
    /// Nothing is allowed, and of the machine's own addresses those are known that every machine has.
    fn default() -> Policy {
        Policy {
            allow: Vec::new(),
            local_groups: false,
            interfaces: None,
            own: Vec::new(),
            is_own: |ip, _| ip.is_loopback(),
            links: Links::default,
            socket_workers: 1,
        }
    }
}

/// Whether the kernel has an address now, a link-local one on the interface with this number: whether a socket can
/// be there.
pub(crate) fn can_bind(ip: IpAddr, interface: Option<u32>) -> bool {
    let at = match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, 0),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, 0, 0, interface.unwrap_or(0)).into(),
    };
    UdpSocket::bind(at).is_ok()
}

/// The interfaces of this thread's network namespace now; none where the kernel does not say.
pub(crate) fn links() -> Links {
    LinkWatch::open().and_then(|watch| watch.look()).unwrap_or_default()
}

/// Where a set of rules is to be in force, as far as a check needs to know.
struct Machine<'a> {
    policy: &'a Policy,
    links: OnceCell<Links>,
}

impl Machine<'_> {
    fn index(&self, interface: &str) -> Option<u32> {
        let links = self.links.get_or_init(self.policy.links);
        links.find(interface).map(|link| link.index)
    }

    /// Whether both are one interface's names: it may have several.
    fn is_one(&self, interface: &str, other: &str) -> bool {
        let index = || self.index(interface);
        interface == other || index().is_some_and(|index| self.index(other) == Some(index))
    }

    /// False where what leaves by `output` is known to be on another link than what comes in by `input`.
    fn may_share_link(&self, output: &Output, input: &Input) -> bool {
        let Some(input) = &input.interface else { return true };
        let by_name = output.interface.as_ref().map(|output| self.is_one(output, input));
        let is_scope = |scope| self.index(input).is_none_or(|index| index == scope);
        let by_scope = scope(output.destination).map(is_scope);
        by_name.or(by_scope).is_none() || by_name == Some(true) || by_scope == Some(true)
    }

    /// Whether an address is ours where `output` is; a link-local one may come with a scope.
    fn is_own(&self, ip: IpAddr, scope: Option<u32>, output: &Output) -> bool {
        let named = || self.index(output.interface.as_deref()?);
        let link = if is_link_local(ip) { scope.or_else(named) } else { None };
        self.policy.own.contains(&ip) || (self.policy.is_own)(ip, link)
    }
}

/// An address that each link has its own of (RFC 4291, section 2.5.6).
fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The interface's number that goes with an address of one link; of other addresses the kernel reads none.
fn scope(to: SocketAddr) -> Option<u32> {
    let SocketAddr::V6(to) = to else { return None };
    let is_of_link = to.ip().is_unicast_link_local()
        || to.ip().is_multicast() && matches!(to.ip().segments()[0] & 0xf, 1 | 2);
    Some(to.scope_id()).filter(|scope| is_of_link && *scope != 0)
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
    let machine = Machine { policy, links: OnceCell::new() };
    for (at, rule) in rules.iter().enumerate() {
        check_rule(at, rule, &machine)?;
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
    no_loop(rules, &machine)
}

fn check_rule(at: usize, rule: &Rule, machine: &Machine<'_>) -> Result<(), RuleError> {
    let wrong = |why: String| Err(refused(at, rule, None, why));
    if rule
        .name
        .as_ref()
        .is_some_and(|name| name.len() > NAME_BYTES_MAX || name.contains(char::is_control))
    {
        return wrong(format!("a name has at most {NAME_BYTES_MAX} bytes, all of them printable"));
    }
    if let Some(why) = wrong_input(&rule.input, machine.policy) {
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
        if let Some(why) = wrong_output(output, rule, machine) {
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
    if let Some(why) = wrong_interface(&input.interface, policy) {
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
        if let Some(why) = wrong_group(group, &input.interface, policy) {
            return Some(why);
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

fn wrong_output(output: &Output, rule: &Rule, machine: &Machine<'_>) -> Option<String> {
    let policy = machine.policy;
    let Output { destination, source, ttl, dscp, when_full, queue_bytes, .. } = output;
    let ip = destination.ip();
    if let Some(why) = wrong_interface(&output.interface, policy) {
        return Some(why);
    }
    if destination.port() == 0 {
        return Some(format!("{destination} has no UDP port; use 1 to 65535"));
    }
    if ip.is_unspecified() || ip == IpAddr::from([255; 4]) {
        return Some(format!("{ip} is neither a host nor a group"));
    }
    if ip.is_multicast() {
        if let Some(why) = wrong_group(ip, &output.interface, policy) {
            return Some(why);
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
        _ => (meets(output, &rule.input, machine))
            .then(|| "it would come in again by the rule's own input, for ever".to_owned()),
    }
}

fn wrong_interface(interface: &Option<String>, policy: &Policy) -> Option<String> {
    let Some(name) = interface else {
        let routes = "the kernel's routes do not count on this lane; name an interface for the input and for every \
                      output, or use lane socket or uring";
        return policy.interfaces.is_some().then(|| routes.to_owned());
    };
    let is_name = (1..=INTERFACE_BYTES_MAX).contains(&name.len())
        && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
    if !is_name {
        return Some(format!("`{}` is no interface's name; `ip link` lists them", begin(name)));
    }
    let there = policy.interfaces.as_ref().filter(|there| !there.contains(name))?;
    Some(format!(
        "the run has no interface `{name}`; it has {}. Start it with `{name}` in --on, or use lane socket or uring",
        there.join(", ")
    ))
}

/// The interface that a machine has for itself.
const LOOPBACK: &str = "lo";

fn wrong_group(group: IpAddr, interface: &Option<String>, policy: &Policy) -> Option<String> {
    // The blocks that routers keep for their own protocols (RFC 5771, section 4; RFC 4291, section 2.7).
    let is_local = match group {
        IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
        IpAddr::V6(group) => {
            let [first, rest @ ..] = group.segments();
            let scope = first & 0xf;
            // Scope 0 is reserved, scope 1 is of one interface: the kernel drops both where they would leave
            // (ip6_finish_output2), and counts them as sent.
            if scope == 0 || scope == 1 && interface.as_deref() != Some(LOOPBACK) {
                let [a, b, c, d, e, f, g] = rest;
                let wider = Ipv6Addr::from([first & 0xfff0 | 5, a, b, c, d, e, f, g]);
                return Some(format!(
                    "{group} has scope {scope}, and nothing of that scope leaves an interface; use a wider one, as {wider}"
                ));
            }
            scope == 2
        }
    };
    (is_local && !policy.local_groups).then(|| {
        format!(
            "{group} belongs to the protocols of one network and is never routed; `local_groups = true` in the file or \
             --local-groups relays it all the same"
        )
    })
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
fn meets(output: &Output, input: &Input, machine: &Machine<'_>) -> bool {
    let ip = output.destination.ip();
    if output.destination.port() != input.port {
        return false;
    }
    match input.destination() {
        Some(group) if group.is_multicast() => group == ip && machine.may_share_link(output, input),
        // What goes to an address of ours never leaves the machine, whichever interface is named.
        Some(any) if any.is_unspecified() => {
            any.is_ipv4() == ip.is_ipv4()
                && !ip.is_multicast()
                && machine.is_own(ip, scope(output.destination), output)
        }
        // A neighbour on another link may have the link-local address that is ours here.
        Some(address) => {
            address == ip && (!is_link_local(ip) || machine.may_share_link(output, input))
        }
        None => false,
    }
}

/// Checks that rules which come send from addresses of ours, where no kernel looks at what is sent. Those in force are
/// not asked again: an address that goes must not keep other changes out.
///
/// # Errors
/// The first source that is none, with its rule and output.
pub(crate) fn check_sources<'a>(
    come: impl IntoIterator<Item = &'a Rule>,
    policy: &Policy,
) -> Result<(), String> {
    if policy.interfaces.is_none() {
        return Ok(());
    }
    let machine = Machine { policy, links: OnceCell::new() };
    for rule in come {
        for output in &rule.outputs {
            let Some(source) = output.source else { continue };
            if !machine.is_own(source, None, output) {
                let why = format!(
                    "output {}: source {source} is no address of ours; leave it out, or begin the run with \
                     --address {source}/BITS@IFACE",
                    output.destination
                );
                return Err(in_rule(rule, why));
            }
        }
    }
    Ok(())
}

/// Refuses every way round, over however many rules.
fn no_loop(rules: &[&Rule], machine: &Machine<'_>) -> Result<(), RuleError> {
    /// How far a rule has been followed.
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Never,
        OnTheWay,
        Through,
    }
    let mut by_port: HashMap<u16, Vec<usize>> = HashMap::new();
    let mut exact: HashMap<(IpAddr, u16), Vec<usize>> = HashMap::new();
    for (at, rule) in rules.iter().enumerate() {
        match rule.input.destination() {
            Some(any) if any.is_unspecified() => {
                by_port.entry(rule.input.port).or_default().push(at)
            }
            Some(ip) => exact.entry((ip, rule.input.port)).or_default().push(at),
            None => {}
        }
    }
    let next = |at: usize| -> Vec<(usize, usize)> {
        let outputs = rules[at].outputs.iter().enumerate();
        let reached = outputs.flat_map(|(i, output)| {
            // Without the scope, which an input's address has none of.
            let (ip, port) = (output.destination.ip(), output.destination.port());
            let exact = exact.get(&(ip, port)).into_iter().flatten();
            let any = by_port.get(&port).into_iter().flatten();
            exact.chain(any).map(move |rule| (i, output, *rule))
        });
        let met = reached.filter(|(_, output, rule)| meets(output, &rules[*rule].input, machine));
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
mod tests;
