//! Fills of a pool's cache, as calls show them.

use super::Case;
use crate::model::Model;

/// Share of productive time from which fills are a cost; below, they are what a cache is for.
const FILLS_SHARE_MIN: f64 = 0.05;

/// Calls that fill the cache of a pool, and their time, ns.
pub(super) fn named_fills(model: &Model) -> (u64, f64) {
    let fills = model
        .contexts
        .iter()
        .filter(|context| crate::rules::is_refill(&model.rows[context.row as usize].name));
    fills.fold((0, 0.0), |sum, context| (sum.0 + context.calls, sum.1 + context.total_corrected_ns))
}

/// Fills that are known to cost next to nothing: what they do to durations is no finding.
pub(super) fn fills_are_cheap(case: &Case<'_>) -> bool {
    let (named, named_ns) = named_fills(case.model);
    named > 0 && named_ns < FILLS_SHARE_MIN * case.productive_ns()
}
