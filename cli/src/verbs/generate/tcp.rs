//! `laneway gen tcp`: the client of races, by hand.

use super::terminal;
use crate::arguments::TcpArguments;
use laneway_engine::{Stop, pin_to_cpu};
use laneway_kinds::Protocol;
use laneway_lab::client::{Answered, ClientPlan, Pace, Until, ask};
use laneway_page::text::{aligned, grouped};
use laneway_terminal::{Exit, Failure};
use serde_json::json;

pub(super) fn run(arguments: &TcpArguments, json: bool) -> Result<Exit, Failure> {
    let plan = ClientPlan {
        to: arguments.to,
        protocol: Protocol::Echo,
        connections: arguments.connections,
        in_flight: arguments.in_flight,
        request_bytes: arguments.bytes.0,
        store: None,
        datagrams: None,
        timeout_ms: arguments.timeout_ms,
        seed: arguments.seed,
    };
    let by_hand = ByHand {
        source: "tcp",
        plan,
        pace: arguments.rate.map_or(Pace::Closed, |per_second| Pace::Open { per_second }),
        until: Until::Time(arguments.duration),
        cpu: arguments.cpu,
    };
    by_hand.ask(json)
}

/// A client by hand.
pub(super) struct ByHand {
    /// Its verb.
    pub(super) source: &'static str,
    pub(super) plan: ClientPlan,
    pub(super) pace: Pace,
    pub(super) until: Until,
    pub(super) cpu: Option<usize>,
}

impl ByHand {
    /// Asks, and prints the outcome.
    ///
    /// # Errors
    /// A value that cannot be, a connection that cannot be opened, a wrong answer.
    pub(super) fn ask(&self, json: bool) -> Result<Exit, Failure> {
        let stop = Stop::default();
        let asked_to = stop.clone();
        terminal::on_signal(None, json, move || asked_to.request())?;
        if let Some(cpu) = self.cpu {
            pin_to_cpu(cpu).map_err(Failure::input)?;
        }
        let answered = ask(&self.plan, self.pace, self.until, || stop.is_due(0));
        let answered = answered.map_err(Failure::input)?;
        if json {
            let value = json!({
                "verb": "gen",
                "source": self.source,
                "plan": self.plan,
                "loop": if self.pace == Pace::Closed { "closed" } else { "open" },
                "answered": answered,
            });
            terminal::print_json(&value, false)?;
        } else {
            print_report(&self.plan, &answered, self.pace);
        }
        match &answered.wrong {
            None => Ok(Exit::Done),
            Some(why) => Err(Failure::Because(Exit::Invalid, format!("it answers wrongly: {why}"))),
        }
    }
}

fn print_report(plan: &ClientPlan, answered: &Answered, pace: Pace) {
    let ledger = &answered.ledger;
    terminal::note(&format!(
        "{} requests to {} were answered in {:.3} s, over {}",
        grouped(ledger.delivered),
        plan.asked_at(),
        answered.seconds,
        match plan.connections {
            1 if plan.datagrams.is_some() => "one socket".to_owned(),
            n if plan.datagrams.is_some() => format!("{} sockets", grouped(n.into())),
            1 => "one connection".to_owned(),
            n => format!("{} connections", grouped(n.into())),
        }
    ));
    let mut lines =
        vec![("requests due", ledger.offered, ""), ("  answered", ledger.delivered, "")];
    let kinds: Vec<(String, u64)> =
        answered.kinds.iter().map(|(name, n)| (format!("    {name}"), *n)).collect();
    lines.extend(kinds.iter().map(|(name, n)| (name.as_str(), *n, "")));
    let named: Vec<(String, u64)> =
        ledger.drops.iter().map(|(name, n)| (format!("  {name}"), *n)).collect();
    lines.extend(named.iter().map(|(name, n)| (name.as_str(), *n, "")));
    if answered.opening > 0 {
        lines.push(("keys set before", answered.opening, ""));
    }
    if ledger.foreign > 0 {
        lines.push(("answers without a request", ledger.foreign, ""));
    }
    if answered.connections.lost > 0 {
        lines.push(("connections lost", answered.connections.lost.into(), ""));
    }
    let [written, read] = answered.bytes;
    lines.extend([("bytes written", written, ""), ("bytes read", read, "")]);
    terminal::note(aligned(&lines).trim_end());
    let asked = match pace {
        Pace::Open { per_second } => format!(" (asked for {per_second:.1})"),
        Pace::Closed => ", closed loop".to_owned(),
    };
    terminal::note(&format!("rate: {:.1} requests/s{asked}", answered.per_second));
    let summary = &answered.rtt.summary;
    figures(
        "latency, from the time each was due",
        [
            ("p50", summary.p50_ns),
            ("p90", summary.p90_ns),
            ("p99", summary.p99_ns),
            ("p99.9", summary.p999_ns),
            ("max", summary.max_ns),
        ],
    );
    let client = &answered.client;
    figures(
        "late, by the client itself",
        [("p50", client.late_p50_ns), ("p99", client.late_p99_ns), ("max", client.late_max_ns)]
            .map(|(name, ns)| (name, (client.sent > 0).then_some(ns))),
    );
}

/// Those of which there are values enough.
fn figures<const N: usize>(what: &str, all: [(&str, Option<u64>); N]) {
    let there = all.into_iter().filter_map(|(name, ns)| Some((name, ns?)));
    let texts: Vec<String> =
        there.map(|(name, ns)| format!("{name} {:.1} us", ns as f64 / 1e3)).collect();
    if !texts.is_empty() {
        terminal::note(&format!("{what}: {}", texts.join(", ")));
    }
}
