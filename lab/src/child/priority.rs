//! The priority of a generator's process.

use laneway_engine::pin_to_cpu;
use rustix::process::setpriority_process;
use std::fs;

/// The highest there is without a real-time policy, which would starve the CPU's softirqs.
pub(crate) const PRIORITY: i32 = -20;

/// The priority of the session (sched(7)).
const AUTOGROUP: &str = "/proc/self/autogroup";

/// Stays on `cpu`, above everything else there, so that programs which are no part of the race seldom make it late: in
/// its session, and its session among others. Where it may not, it says so by its lateness.
pub(super) fn go_first(cpu: usize) -> Result<(), String> {
    pin_to_cpu(cpu).map_err(|e| e.to_string())?;
    let _ = setpriority_process(None, PRIORITY);
    let _ = fs::write(AUTOGROUP, PRIORITY.to_string());
    Ok(())
}
