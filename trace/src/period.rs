//! Is there a period? The Lomb-Scargle periodogram of bucket levels, against what shuffling leaves of it.
//!
//! Buckets are evenly spaced, where Lomb-Scargle is the plain periodogram and can be had by Fourier
//! transform; a bucket without calls counts as the mean. Machines drift, so power falls with
//! frequency without any period; each line is therefore divided by the median of its neighbourhood. A
//! line counts if it beats the highest line of 1,000 series made of the same blocks of buckets in random order, at
//! the level asked for, and if the series resembles itself one period later.

use crate::random::Random;

/// Shuffled series.
const SHUFFLES: usize = 1_000;
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
    let (line, peak) = highest_line(&transform, &series, lowest, highest);
    let mut random = Random::seeded(seed);
    let mut blocks: Vec<&[f64]> = series.chunks(BLOCK).collect();
    let mut higher = 0;
    let allowed = (p_max * (SHUFFLES + 1) as f64) as usize;
    for _ in 0..SHUFFLES {
        random.shuffle(&mut blocks);
        let shuffled = blocks.concat();
        higher += usize::from(highest_line(&transform, &shuffled, lowest, highest).1 >= peak);
        // Once it cannot be significant any more the exact p does not matter.
        if higher >= allowed.max(1) {
            return None;
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

fn highest_line(
    transform: &Transform,
    series: &[f64],
    lowest: usize,
    highest: usize,
) -> (usize, f64) {
    let power = transform.power(series);
    let mut best = (lowest, 0.0);
    let mut near = Vec::with_capacity(2 * NEIGHBOURS + 1);
    let (mut until, mut median) = (0, 1.0);
    for line in lowest..=highest {
        // One median serves a few lines: neighbourhoods overlap almost wholly.
        if line >= until {
            let from = line.saturating_sub(NEIGHBOURS).max(1);
            near.clear();
            near.extend_from_slice(&power[from..(line + NEIGHBOURS).min(power.len())]);
            let middle = near.len() / 2;
            near.select_nth_unstable_by(middle, f64::total_cmp);
            median = near[middle].max(1e-12);
            until = line + NEIGHBOURS / 4;
        }
        let height = power[line] / median;
        if height > best.1 {
            best = (line, height);
        }
    }
    best
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

    /// Power per line, up to half the size; the series is continued with zeros.
    fn power(&self, series: &[f64]) -> Vec<f64> {
        let mut values: Vec<(f64, f64)> = self
            .order
            .iter()
            .map(|&at| (series.get(at as usize).copied().unwrap_or(0.0), 0.0))
            .collect();
        let mut half = 1;
        while half < self.size {
            let step = self.size / (2 * half);
            for start in (0..self.size).step_by(2 * half) {
                for at in 0..half {
                    let (cos, sin) = self.roots[at * step];
                    let (re, im) = values[start + at + half];
                    let turned = (re * cos - im * sin, re * sin + im * cos);
                    let even = values[start + at];
                    values[start + at] = (even.0 + turned.0, even.1 + turned.1);
                    values[start + at + half] = (even.0 - turned.0, even.1 - turned.1);
                }
            }
            half *= 2;
        }
        values[..self.size / 2].iter().map(|(re, im)| re * re + im * im).collect()
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
