//! What operators ask: INFO, CONFIG, SLOWLOG, MEMORY, LATENCY, TIME, SHUTDOWN.

use super::channels::Listeners;
use super::client::Client;
use super::config::{PARAMETERS, PROTECTED, Set, policy_name};
use super::connection::REDIS_VERSION;
use super::info_line::line;
use super::save::about_persistence;
use super::server::{Server, Stats, wrong_arguments};
use super::shards::names_for_info;
use crate::data::glob_matches;
use laneway_linux::Usage;
use laneway_resp::integer;
use laneway_tls::Reason;
use std::fmt::Write;

/// Parameters that one CONFIG GET or CONFIG SET names.
const PARAMETERS_MAX: usize = 1000;

pub(crate) fn config_get(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let mut found: Vec<(&str, String)> = Vec::new();
    for pattern in args[2..].iter().take(PARAMETERS_MAX) {
        let pattern = pattern.to_ascii_lowercase();
        let mut meet = |name: &'static str, value: &dyn Fn() -> String| {
            let is_meant = glob_matches(&pattern, name.as_bytes());
            if is_meant && !found.iter().any(|(known, _)| *known == name) {
                found.push((name, value()));
            }
        };
        for parameter in PARAMETERS {
            meet(parameter.name, &|| (parameter.show)(&server.config));
        }
        // Its hash is all that is known of it.
        meet("requirepass", &String::new);
    }
    client.out.map(found.len());
    for (name, value) in found {
        client.out.bulk(name.as_bytes());
        client.out.bulk(value.as_bytes());
    }
}

pub(crate) fn config_set(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let pairs = &args[2..];
    if pairs.len() % 2 == 1 {
        return client.out.error("ERR syntax error");
    }
    let failed = |name: &str, why: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
    };
    // Names are looked at before values, as by Redis.
    let mut sets: Vec<(String, Option<Set>)> = Vec::new();
    for pair in pairs.chunks(2) {
        let given = String::from_utf8_lossy(pair[0]);
        let name = given.to_ascii_lowercase();
        let parameter = PARAMETERS.iter().find(|one| one.name == name);
        let set = parameter.and_then(|one| one.set);
        let why = if PROTECTED.contains(&name.as_str()) {
            "can't set protected config"
        } else if sets.iter().any(|(other, _)| *other == name) {
            "duplicate parameter"
        } else if set.is_some() || name == "requirepass" {
            sets.push((name, set));
            continue;
        } else if parameter.is_some() {
            "can't set immutable config"
        } else {
            let text = "ERR Unknown option or number of arguments for CONFIG SET - '";
            return client.out.error(&format!("{text}{given}'"));
        };
        return client.out.error(&failed(&given, why));
    }
    let mut changed = server.config.clone();
    let mut password = None;
    for (pair, (name, set)) in pairs.chunks(2).zip(&sets) {
        let value = std::str::from_utf8(pair[1]).unwrap_or("\u{fffd}");
        match set {
            // The default user's.
            None => password = Some(value.to_owned()),
            Some(set) => {
                if let Err(why) = set(&mut changed, value) {
                    return client.out.error(&failed(name, &why));
                }
            }
        }
        if server.front.is_some() && changed.events.is_any() {
            let why = "the keys are the cluster's, which has their events";
            return client.out.error(&failed(name, why));
        }
    }
    server.config = changed;
    server.share_settings();
    if let Some(password) = password {
        server.users.require_password(&password);
    }
    client.out.ok();
}

pub(crate) fn config_resetstat(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    server.stats = Stats::default();
    server.store.reset_counts();
    for row in server.table.rows_mut() {
        (row.calls, row.usec, row.rejected, row.failed) = (0, 0, 0, 0);
    }
    client.out.ok();
}

pub(crate) fn time(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    let now_us = (server.time.read_us)();
    client.out.array(2);
    client.out.bulk((now_us / 1_000_000).to_string().as_bytes());
    client.out.bulk((now_us % 1_000_000).to_string().as_bytes());
}

pub(crate) fn slowlog_get(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    if args.len() > 3 {
        return client.out.error_bytes(&wrong_arguments(args));
    }
    let count = match args.get(2) {
        None => 10,
        Some(text) => match integer(text) {
            Some(-1) => usize::MAX,
            Some(count) if count >= 0 => count as usize,
            _ => {
                return client.out.error("ERR count should be greater than or equal to -1");
            }
        },
    };
    let entries = server.slowlog.entries();
    client.out.array(entries.len().min(count));
    for entry in entries.take(count) {
        let out = &mut client.out;
        out.array(6);
        out.integer(entry.id as i64);
        out.integer(entry.at_s as i64);
        out.integer(entry.took_us as i64);
        out.array(entry.args.len());
        entry.args.iter().for_each(|arg| out.bulk(arg));
        out.bulk(entry.peer.as_bytes());
        out.bulk(&entry.name);
    }
}

pub(crate) fn slowlog_len(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.integer(server.slowlog.entries().len() as i64);
}

pub(crate) fn slowlog_reset(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    server.slowlog.clear();
    client.out.ok();
}

/// No event is kept: SLOWLOG names the commands, the engine's figures the turns.
pub(crate) fn latency_none(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.array(0);
}

pub(crate) fn latency_reset(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.integer(0);
}

pub(crate) fn memory_stats(server: &mut Server, client: &mut Client, _: &[&[u8]]) {
    let data = server.store.used_bytes();
    let keys: usize = server.store.databases().map(|database| database.keys).sum();
    let of_clients: usize = server.clients.iter().map(Client::memory_bytes).sum();
    let figures = [
        ("total.allocated", data + of_clients),
        ("clients.normal", of_clients),
        ("keys.count", keys),
        ("keys.bytes-per-key", data.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", data),
    ];
    client.out.map(figures.len());
    for (name, figure) in figures {
        client.out.bulk(name.as_bytes());
        client.out.integer(figure as i64);
    }
}

pub(crate) fn memory_doctor(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.text(
        "Nothing is diagnosed here: INFO memory has what data and clients take, MEMORY STATS the same of one worker \
         or all, MEMORY USAGE what one key takes.\n",
    );
}

pub(crate) fn memory_malloc_stats(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.text("Stats not supported for the current allocator");
}

/// Nothing is held back that could be given back, as with Redis's allocators but one.
pub(crate) fn memory_purge(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.ok();
}

/// Who replicates what: none does.
pub(crate) fn role(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.array(3);
    client.out.bulk(b"master");
    client.out.integer(0);
    client.out.array(0);
}

/// What clients of clusters ask for.
pub(crate) fn no_cluster(_: &mut Server, client: &mut Client, _: &[&[u8]]) {
    client.out.error("ERR This instance has cluster support disabled");
}

pub(crate) fn shutdown(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let has = |word: &[u8]| args[1..].iter().any(|arg| arg.eq_ignore_ascii_case(word));
    let is_known = |word: &&[u8]| {
        [&b"nosave"[..], b"save", b"now", b"force"].iter().any(|w| word.eq_ignore_ascii_case(w))
    };
    if args.len() > 1 && args[1..].iter().all(|word| word.eq_ignore_ascii_case(b"abort")) {
        // It ends at once: none is ever under way.
        return client.out.error("ERR No shutdown in progress.");
    }
    if !args[1..].iter().all(is_known) || has(b"save") && has(b"nosave") {
        return client.out.error("ERR syntax error");
    }
    // Nothing is answered: the connection ends with the server.
    server.stop();
}

type Section = (&'static str, fn(&Server, &mut String));

/// The sections of INFO; those behind the bar only when they are asked for.
const SECTIONS: &[Section] = &[
    ("Server", about_server),
    ("Clients", about_clients),
    ("Memory", about_memory),
    ("Persistence", about_persistence),
    ("Stats", about_stats),
    ("Replication", about_replication),
    ("CPU", about_cpu),
    ("Errorstats", about_errors),
    ("Cluster", about_cluster),
    ("Keyspace", about_keys),
    ("Commandstats", about_commands),
];

/// What stands in INFO by itself.
const USUAL_SECTIONS: usize = 10;

pub(crate) fn info(server: &mut Server, client: &mut Client, args: &[&[u8]]) {
    let wanted: Vec<String> =
        args[1..].iter().map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
    let is_usual = wanted.is_empty() || wanted.iter().any(|name| name == "default");
    let is_all = wanted.iter().any(|name| name == "all" || name == "everything");
    let mut text = String::new();
    for (at, (name, write)) in SECTIONS.iter().enumerate() {
        let is_meant = is_all
            || is_usual && at < USUAL_SECTIONS
            || wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
        if is_meant {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {name}\r\n");
            write(server, &mut text);
        }
    }
    client.out.text(&text);
}

fn about_server(server: &Server, text: &mut String) {
    let uptime_s = server.time.now_us.saturating_sub(server.time.started_us) / 1_000_000;
    line!(text, "redis_version", REDIS_VERSION);
    line!(text, "redis_mode", "standalone");
    line!(text, "server_name", "laneway");
    line!(text, "laneway_version", env!("CARGO_PKG_VERSION"));
    line!(text, "laneway_lane", server.config.lane);
    line!(text, "laneway_workers", server.workers());
    line!(text, "arch_bits", usize::BITS);
    line!(text, "process_id", std::process::id());
    line!(text, "run_id", server.run_id);
    line!(text, "tcp_port", server.config.port);
    line!(text, "server_time_usec", server.time.now_us);
    line!(text, "uptime_in_seconds", uptime_s);
    line!(text, "uptime_in_days", uptime_s / 86_400);
    line!(text, "hz", server.config.hz);
}

fn about_clients(server: &Server, text: &mut String) {
    line!(text, "connected_clients", server.clients.len());
    line!(text, "maxclients", server.config.clients_max);
    line!(text, "blocked_clients", server.waiters.count() + server.waiters.postponed.len());
    let subscribed = server.clients.iter().filter(|one| one.is_subscribed()).count();
    line!(text, "pubsub_clients", subscribed);
    let longest = server.clients.iter().map(|one| one.owed()).max().unwrap_or(0);
    line!(text, "client_recent_max_output_buffer", longest);
}

fn about_memory(server: &Server, text: &mut String) {
    let data = server.store.used_bytes();
    let of_clients: usize = server.clients.iter().map(Client::memory_bytes).sum();
    let settings = server.store.settings();
    line!(text, "used_memory", data + of_clients);
    line!(text, "used_memory_dataset", data);
    line!(text, "mem_clients_normal", of_clients);
    if let Ok(usage) = Usage::of_this_process() {
        line!(text, "used_memory_rss", usage.resident_bytes);
    }
    line!(text, "maxmemory", server.config.data.memory_bytes_max.unwrap_or(0));
    if server.shards.is_some() {
        line!(text, "maxmemory_per_worker", settings.memory_bytes_max.unwrap_or(0));
    }
    line!(text, "maxmemory_policy", policy_name(settings.eviction));
    if let Some(counts) = server.store.spill_counts() {
        line!(text, "lsm_values", counts.values);
        line!(text, "lsm_written", counts.written);
        line!(text, "lsm_unwritten", counts.unwritten);
        line!(text, "lsm_fetched", counts.fetched);
        line!(text, "lsm_waited", counts.waited);
        line!(text, "lsm_disk_bytes", counts.disk_bytes);
        if let Some(why) = server.store.spill_failed() {
            line!(text, "lsm_error", why);
        }
    }
}

fn about_stats(server: &Server, text: &mut String) {
    let (stats, counts) = (&server.stats, server.store.counts());
    line!(text, "total_connections_received", stats.connections);
    line!(text, "total_commands_processed", stats.commands);
    line!(text, "total_net_input_bytes", stats.input_bytes);
    line!(text, "total_net_output_bytes", stats.output_bytes);
    line!(text, "rejected_connections", stats.rejected);
    line!(text, "expired_keys", counts.expired);
    line!(text, "evicted_keys", counts.evicted);
    line!(text, "keyspace_hits", counts.hits);
    line!(text, "keyspace_misses", counts.misses);
    line!(text, "pubsub_channels", listened_to(server, &server.channels.channels));
    line!(text, "pubsub_patterns", listened_to(server, &server.channels.patterns));
    line!(text, "pubsubshard_channels", listened_to(server, &server.channels.shards));
    line!(text, "acl_access_denied_auth", stats.auth_failures);
    line!(text, "total_error_replies", stats.error_replies);
    line!(text, "client_query_buffer_limit_disconnections", stats.query_disconnections);
    line!(text, "client_output_buffer_limit_disconnections", stats.output_disconnections);
    line!(text, "evicted_clients", stats.evicted_clients);
    line!(text, "tls_at_plain_port", stats.tls_at_plain_port);
    line!(text, "http_disconnections", stats.http_disconnections);
    if let Some(counts) = &server.tls {
        line!(text, "tls_handshakes", counts.handshakes());
        for reason in Reason::ALL {
            let _ = write!(text, "{}:{}\r\n", reason.name(), counts.of(reason));
        }
    }
    for (name, count) in server.datagrams.counts() {
        let _ = write!(text, "{name}:{count}\r\n");
    }
    for (name, count) in server.front.iter().flat_map(|front| front.figures()) {
        let _ = write!(text, "{name}:{count}\r\n");
    }
}

/// How many names are listened to; of several workers which, for one may be listened to at each.
fn listened_to(server: &Server, names: &Listeners) -> String {
    match server.shards {
        None => names.len().to_string(),
        Some(_) => names_for_info(names.keys().map(AsRef::as_ref)),
    }
}

fn about_replication(_: &Server, text: &mut String) {
    line!(text, "role", "master");
    line!(text, "connected_slaves", 0);
}

/// Of the process: the lane's and the writer's threads are in it, and what the kernel does on their behalf.
fn about_cpu(_: &Server, text: &mut String) {
    if let Ok(usage) = Usage::of_this_process() {
        line!(text, "used_cpu_sys", format_args!("{:.6}", usage.system.as_secs_f64()));
        line!(text, "used_cpu_user", format_args!("{:.6}", usage.user.as_secs_f64()));
        line!(text, "used_cpu_sys_children", "0.000000");
        line!(text, "used_cpu_user_children", "0.000000");
    }
}

fn about_errors(server: &Server, text: &mut String) {
    for (kind, count) in &server.stats.errors {
        let _ = write!(text, "errorstat_{kind}:count={count}\r\n");
    }
}

fn about_cluster(_: &Server, text: &mut String) {
    line!(text, "cluster_enabled", 0);
}

fn about_keys(server: &Server, text: &mut String) {
    for (number, database) in server.store.databases().enumerate() {
        if database.keys > 0 {
            let (keys, expires) = (database.keys, database.deadlines);
            let _ = write!(text, "db{number}:keys={keys},expires={expires},avg_ttl=0\r\n");
        }
    }
}

fn about_commands(server: &Server, text: &mut String) {
    for row in server.table.rows().iter().filter(|row| row.calls + row.rejected > 0) {
        let per_call = row.usec as f64 / row.calls.max(1) as f64;
        let _ = write!(
            text,
            "cmdstat_{}:calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}\r\n",
            row.command.name, row.calls, row.usec, row.rejected, row.failed
        );
    }
}
