//! The parser of TSDL: metadata text to [`Metadata`].
//!
//! Recursive descent over what LTTng-UST, LTTng-modules, rte_trace and barectf write. What it does not know inside a
//! block is skipped and kept in [`Metadata::unknown`] where that is safe; what would make a layout wrong is an error.
//! Both carry line and offset.

mod declarations;

use std::collections::HashMap;

use super::lexer::{Misread, Parsed, TextPosition, Token, tokens};
use super::types::{
    CLASSES_MAX, ClockClass, DEPTH_MAX, EventClass, Metadata, NODES_MAX, StreamClass, Type,
};

/// Most event classes of one trace.
const EVENTS_MAX: usize = 65_536;

/// Parses the text of a metadata file.
///
/// # Errors
/// [`Misread`] if a layout cannot be understood.
pub(super) fn parse(text: &str) -> Parsed<Metadata> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        scopes: vec![HashMap::new()],
        depth: 0,
        unknown: Vec::new(),
    };
    let mut metadata = Metadata::default();
    while parser.peek() != &Token::End {
        parser.block(&mut metadata)?;
    }
    metadata.unknown.append(&mut parser.unknown);
    metadata.complete();
    Ok(metadata)
}

struct Parser {
    tokens: Vec<(Token, TextPosition)>,
    at: usize,
    /// Named types, innermost scope last. `struct x` is named "struct x".
    scopes: Vec<HashMap<String, Type>>,
    depth: u32,
    /// Attributes of types that were skipped.
    unknown: Vec<Misread>,
}

/// What a declaration turned out to be.
enum Declared {
    Name,
    Member(Type),
    Nothing,
}

/// Value of an attribute of a block.
enum Value {
    Number(i128),
    Text(String),
}

impl Parser {
    fn peek(&self) -> &Token {
        self.ahead(0)
    }

    fn ahead(&self, by: usize) -> &Token {
        self.tokens.get(self.at + by).map_or(&Token::End, |(token, _)| token)
    }

    fn place(&self) -> TextPosition {
        let last = self.tokens.len() - 1; // `tokens` always ends with `End`
        self.tokens[self.at.min(last)].1
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn wrong<T>(&self, what: impl Into<String>) -> Parsed<T> {
        Err(Misread { place: self.place(), what: what.into() })
    }

    fn expected<T>(&self, what: &str) -> Parsed<T> {
        self.wrong(format!("{} found, {what} expected", self.peek().shown()))
    }

    fn is(&self, sign: char) -> bool {
        self.peek() == &Token::Sign(sign)
    }

    fn accept(&mut self, sign: char) -> bool {
        let found = self.is(sign);
        self.at += usize::from(found);
        found
    }

    fn demand(&mut self, sign: char) -> Parsed<()> {
        if self.accept(sign) { Ok(()) } else { self.expected(&format!("`{sign}`")) }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found == word)
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self) -> Parsed<String> {
        match self.peek().clone() {
            Token::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.expected("a name"),
        }
    }

    fn number(&mut self) -> Parsed<i128> {
        let negative = self.accept('-');
        if !negative {
            self.accept('+');
        }
        let Token::Number(number) = *self.peek() else { return self.expected("a number") };
        self.at += 1;
        Ok(if negative { -i128::from(number) } else { number.into() })
    }

    fn limited<T>(&self, found: Option<T>) -> Parsed<T> {
        found.map_or_else(
            || {
                self.wrong(format!(
                    "a type with more than {NODES_MAX} parts or {DEPTH_MAX} levels is not read"
                ))
            },
            Ok,
        )
    }

    fn named(&self, name: &str) -> Option<&Type> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    fn name(&mut self, name: String, of: Type) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, of);
        }
    }

    /// Skips to behind the `;` that ends what stands here, over nested braces.
    fn skip(&mut self) -> Parsed<()> {
        let mut open = 0_u32;
        loop {
            match self.peek() {
                Token::End => return self.expected("`;`"),
                Token::Sign('{') => open += 1,
                Token::Sign('}') if open == 0 => return Ok(()),
                Token::Sign('}') => open -= 1,
                Token::Sign(';') if open == 0 => {
                    self.at += 1;
                    return Ok(());
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn room(&self, known: usize, max: usize, what: &str) -> Parsed<()> {
        if known < max { Ok(()) } else { self.wrong(format!("more than {max} {what}")) }
    }

    fn block(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        let place = self.place();
        let Token::Word(word) = self.peek().clone() else {
            return self.expected("a block (trace, env, clock, stream, event) or a type");
        };
        let opens = self.ahead(1) == &Token::Sign('{');
        match word.as_str() {
            "trace" if opens => self.trace(metadata),
            "env" if opens => self.env(metadata),
            "clock" if opens => {
                self.room(metadata.clocks.len(), CLASSES_MAX, "clocks")?;
                self.clock(metadata)
            }
            "stream" if opens => {
                self.room(metadata.streams.len(), CLASSES_MAX, "classes of streams")?;
                self.stream(metadata)
            }
            "event" if opens => {
                self.room(metadata.events.len(), EVENTS_MAX, "kinds of events")?;
                self.event(metadata)
            }
            "typealias" | "typedef" | "struct" | "variant" | "enum" => match self.declaration()? {
                Declared::Name => Ok(()),
                Declared::Member(_) | Declared::Nothing => self.expected("`;`"),
            },
            _ if opens => {
                metadata
                    .unknown
                    .push(Misread { place, what: format!("block `{word}` is skipped") });
                self.skip()
            }
            _ => self.expected("a block (trace, env, clock, stream, event) or a type"),
        }
    }

    /// The entries of a block: `name = value;` and `name := type;`, and types declared among them.
    fn entries(
        &mut self,
        each: &mut dyn FnMut(&mut Self, &str, Entry) -> Parsed<()>,
    ) -> Parsed<()> {
        self.at += 1; // the word that named the block
        self.demand('{')?;
        self.scopes.push(HashMap::new());
        while !self.accept('}') {
            match self.declaration()? {
                Declared::Name => continue,
                Declared::Member(_) => return self.expected("`;`"),
                Declared::Nothing => {}
            }
            let start = self.at;
            let name = self.dotted()?;
            let entry = if self.peek() == &Token::Assign {
                self.at += 1;
                Entry::Type(self.specifier(true)?.0)
            } else {
                self.demand('=')?;
                Entry::Value(match self.peek().clone() {
                    Token::Text(text) => {
                        self.at += 1;
                        Value::Text(text)
                    }
                    Token::Word(_) => Value::Text(self.dotted()?),
                    _ => Value::Number(self.number()?),
                })
            };
            let end = self.at;
            self.at = start;
            each(self, &name, entry)?;
            self.at = end;
            self.demand(';')?;
        }
        self.accept(';');
        self.scopes.pop();
        Ok(())
    }

    fn trace(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        metadata.place = self.place();
        self.entries(&mut |parser, name, entry| {
            match (name, entry) {
                ("major", Entry::Value(Value::Number(1)))
                | ("minor", Entry::Value(Value::Number(_))) => {}
                ("major", Entry::Value(Value::Number(other))) => {
                    return parser.wrong(format!("CTF {other}; 1.8 is read"));
                }
                ("uuid", Entry::Value(Value::Text(text))) => {
                    metadata.uuid = Some(
                        uuid(&text)
                            .map_or_else(|| parser.wrong(format!("`{text}` is no uuid")), Ok)?,
                    );
                }
                ("byte_order", Entry::Value(value)) => {
                    metadata.big_endian = parser.byte_order(&value)?;
                }
                ("packet.header", Entry::Type(of)) => metadata.packet_header = Some(of),
                (other, _) => metadata.unknown.push(parser.skipped("trace", other)),
            }
            Ok(())
        })
    }

    fn skip_attribute(&mut self, of: &str, attribute: &str) {
        let skipped = self.skipped(of, attribute);
        self.unknown.push(skipped);
    }

    fn skipped(&self, block: &str, attribute: &str) -> Misread {
        let what = format!("attribute `{attribute}` of `{block}` is skipped");
        Misread { place: self.place(), what }
    }

    fn env(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        self.entries(&mut |parser, name, entry| {
            match entry {
                Entry::Value(Value::Text(text)) => metadata.env.push((name.into(), text)),
                Entry::Value(Value::Number(number)) => {
                    metadata.env.push((name.into(), number.to_string()));
                }
                Entry::Type(_) => metadata.unknown.push(parser.skipped("env", name)),
            }
            Ok(())
        })
    }

    fn clock(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        let place = self.place();
        let mut clock = ClockClass {
            name: String::new(),
            frequency_hz: 1_000_000_000,
            offset_s: 0,
            offset_ticks: 0,
        };
        self.entries(&mut |parser, name, entry| {
            match (name, entry) {
                ("name", Entry::Value(Value::Text(name))) => clock.name = name,
                ("freq", Entry::Value(Value::Number(hz))) => match u64::try_from(hz) {
                    Ok(hz) if hz > 0 => clock.frequency_hz = hz,
                    _ => return parser.wrong(format!("a clock of {hz} Hz")),
                },
                ("offset_s", Entry::Value(Value::Number(seconds))) => {
                    clock.offset_s = match i64::try_from(seconds) {
                        Ok(seconds) => seconds,
                        Err(_) => return parser.wrong(format!("{seconds} s is out of range")),
                    };
                }
                ("offset", Entry::Value(Value::Number(ticks))) => {
                    clock.offset_ticks = match u64::try_from(ticks) {
                        Ok(ticks) => ticks,
                        Err(_) => return parser.wrong(format!("an offset of {ticks} ticks")),
                    };
                }
                ("uuid" | "description" | "precision" | "absolute", Entry::Value(_)) => {}
                (other, _) => metadata.unknown.push(parser.skipped("clock", other)),
            }
            Ok(())
        })?;
        if clock.name.is_empty() {
            return Err(Misread { place, what: "clock without `name`".into() });
        }
        metadata.clocks.push(clock);
        Ok(())
    }

    fn stream(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        let place = self.place();
        let mut stream = StreamClass { place, ..StreamClass::default() };
        self.entries(&mut |parser, name, entry| {
            match (name, entry) {
                ("id", Entry::Value(Value::Number(id))) => stream.id = parser.id(id)?,
                ("packet.context", Entry::Type(of)) => stream.packet_context = Some(of),
                ("event.header", Entry::Type(of)) => stream.event_header = Some(of),
                ("event.context", Entry::Type(of)) => stream.event_context = Some(of),
                (other, _) => metadata.unknown.push(parser.skipped("stream", other)),
            }
            Ok(())
        })?;
        if metadata.streams.iter().any(|other| other.id == stream.id) {
            return Err(Misread { place, what: format!("second stream class {}", stream.id) });
        }
        metadata.streams.push(stream);
        Ok(())
    }

    fn id(&self, id: i128) -> Parsed<u64> {
        u64::try_from(id).or_else(|_| self.wrong(format!("{id} is no id")))
    }

    fn event(&mut self, metadata: &mut Metadata) -> Parsed<()> {
        let mut event = EventClass { place: self.place(), ..EventClass::default() };
        self.entries(&mut |parser, name, entry| {
            match (name, entry) {
                ("id", Entry::Value(Value::Number(id))) => event.id = parser.id(id)?,
                ("stream_id", Entry::Value(Value::Number(id))) => {
                    event.stream_id = Some(parser.id(id)?);
                }
                ("name", Entry::Value(Value::Text(name))) => event.name = name,
                ("context", Entry::Type(of)) => event.context = Some(of),
                ("fields", Entry::Type(of)) => event.fields = Some(of),
                ("loglevel" | "model.emf.uri", Entry::Value(_)) => {}
                (other, _) => metadata.unknown.push(parser.skipped("event", other)),
            }
            Ok(())
        })?;
        metadata.events.push(event);
        Ok(())
    }
}

/// An entry of a block.
enum Entry {
    Value(Value),
    Type(Type),
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    let mut uuid = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::super::types::Kind;
    use super::*;

    fn fails(text: &str, line: u32, part: &str) {
        let error = parse(text).expect_err(text);
        assert!(error.what.contains(part), "{error:?}");
        assert_eq!(error.place.line, line, "{error:?}");
    }

    #[test]
    fn reads_blocks_and_types() {
        let metadata = parse(
            "typealias integer { size = 32; align = 8; signed = false; } := unsigned long;
             trace { major = 1; minor = 8; byte_order = be;
                     uuid = \"c55dc709-f482-46d3-b869-ad9d4e5a42cc\";
                     packet.header := struct { unsigned long magic; }; };
             env { hostname = \"vm\"; tracer_major = -2; };
             clock { name = c; freq = 10; offset_s = -5; offset = 3; };
             struct h { enum : integer { size = 5; } { a = 0 ... 30, b } id; variant <id> { unsigned long a; string b; } v; } align(8);
             stream { id = 7; event.header := struct h; };
             event { name = \"e\"; id = 1; stream_id = 7; fields := struct { unsigned long n; unsigned long _x[n][2]; }; };",
        )
        .expect("valid metadata");
        assert_eq!(metadata.big_endian, Some(true));
        assert_eq!(metadata.uuid.map(|uuid| uuid[0]), Some(0xc5));
        assert_eq!(metadata.env[1], ("tracer_major".into(), "-2".into()));
        assert_eq!(metadata.clocks[0].offset_s, -5);
        assert_eq!(metadata.streams[0].id, 7);
        let fields = metadata.events[0].fields.as_ref().expect("declared");
        let Kind::Struct { fields, .. } = fields.kind.as_ref() else { panic!("{fields:?}") };
        let Kind::Sequence { of, length } = fields[1].of.kind.as_ref() else {
            panic!("{fields:?}")
        };
        assert_eq!(length, "n");
        assert!(matches!(of.kind.as_ref(), Kind::Array { length: 2, .. }));
    }

    #[test]
    fn names_what_it_does_not_know() {
        fails("trace { byte_order = middle; };", 1, "byte order `middle`");
        fails("trace { major = 2; };", 1, "CTF 2");
        fails("\nevent { fields := struct { foo_t x; }; };", 2, "unknown type `foo_t`");
        fails("typealias integer { size = 65; } := a;", 1, "65 bits");
        fails("typealias integer { size = 8; align = 3; } := a;", 1, "alignment 3");
        fails("typealias floating_point { exp_dig = 5; mant_dig = 11; } := half;", 1, "5 exponent");
        fails("clock { freq = 0; };", 1, "0 Hz");
        fails("stream { id = 1; }; stream { id = 1; };", 1, "second stream");
        fails("event { name = \"a\"", 1, "the end");
        let skipped = parse(
            "callsite { name = \"x\"; }; trace { mood = good; }; env { letter = 'a'; };
                   typealias integer { size = 8; color = red; } := a;",
        )
        .expect("skipped");
        assert_eq!(skipped.unknown.len(), 3);
        assert_eq!(skipped.unknown[2].place.line, 2, "{:?}", skipped.unknown);
        assert_eq!(skipped.env, [("letter".to_owned(), "a".to_owned())]);
    }

    #[test]
    fn types_that_grow_or_nest_without_end_are_refused() {
        let mut doubling = String::from("typealias integer { size = 8; } := t0;\n");
        for level in 1..40 {
            doubling += &format!("struct s{level} {{ ");
            let of = if level == 1 { "t0".into() } else { format!("struct s{}", level - 1) };
            doubling += &format!("{of} a; {of} b; }};\n");
        }
        fails(&doubling, 17, "65536 parts");
        let many = |block: &str, count: usize| {
            (0..count).map(|id| block.replace('#', &id.to_string())).collect::<String>()
        };
        fails(&many("stream { id = #; };", 4097), 1, "4096 classes of streams");
        fails(&many("clock { name = c#; };", 4097), 1, "4096 clocks");
        parse(&many("stream { id = #; };", 4096)).expect("as many as are read");
        let deep = "struct { ".repeat(10_000);
        fails(&format!("event {{ fields := {deep}"), 1, "deep");
    }
}
