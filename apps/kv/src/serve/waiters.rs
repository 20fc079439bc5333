//! The clients that wait, by key and by time. [`blocked`](super::blocked) is what the server does with them.

use super::key::{DataKey, Key};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// All clients that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    pub(super) by_key: HashMap<DataKey, VecDeque<Key>>,
    pub(super) by_time: BTreeSet<(u64, Key)>,
    /// Keys that were touched and are waited for, in their order, each once.
    ready: VecDeque<DataKey>,
    is_ready: HashSet<DataKey>,
    pub(super) count: usize,
    /// Clients whose commands are held back, in their order.
    pub(crate) postponed: Vec<Key>,
    /// Some of them were held back while too many were on their way to a cluster.
    pub(crate) awaits_cluster: bool,
    pub(super) pause: Option<Pause>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    pub(super) until_ms: u64,
    pub(super) holds_all: bool,
}

impl Waiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn touch(&mut self, key: &DataKey) {
        if self.count > 0 && self.by_key.contains_key(key) && self.is_ready.insert(key.clone()) {
            self.ready.push_back(key.clone());
        }
    }

    /// The next key that was touched and is waited for.
    pub(crate) fn next_ready(&mut self) -> Option<DataKey> {
        let key = self.ready.pop_front()?;
        self.is_ready.remove(&key);
        Some(key)
    }

    /// All keys of a database are others now.
    pub(crate) fn touch_all(&mut self, database: usize) {
        let mut keys: Vec<DataKey> =
            self.by_key.keys().filter(|(of, _)| *of == database).cloned().collect();
        // In one order in every run.
        keys.sort_unstable();
        keys.iter().for_each(|key| self.touch(key));
    }

    /// True if a pause holds back a command that may write, or may not.
    pub(crate) fn pause_holds(&self, may_write: bool, now_ms: u64) -> bool {
        self.pause.is_some_and(|pause| pause.until_ms > now_ms && (pause.holds_all || may_write))
    }

    /// When the next of them has waited long enough, milliseconds since 1970.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        let pause = self.pause.map(|pause| pause.until_ms);
        self.by_time.first().map(|(until_ms, _)| *until_ms).into_iter().chain(pause).min()
    }
}
