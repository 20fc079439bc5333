//! The bell: how another thread ends the wait of a worker.
//!
//! ```text
//!   any thread:  ring ───── the first since the last answer ────▶ event ──▶ the lane's wait ends
//!   the worker:  answer, once per turn (a relaxed load without a ring) ──▶ App::on_bell
//! ```
//!
//! Rings between two answers are one. What must always hold: an answer that says so comes behind every
//! ring, and sees what the ringing thread wrote before it rang; the event is readable from a ring until
//! its answer, so that no wait begins in between. A bell that is answered too early for a ring that is
//! just being made is silent again one answer later.

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{read, write},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A bell of one worker. Clones are the same bell; any thread may ring it.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// [`RUNG`] from a ring to its answer. Above it, times [`OWED`], the worker's own: writes to the event
    /// that belong to answered rings and had not come by then.
    state: AtomicU64,
    event: OwnedFd,
}

const RUNG: u64 = 1;
const OWED: u64 = 2;

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// No descriptor is left for it.
    pub fn new() -> io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell(Arc::new(Shared { state: AtomicU64::new(0), event })))
    }

    /// Ends the worker's wait, or the next one, and has its app called. A bell that rings already
    /// costs no system call.
    pub fn ring(&self) {
        // Pairs with the clearing in `answer`, which sees what was written before.
        if self.0.state.fetch_or(RUNG, Ordering::AcqRel) & RUNG == 0 {
            // It cannot fail: the count is one or two, and its end is at 2^64.
            let _ = write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// True from a ring until its answer.
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) & RUNG != 0
    }

    /// The worker's side: true when it was rung since the last answer.
    #[inline]
    pub fn answer(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) != 0 && self.answer_ring()
    }

    #[cold]
    fn answer_ring(&self) -> bool {
        let Shared { state, event } = &*self.0;
        let mut count = [0; 8];
        // Before the flag: what is taken here was rung before it, and a ring behind it is written anew.
        let is_there = read(event, &mut count).is_ok();
        let taken = if is_there { u64::from_ne_bytes(count) } else { 0 };
        let before = state.fetch_and(!RUNG, Ordering::AcqRel);
        // A write for each ring: this one's, and those that were late.
        let (owed, rings) = (before / OWED, before & RUNG);
        let still_owed = (owed + rings).saturating_sub(taken);
        state.fetch_add((still_owed * OWED).wrapping_sub(owed * OWED), Ordering::Relaxed);
        rings != 0
    }

    /// Blocks until it is rung, at most for `timeout`; true when it is. May return early. For lanes
    /// that have nothing else to wait for.
    pub fn wait(&self, timeout: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // An interruption is an early return.
        let _ = poll(&mut [PollFd::new(&self.0.event, PollFlags::IN)], Some(&timeout));
        self.is_rung()
    }
}

/// Readable from a ring until its answer: for what a lane polls. Not to be read.
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn is_readable(bell: &Bell) -> bool {
        let mut polled = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("polls") == 1
    }

    #[test]
    fn many_rings_are_one_answer_and_then_it_is_silent() {
        let bell = Bell::new().expect("a descriptor");
        assert!(!bell.answer() && !is_readable(&bell));
        (0..5).for_each(|_| bell.clone().ring());
        assert!(bell.wait(Duration::MAX) && is_readable(&bell));
        assert!(bell.answer());
        assert!(!bell.answer() && !is_readable(&bell) && !bell.is_rung());
        bell.ring();
        assert!(bell.wait(Duration::MAX) && bell.answer());
    }

    #[test]
    fn a_ring_that_is_written_behind_its_answer_is_taken_by_a_later_one() {
        let bell = Bell::new().expect("a descriptor");
        // What `ring` does, with the answer in between.
        assert_eq!(bell.0.state.fetch_or(RUNG, Ordering::AcqRel), 0);
        assert!(bell.answer());
        write(&bell.0.event, &1u64.to_ne_bytes()).expect("room");
        assert!(is_readable(&bell));
        assert!(!bell.answer() && !is_readable(&bell), "taken, and no app is called for it");
        bell.ring();
        assert!(bell.answer() && !is_readable(&bell));
    }

    #[test]
    fn no_ring_of_any_thread_is_lost_however_it_falls() {
        const THREADS: u64 = 3;
        const RINGS: u64 = 20_000;
        let (bell, rings) = (Bell::new().expect("a descriptor"), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..RINGS {
                        // Seen by the answer through the bell alone.
                        rings.fetch_add(1, Ordering::Relaxed);
                        bell.ring();
                    }
                });
            }
            let mut seen = 0;
            while seen < THREADS * RINGS {
                bell.wait(Duration::MAX); // for ever, if a ring is lost
                if bell.answer() {
                    seen = rings.load(Ordering::Relaxed);
                }
            }
        });
        while bell.0.state.load(Ordering::Relaxed) > 0 {
            bell.answer();
        }
        assert!(!is_readable(&bell), "nothing is left to wake a worker");
    }
}
