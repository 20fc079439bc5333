//! Whose the time between two readings was.

use super::Owner;
use super::layout::{BESIDE, Cells, NOTHING, OWN, OWNERS, Part, index};
use std::collections::BTreeMap;

/// Foreign programs that are named.
const NAMES_MAX: usize = 8;

/// Whose the CPU time of a window was, all CPUs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usage {
    /// Length of the window, ns.
    pub(crate) window_ns: u64,
    /// CPUs.
    pub(crate) cpus: usize,
    /// Events that the meter booked.
    pub(crate) events: u64,
    /// Of these, those of what is an owner's own.
    pub(super) own_events: Box<[u64; OWNERS]>,
    /// What one costs on this machine, ns; absent where that was not measured.
    pub(super) event_ns: Option<f64>,
    /// By CPU: time that the hypervisor gave to others, ns, in steps of the kernel's clock tick (10 ms nearly
    /// everywhere), so that a short window shows none or a whole one.
    pub(crate) steal_ns: BTreeMap<usize, u64>,
    pub(super) cells: Box<Cells>,
    pub(super) names_ns: BTreeMap<String, u64>,
    /// Processes that the meter had no room for until now, by the owner that they would have had. One of an earlier
    /// window may run in this one.
    pub(super) unplaced: Box<[u64; OWNERS]>,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage {
            window_ns: 0,
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

impl Usage {
    /// What is the arm's, ns: its tasks, its NAPI threads, softirq that polls its interfaces.
    pub(crate) fn own_ns(&self, arm: usize) -> u64 {
        self.sum(Owner::Arm(arm), &OWN)
    }

    /// What is its generator's, ns: likewise, with the far ends of the arm's cables.
    pub(crate) fn generator_side_ns(&self, arm: usize) -> u64 {
        self.sum(Owner::Generator(arm), &OWN)
    }

    /// Of that, the generator's own tasks, ns.
    pub(crate) fn generator_task_ns(&self, arm: usize) -> u64 {
        self.of(Owner::Generator(arm), Part::Task)
    }

    /// Other programs and kernel threads, and softirq that polls interfaces of no arm, ns.
    pub(crate) fn foreign_ns(&self) -> u64 {
        self.sum(Owner::Foreign, &OWN)
    }

    /// Softirqs and device interrupts of unknown cause while a task of the arm's or of its generator's side was
    /// interrupted, ns. Part of no other figure.
    pub(crate) fn unattributed_ns(&self, arm: usize) -> u64 {
        self.beside_ns(arm) + self.sum(Owner::Generator(arm), &BESIDE)
    }

    /// Of that, what interrupted a task of the arm's, ns: some of it may be the arm's doing.
    pub(crate) fn beside_ns(&self, arm: usize) -> u64 {
        self.sum(Owner::Arm(arm), &BESIDE)
    }

    /// The same while the CPU was idle or any other task was interrupted, and ksoftirqd's own time, ns.
    pub(crate) fn unattributed_host_ns(&self) -> u64 {
        let beside = [Owner::Foreign, Owner::Idle, Owner::Lab, Owner::Host]
            .map(|owner| self.sum(owner, &BESIDE));
        beside.iter().sum::<u64>() + self.sum(Owner::Host, &OWN)
    }

    /// Processes of the arm's and its generator's that are booked as foreign, since the meter had no room for them.
    pub(crate) fn unplaced(&self, arm: usize) -> u64 {
        [Owner::Arm(arm), Owner::Generator(arm)]
            .map(|owner| self.unplaced[index(owner)])
            .iter()
            .sum()
    }

    /// All time booked against CPUs x window: 1 when nothing is missing or counted twice.
    pub(crate) fn closure(&self) -> f64 {
        let all: u64 = self.cells.iter().flatten().sum();
        all as f64 / (self.window_ns.max(1) as f64 * self.cpus.max(1) as f64)
    }

    /// Events of what is `owner`'s own.
    pub(super) fn own_events(&self, owner: Owner) -> u64 {
        self.own_events[index(owner)]
    }

    /// What the meter itself took of [`own_ns`](Self::own_ns), about, ns; `None` where an event's cost is not known.
    pub(crate) fn metering_ns(&self, arm: usize) -> Option<u64> {
        Some((self.own_events(Owner::Arm(arm)) as f64 * self.event_ns?) as u64)
    }

    /// Where all time but idling went, seen from `arm`, under the names of the result schema. The first three are
    /// [`own_ns`](Self::own_ns).
    pub(crate) fn contexts_ns(&self, arm: usize) -> BTreeMap<String, u64> {
        let (own, side) = (Owner::Arm(arm), Owner::Generator(arm));
        [
            ("arm", self.of(own, Part::Task)),
            ("napi thread", self.of(own, Part::Napi)),
            ("softirq net_rx", self.of(own, Part::NetRx)),
            ("unattributed", self.unattributed_ns(arm)),
            ("unattributed, of the host", self.unattributed_host_ns()),
            ("generator's side: task", self.of(side, Part::Task)),
            ("generator's side: napi thread", self.of(side, Part::Napi)),
            ("generator's side: softirq net_rx", self.of(side, Part::NetRx)),
            ("lab", self.sum(Owner::Lab, &OWN)),
            ("other arms", self.of_others(arm)),
            ("other tasks", self.foreign_ns()),
        ]
        .map(|(name, ns)| (name.to_owned(), ns))
        .into()
    }

    /// The foreign programs that took most, by name, ns; the first most of all. A task that did not leave its CPU
    /// for a while may not be in it yet.
    pub(crate) fn foreigners(&self) -> Vec<(String, u64)> {
        let mut names: Vec<(String, u64)> = self
            .names_ns
            .iter()
            .filter(|(_, ns)| **ns > 0)
            .map(|(n, ns)| (n.clone(), *ns))
            .collect();
        names.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        names.truncate(NAMES_MAX);
        names
    }

    /// How the figures were measured, in a sentence of the result.
    pub(crate) fn method(&self) -> String {
        let cost = match self.event_ns {
            Some(ns) => format!(", about {ns:.0} ns each,"),
            None => String::new(),
        };
        format!(
            "whose time it is, by the tracepoints of task switches, softirqs, device interrupts and NAPI polls; \
             tasks of the arm, its NAPI threads and softirq that polls its interfaces are its own, what has no known \
             cause stands beside; {} events booked in this window, their cost{cost} is inside these figures",
            self.events
        )
    }

    pub(super) fn of(&self, owner: Owner, part: Part) -> u64 {
        self.cells[index(owner)][part as usize]
    }

    fn sum(&self, owner: Owner, parts: &[Part]) -> u64 {
        parts.iter().map(|&part| self.of(owner, part)).sum()
    }

    /// Everything of all other arms and their generators.
    pub(crate) fn of_others(&self, arm: usize) -> u64 {
        let all = self.cells[index(Owner::Arm(0))..].iter().flatten().sum::<u64>();
        let ours = [Owner::Arm(arm), Owner::Generator(arm)];
        all - ours.iter().flat_map(|&owner| self.cells[index(owner)]).sum::<u64>()
    }
}
