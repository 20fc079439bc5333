//! The search for a capacity: the highest offered rate that still comes through, by bisection.
//!
//! Assumes only that higher rates are harder. Bounded: it asks exactly `steps` times. Each answer is
//! one short segment, so a single capacity is as noisy as that; a race searches once per block and
//! judges over blocks. Rates are halved on a scale of ratios, as between 10,000 and 1,000,000 the
//! middle is 100,000.

/// Where a capacity lies, per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The highest rate that passed; `None` if not even the lowest asked for did.
    pub(crate) passed: Option<u64>,
    /// The lowest that did not; `None` if all did.
    pub(crate) failed: Option<u64>,
}

/// Searches between `low` and `high` (both are asked for unless a first answer makes it needless),
/// asking `passes` at most `steps` times.
///
/// # Errors
/// The first that `passes` gives.
pub(crate) fn bisect<E>(
    [low, high]: [u64; 2],
    steps: u32,
    mut passes: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Bounds, E> {
    let mut bounds = Bounds { passed: None, failed: None };
    let mut next = high;
    for _ in 0..steps {
        if passes(next)? {
            bounds.passed = Some(next);
        } else {
            bounds.failed = Some(next);
        }
        next = match (bounds.passed, bounds.failed) {
            (None, Some(failed)) if failed <= low => break,
            (Some(_), None) => break,
            (None, Some(_)) => low,
            (Some(passed), Some(failed)) => middle(passed, failed),
            (None, None) => break,
        };
        if bounds.passed == Some(next) || bounds.failed == Some(next) {
            break;
        }
    }
    Ok(bounds)
}

/// How near the bounds of a search in so many `steps` are, as a share: the first that failed is at most so much above
/// the last that passed. The rates asked are the same for all, so this is what such searches cannot distinguish.
pub(crate) fn resolution([low, high]: [u64; 2], steps: u32) -> f64 {
    let halvings = steps.saturating_sub(2).min(f64::MANTISSA_DIGITS);
    let range = (high as f64 / low.max(1) as f64).max(1.0);
    range.powf(0.5f64.powi(halvings as i32)) - 1.0
}

fn middle(low: u64, high: u64) -> u64 {
    (low as f64 * high as f64).sqrt() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches for `capacity`, and gives the bounds and how often it asked.
    fn search(capacity: u64, steps: u32) -> (Bounds, u32) {
        let mut asked = 0;
        let bounds = bisect([10_000, 1_000_000], steps, |pps| {
            asked += 1;
            Ok::<_, ()>(pps <= capacity)
        });
        (bounds.unwrap(), asked)
    }

    #[test]
    fn it_closes_in_from_both_sides_and_asks_no_more_than_its_limit() {
        for capacity in [10_000, 34_567, 99_999, 100_001, 999_999] {
            let (bounds, asked) = search(capacity, 10);
            let (passed, failed) = (bounds.passed.unwrap(), bounds.failed.unwrap());
            assert!(passed <= capacity && capacity < failed, "{capacity}: {bounds:?}");
            assert!(
                asked <= 10 && (failed as f64 / passed as f64) < 1.02,
                "{capacity}: {bounds:?}"
            );
        }
    }

    #[test]
    fn what_lies_outside_is_reported_and_not_searched() {
        assert_eq!(search(2_000_000, 10), (Bounds { passed: Some(1_000_000), failed: None }, 1));
        assert_eq!(search(9_999, 10), (Bounds { passed: None, failed: Some(10_000) }, 2));
    }

    #[test]
    fn the_bounds_are_as_near_as_the_resolution_says() {
        for steps in 2..12 {
            let known_to = resolution([10_000, 1_000_000], steps);
            for capacity in [10_000, 34_567, 99_999, 100_001, 777_777, 999_999] {
                let Bounds { passed: Some(passed), failed: Some(failed) } =
                    search(capacity, steps).0
                else {
                    panic!("{capacity} lies between")
                };
                let off = failed as f64 / passed as f64 - 1.0;
                // A middle is rounded down to a whole rate.
                assert!((off - known_to).abs() < 1e-3, "{steps}, {capacity}: {off} {known_to}");
            }
        }
        assert!((resolution([50_000, 4_000_000], 7) - 0.147).abs() < 1e-3);
        assert_eq!([0, 1, 2].map(|steps| resolution([10, 30], steps)), [2.0; 3]);
    }

    #[test]
    fn an_error_ends_it() {
        assert_eq!(bisect([1, 2], 5, |_| Err("gone")), Err("gone"));
    }
}
