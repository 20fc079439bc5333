//! What passes, what is refused and with which words, and that nothing goes round.

use super::*;
use laneway_linux::Link;
use proptest::prelude::*;
use std::collections::VecDeque;

fn rule(text: &str) -> Rule {
    serde_json::from_str(text).expect("well formed")
}

fn policy() -> Policy {
    Policy {
        allow: ["192.0.2.0/24", "2001:db8::/32", "fe80::/10"]
            .map(|it| it.parse().unwrap())
            .to_vec(),
        is_own: |ip, link| {
            let link_local = link == Some(2) && ip.to_string() == "fe80::1";
            ip == IpAddr::from([192, 0, 2, 1]) || link_local
        },
        links: || {
            let link = |(name, index): (&str, u32)| (name.to_owned(), Link { index, is_up: true });
            [("eth1", 1), ("eth2", 2), ("uplink", 2)].map(link).into_iter().collect()
        },
        ..Policy::default()
    }
}

fn verdict(rules: &[&str]) -> Result<(), String> {
    let rules: Vec<Rule> = rules.iter().map(|text| rule(text)).collect();
    check(&rules.iter().collect::<Vec<_>>(), &policy()).map_err(|why| why.to_string())
}

const PLAIN: &str = r#"{"name":"tv","input":{"interface":"eth1","group":"239.1.1.1","port":5000},
    "outputs":[{"destination":"192.0.2.9:6000"},{"destination":"239.2.2.2:5000","interface":"eth3"}]}"#;

#[test]
fn what_may_be_passes() {
    assert_eq!(verdict(&[PLAIN]), Ok(()));
    // The same group onto another interface: what a relay is for.
    let across = PLAIN.replace("239.2.2.2:5000", "239.1.1.1:5000");
    assert_eq!(verdict(&[&across]), Ok(()));
    let from = |source: &str| PLAIN.replace("5000}", &format!("5000,\"sources\":[\"{source}\"]}}"));
    assert_eq!(verdict(&[&from("192.0.2.7"), &from("192.0.2.8")]), Ok(()));
    assert_eq!(verdict(&[]), Ok(()));
}

#[test]
fn what_is_wrong_is_reported_with_the_place_the_value_and_what_to_try() {
    let edit = |from: &str, to: &str| {
        assert!(PLAIN.contains(from), "{from}");
        PLAIN.replacen(from, to, 1)
    };
    for (text, says) in [
        (
            edit("239.1.1.1", "192.0.2.1"),
            "rule 1 `tv` (192.0.2.1:5000 on eth1): 192.0.2.1 is no group",
        ),
        (edit("239.1.1.1", "224.0.0.5"), "--local-groups"),
        (edit("\"port\":5000", "\"port\":0"), "UDP port 0"),
        (edit("\"group\":\"239.1.1.1\",", ""), "one of `group`, `address` and `family`"),
        (edit("\"group\"", "\"address\""), "use `group` for it"),
        (edit("eth1", "a/b"), "`a/b` is no interface's name"),
        (edit("eth1", "an-interface-name"), "no interface's name"),
        (edit("192.0.2.9:6000", "198.51.100.1:6000"), "output 1: 198.51.100.1 is in no network"),
        (edit("192.0.2.9:6000", "192.0.2.9:0"), "no UDP port"),
        (edit("192.0.2.9:6000", "0.0.0.0:6000"), "neither a host nor a group"),
        (edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"ttl\":0"), "TTL of 0"),
        (edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"dscp\":64"), "DSCP 64"),
        (edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"source\":\"::1\""), "not of the family"),
        (edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"queue_bytes\":1"), "when_full = \"oldest\""),
        (edit("192.0.2.9:6000\"", "192.0.2.9:6000\",\"bytes_per_second\":0"), "sends nothing"),
        (edit("239.2.2.2:5000\",\"interface\":\"eth3\"", "192.0.2.9:6000\""), "output 1 sends to"),
        (
            edit("239.2.2.2:5000\",\"interface\":\"eth3\"", "239.1.1.1:5000\""),
            "output 2: it would come in again",
        ),
        (edit("5000}", "5000,\"sources\":[\"::1\"]}"), "source ::1 is not of the family"),
        (edit("5000}", "5000,\"sources\":[\"192.0.2.7\",\"192.0.2.7\"]}"), "there twice"),
    ] {
        let error = verdict(&[&text]).expect_err(&text);
        assert!(error.contains(says), "{error}");
    }
    let error = verdict(&[PLAIN, PLAIN]).expect_err("twice");
    assert!(
        error.starts_with("rule 2") && error.contains("rule 1 has this input already"),
        "{error}"
    );
}

#[test]
fn a_group_whose_scope_is_an_interface_is_refused_but_on_loopback() {
    let local = Policy { local_groups: true, ..policy() };
    for (group, interface, says) in [
        ("ff00::7", "eth1", "scope 0"),
        ("ff10::7", "lo", "use a wider one, as ff15::7"),
        ("ff01::7", "eth1", "scope 1"),
        ("ff31::8000:7", "eth1", "use a wider one, as ff35::8000:7"),
        ("ff01::7", "lo", ""),
        ("ff02::7", "eth1", ""),
        ("ff05::7", "eth1", ""),
        ("239.1.1.7", "eth1", ""),
    ] {
        let to = SocketAddr::new(group.parse().unwrap(), 5000);
        let there = format!(r#""interface":"{interface}""#);
        let input = PLAIN.replace("239.1.1.1", group).replace(r#""interface":"eth1""#, &there);
        let output = PLAIN
            .replace("239.2.2.2:5000", &to.to_string())
            .replace(r#""interface":"eth3""#, &there);
        for text in [input, output] {
            let why = check(&[&rule(&text)], &local).err().map(|why| why.to_string());
            let why = why.unwrap_or_default();
            assert!(why.contains(says) && why.is_empty() == says.is_empty(), "{text}: {why}");
        }
    }
}

#[test]
fn a_loop_over_two_rules_and_one_through_an_address_of_ours_are_refused() {
    let there = PLAIN.replace("239.2.2.2:5000", "239.1.1.1:5000");
    let back = r#"{"input":{"interface":"eth3","group":"239.1.1.1","port":5000},
        "outputs":[{"destination":"239.1.1.1:5000","interface":"eth1"}]}"#;
    let error = verdict(&[&there, back]).expect_err("a loop");
    assert!(error.contains("a loop without end"), "{error}");
    let to_us =
        r#"{"input":{"family":"ipv4","port":6000},"outputs":[{"destination":"192.0.2.1:6000"}]}"#;
    assert!(verdict(&[to_us]).expect_err("ours").contains("come in again"));
    let elsewhere = to_us.replace("192.0.2.1", "192.0.2.2");
    assert_eq!(verdict(&[&elsewhere]), Ok(()), "another machine's");
}

/// Whether a rule of this input and output is a loop.
fn is_loop(input: &str, output: &str, policy: &Policy) -> bool {
    let rule = rule(
        &format!("{{'input':{{{input},'port':5000}},'outputs':[{{{output}}}]}}")
            .replace('\'', "\""),
    );
    match check(&[&rule], policy) {
        Ok(()) => false,
        Err(why) => {
            assert!(why.to_string().contains("come in again"), "{why}");
            true
        }
    }
}

#[test]
fn a_link_local_address_is_ours_on_its_link_alone() {
    let to = |scope: &str| format!("'destination':'[fe80::1{scope}]:5000'");
    let by = |scope: &str, name: &str| format!("{},'interface':'{name}'", to(scope));
    for (input, output, is_one) in [
        // Ours on eth2.
        ("'family':'ipv6'", to("%2"), true),
        ("'family':'ipv6'", by("", "eth2"), true),
        ("'family':'ipv6'", by("", "uplink"), true),
        ("'family':'ipv6'", to("%1"), false),
        ("'family':'ipv6'", by("", "eth1"), false),
        ("'family':'ipv6'", by("%1", "eth1"), false),
        ("'family':'ipv4'", to("%2"), false),
        // A neighbour's on another link.
        ("'address':'fe80::1','interface':'eth1'", to("%2"), false),
        ("'address':'fe80::1','interface':'eth1'", by("", "eth2"), false),
        ("'address':'fe80::1','interface':'eth1'", by("%2", "eth2"), false),
        ("'address':'fe80::1','interface':'eth2'", to("%2"), true),
        ("'address':'fe80::1','interface':'eth2'", by("", "uplink"), true),
        ("'address':'fe80::1','interface':'eth2'", by("%2", "eth2"), true),
        // Which link is not known.
        ("'address':'fe80::1'", to("%2"), true),
        ("'address':'fe80::1','interface':'eth7'", to("%2"), true),
        // Other addresses are the machine's, on any link.
        (
            "'address':'192.0.2.1','interface':'eth1'",
            "'destination':'192.0.2.1:5000','interface':'eth2'".to_owned(),
            true,
        ),
    ] {
        assert_eq!(is_loop(input, &output, &policy()), is_one, "{input} to {output}");
    }
    // Over two rules.
    let there = r#"{"input":{"address":"fe80::1","interface":"eth2","port":5000},
        "outputs":[{"destination":"[ff15::1]:5000","interface":"eth1"}]}"#;
    let back = r#"{"input":{"group":"ff15::1","interface":"eth1","port":5000},
        "outputs":[{"destination":"[fe80::1%2]:5000"}]}"#;
    let error = verdict(&[there, back]).expect_err("a loop");
    assert!(error.contains("a loop without end"), "{error}");
    assert_eq!(verdict(&[there, &back.replace("%2", "%1")]), Ok(()), "another host's");
}

#[test]
fn an_interface_is_one_by_any_of_its_names() {
    for (interface, output, is_one) in [
        ("eth2", "eth2", true),
        ("eth2", "uplink", true),
        ("uplink", "eth2", true),
        ("eth2", "eth1", false),
        ("eth8", "eth9", false),
        ("eth8", "eth8", true),
    ] {
        for group in ["239.1.1.1", "ff15::1"] {
            let input = format!("'group':'{group}','interface':'{interface}'");
            let to = SocketAddr::new(group.parse().unwrap(), 5000);
            let output = format!("'destination':'{to}','interface':'{output}'");
            assert_eq!(is_loop(&input, &output, &policy()), is_one, "{input} to {output}");
        }
    }
    let local = Policy { local_groups: true, ..policy() };
    for (scope, is_one) in [("%1", false), ("%2", true)] {
        let output = format!("'destination':'[ff02::9{scope}]:5000'");
        let input = "'group':'ff02::9','interface':'uplink'";
        assert_eq!(is_loop(input, &output, &local), is_one, "{output}");
    }
}

#[test]
fn the_addresses_of_a_stack_are_ours_and_the_kernels_are_not() {
    let own = vec!["192.0.2.2".parse().unwrap()];
    let stack = Policy { own, is_own: |_, _| false, ..policy() };
    for (policy, ours) in [(policy(), "192.0.2.1"), (stack, "192.0.2.2")] {
        for host in ["192.0.2.1", "192.0.2.2"] {
            let output = format!("'destination':'{host}:5000'");
            assert_eq!(is_loop("'family':'ipv4'", &output, &policy), host == ours, "{host}");
        }
    }
}

#[test]
fn a_host_and_a_group_at_one_udp_port_share_a_socket_or_are_refused() {
    let inputs = |inputs: [&str; 2], socket_workers| {
        let rules = inputs.map(|input| {
            let input = input.replace('\'', "\"");
            rule(&format!(r#"{{"input":{{{input}}},"outputs":[{{"destination":"239.9.9.9:9"}}]}}"#))
        });
        let policy = Policy { socket_workers, ..policy() };
        let turned = [&rules[1], &rules[0]];
        let both = [check(&[&rules[0], &rules[1]], &policy), check(&turned, &policy)];
        assert_eq!(both[0].is_ok(), both[1].is_ok(), "{inputs:?}: by their order");
        both.into_iter().find_map(Result::err).map(|why| why.to_string())
    };
    let group = "'group':'239.1.1.1','port':5000,'interface':'eth1'";
    let anywhere = "'group':'239.1.1.1','port':5000";
    for (other, says) in [
        ("'address':'192.0.2.1','port':5000", "each an interface of its own"),
        ("'address':'192.0.2.1','port':5000,'interface':'eth1'", "each an interface of its own"),
        ("'family':'ipv4','port':5000", "both the same interface"),
    ] {
        let why = inputs([group, other], 1).expect(other);
        assert!(why.contains(says) && why.contains("rule 1") && why.contains("5000"), "{why}");
        assert_eq!(inputs([group, other], 0), None, "{other}: no socket of the kernel's");
    }
    for other in [
        "'address':'192.0.2.1','port':5000,'interface':'eth2'",
        "'family':'ipv4','port':5000,'interface':'eth2'",
        "'family':'ipv4','port':5000,'interface':'eth1'",
        "'family':'ipv6','port':5000",
        "'address':'192.0.2.1','port':5001",
        "'group':'239.1.1.2','port':5000",
    ] {
        assert_eq!(inputs([group, other], 1), None, "{other}");
    }
    let family = "'family':'ipv4','port':5000";
    assert_eq!(inputs([anywhere, family], 1), None);
    // Of many workers two rules have two.
    let workers = (2..50).filter(|workers| inputs([anywhere, family], *workers).is_some());
    assert!(workers.count() > 30);
    let address = "'address':'192.0.2.1','port':5000";
    assert!(inputs([family, address], 1).is_some());
}

#[test]
fn networks_hold_their_hosts_alone() {
    let holds = |network: &str, ip: &str| holds(network.parse().unwrap(), ip.parse().unwrap());
    assert!(holds("192.0.2.0/24", "192.0.2.255") && !holds("192.0.2.0/24", "192.0.3.0"));
    assert!(holds("192.0.2.8/29", "192.0.2.15") && !holds("192.0.2.8/29", "192.0.2.16"));
    assert!(holds("0.0.0.0/0", "8.8.8.8") && !holds("0.0.0.0/0", "::1"));
    assert!(holds("2001:db8::/32", "2001:db8:1::") && !holds("2001:db8::/32", "2001:db9::"));
}

/// Few addresses, ports and interfaces, so that rules meet.
fn random_rule() -> impl Strategy<Value = Rule> {
    let interface = || prop::option::of(prop::sample::select(vec!["eth1", "eth2"]));
    let address = || prop::sample::select(vec!["239.1.1.1", "239.1.1.2", "192.0.2.1", "192.0.2.2"]);
    let output = (address(), 1u16..3, interface());
    (address(), 1u16..3, interface(), prop::collection::vec(output, 1..3)).prop_map(
        |(to, port, interface, outputs)| {
            let ip: IpAddr = to.parse().unwrap();
            let (group, address) =
                if ip.is_multicast() { (Some(ip), None) } else { (None, Some(ip)) };
            let input = Input {
                interface: interface.map(str::to_owned),
                group,
                address,
                family: None,
                port,
                sources: Vec::new(),
            };
            let outputs = outputs.into_iter().map(|(to, port, interface)| {
                let mut output = rule(PLAIN).outputs.remove(0);
                output.destination = SocketAddr::new(to.parse().unwrap(), port);
                output.interface = interface.map(str::to_owned);
                output
            });
            Rule { name: None, input, outputs: outputs.collect(), bytes_per_second: None }
        },
    )
}

proptest! {
    #[test]
    fn in_a_set_that_passes_nothing_goes_round(rules in prop::collection::vec(random_rule(), 1..6)) {
        let all: Vec<&Rule> = rules.iter().collect();
        let passes = check(&all, &policy()).is_ok();
        // Another way of finding out: send a datagram into each input and follow every copy. Without a loop
        // no copy has gone through more rules than there are.
        let mut goes_round = false;
        for first in 0..all.len() {
            let mut copies = VecDeque::from([(first, 0)]);
            while let Some((at, rules)) = copies.pop_front() {
                if rules > all.len() {
                    goes_round = true;
                    break;
                }
                for output in &all[at].outputs {
                    let to = output.destination;
                    for (i, other) in all.iter().enumerate() {
                        let input = &other.input;
                        let there = input.group.or(input.address) == Some(to.ip()) && input.port == to.port();
                        let wire = !to.ip().is_multicast()
                            || output.interface.is_none()
                            || input.interface.is_none()
                            || output.interface == input.interface;
                        if there && wire {
                            copies.push_back((i, rules + 1));
                        }
                    }
                }
            }
        }
        prop_assert!(!(passes && goes_round), "{rules:?}");
    }
}
