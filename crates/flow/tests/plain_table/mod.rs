//! The flow table as one would write it without a care for speed: a list in the order of use,
//! searched from the start. It shares [`Flow`] with the table under test (the C referee is the
//! judge of that) and says what capacity, scan, eviction and first packets must come to.

use laneway_flow::{
    BEHIND_NS, EndReason, FLOW_RECORD_BYTES, Flow, FlowKey, FlowLimits, PacketClock, PpiPacket,
    Record, SCAN_INTERVAL_NS,
};

/// What ended: the flow's bytes and its first packets.
pub(crate) type Out = ([u8; FLOW_RECORD_BYTES], Vec<PpiPacket>);

#[derive(Default)]
struct Entry {
    key: FlowKey,
    flow: Flow,
    ppi: Vec<PpiPacket>,
}

impl Entry {
    fn end(mut self, reason: EndReason) -> Out {
        self.flow.close(reason);
        (self.flow.to_record_bytes(&self.key), self.ppi)
    }
}

pub(crate) struct PlainTable {
    capacity: usize,
    limits: FlowLimits,
    ppi_packets: usize,
    /// Least recently used first.
    entries: Vec<Entry>,
    clock: PacketClock,
    next_scan_ns: u64,
    out: Vec<Out>,
}

impl PlainTable {
    pub(crate) fn new(capacity: usize, limits: FlowLimits, ppi_packets: usize) -> PlainTable {
        let (entries, out) = (Vec::new(), Vec::new());
        let clock = PacketClock::default();
        PlainTable { capacity, limits, ppi_packets, entries, clock, next_scan_ns: 0, out }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn add(&mut self, record: &Record) {
        let moment = self.clock.tick(record);
        if moment.floor_ns >= self.next_scan_ns {
            self.next_scan_ns = moment.floor_ns + SCAN_INTERVAL_NS;
            self.end_quiet(true, self.limits.end_ns(), EndReason::EndSeen);
            self.end_quiet(false, self.limits.idle_ns(), EndReason::Idle);
        }
        if !record.has_ip() {
            return;
        }
        let (key, source_is_low) = FlowKey::of(record);
        let mut entry = match self.entries.iter().position(|e| e.key == key) {
            Some(at) => self.entries.remove(at),
            None => {
                if self.entries.len() == self.capacity {
                    self.out.push(self.entries.remove(0).end(EndReason::Resources));
                }
                Entry { key, ..Entry::default() }
            }
        };
        if entry.flow.pkts() > 0
            && let Some(reason) = entry.flow.ended(&self.limits, Some(record), moment.time_ns)
        {
            self.out.push(entry.end(reason));
            entry = Entry { key, ..Entry::default() };
        }
        let added = entry.flow.add(record, moment.time_ns, source_is_low);
        if entry.ppi.len() < self.ppi_packets {
            entry.ppi.push(PpiPacket {
                iat_ns: added.gap_ns,
                len: record.frame_len,
                tcp_flags: record.tcp_flags,
                direction: added.direction,
            });
        }
        self.entries.push(entry);
    }

    /// Ends flows whose end was seen, or the others, from the least recently used on until one is
    /// not quiet yet; those ahead of the clock go to the back, at most 64 of them.
    fn end_quiet(&mut self, closing: bool, limit_ns: u64, reason: EndReason) {
        let looks_at_ends = self.limits.end_ns() > 0;
        let (floor_ns, mut ahead) = (self.clock.floor_ns(), 0);
        while let Some(at) =
            self.entries.iter().position(|e| (looks_at_ends && e.flow.end_seen()) == closing)
        {
            let last_ns = self.entries[at].flow.last_ns;
            if floor_ns.saturating_sub(last_ns) >= limit_ns {
                self.out.push(self.entries.remove(at).end(reason));
            } else if last_ns > floor_ns + BEHIND_NS && ahead < 64 {
                ahead += 1;
                let entry = self.entries.remove(at);
                self.entries.push(entry);
            } else {
                return;
            }
        }
    }

    pub(crate) fn flush(mut self) -> Vec<Out> {
        for entry in self.entries {
            let reason = entry.flow.ended(&self.limits, None, self.clock.floor_ns());
            self.out.push(entry.end(reason.unwrap_or(EndReason::Forced)));
        }
        self.out
    }
}
