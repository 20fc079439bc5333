//! Something is wrong around our worker.

use super::{Made, Scene, instruments};
use crate::ours::{Neighbour, Plan, Recorded, record};
use crate::traffic::{Frames, Pace};
use crate::truth::{Cause, Size, Truth, Word};
use crate::world::NotMade;

/// Smallest share of frames lost that a loss is planted by.
const LOST_SHARE_MIN: f64 = 0.01;
/// The worker that has most has so many times what the other has, or they are even enough.
const IMBALANCE_MIN: u64 = 4;

fn frames(scene: &mut Scene<'_>) -> Frames {
    let bytes = scene.draw.number("frame_bytes", 60, 400);
    Frames { bytes, flows: scene.draw.number("flows", 1, 200), heavy: 0, pings: false }
}

/// The counters of the lane that lost something, most first.
fn reasons(recorded: &Recorded) -> Vec<&str> {
    let mut drops: Vec<(&str, u64)> =
        recorded.drops.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    drops.retain(|(_, count)| *count > 0);
    drops.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    drops.into_iter().map(|(reason, _)| reason).collect()
}

/// Records what must lose frames, by the first of `paces` that does: faster ones are tried where the machine is quicker
/// than was thought. The lane's own counters say how many, and where.
fn lossy(
    scene: &mut Scene<'_>,
    mut plan: Plan,
    paces: &[Pace],
    also: &[Cause],
) -> Result<Made, NotMade> {
    let sent = frames(scene);
    let mut least = 0.0;
    for pace in paces {
        plan.traffic = Some((sent, *pace, 0));
        let folder = scene.folder.join("trace");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)
                .map_err(|e| NotMade::Failed(format!("cannot remove {}: {e}", folder.display())))?;
        }
        let recorded = record(scene.world, &plan, &scene.folder)?;
        let counted: u64 = recorded.drops.values().sum();
        let share = counted as f64 / (counted + recorded.received).max(1) as f64;
        if share >= LOST_SHARE_MIN {
            let first = vec![Cause::naming(Word::Loss, &reasons(&recorded))];
            let mut truth = scene.truth(first, also.to_vec());
            truth.measure(Size::Packets(counted), &[Word::Loss]);
            instruments(&mut truth, &recorded);
            return Ok(Made { trace: recorded.trace, truth });
        }
        least = share;
    }
    Err(NotMade::Missed(format!("it lost {:.1} % of all frames", least * 100.0)))
}

/// More than the worker takes: at a drawn rate, and if that is not enough, faster.
fn overload(scene: &mut Scene<'_>, plan: Plan) -> Result<Made, NotMade> {
    let rate = scene.draw.number("rate", 200_000, 500_000);
    let paces = [Pace::Rate(rate), Pace::Rate(rate * 2), Pace::TopSpeed];
    lossy(scene, plan, &paces, &[Word::Overload.into()])
}

pub(super) fn packet_overload(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    // The buffer is small against what comes, so that the loss lasts for most of the recording.
    let rcvbuf = scene.draw.pick("rcvbuf", &["64k", "256k", "1m"]);
    let plan = Plan { cpu: Some(0), ..Plan::features(format!("packet:rcvbuf={rcvbuf}"), ms) };
    overload(scene, plan)
}

pub(super) fn ports_overload(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let rcvbuf = scene.draw.pick("rcvbuf", &["64k", "256k", "1m"]);
    let plan = Plan::forward(format!("packet:rcvbuf={rcvbuf}"), ms);
    overload(scene, plan)
}

pub(super) fn ring_overload(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let plan = Plan { cpu: Some(0), ..Plan::forward("packet:ring,block=64k,blocks=8", ms) };
    overload(scene, plan)
}

pub(super) fn afxdp_overload(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let plan = Plan { cpu: Some(0), ..Plan::forward("afxdp:rx=256", ms) };
    overload(scene, plan)
}

pub(super) fn dpdk_overload(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let plan = Plan { cpu: Some(0), ..Plan::forward("dpdk:net_af_packet,rxd=256", ms) };
    overload(scene, plan)
}

pub(super) fn burst_overload(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let train = scene.draw.number("train", 4_000, 12_000);
    let period_us = scene.draw.number("period_us", 150_000, 300_000);
    let pace = |times: u64| Pace::Trains { frames: train * times, period_us };
    let plan = Plan::forward("packet:rcvbuf=64k", ms);
    lossy(scene, plan, &[pace(1), pace(2)], &[Word::Overload.into()])
}

/// Trains that a queue does not hold are an overload by bursts, however short they are: nothing in a trace says how
/// much a queue holds.
fn bursts() -> Cause {
    Cause::naming(Word::Overload, &["bursts"])
}

pub(super) fn small_buffer(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let train = scene.draw.number("train", 200, 800);
    let period_us = scene.draw.number("period_us", 5_000, 40_000);
    let pace = |times: u64| Pace::Trains { frames: train * times, period_us };
    let plan = Plan::features("packet:rcvbuf=8k", ms);
    lossy(scene, plan, &[pace(1), pace(3)], &[bursts()])
}

pub(super) fn small_ring(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let train = scene.draw.number("train", 400, 1_500);
    let period_us = scene.draw.number("period_us", 10_000, 60_000);
    let pace = |times: u64| Pace::Trains { frames: train * times, period_us };
    let plan = Plan::features("packet:ring,block=16k,blocks=2", ms);
    lossy(scene, plan, &[pace(1), pace(2)], &[bursts()])
}

pub(super) fn small_xsk_ring(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let train = scene.draw.number("train", 200, 800);
    let period_us = scene.draw.number("period_us", 5_000, 40_000);
    let pace = |times: u64| Pace::Trains { frames: train * times, period_us };
    let app = vec!["features", "-o", "none", "--drop"];
    let plan = Plan { app, ..Plan::features("afxdp:rx=64,fill=64,tx=64", ms) };
    lossy(scene, plan, &[pace(1), pace(3)], &[bursts()])
}

/// A busy program on the CPU of a worker that would spin there all the time.
fn neighbour(scene: &mut Scene<'_>, mut plan: Plan) -> Result<Made, NotMade> {
    let period_us = scene.draw.number("period_us", 4_000, 60_000);
    let busy = scene.draw.share("busy", 0.15, 0.6);
    let busy_us = scene.draw.keep("busy_us", (period_us as f64 * busy) as u64);
    let rate = scene.draw.number("rate", 1_000, 10_000);
    plan.traffic = Some((frames(scene), Pace::Rate(rate), 0));
    plan.neighbour = Some(Neighbour { cpu: 0, busy_us, period_us });
    (plan.cpu, plan.kernel) = (Some(0), true);
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let mut first = vec![Cause::naming(Word::Preempted, &["neighbour"])];
    let also = consequences(&recorded, &mut first);
    let mut truth: Truth = scene.truth(first, also);
    let delayed = recorded.delayed_ns();
    truth.measure(Size::Time { low_ns: delayed, high_ns: delayed }, &[Word::Preempted]);
    instruments(&mut truth, &recorded);
    Ok(Made { trace: recorded.trace, truth })
}

/// What follows where frames were lost, too: loss may then be named first.
fn consequences(recorded: &Recorded, first: &mut Vec<Cause>) -> Vec<Cause> {
    if recorded.lost() == 0 {
        return Vec::new();
    }
    first.push(Word::Loss.into());
    vec![Word::Overload.into()]
}

pub(super) fn packet_neighbour(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    neighbour(scene, Plan::features("packet:idle=spin", ms))
}

pub(super) fn ring_neighbour(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    neighbour(scene, Plan::features("packet:ring,idle=spin", ms))
}

pub(super) fn afxdp_neighbour(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    neighbour(scene, Plan::forward("afxdp:idle=spin", ms))
}

pub(super) fn far_end(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let rate = scene.draw.number("rate", 5_000, 20_000);
    let sent = frames(scene);
    // The link takes a drawn share of the bits that come.
    let share = scene.draw.share("link", 0.1, 0.6);
    let kbit = (rate as f64 * sent.bytes as f64 * 8.0 / 1e3 * share) as u64;
    let mut plan = Plan::forward("packet", ms);
    plan.link_kbit = Some(scene.draw.keep("link_kbit", kbit.max(100)));
    plan.traffic = Some((sent, Pace::Rate(rate), 0));
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let refused: u64 =
        recorded.drops.iter().filter(|(r, _)| r.starts_with("tx_")).map(|(_, count)| count).sum();
    let first = vec![Word::FarEnd.into(), Cause::naming(Word::Loss, &["tx_"])];
    let mut truth = scene.truth(first, Vec::new());
    truth.measure(Size::Packets(refused), &[Word::FarEnd, Word::Loss]);
    instruments(&mut truth, &recorded);
    Ok(Made { trace: recorded.trace, truth })
}

/// A fault where the worker that has nearly all is busy for most of the time, or loses some.
pub(super) fn imbalance(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let heavy = scene.draw.number("heavy", 85, 98);
    let rate = scene.draw.number("rate", 300_000, 900_000);
    let rcvbuf = scene.draw.pick("rcvbuf", &["256k", "4m"]);
    let mut plan =
        Plan { workers: 2, ..Plan::features(format!("packet:fanout=hash,rcvbuf={rcvbuf}"), ms) };
    let sent = Frames { flows: 16, heavy, ..frames(scene) };
    plan.traffic = Some((sent, Pace::Rate(rate), 0));
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let most = recorded.shares.iter().max().copied().unwrap_or(0);
    let least = recorded.shares.iter().min().copied().unwrap_or(0);
    let ran_ns = recorded.busiest().map_or(0, |task| task.ran_ns);
    let is_uneven = most >= IMBALANCE_MIN * least.max(1);
    let is_felt = ran_ns * 2 >= recorded.elapsed_ns || recorded.lost() * 20 > recorded.received;
    if !is_uneven || !is_felt {
        return Err(NotMade::Missed(format!(
            "{most} and {least} frames, {} lost, the busiest worker on its CPU for {ran_ns} of {} ns",
            recorded.lost(),
            recorded.elapsed_ns
        )));
    }
    let mut first = vec![Word::Imbalance.into()];
    let also = consequences(&recorded, &mut first);
    let mut truth = scene.truth(first, also);
    truth.know(format!("schedstat: the busiest worker on its CPU for {ran_ns} ns"));
    instruments(&mut truth, &recorded);
    Ok(Made { trace: recorded.trace, truth })
}
