//! What goes from a reader on one core to the consumer on another: events of one stream, in blocks.

use crate::about::ReadError;
use crate::event::{Damage, Event, Loss};
use crate::symbols::ProcessFact;

/// Events of a block; with 24 bytes each it stays in the second-level cache between decoding and consuming.
pub(crate) const BLOCK_EVENTS: usize = 8192;
/// Most damages kept per block.
const BLOCK_DAMAGES_MAX: usize = 64;

/// Something that gives events in the order of time.
pub(crate) trait Source: Send {
    /// As a person would look for it.
    fn place(&self) -> &str;

    /// Decodes the next events into `block`, which is emptied first.
    ///
    /// # Errors
    /// [`ReadError`] if the file system fails.
    fn fill(&mut self, block: &mut Block) -> Result<(), ReadError>;
}

/// Events of one stream, in time order.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) events: Vec<Event>,
    pub(crate) runs: Vec<Run>,
    /// Threads first seen, or renamed, in this block, by their number in the stream.
    pub(crate) threads: Vec<(u32, Who)>,
    /// Addresses of pools first seen in this block; their numbers in the stream go on counting.
    pub(crate) pools: Vec<u64>,
    pub(crate) facts: Vec<ProcessFact>,
    pub(crate) damages: Vec<Damage>,
    pub(crate) damages_more: u64,
    /// Behind the last event.
    pub(crate) loss: Option<Loss>,
    /// The only thread that lost events, where it is known.
    pub(crate) loss_of: Option<u32>,
    pub(crate) records: u64,
    pub(crate) entries: u64,
    pub(crate) exits: u64,
    /// Records that tell about a process and give no event.
    pub(crate) describing: u64,
    pub(crate) has_pools: bool,
    /// The stream has no more.
    pub(crate) ended: bool,
}

impl Block {
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.runs.clear();
        self.threads.clear();
        self.pools.clear();
        self.facts.clear();
        self.damages.clear();
        (self.loss, self.loss_of) = (None, None);
        (self.records, self.entries, self.exits, self.damages_more) = (0, 0, 0, 0);
        self.describing = 0;
        (self.has_pools, self.ended) = (false, false);
    }

    /// What tells about the process is kept, too, and bounded likewise.
    pub(crate) fn full(&self) -> bool {
        self.events.len() >= BLOCK_EVENTS || self.facts.len() >= BLOCK_EVENTS
    }

    pub(crate) fn push(&mut self, thread: u32, cpu: Option<u32>, event: Event) {
        self.events.push(event);
        self.extend_run(thread, cpu);
    }

    /// The events since the last run are of this thread.
    pub(crate) fn extend_run(&mut self, thread: u32, cpu: Option<u32>) {
        let end = self.events.len();
        match self.runs.last_mut() {
            Some(run) if run.thread == thread && run.cpu == cpu => run.end = end,
            _ => self.runs.push(Run { thread, cpu, end }),
        }
    }

    pub(crate) fn damage(&mut self, place: &str, offset: u64, what: String) {
        if self.damages.len() < BLOCK_DAMAGES_MAX {
            self.damages.push(Damage { place: place.into(), offset, what });
        } else {
            self.damages_more += 1;
        }
    }
}

/// Events of one thread on one CPU in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Number in the stream.
    pub(crate) thread: u32,
    pub(crate) cpu: Option<u32>,
    /// Index behind its last event in the block.
    pub(crate) end: usize,
}

/// A thread as a stream tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) pid: u32,
    /// `None`: the stream tells no thread, and is one by itself.
    pub(crate) tid: Option<u32>,
    /// The process is not known; the number of the thread is that of the whole host.
    pub(crate) of_host: bool,
    pub(crate) name: String,
}
