//! The commands on data, a file for each type: rows of the one table, and what each row does.

mod bits;
mod hashes;
mod keys;
mod lists;
mod ranges;
mod sets;
mod sorted_sets;
mod strings;
mod unions;

use super::keyspace::{NOT_SYMMETRIC, OUT_OF_RANGE, Refusal, SYNTAX, integer, is, refusal};
use crate::command::Command;
use crate::event::{DELETED, Event};
use laneway_random::Random;
use std::collections::HashSet;

/// Every command on data, by type.
pub static COMMANDS: &[&[Command]] = &[
    strings::COMMANDS,
    bits::COMMANDS,
    keys::COMMANDS,
    lists::COMMANDS,
    sets::COMMANDS,
    hashes::COMMANDS,
    sorted_sets::COMMANDS,
    ranges::COMMANDS,
    unions::COMMANDS,
];

/// So many members are drawn at once, and no more: a client names the number, and members may be drawn twice.
const DRAWN_MAX: i64 = 16 << 20;

/// When a timeout in seconds is over; never, if it is 0.
fn until(timeout: &[u8], now_ms: u64) -> Result<Option<u64>, Refusal> {
    let seconds = super::numbers::float(timeout);
    let seconds = seconds.ok_or(refusal("ERR timeout is not a float or out of range"))?;
    let milliseconds = (seconds * 1000.0).ceil();
    // What is more than Redis can count is negative to it.
    if milliseconds < 0.0 || milliseconds >= i64::MAX as f64 {
        return Err(refusal("ERR timeout is negative"));
    }
    if milliseconds >= i64::MAX as f64 - now_ms as f64 {
        return Err(refusal("ERR timeout is out of range"));
    }
    Ok((milliseconds > 0.0).then(|| now_ms + milliseconds as u64))
}

/// The event of a key that so many entries were stored in: without any it is deleted.
fn stored(event: Event, entries: usize) -> Event {
    if entries == 0 { DELETED } else { event }
}

/// How many members are to be drawn: so many different ones, or, if negative, so many with repetitions.
enum Drawn {
    Different(usize),
    Any(usize),
}

impl Drawn {
    /// Reads a count and the word behind it that asks for what belongs to each member, if there is one; whether that
    /// is asked for.
    fn read(args: &[&[u8]], word: &str) -> Result<(Option<Drawn>, bool), Refusal> {
        let [arg, options @ ..] = args else { return Ok((None, false)) };
        let count = integer(arg)?;
        if count == i64::MIN {
            return Err(NOT_SYMMETRIC);
        }
        let is_paired = match options {
            [] => false,
            [option] if is(option, word) => true,
            _ => return Err(SYNTAX),
        };
        if is_paired && count.unsigned_abs() > i64::MAX as u64 / 2 || count < -DRAWN_MAX {
            return Err(OUT_OF_RANGE);
        }
        let drawn = match usize::try_from(count) {
            Ok(count) => Drawn::Different(count),
            Err(_) => Drawn::Any(count.unsigned_abs() as usize),
        };
        Ok((Some(drawn), is_paired))
    }
}

/// `count` of `len` different things by chance: `draw` draws one, `all` has them all. Where nearly all are wanted,
/// those that are not are left out; else drawing twice is rare.
fn draw_different<T: Clone + Eq + std::hash::Hash>(
    count: usize,
    len: usize,
    chance: &mut Random,
    draw: impl Fn(&mut Random) -> Option<T>,
    all: impl FnOnce() -> Vec<T>,
) -> Vec<T> {
    if count.saturating_mul(3) > len {
        let mut all = all();
        for at in 0..count.min(len) {
            all.swap(at, at + chance.index(len - at));
        }
        all.truncate(count);
        return all;
    }
    let (mut seen, mut drawn) = (HashSet::new(), Vec::with_capacity(count));
    while drawn.len() < count {
        let Some(one) = draw(chance) else { break };
        if seen.insert(one.clone()) {
            drawn.push(one);
        }
    }
    drawn
}
