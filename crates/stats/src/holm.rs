//! Holm's correction over a family of tests.

/// Holm's step-down correction (Scandinavian Journal of Statistics 6, 1979): the p-values of one
/// family, adjusted so that 5 % bounds the chance of any false alarm among them. Input order is
/// kept; an absent p-value stays absent and does not count as a test.
pub fn holm(family: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut present: Vec<(usize, f64)> =
        family.iter().enumerate().filter_map(|(place, p)| p.map(|p| (place, p))).collect();
    present.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut adjusted = vec![None; family.len()];
    let mut floor: f64 = 0.0;
    for (done, &(place, p)) in present.iter().enumerate() {
        floor = floor.max(p * (present.len() - done) as f64).min(1.0);
        adjusted[place] = Some(floor);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn holm_matches_statsmodels_and_skips_absent_tests() {
        let family = [Some(0.01), Some(0.04), None, Some(0.03), Some(0.005), Some(0.6)];
        let expected = [Some(0.04), Some(0.09), None, Some(0.09), Some(0.025), Some(0.6)];
        for (found, expected) in holm(&family).into_iter().zip(expected) {
            match (found, expected) {
                (Some(found), Some(expected)) => assert!((found - expected).abs() < 1e-12),
                (found, expected) => assert_eq!(found, expected),
            }
        }
    }

    proptest! {
        #[test]
        fn holm_never_lowers_a_p_value(family in prop::collection::vec(0.0f64..=1.0, 0..12)) {
            let family: Vec<_> = family.into_iter().map(Some).collect();
            for (raw, adjusted) in family.iter().zip(holm(&family)) {
                prop_assert!(*raw <= adjusted && adjusted <= Some(1.0));
            }
        }
    }
}
