//! The kernel half (`bpf/get.bpf.c`) as data, and what the worker knows of the cache in its maps.
//!
//! One thread writes: the worker. It knows which key each slot has, so a write to a key that is not there costs a look
//! into its own memory and no system call. What is to change is noted while commands are done and written by
//! [`Cache::agree`] before their replies leave.
//!
//! What must always hold: behind `agree` no slot is valid whose key was forgotten since. A key has two slots, by a
//! hash whose seed no client knows, and stands in one of them at most; where both are taken it replaces one of the
//! two keys, in turn. The kernel does not tell which keys it was asked for, so an answer of its does not count as a
//! use for eviction.

use laneway_core::{ConfigValue, KernelHalf, KernelMaps, LaneError};
use laneway_linux::Cidr;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{Ordering, fence};

/// The compiled program.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/get.bpf.o"));

/// Mirrors of `bpf/get.h`.
pub(crate) const KEY_BYTES_MAX: usize = 128;
pub(crate) const REPLY_BYTES_MAX: usize = 1024;
pub(crate) const LISTEN_MAX: usize = 4;
pub(crate) const ALLOWED_MAX: usize = 16;
const ENTRY_BYTES: usize = 16 + KEY_BYTES_MAX + REPLY_BYTES_MAX;

/// Slots by default: some 10 MiB of the kernel's memory.
pub(crate) const SLOTS: usize = 8192;
/// The most that may be asked for.
pub(crate) const SLOTS_MAX: usize = 1 << 20;

/// What became of a frame in the kernel; `enum lw_kv_fate` of `bpf/get.h`.
const FATES: [&str; 8] = [
    "udp_kernel_other",
    "udp_kernel_hit",
    "udp_kernel_left_miss",
    "udp_kernel_left_form",
    "udp_kernel_left_long_key",
    "udp_kernel_left_long_reply",
    "udp_kernel_left_changed",
    "udp_kernel_dropped_source",
];

/// What a run asks of the kernel half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSetup {
    /// The addresses that are asked; at most four.
    pub listen: Vec<SocketAddr>,
    /// The networks that may ask; at most 16.
    pub allowed: Vec<Cidr>,
    /// Keys that it has room for; a power of two.
    pub slots: usize,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// The key whose reply is valid there, or will be behind the next [`Cache::agree`].
    key: Option<Box<[u8]>>,
    /// The lower half of its version in the kernel.
    count: u32,
}

/// The worker's side of the cache.
#[derive(Debug)]
pub(crate) struct Cache {
    setup: CacheSetup,
    seed: u64,
    slots: Vec<Slot>,
    occupied: usize,
    epoch: u32,
    /// Noted since the last `agree`.
    cleared: Vec<usize>,
    filled: Vec<(usize, Box<[u8]>)>,
    is_emptied: bool,
    /// The key in which of two slots is replaced next.
    next_way: usize,
    fates: [u64; FATES.len()],
}

impl Cache {
    /// An empty cache.
    pub(crate) fn new(setup: CacheSetup) -> Cache {
        Cache {
            seed: RandomState::new().hash_one(setup.slots),
            slots: vec![Slot::default(); setup.slots],
            setup,
            occupied: 0,
            epoch: 0,
            cleared: Vec::new(),
            filled: Vec::new(),
            is_emptied: false,
            next_way: 0,
            fates: Default::default(),
        }
    }

    /// What is to be loaded.
    pub(crate) fn half(&self) -> KernelHalf {
        let slots = self.slots.len() as u32;
        KernelHalf {
            name: "kv",
            object: OBJECT,
            program: "get",
            config: vec![ConfigValue { name: "lw_config", bytes: self.config() }],
            entries: Vec::new(),
            map_sizes: vec![("entries", slots), ("versions", slots)],
            records: None,
            drops_map: Some("drops"),
            seen_map: Some("seen"),
        }
    }

    /// `struct lw_kv_config`.
    fn config(&self) -> Vec<u8> {
        let CacheSetup { listen, allowed, .. } = &self.setup;
        let mut bytes = self.seed.to_ne_bytes().to_vec();
        let counts = [self.slots.len(), listen.len(), allowed.len(), 0];
        bytes.extend(counts.iter().flat_map(|&count| (count as u32).to_ne_bytes()));
        let mut listening = Vec::new();
        for address in listen {
            listening.extend(mapped(address.ip()));
            listening.extend(u32::from(address.port()).to_ne_bytes());
        }
        listening.resize(LISTEN_MAX * 20, 0);
        let mut known = Vec::new();
        for cidr in allowed {
            let (network, mask) = (u128::from_be_bytes(mapped(cidr.address())), mask(*cidr));
            known.extend((network & u128::from_be_bytes(mask)).to_be_bytes());
            known.extend(mask);
        }
        known.resize(ALLOWED_MAX * 32, 0);
        bytes.extend(listening);
        bytes.extend(known);
        bytes
    }

    /// True if there is anything to forget.
    pub(crate) fn has_keys(&self) -> bool {
        self.occupied > 0
    }

    /// The value of `key` may be another now.
    pub(crate) fn forget(&mut self, key: &[u8]) {
        if self.occupied == 0 || key.len() > KEY_BYTES_MAX {
            return;
        }
        if let Some(slot) = self.slot_with(key) {
            self.slots[slot].key = None;
            self.occupied -= 1;
            self.filled.retain(|(at, _)| *at != slot);
            self.cleared.push(slot);
        }
    }

    /// Any value may be another now, or another's to read.
    pub(crate) fn forget_all(&mut self) {
        if self.occupied == 0 {
            return;
        }
        self.slots.iter_mut().for_each(|slot| slot.key = None);
        self.occupied = 0;
        self.filled.clear();
        self.cleared.clear();
        self.is_emptied = true;
    }

    /// The reply to a GET of `key` until it is forgotten. What has no room there is left out.
    pub(crate) fn fill(&mut self, key: &[u8], reply: &[u8]) {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) || reply.len() > REPLY_BYTES_MAX {
            return;
        }
        let at = self.slot_for(key);
        let slot = &mut self.slots[at];
        self.occupied += usize::from(slot.key.is_none());
        slot.key = Some(key.into());
        self.filled.retain(|(other, _)| *other != at);
        let mut entry = Vec::with_capacity(ENTRY_BYTES);
        let head = [key.len() as u32, reply.len() as u32, sum(reply), 0];
        entry.extend(head.iter().flat_map(|word| word.to_ne_bytes()));
        entry.extend(key);
        entry.resize(16 + KEY_BYTES_MAX, 0);
        entry.extend(reply);
        entry.resize(ENTRY_BYTES, 0);
        self.filled.push((at, entry.into()));
    }

    /// Writes what was noted.
    ///
    /// # Errors
    /// The kernel refuses. What is valid there is not known then.
    pub(crate) fn agree(&mut self, maps: &dyn KernelMaps) -> Result<(), LaneError> {
        if std::mem::take(&mut self.is_emptied) {
            self.epoch = self.epoch.wrapping_add(1);
            maps.put("epoch", &[0; 4], &u64::from(self.epoch).to_ne_bytes())?;
        }
        for slot in std::mem::take(&mut self.cleared) {
            self.invalidate(maps, slot)?;
        }
        for (slot, entry) in std::mem::take(&mut self.filled) {
            self.invalidate(maps, slot)?;
            // Readers on other CPUs see the entry change behind the version, and be whole before the next.
            fence(Ordering::SeqCst);
            maps.put("entries", &(slot as u32).to_ne_bytes(), &entry)?;
            fence(Ordering::SeqCst);
            self.step(maps, slot)?;
        }
        Ok(())
    }

    /// Reads what the kernel has counted.
    pub(crate) fn read_fates(&mut self, maps: &dyn KernelMaps) -> Result<(), LaneError> {
        let per_cpu = maps.look_up("fates", &[0; 4])?.unwrap_or_default();
        let mut sums = [0; FATES.len()];
        for (at, word) in per_cpu.as_chunks::<8>().0.iter().enumerate() {
            sums[at % FATES.len()] += u64::from_ne_bytes(*word);
        }
        self.fates = sums;
        Ok(())
    }

    /// What became of frames in the kernel, by name, as last read.
    pub(crate) fn fates(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FATES.into_iter().zip(self.fates)
    }

    /// Makes a slot's version odd, or leaves it so.
    fn invalidate(&mut self, maps: &dyn KernelMaps, slot: usize) -> Result<(), LaneError> {
        if self.slots[slot].count.is_multiple_of(2) { self.step(maps, slot) } else { Ok(()) }
    }

    fn step(&mut self, maps: &dyn KernelMaps, at: usize) -> Result<(), LaneError> {
        let slot = &mut self.slots[at];
        slot.count = slot.count.wrapping_add(1);
        let version = u64::from(self.epoch) << 32 | u64::from(slot.count);
        maps.put("versions", &(at as u32).to_ne_bytes(), &version.to_ne_bytes())
    }

    /// The slot that a key stands in.
    fn slot_with(&self, key: &[u8]) -> Option<usize> {
        self.slots_of(key).into_iter().find(|&slot| self.slots[slot].key.as_deref() == Some(key))
    }

    /// Where a key is to stand: where it stands, where there is room, or in the place of another.
    fn slot_for(&mut self, key: &[u8]) -> usize {
        let slots = self.slots_of(key);
        let free = || slots.into_iter().find(|&slot| self.slots[slot].key.is_none());
        if let Some(slot) = self.slot_with(key).or_else(free) {
            return slot;
        }
        self.next_way ^= 1;
        slots[self.next_way]
    }

    /// The slots that a key may stand in, in the order in which the kernel looks; one slot twice if there is one only.
    fn slots_of(&self, key: &[u8]) -> [usize; 2] {
        let mut padded = [0; KEY_BYTES_MAX];
        padded[..key.len()].copy_from_slice(key);
        let mut hash = self.seed ^ key.len() as u64;
        for word in padded.as_chunks::<8>().0 {
            hash = (hash ^ u64::from_ne_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 32;
        }
        let last = self.slots.len() - 1;
        let slot = hash as u32 as usize & last;
        [slot, (slot ^ 1) & last]
    }
}

/// The address as IPv6 has it.
pub(crate) fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The bits of a mapped address that a network fixes.
pub(crate) fn mask(cidr: Cidr) -> [u8; 16] {
    let in_front = if cidr.address().is_ipv4() { 96 } else { 0 };
    let bits = in_front + u32::from(cidr.prefix_bits());
    u128::MAX.checked_shl(128 - bits).unwrap_or(0).to_be_bytes()
}

/// The sum of big-endian words, folded, that a checksum over the bytes has.
fn sum(bytes: &[u8]) -> u32 {
    let words =
        bytes.chunks(2).map(|word| u32::from_be_bytes([0, 0, word[0], *word.get(1).unwrap_or(&0)]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(slots: usize) -> Cache {
        Cache::new(CacheSetup { listen: Vec::new(), allowed: Vec::new(), slots })
    }

    #[test]
    fn two_keys_of_one_hash_stand_side_by_side_and_a_third_replaces_one_of_them() {
        let mut cache = cache(16);
        let wanted = cache.slots_of(b"0");
        let mut keys = (0..).map(|n: u32| n.to_string().into_bytes());
        let three: [Vec<u8>; 3] = std::array::from_fn(|_| {
            keys.find(|key| cache.slots_of(key) == wanted).expect("there is always another")
        });
        for key in &three[..2] {
            cache.fill(key, b"reply");
        }
        let place = |cache: &Cache, at: usize| cache.slot_with(&three[at]);
        assert_eq!(cache.occupied, 2);
        assert!(place(&cache, 0).is_some() && place(&cache, 0) != place(&cache, 1));
        let before = place(&cache, 0);
        cache.fill(&three[0], b"another");
        assert_eq!((place(&cache, 0), cache.occupied), (before, 2), "it stays where it is");
        cache.fill(&three[2], b"reply");
        assert_eq!(cache.occupied, 2);
        assert!(place(&cache, 2).is_some());
        assert_eq!((0..2).filter(|&at| place(&cache, at).is_some()).count(), 1);
        (0..3).for_each(|at| cache.forget(&three[at]));
        assert!(!cache.has_keys());
        assert_eq!(cache.cleared.len(), 2);
    }

    #[test]
    fn one_slot_is_enough() {
        let mut cache = cache(1);
        cache.fill(b"a", b"1");
        cache.fill(b"b", b"2");
        assert_eq!(
            (cache.occupied, cache.slot_with(b"a"), cache.slot_with(b"b")),
            (1, None, Some(0))
        );
    }
}
