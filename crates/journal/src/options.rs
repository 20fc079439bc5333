//! What a journal is asked for.

use crate::format::Shard;
use laneway_core::Bell;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A sync under [`Policy::EverySecond`] begins so long after the first commit that it has to make durable: half of
/// what may be lost is left for the sync itself.
pub(crate) const SYNC_AFTER: Duration = Duration::from_millis(500);
/// The longest span of time whose commits may be lost under [`Policy::EverySecond`]. While a sync takes longer, the
/// journal has no room.
pub(crate) const LOSS_MAX: Duration = Duration::from_secs(1);
/// The smallest segment.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4096;

/// When what is written becomes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Every batch, before [`durable`](crate::Journal::durable) says so. All that is committed during a sync is one
    /// batch of the next. Where those whose commands became durable soon send others
    /// ([`awaited`](crate::Journal::awaited)), the next sync waits for them, at most half as long as a sync takes, so
    /// that it is one for all of them.
    Always,
    /// At most a second after it was committed: a cut of the power loses the commits of one second at most.
    #[default]
    EverySecond,
    /// When the kernel writes it, when a segment is full, when a snapshot is in place, and when the journal is closed.
    No,
}

impl Policy {
    /// As users write it, and as Redis does.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Always => "always",
            Policy::EverySecond => "everysec",
            Policy::No => "no",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        [Policy::Always, Policy::EverySecond, Policy::No]
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| format!("no policy `{text}`; use always, everysec or no"))
    }
}

/// What the time is. A simulated one is set by its test.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Of the machine, from the moment of this value.
    Monotonic(Instant),
    /// In nanoseconds.
    Simulated(Arc<AtomicU64>),
}

impl Clock {
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Clock::Monotonic(start) => {
                u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
            Clock::Simulated(now) => now.load(Ordering::Relaxed),
        }
    }
}

/// What a journal is asked for; all of it has a default.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose journal it is. Files of another shard, or of another number of shards, are refused.
    pub shard: Shard,
    /// When what is written becomes durable.
    pub policy: Policy,
    /// The length of a segment, taken from the disk when the segment is made. At least 4 KiB.
    pub segment_bytes: u64,
    /// How many bytes may wait for the writer. Beyond it, [`append`](crate::Journal::append) has no room. No record
    /// is longer than that.
    pub waiting_bytes_max: usize,
    /// How many bytes of a snapshot are handed to the writer at a time.
    pub snapshot_chunk_bytes: usize,
    /// Rung when [`durable`](crate::Journal::durable) advances, when there is room again, when writes have failed, and
    /// when a snapshot is done.
    pub bell: Option<Bell>,
    /// Ring when [`written`](crate::Journal::written) advances, too: for a store whose replies wait until a kill of the
    /// process loses nothing, and not for the disk.
    pub ring_when_written: bool,
    /// What the time is.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            shard: Shard::default(),
            policy: Policy::default(),
            segment_bytes: 64 << 20,
            waiting_bytes_max: 128 << 20,
            snapshot_chunk_bytes: 64 << 10,
            bell: None,
            ring_when_written: false,
            clock: Clock::Monotonic(Instant::now()),
        }
    }
}

impl Options {
    pub(crate) fn complaint(&self) -> Option<String> {
        if self.shard.number >= self.shard.count {
            return Some(format!("there is no {}; shards count from 0", self.shard));
        }
        if self.segment_bytes < SEGMENT_BYTES_MIN {
            return Some(format!(
                "a segment of {} bytes is too short; take at least {SEGMENT_BYTES_MIN}",
                self.segment_bytes
            ));
        }
        if self.waiting_bytes_max == 0 || self.snapshot_chunk_bytes == 0 {
            return Some("a journal without room for a byte takes no record; take more".to_owned());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        for policy in [Policy::Always, Policy::EverySecond, Policy::No] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let why = "sometimes".parse::<Policy>().expect_err("no such policy");
        assert!(why.contains("`sometimes`") && why.contains("everysec"), "{why}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_value() {
        assert_eq!(Options::default().complaint(), None);
        let shard = Shard { number: 2, count: 2 };
        let why = Options { shard, ..Options::default() }.complaint().expect("refused");
        assert!(why.contains("shard 2 of 2"), "{why}");
        let why =
            Options { segment_bytes: 100, ..Options::default() }.complaint().expect("refused");
        assert!(why.contains("100 bytes"), "{why}");
    }
}
