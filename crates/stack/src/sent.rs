//! What a stack gave to its lane, for as long as the lane may still refuse it.
//!
//! A lane counts a frame as refused long after it took it: a full queue had no room, or the interface went away with
//! frames in its ring. It says how many ([`FrameLane::refused`](laneway_core::FrameLane::refused)), not which. The
//! newest are taken to be those: a full queue refuses what comes last, and a ring is emptied from its other end. They
//! are taken back from the port that counted them as sent, so that a datagram is counted once: as sent, or as refused.

use crate::neighbour::Account;
use std::collections::VecDeque;

/// More than a transmit ring has slots: what is older has left.
const FRAMES_MAX: usize = 8192;

/// What left by one interface. `None` is a packet that no port sent.
#[derive(Default)]
pub(crate) struct Sent {
    newest_last: VecDeque<Option<Account>>,
    taken_back: u64,
}

impl Sent {
    /// The lane was given this, behind all before it.
    pub(crate) fn push(&mut self, account: Option<Account>) {
        self.newest_last.push_back(account);
    }

    /// Calls `lose` with what the lane has refused since the last time, the newest first; `refused` counts all.
    /// To be called once what was pushed is settled: more than a ring holds may be given, and refused, in one turn.
    pub(crate) fn take_back(&mut self, refused: u64, mut lose: impl FnMut(Option<Account>)) {
        while self.taken_back < refused
            && let Some(account) = self.newest_last.pop_back()
        {
            self.taken_back += 1;
            lose(account);
        }
        let beyond = self.newest_last.len().saturating_sub(FRAMES_MAX);
        self.newest_last.drain(..beyond);
    }

    /// Refusals that were taken back.
    pub(crate) fn taken_back(&self) -> u64 {
        self.taken_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::PortId;

    fn of(port: u32) -> Option<Account> {
        Some(Account { port: PortId(port), payload_bytes: 7 })
    }

    #[test]
    fn the_newest_is_what_was_refused_and_each_once() {
        let mut sent = Sent::default();
        [of(0), None, of(1), of(2)].into_iter().for_each(|account| sent.push(account));
        let mut lost = Vec::new();
        sent.take_back(3, |account| lost.push(account));
        assert_eq!((lost, sent.taken_back()), (vec![of(2), of(1), None], 3));
        sent.push(of(3));
        sent.take_back(3, |_| panic!("it was taken back before"));
        // A lane that refuses more than it was given is believed no further.
        let mut lost = Vec::new();
        sent.take_back(9, |account| lost.push(account));
        assert_eq!((lost, sent.taken_back()), (vec![of(3), of(0)], 5));
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut sent = Sent::default();
        (0..3 * FRAMES_MAX).for_each(|i| sent.push(of(i as u32)));
        let mut lost = 0;
        sent.take_back(FRAMES_MAX as u64, |_| lost += 1);
        sent.take_back(u64::MAX, |_| lost += 1);
        assert_eq!(lost, 2 * FRAMES_MAX);
    }
}
