//! Interfaces of others that go back as they were, however the process ends.
//!
//! net_af_xdp attaches its program by netlink, and promiscuous mode is a flag of the interface: the kernel keeps
//! both when the process is killed. So a [`Guard`] stands by that knows what the ports changed. A lane that closes
//! in order undoes its changes itself and dismisses the guard.
//!
//! Program and flag are taken off only where they are still there and were not before. What it cannot know is
//! whether another process has joined the program by a queue of its own meanwhile; that one's frames then go to the
//! kernel.

use crate::{
    config::NAME,
    guard::{GUARD_BYTES_MAX, Guard},
};
use laneway_core::{LaneError, PortMask};
use laneway_linux::{Facts, ProgramId, Undo, XdpPlace};
use std::{io, os::fd::RawFd};

/// Longest message to undo one port's changes (60 are needed).
const MESSAGE_BYTES_MAX: usize = 64;
/// The program's number, the message's length, the message.
const RECORD_BYTES: usize = 4 + 4 + MESSAGE_BYTES_MAX;
// Every port's record has room in the guard.
const _: () = assert!(PortMask::PORTS_MAX * RECORD_BYTES <= GUARD_BYTES_MAX);
/// What the child calls its descriptor of the program.
const PROGRAM_FD: RawFd = 2;

/// Not in the libc crate (`linux/bpf.h`).
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;

/// The interfaces of one lane's ports.
pub(crate) struct Borrowed(Guard);

impl Borrowed {
    /// Has a guard stand by, in this thread's network namespace.
    ///
    /// # Errors
    /// No descriptor or no process left.
    pub(crate) fn stand_by() -> Result<Borrowed, LaneError> {
        // SAFETY: `undo` makes system calls only.
        unsafe { Guard::start(undo) }.map(Borrowed).map_err(failed)
    }

    /// Notes what a port that was started has changed.
    ///
    /// # Errors
    /// The guard was killed.
    pub(crate) fn note(
        &self,
        before: &Facts,
        after: &Facts,
        promiscuous: bool,
    ) -> Result<(), LaneError> {
        let places = [
            (XdpPlace::Native, before.native, after.native),
            (XdpPlace::Generic, before.generic, after.generic),
        ];
        let is_new = |(place, was, is): (XdpPlace, Option<ProgramId>, Option<ProgramId>)| {
            Some((place, is.filter(|_| is != was)?))
        };
        let program = places.into_iter().find_map(is_new);
        if program.is_none() && !promiscuous {
            return Ok(());
        }
        let index = after.index;
        let descriptor = program.map(|(place, _)| (place, PROGRAM_FD));
        let message = Undo { index, promiscuous, program: descriptor }.message();
        let mut record = [0; RECORD_BYTES];
        record[..4].copy_from_slice(&program.map_or(0, |(_, id)| id).to_ne_bytes());
        record[4..8].copy_from_slice(&(message.len() as u32).to_ne_bytes());
        record[8..8 + message.len()].copy_from_slice(&message);
        self.0.record(&record).map_err(failed)
    }
}

/// Closed in order: nothing is left to undo.
impl Drop for Borrowed {
    fn drop(&mut self) {
        self.0.dismiss();
    }
}

fn failed(error: io::Error) -> LaneError {
    let hint =
        "it takes the lane's changes off the interface if this process is killed; see `ulimit -u`";
    LaneError::os(NAME, "have a guard stand by".to_owned(), error, hint)
}

/// The guard's duty: sends what it was given. System calls only; no process is left that could learn of a failure.
fn undo(message: &[u8]) {
    // SAFETY: plain integers.
    let netlink = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE) };
    let (records, _) = message.as_chunks::<RECORD_BYTES>();
    for record in records {
        let number = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| record[at + i]));
        let (program, len) = (number(0), (number(4) as usize).min(MESSAGE_BYTES_MAX));
        // The beginning of `union bpf_attr`; the kernel takes the rest as zero.
        let attributes = [program, 0, 0];
        let size = size_of_val(&attributes);
        // SAFETY: that many bytes, which the call only reads.
        let fd = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_PROG_GET_FD_BY_ID, attributes.as_ptr(), size)
        };
        // Without it the message names no program that is there, and only the flag is set.
        // SAFETY: two integers.
        unsafe { libc::dup2(fd as RawFd, PROGRAM_FD) };
        // SAFETY: that many bytes of the record.
        unsafe { libc::send(netlink, record[8..].as_ptr().cast(), len, 0) };
    }
}
