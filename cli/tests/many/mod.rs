//! Connections opened and closed by the thousand, again and again: nothing of them is left in the store, neither
//! clients nor descriptors nor memory nor sockets of the kernel; and what an idle one takes, beside `redis-server`.
//!
//! In a round all connections are opened, each is asked something, some are left in the middle of a command, and all
//! are closed: half of them by a reset. Each round has a source address of its own, because ports rest a minute.

use super::world::{PATIENCE, REDIS, Running, SOURCES, World, opened};
use laneway_testkit::skip;
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// One for each address of the far end.
const ROUNDS: u64 = SOURCES;
/// Descriptors of a process beside its connections.
const FILES_MORE: u64 = 200;

fn asked(stream: &mut TcpStream, command: &str, reply: &str) {
    stream.write_all(command.as_bytes()).expect("it is open");
    let mut bytes = vec![0; reply.len()];
    stream.read_exact(&mut bytes).expect("it answers");
    assert_eq!(String::from_utf8_lossy(&bytes), reply, "{command:?}");
}

/// So many connections, all open, each answered once.
fn all_open(round: u64, connections: u64) -> Vec<TcpStream> {
    let open = |number| {
        let mut stream = opened(round)
            .unwrap_or_else(|| panic!("round {round}: connection {number} is not opened"));
        match number % 3 {
            0 => asked(&mut stream, &format!("SET {number} {round}\r\n"), "+OK\r\n"),
            _ => asked(&mut stream, "PING\r\n", "+PONG\r\n"),
        }
        if number % 5 == 0 {
            stream.write_all(b"*2\r\n$3\r\nGET\r\n$100\r\nabc").expect("it is open");
        }
        stream
    };
    (0..connections).map(open).collect()
}

fn close(streams: Vec<TcpStream>) {
    for (number, stream) in streams.into_iter().enumerate() {
        if number % 2 == 0 {
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a TCP socket");
        }
    }
}

/// What a process and its namespace have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    clients: u64,
    files: usize,
    /// Sockets of TCP in the kernel that are no listener's, and no resting port.
    sockets: u64,
}

struct Asker(TcpStream);

impl Asker {
    fn info(&mut self) -> String {
        self.0.write_all(b"INFO\r\n").expect("it is open");
        let mut text = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            let read = self.0.read(&mut bytes).expect("it answers");
            text.extend_from_slice(&bytes[..read]);
            let text = String::from_utf8_lossy(&text);
            if let Some((head, rest)) = text.split_once("\r\n")
                && rest.len() >= head[1..].parse::<usize>().expect("a length") + 2
            {
                return rest.to_owned();
            }
        }
    }

    fn number(&mut self, name: &str) -> u64 {
        let info = self.info();
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let line = line.unwrap_or_else(|| panic!("INFO has no {name}: {info}"));
        line.trim().parse().expect("a number")
    }
}

fn held(world: &World, running: &Running, asker: &mut Asker) -> Held {
    let files = fs::read_dir(format!("/proc/{}/fd", running.0.id())).expect("our child").count();
    let sockets = world.near.command("cat").arg("/proc/net/sockstat").output().expect("it runs");
    let text = String::from_utf8_lossy(&sockets.stdout).into_owned();
    let tcp = text.lines().find(|line| line.starts_with("TCP:")).expect("it has TCP");
    let sockets = tcp.split(' ').nth(2).expect("inuse").parse().expect("a number");
    Held { clients: asker.number("connected_clients"), files, sockets }
}

/// Bytes resident of a process.
fn resident(running: &Running) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", running.0.id())).expect("our child");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Lets this process and its children have so many files; `false`, with the reason printed, where they may not.
fn allow_files(connections: u64) -> bool {
    let needed = connections + FILES_MORE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < needed)
        && setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).is_err()
    {
        skip(format!("{connections} connections need {needed} files, and {maximum:?} are allowed"));
        return false;
    }
    true
}

/// Opens and closes so many connections ten times, on `lane`.
pub(super) fn ten_times(lane: &str, connections: u64) {
    if !allow_files(connections) {
        return;
    }
    let Some(world) = World::new(lane) else { return };
    let running = world.start(lane, connections, &[]);
    let inside = world.far.enter(|| {
        let mut asker = Asker(opened(0).expect("it serves"));
        let until = Instant::now() + PATIENCE;
        // That which looked whether it serves is still being closed.
        while asker.number("connected_clients") > 1 && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let accepted = asker.number("total_connections_received");
        let before = held(&world, &running, &mut asker);
        let mut memory = Vec::new();
        for round in 0..ROUNDS {
            let streams = all_open(round, connections);
            assert_eq!(asker.number("connected_clients"), connections + 1, "round {round}");
            close(streams);
            let until = Instant::now() + PATIENCE;
            loop {
                let now = held(&world, &running, &mut asker);
                if now == before {
                    break;
                }
                assert!(Instant::now() < until, "round {round}: {now:?} is left, was {before:?}");
                thread::sleep(Duration::from_millis(20));
            }
            memory.push(resident(&running));
        }
        let accepted = asker.number("total_connections_received") - accepted;
        assert_eq!(accepted, ROUNDS * connections);
        // What the first rounds have grown serves the later ones.
        let (third, last) = (memory[2], memory[ROUNDS as usize - 1]);
        assert!(last <= third + third / 20 + (2 << 20), "{lane}: it grows, {memory:?} bytes");
    });
    inside.expect("its namespace is there");
}

/// What so many idle connections take, of the store on each lane and of `redis-server`.
pub(super) fn idle(connections: u64) {
    if !allow_files(connections) {
        return;
    }
    for lane in ["socket", "uring", "packet", REDIS] {
        let name = if lane == REDIS { "redis-server" } else { lane };
        let is_there = std::process::Command::new("redis-server").arg("--version").output().is_ok();
        if lane == REDIS && !is_there {
            return skip("there is no redis-server");
        }
        let Some(world) = World::new(lane) else { return };
        let running = world.start(lane, connections, &[]);
        let inside = world.far.enter(|| {
            let before = resident(&running);
            let streams: Vec<TcpStream> =
                (0..connections).map(|_| opened(0).expect("it is opened")).collect();
            let mut asker = Asker(opened(1).expect("it is opened"));
            assert!(asker.number("connected_clients") > connections);
            let more = resident(&running).saturating_sub(before);
            println!(
                "  {name:<14} {:>8} bytes resident for each of {} idle connections",
                more / connections,
                streams.len()
            );
        });
        inside.expect("its namespace is there");
    }
}
