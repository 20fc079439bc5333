//! The machine of a race, as found: what a reader needs to compare, and what may disturb.

use crate::result::Machine;
use std::collections::BTreeMap;
use std::fs;

/// Load above which something else is running, per machine.
const LOAD_MAX: f64 = 1.0;
/// Share of stolen time that can shift a result.
const STEAL_MAX: f64 = 0.01;

/// A look at the machine before the race; [`finish`](Look::finish) makes it a [`Machine`].
pub(crate) struct Look {
    load_before: f64,
    stolen: Option<(u64, u64)>,
}

impl Look {
    pub(crate) fn start() -> Look {
        Look { load_before: load(), stolen: stolen() }
    }

    /// `may_sleep`: its CPUs may have slept, and need not have.
    pub(crate) fn finish(&self, may_sleep: bool) -> Machine {
        let steal_share = match (self.stolen, stolen()) {
            (Some((steal, all)), Some((steal_now, all_now))) if all_now > all => {
                (steal_now - steal) as f64 / (all_now - all) as f64
            }
            _ => 0.0,
        };
        let mut findings = Vec::new();
        if self.load_before > LOAD_MAX {
            findings.push(format!(
                "load average {:.2} before the race: something else was running; stop it and race \
                 again",
                self.load_before
            ));
        }
        if steal_share > STEAL_MAX {
            let advice =
                if may_sleep { "; try --awake, which gives it fewer occasions" } else { "" };
            findings.push(format!(
                "the hypervisor took {:.1} % of the CPU time away; what it took while an arm ran is inside that arm's \
                 CPU time, in proportion for all, so that ratios hold on average, and all figures scatter more{advice}",
                steal_share * 100.0
            ));
        }
        if cfg!(debug_assertions) {
            findings
                .push("laneway was built without optimisation; use `cargo build -r`".to_owned());
        }
        Machine { facts: facts(), findings, steal_share, load_before: self.load_before }
    }
}

fn facts() -> BTreeMap<String, String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let mut facts = BTreeMap::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    fact("kernel", Some(read("/proc/sys/kernel/osrelease").trim().to_owned()));
    fact("cpu", field(&cpuinfo, "model name"));
    fact("cpus", Some(cpuinfo.lines().filter(|l| l.starts_with("processor")).count().to_string()));
    fact("memory", field(&read("/proc/meminfo"), "MemTotal"));
    let is_virtual = cpuinfo.lines().any(|l| l.starts_with("flags") && l.contains(" hypervisor"));
    fact("virtual machine", Some(if is_virtual { "yes" } else { "no" }.to_owned()));
    fact("bpf_jit", Some(read("/proc/sys/net/core/bpf_jit_enable").trim().to_owned()));
    // New network namespaces have this one's: one that paces, such as bbr, sends by timers.
    let congestion = read("/proc/sys/net/ipv4/tcp_congestion_control");
    fact("tcp congestion control", Some(congestion.trim().to_owned()));
    let scheduler = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    fact("governor", Some(scheduler.trim().to_owned()));
    fact(
        "mitigations",
        Some(read("/sys/devices/system/cpu/vulnerabilities/spectre_v2").trim().to_owned()),
    );
    facts
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

/// Stolen and all CPU time since boot, in ticks.
fn stolen() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu")?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest times are inside user.
    Some((*ticks.get(7)?, ticks.iter().take(8).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_named() {
        let machine = Look::start().finish(false);
        assert!(machine.facts.contains_key("kernel") && machine.facts.contains_key("cpus"));
        assert!((0.0..=1.0).contains(&machine.steal_share));
    }
}
