//! Packets on their way out that no received frame could carry: written by an app or by us while a
//! burst was borrowed, put into free frames when it is settled.
//!
//! ```text
//!   memory:  │ payload A │ packet P │ payload B │ ...        filled from the front
//!   queues:  interface 0: A to x, A to y, P, B to x          one item per packet, in order
//!            interface 1: A to z
//! ```
//!
//! A payload that goes to many is kept once and copied into each of their frames, behind headers
//! that are written there. One stretch of memory; it is empty again after every flush. Each packet
//! has its next hop already. Copies are counted.

use crate::{ip, neighbour::Account, sent::Sent, udp::Headers};
use laneway_core::{Burst, Counters, DropReason, FrameLane, LaneError, PortId, Verdict};
use laneway_wire::{ETHERNET_BYTES, Mac, checksum};

/// The counters of the ports of a stack.
pub(crate) trait Books {
    /// Those of a port; of one that is there no more, what such ports have left.
    fn of(&mut self, port: PortId) -> Option<&mut Counters>;
}

impl Books for Vec<Counters> {
    fn of(&mut self, port: PortId) -> Option<&mut Counters> {
        self.get_mut(port.index())
    }
}

/// Bytes that are kept until the flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    at: usize,
    bytes: usize,
    /// What they sum up to.
    pub(crate) sum: u16,
}

impl Kept {
    /// How many bytes there are.
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }
}

/// What an item is.
enum Carried {
    /// A packet with its headers.
    Whole { ether_type: u16, at: usize, bytes: usize },
    /// A payload, and the headers it gets.
    Datagram { headers: Headers, payload: Kept },
}

/// One packet to send.
struct Item {
    from: Mac,
    to: Mac,
    carried: Carried,
    account: Option<Account>,
}

/// The memory and what is in it.
pub(crate) struct Outbox {
    memory: Vec<u8>,
    used: usize,
    /// By interface.
    queues: Vec<Vec<Item>>,
    items: usize,
    items_max: usize,
    /// By interface: it is gone, and what is posted for it is lost.
    gone: Vec<bool>,
    /// By interface: what the lane was given.
    sent: Vec<Sent>,
    /// A packet that waits for its neighbour is put together here.
    scratch: Vec<u8>,
}

/// The link that a packet goes out on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) interface: u8,
    pub(crate) from: Mac,
    pub(crate) to: Mac,
}

impl Outbox {
    /// For `interfaces` interfaces; of at most `bytes` bytes and `items_max` packets between two
    /// flushes.
    pub(crate) fn new(interfaces: usize, bytes: usize, items_max: usize) -> Outbox {
        Outbox {
            memory: vec![0; bytes],
            used: 0,
            queues: (0..interfaces).map(|_| Vec::new()).collect(),
            items: 0,
            items_max,
            gone: vec![false; interfaces],
            sent: (0..interfaces).map(|_| Sent::default()).collect(),
            scratch: Vec::new(),
        }
    }

    /// Bytes that it keeps between two flushes, at most.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Whether an interface is gone.
    pub(crate) fn is_gone(&self, interface: u8) -> bool {
        self.gone[usize::from(interface)]
    }

    /// An interface is gone; true when that is news.
    pub(crate) fn lose(&mut self, interface: u8) -> bool {
        !std::mem::replace(&mut self.gone[usize::from(interface)], true)
    }

    /// What the lane was given, by interface.
    pub(crate) fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// The same, for what is given to the lane another way.
    pub(crate) fn sent_mut(&mut self) -> &mut [Sent] {
        &mut self.sent
    }

    /// Takes back from the ports of the stack what the lane has refused since this was asked last, on every interface.
    pub(crate) fn take_back_refused<L: FrameLane>(
        &mut self,
        lane: &L,
        ports: &mut impl Books,
        own: &mut Counters,
    ) {
        for (interface, sent) in (0..).map(PortId).zip(&mut self.sent) {
            take_back(lane.refused(interface), sent, ports, own);
        }
    }

    /// The same on one interface, of which the lane's counters name so many refusals: there may be more than it knows
    /// without a system call. Gives how many were taken back so far.
    pub(crate) fn take_back(
        &mut self,
        interface: usize,
        refused: u64,
        ports: &mut impl Books,
        own: &mut Counters,
    ) -> u64 {
        let sent = &mut self.sent[interface];
        take_back(refused, sent, ports, own);
        sent.taken_back()
    }

    /// True when no interface is left.
    pub(crate) fn has_lost_all(&self) -> bool {
        self.gone.iter().all(|gone| *gone)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// True when no further packet can be posted.
    pub(crate) fn is_full(&self) -> bool {
        self.items >= self.items_max
    }

    /// Keeps what `write` makes of a room of `bytes_max` bytes, if it is not longer than `fit_max`.
    ///
    /// # Errors
    /// There is no room for so many bytes, and nothing was written; or it is too long.
    pub(crate) fn keep(
        &mut self,
        bytes_max: usize,
        fit_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<Kept, DropReason> {
        let Some(room) = self.memory.get_mut(self.used..self.used + bytes_max) else {
            return Err(DropReason::TxRefused);
        };
        let bytes = write(room).min(bytes_max);
        if bytes > fit_max {
            return Err(DropReason::TxTooLong);
        }
        let kept =
            Kept { at: self.used, bytes, sum: checksum::fold(checksum::sum(&room[..bytes])) };
        self.used += bytes;
        Ok(kept)
    }

    /// Keeps a copy of bytes whose sum is known.
    ///
    /// # Errors
    /// There is no room.
    pub(crate) fn keep_copy(&mut self, bytes: &[u8], sum: u16) -> Result<Kept, DropReason> {
        let room = self.memory.get_mut(self.used..self.used + bytes.len());
        room.ok_or(DropReason::TxRefused)?.copy_from_slice(bytes);
        let kept = Kept { at: self.used, bytes: bytes.len(), sum };
        self.used += bytes.len();
        Ok(kept)
    }

    /// A part of kept bytes; a sum is known only of the whole.
    pub(crate) fn part(&self, whole: Kept, offset: usize, bytes: usize) -> Kept {
        if bytes == whole.bytes {
            return whole;
        }
        let at = whole.at + offset;
        Kept { at, bytes, sum: checksum::fold(checksum::sum(&self.memory[at..at + bytes])) }
    }

    /// Posts a payload with the headers it is to get; false when there are too many packets.
    #[must_use]
    pub(crate) fn post_datagram(
        &mut self,
        hop: Hop,
        headers: Headers,
        payload: Kept,
        port: PortId,
    ) -> bool {
        let account = Some(Account { port, payload_bytes: payload.bytes as u32 });
        self.post(hop, Carried::Datagram { headers, payload }, account)
    }

    /// Posts a copy of `packet`; false when the memory is full.
    #[must_use]
    pub(crate) fn post_copy(
        &mut self,
        hop: Hop,
        ether_type: u16,
        packet: &[u8],
        account: Option<Account>,
    ) -> bool {
        // Its sum is in its headers already.
        let Ok(Kept { at, bytes, .. }) = self.keep_copy(packet, 0) else { return false };
        self.post(hop, Carried::Whole { ether_type, at, bytes }, account)
    }

    fn post(&mut self, hop: Hop, carried: Carried, account: Option<Account>) -> bool {
        if self.is_full() {
            return false;
        }
        let Hop { interface, from, to } = hop;
        self.queues[usize::from(interface)].push(Item { from, to, carried, account });
        self.items += 1;
        true
    }

    /// A payload behind its headers, for what keeps it for longer.
    pub(crate) fn assemble(&mut self, headers: &Headers, payload: Kept) -> &[u8] {
        let Kept { at, bytes, .. } = payload;
        self.scratch.clear();
        self.scratch.resize(headers.bytes() + bytes, 0);
        headers.emit(&mut self.scratch, &self.memory[at..at + bytes]);
        &self.scratch
    }

    /// Sends everything, in the order in which it was posted per interface. `ports` are the counters
    /// of the stack's ports, `own` those of what no port sent. Where a lane fails, the others' packets go all the
    /// same, and what did not go is counted.
    pub(crate) fn flush<L: FrameLane>(
        &mut self,
        lane: &mut L,
        ports: &mut impl Books,
        own: &mut Counters,
    ) -> Result<(), LaneError> {
        let Outbox { memory, queues, gone, sent, .. } = self;
        let mut outcome = Ok(());
        for ((interface, queue), gone) in (0..).map(PortId).zip(queues).zip(&*gone) {
            let mut left = &queue[..];
            while !left.is_empty() {
                let provided = if *gone { None } else { Some(lane.lend(interface, left.len())) };
                let burst = match provided {
                    Some(Ok(burst)) => burst,
                    failed => {
                        outcome = outcome.and(failed.map_or(Ok(()), |provided| provided.map(drop)));
                        for item in std::mem::take(&mut left) {
                            book(item.account, ports, own).drop_one(DropReason::NoRoute);
                        }
                        break;
                    }
                };
                let borrowed = burst.len();
                let mut used = 0;
                while used < borrowed
                    && let Some((item, rest)) = left.split_first()
                {
                    left = rest;
                    let counters = book(item.account, ports, own);
                    if fill(burst, used, item, memory) {
                        used += 1;
                        counters.copies += 1;
                        if let Some(account) = item.account {
                            counters.tx_frames += 1;
                            counters.tx_bytes += u64::from(account.payload_bytes);
                        }
                        sent[interface.index()].push(item.account);
                    } else {
                        counters.drop_one(DropReason::TxTooLong);
                    }
                }
                // The failure may be another interface's.
                let settled = lane.settle(interface);
                outcome = outcome.and(settled);
                let refused = lane.refused(interface);
                take_back(refused, &mut sent[interface.index()], ports, own);
                if borrowed == 0 {
                    // No buffer is free: waiting for one here would stop the receiving side too.
                    for item in std::mem::take(&mut left) {
                        book(item.account, ports, own).drop_one(DropReason::TxRefused);
                    }
                }
            }
            queue.clear();
        }
        self.items = 0;
        self.used = 0;
        outcome
    }
}

fn take_back(refused: u64, sent: &mut Sent, ports: &mut impl Books, own: &mut Counters) {
    sent.take_back(refused, |account| {
        let counters = book(account, ports, own);
        match account {
            Some(account) => account.refuse(counters),
            None => counters.drop_one(DropReason::TxRefused),
        }
    });
}

/// Where a packet is counted that this port sent, or none.
fn book<'a>(
    account: Option<Account>,
    ports: &'a mut impl Books,
    own: &'a mut Counters,
) -> &'a mut Counters {
    match account.and_then(|account| ports.of(account.port)) {
        Some(counters) => counters,
        None => own,
    }
}

/// Writes a packet into frame `i`; false if the lane's frames are too short for it.
fn fill(burst: &mut Burst, i: usize, item: &Item, memory: &[u8]) -> bool {
    let mut frame = burst.frame_mut(i);
    let (ether_type, bytes) = match &item.carried {
        Carried::Whole { ether_type, bytes, .. } => (*ether_type, *bytes),
        Carried::Datagram { headers, payload } => {
            (ip::ether_type_of(headers.destination.ip()), headers.bytes() + payload.bytes)
        }
    };
    if !frame.set_len(ETHERNET_BYTES + bytes) {
        return false;
    }
    let frame_bytes = frame.bytes_mut();
    ip::emit_ethernet(frame_bytes, item.to, item.from, ether_type);
    let packet = &mut frame_bytes[ETHERNET_BYTES..];
    match &item.carried {
        Carried::Whole { at, bytes, .. } => packet.copy_from_slice(&memory[*at..*at + *bytes]),
        Carried::Datagram { headers, payload: Kept { at, bytes, .. } } => {
            headers.emit(packet, &memory[*at..*at + *bytes]);
        }
    }
    frame.set_verdict(Verdict::Tx);
    true
}
