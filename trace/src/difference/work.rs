//! The time of a recording before the tracer is taken off, so that one cost can be taken off all recordings.

use crate::analysis::Report;
use crate::model::Model;
use crate::result::{CalibrationSource, CommonCost, Layer};

/// What an estimate of the tracer's cost may be wrong by where it was measured, as a part of it.
const MEASURED_WITHIN: f64 = 0.05;

/// Recorded time, and the calls that the tracer made longer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// Without polls that found nothing (of the layer of these: only them), ns.
    busy_ns: f64,
    /// Calls that were entered.
    entered: f64,
    /// Calls that they made.
    called: f64,
}

/// The work of one recording.
#[derive(Debug, Clone, Default)]
pub(crate) struct Works {
    /// By function of the analysis.
    pub(crate) functions: Vec<Work>,
    /// In [`Layer::ALL`]'s order.
    pub(crate) layers: [Work; Layer::ALL.len()],
}

/// What a call costs, ns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    inside_ns: f64,
    outside_ns: f64,
}

impl Work {
    fn add(&mut self, part: f64, self_ns: u64, entered: f64, called: f64) {
        self.busy_ns += part * self_ns as f64;
        self.entered += part * entered;
        self.called += part * called;
    }

    /// Less what the tracer cost, never below 0, ns.
    pub(super) fn less(&self, cost: Cost) -> f64 {
        let tracer = self.entered * cost.inside_ns + self.called * cost.outside_ns;
        (self.busy_ns - tracer).max(0.0)
    }
}

impl Works {
    /// `functions`: rows of the model in the order of the analysis.
    pub(crate) fn of(model: &Model, functions: &[u32]) -> Self {
        let mut places = vec![usize::MAX; model.rows.len()];
        for (place, &row) in functions.iter().enumerate() {
            places[row as usize] = place;
        }
        let calls_of = |context: &crate::model::Context| match model.rows[context.row as usize].own
        {
            true => 0.0,
            false => (context.calls + context.cut) as f64,
        };
        let mut works =
            Self { functions: vec![Work::default(); functions.len()], ..Self::default() };
        for context in &model.contexts {
            let children =
                context.children.iter().map(|&at| calls_of(&model.contexts[at as usize]));
            let (entered, called) = (calls_of(context), children.sum::<f64>());
            let idle = context.idle_ns as f64 / (context.self_ns as f64).max(1.0);
            if let Some(work) = works.functions.get_mut(places[context.row as usize]) {
                work.add(1.0 - idle, context.self_ns, entered, called);
            }
            works.layers[context.layer.index()].add(1.0 - idle, context.self_ns, entered, called);
            works.layers[Layer::Idle.index()].add(idle, context.self_ns, entered, called);
        }
        works
    }
}

/// One estimate of the tracer's cost for all recordings, with its least and its most.
///
/// An estimate from the shortest calls is an upper bound: these calls did something, too. So it may be anything between
/// nothing and the largest of any recording; one that was measured is as sure as the recordings agree.
pub(super) fn common_cost(reports: &[&Report]) -> CommonCost {
    let known = || {
        let known = reports.iter().map(|report| report.analysis.calibration);
        known.filter(|calibration| calibration.source != CalibrationSource::None)
    };
    let is_measured = known().all(|known| known.source == CalibrationSource::Measured);
    let over = |figures: Vec<f64>| -> [f64; 3] {
        let mut figures = figures;
        figures.sort_unstable_by(f64::total_cmp);
        let (Some(&least), Some(&most)) = (figures.first(), figures.last()) else {
            return [0.0; 3];
        };
        let least = if is_measured { least * (1.0 - MEASURED_WITHIN) } else { 0.0 };
        let most = if is_measured { most * (1.0 + MEASURED_WITHIN) } else { most };
        [least, figures[figures.len() / 2], most]
    };
    CommonCost {
        inside_ns: over(known().map(|known| known.inside_ns).collect()),
        outside_ns: over(known().map(|known| known.outside_ns).collect()),
    }
}

/// Least, estimate, most.
pub(super) fn costs(common: &CommonCost) -> [Cost; 3] {
    [0, 1, 2].map(|at| Cost { inside_ns: common.inside_ns[at], outside_ns: common.outside_ns[at] })
}
