//! What the program reads, as bytes, and how one set of rules follows another.
//!
//! Everything of a rule lies under its slot, a number that no other rule has had while a worker may know
//! it. A change is written in three steps: what new rules need, under slots that no table names; the table
//! of inputs, in place of the former; and, once no program holds the former table, the removal of what
//! only that one led to. A rule that did not change keeps its slot, and so its counts.

use super::{
    counts::RuleCounts,
    rule::{KERNEL_EXITS_MAX, KernelOutput, KernelRule, KernelRules, interfaces},
};
use laneway_core::MapValue;
use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

/// Beside the number of a VLAN: `LW_RELAY_IPV6` of its first byte.
const IPV6: u16 = 0x8000;
/// The program on the way out.
const OUT: &str = "relay_out";
/// As many sets of interfaces as two sets of rules may have: the former one's are there until it has gone.
const EXIT_SETS: usize = 2 * KERNEL_EXITS_MAX;

/// A map, a key in it, what is to stand there.
pub(super) type Entry = (&'static str, Vec<u8>, MapValue);

/// A rule in force.
#[derive(Clone, Debug)]
pub(super) struct InForce {
    pub(super) rule: KernelRule,
    pub(super) slot: u32,
    exits: u32,
    /// What rules before it counted for the same input.
    pub(super) before: RuleCounts,
}

/// The rules in force, and what else the maps hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) rules: Vec<InForce>,
    /// Sets of interfaces, by their place in map `exits`.
    exits: Vec<Vec<u32>>,
    next_slot: u32,
}

/// One set of rules after another.
#[derive(Debug)]
pub(super) struct Change {
    /// To be written first, while no table refers to it.
    pub(super) entries: Vec<Entry>,
    /// To be put in place of the former table.
    pub(super) table: Entry,
    /// Rules that are in force no more, and where in `Tables::rules` there is one for the same input.
    pub(super) gone: Vec<(InForce, Option<usize>)>,
}

impl Tables {
    /// The change to another set, which is taken to be in force from now on.
    pub(super) fn change(&mut self, rules: KernelRules) -> Change {
        let mut former: HashMap<_, _> =
            self.rules.drain(..).map(|rule| (input_key(&rule.rule), rule)).collect();
        let mut used: HashSet<u32> = former.values().map(|rule| rule.exits).collect();
        let mut slots: HashSet<u32> = former.values().map(|rule| rule.slot).collect();
        let (mut entries, mut gone, mut table) = (Vec::new(), Vec::new(), Vec::new());
        for rule in rules.into_all() {
            let key = input_key(&rule);
            let kept = match former.remove(&key) {
                Some(same) if same.rule == rule => Some(same),
                Some(other) => {
                    gone.push((other, Some(self.rules.len())));
                    None
                }
                None => None,
            };
            let in_force = kept.unwrap_or_else(|| {
                let slot = self.free_slot(&mut slots);
                let exits = self.exits_of(&rule, &mut used, &mut entries);
                entries.extend(entries_of(&rule, slot, exits));
                InForce { rule, slot, exits, before: RuleCounts::default() }
            });
            table.push((key, MapValue::Bytes(in_force.slot.to_ne_bytes().into())));
            self.rules.push(in_force);
        }
        gone.extend(former.into_values().map(|rule| (rule, None)));
        let table = ("table", 0u32.to_ne_bytes().into(), MapValue::Map(table));
        Change { entries, table, gone }
    }

    /// What is in force where the entries of a change to `given_up` could not all be written.
    pub(super) fn without(self, given_up: &Tables, entries: &[Entry]) -> Tables {
        let mut exits = self.exits;
        for (_, key, _) in entries.iter().filter(|(map, ..)| *map == "exits") {
            let at = key.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word) as usize);
            // What stands there now may be the former set of interfaces or the other.
            if let Some(place) = exits.get_mut(at) {
                place.clear();
            }
        }
        Tables { exits, next_slot: given_up.next_slot, ..self }
    }

    /// A slot that neither set has.
    fn free_slot(&mut self, slots: &mut HashSet<u32>) -> u32 {
        loop {
            let slot = self.next_slot;
            self.next_slot = self.next_slot.wrapping_add(1);
            if slots.insert(slot) {
                return slot;
            }
        }
    }

    /// Where the interfaces of a rule's outputs stand: where they stood, or in a place that neither set
    /// uses, for which an entry is added.
    fn exits_of(
        &mut self,
        rule: &KernelRule,
        used: &mut HashSet<u32>,
        entries: &mut Vec<Entry>,
    ) -> u32 {
        let wanted = interfaces(rule);
        if let Some(at) = self.exits.iter().position(|exits| *exits == wanted) {
            used.insert(at as u32);
            return at as u32;
        }
        let at = (0..EXIT_SETS as u32)
            .find(|at| !used.contains(at))
            .expect("two sets of rules together have at most as many");
        let devices = (0u32..).zip(&wanted).map(|(number, ifindex)| {
            (number.to_ne_bytes().to_vec(), MapValue::Exit(*ifindex, OUT))
        });
        entries.push(("exits", at.to_ne_bytes().into(), MapValue::Map(devices.collect())));
        match self.exits.get_mut(at as usize) {
            Some(place) => *place = wanted,
            None => self.exits.push(wanted),
        }
        used.insert(at);
        at
    }
}

/// What stands under a rule's slot.
fn entries_of(rule: &KernelRule, slot: u32, exits: u32) -> Vec<Entry> {
    let has_sources = u32::from(!rule.sources.is_empty());
    let value = [&exits.to_ne_bytes()[..], &has_sources.to_ne_bytes(), &[0; 16]].concat();
    let mut entries = vec![("rules", slot.to_ne_bytes().into(), MapValue::Bytes(value))];
    let sources = rule.sources.iter();
    entries.extend(sources.map(|ip| ("sources", source_key(slot, *ip), MapValue::Bytes(vec![1]))));
    let outputs = rule.outputs.iter();
    entries.extend(outputs.map(|output| {
        let key = exit_key(slot, output.ifindex);
        ("outputs", key, MapValue::Bytes(output_bytes(output)))
    }));
    entries
}

/// The keys of what stands under a rule's slot.
pub(super) fn keys_of(rule: &InForce) -> Vec<(&'static str, Vec<u8>)> {
    let entries = entries_of(&rule.rule, rule.slot, rule.exits);
    entries.into_iter().map(|(map, key, _)| (map, key)).collect()
}

/// IPv4 as the program has it.
fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// `struct lw_relay_input`.
fn input_key(rule: &KernelRule) -> Vec<u8> {
    let family = if rule.destination.is_ipv6() { IPV6 } else { 0 };
    let (vlan, port) = ((rule.vlan | family).to_be_bytes(), rule.port.to_be_bytes());
    [&rule.ifindex.to_ne_bytes()[..], &vlan, &port, &mapped(rule.destination)].concat()
}

/// `struct lw_relay_source`.
fn source_key(slot: u32, ip: IpAddr) -> Vec<u8> {
    [&slot.to_ne_bytes()[..], &mapped(ip)].concat()
}

/// `struct lw_relay_exit`.
fn exit_key(slot: u32, ifindex: u32) -> Vec<u8> {
    [slot.to_ne_bytes(), ifindex.to_ne_bytes()].concat()
}

/// `struct lw_relay_output`.
fn output_bytes(output: &KernelOutput) -> Vec<u8> {
    let to = output.destination;
    [
        &output.destination_mac().expect("checked: a group, or a next hop")[..],
        &output.own_mac,
        &mapped(output.source_ip),
        &mapped(to.ip()),
        &output.source_port.to_be_bytes(),
        &to.port().to_be_bytes(),
        &[output.dscp << 2, output.hop_limit],
        &[0; 6 + 16],
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::rule::tests::rule;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The maps, as changes leave them.
    #[derive(Default)]
    struct Maps(BTreeMap<(&'static str, Vec<u8>), MapValue>);

    impl Maps {
        fn put(&mut self, (map, key, value): Entry) -> Option<MapValue> {
            self.0.insert((map, key), value)
        }

        fn at(&self, map: &'static str, key: &[u8]) -> Option<&MapValue> {
            self.0.get(&(map, key.to_vec()))
        }

        /// The interfaces that a rule's datagrams leave by, if each of them finds its output there.
        fn exits(&self, rule: &KernelRule) -> Option<Vec<u32>> {
            let MapValue::Map(table) = self.at("table", &[0; 4])? else { return None };
            let (_, slot) = table.iter().find(|(key, _)| *key == input_key(rule))?;
            let MapValue::Bytes(slot) = slot else { return None };
            let MapValue::Bytes(value) = self.at("rules", slot)? else { return None };
            let MapValue::Map(devices) = self.at("exits", &value[..4])? else { return None };
            let mut found = Vec::new();
            for (_, device) in devices {
                let MapValue::Exit(ifindex, OUT) = *device else { return None };
                let key = [&slot[..], &ifindex.to_ne_bytes()].concat();
                let output = rule.outputs.iter().find(|output| output.ifindex == ifindex)?;
                let want = MapValue::Bytes(output_bytes(output));
                found.extend((self.at("outputs", &key)? == &want).then_some(ifindex));
            }
            Some(found)
        }
    }

    fn rules(set: &[(u16, Vec<u32>, u8)]) -> KernelRules {
        let one = |(port, interfaces, dscp): &(u16, Vec<u32>, u8)| {
            let mut rule = rule(*port, interfaces);
            rule.outputs.iter_mut().for_each(|output| output.dscp = *dscp);
            rule
        };
        KernelRules::new(set.iter().map(one).collect()).expect("they may be")
    }

    fn a_set() -> impl Strategy<Value = Vec<(u16, Vec<u32>, u8)>> {
        let interfaces = prop::sample::subsequence((2u32..8).collect::<Vec<_>>(), 1..=6);
        prop::collection::btree_map(1u16..12, (interfaces, 0u8..3), 0..10).prop_map(|set| {
            set.into_iter().map(|(port, (interfaces, dscp))| (port, interfaces, dscp)).collect()
        })
    }

    proptest! {
        /// Up to the swap every rule of the former set is whole, from then on every one of the new set;
        /// nothing of the former is written over, and what is removed leaves the new one whole.
        #[test]
        fn a_reader_sees_one_whole_set(sets in prop::collection::vec(a_set(), 1..12)) {
            let (mut tables, mut maps) = (Tables::default(), Maps::default());
            let mut former = KernelRules::default();
            for set in sets {
                let set = rules(&set);
                let Change { entries, table, gone } = tables.change(set.clone());
                for entry in entries {
                    let is_exits = entry.0 == "exits";
                    let written_over = maps.put(entry).is_some();
                    prop_assert!(!written_over || is_exits, "only an unused set of interfaces");
                    for rule in former.all() {
                        prop_assert_eq!(maps.exits(rule), Some(interfaces(rule)));
                    }
                }
                maps.put(table);
                for (rule, _) in &gone {
                    for key in keys_of(rule) {
                        prop_assert!(maps.0.remove(&key).is_some());
                    }
                }
                for rule in set.all() {
                    prop_assert_eq!(maps.exits(rule), Some(interfaces(rule)));
                }
                let outputs: usize = set.all().iter().map(|rule| rule.outputs.len()).sum();
                let left = |map: &str| maps.0.keys().filter(|(name, _)| *name == map).count();
                prop_assert_eq!((left("rules"), left("outputs")), (set.all().len(), outputs));
                former = set;
            }
        }
    }

    #[test]
    fn a_rule_that_did_not_change_keeps_its_slot_and_costs_no_map() {
        let mut tables = Tables::default();
        let first = tables.change(rules(&[(1, vec![2, 3], 0), (2, vec![3, 2], 0)]));
        let maps = first.entries.iter().filter(|(map, ..)| *map == "exits").count();
        assert_eq!(maps, 1, "both send to the same interfaces");
        let slots: Vec<u32> = tables.rules.iter().map(|rule| rule.slot).collect();
        let second = tables.change(rules(&[(2, vec![3, 2], 1), (1, vec![2, 3], 0)]));
        assert!(second.entries.iter().all(|(map, ..)| *map != "exits"));
        assert_eq!(tables.rules[1].slot, slots[0]);
        assert!(!slots.contains(&tables.rules[0].slot), "no worker may know the new one's");
        let gone: Vec<_> = second.gone.iter().map(|(rule, next)| (rule.slot, *next)).collect();
        assert_eq!(gone, [(slots[1], Some(0))]);
    }

    #[test]
    fn as_many_sets_of_interfaces_as_may_be_follow_each_other() {
        let mut tables = Tables::default();
        for round in 0..4 {
            let all: Vec<_> = (0..KERNEL_EXITS_MAX as u32)
                .map(|at| (1 + at as u16, vec![1000 * round + 2, 1_000_000 + 1000 * round + at], 0))
                .collect();
            tables.change(rules(&all));
            assert!(tables.exits.len() <= EXIT_SETS);
        }
    }

    #[test]
    fn a_set_of_interfaces_that_was_written_over_in_vain_is_written_again() {
        let mut tables = Tables::default();
        for interfaces in [vec![2], vec![3]] {
            tables.change(rules(&[(1, interfaces, 0)]));
        }
        let former = tables.clone();
        let given_up = tables.change(rules(&[(1, vec![4], 0)]));
        tables = former.without(&tables, &given_up.entries);
        let again = tables.change(rules(&[(1, vec![2], 0)]));
        assert!(again.entries.iter().any(|(map, ..)| *map == "exits"), "another stands there");
        let slot = |change: &Change| {
            change.entries.iter().find(|it| it.0 == "rules").map(|it| it.1.clone())
        };
        assert_ne!(slot(&again), slot(&given_up));
    }

    #[test]
    fn sizes_are_those_of_the_header() {
        let header = include_str!("../../bpf/relay.h");
        let rule = rule(1, &[2]);
        for (name, bytes) in [
            ("input", input_key(&rule).len()),
            ("source", source_key(1, rule.destination).len()),
            ("output", output_bytes(&rule.outputs[0]).len()),
        ] {
            let line = format!("sizeof(struct lw_relay_{name}) == {bytes}");
            assert!(header.contains(&line), "bpf/relay.h lacks `{line}`");
        }
        let program = include_str!("../../bpf/relay.bpf.c");
        let line = format!("#define LW_RELAY_EXITS_MAX {EXIT_SETS}");
        assert!(program.contains(&line), "bpf/relay.bpf.c lacks `{line}`");
    }
}
