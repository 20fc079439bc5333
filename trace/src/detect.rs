//! The detectors D1 to D12 (specification 6.5): a value with an interval, where it was seen, and how sure.
//!
//! A detector says one of four things: it fired, it looked and found nothing, the trace has too many holes, or the trace
//! does not hold what it needs. It never names a cause it has no proof of: without a kernel join a stall is
//! "unattributed". What fires D5 (everything slowed down together) takes the word from D7.

use crate::blocks::{Block, count_interval, ratio_interval, share_interval};
use crate::common_mode;
use crate::model::{Model, recorded_ns};
use crate::period;
use crate::result::{CalibrationSource, Confidence, Finding, Layer, MARKS_MAX, Mark, State};
use crate::shape;
use crate::worst::{Join, Silence};

/// Cut calls beyond this share withhold maxima and periods (specification 6.2).
pub(crate) const CUT_SHARE_MAX: f64 = 0.001;

const EMPTY_TIME_SHARE: f64 = 0.5;
const RATIO_OUTSIDE: [f64; 2] = [0.5, 2.0];
const DIP_P: f64 = 0.01;
const MODES_APART: f64 = 1.5;
/// Share of the smaller of two modes.
const MODE_SHARE_MIN: f64 = 0.05;
/// Ashman's D below which two components are one.
const SEPARATION_MIN: f64 = 2.0;
/// Share of a function's calls that must have called the same children before its durations are compared.
const UNIFORMITY_MIN: f64 = 0.95;
const PERIOD_P: f64 = 0.01;
/// Functions looked at for periods and modes.
const CANDIDATES: usize = 4;
/// Period of refills and period of a function count as one within this.
const PERIODS_AGREE: f64 = 0.25;
/// Fills needed before they can be called periodic, and their largest coefficient of variation.
const REFILLS_MIN: usize = 8;
const REFILLS_VARIATION_MAX: f64 = 0.5;
const STALL_FACTOR: u64 = 20;
const STALL_NS_MIN: u64 = 100_000;
/// Calls before a function's usual duration is known.
const STALL_CALLS_MIN: u64 = 100;
/// Share of a stall that the kernel join must explain.
const CAUSE_SHARE: f64 = 0.5;
const CROSSINGS_PER_PACKET: f64 = 1.0;
const IMBALANCE: f64 = 1.5;
/// Packets below which loads of queues are chance.
const IMBALANCE_PACKETS_MIN: u64 = 1_000;
const FULL_SHARE: f64 = 0.05;
const BACKPRESSURE_SHARE: f64 = 0.001;
const ALLOCATION_SHARE: f64 = 0.25;
const OVERHEAD_SHARE: f64 = 0.5;

/// What the detectors look at besides the model.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) model: &'a Model,
    pub(crate) blocks: &'a [Block],
    pub(crate) seed: u64,
    /// Packets known from elsewhere to be dropped.
    pub(crate) drops: Option<u64>,
}

/// A stall and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Stall<'a> {
    pub(crate) thread: u32,
    pub(crate) silence: &'a Silence,
}

/// Results that advice needs beyond the findings.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) failures: u64,
    /// Time of refills as a share of productive time.
    pub(crate) refill_share: f64,
    pub(crate) refills: u64,
    pub(crate) unattributed_stalls: usize,
    pub(crate) preempted_stalls: usize,
    pub(crate) idle_share: f64,
    pub(crate) lossy: bool,
    pub(crate) full_bursts: bool,
}

/// All twelve, in order.
pub(crate) fn all(case: &Case<'_>) -> (Vec<Finding>, Facts) {
    let mut facts = Facts::default();
    let common = d5(case);
    let period = d4(case);
    let (d6, stall_facts) = (d6(case, &period, &mut facts), &mut facts);
    let d7 = d7(case, common.state == State::Fired, stall_facts);
    let findings = vec![
        d1(case, stall_facts),
        d2(case),
        d3(case),
        period.finding,
        common,
        d6,
        d7,
        d8(case),
        d9(case, stall_facts),
        d10(case),
        d11(case),
        d12(case),
    ];
    (findings, facts)
}

fn blank(id: &str, title: &str, unit: &str) -> Finding {
    Finding {
        id: id.to_owned(),
        title: title.to_owned(),
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

    /// Blocks without a stall: a stall falls into some function by chance and says nothing about its cost.
    fn quiet_blocks(&self) -> Vec<&Block> {
        let length = self.model.span.length_ns.max(1);
        let place = |time_ns: u64| {
            let share = self.model.since(time_ns) as f64 / length as f64;
            (share * self.blocks.len() as f64) as usize
        };
        let mut quiet = vec![true; self.blocks.len()];
        for stall in stalls(self.model) {
            let end = place(stall.silence.at_ns + stall.silence.length_ns);
            for at in place(stall.silence.at_ns)..=end {
                if let Some(quiet) = quiet.get_mut(at) {
                    *quiet = false;
                }
            }
        }
        self.blocks.iter().zip(quiet).filter(|(_, quiet)| *quiet).map(|(block, _)| block).collect()
    }

    fn polls(&self) -> (u64, u64, u64) {
        let mut sum = (0, 0, 0);
        for row in self.model.lanes.iter().flat_map(|lane| &lane.points.polls) {
            sum = (sum.0 + row.polls, sum.1 + row.empty, sum.2 + row.empty_ns);
        }
        if sum.0 == 0 {
            for row in &self.model.polls {
                sum = (sum.0 + row.polls, sum.1 + row.empty, sum.2 + row.empty_ns);
            }
        }
        sum
    }

    fn sends(&self) -> (u64, u64, u64) {
        let rows = self.model.lanes.iter().flat_map(|lane| &lane.points.sends);
        rows.fold((0, 0, 0), |sum, row| (sum.0 + row.asked, sum.1 + row.sent, sum.2 + row.short))
    }

    fn failures(&self) -> u64 {
        self.model.pools.pools.iter().map(|pool| pool.failures).sum()
    }

    /// Productive polls that were full, of those that tell.
    fn full(&self) -> (u64, u64) {
        let rows = self.model.lanes.iter().flat_map(|lane| &lane.points.polls);
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

fn d1(case: &Case<'_>, facts: &mut Facts) -> Finding {
    let finding = blank("D1", "empty polls", "share of time");
    let model = case.model;
    let (polls, empty, _) = case.polls();
    let (idle, _) = model.layer_ns(Layer::Idle);
    let traced = model.traced_ns() as f64;
    if polls == 0 || traced == 0.0 {
        return finding.unmeasurable(
            "The trace names no poll: neither poll events nor a poll function that the rules know.",
        );
    }
    let share = idle as f64 / traced;
    facts.idle_share = share;
    let part: Vec<f64> = case
        .blocks
        .iter()
        .map(|block| {
            let rows = model.rows.iter().zip(&block.raw_ns);
            rows.map(|(row, ns)| ns * row.layer_shares[Layer::Idle.index()]).sum()
        })
        .collect();
    let whole: Vec<f64> = case.blocks.iter().map(|block| block.self_ns).collect();
    let mut finding = finding.interval(ratio_interval(&part, &whole, case.seed));
    let (asked, sent, _) = case.sends();
    let (full, bursts) = case.full();
    let mut evidence = Vec::new();
    if let Some(drops) = case.drops.filter(|&drops| drops > 0) {
        evidence.push(format!("{drops} packets dropped elsewhere"));
    }
    if (asked - sent) as f64 > BACKPRESSURE_SHARE * asked as f64 {
        evidence.push(format!("{} packets refused by send", asked - sent));
    }
    if case.failures() > 0 {
        evidence.push(format!("{} failed allocations", case.failures()));
    }
    if full as f64 > FULL_SHARE * bursts as f64 {
        evidence.push(format!("{full} full bursts"));
    }
    facts.lossy = !evidence.is_empty();
    let empty_share = empty as f64 / polls as f64;
    let productive = polls - empty;
    finding.state = fired(share > EMPTY_TIME_SHARE && facts.lossy);
    finding.value = Some(share);
    finding.span = case.whole();
    finding.confidence = if finding.low.is_some() { Confidence::High } else { Confidence::Low };
    finding.figure("empty of all polls", format!("{empty} of {polls} ({})", percent(empty_share)));
    finding.figure("per empty poll", format!("{:.0} ns raw", idle as f64 / empty.max(1) as f64));
    if let Some(received) = model.packets.received
        && productive > 0
    {
        let per_poll = received as f64 / productive as f64;
        finding.figure("packets per productive poll", format!("{per_poll:.1}"));
    }
    finding.sentence = if finding.state == State::Fired {
        format!(
            "{} of the time goes to empty polls although there is loss or queueing ({}): polling happens where the packets are not.",
            percent(share),
            evidence.join(", ")
        )
    } else if share > EMPTY_TIME_SHARE {
        format!(
            "{} of the polls and {} of the time found nothing, and nothing shows loss or queueing: this is idle capacity, normal for a loop that polls.",
            percent(empty_share),
            percent(share)
        )
    } else {
        format!("{} of the time goes to empty polls.", percent(share))
    };
    finding
}

fn d2(case: &Case<'_>) -> Finding {
    let finding = blank("D2", "receive and send cost", "ratio");
    let model = case.model;
    let counted =
        |layer: Layer| layer != Layer::Tracer && layer != Layer::Idle && layer != Layer::OffCpu;
    // Of a row, what is neither the tracer nor idle nor off the CPU.
    let real = |row: &crate::model::Row| -> f64 {
        let all: f64 = row.layer_shares.iter().sum();
        let layers = Layer::ALL.iter().filter(|&&layer| counted(layer));
        let kept: f64 = layers.map(|layer| row.layer_shares[layer.index()]).sum();
        let busy = all - row.layer_shares[Layer::Idle.index()];
        if busy > 0.0 { kept / busy } else { 0.0 }
    };
    let blocks = case.quiet_blocks();
    let time = |share: fn(&crate::model::Row) -> f64| -> Vec<f64> {
        blocks.iter().map(|block| block.weighted(model, |row| share(row) * real(row))).collect()
    };
    let receive = time(|row| row.receive_share);
    let send = time(|row| row.send_share);
    let (receive_ns, send_ns): (f64, f64) = (receive.iter().sum(), send.iter().sum());
    let (Some(all), true) = (model.packets.received.filter(|&n| n > 0), send_ns > 0.0) else {
        return finding
            .unmeasurable("The trace does not hold both receive and send with their packets.");
    };
    let received: f64 = blocks.iter().map(|block| block.packets).sum::<f64>().max(1.0);
    let sent =
        model.packets.sent.filter(|&sent| sent > 0).unwrap_or(all) as f64 * received / all as f64;
    let per_packet = (receive_ns / received, send_ns / sent);
    let ratio = per_packet.0 / per_packet.1;
    let scale = sent / received;
    let interval = ratio_interval(&receive, &send, case.seed ^ 2)
        .map(|(low, high)| (low * scale, high * scale));
    let mut finding = finding.interval(interval);
    finding.value = Some(ratio);
    finding.span = case.whole();
    finding.figure("receive per packet", format!("{:.0} ns", per_packet.0));
    finding.figure("send per packet", format!("{:.0} ns", per_packet.1));
    let Some((low, high)) = interval else {
        return finding.unmeasurable(format!(
            "Receive costs {ratio:.2} times what send costs per packet, but too few parts of the trace have both for an interval."
        ));
    };
    finding.state = fired(high < RATIO_OUTSIDE[0] || low > RATIO_OUTSIDE[1]);
    finding.confidence = match model.calibration.source {
        CalibrationSource::Measured => Confidence::High,
        _ if model.calibration.overhead_share < 0.1 => Confidence::High,
        _ => Confidence::Medium,
    };
    let basis = "on productive polls, without the tracer and without empty polls";
    finding.sentence = format!(
        "A packet costs {:.0} ns to receive and {:.0} ns to send {basis}: {ratio:.2} to 1{}.",
        per_packet.0,
        per_packet.1,
        if finding.state == State::Fired {
            ", far from balanced"
        } else {
            ", which is balanced or too uncertain to call unbalanced"
        }
    );
    finding
}

/// Rows whose own time matters most and whose calls all do the same thing, with a thread that calls them.
fn candidates(model: &Model) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..model.rows.len() as u32)
        .filter(|&row| {
            let row = &model.rows[row as usize];
            let idle =
                row.layer_shares[Layer::Idle.index()] + row.layer_shares[Layer::OffCpu.index()];
            row.calls as usize >= shape::POINTS && !row.asynchronous && idle < 0.5
        })
        .collect();
    let weight = |row: u32| {
        let row = &model.rows[row as usize];
        if row.dominated { row.self_ns as f64 * 1e-6 } else { row.self_corrected_ns }
    };
    rows.sort_by(|&a, &b| weight(b).total_cmp(&weight(a)));
    rows
}

/// Do all calls of a row do the same: the same children, each as often, down to the leaves?
fn uniform(model: &Model, row: u32) -> bool {
    let row = &model.rows[row as usize];
    let same: u64 = row
        .contexts
        .iter()
        .filter(|&&at| uniform_below(model, at))
        .map(|&at| model.contexts[at as usize].calls)
        .sum();
    same as f64 >= UNIFORMITY_MIN * row.calls as f64
}

fn uniform_below(model: &Model, context: u32) -> bool {
    let context = &model.contexts[context as usize];
    let calls = context.calls as f64;
    let children = || context.children.iter().map(|&child| &model.contexts[child as usize]);
    let called: u64 = children().map(|child| child.calls).sum();
    let usual = f64::from(context.usual_children()) * calls;
    context.uniformity() >= UNIFORMITY_MIN
        && (called as f64 - usual).abs() <= (1.0 - UNIFORMITY_MIN) * calls
        && context.children.iter().all(|&child| {
            // What is called once in a while does not make the calls differ.
            let rare =
                (model.contexts[child as usize].calls as f64) < (1.0 - UNIFORMITY_MIN) * calls;
            rare || uniform_below(model, child)
        })
}

fn d3(case: &Case<'_>) -> Finding {
    let mut finding = blank("D3", "two modes", "ratio of modes");
    let model = case.model;
    let rows: Vec<u32> = candidates(model)
        .into_iter()
        .filter(|&row| uniform(model, row))
        .take(2 * CANDIDATES)
        .collect();
    if rows.is_empty() {
        return finding.unmeasurable(format!(
            "No function with {} calls that all do the same thing.",
            shape::POINTS
        ));
    }
    // Several functions are asked, so each must answer more clearly.
    let level = DIP_P / rows.len() as f64;
    let mut best: Option<(f64, u32, shape::Two, f64)> = None;
    for &row in &rows {
        let logs = log_quantiles(&model.rows[row as usize].histogram);
        let p = shape::dip_p(shape::dip(&logs));
        let Some(two) = shape::fit_two(&logs) else { continue };
        let apart = (two.means[1] - two.means[0]).exp();
        let small = two.upper_share.min(1.0 - two.upper_share);
        let clear = p <= level.max(0.001)
            && apart > MODES_APART
            && small >= MODE_SHARE_MIN
            && two.separation() > SEPARATION_MIN;
        if clear && best.is_none_or(|(ratio, ..)| apart > ratio) {
            best = Some((apart, row, two, p));
        }
    }
    finding.span = case.whole();
    let Some((apart, row, two, p)) = best else {
        finding.confidence = Confidence::Medium;
        finding.sentence = format!(
            "Among the {} costliest functions whose calls all do the same, none has two modes more than {MODES_APART} times apart.",
            rows.len()
        );
        return finding;
    };
    let name = &model.rows[row as usize].name;
    // Standard error of a difference of component means, on the log scale.
    let n = shape::POINTS as f64;
    let error = (two.deviations[0].powi(2) / (n * (1.0 - two.upper_share))
        + two.deviations[1].powi(2) / (n * two.upper_share))
        .sqrt();
    finding.state = State::Fired;
    finding.value = Some(apart);
    finding.low = Some(apart * (-1.96 * error).exp());
    finding.high = Some(apart * (1.96 * error).exp());
    finding.confidence = Confidence::High;
    finding.figure("function", name.clone());
    finding.figure("dip p", format!("{p:.4}"));
    finding.figure("share of the slow mode", percent(two.upper_share));
    finding.figure("fast mode", format!("{:.0} ns", two.means[0].exp()));
    finding.figure("slow mode", format!("{:.0} ns", two.means[1].exp()));
    let (switching, marks) = slow_stretches(case, row, (two.means[0] + two.means[1]) / 2.0);
    finding.marks = marks;
    finding.sentence = format!(
        "{name} has two modes, {:.0} ns and {:.0} ns, {apart:.1} times apart; {} of its calls are slow, {}.",
        two.means[0].exp(),
        two.means[1].exp(),
        percent(two.upper_share),
        if switching { "in stretches" } else { "mixed with fast ones" }
    );
    finding
}

/// Logarithms of equally spaced quantiles, straight lines inside buckets.
fn log_quantiles(histogram: &crate::histogram::Histogram) -> Vec<f64> {
    use crate::histogram::bucket_start;
    let total = histogram.total() as f64;
    let mut logs = Vec::with_capacity(shape::POINTS);
    let mut passed = 0.0;
    for (bucket, count) in histogram.buckets() {
        let start = (bucket_start(bucket).max(1) as f64).ln();
        let end = (bucket_start(bucket + 1).max(2) as f64).ln();
        let next = passed + f64::from(count);
        while logs.len() < shape::POINTS {
            let rank = (logs.len() as f64 + 0.5) / shape::POINTS as f64 * total;
            if rank > next {
                break;
            }
            logs.push(start + (rank - passed) / f64::from(count) * (end - start));
        }
        passed = next;
    }
    logs
}

/// Is a function slow in stretches, and where? `middle`: log of the duration between fast and slow.
fn slow_stretches(case: &Case<'_>, row: u32, middle: f64) -> (bool, Vec<Mark>) {
    let model = case.model;
    let Some(thread) = busiest_thread(model, row) else { return (false, Vec::new()) };
    let timed = &model.timed[thread];
    let levels = levels(model, thread, row, 1);
    // Level units: 32 per doubling, as histogram buckets.
    let middle = f64::from(crate::histogram::bucket_of(middle.exp() as u64));
    let slow = |level: &Option<f64>| level.is_some_and(|level| level > middle);
    let mut marks: Vec<Mark> = Vec::new();
    let mut changes = 0;
    let mut previous = None;
    for (at, level) in levels.iter().enumerate() {
        let Some(_) = level else { continue };
        let now = slow(level);
        changes += usize::from(previous.is_some_and(|before| before != now));
        if now && previous == Some(true) {
            if let Some(mark) = marks.last_mut() {
                mark.length_ns += timed.width_ns;
            }
        } else if now && marks.len() < MARKS_MAX {
            marks.push(Mark {
                at_ns: model.since(timed.start_ns + at as u64 * timed.width_ns),
                length_ns: timed.width_ns,
                thread: Some(thread as u32),
                label: "slow".to_owned(),
            });
        }
        previous = Some(now);
    }
    let known = levels.iter().flatten().count();
    let share = levels.iter().filter(|level| slow(level)).count() as f64 / known.max(1) as f64;
    // Mixed independently, neighbours would differ in 2 p (1 - p) of the cases.
    let by_chance = 2.0 * share * (1.0 - share) * known as f64;
    (known > 16 && (changes as f64) < 0.5 * by_chance, marks)
}

/// The thread in which a row has most calls.
fn busiest_thread(model: &Model, row: u32) -> Option<usize> {
    let calls = |timed: &crate::series::Timed| -> u64 {
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

/// D4's finding, with the period in ns for D6.
struct Periodic {
    finding: Finding,
    period_ns: Option<f64>,
}

fn d4(case: &Case<'_>) -> Periodic {
    let finding = blank("D4", "period", "ms");
    let model = case.model;
    let silent = |finding| Periodic { finding, period_ns: None };
    if case.is_holey() {
        return silent(case.withheld(finding));
    }
    let rows: Vec<u32> = candidates(model).into_iter().take(CANDIDATES).collect();
    let mut best: Option<(period::Period, u32, usize, u64)> = None;
    let mut looked = 0;
    for &row in &rows {
        let Some(thread) = busiest_thread(model, row) else { continue };
        let timed = &model.timed[thread];
        let by = timed.buckets.len().div_ceil(period::BUCKETS_MAX).max(1);
        let mut by = by;
        // Buckets with too few calls say little: widen until half of them are filled.
        let levels = loop {
            let levels = levels(model, thread, row, by);
            let filled = levels.iter().flatten().count();
            if 2 * filled >= levels.len() || levels.len() / 2 < period::BUCKETS_MIN {
                break levels;
            }
            by *= 2;
        };
        if levels.len() < period::BUCKETS_MIN {
            continue;
        }
        looked += 1;
        let p_max = PERIOD_P / rows.len() as f64;
        if let Some(found) = period::find(&levels, p_max, case.seed ^ 4)
            && best.as_ref().is_none_or(|(other, ..)| found.resemblance > other.resemblance)
        {
            best = Some((found, row, thread, timed.width_ns * by as u64));
        }
    }
    if looked == 0 {
        return silent(finding.unmeasurable(format!(
            "No function is called in at least {} buckets of time; the trace is too short or too sparse.",
            period::BUCKETS_MIN
        )));
    }
    let mut finding = finding;
    finding.span = case.whole();
    let Some((found, row, thread, width_ns)) = best else {
        finding.confidence = Confidence::Medium;
        finding.sentence = format!(
            "No period in the durations of the {looked} costliest functions beats chance (1,000 shuffled series, 1 %)."
        );
        return silent(finding);
    };
    let period_ns = found.buckets * width_ns as f64;
    let margin_ns = found.margin.max(0.5) * width_ns as f64;
    let name = &model.rows[row as usize].name;
    finding.state = State::Fired;
    finding.value = Some(period_ns / 1e6);
    finding.low = Some((period_ns - margin_ns) / 1e6);
    finding.high = Some((period_ns + margin_ns) / 1e6);
    finding.confidence =
        if found.resemblance > 0.3 { Confidence::High } else { Confidence::Medium };
    finding.figure("function", name.clone());
    finding.figure("p", format!("{:.3}", found.p));
    finding.figure("correlation one period later", format!("{:.2}", found.resemblance));
    let packets = model.packets.per_second.map(|rate| rate * period_ns / 1e9);
    if let Some(packets) = packets {
        finding.figure("period in packets", format!("{packets:.0}"));
    }
    let timed = &model.timed[thread];
    finding.marks = (0..MARKS_MAX.min((model.span.length_ns as f64 / period_ns) as usize))
        .map(|at| Mark {
            at_ns: model.since(timed.start_ns) + (at as f64 * period_ns) as u64,
            length_ns: 0,
            thread: Some(thread as u32),
            label: "period".to_owned(),
        })
        .collect();
    finding.sentence = format!(
        "The duration of {name} repeats every {:.2} ms{}.",
        period_ns / 1e6,
        packets.map_or_else(String::new, |packets| format!(" (about {packets:.0} packets)"))
    );
    Periodic { finding, period_ns: Some(period_ns) }
}

fn d5(case: &Case<'_>) -> Finding {
    let finding = blank("D5", "everything slows together", "ratio");
    let model = case.model;
    let Some(found) = common_mode::find(model) else {
        return finding.unmeasurable(format!(
            "Fewer than {} functions are called throughout one thread.",
            common_mode::FUNCTIONS_MIN
        ));
    };
    let mut finding = finding;
    finding.span = case.whole();
    finding.confidence = Confidence::Medium;
    finding.figure("functions compared", found.functions.to_string());
    finding.figure("share of time that is slow", percent(found.slow_share));
    if !found.switches {
        finding.sentence =
            format!("{} unrelated functions show no common slow and fast times.", found.functions);
        return finding;
    }
    finding.value = Some(found.ratio);
    finding.low = Some(found.low);
    finding.high = Some(found.high);
    finding.figure("ratios equal within 20 %", percent(found.agreement));
    finding.state = fired(found.is_common());
    let slow = found.slow;
    finding.marks = slow
        .into_iter()
        .take(MARKS_MAX)
        .map(|(at_ns, length_ns)| Mark {
            at_ns: model.since(at_ns),
            length_ns,
            thread: Some(found.thread),
            label: "slow".to_owned(),
        })
        .collect();
    if finding.state == State::Fired {
        finding.confidence = Confidence::High;
        finding.sentence = format!(
            "In {} of the time {} unrelated functions are all {:.1} times slower: the CPU was shared, slower or taken away, no function of the program is the reason.",
            percent(found.slow_share),
            found.functions,
            found.ratio
        );
    } else {
        finding.sentence =
            "Slow times are not common to unrelated functions: what is slow then is particular to some of them.".to_owned();
    }
    finding
}

fn d6(case: &Case<'_>, period: &Periodic, facts: &mut Facts) -> Finding {
    let finding = blank("D6", "mempool cycle", "fills per packet");
    let model = case.model;
    let pools = &model.pools.pools;
    facts.failures = case.failures();
    let by_name = model
        .contexts
        .iter()
        .filter(|context| crate::rules::is_refill(&model.rows[context.row as usize].name));
    let (named, named_ns) = by_name
        .fold((0, 0.0), |sum, context| (sum.0 + context.calls, sum.1 + context.total_corrected_ns));
    facts.refills = pools.iter().map(|pool| pool.refills).sum::<u64>().max(named);
    let productive = case.productive_ns();
    facts.refill_share = if productive > 0.0 { named_ns / productive } else { 0.0 };
    let buffers_seen = model.rows.iter().any(|row| {
        row.calls > 0 && crate::rules::layer(&row.name) == Some(Layer::Mempool) && !row.own
    });
    if pools.is_empty() && !buffers_seen {
        return finding
            .unmeasurable("The trace holds neither pool events nor calls of the mempool.");
    }
    let mut finding = finding;
    finding.span = case.whole();
    let packets = model.packets.received.unwrap_or(0);
    finding.value = (packets > 0).then(|| facts.refills as f64 / packets as f64);
    finding = finding.interval((packets > 0).then(|| {
        let (low, high) = count_interval(facts.refills);
        (low / packets as f64, high / packets as f64)
    }));
    finding.figure("fills from the backend", facts.refills.to_string());
    finding.figure("failed allocations", facts.failures.to_string());
    if facts.failures > 0 {
        finding.state = State::Fired;
        finding.confidence = Confidence::High;
        let first = pools.iter().filter_map(|pool| pool.first_failure_ns).min().unwrap_or(0);
        finding.marks = pools
            .iter()
            .flat_map(|pool| &pool.failures_ns)
            .take(MARKS_MAX)
            .map(|&at| mark(model.since(at), None, "no buffer"))
            .collect();
        finding.sentence = format!(
            "The pool ran out: {} allocations failed, the first {:.3} s into the trace.",
            facts.failures,
            model.since(first) as f64 / 1e9
        );
        return finding;
    }
    for pool in pools {
        let n = pool.intervals.len();
        if n < REFILLS_MIN {
            continue;
        }
        let taken: Vec<f64> = pool.intervals.iter().map(|&(taken, _)| taken as f64).collect();
        let mean = taken.iter().sum::<f64>() / n as f64;
        let variance = taken.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n as f64;
        let variation = variance.sqrt() / mean.max(1e-9);
        let first = pool.intervals[0].1;
        let last = pool.intervals[n - 1].1;
        let cycle_ns = (last - first) as f64 / (n - 1) as f64;
        finding.figure("buffers between fills", format!("{mean:.0}"));
        finding.figure("time between fills", format!("{:.3} ms", cycle_ns / 1e6));
        let agrees = period.period_ns.is_some_and(|period| {
            // D4 may see the cycle itself or its half.
            let ratio = period / cycle_ns;
            (ratio - 1.0).abs() < PERIODS_AGREE || (ratio - 0.5).abs() < PERIODS_AGREE / 2.0
        });
        if variation < REFILLS_VARIATION_MAX && agrees {
            finding.state = State::Fired;
            finding.confidence = Confidence::Medium;
            finding.marks = pool
                .intervals
                .iter()
                .take(MARKS_MAX)
                .map(|&(_, at)| mark(model.since(at), None, "fill"))
                .collect();
            finding.sentence = format!(
                "The cache is filled every {mean:.0} buffers, {:.3} ms, and durations repeat at that period.",
                cycle_ns / 1e6
            );
            return finding;
        }
    }
    finding.confidence = Confidence::High;
    finding.sentence = if facts.refills == 0 {
        "No allocation failed and the cache was never filled from the backend: it served every request.".to_owned()
    } else {
        format!(
            "No allocation failed; {} fills from the backend leave no trace in the durations.",
            facts.refills
        )
    };
    finding
}

fn mark(at_ns: u64, thread: Option<u32>, label: &str) -> Mark {
    Mark { at_ns, length_ns: 0, thread, label: label.to_owned() }
}

/// What the kernel join says of a silence.
pub(crate) fn cause(silence: &Silence) -> Option<Join> {
    let joins = [Join::Preempted, Join::Interrupt, Join::Waiting, Join::Syscall];
    let needed = CAUSE_SHARE * silence.length_ns as f64;
    joins.into_iter().find(|&join| silence.kernel_ns[join as usize] as f64 >= needed)
}

/// The cause in words.
pub(crate) const fn cause_name(cause: Option<Join>) -> &'static str {
    match cause {
        Some(Join::Preempted) => "preempted",
        Some(Join::Interrupt) => "interrupt",
        Some(Join::Waiting) => "waiting",
        Some(Join::Syscall) => "system call",
        None => "unattributed",
    }
}

/// Silences that are stalls: far beyond what their function usually takes.
pub(crate) fn stalls(model: &Model) -> Vec<Stall<'_>> {
    let limits: Vec<Option<u64>> = model
        .rows
        .iter()
        .map(|row| {
            let usual = row.histogram.quantile(0.99)?;
            (row.calls >= STALL_CALLS_MIN).then(|| (STALL_FACTOR * usual).max(STALL_NS_MIN))
        })
        .collect();
    let mut stalls: Vec<Stall<'_>> = Vec::new();
    for (thread, lane) in model.lanes.iter().enumerate() {
        for silence in &lane.worst.silences {
            let row = model.row_of[silence.function as usize] as usize;
            let layer = model.contexts.get(silence.node as usize).map(|context| context.layer);
            let meant_to_wait = layer == Some(Layer::Idle) && !model.rows[row].own;
            if limits[row].is_some_and(|limit| silence.length_ns > limit) && !meant_to_wait {
                stalls.push(Stall { thread: thread as u32, silence });
            }
        }
    }
    stalls.sort_by_key(|stall| std::cmp::Reverse(stall.silence.length_ns));
    stalls
}

fn d7(case: &Case<'_>, common: bool, facts: &mut Facts) -> Finding {
    let finding = blank("D7", "stalls", "per second");
    let model = case.model;
    if case.is_holey() {
        return case.withheld(finding);
    }
    if model.calls() == 0 && model.counts.receives == 0 {
        return finding.unmeasurable("The trace holds no calls and no polls.");
    }
    let stalls = stalls(model);
    let recorded_ns = recorded_ns(model.span, &model.counts.holes);
    let seconds = (recorded_ns as f64 / 1e9).max(1e-9);
    let mut finding = finding;
    finding.span = case.whole();
    finding.value = Some(stalls.len() as f64 / seconds);
    let (low, high) = count_interval(stalls.len() as u64);
    (finding.low, finding.high) = (Some(low / seconds), Some(high / seconds));
    let Some(longest) = stalls.first() else {
        finding.confidence = Confidence::Medium;
        finding.sentence = format!(
            "No silence is longer than {STALL_FACTOR} times the p99 of its function and {} us.",
            STALL_NS_MIN / 1_000
        );
        return finding;
    };
    let mut by_cause = [0usize; 5];
    for stall in &stalls {
        let cause = cause(stall.silence);
        by_cause[cause.map_or(4, |join| join as usize)] += 1;
    }
    facts.unattributed_stalls = by_cause[4];
    facts.preempted_stalls = by_cause[Join::Preempted as usize];
    finding.state = State::Fired;
    finding.confidence =
        if by_cause[4] * 2 > stalls.len() { Confidence::Low } else { Confidence::High };
    let total: u64 = stalls.iter().map(|stall| stall.silence.length_ns).sum();
    finding.figure("stalls", stalls.len().to_string());
    finding.figure("together", format!("{:.3} ms", total as f64 / 1e6));
    finding.figure("longest", format!("{:.3} ms", longest.silence.length_ns as f64 / 1e6));
    let mut causes = Vec::new();
    for (place, join) in [
        (4, None),
        (0, Some(Join::Preempted)),
        (1, Some(Join::Waiting)),
        (2, Some(Join::Interrupt)),
        (3, Some(Join::Syscall)),
    ] {
        if by_cause[place] > 0 {
            finding.figure(cause_name(join), by_cause[place].to_string());
            causes.push(format!("{} {}", by_cause[place], cause_name(join)));
        }
    }
    finding.marks = stalls
        .iter()
        .take(MARKS_MAX)
        .map(|stall| Mark {
            at_ns: model.since(stall.silence.at_ns),
            length_ns: stall.silence.length_ns,
            thread: Some(stall.thread),
            label: format!("stall, {}", cause_name(cause(stall.silence))),
        })
        .collect();
    let name = &model.rows[model.row_of[longest.silence.function as usize] as usize].name;
    let joined = if model.counts.kernel == 0 {
        " Without kernel events none can be attributed."
    } else {
        ""
    };
    let slowed =
        if common { " The CPU was slow at times (D5), which lengthens all of them." } else { "" };
    finding.sentence = format!(
        "{} ({}), the longest {:.3} ms in {name}.{joined}{slowed}",
        if stalls.len() == 1 { "1 stall".to_owned() } else { format!("{} stalls", stalls.len()) },
        causes.join(", "),
        longest.silence.length_ns as f64 / 1e6,
    );
    finding
}

fn d8(case: &Case<'_>) -> Finding {
    let finding = blank("D8", "kernel crossings", "per packet");
    let model = case.model;
    let counts = &model.counts;
    let named: u64 = model
        .rows
        .iter()
        .filter(|row| !row.own && crate::rules::layer(&row.name) == Some(Layer::Kernel))
        .map(|row| row.calls)
        .sum();
    let handlers: u64 = model.rows.iter().filter(|row| row.asynchronous).map(|row| row.calls).sum();
    let signals = counts.signals.max(handlers);
    let crossings = counts.syscalls.max(named) + signals + counts.switches;
    let Some(packets) = model.packets.received.filter(|&packets| packets > 0) else {
        return finding.unmeasurable("No packet was received, or the trace does not tell.");
    };
    if counts.kernel == 0 && named == 0 && signals == 0 {
        return finding.unmeasurable(
            "Neither kernel events nor wrappers of system calls are in the trace; record with the kernel join.",
        );
    }
    let mut finding = finding;
    let per_packet = crossings as f64 / packets as f64;
    let (low, high) = count_interval(crossings);
    finding.value = Some(per_packet);
    finding = finding.interval(Some((low / packets as f64, high / packets as f64)));
    finding.state = fired(finding.low > Some(CROSSINGS_PER_PACKET));
    finding.span = case.whole();
    let share = model.layer_ns(Layer::Kernel).1 / case.productive_ns().max(1.0);
    finding.figure("system calls", counts.syscalls.max(named).to_string());
    finding.figure("signals", signals.to_string());
    finding.figure("switches", counts.switches.to_string());
    finding.figure("share of productive time", percent(share));
    let complete = counts.kernel > 0 || named > 0;
    finding.confidence = if complete { Confidence::High } else { Confidence::Medium };
    finding.sentence = format!(
        "{per_packet:.2} crossings per packet{}{}.",
        if complete {
            format!(", {} of the productive time", percent(share))
        } else {
            ", signals only".to_owned()
        },
        if complete {
            ""
        } else {
            "; system calls are not in this trace, so this is a lower bound"
        }
    );
    finding
}

fn d9(case: &Case<'_>, facts: &mut Facts) -> Finding {
    let finding = blank("D9", "imbalance", "busiest over mean");
    let model = case.model;
    let mut queues: Vec<u64> = Vec::new();
    for lane in &model.lanes {
        let rows = lane.points.polls.iter().filter(|row| row.queue.is_some());
        queues.extend(rows.map(|row| row.packets));
    }
    let workers: Vec<u64> = model
        .lanes
        .iter()
        .map(|lane| lane.points.polls.iter().map(|row| row.packets).sum::<u64>())
        .zip(model.lanes.iter().map(|lane| lane.points.polls.len()))
        .filter(|&(_, rows)| rows > 0)
        .map(|(packets, _)| packets)
        .collect();
    if queues.is_empty() {
        return finding.unmeasurable("Polls do not name their queue.");
    }
    let spread = |loads: &[u64]| -> f64 {
        let total: u64 = loads.iter().sum();
        let most = loads.iter().copied().max().unwrap_or(0);
        if loads.len() < 2 || total < IMBALANCE_PACKETS_MIN {
            1.0
        } else {
            most as f64 * loads.len() as f64 / total as f64
        }
    };
    let (by_queue, by_worker) = (spread(&queues), spread(&workers));
    let (full, bursts) = case.full();
    let full_share = full as f64 / bursts.max(1) as f64;
    let full_low = share_interval(full, bursts).map_or(0.0, |ends| ends.0);
    facts.full_bursts = full_low > FULL_SHARE;
    let mut finding = finding;
    let value = by_queue.max(by_worker);
    let loads = if by_queue >= by_worker { &queues } else { &workers };
    let busiest = loads.iter().copied().max().unwrap_or(0);
    let total: u64 = loads.iter().sum();
    finding.value = Some(value);
    finding = finding.interval(
        share_interval(busiest, total)
            .map(|(low, high)| (low * loads.len() as f64, high * loads.len() as f64)),
    );
    finding.span = case.whole();
    finding.confidence = Confidence::High;
    finding.state = fired(value > IMBALANCE || facts.full_bursts);
    finding.figure("queues", queues.len().to_string());
    finding.figure("workers", workers.len().to_string());
    finding.figure("full bursts", format!("{full} of {bursts} ({})", percent(full_share)));
    finding.sentence = match (value > IMBALANCE, facts.full_bursts) {
        (true, true) => format!(
            "The busiest of {} queues carries {value:.2} times the mean, and {} of the bursts are full.",
            loads.len(),
            percent(full_share)
        ),
        (true, false) => {
            format!("The busiest of {} queues carries {value:.2} times the mean.", loads.len())
        }
        (false, true) => format!(
            "{} of the bursts are full: more was waiting than one call returned.",
            percent(full_share)
        ),
        (false, false) => format!(
            "Load is even ({value:.2} times the mean at most over {}), {} of the bursts are full.",
            if loads.len() == 1 { "1 queue".to_owned() } else { format!("{} queues", loads.len()) },
            percent(full_share)
        ),
    };
    finding
}

fn d10(case: &Case<'_>) -> Finding {
    let finding = blank("D10", "backpressure", "share of packets");
    let model = case.model;
    let (asked, sent, short) = case.sends();
    if asked == 0 {
        return finding
            .unmeasurable("No send tells how many packets it was given and how many it took.");
    }
    let refused = asked - sent.min(asked);
    let mut finding = finding.interval(share_interval(refused, asked));
    finding.value = Some(refused as f64 / asked as f64);
    finding.state = fired(finding.value > Some(BACKPRESSURE_SHARE) && refused >= 4);
    finding.span = case.whole();
    finding.confidence = Confidence::High;
    finding.figure("refused", format!("{refused} of {asked}"));
    finding.figure("short sends", short.to_string());
    for (thread, lane) in model.lanes.iter().enumerate() {
        for row in &lane.points.sends {
            if let Some(at) = row.first_short_ns {
                finding.marks.push(mark(model.since(at), Some(thread as u32), "first short send"));
            }
        }
    }
    finding.marks.truncate(MARKS_MAX);
    finding.sentence = if refused == 0 {
        "Every packet handed to send was taken.".to_owned()
    } else {
        format!(
            "Send refused {refused} of {asked} packets ({}): the way out is fuller than the way in.",
            percent(refused as f64 / asked as f64)
        )
    };
    finding
}

fn d11(case: &Case<'_>) -> Finding {
    let finding = blank("D11", "allocation", "share of productive time");
    let model = case.model;
    let buffers: Vec<&crate::model::Row> =
        model.rows.iter().filter(|row| row.layer_shares[Layer::Mempool.index()] > 0.5).collect();
    let productive = case.productive_ns();
    if buffers.is_empty() || productive <= 0.0 {
        return finding.unmeasurable("The trace holds no calls of mempool or mbuf.");
    }
    let (raw, corrected) = model.layer_ns(Layer::Mempool);
    let blocks = case.quiet_blocks();
    let part: Vec<f64> = blocks.iter().map(|block| block.layer_ns(model, Layer::Mempool)).collect();
    let whole: Vec<f64> = blocks
        .iter()
        .map(|block| {
            block.weighted(model, |row| {
                let out = [Layer::Idle, Layer::OffCpu, Layer::Tracer];
                1.0 - out.iter().map(|layer| row.layer_shares[layer.index()]).sum::<f64>()
            })
        })
        .collect();
    let share = part.iter().sum::<f64>() / whole.iter().sum::<f64>().max(1.0);
    let mut finding = finding.interval(ratio_interval(&part, &whole, case.seed ^ 11));
    finding.value = Some(share);
    finding.span = case.whole();
    finding.figure("raw", format!("{:.3} ms", raw as f64 / 1e6));
    finding.figure("corrected", format!("{:.3} ms", corrected / 1e6));
    let mostly_tracer = corrected < 0.5 * raw as f64;
    if mostly_tracer {
        finding.state = State::Withheld;
        finding.sentence = format!(
            "{} of what mempool and mbuf seem to cost is the tracer: nothing can be concluded from the rest.",
            percent(1.0 - corrected / raw.max(1) as f64)
        );
        return finding;
    }
    finding.state = fired(finding.low.is_some_and(|low| low > ALLOCATION_SHARE));
    finding.confidence = match model.calibration.source {
        CalibrationSource::Measured => Confidence::High,
        _ => Confidence::Medium,
    };
    finding.sentence = format!(
        "Mempool and mbuf take {} of the productive time, the tracer taken off.",
        percent(share)
    );
    finding
}

fn d12(case: &Case<'_>) -> Finding {
    let mut finding = blank("D12", "trace health", "share of calls cut");
    let model = case.model;
    let counts = &model.counts;
    let cut = model.cut_share();
    let overhead = model.calibration.overhead_share;
    let missing = counts.discarded as f64 / (counts.discarded + counts.events).max(1) as f64;
    finding.value = Some(cut);
    finding = finding.interval(share_interval(counts.cut, model.calls() + counts.cut));
    finding.span = case.whole();
    finding.confidence = Confidence::High;
    finding.figure("events missing", format!("{} ({})", counts.discarded, percent(missing)));
    finding.figure("holes", counts.losses.to_string());
    finding.figure("tracer's share of call time", percent(overhead));
    finding.figure("clock steps back", counts.clock_backwards.to_string());
    finding.marks = counts
        .holes
        .iter()
        .take(MARKS_MAX)
        .map(|&(from, to)| Mark {
            at_ns: model.since(from),
            length_ns: to.saturating_sub(from),
            thread: None,
            label: "events missing".to_owned(),
        })
        .collect();
    let mut ills = Vec::new();
    if counts.losses > 0 {
        let holes = if counts.losses == 1 { "hole" } else { "holes" };
        let size = if counts.losses_uncounted == counts.losses {
            "of unknown size".to_owned()
        } else {
            format!("({} events, {} of all, missing)", counts.discarded, percent(missing))
        };
        ills.push(format!("{} {holes} {size}", counts.losses));
    }
    if cut > CUT_SHARE_MAX {
        ills.push(format!("{} of the calls cut", percent(cut)));
    }
    if overhead > OVERHEAD_SHARE {
        ills.push(format!("the tracer takes {} of the traced time", percent(overhead)));
    }
    if counts.clock_backwards > 0 {
        ills.push(format!("the clock went back {} times", counts.clock_backwards));
    }
    if counts.unsound > 0 {
        ills.push(format!("{} exits cannot be trusted after a hole", counts.unsound));
    }
    finding.state = fired(!ills.is_empty());
    finding.sentence = if ills.is_empty() {
        format!(
            "No holes, no clock steps; the tracer takes {} of the traced time.",
            percent(overhead)
        )
    } else {
        format!("Read the figures with care: {}.", ills.join("; "))
    };
    finding
}
