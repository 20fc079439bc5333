//! The ports of a datagram stack: which of them a datagram is for, and what leaves through each.
//!
//! A port is found by a hash of the address that a datagram was sent to, however many there are, and
//! one on which nothing moves is never looked at. What must always hold: a plan of which something
//! cannot be had leaves no port; a number that was given is not given again.

use crate::{
    host::{Audience, Host},
    outbox::Books,
    siphash::Keyed,
};
use laneway_core::{CapsReport, Counters, FrameLane, LaneError, PortId, PortPlan, WhenFull};
use laneway_kinds::Places;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// Differentiated services code points have six bits.
const DSCP_MAX: u8 = 63;
/// The first UDP port that is given to an app that asks for any, as on Linux: there are more than ports.
const ANY_PORT_MIN: u16 = 32_768;

/// One port.
pub(crate) struct Port {
    /// Where it receives.
    pub(crate) bound: SocketAddr,
    /// The one interface that it receives from and sends to.
    pub(crate) interface: Option<u8>,
    /// What it sends from, where it is bound to no one address.
    pub(crate) source: Option<IpAddr>,
    pub(crate) hop_limit: Option<u8>,
    /// DSCP and ECN, as headers have them.
    pub(crate) traffic_class: u8,
    /// The groups that it hears, each on an interface, with its senders; if there are none, all that any port
    /// here hears.
    members: HashMap<(u8, IpAddr), Vec<Option<IpAddr>>, Keyed>,
    pub(crate) counters: Counters,
    pub(crate) caps: CapsReport,
}

/// A group on an interface, and its only sender, if it is to have one.
pub(crate) type Heard = (u8, IpAddr, Option<IpAddr>);

impl Port {
    fn hears(&self, interface: u8, group: IpAddr, sender: IpAddr) -> bool {
        self.members.is_empty() || {
            let from = self.members.get(&(interface, group));
            from.is_some_and(|from| from.iter().any(|only| only.is_none_or(|only| only == sender)))
        }
    }

    pub(crate) fn is_member(&self, (interface, group, sender): Heard) -> bool {
        self.members.get(&(interface, group)).is_some_and(|from| from.contains(&sender))
    }

    pub(crate) fn join(&mut self, (interface, group, sender): Heard) {
        self.members.entry((interface, group)).or_default().push(sender);
        self.report_memberships();
    }

    pub(crate) fn leave(&mut self, (interface, group, sender): Heard) {
        if let Some(from) = self.members.get_mut(&(interface, group)) {
            from.retain(|other| *other != sender);
            if from.is_empty() {
                self.members.remove(&(interface, group));
            }
        }
        self.report_memberships();
    }

    /// What it is a member of.
    pub(crate) fn memberships(&self) -> impl Iterator<Item = Heard> {
        let each = self.members.iter();
        each.flat_map(|(&(i, group), from)| from.iter().map(move |sender| (i, group, *sender)))
    }

    fn report_memberships(&mut self) {
        let count: usize = self.members.values().map(Vec::len).sum();
        self.caps.fact("memberships", count);
    }
}

/// A port that may be had, and is not there yet.
pub(crate) struct Ready {
    key: Key,
    port: Port,
}

impl Ready {
    pub(crate) fn port_mut(&mut self) -> &mut Port {
        &mut self.port
    }
}

/// Where a port receives. Several have the same only at a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    interface: Option<u8>,
    address: IpAddr,
    udp_port: u16,
}

/// All ports.
pub(crate) struct Ports {
    places: Places<Port>,
    at: HashMap<Key, Vec<PortId>, Keyed>,
    /// How many are at every address, and how many at one interface: what there is none of is not
    /// searched for.
    everywhere: usize,
    on_one_interface: usize,
    /// Where the search for a free UDP port goes on.
    any_port: u16,
    past: Counters,
}

impl Books for Ports {
    fn of(&mut self, port: PortId) -> Option<&mut Counters> {
        Some(match self.places.get_mut(port) {
            Some(port) => &mut port.counters,
            None => &mut self.past,
        })
    }
}

impl Ports {
    pub(crate) fn new(secret: [u64; 2]) -> Ports {
        Ports {
            places: Places::default(),
            at: HashMap::with_hasher(Keyed(secret)),
            everywhere: 0,
            on_one_interface: 0,
            any_port: ANY_PORT_MIN,
            past: Counters::default(),
        }
    }

    /// The ports, the oldest first.
    pub(crate) fn ids(&self) -> &[PortId] {
        self.places.ports()
    }

    #[inline]
    pub(crate) fn get(&self, port: PortId) -> Option<&Port> {
        self.places.get(port)
    }

    pub(crate) fn get_mut(&mut self, port: PortId) -> Option<&mut Port> {
        self.places.get_mut(port)
    }

    /// What ports have counted that are there no more.
    pub(crate) fn past(&self) -> &Counters {
        &self.past
    }

    /// Adds to it what belongs to no port and was counted at one of them.
    pub(crate) fn retire(&mut self, counters: &Counters) {
        self.past.merge(counters);
    }

    /// Calls `found` with every port that a datagram from `interface` to `destination` is for: the one
    /// that names most of it; of a group, all that hear it from `sender`.
    pub(crate) fn each(
        &self,
        arrived_on: u8,
        (sender, destination): (IpAddr, SocketAddr),
        audience: Audience,
        mut found: impl FnMut(PortId),
    ) {
        let any: IpAddr = match destination {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        for address in [destination.ip(), any] {
            // What is sent to all hosts is for ports that listen at every address.
            if address != any && audience == Audience::Everybody
                || address == any && self.everywhere == 0
            {
                continue;
            }
            for interface in [Some(arrived_on), None] {
                if interface.is_some() && self.on_one_interface == 0 {
                    continue;
                }
                let key = Key { interface, address, udp_port: destination.port() };
                for port in self.at.get(&key).into_iter().flatten() {
                    if audience != Audience::Group {
                        return found(*port);
                    }
                    let hears = |port: &Port| port.hears(arrived_on, destination.ip(), sender);
                    if self.get(*port).is_some_and(hears) {
                        found(*port);
                    }
                }
            }
        }
    }

    /// What a port on `host`, over `lane`, will be.
    pub(crate) fn prepare(
        &mut self,
        lane: &impl FrameLane,
        host: &Host,
        plan: &PortPlan,
    ) -> Result<Ready, LaneError> {
        let asked = Asked { lane: lane.name(), plan };
        asked.check()?;
        if self.places.next().is_none() {
            let why = format!("the worker has {} ports", self.places.len());
            return Err(asked.refused(why, "close some, or use more workers"));
        }
        let interface = match &plan.interface {
            None => None,
            Some(name) => Some(host.interface_named(name).ok_or_else(|| asked.no_interface(name))?),
        };
        let ip = plan.bind.ip();
        if !(ip.is_unspecified() || ip.is_multicast() || host.is_own(ip)) {
            return Err(asked.no_address(ip));
        }
        if let Some(source) = plan.source.filter(|source| !host.is_own(*source)) {
            return Err(asked.no_address(source));
        }
        let bound = match plan.bind.port() {
            0 => SocketAddr::new(
                ip,
                self.free_port(interface, ip).ok_or_else(|| {
                    asked.refused("every UDP port is taken".to_owned(), "name a port")
                })?,
            ),
            _ => plan.bind,
        };
        let key = Key { interface, address: ip, udp_port: bound.port() };
        if self.at.contains_key(&key) && !ip.is_multicast() {
            return Err(LaneError::Busy {
                lane: lane.name().to_owned(),
                name: bound.to_string(),
                why: "another port of the stack has this address".to_owned(),
                hint: "close that one first, or choose another UDP port".to_owned(),
            });
        }
        let preferred = interface.or_else(|| host.interface_of(ip).map(|i| i as u8)).unwrap_or(0);
        let mut caps = lane.caps(PortId(preferred.into())).clone();
        // A thousand ports need not tell a thousand times what their lane is.
        caps.facts.clear();
        caps.label.clone_from(&plan.label);
        caps.fact("listen", bound);
        caps.fact("stack", format!("in user space over lane {}", lane.name()));
        asked.report(host, &mut caps);
        let port = Port {
            bound,
            interface,
            source: plan.source,
            hop_limit: plan.hop_limit,
            traffic_class: plan.dscp.unwrap_or(0) << 2,
            members: HashMap::with_hasher(*self.at.hasher()),
            counters: Counters::default(),
            caps,
        };
        Ok(Ready { key, port })
    }

    /// Makes it one of ours. Nothing else was by then since it was prepared.
    pub(crate) fn open(&mut self, ready: Ready) -> PortId {
        let Ready { key, port } = ready;
        let id = self.places.insert(port);
        self.at.entry(key).or_default().push(id);
        self.everywhere += usize::from(key.address.is_unspecified());
        self.on_one_interface += usize::from(key.interface.is_some());
        id
    }

    /// Adds what the lane says of itself to the report of a port.
    pub(crate) fn add_facts(&mut self, port: PortId, lane: &CapsReport) {
        if let Some(port) = self.places.get_mut(port) {
            for (name, value) in &lane.facts {
                port.caps.facts.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }

    /// Takes a port out.
    pub(crate) fn close(&mut self, id: PortId) -> Option<Port> {
        let port = self.places.remove(id)?;
        self.places.free(id);
        let Port { bound, interface, .. } = port;
        let key = Key { interface, address: bound.ip(), udp_port: bound.port() };
        if let Some(there) = self.at.get_mut(&key) {
            there.retain(|other| *other != id);
            if there.is_empty() {
                self.at.remove(&key);
            }
        }
        self.everywhere -= usize::from(bound.ip().is_unspecified());
        self.on_one_interface -= usize::from(interface.is_some());
        self.past.merge(&port.counters);
        Some(port)
    }

    /// A UDP port that is free at `ip` on this interface, or on all.
    fn free_port(&mut self, interface: Option<u8>, ip: IpAddr) -> Option<u16> {
        let any: IpAddr = match ip {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        for _ in ANY_PORT_MIN..=u16::MAX {
            let udp_port = self.any_port;
            self.any_port = udp_port.checked_add(1).unwrap_or(ANY_PORT_MIN);
            let is_taken = [(None, ip), (None, any), (interface, ip), (interface, any)]
                .into_iter()
                .any(|(interface, address)| {
                    self.at.contains_key(&Key { interface, address, udp_port })
                });
            if !is_taken {
                return Some(udp_port);
            }
        }
        None
    }
}

/// A plan, and the lane that is asked.
struct Asked<'a> {
    lane: &'a str,
    plan: &'a PortPlan,
}

impl Asked<'_> {
    fn refused(&self, why: String, hint: &str) -> LaneError {
        LaneError::Refused {
            lane: self.lane.to_owned(),
            name: self.plan.bind.to_string(),
            why,
            hint: hint.to_owned(),
        }
    }

    fn no_interface(&self, name: &str) -> LaneError {
        LaneError::NotFound {
            lane: self.lane.to_owned(),
            what: "interface",
            name: name.to_owned(),
            hint: "a stack has the interfaces that its lane was opened with; name it when the run \
                   begins"
                .to_owned(),
        }
    }

    fn no_address(&self, address: IpAddr) -> LaneError {
        LaneError::NotFound {
            lane: self.lane.to_owned(),
            what: "local address",
            name: address.to_string(),
            hint: "a stack has the addresses that it was given when the run began".to_owned(),
        }
    }

    /// What contradicts itself, or what only a queue in the kernel has.
    fn check(&self) -> Result<(), LaneError> {
        let PortPlan { bind, memberships, source, hop_limit, dscp, priority, when_full, .. } =
            self.plan;
        let refused = |why: String, hint: &str| Err(self.refused(why, hint));
        const KERNEL: &str = "leave it out, or use a lane of kernel sockets";
        if let Some(dscp) = dscp.filter(|dscp| *dscp > DSCP_MAX) {
            let why = format!("DSCP {dscp} has more than six bits");
            return refused(why, "use 0 to 63; expedited forwarding is 46");
        }
        if *hop_limit == Some(0) {
            return refused("nothing leaves with a hop limit of 0".to_owned(), "use 1 to 255");
        }
        if let Some(priority) = priority {
            let why = format!("its frames share one queue, and priority {priority} is one's own");
            return refused(why, KERNEL);
        }
        if let WhenFull::Oldest { bytes } = when_full {
            let why = format!("it keeps nothing for later, and a queue of {bytes} bytes does");
            return refused(why, KERNEL);
        }
        let is_of_one_host = !bind.ip().is_unspecified() && !bind.ip().is_multicast();
        if !memberships.is_empty() && is_of_one_host {
            let why = "a port at the address of one host receives no group".to_owned();
            return refused(why, "bind to the group, or to all addresses");
        }
        let Some(source) = source.filter(|source| *source != bind.ip()) else { return Ok(()) };
        if source.is_ipv4() != bind.is_ipv4() {
            let why = format!("source {source} is of the other family");
            return refused(why, "give a source of the address's own family");
        }
        if is_of_one_host {
            let why = format!("what leaves from it cannot come from {source}");
            return refused(why, "bind to the source, or to all addresses");
        }
        Ok(())
    }

    /// What was granted.
    fn report(&self, host: &Host, caps: &mut CapsReport) {
        let PortPlan { interface, hop_limit, dscp, rcvbuf_bytes, sndbuf_bytes, .. } = self.plan;
        if let Some(name) = interface {
            caps.fact("interface", name);
        }
        if let Some(hops) = hop_limit {
            caps.fact("ttl", hops);
        }
        if let Some(dscp) = dscp {
            caps.fact("dscp", dscp);
        }
        if rcvbuf_bytes.is_some() {
            caps.fact("rcvbuf_bytes", "those of the interface's ring, for all ports together");
        }
        if sndbuf_bytes.is_some() {
            caps.fact("sndbuf_bytes", host.outbox.bytes());
        }
    }
}
