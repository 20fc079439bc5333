//! What is wrong, from the accounts: ranked by packets lost and then by share of a worker's time.
//!
//! A cause is named only from what the trace shows of a worker: below [`SHARE_MIN`] of its time, and without loss,
//! nothing is. Loss comes first, then what explains it: what kept the worker from its queue, or, where nothing did,
//! that the load exceeds its capacity. Detectors do not decide here; their findings support a cause where they looked
//! at the same thing.
//!
//! What is not known is no cause: time that is unknown stays unknown, and where losses are not counted nothing is
//! stated of them.

use laneway_page::number::nouns;

use crate::account::{Gap, SHARE_MIN, TracedWorker};
use crate::calls::Kind;
use crate::detect::{Detector, Facts};
use crate::model::{Model, Row};
use crate::recurrence;
use crate::result::{
    CAUSES_MAX, Cause, CauseKind, Confidence, Finding, Layer, LossRow, Losses, Part, State,
    Withheld,
};

/// Share of a worker's time from which interrupts are worth saying: a worker's CPU has always some.
const INTERRUPTS_MIN: f64 = 0.05;
/// A worker that has less than this share of its time to spare is overloaded, if packets wait or are lost.
const SPARE_MIN: f64 = 0.2;
/// The tracer hides the rest if it takes so much of what is not idle ...
const TRACER_SHARE: f64 = 0.5;
/// ... and this share of the whole.
const TRACER_SHARE_MIN: f64 = 0.5;
/// The tracer's share of a worker's time from which it is ranked with the other causes.
const TRACER_SHARE_MOST: f64 = 0.5;
/// One function is most of the work from this share of it on, and of the span.
const FUNCTION_SHARE: f64 = 0.5;
const FUNCTION_SHARE_MIN: f64 = 0.1;
/// Without polls that are known by name, so much of the time must have been seen to find nothing.
const POLLING_MIN: f64 = 0.05;
/// Memory is taken and given back for too long from this share of the work on.
const ALLOCATION_SHARE: f64 = 0.3;
/// Something that lies within this share of the span, at its beginning, is the start of the program.
const START: f64 = 0.1;
/// Silences of one function, where nothing tells what happened in them: needed at least, and the chance at most that
/// they fell into it by accident.
const SILENCES_MIN: u64 = 8;
const BY_CHANCE_MAX: f64 = 1e-4;
/// The same where the kernel's part excludes all others but a hypervisor.
const BY_HOST_MAX: f64 = 1e-3;

/// Reasons for loss at which the way out is full, by the names of the core's table of drop reasons.
const WAY_OUT: &[&str] = &["tx_refused", "tx_socket_full", "tx_interface_full"];
/// ... at which the way in is, or what a worker keeps.
const WAY_IN: &[&str] = &[
    "rx_queue_full",
    "rx_no_frame",
    "rx_error",
    "record_ring_full",
    "sink_full",
    "flow_table_full",
    "conn_table_full",
    "link_loss",
    "link_queue_full",
];
/// The name of what the user gave.
pub(crate) const GIVEN: &str = "given by --drops";

/// Packets that were lost for want of room; what is refused for what it is, is no loss.
pub(crate) fn losses(model: &Model, counted: bool, given: Option<u64>) -> Losses {
    let mut rows: Vec<LossRow> = Vec::new();
    for (thread, state) in (0u32..).zip(&model.states) {
        for &(port, reason, packets) in &state.dropped {
            let reason = model.named.get(&reason).cloned().unwrap_or_default();
            if WAY_IN.contains(&reason.as_str()) || WAY_OUT.contains(&reason.as_str()) {
                let port = (port != u16::MAX).then_some(port);
                rows.push(LossRow { thread: Some(thread), port, reason, packets });
            }
        }
    }
    if let Some(packets) = given {
        rows.push(LossRow { thread: None, port: None, reason: GIVEN.to_owned(), packets });
    }
    rows.retain(|row| row.packets > 0);
    rows.sort_by_key(|row| std::cmp::Reverse(row.packets));
    Losses { known: counted || given.is_some() || !rows.is_empty(), rows }
}

/// What causes are looked for in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence<'a> {
    pub(crate) model: &'a Model,
    pub(crate) workers: &'a [TracedWorker],
    pub(crate) losses: &'a Losses,
    pub(crate) findings: &'a [Finding],
    pub(crate) facts: &'a Facts,
}

/// All causes, the one to be reported first at the front.
pub(crate) fn find(evidence: &Evidence<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for worker in evidence.workers {
        evidence.gaps(worker, &mut causes);
        evidence.tracer(worker, &mut causes);
        evidence.work(worker, &mut causes);
    }
    evidence.loss(&mut causes);
    evidence.imbalance(&mut causes);
    let place = |cause: &Cause| match cause.cause {
        CauseKind::Loss => 0,
        CauseKind::FarEnd | CauseKind::Overload => 1,
        // It is there because the program is traced, whatever is wrong besides; but where it takes most of the time,
        // the figures of the rest are of no weight.
        CauseKind::Tracer if cause.share < TRACER_SHARE_MOST => 3,
        _ => 2,
    };
    causes.sort_by(|a, b| {
        let lost = |cause: &Cause| cause.lost_packets.unwrap_or(0);
        place(a).cmp(&place(b)).then(lost(b).cmp(&lost(a))).then(b.share.total_cmp(&a.share))
    });
    causes.truncate(CAUSES_MAX);
    causes
}

/// Silences that the kernel's part does not explain, and that are in each function as often as the worker is there.
pub(crate) fn unexplained(evidence: &Evidence<'_>) -> Vec<Withheld> {
    let of = |worker: &TracedWorker| {
        let gaps = worker.gaps.iter().filter(|gap| gap.part == Part::Function && !gap.is_its_own);
        let unseen: u64 =
            gaps.filter(|gap| !evidence.is_beyond_chance(worker, gap)).map(|gap| gap.ns).sum();
        let share = unseen as f64 / worker.account.span_ns.max(1) as f64;
        (share >= SHARE_MIN).then(|| Withheld {
            what: format!("the cause of some silences of {}", worker.account.name),
            why: format!(
                "{} of its time passes in calls that are suddenly long, in each function as often as it is there, and the kernel \
                 did nothing then: a host that takes the CPU from its guest looks like this",
                percent(share)
            ),
        })
    };
    evidence.workers.iter().filter_map(of).collect()
}

/// A cause without anything that is particular to some.
fn cause(cause: CauseKind, detail: &str, worker: Option<&TracedWorker>, share: f64) -> Cause {
    Cause {
        cause,
        detail: detail.to_owned(),
        thread: worker.map(|worker| worker.account.thread),
        share,
        lost_packets: None,
        period_ns: None,
        period_half_ns: None,
        low: None,
        high: None,
        confidence: Confidence::Medium,
        sentence: String::new(),
    }
}

fn percent(share: f64) -> String {
    // A sum of nothing may be -0.0.
    format!("{:.1} %", (100.0 * share).max(0.0))
}

fn milliseconds(ns: f64) -> String {
    format!("{:.3} ms", ns / 1e6)
}

/// Gaps of one kind and name.
struct Together<'a> {
    kind: CauseKind,
    detail: String,
    gaps: Vec<&'a Gap>,
}

impl Together<'_> {
    fn ns(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.ns).sum()
    }

    /// A call that blocks is one time, though the kernel was busy with it as well.
    fn times(&self) -> u64 {
        let of = |is_blocked: bool| -> u64 {
            let gaps = self.gaps.iter().filter(|gap| (gap.part == Part::Blocked) == is_blocked);
            gaps.map(|gap| gap.times).sum()
        };
        of(true).max(of(false))
    }

    fn longest_ns(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.longest_ns).max().unwrap_or(0)
    }

    fn largest(&self) -> Option<&Gap> {
        self.gaps.iter().copied().max_by_key(|gap| gap.ns)
    }

    /// Mean moment, as a share of the span.
    fn when(&self) -> f64 {
        let sum: f64 = self.gaps.iter().map(|gap| gap.when * gap.ns as f64).sum();
        sum / (self.ns() as f64).max(1.0)
    }

    fn moments(&self) -> Vec<u64> {
        let mut moments: Vec<u64> = self.gaps.iter().flat_map(|gap| gap.moments.clone()).collect();
        moments.sort_unstable();
        moments
    }
}

impl Evidence<'_> {
    /// What keeps a worker from its loop.
    fn gaps(&self, worker: &TracedWorker, causes: &mut Vec<Cause>) {
        let mut all: Vec<Together<'_>> = Vec::new();
        for gap in &worker.gaps {
            let Some(kind) = self.kind_of(worker, gap) else { continue };
            // With the CPU taken by another thread it is preempted; while it waits to be woken it sleeps.
            let one_of_all = matches!(
                kind,
                CauseKind::Preempted | CauseKind::Interrupts | CauseKind::Sleep | CauseKind::Lock
            );
            let known = all
                .iter_mut()
                .find(|other| other.kind == kind && (one_of_all || other.detail == gap.name));
            match known {
                Some(known) => known.gaps.push(gap),
                None => all.push(Together { kind, detail: gap.name.clone(), gaps: vec![gap] }),
            }
        }
        let span_ns = worker.account.span_ns.max(1) as f64;
        for mut together in all {
            let share = together.ns() as f64 / span_ns;
            let least =
                if together.kind == CauseKind::Interrupts { INTERRUPTS_MIN } else { SHARE_MIN };
            if share < least {
                continue;
            }
            if let Some(largest) = together.largest() {
                together.detail = match together.kind {
                    CauseKind::Lock if !largest.by.is_empty() => {
                        format!("{}, woken by {}", largest.name, largest.by)
                    }
                    _ => largest.name.clone(),
                };
            }
            if together.kind == CauseKind::PageFaults && together.when() < START {
                together.kind = CauseKind::ColdStart;
            }
            causes.push(self.gap(worker, &together, share));
        }
    }

    /// What a gap stands for; `None` where it is unknown.
    fn kind_of(&self, worker: &TracedWorker, gap: &Gap) -> Option<CauseKind> {
        match gap.part {
            Part::Preempted => Some(CauseKind::Preempted),
            Part::PageFaults => Some(CauseKind::PageFaults),
            Part::Interrupts => Some(CauseKind::Interrupts),
            Part::Function => (gap.is_its_own || self.is_beyond_chance(worker, gap))
                .then_some(CauseKind::Housekeeping),
            Part::SystemCall | Part::Blocked if gap.kind == Kind::Lock && !worker.polls => None,
            Part::SystemCall | Part::Blocked => Some(match gap.kind {
                Kind::Sleep => CauseKind::Sleep,
                Kind::Lock => CauseKind::Lock,
                _ => CauseKind::SystemCall,
            }),
            Part::Unknown => self.is_not_by_chance(worker, gap).then_some(CauseKind::Housekeeping),
            Part::Work | Part::EmptyPolls | Part::Waiting | Part::Tracer => None,
        }
    }

    /// The kernel sees no hypervisor that takes the CPU: such silences are in each function as often as the worker is
    /// there. One that has more of them than chance gives it is slow by itself.
    fn is_beyond_chance(&self, worker: &TracedWorker, gap: &Gap) -> bool {
        let alike = worker.gaps.iter().filter(|other| other.part == gap.part && !other.is_its_own);
        let all: u64 = alike.map(|other| other.times).sum();
        are_beyond_chance(gap.times, all, self.presence(worker, gap))
    }

    /// Of the time that a worker is in its functions on its CPU, the share that it is in this one.
    fn presence(&self, worker: &TracedWorker, gap: &Gap) -> f64 {
        let whole: u64 = worker.present.values().sum();
        let rows = worker.present.iter();
        let there = rows.filter(|(row, _)| self.model.rows[**row as usize].name == gap.name);
        there.map(|(_, ns)| ns).sum::<u64>() as f64 / whole.max(1) as f64
    }

    /// Whatever takes the CPU away finds a worker where it is for most of its time on the CPU. Silences that are all in
    /// one function, though the worker is seldom there, are the function's own. But a worker loses its CPU most easily
    /// where it enters the kernel: of functions that take or give packets, or call the kernel, nothing is known.
    fn is_not_by_chance(&self, worker: &TracedWorker, gap: &Gap) -> bool {
        let unknown = worker.gaps.iter().filter(|other| other.part == Part::Unknown);
        let elsewhere: u64 =
            unknown.filter(|other| other.name != gap.name).map(|other| other.times).sum();
        if gap.times < SILENCES_MIN || gap.times < 4 * elsewhere {
            return false;
        }
        let row = self.model.rows.iter().position(|row| row.name == gap.name);
        let Some(row) = row else { return false };
        if carries_packets(self.model, &self.model.rows[row]) {
            return false;
        }
        let usual = self.presence(worker, gap);
        usual.powf(gap.times as f64) < BY_CHANCE_MAX && usual < 0.5
    }

    fn gap(&self, worker: &TracedWorker, together: &Together<'_>, share: f64) -> Cause {
        let Together { kind, detail, .. } = together;
        let mut found = cause(*kind, detail, Some(worker), share);
        let (ns, times) = (together.ns(), together.times().max(1));
        // So many independent times; and what a call costs is known only so well.
        let parts = worker.account.parts.iter();
        let unsure: u64 = parts
            .filter(|row| row.part == Part::Function && row.detail == *detail)
            .map(|row| row.uncertainty_ns)
            .sum();
        let unsure = unsure as f64 / worker.account.span_ns.max(1) as f64;
        let half = 1.96 * share / (times as f64).sqrt();
        let half = half.hypot(unsure);
        (found.low, found.high) = (Some((share - half).max(0.0)), Some((share + half).min(1.0)));
        let is_attributed = together.gaps.iter().all(|gap| worker.joined || gap.is_its_own);
        found.confidence = match is_attributed && found.low > Some(SHARE_MIN / 2.0) {
            true => Confidence::High,
            false => Confidence::Medium,
        };
        let recurs = recurrence::of(&together.moments());
        found.period_ns = recurs.map(|period| period.ns as u64);
        found.period_half_ns = recurs.map(|period| period.half_ns.ceil() as u64);
        let who = &worker.account.name;
        let took = format!("{} of its time", percent(share));
        let how = format!(
            "{} {}, {} on average, the longest {}",
            times,
            nouns(times, "time"),
            milliseconds(ns as f64 / times as f64),
            milliseconds(together.longest_ns() as f64)
        );
        let mut sentence = match kind {
            CauseKind::Preempted if detail.is_empty() => {
                format!("{who} could have run and did not for {took}: {how}.")
            }
            CauseKind::Preempted => {
                format!("{who} was preempted for {took}, mostly by {detail}: {how}.")
            }
            CauseKind::Sleep => {
                format!("{who} sleeps in its own code ({detail}) for {took}: {how}.")
            }
            CauseKind::Lock => {
                format!("{who} waits for another thread ({detail}) for {took}: {how}.")
            }
            CauseKind::SystemCall => format!("{who} is in system call {detail} for {took}: {how}."),
            CauseKind::PageFaults => format!("{who} is in page faults for {took}: {how}."),
            CauseKind::ColdStart => {
                format!("{who} is in page faults at its start, {took} of the whole: {how}.")
            }
            CauseKind::Interrupts => {
                format!("Interrupts take {took} of {who}, mostly {detail}: {how}.")
            }
            _ => format!("{detail} keeps {who} from its loop for {took}: {how}."),
        };
        if let Some(period) = recurs {
            sentence.push(' ');
            sentence.push_str(&period.words());
        }
        if !worker.joined && *kind == CauseKind::Housekeeping && !is_attributed {
            sentence.push_str(
                " The kernel's side is not in the trace: that it is this function rests on where the silences are.",
            );
        }
        found.sentence = sentence;
        found
    }

    fn tracer(&self, worker: &TracedWorker, causes: &mut Vec<Cause>) {
        let tracer = worker.share(Part::Tracer);
        let unsure: u64 = worker.rows(Part::Tracer).map(|row| row.uncertainty_ns).sum();
        let unsure = unsure as f64 / worker.account.span_ns.max(1) as f64;
        let busy = tracer + worker.share(Part::Work) + worker.share(Part::Function);
        if tracer < TRACER_SHARE_MIN || tracer < TRACER_SHARE * busy {
            return;
        }
        let mut found = cause(CauseKind::Tracer, "", Some(worker), tracer);
        (found.low, found.high) =
            (Some((tracer - unsure).max(0.0)), Some((tracer + unsure).min(1.0)));
        found.sentence = format!(
            "The tracer takes {} of the time of {}, {} of what is not idle: what is left is too uncertain to rank.",
            percent(tracer),
            worker.account.name,
            percent(tracer / busy)
        );
        causes.push(found);
    }

    /// One function, or allocation, is most of the work.
    fn work(&self, worker: &TracedWorker, causes: &mut Vec<Cause>) {
        let span_ns = worker.account.span_ns.max(1) as f64;
        let work_ns: f64 = worker.functions.iter().map(|(_, ns)| ns).sum();
        if work_ns < FUNCTION_SHARE_MIN * span_ns || !worker.is_cost_known(self.model) {
            return;
        }
        let model = self.model;
        let memory: f64 = worker
            .functions
            .iter()
            .filter(|(row, _)| model.rules.takes_memory(&model.rows[*row as usize].name))
            .map(|(_, ns)| ns)
            .sum();
        let failed = self.facts.failures;
        if memory > ALLOCATION_SHARE * work_ns || failed > 0 {
            let share = memory / span_ns;
            let mut found = cause(CauseKind::Allocation, "", Some(worker), share);
            found.sentence = format!(
                "Taking and giving back memory is {} of the work of {}, {} of its time{}.",
                percent(memory / work_ns),
                worker.account.name,
                percent(share),
                match failed {
                    0 => String::new(),
                    failed => format!("; {failed} {} failed", nouns(failed, "allocation")),
                }
            );
            causes.push(found);
            return;
        }
        let Some(&(row, ns)) = worker.functions.iter().find(|(row, _)| {
            let row = &model.rows[*row as usize];
            !row.own && !row.dominated && !carries_packets(model, row)
        }) else {
            return;
        };
        let row = &model.rows[row as usize];
        let share = ns / span_ns;
        if ns < FUNCTION_SHARE * work_ns || share < FUNCTION_SHARE_MIN {
            return;
        }
        // Of our own loop's few points one is always the largest: it says where, once something is wrong.
        let is_wrong = !self.losses.rows.is_empty() || self.is_behind();
        let is_loops = row.name.starts_with("app.") || row.name.starts_with("lane.");
        // A loop that polls has most of its time somewhere; unless its polls are known, that says nothing.
        if is_loops && !is_wrong || !worker.polls && worker.share(Part::EmptyPolls) < POLLING_MIN {
            return;
        }
        let mut found = cause(CauseKind::SlowFunction, &row.name, Some(worker), share);
        found.sentence = format!(
            "{} is {} of the work of {}, {} of its time.",
            row.name,
            percent(ns / work_ns),
            worker.account.name,
            percent(share)
        );
        causes.push(found);
    }

    /// Loss, and more than a worker takes.
    fn loss(&self, causes: &mut Vec<Cause>) {
        let rows = &self.losses.rows;
        let is_out = |row: &&LossRow| WAY_OUT.contains(&row.reason.as_str());
        let out: u64 = rows.iter().filter(is_out).map(|row| row.packets).sum();
        let into: u64 = rows.iter().filter(|row| !is_out(row)).map(|row| row.packets).sum();
        let worker = |thread: Option<u32>| {
            let of = |worker: &&TracedWorker| Some(worker.account.thread) == thread;
            self.workers.iter().find(of)
        };
        if let Some(most) = rows.iter().find(|row| !is_out(row)) {
            let mut found = cause(CauseKind::Loss, &most.reason, worker(most.thread), 0.0);
            found.lost_packets = Some(into);
            found.confidence = Confidence::High;
            let places: Vec<String> =
                rows.iter().filter(|row| !is_out(row)).take(4).map(place).collect();
            let received = self.model.packets.received;
            found.sentence = format!(
                "{into} {} lost{}: {}.",
                if into == 1 { "packet was" } else { "packets were" },
                received.map_or_else(String::new, |received| {
                    let share = into as f64 / (into + received).max(1) as f64;
                    format!(", {} of {}", percent(share), into + received)
                }),
                places.join("; ")
            );
            causes.push(found);
        }
        let refused = self.refused();
        if out > 0 || refused.is_some() {
            let most = rows.iter().find(is_out);
            let detail = most.map_or("send refused", |row| row.reason.as_str());
            let mut found =
                cause(CauseKind::FarEnd, detail, most.and_then(|row| worker(row.thread)), 0.0);
            found.lost_packets = (out > 0).then_some(out);
            found.confidence = Confidence::High;
            found.sentence = match most {
                Some(_) => {
                    let places: Vec<String> =
                        rows.iter().filter(is_out).take(4).map(place).collect();
                    format!(
                        "{out} {} lost on the way out: {}.",
                        if out == 1 { "packet was" } else { "packets were" },
                        places.join("; ")
                    )
                }
                None => refused.unwrap_or_default(),
            };
            causes.push(found);
        }
        self.overload(into, causes);
    }

    fn refused(&self) -> Option<String> {
        let finding = &self.findings[Detector::Backpressure.place()];
        (finding.state == State::Fired).then(|| finding.sentence.clone())
    }

    /// Does more come than is taken, as far as polls tell? Where losses are counted and there is none, the source
    /// offers no more than is taken, however full each poll is.
    fn is_behind(&self) -> bool {
        self.facts.backlog.is_some() && !self.losses.known
    }

    fn overload(&self, lost: u64, causes: &mut Vec<Cause>) {
        let backlog = self.facts.backlog.as_ref();
        if lost == 0 && !self.is_behind() {
            return;
        }
        let most = self.losses.rows.iter().find(|row| WAY_IN.contains(&row.reason.as_str()));
        let thread =
            backlog.map(|backlog| backlog.thread).or_else(|| most.and_then(|row| row.thread));
        let of = |worker: &&TracedWorker| Some(worker.account.thread) == thread;
        let Some(worker) = self.workers.iter().find(of).or_else(|| self.workers.first()) else {
            return;
        };
        let spare = worker.spare();
        let kept = causes
            .iter()
            .filter(|cause| cause.thread == Some(worker.account.thread))
            .filter(|cause| {
                let work = [CauseKind::SlowFunction, CauseKind::Allocation, CauseKind::Tracer];
                cause.share > 0.0 && !work.contains(&cause.cause)
            })
            .map(|cause| cause.share)
            .sum::<f64>()
            + worker.awaits_others();
        let work = worker.share(Part::Work) + worker.share(Part::Tracer);
        // What keeps it from its queue explains the loss, as long as it is not always behind.
        let lasts = backlog.is_some_and(|backlog| backlog.is_lasting);
        let by_rate = (spare < SPARE_MIN || lasts) && kept < work;
        if !by_rate && kept >= SHARE_MIN {
            return;
        }
        let mut found =
            cause(CauseKind::Overload, if by_rate { "rate" } else { "bursts" }, Some(worker), work);
        found.lost_packets = (lost > 0).then_some(lost);
        found.confidence = if by_rate { Confidence::High } else { Confidence::Medium };
        let name = &worker.account.name;
        let evidence = backlog.map_or_else(String::new, |backlog| format!(" {}.", backlog.words));
        found.sentence = if by_rate {
            let when = if spare < SPARE_MIN { "" } else { " at times" };
            format!(
                "Offered load exceeds the capacity of {name}{when}: it works for {} of its time and has {} to spare.{evidence}",
                percent(work),
                percent(spare)
            )
        } else {
            format!(
                "Packets come in bursts that its queue does not hold: {name} has {} of its time to spare, and loses.{evidence}",
                percent(spare)
            )
        };
        causes.push(found);
    }

    fn imbalance(&self, causes: &mut Vec<Cause>) {
        let Some(uneven) = &self.facts.uneven else { return };
        let of = |worker: &&TracedWorker| worker.account.thread == uneven.thread;
        let worker = self.workers.iter().find(of);
        let share = worker.map_or(0.0, |worker| worker.share(Part::Work));
        if share < SHARE_MIN {
            return;
        }
        let mut found = cause(CauseKind::Imbalance, "workers", worker, share);
        found.confidence = Confidence::High;
        found.sentence.clone_from(&uneven.sentence);
        causes.push(found);
    }
}

/// Is the function a part of taking or giving packets, or a way into the kernel?
fn carries_packets(model: &Model, row: &Row) -> bool {
    model.rules.is_receive_root(&row.name)
        || model.rules.is_send_root(&row.name)
        || row.receive_share + row.send_share > 0.5 * (1.0 - row.layer_shares[Layer::Idle.index()])
        || row.layer_shares[Layer::Kernel.index()] > 0.5
}

fn place(row: &LossRow) -> String {
    let port = row.port.map_or_else(String::new, |port| format!(" on port {port}"));
    format!("{} {}{port}", row.packets, row.reason)
}

/// Whether a function that a worker is in for `usual` of its time has so many of `all` silences that chance does not give
/// it as many: Chernoff's bound of the binomial.
fn are_beyond_chance(times: u64, all: u64, usual: f64) -> bool {
    let part = times as f64 / all.max(1) as f64;
    if part <= usual {
        return false;
    }
    // 0 times a logarithm of 0 is 0 here.
    let term = |a: f64, b: f64| if a > 0.0 { a * (a / b).ln() } else { 0.0 };
    let divergence = term(part, usual) + term(1.0 - part, 1.0 - usual);
    (-(all as f64) * divergence).exp() < BY_HOST_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silences_are_a_functions_own_where_chance_does_not_put_them_there() {
        // Where the worker always is, and as often as it is there.
        assert!(!are_beyond_chance(49, 49, 1.0) && !are_beyond_chance(40, 50, 0.85));
        assert!(!are_beyond_chance(30, 30, 0.85) && !are_beyond_chance(1, 1, 0.05));
        // Where it hardly is, or never but then; and more often than it is there.
        assert!(are_beyond_chance(3, 3, 0.05) && are_beyond_chance(1, 9, 0.0));
        assert!(are_beyond_chance(90, 100, 0.5) && are_beyond_chance(60, 60, 0.85));
    }
}
