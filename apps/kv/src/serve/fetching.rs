//! The commands that wait for values. [`fetch`](super::fetch) is what the server does with them.

use super::key::Key;
use std::collections::HashMap;

/// Commands that wait for values.
#[derive(Debug, Default)]
pub(crate) struct Fetching {
    /// The commands that wait for a value, by the value's number.
    pub(super) by_value: HashMap<u64, Vec<u64>>,
    pub(super) waiting: HashMap<u64, Waiting>,
    /// The number of the next that waits.
    pub(super) next: u64,
    /// The value store has no room, and memory is over its limit.
    pub(super) is_behind: bool,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) client: Key,
    /// Values that have not been answered.
    pub(super) left: usize,
    /// Why one of them is lost.
    pub(super) lost: Option<String>,
}

impl Fetching {
    /// True while writes must wait for the value store.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// True if a command waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// No command of the client waits for values any more.
    pub(crate) fn forget(&mut self, client: Key) {
        self.waiting.retain(|_, waiting| waiting.client != client);
    }
}
