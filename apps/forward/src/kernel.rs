//! The kernel placement: the same forwarder as an XDP program (`bpf/forward.bpf.c`), described as data
//! for the `xdp` lane, and its user-space part.
//!
//! A rule set is a bank and entries of a hash table ([`crate::bank`]). There are two banks; the program
//! reads the one that a single number names. A change adds its entries, which no lookup sees that reads the
//! bank in force, writes the other bank, changes the number, and asks the kernel to wait until no CPU
//! executes the program as it was before; only then is that bank written again and are entries taken
//! out, and only when no lookup can have one of these in hand are others added. So every frame sees one
//! whole set. All this happens at ticks; nothing of it is on the way of a frame.

use crate::{
    bank::{Change, RawEntry, TABLE_ENTRIES_MAX},
    config::{Config, Mode},
    config_error::ConfigError,
    fate::Stats,
    live::StatsSlot,
    rules::{Hits, KernelChange, KernelFeed, SLOTS_USED_MAX},
};
use laneway_core::{
    App, ConfigValue, Counters, KernelApp, KernelHalf, KernelMaps, LaneError, MapValue, PortId,
    PortMask, Turn,
};
use std::net::IpAddr;

/// The compiled program.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forward.bpf.o"));

/// Slots of rules whose counters are always there.
const SLOTS_AT_HAND: u32 = 192;
/// Further ones come in blocks of so many, one for each CPU.
const SLOTS_PER_BLOCK: u32 = 64;
/// Bytes of `struct lw_block`.
const BLOCK_BYTES: usize = SLOTS_PER_BLOCK as usize * 16;
/// How often the counters are read for clients that ask.
const REPORT_INTERVAL_NS: u64 = 100_000_000;

/// The forwarder with its decision in the kernel.
pub struct KernelForward {
    half: KernelHalf,
    feed: Option<KernelFeed>,
    /// The bank in force.
    bank: u32,
    /// There are counters for slots below this, on each of the CPUs.
    slots: u32,
    cpus: u32,
    stats: Stats,
    live: Option<StatsSlot>,
    counters: Counters,
    reported_ns: u64,
    failed: Option<LaneError>,
}

impl KernelForward {
    /// A forwarder over the interfaces with these indices, in the order of the ports. `rules` is the
    /// feed of a [`RuleSet`](crate::RuleSet) made for the kernel half.
    ///
    /// # Errors
    /// [`ConfigError::Kernel`] for mode `l2`, else what the configuration says wrong.
    pub fn new(
        config: &Config,
        ifindexes: &[u32],
        mut rules: Option<KernelFeed>,
    ) -> Result<KernelForward, ConfigError> {
        let cpus = if rules.is_some() { possible_cpus()? } else { 0 };
        let half = half(config, ifindexes, rules.as_mut(), cpus)?;
        Ok(KernelForward {
            half,
            cpus,
            slots: rules.as_ref().map_or(0, |feed| feed.slots),
            feed: rules,
            bank: 0,
            stats: Stats::default(),
            live: None,
            counters: Counters::default(),
            reported_ns: 0,
            failed: None,
        })
    }

    /// Says what became of the frames whenever it has read that.
    #[must_use]
    pub fn with_live(mut self, live: StatsSlot) -> KernelForward {
        self.live = Some(live);
        self
    }

    /// What became of the frames, as last read from the kernel.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The first read or write of the kernel's maps that failed, if any; the run then ends.
    pub fn failure(&self) -> Option<&LaneError> {
        self.failed.as_ref()
    }

    /// Carries a change out that waits.
    fn take(&mut self, maps: &dyn KernelMaps) -> Result<(), LaneError> {
        let Some(KernelChange { change, slots, frees_slots }) =
            self.feed.as_ref().and_then(KernelFeed::next)
        else {
            return Ok(());
        };
        for block in blocks(self.slots, slots) {
            for cpu in 0..self.cpus {
                maps.put("hits_beyond", &block_key(block, cpu), &[0; BLOCK_BYTES])?;
            }
        }
        self.slots = self.slots.max(slots);
        let Change { added, bank, removed, settled } = change;
        for (key, value) in &added {
            maps.put("entries", key, value)?;
        }
        self.put_in_force(maps, &bank)?;
        for key in &removed {
            maps.remove("entries", key)?;
        }
        if let Some(bank) = settled {
            self.put_in_force(maps, &bank)?;
        } else if !removed.is_empty() {
            // Memory of an entry that a reader has in hand becomes that of another one.
            laneway_bpf::wait_for_programs()?;
        }
        let Some(feed) = &self.feed else { return Ok(()) };
        if frees_slots {
            // The counts of rules that are gone are final now, before their counters are used again.
            feed.report(read_hits(maps, self.slots)?);
        }
        feed.taken();
        Ok(())
    }

    /// Writes the bank that nothing reads, and waits until nothing reads the other one any more.
    fn put_in_force(&mut self, maps: &dyn KernelMaps, bank: &[u8]) -> Result<(), LaneError> {
        let other = 1 - self.bank;
        maps.put("banks", &other.to_ne_bytes(), bank)?;
        maps.put("active", &0u32.to_ne_bytes(), &other.to_ne_bytes())?;
        self.bank = other;
        laneway_bpf::wait_for_programs()
    }

    fn read(&mut self, maps: &dyn KernelMaps) -> Result<(), LaneError> {
        if let Some(feed) = &self.feed {
            feed.report(read_hits(maps, self.slots)?);
        }
        let (fates, queues) = (sums(maps, "fates", 1)?, sums(maps, "queues", 1)?);
        self.stats.set(&fates, &queues);
        if let Some(live) = &self.live {
            live.publish(&self.stats);
        }
        self.stats.add_to(&mut self.counters);
        let seen = sums(maps, "seen", 2)?;
        if let [frames, bytes] = seen[..] {
            (self.counters.rx_frames, self.counters.rx_bytes) = (frames, bytes);
        }
        Ok(())
    }
}

/// The blocks of counters that slots up to `to` need and those up to `from` did not.
fn blocks(from: u32, to: u32) -> std::ops::Range<u32> {
    let end = |slots: u32| slots.max(SLOTS_AT_HAND).div_ceil(SLOTS_PER_BLOCK);
    end(from)..end(to)
}

/// `struct lw_block_key`.
fn block_key(block: u32, cpu: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&block.to_ne_bytes());
    key[4..].copy_from_slice(&cpu.to_ne_bytes());
    key
}

/// How many CPUs may ever be there; each has counters of its own.
fn possible_cpus() -> Result<u32, ConfigError> {
    let cpus = laneway_bpf::possible_cpus();
    cpus.map(|cpus| cpus as u32).map_err(|error| ConfigError::Kernel { what: error.to_string() })
}

/// By slot, those below `slots` and some.
fn read_hits(maps: &dyn KernelMaps, slots: u32) -> Result<Vec<Hits>, LaneError> {
    let words = sums(maps, "hits", 2)?;
    let mut hits: Vec<Hits> =
        words.chunks_exact(2).map(|w| Hits { frames: w[0], bytes: w[1] }).collect();
    if slots <= SLOTS_AT_HAND {
        return Ok(hits);
    }
    hits.resize((slots.div_ceil(SLOTS_PER_BLOCK) * SLOTS_PER_BLOCK) as usize, Hits::default());
    maps.visit("hits_beyond", &mut |key, block| {
        let Some((number, _)) = key.split_first_chunk() else { return };
        let first = u32::from_ne_bytes(*number) as usize * SLOTS_PER_BLOCK as usize;
        let of_block = hits.iter_mut().skip(first);
        for (hits, words) in of_block.zip(block.as_chunks::<16>().0) {
            let [frames, bytes] = [0, 8]
                .map(|at| words[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)));
            hits.frames += frames;
            hits.bytes += bytes;
        }
    })?;
    Ok(hits)
}

/// For each entry of a per-CPU map of `words` numbers, those numbers over all CPUs.
fn sums(maps: &dyn KernelMaps, map: &str, words: usize) -> Result<Vec<u64>, LaneError> {
    let mut all = Vec::new();
    maps.visit(map, &mut |_, values| all.extend(laneway_bpf::sum_per_cpu(values, words)))?;
    Ok(all)
}

impl App for KernelForward {
    fn wants_stop(&self) -> bool {
        self.failed.is_some()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl KernelApp for KernelForward {
    fn half(&self) -> KernelHalf {
        self.half.clone()
    }

    /// The half emits none.
    fn on_records(&mut self, _records: &[u8], _turn: Turn) {}

    fn on_tick(&mut self, maps: &dyn KernelMaps, turn: Turn) {
        let mut done = self.take(maps);
        if turn.now_ns.saturating_sub(self.reported_ns) >= REPORT_INTERVAL_NS {
            self.reported_ns = turn.now_ns;
            done = done.and_then(|()| self.read(maps));
        }
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }

    fn on_detached(&mut self, maps: &dyn KernelMaps, _turn: Turn) {
        if let Err(error) = self.read(maps) {
            self.failed.get_or_insert(error);
        }
    }
}

/// The mode's number in `bpf/forward.h`.
fn mode_code(mode: Mode) -> u32 {
    match mode {
        Mode::Io => 0,
        Mode::Mac => 1,
        Mode::MacSwap => 2,
        Mode::FiveTupleSwap => 3,
        Mode::L2 => 4,
        Mode::L3 => 5,
        Mode::Drop => 6,
    }
}

/// `struct lw_config`.
fn config_bytes(config: &Config, ifindexes: &[u32], has_rules: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [mode_code(config.mode), config.ports as u32, u32::from(has_rules), 0] {
        bytes.extend(word.to_ne_bytes());
    }
    let all = 0..PortMask::PORTS_MAX;
    all.clone().for_each(|port| {
        bytes.extend(ifindexes.get(port).copied().unwrap_or(0).to_ne_bytes());
    });
    all.clone().for_each(|port| {
        bytes.extend(config.own_mac(port));
        bytes.extend([u8::from(port < config.own.len()), 0]);
    });
    all.for_each(|port| {
        bytes.extend(config.peer_mac(port));
        bytes.extend([0; 2]);
    });
    bytes
}

/// The kernel half for a configuration.
fn half(
    config: &Config,
    ifindexes: &[u32],
    rules: Option<&mut KernelFeed>,
    cpus: u32,
) -> Result<KernelHalf, ConfigError> {
    let routes = config.tables()?;
    let cannot = |what: String| Err(ConfigError::Kernel { what });
    if config.mode == Mode::L2 {
        return cannot("mode l2 (stations are learned in user space)".to_owned());
    }
    if ifindexes.len() != config.ports {
        return cannot(format!("{} ports over {} interfaces", config.ports, ifindexes.len()));
    }
    let mut entries = Vec::new();
    let mut put = |map: &'static str, key: Vec<u8>, value: Vec<u8>| {
        entries.push((map, key, MapValue::Bytes(value)));
    };
    for (port, ifindex) in (0u32..).zip(ifindexes) {
        put("egress", port.to_ne_bytes().into(), ifindex.to_ne_bytes().into());
    }
    let mut map_sizes = Vec::new();
    let has_rules = rules.is_some();
    if let Some(feed) = rules {
        let first = std::mem::take(&mut feed.first);
        put("banks", 0u32.to_ne_bytes().into(), first.bank);
        first.entries.into_iter().for_each(|(key, value): RawEntry| put("entries", key, value));
        for block in blocks(0, feed.slots) {
            for cpu in 0..cpus {
                put("hits_beyond", block_key(block, cpu).into(), vec![0; BLOCK_BYTES]);
            }
        }
        map_sizes.push(("entries", TABLE_ENTRIES_MAX));
        map_sizes.push(("hits_beyond", blocks(0, SLOTS_USED_MAX as u32).end * cpus));
    }
    if let Some(routes) = routes {
        let mut sizes = [0u32; 2];
        for (number, (route, hop)) in (0u32..).zip(config.routes.iter().zip(routes.hops())) {
            let (map, family, address) = match route.address {
                IpAddr::V4(ip) => ("routes4", 0, ip.octets().to_vec()),
                IpAddr::V6(ip) => ("routes6", 1, ip.octets().to_vec()),
            };
            sizes[family] += 1;
            let key = [&route.bits.to_ne_bytes()[..], &address].concat();
            put(map, key, number.to_ne_bytes().into());
            let flags = [u8::from(hop.mac.is_some()), u8::from(hop.is_link)];
            let PortId(port) = hop.port;
            let value = [&hop.mac.unwrap_or_default()[..], &flags, &port.to_ne_bytes()];
            put("hops", number.to_ne_bytes().into(), value.concat());
        }
        for neighbour in &config.neighbours {
            let address = match neighbour.address {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            // struct lw_address: a packet of IPv6 may be to the mapped address, too.
            let is_v4 = u32::from(neighbour.address.is_ipv4());
            let key = [&address.octets()[..], &is_v4.to_ne_bytes()].concat();
            let value = [&neighbour.mac[..], &[0; 2]].concat();
            put("neighbours", key, value);
        }
        let all = config.routes.len() as u32;
        let neighbours = config.neighbours.len() as u32;
        for (map, size) in [
            ("routes4", sizes[0]),
            ("routes6", sizes[1]),
            ("hops", all),
            ("neighbours", neighbours),
        ] {
            map_sizes.push((map, size.max(1)));
        }
    }
    let bytes = config_bytes(config, ifindexes, has_rules);
    Ok(KernelHalf {
        name: "forward",
        object: OBJECT,
        program: "forward",
        config: vec![ConfigValue { name: "lw_config", bytes }],
        entries,
        map_sizes,
        records: None,
        drops_map: Some("drops"),
        seen_map: Some("seen"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fate, QUEUES_MAX};

    #[test]
    fn sizes_and_codes_are_those_of_the_header() {
        let header = include_str!("../bpf/forward.h");
        let says = |line: String| assert!(header.contains(&line), "bpf/forward.h lacks `{line}`");
        says(format!("#define LW_MATCHES_MAX {}", crate::RULES_MAX));
        says(format!("#define LW_SLOTS_AT_HAND {SLOTS_AT_HAND}"));
        says(format!("#define LW_SLOTS_PER_BLOCK {SLOTS_PER_BLOCK}"));
        says(format!("#define LW_QUEUES_MAX {QUEUES_MAX}"));
        says(format!("sizeof(struct lw_fields) == {}", crate::fields::FIELDS_BYTES));
        says(format!("#define LW_HEADERS_MAX {}", crate::HEADERS_BYTES_MAX));
        for mode in Mode::ALL {
            says(format!("LW_MODE_{} = {},", mode.word().to_uppercase(), mode_code(*mode)));
        }
        assert_eq!(Fate::COUNT, 12);
    }

    #[test]
    fn what_the_program_cannot_do_is_refused_by_name() {
        let refused = |config: &Config, ifindexes: &[u32]| {
            KernelForward::new(config, ifindexes, None).err().expect("refused").to_string()
        };
        let l2 = Config { mode: Mode::L2, ..Config::default() };
        assert!(refused(&l2, &[1, 2]).contains("mode l2"));
        assert!(refused(&Config::default(), &[1]).contains("2 ports over 1 interfaces"));
    }
}
