//! One hump or two: the dip test of unimodality, and a fit of two components.
//!
//! J. A. Hartigan and P. M. Hartigan, "The Dip Test of Unimodality", Annals of Statistics 13, 1985. The dip is the
//! largest distance between the empirical distribution and the unimodal one nearest to it. All tests here
//! look at [`POINTS`] quantiles, so one table of the dip under the uniform distribution serves; it was
//! made by simulation (20,000 samples) and a test makes a coarse one again.

/// Quantiles taken of a distribution before it is tested.
pub(crate) const POINTS: usize = 400;

/// Dip of 400 uniform values: [dip, share of samples with a larger one].
const NULL: &[[f64; 2]] = &[
    [0.01836, 0.5],
    [0.02423, 0.1],
    [0.02621, 0.05],
    [0.03079, 0.01],
    [0.03230, 0.005],
    [0.03603, 0.001],
];

/// Hartigan's dip of an ascending sample. 0 for fewer than 4 values or a single one repeated.
pub(crate) fn dip(sorted: &[f64]) -> f64 {
    let mut places: Vec<f64> = Vec::new();
    let mut masses: Vec<f64> = Vec::new();
    for &value in sorted {
        if places.last() == Some(&value) {
            if let Some(mass) = masses.last_mut() {
                *mass += 1.0;
            }
        } else {
            places.push(value);
            masses.push(1.0);
        }
    }
    if sorted.len() < 4 || places.len() < 4 {
        return 0.0;
    }
    masses.iter_mut().for_each(|mass| *mass /= sorted.len() as f64);
    let mut reached = 0.0;
    let mut upper: Vec<f64> = masses
        .iter()
        .scan(0.0, |sum, mass| {
            *sum += mass;
            Some(*sum)
        })
        .collect();
    let mut largest: f64 = 0.0;
    loop {
        let lower: Vec<f64> = upper.iter().zip(&masses).map(|(sum, mass)| sum - mass).collect();
        let (convex, low_touch) = greatest_convex_minorant(&lower, &places);
        let (concave, high_touch) = least_concave_majorant(&upper, &places);
        let apart = |at: usize| (concave[at] - convex[at]).abs();
        let furthest = |touch: &[usize]| touch.iter().map(|&at| apart(at)).fold(0.0f64, f64::max);
        let (low, high) = (furthest(&low_touch), furthest(&high_touch));
        let (from, to, gap);
        if high > low {
            let at = high_touch.iter().copied().rev().find(|&at| apart(at) == high);
            to = at.unwrap_or(places.len() - 1);
            from = low_touch.iter().copied().rev().find(|&at| at <= to).unwrap_or(0);
            gap = high;
        } else {
            from = low_touch.iter().copied().find(|&at| apart(at) == low).unwrap_or(0);
            let last = places.len() - 1;
            to = high_touch.iter().copied().find(|&at| at >= from).unwrap_or(last);
            gap = low;
        }
        if gap <= largest || (from == 0 && to + 1 == places.len() && reached == gap) {
            return largest / 2.0;
        }
        reached = gap;
        let left = (0..=from).map(|at| (convex[at] - upper[at]).abs()).fold(0.0, f64::max);
        let right = (to..places.len())
            .map(|at| (concave[at] - upper[at] + masses[at]).abs())
            .fold(0.0, f64::max);
        largest = largest.max(left).max(right);
        places = places[from..=to].to_vec();
        masses = masses[from..=to].to_vec();
        upper = upper[from..=to].to_vec();
        if places.len() < 3 {
            return largest / 2.0;
        }
    }
}

/// Values at each place, and the places where it touches.
fn greatest_convex_minorant(values: &[f64], places: &[f64]) -> (Vec<f64>, Vec<usize>) {
    let mut touch: Vec<usize> = Vec::new();
    let slope = |a: usize, b: usize| (values[b] - values[a]) / (places[b] - places[a]);
    for at in 0..values.len() {
        while let [.., before, last] = touch[..] {
            if slope(before, last) < slope(last, at) {
                break;
            }
            touch.pop();
        }
        touch.push(at);
    }
    let mut line = vec![values[0]; values.len()];
    for pair in touch.windows(2) {
        for at in pair[0]..=pair[1] {
            line[at] = values[pair[0]] + slope(pair[0], pair[1]) * (places[at] - places[pair[0]]);
        }
    }
    (line, touch)
}

fn least_concave_majorant(values: &[f64], places: &[f64]) -> (Vec<f64>, Vec<usize>) {
    let mirrored: Vec<f64> = values.iter().map(|value| -value).collect();
    let (line, touch) = greatest_convex_minorant(&mirrored, places);
    (line.into_iter().map(|value| -value).collect(), touch)
}

/// The share of uniform samples of [`POINTS`] values with a larger dip, between the table's figures on a log scale.
pub(crate) fn dip_p(dip: f64) -> f64 {
    if dip <= NULL[0][0] {
        return 1.0;
    }
    for pair in NULL.windows(2) {
        let ([low, p_low], [high, p_high]) = (pair[0], pair[1]);
        if dip <= high {
            let part = (dip - low) / (high - low);
            return (p_low.ln() + part * (p_high.ln() - p_low.ln())).exp();
        }
    }
    NULL[NULL.len() - 1][1]
}

/// Two normal components.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Two {
    pub(crate) means: [f64; 2],
    pub(crate) deviations: [f64; 2],
    /// Share of the upper one.
    pub(crate) upper_share: f64,
}

impl Two {
    /// Ashman's D: above 2 the components are apart.
    pub(crate) fn separation(&self) -> f64 {
        let spread = self.deviations[0].powi(2) + self.deviations[1].powi(2);
        (self.means[1] - self.means[0]) * 2f64.sqrt() / spread.sqrt().max(1e-9)
    }
}

/// Fits two normal components to an ascending sample, by expectation and maximisation from its best split.
pub(crate) fn fit_two(sorted: &[f64]) -> Option<Two> {
    const ROUNDS: usize = 50;
    /// Narrower components are one value repeated: a clock step, not a mode.
    const DEVIATION_MIN: f64 = 0.01;
    let split = best_split(sorted)?;
    let (low, high) = sorted.split_at(split);
    let moments = |part: &[f64]| {
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        let variance = part.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / part.len() as f64;
        (mean, variance.sqrt().max(DEVIATION_MIN))
    };
    let ((m0, s0), (m1, s1)) = (moments(low), moments(high));
    let mut two = Two {
        means: [m0, m1],
        deviations: [s0, s1],
        upper_share: high.len() as f64 / sorted.len() as f64,
    };
    for _ in 0..ROUNDS {
        let (mut weight, mut sum, mut square) = ([1e-12; 2], [0.0; 2], [0.0; 2]);
        for &value in sorted {
            let density = |at: usize, share: f64| {
                let z = (value - two.means[at]) / two.deviations[at];
                share * (-0.5 * z * z).exp() / two.deviations[at] + 1e-300
            };
            let (lower, upper) = (density(0, 1.0 - two.upper_share), density(1, two.upper_share));
            for (at, part) in [lower / (lower + upper), upper / (lower + upper)].iter().enumerate()
            {
                weight[at] += part;
                sum[at] += part * value;
                square[at] += part * value * value;
            }
        }
        for at in 0..2 {
            two.means[at] = sum[at] / weight[at];
            let variance = (square[at] / weight[at] - two.means[at].powi(2)).max(0.0);
            two.deviations[at] = variance.sqrt().max(DEVIATION_MIN);
        }
        two.upper_share = weight[1] / (weight[0] + weight[1]);
    }
    if two.means[0] > two.means[1] {
        two.means.swap(0, 1);
        two.deviations.swap(0, 1);
        two.upper_share = 1.0 - two.upper_share;
    }
    Some(two)
}

/// Where to cut an ascending sample so that the two parts vary least in themselves; `None` below 4 values.
pub(crate) fn best_split(sorted: &[f64]) -> Option<usize> {
    if sorted.len() < 4 {
        return None;
    }
    let total: f64 = sorted.iter().sum();
    let n = sorted.len() as f64;
    let mut best = (f64::NEG_INFINITY, 1);
    let mut sum = 0.0;
    for at in 1..sorted.len() {
        sum += sorted[at - 1];
        let (low, high) = (at as f64, n - at as f64);
        let between = low * high * (sum / low - (total - sum) / high).powi(2);
        if between > best.0 {
            best = (between, at);
        }
    }
    Some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_random::Random;

    fn sample(random: &mut Random, mut draw: impl FnMut(&mut Random) -> f64) -> Vec<f64> {
        let mut sample: Vec<f64> = (0..POINTS).map(|_| draw(random)).collect();
        sample.sort_unstable_by(f64::total_cmp);
        sample
    }

    #[test]
    fn two_humps_dip_and_one_does_not() {
        let mut random = Random::seeded(3);
        let one = sample(&mut random, |random| random.normal());
        let two = sample(&mut random, |random| {
            random.normal() + if random.unit() < 0.4 { 6.0 } else { 0.0 }
        });
        assert!(dip_p(dip(&one)) > 0.1, "{}", dip(&one));
        assert!(dip_p(dip(&two)) <= 0.001, "{}", dip(&two));
        let fit = fit_two(&two).expect("enough values");
        assert!((fit.means[1] - fit.means[0] - 6.0).abs() < 0.5, "{fit:?}");
        assert!((fit.upper_share - 0.4).abs() < 0.08, "{fit:?}");
    }

    #[test]
    fn the_dip_of_a_small_sample_by_hand() {
        // Two pairs far apart: the distribution function must jump by 1/2 in two places; a unimodal one
        // can follow to within 1/8 of it.
        let found = dip(&[0.0, 0.01, 10.0, 10.01]);
        assert!((0.12..=0.26).contains(&found), "{found}");
    }

    #[test]
    fn the_table_is_that_of_uniform_samples() {
        let mut random = Random::seeded(11);
        let mut dips: Vec<f64> =
            (0..1_000).map(|_| dip(&sample(&mut random, Random::unit))).collect();
        dips.sort_unstable_by(f64::total_cmp);
        for (at, [expected, _]) in [(500, NULL[0]), (900, NULL[1]), (950, NULL[2])] {
            assert!((dips[at] / expected - 1.0).abs() < 0.06, "{at}: {} {expected}", dips[at]);
        }
    }
}
