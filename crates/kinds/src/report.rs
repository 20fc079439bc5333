//! What a run leaves behind at every end.

use laneway_core::{CapsReport, ClockDomain, Counters, LaneError, PortId};
use serde::Serialize;

/// Why a run ended; a later one is the more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Not yet: this is a look at a running worker.
    Running,
    /// The stop flag was set or the deadline was reached.
    Stopped,
    /// The app wanted to.
    App,
    /// Nothing would ever arrive again.
    Exhausted,
    /// The lane failed; see [`RunFailed`].
    Failed,
}

/// What one port obtained and counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortReport {
    /// Which port of its worker's lane it is: by it two looks at one worker tell its ports apart.
    #[serde(skip)]
    pub id: PortId,
    /// Requested and obtained.
    pub caps: CapsReport,
    /// Frames, bytes and drops at the end of the run.
    pub counters: Counters,
}

/// The outcome of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// The lane's name.
    pub lane: String,
    /// Why the run ended.
    pub ended: Ended,
    /// By port. A kernel lane reports the sum over its ports as the first and only one.
    pub ports: Vec<PortReport>,
    /// What ports counted that were closed before the end.
    #[serde(skip_serializing_if = "is_nothing")]
    pub past: Counters,
    /// What the app counted.
    pub app: Counters,
    /// What the times below count from.
    pub clock: ClockDomain,
    /// When the run began.
    pub started_ns: u64,
    /// When it ended, after the app's `on_stop`; of a running worker, now.
    pub ended_ns: u64,
    /// Rounds over all ports.
    pub turns: u64,
    /// Times the worker blocked.
    pub waits: u64,
    /// Time in turns that found nothing to do, without the blocking.
    pub spun_ns: u64,
    /// Time blocked.
    pub blocked_ns: u64,
}

impl RunReport {
    /// What a run on lane `lane` reports before its first turn: no port, and nothing counted.
    pub fn begun(lane: &str, clock: ClockDomain) -> RunReport {
        RunReport {
            lane: lane.to_owned(),
            ended: Ended::Running,
            ports: Vec::new(),
            past: Counters::default(),
            app: Counters::default(),
            clock,
            started_ns: 0,
            ended_ns: 0,
            turns: 0,
            waits: 0,
            spun_ns: 0,
            blocked_ns: 0,
        }
    }

    /// The sum over the ports.
    pub fn counters(&self) -> Counters {
        let mut sum = self.past.clone();
        self.ports.iter().for_each(|port| sum.merge(&port.counters));
        sum
    }

    /// Adds the run of another worker: what its app counted, its turns and its time; the span is that of both,
    /// and of two ends the one stays that tells more. Ports are the caller's: only it knows whether the
    /// workers share theirs.
    pub fn join(&mut self, other: &RunReport) {
        self.app.merge(&other.app);
        self.past.merge(&other.past);
        if other.ended as u8 > self.ended as u8 {
            self.ended = other.ended;
        }
        self.started_ns = self.started_ns.min(other.started_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.turns += other.turns;
        self.waits += other.waits;
        self.spun_ns += other.spun_ns;
        self.blocked_ns += other.blocked_ns;
    }
}

fn is_nothing(counters: &Counters) -> bool {
    *counters == Counters::default()
}

/// A run that the lane's failure ended. The app was stopped and has finished what it had.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RunFailed {
    /// What happened.
    pub error: LaneError,
    /// What was done until then.
    pub report: Box<RunReport>,
}

impl From<RunFailed> for LaneError {
    fn from(failed: RunFailed) -> LaneError {
        failed.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ended: Ended, [started_ns, ended_ns]: [u64; 2], turns: u64) -> RunReport {
        let mut app = Counters::default();
        app.rx_frames = turns;
        RunReport {
            ended,
            app,
            started_ns,
            ended_ns,
            turns,
            waits: 1,
            spun_ns: 2,
            blocked_ns: 3,
            ..RunReport::begun("sim", ClockDomain::Virtual)
        }
    }

    #[test]
    fn workers_add_up_span_both_and_end_as_the_one_that_tells_more() {
        let mut sum = run(Ended::Failed, [10, 20], 4);
        sum.join(&run(Ended::Stopped, [5, 15], 6));
        let want =
            RunReport { waits: 2, spun_ns: 4, blocked_ns: 6, ..run(Ended::Failed, [5, 20], 10) };
        assert_eq!(sum, want);
        let mut other = run(Ended::Stopped, [0, 1], 0);
        other.join(&sum);
        assert_eq!(other.ended, Ended::Failed);
    }
}
