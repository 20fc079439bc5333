//! Users: which of them may do which commands on which keys and channels.
//!
//! Passwords are kept as their SHA-256, as Redis shows them, and compared in constant time: neither the time nor the
//! reply tells whether the user or the password was wrong. The default user is at place 0 and is never deleted.

use super::access::{Access, access};
use super::denied::Denied;
use super::table::{Table, keys_of};
use crate::command::Command;
use crate::data::glob_matches;
use sha2::{Digest, Sha256};

/// Users at a time, and rules of one.
const USERS_MAX: usize = 10_000;
const RULES_MAX: usize = 10_000;

/// What a pattern of keys allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRule {
    pattern: Box<[u8]>,
    reads: bool,
    writes: bool,
}

/// A user.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(super) name: Box<[u8]>,
    pub(super) is_on: bool,
    pub(super) needs_no_password: bool,
    /// Whether RESTORE would look at values closely. There is no RESTORE: it is shown as it was set.
    pub(super) sanitizes: Option<bool>,
    pub(super) passwords: Vec<[u8; 32]>,
    /// A bit per row of the table of commands.
    pub(super) allowed: Vec<u64>,
    /// The rules that led to it: `-@all`, `+get`.
    pub(super) rules: Vec<String>,
    pub(super) keys: Vec<KeyRule>,
    pub(super) has_all_keys: bool,
    pub(super) channels: Vec<Box<[u8]>>,
    pub(super) has_all_channels: bool,
    pub(super) has_all_commands: bool,
    pub(super) is_deleted: bool,
}

impl User {
    pub(super) fn new(name: &[u8], rows: usize) -> User {
        User {
            name: name.into(),
            is_on: false,
            needs_no_password: false,
            sanitizes: None,
            passwords: Vec::new(),
            allowed: vec![0; rows.div_ceil(64)],
            rules: vec!["-@all".to_owned()],
            keys: Vec::new(),
            has_all_keys: false,
            channels: Vec::new(),
            has_all_channels: false,
            has_all_commands: false,
            is_deleted: false,
        }
    }

    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Whether it may do a command with these words.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may(&self, row: usize, command: &Command, args: &[&[u8]]) -> Result<(), Denied> {
        if self.has_all_commands && self.has_all_keys && self.has_all_channels {
            return Ok(());
        }
        if self.allowed[row / 64] & 1 << (row % 64) == 0 {
            return Err(Denied::Command);
        }
        if !self.has_all_keys
            && let Some(key) = self.denied_key(command, args)
        {
            return Err(Denied::Key(key.into()));
        }
        let (channels, is_pattern): (&[&[u8]], bool) = match command.name {
            "publish" | "spublish" => (&args[1..2], false),
            "subscribe" | "ssubscribe" => (&args[1..], false),
            "psubscribe" => (&args[1..], true),
            _ => (&[], false),
        };
        match channels.iter().find(|channel| !self.may_reach(channel, is_pattern)) {
            Some(channel) => Err(Denied::Channel((*channel).into())),
            None => Ok(()),
        }
    }

    /// Whether it may publish to a channel and listen to it, or listen to a pattern.
    pub(super) fn may_reach(&self, channel: &[u8], is_pattern: bool) -> bool {
        // A pattern is allowed by itself alone: what it matches cannot be compared.
        let fits = |allowed: &[u8]| match is_pattern {
            true => *allowed == *channel,
            false => glob_matches(allowed, channel),
        };
        self.has_all_channels || self.channels.iter().any(|allowed| fits(allowed))
    }

    /// True if it may reach no less than `other`: it has each of its patterns.
    pub(super) fn reaches_all_of(&self, other: &User) -> bool {
        let has = |pattern| self.channels.contains(pattern);
        self.has_all_channels || !other.has_all_channels && other.channels.iter().all(has)
    }

    /// The first key of a command that it may not use so.
    fn denied_key<'a>(&self, command: &Command, args: &[&'a [u8]]) -> Option<&'a [u8]> {
        let (first, others) = access(command, args);
        let mut keys = keys_of(command.keys, args).into_iter().enumerate();
        let denied =
            keys.find(|(at, key)| !self.may_use(key, if *at == 0 { first } else { others }));
        denied.map(|(_, key)| key)
    }

    /// True if one rule gives all that is needed: those of several patterns are not added up.
    fn may_use(&self, key: &[u8], Access { reads, writes }: Access) -> bool {
        self.keys.iter().any(|rule| {
            rule.reads >= reads && rule.writes >= writes && glob_matches(&rule.pattern, key)
        })
    }

    /// The rules that make it, as ACL LIST shows them.
    pub(super) fn text(&self) -> String {
        let mut words: Vec<String> = self.flags().into_iter().map(str::to_owned).collect();
        words.extend(self.passwords.iter().map(|hash| format!("#{}", hex(hash))));
        words.extend(Some(self.keys_text()).filter(|text| !text.is_empty()));
        words.extend((!self.has_all_channels).then(|| "resetchannels".to_owned()));
        words.extend(Some(self.channels_text()).filter(|text| !text.is_empty()));
        words.push(self.rules.join(" "));
        words.join(" ")
    }

    /// Its flags, as ACL GETUSER shows them.
    pub(super) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.needs_no_password.then_some("nopass"));
        flags.extend(self.sanitizes.map(|sanitizes| match sanitizes {
            true => "sanitize-payload",
            false => "skip-sanitize-payload",
        }));
        flags
    }

    pub(super) fn keys_text(&self) -> String {
        if self.has_all_keys {
            return "~*".to_owned();
        }
        let texts = self.keys.iter().map(|rule| {
            let pattern = String::from_utf8_lossy(&rule.pattern);
            match (rule.reads, rule.writes) {
                (true, true) => format!("~{pattern}"),
                (true, false) => format!("%R~{pattern}"),
                _ => format!("%W~{pattern}"),
            }
        });
        texts.collect::<Vec<String>>().join(" ")
    }

    pub(super) fn channels_text(&self) -> String {
        if self.has_all_channels {
            return "&*".to_owned();
        }
        let channels = self.channels.iter().map(|c| format!("&{}", String::from_utf8_lossy(c)));
        channels.collect::<Vec<String>>().join(" ")
    }

    pub(crate) fn allow(
        &mut self,
        table: &Table,
        is_allowed: bool,
        means: impl Fn(&Command) -> bool,
    ) -> bool {
        let mut is_any = false;
        for (row, entry) in table.rows().iter().enumerate().filter(|(_, r)| means(&r.command)) {
            is_any = true;
            let bit = 1 << (row % 64);
            if is_allowed {
                self.allowed[row / 64] |= bit;
            } else {
                self.allowed[row / 64] &= !bit;
            }
            let _ = entry;
        }
        is_any
    }

    /// One rule of ACL SETUSER.
    pub(super) fn apply(&mut self, table: &Table, rule: &[u8]) -> Result<(), &'static str> {
        const SYNTAX: &str = "Syntax error";
        match rule.to_ascii_lowercase().as_slice() {
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            b"allkeys" | b"~*" => self.has_all_keys = true,
            b"resetkeys" => {
                self.has_all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => self.has_all_channels = true,
            b"resetchannels" => {
                self.has_all_channels = false;
                self.channels.clear();
            }
            b"allcommands" | b"+@all" => self.commands(table, true),
            b"nocommands" | b"-@all" => self.commands(table, false),
            b"sanitize-payload" => self.sanitizes = Some(true),
            b"skip-sanitize-payload" => self.sanitizes = Some(false),
            b"reset" => {
                let sanitizes = Some(true);
                *self = User { sanitizes, ..User::new(&self.name, table.rows().len()) };
            }
            _ => match rule {
                [b'>', password @ ..] => self.add_password(sha256(password)),
                [b'<', password @ ..] => self.remove_password(sha256(password))?,
                [b'#', hash @ ..] => self.add_password(hash_of(hash)?),
                [b'!', hash @ ..] => self.remove_password(hash_of(hash)?)?,
                [b'~', pattern @ ..] => self.add_keys(pattern, true, true)?,
                [b'%', rest @ ..] => {
                    let tilde = rest.iter().position(|&byte| byte == b'~').ok_or(SYNTAX)?;
                    let kinds = rest[..tilde].to_ascii_uppercase();
                    let (reads, writes) = (kinds.contains(&b'R'), kinds.contains(&b'W'));
                    let is_known = kinds.iter().all(|kind| matches!(kind, b'R' | b'W'));
                    if !is_known || kinds.is_empty() {
                        return Err(SYNTAX);
                    }
                    self.add_keys(&rest[tilde + 1..], reads, writes)?;
                }
                [b'&', pattern @ ..] => {
                    if self.has_all_channels {
                        return Err(
                            "Adding a pattern after the * pattern (or the 'allchannels' flag) \
                                    is not valid and does not have any effect. Try 'resetchannels' \
                                    to start with an empty list of channels",
                        );
                    }
                    if self.channels.len() >= RULES_MAX {
                        return Err("too many channels, begin anew with 'resetchannels'");
                    }
                    if !self.channels.iter().any(|known| known[..] == *pattern) {
                        self.channels.push(pattern.into());
                    }
                }
                [sign @ (b'+' | b'-'), name @ ..] => self.command(table, *sign == b'+', name)?,
                _ => return Err(SYNTAX),
            },
        }
        Ok(())
    }

    fn commands(&mut self, table: &Table, is_allowed: bool) {
        self.allow(table, is_allowed, |_| true);
        self.has_all_commands = is_allowed;
        self.rules = vec![if is_allowed { "+@all" } else { "-@all" }.to_owned()];
    }

    pub(crate) fn add_keys(
        &mut self,
        pattern: &[u8],
        reads: bool,
        writes: bool,
    ) -> Result<(), &'static str> {
        if self.has_all_keys {
            return Err(
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                        does not have any effect. Try 'resetkeys' to start with an empty list of \
                        patterns",
            );
        }
        match self.keys.iter_mut().find(|rule| *rule.pattern == *pattern) {
            Some(rule) => {
                rule.reads |= reads;
                rule.writes |= writes;
            }
            None => self.keys.push(KeyRule { pattern: pattern.into(), reads, writes }),
        }
        Ok(())
    }

    /// `+get`, `-@write`, `+config|get`.
    fn command(
        &mut self,
        table: &Table,
        is_allowed: bool,
        name: &[u8],
    ) -> Result<(), &'static str> {
        let name = name.to_ascii_lowercase();
        let name = std::str::from_utf8(&name).map_err(|_| "Syntax error")?;
        let is_any = match name.strip_prefix('@') {
            Some(category) => {
                let is_any = self.allow(table, is_allowed, |c| c.categories.contains(&category));
                is_any || CATEGORIES.contains(&category)
            }
            // A command is its subcommands as well.
            None => self.allow(table, is_allowed, |command| {
                let rest = command.name.strip_prefix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
            }),
        };
        if !is_any {
            return Err("Unknown command or category name in ACL");
        }
        self.has_all_commands = self.has_all_commands && is_allowed;
        let sign = if is_allowed { '+' } else { '-' };
        self.rules.retain(|rule| &rule[1..] != name || name == "@all");
        if self.rules.len() >= RULES_MAX {
            return Err("too many rules, begin anew with 'nocommands'");
        }
        self.rules.push(format!("{sign}{name}"));
        Ok(())
    }

    fn add_password(&mut self, hash: [u8; 32]) {
        if !self.passwords.contains(&hash) && self.passwords.len() < RULES_MAX {
            self.passwords.push(hash);
        }
        self.needs_no_password = false;
    }

    fn remove_password(&mut self, hash: [u8; 32]) -> Result<(), &'static str> {
        let before = self.passwords.len();
        self.passwords.retain(|known| *known != hash);
        if self.passwords.len() == before {
            return Err("The password you are trying to remove from the user does not exist");
        }
        Ok(())
    }
}

/// Every category of Redis: a rule may name one that no command of ours is in.
pub(super) const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// All users.
#[derive(Debug)]
pub(crate) struct Users {
    /// Places of deleted users are used again: their clients are gone.
    pub(super) users: Vec<User>,
}

impl Users {
    /// The default user alone, which may do everything; with a password, if one is given.
    pub(crate) fn new(table: &Table, password: Option<&str>) -> Users {
        let mut user = User::new(b"default", table.rows().len());
        user.is_on = true;
        user.has_all_keys = true;
        user.has_all_channels = true;
        user.commands(table, true);
        let mut users = Users { users: vec![user] };
        users.require_password(password.unwrap_or_default());
        users
    }

    /// `requirepass`: the default user's one password; none if empty.
    pub(crate) fn require_password(&mut self, password: &str) {
        let user = &mut self.users[0];
        user.passwords.clear();
        user.needs_no_password = password.is_empty();
        if !password.is_empty() {
            user.passwords.push(sha256(password.as_bytes()));
        }
    }

    pub(crate) fn of(&self, place: usize) -> &User {
        &self.users[place]
    }

    /// [`User::may`] of the user at a place, which another worker may know of sooner than this one.
    pub(crate) fn may(
        &self,
        place: usize,
        row: usize,
        command: &Command,
        args: &[&[u8]],
    ) -> Result<(), Denied> {
        self.users.get(place).ok_or(Denied::Command)?.may(row, command, args)
    }

    pub(crate) fn default_needs_no_password(&self) -> bool {
        self.users[0].is_on && self.users[0].needs_no_password
    }

    pub(crate) fn index_of(&self, name: &[u8]) -> Option<usize> {
        self.users.iter().position(|user| *user.name == *name && !user.is_deleted)
    }

    /// The user's place, if the password is right.
    pub(crate) fn log_in(&self, name: &[u8], password: &[u8]) -> Option<usize> {
        let given = sha256(password);
        let place = self.index_of(name);
        // An unknown user costs as much as one with a password.
        let unknown = [[0; 32]];
        let known = place.map_or(&unknown[..], |place| &self.users[place].passwords);
        let mut is_right = false;
        for hash in known {
            is_right |= is_same(hash, &given);
        }
        let place = place?;
        let user = &self.users[place];
        (user.is_on && (is_right || user.needs_no_password)).then_some(place)
    }

    /// True if there may be no further user.
    pub(super) fn is_full(&self) -> bool {
        self.users.iter().filter(|user| !user.is_deleted).count() >= USERS_MAX
    }

    /// Adds a user, or puts it in the place of what it was; its place.
    pub(super) fn add(&mut self, user: User) -> usize {
        // Its own place first, which its clients have: a free one in front of it would make a second user of it.
        let free = || self.users.iter().position(|place| place.is_deleted);
        let place = self.index_of(&user.name).or_else(free).unwrap_or(self.users.len());
        match self.users.get_mut(place) {
            Some(there) => *there = user,
            None => self.users.push(user),
        }
        place
    }

    pub(super) fn sorted(&self) -> Vec<&User> {
        let mut users: Vec<&User> = self.users.iter().filter(|user| !user.is_deleted).collect();
        users.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        users
    }
}

/// In a time that does not depend on where they differ.
fn is_same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differing = a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b));
    std::hint::black_box(differing) == 0
}

fn sha256(password: &[u8]) -> [u8; 32] {
    Sha256::digest(password).into()
}

pub(super) fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash_of(text: &[u8]) -> Result<[u8; 32], &'static str> {
    const WRONG: &str = "The password hash must be exactly 64 characters and contain only lowercase \
                         hexadecimal characters";
    let text = std::str::from_utf8(text).map_err(|_| WRONG)?;
    let is_hash = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hash {
        return Err(WRONG);
    }
    let mut hash = [0; 32];
    for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| WRONG)?;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::rows;

    #[test]
    fn a_deleted_user_takes_no_room() {
        let mut users = Users::new(&rows::all().0, None);
        for number in 1..USERS_MAX {
            users.users.push(User::new(number.to_string().as_bytes(), 0));
        }
        assert!(users.is_full());
        users.users[7].is_deleted = true;
        assert!(!users.is_full());
        assert_eq!(users.add(User::new(b"another", 0)), 7);
        assert!(users.is_full());
    }

    #[test]
    fn hashes_are_the_same_where_all_of_their_bytes_are() {
        let hash = sha256(b"secret");
        assert!(is_same(&hash, &sha256(b"secret")));
        for place in 0..32 {
            for bit in 0..8 {
                let mut other = hash;
                other[place] ^= 1 << bit;
                assert!(!is_same(&hash, &other), "byte {place}, bit {bit}");
            }
        }
    }
}
