//! The table of fates, row by row: frames that fall under each, and the answer where there is one.

use crate::{
    MAC, Sent,
    build::{
        ASKER_MAC, Arp, Ping4, Ping6, arp, our_group, ours_v6, ping4, ping6, solicitation, v6,
    },
    config, run,
};
use laneway_echo::{Config, Echo, Fate, TTL_DEFAULT};

/// A frame with its fate.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) fate: Fate,
    pub(crate) frame: Vec<u8>,
    /// The answer, where there is one.
    pub(crate) answer: Option<Vec<u8>>,
}

pub(crate) fn responder() -> Config {
    config(&["10.77.0.9", "10.77.0.10", "fd00:77::9", "fd00:77::10"])
}

fn left(what: &'static str, fate: Fate, frame: Vec<u8>) -> Row {
    Row { what, fate, frame, answer: None }
}

fn echo4(what: &'static str, ping: Ping4) -> Row {
    let (frame, answer) = (ping.frame(), Some(ping.reply(TTL_DEFAULT)));
    Row { what, fate: Fate::AnsweredEchoV4, frame, answer }
}

fn echo6(what: &'static str, ping: Ping6) -> Row {
    let (frame, answer) = (ping.frame(), Some(ping.reply(TTL_DEFAULT)));
    Row { what, fate: Fate::AnsweredEchoV6, frame, answer }
}

fn arps(what: &'static str, arp: Arp) -> Row {
    let (frame, answer) = (arp.frame(), Some(arp.reply()));
    Row { what, fate: Fate::AnsweredArp, frame, answer }
}

fn nd(what: &'static str, asked: Ping6) -> Row {
    let (frame, answer) = (asked.frame(), Some(asked.advertisement()));
    Row { what, fate: Fate::AnsweredNd, frame, answer }
}

fn cut(mut frame: Vec<u8>, bytes: usize) -> Vec<u8> {
    frame.truncate(bytes);
    frame
}

fn damaged(mut frame: Vec<u8>, at: usize) -> Vec<u8> {
    frame[at] ^= 0x40;
    frame
}

const GROUP_MAC: [u8; 6] = [0x01, 0, 0x5e, 0, 0, 1];
const VLAN: (u16, u16) = (0x8100, 0x6005);
const SERVICE: (u16, u16) = (0x88a8, 0x0007);

/// Every row that a frame alone decides; those of the limits are in `limits.rs`.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = answered();
    rows.extend(passed_by_ip());
    rows.extend(passed_neighbours());
    rows.extend(dropped());
    rows
}

fn answered() -> Vec<Row> {
    vec![
        echo4("a ping", ping4()),
        echo4("a ping to the other address", ping4().with(|p| p.destination[3] = 10)),
        echo4("a ping without data", ping4().with(|p| p.data.clear())),
        echo4("a ping with an odd byte", ping4().with(|p| p.data.truncate(55))),
        echo4("a long ping", ping4().with(|p| p.data = vec![0xa5; 1472])),
        echo4("a ping longer than a page", ping4().with(|p| p.data = vec![0x5a; 8000])),
        echo4("a tagged ping", ping4().with(|p| p.link.tags = vec![VLAN])),
        echo4("a ping in QinQ", ping4().with(|p| p.link.tags = vec![SERVICE, VLAN])),
        echo4("a ping in old QinQ", ping4().with(|p| p.link.tags = vec![(0x9100, 2), VLAN])),
        echo4("a ping with trailing bytes", ping4().with(|p| p.trailer = vec![0xee; 9])),
        echo4("a ping at its last hop", ping4().with(|p| p.ttl = 1)),
        echo4("a ping that may be fragmented", ping4().with(|p| p.fragment = 0)),
        echo6("a ping over IPv6", ping6()),
        echo6("a ping without data over IPv6", ping6().with(|p| p.rest.truncate(4))),
        echo6("a long ping over IPv6", ping6().with(|p| p.rest = vec![0x33; 1456])),
        echo6("a tagged ping over IPv6", ping6().with(|p| p.link.tags = vec![SERVICE, VLAN])),
        echo6("trailing bytes over IPv6", ping6().with(|p| p.trailer = vec![0xee; 9])),
        arps("an ARP request", arp()),
        arps("an ARP request to us alone", arp().with(|a| a.link.destination = MAC)),
        arps("an ARP probe", arp().with(|a| a.sender.1 = [0; 4])),
        arps("a tagged ARP request", arp().with(|a| a.link.tags = vec![VLAN])),
        arps("an ARP request by another sender", arp().with(|a| a.sender.0[5] ^= 3)),
        nd("a solicitation", solicitation()),
        nd("a tagged solicitation", solicitation().with(|s| s.link.tags = vec![VLAN])),
        nd("a solicitation to us", solicitation().with(|s| s.destination = ours_v6())),
        nd("a solicitation to us without option", bare_solicitation()),
        nd("a solicitation in a frame to us", solicitation().with(|s| s.link.destination = MAC)),
    ]
}

fn bare_solicitation() -> Ping6 {
    solicitation().with(|s| {
        (s.destination, s.link.destination) = (ours_v6(), MAC);
        s.rest.truncate(20);
    })
}

fn passed_by_ip() -> Vec<Row> {
    use Fate::*;
    let router_alert = vec![0x94, 4, 0, 0];
    vec![
        left("no Ethernet header", PassedTruncated, cut(ping4().frame(), 13)),
        left("no byte", PassedTruncated, Vec::new()),
        left(
            "half a tag",
            PassedTruncated,
            cut(ping4().with(|p| p.link.tags = vec![VLAN]).frame(), 17),
        ),
        left(
            "half a second tag",
            PassedTruncated,
            cut(ping4().with(|p| p.link.tags = vec![SERVICE, VLAN]).frame(), 21),
        ),
        left("half an IPv4 header", PassedTruncated, cut(ping4().frame(), 33)),
        left("half an IPv6 header", PassedTruncated, cut(ping6().frame(), 53)),
        left("half an ICMP header", PassedTruncated, cut(ping4().frame(), 41)),
        left("half an ICMPv6 header", PassedTruncated, cut(ping6().frame(), 61)),
        left("an IP length of half an ICMP header", PassedTruncated, {
            ping4().with(|p| p.data.clear()).with(|p| p.longer = -1).frame()
        }),
        left("an IPv6 length of half an ICMPv6 header", PassedTruncated, {
            ping6().with(|p| p.rest.truncate(4)).with(|p| p.longer = -1).frame()
        }),
        left("an IPv6 length of 0", PassedTruncated, {
            ping6().with(|p| p.rest.truncate(4)).with(|p| p.longer = -8).frame()
        }),
        left("half an ARP packet", PassedTruncated, cut(arp().frame(), 41)),
        left("half a solicitation", PassedTruncated, cut(solicitation().frame(), 77)),
        left("a solicitation too short", PassedTruncated, {
            bare_solicitation().with(|s| s.longer = -1).frame()
        }),
        left("another EtherType", PassedProtocol, ping4().link.frame(0x88cc, &[2; 40])),
        left("an 802.3 length", PassedProtocol, ping4().link.frame(0x0026, &[0x42; 40])),
        left(
            "three tags",
            PassedProtocol,
            ping4().with(|p| p.link.tags = vec![SERVICE, VLAN, VLAN]).frame(),
        ),
        left("UDP to us", PassedProtocol, ping4().with(|p| p.protocol = 17).frame()),
        left("UDP over IPv6 to us", PassedProtocol, ping6().with(|p| p.next_header = 17).frame()),
        left("encrypted", PassedProtocol, ping6().with(|p| p.next_header = 50).frame()),
        left("another version", PassedBadHeader, ping4().with(|p| p.version = 5).frame()),
        left("another version as IPv6", PassedBadHeader, ping6().with(|p| p.version = 4).frame()),
        left("a header length of 16", PassedBadHeader, {
            let mut frame = ping4().frame();
            frame[14] = 0x44;
            frame
        }),
        left("a total length below the header's", PassedBadHeader, {
            ping4().with(|p| p.data.clear()).with(|p| p.longer = -9).frame()
        }),
        left("a group", PassedGroup, ping4().with(|p| p.destination = [224, 0, 0, 1]).frame()),
        left("everybody", PassedGroup, ping4().with(|p| p.destination = [255; 4]).frame()),
        left("a group of IPv6", PassedGroup, ping6().with(|p| p.destination = our_group()).frame()),
        left(
            "us in a group's frame",
            PassedGroup,
            ping4().with(|p| p.link.destination = GROUP_MAC).frame(),
        ),
        left(
            "us in everybody's frame",
            PassedGroup,
            ping6().with(|p| p.link.destination = [0xff; 6]).frame(),
        ),
        left(
            "us in another's frame",
            PassedForeignMac,
            ping4().with(|p| p.link.destination[5] = 8).frame(),
        ),
        left(
            "us over IPv6 in another's frame",
            PassedForeignMac,
            ping6().with(|p| p.link.destination[0] = 6).frame(),
        ),
        left("another host", PassedForeignAddress, ping4().with(|p| p.destination[3] = 8).frame()),
        left(
            "another IPv6 host",
            PassedForeignAddress,
            ping6().with(|p| p.destination[15] = 8).frame(),
        ),
        left("our IPv4 address mapped into IPv6", PassedForeignAddress, {
            let mut mapped = [0; 16];
            mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 77, 0, 9]);
            ping6().with(|p| p.destination = mapped).frame()
        }),
        left("a first fragment", PassedFragment, ping4().with(|p| p.fragment = 0x2000).frame()),
        left("a last fragment", PassedFragment, ping4().with(|p| p.fragment = 0x00b9).frame()),
        left("a fragment of IPv6", PassedFragment, {
            let header = vec![58, 0, 0, 1, 0, 0, 0, 9];
            ping6().with(|p| (p.next_header, p.extensions) = (44, header)).frame()
        }),
        left("IPv4 options", PassedOptions, ping4().with(|p| p.options = router_alert).frame()),
        left("an extension header", PassedOptions, {
            let header = vec![58, 0, 1, 4, 0, 0, 0, 0];
            ping6().with(|p| (p.next_header, p.extensions) = (60, header)).frame()
        }),
        left("a reply", PassedOtherIcmp, ping4().with(|p| p.kind = 0).frame()),
        left("an error", PassedOtherIcmp, ping4().with(|p| p.kind = 3).frame()),
        left("a timestamp request", PassedOtherIcmp, ping4().with(|p| p.kind = 13).frame()),
        left("an extended echo request", PassedOtherIcmp, ping4().with(|p| p.kind = 42).frame()),
        left("a request of another code", PassedOtherIcmp, ping4().with(|p| p.code = 1).frame()),
        left("a reply over IPv6", PassedOtherIcmp, ping6().with(|p| p.kind = 129).frame()),
        left("a request of IPv4 over IPv6", PassedOtherIcmp, ping6().with(|p| p.kind = 8).frame()),
        left("another code over IPv6", PassedOtherIcmp, ping6().with(|p| p.code = 9).frame()),
    ]
}

fn passed_neighbours() -> Vec<Row> {
    use Fate::*;
    let about = |last: u8| move |s: &mut Ping6| s.rest[19] = last;
    let strange = |what, change: fn(&mut Ping6)| {
        left(what, PassedNeighbour, solicitation().with(change).frame())
    };
    let strange_arp =
        |what, change: fn(&mut Arp)| left(what, PassedNeighbour, arp().with(change).frame());
    vec![
        left("ARP for another", PassedForeignAddress, arp().with(|a| a.target.1[3] = 8).frame()),
        left(
            "a solicitation for another",
            PassedForeignAddress,
            solicitation().with(about(8)).frame(),
        ),
        left("a solicitation for a group of the bytes of our key", PassedForeignAddress, {
            let mut target = [0xff; 16];
            target[12..].copy_from_slice(&[10, 77, 0, 9]);
            solicitation().with(|s| s.rest[4..20].copy_from_slice(&target)).frame()
        }),
        left(
            "ARP in another's frame",
            PassedForeignMac,
            arp().with(|a| a.link.destination = ASKER_MAC).frame(),
        ),
        left(
            "a solicitation in another's frame",
            PassedForeignMac,
            solicitation().with(|s| s.link.destination = ASKER_MAC).frame(),
        ),
        strange_arp("an ARP reply", |a| a.head[7] = 2),
        strange_arp("ARP of other hardware", |a| a.head[1] = 6),
        strange_arp("ARP for another protocol", |a| a.head[2] = 0x86),
        strange_arp("ARP with our own address as sender", |a| a.sender.1 = [10, 77, 0, 9]),
        strange_arp("ARP from a group", |a| a.sender.1 = [224, 0, 0, 1]),
        strange_arp("ARP from loopback", |a| a.sender.1 = [127, 0, 0, 1]),
        strange_arp("ARP from a foreign network", |a| a.sender.1 = [0, 1, 2, 3]),
        strange_arp("ARP from a group's hardware", |a| a.sender.0[0] |= 1),
        strange_arp("ARP in a group's frame back", |a| a.link.source[0] |= 1),
        strange("a duplicate address probe", |s| s.source = [0; 16]),
        strange("a solicitation from ourselves", |s| s.source = v6(0x10)),
        strange("a solicitation from a group", |s| s.source = our_group()),
        strange("a routed solicitation", |s| s.hop_limit = 254),
        strange("a solicitation of another code", |s| s.code = 1),
        strange("a solicitation to all nodes", |s| {
            s.destination = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        }),
        strange("a solicitation to another's group", |s| s.destination[15] = 8),
        strange("a solicitation with a nonce", |s| s.rest.extend([14, 1, 1, 2, 3, 4, 5, 6])),
        strange("a solicitation with another option", |s| s.rest[20] = 14),
        strange("a solicitation with a long option", |s| s.rest[21] = 2),
        strange("a solicitation to a group without option", |s| s.rest.truncate(20)),
        strange("a solicitation from a group's hardware", |s| s.link.source[0] |= 1),
    ]
}

fn dropped() -> Vec<Row> {
    use Fate::*;
    vec![
        left("longer than its frame", DroppedLength, ping4().with(|p| p.longer = 1).frame()),
        left("cut in its data", DroppedLength, cut(ping4().frame(), 97)),
        left("cut in its data over IPv6", DroppedLength, cut(ping6().frame(), 117)),
        left("a solicitation cut in its option", DroppedLength, cut(solicitation().frame(), 85)),
        left("a damaged header", DroppedChecksum, damaged(ping4().frame(), 22)),
        left("a damaged header checksum", DroppedChecksum, damaged(ping4().frame(), 25)),
        left("a damaged solicitation", DroppedChecksum, damaged(solicitation().frame(), 85)),
        left(
            "a damaged solicitation to us",
            DroppedChecksum,
            damaged(bare_solicitation().frame(), 60),
        ),
        left("from everybody", DroppedSource, ping4().with(|p| p.source = [255; 4]).frame()),
        left("from a group", DroppedSource, ping4().with(|p| p.source = [239, 1, 1, 1]).frame()),
        left(
            "from the unspecified address",
            DroppedSource,
            ping4().with(|p| p.source = [0; 4]).frame(),
        ),
        left("from loopback", DroppedSource, ping4().with(|p| p.source = [127, 0, 0, 1]).frame()),
        left(
            "from a reserved address",
            DroppedSource,
            ping4().with(|p| p.source = [240, 0, 0, 1]).frame(),
        ),
        left("from us to us", DroppedSource, ping4().with(|p| p.source = [10, 77, 0, 10]).frame()),
        left(
            "from a group's hardware",
            DroppedSource,
            ping4().with(|p| p.link.source = GROUP_MAC).frame(),
        ),
        left(
            "from the unspecified address over IPv6",
            DroppedSource,
            ping6().with(|p| p.source = [0; 16]).frame(),
        ),
        left("from loopback over IPv6", DroppedSource, {
            ping6().with(|p| (p.source, p.source[15]) = ([0; 16], 1)).frame()
        }),
        left(
            "from a group over IPv6",
            DroppedSource,
            ping6().with(|p| p.source = our_group()).frame(),
        ),
        left(
            "from us to us over IPv6",
            DroppedSource,
            ping6().with(|p| p.source = v6(0x10)).frame(),
        ),
    ]
}

pub(crate) fn frames(rows: &[Row]) -> Vec<Sent> {
    rows.iter().map(|row| Sent { at_ns: 0, bytes: row.frame.clone() }).collect()
}

#[test]
fn every_row_has_its_fate_and_every_answer_is_what_a_fresh_one_would_be() {
    let rows = rows();
    let (outcomes, fates) = run(&responder(), &frames(&rows));
    for (row, outcome) in rows.iter().zip(outcomes) {
        assert_eq!(outcome.fate, row.fate, "{}", row.what);
        if let Some(answer) = &row.answer {
            assert_eq!(outcome.bytes, *answer, "{}", row.what);
        }
    }
    let limits = [Fate::DroppedSourceLimit, Fate::DroppedGlobalLimit];
    for &fate in Fate::ALL {
        assert_eq!(fates.of(fate) == 0, limits.contains(&fate), "{fate:?}");
    }
}

#[test]
fn a_wrong_icmp_checksum_is_as_wrong_in_the_answer() {
    let ask = ping4();
    let (mut frame, mut want) = (ask.frame(), ask.reply(TTL_DEFAULT));
    let right = u16::from_be_bytes([frame[36], frame[37]]);
    frame[36..38].copy_from_slice(&(right - 3).to_be_bytes());
    let right = u16::from_be_bytes([want[36], want[37]]);
    want[36..38].copy_from_slice(&(right - 3).to_be_bytes());
    let (outcomes, _) = run(&responder(), &[Sent { at_ns: 0, bytes: frame }]);
    assert_eq!(outcomes[0].bytes, want);
}

#[test]
fn a_marker_says_who_answered() {
    let config = Config { ttl_marker: Some(96), ..responder() };
    let asked = [ping4().frame(), ping6().frame()].map(|bytes| Sent { at_ns: 0, bytes });
    let (outcomes, _) = run(&config, &asked);
    assert_eq!(outcomes[0].bytes, ping4().reply(96));
    assert_eq!(outcomes[1].bytes, ping6().reply(96));
}

#[test]
fn neighbours_are_left_to_others_when_asked_so() {
    let config = Config { answer_neighbours: false, ..responder() };
    let asked = [arp().frame(), solicitation().frame(), ping4().frame()];
    let (outcomes, _) = run(&config, &asked.map(|bytes| Sent { at_ns: 0, bytes }));
    let fates: Vec<Fate> = outcomes.iter().map(|o| o.fate).collect();
    assert_eq!(fates, [Fate::PassedNeighbour, Fate::PassedNeighbour, Fate::AnsweredEchoV4]);
}

#[test]
fn a_frame_in_several_buffers_is_answered_in_its_first() {
    let ping = ping4().with(|p| p.data = vec![0xa5; 5000]);
    let (frame, reply) = (ping.frame(), ping.reply(TTL_DEFAULT));
    let mut echo = Echo::new(&responder()).expect("a valid configuration");
    let mut first = frame[..2048].to_vec();
    assert_eq!(echo.answer(&mut first, frame.len(), 0), Fate::AnsweredEchoV4);
    assert_eq!(first, reply[..2048]);
    // The same bytes and nothing behind them are a frame that was cut.
    let mut first = frame[..2048].to_vec();
    assert_eq!(echo.answer(&mut first, 2048, 0), Fate::DroppedLength);
    assert_eq!(first, frame[..2048]);
}
