//! The sockets of the kernel's that rules receive at, and which of them are in another's way.
//!
//! Groups stand beside each other at one UDP port, for each socket there is given a copy. What is sent to a host is
//! given to one socket, so another that might be given it is in the way. Nothing is opened to find out. What must
//! always hold: the time that a set of rules takes grows with their number, however their inputs lie.

use crate::{
    desk::InForce,
    rule::{Input, Rule, RuleId},
};
use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// The socket that an input needs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Socket<'a> {
    bind: SocketAddr,
    interface: Option<&'a str>,
    worker: usize,
}

/// A UDP port, an address there and an interface; none stands for any.
type Site<'a> = (u16, bool, Option<IpAddr>, Option<Option<&'a str>>);

/// Inputs that meet at a site: the first, and the first that another socket is needed for. More need not be known: of
/// two different sockets one is in the way of any third.
type Met<'a> = [Option<(Socket<'a>, usize)>; 2];

/// Inputs, by where their sockets are.
pub(crate) struct Sockets<'a> {
    workers: usize,
    /// Those of groups, and the others.
    by_site: HashMap<Site<'a>, [Met<'a>; 2]>,
}

/// What is in the way of an input.
pub(crate) struct InTheWay {
    /// The number of the input whose socket it is.
    pub(crate) other: usize,
    pub(crate) hint: &'static str,
}

impl<'a> Sockets<'a> {
    /// None yet, of so many workers.
    pub(crate) fn of(workers: usize) -> Sockets<'a> {
        Sockets { workers, by_site: HashMap::new() }
    }

    fn of_input(&self, input: &'a Input) -> Option<Socket<'a>> {
        let worker = RuleId::of(input).worker(self.workers);
        Some(Socket { bind: input.bind()?, interface: input.interface.as_deref(), worker })
    }

    /// One input more, of this number.
    pub(crate) fn add(&mut self, number: usize, input: &'a Input) {
        let Some(socket) = self.of_input(input) else { return };
        let Socket { bind, interface, .. } = socket;
        for ip in [Some(bind.ip()), None] {
            for interface in [Some(interface), None] {
                let site = (bind.port(), bind.is_ipv4(), ip, interface);
                let kinds = self.by_site.entry(site).or_default();
                let [first, another] = &mut kinds[usize::from(input.group.is_none())];
                match first {
                    None => *first = Some((socket, number)),
                    Some((there, _)) if *there != socket && another.is_none() => {
                        *another = Some((socket, number));
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// What is in the way of an input: that of a group is in that of no other group's.
    pub(crate) fn in_the_way_of(&self, input: &'a Input) -> Option<InTheWay> {
        let own = self.of_input(input)?;
        let met = sites_met(&own).into_iter().filter_map(|site| self.by_site.get(&site));
        let inputs = met.flat_map(|[groups, hosts]| {
            let groups = groups.iter().filter(|_| input.group.is_none());
            hosts.iter().chain(groups).flatten()
        });
        let others = inputs.filter(|(socket, _)| *socket != own);
        let (other, number) = others.min_by_key(|(_, number)| *number)?;
        let hint = match other.bind == own.bind {
            true if other.interface == own.interface => {
                "they are one socket's, but two workers'; use one worker, or another UDP port"
            }
            true => "give both the same interface, each one of its own, or another UDP port",
            false => "give each an interface of its own, or another UDP port",
        };
        Some(InTheWay { other: *number, hint })
    }
}

/// The sites whose sockets may be given what is sent to a host and is this one's.
fn sites_met<'a>(Socket { bind, interface, .. }: &Socket<'a>) -> Vec<Site<'a>> {
    let any = if bind.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let addresses = match bind.ip() == any {
        true => vec![None],
        false => vec![Some(bind.ip()), Some(any)],
    };
    let interfaces = match interface {
        None => vec![None],
        Some(_) => vec![Some(*interface), Some(None)],
    };
    let all = addresses.iter().flat_map(|ip| interfaces.iter().map(move |name| (*ip, *name)));
    all.map(|(ip, name)| (bind.port(), bind.is_ipv4(), ip, name)).collect()
}

/// Checks a change from one set of rules to another, both of which passed: the sockets of what comes are opened beside
/// those of what goes.
///
/// # Errors
/// The rule that comes, what is in its way, and that it is to be removed first.
pub(crate) fn check_change(now: &InForce, next: &InForce, workers: usize) -> Result<(), String> {
    let only_in = |set: &'_ InForce, other: &InForce| -> Vec<(RuleId, Arc<Rule>)> {
        let those = set.iter().filter(|(id, rule)| other.get(id) != Some(rule));
        those.map(|(id, rule)| (*id, Arc::clone(rule))).collect()
    };
    let (gone, come) = (only_in(now, next), only_in(next, now));
    let mut sockets = Sockets::of(workers);
    let mut groups = HashMap::new();
    for (number, (_, rule)) in gone.iter().enumerate() {
        sockets.add(number, &rule.input);
        groups.insert((group_of(&rule.input), rule.input.sources.is_empty()), number);
    }
    let hosts = next.values().map(|rule| &rule.input).filter(|input| input.group.is_none());
    let hosts: HashSet<_> = hosts.map(|input| (input.bind(), &input.interface)).collect();
    for (_, rule) in &come {
        let input = &rule.input;
        let (why, other) = if let Some(it) = sockets.in_the_way_of(input) {
            let port = input.port;
            (
                format!("the kernel gives what is sent to a host at UDP port {port} to one socket"),
                it.other,
            )
        } else if let Some(other) = groups.get(&(group_of(input), !input.sources.is_empty()))
            && input.group.is_some()
            && hosts.contains(&(input.bind(), &input.interface))
        {
            // It would get another socket, to which the kernel would give what is sent to hosts, too.
            let why = "the socket that it shares with a rule about hosts hears a group from all senders or from some";
            (why.to_owned(), *other)
        } else {
            continue;
        };
        let (id, other) = (gone[other].0, &gone[other].1.input);
        return Err(format!(
            "rule ({input}): {why}, and it is as rule {id} ({other}) wants until that has gone: remove rule {id} first"
        ));
    }
    Ok(())
}

/// A group where it is received.
fn group_of(input: &Input) -> (Option<IpAddr>, u16, Option<&str>) {
    (input.group, input.port, input.interface.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;
    use proptest::prelude::*;

    /// Whether of two inputs one is in the way of the other: each pair by itself.
    fn is_in_the_way(a: &Input, b: &Input, workers: usize) -> bool {
        let (one, other) = (a.bind().expect("one"), b.bind().expect("one"));
        let meets = one.port() == other.port()
            && one.is_ipv4() == other.is_ipv4()
            && (one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified());
        let is_apart = a.interface != b.interface && a.interface.is_some() && b.interface.is_some();
        let worker = |input| RuleId::of(input).worker(workers);
        let is_one = one == other && a.interface == b.interface && worker(a) == worker(b);
        let are_groups = a.group.is_some() && b.group.is_some();
        meets && !is_apart && !is_one && !are_groups
    }

    fn an_input() -> impl Strategy<Value = Input> {
        let ip = prop::sample::select(vec![
            "239.1.1.1",
            "239.1.1.2",
            "192.0.2.1",
            "192.0.2.2",
            "0.0.0.0",
            "fd00::1",
            "::",
        ]);
        let interface = prop::option::of(prop::sample::select(vec!["eth1", "eth2"]));
        (ip, 1u16..3, interface, 0u8..3).prop_map(|(ip, port, interface, source)| {
            let ip: IpAddr = ip.parse().expect("an address");
            let family = if ip.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
            let source = (source > 0).then(|| IpAddr::from([192, 0, 2, source]));
            Input {
                interface: interface.map(str::to_owned),
                group: Some(ip).filter(IpAddr::is_multicast),
                address: Some(ip).filter(|ip| !ip.is_multicast() && !ip.is_unspecified()),
                family: Some(family).filter(|_| ip.is_unspecified()),
                port,
                sources: source.into_iter().collect(),
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_in_the_way_is_found_as_by_a_look_at_each_pair(
            inputs in prop::collection::vec(an_input(), 1..12),
            last in an_input(),
            workers in 1usize..4,
        ) {
            let mut sockets = Sockets::of(workers);
            for (number, input) in inputs.iter().enumerate() {
                sockets.add(number, input);
            }
            let found = sockets.in_the_way_of(&last).map(|it| it.other);
            let is_right = |other: usize| is_in_the_way(&inputs[other], &last, workers);
            prop_assert!(found.is_none_or(is_right), "{found:?}");
            prop_assert_eq!(found.is_some(), (0..inputs.len()).any(is_right));
        }
    }
}
