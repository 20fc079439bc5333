//! What tracing costs: per event, and per frame of a loop that does nothing but look at frames.
//!
//! ```sh
//! cargo run --release -p laneway-engine --example tracer_cost -- [SECONDS] [CPU]
//! ```
//!
//! The lane is a null lane: it lends the same buffers again and again, so the loop is at full load and nothing but
//! the loop is measured. The app does what a forwarder does to a frame: it swaps the addresses. Segments with and
//! without a trace take turns, so that what changes on the machine meanwhile meets both; the cost is the median of
//! the ratios of neighbours.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use laneway_core::{
    App, Burst, CapsReport, Clock, ClockDomain, Counters, FrameApp, FrameLane, Lane, LaneError,
    PortId, Turn, Wake,
};
use laneway_engine::{Control, MonotonicClock, Stop, pin_to_cpu, run_frames};
use laneway_sim::SimLane;
use laneway_spec::IdlePolicy;
use laneway_tracer::{Session, SessionOptions, ThreadInfo, TraceSlot, points};
use std::{env, error::Error, fs, time::Duration};

const FRAME_BYTES: usize = 64;
const BURST_FRAMES: usize = 64;
const SEGMENT_NS: u64 = 100_000_000;
/// Each has a trace of its own, and a session has a limit.
const PAIRS_MAX: u64 = 200;
const EVENTS: u64 = 100_000;

/// Every receive finds a full burst.
struct NullLane(SimLane);

impl Lane for NullLane {
    fn name(&self) -> &'static str {
        "null"
    }
    fn ports(&self) -> usize {
        1
    }
    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.0.wait(timeout)
    }
    fn caps(&self, port: PortId) -> &CapsReport {
        self.0.caps(port)
    }
    fn counters(&mut self, port: PortId) -> Counters {
        self.0.counters(port)
    }
}

impl FrameLane for NullLane {
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        self.0.lend(port, BURST_FRAMES)
    }
    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        self.0.lend(port, frames)
    }
    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        self.0.settle(port)
    }
}

/// Swaps the addresses of every frame.
#[derive(Default)]
struct Swap {
    frames: u64,
    counters: Counters,
}

impl App for Swap {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Swap {
    fn on_burst(&mut self, _port: PortId, burst: &mut Burst, _turn: Turn) {
        for i in 0..burst.len() {
            let mut frame = burst.frame_mut(i);
            if frame.set_len(FRAME_BYTES) {
                let (to, from) = frame.bytes_mut()[..12].split_at_mut(6);
                to.swap_with_slice(from);
            }
        }
        self.frames += burst.len() as u64;
    }
}

/// ns per frame over one segment.
fn segment(lane: &mut NullLane, trace: TraceSlot) -> Result<f64, Box<dyn Error>> {
    let mut app = Swap::default();
    let began_ns = MonotonicClock.now_ns();
    let stop = Stop::new().with_deadline_ns(began_ns + SEGMENT_NS);
    let control = Control { stop, trace, ..Control::default() };
    run_frames(lane, &mut app, &MonotonicClock, IdlePolicy::Spin, &control)?;
    Ok((MonotonicClock.now_ns() - began_ns) as f64 / app.frames.max(1) as f64)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let cpu: usize = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let pairs = (seconds * 1_000_000_000 / SEGMENT_NS / 2).clamp(1, PAIRS_MAX);
    let folder = env::temp_dir().join(format!("laneway-tracer-cost-{}", std::process::id()));
    let session = Session::create(&folder, SessionOptions::default())?;
    pin_to_cpu(cpu)?;

    // Per event: a call with both edges read, as the loop does where neighbours share none.
    let mut recorder = session.recorder(&ThreadInfo::current("events"))?;
    let mut per_event_ns = f64::MAX;
    for _ in 0..30 {
        let began_ns = MonotonicClock.now_ns();
        for _ in 0..EVENTS {
            let now = recorder.now();
            recorder.instant(points::NAPI_POLL, now, 0);
        }
        let took_ns = (MonotonicClock.now_ns() - began_ns) as f64;
        per_event_ns = per_event_ns.min(took_ns / EVENTS as f64);
        std::thread::sleep(Duration::from_millis(20));
    }
    let lost = recorder.lost();
    drop(recorder);
    println!("event: {per_event_ns:.1} ns (one reading, one record; best of 30, {lost} lost)");

    let (lane, _world) = SimLane::open(&"sim".parse()?, 1)?;
    let mut lane = NullLane(lane);
    let (mut off, mut on, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let thread = ThreadInfo::current(format!("worker-{pair}"));
        let traced = TraceSlot::holding(session.recorder(&thread)?);
        let (off_ns, on_ns) = if pair % 2 == 0 {
            (segment(&mut lane, TraceSlot::empty())?, segment(&mut lane, traced)?)
        } else {
            let on_ns = segment(&mut lane, traced)?;
            (segment(&mut lane, TraceSlot::empty())?, on_ns)
        };
        off.push(off_ns);
        on.push(on_ns);
        ratios.push(on_ns / off_ns);
    }
    let summaries = session.finish()?;
    let (records, lost) = summaries.iter().fold((0, 0), |(r, l), s| (r + s.records, l + s.lost));
    fs::remove_dir_all(&folder)?;
    println!(
        "frame: {:.2} ns off, {:.2} ns on, cost {:+.2} % (median of {pairs} pairs of {} ms, CPU {cpu})",
        median(&mut off),
        median(&mut on),
        (median(&mut ratios) - 1.0) * 100.0,
        SEGMENT_NS / 1_000_000,
    );
    println!("records: {records} written, {lost} lost");
    Ok(())
}
