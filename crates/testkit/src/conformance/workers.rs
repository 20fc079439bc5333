//! Several workers on one interface: the steering of frames to lanes keeps a flow together.

use crate::{UdpFrame, sequence, skip};
use laneway_core::{App, Burst, Counters, FrameApp, FrameLane, LaneError, PortId, Turn};
use laneway_engine::{Ended, MonotonicClock, Stop, Workers, run_frames, usable_cpus};
use laneway_spec::IdlePolicy;
use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Workers that share the interface; as many as the smallest machine has CPUs.
const WORKERS: usize = 2;
/// Flows: so many that each worker has some, but for one chance in 2^62; an odd number, so that
/// frames dealt out in turn would not keep flows together by chance.
const FLOWS: u64 = 63;
const FRAMES_PER_FLOW: u64 = 8;
/// Frames that are on their way at a time.
const STEP: usize = 32;
/// Naps of a millisecond until frames on their way count as lost: a busy machine delivers late.
const NAPS_MAX: usize = 30_000;

/// One interface, and a lane on it for each worker.
pub trait WorkersRig: Sync {
    /// The lane under test.
    type Lane: FrameLane;

    /// Opens the lane of `worker`, which is counted from 0; called on the worker's own thread.
    ///
    /// # Errors
    /// What the lane says.
    fn open(&self, worker: usize) -> Result<Self::Lane, LaneError>;

    /// Sends `frames` from the far end, in order.
    fn inject(&self, frames: &[Vec<u8>]);
}

/// Remembers which flows it saw, and how many frames.
struct Share<'a> {
    counters: Counters,
    flows: BTreeSet<u64>,
    frames: u64,
    seen: &'a AtomicU64,
}

impl App for Share<'_> {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Share<'_> {
    fn on_burst(&mut self, _: PortId, burst: &mut Burst, _: Turn) {
        self.counters.rx_frames += burst.len() as u64;
        for i in 0..burst.len() {
            let Some(sequence) = sequence(burst.frame(i).bytes) else { continue };
            self.flows.insert(sequence % FLOWS);
            self.frames += 1;
            self.seen.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Two workers of the engine: every frame of a flow reaches the same one, each has some flows, their
/// counters add up to what was offered, and a stop ends both.
pub fn flows_stay_with_one_worker<R: WorkersRig>(rig: &R) {
    let cpus = usable_cpus().expect("Linux tells which CPUs a thread may use");
    let Some(cpus) = cpus.first_chunk::<WORKERS>() else {
        return skip(format!("{WORKERS} workers need a CPU each"));
    };
    let (stop, shares) = (Stop::new(), Mutex::new(Vec::new()));
    let (open, seen) = (AtomicUsize::new(0), AtomicU64::new(0));
    let workers = Workers::new(cpus, stop.clone()).unwrap_or_else(|e| panic!("{e}"));
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            offer(rig, &open, &seen);
            stop.request();
        });
        workers.run(&|worker| {
            let mut lane = rig.open(worker.id.0)?;
            worker.all_open()?;
            open.fetch_add(1, Ordering::SeqCst);
            let (counters, flows) = (Counters::default(), BTreeSet::new());
            let mut app = Share { counters, flows, frames: 0, seen: &seen };
            let run = run_frames(
                &mut lane,
                &mut app,
                &MonotonicClock,
                IdlePolicy::Block,
                &worker.control,
            )?;
            let share = (worker.id, app.frames, app.flows);
            shares.lock().expect("no worker panics with it").push(share);
            Ok(run)
        })
    });
    let report = outcome.unwrap_or_else(|failed| panic!("{failed}"));
    let mut shares = shares.into_inner().expect("no worker panics with it");
    shares.sort_by_key(|(worker, ..)| *worker);

    let mut all: BTreeSet<u64> = BTreeSet::new();
    for (worker, frames, flows) in &shares {
        assert!(!flows.is_empty(), "worker {} has no flow", worker.0);
        let whole = flows.len() as u64 * FRAMES_PER_FLOW;
        assert_eq!(*frames, whole, "worker {}: frames of its flows went elsewhere", worker.0);
        all.extend(flows);
    }
    assert_eq!(all.len() as u64, FLOWS, "every flow has a worker");
    assert!(report.runs().all(|run| run.ended == Ended::Stopped), "{report:?}");
    let counters = report.counters();
    assert_eq!(counters.rx_frames, FLOWS * FRAMES_PER_FLOW, "offered and counted: {counters:?}");
    assert_eq!((report.app_counters().rx_frames, counters.lost()), (counters.rx_frames, 0));
    for (run, (_, frames, _)) in report.runs().zip(&shares) {
        assert_eq!(run.counters().rx_frames, *frames, "a worker's own counters");
    }
}

/// Sends all frames of all flows, no more at a time than queues hold, once every worker is open.
fn offer<R: WorkersRig>(rig: &R, open: &AtomicUsize, seen: &AtomicU64) {
    let nap_until = |done: &dyn Fn() -> bool| {
        (0..NAPS_MAX).any(|_| {
            thread::sleep(Duration::from_millis(1));
            done()
        })
    };
    if !nap_until(&|| open.load(Ordering::SeqCst) == WORKERS) {
        return; // a worker failed, which is the better message
    }
    let frames: Vec<_> = (0..FLOWS * FRAMES_PER_FLOW)
        .map(|sequence| {
            let source_port = 1024 + 17 * (sequence % FLOWS) as u16;
            UdpFrame { sequence, source_port, ..UdpFrame::default() }.build()
        })
        .collect();
    let mut offered = 0;
    for step in frames.chunks(STEP) {
        rig.inject(step);
        offered += step.len() as u64;
        if !nap_until(&|| seen.load(Ordering::SeqCst) >= offered) {
            return; // lost: the caller compares
        }
    }
}
