//! Disturbances: the interface goes away or down, its MTU changes, another thread asks for a stop, the
//! privilege is missing. What these must do to a *worker* counts, so the engine runs the lane.

use super::{
    Disturbance, Rig,
    bench::{Bench, COLLECTS_MAX, WAITS_MAX, ok, spec},
};
use crate::{patience::Patience, skip, udp_frames};
use laneway_core::{
    App, Burst, Clock, ClockDomain, Counters, DropReason, FrameApp, FrameLane, Lane, LaneError,
    PortId, Turn, Verdict,
};
use laneway_engine::{Control, Ended, RunFailed, RunReport, run_frames};
use laneway_spec::IdlePolicy;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

const PORT: PortId = PortId(0);
/// Ticks (10 ms each) within which a worker has to notice that its interface is gone.
const NOTICE_TICKS_MAX: u64 = 300;
/// Ticks that a worker is given on an interface that is down.
const DOWN_TICKS: u64 = 30;
/// Ticks within which a request to stop ends a blocked worker: 100 ms.
const STOP_TICKS_MAX: u64 = 10;
/// Turns per tick of a worker that blocks and finds nothing, generously: more is spinning.
const IDLE_TURNS_PER_TICK_MAX: u64 = 100;

/// Bounces every frame, and counts its ticks and the frames that it set to `Tx`.
struct Witness<'a> {
    counters: Counters,
    ticks: &'a AtomicU64,
    ticks_max: u64,
    stops: usize,
}

impl<'a> Witness<'a> {
    fn new(ticks: &'a AtomicU64, ticks_max: u64) -> Witness<'a> {
        Witness { counters: Counters::default(), ticks, ticks_max, stops: 0 }
    }
}

impl App for Witness<'_> {
    fn on_stop(&mut self, _: Turn) {
        self.stops += 1;
    }

    fn wants_stop(&self) -> bool {
        self.ticks.load(Ordering::SeqCst) >= self.ticks_max
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Witness<'_> {
    fn on_burst(&mut self, _: PortId, burst: &mut Burst, _: Turn) {
        self.counters.rx_frames += burst.len() as u64;
        (0..burst.len()).for_each(|i| burst.set_verdict(i, Verdict::Tx));
    }

    fn on_tick(&mut self, _: Turn) {
        self.ticks.fetch_add(1, Ordering::SeqCst);
    }
}

/// The rig's clock, for a loop that is compiled for one type.
struct RigClock(Box<dyn Clock>);

impl Clock for RigClock {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn domain(&self) -> ClockDomain {
        self.0.domain()
    }
}

/// Runs a worker on the lane until it ends or has ticked `ticks_max` times; fails if it spun.
/// Returns the outcome and how many frames the app saw.
fn work<R: Rig>(
    bench: &mut Bench<'_, R>,
    idle: IdlePolicy,
    ticks_max: u64,
) -> (Result<RunReport, RunFailed>, u64) {
    let ticks = AtomicU64::new(0);
    let mut app = Witness::new(&ticks, ticks_max);
    let clock = RigClock(bench.rig.clock());
    let outcome = run_frames(&mut bench.lane, &mut app, &clock, idle, &Control::default());
    assert_eq!(app.stops, 1, "the app's `on_stop` is called once");
    let frames = app.counters.rx_frames;
    let turns = outcome.as_ref().map_or_else(|failed| failed.report.turns, |run| run.turns);
    let turns_max = (1 + ticks.into_inner()) * IDLE_TURNS_PER_TICK_MAX + frames;
    let blocks = idle == IdlePolicy::Block;
    assert!(!blocks || turns <= turns_max, "{turns} turns for {frames} frames: the worker spun");
    (outcome, frames)
}

/// An interface that is removed ends the lane, under every idle policy, with an error that names it;
/// the worker returns what was counted, and the lane still answers without blocking.
pub fn a_removed_interface_ends_the_lane<R: Rig>(rig: &mut R) {
    for idle in [IdlePolicy::Block, IdlePolicy::Spin] {
        let sent = udp_frames(0, 20, 64);
        let live = rig.properties().live;
        let mut bench = Bench::open(rig, "", 1, &sent);
        if live {
            assert_eq!(bench.pump(PORT, &sent, |_, _, _| ()), sent.len());
        }
        let name = match bench.rig.disturb(PORT, Disturbance::Remove) {
            Ok(name) => name,
            Err(reason) => return skip(reason),
        };
        let (outcome, frames) = work(&mut bench, idle, NOTICE_TICKS_MAX);
        let Err(RunFailed { error, report }) = outcome else {
            panic!("{idle}: not noticed within {NOTICE_TICKS_MAX} ticks");
        };
        match error {
            LaneError::Gone { name: gone, .. } => assert_eq!(gone, name, "{idle}"),
            e => panic!("{idle}: a removed interface is gone, not: {e}"),
        }
        assert_eq!(report.ended, Ended::Failed);
        assert_eq!(report.counters().rx_frames, bench.handed_frames + frames, "{idle}: rx_frames");
        for _ in 0..3 {
            // Whether they fail is the lane's affair; that they return is not.
            let _ = bench.lane.wait(Duration::from_secs(3600));
            let _ = bench.lane.receive(PORT).map(|burst| assert!(burst.is_empty()));
            let _ = bench.lane.settle(PORT);
        }
        assert_eq!(bench.lane.counters(PORT).rx_frames, report.counters().rx_frames);
    }
}

/// An interface that goes down ends the lane or only silences it; either way nothing hangs or
/// spins, and each frame that was set to `Tx` has left or is counted as lost. Up again, traffic flows:
/// on the same lane if it goes on, on a new one otherwise.
pub fn an_interface_that_goes_down_and_up_loses_no_account<R: Rig>(rig: &mut R) {
    let is = rig.properties();
    if !is.live || !is.transmits {
        return skip("the lane has no link that could go down");
    }
    let mut bench = Bench::open(rig, "", 1, &[]);
    let before = udp_frames(0, 8, 64);
    bench.pump(PORT, &before, |burst, i, _| burst.set_verdict(i, Verdict::Tx));
    let mut left = bench.collect(PORT, before.len()).len() as u64;
    // A burst in hand while the interface goes down.
    bench.rig.inject(PORT, &udp_frames(8, 8, 64));
    let mut asked = before.len() as u64 + take_all_for_sending(&mut bench);
    let name = match bench.rig.disturb(PORT, Disturbance::Down) {
        Ok(name) => name,
        Err(reason) => return skip(reason),
    };
    let settled = bench.lane.settle(PORT);
    let (outcome, frames) = work(&mut bench, IdlePolicy::Block, DOWN_TICKS);
    asked += frames;
    let ends = settled.err().or_else(|| outcome.err().map(|failed| failed.error));
    match &ends {
        Some(LaneError::Gone { name: gone, .. }) => assert_eq!(*gone, name),
        Some(e) => panic!("an interface that is down is gone, not: {e}"),
        None => (),
    }
    let counters = bench.lane.counters(PORT);
    // The lane may be gone, so the loop does not push it. It collects once more, for frames that should not
    // be there.
    for collect in 0..COLLECTS_MAX {
        let missing = counters.tx_frames.saturating_sub(left) as usize;
        let frames = bench.rig.collect(PORT, missing);
        left += frames.iter().filter(|frame| crate::is_ours(frame)).count() as u64;
        if missing == 0 && collect > 0 {
            break;
        }
    }
    assert_eq!(left, counters.tx_frames, "frames left and frames counted: {counters:?}");
    assert_eq!(asked, counters.tx_frames + counters.lost(), "frames asked to leave: {counters:?}");
    let goes_on = ends.is_none().then_some(bench.lane);
    let rig = bench.rig;
    rig.disturb(PORT, Disturbance::Up).expect("what went down comes up");
    bench = match goes_on {
        Some(lane) => Bench { rig, lane, is, handed_frames: 0, handed_bytes: 0 },
        None => Bench::open(rig, "", 1, &[]),
    };
    let after = udp_frames(100, 8, 64);
    let arrived = bench.pump(PORT, &after, |burst, i, _| burst.set_verdict(i, Verdict::Tx));
    assert_eq!(arrived, after.len(), "frames arrive when it is up again");
    assert_eq!(bench.collect(PORT, after.len()).len(), after.len(), "and leave");
}

/// Receives one burst, tells all of it to leave, and does not settle it. Returns how many.
fn take_all_for_sending<R: Rig>(bench: &mut Bench<'_, R>) -> u64 {
    let mut patience = Patience::new(WAITS_MAX);
    while !patience.is_over() {
        let burst = ok(bench.lane.receive(PORT));
        if !burst.is_empty() {
            (0..burst.len()).for_each(|i| burst.set_verdict(i, Verdict::Tx));
            return burst.len() as u64;
        }
        patience.wait(|| ok(bench.lane.wait(Duration::from_millis(10))));
    }
    panic!("no frame arrived");
}

/// When the MTU shrinks and grows again under the lane, a frame that is now too long leaves or is
/// counted, and frames within it come and go.
pub fn a_changed_mtu_loses_no_frame_silently<R: Rig>(rig: &mut R) {
    /// Longer than the headers, shorter than the longest frames.
    const SMALL_MTU_BYTES: usize = 600;
    const ETHERNET_BYTES: usize = 14;
    const LONG_FRAMES: usize = 2;
    let is = rig.properties();
    if !is.live || !is.transmits {
        return skip("the lane sends over no link that has an MTU");
    }
    let mut bench = Bench::open(rig, "", 1, &[]);
    let (mut asked, mut left) = (0, 0);
    let longest = bench.is.frame_bytes_max;
    for (round, mtu) in [SMALL_MTU_BYTES, longest - ETHERNET_BYTES].into_iter().enumerate() {
        if let Err(reason) = bench.rig.disturb(PORT, Disturbance::Mtu(mtu)) {
            return skip(reason);
        }
        // Borrowed frames, because a received frame may have no room to grow.
        for bytes in udp_frames(1000 + round as u64, LONG_FRAMES, longest) {
            let burst = ok(bench.lane.lend(PORT, 1));
            assert_eq!(burst.len(), 1, "no buffer is in use");
            let mut frame = burst.frame_mut(0);
            assert!(frame.set_len(longest), "a borrowed frame has room for the longest");
            frame.bytes_mut().copy_from_slice(&bytes);
            frame.set_verdict(Verdict::Tx);
            ok(bench.lane.settle(PORT));
            asked += 1;
        }
        let sent = udp_frames(10 * round as u64, 4, 64);
        let arrived = bench.pump(PORT, &sent, |burst, i, _| {
            burst.set_verdict(i, Verdict::Tx);
            asked += 1;
        });
        assert_eq!(arrived, sent.len(), "short frames still arrive");
        let counted = bench.lane.counters(PORT).drops(DropReason::TxTooLong);
        let frames = bench.collect(PORT, (asked - left - counted) as usize);
        left += frames.len() as u64;
        let counters = bench.lane.counters(PORT);
        assert_eq!(left + counters.lost(), asked, "MTU {mtu}: {counters:?}");
        assert_eq!(counters.lost(), counters.drops(DropReason::TxTooLong), "{counters:?}");
        assert_eq!(left, counters.tx_frames, "MTU {mtu}: {counters:?}");
        let short: Vec<_> = frames.into_iter().filter(|frame| frame.len() == 64).collect();
        assert_eq!(short, sent, "short frames still leave");
    }
}

/// Another thread's request ends a worker that blocks, within 100 ms: ten ticks of the engine. The
/// engine's part of that is to block briefly, the lane's to keep to the time it was given.
pub fn a_request_to_stop_ends_a_blocked_worker<R: Rig>(rig: &mut R) {
    /// Ticks without traffic before the request.
    const TICKS_BEFORE: u64 = 3;
    /// A tick takes no longer than so many naps of 10 ms, the longest block, on another thread of
    /// the same busy machine.
    const NAPS_PER_TICK_MAX: u64 = 100;
    const NAP: Duration = Duration::from_millis(10);
    /// The mean of blocks of 10 ms each, with all the time in the world for a busy machine; where time is
    /// virtual naps tell nothing of it.
    const BLOCK_NS_MEAN_MAX: u64 = 1_000_000_000;
    if !rig.properties().live {
        return skip("the lane reads a file: its worker never blocks");
    }
    let mut bench = Bench::open(rig, "idle=block", 1, &[]);
    let (ticks, control) = (AtomicU64::new(0), Control::default());
    let mut app = Witness::new(&ticks, u64::MAX);
    let clock = RigClock(bench.rig.clock());
    std::thread::scope(|scope| {
        let stopper = scope.spawn(|| {
            let mut naps = 0;
            // A worker that never ticks is stopped as well: what it reports tells.
            while ticks.load(Ordering::SeqCst) < TICKS_BEFORE && naps < WAITS_MAX as u64 {
                std::thread::sleep(NAP);
                naps += 1;
            }
            control.stop.request();
            // Read afterwards: ticks between the two belong to the time before.
            (ticks.load(Ordering::SeqCst), naps)
        });
        let lane = &mut bench.lane;
        let outcome = run_frames(lane, &mut app, &clock, IdlePolicy::Block, &control);
        let report = outcome.unwrap_or_else(|failed| panic!("the lane failed: {failed}"));
        let (ticks_at_stop, naps) = stopper.join().expect("setting a flag does not panic");
        assert!(
            naps <= TICKS_BEFORE * NAPS_PER_TICK_MAX,
            "{naps} naps of {NAP:?} for {ticks_at_stop} ticks: a wait takes longer than its time"
        );
        let later = ticks.load(Ordering::SeqCst) - ticks_at_stop;
        assert!(later <= STOP_TICKS_MAX, "the worker went on for {later} ticks of 10 ms");
        assert_eq!(report.ended, Ended::Stopped);
        assert!(report.waits > 0, "an idle worker that may block does: {report:?}");
        let mean_ns = report.blocked_ns / report.waits;
        assert!(mean_ns <= BLOCK_NS_MEAN_MAX, "a wait takes {mean_ns} ns instead of 10 ms or less");
    });
}

/// Without privilege the refusal says what is missing, and it leaves nothing that is in the way of
/// the process that has it.
pub fn a_missing_privilege_is_named<R: Rig>(rig: &mut R) {
    let asking = spec(rig.properties().spec, "");
    match rig.open_unprivileged(&asking) {
        Err(reason) => return skip(reason),
        Ok(None) => panic!("`{asking}` opened without any capability"),
        Ok(Some(error @ LaneError::NotPermitted { .. })) => {
            let sentence = error.to_string();
            assert!(sentence.contains("CAP_NET_RAW"), "{sentence}");
        }
        Ok(Some(e)) => panic!("`{asking}` is not permitted, not: {e}"),
    }
    let sent = udp_frames(0, 4, 64);
    let mut bench = Bench::open(rig, "", 1, &sent);
    assert_eq!(bench.pump(PORT, &sent, |_, _, _| ()), sent.len());
}
