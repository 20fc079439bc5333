//! Fan-out groups: the number by which the kernel knows which sockets share an interface.
//!
//! Numbers belong to a network namespace, so any other program may have taken one; joining then
//! fails (another kind of fan-out) or shares frames with it. What must always hold: two groups made
//! by [`FanoutGroup::unique`] in one process differ in every port, until the numbers go round. What
//! it cannot promise is that no other process has the same; it starts at a place that the process id
//! scatters.

use laneway_core::PortMask;
use std::sync::atomic::{AtomicU32, Ordering};

/// Groups that one run may take: one per port.
const PORTS: u32 = PortMask::PORTS_MAX as u32;
/// Runs that have groups of their own before the numbers go round.
const RUNS: u32 = (1 << 16) / PORTS;

/// Runs of this process that asked so far. Number 0 is that of runs that do not ask.
static RUN: AtomicU32 = AtomicU32::new(1);

/// The fan-out groups of one run: that of port 0, the next for each further port. To be given to all
/// workers of the run, and to no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanoutGroup(u16);

impl FanoutGroup {
    /// One that no other run of this process has.
    pub fn unique() -> FanoutGroup {
        // Relaxed: only the number counts.
        FanoutGroup::of_run(std::process::id(), RUN.fetch_add(1, Ordering::Relaxed))
    }

    /// That of all lanes of this process that are opened without one.
    pub(crate) fn of_process() -> FanoutGroup {
        FanoutGroup::of_run(std::process::id(), 0)
    }

    /// The kernel's number of port 0.
    pub(crate) fn number(self) -> u16 {
        self.0
    }

    fn of_run(process: u32, run: u32) -> FanoutGroup {
        // Fibonacci hashing: processes that start one after the other lie far apart.
        const GOLDEN: u32 = 0x9e37_79b1;
        let start = process.wrapping_mul(GOLDEN) >> (u32::BITS - RUNS.ilog2());
        FanoutGroup((start.wrapping_add(run) % RUNS * PORTS) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_process_have_groups_of_their_own_for_every_port() {
        let mut taken = std::collections::HashSet::new();
        for run in 0..RUNS {
            let FanoutGroup(first) = FanoutGroup::of_run(4711, run);
            assert!(first.is_multiple_of(PORTS as u16) && taken.insert(first), "run {run}");
        }
        assert_eq!(FanoutGroup::of_run(4711, RUNS), FanoutGroup::of_run(4711, 0));
    }

    #[test]
    fn processes_that_start_one_after_the_other_do_not_meet() {
        let near = |run| FanoutGroup::of_run(1001, run);
        assert!(
            (0..100).all(|run| (0..100).all(|other| near(run) != FanoutGroup::of_run(1000, other)))
        );
    }

    #[test]
    fn who_asks_gets_another_one_each_time() {
        assert_ne!(FanoutGroup::unique(), FanoutGroup::unique());
        assert_ne!(FanoutGroup::unique(), FanoutGroup::of_process());
    }
}
