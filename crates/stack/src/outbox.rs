//! Packets on their way out that no received frame could carry: written by an app or by us while a
//! burst was borrowed, copied into lent frames when it is settled.
//!
//! One stretch of memory for a turn, filled from the front; it is empty again after every flush. The
//! copy is counted. Each packet has its next hop already.

use crate::{ip, neighbour::Account};
use laneway_core::{Burst, Counters, DropReason, FrameLane, LaneError, PortId, Verdict};
use laneway_wire::{ETHERNET_BYTES, Mac};

/// One packet in the memory, and where it goes.
struct Item {
    interface: u8,
    from: Mac,
    to: Mac,
    ether_type: u16,
    at: usize,
    bytes: usize,
    account: Option<Account>,
}

/// The memory and what is in it.
pub(crate) struct Outbox {
    memory: Vec<u8>,
    used: usize,
    items: Vec<Item>,
}

/// The link that a packet goes out on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) interface: u8,
    pub(crate) from: Mac,
    pub(crate) to: Mac,
}

impl Outbox {
    pub(crate) fn new(bytes: usize) -> Outbox {
        Outbox { memory: vec![0; bytes], used: 0, items: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Room for a packet of `bytes`, to be written and then posted; `None` when the memory is full.
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.memory.get_mut(self.used..self.used + bytes)
    }

    /// Posts the first `bytes` of the room last given.
    pub(crate) fn post(
        &mut self,
        hop: Hop,
        ether_type: u16,
        bytes: usize,
        account: Option<Account>,
    ) {
        let Hop { interface, from, to } = hop;
        let item = Item { interface, from, to, ether_type, at: self.used, bytes, account };
        self.items.push(item);
        self.used += bytes;
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
        let Some(room) = self.room(packet.len()) else { return false };
        room.copy_from_slice(packet);
        self.post(hop, ether_type, packet.len(), account);
        true
    }

    /// Sends everything, in the order in which it was posted per interface. `ports` are the counters
    /// of the stack's ports, `own` those of what no port sent.
    pub(crate) fn flush<L: FrameLane>(
        &mut self,
        lane: &mut L,
        ports: &mut [Counters],
        own: &mut Counters,
    ) -> Result<(), LaneError> {
        for interface in 0..lane.ports() as u8 {
            let mut next = 0;
            loop {
                let here = |item: &&Item| item.interface == interface;
                let left = self.items[next..].iter().filter(here).count();
                if left == 0 {
                    break;
                }
                let burst = lane.lend(PortId(interface.into()), left)?;
                let lent = burst.len();
                let mut used = 0;
                while used < lent && next < self.items.len() {
                    let item = &self.items[next];
                    next += 1;
                    if item.interface != interface {
                        continue;
                    }
                    let counters = match item.account {
                        Some(account) => &mut ports[usize::from(account.port)],
                        None => &mut *own,
                    };
                    if fill(burst, used, item, &self.memory) {
                        used += 1;
                        counters.copies += 1;
                        if let Some(account) = item.account {
                            counters.tx_frames += 1;
                            counters.tx_bytes += u64::from(account.payload_bytes);
                        }
                    } else {
                        counters.drop_one(DropReason::TxTooLong);
                    }
                }
                lane.settle(PortId(interface.into()))?;
                if lent == 0 {
                    // No buffer is free: waiting for one here would stop the receiving side too.
                    for item in self.items[next..].iter().filter(here) {
                        match item.account {
                            Some(account) => &mut ports[usize::from(account.port)],
                            None => &mut *own,
                        }
                        .drop_one(DropReason::TxRefused);
                    }
                    break;
                }
            }
        }
        self.items.clear();
        self.used = 0;
        Ok(())
    }
}

/// Writes a packet into frame `i`; false if the lane's frames are too short for it.
fn fill(burst: &mut Burst, i: usize, item: &Item, memory: &[u8]) -> bool {
    let mut frame = burst.frame_mut(i);
    if !frame.set_len(ETHERNET_BYTES + item.bytes) {
        return false;
    }
    let bytes = frame.bytes_mut();
    ip::emit_ethernet(bytes, item.to, item.from, item.ether_type);
    bytes[ETHERNET_BYTES..].copy_from_slice(&memory[item.at..item.at + item.bytes]);
    frame.set_verdict(Verdict::Tx);
    true
}
