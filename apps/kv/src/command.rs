//! What a command is: one row of a table.
//!
//! The table is the one list of what is supported: `COMMAND` prints it, rights are checked by it, keys are
//! found by it, and what it does not have is answered with Redis's own error. Commands on data see a
//! [`Call`] and nothing of clients; what they changed stands in its [`Effects`], by which the server logs,
//! wakes clients that wait for a key, and spoils transactions that watch it.

use crate::data::store::Store;
use crate::effects::Effects;
use laneway_resp::Reply;

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name in lower case; a subcommand's stands behind a bar: `config|get`.
    pub name: &'static str,
    /// How many arguments it takes, its name among them; at least so many if negative (as in Redis).
    pub arity: i32,
    /// What kind of command it is.
    pub flags: Flags,
    /// Where its keys stand.
    pub keys: Keys,
    /// Categories of rights without the `@`: `&["read", "string", "fast"]` (as in Redis 7).
    pub categories: &'static [&'static str],
    /// The part of the store that does it.
    pub run: Run,
}

impl Command {
    /// True if it takes so many arguments, its name among them.
    pub(crate) fn takes(&self, args: usize) -> bool {
        let (count, arity) = (args as i64, i64::from(self.arity));
        if arity > 0 { count == arity } else { count >= -arity }
    }
}

/// The part of the store that does a command.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// The data alone.
    Data(fn(&mut Call<'_>) -> Outcome),
    /// The server: it concerns clients, configuration or several commands. Found there by its name.
    Server,
}

/// What kind of command it is, as `COMMAND INFO` names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// It may change data.
    pub const WRITE: Flags = Flags(1);
    /// It reads data and changes none.
    pub const READONLY: Flags = Flags(1 << 1);
    /// It may need memory: refused beyond `maxmemory` when nothing can be evicted.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// Its time does not grow with the data.
    pub const FAST: Flags = Flags(1 << 3);
    /// It may wait for data.
    pub const BLOCKING: Flags = Flags(1 << 4);
    /// For operators.
    pub const ADMIN: Flags = Flags(1 << 5);
    /// It concerns messages: allowed to a subscribed client.
    pub const PUBSUB: Flags = Flags(1 << 6);
    /// Allowed before AUTH.
    pub const NO_AUTH: Flags = Flags(1 << 7);
    /// Refused inside MULTI.
    pub const NO_MULTI: Flags = Flags(1 << 8);
    /// Allowed while data are being loaded.
    pub const LOADING: Flags = Flags(1 << 9);
    /// Allowed to replicas with old data.
    pub const STALE: Flags = Flags(1 << 10);
    /// Not for scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 11);
    /// Its keys cannot be derived from the first, last and step alone.
    pub const MOVABLEKEYS: Flags = Flags(1 << 12);

    /// Both.
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// True if it has all of `other`.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Where the keys of a command stand: every `step`th argument from `first` to `last`, which counts from the
/// end if negative. None if `first` is 0. `numkeys` at that argument says how many follow it (ZUNION, LMPOP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The first key's place; 0 if it has none.
    pub first: u32,
    /// The last key's.
    pub last: i32,
    /// Places from key to key.
    pub step: u32,
    /// Where the number of keys stands that follow it; 0 if keys are not counted.
    pub numkeys: u32,
}

/// The keys among a command's arguments, by their places. What a client counts wrong names no key.
pub(crate) fn key_places(keys: Keys, args: usize, counted: Option<usize>) -> Vec<usize> {
    let mut places = Vec::new();
    if keys.first > 0 && keys.step > 0 {
        let last = if keys.last < 0 {
            args.saturating_sub(keys.last.unsigned_abs() as usize)
        } else {
            keys.last as usize
        };
        places.extend((keys.first as usize..=last.min(args - 1)).step_by(keys.step as usize));
    }
    if keys.numkeys > 0 {
        let first = keys.numkeys as usize + 1;
        let end = counted.and_then(|count| first.checked_add(count)).filter(|&end| end <= args);
        places.extend(first..end.unwrap_or(first));
    }
    places
}

/// The same of the arguments themselves.
pub(crate) fn keys_of<'a>(keys: Keys, args: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let counted = args
        .get(keys.numkeys as usize)
        .filter(|_| keys.numkeys > 0)
        .and_then(|text| laneway_resp::integer(text))
        .and_then(|count| usize::try_from(count).ok());
    key_places(keys, args.len(), counted).into_iter().map(|place| args[place]).collect()
}

/// One command that is being done, on the data of one shard.
#[derive(Debug)]
pub struct Call<'a> {
    /// What the client sent, the name first; as many as the table's arity allows.
    pub args: &'a [&'a [u8]],
    /// All databases of the shard.
    pub store: &'a mut Store,
    /// Which of them the client has selected.
    pub database: usize,
    /// Where the reply goes.
    pub reply: &'a mut Reply,
    /// Milliseconds since 1970, read once per turn.
    pub now_ms: u64,
    /// The key that a client has waited for and that was touched: the command takes from that key alone, and a value of
    /// another kind there is none. Nothing the first time.
    pub ready: Option<&'a [u8]>,
    /// What it changes.
    pub effects: &'a mut Effects,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply is written (an error's, too).
    Done,
    /// There is nothing yet, and the reply is empty: the server calls it again, with the same arguments, when one of
    /// its keys has been touched ([`Call::ready`]), and answers with nothing when the time is up. Inside MULTI it
    /// answers so at once.
    Waits {
        /// Until when, milliseconds since 1970; for ever if there is none.
        until_ms: Option<u64>,
        /// Inside MULTI nothing is an array (BLPOP) and not a value (BLMOVE). When the time is up it is an array for
        /// all, as in Redis 7.0.
        null_array: bool,
    },
}
