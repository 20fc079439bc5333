//! In front of a real Redis Cluster: three primaries, three replicas; slots move and a primary is killed under load.
//!
//! Each key has one writer, and its value is a number that grows. Readers ask through the store alone, and hold each
//! answer against what was answered to the writers before: through the store, at once; beside it, behind the bound.
//! Before the kill the writers pause until the replicas have everything: what Redis's asynchronous replication would
//! lose by itself is kept out, so every answered write must be there at the end.

use super::{Folder, missing, namespace, output_of, served_by, two_cpus};
use laneway_netns::Namespace;
use laneway_testkit::skip;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PORTS: [u16; 6] = [7100, 7101, 7102, 7103, 7104, 7105];
const STORE: u16 = 6379;
const BOUND: Duration = Duration::from_millis(500);
/// Keys of each way of writing.
const KEYS: usize = 200;
/// How long a program may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes, ended with the test.
struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that was killed already is there to be waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One connection.
struct Conn(BufReader<TcpStream>);

impl Conn {
    fn open(port: u16) -> std::io::Result<Conn> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Conn(BufReader::new(stream)))
    }

    /// The reply to an inline command; the text of a bulk string, nothing for none.
    fn ask(&mut self, line: &str) -> std::io::Result<String> {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes())?;
        let mut head = String::new();
        if self.0.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let head = head.trim_end();
        let Some(len) = head.strip_prefix('$').and_then(|len| len.parse::<i64>().ok()) else {
            return Ok(head.to_owned());
        };
        let Ok(len) = usize::try_from(len) else { return Ok(String::new()) };
        let mut bytes = vec![0; len + 2];
        self.0.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
    }
}

/// A client of the cluster itself: it goes where it is sent.
#[derive(Default)]
struct Direct {
    conns: [Option<Conn>; PORTS.len()],
    at: usize,
}

impl Direct {
    /// Asks until an answer is there that is no redirection.
    fn ask(&mut self, line: &str) -> String {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match self.once(self.at, line) {
                Some(text) if text.starts_with("-MOVED") => self.at = node_of(&text),
                Some(text) if text.starts_with("-ASK") => {
                    let to = node_of(&text);
                    let reply = self.once(to, "ASKING").and_then(|_| self.once(to, line));
                    if let Some(text) = reply.filter(|text| !text.starts_with('-')) {
                        return text;
                    }
                }
                Some(text) if text.starts_with("-TRYAGAIN") || text.starts_with("-CLUSTERDOWN") => {
                    sleep(Duration::from_millis(20));
                }
                Some(text) => return text,
                None => {
                    self.at = (self.at + 1) % PORTS.len();
                    sleep(Duration::from_millis(20));
                }
            }
        }
        panic!("the cluster does not answer to {line}");
    }

    fn once(&mut self, node: usize, line: &str) -> Option<String> {
        if self.conns[node].is_none() {
            self.conns[node] = Conn::open(PORTS[node]).ok();
        }
        let reply = self.conns[node].as_mut()?.ask(line).ok();
        if reply.is_none() {
            self.conns[node] = None;
        }
        reply
    }
}

fn node_of(redirection: &str) -> usize {
    let port = redirection.rsplit(':').next().and_then(|port| port.trim().parse().ok());
    PORTS.iter().position(|&of| Some(of) == port).expect("a node of ours")
}

/// What writers were answered.
struct Written {
    through: Vec<AtomicU64>,
    beside: Vec<Mutex<Vec<(u64, Instant)>>>,
    is_over: AtomicBool,
    are_paused: AtomicBool,
    /// Writers that have seen that.
    resting: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
    unanswered: AtomicU64,
}

impl Written {
    fn new() -> Written {
        Written {
            through: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
            beside: (0..KEYS).map(|_| Mutex::new(Vec::new())).collect(),
            is_over: AtomicBool::new(false),
            are_paused: AtomicBool::new(false),
            resting: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
        }
    }

    /// Rests while the writers are to; false at the end.
    fn goes_on(&self) -> bool {
        if self.are_paused.load(Ordering::SeqCst) {
            self.resting.fetch_add(1, Ordering::SeqCst);
            while self.are_paused.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(2));
            }
            self.resting.fetch_sub(1, Ordering::SeqCst);
        }
        !self.is_over.load(Ordering::SeqCst)
    }

    /// Writes the keys of one remainder through the store.
    fn write_through(&self, writer: usize, writers: usize) {
        let mut conn = Conn::open(STORE).expect("the store is there");
        for number in 1.. {
            for key in (writer..KEYS).step_by(writers) {
                if !self.goes_on() {
                    return;
                }
                let reply = conn.ask(&format!("SET t{key} {number}")).expect("the store answers");
                if reply == "+OK" {
                    self.through[key].store(number, Ordering::SeqCst);
                    self.writes.fetch_add(1, Ordering::Relaxed);
                } else {
                    assert!(
                        reply.starts_with("-IOERR") || reply.starts_with("-CLUSTERDOWN"),
                        "{reply}"
                    );
                    self.unanswered.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn write_beside(&self) {
        let mut direct = Direct::default();
        for number in 1.. {
            for (key, answered) in self.beside.iter().enumerate() {
                if !self.goes_on() {
                    return;
                }
                let reply = direct.ask(&format!("SET b{key} {number}"));
                assert_eq!(reply, "+OK");
                answered.lock().expect("no panic holds it").push((number, Instant::now()));
                sleep(Duration::from_micros(300));
            }
        }
    }

    fn read(&self, mut draw: u64) {
        let mut conn = Conn::open(STORE).expect("the store is there");
        while !self.is_over.load(Ordering::SeqCst) {
            draw = draw
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Some keys are asked for again and again.
            let key = (draw >> 33) as usize % if draw >> 63 == 0 { KEYS } else { 8 };
            let is_through = draw >> 40 & 1 == 0;
            let began = Instant::now();
            let (name, least) = if is_through {
                (format!("t{key}"), self.through[key].load(Ordering::SeqCst))
            } else {
                let answered = self.beside[key].lock().expect("no panic holds it");
                let settled = answered.iter().rev().find(|(_, at)| *at + BOUND <= began);
                (format!("b{key}"), settled.map_or(0, |(number, _)| *number))
            };
            let reply = conn.ask(&format!("GET {name}")).expect("the store answers");
            if reply.starts_with('-') {
                assert!(reply.starts_with("-CLUSTERDOWN"), "{reply}");
                continue;
            }
            let number: u64 = if reply.is_empty() { 0 } else { reply.parse().expect("a number") };
            assert!(number >= least, "{name} is {number}, and {least} was answered before");
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Waits until a line of shell says something with that text.
fn until(near: &Namespace, line: &str, text: &str) {
    let began = Instant::now();
    loop {
        let reply = output_of(near, line);
        if reply.contains(text) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{line}: {reply}, and not {text}");
        sleep(Duration::from_millis(50));
    }
}

/// Six nodes that are one cluster.
fn cluster(near: &Namespace, folder: &Folder) -> Nodes {
    std::fs::create_dir_all(&folder.0).expect("a folder of ours");
    let mut nodes = Nodes(Vec::new());
    for port in PORTS {
        // It ends with this process, however that ends.
        let mut command = near.command("setpriv");
        command.args(["--pdeathsig", "KILL", "redis-server"]);
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(&folder.0);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--cluster-enabled", "yes", "--cluster-node-timeout", "1500"]);
        command.arg("--cluster-config-file").arg(format!("nodes-{port}.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        nodes.0.push(command.spawn().expect("it was there a moment ago"));
    }
    for port in PORTS {
        until(near, &format!("redis-cli -p {port} PING"), "PONG");
    }
    let all: Vec<String> = PORTS.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let all = all.join(" ");
    let line = format!("redis-cli --cluster create {all} --cluster-replicas 1 --cluster-yes");
    let created = output_of(near, &line);
    assert!(created.contains("All 16384 slots covered"), "{created}");
    for port in PORTS {
        until(near, &format!("redis-cli -p {port} CLUSTER INFO"), "cluster_state:ok");
    }
    for port in &PORTS[3..] {
        until(near, &format!("redis-cli -p {port} INFO replication"), "master_link_status:up");
    }
    nodes
}

/// Moves slots of one node to another while all clients write.
fn move_slots(near: &Namespace) {
    let id =
        |port: u16| output_of(near, &format!("redis-cli -p {port} CLUSTER MYID")).trim().to_owned();
    let (from, to) = (id(PORTS[0]), id(PORTS[1]));
    let line = format!(
        "redis-cli --cluster reshard 127.0.0.1:{} --cluster-from {from} --cluster-to {to} \
         --cluster-slots 400 --cluster-yes | tail -n 3",
        PORTS[0]
    );
    let moved = output_of(near, &line);
    assert!(moved.contains("Moving slot") && !moved.contains("ERR"), "{moved}");
}

/// Kills a primary when its replicas have all that was written.
fn kill_primary(near: &Namespace, nodes: &mut Nodes, written: &Written, writers: u64) {
    written.are_paused.store(true, Ordering::SeqCst);
    while written.resting.load(Ordering::SeqCst) < writers {
        sleep(Duration::from_millis(2));
    }
    let began = Instant::now();
    loop {
        let info = output_of(near, &format!("redis-cli -p {} INFO replication", PORTS[2]));
        let behind = |name: &str| {
            let (_, rest) = info.split_once(name)?;
            rest.split(|at: char| !at.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        if behind(",offset=").is_some() && behind(",offset=") == behind("master_repl_offset:") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the replica does not follow: {info}");
    }
    nodes.0[2].kill().expect("it is ours");
    nodes.0[2].wait().expect("it is ours");
    written.are_paused.store(false, Ordering::SeqCst);
    let line = format!("redis-cli -p {} CLUSTER NODES | grep {} ", PORTS[0], PORTS[2]);
    until(near, &line, "master,fail");
    until(near, &format!("redis-cli -p {} CLUSTER INFO", PORTS[0]), "cluster_state:ok");
}

/// `make soak APP=kv-cluster`.
#[test]
#[ignore = "runs for as long as LANEWAY_SOAK_SECONDS says"]
fn soak_in_front() {
    let began = Instant::now();
    while began.elapsed().as_secs() < laneway_testkit::soak::seconds() {
        in_front_of_a_cluster(&[]);
        in_front_of_a_cluster(&two_cpus().unwrap_or_default());
    }
}

#[test]
fn a_cluster_behind_the_store_loses_no_answered_write_and_no_read_is_too_old() {
    in_front_of_a_cluster(&[]);
}

/// A key is of one of them, whichever the connection is of.
#[test]
fn a_cluster_behind_two_workers_loses_no_answered_write_and_no_read_is_too_old() {
    if let Some(cpus) = two_cpus() {
        in_front_of_a_cluster(&cpus);
    }
}

/// By a worker on each of these CPUs, or one.
fn in_front_of_a_cluster(cpus: &[usize]) {
    if let Some(program) = missing(&["redis-server"]) {
        return skip(format!("the program `{program}` is not installed"));
    }
    let Some(near) = namespace("near") else { return };
    let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()));
    let name = format!("laneway-store-cluster-{}-{}", cpus.len(), std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    let mut nodes = cluster(&near, &folder);
    let url = format!("redis-cluster://127.0.0.1:{},127.0.0.1:{}", PORTS[0], PORTS[3]);
    let bound_ms = BOUND.as_millis().to_string();
    let words = [
        "--upstream",
        &url,
        "--maxmemory",
        "64mb",
        "--upstream-bound-ms",
        &bound_ms,
        "--upstream-timeout-ms",
        "30000",
    ];
    served_by(cpus, &near, "socket", &[], &words, |_| {
        let written = Written::new();
        let cli = "redis-cli";
        for (line, reply) in [
            ("SET s 'a value'", "OK\n"),
            ("GET s", "a value\n"),
            ("STRLEN s", "7\n"),
            ("HSET h f v", "1\n"),
            ("-3 --no-raw HGETALL h", "1# \"f\" => \"v\"\n"),
            ("HGETALL h", "f\nv\n"),
            ("LPOP none 2", "\n"),
            ("STRLEN h", "WRONGTYPE Operation against a key holding the wrong kind of value\n\n"),
            ("SET e v PX 60000", "OK\n"),
            ("GET e", "v\n"),
            ("MGET s e", "CROSSSLOT Keys in request don't hash to the same slot\n\n"),
            ("SELECT 1", "ERR DB index is out of range\n\n"),
            ("KEYS '*'", "ERR 'keys' is not served in front of a cluster: ask a node of it\n\n"),
        ] {
            let line = format!("{cli} {line}");
            assert_eq!(output_of(&near, &line), reply, "{line}");
        }
        let enter = |what: &(dyn Fn() + Sync)| near.enter(what).expect("its namespace");
        std::thread::scope(|scope| {
            let (written, enter) = (&written, &enter);
            for writer in 0..2 {
                scope.spawn(move || enter(&|| written.write_through(writer, 2)));
            }
            scope.spawn(move || enter(&|| written.write_beside()));
            for reader in 0..3 {
                scope.spawn(move || enter(&|| written.read(reader)));
            }
            let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                sleep(Duration::from_millis(500));
                move_slots(&near);
                kill_primary(&near, &mut nodes, written, 3);
                sleep(Duration::from_secs(1));
            }));
            written.are_paused.store(false, Ordering::SeqCst);
            written.is_over.store(true, Ordering::SeqCst);
            tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        near.enter(|| {
            let mut direct = Direct::default();
            for (key, answered) in written.through.iter().enumerate() {
                let answered = answered.load(Ordering::SeqCst);
                let there: u64 = direct.ask(&format!("GET t{key}")).parse().unwrap_or(0);
                assert!(there >= answered, "t{key} is {there}, and {answered} was answered");
            }
        })
        .expect("its namespace");
        let info = output_of(&near, "redis-cli INFO stats | grep upstream");
        let figure = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let (reads, writes) = (&written.reads, &written.writes);
        eprintln!(
            "{reads:?} reads, {writes:?} writes through, {:?} without an answer\n{info}",
            written.unanswered
        );
        assert!(figure("upstream_hits") > 0 && figure("upstream_invalidated") > 0, "{info}");
        output_of(&near, "redis-cli SHUTDOWN NOSAVE");
    });
}
