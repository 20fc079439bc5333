//! Which groups are heard on which interface, and the host's part of IGMPv3 and MLDv2.
//!
//! ```text
//!   join, leave ─▶ group: its ports, its senders ─▶ changed ─▶ a report at once, and one more
//!   a router's question ─────────────────────────▶ due ─────▶ a report of what is, a while later
//! ```
//!
//! A group is found by a hash, however many there are. What must always hold: a change is reported twice
//! (robustness 2, RFC 3376, 8.1), however many follow it; questions of strangers make no state but a
//! time per group that is heard; a report says what is true when it leaves. Where the kernel tells
//! the network ([`Members::hush`]) nothing is reported here.
//!
//! Where a router speaks the version before, memberships are reported in that (RFC 3376, 7.2; RFC 3810, 8.2)
//! until the router has been silent for long. What it does not do: it tells nothing of the groups by
//! which neighbours find us.

use crate::{
    report::{ALL_HOSTS, Kind, Query, Record},
    siphash::Keyed,
};
use laneway_random::Random;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

/// How often a change is reported.
const ROBUSTNESS: u8 = 2;
/// The longest time between two reports of a change (RFC 3376, 8.11; RFC 3810, 9.11).
const REPORT_AGAIN_NS: u64 = 1_000_000_000;
/// Senders that several questions about one group may name together, at most.
const ASKED_MAX: usize = 64;
/// How long a router that speaks an older version is remembered (RFC 3376, 8.12): two questions at the
/// usual interval of 125 s, and the time for an answer.
const OLD_ROUTER_NS: u64 = 260_000_000_000;
const NEVER: u64 = u64::MAX;

/// The ports that hear a group on an interface, and what was not reported to the network yet.
#[derive(Debug, Default)]
struct Group {
    /// How many hear it from whomever.
    any: u32,
    /// How many hear it from each sender.
    senders: BTreeMap<IpAddr, u32>,
    /// How often it is still to be reported that the kind of hearing changed.
    mode_left: u8,
    /// Senders that are heard since then, or no longer, and how often that is to be reported.
    changed: BTreeMap<IpAddr, (Turned, u8)>,
}

/// How a sender changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turned {
    Allowed,
    Blocked,
}

/// What is to be reported on one interface, for one IP version.
#[derive(Debug)]
struct Link {
    /// Groups of which something changed.
    changed: BTreeSet<IpAddr>,
    changed_due_ns: u64,
    /// Until then a router understands the older version only.
    old_until_ns: u64,
    /// When a general question is to be answered.
    general_due_ns: u64,
    /// When questions about groups are to be answered, and about which senders; none for all.
    asked: BTreeMap<IpAddr, (u64, BTreeSet<IpAddr>)>,
}

/// All groups.
pub(crate) struct Members {
    groups: HashMap<(u8, IpAddr), Group, Keyed>,
    /// Two per interface: IPv4, IPv6.
    links: Vec<Link>,
    /// The soonest of all times.
    due_ns: u64,
    random: Random,
    is_silent: bool,
}

impl Group {
    fn is_unheard(&self) -> bool {
        self.any == 0 && self.senders.is_empty()
    }

    fn is_reported(&self) -> bool {
        self.mode_left == 0 && self.changed.is_empty()
    }

    fn heard_from(&self) -> Vec<IpAddr> {
        self.senders.keys().copied().collect()
    }

    /// What is, for a router that asked about these senders, or about all.
    fn state(&self, group: IpAddr, asked: &BTreeSet<IpAddr>) -> Option<Record> {
        let record = |kind, senders| Some(Record { kind, group, senders });
        match (self.any > 0, asked.is_empty()) {
            (true, true) => record(Kind::IsExclude, Vec::new()),
            (true, false) => record(Kind::IsInclude, asked.iter().copied().collect()),
            (false, true) if self.senders.is_empty() => None,
            (false, true) => record(Kind::IsInclude, self.heard_from()),
            (false, false) => {
                let both = asked.iter().filter(|sender| self.senders.contains_key(sender));
                let both: Vec<_> = both.copied().collect();
                if both.is_empty() { None } else { record(Kind::IsInclude, both) }
            }
        }
    }

    /// Tells once what changed.
    fn report(&mut self, group: IpAddr, records: &mut Vec<Record>) {
        if self.mode_left > 0 {
            self.mode_left -= 1;
            let (kind, senders) = match self.any {
                0 => (Kind::ToInclude, self.heard_from()),
                _ => (Kind::ToExclude, Vec::new()),
            };
            records.push(Record { kind, group, senders });
            return;
        }
        for (how, kind) in [(Turned::Allowed, Kind::Allow), (Turned::Blocked, Kind::Block)] {
            let senders = self.changed.iter_mut().filter(|(_, (is, _))| *is == how);
            let senders: Vec<_> = senders
                .map(|(sender, (_, left))| {
                    *left -= 1;
                    *sender
                })
                .collect();
            if !senders.is_empty() {
                records.push(Record { kind, group, senders });
            }
        }
        self.changed.retain(|_, (_, left)| *left > 0);
    }
}

impl Members {
    pub(crate) fn new(interfaces: usize, secret: [u64; 2]) -> Members {
        let link = || Link {
            changed: BTreeSet::new(),
            changed_due_ns: NEVER,
            old_until_ns: 0,
            general_due_ns: NEVER,
            asked: BTreeMap::new(),
        };
        Members {
            groups: HashMap::with_hasher(Keyed(secret)),
            links: (0..interfaces * 2).map(|_| link()).collect(),
            due_ns: NEVER,
            random: Random::seeded(secret[0] ^ secret[1].rotate_left(32)),
            is_silent: false,
        }
    }

    /// From now on the kernel reports memberships. What was to be reported is forgotten.
    pub(crate) fn hush(&mut self) {
        self.is_silent = true;
        self.groups.retain(|_, group| {
            (group.mode_left, group.changed) = (0, BTreeMap::new());
            !group.is_unheard()
        });
        for link in &mut self.links {
            link.changed.clear();
            link.changed_due_ns = NEVER;
        }
        self.due_ns = NEVER;
    }

    /// True where questions of routers are answered here.
    pub(crate) fn answers(&self) -> bool {
        !self.is_silent
    }

    /// How many groups are heard, those of each interface counted.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// What is heard: interface, group, sender.
    pub(crate) fn all(&self) -> Vec<(u8, IpAddr, Option<IpAddr>)> {
        let mut all = Vec::new();
        for (&(interface, ip), group) in &self.groups {
            let any = (group.any > 0).then_some(None);
            let senders = group.senders.keys().map(|sender| Some(*sender));
            all.extend(any.into_iter().chain(senders).map(|sender| (interface, ip, sender)));
        }
        all.sort_unstable();
        all
    }

    /// True for a group that a port hears on this interface.
    #[inline]
    pub(crate) fn has(&self, interface: u8, group: IpAddr) -> bool {
        self.groups.get(&(interface, group)).is_some_and(|group| !group.is_unheard())
    }

    /// True when what this sender sends to the group is heard on this interface.
    #[inline]
    pub(crate) fn hears(&self, interface: u8, group: IpAddr, sender: IpAddr) -> bool {
        let group = self.groups.get(&(interface, group));
        group.is_some_and(|group| group.any > 0 || group.senders.contains_key(&sender))
    }

    /// One more hears the group, from whomever or from one sender; true for the first that does.
    pub(crate) fn join(&mut self, interface: u8, ip: IpAddr, sender: Option<IpAddr>) -> bool {
        let group = self.groups.entry((interface, ip)).or_default();
        let is_first = match sender {
            None => {
                group.any += 1;
                group.any == 1
            }
            Some(sender) => {
                let hear = group.senders.entry(sender).or_insert(0);
                *hear += 1;
                *hear == 1
            }
        };
        if is_first {
            self.change(interface, ip, sender, Turned::Allowed);
        }
        is_first
    }

    /// One hears it no longer; true for the last that did.
    pub(crate) fn leave(&mut self, interface: u8, ip: IpAddr, sender: Option<IpAddr>) -> bool {
        let Some(group) = self.groups.get_mut(&(interface, ip)) else { return false };
        let is_last = match sender {
            None => {
                let was = group.any;
                group.any = was.saturating_sub(1);
                was == 1
            }
            Some(sender) => match group.senders.get_mut(&sender) {
                Some(hear) if *hear > 1 => {
                    *hear -= 1;
                    false
                }
                Some(_) => group.senders.remove(&sender).is_some(),
                None => false,
            },
        };
        if is_last {
            self.change(interface, ip, sender, Turned::Blocked);
        }
        is_last
    }

    /// Takes note that a report is due.
    fn change(&mut self, interface: u8, ip: IpAddr, sender: Option<IpAddr>, how: Turned) {
        let Some(group) = self.groups.get_mut(&(interface, ip)) else { return };
        // Every host hears all hosts, and no router wants to know.
        let is_unreported = self.is_silent
            || ip == IpAddr::V4(ALL_HOSTS)
            || matches!(ip, IpAddr::V6(v6) if v6.octets()[1] & 0xf < 2)
            || ip == IpAddr::V6(crate::address::ALL_NODES);
        if is_unreported {
            if group.is_unheard() {
                self.groups.remove(&(interface, ip));
            }
            return;
        }
        match sender {
            // Between the two kinds of hearing, in a report that says all there is.
            None => {
                group.changed.clear();
                group.mode_left = ROBUSTNESS;
            }
            // A port that hears all senders hears no more by this.
            Some(_) if group.any > 0 => return,
            Some(_) if group.mode_left > 0 => group.mode_left = ROBUSTNESS,
            Some(sender) => {
                group.changed.insert(sender, (how, ROBUSTNESS));
            }
        }
        let link = &mut self.links[place(interface, ip)];
        link.changed.insert(ip);
        link.changed_due_ns = 0;
        self.due_ns = 0;
    }

    /// A router asks.
    pub(crate) fn ask(&mut self, interface: u8, v4: bool, query: Query, now_ns: u64) {
        let due_ns = now_ns.saturating_add(self.random.below(query.within_ns));
        let is_ours = query.group.is_none_or(|ip| self.has(interface, ip));
        let link = &mut self.links[usize::from(interface) * 2 + usize::from(!v4)];
        if query.is_old {
            link.old_until_ns = now_ns.saturating_add(OLD_ROUTER_NS);
        }
        if !is_ours || link.general_due_ns <= due_ns {
            return;
        }
        let Some(ip) = query.group else {
            link.general_due_ns = due_ns;
            self.due_ns = self.due_ns.min(due_ns);
            return;
        };
        match link.asked.get_mut(&ip) {
            None => {
                link.asked.insert(ip, (due_ns, query.senders.into_iter().collect()));
            }
            // Together, at the sooner time (RFC 3376, 5.2, rules 4 and 5).
            Some((at_ns, asked)) => {
                *at_ns = due_ns.min(*at_ns);
                let is_whole = asked.is_empty() || query.senders.is_empty();
                asked.extend(query.senders);
                if is_whole || asked.len() > ASKED_MAX {
                    asked.clear();
                }
            }
        }
        self.due_ns = self.due_ns.min(due_ns);
    }

    /// When [`act`](Self::act) next has something.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        (self.due_ns != NEVER).then_some(self.due_ns)
    }

    /// Tells what is due: `send` gets an interface, whether it is of IPv4 and of the older version, and
    /// what to say there.
    pub(crate) fn act(&mut self, now_ns: u64, mut send: impl FnMut(u8, (bool, bool), &[Record])) {
        if now_ns < self.due_ns {
            return;
        }
        for at in 0..self.links.len() {
            let (interface, v4) = ((at / 2) as u8, at % 2 == 0);
            let mut records = Vec::new();
            if self.links[at].changed_due_ns <= now_ns {
                self.report_changes(at, interface, now_ns, &mut records);
            }
            if self.links[at].general_due_ns <= now_ns {
                let Members { groups, links, .. } = self;
                links[at].general_due_ns = NEVER;
                // It answers all other questions, too.
                links[at].asked.clear();
                let here = |(on, ip): &(u8, IpAddr)| *on == interface && ip.is_ipv4() == v4;
                let mut here: Vec<_> = groups.iter().filter(|(key, _)| here(key)).collect();
                here.sort_unstable_by_key(|(key, _)| **key);
                let no_senders = BTreeSet::new();
                records.extend(here.iter().filter_map(|((_, ip), g)| g.state(*ip, &no_senders)));
            }
            let Members { groups, links, .. } = self;
            links[at].asked.retain(|ip, (due_ns, asked)| {
                if *due_ns > now_ns {
                    return true;
                }
                let group = groups.get(&(interface, *ip));
                records.extend(group.and_then(|group| group.state(*ip, asked)));
                false
            });
            if !records.is_empty() {
                send(interface, (v4, now_ns < self.links[at].old_until_ns), &records);
            }
        }
        let dues = self.links.iter().map(|link| {
            let asked = link.asked.values().map(|(due_ns, _)| *due_ns).min();
            link.changed_due_ns.min(link.general_due_ns).min(asked.unwrap_or(NEVER))
        });
        self.due_ns = dues.min().unwrap_or(NEVER);
    }

    /// Reports each change once, and says when it is to be reported again.
    fn report_changes(&mut self, at: usize, interface: u8, now_ns: u64, records: &mut Vec<Record>) {
        let Members { groups, links, .. } = self;
        let link = &mut links[at];
        link.changed.retain(|ip| {
            let Some(group) = groups.get_mut(&(interface, *ip)) else { return false };
            group.report(*ip, records);
            if group.is_reported() && group.is_unheard() {
                groups.remove(&(interface, *ip));
                return false;
            }
            !group.is_reported()
        });
        let is_done = link.changed.is_empty();
        let again_ns = now_ns.saturating_add(1 + self.random.below(REPORT_AGAIN_NS));
        self.links[at].changed_due_ns = if is_done { NEVER } else { again_ns };
    }
}

/// Where what is to be reported of a group is kept.
fn place(interface: u8, group: IpAddr) -> usize {
    usize::from(interface) * 2 + usize::from(group.is_ipv6())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn reported(members: &mut Members, now_ns: u64) -> Vec<(Kind, IpAddr, Vec<IpAddr>)> {
        let mut reported = Vec::new();
        members.act(now_ns, |_, _, records| {
            reported.extend(records.iter().cloned().map(|r| (r.kind, r.group, r.senders)));
        });
        reported
    }

    fn query(group: Option<&str>, senders: &[&str]) -> Query {
        let senders = senders.iter().map(|sender| ip(sender)).collect();
        Query { group: group.map(ip), senders, within_ns: SECOND, is_old: false }
    }

    #[test]
    fn a_change_is_reported_twice_and_then_no_more() {
        let (mut members, group) = (Members::new(1, [1, 2]), ip("239.1.1.1"));
        assert!(members.join(0, group, None));
        assert!(!members.join(0, group, None), "a second one who hears it");
        assert_eq!(members.due_ns(), Some(0));
        let joined = [(Kind::ToExclude, group, vec![])];
        assert_eq!(reported(&mut members, 5), joined);
        let again_ns = members.due_ns().expect("once more");
        assert!(again_ns > 5 && again_ns <= 5 + 1 + SECOND);
        assert!(reported(&mut members, again_ns - 1).is_empty());
        assert_eq!(reported(&mut members, again_ns), joined);
        assert_eq!(members.due_ns(), None);
        assert!(!members.leave(0, group, None), "one still hears it");
        assert!(members.leave(0, group, None) && !members.leave(0, group, None));
        assert!(!members.has(0, group));
        for _ in 0..2 {
            let due_ns = members.due_ns().expect("it has left");
            assert_eq!(reported(&mut members, due_ns), [(Kind::ToInclude, group, vec![])]);
        }
        assert_eq!((members.due_ns(), members.len()), (None, 0));
    }

    #[test]
    fn senders_are_reported_as_they_change_unless_all_are_received() {
        let (mut members, group) = (Members::new(1, [1, 2]), ip("ff35::1"));
        let [a, b, c] = ["fd00::a", "fd00::b", "fd00::c"].map(ip);
        members.join(0, group, Some(a));
        members.join(0, group, Some(b));
        assert_eq!(reported(&mut members, 0), [(Kind::Allow, group, vec![a, b])]);
        members.leave(0, group, Some(a));
        let both = [(Kind::Allow, group, vec![b]), (Kind::Block, group, vec![a])];
        assert_eq!(reported(&mut members, 0), both);
        assert!(members.hears(0, group, b) && !members.hears(0, group, a));
        members.join(0, group, None);
        assert_eq!(reported(&mut members, 0), [(Kind::ToExclude, group, vec![])]);
        members.join(0, group, Some(c));
        assert_eq!(reported(&mut members, 2 * SECOND), [(Kind::ToExclude, group, vec![])]);
        assert_eq!(members.due_ns(), None);
        members.leave(0, group, None);
        assert_eq!(reported(&mut members, 0), [(Kind::ToInclude, group, vec![b, c])]);
        assert!(!members.hears(0, group, a));
    }

    #[test]
    fn questions_are_answered_within_their_time_with_what_was_asked() {
        let mut members = Members::new(1, [1, 2]);
        let [any, one, other] = ["239.1.1.1", "232.1.1.1", "239.1.1.9"].map(ip);
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(ip);
        members.join(0, any, None);
        members.join(0, one, Some(a));
        (0..3).for_each(|i| drop(reported(&mut members, i * 2 * SECOND)));
        let all = [(Kind::IsInclude, one, vec![a]), (Kind::IsExclude, any, vec![])];
        for (asked, answer) in [
            (query(None, &[]), &all[..]),
            (query(Some("239.1.1.1"), &[]), &all[1..]),
            (query(Some("239.1.1.1"), &["10.0.0.2"]), &[(Kind::IsInclude, any, vec![b])]),
            (query(Some("232.1.1.1"), &["10.0.0.2", "10.0.0.1"]), &all[..1]),
            (query(Some("232.1.1.1"), &["10.0.0.2"]), &[]),
        ] {
            members.ask(0, true, asked.clone(), 10 * SECOND);
            let due_ns = members.due_ns().expect("an answer is due");
            assert!((10 * SECOND..11 * SECOND).contains(&due_ns));
            assert_eq!(reported(&mut members, due_ns), answer, "{asked:?}");
            assert_eq!(members.due_ns(), None);
        }
        members.ask(0, true, query(Some("239.1.1.9"), &[]), 10 * SECOND);
        assert_eq!((members.due_ns(), members.has(0, other)), (None, false));
        // Of many at once one answer is given, and the general one is enough.
        for _ in 0..100 {
            members.ask(0, true, query(Some("232.1.1.1"), &["10.0.0.1"]), 20 * SECOND);
            members.ask(0, true, query(None, &[]), 20 * SECOND);
        }
        assert_eq!(reported(&mut members, 21 * SECOND).len(), 2);
        assert_eq!(members.due_ns(), None);
        members.hush();
        assert!(members.leave(0, any, None));
        assert_eq!((members.due_ns(), members.len()), (None, 1));
    }

    #[test]
    fn reports_are_in_the_older_version_until_its_router_is_long_silent() {
        let (mut members, group) = (Members::new(1, [1, 2]), ip("239.1.1.1"));
        let mut is_old_at = |asked_ns: Option<u64>, now_ns: u64| {
            let old = Query { is_old: true, ..query(None, &[]) };
            asked_ns.into_iter().for_each(|at_ns| members.ask(0, true, old.clone(), at_ns));
            members.join(0, group, None);
            let mut version = None;
            members.act(now_ns, |_, (v4, is_old), _| version = Some((v4, is_old)));
            members.leave(0, group, None);
            version
        };
        assert_eq!(is_old_at(None, 0), Some((true, false)));
        assert_eq!(is_old_at(Some(SECOND), 3 * SECOND), Some((true, true)));
        assert_eq!(is_old_at(None, 260 * SECOND), Some((true, true)));
        assert_eq!(is_old_at(None, 261 * SECOND), Some((true, false)));
    }

    proptest! {
        /// A router that believes the reports knows what is heard once all is reported.
        #[test]
        fn reports_tell_what_is_heard(
            steps in proptest::collection::vec((any::<bool>(), 0u8..3, 0u8..4, 0u8..3), 0..60)
        ) {
            let mut members = Members::new(1, [3, 4]);
            let mut heard: BTreeMap<IpAddr, (bool, BTreeSet<IpAddr>)> = BTreeMap::new();
            let mut now_ns = 0;
            let mut believe = |records: &[Record]| for record in records {
                let (any, senders) = heard.entry(record.group).or_default();
                match record.kind {
                    Kind::ToExclude => (*any, *senders) = (true, BTreeSet::new()),
                    Kind::ToInclude => {
                        (*any, *senders) = (false, record.senders.iter().copied().collect());
                    }
                    Kind::Allow if !*any => senders.extend(&record.senders),
                    Kind::Block => senders.retain(|sender| !record.senders.contains(sender)),
                    _ => {}
                }
            };
            for (is_join, group, sender, turns) in steps {
                let group = IpAddr::from([239, 0, 0, group]);
                let sender = sender.checked_sub(1).map(|last| IpAddr::from([10, 0, 0, last]));
                if is_join {
                    members.join(0, group, sender);
                } else {
                    members.leave(0, group, sender);
                }
                for _ in 0..turns {
                    now_ns = members.due_ns().unwrap_or(now_ns).max(now_ns);
                    members.act(now_ns, |_, _, records| believe(records));
                }
            }
            while let Some(due_ns) = members.due_ns() {
                now_ns = now_ns.max(due_ns);
                members.act(now_ns, |_, _, records| believe(records));
            }
            for group in 0..3u8 {
                let group = IpAddr::from([239, 0, 0, group]);
                let (any, senders) = heard.remove(&group).unwrap_or_default();
                for last in 0..4u8 {
                    let sender = IpAddr::from([10, 0, 0, last]);
                    let is_wanted = any || senders.contains(&sender);
                    prop_assert_eq!(members.hears(0, group, sender), is_wanted, "{} {}", group, sender);
                }
            }
        }
    }
}
