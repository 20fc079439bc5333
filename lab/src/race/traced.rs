//! The pass behind the last generation: every arm of ours once more, traced, and what its trace says.
//!
//! It comes behind all generations, and not behind the loads of a measured trial, so that no process that is measured
//! has a recorder, a ring or a thread that writes files, and so that races with and without `--trace` are the same:
//! same children, with the same orders, in the same sequence. One segment per arm is enough: a trace explains, it does
//! not compare.
//!
//! What must always hold: a trace that failed costs its own arm its explanation and the race nothing; what
//! an interrupted pass leaves is whole traces only.

use super::contest::Contest;
use super::{Entrant, Progress, RaceError, trial_plan};
use crate::plan::{TraceEnd, TracePlan};
use crate::result::Summary;
use crate::tables::Tables;
use crate::trial::{self, Trial, TrialPlan};
use crate::why::{
    Explain, Explanation, Recorded, TRACES, TracedArm, TracingCost, folder_name,
    untraced_reason_of_peer,
};
use laneway_kinds::Shape;
use laneway_page::number::{count, duration, plain};
use laneway_tracer::{EXTENSION, RING_RECORDS};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shortest segment of an arm that is traced, ms.
const SEGMENT_MS_MIN: u64 = 500;
/// Longest stretch of a segment that is recorded: a second or two say what a minute would.
const WINDOW_NS_MAX: u64 = 2_000_000_000;
/// Bytes of one arm's trace: two seconds of three records per burst, at a million bursts a second.
const FILE_BYTES_MAX: u64 = 96 << 20;
/// Bytes of a trace that is written to learn what that costs: beyond it nothing would be written any more.
const MEASURED_FILE_BYTES_MAX: u64 = 2 << 30;
/// Times an arm is traced again because the segment was disturbed.
const RETRIES_MAX: usize = 2;
/// ... and because nothing of what it received is in its trace.
const MISSED_MAX: usize = 5;

/// The trace of an arm whose scenario measures what tracing costs: all that its worker does; it is not kept.
pub(super) fn measured() -> TracePlan {
    TracePlan { folder: None, window_ns_max: None, file_bytes_max: MEASURED_FILE_BYTES_MAX }
}

/// What became of those traces, a sentence per arm.
pub(super) fn measured_notes(trials: &[Trial], entrants: &[Entrant]) -> Vec<String> {
    let note = |entrant: &Entrant| {
        let of_arm = trials.iter().filter(|trial| trial.arm == entrant.name);
        let ends: Vec<TraceEnd> = of_arm.filter_map(|trial| trial.traced).collect();
        let (records, lost) =
            ends.iter().fold((0, 0), |(r, l), end| (r + end.records, l + end.lost));
        (!ends.is_empty()).then(|| {
            plain(&format!(
                "arm `{}` was traced while it was measured, to learn what that costs: {} records written in {} \
                 trials, {} that found no room; none is kept",
                entrant.name,
                count(records),
                ends.len(),
                count(lost)
            ))
        })
    };
    entrants.iter().filter_map(note).collect()
}

/// What the pass is about.
pub(super) struct Pass<'a> {
    pub(super) contest: Contest<'a>,
    /// What was measured.
    pub(super) summaries: &'a [Summary],
    /// Generations that were measured.
    pub(super) generations: usize,
}

impl Pass<'_> {
    /// Traces every arm and explains it; nothing if there was no load to trace it at.
    ///
    /// # Errors
    /// Only when the race was interrupted.
    pub(super) fn run(
        &self,
        explainer: &dyn Explain,
        show: &mut impl FnMut(&Progress<'_>),
    ) -> Result<Vec<TracedArm>, RaceError> {
        let Contest { scenario, extent, entrants, options, .. } = self.contest;
        let Some(load) = extent.loads_pps.len().checked_sub(1) else { return Ok(Vec::new()) };
        let mut taken = Vec::new();
        let mut all = Vec::new();
        for (arm, entrant) in entrants.iter().enumerate() {
            // It is the base once more.
            if entrant.is_noise_floor {
                continue;
            }
            let untraced_reason = match entrant.peer {
                Some(peer) => Some(untraced_reason_of_peer(peer)),
                None => untraced_reason_in_kernel(options.tables, &scenario.app, &entrant.lane),
            };
            let mut traced = TracedArm {
                arm,
                load,
                untraced_reason,
                folder: None,
                page: None,
                cost: None,
                explanation: None,
            };
            if traced.untraced_reason.is_none() {
                let name = folder_name(&entrant.name, &taken);
                let explained = self.explain(&mut traced, &name, explainer, show);
                taken.push(name);
                match explained {
                    Ok(explanation) => traced.explanation = Some(explanation),
                    Err(RaceError::Interrupted) => return Err(RaceError::Interrupted),
                    Err(error) => {
                        traced.untraced_reason = Some(format!("its trace failed: {error}"))
                    }
                }
            }
            all.push(traced);
        }
        Ok(all)
    }

    /// One arm.
    fn explain(
        &self,
        traced: &mut TracedArm,
        name: &str,
        explainer: &dyn Explain,
        show: &mut impl FnMut(&Progress<'_>),
    ) -> Result<Explanation, RaceError> {
        let traces = self.contest.options.out.join(TRACES);
        fs::create_dir_all(&traces).map_err(super::write_error(&traces))?;
        let failed = |why: String| RaceError::Child { what: format!("the trace of {name}"), why };
        let page = traces.join(format!("{name}.html"));
        let mut attempt = 0;
        let (trial, explained) = loop {
            let (trial, folder) = self.record(traced.arm, &traces, name)?;
            show(&Progress {
                generations: [self.generations; 2],
                rounds: 0,
                time: [Duration::ZERO; 2],
                undecided: [0; 2],
                trials: std::slice::from_ref(&trial),
                is_traced: true,
            });
            let Some(segment) = trial.segments.first() else {
                return Err(failed("no segment was offered".to_owned()));
            };
            let recorded =
                Recorded { folder: &folder, page: &page, lost_frames: segment.ledger.dropped() };
            let explained = explainer.explain(&recorded);
            // A hypervisor can keep the worker, or the generator, from its CPU for all of a short segment:
            // what was received then was received behind it.
            let has_frames =
                explained.as_ref().is_ok_and(|explanation| explanation.frames != Some(0));
            if has_frames || segment.ledger.delivered == 0 || attempt == MISSED_MAX {
                break (trial, explained);
            }
            attempt += 1;
        };
        let segment = trial.segments.first().expect("there was one when it was explained");
        let of_arm = |summary: &&Summary| (summary.arm, summary.load) == (traced.arm, traced.load);
        let measured = self.summaries.iter().find(of_arm);
        traced.cost = Some(TracingCost {
            traced_records_per_s: segment.records_per_s,
            records_per_s: measured.and_then(|summary| summary.records_per_s),
            traced_cpu_ns_per_record: segment.cpu.ns_per_record,
            cpu_ns_per_record: measured.and_then(|summary| summary.cpu_ns_per_record),
            doubts: segment.invalid.clone(),
        });
        let mut explanation = explained.map_err(failed)?;
        explanation.limits.splice(0..0, self.limits(trial.traced.unwrap_or_default()));
        traced.folder = Some(format!("{TRACES}/{name}"));
        traced.page = Some(format!("{TRACES}/{name}.html"));
        Ok(explanation)
    }

    /// Has the arm traced; what was recorded has its place only when it is whole.
    fn record(&self, arm: usize, traces: &Path, name: &str) -> Result<(Trial, PathBuf), RaceError> {
        let folder = traces.join(name);
        let mut attempt = 0;
        loop {
            let partial = Partial::create(traces.join(format!("{name}.partial")))?;
            let trial = self.trial(arm, &partial.0)?;
            let is_disturbed = trial.segments.iter().any(|segment| !segment.invalid.is_empty());
            if is_disturbed && attempt < RETRIES_MAX {
                attempt += 1;
                continue;
            }
            partial.become_whole(&folder)?;
            return Ok((trial, folder));
        }
    }

    fn trial(&self, arm: usize, folder: &Path) -> Result<Trial, RaceError> {
        let Contest { benches, scenario, extent, sending, entrants, options, .. } = self.contest;
        let entrant = &entrants[arm];
        let last = extent.loads_pps.len() - 1;
        let plan = TrialPlan {
            loads_pps: &extent.loads_pps[last..],
            segment: Duration::from_millis(self.segment_ms()),
            trace: Some(TracePlan {
                folder: Some(fs::canonicalize(folder).map_err(super::write_error(folder))?),
                window_ns_max: Some(self.window_ns_max()),
                file_bytes_max: FILE_BYTES_MAX,
            }),
            ..trial_plan(scenario, extent, sending, entrant, [arm, self.generations], options)
        };
        trial::once(&benches[0], plan).map_err(|error| super::interrupted(options, error))
    }

    /// A segment that is measured is too short for what comes rarely.
    fn segment_ms(&self) -> u64 {
        self.contest.extent.segment_ms.max(SEGMENT_MS_MIN)
    }

    /// Longest stretch of the segment that is recorded, ns. At top speed its end is not known in advance: of such
    /// a segment the first half, so that what follows it is not in the trace.
    fn window_ns_max(&self) -> u64 {
        let segment_ns = self.segment_ms() * 1_000_000;
        WINDOW_NS_MAX.min(if self.contest.extent.topspeed { segment_ns / 2 } else { segment_ns })
    }

    /// What the trace does not hold, because of how it was recorded.
    fn limits(&self, end: TraceEnd) -> Vec<String> {
        let mut limits = Vec::new();
        let (window_ns, segment_ms) = (self.window_ns_max(), self.segment_ms());
        if window_ns < segment_ms * 1_000_000 {
            limits.push(plain(&format!(
                "The first {} of the segment were recorded, of some {}.",
                duration(window_ns as f64),
                duration(segment_ms as f64 * 1e6)
            )));
        }
        if end.lost > 0 {
            limits.push(plain(&format!(
                "{} of {} records found no room in the ring ({} records) or in the file ({} MiB): \
                 the trace has holes there.",
                count(end.lost),
                count(end.lost + end.records),
                count(RING_RECORDS as u64),
                FILE_BYTES_MAX >> 20
            )));
        }
        limits
    }
}

/// A folder that a trace is written to; gone when it is dropped before the trace is whole.
struct Partial(PathBuf);

impl Partial {
    /// Makes it, empty.
    fn create(folder: PathBuf) -> Result<Partial, RaceError> {
        let made = empty(&folder).and_then(|()| fs::create_dir(&folder));
        made.map_err(super::write_error(&folder))?;
        Ok(Partial(folder))
    }

    /// Gives it the name `folder`, in place of the trace of an earlier race.
    fn become_whole(self, folder: &Path) -> Result<(), RaceError> {
        let named = empty(folder).and_then(|()| fs::rename(&self.0, folder));
        named.map_err(super::write_error(folder))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It is not there any more if it has become whole; if it cannot be removed, the next race tries again.
        let _ = empty(&self.0);
    }
}

/// Removes a folder of traces. One that holds anything else is left and an error: it is not ours.
fn empty(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            fs::remove_file(path)?;
        }
    }
    fs::remove_dir(folder)
}

/// Why an arm of `app` whose work is done in the kernel on `lane` has no trace; `None` for every other.
fn untraced_reason_in_kernel(tables: &dyn Tables, app: &str, lane: &str) -> Option<String> {
    let is_kernel = tables.lane(lane).is_ok_and(|(facts, _)| facts.carries.has(Shape::Kernel));
    is_kernel.then(|| {
        format!(
            "app {app} runs in the kernel on this lane, as an XDP program in the receive stack; its worker only \
             reads what the program leaves for it, so a trace of the worker would explain none of the frames"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let id = std::process::id();
            let folder = std::env::temp_dir().join(format!("laneway-traced-{name}-{id}"));
            fs::create_dir(&folder).unwrap();
            Folder(folder)
        }

        fn names(&self) -> Vec<String> {
            let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
            let mut names: Vec<String> = fs::read_dir(&self.0)
                .unwrap()
                .map(|entry| name(entry).to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_trace_has_its_place_only_when_it_is_whole() {
        let folder = Folder::new("whole");
        let (partial, whole) = (folder.0.join("tap.partial"), folder.0.join("tap"));
        let write = |path: &Path, text: &str| fs::write(path.join("worker-0.lwt"), text).unwrap();
        let begun = Partial::create(partial.clone()).unwrap();
        write(&partial, "half");
        drop(begun);
        assert!(folder.names().is_empty(), "{:?}", folder.names());
        for text in ["of the first race", "of the second"] {
            let begun = Partial::create(partial.clone()).unwrap();
            write(&partial, text);
            begun.become_whole(&whole).unwrap();
            assert_eq!(folder.names(), ["tap"]);
            assert_eq!(fs::read_to_string(whole.join("worker-0.lwt")).unwrap(), text);
        }
    }

    #[test]
    fn what_a_killed_race_left_is_replaced_and_what_is_not_ours_is_kept() {
        let folder = Folder::new("kept");
        let partial = folder.0.join("tap.partial");
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join("worker-0.lwt"), "half").unwrap();
        drop(Partial::create(partial.clone()).unwrap());
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join("notes.txt"), "mine").unwrap();
        assert!(Partial::create(partial.clone()).is_err());
        assert_eq!(fs::read_to_string(partial.join("notes.txt")).unwrap(), "mine");
    }
}
