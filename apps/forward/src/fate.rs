//! What becomes of a frame, as numbers that user space and the kernel half share, and their counts.
//!
//! Every frame that the app sees has exactly one fate; the sum over all fates is what was received.

use laneway_core::{Counters, DropReason};

macro_rules! fates {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal $name:literal $reason:expr,)+) => {
        /// The end of a frame's way through the app. The codes are those of `bpf/forward.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Fate {
            $($(#[doc = $doc])+ $variant = $code,)+
        }

        impl Fate {
            /// Every fate, in the order of its code.
            pub const ALL: &[Fate] = &[$(Fate::$variant),+];
            /// How many there are; codes are `0..COUNT`.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in results.
            pub fn name(self) -> &'static str {
                match self { $(Fate::$variant => $name),+ }
            }

            /// The name that the table of losses knows it by; `None` for what is no loss.
            pub fn drop_reason(self) -> Option<DropReason> {
                match self { $(Fate::$variant => $reason),+ }
            }
        }
    };
}

fates! {
    /// Sent out of one port.
    Forwarded = 0 "forwarded" None,
    /// Sent out of every other port.
    Flooded = 1 "flooded" None,
    /// Left to the kernel's stack.
    Passed = 2 "passed" None,
    /// Received and done with, as mode `drop` is asked to.
    Consumed = 3 "consumed" None,
    /// Dropped by a rule.
    RuleDrop = 4 "rule_drop" Some(DropReason::Filtered),
    /// Its time to live or hop limit is used up.
    TtlExpired = 5 "ttl_expired" Some(DropReason::TtlExpired),
    /// No route leads to its destination.
    NoRoute = 6 "no_route" Some(DropReason::NoRoute),
    /// The link address of its next hop is not configured.
    NoNeighbour = 7 "no_neighbour" Some(DropReason::NoNeighbour),
    /// A header that the mode needs contradicts itself or is cut.
    Malformed = 8 "malformed" Some(DropReason::Malformed),
    /// Its IPv4 header checksum is wrong.
    BadChecksum = 9 "bad_checksum" Some(DropReason::BadChecksum),
    /// Addressed to another station, or (mode `l2`) to one on the side it arrived from.
    NotForUs = 10 "not_for_us" Some(DropReason::NotForUs),
    /// It was to leave by a port that is not there.
    NoPort = 11 "no_port" Some(DropReason::TxNoPort),
}

/// Frames by fate, and by the queue that a rule chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    fates: [u64; Fate::COUNT],
    /// Frames that a `queue` or `rss` action gave to this queue.
    pub queue_frames: [u64; crate::QUEUES_MAX],
}

impl Stats {
    /// Frames that had this fate.
    pub fn frames(&self, fate: Fate) -> u64 {
        self.fates[fate as usize]
    }

    /// Frames over all fates: everything that was received.
    pub fn total(&self) -> u64 {
        self.fates.iter().sum()
    }

    /// The fates that occurred, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (Fate, u64)> + '_ {
        Fate::ALL.iter().map(|&fate| (fate, self.frames(fate))).filter(|&(_, n)| n > 0)
    }

    pub(crate) fn count(&mut self, fate: Fate) {
        self.fates[fate as usize] += 1;
    }

    /// Adds what became of another worker's frames.
    pub fn add(&mut self, other: &Stats) {
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(t, f)| *t += f);
        add(&mut self.fates, &other.fates);
        add(&mut self.queue_frames, &other.queue_frames);
    }

    pub(crate) fn set(&mut self, fates: &[u64], queues: &[u64]) {
        self.fates.iter_mut().zip(fates).for_each(|(to, from)| *to = *from);
        self.queue_frames.iter_mut().zip(queues).for_each(|(to, from)| *to = *from);
    }

    /// Writes the losses, by the shared names, and what was passed.
    pub(crate) fn add_to(&self, counters: &mut Counters) {
        counters.passed = self.frames(Fate::Passed);
        for &reason in DropReason::ALL {
            let of_reason =
                |(fate, n): (Fate, u64)| (fate.drop_reason() == Some(reason)).then_some(n);
            counters.set_drops(reason, self.nonzero().filter_map(of_reason).sum());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_the_kernel_header_has_the_same() {
        let header = include_str!("../bpf/forward.h");
        for (i, fate) in Fate::ALL.iter().enumerate() {
            assert_eq!(*fate as usize, i);
            let line = format!("LW_FATE_{} = {i},", fate.name().to_uppercase());
            assert!(header.contains(&line), "bpf/forward.h lacks `{line}`");
        }
        assert!(header.contains(&format!("LW_FATE_COUNT = {},", Fate::COUNT)));
    }

    #[test]
    fn losses_reach_the_shared_counters_under_their_names() {
        let mut stats = Stats::default();
        for fate in [Fate::TtlExpired, Fate::NoRoute, Fate::Forwarded, Fate::Passed] {
            stats.count(fate);
        }
        let mut counters = Counters::default();
        stats.add_to(&mut counters);
        assert_eq!((counters.lost(), counters.passed), (2, 1));
        assert_eq!(counters.drops(DropReason::NoRoute), 1);
        assert_eq!(counters.drops(DropReason::TtlExpired), 1);
        assert_eq!(stats.total(), 4);
    }
}
