//! The stream app that has another behind TLS.
//!
//! For the lane it is the app, for the app it is the lane. What must always hold: the app hears of a connection only
//! between its `on_open` and its `on_close`; nothing of a paused connection is shown, nor of one that waits for room;
//! all that is kept of a connection goes with it.

use crate::counts::{Counts, Reason};
use crate::record::{self, NoRecord};
use crate::session::{Finish, Heard, Scratch, Session, Stage, reason_of};
use crate::settings::Settings;
use laneway_core::{
    App, Close, ConnId, Counters, Datagram, DatagramOut, KernelHalf, KernelMaps, LaneError, Opened,
    PortId, StreamApp, StreamOut, Turn,
};
use laneway_kinds::{Conclude, RunReport};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Bytes that an app may leave of a connection, unless it pauses it or waits for room.
pub const UNREAD_BYTES_MAX: usize = 1 << 18;
/// Steps of handshakes in one turn: some cost as much as a hundred commands, and others wait meanwhile.
const HANDSHAKE_STEPS_MAX: usize = 16;
/// Bytes of records that are decrypted before the app is called.
const FEED_BYTES_MAX: usize = 1 << 16;
/// So many bytes of a record that is not whole stay in the lane: every lane has more room than that.
const LEFT_BYTES_MAX: usize = 2048;

type Sessions = HashMap<ConnId, Box<Session>>;

/// An app, and the TLS of those of its connections that speak it.
#[derive(Debug)]
pub struct Tls<A> {
    app: A,
    layer: Layer,
}

#[derive(Debug)]
struct Layer {
    /// None: every port is plain.
    settings: Option<Settings>,
    counts: Rc<Counts>,
    sessions: Sessions,
    handshakes: usize,
    /// Sessions whose stage must be over at some time.
    deadlines: BTreeSet<(u64, ConnId)>,
    /// Sessions that are to have a deadline, counted from the end of this turn.
    fresh: Vec<ConnId>,
    /// Handshakes that went on in this turn, and those that must wait for the next.
    steps: usize,
    deferred: Vec<ConnId>,
    /// Sessions of which the app has left something that it is to be shown again.
    again: Vec<ConnId>,
    scratch: Scratch,
    /// Of the last turn.
    now_ns: u64,
}

impl<A> Tls<A> {
    /// Puts TLS in front of `app`; without settings all ports are plain.
    pub fn new(app: A, settings: Option<Settings>, counts: Rc<Counts>) -> Tls<A> {
        let layer = Layer {
            settings,
            counts,
            sessions: Sessions::default(),
            handshakes: 0,
            deadlines: BTreeSet::new(),
            fresh: Vec::new(),
            steps: 0,
            deferred: Vec::new(),
            again: Vec::new(),
            scratch: Scratch::default(),
            now_ns: 0,
        };
        Tls { app, layer }
    }

    /// Another app in the place of this one, which has all of its connections.
    pub fn with<B>(self, app: B) -> (A, Tls<B>) {
        (self.app, Tls { app, layer: self.layer })
    }

    /// The app.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// Connections with TLS.
    pub fn sessions(&self) -> usize {
        self.layer.sessions.len()
    }

    /// Bytes that are kept for connections with TLS, beside what rustls keeps.
    pub fn kept_bytes(&self) -> usize {
        self.layer.sessions.values().map(|session| session.kept_bytes()).sum()
    }
}

#[cfg(test)]
impl<A> Tls<A> {
    pub(crate) fn stage(&self, conn: ConnId) -> Option<Stage> {
        self.layer.sessions.get(&conn).map(|session| session.stage)
    }
}

/// What may be done with bytes that a lane shows.
enum Next {
    /// So many of them are taken.
    Feed(usize),
    /// They stay where they are.
    Wait,
    /// They stay until the next turn.
    Defer,
    /// They are of no interest.
    Drop,
}

impl Layer {
    /// The session of a connection that the app may use.
    fn usable(&mut self, conn: ConnId) -> Option<&mut Session> {
        let session = self.sessions.get_mut(&conn)?;
        (session.stage == Stage::Open).then_some(&mut **session)
    }

    /// Whether connections of that port speak TLS.
    fn is_ours(&self, port: PortId) -> bool {
        self.settings.as_ref().is_some_and(|settings| port.0 >= settings.first_port)
    }

    fn open<O: StreamOut>(&mut self, opened: Opened, out: &mut O) {
        let Some(settings) = &self.settings else { return };
        let mut session = Session::new(&settings.config, opened);
        if self.handshakes >= settings.limits.handshakes_max {
            self.counts.note(Reason::TooMany);
            session.end();
            out.abort(opened.conn);
        } else {
            self.handshakes += 1;
            self.fresh.push(opened.conn);
        }
        self.sessions.insert(opened.conn, Box::new(session));
    }

    fn next(&self, conn: ConnId, bytes: &[u8]) -> Result<Next, NoRecord> {
        let Some(session) = self.sessions.get(&conn) else { return Ok(Next::Drop) };
        if matches!(session.stage, Stage::Closing | Stage::Ended) || session.has_notified {
            return Ok(Next::Drop);
        }
        if session.is_paused || session.is_refused() {
            return Ok(Next::Wait);
        }
        if session.stage == Stage::Handshake
            && bytes.first().is_some_and(|&first| first != record::HANDSHAKE)
            && session.is_untouched()
        {
            return Err(NoRecord);
        }
        let is_alone = session.is_alone();
        let feed = match record::whole_records(bytes, FEED_BYTES_MAX) {
            // What has been taken already is gone on with; rustls answers what is no record.
            _ if !is_alone => bytes.len().min(FEED_BYTES_MAX),
            Err(NoRecord) if session.is_untouched() => return Err(NoRecord),
            Err(NoRecord) => bytes.len().min(FEED_BYTES_MAX),
            Ok(0) if bytes.len() < LEFT_BYTES_MAX => return Ok(Next::Wait),
            // A lane may have no room for a whole record.
            Ok(0) => bytes.len(),
            Ok(records) => records,
        };
        let is_over = session.stage == Stage::Handshake && self.steps >= HANDSHAKE_STEPS_MAX;
        Ok(if is_over { Next::Defer } else { Next::Feed(feed) })
    }

    /// Ends a session as an error.
    fn fail<O: StreamOut>(&mut self, conn: ConnId, reason: Reason, out: &mut O) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        self.counts.note(reason);
        session.is_faulty = true;
        // An alert that has been queued should arrive.
        let is_aborted = session.is_refused() || matches!(reason, Reason::Slow | Reason::Unsent);
        self.end(conn);
        if is_aborted { out.abort(conn) } else { out.close(conn) }
    }

    /// The lane has been asked, or will be at once, to end the connection.
    fn end(&mut self, conn: ConnId) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        self.handshakes -= usize::from(session.stage == Stage::Handshake);
        session.end();
        if let Some(deadline_ns) = session.deadline_ns.take() {
            self.deadlines.remove(&(deadline_ns, conn));
        }
    }

    /// Answers a peer whose first bytes are no TLS.
    fn refuse_plain<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        let answer = self.settings.as_ref().map_or(&b""[..], |settings| settings.answer_to_plain);
        // A new connection's queue has room for a line; what does not fit is not worth waiting for.
        let _ = out.send(conn, answer);
        self.fail(conn, Reason::NotTls, out);
    }

    /// Has a handshake go on in the next turn.
    fn defer<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.is_deferred = true;
            self.deferred.push(conn);
            out.pause(conn);
        }
    }

    /// The peer of a handshake has finished, and all that it sent was taken.
    fn has_ended_early(&self, conn: ConnId) -> bool {
        self.sessions.get(&conn).is_some_and(|session| {
            session.stage == Stage::Handshake && session.has_ended && !session.is_deferred
        })
    }

    /// Closes behind what is queued.
    fn close<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        let Layer { sessions, scratch, .. } = self;
        let Some(session) = sessions.get_mut(&conn).filter(|one| one.stage == Stage::Open) else {
            return;
        };
        if session.notify(scratch, out).is_err() {
            return self.fail(conn, Reason::Record, out);
        }
        if session.is_refused() {
            session.stage = Stage::Closing;
            session.unread = Vec::new();
            self.fresh.push(conn);
        } else {
            self.end(conn);
            out.close(conn);
        }
    }

    /// Puts deadlines to what is new, and forgets those that are met.
    fn stamp(&mut self, now_ns: u64) {
        let Some(settings) = &self.settings else { return };
        self.now_ns = now_ns;
        for conn in self.fresh.drain(..) {
            let Some(session) = self.sessions.get_mut(&conn) else { continue };
            let time_ns = match session.stage {
                Stage::Handshake => settings.limits.handshake_ns,
                Stage::Closing => settings.limits.closing_ns,
                Stage::Open | Stage::Ended => continue,
            };
            let deadline_ns = now_ns.saturating_add(time_ns);
            if let Some(former_ns) = session.deadline_ns.replace(deadline_ns) {
                self.deadlines.remove(&(former_ns, conn));
            }
            self.deadlines.insert((deadline_ns, conn));
        }
    }

    /// Ends what has had its time.
    fn expire<O: StreamOut>(&mut self, now_ns: u64, out: &mut O) {
        while let Some(&(deadline_ns, conn)) = self.deadlines.first()
            && deadline_ns <= now_ns
        {
            self.deadlines.remove(&(deadline_ns, conn));
            let is_closing =
                self.sessions.get(&conn).is_some_and(|one| one.stage == Stage::Closing);
            self.fail(conn, if is_closing { Reason::Unsent } else { Reason::Slow }, out);
        }
    }
}

/// What the app sends by.
struct Out<'a, O> {
    layer: &'a mut Layer,
    out: &'a mut O,
}

impl<O: StreamOut> StreamOut for Out<'_, O> {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let Layer { sessions, scratch, .. } = &mut *self.layer;
        let Some(session) = sessions.get_mut(&conn) else { return self.out.send(conn, bytes) };
        if session.stage != Stage::Open {
            return 0;
        }
        match session.send(bytes, scratch, self.out) {
            Ok(taken) => taken,
            // No record can be made any more: the keys have been used up.
            Err(_) => {
                self.layer.fail(conn, Reason::Record, self.out);
                0
            }
        }
    }

    fn queued(&self, conn: ConnId) -> usize {
        let by_lane = self.out.queued(conn);
        self.layer.sessions.get(&conn).map_or(by_lane, |session| session.queued(by_lane))
    }

    fn close(&mut self, conn: ConnId) {
        if self.layer.sessions.contains_key(&conn) {
            self.layer.close(conn, self.out);
        } else {
            self.out.close(conn);
        }
    }

    fn abort(&mut self, conn: ConnId) {
        if self.layer.sessions.contains_key(&conn) {
            self.layer.end(conn);
        }
        self.out.abort(conn);
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(session) = self.layer.usable(conn) {
            session.is_paused = true;
        }
        self.out.pause(conn);
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(session) = self.layer.usable(conn) {
            session.is_paused = false;
            if !session.unread.is_empty() && !std::mem::replace(&mut session.is_again, true) {
                self.layer.again.push(conn);
            }
        }
        self.out.resume(conn);
    }
}

impl<A: StreamApp> Tls<A> {
    /// Takes what may be taken of a session's bytes; returns how many.
    fn take<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            match self.layer.next(conn, &bytes[at..]) {
                Ok(Next::Feed(records)) => {
                    self.feed(conn, &bytes[at..at + records], out);
                    at += records;
                }
                Ok(Next::Wait) => return at,
                Ok(Next::Defer) => {
                    self.layer.defer(conn, out);
                    return at;
                }
                Ok(Next::Drop) => break,
                Err(NoRecord) => {
                    self.layer.refuse_plain(conn, out);
                    break;
                }
            }
        }
        bytes.len()
    }

    /// Takes whole records of a session.
    fn feed<O: StreamOut>(&mut self, conn: ConnId, records: &[u8], out: &mut O) {
        let Layer { sessions, scratch, counts, handshakes, deadlines, steps, .. } = &mut self.layer;
        let Some(session) = sessions.get_mut(&conn) else { return };
        let is_kept = !session.unread.is_empty();
        let mut plain = std::mem::take(if is_kept {
            &mut session.unread
        } else {
            scratch.plain.clear();
            &mut scratch.plain
        });
        let before = plain.len();
        *steps += usize::from(session.stage == Stage::Handshake);
        let Heard { is_closed, is_ready, error } =
            session.receive(records, &mut plain, scratch, out);
        if let Some(error) = error {
            let reason = if session.is_known { Reason::Record } else { reason_of(&error) };
            return self.layer.fail(conn, reason, out);
        }
        if is_ready && session.stage == Stage::Handshake {
            session.stage = Stage::Open;
            session.is_known = true;
            *handshakes -= 1;
            if let Some(deadline_ns) = session.deadline_ns.take() {
                deadlines.remove(&(deadline_ns, conn));
            }
            counts.note_handshake();
            let opened = session.opened;
            self.app.on_open(opened, &mut Out { layer: &mut self.layer, out });
        } else if is_closed && session.stage == Stage::Handshake {
            return self.layer.fail(conn, Reason::BrokenOff, out);
        }
        if plain.len() > before {
            self.show(conn, plain, !is_kept, out);
        } else if let Some(session) = self.layer.usable(conn)
            && is_kept
        {
            session.unread = plain;
        } else {
            self.layer.scratch.plain = plain;
        }
        if is_closed {
            self.finish(conn, out);
        }
    }

    /// Shows the app what it has not consumed, and keeps what it leaves.
    fn show<O: StreamOut>(
        &mut self,
        conn: ConnId,
        mut plain: Vec<u8>,
        is_scratch: bool,
        out: &mut O,
    ) {
        let mut taken = plain.len();
        if let Some(session) = self.layer.usable(conn) {
            if session.is_paused || session.is_room_owed {
                taken = 0;
            } else {
                taken = self.app.on_bytes(conn, &plain, &mut Out { layer: &mut self.layer, out });
            }
        }
        if let Some(session) = self.layer.usable(conn)
            && taken < plain.len()
        {
            if is_scratch {
                session.unread = plain[taken..].to_vec();
            } else {
                plain.drain(..taken);
                session.unread = std::mem::take(&mut plain);
            }
            let may_stay = session.is_paused || session.is_room_owed;
            if session.unread.len() > UNREAD_BYTES_MAX && !may_stay {
                self.layer.fail(conn, Reason::Unread, out);
            }
        }
        if is_scratch {
            self.layer.scratch.plain = plain;
        }
    }

    /// Shows what the app has left, if it may be shown.
    fn show_again<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        let Some(session) = self.layer.usable(conn) else { return };
        session.is_again = false;
        if !session.is_paused && !session.is_room_owed && !session.unread.is_empty() {
            let unread = std::mem::take(&mut session.unread);
            self.show(conn, unread, false, out);
        }
    }

    /// The peer has finished: calls the app, once and when it may be called.
    fn finish<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        let Some(session) = self.layer.usable(conn) else { return };
        if session.finish == Finish::No {
            session.finish = Finish::Due;
        }
        self.report_finish(conn, out);
    }

    fn report_finish<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        let Some(session) = self.layer.usable(conn) else { return };
        if session.is_again {
            self.show_again(conn, out);
        }
        let Some(session) = self.layer.usable(conn) else { return };
        let may_report = session.is_paused || !session.is_room_owed;
        if session.finish == Finish::Due && may_report {
            session.finish = Finish::Reported;
            self.app.on_finish(conn, &mut Out { layer: &mut self.layer, out });
        }
    }
}

impl<A: App> App for Tls<A> {
    fn on_bell(&mut self, turn: Turn) {
        self.app.on_bell(turn);
    }

    fn on_stop(&mut self, turn: Turn) {
        self.app.on_stop(turn);
    }

    fn wants_stop(&self) -> bool {
        self.app.wants_stop()
    }

    fn due_ns(&self) -> Option<u64> {
        let layer = &self.layer;
        let deadline_ns = layer.deadlines.first().map(|(deadline_ns, _)| *deadline_ns);
        let again_ns = (!layer.again.is_empty()).then_some(layer.now_ns);
        [self.app.due_ns(), deadline_ns, again_ns].into_iter().flatten().min()
    }

    fn counters(&self) -> &Counters {
        self.app.counters()
    }
}

impl<A: StreamApp> StreamApp for Tls<A> {
    fn on_open<O: StreamOut>(&mut self, opened: Opened, out: &mut O) {
        if self.layer.is_ours(opened.port) {
            self.layer.open(opened, out);
        } else {
            self.app.on_open(opened, &mut Out { layer: &mut self.layer, out });
        }
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        if !self.layer.sessions.contains_key(&conn) {
            return self.app.on_bytes(conn, bytes, &mut Out { layer: &mut self.layer, out });
        }
        let consumed = self.take(conn, bytes, out);
        if self.layer.has_ended_early(conn) {
            self.layer.fail(conn, Reason::BrokenOff, out);
        }
        self.report_finish(conn, out);
        consumed
    }

    fn on_room<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        let Some(session) = self.layer.sessions.get_mut(&conn) else {
            return self.app.on_room(conn, &mut Out { layer: &mut self.layer, out });
        };
        session.flush(out);
        if session.is_refused() {
            if session.stage == Stage::Closing {
                self.layer.fresh.push(conn);
            }
            return;
        }
        match session.stage {
            Stage::Closing => {
                self.layer.end(conn);
                out.close(conn);
            }
            Stage::Open => {
                if std::mem::take(&mut session.is_room_owed) {
                    self.app.on_room(conn, &mut Out { layer: &mut self.layer, out });
                    self.show_again(conn, out);
                }
                self.report_finish(conn, out);
            }
            Stage::Handshake | Stage::Ended => {}
        }
    }

    fn on_finish<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        let Some(session) = self.layer.sessions.get_mut(&conn) else {
            return self.app.on_finish(conn, &mut Out { layer: &mut self.layer, out });
        };
        match session.stage {
            // Its bytes are there still.
            Stage::Handshake if session.is_deferred => {
                session.has_ended = true;
                session.finish = Finish::Due;
            }
            Stage::Handshake => self.layer.fail(conn, Reason::BrokenOff, out),
            Stage::Open => {
                session.has_ended = true;
                self.finish(conn, out);
            }
            // What is left to send is sent, or its time ends.
            Stage::Closing | Stage::Ended => {}
        }
    }

    fn on_turn_end<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        for conn in std::mem::take(&mut self.layer.again) {
            self.show_again(conn, out);
            self.report_finish(conn, out);
        }
        self.app.on_turn_end(turn, &mut Out { layer: &mut self.layer, out });
        self.layer.stamp(turn.now_ns);
        self.layer.steps = 0;
        for conn in self.layer.deferred.drain(..) {
            if let Some(session) = self.layer.sessions.get_mut(&conn)
                && std::mem::take(&mut session.is_deferred)
            {
                out.resume(conn);
            }
        }
    }

    fn on_close(&mut self, conn: ConnId, why: Close) {
        let Some(session) = self.layer.sessions.get(&conn) else {
            return self.app.on_close(conn, why);
        };
        if session.stage == Stage::Handshake {
            self.layer.counts.note(Reason::BrokenOff);
        }
        self.layer.end(conn);
        let Some(session) = self.layer.sessions.remove(&conn) else { return };
        let is_truncated = session.has_ended && !session.has_notified;
        // Of one that is paused the last bytes were not seen.
        if is_truncated && !session.is_paused && !session.is_faulty {
            self.layer.counts.note(Reason::Truncated);
        }
        let why = match why {
            _ if session.is_faulty => Close::Error,
            Close::App if session.finish == Finish::Reported => Close::Peer,
            why => why,
        };
        if session.is_known {
            self.app.on_close(conn, why);
        }
    }

    // Datagrams and a half in the kernel are not TLS's.
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        self.app.on_datagrams(batch, turn, out);
    }

    fn half(&self) -> Option<KernelHalf> {
        self.app.half()
    }

    fn on_maps(&mut self, maps: &dyn KernelMaps, turn: Turn) -> Result<(), LaneError> {
        self.app.on_maps(maps, turn)
    }

    fn on_tick<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        self.layer.expire(turn.now_ns, out);
        self.app.on_tick(turn, &mut Out { layer: &mut self.layer, out });
    }
}

impl<R, A: Conclude<R>> Conclude<R> for Tls<A> {
    const IS_THERE: bool = A::IS_THERE;

    fn conclude(self, run: &RunReport) -> R {
        self.app.conclude(run)
    }
}
