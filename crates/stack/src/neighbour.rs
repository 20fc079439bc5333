//! Which host has which link address: one table for ARP and ND, and the packets that wait for it.
//!
//! The states are those of RFC 4861, for both IP versions, without DELAY: an entry that is used after
//! its confirmation ran out is probed at once, and used meanwhile. What strangers may do is narrow.
//! Only a question for our own address, or the answer to a question of ours, makes an entry; an
//! announcement changes only what is known already. Traffic alone teaches nothing: answers to a
//! frame go back to its source MAC address, and are not remembered here. A machine that shares
//! the link can still lie about addresses, as ARP and ND allow.
//!
//! What must always hold: entries and waiting packets are bounded, and every packet that waited in
//! vain is given back to be counted.

use crate::{address::is_unicast_mac, config::HostLimits, limit::RateLimit, siphash::Keyed};
use laneway_core::{Counters, DropReason, PortId};
use laneway_wire::Mac;
use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
};

/// Entries looked at to find one that can make room.
const EVICTION_SAMPLE: usize = 8;

/// An address on one interface's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NeighbourKey {
    pub(crate) interface: u8,
    pub(crate) address: IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Asked for, no answer yet: the MAC address is unknown.
    Incomplete,
    /// Confirmed until then.
    Reachable { until_ns: u64 },
    /// Known and not confirmed.
    Stale,
    /// Known, used, and asked to confirm.
    Probe,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: NeighbourKey,
    mac: Mac,
    state: State,
    /// Solicitations sent since the state began.
    solicits: u32,
    /// When to solicit or give up next; meaningful in Incomplete and Probe.
    act_at_ns: u64,
    used_ns: u64,
}

/// What a packet stated about a link address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The owner asked for our address (ARP request, neighbour solicitation).
    Asked,
    /// The owner answers (ARP reply to us, neighbour advertisement).
    Answered { solicited: bool, overrides: bool },
    /// The owner tells all hosts (gratuitous ARP).
    Announced,
}

/// A packet that waits for a link address: IP header and payload.
pub(crate) struct Waiting {
    place: NeighbourKey,
    pub(crate) bytes: Vec<u8>,
    /// The port of the stack that sent it, and its payload bytes.
    pub(crate) account: Account,
}

/// Whose counters a packet goes to: a port of the stack and the payload bytes to count there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) port: PortId,
    pub(crate) payload_bytes: u32,
}

impl Account {
    /// What was counted there as sent was refused.
    pub(crate) fn refuse(self, counters: &mut Counters) {
        counters.drop_one(DropReason::TxRefused);
        counters.tx_frames = counters.tx_frames.saturating_sub(1);
        counters.tx_bytes = counters.tx_bytes.saturating_sub(self.payload_bytes.into());
    }
}

/// A question to send: to all hosts, or to the neighbour whose answer ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Solicit {
    pub(crate) place: NeighbourKey,
    pub(crate) mac: Option<Mac>,
}

/// The table.
pub(crate) struct Neighbours {
    limits: HostLimits,
    index: HashMap<NeighbourKey, u32, Keyed>,
    entries: Vec<Entry>,
    /// Where the search for room goes on.
    hand: usize,
    /// No entry wants anything before this time.
    act_at_ns: u64,
    solicits: RateLimit,
    waiting: VecDeque<Waiting>,
    /// Memory of packets that no longer wait.
    spare: Vec<Vec<u8>>,
}

impl Neighbours {
    pub(crate) fn new(limits: HostLimits, secret: [u64; 2]) -> Neighbours {
        let burst = limits.solicits_per_second.min(32);
        Neighbours {
            index: HashMap::with_capacity_and_hasher(limits.neighbours_max, Keyed(secret)),
            entries: Vec::with_capacity(limits.neighbours_max),
            hand: 0,
            act_at_ns: u64::MAX,
            solicits: RateLimit::new(limits.solicits_per_second, burst),
            waiting: VecDeque::with_capacity(limits.waiting_max),
            spare: Vec::new(),
            limits,
        }
    }

    /// How many neighbours are known or asked for.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The MAC address of `place`, for a packet that goes there now. If it is unknown, it is asked
    /// for from here on; if its confirmation ran out, it is probed.
    pub(crate) fn find(&mut self, place: NeighbourKey, now_ns: u64) -> Option<Mac> {
        let Some(&i) = self.index.get(&place) else {
            self.insert(place, [0; 6], State::Incomplete, now_ns);
            return None;
        };
        let entry = &mut self.entries[i as usize];
        entry.used_ns = now_ns;
        match entry.state {
            State::Incomplete => None,
            State::Reachable { until_ns } if now_ns < until_ns => Some(entry.mac),
            State::Reachable { .. } | State::Stale => {
                entry.state = State::Probe;
                entry.solicits = 0;
                entry.act_at_ns = now_ns;
                self.act_at_ns = self.act_at_ns.min(now_ns);
                Some(entry.mac)
            }
            State::Probe => Some(entry.mac),
        }
    }

    /// Takes note of what was stated for `place`, with its link address or, where that is taken for known, without.
    /// True if packets may wait for it that can go now.
    pub(crate) fn hear(
        &mut self,
        place: NeighbourKey,
        mac: Option<Mac>,
        word: Word,
        now_ns: u64,
    ) -> bool {
        if mac.is_some_and(|mac| !is_unicast_mac(mac)) {
            return false;
        }
        let reachable =
            State::Reachable { until_ns: now_ns.saturating_add(self.limits.reachable_ns) };
        let Some(&i) = self.index.get(&place) else {
            if let (Word::Asked, Some(mac)) = (word, mac) {
                self.insert(place, mac, State::Stale, now_ns);
            }
            return false;
        };
        let entry = &mut self.entries[i as usize];
        let was_unknown = entry.state == State::Incomplete;
        // One who was asked at the known address may leave it out (RFC 4861, 7.2.4 and 7.2.5).
        let known = (!was_unknown).then_some(entry.mac);
        let Some(mac) = mac.or(known) else { return false };
        let same = known == Some(mac);
        let state = match word {
            Word::Answered { solicited: true, overrides } => {
                if same || was_unknown || overrides {
                    reachable
                } else if matches!(entry.state, State::Reachable { .. }) {
                    // A second owner, and no claim to be the newer one: doubt the first
                    // (RFC 4861, 7.2.5).
                    entry.state = State::Stale;
                    return false;
                } else {
                    return false;
                }
            }
            Word::Answered { solicited: false, overrides: false } if !was_unknown && !same => {
                return false;
            }
            // Nothing new, and no proof that the way there and back works.
            _ if same => return false,
            _ => State::Stale,
        };
        entry.mac = mac;
        entry.state = state;
        entry.solicits = 0;
        was_unknown
    }

    /// Puts a packet aside until `place` is known. Gives back the account of the packet that had to
    /// make room, if one had to.
    pub(crate) fn wait(
        &mut self,
        place: NeighbourKey,
        bytes: &[u8],
        account: Account,
    ) -> Option<Account> {
        if self.limits.waiting_per_neighbour == 0 || self.limits.waiting_max == 0 {
            return Some(account);
        }
        let here = self.waiting.iter().filter(|w| w.place == place).count();
        let oldest = if here >= self.limits.waiting_per_neighbour {
            self.waiting.iter().position(|w| w.place == place)
        } else if self.waiting.len() >= self.limits.waiting_max {
            Some(0)
        } else {
            None
        };
        let displaced = oldest.and_then(|i| self.waiting.remove(i)).map(|old| {
            let account = old.account;
            self.recycle(old);
            account
        });
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(bytes);
        self.waiting.push_back(Waiting { place, bytes: memory, account });
        displaced
    }

    /// Takes one packet that waits for `place`, in the order in which they arrived.
    pub(crate) fn take_waiting(&mut self, place: NeighbourKey) -> Option<Waiting> {
        let i = self.waiting.iter().position(|w| w.place == place)?;
        self.waiting.remove(i)
    }

    /// Keeps the memory of a packet that no longer waits.
    pub(crate) fn recycle(&mut self, waiting: Waiting) {
        if self.spare.len() < self.limits.waiting_max {
            self.spare.push(waiting.bytes);
        }
    }

    /// When [`Neighbours::next_act`] next has something.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        (self.act_at_ns != u64::MAX).then_some(self.act_at_ns)
    }

    /// Solicits, gives up and forgets what is due: `is_known` says that no question is needed, `ask`
    /// sends one, `lose` counts a packet that waited in vain.
    pub(crate) fn act(
        &mut self,
        now_ns: u64,
        mut is_known: impl FnMut(Solicit) -> bool,
        mut ask: impl FnMut(Solicit),
        mut lose: impl FnMut(Account),
    ) {
        if now_ns < self.act_at_ns {
            return;
        }
        let mut next_ns = u64::MAX;
        let mut i = 0;
        while i < self.entries.len() {
            let entry = &mut self.entries[i];
            let wants = matches!(entry.state, State::Incomplete | State::Probe);
            if wants && now_ns >= entry.act_at_ns {
                if entry.solicits >= self.limits.solicits_max {
                    let place = entry.place;
                    self.remove(i);
                    while let Some(lost) = self.take_waiting(place) {
                        lose(lost.account);
                        self.recycle(lost);
                    }
                    continue; // Another entry is at `i` now.
                }
                entry.act_at_ns = now_ns.saturating_add(self.limits.solicit_interval_ns);
                // A question that the rate limit holds back counts as asked, so that a flood of
                // unknown neighbours ends by itself.
                entry.solicits += 1;
                let mac = (entry.state == State::Probe).then_some(entry.mac);
                let question = Solicit { place: entry.place, mac };
                if !is_known(question) && self.solicits.allow(now_ns) {
                    ask(question);
                }
            }
            if wants {
                next_ns = next_ns.min(entry.act_at_ns);
            } else if now_ns.saturating_sub(entry.used_ns) > self.limits.forget_ns {
                self.remove(i);
                continue;
            }
            i += 1;
        }
        self.act_at_ns = next_ns;
        // Only the round that follows an eviction finds any.
        while let Some(orphan) = self.waiting.iter().find(|w| !self.index.contains_key(&w.place)) {
            let place = orphan.place;
            if let Some(lost) = self.take_waiting(place) {
                lose(lost.account);
                self.recycle(lost);
            }
        }
    }

    fn insert(&mut self, place: NeighbourKey, mac: Mac, state: State, now_ns: u64) {
        if self.entries.len() >= self.limits.neighbours_max {
            self.evict();
        }
        let entry = Entry { place, mac, state, solicits: 0, act_at_ns: now_ns, used_ns: now_ns };
        self.index.insert(place, self.entries.len() as u32);
        self.entries.push(entry);
        if state == State::Incomplete {
            self.act_at_ns = self.act_at_ns.min(now_ns);
        }
    }

    /// Removes the one of a few entries that was unused for longest. A full search would let a flood
    /// of questions cost the whole table each time.
    fn evict(&mut self) {
        let count = self.entries.len();
        let sample = (0..EVICTION_SAMPLE.min(count)).map(|step| (self.hand + step) % count);
        if let Some(i) = sample.min_by_key(|&i| self.entries[i].used_ns) {
            if self.entries[i].state == State::Incomplete {
                self.act_at_ns = 0; // Packets may have lost the host they wait for.
            }
            self.remove(i);
        }
        self.hand = (self.hand + EVICTION_SAMPLE) % count;
    }

    fn remove(&mut self, i: usize) {
        let gone = self.entries.swap_remove(i);
        self.index.remove(&gone.place);
        if let Some(moved) = self.entries.get(i) {
            self.index.insert(moved.place, i as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const MAC: Mac = [2, 0, 0, 0, 0, 9];
    const OTHER: Mac = [2, 0, 0, 0, 0, 10];

    fn place(last: u8) -> NeighbourKey {
        NeighbourKey { interface: 0, address: IpAddr::from([10, 0, 0, last]) }
    }

    fn table(change: impl FnOnce(&mut HostLimits)) -> Neighbours {
        let mut limits = HostLimits::default();
        change(&mut limits);
        Neighbours::new(limits, [1, 2])
    }

    /// The questions and the losses of one round.
    fn act(table: &mut Neighbours, now_ns: u64) -> (Vec<Solicit>, usize) {
        let (mut asked, mut lost) = (Vec::new(), 0);
        table.act(now_ns, |_| false, |question| asked.push(question), |_| lost += 1);
        (asked, lost)
    }

    const ACCOUNT: Account = Account { port: PortId(0), payload_bytes: 1 };
    const ANSWER: Word = Word::Answered { solicited: true, overrides: true };

    #[test]
    fn an_unknown_neighbour_is_asked_for_three_times_and_given_up() {
        let mut t = table(|_| ());
        assert_eq!(t.find(place(1), 0), None);
        assert_eq!(t.wait(place(1), b"packet", ACCOUNT), None);
        for second in 0..3 {
            let (asked, lost) = act(&mut t, second * SECOND);
            assert_eq!((asked.len(), asked[0].mac, lost), (1, None, 0), "second {second}");
            assert_eq!(t.due_ns(), Some((second + 1) * SECOND));
        }
        assert_eq!(act(&mut t, 3 * SECOND), (vec![], 1));
        assert_eq!((t.len(), t.due_ns()), (0, None));
    }

    #[test]
    fn an_answer_releases_what_waits_in_order() {
        let mut t = table(|_| ());
        t.find(place(1), 0);
        t.wait(place(1), b"first", ACCOUNT);
        t.wait(place(1), b"second", ACCOUNT);
        assert!(t.hear(place(1), Some(MAC), ANSWER, 5));
        assert_eq!(t.find(place(1), 5), Some(MAC));
        assert_eq!(t.take_waiting(place(1)).unwrap().bytes, b"first");
        assert_eq!(t.take_waiting(place(1)).unwrap().bytes, b"second");
        assert!(t.take_waiting(place(1)).is_none());
    }

    #[test]
    fn a_confirmation_runs_out_and_is_asked_for_while_the_address_stays_in_use() {
        let mut t = table(|_| ());
        t.find(place(1), 0);
        t.hear(place(1), Some(MAC), ANSWER, 0);
        assert_eq!(act(&mut t, 29 * SECOND).0, []);
        assert_eq!(t.find(place(1), 31 * SECOND), Some(MAC));
        let (asked, _) = act(&mut t, 31 * SECOND);
        assert_eq!(asked, [Solicit { place: place(1), mac: Some(MAC) }]);
        assert_eq!(t.find(place(1), 32 * SECOND), Some(MAC));
        t.hear(place(1), Some(MAC), ANSWER, 32 * SECOND);
        assert_eq!(act(&mut t, 33 * SECOND).0, []);
        assert_eq!(t.due_ns(), None);
    }

    #[test]
    fn announcements_change_what_is_known_and_make_nothing() {
        let mut t = table(|_| ());
        assert!(!t.hear(place(1), Some(MAC), Word::Announced, 0));
        assert_eq!(t.len(), 0);
        t.hear(place(1), Some(MAC), Word::Asked, 0);
        t.hear(place(1), Some(OTHER), Word::Announced, 1);
        assert_eq!((t.len(), t.find(place(1), 2)), (1, Some(OTHER)));
        assert!(!t.hear(place(1), Some([1; 6]), Word::Announced, 3));
        assert_eq!(t.find(place(1), 4), Some(OTHER));
    }

    #[test]
    fn a_second_owner_that_does_not_override_only_raises_doubt() {
        let mut t = table(|_| ());
        t.find(place(1), 0);
        t.hear(place(1), Some(MAC), ANSWER, 0);
        t.hear(place(1), Some(OTHER), Word::Answered { solicited: true, overrides: false }, 1);
        assert_eq!(t.find(place(1), 2), Some(MAC));
        assert_eq!(act(&mut t, 2).0, [Solicit { place: place(1), mac: Some(MAC) }]);
    }

    #[test]
    fn the_oldest_packet_makes_room_and_is_given_back() {
        let mut t = table(|l| (l.waiting_per_neighbour, l.waiting_max) = (2, 3));
        let account = |port| Account { port: PortId(port), payload_bytes: 1 };
        assert_eq!(t.wait(place(1), b"a", account(0)), None);
        assert_eq!(t.wait(place(1), b"b", account(1)), None);
        assert_eq!(t.wait(place(1), b"c", account(2)), Some(account(0)));
        assert_eq!(t.wait(place(2), b"d", account(3)), None);
        assert_eq!(t.wait(place(3), b"e", account(4)), Some(account(1)));
    }

    #[test]
    fn a_flood_of_unknown_neighbours_is_asked_for_at_a_bounded_rate() {
        let mut t = table(|l| l.solicits_per_second = 10);
        (0..200).for_each(|i| assert_eq!(t.find(place(i), SECOND), None));
        assert_eq!(act(&mut t, SECOND).0.len(), 10);
        for second in 2..6 {
            act(&mut t, second * SECOND);
        }
        assert_eq!(t.len(), 0);
    }

    #[test]
    fn an_unused_neighbour_is_forgotten() {
        let mut t = table(|_| ());
        t.hear(place(1), Some(MAC), Word::Asked, 0);
        t.find(place(2), 700 * SECOND);
        act(&mut t, 700 * SECOND);
        assert_eq!(t.len(), 1);
    }

    proptest! {
        #[test]
        fn the_table_stays_bounded_and_consistent_under_any_messages(
            steps in proptest::collection::vec((0u8..4, 0u8..20, 0u64..2_000_000_000), 1..300)
        ) {
            let mut t = table(|l| (l.neighbours_max, l.waiting_max) = (8, 4));
            let mut now = 0;
            for (what, who, passed) in steps {
                now += passed;
                match what {
                    0 => { t.hear(place(who), Some(MAC), Word::Asked, now); }
                    1 => if t.find(place(who), now).is_none() {
                        t.wait(place(who), b"x", ACCOUNT);
                    },
                    2 => { t.hear(place(who), Some(OTHER), ANSWER, now); }
                    _ => { act(&mut t, now); }
                }
                prop_assert!(t.len() <= 8 && t.waiting.len() <= 4);
                for (i, entry) in t.entries.iter().enumerate() {
                    prop_assert_eq!(t.index.get(&entry.place), Some(&(i as u32)));
                }
                prop_assert_eq!(t.index.len(), t.entries.len());
            }
        }
    }
}
