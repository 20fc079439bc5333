//! The ring of one worker: requests in, completions out, and the proof that no request outlives the
//! memory it names.
//!
//! ```text
//!   push ──▶ submission queue ──enter──▶ kernel ──▶ completion queue ──▶ next
//!            in_flight += 1                          without MORE: in_flight -= 1
//! ```
//!
//! **The proof.** (1) All that the kernel may read or write for a request (buffer, message header,
//! iovec, control message, address, provided-buffer ring) lies in a [`Memory`] that was given to
//! [`Ring::keep`]; `push` is unsafe because of exactly that. (2) A `Memory` never moves, and the ring
//! holds a reference to each. (3) Every request ends with one completion without the MORE flag: a
//! multishot request with its last shot, a zero-copy send with its notification, any other with its
//! only one. `in_flight` counts the requests that have not ended. (4) When the ring is dropped, in
//! any state of its lane, it cancels everything, and lets go of the memory only when
//! `in_flight` is 0. If that does not happen within a bound (a device sits on a zero-copy
//! send, or the kernel lost a completion), the memory is leaked on purpose: a leak is safe, a
//! request into reused memory is not. So a lane may be dropped with requests in flight.
//!
//! **Files.** A request names its socket by descriptor, which the kernel looks up when it takes the request: a lane
//! keeps a socket open until no request that names it is [queued](Ring::has_queued); what is queued when a lane is
//! dropped is taken by its ring, which goes before the sockets. (A closed descriptor is soon that of another file.)
//! The ring has no table of files: before Linux 6.13 ("io_uring/rsrc: get rid of per-ring io_rsrc_node list") it
//! would keep a file that left its table for as long as an older request of the table runs, and an accept runs for
//! ever. Closed connections would hold their memory, and closed ports their addresses and groups.
//!
//! Completions that do not fit the completion queue are kept by the kernel and counted here as an
//! overflow; those that it lost (it had no memory) end the lane, because it is no longer known
//! which request is still alive.
//!
//! Assumes that one thread makes, uses and drops it (SINGLE_ISSUER). Knows no sockets.

use crate::{config::NAME, memory::Memory, sys};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use laneway_core::LaneError;
use std::{
    fs, io,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    rc::Rc,
    time::{Duration, Instant},
};

/// Completion queue entries per submission queue entry: one request may complete many times.
const COMPLETIONS_PER_REQUEST: u32 = 4;
/// How long a draining ring waits for one completion, and how often a dropped one does.
const DRAIN_WAIT: Duration = Duration::from_millis(10);
pub(crate) const DRAIN_WAITS_MAX: usize = 100;

/// `IORING_ENTER_GETEVENTS` and `IORING_ENTER_REGISTERED_RING`.
const ENTER_GETEVENTS: u32 = 1;
const ENTER_REGISTERED_RING: u32 = 1 << 4;

/// How a call into the kernel ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    Done,
    /// A signal, or work that the kernel has for this thread, ended its wait.
    Interrupted,
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// What the request was pushed with.
    pub(crate) token: u64,
    /// A length, a descriptor, or a negative error code.
    pub(crate) result: i32,
    flags: u32,
}

impl Completion {
    /// More completions of the same request will follow.
    pub(crate) fn has_more(self) -> bool {
        cqueue::more(self.flags)
    }

    /// The second completion of a zero-copy send: the memory is free again.
    pub(crate) fn is_notification(self) -> bool {
        cqueue::notif(self.flags)
    }

    /// In a notification: the kernel copied after all (`IORING_NOTIF_USAGE_ZC_COPIED`).
    pub(crate) fn was_copied(self) -> bool {
        const ZC_COPIED: u32 = 1 << 31;
        self.result as u32 & ZC_COPIED != 0
    }

    /// The provided buffer that the kernel filled (or, with a bundle, the first of them).
    pub(crate) fn buffer(self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }

    /// The length, or the error.
    pub(crate) fn outcome(self) -> io::Result<usize> {
        usize::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }
}

/// What happened to the ring so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingCounts {
    /// Calls of `io_uring_enter`.
    pub(crate) enters: u64,
    /// Times the completion queue was found full, with completions waiting in the kernel.
    pub(crate) overflows: u64,
    /// Completions that the kernel lost.
    pub(crate) lost: u64,
}

/// One io_uring instance.
pub(crate) struct Ring {
    inner: IoUring,
    /// The ring's number with the kernel, if it could be registered.
    registered: Option<u32>,
    /// What requests may name; see the proof above.
    kept: Vec<Rc<Memory>>,
    /// Requests pushed that have not had their last completion.
    in_flight: u64,
    /// Requests pushed that the kernel has not taken.
    queued: u32,
    counts: RingCounts,
}

impl Ring {
    /// A ring with `depth` submission queue entries and four times as many for completions.
    ///
    /// # Errors
    /// io_uring is missing, disabled or too old, or there is no memory.
    pub(crate) fn open(depth: u32) -> Result<Ring, LaneError> {
        let inner = build(depth, true)
            .or_else(|error| match error.raw_os_error() {
                // Before 6.6 NO_SQARRAY is an unknown flag.
                Some(libc::EINVAL) => build(depth, false),
                _ => Err(error),
            })
            .map_err(|error| refusal(error, disabled_setting().as_deref()))?;
        let registered = sys::register_ring(inner.as_raw_fd()).ok();
        Ok(Ring {
            inner,
            registered,
            kept: Vec::new(),
            in_flight: 0,
            queued: 0,
            counts: RingCounts::default(),
        })
    }

    /// Readable while there are completions, or work of the kernel that makes some, once every request is submitted.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        let ring = self.inner.as_raw_fd();
        // SAFETY: the descriptor is the ring's own and open as long as `self`.
        unsafe { BorrowedFd::borrow_raw(ring) }
    }

    /// Takes part in owning what requests name, until every request has ended.
    pub(crate) fn keep(&mut self, memory: &Rc<Memory>) {
        self.kept.push(memory.clone());
    }

    /// True while a request was pushed that the kernel has not taken: it has not looked up the file that the request
    /// names.
    pub(crate) fn has_queued(&self) -> bool {
        self.queued > 0
    }

    /// True when the ring calls itself by number.
    pub(crate) fn is_registered(&self) -> bool {
        self.registered.is_some()
    }

    /// Completion queue entries, as granted.
    pub(crate) fn completions_max(&self) -> usize {
        self.inner.params().cq_entries() as usize
    }

    /// Submission queue entries, as granted.
    pub(crate) fn requests_max(&self) -> usize {
        self.inner.params().sq_entries() as usize
    }

    /// True when one receive may fill several buffers (Linux 6.10).
    pub(crate) fn has_bundles(&self) -> bool {
        self.inner.params().is_feature_recvsend_bundle()
    }

    /// True when the kernel knows the operation.
    pub(crate) fn supports(&self, code: u8) -> bool {
        let mut probe = io_uring::Probe::new();
        self.inner.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(code)
    }

    /// Lets a blocked worker poll the receive queues of its sockets for `micros` first.
    pub(crate) fn busy_poll(&self, micros: u32) -> io::Result<()> {
        let mut napi = types::Napi::new().set_busy_poll_timeout(micros).set_prefer_busy_poll(true);
        self.inner.submitter().register_napi(&mut napi)
    }

    /// Makes `entries` buffer descriptors at `at` the provided-buffer ring of `group`.
    ///
    /// # Safety
    /// They lie in memory that was given to [`keep`](Self::keep).
    pub(crate) unsafe fn provide(&self, at: u64, entries: u16, group: u16) -> io::Result<()> {
        // SAFETY: the caller's promise: the memory lives as long as the ring.
        unsafe { self.inner.submitter().register_buf_ring_with_flags(at, entries, group, 0) }
    }

    /// Queues a request; what is queued already is submitted first where the queue is full. False
    /// when there is no room even then: take completions, then try again.
    ///
    /// # Safety
    /// Everything the request names lies in memory that was given to [`keep`](Self::keep), and stays
    /// the kernel's, to read or to write as the operation does, until the request's last completion.
    #[must_use]
    pub(crate) unsafe fn push(&mut self, request: squeue::Entry, token: u64) -> bool {
        let request = request.user_data(token);
        // SAFETY: the caller's promise.
        let mut pushed = unsafe { self.inner.submission().push(&request) }.is_ok();
        if !pushed && self.submit().is_ok() {
            // SAFETY: the caller's promise.
            pushed = unsafe { self.inner.submission().push(&request) }.is_ok();
        }
        self.in_flight += u64::from(pushed);
        self.queued += u32::from(pushed);
        pushed
    }

    /// Hands over what is queued and lets the kernel deliver what it has put off. Makes a call only
    /// if there is something to do.
    ///
    /// # Errors
    /// The kernel lost completions, or refuses the call for good.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        if self.queued == 0 && !self.has_deferred() {
            return Ok(());
        }
        self.enter(0, None).map(drop)
    }

    /// Submits, and waits until there is a completion. False when the time was up first, or the kernel
    /// has no memory for what is queued.
    ///
    /// An interrupted wait goes on for the time that is left. The kernel itself interrupts: while it
    /// takes down another ring that this thread has used, it calls the thread to let go of it
    /// (`io_ring_exit_work`), at any time after that ring was closed.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        if !self.inner.completion().is_empty() {
            self.submit()?;
            return Ok(true);
        }
        let begun = Instant::now();
        loop {
            let left = timeout.saturating_sub(begun.elapsed());
            let left = libc::timespec {
                tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let end = self.enter(1, Some(&left))?;
            if !self.inner.completion().is_empty() {
                return Ok(true);
            }
            if end != Entered::Interrupted || begun.elapsed() >= timeout {
                return Ok(false);
            }
        }
    }

    /// The next completion that is there. Makes no call, unless completions wait in the kernel
    /// because the queue was full.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        let first = self.inner.completion().next();
        let entry = match first {
            Some(entry) => entry,
            None => {
                if !self.inner.submission().cq_overflow() {
                    return None;
                }
                // Where this fails, so will the next submit, which can say so.
                self.enter(0, None).ok()?;
                self.inner.completion().next()?
            }
        };
        let completion =
            Completion { token: entry.user_data(), result: entry.result(), flags: entry.flags() };
        if !completion.has_more() {
            // A request that the kernel posts more often than it should would be its bug.
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        Some(completion)
    }

    /// What happened so far.
    pub(crate) fn counts(&mut self) -> RingCounts {
        self.counts.lost = u64::from(self.inner.completion().overflow());
        self.counts
    }

    /// Cancels every request and waits until all have ended, for `waits_max` times 10 ms at most.
    /// `each` is shown every completion. True when none is left.
    pub(crate) fn drain(&mut self, waits_max: usize, mut each: impl FnMut(Completion)) -> bool {
        let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        // SAFETY: a cancel names no memory.
        let mut asked = unsafe { self.push(cancel.clone(), CANCEL_TOKEN) };
        for _ in 0..waits_max {
            while let Some(completion) = self.next() {
                each(completion);
            }
            if self.in_flight == 0 {
                return true;
            }
            if !asked {
                // SAFETY: a cancel names no memory.
                asked = unsafe { self.push(cancel.clone(), CANCEL_TOKEN) };
            }
            // An error here leaves requests in flight, and then the bound above decides.
            let _ = self.wait(DRAIN_WAIT);
        }
        false
    }

    /// Completions that an enter would bring: put off until the worker comes (DEFER_TASKRUN), or
    /// waiting for room.
    fn has_deferred(&mut self) -> bool {
        let queue = self.inner.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    fn enter(&mut self, wait_for: u32, timeout: Option<&libc::timespec>) -> io::Result<Entered> {
        let (ring, flag) = match self.registered {
            Some(number) => (number as RawFd, ENTER_REGISTERED_RING),
            None => (self.inner.as_raw_fd(), 0),
        };
        self.counts.enters += 1;
        self.counts.overflows += u64::from(self.inner.submission().cq_overflow());
        // SAFETY: what queued requests name was promised to `push`.
        match unsafe { sys::enter(ring, self.queued, wait_for, flag | ENTER_GETEVENTS, timeout) } {
            Ok(taken) => {
                self.queued = self.queued.saturating_sub(taken);
                // Of a wait that ended after requests were taken, the kernel tells those and not why.
                let waited = wait_for > 0 && taken > 0;
                Ok(if waited { Entered::Interrupted } else { Entered::Done })
            }
            Err(error) => {
                // The call fails as a whole only if it took nothing, or took all and then waited in
                // vain; what the queue still holds tells which.
                self.queued = self.inner.submission().len() as u32;
                match error.raw_os_error() {
                    Some(libc::EINTR) => Ok(Entered::Interrupted),
                    // Time is up; the kernel wants completions taken first; it has no memory.
                    Some(libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(Entered::Done),
                    _ => Err(error),
                }
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let drained = self.drain(DRAIN_WAITS_MAX, |_| ());
        if let Some(number) = self.registered {
            sys::unregister_ring(self.inner.as_raw_fd(), number);
        }
        if !drained {
            // The kernel may still read or write this memory: see the proof above. It stays.
            std::mem::forget(std::mem::take(&mut self.kept));
        }
    }
}

/// Marks completions that nothing waits for.
pub(crate) const CANCEL_TOKEN: u64 = u64::MAX;

fn build(depth: u32, no_array: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(depth * COMPLETIONS_PER_REQUEST);
    if no_array {
        builder.setup_no_sqarray();
    }
    builder.build(depth)
}

/// `kernel.io_uring_disabled` as it is now (Linux 6.6 and newer have it).
fn disabled_setting() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    Some(text.trim().to_owned())
}

/// Why there is no ring, as a sentence to act on.
fn refusal(error: io::Error, disabled: Option<&str>) -> LaneError {
    let lane = NAME.to_owned();
    let doing = "set up an io_uring".to_owned();
    match (error.raw_os_error(), disabled) {
        (Some(libc::EPERM | libc::EACCES), Some(setting @ ("1" | "2"))) => {
            LaneError::NotPermitted {
                lane,
                doing,
                hint: format!(
                    "kernel.io_uring_disabled is {setting}; try `sysctl -w kernel.io_uring_disabled=0`, \
                     or use lane socket"
                ),
            }
        }
        (Some(libc::EPERM | libc::EACCES), _) => LaneError::NotPermitted {
            lane,
            doing,
            hint: "a seccomp filter or security module forbids it (containers often do): allow \
                   io_uring_setup, io_uring_enter and io_uring_register, or use lane socket"
                .to_owned(),
        },
        (Some(libc::ENOSYS), _) => LaneError::Os {
            lane,
            doing,
            source: error,
            hint:
                "this kernel was built without CONFIG_IO_URING, or a seccomp filter hides it; use \
                   lane socket"
                    .to_owned(),
        },
        (Some(libc::EINVAL), _) => LaneError::Os {
            lane,
            doing,
            source: error,
            hint: "this lane needs Linux 6.1 or newer (SINGLE_ISSUER and DEFER_TASKRUN); use lane \
                   socket"
                .to_owned(),
        },
        (Some(libc::ENOMEM), _) => LaneError::Os {
            lane,
            doing,
            source: error,
            hint: "lower depth=, or raise the locked-memory limit (`ulimit -l`)".to_owned(),
        },
        _ => LaneError::os(NAME, doing, error, "lower depth="),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(code: i32, disabled: Option<&str>) -> String {
        refusal(io::Error::from_raw_os_error(code), disabled).to_string()
    }

    /// A ring, or a printed reason why there is none.
    fn ring(depth: u32) -> Option<Ring> {
        Ring::open(depth).map_err(laneway_testkit::skip).ok()
    }

    #[test]
    fn a_disabled_io_uring_names_the_setting_to_change() {
        for setting in ["1", "2"] {
            let reason = sentence(libc::EPERM, Some(setting));
            assert!(reason.contains(&format!("kernel.io_uring_disabled is {setting}")), "{reason}");
            assert!(reason.contains("sysctl -w kernel.io_uring_disabled=0"), "{reason}");
        }
    }

    #[test]
    fn other_refusals_name_their_likely_cause() {
        assert!(sentence(libc::EPERM, Some("0")).contains("seccomp"));
        assert!(sentence(libc::EPERM, None).contains("seccomp"));
        assert!(sentence(libc::ENOSYS, None).contains("CONFIG_IO_URING"));
        assert!(sentence(libc::EINVAL, None).contains("Linux 6.1"));
        assert!(sentence(libc::ENOMEM, None).contains("depth="));
        assert!(sentence(libc::EMFILE, None).contains("set up an io_uring"));
    }

    #[test]
    fn every_request_completes_once_even_when_the_queue_overflows() {
        let Some(mut ring) = ring(2) else { return };
        const REQUESTS: u64 = 100; // the completion queue holds 8
        for token in 0..REQUESTS {
            // SAFETY: a no-op names no memory.
            assert!(unsafe { ring.push(opcode::Nop::new().build(), token) });
        }
        let mut seen = Vec::new();
        while ring.in_flight > 0 && seen.len() < 2 * REQUESTS as usize {
            ring.submit().expect("the kernel takes them");
            while let Some(completion) = ring.next() {
                seen.push(completion.token);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..REQUESTS).collect::<Vec<_>>());
        let counts = ring.counts();
        assert!(counts.overflows > 0, "{counts:?}");
        assert_eq!(counts.lost, 0, "{counts:?}");
    }

    #[test]
    fn a_wait_without_completions_ends_at_its_time() {
        let Some(mut ring) = ring(2) else { return };
        assert!(!ring.wait(Duration::from_millis(1)).expect("waiting works"));
    }

    #[test]
    fn an_interrupted_wait_goes_on() {
        extern "C" fn do_nothing(_: libc::c_int) {}
        let Some(mut ring) = ring(2) else { return };
        // SAFETY: zero is a value of it.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = do_nothing as *const () as usize;
        // SAFETY: the handler touches nothing, and no other test of this process uses this signal.
        let set =
            unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
        assert_eq!(set, 0);
        // SAFETY: it says which thread this is.
        let me = unsafe { libc::pthread_self() };
        let after = types::Timespec::new().nsec(100_000_000);
        let request = opcode::Timeout::new(&after).build();
        // SAFETY: the kernel reads the time while it takes the request, which the wait below does.
        assert!(unsafe { ring.push(request, 7) });
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    // SAFETY: the thread lives until this scope ends.
                    assert_eq!(unsafe { libc::pthread_kill(me, libc::SIGUSR1) }, 0);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let is_ready = ring.wait(Duration::from_secs(60));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(is_ready.expect("waiting works"), "a signal ended the wait");
        });
        assert_eq!(ring.next().map(|completion| completion.token), Some(7));
    }

    #[test]
    fn a_thread_can_open_and_drop_many_more_rings_than_it_may_register() {
        for _ in 0..40 {
            let Some(ring) = ring(2) else { return };
            assert!(ring.is_registered());
        }
    }

    #[test]
    fn draining_ends_what_would_never_end() {
        let Some(mut ring) = ring(4) else { return };
        let (reader, _writer) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let poll = opcode::PollAdd::new(types::Fd(reader.as_raw_fd()), libc::POLLIN as u32);
        // SAFETY: a poll names no memory.
        assert!(unsafe { ring.push(poll.multi(true).build(), 7) });
        ring.submit().expect("the kernel takes it");
        let mut ended = Vec::new();
        assert!(ring.drain(DRAIN_WAITS_MAX, |completion| {
            ended.push((completion.token, completion.result))
        }));
        assert!(ended.contains(&(7, -libc::ECANCELED)), "{ended:?}");
        assert_eq!(ring.in_flight, 0);
    }
}
