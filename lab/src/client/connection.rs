//! One connection of a client: what it has asked, what it still has to write, and why it is gone if it is.

use super::conversation::{Conversation, Terms};
use super::tally::Fate;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

/// A connection, open or not.
pub(super) struct Connection<C> {
    pub(super) number: u32,
    link: Link,
    talk: C,
    /// What was asked and is not written yet, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// The kernel reports room to it, because something was left in `out`.
    awaits_room: bool,
    /// When those that are asked were due, oldest first.
    in_flight: VecDeque<u64>,
    /// Requests of this segment that have been due, and that were asked.
    pub(super) due: u32,
    pub(super) taken: u32,
    /// When it had room for another request, ns.
    pub(super) free_ns: u64,
    /// How often it was opened.
    turn: u32,
}

/// What there is of it.
pub(super) enum Link {
    Open(OwnedFd),
    /// On its way: the kernel shakes hands.
    Opening(OwnedFd),
    /// Gone, or never there: what that makes of requests, and why.
    Closed(Fate, String),
}

/// The result of reading or writing.
pub(super) enum Moved {
    /// So many bytes; none if there was nothing, or no room.
    Bytes(usize),
    /// The other end has closed it, or it broke: what that makes of requests, and why.
    Ended(Fate, String),
}

impl<C: Conversation> Connection<C> {
    /// Connection `number`, not open yet.
    pub(super) fn closed(number: u32, terms: &Rc<Terms>) -> Connection<C> {
        Connection {
            number,
            link: Link::Closed(Fate::NotOpened, "it was not tried".to_owned()),
            talk: C::begin(terms, number, 0),
            out: Vec::new(),
            written: 0,
            awaits_room: false,
            in_flight: VecDeque::new(),
            due: 0,
            taken: 0,
            free_ns: 0,
            turn: 0,
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.link, Link::Open(_))
    }

    /// Its number, and why it is not open, if it is not.
    pub(super) fn refusal(&self) -> Option<(u32, &str)> {
        match &self.link {
            Link::Closed(_, why) => Some((self.number, why)),
            Link::Open(_) | Link::Opening(_) => None,
        }
    }

    /// Tries: the kernel is shaking hands.
    pub(super) fn opening(&mut self, socket: OwnedFd) {
        self.link = Link::Opening(socket);
    }

    /// It is open, and nothing was sent on it.
    pub(super) fn opened(&mut self, epoll: &OwnedFd, terms: &Rc<Terms>) -> io::Result<()> {
        let Link::Opening(socket) = std::mem::replace(&mut self.link, gone()) else {
            unreachable!("a connection opens when it was tried")
        };
        if !C::IS_BY_DATAGRAMS {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        let data = EventData::new_u64(self.number.into());
        epoll::modify(epoll, &socket, data, READING)?;
        self.link = Link::Open(socket);
        self.turn += 1;
        self.talk = C::begin(terms, self.number, self.turn);
        Ok(())
    }

    /// Gives it up: `fate` is that of what is still to be asked on it. A reset informs the other end at once. How
    /// many requests were in flight, which is the caller's to account for.
    pub(super) fn close(&mut self, fate: Fate, why: String) -> usize {
        if let Link::Open(socket) | Link::Opening(socket) =
            std::mem::replace(&mut self.link, Link::Closed(fate, why))
            && !C::IS_BY_DATAGRAMS
        {
            // Otherwise what was not read would keep its address in use for a minute.
            let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
        self.out.clear();
        (self.written, self.awaits_room) = (0, false);
        let lost = self.in_flight.len();
        self.in_flight.clear();
        lost
    }

    /// Begins a segment.
    pub(super) fn begin(&mut self, at_ns: u64) {
        (self.due, self.taken, self.free_ns) = (0, 0, at_ns);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Asks one that was due then; [`flush`](Self::flush) sends it.
    pub(super) fn ask(&mut self, due_ns: u64) {
        self.talk.ask(&mut self.out);
        self.in_flight.push_back(due_ns);
        self.taken += 1;
    }

    /// Takes what was read: when each request was due that is answered by it, and what is wrong with the next.
    pub(super) fn hear(
        &mut self,
        bytes: &[u8],
        mut answered: impl FnMut(u64),
    ) -> Result<(), super::Wrong> {
        let (whole, heard) = self.talk.hear(bytes);
        for _ in 0..whole {
            let due_ns = self.in_flight.pop_front();
            answered(due_ns.expect("a conversation has no more answers than it was asked for"));
        }
        heard
    }

    /// Reads what there is, at most `into`.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Moved {
        let Link::Open(socket) = &self.link else { return Moved::Bytes(0) };
        match recv(socket, into, RecvFlags::empty()) {
            Ok((0, _)) if C::IS_BY_DATAGRAMS => {
                Moved::Ended(Fate::Lost, "a datagram without a byte arrived".to_owned())
            }
            Ok((0, _)) => Moved::Ended(Fate::Lost, "it was closed by the other end".to_owned()),
            Ok((bytes, _)) => Moved::Bytes(bytes),
            Err(error) if is_for_now(error) => Moved::Bytes(0),
            Err(error) => ended(error),
        }
    }

    /// Writes what was asked, as far as there is room; the rest when there is.
    pub(super) fn flush(&mut self, epoll: &OwnedFd) -> Moved {
        let Link::Open(socket) = &self.link else { return Moved::Bytes(0) };
        let mut bytes = 0;
        while self.written < self.out.len() {
            // Of datagrams `out` is one request, which goes whole.
            match send(socket, &self.out[self.written..], SendFlags::NOSIGNAL) {
                Ok(written) => (self.written, bytes) = (self.written + written, bytes + written),
                Err(Errno::INTR) => {}
                Err(error) if is_for_now(error) => break,
                Err(error) => return ended(error),
            }
        }
        let awaits_room = self.written < self.out.len();
        if !awaits_room {
            self.out.clear();
            self.written = 0;
        }
        if awaits_room != self.awaits_room {
            let flags = if awaits_room { READING | EventFlags::OUT } else { READING };
            let data = EventData::new_u64(self.number.into());
            if let Err(error) = epoll::modify(epoll, socket, data, flags) {
                return ended(error);
            }
            self.awaits_room = awaits_room;
        }
        Moved::Bytes(bytes)
    }
}

/// What an open connection is watched for.
const READING: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

fn gone() -> Link {
    Link::Closed(Fate::Lost, "it broke as it was opened".to_owned())
}

fn is_for_now(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::INTR)
}

/// It broke. No program listens where a datagram went: an ICMP message reported it.
fn ended(error: Errno) -> Moved {
    let fate = if error == Errno::CONNREFUSED { Fate::Refused } else { Fate::Lost };
    Moved::Ended(fate, io::Error::from(error).to_string())
}
