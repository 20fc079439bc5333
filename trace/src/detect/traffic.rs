//! Polls, sends and queues: D1 empty polls, D2 receive and send cost, D9 imbalance, D10 backpressure.
//!
//! What comes in, what goes out, and what each side costs. Counts come from polls and sends that told their packets;
//! times from the calls in which they happened.

use laneway_page::number::nouns;

use crate::blocks::{ratio_interval, share_interval};
use crate::model::Row;
use crate::result::{CalibrationSource, Confidence, Finding, Layer, MARKS_MAX, State};

use super::health::OVERHEAD_SHARE;
use super::{Case, Facts, blank, fired, mark, percent};

const EMPTY_TIME_SHARE: f64 = 0.5;
const RATIO_OUTSIDE: [f64; 2] = [0.5, 2.0];
const FULL_SHARE: f64 = 0.05;
const BACKPRESSURE_SHARE: f64 = 0.001;
/// Fewer refused packets are single events, whatever share they are.
const REFUSED_MIN: u64 = 4;
const IMBALANCE: f64 = 1.5;
/// Packets below which loads of queues are chance.
const IMBALANCE_PACKETS_MIN: u64 = 1_000;

pub(super) fn d1(case: &Case<'_>, facts: &mut Facts) -> Finding {
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
    if !case.tells_idle_time() {
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
    if are_full(full, bursts) {
        evidence.push(format!("{full} full {}", nouns(full, "burst")));
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

pub(super) fn d2(case: &Case<'_>) -> Finding {
    let finding = blank("D2", "receive and send cost", "ratio");
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
    if !case.tells_idle_time() {
        return finding.unmeasurable(
            "Polls that found nothing cannot be told from those that found packets, so receiving seems to cost what idling does.",
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

pub(super) fn d9(case: &Case<'_>, facts: &mut Facts) -> Finding {
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
    facts.full_bursts = are_full(full, bursts);
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
    if facts.full_bursts && value <= IMBALANCE {
        // What fired is not the spread.
        "share of full bursts".clone_into(&mut finding.unit);
        finding.value = Some(full_share);
        finding = finding.interval(share_interval(full, bursts));
    }
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
            "Load is even ({value:.2} times the mean at most over {} {}), {} of the bursts are full.",
            loads.len(),
            nouns(loads.len() as u64, "queue"),
            percent(full_share)
        ),
    };
    finding
}

pub(super) fn d10(case: &Case<'_>) -> Finding {
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
    finding.state = fired(is_backpressure(refused, asked));
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

/// Likewise for bursts that were as large as asked for.
fn are_full(full: u64, bursts: u64) -> bool {
    share_interval(full, bursts).is_some_and(|(low, _)| low > FULL_SHARE)
}
