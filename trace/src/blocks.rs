//! The span cut into a few equal blocks, over all threads: what intervals and differences are made from.
//!
//! Time buckets of one run are no independent runs, but long blocks of them are nearly so; resampling blocks says
//! how much a figure depends on when one looks.

use crate::model::Model;
use crate::result::Layer;
use crate::series::OTHERS;
use laneway_random::Random;

/// Blocks a trace is cut into.
pub(crate) const BLOCKS: usize = 32;
/// Resamples of an interval.
const RESAMPLES: usize = 1_000;

/// One block.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    pub(crate) packets: f64,
    /// Traced time, ns.
    pub(crate) self_ns: f64,
    /// In rounds that found nothing, ns.
    pub(crate) idle_ns: f64,
    /// Corrected time per row, ns, idle included.
    pub(crate) corrected_ns: Vec<f64>,
    /// Raw time per row, ns.
    pub(crate) raw_ns: Vec<f64>,
}

/// Cuts; an empty trace has no blocks.
pub(crate) fn cut(model: &Model) -> Vec<Block> {
    let length = model.span.length_ns;
    if length == 0 {
        return Vec::new();
    }
    let rows = model.rows.len();
    let empty =
        Block { corrected_ns: vec![0.0; rows], raw_ns: vec![0.0; rows], ..Block::default() };
    let mut blocks = vec![empty; BLOCKS];
    // What a row keeps of its raw time when the tracer is taken off.
    let kept: Vec<f64> = model
        .rows
        .iter()
        .map(|row| row.self_corrected_ns / (row.self_ns as f64).max(1.0))
        .collect();
    for timed in &model.timed {
        for (index, bucket) in timed.buckets.iter().enumerate() {
            let middle = timed.start_ns + timed.width_ns * index as u64 + timed.width_ns / 2;
            let place = u128::from(model.since(middle)) * BLOCKS as u128 / u128::from(length);
            let block = &mut blocks[(place as usize).min(BLOCKS - 1)];
            block.packets += f64::from(bucket.packets);
            block.idle_ns += bucket.idle_ns as f64;
            for cell in &bucket.cells {
                block.self_ns += cell.self_ns as f64;
                if cell.function == OTHERS {
                    continue;
                }
                let row = cell.function as usize;
                block.raw_ns[row] += cell.self_ns as f64;
                block.corrected_ns[row] += cell.self_ns as f64 * kept[row];
                if model.counts.receives == 0 {
                    block.packets += f64::from(cell.calls) * model.rows[row].packet_share;
                }
            }
        }
    }
    blocks
}

impl Block {
    /// Corrected time of a layer, ns.
    pub(crate) fn layer_ns(&self, model: &Model, layer: Layer) -> f64 {
        self.weighted(model, |row| row.layer_shares[layer.index()])
    }

    /// Corrected time weighted per row, ns.
    pub(crate) fn weighted(
        &self,
        model: &Model,
        weight: impl Fn(&crate::model::Row) -> f64,
    ) -> f64 {
        model.rows.iter().zip(&self.corrected_ns).map(|(row, ns)| ns * weight(row)).sum()
    }
}

/// 95 % interval of sum(part) / sum(whole) when blocks are drawn anew; `None` below 8 blocks with anything in them.
pub(crate) fn ratio_interval(part: &[f64], whole: &[f64], seed: u64) -> Option<(f64, f64)> {
    let used: Vec<usize> =
        (0..part.len()).filter(|&at| part[at] > 0.0 || whole[at] > 0.0).collect();
    if used.len() < 8 {
        return None;
    }
    let mut random = Random::seeded(seed);
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let (mut above, mut below) = (0.0, 0.0);
            for _ in 0..used.len() {
                let at = used[random.index(used.len())];
                above += part[at];
                below += whole[at];
            }
            (below > 0.0).then(|| above / below)
        })
        .collect();
    if ratios.len() < RESAMPLES / 2 {
        return None;
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| ratios[(q * (ratios.len() - 1) as f64).round() as usize];
    Some((at(0.025), at(0.975)))
}

/// 95 % interval of a share of `of` independent cases (Wilson).
pub(crate) fn share_interval(hits: u64, of: u64) -> Option<(f64, f64)> {
    if of == 0 {
        return None;
    }
    const Z: f64 = 1.96;
    let (n, p) = (of as f64, hits as f64 / of as f64);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt() / (1.0 + Z * Z / n);
    Some(((middle - half).max(0.0), (middle + half).min(1.0)))
}

/// 95 % interval of a count (Wilson and Hilferty's approximation of the exact Poisson one).
pub(crate) fn count_interval(count: u64) -> (f64, f64) {
    const Z: f64 = 1.96;
    let end = |k: f64, z: f64| k * (1.0 - 1.0 / (9.0 * k) + z / (3.0 * k.sqrt())).powi(3);
    let n = count as f64;
    (if count == 0 { 0.0 } else { end(n, -Z).max(0.0) }, end(n + 1.0, Z))
}
