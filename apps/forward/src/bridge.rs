//! The station table of a learning bridge: which port a link address was last seen on, per VLAN.
//!
//! Fixed capacity, in buckets of [`BUCKET`]: a new station takes a free place of its bucket, or that
//! of one that has been silent for too long; without either it is not learned, and frames to it are
//! flooded. Time arrives as a value. Group addresses belong to no station and are never learned.
//!
//! All workers of a run share one table, so that an answer crosses whichever worker it comes to, and
//! none of them waits: a place is a key and where and when its station was seen, both atomic. A
//! worker that takes a place over marks it first, and one that reads it looks at the key before and after;
//! so no worker takes another station's port for the one looked for. Two workers that meet the same new
//! station at once may give it two places; the first of them counts, the other one ages.

use laneway_core::{PortId, PortMask};
use laneway_wire::Mac;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Stations unless asked otherwise.
pub const STATIONS_DEFAULT: usize = 1 << 14;
/// Most stations that may be asked for.
pub const STATIONS_MAX: usize = 1 << 22;
/// How long a silent station is known: IEEE 802.1D's 300 seconds.
pub const AGE_NS_DEFAULT: u64 = 300_000_000_000;
/// Places per bucket.
const BUCKET: usize = 8;

/// A station that is seen again so soon after, as a part of the age limit, is not noted anew: most frames
/// write nothing.
const NOTED_PARTS: u64 = 1024;
/// Looks at a place that changes under one's eyes; after that the station counts as unknown.
const LOOKS_MAX: usize = 4;
/// Key of a place that is being taken over; no station has it.
const TAKEN_OVER: u64 = 1;
/// Lowest bits of [`StationSlot::seen`]: the port. The rest is the time, which goes round after 18 years.
const PORT_BITS: u32 = 5;
const _: () = assert!(PortMask::PORTS_MAX <= 1 << PORT_BITS);

#[derive(Debug, Default)]
struct StationSlot {
    /// VLAN and address; 0 for a free place.
    key: AtomicU64,
    /// When the station was seen, and on which port.
    seen: AtomicU64,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Stations {
    /// A power of two of buckets.
    places: Box<[StationSlot]>,
    age_ns: u64,
    seed: u64,
}

impl Stations {
    pub(crate) fn new(stations_max: usize, age_ns: u64, seed: u64) -> Stations {
        let places = stations_max.next_power_of_two().max(BUCKET);
        Stations { places: (0..places).map(|_| StationSlot::default()).collect(), age_ns, seed }
    }

    /// Notes that `mac` is behind `port`; false when there is no place for it.
    pub(crate) fn learn(&self, vlan: u16, mac: Mac, port: PortId, now_ns: u64) -> bool {
        if mac[0] & 1 == 1 {
            return true;
        }
        let key = key(vlan, mac);
        let seen = now_ns << PORT_BITS | u64::from(port.0);
        let places = self.bucket(key);
        // Relaxed, and below: only a worker that takes a place over has an order to keep.
        if let Some(place) = places.iter().find(|place| place.key.load(Relaxed) == key) {
            let known = place.seen.load(Acquire);
            let is_news = port_of(known) != port || age(known, now_ns) > self.age_ns / NOTED_PARTS;
            // Pairs with the stores below: what was read is this station's if the key still is, and then
            // the exchange fails where another worker noted it, or took the place over.
            if is_news && place.key.load(Acquire) == key {
                let _ = place.seen.compare_exchange(known, seen, Relaxed, Relaxed);
            }
            return true;
        }
        for place in places {
            let before = place.key.load(Relaxed);
            let is_free = before == 0
                || before != TAKEN_OVER && age(place.seen.load(Relaxed), now_ns) > self.age_ns;
            // Another worker may be faster: then it is not free any more.
            if is_free && place.key.compare_exchange(before, TAKEN_OVER, AcqRel, Relaxed).is_ok() {
                // Releases the mark to readers of this, and then both to readers of the key.
                place.seen.store(seen, Release);
                place.key.store(key, Release);
                return true;
            }
        }
        false
    }

    /// The port that `mac` was last seen on, if it was not too long ago.
    pub(crate) fn find(&self, vlan: u16, mac: Mac, now_ns: u64) -> Option<PortId> {
        let key = key(vlan, mac);
        let place = self.bucket(key).iter().find(|place| place.key.load(Acquire) == key)?;
        let mut seen = place.seen.load(Acquire);
        for _ in 0..LOOKS_MAX {
            // Pairs with the stores in `learn`: another worker may have taken the place over meanwhile, even for this
            // very station again, has changed the key or what is read after it.
            if place.key.load(Acquire) != key {
                return None;
            }
            let still = place.seen.load(Acquire);
            if still == seen {
                return (age(seen, now_ns) <= self.age_ns).then(|| port_of(seen));
            }
            seen = still;
        }
        None
    }

    fn bucket(&self, key: u64) -> &[StationSlot] {
        let mixed = u128::from(key ^ self.seed) * 0x9e37_79b9_7f4a_7c15;
        let hash = mixed as u64 ^ (mixed >> 64) as u64;
        let first = (hash as usize & (self.places.len() - 1)) & !(BUCKET - 1);
        &self.places[first..first + BUCKET]
    }
}

fn port_of(seen: u64) -> PortId {
    PortId((seen & ((1 << PORT_BITS) - 1)) as u32)
}

/// How long ago; 0 for what another worker saw a moment later than this one's now.
fn age(seen: u64, now_ns: u64) -> u64 {
    let since = ((now_ns << PORT_BITS).wrapping_sub(seen & !((1 << PORT_BITS) - 1))) >> PORT_BITS;
    if since > u64::MAX >> (PORT_BITS + 1) { 0 } else { since }
}

/// VLAN and address in one number that is never 0.
fn key(vlan: u16, mac: Mac) -> u64 {
    let address = mac.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    1 << 63 | u64::from(vlan & 0x0fff) << 48 | address
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];

    #[test]
    fn a_station_moves_ages_and_is_known_per_vlan() {
        let stations = Stations::new(64, 100, 7);
        stations.learn(5, A, PortId(0), 10);
        assert_eq!(stations.find(5, A, 10), Some(PortId(0)));
        assert_eq!(stations.find(6, A, 10), None);
        stations.learn(5, A, PortId(1), 20);
        assert_eq!(stations.find(5, A, 120), Some(PortId(1)));
        assert_eq!(stations.find(5, A, 121), None);
    }

    #[test]
    fn a_full_bucket_learns_no_address_until_one_is_old() {
        let stations = Stations::new(BUCKET, 100, 7);
        let mac = |i: u8| [2, 0, 0, 0, 0, i];
        assert!((0..BUCKET as u8).all(|i| stations.learn(0, mac(i), PortId(0), u64::from(i))));
        assert!(!stations.learn(0, mac(99), PortId(1), 50));
        assert_eq!(stations.find(0, mac(99), 50), None);
        stations.learn(0, mac(99), PortId(1), 101);
        assert_eq!(stations.find(0, mac(99), 101), Some(PortId(1)));
        assert_eq!(stations.find(0, mac(0), 101), None);
        assert_eq!(stations.find(0, mac(1), 101), Some(PortId(0)));
    }

    #[test]
    fn group_addresses_are_not_learned() {
        let stations = Stations::new(64, 100, 7);
        stations.learn(0, [0xff; 6], PortId(0), 0);
        assert_eq!(stations.find(0, [0xff; 6], 0), None);
    }

    #[test]
    fn a_moment_before_another_workers_now_is_no_age() {
        let stations = Stations::new(64, 100, 7);
        stations.learn(0, A, PortId(3), 1_000);
        assert_eq!(stations.find(0, A, 999), Some(PortId(3)));
        // Unix time in nanoseconds has more bits than there are.
        let now_ns = 1_800_000_000_000_000_000;
        stations.learn(0, A, PortId(31), now_ns);
        assert_eq!(stations.find(0, A, now_ns + 100), Some(PortId(31)));
        assert_eq!(stations.find(0, A, now_ns + 101), None);
    }

    #[test]
    fn workers_that_learn_and_look_at_once_never_find_another_stations_port() {
        // One bucket, twice as many stations as places, and an age of nothing: every look may meet a
        // place that is being taken over.
        let stations = Stations::new(BUCKET, 0, 7);
        let mac = |i: u64| [2, 0, 0, 0, 0, i as u8];
        std::thread::scope(|scope| {
            for worker in 0..2 {
                let stations = &stations;
                scope.spawn(move || {
                    for now_ns in 0..20_000u64 {
                        let i = (now_ns * 7 + worker * 3) % (2 * BUCKET as u64);
                        stations.learn(0, mac(i), PortId(i as u32), now_ns);
                        for other in 0..2 * BUCKET as u64 {
                            // Young to a worker whose clock is ahead of the other's.
                            let found = stations.find(0, mac(other), 0);
                            assert!(found.is_none_or(|port| u64::from(port.0) == other), "{other}");
                        }
                    }
                });
            }
        });
    }
}
