//! One socket of the lane: what it receives, what it sends, and what it counts.

use super::{Arrival, FAILURES_MAX, FIELDS, GROUP, count, is_late};
use crate::{
    address,
    arrival::{Message, Notes},
    buffers::Buffers,
    memory::Memory,
    oldest::{Oldest, Then},
    receiving::{Receiving, Source},
    ring::Completion,
    sys,
    sys::Holder,
    trains::{Outcome, Trains, drop_reason, fall_back},
};
use laneway_core::{CapsReport, Counters, Datagram, DropReason, PayloadKey, PortId};
use laneway_kinds::place_of;
use laneway_linux::{Groups, WallClock, is_icmp_error};
use std::{
    collections::VecDeque,
    io, mem,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd, RawFd},
};

pub(super) struct Port {
    pub(super) id: PortId,
    pub(super) socket: OwnedFd,
    pub(super) bound: SocketAddr,
    pub(super) caps: CapsReport,
    pub(super) counters: Counters,
    pub(super) groups: Groups<Holder>,
    /// Errors of earlier datagrams come with receives and sends.
    pub(super) hears_errors: bool,
    /// It has sent to a host. No host answers a datagram to a group with an error (RFC 1122, section 3.2.2).
    pub(super) has_sent_to_host: bool,
    pub(super) arrivals: VecDeque<Arrival>,
    /// What waits to be sent, where the oldest of it goes first. Boxed: few ports have it.
    pub(super) oldest: Option<Box<Oldest>>,
    /// It is listed among those that have arrivals, and among those that need looking after.
    pub(super) is_ready: bool,
    pub(super) is_restless: bool,
    pub(super) receiving: Receiving,
    pub(super) failures: u32,
    /// Receives armed again because the kernel had run out of buffers.
    pub(super) rearms: u64,
    /// Trains of segments up to this length; 0 when they are off.
    pub(super) segment_bytes_max: usize,
    /// The last train was refused as too long, which may have been about another datagram.
    pub(super) is_in_doubt: bool,
    pub(super) fallbacks: u64,
    pub(super) zero_copies: u64,
    /// The socket's own count of drops, as last read, and its sum: the kernel's wraps.
    pub(super) drops_read: u32,
    pub(super) drops: u64,
}

/// What is left of a port that was closed.
pub(super) struct Closing {
    pub(super) id: PortId,
    pub(super) receiving: Receiving,
    /// Open, and its address taken, until the kernel has every request that names it.
    pub(super) socket: Option<OwnedFd>,
}

impl Port {
    /// What lies in a filled buffer; if it cannot be shown, the reason is counted.
    pub(super) fn read<'a>(
        &mut self,
        bytes: &'a [u8],
        (key, buffer): (&PayloadKey, u16),
        (now_ns, wall_clock): (u64, &mut WallClock),
    ) -> Option<Datagram<'a>> {
        let message = Message::parse(bytes, FIELDS);
        let source = message.and_then(|message| address::read(message.name));
        let (Some(message), Some(source)) = (message, source) else {
            self.counters.drop_one(DropReason::RxError);
            return None;
        };
        let notes = Notes::parse(message.control);
        let payload = message.payload;
        let segment = notes.segment_bytes.filter(|&bytes| bytes > 0 && bytes < payload.len());
        let segment_bytes = segment.unwrap_or(payload.len());
        if message.is_cut {
            // What is left of a train cannot be counted: the kernel does not say how long it was.
            self.counters
                .drop_many(DropReason::RxTooLong, count(payload.len(), segment_bytes) as u64);
            return None;
        }
        let ip = notes.destination.unwrap_or_else(|| self.bound.ip());
        if !self.groups.let_through(ip, source.ip(), notes.interface) {
            let datagrams = count(payload.len(), segment_bytes) as u64;
            self.counters.drop_many(DropReason::NotForUs, datagrams);
            return None;
        }
        Some(Datagram {
            payload: key.mark(payload, buffer.into()),
            segment_bytes,
            source,
            destination: SocketAddr::new(ip, self.bound.port()),
            is_broadcast: notes.is_broadcast,
            ingress: self.id,
            ts_ns: notes.real_ns.map_or(now_ns, |real_ns| wall_clock.monotonic(real_ns)),
        })
    }

    /// A receive of this port has completed; `buffer` is ours now.
    pub(super) fn received(
        &mut self,
        completion: Completion,
        buffer: Option<u16>,
        buffers: &mut Buffers,
    ) -> io::Result<()> {
        match (completion.outcome(), buffer) {
            (Ok(bytes), Some(buffer)) => {
                self.failures = 0;
                let bytes = bytes.min(buffers.bytes_max());
                self.arrivals.push_back(Arrival { buffer, bytes });
            }
            (Ok(_), None) => self.counters.drop_one(DropReason::RxError),
            (Err(error), buffer) => {
                if let Some(buffer) = buffer {
                    buffers.give(buffer);
                    buffers.publish();
                }
                match error.raw_os_error() {
                    // Nothing is lost: the datagram waits in the socket.
                    Some(libc::ENOBUFS) => {
                        self.rearms += 1;
                        buffers.ran_out();
                    }
                    // A look has taken everything; an armed one ends because it was cancelled.
                    Some(libc::EAGAIN | libc::ECANCELED) => (),
                    Some(code) if self.hears_errors && is_icmp_error(code) => {
                        sys::drain_errors(self.socket.as_fd());
                    }
                    _ => {
                        self.failures += 1;
                        if self.failures > FAILURES_MAX {
                            return Err(error);
                        }
                    }
                }
            }
        }
        if !completion.has_more() {
            self.receiving.ended();
        }
        Ok(())
    }

    /// Has the receive of the port looked after: something moved.
    pub(super) fn stir(&mut self, restless: &mut Vec<PortId>) {
        if !mem::replace(&mut self.is_restless, true) {
            restless.push(self.id);
        }
    }

    /// A message of this port was sent or not.
    pub(super) fn sent(
        &mut self,
        trains: &Trains,
        slot: u32,
        outcome: Outcome,
        completion: Completion,
    ) {
        self.zero_copies += u64::from(completion.has_more());
        if self.hears_errors && outcome.result.as_ref().is_err_and(is_too_long) {
            // The kernel queues it for sockets that ask as well, and wakes receives until it is taken.
            sys::drain_errors(self.socket.as_fd());
        }
        if let Some(oldest) = &mut self.oldest {
            let may_be_late = |error: &io::Error| {
                self.hears_errors && error.raw_os_error().is_some_and(is_icmp_error)
            };
            match oldest.ended(&outcome, may_be_late, &mut self.counters) {
                Then::Nothing => (),
                Then::DrainErrors => sys::drain_errors(self.socket.as_fd()),
                Then::Shorten(bytes_max) => {
                    self.segment_bytes_max = self.segment_bytes_max.min(bytes_max);
                    self.fallbacks += 1;
                }
            }
            return;
        }
        match outcome.result {
            Err(error) if self.hears_errors && self.may_be_late(&error, outcome.segments) => {
                sys::drain_errors(self.socket.as_fd());
                self.send_apart(trains, slot);
            }
            Ok(_) => {
                self.is_in_doubt &= outcome.segments == 1;
                self.counters.tx_frames += outcome.segments as u64;
                self.counters.tx_bytes += outcome.bytes as u64;
            }
            Err(error) => match fall_back(&error, outcome.segment_bytes) {
                Some(bytes_max) if outcome.segments > 1 => {
                    self.segment_bytes_max = self.segment_bytes_max.min(bytes_max);
                    self.fallbacks += 1;
                    // Of the next train, a shorter one, nothing is known.
                    self.is_in_doubt = false;
                    self.send_apart(trains, slot);
                }
                _ => self.counters.drop_many(drop_reason(&error), outcome.segments as u64),
            },
        }
    }

    /// True for the error of a message of `segments` that is sent once more, one by one, because it may be about a
    /// datagram that left earlier. A train that is itself too long is so the next time, too.
    fn may_be_late(&mut self, error: &io::Error, segments: usize) -> bool {
        is_late(error)
            || is_too_long(error) && (segments == 1 || !mem::replace(&mut self.is_in_doubt, true))
    }

    /// Sends the datagrams of a slot once more, one by one.
    pub(super) fn send_apart(&mut self, trains: &Trains, slot: u32) {
        let Port { socket, counters, hears_errors, .. } = self;
        let socket = socket.as_fd();
        let again = |error: &io::Error| {
            let again = *hears_errors && is_late(error);
            if again {
                sys::drain_errors(socket);
            }
            again
        };
        trains.send_apart(slot, socket, again, |bytes, sent| match sent {
            Ok(()) => {
                counters.tx_frames += 1;
                counters.tx_bytes += bytes as u64;
            }
            Err(error) => {
                if *hears_errors && is_too_long(&error) {
                    sys::drain_errors(socket);
                }
                counters.drop_one(drop_reason(&error));
            }
        });
    }

    /// Drops what waits to be sent; true while some is with the kernel.
    pub(super) fn drop_unsent(&mut self) -> bool {
        let Some(oldest) = &mut self.oldest else { return false };
        oldest.drop_unsent(&mut self.counters);
        oldest.is_listed &= !oldest.is_empty();
        oldest.is_listed
    }

    /// What was counted so far.
    pub(super) fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        counters.set_drops(DropReason::RxQueueFull, self.drops);
        counters
    }

    /// Reads the socket's own count of what it dropped.
    pub(super) fn read_drops(&mut self) {
        if let Ok(read) = sys::drops(self.socket.as_fd()) {
            self.drops += u64::from(read.wrapping_sub(self.drops_read));
            self.drops_read = read;
        }
    }
}

/// True for the answer to what is longer than an interface or a path takes.
fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// Stands for the socket of a port that receives no more: a cancel names none.
pub(super) const NO_SOCKET: RawFd = -1;

/// What receives of a port take from.
pub(super) fn source(id: PortId, socket: RawFd) -> Source {
    Source { socket, port: place_of(id) as u16, group: GROUP }
}

/// The message header of every receive: only its two lengths matter.
pub(super) fn template() -> io::Result<Memory> {
    let memory = Memory::map(size_of::<libc::msghdr>())?;
    let header = memory.at_typed::<libc::msghdr>(0);
    // SAFETY: inside a new mapping that nothing else knows; zero is a value of a header.
    let header = unsafe { &mut *header };
    header.msg_namelen = FIELDS.name_bytes as libc::socklen_t;
    header.msg_controllen = FIELDS.control_bytes as _;
    Ok(memory)
}
