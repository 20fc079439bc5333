//! What leaves: sends under way, the messages they point to, and what becomes of them.

use super::{is_full, is_gone};
use crate::{
    memory::Memory,
    ring::{Completion, Ring},
    token::{self, Kind},
};
use io_uring::{opcode, types};
use laneway_core::{Counters, DropReason, HEAD_BYTES_MAX};
use laneway_linux::Stall;
use std::{collections::VecDeque, os::fd::RawFd, rc::Rc};

/// The ways out of all ports. Apart from the ports, because a frame of one leaves by another.
pub(super) struct Exits {
    pub(super) ring: Ring,
    /// Of each port, which has it open as long as the ring is.
    pub(super) sockets: Vec<RawFd>,
    /// Longest frame of each port.
    pub(super) frame_bytes_max: Vec<usize>,
    pub(super) counters: Vec<Counters>,
    /// Frames whose buffers were returned while their port was borrowed: (port, buffer).
    pub(super) sent: Vec<(usize, u32)>,
    /// The error of each port that a send found to be gone.
    pub(super) gone: Vec<Option<i32>>,
    /// The message header that receives are armed with.
    pub(super) template: Rc<Memory>,
    /// What each send is about, by its number.
    pub(super) sends: Box<[Send]>,
    /// What those of two vectors name, by the number of the send.
    pub(super) messages: Rc<Memory>,
    pub(super) free_sends: Vec<u32>,
    /// By egress.
    pub(super) queues: Vec<Queue>,
    /// Sends asked for so far.
    pub(super) asked: u64,
}

/// The transmit queue of a port, as far as it shows.
pub(super) struct Queue {
    /// Sends of frames from `lend` that it refused, in order. `lend` provides none while there are any, nor more
    /// than there are free sends.
    pub(super) again: VecDeque<u32>,
    /// It refused the last send to end: the first of `again` is offered alone.
    pub(super) is_full: bool,
    pub(super) stall: Stall,
}

/// What a send of two vectors names. Zero is a value of it.
#[repr(C, align(64))]
pub(super) struct GatherMessage {
    pub(super) header: libc::msghdr,
    pub(super) pieces: [libc::iovec; 2],
    pub(super) head: [u8; HEAD_BYTES_MAX],
}

/// A frame on its way out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Send {
    pub(super) ingress: usize,
    pub(super) egress: usize,
    pub(super) frame: u32,
    /// Where the frame, or the part of it that is sent, lies in the memory of its ingress.
    pub(super) start: usize,
    pub(super) bytes: usize,
    /// Bytes of the head in front of the part; none for a whole frame.
    pub(super) head_bytes: usize,
    /// `lend` provided its frame, so it is kept when the queue is full.
    pub(super) is_borrowed: bool,
    /// Sends asked for before it.
    pub(super) sequence: u64,
}

impl Queue {
    /// One that may refuse so many sends at a time.
    pub(super) fn new(sends: usize) -> Queue {
        Queue { again: VecDeque::with_capacity(sends), is_full: false, stall: Stall::default() }
    }
}

impl Exits {
    /// True while a full queue has frames wait.
    pub(super) fn are_kept(&self) -> bool {
        self.queues.iter().any(|queue| !queue.again.is_empty())
    }

    /// Asks the ring for send `number`; false when it has no room.
    ///
    /// # Safety
    /// Nothing writes the frame, or the part of it that is sent, in `memory` of its ingress, until the send has ended.
    pub(super) unsafe fn ask_to_send(&mut self, number: u32, memory: &Memory) -> bool {
        let Send { egress, start, bytes, head_bytes, .. } = self.sends[number as usize];
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // A part without bytes may lie at the very end of the memory.
        let start = memory.at(if bytes == 0 { 0 } else { start });
        let socket = types::Fd(self.sockets[egress]);
        let request = if head_bytes == 0 {
            opcode::Send::new(socket, start, bytes as u32).flags(flags).build()
        } else {
            let message = self.message(number);
            // SAFETY: inside the mapping, which is written here only while the send is not under way.
            let message = unsafe { &mut *message };
            message.pieces = [
                libc::iovec { iov_base: message.head.as_mut_ptr().cast(), iov_len: head_bytes },
                libc::iovec { iov_base: start.cast(), iov_len: bytes },
            ];
            message.header.msg_iov = message.pieces.as_mut_ptr();
            message.header.msg_iovlen = message.pieces.len() as _;
            let header = &raw const message.header;
            opcode::SendMsg::new(socket, header).flags(flags as u32).build()
        };
        // SAFETY: frame and message lie in memory that the ring keeps; that nothing writes the frame is the
        // caller's promise, and the message is written again when its send has ended.
        unsafe { self.ring.push(request, token::token(Kind::Send, 0, number)) }
    }

    /// What send `number` names, if it is one of two vectors.
    pub(super) fn message(&self, number: u32) -> *mut GatherMessage {
        self.messages.at_typed(number as usize * size_of::<GatherMessage>())
    }

    /// A send has ended, or is to be tried again.
    pub(super) fn ended(&mut self, number: u32, completion: Completion) {
        let Some(&send) = self.sends.get(number as usize) else { return };
        let counters = &mut self.counters[send.egress];
        let queue = &mut self.queues[send.egress];
        match completion.outcome() {
            Err(error) if send.is_borrowed && is_full(&error) => {
                let sends = &self.sends;
                let before = |&other: &u32| sends[other as usize].sequence < send.sequence;
                queue.again.insert(queue.again.partition_point(before), number);
                queue.is_full = true;
                return;
            }
            Ok(_) => {
                queue.is_full = false;
                queue.stall.ended();
                counters.tx_frames += 1;
                counters.tx_bytes += (send.head_bytes + send.bytes) as u64;
            }
            Err(error) => {
                let is_long = error.raw_os_error() == Some(libc::EMSGSIZE);
                counters.drop_one(if is_long {
                    DropReason::TxTooLong
                } else {
                    DropReason::TxRefused
                });
                if is_gone(&error) {
                    self.gone[send.egress] = error.raw_os_error();
                }
            }
        }
        self.free_sends.push(number);
        self.sent.push((send.ingress, send.frame));
    }
}
