//! `laneway run kv`: where it listens, which clients it serves, how much memory it may take.

use crate::data::{DATABASES, Eviction};
use crate::get::Allowed;
use crate::get::cache::{ALLOWED_MAX, CacheSetup, LISTEN_MAX, SLOTS, SLOTS_MAX};
use crate::kind::{KvKind, KvReport, KvRun, Udp};
use crate::serve::{ClientsMemory, Config, Exchange, bytes_of, policy};
use crate::tls::TlsArguments;
use crate::upstream::{self, UpstreamArguments, UpstreamSettings};
use clap::{ArgAction, Args};
use laneway_journal::Policy;
use laneway_kinds::{
    Account, AppCommand, ArmPlace, Ask, Failure, Line, On, Own, RunReport, Service, Shape, Watched,
    WatchedRun, Witness, WorkerHeadings, WorkerLine,
};
use laneway_linux::{Cidr, Mac, open_files_max};
use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Its options beside those of every run.
#[derive(Args, Debug)]
pub struct KvArguments {
    /// Where it listens, separated by commas [default: 127.0.0.1:6379, by the kernel's sockets]
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    #[command(flatten)]
    tls: TlsArguments,
    /// Addresses of ours beside those of --listen, separated by commas; for lanes with a stack of ours
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    address: Vec<IpAddr>,
    /// MAC address that they are at [default: the interface's]
    #[arg(long, value_name = "MAC")]
    mac: Option<Mac>,
    /// Serve GET over UDP at these addresses, separated by commas [default: nowhere; on lane xdp where --listen says]
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    udp_listen: Vec<SocketAddr>,
    /// Networks that may ask over UDP beside this machine, separated by commas
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    udp_allow: Vec<Cidr>,
    /// On lane xdp: keys whose replies are kept in the kernel, a power of two
    #[arg(long, value_name = "N", default_value_t = SLOTS as u32,
        value_parser = clap::value_parser!(u32).range(1..=SLOTS_MAX as i64))]
    udp_cache: u32,
    /// The default user's password
    #[arg(long, value_name = "PASSWORD")]
    requirepass: Option<String>,
    /// Without a password, refuse every client that is not of this machine
    #[arg(long, value_name = "yes|no", default_value = "yes", value_parser = yes_no, action = ArgAction::Set)]
    protected_mode: bool,
    /// Clients at a time [default: 10000, or as many as there may be open files]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    maxclients: Option<u32>,
    /// Memory that all clients' queries and replies may take, such as 100mb, or 5% of --maxmemory; 0 is no limit
    #[arg(long, value_name = "BYTES|N%", default_value = "1gb", value_parser = clients_memory)]
    maxmemory_clients: ClientsMemory,
    /// Memory that data may take, such as 500mb; 0 is no limit
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = memory)]
    maxmemory: u64,
    /// What is evicted beyond it: noeviction, allkeys-lru, volatile-ttl and others
    #[arg(long, value_name = "POLICY", default_value = "noeviction", value_parser = policy)]
    maxmemory_policy: Eviction,
    /// Databases
    #[arg(long, value_name = "N", default_value_t = DATABASES as u32,
        value_parser = clap::value_parser!(u32).range(1..=DATABASES as i64))]
    databases: u32,
    /// Seconds after which an idle client is closed; 0 is never
    #[arg(long, value_name = "S", default_value_t = 0)]
    timeout: u32,
    /// Where data are: memory; log, in memory and in the log in --dir; lsm, as log, and values beyond --maxmemory in an
    /// LSM tree in --dir [default: memory, or log with --appendonly yes]
    #[arg(long, value_name = "memory|log|lsm", value_parser = where_stored)]
    store: Option<StoredIn>,
    /// Log writes in --dir, and do them again at the next start: the same as --store log [default: no]
    #[arg(long, value_name = "yes|no", value_parser = yes_no, action = ArgAction::Set)]
    appendonly: Option<bool>,
    /// When the log is made durable: always, before the reply; everysec; or no, when the system likes
    #[arg(long, value_name = "WHEN", default_value = "everysec", value_parser = when_durable)]
    appendfsync: Policy,
    /// Write the log anew when it has grown by so many percent since; 0 is never
    #[arg(long, value_name = "N", default_value_t = 100)]
    auto_aof_rewrite_percentage: u32,
    /// And is at least so long
    #[arg(long, value_name = "BYTES", default_value = "64mb", value_parser = memory)]
    auto_aof_rewrite_min_size: u64,
    /// The folder of the log
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    upstream: UpstreamArguments,
}

/// Where data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredIn {
    Memory,
    Log,
    Lsm,
}

impl StoredIn {
    const ALL: [StoredIn; 3] = [StoredIn::Memory, StoredIn::Log, StoredIn::Lsm];

    fn name(self) -> &'static str {
        match self {
            StoredIn::Memory => "memory",
            StoredIn::Log => "log",
            StoredIn::Lsm => "lsm",
        }
    }
}

fn where_stored(text: &str) -> Result<StoredIn, String> {
    let found = StoredIn::ALL.into_iter().find(|one| one.name() == text);
    found.ok_or_else(|| "say memory, log or lsm".to_owned())
}

/// Where data are to be, and the folder if that is not memory alone.
fn stored(arguments: &KvArguments) -> Result<(StoredIn, Option<PathBuf>), Failure> {
    let refuse = |why: String| Err(Failure::input(why));
    let store = match (arguments.store, arguments.appendonly) {
        (None | Some(StoredIn::Log), Some(true)) | (Some(StoredIn::Log), None) => StoredIn::Log,
        (None | Some(StoredIn::Memory), Some(false) | None) => StoredIn::Memory,
        (Some(StoredIn::Lsm), Some(true) | None) => StoredIn::Lsm,
        (Some(StoredIn::Memory), Some(true)) => {
            return refuse("--store memory logs nothing: leave out --appendonly yes".to_owned());
        }
        (Some(store), Some(false)) => {
            return refuse(format!(
                "--store {} has a log: leave out --appendonly no",
                store.name()
            ));
        }
    };
    if store == StoredIn::Memory {
        return Ok((store, None));
    }
    let Some(folder) = arguments.dir.clone() else {
        return refuse(match arguments.store {
            None => "--appendonly yes: where to? Give --dir PATH, a folder".to_owned(),
            Some(store) => format!("--store {}: where to? Give --dir PATH, a folder", store.name()),
        });
    };
    if store == StoredIn::Lsm && arguments.maxmemory == 0 {
        return refuse(
            "--store lsm: beyond how much memory do values go to the disk? Give --maxmemory, such as 2gb"
                .to_owned(),
        );
    }
    Ok((store, Some(folder)))
}

fn when_durable(text: &str) -> Result<Policy, String> {
    text.parse()
}

fn yes_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("say yes or no".to_owned()),
    }
}

fn memory(text: &str) -> Result<u64, String> {
    bytes_of(text)
        .ok_or_else(|| "use a number of bytes such as 100000, 64kb, 500mb or 2gb".to_owned())
}

fn clients_memory(text: &str) -> Result<ClientsMemory, String> {
    let hint =
        |why| format!("{why}; use a number of bytes such as 64kb or 2gb, or a share such as 5%");
    ClientsMemory::parse(text).map_err(hint)
}

/// Clients at a time by default.
const CLIENTS: usize = 10_000;
/// Files that the process has beside its clients and those of its workers, and some for clients that are refused
/// because they are too many.
const OTHER_FILES: usize = 64;

/// Files of each worker, beside those that it listens by: its bell, what the lane waits and is refused with.
const WORKER_FILES: usize = 4;

/// Files of each worker's log: the folder, its lock, a segment and the one behind it, a snapshot, and what is read.
const LOG_FILES: usize = 6;

/// Files of each worker's value store: its tables, of which it keeps so many open, and its journals.
const LSM_FILES: usize = crate::lsm::FILES_MAX + 32;

/// Nodes of a cluster in the back that each worker has files for. More are followed, up to what clients leave.
const NODES: usize = 64;

/// What a run has files for beside its clients.
#[derive(Clone, Copy, Default)]
struct Others {
    workers: usize,
    /// Addresses that each worker listens at.
    listeners: usize,
    has_log: bool,
    has_values: bool,
    is_in_front: bool,
}

impl Others {
    fn files(self) -> usize {
        let log = if self.has_log { LOG_FILES } else { 0 };
        let values = if self.has_values { LSM_FILES } else { 0 };
        let cluster = if self.is_in_front { upstream::files(NODES) } else { 0 };
        OTHER_FILES + self.workers * (self.listeners + WORKER_FILES + log + values + cluster)
    }
}

/// Clients at a time, and the most that may be set later: every one of them is an open file of the process, which has
/// `others` as well.
fn clients(asked: Option<u32>, others: usize, files: usize) -> Result<(usize, usize), Failure> {
    let asked = asked.map(|asked| asked as usize);
    let most = files.saturating_sub(others).max(1);
    match asked {
        Some(asked) if asked > most => Err(Failure::input(format!(
            "--maxclients {asked}: the process may open {files} files; raise `ulimit -n`, or give at most \
             --maxclients {most}"
        ))),
        asked => Ok((asked.unwrap_or(CLIENTS).min(most), most)),
    }
}

/// The port of Redis.
const PORT: u16 = 6379;

impl AppCommand for KvKind {
    type Arguments = KvArguments;

    const ASKS_OF_HOST: &'static [Ask] = &[Ask::Backlog, Ask::Budget];

    const HELP: &'static str = "\
Any client of Redis may be used. By the kernel's sockets (lanes socket and uring) it listens on the
loopback address by default; on packet, afxdp and dpdk it has a stack of its own, which
needs --on and --listen. Clients of other machines are refused until there is a password, or
--protected-mode no if no other program can reach it over the network. COMMAND lists what it does.

Ends at SHUTDOWN, at Ctrl-C or after --duration. The data are in memory; with --appendonly yes every
write is in the log in --dir as well, and the next start has it again. A log that has grown beyond
--auto-aof-rewrite-min-size and by --auto-aof-rewrite-percentage is written anew from the data, as at
BGREWRITEAOF.

With --store lsm values beyond --maxmemory are in an LSM tree in --dir, and come back into memory when a
command needs them; all keys stay in memory. The log is what makes them durable, and a start reads it.

With --workers N each worker has the keys of a range of Redis Cluster's slots and a log of its own, and
does what it is asked for keys of the others by messages. Keys of one command or transaction must then be
of one slot: {tags} see to that. A log is of one number of workers for good.

With --udp-listen it answers GET over UDP as well: memcached's eight bytes, then one RESP GET, padded to the
longest reply that is wanted. Only this machine and the networks of --udp-allow may ask, and no reply is
longer than its request. On lane xdp a program on the interface answers what it has seen before; the
rest, and every connection, is served by the kernel's sockets. A write takes its key out of the program's
cache before its reply leaves.

With --upstream redis-cluster://HOST:PORT it stands in front of a Redis or Valkey Cluster: strings are read from
its own memory, up to --maxmemory of them, and fetched where they are missing; the cluster says when one
changes. Every other command goes to the node that has its keys, and is answered when that has answered.
Transactions, messages, blocking commands and those on all keys are refused there.

Examples:
  laneway run kv --lane socket
  laneway run kv --lane uring --appendonly yes --dir /var/lib/kv --appendfsync always
  laneway run kv --lane uring --workers 2 --maxmemory 2gb
  laneway run kv --lane uring --store lsm --dir /var/lib/kv --maxmemory 2gb
  laneway run kv --lane uring --tls-listen 0.0.0.0:6380 --requirepass secret \
      --tls-cert-file kv.crt --tls-key-file kv.key --tls-ca-cert-file clients.crt
  laneway run kv --lane uring --listen 0.0.0.0:6379 --requirepass secret --maxmemory 2gb
  laneway run kv --lane uring --upstream redis-cluster://10.0.0.1:6379,10.0.0.2:6379 --maxmemory 2gb
  sudo laneway run kv --lane packet --on eth1 --listen 192.0.2.9:6379 --protected-mode no
  sudo laneway run kv --lane xdp --on eth1 --listen 192.0.2.9:6379 --udp-allow 192.0.2.0/24";

    fn plan(arguments: &KvArguments, on: On<'_>) -> Result<KvRun, Failure> {
        let On { lane, interfaces, workers, .. } = on;
        let in_front = lane.carries.has(Shape::Kernel);
        if !lane.runs(Shape::Streams) && !in_front {
            return Err(Failure::input(format!(
                "lane {} has no streams: the store takes socket, uring, xdp, packet, afxdp or dpdk",
                lane.name
            )));
        }
        let is_the_kernels = lane.is_the_kernels();
        let unused = [
            (in_front && !arguments.address.is_empty(), "--address"),
            (in_front && arguments.mac.is_some(), "--mac"),
            (is_the_kernels && !interfaces.is_empty(), "--on"),
            (is_the_kernels && !arguments.address.is_empty(), "--address"),
            (is_the_kernels && arguments.mac.is_some(), "--mac"),
        ];
        if let Some((_, flag)) = unused.iter().find(|(is_unused, _)| *is_unused) {
            return Err(Failure::input(format!(
                "{flag} cannot be used here: lane {} listens by the kernel's sockets, whose interface it is",
                lane.name
            )));
        }
        let of_tls = &arguments.tls.tls_listen;
        let mut listen = match &arguments.listen[..] {
            [] if !of_tls.is_empty() => Vec::new(),
            [] if is_the_kernels => vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))],
            [] if in_front => {
                return Err(Failure::input(format!(
                    "which address of the interface is asked? Give --listen ADDR:PORT, such as 192.0.2.9:{PORT}"
                )));
            }
            [] => {
                return Err(Failure::input(format!(
                    "a stack of ours has no loopback address: give --listen ADDR:PORT, such as 192.0.2.9:{PORT}"
                )));
            }
            listen => listen.to_vec(),
        };
        let plain_ports = listen.len();
        let tls = arguments.tls.check(plain_ports)?;
        listen.extend(of_tls);
        let is_twice = |(at, one): (usize, &SocketAddr)| listen[..at].contains(one);
        if let Some(at) = listen.iter().enumerate().position(is_twice) {
            return Err(Failure::input(format!(
                "{}: listened at twice; give each address to --listen or to --tls-listen, once",
                listen[at]
            )));
        }
        let own = match in_front {
            true => Vec::new(),
            false => Own::of_service(lane, interfaces, &listen, &arguments.address, arguments.mac)?,
        };
        let files = if is_the_kernels { open_files_max() } else { usize::MAX };
        let (store, folder) = stored(arguments)?;
        let spills = store == StoredIn::Lsm;
        let udp = udp(arguments, on, &listen[..plain_ports])?;
        let upstream = arguments.upstream.check()?;
        let others = Others {
            workers,
            listeners: listen.len() + udp.as_ref().map_or(0, |udp| udp.listen.len()),
            has_log: folder.is_some(),
            has_values: spills,
            is_in_front: upstream.is_some(),
        };
        let (clients_max, clients_limit) = clients(arguments.maxclients, others.files(), files)?;
        let mut config = Config {
            clients_max,
            clients_limit,
            clients_memory: arguments.maxmemory_clients,
            is_protected: arguments.protected_mode,
            idle_s: arguments.timeout.into(),
            port: listen[..plain_ports].first().map_or(0, SocketAddr::port),
            tls_port: listen[plain_ports..].first().map_or(0, SocketAddr::port),
            tls_auth_clients: tls.as_ref().map_or("yes", |tls| tls.auth_clients),
            lane: on.spec.to_string(),
            rewrite_percentage: arguments.auto_aof_rewrite_percentage.into(),
            rewrite_bytes_min: arguments.auto_aof_rewrite_min_size,
            ..Config::default()
        };
        config.data.databases = arguments.databases as usize;
        config.data.memory_bytes_max =
            usize::try_from(arguments.maxmemory).ok().filter(|&bytes| bytes > 0);
        config.data.eviction = arguments.maxmemory_policy;
        let service = Service { listen, own, hop_limit: None };
        config.appendfsync = arguments.appendfsync.name();
        if spills && udp.is_some() {
            return Err(Failure::input(
                "--store lsm and GET over UDP exclude each other: a datagram would wait for the disk",
            ));
        }
        let log = folder.map(|folder| (folder, arguments.appendfsync));
        if let Some(settings) = &upstream {
            in_front_of(settings, &mut config, log.is_some(), udp.is_some())?;
        }
        let password = arguments.requirepass.clone();
        let exchange = (workers > 1).then(|| Exchange::new(workers));
        let folders = OnceLock::new();
        Ok(KvRun { service, config, password, udp, log, folders, spills, exchange, tls, upstream })
    }

    fn places(run: &KvRun, on: On<'_>) -> Vec<String> {
        places(run, on.interfaces)
    }

    fn begun(run: &KvRun, _on: On<'_>) -> Option<String> {
        let who = match (&run.password, run.config.is_protected) {
            (Some(_), _) => "clients that know the password",
            (None, true) => "clients of this machine alone",
            (None, false) => "every client, without a password",
        };
        let data = match &run.log {
            None if let Some(UpstreamSettings { seeds, .. }) = &run.upstream => {
                let seeds: Vec<String> = seeds.iter().map(ToString::to_string).collect();
                format!("the data are those of the cluster at {}", seeds.join(", "))
            }
            None => "the data are in memory and end with the run".to_owned(),
            Some((folder, policy)) => {
                let beyond =
                    if run.spills { "values beyond memory and the log are" } else { "the log is" };
                format!("{beyond} in {}, fsync {policy}", folder.display())
            }
        };
        let most = run.config.clients_max;
        let fewer = if most < CLIENTS && most == run.config.clients_limit {
            format!("; {most} clients at a time for want of files, raise `ulimit -n`")
        } else {
            String::new()
        };
        Some(format!("serving {who}{fewer}; {data}; Ctrl-C ends"))
    }

    fn account(run: &KvRun, _on: On<'_>, lane: &RunReport, report: &KvReport) -> Account {
        let counters = lane.counters();
        let KvReport { connections, datagrams, .. } = report;
        let there = connections.fates.iter().chain(&datagrams.fates).filter(|(_, n)| *n > 0);
        let mut lines: Vec<Line> = there.map(|&(name, n)| (format!("  {name}"), n, "")).collect();
        lines.push(("bytes received".to_owned(), lane.app.rx_bytes, ""));
        lines.push(("bytes sent".to_owned(), lane.app.tx_bytes, ""));
        let lost = counters.nonzero_drops();
        lines.extend(lost.map(|(reason, n)| (reason.name().to_owned(), n, "by the lane")));
        let seen = connections.total();
        let mut json = Map::new();
        json.insert("listen".to_owned(), json!(run.service.listen));
        json.insert("fates".to_owned(), Value::Object(connections.by_name()));
        if let Some(udp) = &run.udp {
            json.insert("udp_listen".to_owned(), json!(udp.listen));
            json.insert("udp".to_owned(), Value::Object(datagrams.by_name()));
        }
        let (one, seen_heading) = ("connection", "connections accepted");
        Account { one, seen_heading, seen, accounted: seen, lines, json, ..Account::default() }
    }

    type Arm<'a, W: Witness + 'a> = Watched<'a, KvKind, W>;

    fn arm<'a, W: Witness + 'a>(run: &'a KvRun, witness: W) -> WatchedRun<'a, KvKind, W> {
        WatchedRun::new(run, witness)
    }

    fn place(place: &ArmPlace<'_>) -> Vec<String> {
        let listen: Vec<String> = place.addresses.iter().map(SocketAddr::to_string).collect();
        let mut words = vec!["--listen".to_owned(), listen.join(",")];
        // The generator is another machine, and the cable is ours alone.
        words.extend(["--protected-mode".to_owned(), "no".to_owned()]);
        if let Some(folder) = place.disk {
            words.extend(["--dir".to_owned(), folder.display().to_string()]);
        }
        if place.lane.takes_stack && !place.lane.carries.has(Shape::Streams) {
            words.extend(["--mac".to_owned(), Mac(place.mac).to_string()]);
        }
        words
    }

    fn worker_headings(_run: &KvRun) -> WorkerHeadings {
        WorkerHeadings { seen: "accepted", sent: "bytes sent" }
    }

    fn worker_line(_run: &KvRun, lane: &RunReport, report: &KvReport) -> WorkerLine {
        WorkerLine { seen: report.connections.total(), sent: lane.app.tx_bytes }
    }
}

/// Makes a configuration that of a cache in front of a cluster.
fn in_front_of(
    settings: &UpstreamSettings,
    config: &mut Config,
    has_log: bool,
    has_udp: bool,
) -> Result<(), Failure> {
    let at = &settings.seeds[0];
    let why = if has_log {
        "--appendonly yes: the cluster has the data and makes them durable; leave it out"
    } else if has_udp {
        "GET over UDP is not served in front of a cluster; leave --udp-listen out"
    } else if config.data.memory_bytes_max.is_none() {
        "how much memory may the copies take? Give --maxmemory BYTES, such as 500mb"
    } else {
        // A cluster has one database.
        config.data.databases = 1;
        if config.data.eviction == Eviction::None {
            config.data.eviction = Eviction::AllKeysLru;
        }
        return Ok(());
    };
    Err(Failure::input(format!("--upstream redis-cluster://{at}: {why}")))
}

/// GET over UDP, if it is asked for.
fn udp(arguments: &KvArguments, on: On<'_>, tcp: &[SocketAddr]) -> Result<Option<Udp>, Failure> {
    let in_front = on.lane.carries.has(Shape::Kernel);
    let listen = match &arguments.udp_listen[..] {
        [] if in_front => tcp.to_vec(),
        [] if arguments.udp_allow.is_empty() => return Ok(None),
        [] => return Err(Failure::input("--udp-allow: to ask where? Give --udp-listen ADDR:PORT")),
        listen => listen.to_vec(),
    };
    let refuse = |why: String| Err(Failure::input(why));
    if !in_front && !on.lane.is_the_kernels() {
        return refuse(format!(
            "--udp-listen: the stack on lane {} carries the store's connections alone; use socket, uring or xdp",
            on.lane.name
        ));
    }
    if on.workers > 1 {
        return refuse(format!(
            "--workers {}: GET over UDP is one worker's; leave --workers out",
            on.workers
        ));
    }
    if arguments.requirepass.is_some() {
        return refuse(
            "--requirepass and GET over UDP exclude each other: a datagram says no password; use --udp-allow"
                .to_owned(),
        );
    }
    if let Some(open) = listen.iter().find(|at| !at.ip().to_canonical().is_loopback())
        && arguments.udp_allow.is_empty()
    {
        return refuse(format!(
            "UDP at {open}: who may ask? Give --udp-allow CIDR, such as 192.0.2.0/24; a forged source is \
             answered as well"
        ));
    }
    if !in_front {
        let allowed = Allowed(arguments.udp_allow.clone());
        return Ok(Some(Udp { listen, allowed, cache: None }));
    }
    let slots = arguments.udp_cache as usize;
    if !slots.is_power_of_two() {
        return refuse(format!(
            "--udp-cache {slots} is no power of two; use {}",
            slots.next_power_of_two()
        ));
    }
    if listen.len() > LISTEN_MAX || arguments.udp_allow.len() > ALLOWED_MAX {
        return refuse(format!(
            "the program takes {LISTEN_MAX} addresses of --udp-listen and {ALLOWED_MAX} networks of --udp-allow, \
             and was given {} and {}",
            listen.len(),
            arguments.udp_allow.len()
        ));
    }
    if let Some(any) = listen.iter().find(|at| at.ip().is_unspecified() || at.port() == 0) {
        return refuse(format!(
            "UDP at {any}: the program answers for an address and a port of its own; name them by --udp-listen"
        ));
    }
    let setup = CacheSetup { listen: listen.clone(), allowed: arguments.udp_allow.clone(), slots };
    let allowed = Allowed(arguments.udp_allow.clone());
    Ok(Some(Udp { listen, allowed, cache: Some(setup) }))
}

/// Where it is spoken to, then the interfaces of its kernel half, which come last of what a run opens.
fn places(run: &KvRun, interfaces: &[String]) -> Vec<String> {
    let plain_ports = run.plain_ports();
    let place = |(at, address): (usize, &SocketAddr)| {
        format!("at {address}{}", if at < plain_ports { "" } else { " by TLS" })
    };
    let udp = run.udp.iter().flat_map(|udp| &udp.listen);
    let udp = udp.map(|address| format!("GET over UDP at {address}"));
    let half = interfaces.iter().map(|name| format!("on {name}"));
    run.service.listen.iter().enumerate().map(place).chain(udp).chain(half).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_the_kernel_half_has_a_place_behind_those_that_are_spoken_to() {
        let listen = vec!["127.0.0.1:6379".parse().unwrap()];
        let run = KvRun {
            service: Service { listen, ..Service::default() },
            config: Config::default(),
            password: None,
            udp: None,
            log: None,
            folders: OnceLock::new(),
            spills: false,
            exchange: None,
            tls: None,
            upstream: None,
        };
        assert_eq!(places(&run, &["eth1".to_owned()]), ["at 127.0.0.1:6379", "on eth1"]);
        assert_eq!(places(&run, &[]), ["at 127.0.0.1:6379"]);
    }

    #[test]
    fn there_are_no_more_clients_than_files() {
        assert_eq!(clients(None, 66, 1 << 20).unwrap(), (10_000, (1 << 20) - 66));
        assert_eq!(clients(None, 66, 1024).unwrap(), (958, 958));
        assert_eq!(clients(Some(958), 66, 1024).unwrap(), (958, 958));
        assert_eq!(clients(None, 66, 0).unwrap(), (1, 1));
        let Err(Failure::Because(_, refused)) = clients(Some(959), 66, 1024) else {
            panic!("more clients than files");
        };
        for part in ["--maxclients 959", "1024 files", "ulimit -n", "--maxclients 958"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn each_worker_has_the_files_that_it_needs() {
        let one = Others { workers: 1, listeners: 2, ..Others::default() };
        let of_worker = |others: Others| {
            let [once, twice] = [1, 2].map(|workers| Others { workers, ..others }.files());
            assert_eq!(twice - once, once - OTHER_FILES, "each worker has as many");
            twice - once
        };
        assert_eq!(of_worker(one), 2 + WORKER_FILES);
        assert_eq!(of_worker(Others { has_log: true, ..one }), 2 + WORKER_FILES + LOG_FILES);
        let spills = of_worker(Others { has_log: true, has_values: true, ..one });
        assert_eq!(spills, 2 + WORKER_FILES + LOG_FILES + LSM_FILES);
        // A cluster of 64 nodes, by three connections each.
        assert!(of_worker(Others { is_in_front: true, ..one }) > 2 + WORKER_FILES + 64 * 3);
    }
}
