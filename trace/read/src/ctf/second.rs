//! CTF 2: metadata in JSON (CTF2-SPEC-2.0) to [`Metadata`].
//!
//! A metadata stream is a sequence of JSON objects, the fragments, each behind a record separator (RFC 7464); drafts of
//! the format wrote them one behind the other, and both are read. Field classes become the types that TSDL knows, so
//! that all that follows is the same for both: a string with a length is an array of characters, a BLOB one of bytes,
//! an optional field a variant with one option. The place of an error is that of its fragment, or of the byte that is
//! no JSON.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::lexer::{Misread, Parsed, TextPosition};
use super::types::{
    CLASSES_MAX, ClockClass, DEPTH_MAX, Duty, EventClass, Field, Float, Integer, Kind, Metadata,
    NODES_MAX, Range, StreamClass, Type,
};

/// Begins a fragment (RFC 7464).
const SEPARATOR: char = '\x1e';
/// Most event classes of one trace.
const EVENTS_MAX: usize = 65_536;

/// True if this is the metadata of CTF 2.
pub(super) fn is(text: &str) -> bool {
    text.trim_start().starts_with([SEPARATOR, '{'])
}

/// Why a fragment cannot be understood; its place is added where it is known.
type Understood<T> = Result<T, String>;
type Object = Map<String, Value>;

/// Parses the text of a metadata file.
///
/// # Errors
/// [`Misread`] if a fragment is no JSON, or a layout cannot be understood.
pub(super) fn parse(text: &str) -> Parsed<Metadata> {
    let mut reader = Reader {
        metadata: Metadata { second: true, ..Metadata::default() },
        aliases: HashMap::new(),
        clock_names: HashMap::new(),
        clock: None,
        depth: 0,
    };
    for (place, fragment) in fragments(text)? {
        reader.fragment(place, &fragment).map_err(|what| Misread { place, what })?;
    }
    let mut metadata = reader.metadata;
    // Every integer tells its byte order; this is what the fast path compares them with.
    metadata.big_endian.get_or_insert(false);
    metadata.complete();
    Ok(metadata)
}

/// The fragments and where they begin.
fn fragments(text: &str) -> Parsed<Vec<(TextPosition, Value)>> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut place = TextPosition { line: 1, offset: 0 };
    let mut seen = 0;
    let mut place_at = |offset: usize| {
        place.line += text[seen..offset].matches('\n').count() as u32; // metadata is bounded
        seen = offset;
        TextPosition { offset: offset as u64, ..place }
    };
    let blank = |c: char| c == SEPARATOR || c.is_ascii_whitespace() || c == '\0';
    loop {
        let rest = text[at..].trim_start_matches(blank);
        at = text.len() - rest.len();
        if rest.is_empty() {
            return Ok(found);
        }
        let begin = place_at(at);
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                at += values.byte_offset();
                found.push((begin, value));
            }
            Some(Err(error)) => {
                let lines: usize = rest
                    .split_inclusive('\n')
                    .take(error.line().saturating_sub(1))
                    .map(str::len)
                    .sum();
                let offset = (lines + error.column().saturating_sub(1)).min(rest.len()) as u64;
                let line = begin.line + u32::try_from(error.line().saturating_sub(1)).unwrap_or(0);
                let place = TextPosition { line, offset: begin.offset + offset };
                return Err(Misread { place, what: format!("no JSON: {error}") });
            }
            None => return Ok(found),
        }
    }
}

struct Reader {
    metadata: Metadata,
    aliases: HashMap<String, Type>,
    /// Clock classes by their id, or name where they have none.
    clock_names: HashMap<String, Arc<str>>,
    /// The clock that time stamps of the class at hand set.
    clock: Option<Arc<str>>,
    depth: u32,
}

/// The part of a packet or event that a field class lays out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    PacketHeader,
    PacketContext,
    EventHeader,
    CommonContext,
    OwnContext,
    Payload,
}

impl Scope {
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::PacketHeader, "packet-header", "trace.packet.header"),
        (Self::PacketContext, "packet-context", "stream.packet.context"),
        (Self::EventHeader, "event-record-header", "stream.event.header"),
        (Self::CommonContext, "event-record-common-context", "stream.event.context"),
        (Self::OwnContext, "event-record-specific-context", "event.context"),
        (Self::Payload, "event-record-payload", "event.fields"),
    ];
}

fn text<'v>(object: &'v Object, name: &str) -> Option<&'v str> {
    object.get(name)?.as_str()
}

fn unsigned(object: &Object, name: &str) -> Understood<Option<u64>> {
    match object.get(name) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(format!("`{name}` is {value}, and a number from 0 on is expected")),
        },
    }
}

fn object<'v>(value: &'v Value, what: &str) -> Understood<&'v Object> {
    value.as_object().ok_or_else(|| format!("{what} is no object"))
}

fn list<'v>(of: &'v Object, name: &str) -> Understood<&'v [Value]> {
    match of.get(name) {
        None => Ok(&[]),
        Some(Value::Array(values)) => Ok(values),
        Some(_) => Err(format!("`{name}` is no array")),
    }
}

impl Reader {
    fn fragment(&mut self, place: TextPosition, value: &Value) -> Understood<()> {
        let fragment = object(value, "a fragment")?;
        let of = text(fragment, "type").ok_or("a fragment without `type`")?;
        match of {
            "preamble" => self.preamble(place, fragment),
            "field-class-alias" => {
                let name = text(fragment, "name").ok_or("a field class alias without `name`")?;
                let class = fragment.get("field-class").ok_or("a field class alias of nothing")?;
                let class = self.class(class, Scope::Payload)?;
                self.aliases.insert(name.into(), class);
                Ok(())
            }
            "trace-class" => self.trace(place, fragment),
            "clock-class" => self.clock(fragment),
            "data-stream-class" => self.stream(place, fragment),
            "event-record-class" => self.event(place, fragment),
            other => {
                let what = format!("a fragment of type `{other}` is skipped");
                self.metadata.unknown.push(Misread { place, what });
                Ok(())
            }
        }
    }

    fn preamble(&mut self, place: TextPosition, fragment: &Object) -> Understood<()> {
        self.metadata.place = place;
        match unsigned(fragment, "version")? {
            Some(2) => {}
            Some(other) => return Err(format!("CTF {other}; 1.8 and 2 are read")),
            None => return Err("a preamble without `version`".into()),
        }
        let bytes = list(fragment, "uuid")?;
        if bytes.is_empty() {
            return Ok(());
        }
        let bytes: Option<Vec<u8>> =
            bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
        let uuid = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        self.metadata.uuid = Some(uuid.ok_or("`uuid` is not 16 bytes")?);
        Ok(())
    }

    fn trace(&mut self, place: TextPosition, fragment: &Object) -> Understood<()> {
        self.metadata.place = place;
        if let Some(Value::Object(facts)) = fragment.get("environment") {
            for (name, value) in facts {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.metadata.env.push((name.clone(), value));
            }
        }
        self.clock = None;
        self.metadata.packet_header =
            self.part(fragment, "packet-header-field-class", Scope::PacketHeader)?;
        Ok(())
    }

    fn clock(&mut self, fragment: &Object) -> Understood<()> {
        if self.metadata.clocks.len() == CLASSES_MAX {
            return Err(format!("more than {CLASSES_MAX} clocks"));
        }
        let label = text(fragment, "id").or_else(|| text(fragment, "name"));
        let label = label.ok_or("a clock class with neither `id` nor `name`")?;
        let frequency_hz = unsigned(fragment, "frequency")?.unwrap_or(1_000_000_000);
        if frequency_hz == 0 {
            return Err("a clock of 0 Hz".into());
        }
        let (mut offset_s, mut offset_ticks) = (0, 0);
        if let Some(Value::Object(offset)) = fragment.get("offset-from-origin") {
            offset_s = offset
                .get("seconds")
                .map_or(Some(0), Value::as_i64)
                .ok_or_else(|| format!("an offset of {} s is out of range", offset["seconds"]))?;
            offset_ticks = unsigned(offset, "cycles")?.unwrap_or(0);
        }
        let name = text(fragment, "name").unwrap_or(label).to_owned();
        // Two clocks may have one name, and only ids tell them apart.
        let known = self.metadata.clocks.iter().any(|clock| clock.name == name);
        let name = if known { label.to_owned() } else { name };
        self.clock_names.insert(label.into(), name.as_str().into());
        self.metadata.clocks.push(ClockClass { name, frequency_hz, offset_s, offset_ticks });
        Ok(())
    }

    fn stream(&mut self, place: TextPosition, fragment: &Object) -> Understood<()> {
        if self.metadata.streams.len() == CLASSES_MAX {
            return Err(format!("more than {CLASSES_MAX} classes of streams"));
        }
        let id = unsigned(fragment, "id")?.unwrap_or(0);
        if self.metadata.streams.iter().any(|other| other.id == id) {
            return Err(format!("second stream class {id}"));
        }
        let clock = text(fragment, "default-clock-class-id")
            .or_else(|| text(fragment, "default-clock-class-name"));
        self.clock = match clock {
            None => None,
            Some(label) => match self.clock_names.get(label) {
                Some(name) => Some(name.clone()),
                None => return Err(format!("no clock class `{label}`")),
            },
        };
        let packet_context =
            self.part(fragment, "packet-context-field-class", Scope::PacketContext)?;
        let header = "event-record-header-field-class";
        let event_header = self.part(fragment, header, Scope::EventHeader)?;
        let context = "event-record-common-context-field-class";
        let event_context = self.part(fragment, context, Scope::CommonContext)?;
        self.metadata.streams.push(StreamClass {
            place,
            id,
            packet_context,
            event_header,
            event_context,
        });
        Ok(())
    }

    fn event(&mut self, place: TextPosition, fragment: &Object) -> Understood<()> {
        if self.metadata.events.len() == EVENTS_MAX {
            return Err(format!("more than {EVENTS_MAX} kinds of events"));
        }
        let name = text(fragment, "name").unwrap_or_default().to_owned();
        let named = |why: String| format!("event `{name}`: {why}");
        self.clock = None;
        let context = "specific-context-field-class";
        let context = self.part(fragment, context, Scope::OwnContext).map_err(named)?;
        let fields = self.part(fragment, "payload-field-class", Scope::Payload).map_err(named)?;
        self.metadata.events.push(EventClass {
            place,
            id: unsigned(fragment, "id")?.unwrap_or(0),
            stream_id: Some(unsigned(fragment, "data-stream-class-id")?.unwrap_or(0)),
            context,
            fields,
            name,
        });
        Ok(())
    }

    /// The field class that is called `name`.
    fn part(&mut self, fragment: &Object, name: &str, scope: Scope) -> Understood<Option<Type>> {
        match fragment.get(name) {
            None => Ok(None),
            Some(class) => {
                let class = self.class(class, scope).map_err(|why| format!("{name}: {why}"))?;
                match class.kind.as_ref() {
                    Kind::Struct { .. } => Ok(Some(class)),
                    _ => Err(format!("{name}: a structure is expected")),
                }
            }
        }
    }

    fn class(&mut self, value: &Value, scope: Scope) -> Understood<Type> {
        if self.depth == DEPTH_MAX {
            return Err(format!("field classes nested more than {DEPTH_MAX} deep are not read"));
        }
        self.depth += 1;
        let found = self.class_inner(value, scope);
        self.depth -= 1;
        found
    }

    fn class_inner(&mut self, value: &Value, scope: Scope) -> Understood<Type> {
        if let Some(alias) = value.as_str() {
            let class = self.aliases.get(alias).cloned();
            return class.ok_or_else(|| format!("no field class alias `{alias}`"));
        }
        let class = object(value, "a field class")?;
        let of = text(class, "type").ok_or("a field class without `type`")?;
        let kind = match of {
            "structure" => self.structure(class, scope)?,
            "fixed-length-floating-point-number" => Kind::Float(float(class)?),
            "null-terminated-string" => {
                encoding(class)?;
                Kind::Text
            }
            "static-length-string" | "static-length-blob" => {
                let of = element(class, of.ends_with("string"))?;
                let length = unsigned(class, "length")?.ok_or("a length is missing")?;
                Kind::Array { of, length }
            }
            "dynamic-length-string" | "dynamic-length-blob" => {
                let of = element(class, of.ends_with("string"))?;
                Kind::Sequence { of, length: location(class, "length-field-location", scope)? }
            }
            "static-length-array" => {
                let of = self.element_class(class, scope)?;
                let length = unsigned(class, "length")?.ok_or("a length is missing")?;
                Kind::Array { of, length }
            }
            "dynamic-length-array" => {
                let of = self.element_class(class, scope)?;
                Kind::Sequence { of, length: location(class, "length-field-location", scope)? }
            }
            "optional" => self.optional(class, scope)?,
            "variant" => self.variant(class, scope)?,
            _ => self.integer(of, class, scope)?,
        };
        Type::new(kind).ok_or_else(|| {
            format!(
                "a field class with more than {NODES_MAX} parts or {DEPTH_MAX} levels is not read"
            )
        })
    }

    fn structure(&mut self, class: &Object, scope: Scope) -> Understood<Kind> {
        let mut fields = Vec::new();
        for member in list(class, "member-classes")? {
            let member = object(member, "a member class")?;
            let name = text(member, "name").ok_or("a member class without `name`")?;
            let of = member.get("field-class").ok_or_else(|| format!("`{name}` has no class"))?;
            let of = self.class(of, scope).map_err(|why| format!("`{name}`: {why}"))?;
            fields.push(Field { name: name.into(), of });
        }
        Ok(Kind::Struct { fields, align_bits: alignment(class, "minimum-alignment")? })
    }

    fn element_class(&mut self, class: &Object, scope: Scope) -> Understood<Type> {
        let of =
            class.get("element-field-class").ok_or("an array without `element-field-class`")?;
        let of = self.class(of, scope)?;
        let (wanted, own) = (alignment(class, "minimum-alignment")?, declared_alignment(&of));
        if wanted > own {
            return Err(format!(
                "an array aligned to {wanted} bits whose elements are aligned to {own} is not read"
            ));
        }
        Ok(of)
    }

    fn optional(&mut self, class: &Object, scope: Scope) -> Understood<Kind> {
        let of = class.get("field-class").ok_or("an optional without `field-class`")?;
        let of = self.class(of, scope)?;
        let tag = location(class, "selector-field-location", scope)?;
        let ranges = match class.get("selector-field-ranges") {
            Some(_) => ranges(list(class, "selector-field-ranges")?)?,
            // The selector is a boolean.
            None => vec![[1, i128::from(u64::MAX)], [i128::from(i64::MIN), -1]],
        };
        let options = [Field { name: "".into(), of }].into();
        Ok(Kind::Variant { tag: Some(tag), options, ranges: Some(vec![ranges]), optional: true })
    }

    fn variant(&mut self, class: &Object, scope: Scope) -> Understood<Kind> {
        let tag = location(class, "selector-field-location", scope)?;
        let (mut options, mut all) = (Vec::new(), Vec::new());
        for (number, option) in list(class, "options")?.iter().enumerate() {
            let option = object(option, "an option")?;
            let name = text(option, "name").map_or_else(|| number.to_string().into(), Arc::from);
            let of = option.get("field-class").ok_or("an option without `field-class`")?;
            let of = self.class(of, scope).map_err(|why| format!("option `{name}`: {why}"))?;
            options.push(Field { name, of });
            all.push(ranges(list(option, "selector-field-ranges")?)?);
        }
        let options = options.into();
        Ok(Kind::Variant { tag: Some(tag), options, ranges: Some(all), optional: false })
    }

    fn integer(&mut self, of: &str, class: &Object, scope: Scope) -> Understood<Kind> {
        let variable = of.starts_with("variable-length-");
        let signed = of.contains("-signed-");
        let known = [
            "fixed-length-bit-array",
            "fixed-length-bit-map",
            "fixed-length-boolean",
            "fixed-length-unsigned-integer",
            "fixed-length-signed-integer",
            "fixed-length-unsigned-enumeration",
            "fixed-length-signed-enumeration",
            "variable-length-unsigned-integer",
            "variable-length-signed-integer",
            "variable-length-unsigned-enumeration",
            "variable-length-signed-enumeration",
        ];
        if !known.contains(&of) {
            return Err(format!("a field class of type `{of}` is not read"));
        }
        let bits = if variable { Some(64) } else { unsigned(class, "length")? };
        let Some(Ok(bits @ 1..=64)) = bits.map(u32::try_from) else {
            return Err(format!("an integer of {bits:?} bits; 1 to 64 are read"));
        };
        let big_endian = if variable { Some(false) } else { byte_order(class)? };
        let base = match unsigned(class, "preferred-display-base")? {
            None => 10,
            Some(base @ (2 | 8 | 10 | 16)) => base as u32,
            Some(other) => return Err(format!("a display base of {other}")),
        };
        let mut integer = Integer {
            bits,
            align_bits: if variable { 8 } else { alignment(class, "alignment")? },
            signed,
            big_endian,
            text: false,
            base,
            clock: None,
            variable,
            duty: None,
        };
        for role in list(class, "roles")? {
            self.role(role.as_str().unwrap_or_default(), scope, &mut integer);
        }
        if matches!(scope, Scope::PacketHeader | Scope::EventHeader) && !variable {
            self.metadata.big_endian = self.metadata.big_endian.or(big_endian);
        }
        let mappings = match class.get("mappings") {
            None => return Ok(Kind::Integer(integer)),
            Some(mappings) => object(mappings, "`mappings`")?,
        };
        let mut all = Vec::new();
        for (label, values) in mappings {
            let values = values.as_array().ok_or("a mapping is no array")?;
            let label: Arc<str> = label.as_str().into();
            all.extend(ranges(values)?.into_iter().map(|[first, last]| Range {
                label: Arc::clone(&label),
                first,
                last,
            }));
        }
        Ok(Kind::Enumeration { of: integer, ranges: all.into() })
    }

    fn role(&self, role: &str, scope: Scope, integer: &mut Integer) {
        let duty = match role {
            "packet-magic-number" => Duty::Magic,
            "data-stream-class-id" => Duty::StreamClass,
            "packet-total-length" => Duty::PacketBits,
            "packet-content-length" => Duty::ContentBits,
            "packet-sequence-number" => Duty::PacketNumber,
            "discarded-event-record-counter-snapshot" => Duty::Discarded,
            "event-record-class-id" => Duty::EventClass,
            "packet-end-default-clock-timestamp" => Duty::PacketEnd,
            "default-clock-timestamp" => {
                integer.clock.clone_from(&self.clock);
                if scope != Scope::PacketContext {
                    return;
                }
                Duty::PacketBegin
            }
            // The number of the stream in its class, and what is not known.
            _ => return,
        };
        integer.duty = Some(duty);
        if duty == Duty::PacketEnd {
            integer.clock.clone_from(&self.clock);
        }
    }
}

/// An alignment in bits; 1 if it is not given.
fn alignment(class: &Object, name: &str) -> Understood<u32> {
    match unsigned(class, name)?.map(u32::try_from) {
        None => Ok(1),
        Some(Ok(bits @ 1..=4096)) if bits.is_power_of_two() => Ok(bits),
        Some(_) => Err(format!("`{name}` {} is no power of two up to 4096", class[name])),
    }
}

fn declared_alignment(of: &Type) -> u32 {
    match of.kind.as_ref() {
        Kind::Integer(integer) | Kind::Enumeration { of: integer, .. } => integer.align_bits,
        Kind::Float(float) => float.align_bits,
        Kind::Text => 8,
        Kind::Struct { fields, align_bits } => {
            fields.iter().fold(*align_bits, |most, field| most.max(declared_alignment(&field.of)))
        }
        Kind::Array { of, .. } | Kind::Sequence { of, .. } => declared_alignment(of),
        Kind::Variant { .. } => 1,
    }
}

fn byte_order(class: &Object) -> Understood<Option<bool>> {
    let big_endian = match text(class, "byte-order") {
        Some("little-endian") => false,
        Some("big-endian") => true,
        Some(other) => return Err(format!("unknown byte order `{other}`")),
        None => return Err("`byte-order` is missing".into()),
    };
    // The first bit of a field is the lowest of a little-endian byte and the highest of a big-endian one.
    let natural = if big_endian { "last-to-first" } else { "first-to-last" };
    match text(class, "bit-order") {
        None => Ok(Some(big_endian)),
        Some(order) if order == natural => Ok(Some(big_endian)),
        Some(order) => {
            Err(format!("a bit order of `{order}` in a field of this byte order is not read"))
        }
    }
}

fn float(class: &Object) -> Understood<Float> {
    let bits = match unsigned(class, "length")? {
        Some(32) => 32,
        Some(64) => 64,
        other => {
            return Err(format!("a floating-point number of {other:?} bits; 32 and 64 are read"));
        }
    };
    Ok(Float { bits, align_bits: alignment(class, "alignment")?, big_endian: byte_order(class)? })
}

fn encoding(class: &Object) -> Understood<()> {
    match text(class, "encoding") {
        None | Some("utf-8") => Ok(()),
        Some(other) => Err(format!("a string in {other}; UTF-8 is read")),
    }
}

/// A character of a string with a length, or a byte of a BLOB.
fn element(class: &Object, text: bool) -> Understood<Type> {
    if text {
        encoding(class)?;
    }
    let uuid =
        list(class, "roles")?.iter().any(|role| role.as_str() == Some("metadata-stream-uuid"));
    let of = Type::new(Kind::Integer(Integer {
        bits: 8,
        align_bits: 8,
        signed: false,
        big_endian: Some(false),
        text,
        base: 10,
        clock: None,
        variable: false,
        duty: uuid.then_some(Duty::Uuid),
    }));
    of.ok_or_else(|| "no room for a character".into())
}

/// `[[first, last], ...]`
fn ranges(values: &[Value]) -> Understood<Vec<[i128; 2]>> {
    let number =
        |value: &Value| value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let range = |value: &Value| match value.as_array().map(Vec::as_slice) {
        Some([first, last]) => Some([number(first)?, number(last)?]),
        _ => None,
    };
    let found: Option<Vec<_>> = values.iter().map(range).collect();
    found.ok_or_else(|| "a range that is no pair of integers".into())
}

/// Where the value of a length or a selector is, in the words of [`Compiler`](super::layout::Compiler).
fn location(class: &Object, name: &str, scope: Scope) -> Understood<String> {
    let what = || format!("`{name}` is missing or names no field");
    let (origin, path) = match class.get(name) {
        Some(Value::Object(location)) => (text(location, "origin"), list(location, "path")?),
        // Drafts write the origin first.
        Some(Value::Array(path)) => match path.split_first() {
            Some((Value::String(first), rest))
                if Scope::ALL.iter().any(|(_, name, _)| name == first) =>
            {
                (Some(first.as_str()), rest)
            }
            _ => (None, path.as_slice()),
        },
        _ => return Err(what()),
    };
    let outward = path.iter().take_while(|step| step.is_null()).count();
    let steps: Option<Vec<&str>> = path[outward..].iter().map(Value::as_str).collect();
    let steps = steps.filter(|steps| !steps.is_empty()).ok_or_else(what)?.join(".");
    match origin {
        None => Ok(format!("{}{steps}", "^".repeat(outward + 1))),
        Some(origin) => {
            let found = Scope::ALL.iter().find(|(_, name, _)| *name == origin);
            let &(of, _, root) = found.ok_or_else(|| format!("unknown origin `{origin}`"))?;
            Ok(if of == scope { format!(":{steps}") } else { format!("{root}.{steps}") })
        }
    }
}
