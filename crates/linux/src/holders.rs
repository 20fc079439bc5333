//! Memberships that the kernel has for a program that receives frames past it, so that it tells the network.
//!
//! A socket hears a group either from whomever or from single senders, so each kind has sockets of its own, of each
//! family. They are bound to nothing and receive nothing. What must always hold: a membership lasts until it is left
//! or the holder is dropped.

use crate::{Groups, SocketOptions};
use laneway_core::{CapsReport, LaneError, Membership, PortPlan};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Sockets that are members of groups.
pub struct Holders<S> {
    lane: &'static str,
    make: fn(IpAddr) -> Result<S, LaneError>,
    /// By family, and by whether there is one sender.
    kinds: [Option<Kind<S>>; 4],
}

struct Kind<S> {
    first: S,
    groups: Groups<S>,
}

impl<S: SocketOptions> Holders<S> {
    /// For `lane`; `make` makes a socket of datagrams, of the family of the address.
    pub fn new(lane: &'static str, make: fn(IpAddr) -> Result<S, LaneError>) -> Holders<S> {
        Holders { lane, make, kinds: [None, None, None, None] }
    }

    /// Becomes a member.
    ///
    /// # Errors
    /// A membership that is there, or what the kernel says.
    pub fn join(&mut self, membership: &Membership) -> Result<(), LaneError> {
        let (make, any) = (self.make, any_of(membership));
        let kind = match &mut self.kinds[place(membership)] {
            Some(kind) => kind,
            empty => {
                let groups = Groups::unread(self.lane, &PortPlan::at(SocketAddr::new(any, 0)));
                empty.insert(Kind { first: make(any)?, groups })
            }
        };
        kind.groups.join(&kind.first, membership, || make(any), &mut CapsReport::default())
    }

    /// Is a member no longer.
    ///
    /// # Errors
    /// A membership that is not there, or what the kernel says.
    pub fn leave(&mut self, membership: &Membership) -> Result<(), LaneError> {
        match &mut self.kinds[place(membership)] {
            Some(kind) => kind.groups.leave(&kind.first, membership, &mut CapsReport::default()),
            None => Err(LaneError::NotFound {
                lane: self.lane.to_owned(),
                what: "membership",
                name: membership.group.to_string(),
                hint: "no socket here ever was a member of such a group".to_owned(),
            }),
        }
    }
}

fn any_of(membership: &Membership) -> IpAddr {
    match membership.group {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn place(membership: &Membership) -> usize {
    usize::from(membership.group.is_ipv6()) * 2 + usize::from(membership.source.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, ffi::c_int, io};

    thread_local! {
        static MADE: Cell<usize> = const { Cell::new(0) };
    }

    /// A kernel in which a socket that hears a group from whomever is refused single senders, and the other way.
    struct Socket {
        option: Cell<c_int>,
    }

    impl SocketOptions for Socket {
        fn set(&self, _: c_int, option: c_int, _: &[u8]) -> io::Result<()> {
            let is_join = matches!(option, libc::MCAST_JOIN_GROUP | libc::MCAST_JOIN_SOURCE_GROUP);
            if is_join && ![0, option].contains(&self.option.replace(option)) {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            Ok(())
        }

        fn get(&self, _: c_int, _: c_int) -> io::Result<c_int> {
            Ok(0)
        }
    }

    #[test]
    fn a_group_may_be_heard_from_whomever_and_from_one_at_once() {
        let mut holders = Holders::new("here", |_| {
            MADE.set(MADE.get() + 1);
            Ok(Socket { option: Cell::new(0) })
        });
        let of = |group: &str, source: Option<&str>| Membership {
            group: group.parse().expect("an address"),
            interface: None,
            source: source.map(|source| source.parse().expect("an address")),
        };
        let all = [
            of("239.1.1.1", None),
            of("239.1.1.1", Some("10.0.0.1")),
            of("ff15::1", None),
            of("ff15::1", Some("fd00::1")),
        ];
        for membership in &all {
            holders.leave(membership).expect_err("not yet");
            holders.join(membership).expect("each has a socket that takes it");
            holders.join(membership).expect_err("it is there");
        }
        holders.join(&of("239.1.1.2", None)).expect("there is room");
        assert_eq!(MADE.get(), 4);
        for membership in &all {
            holders.leave(membership).expect("it is there");
            holders.leave(membership).expect_err("it has left");
        }
    }
}
