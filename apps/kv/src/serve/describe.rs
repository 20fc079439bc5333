//! COMMAND: the table of commands, as clients ask for it.

use super::client::Client;
use super::server::Server;
use super::table::{Table, key_places, keys_of};
use crate::command::{Command, Flags, Keys};
use crate::data::glob_matches;
use laneway_resp::Reply;

/// Flags with the names that clients know.
const NAMES: &[(Flags, &str)] = &[
    (Flags::WRITE, "write"),
    (Flags::READONLY, "readonly"),
    (Flags::DENYOOM, "denyoom"),
    (Flags::ADMIN, "admin"),
    (Flags::PUBSUB, "pubsub"),
    (Flags::NOSCRIPT, "noscript"),
    (Flags::BLOCKING, "blocking"),
    (Flags::LOADING, "loading"),
    (Flags::STALE, "stale"),
    (Flags::FAST, "fast"),
    (Flags::NO_AUTH, "no_auth"),
    (Flags::NO_MULTI, "no_multi"),
    (Flags::MOVABLEKEYS, "movablekeys"),
];

/// What stands for a name that has subcommands.
fn container(name: &'static str) -> Command {
    Command {
        name,
        arity: -2,
        flags: Flags::default(),
        keys: Keys::default(),
        categories: &["slow"],
        run: crate::Run::Server,
    }
}

/// Every command that is no subcommand, containers included.
fn commands(table: &Table) -> Vec<Command> {
    let rows = table.rows().iter().map(|row| row.command);
    let mut commands: Vec<Command> = rows.filter(|command| !command.name.contains('|')).collect();
    for name in table.containers().keys() {
        if !commands.iter().any(|command| command.name == *name) {
            commands.push(container(name));
        }
    }
    commands
}

/// The command of that name, in any case; with its subcommand: `config|get`.
fn named(table: &Table, name: &[u8]) -> Option<Command> {
    let name = name.to_ascii_lowercase();
    if let Some(index) = table.index_of(&name) {
        return Some(table.command(index));
    }
    let name = std::str::from_utf8(&name).ok()?;
    table.containers().get_key_value(name).map(|(name, _)| container(name))
}

fn write(table: &Table, command: &Command, out: &mut Reply) {
    out.array(10);
    out.bulk(command.name.as_bytes());
    out.integer(command.arity.into());
    let flags: Vec<&str> =
        NAMES.iter().filter(|(flag, _)| command.flags.has(*flag)).map(|(_, name)| *name).collect();
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    let Keys { first, last, step, .. } = command.keys;
    [i64::from(first), i64::from(last), i64::from(step)].iter().for_each(|&n| out.integer(n));
    out.set(command.categories.len());
    command.categories.iter().for_each(|name| out.simple(&format!("@{name}")));
    // Tips and key specifications: none, the places above say it.
    out.set(0);
    out.set(0);
    match table.containers().get(command.name) {
        None => out.set(0),
        Some(subcommands) => {
            out.array(subcommands.len());
            subcommands.iter().for_each(|&index| write(table, &table.command(index), out));
        }
    }
}

pub(crate) fn command(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    let commands = commands(&server.table);
    client.out.array(commands.len());
    commands.iter().for_each(|command| write(&server.table, command, &mut client.out));
}

pub(crate) fn count(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.integer(commands(&server.table).len() as i64);
}

pub(crate) fn info(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    if args.len() == 2 {
        return command(server, client, args);
    }
    client.out.array(args.len() - 2);
    for name in &args[2..] {
        match named(&server.table, name) {
            Some(command) => write(&server.table, &command, &mut client.out),
            None => client.out.null(),
        }
    }
}

pub(crate) fn docs(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let commands: Vec<Command> = if args.len() == 2 {
        commands(&server.table)
    } else {
        args[2..].iter().filter_map(|name| named(&server.table, name)).collect()
    };
    let out = &mut client.out;
    out.map(commands.len());
    for command in commands {
        out.bulk(command.name.as_bytes());
        out.map(2);
        out.bulk(b"arity");
        out.integer(command.arity.into());
        out.bulk(b"group");
        let group = command.categories.iter().find(|name| is_group(name));
        out.bulk(group.map_or("server", |name| name).as_bytes());
    }
}

/// A category that is a group in Redis's manual, too.
fn is_group(category: &str) -> bool {
    matches!(category, "string" | "list" | "set" | "hash" | "pubsub" | "connection")
}

pub(crate) fn list(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let table = &server.table;
    // Those with subcommands by themselves, too.
    let subcommands =
        table.rows().iter().map(|row| row.command).filter(|row| row.name.contains('|'));
    let all = commands(table).into_iter().chain(subcommands);
    let names: Vec<&str> = match args[2..] {
        [] => all.map(|command| command.name).collect(),
        [word, what, value] if word.eq_ignore_ascii_case(b"filterby") => {
            let value_low = value.to_ascii_lowercase();
            if what.eq_ignore_ascii_case(b"pattern") {
                let is_meant = |c: &Command| glob_matches(&value_low, c.name.as_bytes());
                all.filter(is_meant).map(|command| command.name).collect()
            } else if what.eq_ignore_ascii_case(b"aclcat") {
                let is_in = |c: &Command| c.categories.iter().any(|n| n.as_bytes() == value_low);
                all.filter(is_in).map(|command| command.name).collect()
            } else if what.eq_ignore_ascii_case(b"module") {
                Vec::new()
            } else {
                return client.out.error("ERR syntax error");
            }
        }
        _ => return client.out.error("ERR syntax error"),
    };
    client.out.array(names.len());
    names.iter().for_each(|name| client.out.bulk(name.as_bytes()));
}

pub(crate) fn getkeys(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let words = &args[2..];
    let super::table::Found::Row(index) = server.table.find(words) else {
        return client.out.error("ERR Invalid command specified");
    };
    let command = server.table.command(index);
    if command.keys.numkeys == 0 && key_places(command.keys, words.len(), None).is_empty() {
        return client.out.error("ERR The command has no key arguments");
    }
    if !command.takes(words.len()) {
        return client.out.error("ERR Invalid number of arguments specified for command");
    }
    let keys = keys_of(command.keys, words);
    // Where keys are counted, there is at least one beside those that are not.
    let uncounted = key_places(command.keys, words.len(), None).len();
    if keys.is_empty() || command.keys.numkeys > 0 && keys.len() == uncounted {
        return client.out.error("ERR Invalid arguments specified for command");
    }
    client.out.array(keys.len());
    keys.iter().for_each(|key| client.out.bulk(key));
}

/// The subcommands of a command that has some: those that are here, and no others.
pub(crate) fn help(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let container = String::from_utf8_lossy(args[0]).to_ascii_lowercase();
    let subcommands = server.table.containers().get(&*container).cloned().unwrap_or_default();
    client.out.array(subcommands.len() + 1);
    let title = container.to_ascii_uppercase();
    client.out.simple(&format!("{title} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    let prefix = container.len() + 1;
    for index in subcommands {
        client.out.simple(&server.table.command(index).name[prefix..].to_ascii_uppercase());
    }
}
