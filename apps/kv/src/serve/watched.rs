//! The watching clients. [`transaction`](super::transaction) is what the server does with them.

use super::client::Clients;
use super::key::{DataKey, Key};
use std::collections::{HashMap, HashSet};

/// The watching clients, by key.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(super) by_key: HashMap<DataKey, Vec<Watcher>>,
    /// A client that is being served is not in the table of clients: it stands here until it watches nothing, once.
    pub(super) spoiled: HashSet<Key>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Watcher {
    pub(super) client: Key,
    /// The key was there when it began to watch; what has changed since has spoiled its transaction.
    pub(super) was_there: bool,
}

impl Watched {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The key is another now, or gone: one that was not there and is not there is the same.
    pub(crate) fn touch(
        &mut self,
        key: &DataKey,
        is_there: impl FnOnce() -> bool,
        clients: &mut Clients,
    ) {
        if self.by_key.is_empty() {
            return;
        }
        let Some(watchers) = self.by_key.get(key) else { return };
        let is_there = is_there();
        for watcher in watchers.iter().filter(|watcher| watcher.was_there || is_there) {
            spoil(watcher.client, clients, &mut self.spoiled);
        }
    }

    /// True if the key was there when a client began to watch it.
    pub(super) fn was_there(&self, key: &DataKey, client: Key) -> bool {
        let mut watchers = self.by_key.get(key).into_iter().flatten();
        watchers.any(|watcher| watcher.client == client && watcher.was_there)
    }

    /// All keys of a database are others now, or gone.
    pub(crate) fn replace(
        &mut self,
        database: usize,
        is_there: impl Fn(&[u8]) -> bool,
        clients: &mut Clients,
    ) {
        for ((_, key), watchers) in self.by_key.iter().filter(|((of, _), _)| *of == database) {
            let is_there = is_there(key);
            for watcher in watchers.iter().filter(|watcher| watcher.was_there || is_there) {
                spoil(watcher.client, clients, &mut self.spoiled);
            }
        }
    }

    pub(super) fn forget(&mut self, key: &DataKey, watcher: Key) {
        if let Some(watchers) = self.by_key.get_mut(key) {
            watchers.retain(|other| other.client != watcher);
            if watchers.is_empty() {
                self.by_key.remove(key);
            }
        }
    }
}

fn spoil(watcher: Key, clients: &mut Clients, spoiled: &mut HashSet<Key>) {
    match clients.get_mut(watcher) {
        Some(client) => client.is_spoiled = true,
        None => {
            spoiled.insert(watcher);
        }
    }
}
