//! What a client says of itself: its name, which version it speaks, which database it means. And CLIENT, by which
//! operators see all of them.

use super::client::{Client, Ending, Key, Replies};
use super::server::Server;
use crate::data::{Refusal, database_number};
use laneway_resp::{Protocol, integer};
use std::fmt::Write;

/// What we say we are: clients choose by it what they may ask.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// Bytes of a client's name and of what its library says.
const NAME_BYTES_MAX: usize = 16 << 10;

pub(crate) fn ping(_: &mut Server, client: &mut Client, args: &[&[u8]]) {
    if args.len() > 2 {
        return client.out.error("ERR wrong number of arguments for 'ping' command");
    }
    let message = args.get(1).copied();
    if client.is_subscribed() && client.out.protocol() == Protocol::Resp2 {
        client.out.array(2);
        client.out.bulk(b"pong");
        return client.out.bulk(message.unwrap_or_default());
    }
    match message {
        Some(text) => client.out.bulk(text),
        None => client.out.simple("PONG"),
    }
}

pub(crate) fn echo(_: &mut Server, client: &mut Client, args: &[&[u8]]) {
    client.out.bulk(args[1]);
}

pub(crate) fn quit(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.ok();
    client.ending = Ending::Close;
}

pub(crate) fn select(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    match database_number(args[1], server.config.data.databases) {
        Ok(number) => {
            client.database = number;
            client.out.ok();
        }
        Err(Refusal(words)) => client.out.error(&words),
    }
}

impl Server {
    /// Makes the client that user, if the password is right; `word` is the command that says so.
    fn log_in(&mut self, client: &mut Client, word: &[u8], name: &[u8], password: &[u8]) -> bool {
        let Some(user) = self.users.log_in(name, password) else {
            self.stats.auth_failures += 1;
            let is_in_multi = client.transaction.is_some();
            self.note_attempt(client, ("auth", word), name, is_in_multi);
            return false;
        };
        client.user = user;
        client.is_authenticated = true;
        true
    }
}

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

pub(crate) fn auth(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let (name, password): (&[u8], &[u8]) = match *args {
        [_, password] => {
            if server.users.default_needs_no_password() {
                return client.out.error(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                );
            }
            (b"default", password)
        }
        [_, name, password] => (name, password),
        _ => return client.out.error("ERR syntax error"),
    };
    if server.log_in(client, args[0], name, password) {
        client.out.ok();
    } else {
        client.out.error(WRONG_PASSWORD);
    }
}

pub(crate) fn hello(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let mut protocol = client.out.protocol();
    if let Some(version) = args.get(1) {
        protocol = match integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return client.out.error("NOPROTO unsupported protocol version"),
            None => {
                return client.out.error("ERR Protocol version is not an integer or out of range");
            }
        };
    }
    let (mut login, mut name) = (None, None);
    let mut rest = args.get(2..).unwrap_or_default();
    loop {
        rest = match *rest {
            [] => break,
            [word, user, password, ref more @ ..] if word.eq_ignore_ascii_case(b"auth") => {
                login = Some((user, password));
                more
            }
            [word, given, ref more @ ..] if word.eq_ignore_ascii_case(b"setname") => {
                if !is_name(given) {
                    return client.out.error(BAD_NAME);
                }
                name = Some(given);
                more
            }
            [word, ..] => {
                let text = [b"ERR Syntax error in HELLO option '", word, b"'"].concat();
                return client.out.error_bytes(&text);
            }
        };
    }
    if let Some((user, password)) = login
        && !server.log_in(client, args[0], user, password)
    {
        return client.out.error(WRONG_PASSWORD);
    }
    if !client.is_authenticated {
        return client.out.error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
             <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
             RESP protocol version at the same time",
        );
    }
    if let Some(name) = name {
        client.name = name.into();
    }
    client.out.set_protocol(protocol);
    let out = &mut client.out;
    out.map(7);
    let mut pair = |name: &str, value: &str| {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    };
    pair("server", "redis");
    pair("version", REDIS_VERSION);
    out.bulk(b"proto");
    out.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
    out.bulk(b"id");
    out.integer(client.id as i64);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"modules");
    out.array(0);
}

pub(crate) fn reset(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    server.release(client);
    client.database = 0;
    client.name = Box::default();
    // Its own reply is left out if that was asked for.
    if client.replies != Replies::Skip {
        client.replies = Replies::On;
    }
    client.is_evictable = true;
    client.out.set_protocol(Protocol::Resp2);
    client.user = 0;
    client.is_authenticated = server.users.default_needs_no_password();
    client.out.simple("RESET");
}

pub(crate) fn client_id(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.integer(client.id as i64);
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// Letters that do not break the lines of CLIENT LIST.
fn is_name(name: &[u8]) -> bool {
    name.len() <= NAME_BYTES_MAX && name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

pub(crate) fn client_setname(_: &mut Server, client: &mut Client, args: &[&[u8]]) {
    if !is_name(args[2]) {
        return client.out.error(BAD_NAME);
    }
    client.name = args[2].into();
    client.out.ok();
}

pub(crate) fn client_getname(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    let name = client.name.clone();
    if name.is_empty() { client.out.null() } else { client.out.bulk(&name) }
}

pub(crate) fn client_setinfo(_: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let (what, value) = (args[2], args[3]);
    let of = if what.eq_ignore_ascii_case(b"lib-name") {
        &mut client.lib_name
    } else if what.eq_ignore_ascii_case(b"lib-ver") {
        &mut client.lib_version
    } else {
        let text = [b"ERR Unrecognized option '", what, b"'"].concat();
        return client.out.error_bytes(&text);
    };
    if !is_name(value) {
        let what = String::from_utf8_lossy(what);
        let text = format!("ERR {what} cannot contain spaces, newlines or special characters.");
        return client.out.error(&text);
    }
    *of = value.into();
    client.out.ok();
}

/// A client in a line, as CLIENT LIST has it.
pub(super) fn line(server: &Server, client: &Client) -> String {
    let now_us = server.time.now_us;
    let age = |since_us: u64| now_us.saturating_sub(since_us) / 1_000_000;
    let mut flags = String::new();
    let mut flag = |is_set: bool, letter| is_set.then(|| flags.push(letter));
    flag(client.is_subscribed(), 'P');
    flag(client.transaction.is_some(), 'x');
    let waits_away = client.apart.as_ref().is_some_and(|apart| apart.may_wait_for_data());
    flag(client.blocked.is_some() || waits_away, 'b');
    flag(client.is_spoiled, 'd');
    flag(client.ending == Ending::Close, 'c');
    flag(!client.is_evictable, 'e');
    if flags.is_empty() {
        flags.push('N');
    }
    let events = if client.owed() > 0 { "rw" } else { "r" };
    let multi = client.transaction.as_ref().map_or(-1, |open| open.queued.len() as i64);
    let command = client.last.map_or("NULL", |index| server.table.command(index).name);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut line = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        line,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} \
         multi={multi} qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} rbs={} rbp=0 obl={} oll=0 omem={} \
         tot-mem={} events={events} cmd={command} user={} redir=-1 resp={} lib-name={} lib-ver={}",
        client.id,
        client.peer,
        client.local,
        client.conn.0,
        text(&client.name),
        age(client.opened_us),
        age(client.active_us),
        client.database,
        client.channels.len(),
        client.patterns.len(),
        client.shard_channels.len(),
        client.parser.kept_bytes(),
        client.transaction.as_ref().map_or(0, |open| open.bytes),
        client.out.capacity(),
        client.owed(),
        client.owed(),
        client.memory_bytes(),
        server.users.of(client.user).name(),
        if client.out.protocol() == Protocol::Resp3 { 3 } else { 2 },
        text(&client.lib_name),
        text(&client.lib_version),
    );
    line
}

pub(crate) fn client_info(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    let text = line(server, client) + "\n";
    client.out.text(&text);
}

/// The class of a client, by its name in commands.
fn is_of_type(client: &Client, name: &[u8]) -> Option<bool> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Some(!client.is_subscribed()),
        b"pubsub" => Some(client.is_subscribed()),
        b"master" | b"slave" | b"replica" => Some(false),
        _ => None,
    }
}

pub(crate) fn client_list(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let mut ids: Option<Vec<u64>> = None;
    let mut kind: Option<&[u8]> = None;
    match args[2..] {
        [] => {}
        [word, name] if word.eq_ignore_ascii_case(b"type") => {
            if is_of_type(client, name).is_none() {
                let text = [b"ERR Unknown client type '", name, b"'"].concat();
                return client.out.error_bytes(&text);
            }
            kind = Some(name);
        }
        [word, ref given @ ..] if word.eq_ignore_ascii_case(b"id") && !given.is_empty() => {
            let parsed = given.iter().map(|id| integer(id).and_then(|id| u64::try_from(id).ok()));
            let Some(parsed) = parsed.collect::<Option<Vec<u64>>>() else {
                return client.out.error("ERR Invalid client ID");
            };
            ids = Some(parsed);
        }
        _ => return client.out.error("ERR syntax error"),
    }
    let is_meant = |one: &Client| {
        ids.as_ref().is_none_or(|ids| ids.contains(&one.id))
            && kind.is_none_or(|name| is_of_type(one, name) == Some(true))
    };
    // The asking client is not in the table while it asks.
    let mut lines: Vec<(u64, String)> = server
        .clients
        .iter()
        .chain([&*client].into_iter().filter(|one| !one.is_guest()))
        .filter(|one| is_meant(one))
        .map(|one| (one.id, line(server, one) + "\n"))
        .collect();
    lines.sort_unstable_by_key(|(id, _)| *id);
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    client.out.text(&text);
}

/// Which clients CLIENT KILL means.
#[derive(Default)]
struct Victims<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    spares_self: bool,
}

impl Victims<'_> {
    fn has(&self, server: &Server, one: &Client) -> bool {
        let is = |wanted: Option<&[u8]>, text: String| wanted.is_none_or(|w| w == text.as_bytes());
        one.ending != Ending::Asked
            && self.id.is_none_or(|id| id == one.id)
            && is(self.address, one.peer.to_string())
            && is(self.local, one.local.to_string())
            && is(self.user, server.users.of(one.user).name())
            && self.kind.is_none_or(|kind| is_of_type(one, kind) == Some(true))
    }
}

pub(crate) fn client_kill(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    // With an address alone, in the old manner, the reply is OK and the asking client is not spared.
    let is_old = args.len() == 3;
    let mut victims = Victims { spares_self: !is_old, ..Victims::default() };
    if is_old {
        victims.address = Some(args[2]);
    } else if args.len() % 2 == 1 {
        return client.out.error("ERR syntax error");
    }
    for pair in if is_old { &[] } else { &args[2..] }.chunks(2) {
        let (what, value) = (pair[0].to_ascii_lowercase(), pair[1]);
        match what.as_slice() {
            b"id" => {
                let id = integer(value).and_then(|id| u64::try_from(id).ok()).filter(|&id| id > 0);
                let Some(id) = id else {
                    return client.out.error("ERR client-id should be greater than 0");
                };
                victims.id = Some(id);
            }
            b"addr" => victims.address = Some(value),
            b"laddr" => victims.local = Some(value),
            b"user" => {
                if server.users.index_of(value).is_none() {
                    let text = [b"ERR No such user '", value, b"'"].concat();
                    return client.out.error_bytes(&text);
                }
                victims.user = Some(value);
            }
            b"type" => {
                if is_of_type(client, value).is_none() {
                    let text = [b"ERR Unknown client type '", value, b"'"].concat();
                    return client.out.error_bytes(&text);
                }
                victims.kind = Some(value);
            }
            b"skipme" if value.eq_ignore_ascii_case(b"yes") => victims.spares_self = true,
            b"skipme" if value.eq_ignore_ascii_case(b"no") => victims.spares_self = false,
            _ => return client.out.error("ERR syntax error"),
        }
    }
    // By its number, for it may be a guest that asks.
    let is_spared = |one: &Client| victims.spares_self && one.id == client.id;
    let others = server.clients.iter().filter(|one| victims.has(server, one) && !is_spared(one));
    let others: Vec<Key> = others.map(|one| one.key).collect();
    let is_own = !victims.spares_self && !client.is_guest() && victims.has(server, client);
    let killed = others.len() + usize::from(is_own);
    for key in others {
        server.cut_off(key, client);
    }
    match (is_old, killed) {
        (true, 0) => client.out.error("ERR No such client"),
        (true, _) => client.out.ok(),
        (false, _) => client.out.integer(killed as i64),
    }
    if is_own {
        // It still receives the reply.
        client.ending = Ending::Close;
    }
}

/// There is no CLIENT TRACKING: it is off, and nothing is sent elsewhere.
pub(crate) fn client_getredir(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.integer(-1);
}

pub(crate) fn client_trackinginfo(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    let out = &mut client.out;
    out.map(3);
    out.bulk(b"flags");
    out.set(1);
    out.bulk(b"off");
    out.bulk(b"redirect");
    out.integer(-1);
    out.bulk(b"prefixes");
    out.array(0);
}

pub(crate) fn client_no_evict(_: &mut Server, client: &mut Client, args: &[&[u8]]) {
    client.is_evictable = match args[2].to_ascii_lowercase().as_slice() {
        b"on" => false,
        b"off" => true,
        _ => return client.out.error("ERR syntax error"),
    };
    client.out.ok();
}

pub(crate) fn client_reply(_: &mut Server, client: &mut Client, args: &[&[u8]]) {
    match args[2].to_ascii_lowercase().as_slice() {
        b"on" => {
            client.replies = Replies::On;
            client.out.ok();
        }
        b"off" => client.replies = Replies::Off,
        b"skip" if client.replies != Replies::Off => client.replies = Replies::SkipNext,
        b"skip" => {}
        _ => client.out.error("ERR syntax error"),
    }
}
