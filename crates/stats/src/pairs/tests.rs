use proptest::prelude::*;

use super::*;
use crate::Verdict;
use crate::compare::Direction;

/// A comparison that found just this interval.
pub(super) fn found(rule: Rule, lower: f64, upper: f64) -> Comparison {
    let estimate = match rule.scale {
        Scale::Ratio => (lower * upper).sqrt(),
        Scale::Difference => 0.5 * (lower + upper),
    };
    Comparison {
        rule,
        effects: Vec::new(),
        unusable: Unusable::default(),
        estimate: Some(estimate),
        spread: None,
        interval: Some(Interval {
            lower,
            upper,
            confidence: 0.95,
            method: IntervalMethod::RandomEffects,
            generations: 9,
        }),
        p: None,
        look: Look::only(0.05),
    }
}

/// Pairs of a base that gives 100, in generations of `per_generation`.
fn pairs(arm: &[Option<f64>], per_generation: usize) -> Vec<Pair> {
    let pair = |(place, &arm)| Pair { generation: place / per_generation, base: Some(100.0), arm };
    arm.iter().enumerate().map(pair).collect()
}

fn compare(pairs: &[Pair], rule: Rule) -> Comparison {
    Comparison::of_pairs(pairs, rule, Look::only(0.05)).expect("within limits")
}

#[test]
fn a_constant_factor_is_found_exactly() {
    let bases = [80.0, 100.0, 125.0, 90.0, 110.0, 95.0];
    let pair = |(place, base): (usize, f64)| Pair {
        generation: place / 2,
        base: Some(base),
        arm: Some(base * 1.1),
    };
    let found = compare(&bases.into_iter().enumerate().map(pair).collect::<Vec<_>>(), Rule::RATE);
    let interval = found.interval.expect("three generations");
    for value in [found.estimate.expect("six pairs"), interval.lower, interval.upper] {
        assert!((value - 1.1).abs() < 1e-9, "{found:?}");
    }
    assert!(found.is_precise() && interval.generations == 3);
}

#[test]
fn the_interval_is_students_over_generations_on_the_log_scale() {
    let logs = [0.1, 0.2, 0.3, 0.4f64];
    let arm: Vec<_> = logs.iter().flat_map(|log| [Some(100.0 * log.exp()); 2]).collect();
    let found = compare(&pairs(&arm, 2), Rule::COST);
    let interval = found.interval.expect("four generations");
    // Mean 0.25, sd 0.1291, t(3) = 3.1824.
    let reach = 3.182_446 * 0.129_099_4 / 2.0;
    assert!((interval.lower.ln() - (0.25 - reach)).abs() < 1e-6, "{interval:?}");
    assert!((interval.upper.ln() - (0.25 + reach)).abs() < 1e-6, "{interval:?}");
    assert_eq!((interval.confidence, interval.generations), (0.95, 4));
    // scipy 1.17.1: 2 * stats.t.sf(0.25 / 0.0645497, 3).
    let p = found.p.expect("four generations");
    assert!((p - 0.030_466).abs() < 1e-5, "{p}");
}

#[test]
fn a_stricter_look_has_a_wider_interval_of_the_same_confidence() {
    let arm: Vec<_> = (0..12).map(|i| Some(100.0 + f64::from(i * 7 % 5))).collect();
    let pairs = pairs(&arm, 3);
    let strict = Look { level: Some(0.01), ..Look::only(0.05) };
    let strict = Comparison::of_pairs(&pairs, Rule::RATE, strict).expect("within limits");
    let plain = compare(&pairs, Rule::RATE);
    assert!(strict.half_width() > plain.half_width());
    assert_eq!(strict.interval.map(|i| i.confidence), plain.interval.map(|i| i.confidence));
    let early = Look { level: None, ..Look::only(0.05) };
    let early = Comparison::of_pairs(&pairs, Rule::RATE, early).expect("within limits");
    assert_eq!((early.interval, early.estimate), (None, plain.estimate));
}

#[test]
fn missing_zero_and_broken_values_are_counted_by_side() {
    let pair = |base, arm| Pair { generation: 0, base, arm };
    let found = compare(
        &[
            pair(Some(1.0), Some(-3.0)),
            pair(Some(0.0), Some(0.0)),
            pair(None, None),
            pair(None, Some(2.0)),
            pair(Some(f64::NAN), Some(1.0)),
            pair(Some(2.0), Some(f64::INFINITY)),
            pair(Some(2.0), Some(3.0)),
        ],
        Rule::RATE,
    );
    let expected = Unusable {
        pairs: 6,
        missing: Halves { base: 2, arm: 1 },
        not_positive: Halves { base: 1, arm: 2 },
        out_of_range: Halves { base: 1, arm: 1 },
    };
    assert_eq!(found.unusable, expected);
    assert_eq!((found.offered(), found.unusable.broken()), (7, 5));
    assert_eq!(found.effects, [Effect { pair: 6, generation: 0, value: 1.5 }]);
}

#[test]
fn zero_is_an_ordinary_value_for_a_difference() {
    let rule = Rule::difference(Direction::LowerIsBetter, 5.0);
    let pair = |generation| Pair { generation, base: Some(0.0), arm: Some(0.0) };
    let found = compare(&[0, 0, 1, 1, 2, 3].map(pair), rule);
    assert_eq!((found.unusable, found.estimate), (Unusable::default(), Some(0.0)));
    assert_eq!((found.half_width(), found.p), (Some(0.0), Some(1.0)));
}

#[test]
fn two_generations_have_an_estimate_and_no_interval() {
    let found = compare(&pairs(&[Some(110.0); 8], 4), Rule::RATE);
    assert!((found.estimate.expect("eight pairs") - 1.1).abs() < 1e-12);
    assert_eq!((found.interval, found.p, found.is_precise()), (None, None, false));
}

#[test]
fn the_noise_floor_grows_where_an_a_a_pair_surely_differs() {
    let floor = |lower, upper| found(Rule::COST, lower, upper).noise_floor().expect("interval");
    assert!((floor(1.0 / 1.03, 1.03) - 0.03).abs() < 1e-12);
    assert!((floor(1.09, 1.11) - 0.09).abs() < 1e-12);
    assert!((floor(1.0 / 1.11, 1.0 / 1.09) - 0.09).abs() < 1e-12);
    let losses = Rule::difference(Direction::LowerIsBetter, 5.0);
    assert_eq!(found(losses, -9.0, -7.0).noise_floor(), Some(7.0));
}

#[test]
fn information_grows_with_pairs_and_more_with_generations() {
    let of = |generation| Pair { generation, base: Some(1.0), arm: Some(1.0) };
    let half = Pair { arm: None, ..of(7) };
    assert_eq!(information(&[]), 0.0);
    assert!((information(&[of(0); 8]) - 0.5).abs() < 1e-12);
    let apart: Vec<_> = (0..8).map(of).chain([half]).collect();
    assert!((information(&apart) - 8.0 / 9.0).abs() < 1e-12);
}

#[test]
fn the_best_generation_weighs_starts_against_processes() {
    let measured = Spread { within: 0.13, between: 0.046 };
    let best = measured.best_pairs(5.0).expect("both scatter");
    assert!((best - 6.3).abs() < 0.1, "{best}");
    assert_eq!(measured.best_pairs(0.01), Some(1.0));
    assert_eq!(Spread { between: 0.0, ..measured }.best_pairs(5.0), None);
}

#[test]
fn more_than_can_be_compared_is_refused_by_name() {
    let crowded = pairs(&[Some(1.0); 2_002], 1_001);
    let refused = Comparison::of_pairs(&crowded, Rule::RATE, Look::only(0.05));
    assert_eq!(refused, Err(CompareError::Generation { generation: 0, pairs: 1_001 }));
    let many = vec![Pair { generation: 0, base: None, arm: None }; 100_001];
    let refused = Comparison::of_pairs(&many, Rule::RATE, Look::only(0.05));
    assert_eq!(refused, Err(CompareError::Pairs(100_001)));
}

#[test]
fn a_comparison_survives_json() {
    let arm = [Some(101.0), None, Some(0.0), Some(99.0), Some(103.0), Some(98.5)];
    let mut found = compare(&pairs(&arm, 1), Rule::TAIL_LATENCY);
    // serde_json may read the last bit of a long decimal fraction differently.
    let round = |value: f64| (value * 1e6).round() / 1e6;
    (found.estimate, found.p) = (found.estimate.map(round), found.p.map(round));
    let interval = found.interval.as_mut().expect("four generations");
    (interval.lower, interval.upper) = (round(interval.lower), round(interval.upper));
    let text = serde_json::to_string(&found).expect("plain data");
    assert_eq!(serde_json::from_str::<Comparison>(&text).expect("our own text"), found);
    let older = text.replace("\"estimate\"", "\"median\"");
    assert_eq!(serde_json::from_str::<Comparison>(&older).expect("as it was called"), found);
}

/// Any float, often an ordinary one.
fn value() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        4 => (0.5f64..2.0).prop_map(Some),
        1 => any::<f64>().prop_map(Some),
        1 => prop::sample::select(vec![0.0, 1e-18, 1e18, -1e18, f64::NAN]).prop_map(Some),
        1 => Just(None),
    ]
}

proptest! {
    #[test]
    fn any_input_gives_finite_results(
        pairs in prop::collection::vec((0usize..9, value(), value()), 0..60),
        by_ratio: bool, exponent in 0.0f64..11.0, noisy: bool,
    ) {
        let pairs: Vec<_> =
            pairs.into_iter().map(|(generation, base, arm)| Pair { generation, base, arm }).collect();
        let rule = if by_ratio {
            Rule::RATE
        } else {
            Rule::difference(Direction::HigherIsBetter, 1.0)
        };
        let look = Look::only(10f64.powf(-exponent));
        let found = Comparison::of_pairs(&pairs, rule, look).expect("within limits");
        prop_assert_eq!(found.offered(), pairs.len());
        let interval = found.interval.iter().flat_map(|i| [i.lower, i.upper, i.confidence]);
        let spread = found.spread.iter().flat_map(|s| [s.within, s.between]);
        let effects = found.effects.iter().map(|effect| effect.value);
        let scalars = [found.estimate, found.p, found.half_width(), found.noise_floor()];
        for number in effects.chain(interval).chain(spread).chain(scalars.into_iter().flatten()) {
            prop_assert!(number.is_finite(), "{:?}", found);
        }
        let noise = noisy.then_some(&found);
        prop_assert!(found.pairs_wanted(noise).is_finite());
        prop_assert!(found.judge(noise).threshold.is_finite());
        let interval = found.interval.zip(found.estimate);
        prop_assert!(interval.is_none_or(|(i, at)| i.lower <= at && at <= i.upper));
    }

    #[test]
    fn swapping_the_arms_inverts_the_ratio(
        values in prop::collection::vec((0usize..5, 0.5f64..2.0, 0.5f64..2.0), 1..40),
    ) {
        let pair = |&(generation, base, arm)| Pair { generation, base: Some(base), arm: Some(arm) };
        let back = |&(generation, base, arm)| Pair { generation, base: Some(arm), arm: Some(base) };
        let there = compare(&values.iter().map(pair).collect::<Vec<_>>(), Rule::RATE);
        let back = compare(&values.iter().map(back).collect::<Vec<_>>(), Rule::RATE);
        let (a, b) = (there.estimate.expect("pairs"), back.estimate.expect("pairs"));
        prop_assert!((a * b - 1.0).abs() < 1e-9);
        let ends = |found: &Comparison| found.interval.map(|i| (i.lower.ln(), i.upper.ln()));
        if let (Some((low, high)), Some((back_low, back_high))) = (ends(&there), ends(&back)) {
            prop_assert!((low + back_high).abs() < 1e-6 && (high + back_low).abs() < 1e-6);
        }
    }
}

#[test]
fn values_of_a_search_that_agree_are_no_surer_than_its_resolution() {
    let rule =
        Rule { threshold_min: 0.05, half_width_target: 0.1, resolution: 0.147, ..Rule::RATE };
    let of = |ratio: f64| {
        let found = compare(&pairs(&[Some(100.0 * ratio); 6], 1), rule);
        let noise = compare(&pairs(&[Some(100.0); 6], 1), rule);
        assert_eq!(noise.noise_floor(), Some(0.0), "it is in the interval already");
        (found.clone(), found.judge(Some(&noise)))
    };
    // One step of the grid: the rates may be next to the same, or nearly two steps apart.
    let (found, judged) = of(1.147);
    let interval = found.interval.expect("six generations");
    assert!((interval.lower - 1.0).abs() < 1e-9, "{interval:?}");
    assert!((interval.upper - 1.147f64.powi(2)).abs() < 1e-9, "{interval:?}");
    assert_eq!((found.p, judged.verdict), (Some(1.0), Verdict::Inconclusive));
    // In one cell they may be nearly a step apart.
    assert_eq!(of(1.0).1.verdict, Verdict::Inconclusive);
    assert_eq!(of(1.147f64.powi(2)).1.verdict, Verdict::Better);
    assert_eq!(of(1.147f64.powi(-2)).1.verdict, Verdict::Worse);
    let met = of(1.5).0.answer(Limit::AtLeast(1.2), None);
    let open = of(1.3).0.answer(Limit::AtLeast(1.2), None);
    assert_eq!([met.answer, open.answer], [Answer::Met, Answer::Undecided]);
}
