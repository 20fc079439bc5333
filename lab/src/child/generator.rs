//! The generator: sends the segments that it is ordered to, on the way that its setup names.

use super::priority::go_first;
use super::{ChildEnd, both_ends, client, pipe};
use crate::generate::{LiveGenerator, Replay};
use crate::lane_target::LaneTarget;
use crate::plan::{GeneratorSetup, Order, Ready, Reply, WayIn};
use crate::result::GeneratorReport;
use crate::segment::SegmentPlan;
use crate::traffic::Replayable;
use laneway_core::{App, Burst, CapsReport, Clock, Counters, FrameApp, PortId, Turn};
use laneway_engine::{Control, MonotonicClock};
use laneway_registry::LaneTable;
use std::thread;
use std::time::Duration;

/// A live run waits for its first frame by spinning in the kernel; it is entered this long before.
const LEAD_NS: u64 = 5_000_000;

/// Is a generator until ordered to stop.
///
/// # Errors
/// When it receives no setup.
pub fn serve<L: LaneTable>() -> Result<ChildEnd, String> {
    let setup: GeneratorSetup = pipe::setup()?;
    match obey::<L>(&setup) {
        Ok(()) => Ok(ChildEnd::Done),
        Err(sentence) => {
            pipe::reply(&Reply::Failed(sentence));
            Ok(ChildEnd::FailureReported)
        }
    }
}

fn obey<L: LaneTable>(setup: &GeneratorSetup) -> Result<(), String> {
    if let Some(plan) = setup.traffic.client() {
        return client::serve(plan, &setup.times, setup.cpu);
    }
    let traffic = Replayable::prepare(&setup.traffic, &setup.times).map_err(|e| e.to_string())?;
    go_first(setup.cpu)?;
    match &setup.way {
        &WayIn::Live { ifindex, to_tap } => {
            let live = LiveGenerator::new(&traffic, ifindex, setup.destination, to_tap);
            let mut live = live.map_err(|e| e.to_string())?;
            let mut caps = CapsReport::default();
            caps.fact("frames", "made by the kernel (XDP live frames)");
            send_by_plan(caps, |plan| {
                sleep_until(plan.t0_ns.saturating_sub(LEAD_NS));
                live.send(&plan).map_err(|e| e.to_string())
            })
        }
        WayIn::Lane { lane, interface } => {
            let interfaces = [interface.as_str()];
            let place = place(lane, &interfaces, setup.cpu);
            let mut caps = CapsReport::default();
            let mut nothing = Idle(Counters::default());
            place
                .run::<_, L>(&mut nothing, &Control::default(), |got| caps = got.clone())
                .map_err(|e| e.to_string())?;
            send_by_plan(caps, |plan| replay::<L>(place, setup.destination, &traffic, plan))
        }
        WayIn::Sockets => {
            Err("a client asks over sockets, and no requests were configured".to_owned())
        }
        WayIn::BothEnds { lane, ports } => {
            let ports = ports.each_ref().map(String::as_str);
            both_ends::serve::<L>(place(lane, &ports, setup.cpu), setup, &traffic)
        }
    }
}

/// Reports that it is ready, and has every segment sent until ordered to stop.
fn send_by_plan(
    caps: CapsReport,
    mut send: impl FnMut(SegmentPlan) -> Result<GeneratorReport, String>,
) -> Result<(), String> {
    pipe::reply(&Reply::Ready(Ready { caps, ..Ready::default() }));
    loop {
        match pipe::order() {
            Order::Segment(plan) => pipe::reply(&Reply::Sent(send(plan)?)),
            Order::Report | Order::Ask(_) => {}
            Order::Stop => return Ok(()),
        }
    }
}

fn place<'a>(lane: &'a str, interfaces: &'a [&'a str], cpu: usize) -> LaneTarget<'a> {
    LaneTarget { lane, interfaces, cpu }
}

fn replay<L: LaneTable>(
    place: LaneTarget<'_>,
    destination: [u8; 6],
    traffic: &Replayable,
    plan: SegmentPlan,
) -> Result<GeneratorReport, String> {
    let mut replay = Replay::new(traffic, destination, plan);
    let run =
        place.run::<_, L>(&mut replay, &Control::default(), |_| ()).map_err(|e| e.to_string())?;
    Ok(replay.report(&run.counters()))
}

fn sleep_until(at_ns: u64) {
    let now_ns = MonotonicClock.now_ns();
    thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns)));
}

/// Opens a lane to see what it obtains, and ends at once.
struct Idle(Counters);

impl App for Idle {
    fn wants_stop(&self) -> bool {
        true
    }

    fn counters(&self) -> &Counters {
        &self.0
    }
}

impl FrameApp for Idle {
    fn on_burst(&mut self, _port: PortId, _burst: &mut Burst, _turn: Turn) {
        // It stops before the first turn.
    }
}
