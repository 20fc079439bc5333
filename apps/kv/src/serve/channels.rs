//! The subscriptions. [`messages`](super::messages) is what the server does with them.

use super::key::Key;
use std::collections::BTreeMap;

/// The listeners of each name.
pub(super) type Listeners = BTreeMap<Box<[u8]>, Vec<Key>>;

/// The subscriptions. In the order of names, listeners in the order in which they subscribed.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    pub(super) channels: Listeners,
    pub(super) patterns: Listeners,
    /// The channels of a cluster's shards, which have names of their own. Without a cluster there is one such shard.
    pub(super) shards: Listeners,
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

    pub(super) fn of(&mut self, kind: Kind) -> &mut Listeners {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
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
