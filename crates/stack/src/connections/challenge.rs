//! SYNs and resets of connections that are synchronized: who sends one may not know where the connection is, or be a
//! stranger who knows its ends alone.
//!
//! ```text
//!   SYN, any number                  a challenge (RFC 5961, 4.2)     a peer that has restarted answers by a reset
//!   reset, the next number           ends the connection             a stranger guesses it in 2^32 attempts
//!   reset, another in the window     a challenge (RFC 5961, 3.2)     a peer whose data were lost answers by a reset
//!   reset, any other                 dropped
//! ```
//!
//! A challenge acknowledges what has come, with the numbers of now; the right peer's reset has them. None of these
//! segments is shown to TCP, but for the reset that ends the connection.

use super::Connections;
use crate::{connection::Phase, host::Host, ip::Packet, reset::Segment};
use laneway_core::{Burst, PortId, Verdict};
use laneway_wire::tcp_flags;
use smoltcp::socket::tcp::State;

impl Connections {
    /// What a SYN or a reset gets that has the ends of the connection in `slot`; nothing if it is that connection's, or
    /// begins the next one.
    pub(super) fn challenge(
        &mut self,
        host: &mut Host,
        slot: u32,
        (link, burst, i): (PortId, &mut Burst, usize),
        (packet, segment): (&Packet, &Segment),
        now_ns: u64,
    ) -> Option<Verdict> {
        let connection = &mut self.slots[slot as usize];
        let tcp = segment.tcp;
        let marks = tcp.flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST);
        let opens = marks == tcp_flags::SYN;
        match (connection.state(), connection.phase) {
            // The app has not been shown the end yet. A reset would refuse a peer that may connect in a moment; a SYN
            // that has no answer is sent again.
            (State::Closed, Phase::Open | Phase::Closing(_))
            | (State::TimeWait, Phase::Closing(_))
                if opens =>
            {
                return Some(Verdict::Drop);
            }
            (State::TimeWait, Phase::Lingering) if opens => return None,
            _ if !connection.is_synchronized() => return None,
            _ => (),
        }
        if marks & tcp_flags::RST != 0 {
            if tcp.sequence == connection.next_of_peer() {
                return None;
            }
            if !connection.is_in_window(tcp.sequence) {
                return Some(Verdict::Drop);
            }
        }
        if !connection.may_challenge(now_ns) {
            host.events.challenges_suppressed += 1;
            return Some(Verdict::Drop);
        }
        connection.acknowledge_again(&mut self.reply, now_ns);
        host.events.challenges_sent += 1;
        Some(self.answer(host, link, &mut burst.frame_mut(i), packet))
    }
}
