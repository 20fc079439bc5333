//! What an app's sends of one burst leave behind, until the burst is settled and what was kept is flushed.
//!
//! A datagram leaves one of three ways: in place, in the frame that carried it; gathered, with a head of its own in
//! front of the payload where it lies; or kept, as a copy. The lane sends in that order, so what must always hold
//! is: for one destination, no datagram goes an earlier way than one before it.

use crate::{
    host::reframe,
    ip,
    neighbour::Account,
    outbox::{Books, Hop, Kept},
    sent::Sent,
    udp::{self, Headers},
};
use laneway_core::{Burst, Counters, DropReason, PortId, Verdict};
use laneway_wire::{ETHERNET_BYTES, UDP_BYTES};
use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
};

/// See the module.
#[derive(Default)]
pub(crate) struct TurnState {
    /// Per frame of the burst.
    fates: Vec<Fate>,
    /// What is gathered from the burst, each with its frame, in order.
    gathered: Vec<(usize, Leaving)>,
    /// How many more the burst gathers.
    gather_space: usize,
    /// The burst gathers at all.
    gathers: bool,
    /// Which destinations have something gathered or kept, and which something kept.
    passed_over_for: Marks,
    kept_for: Marks,
}

/// What becomes of a received frame.
#[derive(Clone, Debug, Default)]
struct Fate {
    /// How it goes out again.
    in_place: Option<Leaving>,
    /// Its payload, for other frames.
    kept: Option<Kept>,
    /// What its payload sums up to, where that had to be found out.
    sum: Option<u16>,
}

/// A datagram that leaves in the frame that carried it.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    pub(crate) hop: Hop,
    pub(crate) headers: Headers,
    /// Where its payload lies in the frame.
    pub(crate) payload: Range<usize>,
    pub(crate) egress: PortId,
}

impl Leaving {
    /// The lane is given this.
    fn note_in(&self, sent: &mut [Sent]) {
        let account = Account { port: self.egress, payload_bytes: self.payload.len() as u32 };
        if let Some(sent) = sent.get_mut(usize::from(self.hop.interface)) {
            sent.push(Some(account));
        }
    }
}

/// Where an app found what it forwards.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) frame: usize,
    /// Which of the datagrams shown it is of.
    pub(crate) arrival: usize,
    /// The payload's first byte in the frame, and in the payload that was received.
    pub(crate) at: usize,
    pub(crate) offset: usize,
    /// It is all that was received.
    pub(crate) is_whole: bool,
    /// What all that was received sums up to, if it arrived with a checksum.
    pub(crate) whole_sum: Option<u16>,
}

/// How a datagram leaves that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeavingBy {
    /// In the frame that carried it.
    Place,
    /// Behind a head of its own.
    Gathering,
}

impl TurnState {
    /// Begins with a burst that was received.
    pub(crate) fn begin(&mut self, burst: &Burst) {
        self.fates.clear();
        self.fates.resize(burst.len(), Fate::default());
        self.gathered.clear();
        self.gather_space = burst.gather_space();
        self.gathers = self.gather_space > 0;
    }

    /// The first way that a datagram to `destination` may go without a copy; only a whole one `may_take_frame`.
    pub(crate) fn way_for(
        &self,
        origin: &Origin,
        may_take_frame: bool,
        destination: SocketAddr,
    ) -> Option<LeavingBy> {
        // New headers right in front of a later part would be written over bytes that others may gather.
        let spoils = origin.offset > 0 && self.gathers;
        let is_free = may_take_frame && !spoils && self.fates[origin.frame].in_place.is_none();
        if is_free && !self.passed_over_for.may_have(destination) {
            return Some(LeavingBy::Place);
        }
        let gathers = self.gather_space > 0 && !self.kept_for.may_have(destination);
        gathers.then_some(LeavingBy::Gathering)
    }

    /// Sends a datagram that way, which [`way_for`](Self::way_for) gave.
    pub(crate) fn send(&mut self, way: LeavingBy, frame: usize, leaving: Leaving) {
        match way {
            LeavingBy::Place => self.fates[frame].in_place = Some(leaving),
            LeavingBy::Gathering => {
                self.passed_over_for.add(leaving.headers.destination);
                self.gather_space -= 1;
                self.gathered.push((frame, leaving));
            }
        }
    }

    /// Something is kept for this destination.
    pub(crate) fn keeps_for(&mut self, destination: SocketAddr) {
        self.passed_over_for.add(destination);
        self.kept_for.add(destination);
    }

    /// The payload of a frame, if it is kept.
    pub(crate) fn kept(&self, frame: usize) -> Option<Kept> {
        self.fates[frame].kept
    }

    /// The whole payload of a frame is kept.
    pub(crate) fn keep(&mut self, frame: usize, kept: Kept) {
        self.fates[frame].kept = Some(kept);
    }

    /// What bytes from there sum up to: those of a whole payload are summed once at most.
    pub(crate) fn sum(&mut self, origin: &Origin, bytes: &[u8]) -> u16 {
        match origin.whole_sum {
            _ if !origin.is_whole => udp::sum_of(bytes),
            Some(sum) => sum,
            None => self.sum_of_whole(origin.frame, bytes),
        }
    }

    /// What the payload of a frame sums up to, which is `bytes`.
    pub(crate) fn sum_of_whole(&mut self, frame: usize, bytes: &[u8]) -> u16 {
        *self.fates[frame].sum.get_or_insert_with(|| udp::sum_of(bytes))
    }

    /// Writes into the burst of `interface` what leaves from it, and counts it; `sent` is by interface.
    pub(crate) fn write(
        &mut self,
        burst: &mut Burst,
        interface: PortId,
        ports: &mut impl Books,
        own: &mut Counters,
        sent: &mut [Sent],
    ) {
        // First, as it reads frames as they were received.
        for (frame, leaving) in &self.gathered {
            let Leaving { hop, headers, payload, egress } = leaving;
            let head_bytes = ETHERNET_BYTES + headers.bytes();
            let out = PortId(hop.interface.into());
            let head = burst.gather(*frame, payload.clone(), out, head_bytes);
            let head =
                head.expect("the space was counted, and headers are shorter than a head may be");
            ip::emit_ethernet(head, hop.to, hop.from, ip::ether_type_of(headers.destination.ip()));
            headers.emit_heads(&mut head[ETHERNET_BYTES..], payload.len());
            count_sent(ports.of(*egress).unwrap_or(own), payload.len());
        }
        for (i, fate) in self.fates.iter_mut().enumerate() {
            let Some(leaving) = &fate.in_place else { continue };
            let counters = ports.of(leaving.egress).unwrap_or(own);
            if send_in_place(burst, i, interface, leaving) {
                count_sent(counters, leaving.payload.len());
                leaving.note_in(sent);
            } else {
                // The lane gave less headroom than the contract says, or a longer header is needed.
                counters.drop_one(DropReason::TxRefused);
                fate.in_place = None;
            }
        }
        // The lane sends these behind those.
        self.gathered.iter().for_each(|(_, leaving)| leaving.note_in(sent));
    }

    /// What was kept is on its way.
    pub(crate) fn flushed(&mut self) {
        self.passed_over_for.clear();
        self.kept_for.clear();
    }
}

fn count_sent(counters: &mut Counters, payload_bytes: usize) {
    counters.tx_frames += 1;
    counters.tx_bytes += payload_bytes as u64;
}

/// Writes the headers of a datagram that leaves in frame `i`, which carried it. False if it cannot.
fn send_in_place(burst: &mut Burst, i: usize, interface: PortId, leaving: &Leaving) -> bool {
    let Leaving { hop, headers, payload, .. } = leaving;
    let datagram = payload.start - UDP_BYTES..payload.end;
    let mut frame = burst.frame_mut(i);
    if !reframe(&mut frame, datagram, *hop, &headers.ip(payload.len())) {
        return false;
    }
    let at = ETHERNET_BYTES + ip::header_bytes(headers.destination.ip());
    headers.emit_udp(&mut frame.bytes_mut()[at..], payload.len());
    frame.set_verdict(if u32::from(hop.interface) == interface.0 {
        Verdict::Tx
    } else {
        Verdict::TxTo(PortId(hop.interface.into()))
    });
    true
}

/// Destinations, as one bit each of many. Two may have the same one, which costs a copy.
struct Marks {
    bits: Box<[u64; Marks::BITS / 64]>,
    is_empty: bool,
}

impl Marks {
    /// With 256 destinations one in sixteen has the bit of another.
    const BITS: usize = 4096;

    fn bit(destination: SocketAddr) -> (usize, u64) {
        let low = match destination.ip() {
            IpAddr::V4(v4) => v4.to_bits(),
            IpAddr::V6(v6) => v6.to_bits() as u32,
        };
        let mixed = (low ^ u32::from(destination.port()) << 16).wrapping_mul(0x9e37_79b1);
        let bit = mixed as usize >> (u32::BITS - Self::BITS.ilog2());
        (bit / 64, 1 << (bit % 64))
    }

    fn add(&mut self, destination: SocketAddr) {
        let (word, bit) = Marks::bit(destination);
        self.bits[word] |= bit;
        self.is_empty = false;
    }

    fn may_have(&self, destination: SocketAddr) -> bool {
        let (word, bit) = Marks::bit(destination);
        self.bits[word] & bit != 0
    }

    fn clear(&mut self) {
        if !self.is_empty {
            self.bits.fill(0);
            self.is_empty = true;
        }
    }
}

impl Default for Marks {
    fn default() -> Marks {
        Marks { bits: Box::new([0; Marks::BITS / 64]), is_empty: true }
    }
}
