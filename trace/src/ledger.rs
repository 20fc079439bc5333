//! Where the time of one thread goes that its functions do not have: what the kernel does with it, polls that found
//! nothing, and long stretches without any event of the program. One pass, bounded tables.
//!
//! A *stretch* lies between two events of the program (the kernel's events do not end it). What happens in it is
//! gathered and booked only when it ends: so that what lies before the first and behind the last event of the program,
//! when it is being started or has ended, is in no account; and because a run of empty polls says only at its end
//! that all the system calls in it were polls.
//!
//! What must always hold: no nanosecond is booked twice. Time of functions is not booked here but by the machine, per
//! context, because that is the hot path; a stretch says which part of it was long.

use std::collections::BTreeMap;

use laneway_trace_read::FunctionKey;

use crate::calls;
use crate::points::Queue;
use crate::tree::NONE;

/// Rows kept per thread; more are added up in one.
const ROWS_MAX: usize = 512;
/// Contexts with long stretches kept per thread.
const PAUSED_MAX: usize = 512;
/// Moments kept per row, for its period.
const MOMENTS_MAX: usize = 4_096;
/// Shorter stretches are nothing to look at, ns.
pub(crate) const STRETCH_NS_MIN: u64 = 20_000;
/// Lengths of stretches that are distinguished: powers of two from [`STRETCH_NS_MIN`] on.
pub(crate) const LENGTHS: usize = 24;
/// Longest time that an idle CPU takes to run a thread which was woken, ns. The slowest sleep that Linux knows of a CPU
/// (intel_idle's C10 of Skylake) ends in 890 us; in a guest, a wake-up was seen to take 60 us.
const WAKE_UP_NS_MAX: u64 = 1_000_000;
/// Results of system calls: try again.
const EAGAIN: i32 = -11;

/// What the kernel does with a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Taken {
    /// It could run and has no CPU: another task runs, or it was woken and has none yet. The task that has the CPU until
    /// then, where that is known; and whether it took longer than a CPU takes to wake up, which it does not do for a
    /// thread that it was taken from.
    Queued { behind: Option<FunctionKey>, long: bool },
    /// It waits in a system call, or, where those are not recorded, in a context; and was woken by a task.
    Blocked { call: Option<u32>, node: u32, by: Option<FunctionKey> },
    /// It is in a system call that did something, or failed otherwise.
    Syscall(u32),
    /// It is in a system call that found nothing.
    FoundNothing(u32),
    /// An interrupt or softirq runs; page faults are distinguished by their number.
    Interrupt(u32),
    /// It polls in vain.
    Empty(Option<Queue>),
}

/// What a thread's time went to, in one way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum {
    pub(crate) ns: u64,
    pub(crate) times: u64,
    pub(crate) longest_ns: u64,
    /// Of it in stretches that are long, ns.
    pub(crate) long_ns: u64,
    /// Sum of each times how long after the first event of the thread it was, ns squared: for the mean moment.
    pub(crate) moment: f64,
    /// When each long one began, ns since the epoch, the first [`MOMENTS_MAX`].
    pub(crate) moments: Vec<u64>,
}

/// Long stretches of the program's own in one context.
#[derive(Debug, Clone)]
pub(crate) struct Paused {
    /// By length, a power of two times [`STRETCH_NS_MIN`]: together, ns, and how many.
    pub(crate) lengths: [(u64, u64); LENGTHS],
    pub(crate) longest_ns: u64,
    /// Begin and length of each.
    pub(crate) moments: Vec<(u64, u64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) rows: BTreeMap<Taken, Sum>,
    /// By context; [`NONE`] is outside of all calls.
    pub(crate) paused: BTreeMap<u32, Paused>,
    /// In rows that found no room, ns.
    pub(crate) others_ns: u64,
    /// The first and the last event of the program, ns since the epoch; 0 without any.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Between those, in holes of the trace, ns.
    pub(crate) missing_ns: u64,
    started: bool,
    /// The open stretch: what the kernel took of it, and what is left for the program.
    taken: Vec<(Taken, u64)>,
    own_ns: u64,
    /// The open system call: time in it, on the CPU. It is booked where it ends: clocks of program and kernel are
    /// joined to a microsecond, so an event of the program may seem to lie inside.
    call_ns: u64,
    returned: Option<i32>,
    /// The open time off the CPU: the thread that took it, the one that woke this thread, and the one that had the CPU
    /// when it was this thread's turn; until it was woken, and from then on.
    task: Option<FunctionKey>,
    waker: Option<FunctionKey>,
    behind: Option<FunctionKey>,
    off_ns: u64,
    queued_ns: u64,
    woken: bool,
}

impl Ledger {
    /// The program did something: the stretch before is over, and belonged to the context `node`. `run`: the time up to
    /// now, at most so long, was spent in polls of this queue that found nothing.
    pub(crate) fn program(&mut self, now: u64, node: u32, run: Option<(Option<Queue>, u64)>) {
        if !self.started {
            self.started = true;
            if self.first_ns == 0 {
                self.first_ns = now;
            } else {
                self.missing_ns += now.saturating_sub(self.last_ns);
            }
            self.forget();
        }
        let since = self.last_ns.max(self.first_ns);
        let length_ns = now.saturating_sub(since);
        self.last_ns = now;
        if self.taken.is_empty() && length_ns < STRETCH_NS_MIN && run.is_none() {
            self.own_ns = 0;
            return;
        }
        let mut own_ns = std::mem::take(&mut self.own_ns);
        if let Some((queue, lasted_ns)) = run {
            let others: u64 = self.taken.iter().map(|&(_, ns)| ns).sum();
            let polling = own_ns.min(lasted_ns.saturating_sub(others));
            own_ns -= polling;
            self.book(Taken::Empty(queue), polling, since, false);
        }
        for (taken, ns) in std::mem::take(&mut self.taken) {
            let is_poll = matches!(taken, Taken::Syscall(_) | Taken::FoundNothing(_));
            match run {
                Some((queue, _)) if is_poll => self.book(Taken::Empty(queue), ns, since, false),
                _ => self.book(taken, ns, since, length_ns >= STRETCH_NS_MIN),
            }
        }
        if own_ns >= STRETCH_NS_MIN {
            self.pause_of(node, since, own_ns);
        }
    }

    /// As [`program`](Self::program), for many short stretches one after the other, the last of which ended now.
    #[inline]
    pub(crate) fn passed(&mut self, now: u64) {
        self.last_ns = now;
    }

    /// Nothing is known of what follows, up to the next event of the program.
    pub(crate) fn pause(&mut self) {
        self.started = false;
        self.forget();
    }

    fn forget(&mut self) {
        self.taken.clear();
        (self.own_ns, self.call_ns, self.returned) = (0, 0, None);
        self.leaves();
    }

    /// The program had the CPU for so long.
    #[inline]
    pub(crate) fn own(&mut self, ns: u64) {
        self.own_ns += ns;
    }

    /// It was in a system call, on the CPU.
    pub(crate) fn in_call(&mut self, ns: u64) {
        self.call_ns += ns;
    }

    pub(crate) fn interrupted(&mut self, vector: u32, ns: u64) {
        self.take(Taken::Interrupt(vector), ns);
    }

    /// It was off the CPU; what follows the moment in which it was woken is no waiting any more.
    pub(crate) fn off(&mut self, ns: u64) {
        if self.woken {
            self.queued_ns += ns;
        } else {
            self.off_ns += ns;
        }
    }

    /// Reported when the thread leaves its CPU, and again just before it is back on one. The task that took the CPU
    /// from a thread that went to sleep has nothing to do with what that thread waits for once it is woken.
    pub(crate) fn took_over(&mut self, task: FunctionKey) {
        if self.woken {
            self.behind = Some(task);
        } else {
            self.task.get_or_insert(task);
        }
    }

    pub(crate) fn woken_by(&mut self, task: FunctionKey) {
        (self.waker, self.woken) = (Some(task), true);
    }

    pub(crate) fn returned(&mut self, value: i32) {
        self.returned = Some(value);
    }

    /// It leaves the CPU: nothing is known yet of the time that it is off it.
    pub(crate) fn leaves(&mut self) {
        (self.task, self.waker, self.behind) = (None, None, None);
        (self.off_ns, self.queued_ns, self.woken) = (0, 0, false);
    }

    /// It is on the CPU again. `call`: the system call that it is in, if any.
    pub(crate) fn comes(&mut self, runnable: bool, call: Option<u32>, node: u32) {
        let node = if call.is_some() { NONE } else { node };
        if runnable {
            let off_ns = self.off_ns + self.queued_ns;
            self.take(Taken::Queued { behind: self.task, long: true }, off_ns);
        } else {
            self.take(Taken::Blocked { call, node, by: self.waker }, self.off_ns);
            if self.woken {
                let long = self.queued_ns > WAKE_UP_NS_MAX;
                self.take(Taken::Queued { behind: self.behind, long }, self.queued_ns);
            }
        }
        self.leaves();
    }

    /// The system call is over.
    pub(crate) fn call_ends(&mut self, call: u32) {
        let ns = std::mem::take(&mut self.call_ns);
        let taken = match self.returned.take() {
            Some(value) if found_nothing(call, value) => Taken::FoundNothing(call),
            _ => Taken::Syscall(call),
        };
        self.take(taken, ns);
    }

    fn take(&mut self, taken: Taken, ns: u64) {
        match self.taken.last_mut() {
            Some((last, sum)) if *last == taken => *sum += ns,
            _ => self.taken.push((taken, ns)),
        }
        // Between two events of the program the kernel can do any number of things.
        if self.taken.len() > ROWS_MAX {
            for (taken, ns) in std::mem::take(&mut self.taken) {
                match self.taken.iter_mut().find(|(other, _)| *other == taken) {
                    Some((_, sum)) => *sum += ns,
                    None => self.taken.push((taken, ns)),
                }
            }
            self.taken.truncate(ROWS_MAX);
        }
    }

    fn book(&mut self, taken: Taken, ns: u64, since: u64, long: bool) {
        if !self.rows.contains_key(&taken) && self.rows.len() >= ROWS_MAX {
            self.others_ns += ns;
            return;
        }
        let row = self.rows.entry(taken).or_default();
        row.ns += ns;
        row.times += 1;
        row.longest_ns = row.longest_ns.max(ns);
        row.moment += ns as f64 * since.saturating_sub(self.first_ns) as f64;
        if long && ns >= STRETCH_NS_MIN {
            row.long_ns += ns;
            if row.moments.len() < MOMENTS_MAX {
                row.moments.push(since);
            }
        }
    }

    fn pause_of(&mut self, node: u32, since: u64, ns: u64) {
        let full = self.paused.len() >= PAUSED_MAX;
        let node = if full && !self.paused.contains_key(&node) { NONE } else { node };
        let paused = self.paused.entry(node).or_insert_with(|| Paused {
            lengths: [(0, 0); LENGTHS],
            longest_ns: 0,
            moments: Vec::new(),
        });
        let place = (ns / STRETCH_NS_MIN).ilog2() as usize;
        let length = &mut paused.lengths[place.min(LENGTHS - 1)];
        *length = (length.0 + ns, length.1 + 1);
        paused.longest_ns = paused.longest_ns.max(ns);
        if paused.moments.len() < MOMENTS_MAX {
            paused.moments.push((since, ns));
        }
    }
}

impl Paused {
    /// Stretches at least so long: together, ns, and how many.
    pub(crate) fn beyond(&self, least_ns: u64) -> (u64, u64) {
        let from = (least_ns / STRETCH_NS_MIN).max(1).ilog2() as usize;
        let lengths = self.lengths.iter().skip(from);
        lengths.fold((0, 0), |sum, length| (sum.0 + length.0, sum.1 + length.1))
    }
}

/// Did a call that looks for packets return without any?
fn found_nothing(call: u32, value: i32) -> bool {
    match calls::kind(call) {
        calls::Kind::Receive => value == 0 || value == EAGAIN,
        calls::Kind::Transfer => value == EAGAIN,
        calls::Kind::Wait => value == 0,
        _ => false,
    }
}
