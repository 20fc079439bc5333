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

use super::extended::{Extended, Reading};
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
/// And no more than so many bytes of them, by what a member takes on average.
const DRAWN_BYTES_MAX: usize = 2 << 30;

/// When a timeout in seconds is over; never, if it is 0.
fn until(timeout: &[u8], now_ms: u64) -> Result<Option<u64>, Refusal> {
    let seconds = Extended::read(timeout);
    let milliseconds = match seconds.ok_or(refusal("ERR timeout is not a float or out of range"))? {
        Reading::Finite(seconds) => seconds.thousandfold(),
        Reading::Infinite => None,
    };
    // What is more than Redis can count is negative to it.
    let milliseconds = milliseconds.and_then(|milliseconds| u64::try_from(milliseconds).ok());
    match milliseconds.ok_or(refusal("ERR timeout is negative"))? {
        0 => Ok(None),
        milliseconds => {
            let until_ms = now_ms.checked_add(milliseconds).filter(|ms| *ms <= i64::MAX as u64);
            until_ms.map(Some).ok_or(refusal("ERR timeout is out of range"))
        }
    }
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

/// Refuses to draw so many of `len` members, which take these bytes together, if the reply would be too long: a member
/// of a megabyte that is drawn a million times is a terabyte.
fn check_drawn(count: usize, len: usize, bytes: usize) -> Result<(), Refusal> {
    let drawn_bytes = (bytes / len.max(1)).saturating_mul(count);
    if drawn_bytes > DRAWN_BYTES_MAX { Err(OUT_OF_RANGE) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis 7.0 waits and refuses.
    #[test]
    fn a_timeout_is_rounded_up_to_a_millisecond() {
        const NOW_MS: u64 = 1_700_000_000_000;
        for (timeout, waits_ms) in [
            ("0", None),
            ("-0", None),
            ("-0.0001", None),
            ("-1e-400", None),
            ("0.001", Some(1)),
            ("0.0011", Some(2)),
            ("0x1p-3", Some(125)),
            ("1e-400", Some(1)),
            ("1e-4000", Some(1)),
            ("9007199254740.9925", Some(9_007_199_254_740_993)),
            ("9200000000000000", Some(9_200_000_000_000_000_000)),
        ] {
            let until_ms = until(timeout.as_bytes(), NOW_MS).expect(timeout);
            assert_eq!(until_ms.map(|ms| ms - NOW_MS), waits_ms, "{timeout}");
        }
        for (timeout, why) in [
            ("1e-5000", "ERR timeout is not a float or out of range"),
            ("1e5000", "ERR timeout is not a float or out of range"),
            ("nan", "ERR timeout is not a float or out of range"),
            ("9223372036854776", "ERR timeout is negative"),
            ("1e4931", "ERR timeout is negative"),
            ("inf", "ERR timeout is negative"),
            ("-inf", "ERR timeout is negative"),
            ("-0.002", "ERR timeout is negative"),
            ("9223372036854775", "ERR timeout is out of range"),
        ] {
            let refusal = until(timeout.as_bytes(), NOW_MS).expect_err(timeout);
            assert_eq!(refusal.0, why, "{timeout}");
        }
    }
}
