//! What a command does with each of its keys: rights on keys are checked by it.
//!
//! As the key specifications of Redis 7.0 have it, with one difference: a command that may tell what it found needs the
//! right to read, where Redis looks at what it is for. A key that a command puts a value of other keys in is written
//! alone.

use crate::command::{Command, Flags};

/// What a command does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) reads: bool,
    pub(super) writes: bool,
}

const READS: Access = Access { reads: true, writes: false };
const WRITES: Access = Access { reads: false, writes: true };
const BOTH: Access = Access { reads: true, writes: true };

/// Commands whose first key is for something else than the others: what is done with it, and with the others.
const APART: &[(&str, Access, Access)] = &[
    ("bitop", WRITES, READS),
    ("blmove", BOTH, WRITES),
    ("brpoplpush", BOTH, WRITES),
    ("copy", READS, WRITES),
    ("lmove", BOTH, WRITES),
    ("rename", BOTH, WRITES),
    ("renamenx", BOTH, WRITES),
    ("rpoplpush", BOTH, WRITES),
    ("sdiffstore", WRITES, READS),
    ("sinterstore", WRITES, READS),
    ("smove", BOTH, WRITES),
    ("sunionstore", WRITES, READS),
    ("zdiffstore", WRITES, READS),
    ("zinterstore", WRITES, READS),
    ("zrangestore", WRITES, READS),
    ("zunionstore", WRITES, READS),
];

/// Commands that tell nothing of what was there.
const WRITES_ALONE: &[&str] = &[
    "append",
    "del",
    "expire",
    "expireat",
    "hmset",
    "lpush",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "psetex",
    "rpush",
    "sadd",
    "setex",
    "setnx",
    "unlink",
];

/// What a command does with its first key, and with the others.
pub(super) fn access(command: &Command, args: &[&[u8]]) -> (Access, Access) {
    if !command.flags.has(Flags::WRITE) {
        return (READS, READS);
    }
    if let Some((_, first, others)) = APART.iter().find(|(name, ..)| *name == command.name) {
        return (*first, *others);
    }
    let gets = |word: &&[u8]| word.eq_ignore_ascii_case(b"get");
    let of_all = match command.name {
        "set" if !args.iter().skip(3).any(gets) => WRITES,
        "bitfield" if only_gets(args) => READS,
        name if WRITES_ALONE.contains(&name) => WRITES,
        _ => BOTH,
    };
    (of_all, of_all)
}

/// True if a BITFIELD changes nothing. One that is not well formed may.
fn only_gets(args: &[&[u8]]) -> bool {
    let mut rest = args.get(2..).unwrap_or_default();
    loop {
        rest = match *rest {
            [] => return true,
            [step, _, _, ref more @ ..] if step.eq_ignore_ascii_case(b"get") => more,
            [step, _, ref more @ ..] if step.eq_ignore_ascii_case(b"overflow") => more,
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Keys;
    use crate::data::COMMANDS;

    #[test]
    fn every_name_is_a_command_that_writes_and_those_apart_have_several_keys() {
        let of = |name: &str| -> Command {
            let mut all = COMMANDS.iter().copied().flatten();
            *all.find(|command| command.name == name).unwrap_or_else(|| panic!("no `{name}`"))
        };
        for (name, ..) in APART {
            let Keys { first, last, numkeys, .. } = of(name).keys;
            assert!(first > 0 && (i64::from(last) != i64::from(first) || numkeys > 0), "{name}");
        }
        let names = APART.iter().map(|(name, ..)| name).chain(WRITES_ALONE);
        for name in names {
            assert!(of(name).flags.has(Flags::WRITE), "{name}");
        }
    }
}
