//! What the meter says at one point in time.

use super::layout::{self, Cells, METER_WORDS, NOTHING, OWNERS};
use super::usage::Usage;
use std::collections::BTreeMap;

/// Cumulative CPU time since the meter was attached, summed over all CPUs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    /// CLOCK_MONOTONIC when it was read, ns.
    pub(crate) at_ns: u64,
    /// CPUs that are online.
    pub(crate) cpus: usize,
    /// Task switches, polls, entries and exits of softirqs and device interrupts: the meter's own work.
    pub(crate) events: u64,
    /// Of these, those of what is an owner's own.
    pub(super) own_events: Box<[u64; OWNERS]>,
    /// What one costs on this machine, ns; absent where that was not measured.
    pub(super) event_ns: Option<f64>,
    /// By CPU: time that the hypervisor gave to others since boot, ns; in steps of the kernel's clock tick, 10 ms
    /// nearly everywhere. It is also inside the time of the task that ran then.
    pub(crate) steal_ns: BTreeMap<usize, u64>,
    pub(super) cells: Box<Cells>,
    /// Of foreign tasks, by the name of their program, ns.
    pub(super) names_ns: BTreeMap<String, u64>,
    /// Processes that the meter had no room for, by the owner that they would have had: since it was attached, or
    /// since that owner's were forgotten.
    pub(super) unplaced: Box<[u64; OWNERS]>,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading {
            at_ns: 0,
            cpus: 0,
            events: 0,
            own_events: Box::new([0; OWNERS]),
            event_ns: None,
            steal_ns: BTreeMap::new(),
            cells: Box::new(NOTHING),
            names_ns: BTreeMap::new(),
            unplaced: Box::new([0; OWNERS]),
        }
    }
}

impl Reading {
    /// What one says that has booked nothing but tasks of an arm.
    #[cfg(test)]
    pub(crate) fn of_arm(at_ns: u64, arm: usize, own_ns: u64) -> Reading {
        let mut reading = Reading { at_ns, cpus: 1, ..Reading::default() };
        reading.cells[layout::index(super::Owner::Arm(arm))][layout::Part::Task as usize] = own_ns;
        reading
    }

    /// The same, and what other programs used.
    #[cfg(test)]
    pub(crate) fn beside(mut self, foreign_ns: u64) -> Reading {
        let foreign = layout::index(super::Owner::Foreign);
        self.cells[foreign][layout::Part::Task as usize] = foreign_ns;
        self
    }

    /// Adds what one CPU has, up to `at_ns`.
    pub(super) fn add_cpu(&mut self, words: &[u64]) {
        debug_assert_eq!(words.len(), METER_WORDS);
        if layout::is_online(words) {
            self.cpus += 1;
            self.events += layout::events(words);
            for (events, of_cpu) in self.own_events.iter_mut().zip(layout::own_events(words)) {
                *events += of_cpu;
            }
            layout::add_to(&mut self.cells, words, self.at_ns);
        }
    }

    /// Adds an entry of map `foreigners`.
    pub(super) fn add_name(&mut self, name: &[u8], ns: &[u8]) {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let ns = ns.first_chunk().map_or(0, |ns| u64::from_ne_bytes(*ns));
        self.names_ns.insert(String::from_utf8_lossy(name).into_owned(), ns);
    }

    /// Adds an entry of map `unplaced`.
    pub(super) fn add_unplaced(&mut self, owner: &[u8], processes: &[u8]) {
        let owner = owner.first_chunk().map_or(OWNERS, |owner| u32::from_ne_bytes(*owner) as usize);
        if let (Some(place), Some(processes)) =
            (self.unplaced.get_mut(owner), processes.first_chunk())
        {
            *place = u64::from_ne_bytes(*processes);
        }
    }

    /// Time between an earlier reading and this one.
    #[must_use]
    pub(crate) fn since(&self, earlier: &Reading) -> Usage {
        let mut cells = self.cells.clone();
        for (cell, before) in cells.iter_mut().flatten().zip(earlier.cells.iter().flatten()) {
            *cell = grown(*before, *cell);
        }
        let mut own_events = self.own_events.clone();
        for (events, before) in own_events.iter_mut().zip(earlier.own_events.iter()) {
            *events = grown(*before, *events);
        }
        Usage {
            window_ns: self.at_ns - earlier.at_ns,
            cpus: self.cpus,
            events: grown(earlier.events, self.events),
            own_events,
            event_ns: self.event_ns,
            steal_ns: growth(&earlier.steal_ns, &self.steal_ns),
            cells,
            names_ns: growth(&earlier.names_ns, &self.names_ns),
            unplaced: self.unplaced.clone(),
        }
    }
}

/// What was added. A cell may have lost what an open interval had been guessed to be.
fn grown(before: u64, now: u64) -> u64 {
    u64::try_from(now.wrapping_sub(before).cast_signed()).unwrap_or(0)
}

fn growth<K: Ord + Clone>(before: &BTreeMap<K, u64>, now: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let before = |key| before.get(key).copied().unwrap_or(0);
    now.iter().map(|(key, ns)| (key.clone(), grown(before(key), *ns))).collect()
}
