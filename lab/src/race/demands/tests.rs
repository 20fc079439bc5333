//! Planted results: what each kind of claim must be answered.

use super::*;
use crate::ping::PingTrial;
use crate::report::{example, example_of_pings};
use crate::result::{CapacityRow, ClientShare, Memory, PingRow, Segment};
use crate::round_trips::RoundTrips;
use crate::tables::TablesOf;
use crate::trial::Capacity;
use laneway_registry::{Apps, Lanes};
use std::path::Path;

/// The arms of the example: the base, its twin, and others; and its loads.
const LOADS: [u64; 3] = [50_000, 200_000, 400_000];
const XDP: usize = 4;

/// A race of the example's arms, in which every segment was as `plant` makes it.
fn race(plant: impl Fn(&mut Segment)) -> RaceResult {
    let mut result = example();
    for segment in &mut result.segments {
        let offered = segment.ledger.offered;
        segment.ledger =
            crate::result::Ledger { offered, delivered: offered, ..segment.ledger.clone() };
        segment.ledger.drops.clear();
        segment.ledger.balance();
        segment.records_per_s = LOADS[segment.load] as f64;
        plant(segment);
    }
    for summary in &mut result.summaries {
        let is_of = |s: &&Segment| (s.arm, s.load) == (summary.arm, summary.load);
        let of: Vec<&Segment> = result.segments.iter().filter(is_of).collect();
        summary.ledger.offered = of.iter().map(|s| s.ledger.offered).sum();
        summary.ledger.delivered = of.iter().map(|s| s.ledger.delivered).sum();
        summary.ledger.unknown = of.iter().filter_map(|s| s.ledger.unknown).reduce(|a, b| a + b);
    }
    result
}

/// A little more or less in each generation, and not alike for both, so that there is an interval.
fn wobble(segment: &Segment) -> f64 {
    1.0 + 0.002 * ((segment.generation + segment.arm / 2) % 3) as f64
}

/// CPU time of so much per delivered packet.
fn cost(segment: &mut Segment, ns: f64) {
    let ns = ns * wobble(segment);
    segment.cpu.ns_per_record = Some(ns);
    segment.cpu.own_ns = (ns * segment.ledger.delivered as f64) as u64;
}

fn lose(segment: &mut Segment, share: f64) {
    segment.ledger.delivered = (segment.ledger.offered as f64 * (1.0 - share)) as u64;
    let lost = segment.ledger.offered - segment.ledger.delivered;
    segment.ledger.drops.insert("veth ring full".to_owned(), lost);
    segment.ledger.balance();
}

/// A scenario with these claims, on the arms of the example.
fn scenario(claims: &str) -> Scenario {
    let text = format!(
        "title = 't'\napp = 'features'\ncapture = 'c.pcap'\ngenerator = 'live'\nburst = 16\nlate_p99_us_max = 100\n\
         matters = 0.05\narm_cpu = 0\ngenerator_cpu = 1\nseed = 1\n\
         quick = {{ loads_pps = [50_000, 200_000, 400_000], saturate = true, segment_ms = 100, time_s = 9, generations = 3 }}\n\
         full = {{ loads_pps = [50_000, 14_880_000], segment_ms = 100, time_s = 9, generations = 3 }}\n\
         arm = [{{ lane = 'packet' }}, {{ lane = 'packet:batch' }}, {{ lane = 'xdp' }}, {{ name = 'gone', lane = 'afxdp:copy' }}]\n\
         {claims}"
    );
    let mut scenario = Scenario::read(&text, "planted", Path::new(".")).expect("it is one");
    scenario.check(&TablesOf::<Apps, Lanes>::new()).expect("it is sound");
    scenario
}

/// What became of one claim.
fn judged(result: &RaceResult, trials: &[Trial], claim: &str) -> (ClaimStatus, String) {
    let scenario = scenario(&format!("[[claim]]\nsays = 's'\n{claim}"));
    let [outcome] = &claims(result, trials, &scenario, true)[..] else { panic!("one claim") };
    (outcome.status, outcome.measured.clone())
}

fn test(result: &RaceResult, test: &str) -> (ClaimStatus, String) {
    judged(result, &[], &format!("test = {{ {test} }}"))
}

#[track_caller]
fn assert_judged(result: &RaceResult, claim: &str, status: ClaimStatus, part: &str) {
    let (is, measured) = test(result, claim);
    assert!(is == status && measured.contains(part), "{claim}: {is:?}: {measured}");
}

use ClaimStatus::{Confirmed, ForTrace, Inconclusive, Refuted, Unanswered};

#[test]
fn a_ratio_of_two_arms_is_confirmed_refuted_or_left_open() {
    let result = race(|s| cost(s, if s.arm == XDP { 400.0 } else { 2_000.0 }));
    let claim = |limit: &str| {
        format!(
            "metric = 'CPU per record', arm = 'xdp', over = 'packet', load_pps = 200_000, {limit}"
        )
    };
    assert_judged(&result, &claim("at_most = 0.00122"), Refuted, "0.200 times (");
    assert_judged(&result, &claim("at_most = 0.25"), Confirmed, "0.200 times (");
    assert_judged(&result, &claim("at_most = 0.2001"), Inconclusive, "0.200 times (");
    assert_judged(
        &result,
        &claim("at_most = 0.2001"),
        Inconclusive,
        "; the interval reaches across the limit",
    );
    assert_judged(&result, &claim("at_least = 0.15, at_most = 0.25"), Confirmed, "0.200 times");
    assert_judged(&result, &claim("at_least = 0.01, at_most = 0.1"), Refuted, "0.200 times");
}

/// Else a race would end at the width that it wants of every verdict, with the rest of its time to go.
#[test]
fn a_limit_on_a_cost_or_a_rate_is_waited_for_until_it_is_decided() {
    let result = race(|s| cost(s, if s.arm == XDP { 400.0 } else { 2_000.0 }));
    let open = |test: &str| {
        let scenario = scenario(&format!("[[claim]]\nsays = 's'\ntest = {{ {test} }}"));
        let data = Data { segments: &result.segments, trials: &[] };
        undecided_limits(&Field::of(&result), data, &result.findings, &scenario)
    };
    let cpu = "metric = 'CPU per record', arm = 'xdp', over = 'packet', load_pps = 200_000";
    for (limit, is_open) in [("at_most = 0.1", 0), ("at_most = 0.25", 0), ("at_most = 0.2001", 1)] {
        assert_eq!(open(&format!("{cpu}, {limit}")), [is_open, 1], "{limit}");
    }
    assert_eq!(
        open("metric = 'records/s', arm = 'packet', load_pps = 50_000, at_least = 1.0"),
        [0, 1]
    );
    // What never will be decided, and what comes along as precise as it is.
    for test in [
        "metric = 'CPU per record', arm = 'gone', over = 'packet', load_pps = 200_000, at_most = 1.0",
        "metric = 'CPU per record', arm = 'xdp', over = 'packet', load_pps = 14_880_000, at_most = 1.0",
        "metric = 'loss', arm = 'packet', load_pps = 50_000, at_least = 0.001",
    ] {
        assert_eq!(open(test), [0, 0], "{test}");
    }
}

#[test]
fn the_base_itself_can_be_asked_for_a_value() {
    let result = race(|s| {
        if s.arm < 2 && s.load == 1 {
            lose(s, 0.5)
        }
    });
    let loss = |limit: &str| format!("metric = 'loss', arm = 'packet', {limit}");
    assert_judged(
        &result,
        &loss("load_pps = 50_000, at_least = 0.001"),
        Refuted,
        "0 share (0 to 0",
    );
    assert_judged(&result, &loss("load_pps = 200_000, at_least = 0.4"), Confirmed, "0.5000 share");
}

#[test]
fn a_rate_is_left_open_where_the_generator_has_no_headroom() {
    let mut result = race(|s| cost(s, 1_000.0));
    result.headroom[0].missing.push("the generator was late".to_owned());
    let of = |metric: &str, load: u64| {
        format!("metric = '{metric}', arm = 'packet', load_pps = {load}, at_least = 1.0")
    };
    assert_judged(&result, &of("records/s", 50_000), Inconclusive, "no headroom");
    assert_judged(&result, &of("records/s", 200_000), Confirmed, "/s (");
    assert_judged(&result, &of("CPU per record", 50_000), Confirmed, "ns (");
}

/// In a closed loop, the load without a rate: as if the client were busy for such a share of it with some arms.
fn closed(busy: &[(usize, f64)]) -> RaceResult {
    let mut result = race(|s| {
        let pps = if s.arm == XDP { 120_000.0 } else { 100_000.0 };
        s.records_per_s = pps * wobble(s);
        cost(s, 1_000.0);
    });
    (result.closed_loop, result.saturating_pps) = (true, Some(LOADS[2]));
    let share = |&(arm, share)| ClientShare { arm, load: 2, share };
    result.client_shares = busy.iter().map(share).collect();
    result
}

#[test]
fn a_client_that_was_the_limit_confirms_and_refutes_only_what_follows() {
    let over = |limit: &str| format!("metric = 'records/s', arm = 'xdp', over = 'packet', {limit}");
    let [more, less] = [over("at_least = 1.1"), over("at_most = 1.1")];
    let [too_much, most] = [over("at_least = 1.5"), over("at_most = 1.5")];
    let free = closed(&[(0, 0.5), (XDP, 0.5)]);
    for (claim, status) in
        [(&more, Confirmed), (&less, Refuted), (&too_much, Refuted), (&most, Confirmed)]
    {
        assert_judged(&free, claim, status, "1.200 times (");
    }
    // The faster one can do that or more.
    let faster = closed(&[(0, 0.5), (XDP, 0.95)]);
    let or_more = "; or more: the client was the limit, not the arm";
    for (claim, status) in
        [(&more, Confirmed), (&less, Refuted), (&too_much, Inconclusive), (&most, Inconclusive)]
    {
        assert_judged(&faster, claim, status, or_more);
    }
    let slower = closed(&[(0, 0.95), (XDP, 0.5)]);
    for (claim, status) in
        [(&more, Inconclusive), (&less, Inconclusive), (&too_much, Refuted), (&most, Confirmed)]
    {
        assert_judged(
            &slower,
            claim,
            status,
            "; or less: the client was the limit of the other arm",
        );
    }
    let both = closed(&[(0, 0.95), (XDP, 0.95)]);
    for claim in [&more, &less, &too_much, &most] {
        assert_judged(&both, claim, Inconclusive, "; the client was the limit of both");
    }
    let cpu = "metric = 'CPU per record', arm = 'xdp', over = 'packet', at_most = 1.1";
    assert_judged(&both, cpu, Confirmed, "1.000 times (");
    let alone = |limit: &str| format!("metric = 'records/s', arm = 'xdp', {limit}");
    assert_judged(&faster, &alone("at_least = 110_000.0"), Confirmed, or_more);
    assert_judged(&faster, &alone("at_most = 130_000.0"), Inconclusive, or_more);
}

#[test]
fn the_searched_rate_of_an_arm_whose_search_had_no_upper_end_is_a_lower_bound() {
    let at = |arm: usize, generation: usize, pps: u64| Trial {
        capacity: Some(Capacity {
            pps: Some(pps),
            beyond_pps: Some(pps + 1),
            ..Capacity::default()
        }),
        ..Trial::empty(arm, generation)
    };
    let trials: Vec<Trial> = [(0, 100_000), (1, 100_000), (XDP, 300_000)]
        .into_iter()
        .flat_map(|(arm, pps)| (0..4).map(move |generation| at(arm, generation, pps)))
        .collect();
    let judged_by = |open_ended: usize, limit: &str| {
        let mut result = example_of_pings();
        let section = result.ping.as_mut().expect("it has one");
        let row = section.capacities[0].clone();
        let open = |arm| if arm == XDP { open_ended } else { 0 };
        section.capacities =
            (0..5).map(|arm| CapacityRow { arm, open_ended: open(arm), ..row.clone() }).collect();
        let mut scenario = scenario("");
        let text = format!("metric = 'capacity'\narm = 'xdp'\n{limit}");
        let claim = format!("[[claim]]\nsays = 's'\n[claim.test]\n{text}");
        let claims_of: std::collections::BTreeMap<String, Vec<Claim>> =
            toml::from_str(&claim).expect("it is one");
        scenario.claims = claims_of["claim"].clone();
        // A step of such a search is 14.7 %.
        let plan = "pps = [50_000, 4_000_000]\nloss_max = 0.0\nsteps = 7\nms = 9\ntrials = 1";
        scenario.capacity = Some(toml::from_str(plan).expect("it is one"));
        let outcome = &claims(&result, &trials, &scenario, true)[0];
        // A race goes on while it may yet be decided.
        let data = Data { segments: &result.segments, trials: &trials };
        let open = undecided_limits(&Field::of(&result), data, &result.findings, &scenario);
        if open_ended == 0 {
            assert_eq!(open, [usize::from(outcome.status == Inconclusive), 1], "{limit}");
        }
        (outcome.status, outcome.measured.clone())
    };
    for (open_ended, limit, status, part) in [
        (0, "over = 'packet'\nat_least = 2.5", Confirmed, "3.000 times (2.61"),
        (0, "over = 'packet'\nat_least = 2.9", Inconclusive, "to 3.44"),
        (0, "over = 'packet'\nat_most = 3.5", Confirmed, "3.000 times ("),
        (1, "over = 'packet'\nat_least = 2.5", Confirmed, "; or more: a search had no upper end"),
        (1, "over = 'packet'\nat_most = 3.5", Inconclusive, "; or more: a search had no upper end"),
        (
            1,
            "over = 'packet'\nat_least = 3.6",
            Inconclusive,
            "; or more: a search had no upper end",
        ),
        // Of one arm it is no less than was carried, and up to a step more.
        (0, "at_least = 299_000", Confirmed, "300000/s (300000 to 344"),
        (0, "at_most = 320_000", Inconclusive, "300000/s (300000 to 344"),
    ] {
        let (is, measured) = judged_by(open_ended, limit);
        assert!(is == status && measured.contains(part), "{limit}: {is:?}: {measured}");
    }
}

#[test]
fn a_demand_has_the_look_at_the_comparison_that_it_is_about() {
    let mut result = race(|s| cost(s, 1_000.0));
    for finding in &mut result.findings {
        let is_of_cpu = finding.metric == Metric::Cpu.name();
        let alpha = 0.001 * finding.arm as f64 + if is_of_cpu { 0.01 } else { 0.02 };
        // What a verdict has by now is of no use to it.
        (finding.comparison.look, finding.limit_look) = (Look::only(0.05), Some(Look::only(alpha)));
    }
    let alpha = |demand: &str| {
        let scenario =
            scenario(&format!("[[claim]]\nsays = 's'\ntest = {{ {demand}, at_most = 1.0 }}"));
        let Answer::Race(goal) = &scenario.claims[0].answer else { panic!("it is one") };
        let sides = Field::of(&result).sides(goal).expect("both were raced");
        let data = Data { segments: &result.segments, trials: &[] };
        let figure = Figure::of(goal, sides, data, &result.findings, &scenario).expect("looked at");
        (figure.found.look.alpha * 1e6).round() / 1e6
    };
    for (demand, expected) in [
        ("metric = 'CPU per record', arm = 'xdp', over = 'packet', load_pps = 50_000", 0.014),
        ("metric = 'records/s', arm = 'xdp', over = 'packet', load_pps = 50_000", 0.024),
        // The same two, the other way round.
        ("metric = 'CPU per record', arm = 'packet', over = 'xdp', load_pps = 50_000", 0.014),
        // The base alone, as the twin; and what is compared in no metric.
        ("metric = 'CPU per record', arm = 'packet', load_pps = 50_000", 0.011),
        ("metric = 'ring memory', arm = 'xdp', over = 'packet', load_pps = 50_000", 0.024),
    ] {
        assert_eq!(alpha(demand), expected, "{demand}");
    }
}

#[test]
fn a_demand_that_no_comparison_looks_at_has_a_part_of_the_error_rate() {
    let claims: Vec<String> = [
        "metric = 'CPU per record', arm = 'xdp', over = 'packet', load_pps = 50_000",
        "metric = 'CPU per record', arm = 'packet', over = 'xdp', load_pps = 50_000",
        "metric = 'CPU per record', arm = 'xdp', above = 'packet', load_pps = 50_000",
        "metric = 'CPU per record', arm = 'xdp', over = 'packet:batch', load_pps = 50_000",
        "metric = 'CPU per record', arm = 'xdp', load_pps = 50_000",
        "metric = 'ring memory', arm = 'xdp', over = 'packet', load_pps = 50_000",
    ]
    .iter()
    .map(|test| format!("[[claim]]\nsays = 's'\ntest = {{ {test}, at_most = 1.0 }}\n"))
    .collect();
    let scenario = scenario(&claims.concat());
    let beside = |has_no_load| beside_comparisons(&scenario, &[Metric::Cpu], has_no_load);
    assert_eq!([false, true].map(beside), [4, 0]);
}

#[test]
fn a_goal_on_the_cost_of_a_collapse_is_not_met() {
    let goal = "[[goal]]\nmetric = 'CPU per record'\narm = 'xdp'\nover = 'packet'\nload_pps = 400_000\nat_most = 0.25";
    let judged_by = |lost: f64| {
        let result = race(|s| {
            cost(s, if s.arm == XDP { 400.0 } else { 2_000.0 });
            if s.arm == XDP {
                lose(s, lost);
            }
        });
        let outcome = goals(&result, &[], &scenario(goal), true).remove(0);
        (outcome.status, outcome.measured)
    };
    assert_eq!(judged_by(0.0).0, GoalStatus::Met);
    let (status, why) = judged_by(0.34);
    assert_eq!(status, GoalStatus::Inconclusive, "{why}");
    assert!(why.contains("xdp lost 34.0 % of 400000/s: that is a collapse"), "{why}");
}

#[test]
fn what_is_left_of_a_cpu_under_a_flood_is_asked_of_arms_that_lose_packets() {
    let mut result = race(|s| {
        cost(s, if s.arm == XDP { 400.0 } else { 2_000.0 });
        if s.load == 2 {
            lose(s, 0.34);
        }
    });
    result.saturating_pps = Some(400_000);
    let asked = |load: &str| {
        let per_cpu = "metric = 'replies per CPU-second', arm = 'xdp', over = 'packet'";
        format!("{per_cpu}, {load}at_least = 4.0")
    };
    assert_judged(&result, &asked(""), Confirmed, "5.000 times (");
    // At a load with a name it is a cost, the other way round.
    let collapsed = "xdp lost 34.0 % of 400000/s: that is a collapse";
    assert_judged(&result, &asked("load_pps = 400_000, "), Unanswered, collapsed);
    let cost = "metric = 'CPU per record', arm = 'xdp', over = 'packet', at_most = 0.25";
    assert_judged(&result, cost, Unanswered, collapsed);
}

#[test]
fn constancy_is_asked_over_two_loads_of_one_arm() {
    // Twice the load, twice the time: linear. Twice the load, the same time: constant.
    let result = race(|s| {
        let pps = LOADS[s.load] as f64;
        cost(s, if s.arm == XDP { 1e8 / pps } else { 1_500.0 });
    });
    let over = |arm: &str, limit: &str| {
        format!(
            "metric = 'CPU used', arm = '{arm}', load_pps = 400_000, over_load_pps = 200_000, {limit}"
        )
    };
    assert_judged(&result, &over("xdp", "at_most = 1.1"), Confirmed, "1.000 times (");
    assert_judged(&result, &over("packet", "at_most = 1.1"), Refuted, "2.000 times (");
    assert_judged(
        &result,
        &over("packet", "at_least = 1.8, at_most = 2.2"),
        Confirmed,
        "2.000 times (",
    );
    assert_judged(&result, &over("xdp", "at_least = 1.8, at_most = 2.2"), Refuted, "1.000 times (");
    let used = "metric = 'CPU used', arm = 'packet', load_pps = 200_000, at_most = 0.0001";
    assert_judged(&result, used, Refuted, "0.30");
}

#[test]
fn memory_that_never_changes_has_an_interval_of_no_width() {
    let result = race(|s| s.memory = Memory { bpf_bytes: 4 << 20, ..Memory::default() });
    let over =
        "arm = 'xdp', load_pps = 400_000, over_load_pps = 50_000, at_least = 0.95, at_most = 1.05";
    assert_judged(
        &result,
        &format!("metric = 'ring memory', {over}"),
        Confirmed,
        "1.000 times (1.000",
    );
    let growing = race(|s| s.memory = Memory { bpf_bytes: LOADS[s.load], ..Memory::default() });
    assert_judged(&growing, &format!("metric = 'ring memory', {over}"), Refuted, "8.000 times");
}

#[test]
fn no_cost_is_reported_of_a_collapse() {
    let result = race(|s| {
        cost(s, if s.arm == XDP { 400.0 } else { 2_000.0 });
        if s.arm < 2 && s.load == 2 {
            lose(s, 0.34);
        }
    });
    let at = |pps: &str| {
        format!(
            "metric = 'CPU per record', arm = 'xdp', over = 'packet', load_pps = {pps}, at_most = 0.25"
        )
    };
    assert_judged(
        &result,
        &at("400_000"),
        Unanswered,
        "packet lost 34.0 % of 400000/s: that is a collapse",
    );
    assert_judged(&result, &at("200_000"), Confirmed, "0.200 times");
    let over = "metric = 'CPU used', arm = 'packet', load_pps = 200_000, over_load_pps = 400_000, at_most = 9.0";
    assert_judged(&result, over, Unanswered, "packet lost 34.0 %");
    let p50 = "metric = 'p50 wire to app', arm = 'packet', load_pps = 400_000, at_most = 9.0";
    assert_judged(&result, p50, Unanswered, "that is a collapse");
    // A loss is what a collapse is, and a rate what is left of it.
    let rate =
        "metric = 'records/s', arm = 'xdp', over = 'packet', load_pps = 400_000, at_least = 0.5";
    assert_ne!(test(&result, rate).0, Unanswered);
    assert_eq!(
        test(&result, "metric = 'loss', arm = 'packet', load_pps = 400_000, at_least = 0.3").0,
        Confirmed
    );
}

#[test]
fn a_closed_loop_that_most_connections_have_no_part_in_is_a_collapse() {
    let looped = |broken| {
        race(move |segment| {
            cost(segment, 400.0);
            segment.ledger.loops = 100;
            segment.ledger.loops_broken = if segment.arm == XDP { broken } else { 0 };
        })
    };
    let cost =
        "metric = 'CPU per record', arm = 'xdp', over = 'packet', load_pps = 50_000, at_most = 1.5";
    let why = "xdp left 90.0 % of the connections of the closed loop without an answer";
    assert_judged(&looped(90), cost, Unanswered, why);
    assert_judged(&looped(0), cost, Confirmed, "");
}

#[test]
fn what_is_in_no_figure_makes_no_collapse() {
    let planted = |plant: fn(&mut Segment)| {
        race(|s| {
            cost(s, if s.arm == XDP { 400.0 } else { 2_000.0 });
            if s.round == 0 {
                lose(s, 0.9);
                plant(s);
            }
        })
    };
    let asked = |metric: &str| {
        format!(
            "metric = '{metric}', arm = 'xdp', over = 'packet', load_pps = 400_000, at_most = 9.0"
        )
    };
    let left_out: [fn(&mut Segment); 3] = [
        |s| s.warm_up = true,
        |s| s.replaced = true,
        |s| s.invalid = vec!["the generator was late".to_owned()],
    ];
    for plant in left_out {
        assert_judged(&planted(plant), &asked("CPU per record"), Confirmed, "0.200 times (");
    }
    let disturbed = planted(|s| s.disturbed = Some("other programs ran".to_owned()));
    assert_judged(&disturbed, &asked("CPU per record"), Unanswered, "that is a collapse");
    assert_ne!(test(&disturbed, &asked("p50 wire to app")).0, Unanswered);
    assert_judged(&planted(|_| {}), &asked("p50 wire to app"), Unanswered, "that is a collapse");
    // Nor is an arm saturated that lost packets in no segment of its rate.
    let rate = "metric = 'records/s', arm = 'xdp', at_least = 1.0";
    let not_saturated = "; or more: the arm was not saturated";
    for (plant, is_open) in [(left_out[0], true), ((|_| {}) as fn(&mut Segment), false)] {
        let result = RaceResult { saturating_pps: Some(400_000), ..planted(plant) };
        let (_, measured) = test(&result, rate);
        assert_eq!(measured.contains(not_saturated), is_open, "{measured}");
    }
}

#[test]
fn what_this_race_did_not_ask_is_reported_with_the_reason() {
    let result = race(|s| cost(s, 400.0));
    let metric = "metric = 'CPU per record'";
    let beyond = format!("{metric}, arm = 'xdp', load_pps = 14_880_000, at_most = 50.0");
    assert_judged(&result, &beyond, Unanswered, "14880000/s was not offered in this race");
    let counted = RaceResult { closed_requests: vec![10_000], ..result.clone() };
    let more = "a closed loop of 14880000 requests was not part of this race; --full may have it";
    assert_judged(&counted, &beyond, Unanswered, more);
    let gone = format!("{metric}, arm = 'gone', over = 'packet', load_pps = 50_000, at_most = 1.0");
    assert_judged(&result, &gone, Unanswered, "arm `gone` did not run");
    let open = "metric = 'records/s', arm = 'xdp', over = 'packet', at_least = 1.05";
    assert_judged(&result, open, Inconclusive, "no saturating load was found");
    let scenario = scenario(&format!("[[claim]]\nsays = 's'\ntest = {{ {open} }}"));
    let [outcome] = &claims(&result, &[], &scenario, false)[..] else { panic!("one claim") };
    assert_eq!(outcome.status, Unanswered);
    assert_eq!(outcome.measured, "no saturating load was asked for in this race");
    let silent = race(|s| {
        if s.arm == XDP {
            (s.ledger.delivered, s.ledger.unknown) = (0, Some(s.ledger.offered));
        }
        cost(s, 400.0);
    });
    let claim = format!("{metric}, arm = 'xdp', over = 'packet', load_pps = 50_000, at_most = 1.0");
    assert_judged(&silent, &claim, Unanswered, "what xdp received of 50000/s is not known");
}

#[test]
fn figures_are_calculated_and_traces_and_reasons_are_passed_on() {
    let result = race(|_| {});
    let judged = |claim: &str| judged(&result, &[], claim);
    let twice = judged("arithmetic = { figure = '119_937 / 59_944', is = 2.0, within = 0.001 }");
    assert_eq!(twice, (Confirmed, "119_937 / 59_944 = 2.0008".to_owned()));
    let unit = judged("arithmetic = { figure = '128 / 3.26e-6', is = 39_000 }");
    assert_eq!(unit.0, Refuted);
    assert!(unit.1.starts_with("128 / 3.26e-6 = 39263804, 1"), "{unit:?}");
    assert_eq!(judged("answered_by = 'trace'"), (ForTrace, BY_TRACE.to_owned()));
    assert_eq!(judged("cannot = 'no such NIC'"), (Unanswered, "no such NIC".to_owned()));
}

/// A generation's pings: so many, of which each took one of these times, us, scaled.
fn pinged(arm: usize, generation: usize, us: [f64; 4]) -> Trial {
    let mut round_trips = RoundTrips::default();
    for n in 0..100u64 {
        let us = us[n as usize % us.len()] + generation as f64 * 0.01;
        round_trips.record((us * 1e3) as u64);
    }
    let ping = PingTrial {
        sent: 100,
        replied: 100,
        duplicates: 0,
        summary_ms: None,
        round_trips,
        is_cut: false,
        load: None,
    };
    Trial { ping: Some(ping), ..Trial::empty(arm, generation) }
}

#[test]
fn real_pings_are_asked_by_mean_extremes_and_deviation() {
    let mut result = example_of_pings();
    // The second is shorter at its longest, and neither at its shortest nor steadier.
    let [steady, wide] = [[20.0, 20.0, 20.0, 60.0], [10.0, 30.0, 30.0, 50.0]];
    let base = [0, 1].into_iter().flat_map(|arm| (0..4).map(move |g| pinged(arm, g, steady)));
    let trials: Vec<Trial> = base.chain((0..4).map(|g| pinged(XDP, g, wide))).collect();
    let section = result.ping.as_mut().expect("it has one");
    let row = PingRow { sent: 400, replied: 400, ..section.pings[0].clone() };
    section.pings = (0..5).map(|arm| PingRow { arm, ..row.clone() }).collect();
    let ask = |result: &RaceResult, metric: &str, limit: &str| {
        let mut scenario = scenario("");
        let text = format!("metric = '{metric}'\narm = 'xdp'\nover = 'packet'\n{limit}");
        let claim = format!("[[claim]]\nsays = 's'\n[claim.test]\n{text}");
        let claims_of: std::collections::BTreeMap<String, Vec<Claim>> =
            toml::from_str(&claim).expect("it is one");
        scenario.claims = claims_of["claim"].clone();
        let outcome = &claims(result, &trials, &scenario, true)[0];
        (outcome.status, outcome.measured.clone())
    };
    for (metric, limit, status, part) in [
        ("ping avg", "at_most = 0.911", Refuted, "1.000 times"),
        ("ping max", "at_most = 0.9", Confirmed, "0.833 times"),
        ("ping min", "at_most = 1.0", Confirmed, "0.50"),
        ("ping mdev", "at_most = 1.0", Confirmed, "0.816 times"),
    ] {
        let (is, measured) = ask(&result, metric, limit);
        assert!(is == status && measured.contains(part), "{metric}: {is:?}: {measured}");
    }
    let section = result.ping.as_mut().expect("it has one");
    section.pings[XDP].replied = 300;
    let (is, why) = ask(&result, "ping avg", "at_most = 1.0");
    assert!(is == Unanswered && why.contains("xdp lost 100 of 400 pings"), "{why}");
    section_without_pings(&mut result);
    let (is, why) = ask(&result, "ping avg", "at_most = 1.0");
    assert!(is == Unanswered && why == "no pings were sent", "{why}");
}

fn section_without_pings(result: &mut RaceResult) {
    result.ping.as_mut().expect("it has one").pings.clear();
}

#[test]
fn what_is_to_be_no_more_than_so_much_above_another_is_a_difference() {
    let result = race(|segment| {
        let ns = if segment.arm == XDP { 1_400.0 } else { 1_000.0 };
        cost(segment, ns);
    });
    let above = |limit: &str| {
        let asked = "metric = 'CPU per record', arm = 'xdp', above = 'packet', load_pps = 50_000";
        test(&result, &format!("{asked}, {limit}"))
    };
    let (status, text) = above("at_most = 500");
    assert_eq!(status, Confirmed, "{text}");
    assert!(text.contains("ns above it"), "{text}");
    assert_eq!(above("at_most = 300").0, Refuted);
    assert_eq!(above("at_least = 300").0, Confirmed);
}

#[test]
fn a_demand_on_cpu_time_holds_with_what_interrupted_the_arms() {
    let interrupted = |of_arm: f64, of_base: f64| {
        race(|segment| {
            cost(segment, if segment.arm == XDP { 1_400.0 } else { 1_000.0 });
            let share = if segment.arm == XDP { of_arm } else { of_base };
            segment.cpu.beside_ns = Some((segment.cpu.own_ns as f64 * share) as u64);
        })
    };
    let cpu = "metric = 'CPU per record', arm = 'xdp', load_pps = 50_000";
    let why = "; what interrupted an arm's own tasks and has no known cause is 10.0 % of its CPU";
    for (limit, shares, status, part) in [
        ("over = 'packet', at_most = 1.45", [0.0, 0.0], Confirmed, "1.400 times ("),
        ("over = 'packet', at_most = 1.45", [0.1, 0.0], Inconclusive, why),
        ("over = 'packet', at_most = 1.45", [0.0, 0.1], Confirmed, "1.400 times ("),
        ("over = 'packet', at_least = 1.35", [0.1, 0.0], Confirmed, "1.400 times ("),
        ("over = 'packet', at_least = 1.35", [0.0, 0.1], Inconclusive, why),
        ("over = 'packet', at_most = 1.3", [0.0, 0.1], Inconclusive, why),
        ("over = 'packet', at_most = 1.2", [0.0, 0.1], Refuted, "1.400 times ("),
        ("above = 'packet', at_most = 500", [0.1, 0.0], Inconclusive, why),
        ("above = 'packet', at_most = 600", [0.1, 0.0], Confirmed, "ns above it"),
        // Of one arm alone.
        ("at_most = 1_500", [0.1, 0.0], Inconclusive, why),
        ("at_most = 1_600", [0.1, 0.0], Confirmed, "ns ("),
        ("at_least = 1_300", [0.1, 0.0], Confirmed, "ns ("),
    ] {
        let result = interrupted(shares[0], shares[1]);
        assert_judged(&result, &format!("{cpu}, {limit}"), status, part);
    }
}
