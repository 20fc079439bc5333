//! What an arm's process holds in memory: the kernel's figures for the process, and what the lane
//! says it was granted outside of it.

use crate::result::Memory;
use laneway_core::{CapsReport, KernelMemory};
use std::fs;

/// Reads this process and the lane's report. A figure that cannot be read stays 0.
pub(super) fn read(caps: &CapsReport) -> Memory {
    of_process("self", caps)
}

/// The same of process `pid`.
pub(super) fn of_process(pid: &str, caps: &CapsReport) -> Memory {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
        number.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    let KernelMemory { pinned_bytes, bpf_bytes, socket_bytes } = caps.kernel_memory;
    Memory {
        rss_bytes: kib("VmRSS"),
        // Without CAP_IPC_LOCK accounting, VmLck leaves out what only the kernel pins (a UMEM).
        locked_bytes: kib("VmLck").max(pinned_bytes),
        huge_bytes: kib("HugetlbPages"),
        bpf_bytes,
        socket_bytes,
    }
}

/// The same of a process that shares pages with others which are counted beside it: its part of each (proc(5), Pss).
/// All that it has in memory, where the kernel does not divide that.
pub(super) fn part_of_process(pid: &str, caps: &CapsReport) -> Memory {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let whole = of_process(pid, caps);
    Memory { rss_bytes: kib.map_or(whole.rss_bytes, |kib| kib * 1024), ..whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_resident_set_and_what_the_lane_reports_is_added() {
        let kernel_memory =
            KernelMemory { pinned_bytes: 1 << 40, bpf_bytes: 8192, socket_bytes: 4096 };
        let memory = read(&CapsReport { kernel_memory, ..CapsReport::default() });
        assert!(memory.rss_bytes > 100_000, "{memory:?}");
        assert_eq!((memory.bpf_bytes, memory.socket_bytes), (8192, 4096));
        assert_eq!(memory.locked_bytes, 1 << 40);
    }
}
