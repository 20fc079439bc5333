//! The CPU meter's user half: attaches `bpf/meter.bpf.c`, says who is of interest, and reads where
//! the time of every CPU went between two points.
//!
//! The programs are held by links and detach when the meter is dropped or the process dies.

use laneway_bpf::{BpfError, Tracing};
use laneway_core::{Clock, KernelMaps, LaneError};
use laneway_engine::MonotonicClock;
use std::collections::BTreeMap;

/// The compiled programs.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/meter.bpf.o"));

/// Who runs. The codes are those of `bpf/meter.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Class {
    /// Anybody else.
    Other = 0,
    /// Nobody.
    Idle = 1,
    /// The arm under test.
    Arm = 2,
    /// The NAPI thread of the arm's interface.
    Napi = 3,
    /// The generator.
    Generator = 4,
    /// ksoftirqd.
    Ksoftirqd = 5,
}

const CLASSES: [Class; 6] =
    [Class::Other, Class::Idle, Class::Arm, Class::Napi, Class::Generator, Class::Ksoftirqd];
/// Task, NET_RX, NET_TX, other softirq, device interrupt; as in `bpf/meter.h`.
const CONTEXTS: usize = 5;
/// `u64` words in front of the table in `struct lw_meter`: since, class and context, interrupted,
/// switches, softirqs.
const HEADER_WORDS: usize = 5;
const METER_WORDS: usize = HEADER_WORDS + CLASSES.len() * CONTEXTS;

/// The attached meter.
pub(crate) struct Meter {
    tracing: Tracing,
}

/// Cumulative CPU time since the meter was attached, summed over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// CLOCK_MONOTONIC when it was read, ns.
    pub at_ns: u64,
    /// CPUs.
    pub cpus: usize,
    /// ns by class and context.
    ns: [[u64; CONTEXTS]; 6],
    /// Task switches and softirqs: the meter's own work.
    pub events: u64,
}

impl Meter {
    /// Attaches the programs.
    ///
    /// # Errors
    /// Missing privilege (CAP_BPF, CAP_PERFMON) or kernel support (BTF).
    pub(crate) fn attach() -> Result<Meter, BpfError> {
        Ok(Meter { tracing: Tracing::attach("meter", OBJECT, &[])? })
    }

    /// Books the time of thread group `tgid` under `class` from its next switch to the end of its first thread.
    ///
    /// # Errors
    /// When the kernel refuses the map update.
    pub(crate) fn classify(&self, tgid: u32, class: Class) -> Result<(), LaneError> {
        self.tracing.maps().put("classes", &tgid.to_ne_bytes(), &(class as u32).to_ne_bytes())
    }

    /// Reads all CPUs, the open interval of each included.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn read(&self) -> Result<Reading, LaneError> {
        let now_ns = MonotonicClock.now_ns();
        let mut reading = Reading { at_ns: now_ns, ..Reading::default() };
        self.tracing.maps().visit("meter", &mut |_, cpus| {
            for cpu in cpus.chunks_exact(METER_WORDS * 8) {
                reading.add_cpu(cpu, now_ns);
            }
        })?;
        Ok(reading)
    }
}

impl Reading {
    fn add_cpu(&mut self, bytes: &[u8], now_ns: u64) {
        let word = |i: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
            u64::from_ne_bytes(word)
        };
        let since_ns = word(0);
        if since_ns == 0 {
            return; // a possible CPU that is not online has no events
        }
        self.cpus += 1;
        for class in 0..CLASSES.len() {
            for context in 0..CONTEXTS {
                self.ns[class][context] += word(HEADER_WORDS + class * CONTEXTS + context);
            }
        }
        let (class, context) = (word(1) as u32 as usize, (word(1) >> 32) as usize);
        if class < CLASSES.len() && context < CONTEXTS {
            self.ns[class][context] += now_ns.saturating_sub(since_ns);
        }
        self.events += word(3) + word(4);
    }

    /// Time between an earlier reading and this one.
    #[must_use]
    pub(crate) fn since(&self, earlier: &Reading) -> Usage {
        let mut ns = self.ns;
        for (class, row) in ns.iter_mut().enumerate() {
            for (context, cell) in row.iter_mut().enumerate() {
                *cell = cell.saturating_sub(earlier.ns[class][context]);
            }
        }
        Usage {
            window_ns: self.at_ns - earlier.at_ns,
            cpus: self.cpus,
            ns,
            events: self.events - earlier.events,
        }
    }
}

/// Where the CPU time of a window went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Length of the window, ns.
    pub window_ns: u64,
    /// CPUs.
    pub cpus: usize,
    ns: [[u64; CONTEXTS]; 6],
    /// Events that the meter booked.
    pub events: u64,
}

impl Usage {
    fn of(&self, class: Class, context: usize) -> u64 {
        self.ns[class as usize][context]
    }

    /// What is the arm's: its tasks, its NAPI threads, and the softirqs of its interfaces, ns.
    pub(crate) fn own_ns(&self) -> u64 {
        let soft = |context: usize| self.ns.iter().map(|row| row[context]).sum::<u64>();
        self.arm_ns() + self.napi_ns() + soft(1) + soft(2)
    }

    /// Tasks that are no part of the race, ns.
    pub(crate) fn foreign_ns(&self) -> u64 {
        self.of(Class::Other, 0)
    }

    /// The same by name.
    pub(crate) fn foreigners(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// What nobody can be blamed for, ns.
    pub(crate) fn unattributed_ns(&self) -> u64 {
        let soft = |context: usize| self.ns.iter().map(|row| row[context]).sum::<u64>();
        self.of(Class::Ksoftirqd, 0) + soft(3) + soft(4)
    }

    /// The generator's own task, ns.
    pub(crate) fn generator_ns(&self) -> u64 {
        self.of(Class::Generator, 0)
    }

    /// The arm's own tasks, ns.
    pub(crate) fn arm_ns(&self) -> u64 {
        self.of(Class::Arm, 0)
    }

    /// The threads that do the receive work of the arm's interface, ns.
    pub(crate) fn napi_ns(&self) -> u64 {
        self.of(Class::Napi, 0)
    }

    /// All time booked against CPUs x window: 1 when nothing is missing or counted twice.
    pub(crate) fn closure(&self) -> f64 {
        let all: u64 = self.ns.iter().flatten().sum();
        all as f64 / (self.window_ns.max(1) as f64 * self.cpus.max(1) as f64)
    }

    /// The parts by context, under the names of the result schema.
    pub(crate) fn contexts_ns(&self) -> BTreeMap<String, u64> {
        let over_classes = |context: usize| self.ns.iter().map(|row| row[context]).sum::<u64>();
        [
            ("arm", self.of(Class::Arm, 0)),
            ("napi thread", self.of(Class::Napi, 0)),
            ("ksoftirqd", self.of(Class::Ksoftirqd, 0)),
            ("other tasks", self.of(Class::Other, 0)),
            ("softirq net_rx", over_classes(1)),
            ("softirq net_tx", over_classes(2)),
            ("softirq other", over_classes(3)),
            ("hardirq", over_classes(4)),
        ]
        .map(|(name, ns)| (name.to_owned(), ns))
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// One CPU's `struct lw_meter`.
    fn cpu(since_ns: u64, class: u32, context: u32, idle: u64, arm: u64) -> Vec<u8> {
        let mut words = [0u64; METER_WORDS];
        words[0] = since_ns;
        words[1] = u64::from(class) | u64::from(context) << 32;
        words[HEADER_WORDS + Class::Idle as usize * CONTEXTS] = idle;
        words[HEADER_WORDS + Class::Arm as usize * CONTEXTS] = arm;
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn the_open_interval_counts_and_the_parts_close() {
        let mut start = Reading { at_ns: 1000, ..Reading::default() };
        start.add_cpu(&cpu(900, Class::Idle as u32, 0, 0, 0), 1000);
        let mut end = Reading { at_ns: 2000, ..Reading::default() };
        end.add_cpu(&cpu(1700, Class::Arm as u32, 1, 800, 0), 2000);
        let usage = end.since(&start);
        assert_eq!((usage.own_ns(), usage.closure()), (300, 1.0));
        assert_eq!(usage.contexts_ns()["softirq net_rx"], 300);
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "a test that is skipped says so where cargo shows it")]
    fn more_processes_than_the_meter_has_room_for_come_and_go() {
        let meter = match Meter::attach() {
            Ok(meter) => meter,
            Err(error) => return println!("skipped: {error}"),
        };
        // A long race has thousands of them, one or two alive at a time.
        for _ in 0..300 {
            let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            meter.classify(process.id(), Class::Arm).unwrap();
            drop(process.stdin.take());
            process.wait().unwrap();
        }
    }

    #[test]
    fn an_offline_cpu_is_not_counted() {
        let mut reading = Reading::default();
        reading.add_cpu(&cpu(0, 0, 0, 5, 5), 100);
        assert_eq!((reading.cpus, reading.since(&Reading::default()).own_ns()), (0, 0));
    }
}
