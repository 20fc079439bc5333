//! Sending: frames of any port are gathered per egress and leave by one `sendmmsg`.
//!
//! The kernel copies a frame before the call returns, so its buffer is free afterwards. `sendmmsg`
//! stops at the first frame that it cannot send: that one is counted by its reason and the rest is
//! tried again. Nothing ever waits: a full queue is a counted drop.

use crate::sys;
use laneway_core::{Counters, DropReason};
use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

pub(crate) struct Outbox {
    messages: Box<[libc::mmsghdr]>,
    buffers: Box<[libc::iovec]>,
    count: usize,
    frame_bytes_max: usize,
}

impl Outbox {
    /// For up to `frames` frames per flush, each at most `frame_bytes_max` long.
    pub(crate) fn new(frames: usize, frame_bytes_max: usize) -> Outbox {
        // SAFETY: integers and pointers; zero is a value of each.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        let buffer = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Outbox {
            messages: vec![message; frames].into_boxed_slice(),
            buffers: vec![buffer; frames].into_boxed_slice(),
            count: 0,
            frame_bytes_max,
        }
    }

    /// Adds a frame, or counts why it cannot go.
    ///
    /// # Panics
    /// When more frames are added than the outbox was made for.
    ///
    /// # Safety
    /// The bytes stay readable, and nobody writes them, until the next [`flush`](Self::flush).
    pub(crate) unsafe fn add(&mut self, start: *const u8, bytes: usize, counters: &mut Counters) {
        if bytes > self.frame_bytes_max {
            return counters.drop_one(DropReason::TxTooLong);
        }
        self.buffers[self.count] =
            libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes };
        self.count += 1;
    }

    /// Sends what was added and counts each frame as sent or dropped.
    ///
    /// # Errors
    /// When the interface is gone; the frames are counted as refused.
    pub(crate) fn flush(
        &mut self,
        socket: BorrowedFd<'_>,
        counters: &mut Counters,
    ) -> io::Result<()> {
        let count = mem::take(&mut self.count);
        for (message, buffer) in self.messages[..count].iter_mut().zip(&mut self.buffers) {
            message.msg_hdr.msg_iov = &raw mut *buffer;
            message.msg_hdr.msg_iovlen = 1;
        }
        let mut at = 0;
        while at < count {
            let rest = &mut self.messages[at..count];
            let frames = rest.len() as libc::c_uint;
            // SAFETY: each header points at an iovec of this outbox, and that at bytes which the
            // caller of `add` promised until now; the kernel only reads them.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    frames,
                    libc::MSG_DONTWAIT as _,
                )
            };
            match sys::check(sent) {
                Ok(sent) => {
                    let sent = sent as usize;
                    let buffers = &self.buffers[at..at + sent];
                    counters.tx_frames += sent as u64;
                    counters.tx_bytes += buffers.iter().map(|b| b.iov_len as u64).sum::<u64>();
                    at += sent;
                }
                Err(error) => match refusal(&error) {
                    Refusal::Again => (),
                    Refusal::Frame(reason) => {
                        counters.drop_one(reason);
                        at += 1;
                    }
                    Refusal::Interface => {
                        counters.drop_many(DropReason::TxRefused, (count - at) as u64);
                        return Err(error);
                    }
                },
            }
        }
        Ok(())
    }
}

/// What a failed send means.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// A signal came first; nothing happened.
    Again,
    /// This frame is lost, the next may go.
    Frame(DropReason),
    /// No frame will go any more.
    Interface,
}

fn refusal(error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EINTR) => Refusal::Again,
        Some(libc::EMSGSIZE) => Refusal::Frame(DropReason::TxTooLong),
        _ if is_gone(error) => Refusal::Interface,
        // ENOBUFS and EAGAIN: a full queue; EINVAL: shorter than an Ethernet header.
        _ => Refusal::Frame(DropReason::TxRefused),
    }
}

/// True for the answers of a socket whose interface is down or removed.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_costs_the_frame_or_the_interface() {
        let of = |code| refusal(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc::EINTR), Refusal::Again);
        assert_eq!(of(libc::EMSGSIZE), Refusal::Frame(DropReason::TxTooLong));
        for code in [libc::ENOBUFS, libc::EAGAIN, libc::EINVAL] {
            assert_eq!(of(code), Refusal::Frame(DropReason::TxRefused));
        }
        for code in [libc::ENETDOWN, libc::ENODEV, libc::ENXIO] {
            assert_eq!(of(code), Refusal::Interface);
        }
    }
}
