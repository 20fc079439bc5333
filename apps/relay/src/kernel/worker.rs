//! The kernel half at the orders of a book: what [`Relay`](crate::Relay) is over datagrams.
//!
//! ```text
//!   Mailbox ── prepare: resolve, join groups ──▶ commit: one whole set into the kernel's maps ──▶ leave groups
//!   about once a second: the kernel's neighbours ── another MAC address? ──▶ the same set once more
//! ```
//!
//! Nothing here is on the way of a datagram, so a change may take as long as it takes. What must always hold: the
//! set in the kernel is that of the last commit; the kernel is a member of each group of an input in force, on the
//! input's interface, and of no others but those of a change that is prepared.

use super::{
    KernelRelay,
    counts::{KernelCounts, KernelFate},
    resolve::{SourcePorts, Wire, resolve},
    rule::KernelRules,
};
use crate::{
    desk::{Answer, Change, Mailbox, Order},
    live::{Delays, OutputState, RuleState, WorkerState},
    report::{NAME, RelayReport},
    rule::{Rule, RuleId},
    user::{Copies, Fates, in_rule},
};
use laneway_core::{
    App, Bell, Counters, KernelApp, KernelHalf, KernelMaps, LaneError, Membership, Turn,
};
use laneway_kinds::{Conclude, GroupHolder, LinkAddresses, RunReport};
use laneway_linux::Links;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    ops::Bound,
    sync::Arc,
};

/// What is taken from a sender: what a socket would get.
const TTL_MIN: u8 = 1;
/// How often neighbours are looked at, and at how many at a time: some microseconds each.
const LOOK_INTERVAL_NS: u64 = 1_000_000_000;
const LOOKS_MAX: usize = 1024;

/// The relay of a run whose work is the kernel's.
pub struct KernelWorker {
    relay: KernelRelay,
    mailbox: Arc<Mailbox>,
    wires: Vec<Wire>,
    /// In force; the kernel has them in this order.
    rules: Rules,
    draft: Option<Draft>,
    groups: Groups,
    hops: Hops,
    ports: SourcePorts,
    /// They keep those ports from other programs; what arrives on them is not read.
    _held: [UdpSocket; 2],
    failure: Option<String>,
    /// The interfaces that there are, where a watch follows them.
    links: Option<Arc<Links>>,
}

type Rules = BTreeMap<RuleId, Arc<Rule>>;

/// A change that is not in force. Of every rule that comes the kernel is a member already.
struct Draft {
    change: Change,
    next: Rules,
}

/// Memberships, each with the number of rules that want it.
struct Groups {
    holder: Box<dyn GroupHolder>,
    users: HashMap<Membership, usize>,
}

/// Link addresses of neighbours, by interface and address.
struct Hops {
    table: Box<dyn LinkAddresses>,
    known: BTreeMap<Hop, [u8; 6]>,
    /// The last that was looked at, where there are more.
    looked_at: Option<Hop>,
    looked_ns: u64,
}

type Hop = (String, IpAddr);

impl KernelWorker {
    /// A relay without rules, which takes its orders from this mailbox.
    ///
    /// # Errors
    /// Where the kernel gives no port to send from.
    pub(crate) fn new(
        mailbox: Arc<Mailbox>,
        bell: &Bell,
        wires: Vec<Wire>,
        holder: Box<dyn GroupHolder>,
        table: Box<dyn LinkAddresses>,
    ) -> Result<KernelWorker, LaneError> {
        let hold = |any: IpAddr| {
            let socket = UdpSocket::bind((any, 0))?;
            Ok((socket.local_addr()?.port(), socket))
        };
        let failed = |e| LaneError::os(NAME, "hold a port to send from", e, "raise `ulimit -n`");
        let (v4, four) = hold(Ipv4Addr::UNSPECIFIED.into()).map_err(failed)?;
        let (v6, six) = hold(Ipv6Addr::UNSPECIFIED.into()).map_err(failed)?;
        mailbox.attend(bell);
        Ok(KernelWorker {
            relay: KernelRelay::new(KernelRules::default(), TTL_MIN),
            mailbox,
            wires,
            rules: Rules::new(),
            draft: None,
            groups: Groups { holder, users: HashMap::new() },
            hops: Hops { table, known: BTreeMap::new(), looked_at: None, looked_ns: 0 },
            ports: SourcePorts { v4, v6 },
            _held: [four, six],
            failure: None,
            links: None,
        })
    }

    fn carry_out(&mut self, order: Order, maps: &dyn KernelMaps) -> Answer {
        match order {
            Order::State(_) => match self.relay.report(maps, false) {
                Ok(()) => Answer::State(self.state()),
                Err(error) => Answer::Failed(self.fails(error)),
            },
            // Its programs are the interfaces', and end with it.
            Order::Share => Answer::Shared(None),
            Order::Cease | Order::Receive => Answer::Done,
            Order::Prepare(change, at_once) => {
                // A client that prepared before and closed without a word has given up.
                self.abandon();
                let done = self.prepare(change);
                let done = if at_once { done.and_then(|()| self.commit(maps)) } else { done };
                if let (Err(why), true) = (&done, at_once) {
                    self.failure = Some(why.clone());
                }
                answer(done)
            }
            Order::Commit => answer(self.commit(maps)),
            Order::Abandon => {
                self.abandon();
                Answer::Done
            }
        }
    }

    fn prepare(&mut self, change: Change) -> Result<(), String> {
        change.add.iter().try_for_each(|rule| self.refuse_gone(rule))?;
        let mut next = self.rules.clone();
        change.remove.iter().for_each(|id| drop(next.remove(id)));
        next.extend(change.add.iter().map(|rule| (RuleId::of(&rule.input), Arc::clone(rule))));
        let resolved = self.resolved(&next).map(drop);
        let joined = resolved.and_then(|()| self.groups.join(&change.add));
        if joined.is_err() {
            self.hops.forget(&self.rules);
        }
        self.draft = joined.map(|()| Some(Draft { change, next }))?;
        Ok(())
    }

    fn commit(&mut self, maps: &dyn KernelMaps) -> Result<(), String> {
        let Some(Draft { change, next }) = self.draft.take() else { return Ok(()) };
        // Again, because a neighbour's address may have changed meanwhile; all are known.
        let done = self.resolved(&next).and_then(|rules| self.put_in_force(rules, maps));
        if let Err(why) = done {
            self.groups.leave(&change.add);
            self.hops.forget(&self.rules);
            return Err(why);
        }
        let former = std::mem::replace(&mut self.rules, next);
        self.groups.leave(change.remove.iter().filter_map(|id| former.get(id)));
        self.hops.forget(&self.rules);
        Ok(())
    }

    fn abandon(&mut self) {
        let Some(Draft { change, .. }) = self.draft.take() else { return };
        self.groups.leave(&change.add);
        self.hops.forget(&self.rules);
    }

    fn resolved(&mut self, rules: &Rules) -> Result<KernelRules, String> {
        let hops = &mut self.hops;
        let rules = rules.values().map(|rule| &**rule);
        resolve(rules, &self.wires, self.ports, &mut |name, ip| hops.find(name, ip))
    }

    /// Gives the kernel a set; when this returns, no program knows the former one. What cannot be written is refused,
    /// as an interface that is gone and was there when the set was prepared.
    fn put_in_force(&mut self, rules: KernelRules, maps: &dyn KernelMaps) -> Result<(), String> {
        self.relay.feed.replace(rules);
        let written = self.relay.write(maps).map_err(|why| {
            format!("{why}; nothing has changed: see by `ip link` whether each interface is there")
        })?;
        let done = written.map_or(Ok(()), |written| self.relay.swap(written, maps));
        done.map_err(|error| self.fails(error))
    }

    /// The kernel's maps are not as they should be: the run ends.
    fn fails(&mut self, error: LaneError) -> String {
        let why = error.to_string();
        self.relay.failed.get_or_insert(error);
        why
    }

    /// Follows neighbours that have got another link address.
    fn follow_hops(&mut self, maps: &dyn KernelMaps, turn: Turn) {
        if !self.hops.look(turn) {
            return;
        }
        let rules = self.rules.clone();
        // Nothing but addresses has changed, so there is no reason to refuse; a failure ends the run.
        let done = self.resolved(&rules).and_then(|rules| self.put_in_force(rules, maps));
        if let Err(why) = done {
            self.failure.get_or_insert(why);
        }
    }

    /// Refuses a rule on an interface that is gone: the kernel takes its number into no map any more, and joins no
    /// group there.
    fn refuse_gone(&self, rule: &Rule) -> Result<(), String> {
        let outputs = rule.outputs.iter().map(|output| &output.interface);
        let mut named = [&rule.input.interface].into_iter().chain(outputs);
        let gone = named.find_map(|name| self.gone(name.as_deref()));
        gone.map_or(Ok(()), |why| Err(in_rule(rule, why)))
    }

    /// Why nothing comes in or leaves by an interface any more: programs and maps know the one that was there.
    fn gone(&self, interface: Option<&str>) -> Option<String> {
        let (links, name) = (self.links.as_ref()?, interface?);
        let wire = self.wires.iter().find(|wire| wire.name == name)?;
        let is_there = links.find(name).is_some_and(|link| link.index == wire.ifindex);
        (!is_there).then(|| format!("the interface `{name}` of this run is gone; begin a new run"))
    }

    /// What every rule has done, as last read.
    fn state(&self) -> WorkerState {
        let counts = self.relay.counts();
        let rules = self.rules.iter().zip(&counts.rules).map(|((id, rule), counted)| {
            let outputs =
                rule.outputs.iter().zip(&counted.outputs).map(|(output, counted)| OutputState {
                    destination: output.destination.to_string(),
                    interface: output.interface.clone(),
                    missing: self.gone(output.interface.as_deref()),
                    sent: counted.sent.count,
                    bytes: counted.sent.bytes,
                    drops: BTreeMap::new(),
                });
            RuleState {
                id: *id,
                name: rule.name.clone(),
                input: rule.input.to_string(),
                missing: self.gone(rule.input.interface.as_deref()),
                datagrams: counted.taken.count,
                bytes: counted.taken.bytes,
                rate_limited: 0,
                delays: Delays::default(),
                outputs: outputs.collect(),
            }
        });
        let interfaces = counts.interfaces.iter().filter_map(|(ifindex, counters)| {
            let wire = self.wires.iter().find(|wire| wire.ifindex == *ifindex)?;
            let drops = counters.nonzero_drops().map(|(reason, n)| (reason.name().to_owned(), n));
            let drops: BTreeMap<String, u64> = drops.collect();
            (!drops.is_empty()).then(|| (wire.name.clone(), drops))
        });
        // Without what no rule asks for: here that is whatever else comes by the interfaces.
        let passed = passed(counts);
        let unmatched = passed.iter().filter(|(fate, _)| **fate != KernelFate::NoRule.name());
        let unmatched: BTreeMap<String, u64> =
            unmatched.map(|(fate, n)| ((*fate).to_owned(), *n)).collect();
        WorkerState {
            rules: rules.collect(),
            datagrams: counts.fates[KernelFate::Sent as usize] + unmatched.values().sum::<u64>(),
            unmatched,
            interfaces: interfaces.collect(),
            ..WorkerState::default()
        }
    }
}

fn answer(done: Result<(), String>) -> Answer {
    done.map_or_else(Answer::Failed, |()| Answer::Done)
}

/// What was left to the kernel, by why.
fn passed(counts: &KernelCounts) -> BTreeMap<&'static str, u64> {
    let all = KernelFate::ALL.iter().zip(counts.fates);
    let passed = all.filter(|(fate, n)| **fate != KernelFate::Sent && *n > 0);
    passed.map(|(fate, n)| (fate.name(), n)).collect()
}

impl Groups {
    /// Becomes a member for these rules, or for none of them.
    fn join(&mut self, rules: &[Arc<Rule>]) -> Result<(), String> {
        for (at, rule) in rules.iter().enumerate() {
            let wanted = rule.input.memberships();
            for (i, membership) in wanted.iter().enumerate() {
                let users = self.users.get(membership).copied().unwrap_or(0);
                if users == 0
                    && let Err(why) = self.holder.join(membership)
                {
                    wanted[..i].iter().for_each(|membership| self.leave_one(membership));
                    self.leave(&rules[..at]);
                    return Err(in_rule(rule, why.to_string()));
                }
                self.users.insert(membership.clone(), users + 1);
            }
        }
        Ok(())
    }

    /// Is a member for these rules no longer.
    fn leave<'a>(&mut self, rules: impl IntoIterator<Item = &'a Arc<Rule>>) {
        for rule in rules {
            rule.input.memberships().iter().for_each(|membership| self.leave_one(membership));
        }
    }

    fn leave_one(&mut self, membership: &Membership) {
        let Some(users) = self.users.get_mut(membership) else { return };
        *users -= 1;
        if *users == 0 {
            self.users.remove(membership);
            // One that the kernel has ended already is ended.
            let _ = self.holder.leave(membership);
        }
    }
}

impl Hops {
    /// What is known, else what the kernel knows.
    fn find(&mut self, interface: &str, host: IpAddr) -> Option<[u8; 6]> {
        let hop = (interface.to_owned(), host);
        if let Some(mac) = self.known.get(&hop) {
            return Some(*mac);
        }
        let (mac, _) = self.table.find(interface, host)?;
        self.known.insert(hop, mac);
        Some(mac)
    }

    /// Keeps those alone that these rules send to.
    fn forget(&mut self, rules: &Rules) {
        let outputs = rules.values().flat_map(|rule| &rule.outputs);
        let wanted = outputs
            .filter_map(|output| Some((output.interface.as_deref()?, output.destination.ip())));
        let wanted: HashSet<(&str, IpAddr)> = wanted.collect();
        self.known.retain(|(name, host), _| wanted.contains(&(name.as_str(), *host)));
    }

    /// Looks at some when it is time to. True when one has another address; one that the kernel does not know any
    /// more keeps the one it had.
    fn look(&mut self, turn: Turn) -> bool {
        if turn.now_ns.saturating_sub(self.looked_ns) < LOOK_INTERVAL_NS {
            return false;
        }
        self.looked_ns = turn.now_ns;
        let after = self.looked_at.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut has_changed = false;
        for (at, (hop, mac)) in self.known.range_mut((after, Bound::Unbounded)).enumerate() {
            if at == LOOKS_MAX {
                break;
            }
            if let Some((now, _)) = self.table.find(&hop.0, hop.1) {
                has_changed |= *mac != now;
                *mac = now;
            }
            if at + 1 == LOOKS_MAX {
                self.looked_at = Some(hop.clone());
            }
        }
        has_changed
    }
}

impl App for KernelWorker {
    fn on_stop(&mut self, _turn: Turn) {
        self.mailbox.close();
    }

    fn wants_stop(&self) -> bool {
        self.failure.is_some() || self.relay.wants_stop()
    }

    fn counters(&self) -> &Counters {
        self.relay.counters()
    }
}

impl KernelApp for KernelWorker {
    fn half(&self) -> KernelHalf {
        self.relay.half()
    }

    /// The half emits none.
    fn on_records(&mut self, _records: &[u8], _turn: Turn) {}

    fn on_tick(&mut self, maps: &dyn KernelMaps, turn: Turn) {
        self.links = self.mailbox.take_links().or_else(|| self.links.take());
        while let Some(order) = self.mailbox.take() {
            let answer = self.carry_out(order, maps);
            self.mailbox.answer(answer);
        }
        self.follow_hops(maps, turn);
        self.relay.on_tick(maps, turn);
    }

    fn on_detached(&mut self, maps: &dyn KernelMaps, turn: Turn) {
        self.relay.on_detached(maps, turn);
    }
}

impl Drop for KernelWorker {
    fn drop(&mut self) {
        // A worker that ends in a panic answers no caller either.
        self.mailbox.close();
    }
}

impl Conclude<RelayReport> for KernelWorker {
    fn conclude(self, _run: &RunReport) -> RelayReport {
        let counts = self.relay.counts();
        let fate = |fate: KernelFate| counts.fates[fate as usize];
        let mut passed = passed(counts);
        passed.remove(KernelFate::NoRule.name());
        passed.remove(KernelFate::Source.name());
        RelayReport {
            fates: Fates {
                relayed: fate(KernelFate::Sent),
                no_rule: fate(KernelFate::NoRule),
                other_source: fate(KernelFate::Source),
                rate_limited: 0,
            },
            copies: Copies {
                asked: counts.sent.count + counts.passed_over,
                handed: counts.sent.count,
                passed_over: counts.passed_over,
                ..Copies::default()
            },
            passed,
            failure: self.failure.clone().or_else(|| self.relay.failure().map(ToString::to_string)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Book, Policy, RuleFile};
    use laneway_core::MapValue;
    use laneway_kinds::Own;
    use laneway_linux::Link;
    use std::{
        cell::{Cell, RefCell},
        collections::BTreeSet,
        rc::Rc,
    };

    fn policy() -> Policy {
        let allow = vec!["198.51.100.0/24".parse().expect("a network")];
        Policy { allow, socket_workers: 0, ..Policy::default() }
    }

    /// What the kernel is a member of; it refuses one group.
    #[derive(Clone, Default)]
    struct Kernel(Rc<RefCell<BTreeSet<Membership>>>);

    impl GroupHolder for Kernel {
        fn join(&mut self, membership: &Membership) -> Result<(), LaneError> {
            if membership.group == IpAddr::from([239, 9, 9, 9]) {
                return Err(LaneError::no_interface("here", "in9"));
            }
            assert!(self.0.borrow_mut().insert(membership.clone()), "asked for twice");
            Ok(())
        }

        fn leave(&mut self, membership: &Membership) -> Result<(), LaneError> {
            assert!(self.0.borrow_mut().remove(membership), "it is no member");
            Ok(())
        }
    }

    /// Neighbours whose address is what is written here.
    #[derive(Clone, Default)]
    struct Neighbours(Rc<RefCell<Option<[u8; 6]>>>);

    impl LinkAddresses for Neighbours {
        fn find(&mut self, _: &str, _: IpAddr) -> Option<([u8; 6], bool)> {
            Some(((*self.0.borrow())?, true))
        }
    }

    fn rule(group: &str, port: u16, from: &[&str]) -> Arc<Rule> {
        let text = format!(
            "[[rule]]\ninput = {{ interface = 'in0', group = '{group}', port = {port}, sources = {from:?} }}
             outputs = [ {{ destination = '198.51.100.4:6', interface = 'out0' }} ]"
        );
        Arc::new(RuleFile::from_toml(&text).expect("well formed").rules.remove(0))
    }

    #[test]
    fn a_group_is_joined_once_for_all_rules_and_left_behind_the_last() {
        let kernel = Kernel::default();
        let mut groups = Groups { holder: Box::new(kernel.clone()), users: HashMap::new() };
        let count = || kernel.0.borrow().len();
        let (a, b) = ([rule("239.1.1.1", 1, &[])], [rule("239.1.1.1", 2, &[])]);
        groups.join(&a).expect("it can be");
        groups.join(&b).expect("it can be");
        assert_eq!(count(), 1);
        // The last cannot be, so none is; the second is not, either.
        let refused = [
            rule("239.1.1.1", 3, &[]),
            rule("239.1.1.2", 1, &["10.0.0.1", "10.0.0.2"]),
            rule("239.9.9.9", 1, &[]),
        ];
        let why = groups.join(&refused).expect_err("one is refused");
        assert!(why.contains("239.9.9.9:1 on in0") && why.contains("in9"), "{why}");
        assert_eq!(count(), 1);
        groups.leave(&a);
        assert_eq!(count(), 1);
        groups.leave(&b);
        assert_eq!((count(), groups.users.len()), (0, 0));
    }

    #[test]
    fn an_interface_of_the_run_that_is_gone_is_reported_and_one_that_is_there_is_not() {
        let bell = Bell::new().expect("a descriptor");
        let (holder, table) = (Box::new(Kernel::default()), Box::new(Neighbours::default()));
        let wires = vec![wire("in0", 2)];
        let worker = KernelWorker::new(Arc::default(), &bell, wires, holder, table);
        let mut worker = worker.expect("there are ports");
        let mut gone = |there: &[(&str, u32)]| {
            let link = |(name, index): &(&str, u32)| {
                ((*name).to_owned(), Link { index: *index, is_up: true })
            };
            worker.links = Some(Arc::new(there.iter().map(link).collect()));
            worker.gone(Some("in0"))
        };
        assert_eq!(gone(&[("in0", 2)]), None);
        for there in [&[][..], &[("in0", 3)], &[("in1", 2)]] {
            let why = gone(there).expect("programs are on another one");
            assert!(why.contains("`in0`") && why.contains("gone"), "{why}");
        }
        assert_eq!(worker.gone(Some("out7")), None, "none of the run's");
    }

    fn wire(name: &str, ifindex: u32) -> Wire {
        let addresses = vec![(IpAddr::from([198, 51, 100, 1]), 24)];
        let own = Own { mac: [2; 6], addresses, mtu_bytes: None };
        Wire { name: name.to_owned(), ifindex, own }
    }

    #[test]
    fn a_rule_on_an_interface_that_is_gone_is_refused_and_others_are_not() {
        let table = Neighbours::default();
        *table.0.borrow_mut() = Some([1; 6]);
        let (bell, kernel) = (Bell::new().expect("a descriptor"), Kernel::default());
        let wires = vec![wire("in0", 2), wire("out0", 3)];
        let holder = Box::new(kernel.clone());
        let worker = KernelWorker::new(Arc::default(), &bell, wires, holder, Box::new(table));
        let mut worker = worker.expect("there are ports");
        let mut prepare = |there: [&str; 2]| {
            let link = |(name, index): (&str, u32)| (name.to_owned(), Link { index, is_up: true });
            let links = there.into_iter().zip(2..).map(link).collect();
            worker.links = Some(Arc::new(links));
            let add = vec![rule("239.1.1.1", 1, &[])];
            let done = worker.prepare(Change { add, ..Change::default() });
            worker.abandon();
            done
        };
        assert_eq!(prepare(["in0", "out0"]), Ok(()));
        for there in [["in0", "other"], ["other", "out0"]] {
            let why = prepare(there).expect_err("its number is no interface's");
            assert!(why.contains("239.1.1.1:1 on in0") && why.contains("gone"), "{why}");
        }
        assert_eq!(kernel.0.borrow().len(), 0);
    }

    /// Maps of a kernel in which no interface of this number is any more.
    struct Maps(RefCell<BTreeMap<(String, Vec<u8>), MapValue>>, Cell<u32>);

    impl KernelMaps for Maps {
        fn visit(&self, _: &str, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), LaneError> {
            Ok(())
        }

        fn remove(&self, map: &str, key: &[u8]) -> Result<(), LaneError> {
            self.0.borrow_mut().remove(&(map.to_owned(), key.to_vec()));
            Ok(())
        }

        fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), LaneError> {
            self.set(map, key, &MapValue::Bytes(value.into()))
        }

        fn set(&self, map: &str, key: &[u8], value: &MapValue) -> Result<(), LaneError> {
            if let MapValue::Map(entries) = value {
                let leads_there = |value: &MapValue| matches!(value, MapValue::Exit(to, _) if *to == self.1.get());
                if entries.iter().any(|(_, value)| leads_there(value)) {
                    let why = std::io::Error::from_raw_os_error(22);
                    return Err(LaneError::os("xdp", "write map exits", why, "see the log"));
                }
            }
            self.0.borrow_mut().insert((map.to_owned(), key.to_vec()), value.clone());
            Ok(())
        }
    }

    #[test]
    fn a_rule_whose_interface_goes_meanwhile_is_refused_and_the_former_ones_stay() {
        let by = |to: &str, port| {
            let mut rule = Rule::clone(&rule("239.1.1.1", port, &["10.0.0.1"]));
            rule.outputs[0].interface = Some(to.to_owned());
            rule
        };
        let table = Neighbours::default();
        *table.0.borrow_mut() = Some([1; 6]);
        let kernel = Kernel::default();
        let book = Arc::new(Book::new(Vec::new(), policy(), 1).expect("an empty set"));
        let bell = Bell::new().expect("a descriptor");
        let wires = vec![wire("in0", 2), wire("out0", 3), wire("out1", 4)];
        let (holder, table) = (Box::new(kernel.clone()), Box::new(table));
        let worker = KernelWorker::new(book.mailbox(0), &bell, wires, holder, table);
        let mut worker = worker.expect("there are ports");
        // Nothing has reported what there is.
        let maps = Maps(RefCell::default(), Cell::new(4));
        let mut replace = |rules: Vec<Rule>| {
            let book = Arc::clone(&book);
            let change = std::thread::spawn(move || book.replace(rules, false));
            while !change.is_finished() {
                worker.on_tick(&maps, Turn::default());
                std::thread::yield_now();
            }
            (change.join().expect("it does not panic"), worker.wants_stop())
        };
        let written = || {
            let maps = maps.0.borrow();
            maps.iter()
                .filter(|((map, _), _)| map != "exits")
                .map(|(at, value)| (at.clone(), value.clone()))
                .collect::<Vec<_>>()
        };
        assert!(matches!(replace(vec![by("out0", 1)]), (Ok(_), false)));
        let before = (written(), kernel.0.borrow().clone(), book.rules());
        let (refused, ends) = replace(vec![by("out0", 1), by("out1", 2)]);
        let why = refused.expect_err("the kernel takes no number of an interface that is gone");
        assert!(why.contains("ip link") && !ends, "{why}");
        assert_eq!((written(), kernel.0.borrow().clone(), book.rules()), before);
        // What goes on is whole.
        maps.1.set(0);
        assert!(matches!(replace(vec![by("out0", 1), by("out1", 2)]), (Ok(_), false)));
        assert_eq!((book.rules().len(), kernel.0.borrow().len()), (2, 1));
        let count = |name: &str| maps.0.borrow().keys().filter(|(map, _)| map == name).count();
        assert_eq!((count("rules"), count("outputs"), count("exits")), (2, 2, 2));
        assert!(matches!(replace(vec![by("out1", 1)]), (Ok(_), false)));
        assert_eq!((count("rules"), count("outputs")), (1, 1));
    }

    #[test]
    fn a_neighbour_is_looked_at_about_once_a_second_and_keeps_the_address_it_had() {
        let kernel = Neighbours::default();
        let table = Box::new(kernel.clone());
        let mut hops = Hops { table, known: BTreeMap::new(), looked_at: None, looked_ns: 0 };
        let host = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        assert_eq!(hops.find("out0", host(0)), None);
        *kernel.0.borrow_mut() = Some([1; 6]);
        for n in 0..LOOKS_MAX + 10 {
            assert_eq!(hops.find("out0", host(n)), Some([1; 6]));
        }
        let mut now_ns = 0;
        let mut look = |hops: &mut Hops| {
            now_ns += LOOK_INTERVAL_NS;
            let turn = Turn { now_ns };
            (hops.look(turn), hops.look(turn))
        };
        assert_eq!(look(&mut hops), (false, false), "the first ones, and nothing new");
        *kernel.0.borrow_mut() = Some([2; 6]);
        assert_eq!(look(&mut hops), (true, false), "the last ten, and none twice at one time");
        let new = |hops: &Hops| hops.known.values().filter(|mac| **mac == [2; 6]).count();
        assert_eq!(new(&hops), 10);
        assert_eq!(look(&mut hops), (true, false), "from the beginning");
        assert_eq!(new(&hops), LOOKS_MAX + 10);
        *kernel.0.borrow_mut() = None;
        assert_eq!(look(&mut hops), (false, false));
        assert_eq!(hops.find("out0", host(1)), Some([2; 6]), "known no more, kept");
        hops.forget(&Rules::new());
        assert_eq!(hops.find("out0", host(1)), None);
    }
}
