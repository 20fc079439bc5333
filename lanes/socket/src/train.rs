//! What is to be sent through one socket, and how it is cut into messages.
//!
//! Pure bookkeeping: no bytes, no sockets. An app's sends are *pieces* of memory; a *train* is a run of
//! pieces to one destination whose datagrams all have the same length, but for the last, which may be
//! shorter. A *message* is what one send call carries: a whole train (UDP_SEGMENT), or one datagram.
//!
//! ```text
//!   sends:     500 500 500 200 | 500 ...          pieces, one per send or forwarded entry
//!   trains:   [500 500 500 200] [500 ...          the shorter one ends its train
//!   messages:  one per train, or one per datagram where trains cannot be sent
//! ```
//!
//! What must always hold: the datagrams of all messages are the datagrams that were sent, in order,
//! however they are merged and cut. Every piece of a train but the last is a whole number of
//! segments, so that no datagram lies in two pieces.

use std::{
    mem,
    net::{IpAddr, SocketAddr},
    ops::Range,
};

/// Datagrams of one train. Newer kernels take 128; all take 64.
pub(crate) const SEGMENTS_MAX: usize = 64;
/// Bytes of one train: an IPv6 packet of 64 KiB without its headers, and less than an IPv4 one's.
pub(crate) const TRAIN_BYTES_MAX: usize = 65_535 - 40 - 8;
/// Trains and pieces of one socket that wait for one flush.
pub(crate) const PIECES_MAX: usize = 1024;

/// Which memory a piece lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Receive buffers.
    Received,
    /// The outbox's own.
    Own,
}

/// Bytes that were given to one send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) memory: Memory,
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

/// Whether a train may travel in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Travels {
    Whole,
    /// It is too long for one message, or one was refused for its length.
    Cut,
    /// The kernel refused it whole with this error. Should it take a part, then trains were the
    /// reason.
    OnTrial(i32),
}

/// A run of pieces to one destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Train {
    first_piece: usize,
    end_piece: usize,
    pub(crate) bytes: usize,
    pub(crate) segment_bytes: usize,
    segments: usize,
    pub(crate) destination: SocketAddr,
    /// The address of ours to send from, where there is a choice.
    pub(crate) from: Option<IpAddr>,
    pub(crate) travels: Travels,
}

impl Train {
    /// True when datagrams may follow: all are of full length, and there are some.
    fn is_open(&self) -> bool {
        self.bytes > 0 && self.bytes == self.segments * self.segment_bytes
    }
}

/// What one send call carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) train: usize,
    /// The pieces it is gathered from.
    pub(crate) pieces: Range<usize>,
    /// Where it begins in the first of them.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) segments: usize,
    /// Where the next message begins.
    pub(crate) next: Cursor,
}

/// A place between two messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    train: usize,
    piece: usize,
    offset: usize,
}

/// Memory for trains and pieces. A socket has some only while something waits for it.
#[derive(Debug, Default)]
pub(crate) struct Room {
    trains: Vec<Train>,
    pieces: Vec<Piece>,
}

/// All that waits for one flush of one socket.
#[derive(Debug)]
pub(crate) struct Trains {
    room: Room,
    /// Equal sends to one destination become a train.
    merges: bool,
}

impl Trains {
    /// Nothing. `merges` makes trains of single sends.
    pub(crate) fn new(merges: bool) -> Trains {
        Trains { room: Room::default(), merges }
    }

    /// From now on, every send stays by itself.
    pub(crate) fn stop_merging(&mut self) {
        self.merges = false;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.room.trains.is_empty()
    }

    /// True when nothing more fits before a flush.
    pub(crate) fn is_full(&self) -> bool {
        self.room.pieces.len() == PIECES_MAX
    }

    /// Uses this room from now on.
    pub(crate) fn enter(&mut self, room: Room) {
        self.room = room;
    }

    /// Forgets what waited, and gives its room to others.
    pub(crate) fn leave(&mut self) -> Room {
        self.room.trains.clear();
        self.room.pieces.clear();
        mem::take(&mut self.room)
    }

    pub(crate) fn train(&self, message: &Message) -> &Train {
        &self.room.trains[message.train]
    }

    pub(crate) fn train_mut(&mut self, message: &Message) -> &mut Train {
        &mut self.room.trains[message.train]
    }

    /// The pieces of a message.
    pub(crate) fn pieces(&self, message: &Message) -> &[Piece] {
        &self.room.pieces[message.pieces.clone()]
    }

    /// Adds a piece: one datagram, or a train of `segment_bytes` each.
    ///
    /// # Panics
    /// When [`is_full`](Self::is_full).
    pub(crate) fn push(
        &mut self,
        piece: Piece,
        segment_bytes: usize,
        destination: SocketAddr,
        from: Option<IpAddr>,
    ) {
        assert!(!self.is_full(), "the caller flushes a full outbox");
        let segment_bytes = match segment_bytes {
            // An app may say anything of bytes of its own.
            0 => piece.bytes,
            some => some.min(piece.bytes),
        };
        let segments = piece.bytes.div_ceil(segment_bytes.max(1)).max(1);
        self.room.pieces.push(piece);
        let end_piece = self.room.pieces.len();
        if let Some(last) = self.room.trains.last_mut()
            && self.merges
            && last.travels == Travels::Whole
            && last.is_open()
            && (last.destination, last.from) == (destination, from)
            && piece.bytes > 0
            // A piece of one datagram may be shorter and then ends the train.
            && (segment_bytes == last.segment_bytes
                || (segments == 1 && piece.bytes < last.segment_bytes))
            && last.segments + segments <= SEGMENTS_MAX
            && last.bytes + piece.bytes <= TRAIN_BYTES_MAX
        {
            last.end_piece = end_piece;
            last.bytes += piece.bytes;
            last.segments += segments;
            return;
        }
        let fits = segments <= SEGMENTS_MAX && piece.bytes <= TRAIN_BYTES_MAX;
        self.room.trains.push(Train {
            first_piece: end_piece - 1,
            end_piece,
            bytes: piece.bytes,
            segment_bytes,
            segments,
            destination,
            from,
            travels: if fits { Travels::Whole } else { Travels::Cut },
        });
    }

    /// The message at `cursor`; nothing at the end. With `gso`, trains that may travel whole.
    pub(crate) fn message(&self, cursor: Cursor, gso: bool) -> Option<Message> {
        let train = self.room.trains.get(cursor.train)?;
        let piece_at = cursor.piece.max(train.first_piece);
        let next_train = Cursor { train: cursor.train + 1, piece: train.end_piece, offset: 0 };
        let at_start = piece_at == train.first_piece && cursor.offset == 0;
        if gso && train.travels == Travels::Whole && at_start {
            return Some(Message {
                train: cursor.train,
                pieces: train.first_piece..train.end_piece,
                offset: 0,
                bytes: train.bytes,
                segments: train.segments,
                next: next_train,
            });
        }
        let piece = self.room.pieces[piece_at];
        let bytes = train.segment_bytes.min(piece.bytes - cursor.offset);
        let end = cursor.offset + bytes;
        let next = if end < piece.bytes {
            Cursor { train: cursor.train, piece: piece_at, offset: end }
        } else if piece_at + 1 < train.end_piece {
            Cursor { train: cursor.train, piece: piece_at + 1, offset: 0 }
        } else {
            next_train
        };
        Some(Message {
            train: cursor.train,
            pieces: piece_at..piece_at + 1,
            offset: cursor.offset,
            bytes,
            segments: 1,
            next,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One send of the app: bytes, segment size, which destination.
    type Send = (usize, usize, u16);

    fn fill(sends: &[Send], merges: bool) -> Trains {
        let mut trains = Trains::new(merges);
        let mut at = 0;
        for (bytes, segment_bytes, port) in sends {
            let piece = Piece { memory: Memory::Own, at, bytes: *bytes };
            trains.push(piece, *segment_bytes, destination(*port), None);
            at += bytes;
        }
        trains
    }

    fn destination(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    /// What the far end of a correct network gets from `sends`: place, length, destination.
    fn wanted(sends: &[Send]) -> Vec<(usize, usize, SocketAddr)> {
        let mut datagrams = Vec::new();
        let mut at = 0;
        for (bytes, segment_bytes, port) in sends {
            let mut offset = 0;
            loop {
                let segment = if *segment_bytes == 0 { *bytes } else { *segment_bytes };
                let length = segment.min(bytes - offset);
                datagrams.push((at + offset, length, destination(*port)));
                offset += length;
                if offset >= *bytes {
                    break;
                }
            }
            at += bytes;
        }
        datagrams
    }

    /// What the kernel makes of the messages of `trains`, from the bytes they gather.
    fn sent(trains: &Trains, gso: bool) -> Vec<(usize, usize, SocketAddr)> {
        let mut datagrams = Vec::new();
        let mut cursor = Cursor::default();
        while let Some(message) = trains.message(cursor, gso) {
            cursor = message.next;
            let train = trains.train(&message);
            let mut left = message.bytes;
            let mut offset = message.offset;
            let before = datagrams.len();
            if left == 0 {
                datagrams.push((trains.pieces(&message)[0].at, 0, train.destination));
            }
            for piece in trains.pieces(&message) {
                let mut at = piece.at + offset;
                let end = piece.at + piece.bytes;
                offset = 0;
                while at < end && left > 0 {
                    // No datagram lies in two pieces, or its length would be cut here.
                    let length = train.segment_bytes.min(left).min(end - at);
                    datagrams.push((at, length, train.destination));
                    at += length;
                    left -= length;
                }
            }
            assert_eq!(left, 0, "a message is no longer than its pieces");
            assert_eq!(datagrams.len() - before, message.segments);
            assert!(message.segments == 1 || message.bytes <= TRAIN_BYTES_MAX);
            assert!(message.segments <= SEGMENTS_MAX);
        }
        datagrams
    }

    fn check(sends: &[Send]) {
        for merges in [false, true] {
            let mut trains = fill(sends, merges);
            assert_eq!(sent(&trains, false), wanted(sends), "cut, merging: {merges}");
            assert_eq!(sent(&trains, true), wanted(sends), "whole, merging: {merges}");
            for train in trains.room.trains.iter_mut().step_by(2) {
                train.travels = Travels::OnTrial(libc::EIO);
            }
            assert_eq!(sent(&trains, true), wanted(sends), "some cut, merging: {merges}");
        }
    }

    #[test]
    fn equal_sends_to_one_destination_become_a_train_that_a_shorter_one_ends() {
        let sends = [(500, 500, 1), (500, 500, 1), (200, 200, 1), (200, 200, 1), (200, 200, 2)];
        let trains = fill(&sends, true);
        let shapes: Vec<_> = trains.room.trains.iter().map(|t| (t.segments, t.bytes)).collect();
        assert_eq!(shapes, [(3, 1200), (1, 200), (1, 200)]);
        check(&sends);
    }

    #[test]
    fn a_longer_send_begins_a_train() {
        let trains = fill(&[(100, 100, 1), (101, 101, 1)], true);
        assert_eq!(trains.room.trains.len(), 2);
    }

    #[test]
    fn trains_of_one_size_are_coupled_and_a_short_end_closes() {
        let sends = [(1000, 500, 1), (1500, 500, 1), (700, 500, 1), (500, 500, 1)];
        let trains = fill(&sends, true);
        let segments: Vec<_> = trains.room.trains.iter().map(|t| t.segments).collect();
        assert_eq!(segments, [7, 1]);
        check(&sends);
    }

    #[test]
    fn a_train_stays_within_its_limits() {
        let many = vec![(10, 10, 1); SEGMENTS_MAX + 1];
        assert_eq!(fill(&many, true).room.trains.len(), 2);
        check(&many);
        let long = vec![(9000, 9000, 1); 9];
        let trains = fill(&long, true);
        assert!(trains.room.trains.iter().all(|t| t.bytes <= TRAIN_BYTES_MAX));
        check(&long);
    }

    #[test]
    fn a_forwarded_train_beyond_the_limits_is_cut() {
        check(&[(70 * 100, 100, 1), (100, 100, 1)]);
    }

    #[test]
    fn an_empty_datagram_stays_alone() {
        check(&[(0, 0, 1), (0, 0, 1), (5, 5, 1), (0, 0, 1), (5, 5, 1)]);
        assert_eq!(fill(&[(5, 5, 1), (0, 0, 1), (5, 5, 1)], true).room.trains.len(), 3);
    }

    proptest! {
        #[test]
        fn every_cut_and_merge_keeps_every_datagram(
            sends in prop::collection::vec(
                (0usize..6, 1usize..4, 0u16..2, 0usize..3).prop_map(|(units, segments, port, short)| {
                    // Few sizes, so that merging happens all the time.
                    let segment_bytes = units * 100;
                    let bytes = (segment_bytes * segments).saturating_sub(short);
                    (bytes, segment_bytes, port)
                }),
                0..150,
            )
        ) {
            check(&sends);
        }
    }
}
