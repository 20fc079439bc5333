//! The generator: sends the segments that it is told to, on the way that it is told to.

use super::{ChildEnd, pipe};
use crate::generate::{LiveGenerator, Replay};
use crate::plan::{GeneratorSetup, Order, Ready, Reply, SegmentPlan};
use crate::registry::{Place, Registry};
use crate::result::GeneratorReport;
use crate::traffic::Replayable;
use laneway_core::{Burst, CapsReport, Clock, Counters, FrameApp, PortId, Turn};
use laneway_engine::{Control, MonotonicClock, pin_to_cpu};
use std::thread;
use std::time::Duration;

/// A live run waits for its first frame by spinning in the kernel; it is entered this long before.
const LEAD_NS: u64 = 5_000_000;

/// Is a generator until told to stop.
///
/// # Errors
/// When nobody says what to be.
pub fn serve(registry: &impl Registry) -> Result<ChildEnd, String> {
    let setup: GeneratorSetup = pipe::setup()?;
    match obey(registry, &setup) {
        Ok(()) => Ok(ChildEnd::Done),
        Err(sentence) => {
            pipe::reply(&Reply::Failed(sentence));
            Ok(ChildEnd::FailureTold)
        }
    }
}

fn obey(registry: &impl Registry, setup: &GeneratorSetup) -> Result<(), String> {
    let traffic = Replayable::prepare(&setup.traffic).map_err(|e| e.to_string())?;
    pin_to_cpu(setup.cpu).map_err(|e| e.to_string())?;
    let mut live = match setup.way.as_str() {
        LIVE => {
            let (to, to_tap) = (setup.destination, setup.to_tap);
            let live = LiveGenerator::new(&traffic, setup.ifindex, to, to_tap);
            Some(live.map_err(|e| e.to_string())?)
        }
        _ => None,
    };
    let mut caps = CapsReport::default();
    if live.is_some() {
        caps.fact("frames", "made by the kernel (XDP live frames)");
    } else {
        let mut nothing = Idle(Counters::default());
        registry
            .run_frames(
                place(setup, &[&setup.interface]),
                &mut nothing,
                &Control::default(),
                |got| {
                    caps = got.clone();
                },
            )
            .map_err(|e| e.to_string())?;
    }
    pipe::reply(&Reply::Ready(Ready { caps, ..Ready::default() }));
    loop {
        match pipe::order() {
            Order::Segment(plan) => {
                let report = match &mut live {
                    Some(live) => {
                        sleep_until(plan.t0_ns.saturating_sub(LEAD_NS));
                        live.send(&plan).map_err(|e| e.to_string())?
                    }
                    None => replay(registry, setup, &traffic, plan)?,
                };
                pipe::reply(&Reply::Sent(report));
            }
            Order::Report => {}
            Order::Stop => return Ok(()),
        }
    }
}

/// The way that needs no lane.
pub(crate) const LIVE: &str = "live";

fn place<'a>(setup: &'a GeneratorSetup, interfaces: &'a [&'a str]) -> Place<'a> {
    Place { lane: &setup.way, interfaces, addresses: &[], cpu: setup.cpu }
}

fn replay(
    registry: &impl Registry,
    setup: &GeneratorSetup,
    traffic: &Replayable,
    plan: SegmentPlan,
) -> Result<GeneratorReport, String> {
    let mut replay = Replay::new(traffic, setup.destination, plan);
    let run = registry
        .run_frames(place(setup, &[&setup.interface]), &mut replay, &Control::default(), |_| ())
        .map_err(|e| e.to_string())?;
    let counters = run.counters();
    // What the lane neither sent nor has still to send was refused.
    Ok(replay.report(counters.lost()))
}

fn sleep_until(at_ns: u64) {
    let now_ns = MonotonicClock.now_ns();
    thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns)));
}

/// Opens a lane to see what it obtains, and ends at once.
struct Idle(Counters);

impl FrameApp for Idle {
    fn on_burst(&mut self, _port: PortId, _burst: &mut Burst, _turn: Turn) {
        // It stops before the first turn.
    }

    fn wants_stop(&self) -> bool {
        true
    }

    fn counters(&self) -> &Counters {
        &self.0
    }
}
