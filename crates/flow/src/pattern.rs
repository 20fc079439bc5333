//! The pattern of a flow rule, in the grammar that people know from DPDK's rte_flow: text to headers and what their
//! fields must be.
//!
//! ```text
//! pattern  := item { "/" item }
//! item     := the word of a header, then { field test }
//! test     := "is" VALUE | "is" ADDRESS/BITS | "spec" VALUE, then the same field with "last" VALUE (a range),
//!             "mask" VALUE or "prefix" BITS
//! ```
//! Words stand between blanks, `/` too. Numbers are decimal or 0x hexadecimal.
//!
//! Which headers there are and where their fields lie is the reader's: the capture filter ([`crate::rule`]) finds them
//! in a record, app `forward` in a frame. Both read the same words and refuse with the same sentences.
//!
//! What must always hold: any text gives items or an error that points into it. A test that constrains nothing is not
//! kept, and the bits of a value outside its mask are zero, so equal patterns are equal values. What an item prints
//! parses to the same item.

use laneway_spec::nearest;
use std::fmt::{self, Debug};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest text in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Characters of a wrong word that an error repeats.
const FOUND_CHARS_MAX: usize = 64;

/// Why a text is no flow rule, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SyntaxError {
    /// The text, cut at [`TEXT_BYTES_MAX`].
    pub line: String,
    /// The column of the word that is wrong, in characters from 1; behind the last one at the end.
    pub column: usize,
    /// What stands there; empty at the end.
    pub found: String,
    /// What could stand there, or what is wrong with what does.
    pub expected: String,
}

impl SyntaxError {
    /// What stands there and what is wrong with it, without the place.
    pub fn sentence(&self) -> String {
        match self.found.as_str() {
            "" => format!("found the end of the line, {}", self.expected),
            word => format!("found `{word}`, {}", self.expected),
        }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // On one line, so that the caret finds its place.
        let shown: String =
            self.line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let (column, sentence) = (self.column, self.sentence());
        write!(f, "flow rule, column {column}: {sentence}\n  {shown}\n  {:>column$}", '^')
    }
}

/// How values of a field are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// Decimal, or hexadecimal behind `0x`.
    Number,
    /// Six bytes in hexadecimal between colons.
    Mac,
    /// Four bytes in decimal between dots.
    Ipv4,
    /// RFC 4291, section 2.2.
    Ipv6,
}

impl Notation {
    /// What an error says was expected.
    pub fn wanted(self) -> &'static str {
        match self {
            Notation::Number => "a number (decimal or 0x...)",
            Notation::Mac => "a MAC address, as 02:00:00:00:00:01",
            Notation::Ipv4 => "an IPv4 address, as 192.0.2.1",
            Notation::Ipv6 => "an IPv6 address, as 2001:db8::1",
        }
    }

    /// The value of a word; addresses are numbers too, most significant byte first.
    pub fn parse(self, text: &str) -> Option<u128> {
        match self {
            Notation::Number => match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
                Some(hex) if !hex.starts_with('+') => u128::from_str_radix(hex, 16).ok(),
                None if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok(),
                _ => None,
            },
            Notation::Mac => {
                let mut parts = text.split(':');
                let mut value = 0;
                for _ in 0..6 {
                    let part = parts.next().filter(|p| matches!(p.len(), 1 | 2))?;
                    value = value << 8 | u128::from(u8::from_str_radix(part, 16).ok()?);
                }
                parts.next().is_none().then_some(value)
            }
            Notation::Ipv4 => Some(u128::from(text.parse::<Ipv4Addr>().ok()?.to_bits())),
            Notation::Ipv6 => Some(text.parse::<Ipv6Addr>().ok()?.to_bits()),
        }
    }

    /// The value as it is written.
    pub fn print(self, value: u128) -> String {
        match self {
            Notation::Number => value.to_string(),
            Notation::Mac => {
                let bytes = value.to_be_bytes();
                let parts: Vec<String> = bytes[10..].iter().map(|b| format!("{b:02x}")).collect();
                parts.join(":")
            }
            Notation::Ipv4 => Ipv4Addr::from_bits(value as u32).to_string(),
            Notation::Ipv6 => Ipv6Addr::from_bits(value).to_string(),
        }
    }
}

/// A field of a header, and where its reader finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<P> {
    /// The word in a pattern.
    pub name: &'static str,
    /// Width in bits, 1 to 128.
    pub bits: u32,
    /// How its values are written.
    pub notation: Notation,
    /// Where it is.
    pub place: P,
}

impl<P> Field<P> {
    /// All bits of the field.
    pub fn full(&self) -> u128 {
        u128::MAX >> (128 - self.bits)
    }

    /// The mask of its highest `ones` bits, at most all.
    pub fn prefix_mask(&self, ones: u32) -> u128 {
        self.full() & u128::MAX.checked_shl(self.bits - ones).unwrap_or(0)
    }
}

/// A header that a pattern can name.
pub trait HeaderKind: Copy + PartialEq + Debug + 'static {
    /// Where a field is.
    type Place: Clone + PartialEq + Debug + 'static;

    /// All of them, outermost first.
    const ALL: &'static [Self];

    /// The word in a pattern.
    fn word(self) -> &'static str;

    /// The layer: an item stands behind items of lower layers only.
    fn layer(self) -> u8;

    /// How many may stand one behind the other.
    fn count_max(self) -> usize {
        1
    }

    /// Its fields, in the order in which an item prints them.
    fn fields(self) -> &'static [Field<Self::Place>];

    /// What is wrong with it behind `before`, where the order of layers does not say it.
    fn why_not_behind(self, _before: Self) -> Option<&'static str> {
        None
    }
}

/// What a field must be: `(value & mask)` from `spec` to `last`, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test<P: 'static> {
    /// The field.
    pub field: &'static Field<P>,
    /// The least; zero where the mask is.
    pub spec: u128,
    /// The greatest, at least `spec`; zero where the mask is.
    pub last: u128,
    /// Which bits count; some do.
    pub mask: u128,
}

impl<P> Test<P> {
    /// Whether the mask is leading ones: its complement within the field is one less than a power of two.
    fn is_prefix(&self) -> bool {
        let rest = self.field.full() & !self.mask;
        rest & (rest.wrapping_add(1)) == 0
    }

    /// Values and masks of which one holds exactly if the test does: as few as there can be under a mask without holes,
    /// and hardly more than `max` where there would be.
    ///
    /// A number under a mask with holes is in a range if its bits under the mask, read as a number with zeros
    /// elsewhere, are: the prefixes of the range, each cut to the mask.
    pub fn pairs(&self, max: usize) -> Vec<(u128, u128)> {
        let Test { spec, last, mask, .. } = *self;
        if spec == last {
            return vec![(spec, mask)];
        }
        if (spec, last) == (0, mask) {
            return vec![(0, 0)];
        }
        let mut pairs: Vec<(u128, u128)> = Vec::new();
        let mut low = spec;
        loop {
            // The largest aligned block that starts here and does not go beyond the end.
            let mut bits = if low == 0 { 127 } else { low.trailing_zeros() };
            while bits > 0 && (1u128 << bits) - 1 > last - low {
                bits -= 1;
            }
            let rest = (1u128 << bits) - 1;
            // A block whose fixed part has bits outside the mask holds no number under the mask.
            if low & !rest & !mask == 0 {
                pairs.push((low & mask, !rest & mask));
            }
            match low.checked_add(rest).and_then(|high| high.checked_add(1)) {
                Some(next) if next <= last => low = next,
                _ => return pairs,
            }
            if pairs.len() > max {
                return pairs;
            }
        }
    }
}

/// One header of a pattern and what its fields must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<H: HeaderKind> {
    /// Which header.
    pub kind: H,
    /// In the order of the header's fields, each field once.
    pub tests: Vec<Test<H::Place>>,
}

impl<P> fmt::Display for Test<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Test { field, spec, last, mask } = self;
        let (name, print) = (field.name, |value| field.notation.print(value));
        let (whole, range) = (*mask == field.full(), spec != last);
        if whole && !range {
            return write!(f, "{name} is {}", print(*spec));
        }
        write!(f, "{name} spec {}", print(*spec))?;
        if range {
            write!(f, " {name} last {}", print(*last))?;
        }
        match field.notation {
            _ if whole => Ok(()),
            Notation::Ipv4 | Notation::Ipv6 if self.is_prefix() => {
                write!(f, " {name} prefix {}", mask.count_ones())
            }
            notation => write!(f, " {name} mask {}", notation.print(*mask)),
        }
    }
}

impl<H: HeaderKind> fmt::Display for Item<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())?;
        self.tests.iter().try_for_each(|test| write!(f, " {test}"))
    }
}

/// The words of a text, and which is next.
pub struct Words<'a> {
    line: &'a str,
    /// Byte position and text.
    words: Vec<(usize, &'a str)>,
    next: usize,
}

impl<'a> Words<'a> {
    /// The words of this text.
    ///
    /// # Errors
    /// If it is longer than [`TEXT_BYTES_MAX`].
    pub fn new(line: &'a str) -> Result<Words<'a>, SyntaxError> {
        let start = line.as_ptr().addr();
        let words = line.split_whitespace().map(|word| (word.as_ptr().addr() - start, word));
        let words = Words { line, words: words.collect(), next: 0 };
        if line.len() > TEXT_BYTES_MAX {
            let why =
                format!("but the line has {} bytes; {TEXT_BYTES_MAX} are the most", line.len());
            return Err(words.wrong(why));
        }
        Ok(words)
    }

    /// The next word, which stays the next.
    pub fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|(_, word)| *word)
    }

    /// The number of the next word, for [`Words::wrong_at`].
    pub fn place(&self) -> usize {
        self.next
    }

    /// Takes the next word if it is this one.
    pub fn accept(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.next += usize::from(found);
        found
    }

    /// Takes one of these words.
    ///
    /// # Errors
    /// If the next word is none of them; with the nearest.
    pub fn keyword(&mut self, known: &[&'static str]) -> Result<&'static str, SyntaxError> {
        let word = self.peek().unwrap_or("");
        if let Some(known) = known.iter().find(|known| **known == word) {
            self.next += 1;
            return Ok(known);
        }
        let mut expected = match known {
            [one] => format!("expected `{one}`"),
            many => format!("expected one of {}", many.join(" ")),
        };
        if word.len() > 1 && word.contains('/') {
            expected.push_str("; put blanks around `/`");
        } else if let Some(near) = nearest(word, known).filter(|_| known.len() > 1) {
            expected.push_str(&format!("; did you mean `{near}`?"));
        }
        Err(self.wrong(expected))
    }

    /// Takes a value in this notation.
    ///
    /// # Errors
    /// If the next word is none.
    pub fn value(&mut self, notation: Notation) -> Result<u128, SyntaxError> {
        match self.peek().and_then(|word| notation.parse(word)) {
            Some(value) => {
                self.next += 1;
                Ok(value)
            }
            None => Err(self.wrong(format!("expected {}", notation.wanted()))),
        }
    }

    /// Takes a number of at most `max`; an error calls it `what`.
    ///
    /// # Errors
    /// If the next word is none, or is greater.
    pub fn number(&mut self, what: &str, max: u128) -> Result<u128, SyntaxError> {
        match self.peek().and_then(|word| Notation::Number.parse(word)) {
            Some(value) if value <= max => {
                self.next += 1;
                Ok(value)
            }
            Some(_) => Err(self.wrong(format!("but {max} is the most"))),
            None => Err(self.wrong(format!("expected {what}"))),
        }
    }

    /// Passes the end of the text.
    ///
    /// # Errors
    /// If there is one more word.
    pub fn end(&self) -> Result<(), SyntaxError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.wrong("expected the end of the line")),
        }
    }

    /// The error that the next word is.
    pub fn wrong(&self, expected: impl Into<String>) -> SyntaxError {
        self.wrong_at(self.next, expected)
    }

    /// The error that the word of this number is; behind the last one, the end.
    pub fn wrong_at(&self, place: usize, expected: impl Into<String>) -> SyntaxError {
        let (at, found) = self.words.get(place).copied().unwrap_or((self.line.len(), ""));
        let line = &self.line[..self.line.floor_char_boundary(TEXT_BYTES_MAX)];
        let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        SyntaxError {
            line: line.to_owned(),
            column: line[..at.min(line.len())].chars().count() + 1,
            // A terminal is not to take it for a command.
            found: found.chars().take(FOUND_CHARS_MAX).map(printable).collect(),
            expected: expected.into(),
        }
    }

    /// Takes an item that can stand behind these; nothing if the next word is one of `ends`, which it takes.
    ///
    /// # Errors
    /// At the first word that is wrong.
    pub fn item<H: HeaderKind>(
        &mut self,
        before: &[Item<H>],
        ends: &[&'static str],
    ) -> Result<Option<Item<H>>, SyntaxError> {
        let headers = H::ALL.iter().map(|kind| kind.word());
        let known: Vec<&'static str> = headers.chain(ends.iter().copied()).collect();
        let (place, word) = (self.next, self.keyword(&known)?);
        let Some(&kind) = H::ALL.iter().find(|kind| kind.word() == word) else {
            return Ok(None);
        };
        if let Some(last) = before.last().map(|item| item.kind) {
            if let Some(why) = kind.why_not_behind(last) {
                return Err(self.wrong_at(place, why));
            }
            let count = before.iter().rev().take_while(|item| item.kind == kind).count();
            let is_one_more = (1..kind.count_max()).contains(&count);
            if kind.layer() <= last.layer() && !is_one_more {
                let why = match count {
                    0 | 1 => format!("but it cannot stand behind `{}`", last.word()),
                    count => format!("but {count} of them are the most"),
                };
                return Err(self.wrong_at(place, why));
            }
        }
        Ok(Some(Item { kind, tests: self.tests(kind.fields())? }))
    }

    /// Takes what is asked of these fields, up to `/`, `or` or the end.
    fn tests<P: Clone>(
        &mut self,
        fields: &'static [Field<P>],
    ) -> Result<Vec<Test<P>>, SyntaxError> {
        let names: Vec<&'static str> = fields.iter().map(|field| field.name).chain(["/"]).collect();
        let mut drafts = vec![Draft::default(); fields.len()];
        while self.peek().is_some_and(|word| !matches!(word, "/" | "or")) {
            let (place, name) = (self.next, self.keyword(&names)?);
            let found = fields.iter().zip(&mut drafts).find(|(field, _)| field.name == name);
            let (field, draft) = found.expect("`names` are the names of `fields`");
            self.relation(field, draft, place)?;
        }
        let tests = fields.iter().zip(drafts).map(|(field, draft)| self.test(field, draft));
        tests.filter_map(Result::transpose).collect()
    }

    /// Takes `is VALUE` and the like behind the name of a field.
    fn relation<P>(
        &mut self,
        field: &Field<P>,
        draft: &mut Draft,
        place: usize,
    ) -> Result<(), SyntaxError> {
        if draft.is_empty() {
            draft.place = place;
        }
        let relation_at = self.next;
        let relation = self.keyword(&["is", "spec", "last", "mask", "prefix"])?;
        let is_taken = match relation {
            "is" => draft.spec.is_some() || draft.mask.is_some(),
            "spec" => draft.spec.is_some(),
            "last" => draft.last.is_some(),
            _ => draft.mask.is_some(),
        };
        if is_taken {
            let why = format!("but `{}` has that already", field.name);
            return Err(self.wrong_at(relation_at, why));
        }
        match relation {
            "is" => {
                let (value, mask) = self.value_and_mask(field)?;
                (draft.spec, draft.mask) = (Some(value), Some(mask));
            }
            "prefix" => {
                let ones = self.number("a number of bits", field.bits.into())? as u32;
                draft.mask = Some(field.prefix_mask(ones));
            }
            "spec" => draft.spec = Some(self.value_of(field)?),
            "last" => draft.last = Some(self.value_of(field)?),
            _ => draft.mask = Some(self.value_of(field)?),
        }
        Ok(())
    }

    /// The test that was drafted; nothing if it constrains nothing.
    fn test<P>(
        &self,
        field: &'static Field<P>,
        draft: Draft,
    ) -> Result<Option<Test<P>>, SyntaxError> {
        let Draft { spec, last, mask, place } = draft;
        if draft.is_empty() {
            return Ok(None);
        }
        let Some(spec) = spec else {
            let why = format!("but `{0}` needs a value: `{0} is` or `{0} spec`", field.name);
            return Err(self.wrong_at(place, why));
        };
        let mask = mask.unwrap_or_else(|| field.full());
        let (spec, last) = (spec & mask, last.unwrap_or(spec) & mask);
        if last < spec {
            let why = format!("but the range of `{}` is empty: last is below spec", field.name);
            return Err(self.wrong_at(place, why));
        }
        Ok((mask != 0).then_some(Test { field, spec, last, mask }))
    }

    /// `192.0.2.1`, or `192.0.2.0/24` where an address is wanted.
    fn value_and_mask<P>(&mut self, field: &Field<P>) -> Result<(u128, u128), SyntaxError> {
        let halves = self.peek().and_then(|word| word.split_once('/'));
        let Some((address, ones)) = halves.filter(|_| field.notation != Notation::Number) else {
            return Ok((self.value_of(field)?, field.full()));
        };
        let ones = ones.parse().ok().filter(|ones| *ones <= field.bits);
        match (field.notation.parse(address), ones) {
            (Some(value), Some(ones)) => {
                self.next += 1;
                Ok((value, field.prefix_mask(ones)))
            }
            (Some(_), None) => {
                Err(self.wrong(format!("expected a prefix of 0 to {} bits behind `/`", field.bits)))
            }
            (None, _) => Err(self.wrong(format!("expected {}", field.notation.wanted()))),
        }
    }

    /// A value that fits the field.
    fn value_of<P>(&mut self, field: &Field<P>) -> Result<u128, SyntaxError> {
        let (before, most) = (self.next, field.full());
        let value = self.value(field.notation)?;
        if value <= most {
            return Ok(value);
        }
        let why = format!("but `{}` has {} bits: {most} is the most", field.name, field.bits);
        Err(self.wrong_at(before, why))
    }
}

/// What was asked of one field up to here.
#[derive(Clone, Copy, Default)]
struct Draft {
    spec: Option<u128>,
    last: Option<u128>,
    mask: Option<u128>,
    /// The word that named it first.
    place: usize,
}

impl Draft {
    fn is_empty(&self) -> bool {
        self.spec.or(self.last).or(self.mask).is_none()
    }
}

#[cfg(test)]
mod tests;
