//! A process, distinguished from a later one with the same id.
//!
//! Ids are given again, so the start time belongs to it: clock ticks after boot, field 22 of `/proc/<pid>/stat`
//! (proc_pid_stat(5)). It assumes that all processes that compare see the same process ids: containers that share a
//! folder but not the pid namespace look dead to each other.

use std::{fmt, fs, io, str::FromStr};

/// A process that runs or ran on this machine since it was started. As text: `4711-123456`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    id: u32,
    /// Clock ticks after boot.
    start_ticks: u64,
}

impl Process {
    /// The calling process.
    ///
    /// # Errors
    /// No `/proc`.
    pub fn this() -> io::Result<Process> {
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat")?);
        let stat = stat.ok_or_else(|| io::Error::other("/proc/self/stat has too few fields"))?;
        Ok(Process { id: std::process::id(), start_ticks: stat.start_ticks })
    }

    /// Its process id.
    pub fn id(self) -> u32 {
        self.id
    }

    /// Whether this very process still runs. What cannot be known counts as alive, so that nothing is taken from a
    /// process that lives.
    pub fn is_alive(self) -> bool {
        match fs::read_to_string(format!("/proc/{}/stat", self.id)) {
            Ok(stat) => Stat::parse(&stat)
                .is_none_or(|stat| stat.start_ticks == self.start_ticks && !stat.has_ended),
            // ESRCH: it ended between open and read.
            Err(error) => {
                error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(libc::ESRCH)
            }
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.id, self.start_ticks)
    }
}

/// A text that is no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoProcess;

impl FromStr for Process {
    type Err = NoProcess;

    fn from_str(text: &str) -> Result<Process, NoProcess> {
        let (id, start_ticks) = text.split_once('-').ok_or(NoProcess)?;
        let id = id.parse().map_err(|_| NoProcess)?;
        Ok(Process { id, start_ticks: start_ticks.parse().map_err(|_| NoProcess)? })
    }
}

/// The fields of `/proc/<pid>/stat` used here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// A zombie with no thread left: dead, and only waiting for its parent to notice.
    has_ended: bool,
    start_ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The command name may hold blanks and parentheses; only the last one closes it.
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace(); // the first is field 3, the state
        let state = fields.next()?;
        let threads: u64 = fields.nth(16)?.parse().ok()?; // field 20
        let start_ticks = fields.nth(1)?.parse().ok()?; // field 22
        // A process whose main thread has ended shows `Z` while its other threads run on.
        Some(Stat { has_ended: matches!(state, "Z" | "X") && threads <= 1, start_ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn this_process_is_alive_and_its_predecessor_with_the_same_id_is_not() {
        let this = Process::this().unwrap();
        assert!(this.is_alive());
        assert!(!Process { start_ticks: this.start_ticks - 1, ..this }.is_alive());
        assert_eq!(this.to_string().parse(), Ok(this));
    }

    #[test]
    fn a_process_with_a_hostile_name_is_read() {
        let tail = "1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 THREADS 0 4711 0 0";
        let check = |state: &str, threads: &str, has_ended| {
            let text = format!("42 (a) Z 7 (b) {state} {}", tail.replace("THREADS", threads));
            assert_eq!(Stat::parse(&text), Some(Stat { has_ended, start_ticks: 4711 }), "{text}");
        };
        check("S", "1", false);
        check("Z", "1", true);
        check("Z", "3", false);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = Stat::parse(&text);
            let _ = text.parse::<Process>();
        }
    }
}
