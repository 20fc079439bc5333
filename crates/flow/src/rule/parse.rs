//! The text of a rule becomes a pattern: words, items in their order, conditions, or an error that points at the word.

use super::{
    Condition, Field, Item, ItemKind, Notation, OPERATORS, Pattern, Rule, RuleError,
    TEXT_BYTES_MAX, Test, VLAN_TCI2, all_ones, prefix_mask,
};
use laneway_spec::nearest;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A word of the text and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) words: Vec<Word<'a>>,
    pub(super) next: usize,
}

/// The operators seen for one field of an item.
pub(super) struct Draft<'a> {
    pub(super) field: Field,
    pub(super) name: Word<'a>,
    pub(super) is: Option<Test>,
    pub(super) spec: Option<u128>,
    pub(super) last: Option<(u128, usize)>,
    pub(super) mask: Option<u128>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Parser<'a> {
        let words = text
            .split_whitespace()
            .map(|word| Word { text: word, at: word.as_ptr().addr() - text.as_ptr().addr() })
            .collect();
        Parser { text, words, next: 0 }
    }

    pub(super) fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, RuleError> {
        Err(RuleError { text: self.text.to_owned(), at, message: message.into() })
    }

    pub(super) fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.next).copied()
    }

    pub(super) fn accept(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|w| w.text == text);
        self.next += usize::from(found);
        found
    }

    /// The next word, or an error at the end of the text.
    pub(super) fn word(&mut self, expected: &str) -> Result<Word<'a>, RuleError> {
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
    pub(super) fn unknown<T>(
        &self,
        word: Word<'_>,
        expected: &str,
        known: &[&str],
    ) -> Result<T, RuleError> {
        let hint = if word.text.len() > 1 && word.text.contains('/') {
            "; put blanks around `/`".to_owned()
        } else {
            nearest(word.text, known).map_or_else(String::new, |n| format!("; did you mean `{n}`?"))
        };
        self.error(word.at, format!("expected {expected}, found `{}`{hint}", word.text))
    }

    pub(super) fn rule(mut self) -> Result<Rule, RuleError> {
        let mut patterns = vec![self.pattern()?];
        while self.accept("or") {
            patterns.push(self.pattern()?);
        }
        match self.peek() {
            None => Ok(Rule { patterns, text: self.text.to_owned() }),
            Some(word) => self.unknown(word, "`or` or the end of the text", &["or"]),
        }
    }

    pub(super) fn pattern(&mut self) -> Result<Pattern, RuleError> {
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

    pub(super) fn item(&mut self, before: &[Item]) -> Result<Item, RuleError> {
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

    pub(super) fn check_order(
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
    pub(super) fn operator(
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
    pub(super) fn is_value(&self, field: Field, word: Word<'_>) -> Result<Test, RuleError> {
        match word.text.split_once('/') {
            Some((address, bits)) if field.notation != Notation::Number => {
                let mask = self.prefix(field, bits, word.at + address.len() + 1)?;
                Ok(Test::Masked { value: self.value(field, address, word.at)? & mask, mask })
            }
            _ => Ok(Test::Is(self.value(field, word.text, word.at)?)),
        }
    }

    pub(super) fn prefix(&self, field: Field, text: &str, at: usize) -> Result<u128, RuleError> {
        match text.parse::<u32>() {
            Ok(ones) if ones <= field.bits => Ok(prefix_mask(field.bits, ones)),
            _ => self.error(
                at,
                format!("`{text}` is no prefix length of {}; use 0 to {}", field.name, field.bits),
            ),
        }
    }

    pub(super) fn value(&self, field: Field, text: &str, at: usize) -> Result<u128, RuleError> {
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

    pub(super) fn condition(&self, draft: &Draft<'_>) -> Result<Condition, RuleError> {
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

pub(super) fn count_tags(items: &[Item]) -> usize {
    items.iter().filter(|i| i.kind == ItemKind::Vlan).count()
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
