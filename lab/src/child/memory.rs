//! What an arm's process holds in memory: the kernel's figures for the process, and what the lane
//! says it was granted outside of it.

use crate::result::Memory;
use laneway_core::CapsReport;
use std::fs;

/// Reads this process and the lane's facts. A figure that cannot be read stays 0.
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
    let fact = |name: &str| -> u64 {
        caps.facts.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    // Without CAP_IPC_LOCK accounting, VmLck leaves out what only the kernel pins (a UMEM).
    let pinned = fact("umem_locked_bytes");
    Memory {
        rss_bytes: kib("VmRSS"),
        locked_bytes: kib("VmLck").max(pinned),
        huge_bytes: kib("HugetlbPages"),
        bpf_bytes: fact("ring_bytes") * fact("rings"),
        socket_bytes: fact("rcvbuf_bytes") + fact("ring_block_bytes") * fact("ring_blocks"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_resident_set_and_facts_are_added() {
        let mut caps = CapsReport::default();
        for (name, value) in [("ring_bytes", 4096), ("rings", 2), ("umem_locked_bytes", 8192)] {
            caps.fact(name, value);
        }
        let memory = read(&caps);
        assert!(memory.rss_bytes > 100_000, "{memory:?}");
        assert_eq!((memory.bpf_bytes, memory.socket_bytes), (8192, 0));
        assert!(memory.locked_bytes >= 8192);
    }
}
