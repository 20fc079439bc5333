//! One connection: its socket, the bytes the app has not consumed, the bytes the kernel has not taken.
//!
//! Makes system calls on its own socket only, never blocks, and knows no app. What must always hold:
//! received bytes are kept in order up to the buffer's limit; queued bytes leave in order or end with
//! the connection.

use crate::sys;
use laneway_core::{Close, ConnId, Counters};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// So many bytes; there may be more.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The peer has finished.
    End,
    /// The connection is broken.
    Broken,
}

/// Received bytes that wait for the app: a buffer of fixed length, from a pool, with bytes in the
/// middle.
pub(crate) struct Left {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Left {
    /// `bytes` in a buffer, which is at least as long.
    pub(crate) fn new(mut buffer: Box<[u8]>, bytes: &[u8]) -> Left {
        buffer[..bytes.len()].copy_from_slice(bytes);
        Left { buffer, start: 0, end: bytes.len() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// True when no more can be received until some is consumed.
    pub(crate) fn is_full(&self) -> bool {
        self.end - self.start == self.buffer.len()
    }

    /// Room behind the bytes, which move to the front when there is little.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 && self.buffer.len() - self.end < self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.end += bytes;
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
    }

    pub(crate) fn into_buffer(self) -> Box<[u8]> {
        self.buffer
    }
}

/// Bytes that the kernel has not taken.
#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    sent: usize,
}

impl Queue {
    fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.sent > 0 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn took(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Open,
    /// The app closed it: what is queued leaves, nothing more is read.
    Closing,
    /// The app aborted it, or its peer took nothing for too long: it is reset.
    Aborted(Close),
    /// The app knows of its end. What the peer still sends is read and thrown away, because
    /// closing over unread bytes would reset the connection and cost the peer what it was sent.
    Lingering,
}

/// One accepted connection.
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    socket: OwnedFd,
    /// The listener that accepted it.
    pub(crate) port: usize,
    pub(crate) stage: Stage,
    /// A read may find something.
    pub(crate) readable: bool,
    /// The kernel reported that the peer has finished, so reads go on to the end.
    pub(crate) end_is_near: bool,
    /// The kernel reported urgent data once: a read stops there.
    pub(crate) is_urgent: bool,
    /// A read found the end.
    pub(crate) ended: bool,
    /// The connection is broken.
    pub(crate) broken: bool,
    /// A write may find room.
    pub(crate) writable: bool,
    /// A send took less than given, and the app has not been notified of room since.
    pub(crate) wants_room: bool,
    /// The app wants to see no bytes.
    pub(crate) paused: bool,
    /// The app was notified that the peer has finished.
    pub(crate) finish_reported: bool,
    /// Bytes that its peer had taken when its closing time was last looked at.
    pub(crate) acked_bytes: u64,
    /// It is among those whose closing time runs.
    pub(crate) timed: bool,
    /// It is on the list of connections to be served.
    pub(crate) listed: bool,
    /// It is on the list of connections to be flushed.
    pub(crate) dirty: bool,
    /// What is left is shown although nothing new arrived: there is room again, or the app resumed it.
    pub(crate) show_again: bool,
    /// Absent when all was consumed.
    pub(crate) left: Option<Left>,
    queue: Queue,
}

impl Conn {
    pub(crate) fn new(id: ConnId, socket: OwnedFd, port: usize) -> Conn {
        Conn {
            id,
            socket,
            port,
            stage: Stage::Open,
            readable: false,
            end_is_near: false,
            is_urgent: false,
            ended: false,
            broken: false,
            writable: true,
            wants_room: false,
            paused: false,
            finish_reported: false,
            acked_bytes: 0,
            timed: false,
            listed: false,
            dirty: false,
            show_again: false,
            left: None,
            queue: Queue::default(),
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Bytes that wait for the kernel.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.waiting().len()
    }

    /// Queues as much of `bytes` as `bytes_max` has room for.
    pub(crate) fn queue(&mut self, bytes: &[u8], bytes_max: usize) -> usize {
        let taken = bytes.len().min(bytes_max.saturating_sub(self.queued_bytes()));
        self.queue.push(&bytes[..taken]);
        self.wants_room |= taken < bytes.len();
        taken
    }

    /// The app waits for room, and half of `bytes_max` is free.
    pub(crate) fn has_room_again(&self, bytes_max: usize) -> bool {
        self.wants_room && self.queued_bytes() <= bytes_max / 2
    }

    /// Bytes may be shown to the app.
    pub(crate) fn may_show(&self) -> bool {
        self.stage == Stage::Open && !self.broken && !self.wants_room && !self.paused
    }

    /// The app is to be notified that the peer has finished: it saw all there was to see, or is paused.
    pub(crate) fn finish_is_due(&self) -> bool {
        let seen = self.ended && !self.wants_room && !self.show_again;
        let is_due = if self.paused { self.ended || self.end_is_near } else { seen };
        is_due && self.stage == Stage::Open && !self.broken && !self.finish_reported
    }

    /// Drops what is queued; the connection will be reset.
    pub(crate) fn abort(&mut self, why: Close) {
        self.stage = Stage::Aborted(why);
        self.queue = Queue::default();
    }

    /// Writes what is queued, by one call, as far as the kernel takes it.
    pub(crate) fn write(&mut self, counters: &mut Counters) {
        while self.writable && !self.broken && self.queued_bytes() > 0 {
            match sys::send(self.socket.as_fd(), self.queue.waiting()) {
                Ok(bytes) => {
                    counters.tx_frames += 1;
                    counters.tx_bytes += bytes as u64;
                    self.queue.took(bytes);
                    // A short write is a full buffer; the next edge comes when it has drained.
                    self.writable = self.queued_bytes() == 0;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(_) => self.broken = true,
            }
        }
    }

    /// Reads into `room`, which is not empty, and keeps track of whether there may be more.
    pub(crate) fn read(&mut self, room: Room<'_>) -> Read {
        let room = match room {
            Room::Foreign(room) => room,
            Room::Own => match &mut self.left {
                Some(left) => left.room(),
                None => return Read::Nothing,
            },
        };
        let wanted = room.len();
        loop {
            match sys::receive(self.socket.as_fd(), room) {
                Ok(0) => {
                    (self.readable, self.ended) = (false, true);
                    return Read::End;
                }
                Ok(bytes) => {
                    // A short read has emptied the socket: what comes later makes a new edge. Only
                    // an end that was announced with these bytes does not, nor what lies behind an urgent one.
                    self.readable = bytes == wanted || self.end_is_near || self.is_urgent;
                    return Read::Bytes(bytes);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Read::Nothing;
                }
                Err(_) => {
                    (self.readable, self.broken) = (false, true);
                    return Read::Broken;
                }
            }
        }
    }
}

/// Where a read puts its bytes.
pub(crate) enum Room<'a> {
    /// Behind those that the app has left.
    Own,
    /// Into the caller's memory.
    Foreign(&'a mut [u8]),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{io::Read as _, os::unix::net::UnixStream};

    proptest! {
        #[test]
        fn what_is_left_is_kept_in_order(steps in prop::collection::vec((0usize..40, 0usize..40), 0..60)) {
            let mut left = Left::new(vec![0; 64].into(), &[]);
            let mut model: Vec<u8> = Vec::new();
            let mut next = 0u8;
            for (come, consume) in steps {
                let room = left.room();
                let come = come.min(room.len());
                for place in &mut room[..come] {
                    *place = next;
                    model.push(next);
                    next = next.wrapping_add(1);
                }
                left.received(come);
                prop_assert_eq!(left.bytes(), &model[..]);
                prop_assert_eq!(left.is_full(), model.len() == 64);
                let consume = consume.min(model.len());
                left.consume(consume);
                model.drain(..consume);
            }
        }

        #[test]
        fn a_queue_is_first_in_first_out(steps in prop::collection::vec((0usize..40, 0usize..40), 0..60)) {
            let mut queue = Queue::default();
            let mut model: Vec<u8> = Vec::new();
            for (push, take) in steps {
                let bytes: Vec<u8> = (0..push).map(|i| i as u8).collect();
                queue.push(&bytes);
                model.extend(&bytes);
                let take = take.min(model.len());
                queue.took(take);
                model.drain(..take);
                prop_assert_eq!(queue.waiting(), &model[..]);
            }
        }
    }

    #[test]
    fn a_bounded_queue_takes_what_fits_and_says_when_half_of_it_is_free() {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        let mut conn = Conn::new(ConnId(1), near.into(), 0);
        assert_eq!((conn.queue(&[1; 60], 100), conn.wants_room), (60, false));
        assert_eq!((conn.queue(&[2; 60], 100), conn.wants_room), (40, true));
        assert_eq!((conn.queue(&[3; 1], 100), conn.has_room_again(100)), (0, false));
        let mut counters = Counters::default();
        conn.write(&mut counters);
        assert_eq!((conn.queued_bytes(), counters.tx_bytes, counters.tx_frames), (0, 100, 1));
        assert!(conn.has_room_again(100));
        let mut sent = [0; 100];
        far.read_exact(&mut sent).expect("it was written");
        assert_eq!((&sent[..60], &sent[60..]), (&[1; 60][..], &[2; 40][..]));
    }
}
