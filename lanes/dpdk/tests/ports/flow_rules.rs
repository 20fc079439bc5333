//! Rules for ports on the drivers at hand. None of them keeps one on this kernel (net_tap needs tc flower),
//! so what is shown here is that the refusal is reported in the driver's words and leaves nothing; and a kernel
//! is started as a program where module `flower` sees rules executed.

use crate::world::{Alone, spec};
use laneway_core::LaneError;
use laneway_dpdk::{DpdkLane, DpdkPorts, FlowRules};
use laneway_flow::{Header, HeaderMatch, Offload, PortAction, PortHits, PortRule};
use laneway_netns::Namespace;
use laneway_testkit::skip;
use std::{env, process::Command};

/// Starts a command on a kernel with tc flower; its answer where it cannot.
const GUEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guest.sh");
const GUEST_MISSING: i32 = 77;

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
        // A release whose net_tap counts, on a kernel with tc flower.
        Ok(()) => {}
        Err(why) => assert!(why.contains("rte_flow_") && why.contains("error"), "{why}"),
    }
}

#[test]
fn a_tap_executes_rules_on_a_kernel_that_has_tc_flower() {
    // The guest is a process of its own: it needs no turn.
    let Ok(_) = Alone::new().map(drop).map_err(skip) else { return };
    if env::var_os("LANEWAY_GUEST").is_some() {
        return skip("this is that kernel: run the tests of `flower` with --ignored");
    }
    let tests = env::current_exe().expect("it runs");
    let mut guest = Command::new(GUEST);
    guest.arg(tests).args(["--ignored", "--nocapture", "--test-threads=1", "flower::"]);
    let ran = guest.output().expect("a shell");
    let [out, err] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text));
    if ran.status.code() == Some(GUEST_MISSING) {
        return skip(err.trim());
    }
    assert!(ran.status.success(), "{out}{err}");
    assert!(out.contains("test result: ok.") && !out.contains(" 0 passed"), "{out}");
    let left_out = err.lines().find(|line| line.starts_with("skipped: "));
    assert_eq!(left_out, None, "that kernel has all that they need");
}
