//! What a worker does about its rules beside relaying, a bounded number of calls between two rounds of the lane.
//!
//! ```text
//!   in this order:  what is left over ─▶ interfaces that changed ─▶ the change under way, or the next order
//!                   close, leave         close, open, join          open, join; swap; answer
//! ```
//!
//! What must always hold: between two rounds at most [`CALLS_PER_ROUND`] sockets are opened or closed and groups
//! joined or left, and what the senders of one input need, however many rules come, go or lose their interface; a
//! change is answered when nothing of it is left over.

use super::{
    Live, Relay,
    berth::{Berth, Need},
    in_rule,
    leftover::{Leftover, SeatId},
};
use crate::{
    desk::{Answer, Change, Order, Waiting},
    rule::{Output, Rule, RuleId},
};
use laneway_core::{Counters, DatagramPorts, LaneError, PortPlan};
use laneway_linux::Links;
use std::{collections::HashMap, mem, sync::Arc};

/// Sockets that are opened or closed, and groups that are joined or left, between two rounds: some 20 us each, so
/// that datagrams wait no longer than a socket's buffer has room for.
pub(super) const CALLS_PER_ROUND: usize = 32;
/// Ports that are looked at between two rounds after interfaces have changed, in some 50 ns each.
const LOOKS_PER_ROUND: usize = 2048;

/// Between two looks at the routes to groups.
const ROUTES_INTERVAL_NS: u64 = 1_000_000_000;

/// What the worker does about its rules.
pub(super) enum Work {
    Nothing,
    Preparing(Draft),
    /// Ready, until an order states what becomes of it.
    Prepared(Draft),
    /// Its inputs are held; the answer is due when all that they received has left.
    Ceasing,
    /// It has left, and the worker opens nothing.
    Ceased,
}

/// A change that is not in force.
pub(super) struct Draft {
    change: Change,
    /// It comes into force as soon as it is prepared.
    at_once: bool,
    /// Of `change.add`, those that are begun; the last may lack outputs.
    begun: Vec<Begun>,
    /// The interfaces that there were when it was begun.
    links: Option<Arc<Links>>,
}

/// A rule of a draft, as far as it is opened.
pub(super) struct Begun {
    pub(super) seat: SeatId,
    pub(super) outputs: Vec<Opened>,
}

pub(super) struct Opened {
    pub(super) berth: Berth,
    /// Which output of the rule with the same id it is.
    pub(super) kept: Option<usize>,
}

/// How far ports have been looked at since interfaces changed.
pub(super) struct Look {
    seats: Vec<SeatId>,
    rule: usize,
    output: usize,
    /// One waits.
    waits: bool,
    /// They have changed again.
    again: bool,
}

impl Look {
    fn at(seats: Vec<SeatId>) -> Look {
        Look { seats, rule: 0, output: 0, waits: false, again: false }
    }
}

impl Relay {
    /// Does what is to be done about rules, in as many calls as a round has room for.
    pub(super) fn turn_rules(&mut self, ports: &mut impl DatagramPorts) {
        if let Some(links) = self.mailbox.take_links() {
            // Addresses and routes are news, too, and concern those alone that wait, or are where the kernel chose.
            let is_new = self.links.as_ref() != Some(&links);
            self.links = Some(links);
            if is_new || self.waits {
                self.look();
            } else {
                self.has_new_routes |= self.seats.have_choices();
            }
        }
        if matches!(self.work, Work::Ceasing | Work::Ceased) && !self.goes_on(ports) {
            return;
        }
        let (mut budget, mut looks) = (CALLS_PER_ROUND, LOOKS_PER_ROUND);
        while budget > 0 && looks > 0 {
            if let Some(leftover) = self.leftovers.pop() {
                looks -= 1;
                self.finish(leftover, ports, &mut budget);
                continue;
            }
            if let Some(answer) = self.due.take() {
                self.mailbox.answer(answer);
            }
            if let Some(look) = self.look.take() {
                looks -= 1;
                self.look = self.look_at_next(look, ports, &mut budget);
                continue;
            }
            match mem::replace(&mut self.work, Work::Nothing) {
                Work::Preparing(mut draft) => match self.prepare(&mut draft, ports, &mut budget) {
                    Ok(false) => self.work = Work::Preparing(draft),
                    Ok(true) if draft.at_once => self.commit(draft),
                    Ok(true) => {
                        self.mailbox.answer(Answer::Done);
                        self.work = Work::Prepared(draft);
                    }
                    Err(why) => {
                        if draft.at_once {
                            self.failure = Some(why.clone());
                        }
                        self.abandon(draft);
                        self.due = Some(Answer::Failed(why));
                    }
                },
                waiting @ (Work::Nothing | Work::Prepared(_)) => {
                    let Some(order) = self.mailbox.take() else {
                        self.work = waiting;
                        return;
                    };
                    self.begin(order, waiting, ports);
                }
                ceasing @ (Work::Ceasing | Work::Ceased) => {
                    self.work = ceasing;
                    break;
                }
            }
        }
        // The rest behind the next round.
        self.bell.ring();
    }

    /// True when a worker that ceases has an order to go on; answers when all has left.
    fn goes_on(&mut self, ports: &mut impl DatagramPorts) -> bool {
        if let Some(order) = self.mailbox.take() {
            let waiting = mem::replace(&mut self.work, Work::Nothing);
            self.begin(order, waiting, ports);
            return true;
        }
        match (&self.work, ports.has_settled()) {
            (Work::Ceasing, true) => {
                self.work = Work::Ceased;
                self.mailbox.answer(Answer::Done);
            }
            (Work::Ceasing, false) => self.bell.ring(),
            _ => {}
        }
        false
    }

    /// Makes seats of the sockets that another relay handed over.
    fn adopt(&mut self, ports: &mut impl DatagramPorts) -> Result<(), String> {
        let none = Links::default();
        let links = self.links.clone();
        let links = links.as_deref().unwrap_or(&none);
        for input in self.mailbox.handed() {
            self.seats.adopt(input, ports, links).map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    /// The sockets that rules receive at, for a successor.
    fn share(&self, ports: &mut impl DatagramPorts) -> Answer {
        let rule = |number: u32| Some(self.rules[number as usize].as_ref()?.id);
        let shared = self.seats.share(ports, rule);
        shared.map_or_else(|why| Answer::Failed(why.to_string()), Answer::Shared)
    }

    fn begin(&mut self, order: Order, waiting: Work, ports: &mut impl DatagramPorts) {
        match (order, waiting) {
            (Order::State(outputs_max), waiting) => {
                self.work = waiting;
                let state = self.state(ports, outputs_max);
                self.mailbox.answer(Answer::State(state));
            }
            (Order::Share, waiting) => {
                self.work = waiting;
                let shared = self.share(ports);
                self.mailbox.answer(shared);
            }
            (Order::Cease, _) => match self.seats.hold(ports, true) {
                Ok(()) => self.work = Work::Ceasing,
                Err(why) => {
                    // Those that are held go on.
                    let _ = self.seats.hold(ports, false);
                    self.mailbox.answer(Answer::Failed(why.to_string()));
                }
            },
            (Order::Receive, _) => {
                let done = self.seats.hold(ports, false).map_err(|why| why.to_string());
                self.mailbox.answer(done.map_or_else(Answer::Failed, |()| Answer::Done));
            }
            (Order::Commit, Work::Prepared(draft)) => self.commit(draft),
            (Order::Abandon, Work::Prepared(draft)) => {
                self.abandon(draft);
                self.due = Some(Answer::Done);
            }
            (Order::Commit | Order::Abandon, _) => self.mailbox.answer(Answer::Done),
            (Order::Prepare(change, at_once), waiting) => {
                // A client that prepared before and closed without a word has given up.
                if let Work::Prepared(draft) = waiting {
                    self.abandon(draft);
                }
                if let Err(why) = self.adopt(ports) {
                    self.failure = Some(why.clone());
                    return self.mailbox.answer(Answer::Failed(why));
                }
                let links = self.links.clone();
                // Until the next look says otherwise.
                self.waits = true;
                self.work = Work::Preparing(Draft { change, at_once, begun: Vec::new(), links });
            }
        }
    }

    /// Opens more of what a draft needs. True when it has all.
    fn prepare(
        &mut self,
        draft: &mut Draft,
        ports: &mut impl DatagramPorts,
        budget: &mut usize,
    ) -> Result<bool, String> {
        let none = Links::default();
        let links = self.links.clone();
        let links = links.as_deref().unwrap_or(&none);
        loop {
            let Draft { change, begun, .. } = &mut *draft;
            let is_whole = |begun: &Begun, rule: &Rule| begun.outputs.len() == rule.outputs.len();
            let at = match begun.last() {
                Some(last) if !is_whole(last, &change.add[begun.len() - 1]) => begun.len() - 1,
                _ if begun.len() == change.add.len() => return Ok(true),
                _ if *budget == 0 => return Ok(false),
                _ => {
                    let rule = &change.add[begun.len()];
                    let may_wait = self.may_wait(change, rule.input.interface.as_deref());
                    let Relay { seats, leftovers, .. } = self;
                    let seat = seats.take(rule, ports, links, may_wait, budget, leftovers);
                    let seat = seat.map_err(|why| in_rule(rule, reason(&why, change)))?;
                    begun.push(Begun { seat, outputs: Vec::with_capacity(rule.outputs.len()) });
                    begun.len() - 1
                }
            };
            let rule = Arc::clone(&change.add[at]);
            // Only a rule that goes leaves its outputs.
            let before = self.live(RuleId::of(&rule.input));
            let before: &[Output] = before.map_or(&[], |live| &live.rule.outputs);
            for output in &rule.outputs[begun[at].outputs.len()..] {
                // The check has seen to it that no two outputs of a rule are the same.
                let kept = before.iter().position(|old| old == output);
                let berth = match kept {
                    Some(_) => Berth::default(),
                    None if *budget == 0 => return Ok(false),
                    None => {
                        *budget -= 1;
                        let may_wait = self.may_wait(change, output.interface.as_deref());
                        let plan = plan(&rule, output);
                        Berth::open(&plan, ports, links, may_wait).map_err(|why| {
                            let why = reason(&why, change);
                            in_rule(&rule, format!("output {}: {why}", output.destination))
                        })?
                    }
                };
                begun[at].outputs.push(Opened { berth, kept });
            }
        }
    }

    /// Whether a port on this interface is opened later, should the interface not be there.
    fn may_wait(&self, change: &Change, interface: Option<&str>) -> bool {
        let Some(name) = interface.filter(|_| self.links.is_some() && !self.has_own_stack) else {
            return false;
        };
        match &change.waiting {
            Waiting::Any => true,
            Waiting::Known(rules) => rules.values().any(|rule| rule.names(name)),
        }
    }

    /// Puts a draft in force. What nothing needs any more is closed behind it.
    fn commit(&mut self, draft: Draft) {
        let Draft { change, begun, links, .. } = draft;
        let mut gone: HashMap<RuleId, Box<Live>> = HashMap::new();
        for id in change.remove {
            let Some(slot) = self.by_id.remove(&id) else { continue };
            let Some(live) = self.rules[slot as usize].take() else { continue };
            self.free.push(slot);
            if let Some(seat) = self.seats.get_mut(live.seat) {
                seat.remove(live.destination(), slot);
            }
            gone.insert(id, live);
        }
        for (rule, begun) in change.add.into_iter().zip(begun) {
            let id = RuleId::of(&rule.input);
            let before = gone.get_mut(&id);
            let slot = self.free.pop().unwrap_or_else(|| {
                self.rules.push(None);
                self.rules.len() as u32 - 1
            });
            let live = Live::new(id, rule, begun, before.map(|before| &mut **before));
            if let Some(seat) = self.seats.get_mut(live.seat) {
                seat.add(live.destination(), slot);
            }
            self.rules[slot as usize] = Some(Box::new(live));
            self.by_id.insert(id, slot);
        }
        self.leftovers.extend(gone.into_values().map(Leftover::Rule));
        self.due = Some(Answer::Done);
        let has_changed = match (&links, &self.links) {
            (Some(then), Some(now)) => !Arc::ptr_eq(then, now),
            (then, now) => then.is_some() != now.is_some(),
        };
        // A port of the draft may be on an interface that is there no more.
        if has_changed {
            self.look();
        }
    }

    /// Gives a draft up. What was opened for it is left over.
    fn abandon(&mut self, draft: Draft) {
        for (rule, begun) in draft.change.add.iter().zip(draft.begun) {
            let opened = begun.outputs.iter().filter_map(|opened| opened.berth.port);
            self.leftovers.extend(opened.map(Leftover::Port));
            self.seats.give_back(begun.seat, rule, &mut self.leftovers);
        }
    }

    /// Does the next thing about what is left over.
    fn finish(&mut self, left: Leftover, ports: &mut impl DatagramPorts, budget: &mut usize) {
        match left {
            Leftover::Rule(mut live) => match live.outputs.pop() {
                Some(exit) => {
                    self.leftovers.push(Leftover::Rule(live));
                    self.leftovers.extend(exit.berth.port.map(Leftover::Port));
                }
                None => self.seats.give_back(live.seat, &live.rule, &mut self.leftovers),
            },
            Leftover::Port(port) => {
                *budget -= 1;
                // A port that is gone is closed.
                let _ = ports.close_port(port);
            }
            Leftover::Membership(seat, membership) => {
                *budget -= 1;
                self.seats.end(seat, &membership, ports);
            }
        }
    }

    /// Every port is looked at: interfaces have changed.
    fn look(&mut self) {
        match &mut self.look {
            // To begin anew now would never end where they change all the time.
            Some(look) => look.again = true,
            None => self.look = Some(self.begin_look()),
        }
    }

    fn begin_look(&mut self) -> Look {
        self.seats.doubt();
        // The last is looked at first, and the one that was opened last is to be opened last again.
        let seats = self.seats.ids().into_iter().rev();
        Look::at(seats.collect())
    }

    /// Looks where the kernel would have groups now, if routes have changed; not whenever one of thousands does.
    pub(super) fn look_at_routes(&mut self, now_ns: u64) {
        if self.has_new_routes && now_ns.saturating_sub(self.looked_ns) >= ROUTES_INTERVAL_NS {
            (self.has_new_routes, self.looked_ns) = (false, now_ns);
            self.look();
            self.bell.ring();
        }
    }

    /// Looks at one port; gives what is still to be looked at.
    fn look_at_next(
        &mut self,
        mut look: Look,
        ports: &mut impl DatagramPorts,
        budget: &mut usize,
    ) -> Option<Look> {
        let links = Arc::clone(self.links.as_ref()?);
        if let Some(seat) = look.seats.last() {
            if self.look_at_seat(*seat, ports, &links, budget) {
                let seat = look.seats.pop().and_then(|seat| self.seats.get(seat));
                look.waits |= seat.is_some_and(|seat| seat.berth.waits.is_some());
            }
            return Some(look);
        }
        let Some(slot) = self.rules.get_mut(look.rule) else {
            self.waits = look.waits;
            return look.again.then(|| self.begin_look());
        };
        let found = slot.as_deref_mut().and_then(|live| {
            let output = live.rule.outputs.get(look.output)?;
            Some((&live.rule, output, live.outputs.get_mut(look.output)?))
        });
        let Some((rule, output, exit)) = found else {
            (look.rule, look.output) = (look.rule + 1, 0);
            return Some(look);
        };
        let interface = output.interface.as_deref();
        let need = exit.berth.need(interface, &links);
        if self.has_own_stack {
            exit.berth.waits = of_own_stack(need, interface);
        } else {
            if let (Need::Close, Some(port)) = (need, exit.berth.port) {
                *budget = budget.saturating_sub(1);
                exit.retire(&ports.close_port(port).unwrap_or_default());
                exit.berth.lost(interface);
                exit.settle_plain();
                // There may be another interface of that name.
                return Some(look);
            }
            if need == Need::Open {
                *budget = budget.saturating_sub(1);
                exit.berth.retry(&plan(rule, output), ports, &links);
                exit.settle_plain();
            }
        }
        look.waits |= exit.berth.waits.is_some();
        look.output += 1;
        Some(look)
    }

    /// Looks at a seat, and does the next thing about it; true when there is no more.
    fn look_at_seat(
        &mut self,
        id: SeatId,
        ports: &mut impl DatagramPorts,
        links: &Links,
        budget: &mut usize,
    ) -> bool {
        let Some(seat) = self.seats.get_mut(id) else { return true };
        let need = seat.berth.need(seat.interface.as_deref(), links);
        if self.has_own_stack {
            seat.berth.waits = of_own_stack(need, seat.interface.as_deref());
            return true;
        }
        if need != Need::Nothing {
            *budget = budget.saturating_sub(1);
        }
        match need {
            Need::Nothing => {
                let went_on =
                    self.seats.leave_next(id, ports, links) || self.seats.join_next(id, ports);
                *budget = budget.saturating_sub(usize::from(went_on));
                !went_on
            }
            // There may be another interface of that name.
            Need::Close => {
                self.seats.close(id, ports);
                false
            }
            Need::Open => {
                self.seats.reopen(id, ports, links);
                // Groups are joined one by one, if it is open now.
                self.seats.get(id).is_none_or(|seat| seat.berth.port.is_none())
            }
        }
    }
}

/// A stack of our own has the interfaces that it began with.
fn of_own_stack(need: Need, interface: Option<&str>) -> Option<Box<str>> {
    let name = interface.filter(|_| need == Need::Close)?;
    Some(format!("the interface `{name}` of this run is gone; begin a new run").into())
}

/// The plan of the port of an output.
fn plan(rule: &Rule, output: &Output) -> PortPlan {
    PortPlan { label: Some(rule.label(output)), ..output.plan() }
}

/// Why a port cannot be had, and how to have it later.
fn reason(why: &LaneError, change: &Change) -> String {
    let hint = match (&change.waiting, super::berth::is_absent(why)) {
        (Waiting::Known(_), true) => "; with --wait the rule waits for it",
        _ => "",
    };
    format!("{why}{hint}")
}

impl super::Exit {
    /// Its port is closed, and had counted this.
    fn retire(&mut self, counted: &Counters) {
        self.past.get_or_insert_with(Box::default).merge(counted);
    }
}
