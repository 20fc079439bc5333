//! Unions, intersections and differences of sorted sets; sets take part with a score of 1.

use super::super::directory::{Directory, Keyed};
use super::super::entry::Value;
use super::super::keyspace::*;
use super::super::numbers;
use super::super::set::Set;
use super::super::sorted::{Items, Sorted};
use super::super::tree::order;
use super::sets::intersection_limit;
use super::sorted_sets::{begin_scores, reply_scored};
use super::stored;
use crate::command::{Command, Flags};
use crate::event::{Event, sorted};
use laneway_resp::Reply;

/// The rows of the table.
pub(crate) static COMMANDS: &[Command] = &[
    row(
        "zunion",
        -3,
        READ.and(Flags::MOVABLEKEYS),
        counted_at(1),
        &["read", "sortedset", "slow"],
        runs!(zunion),
    ),
    row(
        "zinter",
        -3,
        READ.and(Flags::MOVABLEKEYS),
        counted_at(1),
        &["read", "sortedset", "slow"],
        runs!(zinter),
    ),
    row(
        "zdiff",
        -3,
        READ.and(Flags::MOVABLEKEYS),
        counted_at(1),
        &["read", "sortedset", "slow"],
        runs!(zdiff),
    ),
    row(
        "zunionstore",
        -4,
        GROW.and(Flags::MOVABLEKEYS),
        STORE_COUNTED,
        &["write", "sortedset", "slow"],
        runs!(zunionstore),
    ),
    row(
        "zinterstore",
        -4,
        GROW.and(Flags::MOVABLEKEYS),
        STORE_COUNTED,
        &["write", "sortedset", "slow"],
        runs!(zinterstore),
    ),
    row(
        "zdiffstore",
        -4,
        GROW.and(Flags::MOVABLEKEYS),
        STORE_COUNTED,
        &["write", "sortedset", "slow"],
        runs!(zdiffstore),
    ),
    row(
        "zintercard",
        -3,
        READ.and(Flags::MOVABLEKEYS),
        counted_at(1),
        &["read", "sortedset", "slow"],
        runs!(zintercard),
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

impl Operation {
    fn event(self) -> Event {
        sorted(match self {
            Operation::Union => "zunionstore",
            Operation::Intersection => "zinterstore",
            Operation::Difference => "zdiffstore",
        })
    }
}

/// How the scores of one member become one.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            // Opposite infinities make nothing.
            Aggregate::Sum => or_zero(one + other),
            // As in Redis the first of two zeros stays, whatever its sign, and so does one beside no number.
            Aggregate::Min if other < one => other,
            Aggregate::Max if other > one => other,
            Aggregate::Min | Aggregate::Max => one,
        }
    }
}

fn or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What takes part.
#[derive(Clone, Copy)]
enum Source<'a> {
    Sorted(&'a Sorted),
    Set(&'a Set),
    Nothing,
}

impl Source<'_> {
    fn len(self) -> usize {
        match self {
            Source::Sorted(sorted) => sorted.len(),
            Source::Set(set) => set.len(),
            Source::Nothing => 0,
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Sorted(sorted) => sorted.score(member),
            Source::Set(set) => set.contains(member).then_some(1.0),
            Source::Nothing => None,
        }
    }

    fn each(self, mut show: impl FnMut(&[u8], f64)) {
        match self {
            Source::Sorted(sorted) => sorted.visit(0..sorted.len(), false, show),
            Source::Set(set) => set.each(|member| {
                show(member, 1.0);
                true
            }),
            Source::Nothing => {}
        }
    }
}

/// A member of the result while it is made.
struct Found {
    member: Box<[u8]>,
    score: f64,
}

impl Keyed for Found {
    fn key(&self) -> &[u8] {
        &self.member
    }
}

/// Refuses keys that hold neither a set nor a sorted set.
fn check(keys: &mut Keyspace<'_>, names: &[&[u8]]) -> Result<(), Refusal> {
    for name in names {
        if let Some(entry) = keys.find(name)
            && !matches!(entry.value(), Some(Value::Set(_) | Value::Sorted(_)))
        {
            return Err(WRONG_TYPE);
        }
    }
    Ok(())
}

fn sources<'k>(keys: &'k Keyspace<'_>, names: &[&[u8]]) -> Vec<Source<'k>> {
    let source = |name: &&[u8]| match (keys.held(name), keys.held(name)) {
        (Some(sorted), _) => Source::Sorted(sorted),
        (None, Some(set)) => Source::Set(set),
        (None, None) => Source::Nothing,
    };
    names.iter().map(source).collect()
}

/// The keys that `args` begin with, their number first, and the arguments behind them.
fn source_keys<'a, 'b>(
    command: &[u8],
    args: &'b [&'a [u8]],
) -> Result<KeysThenRest<'a, 'b>, Refusal> {
    let count = usize::try_from(integer(args[0])?).unwrap_or(0);
    if count == 0 {
        let name = String::from_utf8_lossy(command).to_ascii_lowercase();
        let words = format!("ERR at least 1 input key is needed for '{name}' command");
        return Err(Refusal(words.into()));
    }
    args[1..].split_at_checked(count).ok_or(SYNTAX)
}

/// Does an operation on the keys that `args` begin with, their number first. The result in any order, and whether
/// scores are to be shown.
fn operate(
    keys: &mut Keyspace<'_>,
    command: &[u8],
    args: &[&[u8]],
    operation: Operation,
    stores: bool,
) -> Result<(Items, bool), Refusal> {
    let (names, options) = source_keys(command, args)?;
    let count = names.len();
    check(keys, names)?;
    let (mut weights, mut aggregate, mut with_scores) = (vec![1.0; count], Aggregate::Sum, false);
    let mut rest = options;
    while let [option, behind @ ..] = rest {
        let weighs = operation != Operation::Difference;
        match () {
            () if weighs && is(option, "weights") && behind.len() >= count => {
                for (weight, arg) in weights.iter_mut().zip(behind) {
                    let not_float = || refusal("ERR weight value is not a float");
                    *weight = numbers::double(arg).ok_or_else(not_float)?;
                }
                rest = &behind[count..];
            }
            () if weighs && is(option, "aggregate") && !behind.is_empty() => {
                aggregate = match () {
                    () if is(behind[0], "sum") => Aggregate::Sum,
                    () if is(behind[0], "min") => Aggregate::Min,
                    () if is(behind[0], "max") => Aggregate::Max,
                    () => return Err(SYNTAX),
                };
                rest = &behind[1..];
            }
            () if !stores && is(option, "withscores") => {
                with_scores = true;
                rest = behind;
            }
            () => return Err(SYNTAX),
        }
    }
    let mut sources: Vec<(Source<'_>, f64)> =
        sources(keys, names).into_iter().zip(weights).collect();
    let mut result = Items::new();
    match operation {
        Operation::Difference => sources[0].0.each(|member, score| {
            if !sources[1..].iter().any(|(source, _)| source.score(member).is_some()) {
                result.push((member.into(), score));
            }
        }),
        Operation::Intersection => {
            // Redis adds from the smallest up, and a sum of floating-point numbers depends on the order.
            sources.sort_by_key(|(source, _)| source.len());
            let (first, weight) = sources[0];
            first.each(|member, score| {
                let weighed = or_zero(score * weight);
                let score = sources[1..].iter().try_fold(weighed, |sum, (source, weight)| {
                    // What is no number spoils the sum, which is 0 then.
                    Some(aggregate.of(sum, source.score(member)? * weight))
                });
                if let Some(score) = score {
                    result.push((member.into(), score));
                }
            });
        }
        Operation::Union => {
            sources.sort_by_key(|(source, _)| source.len());
            let mut found: Directory<Found> = Directory::new(keys.hasher().clone());
            for (source, weight) in sources {
                source.each(|member, score| {
                    let (hash, weighed) = (found.hash(member), or_zero(score * weight));
                    match found.find_mut(hash, member) {
                        Some(there) => there.score = aggregate.of(there.score, weighed),
                        None => found.insert(hash, Found { member: member.into(), score: weighed }),
                    }
                });
            }
            result.extend(found.iter().map(|found| (found.member.clone(), found.score)));
        }
    }
    Ok((result, with_scores))
}

fn show(
    keys: &mut Keyspace<'_>,
    args: &[&[u8]],
    operation: Operation,
    reply: &mut Reply,
) -> Answer {
    let (mut result, with_scores) = operate(keys, args[0], &args[1..], operation, false)?;
    result
        .sort_unstable_by(|(one, score), (other, against)| order((*score, one), (*against, other)));
    begin_scores(reply, result.len(), with_scores);
    for (member, score) in &result {
        reply_scored(reply, member, with_scores.then_some(*score));
    }
    DONE
}

fn store(
    keys: &mut Keyspace<'_>,
    args: &[&[u8]],
    operation: Operation,
    reply: &mut Reply,
) -> Answer {
    let (result, _) = operate(keys, args[0], &args[2..], operation, true)?;
    let len = result.len();
    let result = Sorted::of(keys.hasher(), &result);
    if keys.store_collection(args[1], result) {
        keys.changed(args[1], stored(operation.event(), len), 1);
    }
    reply.integer(len as i64);
    DONE
}

fn zunion(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Operation::Union, reply)
}

fn zinter(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Operation::Intersection, reply)
}

fn zdiff(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    show(keys, args, Operation::Difference, reply)
}

fn zunionstore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    store(keys, args, Operation::Union, reply)
}

fn zinterstore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    store(keys, args, Operation::Intersection, reply)
}

fn zdiffstore(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    store(keys, args, Operation::Difference, reply)
}

fn zintercard(keys: &mut Keyspace<'_>, args: &[&[u8]], reply: &mut Reply) -> Answer {
    let (names, options) = source_keys(args[0], &args[1..])?;
    check(keys, names)?;
    let limit = intersection_limit(options)?;
    let mut sources = sources(keys, names);
    sources.sort_by_key(|source| source.len());
    let mut found: usize = 0;
    sources[0].each(|member, _| {
        let is_full = limit > 0 && found == limit;
        if !is_full && sources[1..].iter().all(|source| source.score(member).is_some()) {
            found += 1;
        }
    });
    reply.integer(found as i64);
    DONE
}
