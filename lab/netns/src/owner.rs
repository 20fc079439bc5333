//! Who owns a namespace, written in its name.
//!
//! A killed process cannot clean up, so the name must tell a later one whether it is safe to remove:
//! `lw-<prefix>-<pid>-<start>-<n>`. Process ids are reused, hence the start time of the process, in clock ticks after
//! boot (field 22 of `/proc/<pid>/stat`); `/run` does not survive a boot, so ticks are unambiguous. A name that does
//! not parse to this form is never ours.
//!
//! It assumes that all users of one `/run/netns` see the same process ids: containers that share the folder but not
//! the pid namespace would look dead to each other.

use std::fs;
use std::io;
use std::path::Path;

use crate::Error;

const MARK: &str = "lw";
/// Longest prefix a caller may choose, in bytes; keeps names readable in `ip netns`.
const PREFIX_BYTES_MAX: usize = 32;

/// A process, identified beyond the reuse of its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// Start time, clock ticks after boot.
    pub(crate) start_ticks: u64,
}

impl Owner {
    /// The calling process.
    pub(crate) fn this_process() -> Result<Owner, Error> {
        let path = Path::new("/proc/self/stat");
        let stat = fs::read_to_string(path).map_err(Error::path("read", path))?;
        let stat = ProcessStat::parse(&stat)
            .ok_or_else(|| Error::unreadable("process state in /proc/self/stat", &stat))?;
        Ok(Owner { pid: std::process::id(), start_ticks: stat.start_ticks })
    }

    /// Whether this very process still runs. Anything we cannot know counts as alive, so that nothing is removed
    /// under a living owner.
    pub(crate) fn is_alive(self) -> bool {
        match fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) => ProcessStat::parse(&stat)
                .is_none_or(|stat| stat.start_ticks == self.start_ticks && !stat.has_ended),
            // ESRCH: it ended between open and read.
            Err(error) => {
                error.kind() != io::ErrorKind::NotFound
                    && error.raw_os_error() != Some(nix::errno::Errno::ESRCH as i32)
            }
        }
    }
}

/// The fields of `/proc/<pid>/stat` used here.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    /// A zombie with no thread left: dead, and only waiting for its parent to notice.
    has_ended: bool,
    start_ticks: u64,
}

impl ProcessStat {
    fn parse(text: &str) -> Option<ProcessStat> {
        // The command name may hold blanks and parentheses; only the last one closes it.
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace(); // the first is field 3, the state
        let state = fields.next()?;
        let threads: u64 = fields.nth(16)?.parse().ok()?; // field 20
        let start_ticks = fields.nth(1)?.parse().ok()?; // field 22
        // A process whose main thread has ended shows `Z` while its other threads run on.
        let has_ended = matches!(state, "Z" | "X") && threads <= 1;
        Some(ProcessStat { has_ended, start_ticks })
    }
}

/// A namespace's name, parsed or to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedName {
    pub(crate) prefix: String,
    pub(crate) owner: Owner,
    pub(crate) sequence: u64,
}

impl OwnedName {
    pub(crate) fn check_prefix(prefix: &str) -> Result<(), Error> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(allowed) {
            return Err(Error::BadName {
                what: "namespace prefix",
                name: prefix.to_owned(),
                rule: "1 to 32 of a-z, 0-9 and -",
            });
        }
        Ok(())
    }

    /// Reads a name of our form; `None` for any other.
    pub(crate) fn parse(name: &str) -> Option<OwnedName> {
        let rest = name.strip_prefix(MARK)?.strip_prefix('-')?;
        let mut parts = rest.rsplitn(4, '-');
        let sequence = parts.next()?.parse().ok()?;
        let start_ticks = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let prefix = parts.next()?.to_owned();
        OwnedName::check_prefix(&prefix).ok()?;
        let parsed = OwnedName { prefix, owner: Owner { pid, start_ticks }, sequence };
        // Only the one canonical spelling is ours: not `+5`, not `007`.
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for OwnedName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Owner { pid, start_ticks } = self.owner;
        write!(out, "{MARK}-{}-{pid}-{start_ticks}-{}", self.prefix, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_process_is_alive_and_its_predecessor_with_the_same_pid_is_not() {
        let this = Owner::this_process().expect("own stat is readable");
        assert!(this.is_alive());
        assert!(!Owner { start_ticks: this.start_ticks - 1, ..this }.is_alive());
    }

    #[test]
    fn reads_stat_of_a_process_with_a_hostile_name() {
        let tail = "1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 THREADS 0 4711 0 0";
        let check = |state: &str, threads: &str, has_ended| {
            let text = format!("42 (a) Z 7 (b) {state} {}", tail.replace("THREADS", threads));
            let expected = ProcessStat { has_ended, start_ticks: 4711 };
            assert_eq!(ProcessStat::parse(&text), Some(expected), "{text}");
        };
        check("S", "1", false);
        check("Z", "1", true);
        check("Z", "3", false);
    }

    #[test]
    fn foreign_names_are_not_ours() {
        for name in [
            "",
            "blue",
            "lw-1-2-3",
            "lw--1-2-3",
            "lw-race-1-2-x",
            "lw-race-01-2-3",
            "lw-race-+1-2-3",
            "cni-1-2-3-4",
            "lw-Race-1-2-3",
        ] {
            assert_eq!(OwnedName::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_survive_their_text(
            prefix in "[a-z0-9-]{1,32}", pid: u32, start_ticks: u64, sequence: u64
        ) {
            let name = OwnedName { prefix, owner: Owner { pid, start_ticks }, sequence };
            prop_assert_eq!(OwnedName::parse(&name.to_string()), Some(name));
        }

        #[test]
        fn stat_parser_never_panics(text in any::<String>()) {
            let _ = ProcessStat::parse(&text);
        }
    }
}
