//! Whether the generator could send more than is asked of it: before the race each load is offered [`OVER`] times over
//! into a sink, an XDP program at the arm's end of a cable that drops every frame, with no arm there.
//!
//! A generator at its limit is never quite on time and shares its trouble with its receiver, so what an arm took
//! of such a load says as much of the generator as of the arm: it is no capacity. It assumes that the first arm's bench
//! has no arm yet. Arms that no cable leads to (TAP devices, shared memory) have another way in, of which it says
//! nothing.

use crate::addresses::DESTINATION;
use crate::arrivals::Arrivals;
use crate::bench::Bench;
use crate::child_process::ChildProcess;
use crate::error::RaceError;
use crate::meter::Owner;
use crate::plan::{GeneratorSetup, Order, Reply};
use crate::result::{GeneratorReport, Headroom};
use crate::segment::SegmentPlan;
use crate::trial::{LEAD_NS, PATIENCE, TrialPlan, lateness, schedule};
use crate::wire::Wire;
use laneway_core::Clock;
use laneway_engine::MonotonicClock;
use laneway_kinds::Wiring;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How many times over a load is offered.
const OVER: f64 = 1.5;
/// For how long: with what is before and behind, three tries take 0.3 s.
const LENGTH: Duration = Duration::from_millis(60);
/// Times that a load is offered: what disturbed it may be gone the next time.
const TRIES: usize = 3;

/// A generator, and a sink that takes what it sends.
pub(crate) struct Sink<'a> {
    plan: TrialPlan<'a>,
    bench: &'a Bench,
    generator: ChildProcess,
    segment: u8,
    /// Behind the generator, which sends to it.
    _drops: Arrivals,
}

impl<'a> Sink<'a> {
    /// Where the arm of `plan` would be.
    ///
    /// # Errors
    /// When the generator does not start, or the program cannot be attached.
    pub(crate) fn open(bench: &'a Bench, plan: TrialPlan<'a>) -> Result<Sink<'a>, RaceError> {
        let (namespace, interface) = bench.sut();
        let drops = Arrivals::attach(namespace, interface, bench.number_at(), bench.timetable())?;
        let wire = Wire::lay(bench, Wiring::Cables, &plan.app)?;
        let generator = ChildProcess::start(
            "generator".to_owned(),
            "generate",
            wire.namespace(),
            &GeneratorSetup {
                traffic: plan.sending.traffic.clone(),
                times: plan.sending.times.clone(),
                way: wire.way_in(plan.way)?,
                destination: DESTINATION,
                cpu: bench.placement().generator_cpu,
            },
        )?;
        bench.meter().classify(generator.pid(), Owner::Generator(plan.arm))?;
        Ok(Sink { plan, bench, generator, segment: 0, _drops: drops })
    }

    /// What the generator keeps of a load, [`OVER`] times over.
    ///
    /// # Errors
    /// When the generator fails, or the race was interrupted.
    pub(crate) fn headroom(&mut self, load_pps: u64) -> Result<Headroom, RaceError> {
        let mut found = Headroom::default();
        for _ in 0..TRIES {
            if self.plan.interrupted.load(Ordering::Relaxed) {
                return Err(RaceError::Interrupted);
            }
            self.segment = self.segment.checked_add(1).unwrap_or(1);
            let over = (load_pps as f64 * OVER) as u64;
            let over = SegmentPlan {
                entry: self.segment.into(),
                ..schedule(&self.plan, over, LENGTH, self.segment)
            };
            let sent = send(&mut self.generator, over)?;
            found = judge(load_pps, &sent, self.plan.late_p99_ns_max);
            if found.is_kept() {
                break;
            }
        }
        Ok(found)
    }
}

impl Drop for Sink<'_> {
    fn drop(&mut self) {
        // What stays booked is a process that has gone.
        let _ = self.bench.meter().disown(self.plan.arm);
    }
}

fn send(generator: &mut ChildProcess, plan: SegmentPlan) -> Result<GeneratorReport, RaceError> {
    let plan = SegmentPlan { t0_ns: MonotonicClock.now_ns() + LEAD_NS, ..plan };
    generator.order(&Order::Segment(plan))?;
    match generator.reply(PATIENCE)? {
        Reply::Sent(sent) => Ok(sent),
        _ => Err(generator.failed("it answered out of turn")),
    }
}

fn judge(load_pps: u64, sent: &GeneratorReport, late_p99_ns_max: u64) -> Headroom {
    let &GeneratorReport { asked_pps, achieved_pps, late_p99_ns, .. } = sent;
    let missing = lateness(sent, late_p99_ns_max);
    Headroom { load_pps, asked_pps, achieved_pps, late_p99_ns, missing }
}

/// What a reader must know of the loads that the generator has no headroom at; `None` if there are none.
pub(crate) fn note(found: &[Headroom]) -> Option<String> {
    let of = |kept: &Headroom| {
        let why = kept.missing.join(", ");
        format!("{}/s ({why})", kept.load_pps)
    };
    let missing: Vec<String> = found.iter().filter(|kept| !kept.is_kept()).map(of).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the generator has no headroom at {}: offered {OVER} times as much into a sink before the race, it did \
             not keep the schedule. What an arm took of such a load is no capacity of the arm's: there is no \
             verdict on rates there",
            missing.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(achieved_pps: f64, late_p99_ns: u64) -> GeneratorReport {
        GeneratorReport {
            asked_pps: 150_000.0,
            achieved_pps,
            late_p99_ns,
            ..GeneratorReport::default()
        }
    }

    #[test]
    fn a_load_has_headroom_if_half_as_much_again_is_sent_in_time() {
        let judged = |achieved, late| judge(100_000, &sent(achieved, late), 100_000);
        let kept = judged(149_900.0, 99_000);
        assert!(kept.is_kept() && note(&[kept]).is_none());
        let (slow, late) = (judged(120_000.0, 5_000), judged(150_000.0, 400_000));
        assert!(!slow.is_kept() && !late.is_kept());
        let text = note(&[judged(150_000.0, 1), slow, late]).expect("two lack it");
        assert!(text.contains("100000/s (the generator sent 120000 of 150000"), "{text}");
        assert!(text.contains("p99 400 us") && text.contains("no verdict on rates"), "{text}");
    }
}
