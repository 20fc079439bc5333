//! The table of situations: a row and a function each.
//!
//! A function draws its parameters, runs the situation, and writes down what is true of it from the instruments'
//! readings. One that did not become what it should be (a healthy one that lost packets) is no case: it says so and is
//! made again.

mod faulty;
mod healthy;
mod program;

use std::path::PathBuf;

use crate::draw::Draw;
use crate::ours;
use crate::truth::{Cause, Truth, Word};
use crate::world::{NotMade, World};

/// A kind of situation.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// What it is called.
    pub name: &'static str,
    /// What happens, in a line.
    pub about: &'static str,
    /// Nothing is wrong.
    pub healthy: bool,
    /// Cheap, and a part of the short form.
    pub quick: bool,
    make: Make,
}

/// What a kind's function has at hand.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    /// Programs and places.
    pub(crate) world: &'a World,
    /// Its parameters.
    pub(crate) draw: Draw,
    /// Its own folder.
    pub(crate) folder: PathBuf,
    /// Its name.
    pub(crate) name: &'static str,
}

/// A recording and its truth.
#[derive(Debug)]
pub struct Made {
    /// What is analysed.
    pub trace: PathBuf,
    /// What is true of it.
    pub truth: Truth,
}

impl Made {
    /// The planted cause recurs by a clock, every so many ns.
    #[must_use]
    pub(crate) fn every(mut self, period_ns: Option<u64>) -> Made {
        self.truth.period_ns = period_ns;
        self
    }
}

impl Kind {
    /// Makes one, with what is drawn from `seed`. Its truth is in a file when this returns.
    ///
    /// # Errors
    /// No recording was made, or it did not become what it should be.
    pub fn make(&self, world: &World, seed: u64) -> Result<Made, NotMade> {
        let folder = world.folder(self.name)?;
        let draw = Draw::new(self.name, seed);
        let mut scene = Scene { world, draw, folder: folder.clone(), name: self.name };
        let mut made = (self.make)(&mut scene)?;
        made.truth.parameters.clone_from(scene.draw.drawn());
        if let Some(complaint) = made.truth.complaint() {
            return Err(NotMade::Missed(complaint.to_owned()));
        }
        if made.truth.healthy != self.healthy {
            return Err(NotMade::Failed(format!("{} is healthy in the table alone", self.name)));
        }
        made.truth.write(&folder).map_err(NotMade::Failed)?;
        Ok(made)
    }
}

impl Scene<'_> {
    /// How long a recording is, ms: drawn around a second and a half.
    fn time_ms(&mut self) -> u64 {
        let ms = self.draw.number("ms", 1_200, 1_900);
        self.world.time_ms(ms)
    }

    fn truth(&self, first: Vec<Cause>, also: Vec<Cause>) -> Truth {
        Truth::new(self.name, self.draw.seed(), first, also)
    }
}

/// Above this share of the run, time that the scheduler gave to others is a cause beside the planted one.
const DELAY_SHARE: f64 = 0.005;

/// Adds what ledger and scheduler know of a recording of our worker.
fn instruments(truth: &mut Truth, recorded: &ours::Recorded) {
    truth.know(format!(
        "ledger: {} received, dropped {:?}, {} lost elsewhere; shares {:?}",
        recorded.received, recorded.drops, recorded.elsewhere, recorded.shares
    ));
    let delayed = recorded.delayed_ns();
    truth.know(format!("schedstat: {delayed} of {} ns delayed", recorded.elapsed_ns));
    if delayed as f64 > DELAY_SHARE * recorded.elapsed_ns as f64 {
        truth.add(Word::Preempted.into());
    }
}

type Make = fn(&mut Scene<'_>) -> Result<Made, NotMade>;

/// A row: something is wrong, unless it is called healthy.
const fn kind(name: &'static str, about: &'static str, make: Make) -> Kind {
    Kind { name, about, healthy: false, quick: false, make }
}

impl Kind {
    const fn healthy(self) -> Kind {
        Kind { healthy: true, ..self }
    }

    const fn quick(self) -> Kind {
        Kind { quick: true, ..self }
    }
}

/// All kinds.
pub const KINDS: &[Kind] = &[
    kind("packet-idle", "nothing is sent", healthy::packet_idle).healthy(),
    kind("packet-steady", "an even load, well below what the worker takes", healthy::packet_steady)
        .healthy()
        .quick(),
    kind("packet-kernel", "the same with the kernel's part", healthy::packet_kernel).healthy(),
    kind("packet-bursts", "trains that the socket's buffer holds", healthy::packet_bursts)
        .healthy(),
    kind("packet-late", "traffic begins late", healthy::packet_late).healthy(),
    kind("packet-ports", "forwarding, one of two ports idle", healthy::packet_ports).healthy(),
    kind("packet-workers", "two workers, even shares", healthy::packet_workers).healthy(),
    kind("ring-steady", "an even load on a ring", healthy::ring_steady).healthy(),
    kind("ring-pings", "pings, answered", healthy::ring_pings).healthy(),
    kind("afxdp-steady", "an even load on AF_XDP", healthy::afxdp_steady).healthy(),
    kind("afxdp-ports", "forwarding on AF_XDP", healthy::afxdp_ports).healthy(),
    kind("dpdk-steady", "an even load on a port of DPDK", healthy::dpdk_steady).healthy(),
    kind("dpdk-ports", "forwarding between two ports of DPDK", healthy::dpdk_ports).healthy(),
    kind(
        "dpdk-full",
        "a device that always has frames: busy all the time, nothing lost",
        healthy::dpdk_full,
    )
    .healthy(),
    kind("packet-overload", "more than the worker takes", faulty::packet_overload),
    kind(
        "ports-overload",
        "more than a forwarder takes, one of two ports idle",
        faulty::ports_overload,
    )
    .quick(),
    kind("ring-overload", "more than the ring's worker takes", faulty::ring_overload),
    kind("afxdp-overload", "more than a forwarder takes on AF_XDP", faulty::afxdp_overload),
    kind("dpdk-overload", "more than a forwarder takes on DPDK", faulty::dpdk_overload),
    kind(
        "burst-overload",
        "trains beyond what buffer and worker take, few on average",
        faulty::burst_overload,
    ),
    kind("small-buffer", "a socket buffer smaller than a small train", faulty::small_buffer),
    kind("small-ring", "a packet ring smaller than a train", faulty::small_ring),
    kind("small-xsk-ring", "an AF_XDP ring smaller than a train", faulty::small_xsk_ring),
    kind("packet-neighbour", "a busy program on the worker's CPU", faulty::packet_neighbour),
    kind("ring-neighbour", "a busy program on the CPU of a ring's worker", faulty::ring_neighbour),
    kind(
        "afxdp-neighbour",
        "a busy program on the CPU of a forwarder on AF_XDP",
        faulty::afxdp_neighbour,
    ),
    kind("far-end", "the link behind a forwarder takes less than comes", faulty::far_end),
    kind("imbalance", "two workers, and one of them has nearly all", faulty::imbalance),
    kind("program-steady", "an even load on an instrumented program", program::steady)
        .healthy()
        .quick(),
    kind("program-kernel", "the same with the kernel's part", program::steady_kernel).healthy(),
    kind("program-idle", "an instrumented program without traffic", program::idle).healthy(),
    kind("program-bursts", "trains that the ring holds", program::bursts).healthy(),
    kind(
        "program-waits",
        "it sleeps while there is nothing, with the kernel's part",
        program::waits,
    )
    .healthy(),
    kind("program-cold-start", "a long start, then an even load", program::cold_start).healthy(),
    kind("program-full", "a device that always has packets", program::full).healthy(),
    kind("housekeeping", "busy housekeeping in every period", program::housekeeping).quick(),
    kind("housekeeping-kernel", "the same with the kernel's part", program::housekeeping_kernel),
    kind("housekeeping-asleep", "housekeeping that sleeps", program::asleep),
    kind("housekeeping-asleep-kernel", "the same with the kernel's part", program::asleep_kernel),
    kind("lock-convoy", "a second thread holds the table's lock", program::lock_convoy),
    kind("page-faults", "fresh memory for every packet", program::page_faults),
    kind("slow-function", "one function takes most of the work per packet", program::slow_function),
    kind("allocation", "memory taken and given back per packet", program::allocation),
    kind("tracer-load", "tiny functions: the tracer is most of what is seen", program::tracer_load),
    kind("program-overload", "more than it takes; the user tells what was lost", program::overload),
    kind(
        "program-overload-uncounted",
        "more than it takes; losses are not counted",
        program::overload_uncounted,
    ),
    kind(
        "program-burst-overload",
        "trains larger than its ring; the user tells what was lost",
        program::burst_overload,
    ),
    kind("program-neighbour", "a busy program on its CPU", program::neighbour),
    kind("testpmd", "an instrumented testpmd at full load", program::testpmd).healthy(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_kinds_enough_and_each_has_a_name_of_its_own() {
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
        assert!(KINDS.len() >= 30);
        assert!(KINDS.iter().filter(|kind| kind.healthy).count() >= 10);
        let quick: Vec<&Kind> = KINDS.iter().filter(|kind| kind.quick).collect();
        assert!(quick.iter().any(|k| k.healthy) && quick.iter().any(|k| !k.healthy));
        assert!(KINDS.iter().all(|kind| !kind.about.is_empty()));
    }
}
