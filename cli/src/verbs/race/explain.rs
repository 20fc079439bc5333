//! What the traces of a race say: the analysis of crate `laneway-trace`, in the lab's words.
//!
//! The lab knows no trace format, as it knows no lane; this is what it is handed. One thread is looked at, the
//! arm's worker, so shares are of its time. What must always hold: nothing is stated here that
//! `laneway trace analyze` of the same folder does not say, except for frames that the race's ledger knows lost.

use crate::verbs::trace;
use laneway_terminal::Failure;

use laneway_lab::why::{Advice, Detection, Explain, Explanation, Recorded, Shares, Stage};
use laneway_trace::Options;
use laneway_trace::result::{Analysis, Cause, Finding, FunctionRow, Layer, State};

/// Advice that the race has followed already: it runs every arm without a tracer, too.
const FOLLOWED: &str = "state the slow-down";
/// What the analysis calls polls that found nothing, and a worker that blocks.
const EMPTY_POLLS: &str = "(empty polls)";
const WAIT: &str = "lane.wait";

/// Stages by the functions of a worker's trace, in order of work, and whether they are the app's.
const STAGES: [(&str, &str, bool); 9] = [
    ("lane.receive", "receive", false),
    ("lane.serve", "round of the lane", false),
    ("app.frames", "app", true),
    ("app.datagrams", "app", true),
    ("app.bytes", "app", true),
    ("app.turn_end", "app, end of turn", true),
    ("lane.lend", "lend", false),
    ("app.fill", "app, filling", true),
    ("lane.settle", "send and release", false),
];

/// Reads what the arms' tracers wrote.
pub(super) struct TraceExplainer;

impl Explain for TraceExplainer {
    fn explain(&self, recorded: &Recorded<'_>) -> Result<Explanation, String> {
        let options = Options { drops: Some(recorded.lost_frames), ..Options::default() };
        match trace::explain(recorded.folder, recorded.page, options) {
            Ok(analysis) => Ok(explanation(&analysis)),
            Err(Failure::Because(_, why)) => Err(why),
            Err(other) => Err(format!("{other:?}")),
        }
    }
}

fn explanation(analysis: &Analysis) -> Explanation {
    let coverage = &analysis.coverage;
    let sum = |of: fn(&laneway_trace::result::PollRow) -> u64| analysis.polls.iter().map(of).sum();
    let (polls, empty_polls): (u64, u64) = (sum(|row| row.polls), sum(|row| row.empty));
    let packets: u64 = sum(|row| row.packets);
    let productive = polls - empty_polls.min(polls);
    let count = |state| analysis.findings.iter().filter(|finding| finding.state == state).count();
    let mut limits = coverage.limits.clone();
    limits.extend(coverage.damages.first().map(|damage| {
        format!(
            "{}, byte {}: {}; what could be read is shown.",
            damage.place, damage.offset, damage.what
        )
    }));
    limits.extend(
        coverage.withheld.iter().map(|it| format!("Not in the trace: {}: {}.", it.what, it.why)),
    );
    Explanation {
        span_ns: coverage.span.length_ns,
        events: coverage.events,
        lost: coverage.discarded,
        limits,
        shares: shares(analysis),
        frames: analysis.packets.received,
        polls,
        empty_polls,
        frames_per_productive_poll: (productive > 0 && packets > 0)
            .then(|| packets as f64 / productive as f64),
        stages: stages(analysis),
        causes: (!analysis.accounts.is_empty())
            .then(|| analysis.causes.iter().map(named).collect()),
        fired: analysis.findings.iter().filter(|f| f.state == State::Fired).map(fired).collect(),
        silent: [count(State::Silent), count(State::Withheld), count(State::NotMeasurable)],
        advice: analysis
            .advice
            .iter()
            .filter(|advice| advice.rule != FOLLOWED)
            .map(|advice| Advice {
                text: advice.text.clone(),
                because: advice.because.clone(),
                expected: advice.expected.clone(),
                confirm: advice.confirm.clone(),
            })
            .collect(),
    }
}

/// Where the span of the trace went. What no call covers is the worker's own loop.
fn shares(analysis: &Analysis) -> Shares {
    let whole = analysis.coverage.span.length_ns as f64;
    if whole == 0.0 {
        return Shares::default();
    }
    let mut shares = Shares::default();
    for row in &analysis.functions {
        let corrected = row.self_corrected_ns / whole;
        shares.tracer += (row.self_ns as f64 - row.self_corrected_ns).max(0.0) / whole;
        *match (row.name.as_str(), row.layer) {
            (EMPTY_POLLS, _) => &mut shares.empty_polls,
            (WAIT, _) => &mut shares.waiting,
            (_, Layer::Application) => &mut shares.application,
            (_, Layer::Driver | Layer::Ethdev | Layer::Mempool | Layer::Kernel) => &mut shares.lane,
            _ => &mut shares.other,
        } += corrected;
    }
    let Shares { application, lane, waiting, empty_polls, tracer, other } = shares;
    shares.other += (1.0 - (application + lane + waiting + empty_polls + tracer + other)).max(0.0);
    shares
}

fn stages(analysis: &Analysis) -> Vec<Stage> {
    let Some(frames) = analysis.packets.received.filter(|&frames| frames > 0) else {
        return Vec::new();
    };
    let row = |name: &str| analysis.functions.iter().find(|row: &&FunctionRow| row.name == name);
    let stage = |&(function, name, is_app): &(&str, &str, bool)| {
        let ns = row(function)?.self_corrected_ns;
        Some(Stage { name: name.to_owned(), is_app, ns_per_frame: ns / frames as f64 })
    };
    STAGES.iter().filter_map(stage).collect()
}

/// A cause in a sentence.
fn named(cause: &Cause) -> String {
    format!("{}: {} [confidence {}]", cause.title(), cause.sentence, cause.confidence.name())
}

fn fired(finding: &Finding) -> Detection {
    Detection {
        id: finding.id.clone(),
        title: finding.title.clone(),
        value: finding.value,
        interval: finding.low.zip(finding.high).map(|(low, high)| [low, high]),
        unit: finding.unit.clone(),
        confidence: finding.confidence.name().to_owned(),
        sentence: finding.sentence.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_tracer::{Session, SessionOptions, ThreadInfo, points};
    use std::fs;
    use std::path::PathBuf;

    /// A folder of its own, removed at the end.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The explanation of a worker that does `turns` turns: it looks 500 times in vain, receives three frames, has
    /// the app look at them, sends them, and waits, so many ticks each.
    fn explained(name: &str, turns: u64) -> (Folder, Result<Explanation, String>) {
        let folder = format!("laneway-explain-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(folder));
        fs::create_dir(&folder.0).unwrap();
        let trace = folder.0.join("trace");
        let session = Session::create(&trace, SessionOptions::default()).unwrap();
        let mut recorder = session.recorder(&ThreadInfo::current("worker-0")).unwrap();
        let mut now = recorder.now();
        for _ in 0..turns {
            // What takes longer than a poll is none.
            for _ in 0..500 {
                recorder.received_nothing(Some(0), now);
                now += 10_000;
            }
            let mut pass = |ticks: u64| {
                let from = now;
                now += ticks;
                (from, now)
            };
            let (from, until) = pass(3_000_000);
            recorder.received(0, 64, 3, from, until);
            let (from, until) = pass(1_000_000);
            recorder.called(points::APP_FRAMES, from, until, 3);
            let (from, until) = pass(6_000_000);
            recorder.called(points::SETTLE, from, until, 3);
            let (from, until) = pass(5_000_000);
            recorder.called(points::WAIT, from, until, 0);
        }
        drop(recorder);
        session.finish().unwrap();
        let page = folder.0.join("page.html");
        let recorded = Recorded { folder: &trace, page: &page, lost_frames: 7 };
        let explanation = TraceExplainer.explain(&recorded);
        assert_eq!(page.is_file(), explanation.is_ok());
        (folder, explanation)
    }

    #[test]
    fn the_time_of_a_worker_is_shared_out_and_its_frames_are_counted() {
        let (_folder, explanation) = explained("shares", 100);
        let explanation = explanation.unwrap();
        let near = |share: f64, expected: f64| {
            assert!((share - expected).abs() < 0.005, "{share}, not {expected}: {explanation:?}");
        };
        let Shares { application, lane, waiting, empty_polls, tracer, other } = explanation.shares;
        near(application, 0.05);
        near(lane, 0.45);
        near(waiting, 0.25);
        near(empty_polls, 0.25);
        near(application + lane + waiting + empty_polls + tracer + other, 1.0);
        assert_eq!(
            (explanation.frames, explanation.polls, explanation.empty_polls),
            (Some(300), 50_100, 50_000)
        );
        assert_eq!(explanation.frames_per_productive_poll, Some(3.0));
        let stages: Vec<&str> =
            explanation.stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(stages, ["receive", "app", "send and release"]);
        let [receive, app, send] =
            [0, 1, 2].map(|stage: usize| explanation.stages[stage].ns_per_frame);
        near(receive / send, 0.5);
        near(app / send, 1.0 / 6.0);
        assert_eq!(explanation.stages.iter().filter(|stage| stage.is_app).count(), 1);
        assert_eq!(
            explanation.fired.len() + explanation.silent.iter().sum::<usize>(),
            12,
            "{explanation:?}"
        );
        assert!(explanation.advice.iter().all(|advice| !advice.text.contains("--control-pps")));
    }

    #[test]
    fn a_trace_without_events_explains_nothing_and_says_so() {
        let (_folder, explanation) = explained("empty", 0);
        assert!(explanation.unwrap_err().contains("holds no events"));
    }
}
