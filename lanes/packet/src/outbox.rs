//! Sending: frames of any port are gathered per egress and leave by one `sendmmsg`.
//!
//! The kernel copies a frame before the call returns, so its buffer is free afterwards. `sendmmsg`
//! stops at the first frame that it cannot send: that one is counted by its reason and the rest is
//! tried again. Nothing ever waits. A full queue is a counted drop for a frame that was received; one
//! of a source is kept, with those behind it, and leads the next flush. A frame that is put together of a
//! head and a part of another is one message of two vectors: the kernel gathers them.
//!
//! What must always hold: kept frames stay in order, in front of all others, and are all a source's.

use crate::sys;
use laneway_core::{Counters, DropReason, FrameSpan};
use laneway_linux::{Stall, monotonic_ns, reason_not_to_send};
use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

pub(crate) struct Outbox {
    messages: Box<[libc::mmsghdr]>,
    /// Of each frame, its bytes: in one piece, the second empty, or in two.
    pieces: Box<[[libc::iovec; 2]]>,
    /// Of each frame, the borrowed buffer that it is in; nothing for a frame that is not to be kept.
    loans: Box<[Option<Loan>]>,
    count: usize,
    /// The first so many of `count` were there at an earlier flush.
    kept: usize,
    /// Borrowed buffers whose frame has left or was given up.
    returned: Vec<Loan>,
    stall: Stall,
    frame_bytes_max: usize,
}

/// No bytes.
const NOTHING: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// Bytes that are only read.
fn piece(start: *const u8, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes }
}

fn bytes_of(pieces: &[libc::iovec; 2]) -> usize {
    pieces[0].iov_len + pieces[1].iov_len
}

/// A buffer that was borrowed to be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loan {
    pub(crate) port: usize,
    pub(crate) frame: u32,
}

impl Outbox {
    /// For up to `frames` frames per flush, each at most `frame_bytes_max` long.
    pub(crate) fn new(frames: usize, frame_bytes_max: usize) -> Outbox {
        // SAFETY: integers and pointers; zero is a value of each.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        Outbox {
            messages: vec![message; frames].into_boxed_slice(),
            pieces: vec![[NOTHING; 2]; frames].into_boxed_slice(),
            loans: vec![None; frames].into_boxed_slice(),
            count: 0,
            kept: 0,
            returned: Vec::with_capacity(frames),
            stall: Stall::default(),
            frame_bytes_max,
        }
    }

    /// Frames that wait for room in the socket's queue.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Gives up the frames that wait for room: they are counted as refused, and their buffers are done with.
    pub(crate) fn drop_kept(&mut self, counters: &mut Counters) {
        let kept = mem::take(&mut self.kept);
        self.count = 0;
        counters.drop_many(DropReason::TxRefused, kept as u64);
        self.returned.extend(self.loans[..kept].iter().flatten());
    }

    /// The buffers of borrowed frames that are done with, to be put back.
    pub(crate) fn returned(&mut self) -> impl Iterator<Item = Loan> + '_ {
        self.returned.drain(..)
    }

    /// True when a frame can be added only behind a [`flush`](Self::flush).
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.messages.len()
    }

    /// Adds the frame of this span, which begins at `start`; or counts why it cannot go. A borrowed one is returned
    /// when it has left, by [`returned`](Self::returned).
    ///
    /// # Panics
    /// When the outbox is [full](Self::is_full).
    ///
    /// # Safety
    /// The bytes stay readable, and nothing writes them, until the next [`flush`](Self::flush); those of
    /// a borrowed frame until it is returned.
    pub(crate) unsafe fn add(
        &mut self,
        (start, span): (*const u8, &FrameSpan),
        loan: Option<Loan>,
        counters: &mut Counters,
    ) {
        if let Some(reason) = reason_not_to_send(span, self.frame_bytes_max) {
            self.returned.extend(loan);
            return counters.drop_one(reason);
        }
        self.push([piece(start, span.len as usize), NOTHING], loan);
    }

    /// Adds a frame that is put together of these, in order; or counts why it cannot go.
    ///
    /// # Panics
    /// When the outbox is [full](Self::is_full).
    ///
    /// # Safety
    /// Both stay readable, and nothing writes them, until the next [`flush`](Self::flush).
    pub(crate) unsafe fn add_gathered(&mut self, pieces: [&[u8]; 2], counters: &mut Counters) {
        let pieces = pieces.map(|bytes| piece(bytes.as_ptr(), bytes.len()));
        if bytes_of(&pieces) > self.frame_bytes_max {
            return counters.drop_one(DropReason::TxTooLong);
        }
        self.push(pieces, None);
    }

    fn push(&mut self, pieces: [libc::iovec; 2], loan: Option<Loan>) {
        self.loans[self.count] = loan;
        self.pieces[self.count] = pieces;
        self.count += 1;
    }

    /// Sends what was kept and what was added, and counts each frame as sent or dropped, or keeps it.
    ///
    /// # Errors
    /// When the interface is gone; the frames are counted as refused.
    pub(crate) fn flush(
        &mut self,
        socket: BorrowedFd<'_>,
        counters: &mut Counters,
    ) -> io::Result<()> {
        let count = mem::take(&mut self.count);
        counters.tx_retries += u64::from(mem::take(&mut self.kept) > 0);
        for (message, pieces) in self.messages[..count].iter_mut().zip(&mut self.pieces) {
            message.msg_hdr.msg_iov = pieces.as_mut_ptr();
            message.msg_hdr.msg_iovlen = if pieces[1].iov_len > 0 { 2 } else { 1 };
        }
        let mut at = 0;
        while at < count {
            let rest = &mut self.messages[at..count];
            let frames = rest.len() as libc::c_uint;
            // SAFETY: each header points at one or two iovecs of this outbox, and they at bytes which the
            // caller of `add` or `add_gathered` promised until now; the kernel only reads them.
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
                    self.stall.ended();
                    let pieces = &self.pieces[at..at + sent];
                    counters.tx_frames += sent as u64;
                    counters.tx_bytes += pieces.iter().map(bytes_of).sum::<usize>() as u64;
                    self.returned.extend(self.loans[at..at + sent].iter().flatten());
                    at += sent;
                }
                Err(error) => match refusal(&error) {
                    Refusal::Again => (),
                    Refusal::Full if self.loans[at].is_some() => {
                        self.keep(at..count, counters);
                        break;
                    }
                    Refusal::Full => {
                        counters.drop_one(DropReason::TxRefused);
                        at += 1;
                    }
                    Refusal::Frame(reason) => {
                        counters.drop_one(reason);
                        self.returned.extend(self.loans[at]);
                        at += 1;
                    }
                    Refusal::Interface => {
                        counters.drop_many(DropReason::TxRefused, (count - at) as u64);
                        self.returned.extend(self.loans[at..count].iter().flatten());
                        return Err(error);
                    }
                },
            }
        }
        Ok(())
    }

    /// Moves the borrowed ones of these frames to the front and refuses the others; refuses all when the
    /// queue has taken nothing for too long.
    fn keep(&mut self, frames: std::ops::Range<usize>, counters: &mut Counters) {
        let is_bearable = self.stall.is_bearable(monotonic_ns());
        for at in frames {
            match self.loans[at] {
                Some(_) if is_bearable => {
                    self.pieces[self.kept] = self.pieces[at];
                    self.loans[self.kept] = self.loans[at];
                    self.kept += 1;
                }
                loan => {
                    counters.drop_one(DropReason::TxRefused);
                    self.returned.extend(loan);
                }
            }
        }
        self.count = self.kept;
        // What empties the queue may need this CPU: a softirq thread, or the far end.
        std::thread::yield_now();
    }
}

/// What a failed send means.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// A signal arrived first; nothing happened.
    Again,
    /// The queue has no room now (EAGAIN: the socket's; ENOBUFS: the discipline's or the device's).
    Full,
    /// This frame is lost, the next may go.
    Frame(DropReason),
    /// No frame will go any more.
    Interface,
}

fn refusal(error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EINTR) => Refusal::Again,
        Some(libc::EMSGSIZE) => Refusal::Frame(DropReason::TxTooLong),
        Some(libc::ENOBUFS | libc::EAGAIN) => Refusal::Full,
        _ if is_gone(error) => Refusal::Interface,
        // EINVAL: shorter than an Ethernet header.
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
        assert_eq!(of(libc::EINVAL), Refusal::Frame(DropReason::TxRefused));
        for code in [libc::ENOBUFS, libc::EAGAIN] {
            assert_eq!(of(code), Refusal::Full);
        }
        for code in [libc::ENETDOWN, libc::ENODEV, libc::ENXIO] {
            assert_eq!(of(code), Refusal::Interface);
        }
    }
}
