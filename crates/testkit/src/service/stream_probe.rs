//! The app that the stream suite runs: it keeps what it saw of every connection and answers as
//! configured.
//!
//! What must always hold: it checks on every call what the contract promises (a connection is open
//! when its bytes are shown, bytes that were not consumed come first, a paused or closed one stays
//! silent, room follows a send that took less than given, the peer finishes once).

use super::TICKS_WITHOUT_BELL_MAX;
use laneway_core::{App, Close, ConnId, Counters, Opened, PortId, StreamApp, StreamOut, Turn};
use laneway_engine::TICK_NS;
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
    /// Sends [`AMPLIFIED_BYTES`] copies of every byte; consumes no more while some are owed.
    Amplify,
}

/// What the probe does with a connection that has just opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Door {
    /// Lets it in.
    #[default]
    Open,
    /// Sends this, then closes.
    Answer(&'static [u8]),
    /// Aborts it.
    Abort,
}

/// What the probe is to do on its next tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Sends these bytes; owes what is not taken, and pays when there is room.
    Send(ConnId, Vec<u8>),
    /// Closes, and forgets what it owes.
    Close(ConnId),
    /// Aborts.
    Abort(ConnId),
    /// Wants to see no bytes.
    Pause(ConnId),
    /// Wants to see bytes again.
    Resume(ConnId),
    /// Sends what is owed, then closes.
    PayAndClose(ConnId),
}

/// What the probe knows of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conn {
    /// The address of the other end.
    pub peer: SocketAddr,
    /// The listening address that it arrived at.
    pub local: SocketAddr,
    /// The port of that address.
    pub port: PortId,
    /// Every byte consumed.
    pub taken: Vec<u8>,
    /// How many bytes each call showed.
    pub shown: Vec<usize>,
    /// Why it ended, once it has.
    pub closed: Option<Close>,
    /// The peer has finished sending.
    pub finished: bool,
    /// How often there was room again.
    pub rooms: usize,
    /// Bytes shown and not consumed.
    left: Vec<u8>,
    /// To be sent, and how much of it has been.
    owed: Vec<u8>,
    paid: usize,
    /// The most that was ever queued.
    pub queued_bytes_max: usize,
    /// A send took less than given.
    awaits_room: bool,
    paused: bool,
    /// The app closed or aborted it.
    shut: bool,
}

impl Conn {
    /// Sends `bytes`; returns how many were taken.
    fn send<O: StreamOut>(&mut self, id: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let before = out.queued(id);
        let taken = out.send(id, bytes);
        assert!(taken <= bytes.len(), "{taken} of {} bytes were taken", bytes.len());
        assert_eq!(out.queued(id), before + taken, "what was taken is queued");
        self.queued_bytes_max = self.queued_bytes_max.max(before + taken);
        self.awaits_room |= taken < bytes.len() && !self.shut;
        taken
    }

    /// How many bytes are to be sent still.
    pub fn owed_bytes(&self) -> usize {
        self.owed.len() - self.paid
    }

    /// Sends what is owed, as far as the queue takes it. Returns how much that was.
    fn pay<O: StreamOut>(&mut self, id: ConnId, out: &mut O) -> usize {
        let owed = std::mem::take(&mut self.owed);
        let taken = self.send(id, &owed[self.paid..], out);
        self.paid += taken;
        self.owed = owed;
        if self.owed_bytes() == 0 {
            self.forget();
        }
        taken
    }

    fn forget(&mut self) {
        self.owed.clear();
        self.paid = 0;
    }
}

/// An app that keeps what it saw.
#[derive(Default)]
pub struct StreamProbe {
    /// How bytes are treated.
    pub manner: Manner,
    /// Every connection that ever was.
    pub conns: BTreeMap<ConnId, Conn>,
    /// Sends that took less than given.
    pub refused: usize,
    /// What becomes of connections that open.
    pub door: Door,
    /// A connection whose peer has finished is closed by an order only.
    pub owes: bool,
    /// To be done on the next tick.
    pub orders: Vec<Order>,
    /// Per sending order that was carried out: how many bytes were taken.
    pub took: Vec<usize>,
    /// The app was called, and its turn has not ended since.
    pub is_in_turn: bool,
    /// Wants each tick so much behind the last, and ends when one is earlier than the usual tick.
    pub due_after_ns: Option<u64>,
    ticked_at_ns: Option<u64>,
    /// How often a tick was earlier than the usual one.
    pub early_ticks: usize,
    /// Turns that ended.
    pub turn_ends: usize,
    /// Asked at the end of a turn, before the probe queues anything there; the answers are in
    /// [`early`](Self::early). Not asked while the echo of an earlier turn is on its way or unread: it
    /// would be taken for this turn's.
    pub arrivals: Option<Box<dyn FnMut() -> bool>>,
    /// How often that was asked.
    pub looks: usize,
    /// Bytes that the far end has read; the reader there says so.
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
            if conn.closed.is_none() && conn.owed_bytes() > 0 && !conn.awaits_room {
                conn.pay(*id, out);
                self.refused += usize::from(conn.owed_bytes() > 0);
            }
        }
    }

    /// Does what was ordered.
    fn obey<O: StreamOut>(&mut self, out: &mut O) {
        for order in std::mem::take(&mut self.orders) {
            let (Order::Send(id, _)
            | Order::Close(id)
            | Order::Abort(id)
            | Order::Pause(id)
            | Order::Resume(id)
            | Order::PayAndClose(id)) = order;
            let conn = self.conns.get_mut(&id).filter(|conn| conn.closed.is_none());
            let Some(conn) = conn else {
                // What the contract promises of a connection that is gone.
                match order {
                    Order::Send(_, bytes) => self.took.push(out.send(id, &bytes)),
                    Order::Close(_) | Order::PayAndClose(_) => out.close(id),
                    Order::Abort(_) => out.abort(id),
                    Order::Pause(_) => out.pause(id),
                    Order::Resume(_) => out.resume(id),
                }
                assert_eq!(out.queued(id), 0, "{id:?} is gone");
                continue;
            };
            match order {
                Order::Send(_, bytes) => {
                    let taken = if conn.owed_bytes() == 0 {
                        conn.owed = bytes;
                        conn.pay(id, out)
                    } else {
                        conn.send(id, &bytes, out)
                    };
                    self.took.push(taken);
                }
                Order::Close(_) | Order::PayAndClose(_) => {
                    if matches!(order, Order::PayAndClose(_)) {
                        conn.pay(id, out);
                    }
                    conn.forget();
                    conn.shut = true;
                    out.close(id);
                }
                Order::Abort(_) => {
                    conn.forget();
                    conn.shut = true;
                    out.abort(id);
                    assert_eq!(out.queued(id), 0, "what was queued is dropped");
                }
                Order::Pause(_) => {
                    conn.paused = true;
                    out.pause(id);
                }
                Order::Resume(_) => {
                    conn.paused = false;
                    out.resume(id);
                }
            }
        }
    }
}

/// What [`Manner::Amplify`] makes of one byte.
pub const AMPLIFIED_BYTES: usize = 1024;

impl App for StreamProbe {
    fn on_bell(&mut self, _turn: Turn) {
        self.bells += 1;
    }

    fn wants_stop(&self) -> bool {
        let ticks = self.ticks.load(Ordering::SeqCst);
        let is_patient = ticks <= TICKS_WITHOUT_BELL_MAX;
        self.until_bell && (self.bells > 0 || !is_patient)
            || self.due_after_ns.is_some() && (self.early_ticks > 0 || !is_patient)
    }

    fn due_ns(&self) -> Option<u64> {
        Some(self.ticked_at_ns?.saturating_add(self.due_after_ns?))
    }

    fn on_stop(&mut self, _turn: Turn) {
        self.stops += 1;
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl StreamApp for StreamProbe {
    fn on_open<O: StreamOut>(&mut self, opened: Opened, out: &mut O) {
        self.is_in_turn = true;
        let Opened { conn: id, peer, local, port } = opened;
        let mut conn = Conn {
            peer,
            local,
            port,
            taken: Vec::new(),
            shown: Vec::new(),
            closed: None,
            finished: false,
            rooms: 0,
            left: Vec::new(),
            owed: Vec::new(),
            paid: 0,
            queued_bytes_max: 0,
            awaits_room: false,
            paused: false,
            shut: self.door != Door::Open,
        };
        match self.door {
            Door::Open => {}
            Door::Answer(answer) => {
                assert_eq!(out.send(id, answer), answer.len(), "a new queue has room");
                out.close(id);
            }
            Door::Abort => out.abort(id),
        }
        if conn.shut {
            assert_eq!(conn.send(id, b"more", out), 0, "a closed connection takes nothing");
        }
        assert!(self.conns.insert(id, conn).is_none(), "{id:?} was used before");
    }

    fn on_bytes<O: StreamOut>(&mut self, id: ConnId, bytes: &[u8], out: &mut O) -> usize {
        self.is_in_turn = true;
        let conn = self.conns.get_mut(&id).unwrap_or_else(|| panic!("{id:?} was never opened"));
        assert_eq!(conn.closed, None, "bytes of {id:?} after its close");
        assert!(!conn.shut, "bytes of {id:?}, which the app has closed");
        assert!(!conn.paused, "bytes of {id:?}, which is paused");
        assert!(!conn.awaits_room, "bytes of {id:?} before room was reported");
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
                consumed = conn.send(id, bytes, out);
                self.refused += usize::from(consumed < bytes.len());
                if self.manner == Manner::EchoAndClose {
                    conn.shut = true;
                    out.close(id);
                }
            }
            Manner::Amplify | Manner::Lines => {
                let mut rest = bytes;
                while let Some((used, reply)) = next_reply(self.manner, rest) {
                    if conn.owed_bytes() > 0 {
                        break;
                    }
                    conn.owed = reply;
                    conn.pay(id, out);
                    self.refused += usize::from(conn.owed_bytes() > 0);
                    consumed += used;
                    rest = &rest[used..];
                }
            }
        }
        conn.taken.extend_from_slice(&bytes[..consumed]);
        conn.left = bytes[consumed..].to_vec();
        consumed
    }

    fn on_room<O: StreamOut>(&mut self, id: ConnId, out: &mut O) {
        self.is_in_turn = true;
        let conn = self.conns.get_mut(&id).unwrap_or_else(|| panic!("{id:?} was never opened"));
        assert_eq!(conn.closed, None, "room of {id:?} after its close");
        assert!(std::mem::take(&mut conn.awaits_room), "{id:?} took all it was given");
        conn.rooms += 1;
        if conn.owed_bytes() > 0 {
            conn.pay(id, out);
            self.refused += usize::from(conn.owed_bytes() > 0);
        }
    }

    fn on_finish<O: StreamOut>(&mut self, id: ConnId, out: &mut O) {
        self.is_in_turn = true;
        let conn = self.conns.get_mut(&id).unwrap_or_else(|| panic!("{id:?} was never opened"));
        assert_eq!(conn.closed, None, "{id:?} finishes after its close");
        assert!(!std::mem::replace(&mut conn.finished, true), "{id:?} finishes twice");
        if !self.owes {
            conn.shut = true;
            out.close(id);
        }
    }

    fn on_turn_end<O: StreamOut>(&mut self, _turn: Turn, out: &mut O) {
        self.is_in_turn = false;
        self.turn_ends += 1;
        if let Some(arrivals) = &mut self.arrivals
            && self.returned_bytes >= self.taken_before_bytes
        {
            self.looks += 1;
            self.early += usize::from(arrivals());
        }
        self.taken_before_bytes = self.conns.values().map(|conn| conn.taken.len()).sum();
        if self.manner == Manner::AtTurnEnd && self.until_bell == (self.bells > 0) {
            self.pay(out);
        }
    }

    fn on_close(&mut self, id: ConnId, why: Close) {
        self.is_in_turn = true;
        let conn = self.conns.get_mut(&id).unwrap_or_else(|| panic!("{id:?} was never opened"));
        assert_eq!(conn.closed.replace(why), None, "{id:?} closed twice");
    }

    fn on_tick<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        self.ticks.fetch_add(1, Ordering::SeqCst);
        let since_ns = self.ticked_at_ns.map(|at_ns| turn.now_ns - at_ns);
        self.early_ticks += usize::from(since_ns.is_some_and(|ns| ns < TICK_NS));
        self.ticked_at_ns = Some(turn.now_ns);
        self.obey(out);
        if self.manner == Manner::OnTick && self.until_bell == (self.bells > 0) {
            self.pay(out);
        }
    }
}

/// The first of what can be answered, its bytes and the answer.
fn next_reply(manner: Manner, bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    match manner {
        Manner::Amplify => bytes.first().map(|byte| (1, vec![*byte; AMPLIFIED_BYTES])),
        _ => {
            let line = bytes.split_inclusive(|byte| *byte == b'\n').next()?;
            line.ends_with(b"\n").then(|| (line.len(), line.to_vec()))
        }
    }
}
