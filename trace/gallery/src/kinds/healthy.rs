//! Nothing is wrong with our worker.

use super::{Made, Scene, instruments};
use crate::ours::{Plan, record};
use crate::traffic::{Frames, Pace};
use crate::world::NotMade;

/// Records what must be healthy: whatever the ledger lost makes it no case.
fn made(scene: &mut Scene<'_>, plan: &Plan) -> Result<Made, NotMade> {
    let recorded = record(scene.world, plan, &scene.folder)?;
    if recorded.lost() > 0 {
        return Err(NotMade::Missed(format!(
            "it lost {} of {} frames",
            recorded.lost(),
            recorded.lost() + recorded.received
        )));
    }
    if plan.traffic.is_some() && recorded.received == 0 {
        return Err(NotMade::Missed("no frame arrived".to_owned()));
    }
    let mut truth = scene.truth(Vec::new(), Vec::new());
    instruments(&mut truth, &recorded);
    Ok(Made { trace: recorded.trace, truth })
}

fn frames(scene: &mut Scene<'_>) -> Frames {
    let bytes = scene.draw.number("frame_bytes", 60, 1_500);
    Frames { bytes, flows: scene.draw.number("flows", 1, 200), heavy: 0, pings: false }
}

/// An even load of 1,000 to `most` frames per second; kept on a CPU or not.
fn steady(scene: &mut Scene<'_>, mut plan: Plan, most: u64) -> Result<Made, NotMade> {
    let rate = scene.draw.number("rate", 1_000, most);
    plan.traffic = Some((frames(scene), Pace::Rate(rate), 0));
    plan.cpu = scene.draw.pick("pinned", &[None, Some(0)]);
    made(scene, &plan)
}

fn idle_policy(scene: &mut Scene<'_>) -> &'static str {
    scene.draw.pick("idle", &["block", "adaptive", "spin"])
}

pub(super) fn packet_idle(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let lane = format!("packet:idle={}", idle_policy(scene));
    made(scene, &Plan::features(lane, ms))
}

pub(super) fn packet_steady(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let lane = format!("packet:idle={}", idle_policy(scene));
    steady(scene, Plan::features(lane, ms), 40_000)
}

pub(super) fn packet_kernel(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    steady(scene, Plan { kernel: true, ..Plan::features("packet", ms) }, 20_000)
}

pub(super) fn packet_bursts(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let mut plan = Plan::features("packet", ms);
    let pace = Pace::Trains {
        frames: scene.draw.number("train", 16, 400),
        period_us: scene.draw.number("period_us", 8_000, 60_000),
    };
    plan.traffic = Some((frames(scene), pace, 0));
    made(scene, &plan)
}

pub(super) fn packet_late(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let late_ms = (scene.draw.share("late", 0.3, 0.6) * ms as f64) as u64;
    let mut plan = Plan::features("packet", ms);
    let rate = scene.draw.number("rate", 1_000, 40_000);
    plan.traffic = Some((frames(scene), Pace::Rate(rate), late_ms));
    made(scene, &plan)
}

pub(super) fn packet_ports(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    steady(scene, Plan::forward("packet", ms), 30_000)
}

pub(super) fn packet_workers(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    // By turns, so that shares are even whatever the flows are.
    let mut plan = Plan { workers: 2, ..Plan::features("packet:fanout=lb", ms) };
    let rate = scene.draw.number("rate", 2_000, 40_000);
    plan.traffic = Some((frames(scene), Pace::Rate(rate), 0));
    made(scene, &plan)
}

pub(super) fn ring_steady(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    steady(scene, Plan::features("packet:ring", ms), 60_000)
}

pub(super) fn ring_pings(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let app = vec!["echo", "--address", crate::traffic::ECHO_ADDRESS, "--no-limits"];
    let mut plan = Plan { app, ..Plan::features("packet:ring", ms) };
    let rate = scene.draw.number("rate", 500, 10_000);
    let pings = Frames { bytes: 74, flows: 1, heavy: 0, pings: true };
    plan.traffic = Some((pings, Pace::Rate(rate), 0));
    made(scene, &plan)
}

pub(super) fn afxdp_steady(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let app = vec!["features", "-o", "none", "--drop"];
    steady(scene, Plan { app, ..Plan::features("afxdp", ms) }, 40_000)
}

pub(super) fn afxdp_ports(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    steady(scene, Plan::forward("afxdp", ms), 30_000)
}

pub(super) fn dpdk_steady(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    steady(scene, Plan::features("dpdk:net_af_packet", ms), 40_000)
}

pub(super) fn dpdk_ports(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    steady(scene, Plan::forward("dpdk:net_af_packet", ms), 30_000)
}

pub(super) fn dpdk_full(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let burst = scene.draw.pick("burst", &[16, 32, 64]);
    let app = vec!["features", "-o", "none", "--on", "null0"];
    let lane = format!("dpdk:net_null,burst={burst}");
    let mut plan = Plan { app, ports: 0, ..Plan::features(lane, ms / 3) };
    plan.cpu = scene.draw.pick("pinned", &[None, Some(0)]);
    made(scene, &plan)
}
