//! ACL: the commands on users.

use super::client::{Client, Ending, Key};
use super::connection::line;
use super::denied::Attempt;
use super::server::{Server, wrong_arguments};
use super::table::Found;
use super::users::{CATEGORIES, User, hex};
use crate::command::Flags;
use laneway_resp::integer;
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::BTreeSet;

impl Server {
    /// Notes for ACL LOG that a client's user was not allowed something: its kind, and itself.
    pub(crate) fn note_denied(
        &mut self,
        client: &Client,
        what: (&'static str, &[u8]),
        is_in_multi: bool,
    ) {
        let user = self.users.users.get(client.user).map(|user| user.name.clone());
        self.note_attempt(client, what, &user.unwrap_or_default(), is_in_multi);
    }

    /// The same of a user that a client names.
    pub(crate) fn note_attempt(
        &mut self,
        client: &Client,
        (reason, object): (&'static str, &[u8]),
        user: &[u8],
        is_in_multi: bool,
    ) {
        let (count, at_us, client) = (1, self.time.now_us, line(self, client));
        let (object, user) = (object.into(), user.into());
        let attempt = Attempt { count, reason, is_in_multi, object, user, at_us, client };
        self.attempts.add(attempt);
    }

    /// Cuts off the clients of a user that are meant, by the word of a client, which may be one of them.
    fn cut_off_of(
        &mut self,
        place: usize,
        by: &mut Client,
        is_meant: impl Fn(&User, &Client) -> bool,
    ) {
        let user = self.users.of(place);
        let is_meant = |one: &Client| one.user == place && is_meant(user, one);
        let meant = self.clients.iter().filter(|one| is_meant(one)).map(|one| one.key);
        let meant: Vec<Key> = meant.collect();
        if !by.is_guest() && is_meant(by) {
            by.ending = Ending::Close;
        }
        meant.into_iter().for_each(|key| self.cut_off(key, by));
    }
}

/// True if a client listens to what its user may not listen to.
fn listens_beyond(user: &User, client: &Client) -> bool {
    let mut channels = client.channels.iter().chain(&client.shard_channels);
    channels.any(|channel| !user.may_reach(channel, false))
        || client.patterns.iter().any(|pattern| !user.may_reach(pattern, true))
}

pub(crate) fn setuser(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let name = args[2];
    if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return client.out.error("ERR Usernames can't contain spaces or null characters");
    }
    let known = server.users.index_of(name);
    if known.is_none() && server.users.is_full() {
        return client.out.error("ERR too many users, delete one with ACL DELUSER first");
    }
    let mut user = known.map_or_else(
        || User::new(name, server.table.rows().len()),
        |place| server.users.of(place).clone(),
    );
    for rule in &args[3..] {
        // Half of what was asked is not done: the user is as it was.
        if let Err(why) = user.apply(&server.table, rule) {
            let text = [b"ERR Error in ACL SETUSER modifier '", *rule, b"': ", why.as_bytes()];
            return client.out.error_bytes(&text.concat());
        }
    }
    let loses = known.is_some_and(|place| !user.reaches_all_of(server.users.of(place)));
    let place = server.users.add(user);
    if loses {
        // Rights to channels are checked when a client begins to listen, and not for each message.
        server.cut_off_of(place, client, listens_beyond);
    }
    client.out.ok();
}

pub(crate) fn getuser(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let Some(place) = server.users.index_of(args[2]) else { return client.out.null() };
    let user = server.users.of(place);
    let out = &mut client.out;
    let flags = user.flags();
    out.map(6);
    out.bulk(b"flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"passwords");
    out.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| out.bulk(hex(hash).as_bytes()));
    out.bulk(b"commands");
    out.bulk(user.rules.join(" ").as_bytes());
    out.bulk(b"keys");
    out.bulk(user.keys_text().as_bytes());
    out.bulk(b"channels");
    out.bulk(user.channels_text().as_bytes());
    out.bulk(b"selectors");
    out.array(0);
}

pub(crate) fn deluser(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    if args[2..].contains(&&b"default"[..]) {
        return client.out.error("ERR The 'default' user cannot be removed");
    }
    let mut deleted = 0;
    for name in &args[2..] {
        let Some(place) = server.users.index_of(name) else { continue };
        server.cut_off_of(place, client, |_, _| true);
        let rows = server.table.rows().len();
        // A client that is about to be cut off may do nothing any more.
        server.users.users[place] = User { is_deleted: true, ..User::new(name, rows) };
        deleted += 1;
    }
    client.out.integer(deleted);
}

pub(crate) fn list(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    let users = server.users.sorted();
    client.out.array(users.len());
    for user in users {
        client.out.bulk(format!("user {} {}", user.name(), user.text()).as_bytes());
    }
}

pub(crate) fn users(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    let users = server.users.sorted();
    client.out.array(users.len());
    users.iter().for_each(|user| client.out.bulk(&user.name));
}

pub(crate) fn whoami(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.bulk(&server.users.of(client.user).name);
}

pub(crate) fn cat(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let Some(category) = args.get(2) else {
        client.out.array(CATEGORIES.len());
        return CATEGORIES.iter().for_each(|name| client.out.bulk(name.as_bytes()));
    };
    let category = category.to_ascii_lowercase();
    let Some(category) = CATEGORIES.iter().find(|name| name.as_bytes() == category) else {
        let text = [b"ERR Unknown category '", args[2], b"'"].concat();
        return client.out.error_bytes(&text);
    };
    let rows = server.table.rows().iter();
    let names: BTreeSet<&str> = rows
        .filter(|row| row.command.categories.contains(category))
        .map(|row| row.command.name)
        .collect();
    client.out.array(names.len());
    names.iter().for_each(|name| client.out.bulk(name.as_bytes()));
}

/// Bits of a password that is drawn, if no number is given, and at most.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

/// Draws a password: of the kernel's chance, for ours is for no secrets.
pub(crate) fn genpass(_: &mut Server, client: &mut Client, args: &[&[u8]]) {
    if args.len() > 3 {
        return client.out.error_bytes(&wrong_arguments(args));
    }
    let Some(bits) = args.get(2).map_or(Some(PASSWORD_BITS), |text| integer(text)) else {
        return client.out.error("ERR value is not an integer or out of range");
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return client.out.error(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             4096",
        );
    }
    let digits = (bits as usize).div_ceil(4);
    let mut drawn = vec![0; digits.div_ceil(2)];
    let mut at = 0;
    while at < drawn.len() {
        match getrandom(&mut drawn[at..], GetRandomFlags::empty()) {
            Ok(more) => at += more,
            Err(why) => {
                return client.out.error(&format!("ERR the kernel gives no random bytes: {why}"));
            }
        }
    }
    let password: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
    client.out.bulk(&password.as_bytes()[..digits]);
}

/// Says whether a user may do a command, and does not do it.
pub(crate) fn dryrun(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let Some(place) = server.users.index_of(args[2]) else {
        let text = [b"ERR User '", args[2], b"' not found"].concat();
        return client.out.error_bytes(&text);
    };
    let words = &args[3..];
    let wrong = |name: &str| format!("ERR wrong number of arguments for '{name}' command");
    let index = match server.table.find(words) {
        Found::Row(index) => index,
        Found::NoSubcommand if words.len() == 1 => {
            let name = String::from_utf8_lossy(words[0]).to_ascii_lowercase();
            return client.out.error(&wrong(&name));
        }
        Found::NoSubcommand | Found::Unknown => {
            let text = [b"ERR Command '", words[0], b"' not found"].concat();
            return client.out.error_bytes(&text);
        }
    };
    let command = server.table.command(index);
    if !command.takes(words.len()) {
        return client.out.error(&wrong(command.name));
    }
    match server.users.of(place).may(index, &command, words) {
        Err(denied) if !command.flags.has(Flags::NO_AUTH) => {
            client.out.bulk(&denied.dry_text(command.name));
        }
        _ => client.out.ok(),
    }
}

/// What users were not allowed, the newest first.
pub(crate) fn log(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let count = match args[2..] {
        [] => 10,
        [word] if word.eq_ignore_ascii_case(b"reset") => {
            server.attempts.clear();
            return client.out.ok();
        }
        [count] => match integer(count) {
            Some(count) => usize::try_from(count).unwrap_or(0),
            None => return client.out.error("ERR value is not an integer or out of range"),
        },
        _ => return client.out.error_bytes(&wrong_arguments(args)),
    };
    let attempts = server.attempts.iter();
    let out = &mut client.out;
    out.array(attempts.len().min(count));
    for attempt in attempts.take(count) {
        out.map(7);
        out.bulk(b"count");
        out.integer(attempt.count as i64);
        let context = if attempt.is_in_multi { "multi" } else { "toplevel" };
        for (name, value) in [
            ("reason", attempt.reason.as_bytes()),
            ("context", context.as_bytes()),
            ("object", &attempt.object),
            ("username", &attempt.user),
        ] {
            out.bulk(name.as_bytes());
            out.bulk(value);
        }
        out.bulk(b"age-seconds");
        let age_ms = server.time.now_us.saturating_sub(attempt.at_us) / 1000;
        out.double(age_ms as f64 / 1000.0);
        out.bulk(b"client-info");
        out.bulk(attempt.client.as_bytes());
    }
}
