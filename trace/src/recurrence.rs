//! Does something that is known moment by moment recur by a clock? The true period, or none.
//!
//! Where each occurrence has its moment there is no need for a spectrum, which shows harmonics as high as the period.
//! Intervals between neighbours are whole multiples of a period where some were missed; the period is the
//! one that most of them are a small multiple of, and that many are once. Chance does that for a fifth of the intervals.

/// Fewest intervals.
const INTERVALS_MIN: usize = 8;
/// An interval is a multiple of a period within this share of the period.
const APART: f64 = 0.15;
/// Most occurrences missed in a row, plus one.
const MULTIPLE_MAX: f64 = 4.0;
/// Intervals that must be multiples, and those that must be the period itself.
const MULTIPLES_SHARE: f64 = 0.85;
const ONCE_SHARE: f64 = 0.5;
/// Ticks of kernels, ns: 1000, 300, 250 and 100 Hz.
const TICKS_NS: [f64; 4] = [1e6, 1e9 / 300.0, 4e6, 1e7];
/// A period is a tick's within this share.
const TICK_APART: f64 = 0.003;

/// A period of moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Recurrence {
    pub(crate) ns: f64,
    /// Half of the 95 % interval, ns.
    pub(crate) half_ns: f64,
}

/// The period of moments in ascending order.
pub(crate) fn of(moments: &[u64]) -> Option<Recurrence> {
    let mut intervals: Vec<f64> =
        moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64).filter(|&ns| ns > 0.0).collect();
    if intervals.len() < INTERVALS_MIN {
        return None;
    }
    let all = intervals.clone();
    intervals.sort_unstable_by(f64::total_cmp);
    let guess = intervals[intervals.len() / 2];
    let multiple = |ns: f64, period: f64| {
        let times = (ns / period).round();
        let is_one = (1.0..=MULTIPLE_MAX).contains(&times);
        (is_one && (ns - times * period).abs() <= APART * period).then_some(times)
    };
    let (mut once, mut several, mut times, mut sum) = (0, 0, 0.0, 0.0);
    for &ns in &all {
        if let Some(found) = multiple(ns, guess) {
            several += 1;
            once += usize::from(found == 1.0);
            times += found;
            sum += ns;
        }
    }
    let share = |count: usize| count as f64 / all.len() as f64;
    if share(several) < MULTIPLES_SHARE || share(once) < ONCE_SHARE {
        return None;
    }
    let ns = sum / times;
    let errors = all.iter().filter_map(|&one| Some((one - multiple(one, guess)? * ns).powi(2)));
    let deviation = (errors.sum::<f64>() / several as f64).sqrt();
    // Whether each is late by itself or makes the next one late: the wider of the two.
    Some(Recurrence { ns, half_ns: 1.96 * deviation / times.sqrt() })
}

/// Is it the tick of a kernel, within `apart_ns`? A sentence.
pub(crate) fn tick(ns: f64, apart_ns: f64) -> Option<String> {
    let tick = TICKS_NS.iter().find(|&&tick| (ns - tick).abs() <= apart_ns)?;
    Some(format!("A kernel with {:.0} ticks a second does something then, too.", 1e9 / tick))
}

impl Recurrence {
    /// As a sentence.
    pub(crate) fn words(&self) -> String {
        let ms = |ns: f64| ns / 1e6;
        let mut words = format!(
            "It recurs every {:.3} ms (95 %: {:.3} to {:.3}).",
            ms(self.ns),
            ms(self.ns - self.half_ns),
            ms(self.ns + self.half_ns)
        );
        words.extend(tick(self.ns, TICK_APART * self.ns).map(|text| format!(" {text}")));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_random::Random;

    #[test]
    fn the_true_period_is_found_whatever_it_is() {
        let (mut covered, mut all) = (0, 0);
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let truth = 1e6 * (0.5 + 60.0 * random.unit());
            let jitter = 0.03 * truth * random.unit();
            let missed = 0.15 * random.unit();
            let count = 12 + random.index(300);
            let mut moments = Vec::new();
            for at in 0..count {
                if random.unit() >= missed {
                    moments.push((1e9 + at as f64 * truth + jitter * random.normal()) as u64);
                }
            }
            moments.sort_unstable();
            let Some(found) = of(&moments) else { continue };
            all += 1;
            assert!((found.ns / truth - 1.0).abs() < 0.05, "seed {seed}: {found:?}, {truth}");
            covered += usize::from((found.ns - truth).abs() <= found.half_ns + 1.0);
        }
        assert!(all >= 180, "{all} of 200 found");
        assert!(covered * 100 >= all * 93, "{covered} of {all} intervals hold the truth");
    }

    #[test]
    fn what_comes_by_chance_has_none() {
        let mut found = 0;
        for seed in 0..500 {
            let mut random = Random::seeded(seed);
            let mut now = 1e9;
            let moments: Vec<u64> = (0..10 + random.index(200))
                .map(|_| {
                    now += -(1.0 - random.unit()).ln() * 5e6;
                    now as u64
                })
                .collect();
            found += usize::from(of(&moments).is_some());
        }
        assert!(found <= 2, "{found} of 500");
    }

    #[test]
    fn a_kernels_tick_is_named() {
        let moments: Vec<u64> = (0..50).map(|at| at * 4_000_000).collect();
        assert!(of(&moments).expect("a period").words().contains("250 ticks"));
    }
}
