//! Polls, sends and queues: D1 empty polls, D2 receive and send cost, D9 imbalance, D10 backpressure.
//!
//! What comes in, what goes out, and what each side costs. Counts come from polls and sends that reported their
//! packets; times from the calls in which they happened.

use laneway_page::number::nouns;

use crate::blocks::{ratio_interval, share_interval};
use crate::model::Row;
use crate::result::{CalibrationSource, Confidence, Finding, Layer, MARKS_MAX, State};
use crate::worst::Join;

use super::backlog::{self, Backlog};
use super::health::OVERHEAD_SHARE;
use super::{Case, Detector, Facts, Uneven, blank, fired, mark, percent};

const EMPTY_TIME_SHARE: f64 = 0.5;
const RATIO_OUTSIDE: [f64; 2] = [0.5, 2.0];
const BACKPRESSURE_SHARE: f64 = 0.001;
/// Fewer refused packets are single events, whatever share they are.
const REFUSED_MIN: u64 = 4;
const IMBALANCE: f64 = 1.5;
/// A worker that is idle for more of its time has room for what comes, however uneven that is.
const BUSY_SHARE: f64 = 0.5;
/// Packets below which loads of queues are chance.
const IMBALANCE_PACKETS_MIN: u64 = 1_000;

pub(super) fn empty_polls(
    case: &Case<'_>,
    backlog: Option<&Backlog>,
    facts: &mut Facts,
) -> Finding {
    let finding = blank(Detector::EmptyPolls, "share of time");
    let model = case.model;
    let (polls, empty, _) = case.polls();
    // Names tell the poll's part of a round that found nothing at best; what polls returned tells the whole.
    let named = model.layer_ns(Layer::Idle).0;
    let rounds: u64 = model.states.iter().map(|state| state.points.idle_ns).sum();
    let idle = named.max(rounds);
    let traced = model.traced_ns() as f64;
    if polls == 0 || traced == 0.0 {
        return finding.unmeasurable(
            "The trace names no poll: neither poll events nor a poll function that the rules know.",
        );
    }
    if empty > 0 && idle == 0 {
        return finding.unmeasurable(format!(
            "{empty} of {polls} {} found nothing, but no rule says which calls those are: their time is not known.",
            nouns(polls, "poll")
        ));
    }
    let share = idle as f64 / traced;
    facts.idle_share = share;
    let part: Vec<f64> = case
        .blocks
        .iter()
        .map(|block| {
            if rounds >= named {
                return block.idle_ns;
            }
            let rows = model.rows.iter().zip(&block.raw_ns);
            rows.map(|(row, ns)| ns * row.layer_shares[Layer::Idle.index()]).sum()
        })
        .collect();
    let whole: Vec<f64> = case.blocks.iter().map(|block| block.self_ns).collect();
    let mut finding = finding.interval(ratio_interval(&part, &whole, case.seed));
    let (asked, sent, _) = case.sends();
    let backlog = backlog.filter(|backlog| backlog.is_found());
    let mut evidence = Vec::new();
    if let Some(drops) = case.drops.filter(|&drops| drops > 0) {
        evidence.push(format!("{drops} {} dropped elsewhere", nouns(drops, "packet")));
    }
    let refused = asked.saturating_sub(sent);
    if is_backpressure(refused, asked) {
        evidence.push(format!("{refused} {} refused by send", nouns(refused, "packet")));
    }
    let failures = case.failures();
    if failures > 0 {
        evidence.push(format!("{failures} failed {}", nouns(failures, "allocation")));
    }
    if let Some(backlog) = backlog {
        evidence.push(backlog.words());
    }
    facts.lossy = !evidence.is_empty();
    let empty_share = empty as f64 / polls as f64;
    let productive = polls - empty;
    finding.state = fired(share > EMPTY_TIME_SHARE && facts.lossy);
    finding.value = Some(share);
    finding.span = case.whole();
    finding.confidence = match backlog {
        _ if finding.low.is_none() => Confidence::Low,
        // Nothing but the backlog speaks of queueing.
        Some(backlog) if evidence.len() == 1 => backlog.confidence(),
        _ => Confidence::High,
    };
    if let (Some(backlog), State::Fired) = (backlog, finding.state) {
        finding.marks.clone_from(&backlog.marks);
    }
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
            "{} of the polls and {} of the time found nothing, and nothing shows loss or queueing: this is idle capacity, normal for a loop that polls.{}",
            percent(empty_share),
            percent(share),
            backlog::drained(case).map_or_else(String::new, |drained| format!(" {drained}."))
        )
    } else {
        format!("{} of the time goes to empty polls.", percent(share))
    };
    finding
}

pub(super) fn receive_and_send(case: &Case<'_>) -> Finding {
    let finding = blank(Detector::ReceiveAndSend, "ratio");
    let model = case.model;
    let counted =
        |layer: Layer| layer != Layer::Tracer && layer != Layer::Idle && layer != Layer::OffCpu;
    // Of a row, what is neither the tracer nor idle nor off the CPU.
    let real = |row: &Row| -> f64 {
        let all: f64 = row.layer_shares.iter().sum();
        let layers = Layer::ALL.iter().filter(|&&layer| counted(layer));
        let kept: f64 = layers.map(|layer| row.layer_shares[layer.index()]).sum();
        let busy = all - row.layer_shares[Layer::Idle.index()];
        if busy > 0.0 { kept / busy } else { 0.0 }
    };
    let blocks = case.quiet_blocks();
    let time = |share: fn(&Row) -> f64| -> Vec<f64> {
        blocks.iter().map(|block| block.weighted(model, |row| share(row) * real(row))).collect()
    };
    let receive = time(|row| row.receive_share);
    let send = time(|row| row.send_share);
    let (receive_ns, send_ns): (f64, f64) = (receive.iter().sum(), send.iter().sum());
    let (Some(all), true) = (model.packets.received.filter(|&n| n > 0), send_ns > 0.0) else {
        return finding
            .unmeasurable("The trace does not hold both receive and send with their packets.");
    };
    if !case.knows_idle_time() {
        return finding.unmeasurable(
            "Polls that found nothing cannot be distinguished from those that found packets, so receiving seems to cost what idling does.",
        );
    }
    let tracer = model.calibration.overhead_share;
    if model.calibration.source != CalibrationSource::Measured && tracer > OVERHEAD_SHARE {
        let mut finding = finding;
        finding.state = State::Withheld;
        finding.sentence = format!(
            "{} of the traced time is the tracer's, which is estimated only: what is left of receive and send is too uncertain to compare.",
            percent(tracer)
        );
        return finding;
    }
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
    let is_unbalanced = high < RATIO_OUTSIDE[0] || low > RATIO_OUTSIDE[1];
    let is_felt = case.is_worth_it(receive_ns + send_ns) && case.is_cost_known();
    finding.state = fired(is_unbalanced && is_felt);
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
        match (is_unbalanced, is_felt) {
            (true, true) => ", far from balanced",
            (true, false) =>
                ", and both together are no share of the time that counts, or one that is not sure",
            (false, _) => ", which is balanced or too uncertain to call unbalanced",
        }
    );
    finding
}

/// Packets of one queue, or of all queues of a worker.
#[derive(Debug, Clone, Copy)]
struct Load {
    thread: usize,
    packets: u64,
}

/// The busiest of several, as a multiple of their mean.
#[derive(Debug, Clone, Copy)]
struct Spread {
    of: usize,
    value: f64,
    busiest: Load,
    total: u64,
}

impl Spread {
    fn of(loads: &[Load]) -> Option<Self> {
        let total: u64 = loads.iter().map(|load| load.packets).sum();
        let busiest = *loads.iter().max_by_key(|load| load.packets)?;
        let is_chance = loads.len() < 2 || total < IMBALANCE_PACKETS_MIN;
        let times = busiest.packets as f64 * loads.len() as f64 / total.max(1) as f64;
        Some(Self { of: loads.len(), value: if is_chance { 1.0 } else { times }, busiest, total })
    }
}

pub(super) fn imbalance(case: &Case<'_>, backlog: Option<&Backlog>, facts: &mut Facts) -> Finding {
    let finding = blank(Detector::Imbalance, "busiest over mean");
    let model = case.model;
    let (mut queues, mut workers) = (Vec::new(), Vec::new());
    for (thread, state) in model.states.iter().enumerate() {
        let rows = &state.points.polls;
        let named = rows.iter().filter(|row| row.queue.is_some());
        queues.extend(named.map(|row| Load { thread, packets: row.packets }));
        if !rows.is_empty() {
            workers.push(Load { thread, packets: rows.iter().map(|row| row.packets).sum() });
        }
    }
    let (Some(by_queue), Some(by_worker)) = (Spread::of(&queues), Spread::of(&workers)) else {
        return finding.unmeasurable("Polls do not name their queue.");
    };
    let spread = if by_queue.value >= by_worker.value { by_queue } else { by_worker };
    let found = backlog.filter(|backlog| backlog.is_found());
    let busy = busy_share(case, spread.busiest.thread);
    let is_uneven = spread.value > IMBALANCE;
    let loads_it = busy.is_none_or(|busy| busy > BUSY_SHARE);
    // Ports of one worker are no rivals: one that forwards has its traffic where it comes from.
    let is_busy = busy_share(case, by_worker.busiest.thread).is_none_or(|busy| busy > BUSY_SHARE);
    facts.uneven = (by_worker.value > IMBALANCE && is_busy).then(|| Uneven {
        thread: by_worker.busiest.thread as u32,
        sentence: format!(
            "The busiest of {} workers carries {:.2} times the mean ({} of {} packets).",
            by_worker.of, by_worker.value, by_worker.busiest.packets, by_worker.total
        ),
    });
    let mut finding = finding;
    finding.state = fired(is_uneven && loads_it || found.is_some());
    finding.span = case.whole();
    finding.confidence = Confidence::High;
    match found {
        // What fired is not the spread.
        Some(backlog) if !(is_uneven && loads_it) => {
            "share of time behind".clone_into(&mut finding.unit);
            finding.value = Some(backlog.share);
            finding = finding.interval(backlog.interval);
            finding.confidence = backlog.confidence();
        }
        _ => {
            finding.value = Some(spread.value);
            let ends = share_interval(spread.busiest.packets, spread.total);
            let times = spread.of as f64;
            finding = finding.interval(ends.map(|(low, high)| (low * times, high * times)));
        }
    }
    let (full, bursts) = case.full();
    finding.figure("queues", queues.len().to_string());
    finding.figure("workers", workers.len().to_string());
    finding.figure(
        "full bursts",
        format!("{full} of {bursts} ({})", percent(full as f64 / bursts.max(1) as f64)),
    );
    if let Some(busy) = busy {
        finding.figure("time that the busiest is not idle", percent(busy));
    }
    if let Some(backlog) = backlog {
        finding.figure("backlogs", backlog.words());
        finding.figure("a backlog is", backlog::rule());
    }
    if let Some(backlog) = found {
        finding.marks.clone_from(&backlog.marks);
    }
    let mut sentences = vec![match (is_uneven, busy) {
        (true, Some(busy)) if !loads_it => format!(
            "The busiest of {} queues carries {:.2} times the mean, but its worker is idle for {} of its time: it takes what it is given.",
            spread.of,
            spread.value,
            percent(1.0 - busy)
        ),
        (true, _) => {
            format!(
                "The busiest of {} queues carries {:.2} times the mean.",
                spread.of, spread.value
            )
        }
        (false, _) => format!(
            "Load is even ({:.2} times the mean at most over {} {}).",
            spread.value,
            spread.of,
            nouns(spread.of as u64, "queue")
        ),
    }];
    match (found, backlog) {
        (Some(backlog), _) => {
            sentences.push(format!("The worker does not keep up: {}.", backlog.words()));
        }
        (None, Some(backlog)) => {
            sentences.push(format!("Not for long enough to count: {}.", backlog.words()));
        }
        (None, None) => {
            sentences.extend(backlog::drained(case).map(|drained| format!("{drained}.")));
        }
    }
    finding.sentence = sentences.join(" ");
    finding
}

/// Share of a thread's time that is spent neither in rounds that found nothing nor waiting; `None` without any time.
fn busy_share(case: &Case<'_>, thread: usize) -> Option<f64> {
    let state = &case.model.states[thread];
    let free_ns = state.points.idle_ns + state.kernel_ns[Join::Waiting as usize];
    let lasted_ns = state.last_ns.saturating_sub(state.first_ns);
    (lasted_ns > 0).then(|| (1.0 - free_ns as f64 / lasted_ns as f64).clamp(0.0, 1.0))
}

pub(super) fn backpressure(case: &Case<'_>) -> Finding {
    let finding = blank(Detector::Backpressure, "share of packets");
    let model = case.model;
    let (asked, sent, short) = case.sends();
    if asked == 0 {
        return finding
            .unmeasurable("No send tells how many packets it was given and how many it took.");
    }
    let refused = asked - sent.min(asked);
    let mut finding = finding.interval(share_interval(refused, asked));
    finding.value = Some(refused as f64 / asked as f64);
    finding.state = fired(is_backpressure(refused, asked));
    finding.span = case.whole();
    finding.confidence = Confidence::High;
    finding.figure("refused", format!("{refused} of {asked}"));
    finding.figure("short sends", short.to_string());
    for (thread, state) in model.states.iter().enumerate() {
        for row in &state.points.sends {
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
            "Send refused {refused} of {asked} {} ({}): the way out is fuller than the way in.",
            nouns(asked, "packet"),
            percent(refused as f64 / asked as f64)
        )
    };
    finding
}

/// Were so many packets refused that it is not chance alone?
fn is_backpressure(refused: u64, asked: u64) -> bool {
    refused >= REFUSED_MIN
        && share_interval(refused, asked).is_some_and(|(low, _)| low > BACKPRESSURE_SHARE)
}
