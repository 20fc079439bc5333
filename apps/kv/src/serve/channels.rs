//! The subscriptions. [`messages`](super::messages) is what the server does with them.

use super::key::Key;
use std::collections::BTreeMap;

/// The subscriptions. In the order of names, listeners in the order in which they subscribed.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    pub(super) channels: BTreeMap<Box<[u8]>, Vec<Key>>,
    pub(super) patterns: BTreeMap<Box<[u8]>, Vec<Key>>,
    /// The channels of a cluster's shards, which have names of their own. Without a cluster there is one such shard.
    pub(super) shards: BTreeMap<Box<[u8]>, Vec<Key>>,
}

/// One of the kinds of subscription.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Channel,
    Pattern,
    Shard,
}

impl Channels {
    /// True if a message may have a listener here.
    pub(super) fn has_listeners(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty()
    }

    pub(super) fn of(&mut self, kind: Kind) -> &mut BTreeMap<Box<[u8]>, Vec<Key>> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    pub(crate) fn channels(&self) -> usize {
        self.channels.len()
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    pub(crate) fn patterns(&self) -> usize {
        self.patterns.len()
    }

    pub(super) fn leave(&mut self, kind: Kind, name: &[u8], listener: Key) {
        let of = self.of(kind);
        if let Some(listeners) = of.get_mut(name) {
            listeners.retain(|&other| other != listener);
            if listeners.is_empty() {
                of.remove(name);
            }
        }
    }
}
