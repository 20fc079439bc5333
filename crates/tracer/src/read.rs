//! Reads a file back, as far as it goes.
//!
//! A first pass goes from block to block, checks their sums, and gathers threads and syncs; so
//! a later event can be placed between the sync before and the one after it. The second pass, [`TraceFile::happenings`],
//! decodes records. Nothing is copied: the bytes are borrowed, from a map of the file for instance.
//!
//! What must always hold: no bytes make it panic; damage is told with its offset and what is left out because
//! of it, at most [`DAMAGE_MAX`] places; the times of one thread never decrease; a record of something that
//! lasted gives its beginning and its end, in this order, and never begins before what came before it ended.

use crate::{
    Header, InOrder, NotATrace, Point, PointId, Record, Shape, SyncPoint, ThreadInfo,
    block::{self, ALIGN_BYTES, BLOCK_HEADER_BYTES, BlockHeader, BlockKind, HEAD_BYTES},
    points,
    record::{Lasted, RECORD_BYTES, unpair},
    recorder::{ENTERED, LEFT, WHOLE},
    ticks::Timeline,
    write::after,
};
use std::collections::BTreeMap;

/// Places of damage that are kept; more are counted.
pub const DAMAGE_MAX: usize = 64;

/// A part of a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Where, bytes from the start of the file.
    pub offset: u64,
    /// What was found there, and what is left out because of it.
    pub what: String,
}

/// A trace, checked and indexed.
#[derive(Debug)]
pub struct TraceFile<'a> {
    bytes: &'a [u8],
    header: Header,
    /// By number; numbers that were used and never announced are there without a name.
    threads: Vec<ThreadInfo>,
    blocks: Vec<Block>,
    timeline: Timeline,
    points: BTreeMap<PointId, Point>,
    damage: Vec<Damaged>,
    damage_more: u64,
    end: Option<(u64, u64)>,
}

/// A block of records whose sum was right.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Of its payload.
    offset: usize,
    records: usize,
    thread: u16,
    cpu: u32,
    base: u64,
}

impl<'a> TraceFile<'a> {
    /// Goes through all blocks.
    ///
    /// # Errors
    /// [`NotATrace`], when these are other bytes, or the header is missing without which no record means
    /// anything. Any later damage is no error: see [`damage`](Self::damage).
    pub fn open(bytes: &'a [u8]) -> Result<TraceFile<'a>, NotATrace> {
        block::check_head(bytes)?;
        let unreadable = |why: String| NotATrace::Header { offset: HEAD_BYTES, why };
        let first = BlockHeader::parse(&bytes[HEAD_BYTES..]).map_err(unreadable)?;
        let text = payload(bytes, HEAD_BYTES, &first).map_err(unreadable)?;
        if first.kind != BlockKind::Header {
            return Err(unreadable("the first block is no header".to_owned()));
        }
        let header = Header::parse(text).map_err(unreadable)?;
        let points = header.points.iter().map(|point| (point.id, point.clone())).collect();
        let (timeline, _) = Timeline::new(Vec::new(), header.ticks_per_s);
        let mut file = TraceFile {
            bytes,
            header,
            threads: Vec::new(),
            blocks: Vec::new(),
            timeline,
            points,
            damage: Vec::new(),
            damage_more: 0,
            end: None,
        };
        file.index(HEAD_BYTES + BLOCK_HEADER_BYTES + first.payload_bytes);
        Ok(file)
    }

    /// Who wrote it.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whose records it holds; [`Happening::thread`] counts in this list.
    pub fn threads(&self) -> &[ThreadInfo] {
        &self.threads
    }

    /// What could not be read, in the order of the file.
    pub fn damage(&self) -> &[Damaged] {
        &self.damage
    }

    /// Places of damage beyond those that [`damage`](Self::damage) gives.
    pub fn damage_more(&self) -> u64 {
        self.damage_more
    }

    /// Records in readable blocks.
    pub fn records(&self) -> u64 {
        self.blocks.iter().map(|block| block.records as u64).sum()
    }

    /// Records that the writer had to drop, as its end block says; none if the writer did not get that far.
    pub fn lost(&self) -> Option<u64> {
        self.end.map(|(_, lost)| lost)
    }

    /// What the analysis calls a point.
    pub fn name(&self, point: PointId) -> String {
        match self.points.get(&point) {
            Some(point) => point.name.clone(),
            None => format!("point {}", point.0),
        }
    }

    /// Everything that happened, in the order of the file: per thread in the order of time.
    pub fn happenings(&self) -> Happenings<'_> {
        Happenings { clocks: vec![Clock::default(); self.threads.len()], ..self.at_the_beginning() }
    }

    /// Everything that happened, in the order of time over all threads.
    pub fn in_order(&self) -> InOrder<'_> {
        let mut of: Vec<Vec<u32>> = vec![Vec::new(); self.threads.len()];
        for (number, block) in (0..).zip(&self.blocks) {
            of[usize::from(block.thread)].push(number);
        }
        let threads = of.into_iter().filter(|blocks| !blocks.is_empty());
        InOrder::new(threads.map(|blocks| Happenings {
            clocks: vec![Clock::default()],
            only: Some(blocks),
            ..self.at_the_beginning()
        }))
    }

    fn at_the_beginning(&self) -> Happenings<'_> {
        Happenings {
            file: self,
            timeline: self.timeline.clone(),
            clocks: Vec::new(),
            only: None,
            block: 0,
            record: 0,
            at: 0,
            pending: Pending::default(),
        }
    }

    fn index(&mut self, mut offset: usize) {
        let mut syncs = Vec::new();
        while offset < self.bytes.len() {
            let header = match BlockHeader::parse(&self.bytes[offset..]) {
                Ok(header) => header,
                Err(what) => {
                    let next = BlockHeader::find(self.bytes, offset + ALIGN_BYTES);
                    let end = next.unwrap_or(self.bytes.len());
                    self.damaged(offset, format!("{what}; {} bytes are left out", end - offset));
                    offset = end;
                    continue;
                }
            };
            match payload(self.bytes, offset, &header) {
                Ok(payload) => self.block(offset, &header, payload, &mut syncs),
                Err(what) => self.damaged(offset, what),
            }
            offset = offset.saturating_add(BLOCK_HEADER_BYTES + header.payload_bytes);
        }
        let (timeline, odd) = Timeline::new(syncs, self.header.ticks_per_s);
        self.timeline = timeline;
        if odd > 0 {
            self.damaged(0, format!("{odd} pairs of clock readings go backwards and are left out"));
        }
        match self.end {
            None => {
                let what =
                    "no end block: the writer was stopped, or the file is cut; read up to here";
                self.damaged(self.bytes.len(), what.to_owned());
            }
            Some((records, _)) if records != self.records() => {
                let what = format!(
                    "the end block says {records} records, and {} could be read",
                    self.records()
                );
                self.damaged(self.bytes.len(), what);
            }
            Some(_) => {}
        }
    }

    fn block(
        &mut self,
        offset: usize,
        header: &BlockHeader,
        payload: &[u8],
        syncs: &mut Vec<SyncPoint>,
    ) {
        match header.kind {
            BlockKind::Header => {
                self.damaged(offset, "a second header, which is left out".to_owned());
            }
            BlockKind::Thread => {
                let thread = usize::from(header.thread);
                self.know_threads(thread + 1);
                self.threads[thread] = ThreadInfo::parse(payload);
            }
            BlockKind::Sync if payload.len() == 24 => syncs.push(SyncPoint {
                ticks: block::u64_at(payload, 0),
                monotonic_ns: block::u64_at(payload, 8),
                realtime_ns: block::u64_at(payload, 16),
            }),
            BlockKind::End if payload.len() == 16 => {
                self.end = Some((block::u64_at(payload, 0), block::u64_at(payload, 8)));
            }
            BlockKind::Records if payload.len().is_multiple_of(RECORD_BYTES) => {
                self.know_threads(usize::from(header.thread) + 1);
                self.blocks.push(Block {
                    offset: offset + BLOCK_HEADER_BYTES,
                    records: payload.len() / RECORD_BYTES,
                    thread: header.thread,
                    cpu: header.cpu,
                    base: header.base,
                });
            }
            kind => {
                let what = format!("a {kind:?} block of {} bytes, left out", payload.len());
                self.damaged(offset, what);
            }
        }
    }

    fn know_threads(&mut self, count: usize) {
        if self.threads.len() < count {
            self.threads.resize(count, ThreadInfo::default());
        }
    }

    fn damaged(&mut self, offset: usize, what: String) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(Damaged { offset: offset as u64, what });
        } else {
            self.damage_more += 1;
        }
    }
}

/// The payload of the block at `offset`, if it is there and whole.
fn payload<'a>(bytes: &'a [u8], offset: usize, header: &BlockHeader) -> Result<&'a [u8], String> {
    let from = offset + BLOCK_HEADER_BYTES;
    let Some(payload) = bytes.get(from..from + header.payload_bytes) else {
        let there = bytes.len() - from;
        let wanted = header.payload_bytes;
        return Err(format!("the file is cut: {there} of {wanted} bytes of a block are there"));
    };
    if block::sum(payload) != header.payload_sum {
        let (kind, bytes) = (header.kind, payload.len());
        return Err(format!("a {kind:?} block of {bytes} bytes with a wrong checksum, left out"));
    }
    Ok(payload)
}

/// Something that happened in one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Which, counted in [`TraceFile::threads`].
    pub thread: u16,
    /// Where, if the writer knew.
    pub cpu: Option<u32>,
    /// Nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A function was entered.
    Enter(PointId),
    /// A function was left.
    Leave(PointId),
    /// A call to receive returned frames; stands between the `Enter` and the `Leave` of the call.
    Receive {
        /// Port of the lane.
        port: u8,
        /// Most frames it could have returned; 0 where the lane does not say.
        asked: u16,
        /// Frames that it returned.
        got: u16,
    },
    /// Receive calls that returned nothing, one after the other; the time is their end. No `Enter` or `Leave`
    /// tells of them.
    EmptyRun {
        /// Port of the lane; `None` where they are of no port in particular.
        port: Option<u8>,
        /// How many.
        polls: u32,
        /// From the first one's beginning to here, ns.
        lasted_ns: u64,
    },
    /// What a lane was given to send since the last such event of the port, and what it took.
    Send {
        /// Port of the lane.
        port: u8,
        /// Frames given.
        asked: u16,
        /// Frames taken.
        sent: u16,
    },
    /// The thread left the CPU.
    SwitchedOut {
        /// It could have gone on.
        runnable: bool,
    },
    /// The thread is on a CPU again.
    SwitchedIn,
    /// An interrupt came, by number; softirqs from 65536 on.
    InterruptIn(u32),
    /// ... and is done.
    InterruptOut(u32),
    /// A system call began, by number.
    SyscallIn(u32),
    /// ... and ended.
    SyscallOut(u32),
    /// What the system call returned that ends now: an error, negative, or a result, clipped.
    Returned(i32),
    /// A signal was delivered, by number.
    Signal(u32),
    /// Packets were lost since the last such event of the port and the reason.
    Dropped {
        /// Port of the lane.
        port: u8,
        /// The reason, by its name.
        point: PointId,
        /// How many.
        packets: u64,
    },
    /// The task of this name has the CPU that the thread just left.
    TookOver(Task),
    /// The task of this name made the thread runnable.
    WokenBy(Task),
    /// Something that no rule is for.
    Instant {
        /// What.
        point: PointId,
        /// Its value.
        value: u64,
    },
    /// Records are missing between `from_ns` and now.
    Lost {
        /// The last moment that is told, Unix ns.
        from_ns: u64,
        /// How many.
        records: u64,
    },
}

/// Name of a task as the kernel knows it: at most 15 bytes and a zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task([u8; 16]);

impl Task {
    fn of(first: u64, last: u64) -> Task {
        Task((u128::from(first) | u128::from(last) << 64).to_le_bytes())
    }

    /// The name, as far as it is text.
    pub fn name(&self) -> String {
        let name = self.0.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// How far the time of a thread has come, and the beginning of the name told last.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    time_ns: u64,
    task: u64,
}

/// At most three happenings come of one record; those not given yet, last first.
#[derive(Debug, Default)]
struct Pending {
    happenings: [Option<Happening>; 2],
}

/// The second pass; see [`TraceFile::happenings`].
#[derive(Debug)]
pub struct Happenings<'a> {
    file: &'a TraceFile<'a>,
    timeline: Timeline,
    /// By thread; of one thread only, the first.
    clocks: Vec<Clock>,
    /// Blocks of one thread, by number; otherwise all.
    only: Option<Vec<u32>>,
    block: usize,
    record: usize,
    at: u64,
    pending: Pending,
}

impl Happenings<'_> {
    /// The next record with its block and its time in ticks.
    fn next_record(&mut self) -> Option<(Block, Record, u64)> {
        loop {
            let number = match &self.only {
                Some(blocks) => *blocks.get(self.block)? as usize,
                None => self.block,
            };
            let block = *self.file.blocks.get(number)?;
            if self.record == 0 {
                self.at = block.base;
            }
            if self.record < block.records {
                let from = block.offset + self.record * RECORD_BYTES;
                let bytes = self.file.bytes[from..].first_chunk().expect("the index has checked");
                let record = Record::from_bytes(bytes);
                self.record += 1;
                self.at = after(self.at, record);
                return Some((block, record, self.at));
            }
            self.block += 1;
            self.record = 0;
        }
    }

    /// Decodes a record; the first happening comes back, the others wait.
    fn decode(&mut self, block: Block, record: Record, at: u64) -> Option<Happening> {
        let shape = self.file.points.get(&record.point).map_or(Shape::Instant, |p| p.shape);
        let of = if self.only.is_some() { 0 } else { usize::from(block.thread) };
        let clock = &mut self.clocks[of];
        let offset_ns = self.file.header.unix_offset_ns;
        let before_ns = clock.time_ns;
        let unix_ns = self.timeline.monotonic_ns(at).saturating_add_signed(offset_ns);
        let time_ns = unix_ns.max(before_ns);
        clock.time_ns = time_ns;
        let happening = |time_ns: u64, what: What| Happening {
            thread: block.thread,
            cpu: (block.cpu != block::CPU_UNKNOWN).then_some(block.cpu),
            time_ns,
            what,
        };
        let now = |what: What| Some(happening(time_ns, what));
        let number = record.value as u32;
        let lasted = Lasted::unpack(record);
        let lasted_ns = self.timeline.length_ns(lasted.ticks);
        // A reader must never see time go back, however lengths are rounded.
        let from_ns = time_ns.saturating_sub(lasted_ns).max(before_ns);
        match shape {
            Shape::Time => None,
            Shape::Lost => now(What::Lost { from_ns: before_ns, records: record.value }),
            Shape::Function => match record.small {
                ENTERED => now(What::Enter(record.point)),
                LEFT => now(What::Leave(record.point)),
                _ if lasted.tag == WHOLE => {
                    let leave = happening(time_ns, What::Leave(record.point));
                    self.pending.happenings = [None, Some(leave)];
                    Some(happening(from_ns, What::Enter(record.point)))
                }
                _ => now(What::Instant { point: record.point, value: record.value }),
            },
            Shape::Receive => {
                let (asked, got) = unpair(lasted.argument);
                let leave = happening(time_ns, What::Leave(record.point));
                let receive = What::Receive { port: lasted.tag, asked, got };
                self.pending.happenings = [Some(leave), Some(happening(time_ns, receive))];
                Some(happening(from_ns, What::Enter(record.point)))
            }
            Shape::Came => {
                let (asked, got) = unpair(number);
                now(What::Receive { port: record.small as u8, asked, got })
            }
            Shape::EmptyRun => now(What::EmptyRun {
                port: lasted.tag.checked_sub(1),
                polls: lasted.argument,
                lasted_ns,
            }),
            Shape::Dropped => now(What::Dropped {
                port: record.small as u8,
                point: record.point,
                packets: record.value,
            }),
            Shape::Task => {
                clock.task = record.value;
                None
            }
            Shape::TookOver => now(What::TookOver(Task::of(clock.task, record.value))),
            Shape::WokenBy => now(What::WokenBy(Task::of(clock.task, record.value))),
            Shape::Send => {
                let (asked, sent) = unpair(number);
                now(What::Send { port: record.small as u8, asked, sent })
            }
            Shape::SwitchedOut => now(What::SwitchedOut { runnable: record.small != 0 }),
            Shape::SwitchedIn => now(What::SwitchedIn),
            Shape::InterruptIn => now(What::InterruptIn(number)),
            Shape::InterruptOut => now(What::InterruptOut(number)),
            Shape::SyscallIn => now(What::SyscallIn(number)),
            Shape::SyscallOut => now(What::SyscallOut(number)),
            Shape::SyscallReturned => {
                let out = happening(time_ns, What::SyscallOut(number));
                self.pending.happenings = [None, Some(out)];
                now(What::Returned((record.value >> 32) as i32))
            }
            Shape::Signal => now(What::Signal(number)),
            Shape::Instant => now(What::Instant { point: record.point, value: record.value }),
        }
    }
}

impl Iterator for Happenings<'_> {
    type Item = Happening;

    fn next(&mut self) -> Option<Happening> {
        for waiting in self.pending.happenings.iter_mut().rev() {
            if let Some(happening) = waiting.take() {
                return Some(happening);
            }
        }
        loop {
            let (block, record, at) = self.next_record()?;
            // The restart of time is nothing that happened.
            if record.point == points::TIME {
                continue;
            }
            if let Some(happening) = self.decode(block, record, at) {
                return Some(happening);
            }
        }
    }
}
