//! The table of fates: what becomes of each kind of frame. It is this app's specification.
//!
//! `bpf/fate.h` holds the same table for the kernel half, whose counters are indexed by the codes; a
//! test of this module compares the two.
//!
//! Where more than one row fits, the first question that fails decides, in this order: layer 2 and
//! tags; the fixed IP header; the protocol; group or foreign MAC address; the destination address;
//! fragment; options; the ICMP header; length, header checksum and source; the source's limit; the
//! global limit.

use laneway_core::{DropReason, Verdict};

/// What a fate amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Sent back, edited in place.
    Answered,
    /// Left to the kernel or to the next program, unmodified.
    Passed,
    /// Dropped, unmodified, under this reason.
    Dropped(DropReason),
}

macro_rules! fates {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal $name:literal $class:expr,)+) => {
        /// What became of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Fate {
            $($(#[doc = $doc])+ $variant = $code,)+
        }

        impl Fate {
            /// Every fate, in the order of its code.
            pub const ALL: &[Fate] = &[$(Fate::$variant),+];
            /// How many there are; codes are `0..COUNT`.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in results and headers.
            pub fn name(self) -> &'static str {
                match self { $(Fate::$variant => $name),+ }
            }

            /// What it means, in a sentence or two.
            pub fn definition(self) -> &'static str {
                match self { $(Fate::$variant => concat!($($doc),+)),+ }
            }

            /// What it amounts to.
            #[inline]
            pub fn class(self) -> Class {
                match self { $(Fate::$variant => $class),+ }
            }
        }
    };
}

fates! {
    /// An ICMP echo request to an address of ours: type 0, addresses swapped, TTL set, both checksums
    /// followed (RFC 1624). Tags, TOS, identification, data and trailing bytes stay. The ICMP checksum
    /// is not verified: a wrong one is as wrong in the answer, and its sender sees it.
    AnsweredEchoV4 = 0 "answered_echo_v4" Class::Answered,
    /// An ICMPv6 echo request to an address of ours, likewise with type 129.
    AnsweredEchoV6 = 1 "answered_echo_v6" Class::Answered,
    /// An ARP request for an address of ours, from a host or from one that asks before it takes the
    /// address (sender 0.0.0.0, RFC 5227).
    AnsweredArp = 2 "answered_arp" Class::Answered,
    /// A neighbour solicitation for an address of ours with nothing but the sender's link-layer
    /// address, or sent to that address alone and without any option.
    AnsweredNd = 3 "answered_nd" Class::Answered,
    /// The bytes, or the IP length, end before it is known what the frame is and which host it is for.
    PassedTruncated = 4 "passed_truncated" Class::Passed,
    /// Neither ARP, ICMP nor ICMPv6, or behind more than two tags.
    PassedProtocol = 5 "passed_protocol" Class::Passed,
    /// The IP header contradicts itself: version, header length, total length.
    PassedBadHeader = 6 "passed_bad_header" Class::Passed,
    /// To a group or to all hosts, by MAC or by IP address: one question must not have many answers.
    PassedGroup = 7 "passed_group" Class::Passed,
    /// To another MAC address than ours.
    PassedForeignMac = 8 "passed_foreign_mac" Class::Passed,
    /// To, or about, an address that is not ours.
    PassedForeignAddress = 9 "passed_foreign_address" Class::Passed,
    /// A fragment, the first included.
    PassedFragment = 10 "passed_fragment" Class::Passed,
    /// With IPv4 options or IPv6 extension headers: an answer would have to follow them (RFC 1122,
    /// 3.2.2.6), which is the stack's to do.
    PassedOptions = 11 "passed_options" Class::Passed,
    /// ICMP to us, but no echo request of code 0.
    PassedOtherIcmp = 12 "passed_other_icmp" Class::Passed,
    /// ARP or a neighbour solicitation that is no question to be answered here: another operation or
    /// hardware, a sender that cannot be (ours included), a hop limit below 255, a duplicate address
    /// probe of IPv6 or other options (the answer would be longer); or answers are switched off.
    PassedNeighbour = 13 "passed_neighbour" Class::Passed,
    /// The IP length of a question to us goes beyond the end of the frame.
    DroppedLength = 14 "dropped_length" Class::Dropped(DropReason::Malformed),
    /// The IPv4 header of an echo request to us, or a neighbour solicitation for us, does not sum up.
    DroppedChecksum = 15 "dropped_checksum" Class::Dropped(DropReason::BadChecksum),
    /// An echo request to us whose source cannot be answered: a group, the broadcast or the unspecified
    /// address, loopback, one of our own addresses, or a group's MAC address.
    DroppedSource = 16 "dropped_source" Class::Dropped(DropReason::Malformed),
    /// An echo request beyond what its source may ask.
    DroppedSourceLimit = 17 "dropped_source_limit" Class::Dropped(DropReason::RateLimited),
    /// An echo request beyond what all together may ask.
    DroppedGlobalLimit = 18 "dropped_global_limit" Class::Dropped(DropReason::RateLimited),
}

impl Fate {
    /// The verdict that goes with it.
    #[inline]
    pub fn verdict(self) -> Verdict {
        match self.class() {
            Class::Answered => Verdict::Tx,
            Class::Passed => Verdict::Pass,
            Class::Dropped(_) => Verdict::Drop,
        }
    }

    /// True for an answer.
    pub fn is_answer(self) -> bool {
        self.class() == Class::Answered
    }
}

/// How many frames had each fate. Plain integers: one owner writes, snapshots are copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates([u64; Fate::COUNT]);

impl Fates {
    #[inline]
    pub(crate) fn add(&mut self, fate: Fate) {
        self.0[fate as usize] += 1;
    }

    pub(crate) fn set(&mut self, fate: Fate, total: u64) {
        self.0[fate as usize] = total;
    }

    /// Frames of that fate.
    pub fn of(&self, fate: Fate) -> u64 {
        self.0[fate as usize]
    }

    /// Answers of every kind.
    pub fn answered(&self) -> u64 {
        self.sum(|class| class == Class::Answered)
    }

    /// Frames passed, for whatever cause.
    pub fn passed(&self) -> u64 {
        self.sum(|class| class == Class::Passed)
    }

    /// Frames dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.sum(|class| matches!(class, Class::Dropped(_)))
    }

    /// All frames.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The fates that occurred, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (Fate, u64)> + '_ {
        Fate::ALL.iter().map(|&fate| (fate, self.of(fate))).filter(|&(_, n)| n > 0)
    }

    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Fates) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    fn sum(&self, wanted: impl Fn(Class) -> bool) -> u64 {
        self.nonzero().filter(|(fate, _)| wanted(fate.class())).map(|(_, n)| n).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_names_say_the_class() {
        for (i, &fate) in Fate::ALL.iter().enumerate() {
            assert_eq!(fate as usize, i);
            let prefix = match fate.class() {
                Class::Answered => "answered_",
                Class::Passed => "passed_",
                Class::Dropped(_) => "dropped_",
            };
            assert!(fate.name().starts_with(prefix), "{fate:?}");
        }
    }

    #[test]
    fn the_kernel_header_holds_the_same_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/fate.h");
        let header = std::fs::read_to_string(path).expect("the header is part of the tree");
        let check = |line: String| assert!(header.contains(&line), "{path} lacks `{line}`");
        for &fate in Fate::ALL {
            let name = fate.name().to_uppercase();
            check(format!("LW_ECHO_{name} = {},", fate as u8));
            if let Class::Dropped(reason) = fate.class() {
                let reason = reason.name().to_uppercase();
                check(format!("[LW_ECHO_{name} - LW_ECHO_DROPS_FROM] = LW_DROP_{reason},"));
            }
        }
        let first = |wanted: fn(Class) -> bool| {
            Fate::ALL.iter().position(|f| wanted(f.class())).expect("one of each class")
        };
        check(format!("#define LW_ECHO_PASSES_FROM {}", first(|c| c == Class::Passed)));
        check(format!("#define LW_ECHO_DROPS_FROM {}", first(|c| matches!(c, Class::Dropped(_)))));
        check(format!("LW_ECHO_FATES = {},", Fate::COUNT));
    }

    #[test]
    fn the_readme_holds_the_same_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        let readme = std::fs::read_to_string(path).expect("it is part of the tree");
        for fate in Fate::ALL {
            assert!(readme.contains(&format!("| `{}` |", fate.name())), "{path} lacks {fate:?}");
        }
    }

    #[test]
    fn counts_add_up_by_class() {
        let mut fates = Fates::default();
        Fate::ALL.iter().for_each(|&fate| fates.add(fate));
        let twice = fates;
        fates.merge(&twice);
        assert_eq!(fates.total(), 2 * Fate::COUNT as u64);
        assert_eq!(fates.answered() + fates.passed() + fates.dropped(), fates.total());
        assert_eq!(fates.answered(), 8);
    }
}
