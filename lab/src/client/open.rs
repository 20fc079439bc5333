//! Opening connections: many at a time, none without an end.

use super::Client;
use super::connection::{Connection, Link};
use super::conversation::Conversation;
use super::tally::Fate;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long opening all may take at least.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Connections that shake hands at a time: a short queue of a listener loses what is beyond it, for a second each.
const AT_ONCE: usize = 32;
/// Descriptors of a process besides its connections.
const DESCRIPTORS_MORE: u64 = 32;

/// Has this process open so many connections, as far as it may.
///
/// # Errors
/// A sentence with the limit.
pub(super) fn allow_descriptors(connections: u32) -> Result<(), String> {
    let needed = u64::from(connections) + DESCRIPTORS_MORE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit { current: maximum.map(|most| most.min(needed)), maximum };
    let is_raised = maximum.is_none_or(|most| most >= needed)
        && setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..raised }).is_ok();
    match is_raised {
        true => Ok(()),
        false => Err(format!(
            "{connections} connections need {needed} descriptors, and this process may have {} at most: raise it with \
             `ulimit -n {needed}`, or ask for fewer connections",
            maximum.map_or_else(|| "no more".to_owned(), |most| most.to_string())
        )),
    }
}

impl<C: Conversation> Client<C> {
    /// Opens all that are closed, within `patience`; what cannot be opened is closed with its reason.
    ///
    /// # Errors
    /// A sentence, when it is not for the other end that one cannot be opened.
    pub(super) fn connect(&mut self, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        let closed = |connection: &Connection<C>| !connection.is_open();
        let mut waiting: Vec<usize> =
            (0..self.connections.len()).rev().filter(|&at| closed(&self.connections[at])).collect();
        let mut opening = 0;
        while opening > 0 || !waiting.is_empty() {
            while opening < AT_ONCE
                && let Some(at) = waiting.pop()
            {
                opening += usize::from(self.try_one(at)?);
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                self.leave(&waiting, patience);
                return Ok(());
            }
            if opening > 0 {
                self.wait(left)?;
                opening -= self.settle();
            }
        }
        Ok(())
    }

    /// Begins to open one; false if that ended at once.
    fn try_one(&mut self, at: usize) -> Result<bool, String> {
        let connection = &mut self.connections[at];
        let to = self.plan.asked();
        let at = self.plan.asked_at();
        let own =
            |error: Errno| format!("cannot open a connection to {at}: {}", io::Error::from(error));
        let socket = unconnected(to, C::IS_BY_DATAGRAMS).map_err(own)?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => {
                let _ = connection.close(fate_of(error), io::Error::from(error).to_string());
                return Ok(false);
            }
        }
        // The socket becomes writable once the attempt has ended.
        let data = EventData::new_u64(connection.number.into());
        epoll::add(&self.epoll, &socket, data, EventFlags::OUT).map_err(own)?;
        connection.opening(socket);
        Ok(true)
    }

    /// Takes up those whose handshake has ended; how many did.
    fn settle(&mut self) -> usize {
        let mut settled = 0;
        for event in &self.events {
            let Some(connection) = self.connections.get_mut(event.data.u64() as usize) else {
                continue;
            };
            let Link::Opening(socket) = connection.link() else { continue };
            settled += 1;
            let ended = rustix::net::sockopt::socket_error(socket);
            let opened = match ended.and_then(|error| error) {
                Ok(()) => connection.opened(&self.epoll, &self.terms),
                Err(error) => {
                    let _ = connection.close(fate_of(error), io::Error::from(error).to_string());
                    continue;
                }
            };
            if let Err(error) = opened {
                let _ = connection.close(Fate::NotOpened, error.to_string());
            }
        }
        settled
    }

    /// The time is over.
    fn leave(&mut self, waiting: &[usize], patience: Duration) {
        let why = || format!("the handshake took more than {:.0} s", patience.as_secs_f64());
        for (at, connection) in self.connections.iter_mut().enumerate() {
            if matches!(connection.link(), Link::Opening(_)) || waiting.contains(&at) {
                let _ = connection.close(Fate::NotOpened, why());
            }
        }
    }
}

/// A socket that waits for nothing.
fn unconnected(to: SocketAddr, is_of_datagrams: bool) -> Result<OwnedFd, Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    match is_of_datagrams {
        true => socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP)),
        false => socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)),
    }
}

fn fate_of(error: Errno) -> Fate {
    if error == Errno::CONNREFUSED { Fate::Refused } else { Fate::NotOpened }
}
