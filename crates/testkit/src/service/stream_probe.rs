//! The app that the stream suite runs: it keeps what it saw of every connection and answers as
//! told.
//!
//! What must always hold: it checks on every call what the contract promises (a connection is open
//! when its bytes are shown, bytes that were not consumed come first, a closed one stays silent).

use super::TICKS_WITHOUT_BELL_MAX;
use laneway_core::{App, Close, ConnId, Counters, StreamApp, StreamOut, Turn};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// How the probe treats the bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// Consumes all, answers nothing.
    #[default]
    Take,
    /// Sends all back; what the queue refuses is not consumed.
    Echo,
    /// Consumes whole lines and sends each back.
    Lines,
    /// Consumes all, and sends it back at the end of the turn.
    AtTurnEnd,
    /// Sends all back, then closes.
    EchoAndClose,
    /// Consumes all, and sends it back on the next tick.
    OnTick,
    /// Sends [`AMPLIFIED_BYTES`] copies of every byte; what the queue refuses is not consumed.
    Amplify,
}

/// What the probe knows of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conn {
    /// Who is at the other end.
    pub peer: SocketAddr,
    /// Every byte consumed.
    pub taken: Vec<u8>,
    /// How many bytes each call showed.
    pub shown: Vec<usize>,
    /// Why it ended, once it has.
    pub closed: Option<Close>,
    /// Bytes shown and not consumed.
    left: Vec<u8>,
    /// Consumed and not yet sent back.
    owed: Vec<u8>,
}

/// An app that keeps what it saw.
#[derive(Default)]
pub struct StreamProbe {
    /// How bytes are treated.
    pub manner: Manner,
    /// Every connection that ever was.
    pub conns: BTreeMap<ConnId, Conn>,
    /// Sends that were refused.
    pub refused: usize,
    /// Turns that ended.
    pub turn_ends: usize,
    /// Asked at the end of a turn, before the probe queues anything there; the answers are in
    /// [`early`](Self::early). Not asked while the echo of an earlier turn is on its way or unread: it
    /// would be taken for this turn's.
    pub arrivals: Option<Box<dyn FnMut() -> bool>>,
    /// How often that was asked.
    pub looks: usize,
    /// Bytes that the far end has read; who reads there says so.
    pub returned_bytes: usize,
    /// Bytes taken up to the end of the turn before.
    taken_before_bytes: usize,
    /// How often bytes had reached the far end before the turn ended.
    pub early: usize,
    /// Ticks, also to be read by another thread while the worker runs.
    pub ticks: Arc<AtomicUsize>,
    /// Times `on_stop` was called.
    pub stops: usize,
    /// Times `on_bell` was called.
    pub bells: usize,
    /// Sends on a tick only behind a bell, and then wants to end.
    pub until_bell: bool,
    counters: Counters,
}

impl StreamProbe {
    /// A probe with these manners.
    pub fn new(manner: Manner) -> StreamProbe {
        StreamProbe { manner, ..StreamProbe::default() }
    }

    /// The connection with this peer, if it was accepted; of several, one that is open.
    pub fn with_peer(&self, peer: SocketAddr) -> Option<(ConnId, &Conn)> {
        let conns = self.conns.iter().filter(|(_, conn)| conn.peer == peer);
        conns.min_by_key(|(_, conn)| conn.closed.is_some()).map(|(id, conn)| (*id, conn))
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.conns.values().filter(|conn| conn.closed.is_none()).count()
    }

    /// Sends what is owed, as far as the queues take it.
    fn pay<O: StreamOut>(&mut self, out: &mut O) {
        for (id, conn) in &mut self.conns {
            if conn.closed.is_some() || conn.owed.is_empty() {
                continue;
            }
            if out.send(*id, &conn.owed) {
                conn.owed.clear();
            } else {
                self.refused += 1;
            }
        }
    }
}

/// What [`Manner::Amplify`] makes of one byte.
pub const AMPLIFIED_BYTES: usize = 1024;

/// The longest piece that the probe sends at once: small against any send queue.
const PIECE_BYTES_MAX: usize = 1024;

impl App for StreamProbe {
    fn on_bell(&mut self, _turn: Turn) {
        self.bells += 1;
    }

    fn wants_stop(&self) -> bool {
        let ticks = self.ticks.load(Ordering::SeqCst);
        self.until_bell && (self.bells > 0 || ticks > TICKS_WITHOUT_BELL_MAX)
    }

    fn on_stop(&mut self, _turn: Turn) {
        self.stops += 1;
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for StreamProbe {
    fn on_open(&mut self, conn: ConnId, peer: SocketAddr) {
        let new = Conn {
            peer,
            taken: Vec::new(),
            shown: Vec::new(),
            closed: None,
            left: Vec::new(),
            owed: Vec::new(),
        };
        assert!(self.conns.insert(conn, new).is_none(), "{conn:?} was used before");
    }

    fn on_bytes<O: StreamOut>(&mut self, id: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let conn = self.conns.get_mut(&id).unwrap_or_else(|| panic!("{id:?} was never opened"));
        assert_eq!(conn.closed, None, "bytes of {id:?} after its close");
        assert!(!bytes.is_empty(), "no bytes of {id:?} are shown");
        assert!(bytes.starts_with(&conn.left), "{id:?}: what was not consumed comes first");
        conn.shown.push(bytes.len());
        let mut consumed = 0;
        match self.manner {
            Manner::Take => consumed = bytes.len(),
            Manner::AtTurnEnd | Manner::OnTick => {
                consumed = bytes.len();
                conn.owed.extend_from_slice(bytes);
            }
            Manner::Echo | Manner::EchoAndClose => {
                for piece in bytes.chunks(PIECE_BYTES_MAX) {
                    if !out.send(id, piece) {
                        self.refused += 1;
                        break;
                    }
                    consumed += piece.len();
                }
                if self.manner == Manner::EchoAndClose {
                    out.close(id);
                }
            }
            Manner::Amplify => {
                for byte in bytes {
                    if !out.send(id, &[*byte; AMPLIFIED_BYTES]) {
                        self.refused += 1;
                        break;
                    }
                    consumed += 1;
                }
            }
            Manner::Lines => {
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    if !line.ends_with(b"\n") {
                        break;
                    }
                    if !out.send(id, line) {
                        self.refused += 1;
                        break;
                    }
                    consumed += line.len();
                }
            }
        }
        conn.taken.extend_from_slice(&bytes[..consumed]);
        conn.left = bytes[consumed..].to_vec();
        consumed
    }

    fn on_turn_end<O: StreamOut>(&mut self, _turn: Turn, out: &mut O) {
        self.turn_ends += 1;
        if let Some(arrivals) = &mut self.arrivals
            && self.returned_bytes >= self.taken_before_bytes
        {
            self.looks += 1;
            self.early += usize::from(arrivals());
        }
        self.taken_before_bytes = self.conns.values().map(|conn| conn.taken.len()).sum();
        if self.manner == Manner::AtTurnEnd {
            self.pay(out);
        }
    }

    fn on_close(&mut self, id: ConnId, why: Close) {
        let conn = self.conns.get_mut(&id).unwrap_or_else(|| panic!("{id:?} was never opened"));
        assert_eq!(conn.closed.replace(why), None, "{id:?} closed twice");
    }

    fn on_tick<O: StreamOut>(&mut self, _turn: Turn, out: &mut O) {
        self.ticks.fetch_add(1, Ordering::SeqCst);
        if self.manner == Manner::OnTick && self.until_bell == (self.bells > 0) {
            self.pay(out);
        }
    }
}
