//! The station table of a learning bridge: which port a link address was last seen on, per VLAN.
//!
//! Fixed capacity, in buckets of [`BUCKET`]: a new station takes a free place of its bucket, or that
//! of one that has been silent for too long; without either it is not learned, and frames to it are
//! flooded. Time arrives as a value. Group addresses are nobody's and never learned.

use laneway_core::PortId;
use laneway_wire::Mac;

/// Stations unless asked otherwise.
pub const STATIONS_DEFAULT: usize = 1 << 14;
/// Most stations that may be asked for.
pub const STATIONS_MAX: usize = 1 << 22;
/// How long a silent station is known: IEEE 802.1D's 300 seconds.
pub const AGE_NS_DEFAULT: u64 = 300_000_000_000;
/// Places per bucket.
const BUCKET: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Station {
    /// VLAN and address; 0 for a free place.
    key: u64,
    seen_ns: u64,
    port: PortId,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Stations {
    /// A power of two of buckets.
    places: Vec<Station>,
    age_ns: u64,
    seed: u64,
    /// Stations that were not learned for want of a place.
    unlearned: u64,
}

impl Stations {
    pub(crate) fn new(stations_max: usize, age_ns: u64, seed: u64) -> Stations {
        let places = stations_max.next_power_of_two().max(BUCKET);
        Stations { places: vec![Station::default(); places], age_ns, seed, unlearned: 0 }
    }

    pub(crate) fn unlearned(&self) -> u64 {
        self.unlearned
    }

    /// Notes that `mac` is behind `port`.
    pub(crate) fn learn(&mut self, vlan: u16, mac: Mac, port: PortId, now_ns: u64) {
        if mac[0] & 1 == 1 {
            return;
        }
        let (key, age_ns) = (key(vlan, mac), self.age_ns);
        let bucket = self.bucket(key);
        let places = &mut self.places[bucket..bucket + BUCKET];
        let at = places.iter().position(|place| place.key == key).or_else(|| {
            let is_free = |place: &Station| place.key == 0 || is_old(place, age_ns, now_ns);
            places.iter().position(is_free)
        });
        match at {
            Some(at) => places[at] = Station { key, seen_ns: now_ns, port },
            None => self.unlearned += 1,
        }
    }

    /// The port that `mac` was last seen on, if it was not too long ago.
    pub(crate) fn find(&self, vlan: u16, mac: Mac, now_ns: u64) -> Option<PortId> {
        let key = key(vlan, mac);
        let bucket = self.bucket(key);
        let found = self.places[bucket..bucket + BUCKET].iter().find(|place| place.key == key)?;
        (!is_old(found, self.age_ns, now_ns)).then_some(found.port)
    }

    fn bucket(&self, key: u64) -> usize {
        let mixed = u128::from(key ^ self.seed) * 0x9e37_79b9_7f4a_7c15;
        let hash = mixed as u64 ^ (mixed >> 64) as u64;
        (hash as usize & (self.places.len() - 1)) & !(BUCKET - 1)
    }
}

fn is_old(station: &Station, age_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(station.seen_ns) > age_ns
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
        let mut stations = Stations::new(64, 100, 7);
        stations.learn(5, A, PortId(0), 10);
        assert_eq!(stations.find(5, A, 10), Some(PortId(0)));
        assert_eq!(stations.find(6, A, 10), None);
        stations.learn(5, A, PortId(1), 20);
        assert_eq!(stations.find(5, A, 120), Some(PortId(1)));
        assert_eq!(stations.find(5, A, 121), None);
    }

    #[test]
    fn a_full_bucket_learns_nobody_until_one_is_old() {
        let mut stations = Stations::new(BUCKET, 100, 7);
        let mac = |i: u8| [2, 0, 0, 0, 0, i];
        (0..BUCKET as u8).for_each(|i| stations.learn(0, mac(i), PortId(0), u64::from(i)));
        stations.learn(0, mac(99), PortId(1), 50);
        assert_eq!((stations.find(0, mac(99), 50), stations.unlearned()), (None, 1));
        stations.learn(0, mac(99), PortId(1), 101);
        assert_eq!(stations.find(0, mac(99), 101), Some(PortId(1)));
        assert_eq!(stations.find(0, mac(0), 101), None);
        assert_eq!(stations.find(0, mac(1), 101), Some(PortId(0)));
    }

    #[test]
    fn group_addresses_are_not_learned() {
        let mut stations = Stations::new(64, 100, 7);
        stations.learn(0, [0xff; 6], PortId(0), 0);
        assert_eq!(stations.find(0, [0xff; 6], 0), None);
    }
}
