//! The relay of one worker, over datagrams.
//!
//! ```text
//!   batch of one port ─▶ rule of each datagram ─▶ by rule:  for each output: every datagram of the rule
//! ```
//!
//! Outputs are the outer loop and datagrams the inner one, so what a batch brings leaves each output as one
//! train; a train that came in whole leaves whole. Nothing waits for a batch to fill. Rules change between two
//! rounds of the lane, here on the worker's own thread, a bounded number of sockets at a time: a rule set is
//! prepared beside the one in force, then takes its place at once.
//!
//! What must always hold: every datagram that is shown is relayed or counted by why not; every copy is handed to
//! the lane or counted by why not; what a change could not open leaves nothing behind. Per datagram nothing is
//! allocated.

use crate::{
    desk::{Answer, Change, Mailbox, Order, SharedInput},
    live::{OutputState, RuleState, WAIT_CLASSES, Waits, WorkerState},
    rule::{Output, Rule, RuleId, admits},
};
use laneway_core::{
    App, Bell, Counters, Datagram, DatagramApp, DatagramOut, DatagramPorts, DropReason, LaneError,
    Membership, PortId, PortPlan, Turn,
};
use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
};

/// Sockets that are opened or closed between two rounds: some 20 us each, so that datagrams wait no longer than
/// a socket's buffer has room for.
const SOCKETS_PER_ROUND: usize = 32;
/// Batches are counted by powers of two up to this one, 2^15 datagrams.
const BATCH_CLASSES: usize = 16;
/// What a rate allows at once: a tenth of a second's, and a whole train.
const BURST_PARTS: u64 = 10;
const BURST_BYTES_MIN: u64 = 64 << 10;

/// What became of datagrams that were shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// A copy was made for every output of the rule.
    pub relayed: u64,
    /// No rule is about where it was sent to; under [`DropReason::NoListener`].
    pub no_rule: u64,
    /// The rule lists other senders; under [`DropReason::Filtered`].
    pub other_source: u64,
    /// Beyond what the rule relays per second; under [`DropReason::RateLimited`].
    pub rate_limited: u64,
}

impl Fates {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Fates { relayed, no_rule, other_source, rate_limited } = self;
        relayed + no_rule + other_source + rate_limited
    }

    /// Adds another worker's.
    pub fn merge(&mut self, other: &Fates) {
        self.relayed += other.relayed;
        self.no_rule += other.no_rule;
        self.other_source += other.other_source;
        self.rate_limited += other.rate_limited;
    }
}

/// What became of the copies that rules asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Relayed datagrams times outputs.
    pub asked: u64,
    /// Given to the lane, whose counters tell what it sent.
    pub handed: u64,
    /// Left out by an output's `sample`.
    pub sampled_out: u64,
    /// Beyond an output's `bytes_per_second`.
    pub rate_limited: u64,
    /// Of a kernel half: left out by the kernel, because the output's interface was down or its MTU too small.
    pub passed_over: u64,
}

impl Copies {
    /// Adds another worker's.
    pub fn merge(&mut self, other: &Copies) {
        self.asked += other.asked;
        self.handed += other.handed;
        self.sampled_out += other.sampled_out;
        self.rate_limited += other.rate_limited;
        self.passed_over += other.passed_over;
    }
}

/// The relay of one worker.
pub struct Relay {
    mailbox: Arc<Mailbox>,
    bell: Bell,
    rules: Vec<Option<Box<Live>>>,
    free: Vec<u32>,
    by_id: HashMap<RuleId, u32>,
    inputs: HashMap<PortId, InputPort>,
    /// The ports of sockets that were handed over, by the rules that come for them.
    handed: HashMap<RuleId, PortId>,
    work: Work,
    /// The rule of each datagram of a batch, and its place there; keeps its memory.
    order: Vec<(u32, u32)>,
    counters: Counters,
    fates: Fates,
    copies: Copies,
    batches: [u64; BATCH_CLASSES],
    reads: u64,
    failure: Option<String>,
}

/// A rule in force.
struct Live {
    id: RuleId,
    rule: Arc<Rule>,
    input: PortId,
    bucket: Option<Bucket>,
    outputs: Vec<Exit>,
    datagrams: u64,
    bytes: u64,
    rate_limited: u64,
    waits: Waits,
}

/// An output in force.
#[derive(Clone, Debug)]
struct Exit {
    port: PortId,
    destination: SocketAddr,
    /// It takes every datagram.
    is_plain: bool,
    bucket: Option<Bucket>,
    sample: Option<NonZeroU32>,
    /// Datagrams that sampling has seen.
    seen: u64,
    sampled_out: u64,
    rate_limited: u64,
}

/// A port that receives, with the rules about what it receives.
#[derive(Debug)]
struct InputPort {
    bind: SocketAddr,
    interface: Option<String>,
    /// Rules about one destination: several where each has senders of its own.
    exact: HashMap<IpAddr, Vec<u32>>,
    /// The rule about every address of ours.
    any: Vec<u32>,
    /// How many rules want each membership, those in preparation included.
    members: BTreeMap<Membership, usize>,
    /// How many rules want the port.
    users: usize,
}

/// Admits so many bytes per second, and at least what it has begun to admit.
#[derive(Clone, Debug)]
struct Bucket {
    bytes_per_second: u64,
    /// May be owed: a train is admitted whole.
    tokens: i64,
    at_ns: u64,
}

impl Bucket {
    fn new(bytes_per_second: u64) -> Bucket {
        let mut bucket = Bucket { bytes_per_second, tokens: 0, at_ns: 0 };
        bucket.tokens = bucket.burst();
        bucket
    }

    fn burst(&self) -> i64 {
        let burst = (self.bytes_per_second / BURST_PARTS).max(BURST_BYTES_MIN);
        i64::try_from(burst).unwrap_or(i64::MAX)
    }

    fn admits(&mut self, bytes: usize, now_ns: u64) -> bool {
        let passed = now_ns.saturating_sub(self.at_ns);
        let come = u128::from(passed) * u128::from(self.bytes_per_second) / 1_000_000_000;
        if come > 0 {
            let come = i64::try_from(come).unwrap_or(i64::MAX);
            self.tokens = self.tokens.saturating_add(come).min(self.burst());
            self.at_ns = now_ns;
        }
        let is_in = self.tokens > 0;
        if is_in {
            self.tokens -= i64::try_from(bytes).unwrap_or(i64::MAX);
        }
        is_in
    }
}

/// What the worker does about its rules beside relaying.
enum Work {
    Nothing,
    Preparing(Draft),
    /// Ready, until it is told what becomes of it.
    Prepared(Draft),
    /// Its inputs are held; the answer is due when all that they received has left.
    Ceasing,
    /// Ports that nothing needs any more; the answer that is due when they are closed.
    Closing(Vec<PortId>, Option<Answer>),
}

/// A change that is not in force.
struct Draft {
    change: Change,
    /// It comes into force as soon as it is prepared.
    at_once: bool,
    /// Of `change.add`, those that are begun; the last may lack outputs.
    begun: Vec<Begun>,
}

/// A rule of a draft, as far as it is opened.
struct Begun {
    input: PortId,
    outputs: Vec<Opened>,
}

struct Opened {
    port: PortId,
    /// Which output of the rule with the same id it is.
    kept: Option<usize>,
}

impl Relay {
    /// A relay without rules, which takes its orders from this mailbox.
    pub(crate) fn new(mailbox: Arc<Mailbox>, bell: &Bell) -> Relay {
        mailbox.attend(bell);
        Relay {
            mailbox,
            bell: bell.clone(),
            rules: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            inputs: HashMap::new(),
            handed: HashMap::new(),
            work: Work::Nothing,
            order: Vec::new(),
            counters: Counters::default(),
            fates: Fates::default(),
            copies: Copies::default(),
            batches: [0; BATCH_CLASSES],
            reads: 0,
            failure: None,
        }
    }

    /// What became of the datagrams that it was shown.
    pub fn fates(&self) -> &Fates {
        &self.fates
    }

    /// What became of the copies that its rules asked for.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Why it wants to stop: its first rules cannot be had.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Does what is to be done about rules, for at most so many sockets.
    fn turn_rules(&mut self, ports: &mut impl DatagramPorts) {
        let mut budget = SOCKETS_PER_ROUND;
        while budget > 0 {
            match std::mem::replace(&mut self.work, Work::Nothing) {
                Work::Preparing(mut draft) => match self.prepare(&mut draft, ports, &mut budget) {
                    Ok(false) => self.work = Work::Preparing(draft),
                    Ok(true) if draft.at_once => self.commit(draft, ports),
                    Ok(true) => {
                        self.mailbox.answer(Answer::Done);
                        self.work = Work::Prepared(draft);
                    }
                    Err(why) => {
                        if draft.at_once {
                            self.failure = Some(why.clone());
                        }
                        let closing = self.abandon(draft, ports);
                        self.work = Work::Closing(closing, Some(Answer::Failed(why)));
                    }
                },
                Work::Closing(mut closing, answer) => {
                    while let Some(port) = closing.pop() {
                        // A port that is gone is closed.
                        let _ = ports.close_port(port);
                        budget -= 1;
                        if budget == 0 {
                            break;
                        }
                    }
                    if closing.is_empty() {
                        answer.into_iter().for_each(|answer| self.mailbox.answer(answer));
                    } else {
                        self.work = Work::Closing(closing, answer);
                    }
                }
                waiting @ (Work::Nothing | Work::Prepared(_) | Work::Ceasing) => {
                    let Some(order) = self.mailbox.take() else {
                        if !matches!(waiting, Work::Ceasing) {
                            self.work = waiting;
                            return;
                        }
                        if ports.has_settled() {
                            self.mailbox.answer(Answer::Done);
                            return;
                        }
                        self.work = waiting;
                        break;
                    };
                    self.begin(order, waiting, ports);
                }
            }
        }
        // The rest behind the next round.
        self.bell.ring();
    }

    fn begin(&mut self, order: Order, waiting: Work, ports: &mut impl DatagramPorts) {
        match (order, waiting) {
            (Order::Tell, waiting) => {
                self.work = waiting;
                let state = self.state(ports);
                self.mailbox.answer(Answer::Told(state));
            }
            (Order::Share, waiting) => {
                self.work = waiting;
                let shared = self.share(ports);
                self.mailbox.answer(shared.map_or_else(Answer::Failed, Answer::Shared));
            }
            (Order::Cease, _) => match self.hold(ports, true) {
                Ok(()) => self.work = Work::Ceasing,
                Err(why) => {
                    // Whoever was held before goes on.
                    let _ = self.hold(ports, false);
                    self.mailbox.answer(Answer::Failed(why));
                }
            },
            (Order::Receive, _) => {
                let done = self.hold(ports, false);
                self.mailbox.answer(done.map_or_else(Answer::Failed, |()| Answer::Done));
            }
            (Order::Commit, Work::Prepared(draft)) => self.commit(draft, ports),
            (Order::Abandon, Work::Prepared(draft)) => {
                let closing = self.abandon(draft, ports);
                self.work = Work::Closing(closing, Some(Answer::Done));
            }
            (Order::Commit | Order::Abandon, _) => self.mailbox.answer(Answer::Done),
            (Order::Prepare(change, at_once), waiting) => {
                // Whoever prepared before and went away without a word has given up.
                if let Work::Prepared(draft) = waiting {
                    for port in self.abandon(draft, ports) {
                        let _ = ports.close_port(port);
                    }
                }
                match self.adopt(ports) {
                    Ok(()) => {
                        self.work = Work::Preparing(Draft { change, at_once, begun: Vec::new() });
                    }
                    Err(why) => {
                        self.failure = Some(why.clone());
                        self.mailbox.answer(Answer::Failed(why));
                    }
                }
            }
        }
    }

    /// Makes ports of the sockets that another relay handed over. They receive nothing yet.
    fn adopt(&mut self, ports: &mut impl DatagramPorts) -> Result<(), String> {
        for SharedInput { bind, interface, memberships, rules, socket } in self.mailbox.handed() {
            let members = memberships.iter().map(|member| (member.clone(), 0)).collect();
            let plan = PortPlan { interface, memberships, ..PortPlan::at(bind) };
            let port = ports.adopt_port(&plan, socket).map_err(|why| why.to_string())?;
            self.handed.extend(rules.into_iter().map(|rule| (rule, port)));
            let input = InputPort {
                bind,
                interface: plan.interface,
                exact: HashMap::new(),
                any: Vec::new(),
                members,
                users: 0,
            };
            self.inputs.insert(port, input);
        }
        Ok(())
    }

    /// The sockets of all inputs, for a successor.
    fn share(&self, ports: &mut impl DatagramPorts) -> Result<Option<Vec<SharedInput>>, String> {
        let mut shared = Vec::with_capacity(self.inputs.len());
        for (id, input) in &self.inputs {
            let Some(socket) = ports.share_port(*id).map_err(|why| why.to_string())? else {
                return Ok(None);
            };
            let slots = input.exact.values().flatten().chain(&input.any);
            let rules = slots.filter_map(|slot| Some(self.rules[*slot as usize].as_ref()?.id));
            shared.push(SharedInput {
                bind: input.bind,
                interface: input.interface.clone(),
                memberships: input.members.keys().cloned().collect(),
                rules: rules.collect(),
                socket,
            });
        }
        Ok(Some(shared))
    }

    /// Holds all inputs, or lets them receive.
    fn hold(&self, ports: &mut impl DatagramPorts, is_held: bool) -> Result<(), String> {
        let mut inputs = self.inputs.keys();
        inputs.try_for_each(|id| ports.hold_port(*id, is_held)).map_err(|why| why.to_string())
    }

    /// Opens more of what a draft needs. True when it has all.
    fn prepare(
        &mut self,
        draft: &mut Draft,
        ports: &mut impl DatagramPorts,
        budget: &mut usize,
    ) -> Result<bool, String> {
        loop {
            let Draft { change, begun, .. } = &mut *draft;
            let is_whole = |begun: &Begun, rule: &Rule| begun.outputs.len() == rule.outputs.len();
            let at = match begun.last() {
                Some(last) if !is_whole(last, &change.add[begun.len() - 1]) => begun.len() - 1,
                _ if begun.len() == change.add.len() => return Ok(true),
                _ => {
                    let rule = &change.add[begun.len()];
                    let input =
                        self.open_input(rule, ports, budget).map_err(|why| in_rule(rule, why))?;
                    begun.push(Begun { input, outputs: Vec::with_capacity(rule.outputs.len()) });
                    begun.len() - 1
                }
            };
            let rule = Arc::clone(&change.add[at]);
            // Only a rule that goes leaves its outputs.
            let before = self.live(RuleId::of(&rule.input));
            let before: &[Output] = before.map_or(&[], |live| &live.rule.outputs);
            for output in &rule.outputs[begun[at].outputs.len()..] {
                if *budget == 0 {
                    return Ok(false);
                }
                // The check has seen to it that no two outputs of a rule are the same.
                let kept = before.iter().position(|old| old == output);
                let port = match kept {
                    Some(kept) => {
                        self.live(RuleId::of(&rule.input)).expect("found above").outputs[kept].port
                    }
                    None => {
                        *budget -= 1;
                        ports.open_port(&output.plan()).map_err(|why| {
                            in_rule(&rule, format!("output {}: {why}", output.destination))
                        })?
                    }
                };
                begun[at].outputs.push(Opened { port, kept });
            }
        }
    }

    /// The port that receives what a rule is about, with the rule as one more user: one that is there, or a
    /// new one.
    fn open_input(
        &mut self,
        rule: &Rule,
        ports: &mut impl DatagramPorts,
        budget: &mut usize,
    ) -> Result<PortId, String> {
        let input = &rule.input;
        let plan = input.plan().expect("the rule was checked");
        // Only the first rules of a run find theirs.
        let handed = self.handed.remove(&RuleId::of(input));
        // A socket cannot be the member of a group twice, from all senders and from some.
        let clashes = |member: &Membership, wanted: &Membership| {
            member != wanted
                && (member.group, &member.interface) == (wanted.group, &wanted.interface)
                && (member.source.is_none() || wanted.source.is_none())
        };
        let found = self.inputs.iter_mut().find(|(id, port)| match handed {
            Some(handed) => **id == handed,
            None => {
                (port.bind, &port.interface) == (plan.bind, &input.interface)
                    && !plan
                        .memberships
                        .iter()
                        .any(|wanted| port.members.keys().any(|member| clashes(member, wanted)))
            }
        });
        if let Some((&id, port)) = found {
            for (i, wanted) in plan.memberships.iter().enumerate() {
                let known = port.members.get(wanted).copied();
                let users = known.unwrap_or(0);
                // Of a socket that was handed over, what no rule has asked for yet is there already.
                if known.is_none() {
                    *budget = budget.saturating_sub(1);
                    if let Err(why) = ports.join(id, wanted) {
                        port.leave(id, &plan.memberships[..i], ports);
                        return Err(why.to_string());
                    }
                }
                port.members.insert(wanted.clone(), users + 1);
            }
            port.users += 1;
            return Ok(id);
        }
        *budget = budget.saturating_sub(1);
        let id = ports.open_port(&plan).map_err(|why: LaneError| why.to_string())?;
        let port = InputPort {
            bind: plan.bind,
            interface: plan.interface,
            exact: HashMap::new(),
            any: Vec::new(),
            members: plan.memberships.into_iter().map(|member| (member, 1)).collect(),
            users: 1,
        };
        self.inputs.insert(id, port);
        Ok(id)
    }

    /// One rule less wants this input; the port is returned where nobody does any more.
    fn leave_input(
        &mut self,
        id: PortId,
        rule: &Rule,
        ports: &mut impl DatagramPorts,
    ) -> Option<PortId> {
        let port = self.inputs.get_mut(&id)?;
        port.users -= 1;
        if port.users == 0 {
            self.inputs.remove(&id);
            return Some(id);
        }
        port.leave(id, &rule.input.memberships(), ports);
        None
    }

    /// Puts a draft in force. The ports that nothing needs any more are closed behind it.
    fn commit(&mut self, draft: Draft, ports: &mut impl DatagramPorts) {
        let Draft { change, begun, .. } = draft;
        let mut closing = Vec::new();
        let mut gone: HashMap<RuleId, Box<Live>> = HashMap::new();
        for id in change.remove {
            let Some(slot) = self.by_id.remove(&id) else { continue };
            let Some(live) = self.rules[slot as usize].take() else { continue };
            self.free.push(slot);
            if let Some(port) = self.inputs.get_mut(&live.input) {
                port.any.retain(|other| *other != slot);
                port.exact.retain(|_, rules| {
                    rules.retain(|other| *other != slot);
                    !rules.is_empty()
                });
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
            let destination = live.rule.input.destination().expect("the rule was checked");
            if let Some(port) = self.inputs.get_mut(&live.input) {
                let rules = match destination.is_unspecified() {
                    true => &mut port.any,
                    false => port.exact.entry(destination).or_default(),
                };
                rules.push(slot);
            }
            self.rules[slot as usize] = Some(Box::new(live));
            self.by_id.insert(id, slot);
        }
        for live in gone.into_values() {
            closing
                .extend(live.outputs.iter().filter(|exit| !exit.is_kept()).map(|exit| exit.port));
            closing.extend(self.leave_input(live.input, &live.rule, ports));
        }
        self.work = Work::Closing(closing, Some(Answer::Done));
    }

    /// Gives a draft up, and returns the ports that were opened for it.
    fn abandon(&mut self, draft: Draft, ports: &mut impl DatagramPorts) -> Vec<PortId> {
        let mut closing = Vec::new();
        for (rule, begun) in draft.change.add.iter().zip(draft.begun) {
            let opened = begun.outputs.iter().filter(|output| output.kept.is_none());
            closing.extend(opened.map(|output| output.port));
            closing.extend(self.leave_input(begun.input, rule, ports));
        }
        closing
    }

    fn live(&self, id: RuleId) -> Option<&Live> {
        self.rules[*self.by_id.get(&id)? as usize].as_deref()
    }

    /// What every rule has done.
    fn state(&self, ports: &mut impl DatagramPorts) -> WorkerState {
        let rules = self.rules.iter().flatten();
        let rules = rules.map(|live| live.state(|port| ports.counters(port))).collect();
        let Fates { no_rule, other_source, .. } = self.fates;
        let unmatched = [("no_rule", no_rule), ("other_source", other_source)];
        let unmatched = unmatched.into_iter().filter(|(_, n)| *n > 0);
        let used = self.batches.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
        WorkerState {
            rules,
            unmatched: unmatched.map(|(why, n)| (why.to_owned(), n)).collect(),
            batches: self.batches[..used].to_vec(),
            reads: self.reads,
            datagrams: self.fates.total(),
            interfaces: BTreeMap::new(),
        }
    }

    /// Finds the rule of every datagram of a batch; counts those that have none.
    fn sort(&mut self, batch: &[Datagram<'_>]) {
        let Relay { inputs, rules, order, fates, counters, .. } = self;
        order.clear();
        let input = batch.first().and_then(|first| inputs.get(&first.ingress));
        // Most batches have one group and one sender.
        let mut last: Option<(IpAddr, IpAddr, u32)> = None;
        for (at, datagram) in batch.iter().enumerate() {
            let (to, from) = (datagram.destination.ip(), datagram.source.ip());
            if let Some((.., rule)) = last.filter(|last| (last.0, last.1) == (to, from)) {
                order.push((rule, at as u32));
                continue;
            }
            let about = input.map_or(&[][..], |input| input.about(to));
            let admitted = about.iter().copied().find(|slot| {
                let live = rules[*slot as usize].as_ref();
                live.is_some_and(|live| admits(&live.rule.input.sources, from))
            });
            match admitted {
                Some(rule) => {
                    last = Some((to, from, rule));
                    order.push((rule, at as u32));
                }
                None if about.is_empty() => {
                    fates.no_rule += count(datagram);
                    counters.drop_many(DropReason::NoListener, count(datagram));
                }
                None => {
                    fates.other_source += count(datagram);
                    counters.drop_many(DropReason::Filtered, count(datagram));
                }
            }
        }
        if order.first().map(|first| first.0) != order.last().map(|last| last.0)
            || !order.is_sorted()
        {
            order.sort_unstable();
        }
    }
}

impl InputPort {
    /// The rules about what is sent there.
    fn about(&self, destination: IpAddr) -> &[u32] {
        match self.exact.get(&destination) {
            Some(rules) => rules,
            None if destination.is_multicast() => &[],
            None => &self.any,
        }
    }

    /// One rule less wants these memberships.
    fn leave(&mut self, id: PortId, memberships: &[Membership], ports: &mut impl DatagramPorts) {
        for membership in memberships {
            let Some(users) = self.members.get_mut(membership) else { continue };
            *users -= 1;
            if *users == 0 {
                self.members.remove(membership);
                // One that the kernel has ended already is ended.
                let _ = ports.leave(id, membership);
            }
        }
    }
}

impl Live {
    /// A rule that is opened; `before` is the one of the same input, which goes.
    fn new(id: RuleId, rule: Arc<Rule>, begun: Begun, mut before: Option<&mut Live>) -> Live {
        let opened = begun.outputs.into_iter().zip(&rule.outputs);
        let outputs = opened.map(|(opened, output)| {
            let kept = opened.kept.zip(before.as_deref_mut());
            kept.map_or_else(|| Exit::new(opened.port, output), |(i, live)| live.outputs[i].keep())
        });
        let outputs = outputs.collect();
        // Its memory is there before the first datagram.
        let none = Waits { classes: vec![0; WAIT_CLASSES], sum_ns: 0 };
        let (datagrams, bytes, rate_limited, waits) = before.map_or((0, 0, 0, none), |live| {
            (live.datagrams, live.bytes, live.rate_limited, live.waits.clone())
        });
        let bucket = rule.bytes_per_second.map(Bucket::new);
        let input = begun.input;
        Live { id, rule, input, bucket, outputs, datagrams, bytes, rate_limited, waits }
    }

    fn state(&self, mut counters: impl FnMut(PortId) -> Counters) -> RuleState {
        let outputs = self.rule.outputs.iter().zip(&self.outputs).map(|(output, exit)| {
            let port = counters(exit.port);
            let own = [
                (DropReason::Sampled, exit.sampled_out),
                (DropReason::RateLimited, exit.rate_limited),
            ];
            let own = own.into_iter().filter(|(_, n)| *n > 0);
            let drops = port.nonzero_drops().chain(own);
            OutputState {
                destination: output.destination.to_string(),
                interface: output.interface.clone(),
                sent: port.tx_frames,
                bytes: port.tx_bytes,
                drops: drops.map(|(reason, n)| (reason.name().to_owned(), n)).collect(),
            }
        });
        RuleState {
            id: self.id,
            name: self.rule.name.clone(),
            input: self.rule.input.to_string(),
            datagrams: self.datagrams,
            bytes: self.bytes,
            rate_limited: self.rate_limited,
            waits: self.waits.clone(),
            outputs: outputs.collect(),
        }
    }
}

/// The port of an output whose place in another rule was taken; see [`Exit::keep`].
const KEPT: PortId = PortId(u32::MAX);

impl Exit {
    fn new(port: PortId, output: &Output) -> Exit {
        Exit {
            port,
            destination: output.destination,
            is_plain: output.bytes_per_second.is_none() && output.sample.is_none(),
            bucket: output.bytes_per_second.map(Bucket::new),
            sample: output.sample,
            seen: 0,
            sampled_out: 0,
            rate_limited: 0,
        }
    }

    /// The same output of another rule, with its port and all that it counted.
    fn keep(&mut self) -> Exit {
        let kept = self.clone();
        self.port = KEPT;
        kept
    }

    fn is_kept(&self) -> bool {
        self.port == KEPT
    }

    /// Sends a copy, as far as rate and sample let it. Returns the copies handed on, and their bytes.
    fn send<O: DatagramOut>(
        &mut self,
        datagram: &Datagram<'_>,
        now_ns: u64,
        copies: &mut Copies,
        out: &mut O,
    ) -> (u64, u64) {
        let (n, bytes) = (count(datagram), datagram.payload.len());
        if self.is_plain {
            out.forward(datagram, self.port, self.destination);
            copies.handed += n;
            return (n, bytes as u64);
        }
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.admits(bytes, now_ns)) {
            self.rate_limited += n;
            copies.rate_limited += n;
            return (0, 0);
        }
        let Some(sample) = self.sample.map(|sample| u64::from(sample.get())) else {
            out.forward(datagram, self.port, self.destination);
            copies.handed += n;
            return (n, bytes as u64);
        };
        let mut sent = (0, 0);
        // The first of every so many, wherever trains begin and end.
        let first = (sample - self.seen % sample) % sample;
        for at in (first..n).step_by(sample as usize) {
            let begin = at as usize * datagram.segment_bytes;
            let end = bytes.min(begin + datagram.segment_bytes);
            let one = Datagram {
                payload: datagram.payload.narrowed(begin..end),
                segment_bytes: end - begin,
                ..*datagram
            };
            out.forward(&one, self.port, self.destination);
            sent = (sent.0 + 1, sent.1 + (end - begin) as u64);
        }
        self.seen += n;
        self.sampled_out += n - sent.0;
        copies.sampled_out += n - sent.0;
        copies.handed += sent.0;
        sent
    }
}

/// Datagrams of a train; one without payload is one all the same.
fn count(datagram: &Datagram<'_>) -> u64 {
    datagram.payload.len().div_ceil(datagram.segment_bytes.max(1)).max(1) as u64
}

/// A sentence about a rule.
pub(crate) fn in_rule(rule: &Rule, why: String) -> String {
    let called = rule.name.as_ref().map_or_else(String::new, |name| format!("`{name}` "));
    format!("rule {called}({}): {why}", rule.input)
}

impl App for Relay {
    fn on_stop(&mut self, _turn: Turn) {
        self.mailbox.close();
    }

    fn wants_stop(&self) -> bool {
        self.failure.is_some()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl DatagramApp for Relay {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        self.sort(batch);
        let Relay { rules, order, fates, copies, counters, .. } = self;
        let mut shown = 0;
        for datagram in batch {
            shown += count(datagram);
            counters.rx_bytes += datagram.payload.len() as u64;
        }
        counters.rx_frames += shown;
        self.reads += batch.len() as u64;
        self.batches[(shown.max(1).ilog2() as usize).min(BATCH_CLASSES - 1)] += 1;
        for of_rule in order.chunk_by_mut(|a, b| a.0 == b.0) {
            let Some(live) = rules[of_rule[0].0 as usize].as_deref_mut() else { continue };
            let mut relayed = 0;
            for (rule, at) in &mut *of_rule {
                let datagram = &batch[*at as usize];
                let (n, bytes) = (count(datagram), datagram.payload.len());
                live.datagrams += n;
                live.bytes += bytes as u64;
                // A lane without stamps of the kernel's gives the time of now.
                if datagram.ts_ns < turn.now_ns {
                    live.waits.count(turn.now_ns - datagram.ts_ns, n);
                }
                if live.bucket.as_mut().is_some_and(|bucket| !bucket.admits(bytes, turn.now_ns)) {
                    live.rate_limited += n;
                    fates.rate_limited += n;
                    counters.drop_many(DropReason::RateLimited, n);
                    *rule = HELD_BACK;
                } else {
                    relayed += n;
                }
            }
            fates.relayed += relayed;
            copies.asked += relayed * live.outputs.len() as u64;
            for exit in &mut live.outputs {
                for (_, at) in of_rule.iter().filter(|(rule, _)| *rule != HELD_BACK) {
                    let sent = exit.send(&batch[*at as usize], turn.now_ns, copies, out);
                    counters.tx_frames += sent.0;
                    counters.tx_bytes += sent.1;
                }
            }
        }
    }

    fn on_ports<P: DatagramPorts>(&mut self, ports: &mut P, _turn: Turn) {
        self.turn_rules(ports);
    }
}

/// In place of its rule's number: the rule's rate holds the datagram back.
const HELD_BACK: u32 = u32::MAX;

impl Drop for Relay {
    fn drop(&mut self) {
        // A worker that ends in a panic answers nobody either.
        self.mailbox.close();
    }
}

#[cfg(test)]
mod tests;
