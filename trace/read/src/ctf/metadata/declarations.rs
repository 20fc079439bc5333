//! Types as TSDL declares them: integers, floats, structures, variants, enumerations, arrays, and their names.
//!
//! A part of the parser of metadata: it reads on from where that stands, and leaves it behind the declaration.

use super::{Declared, Misread, Parsed, Parser, Token, Value};
use crate::ctf::types::{DEPTH_MAX, Field, Float, Integer, Kind, Range, Type};
use std::collections::HashMap;
use std::sync::Arc;

impl Parser {
    /// A declaration that names a type, or the type of a member that begins like one.
    pub(super) fn declaration(&mut self) -> Parsed<Declared> {
        if self.accept_word("typealias") {
            let of = self.specifier(true)?.0;
            if self.take() != Token::Assign {
                self.at -= 1;
                return self.expected("`:=`");
            }
            let name = self.words()?;
            while self.accept('*') {}
            self.demand(';')?;
            self.name(name, of);
            return Ok(Declared::Name);
        }
        if self.accept_word("typedef") {
            let (of, name) = self.specifier(false)?;
            let (name, of) = self.declarator(of, name)?;
            self.demand(';')?;
            self.name(name, of);
            return Ok(Declared::Name);
        }
        // `struct x { ... };` names a type; `struct x { ... } y;` is a member. What follows tells, and nothing is
        // parsed twice: going back would double the work at each level of nesting.
        let tagged = ["struct", "variant", "enum"].iter().any(|word| self.is_word(word));
        if tagged && matches!(self.ahead(1), Token::Word(_)) {
            let of = self.specifier(true)?.0;
            return Ok(if self.accept(';') { Declared::Name } else { Declared::Member(of) });
        }
        Ok(Declared::Nothing)
    }

    fn words(&mut self) -> Parsed<String> {
        let mut words = self.word()?;
        while let Token::Word(word) = self.peek().clone() {
            self.at += 1;
            words.push(' ');
            words.push_str(&word);
        }
        Ok(words)
    }

    /// A type. With `whole`, all words that follow belong to it; otherwise the last of several words is the name of a
    /// member and is given back.
    pub(super) fn specifier(&mut self, whole: bool) -> Parsed<(Type, Option<String>)> {
        if self.depth == DEPTH_MAX {
            return self.wrong(format!("types nested more than {DEPTH_MAX} deep are not read"));
        }
        self.depth += 1;
        let found = self.specifier_inner(whole);
        self.depth -= 1;
        found
    }

    fn specifier_inner(&mut self, whole: bool) -> Parsed<(Type, Option<String>)> {
        self.accept_word("const");
        let opens = |parser: &Self, by| parser.ahead(by) == &Token::Sign('{');
        if self.is_word("integer") && opens(self, 1) {
            self.at += 1;
            let kind = Kind::Integer(self.integer()?);
            return Ok((self.limited(Type::new(kind))?, None));
        }
        if self.is_word("floating_point") && opens(self, 1) {
            self.at += 1;
            let kind = Kind::Float(self.float()?);
            return Ok((self.limited(Type::new(kind))?, None));
        }
        if self.accept_word("string") {
            if self.is('{') {
                self.attributes(&mut |parser, name, _| {
                    if name != "encoding" {
                        parser.skip_attribute("string", name);
                    }
                    Ok(())
                })?;
            }
            return Ok((self.limited(Type::new(Kind::Text))?, None));
        }
        if self.accept_word("struct") {
            return Ok((self.structure()?, None));
        }
        if self.accept_word("variant") {
            return Ok((self.variant()?, None));
        }
        if self.accept_word("enum") {
            return Ok((self.enumeration()?, None));
        }
        let start = self.at;
        let words = self.words()?;
        if whole {
            return match self.named(&words).cloned() {
                Some(of) => Ok((of, None)),
                None => {
                    self.at = start;
                    self.wrong(format!("unknown type `{words}`"))
                }
            };
        }
        let Some((of, member)) = words.rsplit_once(' ') else {
            return self.expected("a type and a name");
        };
        match self.named(of).cloned() {
            Some(found) => Ok((found, Some(member.into()))),
            None => {
                let what = format!("unknown type `{of}`");
                self.at = start;
                self.wrong(what)
            }
        }
    }

    /// `{ name = value; ... }`
    fn attributes(
        &mut self,
        each: &mut dyn FnMut(&mut Self, &str, Value) -> Parsed<()>,
    ) -> Parsed<()> {
        self.demand('{')?;
        while !self.accept('}') {
            let start = self.at;
            let name = self.dotted()?;
            self.demand('=')?;
            let value = match self.peek().clone() {
                Token::Text(text) => {
                    self.at += 1;
                    Value::Text(text)
                }
                Token::Word(_) => Value::Text(self.dotted()?),
                _ => Value::Number(self.number()?),
            };
            let end = self.at;
            self.at = start; // so that a complaint names the attribute
            each(self, &name, value)?;
            self.at = end;
            self.demand(';')?;
        }
        Ok(())
    }

    pub(super) fn dotted(&mut self) -> Parsed<String> {
        let mut name = self.word()?;
        while self.accept('.') {
            name.push('.');
            name.push_str(&self.word()?);
        }
        Ok(name)
    }

    fn integer(&mut self) -> Parsed<Integer> {
        let place = self.place();
        let (mut bits, mut align, mut found) = (
            None,
            None,
            Integer {
                bits: 0,
                align_bits: 1,
                signed: false,
                big_endian: None,
                text: false,
                base: 10,
                clock: None,
                variable: false,
                duty: None,
            },
        );
        self.attributes(&mut |parser, name, value| {
            match (name, &value) {
                ("size", Value::Number(size)) => bits = Some(*size),
                ("align", Value::Number(bits)) => align = Some(parser.align(*bits)?),
                ("signed", _) => found.signed = parser.truth(&value)?,
                ("byte_order", _) => found.big_endian = parser.byte_order(&value)?,
                ("encoding", Value::Text(text)) => {
                    found.text = ["UTF8", "ASCII", "utf8", "ascii"].contains(&text.as_str());
                    if !found.text && text != "none" {
                        return parser.wrong(format!("unknown encoding `{text}`"));
                    }
                }
                ("base", _) => {
                    found.base = match &value {
                        Value::Number(base @ (2 | 8 | 10 | 16)) => *base as u32,
                        Value::Text(base) => match base.as_str() {
                            "decimal" | "dec" | "d" | "i" | "u" => 10,
                            "hexadecimal" | "hex" | "x" | "X" | "p" => 16,
                            "octal" | "oct" | "o" => 8,
                            "binary" | "b" => 2,
                            _ => return parser.wrong(format!("unknown base `{base}`")),
                        },
                        Value::Number(base) => {
                            return parser.wrong(format!("unknown base {base}"));
                        }
                    };
                }
                ("map", Value::Text(map)) => {
                    let clock = map
                        .strip_prefix("clock.")
                        .and_then(|rest| rest.strip_suffix(".value"))
                        .map(Arc::from);
                    if clock.is_none() {
                        return parser.wrong(format!("`{map}` is no value of a clock"));
                    }
                    found.clock = clock;
                }
                ("size" | "align" | "encoding" | "map", Value::Number(_) | Value::Text(_)) => {
                    return parser
                        .wrong(format!("attribute `{name}` of an integer is no such value"));
                }
                _ => parser.skip_attribute("integer", name),
            }
            Ok(())
        })?;
        match bits.and_then(|bits| u32::try_from(bits).ok()) {
            Some(bits @ 1..=64) => found.bits = bits,
            _ => {
                let what = bits.map_or_else(
                    || "integer without `size`".to_owned(),
                    |bits| format!("integer of {bits} bits; 1 to 64 are read"),
                );
                return Err(Misread { place, what });
            }
        }
        found.align_bits =
            align.unwrap_or_else(|| if found.bits.is_multiple_of(8) { 8 } else { 1 });
        Ok(found)
    }

    fn float(&mut self) -> Parsed<Float> {
        let place = self.place();
        let (mut exponent, mut mantissa) = (0, 0);
        let mut found = Float { bits: 0, align_bits: 8, big_endian: None };
        self.attributes(&mut |parser, name, value| {
            match (name, &value) {
                ("exp_dig", Value::Number(digits)) => exponent = *digits,
                ("mant_dig", Value::Number(digits)) => mantissa = *digits,
                ("align", Value::Number(bits)) => found.align_bits = parser.align(*bits)?,
                ("byte_order", _) => found.big_endian = parser.byte_order(&value)?,
                ("exp_dig" | "mant_dig" | "align", Value::Text(_)) => {
                    return parser.wrong(format!("attribute `{name}` of a float is no number"));
                }
                _ => parser.skip_attribute("float", name),
            }
            Ok(())
        })?;
        found.bits = match (exponent, mantissa) {
            (8, 24) => 32,
            (11, 53) => 64,
            _ => {
                let what = format!(
                    "floating-point number with {exponent} exponent and {mantissa} mantissa digits; \
                     8+24 and 11+53 are read"
                );
                return Err(Misread { place, what });
            }
        };
        Ok(found)
    }

    fn align(&self, bits: i128) -> Parsed<u32> {
        match u32::try_from(bits) {
            Ok(bits @ 1..=4096) if bits.is_power_of_two() => Ok(bits),
            _ => self.wrong(format!("alignment {bits} is no power of two up to 4096")),
        }
    }

    fn truth(&self, value: &Value) -> Parsed<bool> {
        match value {
            Value::Number(0) => Ok(false),
            Value::Number(1) => Ok(true),
            Value::Text(text) if ["true", "TRUE"].contains(&text.as_str()) => Ok(true),
            Value::Text(text) if ["false", "FALSE"].contains(&text.as_str()) => Ok(false),
            _ => self.wrong("true or false expected"),
        }
    }

    pub(super) fn byte_order(&self, value: &Value) -> Parsed<Option<bool>> {
        match value {
            Value::Text(order) if order == "le" => Ok(Some(false)),
            Value::Text(order) if order == "be" || order == "network" => Ok(Some(true)),
            Value::Text(order) if order == "native" => Ok(None),
            Value::Text(order) => self.wrong(format!("unknown byte order `{order}`")),
            Value::Number(order) => self.wrong(format!("unknown byte order {order}")),
        }
    }

    fn structure(&mut self) -> Parsed<Type> {
        let name = if self.is('{') { None } else { Some(self.word()?) };
        if !self.is('{') {
            let name = name.unwrap_or_default();
            return match self.named(&format!("struct {name}")).cloned() {
                Some(of) => Ok(of),
                None => self.wrong(format!("unknown type `struct {name}`")),
            };
        }
        let fields = self.members()?;
        let mut align_bits = 1;
        if self.accept_word("align") {
            self.demand('(')?;
            let bits = self.number()?;
            align_bits = self.align(bits)?;
            self.demand(')')?;
        }
        let of = self.limited(Type::new(Kind::Struct { fields, align_bits }))?;
        if let Some(name) = name {
            self.name(format!("struct {name}"), of.clone());
        }
        Ok(of)
    }

    fn variant(&mut self) -> Parsed<Type> {
        let name = match self.peek() {
            Token::Word(_) => Some(self.word()?),
            _ => None,
        };
        let tag = if self.accept('<') {
            let tag = self.dotted()?;
            self.demand('>')?;
            Some(tag)
        } else {
            None
        };
        let options = if self.is('{') {
            self.members()?.into()
        } else {
            let name = name.clone().unwrap_or_default();
            match self.named(&format!("variant {name}")).map(|of| of.kind.as_ref()) {
                Some(Kind::Variant { options, .. }) => Arc::clone(options),
                _ => return self.wrong(format!("unknown type `variant {name}`")),
            }
        };
        let of =
            self.limited(Type::new(Kind::Variant { tag, options, ranges: None, optional: false }))?;
        if let Some(name) = name {
            self.name(format!("variant {name}"), of.clone());
        }
        Ok(of)
    }

    fn enumeration(&mut self) -> Parsed<Type> {
        let name = match self.peek() {
            Token::Word(_) => Some(self.word()?),
            _ => None,
        };
        let of = if self.accept(':') {
            let container = self.specifier(true)?.0;
            match container.kind.as_ref() {
                Kind::Integer(integer) => Some(integer.clone()),
                _ => return self.wrong("an enumeration of something that is no integer"),
            }
        } else {
            None
        };
        if !self.is('{') {
            let name = name.unwrap_or_default();
            return match self.named(&format!("enum {name}")).cloned() {
                Some(of) => Ok(of),
                None => self.wrong(format!("unknown type `enum {name}`")),
            };
        }
        // Without a container, TSDL takes the type named `int`.
        let of = match (of, self.named("int").map(|int| int.kind.as_ref())) {
            (Some(of), _) => of,
            (None, Some(Kind::Integer(int))) => int.clone(),
            _ => return self.wrong("an enumeration without its integer, and no type `int`"),
        };
        self.demand('{')?;
        let mut ranges: Vec<Range> = Vec::new();
        let mut next = 0;
        while !self.accept('}') {
            let (Token::Word(label) | Token::Text(label)) = self.peek().clone() else {
                return self.expected("a label");
            };
            self.at += 1;
            let first = if self.accept('=') { self.number()? } else { next };
            let last = if self.peek() == &Token::Range {
                self.at += 1;
                self.number()?
            } else {
                first
            };
            next = last + 1;
            ranges.push(Range { label: label.into(), first, last });
            if !self.accept(',') && !self.is('}') {
                return self.expected("`,` or `}`");
            }
        }
        let of = self.limited(Type::new(Kind::Enumeration { of, ranges: ranges.into() }))?;
        if let Some(name) = name {
            self.name(format!("enum {name}"), of.clone());
        }
        Ok(of)
    }

    /// `{ type name; ... }`
    fn members(&mut self) -> Parsed<Vec<Field>> {
        self.demand('{')?;
        self.scopes.push(HashMap::new());
        let mut fields = Vec::new();
        while !self.accept('}') {
            let (of, name) = match self.declaration()? {
                Declared::Name => continue,
                Declared::Member(of) => (of, None),
                Declared::Nothing => self.specifier(false)?,
            };
            let (name, of) = self.declarator(of, name)?;
            self.demand(';')?;
            fields.push(Field { name: name.into(), of });
        }
        self.scopes.pop();
        Ok(fields)
    }

    /// The name of a member, if it was not taken yet, and its dimensions.
    fn declarator(&mut self, of: Type, name: Option<String>) -> Parsed<(String, Type)> {
        let name = match name {
            Some(name) => name,
            None => self.word()?,
        };
        // `a[2][3]` is two arrays of three: the last dimension is the innermost.
        let mut dimensions = Vec::new();
        while self.accept('[') {
            let dimension = match self.peek().clone() {
                Token::Number(length) => {
                    self.at += 1;
                    Ok(length)
                }
                _ => Err(self.dotted()?),
            };
            self.demand(']')?;
            dimensions.push(dimension);
        }
        let mut of = of;
        for dimension in dimensions.into_iter().rev() {
            let kind = match dimension {
                Ok(length) => Kind::Array { of, length },
                Err(length) => Kind::Sequence { of, length },
            };
            of = self.limited(Type::new(kind))?;
        }
        Ok((name, of))
    }
}
