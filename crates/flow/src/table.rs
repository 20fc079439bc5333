//! The flow table: a fixed number of flows, ended on packet time.
//!
//! ```text
//!   index: tag + slot number, open addressing          slots: key | flow | side 0 | side 1
//!   ┌────┬────┬────┬────┬────┬────┐                    ┌──────────────────────────────────┐
//!   │    │ ●──┼────┼────┼────┼────┼───────────────────▶│ 17 cache lines, 8 of them per    │
//!   └────┴────┴────┴────┴────┴────┘                    │ frame                            │
//!   links: least recently used first, in two lists:    └──────────────────────────────────┘
//!   open flows, and flows whose end was seen
//! ```
//!
//! Frames come with their flow time, which a [`PacketClock`] makes of their stamps: the table's own, or
//! the caller's where several tables share one capture. A flow has ended when [`Flow::ended`] says so:
//! at the flow time of its next frame; or at the clock's floor, before which no later frame is, by a
//! scan of the lists' old ends at most every 10 ms of packet time and by [`FlowTable::flush`]. Because
//! the linger time never exceeds the idle timeout, all three give the same flows with the same reasons;
//! the scan decides only how early they come out. (Eviction for want of space is the exception.)
//!
//! What must always hold: memory is reserved by [`FlowTable::new`] and never grows; every slot is
//! in exactly one of the free list and the two lists; every listed slot has one index entry; the
//! order in which flows come out does not depend on the hash seed.
//!
//! Hostile traffic can fill the table (then it evicts, and counts that) but, without knowing the
//! seed, cannot make look-ups long; what that rests on is argued in `key.rs`.
//!
//! It assumes time stamps of one clock, which may be set: see `clock.rs` for what that means. Sources
//! with unrelated clocks need a table each.

use crate::{
    BEHIND_NS, Direction, EndReason, Flow, FlowKey, FlowLimits, Moment, PacketClock, Record,
    Status, key::Secret,
};
use laneway_wire::tcp_flags::{FIN, RST};
use std::collections::TryReserveError;
use std::hash::{BuildHasher, RandomState};

/// The largest capacity in flows: slot numbers and list links have 32 bits, and 2^28 flows are
/// already 300 GB.
pub const CAPACITY_MAX: usize = 1 << 28;
/// The longest first-packets sequence.
pub const PPI_PACKETS_MAX: usize = 32;
/// Packet time between two scans for quiet flows, in ns (NFStream's).
pub const SCAN_INTERVAL_NS: u64 = 10_000_000;

/// Flows that one scan puts back because they are ahead of the clock: where all of them are (hostile
/// stamps), a scan must not walk them all.
const AHEAD_MAX: usize = 64;

/// How many records [`FlowTable::add_batch`] looks ahead. Their slots' lines are fetched together:
/// enough to keep a core's dozen outstanding misses busy, few enough to stay in its first cache.
const LOOKAHEAD: usize = 16;

const NONE: u32 = u32::MAX;

/// What is not a limit on time.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableOptions {
    /// Seed of the index's hash. Secret (see [`random_seed`]) where traffic may be hostile; any
    /// value gives the same flows in the same order.
    pub hash_seed: u64,
    /// Length of the first-packets sequence kept per flow; 0: none.
    pub ppi_packets: usize,
}

/// A seed that no other process knows, from the operating system's random source by way
/// of the standard library. For the callers of [`FlowTable::new`]; a table itself draws nothing.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(0u8)
}

/// Why a table could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No flows, or more than [`CAPACITY_MAX`].
    #[error("a flow table of {capacity} flows is not possible; use 1 to {CAPACITY_MAX}")]
    Capacity {
        /// What was asked for.
        capacity: usize,
    },
    /// Beyond [`PPI_PACKETS_MAX`].
    #[error("{packets} first packets per flow are too many; use at most {PPI_PACKETS_MAX}")]
    Ppi {
        /// What was asked for.
        packets: usize,
    },
    /// The memory is not to be had.
    #[error("a flow table of {capacity} flows needs {bytes} bytes: {source}; use a smaller one")]
    Memory {
        /// What was asked for.
        capacity: usize,
        /// What it would take.
        bytes: u64,
        /// The allocator's answer.
        source: TryReserveError,
    },
}

/// One of the first packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PpiPacket {
    /// Time since the flow's previous packet in ns; 0 for the first.
    pub iat_ns: u64,
    /// `frame_len` in bytes.
    pub len: u32,
    /// TCP flags; 0 for other protocols.
    pub tcp_flags: u16,
    /// Which way it went.
    pub direction: Direction,
}

/// A flow that has ended, borrowed by the sink for one call.
#[derive(Clone, Copy, Debug)]
pub struct EndedFlow<'a> {
    /// Whose flow.
    pub key: &'a FlowKey,
    /// Closed: `flow.end` says why.
    pub flow: &'a Flow,
    /// Its first packets, at most as many as the table keeps.
    pub ppi: &'a [PpiPacket],
}

/// What went through a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounters {
    /// Records added to flows.
    pub records: u64,
    /// Flows started.
    pub started: u64,
    ended: [u64; EndReason::ALL.len() + 1],
    unflowed: [u64; Status::COUNT],
}

impl TableCounters {
    /// Flows that ended for a reason; [`EndReason::Resources`] counts evictions.
    pub fn ended(&self, reason: EndReason) -> u64 {
        self.ended[reason as usize]
    }

    /// Records that belong to no flow, by how far parsing got.
    pub fn unflowed(&self, status: Status) -> u64 {
        self.unflowed[status as usize]
    }

    /// Records that belong to no flow.
    pub fn unflowed_total(&self) -> u64 {
        self.unflowed.iter().sum()
    }

    /// Adds the counters of another table.
    pub fn merge(&mut self, other: &TableCounters) {
        self.records += other.records;
        self.started += other.started;
        self.ended.iter_mut().zip(other.ended).for_each(|(mine, theirs)| *mine += theirs);
        self.unflowed.iter_mut().zip(other.unflowed).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// A flow's place. The first line tells whose it is; `Flow` starts on the second.
#[derive(Clone, Copy)]
#[repr(C)]
struct Slot {
    key: FlowKey,
    /// Number of the record that touched the flow last: the order of use over both lists.
    used: u64,
    /// The flow's end was seen and ends are looked at: it is in the closing list.
    closing: bool,
    flow: Flow,
}

// An odd number of cache lines, so that the same line of different flows spreads over all sets.
const _: () = assert!(size_of::<Slot>() == 17 * 64);

/// List neighbours and the hash's upper half, apart from the slots so that relinking a flow does
/// not fetch its neighbours' lines.
#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
    tag: u32,
}

/// A doubly linked list of slots, least recently used first.
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    const EMPTY: List = List { head: NONE, tail: NONE };

    #[inline]
    fn unlink(&mut self, links: &mut [Link], slot: u32) {
        let Link { prev, next, .. } = links[slot as usize];
        match prev {
            NONE => self.head = next,
            prev => links[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => links[next as usize].prev = prev,
        }
    }

    #[inline]
    fn push(&mut self, links: &mut [Link], slot: u32) {
        let link = &mut links[slot as usize];
        (link.prev, link.next) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = slot,
            tail => links[tail as usize].next = slot,
        }
        self.tail = slot;
    }

    #[inline]
    fn move_to_back(&mut self, links: &mut [Link], slot: u32) {
        if self.tail != slot {
            self.unlink(links, slot);
            self.push(links, slot);
        }
    }
}

/// Slot numbers by key. An entry is the hash's upper half above the slot number plus one; 0 is
/// free. Linear probing at most half full; removal shifts entries back, so there are no tombstones.
struct Index {
    entries: Vec<u64>,
    mask: usize,
}

impl Index {
    #[inline]
    fn home(&self, tag: u32) -> usize {
        tag as usize & self.mask
    }

    /// The slot of the first entry at the hash's place: likely the flow's, for reading ahead.
    #[inline]
    fn likely(&self, hash: u64) -> Option<usize> {
        let tag = (hash >> 32) as u32;
        let entry = self.entries[self.home(tag)];
        (entry >> 32 == u64::from(tag)).then(|| (entry as u32).wrapping_sub(1) as usize)
    }

    #[inline]
    fn find(&self, tag: u32, slots: &[Slot], key: &FlowKey) -> Option<u32> {
        let mut at = self.home(tag);
        loop {
            let entry = self.entries[at];
            if entry == 0 {
                return None;
            }
            if entry >> 32 == u64::from(tag) {
                let slot = (entry as u32).wrapping_sub(1);
                if slots.get(slot as usize).is_some_and(|s| s.key == *key) {
                    return Some(slot);
                }
            }
            at = (at + 1) & self.mask;
        }
    }

    fn insert(&mut self, tag: u32, slot: u32) {
        let mut at = self.home(tag);
        while self.entries[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.entries[at] = u64::from(tag) << 32 | u64::from(slot + 1);
    }

    fn remove(&mut self, tag: u32, slot: u32) {
        let entry = u64::from(tag) << 32 | u64::from(slot + 1);
        let mut hole = self.home(tag);
        while self.entries[hole] != entry {
            assert!(self.entries[hole] != 0, "every listed slot has one index entry");
            hole = (hole + 1) & self.mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let entry = self.entries[at];
            if entry == 0 {
                break;
            }
            // An entry may fill the hole if that does not put it before its home.
            let from_home = at.wrapping_sub(self.home((entry >> 32) as u32)) & self.mask;
            if from_home >= at.wrapping_sub(hole) & self.mask {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = 0;
    }
}

/// Where a record belongs.
#[derive(Clone, Copy)]
struct Hashed {
    key: FlowKey,
    hash: u64,
    source_is_low: bool,
    has_ip: bool,
}

/// Flows in the making. See the module's paragraph.
pub struct FlowTable {
    index: Index,
    slots: Vec<Slot>,
    links: Vec<Link>,
    ppi: Vec<PpiPacket>,
    ppi_packets: usize,
    capacity: usize,
    free: u32,
    open: List,
    closing: List,
    live: usize,
    limits: FlowLimits,
    secret: Secret,
    clock: PacketClock,
    floor_ns: u64,
    next_scan_ns: u64,
    uses: u64,
    counters: TableCounters,
}

fn bound_bytes(capacity: usize, ppi_packets: usize) -> u64 {
    let per_flow = size_of::<Slot>() + size_of::<Link>() + ppi_packets * size_of::<PpiPacket>();
    capacity as u64 * per_flow as u64 + index_len(capacity) as u64 * size_of::<u64>() as u64
}

fn index_len(capacity: usize) -> usize {
    (capacity * 2).next_power_of_two()
}

impl FlowTable {
    /// Reserves a table of `capacity` flows. Pages that no flow has used yet are reserved, not
    /// touched.
    ///
    /// # Errors
    /// A capacity or option beyond its limit, or too little memory.
    pub fn new(
        capacity: usize,
        limits: FlowLimits,
        options: TableOptions,
    ) -> Result<FlowTable, TableError> {
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            return Err(TableError::Capacity { capacity });
        }
        let ppi_packets = options.ppi_packets;
        if ppi_packets > PPI_PACKETS_MAX {
            return Err(TableError::Ppi { packets: ppi_packets });
        }
        let mut entries = Vec::new();
        let (mut slots, mut links, mut ppi) = (Vec::new(), Vec::new(), Vec::new());
        entries
            .try_reserve_exact(index_len(capacity))
            .and_then(|()| slots.try_reserve_exact(capacity))
            .and_then(|()| links.try_reserve_exact(capacity))
            .and_then(|()| ppi.try_reserve_exact(capacity * ppi_packets))
            .map_err(|source| TableError::Memory {
                capacity,
                bytes: bound_bytes(capacity, ppi_packets),
                source,
            })?;
        entries.resize(index_len(capacity), 0);
        Ok(FlowTable {
            index: Index { mask: entries.len() - 1, entries },
            slots,
            links,
            ppi,
            ppi_packets,
            capacity,
            free: NONE,
            open: List::EMPTY,
            closing: List::EMPTY,
            live: 0,
            limits,
            secret: Secret::of(options.hash_seed),
            clock: PacketClock::default(),
            floor_ns: 0,
            next_scan_ns: 0,
            uses: 0,
            counters: TableCounters::default(),
        })
    }

    /// Adds one record to its flow. Flows that had ended before it go to `sink` first. Returns what
    /// the record was to its flow, or `None` (and counts it) if it belongs to none.
    pub fn add(
        &mut self,
        record: &Record,
        sink: &mut impl FnMut(EndedFlow<'_>),
    ) -> Option<crate::Added> {
        let hashed = self.hashed(record);
        let moment = self.clock.tick(record);
        self.add_hashed(record, moment, &hashed, sink)
    }

    /// Adds records in order, as [`FlowTable::add`] would, but fetches the memory of several flows
    /// at a time: with many flows that is most of the cost.
    pub fn add_batch(&mut self, records: &[Record], sink: &mut impl FnMut(EndedFlow<'_>)) {
        for chunk in records.chunks(LOOKAHEAD) {
            let hashed = self.hashed_chunk(chunk);
            for (record, hashed) in chunk.iter().zip(&hashed) {
                let moment = self.clock.tick(record);
                self.add_hashed(record, moment, hashed, sink);
            }
        }
    }

    /// As [`FlowTable::add_batch`], with the moment of each record from a clock that sees more than
    /// this table's records. A table is given either all moments or none.
    ///
    /// # Panics
    /// If there are not as many moments as records.
    pub fn add_batch_at(
        &mut self,
        records: &[Record],
        moments: &[Moment],
        sink: &mut impl FnMut(EndedFlow<'_>),
    ) {
        assert_eq!(records.len(), moments.len(), "a moment for each record");
        for (chunk, moments) in records.chunks(LOOKAHEAD).zip(moments.chunks(LOOKAHEAD)) {
            let hashed = self.hashed_chunk(chunk);
            for ((record, moment), hashed) in chunk.iter().zip(moments).zip(&hashed) {
                self.add_hashed(record, *moment, hashed, sink);
            }
        }
    }

    /// Moves the clock on without a record, as when a live source is quiet, and ends what is due.
    pub fn advance(&mut self, now_ns: u64, sink: &mut impl FnMut(EndedFlow<'_>)) {
        self.clock.advance(now_ns);
        self.advance_floor(self.clock.floor_ns(), sink);
    }

    /// As [`FlowTable::advance`], for a table whose moments come from outside.
    pub fn advance_floor(&mut self, floor_ns: u64, sink: &mut impl FnMut(EndedFlow<'_>)) {
        self.floor_ns = self.floor_ns.max(floor_ns);
        self.scan(sink);
    }

    /// Ends every flow, least recently used first: those that had ended by the clock's floor for their own
    /// reason, the others as [`EndReason::Forced`].
    pub fn flush(&mut self, sink: &mut impl FnMut(EndedFlow<'_>)) {
        while let Some(slot) = self.least_recently_used() {
            let Slot { flow, closing, .. } = &self.slots[slot as usize];
            let reason = flow
                .ended_if(*closing, &self.limits, None, self.floor_ns)
                .unwrap_or(EndReason::Forced);
            self.end(slot, reason, sink);
            self.release(slot);
        }
    }

    /// Flows in the table now.
    pub fn len(&self) -> usize {
        self.live
    }

    /// True without flows.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The most flows at a time.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The table's own clock.
    pub fn clock(&self) -> &PacketClock {
        &self.clock
    }

    /// What went through so far.
    pub fn counters(&self) -> &TableCounters {
        &self.counters
    }

    /// The memory reserved at the start, in bytes: the bound that holds with any traffic.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = self.slots.capacity() * size_of::<Slot>()
            + self.links.capacity() * size_of::<Link>()
            + self.ppi.capacity() * size_of::<PpiPacket>()
            + self.index.entries.capacity() * size_of::<u64>();
        bytes as u64
    }

    #[inline]
    fn hashed(&self, record: &Record) -> Hashed {
        let (key, source_is_low) = FlowKey::of(record);
        let hash = key.hash_with(&self.secret);
        Hashed { key, hash, source_is_low, has_ip: record.has_ip() }
    }

    /// Hashes a chunk of at most [`LOOKAHEAD`] records and fetches their flows.
    #[inline]
    fn hashed_chunk(&self, chunk: &[Record]) -> [Hashed; LOOKAHEAD] {
        let hashed: [Hashed; LOOKAHEAD] =
            std::array::from_fn(|i| self.hashed(chunk.get(i).unwrap_or(&chunk[0])));
        self.read_ahead(&hashed[..chunk.len()]);
        hashed
    }

    /// Reads one word of every line that the records' flows will touch. The loads do not depend on
    /// each other, so the core fetches them at the same time; which values come back is irrelevant.
    #[inline]
    fn read_ahead(&self, hashed: &[Hashed]) {
        let mut sum = 0u64;
        let mut slots = [usize::MAX; LOOKAHEAD];
        for (slot, hashed) in slots.iter_mut().zip(hashed) {
            *slot = self.index.likely(hashed.hash).unwrap_or(usize::MAX);
        }
        let mut sides = [0; LOOKAHEAD];
        for ((slot, side), hashed) in slots.iter().zip(&mut sides).zip(hashed) {
            if let (Some(s), Some(link)) = (self.slots.get(*slot), self.links.get(*slot)) {
                sum = sum
                    .wrapping_add(s.used ^ s.flow.last_ns ^ s.flow.syn_ns ^ u64::from(link.next));
                *side = usize::from(s.flow.fwd_is_lo != hashed.source_is_low);
            }
        }
        for (slot, side) in slots.iter().zip(sides) {
            if let Some(s) = self.slots.get(*slot) {
                let side = &s.flow.side[side];
                let lines = side.pkts
                    ^ side.last_ns
                    ^ side.data_pkts
                    ^ u64::from(side.payload_min)
                    ^ u64::from(side.len_hist[0]);
                sum = sum.wrapping_add(lines);
            }
        }
        std::hint::black_box(sum);
    }

    #[inline]
    fn add_hashed(
        &mut self,
        record: &Record,
        moment: Moment,
        hashed: &Hashed,
        sink: &mut impl FnMut(EndedFlow<'_>),
    ) -> Option<crate::Added> {
        self.floor_ns = self.floor_ns.max(moment.floor_ns);
        if self.floor_ns >= self.next_scan_ns {
            self.scan(sink);
        }
        if !hashed.has_ip {
            self.counters.unflowed[record.status as usize] += 1;
            return None;
        }
        let tag = (hashed.hash >> 32) as u32;
        let slot = match self.index.find(tag, &self.slots, &hashed.key) {
            Some(slot) => {
                let Slot { flow, closing, .. } = &self.slots[slot as usize];
                let why = flow.ended_if(*closing, &self.limits, Some(record), moment.time_ns);
                if let Some(reason) = why {
                    self.end(slot, reason, sink);
                    self.restart(slot);
                }
                slot
            }
            None => self.start(hashed.key, tag, sink),
        };

        self.uses += 1;
        let Slot { flow, used, closing, .. } = &mut self.slots[slot as usize];
        *used = self.uses;
        let added = flow.add(record, moment.time_ns, hashed.source_is_low);
        self.counters.records += 1;
        if self.ppi_packets > 0 && flow.pkts() <= self.ppi_packets as u64 {
            let at = slot as usize * self.ppi_packets + flow.pkts() as usize - 1;
            self.ppi[at] = PpiPacket {
                iat_ns: added.gap_ns,
                len: record.frame_len,
                tcp_flags: record.tcp_flags,
                direction: added.direction,
            };
        }
        if *closing {
            self.closing.move_to_back(&mut self.links, slot);
        } else if self.limits.end_ns() > 0
            // Only these can have changed the answer, which lies on another cache line.
            && record.tcp_flags & (FIN | RST) != 0
            && flow.end_seen()
        {
            *closing = true;
            self.open.unlink(&mut self.links, slot);
            self.closing.push(&mut self.links, slot);
        } else {
            self.open.move_to_back(&mut self.links, slot);
        }
        Some(added)
    }

    /// A slot for a new flow, linked and indexed; evicts when there is none.
    fn start(&mut self, key: FlowKey, tag: u32, sink: &mut impl FnMut(EndedFlow<'_>)) -> u32 {
        if self.live == self.capacity {
            let oldest = self.least_recently_used().expect("a full table has flows");
            self.end(oldest, EndReason::Resources, sink);
            self.release(oldest);
        }
        let new = Slot { key, used: 0, closing: false, flow: Flow::default() };
        let slot = match self.free {
            NONE => {
                // Within what was reserved: this never allocates.
                self.slots.push(new);
                self.links.push(Link { prev: NONE, next: NONE, tag });
                self.ppi.resize(self.slots.len() * self.ppi_packets, PpiPacket::default());
                (self.slots.len() - 1) as u32
            }
            slot => {
                self.free = self.links[slot as usize].next;
                self.slots[slot as usize] = new;
                self.links[slot as usize].tag = tag;
                slot
            }
        };
        self.index.insert(tag, slot);
        self.open.push(&mut self.links, slot);
        self.live += 1;
        self.counters.started += 1;
        slot
    }

    /// Empties a slot whose key goes on with another flow.
    fn restart(&mut self, slot: u32) {
        let Slot { flow, closing, .. } = &mut self.slots[slot as usize];
        *flow = Flow::default();
        if std::mem::take(closing) {
            self.closing.unlink(&mut self.links, slot);
            self.open.push(&mut self.links, slot);
        }
        self.counters.started += 1;
    }

    /// Closes a flow and lends it to the sink.
    fn end(&mut self, slot: u32, reason: EndReason, sink: &mut impl FnMut(EndedFlow<'_>)) {
        let Slot { key, flow, .. } = &mut self.slots[slot as usize];
        flow.close(reason);
        self.counters.ended[reason as usize] += 1;
        let first = slot as usize * self.ppi_packets;
        let kept = flow.pkts().min(self.ppi_packets as u64) as usize;
        sink(EndedFlow { key, flow, ppi: &self.ppi[first..first + kept] });
    }

    /// Takes a slot out of index and list.
    fn release(&mut self, slot: u32) {
        let tag = self.links[slot as usize].tag;
        self.index.remove(tag, slot);
        let list =
            if self.slots[slot as usize].closing { &mut self.closing } else { &mut self.open };
        list.unlink(&mut self.links, slot);
        self.links[slot as usize].next = self.free;
        self.free = slot;
        self.live -= 1;
    }

    fn least_recently_used(&self) -> Option<u32> {
        match (self.open.head, self.closing.head) {
            (NONE, NONE) => None,
            (slot, NONE) | (NONE, slot) => Some(slot),
            (open, closing) => {
                let used = |slot: u32| self.slots[slot as usize].used;
                Some(if used(open) < used(closing) { open } else { closing })
            }
        }
    }

    /// Ends quiet flows from the old ends of both lists. Active timeouts are not looked for: they
    /// end a flow when its next frame comes, as they would have anyway.
    #[cold]
    fn scan(&mut self, sink: &mut impl FnMut(EndedFlow<'_>)) {
        self.next_scan_ns = self.floor_ns.saturating_add(SCAN_INTERVAL_NS);
        let (end_ns, idle_ns) = (self.limits.end_ns(), self.limits.idle_ns());
        self.end_quiet(|t| &mut t.closing, end_ns, EndReason::EndSeen, sink);
        self.end_quiet(|t| &mut t.open, idle_ns, EndReason::Idle, sink);
    }

    /// Puts a flow at the back of its list, as if it had been used now.
    fn put_back(&mut self, slot: u32, list: impl Fn(&mut FlowTable) -> &mut List) {
        self.uses += 1;
        self.slots[slot as usize].used = self.uses;
        let mut moved = *list(self);
        moved.move_to_back(&mut self.links, slot);
        *list(self) = moved;
    }

    fn end_quiet(
        &mut self,
        list: impl Fn(&mut FlowTable) -> &mut List,
        limit_ns: u64,
        reason: EndReason,
        sink: &mut impl FnMut(EndedFlow<'_>),
    ) {
        let mut ahead = 0;
        loop {
            let slot = list(self).head;
            let Some(s) = self.slots.get(slot as usize) else { return };
            let last_ns = s.flow.last_ns;
            if self.floor_ns.saturating_sub(last_ns) >= limit_ns {
                self.end(slot, reason, sink);
                self.release(slot);
            } else if last_ns > self.floor_ns.saturating_add(BEHIND_NS) && ahead < AHEAD_MAX {
                // A stamp that nothing has confirmed: it must not hide those behind it.
                ahead += 1;
                self.put_back(slot, &list);
            } else {
                return;
            }
        }
    }
}
