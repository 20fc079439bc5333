//! What a port keeps that the kernel did not take, where its plan says that the oldest goes first.
//!
//! What must always hold: datagrams leave in the order they came; they take no more than the plan allows;
//! every one that goes unsent is counted, under the reason for which the kernel took none last.

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
pub(crate) struct Backlog {
    bytes_max: usize,
    bytes: usize,
    items: VecDeque<Item>,
    spares: Vec<Vec<u8>>,
    /// Why the kernel took no more.
    why: DropReason,
}

/// One datagram.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) payload: Vec<u8>,
    pub(crate) destination: SocketAddr,
    /// The address of ours to send from, where there is a choice.
    pub(crate) from: Option<IpAddr>,
}

impl Item {
    fn bytes(&self) -> usize {
        self.payload.len().max(ITEM_BYTES_MIN)
    }
}

impl Backlog {
    /// An empty one for so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Backlog {
        Backlog {
            bytes_max,
            bytes: 0,
            items: VecDeque::new(),
            spares: Vec::new(),
            why: DropReason::TxSocketFull,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The kernel has taken no more for this reason.
    pub(crate) fn refused(&mut self, why: DropReason) {
        self.why = why;
    }

    /// Adds a datagram, and makes the room that it needs.
    pub(crate) fn push(
        &mut self,
        payload: &[u8],
        destination: SocketAddr,
        from: Option<IpAddr>,
        counters: &mut Counters,
    ) {
        let mut buffer = self.spares.pop().unwrap_or_default();
        buffer.extend_from_slice(payload);
        let item = Item { payload: buffer, destination, from };
        self.bytes += item.bytes();
        self.items.push_back(item);
        while self.bytes > self.bytes_max {
            self.pop();
            counters.drop_one(self.why);
        }
    }

    /// The oldest.
    pub(crate) fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    /// Takes the oldest out.
    pub(crate) fn pop(&mut self) {
        let Some(mut item) = self.items.pop_front() else { return };
        self.bytes -= item.bytes();
        if self.spares.len() < SPARES_MAX {
            item.payload.clear();
            self.spares.push(mem::take(&mut item.payload));
        }
    }

    /// Counts what is still there: if the port ends now, it will not leave.
    pub(crate) fn count_unsent(&self, counters: &mut Counters) {
        counters.drop_many(self.why, self.items.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(backlog: &mut Backlog, payload: &[u8], counters: &mut Counters) {
        backlog.push(payload, ([192, 0, 2, 1], 7).into(), None, counters);
    }

    #[test]
    fn the_oldest_go_and_are_counted_and_the_rest_keep_their_order() {
        let (mut backlog, mut counters) = (Backlog::new(1000), Counters::default());
        backlog.refused(DropReason::TxInterfaceFull);
        (0..15u8).for_each(|i| push(&mut backlog, &[i; 100], &mut counters));
        assert_eq!(counters.drops(DropReason::TxInterfaceFull), 5);
        for i in 5..15u8 {
            assert_eq!(backlog.front().map(|item| &item.payload[..]), Some(&[i; 100][..]));
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
        backlog.count_unsent(&mut unsent);
        assert_eq!(unsent.drops(DropReason::TxSocketFull), 1);
    }
}
