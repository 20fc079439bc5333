//! Receiving by copy: `recvmsg` for one frame, `recvmmsg` for several.
//!
//! Beside each frame the kernel is asked for PACKET_AUXDATA, because the VLAN tag is in there, and
//! whether the checksum is whole, and on request for a time stamp. That is what `recvmsg` is for and
//! `recv` could not do; the control message per frame belongs to the price of seeing frames as they
//! were on the wire.
//!
//! All headers are set anew for each call: the kernel overwrites them.

use laneway_linux::Repairs;
use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

/// Room for the auxiliary record (20 bytes) and a time stamp (16), each behind its header.
const CONTROL_BYTES: usize = 96;
/// Control messages are aligned like this, and their header is this long.
const CONTROL_ALIGN: usize = size_of::<usize>();
const CONTROL_HEADER: usize = size_of::<libc::cmsghdr>();

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// The headers for up to `frames` frames per call.
pub(crate) struct Inbox {
    messages: Box<[libc::mmsghdr]>,
    buffers: Box<[libc::iovec]>,
    controls: Box<[Control]>,
    many: bool,
}

/// What the kernel reported about one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Bytes of the frame as the kernel has it, also where the buffer was shorter.
    pub(crate) bytes: u32,
    /// What the frame lacks.
    pub(crate) repairs: Repairs,
    /// CLOCK_REALTIME, if stamps were asked for.
    pub(crate) real_ns: Option<u64>,
}

impl Inbox {
    /// For one frame per call (`recvmsg`), or with `many` for `frames` per call (`recvmmsg`).
    pub(crate) fn new(frames: usize, many: bool) -> Inbox {
        // SAFETY: integers and pointers; zero is a value of each.
        let message: libc::mmsghdr = unsafe { mem::zeroed() };
        let buffer = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Inbox {
            messages: vec![message; frames].into_boxed_slice(),
            buffers: vec![buffer; frames].into_boxed_slice(),
            controls: vec![Control([0; CONTROL_BYTES]); frames].into_boxed_slice(),
            many,
        }
    }

    /// Frames per call.
    pub(crate) fn frames_max(&self) -> usize {
        self.messages.len()
    }

    /// Receives into `buffers`, at most [`frames_max`](Self::frames_max) of them, without waiting.
    /// Returns how many frames arrived; none is [`io::ErrorKind::WouldBlock`].
    ///
    /// # Panics
    /// Without a buffer.
    ///
    /// # Safety
    /// Each buffer (address, bytes) is writable and nothing else uses it during the call.
    pub(crate) unsafe fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = (*mut u8, usize)>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (i, (address, bytes)) in buffers.take(self.messages.len()).enumerate() {
            self.buffers[i] = libc::iovec { iov_base: address.cast(), iov_len: bytes };
            let header = &mut self.messages[i].msg_hdr;
            header.msg_iov = &raw mut self.buffers[i];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES;
            count += 1;
        }
        assert!(count > 0, "headers of an earlier call must not be used again");
        // MSG_TRUNC makes the kernel tell the true length of a frame that does not fit.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        loop {
            let received = if self.many {
                let messages = self.messages.as_mut_ptr();
                // SAFETY: the first `count` headers point at a buffer (the caller's promise), an
                // iovec and a control area, all alive across the call.
                unsafe {
                    libc::recvmmsg(
                        socket.as_raw_fd(),
                        messages,
                        count as libc::c_uint,
                        flags,
                        ptr::null_mut(),
                    ) as isize
                }
            } else {
                let header = &raw mut self.messages[0].msg_hdr;
                // SAFETY: as above, for the first header alone.
                unsafe { libc::recvmsg(socket.as_raw_fd(), header, flags) }
            };
            if received < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            if self.many {
                return Ok(received as usize);
            }
            self.messages[0].msg_len = received as u32;
            return Ok(1);
        }
    }

    /// What the last call reported about frame `i`.
    pub(crate) fn arrival(&self, i: usize) -> Arrival {
        let message = &self.messages[i];
        let filled = message.msg_hdr.msg_controllen.min(CONTROL_BYTES);
        parse_control(message.msg_len, &self.controls[i].0[..filled])
    }
}

/// Reads control messages; what is not understood is left out.
fn parse_control(bytes: u32, mut control: &[u8]) -> Arrival {
    let mut arrival = Arrival { bytes, ..Arrival::default() };
    while let Some((header, _)) = control.split_at_checked(CONTROL_HEADER) {
        let (length, kind) = header.split_at(size_of::<usize>());
        let length = usize::from_ne_bytes(length.try_into().expect("split to this length"));
        let level = u32_at(kind, 0).map(|level| level as i32);
        let kind = u32_at(kind, 4).map(|kind| kind as i32);
        let Some(data) = control.get(CONTROL_HEADER..length) else { break };
        match (level, kind) {
            (Some(libc::SOL_PACKET), Some(libc::PACKET_AUXDATA)) => {
                arrival.repairs = Repairs::from_auxdata(data);
            }
            (Some(libc::SOL_SOCKET), Some(libc::SCM_TIMESTAMPNS)) => {
                arrival.real_ns = parse_stamp(data);
            }
            _ => (),
        }
        let next = length.next_multiple_of(CONTROL_ALIGN);
        control = control.get(next..).unwrap_or_default();
    }
    arrival
}

/// `struct timespec` of SO_TIMESTAMPNS.
fn parse_stamp(data: &[u8]) -> Option<u64> {
    const WORD: usize = size_of::<libc::c_long>();
    let word = |at: usize| {
        Some(libc::c_long::from_ne_bytes(*data.get(at..)?.first_chunk::<WORD>()?) as u64)
    };
    Some(word(0)? * 1_000_000_000 + word(WORD)?)
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*data.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (CONTROL_HEADER + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(CONTROL_ALIGN), 0);
        bytes
    }

    #[test]
    fn tag_and_stamp_are_found_in_either_order() {
        let status = libc::TP_STATUS_VLAN_VALID
            | libc::TP_STATUS_VLAN_TPID_VALID
            | libc::TP_STATUS_CSUMNOTREADY;
        let mut aux = status.to_ne_bytes().to_vec();
        aux.extend([0; 12]);
        aux.extend(100u16.to_ne_bytes());
        aux.extend(0x8100u16.to_ne_bytes());
        let mut stamp = 5i64.to_ne_bytes().to_vec();
        stamp.extend(7i64.to_ne_bytes());
        let aux = message(libc::SOL_PACKET, libc::PACKET_AUXDATA, &aux);
        let stamp = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &stamp);
        let expected = Arrival {
            bytes: 60,
            repairs: Repairs::from_kernel(status, 100, 0x8100),
            real_ns: Some(5_000_000_007),
        };
        assert_eq!(parse_control(60, &[aux.clone(), stamp.clone()].concat()), expected);
        assert_eq!(parse_control(60, &[stamp, aux].concat()), expected);
        assert_ne!(expected.repairs, Repairs::default());
    }

    #[test]
    fn foreign_messages_are_passed_over() {
        let foreign = message(libc::SOL_SOCKET, libc::SCM_RIGHTS, &[1, 2, 3]);
        assert_eq!(parse_control(9, &foreign), Arrival { bytes: 9, ..Arrival::default() });
    }

    proptest! {
        #[test]
        fn control_bytes_never_panic_the_parser(control in prop::collection::vec(any::<u8>(), 0..96)) {
            parse_control(0, &control);
        }

        #[test]
        fn a_hostile_length_ends_the_parse(length: usize) {
            let mut bytes = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[0; 16]);
            bytes[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
            parse_control(0, &bytes);
        }
    }
}
