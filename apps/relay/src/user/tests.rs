//! The relay against a lane that keeps a record: what is opened, what is sent, and what a change that fails
//! leaves behind.

mod interfaces;
mod rates;

use super::*;
use crate::{
    book::{Book, Changed},
    check::Policy,
    rule::Input,
};
use laneway_core::{CapsReport, ClockDomain, Lane, LaneError, Membership, PortPlan, Wake};
use proptest::prelude::*;
use std::{
    collections::BTreeSet,
    io,
    net::UdpSocket,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// A lane whose ports are what they were planned to be, and no more.
#[derive(Debug, Default)]
struct Recorded {
    ports: BTreeMap<u32, PortPlan>,
    next: u32,
    /// Outputs of this class cannot be opened; those of class 63 never can.
    refuses: Option<u8>,
    /// What is not there.
    absent: BTreeSet<String>,
    /// Groups that no route leads to.
    lacks_route: BTreeSet<IpAddr>,
    opens: usize,
    /// Ports that take nothing, and rounds that pass before all has left.
    held: BTreeSet<u32>,
    rounds: usize,
    /// Ports opened and closed, groups joined and left.
    calls: usize,
    /// How often what a port counted was asked for.
    asked: usize,
}

impl Lane for Recorded {
    fn name(&self) -> &'static str {
        "recorded"
    }
    fn ports(&self) -> usize {
        self.ports.len()
    }
    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Virtual
    }
    fn wait(&mut self, _: Duration) -> Result<Wake, LaneError> {
        Ok(Wake::Timeout)
    }
    fn caps(&self, _: PortId) -> &CapsReport {
        unreachable!("no test asks")
    }
    fn counters(&mut self, _: PortId) -> Counters {
        self.asked += 1;
        Counters::default()
    }
}

fn no(name: impl ToString) -> LaneError {
    LaneError::no_interface("recorded", &name.to_string())
}

impl DatagramPorts for Recorded {
    fn open_port(&mut self, plan: &PortPlan) -> Result<PortId, LaneError> {
        if plan.dscp == Some(63) || plan.dscp.is_some() && plan.dscp == self.refuses {
            return Err(no("eth9"));
        }
        self.calls += 1;
        if plan.interface.as_ref().is_some_and(|name| self.absent.contains(name)) {
            return Err(no(plan.interface.as_deref().unwrap_or_default()));
        }
        self.opens += 1;
        self.next += 1;
        self.ports.insert(self.next, plan.clone());
        Ok(PortId(self.next))
    }
    fn close_port(&mut self, port: PortId) -> Result<Counters, LaneError> {
        self.calls += 1;
        let mut counted = Counters::default();
        counted.tx_frames = 1;
        self.ports.remove(&port.0).map(|_| counted).ok_or_else(|| no(port.0))
    }
    fn share_port(&mut self, _: PortId) -> Result<Option<OwnedFd>, LaneError> {
        Ok(Some(UdpSocket::bind("127.0.0.1:0").expect("a free port").into()))
    }
    fn adopt_port(&mut self, plan: &PortPlan, _: OwnedFd) -> Result<PortId, LaneError> {
        self.next += 1;
        self.ports.insert(self.next, plan.clone());
        self.held.insert(self.next);
        Ok(PortId(self.next))
    }
    fn hold_port(&mut self, port: PortId, is_held: bool) -> Result<(), LaneError> {
        match is_held {
            true => self.held.insert(port.0),
            false => self.held.remove(&port.0),
        };
        Ok(())
    }
    fn has_settled(&mut self) -> bool {
        self.rounds = self.rounds.saturating_sub(1);
        self.rounds == 0
    }
    fn join(&mut self, port: PortId, membership: &Membership) -> Result<(), LaneError> {
        if self.lacks_route.contains(&membership.group) && membership.interface.is_none() {
            let why = io::ErrorKind::NetworkUnreachable.into();
            return Err(LaneError::os("recorded", "join", why, "name an interface"));
        }
        self.calls += 1;
        let members = &mut self.ports.get_mut(&port.0).ok_or_else(|| no(port.0))?.memberships;
        assert!(!members.contains(membership), "joined twice");
        // As the kernel has it.
        let clashes = |member: &Membership| {
            member.group == membership.group
                && (member.source.is_none() || membership.source.is_none())
        };
        assert!(!members.iter().any(clashes), "from all and from some");
        members.push(membership.clone());
        Ok(())
    }
    fn leave(&mut self, port: PortId, membership: &Membership) -> Result<(), LaneError> {
        self.calls += 1;
        let members = &mut self.ports.get_mut(&port.0).ok_or_else(|| no(port.0))?.memberships;
        let at = members.iter().position(|member| member == membership);
        members.remove(at.expect("it is a member"));
        Ok(())
    }
}

impl Recorded {
    /// What is open, whatever its numbers: inputs with their groups, outputs with their class.
    fn shape(&self) -> Vec<String> {
        let mut shape: Vec<String> = self
            .ports
            .values()
            .map(|plan| {
                let groups: BTreeSet<_> = plan
                    .memberships
                    .iter()
                    .map(|member| format!("{}<{:?}", member.group, member.source))
                    .collect();
                format!("{} {:?} {:?}", plan.bind, plan.dscp, groups)
            })
            .collect();
        shape.sort();
        shape
    }
}

/// What left, in order.
#[derive(Default)]
struct Sent(Vec<(PortId, SocketAddr, Vec<u8>, usize)>);

impl DatagramOut for Sent {
    fn forward(&mut self, datagram: &Datagram<'_>, egress: PortId, destination: SocketAddr) {
        self.0.push((egress, destination, datagram.payload.to_vec(), datagram.segment_bytes));
    }
    fn send(&mut self, _: PortId, _: SocketAddr, _: usize, _: impl FnOnce(&mut [u8]) -> usize) {
        panic!("a relay has nothing of its own to say");
    }
}

/// A relay with its worker's thread, until dropped.
struct Run {
    book: Arc<Book>,
    worker: Option<thread::JoinHandle<(Relay, Recorded)>>,
    is_over: Arc<AtomicBool>,
}

impl Run {
    fn of(rules: Vec<Rule>, lane: Recorded) -> Run {
        Run::by(Book::new(rules, policy(), 1).expect("they pass"), lane)
    }

    fn by(book: Book, lane: Recorded) -> Run {
        let book = Arc::new(book);
        let (mailbox, is_over) = (book.mailbox(0), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        let worker = thread::spawn(move || {
            let bell = Bell::new().expect("a descriptor");
            let (mut relay, mut lane) = (Relay::new(mailbox, &bell, false), lane);
            while !over.load(Ordering::Relaxed) {
                bell.wait(Duration::from_millis(5));
                if bell.answer() {
                    relay.on_ports(&mut lane, Turn::default());
                }
            }
            (relay, lane)
        });
        Run { book, worker: Some(worker), is_over }
    }

    fn end(mut self) -> (Relay, Recorded) {
        self.is_over.store(true, Ordering::Relaxed);
        self.worker.take().expect("it runs").join().expect("it does not panic")
    }
}

fn policy() -> Policy {
    Policy { allow: vec!["192.0.2.0/24".parse().unwrap()], ..Policy::default() }
}

fn rules(json: &str) -> Vec<Rule> {
    serde_json::from_str(json).expect("well formed")
}

const TWO: &str = r#"[
  {"input":{"group":"239.1.1.1","port":5000},
   "outputs":[{"destination":"192.0.2.1:6000"},{"destination":"239.2.2.2:5000"}]},
  {"input":{"group":"239.1.1.2","port":5000,"sources":["192.0.2.7"]},
   "outputs":[{"destination":"192.0.2.2:6000"}]}]"#;

/// A relay with these rules in force, in this thread.
fn relay(json: &str) -> (Relay, Recorded) {
    let run = Run::of(rules(json), Recorded::default());
    run.book.state().expect("it answers behind its first order");
    run.end()
}

fn datagram<'a>(bytes: &'a [u8], to: &str, from: &str, ingress: PortId) -> Datagram<'a> {
    Datagram {
        payload: laneway_core::Payload::own(bytes),
        segment_bytes: bytes.len(),
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
        is_broadcast: false,
        ingress,
        ts_ns: 0,
    }
}

fn input_of(relay: &Relay) -> PortId {
    relay.seats.open_ports().remove(0)
}

#[test]
fn outputs_are_outside_and_datagrams_inside_in_their_order() {
    let (mut relay, lane) = relay(TWO);
    assert_eq!(lane.ports.len(), 4, "groups of a port share one: {:?}", lane.shape());
    let at = input_of(&relay);
    let (one, two) = ("239.1.1.1:5000", "239.1.1.2:5000");
    let batch = [
        datagram(b"a1", one, "192.0.2.9:1", at),
        datagram(b"b1", two, "192.0.2.7:1", at),
        datagram(b"a2", one, "192.0.2.9:1", at),
        datagram(b"x", "239.1.1.3:5000", "192.0.2.9:1", at),
        datagram(b"y", two, "192.0.2.8:1", at),
        datagram(b"b2", two, "192.0.2.7:1", at),
        datagram(b"z", "10.0.0.1:5000", "192.0.2.9:1", at),
    ];
    let mut out = Sent::default();
    relay.on_datagrams(&batch, Turn::default(), &mut out);
    let sent: Vec<(String, &[u8])> =
        out.0.iter().map(|(_, to, bytes, _)| (to.to_string(), &bytes[..])).collect();
    let mut by_rule = sent.clone();
    by_rule.sort_by_key(|(to, _)| to.ends_with("192.0.2.2:6000"));
    assert_eq!(
        by_rule,
        [
            ("192.0.2.1:6000".to_owned(), &b"a1"[..]),
            ("192.0.2.1:6000".to_owned(), b"a2"),
            ("239.2.2.2:5000".to_owned(), b"a1"),
            ("239.2.2.2:5000".to_owned(), b"a2"),
            ("192.0.2.2:6000".to_owned(), b"b1"),
            ("192.0.2.2:6000".to_owned(), b"b2"),
        ]
    );
    let fates = *relay.fates();
    assert_eq!(fates, Fates { relayed: 4, no_rule: 2, other_source: 1, rate_limited: 0 });
    assert_eq!(fates.total(), relay.counters().rx_frames);
    assert_eq!(relay.copies().asked, 6);
    assert_eq!(relay.copies().handed, 6);
    // Its own outputs are no inputs.
    let stray = datagram(b"?", "192.0.2.1:9", "192.0.2.9:1", out.0[0].0);
    relay.on_datagrams(&[stray], Turn::default(), &mut out);
    assert_eq!((relay.fates().no_rule, out.0.len()), (3, 6));
}

#[test]
fn a_broadcast_is_sent_to_no_address_of_ours_unless_a_rule_names_it() {
    let shown = |input: &str| {
        let run = Run::of(inputs(&[input]), Recorded::default());
        run.book.state().expect("it answers behind its first order");
        let mut relay = run.end().0;
        let at = input_of(&relay);
        let to = |to| datagram(b"x", to, "192.0.2.7:1", at);
        let all = |to_all| Datagram { is_broadcast: true, ..to(to_all) };
        // The same address may be a host's on another interface.
        let batch = [
            to("192.0.2.255:5000"),
            all("192.0.2.255:5000"),
            all("255.255.255.255:5000"),
            to("192.0.2.1:5000"),
        ];
        relay.on_datagrams(&batch, Turn::default(), &mut Sent::default());
        (relay.fates().relayed, relay.fates().no_rule)
    };
    assert_eq!(shown(FAMILY), (2, 2));
    assert_eq!(shown("'address':'192.0.2.255','port':5000,'interface':'eth1'"), (2, 2));
    assert_eq!(shown(GROUP), (0, 4));
}

#[test]
fn a_delay_ends_behind_the_sends_of_its_round() {
    let (mut relay, _) = relay(TWO);
    let at = input_of(&relay);
    let stamped = |bytes: &'static [u8], to: &str, ts_ns| Datagram {
        ts_ns,
        segment_bytes: 1,
        ..datagram(bytes, to, "192.0.2.7:1", at)
    };
    let mut out = Sent::default();
    assert!(!relay.awaits_sent());
    // Stamped by the kernel 5 us before, a train of three; by the lane, now; and for no rule.
    let batch = [
        stamped(b"abc", "239.1.1.1:5000", 10_000),
        stamped(b"d", "239.1.1.2:5000", 15_000),
        stamped(b"e", "239.1.1.3:5000", 10_000),
    ];
    relay.on_datagrams(&batch, Turn { now_ns: 15_000 }, &mut out);
    let delays = |relay: &Relay| -> Vec<(u64, u64)> {
        let rules = relay.rules.iter().flatten();
        let delays = rules.map(|live| &live.delays);
        let mut delays: Vec<_> =
            delays.map(|delays| (delays.classes.iter().sum(), delays.sum_ns)).collect();
        // Whichever rule has the first place.
        delays.sort_unstable_by(|a, b| b.cmp(a));
        delays
    };
    assert_eq!((relay.awaits_sent(), delays(&relay)), (true, vec![(0, 0), (0, 0)]));
    relay.on_sent(Turn { now_ns: 40_000 });
    assert_eq!((relay.awaits_sent(), delays(&relay)), (false, vec![(3, 90_000), (0, 0)]));
    relay.on_sent(Turn { now_ns: 90_000 });
    assert_eq!(delays(&relay)[0], (3, 90_000), "once");
}

#[test]
fn a_train_leaves_whole_and_a_sample_of_it_one_by_one() {
    let json = r#"[{"input":{"group":"239.1.1.1","port":5000},
        "outputs":[{"destination":"192.0.2.1:6000"},{"destination":"192.0.2.2:6000","sample":3}]}]"#;
    let (mut relay, _) = relay(json);
    let bytes: Vec<u8> = (0..10).collect();
    let at = input_of(&relay);
    let train =
        Datagram { segment_bytes: 2, ..datagram(&bytes, "239.1.1.1:5000", "192.0.2.9:1", at) };
    let mut out = Sent::default();
    relay.on_datagrams(&[train, train], Turn::default(), &mut out);
    let whole = out.0.iter().filter(|(.., segment)| *segment == 2 && out.0.len() > 1);
    let of = |to: &str| -> Vec<Vec<u8>> {
        let to: SocketAddr = to.parse().unwrap();
        out.0.iter().filter(|sent| sent.1 == to).map(|sent| sent.2.clone()).collect()
    };
    assert!(whole.count() >= 2);
    assert_eq!(of("192.0.2.1:6000"), [bytes.clone(), bytes.clone()]);
    // Datagrams 0, 3, 6, 9 of the ten.
    assert_eq!(of("192.0.2.2:6000"), [vec![0, 1], vec![6, 7], vec![2, 3], vec![8, 9]]);
    let copies = *relay.copies();
    assert_eq!((copies.asked, copies.handed, copies.sampled_out), (20, 14, 6));
}

#[test]
fn first_rules_that_cannot_be_had_end_the_run_with_the_reason() {
    let json = TWO.replace("\"192.0.2.2:6000\"", "\"192.0.2.2:6000\",\"dscp\":9");
    let run = Run::of(rules(&json), Recorded { refuses: Some(9), ..Recorded::default() });
    let error = run.book.state().expect_err("its first order failed");
    assert!(error.contains("eth9"), "{error}");
    let (relay, lane) = run.end();
    let why = relay.failure().expect("it failed");
    assert!(relay.wants_stop() && why.contains("239.1.1.2:5000") && why.contains("eth9"), "{why}");
    assert_eq!(lane.shape(), [""; 0], "nothing is left open");
}

#[test]
fn a_rule_that_changes_keeps_the_outputs_that_do_not() {
    let run = Run::of(rules(TWO), Recorded::default());
    let mut changed = rules(TWO);
    changed[0].outputs[1].destination = "239.2.2.3:5000".parse().unwrap();
    let did = run.book.replace(changed, false).expect("it can be");
    assert_eq!(did, Changed { added: did.added.clone(), removed: Vec::new(), kept: 1 });
    assert_eq!(did.added.len(), 1);
    let (_, lane) = run.end();
    assert_eq!((lane.opens, lane.ports.len()), (5, 4), "one output was opened, one closed");
}

#[test]
fn senders_of_a_group_may_become_all_senders_and_some_again() {
    let run = Run::of(rules(TWO), Recorded::default());
    for sources in [vec![], vec!["192.0.2.7", "192.0.2.8"], vec!["192.0.2.8"], vec![]] {
        let mut next = rules(TWO);
        next[1].input.sources = sources.iter().map(|ip| ip.parse().unwrap()).collect();
        run.book.replace(next, false).expect("it can be");
    }
    let (relay, lane) = run.end();
    assert_eq!(
        (lane.ports.len(), relay.rules.iter().flatten().count()),
        (5, 2),
        "two inputs, three outputs"
    );
}

/// A set of rules with these inputs.
fn inputs(inputs: &[&str]) -> Vec<Rule> {
    let rule = |input: &&str| {
        let input = input.replace('\'', "\"");
        rules(&format!(
            r#"[{{"input":{{{input}}},"outputs":[{{"destination":"192.0.2.9:6000"}}]}}]"#
        ))
        .remove(0)
    };
    inputs.iter().map(rule).collect()
}

const GROUP: &str = "'group':'239.1.1.1','port':5000,'interface':'eth1'";
const GROUP_OF_ONE: &str =
    "'group':'239.1.1.1','port':5000,'interface':'eth1','sources':['192.0.2.7']";
const FAMILY: &str = "'family':'ipv4','port':5000,'interface':'eth1'";
const ADDRESS: &str = "'address':'192.0.2.1','port':5000,'interface':'eth1'";

#[test]
fn a_rule_whose_socket_another_has_until_it_goes_is_refused_with_what_to_remove_first() {
    // What is there, what is to be there, and what has to go before.
    for (now, next, first) in [
        (&[GROUP, FAMILY][..], &[GROUP_OF_ONE, FAMILY][..], GROUP),
        (&[GROUP_OF_ONE, FAMILY], &[GROUP, FAMILY], GROUP_OF_ONE),
        (&[GROUP], &[GROUP_OF_ONE, FAMILY], GROUP),
        (&[FAMILY], &[ADDRESS], FAMILY),
        (&[GROUP], &[ADDRESS], GROUP),
        (&[ADDRESS], &[GROUP], ADDRESS),
        (&[ADDRESS], &[FAMILY], ADDRESS),
    ] {
        let run = Run::of(inputs(now), Recorded::default());
        let why = run.book.replace(inputs(next), false).expect_err("its socket is not free");
        let first = RuleId::of(&inputs(&[first])[0].input);
        assert!(why.contains(&format!("remove rule {first} first")), "{why}");
        assert_eq!(run.book.rules().len(), now.len());
        run.book.remove(&[first]).expect("it is there");
        run.book.replace(inputs(next), false).expect("the socket is free");
        let (relay, _) = run.end();
        assert_eq!(relay.seats.open_ports().len(), 1, "{now:?} to {next:?}");
    }
    for (now, next) in [
        (&[GROUP][..], &[GROUP_OF_ONE][..]),
        (&[GROUP, FAMILY], &[FAMILY]),
        (&[GROUP, FAMILY], &[GROUP_OF_ONE]),
        (&[FAMILY], &["'family':'ipv4','port':5000,'interface':'eth1','sources':['192.0.2.7']"]),
        (&[ADDRESS], &["'group':'239.1.1.1','port':5000,'interface':'eth2'"]),
    ] {
        let run = Run::of(inputs(now), Recorded::default());
        run.book.replace(inputs(next), false).expect("nothing is in the way");
        run.end();
    }
}

#[test]
fn of_two_sockets_at_one_place_a_rule_about_hosts_has_the_one_that_is_given_what_is_theirs() {
    let other = "'group':'239.1.1.2','port':5000,'interface':'eth1'";
    let mut by_hand = ByHand::of(inputs(&[GROUP, other]), false);
    by_hand.links(&[("eth1", 2)]);
    for next in [&[GROUP_OF_ONE, other][..], &[GROUP_OF_ONE, other, FAMILY]] {
        by_hand.replace(inputs(next), false).1.expect("nothing is in the way");
    }
    // The one that was opened last has the rule, and when the interface is made again, too.
    for index in [2, 3] {
        by_hand.links(&[("eth1", index)]);
        by_hand.turns();
        let seats = &by_hand.relay.seats;
        let open = seats.open_ports();
        let last = open.iter().max_by_key(|port| port.0).expect("two");
        let seat = seats.of_port(*last).expect("it is open");
        assert_eq!(
            (open.len(), seat.about([192, 0, 2, 1].into(), false).len()),
            (2, 1),
            "eth1 is {index}"
        );
    }
}

/// A group, how many senders it lists, and the classes of its outputs.
type Sketch = (u8, u8, Vec<u8>);

/// One step of a random life: what the set is to be, and the class of outputs that cannot be opened.
fn next_set() -> impl Strategy<Value = (Vec<Sketch>, Option<u8>)> {
    let rule = (0u8..6, 0u8..3, prop::collection::btree_set(0u8..5, 1..4));
    let rule = rule.prop_map(|(group, from, outputs)| (group, from, outputs.into_iter().collect()));
    (prop::collection::vec(rule, 0..6), prop::option::weighted(0.3, 0u8..5))
}

/// Rules of a step, one per group.
fn set(step: &[Sketch]) -> Vec<Rule> {
    let by_group: BTreeMap<u8, _> = step.iter().map(|rule| (rule.0, rule)).collect();
    let rules = by_group.into_values().map(|(group, from, outputs)| Rule {
        name: None,
        input: Input {
            interface: None,
            group: Some([239, 1, 1, *group].into()),
            address: None,
            family: None,
            port: 5000 + u16::from(*group % 2),
            sources: (0..*from).map(|n| [192, 0, 2, n].into()).collect(),
        },
        outputs: outputs
            .iter()
            .map(|to| Output {
                dscp: Some(*to),
                ..Output::to(([192, 0, 2, *to], 6000).into(), None)
            })
            .collect(),
        bytes_per_second: None,
    });
    rules.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_is_open_is_what_the_rules_in_force_need_whatever_failed(
        steps in prop::collection::vec(next_set(), 1..8),
    ) {
        let lane = Recorded::default();
        let run = Run::of(Vec::new(), lane);
        let mut wanted: Vec<Rule> = Vec::new();
        for (step, missing) in &steps {
            let mut next = set(step);
            let fails = missing.is_some_and(|class| {
                next.iter().flat_map(|rule| &rule.outputs).any(|output| output.dscp == Some(class))
            });
            if fails {
                for output in next.iter_mut().flat_map(|rule| &mut rule.outputs) {
                    if output.dscp == *missing {
                        output.dscp = Some(63);
                    }
                }
            }
            match run.book.replace(next.clone(), false) {
                Ok(_) => {
                    prop_assert!(!fails || next.is_empty());
                    wanted = next;
                }
                Err(why) => prop_assert!(fails && why.contains("eth9"), "{why}"),
            }
            let in_force = run.book.rules().len();
            prop_assert_eq!(in_force, wanted.len());
        }
        let (relay, lane) = run.end();
        let fresh = Run::of(wanted.clone(), Recorded::default());
        fresh.book.state().expect("it answers");
        let (_, alone) = fresh.end();
        // The same outputs and, over all inputs, the same groups; a group may be on a socket of its own.
        let outputs = |lane: &Recorded| -> Vec<Option<u8>> {
            let mut all: Vec<_> = lane.ports.values().filter(|plan| plan.dscp.is_some()).map(|plan| plan.dscp).collect();
            all.sort();
            all
        };
        let groups = |lane: &Recorded| -> BTreeSet<Membership> {
            lane.ports.values().flat_map(|plan| plan.memberships.clone()).collect()
        };
        prop_assert_eq!(outputs(&lane), outputs(&alone));
        prop_assert_eq!(groups(&lane), groups(&alone));
        let inputs = lane.ports.values().filter(|plan| plan.dscp.is_none());
        prop_assert!(inputs.clone().all(|plan| !plan.memberships.is_empty()), "an input that nothing needs");
        prop_assert_eq!(relay.rules.iter().flatten().count(), wanted.len());
        prop_assert_eq!(relay.seats.open_ports().len(), inputs.count());
    }
}

/// A relay whose turns the test takes itself: an order is carried out when the test says so.
struct ByHand {
    book: Arc<Book>,
    relay: Relay,
    lane: Recorded,
    bell: Bell,
}

impl ByHand {
    fn of(rules: Vec<Rule>, has_own_stack: bool) -> ByHand {
        let book = Arc::new(Book::new(rules, policy(), 1).expect("they pass"));
        let bell = Bell::new().expect("a descriptor");
        let relay = Relay::new(book.mailbox(0), &bell, has_own_stack);
        ByHand { book, relay, lane: Recorded::default(), bell }
    }

    /// So are interfaces from now on.
    fn links(&mut self, there: &[(&str, u32)]) {
        let link = |(name, index): &(&str, u32)| {
            ((*name).to_owned(), laneway_linux::Link { index: *index, is_up: true })
        };
        let links = Arc::new(there.iter().map(link).collect::<Links>());
        self.book.mailbox(0).send_links(&links);
    }

    /// Takes turns while the bell rings; gives the most calls that one of them made.
    fn turns(&mut self) -> usize {
        let mut most = 0;
        while self.bell.answer() {
            let before = self.lane.calls;
            self.relay.on_ports(&mut self.lane, Turn::default());
            most = most.max(self.lane.calls - before);
        }
        most
    }

    /// Changes the rules from another thread, while turns are taken here; gives the most calls of a turn.
    fn replace(&mut self, rules: Vec<Rule>, waits: bool) -> (usize, Result<Changed, String>) {
        let book = Arc::clone(&self.book);
        let change = thread::spawn(move || book.replace(rules, waits));
        let mut most = 0;
        while !change.is_finished() {
            self.bell.wait(Duration::from_millis(1));
            most = most.max(self.turns());
        }
        (most, change.join().expect("it does not panic"))
    }

    fn state(&mut self) -> WorkerState {
        self.relay.state(&mut self.lane, usize::MAX)
    }
}

/// So many rules of a group each on one port, with so many outputs.
fn many(rules: u16, outputs: u16, dscp: u8) -> Vec<Rule> {
    let rule = |n: u16| Rule {
        name: None,
        input: Input {
            interface: Some("in0".to_owned()),
            group: Some([239, 1, (n >> 8) as u8, n as u8].into()),
            address: None,
            family: None,
            port: 5000,
            sources: Vec::new(),
        },
        outputs: (0..outputs)
            .map(|to| Output {
                dscp: Some(dscp),
                ..Output::to(([192, 0, 2, 1], 6000 + to).into(), Some("out0".to_owned()))
            })
            .collect(),
        bytes_per_second: None,
    };
    (0..rules).map(rule).collect()
}

#[test]
fn a_turn_makes_a_bounded_number_of_calls_however_many_groups_are_joined_or_left() {
    let mut by_hand = ByHand::of(many(1000, 1, 1), false);
    by_hand.links(&[("in0", 2), ("out0", 3)]);
    let most = by_hand.turns();
    assert!((1..=work::CALLS_PER_ROUND).contains(&most), "{most} calls when it begins");
    assert_eq!(by_hand.lane.ports.len(), 1001);
    // One rule stays, so the port does, and leaves 999 groups.
    let (most, changed) = by_hand.replace(many(1, 1, 1), false);
    assert_eq!(changed.expect("it can be").removed.len(), 999);
    assert!((1..=work::CALLS_PER_ROUND).contains(&most), "{most} calls when rules go");
    assert_eq!(by_hand.lane.ports.len(), 2);
    assert_eq!(by_hand.lane.ports.values().map(|plan| plan.memberships.len()).sum::<usize>(), 1);
    by_hand.replace(many(1000, 1, 1), false).1.expect("it can be");
    // Another interface has the name: all groups are joined again, and all outputs opened.
    by_hand.links(&[("in0", 4), ("out0", 5)]);
    let most = by_hand.turns();
    assert!((1..=work::CALLS_PER_ROUND).contains(&most), "{most} calls when interfaces change");
    let groups = by_hand.lane.ports.values().map(|plan| plan.memberships.len()).sum::<usize>();
    assert_eq!((by_hand.lane.ports.len(), groups), (1001, 1000));
    assert_eq!(by_hand.state().waiting(), 0);
}

#[test]
fn one_change_among_a_thousand_touches_the_ports_of_its_rule_alone() {
    let mut by_hand = ByHand::of(many(1000, 8, 1), false);
    by_hand.turns();
    let (opens, calls) = (by_hand.lane.opens, by_hand.lane.calls);
    assert_eq!(opens, 8001);
    let mut next = many(1000, 8, 1);
    next[500].outputs[3].dscp = Some(2);
    let (_, changed) = by_hand.replace(next, false);
    assert_eq!(changed.expect("it can be").kept, 999);
    assert_eq!(by_hand.lane.opens - opens, 1, "the output that changed");
    assert_eq!(by_hand.lane.calls - calls, 2, "opened, and the former one closed");
    let ports = by_hand.lane.ports.len();
    let (_, changed) = by_hand.replace(many(999, 8, 1), false);
    changed.expect("it can be");
    // Rule 500 is as it was: one output more; the last rule's eight outputs and its group less.
    assert_eq!(by_hand.lane.calls - calls, 2 + 2 + 8 + 1);
    assert_eq!(ports - by_hand.lane.ports.len(), 8);
}

#[test]
fn a_page_has_every_rule_and_as_many_outputs_as_are_shown() {
    for (of_the_last, left_out) in [(0, 0), (1, 1), (76, 76)] {
        let mut rules = many(1, 1024, 1);
        rules.extend(many(2, of_the_last.max(1), 1).pop().filter(|_| of_the_last > 0));
        let n = rules.len();
        let run = Run::of(rules, Recorded::default());
        let mut page = laneway_metrics::Page::new();
        crate::figures::add(&run.book, &mut page);
        let text = page.render();
        let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(count("laneway_relay_rule_datagrams_total{"), n);
        assert_eq!(count("laneway_relay_batch_datagrams_count "), 1);
        assert_eq!(count("laneway_relay_output_sent_total{"), 1024);
        assert!(text.contains(&format!("\nlaneway_relay_outputs_left_out {left_out}\n")), "{text}");
        let (_, lane) = run.end();
        assert_eq!(lane.asked, 1024, "more are not asked for");
    }
}

#[test]
fn a_successor_has_the_same_inputs_and_receives_from_the_handover_on() {
    let all = TWO.replace("5000,\"sources\"", "5001,\"sources\"");
    let one = Run::of(rules(&all), Recorded { rounds: 5, ..Recorded::default() });
    let share = one.book.share().expect("it runs");
    assert_eq!(share.rules.len(), 2);
    let mut inputs = share.inputs.expect("they are sockets");
    assert_eq!((inputs.len(), inputs[0].len()), (1, 2));
    assert!(inputs[0].iter().all(|input| input.rules.len() == 1 && input.memberships.len() == 1));

    let book = Book::new(share.rules, policy(), 1).expect("they pass");
    book.hand(0, inputs.remove(0));
    let two = Run::by(book, Recorded::default());
    two.book.begun().expect("it has its first rules");
    // Another set is another offer.
    assert!(one.book.cease(share.generation + 1).is_err());
    drop(one.book.cease(share.generation).expect("all leaves"));
    one.book.cease(share.generation).expect("all leaves").over();
    two.book.receive().expect("it runs");
    let ((_, before), (relay, after)) = (one.end(), two.end());
    assert_eq!((before.held.len(), after.held.len()), (2, 0), "{before:?} {after:?}");
    assert_eq!((after.shape(), after.opens), (before.shape(), 3), "outputs alone are opened");
    assert!(relay.seats.are_taken());
}
