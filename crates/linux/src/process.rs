//! A process, distinguished from a later one with the same id, and what it has used.
//!
//! Ids are given again, so the start time belongs to it: clock ticks after boot, field 22 of `/proc/<pid>/stat`
//! (proc_pid_stat(5)). It assumes that all processes that compare see the same process ids: containers that share a
//! folder but not the pid namespace look dead to each other.

use rustix::param::{clock_ticks_per_second, page_size};
use std::{fmt, fs, io, str::FromStr, time::Duration};

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
        Ok(Process { id: std::process::id(), start_ticks: Stat::of_this()?.start_ticks })
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

/// What a process has used of the machine, its threads together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user space, in steps of 10 ms.
    pub user: Duration,
    /// CPU time in the kernel on its behalf, in steps of 10 ms.
    pub system: Duration,
    /// Memory that is resident now.
    pub resident_bytes: u64,
}

impl Usage {
    /// Of the calling process.
    ///
    /// # Errors
    /// No `/proc`.
    pub fn of_this_process() -> io::Result<Usage> {
        let stat = Stat::of_this()?;
        let time = |ticks: u64| Duration::from_millis(ticks * 1000 / clock_ticks_per_second());
        Ok(Usage {
            user: time(stat.user_ticks),
            system: time(stat.system_ticks),
            resident_bytes: stat.resident_pages * page_size() as u64,
        })
    }
}

/// The fields of `/proc/<pid>/stat` used here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// A zombie with no thread left: dead, and only waiting for its parent to notice.
    has_ended: bool,
    user_ticks: u64,
    system_ticks: u64,
    start_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn of_this() -> io::Result<Stat> {
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat")?);
        stat.ok_or_else(|| io::Error::other("/proc/self/stat has too few fields"))
    }

    fn parse(text: &str) -> Option<Stat> {
        // The command name may hold blanks and parentheses; only the last one closes it.
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace(); // the first is field 3, the state
        let state = fields.next()?;
        let user_ticks = fields.nth(10)?.parse().ok()?; // field 14
        let system_ticks = fields.next()?.parse().ok()?;
        let threads: u64 = fields.nth(4)?.parse().ok()?; // field 20
        let start_ticks = fields.nth(1)?.parse().ok()?; // field 22
        let resident_pages = fields.nth(1)?.parse().ok()?; // field 24
        // A process whose main thread has ended shows `Z` while its other threads run on.
        let has_ended = matches!(state, "Z" | "X") && threads <= 1;
        Some(Stat { has_ended, user_ticks, system_ticks, start_ticks, resident_pages })
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
        let tail = "1 1 1 0 -1 4194560 0 0 0 0 14 15 0 0 20 0 THREADS 0 4711 0 24";
        let check = |state: &str, threads: &str, has_ended| {
            let text = format!("42 (a) Z 7 (b) {state} {}", tail.replace("THREADS", threads));
            let (user_ticks, system_ticks, start_ticks, resident_pages) = (14, 15, 4711, 24);
            let stat = Stat { has_ended, user_ticks, system_ticks, start_ticks, resident_pages };
            assert_eq!(Stat::parse(&text), Some(stat), "{text}");
        };
        check("S", "1", false);
        check("Z", "1", true);
        check("Z", "3", false);
    }

    #[test]
    fn work_and_memory_are_counted() {
        let before = Usage::of_this_process().unwrap();
        let used = vec![1_u8; 64 << 20];
        // Until the clock of the CPU time has moved: bounded by what a machine can do in that time.
        let mut sum = 0_u64;
        let mut after = before;
        for round in 0..10_000_u64 {
            sum += used.iter().map(|byte| u64::from(*byte) ^ round).sum::<u64>();
            after = Usage::of_this_process().unwrap();
            if after.user + after.system > before.user + before.system {
                break;
            }
        }
        assert!(after.user + after.system > before.user + before.system, "{after:?} {sum}");
        assert!(after.resident_bytes >= 64 << 20, "{after:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = Stat::parse(&text);
            let _ = text.parse::<Process>();
        }
    }
}
