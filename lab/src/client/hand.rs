//! A client by hand: one stretch of asking, outside of a race.

use super::{Asked, Asking, Client, ClientPlan, Conversation, Gets, SameBytes, Values};
use crate::result::{Connections, GeneratorReport, Ledger};
use crate::round_trips::Rtt;
use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use laneway_core::Clock;
use laneway_engine::MonotonicClock;
use laneway_kinds::Protocol;
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// From opening the connections to the first request.
const LEAD_NS: u64 = 1_000_000;
/// Requests are due one by one up to this rate, and together at it beyond.
const BURSTS_PER_S_MAX: f64 = 50_000.0;
/// Requests of a closed loop have no times; its stretch is stated in ms.
const TICK_NS: u64 = 1_000_000;
/// How long a closed loop of so many requests may take.
const CLOSED_MAX: Duration = Duration::from_secs(86_400);

/// When requests are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So many per second, whatever becomes of those before.
    Open {
        /// Above 0.
        per_second: f64,
    },
    /// Each when one before it on its connection was answered.
    Closed,
}

/// When it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so long.
    Time(Duration),
    /// When so many requests were due.
    Requests(NonZeroU32),
}

/// Its result.
#[derive(Clone, Debug, Serialize)]
pub struct Answered {
    /// Where every request went; closed.
    pub ledger: Ledger,
    /// The answers by kind, where there is more than one.
    pub kinds: BTreeMap<String, u64>,
    /// Requests that were answered before the first of these was due: of a store, each key was set once.
    pub opening: u64,
    /// From when a request was due to the end of its answer.
    pub rtt: Rtt,
    /// Answers per second: of a closed loop, without its start.
    pub per_second: f64,
    /// From the first request's due time to the last answer.
    pub seconds: f64,
    /// Bytes written and read.
    pub bytes: [u64; 2],
    /// What became of the connections.
    pub connections: Connections,
    /// How the client kept its own time.
    pub client: GeneratorReport,
    /// What was wrong with the first wrong answer.
    pub wrong: Option<String>,
}

/// Opens the connections of `plan` and asks until `until`, or until `is_over`; every request has an end by then.
///
/// # Errors
/// A sentence: a value that cannot be, a connection that cannot be opened.
pub fn ask(
    plan: &ClientPlan,
    pace: Pace,
    until: Until,
    is_over: impl Fn() -> bool,
) -> Result<Answered, String> {
    plan.check().map_err(|(what, value, hint)| format!("{what} is {value}; {hint}"))?;
    let asking = asking(pace, until)?;
    match (plan.protocol, plan.datagrams) {
        (Protocol::Echo, _) => ask_by::<SameBytes>(plan, asking, is_over),
        (Protocol::Resp, None) => ask_by::<Values>(plan, asking, is_over),
        (Protocol::Resp, Some(_)) => ask_by::<Gets>(plan, asking, is_over),
    }
}

fn ask_by<C: Conversation>(
    plan: &ClientPlan,
    asking: Asking,
    is_over: impl Fn() -> bool,
) -> Result<Answered, String> {
    let (mut client, opening) = Client::<C>::opened(plan, Timetable::default(), &is_over)?;
    let t0_ns = MonotonicClock.now_ns() + LEAD_NS;
    let asking = Asking { schedule: SegmentPlan { t0_ns, ..asking.schedule }, ..asking };
    Ok(Answered { opening, ..answered(client.ask(asking, is_over)?, t0_ns) })
}

fn answered(asked: Asked, t0_ns: u64) -> Answered {
    let seconds = asked.last_ns.saturating_sub(t0_ns) as f64 / 1e9;
    Answered {
        ledger: asked.ledger(),
        opening: 0,
        rtt: asked.round_trips.figures(),
        per_second: asked.per_second(),
        seconds,
        bytes: asked.bytes,
        connections: asked.connections,
        client: asked.generator,
        wrong: asked.wrong,
        kinds: asked.kinds,
    }
}

/// What is asked, without its time.
fn asking(pace: Pace, until: Until) -> Result<Asking, String> {
    let (schedule, requests) = match (pace, until) {
        (_, Until::Time(length)) => (schedule(pace, length)?, None),
        (Pace::Open { per_second }, Until::Requests(n)) => {
            let seconds = f64::from(n.get()) / per_second;
            let length = Duration::try_from_secs_f64(seconds);
            let hint = "a higher rate, or fewer requests";
            let plan = schedule(pace, length.map_err(|error| format!("{error}: {hint}"))?)?;
            (SegmentPlan { frames: n.get(), ..plan }, None)
        }
        (Pace::Closed, Until::Requests(n)) => (schedule(pace, CLOSED_MAX)?, Some(n)),
    };
    Ok(Asking { schedule, is_closed: pace == Pace::Closed, requests })
}

/// The schedule of so long.
fn schedule(pace: Pace, length: Duration) -> Result<SegmentPlan, String> {
    let too_many = || "at most 4294967295 requests: ask for less time, or a lower rate".to_owned();
    let ns = u64::try_from(length.as_nanos()).map_err(|_| too_many())?;
    let (burst, interval_ns) = match pace {
        Pace::Closed => (1, TICK_NS),
        Pace::Open { per_second } => {
            let burst = (per_second / BURSTS_PER_S_MAX).ceil().max(1.0);
            (burst as u32, (burst * 1e9 / per_second).max(1.0) as u64)
        }
    };
    let bursts = (ns / interval_ns).max(1);
    let frames = bursts.checked_mul(burst.into()).and_then(|all| u32::try_from(all).ok());
    let frames = frames.ok_or_else(too_many)?;
    Ok(SegmentPlan { segment: 1, entry: 0, t0_ns: 0, frames, interval_ns, burst })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_becomes_a_schedule_of_that_rate_and_length() {
        let of =
            |per_second, s| schedule(Pace::Open { per_second }, Duration::from_secs(s)).unwrap();
        for (per_second, s, frames, burst) in
            [(1.0, 3, 3, 1), (0.5, 4, 2, 1), (50_000.0, 2, 100_000, 1), (120_000.0, 1, 120_000, 3)]
        {
            let plan = of(per_second, s);
            assert_eq!((plan.frames, plan.burst), (frames, burst), "{per_second}");
            assert!(
                (Timetable::default().rate_pps(&plan) / per_second - 1.0).abs() < 1e-3,
                "{plan:?}"
            );
        }
        let closed = schedule(Pace::Closed, Duration::from_secs(2)).unwrap();
        assert_eq!((closed.frames, closed.interval_ns), (2_000, 1_000_000));
        let n = |n| Until::Requests(NonZeroU32::new(n).unwrap());
        let open = asking(Pace::Open { per_second: 120_000.0 }, n(1_000)).unwrap();
        assert_eq!((open.schedule.frames, open.is_closed, open.requests), (1_000, false, None));
        let closed = asking(Pace::Closed, n(7)).unwrap();
        assert_eq!((closed.is_closed, closed.requests.unwrap().get()), (true, 7));
        let long = Duration::from_secs(1 << 40);
        assert!(schedule(Pace::Open { per_second: 1e6 }, long).unwrap_err().contains("at most"));
    }
}
