//! What several workers add to a client: its commands at other workers, and what it is a guest of.

use super::exchange::{Asking, ClientRef};
use std::collections::VecDeque;

/// What several workers add to a client.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    /// Its commands on their way to another worker.
    pub(crate) flight: Option<Flight>,
    /// A command that waits for those before it, or for room in a queue.
    pub(crate) deferred: Option<Vec<Box<[u8]>>>,
    /// The parts of a command that concerns all workers, as far as they are there.
    pub(crate) gather: Option<Gather>,
    /// Workers at which it has a guest: a bit each.
    pub(crate) visited: u64,
    /// The slot of what it watches.
    pub(crate) watched: Option<u16>,
    /// It stands for a client of another worker.
    pub(crate) guest: Option<Guest>,
}

/// Commands on their way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) to: usize,
    pub(crate) commands: usize,
    /// Nothing may follow before the answer: it may change what the client is.
    pub(crate) is_alone: bool,
    /// One of them may wait for data.
    pub(crate) may_block: bool,
}

/// Parts of a reply.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) index: usize,
    pub(crate) args: Vec<Box<[u8]>>,
    /// By worker.
    pub(crate) parts: Vec<Option<Vec<u8>>>,
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
    pub(crate) home: usize,
    /// That client there.
    pub(crate) place: ClientRef,
    /// A command was begun and has not ended.
    pub(crate) is_running: bool,
    /// That command is a part of what concerns all workers.
    pub(crate) is_part: bool,
    /// What is asked meanwhile; bounded by what the client may have on its way.
    pub(crate) inbox: VecDeque<Asked>,
    /// Where the replies to commands end that have not been sent.
    pub(crate) ends: VecDeque<usize>,
}

impl Guest {
    pub(crate) fn is_part(&self) -> bool {
        self.is_part
    }
}

#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) asking: Asking,
    pub(crate) args: Vec<Box<[u8]>>,
}
