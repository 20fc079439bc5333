//! What an app may do to connections while it is called.

use super::net::Net;
use laneway_core::{Close, ConnId, StreamOut};
use std::mem;

/// Where the app puts what it sends.
pub(super) struct Out<'a> {
    pub(super) net: &'a mut Net,
}

impl StreamOut for Out<'_> {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        self.net.find(conn).map_or(0, |place| self.net.queue(place, bytes))
    }

    fn queued(&self, conn: ConnId) -> usize {
        let place = self.net.find(conn);
        place.map_or(0, |place| self.net.conns[place as usize].halves.queued_bytes())
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(place) = self.live(conn) {
            self.net.end(place, Close::App);
        }
    }

    fn abort(&mut self, conn: ConnId) {
        if let Some(place) = self.net.find(conn) {
            self.net.reset(place, Close::App);
        }
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(place) = self.live(conn) {
            self.net.conns[place as usize].is_paused = true;
            if self.net.conns[place as usize].peer_finished {
                self.net.note(place);
            }
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(place) = self.live(conn)
            && mem::replace(&mut self.net.conns[place as usize].is_paused, false)
        {
            self.net.conns[place as usize].show_again = true;
            self.net.note(place);
        }
    }
}

impl Out<'_> {
    /// The place of a connection that the app has not closed.
    pub(super) fn live(&self, conn: ConnId) -> Option<u32> {
        self.net.find(conn).filter(|&place| self.net.conns[place as usize].is_live())
    }
}
