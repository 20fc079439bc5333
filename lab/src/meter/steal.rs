//! What the hypervisor gave to others, by CPU.

use std::collections::BTreeMap;
use std::fs;

/// Place of `steal` behind the name of a CPU: user nice system idle iowait irq softirq steal.
const STEAL: usize = 8;

/// Since boot, ns; empty where the kernel does not tell.
pub(super) fn read() -> BTreeMap<usize, u64> {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    parse(&fs::read_to_string("/proc/stat").unwrap_or_default(), tick_ns)
}

fn parse(stat: &str, tick_ns: u64) -> BTreeMap<usize, u64> {
    let cpu = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // The first line, `cpu`, is their sum and has no number.
        let number = words.first()?.strip_prefix("cpu")?.parse().ok()?;
        Some((number, words.get(STEAL)?.parse::<u64>().ok()? * tick_ns))
    };
    stat.lines().filter_map(cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_read_by_cpu() {
        let stat =
            "cpu  9 0 0 9 0 0 0 7 0 0\ncpu0 4 0 0 4 0 0 0 5 0 0\ncpu12 5 0 0 5 0 0 0 2\nintr 8 8\n";
        assert_eq!(parse(stat, 10), BTreeMap::from([(0, 50), (12, 20)]));
        assert_eq!(parse("cpu0 1 2\n", 10), BTreeMap::new());
    }
}
