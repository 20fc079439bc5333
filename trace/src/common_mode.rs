//! Do unrelated functions get slower at the same times, by the same factor?
//!
//! If the CPU is shared, throttled or taken away, everything on it slows alike. Leaf functions are compared, because
//! a caller is slow whenever its callee is. The time of the thread is divided into slow and fast
//! buckets by the mean over functions of how far each lies above its own usual level; then each function's
//! ratio of slow to fast is taken on the other functions' division, so that none is compared with itself.

use crate::levels::levels;
use crate::model::Model;
use crate::result::Layer;
use crate::shape::best_split;

/// Functions needed.
pub(crate) const FUNCTIONS_MIN: usize = 5;
/// Functions looked at.
const FUNCTIONS_MAX: usize = 24;
/// Buckets of time.
const BUCKETS: usize = 512;
/// Calls per function, so that levels are more than noise.
const CALLS_MIN: u64 = 200;
/// Slow and fast must be this far apart, as a ratio ...
const RATIO_MIN: f64 = 1.25;
/// ... and each must fill this share of the time.
const SHARE_MIN: f64 = 0.05;
/// Ratios are equal within this ...
const EQUAL: f64 = 0.2;
/// ... for this share of the functions.
const AGREEMENT_MIN: f64 = 0.75;
/// Levels are counted in 1/32 of a doubling.
const LEVELS_PER_DOUBLING: f64 = 32.0;

/// What was found.
#[derive(Debug, Clone)]
pub(crate) struct CommonMode {
    pub(crate) functions: usize,
    pub(crate) thread: u32,
    /// There are slow and fast times at all.
    pub(crate) switches: bool,
    /// Median over functions of slow over fast.
    pub(crate) ratio: f64,
    /// Quartile-based interval of that median over functions.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Share of functions within 20 % of the median ratio.
    pub(crate) agreement: f64,
    pub(crate) slow_share: f64,
    /// [start, length] of slow stretches, ns since the epoch.
    pub(crate) slow: Vec<(u64, u64)>,
}

impl CommonMode {
    pub(crate) fn is_common(&self) -> bool {
        self.switches && self.ratio >= RATIO_MIN && self.agreement >= AGREEMENT_MIN
    }
}

/// `None` if too few functions can be compared.
pub(crate) fn find(model: &Model) -> Option<CommonMode> {
    let thread = (0..model.timed.len()).max_by_key(|&at| model.states[at].events)?;
    let timed = &model.timed[thread];
    let by = timed.buckets.len().div_ceil(BUCKETS).max(1);
    let mut deviations: Vec<Vec<Option<f64>>> = Vec::new();
    for row in functions(model) {
        let levels = levels(model, thread, row, by);
        let mut known: Vec<f64> = levels.iter().flatten().copied().collect();
        if known.len() < 16 || 3 * known.len() < levels.len() {
            continue;
        }
        known.sort_unstable_by(f64::total_cmp);
        let usual = known[known.len() / 2];
        deviations.push(levels.iter().map(|level| level.map(|level| level - usual)).collect());
        if deviations.len() >= FUNCTIONS_MAX {
            break;
        }
    }
    if deviations.len() < FUNCTIONS_MIN {
        return None;
    }
    align(&mut deviations);
    let buckets = deviations[0].len();
    let mean_without = |left_out: Option<usize>| -> Vec<Option<f64>> {
        (0..buckets)
            .map(|at| {
                let others =
                    deviations.iter().enumerate().filter(|&(own, _)| Some(own) != left_out);
                let (n, sum) = others
                    .filter_map(|(_, levels)| levels[at])
                    .fold((0.0, 0.0), |sum, level| (sum.0 + 1.0, sum.1 + level));
                (n >= 2.0).then(|| sum / n)
            })
            .collect()
    };
    let mut found = CommonMode {
        functions: deviations.len(),
        thread: thread as u32,
        switches: false,
        ratio: 1.0,
        low: 1.0,
        high: 1.0,
        agreement: 0.0,
        slow_share: 0.0,
        slow: Vec::new(),
    };
    let common = mean_without(None);
    let Some(threshold) = threshold(&common) else { return Some(found) };
    found.switches = true;
    let mut ratios: Vec<f64> = deviations
        .iter()
        .enumerate()
        .filter_map(|(own, levels)| {
            let others = mean_without(Some(own));
            let (mut slow, mut fast) = ((0.0, 0.0), (0.0, 0.0));
            for (level, other) in levels.iter().zip(&others) {
                if let (Some(level), Some(other)) = (level, other) {
                    let side = if *other > threshold { &mut slow } else { &mut fast };
                    *side = (side.0 + 1.0, side.1 + level);
                }
            }
            (slow.0 > 0.0 && fast.0 > 0.0)
                .then(|| ((slow.1 / slow.0 - fast.1 / fast.0) / LEVELS_PER_DOUBLING).exp2())
        })
        .collect();
    if ratios.len() < FUNCTIONS_MIN {
        found.switches = false;
        return Some(found);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| ratios[((ratios.len() - 1) as f64 * q).round() as usize];
    let median = at(0.5);
    let near = ratios.iter().filter(|&&ratio| (ratio / median - 1.0).abs() <= EQUAL).count();
    // Half-width of a median's interval from the quartiles (McGill, Tukey and Larsen, 1978).
    let half = 1.57 * (at(0.75) - at(0.25)) / (ratios.len() as f64).sqrt();
    found.ratio = median;
    (found.low, found.high) = (median - half, median + half);
    found.agreement = near as f64 / ratios.len() as f64;
    let width_ns = timed.width_ns * by as u64;
    let is_slow = |level: &Option<f64>| level.is_some_and(|level| level > threshold);
    let known = common.iter().flatten().count();
    found.slow_share = common.iter().filter(|level| is_slow(level)).count() as f64 / known as f64;
    for (at, level) in common.iter().enumerate() {
        if !is_slow(level) {
            continue;
        }
        let start = timed.start_ns + at as u64 * width_ns;
        match found.slow.last_mut() {
            Some(last) if last.0 + last.1 == start => last.1 += width_ns,
            _ => found.slow.push((start, width_ns)),
        }
    }
    Some(found)
}

/// Shifts each function so that all agree about every moment as well as they can: level = function + moment.
///
/// Medians alone do not: where a CPU is slow for about half of the time, the median of a function that is always called
/// may be a slow one, and that of a function called now and then a fast one.
fn align(deviations: &mut [Vec<Option<f64>>]) {
    const ROUNDS: usize = 16;
    let buckets = deviations.first().map_or(0, Vec::len);
    let mut apart = Vec::with_capacity(buckets);
    for _ in 0..ROUNDS {
        let moments: Vec<f64> = (0..buckets)
            .map(|at| {
                let known = deviations.iter().filter_map(|levels| levels[at]);
                let (n, sum) = known.fold((0.0, 0.0), |sum, level| (sum.0 + 1.0, sum.1 + level));
                sum / f64::max(n, 1.0)
            })
            .collect();
        for levels in deviations.iter_mut() {
            apart.clear();
            let pairs = levels.iter().zip(&moments);
            apart.extend(pairs.filter_map(|(level, moment)| Some((*level)? - moment)));
            if apart.is_empty() {
                continue;
            }
            let middle = apart.len() / 2;
            let shift = *apart.select_nth_unstable_by(middle, f64::total_cmp).1;
            levels.iter_mut().flatten().for_each(|level| *level -= shift);
        }
    }
}

/// Leaves first; where there are too few, whatever is called often.
fn functions(model: &Model) -> Vec<u32> {
    let is_leaf = |row: &crate::model::Row| {
        row.contexts.iter().all(|&at| model.contexts[at as usize].children.is_empty())
    };
    let usable = |row: &&crate::model::Row| {
        row.calls >= CALLS_MIN
            && !row.own
            && !row.asynchronous
            && row.layer_shares[Layer::OffCpu.index()] == 0.0
    };
    let mut rows: Vec<(bool, u64, u32)> = (0u32..)
        .zip(&model.rows)
        .filter(|(_, row)| usable(row))
        .map(|(at, row)| (!is_leaf(row), u64::MAX - row.calls, at))
        .collect();
    rows.sort_unstable();
    let leaves = rows.iter().filter(|row| !row.0).count();
    let keep = if leaves >= FUNCTIONS_MIN { leaves } else { rows.len() };
    rows.truncate(keep);
    rows.into_iter().map(|row| row.2).collect()
}

/// Between slow and fast levels; `None` if they are not apart.
fn threshold(levels: &[Option<f64>]) -> Option<f64> {
    let mut sorted: Vec<f64> = levels.iter().flatten().copied().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let split = best_split(&sorted)?;
    let share = split as f64 / sorted.len() as f64;
    if !(SHARE_MIN..=1.0 - SHARE_MIN).contains(&share) {
        return None;
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (fast, slow) = (mean(&sorted[..split]), mean(&sorted[split..]));
    let apart = ((slow - fast) / LEVELS_PER_DOUBLING).exp2();
    (apart >= RATIO_MIN).then_some((fast + slow) / 2.0)
}
