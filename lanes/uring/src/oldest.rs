//! A port of which, when it can send no more, the oldest goes: what its app sends waits in a queue, and one
//! message at a time leaves from there.
//!
//! ```text
//!   app ──push──▶ backlog ──offer──▶ slot ──ring──▶ kernel ──▶ taken: popped, and the next is offered
//!                    │                                └─────▶ refused: still the oldest, offered again later
//!                    └── over its bound: the oldest is dropped and counted
//! ```
//!
//! A message is the oldest datagram, or a train that begins with it. The bytes are copied into the slot, so
//! the backlog may change while a message is in flight.
//!
//! What must always hold: at most one message of the port is in flight, so datagrams leave in the order of
//! arrival; every datagram is counted as sent or under one drop reason.

use crate::trains::{Goal, Outcome, REPEATS_MAX, SLOT_BYTES, Trains, drop_reason, fall_back};
use laneway_core::Counters;
use laneway_linux::Backlog;
use std::{io, net::SocketAddr};

/// The queue of one port.
#[derive(Debug)]
pub(crate) struct Oldest {
    backlog: Backlog,
    /// The kernel took none, and is not asked again before it is time.
    is_refused: bool,
    /// A datagram was added after that.
    has_grown: bool,
    /// Nothing but single datagrams: a train may be what does not fit.
    is_cautious: bool,
    repeats: u32,
    /// It is listed among those that have something waiting.
    pub(crate) is_listed: bool,
}

/// What a completion asks of the port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// To take the errors of earlier datagrams from its socket.
    DrainErrors,
    /// To make trains of no longer segments.
    Shorten(usize),
}

impl Oldest {
    /// A queue for `bytes`.
    pub(crate) fn new(bytes: usize) -> Oldest {
        Oldest {
            backlog: Backlog::new(bytes),
            is_refused: false,
            has_grown: false,
            is_cautious: false,
            repeats: 0,
            is_listed: false,
        }
    }

    /// Adds a datagram; [`trim`](Self::trim) makes the room for it that the kernel does not.
    pub(crate) fn push(&mut self, datagram: &[u8], destination: SocketAddr) {
        // A slot has room for more than any datagram has, and the kernel judges its length.
        let datagram = &datagram[..datagram.len().min(SLOT_BYTES)];
        self.backlog.push(datagram, destination, None);
        self.has_grown = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }

    /// True while more waits than may.
    pub(crate) fn is_over(&self) -> bool {
        self.backlog.is_over()
    }

    /// Drops the oldest of what is too much.
    pub(crate) fn trim(&mut self, counters: &mut Counters) {
        self.backlog.trim(counters);
    }

    /// Drops all that waits: it will not leave any more.
    pub(crate) fn drop_unsent(&mut self, counters: &mut Counters) {
        self.backlog.drop_unsent(counters);
    }

    /// True when the kernel may be offered a message now.
    pub(crate) fn can_offer(&self) -> bool {
        !self.is_refused && self.backlog.in_flight() == 0 && !self.backlog.is_empty()
    }

    /// A new turn: what was refused may be offered again, if it is time or a datagram was added since.
    pub(crate) fn turn(&mut self, is_due: bool) {
        self.is_refused &= !is_due && !self.has_grown;
        self.has_grown = false;
    }

    /// Gathers one message of the port at `egress`, if [`can_offer`](Self::can_offer) and there is a slot.
    pub(crate) fn offer(
        &mut self,
        egress: u16,
        segment_bytes_max: usize,
        trains: &mut Trains,
    ) -> bool {
        if !self.can_offer() {
            return false;
        }
        let segment_bytes_max = if self.is_cautious { 0 } else { segment_bytes_max };
        let mut taken = 0;
        while let Some(item) = self.backlog.get(taken) {
            // One message at a time is in order.
            let in_order = false;
            let goal = Goal { egress, destination: item.destination, in_order, segment_bytes_max };
            let bytes = item.payload.len();
            let copy = |room: &mut [u8]| {
                room.copy_from_slice(&item.payload);
                bytes
            };
            let is_next = taken == 0 || trains.joins(goal, bytes);
            if !is_next || !trains.write(goal, bytes, copy) {
                break;
            }
            taken += 1;
        }
        self.backlog.lend(taken);
        taken > 0
    }

    /// The message has been sent or not. `may_be_late` knows the errors that earlier datagrams may have caused.
    pub(crate) fn ended(
        &mut self,
        outcome: &Outcome,
        may_be_late: impl Fn(&io::Error) -> bool,
        counters: &mut Counters,
    ) -> Then {
        let Err(error) = &outcome.result else {
            counters.tx_frames += outcome.segments as u64;
            counters.tx_bytes += outcome.bytes as u64;
            self.forget(outcome.segments);
            return Then::Nothing;
        };
        if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) {
            self.backlog.refused(drop_reason(error));
            self.backlog.lend(0);
            (self.is_refused, self.is_cautious, self.has_grown) = (true, true, false);
            return Then::Nothing;
        }
        // What is itself too long is so the next time, too.
        let is_too_long = error.raw_os_error() == Some(libc::EMSGSIZE);
        let repeats_max = if is_too_long { 1 } else { REPEATS_MAX };
        if may_be_late(error) && self.repeats < repeats_max {
            self.repeats += 1;
            self.backlog.lend(0);
            return Then::DrainErrors;
        }
        match fall_back(error, outcome.segment_bytes) {
            Some(bytes_max) if outcome.segments > 1 => {
                self.backlog.lend(0);
                Then::Shorten(bytes_max)
            }
            _ => {
                counters.drop_many(drop_reason(error), outcome.segments as u64);
                self.forget(outcome.segments);
                Then::Nothing
            }
        }
    }

    /// The oldest `count` have left, or never will.
    fn forget(&mut self, count: usize) {
        (0..count).for_each(|_| self.backlog.pop());
        self.repeats = 0;
        self.is_cautious &= !self.backlog.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Ring;
    use laneway_core::DropReason;
    use proptest::prelude::*;

    const EGRESS: u16 = 3;

    /// One port, and a kernel that takes what it is asked to.
    struct World {
        oldest: Oldest,
        trains: Trains,
        _ring: Ring,
        counters: Counters,
        segment_bytes_max: usize,
        /// Numbers of the datagrams that left.
        sent: Vec<u16>,
        /// The segments of each message that was offered.
        messages: Vec<usize>,
    }

    impl World {
        /// Or a printed reason why there is no ring.
        fn new(bytes: usize) -> Option<World> {
            let mut ring = Ring::open(4).map_err(laneway_testkit::skip).ok()?;
            Some(World {
                oldest: Oldest::new(bytes),
                trains: Trains::new(&mut ring, 4, None).expect("memory"),
                _ring: ring,
                counters: Counters::default(),
                segment_bytes_max: usize::MAX,
                sent: Vec::new(),
                messages: Vec::new(),
            })
        }

        fn push(&mut self, number: u16, host: u8, bytes: usize) {
            let mut datagram = vec![0; bytes];
            datagram[..2].copy_from_slice(&number.to_be_bytes());
            self.oldest.push(&datagram, ([192, 0, 2, host], 7).into());
            self.oldest.trim(&mut self.counters);
        }

        /// Offers a message; `meanwhile` happens before it ends in this error (0: it is taken).
        fn offer(&mut self, error: i32, meanwhile: impl FnOnce(&mut World)) -> Option<Then> {
            if !self.oldest.offer(EGRESS, self.segment_bytes_max, &mut self.trains) {
                return None;
            }
            let again = self.oldest.offer(EGRESS, self.segment_bytes_max, &mut self.trains);
            assert!(!again, "one message at a time");
            let taken = self.trains.take();
            let [(_, segment_bytes, bytes)] = &taken[..] else { panic!("{} slots", taken.len()) };
            meanwhile(self);
            let numbers: Vec<u16> = bytes
                .chunks(*segment_bytes)
                .map(|datagram| u16::from_be_bytes([datagram[0], datagram[1]]))
                .collect();
            let outcome = Outcome {
                egress: EGRESS.into(),
                segments: numbers.len(),
                segment_bytes: *segment_bytes,
                bytes: bytes.len(),
                result: match error {
                    0 => Ok(bytes.len()),
                    code => Err(io::Error::from_raw_os_error(code)),
                },
            };
            self.messages.push(numbers.len());
            if error == 0 {
                self.sent.extend(numbers);
            }
            let late = [libc::EHOSTUNREACH, libc::EMSGSIZE].map(Some);
            let may_be_late = |error: &io::Error| late.contains(&error.raw_os_error());
            let then = self.oldest.ended(&outcome, may_be_late, &mut self.counters);
            if let Then::Shorten(bytes_max) = then {
                self.segment_bytes_max = self.segment_bytes_max.min(bytes_max);
            }
            Some(then)
        }
    }

    #[test]
    fn what_is_refused_stays_the_oldest_and_is_offered_again_when_it_is_time() {
        let Some(mut world) = World::new(1000) else { return };
        (0..3).for_each(|number| world.push(number, 1, 100));
        assert_eq!(world.offer(libc::ENOBUFS, |_| ()), Some(Then::Nothing));
        assert_eq!(world.offer(0, |_| ()), None, "the kernel has just refused");
        world.oldest.turn(false);
        assert_eq!(world.offer(0, |_| ()), None, "it is not time, and nothing arrived");
        world.oldest.turn(true);
        while world.offer(0, |_| ()).is_some() {}
        assert_eq!((world.sent, world.messages), (vec![0, 1, 2], vec![3, 1, 1, 1]), "singly");
    }

    #[test]
    fn what_arrived_since_has_the_queue_offered_again() {
        let Some(mut world) = World::new(1000) else { return };
        world.push(0, 1, 100);
        world.offer(libc::EAGAIN, |_| ());
        world.push(1, 1, 100);
        assert_eq!(world.offer(0, |_| ()), None, "not within the turn");
        world.oldest.turn(false);
        assert!(world.offer(0, |_| ()).is_some());
    }

    #[test]
    fn equal_datagrams_to_one_host_are_a_train_and_all_others_wait_for_it() {
        let Some(mut world) = World::new(100_000) else { return };
        for (number, (host, bytes)) in
            [(1, 100), (1, 100), (1, 50), (1, 100), (2, 100), (2, 200)].into_iter().enumerate()
        {
            world.push(number as u16, host, bytes);
        }
        while world.offer(0, |_| ()).is_some() {}
        assert_eq!((world.sent, world.messages), (vec![0, 1, 2, 3, 4, 5], vec![3, 1, 1, 1]));
    }

    #[test]
    fn a_train_that_the_path_refuses_is_sent_cut_and_costs_nothing() {
        let Some(mut world) = World::new(100_000) else { return };
        (0..3).for_each(|number| world.push(number, 1, 100));
        assert_eq!(world.offer(libc::EIO, |_| ()), Some(Then::Shorten(0)));
        while world.offer(0, |_| ()).is_some() {}
        assert_eq!((world.sent, world.counters.lost()), (vec![0, 1, 2], 0));
    }

    #[test]
    fn an_error_of_an_earlier_datagram_is_tried_again_but_not_for_ever() {
        let Some(mut world) = World::new(1000) else { return };
        world.push(0, 1, 100);
        for _ in 0..REPEATS_MAX {
            assert_eq!(world.offer(libc::EHOSTUNREACH, |_| ()), Some(Then::DrainErrors));
        }
        assert_eq!(world.offer(libc::EHOSTUNREACH, |_| ()), Some(Then::Nothing));
        assert_eq!(world.counters.drops(DropReason::NoRoute), 1);
        assert!(world.oldest.is_empty());
    }

    #[test]
    fn what_is_too_long_is_tried_once_more_before_it_is_its_own_fault() {
        let Some(mut world) = World::new(100_000) else { return };
        (0..3).for_each(|number| world.push(number, 1, 1300));
        assert_eq!(world.offer(libc::EMSGSIZE, |_| ()), Some(Then::DrainErrors));
        assert!(world.offer(0, |_| ()).is_some());
        assert_eq!((&world.sent[..], &world.messages[..]), (&[0, 1, 2][..], &[3, 3][..]), "whole");
        (3..6).for_each(|number| world.push(number, 1, 1300));
        assert_eq!(world.offer(libc::EMSGSIZE, |_| ()), Some(Then::DrainErrors));
        assert_eq!(world.offer(libc::EMSGSIZE, |_| ()), Some(Then::Shorten(1232)));
        assert_eq!(world.counters.lost(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever the kernel says, and whatever comes while a message is in flight: what leaves leaves in
        /// order and once, and every datagram has left, is named, or waits.
        #[test]
        fn datagrams_leave_in_order_and_all_are_accounted_for(
            steps in prop::collection::vec(
                (
                    prop::collection::vec((1u8..3, prop_oneof![Just(700usize), 2usize..1500]), 0..12),
                    prop_oneof![
                        4 => Just(0),
                        1 => Just(libc::EAGAIN),
                        1 => Just(libc::ENOBUFS),
                        1 => Just(libc::EHOSTUNREACH),
                        1 => Just(libc::EIO),
                        1 => Just(libc::EMSGSIZE),
                        1 => Just(libc::EPERM),
                    ],
                    any::<bool>(),
                ),
                1..60,
            ),
        ) {
            let Some(mut world) = World::new(6000) else { return Ok(()) };
            let mut next = 0u16..;
            for (arrived, error, is_due) in steps {
                let (before, meanwhile) = arrived.split_at(arrived.len() / 2);
                let mut push = |world: &mut World, sends: &[(u8, usize)]| {
                    for &(host, bytes) in sends {
                        world.push(next.next().expect("few"), host, bytes);
                    }
                };
                push(&mut world, before);
                world.offer(error, |world| push(world, meanwhile));
                world.oldest.trim(&mut world.counters);
                prop_assert!(!world.oldest.is_over());
                world.oldest.turn(is_due);
            }
            let mut unsent = Counters::default();
            world.oldest.drop_unsent(&mut unsent);
            let sent = world.sent.len() as u64;
            prop_assert!(world.sent.windows(2).all(|two| two[0] < two[1]), "{:?}", world.sent);
            prop_assert_eq!(world.counters.tx_frames, sent);
            prop_assert_eq!(sent + world.counters.lost() + unsent.lost(), u64::from(next.start));
        }
    }
}
