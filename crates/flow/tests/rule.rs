//! Compiled rules against the rules they were written from: a rule is made here as data, turned
//! into text for the parser, and evaluated here without parser, offsets and masks.

mod records;

use laneway_flow::{Has, Record, RecordMatch, Rule};
use proptest::prelude::*;
use records::record;
use std::net::{Ipv4Addr, Ipv6Addr};

#[derive(Clone, Debug)]
enum Want {
    Is(u128),
    Range(u128, u128),
    Masked(u128, u128),
    /// The highest so many bits are those of the value.
    Prefix(u128, u32),
}

/// A field as people know it: its name, width in bits, and a value that records have.
#[derive(Clone, Copy, Debug)]
struct Field(&'static str, u32, u128);

#[derive(Clone, Debug)]
struct Condition {
    field: Field,
    want: Want,
    /// Which of the two ways to write it.
    otherwise: bool,
}

#[derive(Clone, Debug)]
struct Item {
    kind: &'static str,
    conditions: Vec<Condition>,
}

const V4: u128 = 0x0a00_0001;
const V6: u128 = 0x2001_0db8 << 96 | 1;
const PORTS: [Field; 2] = [Field("src", 16, 1000), Field("dst", 16, 1001)];

fn fields(kind: &str) -> Vec<Field> {
    match kind {
        "eth" => vec![Field("type", 16, 0x0800)],
        "vlan" => vec![Field("vid", 12, 1), Field("pcp", 3, 7), Field("dei", 1, 1)],
        "ipv4" => {
            vec![
                Field("src", 32, V4),
                Field("dst", 32, V4),
                Field("ttl", 8, 63),
                Field("tos", 8, 9),
            ]
        }
        "ipv6" => vec![
            Field("src", 128, V6),
            Field("dst", 128, V6),
            Field("proto", 8, 17),
            Field("hop", 8, 63),
            Field("tc", 8, 255),
        ],
        "tcp" => [&PORTS[..], &[Field("flags", 9, 16)]].concat(),
        "udp" | "sctp" => PORTS.to_vec(),
        _ => vec![Field("type", 8, 2), Field("code", 8, 1)],
    }
}

impl Condition {
    fn text(&self) -> String {
        let Condition { field: Field(name, bits, _), want, otherwise } = self;
        let v = |value: u128| match bits {
            32 => Ipv4Addr::from_bits(value as u32).to_string(),
            128 => Ipv6Addr::from_bits(value).to_string(),
            _ if *otherwise => format!("{value:#x}"),
            _ => value.to_string(),
        };
        match want {
            Want::Is(value) if *otherwise => format!("{name} spec {}", v(*value)),
            Want::Is(value) => format!("{name} is {}", v(*value)),
            Want::Range(first, last) if *otherwise => {
                format!("{name} last {} {name} spec {}", v(*last), v(*first))
            }
            Want::Range(first, last) => {
                format!("{name} spec {} {name} last {}", v(*first), v(*last))
            }
            Want::Masked(value, mask) => {
                format!("{name} spec {} {name} mask {}", v(*value), v(*mask))
            }
            Want::Prefix(value, ones) if *otherwise && *bits >= 32 => {
                format!("{name} is {}/{ones}", v(*value))
            }
            Want::Prefix(value, ones) => format!("{name} spec {} {name} prefix {ones}", v(*value)),
        }
    }

    fn holds(&self, value: u128) -> bool {
        let Field(_, bits, _) = self.field;
        match self.want {
            Want::Is(want) => value == want,
            Want::Range(first, last) => (first..=last).contains(&value),
            Want::Masked(want, mask) => value & mask == want & mask,
            Want::Prefix(want, ones) => {
                let rest = bits - ones;
                ones == 0 || value >> rest == want >> rest
            }
        }
    }
}

/// The value of a field by its name.
fn value(kind: &str, inner: bool, field: &str, r: &Record) -> u128 {
    let tci = u128::from(if inner { r.vlan_tci2 } else { r.vlan_tci });
    let address = |ip: Ipv6Addr| match ip.to_ipv4_mapped() {
        Some(ip) => u128::from(ip.to_bits()),
        None => ip.to_bits(),
    };
    match (kind, field) {
        ("eth", "type") => r.eth_type.into(),
        ("vlan", "vid") => tci & 0xfff,
        ("vlan", "dei") => tci >> 12 & 1,
        ("vlan", "pcp") => tci >> 13,
        ("ipv4" | "ipv6", "src") => address(r.source()),
        ("ipv4" | "ipv6", "dst") => address(r.destination()),
        ("ipv4" | "ipv6", "proto") => r.proto.into(),
        (_, "ttl" | "hop") => r.ttl.into(),
        (_, "tos" | "tc") => r.tos.into(),
        (_, "type") => r.icmp_type.into(),
        (_, "code") => r.icmp_code.into(),
        (_, "flags") => r.tcp_flags.into(),
        (_, "src") => r.src_port.into(),
        (_, "dst") => r.dst_port.into(),
        other => panic!("no such field: {other:?}"),
    }
}

fn is_there(kind: &str, inner: bool, r: &Record) -> bool {
    let is_l4 = |proto: u8, has: Has| r.proto == proto && r.has.contains(has);
    match kind {
        "eth" => true,
        "vlan" => r.has.contains(if inner { Has::VLAN2 } else { Has::VLAN }),
        "ipv4" => r.has.contains(Has::IPV4),
        "ipv6" => r.has.contains(Has::IPV6),
        "tcp" => is_l4(6, Has::PORTS),
        "udp" => is_l4(17, Has::PORTS),
        "sctp" => is_l4(132, Has::PORTS),
        "icmp" => is_l4(1, Has::ICMP),
        "icmp6" => is_l4(58, Has::ICMP),
        other => panic!("no such item: {other}"),
    }
}

fn pattern_holds(items: &[Item], r: &Record) -> bool {
    let mut tags = 0;
    items.iter().all(|item| {
        tags += usize::from(item.kind == "vlan");
        let inner = tags == 2;
        is_there(item.kind, inner, r)
            && item.conditions.iter().all(|c| {
                let Field(name, ..) = c.field;
                (name != "flags" || r.has.contains(Has::TCP))
                    && c.holds(value(item.kind, inner, name, r))
            })
    })
}

fn pattern_text(items: &[Item]) -> String {
    let items = items.iter().map(|item| {
        let conditions = item.conditions.iter().map(|c| format!(" {}", c.text()));
        format!("{}{}", item.kind, conditions.collect::<String>())
    });
    format!("{} / end", items.collect::<Vec<_>>().join(" / "))
}

/// Perhaps a condition on a field, with values around those that the records have.
fn condition(field: Field) -> impl Strategy<Value = Option<Condition>> {
    let Field(_, bits, about) = field;
    let most = if bits == 128 { u128::MAX } else { (1 << bits) - 1 };
    let value = (0u128..7).prop_map(move |n| (about.saturating_sub(3) + n).min(most));
    let want = prop_oneof![
        2 => value.clone().prop_map(Want::Is),
        1 => (value.clone(), 0u128..6).prop_map(move |(v, n)| {
            Want::Range(v, v.saturating_add(n).min(most))
        }),
        1 => (value.clone(), 0u128..8, any::<bool>()).prop_map(move |(v, m, not)| {
            Want::Masked(v, if not { most & !m } else { most & m })
        }),
        1 => (value, prop_oneof![Just(0), bits.saturating_sub(3)..=bits])
            .prop_map(|(v, ones)| Want::Prefix(v, ones)),
    ];
    let found = (want, any::<bool>()).prop_map(move |(want, otherwise)| Condition {
        field,
        want,
        otherwise,
    });
    prop_oneof![3 => Just(None), 1 => found.prop_map(Some)]
}

fn item(kind: &'static str) -> impl Strategy<Value = Item> {
    let conditions = fields(kind).into_iter().map(condition).collect::<Vec<_>>();
    conditions
        .prop_map(move |found| Item { kind, conditions: found.into_iter().flatten().collect() })
}

fn pattern() -> impl Strategy<Value = Vec<Item>> {
    let eth = proptest::collection::vec(item("eth"), 0..2);
    let vlan = prop_oneof![2 => Just(0usize), 1 => Just(1), 1 => Just(2)]
        .prop_flat_map(|tags| proptest::collection::vec(item("vlan"), tags));
    let l4 = |icmp: &'static str| {
        let some = prop_oneof![item("tcp"), item("udp"), item("sctp"), item(icmp)];
        prop_oneof![1 => Just(Vec::new()), 2 => some.prop_map(|i| vec![i])]
    };
    let inner = prop_oneof![
        3 => (item("ipv4"), l4("icmp")).prop_map(|(ip, l4)| [vec![ip], l4].concat()),
        2 => (item("ipv6"), l4("icmp6")).prop_map(|(ip, l4)| [vec![ip], l4].concat()),
        1 => prop_oneof![item("tcp"), item("udp"), item("icmp")].prop_map(|i| vec![i]),
    ];
    (eth, vlan, inner).prop_map(|(eth, vlan, inner)| [eth, vlan, inner].concat())
}

fn no_panic_and_a_place(text: &str) -> Result<(), TestCaseError> {
    if let Err(error) = text.parse::<RecordMatch>() {
        prop_assert!((1..=error.line.chars().count() + 1).contains(&error.column));
        prop_assert!(error.to_string().ends_with('^'));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn a_rule_matches_what_its_text_says(
        patterns in proptest::collection::vec(pattern(), 1..4),
        records in proptest::collection::vec(record(), 100),
    ) {
        let mut kept = Vec::new();
        for items in patterns {
            let text = pattern_text(&items);
            let rule: Rule = text.parse().map_err(|e| TestCaseError::fail(format!("{e}")))?;
            match rule.compile() {
                Ok(_) => kept.push((text, items)),
                Err(e) if e.expected.contains("can never match") => {
                    prop_assert!(!records.iter().any(|r| pattern_holds(&items, r)), "{e}");
                }
                Err(e) => prop_assert!(e.expected.contains("value/mask pairs"), "{e}"),
            }
        }
        let texts: Vec<_> = kept.iter().map(|(text, _)| text.as_str()).collect();
        let text = texts.join(" or ");
        let Ok(compiled) = text.parse::<RecordMatch>() else {
            return Err(TestCaseError::reject("nothing is left, or too many pairs together"));
        };
        for r in &records {
            let direct = kept.iter().any(|(_, items)| pattern_holds(items, r));
            prop_assert_eq!(compiled.matches(r), direct, "{} on {:?}", text, r);
        }
    }

    #[test]
    fn a_rule_survives_being_written_and_read(
        patterns in proptest::collection::vec(pattern(), 1..4),
    ) {
        let texts: Vec<_> = patterns.iter().map(|p| pattern_text(p)).collect();
        let rule: Rule = texts.join(" or ").parse().map_err(|e| TestCaseError::fail(format!("{e}")))?;
        let again: Rule = rule.to_string().parse().map_err(|e| TestCaseError::fail(format!("{e}")))?;
        prop_assert_eq!(again.to_string(), rule.to_string());
        prop_assert_eq!(again.compile().ok(), rule.compile().ok());
    }

    #[test]
    fn no_text_makes_the_parser_panic(
        words in proptest::collection::vec(
            prop_oneof![
                Just("eth"), Just("vlan"), Just("ipv4"), Just("ipv6"), Just("tcp"), Just("/"),
                Just("or"), Just("end"), Just("src"), Just("dst"), Just("is"), Just("spec"),
                Just("last"), Just("mask"), Just("prefix"), Just("1"), Just("10.0.0.1/33"),
                Just("::1/0"), Just("0x"), Just("é"), Just("99999999999999999999999999999999999999999"),
            ],
            0..12,
        ),
        noise in any::<String>(),
        long in "\\PC{4000,5000}",
    ) {
        for text in [words.join(" "), noise, long] {
            no_panic_and_a_place(&text)?;
        }
    }

    #[test]
    fn a_damaged_rule_does_not_make_the_parser_panic(
        items in pattern(), place in any::<prop::sample::Index>(), with in any::<Option<char>>(),
    ) {
        let mut text: Vec<char> = pattern_text(&items).chars().collect();
        let at = place.index(text.len());
        text.splice(at..=at, with);
        no_panic_and_a_place(&text.into_iter().collect::<String>())?;
    }
}
