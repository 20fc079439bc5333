//! Fan-out groups: the number by which the kernel knows which sockets share an interface.
//!
//! Numbers belong to a network namespace, so any other program may have taken one; joining then
//! fails (another kind of fan-out) or shares frames with it. What must always hold: two groups made
//! by [`FanoutGroup::unique`] in one process differ in every port, until the numbers go round. What
//! it cannot promise is that no other process has the same; each starts at a place that is drawn.

use laneway_core::PortMask;
use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

/// Groups that one run may take: one per port.
const PORTS: u32 = PortMask::PORTS_MAX as u32;
/// Runs that have groups of their own before the numbers go round.
const RUNS: u32 = (1 << 16) / PORTS;

/// Runs of this process that asked so far. Number 0 is that of runs that do not ask.
static RUN: AtomicU32 = AtomicU32::new(1);

/// Where the numbers of this process start. Drawn, because the process ids of containers that share a network are
/// alike.
static START: LazyLock<u16> = LazyLock::new(|| RandomState::new().hash_one(0u8) as u16);

/// The fan-out groups of one run: that of port 0, the next for each further port. To be given to all
/// workers of the run, and to no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanoutGroup(u16);

impl FanoutGroup {
    /// One that no other run of this process has.
    pub fn unique() -> FanoutGroup {
        // Relaxed: only the number counts.
        FanoutGroup::of_run(*START, RUN.fetch_add(1, Ordering::Relaxed))
    }

    /// That of all lanes of this process that are opened without one.
    pub(crate) fn of_process() -> FanoutGroup {
        FanoutGroup::of_run(*START, 0)
    }

    /// The kernel's number of port 0.
    pub(crate) fn number(self) -> u16 {
        self.0
    }

    fn of_run(start: u16, run: u32) -> FanoutGroup {
        FanoutGroup(start.wrapping_add((run % RUNS * PORTS) as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        collections::HashSet,
        env,
        io::{self, Write},
        process::Command,
    };

    #[test]
    fn runs_of_a_process_have_groups_of_their_own_for_every_port() {
        let mut taken = HashSet::new();
        for run in 0..RUNS {
            let FanoutGroup(first) = FanoutGroup::of_run(4711, run);
            let is_own = |port| taken.insert(first.wrapping_add(port));
            assert!((0..PORTS as u16).all(is_own), "run {run}");
        }
        assert_eq!(FanoutGroup::of_run(4711, RUNS), FanoutGroup::of_run(4711, 0));
    }

    /// The first process of each container has the number 1, and the groups followed from that.
    #[test]
    fn processes_of_one_number_have_different_groups() {
        const IS_CHILD: &str = "LANEWAY_TEST_FANOUT_CHILD";
        const SAYS: &str = "its first group: ";
        if env::var_os(IS_CHILD).is_some() {
            let FanoutGroup(first) = FanoutGroup::of_process();
            let words = format!("process {}, {SAYS}{first}.", std::process::id());
            return io::stdout().write_all(words.as_bytes()).expect("the parent reads it");
        }
        let this = env::current_exe().expect("a test has a program");
        let test = "group::tests::processes_of_one_number_have_different_groups";
        let first = |_| {
            let mut child = Command::new("unshare");
            child.args(["--pid", "--fork"]).arg(&this).args(["--exact", test, "--nocapture"]);
            let output = child.env(IS_CHILD, "1").output().map_err(|e| e.to_string())?;
            let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
            let out = String::from_utf8_lossy(&out).into_owned();
            let first = out.split(SAYS).nth(1).and_then(|rest| rest.split('.').next());
            first.map(str::to_owned).filter(|_| out.contains("process 1,")).ok_or(err)
        };
        match (0..3).map(first).collect::<Result<HashSet<String>, String>>() {
            // All equal by chance: once in four billion.
            Ok(groups) => assert!(groups.len() > 1, "{groups:?}"),
            Err(reason) => laneway_testkit::skip(format!("`unshare --pid`: {reason}")),
        }
    }

    #[test]
    fn who_asks_gets_another_one_each_time() {
        assert_ne!(FanoutGroup::unique(), FanoutGroup::unique());
        assert_ne!(FanoutGroup::unique(), FanoutGroup::of_process());
    }
}
