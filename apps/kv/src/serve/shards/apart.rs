//! What several workers add to a client: its commands at other workers, and what it is a guest of.

use super::super::OWED_BYTES_MAX;
use super::exchange::{Asking, ClientRef};
use std::collections::VecDeque;

/// What several workers add to a client.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    /// Its commands on their way to another worker.
    pub(in crate::serve) flight: Option<Flight>,
    /// A command that waits for those before it, or for room in a queue.
    pub(in crate::serve) deferred: Option<Vec<Box<[u8]>>>,
    /// The parts of a command that concerns all workers, as far as they are there.
    pub(in crate::serve) gather: Option<Gather>,
    /// Workers at which it has a guest: a bit each.
    pub(in crate::serve) visited: u64,
    /// The slot of what it watches.
    pub(in crate::serve) watched: Option<u16>,
    /// It stands for a client of another worker.
    pub(in crate::serve) guest: Option<Guest>,
}

/// Commands on their way.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct Flight {
    pub(in crate::serve) to: usize,
    pub(in crate::serve) commands: usize,
    /// Nothing may follow before the answer: it may change what the client is.
    pub(in crate::serve) is_alone: bool,
    /// One of them may wait for data.
    pub(in crate::serve) may_block: bool,
    /// Bytes of answers since it began, or since that worker was informed that the client reads them.
    pub(in crate::serve) bytes: usize,
}

/// Parts of a reply.
#[derive(Debug)]
pub(in crate::serve) struct Gather {
    pub(in crate::serve) index: usize,
    pub(in crate::serve) args: Vec<Box<[u8]>>,
    /// By worker.
    pub(in crate::serve) parts: Vec<Option<Vec<u8>>>,
}

impl Gather {
    /// Bytes of the parts that are there.
    pub(in crate::serve) fn bytes(&self) -> usize {
        self.parts.iter().flatten().map(Vec::len).sum()
    }
}

impl Apart {
    /// True while no further command of the client is to be read.
    pub(crate) fn is_held(&self) -> bool {
        self.deferred.is_some() || self.gather.is_some() || self.may_wait_for_data()
    }

    /// True while an answer of another worker is awaited.
    pub(crate) fn is_awaited(&self) -> bool {
        self.flight.is_some() || self.gather.is_some() || self.deferred.is_some()
    }

    /// True if a command waits for data at another worker, as far as this one knows.
    pub(crate) fn may_wait_for_data(&self) -> bool {
        self.flight.is_some_and(|flight| flight.may_block)
    }
}

/// What makes a client a guest.
#[derive(Debug)]
pub(crate) struct Guest {
    /// The worker of the client that it stands for.
    pub(in crate::serve) home: usize,
    /// That client there.
    pub(in crate::serve) place: ClientRef,
    /// A command was begun and has not ended.
    pub(in crate::serve) is_running: bool,
    /// That command is a part of what concerns all workers.
    pub(in crate::serve) is_part: bool,
    /// What is asked meanwhile; bounded by what the client may have on its way.
    pub(in crate::serve) inbox: VecDeque<Asked>,
    /// Where the replies to commands end that have not been sent.
    pub(in crate::serve) ends: VecDeque<usize>,
    /// Bytes of answers since it was idle, or since the client was reported to read them. The client's worker counts
    /// no fewer, so it reports that whenever this is too much.
    pub(in crate::serve) bytes: usize,
}

impl Guest {
    pub(crate) fn is_part(&self) -> bool {
        self.is_part
    }

    /// True while it begins no command: it runs one, or its client is owed enough, with so many bytes that wait here.
    pub(crate) fn is_busy(&self, waiting: usize) -> bool {
        self.is_running || self.bytes + waiting > OWED_BYTES_MAX
    }
}

#[derive(Debug)]
pub(in crate::serve) struct Asked {
    pub(in crate::serve) asking: Asking,
    pub(in crate::serve) args: Vec<Box<[u8]>>,
}
