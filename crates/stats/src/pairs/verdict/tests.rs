use proptest::prelude::*;

use super::*;
use crate::pairs::tests::found;
use crate::pairs::{Halves, Pair};
use crate::sequential::Look;

fn check(rule: Rule, ends: (f64, f64), noise: Option<&Comparison>, expected: Verdict) {
    let judged = found(rule, ends.0, ends.1).judge(noise);
    assert_eq!(judged.verdict, expected, "{ends:?} {judged:?}");
    assert_eq!(judged.doubt.is_some(), expected == Verdict::Inconclusive);
}

#[test]
fn the_whole_interval_must_lie_beyond_the_threshold() {
    check(Rule::RATE, (1.021, 1.3), None, Verdict::Better);
    check(Rule::RATE, (1.019, 1.3), None, Verdict::Inconclusive);
    check(Rule::RATE, (0.7, 0.979), None, Verdict::Worse);
    check(Rule::RATE, (0.985, 1.015), None, Verdict::Same);
    check(Rule::RATE, (0.9, 1.1), None, Verdict::Inconclusive);
    check(Rule::COST, (1.021, 1.3), None, Verdict::Worse);
    let losses = Rule::difference(Direction::LowerIsBetter, 10.0);
    check(losses, (11.0, 400.0), None, Verdict::Worse);
    check(losses, (-3.0, 12.0), None, Verdict::Inconclusive);
}

#[test]
fn values_that_are_coarser_than_the_threshold_are_to_be_finer() {
    let doubt = |resolution| {
        found(Rule { resolution, ..Rule::RATE }, 0.9, 1.1).judge(None).doubt.expect("it has one")
    };
    assert_eq!(doubt(0.019), Doubt::AcrossThreshold { threshold: 0.02 });
    assert_eq!(doubt(0.02), Doubt::Coarse { resolution: 0.02, threshold: 0.02 });
    assert!(doubt(0.147).to_string().ends_with("search finer"));
}

#[test]
fn the_noise_floor_raises_the_threshold_and_makes_nothing_the_same() {
    let noise = found(Rule::RATE, 1.0 / 1.05, 1.05);
    check(Rule::RATE, (1.03, 1.08), Some(&noise), Verdict::Inconclusive);
    check(Rule::RATE, (1.051, 1.08), Some(&noise), Verdict::Better);
    check(Rule::RATE, (0.97, 1.04), Some(&noise), Verdict::Inconclusive);
    let biased = found(Rule::RATE, 1.09, 1.11);
    check(Rule::RATE, (1.05, 1.1), Some(&biased), Verdict::Inconclusive);
}

/// A comparison of an arm at 1.5 with some values spoilt.
fn spoilt(values: impl IntoIterator<Item = Option<f64>>) -> Comparison {
    let pair = |(place, arm)| Pair { generation: place % 5, base: Some(1.0), arm };
    let pairs: Vec<_> = values.into_iter().enumerate().map(pair).collect();
    Comparison::of_pairs(&pairs, Rule::RATE, Look::only(0.05)).expect("within limits")
}

#[test]
fn a_few_missing_pairs_forbid_no_verdict_and_many_do() {
    let some = spoilt((0..100).map(|i| (i % 5 != 1 || i > 50).then_some(1.5)));
    assert_eq!(some.judge(None).verdict, Verdict::Better);
    let few = spoilt((0..100).map(|i| (i < 49).then_some(1.5)));
    assert_eq!(few.judge(None).doubt, Some(Doubt::TooFewWhole { whole: 49, pairs: 100 }));
    assert!(!few.is_decided(None), "a quieter stretch may mend it");
    assert_eq!(
        few.judge(None).doubt.expect("inconclusive").to_string(),
        "too few whole segments: 49 of 100 pairs can be compared, a verdict needs 50 %; the \
         machine was busy, or segments are too short for this metric"
    );
    assert_eq!(found(Rule::RATE, 1.1, 1.2).judge(Some(&few)).doubt, Some(Doubt::NoNoiseFloor));
}

#[test]
fn more_than_a_few_values_without_a_ratio_forbid_a_verdict() {
    let with_zeros = |zeros: usize| {
        spoilt((0..200).map(|i| Some(if i < zeros { 0.0 } else { 1.5 }))).judge(None)
    };
    assert_eq!(with_zeros(2).verdict, Verdict::Better);
    let doubt = Doubt::BrokenValues { not_positive: 3, out_of_range: 0, pairs: 200 };
    assert_eq!(with_zeros(3).doubt, Some(doubt));
}

#[test]
fn what_is_missing_is_named() {
    let mut none = found(Rule::RATE, 1.1, 1.2);
    none.interval = None;
    assert_eq!(none.judge(None).doubt, Some(Doubt::TooFewGenerations { generations: 0 }));
    let mut early = spoilt([Some(1.5); 10]);
    early.interval = None;
    early.look = Look { share: 0.1, ..early.look };
    assert_eq!(early.judge(None).doubt, Some(Doubt::TooEarly { share: 0.1 }));
    let foreign = found(Rule::COST, 1.0, 1.0);
    let clear = found(Rule::RATE, 2.0, 2.1);
    assert_eq!(clear.judge(Some(&foreign)).doubt, Some(Doubt::ForeignNoiseFloor));
    assert_eq!(clear.judge(Some(&none)).doubt, Some(Doubt::NoNoiseFloor));
    assert_eq!(none.unusable.missing, Halves::default());
}

#[test]
fn a_limit_is_kept_or_broken_by_the_whole_interval() {
    let answer = |lower, upper, limit| found(Rule::COST, lower, upper).answer(limit, None).answer;
    assert_eq!(answer(0.249, 0.332, Limit::AtMost(0.526)), Answer::Met);
    assert_eq!(answer(0.6, 0.7, Limit::AtMost(0.526)), Answer::Missed);
    assert_eq!(answer(0.5, 0.6, Limit::AtMost(0.526)), Answer::Undecided);
    assert_eq!(answer(3.6, 4.2, Limit::AtLeast(3.0)), Answer::Met);
    assert_eq!(answer(1.0, 1.0, Limit::AtMost(1.0)), Answer::Met);
    assert_eq!(answer(1.0, 1.0, Limit::AtLeast(1.0)), Answer::Met);
}

#[test]
fn a_limit_must_be_cleared_by_the_noise_floor() {
    let noise = found(Rule::COST, 1.0 / 1.03, 1.03);
    let answer =
        |lower, upper, limit| found(Rule::COST, lower, upper).answer(limit, Some(&noise)).answer;
    assert_eq!(answer(0.95, 0.99, Limit::AtMost(1.0)), Answer::Undecided);
    assert_eq!(answer(0.95, 0.97, Limit::AtMost(1.0)), Answer::Met);
    assert_eq!(answer(1.01, 1.05, Limit::AtMost(1.0)), Answer::Undecided);
    assert_eq!(answer(1.04, 1.05, Limit::AtMost(1.0)), Answer::Missed);
    let losses = Rule::difference(Direction::LowerIsBetter, 1.0);
    let noise = found(losses, -2.0, 2.0);
    let found = found(losses, 3.0, 5.0);
    assert_eq!(found.answer(Limit::AtMost(7.0), Some(&noise)).answer, Answer::Met);
    let answered = found.answer(Limit::AtMost(6.0), Some(&noise));
    assert_eq!(answered.doubt, Some(Doubt::AcrossLimit { limit: 6.0, margin: 2.0 }));
}

proptest! {
    #[test]
    fn swapping_the_arms_swaps_better_and_worse(
        centre in -0.1f64..0.1, half in 0.0f64..0.05, higher: bool,
    ) {
        let rule = if higher { Rule::RATE } else { Rule::COST };
        let (lower, upper) = ((centre - half).exp(), (centre + half).exp());
        let there = found(rule, lower, upper).judge(None).verdict;
        let back = found(rule, 1.0 / upper, 1.0 / lower).judge(None).verdict;
        let mirrored = match there {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            unchanged => unchanged,
        };
        prop_assert_eq!(back, mirrored);
    }

    #[test]
    fn at_most_and_at_least_never_agree_beyond_the_limit_itself(
        centre in -0.3f64..0.3, half in 1e-6f64..0.2, bound in -0.3f64..0.3,
    ) {
        let comparison = found(Rule::COST, (centre - half).exp(), (centre + half).exp());
        let most = comparison.answer(Limit::AtMost(bound.exp()), None).answer;
        let least = comparison.answer(Limit::AtLeast(bound.exp()), None).answer;
        let mirrored = match most {
            Answer::Met => Answer::Missed,
            Answer::Missed => Answer::Met,
            Answer::Undecided => Answer::Undecided,
        };
        prop_assert_eq!(least, mirrored);
    }
}
