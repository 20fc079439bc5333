//! The detectors: a value with an interval, where it was seen, and how sure.
//!
//! A detector says one of four things: it fired, it looked and found nothing, the trace has too many holes, or the trace
//! does not hold what it needs. It never names a cause it has no proof of: without a kernel join a stall is
//! "unattributed". What fires D5 (everything slowed down together) takes the word from D7.

mod backlog;
mod buffers;
mod durations;
mod fills;
mod health;
mod kernel;
mod traffic;

use crate::account::{SHARE_MIN, TracedWorker};
use crate::blocks::Block;
use crate::model::Model;
use crate::result::{Confidence, Finding, Layer, Mark, State};
use crate::worst::Silence;
use std::panic::resume_unwind;
use std::thread;

pub(crate) use kernel::{cause, cause_name, stalls};

/// Cut calls beyond this share withhold maxima and periods.
pub(crate) const CUT_SHARE_MAX: f64 = 0.001;

/// A silence so many times as long as its function usually takes is none of its work.
const PAUSE_FACTOR: u64 = 20;

/// What the detectors look at besides the model.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) model: &'a Model,
    /// Whose account is made already.
    pub(crate) workers: &'a [TracedWorker],
    pub(crate) blocks: &'a [Block],
    pub(crate) seed: u64,
    /// Packets known from elsewhere to be dropped.
    pub(crate) drops: Option<u64>,
    /// Damaged parts of the trace: left out, or read as if they were whole.
    pub(crate) damages: u64,
}

/// Results that advice needs beyond the findings.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) failures: u64,
    /// Time of refills as a share of productive time.
    pub(crate) refill_share: f64,
    pub(crate) refills: u64,
    pub(crate) unattributed_stalls: usize,
    pub(crate) idle_share: f64,
    pub(crate) lossy: bool,
    pub(crate) backlog: Option<Behind>,
    pub(crate) uneven: Option<Uneven>,
}

/// A worker that does not keep up, by its polls.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) thread: u32,
    pub(crate) words: String,
    /// More frames than any ring holds arrived in one go: no burst.
    pub(crate) is_lasting: bool,
}

/// One worker has more than the others, and is busy.
#[derive(Debug)]
pub(crate) struct Uneven {
    pub(crate) thread: u32,
    pub(crate) sentence: String,
}

/// What is looked for, in the order of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detector {
    EmptyPolls,
    ReceiveAndSend,
    TwoModes,
    Period,
    CommonSlowness,
    MempoolCycle,
    Stalls,
    Crossings,
    Imbalance,
    Backpressure,
    BufferCost,
    Health,
}

impl Detector {
    /// Its place among the findings.
    pub(crate) const fn place(self) -> usize {
        self as usize
    }

    /// "D1" to "D12", as the specification numbers them.
    fn id(self) -> String {
        format!("D{}", self.place() + 1)
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::EmptyPolls => "empty polls",
            Self::ReceiveAndSend => "receive and send cost",
            Self::TwoModes => "two modes",
            Self::Period => "period",
            Self::CommonSlowness => "everything slows together",
            Self::MempoolCycle => "mempool cycle",
            Self::Stalls => "stalls",
            Self::Crossings => "kernel crossings",
            Self::Imbalance => "imbalance",
            Self::Backpressure => "backpressure",
            Self::BufferCost => "allocation",
            Self::Health => "trace health",
        }
    }
}

/// All twelve, in order.
pub(crate) fn all(case: &Case<'_>) -> (Vec<Finding>, Facts) {
    let mut facts = Facts::default();
    // The two that take long, and neither needs the other.
    let (common, period) = thread::scope(|scope| {
        let common = scope.spawn(|| durations::common_slowness(case));
        let period = durations::periodic(case);
        (common.join().unwrap_or_else(|panic| resume_unwind(panic)), period)
    });
    let cycle = buffers::mempool_cycle(case, &period, &mut facts);
    let stalled = kernel::stalled(case, common.state == State::Fired, &mut facts);
    let backlog = backlog::worst(case);
    facts.backlog = backlog.as_ref().filter(|backlog| backlog.is_found()).map(|backlog| Behind {
        thread: backlog.thread,
        words: backlog.words(),
        is_lasting: backlog.confidence() == Confidence::High,
    });
    let findings = vec![
        traffic::empty_polls(case, backlog.as_ref(), &mut facts),
        traffic::receive_and_send(case),
        durations::two_modes(case),
        period.finding,
        common,
        cycle,
        stalled,
        kernel::crossings(case),
        traffic::imbalance(case, backlog.as_ref(), &mut facts),
        traffic::backpressure(case),
        buffers::buffer_cost(case),
        health::trace_health(case),
    ];
    (findings, facts)
}

fn blank(detector: Detector, unit: &str) -> Finding {
    Finding {
        id: detector.id(),
        title: detector.title().to_owned(),
        state: State::Silent,
        value: None,
        unit: unit.to_owned(),
        low: None,
        high: None,
        span: None,
        confidence: Confidence::Low,
        sentence: String::new(),
        figures: Vec::new(),
        marks: Vec::new(),
    }
}

impl Finding {
    fn unmeasurable(mut self, why: impl Into<String>) -> Self {
        self.state = State::NotMeasurable;
        self.sentence = why.into();
        self
    }

    fn interval(mut self, interval: Option<(f64, f64)>) -> Self {
        (self.low, self.high) = (interval.map(|ends| ends.0), interval.map(|ends| ends.1));
        self
    }

    fn figure(&mut self, name: &str, value: String) {
        self.figures.push([name.to_owned(), value]);
    }
}

fn fired(yes: bool) -> State {
    if yes { State::Fired } else { State::Silent }
}

fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.001 {
        "less than 0.1 %".to_owned()
    } else {
        format!("{:.1} %", 100.0 * share)
    }
}

impl Case<'_> {
    fn whole(&self) -> Option<Mark> {
        let length_ns = self.model.span.length_ns;
        Some(Mark { at_ns: 0, length_ns, thread: None, label: "whole trace".to_owned() })
    }

    /// Too much is missing for maxima and periods.
    fn is_holey(&self) -> bool {
        self.model.cut_share() > CUT_SHARE_MAX
    }

    fn withheld(&self, mut finding: Finding) -> Finding {
        finding.state = State::Withheld;
        finding.sentence = format!(
            "{} of the calls are cut by holes, more than {}: maxima and periods of such a trace mislead.",
            percent(self.model.cut_share()),
            percent(CUT_SHARE_MAX)
        );
        finding
    }

    /// Blocks without a stall: a stall falls into some function by chance and says nothing about its cost. Nor do shorter
    /// silences, where they are rare enough to be left out.
    fn quiet_blocks(&self) -> Vec<&Block> {
        let all = self.model.states.iter().flat_map(|state| &state.worst.silences);
        let pauses = all.filter(|silence| {
            let row = self.model.row_of[silence.function as usize] as usize;
            let usual = self.model.rows[row].histogram.quantile(0.5);
            usual.is_some_and(|usual| silence.length_ns > PAUSE_FACTOR * usual)
        });
        let quiet = self.blocks_without(pauses);
        if 2 * quiet.len() >= self.blocks.len() {
            return quiet;
        }
        self.blocks_without(stalls(self.model).into_iter().map(|stall| stall.silence))
    }

    fn blocks_without<'s>(&self, silences: impl Iterator<Item = &'s Silence>) -> Vec<&Block> {
        let length = self.model.span.length_ns.max(1);
        let place = |time_ns: u64| {
            let share = self.model.since(time_ns) as f64 / length as f64;
            (share * self.blocks.len() as f64) as usize
        };
        let mut quiet = vec![true; self.blocks.len()];
        for silence in silences {
            let end = place(silence.at_ns + silence.length_ns);
            for at in place(silence.at_ns)..=end {
                if let Some(quiet) = quiet.get_mut(at) {
                    *quiet = false;
                }
            }
        }
        self.blocks.iter().zip(quiet).filter(|(_, quiet)| *quiet).map(|(block, _)| block).collect()
    }

    fn polls(&self) -> (u64, u64, u64) {
        let mut sum = (0, 0, 0);
        for row in self.model.states.iter().flat_map(|state| &state.points.polls) {
            sum = (sum.0 + row.polls, sum.1 + row.empty, sum.2 + row.empty_ns);
        }
        if sum.0 == 0 {
            for row in &self.model.polls {
                sum = (sum.0 + row.polls, sum.1 + row.empty, sum.2 + row.empty_ns);
            }
        }
        sum
    }

    /// Where polls found nothing, the time of those polls is known; names of functions do not always tell it.
    fn knows_idle_time(&self) -> bool {
        self.polls().1 == 0 || self.model.layer_ns(Layer::Idle).0 > 0
    }

    fn sends(&self) -> (u64, u64, u64) {
        let rows = self.model.states.iter().flat_map(|state| &state.points.sends);
        rows.fold((0, 0, 0), |sum, row| (sum.0 + row.asked, sum.1 + row.sent, sum.2 + row.short))
    }

    /// A cost that is worth a finding: by its account some worker spends [`SHARE_MIN`] of its time on `busy_ns` at least.
    fn is_worth_it(&self, busy_ns: f64) -> bool {
        let span_ns = self.workers.iter().map(|worker| worker.account.span_ns).max();
        busy_ns >= SHARE_MIN * span_ns.unwrap_or(0) as f64
    }

    /// By the accounts: what is left of the work is more than what the tracer may have of it.
    fn is_cost_known(&self) -> bool {
        self.workers.iter().all(|worker| worker.is_cost_known(self.model))
    }

    fn failures(&self) -> u64 {
        self.model.pools.pools.iter().map(|pool| pool.failures).sum()
    }

    /// Productive polls that were full, of those that tell.
    fn full(&self) -> (u64, u64) {
        let rows = self.model.states.iter().flat_map(|state| &state.points.polls);
        rows.fold((0, 0), |sum, row| (sum.0 + row.full, sum.1 + row.asked))
    }

    /// Corrected time that did something: neither idle nor off the CPU nor the tracer.
    fn productive_ns(&self) -> f64 {
        let idle = [Layer::Idle, Layer::OffCpu, Layer::Tracer];
        Layer::ALL
            .iter()
            .filter(|layer| !idle.contains(layer))
            .map(|&layer| self.model.layer_ns(layer).1)
            .sum()
    }
}

fn mark(at_ns: u64, thread: Option<u32>, label: &str) -> Mark {
    Mark { at_ns, length_ns: 0, thread, label: label.to_owned() }
}
