//! What recording an event costs, measured where it will be paid.
//!
//! A call that does nothing is recorded many times; the batch that took least counts, because
//! whatever disturbs a batch only makes it longer. The analysis subtracts these costs, so they are measured
//! with the very code that records, on a ring of their own.

use crate::{
    Record, Recorder, Ticks, points,
    record::Lasted,
    ring::{Consumer, Producer, ring},
};

use std::sync::Arc;

/// Batches of which the fastest counts.
const BATCHES: usize = 30;
/// Calls per batch: the ring holds them all.
const CALLS: usize = 1024;

/// The cost of recording one whole call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Of it, what falls between the two readings of the counter and so into the call's own length, ns.
    pub inside_ns: f64,
    /// All of it, ns.
    pub whole_ns: f64,
}

/// Measures it on the calling thread; takes about a millisecond. `ticks_per_s` is the counter's rate.
pub fn calibrate(ticks: &Ticks, ticks_per_s: u64) -> Calibration {
    let (producer, mut consumer): (Producer, Consumer) = ring(CALLS);
    let mut recorder = Recorder::new(ticks.clone(), producer, ticks.now(), Arc::default());
    let (mut inside, mut whole) = (u64::MAX, u64::MAX);
    for _ in 0..BATCHES {
        let began = ticks.now();
        for _ in 0..CALLS {
            let from = recorder.now();
            std::hint::black_box(());
            let until = recorder.now();
            recorder.called(points::APP_TICK, from, until, 0);
        }
        whole = whole.min(ticks.now().saturating_sub(began));
        let mut sum = 0;
        consumer.take(CALLS, |words| sum += Lasted::unpack(Record::from_words(words)).ticks);
        inside = inside.min(sum);
    }
    let per_call_ns = |ticks: u64| ticks as f64 * 1e9 / ticks_per_s.max(1) as f64 / CALLS as f64;
    Calibration { inside_ns: per_call_ns(inside), whole_ns: per_call_ns(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_costs_something_and_less_inside_than_altogether() {
        let ticks = Ticks::new();
        let cost = calibrate(&ticks, ticks.per_second());
        assert!(cost.whole_ns > 0.0 && cost.inside_ns <= cost.whole_ns, "{cost:?}");
    }
}
