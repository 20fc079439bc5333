//! A child process that does one thing when this process ends, however it ends.
//!
//! ```text
//!   Guard ── pipe, what the duty is about ──▶ child: reads until the pipe's last end is closed, does its duty
//! ```
//!
//! For what the kernel keeps when its maker is killed: huge pages, an XDP program attached by netlink. Start it
//! before DPDK has its memory: a fork shares every page, and the first write to each one copies it.
//! What must always hold: the child makes system calls only (a fork of a process with several threads may
//! do no more), keeps nothing of its parent's open but the pipe, and is waited for.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// Bytes that a guard may be given in all; a pipe takes as many in one piece (`PIPE_BUF`).
pub(crate) const GUARD_BYTES_MAX: usize = 4096;

/// The child, until it is to act or dismissed.
pub(crate) struct Guard {
    /// The end of the pipe whose closing makes the child act.
    pipe: Option<OwnedFd>,
    child: libc::pid_t,
}

impl Guard {
    /// Starts a child in this thread's namespaces that calls `duty` when this process ends or the guard is
    /// dropped, with all that it was given.
    ///
    /// # Errors
    /// No descriptor or no process left.
    ///
    /// # Safety
    /// `duty` makes system calls only: it neither allocates nor locks, and does not panic.
    pub(crate) unsafe fn start(duty: impl FnOnce(&[u8])) -> io::Result<Guard> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors. Closed on exec, so that no other child keeps the pipe.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, nothing else has it.
        let read = unsafe { OwnedFd::from_raw_fd(ends[0]) };
        // SAFETY: likewise.
        let write = unsafe { OwnedFd::from_raw_fd(ends[1]) };
        // SAFETY: the child makes system calls only, as the caller says of `duty`, until it ends.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let mut message = [0; GUARD_BYTES_MAX];
                let bytes = stand_by(read.as_raw_fd(), &mut message);
                duty(&message[..bytes]);
                // SAFETY: ends the child without the parent's exit handlers.
                unsafe { libc::_exit(0) }
            }
            child => Ok(Guard { pipe: Some(write), child }),
        }
    }

    /// Tells the child what its duty is about, in one piece.
    ///
    /// # Errors
    /// When the child is gone.
    pub(crate) fn record(&self, what: &[u8]) -> io::Result<()> {
        let pipe = self.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: that many bytes of ours.
        match unsafe { libc::write(pipe, what.as_ptr().cast(), what.len()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Ends the child before it acts; dropping the guard then waits for it only.
    pub(crate) fn dismiss(&self) {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.child, libc::SIGKILL) };
    }
}

/// Makes the child act, and waits until it has.
impl Drop for Guard {
    fn drop(&mut self) {
        self.pipe = None;
        let mut status = 0;
        // SAFETY: our own child and room for its status. A signal only means to ask again.
        while unsafe { libc::waitpid(self.child, &mut status, 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// The child: reads what it is given until the pipe's other end is closed, and returns how much. System calls only.
fn stand_by(read: RawFd, message: &mut [u8]) -> usize {
    // Signals to the process group (Ctrl-C) must not end it before its time.
    // SAFETY: no arguments.
    unsafe { libc::setsid() };
    // SAFETY: two descriptors of this process.
    unsafe { libc::dup2(read, 0) };
    // A reader that waits for the end of our output, or of another pipe, must not wait for the child.
    // SAFETY: plain integers; the child has no other use for descriptors than 0.
    unsafe { libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) };
    // SAFETY: a terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"laneway-guard".as_ptr()) };
    let mut bytes = 0;
    loop {
        let mut beyond = 0u8;
        let (room, len) = match message.get_mut(bytes..) {
            Some(room) if !room.is_empty() => (room.as_mut_ptr(), room.len()),
            _ => (&raw mut beyond, 1),
        };
        // SAFETY: room for that many bytes.
        let got = unsafe { libc::read(0, room.cast(), len) };
        // Reads errno and allocates nothing.
        let interrupted = io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        match usize::try_from(got) {
            Ok(0) => return bytes,
            Ok(got) => bytes = (bytes + got).min(message.len()),
            Err(_) if interrupted => {}
            Err(_) => return bytes,
        }
    }
}
