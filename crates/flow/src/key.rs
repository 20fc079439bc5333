//! The flow key: the two ends in the order of their bytes, so that both directions have one key.
//!
//! The hash mixes the key's five words with five secret words by folded multiplication (the 128-bit
//! product's halves xored).
//!
//! A sender that chooses addresses could flood a table whose hash they can compute: keys that all hash
//! alike make each look-up as long as the table is full. So a table's secret words come from a seed
//! that is drawn per process, and each factor of each product holds a secret word of its own: with
//! a known constant there, an address equal to it would make the product zero and swallow the other
//! factor, with any seed. This is no cryptographic function (SipHash would cost about as much
//! as everything else that is done for a frame); an attacker that can measure single look-ups may learn
//! the words. What then remains is the table's bound: memory never grows, look-ups become slow.
//!
//! [`FlowKey::flow_id`] uses fixed words instead, so that the id is the same in every run and
//! placement; it names flows in results and is neither unique nor proof against crafted collisions.

use crate::{
    Has, Record,
    layout::{CField, c_struct},
};
use laneway_random::Random;

/// Bytes of `struct lw_flow_key`.
pub const FLOW_KEY_BYTES: usize = 48;

/// The words of a key's hash that an attacker must not know.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u64; 5]);

/// The secret of flow ids: hexadecimal digits of pi, so that nothing is hidden in them; fixed for
/// ever, or ids of different versions could not be joined.
const FLOW_ID_SECRET: Secret = Secret([
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
]);

impl Secret {
    /// The words of a seed: five steps of SplitMix64, so that no word tells another.
    #[inline]
    pub(crate) const fn of(seed: u64) -> Secret {
        let (mut words, mut random, mut i) = ([0; 5], Random::seeded(seed), 0);
        while i < words.len() {
            words[i] = random.draw();
            i += 1;
        }
        Secret(words)
    }
}

/// What makes frames one flow: both ends, both VLAN ids, protocol, IP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct FlowKey {
    /// Address of the low end.
    pub ip_lo: [u8; 16],
    /// Address of the high end.
    pub ip_hi: [u8; 16],
    /// Port of the low end; 0 where there are no ports.
    pub port_lo: u16,
    /// Port of the high end.
    pub port_hi: u16,
    /// Outer VLAN id, 0 without a tag.
    pub vlan: u16,
    /// Protocol.
    pub proto: u8,
    /// 4 or 6.
    pub version: u8,
    /// Inner VLAN id, 0 without a second tag.
    pub vlan2: u16,
}

c_struct!(FlowKey, "lw_flow_key", FLOW_KEY_BYTES, {
    ip_lo @ 0,
    ip_hi @ 16,
    port_lo @ 32,
    port_hi @ 34,
    vlan @ 36,
    proto @ 38,
    version @ 39,
    vlan2 @ 40,
});

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn words(ip: &[u8; 16]) -> (u64, u64) {
    let bits = u128::from_le_bytes(*ip);
    (bits as u64, (bits >> 64) as u64)
}

impl FlowKey {
    /// The key of a record and whether its source is the low end. Meaningful for records with an
    /// IP header ([`Record::has_ip`]).
    #[inline]
    pub fn of(record: &Record) -> (FlowKey, bool) {
        let source = (u128::from_be_bytes(record.src_ip), record.src_port);
        let destination = (u128::from_be_bytes(record.dst_ip), record.dst_port);
        let source_is_low = source <= destination;
        let (ip_lo, ip_hi, port_lo, port_hi) = if source_is_low {
            (record.src_ip, record.dst_ip, record.src_port, record.dst_port)
        } else {
            (record.dst_ip, record.src_ip, record.dst_port, record.src_port)
        };
        let key = FlowKey {
            ip_lo,
            ip_hi,
            port_lo,
            port_hi,
            vlan: if record.has.contains(Has::VLAN) { record.vlan_tci & 0x0fff } else { 0 },
            proto: record.proto,
            version: if record.has.contains(Has::IPV4) { 4 } else { 6 },
            vlan2: if record.has.contains(Has::VLAN2) { record.vlan_tci2 & 0x0fff } else { 0 },
        };
        (key, source_is_low)
    }

    /// A 64-bit hash; all bits depend on all of key and seed.
    #[inline]
    pub fn hash(&self, seed: u64) -> u64 {
        self.hash_with(&Secret::of(seed))
    }

    /// [`FlowKey::hash`] for a caller that keeps the seed's words.
    #[inline]
    pub(crate) fn hash_with(&self, Secret(secret): &Secret) -> u64 {
        let (a, b) = words(&self.ip_lo);
        let (c, d) = words(&self.ip_hi);
        let rest = u64::from(self.port_lo)
            | u64::from(self.port_hi) << 16
            | u64::from(self.vlan) << 32
            | u64::from(self.proto) << 48
            | u64::from(self.version) << 56;
        let low = fold(a ^ secret[0], b ^ secret[1]);
        let high = fold(c ^ secret[2], d ^ secret[3]);
        // The inner tag changes nothing where there is none, so that ids stay as they were.
        fold(low ^ rest, high.rotate_left(17) ^ secret[4] ^ u64::from(self.vlan2))
    }

    /// The flow's name in results: equal for both directions, in every run and placement. Flows
    /// that follow each other under one key share it.
    pub fn flow_id(&self) -> i64 {
        self.hash_with(&FLOW_ID_SECRET) as i64
    }

    /// Reads `struct lw_flow_key`.
    pub fn from_bytes(bytes: &[u8; FLOW_KEY_BYTES]) -> FlowKey {
        FlowKey::read(bytes).expect("every 48 bytes are a key")
    }

    /// Writes `struct lw_flow_key`.
    pub fn to_bytes(&self) -> [u8; FLOW_KEY_BYTES] {
        let mut bytes = [0; FLOW_KEY_BYTES];
        self.write(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(src: u8, dst: u8, src_port: u16, dst_port: u16) -> Record {
        let mut r = Record { src_port, dst_port, proto: 17, has: Has::IPV4, ..Record::default() };
        (r.src_ip[15], r.dst_ip[15]) = (src, dst);
        r
    }

    proptest! {
        #[test]
        fn both_directions_have_one_key(a in 0u8..4, b in 0u8..4, p in 0u16..4, q in 0u16..4) {
            let (there, there_low) = FlowKey::of(&record(a, b, p, q));
            let (back, back_low) = FlowKey::of(&record(b, a, q, p));
            prop_assert_eq!(there, back);
            prop_assert_eq!(there_low == back_low, (a, p) == (b, q));
        }

        #[test]
        fn bytes_survive_the_round_trip(
            mut bytes in proptest::collection::vec(any::<u8>(), FLOW_KEY_BYTES),
        ) {
            bytes[42..].fill(0);
            let bytes: [u8; FLOW_KEY_BYTES] = bytes.try_into().unwrap();
            prop_assert_eq!(FlowKey::from_bytes(&bytes).to_bytes(), bytes);
        }
    }

    /// Keys that a hash with known constants in its factors would map to one value.
    #[test]
    fn addresses_made_of_known_constants_do_not_collide() {
        let Secret(constants) = FLOW_ID_SECRET;
        for seed in [0, 7, u64::MAX] {
            for constant in constants.into_iter().chain(Secret::of(seed ^ 1).0).chain([0, !0]) {
                let mut hashes: Vec<u64> = (0..4000u64)
                    .map(|n| {
                        let fixed_half = u128::from(constant);
                        let ip = if n % 2 == 0 {
                            u128::from(n) | fixed_half << 64
                        } else {
                            u128::from(n) << 64 | fixed_half
                        };
                        let key =
                            FlowKey { ip_lo: ip.to_le_bytes(), version: 6, ..FlowKey::default() };
                        key.hash(seed) >> 32
                    })
                    .collect();
                hashes.sort_unstable();
                hashes.dedup();
                assert!(hashes.len() > 3990, "{constant:#x}: {} of 4000", hashes.len());
            }
        }
    }

    #[test]
    fn neighbouring_keys_spread_over_high_and_low_bits() {
        let mut low = vec![0u32; 256];
        let mut high = vec![0u32; 256];
        for n in 0..65536u32 {
            let mut r = record(0, 1, n as u16, 80);
            r.src_ip[14] = (n >> 12) as u8;
            let hash = FlowKey::of(&r).0.hash(7);
            low[hash as usize & 255] += 1;
            high[(hash >> 56) as usize] += 1;
        }
        // 256 are expected in each; 16 is one standard deviation.
        assert!(low.iter().chain(&high).all(|n| (160..352).contains(n)), "{low:?} {high:?}");
    }

    /// Customers of a provider's network may all use one address plan (IEEE 802.1ad).
    #[test]
    fn flows_of_different_inner_tags_are_different_flows() {
        let tagged = |inner: u16| {
            let mut r = record(1, 2, 1000, 53);
            (r.vlan_tci, r.vlan_tci2) = (0x2005, 0x4000 | inner);
            r.has.insert(Has::VLAN.with(Has::VLAN2));
            FlowKey::of(&r).0
        };
        assert_ne!(tagged(6), tagged(7));
        assert_ne!(tagged(6).flow_id(), tagged(7).flow_id());
        assert_eq!((tagged(6).vlan, tagged(6).vlan2), (5, 6));
        assert_eq!(FlowKey::from_bytes(&tagged(6).to_bytes()), tagged(6));
    }

    #[test]
    fn flow_ids_never_change() {
        let id = FlowKey::of(&record(1, 2, 1000, 53)).0.flow_id();
        assert_eq!(id, FlowKey::of(&record(2, 1, 53, 1000)).0.flow_id());
        assert_eq!(id, 3_557_562_885_135_267_997);
    }
}
