//! The headers of one send call: trains become messages, messages leave in one call each or in one for many, and what
//! the kernel refuses is cut, kept or counted under one drop reason.

use super::{DRAIN_MAX, Exit, REPEATS_MAX, Transmit, VECTORS_MAX};
use crate::{
    control::Control,
    sys::{self, Name},
    train::{Cursor, Memory, Message, PIECES_MAX, Trains, Travels},
};
use laneway_core::DropReason;
use laneway_linux::{Delayed, is_late_error};
use std::{mem, os::fd::AsFd};

/// Datagrams up to this length fit every path (IPv6's least MTU of 1280).
const SEGMENT_BYTES_SAFE: usize = 1232;

/// The headers of one send call.
pub(super) struct Sender {
    pub(super) messages_max: usize,
    pub(super) names: Vec<Name>,
    pub(super) controls: Vec<Control>,
    pub(super) vectors: Vec<libc::iovec>,
    pub(super) messages: Vec<libc::mmsghdr>,
    pub(super) planned: Vec<Message>,
}

impl Sender {
    pub(super) fn new(messages_max: usize) -> Sender {
        let messages_max = messages_max.clamp(1, PIECES_MAX);
        Sender {
            messages_max,
            names: Vec::with_capacity(messages_max),
            controls: Vec::with_capacity(messages_max),
            vectors: Vec::with_capacity(VECTORS_MAX),
            messages: Vec::with_capacity(messages_max),
            planned: Vec::with_capacity(messages_max),
        }
    }

    /// Sends everything that waits at `exit`.
    pub(super) fn flush(
        &mut self,
        exit: &mut Exit,
        memories: [&[u8]; 2],
        transmit: &mut impl Transmit,
    ) {
        let mut cursor = Cursor::default();
        let mut repeats = 0;
        let mut is_in_doubt = false;
        if exit.is_delayed() {
            // What was queued before goes first.
            self.drain(exit, transmit);
            if exit.is_delayed() {
                return keep(exit, cursor, memories);
            }
        }
        loop {
            self.plan(exit, cursor, memories);
            if self.planned.is_empty() {
                break;
            }
            // SAFETY: `plan` aimed every header at names, controls and vectors of this sender and at
            // bytes of `memories`, all of which outlive the call.
            let sent = unsafe { transmit.transmit(exit.socket.as_fd(), &mut self.messages) };
            match sent.map_err(|e| e.raw_os_error().unwrap_or_default()) {
                Ok(taken) => {
                    is_in_doubt = false;
                    for message in &self.planned[..taken] {
                        exit.counters.tx_frames += message.segments as u64;
                        exit.counters.tx_bytes += message.bytes as u64;
                        cursor = message.next;
                        let train = exit.trains.train_mut(message);
                        if let Travels::OnTrial(error) = train.travels {
                            train.travels = Travels::Cut;
                            exit.gso = false;
                            exit.gave_up_gso.get_or_insert(error);
                        }
                    }
                }
                // A signal, or what became of a datagram that left earlier.
                Err(libc::EINTR | libc::ECONNREFUSED) if repeats < REPEATS_MAX => repeats += 1,
                Err(error)
                    if exit.hears_errors && is_late_error(error) && repeats < REPEATS_MAX =>
                {
                    repeats += 1;
                }
                // What is itself too long is so the next time, too.
                Err(libc::EMSGSIZE)
                    if exit.hears_errors && !mem::replace(&mut is_in_doubt, true) => {}
                Err(error @ (libc::EAGAIN | libc::ENOBUFS)) if exit.backlog.is_some() => {
                    exit.backlog.iter_mut().for_each(|backlog| backlog.refused(why_dropped(error)));
                    return keep(exit, cursor, memories);
                }
                Err(error) => {
                    is_in_doubt = false;
                    let message = &self.planned[0];
                    let train = exit.trains.train_mut(message);
                    match error {
                        _ if message.segments == 1 => {
                            exit.counters.drop_one(why_dropped(error));
                            cursor = message.next;
                        }
                        // Its datagrams may be as long as the path takes only when cut there. Older
                        // kernels say EINVAL of that, as of trains at all.
                        libc::EMSGSIZE => train.travels = Travels::Cut,
                        libc::EINVAL if train.segment_bytes > SEGMENT_BYTES_SAFE => {
                            train.travels = Travels::Cut;
                        }
                        libc::EIO | libc::EINVAL => train.travels = Travels::OnTrial(error),
                        _ => {
                            let datagrams = message.segments as u64;
                            exit.counters.drop_many(why_dropped(error), datagrams);
                            cursor = message.next;
                        }
                    }
                }
            }
        }
        if exit.gave_up_gso.is_some() {
            exit.trains.stop_merging();
        }
    }

    /// Sends what waits in the backlog, until the kernel takes no more.
    pub(super) fn drain(&mut self, exit: &mut Exit, transmit: &mut impl Transmit) {
        let (mut repeats, mut is_in_doubt) = (0, false);
        let Exit { backlog: Some(backlog), counters, socket, hears_errors, .. } = exit else {
            return;
        };
        for _ in 0..DRAIN_MAX {
            let Some(item) = backlog.get(0) else { break };
            self.plan_item(item);
            // SAFETY: `plan_item` aimed the header at name, control and vector of this sender and at the
            // item's bytes, all of which outlive the call.
            let sent = unsafe { transmit.transmit(socket.as_fd(), &mut self.messages) };
            match sent.map_err(|e| e.raw_os_error().unwrap_or_default()) {
                Ok(_) => {
                    is_in_doubt = false;
                    counters.tx_frames += 1;
                    counters.tx_bytes += item.payload.len() as u64;
                    backlog.pop();
                }
                Err(error @ (libc::EAGAIN | libc::ENOBUFS)) => {
                    return backlog.refused(why_dropped(error));
                }
                Err(libc::EINTR | libc::ECONNREFUSED) if repeats < REPEATS_MAX => repeats += 1,
                Err(error) if *hears_errors && is_late_error(error) && repeats < REPEATS_MAX => {
                    repeats += 1
                }
                Err(libc::EMSGSIZE) if *hears_errors && !mem::replace(&mut is_in_doubt, true) => {}
                Err(error) => {
                    is_in_doubt = false;
                    counters.drop_one(why_dropped(error));
                    backlog.pop();
                }
            }
        }
    }

    /// Writes the header of one datagram of a backlog.
    pub(super) fn plan_item(&mut self, item: &Delayed) {
        let mut control = Control::EMPTY;
        let control_bytes = control.write(None, item.from);
        let name = Name::from(item.destination);
        let name_bytes = name.bytes();
        let iov_base = item.payload.as_ptr().cast_mut().cast();
        self.names.clear();
        self.names.push(name);
        self.controls.clear();
        self.controls.push(control);
        self.vectors.clear();
        self.vectors.push(libc::iovec { iov_base, iov_len: item.payload.len() });
        let msg_control = match control_bytes {
            0 => std::ptr::null_mut(),
            _ => self.controls.as_mut_ptr().cast(),
        };
        self.messages.clear();
        self.messages.push(libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: self.names.as_mut_ptr().cast(),
                msg_namelen: name_bytes,
                msg_iov: self.vectors.as_mut_ptr(),
                msg_iovlen: 1,
                msg_control,
                msg_controllen: control_bytes as _,
                ..sys::EMPTY_HEADER
            },
            msg_len: 0,
        });
    }

    /// Writes the headers of the messages from `cursor` on, as many as one call takes.
    pub(super) fn plan(&mut self, exit: &Exit, mut cursor: Cursor, memories: [&[u8]; 2]) {
        self.names.clear();
        self.controls.clear();
        self.vectors.clear();
        self.messages.clear();
        self.planned.clear();
        while self.planned.len() < self.messages_max
            && let Some(message) = exit.trains.message(cursor, exit.gso)
        {
            let train = exit.trains.train(&message);
            let first_vector = self.vectors.len();
            if first_vector + message.pieces.len() > VECTORS_MAX {
                break;
            }
            self.gather(&exit.trains, &message, memories);
            let vectors = self.vectors.len() - first_vector;
            let mut control = Control::EMPTY;
            let segment_bytes = (message.segments > 1).then_some(train.segment_bytes);
            let control_bytes = control.write(segment_bytes, train.from);
            let name = Name::from(train.destination);
            self.messages.push(libc::mmsghdr {
                msg_hdr: libc::msghdr {
                    msg_namelen: name.bytes(),
                    msg_iovlen: vectors as _,
                    msg_controllen: control_bytes as _,
                    ..sys::EMPTY_HEADER
                },
                msg_len: 0,
            });
            self.names.push(name);
            self.controls.push(control);
            cursor = message.next;
            self.planned.push(message);
        }
        // Pointers last: nothing is pushed any more.
        let (name, control) = (self.names.as_mut_ptr(), self.controls.as_mut_ptr());
        let mut vector = self.vectors.as_mut_ptr();
        for (i, message) in self.messages.iter_mut().enumerate() {
            let header = &mut message.msg_hdr;
            header.msg_name = name.wrapping_add(i).cast();
            header.msg_iov = vector;
            vector = vector.wrapping_add(header.msg_iovlen);
            if header.msg_controllen > 0 {
                header.msg_control = control.wrapping_add(i).cast();
            }
        }
    }

    /// Adds the vectors of one message; neighbouring pieces share one.
    pub(super) fn gather(&mut self, trains: &Trains, message: &Message, memories: [&[u8]; 2]) {
        let mut left = message.bytes;
        let mut offset = message.offset;
        let first_vector = self.vectors.len();
        for piece in trains.pieces(message) {
            let memory = memories[usize::from(piece.memory == Memory::Own)];
            let bytes = left.min(piece.bytes - offset);
            let place = &memory[piece.at + offset..][..bytes];
            let base = place.as_ptr().cast_mut();
            (left, offset) = (left - bytes, 0);
            match self.vectors[first_vector..].last_mut() {
                Some(last)
                    if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == base
                        && piece.memory == Memory::Own =>
                {
                    last.iov_len += bytes;
                }
                _ => self.vectors.push(libc::iovec { iov_base: base.cast(), iov_len: bytes }),
            }
        }
    }
}

/// Puts the datagrams from `cursor` on into the backlog.
pub(super) fn keep(exit: &mut Exit, mut cursor: Cursor, memories: [&[u8]; 2]) {
    let Exit { backlog: Some(backlog), trains, counters, .. } = exit else { return };
    while let Some(message) = trains.message(cursor, false) {
        cursor = message.next;
        let train = trains.train(&message);
        let piece = trains.pieces(&message)[0];
        let memory = memories[usize::from(piece.memory == Memory::Own)];
        let payload = &memory[piece.at + message.offset..][..message.bytes];
        backlog.push(payload, train.destination, train.from);
        backlog.trim(counters);
    }
}

pub(super) fn why_dropped(error: i32) -> DropReason {
    match error {
        libc::EAGAIN => DropReason::TxSocketFull,
        libc::ENOBUFS => DropReason::TxInterfaceFull,
        libc::EMSGSIZE => DropReason::TxTooLong,
        libc::ENETUNREACH | libc::EHOSTUNREACH => DropReason::NoRoute,
        // The interface that the socket is kept to is down, or no more.
        libc::ENETDOWN | libc::ENODEV | libc::ENXIO => DropReason::NoRoute,
        _ => DropReason::TxRefused,
    }
}
