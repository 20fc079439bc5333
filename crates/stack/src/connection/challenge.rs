//! What a connection says to a sender that may not know its numbers, and what it reads of one that knows older ones.

use super::Connection;
use crate::{device::Reply, limit::RateLimit, reset::Segment, sequence::is_before, syn::Imagined};
use laneway_wire::{Tcp, tcp_flags};
use smoltcp::socket::tcp::State;

/// Challenges per second of one connection. Of each on its own: a limit that all of them share tells a stranger whether
/// a connection is there (CVE-2016-5696).
const PER_SECOND: u32 = 2;

/// The limit of a connection that has challenged no sender.
pub(super) fn limit() -> RateLimit {
    RateLimit::new(PER_SECOND, 1)
}

impl Connection {
    /// The number that the peer sends next: behind all that has come in order, and behind its FIN.
    pub(crate) fn next_of_peer(&self) -> u32 {
        self.received.end.wrapping_add(u32::from(self.peer_finished()))
    }

    /// True if `sequence` lies behind [`next_of_peer`](Self::next_of_peer), and in a window that may have been offered.
    pub(crate) fn is_in_window(&self, sequence: u32) -> bool {
        let ahead = sequence.wrapping_sub(self.next_of_peer());
        ahead > 0 && (ahead as usize) < self.seen().recv_capacity()
    }

    /// True if one more challenge may be sent, and counts it.
    pub(crate) fn may_challenge(&mut self, now_ns: u64) -> bool {
        self.challenges.allow(now_ns)
    }

    /// True once both ends know the numbers of the other, until the end.
    pub(crate) fn is_synchronized(&self) -> bool {
        let state = self.state();
        !matches!(state, State::Closed | State::Listen | State::SynSent | State::SynReceived)
    }

    /// The end of what the peer has acknowledged, our FIN included.
    fn acknowledged(&self) -> u32 {
        let is_fin_taken = matches!(self.state(), State::FinWait2 | State::TimeWait);
        self.received.acknowledged.wrapping_add(u32::from(is_fin_taken))
    }

    /// Has smoltcp acknowledge all that has come: it is shown the last number of the peer once more. That moves
    /// nothing, and smoltcp knows afterwards which window it has offered.
    pub(crate) fn acknowledge_again(&mut self, reply: &mut Reply, now_ns: u64) {
        let last = self.next_of_peer().wrapping_sub(1);
        let numbers = (last, self.acknowledged(), self.received.window);
        let old = Imagined::segment(self.ends, numbers, 1);
        self.receive(old.bytes(), reply, now_ns);
    }

    /// True if an earlier segment has acknowledged more than this one.
    pub(crate) fn is_overtaken(&self, segment: &Segment) -> bool {
        is_before(segment.tcp.acknowledgement, self.received.acknowledged)
    }

    /// Gives text that [`is_overtaken`](Self::is_overtaken), by a window at most, the acknowledgement and the window of
    /// now: it is to be read all the same (RFC 9293, 3.10.7.4), and smoltcp drops it for its own. `bytes` are the
    /// segment, whose checksum has been judged.
    #[cold]
    pub(crate) fn renew(&self, segment: &Segment, bytes: &mut [u8]) {
        let Segment { tcp, sequence_bytes } = *segment;
        let acknowledged = self.acknowledged();
        let behind = acknowledged.wrapping_sub(tcp.acknowledgement) as usize;
        let acknowledges = tcp.flags & tcp_flags::ACK != 0;
        let is_text = sequence_bytes > 0 && acknowledges && self.is_synchronized();
        // Without text it would count as a duplicate.
        if is_text && behind <= self.seen().send_capacity() {
            let renewed =
                Tcp { acknowledgement: acknowledged, window: self.received.window, ..tcp };
            let emitted = renewed.emit(bytes);
            debug_assert!(emitted, "there was room for this header");
        }
    }
}
