//! Reads a file back, as far as it goes.
//!
//! A first pass goes from block to block, checks their sums, and gathers threads, syncs and names of tasks
//! ([`crate::index`]); so a later event can be placed between the sync before and the one after it. The second pass,
//! [`TraceFile::happenings`] or [`TraceFile::in_order`], reads the blocks again and decodes records. Both read through
//! windows ([`crate::store`]): memory is that of the tables, and of a file of many threads some two bytes per block
//! more.
//!
//! What must always hold: no bytes make it panic, also not bytes that change between the passes; damage is reported
//! with its offset and what is left out because of it, at most [`DAMAGE_MAX`] places; the times of one thread never
//! decrease; a record of something that lasted gives its beginning and its end, in this order, and never begins before
//! the end of the record before it.

use crate::{
    Header, InOrder, NotATrace, Point, PointId, Record, Shape, ThreadInfo,
    block::{self, BLOCK_HEADER_BYTES, BlockHeader, BlockKind, HEAD_BYTES},
    index::{Index, is_of_records},
    points,
    record::{Lasted, RECORD_BYTES, unpair},
    recorder::{ENTERED, LEFT, WHOLE},
    store::{Found, Pieces, Store, WALK_BYTES, Walk, Window},
    ticks::Timeline,
    write::after,
};
use std::{collections::BTreeMap, fs::File, io};

/// Bytes of the windows of all threads together, and of one at least and at most.
const WINDOWS_BYTES: usize = 16 << 20;
const WINDOW_BYTES_MIN: usize = 512;
const WINDOW_BYTES_MAX: usize = 64 << 10;
/// Records that are taken from a window at a time.
const AHEAD_RECORDS: usize = 32;

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
    store: Store<'a>,
    header: Header,
    points: BTreeMap<PointId, Point>,
    /// Offset of the first block behind the header's.
    first: u64,
    index: Index,
    timeline: Timeline,
}

impl<'a> TraceFile<'a> {
    /// Goes through all blocks of a file that is in memory.
    ///
    /// # Errors
    /// [`NotATrace`], when these are other bytes, or the header is missing without which no record means
    /// anything. Any later damage is no error: see [`damage`](Self::damage).
    pub fn open(bytes: &'a [u8]) -> Result<TraceFile<'a>, NotATrace> {
        Self::of(Store::Memory(bytes))
    }

    /// Goes through all blocks of a file, as long as it is now. Records are read from it when they are asked for.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when the file system fails at the beginning of the file.
    pub fn open_file(file: File) -> Result<TraceFile<'static>, NotATrace> {
        let bytes = file.metadata().map_err(|error| NotATrace::unreadable(&error))?.len();
        TraceFile::of(Store::File { file, bytes })
    }

    fn of(store: Store<'a>) -> Result<TraceFile<'a>, NotATrace> {
        let failed = |error: io::Error| NotATrace::unreadable(&error);
        let wrong = |why: String| NotATrace::Header { offset: HEAD_BYTES, why };
        let mut window = Window::new(WALK_BYTES);
        block::check_head(window.get(&store, 0, HEAD_BYTES).map_err(failed)?)?;
        let at = HEAD_BYTES as u64;
        let first = window.get(&store, at, BLOCK_HEADER_BYTES).map_err(failed)?;
        let first = BlockHeader::parse(first).map_err(wrong)?;
        let text = window.payload(&store, at, &first).map_err(failed)?.map_err(wrong)?;
        if first.kind != BlockKind::Header {
            return Err(wrong("the first block is no header".to_owned()));
        }
        let header = Header::parse(text).map_err(wrong)?;
        let points = header.points.iter().map(|point| (point.id, point.clone())).collect();
        let first = at + (BLOCK_HEADER_BYTES + first.payload_bytes) as u64;
        let (index, timeline) = Index::of(&store, &header, Walk::new(first, window));
        Ok(TraceFile { store, header, points, first, index, timeline })
    }

    /// The program that wrote it.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whose records it holds; [`Happening::thread`] counts in this list.
    pub fn threads(&self) -> &[ThreadInfo] {
        &self.index.threads
    }

    /// Tasks that took over a CPU or woke a thread, in the order of the file, each once; at most 4,096.
    pub fn tasks(&self) -> &[Task] {
        &self.index.tasks
    }

    /// What could not be read, in the order of the file.
    pub fn damage(&self) -> &[Damaged] {
        &self.index.damage
    }

    /// Places of damage beyond those that [`damage`](Self::damage) gives.
    pub fn damage_more(&self) -> u64 {
        self.index.damage_more
    }

    /// Records in readable blocks.
    pub fn records(&self) -> u64 {
        self.index.records
    }

    /// Records that the writer had to drop, as its end block says; none if the writer did not get that far.
    pub fn lost(&self) -> Option<u64> {
        self.index.end.map(|(_, lost)| lost)
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
        let walk = Walk::new(self.first, Window::new(WALK_BYTES));
        self.by(Way::Whole(walk), self.threads().len())
    }

    /// Everything that happened, in the order of time over all threads.
    pub fn in_order(&self) -> InOrder<'_> {
        let threads = || self.index.blocks.iter().filter(|places| !places.is_empty());
        let share = WINDOWS_BYTES / threads().count().max(1);
        let room = share.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        InOrder::new(threads().map(|places| self.by(Way::Thread(Pieces::new(places, room)), 1)))
    }

    fn by<'f>(&'f self, way: Way<'f>, clocks: usize) -> Happenings<'f> {
        Happenings {
            file: self,
            timeline: self.timeline.clone(),
            clocks: vec![Clock::default(); clocks],
            way,
            block: Of { thread: 0, cpu: block::CPU_UNKNOWN },
            records: Vec::new(),
            next: 0,
            at: 0,
            pending: Pending::default(),
            failed: None,
        }
    }
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
    /// An interrupt arrived, by number; softirqs from 65536 on.
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
    /// The task of this name has the CPU that the thread just left, or had it until the thread is on it now.
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
        /// The last moment that is recorded, Unix ns.
        from_ns: u64,
        /// How many.
        records: u64,
    },
}

/// Name of a task as the kernel knows it: at most 15 bytes and a zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task([u8; 16]);

impl Task {
    pub(crate) fn of(first: u64, last: u64) -> Task {
        Task((u128::from(first) | u128::from(last) << 64).to_le_bytes())
    }

    /// The name, as far as it is text.
    pub fn name(&self) -> String {
        let name = self.0.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// How far the time of a thread has come, and the beginning of the name read last.
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

/// Where the records come from.
#[derive(Debug)]
enum Way<'a> {
    /// All blocks, one after the other.
    Whole(Walk),
    /// Those of one thread.
    Thread(Pieces<'a>),
}

/// Whose the records are that are at hand.
#[derive(Clone, Copy, Debug)]
struct Of {
    thread: u16,
    cpu: u32,
}

/// The second pass; see [`TraceFile::happenings`].
#[derive(Debug)]
pub struct Happenings<'a> {
    file: &'a TraceFile<'a>,
    timeline: Timeline,
    /// By thread; of one thread only, the first.
    clocks: Vec<Clock>,
    way: Way<'a>,
    block: Of,
    /// Of `block`, read and not decoded from `next` on.
    records: Vec<Record>,
    next: usize,
    at: u64,
    pending: Pending,
    failed: Option<io::Error>,
}

impl Happenings<'_> {
    /// Why they ended before the end of the file, if the file system failed.
    pub fn failed(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    /// The next record and its time in ticks.
    fn next_record(&mut self) -> Option<(Record, u64)> {
        loop {
            if let Some(&record) = self.records.get(self.next) {
                self.next += 1;
                self.at = after(self.at, record);
                return Some((record, self.at));
            }
            self.next = 0;
            self.records.clear();
            match self.load() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.failed = Some(error);
                    return None;
                }
            }
        }
    }

    /// Reads the next records, or goes on to where they are; false at the end.
    fn load(&mut self) -> io::Result<bool> {
        let store = &self.file.store;
        let (begins, bytes) = match &mut self.way {
            Way::Whole(walk) => match walk.next(store) {
                None => return Ok(false),
                Some(Found::Failed { error, .. }) => return Err(error),
                Some(Found::Block { header, payload, .. }) if is_of_records(&header) => {
                    (Some(header), payload)
                }
                // Reported by the index.
                Some(Found::Block { .. } | Found::Damage { .. }) => return Ok(true),
            },
            Way::Thread(pieces) => match pieces.next(store, AHEAD_RECORDS * RECORD_BYTES)? {
                None => return Ok(false),
                Some(piece) => (piece.begins, piece.bytes),
            },
        };
        if let Some(header) = begins {
            self.block = Of { thread: header.thread, cpu: header.cpu };
            self.at = header.base;
        }
        self.records.extend(bytes.as_chunks().0.iter().map(Record::from_bytes));
        Ok(true)
    }

    /// Decodes a record; the first happening comes back, the others wait.
    fn decode(&mut self, record: Record, at: u64) -> Option<Happening> {
        let block = self.block;
        let shape = self.file.points.get(&record.point).map_or(Shape::Instant, |p| p.shape);
        let of = match self.way {
            Way::Whole(_) => usize::from(block.thread),
            Way::Thread(_) => 0,
        };
        // A file that changed may have threads that were not there.
        let clock = self.clocks.get_mut(of)?;
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
            Shape::ReceivedWithin => {
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
            let (record, at) = self.next_record()?;
            // The restart of time is nothing that happened.
            if record.point == points::TIME {
                continue;
            }
            if let Some(happening) = self.decode(record, at) {
                return Some(happening);
            }
        }
    }
}
