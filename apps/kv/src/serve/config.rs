//! What is configured: at the start, and by CONFIG SET while the server runs.
//!
//! A parameter is a row: its name, how it is shown, and how it is set, if it can be. No row sets a path.

use super::denied::ATTEMPTS_MAX;
use crate::data::{Eviction, Settings};
use crate::event::Events;
use laneway_resp::Limits;
use std::fmt;

/// Which clients may be beyond how much output, and for how long. 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    /// A client beyond so many bytes is cut off at once.
    pub hard_bytes: usize,
    /// A client beyond so many bytes,
    pub soft_bytes: usize,
    /// for so long, is cut off.
    pub soft_s: u64,
}

/// How much memory all clients together may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientsMemory {
    /// So many bytes; 0 is no limit.
    Bytes(usize),
    /// So many percent of what data may have, at most 100; no limit where that has none.
    Percent(u8),
}

impl ClientsMemory {
    /// Bytes or, with a percent sign behind it, a share.
    ///
    /// # Errors
    /// As Redis words them.
    pub fn parse(text: &str) -> Result<ClientsMemory, String> {
        let Some(percent) = text.strip_suffix('%') else {
            return memory(text, 0, i64::MAX as u64).map(|n| ClientsMemory::Bytes(n as usize));
        };
        let percent: u64 =
            percent.parse().map_err(|_| "argument must be a memory or percent value")?;
        let percent = u8::try_from(percent).ok().filter(|&percent| percent <= 100);
        percent
            .map(ClientsMemory::Percent)
            .ok_or_else(|| "percentage argument must be less or equal to 100".to_owned())
    }

    /// In bytes, given what data may have; `None` without a limit.
    pub(crate) fn bytes_max(self, data_bytes_max: Option<usize>) -> Option<usize> {
        let bytes = match self {
            ClientsMemory::Bytes(bytes) => bytes,
            ClientsMemory::Percent(percent) => {
                (data_bytes_max? as u128 * u128::from(percent) / 100) as usize
            }
        };
        (bytes > 0).then_some(bytes)
    }
}

impl fmt::Display for ClientsMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientsMemory::Bytes(bytes) => write!(f, "{bytes}"),
            ClientsMemory::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// Up to where Redis packs a value closely. Here the data decide that by themselves: what a client sets is shown to it
/// again, and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodingLimits {
    hash_entries: u64,
    hash_value_bytes: u64,
    list_size: i32,
    set_integers: u64,
    sorted_entries: u64,
    sorted_value_bytes: u64,
}

impl Default for EncodingLimits {
    /// Redis's own.
    fn default() -> EncodingLimits {
        EncodingLimits {
            hash_entries: 512,
            hash_value_bytes: 64,
            list_size: -2,
            set_integers: 512,
            sorted_entries: 128,
            sorted_value_bytes: 64,
        }
    }
}

/// The configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Clients at a time.
    pub clients_max: usize,
    /// As many clients as CONFIG SET may allow: more than the process can have open files are none.
    pub clients_limit: usize,
    /// Memory of all clients together, beyond which those that have most are cut off.
    pub clients_memory: ClientsMemory,
    /// The data's own: databases, memory, and what is evicted.
    pub data: Settings,
    /// Without a password none but this machine's clients are served.
    pub is_protected: bool,
    /// Seconds after which an idle client is closed; 0 is never.
    pub idle_s: u64,
    /// Commands beyond so many microseconds are in SLOWLOG; negative is none.
    pub slower_than_us: i64,
    /// Entries of SLOWLOG.
    pub slowlog_len_max: usize,
    /// What is believed of clients.
    pub limits: Limits,
    /// Output of an ordinary client. What a client has not read beyond a smaller bound stops its input, so this is
    /// reached by a single reply alone.
    pub normal: OutputLimit,
    /// Output of a client that listens to messages.
    pub pubsub: OutputLimit,
    /// Channels and patterns of one client.
    pub subscriptions_max: usize,
    /// Ticks of the data's upkeep per second.
    pub hz: u64,
    /// Where it listens, for CONFIG GET and INFO.
    pub port: u16,
    /// Where it listens for TLS; 0 is nowhere.
    pub tls_port: u16,
    /// The value of `--tls-auth-clients`.
    pub tls_auth_clients: &'static str,
    /// The value of `--appendonly`.
    pub appendonly: bool,
    /// The fsync of the log, by name.
    pub appendfsync: &'static str,
    /// Growth of the log since the last snapshot, in percent, behind which the next begins by itself; 0 is never.
    pub rewrite_percentage: u64,
    /// No snapshot begins by itself while the log, the last snapshot included, takes no more than this.
    pub rewrite_bytes_min: u64,
    /// Limits of encodings, for CONFIG GET: they change nothing.
    pub encodings: EncodingLimits,
    /// Events of keys that are published.
    pub events: Events,
    /// The lane, for INFO.
    pub lane: String,
    /// What the log held at the start, for INFO.
    pub recovered: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            clients_max: 10_000,
            clients_limit: usize::MAX,
            clients_memory: ClientsMemory::Bytes(1 << 30),
            data: Settings::default(),
            is_protected: true,
            idle_s: 0,
            slower_than_us: 10_000,
            slowlog_len_max: 128,
            limits: Limits::default(),
            normal: OutputLimit { hard_bytes: 1 << 30, soft_bytes: 0, soft_s: 0 },
            pubsub: OutputLimit { hard_bytes: 32 << 20, soft_bytes: 8 << 20, soft_s: 60 },
            subscriptions_max: 65_536,
            hz: 10,
            port: 6379,
            tls_port: 0,
            tls_auth_clients: "yes",
            appendonly: false,
            appendfsync: "everysec",
            rewrite_percentage: 100,
            rewrite_bytes_min: 64 << 20,
            encodings: EncodingLimits::default(),
            events: Events::default(),
            lane: String::new(),
            recovered: String::new(),
        }
    }
}

impl Config {
    /// True if a command that took so long belongs in SLOWLOG.
    pub(crate) fn is_slow(&self, took_us: u64) -> bool {
        u64::try_from(self.slower_than_us).is_ok_and(|limit| took_us >= limit)
            && self.slowlog_len_max > 0
    }
}

/// Sets a parameter, or says why it does not.
pub(crate) type Set = fn(&mut Config, &str) -> Result<(), String>;

/// A parameter.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) show: fn(&Config) -> String,
    /// None: it is as it was at the start.
    pub(crate) set: Option<Set>,
}

const fn fixed(name: &'static str, show: fn(&Config) -> String) -> Parameter {
    Parameter { name, show, set: None }
}

const fn free(name: &'static str, show: fn(&Config) -> String, set: Set) -> Parameter {
    Parameter { name, show, set: Some(set) }
}

/// Every parameter but `requirepass`, which is the default user's.
#[rustfmt::skip] // a table
pub(crate) const PARAMETERS: &[Parameter] = &[
    fixed("acllog-max-len", |_| ATTEMPTS_MAX.to_string()),
    fixed("appendonly", |c| yes_no(c.appendonly)),
    fixed("appendfsync", |c| c.appendfsync.to_owned()),
    free("auto-aof-rewrite-min-size", |c| c.rewrite_bytes_min.to_string(),
        |c, text| memory(text, 0, i64::MAX as u64).map(|n| c.rewrite_bytes_min = n)),
    free("auto-aof-rewrite-percentage", |c| c.rewrite_percentage.to_string(),
        |c, text| in_range(text, 0, i32::MAX as u64).map(|n| c.rewrite_percentage = n)),
    fixed("bind", |_| String::new()),
    free("client-output-buffer-limit", show_output, set_output),
    free("client-query-buffer-limit", |c| c.limits.query_bytes_max.to_string(),
        |c, text| memory(text, 1 << 20, u64::MAX >> 1).map(|n| c.limits.query_bytes_max = n as usize)),
    fixed("cluster-enabled", |_| "no".to_owned()),
    fixed("databases", |c| c.data.databases.to_string()),
    free("hash-max-listpack-entries", |c| c.encodings.hash_entries.to_string(), |c, text| in_range(text, 0, i64::MAX as u64).map(|n| c.encodings.hash_entries = n)),
    free("hash-max-listpack-value", |c| c.encodings.hash_value_bytes.to_string(), |c, text| in_range(text, 0, i64::MAX as u64).map(|n| c.encodings.hash_value_bytes = n)),
    free("hash-max-ziplist-entries", |c| c.encodings.hash_entries.to_string(), |c, text| in_range(text, 0, i64::MAX as u64).map(|n| c.encodings.hash_entries = n)),
    free("hash-max-ziplist-value", |c| c.encodings.hash_value_bytes.to_string(), |c, text| in_range(text, 0, i64::MAX as u64).map(|n| c.encodings.hash_value_bytes = n)),
    free("hz", |c| c.hz.to_string(), |c, text| in_range(text, 1, 500).map(|n| c.hz = n)),
    free("maxclients", |c| c.clients_max.to_string(),
        |c, text| {
            let clients = in_range(text, 1, u32::MAX.into())? as usize;
            if clients > c.clients_limit {
                return Err(format!(
                    "The operating system is not able to handle the specified number of clients, try with {}",
                    c.clients_limit
                ));
            }
            c.clients_max = clients;
            Ok(())
        }),
    free("list-max-listpack-size", |c| c.encodings.list_size.to_string(), |c, text| in_i32(text).map(|n| c.encodings.list_size = n)),
    free("list-max-ziplist-size", |c| c.encodings.list_size.to_string(), |c, text| in_i32(text).map(|n| c.encodings.list_size = n)),
    free("lfu-decay-time", |c| c.data.lfu_decay_minutes.to_string(),
        |c, text| in_range(text, 0, i32::MAX as u64).map(|n| c.data.lfu_decay_minutes = n as u32)),
    free("lfu-log-factor", |c| c.data.lfu_log_factor.to_string(),
        |c, text| in_range(text, 0, i32::MAX as u64).map(|n| c.data.lfu_log_factor = n as u32)),
    free("maxmemory", |c| c.data.memory_bytes_max.unwrap_or(0).to_string(), |c, text| {
        let bytes = memory(text, 0, i64::MAX as u64)?;
        c.data.memory_bytes_max = (bytes > 0).then_some(bytes as usize);
        Ok(())
    }),
    free("maxmemory-clients", |c| c.clients_memory.to_string(),
        |c, text| ClientsMemory::parse(text).map(|memory| c.clients_memory = memory)),
    free("maxmemory-policy", |c| policy_name(c.data.eviction).to_owned(), |c, text| {
        c.data.eviction = policy(text)?;
        Ok(())
    }),
    free("maxmemory-samples", |c| c.data.samples.to_string(),
        |c, text| in_range(text, 1, 64).map(|n| c.data.samples = n as usize)),
    free("notify-keyspace-events", |c| c.events.text(), |c, text| {
        c.events = Events::parse(text).ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
        Ok(())
    }),
    fixed("port", |c| c.port.to_string()),
    free("proto-max-bulk-len", |c| c.limits.bulk_bytes_max.to_string(),
        |c, text| memory(text, 1 << 20, 512 << 20).map(|n| c.limits.bulk_bytes_max = n as usize)),
    free("protected-mode", |c| yes_no(c.is_protected), |c, text| is_yes(text).map(|yes| c.is_protected = yes)),
    // A snapshot begins as the log grows, not as time passes.
    free("save", |_| String::new(), |_, text| match text {
        "" => Ok(()),
        _ => Err("snapshots begin as the log grows (auto-aof-rewrite-percentage), only '' can be set".to_owned()),
    }),
    free("set-max-intset-entries", |c| c.encodings.set_integers.to_string(), |c, text| in_range(text, 0, i64::MAX as u64).map(|n| c.encodings.set_integers = n)),
    free("slowlog-log-slower-than", |c| c.slower_than_us.to_string(), |c, text| {
        c.slower_than_us = in_signed(text, -1, i64::MAX)?;
        Ok(())
    }),
    free("slowlog-max-len", |c| c.slowlog_len_max.to_string(),
        |c, text| in_range(text, 0, SLOWLOG_LEN_LIMIT).map(|n| c.slowlog_len_max = n as usize)),
    fixed("tls-auth-clients", |c| c.tls_auth_clients.to_owned()),
    fixed("tls-port", |c| c.tls_port.to_string()),
    free("timeout", |c| c.idle_s.to_string(), |c, text| in_range(text, 0, i32::MAX as u64).map(|n| c.idle_s = n)),
    free("zset-max-listpack-entries", |c| c.encodings.sorted_entries.to_string(), |c, text| in_range(text, 0, i64::MAX as u64).map(|n| c.encodings.sorted_entries = n)),
    free("zset-max-listpack-value", |c| c.encodings.sorted_value_bytes.to_string(), |c, text| in_range(text, 0, i64::MAX as u64).map(|n| c.encodings.sorted_value_bytes = n)),
    free("zset-max-ziplist-entries", |c| c.encodings.sorted_entries.to_string(), |c, text| in_range(text, 0, i64::MAX as u64).map(|n| c.encodings.sorted_entries = n)),
    free("zset-max-ziplist-value", |c| c.encodings.sorted_value_bytes.to_string(), |c, text| in_range(text, 0, i64::MAX as u64).map(|n| c.encodings.sorted_value_bytes = n)),
];

/// Parameters of Redis that hold a path or an address: they are refused by name.
pub(crate) const PROTECTED: &[&str] = &[
    "aclfile",
    "appenddirname",
    "appendfilename",
    "bind",
    "daemonize",
    "dbfilename",
    "dir",
    "logfile",
    "pidfile",
    "tls-ca-cert-dir",
    "tls-ca-cert-file",
    "tls-cert-file",
    "tls-client-cert-file",
    "tls-client-key-file",
    "tls-dh-params-file",
    "tls-key-file",
    "unixsocket",
];

/// A policy's name in Redis.
pub(crate) fn policy_name(policy: Eviction) -> &'static str {
    Eviction::NAMES.iter().find(|(_, known)| *known == policy).map_or("", |(name, _)| name)
}

/// The policy of that name.
///
/// # Errors
/// Every name there is.
pub(crate) fn policy(name: &str) -> Result<Eviction, String> {
    let found = Eviction::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, policy)| *policy).ok_or_else(|| {
        let names: Vec<&str> = Eviction::NAMES.iter().map(|(name, _)| *name).collect();
        format!("argument(s) must be one of the following: {}", names.join(", "))
    })
}

/// Entries of SLOWLOG at most, whatever is asked for.
const SLOWLOG_LEN_LIMIT: u64 = 100_000;

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn is_yes(text: &str) -> Result<bool, String> {
    match text {
        _ if text.eq_ignore_ascii_case("yes") => Ok(true),
        _ if text.eq_ignore_ascii_case("no") => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    }
}

/// A number of bytes, with or without a unit.
fn memory(text: &str, min: u64, max: u64) -> Result<u64, String> {
    between(bytes_of(text).ok_or("argument must be a memory value")?, min, max)
}

fn in_range(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = laneway_resp::integer(text.as_bytes())
        .ok_or("argument couldn't be parsed into an integer")?;
    // A negative one is out of every range.
    u64::try_from(number).map_or_else(|_| Err(not_between(min, max)), |n| between(n, min, max))
}

fn in_i32(text: &str) -> Result<i32, String> {
    in_signed(text, i32::MIN.into(), i32::MAX.into()).map(|number| number as i32)
}

fn in_signed(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let number = laneway_resp::integer(text.as_bytes())
        .ok_or("argument couldn't be parsed into an integer")?;
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    Err(format!("argument must be between {min} and {max} inclusive"))
}

fn between(number: u64, min: u64, max: u64) -> Result<u64, String> {
    if (min..=max).contains(&number) { Ok(number) } else { Err(not_between(min, max)) }
}

fn not_between(min: u64, max: u64) -> String {
    format!("argument must be between {min} and {max} inclusive")
}

/// A number of bytes with Redis's units: `100mb`, `1k`.
pub(crate) fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn show_output(config: &Config) -> String {
    let show = |name, limit: OutputLimit| {
        format!("{name} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_s)
    };
    // There are no replicas; Redis's clients expect the class.
    let classes =
        [show("normal", config.normal), "slave 0 0 0".to_owned(), show("pubsub", config.pubsub)];
    classes.join(" ")
}

fn set_output(config: &mut Config, text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let mut changed = config.clone();
    for class in words.chunks(4) {
        let bytes = |text| bytes_of(text).and_then(|n| usize::try_from(n).ok());
        let limit = bytes(class[1]).zip(bytes(class[2])).zip(class[3].parse().ok());
        let Some(((hard_bytes, soft_bytes), soft_s)) = limit else {
            return Err(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                    .to_owned(),
            );
        };
        let limit = OutputLimit { hard_bytes, soft_bytes, soft_s };
        match class[0].to_ascii_lowercase().as_str() {
            "normal" => changed.normal = limit,
            "pubsub" => changed.pubsub = limit,
            "slave" | "replica" => {}
            _ => {
                return Err(
                    "Invalid client class specified in buffer limit configuration.".to_owned()
                );
            }
        }
    }
    *config = changed;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_units_of_redis() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("1k", Some(1000)),
            ("1kb", Some(1024)),
            ("2GB", Some(2 << 30)),
            ("x", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(bytes_of(text), bytes, "{text}");
        }
    }

    #[test]
    fn every_parameter_takes_what_it_shows() {
        let mut config = Config::default();
        for parameter in PARAMETERS {
            if let Some(set) = parameter.set {
                let shown = (parameter.show)(&config);
                assert_eq!(set(&mut config, &shown), Ok(()), "{} {shown}", parameter.name);
                assert_eq!((parameter.show)(&config), shown);
            }
        }
    }

    #[test]
    fn what_is_wrong_changes_nothing() {
        let mut config = Config::default();
        let before = show_output(&config);
        assert!(set_output(&mut config, "normal 1 1 1 pubsub 1").is_err());
        assert!(set_output(&mut config, "normal 1 1 1 other 1 1 1").is_err());
        assert_eq!(show_output(&config), before);
    }
}
