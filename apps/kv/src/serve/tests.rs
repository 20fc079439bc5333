//! The server on a lane that records: no socket, no clock but the test's.

mod behaviour;
mod corners;
mod datagrams;
mod durable;
mod fronted;
mod notified;
mod saved;
mod shards;
mod shards_data;
mod spilled;
mod torture;

use super::*;
use laneway_core::PortId;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// One connection as its peer sees it.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    received: Vec<u8>,
    /// Bytes that the send queue takes before the peer reads.
    room: usize,
    is_closed: bool,
    is_aborted: bool,
    is_paused: bool,
    unread: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Peers(HashMap<ConnId, Peer>);

impl StreamOut for Peers {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let peer = self.0.get_mut(&conn).expect("an open connection");
        assert!(!peer.is_closed && !peer.is_aborted, "nothing is sent behind the end");
        let taken = bytes.len().min(peer.room);
        peer.room -= taken;
        peer.received.extend_from_slice(&bytes[..taken]);
        taken
    }

    fn queued(&self, _: ConnId) -> usize {
        0
    }

    fn close(&mut self, conn: ConnId) {
        let peer = self.0.get_mut(&conn).expect("an open connection");
        assert!(!peer.is_closed, "closed once");
        peer.is_closed = true;
    }

    fn abort(&mut self, conn: ConnId) {
        self.0.get_mut(&conn).expect("an open connection").is_aborted = true;
    }

    fn pause(&mut self, conn: ConnId) {
        let peer = self.0.get_mut(&conn).expect("an open connection");
        assert!(!std::mem::replace(&mut peer.is_paused, true), "paused once");
    }

    fn resume(&mut self, conn: ConnId) {
        let peer = self.0.get_mut(&conn).expect("an open connection");
        assert!(std::mem::replace(&mut peer.is_paused, false), "paused before");
    }
}

/// A server, its clients and its clock.
pub(crate) struct World {
    pub(crate) kv: Kv,
    peers: Peers,
    pub(crate) now_us: Rc<Cell<u64>>,
    next: u64,
}

pub(crate) const START_US: u64 = 1_700_000_000_000_000;
const HOME: &str = "127.0.0.1:40000";

impl World {
    pub(crate) fn new() -> World {
        World::with(Config::default(), None)
    }

    fn with(config: Config, password: Option<&str>) -> World {
        let now_us = Rc::new(Cell::new(START_US));
        let clock = now_us.clone();
        let kv = Kv::new(Setup {
            config,
            password: password.map(str::to_owned),
            store: Store::default(),
            now_us: Box::new(move || clock.get()),
            run_id: "0".repeat(40),
        });
        World { kv, peers: Peers::default(), now_us, next: 0 }
    }

    fn open_from(&mut self, peer: &str) -> ConnId {
        self.next += 1;
        let conn = ConnId(self.next);
        self.peers.0.insert(conn, Peer { room: usize::MAX, ..Peer::default() });
        let (peer, local) = (peer.parse().unwrap(), "127.0.0.1:6379".parse().unwrap());
        self.kv.on_open(Opened { conn, peer, local, port: PortId(0) }, &mut self.peers);
        self.turn();
        conn
    }

    pub(crate) fn open(&mut self) -> ConnId {
        self.open_from(HOME)
    }

    fn turn(&mut self) {
        let now_ns = (self.now_us.get() - START_US) * 1000;
        self.kv.on_turn_end(Turn { now_ns }, &mut self.peers);
        self.show();
    }

    /// Shows what is unread, as long as some of it is taken.
    fn show(&mut self) {
        loop {
            let mut is_moved = false;
            let mut conns: Vec<ConnId> = self.peers.0.keys().copied().collect();
            conns.sort_unstable();
            for conn in conns {
                let peer = self.peers.0.get_mut(&conn).expect("its key was there");
                let is_gone = peer.is_closed || peer.is_aborted;
                if peer.is_paused || peer.unread.is_empty() || is_gone {
                    continue;
                }
                let bytes = std::mem::take(&mut peer.unread);
                let taken = self.kv.on_bytes(conn, &bytes, &mut self.peers);
                let peer = self.peers.0.get_mut(&conn).expect("nothing removes it");
                peer.unread = bytes[taken..].to_vec();
                is_moved |= taken > 0;
            }
            if !is_moved {
                return;
            }
            let now_ns = (self.now_us.get() - START_US) * 1000;
            self.kv.on_turn_end(Turn { now_ns }, &mut self.peers);
        }
    }

    /// Bytes arrive; the turn they belong to ends.
    fn arrive(&mut self, conn: ConnId, bytes: &[u8]) {
        self.peers.0.get_mut(&conn).expect("open").unread.extend_from_slice(bytes);
        self.show();
    }

    pub(crate) fn received(&mut self, conn: ConnId) -> String {
        let bytes = std::mem::take(&mut self.peers.0.get_mut(&conn).expect("open").received);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A command in a line, as an array; the replies so far.
    pub(crate) fn ask(&mut self, conn: ConnId, line: &str) -> String {
        self.arrive(conn, &array(line));
        self.received(conn)
    }

    pub(crate) fn pass_ms(&mut self, ms: u64) {
        self.now_us.set(self.now_us.get() + ms * 1000);
        let now_ns = (self.now_us.get() - START_US) * 1000;
        self.kv.on_tick(Turn { now_ns }, &mut self.peers);
        self.turn();
    }

    fn close(&mut self, conn: ConnId) {
        self.peers.0.remove(&conn);
        self.kv.on_close(conn, Close::Peer);
        self.turn();
    }

    fn finish(&mut self, conn: ConnId) {
        self.kv.on_finish(conn, &mut self.peers);
        self.turn();
    }

    fn peer(&mut self, conn: ConnId) -> &mut Peer {
        self.peers.0.get_mut(&conn).expect("open")
    }
}

/// What a server answers to one client's one command, when it is durable; the server ends then.
pub(crate) fn answer(kv: Kv, args: &[&[u8]]) -> String {
    answers(kv, &[args.to_vec()]).remove(0)
}

/// The same of several commands, one behind the other.
pub(crate) fn answers(kv: Kv, commands: &[Vec<&[u8]>]) -> Vec<String> {
    let mut world =
        World { kv, peers: Peers::default(), now_us: Rc::new(Cell::new(START_US)), next: 0 };
    let conn = world.open();
    let answer = |args: &Vec<&[u8]>| {
        let mut bytes = Vec::new();
        laneway_resp::command(args, &mut bytes);
        world.arrive(conn, &bytes);
        loop {
            let reply = world.received(conn);
            if !reply.is_empty() {
                return reply;
            }
            std::thread::yield_now();
            world.turn();
        }
    };
    commands.iter().map(answer).collect()
}

/// The words of a line as a command.
fn array(line: &str) -> Vec<u8> {
    let words: Vec<Vec<u8>> =
        laneway_resp::words(line.as_bytes()).map(|word| word.expect("balanced")).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let mut bytes = Vec::new();
    laneway_resp::command(&words, &mut bytes);
    bytes
}
