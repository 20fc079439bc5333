//! What commands change, and how the log has it: below the data, which change without a command too (expiry,
//! eviction).

use crate::event::{Event, Events, KeyEvent};

/// A command as the log has it.
pub(crate) type LogCommand = Vec<Box<[u8]>>;

/// What a command changed. The server empties it before each.
#[derive(Debug, Default)]
pub struct Effects {
    /// What the log has of it.
    pub logged: Logged,
    /// How many changes (`rdb_changes_since_last_save` of INFO).
    pub changes: u64,
    /// Set by the server if anything watches, waits or caches keys; [`Effects::touch`] does nothing otherwise.
    pub wants_touched: bool,
    /// Keys whose value is another now (written, deleted, expired, evicted), with their database. A database that was
    /// flushed, or that another took the place of, has an entry without a key.
    pub touched: Vec<(usize, Option<Box<[u8]>>)>,
    /// Set by the server while clients are paused, for what only reads: a key whose time is up is absent to it, and
    /// stays until the pause is over.
    pub is_frozen: bool,
    /// Set by the server as it is configured; [`Effects::notify`] does nothing otherwise.
    pub wants_events: Events,
    /// What became of keys, in its order.
    pub events: Vec<KeyEvent>,
}

impl Effects {
    /// The value of `key` is another now.
    pub fn touch(&mut self, database: usize, key: &[u8]) {
        if self.wants_touched {
            self.touched.push((database, Some(key.into())));
        }
    }

    /// An event of `key`.
    pub fn notify(&mut self, database: usize, key: &[u8], event: Event) {
        if self.wants_events.has(event) {
            self.events.push(KeyEvent { database, name: event.name, key: key.into() });
        }
    }

    /// Changed, and the log has the command as it was given.
    pub fn changed(&mut self, changes: u64) {
        self.changes += changes;
        if self.logged == Logged::Nothing {
            self.logged = Logged::AsGiven;
        }
    }
}

/// What the log has of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Logged {
    /// Nothing: it changed nothing.
    #[default]
    Nothing,
    /// The command as it was given: done again on the same data, it does the same.
    AsGiven,
    /// Other commands that do the same whenever they are done: what depends on time or chance (EXPIRE as PEXPIREAT,
    /// SPOP as SREM, INCRBYFLOAT as SET).
    Instead(Vec<LogCommand>),
}

/// How the log has it that a key is gone.
pub(crate) fn deletion(key: &[u8]) -> LogCommand {
    vec![Box::from(&b"DEL"[..]), key.into()]
}
