//! Events of keys: what `notify-keyspace-events` asks for, by Redis's names and classes.

/// Classes of events, a bit each, and the two kinds of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u16);

/// A letter for each, in the order in which Redis shows them; those behind `ALL` are not among them.
const LETTERS: &[u8] = b"g$lshzxetdnKEm";
/// What `A` stands for: all classes up to `d`.
const ALL: u16 = (1 << 10) - 1;

const GENERIC: u16 = 1;
const STRING: u16 = 1 << 1;
const LIST: u16 = 1 << 2;
const SET: u16 = 1 << 3;
const HASH: u16 = 1 << 4;
const ZSET: u16 = 1 << 5;
const EXPIRED: u16 = 1 << 6;
const EVICTED: u16 = 1 << 7;
const NEW: u16 = 1 << 10;
const KEYSPACE: u16 = 1 << 11;
const KEYEVENT: u16 = 1 << 12;
const MISS: u16 = 1 << 13;

impl Events {
    /// As CONFIG SET has them; nothing if a letter has no meaning.
    pub fn parse(text: &str) -> Option<Events> {
        text.bytes().try_fold(Events::default(), |Events(bits), letter| {
            let more = match letter {
                b'A' => ALL,
                _ => 1 << LETTERS.iter().position(|&known| known == letter)?,
            };
            Some(Events(bits | more))
        })
    }

    /// As CONFIG GET shows them: Redis 7.0 has the class of new keys in the place of `A`, too.
    pub(crate) fn text(self) -> String {
        let has_all = self.0 & ALL == ALL;
        let hidden = if has_all { ALL | NEW } else { 0 };
        let is_shown = |place: &usize| (self.0 & !hidden) >> place & 1 == 1;
        let letters = (0..LETTERS.len()).filter(is_shown).map(|place| char::from(LETTERS[place]));
        has_all.then_some('A').into_iter().chain(letters).collect()
    }

    /// True if something is to be published.
    pub(crate) fn is_any(self) -> bool {
        self.0 & (KEYSPACE | KEYEVENT) != 0
    }

    /// True if the channels of keys are wanted, which have the event as their message.
    pub(crate) fn has_keyspace(self) -> bool {
        self.0 & KEYSPACE != 0
    }

    /// True if the channels of events are wanted, which have the key as their message.
    pub(crate) fn has_keyevent(self) -> bool {
        self.0 & KEYEVENT != 0
    }

    /// True if an event is wanted.
    pub(crate) fn has(self, event: Event) -> bool {
        self.0 & event.class != 0 && self.is_any()
    }
}

/// One of the events, and its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    class: u16,
    pub(crate) name: &'static str,
}

const fn event(class: u16, name: &'static str) -> Event {
    Event { class, name }
}

/// An event of keys of any kind.
pub(crate) const fn generic(name: &'static str) -> Event {
    event(GENERIC, name)
}

/// An event of strings.
pub(crate) const fn string(name: &'static str) -> Event {
    event(STRING, name)
}

/// An event of lists.
pub(crate) const fn list(name: &'static str) -> Event {
    event(LIST, name)
}

/// An event of sets.
pub(crate) const fn set(name: &'static str) -> Event {
    event(SET, name)
}

/// An event of hashes.
pub(crate) const fn hash(name: &'static str) -> Event {
    event(HASH, name)
}

/// An event of sorted sets.
pub(crate) const fn sorted(name: &'static str) -> Event {
    event(ZSET, name)
}

/// A key is gone by a command.
pub(crate) const DELETED: Event = generic("del");
/// A key is gone because its time was up.
pub(crate) const DUE: Event = event(EXPIRED, "expired");
/// A key is there that was not.
pub(crate) const CREATED: Event = event(NEW, "new");
/// A key that was to be read is not there.
pub(crate) const MISSED: Event = event(MISS, "keymiss");
/// A key is gone for memory.
pub(crate) const NO_ROOM: Event = event(EVICTED, "evicted");

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// That of the key.
    pub database: usize,
    /// The event, as Redis calls it.
    pub name: &'static str,
    /// Whose event it is.
    pub key: Box<[u8]>,
}
