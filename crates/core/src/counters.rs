//! The one table of counters and drop reasons.
//!
//! Lanes, apps, kernel halves and the ledger all name losses from this table. A test compares it with
//! the kernel's copy, `bpf/include/laneway/drop_reason.h`.

use serde::{Deserialize, Serialize};

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal $name:literal,)+) => {
        /// Why a frame or record did not go on. eBPF programs index counters by the stable codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant = $code,)+
        }

        impl DropReason {
            /// Every reason, in the order of its code.
            pub const ALL: &[DropReason] = &[$(DropReason::$variant),+];
            /// How many reasons there are; codes are `0..COUNT`.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in results, metrics and headers.
            pub fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name),+ }
            }

            /// What the counter counts, in one sentence.
            pub fn definition(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc),+)),+ }
            }
        }
    };
}

drop_reasons! {
    /// The queue between kernel and lane was full (PACKET_STATISTICS tp_drops, XDP rx_ring_full).
    RxQueueFull = 0 "rx_queue_full",
    /// The kernel had no free frame to receive into (XDP rx_fill_ring_empty_descs).
    RxNoFrame = 1 "rx_no_frame",
    /// The kernel could not hand the frame over for another reason (XDP rx_dropped, rx_invalid).
    RxError = 2 "rx_error",
    /// The frame is longer than the lane's frames and the lane has no multi-buffer mode.
    RxTooLong = 3 "rx_too_long",
    /// A kernel half could not reserve a record in its ring: the consumer is behind.
    RecordRingFull = 4 "record_ring_full",
    /// The transmit queue was full or the kernel refused the send.
    TxRefused = 5 "tx_refused",
    /// The frame is longer than the egress MTU.
    TxTooLong = 6 "tx_too_long",
    /// The verdict named a port that the lane does not have.
    TxNoPort = 7 "tx_no_port",
    /// Seeded loss of a simulated link.
    LinkLoss = 8 "link_loss",
    /// The queue of a simulated link was full.
    LinkQueueFull = 9 "link_queue_full",
    /// Left out by 1/N sampling, as asked.
    Sampled = 10 "sampled_out",
    /// Left out by the capture filter, as asked.
    Filtered = 11 "filtered_out",
    /// Left out by the rate limit, as asked.
    RateLimited = 12 "rate_limited",
    /// The consumer of the app's output could not take it.
    SinkFull = 13 "sink_full",
    /// A flow table of a kernel half was full: the frame belongs to no flow.
    FlowTableFull = 14 "flow_table_full",
    /// A capture file's link layer is none that can be read as Ethernet.
    LinkTypeUnknown = 15 "link_type_unknown",
    /// A header contradicts itself, or the bytes end before it does.
    Malformed = 16 "malformed",
    /// A checksum does not fit the bytes.
    BadChecksum = 17 "bad_checksum",
    /// Addressed to another host.
    NotForUs = 18 "not_for_us",
    /// No listener on the port, or for the protocol, that it is addressed to.
    NoListener = 19 "no_listener",
    /// A fragment: the stack puts none together.
    Fragment = 20 "fragment",
    /// The next hop's link address could not be found out, or too many wait for it.
    NoNeighbour = 21 "no_neighbour",
    /// No route leads to the destination.
    NoRoute = 22 "no_route",
    /// The table of connections, or of half-open ones, was full.
    ConnTableFull = 23 "conn_table_full",
    /// The time to live or hop limit ran out on the way through.
    TtlExpired = 24 "ttl_expired",
    /// The socket's own queue on the way out was full (EAGAIN).
    TxSocketFull = 25 "tx_socket_full",
    /// The queue of the interface was full, and the kernel reported it (ENOBUFS).
    TxInterfaceFull = 26 "tx_interface_full",
    /// The kernel's stack did not take a frame that was passed to it.
    PassRefused = 27 "pass_refused",
}

impl DropReason {
    /// True when the user asked for the omission (sampling, filter, rate limit): it is no loss.
    pub fn is_asked_for(self) -> bool {
        matches!(self, DropReason::Sampled | DropReason::Filtered | DropReason::RateLimited)
    }

    /// True when a lane did not send what it was given to send.
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            DropReason::TxRefused
                | DropReason::TxTooLong
                | DropReason::TxNoPort
                | DropReason::TxSocketFull
                | DropReason::TxInterfaceFull
        )
    }
}

/// Counters of one port or one app. Plain integers: one owner writes, snapshots are copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames handed to the app.
    pub rx_frames: u64,
    /// Bytes of those frames, as captured.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes of those frames.
    pub tx_bytes: u64,
    /// Sends of a source's frames tried again because a queue had been full.
    #[serde(default)] // missing in older files
    pub tx_retries: u64,
    /// Frames passed to the kernel's stack.
    pub passed: u64,
    /// Frames copied in user space for want of a copy-free path (headroom, VLAN tag, foreign pool).
    pub copies: u64,
    /// Receive calls that found nothing.
    pub polls_empty: u64,
    /// Times the worker blocked.
    pub waits: u64,
    #[serde(with = "by_name")]
    drops: [u64; DropReason::COUNT],
}

impl Counters {
    /// Counts one drop.
    pub fn drop_one(&mut self, reason: DropReason) {
        self.drop_many(reason, 1);
    }

    /// Counts `n` drops.
    pub fn drop_many(&mut self, reason: DropReason, n: u64) {
        self.drops[reason as usize] += n;
    }

    /// Replaces the count of a reason whose truth is a cumulative kernel counter.
    pub fn set_drops(&mut self, reason: DropReason, total: u64) {
        self.drops[reason as usize] = total;
    }

    /// Drops counted under `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Drops over all reasons that the user did not ask for.
    pub fn lost(&self) -> u64 {
        self.nonzero_drops().filter(|(r, _)| !r.is_asked_for()).map(|(_, n)| n).sum()
    }

    /// Drops over all reasons for which what was to be sent was not.
    pub fn refused(&self) -> u64 {
        self.nonzero_drops().filter(|(r, _)| r.is_refusal()).map(|(_, n)| n).sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn nonzero_drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.drops(r))).filter(|&(_, n)| n > 0)
    }

    /// Adds another set of counters (of another port or worker).
    pub fn merge(&mut self, other: &Counters) {
        self.rx_frames += other.rx_frames;
        self.rx_bytes += other.rx_bytes;
        self.tx_frames += other.tx_frames;
        self.tx_bytes += other.tx_bytes;
        self.tx_retries += other.tx_retries;
        self.passed += other.passed;
        self.copies += other.copies;
        self.polls_empty += other.polls_empty;
        self.waits += other.waits;
        for (reason, n) in other.nonzero_drops() {
            self.drop_many(reason, n);
        }
    }

    /// What was counted since these were read; nothing where a count is lower now.
    #[must_use]
    pub fn since(&self, before: &Counters) -> Counters {
        let mut drops = self.drops;
        for (now, before) in drops.iter_mut().zip(before.drops) {
            *now = now.saturating_sub(before);
        }
        Counters {
            rx_frames: self.rx_frames.saturating_sub(before.rx_frames),
            rx_bytes: self.rx_bytes.saturating_sub(before.rx_bytes),
            tx_frames: self.tx_frames.saturating_sub(before.tx_frames),
            tx_bytes: self.tx_bytes.saturating_sub(before.tx_bytes),
            tx_retries: self.tx_retries.saturating_sub(before.tx_retries),
            passed: self.passed.saturating_sub(before.passed),
            copies: self.copies.saturating_sub(before.copies),
            polls_empty: self.polls_empty.saturating_sub(before.polls_empty),
            waits: self.waits.saturating_sub(before.waits),
            drops,
        }
    }
}

/// The form in files: drops by name, zeros left out.
mod by_name {
    use super::DropReason;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;

    type Drops = [u64; DropReason::COUNT];

    pub(super) fn serialize<S: Serializer>(drops: &Drops, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(DropReason::ALL.iter().zip(drops).filter(|(_, n)| **n > 0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Drops, D::Error> {
        let mut drops = [0; DropReason::COUNT];
        for (reason, n) in BTreeMap::<DropReason, u64>::deserialize(from)? {
            drops[reason as usize] = n;
        }
        Ok(drops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_names_unique() {
        let mut names = std::collections::HashSet::new();
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, i);
            assert!(names.insert(reason.name()));
        }
    }

    #[test]
    fn the_kernel_header_holds_the_same_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/include/laneway/drop_reason.h");
        let header = std::fs::read_to_string(path).expect("the header is part of the tree");
        for reason in DropReason::ALL {
            let line = format!("LW_DROP_{} = {},", reason.name().to_uppercase(), *reason as u8);
            assert!(header.contains(&line), "{path} lacks `{line}`");
        }
        assert!(header.contains(&format!("LW_DROP_COUNT = {},", DropReason::COUNT)));
    }

    #[test]
    fn asked_for_omissions_are_named_but_no_loss() {
        let mut counters = Counters::default();
        counters.drop_many(DropReason::Sampled, 9);
        counters.drop_one(DropReason::RecordRingFull);
        assert_eq!(counters.lost(), 1);
        assert_eq!(counters.nonzero_drops().count(), 2);
    }

    #[test]
    fn what_is_refused_is_what_was_to_be_sent() {
        let mut counters = Counters::default();
        for (reason, n) in DropReason::ALL.iter().zip(1..) {
            counters.drop_many(*reason, n);
        }
        // By codes: 5, 6, 7, 25 and 26, each counted once more than its code.
        assert_eq!(counters.refused(), 6 + 7 + 8 + 26 + 27);
    }

    #[test]
    fn merging_adds_every_field() {
        let mut a = Counters { rx_frames: 1, copies: 2, ..Counters::default() };
        a.drop_one(DropReason::TxRefused);
        let mut sum = a.clone();
        sum.merge(&a);
        assert_eq!((sum.rx_frames, sum.copies, sum.drops(DropReason::TxRefused)), (2, 4, 2));
    }

    #[test]
    fn what_was_counted_since_and_what_was_counted_before_add_up() {
        let mut before = Counters { rx_frames: 1, tx_bytes: 2, waits: 3, ..Counters::default() };
        before.drop_one(DropReason::TxRefused);
        let more = Counters { rx_frames: 10, polls_empty: 4, ..before.clone() };
        let mut now = before.clone();
        now.merge(&more);
        assert_eq!(now.since(&before), more);
        assert_eq!(before.since(&now), Counters::default());
    }
}
