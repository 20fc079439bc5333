//! The time of a recording before the tracer is taken off, so that one cost can be taken off all recordings.

use crate::model::Model;
use crate::result::{Calibration, CalibrationSource, CommonCost, Layer};

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

/// One estimate of the tracer's cost for all recordings, with its least and its most: of any recording, with what that
/// recording is unsure of.
///
/// Of an estimate from short calls a part is what these calls did: it may be anything from nothing on.
pub(super) fn common_cost(recordings: &[Calibration]) -> CommonCost {
    let known = || recordings.iter().filter(|known| known.source != CalibrationSource::None);
    let over = |figure: fn(&Calibration) -> f64| -> [f64; 3] {
        let mut figures: Vec<f64> = known().map(figure).collect();
        if figures.is_empty() {
            return [0.0; 3];
        }
        figures.sort_unstable_by(f64::total_cmp);
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for known in known() {
            let whole = (known.inside_ns + known.outside_ns).max(f64::MIN_POSITIVE);
            let apart = figure(known) / whole * known.uncertainty_ns;
            let lowest = match known.source {
                CalibrationSource::Measured => (figure(known) - apart).max(0.0),
                _ => 0.0,
            };
            (least, most) = (least.min(lowest), most.max(figure(known) + apart));
        }
        [least, figures[figures.len() / 2], most]
    };
    CommonCost {
        inside_ns: over(|known| known.inside_ns),
        outside_ns: over(|known| known.outside_ns),
    }
}

/// Least, estimate, most.
pub(super) fn costs(common: &CommonCost) -> [Cost; 3] {
    [0, 1, 2].map(|at| Cost { inside_ns: common.inside_ns[at], outside_ns: common.outside_ns[at] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_recordings_are_unsure_of_is_in_the_common_cost() {
        let known = |source, inside_ns, uncertainty_ns| Calibration {
            source,
            inside_ns,
            outside_ns: 3.0 * inside_ns,
            uncertainty_ns,
            overhead_share: 0.0,
        };
        let measured = CalibrationSource::Measured;
        let common = common_cost(&[known(measured, 10.0, 8.0), known(measured, 12.0, 4.0)]);
        assert_eq!((common.inside_ns, common.outside_ns), ([8.0, 12.0, 13.0], [24.0, 36.0, 39.0]));
        let estimated = known(CalibrationSource::Estimated, 100.0, 40.0);
        let none = known(CalibrationSource::None, 0.0, 0.0);
        assert_eq!(common_cost(&[none, estimated]).inside_ns, [0.0, 100.0, 110.0]);
        assert_eq!(common_cost(&[none]).inside_ns, [0.0; 3]);
    }
}
