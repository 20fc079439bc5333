//! Events of keys on their way to those who listen (`notify-keyspace-events`).
//!
//! A command makes its events in the middle of a turn, when a listener may be the client that is being served, and
//! before what it did is durable. So events wait here, in their order, and are published at the end of the turn in
//! which their record is durable; listeners of other workers are sent them then, if those workers have any.
//!
//! What must always hold: events are published in the order in which they happened, and none before its record is
//! durable where replies wait for that (`always`). What waits is bounded: writes wait while it is too much, and what
//! reads find missing has no event then.

use crate::event::{KeyEvent, MISSED};
use std::collections::VecDeque;

/// Beyond it writes wait, ahead of what one command adds. Events of 100,000s of keys, far more than a turn has.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Published at once: then what listeners were sent leaves, before there is more than they may be owed.
const AT_ONCE_BYTES_MAX: usize = 1 << 20;

/// What was not published yet.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    /// Each with the record that must be durable before; 0: none.
    waiting: VecDeque<(u64, KeyEvent)>,
    bytes: usize,
    at_once_bytes: usize,
}

impl Notifications {
    pub(crate) fn add(&mut self, record: u64, event: KeyEvent) {
        if self.is_behind() && event.name == MISSED.name {
            return;
        }
        self.bytes += size(&event);
        self.waiting.push_back((record, event));
    }

    /// Begins to publish. False: nothing waits.
    pub(crate) fn begin(&mut self) -> bool {
        self.at_once_bytes = 0;
        !self.waiting.is_empty()
    }

    /// The next one, if so many records are durable and it is not too much at once.
    pub(crate) fn next(&mut self, durable: u64) -> Option<KeyEvent> {
        if self.at_once_bytes > AT_ONCE_BYTES_MAX {
            return None;
        }
        let (_, event) = self.waiting.pop_front_if(|(record, _)| *record <= durable)?;
        self.bytes -= size(&event);
        self.at_once_bytes += size(&event);
        Some(event)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &'static str, key_bytes: usize) -> KeyEvent {
        KeyEvent { database: 0, name, key: vec![b'k'; key_bytes].into() }
    }

    #[test]
    fn what_waits_is_bounded_for_reads_and_is_published_in_parts() {
        let mut waiting = Notifications::default();
        for _ in 0..100 {
            waiting.add(1, event("set", WAITING_BYTES_MAX / 50));
            waiting.add(0, event(MISSED.name, 1));
        }
        let missed = waiting.waiting.iter().filter(|(_, event)| event.name == MISSED.name).count();
        assert!(waiting.is_behind() && (1..51).contains(&missed), "{missed}");
        assert!(waiting.begin() && waiting.next(0).is_none(), "its record is not durable");
        let mut parts = 0;
        while waiting.begin() {
            let part = std::iter::from_fn(|| waiting.next(1)).map(|event| size(&event));
            assert!(part.sum::<usize>() <= 2 * AT_ONCE_BYTES_MAX);
            parts += 1;
        }
        assert!(parts > 20 && !waiting.is_behind(), "{parts}");
    }
}
