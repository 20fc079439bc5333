//! The flow table as one would write it without a care for speed: a list in the order of use,
//! searched from the start. It shares [`Flow`] with the table under test (the C referee is the
//! judge of that) and says what capacity, scan, eviction and first packets must come to.

use laneway_flow::{
    EndReason, FLOW_RECORD_BYTES, Flow, FlowKey, FlowLimits, PpiPacket, Record, SCAN_INTERVAL_NS,
};

/// What came out: the flow's bytes and its first packets.
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
    clock_ns: u64,
    next_scan_ns: u64,
    out: Vec<Out>,
}

impl PlainTable {
    pub(crate) fn new(capacity: usize, limits: FlowLimits, ppi_packets: usize) -> PlainTable {
        let (entries, out) = (Vec::new(), Vec::new());
        PlainTable { capacity, limits, ppi_packets, entries, clock_ns: 0, next_scan_ns: 0, out }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn add(&mut self, record: &Record) {
        self.clock_ns = self.clock_ns.max(record.ts_ns);
        if self.clock_ns >= self.next_scan_ns {
            self.next_scan_ns = self.clock_ns + SCAN_INTERVAL_NS;
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
            && let Some(reason) = entry.flow.ended(&self.limits, Some(record), self.clock_ns)
        {
            self.out.push(entry.end(reason));
            entry = Entry { key, ..Entry::default() };
        }
        let added = entry.flow.add(record, source_is_low);
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
    /// not quiet yet.
    fn end_quiet(&mut self, closing: bool, limit_ns: u64, reason: EndReason) {
        let looks_at_ends = self.limits.end_ns() > 0;
        while let Some(at) =
            self.entries.iter().position(|e| (looks_at_ends && e.flow.end_seen()) == closing)
        {
            if self.clock_ns.saturating_sub(self.entries[at].flow.last_ns) < limit_ns {
                return;
            }
            self.out.push(self.entries.remove(at).end(reason));
        }
    }

    pub(crate) fn flush(mut self) -> Vec<Out> {
        for entry in self.entries {
            let reason = entry.flow.ended(&self.limits, None, self.clock_ns);
            self.out.push(entry.end(reason.unwrap_or(EndReason::Forced)));
        }
        self.out
    }
}
