//! A lane on the bench: opened with knobs, fed in chunks that it can take, and collected from.
//!
//! One place for the waiting, so that each behaviour reads as what it claims.

use super::{Properties, Rig};
use crate::{is_ours, patience::Patience, sequence};
use laneway_core::{Burst, FrameLane, Lane, LaneError, PortId, Verdict};
use laneway_spec::LaneSpec;
use std::time::Duration;

/// One wait for traffic that is on its way.
const WAIT: Duration = Duration::from_millis(10);
/// Waits in vain before frames count as not coming: 30 s on a real clock, because a busy machine
/// delivers late.
pub(super) const WAITS_MAX: usize = 3000;
/// Attempts to collect what the far end should have: 30 s where a rig waits some tens of milliseconds.
pub(super) const COLLECTS_MAX: usize = 600;
/// Attempts to collect what the far end should not have.
const SILENT_COLLECTS: usize = 3;

pub(super) struct Bench<'r, R: Rig> {
    pub(super) rig: &'r mut R,
    pub(super) lane: R::Lane,
    pub(super) is: Properties,
    /// Frames that receive handed over, foreign ones included.
    pub(super) handed_frames: u64,
    /// Their bytes.
    pub(super) handed_bytes: u64,
}

/// The rig's spec with `knobs` appended.
pub(super) fn spec(base: &str, knobs: &str) -> LaneSpec {
    let joint = match (knobs.is_empty(), base.contains(':')) {
        (true, _) => "",
        (false, true) => ",",
        (false, false) => ":",
    };
    format!("{base}{joint}{knobs}").parse().expect("a rig gives well-formed specs")
}

/// Two lists of knobs as one.
pub(super) fn knobs(some: &str, more: &str) -> String {
    match (some.is_empty(), more.is_empty()) {
        (true, _) => more.to_owned(),
        (_, true) => some.to_owned(),
        _ => format!("{some},{more}"),
    }
}

impl<'r, R: Rig> Bench<'r, R> {
    /// Opens the lane; `frames` are what port 0 is going to be fed, in this order.
    pub(super) fn open(rig: &'r mut R, knobs: &str, ports: usize, frames: &[Vec<u8>]) -> Self {
        let is = rig.properties();
        let spec = spec(is.spec, knobs);
        let opened =
            if is.live { rig.open(&spec, ports) } else { rig.open_with(&spec, ports, frames) };
        let lane = opened.unwrap_or_else(|e| panic!("`{spec}` with {ports} ports: {e}"));
        assert_eq!(lane.ports(), ports, "ports of `{spec}`");
        Bench { rig, lane, is, handed_frames: 0, handed_bytes: 0 }
    }

    /// Frames to feed at a time.
    pub(super) fn step(&self) -> usize {
        if self.is.live { self.is.inject_frames_max } else { usize::MAX }
    }

    /// Feeds `frames` into `port` and works the lane until all arrived or patience ends; `each`
    /// sees our own frames and their counters. Returns how many of ours arrived.
    pub(super) fn pump(
        &mut self,
        port: PortId,
        frames: &[Vec<u8>],
        mut each: impl FnMut(&mut Burst, usize, u64),
    ) -> usize {
        let mut arrived = 0;
        let mut wanted = 0;
        for chunk in frames.chunks(self.step()) {
            if self.is.live {
                self.rig.inject(port, chunk);
            }
            wanted += chunk.len();
            arrived += self.receive_some(port, wanted.saturating_sub(arrived), &mut each);
        }
        arrived
    }

    /// Works the lane until `wanted` of our frames arrived or patience ends.
    pub(super) fn receive_some(
        &mut self,
        port: PortId,
        wanted: usize,
        each: &mut impl FnMut(&mut Burst, usize, u64),
    ) -> usize {
        self.receive_until(port, each, |_, arrived| arrived >= wanted)
    }

    /// Works the lane until it and the number of our frames that arrived are as they should be, or
    /// patience ends. Returns that number.
    pub(super) fn receive_until(
        &mut self,
        port: PortId,
        each: &mut impl FnMut(&mut Burst, usize, u64),
        mut is_done: impl FnMut(&mut R::Lane, usize) -> bool,
    ) -> usize {
        let mut arrived = 0;
        let mut patience = Patience::new(WAITS_MAX).on(self.lane.clock_domain());
        while !patience.is_over() && !is_done(&mut self.lane, arrived) {
            let burst = ok(self.lane.receive(port));
            let empty = burst.is_empty();
            for i in 0..burst.len() {
                let bytes = burst.frame(i).bytes;
                self.handed_frames += 1;
                self.handed_bytes += bytes.len() as u64;
                assert_eq!(burst.verdict(i), Verdict::Drop, "a received frame starts at Drop");
                if let Some(sequence) = sequence(bytes) {
                    arrived += 1;
                    each(burst, i, sequence);
                }
            }
            ok(self.lane.settle(port));
            if !empty {
                patience.note_arrival();
                continue;
            }
            if self.lane.exhausted() {
                break;
            }
            patience.wait(|| ok(self.lane.wait(WAIT)));
        }
        arrived
    }

    /// Our frames that reached the far end of `port`: `expected` of them, or as many as patience
    /// brings.
    pub(super) fn collect(&mut self, port: PortId, expected: usize) -> Vec<Vec<u8>> {
        let mut collected = Vec::new();
        for _ in 0..COLLECTS_MAX {
            let missing = expected.saturating_sub(collected.len());
            collected.extend(self.rig.collect(port, missing).into_iter().filter(|f| is_ours(f)));
            if collected.len() >= expected {
                break;
            }
            self.nudge();
        }
        collected
    }

    /// Fails if any of our frames reaches the far end of `port` now.
    pub(super) fn assert_silent(&mut self, port: PortId) {
        for _ in 0..SILENT_COLLECTS {
            let mut stray = self.rig.collect(port, 1);
            stray.retain(|f| is_ours(f));
            assert!(stray.is_empty(), "{} frames left port {} unasked", stray.len(), port.0);
            self.nudge();
        }
    }

    /// Lets transmissions go on: some lanes need a push, a simulated one needs time.
    fn nudge(&mut self) {
        for port in 0..self.lane.ports() {
            ok(self.lane.settle(PortId(port as u32)));
        }
        ok(self.lane.wait(Duration::from_millis(1)));
    }
}

/// The value, or a failed test with the lane's own sentence.
pub(super) fn ok<T>(result: Result<T, LaneError>) -> T {
    result.unwrap_or_else(|e| panic!("the lane failed: {e}"))
}

/// Compares frames one by one, so that a failure names the first that differs.
pub(super) fn assert_same_frames(got: &[Vec<u8>], want: &[Vec<u8>]) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got, want, "frame {i}");
    }
    assert_eq!(got.len(), want.len(), "number of frames");
}
