//! The judge of the server: three clients of a real `redis-server` 7.0, and three of ours, send the same random
//! commands on transactions, messages, blocked clients, users and configuration, and receive the same bytes, of one
//! worker and of two. With two, what is refused because its keys are of several slots is not asked of the judge. Once
//! more with memory for few values, the others on the disk. The seed is drawn anew and printed.

#[expect(dead_code, reason = "each test file uses a part")]
mod client;

use client::{Args, Folder, Redis, shown};
use laneway_core::{App, Bell, Close, ConnId, Opened, PortId, StreamApp, StreamOut, Turn};
use laneway_kv::{Config, Exchange, Kv, LsmValues, Setup, Store};
use laneway_testkit::Random;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const COMMANDS: usize = 6_000;
const CLIENTS: usize = 3;
/// After so many differences nothing new is learnt.
const DIFFERING_MAX: usize = 10;
/// How long the judge may take for a reply on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What every client of ours receives.
#[derive(Default)]
struct Received {
    bytes: [Vec<u8>; CLIENTS],
    is_paused: [bool; CLIENTS],
    /// Its connection was ended by the server.
    has_ended: [bool; CLIENTS],
}

impl StreamOut for Received {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        self.bytes[conn.0 as usize].extend_from_slice(bytes);
        bytes.len()
    }

    fn queued(&self, _: ConnId) -> usize {
        0
    }

    fn close(&mut self, conn: ConnId) {
        self.has_ended[conn.0 as usize] = true;
    }

    fn abort(&mut self, conn: ConnId) {
        self.has_ended[conn.0 as usize] = true;
    }

    fn pause(&mut self, conn: ConnId) {
        self.is_paused[conn.0 as usize] = true;
    }

    fn resume(&mut self, conn: ConnId) {
        self.is_paused[conn.0 as usize] = false;
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock behind 1970").as_micros() as u64
}

/// Our server and its clients, which its workers have in turns.
struct Ours {
    workers: Vec<(Kv, Bell)>,
    received: Received,
    /// Behind the workers, whose values beyond memory are in them.
    _folders: Vec<Folder>,
}

impl Ours {
    fn new(workers: usize, memory_bytes_max: Option<usize>) -> Ours {
        let exchange = Exchange::new(workers);
        let mut folders = Vec::new();
        let begin = |worker: usize| {
            let mut config = Config::default();
            config.data.memory_bytes_max = memory_bytes_max;
            let mut kv = Kv::new(Setup {
                config,
                password: None,
                store: Store::default(),
                now_us: Box::new(now_us),
                run_id: "0".repeat(40),
            });
            let bell = Bell::new().expect("a descriptor");
            if workers > 1 {
                kv.take_seat(exchange.seat(worker, &bell).expect("it is free"));
            }
            if memory_bytes_max.is_some() {
                let folder = Folder::new("server-judge-values");
                let values = LsmValues::open(&folder.0, Some(bell.clone()));
                kv.spill_to(Box::new(values.expect("an empty folder")));
                folders.push(folder);
            }
            (kv, bell)
        };
        let workers = (0..workers).map(begin).collect();
        let mut ours = Ours { workers, received: Received::default(), _folders: folders };
        (0..CLIENTS).for_each(|client| ours.open(client));
        ours
    }

    fn open(&mut self, client: usize) {
        let (peer, local) = ("127.0.0.1:5".parse().unwrap(), "127.0.0.1:6".parse().unwrap());
        let opened = Opened { conn: ConnId(client as u64), peer, local, port: PortId(0) };
        self.worker_of(client).on_open(opened, &mut Received::default());
    }

    /// A client whose connection has ended connects again.
    fn open_again(&mut self, client: usize) {
        let at = client % self.workers.len();
        let kv = &mut self.workers[at].0;
        kv.on_close(ConnId(client as u64), Close::Peer);
        kv.on_turn_end(Turn::default(), &mut self.received);
        (self.received.has_ended[client], self.received.is_paused[client]) = (false, false);
        self.open(client);
        // Other workers are rung for what it leaves behind.
        self.settle();
    }

    fn worker_of(&mut self, client: usize) -> &mut Kv {
        let at = client % self.workers.len();
        &mut self.workers[at].0
    }

    fn send(&mut self, client: usize, bytes: &[u8]) {
        let at = client % self.workers.len();
        let kv = &mut self.workers[at].0;
        let taken = kv.on_bytes(ConnId(client as u64), bytes, &mut self.received);
        assert_eq!(taken, bytes.len());
        kv.on_turn_end(Turn::default(), &mut self.received);
        self.settle();
    }

    /// Until no worker has anything to say to another.
    fn settle(&mut self) {
        loop {
            let mut is_rung = false;
            for (kv, bell) in &mut self.workers {
                if bell.answer() {
                    is_rung = true;
                    kv.on_bell(Turn::default());
                    kv.on_tick(Turn::default(), &mut self.received);
                    kv.on_turn_end(Turn::default(), &mut self.received);
                }
            }
            let awaited = self.workers.iter().find(|(kv, _)| kv.awaits_values());
            match awaited {
                Some((_, bell)) => drop(bell.wait(PATIENCE)),
                None if !is_rung => return,
                None => {}
            }
        }
    }

    /// What this client receives, without what the others receive.
    fn reply_to(&mut self, client: usize, bytes: &[u8]) -> String {
        self.received.bytes.iter_mut().for_each(Vec::clear);
        self.send(client, bytes);
        String::from_utf8_lossy(&std::mem::take(&mut self.received.bytes[client])).into_owned()
    }
}

/// CLIENT REPLY is of one worker alone: what is refused by rule is not seen where replies are left out; and not of a
/// transaction, whose one reply is left out whole or not at all. Commands of the server, and enough of the data's to
/// have something happen. K stands for a key, C for a channel, U for a user. The last client alone changes users, and
/// is never one of them: of a client of Redis that cuts itself off so, an answer is not certain.
const FORMS: &[&str] = &[
    "ping",
    "ping hi",
    "ping a b",
    "echo hi",
    "echo",
    "select 0",
    "select 1",
    "select 99",
    "select x",
    "select -1",
    "select 2147483648",
    "select 9223372036854775808",
    "multi",
    "multi",
    "multi",
    "exec",
    "exec",
    "exec",
    "exec",
    "discard",
    "discard x",
    "watch K",
    "watch K K",
    "watch",
    "watch K K L S",
    "unwatch",
    "flushdb",
    "flushall",
    "swapdb 0 1",
    "swapdb 0 0",
    "swapdb 0 x",
    "swapdb 0 99",
    "sadd S m n",
    "smove S S m",
    "smove S S n",
    "set K 1",
    "set K abc",
    "get K",
    "get K",
    "incr K",
    "incr K",
    "del K",
    "rpush L a b",
    "rpush L c",
    "lpop L",
    "lrange L 0 -1",
    "ltrim L 0 -1",
    "ltrim L 1 -1",
    "hset H f v",
    "hgetall H",
    "sadd S m",
    "zadd Z 1.5 m",
    "zscore Z m",
    "expire K 1000",
    "mget K K",
    "exists K L",
    "type K",
    "dbsize",
    "rename K K",
    "append K x",
    "blpop L L2 0",
    "brpop L 0",
    "blmove L L2 left right 0",
    "bzpopmin Z 0",
    "blpop L x",
    "blpop L -1",
    "subscribe C",
    "subscribe C C",
    "psubscribe C*",
    "psubscribe ?1",
    "unsubscribe C",
    "unsubscribe",
    "punsubscribe",
    "punsubscribe C*",
    "publish C hello",
    "publish C hello",
    "publish C",
    "ssubscribe C",
    "ssubscribe C C",
    "sunsubscribe C",
    "spublish C hello",
    "spublish C",
    "pubsub shardnumsub C C",
    "pubsub shardchannels a b",
    "pubsub channels",
    "pubsub channels C*",
    "pubsub numsub C C",
    "pubsub numpat",
    "pubsub nosuch",
    "hello 2",
    "hello 3",
    "hello 4",
    "hello x",
    "hello 3 nosuch",
    "reset",
    "reset",
    "reset",
    "reset",
    "reset",
    "reset",
    "reset",
    "reset",
    "reset",
    "reset",
    "reset x",
    "client getname",
    "client setname me",
    "client setname",
    "client reply off",
    "client reply on",
    "client reply on",
    "client reply on",
    "client reply on",
    "client reply skip",
    "client reply nosuch",
    "client no-evict on",
    "client no-evict x",
    "client nosuch",
    "client",
    "client unblock 99999",
    "client unblock x",
    "client kill 1.2.3.4:5",
    "client kill id x",
    "client kill nosuch x",
    "client list type nosuch",
    "client list id x",
    "client pause x",
    "client unpause",
    "client unpause x",
    "auth x",
    "auth default x",
    "auth nobody x",
    "auth a b c",
    "role",
    "role x",
    "wait 0 0",
    "wait x 0",
    "wait 0 -1",
    "readonly",
    "cluster info",
    "cluster nosuch",
    "cluster",
    "client getredir",
    "client trackinginfo",
    "client pause -1",
    "client pause 1 all x",
    "memory purge",
    "memory malloc-stats x",
    "acl dryrun default get K",
    "acl dryrun default nosuch",
    "acl dryrun default get",
    "acl dryrun absent get K",
    "acl genpass 0",
    "acl genpass 1 2",
    "acl log 1 2",
    "acl log x",
    "acl setuser bob #abc",
    "acl whoami",
    "acl cat nosuch",
    "acl setuser",
    "acl deluser default",
    "acl deluser nobody",
    "acl setuser U on >p ~* &* +@all",
    "acl setuser U on >p ~* &* +@all",
    "acl setuser U on >p ~* &* +@all",
    "acl setuser U on >p ~K* &C0 +@all",
    "acl setuser U on >p ~K* &C0 +@all",
    "acl setuser U -get",
    "acl setuser U +get allkeys",
    "acl setuser U -@write",
    "acl setuser U resetchannels",
    "acl setuser U resetchannels",
    "acl setuser U resetchannels",
    "acl setuser U resetchannels",
    "acl setuser U resetchannels &C1 &C*",
    "acl setuser U resetchannels &C1 &C*",
    "acl deluser U",
    "acl deluser U",
    "acl deluser U",
    "acl deluser U",
    "acl users",
    "auth U p",
    "auth U p",
    "auth U p",
    "auth U p",
    "auth U p",
    "auth U p",
    "auth U p",
    "auth U p",
    "auth U p",
    "auth U p",
    "acl setuser bob nosuch",
    "acl setuser bob +nosuch",
    "acl getuser nobody",
    "acl nosuch",
    "config get maxmemory-samples",
    "config get nosuch",
    "config set nosuch 1",
    "config set maxmemory-samples",
    "config set maxmemory-samples 5 hz",
    "config set maxmemory-policy nosuch",
    "config set slowlog-log-slower-than x",
    "config set slowlog-log-slower-than -2",
    "config set slowlog-log-slower-than +5",
    "config set slowlog-log-slower-than 010",
    "config set timeout x",
    "config set databases 5",
    "config set DATABASES 5 nosuch 1",
    "config set nosuch 1 databases 5",
    "config set maxmemory abc nosuch 1",
    "config set hz x databases 3",
    "config set Hz x",
    "config set dir /tmp databases 3",
    "config set hz 10 hz 10 nosuch 1",
    "config set dir /tmp",
    "config set hz 10 hz 10",
    "config set hash-max-listpack-entries x",
    "config get hash-max-ziplist-value",
    "config set notify-keyspace-events",
    "config nosuch",
    "config",
    "config resetstat x",
    "command getkeys set a b",
    "command getkeys ping",
    "command getkeys mget a b c",
    "command getkeys nosuch a",
    "command getkeys zunionstore Z 0 K",
    "command getkeys zunionstore Z 1 K",
    "command info nosuch",
    "command nosuch",
    "slowlog nosuch",
    "slowlog get x",
    "slowlog get -2",
    "slowlog get -1 x",
    "slowlog len x",
    "time x",
    "lastsave x",
    "save x",
    "bgsave x",
    "bgsave schedule x",
    "bgrewriteaof x",
    "config get auto-aof-rewrite-percentage",
    "config get auto-aof-rewrite-min-size",
    "config set auto-aof-rewrite-percentage -1",
    "config set auto-aof-rewrite-min-size x",
    "shutdown nosuch",
    "shutdown save nosave",
    "shutdown abort",
    "shutdown abort now",
    "nosuch",
    "nosuch a b c",
    "NOSUCH",
    "GET",
    "gEt K",
    "memory nosuch",
    "latency nosuch",
    "object encoding K",
    "object nosuch K",
    "info nosuch",
    "quit_no",
];

fn command(draw: &mut Random) -> Args {
    let form = FORMS[draw.index(FORMS.len())];
    // Mostly of one slot, so that most of what names two keys can be done by one worker.
    let tag = if draw.index(4) == 0 { ["", "{a}", "{b}"][draw.index(3)] } else { "{b}" };
    let word = |word: &str| match word {
        "K" | "L" | "H" | "S" | "Z" if draw.index(20) == 0 => {
            format!("{tag}K{}", draw.index(3))
        }
        "K" | "L" | "L2" | "H" | "S" | "Z" => format!("{tag}{word}{}", draw.index(3)),
        "C" => format!("C{}", draw.index(3)),
        "U" => format!("U{}", draw.index(3)),
        other => other.to_owned(),
    };
    form.split_whitespace().map(word).map(String::into_bytes).collect()
}

/// Commands whose replies name things in an order: ours is that of the names, Redis's is by chance. A message reaches
/// the patterns that it matches in such an order, too.
fn lists_by_chance(line: &str) -> bool {
    matches!(line, "unsubscribe" | "punsubscribe" | "pubsub channels" | "pubsub channels c*")
        || line.starts_with("publish ")
}

/// What differs by design, with the reason; both replies are given. `lists` says that the command, or one of the
/// transaction that it ends, lists by chance.
fn is_excused(line: &str, lists: bool, ours: &str, theirs: &str) -> bool {
    let parts = |reply: &str| {
        let mut parts: Vec<String> = reply.split("\\r\\n").map(str::to_owned).collect();
        parts.sort_unstable();
        parts
    };
    // The client's number.
    let is_hello = matches!(line, "hello 2" | "hello 3" | "exec")
        && ours.contains("proto")
        && theirs.contains("proto");
    is_hello || lists && parts(ours) == parts(theirs)
}

#[test]
fn the_server_answers_as_redis_does() {
    judged("server-judge-1", 1, None);
}

#[test]
fn two_workers_answer_as_redis_does() {
    judged("server-judge-2", 2, None);
}

#[test]
fn the_server_answers_as_redis_does_with_values_on_disk() {
    judged("server-judge-lsm-1", 1, Some(MEMORY_BYTES));
}

#[test]
fn two_workers_answer_as_redis_does_with_values_on_disk() {
    judged("server-judge-lsm-2", 2, Some(MEMORY_BYTES));
}

/// Each worker's memory is drawn, up to a third more than this: room for all keys of the commands, and for few of their
/// values.
const MEMORY_BYTES: usize = 9_000;

/// What two workers refuse by rule: it is counted, and the judge is not asked.
fn is_refused_by_rule(reply: &[u8]) -> bool {
    reply.starts_with(b"-CROSSSLOT")
        || reply.escape_ascii().to_string().contains("cannot be part of a transaction")
}

fn judged(name: &str, workers: usize, memory_bytes: Option<usize>) {
    let redis = match Redis::start(name) {
        Ok(redis) => redis,
        Err(why) => return laneway_testkit::skip(why),
    };
    let folder = format!("laneway-kv-{name}-{}", std::process::id());
    let socket = std::env::temp_dir().join(folder).join("redis.sock");
    let connect = || {
        let stream = UnixStream::connect(&socket).expect("the judge listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream
    };
    let mut theirs: Vec<UnixStream> = (0..CLIENTS).map(|_| connect()).collect();
    let seed = laneway_testkit::seed();
    let mut draw = Random::seeded(seed);
    let memory_bytes_max = memory_bytes.map(|bytes| workers * (bytes + draw.index(bytes / 3)));
    let mut ours = Ours::new(workers, memory_bytes_max);
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();
    let mut log: Vec<String> = Vec::new();
    let mut differing: Vec<String> = Vec::new();
    // Whether the commands of each client since it had no transaction list by chance.
    let mut queued_lists = [false; CLIENTS];
    let mut in_transaction = [false; CLIENTS];
    let mut ended = 0;
    for _ in 0..COMMANDS {
        // The last client never waits, so that there is always one to go on.
        let client = match draw.index(CLIENTS) {
            client if ours.received.is_paused[client] => CLIENTS - 1,
            client => client,
        };
        let mut args = command(&mut draw);
        let has_value = matches!(args[0].as_slice(), b"set" | b"append" | b"rpush" | b"hset");
        if memory_bytes_max.is_some() && has_value {
            // Values that are longer than what stands for them.
            let first = if args[0] == b"hset" { 3 } else { 2 };
            args.iter_mut().skip(first).for_each(|arg| *arg = arg.repeat(200 + draw.index(1_000)));
        }
        if client == CLIENTS - 1
            && matches!(args[0].as_slice(), b"blpop" | b"brpop" | b"blmove" | b"bzpopmin")
        {
            continue;
        }
        let is_of_users = args.get(1).is_some_and(|word| {
            matches!(word.as_slice(), b"setuser" | b"deluser" | b"users") && args[0] == b"acl"
        });
        let logs_in = args[0] == b"auth" && args[1].starts_with(b"U");
        if is_of_users && client < CLIENTS - 1 || logs_in && client == CLIENTS - 1 {
            continue;
        }
        let is_of_replies = args[0] == b"client" && args.get(1).is_some_and(|sub| sub == b"reply");
        if is_of_replies && (workers > 1 || in_transaction[client]) {
            continue;
        }
        if memory_bytes_max.is_some() && args[0].starts_with(b"flush") {
            // Nothing would ever take more than memory has room for.
            continue;
        }
        let may_wake = in_transaction[client] || ours.received.is_paused.contains(&true);
        if may_wake && args[0] == b"swapdb" {
            // Which of several keys that are there at once wakes a client is a matter of chance in Redis.
            continue;
        }
        let mut bytes = Vec::new();
        laneway_resp::command(&args.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
        log.push(format!(
            "{client}: {}",
            args.iter().map(|a| shown(a)).collect::<Vec<_>>().join(" ")
        ));
        let line: Vec<String> =
            args.iter().map(|arg| String::from_utf8_lossy(arg).to_ascii_lowercase()).collect();
        let line = line.join(" ");
        queued_lists[client] |= lists_by_chance(&line);
        let lists = lists_by_chance(&line) || line == "exec" && queued_lists[client];
        if matches!(line.as_str(), "multi" | "exec" | "discard" | "reset") {
            queued_lists[client] = false;
            in_transaction[client] = line == "multi";
        }
        ours.send(client, &bytes);
        if workers > 1 && is_refused_by_rule(&ours.received.bytes[client]) {
            ours.received.bytes[client].clear();
            *refused.entry(line.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
            if in_transaction[client] {
                // The transaction is broken by it, so the judge's is given up as well.
                ours.send(client, b"DISCARD\r\n");
                theirs[client].write_all(b"DISCARD\r\n").expect("the judge reads");
                in_transaction[client] = false;
                queued_lists[client] = false;
            } else {
                continue;
            }
        } else {
            theirs[client].write_all(&bytes).expect("the judge reads");
        }
        for (client, stream) in theirs.iter_mut().enumerate() {
            let own = std::mem::take(&mut ours.received.bytes[client]);
            let mut other = read_as(&own, stream);
            let is_short = other.len() < own.len();
            if own != other && !is_short {
                other.extend(rest(stream));
            }
            let (own, other) = (shown(&own), shown(&other));
            if own != other && !is_excused(&line, lists, &own, &other) {
                // One difference makes others: of the same command one is enough.
                let line = log.last().cloned().unwrap_or_default();
                if !differing.iter().any(|known| known.contains(&line[3..])) {
                    let last = &log[log.len().saturating_sub(30)..];
                    eprintln!("{}\n  ours: {own}\n  theirs: {other}", last.join("\n"));
                    differing.push(format!(
                        "{}\n  ours of {client}:   {own}\n  theirs of {client}: {other}",
                        last.join("\n")
                    ));
                }
                assert!(differing.len() < DIFFERING_MAX, "seed {seed}\n{}", differing.join("\n"));
            }
        }
        for client in 0..CLIENTS {
            if ours.received.has_ended[client] {
                let end = theirs[client].read(&mut [0]);
                let last = || log[log.len().saturating_sub(150)..].join("\n");
                assert!(
                    matches!(end, Ok(0)),
                    "seed {seed}: client {client} ends here alone\n{}",
                    last()
                );
                theirs[client] = connect();
                ours.open_again(client);
                ended += 1;
                (queued_lists[client], in_transaction[client]) = (false, false);
            }
        }
    }
    eprintln!("refused by rule, with {workers} workers: {refused:?}; {ended} connections ended");
    if memory_bytes_max.is_some() {
        // A subscribed client receives nothing else: begin anew.
        ours.reply_to(CLIENTS - 1, b"DISCARD\r\nRESET\r\n");
        let info = ours.reply_to(CLIENTS - 1, b"INFO memory\r\n");
        let of =
            |name: &str| info.lines().filter(|line| line.starts_with(name)).collect::<String>();
        eprintln!("{} {} {}", of("lsm_"), of("used_memory_dataset"), of("maxmemory:"));
        let fetched: u64 =
            of("lsm_fetched:").rsplit(':').next().map_or(0, |n| n.parse().unwrap_or(0));
        assert!(fetched > 5, "hardly anything was on the disk: {info}");
    }
    drop(redis);
    assert!(differing.is_empty(), "seed {seed}\n{}", differing.join("\n"));
}

/// Of one client, which pauses all when it has set keys that are soon due.
const PAUSED: &[&str] = &[
    "multi",
    "set k v px 1",
    "rpush l a",
    "pexpire l 1",
    "set w v px 1",
    "client pause 100000 write",
    "exec",
    "wait until they are due",
    "get k",
    "exists k l w",
    "ttl k",
    "pttl k",
    "type l",
    "strlen k",
    "llen l",
    "lrange l 0 -1",
    "object encoding k",
    "keys *",
    "scan 0",
    "dbsize",
    "watch w",
    "multi",
    "get w",
    "dbsize",
    "exec",
    "watch w",
    "client unpause",
    "multi",
    "ping",
    "exec",
    "get k",
    "get w",
    "llen l",
    "dbsize",
];

#[test]
fn paused_clients_see_what_they_see_of_redis() {
    let mut redis = match Redis::start("server-judge-paused") {
        Ok(redis) => redis,
        Err(why) => return laneway_testkit::skip(why),
    };
    let mut ours = Ours::new(1, None);
    for line in PAUSED {
        if line.starts_with("wait ") {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let args: Args = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let mut bytes = Vec::new();
        laneway_resp::command(&args.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
        let theirs = String::from_utf8_lossy(&redis.ask(&args)).into_owned();
        assert_eq!(ours.reply_to(0, &bytes), theirs, "{line}");
    }
}

/// As many bytes of the judge as ours are; fewer if it has no more to say.
fn read_as(own: &[u8], stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; own.len()];
    let mut read = 0;
    while read < bytes.len() {
        match stream.read(&mut bytes[read..]) {
            Ok(more) if more > 0 => read += more,
            _ => break,
        }
    }
    bytes.truncate(read);
    bytes
}

/// What else it has sent by now.
fn rest(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    stream.set_nonblocking(true).expect("it can be");
    let read = stream.read(&mut bytes).unwrap_or(0);
    stream.set_nonblocking(false).expect("it can be");
    bytes.truncate(read);
    bytes
}
