//! What became of every frame of a run, which worker received and sent it, and what every rule matched.
//!
//! What must always hold: figures and rules are those of one moment, under the lock of the rule set.

use crate::fate::{Fate, Stats};
use crate::rules::RuleSet;
use crate::{ForwardReport, ForwardRun, QUEUES_MAX};
use laneway_core::DropReason;
use laneway_kinds::{Account, Line, On, PortReport, RunReport, Shape};
use laneway_page::text::grouped;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Rules of a port that a person is shown at the end; programs get all.
const RULES_SHOWN_MAX: usize = 100;

/// Frames by the name of their fate.
pub(crate) fn fates_by_name(stats: &Stats) -> Map<String, Value> {
    let fates = Fate::ALL.iter();
    fates.map(|&fate| (fate.name().to_owned(), stats.frames(fate).into())).collect()
}

/// A rule at the end of the run.
struct RuleRow {
    port: u16,
    id: u32,
    text: String,
    hits: u64,
    bytes: u64,
    place: &'static str,
    reason: String,
}

fn rule_rows(set: &RuleSet) -> Vec<RuleRow> {
    let ports = 0..set.ports();
    ports
        .flat_map(|port| {
            set.rules(port).map(move |(id, rule, placement)| (port, id, rule, placement))
        })
        .map(|(port, id, rule, placement)| {
            let hits = set.hits(port, id).unwrap_or_default();
            RuleRow {
                port,
                id,
                text: rule.to_string(),
                hits: hits.frames,
                bytes: hits.bytes,
                place: placement.place.name(),
                reason: placement.reason.to_string(),
            }
        })
        .collect()
}

/// How many rules there are, where they are executed, and why there.
pub(crate) fn placed(set: &RuleSet) -> String {
    if set.is_empty() {
        return "none".to_owned();
    }
    let ports = 0..set.ports();
    let places: BTreeSet<String> = ports
        .flat_map(|port| set.rules(port))
        .map(|(_, _, placement)| format!("{} ({})", placement.place.name(), placement.reason))
        .collect();
    let places: Vec<String> = places.into_iter().collect();
    format!("{}, executed in: {}", set.len(), places.join("; "))
}

/// What there is to say at the end.
struct RunSummary<'a> {
    run: &'a ForwardRun,
    on: On<'a>,
    /// Of all workers together, as is the report.
    lane: &'a RunReport,
    report: &'a ForwardReport,
    rules: Vec<RuleRow>,
}

/// The account of a run.
pub(crate) fn collect(
    run: &ForwardRun,
    on: On<'_>,
    lane: &RunReport,
    report: &ForwardReport,
) -> Account {
    let mut set = run.console.as_ref().map(|console| console.rules());
    let rules = set.as_deref().map(rule_rows).unwrap_or_default();
    let summary = RunSummary { run, on, lane, report, rules };
    Account {
        one: "frame",
        seen_heading: "frames",
        seen: lane.counters().rx_frames,
        accounted: report.stats.total(),
        // io_uring tells of a frame when it is sent: the last ones are on the way at the end.
        unconfirmed: if on.lane.confirms_late { 0 } else { summary.unconfirmed() },
        lines: summary.lines(),
        text: summary.text(set.as_deref_mut()),
        json: summary.json(),
        ..Account::default()
    }
}

impl RunSummary<'_> {
    fn in_kernel(&self) -> bool {
        self.on.lane.carries.has(Shape::Kernel)
    }

    /// Frames that were to leave and have neither left nor been counted as lost. In the kernel only the
    /// lost ones are counted.
    fn unconfirmed(&self) -> u64 {
        if self.in_kernel() {
            return 0;
        }
        let counters = self.lane.counters();
        let copies = self.run.config.ports as u64 - 1;
        let to_leave = self.report.stats.frames(Fate::Forwarded)
            + self.report.stats.frames(Fate::Flooded) * copies;
        to_leave.saturating_sub(counters.tx_frames + counters.refused())
    }

    /// Frames by the queue that a rule chose.
    fn queues(&self) -> Vec<(usize, u64)> {
        let frames = self.report.stats.queue_frames.iter().copied().enumerate().take(QUEUES_MAX);
        frames.filter(|&(_, n)| n > 0).collect()
    }

    /// Losses of the lane by port. In the kernel the lane counts the app's as well: those are fates, which
    /// are reported as such.
    fn losses(&self) -> Vec<BTreeMap<DropReason, u64>> {
        let has_fate = |reason| {
            let is_of = |fate: &Fate| fate.drop_reason() == Some(reason);
            self.in_kernel() && Fate::ALL.iter().any(is_of)
        };
        let of_port = |port: &PortReport| {
            port.counters.nonzero_drops().filter(|&(reason, _)| !has_fate(reason)).collect()
        };
        self.lane.ports.iter().map(of_port).collect()
    }

    fn json(&self) -> Map<String, Value> {
        let queues: Map<String, Value> =
            self.queues().into_iter().map(|(queue, n)| (queue.to_string(), n.into())).collect();
        let rules: Vec<Value> = self
            .rules
            .iter()
            .map(|rule| {
                json!({
                    "port": rule.port,
                    "id": rule.id,
                    "rule": rule.text,
                    "hits": rule.hits,
                    "bytes": rule.bytes,
                    "place": rule.place,
                    "reason": rule.reason,
                })
            })
            .collect();
        let facts = [
            ("mode", json!(self.run.config.mode.word())),
            ("fates", Value::Object(fates_by_name(&self.report.stats))),
            ("queues", Value::Object(queues)),
            ("unlearned", json!(self.report.unlearned)),
            ("unconfirmed", json!(self.unconfirmed())),
            ("rules", Value::Array(rules)),
        ];
        facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect()
    }

    fn lines(&self) -> Vec<Line> {
        let fates = self.report.stats.nonzero();
        let mut lines: Vec<Line> =
            fates.map(|(fate, n)| (format!("  {}", fate.name()), n, "")).collect();
        let queues = self.queues().into_iter();
        lines.extend(queues.map(|(queue, n)| (format!("to queue {queue}"), n, "by rules")));
        if self.report.unlearned > 0 {
            lines.push((
                "stations not learned".to_owned(),
                self.report.unlearned,
                "the table was full",
            ));
        }
        if self.unconfirmed() > 0 {
            lines.push(("on the way".to_owned(), self.unconfirmed(), "when it ended"));
        }
        lines
    }

    fn text(&self, rules: Option<&mut RuleSet>) -> String {
        let mut text = String::new();
        self.say_ports(&mut text);
        if let Some(rules) = rules {
            self.say_rules(&mut text, rules);
        }
        text
    }

    /// A line per port, and one per reason of a loss. The kernel half counts its ports together.
    fn say_ports(&self, text: &mut String) {
        let name = |port: usize| match self.in_kernel() {
            true => "all",
            false => self.on.interfaces.get(port).map_or("", String::as_str),
        };
        let names = (0..self.lane.ports.len()).map(|port| name(port).len());
        let chars = names.max().unwrap_or(0).max("interface".len());
        // A String takes whatever it is given, here and below.
        let _ = writeln!(
            text,
            "port  {:<chars$}  {:>15}  {:>15}  {:>15}",
            "interface", "received", "sent", "passed"
        );
        for (port, report) in self.lane.ports.iter().enumerate() {
            let counters = &report.counters;
            // Of what leaves by a redirect, only the losses are counted.
            let sent = match self.in_kernel() {
                true => "by redirect".to_owned(),
                false => grouped(counters.tx_frames),
            };
            let passed = match self.in_kernel() {
                true => self.report.stats.frames(Fate::Passed),
                false => counters.passed,
            };
            let _ = writeln!(
                text,
                "{port:<4}  {:<chars$}  {:>15}  {sent:>15}  {:>15}",
                name(port),
                grouped(counters.rx_frames),
                grouped(passed),
            );
        }
        for (port, losses) in self.losses().iter().enumerate() {
            for (reason, n) in losses {
                let _ = writeln!(text, "port {port} lost {} {}", grouped(*n), reason.name());
            }
        }
    }

    /// As `flow list` and `flow query` say it, and where each rule was executed.
    fn say_rules(&self, text: &mut String, set: &mut RuleSet) {
        let mut set_ports: Vec<u16> = self.rules.iter().map(|rule| rule.port).collect();
        set_ports.dedup();
        for port in set_ports {
            let rules = || self.rules.iter().filter(|rule| rule.port == port);
            let list = format!("flow list {port}");
            let listed = set.run(&list).unwrap_or_default();
            let _ = writeln!(text, "{list}");
            for line in listed.lines().take(RULES_SHOWN_MAX + 1) {
                let _ = writeln!(text, "{line}");
            }
            for rule in rules().take(RULES_SHOWN_MAX) {
                let _ = writeln!(
                    text,
                    "flow query {port} {}: hits: {} bytes: {}; {}: {}",
                    rule.id, rule.hits, rule.bytes, rule.place, rule.reason
                );
            }
            let beyond = rules().count().saturating_sub(RULES_SHOWN_MAX);
            if beyond > 0 {
                let _ =
                    writeln!(text, "... and {} more, which --json tells", grouped(beyond as u64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::compile::Bounds;
    use laneway_core::{CapsReport, ClockDomain, Counters, PortId};
    use laneway_kinds::{Ended, LaneFacts, LaneKind};
    use laneway_packet::PacketKind;

    /// Two ports, of which the second sent one of three frames, and lost another.
    fn three_to_send() -> (RunReport, ForwardReport) {
        let mut counters = [Counters::default(), Counters::default()];
        counters[0].rx_frames = 3;
        counters[1].tx_frames = 1;
        counters[1].set_drops(DropReason::TxRefused, 1);
        let port = |counters| PortReport { id: PortId(0), caps: CapsReport::default(), counters };
        let lane = RunReport {
            ended: Ended::Stopped,
            ports: counters.map(port).into(),
            ended_ns: 1,
            ..RunReport::begun("packet", ClockDomain::Virtual)
        };
        let mut report = ForwardReport::default();
        (0..3).for_each(|_| report.stats.count(Fate::Forwarded));
        (lane, report)
    }

    #[test]
    fn a_frame_neither_sent_nor_lost_opens_the_account_unless_the_lane_tells_late() {
        static LATE: LaneFacts = LaneFacts { confirms_late: true, ..PacketKind::FACTS };
        let run = ForwardRun::new(Config::default(), None).unwrap();
        let (lane, report) = three_to_send();
        let spec = "packet".parse().unwrap();
        let interfaces = ["eth1".to_owned(), "eth2".to_owned()];
        for (facts, is_closed) in [(&PacketKind::FACTS, false), (&LATE, true)] {
            let on = On { spec: &spec, lane: facts, interfaces: &interfaces, workers: 1 };
            let account = collect(&run, on, &lane, &report);
            assert_eq!((account.seen, account.accounted), (3, 3));
            assert_eq!(account.is_closed(), is_closed);
            assert_eq!(account.json["unconfirmed"], 1, "it is reported anyway");
            assert!(account.lines.contains(&("on the way".to_owned(), 1, "when it ended")));
            assert!(account.text.contains("port 1 lost 1 tx_refused"), "{}", account.text);
        }
    }

    #[test]
    fn rules_are_printed_with_their_number_and_every_place_once() {
        let mut set = RuleSet::for_user(Bounds { ports: 2, queues: 1 });
        assert_eq!(placed(&set), "none");
        for port in [0, 1] {
            let rule = format!("flow create {port} ingress pattern eth / end actions drop / end");
            set.run(&rule).unwrap();
        }
        set.commit();
        let summary = placed(&set);
        assert!(
            summary.starts_with("2, executed in: user (") && !summary.contains("; "),
            "{summary}"
        );
    }
}
