//! What datagram and stream stacks share: our addresses, what a frame is, and where a packet goes.
//!
//! [`Host::sort`] looks at every received frame. It answers by itself what needs no app (ARP, ND,
//! pings), in the frame that asked; what is for an app it hands back as a checked [`Packet`]; all
//! else is passed to the kernel, or dropped and counted. An answer in place goes back to
//! the source MAC address of the frame: no lookup, and nothing remembered.
//!
//! Hosts are weak (RFC 1122, 3.3.4.2): any address of ours is ours on every interface, as on Linux.
//! VLAN-tagged frames are not for us.

use crate::{
    address::{OnLink, group_mac, is_sender, link_local, solicited_node},
    config::StackConfig,
    ip::{self, Header, Packet},
    limit::RateLimit,
    members::Members,
    neighbour::{NeighbourKey, Neighbours},
    outbox::{Books, Hop, Outbox},
    path_mtus::PathMtus,
    report::{self, ALL_HOSTS, IGMP, Query},
};
use laneway_core::{Burst, Counters, DropReason, FrameLane, FrameMut, LaneError, PortId, Verdict};
use laneway_kinds::LinkAddresses;
use laneway_wire::{ETHERNET_BYTES, Ethernet, Mac, ether_type, protocol};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// One interface, as the hot path wants it.
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) mac: Mac,
    pub(crate) mtu_bytes: usize,
    pub(crate) addresses: Vec<OnLink>,
    gateways: Vec<IpAddr>,
    /// When we last defended an address against another host's claim.
    pub(crate) defended_ns: Option<u64>,
}

/// The shared part of a stack.
pub(crate) struct Host {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) members: Members,
    pub(crate) neighbours: Neighbours,
    /// Link addresses that are known elsewhere.
    pub(crate) known: Option<Box<dyn LinkAddresses>>,
    pub(crate) path_mtus: PathMtus,
    pub(crate) outbox: Outbox,
    /// What no port of the stack sent or received.
    pub(crate) counters: Counters,
    /// Events of the link that are no loss.
    pub(crate) events: HostEvents,
    pub(crate) icmp_errors: RateLimit,
    pub(crate) pass_rest: bool,
    pub(crate) answer_echo: bool,
    pub(crate) hop_limit: u8,
    group_hop_limit: u8,
    announced: bool,
}

/// What happened below the apps, counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostEvents {
    /// ARP requests and neighbour solicitations for our addresses that were answered.
    pub solicitations_answered: u64,
    /// ARP requests and neighbour solicitations sent.
    pub solicitations_sent: u64,
    /// Pings answered.
    pub echoes_answered: u64,
    /// ICMP errors sent.
    pub icmp_errors_sent: u64,
    /// ICMP errors held back by the rate limit.
    pub icmp_errors_suppressed: u64,
    /// Messages of a smaller path MTU that were believed.
    pub path_mtus_learned: u64,
    /// Times that another host claimed an address of ours.
    pub address_conflicts: u64,
    /// Resets sent to segments of no connection.
    pub resets_sent: u64,
    /// Resets held back by the rate limit.
    pub resets_suppressed: u64,
    /// Acknowledgements that answered a SYN or a reset which its connection did not take.
    pub challenges_sent: u64,
    /// Such answers held back by their connection's rate limit.
    pub challenges_suppressed: u64,
    /// SYNs answered by a SYN cookie, since too many connections were half-open.
    pub syn_cookies_sent: u64,
    /// SYN cookies that were returned and opened a connection.
    pub syn_cookies_redeemed: u64,
    /// Times that a connection got larger buffers.
    pub buffers_grown: u64,
    /// Packets that reported groups to routers.
    pub group_reports_sent: u64,
    /// Questions of routers about groups.
    pub group_queries_heard: u64,
}

/// The address that a packet for us was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// One of our own addresses.
    Us,
    /// A broadcast address.
    Everybody,
    /// A group that is accepted here.
    Group,
}

/// Why a packet for us is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No listener on that port.
    Port,
    /// No one speaks that protocol here.
    Protocol,
}

/// What a received frame is.
#[derive(Debug)]
pub(crate) enum Sorted {
    /// Dealt with; the verdict is what is left to do.
    Done(Verdict),
    /// UDP or TCP for us, the payload's checksum not looked at yet.
    Transport(Packet, Audience),
    /// A router says that packets of this flow are too long.
    TooBig(Flow, usize),
}

/// Two ends and a protocol, as seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) protocol: u8,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Host {
    /// `config` was checked.
    pub(crate) fn new(config: &StackConfig) -> Host {
        let interfaces = config.interfaces.iter().map(|interface| Interface {
            name: interface.name.clone(),
            mac: interface.mac,
            mtu_bytes: interface.mtu_bytes,
            addresses: interface
                .addresses
                .iter()
                .map(|&(address, prefix_bits)| OnLink { address, prefix_bits })
                .collect(),
            gateways: interface.gateways.clone(),
            defended_ns: None,
        });
        let mut members = Members::new(config.interfaces.len(), config.secret);
        for (i, interface) in config.interfaces.iter().enumerate() {
            for group in &interface.groups {
                members.join(i as u8, *group, None);
            }
        }
        let limits = config.limits;
        let errors = limits.icmp_errors_per_second;
        Host {
            interfaces: interfaces.collect(),
            members,
            neighbours: Neighbours::new(limits, config.secret),
            known: None,
            path_mtus: PathMtus::new(limits, config.secret),
            outbox: Outbox::new(
                config.interfaces.len(),
                limits.outbox_bytes,
                limits.outbox_packets,
            ),
            counters: Counters::default(),
            events: HostEvents::default(),
            icmp_errors: RateLimit::new(errors, errors.min(50)),
            pass_rest: config.pass_rest,
            answer_echo: config.answer_echo,
            hop_limit: config.hop_limit,
            group_hop_limit: config.group_hop_limit,
            announced: false,
        }
    }

    /// Begins a turn: announces our addresses, once, and asks again for neighbours that did not answer.
    pub(crate) fn begin(&mut self, ports: &mut impl Books, now_ns: u64) {
        if !std::mem::replace(&mut self.announced, true) {
            self.announce_all();
        }
        self.solicit_due(ports, now_ns);
        self.report_due(now_ns);
    }

    /// Tells routers of groups, where that is due.
    fn report_due(&mut self, now_ns: u64) {
        let Host { members, interfaces, outbox, counters, events, .. } = self;
        members.act(now_ns, |i, (v4, is_old), records| {
            let interface = &interfaces[usize::from(i)];
            let own = interface.addresses.iter().map(|own| own.address);
            let source = match v4 {
                true => own
                    .into_iter()
                    .find(IpAddr::is_ipv4)
                    .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
                // None else is believed (RFC 3810, 5.2.13).
                false => own
                    .into_iter()
                    .find(|ip| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()))
                    .unwrap_or_else(|| link_local(interface.mac).into()),
            };
            let kind = ip::ether_type_of(source);
            let mut send = |destination: IpAddr, packet: &[u8]| {
                let hop = Hop { interface: i, from: interface.mac, to: group_mac(destination) };
                if outbox.post_copy(hop, kind, packet, None) {
                    events.group_reports_sent += 1;
                } else {
                    counters.drop_one(DropReason::TxRefused);
                }
            };
            match is_old {
                true => report::old_packets(source, records, &mut send),
                false => report::packets(source, interface.mtu_bytes, records, &mut send),
            }
        });
    }

    /// A router asks which hosts hear groups; messages of other senders about groups are ignored.
    pub(crate) fn on_group_query(
        &mut self,
        port: PortId,
        v4: bool,
        query: Option<Query>,
        now_ns: u64,
    ) -> Sorted {
        let Some(query) = query.filter(|_| self.members.answers()) else {
            return self.rest(DropReason::NoListener);
        };
        self.events.group_queries_heard += 1;
        self.members.ask(port.0 as u8, v4, query, now_ns);
        Sorted::Done(self.consumed())
    }

    /// Ends a turn: puts on its way what waits in the outbox.
    pub(crate) fn end<L: FrameLane>(
        &mut self,
        lane: &mut L,
        ports: &mut impl Books,
    ) -> Result<(), LaneError> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        self.outbox.flush(lane, ports, &mut self.counters)
    }

    /// When a turn is due even if nothing arrives.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        if !self.announced {
            return Some(0);
        }
        let dues = [self.neighbours.due_ns(), self.members.due_ns()];
        dues.into_iter().flatten().min()
    }

    /// Looks at frame `i` of a burst received on `port`.
    pub(crate) fn sort(
        &mut self,
        port: PortId,
        burst: &mut Burst,
        i: usize,
        now_ns: u64,
    ) -> Sorted {
        let seen = burst.frame(i);
        let Ok(ethernet) = Ethernet::parse(seen.bytes) else {
            return self.drop(DropReason::Malformed);
        };
        let is_cut = seen.wire_len as usize > seen.bytes.len();
        let interface = &self.interfaces[port.index()];
        let to_us = ethernet.destination == interface.mac;
        let to_many = ethernet.destination[0] & 1 == 1;
        // A frame of our own, returned over a loop, or a source that cannot be.
        let has_wrong_source = ethernet.source == interface.mac || ethernet.source[0] & 1 == 1;
        if !(to_us || to_many) || has_wrong_source {
            return self.rest(DropReason::NotForUs);
        }
        if is_cut {
            return self.rest(DropReason::RxTooLong);
        }
        match ethernet.ether_type {
            ether_type::ARP => Sorted::Done(self.on_arp(port, &mut burst.frame_mut(i), now_ns)),
            ether_type::IPV4 | ether_type::IPV6 => {
                match Packet::parse(seen.bytes, ethernet.ether_type) {
                    Ok(packet) => {
                        self.sort_packet(port, &mut burst.frame_mut(i), packet, to_many, now_ns)
                    }
                    Err(reason) => self.rest(reason),
                }
            }
            _ => self.rest(DropReason::NotForUs),
        }
    }

    fn sort_packet(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        packet: Packet,
        to_many: bool,
        now_ns: u64,
    ) -> Sorted {
        let Some(audience) = self.audience(port, &packet) else {
            return self.rest(DropReason::NotForUs);
        };
        // A packet for one host in a frame for many is no business of ours (RFC 1122, 3.3.6).
        if to_many && audience == Audience::Us {
            return self.rest(DropReason::NotForUs);
        }
        match (packet.protocol, packet.source) {
            // Before the sender is looked at: a probe for duplicates has none.
            (protocol::ICMPV6, IpAddr::V6(_)) => {
                return self.on_icmp_v6(port, frame, &packet, audience, now_ns);
            }
            // A switch that asks in a router's place may have no address.
            (IGMP, IpAddr::V4(_)) => {
                let query = Query::parse_v4(frame.bytes(), &packet);
                return self.on_group_query(port, true, query, now_ns);
            }
            (_, source) if !is_sender(source) || self.is_own(source) => {
                return self.rest(DropReason::NotForUs);
            }
            (protocol::ICMP, IpAddr::V4(_)) => {
                return self.on_icmp_v4(port, frame, &packet, audience, now_ns);
            }
            _ => (),
        }
        match packet.protocol {
            protocol::UDP | protocol::TCP => Sorted::Transport(packet, audience),
            _ if self.pass_rest || audience != Audience::Us => self.rest(DropReason::NoListener),
            _ => Sorted::Done(self.refuse(port, frame, &packet, Refusal::Protocol, now_ns)),
        }
    }

    /// Whether, and how, `destination` means us on the interface of `port`.
    fn audience(&self, port: PortId, packet: &Packet) -> Option<Audience> {
        let destination = packet.destination;
        if self.is_own(destination) {
            return Some(Audience::Us);
        }
        let interface = &self.interfaces[port.index()];
        match destination {
            IpAddr::V4(v4) => {
                let broadcast = ip::is_limited_broadcast(destination)
                    || interface.addresses.iter().any(|own| own.is_broadcast(v4));
                if broadcast {
                    return Some(Audience::Everybody);
                }
                if v4 == ALL_HOSTS {
                    return Some(Audience::Group);
                }
            }
            IpAddr::V6(v6) => {
                let asked = |own: &OnLink| match own.address {
                    IpAddr::V6(own) => solicited_node(own) == v6,
                    IpAddr::V4(_) => false,
                };
                if v6 == crate::address::ALL_NODES || interface.addresses.iter().any(asked) {
                    return Some(Audience::Group);
                }
            }
        }
        let is_heard = match packet.protocol {
            // Routers ask about groups, of any sender.
            IGMP | protocol::ICMPV6 => self.members.has(port.0 as u8, destination),
            _ => self.members.hears(port.0 as u8, destination, packet.source),
        };
        is_heard.then_some(Audience::Group)
    }

    /// True for an address of any of our interfaces.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|i| i.addresses.iter().any(|own| own.address == address))
    }

    /// The interface that plans call so.
    pub(crate) fn interface_named(&self, name: &str) -> Option<u8> {
        let is_it = |interface: &Interface| !name.is_empty() && interface.name == name;
        self.interfaces.iter().position(is_it).map(|i| i as u8)
    }

    /// The first interface that has an address of this IP version.
    pub(crate) fn interface_for(&self, v4: bool) -> Option<usize> {
        let has = |i: &Interface| i.addresses.iter().any(|own| own.address.is_ipv4() == v4);
        self.interfaces.iter().position(has)
    }

    /// The interface that has `address`, or accepts it as a group.
    pub(crate) fn interface_of(&self, address: IpAddr) -> Option<usize> {
        (0..self.interfaces.len()).find(|&i| {
            self.interfaces[i].addresses.iter().any(|own| own.address == address)
                || address.is_multicast() && self.members.has(i as u8, address)
        })
    }

    /// What is not for us: the kernel's, or dropped and counted.
    pub(crate) fn rest(&mut self, reason: DropReason) -> Sorted {
        if self.pass_rest { Sorted::Done(Verdict::Pass) } else { self.drop(reason) }
    }

    pub(crate) fn drop(&mut self, reason: DropReason) -> Sorted {
        self.counters.drop_one(reason);
        Sorted::Done(Verdict::Drop)
    }

    /// The way to `destination`: an interface and the address of the next hop there. Of routes that
    /// are equally long, the one over the preferred interface is taken.
    fn route(&self, destination: IpAddr, (preferred, is_only): Egress) -> Option<NeighbourKey> {
        let mut best: Option<(u8, bool, usize)> = None;
        let may = |i: usize| !is_only || i == preferred;
        for (i, interface) in self.interfaces.iter().enumerate().filter(|(i, _)| may(*i)) {
            for own in interface.addresses.iter().filter(|own| own.contains(destination)) {
                let candidate = (own.prefix_bits, i == preferred, i);
                if best.is_none_or(|best| (candidate.0, candidate.1) > (best.0, best.1)) {
                    best = Some(candidate);
                }
            }
        }
        if let Some((_, _, i)) = best {
            return Some(NeighbourKey { interface: i as u8, address: destination });
        }
        let order =
            std::iter::once(preferred).chain((0..self.interfaces.len()).filter(|i| may(*i)));
        order.filter_map(|i| Some((i, self.interfaces.get(i)?))).find_map(|(i, interface)| {
            let gateway =
                interface.gateways.iter().find(|g| g.is_ipv4() == destination.is_ipv4())?;
            Some(NeighbourKey { interface: i as u8, address: *gateway })
        })
    }

    /// Our address for packets that leave by `interface` to `next_hop`: the one on the same link, or
    /// the first of that IP version.
    pub(crate) fn source_for(&self, interface: usize, next_hop: IpAddr) -> Option<IpAddr> {
        let addresses = &self.interfaces[interface].addresses;
        let same = |own: &&OnLink| own.address.is_ipv4() == next_hop.is_ipv4();
        let near = addresses.iter().filter(same).find(|own| own.contains(next_hop));
        near.or_else(|| addresses.iter().find(same)).map(|own| own.address)
    }

    /// The way to `destination` and the link address there, which groups have by definition.
    pub(crate) fn way(&mut self, destination: IpAddr, egress: Egress, now_ns: u64) -> Way {
        let (preferred, _) = egress;
        let broadcast = match destination {
            IpAddr::V4(v4) => {
                ip::is_limited_broadcast(destination)
                    || self.interfaces[preferred].addresses.iter().any(|own| own.is_broadcast(v4))
            }
            IpAddr::V6(_) => false,
        };
        if broadcast || destination.is_multicast() {
            let to = if broadcast { crate::address::BROADCAST_MAC } else { group_mac(destination) };
            let place = NeighbourKey { interface: preferred as u8, address: destination };
            return Way::Known(place, self.hop(preferred as u8, to));
        }
        let Some(place) = self.route(destination, egress) else { return Way::None };
        match self.neighbours.find(place, now_ns) {
            Some(mac) => Way::Known(place, self.hop(place.interface, mac)),
            None => Way::Asked(place),
        }
    }

    /// The link to a neighbour of `interface`.
    pub(crate) fn hop(&self, interface: u8, to: Mac) -> Hop {
        Hop { interface, from: self.interfaces[usize::from(interface)].mac, to }
    }

    /// The time to live of packets to `destination`.
    pub(crate) fn hop_limit_to(&self, destination: IpAddr) -> u8 {
        if destination.is_multicast() { self.group_hop_limit } else { self.hop_limit }
    }

    /// The longest IP packet that reaches `destination` over `interface`.
    pub(crate) fn mtu_to(&mut self, destination: IpAddr, interface: usize, now_ns: u64) -> usize {
        let mtu_bytes = self.interfaces[interface].mtu_bytes;
        self.path_mtus.get(destination, now_ns).map_or(mtu_bytes, |path| path.min(mtu_bytes))
    }

    /// Sends what waited for `place`.
    pub(crate) fn release(&mut self, place: NeighbourKey, mac: Mac) {
        let hop = self.hop(place.interface, mac);
        let kind = ip::ether_type_of(place.address);
        while let Some(waiting) = self.neighbours.take_waiting(place) {
            if !self.outbox.post_copy(hop, kind, &waiting.bytes, Some(waiting.account)) {
                self.counters.drop_one(DropReason::TxRefused);
            }
            self.neighbours.recycle(waiting);
        }
    }

    /// Posts a packet of our own making.
    pub(crate) fn post(&mut self, hop: Hop, kind: u16, packet: &[u8]) {
        if !self.outbox.post_copy(hop, kind, packet, None) {
            self.counters.drop_one(DropReason::TxRefused);
        }
    }
}

/// The interface that a packet leaves by where there is a choice, and whether it is the only one.
pub(crate) type Egress = (usize, bool);

/// Where a packet would go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// On its way at once.
    Known(NeighbourKey, Hop),
    /// When the neighbour has answered.
    Asked(NeighbourKey),
    /// Nowhere.
    None,
}

/// Makes `frame` a packet of `header` whose payload is where `payload` lies in it now; only headers
/// are written. False, and nothing changed, without the room in front.
#[must_use]
pub(crate) fn reframe(
    frame: &mut FrameMut<'_>,
    payload: std::ops::Range<usize>,
    hop: Hop,
    header: &Header,
) -> bool {
    let front = ETHERNET_BYTES + ip::header_bytes(header.destination);
    let moved = if front > payload.start {
        frame.grow_front(front - payload.start)
    } else {
        frame.shrink_front(payload.start - front)
    };
    if !(moved && frame.set_len(front + payload.len())) {
        return false;
    }
    let bytes = frame.bytes_mut();
    ip::emit_ethernet(bytes, hop.to, hop.from, ip::ether_type_of(header.destination));
    header.emit(&mut bytes[ETHERNET_BYTES..]);
    true
}

/// Makes `frame` a packet of `header` and `payload`. False without the room.
#[must_use]
pub(crate) fn rewrite(frame: &mut FrameMut<'_>, payload: &[u8], hop: Hop, header: &Header) -> bool {
    let front = ETHERNET_BYTES + ip::header_bytes(header.destination);
    if !frame.set_len(front + payload.len()) {
        return false;
    }
    let bytes = frame.bytes_mut();
    ip::emit_ethernet(bytes, hop.to, hop.from, ip::ether_type_of(header.destination));
    header.emit(&mut bytes[ETHERNET_BYTES..]);
    bytes[front..].copy_from_slice(payload);
    true
}

/// The source MAC address of a frame.
pub(crate) fn sender_mac(frame: &FrameMut<'_>) -> Mac {
    Ethernet::parse(frame.bytes()).map_or([0; 6], |ethernet| ethernet.source)
}
