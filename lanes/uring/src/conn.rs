//! One connection: what it received and the app did not consume, and its two send queues.
//!
//! ```text
//!   app ──send──▶ filling half ──turn ends──▶ sending half ──last completion──▶ idle, to be filled
//! ```
//!
//! The app fills one half while the kernel reads the other, so nothing that the kernel reads is ever
//! moved or written. Only one half is being sent at a time, which keeps the bytes in order. A
//! zero-copy send may keep its half after its bytes have gone, until its notification.
//!
//! Pure bookkeeping: it makes no call and touches no memory of a half.

use crate::sys;
use io_uring::types;
use laneway_core::{Close, ConnId};
use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

/// One send queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Half {
    /// Bytes in it.
    pub(crate) bytes: usize,
    /// Of these, taken by the kernel.
    pub(crate) sent: usize,
    /// Requests that have not ended.
    pub(crate) requests: u32,
}

impl Half {
    fn is_idle(self) -> bool {
        self.bytes == 0 && self.requests == 0
    }
}

/// The send queues of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halves {
    halves: [Half; 2],
    filling: Option<usize>,
    sending: Option<usize>,
}

impl Default for Halves {
    fn default() -> Self {
        Halves { halves: [Half::default(); 2], filling: Some(0), sending: None }
    }
}

impl Halves {
    /// The half that takes more, where in it that goes, and how many bytes, so that both halves together
    /// have no more than `bytes_max`.
    pub(crate) fn room(&self, bytes_max: usize) -> Option<(usize, usize, usize)> {
        let half = self.filling?;
        let room = bytes_max.saturating_sub(self.queued_bytes());
        (room > 0).then_some((half, self.halves[half].bytes, room))
    }

    /// Bytes that the kernel has not taken.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.halves.iter().map(|half| half.bytes - half.sent).sum()
    }

    /// `bytes` were written where [`room`](Self::room) stated.
    pub(crate) fn filled(&mut self, half: usize, bytes: usize) {
        self.halves[half].bytes += bytes;
    }

    /// The half to send next, if there is something to send and nothing being sent. It is then the
    /// kernel's, and the other one is filled.
    pub(crate) fn begin(&mut self) -> Option<usize> {
        let half = self.filling.filter(|&half| self.halves[half].bytes > 0)?;
        if self.sending.is_some() {
            return None;
        }
        self.sending = Some(half);
        self.filling = None;
        self.fill_idle();
        Some(half)
    }

    /// What of `half` is still to be sent: where, and how many bytes.
    pub(crate) fn rest(&self, half: usize) -> (usize, usize) {
        let half = self.halves[half];
        (half.sent, half.bytes - half.sent)
    }

    /// A request for `half` was handed to the kernel.
    pub(crate) fn requested(&mut self, half: usize) {
        self.halves[half].requests += 1;
    }

    /// The kernel took `bytes` of `half`. True when that was the last of it.
    pub(crate) fn took(&mut self, half: usize, bytes: usize) -> bool {
        let state = &mut self.halves[half];
        state.sent += bytes.min(state.bytes - state.sent);
        let is_done = state.sent == state.bytes;
        if is_done {
            *state = Half { requests: state.requests, ..Half::default() };
            self.sending = self.sending.filter(|&sending| sending != half);
        }
        is_done
    }

    /// A request for `half` has ended: the kernel reads it no more.
    pub(crate) fn ended(&mut self, half: usize) {
        self.halves[half].requests = self.halves[half].requests.saturating_sub(1);
        self.fill_idle();
    }

    /// Gives up what is queued: the connection is broken.
    pub(crate) fn discard(&mut self) {
        for half in &mut self.halves {
            (half.bytes, half.sent) = (0, 0);
        }
        self.sending = None;
        self.fill_idle();
    }

    /// Nothing is queued and nothing is being sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.halves.iter().all(|half| half.bytes == 0)
    }

    /// The kernel reads neither half.
    pub(crate) fn is_quiet(&self) -> bool {
        self.halves.iter().all(|half| half.requests == 0)
    }

    fn fill_idle(&mut self) {
        if self.filling.is_none() {
            self.filling = (0..2).find(|&half| self.halves[half].is_idle());
        }
    }
}

/// A place for a connection, and the connection in it.
pub(crate) struct Conn {
    /// Counts the connections of this place.
    pub(crate) generation: u32,
    pub(crate) port: usize,
    /// Nothing: the place is free.
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) peer: SocketAddr,
    /// The app has been notified of it, and not of its end.
    pub(crate) is_open: bool,
    /// Received and not consumed.
    pub(crate) received: Vec<u8>,
    pub(crate) halves: Halves,
    /// A receive is with the kernel.
    pub(crate) is_armed: bool,
    /// It is on the list of receives to be armed.
    pub(crate) is_to_be_armed: bool,
    /// It is on the list of those with something to send.
    pub(crate) is_dirty: bool,
    /// It is on the list of those to be looked at.
    pub(crate) is_noted: bool,
    /// A send took less than given, and the app has not been notified of room since.
    pub(crate) wants_room: bool,
    /// The app wants to see no bytes.
    pub(crate) is_paused: bool,
    /// What it received is shown although nothing new arrived.
    pub(crate) show_again: bool,
    /// Nothing more will be received.
    pub(crate) has_ended: bool,
    /// All that arrived before its peer finished has been taken in.
    pub(crate) peer_finished: bool,
    /// The app was notified of that.
    pub(crate) finish_reported: bool,
    /// It ends, for this reason, when its queue is empty.
    pub(crate) closing: Option<Close>,
    /// The app knows of its end. What the peer still sends is read and thrown away, because closing over
    /// unread bytes would reset the connection and cost the peer what it was sent.
    pub(crate) lingers: bool,
    /// So many bytes were thrown away.
    pub(crate) lingered_bytes: usize,
    /// It was reset by this end.
    pub(crate) is_reset: bool,
    /// It is among those whose closing time runs.
    pub(crate) is_timed: bool,
    /// Bytes that its peer had taken when its closing time was last looked at.
    pub(crate) acked_bytes: u64,
    /// Its requests are being cancelled.
    pub(crate) is_dying: bool,
    /// The turn it was last served in.
    pub(crate) turn: u64,
}

impl Conn {
    /// A free place.
    pub(crate) fn free() -> Conn {
        Conn {
            generation: 0,
            port: 0,
            socket: None,
            peer: SocketAddr::from(([0; 4], 0)),
            is_open: false,
            received: Vec::new(),
            halves: Halves::default(),
            is_armed: false,
            is_to_be_armed: false,
            is_dirty: false,
            is_noted: false,
            wants_room: false,
            is_paused: false,
            show_again: false,
            has_ended: false,
            peer_finished: false,
            finish_reported: false,
            closing: None,
            lingers: false,
            lingered_bytes: 0,
            is_reset: false,
            is_timed: false,
            acked_bytes: 0,
            is_dying: false,
            turn: 0,
        }
    }

    /// Moves a new connection in.
    pub(crate) fn occupy(&mut self, port: usize, socket: OwnedFd, peer: SocketAddr) {
        let mut received = std::mem::take(&mut self.received);
        received.clear(); // its memory stays with the place
        *self = Conn {
            generation: self.generation + 1,
            port,
            socket: Some(socket),
            peer,
            received,
            is_dirty: self.is_dirty,
            is_noted: self.is_noted,
            is_to_be_armed: self.is_to_be_armed,
            ..Conn::free()
        };
    }

    /// What its requests name.
    pub(crate) fn file(&self) -> Option<types::Fd> {
        self.socket.as_ref().map(|socket| types::Fd(socket.as_raw_fd()))
    }

    /// The app may be called for it, and has not closed it.
    pub(crate) fn is_live(&self) -> bool {
        self.is_open && self.closing.is_none()
    }

    /// Bytes may be shown to the app.
    pub(crate) fn may_show(&self) -> bool {
        self.is_live() && !self.wants_room && !self.is_paused
    }

    /// Bytes that the peer has acknowledged.
    pub(crate) fn taken_by_peer(&self) -> u64 {
        self.socket.as_ref().map_or(0, |socket| sys::acked_bytes(socket.as_fd()))
    }

    /// The app waits for room, and half of `bytes_max` is free.
    pub(crate) fn has_room_again(&self, bytes_max: usize) -> bool {
        let has_half = |(_, _, room): (usize, usize, usize)| room * 2 >= bytes_max;
        self.wants_room && self.halves.room(bytes_max).is_some_and(has_half)
    }

    /// The app is to be notified that the peer has finished: it saw all there was to see, or is paused.
    pub(crate) fn finish_is_due(&self) -> bool {
        let seen = self.is_paused || !self.wants_room && !self.show_again;
        self.peer_finished && seen && self.is_live() && !self.finish_reported
    }

    /// The kernel has no request of it.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_armed && self.halves.is_quiet()
    }
}

/// The name of the connection in `place`: never the same twice, because generations count up.
pub(crate) fn id(place: u32, generation: u32) -> ConnId {
    ConnId(u64::from(generation) << 32 | u64::from(place))
}

/// Place and generation of a name.
pub(crate) fn parts(id: ConnId) -> (u32, u32) {
    (id.0 as u32, (id.0 >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_half_that_awaits_its_notification_is_not_filled() {
        let mut halves = Halves::default();
        halves.filled(0, 10);
        assert_eq!(halves.begin(), Some(0));
        halves.requested(0);
        assert!(halves.took(0, 10));
        assert_eq!(halves.room(10), Some((1, 0, 10)));
        halves.filled(1, 10);
        assert_eq!(halves.begin(), Some(1));
        halves.requested(1);
        assert_eq!(halves.room(20), None, "both halves are the kernel's");
        halves.ended(0); // the notification
        assert_eq!((halves.room(20), halves.room(10)), (Some((0, 0, 10)), None));
    }

    #[test]
    fn names_carry_place_and_generation() {
        assert_eq!(parts(id(7, 9)), (7, 9));
        assert_ne!(id(7, 9), id(7, 10));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Fill(usize),
        Begin,
        Take(usize),
        End,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1usize..60).prop_map(Step::Fill),
            Just(Step::Begin),
            (1usize..60).prop_map(Step::Take),
            Just(Step::End),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        /// Whatever the order of events, no half is filled while the kernel reads it, and every byte
        /// is sent once, in order.
        #[test]
        fn bytes_leave_in_order_from_halves_that_no_app_writes(steps in steps()) {
            const BYTES_MAX: usize = 100;
            let mut halves = Halves::default();
            let mut memory = [[0u32; BYTES_MAX]; 2];
            let (mut written, mut read) = (0, 0);
            // Per request: its half, and the bytes it still has to take.
            let mut requests: Vec<(usize, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::Fill(bytes) => if let Some((half, at, room)) = halves.room(BYTES_MAX) {
                        let bytes = bytes.min(room);
                        prop_assert!(at + bytes <= BYTES_MAX);
                        prop_assert!(requests.iter().all(|request| request.0 != half));
                        for place in &mut memory[half][at..at + bytes] {
                            *place = written;
                            written += 1;
                        }
                        halves.filled(half, bytes);
                    },
                    Step::Begin => if let Some(half) = halves.begin() {
                        halves.requested(half);
                        requests.push((half, halves.rest(half).1));
                    },
                    Step::Take(bytes) => if let Some((half, left)) = requests.last_mut().filter(|r| r.1 > 0) {
                        let bytes = bytes.min(*left);
                        *left -= bytes;
                        let (at, _) = halves.rest(*half);
                        for place in &memory[*half][at..at + bytes] {
                            prop_assert_eq!(*place, read);
                            read += 1;
                        }
                        prop_assert_eq!(halves.took(*half, bytes), *left == 0);
                    },
                    Step::End => if requests.first().is_some_and(|request| request.1 == 0) {
                        halves.ended(requests.remove(0).0);
                    },
                }
            }
            prop_assert!(read <= written);
            prop_assert_eq!(halves.is_empty(), read == written);
            prop_assert_eq!(halves.is_quiet(), requests.is_empty());
        }
    }
}
