//! The CPU meter's user half: attaches `bpf/meter.bpf.c`, says whose tasks and interfaces are whose,
//! and reads whose the time of every CPU was between two points.
//!
//! ```text
//!   task of the arm, its NAPI threads, softirq that polls its interfaces    the arm's own
//!   (or has TCP send by them, where packets are looked at)
//!   the same of the generator and its ends of the cables                    the generator's side
//!   tasks of other processes, and softirq that polls their interfaces       foreign, by name
//!   other softirqs and device interrupts                                    beside the interrupted task
//! ```
//!
//! What is foreign is never booked on an arm and never subtracted from one. An arm's own time may be
//! spent on polling nothing: the race says how much, from the arm's own count of empty polls.
//!
//! The programs are held by links and detach when the meter is dropped or the process dies.

mod cost;
mod layout;
#[cfg(test)]
mod live;
mod reading;
mod steal;
#[cfg(test)]
mod tests;
mod usage;

pub(crate) use reading::Reading;
pub(crate) use usage::Usage;

use crate::error::RaceError;
use laneway_bpf::Tracing;
use laneway_core::{Clock, ConfigValue, KernelMaps, LaneError};
use laneway_engine::{MonotonicClock, pin_to_cpu};
use laneway_netns::Namespace;
use layout::{METER_WORDS, Part, Who};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;

/// The compiled programs.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/meter.bpf.o"));
/// The same, and a program for every packet that is received or sent.
static PACKETS_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/meter_packets.bpf.o"));
/// How often a CPU that books while it is read is read again.
const READS_MAX: usize = 8;
/// Times that the processes of PID namespaces are listed until none is new.
const LISTS_MAX: usize = 16;
/// The name of the threads that run softirqs when there are many.
const KSOFTIRQD: &str = "ksoftirqd/";
/// The names of threads that run XDP programs on a CPU that frames are handed on to begin like this.
const CPUMAP: &str = "cpumap/";

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Another process's.
    Foreign,
    /// No task's: the CPU is idle.
    Idle,
    /// The process's that runs the race.
    Lab,
    /// The kernel's own, for whomever: ksoftirqd.
    Host,
    /// An arm's, by its number, 0 to 32.
    Arm(usize),
    /// The generator's of that arm.
    Generator(usize),
}

/// The attached meter.
pub(crate) struct Meter {
    tracing: Tracing,
    /// What an event costs, ns.
    event_ns: Option<f64>,
}

impl Meter {
    /// Attaches the programs. This process is the lab; every CPU has had a switch, so it is known which task runs.
    ///
    /// # Errors
    /// Missing privilege (CAP_BPF, CAP_PERFMON) or kernel support (BTF).
    pub(crate) fn attach() -> Result<Meter, RaceError> {
        Meter::attach_with(OBJECT, &[])
    }

    /// Attaches the programs like [`attach`](Self::attach), and knows what its own work costs: half a second longer.
    /// With `packets`, softirqs in which RPS has packets received, and those in which TCP sends, are of the packets'
    /// interfaces, whichever task they interrupt: for that every packet is looked at.
    ///
    /// # Errors
    /// As for [`attach`](Self::attach).
    pub(crate) fn attach_weighed(packets: bool) -> Result<Meter, RaceError> {
        let event_ns = cost::event_ns()?;
        let object = if packets { PACKETS_OBJECT } else { OBJECT };
        Ok(Meter { event_ns, ..Meter::attach_with(object, &[])? })
    }

    fn attach_with(object: &[u8], constants: &[ConfigValue]) -> Result<Meter, RaceError> {
        let tracing = Tracing::attach("meter", object, constants)?;
        let meter = Meter { tracing, event_ns: None };
        meter.classify(std::process::id(), Owner::Lab)?;
        for pid in kernel_threads(KSOFTIRQD) {
            meter.classify(pid, Owner::Host)?;
        }
        for cpu in steal::read().into_keys() {
            // One that this process may not use has its next switch when it has.
            let _ = thread::spawn(move || pin_to_cpu(cpu)).join();
        }
        Ok(meter)
    }

    /// Books the time of thread group `tgid`, and of an arm's or generator's what it starts from now on, as
    /// `owner`'s: from its next switch to the end of its last thread.
    ///
    /// # Errors
    /// When the kernel refuses the map update: there is room for 65,536 at once.
    pub(crate) fn classify(&self, tgid: u32, owner: Owner) -> Result<(), LaneError> {
        self.book_task(tgid, Who { owner, part: Part::Task })
    }

    /// Books the time of `processes`, like [`classify`](Self::classify), and of all that are with them in a PID
    /// namespace of their own: what one of them started when it was listed already and not yet booked is nowhere else.
    ///
    /// # Errors
    /// As for [`classify`](Self::classify).
    pub(crate) fn classify_all(&self, processes: &[u32], owner: Owner) -> Result<(), LaneError> {
        let (mut booked, mut more) = (BTreeSet::new(), processes.to_vec());
        for _ in 0..LISTS_MAX {
            for &pid in &more {
                self.classify(pid, owner)?;
            }
            booked.extend(more);
            more = in_namespaces_of(&booked);
            more.retain(|pid| !booked.contains(pid));
            if more.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Books the time of kernel thread `pid` as that of a NAPI thread of `owner`'s, or of one that frames of its
    /// interface are handed on to.
    ///
    /// # Errors
    /// As for [`classify`](Self::classify).
    pub(crate) fn classify_napi(&self, pid: u32, owner: Owner) -> Result<(), LaneError> {
        self.book_task(pid, Who { owner, part: Part::Napi })
    }

    /// Books the time of the threads of CPU maps that were not there `before` as that of `owner`'s NAPI threads. The
    /// kernel starts them, so that none is a child of the arm's.
    ///
    /// # Errors
    /// As for [`classify`](Self::classify).
    pub(crate) fn claim_cpumap_threads(
        &self,
        before: &BTreeSet<u32>,
        owner: Owner,
    ) -> Result<(), LaneError> {
        cpumap_threads().difference(before).try_for_each(|&pid| self.classify_napi(pid, owner))
    }

    /// Books softirq work that polls interface `ifindex` of the network namespace with this inode as `owner`'s.
    ///
    /// # Errors
    /// When the kernel refuses the map update: there is room for 256 at once.
    pub(crate) fn own_interface(
        &self,
        netns_inode: u32,
        ifindex: u32,
        owner: Owner,
    ) -> Result<(), LaneError> {
        let key = [netns_inode.to_ne_bytes(), ifindex.to_ne_bytes()].concat();
        self.tracing.maps().put("devices", &key, &layout::code(owner).to_ne_bytes())
    }

    /// Forgets the tasks and interfaces of `arm` and its generator: what they do from their next switch, and
    /// what is polled there, is foreign.
    ///
    /// # Errors
    /// When the kernel refuses to remove them.
    pub(crate) fn disown(&self, arm: usize) -> Result<(), LaneError> {
        let codes = [Owner::Arm(arm), Owner::Generator(arm)].map(layout::code);
        for map in ["tasks", "devices"] {
            let mut keys = Vec::new();
            self.tracing.maps().visit(map, &mut |key, value| {
                if codes.iter().any(|code| value.starts_with(&code.to_ne_bytes())) {
                    keys.push(key.to_vec());
                }
            })?;
            for key in keys {
                self.tracing.maps().remove(map, &key)?;
            }
        }
        codes.into_iter().try_for_each(|code| {
            self.tracing.maps().put("unplaced", &code.to_ne_bytes(), &0_u64.to_ne_bytes())
        })
    }

    /// The processes whose time is booked as that of `owner`'s tasks: those that were classified, and all that they
    /// started, in whichever session.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn processes(&self, owner: Owner) -> Result<Vec<u32>, LaneError> {
        let task = Who { owner, part: Part::Task }.bytes();
        let mut processes = Vec::new();
        self.tracing.maps().visit("tasks", &mut |tgid, who| {
            if who == task {
                processes.extend(tgid.first_chunk().map(|tgid| u32::from_ne_bytes(*tgid)));
            }
        })?;
        Ok(processes)
    }

    /// Reads all CPUs, the open interval of each included.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn read(&self) -> Result<Reading, LaneError> {
        let (steal_ns, event_ns) = (steal::read(), self.event_ns);
        let mut reading = Reading { steal_ns, event_ns, ..Reading::default() };
        self.tracing.maps().visit("foreigners", &mut |name, ns| reading.add_name(name, ns))?;
        self.tracing.maps().visit("unplaced", &mut |owner, n| reading.add_unplaced(owner, n))?;
        let (at_ns, cpus) = self.read_cpus()?;
        reading.at_ns = at_ns;
        for words in cpus.chunks_exact(METER_WORDS) {
            reading.add_cpu(words);
        }
        Ok(reading)
    }

    fn book_task(&self, tgid: u32, who: Who) -> Result<(), LaneError> {
        self.tracing.maps().put("tasks", &tgid.to_ne_bytes(), &who.bytes())
    }

    /// When the CPUs were read, and their meters, word by word. They go on booking meanwhile, so a reading that
    /// caught one at it is thrown away; the last that is allowed may be off by that one interval.
    fn read_cpus(&self) -> Result<(u64, Vec<u64>), LaneError> {
        let mut last = (0, Vec::new());
        for _ in 0..READS_MAX {
            let mut words = Vec::new();
            let at_ns = MonotonicClock.now_ns();
            self.tracing.maps().visit("meter", &mut |_, cpus| words = layout::words(cpus))?;
            let is_whole = words.chunks_exact(METER_WORDS).all(layout::is_whole);
            last = (at_ns, words);
            if is_whole {
                break;
            }
        }
        Ok(last)
    }
}

/// By what the meter knows an interface: the inode of its network namespace, and its number there.
///
/// # Errors
/// When the interface is gone.
pub(crate) fn key_of(namespace: &Namespace, interface: &str) -> Result<(u32, u32), RaceError> {
    let gone = |why: String| RaceError::Child { what: format!("interface {interface}"), why };
    let netns = fs::metadata(namespace.path()).map_err(|e| gone(e.to_string()))?;
    let netns_inode = u32::try_from(netns.ino()).map_err(|e| gone(e.to_string()))?;
    let path = format!("/sys/class/net/{interface}/ifindex");
    let text = namespace.enter(|| fs::read_to_string(&path))?.map_err(|e| gone(e.to_string()))?;
    let ifindex = text.trim().parse().map_err(|_| gone(format!("{path} holds `{text}`")))?;
    Ok((netns_inode, ifindex))
}

/// The threads, one per CPU, in which the kernel runs the XDP programs of frames that another one hands on to a CPU
/// (CPUMAP). It does not say whose a thread is: an arm's are those that appear while its lane opens.
pub(crate) fn cpumap_threads() -> BTreeSet<u32> {
    kernel_threads(CPUMAP)
}

/// All in the PID namespaces of `processes`, but for that of this process.
fn in_namespaces_of(processes: &BTreeSet<u32>) -> Vec<u32> {
    let namespace = |pid: &u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let mut theirs: BTreeSet<PathBuf> = processes.iter().filter_map(namespace).collect();
    if let Some(own) = namespace(&std::process::id()) {
        theirs.remove(&own);
    }
    if theirs.is_empty() {
        return Vec::new();
    }
    pids().filter(|pid| namespace(pid).is_some_and(|its| theirs.contains(&its))).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The kernel's threads whose names begin like this.
fn kernel_threads(begin: &str) -> BTreeSet<u32> {
    pids()
        .filter(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            // A program may call itself so, too; the kernel's threads have no command line.
            name.starts_with(begin)
                && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty())
        })
        .collect()
}
