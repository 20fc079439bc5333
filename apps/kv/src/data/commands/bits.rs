//! Commands on the bits of strings. Bit 0 is the highest of the first byte.

use super::super::entry::{Entry, Form};
use super::super::keyspace::*;
use super::super::numbers;
use super::stored;
use crate::command::Command;
use crate::event::string;
use laneway_resp::Reply;

/// The rows of the table.
pub(crate) static COMMANDS: &[Command] = &[
    row("setbit", 4, GROW, ONE_KEY, &["write", "bitmap", "slow"], runs!(setbit)),
    row("getbit", 3, READ_FAST, ONE_KEY, &["read", "bitmap", "fast"], runs!(getbit)),
    row("bitcount", -2, READ, ONE_KEY, &["read", "bitmap", "slow"], runs!(bitcount)),
    row("bitpos", -3, READ, ONE_KEY, &["read", "bitmap", "slow"], runs!(bitpos)),
    row("bitop", -4, GROW, keys_at(2, -1, 1), &["write", "bitmap", "slow"], runs!(bitop)),
    row("bitfield", -2, GROW, ONE_KEY, &["write", "bitmap", "slow"], runs!(bitfield)),
    row("bitfield_ro", -2, READ_FAST, ONE_KEY, &["read", "bitmap", "fast"], runs!(bitfield_ro)),
];

const NOT_OFFSET: Refusal = refusal("ERR bit offset is not an integer or out of range");

/// Bits of a string that may be asked for, as in Redis: behind those that a string can have there are zeros.
const ASKED_BITS_MAX: usize = 1 << 32;

/// Where a bit may be asked for.
fn offset(arg: &[u8]) -> Result<usize, Refusal> {
    let offset = numbers::integer(arg).and_then(|offset| usize::try_from(offset).ok());
    offset.filter(|offset| *offset < ASKED_BITS_MAX).ok_or(NOT_OFFSET)
}

/// Where a bit may be written: within the longest string.
fn writable(at: usize) -> Result<usize, Refusal> {
    if at / 8 < VALUE_BYTES_MAX { Ok(at) } else { Err(NOT_OFFSET) }
}

fn setbit(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let at = writable(offset(args[2])?)?;
    let bit = match args[3] {
        b"0" => 0,
        b"1" => 1,
        _ => return Err(refusal("ERR bit is not an integer or out of range")),
    };
    let (before, grows) = keys.edit_text(args[1], |text| {
        let grows = text.len() < at / 8 + 1;
        text.resize(text.len().max(at / 8 + 1), 0);
        let (byte, shift) = (&mut text[at / 8], 7 - at % 8);
        let before = *byte >> shift & 1;
        *byte = *byte & !(1 << shift) | bit << shift;
        (before, grows)
    })?;
    if grows || before != bit {
        keys.changed(args[1], string("setbit"), 1);
    }
    reply.integer(i64::from(before));
    DONE
}

fn getbit(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let at = offset(args[2])?;
    let byte = keys.text(args[1])?.and_then(|text| text.get(at / 8)).copied().unwrap_or(0);
    reply.integer(i64::from(byte >> (7 - at % 8) & 1));
    DONE
}

/// Bits `start` to `end` of a string as START, END and BYTE or BIT say.
struct Part {
    start: i64,
    end: i64,
    in_bits: bool,
}

impl Part {
    fn read(start: &[u8], end: Option<&&[u8]>, unit: Option<&&[u8]>) -> Result<Part, Refusal> {
        let start = integer(start)?;
        let end = end.map_or(Ok(-1), |end| integer(end))?;
        let in_bits = match unit {
            None => false,
            Some(unit) if is(unit, "bit") => true,
            Some(unit) if is(unit, "byte") => false,
            Some(_) => return Err(SYNTAX),
        };
        Ok(Part { start, end, in_bits })
    }

    /// As bits of a string of `len` bytes.
    fn bits(&self, len: usize) -> std::ops::Range<usize> {
        let units = if self.in_bits { len * 8 } else { len };
        let end =
            if self.end < 0 { (self.end.saturating_add(units as i64)).max(0) } else { self.end };
        let units = range(self.start, end, units);
        if self.in_bits { units } else { units.start * 8..units.end * 8 }
    }
}

fn count_bits(text: &[u8], bits: std::ops::Range<usize>) -> u64 {
    if bits.is_empty() {
        return 0;
    }
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let whole: u64 = text[first..=last].iter().map(|byte| u64::from(byte.count_ones())).sum();
    let before = text[first] & !(0xff >> (bits.start % 8));
    let behind = text[last] & (0xff_u16 >> ((bits.end - 1) % 8 + 1)) as u8;
    whole - u64::from(before.count_ones()) - u64::from(behind.count_ones())
}

fn bitcount(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let Some(text) = keys.text(args[1])? else {
        reply.integer(0);
        return DONE;
    };
    let bits = match args {
        [_, _] => 0..text.len() * 8,
        [_, _, start, end, unit @ ..] if unit.len() < 2 => {
            let part = Part::read(start, Some(end), None)?;
            // An end before the start is nothing, also if both are before the string, and whatever the unit is.
            let is_nothing = part.start < 0 && part.end < 0 && part.start > part.end;
            match is_nothing {
                true => 0..0,
                false => Part::read(start, Some(end), unit.first())?.bits(text.len()),
            }
        }
        _ => return Err(SYNTAX),
    };
    reply.integer(count_bits(text, bits) as i64);
    DONE
}

fn bitpos(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let bit = integer(args[2])?;
    if !matches!(bit, 0 | 1) {
        return Err(refusal("ERR The bit argument must be 1 or 0."));
    }
    let Some(text) = keys.text(args[1])? else {
        reply.integer(if bit == 1 { -1 } else { 0 });
        return DONE;
    };
    let bits = match args.get(3) {
        None => 0..text.len() * 8,
        Some(_) if args.len() > 6 => return Err(SYNTAX),
        Some(start) => Part::read(start, args.get(4), args.get(5))?.bits(text.len()),
    };
    let is_bit = |at: &usize| i64::from(text[at / 8] >> (7 - at % 8) & 1) == bit;
    // Bytes without the bit are passed over whole.
    let without = if bit == 1 { 0 } else { 0xff };
    let mut at = bits.start;
    while at < bits.end && !is_bit(&at) {
        at += if at.is_multiple_of(8) && text[at / 8] == without { 8 } else { 1 };
    }
    reply.integer(match at < bits.end {
        true => at as i64,
        // Behind a string without an end that was asked for, there are zeros.
        false if bit == 0 && args.len() < 5 && !bits.is_empty() => (text.len() * 8) as i64,
        false => -1,
    });
    DONE
}

/// How several strings become one.
#[derive(Clone, Copy)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    /// The result, as long as the longest of the strings, which is `len`; zeros are behind the others.
    fn of<'t>(self, mut texts: impl Iterator<Item = &'t [u8]>, len: usize) -> Vec<u8> {
        let mut result = vec![0; len];
        let first = texts.next().unwrap_or(&[]);
        result[..first.len()].copy_from_slice(first);
        for text in texts {
            let (both, behind) = result.split_at_mut(text.len());
            let pairs = both.iter_mut().zip(text);
            match self {
                Operation::And => {
                    pairs.for_each(|(byte, other)| *byte &= other);
                    behind.fill(0);
                }
                Operation::Or => pairs.for_each(|(byte, other)| *byte |= other),
                Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
                Operation::Not => {}
            }
        }
        if let Operation::Not = self {
            result.iter_mut().for_each(|byte| *byte = !*byte);
        }
        result
    }
}

fn bitop(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let operation = match () {
        () if is(args[1], "and") => Operation::And,
        () if is(args[1], "or") => Operation::Or,
        () if is(args[1], "xor") => Operation::Xor,
        () if is(args[1], "not") && args.len() == 4 => Operation::Not,
        () if is(args[1], "not") => {
            return Err(refusal("ERR BITOP NOT must be called with a single source key."));
        }
        () => return Err(SYNTAX),
    };
    let mut len = 0;
    for key in &args[3..] {
        len = len.max(keys.text(key)?.map_or(0, <[u8]>::len));
    }
    // Read where they are: the copies of many would take what no limit counts.
    let texts = args[3..].iter().map(|key| keys.held_text(key).unwrap_or(&[]));
    let result = operation.of(texts, len);
    let is_changed = match result.is_empty() {
        true => keys.take(args[2]).is_some(),
        false => {
            keys.put(Entry::of_text(args[2], result, Form::Raw, None));
            true
        }
    };
    if is_changed {
        keys.changed(args[2], stored(string("set"), len), 1);
    }
    reply.integer(len as i64);
    DONE
}

/// What happens to a number that does not fit.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// A number of some bits.
#[derive(Clone, Copy)]
struct Field {
    signed: bool,
    bits: u32,
    at: usize,
}

/// What BITFIELD does with a field.
enum Step {
    Get,
    Set(i64),
    Add(i64),
}

impl Field {
    fn read(kind: &[u8], at: &[u8]) -> Result<Field, Refusal> {
        let words = refusal(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
             supported but i64 is.",
        );
        let (signed, bits) = match kind {
            [b'i', bits @ ..] => (true, bits),
            [b'u', bits @ ..] => (false, bits),
            _ => return Err(words),
        };
        let max = if signed { 64 } else { 63 };
        let bits = numbers::integer(bits).and_then(|bits| u32::try_from(bits).ok());
        let bits = bits.filter(|bits| (1..=max).contains(bits)).ok_or(words)?;
        let (at, unit) = match at {
            [b'#', at @ ..] => (at, bits as usize),
            at => (at, 1),
        };
        let at = numbers::integer(at).and_then(|at| usize::try_from(at).ok());
        let at = at.and_then(|at| at.checked_mul(unit)).filter(|at| *at < ASKED_BITS_MAX);
        Ok(Field { signed, bits, at: at.ok_or(NOT_OFFSET)? })
    }

    /// The same, of a field that is written.
    fn to_write(kind: &[u8], at: &[u8]) -> Result<Field, Refusal> {
        let field = Field::read(kind, at)?;
        writable(field.at + field.bits as usize - 1).map(|_| field)
    }

    fn get(self, text: &[u8]) -> i64 {
        let mut number = 0_u64;
        for at in self.at..self.at + self.bits as usize {
            let byte = text.get(at / 8).copied().unwrap_or(0);
            number = number << 1 | u64::from(byte >> (7 - at % 8) & 1);
        }
        self.extended(number)
    }

    /// The lowest bits as a number, with its sign.
    fn extended(self, number: u64) -> i64 {
        let unused = 64 - self.bits;
        match self.signed {
            true => ((number << unused) as i64) >> unused,
            false => (number << unused >> unused) as i64,
        }
    }

    fn set(self, text: &mut Vec<u8>, number: i64) {
        text.resize(text.len().max(self.end()), 0);
        for index in 0..self.bits as usize {
            let at = self.at + index;
            let bit = (number >> (self.bits as usize - 1 - index) & 1) as u8;
            let shift = 7 - at % 8;
            text[at / 8] = text[at / 8] & !(1 << shift) | bit << shift;
        }
    }

    /// The number as it is kept; `None` if it does not fit and that is not to be mended.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (min, max) = match self.signed {
            true => (-(1_i128 << (self.bits - 1)), (1_i128 << (self.bits - 1)) - 1),
            false => (0, (1_i128 << self.bits) - 1),
        };
        match overflow {
            _ if (min..=max).contains(&number) => Some(number as i64),
            Overflow::Wrap => Some(self.extended(number as u64)),
            Overflow::Saturate => Some(number.clamp(min, max) as i64),
            Overflow::Fail => None,
        }
    }

    /// The byte behind it.
    fn end(self) -> usize {
        (self.at + self.bits as usize).div_ceil(8)
    }
}

fn bitfield(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    fields(keys, args, false, reply)
}

fn bitfield_ro(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    fields(keys, args, true, reply)
}

fn fields(keys: &mut Keyspace<'_>, args: &[&[u8]], only_reads: bool, reply: &mut Reply) -> Answer {
    let (mut steps, mut overflow) = (Vec::new(), Overflow::Wrap);
    let mut rest = &args[2..];
    while let [step, behind @ ..] = rest {
        let (field, taken) = match behind {
            [how, ..] if is(step, "overflow") => {
                overflow = match () {
                    () if is(how, "wrap") => Overflow::Wrap,
                    () if is(how, "sat") => Overflow::Saturate,
                    () if is(how, "fail") => Overflow::Fail,
                    () => return Err(refusal("ERR Invalid OVERFLOW type specified")),
                };
                rest = &behind[1..];
                continue;
            }
            [kind, at, ..] if is(step, "get") => ((Field::read(kind, at)?, Step::Get), 2),
            [kind, at, number, ..] if is(step, "set") => {
                ((Field::to_write(kind, at)?, Step::Set(integer(number)?)), 3)
            }
            [kind, at, number, ..] if is(step, "incrby") => {
                ((Field::to_write(kind, at)?, Step::Add(integer(number)?)), 3)
            }
            _ => return Err(SYNTAX),
        };
        steps.push((field, overflow));
        rest = &behind[taken..];
    }
    let writes = steps.iter().any(|((_, step), _)| !matches!(step, Step::Get));
    if writes && only_reads {
        return Err(refusal("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    reply.array(steps.len());
    if !writes {
        let text = keys.text(args[1])?.unwrap_or(&[]);
        steps.iter().for_each(|((field, _), _)| reply.integer(field.get(text)));
        return DONE;
    }
    // As in Redis, the string grows to the furthest field that is written, even if nothing is written there.
    let written = steps.iter().filter(|((_, step), _)| !matches!(step, Step::Get));
    let end = written.map(|((field, _), _)| field.end()).max().unwrap_or(0);
    let (mut changes, mut grows) = (0, false);
    keys.edit_text(args[1], |text| {
        grows = text.len() < end;
        text.resize(text.len().max(end), 0);
        for ((field, step), overflow) in &steps {
            let before = field.get(text);
            let (wanted, shown) = match step {
                Step::Get => {
                    reply.integer(before);
                    continue;
                }
                // As in Redis, a negative number is a very large one to a field without a sign.
                Step::Set(number) if !field.signed => (i128::from(*number as u64), Some(before)),
                Step::Set(number) => (i128::from(*number), Some(before)),
                Step::Add(number) => (i128::from(before) + i128::from(*number), None),
            };
            match field.fit(wanted, *overflow) {
                Some(number) => {
                    field.set(text, number);
                    changes += u64::from(grows || before != number);
                    reply.integer(shown.unwrap_or(number));
                }
                None => reply.null(),
            }
        }
    })?;
    if changes > 0 {
        keys.changed(args[1], string("setbit"), changes);
    } else if grows {
        // No field was set, but there are more bits.
        keys.log_given(args[1], 1);
    }
    DONE
}
