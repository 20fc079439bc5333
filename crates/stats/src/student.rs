//! Student's t distribution with whole degrees of freedom: two-sided tail and its inverse.
//!
//! The tail is the finite trigonometric sum of Abramowitz and Stegun (Handbook of Mathematical
//! Functions, 26.7.3 and 26.7.4), exact but for rounding. Being one minus a sum it has absolute,
//! not relative, precision: about 1e-14, so nothing below [`TAIL_MIN`] is distinguished.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// Smallest two-sided tail that keeps some digits.
pub(crate) const TAIL_MIN: f64 = 1e-10;

/// P(|T| > t) for t >= 0, never below [`TAIL_MIN`]; `freedom` is at least 1.
pub(crate) fn two_sided_p(t: f64, freedom: usize) -> f64 {
    tail((t / (freedom as f64).sqrt()).atan(), freedom).clamp(TAIL_MIN, 1.0)
}

/// The t with P(|T| > t) = `level`; `None` outside [[`TAIL_MIN`], 1).
pub(crate) fn critical(level: f64, freedom: usize) -> Option<f64> {
    if !(TAIL_MIN..1.0).contains(&level) {
        return None;
    }
    let (mut near, mut far) = (0.0, FRAC_PI_2);
    for _ in 0..60 {
        let middle = 0.5 * (near + far);
        if tail(middle, freedom) > level { near = middle } else { far = middle }
    }
    Some((freedom as f64).sqrt() * (0.5 * (near + far)).tan())
}

/// P(|T| > sqrt(freedom) tan(angle)).
fn tail(angle: f64, freedom: usize) -> f64 {
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2;
    let mut term = if odd == 1 { cos } else { 1.0 };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    for step in (odd + 2..freedom).step_by(2) {
        term *= cos * cos * (step - 1) as f64 / step as f64;
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    let inside = if odd == 1 { FRAC_2_PI * (angle + sin * sum) } else { sin * sum };
    1.0 - inside
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Closed forms (1: Cauchy, 2: algebraic) and the usual printed tables, e.g. NIST/SEMATECH
    // e-Handbook of Statistical Methods, 1.3.6.7.2.
    #[test]
    fn critical_values_match_the_tables() {
        for (freedom, two_sided, expected) in [
            (1, 0.05, 12.706),
            (2, 0.05, 4.303),
            (3, 0.05, 3.182),
            (7, 0.05, 2.365),
            (11, 0.05, 2.201),
            (23, 0.05, 2.069),
            (100, 0.05, 1.984),
            (2, 0.002, 22.327),
            (3, 0.002, 10.215),
            (9, 0.01, 3.250),
            (10, 0.002, 4.144),
            (30, 0.2, 1.310),
        ] {
            let found = critical(two_sided, freedom).expect("inside");
            assert!((found - expected).abs() < 6e-4, "{freedom} {two_sided}: {found}");
        }
        let algebraic = |p: f64| (2.0 * (1.0 - p).powi(2) / (p * (2.0 - p))).sqrt();
        for level in [0.3, 0.01, 1e-6] {
            let found = critical(level, 2).expect("inside");
            assert!((found / algebraic(level) - 1.0).abs() < 1e-6, "{level}: {found}");
        }
    }

    #[test]
    fn many_degrees_of_freedom_are_normal() {
        let found = critical(0.05, 100_000).expect("inside");
        assert!(
            (found - crate::normal::quantile(0.975).expect("inside (0, 1)")).abs() < 1e-4,
            "{found}"
        );
    }

    #[test]
    fn levels_that_cannot_be_are_refused() {
        for level in [0.0, 1.0, -1.0, f64::NAN, 1e-12] {
            assert_eq!(critical(level, 5), None);
        }
        assert_eq!(two_sided_p(1e300, 4), TAIL_MIN);
        assert_eq!(two_sided_p(f64::INFINITY, 5), TAIL_MIN);
    }

    proptest! {
        #[test]
        fn tail_and_critical_value_are_inverse(freedom in 1usize..300, exponent in 0.1f64..7.0) {
            let level = 10f64.powf(-exponent);
            let t = critical(level, freedom).expect("inside");
            let p = two_sided_p(t, freedom);
            prop_assert!((p / level - 1.0).abs() < 1e-5, "{} {}", p, level);
        }
    }
}
