//! What a port keeps that the kernel did not take, where its plan says that the oldest goes first. Shared by
//! the lanes of kernel sockets.
//!
//! ```text
//!   push ──▶ waiting ──lend──▶ with the kernel ──pop──▶ sent
//!                │    ◀─lend(0)──  (refused)
//!                └── trim ──▶ dropped
//! ```
//!
//! What must always hold: datagrams leave in the order of arrival; after a trim they take no more than the plan
//! allows; every one that goes unsent is counted, under the reason for which the kernel took none last.

use laneway_core::{Counters, DropReason};
use std::{
    collections::VecDeque,
    mem,
    net::{IpAddr, SocketAddr},
};

/// What a datagram counts for at least, so that many small ones are bounded too.
const ITEM_BYTES_MIN: usize = 64;
/// Buffers that are kept for the next ones.
const SPARES_MAX: usize = 64;

/// The queue of one port.
#[derive(Debug)]
pub struct Backlog {
    bytes_max: usize,
    bytes: usize,
    items: VecDeque<Delayed>,
    /// So many of the first are with the kernel.
    in_flight: usize,
    spares: Vec<Vec<u8>>,
    /// Why the kernel took no more.
    why: DropReason,
}

/// One datagram.
#[derive(Debug)]
pub struct Delayed {
    /// Its bytes.
    pub payload: Vec<u8>,
    /// Where it goes.
    pub destination: SocketAddr,
    /// The address of ours to send from, where there is a choice.
    pub from: Option<IpAddr>,
}

impl Delayed {
    fn bytes(&self) -> usize {
        self.payload.len().max(ITEM_BYTES_MIN)
    }
}

impl Backlog {
    /// An empty one for so many bytes.
    pub fn new(bytes_max: usize) -> Backlog {
        Backlog {
            bytes_max,
            bytes: 0,
            items: VecDeque::new(),
            in_flight: 0,
            spares: Vec::new(),
            why: DropReason::TxSocketFull,
        }
    }

    /// True when every datagram has left or was dropped.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// True while there is more than may wait.
    pub fn is_over(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// The kernel has taken no more for this reason.
    pub fn refused(&mut self, why: DropReason) {
        self.why = why;
    }

    /// Adds a datagram as the newest. The room that it needs is [`trim`](Self::trim)'s to make.
    pub fn push(&mut self, payload: &[u8], destination: SocketAddr, from: Option<IpAddr>) {
        let mut buffer = self.spares.pop().unwrap_or_default();
        buffer.extend_from_slice(payload);
        let item = Delayed { payload: buffer, destination, from };
        self.bytes += item.bytes();
        self.items.push_back(item);
    }

    /// Drops the oldest until there is no more than may wait. What is with the kernel stays.
    pub fn trim(&mut self, counters: &mut Counters) {
        while self.is_over()
            && let Some(item) = self.items.remove(self.in_flight)
        {
            self.discard(item);
            counters.drop_one(self.why);
        }
    }

    /// The oldest but `at`.
    pub fn get(&self, at: usize) -> Option<&Delayed> {
        self.items.get(at)
    }

    /// The oldest `count` are with the kernel now, and no others.
    pub fn lend(&mut self, count: usize) {
        self.in_flight = count.min(self.items.len());
    }

    /// How many are with the kernel.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes the oldest out: it has left, or never will.
    pub fn pop(&mut self) {
        let Some(item) = self.items.pop_front() else { return };
        self.in_flight = self.in_flight.saturating_sub(1);
        self.discard(item);
    }

    fn discard(&mut self, mut item: Delayed) {
        self.bytes -= item.bytes();
        if self.spares.len() < SPARES_MAX {
            item.payload.clear();
            self.spares.push(mem::take(&mut item.payload));
        }
    }

    /// Drops all that waits: it will not leave any more. What is with the kernel stays.
    pub fn drop_unsent(&mut self, counters: &mut Counters) {
        let unsent = self.items.split_off(self.in_flight);
        counters.drop_many(self.why, unsent.len() as u64);
        unsent.into_iter().for_each(|item| self.discard(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(backlog: &mut Backlog, payload: &[u8], counters: &mut Counters) {
        backlog.push(payload, ([192, 0, 2, 1], 7).into(), None);
        backlog.trim(counters);
    }

    /// The first byte of each, the oldest first.
    fn left(backlog: &Backlog) -> Vec<u8> {
        backlog.items.iter().map(|item| item.payload[0]).collect()
    }

    #[test]
    fn the_oldest_go_and_are_counted_and_the_rest_keep_their_order() {
        let (mut backlog, mut counters) = (Backlog::new(1000), Counters::default());
        backlog.refused(DropReason::TxInterfaceFull);
        (0..15u8).for_each(|i| push(&mut backlog, &[i; 100], &mut counters));
        assert_eq!(counters.drops(DropReason::TxInterfaceFull), 5);
        for i in 5..15u8 {
            assert_eq!(backlog.get(0).map(|item| &item.payload[..]), Some(&[i; 100][..]));
            backlog.pop();
        }
        assert!(backlog.is_empty() && backlog.bytes == 0);
    }

    #[test]
    fn small_ones_are_bounded_and_one_that_is_too_long_takes_all_with_it() {
        let (mut backlog, mut counters) = (Backlog::new(640), Counters::default());
        (0..12).for_each(|_| push(&mut backlog, &[], &mut counters));
        assert_eq!((backlog.items.len(), counters.lost()), (10, 2));
        push(&mut backlog, &[1; 641], &mut counters);
        assert!(backlog.is_empty());
        assert_eq!(counters.lost(), 13);
        push(&mut backlog, &[2; 640], &mut counters);
        let mut unsent = Counters::default();
        backlog.drop_unsent(&mut unsent);
        backlog.drop_unsent(&mut unsent);
        assert_eq!(unsent.drops(DropReason::TxSocketFull), 1, "once");
        assert!(backlog.is_empty() && backlog.bytes == 0);
    }

    #[test]
    fn what_is_with_the_kernel_is_neither_dropped_nor_counted() {
        let (mut backlog, mut counters) = (Backlog::new(500), Counters::default());
        (0..4u8).for_each(|i| push(&mut backlog, &[i; 100], &mut counters));
        backlog.lend(2);
        (4..8u8).for_each(|i| push(&mut backlog, &[i; 100], &mut counters));
        assert_eq!(left(&backlog), [0, 1, 5, 6, 7]);
        assert_eq!(counters.lost(), 3);
        backlog.pop();
        backlog.lend(0);
        push(&mut backlog, &[8; 200], &mut counters);
        assert_eq!(left(&backlog), [5, 6, 7, 8], "it was returned and was the oldest");
        backlog.lend(1);
        let mut unsent = Counters::default();
        backlog.drop_unsent(&mut unsent);
        assert_eq!((left(&backlog), unsent.lost()), (vec![5], 3));
    }
}
