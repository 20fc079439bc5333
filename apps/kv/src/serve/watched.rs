//! The watching clients. [`transaction`](super::transaction) is what the server does with them.

use super::client::Clients;
use super::key::{DataKey, Key};
use std::collections::HashMap;

/// The watching clients, by key.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(super) by_key: HashMap<DataKey, Vec<Key>>,
    /// A client that is being served is not in the table of clients: it is spoiled when it is put back.
    pub(super) spoiled: Vec<Key>,
}

impl Watched {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub(crate) fn touch(&mut self, key: &DataKey, clients: &mut Clients) {
        if self.by_key.is_empty() {
            return;
        }
        for &watcher in self.by_key.get(key).into_iter().flatten() {
            spoil(watcher, clients, &mut self.spoiled);
        }
    }

    /// All keys of a database are gone.
    pub(crate) fn flush(&mut self, database: usize, clients: &mut Clients) {
        for (_, watchers) in self.by_key.iter().filter(|((of, _), _)| *of == database) {
            for &watcher in watchers {
                spoil(watcher, clients, &mut self.spoiled);
            }
        }
    }

    pub(super) fn forget(&mut self, key: &DataKey, watcher: Key) {
        if let Some(watchers) = self.by_key.get_mut(key) {
            watchers.retain(|&other| other != watcher);
            if watchers.is_empty() {
                self.by_key.remove(key);
            }
        }
    }
}

fn spoil(watcher: Key, clients: &mut Clients, spoiled: &mut Vec<Key>) {
    match clients.get_mut(watcher) {
        Some(client) => client.is_spoiled = true,
        None => spoiled.push(watcher),
    }
}
