//! What a connection says to a sender that may not know its numbers, and what it reads of one that knows older ones.

use super::Connection;
use crate::{device::Reply, limit::RateLimit, syn::Imagined};
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
}
