//! The kernel placement: the same forwarder as an XDP program (`bpf/forward.bpf.c`), described as data
//! for the `xdp` lane, and its user-space part.
//!
//! Rules lie in two banks of one map; the program reads the one that a single number names. A new set
//! is written to the other bank, then the number is changed, then the kernel is asked to wait until no
//! CPU executes the program as it was before: only then may that bank be written again. So every frame
//! sees one whole set. All this happens at ticks; nothing of it is on the way of a frame.

use crate::{
    compile::{Effects, Entry},
    config::{Config, ConfigError, Mode},
    fate::Stats,
    live::StatsSlot,
    rules::{Hits, KernelFeed},
};
use laneway_core::{
    ConfigValue, Counters, KernelApp, KernelHalf, KernelMaps, LaneError, PortId, PortMask, Turn,
};
use std::net::IpAddr;

/// The compiled program.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forward.bpf.o"));

/// Masks and values of all rules that the kernel half takes, after ranges became prefixes.
pub const KERNEL_RULES_MAX: usize = 64;
/// Counters: for rules in force, for rules that rest, and for rules to come.
pub(crate) const KERNEL_SLOTS: usize = 192;
/// Bytes of `struct lw_rule`.
const RULE_BYTES: usize = 232;
/// Bytes of `struct lw_bank`.
const BANK_BYTES: usize = 8 + KERNEL_RULES_MAX * RULE_BYTES;
/// How often the counters are read for those who ask.
const REPORT_INTERVAL_NS: u64 = 100_000_000;

/// An entry of a bank; they stand by group and rank.
pub(crate) struct BankRule {
    pub(crate) port: u8,
    pub(crate) group: u32,
    pub(crate) rank: u64,
    pub(crate) slot: u32,
    pub(crate) entry: Entry,
    pub(crate) effects: Effects,
}

/// `struct lw_bank`.
pub(crate) fn bank(rules: &[BankRule]) -> Vec<u8> {
    assert!(rules.len() <= KERNEL_RULES_MAX, "the set refuses more");
    let mut bytes = Vec::with_capacity(BANK_BYTES);
    bytes.extend((rules.len() as u32).to_ne_bytes());
    bytes.extend([0; 4]);
    for rule in rules {
        let e = &rule.effects;
        rule.entry.mask.iter().chain(&rule.entry.value).for_each(|w| bytes.extend(w.to_ne_bytes()));
        for word in [e.flags, rule.group, e.group, e.mark, rule.slot] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([rule.port, e.port, e.queues_len, 0]);
        bytes.extend(e.queues);
        bytes.extend(e.mac_src);
        bytes.extend(e.mac_dst);
        bytes.extend(e.tp_src);
        bytes.extend(e.tp_dst);
        bytes.extend(e.ip_src);
        bytes.extend(e.ip_dst);
    }
    bytes.resize(BANK_BYTES, 0);
    bytes
}

/// The forwarder with its decision in the kernel.
pub struct KernelForward {
    half: KernelHalf,
    feed: Option<KernelFeed>,
    /// The bank in force.
    bank: u32,
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
        rules: Option<KernelFeed>,
    ) -> Result<KernelForward, ConfigError> {
        let half = half(config, ifindexes, rules.as_ref())?;
        Ok(KernelForward {
            half,
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

    /// Puts a set that waits in force.
    fn swap(&mut self, maps: &dyn KernelMaps) -> Result<(), LaneError> {
        let Some(feed) = &self.feed else { return Ok(()) };
        let Some(bytes) = feed.next() else { return Ok(()) };
        let other = 1 - self.bank;
        maps.put("banks", &other.to_ne_bytes(), &bytes)?;
        maps.put("active", &0u32.to_ne_bytes(), &other.to_ne_bytes())?;
        self.bank = other;
        laneway_bpf::wait_for_programs();
        // The counts of rules that are gone are final now, before their counters are used again.
        let hits = read_hits(maps)?;
        feed.report(hits.into_iter());
        feed.taken();
        Ok(())
    }

    fn read(&mut self, maps: &dyn KernelMaps) -> Result<(), LaneError> {
        if let Some(feed) = &self.feed {
            feed.report(read_hits(maps)?.into_iter());
        }
        let (fates, queues) = (sums(maps, "fates", 1)?, sums(maps, "queues", 1)?);
        self.stats.set(&fates, &queues);
        if let Some(live) = &self.live {
            live.tell(&self.stats);
        }
        self.stats.tell(&mut self.counters);
        let seen = sums(maps, "seen", 2)?;
        if let [frames, bytes] = seen[..] {
            (self.counters.rx_frames, self.counters.rx_bytes) = (frames, bytes);
        }
        Ok(())
    }
}

fn read_hits(maps: &dyn KernelMaps) -> Result<Vec<Hits>, LaneError> {
    let words = sums(maps, "hits", 2)?;
    Ok(words.chunks_exact(2).map(|w| Hits { frames: w[0], bytes: w[1] }).collect())
}

/// For each entry of a per-CPU map of `words` numbers, those numbers over all CPUs.
fn sums(maps: &dyn KernelMaps, map: &str, words: usize) -> Result<Vec<u64>, LaneError> {
    let mut all = Vec::new();
    maps.visit(map, &mut |_, values| all.extend(laneway_bpf::sum_per_cpu(values, words)))?;
    Ok(all)
}

impl KernelApp for KernelForward {
    fn half(&self) -> KernelHalf {
        self.half.clone()
    }

    /// The half emits none.
    fn on_records(&mut self, _records: &[u8], _turn: Turn) {}

    fn on_tick(&mut self, maps: &dyn KernelMaps, turn: Turn) {
        let mut done = self.swap(maps);
        if turn.now_ns.saturating_sub(self.reported_ns) >= REPORT_INTERVAL_NS {
            self.reported_ns = turn.now_ns;
            done = done.and_then(|()| self.read(maps));
        }
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }

    fn on_stop(&mut self, maps: &dyn KernelMaps, _turn: Turn) {
        if let Err(error) = self.read(maps) {
            self.failed.get_or_insert(error);
        }
    }

    fn wants_stop(&self) -> bool {
        self.failed.is_some()
    }

    fn counters(&self) -> &Counters {
        &self.counters
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
    rules: Option<&KernelFeed>,
) -> Result<KernelHalf, ConfigError> {
    let routes = config.tables()?;
    let cannot = |what: String| Err(ConfigError::Kernel { what });
    if config.mode == Mode::L2 {
        return cannot("mode l2 (stations are learned in user space)".to_owned());
    }
    if ifindexes.len() != config.ports {
        return cannot(format!("{} ports over {} interfaces", config.ports, ifindexes.len()));
    }
    let mut entries: Vec<(&'static str, Vec<u8>, Vec<u8>)> = Vec::new();
    for (port, ifindex) in (0u32..).zip(ifindexes) {
        entries.push(("egress", port.to_ne_bytes().into(), ifindex.to_ne_bytes().into()));
    }
    if let Some(feed) = rules {
        entries.push(("banks", 0u32.to_ne_bytes().into(), feed.first.clone()));
    }
    let mut map_sizes = Vec::new();
    if let Some(routes) = routes {
        let mut sizes = [0u32; 2];
        for (number, (route, hop)) in (0u32..).zip(config.routes.iter().zip(routes.hops())) {
            let (map, family, address) = match route.address {
                IpAddr::V4(ip) => ("routes4", 0, ip.octets().to_vec()),
                IpAddr::V6(ip) => ("routes6", 1, ip.octets().to_vec()),
            };
            sizes[family] += 1;
            let key = [&route.bits.to_ne_bytes()[..], &address].concat();
            entries.push((map, key, number.to_ne_bytes().into()));
            let flags = [u8::from(hop.mac.is_some()), u8::from(hop.is_link)];
            let PortId(port) = hop.port;
            let value = [&hop.mac.unwrap_or_default()[..], &flags, &u32::from(port).to_ne_bytes()];
            entries.push(("hops", number.to_ne_bytes().into(), value.concat()));
        }
        for neighbour in &config.neighbours {
            let address = match neighbour.address {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let value = [&neighbour.mac[..], &[0; 2]].concat();
            entries.push(("neighbours", address.octets().into(), value));
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
    let bytes = config_bytes(config, ifindexes, rules.is_some());
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
        says(format!("#define LW_RULES_MAX {KERNEL_RULES_MAX}"));
        says(format!("#define LW_SLOTS {KERNEL_SLOTS}"));
        says(format!("#define LW_QUEUES_MAX {QUEUES_MAX}"));
        says(format!("sizeof(struct lw_rule) == {RULE_BYTES}"));
        says(format!("sizeof(struct lw_bank) == {BANK_BYTES}"));
        says(format!("sizeof(struct lw_fields) == {}", crate::fields::FIELDS_BYTES));
        says(format!("#define LW_HEADERS_MAX {}", crate::HEADERS_BYTES_MAX));
        for mode in Mode::ALL {
            says(format!("LW_MODE_{} = {},", mode.word().to_uppercase(), mode_code(*mode)));
        }
        assert_eq!(bank(&[]).len(), BANK_BYTES);
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
