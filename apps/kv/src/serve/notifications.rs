//! Events of keys on their way to those who listen (`notify-keyspace-events`).
//!
//! A command makes its events in the middle of a turn, when a listener may be the client that is being served, and
//! before what it did is durable. So events wait here, in their order, and are published at the end of the turn in
//! which their record is durable; listeners of other workers are sent them then, if those workers have any.
//!
//! What must always hold: events are published in the order in which they happened, and none before its record is
//! durable where replies wait for that (`always`). What waits is bounded: writes wait while it is too much.

use crate::event::KeyEvent;
use std::collections::VecDeque;

/// Beyond it writes wait, ahead of what one command adds. Events of 100,000s of keys, far more than a turn has.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// What was not published yet.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    /// Each with the record that must be durable before; 0: none.
    waiting: VecDeque<(u64, KeyEvent)>,
    bytes: usize,
}

impl Notifications {
    pub(crate) fn add(&mut self, record: u64, event: KeyEvent) {
        self.bytes += size(&event);
        self.waiting.push_back((record, event));
    }

    /// The next one, if so many records are durable.
    pub(crate) fn next(&mut self, durable: u64) -> Option<KeyEvent> {
        let (_, event) = self.waiting.pop_front_if(|(record, _)| *record <= durable)?;
        self.bytes -= size(&event);
        Some(event)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What waits may be lost: it is never published.
    pub(crate) fn clear(&mut self) {
        *self = Notifications::default();
    }

    /// True while writes must wait.
    pub(crate) fn is_behind(&self) -> bool {
        self.bytes > WAITING_BYTES_MAX
    }
}

fn size(event: &KeyEvent) -> usize {
    size_of::<(u64, KeyEvent)>() + event.key.len()
}
