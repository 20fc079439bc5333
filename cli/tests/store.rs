//! `laneway run kv` is killed at random moments, under load and while it saves: what it answered is there at
//! the next start, and of each client a beginning of what it asked for, nothing else.
//!
//! ```text
//!   clients, each with keys of its own ─ pipelines of numbered writes ─▶ store ─ log, snapshots ─▶ folder
//!   operator ─ BGSAVE, BGREWRITEAOF ──────────────────────────────────────╯ ╰─ SIGKILL, start, compare
//! ```
//!
//! `make soak APP=kv LANE=socket WORKERS=2 MINUTES=10`; the seed is drawn anew each time and printed, and `SEED=n`
//! draws the same again. Under `always` all that was answered must be there; under `everysec` a kill may cost the
//! writes of the last moment, and still leaves a beginning of them. Some rounds end in quiet: each client has its last
//! reply, the last of all to a long value behind a busy writer, and nothing follows before the kill. There all that was
//! answered must be there under `everysec`, too. A cut of the power is for the tests of `apps/kv`, on a disk that is
//! simulated.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a soak ends with a table")]

mod many;
mod world;

use laneway_netns::{Namespace, can_create};
use laneway_testkit::{Random, skip, soak as asked};
use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{self, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use world::{LANEWAY, Running};

const ADDRESS: &str = "127.0.0.1:6379";
/// How long a start may take on a busy machine, and any reply.
const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS_SHORT: u64 = 10;
const CLIENTS: u64 = 4;
/// Keys that nothing writes to again: a snapshot takes some time.
const FILL: u64 = 4_000;
/// Fields of each kind that a client writes to.
const SLOTS: u64 = 37;
const LIST_MAX: usize = 20;
const DEPTH_MAX: u64 = 16;
/// Connections that are there at a time: in `make test`, and when asked for.
const MANY_SHORT: u64 = 200;
const MANY: u64 = 10_000;
/// From the moment that all clients write to the kill, at most.
const MOMENT_MS_MAX: u64 = 250;
/// One of so many writes is long: no multiple of 7 or of [`SLOTS`].
const LONG_EVERY: u64 = 151;
/// More than the journal copies behind a record that waits.
const LONG_BYTES: u64 = 300 << 10;
const LONG_BYTES_MAX: u64 = 2 << 20;
/// Behind a long write a client asks for nothing.
const PAUSE: Duration = Duration::from_millis(5);
/// Longer than what `everysec` may lose.
const QUIET: Duration = Duration::from_secs(2);

/// Who writes: by a number that no other has, and long values or none.
#[derive(Clone, Copy, Default)]
struct Client {
    number: u64,
    has_long: bool,
}

/// What a client's keys hold when so many of its writes are done.
#[derive(Clone, Default)]
struct Model {
    client: Client,
    done: u64,
    strings: BTreeMap<String, u64>,
    list: VecDeque<u64>,
    hash: BTreeMap<String, u64>,
    sorted: BTreeMap<String, u64>,
    /// The last that was long, and how long.
    long: Option<(u64, u64)>,
}

impl Client {
    /// How long a value is that the write of this number sets, if that is a long one.
    fn long_bytes(self, number: u64) -> Option<u64> {
        let (of_them, rest) = (number / LONG_EVERY, number % LONG_EVERY);
        let is_longer = of_them % 4 == 3;
        let more = if is_longer { of_them * 77_777 % (LONG_BYTES_MAX - LONG_BYTES) } else { 0 };
        (self.has_long && rest == 0).then_some(LONG_BYTES + more)
    }
}

/// Where a client's numbers are that one write has both of. All keys of a client have one tag, so they are of one
/// worker: two workers lose an end each of their logs under `everysec`, and no order of writes is the order of both.
fn names(client: u64, slot: u64) -> [String; 2] {
    [format!("n{{{client}}}"), format!("s{{{client}}}:{slot}")]
}

/// The client's write of that number. Each is answered by one line.
fn write_of(by: Client, number: u64) -> String {
    let (client, slot) = (by.number, number % SLOTS);
    let [newest, own] = names(client, slot);
    if let Some(bytes) = by.long_bytes(number) {
        // No inline command is so long.
        let (key, value) = (format!("b{{{client}}}"), format!("{number}:"));
        let (head, rest) = (value.len() as u64 + bytes, "v".repeat(bytes as usize));
        return format!(
            "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${head}\r\n{value}{rest}\r\n",
            key.len()
        );
    }
    match number % 7 {
        0 => format!("MSET {newest} {number} {own} {number}\r\n"),
        1 => format!("RPUSH l{{{client}}} {number}\r\n"),
        2 => format!("HSET h{{{client}}} n {number} f{slot} {number}\r\n"),
        3 => format!("ZADD z{{{client}}} {number} n {number} m{slot}\r\n"),
        4 => format!("LTRIM l{{{client}}} -{LIST_MAX} -1\r\n"),
        5 => format!("DEL {own}\r\n"),
        // Its time is up at once.
        _ => format!("PEXPIREAT {own} 1\r\n"),
    }
}

impl Model {
    fn write(&mut self) {
        self.done += 1;
        let (client, number, slot) = (self.client.number, self.done, self.done % SLOTS);
        let both = |[first, second]: [String; 2]| [(first, number), (second, number)];
        if let Some(bytes) = self.client.long_bytes(number) {
            self.long = Some((number, bytes));
            return;
        }
        match number % 7 {
            0 => self.strings.extend(both(names(client, slot))),
            1 => self.list.push_back(number),
            2 => self.hash.extend(both(["n".to_owned(), format!("f{slot}")])),
            3 => self.sorted.extend(both(["n".to_owned(), format!("m{slot}")])),
            4 => drop(self.list.drain(..self.list.len().saturating_sub(LIST_MAX))),
            _ => drop(self.strings.remove(&names(client, slot)[1])),
        }
    }

    fn keys(&self) -> u64 {
        let [list, hash] = [!self.list.is_empty(), !self.hash.is_empty()];
        let others = [list, hash, !self.sorted.is_empty(), self.long.is_some()];
        self.strings.len() as u64 + others.iter().map(|is_there| u64::from(*is_there)).sum::<u64>()
    }

    /// As [`contents`] reads it.
    fn contents(&self) -> Vec<String> {
        let pairs = |of: &BTreeMap<String, u64>| {
            of.iter().map(|(name, number)| format!("{name} {number}")).collect::<Vec<_>>()
        };
        let list: Vec<String> = self.list.iter().map(u64::to_string).collect();
        let long = self.long.map(|(number, bytes)| long_text(number, bytes));
        let single = vec![list.join(" "), long.unwrap_or_default()];
        [pairs(&self.strings), single, pairs(&self.hash), pairs(&self.sorted)].concat()
    }
}

/// A long value, as it is compared.
fn long_text(number: u64, bytes: u64) -> String {
    format!("{number} and {bytes} bytes")
}

/// A connection to the store.
struct Asked(BufReader<TcpStream>);

impl Asked {
    fn new(near: &Namespace) -> io::Result<Asked> {
        let stream = near.enter(|| TcpStream::connect(ADDRESS)).expect("its namespace is there")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Asked(BufReader::new(stream)))
    }

    fn send(&mut self, lines: &str) -> io::Result<()> {
        self.0.get_mut().write_all(lines.as_bytes())
    }

    /// A reply's values, one behind the other; nothing is empty.
    fn reply(&mut self) -> io::Result<Vec<String>> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let count = || rest.parse::<i64>().expect("a number");
        match kind {
            "$" if count() >= 0 => {
                let mut bytes = vec![0; count() as usize + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(vec![String::from_utf8(bytes).expect("text")])
            }
            "$" => Ok(vec![String::new()]),
            "*" => {
                let mut values = Vec::new();
                for _ in 0..count() {
                    values.extend(self.reply()?);
                }
                Ok(values)
            }
            "-" => panic!("the store says: {rest}"),
            _ => Ok(vec![rest.to_owned()]),
        }
    }

    fn ask(&mut self, line: &str) -> Vec<String> {
        let asked = self.send(&format!("{line}\r\n")).and_then(|()| self.reply());
        asked.unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

/// What a client's keys hold.
fn contents(asked: &mut Asked, client: u64) -> Vec<String> {
    let mut all: Vec<String> = (0..SLOTS).flat_map(|slot| names(client, slot)).collect();
    all.sort();
    all.dedup();
    let values = asked.ask(&format!("MGET {}", all.join(" ")));
    let there = all.iter().zip(values).filter(|(_, value)| !value.is_empty());
    let mut contents: Vec<String> = there.map(|(name, value)| format!("{name} {value}")).collect();
    contents.push(asked.ask(&format!("LRANGE l{{{client}}} 0 -1")).join(" "));
    let long = asked.ask(&format!("GET b{{{client}}}")).concat();
    let parts = long.split_once(':').filter(|(_, rest)| rest.bytes().all(|byte| byte == b'v'));
    contents.push(match parts {
        Some((number, rest)) => long_text(number.parse().expect("a number"), rest.len() as u64),
        None => long,
    });
    for line in [format!("HGETALL h{{{client}}}"), format!("ZRANGE z{{{client}}} 0 -1 WITHSCORES")]
    {
        let mut pairs: Vec<String> =
            asked.ask(&line).chunks(2).map(|pair| pair.join(" ")).collect();
        pairs.sort();
        contents.extend(pairs);
    }
    contents
}

/// Quiet before the kill: it is asked for, then the clients end, one behind the other.
#[derive(Default)]
struct Quiet {
    is_asked_for: AtomicBool,
    turns: Mutex<()>,
}

impl Quiet {
    fn is_asked_for(&self) -> bool {
        self.is_asked_for.load(Ordering::Relaxed)
    }
}

/// Writes until the store is gone or quiet is asked for: how many were sent, and how many answered.
fn load(
    near: &Namespace,
    client: Client,
    from: u64,
    mut draw: Random,
    quiet: &Quiet,
) -> (u64, u64) {
    let (mut sent, mut answered) = (from, from);
    let Ok(mut asked) = Asked::new(near) else { return (sent, answered) };
    while !quiet.is_asked_for() {
        let mut lines = String::new();
        for _ in 0..=draw.below(DEPTH_MAX) {
            sent += 1;
            lines += &write_of(client, sent);
            if client.long_bytes(sent).is_some() {
                break;
            }
        }
        if asked.send(&lines).is_err() {
            return (sent, answered);
        }
        while answered < sent {
            if asked.reply().is_err() {
                return (sent, answered);
            }
            answered += 1;
        }
        if client.long_bytes(sent).is_some() {
            thread::sleep(PAUSE);
        }
    }
    let _turn = quiet.turns.lock().unwrap_or_else(PoisonError::into_inner);
    let end = end_with_a_long_one(&mut asked, client, sent);
    (end, end)
}

/// Writes up to a long one, the last, and reads all replies; the number of the last. Its record is committed while the
/// writer works for one before it, and another waits.
fn end_with_a_long_one(asked: &mut Asked, client: Client, sent: u64) -> u64 {
    let end = (sent + 3).next_multiple_of(LONG_EVERY);
    let lines: String = (sent + 1..=end - 3).map(|number| write_of(client, number)).collect();
    asked.send(&lines).expect("it runs");
    let hear = |asked: &mut Asked, replies: u64| {
        (0..replies).for_each(|_| drop(asked.reply().expect("each write is answered")));
    };
    hear(asked, end - 3 - sent);
    // Until the writer sleeps. A turn for each of the three, and no longer than the writer naps for all.
    thread::sleep(PAUSE);
    for number in end - 2..=end {
        asked.send(&write_of(client, number)).expect("it runs");
        thread::sleep(Duration::from_micros(100));
    }
    hear(asked, 3);
    end
}

/// Has it save until it is gone, or that is enough: then until nothing is being saved, because a snapshot that ends
/// hands over what was left behind.
fn operate(near: &Namespace, mut draw: Random, is_enough: &AtomicBool) {
    let Ok(mut asked) = Asked::new(near) else { return };
    while !is_enough.load(Ordering::Relaxed) {
        let verb = ["BGSAVE SCHEDULE", "BGREWRITEAOF"][draw.below(2) as usize];
        thread::sleep(Duration::from_millis(draw.below(30)));
        // One that is under way is refused, in one line.
        let mut line = String::new();
        let asked = asked.send(&format!("{verb}\r\n")).and_then(|()| asked.0.read_line(&mut line));
        if !asked.is_ok_and(|bytes| bytes > 0) {
            return;
        }
    }
    let goes_on = ["bgsave_in_progress:1", "rewrite_in_progress:1", "rewrite_scheduled:1"];
    while goes_on.iter().any(|one| asked.ask("INFO persistence").concat().contains(one)) {
        thread::sleep(Duration::from_millis(1));
    }
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts it; returns when it answers.
fn start(
    near: &Namespace,
    folder: &Folder,
    (lane, workers): (&str, u64),
    store: &[&str],
    fsync: &str,
) -> (Running, Asked) {
    let log = folder.0.join("stderr");
    let child = near
        .command(LANEWAY)
        .args(["run", "kv", "--lane", lane, "--listen", ADDRESS, "--dir"])
        .arg(folder.0.join("data"))
        .args(store)
        .args(["--appendfsync", fsync, "--workers", &workers.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).expect("a folder of ours"))
        .spawn();
    let mut running = Running(child.expect("the program starts"));
    let begun = Instant::now();
    loop {
        // It listens before it has read its log; and io_uring's sockets outlive a killed run for a moment.
        if let Ok(mut asked) = Asked::new(near)
            && asked.send("PING\r\n").is_ok()
            && let Ok(reply) = asked.reply()
        {
            assert_eq!(reply, ["PONG"]);
            return (running, asked);
        }
        let is_over = running.0.try_wait().expect("it is our child").is_some();
        if is_over || begun.elapsed() > PATIENCE {
            panic!("it does not serve: {}", fs::read_to_string(log).unwrap_or_default());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// How long: so many rounds, or so many seconds.
#[derive(Clone, Copy)]
enum Length {
    Rounds(u64),
    Seconds(u64),
}

const LOG: &[&str] = &["--appendonly", "yes"];
/// Room for the keys, and for few of their values.
const LSM: &[&str] = &["--store", "lsm", "--maxmemory", "400kb"];

/// How a round ends.
#[derive(Clone, Copy)]
struct Ending {
    is_always: bool,
    is_quiet: bool,
}

/// Has all clients write until a kill: how many writes each has sent, and how many of them must be there.
fn write_until_killed(
    near: &Namespace,
    running: &mut Running,
    models: &[Model],
    draw: &mut Random,
    Ending { is_always, is_quiet }: Ending,
) -> Vec<(u64, u64)> {
    let mut kill = || {
        running.0.kill().expect("it runs until then");
        running.0.wait().expect("it is our child");
    };
    let (quiet, is_saved) = (&Quiet::default(), &AtomicBool::new(false));
    thread::scope(|scope| {
        let own = Random::seeded(draw.below(u64::MAX));
        let operator = scope.spawn(move || operate(near, own, is_saved));
        let clients: Vec<_> = models
            .iter()
            .map(|&Model { client, done, .. }| {
                let own = Random::seeded(draw.below(u64::MAX));
                scope.spawn(move || load(near, client, done, own, quiet))
            })
            .collect();
        thread::sleep(Duration::from_millis(draw.below(MOMENT_MS_MAX)));
        if is_quiet {
            is_saved.store(true, Ordering::Relaxed);
            operator.join().expect("no reply is an error");
            quiet.is_asked_for.store(true, Ordering::Relaxed);
        } else {
            kill();
        }
        let ended = clients.into_iter().map(|client| client.join().expect("no reply is an error"));
        let ended: Vec<(u64, u64)> = ended.collect();
        if !is_quiet {
            return ended
                .into_iter()
                .map(|(sent, answered)| (sent, answered * u64::from(is_always)))
                .collect();
        }
        assert!(
            ended.iter().all(|(sent, answered)| sent == answered),
            "a reply is missing: {ended:?}"
        );
        thread::sleep(if is_always { Duration::ZERO } else { QUIET });
        kill();
        ended
    })
}

fn soak(on: (&str, u64), store: &[&str], length: Length, seed: u64) {
    let (lane, workers) = on;
    if let Err(why) = can_create() {
        return skip(why);
    }
    println!("kills of a store on {lane}, workers: {workers}, seed {seed}");
    let near = Namespace::create("store").expect("it can be created");
    let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()));
    let folder = Folder(env::temp_dir().join(format!(
        "laneway-store-{lane}-{workers}-{}-{}",
        store.len(),
        process::id()
    )));
    fs::create_dir(&folder.0).expect("the folder for temporary files can be written");
    let (mut draw, begun) = (Random::seeded(seed), Instant::now());
    // Where hardly more than the keys has room, a long value may be refused as memory that is missing.
    let has_long = store != LSM;
    let model = |number| Model { client: Client { number, has_long }, ..Model::default() };
    let mut models: Vec<Model> = (0..CLIENTS).map(model).collect();
    // Of each client, how many writes were sent, and how many must be there.
    let mut asked_for = vec![(0, 0); CLIENTS as usize];
    let (mut rounds, mut from_snapshots, mut torn, mut lost) = (0, 0, 0, 0);
    loop {
        let fsync = if rounds % 4 == 3 { "everysec" } else { "always" };
        let is_quiet = rounds % 8 == 3 || rounds % 8 == 5;
        let ending = Ending { is_always: fsync == "always", is_quiet };
        let (mut running, mut asked) = start(&near, &folder, on, store, fsync);
        let info = asked.ask("INFO persistence").concat();
        from_snapshots += u64::from(info.contains("of the snapshot from"));
        torn += u64::from(info.contains("were torn"));
        let what = format!("seed {seed}, round {rounds}");
        for (client, (model, (sent, least))) in models.iter_mut().zip(&asked_for).enumerate() {
            let there = contents(&mut asked, client as u64);
            while model.done < *sent && (model.done < *least || model.contents() != there) {
                model.write();
            }
            assert!(
                model.done >= *least && model.contents() == there,
                "{what}: client {client} sent {sent} writes, {least} must be there\n{info}\n{there:?}"
            );
            lost += sent - model.done;
        }
        let is_over = match length {
            // On a machine that is busy with others no snapshot may end before a kill.
            Length::Rounds(all) => rounds >= all && from_snapshots > 0 || rounds == all * 10,
            Length::Seconds(all) => begun.elapsed().as_secs() >= all,
        };
        if rounds == 0 {
            let mut lines = String::new();
            for number in 0..FILL {
                let _ = write!(lines, "SET fill:{number} {number:0>200}\r\n");
            }
            asked.send(&lines).expect("it runs");
            for _ in 0..FILL {
                assert_eq!(asked.reply().expect("it runs"), ["OK"]);
            }
        }
        let keys = FILL + models.iter().map(Model::keys).sum::<u64>();
        assert_eq!(asked.ask("DBSIZE"), [keys.to_string()], "{what}");
        for _ in 0..100 {
            let fill = draw.below(FILL);
            let reply = asked.ask(&format!("GET fill:{fill}"));
            assert_eq!(reply, [format!("{fill:0>200}")], "{what}");
        }
        if is_over {
            break;
        }
        asked_for = write_until_killed(&near, &mut running, &models, &mut draw, ending);
        rounds += 1;
    }
    let written: u64 = models.iter().map(|model| model.done).sum();
    println!("  kills              {rounds:>12}");
    println!(
        "  writes there       {written:>12}  ({lost} were sent and are not: unanswered, or under everysec)"
    );
    println!("  from a snapshot    {from_snapshots:>12}  starts, {torn} with a torn end");
    assert!(written > 0 && from_snapshots > 0, "nothing was shown");
}

#[test]
fn what_was_answered_is_there_behind_kills_on_socket() {
    soak(("socket", 1), LOG, Length::Rounds(ROUNDS_SHORT), asked::seed());
}

#[test]
fn what_was_answered_is_there_behind_kills_on_uring() {
    soak(("uring", 1), LOG, Length::Rounds(ROUNDS_SHORT), asked::seed());
}

#[test]
fn what_was_answered_by_two_workers_is_there_behind_kills() {
    soak(("socket", 2), LOG, Length::Rounds(ROUNDS_SHORT), asked::seed());
}

#[test]
fn nothing_is_left_of_connections_on_socket() {
    many::ten_times("socket", MANY_SHORT);
}

#[test]
fn nothing_is_left_of_connections_on_uring() {
    many::ten_times("uring", MANY_SHORT);
}

#[test]
fn nothing_is_left_of_connections_on_the_stack() {
    many::ten_times("packet", MANY_SHORT);
}

#[test]
#[ignore = "opens 10,000 connections ten times on LANEWAY_SOAK_LANE: socket, uring or packet"]
fn nothing_is_left_of_ten_thousand_connections() {
    many::ten_times(&asked::lane("socket"), MANY);
}

#[test]
#[ignore = "a figure, for a quiet machine: what 10,000 idle connections take, beside redis-server"]
fn memory_of_idle_connections() {
    many::idle(MANY);
}

#[test]
fn what_was_answered_is_there_behind_kills_with_values_on_disk() {
    soak(("uring", 1), LSM, Length::Rounds(ROUNDS_SHORT / 2), asked::seed());
}

#[test]
#[ignore = "runs for LANEWAY_SOAK_SECONDS, 600 by default, on LANEWAY_SOAK_LANE"]
fn soak_for_as_long_as_asked() {
    let on = (&*asked::lane("socket"), asked::workers());
    soak(on, LOG, Length::Seconds(asked::seconds()), asked::seed());
}
