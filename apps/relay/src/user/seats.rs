//! The ports that receive what rules are about, each with the rules and groups that share it.
//!
//! What must always hold: a seat is there while a rule wants it; its port, if it has one, is a member of what its
//! rules want, less what is still to be joined. Seats keep their numbers when their ports are closed and opened.

use super::{
    berth::{Berth, is_absent},
    leftover::{Leftover, SeatId},
};
use crate::{
    desk::SharedInput,
    rule::{Rule, RuleId},
};
use laneway_core::{DatagramPorts, LaneError, Membership, PortId, PortPlan};
use laneway_linux::Links;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

/// A port that receives, with the rules about what it receives.
#[derive(Debug)]
pub(super) struct Seat {
    bind: SocketAddr,
    pub(super) interface: Option<String>,
    pub(super) berth: Berth,
    /// Rules about one destination: several where each has senders of its own.
    exact: HashMap<IpAddr, Vec<u32>>,
    /// The rule about every address of ours.
    any: Vec<u32>,
    /// What its rules, those in preparation included, want to be members of.
    members: BTreeMap<Membership, Member>,
    /// Of them, those to be joined when there is a turn for it: the last first.
    to_join: VecDeque<Membership>,
    /// How many of those have had no turn since interfaces changed.
    untried: usize,
    /// Of those that are joined, the ones that may be where the kernel would not have them any more.
    doubted: Vec<Membership>,
    /// How many rules want the port.
    users: usize,
}

/// How a port is a member.
#[derive(Debug)]
struct Member {
    /// How many rules want it; none where it is still to be left.
    users: usize,
    is_joined: bool,
    /// The interface that the kernel chose when it was joined; none where one is named, or it is unknown.
    chosen: Option<u32>,
}

impl Member {
    fn new(users: usize, is_joined: bool, chosen: Option<u32>) -> Member {
        Member { users, is_joined, chosen: chosen.filter(|_| is_joined) }
    }
}

/// The interface that the kernel chooses for a group now.
pub(super) type Choice = fn(IpAddr) -> Option<u32>;

/// Where a membership is by the kernel's choice; none where its interface is named.
fn chosen(choice: Choice, membership: &Membership) -> Option<u32> {
    if membership.interface.is_some() { None } else { choice(membership.group) }
}

/// All seats of a worker.
#[derive(Debug)]
pub(super) struct Seats {
    seats: BTreeMap<SeatId, Seat>,
    by_port: HashMap<PortId, SeatId>,
    /// In the order in which they were opened.
    by_bind: HashMap<SocketAddr, Vec<SeatId>>,
    /// Those of sockets that were handed over, by the rules that come for them.
    handed: HashMap<RuleId, SeatId>,
    next: u64,
    choice: Choice,
}

impl Seats {
    /// None yet.
    pub(super) fn new(choice: Choice) -> Seats {
        Seats {
            seats: BTreeMap::new(),
            by_port: HashMap::new(),
            by_bind: HashMap::new(),
            handed: HashMap::new(),
            next: 0,
            choice,
        }
    }

    /// What receives at this port.
    #[inline]
    pub(super) fn of_port(&self, port: PortId) -> Option<&Seat> {
        self.seats.get(self.by_port.get(&port)?)
    }

    pub(super) fn get_mut(&mut self, id: SeatId) -> Option<&mut Seat> {
        self.seats.get_mut(&id)
    }

    pub(super) fn get(&self, id: SeatId) -> Option<&Seat> {
        self.seats.get(&id)
    }

    pub(super) fn ids(&self) -> Vec<SeatId> {
        self.seats.keys().copied().collect()
    }

    /// Makes a seat of a socket that another relay handed over. It receives nothing yet.
    pub(super) fn adopt(
        &mut self,
        input: SharedInput,
        ports: &mut impl DatagramPorts,
        links: &Links,
    ) -> Result<(), LaneError> {
        let SharedInput { bind, interface, memberships, rules, socket } = input;
        let choice = self.choice;
        let member = |membership: &Membership| {
            (membership.clone(), Member::new(0, true, chosen(choice, membership)))
        };
        let members = memberships.iter().map(member).collect();
        let label = Some(label(bind, &interface));
        let plan = PortPlan { interface, memberships, label, ..PortPlan::at(bind) };
        let port = ports.adopt_port(&plan, socket)?;
        let berth = Berth::at(port, plan.interface.as_deref(), links);
        let id = SeatId(self.next);
        self.next += 1;
        self.by_port.insert(port, id);
        self.by_bind.entry(bind).or_default().push(id);
        self.handed.extend(rules.into_iter().map(|rule| (rule, id)));
        let seat = Seat {
            bind,
            interface: plan.interface,
            berth,
            exact: HashMap::new(),
            any: Vec::new(),
            members,
            to_join: VecDeque::new(),
            untried: 0,
            doubted: Vec::new(),
            users: 0,
        };
        self.seats.insert(id, seat);
        Ok(())
    }

    /// The sockets of all seats that have one, for a successor; `rule` is the id of the rule with that number.
    pub(super) fn share(
        &self,
        ports: &mut impl DatagramPorts,
        rule: impl Fn(u32) -> Option<RuleId>,
    ) -> Result<Option<Vec<SharedInput>>, LaneError> {
        let mut shared = Vec::with_capacity(self.seats.len());
        for seat in self.seats.values() {
            let Some(port) = seat.berth.port else { continue };
            let Some(socket) = ports.share_port(port)? else { return Ok(None) };
            let rules = seat.exact.values().flatten().chain(&seat.any);
            let joined = seat.members.iter().filter(|(_, member)| member.is_joined);
            shared.push(SharedInput {
                bind: seat.bind,
                interface: seat.interface.clone(),
                memberships: joined.map(|(membership, _)| membership.clone()).collect(),
                rules: rules.filter_map(|number| rule(*number)).collect(),
                socket,
            });
        }
        Ok(Some(shared))
    }

    /// Holds all ports, or lets them receive.
    pub(super) fn hold(
        &self,
        ports: &mut impl DatagramPorts,
        is_held: bool,
    ) -> Result<(), LaneError> {
        let mut open = self.seats.values().filter_map(|seat| seat.berth.port);
        open.try_for_each(|port| ports.hold_port(port, is_held))
    }

    /// True when every seat that was handed over has the rules that it was handed over with.
    #[cfg(test)]
    pub(super) fn are_taken(&self) -> bool {
        self.handed.is_empty() && self.seats.values().all(|seat| seat.users > 0)
    }

    /// The ports that are open.
    #[cfg(test)]
    pub(super) fn open_ports(&self) -> Vec<PortId> {
        self.seats.values().filter_map(|seat| seat.berth.port).collect()
    }

    /// The seat that receives what a rule is about, with the rule as one more user: one that is there, or a new
    /// one. Costs so many of the calls that a turn may make.
    pub(super) fn take(
        &mut self,
        rule: &Rule,
        ports: &mut impl DatagramPorts,
        links: &Links,
        may_wait: bool,
        budget: &mut usize,
        left: &mut Vec<Leftover>,
    ) -> Result<SeatId, LaneError> {
        let input = &rule.input;
        let plan = input.plan().expect("the rule was checked");
        let plan = PortPlan { label: Some(label(plan.bind, &input.interface)), ..plan };
        // Only the first rules of a run find theirs.
        let handed = self.handed.remove(&RuleId::of(input));
        // Of several at one place the kernel gives the one that was opened last what is sent to a host.
        let there = self.by_bind.get(&plan.bind).into_iter().flatten().rev().copied();
        let mut there = there.filter(|id| handed.is_none_or(|handed| handed == *id));
        let found = there.find(|id| {
            let seat = &self.seats[id];
            seat.interface == input.interface
                && !plan.memberships.iter().any(|wanted| seat.clashes(wanted))
        });
        if let Some((id, seat)) = found.and_then(|id| Some((id, self.seats.get_mut(&id)?))) {
            for (i, wanted) in plan.memberships.iter().enumerate() {
                if let Err(why) = seat.want(wanted, ports, self.choice, may_wait, budget) {
                    seat.want_less(id, &plan.memberships[..i], left);
                    return Err(why);
                }
            }
            seat.users += 1;
            return Ok(id);
        }
        *budget = budget.saturating_sub(1);
        let berth = Berth::open(&plan, ports, links, may_wait)?;
        let id = SeatId(self.next);
        self.next += 1;
        if let Some(port) = berth.port {
            self.by_port.insert(port, id);
        }
        let (choice, is_joined) = (self.choice, berth.port.is_some());
        let member = |membership| {
            let chosen = chosen(choice, &membership);
            (membership, Member::new(1, is_joined, chosen))
        };
        let seat = Seat {
            bind: plan.bind,
            interface: plan.interface,
            berth,
            exact: HashMap::new(),
            any: Vec::new(),
            members: plan.memberships.into_iter().map(member).collect(),
            to_join: VecDeque::new(),
            untried: 0,
            doubted: Vec::new(),
            users: 1,
        };
        self.by_bind.entry(seat.bind).or_default().push(id);
        self.seats.insert(id, seat);
        Ok(id)
    }

    /// One rule less wants this seat. What nothing wants any more is left over.
    pub(super) fn give_back(&mut self, id: SeatId, rule: &Rule, left: &mut Vec<Leftover>) {
        let Some(seat) = self.seats.get_mut(&id) else { return };
        seat.users -= 1;
        if seat.users > 0 {
            return seat.want_less(id, &rule.input.memberships(), left);
        }
        if let Some(port) = seat.berth.port {
            self.by_port.remove(&port);
            left.push(Leftover::Port(port));
        }
        if let Some(there) = self.by_bind.get_mut(&seat.bind) {
            there.retain(|other| *other != id);
            if there.is_empty() {
                self.by_bind.remove(&seat.bind);
            }
        }
        self.seats.remove(&id);
    }

    /// Ends a membership that nothing wants any more, if that is still so.
    pub(super) fn end(
        &mut self,
        id: SeatId,
        membership: &Membership,
        ports: &mut impl DatagramPorts,
    ) {
        let Some(seat) = self.seats.get_mut(&id) else { return };
        if seat.members.get(membership).is_none_or(|member| member.users > 0) {
            return;
        }
        seat.members.remove(membership);
        if let Some(port) = seat.berth.port {
            // One that the kernel has ended already is ended.
            let _ = ports.leave(port, membership);
        }
    }

    /// Closes the port of a seat whose interface is gone.
    pub(super) fn close(&mut self, id: SeatId, ports: &mut impl DatagramPorts) {
        let Some(seat) = self.seats.get_mut(&id) else { return };
        if let Some(port) = seat.berth.port {
            self.by_port.remove(&port);
            // A port that is gone is closed.
            let _ = ports.close_port(port);
        }
        seat.berth.lost(seat.interface.as_deref());
        seat.to_join.clear();
        seat.untried = 0;
        seat.doubted.clear();
        seat.members.retain(|_, member| member.users > 0);
        seat.members.values_mut().for_each(|member| member.is_joined = false);
    }

    /// Tries to open the port of a seat that waits, as a member of one group; the others are to be joined.
    pub(super) fn reopen(&mut self, id: SeatId, ports: &mut impl DatagramPorts, links: &Links) {
        let Some(seat) = self.seats.get_mut(&id) else { return };
        let mut wanted = seat.members.keys().cloned();
        let first = wanted.next();
        let plan = PortPlan {
            interface: seat.interface.clone(),
            memberships: first.iter().cloned().collect(),
            label: Some(label(seat.bind, &seat.interface)),
            ..PortPlan::at(seat.bind)
        };
        let Some(port) = seat.berth.retry(&plan, ports, links) else { return };
        seat.to_join = wanted.collect();
        seat.untried = seat.to_join.len();
        if let Some(first) = first
            && let Some(member) = seat.members.get_mut(&first)
        {
            *member = Member::new(member.users, true, chosen(self.choice, &first));
        }
        self.by_port.insert(port, id);
    }

    /// Interfaces have changed: whatever is where the kernel chose may be elsewhere now.
    pub(super) fn doubt(&mut self) {
        for seat in self.seats.values_mut() {
            let of_kernel = seat.members.iter().filter(|(membership, member)| {
                membership.interface.is_none() && member.is_joined && member.users > 0
            });
            seat.doubted = of_kernel.map(|(membership, _)| membership.clone()).collect();
            seat.untried = seat.to_join.len();
        }
    }

    /// True where the kernel chose an interface.
    pub(super) fn have_choices(&self) -> bool {
        let members = self.seats.values().flat_map(|seat| seat.members.values());
        members.into_iter().any(|member| member.chosen.is_some())
    }

    /// Leaves the next group that is where the kernel would not choose to have it any more, to be joined again. False
    /// when there is none to be looked at.
    pub(super) fn leave_next(
        &mut self,
        id: SeatId,
        ports: &mut impl DatagramPorts,
        links: &Links,
    ) -> bool {
        let Some(seat) = self.seats.get_mut(&id) else { return false };
        let (Some(port), Some(doubted)) = (seat.berth.port, seat.doubted.pop()) else {
            return false;
        };
        let wanted = |member: &&mut Member| member.is_joined && member.users > 0;
        let Some(member) = seat.members.get_mut(&doubted).filter(wanted) else { return true };
        let now = chosen(self.choice, &doubted);
        let is_right = match (member.chosen, now) {
            (Some(then), Some(now)) => then == now,
            // Where no route leads any more, it is a member as long as its interface is there.
            (Some(then), None) => links.has(then),
            (None, _) => true,
        };
        if !is_right {
            // A membership that went with its interface still takes room of the socket's.
            let _ = ports.leave(port, &doubted);
            member.is_joined = false;
            seat.to_join.push_back(doubted);
            seat.untried += 1;
        }
        true
    }

    /// Joins the next of what is still to be joined; false when each has had its turn.
    pub(super) fn join_next(&mut self, id: SeatId, ports: &mut impl DatagramPorts) -> bool {
        let Some(seat) = self.seats.get_mut(&id) else { return false };
        let (Some(port), 1..) = (seat.berth.port, seat.untried) else { return false };
        seat.untried -= 1;
        let Some(wanted) = seat.to_join.pop_back() else { return false };
        let member = seat.members.get_mut(&wanted).filter(|member| !member.is_joined);
        match member.map(|member| (ports.join(port, &wanted), member)) {
            Some((Ok(()), member)) => {
                *member = Member::new(member.users, true, chosen(self.choice, &wanted));
            }
            Some((Err(why), _)) => {
                // Again when interfaces have changed; the others wait for their own reasons.
                seat.to_join.push_front(wanted);
                seat.berth.waits = Some(why.to_string().into());
            }
            None => {}
        }
        if seat.to_join.is_empty() {
            seat.berth.waits = None;
        }
        true
    }
}

/// What people call the port of a seat.
fn label(bind: SocketAddr, interface: &Option<String>) -> String {
    let on = interface.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
    format!("input {bind}{on}")
}

impl Seat {
    /// True where the port cannot be a member so beside what it is: a socket hears a group from all senders or from
    /// some.
    fn clashes(&self, wanted: &Membership) -> bool {
        let Membership { group, interface, .. } = wanted;
        let first = Membership { group: *group, interface: None, source: None };
        let of_group = self.members.range(first..).map(|(member, _)| member);
        let of_group = of_group.take_while(|member| member.group == *group);
        of_group.into_iter().any(|member| {
            member != wanted
                && member.interface == *interface
                && (member.source.is_none() || wanted.source.is_none())
        })
    }

    /// The rules about what is sent there. The broadcast address of a network is none of ours, unless a rule names it.
    pub(super) fn about(&self, destination: IpAddr, is_broadcast: bool) -> &[u32] {
        match self.exact.get(&destination) {
            Some(rules) => rules,
            None if is_broadcast || destination.is_multicast() => &[],
            None => &self.any,
        }
    }

    fn rules_about(&mut self, destination: IpAddr) -> &mut Vec<u32> {
        match destination.is_unspecified() {
            true => &mut self.any,
            false => self.exact.entry(destination).or_default(),
        }
    }

    /// What is sent there is this rule's, too.
    pub(super) fn add(&mut self, destination: IpAddr, rule: u32) {
        self.rules_about(destination).push(rule);
    }

    /// What is sent there is this rule's no longer.
    pub(super) fn remove(&mut self, destination: IpAddr, rule: u32) {
        let rules = self.rules_about(destination);
        rules.retain(|other| *other != rule);
        if rules.is_empty() {
            self.exact.remove(&destination);
        }
    }

    /// One rule more wants a membership.
    fn want(
        &mut self,
        wanted: &Membership,
        ports: &mut impl DatagramPorts,
        choice: Choice,
        may_wait: bool,
        budget: &mut usize,
    ) -> Result<(), LaneError> {
        if let Some(member) = self.members.get_mut(wanted) {
            member.users += 1;
            return Ok(());
        }
        let mut is_joined = false;
        if let Some(port) = self.berth.port {
            *budget = budget.saturating_sub(1);
            match ports.join(port, wanted) {
                Ok(()) => is_joined = true,
                Err(why) if may_wait && is_absent(&why) => self.to_join.push_back(wanted.clone()),
                Err(why) => return Err(why),
            }
        }
        self.members.insert(wanted.clone(), Member::new(1, is_joined, chosen(choice, wanted)));
        Ok(())
    }

    /// One rule less wants these memberships.
    fn want_less(&mut self, id: SeatId, memberships: &[Membership], left: &mut Vec<Leftover>) {
        for membership in memberships {
            let Some(member) = self.members.get_mut(membership) else { continue };
            member.users -= 1;
            if member.users == 0 {
                left.push(Leftover::Membership(id, membership.clone()));
            }
        }
    }
}
