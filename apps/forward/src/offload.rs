//! Rules as a port can be asked for them: headers as they stand on the wire.
//!
//! A port may recognise less than the worker does (it does not look behind IPv6 extension headers, or
//! into a second tag), so a rule that it takes stays with the worker, too, for whatever the port lets
//! through. What must always hold: **every frame that the [`PortRule`] asks for matches the rule**, and
//! the port does all that the rule does. A rule that cannot be expressed to a port in that way is refused with its
//! reason, never given in part.

use crate::{
    compile::Entry,
    fields::{at, has},
    grammar::{Action, InFields, Item, ItemKind, Rule, Test},
};
use laneway_flow::{Header, HeaderMatch, PortAction, PortRule, pattern::HeaderKind as _};
use laneway_wire::is_extension;

/// Types of VLAN tags, as `laneway_wire::is_vlan_type` knows them.
const TAG_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// RFC 7348.
const VXLAN_PORT: u16 = 4789;
/// RFC 7348: the network identifier is valid.
const VXLAN_FLAG: u8 = 0x08;

/// Why a port cannot be asked for a rule, as part of a sentence.
pub(crate) type NotOffered = String;

/// The rule for a port.
pub(crate) fn port_rule(rule: &Rule) -> Result<PortRule, NotOffered> {
    let attributes = rule.attributes;
    if attributes.group != 0 {
        return Err("ports are offered rules of group 0: only those see every frame".to_owned());
    }
    if attributes.transfer {
        let why = "`transfer` would make the port match what other ports receive, too";
        return Err(why.to_owned());
    }
    let (pattern, actions) = (pattern(&rule.pattern)?, actions(&rule.actions)?);
    Ok(PortRule { priority: attributes.priority, pattern, actions })
}

/// True when a frame may match an entry of both.
pub(crate) fn can_meet(ours: &[Entry], theirs: &[Entry]) -> bool {
    let meets = |a: &Entry, b: &Entry| {
        let words = a.mask.iter().zip(&a.value).zip(b.mask.iter().zip(&b.value));
        let differs = words.fold(0, |differs, ((am, av), (bm, bv))| differs | (av ^ bv) & am & bm);
        differs == 0
            && !EXCLUSIVE.iter().any(|set| ((headers(a) | headers(b)) & set).count_ones() > 1)
    };
    ours.iter().any(|a| theirs.iter().any(|b| meets(a, b)))
}

/// A frame has one header of each of these sets.
const EXCLUSIVE: [u16; 2] = [has::IPV4 | has::IPV6, has::TCP | has::UDP | has::ICMP | has::ICMP6];

/// The headers that an entry asks for.
fn headers(entry: &Entry) -> u16 {
    let bytes = entry.value[at::HAS / 8].to_ne_bytes();
    u16::from_be_bytes([bytes[at::HAS % 8], bytes[at::HAS % 8 + 1]])
}

fn actions(actions: &[Action]) -> Result<Vec<PortAction>, NotOffered> {
    let mut taken = Vec::new();
    let mut decides = false;
    for action in actions {
        let why = match action {
            Action::Drop => {
                decides = true;
                // Software does not see what ends in the port, which must not be lost unnamed.
                taken.extend([PortAction::Drop, PortAction::Count]);
                continue;
            }
            Action::Queue(queue) => {
                decides = true;
                taken.push(PortAction::Queue(*queue));
                continue;
            }
            Action::Mark(mark) => {
                taken.push(PortAction::Mark(*mark));
                continue;
            }
            Action::Count => continue,
            Action::Rss(_) => "port and worker must choose the same queue, and hash differently",
            Action::PortId(_) => "a frame is sent on by the worker that received it",
            Action::Jump(_) | Action::Passthru => "later rules decide as well",
            _ => "a frame is changed once, by the worker",
        };
        return Err(format!("of `{}`: {why}", action.word()));
    }
    if !decides {
        return Err("a port is offered rules with `drop` or `queue`: it does no more".to_owned());
    }
    Ok(taken)
}

fn pattern(items: &[Item]) -> Result<Vec<HeaderMatch>, NotOffered> {
    // A frame of an Ethernet port begins with an Ethernet header, named or not.
    let mut headers = vec![HeaderMatch::any(Header::Eth)];
    let mut type_behind_tags = None;
    for item in items {
        let last = headers[headers.len() - 1].header;
        let header = match item.kind {
            ItemKind::Eth => Header::Eth,
            ItemKind::Vlan => Header::Vlan,
            ItemKind::Ipv4 => Header::Ipv4,
            ItemKind::Ipv6 => Header::Ipv6,
            ItemKind::Tcp => Header::Tcp,
            ItemKind::Udp => Header::Udp,
            ItemKind::Icmp => Header::Icmp,
            ItemKind::Icmp6 => Header::Icmp6,
            ItemKind::Vxlan => Header::Vxlan,
        };
        if matches!(header, Header::Vxlan) && matches!(last, Header::Ipv4 | Header::Ipv6) {
            headers.push(HeaderMatch::any(Header::Udp));
        } else if matches!(
            header,
            Header::Tcp | Header::Udp | Header::Icmp | Header::Icmp6 | Header::Vxlan
        ) && matches!(last, Header::Eth | Header::Vlan)
        {
            let word = item.kind.word();
            return Err(format!(
                "`{word}` stands without `ipv4` or `ipv6`, and the rule of a port must name one"
            ));
        }
        if header != Header::Eth {
            headers.push(HeaderMatch::any(header));
        }
        for test in &item.tests {
            if item.kind == ItemKind::Eth && test.field.name == "type" {
                type_behind_tags = Some(test);
                continue;
            }
            let at = headers.len() - 1;
            ask(&mut headers[at], item.kind, test)?;
        }
        if header == Header::Vxlan {
            ask_vxlan(&mut headers)?;
        }
    }
    if let Some(test) = type_behind_tags {
        ask_type(&mut headers, test)?;
    }
    Ok(headers)
}

/// A VXLAN header is one by its port and its flag.
fn ask_vxlan(headers: &mut [HeaderMatch]) -> Result<(), NotOffered> {
    let [.., udp, vxlan] = headers else { return Ok(()) };
    if udp.header != Header::Udp {
        return Err("`vxlan` stands in UDP only".to_owned());
    }
    let port = VXLAN_PORT.to_be_bytes();
    let is_asked = udp.mask[2..4] != [0, 0];
    let is_vxlan =
        udp.mask[2..4] == [0xff; 2] && udp.spec[2..4] == port && udp.last[2..4] == [0; 2];
    if is_asked && !is_vxlan {
        return Err(format!("`vxlan` is UDP to port {VXLAN_PORT} only, and `udp dst` is another"));
    }
    if !is_asked {
        udp.ask(2, &port, &port, &[0xff; 2]);
    }
    vxlan.ask(0, &[VXLAN_FLAG], &[VXLAN_FLAG], &[VXLAN_FLAG]);
    Ok(())
}

/// The type behind the tags that the pattern names. It is no tag's type, so no further tag is there.
fn ask_type(headers: &mut [HeaderMatch], test: &Test) -> Result<(), NotOffered> {
    let may_be = |kind: u16| (test.spec..=test.last).contains(&(u128::from(kind) & test.mask));
    if TAG_TYPES.into_iter().any(may_be) {
        let why =
            "of `type`: it may be that of a tag, which a port and the worker count differently";
        return Err(why.to_owned());
    }
    let tags = headers.iter().filter(|h| h.header == Header::Vlan).count();
    // The pattern begins with Ethernet and its tags.
    let (header, at) = if tags == 0 { (&mut headers[0], 12) } else { (&mut headers[tags], 2) };
    put(header, at, 2, 0, test)
}

fn ask(header: &mut HeaderMatch, kind: ItemKind, test: &Test) -> Result<(), NotOffered> {
    let (name, InFields { bytes, shift, .. }) = (test.field.name, test.field.place);
    let whole = |at: usize| (at, bytes, shift);
    let (at, bytes, shift) = match (kind, name) {
        (ItemKind::Ipv6, "proto") => {
            let is_one = test.mask == test.field.full() && test.spec == test.last;
            if !is_one || is_extension(test.spec as u8) {
                let why = "of `proto`: behind extension headers, where a port may not look, only \
                           single protocols can be asked for";
                return Err(why.to_owned());
            }
            whole(6)
        }
        (ItemKind::Ipv6, "tc") => (0, 2, 4),
        (ItemKind::Ipv6, "hop") => whole(7),
        (ItemKind::Ipv6, "src") => whole(8),
        (ItemKind::Ipv6, "dst") => whole(24),
        (ItemKind::Ipv4, "tos") => whole(1),
        (ItemKind::Ipv4, "fragment_offset") => whole(6),
        (ItemKind::Ipv4, "ttl") => whole(8),
        (ItemKind::Ipv4, "proto") => whole(9),
        (ItemKind::Ipv4, "src") => whole(12),
        (ItemKind::Ipv4, "dst") => whole(16),
        (ItemKind::Eth, "dst") => whole(0),
        (ItemKind::Eth, "src") => whole(6),
        (ItemKind::Vlan, _) => whole(0),
        (ItemKind::Tcp | ItemKind::Udp, "src") => whole(0),
        (ItemKind::Tcp | ItemKind::Udp, "dst") => whole(2),
        (ItemKind::Tcp, "flags") => whole(13),
        (ItemKind::Icmp | ItemKind::Icmp6, "type") => whole(0),
        (ItemKind::Icmp | ItemKind::Icmp6, "code") => whole(1),
        (ItemKind::Vxlan, "vni") => whole(4),
        _ => return Err(format!("of `{name}`: a port has no word for it")),
    };
    put(header, at, bytes, shift, test)
}

/// Puts a test into `bytes` bytes from `at` on.
fn put(
    header: &mut HeaderMatch,
    at: usize,
    bytes: usize,
    shift: u32,
    test: &Test,
) -> Result<(), NotOffered> {
    let Test { field, spec, last, mask } = test;
    let is_whole = *mask == field.full() && field.bits as usize == bytes * 8;
    if spec != last && !is_whole {
        return Err(format!("of `{}`: a port knows ranges of whole fields only", field.name));
    }
    let field_bytes = at..at + bytes;
    let is_asked = |bytes: &[u8]| bytes[field_bytes.clone()].iter().any(|byte| *byte != 0);
    if is_asked(&header.last) || (spec != last && is_asked(&header.mask)) {
        return Err(format!(
            "of `{}`: a port knows a range or bits of a field, not both",
            field.name
        ));
    }
    // A range from a value to itself is none; one to 0 cannot be.
    let words = [spec, last, mask].map(|value| (value << shift).to_be_bytes());
    let [spec, last, mask] = words.each_ref().map(|word| &word[16 - bytes..]);
    header.ask(at, spec, last, mask);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compile::{Bounds, compile},
        fields::Parsed,
        parser::{parse_rule, tests::rules},
    };
    use laneway_wire::{ETHERNET_BYTES, ether_type, is_vlan_type};
    use proptest::{collection::vec, prelude::*};

    const BOUNDS: Bounds = Bounds { ports: 2, queues: 4 };

    fn rule_of(pattern: &str) -> Result<PortRule, NotOffered> {
        let text = format!("ingress pattern {pattern} / end actions drop / end");
        port_rule(&parse_rule(&text).unwrap_or_else(|e| panic!("{e}")))
    }

    #[track_caller]
    fn refuses(text: &str, part: &str) {
        let rule = parse_rule(text).unwrap_or_else(|e| panic!("{e}"));
        let why = port_rule(&rule).expect_err(text);
        assert!(why.contains(part), "{why}");
    }

    #[test]
    fn fields_stand_where_they_stand_on_the_wire() {
        let rule = rule_of(
            "eth dst is 2:0:0:0:0:9 type is 0x0800 / vlan vid is 5 pcp is 3 / \
             ipv4 src is 10.0.0.0/8 proto is 17 / udp dst spec 50 dst last 60",
        )
        .expect("a port takes it");
        let [eth, vlan, ipv4, udp] = &rule.pattern[..] else { panic!("{rule:?}") };
        assert_eq!((&eth.spec[..6], &eth.mask[12..14]), (&[2, 0, 0, 0, 0, 9][..], &[0, 0][..]));
        assert_eq!(
            (&vlan.spec[..4], &vlan.mask[..4]),
            (&[0x60, 5, 8, 0][..], &[0xef, 0xff, 0xff, 0xff][..])
        );
        assert_eq!(
            (&ipv4.spec[12..16], &ipv4.mask[12..16]),
            (&[10, 0, 0, 0][..], &[0xff, 0, 0, 0][..])
        );
        assert_eq!((ipv4.spec[9], ipv4.mask[9]), (17, 0xff));
        assert_eq!((&udp.spec[2..4], &udp.last[2..4]), (&[0, 50][..], &[0, 60][..]));
        assert_eq!(rule.actions, [PortAction::Drop, PortAction::Count]);
    }

    #[test]
    fn a_vxlan_header_is_asked_for_with_its_port_and_flag() {
        let rule = rule_of("eth / ipv6 tc is 0xb8 / vxlan vni is 7").expect("a port takes it");
        let [_, ipv6, udp, vxlan] = &rule.pattern[..] else { panic!("{rule:?}") };
        assert_eq!((&ipv6.spec[..2], &ipv6.mask[..2]), (&[0x0b, 0x80][..], &[0x0f, 0xf0][..]));
        assert_eq!(udp.spec[2..4], VXLAN_PORT.to_be_bytes());
        assert_eq!(vxlan.spec[..8], [8, 0, 0, 0, 0, 0, 7, 0]);
        assert!(rule_of("eth / ipv4 / udp dst is 53 / vxlan").is_err());
        assert!(rule_of("eth / ipv4 / tcp / vxlan").is_err());
    }

    #[test]
    fn a_rule_that_a_port_takes_only_in_part_is_refused_with_its_reason() {
        let drop = |pattern: &str| format!("ingress pattern {pattern} / end actions drop / end");
        refuses(&drop("udp dst is 53"), "`ipv4` or `ipv6`");
        refuses(&drop("ipv6 proto is 44"), "extension headers");
        refuses(&drop("ipv6 proto spec 0 proto mask 1"), "extension headers");
        refuses(&drop("eth type spec 0x8000 type mask 0x8000"), "that of a tag");
        refuses(&drop("vlan vid spec 1 vid last 9"), "whole fields");
        refuses(&drop("vlan tci spec 1 tci last 9 vid spec 1 vid mask 1"), "not both");
        refuses(&drop("ipv4 src spec 10.0.0.0 src last 10.9.0.0 src mask 255.255.0.0"), "ranges");
        let does = |actions: &str| {
            format!("ingress pattern eth / ipv4 / udp / end actions {actions} / end")
        };
        refuses(&does("count"), "`drop` or `queue`");
        refuses(&does("drop / dec_ttl"), "`dec_ttl`: a frame is changed once");
        refuses(&does("port_id id 1"), "`port_id`");
        refuses(&does("rss"), "hash differently");
        refuses(&does("passthru"), "later rules");
        refuses("transfer pattern eth / end actions drop / end", "other ports");
        refuses("group 1 ingress pattern eth / end actions drop / end", "group 0");
    }

    /// What a port that reads a [`PortRule`] by the letter does with a frame: headers one behind the
    /// other, no extension header, no later fragment.
    fn matches(rule: &PortRule, frame: &[u8]) -> bool {
        let holds = |want: &HeaderMatch, at: usize| {
            let bytes = want.header.bytes();
            let Some(there) = frame.get(at..at + bytes) else { return false };
            // Ranges are of whole fields; here they are compared as the one number that they are.
            let is_range = want.last.iter().any(|byte| *byte != 0);
            there.iter().enumerate().all(|(i, byte)| {
                is_range && want.last_covers(i) || byte & want.mask[i] == want.spec[i]
            }) && (!is_range || want.ranges_hold(there))
        };
        let (mut at, mut next) = (0, None);
        for (i, want) in rule.pattern.iter().enumerate() {
            if let (Some(kind), Some(wanted)) = (next, type_of(want.header))
                && kind != wanted
            {
                return false;
            }
            if !holds(want, at) {
                return false;
            }
            let word = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
            let l4 = |header: Header| match header {
                Header::Tcp => Some(6),
                Header::Udp => Some(17),
                Header::Icmp => Some(1),
                Header::Icmp6 => Some(58),
                _ => None,
            };
            let following = rule.pattern.get(i + 1).map(|next| next.header);
            match want.header {
                Header::Eth => {
                    next = word(12);
                    at = ETHERNET_BYTES;
                }
                Header::Vlan => {
                    if i > 0 && !next.is_some_and(is_vlan_type) {
                        return false;
                    }
                    next = word(at + 2);
                    at += 4;
                }
                Header::Ipv4 => {
                    let ihl = usize::from(frame[at] & 0x0f) * 4;
                    let total = usize::from(word(at + 2).unwrap_or(0));
                    if frame[at] >> 4 != 4 || ihl < 20 || total < ihl || frame.len() < at + ihl {
                        return false;
                    }
                    let is_first = word(at + 6).is_some_and(|fragment| fragment & 0x1fff == 0);
                    let fits = following.and_then(l4).is_none_or(|protocol| {
                        let needs = if protocol == 6 { 20 } else { 8 };
                        is_first && protocol == frame[at + 9] && total - ihl >= needs
                    });
                    if !fits {
                        return false;
                    }
                    at += ihl;
                }
                Header::Ipv6 => {
                    let payload = usize::from(word(at + 4).unwrap_or(0));
                    let fits = following.and_then(l4).is_none_or(|protocol| {
                        protocol == frame[at + 6] && payload >= if protocol == 6 { 20 } else { 8 }
                    });
                    if frame[at] >> 4 != 6 || !fits {
                        return false;
                    }
                    at += 40;
                }
                Header::Tcp if frame[at + 12] >> 4 < 5 => return false,
                Header::Udp => at += 8,
                // ICMP is 8 bytes, of which 4 can be asked for.
                Header::Icmp | Header::Icmp6 if frame.len() < at + 8 => return false,
                _ => {}
            }
        }
        true
    }

    /// The type that must stand in front of a header.
    fn type_of(header: Header) -> Option<u16> {
        match header {
            Header::Ipv4 => Some(ether_type::IPV4),
            Header::Ipv6 => Some(ether_type::IPV6),
            _ => None,
        }
    }

    trait Ranges {
        fn last_covers(&self, at: usize) -> bool;
        fn ranges_hold(&self, there: &[u8]) -> bool;
    }

    impl Ranges for HeaderMatch {
        /// Fields of which ranges can be made and where they stand.
        fn last_covers(&self, at: usize) -> bool {
            fields_of(self.header).iter().any(|(from, bytes)| {
                (*from..from + bytes).contains(&at)
                    && self.last[*from..from + bytes].iter().any(|byte| *byte != 0)
            })
        }

        fn ranges_hold(&self, there: &[u8]) -> bool {
            fields_of(self.header).iter().all(|&(from, bytes)| {
                let field = from..from + bytes;
                let last = &self.last[field.clone()];
                last.iter().all(|byte| *byte == 0)
                    || (&self.spec[field.clone()]..=last).contains(&&there[field])
            })
        }
    }

    fn fields_of(header: Header) -> &'static [(usize, usize)] {
        match header {
            Header::Eth => &[(0, 6), (6, 6), (12, 2)],
            Header::Vlan => &[(0, 2), (2, 2)],
            Header::Ipv4 => &[(1, 1), (6, 2), (8, 1), (9, 1), (12, 4), (16, 4)],
            Header::Ipv6 => &[(6, 1), (7, 1), (8, 16), (24, 16)],
            Header::Tcp => &[(0, 2), (2, 2), (13, 1)],
            Header::Udp => &[(0, 2), (2, 2)],
            Header::Icmp | Header::Icmp6 => &[(0, 1), (1, 1)],
            Header::Vxlan => &[(4, 3)],
        }
    }

    /// A frame that the headers asked for make up, with these bytes where nothing is asked for.
    fn frame_for(rule: &PortRule, noise: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut noise = noise.iter().copied().cycle();
        let headers: Vec<Header> = rule.pattern.iter().map(|want| want.header).collect();
        for (i, want) in rule.pattern.iter().enumerate() {
            let bytes = match want.header {
                Header::Icmp | Header::Icmp6 => 8,
                header => header.bytes(),
            };
            let mut header: Vec<u8> = (0..bytes).map(|_| noise.next().unwrap_or(0)).collect();
            let mut sound =
                |at: usize, value: &[u8]| header[at..at + value.len()].copy_from_slice(value);
            let following = headers.get(i + 1).copied();
            let kind = match following {
                Some(Header::Vlan) => 0x8100u16,
                Some(Header::Ipv4) => ether_type::IPV4,
                Some(Header::Ipv6) => ether_type::IPV6,
                _ => 0x0806,
            };
            let protocol = match following {
                Some(Header::Tcp) => 6,
                Some(Header::Udp) => 17,
                Some(Header::Icmp) => 1,
                Some(Header::Icmp6) => 58,
                _ => 0xfe,
            };
            match want.header {
                Header::Eth => sound(12, &kind.to_be_bytes()),
                Header::Vlan => sound(2, &kind.to_be_bytes()),
                Header::Ipv4 => {
                    sound(0, &[0x45]);
                    sound(2, &[0, 100]);
                    sound(6, &[0, 0]);
                    sound(9, &[protocol]);
                }
                Header::Ipv6 => {
                    sound(0, &[0x60]);
                    sound(4, &[0, 80, protocol]);
                }
                Header::Tcp => sound(12, &[0x50]),
                _ => {}
            }
            for (i, byte) in header.iter_mut().enumerate().take(want.header.bytes()) {
                *byte = *byte & !want.mask[i] | want.spec[i];
            }
            frame.extend(header);
        }
        frame.resize(frame.len() + 60, 0);
        frame
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
        #[test]
        fn whatever_a_port_is_asked_for_matches_the_rule(
            rule in rules(), noise in vec(any::<u8>(), 64)
        ) {
            let mut rule = rule;
            rule.attributes = crate::grammar::Attributes { ingress: true, ..Default::default() };
            rule.actions = vec![Action::Drop];
            let (Ok(offered), Ok(compiled)) = (port_rule(&rule), compile(&rule, BOUNDS)) else {
                return Ok(());
            };
            let frame = frame_for(&offered, &noise);
            if matches(&offered, &frame) {
                let fields = Parsed::of(&frame).fields;
                let found = compiled.entries.iter().any(|entry| entry.matches(&fields));
                prop_assert!(found, "{rule}\n{offered:02x?}\n{frame:02x?}");
            }
        }

        #[test]
        fn rules_that_cannot_meet_share_no_frame(a in rules(), b in rules(), noise in vec(any::<u8>(), 64)) {
            let (Ok(ours), Ok(theirs)) = (compile(&a, BOUNDS), compile(&b, BOUNDS)) else {
                return Ok(());
            };
            if let (false, Ok(offered)) = (can_meet(&ours.entries, &theirs.entries), port_rule(&a)) {
                let fields = Parsed::of(&frame_for(&offered, &noise)).fields;
                let both = [&ours, &theirs]
                    .map(|c| c.entries.iter().any(|entry| entry.matches(&fields)));
                prop_assert_ne!(both, [true, true]);
            }
        }
    }

    #[test]
    fn rules_meet_where_their_masks_agree() {
        let entries = |pattern: &str| {
            let text = format!("ingress pattern {pattern} / end actions drop / end");
            compile(&parse_rule(&text).expect("a rule"), BOUNDS).expect("it can be").entries
        };
        let meet = |a: &str, b: &str| can_meet(&entries(a), &entries(b));
        assert!(!meet("ipv4 / udp dst is 53", "ipv4 / udp dst is 54"));
        assert!(meet("ipv4 dst is 10.0.0.0/8", "ipv4 / udp dst is 54"));
        assert!(!meet("ipv4 dst is 10.0.0.0/8", "ipv4 dst is 11.0.0.0/8 / tcp"));
        assert!(meet("udp dst spec 1 dst last 9", "udp dst is 5"));
        assert!(!meet("udp dst spec 1 dst last 9", "udp dst is 10"));
        assert!(!meet("tcp", "udp"), "by the protocol number");
    }
}
