//! When the buffers of a connection are too small for its path, and what stands under way.
//!
//! A connection begins small. Linux's rule (`tcp_rcv_space_adjust`), in spirit: if the app has taken a
//! whole window within two round trips, the peer waits for the window, and it is doubled. How long a
//! round trip takes is not known to a receiver: it is the handshake's time, or the shortest time in which
//! a window was filled. A sender's buffer is too small if all of it is under way and more waits.
//!
//! smoltcp cannot give a living socket another buffer, so a new socket takes over, when nothing is
//! under way that only the old one knows. For a receiver that is at almost any time; a sender stops
//! for a round trip to get there. What it does not do: it stops no peer. A connection that has bytes
//! under way in both directions at any time stays as it is.

use crate::sequence::is_before;

/// A window that takes longer than this to be filled is no bottleneck.
const TURN_NS_MAX: u64 = 1_000_000_000;

/// What one connection wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// The end of the window when the present turn of it began, and when that was.
    edge: u32,
    began_ns: u64,
    /// A round trip takes no longer.
    round_ns: u64,
    /// The receive buffer is too small.
    pub(crate) wants_receive: bool,
    /// The send buffer is too small; it is not filled until nothing is under way.
    pub(crate) wants_send: bool,
    /// The send buffer stays as it is.
    pub(crate) may_not_send: bool,
}

impl Growth {
    /// Of a connection that has received all up to `end`, with a window of `window_bytes`. Its
    /// handshake took `round_ns`; `u64::MAX` if it is not known.
    pub(crate) fn new(end: u32, window_bytes: usize, round_ns: u64, now_ns: u64) -> Growth {
        Growth {
            edge: end.wrapping_add(window_bytes as u32),
            began_ns: now_ns,
            round_ns,
            wants_receive: false,
            wants_send: false,
            may_not_send: false,
        }
    }

    /// All up to `end` has been received; from here on the window has `window_bytes`.
    pub(crate) fn receive(&mut self, end: u32, window_bytes: usize, now_ns: u64) {
        if is_before(end, self.edge) {
            return;
        }
        let turn_ns = now_ns.saturating_sub(self.began_ns);
        self.round_ns = self.round_ns.min(turn_ns);
        let is_quick = turn_ns <= self.round_ns.saturating_mul(2) && turn_ns <= TURN_NS_MAX;
        self.wants_receive |= is_quick;
        self.edge = end.wrapping_add(window_bytes as u32);
        self.began_ns = now_ns;
    }

    /// More waits than the send buffer of `buffer_bytes` has room for, and `under_way_bytes` of it are
    /// sent and not acknowledged.
    pub(crate) fn send(&mut self, under_way_bytes: usize, buffer_bytes: usize) {
        let is_stretched = under_way_bytes >= buffer_bytes - buffer_bytes / 8;
        self.wants_send |= is_stretched && !self.may_not_send;
    }

    /// Larger buffers cannot be had now. Stopping again and again would cost more than it gives.
    pub(crate) fn give_up(&mut self) {
        self.may_not_send |= self.wants_send;
        (self.wants_receive, self.wants_send) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_window_filled_within_two_round_trips_is_too_small() {
        for (turn_ms, wants) in [(50, true), (100, true), (101, false)] {
            let mut growth = Growth::new(u32::MAX - 5, 1000, 50 * MS, 7);
            growth.receive(900, 1000, 7 + turn_ms * MS);
            assert!(!growth.wants_receive, "the window is not full yet");
            growth.receive(994, 1000, 7 + turn_ms * MS);
            assert_eq!(growth.wants_receive, wants, "{turn_ms} ms");
        }
    }

    #[test]
    fn without_a_handshake_the_shortest_turn_stands_for_a_round_trip() {
        let mut growth = Growth::new(0, 1000, u64::MAX, 0);
        growth.receive(1000, 1000, 2000 * MS);
        assert!(!growth.wants_receive, "bytes drip in");
        growth.receive(2000, 1000, 2300 * MS);
        assert!(growth.wants_receive);
        growth.wants_receive = false;
        growth.receive(3000, 1000, 2901 * MS);
        assert!(!growth.wants_receive, "twice as slow as before");
    }

    #[test]
    fn a_send_buffer_is_too_small_when_all_of_it_is_under_way() {
        let mut growth = Growth::new(0, 1000, 0, 0);
        growth.send(874, 1000);
        assert!(!growth.wants_send);
        growth.send(875, 1000);
        assert!(growth.wants_send);
        growth.give_up();
        growth.send(1000, 1000);
        assert!(!growth.wants_send, "not again");
    }
}
