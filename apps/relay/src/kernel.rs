//! The kernel placement: rules whose datagrams never come to user space.
//!
//! ```text
//!  wire ─▶ relay: rule of (interface, group, port)? source allowed? ── no ─▶ the kernel's stack
//!             │ redirect to all interfaces of the rule (a copy for each)
//!             ├─▶ relay_out: addresses, ports, TTL, DSCP of this output ─▶ driver
//!             └─▶ relay_out: ...
//! ```
//!
//! [`KernelRelay`] is two XDP programs (`bpf/relay.bpf.c`) described as data for the `xdp` lane, and
//! their user-space part: it puts sets of rules in force ([`KernelFeed`]) and reads what was counted.
//! Rules are resolved: interfaces are numbers, next hops are MAC addresses ([`KernelRule`]). What must
//! always hold: a frame sees one whole set of rules; a datagram that is not sent as a rule says is passed
//! unchanged and counted by reason; nothing here is on the way of a frame. What it does not do: it puts no
//! fragments together, and queues nothing: what a driver does not take is dropped and counted by the lane.
//!
//! [`KernelWorker`] is it at the orders of a book of rules: it resolves rules, has the kernel join their groups, and
//! follows its neighbours; it asks for none.
//!
//! A sender on a veth must compute its checksums itself (`ethtool -K IFACE tx off`): XDP sees a frame
//! before any program completes what the sender left to hardware, and follows what it finds.

mod counts;
pub(crate) mod resolve;
mod rule;
mod tables;
mod worker;

pub use counts::{Datagrams, KernelCounts, KernelFate, OutputCounts, RuleCounts};
pub use rule::{
    KERNEL_EXITS_MAX, KERNEL_OUTPUTS_MAX, KERNEL_OUTPUTS_OF_RULE_MAX, KERNEL_RULES_MAX,
    KERNEL_SOURCES_MAX, KernelOutput, KernelRefused, KernelRule, KernelRules,
};
pub use worker::KernelWorker;

use counts::{Read, passed_over};
use laneway_core::{
    App, ConfigValue, Counters, DropReason, KernelApp, KernelHalf, KernelMaps, LaneError, Turn,
};
use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tables::{Change, Entry, InForce, Tables};

/// The compiled programs.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/relay.bpf.o"));

/// How often the counters are read for clients that ask.
const REPORT_INTERVAL_NS: u64 = 250_000_000;

/// The relay with its work in the kernel.
pub struct KernelRelay {
    half: KernelHalf,
    tables: Tables,
    feed: KernelFeed,
    counts: KernelCounts,
    /// Of rules that are gone.
    gone: Gone,
    counters: Counters,
    reported_ns: Option<u64>,
    failed: Option<LaneError>,
}

/// A set of rules of which everything is written but the table.
struct Written {
    table: Entry,
    gone: Vec<(InForce, Option<usize>)>,
    number: u64,
}

/// What rules counted that are gone.
#[derive(Default)]
struct Gone {
    taken: Datagrams,
    sent: Datagrams,
    passed_over: u64,
}

/// Gives new rules to a [`KernelRelay`] that runs, and says what it counted.
#[derive(Clone, Default)]
pub struct KernelFeed(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    applied: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Option<KernelRules>,
    /// How many sets were given, and the last one that is in force.
    given: u64,
    applied: u64,
    counts: KernelCounts,
}

impl KernelFeed {
    /// Gives a set of rules in place of that in force; one that still waits is forgotten. The worker takes
    /// it at its next tick: ring its bell. Returns the number to wait for.
    pub fn replace(&self, rules: KernelRules) -> u64 {
        let mut state = self.lock();
        state.waiting = Some(rules);
        state.given += 1;
        state.given
    }

    /// Waits until the set of this number, or a later one, is in force; false when the time is up.
    pub fn wait(&self, number: u64, timeout: Duration) -> bool {
        let waits = |state: &mut State| state.applied < number;
        let ended = self.0.applied.wait_timeout_while(self.lock(), timeout, waits);
        let (state, _) = ended.unwrap_or_else(PoisonError::into_inner);
        state.applied >= number
    }

    /// What was counted, as last read: about four times a second, and at the end.
    pub fn counts(&self) -> KernelCounts {
        self.lock().counts.clone()
    }

    /// Each change of the state is one assignment after another, so a panic leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelRelay {
    /// A relay of these rules. Datagrams with a lower time to live than `ttl_min` are left to the kernel:
    /// 2 is a router's rule; 1 takes what a socket would get, for 1 is what most senders of multicast
    /// begin with.
    pub fn new(rules: KernelRules, ttl_min: u8) -> KernelRelay {
        let mut tables = Tables::default();
        let Change { mut entries, table, .. } = tables.change(rules);
        entries.push(table);
        // struct lw_relay_config
        let config = [u32::from(ttl_min).to_ne_bytes(), [0; 4]].concat();
        let half = KernelHalf {
            name: "relay",
            object: OBJECT,
            program: "relay",
            config: vec![ConfigValue { name: "lw_config", bytes: config }],
            entries,
            // A set and the one before it.
            map_sizes: vec![
                ("rules", 2 * KERNEL_RULES_MAX as u32),
                ("sources", 2 * KERNEL_SOURCES_MAX as u32),
                ("outputs", 2 * KERNEL_OUTPUTS_MAX as u32),
            ],
            records: None,
            drops_map: None,
            seen_map: Some("seen"),
        };
        KernelRelay {
            half,
            tables,
            feed: KernelFeed::default(),
            counts: KernelCounts::default(),
            gone: Gone::default(),
            counters: Counters::default(),
            reported_ns: None,
            failed: None,
        }
    }

    /// By which another thread gives rules and asks for counts.
    pub fn feed(&self) -> KernelFeed {
        self.feed.clone()
    }

    /// What was counted, as last read.
    pub fn counts(&self) -> &KernelCounts {
        &self.counts
    }

    /// The first read or write of the kernel's maps that failed, if any; the run then ends.
    pub fn failure(&self) -> Option<&LaneError> {
        self.failed.as_ref()
    }

    /// Puts the rules in force that wait.
    fn take(&mut self, maps: &dyn KernelMaps) -> Result<(), LaneError> {
        self.write(maps)?.map_or(Ok(()), |written| self.swap(written, maps))
    }

    /// Writes what the rules that wait need. When it fails the former set is in force, whole.
    fn write(&mut self, maps: &dyn KernelMaps) -> Result<Option<Written>, LaneError> {
        let mut state = self.feed.lock();
        let (waiting, number) = (state.waiting.take(), state.given);
        drop(state);
        let Some(rules) = waiting else { return Ok(None) };
        let former = self.tables.clone();
        let Change { entries, table, gone } = self.tables.change(rules);
        let done = entries.iter().try_for_each(|(map, key, value)| maps.set(map, key, value));
        if let Err(error) = done {
            self.tables = former.without(&self.tables, &entries);
            for (map, key, _) in entries.iter().filter(|(map, ..)| *map != "exits") {
                // No table names it; what stays takes up room.
                let _ = maps.remove(map, key);
            }
            return Err(error);
        }
        Ok(Some(Written { table, gone, number }))
    }

    /// Puts what is written in force, in place of the former set.
    fn swap(&mut self, written: Written, maps: &dyn KernelMaps) -> Result<(), LaneError> {
        let Written { table: (map, key, value), gone, number } = written;
        maps.set(map, &key, &value)?;
        // From here on no program knows the rules that are gone, so what they counted is final.
        if !gone.is_empty() {
            self.retire(&read(maps)?, &gone);
            for (rule, _) in &gone {
                for (map, key) in tables::keys_of(rule) {
                    maps.remove(map, &key)?;
                }
            }
        }
        self.report(maps, false)?;
        self.feed.lock().applied = number;
        self.feed.0.applied.notify_all();
        Ok(())
    }

    /// Keeps the counts of rules that are gone: each under the rule that took its place, if any.
    fn retire(&mut self, read: &Read, gone: &[(InForce, Option<usize>)]) {
        for (rule, next) in gone {
            let mut counts = count(read, rule);
            self.gone.passed_over += passed_over(&counts);
            self.gone.taken.add(counts.taken);
            counts.outputs.iter().for_each(|output| self.gone.sent.add(output.sent));
            if let Some(next) = next {
                counts.add(&rule.before);
                self.tables.rules[*next].before = counts;
            }
        }
    }

    /// Reads all counters. `is_final`: nothing is under way any more.
    fn report(&mut self, maps: &dyn KernelMaps, is_final: bool) -> Result<(), LaneError> {
        let read = read(maps)?;
        let Gone { taken, sent, passed_over: over } = self.gone;
        let mut counts = KernelCounts { taken, sent, passed_over: over, ..KernelCounts::default() };
        for rule in &self.tables.rules {
            let mut of_rule = count(&read, rule);
            counts.taken.add(of_rule.taken);
            of_rule.outputs.iter().for_each(|output| counts.sent.add(output.sent));
            if is_final {
                counts.passed_over += passed_over(&of_rule);
            }
            of_rule.add(&rule.before);
            counts.rules.push(of_rule);
        }
        for (fate, sum) in counts.fates.iter_mut().zip(sums(maps, "fates", 1)?) {
            *fate = sum;
        }
        let outputs = self.tables.rules.iter().flat_map(|rule| &rule.rule.outputs);
        let interfaces: BTreeSet<u32> = outputs.map(|output| output.ifindex).collect();
        let drops = interfaces.into_iter().map(|ifindex| (ifindex, maps.exit_drops(ifindex)));
        counts.interfaces = drops.collect();
        if let [frames, bytes] = sums(maps, "seen", 2)?[..] {
            (self.counters.rx_frames, self.counters.rx_bytes) = (frames, bytes);
        }
        (self.counters.tx_frames, self.counters.tx_bytes) = (counts.sent.count, counts.sent.bytes);
        self.counters.passed = counts.fates[1..].iter().sum();
        self.counters.set_drops(DropReason::TxRefused, counts.passed_over);
        self.feed.lock().counts.clone_from(&counts);
        self.counts = counts;
        Ok(())
    }
}

/// What a rule counted since it has its slot.
fn count(read: &Read, rule: &InForce) -> RuleCounts {
    read.of(rule.slot, rule.rule.outputs.iter().map(|output| output.ifindex))
}

/// Reads what was counted under every slot. Rules after outputs: of what goes on meanwhile, no output has
/// more than its rule.
fn read(maps: &dyn KernelMaps) -> Result<Read, LaneError> {
    let number =
        |key: &[u8], at: usize| key[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    // struct lw_relay_output and struct lw_relay_rule: what was counted stands last.
    let counted = |value: &[u8]| {
        let words = value.last_chunk().map_or([[0; 8]; 2], |last: &[u8; 16]| {
            [*last.first_chunk().expect("8 of 16"), *last.last_chunk().expect("8 of 16")]
        });
        let [count, bytes] = words.map(u64::from_ne_bytes);
        Datagrams { count, bytes }
    };
    let mut read = Read::default();
    maps.visit("outputs", &mut |key, value| {
        read.outputs.insert((number(key, 0), number(key, 4)), counted(value));
    })?;
    maps.visit("rules", &mut |key, value| {
        read.rules.insert(number(key, 0), counted(value));
    })?;
    Ok(read)
}

/// For each entry of a per-CPU map of `words` numbers, those numbers over all CPUs.
fn sums(maps: &dyn KernelMaps, map: &str, words: usize) -> Result<Vec<u64>, LaneError> {
    let mut all = Vec::new();
    maps.visit(map, &mut |_, values| all.extend(laneway_bpf::sum_per_cpu(values, words)))?;
    Ok(all)
}

impl App for KernelRelay {
    fn wants_stop(&self) -> bool {
        self.failed.is_some()
    }

    /// Without what drivers did not take: the lane counts that.
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl KernelApp for KernelRelay {
    fn half(&self) -> KernelHalf {
        self.half.clone()
    }

    /// The half emits none.
    fn on_records(&mut self, _records: &[u8], _turn: Turn) {}

    fn on_tick(&mut self, maps: &dyn KernelMaps, turn: Turn) {
        let mut done = self.take(maps);
        let is_due = |last: u64| turn.now_ns.saturating_sub(last) >= REPORT_INTERVAL_NS;
        if self.reported_ns.is_none_or(is_due) {
            self.reported_ns = Some(turn.now_ns);
            done = done.and_then(|()| self.report(maps, false));
        }
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }

    fn on_detached(&mut self, maps: &dyn KernelMaps, _turn: Turn) {
        if let Err(error) = self.report(maps, true) {
            self.failed.get_or_insert(error);
        }
    }
}
