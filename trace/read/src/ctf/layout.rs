//! Layouts: declared types compiled for reading, and the general way to read them.
//!
//! Compiling resolves byte orders and the members that lengths and variants depend on, once. [`walk`] then reads any
//! layout, bit by bit where it must; [`fixed`] finds those layouts whose members all lie at fixed bytes, which the fast
//! path of `stream` reads without walking. Nothing here trusts the bytes: a length or tag is checked where it is used.

use std::collections::HashMap;
use std::sync::Arc;

use super::types::{DEPTH_MAX, Duty, Field, Integer, Kind, Range, Type};

/// Most parts of all layouts of a trace together, and labels that choose between them: each of many kinds of events may
/// be of one large type.
const PARTS_MAX: usize = 1 << 20;
/// Most values of one event.
const VALUES_MAX: u32 = 1 << 20;
/// Most values of an event that take no bits: reading them costs time that the size of a file does not bound.
const EMPTY_MAX: u64 = 64;

/// A type ready to be read.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Whole(Whole),
    Enumeration(Whole, Arc<[Range]>),
    Float {
        bits: u32,
        align_bits: u32,
        big_endian: bool,
    },
    Text,
    Struct {
        align_bits: u32,
        members: Vec<Member>,
    },
    Array {
        of: Box<Self>,
        length: u64,
    },
    Sequence {
        of: Box<Self>,
        slot: usize,
    },
    /// `optional`: for other values of the tag there is nothing.
    Variant {
        slot: usize,
        signed: bool,
        cases: Vec<Case>,
        options: Vec<Member>,
        optional: bool,
    },
}

/// An integer ready to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) bits: u32,
    pub(super) align_bits: u32,
    pub(super) signed: bool,
    pub(super) big_endian: bool,
    pub(super) text: bool,
    pub(super) base: u32,
    /// Where its value is kept for a length or tag that depends on it.
    pub(super) slot: Option<usize>,
    /// Number of the clock that it sets.
    pub(super) clock: Option<usize>,
    /// LEB128.
    pub(super) variable: bool,
    pub(super) duty: Option<Duty>,
}

/// A member of a struct or variant.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// As declared.
    name: Arc<str>,
    /// The name is shown as it is. In TSDL it is without the underscore that LTTng puts before names of users.
    bare: bool,
    pub(super) node: Node,
}

/// Values of a tag and the option they choose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    first: i128,
    last: i128,
    option: usize,
}

impl Member {
    pub(super) fn name(&self) -> &str {
        if self.bare { &self.name } else { self.name.strip_prefix('_').unwrap_or(&self.name) }
    }
}

/// Compiles the types of one trace.
pub(super) struct Compiler<'a> {
    pub(super) big_endian: bool,
    /// CTF 2: names are shown as they are, and duties are declared.
    pub(super) second: bool,
    pub(super) clocks: &'a [String],
    /// Slots given out so far.
    pub(super) slots: usize,
    /// Structs under construction, the innermost last.
    open: Vec<Vec<Member>>,
    /// How many of [`PARTS_MAX`] are left.
    parts_left: usize,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(big_endian: bool, second: bool, clocks: &'a [String]) -> Self {
        Self { big_endian, second, clocks, slots: 0, open: Vec::new(), parts_left: PARTS_MAX }
    }

    /// The layout of `of`; `roots` are those that come before it in an event, by their full name.
    ///
    /// # Errors
    /// A sentence if a length, tag or clock refers to something that is not there.
    pub(super) fn compile(
        &mut self,
        of: &Type,
        roots: &mut [(&str, &mut Option<Node>)],
    ) -> Result<Node, String> {
        self.open.clear();
        self.node(of, roots)
    }

    fn spend(&mut self, parts: usize) -> Result<(), String> {
        let left = self.parts_left.checked_sub(parts);
        self.parts_left = left.ok_or_else(|| {
            format!("layouts of more than {PARTS_MAX} parts and labels together are not read")
        })?;
        Ok(())
    }

    fn node(&mut self, of: &Type, roots: &mut [(&str, &mut Option<Node>)]) -> Result<Node, String> {
        self.spend(1)?;
        Ok(match of.kind.as_ref() {
            Kind::Integer(integer) => Node::Whole(self.whole(integer)?),
            Kind::Enumeration { of, ranges } => {
                Node::Enumeration(self.whole(of)?, Arc::clone(ranges))
            }
            Kind::Float(float) => Node::Float {
                bits: float.bits,
                align_bits: float.align_bits,
                big_endian: float.big_endian.unwrap_or(self.big_endian),
            },
            Kind::Text => Node::Text,
            Kind::Struct { fields, align_bits } => {
                self.open.push(Vec::with_capacity(fields.len()));
                for Field { name, of } in fields {
                    let mut node = self.node(of, roots)?;
                    if !self.second {
                        give_duty(&mut node, name);
                    }
                    let members = self.open.last_mut().expect("pushed above, popped below");
                    members.push(Member { name: Arc::clone(name), bare: self.second, node });
                }
                let members = self.open.pop().expect("pushed above");
                let align_bits =
                    members.iter().fold(*align_bits, |most, member| most.max(align(&member.node)));
                Node::Struct { align_bits, members }
            }
            Kind::Array { of, length } => {
                Node::Array { of: Box::new(self.node(of, roots)?), length: *length }
            }
            Kind::Sequence { of, length } => {
                let (slot, ..) = self.slot(length, roots)?;
                Node::Sequence { of: Box::new(self.node(of, roots)?), slot }
            }
            Kind::Variant { tag, options, ranges, optional } => {
                let tag = tag.as_deref().ok_or("a variant without its tag")?;
                let (slot, signed, labels) = self.slot(tag, roots)?;
                let cases = match ranges {
                    Some(ranges) => {
                        self.spend(ranges.iter().map(Vec::len).sum())?;
                        let of = |(option, ranges): (usize, &Vec<[i128; 2]>)| {
                            let case = |&[first, last]: &[i128; 2]| Case { first, last, option };
                            ranges.iter().map(case).collect::<Vec<_>>()
                        };
                        ranges.iter().enumerate().flat_map(of).collect()
                    }
                    None => {
                        let labels =
                            labels.ok_or_else(|| format!("the tag `{tag}` is no enumeration"))?;
                        self.spend(labels.len())?;
                        labelled(&labels, options)
                    }
                };
                let mut compiled = Vec::with_capacity(options.len());
                for Field { name, of } in options.iter() {
                    let node = self.node(of, roots)?;
                    compiled.push(Member { name: Arc::clone(name), bare: self.second, node });
                }
                Node::Variant { slot, signed, cases, options: compiled, optional: *optional }
            }
        })
    }

    fn whole(&self, integer: &Integer) -> Result<Whole, String> {
        let clock = match &integer.clock {
            None => None,
            Some(name) => {
                let found = self.clocks.iter().position(|clock| **clock == **name);
                Some(found.ok_or_else(|| format!("no clock is named `{name}`"))?)
            }
        };
        Ok(Whole {
            bits: integer.bits,
            align_bits: integer.align_bits,
            signed: integer.signed,
            big_endian: integer.big_endian.unwrap_or(self.big_endian),
            text: integer.text,
            base: integer.base,
            slot: None,
            clock,
            variable: integer.variable,
            duty: integer.duty,
        })
    }

    /// The slot of the integer at `path`, whether it is signed, and its labels if it is an enumeration.
    ///
    /// A path is looked for in the structs around, innermost first, and then below the roots. One that begins with `:`
    /// is looked for in the outermost struct only; one that begins with `^`, one for each, that many structs further
    /// out.
    #[expect(clippy::type_complexity, reason = "a triple of private facts, used twice above")]
    fn slot(
        &mut self,
        path: &str,
        roots: &mut [(&str, &mut Option<Node>)],
    ) -> Result<(usize, bool, Option<Arc<[Range]>>), String> {
        let next = self.slots;
        let found = if let Some(path) = path.strip_prefix(':') {
            self.open.first_mut().and_then(|members| within(members, path))
        } else if path.starts_with('^') {
            let inner = path.trim_start_matches('^');
            let at = self.open.len().checked_sub(path.len() - inner.len());
            at.and_then(|at| within(self.open.get_mut(at)?, inner))
        } else {
            let around = self.open.iter_mut().rev().find_map(|members| within(members, path));
            around.or_else(|| {
                roots.iter_mut().find_map(|(prefix, root)| {
                    let rest = path.strip_prefix(*prefix)?.strip_prefix('.')?;
                    match root {
                        Some(Node::Struct { members, .. }) => within(members, rest),
                        _ => None,
                    }
                })
            })
        };
        let node = found.ok_or_else(|| format!("no member `{path}` comes before it"))?;
        let (whole, labels) = match node {
            Node::Whole(whole) => (whole, None),
            Node::Enumeration(whole, ranges) => (whole, Some(ranges.clone())),
            _ => return Err(format!("`{path}` is no integer")),
        };
        let slot = *whole.slot.get_or_insert(next);
        self.slots = self.slots.max(slot + 1);
        Ok((slot, whole.signed, labels))
    }
}

/// Values of a tag that choose the options with the names of its labels.
fn labelled(labels: &[Range], options: &[Field]) -> Vec<Case> {
    fn bare(name: &str) -> &str {
        name.strip_prefix('_').unwrap_or(name)
    }
    let mut places = HashMap::with_capacity(options.len());
    for (place, option) in options.iter().enumerate() {
        places.entry(bare(&option.name)).or_insert(place);
    }
    let case = |&Range { ref label, first, last }: &Range| {
        places.get(bare(label)).map(|&option| Case { first, last, option })
    };
    labels.iter().filter_map(case).collect()
}

/// In TSDL the name of a member says what it is for.
fn give_duty(node: &mut Node, name: &str) {
    let duty = Duty::of_name(name);
    match node {
        Node::Whole(whole) | Node::Enumeration(whole, _) if duty != Some(Duty::Uuid) => {
            whole.duty = duty;
        }
        Node::Array { of, .. } if duty == Some(Duty::Uuid) => {
            if let Node::Whole(whole) = of.as_mut() {
                whole.duty = duty;
            }
        }
        _ => {}
    }
}

fn within<'m>(members: &'m mut [Member], path: &str) -> Option<&'m mut Node> {
    // A name of CTF 2 may hold a point.
    let rest = |member: &Member| match path.strip_prefix(&*member.name) {
        Some("") => Some(None),
        Some(rest) => rest.strip_prefix('.').map(Some),
        None => None,
    };
    members.iter_mut().rev().find_map(|member| match (rest(member)?, &mut member.node) {
        (None, node) => Some(node),
        (Some(rest), Node::Struct { members, .. }) => within(members, rest),
        _ => None,
    })
}

/// Bits that `node` must be aligned to.
pub(super) fn align(node: &Node) -> u32 {
    match node {
        Node::Whole(whole) | Node::Enumeration(whole, _) => whole.align_bits,
        Node::Float { align_bits, .. } | Node::Struct { align_bits, .. } => *align_bits,
        Node::Text => 8,
        Node::Array { of, .. } | Node::Sequence { of, .. } => align(of),
        Node::Variant { .. } => 1,
    }
}

/// Why a layout could not be read from these bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// More bytes are needed than there are in the window.
    Short,
    /// The bytes contradict the layout.
    Wrong(String),
}

/// A value of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// Sign extended to 64 bits if `signed`.
    pub(super) raw: u64,
    pub(super) signed: bool,
}

impl Value {
    fn wide(self) -> i128 {
        if self.signed { i128::from(self.raw as i64) } else { i128::from(self.raw) }
    }
}

/// What lies in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Struct,
    Array,
    Variant,
}

/// Takes the values of a layout as they are read. `name` is `None` within arrays.
pub(super) trait Visit {
    fn whole(&mut self, name: Option<&str>, value: Value, whole: &Whole, labels: &[Range]) {
        let _ = (name, value, whole, labels);
    }
    fn float(&mut self, name: Option<&str>, value: f64) {
        let _ = (name, value);
    }
    fn text(&mut self, name: Option<&str>, text: &[u8]) {
        let _ = (name, text);
    }
    fn open(&mut self, name: Option<&str>, shape: Shape) {
        let _ = (name, shape);
    }
    fn close(&mut self, shape: Shape) {
        let _ = shape;
    }
}

/// Reads past values and keeps none.
pub(super) struct Unseen;
impl Visit for Unseen {}

/// A place in the bytes of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits<'a> {
    /// What is in the window.
    pub(super) bytes: &'a [u8],
    /// Next bit, from the start of `bytes`.
    pub(super) at: u64,
    /// Bits from the start of the packet to the start of `bytes`; alignment counts from the packet.
    pub(super) origin: u64,
}

impl<'a> Bits<'a> {
    fn left(&self) -> u64 {
        (self.bytes.len() as u64 * 8).saturating_sub(self.at)
    }

    fn align(&mut self, bits: u32) {
        let bits = u64::from(bits.max(1));
        self.at = (self.origin + self.at).next_multiple_of(bits) - self.origin;
    }

    fn take(&mut self, bits: u32, big_endian: bool) -> Result<u64, Stop> {
        if self.left() < bits.into() {
            return Err(Stop::Short);
        }
        let (first, shift) = ((self.at / 8) as usize, (self.at % 8) as u32);
        let bytes = ((shift + bits).div_ceil(8)) as usize;
        let run = &self.bytes[first..first + bytes];
        let value = if big_endian {
            let all = run.iter().fold(0_u128, |all, &byte| (all << 8) | u128::from(byte));
            all >> (bytes as u32 * 8 - shift - bits)
        } else {
            run.iter().rev().fold(0_u128, |all, &byte| (all << 8) | u128::from(byte)) >> shift
        };
        self.at += u64::from(bits);
        Ok((value as u64) & mask(bits))
    }

    fn run(&mut self, bytes: u64) -> Result<&'a [u8], Stop> {
        let first = (self.at / 8) as usize;
        let end = usize::try_from(bytes).ok().and_then(|bytes| first.checked_add(bytes));
        let run = end.and_then(|end| self.bytes.get(first..end)).ok_or(Stop::Short)?;
        self.at += bytes * 8;
        Ok(run)
    }
}

/// The lowest `bits` bits set, for 1 to 64.
pub(super) fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits.clamp(1, 64))
}

/// `clock` after its lowest `bits` became `value`: a smaller value is a wrap.
///
/// With 48 bits and more a wrap takes hours, so a small step back is no wrap: the result is then below `clock`.
pub(super) fn advance(clock: u64, value: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return value;
    }
    let mask = mask(bits);
    let next = (clock & !mask) | value;
    if next >= clock || (bits >= 48 && clock - next <= mask / 2) {
        next
    } else {
        next.wrapping_add(mask).wrapping_add(1)
    }
}

/// What a walk keeps from one layout to the next of an event.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Values that lengths and tags depend on.
    pub(super) slots: Vec<u64>,
    /// Ticks of the clock.
    pub(super) clock: u64,
    values: u32,
    /// Bit at which the walk began.
    begun: u64,
}

impl State {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots: vec![0; slots], clock: 0, values: 0, begun: 0 }
    }
}

/// Reads `node` at `bits` and shows its values to `visit`.
///
/// # Errors
/// [`Stop`] if the bytes end before the layout does, or contradict it.
pub(super) fn walk(
    node: &Node,
    bits: &mut Bits<'_>,
    state: &mut State,
    visit: &mut impl Visit,
) -> Result<(), Stop> {
    (state.values, state.begun) = (0, bits.at);
    step(node, None, bits, state, visit)
}

fn step(
    node: &Node,
    name: Option<&str>,
    bits: &mut Bits<'_>,
    state: &mut State,
    visit: &mut impl Visit,
) -> Result<(), Stop> {
    state.values += 1;
    if state.values > VALUES_MAX {
        return Err(Stop::Wrong(format!("an event of more than {VALUES_MAX} values")));
    }
    // Structures within structures, each of which holds something in the end, do not get there.
    let taken = bits.at.saturating_sub(state.begun);
    if u64::from(state.values) > EMPTY_MAX + taken.saturating_mul(DEPTH_MAX.into()) {
        let values = state.values;
        return Err(Stop::Wrong(format!("{values} values that take {taken} bits together")));
    }
    match node {
        Node::Whole(whole) => {
            let value = integer(whole, bits, state)?;
            visit.whole(name, value, whole, &[]);
        }
        Node::Enumeration(whole, ranges) => {
            let value = integer(whole, bits, state)?;
            visit.whole(name, value, whole, ranges);
        }
        &Node::Float { bits: size, align_bits, big_endian } => {
            bits.align(align_bits);
            let raw = bits.take(size, big_endian)?;
            let value =
                if size == 32 { f32::from_bits(raw as u32).into() } else { f64::from_bits(raw) };
            visit.float(name, value);
        }
        Node::Text => {
            bits.align(8);
            let rest = bits.bytes.get((bits.at / 8) as usize..).unwrap_or_default();
            let length = rest.iter().position(|&byte| byte == 0).ok_or(Stop::Short)?;
            visit.text(name, &rest[..length]);
            bits.at += (length as u64 + 1) * 8;
        }
        Node::Struct { align_bits, members } => {
            bits.align(*align_bits);
            visit.open(name, Shape::Struct);
            for member in members {
                step(&member.node, Some(member.name()), bits, state, visit)?;
            }
            visit.close(Shape::Struct);
        }
        Node::Array { of, length } => array(of, *length, name, bits, state, visit)?,
        Node::Sequence { of, slot } => {
            let length = state.slots.get(*slot).copied().unwrap_or(0);
            array(of, length, name, bits, state, visit)?;
        }
        Node::Variant { slot, signed, cases, options, optional } => {
            let raw = state.slots.get(*slot).copied().unwrap_or(0);
            let tag = Value { raw, signed: *signed }.wide();
            let chosen = cases.iter().find(|case| (case.first..=case.last).contains(&tag));
            if *optional && chosen.is_none() {
                return Ok(());
            }
            let option = chosen
                .and_then(|case| options.get(case.option))
                .ok_or_else(|| Stop::Wrong(format!("no variant for the tag value {tag}")))?;
            if *optional {
                return step(&option.node, name, bits, state, visit);
            }
            visit.open(name, Shape::Variant);
            step(&option.node, Some(option.name()), bits, state, visit)?;
            visit.close(Shape::Variant);
        }
    }
    Ok(())
}

fn integer(whole: &Whole, bits: &mut Bits<'_>, state: &mut State) -> Result<Value, Stop> {
    bits.align(whole.align_bits);
    let mut raw = if whole.variable {
        variable(whole.signed, bits)?
    } else {
        bits.take(whole.bits, whole.big_endian)?
    };
    if whole.signed && whole.bits < 64 && raw >> (whole.bits - 1) == 1 {
        raw |= !mask(whole.bits);
    }
    if let Some(slot) = whole.slot.and_then(|slot| state.slots.get_mut(slot)) {
        *slot = raw;
    }
    if whole.clock.is_some() {
        state.clock = advance(state.clock, raw & mask(whole.bits), whole.bits);
    }
    Ok(Value { raw, signed: whole.signed })
}

/// LEB128, sign extended if `signed`.
fn variable(signed: bool, bits: &mut Bits<'_>) -> Result<u64, Stop> {
    let (mut raw, mut shift) = (0_u64, 0_u32);
    loop {
        let byte = bits.take(8, false)?;
        let seven = byte & 0x7f;
        // The tenth byte has one bit that counts; the others repeat the sign.
        let fits = shift < 63 || seven <= 1 || (signed && seven == 0x7f);
        if shift > 63 || !fits {
            return Err(Stop::Wrong("an integer of variable length of more than 64 bits".into()));
        }
        raw |= seven << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            if signed && shift < 64 && seven & 0x40 != 0 {
                raw |= u64::MAX << shift;
            }
            return Ok(raw);
        }
    }
}

fn array(
    of: &Node,
    length: u64,
    name: Option<&str>,
    bits: &mut Bits<'_>,
    state: &mut State,
    visit: &mut impl Visit,
) -> Result<(), Stop> {
    if let Node::Whole(Whole { bits: 8, align_bits: 8, text: true, .. }) = of {
        bits.align(8);
        let run = bits.run(length)?;
        let end = run.iter().position(|&byte| byte == 0).unwrap_or(run.len());
        visit.text(name, &run[..end]);
        return Ok(());
    }
    // An array of nothing takes no bytes: without this, a length of 2^64 would be believed.
    if length > VALUES_MAX.into() {
        let why = if length > bits.left() { Stop::Short } else { too_long(length) };
        return Err(why);
    }
    bits.align(align(of));
    visit.open(name, Shape::Array);
    for _ in 0..length {
        step(of, None, bits, state, visit)?;
    }
    visit.close(Shape::Array);
    Ok(())
}

fn too_long(length: u64) -> Stop {
    Stop::Wrong(format!("{length} elements; at most {VALUES_MAX} are read"))
}

/// Where a value lies in a fixed layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Bytes from the start of the layout.
    pub(super) offset: usize,
    /// Bytes it takes: 1, 2, 4 or 8 for an integer.
    pub(super) bytes: usize,
    pub(super) kind: SpotKind,
}

/// What lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpotKind {
    Whole { big_endian: bool, signed: bool },
    Text,
}

/// The length of `node` in bytes and the spots of its members, if all of them lie at fixed bytes wherever it begins.
/// Adds to `from` and `spots`, so that several layouts in a row can be one.
pub(super) fn fixed<'n>(
    node: &'n Node,
    from: usize,
    spots: &mut Vec<(&'n str, Spot)>,
) -> Option<usize> {
    fixed_at(node, "", from, spots)
}

fn fixed_at<'n>(
    node: &'n Node,
    name: &'n str,
    from: usize,
    spots: &mut Vec<(&'n str, Spot)>,
) -> Option<usize> {
    /// Longer layouts are none of those that matter.
    const BYTES_MAX: usize = 4096;
    if from > BYTES_MAX {
        return None;
    }
    match node {
        Node::Whole(whole) | Node::Enumeration(whole, _) => {
            let bytes = (whole.bits / 8) as usize;
            let simple = whole.align_bits == 8 && matches!(whole.bits, 8 | 16 | 32 | 64);
            if !simple || whole.variable || whole.clock.is_some() {
                return None;
            }
            let &Whole { big_endian, signed, .. } = whole;
            let kind = SpotKind::Whole { big_endian, signed };
            spots.push((name, Spot { offset: from, bytes, kind }));
            Some(from + bytes)
        }
        Node::Float { bits, align_bits: 8, .. } => Some(from + (*bits / 8) as usize),
        Node::Struct { align_bits: ..=8, members } => members
            .iter()
            .try_fold(from, |from, member| fixed_at(&member.node, member.name(), from, spots)),
        Node::Array { of, length } => {
            let Node::Whole(whole) = of.as_ref() else { return None };
            let simple = whole.align_bits == 8 && matches!(whole.bits, 8 | 16 | 32 | 64);
            if !simple || whole.variable {
                return None;
            }
            let each = usize::try_from(whole.bits / 8).ok()?;
            let bytes = usize::try_from(*length).ok()?.checked_mul(each)?;
            if whole.text && each == 1 {
                let spot = Spot { offset: from, bytes, kind: SpotKind::Text };
                spots.push((name, spot));
            }
            from.checked_add(bytes)
        }
        Node::Float { .. }
        | Node::Struct { .. }
        | Node::Text
        | Node::Sequence { .. }
        | Node::Variant { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_shared_by_all_members_of_an_enumeration() {
        let text = "typealias integer { size = 8; } := u8; enum e : u8 { a, b };
                    event { fields := struct { enum e x; enum e y; }; };";
        let metadata = super::super::metadata::parse(text).expect("understood");
        let fields = metadata.events[0].fields.as_ref().expect("declared");
        let node = Compiler::new(false, false, &[]).compile(fields, &mut []).expect("understood");
        let Node::Struct { members, .. } = &node else { panic!("{node:?}") };
        let [Node::Enumeration(_, x), Node::Enumeration(_, y)] = [0, 1].map(|at| &members[at].node)
        else {
            panic!("{members:?}")
        };
        assert!(Arc::ptr_eq(x, y));
    }

    #[test]
    fn bits_are_taken_in_both_orders() {
        let bytes = [0b1010_0101, 0b0000_1111, 0xff];
        let mut little = Bits { bytes: &bytes, at: 0, origin: 0 };
        assert_eq!(little.take(5, false), Ok(0b0_0101));
        assert_eq!(little.take(7, false), Ok(0b111_1101));
        assert_eq!(little.take(13, false), Err(Stop::Short));
        let mut big = Bits { bytes: &bytes, at: 0, origin: 0 };
        assert_eq!(big.take(5, true), Ok(0b1_0100));
        assert_eq!(big.take(7, true), Ok(0b101_0000));
    }

    #[test]
    fn wraps_of_a_clock_and_steps_back_are_distinguished() {
        assert_eq!(advance(0x1_0000_0005, 7, 32), 0x1_0000_0007);
        assert_eq!(advance(0x1_0000_0005, 4, 32), 0x2_0000_0004, "a wrap");
        assert_eq!(advance(0x0fff_fff0, 1, 27), 0x1000_0001, "a wrap");
        assert_eq!(advance((1 << 48) - 1, 0, 48), 1 << 48, "a wrap after thirty hours");
        assert_eq!(advance(1_000_000, 999_000, 48), 999_000, "a step back");
        assert_eq!(advance(9, 3, 64), 3);
        assert_eq!(advance(u64::MAX, 0, 32), 0, "no overflow");
    }
}
