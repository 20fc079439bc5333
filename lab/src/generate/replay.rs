//! A capture as an app: it fills the bursts that a lane lends it, on schedule.

use crate::late::Late;
use crate::{result::GeneratorReport, segment::SegmentPlan, traffic::Replayable};
use laneway_core::{App, Burst, Counters, Fill, FrameApp, FrameMut, PortId, Turn, Verdict};

/// Sends one segment and wants to stop.
pub(crate) struct Replay<'a> {
    traffic: &'a Replayable,
    destination: [u8; 6],
    plan: SegmentPlan,
    next: u32,
    first_ns: u64,
    last_ns: u64,
    late: Late,
    counters: Counters,
}

impl<'a> Replay<'a> {
    /// For one segment of `traffic`, to `destination`.
    pub(crate) fn new(
        traffic: &'a Replayable,
        destination: [u8; 6],
        plan: SegmentPlan,
    ) -> Replay<'a> {
        Replay {
            traffic,
            destination,
            plan,
            next: 0,
            first_ns: 0,
            last_ns: 0,
            late: Late::default(),
            counters: Counters::default(),
        }
    }

    /// How it went; of what `lane` counted, what it received or lost on receive says nothing of a send.
    pub(crate) fn report(&self, lane: &Counters) -> GeneratorReport {
        let refused = lane.refused();
        let sent = u64::from(self.next) - refused.min(u64::from(self.next));
        let seconds = (self.last_ns - self.first_ns + self.plan.interval_ns) as f64 / 1e9;
        GeneratorReport {
            asked_pps: self.traffic.times.rate_pps(&self.plan),
            achieved_pps: sent as f64 / seconds,
            sent,
            refused,
            late_p50_ns: self.late.quantile_ns(0.5),
            late_p99_ns: self.late.quantile_ns(0.99),
            late_max_ns: self.late.max_ns(),
            early: 0,
            cpu_ns: 0,
        }
    }
}

/// Makes a borrowed frame number `number` of `segment`, to be sent.
///
/// A lane whose buffers are shorter than the wire's frames cannot carry this traffic: the frame stays
/// unsent and the number is missing, which the ledger shows.
pub(super) fn fill_frame(
    traffic: &Replayable,
    frame: &mut FrameMut<'_>,
    destination: [u8; 6],
    segment: u8,
    number: u32,
) {
    let (template, pass) = (traffic.template(number), traffic.pass(number));
    if frame.set_len(template.frame.len()) {
        template.write(frame.bytes_mut(), destination, segment, number, pass);
        frame.set_verdict(Verdict::Tx);
    }
}

impl App for Replay<'_> {
    fn wants_stop(&self) -> bool {
        self.next >= self.plan.frames
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Replay<'_> {
    fn on_burst(&mut self, _port: PortId, _burst: &mut Burst, _turn: Turn) {
        // What the far end sends back is of no interest; every verdict stays at drop.
    }

    fn fill(&mut self, _port: PortId, burst: &mut Burst, turn: Turn) -> Fill {
        if self.next >= self.plan.frames {
            return Fill::Done;
        }
        let due_ns = self.traffic.times.due_ns(&self.plan, self.next);
        if turn.now_ns < due_ns {
            return Fill::At(due_ns);
        }
        let of_burst = self.plan.burst - self.next % self.plan.burst.max(1);
        let n = (of_burst as usize).min(burst.len()).min((self.plan.frames - self.next) as usize);
        for i in 0..n {
            let (segment, number) = (self.plan.segment, self.next);
            fill_frame(self.traffic, &mut burst.frame_mut(i), self.destination, segment, number);
            self.next += 1;
        }
        self.late.record(turn.now_ns - due_ns, n as u64);
        if self.first_ns == 0 {
            self.first_ns = turn.now_ns;
        }
        self.last_ns = turn.now_ns;
        Fill::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Template;
    use laneway_core::{DropReason, Region};

    #[test]
    fn an_empty_loan_sends_nothing_and_skips_nothing() {
        let traffic = Replayable::of(vec![Template::new(&[0; 60])]);
        let plan =
            SegmentPlan { segment: 1, t0_ns: 100, frames: 2, interval_ns: 10, burst: 1, entry: 0 };
        let mut replay = Replay::new(&traffic, [2, 0, 0, 0, 0, 1], plan);
        let mut burst = Burst::new(Region::heap(64), 1);
        assert_eq!(replay.fill(PortId(0), &mut burst, Turn { now_ns: 99 }), Fill::At(100));
        assert_eq!(replay.fill(PortId(0), &mut burst, Turn { now_ns: 100 }), Fill::Again);
        assert_eq!(replay.next, 0);
    }

    #[test]
    fn what_the_lane_could_not_receive_was_not_refused() {
        let traffic = Replayable::of(vec![Template::new(&[0; 60])]);
        let plan =
            SegmentPlan { segment: 1, t0_ns: 100, frames: 9, interval_ns: 10, burst: 9, entry: 0 };
        let replay = Replay { next: 9, ..Replay::new(&traffic, [2, 0, 0, 0, 0, 1], plan) };
        let mut lane = Counters::default();
        lane.drop_many(DropReason::RxQueueFull, 7);
        let report = replay.report(&lane);
        assert_eq!((report.sent, report.refused), (9, 0));
        lane.drop_many(DropReason::TxTooLong, 2);
        let report = replay.report(&lane);
        assert_eq!((report.sent, report.refused), (7, 2));
    }
}
