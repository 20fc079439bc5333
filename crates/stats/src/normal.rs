//! The standard normal distribution: upper tail and inverse.
//!
//! Accurate to about 1e-14 relative, which is far beyond what a p-value deserves but makes
//! disagreement with a reference a bug and not a matter of taste. The inverse is a bisection on
//! the tail: it is called a few times per interval, so clarity wins over a table of coefficients.

/// P(Z > x).
pub(crate) fn upper_tail(x: f64) -> f64 {
    if x < 0.0 {
        return 1.0 - upper_tail(-x);
    }
    let density = (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    if x < 2.0 {
        // Taylor series around 0 (Marsaglia, "Evaluating the Normal Distribution", JSS 11:4,
        // 2004). Beyond 2 the subtraction from 1/2 would eat the digits of a small tail.
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term > sum * 1e-17 {
            odd += 2.0;
            term *= x * x / odd;
            sum += term;
        }
        0.5 - density * sum
    } else {
        // Laplace's continued fraction for the Mills ratio. What n steps leave falls as
        // exp(-2 x sqrt(2 n)); these leave less than 1e-24.
        let steps = 10 + (400.0 / (x * x)) as u32;
        let fraction = (1..=steps).rev().fold(x, |below, step| x + f64::from(step) / below);
        density / fraction
    }
}

/// The x with P(Z <= x) = `probability`; `None` outside the open interval (0, 1).
pub(crate) fn quantile(probability: f64) -> Option<f64> {
    if !(probability > 0.0 && probability < 1.0) {
        return None;
    }
    // Solve in the tail the answer lies in, where probabilities keep their relative precision.
    let tail = probability.min(1.0 - probability);
    let (mut near, mut far) = (0.0, 40.0);
    for _ in 0..64 {
        let middle = 0.5 * (near + far);
        if upper_tail(middle) > tail { near = middle } else { far = middle }
    }
    let distance = 0.5 * (near + far);
    Some(if probability < 0.5 { -distance } else { distance })
}

#[cfg(test)]
mod tests {
    use super::*;

    // scipy 1.17.1: stats.norm.sf and stats.norm.ppf.
    #[test]
    fn upper_tail_matches_scipy() {
        for (x, expected) in [
            (-7.0, 0.999_999_999_998_720_1),
            (-3.5, 0.999_767_370_920_964_5),
            (-1.96, 0.975_002_104_851_779_5),
            (-0.3, 0.617_911_422_188_952_6),
            (0.0, 0.5),
            (0.5, 0.308_537_538_725_986_9),
            (1.99, 0.023_295_467_750_211_82),
            (2.01, 0.022_215_594_429_431_475),
            (2.9, 0.001_865_813_300_384_037_5),
            (3.1, 0.000_967_603_213_218_356_3),
            (6.0, 9.865_876_450_376_946e-10),
        ] {
            let found = upper_tail(x);
            assert!((found / expected - 1.0).abs() < 1e-12, "{x}: {found} {expected}");
        }
    }

    #[test]
    fn quantile_matches_scipy_and_refuses_the_ends() {
        for (probability, expected) in [
            (1e-4, -3.719_016_485_455_680_4),
            (0.02, -2.053_748_910_631_823),
            (0.3, -0.524_400_512_708_040_9),
            (0.5, 0.0),
            (0.77, 0.738_846_849_185_213_7),
            (0.975, 1.959_963_984_540_054),
            (0.9999, 3.719_016_485_455_709),
        ] {
            let found = quantile(probability).expect("inside (0, 1)");
            assert!((found - expected).abs() < 1e-11, "{probability}: {found} {expected}");
        }
        assert_eq!([0.0, 1.0, f64::NAN].map(quantile), [None, None, None]);
    }
}
