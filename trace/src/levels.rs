//! How long the calls of a function take over time: their level per stretch of a thread.

use crate::model::Model;
use crate::series::Timed;

/// The thread in which a row has most calls.
pub(crate) fn busiest_thread(model: &Model, row: u32) -> Option<usize> {
    let calls = |timed: &Timed| -> u64 {
        let cells = timed.buckets.iter().flat_map(|bucket| &bucket.cells);
        cells.filter(|cell| cell.function == row).map(|cell| u64::from(cell.calls)).sum()
    };
    let by_thread = model.timed.iter().map(calls).enumerate();
    by_thread.max_by_key(|&(_, calls)| calls).filter(|&(_, calls)| calls > 0).map(|(at, _)| at)
}

/// Level (mean of log durations, 32 per doubling) of a row per `by` buckets of a thread.
pub(crate) fn levels(model: &Model, thread: usize, row: u32, by: usize) -> Vec<Option<f64>> {
    let buckets = &model.timed[thread].buckets;
    buckets
        .chunks(by)
        .map(|chunk| {
            let cells = chunk.iter().flat_map(|bucket| &bucket.cells);
            let (calls, logs) = cells
                .filter(|cell| cell.function == row)
                .fold((0, 0), |sum, cell| (sum.0 + u64::from(cell.calls), sum.1 + cell.log_sum));
            (calls > 0).then(|| logs as f64 / calls as f64)
        })
        .collect()
}
