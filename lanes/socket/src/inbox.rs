//! Receive buffers and the calls that fill them.
//!
//! One set of buffers serves all ports of a worker, one after the other: what was received for one
//! port is sent on before the next is asked. What must always hold: the headers handed to the kernel
//! point into memory of this inbox only; a datagram that did not fit its buffer is counted, never shown
//! cut.

use crate::{
    config::{Carries, DatagramConfig},
    control::Control,
    sys::{self, Name},
};
use laneway_core::{Counters, DropReason};
use laneway_linux::is_icmp_error;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
};

/// Distance of two buffers beyond their length. Buffers at distances of a power of two would fall on
/// the same few lines of every cache.
const STAGGER_BYTES: usize = 192;
/// Errors that a receive call may report from earlier sends before it gives what is there.
const STALE_ERRORS_MAX: usize = 16;
/// An IPv4 header without options.
const IPV4_HEADER_BYTES_MIN: usize = 20;

/// Where a datagram or train lies, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    pub(crate) segment_bytes: usize,
    pub(crate) source: SocketAddr,
    /// The address it was sent to, if the kernel was asked.
    pub(crate) destination: Option<IpAddr>,
    pub(crate) is_broadcast: bool,
    /// The number of the interface that it arrived at; 0 where that is not known.
    pub(crate) interface: u32,
    /// Our address that an answer should come from, if the kernel was asked.
    pub(crate) answer_from: Option<IpAddr>,
    pub(crate) real_ns: Option<u64>,
}

impl Arrival {
    /// How many datagrams it is.
    pub(crate) fn datagrams(&self) -> usize {
        self.bytes.div_ceil(self.segment_bytes.max(1)).max(1)
    }
}

/// The receive buffers of a worker.
///
/// Headers point at the memory behind the vectors, which stays where it is: none of them grows.
pub(crate) struct Inbox {
    memory: Vec<u8>,
    stride_bytes: usize,
    carries: Carries,
    many: bool,
    names: Vec<Name>,
    controls: Vec<Control>,
    /// Only the headers look at it.
    _vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    /// Headers that the kernel has written since they were made.
    used: usize,
    arrivals: Vec<Arrival>,
}

impl Inbox {
    /// Buffers for one burst.
    pub(crate) fn new(config: &DatagramConfig) -> Inbox {
        let stride_bytes = config.buffer_bytes + STAGGER_BYTES;
        let mut memory = vec![0; stride_bytes * config.burst];
        let mut names = vec![Name::EMPTY; config.burst];
        let mut controls = vec![Control::EMPTY; config.burst];
        let at = memory.as_mut_ptr();
        let mut vectors: Vec<_> = (0..config.burst)
            .map(|i| libc::iovec {
                iov_base: at.wrapping_add(i * stride_bytes).cast(),
                iov_len: config.buffer_bytes,
            })
            .collect();
        let (name, control, vector) =
            (names.as_mut_ptr(), controls.as_mut_ptr(), vectors.as_mut_ptr());
        let messages = (0..config.burst).map(|i| libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: name.wrapping_add(i).cast(),
                msg_namelen: Name::BYTES_MAX,
                msg_iov: vector.wrapping_add(i),
                msg_iovlen: 1,
                msg_control: control.wrapping_add(i).cast(),
                msg_controllen: size_of::<Control>() as _,
                ..sys::EMPTY_HEADER
            },
            msg_len: 0,
        });
        Inbox {
            messages: messages.collect(),
            memory,
            stride_bytes,
            carries: config.carries,
            many: config.many,
            names,
            controls,
            _vectors: vectors,
            used: 0,
            arrivals: Vec::with_capacity(config.burst),
        }
    }

    /// What the last call received.
    pub(crate) fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// Where it lies.
    pub(crate) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Takes what is there, up to a burst; counts what cannot be shown.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        counters: &mut Counters,
    ) -> io::Result<()> {
        self.arrivals.clear();
        for message in &mut self.messages[..self.used] {
            message.msg_hdr.msg_namelen = Name::BYTES_MAX;
            message.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        self.used = 0;
        let received = self.take(socket)?;
        self.used = received;
        for i in 0..received {
            let header = &self.messages[i];
            let bytes = header.msg_len as usize;
            if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                counters.drop_one(DropReason::RxTooLong);
                continue;
            }
            let info = self.controls[i].read(header.msg_hdr.msg_controllen);
            let Some(source) = self.names[i].address() else {
                counters.drop_one(DropReason::RxError);
                continue;
            };
            let Some(header_bytes) = self.header_bytes(i, bytes, source) else {
                counters.drop_one(DropReason::Malformed);
                continue;
            };
            let bytes = bytes - header_bytes;
            self.arrivals.push(Arrival {
                at: i * self.stride_bytes + header_bytes,
                bytes,
                segment_bytes: info.segment_bytes.map_or(bytes, |segment| segment.min(bytes)),
                source: self.without_port(source),
                destination: info.destination,
                is_broadcast: info.is_broadcast,
                interface: info.interface,
                answer_from: info.answer_from,
                real_ns: info.real_ns,
            });
        }
        Ok(())
    }

    /// Makes the calls; returns how many messages arrived.
    fn take(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut stale = 0;
        let mut received = 0;
        while received < self.messages.len() {
            let result = if self.many {
                // SAFETY: `new` aimed every header at name, vector, buffer and control of this
                // inbox, with their lengths, and `receive` restored the lengths; nothing else uses
                // them during the call.
                unsafe { sys::receive_many(socket, &mut self.messages) }
            } else {
                // SAFETY: as above.
                unsafe { sys::receive_one(socket, &mut self.messages[received]) }.map(|()| 1)
            };
            match result {
                Ok(more) => received += more,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) if received > 0 => break,
                // A signal, or what became of a datagram sent earlier: no word about what is there.
                Err(e) if stale < STALE_ERRORS_MAX && is_stale(&e) => {
                    stale += 1;
                    continue;
                }
                Err(e) => return Err(e),
            }
            if self.many {
                break;
            }
        }
        Ok(received)
    }

    /// Bytes in front of what the app is shown; nothing if they cannot be a header.
    fn header_bytes(&self, i: usize, bytes: usize, source: SocketAddr) -> Option<usize> {
        if self.carries == Carries::Udp || source.is_ipv6() {
            return Some(0); // the kernel took it off
        }
        let first = *self.memory.get(i * self.stride_bytes)?;
        let header_bytes = usize::from(first & 0x0f) * 4;
        (IPV4_HEADER_BYTES_MIN..=bytes).contains(&header_bytes).then_some(header_bytes)
    }

    /// Raw sockets have no ports, whatever the kernel writes there.
    fn without_port(&self, mut source: SocketAddr) -> SocketAddr {
        if self.carries != Carries::Udp {
            source.set_port(0);
        }
        source
    }
}

/// True for errors that tell of something else than this receive.
fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| code == libc::EINTR || is_icmp_error(code))
}
