//! The groups that a port of a kernel socket receives.
//!
//! ```text
//!   one group, or as many as a socket may be a member of (igmp_max_memberships, 20):
//!       the port's own socket is their member, and the kernel gives it no other
//!   more:
//!       holders, sockets that receive nothing, are members of the rest; the port's own socket hears every
//!       group that this machine is a member of, and those that are not the port's are left out here
//! ```
//!
//! What must always hold: of what is sent to a group the port shows what its memberships name, group and
//! sender, with any other memberships of the machine. It makes no system call itself, and no socket.

use crate::{Interface, SocketOptions, chosen_interface};
use laneway_core::{CapsReport, LaneError, Membership, PortPlan};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::c_int,
    io,
    net::IpAddr,
};

/// `IPV6_MULTICAST_ALL` (Linux 4.20), which libc does not name.
const IPV6_MULTICAST_ALL: c_int = 29;
/// Bytes of `struct sockaddr_storage`, and where the first begins in a `group_req`.
const STORAGE_BYTES: usize = 128;
const GROUP_AT: usize = 8;

/// The memberships of one port, and the sockets that hold those that its own has no room for.
#[derive(Debug)]
pub struct Groups<S> {
    lane: &'static str,
    is_v4: bool,
    name: String,
    members: BTreeMap<Membership, Member>,
    holders: Vec<Holder<S>>,
    own_is_full: bool,
    /// What is let through, where the kernel does not see to it: the senders of each group; none for all.
    wanted: HashMap<IpAddr, Vec<Option<IpAddr>>>,
}

/// How a membership is held.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// The holder that is the member; none: the port's own socket.
    holder: Option<usize>,
    /// The interface's number: what the kernel keeps while name and route change.
    index: u32,
}

#[derive(Debug)]
struct Holder<S> {
    socket: S,
    memberships: usize,
    is_full: bool,
}

impl<S: SocketOptions> Groups<S> {
    /// Those of a plan; none is joined yet.
    pub fn new(lane: &'static str, plan: &PortPlan) -> Groups<S> {
        Groups {
            lane,
            is_v4: plan.bind.is_ipv4(),
            name: plan.bind.to_string(),
            members: BTreeMap::new(),
            holders: Vec::new(),
            own_is_full: false,
            wanted: HashMap::new(),
        }
    }

    /// True when what was sent to `destination` by `source` is for the port.
    #[inline]
    pub fn let_through(&self, destination: IpAddr, source: IpAddr) -> bool {
        self.holders.is_empty() || self.is_wanted(destination, source)
    }

    fn is_wanted(&self, destination: IpAddr, source: IpAddr) -> bool {
        let Some(senders) = self.wanted.get(&destination) else {
            return !destination.is_multicast();
        };
        senders.iter().any(|sender| sender.is_none_or(|sender| sender == source))
    }

    /// Becomes a member; `own` is the port's socket, `make` makes a holder of its family.
    ///
    /// # Errors
    /// A group that is none, a membership that is there, or what the kernel says.
    pub fn join(
        &mut self,
        own: &impl SocketOptions,
        membership: &Membership,
        make: impl FnOnce() -> Result<S, LaneError>,
        caps: &mut CapsReport,
    ) -> Result<(), LaneError> {
        self.check(membership)?;
        let index = self.index(membership)?;
        let request = request(membership, index);
        if self.members.is_empty() {
            self.hear_all(own, false)?;
        }
        let holder = self.enter(own, membership, &request, make, false)?;
        if holder.is_some() && self.holders.len() == 1 {
            // Only now, so that a port of few groups is never shown others.
            self.hear_all(own, true)?;
        }
        self.members.insert(membership.clone(), Member { holder, index });
        self.wanted.entry(membership.group).or_default().push(membership.source);
        self.report(caps);
        Ok(())
    }

    /// Takes over the memberships of a socket that another process opened and still reads: those that the socket
    /// itself has are kept, and the others get holders here. The socket hears no less meanwhile.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn adopt(
        &mut self,
        own: &impl SocketOptions,
        memberships: &[Membership],
        mut make: impl FnMut() -> Result<S, LaneError>,
        caps: &mut CapsReport,
    ) -> Result<(), LaneError> {
        for membership in memberships {
            self.check(membership)?;
            let index = self.index(membership)?;
            let request = request(membership, index);
            let holder = self.enter(own, membership, &request, &mut make, true)?;
            self.members.insert(membership.clone(), Member { holder, index });
            self.wanted.entry(membership.group).or_default().push(membership.source);
        }
        if !memberships.is_empty() {
            self.hear_all(own, !self.holders.is_empty())?;
            self.report(caps);
        }
        Ok(())
    }

    /// Is a member no longer.
    ///
    /// # Errors
    /// A membership that is not there, or what the kernel says.
    pub fn leave(
        &mut self,
        own: &impl SocketOptions,
        membership: &Membership,
        caps: &mut CapsReport,
    ) -> Result<(), LaneError> {
        let Some(Member { holder: at, index }) = self.members.remove(membership) else {
            return Err(LaneError::NotFound {
                lane: self.lane.to_owned(),
                what: "membership",
                name: name_of(membership),
                hint: format!("{} was never a member, or has left", self.name),
            });
        };
        let request = request(membership, index);
        let option = match membership.source {
            None => libc::MCAST_LEAVE_GROUP,
            Some(_) => libc::MCAST_LEAVE_SOURCE_GROUP,
        };
        let left = match at {
            None => own.set(self.level(), option, &request),
            Some(holder) => self.holders[holder].socket.set(self.level(), option, &request),
        };
        match at {
            None => self.own_is_full = false,
            Some(holder) => {
                let holder = &mut self.holders[holder];
                holder.memberships -= 1;
                holder.is_full = false;
            }
        }
        if let Some(senders) = self.wanted.get_mut(&membership.group) {
            if let Some(at) = senders.iter().position(|sender| *sender == membership.source) {
                senders.swap_remove(at);
            }
            if senders.is_empty() {
                self.wanted.remove(&membership.group);
            }
        }
        self.report(caps);
        match left {
            Err(e) if !is_gone(&e) => {
                let doing = format!("leave {}", name_of(membership));
                Err(LaneError::os(self.lane, doing, e, "see `ip maddr`"))
            }
            _ => Ok(()),
        }
    }

    /// Makes the first socket that has room a member; of a socket that is adopted, what it is a member of is so.
    fn enter(
        &mut self,
        own: &impl SocketOptions,
        membership: &Membership,
        request: &[u8],
        make: impl FnOnce() -> Result<S, LaneError>,
        is_adopted: bool,
    ) -> Result<Option<usize>, LaneError> {
        let option = match membership.source {
            None => libc::MCAST_JOIN_GROUP,
            Some(_) => libc::MCAST_JOIN_SOURCE_GROUP,
        };
        let level = self.level();
        let failed = |e: io::Error| {
            let hint = match e.raw_os_error() {
                Some(libc::ENODEV) => "name an interface that is there and up",
                Some(libc::ENOBUFS) => "raise net.ipv4.igmp_max_memberships or igmp_max_msf",
                _ => "`ip maddr` lists the memberships of each interface",
            };
            LaneError::os(self.lane, format!("join {}", name_of(membership)), e, hint)
        };
        // What an adopted socket is a member of, it is however full it is.
        if !self.own_is_full || is_adopted {
            match own.set(level, option, request) {
                Ok(()) => return Ok(None),
                Err(e) if is_adopted && is_member(&e) => return Ok(None),
                Err(e) if is_full(&e) => self.own_is_full = true,
                Err(e) => return Err(failed(e)),
            }
        }
        for (at, holder) in self.holders.iter_mut().enumerate().filter(|(_, h)| !h.is_full) {
            match holder.socket.set(level, option, request) {
                Ok(()) => {
                    holder.memberships += 1;
                    return Ok(Some(at));
                }
                Err(e) if is_full(&e) => holder.is_full = true,
                Err(e) => return Err(failed(e)),
            }
        }
        let socket = make()?;
        socket.set(level, option, request).map_err(failed)?;
        self.holders.push(Holder { socket, memberships: 1, is_full: false });
        Ok(Some(self.holders.len() - 1))
    }

    /// Whether the port's socket is given what is sent to groups that others here are members of.
    fn hear_all(&self, own: &impl SocketOptions, all: bool) -> Result<(), LaneError> {
        let option = if self.is_v4 { libc::IP_MULTICAST_ALL } else { IPV6_MULTICAST_ALL };
        own.set(self.level(), option, &c_int::from(all).to_ne_bytes()).map_err(|e| {
            let doing = format!("set which groups the socket at {} hears", self.name);
            LaneError::os(self.lane, doing, e, "for IPv6 this needs Linux 4.20 or newer")
        })
    }

    fn check(&self, membership: &Membership) -> Result<(), LaneError> {
        let Membership { group, source, .. } = membership;
        let refused = |why: &str, hint: &str| {
            Err(LaneError::Refused {
                lane: self.lane.to_owned(),
                name: name_of(membership),
                why: why.to_owned(),
                hint: hint.to_owned(),
            })
        };
        if !group.is_multicast() {
            return refused("that is no group", "groups are 224.0.0.0/4 and ff00::/8");
        }
        if group.is_ipv4() != self.is_v4 || source.is_some_and(|s| s.is_ipv4() != self.is_v4) {
            let hint = format!("the port is at {}; open one of the other family", self.name);
            return refused("it is of another family than the port", &hint);
        }
        if source.is_some_and(|source| source.is_multicast() || source.is_unspecified()) {
            return refused("a sender is one host", "name its address, or none for all");
        }
        if self.members.contains_key(membership) {
            return refused("the port is a member already", "leave it out");
        }
        Ok(())
    }

    /// The interface of a membership, by its number. Where none is named it is the one that the kernel would choose:
    /// left without a number, the kernel leaves a group where its route leads by then.
    fn index(&self, membership: &Membership) -> Result<u32, LaneError> {
        match &membership.interface {
            Some(name) => Ok(Interface::find(self.lane, name)?.index()),
            // Without a route the kernel says what is wrong.
            None => Ok(chosen_interface(membership.group).unwrap_or(0)),
        }
    }

    fn level(&self) -> c_int {
        if self.is_v4 { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 }
    }

    fn report(&self, caps: &mut CapsReport) {
        caps.fact("memberships", self.members.len());
        caps.fact("membership_holders", self.holders.len());
    }
}

/// `struct group_req`, or `struct group_source_req`.
fn request(membership: &Membership, index: u32) -> Vec<u8> {
    let addresses = [Some(membership.group), membership.source];
    let mut request = vec![0; GROUP_AT];
    request[..4].copy_from_slice(&index.to_ne_bytes());
    for address in addresses.into_iter().flatten() {
        let at = request.len();
        request.resize(at + STORAGE_BYTES, 0);
        let (family, offset) = match address {
            IpAddr::V4(_) => (libc::AF_INET, 4),
            IpAddr::V6(_) => (libc::AF_INET6, 8),
        };
        request[at..at + 2].copy_from_slice(&(family as u16).to_ne_bytes());
        match address {
            IpAddr::V4(v4) => request[at + offset..][..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => request[at + offset..][..16].copy_from_slice(&v6.octets()),
        }
    }
    request
}

/// A group as people write it: `239.1.1.1 from 192.0.2.7 on eth1`.
fn name_of(membership: &Membership) -> String {
    let mut text = membership.group.to_string();
    if let Some(source) = membership.source {
        text += &format!(" from {source}");
    }
    if let Some(interface) = &membership.interface {
        text += &format!(" on {interface}");
    }
    text
}

/// The answers of a socket that can be a member of no more, or has no memory for it.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

/// The answers of a socket that is a member already: of a group, of one sender of it.
fn is_member(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL))
}

/// The answers about a membership that went with its interface.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A kernel that makes a socket a member of two groups.
    #[derive(Default)]
    struct Socket {
        joined: RefCell<Vec<Vec<u8>>>,
        hears_all: Cell<Option<c_int>>,
    }

    impl SocketOptions for Socket {
        fn set(&self, _: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
            let mut joined = self.joined.borrow_mut();
            match option {
                libc::MCAST_JOIN_GROUP | libc::MCAST_JOIN_SOURCE_GROUP if joined.len() == 2 => {
                    return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
                }
                libc::MCAST_JOIN_GROUP | libc::MCAST_JOIN_SOURCE_GROUP => {
                    joined.push(value.to_vec());
                }
                libc::MCAST_LEAVE_GROUP | libc::MCAST_LEAVE_SOURCE_GROUP => {
                    let at = joined.iter().position(|request| request == value);
                    joined.swap_remove(at.expect("only what was joined is left"));
                }
                _ => {
                    let word = value.first_chunk().expect("a number");
                    self.hears_all.set(Some(c_int::from_ne_bytes(*word)));
                }
            }
            Ok(())
        }

        fn get(&self, _: c_int, _: c_int) -> io::Result<c_int> {
            Ok(0)
        }
    }

    fn group(text: &str) -> Membership {
        let (group, source) = text.split_once('@').map_or((text, None), |(g, s)| (g, Some(s)));
        let parse = |text: &str| text.parse().expect("an address");
        Membership { group: parse(group), interface: None, source: source.map(parse) }
    }

    fn groups() -> Groups<Socket> {
        Groups::new("here", &PortPlan::at("0.0.0.0:5".parse().expect("an address")))
    }

    fn lets(groups: &Groups<Socket>, destination: &str, source: &str) -> bool {
        let parse = |text: &str| text.parse().expect("an address");
        groups.let_through(parse(destination), parse(source))
    }

    #[test]
    fn more_groups_than_a_socket_may_have_go_to_holders_and_others_are_left_out() {
        let (own, mut groups, mut caps) = (Socket::default(), groups(), CapsReport::default());
        let mut join = |groups: &mut Groups<Socket>, text: &str| {
            groups.join(&own, &group(text), || Ok(Socket::default()), &mut caps)
        };
        for text in ["239.0.0.1", "239.0.0.2@10.0.0.1"] {
            join(&mut groups, text).expect("there is room");
        }
        assert_eq!(own.hears_all.get(), Some(0), "the kernel sees to it");
        assert!(lets(&groups, "239.0.0.9", "10.0.0.9"));
        for text in ["239.0.0.3", "239.0.0.4", "239.0.0.2@10.0.0.2"] {
            join(&mut groups, text).expect("holders have room");
        }
        assert_eq!((own.hears_all.get(), groups.holders.len()), (Some(1), 2));
        for (destination, source, through) in [
            ("239.0.0.1", "10.0.0.9", true),
            ("239.0.0.2", "10.0.0.1", true),
            ("239.0.0.2", "10.0.0.2", true),
            ("239.0.0.2", "10.0.0.3", false),
            ("239.0.0.9", "10.0.0.1", false),
            ("192.0.2.1", "10.0.0.1", true),
        ] {
            assert_eq!(lets(&groups, destination, source), through, "{destination} {source}");
        }
        assert_eq!(caps.facts["memberships"], "5");
        assert_eq!(caps.facts["membership_holders"], "2");
        for text in ["239.0.0.3", "239.0.0.1", "239.0.0.2@10.0.0.1"] {
            groups.leave(&own, &group(text), &mut caps).expect("it was joined");
            groups.leave(&own, &group(text), &mut caps).expect_err("it has left");
        }
        assert!(!lets(&groups, "239.0.0.1", "10.0.0.9") && !lets(&groups, "239.0.0.2", "10.0.0.1"));
        // Their room is used again.
        let mut join = |text: &str| groups.join(&own, &group(text), || panic!("room"), &mut caps);
        for text in ["239.0.0.5", "239.0.0.6", "239.0.0.7"] {
            join(text).expect("there is room");
        }
    }

    #[test]
    fn what_is_no_membership_is_refused_with_the_value() {
        let (own, mut groups, mut caps) = (Socket::default(), groups(), CapsReport::default());
        groups
            .join(&own, &group("239.0.0.1"), || panic!("room"), &mut caps)
            .expect("there is room");
        for (text, says) in [
            ("192.0.2.1", "no group"),
            ("ff15::1", "another family"),
            ("239.0.0.2@::1", "another family"),
            ("239.0.0.2@239.0.0.3", "one host"),
            ("239.0.0.1", "already"),
        ] {
            let refused = groups.join(&own, &group(text), || panic!("room"), &mut caps);
            let error = refused.expect_err("refused").to_string();
            let value = group(text).group.to_string();
            assert!(error.contains(says) && error.contains(&value), "{error}");
        }
    }

    #[test]
    fn a_request_is_laid_out_as_the_kernel_reads_it() {
        let any = request(&group("239.1.2.3"), 7);
        assert_eq!(any[..4], 7u32.to_ne_bytes());
        assert_eq!((any.len(), &any[8..10]), (136, &(libc::AF_INET as u16).to_ne_bytes()[..]));
        assert_eq!(any[12..16], [239, 1, 2, 3]);
        let one = request(&group("ff15::1@fe80::2"), 0);
        assert_eq!((one.len(), one[16], one[31]), (264, 0xff, 1));
        assert_eq!((one[136 + 8], one[136 + 23]), (0xfe, 2));
    }
}
