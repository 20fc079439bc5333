//! `laneway run kv`: where it listens, whom it serves, how much memory it may take.

use crate::data::{DATABASES, Eviction};
use crate::kind::{KvKind, KvRun};
use crate::serve::{Config, Exchange, bytes_of, policy};
use crate::tls::TlsArguments;
use clap::{ArgAction, Args};
use laneway_journal::Policy;
use laneway_kinds::{
    Account, AppCommand, ArmPlace, Ask, Failure, FateReport, Line, On, Own, RunReport, Service,
    Shape, Watched, WatchedRun, Witness, WorkerHeadings, WorkerLine,
};
use laneway_linux::{Mac, open_files_max};
use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// What may be said to it beside what every run takes.
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
    /// The default user's password
    #[arg(long, value_name = "PASSWORD")]
    requirepass: Option<String>,
    /// Without a password, refuse every client that is not of this machine
    #[arg(long, value_name = "yes|no", default_value = "yes", value_parser = yes_no, action = ArgAction::Set)]
    protected_mode: bool,
    /// Clients at a time [default: 10000, or as many as there may be open files]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    maxclients: Option<u32>,
    /// Memory that all clients' queries and replies may take, such as 100mb; 0 is no limit
    #[arg(long, value_name = "BYTES", default_value = "1gb", value_parser = memory)]
    maxmemory_clients: u64,
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
    /// Log writes in --dir, and do them again at the next start
    #[arg(long, value_name = "yes|no", default_value = "no", value_parser = yes_no, action = ArgAction::Set)]
    appendonly: bool,
    /// When the log is made durable: always, before the reply; everysec; or no, when the system likes
    #[arg(long, value_name = "WHEN", default_value = "everysec", value_parser = when_durable)]
    appendfsync: Policy,
    /// The folder of the log
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
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

/// Clients at a time, if nothing is said.
const CLIENTS: usize = 10_000;
/// Files that the process has beside its clients: those of the lane and the log, and some for clients that are told that
/// they are too many.
const OTHER_FILES: usize = 64;

/// Clients at a time, and the most that may be set later: every one of them is an open file of the process.
fn clients(
    asked: Option<usize>,
    listeners: usize,
    files: usize,
) -> Result<(usize, usize), Failure> {
    let most = files.saturating_sub(listeners + OTHER_FILES).max(1);
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
loopback address unless told otherwise; on packet, afxdp and dpdk it has a stack of its own, which
needs --on and --listen. Clients of other machines are refused until there is a password, or
--protected-mode no says that the network lets nobody else in. COMMAND lists what it does.

Ends at SHUTDOWN, at Ctrl-C or after --duration. The data are in memory; with --appendonly yes every
write is in the log in --dir as well, and the next start has it again. A log that has grown beyond
64 MiB and to twice its size is written anew from the data, as at BGREWRITEAOF.

With --workers N each worker has the keys of a range of Redis Cluster's slots and a log of its own, and
does what it is asked for keys of the others by messages. Keys of one command or transaction must then be
of one slot: {tags} see to that. A log is of one number of workers for good.

Examples:
  laneway run kv --lane socket
  laneway run kv --lane uring --appendonly yes --dir /var/lib/kv --appendfsync always
  laneway run kv --lane uring --workers 2 --maxmemory 2gb
  laneway run kv --lane uring --tls-listen 0.0.0.0:6380 --requirepass secret \
      --tls-cert-file kv.crt --tls-key-file kv.key --tls-ca-cert-file clients.crt
  laneway run kv --lane uring --listen 0.0.0.0:6379 --requirepass secret --maxmemory 2gb
  sudo laneway run kv --lane packet --on eth1 --listen 192.0.2.9:6379 --protected-mode no";

    fn plan(arguments: &KvArguments, on: On<'_>) -> Result<KvRun, Failure> {
        let On { lane, interfaces, workers, .. } = on;
        if !lane.runs(Shape::Streams) {
            return Err(Failure::input(format!(
                "lane {} has no streams: the store takes socket, uring, packet, afxdp or dpdk",
                lane.name
            )));
        }
        let is_the_kernels = lane.is_the_kernels();
        let unused = [
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
        let own = Own::of_service(lane, interfaces, &listen, &arguments.address, arguments.mac)?;
        let files = if is_the_kernels { open_files_max() } else { usize::MAX };
        let (clients_max, clients_limit) =
            clients(arguments.maxclients.map(|n| n as usize), listen.len(), files)?;
        let mut config = Config {
            databases: arguments.databases as usize,
            clients_max,
            clients_limit,
            clients_bytes_max: usize::try_from(arguments.maxmemory_clients).unwrap_or(usize::MAX),
            is_protected: arguments.protected_mode,
            idle_s: arguments.timeout.into(),
            port: listen[..plain_ports].first().map_or(0, SocketAddr::port),
            tls_port: listen[plain_ports..].first().map_or(0, SocketAddr::port),
            tls_auth_clients: tls.as_ref().map_or("yes", |tls| tls.auth_clients),
            lane: on.spec.to_string(),
            ..Config::default()
        };
        config.data.memory_bytes_max =
            usize::try_from(arguments.maxmemory).ok().filter(|&bytes| bytes > 0);
        config.data.eviction = arguments.maxmemory_policy;
        let service = Service { listen, own, hop_limit: None };
        config.appendfsync = arguments.appendfsync.name();
        let log = match (&arguments.dir, arguments.appendonly) {
            (Some(folder), true) => Some((folder.clone(), arguments.appendfsync)),
            (None, true) => {
                return Err(Failure::input(
                    "--appendonly yes: where to? Give --dir PATH, a folder",
                ));
            }
            (_, false) => None,
        };
        let password = arguments.requirepass.clone();
        let exchange = (workers > 1).then(|| Exchange::new(workers));
        Ok(KvRun { service, config, password, log, exchange, tls })
    }

    fn places(run: &KvRun, _on: On<'_>) -> Vec<String> {
        let plain_ports = run.plain_ports();
        let place = |(at, address): (usize, &SocketAddr)| {
            format!("at {address}{}", if at < plain_ports { "" } else { " by TLS" })
        };
        run.service.listen.iter().enumerate().map(place).collect()
    }

    fn begun(run: &KvRun, _on: On<'_>) -> Option<String> {
        let who = match (&run.password, run.config.is_protected) {
            (Some(_), _) => "clients that know the password",
            (None, true) => "clients of this machine alone",
            (None, false) => "every client, without a password",
        };
        let data = match &run.log {
            None => "the data are in memory and end with the run".to_owned(),
            Some((folder, policy)) => format!("the log is in {}, fsync {policy}", folder.display()),
        };
        let most = run.config.clients_max;
        let fewer = if most < CLIENTS && most == run.config.clients_limit {
            format!("; {most} clients at a time for want of files, raise `ulimit -n`")
        } else {
            String::new()
        };
        Some(format!("serving {who}{fewer}; {data}; Ctrl-C ends"))
    }

    fn account(run: &KvRun, _on: On<'_>, lane: &RunReport, report: &FateReport) -> Account {
        let counters = lane.counters();
        let there = report.fates.iter().filter(|(_, n)| *n > 0);
        let mut lines: Vec<Line> = there.map(|&(name, n)| (format!("  {name}"), n, "")).collect();
        lines.push(("bytes received".to_owned(), lane.app.rx_bytes, ""));
        lines.push(("bytes sent".to_owned(), lane.app.tx_bytes, ""));
        let lost = counters.nonzero_drops();
        lines.extend(lost.map(|(reason, n)| (reason.name().to_owned(), n, "by the lane")));
        let seen = report.total();
        let mut json = Map::new();
        json.insert("listen".to_owned(), json!(run.service.listen));
        json.insert("fates".to_owned(), Value::Object(report.by_name()));
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
        if !place.lane.carries.has(Shape::Streams) {
            words.extend(["--mac".to_owned(), Mac(place.mac).to_string()]);
        }
        words
    }

    fn worker_headings(_run: &KvRun) -> WorkerHeadings {
        WorkerHeadings { seen: "accepted", sent: "bytes sent" }
    }

    fn worker_line(_run: &KvRun, lane: &RunReport, report: &FateReport) -> WorkerLine {
        WorkerLine { seen: report.total(), sent: lane.app.tx_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_clients_than_files() {
        assert_eq!(clients(None, 2, 1 << 20).unwrap(), (10_000, (1 << 20) - 66));
        assert_eq!(clients(None, 2, 1024).unwrap(), (958, 958));
        assert_eq!(clients(Some(958), 2, 1024).unwrap(), (958, 958));
        assert_eq!(clients(None, 2, 0).unwrap(), (1, 1));
        let Err(Failure::Because(_, refused)) = clients(Some(959), 2, 1024) else {
            panic!("more clients than files");
        };
        for part in ["--maxclients 959", "1024 files", "ulimit -n", "--maxclients 958"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
