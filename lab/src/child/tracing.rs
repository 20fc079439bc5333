//! The trace of an arm: a session of the tracer that keeps what its worker does within the segments.
//!
//! To be begun by the thread that talks, before the worker pins itself: the thread that writes the file starts
//! here, and is not to share the worker's CPU. An arm that is measured has none of it (no ring, no thread, and
//! the branch in the engine's loop that asks for a recorder goes the way it always goes), unless its scenario asks what
//! tracing costs: then everything is recorded, and the file goes with the arm.

use crate::plan::{TraceEnd, TracePlan};
use crate::segment::SegmentPlan;
use laneway_engine::TICK_NS;
use laneway_tracer::{Session, SessionOptions, ThreadInfo, TraceError, TraceSlot};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::{env, fs, process};

/// The share of a segment that is left out at its begin, at most: in its first tick the worker ends a poll or
/// a wait that began before there was anything to do.
const BEGIN_SHARE: u64 = 10;

/// What is recorded of an arm that is traced.
pub(super) struct Tracing {
    session: Session,
    window_ns_max: Option<u64>,
    /// Behind the session: it goes when the files are complete.
    _own: Option<OwnFolder>,
}

/// A folder for a trace that has no reader; gone when it is dropped.
struct OwnFolder(PathBuf);

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // What is left in the temporary folder is harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Tracing {
    /// Begins, if only segments are wanted with nothing recorded until one is announced; the slot is the worker's.
    ///
    /// # Errors
    /// When the file or the thread that writes it cannot be had.
    pub(super) fn begin(plan: &TracePlan, cpu: usize) -> Result<(Tracing, TraceSlot), TraceError> {
        let options =
            SessionOptions { file_bytes_max: plan.file_bytes_max, ..SessionOptions::default() };
        let name = format!("laneway-traced-{}", process::id());
        let own = plan.folder.is_none().then(|| OwnFolder(env::temp_dir().join(name)));
        let folder = plan.folder.as_ref().or_else(|| own.as_ref().map(|own| &own.0));
        let folder = folder.expect("it is one of the two");
        let session = Session::create(folder, options)?;
        if plan.window_ns_max.is_some() {
            session.keep_only(0..=0);
        }
        let thread = ThreadInfo { cpu: u32::try_from(cpu).ok(), ..ThreadInfo::current("worker-0") };
        let slot = TraceSlot::holding(session.recorder(&thread)?);
        Ok((Tracing { session, window_ns_max: plan.window_ns_max, _own: own }, slot))
    }

    /// This segment is coming, and ends at `end_ns`.
    pub(super) fn expect(&self, plan: &SegmentPlan, end_ns: u64) {
        if let Some(window_ns_max) = self.window_ns_max {
            self.session.keep_only(window(plan, end_ns, window_ns_max));
        }
    }

    /// The worker is gone: the file is complete.
    ///
    /// # Errors
    /// When it could not be written.
    pub(super) fn end(self) -> Result<TraceEnd, TraceError> {
        let mut end = TraceEnd::default();
        for thread in self.session.finish()? {
            end.records += thread.records;
            end.lost += thread.lost;
        }
        Ok(end)
    }
}

/// What of a segment is recorded, CLOCK_MONOTONIC ns. One at top speed has no end that is known before it comes:
/// of such a one the longest stretch is recorded.
fn window(plan: &SegmentPlan, end_ns: u64, length_ns_max: u64) -> RangeInclusive<u64> {
    let end_ns = if plan.is_topspeed() { u64::MAX } else { end_ns };
    let from_ns = plan.t0_ns + TICK_NS.min((end_ns - plan.t0_ns) / BEGIN_SHARE);
    from_ns..=end_ns.min(from_ns.saturating_add(length_ns_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_lies_within_the_segment_and_is_bounded() {
        let second = 1_000_000_000;
        let plan = SegmentPlan {
            segment: 1,
            t0_ns: second,
            frames: 9,
            interval_ns: 1_000_000,
            burst: 1,
            entry: 0,
        };
        let until = |end_ns| window(&plan, end_ns, 2 * second);
        assert_eq!(until(1_500_000_000), 1_010_000_000..=1_500_000_000);
        assert_eq!(until(1_010_000_000), 1_001_000_000..=1_010_000_000);
        assert_eq!(until(6_000_000_000), 1_010_000_000..=3_010_000_000);
        assert_eq!(until(second), second..=second);
        let poured = SegmentPlan { interval_ns: 0, ..plan };
        assert_eq!(window(&poured, second, second / 4), 1_010_000_000..=1_260_000_000);
    }
}
