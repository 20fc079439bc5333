//! What users were not allowed: why, in Redis's words, and the last of it for ACL LOG.

use std::collections::VecDeque;

/// Why a user may not do a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The command itself.
    Command,
    /// One of its keys.
    Key(Box<[u8]>),
    /// One of its channels.
    Channel(Box<[u8]>),
}

impl Denied {
    /// What the client gets; `name` is the command's.
    pub(crate) fn text(&self, name: &str) -> String {
        match self {
            Denied::Command => {
                format!("NOPERM this user has no permissions to run the '{name}' command")
            }
            Denied::Key(_) => {
                "NOPERM this user has no permissions to access one of the keys used as arguments"
                    .to_owned()
            }
            Denied::Channel(_) => {
                "NOPERM this user has no permissions to access one of the channels used as arguments"
                    .to_owned()
            }
        }
    }

    /// The same at the end of a transaction: it was allowed when the command was queued.
    pub(crate) fn text_at_exec(&self) -> String {
        let why = match self {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {why}"
        )
    }

    /// What ACL DRYRUN answers.
    pub(crate) fn dry_text(&self, name: &str) -> Vec<u8> {
        const ACCESS: &[u8] = b"This user has no permissions to access the '";
        match self {
            Denied::Command => {
                format!("This user has no permissions to run the '{name}' command").into_bytes()
            }
            Denied::Key(key) => [ACCESS, &**key, b"' key"].concat(),
            Denied::Channel(channel) => [ACCESS, &**channel, b"' channel"].concat(),
        }
    }

    /// The kind and the thing, as ACL LOG names them.
    pub(crate) fn what<'a>(&'a self, name: &'a str) -> (&'static str, &'a [u8]) {
        match self {
            Denied::Command => ("command", name.as_bytes()),
            Denied::Key(key) => ("key", key),
            Denied::Channel(channel) => ("channel", channel),
        }
    }
}

/// An attempt, or several of the same one behind each other.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub(crate) reason: &'static str,
    pub(crate) is_in_multi: bool,
    pub(crate) object: Box<[u8]>,
    pub(crate) user: Box<[u8]>,
    pub(crate) at_us: u64,
    /// The client in a line, as CLIENT LIST has it.
    pub(crate) client: String,
}

/// Attempts that are kept, as in Redis.
pub(crate) const ATTEMPTS_MAX: usize = 128;
/// Bytes of a key, a channel or a user's name that are kept.
const OBJECT_BYTES_MAX: usize = 1024;
/// The same attempt is one among the last so many, within so long.
const COMPARED_MAX: usize = 10;
const SAME_US: u64 = 60_000_000;

/// The last attempts, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Attempts(VecDeque<Attempt>);

impl Attempts {
    pub(crate) fn add(&mut self, mut attempt: Attempt) {
        for text in [&mut attempt.object, &mut attempt.user] {
            if text.len() > OBJECT_BYTES_MAX {
                *text = text[..OBJECT_BYTES_MAX].into();
            }
        }
        let is_same = |known: &Attempt| {
            known.reason == attempt.reason
                && known.is_in_multi == attempt.is_in_multi
                && known.object == attempt.object
                && known.user == attempt.user
                && attempt.at_us.saturating_sub(known.at_us) <= SAME_US
        };
        if let Some(at) = self.0.iter().take(COMPARED_MAX).position(is_same)
            && let Some(known) = self.0.remove(at)
        {
            attempt.count += known.count;
        }
        self.0.push_front(attempt);
        self.0.truncate(ATTEMPTS_MAX);
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Attempt> {
        self.0.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(object: &[u8], at_us: u64) -> Attempt {
        let (object, user) = (object.into(), Box::from(&b"ann"[..]));
        let client = String::new();
        Attempt { count: 1, reason: "key", is_in_multi: false, object, user, at_us, client }
    }

    #[test]
    fn the_same_attempt_is_counted_and_no_more_are_kept_than_allowed() {
        let mut attempts = Attempts::default();
        attempts.add(attempt(b"a", 0));
        attempts.add(attempt(b"b", 1));
        attempts.add(attempt(b"a", SAME_US));
        let shown = |attempts: &Attempts| -> Vec<(u64, Box<[u8]>)> {
            attempts.iter().map(|one| (one.count, one.object.clone())).collect()
        };
        let (a, b) = (Box::from(&b"a"[..]), Box::from(&b"b"[..]));
        assert_eq!(shown(&attempts), [(2, a), (1, b)]);
        attempts.add(attempt(b"a", 2 * SAME_US + 1));
        assert_eq!(attempts.iter().len(), 3, "too long ago to be the same");
        for number in 0..2 * ATTEMPTS_MAX {
            attempts.add(attempt(&[number as u8; 2 * OBJECT_BYTES_MAX], 0));
        }
        assert_eq!(attempts.iter().len(), ATTEMPTS_MAX);
        assert!(attempts.iter().all(|one| one.object.len() == OBJECT_BYTES_MAX));
    }
}
