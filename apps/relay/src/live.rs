//! What a running relay has done, rule by rule and output by output: for `status`, and for the account at the end.

use crate::rule::RuleId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one worker has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerState {
    /// Its rules.
    pub rules: Vec<RuleState>,
    /// Datagrams that met no rule, by why.
    pub unmatched: BTreeMap<String, u64>,
    /// Batches of datagrams: how many of them had 1, 2 to 3, 4 to 7 and so on.
    pub batches: Vec<u64>,
    /// Receive calls that brought datagrams, and the datagrams that they brought.
    pub reads: u64,
    /// Datagrams of all reads.
    pub datagrams: u64,
    /// Copies that drivers did not take, by interface and reason: on lane xdp, which does not know them by output.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<String, BTreeMap<String, u64>>,
}

/// What a rule has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleState {
    /// Its number.
    pub id: RuleId,
    /// What people call it.
    pub name: Option<String>,
    /// Its input, in words.
    pub input: String,
    /// Why its input receives nothing yet, such as an interface that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Datagrams that it is about.
    pub datagrams: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Of them, those beyond its `bytes_per_second`.
    pub rate_limited: u64,
    /// From the kernel's stamp on a relayed datagram until the lane had put the copies of its round on their way, where
    /// the lane has such stamps: until its last send call returned, or its sends were submitted.
    #[serde(default, skip_serializing_if = "Delays::is_empty")]
    pub delays: Delays,
    /// By output.
    pub outputs: Vec<OutputState>,
}

/// Classes of [`Delays`]: less than 1 us, less than 2 us, and so on; the last has all that is longer.
pub const DELAY_CLASSES: usize = 24;

/// Times between two moments, in classes of powers of two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delays {
    /// How many were less than 1 us, at least that and less than 2 us, less than 4 us and so on.
    pub classes: Vec<u64>,
    /// All of them together, in ns.
    pub sum_ns: u64,
}

impl Delays {
    /// Counts so many that waited so long. The classes are there from the beginning on.
    pub fn count(&mut self, delay_ns: u64, datagrams: u64) {
        let class = (delay_ns / 1000).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.classes.resize(DELAY_CLASSES, 0);
        self.classes[class.min(DELAY_CLASSES - 1)] += datagrams;
        self.sum_ns = self.sum_ns.saturating_add(delay_ns.saturating_mul(datagrams));
    }

    /// True when nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|n| *n == 0)
    }

    /// What so many of a thousand waited less than, in us; none where there are none, or it is longer than any limit.
    pub fn below_us(&self, of_thousand: u64) -> Option<u64> {
        let all: u64 = self.classes.iter().sum();
        let wanted = (u128::from(all) * u128::from(of_thousand)).div_ceil(1000);
        let mut seen = 0;
        let class = self.classes.iter().position(|n| {
            seen += u128::from(*n);
            seen >= wanted
        });
        class.filter(|class| all > 0 && *class < DELAY_CLASSES - 1).map(|class| 1 << class)
    }
}

/// What an output has done. Every datagram of its rule that is within the rule's rate is sent, dropped, or on
/// its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputState {
    /// Where copies go.
    pub destination: String,
    /// The interface that it is kept to.
    pub interface: Option<String>,
    /// Why it sends nothing now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Copies that left.
    pub sent: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Copies that did not, by reason.
    pub drops: BTreeMap<String, u64>,
}

impl WorkerState {
    /// How many rules have an input or an output that waits.
    pub fn waiting(&self) -> usize {
        let waits = |rule: &&RuleState| {
            rule.missing.is_some() || rule.outputs.iter().any(|output| output.missing.is_some())
        };
        self.rules.iter().filter(waits).count()
    }

    /// Adds what another worker has done.
    pub fn merge(&mut self, other: WorkerState) {
        self.rules.extend(other.rules);
        for (why, n) in other.unmatched {
            *self.unmatched.entry(why).or_default() += n;
        }
        if self.batches.len() < other.batches.len() {
            self.batches.resize(other.batches.len(), 0);
        }
        self.batches.iter_mut().zip(&other.batches).for_each(|(sum, n)| *sum += n);
        self.reads += other.reads;
        self.datagrams += other.datagrams;
        // One worker has a kernel half.
        self.interfaces.extend(other.interfaces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_counted_in_classes_and_a_share_of_them_is_below_a_limit() {
        let mut delays = Delays::default();
        assert!(delays.is_empty() && delays.below_us(500).is_none());
        delays.count(999, 90);
        delays.count(1_000, 8);
        delays.count(5_000, 1);
        delays.count(u64::MAX, 1);
        assert_eq!(&delays.classes[..4], [90, 8, 0, 1]);
        assert_eq!(delays.classes[DELAY_CLASSES - 1], 1);
        let limits = [500, 900, 980, 990].map(|share| delays.below_us(share));
        assert_eq!(limits, [Some(1), Some(1), Some(2), Some(8)]);
        assert_eq!((delays.below_us(1000), delays.sum_ns), (None, u64::MAX));
    }
}
