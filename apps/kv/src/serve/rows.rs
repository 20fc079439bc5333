//! All rows of the table: the data's, and the server's with what does them.

use super::server::{Server, ServerFn};
use super::table::Table;
use super::{
    acl, blocked, client::Client, connection, describe, messages, operate, save, transaction,
};
use crate::command::{Command, Flags, Keys, Run};
use crate::data::COMMANDS;

/// Of a row whose command is the data's.
fn none(_: &mut Server, _: &mut Client, _: &[&[u8]]) {}

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    categories: &'static [&'static str],
) -> Command {
    let keys = Keys { first: 0, last: 0, step: 0, numkeys: 0 };
    Command { name, arity, flags, keys, categories, run: Run::Server }
}

const ALL_KEYS: Keys = Keys { first: 1, last: -1, step: 1, numkeys: 0 };

const CONNECTION: &[&str] = &["fast", "connection"];
const CONNECTION_SLOW: &[&str] = &["slow", "connection"];
const OPERATE: &[&str] = &["admin", "slow", "dangerous"];
const CLIENT_OPERATE: &[&str] = &["admin", "slow", "dangerous", "connection"];
const MESSAGES: &[&str] = &["pubsub", "slow"];
const TRANSACTION: &[&str] = &["fast", "transaction"];

const HELP: Flags = Flags::LOADING.and(Flags::STALE);
const CLUSTER: Flags = Flags::ADMIN.and(Flags::STALE);
const LOOSE: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::NOSCRIPT);
const OPEN: Flags = LOOSE.and(Flags::FAST).and(Flags::NO_AUTH);
const ADMIN: Flags = LOOSE.and(Flags::ADMIN);
const SAVING: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);
const PUBSUB: Flags = LOOSE.and(Flags::PUBSUB);

/// The rows of the data, then those of the server; and for each what the server does.
pub(crate) fn all() -> (Table, Box<[ServerFn]>) {
    let of_data = COMMANDS.iter().copied().flatten().map(|&command| (command, none as ServerFn));
    let (commands, does): (Vec<Command>, Vec<ServerFn>) =
        of_data.chain(SERVER.iter().copied()).unzip();
    (Table::new(commands.into_iter()), does.into())
}

/// The server's rows.
#[rustfmt::skip] // a table
const SERVER: &[(Command, ServerFn)] = &[
    (row("ping", -1, Flags::FAST, CONNECTION), connection::ping),
    (row("echo", 2, Flags::FAST, CONNECTION), connection::echo),
    (row("quit", -1, OPEN, CONNECTION), connection::quit),
    (row("select", 2, Flags::LOADING.and(Flags::STALE).and(Flags::FAST), CONNECTION), connection::select),
    (row("auth", -2, OPEN, CONNECTION), connection::auth),
    (row("hello", -1, OPEN, CONNECTION), connection::hello),
    (row("reset", 1, OPEN, CONNECTION), connection::reset),
    (row("client|id", 2, LOOSE, CONNECTION_SLOW), connection::client_id),
    (row("client|setname", 3, LOOSE, CONNECTION_SLOW), connection::client_setname),
    (row("client|getname", 2, LOOSE, CONNECTION_SLOW), connection::client_getname),
    (row("client|setinfo", 4, LOOSE, CONNECTION_SLOW), connection::client_setinfo),
    (row("client|info", 2, LOOSE, CONNECTION_SLOW), connection::client_info),
    (row("client|list", -2, ADMIN, CLIENT_OPERATE), connection::client_list),
    (row("client|kill", -3, ADMIN, CLIENT_OPERATE), connection::client_kill),
    (row("client|no-evict", 3, ADMIN, CLIENT_OPERATE), connection::client_no_evict),
    (row("client|reply", 3, LOOSE, CONNECTION_SLOW), connection::client_reply),
    (row("client|pause", -3, ADMIN, CLIENT_OPERATE), blocked::client_pause),
    (row("client|unpause", 2, ADMIN, CLIENT_OPERATE), blocked::client_unpause),
    (row("client|unblock", -3, ADMIN, CLIENT_OPERATE), blocked::client_unblock),
    (row("client|getredir", 2, LOOSE, CONNECTION_SLOW), connection::client_getredir),
    (row("client|trackinginfo", 2, LOOSE, CONNECTION_SLOW), connection::client_trackinginfo),
    (row("client|help", 2, HELP, CONNECTION_SLOW), describe::help),
    (row("wait", 3, Flags::NOSCRIPT, CONNECTION_SLOW), blocked::wait),
    (row("role", 1, LOOSE.and(Flags::FAST), &["admin", "fast", "dangerous"]), operate::role),
    (row("readonly", 1, HELP.and(Flags::FAST), CONNECTION), operate::no_cluster),
    (row("readwrite", 1, HELP.and(Flags::FAST), CONNECTION), operate::no_cluster),
    (row("asking", 1, Flags::FAST, CONNECTION), operate::no_cluster),
    (row("command", -1, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::command),
    (row("command|count", 2, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::count),
    (row("command|docs", -2, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::docs),
    (row("command|info", -2, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::info),
    (row("command|list", -2, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::list),
    (row("command|getkeys", -4, Flags::LOADING.and(Flags::STALE), CONNECTION_SLOW), describe::getkeys),
    (row("command|help", 2, HELP, CONNECTION_SLOW), describe::help),
    (row("config|get", -3, ADMIN, OPERATE), operate::config_get),
    (row("config|set", -4, ADMIN, OPERATE), operate::config_set),
    (row("config|resetstat", 2, ADMIN, OPERATE), operate::config_resetstat),
    (row("config|help", 2, HELP, &["slow"]), describe::help),
    (row("info", -1, Flags::LOADING.and(Flags::STALE), &["slow", "dangerous"]), operate::info),
    (row("time", 1, Flags::LOADING.and(Flags::STALE).and(Flags::FAST), &["fast"]), operate::time),
    (row("lastsave", 1, Flags::LOADING.and(Flags::STALE).and(Flags::FAST), &["admin", "fast", "dangerous"]), save::lastsave),
    (row("save", 1, SAVING.and(Flags::NO_MULTI), OPERATE), save::save),
    (row("bgsave", -1, SAVING, OPERATE), save::bgsave),
    (row("bgrewriteaof", 1, SAVING, OPERATE), save::bgrewriteaof),
    (row("slowlog|get", -2, ADMIN, OPERATE), operate::slowlog_get),
    (row("slowlog|len", 2, ADMIN, OPERATE), operate::slowlog_len),
    (row("slowlog|reset", 2, ADMIN, OPERATE), operate::slowlog_reset),
    (row("slowlog|help", 2, HELP, &["slow"]), describe::help),
    (row("latency|latest", 2, ADMIN, OPERATE), operate::latency_none),
    (row("latency|history", 3, ADMIN, OPERATE), operate::latency_none),
    (row("latency|reset", -2, ADMIN, OPERATE), operate::latency_reset),
    (row("latency|help", 2, HELP, &["slow"]), describe::help),
    (row("memory|stats", 2, Flags(0), &["slow"]), operate::memory_stats),
    (row("memory|doctor", 2, Flags(0), &["slow"]), operate::memory_doctor),
    (row("memory|malloc-stats", 2, Flags(0), &["slow"]), operate::memory_malloc_stats),
    (row("memory|purge", 2, Flags(0), &["slow"]), operate::memory_purge),
    (row("memory|help", 2, HELP, &["slow"]), describe::help),
    (row("shutdown", -1, ADMIN.and(Flags::NO_MULTI), OPERATE), operate::shutdown),
    (row("multi", 1, LOOSE.and(Flags::FAST), TRANSACTION), transaction::multi),
    (row("exec", 1, LOOSE, &["slow", "transaction"]), transaction::exec),
    (row("discard", 1, LOOSE.and(Flags::FAST), TRANSACTION), transaction::discard),
    (Command { keys: ALL_KEYS, ..row("watch", -2, LOOSE.and(Flags::FAST), TRANSACTION) }, transaction::watch),
    (row("unwatch", 1, LOOSE.and(Flags::FAST), TRANSACTION), transaction::unwatch),
    (row("subscribe", -2, PUBSUB, MESSAGES), messages::subscribe),
    (row("unsubscribe", -1, PUBSUB, MESSAGES), messages::unsubscribe),
    (row("psubscribe", -2, PUBSUB, MESSAGES), messages::psubscribe),
    (row("punsubscribe", -1, PUBSUB, MESSAGES), messages::punsubscribe),
    (row("publish", 3, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST), &["pubsub", "fast"]), messages::publish),
    (row("pubsub|channels", -2, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE), MESSAGES), messages::channels),
    (row("pubsub|numsub", -2, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE), MESSAGES), messages::numsub),
    (row("pubsub|numpat", 2, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE), MESSAGES), messages::numpat),
    (row("ssubscribe", -2, PUBSUB, MESSAGES), messages::ssubscribe),
    (row("sunsubscribe", -1, PUBSUB, MESSAGES), messages::sunsubscribe),
    (row("spublish", 3, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST), &["pubsub", "fast"]), messages::spublish),
    (row("pubsub|shardchannels", -2, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE), MESSAGES), messages::shardchannels),
    (row("pubsub|shardnumsub", -2, Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE), MESSAGES), messages::shardnumsub),
    (row("pubsub|help", 2, HELP, &["slow"]), describe::help),
    (row("acl|setuser", -3, ADMIN, OPERATE), acl::setuser),
    (row("acl|getuser", 3, ADMIN, OPERATE), acl::getuser),
    (row("acl|deluser", -3, ADMIN, OPERATE), acl::deluser),
    (row("acl|list", 2, ADMIN, OPERATE), acl::list),
    (row("acl|users", 2, ADMIN, OPERATE), acl::users),
    (row("acl|whoami", 2, LOOSE, &["slow"]), acl::whoami),
    (row("acl|cat", -2, LOOSE, &["slow"]), acl::cat),
    (row("acl|dryrun", -4, ADMIN, OPERATE), acl::dryrun),
    (row("acl|genpass", -2, LOOSE, &["slow"]), acl::genpass),
    (row("acl|log", -2, ADMIN, OPERATE), acl::log),
    (row("acl|help", 2, HELP, &["slow"]), describe::help),
    (row("cluster|addslots", -3, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|addslotsrange", -4, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|bumpepoch", 2, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|count-failure-reports", 3, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|countkeysinslot", 3, Flags::STALE, &["slow"]), operate::no_cluster),
    (row("cluster|delslots", -3, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|delslotsrange", -4, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|failover", -2, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|flushslots", 2, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|forget", 3, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|getkeysinslot", 4, Flags::STALE, &["slow"]), operate::no_cluster),
    (row("cluster|help", 2, HELP, &["slow"]), operate::no_cluster),
    (row("cluster|info", 2, Flags::STALE, &["slow"]), operate::no_cluster),
    (row("cluster|keyslot", 3, Flags::STALE, &["slow"]), operate::no_cluster),
    (row("cluster|links", 2, Flags::STALE, &["slow"]), operate::no_cluster),
    (row("cluster|meet", -4, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|myid", 2, Flags::STALE, &["slow"]), operate::no_cluster),
    (row("cluster|nodes", 2, Flags::STALE, &["slow"]), operate::no_cluster),
    (row("cluster|replicas", 3, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|replicate", 3, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|reset", -2, CLUSTER.and(Flags::NOSCRIPT), OPERATE), operate::no_cluster),
    (row("cluster|saveconfig", 2, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|set-config-epoch", 3, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|setslot", -4, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|shards", 2, Flags::STALE, &["slow"]), operate::no_cluster),
    (row("cluster|slaves", 3, CLUSTER, OPERATE), operate::no_cluster),
    (row("cluster|slots", 2, Flags::STALE, &["slow"]), operate::no_cluster),
];
