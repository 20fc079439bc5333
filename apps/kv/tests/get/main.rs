//! GET over UDP in three places: the program in the kernel (BPF_PROG_RUN), its header on the host, and the worker.
//!
//! Commands and frames are drawn at random; the seed is printed. All three must agree on every fate and every byte,
//! and what the program answers must be what the worker would say at that moment: there is no older value.

mod frames;
mod referee;

use frames::{Draw, Question};
use laneway_bpf::{BpfError, Loaded, RunInput, prog_run};
use laneway_core::{
    ConnId, Datagram, DatagramOut, KernelMaps, Opened, Payload, PortId, StreamApp, StreamOut, Turn,
};
use laneway_kv::{Allowed, CacheSetup, Config, Kv, Setup, Store};
use laneway_testkit::skip;
use std::net::SocketAddr;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
/// `enum lw_kv_fate` of `bpf/get.h`.
const HIT: u8 = 1;
const DROPPED_SOURCE: u8 = 7;
const SLOTS: usize = 16;
const CONN: ConnId = ConnId(1);

/// What the one client was sent.
#[derive(Default)]
struct Client(Vec<u8>);

impl StreamOut for Client {
    fn send(&mut self, _: ConnId, bytes: &[u8]) -> usize {
        self.0.extend(bytes);
        bytes.len()
    }
    fn queued(&self, _: ConnId) -> usize {
        0
    }
    fn close(&mut self, _: ConnId) {}
    fn abort(&mut self, _: ConnId) {}
    fn pause(&mut self, _: ConnId) {}
    fn resume(&mut self, _: ConnId) {}
}

/// Where datagrams go.
#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl DatagramOut for Sent {
    fn forward(&mut self, _: &Datagram<'_>, _: PortId, _: SocketAddr) {}

    fn send(
        &mut self,
        _: PortId,
        _: SocketAddr,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let mut room = vec![0; bytes_max];
        let bytes = write(&mut room);
        room.truncate(bytes);
        self.0.push(room);
    }
}

/// The worker with its half loaded.
struct World {
    kv: Kv,
    loaded: Loaded,
    config: Vec<u8>,
    client: Client,
}

impl World {
    /// None, and says so, without root.
    fn new() -> Option<World> {
        let mut kv = Kv::new(Setup {
            config: Config::default(),
            password: None,
            store: Store::default(),
            now_us: Box::new(|| 1_700_000_000_000_000),
            run_id: "0".repeat(40),
        });
        let allowed = frames::ALLOWED.map(|cidr| cidr.parse().expect("a network")).to_vec();
        let listen = frames::LISTEN.map(|at| at.parse().expect("an address")).to_vec();
        let setup = CacheSetup { listen, allowed: allowed.clone(), slots: SLOTS };
        kv.serve_datagrams(Allowed(allowed), Some(setup));
        let half = kv.half().expect("it was asked for");
        let config = half.config[0].bytes.clone();
        let loaded = match Loaded::load(&half) {
            Ok(loaded) => loaded,
            Err(error @ BpfError::NotPermitted { .. }) => {
                skip(error);
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let mut world = World { kv, loaded, config, client: Client::default() };
        let (peer, local) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:6379".parse().unwrap());
        world.kv.on_open(Opened { conn: CONN, peer, local, port: PortId(0) }, &mut world.client);
        Some(world)
    }

    /// A command by the client, and the end of its turn as the engine has it.
    fn command(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut bytes = Vec::new();
        laneway_resp::command(&words, &mut bytes);
        self.client.0.clear();
        let taken = self.kv.on_bytes(CONN, &bytes, &mut self.client);
        assert_eq!(taken, bytes.len());
        self.kv.on_turn_end(Turn::default(), &mut self.client);
        self.agree();
        String::from_utf8_lossy(&self.client.0).into_owned()
    }

    fn agree(&mut self) {
        self.kv.on_maps(self.loaded.maps(), Turn::default()).expect("the maps are as declared");
    }

    /// What the worker answers to a question that was left to it.
    fn worker(&mut self, question: &Question) -> Option<Vec<u8>> {
        let datagram = Datagram {
            payload: Payload::own(&question.payload),
            segment_bytes: question.payload.len(),
            source: question.source,
            destination: question.destination,
            is_broadcast: false,
            ingress: PortId(0),
            ts_ns: 0,
        };
        let mut sent = Sent::default();
        self.kv.on_datagrams(&[datagram], Turn::default(), &mut sent);
        self.agree();
        assert!(sent.0.len() <= 1);
        sent.0.pop()
    }

    fn program(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        let input = RunInput { frame, meta: &[], repeat: 1 };
        let output = prog_run(self.loaded.program(), input).unwrap_or_else(|e| panic!("{e}"));
        (output.verdict, output.frame)
    }

    /// Everything that a program may see: configuration, epoch, versions and entries.
    fn state(&self) -> Vec<u8> {
        let maps = self.loaded.maps();
        let mut state = self.config.clone();
        state.extend(maps.look_up("epoch", &[0; 4]).unwrap().expect("an array has all"));
        for slot in 0..SLOTS as u32 {
            for map in ["versions", "entries"] {
                state.extend(maps.look_up(map, &slot.to_ne_bytes()).unwrap().expect("likewise"));
            }
        }
        state
    }
}

/// Something that may change what a GET says.
fn change(world: &mut World, draw: &mut Draw) {
    let (one, other) = (draw.key(), draw.key());
    let value = "v".repeat(draw.below(40) * draw.below(40));
    let value = format!("{}{value}", draw.below(1000));
    let words: &[&str] = match draw.below(16) {
        0..8 => &["SET", &one, &value],
        8 => &["DEL", &one, &other],
        9 => &["RENAME", &one, &other],
        10 => &["APPEND", &one, "more"],
        11 => &["LPUSH", &one, "no string"],
        12 => &["EXPIRE", &one, "100"],
        13 => &["SWAPDB", "0", "1"],
        14 => &["FLUSHALL"],
        _ => {
            world.command(&["MULTI"]);
            world.command(&["SET", &one, &value]);
            world.command(&["GETDEL", &other]);
            &["EXEC"]
        }
    };
    world.command(words);
}

#[test]
fn the_program_its_header_on_the_host_and_the_worker_answer_alike() {
    let Some(mut world) = World::new() else { return };
    let referee = referee::compiled();
    let mut draw = Draw::new(laneway_testkit::seed());
    let (mut fates, mut asked) = ([0u64; 8], 0);
    for _ in 0..120 {
        (0..draw.below(4)).for_each(|_| change(&mut world, &mut draw));
        let questions: Vec<Question> = (0..16).map(|_| draw.question()).collect();
        let decided: Vec<(u32, Vec<u8>)> =
            questions.iter().map(|question| world.program(&question.frame)).collect();
        let judged = referee.as_ref().map(|referee| referee.run(&world.state(), &questions));
        for (i, (question, (verdict, frame))) in questions.iter().zip(decided).enumerate() {
            let worker = world.worker(question);
            asked += 1;
            if let Some(judged) = &judged {
                let (fate, bytes) = &judged[i];
                fates[usize::from(*fate)] += 1;
                let action = match *fate {
                    HIT => XDP_TX,
                    DROPPED_SOURCE => XDP_DROP,
                    _ => XDP_PASS,
                };
                assert_eq!(verdict, action, "fate {fate} of {question:02x?}");
                assert!(
                    frame == *bytes,
                    "{question:02x?}: on the host {bytes:02x?}, in the kernel {frame:02x?}"
                );
            }
            match verdict {
                // The worker was asked what was meant, the program something else.
                _ if question.is_mangled => {}
                XDP_TX => {
                    let answer = frames::answer(question, &frame);
                    assert_eq!(Some(answer), worker, "{question:02x?}");
                    assert!(frame.len() <= question.frame.len());
                }
                // Our own address is a source of this machine's sockets, and none that comes by a cable.
                XDP_DROP if question.source.ip() == question.destination.ip() => {}
                XDP_DROP => assert_eq!(worker, None, "{question:02x?}"),
                _ => assert_eq!(frame, question.frame, "what is left is as it was"),
            }
            if let Some(reply) = worker {
                assert!(reply.len() <= question.payload.len(), "{question:02x?}");
            }
        }
    }
    world.kv.on_maps(world.loaded.maps(), Turn { now_ns: u64::MAX / 2 }).expect("counts are read");
    let counts = world.kv.datagrams();
    let kernel: Vec<u64> =
        counts.iter().filter(|(name, _)| name.starts_with("udp_kernel")).map(|(_, n)| *n).collect();
    assert_eq!(kernel.iter().sum::<u64>(), asked, "each frame has one fate: {counts:?}");
    if referee.is_some() {
        assert_eq!(kernel, fates, "the program counts what became of each");
        for fate in [0, 1, 2, 3, 4, 5, 7] {
            assert!(fates[fate] > 0, "no frame had fate {fate}: {fates:?}");
        }
    }
}

#[test]
fn no_change_of_a_key_leaves_its_value_in_the_kernel() {
    let Some(mut world) = World::new() else { return };
    let question = Question::get(b"key", 200);
    let changes: [&[&str]; 13] = [
        &["SET", "key", "another"],
        &["DEL", "key"],
        &["RENAME", "key", "elsewhere"],
        &["APPEND", "key", "more"],
        &["SETRANGE", "key", "0", "x"],
        &["GETSET", "key", "another"],
        &["PEXPIRE", "key", "5000"],
        &["PEXPIRE", "key", "-1"],
        &["MOVE", "key", "3"],
        &["FLUSHDB"],
        &["FLUSHALL", "ASYNC"],
        &["SWAPDB", "1", "0"],
        &["ACL", "SETUSER", "default", "resetkeys", "~other"],
    ];
    for words in changes {
        world.command(&["ACL", "SETUSER", "default", "allkeys"]);
        world.command(&["FLUSHALL"]);
        world.command(&["SET", "key", "value"]);
        let first = world.worker(&question).expect("the worker answers");
        assert!(first.ends_with(b"$5\r\nvalue\r\n"));
        let (verdict, frame) = world.program(&question.frame);
        assert_eq!((verdict, frames::answer(&question, &frame)), (XDP_TX, first), "{words:?}");
        let reply = world.command(words);
        assert!(!reply.starts_with('-'), "{words:?}: {reply}");
        assert_eq!(world.program(&question.frame), (XDP_PASS, question.frame.clone()), "{words:?}");
    }
}

#[test]
fn a_key_with_a_deadline_is_never_in_the_kernel() {
    let Some(mut world) = World::new() else { return };
    world.command(&["SET", "key", "value", "EX", "100"]);
    let question = Question::get(b"key", 200);
    assert!(world.worker(&question).is_some());
    assert_eq!(world.program(&question.frame).0, XDP_PASS);
    world.command(&["PERSIST", "key"]);
    assert!(world.worker(&question).is_some());
    assert_eq!(world.program(&question.frame).0, XDP_TX);
}
