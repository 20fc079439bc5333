//! Integers -> floats: the one place where means and deviations are computed, for both placements.

/// Mean and sample standard deviation (n - 1) of `n` values from their sum and sum of squares.
///
/// The mean is `None` without values, the deviation below two. Sums that contradict each other
/// (`n * squares < sum^2`: an accumulator has wrapped) have no deviation either. Exact until the
/// final division and root as long as `n * squares` fits 128 bits.
pub fn mean_and_deviation(n: u64, sum: u64, squares: u128) -> (Option<f64>, Option<f64>) {
    if n == 0 {
        return (None, None);
    }
    let mean = sum as f64 / n as f64;
    if n == 1 {
        return (Some(mean), None);
    }
    let square_of_sum = u128::from(sum) * u128::from(sum);
    let spread = match u128::from(n).checked_mul(squares) {
        Some(product) => product.checked_sub(square_of_sum).map(|d| d as f64),
        None => Some((n as f64 * squares as f64 - square_of_sum as f64).max(0.0)),
    };
    (Some(mean), spread.map(|d| (d / (n as f64 * (n - 1) as f64)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sums(values: &[u64]) -> (u64, u64, u128) {
        let squares = values.iter().map(|v| u128::from(*v) * u128::from(*v)).sum();
        (values.len() as u64, values.iter().sum(), squares)
    }

    proptest! {
        #[test]
        fn agrees_with_two_passes(values in proptest::collection::vec(0u64..1 << 40, 2..50)) {
            let (n, sum, squares) = sums(&values);
            let mean = values.iter().map(|v| *v as f64).sum::<f64>() / n as f64;
            let spread: f64 = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum();
            let deviation = (spread / (n - 1) as f64).sqrt();
            let (m, d) = mean_and_deviation(n, sum, squares);
            prop_assert!((m.unwrap() - mean).abs() <= 1e-9 * mean.max(1.0));
            prop_assert!((d.unwrap() - deviation).abs() <= 1e-6 * deviation.max(1.0));
        }
    }

    #[test]
    fn undefined_is_none() {
        assert_eq!(mean_and_deviation(0, 0, 0), (None, None));
        assert_eq!(mean_and_deviation(1, 7, 49), (Some(7.0), None));
        assert_eq!(mean_and_deviation(2, 10, 1), (Some(5.0), None));
    }

    #[test]
    fn even_gaps_of_a_millisecond_and_a_bit_have_no_deviation() {
        let (n, sum, squares) = sums(&[1_000_999; 1000]);
        assert_eq!(mean_and_deviation(n, sum, squares), (Some(1_000_999.0), Some(0.0)));
    }

    #[test]
    fn a_product_beyond_128_bits_still_has_an_answer() {
        let (mean, deviation) = mean_and_deviation(1 << 40, u64::MAX, u128::MAX >> 8);
        assert!(mean.unwrap().is_finite() && deviation.unwrap().is_finite());
    }
}
