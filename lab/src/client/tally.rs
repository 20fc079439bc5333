//! What a client has to say of a segment: where every request went, and how long the answers took.

use super::Reopened;
use crate::late::Late;
use crate::replies::Replied;
use crate::result::{Connections, GeneratorReport, Ledger};
use crate::round_trips::LATE_NS;
use crate::round_trips::RoundTrips;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What became of a request that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// It was asked, and not answered by the end of the wait behind the last request.
    TimedOut,
    /// Until then its connection was full of others that were not answered either.
    NeverAsked,
    /// Its connection was refused when it was to be opened again.
    Refused,
    /// Its connection could not be opened again for another reason.
    NotOpened,
    /// Its connection was closed, or reset, by the other end.
    Lost,
    /// It was answered, and not as it must be.
    Wrong,
    /// It was asked on a connection that was given up for a wrong answer to another.
    BehindWrong,
}

/// The place of requests that were answered wrongly, in a ledger.
pub(crate) const WRONG: &str = "answered wrongly";

impl Fate {
    /// The place in a ledger.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Fate::TimedOut => "timed out",
            Fate::NeverAsked => "timed out unasked",
            Fate::Refused => "connection refused",
            Fate::NotOpened => "connection not opened",
            Fate::Lost => "connection lost",
            Fate::Wrong => WRONG,
            Fate::BehindWrong => "behind a wrong answer",
        }
    }
}

/// Of one segment: due = answered + all fates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Requests that were due.
    pub due: u64,
    /// Requests that were answered, byte for byte.
    pub answered: u64,
    /// The others, by the place of their [`Fate`].
    pub fates: BTreeMap<String, u64>,
    /// The answers by kind, where there is more than one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<String, u64>,
    /// Answers without a request.
    pub unasked: u64,
    /// What was wrong with the first wrong answer.
    pub wrong: Option<String>,
    /// Answers that count for the rate, and the time that they are of, ns.
    pub in_time: [u64; 2],
    /// When the first and the last answer were received, CLOCK_MONOTONIC ns.
    pub first_ns: u64,
    /// See `first_ns`.
    pub last_ns: u64,
    /// From the due time of each request that was answered to the end of its answer; the others took longer than all.
    pub round_trips: RoundTrips,
    /// What became of the connections.
    pub connections: Connections,
    /// Of a closed loop: connections that began it, and those of them on which a request was not answered.
    #[serde(default)]
    pub loops: [u64; 2],
    /// How the client kept its own time.
    pub generator: GeneratorReport,
    /// Bytes written and read.
    pub bytes: [u64; 2],
}

impl Asked {
    /// Answers per second.
    pub(crate) fn per_second(&self) -> f64 {
        let [answers, ns] = self.in_time;
        answers as f64 * 1e9 / ns.max(1) as f64
    }

    /// Takes in what was found of the connections behind the last answer.
    pub(crate) fn found(&mut self, found: Reopened) {
        self.connections.lost += found.lost;
        self.connections.reopened += found.reopened;
        self.unasked += found.unasked;
    }

    /// As a race has it.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut ledger = Ledger {
            offered: self.due,
            delivered: self.answered,
            foreign: self.unasked,
            loops: self.loops[0],
            loops_broken: self.loops[1],
            drops: self.fates.clone(),
            ..Ledger::default()
        };
        ledger.balance();
        ledger
    }

    /// The answers, as replies to requests that had numbers.
    pub(crate) fn replied(&self) -> Replied {
        Replied {
            distinct: self.answered,
            foreign: self.unasked,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            round_trips: self.round_trips.clone(),
            ..Replied::default()
        }
    }
}

/// The same while it is counted.
#[derive(Default)]
pub(super) struct Tally {
    totals: Asked,
    fates: BTreeMap<Fate, u64>,
    late: Late,
    asked: u64,
}

impl Tally {
    /// Another `n` are due.
    pub(super) fn due(&mut self, n: u64) {
        self.totals.due += n;
    }

    /// One was asked, so long after it could have been.
    pub(super) fn asked(&mut self, late_ns: u64) {
        self.asked += 1;
        self.late.record(late_ns, 1);
    }

    /// One that was due then was answered now, which may count for the rate.
    pub(super) fn answered(&mut self, due_ns: u64, now_ns: u64, is_in_time: bool) {
        let totals = &mut self.totals;
        if totals.answered == 0 {
            totals.first_ns = now_ns;
        }
        (totals.answered, totals.last_ns) = (totals.answered + 1, now_ns);
        totals.in_time[0] += u64::from(is_in_time);
        totals.round_trips.record_with_limit(now_ns.saturating_sub(due_ns), LATE_NS);
    }

    /// So many ended otherwise.
    pub(super) fn ended(&mut self, fate: Fate, n: u64) {
        if n > 0 {
            *self.fates.entry(fate).or_default() += n;
        }
    }

    /// An answer arrived without a request.
    pub(super) fn unasked(&mut self) {
        self.totals.unasked += 1;
    }

    /// What is wrong with an answer, for a report that asks why.
    pub(super) fn wrong(&mut self, why: String) {
        self.totals.wrong.get_or_insert(why);
    }

    /// So many bytes were written and read.
    pub(super) fn moved(&mut self, [written, read]: [u64; 2]) {
        self.totals.bytes[0] += written;
        self.totals.bytes[1] += read;
    }

    /// A connection has gone.
    pub(super) fn lost(&mut self) {
        self.totals.connections.lost += 1;
    }

    /// A connection has begun its closed loop.
    pub(super) fn began(&mut self) {
        self.totals.loops[0] += 1;
    }

    /// The closed loop of one has ended with a request that was not answered.
    pub(super) fn broke(&mut self) {
        self.totals.loops[1] += 1;
    }

    /// Requests that are due and have no end yet.
    pub(super) fn open(&self) -> u64 {
        self.totals.due - self.totals.answered - self.fates.values().sum::<u64>()
    }

    /// When the last answer so far was received; 0 if none was.
    pub(super) fn last_ns(&self) -> u64 {
        self.totals.last_ns
    }

    /// Requests that were asked.
    pub(super) fn all_asked(&self) -> u64 {
        self.asked
    }

    /// All of it, when nothing is open any more; the two rates are the one that was wanted, and the one at which
    /// requests were looked at when they were due.
    pub(super) fn close(
        self,
        connections: u32,
        counted_for_ns: u64,
        [asked_pps, taken_up_pps]: [f64; 2],
    ) -> Asked {
        assert_eq!(self.open(), 0, "every request has an end before the report");
        let Tally { mut totals, fates, late, asked } = self;
        // Were they left out, a server that sheds what it is slow with would seem quick.
        totals.round_trips.miss(totals.due - totals.answered);
        totals.fates = fates.iter().map(|(fate, n)| (fate.name().to_owned(), *n)).collect();
        totals.connections.open = connections;
        totals.in_time[1] = counted_for_ns;
        totals.generator = GeneratorReport {
            asked_pps,
            achieved_pps: taken_up_pps,
            sent: asked,
            refused: 0,
            late_p50_ns: late.quantile_ns(0.5),
            late_p99_ns: late.quantile_ns(0.99),
            late_max_ns: late.max_ns(),
            early: 0,
            cpu_ns: 0,
        };
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_answered_took_longer_than_all_that_was() {
        let figures = |unanswered: u64| {
            let mut tally = Tally::default();
            tally.due(100_000);
            (unanswered..100_000).for_each(|_| tally.answered(1_000, 101_000, true));
            tally.ended(Fate::TimedOut, unanswered);
            tally.close(1, 1, [1.0; 2]).round_trips.figures().summary
        };
        let (all, some) = (figures(0), figures(200));
        assert_eq!([all.p99_ns, all.p999_ns], [Some(100_000); 2]);
        assert_eq!([some.p99_ns, some.p999_ns], [Some(100_000), None]);
        assert_eq!((some.n, some.missing), (99_800, 200));
    }
}
