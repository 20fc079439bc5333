//! ACL: the commands on users.

use super::client::{Client, Ending, Key};
use super::server::Server;
use super::users::{CATEGORIES, USERS_MAX, User, hex};
use std::collections::BTreeSet;

pub(crate) fn setuser(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let name = args[2];
    if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return client.out.error("ERR Usernames can't contain spaces or null characters");
    }
    let known = server.users.index_of(name);
    if known.is_none() && server.users.users.len() >= USERS_MAX {
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
    server.users.add(user);
    client.out.ok();
}

pub(crate) fn getuser(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let Some(place) = server.users.index_of(args[2]) else { return client.out.null() };
    let user = server.users.of(place);
    let out = &mut client.out;
    let mut flags = vec![if user.is_on { "on" } else { "off" }];
    flags.extend(user.needs_no_password.then_some("nopass"));
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
    let channels = user.channels_text();
    out.bulk(if channels == "resetchannels" { b"" } else { channels.as_bytes() });
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
        let gone: Vec<Key> =
            server.clients.iter().filter(|one| one.user == place).map(|one| one.key).collect();
        gone.into_iter().for_each(|key| server.cut_off(key, client));
        if client.user == place && !client.is_guest() {
            client.ending = Ending::Close;
        }
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
