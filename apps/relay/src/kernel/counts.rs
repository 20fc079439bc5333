//! What the kernel half counted: per rule, per output, and by reason what it left to the kernel.

use laneway_core::Counters;
use std::collections::HashMap;

macro_rules! fates {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal $name:literal,)+) => {
        /// What becomes of a frame that comes in. The codes are those of `bpf/relay.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum KernelFate {
            $($(#[doc = $doc])+ $variant = $code,)+
        }

        impl KernelFate {
            /// Every fate, in the order of its code.
            pub const ALL: &[KernelFate] = &[$(KernelFate::$variant),+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in reports and metrics.
            pub fn name(self) -> &'static str {
                match self { $(KernelFate::$variant => $name),+ }
            }
        }
    };
}

fates! {
    /// Handed to the outputs of a rule.
    Sent = 0 "sent",
    /// Passed: it is no UDP, or no rule asks for it.
    NoRule = 1 "no_rule",
    /// Passed: a fragment.
    Fragment = 2 "fragment",
    /// Passed: it has IPv4 options or IPv6 extension headers.
    Options = 3 "options",
    /// Passed: its time to live is below what is taken.
    Ttl = 4 "ttl",
    /// Passed: frame, IP and UDP disagree about its length.
    Length = 5 "length",
    /// Passed: UDP over IPv6 without a checksum, which receivers must drop (RFC 8200).
    NoChecksum = 6 "no_checksum",
    /// Passed: it comes from a source that the rule does not list.
    Source = 7 "source",
    /// Passed: the driver has it in several buffers.
    InPieces = 8 "in_pieces",
}

/// Datagrams and bytes of their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// How many.
    pub count: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

impl Datagrams {
    pub(super) fn add(&mut self, more: Datagrams) {
        self.count += more.count;
        self.bytes += more.bytes;
    }
}

/// What was counted for an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputCounts {
    /// Its interface.
    pub ifindex: u32,
    /// Handed to the driver. What that did not take is [`KernelCounts::interfaces`]'.
    pub sent: Datagrams,
}

/// What was counted for a rule: of its input, whatever else of it was replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// Taken, each of them for every output.
    pub taken: Datagrams,
    /// The outputs, in the rule's order; behind them those that the rule had before.
    pub outputs: Vec<OutputCounts>,
}

impl RuleCounts {
    /// Adds what an earlier rule of the same input counted.
    pub(super) fn add(&mut self, before: &RuleCounts) {
        self.taken.add(before.taken);
        for more in &before.outputs {
            match self.outputs.iter_mut().find(|output| output.ifindex == more.ifindex) {
                Some(output) => output.sent.add(more.sent),
                None => self.outputs.push(*more),
            }
        }
    }
}

/// What the kernel half counted, as last read.
#[derive(Clone, Debug, Default)]
pub struct KernelCounts {
    /// The rules in force, in the order they were given.
    pub rules: Vec<RuleCounts>,
    /// All rules together, those that are gone included.
    pub taken: Datagrams,
    /// All outputs together, those that are gone included.
    pub sent: Datagrams,
    /// Copies that the kernel made for no output, without a word: the interface was down or takes no redirected frames,
    /// or the datagram was longer than its MTU. Known of rules that are gone, and of all when the program is detached.
    pub passed_over: u64,
    /// What became of the frames that were received, by [`KernelFate`].
    pub fates: [u64; KernelFate::COUNT],
    /// What drivers did not take, by interface.
    pub interfaces: Vec<(u32, Counters)>,
}

/// What the maps say, by slot.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) rules: HashMap<u32, Datagrams>,
    pub(super) outputs: HashMap<(u32, u32), Datagrams>,
}

impl Read {
    /// What was counted under a slot, for outputs on these interfaces.
    pub(super) fn of(&self, slot: u32, interfaces: impl Iterator<Item = u32>) -> RuleCounts {
        let output = |ifindex| {
            let sent = self.outputs.get(&(slot, ifindex)).copied().unwrap_or_default();
            OutputCounts { ifindex, sent }
        };
        RuleCounts {
            taken: self.rules.get(&slot).copied().unwrap_or_default(),
            outputs: interfaces.map(output).collect(),
        }
    }
}

/// Copies of a rule that reached no driver. Right only when nothing is under way.
pub(super) fn passed_over(counts: &RuleCounts) -> u64 {
    let missing = |output: &OutputCounts| counts.taken.count.saturating_sub(output.sent.count);
    counts.outputs.iter().map(missing).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_header() {
        let header = include_str!("../../bpf/relay.h");
        for fate in KernelFate::ALL {
            let line = format!("LW_RELAY_{} = {},", fate.name().to_uppercase(), *fate as u8);
            assert!(header.contains(&line), "bpf/relay.h lacks `{line}`");
        }
        assert!(header.contains(&format!("LW_RELAY_FATES = {},", KernelFate::COUNT)));
    }

    #[test]
    fn an_output_that_a_rule_had_before_keeps_its_count() {
        let counts = |taken: u64, outputs: &[(u32, u64)]| {
            let of = |count| Datagrams { count, bytes: 10 * count };
            let output = |&(ifindex, sent)| OutputCounts { ifindex, sent: of(sent) };
            RuleCounts { taken: of(taken), outputs: outputs.iter().map(output).collect() }
        };
        let mut now = counts(5, &[(2, 5), (4, 3)]);
        assert_eq!(passed_over(&now), 2);
        now.add(&counts(7, &[(3, 7), (2, 6)]));
        assert_eq!(now, counts(12, &[(2, 11), (4, 3), (3, 7)]));
    }
}
