//! The first pass over a file: what its blocks say, and what is wrong with them.
//!
//! All tables have a limit but one: where the blocks of each thread of many are, some two bytes for each.

use crate::{
    Damaged, Header, PointId, Record, Shape, SyncPoint, Task, ThreadInfo,
    block::{self, BlockHeader, BlockKind},
    record::RECORD_BYTES,
    store::{Found, Places, Store, Walk},
    ticks::{Syncs, Timeline},
};
use std::collections::HashSet;

/// Places of damage that are kept; more are counted.
pub const DAMAGE_MAX: usize = 64;

/// Most names of tasks that are distinguished in one file.
const TASKS_MAX: usize = 4_096;

/// What the blocks of a file say.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// By number; numbers that were used and never announced are there without a name.
    pub(crate) threads: Vec<ThreadInfo>,
    /// Where the blocks with records of each thread are.
    pub(crate) blocks: Vec<Places>,
    pub(crate) records: u64,
    pub(crate) tasks: Vec<Task>,
    pub(crate) damage: Vec<Damaged>,
    pub(crate) damage_more: u64,
    /// Records written and lost, as the end block says.
    pub(crate) end: Option<(u64, u64)>,
}

impl Index {
    /// Goes through all blocks.
    pub(crate) fn of(store: &Store<'_>, header: &Header, mut walk: Walk) -> (Index, Timeline) {
        let mut index = Index::default();
        let mut syncs = Syncs::default();
        let mut names = Names::of(header);
        while let Some(found) = walk.next(store) {
            match found {
                Found::Block { offset, header, payload } => {
                    index.block(offset, &header, payload, &mut syncs);
                    if is_of_records(&header) {
                        names.gather(header.thread, payload, &mut index.tasks);
                    }
                }
                Found::Damage { offset, what } => index.damaged(offset, what),
                Found::Failed { offset, error } => {
                    let left = store.bytes().saturating_sub(offset);
                    let what = format!("cannot be read: {error}; {left} bytes are left out");
                    index.damaged(offset, what);
                }
            }
        }
        let (timeline, odd) = Timeline::new(syncs.kept(), header.ticks_per_s);
        if odd > 0 {
            index
                .damaged(0, format!("{odd} pairs of clock readings go backwards and are left out"));
        }
        match index.end {
            None => {
                let what =
                    "no end block: the writer was stopped, or the file is cut; read up to here";
                index.damaged(store.bytes(), what.to_owned());
            }
            Some((records, _)) if records != index.records => {
                let read = index.records;
                let what =
                    format!("the end block says {records} records, and {read} could be read");
                index.damaged(store.bytes(), what);
            }
            Some(_) => {}
        }
        (index, timeline)
    }

    fn block(&mut self, offset: u64, header: &BlockHeader, payload: &[u8], syncs: &mut Syncs) {
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
            BlockKind::Records if is_of_records(header) => {
                let thread = usize::from(header.thread);
                self.know_threads(thread + 1);
                self.records += (payload.len() / RECORD_BYTES) as u64;
                self.blocks[thread].push(offset);
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
            self.blocks.resize(count, Places::default());
        }
    }

    fn damaged(&mut self, offset: u64, what: String) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(Damaged { offset, what });
        } else {
            self.damage_more += 1;
        }
    }
}

/// Names of tasks: half of one in a record, half in the record that uses it.
struct Names {
    /// The points of these records; empty in files that have none.
    points: Vec<(PointId, Shape)>,
    known: HashSet<Task>,
    /// The half that was recorded last, by thread.
    half: Vec<u64>,
}

impl Names {
    fn of(header: &Header) -> Names {
        let tells = |shape| matches!(shape, Shape::Task | Shape::TookOver | Shape::WokenBy);
        let points = header.points.iter().map(|point| (point.id, point.shape));
        Names {
            points: points.filter(|point| tells(point.1)).collect(),
            known: HashSet::new(),
            half: Vec::new(),
        }
    }

    fn gather(&mut self, thread: u16, payload: &[u8], tasks: &mut Vec<Task>) {
        if self.points.is_empty() {
            return;
        }
        let thread = usize::from(thread);
        if self.half.len() <= thread {
            self.half.resize(thread + 1, 0);
        }
        for record in payload.as_chunks().0.iter().map(Record::from_bytes) {
            // Of two points with one number the later one counts, as in the table of points.
            let point = self.points.iter().rev().find(|point| point.0 == record.point);
            match point {
                Some((_, Shape::Task)) => self.half[thread] = record.value,
                Some(_) if tasks.len() < TASKS_MAX => {
                    let task = Task::of(self.half[thread], record.value);
                    if self.known.insert(task) {
                        tasks.push(task);
                    }
                }
                _ => {}
            }
        }
    }
}

/// True if a block holds whole records.
pub(crate) fn is_of_records(header: &BlockHeader) -> bool {
    header.kind == BlockKind::Records && header.payload_bytes.is_multiple_of(RECORD_BYTES)
}
