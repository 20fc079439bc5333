//! The capture filter: a flow rule that keeps the frames that it matches.
//!
//! ```text
//! rule     := pattern { "or" pattern }
//! pattern  := ["pattern"] item { "/" item } [ "/" "end" ]
//! ```
//! Items are read by [`crate::pattern`].
//!
//! | item | fields |
//! |---|---|
//! | eth | type (behind the VLAN tags) |
//! | vlan (twice: the inner tag) | vid pcp dei tci |
//! | ipv4 | src dst proto ttl tos |
//! | ipv6 | src dst proto (behind extension headers) hop tc |
//! | tcp | src dst flags |
//! | udp, sctp | src dst |
//! | icmp, icmp6 | type code |
//!
//! An item that is named must be there; **an item that is not named does not constrain**: `eth /
//! ipv4` matches tagged packets as well. Layer-4 items need a header that was read, so later
//! fragments do not match them. `eth` alone matches every frame.
//!
//! A [`Rule`] is the syntax tree. [`Rule::compile`] turns it into a [`RecordMatch`]: value/mask
//! pairs over the bytes of a record, which the kernel half evaluates as the same words.

use crate::layout::CField;
use crate::pattern::{Field, HeaderKind, Item, Notation, SyntaxError, Words};
use crate::{Has, RECORD_BYTES, Record};
use laneway_wire::protocol;
use std::{fmt, str::FromStr};

/// The most value/mask pairs, over all patterns and after ranges became prefixes.
pub const PAIRS_MAX: usize = 16;
/// 64-bit words of a record that are matched: its bytes from [`FIRST_BYTE`] to the end.
pub const WORDS: usize = 11;
/// Where matching starts: behind time and number.
pub const FIRST_BYTE: usize = 16;
/// Bytes of `struct lw_filter`.
pub const FILTER_BYTES: usize = 8 + 2 * PAIRS_MAX * WORDS * 8;

/// An item of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// The Ethernet header.
    Eth,
    /// A VLAN tag.
    Vlan,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmp6,
}

/// Where a record has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRecord {
    /// Offset in the record, in bytes.
    at: usize,
    /// Lowest bit of the field in the host-order integer at `at`; 0 for addresses.
    shift: u32,
}

const fn number(name: &'static str, at: usize, shift: u32, bits: u32) -> Field<InRecord> {
    Field { name, bits, notation: Notation::Number, place: InRecord { at, shift } }
}

const fn ipv4(name: &'static str, at: usize) -> Field<InRecord> {
    Field { name, bits: 32, notation: Notation::Ipv4, place: InRecord { at: at + 12, shift: 0 } }
}

const fn ipv6(name: &'static str, at: usize) -> Field<InRecord> {
    Field { name, bits: 128, notation: Notation::Ipv6, place: InRecord { at, shift: 0 } }
}

// Offsets of struct lw_record; a test compares each with the record itself.
const SRC_IP: usize = 16;
const DST_IP: usize = 32;
const SRC_PORT: usize = 64;
const DST_PORT: usize = 66;
const ETH_TYPE: usize = 68;
const VLAN_TCI: usize = 70;
const VLAN_TCI2: usize = 72;
const TCP_FLAGS: usize = 84;
const PROTO: usize = 89;
const TTL: usize = 90;
const TOS: usize = 91;
const ICMP_TYPE: usize = 92;
const ICMP_CODE: usize = 93;
const HAS: usize = 96;

const PORTS: &[Field<InRecord>] = &[number("src", SRC_PORT, 0, 16), number("dst", DST_PORT, 0, 16)];
const ICMP: &[Field<InRecord>] =
    &[number("type", ICMP_TYPE, 0, 8), number("code", ICMP_CODE, 0, 8)];

impl HeaderKind for ItemKind {
    type Place = InRecord;

    const ALL: &'static [ItemKind] = &[
        ItemKind::Eth,
        ItemKind::Vlan,
        ItemKind::Ipv4,
        ItemKind::Ipv6,
        ItemKind::Tcp,
        ItemKind::Udp,
        ItemKind::Sctp,
        ItemKind::Icmp,
        ItemKind::Icmp6,
    ];

    fn word(self) -> &'static str {
        match self {
            ItemKind::Eth => "eth",
            ItemKind::Vlan => "vlan",
            ItemKind::Ipv4 => "ipv4",
            ItemKind::Ipv6 => "ipv6",
            ItemKind::Tcp => "tcp",
            ItemKind::Udp => "udp",
            ItemKind::Sctp => "sctp",
            ItemKind::Icmp => "icmp",
            ItemKind::Icmp6 => "icmp6",
        }
    }

    fn layer(self) -> u8 {
        match self {
            ItemKind::Eth => 0,
            ItemKind::Vlan => 1,
            ItemKind::Ipv4 | ItemKind::Ipv6 => 2,
            _ => 3,
        }
    }

    fn count_max(self) -> usize {
        if self == ItemKind::Vlan { 2 } else { 1 }
    }

    fn why_not_behind(self, before: ItemKind) -> Option<&'static str> {
        match (before, self) {
            (ItemKind::Ipv6, ItemKind::Icmp) => {
                Some("but ICMP over IPv6 is `icmp6`: this can never match")
            }
            (ItemKind::Ipv4, ItemKind::Icmp6) => {
                Some("but ICMP over IPv4 is `icmp`: this can never match")
            }
            _ => None,
        }
    }

    fn fields(self) -> &'static [Field<InRecord>] {
        match self {
            ItemKind::Eth => const { &[number("type", ETH_TYPE, 0, 16)] },
            ItemKind::Vlan => {
                const {
                    &[
                        number("vid", VLAN_TCI, 0, 12),
                        number("pcp", VLAN_TCI, 13, 3),
                        number("dei", VLAN_TCI, 12, 1),
                        number("tci", VLAN_TCI, 0, 16),
                    ]
                }
            }
            ItemKind::Ipv4 => {
                const {
                    &[
                        ipv4("src", SRC_IP),
                        ipv4("dst", DST_IP),
                        number("proto", PROTO, 0, 8),
                        number("ttl", TTL, 0, 8),
                        number("tos", TOS, 0, 8),
                    ]
                }
            }
            ItemKind::Ipv6 => {
                const {
                    &[
                        ipv6("src", SRC_IP),
                        ipv6("dst", DST_IP),
                        number("proto", PROTO, 0, 8),
                        number("hop", TTL, 0, 8),
                        number("tc", TOS, 0, 8),
                    ]
                }
            }
            ItemKind::Tcp => {
                const {
                    &[
                        number("src", SRC_PORT, 0, 16),
                        number("dst", DST_PORT, 0, 16),
                        number("flags", TCP_FLAGS, 0, 9),
                    ]
                }
            }
            ItemKind::Udp | ItemKind::Sctp => PORTS,
            ItemKind::Icmp | ItemKind::Icmp6 => ICMP,
        }
    }
}

impl ItemKind {
    /// What a record has if the item is there: `has` bits and protocol.
    fn presence(self) -> (Has, Option<u8>) {
        match self {
            ItemKind::Eth => (Has::default(), None),
            ItemKind::Vlan => (Has::VLAN, None),
            ItemKind::Ipv4 => (Has::IPV4, None),
            ItemKind::Ipv6 => (Has::IPV6, None),
            ItemKind::Tcp => (Has::PORTS, Some(protocol::TCP)),
            ItemKind::Udp => (Has::PORTS, Some(protocol::UDP)),
            ItemKind::Sctp => (Has::PORTS, Some(protocol::SCTP)),
            ItemKind::Icmp => (Has::ICMP, Some(protocol::ICMP)),
            ItemKind::Icmp6 => (Has::ICMP, Some(protocol::ICMPV6)),
        }
    }
}

/// Items from the outside in, all of which must match.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The items.
    pub items: Vec<Item<ItemKind>>,
    /// The number of its first word.
    place: usize,
}

/// A parsed rule: it matches what any of its patterns matches.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The patterns, at least one.
    pub patterns: Vec<Pattern>,
    text: String,
}

/// One value/mask pair over a record's bytes from [`FIRST_BYTE`] on. The value is zero where the
/// mask is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    value: [u8; WORDS * 8],
    mask: [u8; WORDS * 8],
}

impl Pair {
    const ANY: Pair = Pair { value: [0; WORDS * 8], mask: [0; WORDS * 8] };

    /// Adds a demand on a field; `None` if it contradicts an earlier one.
    fn with(mut self, field: &Field<InRecord>, value: u128, mask: u128) -> Option<Pair> {
        let InRecord { at: first, shift } = field.place;
        let (value, mask) = (value << shift, mask << shift);
        let bytes = (field.bits + shift).div_ceil(8) as usize;
        for i in 0..bytes {
            // Numbers lie in host order (little-endian), addresses as on the wire.
            let at = first - FIRST_BYTE
                + if field.notation == Notation::Number { i } else { bytes - 1 - i };
            let (v, m) = ((value >> (8 * i)) as u8, (mask >> (8 * i)) as u8);
            if (self.value[at] ^ v) & self.mask[at] & m != 0 {
                return None;
            }
            self.value[at] |= v & m;
            self.mask[at] |= m;
        }
        Some(self)
    }
}

impl Rule {
    /// The rule as value/mask pairs.
    ///
    /// # Errors
    /// When it takes more than [`PAIRS_MAX`], or a pattern contradicts itself.
    pub fn compile(&self) -> Result<RecordMatch, SyntaxError> {
        let error = |pattern: &Pattern, why: String| {
            Err(Words::new(&self.text)?.wrong_at(pattern.place, why))
        };
        let mut all = Vec::new();
        for pattern in &self.patterns {
            let pairs = match pattern.pairs() {
                Ok(pairs) => pairs,
                Err(message) => return error(pattern, message),
            };
            if all.len() + pairs.len() > PAIRS_MAX {
                return error(
                    pattern,
                    format!(
                        "but up to this pattern the rule takes {} value/mask pairs; at most \
                         {PAIRS_MAX} are possible",
                        all.len() + pairs.len()
                    ),
                );
            }
            all.extend(pairs);
        }
        Ok(RecordMatch::of_pairs(&all))
    }
}

impl Pattern {
    /// The pattern's pairs without those that contradict themselves: at least one, at most
    /// [`PAIRS_MAX`], or why not.
    fn pairs(&self) -> Result<Vec<Pair>, String> {
        let mut pairs = vec![Pair::ANY];
        let mut tags = 0;
        for item in &self.items {
            let kind = item.kind;
            let (mut has, proto) = kind.presence();
            if kind == ItemKind::Vlan {
                tags += 1;
                has = if tags == 2 { Has::VLAN2 } else { has };
            }
            if item.tests.iter().any(|test| test.field.place.at == TCP_FLAGS) {
                has.insert(Has::TCP);
            }
            let bits = u128::from(has.bits());
            narrow(&mut pairs, &number("has", HAS, 0, 16), &[(bits, bits)]);
            if let Some(proto) = proto {
                narrow(&mut pairs, &number("proto", PROTO, 0, 8), &[(proto.into(), 0xff)]);
            }
            if pairs.is_empty() {
                return Err(never(kind.word()));
            }
            for test in &item.tests {
                let mut field = *test.field;
                if tags == 2 && field.place.at == VLAN_TCI {
                    field.place.at = VLAN_TCI2;
                }
                narrow(&mut pairs, &field, &test.pairs(PAIRS_MAX));
                if pairs.is_empty() {
                    return Err(never(&format!("{} {test}", kind.word())));
                }
                if pairs.len() > PAIRS_MAX {
                    return Err(format!(
                        "but this pattern's ranges take more than {PAIRS_MAX} value/mask pairs; use \
                         fewer ranges, or ones that start and end at powers of two"
                    ));
                }
            }
        }
        Ok(pairs)
    }
}

fn never(demand: &str) -> String {
    format!(
        "but this pattern can never match: `{demand}` contradicts what stands before it; leave one out"
    )
}

/// Replaces each pair by one per choice.
fn narrow(pairs: &mut Vec<Pair>, field: &Field<InRecord>, choices: &[(u128, u128)]) {
    *pairs = pairs
        .iter()
        .flat_map(|pair| choices.iter().filter_map(|(v, m)| pair.with(field, *v, *m)))
        .collect();
}

impl fmt::Display for Rule {
    /// The rule in one canonical form, which parses to the same rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pattern) in self.patterns.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { " or " })?;
            for item in &pattern.items {
                write!(f, "{item} / ")?;
            }
            f.write_str("end")?;
        }
        Ok(())
    }
}

impl FromStr for Rule {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Rule, SyntaxError> {
        let mut words = Words::new(text)?;
        let mut patterns = vec![pattern(&mut words)?];
        while words.peek().is_some() {
            words.keyword(&["or"])?;
            patterns.push(pattern(&mut words)?);
        }
        Ok(Rule { patterns, text: text.to_owned() })
    }
}

fn pattern(words: &mut Words<'_>) -> Result<Pattern, SyntaxError> {
    let place = words.place();
    words.accept("pattern");
    let mut items = Vec::new();
    loop {
        let ends: &[&'static str] = if items.is_empty() { &[] } else { &["end"] };
        match words.item(&items, ends)? {
            Some(item) => items.push(item),
            None => break,
        }
        if !words.accept("/") {
            break;
        }
    }
    Ok(Pattern { items, place })
}

/// A compiled rule: a record matches if for any pair `(word & mask) == value` holds in all words.
///
/// The words are the record's bytes 16 to 103 as `struct lw_record` lies in memory, eight at a
/// time, each read as a little-endian u64. Without pairs everything matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordMatch {
    count: usize,
    value: [[u64; WORDS]; PAIRS_MAX],
    mask: [[u64; WORDS]; PAIRS_MAX],
}

fn to_words(bytes: &[u8; WORDS * 8]) -> [u64; WORDS] {
    let (chunks, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_le_bytes(chunks[i]))
}

impl RecordMatch {
    /// Matches every record: `count` 0 in `struct lw_filter`.
    pub fn everything() -> RecordMatch {
        RecordMatch::default()
    }

    fn of_pairs(pairs: &[Pair]) -> RecordMatch {
        let mut found = RecordMatch { count: pairs.len(), ..RecordMatch::default() };
        for (i, pair) in pairs.iter().enumerate() {
            found.value[i] = to_words(&pair.value);
            found.mask[i] = to_words(&pair.mask);
        }
        found
    }

    /// How many pairs; 0 matches everything.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether the record matches.
    #[inline]
    pub fn matches(&self, record: &Record) -> bool {
        self.count == 0 || self.matches_bytes(&record.to_bytes())
    }

    /// Whether the record in these bytes matches.
    #[inline]
    pub fn matches_bytes(&self, record: &[u8; RECORD_BYTES]) -> bool {
        let (words, _) = record[FIRST_BYTE..].as_chunks::<8>();
        self.count == 0
            || self.value.iter().zip(&self.mask).take(self.count).any(|(value, mask)| {
                let differs = words.iter().zip(value.iter().zip(mask));
                differs.fold(0, |d, (w, (v, m))| d | ((u64::from_le_bytes(*w) & m) ^ v)) == 0
            })
    }

    /// Writes `struct lw_filter` (filter.h), the kernel half's constant.
    pub fn to_bytes(&self) -> [u8; FILTER_BYTES] {
        let mut bytes = [0; FILTER_BYTES];
        (self.count as u32).write(&mut bytes);
        self.value.write(&mut bytes[8..]);
        self.mask.write(&mut bytes[8 + PAIRS_MAX * WORDS * 8..]);
        bytes
    }
}

impl FromStr for RecordMatch {
    type Err = SyntaxError;

    /// Parses and compiles.
    fn from_str(text: &str) -> Result<RecordMatch, SyntaxError> {
        text.parse::<Rule>()?.compile()
    }
}

#[cfg(test)]
mod tests;
