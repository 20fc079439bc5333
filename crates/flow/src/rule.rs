//! Flow-rule patterns: the capture filter, in the grammar that people know from DPDK's rte_flow.
//!
//! ```text
//! rule     := pattern { "or" pattern }
//! pattern  := ["pattern"] item { "/" item } [ "/" "end" ]
//! item     := eth | vlan | ipv4 | ipv6 | tcp | udp | sctp | icmp | icmp6, then { field test }
//! test     := "is" VALUE | "is" ADDRESS/BITS | "spec" VALUE, then the same field with
//!             "last" VALUE (a range) or "mask" VALUE or "prefix" BITS
//! ```
//! Words stand between blanks, `/` too. Numbers are decimal or 0x hexadecimal.
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
use crate::{Has, RECORD_BYTES, Record};
use laneway_spec::nearest;
use laneway_wire::protocol;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::{fmt, str::FromStr};

/// The most value/mask pairs, over all patterns and after ranges became prefixes.
pub const PAIRS_MAX: usize = 16;
/// 64-bit words of a record that are matched: its bytes from [`FIRST_BYTE`] to the end.
pub const WORDS: usize = 11;
/// Where matching starts: behind time and number.
pub const FIRST_BYTE: usize = 16;
/// Bytes of `struct lw_filter`.
pub const FILTER_BYTES: usize = 8 + 2 * PAIRS_MAX * WORDS * 8;
/// The longest rule text in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Why a text is no rule, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("flow rule: {message}\n  {}\n  {:>caret$}", line(text), '^', caret = column(text, *at))]
pub struct RuleError {
    /// The text, cut at [`TEXT_BYTES_MAX`] if it is longer.
    pub text: String,
    /// Byte position of the word that is wrong; the text's length at its end.
    pub at: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

/// The text on one line, so that the caret finds its place.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn column(text: &str, at: usize) -> usize {
    text.char_indices().filter(|(i, _)| *i < at).count() + 1
}

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

/// How values of a field are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    Number,
    Ipv4,
    Ipv6,
}

/// A field and its place in a record.
#[derive(Clone, Copy, Debug)]
struct Field {
    name: &'static str,
    /// Offset in the record, in bytes.
    at: usize,
    /// Lowest bit of the field in the host-order integer at `at`; 0 for addresses.
    shift: u32,
    /// Width in bits.
    bits: u32,
    notation: Notation,
}

const fn number(name: &'static str, at: usize, shift: u32, bits: u32) -> Field {
    Field { name, at, shift, bits, notation: Notation::Number }
}

const fn ipv4(name: &'static str, at: usize) -> Field {
    Field { name, at: at + 12, shift: 0, bits: 32, notation: Notation::Ipv4 }
}

const fn ipv6(name: &'static str, at: usize) -> Field {
    Field { name, at, shift: 0, bits: 128, notation: Notation::Ipv6 }
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

const PORTS: &[Field] = &[number("src", SRC_PORT, 0, 16), number("dst", DST_PORT, 0, 16)];
const ICMP: &[Field] = &[number("type", ICMP_TYPE, 0, 8), number("code", ICMP_CODE, 0, 8)];

impl ItemKind {
    const ALL: [ItemKind; 9] = [
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

    /// The word in the grammar.
    pub fn name(self) -> &'static str {
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

    fn fields(self) -> &'static [Field] {
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

/// What a field must be. Addresses are numbers too, most significant byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Equal.
    Is(u128),
    /// Within, both ends included.
    Range {
        /// Least.
        first: u128,
        /// Greatest.
        last: u128,
    },
    /// Equal where the mask has ones.
    Masked {
        /// Zero where the mask is.
        value: u128,
        /// Which bits count.
        mask: u128,
    },
}

/// One field's test.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    field: Field,
    test: Test,
}

impl Condition {
    /// The field's name.
    pub fn field(&self) -> &'static str {
        self.field.name
    }

    /// What it must be.
    pub fn test(&self) -> Test {
        self.test
    }
}

/// One item with its conditions, all of which must hold.
#[derive(Clone, Debug)]
pub struct Item {
    /// Which header.
    pub kind: ItemKind,
    /// Conditions on its fields, each field at most once.
    pub conditions: Vec<Condition>,
}

/// Items from the outside in, all of which must match.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The items.
    pub items: Vec<Item>,
    at: usize,
}

/// A parsed rule: it matches what any of its patterns matches.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The patterns, at least one.
    pub patterns: Vec<Pattern>,
    text: String,
}

/// A word of the text and where it stands.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    at: usize,
}

struct Parser<'a> {
    text: &'a str,
    words: Vec<Word<'a>>,
    next: usize,
}

/// The operators seen for one field of an item.
struct Draft<'a> {
    field: Field,
    name: Word<'a>,
    is: Option<Test>,
    spec: Option<u128>,
    last: Option<(u128, usize)>,
    mask: Option<u128>,
}

const OPERATORS: [&str; 5] = ["is", "spec", "last", "mask", "prefix"];

/// The ones of the highest `ones` of `bits` bits.
fn prefix_mask(bits: u32, ones: u32) -> u128 {
    all_ones(bits) & !all_ones(bits - ones)
}

fn all_ones(bits: u32) -> u128 {
    if bits == 128 { u128::MAX } else { (1 << bits) - 1 }
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        let words = text
            .split_whitespace()
            .map(|word| Word { text: word, at: word.as_ptr().addr() - text.as_ptr().addr() })
            .collect();
        Parser { text, words, next: 0 }
    }

    fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, RuleError> {
        Err(RuleError { text: self.text.to_owned(), at, message: message.into() })
    }

    fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.next).copied()
    }

    fn accept(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|w| w.text == text);
        self.next += usize::from(found);
        found
    }

    /// The next word, or an error at the end of the text.
    fn word(&mut self, expected: &str) -> Result<Word<'a>, RuleError> {
        match self.peek() {
            Some(word) => {
                self.next += 1;
                Ok(word)
            }
            None => {
                self.error(self.text.len(), format!("expected {expected}, but the text ends here"))
            }
        }
    }

    /// The error for a word that is none of `known`.
    fn unknown<T>(&self, word: Word<'_>, expected: &str, known: &[&str]) -> Result<T, RuleError> {
        let hint = if word.text.len() > 1 && word.text.contains('/') {
            "; put blanks around `/`".to_owned()
        } else {
            nearest(word.text, known).map_or_else(String::new, |n| format!("; did you mean `{n}`?"))
        };
        self.error(word.at, format!("expected {expected}, found `{}`{hint}", word.text))
    }

    fn rule(mut self) -> Result<Rule, RuleError> {
        let mut patterns = vec![self.pattern()?];
        while self.accept("or") {
            patterns.push(self.pattern()?);
        }
        match self.peek() {
            None => Ok(Rule { patterns, text: self.text.to_owned() }),
            Some(word) => self.unknown(word, "`or` or the end of the text", &["or"]),
        }
    }

    fn pattern(&mut self) -> Result<Pattern, RuleError> {
        let at = self.peek().map_or(self.text.len(), |w| w.at);
        self.accept("pattern");
        let mut items = vec![self.item(&[])?];
        while self.accept("/") {
            if self.accept("end") {
                break;
            }
            let item = self.item(&items)?;
            items.push(item);
        }
        Ok(Pattern { items, at })
    }

    fn item(&mut self, before: &[Item]) -> Result<Item, RuleError> {
        let names = ItemKind::ALL.map(ItemKind::name);
        let expected = format!(
            "an item ({}){}",
            names.join(", "),
            if before.is_empty() { "" } else { " or `end`" }
        );
        let word = self.word(&expected)?;
        let Some(kind) = ItemKind::ALL.into_iter().find(|k| k.name() == word.text) else {
            return self.unknown(word, &expected, &names);
        };
        self.check_order(kind, word, before)?;
        let is_inner_tag = kind == ItemKind::Vlan && count_tags(before) == 1;

        let fields = kind.fields();
        let names: Vec<_> = fields.iter().map(|f| f.name).collect();
        let mut drafts: Vec<Draft<'a>> = Vec::new();
        while let Some(word) = self.peek() {
            if matches!(word.text, "/" | "or") {
                break;
            }
            let Some(mut field) = fields.iter().find(|f| f.name == word.text).copied() else {
                let expected =
                    format!("a field of {} ({}), `/` or `or`", kind.name(), names.join(", "));
                return self.unknown(word, &expected, &names);
            };
            if is_inner_tag {
                field.at = VLAN_TCI2;
            }
            self.next += 1;
            self.operator(field, word, &mut drafts)?;
        }
        let mut conditions = Vec::with_capacity(drafts.len());
        for draft in drafts {
            conditions.push(self.condition(&draft)?);
        }
        Ok(Item { kind, conditions })
    }

    fn check_order(
        &self,
        kind: ItemKind,
        word: Word<'_>,
        before: &[Item],
    ) -> Result<(), RuleError> {
        let Some(last) = before.last() else { return Ok(()) };
        if kind == ItemKind::Vlan && count_tags(before) == 2 {
            return self.error(word.at, "at most two VLAN tags are looked at");
        }
        let again = kind == ItemKind::Vlan && last.kind == ItemKind::Vlan;
        if kind.layer() <= last.kind.layer() && !again {
            return self.error(
                word.at,
                format!(
                    "`{}` cannot follow `{}`; the order is eth / vlan / ipv4 or ipv6 / layer 4",
                    word.text,
                    last.kind.name()
                ),
            );
        }
        match (last.kind, kind) {
            (ItemKind::Ipv6, ItemKind::Icmp) => {
                self.error(word.at, "ICMP over IPv6 is `icmp6`, this can never match")
            }
            (ItemKind::Ipv4, ItemKind::Icmp6) => {
                self.error(word.at, "ICMP over IPv4 is `icmp`, this can never match")
            }
            _ => Ok(()),
        }
    }

    /// Reads `is VALUE` and the like after a field's name.
    fn operator(
        &mut self,
        field: Field,
        name: Word<'a>,
        drafts: &mut Vec<Draft<'a>>,
    ) -> Result<(), RuleError> {
        let expected = format!("one of {} after `{}`", OPERATORS.join(", "), field.name);
        let operator = self.word(&expected)?;
        if !OPERATORS.contains(&operator.text) {
            return self.unknown(operator, &expected, &OPERATORS);
        }
        let value = self.word(&format!("a value after `{} {}`", field.name, operator.text))?;
        let known = drafts.iter().position(|d| d.field.name == field.name);
        let index = known.unwrap_or_else(|| {
            drafts.push(Draft { field, name, is: None, spec: None, last: None, mask: None });
            drafts.len() - 1
        });
        let draft = &drafts[index];
        let taken = match operator.text {
            "is" | "spec" => draft.is.is_some() || draft.spec.is_some(),
            _ => draft.is.is_some() || draft.last.is_some() || draft.mask.is_some(),
        };
        if taken {
            return self.error(
                operator.at,
                format!(
                    "`{}` already has a condition; use one `is`, or one `spec` with one of last, \
                     mask, prefix",
                    field.name
                ),
            );
        }
        let draft = &mut drafts[index];
        match operator.text {
            "is" => draft.is = Some(self.is_value(field, value)?),
            "spec" => draft.spec = Some(self.value(field, value.text, value.at)?),
            "last" => draft.last = Some((self.value(field, value.text, value.at)?, value.at)),
            "mask" => draft.mask = Some(self.value(field, value.text, value.at)?),
            _ => draft.mask = Some(self.prefix(field, value.text, value.at)?),
        }
        Ok(())
    }

    /// A value, or an address with a prefix length.
    fn is_value(&self, field: Field, word: Word<'_>) -> Result<Test, RuleError> {
        match word.text.split_once('/') {
            Some((address, bits)) if field.notation != Notation::Number => {
                let mask = self.prefix(field, bits, word.at + address.len() + 1)?;
                Ok(Test::Masked { value: self.value(field, address, word.at)? & mask, mask })
            }
            _ => Ok(Test::Is(self.value(field, word.text, word.at)?)),
        }
    }

    fn prefix(&self, field: Field, text: &str, at: usize) -> Result<u128, RuleError> {
        match text.parse::<u32>() {
            Ok(ones) if ones <= field.bits => Ok(prefix_mask(field.bits, ones)),
            _ => self.error(
                at,
                format!("`{text}` is no prefix length of {}; use 0 to {}", field.name, field.bits),
            ),
        }
    }

    fn value(&self, field: Field, text: &str, at: usize) -> Result<u128, RuleError> {
        let (value, expected) = match field.notation {
            Notation::Number => {
                let value = match text.strip_prefix("0x") {
                    Some(digits) => u128::from_str_radix(digits, 16).ok(),
                    None => text.parse().ok(),
                };
                let most = all_ones(field.bits);
                (value.filter(|v| *v <= most), format!("a number from 0 to {most} ({most:#x})"))
            }
            Notation::Ipv4 => (
                text.parse::<Ipv4Addr>().ok().map(|a| a.to_bits().into()),
                "an IPv4 address such as 10.0.0.1".to_owned(),
            ),
            Notation::Ipv6 => (
                text.parse::<Ipv6Addr>().ok().map(|a| a.to_bits()),
                "an IPv6 address such as 2001:db8::1".to_owned(),
            ),
        };
        match value {
            Some(value) => Ok(value),
            None => {
                self.error(at, format!("`{text}` does not fit {}; expected {expected}", field.name))
            }
        }
    }

    fn condition(&self, draft: &Draft<'_>) -> Result<Condition, RuleError> {
        let name = draft.field.name;
        let test = match (draft.is, draft.spec, draft.last, draft.mask) {
            (Some(test), ..) => test,
            (None, None, ..) => {
                return self.error(
                    draft.name.at,
                    format!("`{name}` has a last, mask or prefix but no `{name} spec VALUE`"),
                );
            }
            (None, Some(first), Some((last, at)), _) if last < first => {
                return self.error(at, format!("the range of {name} ends before it starts"));
            }
            (None, Some(first), Some((last, _)), _) => Test::Range { first, last },
            (None, Some(value), None, Some(mask)) => Test::Masked { value: value & mask, mask },
            (None, Some(value), None, None) => Test::Is(value),
        };
        Ok(Condition { field: draft.field, test })
    }
}

fn count_tags(items: &[Item]) -> usize {
    items.iter().filter(|i| i.kind == ItemKind::Vlan).count()
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
    fn with(mut self, field: &Field, value: u128, mask: u128) -> Option<Pair> {
        let (value, mask) = (value << field.shift, mask << field.shift);
        let bytes = (field.bits + field.shift).div_ceil(8) as usize;
        for i in 0..bytes {
            // Numbers lie in host order (little-endian), addresses as on the wire.
            let at = field.at - FIRST_BYTE
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

/// The fewest prefixes (value, mask) that cover `first..=last` of a field of `bits` bits.
fn prefixes(first: u128, last: u128, bits: u32) -> Vec<(u128, u128)> {
    let mut found = Vec::new();
    let mut at = first;
    loop {
        // The largest aligned block that starts here and ends within the range.
        let mut free = at.trailing_zeros().min(bits);
        while free > 0 && all_ones(free) > last - at {
            free -= 1;
        }
        found.push((at, all_ones(bits) & !all_ones(free)));
        let end = at + all_ones(free);
        if end == last {
            return found;
        }
        at = end + 1;
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        if text.len() > TEXT_BYTES_MAX {
            let at = text.floor_char_boundary(TEXT_BYTES_MAX);
            let message =
                format!("the text has {} bytes; use at most {TEXT_BYTES_MAX}", text.len());
            return Err(RuleError { text: text[..at].to_owned(), at, message });
        }
        Parser::new(text).rule()
    }
}

impl Rule {
    /// The rule as value/mask pairs.
    ///
    /// # Errors
    /// When it takes more than [`PAIRS_MAX`], or a pattern contradicts itself.
    pub fn compile(&self) -> Result<RecordMatch, RuleError> {
        let error = |pattern: &Pattern, message: String| {
            Err(RuleError { text: self.text.clone(), at: pattern.at, message })
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
                        "up to this pattern the rule takes {} value/mask pairs; at most \
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
            if item.conditions.iter().any(|c| c.field.at == TCP_FLAGS) {
                has.insert(Has::TCP);
            }
            let bits = u128::from(has.bits());
            narrow(&mut pairs, &number("has", HAS, 0, 16), &[(bits, bits)]);
            if let Some(proto) = proto {
                narrow(&mut pairs, &number("proto", PROTO, 0, 8), &[(proto.into(), 0xff)]);
            }
            if pairs.is_empty() {
                return Err(never(kind.name()));
            }
            for condition in &item.conditions {
                let field = &condition.field;
                let choices = match condition.test {
                    Test::Is(value) => vec![(value, all_ones(field.bits))],
                    Test::Masked { value, mask } => vec![(value, mask)],
                    Test::Range { first, last } => prefixes(first, last, field.bits),
                };
                narrow(&mut pairs, field, &choices);
                if pairs.is_empty() {
                    return Err(never(&format!("{} {condition}", kind.name())));
                }
                if pairs.len() > PAIRS_MAX {
                    return Err(format!(
                        "this pattern's ranges take more than {PAIRS_MAX} value/mask pairs; use \
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
        "this pattern can never match: `{demand}` contradicts what stands before it; leave one out"
    )
}

/// Replaces each pair by one per choice.
fn narrow(pairs: &mut Vec<Pair>, field: &Field, choices: &[(u128, u128)]) {
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
                f.write_str(item.kind.name())?;
                for condition in &item.conditions {
                    write!(f, " {condition}")?;
                }
                f.write_str(" / ")?;
            }
            f.write_str("end")?;
        }
        Ok(())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.field.name;
        let text = |value: u128| match self.field.notation {
            Notation::Number => value.to_string(),
            Notation::Ipv4 => Ipv4Addr::from_bits(value as u32).to_string(),
            Notation::Ipv6 => Ipv6Addr::from_bits(value).to_string(),
        };
        match self.test {
            Test::Is(value) => write!(f, "{name} is {}", text(value)),
            Test::Range { first, last } => {
                write!(f, "{name} spec {} {name} last {}", text(first), text(last))
            }
            Test::Masked { value, mask } => {
                write!(f, "{name} spec {} {name} mask {}", text(value), text(mask))
            }
        }
    }
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
    type Err = RuleError;

    /// Parses and compiles.
    fn from_str(text: &str) -> Result<RecordMatch, RuleError> {
        text.parse::<Rule>()?.compile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        text.parse::<RecordMatch>().expect_err(text).to_string()
    }

    #[test]
    fn errors_point_at_the_word_and_suggest_the_nearest() {
        assert_eq!(
            message("eth / ipv4 / tcp dest is 80"),
            "flow rule: expected a field of tcp (src, dst, flags), `/` or `or`, found `dest`; did \
             you mean `dst`?\n  eth / ipv4 / tcp dest is 80\n                   ^"
        );
        assert!(message("eth / ip4").contains("did you mean `ipv4`?"));
        assert!(message("eth/ipv4").contains("put blanks around `/`"));
        assert!(message("udp src si 5").contains("did you mean `is`?"));
    }

    #[test]
    fn errors_say_what_is_missing_at_the_end() {
        for text in ["", "eth /", "udp src", "udp src is", "eth or"] {
            let error = text.parse::<Rule>().unwrap_err();
            assert_eq!(error.at, text.len(), "{error}");
            assert!(error.message.contains("but the text ends here"), "{error}");
        }
    }

    #[test]
    fn values_must_fit_their_field() {
        assert!(message("vlan vid is 4096").contains("from 0 to 4095"));
        assert!(message("ipv4 src is 10.0.0.0/33").contains("use 0 to 32"));
        assert!(message("ipv4 src is ::1").contains("an IPv4 address"));
        assert!(message("udp src is 80/8").contains("a number"));
        assert!(message("udp src spec 9 src last 8").contains("ends before it starts"));
    }

    #[test]
    fn conditions_are_given_once_and_completely() {
        assert!(message("udp src is 1 src is 2").contains("already has a condition"));
        assert!(message("udp src spec 1 src last 2 src mask 3").contains("already"));
        assert!(message("udp src last 2").contains("no `src spec VALUE`"));
    }

    #[test]
    fn a_text_beyond_the_limit_is_refused_and_not_repeated_whole() {
        let text = "é".repeat(TEXT_BYTES_MAX);
        let error = format!("a{text}").parse::<Rule>().unwrap_err();
        assert!(error.message.contains("8193 bytes; use at most 4096"), "{error}");
        assert_eq!(error.text.len(), TEXT_BYTES_MAX - 1);
        assert!(error.to_string().len() < 3 * TEXT_BYTES_MAX);
    }

    #[test]
    fn what_can_never_match_is_refused() {
        assert!(message("ipv4 proto is 6 / udp").contains("never match: `udp` contradicts"));
        assert!(message("vlan vid is 5 tci is 6").contains("`vlan tci is 6` contradicts"));
        assert!(message("ipv6 / icmp").contains("icmp6"));
        assert!(message("tcp / ipv4").contains("cannot follow"));
        assert!(message("vlan / vlan / vlan").contains("two VLAN tags"));
    }

    #[test]
    fn more_pairs_than_fit_are_refused_by_name() {
        assert!(message("udp src spec 1 src last 65534").contains("more than 16"));
        let many = vec!["udp src is 1"; 17].join(" or ");
        assert!(message(&many).contains("takes 17 value/mask pairs"));
        let fits = vec!["udp src is 1"; 16].join(" or ");
        assert_eq!(fits.parse::<RecordMatch>().unwrap().count(), 16);
    }

    #[test]
    fn a_huge_product_of_ranges_is_refused_quickly() {
        let r = |name: &str| format!("{name} spec ::1 {name} last ffff::fffe");
        assert!(message(&format!("ipv6 {} {}", r("src"), r("dst"))).contains("more than 16"));
    }

    #[test]
    fn ranges_become_the_fewest_prefixes() {
        assert_eq!(prefixes(0, 0xffff, 16), [(0, 0)]);
        assert_eq!(prefixes(0, u128::MAX, 128), [(0, 0)]);
        assert_eq!(prefixes(u128::MAX, u128::MAX, 128), [(u128::MAX, u128::MAX)]);
        assert_eq!(prefixes(1, 4, 8), [(1, 0xff), (2, 0xfe), (4, 0xff)]);
        for first in 0..64u128 {
            for last in first..64 {
                let found = prefixes(first, last, 6);
                for v in 0..64 {
                    let hits = found.iter().filter(|(value, mask)| v & mask == *value).count();
                    assert_eq!(hits, usize::from((first..=last).contains(&v)));
                }
            }
        }
    }

    #[test]
    fn fields_lie_where_the_record_has_them() {
        let (_, _, layout) = Record::C_LAYOUT;
        for (name, at) in [
            ("src_ip", SRC_IP),
            ("dst_ip", DST_IP),
            ("src_port", SRC_PORT),
            ("dst_port", DST_PORT),
            ("eth_type", ETH_TYPE),
            ("vlan_tci", VLAN_TCI),
            ("vlan_tci2", VLAN_TCI2),
            ("tcp_flags", TCP_FLAGS),
            ("proto", PROTO),
            ("ttl", TTL),
            ("tos", TOS),
            ("icmp_type", ICMP_TYPE),
            ("icmp_code", ICMP_CODE),
            ("has", HAS),
        ] {
            assert!(layout.contains(&(name, at)), "{name}");
        }
    }

    #[test]
    fn items_that_are_not_named_do_not_constrain() {
        let rule: RecordMatch = "pattern eth / ipv4 / end".parse().unwrap();
        let mut record = Record { has: Has::IPV4.with(Has::VLAN), ..Record::default() };
        assert!(rule.matches(&record));
        record.has = Has::IPV6;
        assert!(!rule.matches(&record));
        let any: RecordMatch = "eth".parse().unwrap();
        assert!(any.matches(&Record::default()));
    }

    #[test]
    fn the_caret_stands_under_the_word_behind_wide_characters() {
        let error = "eth / ipv4 src is é zz is".parse::<Rule>().unwrap_err().to_string();
        let lines: Vec<_> = error.lines().collect();
        let caret = lines[2].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[1].chars().nth(caret), Some('é'), "{error}");
    }
}
