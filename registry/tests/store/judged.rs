//! The judge over real lanes: random commands on data by two connections that take turns, to two workers of ours and to
//! a real
//! `redis-server` 7.0, and the same replies. Commands, and what may differ, are those of the judge in
//! `apps/kv/tests/data`. What two workers refuse, because keys are of several slots, is counted and not asked of the
//! judge. The seed is drawn anew and printed.

#[path = "../../../apps/kv/tests/data/commands.rs"]
mod commands;
#[path = "../../../apps/kv/tests/data/excused.rs"]
mod excused;

use super::{Folder, namespace, output_of, served_by, two_cpus};
use crate::client::Args;
use commands::command;
use excused::{is_by_chance, is_excused, is_unordered, sorted};
use laneway_netns::Namespace;
use laneway_testkit::{Random, skip};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Asked by each connection, as long as nothing differs.
const COMMANDS: usize = 2_500;
const PATIENCE: Duration = Duration::from_secs(60);
/// The judge's port; ours is Redis's own.
const JUDGE: u16 = 6390;

/// A connection, asked one command at a time.
struct Asked(BufReader<TcpStream>);

impl Asked {
    fn new(near: &Namespace, port: u16) -> Asked {
        let begun = Instant::now();
        loop {
            let stream = near.enter(|| TcpStream::connect(("127.0.0.1", port)));
            if let Ok(stream) = stream.expect("its namespace is there") {
                stream.set_nodelay(true).expect("a socket has this");
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket has this");
                return Asked(BufReader::new(stream));
            }
            assert!(begun.elapsed() < PATIENCE, "no server listens at port {port}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ask(&mut self, args: &Args) -> Vec<u8> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            request.extend(format!("${}\r\n", arg.len()).into_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&request).expect("it reads");
        let mut reply = Vec::new();
        self.read(&mut reply);
        reply
    }

    fn read(&mut self, reply: &mut Vec<u8>) {
        let from = reply.len();
        let read = self.0.read_until(b'\n', reply).expect("it answers");
        assert!(read > 0, "it has closed the connection");
        let head = String::from_utf8_lossy(&reply[from + 1..]).trim_end().to_owned();
        let len = head.parse::<i64>().unwrap_or(-1);
        match reply[from] {
            b'$' if len >= 0 => {
                let body = reply.len();
                reply.resize(body + len as usize + 2, 0);
                self.0.read_exact(&mut reply[body..]).expect("it answers");
            }
            b'*' => (0..len.max(0)).for_each(|_| self.read(reply)),
            _ => {}
        }
    }
}

/// A server of the test's own, ended with it.
struct Judge(Child);

impl Judge {
    fn start(near: &Namespace, folder: &Folder) -> Judge {
        std::fs::create_dir_all(&folder.0).expect("a folder can be made for the test");
        let mut command = near.command("redis-server");
        command.args(["--port", &JUDGE.to_string(), "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(&folder.0).stdout(Stdio::null()).stderr(Stdio::null());
        Judge(command.spawn().expect("it is installed"))
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is compared between two workers and one server: SCAN goes through workers in turn, and a wait keeps its
/// connection.
fn is_compared(args: &Args) -> bool {
    let is_select = args[0] == b"select"
        && !matches!(&args[1..], [number] if *number == b"0" || *number == b"1");
    !is_select && !is_by_chance(args) && args[0] != b"scan"
}

fn judged_on(spec: &str, words: &[&str]) {
    let version = Command::new("redis-server").arg("--version").output();
    if !version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("v=7.0.")) {
        return skip("redis-server 7.0, the judge, is not installed");
    }
    let (Some(near), Some(cpus)) = (namespace("near"), two_cpus()) else { return };
    let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()));
    let name = format!("laneway-judge-{spec}-{}-{}", words.len(), std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    let _judge = Judge::start(&near, &folder);
    let seed = laneway_testkit::seed();
    let (mut draw, dir) = (Random::seeded(seed), folder.0.join("data").display().to_string());
    let words: Vec<&str> =
        words.iter().map(|word| if *word == "DIR" { &dir } else { *word }).collect();
    served_by(&cpus, &near, spec, &[], &words, |_| {
        let mut pairs: Vec<(Asked, Asked)> =
            (0..2).map(|_| (Asked::new(&near, 6379), Asked::new(&near, JUDGE))).collect();
        let (mut refused, mut asked): (usize, Vec<String>) = (0, Vec::new());
        for round in 0..2 * COMMANDS {
            let args = command(&mut draw);
            if !is_compared(&args) {
                continue;
            }
            let (ours, theirs) = &mut pairs[round % 2];
            asked.push(args.join(&b' ').escape_ascii().to_string());
            let own = ours.ask(&args);
            if own.starts_with(b"-CROSSSLOT") {
                refused += 1;
                continue;
            }
            let other = theirs.ask(&args);
            let is_same = match is_unordered(&args) {
                true => sorted(&own) == sorted(&other),
                false => own == other,
            };
            let last = || asked[asked.len().saturating_sub(20)..].join("\n");
            assert!(
                is_same || is_excused(&args, &own, &other),
                "seed {seed}, connection {}:\n{}\nours:   {}\ntheirs: {}",
                round % 2,
                last(),
                own.escape_ascii(),
                other.escape_ascii()
            );
        }
        let info = output_of(&near, "redis-cli INFO memory");
        let of =
            |name: &str| info.lines().filter(|line| line.starts_with(name)).collect::<String>();
        eprintln!(
            "{spec}: {} compared, {refused} refused by rule {}",
            asked.len() - refused,
            of("lsm_")
        );
        output_of(&near, "redis-cli SHUTDOWN");
    });
}

#[test]
fn two_workers_answer_as_redis_does_on_kernel_sockets() {
    judged_on("socket", &[]);
}

#[test]
fn two_workers_answer_as_redis_does_on_io_uring() {
    judged_on("uring", &[]);
}

/// With values beyond memory on the disk, whose answers come by the bell.
#[test]
fn two_workers_answer_as_redis_does_with_values_on_disk() {
    let lsm = ["--store", "lsm", "--dir", "DIR", "--maxmemory", "8kb"];
    judged_on("socket", &lsm);
    judged_on("uring", &lsm);
}
