//! Which addresses a node has, and which of them is tried first.
//!
//! A resolver may take seconds, and the thread that asks it waits: a name is therefore looked up by a thread of its
//! own, once for all links that want it, and the thread with the sockets goes on. An address that is written as one
//! needs no thread. What must always hold: at most [`LOOKUPS_MAX`] names are looked up at a time; a link that was given
//! up receives nothing. Links are of [`Pilot`](super::pilot::Pilot), which bounds how long one may take to connect.

use super::map::Address;
use super::pilot::LinkId;
use laneway_core::Bell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

/// Names that are looked up at a time.
pub(super) const LOOKUPS_MAX: usize = 8;

/// Finds the addresses of a node.
pub(super) type LookUp = fn(&Address) -> io::Result<Vec<SocketAddr>>;

/// As the machine's resolver does.
pub(super) fn look_up(address: &Address) -> io::Result<Vec<SocketAddr>> {
    Ok((address.host.as_str(), address.port).to_socket_addrs()?.collect())
}

/// Where a node may be reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    At(Vec<SocketAddr>),
    /// It is being looked up; the bell rings.
    Later,
}

/// An answer of the resolver, and the links that it is for.
pub(super) struct Answered {
    pub(super) address: Address,
    pub(super) links: Vec<LinkId>,
    pub(super) found: io::Result<Vec<SocketAddr>>,
}

/// Names that are looked up, and what was learnt of their addresses.
pub(super) struct Names {
    look_up: LookUp,
    answers: Receiver<(Address, io::Result<Vec<SocketAddr>>)>,
    to_us: Sender<(Address, io::Result<Vec<SocketAddr>>)>,
    bell: Bell,
    /// Each with the links that wait for it.
    asked: Vec<(Address, Vec<LinkId>)>,
    /// How often an address of a node did not connect: the next link begins with the one behind it.
    failed: HashMap<Address, usize>,
}

impl Names {
    pub(super) fn new(look_up: LookUp, bell: Bell) -> Names {
        let (to_us, answers) = channel();
        Names { look_up, answers, to_us, bell, asked: Vec::new(), failed: HashMap::new() }
    }

    /// Where a node is, for this link.
    ///
    /// # Errors
    /// Too many names are looked up, or there is no room for a thread.
    pub(super) fn ask(&mut self, id: LinkId, address: &Address) -> io::Result<Whereabouts> {
        if let Ok(ip) = address.host.parse::<IpAddr>() {
            return Ok(Whereabouts::At(vec![SocketAddr::new(ip, address.port)]));
        }
        if let Some((_, links)) = self.asked.iter_mut().find(|(asked, _)| asked == address) {
            links.push(id);
            return Ok(Whereabouts::Later);
        }
        if self.asked.len() >= LOOKUPS_MAX {
            return Err(io::Error::other("the resolver has not answered for other names"));
        }
        let (look_up, to_us, bell) = (self.look_up, self.to_us.clone(), self.bell.clone());
        let name = address.clone();
        let find = move || {
            let found = look_up(&name);
            // It is lost only where the thread with the sockets has ended.
            let _ = to_us.send((name, found));
            bell.ring();
        };
        // Ends by itself: no resolver takes for ever.
        Builder::new().name("resolver".to_owned()).spawn(find)?;
        self.asked.push((address.clone(), vec![id]));
        Ok(Whereabouts::Later)
    }

    /// The link is given up.
    pub(super) fn forget(&mut self, id: LinkId) {
        self.asked.iter_mut().for_each(|(_, links)| links.retain(|link| *link != id));
    }

    /// The next answer, if there is one.
    pub(super) fn answer(&mut self) -> Option<Answered> {
        let (address, found) = self.answers.try_recv().ok()?;
        let at = self.asked.iter().position(|(asked, _)| *asked == address)?;
        let (address, links) = self.asked.swap_remove(at);
        Some(Answered { address, links, found })
    }

    /// An address of the node did not connect.
    pub(super) fn note_failed(&mut self, address: &Address) {
        // Nodes are bounded, and so is this.
        let failed = self.failed.entry(address.clone()).or_default();
        *failed = failed.wrapping_add(1);
    }

    /// The addresses of a node in the order in which they are tried.
    pub(super) fn in_turn(&self, address: &Address, found: &[SocketAddr]) -> Vec<SocketAddr> {
        let mut found = found.to_vec();
        if !found.is_empty() {
            let failed = self.failed.get(address).copied().unwrap_or(0);
            let first = failed % found.len();
            found.rotate_left(first);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str) -> Address {
        Address { host: host.to_owned(), port: 6379 }
    }

    /// Waits for the machine's thread, not for a time.
    fn answered(names: &mut Names) -> Answered {
        loop {
            if let Some(answer) = names.answer() {
                return answer;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_name_is_looked_up_once_for_all_links_and_an_address_is_not() {
        let look_up: LookUp = |address| match &*address.host {
            "two" => Ok(vec![([192, 0, 2, 1], 7).into(), ([192, 0, 2, 2], 7).into()]),
            other => Err(io::Error::other(other.to_owned())),
        };
        let mut names = Names::new(look_up, Bell::new().expect("a descriptor"));
        for (host, at) in [("192.0.2.9", "192.0.2.9:6379"), ("::1", "[::1]:6379")] {
            let found = names.ask((0, 0), &node(host)).expect("it is an address");
            assert_eq!(found, Whereabouts::At(vec![at.parse().expect("an address")]));
        }
        for link in 0..3 {
            assert_eq!(names.ask((1, link), &node("two")).expect("a thread"), Whereabouts::Later);
        }
        names.forget((1, 1));
        let Answered { links, found, .. } = answered(&mut names);
        assert_eq!(links, [(1, 0), (1, 2)], "once for all that still want it");
        let found = found.expect("it has some");
        assert_eq!(names.in_turn(&node("two"), &found), found);
        names.note_failed(&node("two"));
        assert_eq!(names.in_turn(&node("two"), &found), [found[1], found[0]]);
        assert_eq!(names.ask((2, 0), &node("none")).expect("a thread"), Whereabouts::Later);
        assert!(answered(&mut names).found.is_err());
        assert!(names.answer().is_none());
    }

    #[test]
    fn a_resolver_that_hangs_is_asked_for_so_many_names_and_no_more() {
        let look_up: LookUp = |_| {
            loop {
                std::thread::park();
            }
        };
        let mut names = Names::new(look_up, Bell::new().expect("a descriptor"));
        for number in 0..LOOKUPS_MAX {
            let found = names.ask((0, 0), &node(&format!("name-{number}")));
            assert_eq!(found.expect("a thread"), Whereabouts::Later);
        }
        names.ask((0, 0), &node("another")).expect_err("too many");
        assert_eq!(names.ask((0, 1), &node("name-0")).expect("it is asked"), Whereabouts::Later);
    }
}
