//! SYNs for connections that are synchronized: who sends one may have restarted, or be a stranger who knows the ends of
//! the connection alone (RFC 5961, 4.2).
//!
//! It is answered by a challenge, which acknowledges what has come, with the numbers of now; a peer that has restarted
//! answers by a reset that has them. Such a SYN is not shown to TCP.

use super::Connections;
use crate::{connection::Phase, host::Host, ip::Packet, reset::Segment};
use laneway_core::{Burst, PortId, Verdict};
use laneway_wire::tcp_flags;
use smoltcp::socket::tcp::State;

impl Connections {
    /// What a SYN gets that has the ends of the connection in `slot`; nothing if it is that connection's, or begins the
    /// next one.
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
        if !connection.may_challenge(now_ns) {
            host.events.challenges_suppressed += 1;
            return Some(Verdict::Drop);
        }
        connection.acknowledge_again(&mut self.reply, now_ns);
        host.events.challenges_sent += 1;
        Some(self.answer(host, link, &mut burst.frame_mut(i), packet))
    }
}
