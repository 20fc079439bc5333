//! Is there a period? The Lomb-Scargle periodogram of bucket levels, against what shuffling leaves of it.
//!
//! Buckets are evenly spaced, where Lomb-Scargle is the plain periodogram and can be had by Fourier
//! transform; a bucket without calls counts as the mean. Machines drift, so power falls with
//! frequency without any period; each line is therefore divided by the median of its neighbourhood. A
//! line counts if it beats the highest line of 1,000 series made of the same blocks of buckets in random order, at
//! the level asked for, and if the series resembles itself one period later.

use laneway_random::Random;
use std::ops::{Range, RangeInclusive};

/// Shuffled series.
const SHUFFLES: usize = 1_000;
const _: () = assert!(SHUFFLES.is_multiple_of(2), "they come in pairs");
/// Buckets that stay together when shuffling: what is near in time is alike without any period.
const BLOCK: usize = 8;
/// Fewest buckets worth looking at.
pub(crate) const BUCKETS_MIN: usize = 128;
/// Longest series, in buckets.
pub(crate) const BUCKETS_MAX: usize = 4_096;
/// Shortest period, in buckets.
const PERIOD_MIN: f64 = 3.0;
/// Fewest periods within the series.
const PERIODS_MIN: usize = 8;
/// Lines to each side that a line is compared with.
const NEIGHBOURS: usize = 24;
/// Lines that are compared with one neighbourhood.
const GROUP: usize = NEIGHBOURS / 4;
/// Power below which there is none.
const POWER_MIN: f64 = 1e-12;
/// Correlation with itself one period later.
const RESEMBLANCE_MIN: f64 = 0.15;
/// Harmonics that may stand higher than the period.
const HARMONICS_MAX: u32 = 8;
/// Share of the best resemblance that counts as about as good.
const ALIKE: f64 = 0.8;

/// A period that beats chance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Period {
    /// In buckets.
    pub(crate) buckets: f64,
    /// Half the distance to the next line of the spectrum, in buckets: how well it is known.
    pub(crate) margin: f64,
    /// Share of the series' variance that repeats.
    pub(crate) resemblance: f64,
    /// Share of shuffled series with a higher line.
    pub(crate) p: f64,
}

/// Looks for a period. `levels`: one per bucket, `None` where nothing was called.
pub(crate) fn find(levels: &[Option<f64>], p_max: f64, seed: u64) -> Option<Period> {
    if levels.len() < BUCKETS_MIN {
        return None;
    }
    let series = flatten(levels)?;
    let size = series.len().next_power_of_two();
    let transform = Transform::new(size);
    let lowest = (size * PERIODS_MIN).div_ceil(series.len()).max(2);
    let highest = (size as f64 / PERIOD_MIN) as usize;
    if lowest + NEIGHBOURS >= highest {
        return None;
    }
    let mut spectra = [Vec::new(), Vec::new()];
    transform.powers([&series, &[]], &mut spectra);
    let (line, peak) = highest_line(&spectra[0], lowest..=highest);
    if peak <= 0.0 {
        return None;
    }
    let mut random = Random::seeded(seed);
    let mut blocks: Vec<&[f64]> = series.chunks(BLOCK).collect();
    let mut shuffled = [Vec::new(), Vec::new()];
    let mut higher = 0;
    let allowed = (p_max * (SHUFFLES + 1) as f64) as usize;
    for _ in 0..SHUFFLES / 2 {
        for series in &mut shuffled {
            random.shuffle(&mut blocks);
            series.clear();
            blocks.iter().for_each(|block| series.extend_from_slice(block));
        }
        transform.powers([&shuffled[0], &shuffled[1]], &mut spectra);
        for power in &spectra {
            higher += usize::from(reaches(power, lowest..=highest, peak));
            // Once it cannot be significant any more the exact p does not matter.
            if higher >= allowed.max(1) {
                return None;
            }
        }
    }
    // A harmonic may stand higher than the period itself: a short disturbance has many. The period is the shortest
    // multiple after which the series resembles itself about as well as it ever does.
    let base = size as f64 / line as f64;
    let longest = series.len() as f64 / PERIODS_MIN as f64;
    let multiples: Vec<(f64, f64)> = (1..=HARMONICS_MAX)
        .map(|multiple| f64::from(multiple) * base)
        .take_while(|&buckets| buckets <= longest)
        .map(|buckets| (buckets, correlation(&series, buckets)))
        .collect();
    let best = multiples.iter().map(|entry| entry.1).fold(0.0, f64::max);
    let (buckets, resemblance) =
        multiples.into_iter().find(|entry| entry.1 >= ALIKE * best && entry.1 > 0.0)?;
    if resemblance < RESEMBLANCE_MIN {
        return None;
    }
    let margin = 0.5 * buckets * buckets / series.len() as f64;
    let p = (higher + 1) as f64 / (SHUFFLES + 1) as f64;
    Some(Period { buckets, margin, resemblance, p })
}

/// Without trend and without extremes; gaps at the mean. `None` if nothing varies.
fn flatten(levels: &[Option<f64>]) -> Option<Vec<f64>> {
    let mut known: Vec<f64> = levels.iter().flatten().copied().collect();
    if known.len() < BUCKETS_MIN / 2 {
        return None;
    }
    let (mut n, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (at, level) in levels.iter().enumerate() {
        if let Some(level) = level {
            let x = at as f64;
            n += 1.0;
            sx += x;
            sy += level;
            sxx += x * x;
            sxy += x * level;
        }
    }
    let slope = (n * sxy - sx * sy) / (n * sxx - sx * sx).max(1e-12);
    let offset = (sy - slope * sx) / n;
    known.clear();
    let mut flat: Vec<f64> = levels
        .iter()
        .enumerate()
        .map(|(at, level)| level.map_or(0.0, |level| level - offset - slope * at as f64))
        .collect();
    known.extend(flat.iter().map(|value| value.abs()));
    known.sort_unstable_by(f64::total_cmp);
    // A single stall is no period, but it would fill the whole spectrum. The bound keeps what happens in 2 % of buckets.
    let bound = known[(known.len() - 1) * 98 / 100];
    if bound <= 0.0 {
        return None;
    }
    flat.iter_mut().for_each(|value| *value = value.clamp(-bound, bound));
    let mean = flat.iter().sum::<f64>() / flat.len() as f64;
    flat.iter_mut().for_each(|value| *value -= mean);
    Some(flat)
}

/// A few lines that share one neighbourhood: theirs overlap almost wholly.
fn groups(
    power: &[f64],
    lines: RangeInclusive<usize>,
) -> impl Iterator<Item = (Range<usize>, &[f64])> {
    let end = *lines.end() + 1;
    lines.step_by(GROUP).map(move |line| {
        let from = line.saturating_sub(NEIGHBOURS).max(1);
        (line..(line + GROUP).min(end), &power[from..(line + NEIGHBOURS).min(power.len())])
    })
}

/// The line that stands highest above the median of its neighbourhood, and how many times as high.
fn highest_line(power: &[f64], lines: RangeInclusive<usize>) -> (usize, f64) {
    let mut best = (*lines.start(), 0.0);
    let mut near = Vec::with_capacity(2 * NEIGHBOURS);
    for (group, neighbours) in groups(power, lines) {
        near.clear();
        near.extend_from_slice(neighbours);
        let middle = near.len() / 2;
        near.select_nth_unstable_by(middle, f64::total_cmp);
        let median = near[middle].max(POWER_MIN);
        for line in group {
            let height = power[line] / median;
            if height > best.1 {
                best = (line, height);
            }
        }
    }
    best
}

/// True if [`highest_line`] would find one of `peak` times its neighbourhood: a median is at most so much if more than
/// half of the neighbours are, which needs no median.
fn reaches(power: &[f64], lines: RangeInclusive<usize>, peak: f64) -> bool {
    groups(power, lines).any(|(group, neighbours)| {
        let bound = power[group].iter().fold(0.0, |a: f64, &b| a.max(b)) / peak;
        let below = neighbours.iter().filter(|&&power| power <= bound).count();
        bound >= POWER_MIN && below > neighbours.len() / 2
    })
}

/// Correlation of the series with itself `lag` buckets later, the better of the two whole lags around it.
fn correlation(series: &[f64], lag: f64) -> f64 {
    let variance: f64 = series.iter().map(|value| value * value).sum();
    let at = |lag: usize| -> f64 {
        let products = series.iter().zip(series.iter().skip(lag)).map(|(a, b)| a * b);
        let overlap = (series.len() - lag.min(series.len())).max(1) as f64;
        products.sum::<f64>() / variance.max(1e-12) * series.len() as f64 / overlap
    };
    at(lag.floor() as usize).max(at(lag.ceil() as usize))
}

/// Fourier transform of one size: roots of unity and the order of places, made once.
struct Transform {
    size: usize,
    roots: Vec<(f64, f64)>,
    order: Vec<u32>,
}

impl Transform {
    fn new(size: usize) -> Self {
        let roots = (0..size / 2)
            .map(|at| {
                let (sin, cos) = (-std::f64::consts::TAU * at as f64 / size as f64).sin_cos();
                (cos, sin)
            })
            .collect();
        let bits = size.trailing_zeros();
        let order = (0..size as u32).map(|at| at.reverse_bits() >> (32 - bits)).collect();
        Self { size, roots, order }
    }

    /// Power per line of two series, up to half the size; a series is continued with zeros.
    ///
    /// One is the real and one the imaginary part of what is transformed: the spectrum of a real series is
    /// symmetric, so the two can be separated afterwards (Numerical Recipes, 12.3).
    fn powers(&self, series: [&[f64]; 2], into: &mut [Vec<f64>; 2]) {
        let at = |part: &[f64], place: u32| part.get(place as usize).copied().unwrap_or(0.0);
        let mut values: Vec<(f64, f64)> =
            self.order.iter().map(|&place| (at(series[0], place), at(series[1], place))).collect();
        let mut half = 1;
        while half < self.size {
            let step = self.size / (2 * half);
            for both in values.chunks_exact_mut(2 * half) {
                let (even, odd) = both.split_at_mut(half);
                let roots = self.roots.iter().step_by(step);
                for ((even, odd), (cos, sin)) in even.iter_mut().zip(odd).zip(roots) {
                    let turned = (odd.0 * cos - odd.1 * sin, odd.0 * sin + odd.1 * cos);
                    *odd = (even.0 - turned.0, even.1 - turned.1);
                    *even = (even.0 + turned.0, even.1 + turned.1);
                }
            }
            half *= 2;
        }
        let power = |re: f64, im: f64| 0.25 * (re * re + im * im);
        into.iter_mut().for_each(Vec::clear);
        for line in 0..self.size / 2 {
            let (up, down) = (values[line], values[(self.size - line) % self.size]);
            into[0].push(power(up.0 + down.0, up.1 - down.1));
            into[1].push(power(up.1 + down.1, down.0 - up.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_period_is_found_and_named() {
        let mut random = Random::seeded(5);
        let levels: Vec<Option<f64>> = (0..1_000)
            .map(|at| {
                let bump = if at % 25 < 3 { 1.0 } else { 0.0 };
                (at % 17 != 4).then(|| bump + 0.4 * random.normal())
            })
            .collect();
        let found = find(&levels, 0.01, 1).expect("a period");
        assert!((found.buckets - 25.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn two_series_are_transformed_as_one_and_separated() {
        let mut random = Random::seeded(3);
        let series: [Vec<f64>; 2] =
            [100, 64].map(|len| (0..len).map(|_| random.normal()).collect());
        let mut spectra = [Vec::new(), Vec::new()];
        Transform::new(128).powers([&series[0], &series[1]], &mut spectra);
        for (series, spectrum) in series.iter().zip(&spectra) {
            assert_eq!(spectrum.len(), 64);
            for (line, power) in spectrum.iter().enumerate() {
                let turn = |at: usize| std::f64::consts::TAU * (at * line) as f64 / 128.0;
                let sum = |part: fn(f64) -> f64| -> f64 {
                    series.iter().enumerate().map(|(at, value)| value * part(turn(at))).sum()
                };
                let want = sum(f64::cos).powi(2) + sum(f64::sin).powi(2);
                assert!((power - want).abs() < 1e-9 * want.max(1.0), "{line}: {power} {want}");
            }
        }
    }

    #[test]
    fn a_line_reaches_what_the_highest_line_has_and_no_more() {
        let mut random = Random::seeded(4);
        for _ in 0..200 {
            let power: Vec<f64> = (0..256).map(|_| random.normal().powi(2)).collect();
            let (_, peak) = highest_line(&power, 5..=170);
            assert!(reaches(&power, 5..=170, peak * (1.0 - 1e-9)));
            assert!(!reaches(&power, 5..=170, peak * (1.0 + 1e-9)));
        }
    }

    #[test]
    fn drift_and_noise_have_none() {
        let mut false_alarms = 0;
        for seed in 0..60 {
            let mut random = Random::seeded(seed);
            let mut drift = 0.0;
            let levels: Vec<Option<f64>> = (0..700)
                .map(|_| {
                    drift = 0.9 * drift + random.normal();
                    Some(drift + random.normal())
                })
                .collect();
            false_alarms += usize::from(find(&levels, 0.01, seed).is_some());
        }
        assert!(false_alarms <= 2, "{false_alarms} of 60");
    }

    #[test]
    fn one_stall_is_no_period() {
        let mut random = Random::seeded(9);
        let mut levels: Vec<Option<f64>> = (0..600).map(|_| Some(random.normal())).collect();
        levels[300] = Some(400.0);
        assert_eq!(find(&levels, 0.01, 2), None);
    }
}
