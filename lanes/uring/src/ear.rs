//! How a worker of the ring hears its bell: a request that waits until the bell's event is readable.
//!
//! What must always hold: while a worker waits for the ring, one such request is with the kernel; it is
//! asked for again in the wait behind its completion. Requests of a worker that stays awake are none.

use crate::{
    ring::Ring,
    token::{Kind, token},
};
use io_uring::{opcode, types};
use laneway_core::Bell;
use std::{
    mem,
    os::fd::{AsFd, AsRawFd},
};

/// The ear of one ring; deaf until it was given a bell.
#[derive(Default)]
pub(crate) struct Ear {
    /// Kept, so that its descriptor stays what it is.
    bell: Option<Bell>,
    is_asked: bool,
    /// The request has completed since it was last asked for.
    has_come: bool,
}

impl Ear {
    /// From now on hears this bell.
    pub(crate) fn hear(&mut self, bell: &Bell) {
        *self = Ear { bell: Some(bell.clone()), ..Ear::default() };
    }

    /// Sees to it that a ring of the bell completes a request, before a wait.
    pub(crate) fn ask(&mut self, ring: &mut Ring) {
        let Some(bell) = self.bell.as_ref().filter(|_| !self.is_asked) else { return };
        let event = types::Fd(bell.as_fd().as_raw_fd());
        let request = opcode::PollAdd::new(event, libc::POLLIN as u32).build();
        // SAFETY: it names no memory, and the kernel keeps the file.
        self.is_asked = unsafe { ring.push(request, token(Kind::Bell, 0, 0)) };
    }

    /// The request has completed.
    pub(crate) fn completed(&mut self) {
        self.is_asked = false;
        self.has_come = true;
    }

    /// True when a wait is to end: from a ring until its answer, and once behind a completion.
    pub(crate) fn ends_wait(&mut self) -> bool {
        mem::take(&mut self.has_come) || self.bell.as_ref().is_some_and(Bell::is_rung)
    }
}
