//! What commands answer, what a commit changes for workers and kernel, and what is offered to a port.

use super::*;
use crate::{KERNEL_LINE_MAX, KERNEL_MASKS_MAX};
use crate::{decide::Decision, fate::Fate, fields::Parsed};
use laneway_core::Bell;
use laneway_flow::PortRule;
use laneway_testkit::UdpFrame;

const BOUNDS: Bounds = Bounds { ports: 2, queues: 4 };

fn set() -> RuleSet {
    RuleSet::for_user(BOUNDS)
}

#[track_caller]
fn run(set: &mut RuleSet, line: &str) -> String {
    set.run(line).unwrap_or_else(|e| panic!("{e}"))
}

fn decide(feed: &RuleFeed, destination_port: u16) -> Decision {
    let frame = UdpFrame { destination_port, ..UdpFrame::default() }.build();
    feed.decide(0, &mut Parsed::of(&frame).fields, frame.len() as u64)
}

const DROP_53: &str =
    "flow create 0 ingress pattern eth / ipv4 / udp dst is 53 / end actions drop / count / end";

#[test]
fn numbers_and_answers_are_those_of_testpmd() {
    let mut set = set();
    for id in 0..3 {
        assert_eq!(run(&mut set, DROP_53), format!("Flow rule #{id} created\n"));
    }
    assert_eq!(run(&mut set, "flow destroy 0 rule 2"), "Flow rule #2 destroyed\n");
    assert_eq!(run(&mut set, "flow destroy 0 rule 0"), "Flow rule #0 destroyed\n");
    let queue = "flow create 0 group 0 priority 5 transfer pattern vlan / ipv6 / end \
                 actions queue index 1 / end";
    assert_eq!(run(&mut set, queue), "Flow rule #2 created\n");
    run(&mut set, "flow create 0 group 1 ingress pattern end actions drop / end");
    assert_eq!(
        run(&mut set, "flow list 0"),
        "ID\tGroup\tPrio\tAttr\tRule\n\
         1\t0\t0\ti--\tETH IPV4 UDP => DROP COUNT\n\
         2\t0\t5\t--t\tVLAN IPV6 => QUEUE\n\
         3\t1\t0\ti--\t=> DROP\n"
    );
    assert!(run(&mut set, "flow list 0 group 1").ends_with("3\t1\t0\ti--\t=> DROP\n"));
    assert_eq!(run(&mut set, "flow list 1"), "");
    let validate = DROP_53.replace("create", "validate");
    assert_eq!(run(&mut set, &validate), "Flow rule validated\n");
    assert_eq!(set.len(), 3);
    assert_eq!(run(&mut set, "flow flush 0"), "");
    assert!(set.is_empty());
    assert_eq!(run(&mut set, DROP_53), "Flow rule #0 created\n");
}

#[test]
fn what_is_not_there_is_reported() {
    let mut set = set();
    let why = set.run("flow destroy 0 rule 7").expect_err("no such rule").to_string();
    assert!(why.contains("#7 not found"), "{why}");
    let why = set.run("flow list 2").expect_err("no such port").to_string();
    assert!(why.contains("ports are 0 to 1"), "{why}");
    run(&mut set, DROP_53);
    set.run("flow destroy 0 rule 0 rule 9").expect_err("one of them is not there");
    assert_eq!(set.len(), 1, "nothing was destroyed");
}

#[test]
fn a_worker_sees_a_change_after_it_took_the_set_and_counts_across_swaps() {
    let mut set = set();
    let mut feed = set.feed().expect("a set of user space");
    run(&mut set, DROP_53);
    assert_eq!(decide(&feed, 53).fate, None);
    assert_eq!(set.commit(), Commit::Done);
    assert_eq!(decide(&feed, 53).fate, None, "not yet taken");
    feed.take();
    assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop));
    for _ in 0..3 {
        run(&mut set, &DROP_53.replace("53", "99"));
        assert_eq!(set.commit(), Commit::Done);
        feed.take();
    }
    assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop));
    assert_eq!(
        run(&mut set, "flow query 0 0 count"),
        "COUNT:\n hits_set: 1\n bytes_set: 1\n hits: 2\n bytes: 128\n"
    );
}

#[test]
fn a_commit_that_changes_something_rings_every_worker() {
    let bells = [(); 2].map(|()| Bell::new().expect("a descriptor"));
    let mut set = set();
    let _feeds = bells.each_ref().map(|bell| set.feed().expect("a feed").with_bell(bell));
    assert_eq!(set.commit(), Commit::Done);
    assert!(bells.iter().all(|bell| !bell.answer()), "nothing changed");
    run(&mut set, DROP_53);
    assert_eq!(set.commit(), Commit::Done);
    assert!(bells.iter().all(Bell::answer));
}

#[test]
fn a_change_that_waits_for_the_kernel_rings_its_worker() {
    let bell = Bell::new().expect("a descriptor");
    let mut set = RuleSet::for_kernel(BOUNDS);
    let _feed = set.kernel_feed().expect("a set of the kernel").with_bell(&bell);
    run(&mut set, DROP_53);
    assert!(!bell.answer(), "nothing is committed yet");
    assert_eq!(set.commit(), Commit::Done);
    assert!(bell.answer());
}

#[test]
fn a_commit_waits_for_the_slowest_worker_and_keeps_the_changes() {
    let mut set = set();
    let (mut quick, mut slow) = (set.feed().expect("a feed"), set.feed().expect("a feed"));
    run(&mut set, DROP_53);
    assert_eq!(set.commit(), Commit::Done);
    quick.take();
    run(&mut set, &DROP_53.replace("53", "54"));
    assert_eq!(set.commit(), Commit::Waiting);
    assert_eq!(decide(&slow, 53).fate, None);
    slow.take();
    assert_eq!(set.commit(), Commit::Done);
    for feed in [&mut quick, &mut slow] {
        feed.take();
        assert_eq!(decide(feed, 54).fate, Some(Fate::RuleDrop));
    }
    // One that ended does not hold up the others.
    run(&mut set, "flow destroy 0 rule 0");
    assert_eq!(set.commit(), Commit::Done);
    drop(slow);
    quick.take();
    run(&mut set, "flow flush 0");
    assert_eq!(set.commit(), Commit::Done);
    quick.take();
    assert_eq!(decide(&quick, 54).fate, None);
}

#[test]
fn a_new_rule_does_not_inherit_the_counts_of_one_that_is_gone() {
    let mut set = set();
    let mut feed = set.feed().expect("a feed");
    for _ in 0..20 {
        run(&mut set, DROP_53);
        assert_eq!(set.commit(), Commit::Done);
        feed.take();
        decide(&feed, 53);
        assert_eq!(set.hits(0, 0).expect("it is there").frames, 1);
        run(&mut set, "flow destroy 0 rule 0");
        assert_eq!(set.commit(), Commit::Done);
        // The worker has not moved: what it counts now must not reach the next rule.
        decide(&feed, 53);
        feed.take();
    }
    assert!(set.slots.used <= 4, "slots are used again: {}", set.slots.used);
}

#[test]
fn the_counter_of_a_rule_that_is_gone_rests_while_a_worker_may_still_count_there() {
    let mut set = set();
    let mut feed = set.feed().expect("a feed");
    run(&mut set, DROP_53);
    assert_eq!(set.commit(), Commit::Done);
    feed.take();
    run(&mut set, "flow destroy 0 rule 0");
    assert_eq!(set.commit(), Commit::Done);
    run(&mut set, DROP_53);
    // The worker has not moved: it counts for the rule that is gone.
    assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop));
    feed.take();
    assert_eq!(set.commit(), Commit::Done);
    assert_eq!(set.hits(0, 0).expect("it is there"), Hits::default());
}

#[test]
fn a_file_replaces_the_set_as_a_whole_or_not_at_all() {
    let mut set = set();
    let mut feed = set.feed().expect("a feed");
    run(&mut set, &DROP_53.replace("53", "1"));
    let file = format!("# ours\n\n{DROP_53}\n{}\n", DROP_53.replace("53", "54"));
    let broken = format!("{file}flow crate 0\n");
    let why = set.load(&broken).expect_err("line 5").to_string();
    assert!(why.starts_with("line 5: ") && set.len() == 1, "{why}");
    assert!(set.load("flow flush 0").is_err());
    assert_eq!(set.load(&file), Ok(2));
    assert_eq!(set.commit(), Commit::Done);
    feed.take();
    assert_eq!(decide(&feed, 1).fate, None);
    assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop));
    assert_eq!(decide(&feed, 54).fate, Some(Fate::RuleDrop));
}

/// Takes rules whose priority is even, and has counted 40 frames more than their number.
struct Even(Arc<Mutex<Vec<u32>>>);

impl Offload for Even {
    fn install(&mut self, _port: u16, id: u32, rule: &PortRule) -> Result<(), String> {
        if rule.priority % 2 == 1 {
            return Err("an odd priority".to_owned());
        }
        lock(&self.0).push(id);
        Ok(())
    }

    fn remove(&mut self, port: u16, id: u32) -> PortHits {
        lock(&self.0).retain(|other| *other != id);
        self.hits(port, id)
    }

    fn hits(&self, _port: u16, id: u32) -> PortHits {
        PortHits { frames: u64::from(id) + 40, bytes: 0 }
    }
}

/// A set over ports that take even priorities, and what they have.
fn offered() -> (RuleSet, Arc<Mutex<Vec<u32>>>) {
    let (mut set, taken) = (set(), Arc::default());
    set.offer_to(Box::new(Even(Arc::clone(&taken))));
    (set, taken)
}

fn create(set: &mut RuleSet, priority: u32, udp_port: &str) {
    let line =
        DROP_53.replace("ingress", &format!("priority {priority} ingress")).replace("53", udp_port);
    run(set, &line);
    assert_eq!(set.commit(), Commit::Done);
}

fn places(set: &RuleSet) -> Vec<&'static str> {
    set.rules(0).map(|(_, _, placement)| placement.place.name()).collect()
}

#[track_caller]
fn because(set: &RuleSet, id: u32, part: &str) {
    let reason = &set.placement(0, id).expect("it is there").reason;
    assert!(reason.contains(part), "{reason}");
}

#[test]
fn rules_are_offloaded_where_the_port_can_and_no_rule_before_it_may_match_the_same() {
    let (mut set, taken) = offered();
    create(&mut set, 2, "53");
    create(&mut set, 6, "54");
    assert_eq!(places(&set), ["offloaded"; 2]);
    create(&mut set, 3, "54");
    assert_eq!(places(&set), ["offloaded", "user", "user"], "#2 comes before #1");
    because(&set, 1, "rule #2 comes before it");
    because(&set, 2, "refuses it: an odd priority");
    create(&mut set, 4, "54");
    create(&mut set, 8, "55");
    assert_eq!(places(&set), ["offloaded", "user", "user", "user", "offloaded"]);
    // A port has no order among equals.
    create(&mut set, 8, "55");
    because(&set, 5, "rule #4 comes before it");
    assert_eq!(*lock(&taken), [0, 4]);
    assert_eq!(set.shape().entries, 6, "the worker has all of them");
}

#[test]
fn a_rule_of_another_group_takes_no_place_at_the_port() {
    let (mut set, _) = offered();
    create(&mut set, 2, "53");
    run(&mut set, "flow create 0 group 5 ingress pattern eth / ipv4 / end actions drop / end");
    assert_eq!(set.commit(), Commit::Done);
    assert_eq!(places(&set), ["offloaded", "user"], "only what jumped there gets to #1");
    because(&set, 1, "no port is asked, because");
    // It comes before this one by its priority, and blocks it no more.
    create(&mut set, 4, "54");
    assert_eq!(places(&set), ["offloaded", "user", "offloaded"]);
}

#[test]
fn rules_of_other_groups_do_not_count_against_those_that_a_port_is_offered() {
    let (mut set, _) = offered();
    for _ in 0..=OFFERED_RULES_MAX {
        run(&mut set, "flow create 0 group 5 ingress pattern eth / ipv4 / end actions drop / end");
    }
    assert_eq!(set.commit(), Commit::Done);
    create(&mut set, 2, "53");
    assert_eq!(places(&set).last(), Some(&"offloaded"));
}

#[test]
fn a_rule_is_offered_again_when_the_one_before_it_has_gone() {
    let (mut set, taken) = offered();
    create(&mut set, 6, "54");
    create(&mut set, 3, "54");
    assert_eq!(places(&set), ["user", "user"]);
    run(&mut set, "flow destroy 0 rule 1");
    assert_eq!(places(&set), ["user"], "not in force");
    assert_eq!(set.commit(), Commit::Done);
    assert_eq!((places(&set), lock(&taken).clone()), (vec!["offloaded"], vec![0]));
    run(&mut set, "flow flush 0");
    assert!(lock(&taken).is_empty());
}

#[test]
fn what_the_port_dropped_and_what_it_let_through_are_one_count() {
    let (mut set, _) = offered();
    let mut feed = set.feed().expect("a set of user space");
    create(&mut set, 2, "53");
    feed.take();
    let frames = |set: &RuleSet| set.hits(0, 0).expect("it is there").frames;
    assert_eq!(frames(&set), 40);
    assert_eq!(decide(&feed, 53).fate, Some(Fate::RuleDrop), "the port let it through");
    assert_eq!(frames(&set), 41);
    // It gives way to a rule that the port refuses, and what it had counted there stays.
    create(&mut set, 1, "53");
    assert_eq!((places(&set), frames(&set)), (vec!["user", "user"], 41));
}

#[test]
fn rules_of_before_are_offered_and_taken_back_when_the_port_closes() {
    let (mut set, taken) = (set(), Arc::default());
    create(&mut set, 2, "53");
    because(&set, 0, "take no rules");
    set.offer_to(Box::new(Even(Arc::clone(&taken))));
    assert_eq!(set.commit(), Commit::Done);
    assert_eq!(places(&set), ["offloaded"]);
    set.withdraw();
    assert!(lock(&taken).is_empty());
    assert_eq!(places(&set), ["offloaded"], "where it was executed");
    assert_eq!(set.hits(0, 0).expect("it is there").frames, 40);
}

#[test]
fn what_a_port_cannot_take_stays_with_the_worker_and_says_why() {
    let (mut set, taken) = offered();
    run(&mut set, "flow create 0 ingress pattern eth / ipv4 / end actions dec_ttl / end");
    assert_eq!(set.commit(), Commit::Done);
    because(&set, 0, "no port is asked, because of `dec_ttl`");
    assert!(lock(&taken).is_empty());
}

#[test]
fn a_port_is_not_offered_sets_too_large_to_compare() {
    let (mut set, taken) = offered();
    for port in 0..=OFFERED_RULES_MAX {
        run(&mut set, &DROP_53.replace("53", &port.to_string()));
    }
    assert_eq!(set.commit(), Commit::Done);
    assert!(lock(&taken).is_empty());
    because(&set, 0, "up to 256 rules");
}

#[test]
fn every_rule_says_where_it_is_executed_and_why() {
    let mut user = set();
    run(&mut user, DROP_53);
    assert_eq!(user.placement(0, 0).expect("there").place, ExecutionPlace::User);
    let mut kernel = RuleSet::for_kernel(BOUNDS);
    run(&mut kernel, DROP_53);
    let placement = kernel.placement(0, 0).expect("there");
    assert_eq!(placement.place, ExecutionPlace::Kernel);
    assert!(placement.reason.contains("XDP"), "{placement:?}");
}

#[test]
fn a_full_table_of_the_kernel_half_is_reported_before_anything_changes() {
    let mut set = RuleSet::for_kernel(BOUNDS);
    // Equal values: each mask has one of them, and the line the rest.
    for _ in 0..KERNEL_MASKS_MAX + KERNEL_LINE_MAX {
        run(&mut set, DROP_53);
    }
    let shape = set.shape();
    assert_eq!((shape.masks, shape.in_line), (KERNEL_MASKS_MAX, KERNEL_LINE_MAX));
    let why = set.run(DROP_53).expect_err("full").to_string();
    assert!(why.contains("no room for 1 more") && why.contains("128 masks"), "{why}");
    assert!(why.contains("tries 64") && why.contains("up to 131072 rules"), "{why}");
    assert_eq!((set.len(), set.shape()), (KERNEL_MASKS_MAX + KERNEL_LINE_MAX, shape));
    // A value that a mask has free.
    run(&mut set, &DROP_53.replace("53", "54"));
    let range = DROP_53.replace("dst is 53", "dst spec 1 dst last 65534");
    set.run("flow flush 0").expect("it is there");
    run(&mut set, &range);
    assert_eq!(set.shape().entries, 30, "one rule, as many masks and values as its range needs");
}

#[test]
fn a_file_that_does_not_fit_the_kernel_half_says_the_line_and_changes_nothing() {
    let mut set = RuleSet::for_kernel(BOUNDS);
    run(&mut set, DROP_53);
    let file = format!("{DROP_53}\n").repeat(KERNEL_MASKS_MAX + KERNEL_LINE_MAX);
    let why = set.load(&format!("{file}{DROP_53}")).expect_err("one too many").to_string();
    assert!(why.starts_with("line 193: ") && why.contains("no room"), "{why}");
    assert_eq!(set.len(), 1);
    assert_eq!(set.load(&file), Ok(192), "beside those that it replaces");
}
