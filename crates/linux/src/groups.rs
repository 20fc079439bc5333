//! The groups that a port of a kernel socket receives.
//!
//! ```text
//!   one group, or as many as a socket may be a member of (igmp_max_memberships, 20):
//!       the port's own socket is their member, and the kernel gives it no other
//!   more, or a group from more senders than a socket may list (igmp_max_msf, 10):
//!       holders, sockets that receive nothing, are members of the rest; the port's own socket hears every
//!       group that this machine is a member of, and those that are not the port's are left out here
//! ```
//!
//! What must always hold: of what is sent to a group the port shows what its memberships name, group, interface and
//! sender, with any other memberships of the machine. So the port's own socket is a member for all senders of a group
//! on an interface, or for none: what it is a member of for some it is not given from others. For the same reason a
//! port is a member of a group on an interface for any sender or for some, never both. It makes no system call itself,
//! and no socket.

use crate::{Interface, SocketOptions, chosen_interface};
use laneway_core::{CapsReport, LaneError, Membership, PortPlan};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::c_int,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
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
    /// What is sent to the groups is read from the port's socket.
    is_read: bool,
    name: String,
    members: BTreeMap<Membership, Member>,
    holders: Vec<Holder<S>>,
    own_is_full: bool,
    /// What is let through, where the kernel does not see to it: the interfaces and senders of each group; no sender
    /// for all.
    wanted: HashMap<IpAddr, Vec<(u32, Option<IpAddr>)>>,
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
    /// How many memberships it has of each group on an interface.
    of_group: HashMap<(IpAddr, u32), usize>,
    /// It has no room for a group more.
    is_full: bool,
}

impl<S: SocketOptions> Groups<S> {
    /// Those of a plan; none is joined yet.
    pub fn new(lane: &'static str, plan: &PortPlan) -> Groups<S> {
        Groups {
            lane,
            is_v4: plan.bind.is_ipv4(),
            is_read: true,
            name: plan.bind.to_string(),
            members: BTreeMap::new(),
            holders: Vec::new(),
            own_is_full: false,
            wanted: HashMap::new(),
        }
    }

    /// Those of sockets that nothing is read from.
    pub(crate) fn unread(lane: &'static str, plan: &PortPlan) -> Groups<S> {
        Groups { is_read: false, ..Groups::new(lane, plan) }
    }

    /// True when what was sent to `destination` by `source` and arrived at `interface`, by its number, is for the port.
    #[inline]
    pub fn let_through(&self, destination: IpAddr, source: IpAddr, interface: u32) -> bool {
        // ip_mc_sf_allow compares the interface, inet6_mc_check does not.
        let kernel_sees_to_it = self.holders.is_empty() && (self.is_v4 || self.members.is_empty());
        kernel_sees_to_it || self.is_wanted(destination, source, interface)
    }

    fn is_wanted(&self, destination: IpAddr, source: IpAddr, interface: u32) -> bool {
        let Some(wanted) = self.wanted.get(&destination) else {
            return !destination.is_multicast();
        };
        wanted.iter().any(|(index, sender)| {
            // 0 is none that is known.
            let is_there = *index == interface || *index == 0 || interface == 0;
            is_there && sender.is_none_or(|sender| sender == source)
        })
    }

    /// Becomes a member; `own` is the port's socket, `make` makes a holder of its family.
    ///
    /// # Errors
    /// A group that is none, a membership that is there, or what the kernel says.
    pub fn join(
        &mut self,
        own: &impl SocketOptions,
        membership: &Membership,
        mut make: impl FnMut() -> Result<S, LaneError>,
        caps: &mut CapsReport,
    ) -> Result<(), LaneError> {
        self.check(membership)?;
        let index = self.index(membership)?;
        self.refuse_beside(membership, index)?;
        if self.members.is_empty() && self.holders.is_empty() {
            self.hear_all(own, false)?;
            self.share(own)?;
        }
        let holder = self.enter(own, membership, index, &mut make)?;
        self.insert(membership, Member { holder, index });
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
            self.refuse_beside(membership, index)?;
            self.insert(membership, Member { holder: None, index });
        }
        // Not before all are known to agree: to be asked for a sender changes a socket that hears all.
        for membership in memberships {
            let index = self.members[membership].index;
            if !self.is_own(own, membership, index)? {
                let holder = Some(self.hold(own, membership, index, &mut make)?);
                self.members.insert(membership.clone(), Member { holder, index });
            }
        }
        if !memberships.is_empty() {
            self.hear_all(own, !self.holders.is_empty())?;
            self.share(own)?;
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
        let Some(member) = self.members.remove(membership) else {
            return Err(LaneError::NotFound {
                lane: self.lane.to_owned(),
                what: "membership",
                name: name_of(membership),
                hint: format!("{} was never a member, or has left", self.name),
            });
        };
        let left = self.let_go(own, membership, member);
        if let Some(wanted) = self.wanted.get_mut(&membership.group) {
            let gone = (member.index, membership.source);
            if let Some(at) = wanted.iter().position(|it| *it == gone) {
                wanted.swap_remove(at);
            }
            if wanted.is_empty() {
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

    fn insert(&mut self, membership: &Membership, member: Member) {
        self.members.insert(membership.clone(), member);
        self.wanted.entry(membership.group).or_default().push((member.index, membership.source));
    }

    /// Makes the first socket that has room a member. Where the port's own socket is a member of a group for some
    /// senders, the kernel gives it no others of that group there, whatever holders are members of: so all of them
    /// are held by the one, or all by the others.
    fn enter(
        &mut self,
        own: &impl SocketOptions,
        membership: &Membership,
        index: u32,
        make: &mut impl FnMut() -> Result<S, LaneError>,
    ) -> Result<Option<usize>, LaneError> {
        let beside = self.beside(membership, index);
        let is_own = match beside.first() {
            Some((_, holder)) => holder.is_none(),
            None => !self.own_is_full,
        };
        if !is_own {
            return self.hold(own, membership, index, make).map(Some);
        }
        match own.set(self.level(), join_option(membership), &request(membership, index)) {
            Ok(()) => return Ok(None),
            Err(e) if !is_full(&e) => return Err(self.not_joined(membership, e)),
            Err(_) => self.own_is_full |= beside.is_empty(),
        }
        let mut moved: Vec<(Membership, usize)> = Vec::new();
        for it in beside.into_iter().map(|(it, _)| it).chain([membership.clone()]) {
            match self.hold(own, &it, index, make) {
                Ok(holder) => moved.push((it, holder)),
                Err(why) => {
                    // The port's own socket is the member still.
                    for (it, holder) in moved {
                        let _ = self.let_go(own, &it, Member { holder: Some(holder), index });
                    }
                    return Err(why);
                }
            }
        }
        // Last, so that nothing is missed. Where it is no member there is nothing to leave.
        let whole = Membership { source: None, ..membership.clone() };
        let _ = own.set(self.level(), libc::MCAST_LEAVE_GROUP, &request(&whole, index));
        let last = moved.pop().map(|(_, holder)| holder);
        for (it, holder) in moved {
            self.members.insert(it, Member { holder: Some(holder), index });
        }
        Ok(last)
    }

    /// Makes the first holder that has room a member.
    fn hold(
        &mut self,
        own: &impl SocketOptions,
        membership: &Membership,
        index: u32,
        make: &mut impl FnMut() -> Result<S, LaneError>,
    ) -> Result<usize, LaneError> {
        let (level, option) = (self.level(), join_option(membership));
        let request = request(membership, index);
        let group = (membership.group, index);
        for (at, holder) in self.holders.iter_mut().enumerate() {
            let has_group = holder.of_group.contains_key(&group);
            if holder.is_full && !has_group {
                continue;
            }
            match holder.socket.set(level, option, &request) {
                Ok(()) => {
                    *holder.of_group.entry(group).or_default() += 1;
                    return Ok(at);
                }
                // Of a group that it has it may list no sender more, and has room for other groups.
                Err(e) if is_full(&e) => holder.is_full |= !has_group,
                Err(e) => return Err(self.not_joined(membership, e)),
            }
        }
        let socket = make()?;
        socket.set(level, option, &request).map_err(|e| self.not_joined(membership, e))?;
        if self.holders.is_empty() {
            // Only now, so that a port of few groups is never shown others.
            self.hear_all(own, true)?;
        }
        let of_group = HashMap::from([(group, 1)]);
        self.holders.push(Holder { socket, of_group, is_full: false });
        Ok(self.holders.len() - 1)
    }

    /// Has what holds a membership leave it.
    fn let_go(
        &mut self,
        own: &impl SocketOptions,
        membership: &Membership,
        Member { holder, index }: Member,
    ) -> io::Result<()> {
        let level = self.level();
        let leave = |option, membership: &Membership| {
            let request = request(membership, index);
            match holder {
                None => own.set(level, option, &request),
                Some(holder) => self.holders[holder].socket.set(level, option, &request),
            }
        };
        let left = match membership.source {
            None => leave(libc::MCAST_LEAVE_GROUP, membership),
            Some(_) => leave(libc::MCAST_LEAVE_SOURCE_GROUP, membership),
        };
        if left.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENODEV)) {
            // Of an interface that is gone the kernel leaves no sender, and the group, which takes up room, as a whole.
            let _ =
                leave(libc::MCAST_LEAVE_GROUP, &Membership { source: None, ..membership.clone() });
        }
        match holder {
            None => self.own_is_full = false,
            Some(holder) => {
                let holder = &mut self.holders[holder];
                let group = (membership.group, index);
                if let Some(n) = holder.of_group.get_mut(&group) {
                    *n -= 1;
                    if *n == 0 {
                        holder.of_group.remove(&group);
                        holder.is_full = false;
                    }
                }
            }
        }
        left
    }

    /// The memberships of a group, on whichever interface.
    fn of_group(&self, group: IpAddr) -> impl Iterator<Item = (&Membership, &Member)> {
        let first = Membership { group, interface: None, source: None };
        self.members.range(first..).take_while(move |(it, _)| it.group == group)
    }

    /// The memberships for other senders of a group on an interface, and what holds each.
    fn beside(&self, membership: &Membership, index: u32) -> Vec<(Membership, Option<usize>)> {
        let of_group = self.of_group(membership.group);
        let beside = of_group.filter(|(it, at)| it.source.is_some() && at.index == index);
        beside.map(|(it, at)| (it.clone(), at.holder)).collect()
    }

    /// Refuses a membership that would have the kernel leave out what another one asks for. It gives no error itself:
    /// a socket that is asked for a first sender of a group hears the others no more.
    fn refuse_beside(&self, membership: &Membership, index: u32) -> Result<(), LaneError> {
        for (other, at) in self.of_group(membership.group) {
            let is_for_all = |it: &Membership| it.source.is_none();
            if at.index == index && is_for_all(other) != is_for_all(membership) {
                let why = format!(
                    "the port is a member for {} already, and hears a group from all or from some",
                    if is_for_all(other) { "all senders" } else { "some senders" }
                );
                return self.refused(membership, &why, "leave that first, or open another port");
            }
            // inet6_mc_check looks at the first membership of the group, on whichever interface.
            let is_for_some = !(is_for_all(other) && is_for_all(membership));
            if self.is_read && !self.is_v4 && at.index != index && is_for_some {
                let why = "an IPv6 socket has one list of senders of a group, for all interfaces";
                return self.refused(membership, why, "open a port for each interface");
            }
        }
        Ok(())
    }

    fn refused(&self, membership: &Membership, why: &str, hint: &str) -> Result<(), LaneError> {
        Err(LaneError::Refused {
            lane: self.lane.to_owned(),
            name: name_of(membership),
            why: why.to_owned(),
            hint: hint.to_owned(),
        })
    }

    /// Whether an adopted socket is the member itself; without senders it becomes it, where it has room.
    fn is_own(
        &self,
        own: &impl SocketOptions,
        membership: &Membership,
        index: u32,
    ) -> Result<bool, LaneError> {
        if let Some(source) = membership.source {
            // To join for a sender that holders have would shut out the group's others at once, in the process that
            // still reads it. The answer to leaving for no host says whether it is a member of the group at all.
            let no_host = Membership { source: Some(unspecified(source)), ..membership.clone() };
            let left =
                own.set(self.level(), libc::MCAST_LEAVE_SOURCE_GROUP, &request(&no_host, index));
            return Ok(left.is_err_and(|e| e.raw_os_error() == Some(libc::EADDRNOTAVAIL)));
        }
        match own.set(self.level(), libc::MCAST_JOIN_GROUP, &request(membership, index)) {
            Ok(()) => Ok(true),
            Err(e) if is_member(&e) => Ok(true),
            Err(e) if is_full(&e) => Ok(false),
            Err(e) => Err(self.not_joined(membership, e)),
        }
    }

    fn not_joined(&self, membership: &Membership, e: io::Error) -> LaneError {
        let hint = match e.raw_os_error() {
            Some(libc::ENODEV) => "name an interface that is there and up",
            Some(libc::ENOBUFS) => "raise net.ipv4.igmp_max_memberships or igmp_max_msf",
            _ => "`ip maddr` lists the memberships of each interface",
        };
        LaneError::os(self.lane, format!("join {}", name_of(membership)), e, hint)
    }

    /// Whether the port's socket is given what is sent to groups that others here are members of.
    fn hear_all(&self, own: &impl SocketOptions, all: bool) -> Result<(), LaneError> {
        let option = if self.is_v4 { libc::IP_MULTICAST_ALL } else { IPV6_MULTICAST_ALL };
        own.set(self.level(), option, &c_int::from(all).to_ne_bytes()).map_err(|e| {
            let doing = format!("set which groups the socket at {} hears", self.name);
            LaneError::os(self.lane, doing, e, "for IPv6 this needs Linux 4.20 or newer")
        })
    }

    /// Lets another socket be bound at this place, as beside one that was opened for a group: a group is no one's own.
    fn share(&self, own: &impl SocketOptions) -> Result<(), LaneError> {
        // The kernel asks both sockets when the other is bound (udp_lib_lport_inuse).
        let one: c_int = 1;
        own.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, &one.to_ne_bytes()).map_err(|e| {
            let doing = format!("let others be bound beside the socket at {}", self.name);
            LaneError::os(self.lane, doing, e, "see `ss -ulpn`")
        })
    }

    fn check(&self, membership: &Membership) -> Result<(), LaneError> {
        let Membership { group, source, .. } = membership;
        let refused = |why: &str, hint: &str| self.refused(membership, why, hint);
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

fn join_option(membership: &Membership) -> c_int {
    match membership.source {
        None => libc::MCAST_JOIN_GROUP,
        Some(_) => libc::MCAST_JOIN_SOURCE_GROUP,
    }
}

/// The address of no host, of the family of another.
fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
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
mod tests;
