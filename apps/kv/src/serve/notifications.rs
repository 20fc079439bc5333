//! Events of keys on their way to those who listen (`notify-keyspace-events`).
//!
//! A command makes its events in the middle of a turn, when a listener may be the client that is being served, and
//! before what it did is durable. So events wait here, in their order, and are published at the end of the turn in
//! which their record is durable; listeners of other workers are sent them then, if those workers have any.
//!
//! What must always hold: events are published in the order in which they happened, and none before its record is
//! durable where replies wait for that (`always`). What waits is bounded: writes wait while it is too much.

use super::server::Server;
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
    fn add(&mut self, record: u64, event: KeyEvent) {
        self.bytes += size(&event);
        self.waiting.push_back((record, event));
    }

    /// The next one, if so many records are durable.
    fn next(&mut self, durable: u64) -> Option<KeyEvent> {
        let (_, event) = self.waiting.pop_front_if(|(record, _)| *record <= durable)?;
        self.bytes -= size(&event);
        Some(event)
    }

    /// True while writes must wait.
    pub(crate) fn is_behind(&self) -> bool {
        self.bytes > WAITING_BYTES_MAX
    }
}

fn size(event: &KeyEvent) -> usize {
    size_of::<(u64, KeyEvent)>() + event.key.len()
}

impl Server {
    /// Keeps what a command did to keys until it may be published.
    pub(crate) fn keep_events(&mut self, is_logged: bool) {
        let record = if is_logged && self.journal.waits() { self.journal.current() } else { 0 };
        for event in self.effects.events.drain(..) {
            self.notifications.add(record, event);
        }
    }

    /// Publishes the events whose time has come. True if there were some: clients are noted that were sent something.
    pub(crate) fn publish_events(&mut self) -> bool {
        if self.notifications.waiting.is_empty() {
            return false;
        }
        let durable = match self.journal.failed() {
            // What they say may be lost, as those who did it are shown: it never happened.
            Some(_) => return self.notifications.waiting.drain(..).fold(false, |_, _| false),
            None => self.journal.durable(),
        };
        let mut is_any = false;
        while self.shards.as_mut().is_none_or(|shards| shards.listeners_have_room())
            && let Some(event) = self.notifications.next(durable)
        {
            self.publish_event(&event);
            is_any = true;
        }
        is_any
    }

    fn publish_event(&mut self, event: &KeyEvent) {
        let KeyEvent { database, name, key } = event;
        let wanted = self.config.events;
        if wanted.has_keyspace() {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            self.publish_everywhere(&channel, name.as_bytes());
        }
        if wanted.has_keyevent() {
            self.publish_everywhere(format!("__keyevent@{database}__:{name}").as_bytes(), key);
        }
    }

    fn publish_everywhere(&mut self, channel: &[u8], message: &[u8]) {
        self.publish(None, channel, message);
        if let Some(shards) = &mut self.shards {
            shards.publish_elsewhere(channel, message);
        }
    }
}
