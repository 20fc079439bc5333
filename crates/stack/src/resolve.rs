//! ARP and ND at work: answering for our addresses, listening to what others say, asking, announcing
//! and defending.

use crate::{
    address::{ALL_NODES, BROADCAST_MAC, group_mac, is_sender, is_unicast_mac, solicited_node},
    arp::Arp,
    host::{Audience, Host, Sorted, rewrite, sender_mac},
    ip::{self, Header, Packet},
    nd::{self, Nd},
    neighbour::{NeighbourKey, Solicit, Word},
    outbox::Books,
};
use laneway_core::{Counters, DropReason, FrameMut, PortId, Verdict};
use laneway_wire::{ETHERNET_BYTES, IPV6_BYTES, Mac, ether_type, protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Time between two defences of an address (RFC 5227, DEFEND_INTERVAL).
const DEFEND_INTERVAL_NS: u64 = 10_000_000_000;
/// Where the checksum lies in an ICMP message.
const ICMP_CHECKSUM_AT: usize = 2;

impl Host {
    pub(crate) fn on_arp(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        now_ns: u64,
    ) -> Verdict {
        let Some(arp) = Arp::parse(&frame.bytes()[ETHERNET_BYTES..]) else {
            return self.verdict(DropReason::Malformed);
        };
        let interface = &self.interfaces[port.index()];
        let own_mac = interface.mac;
        let owns = |address: Ipv4Addr| {
            interface.addresses.iter().any(|own| own.address == IpAddr::V4(address))
        };
        let (claims, asks) = (owns(arp.sender), owns(arp.target));
        let is_near = interface.addresses.iter().any(|own| own.contains(arp.sender.into()));
        if claims {
            if arp.sender_mac != own_mac {
                self.defend(port, arp.sender.into(), now_ns);
            }
            return self.consumed();
        }
        // A probe (RFC 5227) has no sender yet, and is answered all the same.
        let is_probe = arp.is_request && arp.sender.is_unspecified();
        if !is_probe && (!is_sender(arp.sender.into()) || !is_near) {
            return self.verdict(DropReason::NotForUs);
        }
        if !is_probe {
            let word = match (asks, arp.is_request) {
                (true, true) => Word::Asked,
                (true, false) => Word::Answered { solicited: true, overrides: true },
                (false, _) => Word::Announced,
            };
            self.heard(port, arp.sender.into(), Some(arp.sender_mac), word, now_ns);
        }
        if !(asks && arp.is_request && is_unicast_mac(arp.sender_mac)) {
            return if asks { self.consumed() } else { self.verdict(DropReason::NotForUs) };
        }
        let reply = Arp {
            is_request: false,
            sender_mac: own_mac,
            sender: arp.target,
            target_mac: arp.sender_mac,
            target: arp.sender,
        };
        let bytes = reply.bytes();
        if !frame.set_len(ETHERNET_BYTES + bytes.len()) {
            self.counters.drop_one(DropReason::TxRefused);
            return Verdict::Drop;
        }
        let frame_bytes = frame.bytes_mut();
        ip::emit_ethernet(frame_bytes, arp.sender_mac, own_mac, ether_type::ARP);
        frame_bytes[ETHERNET_BYTES..].copy_from_slice(&bytes);
        self.events.solicitations_answered += 1;
        Verdict::Tx
    }

    /// A neighbour solicitation or advertisement whose checksum is right.
    pub(crate) fn on_nd(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        packet: &Packet,
        now_ns: u64,
    ) -> Verdict {
        let message = packet.payload(frame.bytes());
        let nd = Nd::parse(message, packet.source, packet.destination, packet.hop_limit);
        let owns = |host: &Host, target: Ipv6Addr| {
            let own = &host.interfaces[port.index()].addresses;
            own.iter().any(|own| own.address == IpAddr::V6(target))
        };
        match nd {
            None => self.verdict(DropReason::Malformed),
            Some(Nd::Solicitation { target, .. }) if !owns(self, target) => {
                self.verdict(DropReason::NotForUs)
            }
            Some(Nd::Solicitation { target, source_mac }) => {
                if source_mac.is_some() && is_sender(packet.source) {
                    self.heard(port, packet.source, source_mac, Word::Asked, now_ns);
                }
                self.advertise_to(port, frame, packet.source, target)
            }
            Some(Nd::Advertisement { target, target_mac, solicited, overrides }) => {
                if owns(self, target) {
                    self.defend(port, target.into(), now_ns);
                } else {
                    let word = Word::Answered { solicited, overrides };
                    self.heard(port, target.into(), target_mac, word, now_ns);
                }
                self.consumed()
            }
        }
    }

    /// Answers a solicitation for `target` in its own frame.
    fn advertise_to(
        &mut self,
        port: PortId,
        frame: &mut FrameMut<'_>,
        asker: IpAddr,
        target: Ipv6Addr,
    ) -> Verdict {
        // A host that probes for duplicates has no address yet: tell all hosts (RFC 4861, 7.2.4).
        let is_probe = asker.is_unspecified();
        let destination = if is_probe { ALL_NODES.into() } else { asker };
        let to = if is_probe { group_mac(destination) } else { sender_mac(frame) };
        let hop = self.hop(port.0 as u8, to);
        let (header, message) = self.advertisement(hop.from, target, destination, !is_probe);
        if !rewrite(frame, &message, hop, &header) {
            self.counters.drop_one(DropReason::TxRefused);
            return Verdict::Drop;
        }
        self.events.solicitations_answered += 1;
        Verdict::Tx
    }

    fn advertisement(
        &self,
        own_mac: Mac,
        target: Ipv6Addr,
        destination: IpAddr,
        solicited: bool,
    ) -> (Header, [u8; nd::ND_BYTES]) {
        let nd =
            Nd::Advertisement { target, target_mac: Some(own_mac), solicited, overrides: true };
        sealed(&nd, target.into(), destination)
    }

    /// Takes note, and sends what waited for it.
    fn heard(&mut self, port: PortId, address: IpAddr, mac: Option<Mac>, word: Word, now_ns: u64) {
        let place = NeighbourKey { interface: port.0 as u8, address };
        if self.neighbours.hear(place, mac, word, now_ns)
            && let Some(mac) = mac
        {
            self.release(place, mac);
        }
    }

    /// Another host claims our address: says once in a while that it is ours (RFC 5227, 2.4 c).
    fn defend(&mut self, port: PortId, address: IpAddr, now_ns: u64) {
        self.events.address_conflicts += 1;
        let interface = &mut self.interfaces[port.index()];
        let rested = |at_ns: u64| now_ns.saturating_sub(at_ns) >= DEFEND_INTERVAL_NS;
        if interface.defended_ns.is_none_or(rested) {
            interface.defended_ns = Some(now_ns);
            self.announce(port.0 as u8, address);
        }
    }

    /// Announces our addresses on every link, so that stale tables elsewhere are put right.
    pub(crate) fn announce_all(&mut self) {
        for interface in 0..self.interfaces.len() {
            for i in 0..self.interfaces[interface].addresses.len() {
                let address = self.interfaces[interface].addresses[i].address;
                self.announce(interface as u8, address);
            }
        }
    }

    fn announce(&mut self, interface: u8, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => {
                let hop = self.hop(interface, BROADCAST_MAC);
                self.post(hop, ether_type::ARP, &Arp::announcement(hop.from, v4).bytes());
            }
            IpAddr::V6(v6) => {
                let hop = self.hop(interface, group_mac(ALL_NODES.into()));
                let (header, message) = self.advertisement(hop.from, v6, ALL_NODES.into(), false);
                self.post(hop, ether_type::IPV6, &packet(&header, &message));
            }
        }
    }

    /// Sends the questions that are due, and counts what waited in vain.
    pub(crate) fn solicit_due(&mut self, ports: &mut impl Books, now_ns: u64) {
        if self.neighbours.due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        let Host { neighbours, interfaces, outbox, counters, events, known, .. } = self;
        let mut found = Vec::new();
        let is_known = |question: Solicit| {
            let Some(known) = known else { return false };
            let NeighbourKey { interface, address } = question.place;
            let name = &interfaces[usize::from(interface)].name;
            let word = match known.find(name, address) {
                Some((mac, true)) => (mac, Word::Answered { solicited: true, overrides: true }),
                // Used until we have asked ourselves, which we do when it is used again.
                Some((mac, false)) if question.mac.is_none() => (mac, Word::Announced),
                _ => return false,
            };
            found.push((question.place, word));
            true
        };
        let ask = |question: Solicit| {
            let NeighbourKey { interface, address } = question.place;
            let link = &interfaces[usize::from(interface)];
            // A router is asked for on the link of the address that made it near.
            let own = link.addresses.iter().find(|own| own.contains(address));
            let Some(own) = own.map(|own| own.address) else { return };
            let hop = |to| crate::outbox::Hop { interface, from: link.mac, to };
            let posted = match (own, address) {
                (IpAddr::V4(sender), IpAddr::V4(target)) => {
                    let arp = Arp {
                        is_request: true,
                        sender_mac: link.mac,
                        sender,
                        target_mac: question.mac.unwrap_or_default(),
                        target,
                    };
                    let to = question.mac.unwrap_or(BROADCAST_MAC);
                    outbox.post_copy(hop(to), ether_type::ARP, &arp.bytes(), None)
                }
                (IpAddr::V6(_), IpAddr::V6(target)) => {
                    let nd = Nd::Solicitation { target, source_mac: Some(link.mac) };
                    let destination = match question.mac {
                        Some(_) => address,
                        None => solicited_node(target).into(),
                    };
                    let to = question.mac.unwrap_or_else(|| group_mac(destination));
                    let (header, message) = sealed(&nd, own, destination);
                    let packet = packet(&header, &message);
                    outbox.post_copy(hop(to), ether_type::IPV6, &packet, None)
                }
                _ => false,
            };
            if posted {
                events.solicitations_sent += 1;
            } else {
                counters.drop_one(DropReason::TxRefused);
            }
        };
        let mut unowned = Counters::default();
        neighbours.act(now_ns, is_known, ask, |lost| {
            ports.of(lost.port).unwrap_or(&mut unowned).drop_one(DropReason::NoNeighbour);
        });
        counters.merge(&unowned);
        for (place, (mac, word)) in found {
            self.heard(PortId(place.interface.into()), place.address, Some(mac), word, now_ns);
        }
    }

    /// The verdict on a frame that taught us something: the kernel may want to hear it too.
    pub(crate) fn consumed(&self) -> Verdict {
        if self.pass_rest { Verdict::Pass } else { Verdict::Drop }
    }

    fn verdict(&mut self, reason: DropReason) -> Verdict {
        match self.rest(reason) {
            Sorted::Done(verdict) => verdict,
            Sorted::Transport(..) | Sorted::TooBig(..) => Verdict::Drop,
        }
    }

    /// An ICMPv6 packet that is neighbour discovery, for us or a group that we listen to.
    pub(crate) fn is_nd(kind: u8, audience: Audience) -> bool {
        matches!(kind, nd::SOLICITATION | nd::ADVERTISEMENT) && audience != Audience::Everybody
    }
}

/// A message with its checksum, and the header for it.
fn sealed(nd: &Nd, source: IpAddr, destination: IpAddr) -> (Header, [u8; nd::ND_BYTES]) {
    let mut message = nd.bytes();
    ip::seal_payload(&mut message, ICMP_CHECKSUM_AT, source, destination, protocol::ICMPV6);
    let header = Header {
        source,
        destination,
        protocol: protocol::ICMPV6,
        hop_limit: nd::HOP_LIMIT,
        traffic_class: 0,
        payload_bytes: message.len(),
    };
    (header, message)
}

fn packet(header: &Header, message: &[u8; nd::ND_BYTES]) -> [u8; IPV6_BYTES + nd::ND_BYTES] {
    let mut packet = [0; IPV6_BYTES + nd::ND_BYTES];
    header.emit(&mut packet);
    packet[IPV6_BYTES..].copy_from_slice(message);
    packet
}
