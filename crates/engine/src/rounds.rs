//! An app with a probe around it, for lanes that call it from inside their round.
//!
//! The lane of datagrams or streams is in charge of a round, so the loop sees neither where the app's share begins
//! nor where it ends. These wrappers do: they pass every call on and tell the probe. A round in which the app is not
//! called tells nothing of itself.

use crate::probe::Probe;
use laneway_core::{
    Close, ConnId, Counters, Datagram, DatagramApp, DatagramOut, StreamApp, StreamOut, Turn,
};
use laneway_tracer::points;
use std::net::SocketAddr;

/// A round in which the app may be called.
struct Round<'a> {
    probe: &'a mut Probe,
    began: u64,
    entered: bool,
}

impl<'a> Round<'a> {
    fn new(probe: &'a mut Probe) -> Round<'a> {
        let began = probe.now();
        Round { probe, began, entered: false }
    }

    /// The app is about to be called.
    #[inline]
    fn enter(&mut self) -> u64 {
        if self.entered {
            return self.probe.now();
        }
        self.entered = true;
        self.probe.enter_round(self.began)
    }

    fn end(self, served: usize) {
        self.probe.served(self.began, self.entered, served);
    }
}

pub(crate) struct TracedDatagrams<'a, A> {
    app: &'a mut A,
    round: Round<'a>,
}

impl<'a, A: DatagramApp> TracedDatagrams<'a, A> {
    pub(crate) fn new(app: &'a mut A, probe: &'a mut Probe) -> Self {
        TracedDatagrams { app, round: Round::new(probe) }
    }

    /// The lane is done.
    pub(crate) fn end_round(self, served: usize) {
        self.round.end(served);
    }
}

impl<A: DatagramApp> DatagramApp for TracedDatagrams<'_, A> {
    #[inline]
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        let began = self.round.enter();
        self.app.on_datagrams(batch, turn, out);
        self.round.probe.called(points::APP_DATAGRAMS, began, batch.len());
    }

    fn on_tick<O: DatagramOut>(&mut self, turn: Turn, out: &mut O) {
        self.app.on_tick(turn, out);
    }

    fn on_stop(&mut self, turn: Turn) {
        self.app.on_stop(turn);
    }

    fn wants_stop(&self) -> bool {
        self.app.wants_stop()
    }

    fn counters(&self) -> &Counters {
        self.app.counters()
    }
}

pub(crate) struct TracedStreams<'a, A> {
    app: &'a mut A,
    round: Round<'a>,
}

impl<'a, A: StreamApp> TracedStreams<'a, A> {
    pub(crate) fn new(app: &'a mut A, probe: &'a mut Probe) -> Self {
        TracedStreams { app, round: Round::new(probe) }
    }

    /// The lane is done.
    pub(crate) fn end_round(self, served: usize) {
        self.round.end(served);
    }
}

impl<A: StreamApp> StreamApp for TracedStreams<'_, A> {
    fn on_open(&mut self, conn: ConnId, peer: SocketAddr) {
        self.app.on_open(conn, peer);
    }

    #[inline]
    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let began = self.round.enter();
        let consumed = self.app.on_bytes(conn, bytes, out);
        self.round.probe.called(points::APP_BYTES, began, bytes.len());
        consumed
    }

    /// Told only in a round that had bytes: lanes end every turn.
    #[inline]
    fn on_turn_end<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        let began = if self.round.entered { self.round.probe.now() } else { 0 };
        self.app.on_turn_end(turn, out);
        if self.round.entered {
            self.round.probe.called(points::APP_TURN_END, began, 0);
        }
    }

    fn on_close(&mut self, conn: ConnId, why: Close) {
        self.app.on_close(conn, why);
    }

    fn on_tick<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        self.app.on_tick(turn, out);
    }

    fn on_stop(&mut self, turn: Turn) {
        self.app.on_stop(turn);
    }

    fn wants_stop(&self) -> bool {
        self.app.wants_stop()
    }

    fn counters(&self) -> &Counters {
        self.app.counters()
    }
}
