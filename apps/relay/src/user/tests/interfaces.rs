//! Interfaces and routes that come and go, and what of rules and groups follows them.

use super::*;
use std::cell::Cell;

#[test]
fn a_rule_waits_for_its_interfaces_and_begins_with_them() {
    let mut by_hand = ByHand::of(many(2, 2, 1), false);
    by_hand.lane.absent = ["in0", "out0"].map(str::to_owned).into();
    by_hand.links(&[("lo", 1)]);
    by_hand.turns();
    assert!(by_hand.relay.failure().is_none() && by_hand.lane.ports.is_empty());
    let state = by_hand.state();
    assert_eq!(state.waiting(), 2);
    assert_eq!(state.rules[0].missing.as_deref(), Some("there is no interface `in0`"));
    // The input appears; copies that cannot leave are counted by output.
    by_hand.lane.absent.remove("in0");
    by_hand.links(&[("lo", 1), ("in0", 2)]);
    by_hand.turns();
    let at = input_of(&by_hand.relay);
    let stray = datagram(b"a", "239.1.0.1:5000", "192.0.2.9:1", at);
    let mut out = Sent::default();
    by_hand.relay.on_datagrams(&[stray], Turn::default(), &mut out);
    assert_eq!((out.0.len(), by_hand.relay.copies().passed_over), (0, 2));
    let state = by_hand.state();
    let rule = state.rules.iter().find(|rule| rule.datagrams == 1).expect("one was shown");
    assert_eq!(rule.missing, None);
    assert_eq!(rule.outputs[0].drops["no_route"], 1);
    // All is there.
    by_hand.lane.absent.clear();
    by_hand.links(&[("lo", 1), ("in0", 2), ("out0", 3)]);
    by_hand.turns();
    assert_eq!((by_hand.state().waiting(), by_hand.lane.ports.len()), (0, 5));
    assert_eq!(input_of(&by_hand.relay), at, "an input that is there is not touched");
    by_hand.relay.on_datagrams(&[stray], Turn::default(), &mut out);
    assert_eq!(out.0.len(), 2);
    // The way out goes, and what its ports counted stays counted; it comes back as another interface.
    by_hand.links(&[("lo", 1), ("in0", 2)]);
    by_hand.turns();
    assert_eq!((by_hand.state().waiting(), by_hand.lane.ports.len()), (2, 1));
    by_hand.links(&[("lo", 1), ("in0", 2), ("out0", 9)]);
    by_hand.turns();
    let state = by_hand.state();
    assert_eq!((state.waiting(), by_hand.lane.ports.len()), (0, 5));
    assert!(state.rules.iter().flat_map(|rule| &rule.outputs).all(|output| output.sent == 1));
}

thread_local! {
    /// Where the kernel of a test would have a group.
    static CHOSEN: Cell<Option<u32>> = const { Cell::new(None) };
}

fn memberships(by_hand: &ByHand) -> usize {
    by_hand.lane.ports.values().map(|plan| plan.memberships.len()).sum()
}

/// So many rules of a group each, which name no interface to receive it on.
fn many_anywhere(rules: u16) -> Vec<Rule> {
    let mut rules = many(rules, 1, 1);
    rules.iter_mut().for_each(|rule| rule.input.interface = None);
    rules
}

#[test]
fn a_group_that_cannot_be_joined_keeps_no_other_of_its_port_out() {
    for lacking in [0, 1, 2] {
        let mut by_hand = ByHand::of(many_anywhere(3), false);
        by_hand.relay.seats = Seats::new(|_| CHOSEN.get());
        CHOSEN.set(Some(2));
        by_hand.links(&[("in0", 2), ("out0", 3)]);
        by_hand.turns();
        assert_eq!(memberships(&by_hand), 3);
        // Its interface is made again, and the route to one group is not.
        by_hand.lane.lacks_route = [IpAddr::from([239, 1, 0, lacking])].into();
        CHOSEN.set(None);
        by_hand.links(&[("out0", 3)]);
        by_hand.turns();
        CHOSEN.set(Some(9));
        by_hand.links(&[("in0", 9), ("out0", 3)]);
        by_hand.turns();
        assert_eq!(memberships(&by_hand), 2, "all but {lacking}");
        assert!(by_hand.state().waiting() > 0);
        by_hand.lane.lacks_route.clear();
        by_hand.links(&[("in0", 9), ("out0", 3)]);
        by_hand.turns();
        assert_eq!((memberships(&by_hand), by_hand.state().waiting()), (3, 0));
    }
}

#[test]
fn groups_that_name_no_interface_are_where_the_kernel_would_have_them() {
    let rules = many_anywhere(40);
    let groups: BTreeSet<IpAddr> = rules.iter().filter_map(|rule| rule.input.group).collect();
    let mut by_hand = ByHand::of(rules, false);
    by_hand.relay.seats = Seats::new(|_| CHOSEN.get());
    CHOSEN.set(Some(2));
    by_hand.links(&[("in0", 2), ("out0", 3)]);
    by_hand.turns();
    let calls = by_hand.lane.calls;
    by_hand.links(&[("in0", 2), ("out0", 3), ("in1", 4)]);
    by_hand.turns();
    assert_eq!(by_hand.lane.calls, calls, "what comes elsewhere touches nothing");
    // A route that goes while its interface stays takes no membership away.
    CHOSEN.set(None);
    by_hand.links(&[("in0", 2), ("out0", 3)]);
    by_hand.turns();
    assert_eq!((by_hand.lane.calls, by_hand.state().waiting()), (calls, 0));
    // The interface goes, too, and comes again before the route does.
    by_hand.lane.lacks_route = groups;
    by_hand.links(&[("out0", 3)]);
    by_hand.turns();
    assert_eq!((memberships(&by_hand), by_hand.state().waiting()), (0, 40));
    by_hand.links(&[("in0", 9), ("out0", 3)]);
    by_hand.turns();
    assert_eq!((memberships(&by_hand), by_hand.state().waiting()), (0, 40));
    (by_hand.lane.lacks_route, by_hand.lane.calls) = (BTreeSet::new(), 0);
    CHOSEN.set(Some(9));
    by_hand.links(&[("in0", 9), ("out0", 3)]);
    let most = by_hand.turns();
    assert!((1..=work::CALLS_PER_ROUND).contains(&most), "{most} calls");
    assert_eq!((memberships(&by_hand), by_hand.state().waiting()), (40, 0));
    // Another route, and nothing else is new: it is looked at now and then.
    CHOSEN.set(Some(3));
    by_hand.lane.calls = 0;
    by_hand.links(&[("in0", 9), ("out0", 3)]);
    by_hand.turns();
    assert_eq!(by_hand.lane.calls, 0);
    let later = Turn { now_ns: 5_000_000_000 };
    by_hand.relay.on_tick(later, &mut Sent::default());
    by_hand.turns();
    assert_eq!((by_hand.lane.calls, memberships(&by_hand)), (80, 40), "left and joined");
    by_hand.relay.on_tick(Turn { now_ns: 9_000_000_000 }, &mut Sent::default());
    by_hand.turns();
    assert_eq!(by_hand.lane.calls, 80, "nothing is asked while nothing happens");
}

#[test]
fn a_name_that_no_interface_has_is_refused_unless_its_rule_waits_or_it_is_known() {
    let mut by_hand = ByHand::of(many(1, 1, 1), false);
    by_hand.links(&[("in0", 2), ("out0", 3)]);
    by_hand.turns();
    by_hand.lane.absent = ["out7".to_owned(), "out0".to_owned()].into();
    let mut typed = many(1, 1, 1);
    typed[0].outputs[0].interface = Some("out7".to_owned());
    let (_, refused) = by_hand.replace(typed.clone(), false);
    let why = refused.expect_err("there is no such interface");
    assert!(why.contains("out7") && why.contains("--wait"), "{why}");
    assert_eq!(by_hand.lane.ports.len(), 2, "the rule that is in force stays");
    // One that a rule is on already may come while it is gone.
    by_hand.replace(many(1, 2, 1), false).1.expect("`out0` is no mistake");
    assert_eq!(by_hand.state().waiting(), 1);
    by_hand.replace(typed, true).1.expect("it waits");
    let waits = by_hand.state().rules[0].outputs[0].missing.clone();
    assert_eq!(waits.as_deref(), Some("there is no interface `out7`"));
}

#[test]
fn an_interface_of_a_stack_that_is_gone_is_reported_and_touched_no_more() {
    let mut by_hand = ByHand::of(many(1, 1, 1), true);
    by_hand.links(&[("in0", 2), ("out0", 3)]);
    by_hand.turns();
    let calls = by_hand.lane.calls;
    by_hand.links(&[("in0", 2), ("out0", 8)]);
    by_hand.turns();
    let state = by_hand.state();
    let waits = state.rules[0].outputs[0].missing.as_deref().unwrap_or_default();
    assert!(waits.contains("`out0`") && waits.contains("gone"), "{waits}");
    assert_eq!((state.rules[0].missing.as_deref(), by_hand.lane.calls), (None, calls));
}

#[test]
fn a_run_without_routes_takes_rules_that_name_its_interfaces_and_no_others() {
    let interfaces = Some(["in0", "out0"].map(str::to_owned).to_vec());
    let policy = Policy { interfaces, socket_workers: 0, ..policy() };
    let book = Book::new(many(2, 1, 1), policy, 1).expect("they name them");
    let run = Run::by(book, Recorded::default());
    let before = run.book.rules();
    for (input, output, says) in [
        (None, Some("out0"), "name an interface for the input and for every output"),
        (Some("in0"), None, "name an interface for the input and for every output"),
        (Some("in7"), Some("out0"), "no interface `in7`; it has in0, out0"),
        (Some("in0"), Some("out7"), "no interface `out7`; it has in0, out0"),
    ] {
        let mut rule = many(3, 1, 1).remove(2);
        rule.input.interface = input.map(str::to_owned);
        rule.outputs[0].interface = output.map(str::to_owned);
        for refused in
            [run.book.add(vec![rule.clone()], true), run.book.replace(vec![rule.clone()], true)]
        {
            let why = refused.expect_err("it has no way of its own");
            assert!(why.contains(says), "{why}");
        }
    }
    assert_eq!(run.book.rules(), before);
    run.book.add(many(3, 1, 1), false).expect("it names them");
    assert_eq!(run.book.rules().len(), 3);
    run.end();
}

thread_local! {
    /// The address that the kernel of a test has.
    static KERNELS: Cell<[u8; 4]> = const { Cell::new([203, 0, 113, 7]) };
}

#[test]
fn a_rule_that_comes_sends_from_an_address_of_ours_where_no_kernel_looks() {
    let is_own = |ip: IpAddr, _: Option<u32>| ip == IpAddr::from(KERNELS.get());
    let interfaces = Some(["in0", "out0"].map(str::to_owned).to_vec());
    let own = vec![[203, 0, 113, 1].into()];
    let stack = Policy { interfaces, own, is_own, socket_workers: 0, ..policy() };
    let from = |n: u16, source: u8| {
        let mut rule = many(n + 1, 1, 1).remove(usize::from(n));
        rule.outputs[0].source = Some([203, 0, 113, source].into());
        rule
    };
    let why = Book::new(vec![from(0, 8)], stack.clone(), 1).err().expect("another host's");
    for part in ["239.1.0.0:5000 on in0", "output 192.0.2.1:6000", "source 203.0.113.8"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let book = Book::new(vec![from(0, 1), from(1, 7)], stack, 1).expect("ours and the kernel's");
    let run = Run::by(book, Recorded::default());
    for refused in [
        run.book.add(vec![from(2, 8)], false),
        run.book.replace(vec![from(0, 1), from(1, 8)], false),
    ] {
        let why = refused.expect_err("another host's");
        assert!(why.contains("source 203.0.113.8"), "{why}");
    }
    // The kernel has it no longer, and other rules come beside the one that has it.
    KERNELS.set([203, 0, 113, 9]);
    run.book.add(many(4, 1, 1).split_off(3), false).expect("it has none");
    assert_eq!(run.book.rules().len(), 3);
    run.end();
    // Where the kernel sends, it looks itself.
    Book::new(vec![from(0, 8)], policy(), 1).expect("it may be bound");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever comes and goes in whichever order: behind the last change what is open is what is wanted and there.
    #[test]
    fn whatever_interfaces_do_ports_are_where_they_are_wanted(
        steps in prop::collection::vec((any::<[bool; 2]>(), any::<[bool; 2]>(), 1u16..40), 1..12),
    ) {
        let mut by_hand = ByHand::of(Vec::new(), false);
        let mut index = 2;
        let mut last = (0, [false; 2]);
        let mut indexes = [0; 2];
        for (there, anew, rules) in steps {
            let mut links = Vec::new();
            by_hand.lane.absent.clear();
            for (i, name) in ["in0", "out0"].into_iter().enumerate() {
                if anew[i] || indexes[i] == 0 {
                    index += 1;
                    indexes[i] = index;
                }
                if there[i] {
                    links.push((name, indexes[i]));
                } else {
                    indexes[i] = 0;
                    by_hand.lane.absent.insert(name.to_owned());
                }
            }
            by_hand.links(&links);
            by_hand.replace(many(rules, 2, 1), true).1.expect("all wait");
            by_hand.turns();
            last = (rules, there);
        }
        let (rules, there) = last;
        let inputs = usize::from(there[0]);
        let outputs = usize::from(rules) * 2 * usize::from(there[1]);
        prop_assert_eq!(by_hand.lane.ports.len(), inputs + outputs);
        let groups = by_hand.lane.ports.values().map(|plan| plan.memberships.len()).sum::<usize>();
        prop_assert_eq!(groups, usize::from(rules) * inputs);
        let waiting = if there == [true; 2] { 0 } else { usize::from(rules) };
        prop_assert_eq!(by_hand.state().waiting(), waiting);
    }
}
