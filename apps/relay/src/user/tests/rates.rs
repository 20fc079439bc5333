//! Rates: what they let through, and what they cost.

use super::*;

#[test]
fn rates_hold_over_time_and_every_datagram_has_a_fate() {
    let json = r#"[{"input":{"group":"239.1.1.1","port":5000},"bytes_per_second":2000000,
        "outputs":[{"destination":"192.0.2.1:6000"},{"destination":"192.0.2.2:6000","bytes_per_second":1000000}]}]"#;
    let (mut relay, _) = relay(json);
    let bytes = [7; 1000];
    let at = input_of(&relay);
    let mut out = Sent::default();
    // 4 MB/s for ten seconds.
    for n in 0..40_000u64 {
        let datagram = datagram(&bytes, "239.1.1.1:5000", "192.0.2.9:1", at);
        relay.on_datagrams(&[datagram], Turn { now_ns: (n + 1) * 250_000 }, &mut out);
    }
    let (fates, copies) = (*relay.fates(), *relay.copies());
    assert_eq!(fates.total(), 40_000);
    assert_eq!(copies.asked, 2 * fates.relayed);
    assert_eq!(copies.asked, copies.handed + copies.rate_limited);
    let to_the_second = fates.relayed - copies.rate_limited;
    let near = |n: u64, wanted: u64| n.abs_diff(wanted) <= wanted / 40;
    assert!(near(fates.relayed, 20_200) && near(to_the_second, 10_100), "{fates:?} {copies:?}");
}

#[test]
fn a_rate_loses_no_part_of_a_token_however_often_it_is_asked() {
    // 1.5 bytes come between two questions.
    let mut bucket = Bucket::new(1_500_000);
    assert!(bucket.admits(bucket.tokens as usize, 1), "what may come at once");
    let admitted = (1..=100_000u64).filter(|n| bucket.admits(1, 1 + n * 1000)).count();
    assert_eq!((admitted, bucket.tokens), (100_000, 50_000));
}

#[test]
fn what_an_outputs_sample_leaves_out_costs_none_of_its_rate() {
    let json = r#"[{"input":{"group":"239.1.1.1","port":5000},
        "outputs":[{"destination":"192.0.2.1:6000","sample":10,"bytes_per_second":1000000}]}]"#;
    let (mut relay, _) = relay(json);
    let train = [7; 10_000];
    let at = input_of(&relay);
    let mut out = Sent::default();
    // 8 MB/s for ten seconds, of which the output samples 0.8 MB/s; some of it by trains.
    for n in 0..8_000u64 {
        let turn = Turn { now_ns: (n + 1) * 1_250_000 };
        let train = datagram(&train, "239.1.1.1:5000", "192.0.2.9:1", at);
        relay.on_datagrams(&[Datagram { segment_bytes: 1000, ..train }], turn, &mut out);
    }
    let copies = *relay.copies();
    assert_eq!((copies.asked, copies.sampled_out), (80_000, 72_000), "{copies:?}");
    assert_eq!((copies.handed, copies.rate_limited), (8_000, 0), "{copies:?}");
}

/// Shows a relay of one rule a datagram of so many bytes each so many ns, until a time; the bytes that left.
fn bytes_that_leave(
    relay: &mut Relay,
    (bytes, each_ns): (usize, u64),
    (from_ns, until_ns): (u64, u64),
) -> usize {
    let (bytes, at) = (vec![7; bytes], input_of(relay));
    let mut out = Sent::default();
    let mut now_ns = from_ns;
    while now_ns < until_ns {
        let datagram = datagram(&bytes, "239.1.1.1:5000", "192.0.2.9:1", at);
        relay.on_datagrams(&[datagram], Turn { now_ns }, &mut out);
        now_ns += each_ns;
    }
    out.0.iter().map(|(_, _, bytes, _)| bytes.len()).sum()
}

#[test]
fn a_small_rate_is_kept_from_the_first_datagram_on() {
    const SECONDS: u64 = 5;
    let of = |rule: &str, output: &str| {
        format!(
            r#"[{{"input":{{"group":"239.1.1.1","port":5000}}{rule},"outputs":[{{"destination":"192.0.2.1:6000"{output}}}]}}]"#
        )
    };
    for rate in [7, 1_000, 20_000, 600_000] {
        let asked = format!(r#","bytes_per_second":{rate}"#);
        for json in [of(&asked, ""), of("", &asked)] {
            let (mut relay, _) = relay(&json);
            let all = (1, SECONDS * 1_000_000_000);
            let left = bytes_that_leave(&mut relay, (1316, 500_000), all);
            let most = (rate * SECONDS + rate / 10) as usize + 1316;
            assert!((1316..=most).contains(&left), "{left} of at most {most} bytes: {json}");
        }
    }
}

#[test]
fn a_rule_that_changes_lets_no_more_through_at_once_again() {
    let with = |rate: u64, dscp: u8| {
        let mut rules = rules(TWO);
        rules.truncate(1);
        rules[0].bytes_per_second = Some(rate);
        rules[0].outputs.truncate(1);
        rules[0].outputs[0].dscp = Some(dscp);
        rules
    };
    let mut by_hand = ByHand::of(with(10_000, 1), false);
    by_hand.turns();
    let show = |by_hand: &mut ByHand, at_ns| {
        bytes_that_leave(&mut by_hand.relay, (100, 1), (at_ns, at_ns + 50))
    };
    assert_eq!(show(&mut by_hand, 1_000_000_000), 1_000, "a tenth of a second's");
    by_hand.replace(with(10_000, 2), false).1.expect("it can be");
    assert_eq!(show(&mut by_hand, 1_000_000_100), 0, "another output, the same rate");
    by_hand.replace(with(20_000, 2), false).1.expect("it can be");
    assert_eq!(show(&mut by_hand, 1_000_000_200), 2_000, "another rate");
}
