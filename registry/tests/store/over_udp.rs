//! GET over UDP: by the worker's sockets, and in front of them by the program of lane `xdp`.

use super::{namespace, output_of, served};
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair};
use laneway_testkit::{Random, skip};
use laneway_xdp::PassGuard;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// A reply that has not come by then will not come.
const SILENCE: Duration = Duration::from_millis(300);
/// Replies that are waited for, before a test is given up.
const TRIES_MAX: usize = 100;

/// A client that asks.
struct Asker {
    socket: UdpSocket,
    number: u16,
    sent: u64,
}

impl Asker {
    /// From an address of this thread's namespace to another.
    fn new(from: &str, to: &str) -> Asker {
        let socket = UdpSocket::bind(from).expect("an address of ours");
        socket.connect(to).expect("a route");
        socket.set_read_timeout(Some(SILENCE)).expect("not 0");
        Asker { socket, number: 0, sent: 0 }
    }

    /// What comes back for these bytes, if anything does.
    fn exchange(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.socket.send(bytes).expect("the cable is up");
        self.sent += 1;
        let mut reply = vec![0; 2000];
        loop {
            let bytes = self.socket.recv(&mut reply).ok()?;
            // What an earlier question was too impatient for is another's.
            if bytes >= 8 && reply[..2] == self.number.to_be_bytes() {
                reply.truncate(bytes);
                return Some(reply);
            }
        }
    }

    /// The reply to a command, which is never longer than what asked for it.
    fn ask(&mut self, words: &[&str], padding: usize) -> Option<String> {
        self.number = self.number.wrapping_add(1);
        let question = question(self.number, words, padding);
        let reply = self.exchange(&question)?;
        assert!(reply.len() <= question.len(), "{words:?}: {} bytes", reply.len());
        assert_eq!(reply[2..8], [0, 0, 0, 1, 0, 0]);
        Some(String::from_utf8_lossy(&reply[8..]).into_owned())
    }

    /// The same, asked again if it was lost.
    fn get(&mut self, key: &str) -> String {
        for _ in 0..TRIES_MAX {
            if let Some(reply) = self.ask(&["GET", key], 100) {
                return reply;
            }
        }
        panic!("no reply to {TRIES_MAX} questions");
    }
}

fn question(number: u16, words: &[&str], padding: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend([0, 0, 0, 1, 0, 0]);
    bytes.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes.resize(bytes.len() + padding, 0);
    bytes
}

/// A connection to the store.
struct Writer(TcpStream);

impl Writer {
    fn new(to: &str) -> Writer {
        let stream = TcpStream::connect(to).expect("the store listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Writer(stream)
    }

    /// Does a command and reads one line of the reply; what is behind it is for the next.
    fn line(&mut self, words: &[&str]) -> String {
        self.0.write_all(&question(0, words, 0)[8..]).expect("the store is there");
        self.read_line()
    }

    fn read_line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).expect("the store answers");
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// The counts of datagrams in INFO.
    fn counts(&mut self) -> BTreeMap<String, u64> {
        let head = self.line(&["INFO", "stats"]);
        let bytes: usize = head.trim_start_matches('$').parse().expect("a length");
        let mut text = vec![0; bytes + 2];
        self.0.read_exact(&mut text).expect("so many bytes");
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let udp = lines.filter(|(name, _)| name.starts_with("udp_"));
        udp.map(|(name, n)| (name.to_owned(), n.trim().parse().expect("a number"))).collect()
    }
}

fn by_sockets(spec: &str) {
    const AT: &str = "127.0.0.1:6379";
    let Some(near) = namespace("near") else { return };
    let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()));
    served(&near, spec, &[], &["--udp-listen", AT], |_| {
        let inside = near.enter(|| {
            let (mut asker, mut writer) = (Asker::new("127.0.0.1:0", AT), Writer::new(AT));
            assert_eq!(asker.get("key"), "$-1\r\n");
            assert_eq!(writer.line(&["SET", "key", "value"]), "+OK");
            assert_eq!(asker.get("key"), "$5\r\nvalue\r\n");
            assert_eq!(writer.line(&["SET", "long", &"x".repeat(3000)]), "+OK");
            let reply = asker.ask(&["GET", "long"], 1300).expect("a reply");
            assert_eq!(reply, "-TOOLONG 3009\r\n");
            let cut = asker.ask(&["get", "key"], 0).expect("a reply");
            assert_eq!(cut, "$5\r\nvalue\r\n");
            assert_eq!(writer.line(&["LPUSH", "list", "one"]), ":1");
            assert!(asker.get("list").starts_with("-WRONGTYPE Operation"));
            assert_eq!(asker.ask(&["GET", "list"], 0).as_deref(), Some("-WRONGTYPE\r\n"));
            let other = asker.ask(&["SET", "key", "forged"], 100).expect("a reply");
            assert_eq!(other, "-ERR only GET is served over UDP\r\n");
            asker.number += 1;
            let whole = question(asker.number, &["GET", "key"], 0);
            let mut header = whole.clone();
            header[3] = 1;
            let garbage = [&whole[..8], b"GET key\r\n"].concat();
            for bytes in [&[][..], &whole[..5], &header, &whole[..whole.len() - 3], &garbage] {
                asker.socket.send(bytes).expect("loopback is up");
            }
            let low = Asker::new("127.0.0.1:1000", AT).ask(&["GET", "key"], 0);
            assert_eq!(low, None, "a service's port is not answered");
            assert_eq!(asker.get("key"), "$5\r\nvalue\r\n");
            let counts = writer.counts();
            for (name, n) in [
                ("udp_miss", 1),
                ("udp_hit", 3),
                ("udp_too_long", 1),
                ("udp_error", 3),
                ("udp_dropped_short", 2),
                ("udp_dropped_header", 1),
                ("udp_dropped_cut", 1),
                ("udp_dropped_garbage", 1),
                ("udp_dropped_source", 1),
            ] {
                assert_eq!(counts[name], n, "{name} of {counts:?}");
            }
        });
        inside.expect("its namespace is there");
        output_of(&near, "redis-cli SHUTDOWN NOSAVE");
    });
}

#[test]
fn get_over_udp_is_answered_by_kernel_sockets() {
    by_sockets("socket");
}

#[test]
fn get_over_udp_is_answered_by_io_uring() {
    by_sockets("uring");
}

/// What a run of the checker draws.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    writers: u64,
    readers: u64,
    keys_each: u64,
    gets_each: u64,
    slots: u64,
}

impl Drawn {
    fn new() -> Drawn {
        let mut random = Random::seeded(laneway_testkit::seed());
        let drawn = Drawn {
            writers: 1 + random.below(3),
            readers: 1 + random.below(3),
            keys_each: 1 + random.below(4),
            gets_each: 1500,
            // With one slot all keys drive each other out.
            slots: 1 << random.below(6),
        };
        eprintln!("{drawn:?}");
        drawn
    }
}

const AT: &str = "10.77.0.1:6379";

/// Writers over TCP count each key up; readers over UDP never see less than what was answered before they asked.
/// Returns how many datagrams were sent.
fn check(drawn: Drawn) -> u64 {
    let keys: Vec<(AtomicU64, AtomicU64)> =
        (0..drawn.writers * drawn.keys_each).map(|_| Default::default()).collect();
    let is_over = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..drawn.writers {
            let (keys, is_over) = (&keys, &is_over);
            scope.spawn(move || {
                let mut store = Writer::new(AT);
                let mut n = 0;
                while !is_over.load(Ordering::Relaxed) {
                    n += 1;
                    let at = writer * drawn.keys_each + n % drawn.keys_each;
                    let (begun, answered) = &keys[at as usize];
                    let (key, value) = (format!("key:{at}"), n.to_string());
                    begun.store(n, Ordering::SeqCst);
                    match n / drawn.keys_each % 3 {
                        0 => assert_eq!(store.line(&["SET", &key, &value]), "+OK"),
                        1 => {
                            let other = format!("other:{writer}");
                            assert_eq!(store.line(&["SET", &other, &value]), "+OK");
                            assert_eq!(store.line(&["RENAME", &other, &key]), "+OK");
                        }
                        _ => {
                            assert_eq!(store.line(&["MULTI"]), "+OK");
                            assert_eq!(store.line(&["SET", &key, &value]), "+QUEUED");
                            assert_eq!(store.line(&["EXEC"]), "*1");
                            assert_eq!(store.read_line(), "+OK");
                        }
                    }
                    answered.store(n, Ordering::SeqCst);
                    // A reader finds what it has put into the cache now and then.
                    sleep(Duration::from_micros(n % 7 * 100));
                }
            });
        }
        let readers: Vec<_> = (0..drawn.readers)
            .map(|reader| {
                let (keys, sent) = (&keys, &sent);
                scope.spawn(move || {
                    let mut asker = Asker::new("10.77.0.2:0", AT);
                    for n in 0..drawn.gets_each {
                        let at = (reader + n / 5) as usize % keys.len();
                        let floor = keys[at].0.load(Ordering::SeqCst).min(keys[at].1.load(Ordering::SeqCst));
                        let reply = asker.get(&format!("key:{at}"));
                        let value: u64 = reply.lines().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
                        let ceiling = keys[at].0.load(Ordering::SeqCst);
                        assert!(
                            (floor..=ceiling).contains(&value),
                            "key:{at} was {value}, and had been answered to be {floor}, of {ceiling}"
                        );
                    }
                    sent.fetch_add(asker.sent, Ordering::Relaxed);
                })
            })
            .collect();
        let ends: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        for end in ends {
            end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    sent.into_inner()
}

#[test]
fn no_reader_over_udp_sees_less_than_a_writer_was_answered() {
    let (Some(near), Some(far)) = (namespace("near"), namespace("far")) else { return };
    let options = VethOptions {
        a: VethEnd::new(Mac([2, 0, 0, 0, 0, 1]), &["10.77.0.1/24"]).expect("an address"),
        b: VethEnd::new(Mac([2, 0, 0, 0, 0, 2]), &["10.77.0.2/24", "10.78.0.2/24"])
            .expect("addresses"),
        ..VethOptions::default()
    };
    let _cable = VethPair::create(&near, "near0", &far, "far0", &options).expect("a cable");
    // What a program sends into a veth is taken by one whose far end has a program as well.
    let guard = far.enter(|| PassGuard::attach("far0")).expect("its namespace is there");
    let _guard = match guard {
        Ok(guard) => guard,
        Err(error) => return skip(error),
    };
    let drawn = Drawn::new();
    let slots = drawn.slots.to_string();
    let words = [
        "--listen",
        AT,
        "--protected-mode",
        "no",
        "--udp-allow",
        "10.77.0.0/24",
        "--udp-cache",
        &slots,
    ];
    served(&near, "xdp", &["near0"], &words, |_| {
        let asked = within(&far, move || {
            let mut sent = check(drawn);
            let mut stranger = Asker::new("10.78.0.2:0", AT);
            assert_eq!(stranger.ask(&["GET", "key:0"], 100), None, "it is not in the list");
            let mut service = Asker::new("10.77.0.2:53", AT);
            assert_eq!(service.ask(&["GET", "key:0"], 100), None, "its port is a service's");
            let mut asker = Asker::new("10.77.0.2:0", AT);
            let long = "k".repeat(200);
            assert_eq!(asker.get(&long), "$-1\r\n", "too long for the program, not for the worker");
            sent += stranger.sent + service.sent + asker.sent;
            agree(&mut Writer::new(AT), sent);
        });
        if let Err(panic) = asked {
            output_of(&far, "redis-cli -h 10.77.0.1 SHUTDOWN NOSAVE");
            std::panic::resume_unwind(panic);
        }
        output_of(&far, "redis-cli -h 10.77.0.1 SHUTDOWN NOSAVE");
    });
}

/// Hits of the program and what it left to the worker are what was asked, once its counts have been read.
fn agree(writer: &mut Writer, sent: u64) {
    let mut counts = BTreeMap::new();
    for _ in 0..TRIES_MAX {
        counts = writer.counts();
        let of = |start: &str| -> u64 {
            counts.iter().filter(|(name, _)| name.starts_with(start)).map(|(_, n)| n).sum()
        };
        let (hits, left) = (of("udp_kernel_hit"), of("udp_kernel_left"));
        let dropped = of("udp_kernel_dropped");
        let worker = of("udp_") - of("udp_kernel");
        if hits + left + dropped == sent && worker == left {
            eprintln!("{counts:?}");
            assert_eq!(dropped, 2, "one source not in the list, one port of a service");
            assert!(hits > 0 && worker > 0 && counts["udp_kernel_left_long_key"] > 0, "{counts:?}");
            return;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("{sent} datagrams were sent, and what became of them is {counts:?}");
}

/// Runs in a namespace on a thread of its own, whose threads are there as well.
fn within(at: &Namespace, run: impl FnOnce() + Send) -> std::thread::Result<()> {
    std::thread::scope(|scope| {
        scope.spawn(|| at.enter(run).expect("its namespace is there")).join()
    })
}
