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
    /// By output.
    pub outputs: Vec<OutputState>,
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
