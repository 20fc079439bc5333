//! Rules for ports on the drivers at hand: none of them can keep one here (net_tap needs the kernel's
//! tc flower), so what is shown is that the refusal is said in the driver's words and leaves nothing.

use crate::world::{Alone, spec};
use laneway_core::LaneError;
use laneway_dpdk::{DpdkLane, DpdkPorts, FlowRules};
use laneway_flow::{Header, HeaderMatch, Offload, PortAction, PortHits, PortRule};
use laneway_netns::Namespace;
use laneway_testkit::skip;

fn rule() -> PortRule {
    let mut udp = HeaderMatch::any(Header::Udp);
    udp.ask(2, &[0, 53], &[0, 53], &[0xff; 2]);
    let any = HeaderMatch::any;
    PortRule {
        priority: 0,
        pattern: vec![any(Header::Eth), any(Header::Ipv4), udp],
        actions: vec![PortAction::Drop, PortAction::Count],
    }
}

/// What a port of this lane says to a rule; the rule is in it, or nothing is.
fn offered(text: &str, name: &str) -> Option<Result<(), String>> {
    let ports = match DpdkPorts::open(&spec(text), &[name], false, 1) {
        Ok(ports) => ports,
        Err(error @ (LaneError::NotFound { .. } | LaneError::Refused { .. })) => {
            skip(error);
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut rules = FlowRules::new(&ports);
    let _lane = DpdkLane::open_shared(&ports, 0).unwrap_or_else(|e| panic!("{e}"));
    let answer = rules.install(0, 7, &rule());
    assert_eq!(rules.len(), usize::from(answer.is_ok()), "{answer:?}");
    if answer.is_ok() {
        let again = rules.install(0, 7, &rule()).expect_err("the number is taken");
        assert!(again.contains("#7"), "{again}");
    }
    assert_eq!(rules.hits(0, 7), PortHits::default());
    rules.remove(0, 7);
    assert!(rules.is_empty());
    assert!(rules.install(1, 0, &rule()).expect_err("one port").contains("no port 1"));
    Some(answer)
}

#[test]
fn a_driver_without_rules_refuses_them_in_its_own_words() {
    let Ok(_alone) = Alone::new().map_err(skip) else { return };
    let Some(answer) = offered("dpdk:net_ring,no-huge", "r0") else { return };
    let why = answer.expect_err("net_ring has no rules");
    assert!(why.contains("rte_flow_validate, error"), "{why}");
}

#[test]
fn a_tap_takes_a_rule_or_says_what_the_kernel_said() {
    let Ok(_alone) = Alone::new().map_err(skip) else { return };
    if let Err(error) = laneway_netns::can_create() {
        return skip(error);
    }
    let near = Namespace::create("dpdk-rules").unwrap_or_else(|e| panic!("{e}"));
    let answer = near.enter(|| offered("dpdk:net_tap,no-huge", "rules0"));
    let Some(answer) = answer.unwrap_or_else(|e| panic!("{e}")) else { return };
    match answer {
        // A kernel with tc flower: the other tests show what that brings.
        Ok(()) => {}
        Err(why) => assert!(why.contains("rte_flow_") && why.contains("error"), "{why}"),
    }
}
