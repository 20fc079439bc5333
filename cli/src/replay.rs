//! Captures as traffic: a frame app that fills the bursts a lane lends it, on schedule.
//!
//! ```text
//!   Source ─▶ addresses (--unique-ip) ─▶ Schedule ─▶ fill ─▶ lane
//!   captures, pass after pass             when due     └────▶ record, a capture file
//! ```
//!
//! What must always hold: frames are given to the lane in the captures' order, none before it is due
//! and none left out because it is late; every record is given to the lane, or left out and counted.
//!
//! A frame is late by the time between when it was due and when its burst was asked for; what lane
//! and wire add is not seen here. It knows no lane, reads no clock and prints nothing.

mod record;
mod schedule;
mod source;

pub(crate) use record::Recording;
pub(crate) use schedule::Pacing;

use laneway_core::{App, Burst, Counters, DropReason, Fill, FrameApp, PortId, Turn, Verdict};
use laneway_stats::{Latency, LatencySummary};
use laneway_wire::ShiftedAddresses;
use schedule::Schedule;
use source::Source;
use std::path::PathBuf;

/// How long the app stays after its last frame: a lane that sends asynchronously is still at it, and
/// learns at its next turns what became of it.
const LINGER_NS: u64 = 20_000_000;

/// Frames that one call leaves out at most, so that a capture full of them cannot keep the worker.
const LEFT_OUT_MAX: usize = 4_096;

/// What is asked of a replay.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Captures; `-` is standard input.
    pub(crate) captures: Vec<PathBuf>,
    /// Passes over all of them; `None` never ends.
    pub(crate) passes: Option<u64>,
    /// When frames are due.
    pub(crate) pacing: Pacing,
    /// Take everything into memory first.
    pub(crate) preload: bool,
    /// Shift IP addresses in every further pass.
    pub(crate) unique_ip: bool,
    /// Frames at most.
    pub(crate) count: Option<u64>,
}

/// The replay. See the module.
pub(crate) struct Replay {
    source: Source,
    schedule: Schedule,
    unique_ip: bool,
    count: Option<u64>,
    /// When the frame that the source stands at is due, from the first one on.
    due_ns: Option<u64>,
    /// The pass that is being read, and how many frames were given before it.
    pass: (u64, u64),
    started_ns: Option<u64>,
    sent: Sent,
    late: Option<Latency>,
    done_at_ns: Option<u64>,
    wants_stop: bool,
    failure: Option<String>,
    counters: Counters,
}

/// What was given to the lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// When the first and the last frame were, in the lane's clock domain.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// When the last one was due, from the first one on.
    pub(crate) due_ns: u64,
}

impl Replay {
    /// Looks at the captures; no frame is read before one is asked for.
    ///
    /// # Errors
    /// A sentence that names the capture that is none.
    pub(crate) fn new(plan: &Plan) -> Result<Replay, String> {
        let late = (plan.pacing != Pacing::Topspeed).then(Latency::new);
        Ok(Replay {
            source: Source::open(&plan.captures, plan.passes, plan.preload)?,
            schedule: Schedule::new(plan.pacing),
            unique_ip: plan.unique_ip,
            count: plan.count,
            due_ns: None,
            pass: (0, 0),
            started_ns: None,
            sent: Sent::default(),
            late,
            done_at_ns: None,
            wants_stop: false,
            failure: None,
            counters: Counters::default(),
        })
    }

    /// When the first frame was given to the lane, and the last.
    pub(crate) fn sent(&self) -> Sent {
        self.sent
    }

    /// How late frames were; `None` where none was ever due.
    pub(crate) fn late(&self) -> Option<LatencySummary> {
        self.late.as_ref().map(Latency::summary)
    }

    /// Frames of which the capture has only the beginning.
    pub(crate) fn cut(&self) -> u64 {
        self.source.current().cut
    }

    /// Passes begun.
    pub(crate) fn passes(&self) -> u64 {
        self.source.pass() + 1
    }

    /// True when every frame that was asked for was given to the lane, or to a capture.
    pub(crate) fn is_done(&self) -> bool {
        self.done_at_ns.is_some()
    }

    /// What ended the replay before its end, if anything did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// When the next frame is due, from the first one on; `None` when there is none.
    fn next_due_ns(&mut self) -> Option<u64> {
        if self.due_ns.is_some() {
            return self.due_ns;
        }
        if self.failure.is_some() || self.count.is_some_and(|n| self.counters.tx_frames >= n) {
            return None;
        }
        match self.source.advance() {
            Ok(true) => (),
            Ok(false) => return None,
            Err(why) => {
                self.failure = Some(why);
                return None;
            }
        }
        let pass = self.source.pass();
        if pass > self.pass.0 {
            if self.pass.1 == self.counters.tx_frames {
                let why = "no frame of the captures fits into the lane's frames: another pass would \
                           be no better; use a lane with longer ones, or a capture with shorter ones";
                self.failure = Some(why.to_owned());
                return None;
            }
            self.pass = (pass, self.counters.tx_frames);
        }
        if self.unique_ip {
            shift_addresses(self.source.bytes_mut(), pass);
        }
        let begins = self.source.begins();
        let frame = self.source.current();
        self.due_ns = Some(self.schedule.next_ns(frame.ts_ns, frame.bytes.len(), begins));
        self.due_ns
    }

    /// The next frame was given to the lane at `now_ns`.
    fn gave(&mut self, due_ns: u64, now_ns: u64) {
        if self.counters.tx_frames == 0 {
            self.sent.first_ns = now_ns;
        }
        (self.sent.last_ns, self.sent.due_ns) = (now_ns, due_ns);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += self.source.current().bytes.len() as u64;
        self.due_ns = None;
    }

    /// The next frame cannot be given to the lane.
    fn left_out(&mut self, reason: DropReason) {
        self.counters.drop_one(reason);
        self.due_ns = None;
    }

    /// Writes down what the source left out; cheap enough for every burst.
    fn count_left_out(&mut self) {
        for (reason, n) in self.source.current().left_out() {
            self.counters.set_drops(reason, n);
        }
    }
}

impl App for Replay {
    fn wants_stop(&self) -> bool {
        self.wants_stop
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Replay {
    fn on_burst(&mut self, _port: PortId, burst: &mut Burst, _turn: Turn) {
        // What the far end says is for the kernel's stack, where a lane can leave it there.
        (0..burst.len()).for_each(|i| burst.set_verdict(i, Verdict::Pass));
    }

    fn fill(&mut self, _port: PortId, burst: &mut Burst, turn: Turn) -> Fill {
        let started_ns = *self.started_ns.get_or_insert(turn.now_ns);
        let (mut i, mut left_out) = (0, 0);
        let wish = loop {
            if i == burst.len() || left_out == LEFT_OUT_MAX {
                break Fill::Again;
            }
            let Some(due_ns) = self.next_due_ns() else {
                if i > 0 {
                    // The lane lends again when it keeps none of these for a full queue.
                    break Fill::Again;
                }
                self.done_at_ns = Some(turn.now_ns);
                break Fill::Done;
            };
            let at_ns = started_ns.saturating_add(due_ns);
            if at_ns > turn.now_ns {
                break Fill::At(at_ns);
            }
            let bytes = &self.source.current().bytes;
            let mut frame = burst.frame_mut(i);
            if !frame.set_len(bytes.len()) {
                self.left_out(DropReason::TxTooLong);
                left_out += 1;
                continue;
            }
            frame.bytes_mut().copy_from_slice(bytes);
            frame.set_verdict(Verdict::Tx);
            i += 1;
            if let Some(late) = &mut self.late {
                late.record(turn.now_ns - at_ns);
            }
            self.gave(due_ns, turn.now_ns);
        };
        self.count_left_out();
        wish
    }

    fn on_tick(&mut self, turn: Turn) {
        let over = |at_ns: u64| turn.now_ns.saturating_sub(at_ns) >= LINGER_NS;
        self.wants_stop = self.done_at_ns.is_some_and(over);
    }
}

/// Shifts the addresses of a frame in a pass behind the first; a frame without IP stays as it is.
fn shift_addresses(frame: &mut [u8], pass: u64) {
    if let Some(addresses) = ShiftedAddresses::find(frame) {
        addresses.shift(frame, pass).expect("they were found in this frame");
    }
}

#[cfg(test)]
mod tests;
