//! What hosts and routers tell each other about groups: IGMPv3 (RFC 3376, 4) and MLDv2 (RFC 3810, 5)
//! as values and bytes. To a router of the version before (IGMPv2, RFC 2236; MLDv1, RFC 2710) the same
//! is answered in its own messages, which know no senders.
//!
//! IGMPv1 is not spoken. The caller has checked checksums; that
//! a message comes from this link (time to live of 1, Router Alert) is checked here.

use crate::ip::{self, Packet};
use laneway_wire::{IPV6_BYTES, checksum, protocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All hosts of the link, where general questions of IPv4 go.
pub(crate) const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Where reports go: all routers that speak IGMPv3, MLDv2.
const REPORTS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const REPORTS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Where the older versions report that a group was left: all routers.
const ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// IGMP's protocol number.
pub(crate) const IGMP: u8 = 2;
/// Types of messages.
const IGMP_QUERY: u8 = 0x11;
const IGMP_REPORT: u8 = 0x22;
pub(crate) const MLD_QUERY: u8 = 130;
const MLD_REPORT: u8 = 143;
const IGMP_OLD_REPORT: u8 = 0x16;
const IGMP_OLD_LEAVE: u8 = 0x17;
const MLD_OLD_REPORT: u8 = 131;
const MLD_OLD_DONE: u8 = 132;
/// Fixed bytes of a question, up to its senders.
const IGMP_QUERY_BYTES: usize = 12;
const MLD_QUERY_BYTES: usize = 28;
/// Bytes of every message of the older versions.
const IGMP_OLD_BYTES: usize = 8;
const MLD_OLD_BYTES: usize = 24;
/// Fixed bytes of a report.
const REPORT_BYTES: usize = 8;
/// Bytes of IP header and options in front of a report.
const FRONT_V4: usize = 24;
const FRONT_V6: usize = IPV6_BYTES + 8;
/// Options that say to routers on the way: look.
const ROUTER_ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];
const ROUTER_ALERT_V6: [u8; 4] = [5, 2, 0, 0];
/// Internetwork control, as RFC 3376 wants it.
const CONTROL_TOS: u8 = 0xc0;
/// Senders that a question may name, at most; one that names more is taken for the whole group.
const SENDERS_MAX: usize = 64;
/// The longest delay that is given no time at all.
const DELAY_NS_MIN: u64 = 100_000_000;

/// A router asks for members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// Of this group; of all if none is named.
    pub(crate) group: Option<IpAddr>,
    /// From these senders; from whomever if none is named.
    pub(crate) senders: Vec<IpAddr>,
    /// Within what time it wants to hear.
    pub(crate) within_ns: u64,
    /// It speaks the older version, and understands no other.
    pub(crate) is_old: bool,
}

impl Query {
    /// Reads the IGMP message of a packet; `None` for another one.
    pub(crate) fn parse_v4(frame: &[u8], packet: &Packet) -> Option<Query> {
        let bytes = packet.payload(frame);
        let options = frame.get(packet.header_at + 20..packet.payload.start)?;
        let is_here = packet.hop_limit == 1 && has(options, ROUTER_ALERT_V4);
        if !is_here || *bytes.first()? != IGMP_QUERY || checksum::of(bytes) != 0 {
            return None;
        }
        let group = Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?);
        if bytes.len() == IGMP_OLD_BYTES {
            // The oldest gives no time.
            let within_ns = u64::from(bytes[1]) * 100_000_000;
            let none = std::iter::empty();
            let old = Query::new(group.into(), none, 0, within_ns).filter(|_| within_ns > 0);
            return old.map(|query| Query { is_old: true, ..query });
        }
        let (fixed, rest) = bytes.split_first_chunk::<IGMP_QUERY_BYTES>()?;
        let units = match u64::from(fixed[1]) {
            code if code < 128 => code,
            code => (code & 0xf | 0x10) << ((code >> 4 & 7) + 3),
        };
        let count = usize::from(u16::from_be_bytes([fixed[10], fixed[11]]));
        let senders = rest.get(..count * 4)?.chunks_exact(4).filter_map(|b| b.first_chunk::<4>());
        Query::new(group.into(), senders.map(|b| (*b).into()), count, units * 100_000_000)
    }

    /// Reads the ICMPv6 message of a packet, whose checksum is right; `None` for another one.
    pub(crate) fn parse_v6(frame: &[u8], packet: &Packet) -> Option<Query> {
        let bytes = packet.payload(frame);
        let extensions = frame.get(packet.header_at + IPV6_BYTES..packet.payload.start)?;
        let IpAddr::V6(router) = packet.source else { return None };
        let is_here = packet.hop_limit == 1
            && router.is_unicast_link_local()
            && has(extensions, ROUTER_ALERT_V6);
        if !is_here || *bytes.first()? != MLD_QUERY {
            return None;
        }
        let group = Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?);
        if bytes.len() == MLD_OLD_BYTES {
            let within_ns = u64::from(u16::from_be_bytes([bytes[4], bytes[5]])) * 1_000_000;
            let old = Query::new(group.into(), std::iter::empty(), 0, within_ns);
            return old.map(|query| Query { is_old: true, ..query });
        }
        let (fixed, rest) = bytes.split_first_chunk::<MLD_QUERY_BYTES>()?;
        let ms = match u64::from(u16::from_be_bytes([fixed[4], fixed[5]])) {
            code if code < 1 << 15 => code,
            code => (code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
        };
        let count = usize::from(u16::from_be_bytes([fixed[26], fixed[27]]));
        let senders = rest.get(..count * 16)?.chunks_exact(16);
        let senders = senders.filter_map(|b| b.first_chunk::<16>()).map(|b| (*b).into());
        Query::new(group.into(), senders, count, ms * 1_000_000)
    }

    fn new(
        group: IpAddr,
        senders: impl Iterator<Item = IpAddr>,
        count: usize,
        within_ns: u64,
    ) -> Option<Query> {
        let senders = if count > SENDERS_MAX { Vec::new() } else { senders.collect() };
        let group = (!group.is_unspecified()).then_some(group);
        // A question about senders of no group makes no sense.
        let is_sound = group.map_or(count == 0, |group| group.is_multicast());
        let within_ns = within_ns.max(DELAY_NS_MIN);
        is_sound.then_some(Query { group, senders, within_ns, is_old: false })
    }
}

fn has(options: &[u8], option: [u8; 4]) -> bool {
    options.windows(4).any(|bytes| bytes == option)
}

/// What a record of a report says (RFC 3376, 4.2.12; RFC 3810, 5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only these senders are heard.
    IsInclude = 1,
    /// All are heard but these.
    IsExclude = 2,
    /// From now on only these.
    ToInclude = 3,
    /// From now on all but these.
    ToExclude = 4,
    /// These, too.
    Allow = 5,
    /// These no longer.
    Block = 6,
}

/// What a report says of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) group: IpAddr,
    pub(crate) senders: Vec<IpAddr>,
}

/// Calls `send` with the packets that say as much of this as the older version can, and where each
/// goes. All groups are of the IP version of `source`.
pub(crate) fn old_packets(source: IpAddr, records: &[Record], mut send: impl FnMut(IpAddr, &[u8])) {
    for Record { kind, group, senders } in records {
        // Of a group that is still heard from others the router asks when it receives this, and is answered.
        let is_left = *kind == Kind::Block || *kind == Kind::ToInclude && senders.is_empty();
        let (kind, destination, front, bytes) = match (source.is_ipv4(), is_left) {
            (true, false) => (IGMP_OLD_REPORT, *group, FRONT_V4, IGMP_OLD_BYTES),
            (true, true) => (IGMP_OLD_LEAVE, ROUTERS_V4.into(), FRONT_V4, IGMP_OLD_BYTES),
            (false, false) => (MLD_OLD_REPORT, *group, FRONT_V6, MLD_OLD_BYTES),
            (false, true) => (MLD_OLD_DONE, ROUTERS_V6.into(), FRONT_V6, MLD_OLD_BYTES),
        };
        let address_bytes = if source.is_ipv4() { 4 } else { 16 };
        let mut packet = vec![0; front + bytes - address_bytes];
        push(&mut packet, *group);
        packet[front] = kind;
        seal(&mut packet, source, destination);
        send(destination, &packet);
    }
}

/// Calls `send` with the packets that say all this, none longer than `mtu_bytes`, and where they go. All
/// groups are of the IP version of `source`.
pub(crate) fn packets(
    source: IpAddr,
    mtu_bytes: usize,
    records: &[Record],
    mut send: impl FnMut(IpAddr, &[u8]),
) {
    let (address_bytes, at, kind, destination) = match source {
        IpAddr::V4(_) => (4, FRONT_V4, IGMP_REPORT, IpAddr::V4(REPORTS_V4)),
        IpAddr::V6(_) => (16, FRONT_V6, MLD_REPORT, IpAddr::V6(REPORTS_V6)),
    };
    let front = at + REPORT_BYTES;
    let mut finish = |packet: &mut [u8], count: u16| {
        packet[at..front].fill(0);
        packet[at] = kind;
        packet[at + 6..front].copy_from_slice(&count.to_be_bytes());
        seal(packet, source, destination);
        send(destination, packet);
    };
    let room = mtu_bytes - front;
    let senders_max = (room - 4 - address_bytes) / address_bytes;
    let (mut packet, mut count) = (vec![0; front], 0u16);
    for record in records {
        // Nothing that we say excludes senders, so a list that is too long may be cut in parts.
        let none: [&[IpAddr]; 1] = [&[]];
        let is_empty = record.senders.is_empty();
        let parts = record.senders.chunks(senders_max).chain(none.into_iter().filter(|_| is_empty));
        for senders in parts {
            let bytes = 4 + address_bytes * (1 + senders.len());
            if packet.len() + bytes > mtu_bytes {
                finish(&mut packet, count);
                packet.truncate(front);
                count = 0;
            }
            packet.extend_from_slice(&[record.kind as u8, 0]);
            packet.extend_from_slice(&(senders.len() as u16).to_be_bytes());
            std::iter::once(&record.group).chain(senders).for_each(|ip| push(&mut packet, *ip));
            count += 1;
        }
    }
    if count > 0 {
        finish(&mut packet, count);
    }
}

fn push(packet: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => packet.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => packet.extend_from_slice(&v6.octets()),
    }
}

/// Writes the IP header in front of a message, and the message's checksum.
fn seal(packet: &mut [u8], source: IpAddr, destination: IpAddr) {
    let total = packet.len();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let (front, message) = packet.split_at_mut(FRONT_V4);
            front.fill(0);
            (front[0], front[1]) = (0x46, CONTROL_TOS);
            front[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            (front[8], front[9]) = (1, IGMP);
            front[12..16].copy_from_slice(&source.octets());
            front[16..20].copy_from_slice(&destination.octets());
            front[20..].copy_from_slice(&ROUTER_ALERT_V4);
            let sum = checksum::of(front);
            front[10..12].copy_from_slice(&sum.to_be_bytes());
            let sum = checksum::of(message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let (front, message) = packet.split_at_mut(FRONT_V6);
            front.fill(0);
            front[0] = 0x60;
            front[4..6].copy_from_slice(&((total - IPV6_BYTES) as u16).to_be_bytes());
            // A hop-by-hop header, in which two bytes are left over.
            (front[6], front[7], front[IPV6_BYTES]) = (0, 1, protocol::ICMPV6);
            front[8..24].copy_from_slice(&from.octets());
            front[24..40].copy_from_slice(&to.octets());
            front[IPV6_BYTES + 2..][..4].copy_from_slice(&ROUTER_ALERT_V6);
            front[IPV6_BYTES + 6..].copy_from_slice(&[1, 0]);
            ip::seal_payload(message, 2, source, destination, protocol::ICMPV6);
        }
        _ => unreachable!("a group and who hears it are of one version"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_wire::{ETHERNET_BYTES, ether_type};
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A packet in a frame, read.
    fn framed(packet: &[u8]) -> (Vec<u8>, Packet) {
        let kind = if packet[0] >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
        let frame = [&[0; ETHERNET_BYTES], packet].concat();
        let packet = Packet::parse(&frame, kind).expect("a sound packet");
        (frame, packet)
    }

    fn all_of(source: &str, mtu_bytes: usize, records: &[Record]) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        packets(ip(source), mtu_bytes, records, |_, packet| sent.push(packet.to_vec()));
        sent
    }

    #[test]
    fn a_report_has_the_bytes_of_the_rfcs() {
        let record = |group: &str, sender: &str| Record {
            kind: Kind::Allow,
            group: ip(group),
            senders: vec![ip(sender)],
        };
        let v4 = &all_of("10.0.0.1", 1500, &[record("232.1.1.1", "10.0.0.9")])[0];
        assert_eq!(v4.len(), 24 + 8 + 12);
        let (frame, packet) = framed(v4);
        assert_eq!((packet.hop_limit, packet.protocol), (1, IGMP));
        assert_eq!(packet.destination, ip("224.0.0.22"));
        assert_eq!(checksum::of(packet.payload(&frame)), 0);
        assert_eq!(v4[32..], [5, 0, 0, 1, 232, 1, 1, 1, 10, 0, 0, 9]);

        let v6 = &all_of("fe80::1", 1500, &[record("ff35::1", "fd00::9")])[0];
        let (frame, packet) = framed(v6);
        assert_eq!((packet.hop_limit, packet.protocol), (1, protocol::ICMPV6));
        assert_eq!((packet.destination, packet.payload_sums_up(&frame)), (ip("ff02::16"), true));
        assert_eq!((v6[48], &v6[54..60]), (143, &[0, 1, 5, 0, 0, 1][..]));
    }

    #[test]
    fn reports_to_an_older_router_are_in_its_version() {
        let record = |kind, group: &str, senders: &[&str]| Record {
            kind,
            group: ip(group),
            senders: senders.iter().map(|sender| ip(sender)).collect(),
        };
        let packets = |source: &str, record: Record| {
            let mut packets = Vec::new();
            old_packets(ip(source), &[record], |to, packet| packets.push((to, packet.to_vec())));
            packets
        };
        for (source, group, sender, routers, [report, leave]) in [
            ("10.0.0.1", "239.1.1.1", "10.0.0.9", "224.0.0.2", [0x16, 0x17]),
            ("fe80::1", "ff15::1", "fd00::9", "ff02::2", [131, 132]),
        ] {
            for (record, to, kind) in [
                (record(Kind::ToExclude, group, &[]), group, report),
                (record(Kind::IsInclude, group, &[sender]), group, report),
                (record(Kind::ToInclude, group, &[sender]), group, report),
                (record(Kind::ToInclude, group, &[]), routers, leave),
                (record(Kind::Block, group, &[sender]), routers, leave),
            ] {
                let packets = packets(source, record);
                assert_eq!((packets.len(), packets[0].0), (1, ip(to)));
                let (frame, packet) = framed(&packets[0].1);
                assert_eq!((packet.destination, packet.hop_limit), (ip(to), 1));
                let message = packet.payload(&frame);
                assert_eq!((message[0], packet.source), (kind, ip(source)));
                let is_sound = match packet.protocol {
                    IGMP => checksum::of(message) == 0 && message.len() == 8,
                    _ => packet.payload_sums_up(&frame) && message.len() == 24,
                };
                assert!(is_sound, "{message:02x?}");
            }
        }
    }

    #[test]
    fn what_fits_no_packet_goes_in_several() {
        let records: Vec<_> = (0..1000u16)
            .map(|i| Record {
                kind: Kind::IsExclude,
                group: IpAddr::from([239, 1, (i >> 8) as u8, i as u8]),
                senders: Vec::new(),
            })
            .collect();
        let sent = all_of("10.0.0.1", 1500, &records);
        assert_eq!(sent.len(), 1000usize.div_ceil((1500 - 32) / 8));
        let records: u16 = sent.iter().map(|p| u16::from_be_bytes([p[30], p[31]])).sum();
        assert!(records == 1000 && sent.iter().all(|packet| packet.len() <= 1500));

        let senders = (0..500u16).map(|i| IpAddr::from([10, 1, (i >> 8) as u8, i as u8])).collect();
        let long = Record { kind: Kind::IsInclude, group: ip("232.1.1.1"), senders };
        let sent = all_of("10.0.0.1", 576, &[long]);
        let records: u16 = sent.iter().map(|p| u16::from_be_bytes([p[34], p[35]])).sum();
        assert_eq!((records, sent.iter().all(|packet| packet.len() <= 576)), (500, true));
    }

    #[test]
    fn a_question_is_read_with_its_time_and_senders() {
        let mut query = vec![0x11, 100, 0, 0, 239, 1, 1, 1, 2, 125, 0, 1, 10, 0, 0, 9];
        let asked = |query: &mut [u8], hop_limit: u8, option: [u8; 4]| {
            query[2..4].fill(0);
            let sum = checksum::of(query);
            query[2..4].copy_from_slice(&sum.to_be_bytes());
            let mut packet = vec![0x46, 0, 0, 24 + query.len() as u8, 0, 0, 0, 0, hop_limit, IGMP];
            packet.extend_from_slice(&[0, 0, 10, 0, 0, 254, 239, 1, 1, 1]);
            packet.extend_from_slice(&option);
            let sum = checksum::of(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet.extend_from_slice(query);
            let (frame, packet) = framed(&packet);
            Query::parse_v4(&frame, &packet)
        };
        let within_ns = 10_000_000_000;
        let (group, senders) = (Some(ip("239.1.1.1")), vec![ip("10.0.0.9")]);
        let wanted = Query { group, senders, within_ns, is_old: false };
        assert_eq!(asked(&mut query, 1, ROUTER_ALERT_V4), Some(wanted.clone()));
        assert_eq!(asked(&mut query, 2, ROUTER_ALERT_V4), None, "a router passed it on");
        assert_eq!(asked(&mut query, 1, [1; 4]), None, "no router was to look");
        let old = Query { senders: Vec::new(), is_old: true, ..wanted.clone() };
        assert_eq!(asked(&mut query[..8].to_vec(), 1, ROUTER_ALERT_V4), Some(old));
        let mut oldest = query[..8].to_vec();
        oldest[1] = 0;
        assert_eq!(asked(&mut oldest, 1, ROUTER_ALERT_V4), None, "it gives no time");
        query[1] = 0x8f;
        let later = Query { within_ns: 24_800_000_000, ..wanted };
        assert_eq!(asked(&mut query, 1, ROUTER_ALERT_V4), Some(later));
        query[11] = 2;
        assert_eq!(asked(&mut query, 1, ROUTER_ALERT_V4), None, "it is cut");
        query[4..8].fill(0);
        query[11] = 1;
        assert_eq!(asked(&mut query, 1, ROUTER_ALERT_V4), None, "senders of no group");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), first in 0u8..4
        ) {
            let front = [&[0; ETHERNET_BYTES + 20][..], &ROUTER_ALERT_V4].concat();
            let mut frame = [&front[..], &bytes].concat();
            if let Some(byte) = frame.get_mut(front.len()) {
                *byte = [IGMP_QUERY, MLD_QUERY, *byte, 0][usize::from(first)];
            }
            let mut packet = Packet {
                source: ip("10.0.0.254"),
                destination: ip("224.0.0.1"),
                hop_limit: 1,
                protocol: IGMP,
                header_at: ETHERNET_BYTES,
                payload: front.len()..frame.len(),
            };
            let _ = Query::parse_v4(&frame, &packet);
            packet.source = ip("fe80::1");
            let _ = Query::parse_v6(&frame, &packet);
        }
    }
}
