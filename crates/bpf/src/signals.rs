//! A stretch in which no signal interrupts this thread.
//!
//! The verifier gives up with EAGAIN when a signal is pending, however little the thread cares for it: a child
//! that ends anywhere in the process is enough (SIGCHLD goes to any thread that does not block it). libbpf tries
//! again a few times; a program that takes long to verify on a busy machine is interrupted each time.

use std::mem::MaybeUninit;

/// Blocks every signal of this thread until dropped; those that come meanwhile arrive then.
pub(crate) struct Undisturbed(libc::sigset_t);

impl Undisturbed {
    pub(crate) fn new() -> Undisturbed {
        let mut all = MaybeUninit::uninit();
        // SAFETY: room for a set, which the call fills.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: a whole set and room for one, which the call fills: it fails only for a `how` that does not exist.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: filled by the call above.
        Undisturbed(unsafe { before.assume_init() })
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: a whole set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
