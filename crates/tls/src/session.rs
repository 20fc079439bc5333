//! One connection with TLS: records to bytes and back, what the lane did not take, what the app left.
//!
//! What must always hold: records leave in the order in which they were made, so while one waits here none passes it;
//! then the lane owes us a call of `on_room`, and nothing more is read of the peer.

use crate::counts::Reason;
use crate::record::{OVERHEAD_BYTES_MAX, PLAIN_BYTES_MAX};
use laneway_core::{ConnId, Opened, StreamOut};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedStatus,
};
use rustls::{Error, ServerConfig};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// What a connection is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The app does not know it yet.
    Handshake,
    /// The app has it.
    Open,
    /// The app has closed it, and there is something to be sent first.
    Closing,
    /// The lane was asked to close or abort it.
    Ended,
}

/// Whether the peer has finished sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    No,
    /// It has, and the app is to be called.
    Due,
    Reported,
}

/// Memory that all connections of a worker use in turn.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    incoming: Vec<u8>,
    wire: Wire,
    pub(crate) plain: Vec<u8>,
}

/// Records that were made and are to be sent at once.
#[derive(Debug, Default)]
struct Wire {
    bytes: Vec<u8>,
    /// Of `bytes`.
    len: usize,
}

impl Wire {
    /// Has something written behind what is there. The writer says how much it wrote, or how much room it needs; it is
    /// asked once more then.
    fn write<E>(
        &mut self,
        room: usize,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
        needs: impl Fn(&E) -> Option<usize>,
    ) -> Result<(), E> {
        let mut room = room;
        loop {
            if self.bytes.len() < self.len + room {
                self.bytes.resize(self.len + room, 0);
            }
            match write(&mut self.bytes[self.len..]) {
                Ok(written) => {
                    self.len += written;
                    return Ok(());
                }
                Err(error) => match needs(&error).filter(|&needed| needed > room) {
                    Some(needed) => room = needed,
                    None => return Err(error),
                },
            }
        }
    }

    fn encode<D>(&mut self, data: &mut EncodeTlsData<'_, D>) -> Result<(), Error> {
        let needs = |error: &EncodeError| match error {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Some(*required_size)
            }
            EncodeError::AlreadyEncoded => None,
        };
        let encoded = self.write(0, |room| data.encode(room), needs);
        encoded.map_err(|error| Error::General(error.to_string()))
    }
}

fn needed(error: &EncryptError) -> Option<usize> {
    match error {
        EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
            Some(*required_size)
        }
        EncryptError::EncryptExhausted => None,
    }
}

/// What a piece of plaintext became: so that what is queued can be counted in the app's bytes.
#[derive(Clone, Copy, Debug)]
struct Piece {
    wire: usize,
    plain: usize,
}

/// Pieces that are kept apart; further ones are added to the last.
const PIECES_MAX: usize = 16;

#[derive(Debug, Default)]
struct Pieces {
    sent: VecDeque<Piece>,
    wire: usize,
}

impl Pieces {
    fn add(&mut self, wire: usize, plain: usize) {
        self.wire += wire;
        let is_full = self.sent.len() == PIECES_MAX;
        match self.sent.back_mut().filter(|_| is_full) {
            Some(last) => {
                last.wire += wire;
                last.plain += plain;
            }
            None => self.sent.push_back(Piece { wire, plain }),
        }
    }

    /// Forgets what has left; so many bytes of records have not.
    fn forget_sent(&mut self, queued: usize) {
        while let Some(first) = self.sent.front()
            && self.wire - first.wire >= queued
        {
            self.wire -= first.wire;
            self.sent.pop_front();
        }
    }

    /// Bytes of the app in the last so many bytes of records.
    fn plain_of(&self, queued: usize) -> usize {
        let (mut rest, mut plain) = (queued, 0);
        for piece in self.sent.iter().rev() {
            plain += piece.plain.min(rest);
            rest = rest.saturating_sub(piece.wire);
        }
        plain
    }
}

/// The outcome of records.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The peer has announced that nothing follows.
    pub(crate) is_closed: bool,
    /// The handshake is over.
    pub(crate) is_ready: bool,
    /// The connection is of no use any more.
    pub(crate) error: Option<Error>,
}

/// One connection.
pub(crate) struct Session {
    tls: UnbufferedServerConnection,
    pub(crate) opened: Opened,
    pub(crate) stage: Stage,
    /// The app was called for it.
    pub(crate) is_known: bool,
    /// It ends by our decision, as an error.
    pub(crate) is_faulty: bool,
    /// The app has asked for no more of its input.
    pub(crate) is_paused: bool,
    /// A send of the app took less than given.
    pub(crate) is_room_owed: bool,
    /// What the app left is to be shown before the turn ends.
    pub(crate) is_again: bool,
    /// Its handshake goes on in the next turn.
    pub(crate) is_deferred: bool,
    pub(crate) finish: Finish,
    /// The peer has sent `close_notify`.
    pub(crate) has_notified: bool,
    /// The peer's TCP stream has ended.
    pub(crate) has_ended: bool,
    /// When the stage must be over, in the lane's clock domain.
    pub(crate) deadline_ns: Option<u64>,
    /// Bytes that the app left.
    pub(crate) unread: Vec<u8>,
    /// Some record has come.
    has_received: bool,
    /// Records of a message that is not whole, decrypted in place, and what there is of a record.
    begun: Vec<u8>,
    /// Records, or the rest of one, that the lane did not take.
    refused: Vec<u8>,
    pieces: Pieces,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys stay out of what is printed.
        f.debug_struct("Session")
            .field("opened", &self.opened)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(config: &Arc<ServerConfig>, opened: Opened) -> Session {
        let tls = UnbufferedServerConnection::new(Arc::clone(config));
        Session {
            tls: tls.expect("only a length of records of one's own is refused"),
            opened,
            stage: Stage::Handshake,
            is_known: false,
            is_faulty: false,
            is_paused: false,
            is_room_owed: false,
            is_again: false,
            is_deferred: false,
            finish: Finish::No,
            has_notified: false,
            has_ended: false,
            deadline_ns: None,
            unread: Vec::new(),
            has_received: false,
            begun: Vec::new(),
            refused: Vec::new(),
            pieces: Pieces::default(),
        }
    }

    fn conn(&self) -> ConnId {
        self.opened.conn
    }

    /// Nothing has come of the peer.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.has_received
    }

    /// What comes begins with a record: nothing of one is kept.
    pub(crate) fn is_alone(&self) -> bool {
        self.begun.is_empty()
    }

    /// The lane owes us room.
    pub(crate) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Takes records, the last of which need not be whole; what they hold for the app is behind what is in `plain`,
    /// what answers them is sent.
    pub(crate) fn receive<O: StreamOut>(
        &mut self,
        records: &[u8],
        plain: &mut Vec<u8>,
        scratch: &mut Scratch,
        out: &mut O,
    ) -> Heard {
        let Scratch { incoming, wire, .. } = scratch;
        incoming.clear();
        incoming.extend_from_slice(&std::mem::take(&mut self.begun));
        incoming.extend_from_slice(records);
        wire.len = 0;
        self.has_received = true;
        let mut heard = Heard::default();
        let mut at = 0;
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(&mut incoming[at..]);
            let taken = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                    match traffic.next_record() {
                        Some(Ok(record)) => {
                            plain.extend_from_slice(record.payload);
                            discard += record.discard;
                        }
                        Some(Err(error)) => break Err(error),
                        None => break Ok(()),
                    }
                },
                Ok(ConnectionState::EncodeTlsData(mut data)) => wire.encode(&mut data),
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    Ok(())
                }
                Ok(ConnectionState::PeerClosed) => {
                    heard.is_closed = true;
                    Ok(())
                }
                Ok(last) => {
                    heard.is_ready = matches!(last, ConnectionState::WriteTraffic(_));
                    at += discard;
                    break;
                }
                Err(error) => Err(error),
            };
            at += discard;
            if let Err(error) = taken {
                self.write_alert(wire);
                heard.error = Some(error);
                break;
            }
        }
        if !heard.is_closed && !self.has_notified && heard.error.is_none() {
            self.begun.extend_from_slice(&incoming[at..]);
        }
        self.has_notified |= heard.is_closed;
        self.pass(wire, 0, out);
        heard
    }

    /// Writes the alert that answers an error. rustls must not be asked for more than that: what is left of the input
    /// would be an error once more, and it holds that there is one alert.
    fn write_alert(&mut self, wire: &mut Wire) {
        while self.tls.wants_write() {
            match self.tls.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    if wire.encode(&mut data).is_err() {
                        return;
                    }
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while traffic.next_record().is_some() {}
                }
                _ => return,
            }
        }
    }

    /// Makes records of `bytes` and sends them; returns how many bytes were taken.
    ///
    /// # Errors
    /// No record can be made any more.
    pub(crate) fn send<O: StreamOut>(
        &mut self,
        bytes: &[u8],
        scratch: &mut Scratch,
        out: &mut O,
    ) -> Result<usize, Error> {
        let mut taken = 0;
        for piece in bytes.chunks(PLAIN_BYTES_MAX) {
            if self.is_refused() {
                break;
            }
            self.write(&mut scratch.wire, |traffic, wire| {
                let room = piece.len() + OVERHEAD_BYTES_MAX;
                wire.write(room, |room| traffic.encrypt(piece, room), needed)
            })?;
            self.pass(&mut scratch.wire, piece.len(), out);
            taken += piece.len();
        }
        self.is_room_owed |= taken < bytes.len();
        Ok(taken)
    }

    /// Says that nothing follows.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) fn notify<O: StreamOut>(
        &mut self,
        scratch: &mut Scratch,
        out: &mut O,
    ) -> Result<(), Error> {
        self.write(&mut scratch.wire, |traffic, wire| {
            wire.write(OVERHEAD_BYTES_MAX, |room| traffic.queue_close_notify(room), needed)
        })?;
        self.pass(&mut scratch.wire, 0, out);
        Ok(())
    }

    /// Has something written into `wire` as soon as rustls lets the app write.
    fn write(
        &mut self,
        wire: &mut Wire,
        write: impl FnOnce(&mut Traffic<'_>, &mut Wire) -> Result<(), EncryptError>,
    ) -> Result<(), Error> {
        wire.len = 0;
        loop {
            // Part of a message may have come; it is taken with the rest.
            let UnbufferedStatus { discard, state } = self.tls.process_tls_records(&mut self.begun);
            debug_assert_eq!(discard, 0, "every whole record was taken when it arrived");
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    return write(&mut traffic, wire)
                        .map_err(|error| Error::General(error.to_string()));
                }
                ConnectionState::EncodeTlsData(mut data) => wire.encode(&mut data)?,
                ConnectionState::TransmitTlsData(sent) => sent.done(),
                _ => return Err(Error::HandshakeNotComplete),
            }
        }
    }

    /// Sends records, or keeps them where others wait.
    fn pass<O: StreamOut>(&mut self, wire: &mut Wire, plain: usize, out: &mut O) {
        let records = &wire.bytes[..std::mem::take(&mut wire.len)];
        if records.is_empty() {
            return;
        }
        let conn = self.conn();
        if self.refused.is_empty() {
            self.pieces.forget_sent(out.queued(conn));
        }
        self.pieces.add(records.len(), plain);
        let taken = if self.refused.is_empty() { out.send(conn, records) } else { 0 };
        self.refused.extend_from_slice(&records[taken..]);
    }

    /// There is room for records that wait.
    pub(crate) fn flush<O: StreamOut>(&mut self, out: &mut O) {
        let taken = out.send(self.conn(), &self.refused);
        self.refused.drain(..taken);
        if self.refused.is_empty() {
            self.refused = Vec::new();
        }
    }

    /// The app's bytes that the peer's TCP has not been handed.
    pub(crate) fn queued(&self, by_lane: usize) -> usize {
        match self.stage {
            Stage::Open | Stage::Closing => self.pieces.plain_of(by_lane + self.refused.len()),
            Stage::Handshake | Stage::Ended => 0,
        }
    }

    /// Bytes that are kept for it, beside what rustls keeps.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.unread.capacity() + self.begun.capacity() + self.refused.capacity()
    }

    /// Nothing more is kept for it.
    pub(crate) fn end(&mut self) {
        self.stage = Stage::Ended;
        self.unread = Vec::new();
        self.begun = Vec::new();
        self.refused = Vec::new();
    }
}

type Traffic<'a> = rustls::unbuffered::WriteTraffic<'a, rustls::server::ServerConnectionData>;

/// The reason of an error before the handshake was over.
pub(crate) fn reason_of(error: &Error) -> Reason {
    match error {
        Error::NoCertificatesPresented | Error::InvalidCertificate(_) => Reason::Certificate,
        Error::AlertReceived(_) => Reason::Alert,
        _ => Reason::Handshake,
    }
}
