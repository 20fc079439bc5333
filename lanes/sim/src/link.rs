//! One direction of a link: what happens to a frame between its two ends.
//!
//! Pure: frames and the time go in, frames come out. Every frame draws the same four numbers
//! with any knobs, so that changing the jitter does not change which frames are lost.

use laneway_random::Random;
use std::{cmp::Reverse, collections::BinaryHeap};

/// Bytes of an Ethernet header, which the MTU does not include.
const ETHERNET_BYTES: usize = 14;

/// How one direction of a link treats frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a frame is held up by `reorder_ns`, so that later ones overtake it.
    pub reorder: f64,
    /// How long a reordered frame is held up.
    pub reorder_ns: u64,
    /// Time from end to end.
    pub delay_ns: u64,
    /// Up to this much more, evenly distributed. Frames that are not reordered keep their order.
    pub jitter_ns: u64,
    /// The longest frame in bytes, without its Ethernet header.
    pub mtu: usize,
    /// Frames in flight, including those that arrived and wait to be received by the lane.
    pub queue_frames: usize,
}

impl Link {
    /// The longest frame in bytes, with its Ethernet header.
    pub fn frame_bytes_max(&self) -> usize {
        self.mtu + ETHERNET_BYTES
    }
}

/// What one direction of a link did. The ledger:
/// `offered + duplicated = delivered + lost + queue_full + too_long + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames that arrived at the link.
    pub offered: u64,
    /// Copies that the link made.
    pub duplicated: u64,
    /// Frames that were held up.
    pub reordered: u64,
    /// Frames and copies that were taken at the other end.
    pub delivered: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames and copies that found the queue full.
    pub queue_full: u64,
    /// Frames longer than the MTU.
    pub too_long: u64,
    /// Frames and copies on their way now.
    pub in_flight: u64,
}

/// A frame on its way. Ordered by arrival, then by entry.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flight {
    pub(crate) at_ns: u64,
    entry: u64,
    pub(crate) bytes: Vec<u8>,
}

/// What became of a frame that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It left. It may still be lost on the way.
    Sent,
    QueueFull,
    TooLong,
}

pub(crate) struct Wire {
    pub(crate) link: Link,
    random: Random,
    flights: BinaryHeap<Reverse<Flight>>,
    entries: u64,
    last_at_ns: u64,
    counters: LinkCounters,
    /// Memory of frames that arrived, for those to come; at most `queue_frames` of them.
    spare: Vec<Vec<u8>>,
}

impl Wire {
    pub(crate) fn new(link: Link, random: Random) -> Wire {
        Wire {
            link,
            random,
            flights: BinaryHeap::new(),
            entries: 0,
            last_at_ns: 0,
            counters: LinkCounters::default(),
            spare: Vec::new(),
        }
    }

    /// A frame comes to the link at `at_ns`.
    pub(crate) fn offer(&mut self, at_ns: u64, bytes: &[u8]) -> Entry {
        let link = self.link;
        let lost = self.random.chance(link.loss);
        let twice = self.random.chance(link.duplicate);
        let late = self.random.chance(link.reorder);
        let jitter_ns = self.random.below(link.jitter_ns.saturating_add(1));
        self.counters.offered += 1;
        if bytes.len() > link.frame_bytes_max() {
            self.counters.too_long += 1;
            return Entry::TooLong;
        }
        if self.flights.len() >= link.queue_frames {
            self.counters.queue_full += 1;
            return Entry::QueueFull;
        }
        if lost {
            self.counters.lost += 1;
            return Entry::Sent;
        }
        let mut arrival_ns = at_ns.saturating_add(link.delay_ns).saturating_add(jitter_ns);
        arrival_ns = arrival_ns.max(self.last_at_ns);
        if late {
            self.counters.reordered += 1;
            arrival_ns = arrival_ns.saturating_add(link.reorder_ns);
        } else {
            self.last_at_ns = arrival_ns;
        }
        self.launch(arrival_ns, bytes);
        if twice {
            self.counters.duplicated += 1;
            if self.flights.len() < link.queue_frames {
                self.launch(arrival_ns, bytes);
            } else {
                self.counters.queue_full += 1;
            }
        }
        Entry::Sent
    }

    fn launch(&mut self, at_ns: u64, bytes: &[u8]) {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(bytes);
        self.flights.push(Reverse(Flight { at_ns, entry: self.entries, bytes: memory }));
        self.entries += 1;
    }

    /// When the next frame arrives, or when it arrived, if it was not taken.
    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.flights.peek().map(|next| next.0.at_ns)
    }

    /// Takes a frame that has arrived by `now_ns`.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Flight> {
        if self.next_at_ns()? > now_ns {
            return None;
        }
        self.counters.delivered += 1;
        self.flights.pop().map(|next| next.0)
    }

    /// Gives back the memory of a frame that was taken.
    pub(crate) fn recycle(&mut self, memory: Vec<u8>) {
        if self.spare.len() < self.link.queue_frames {
            self.spare.push(memory);
        }
    }

    pub(crate) fn counters(&self) -> LinkCounters {
        LinkCounters { in_flight: self.flights.len() as u64, ..self.counters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERFECT: Link = Link {
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        reorder_ns: 100,
        delay_ns: 0,
        jitter_ns: 0,
        mtu: 1500,
        queue_frames: 1000,
    };

    fn wire(link: Link) -> Wire {
        Wire::new(link, Random::stream(7, 0))
    }

    /// The first byte and the arrival of everything that ever arrives.
    fn arrivals(wire: &mut Wire) -> Vec<(u8, u64)> {
        std::iter::from_fn(|| wire.take(u64::MAX)).map(|f| (f.bytes[0], f.at_ns)).collect()
    }

    #[test]
    fn a_perfect_link_delivers_in_order_after_its_delay() {
        let mut wire = wire(Link { delay_ns: 50, ..PERFECT });
        for i in 0..3 {
            assert_eq!(wire.offer(u64::from(i) * 10, &[i]), Entry::Sent);
        }
        assert!(wire.take(49).is_none());
        assert_eq!(arrivals(&mut wire), [(0, 50), (1, 60), (2, 70)]);
    }

    #[test]
    fn jitter_moves_frames_but_keeps_their_order() {
        let mut wire = wire(Link { jitter_ns: 1000, ..PERFECT });
        (0..100).for_each(|i| assert_eq!(wire.offer(u64::from(i), &[i]), Entry::Sent));
        let arrived = arrivals(&mut wire);
        assert!(arrived.iter().map(|a| a.0).eq(0..100));
        assert!(arrived.iter().any(|a| a.1 > 100));
    }

    #[test]
    fn a_reordered_frame_is_overtaken() {
        let mut wire = wire(Link { reorder: 0.3, ..PERFECT });
        (0..100).for_each(|i| assert_eq!(wire.offer(u64::from(i), &[i]), Entry::Sent));
        let order: Vec<u8> = arrivals(&mut wire).iter().map(|a| a.0).collect();
        assert_eq!(order.len(), 100);
        assert!(!order.is_sorted());
        assert!(wire.counters().reordered > 0);
    }

    #[test]
    fn which_frames_are_lost_does_not_depend_on_the_jitter() {
        let survivors = |jitter_ns| {
            let mut wire = wire(Link { loss: 0.5, jitter_ns, ..PERFECT });
            (0..100).for_each(|i| assert_eq!(wire.offer(u64::from(i), &[i]), Entry::Sent));
            arrivals(&mut wire).iter().map(|a| a.0).collect::<Vec<u8>>()
        };
        assert_eq!(survivors(0), survivors(999));
        assert!((20..80).contains(&survivors(0).len()));
    }

    #[test]
    fn a_full_queue_and_a_long_frame_are_refused_by_name() {
        let mut wire = wire(Link { queue_frames: 2, duplicate: 1.0, mtu: 100, ..PERFECT });
        assert_eq!(wire.offer(0, &[0; 115]), Entry::TooLong);
        assert_eq!(wire.offer(0, &[1; 114]), Entry::Sent);
        assert_eq!(wire.offer(0, &[2]), Entry::QueueFull);
        let c = wire.counters();
        assert_eq!((c.offered, c.duplicated, c.too_long, c.queue_full), (3, 1, 1, 1));
        assert_eq!(arrivals(&mut wire), [(1, 0), (1, 0)]);
    }
}
