//! `laneway gen`: traffic from one interface, or into a capture.
//!
//! The rate that is reported is that of what the lane sent, from the first frame to the last: n frames are
//! n - 1 distances. What was asked for is the same figure of the schedule, so that both agree when
//! nothing was late and nothing refused.

mod kv;
mod mcast;
mod tcp;

use super::run::{end_after, opened};
use crate::arguments::{Generator, ReplayArguments};
use crate::replay::{Pacing, Plan, Recording, Replay};
use laneway_core::{App, CapsReport, Counters, DropReason, LaneError};
use laneway_engine::{Control, RunReport};
use laneway_kinds::{LaneFacts, Ports};
use laneway_page::text::{aligned, grouped};
use laneway_registry::{Crew, LaneTable, Order, facts_of, run_source};
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(crate) fn run<L: LaneTable>(what: &Generator, json: bool) -> Result<Exit, Failure> {
    match what {
        Generator::Pcap(arguments) => replay::<L>(arguments, json),
        Generator::Tcp(arguments) => tcp::run(arguments, json),
        Generator::Kv(arguments) => kv::run(arguments, json),
        Generator::Mcast(arguments) => mcast::run::<L>(arguments, json),
    }
}

fn replay<L: LaneTable>(arguments: &ReplayArguments, json: bool) -> Result<Exit, Failure> {
    let spec = &arguments.lane;
    let lane = facts_of::<L>(spec).map_err(Failure::input)?;
    let to_file = lane.ports == Ports::Files;
    let plan = plan(arguments);
    if to_file {
        spec.knobs().finish().map_err(Failure::input)?;
        check_recording(arguments)?;
    }
    let mut replay = Replay::new(&plan).map_err(Failure::input)?;
    let control = Control::default();
    let stop = control.stop.clone();
    let recording = to_file.then(|| Recording::begin(Path::new(&arguments.on)));
    let recording = recording.transpose().map_err(Failure::input)?;
    let leftover = recording.as_ref().and_then(Recording::partial_path);
    terminal::on_signal(leftover, json, move || stop.request())?;

    let summary = if let Some(recording) = recording {
        let written = recording.record(&mut replay, arguments.duration, &control.stop);
        let written = written.map_err(Failure::input)?;
        ReplaySummary { lane: written, caps: None, report: None, failure: None }
    } else {
        let mut caps = None;
        let on_open = |obtained: &CapsReport| {
            caps = Some(obtained.clone());
            if !json {
                let place = format!("on {}", arguments.on);
                terminal::note(&opened(&spec.to_string(), &place, obtained));
            }
            end_after(arguments.duration, &control.stop);
        };
        let order = Order {
            spec,
            interfaces: &[&arguments.on],
            force: arguments.force,
            crew: Crew::Here { control: &control, cpu: arguments.cpu },
        };
        let (report, failure) =
            run_source::<_, L>(&mut replay, order, on_open).map_err(Failure::from)?;
        let lane = report.counters();
        ReplaySummary { lane, caps, report: Some(report), failure }
    };
    summary.conclude(arguments, &replay, lane, json)
}

fn plan(arguments: &ReplayArguments) -> Plan {
    let pacing = match (arguments.pps, arguments.mbps, arguments.topspeed) {
        (Some(per_second), ..) => Pacing::Frames { per_second },
        (_, Some(megabits), _) => Pacing::Bits { per_second: megabits * 1e6 },
        (_, _, true) => Pacing::Topspeed,
        _ => Pacing::Capture { multiplier: arguments.multiplier.unwrap_or(1.0) },
    };
    Plan {
        captures: arguments.captures.clone(),
        passes: (arguments.passes > 0).then_some(arguments.passes),
        pacing,
        preload: arguments.preload,
        unique_ip: arguments.unique_ip,
        count: arguments.count,
    }
}

/// What makes no sense where the traffic goes into a file.
fn check_recording(arguments: &ReplayArguments) -> Result<(), Failure> {
    let wrong = |why: &str| Err(Failure::input(why));
    if arguments.topspeed {
        return wrong(
            "--topspeed is as fast as the lane takes frames, and a capture has no speed; use --pps, \
             --mbps or --multiplier, or leave it out to keep the times",
        );
    }
    if arguments.cpu.is_some() {
        return wrong("--cpu is for lanes that send; leave it out to write a capture");
    }
    let has_end = arguments.passes > 0 || arguments.count.is_some() || arguments.duration.is_some();
    if !has_end {
        return wrong("--loop 0 into a capture would fill the disk; add --count or --duration");
    }
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let out = identity(Path::new(&arguments.on));
    match arguments.captures.iter().find(|path| out.is_some() && identity(path) == out) {
        None => Ok(()),
        Some(path) => Err(Failure::input(format!(
            "{} would replace the capture to read ({}); name another file with --on",
            arguments.on,
            path.display()
        ))),
    }
}

/// What a replay left behind.
struct ReplaySummary {
    /// What was sent, and what was not.
    lane: Counters,
    caps: Option<CapsReport>,
    report: Option<RunReport>,
    failure: Option<LaneError>,
}

/// Frames and bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    pps: f64,
    mbps: f64,
}

impl Rate {
    /// Of `frames` frames of `bytes` bytes together, `span_ns` from the first to the last. `None` where
    /// there is no distance to tell it from.
    fn of(frames: u64, bytes: u64, span_ns: u64) -> Option<Rate> {
        if frames < 2 || span_ns == 0 {
            return None;
        }
        let pps = (frames - 1) as f64 * 1e9 / span_ns as f64;
        Some(Rate { pps, mbps: pps * (bytes as f64 / frames as f64) * 8.0 / 1e6 })
    }

    fn text(self) -> String {
        format!("{:.1} packets/s, {:.3} Mbit/s", self.pps, self.mbps)
    }

    fn json(rate: Option<Rate>) -> Value {
        rate.map_or(Value::Null, |rate| json!({ "pps": rate.pps, "mbps": rate.mbps }))
    }
}

/// A replay in figures: what was read, given to the lane, sent, and lost by reason.
struct Figures<'a> {
    summary: &'a ReplaySummary,
    replay: &'a Replay,
    given: Counters,
    span_ns: u64,
    asked: Option<Rate>,
    achieved: Option<Rate>,
    read: u64,
    /// By the replay, before the lane saw it.
    left_out: BTreeMap<DropReason, u64>,
    /// By the lane; what it could not receive is none of it.
    refused: BTreeMap<DropReason, u64>,
    /// Given to the lane, and neither sent nor lost so far.
    unconfirmed: u64,
}

impl<'a> Figures<'a> {
    fn of(summary: &'a ReplaySummary, replay: &'a Replay, is_topspeed: bool) -> Figures<'a> {
        let (given, sent) = (replay.counters(), replay.sent());
        let lane = &summary.lane;
        let span_ns = sent.last_ns - sent.first_ns;
        let asked = match is_topspeed {
            true => None,
            false => Rate::of(given.tx_frames, given.tx_bytes, sent.due_ns),
        };
        let left_out: BTreeMap<DropReason, u64> = given.nonzero_drops().collect();
        // A lane may count as refused also what it could not hand on to the kernel's stack.
        let known = lane.tx_frames.saturating_add(lane.refused());
        Figures {
            summary,
            replay,
            span_ns,
            asked,
            achieved: Rate::of(lane.tx_frames, lane.tx_bytes, span_ns),
            read: given.tx_frames + left_out.values().sum::<u64>(),
            left_out,
            refused: lane.nonzero_drops().filter(|(reason, _)| reason.is_refusal()).collect(),
            unconfirmed: given.tx_frames.saturating_sub(known),
            given: given.clone(),
        }
    }

    fn json(&self, arguments: &ReplayArguments) -> Value {
        let (summary, replay) = (self.summary, self.replay);
        let names: Vec<String> =
            arguments.captures.iter().map(|path| path.display().to_string()).collect();
        json!({
            "verb": "gen",
            "source": "pcap",
            "captures": names,
            "lane": arguments.lane.to_string(),
            "interface": arguments.on,
            "timing": timing(arguments),
            "port": summary.caps,
            "passes": replay.passes(),
            "whole": replay.is_done() && replay.failure().is_none(),
            "read": self.read,
            "cut": replay.cut(),
            "left_out": self.left_out,
            "given": self.given.tx_frames,
            "sent": summary.lane.tx_frames,
            "sent_bytes": summary.lane.tx_bytes,
            "retries": summary.lane.tx_retries,
            "refused": self.refused,
            "unconfirmed": self.unconfirmed,
            "span_ns": self.span_ns,
            "asked": Rate::json(self.asked),
            "achieved": Rate::json(self.achieved),
            "late": replay.late(),
            "failure": summary.failure.as_ref().map(ToString::to_string)
                .or_else(|| replay.failure().map(str::to_owned)),
            "report": summary.report,
        })
    }

    fn print(&self, arguments: &ReplayArguments, lane: &LaneFacts) {
        let replay = self.replay;
        let end = if replay.is_done() { "" } else { ", ended before the captures did" };
        let verb = if lane.ports == Ports::Files { "written to" } else { "sent on" };
        terminal::note(&format!(
            "{} frames {verb} {} in {:.3} s, {} passes{end}",
            grouped(self.summary.lane.tx_frames),
            arguments.on,
            self.span_ns as f64 / 1e9,
            replay.passes(),
        ));
        let lines = self.lines();
        let lines: Vec<(&str, u64, &str)> =
            lines.iter().map(|(name, n, note)| (name.as_str(), *n, *note)).collect();
        terminal::note(aligned(&lines).trim_end());
        terminal::note(&rates(self.achieved, self.asked));
        if lane.ports != Ports::Files {
            lateness(replay);
        }
    }

    /// The ledger: each line with its number and a note.
    fn lines(&self) -> Vec<(String, u64, &'static str)> {
        let (lane, cut) = (&self.summary.lane, self.replay.cut());
        let reasons = |reasons: &BTreeMap<DropReason, u64>, note: &'static str| {
            let line =
                |(reason, &n): (&DropReason, &u64)| (format!("  {}", reason.name()), n, note);
            reasons.iter().map(line).collect::<Vec<_>>()
        };
        let mut lines = vec![("frames read".to_owned(), self.read, "")];
        lines.extend(reasons(&self.left_out, "left out"));
        lines.push(("  given to the lane".to_owned(), self.given.tx_frames, ""));
        lines.push(("    sent".to_owned(), lane.tx_frames, ""));
        if lane.tx_retries > 0 {
            let note = "times, because a queue was full";
            lines.push(("      offered again".to_owned(), lane.tx_retries, note));
        }
        lines.extend(reasons(&self.refused, "by the lane"));
        if self.unconfirmed > 0 {
            lines.push(("    on the way".to_owned(), self.unconfirmed, "when it ended"));
        }
        if cut > 0 {
            lines.push(("cut".to_owned(), cut, "the capture has only their beginning"));
        }
        lines.push(("bytes sent".to_owned(), lane.tx_bytes, ""));
        lines
    }
}

impl ReplaySummary {
    fn conclude(
        self,
        arguments: &ReplayArguments,
        replay: &Replay,
        lane: &LaneFacts,
        json: bool,
    ) -> Result<Exit, Failure> {
        let figures = Figures::of(&self, replay, arguments.topspeed);
        if json {
            terminal::print_json(&figures.json(arguments), false)?;
        } else {
            figures.print(arguments, lane);
        }
        if let Some(error) = &self.failure {
            return Err(error.into());
        }
        if let Some(why) = replay.failure() {
            return Err(Failure::input(why));
        }
        // io_uring tells of a frame when it is sent: the last ones are on the way at an interrupt.
        let Figures { unconfirmed, given, .. } = &figures;
        if *unconfirmed > 0 && (replay.is_done() || !lane.confirms_late) {
            return Err(Failure::Because(
                Exit::Invalid,
                format!(
                    "the ledger is open: {} frames given to the lane, {unconfirmed} without a fate; \
                     please report this with the command",
                    given.tx_frames
                ),
            ));
        }
        Ok(Exit::Done)
    }
}

fn timing(arguments: &ReplayArguments) -> Value {
    match plan(arguments).pacing {
        Pacing::Capture { multiplier } => json!({ "multiplier": multiplier }),
        Pacing::Frames { per_second } => json!({ "pps": per_second }),
        Pacing::Bits { per_second } => json!({ "mbps": per_second / 1e6 }),
        Pacing::Topspeed => json!("topspeed"),
    }
}

fn rates(achieved: Option<Rate>, asked: Option<Rate>) -> String {
    match (achieved, asked) {
        (None, _) => "rate: none, fewer than two frames at different times".to_owned(),
        (Some(achieved), None) => format!("rate: {}", achieved.text()),
        (Some(achieved), Some(asked)) => {
            format!("rate: {} (asked for {})", achieved.text(), asked.text())
        }
    }
}

/// Reports percentiles as far as there are enough frames to calculate them.
fn lateness(replay: &Replay) {
    let Some(late) = replay.late() else { return };
    let figures = [
        ("p50", late.p50_ns),
        ("p90", late.p90_ns),
        ("p99", late.p99_ns),
        ("p99.9", late.p999_ns),
        ("max", late.max_ns),
    ];
    let texts: Vec<String> = figures
        .iter()
        .filter_map(|(name, ns)| ns.map(|ns| format!("{name} {:.1} us", ns as f64 / 1e3)))
        .collect();
    if !texts.is_empty() {
        terminal::note(&format!("late: {}", texts.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_capture::{Layout, LinkType, Writer};
    use std::{env, process};

    #[test]
    fn a_rate_is_that_of_the_distances_between_frames() {
        let rate = Rate::of(11, 11_000, 10_000_000).unwrap();
        assert!((rate.pps - 1_000.0).abs() < 1e-9 && (rate.mbps - 8.0).abs() < 1e-9);
        assert_eq!((Rate::of(1, 60, 5), Rate::of(5, 300, 0)), (None, None));
    }

    #[test]
    fn what_the_lane_could_not_receive_was_not_refused() {
        let path = env::temp_dir().join(format!("laneway-generate-{}.pcap", process::id()));
        let capture = Writer::create(&path, Layout::Pcap, &[LinkType::Ethernet]).unwrap();
        capture.commit().unwrap();
        let replay = Replay::new(&Plan {
            captures: vec![path.clone()],
            passes: Some(1),
            pacing: Pacing::Topspeed,
            preload: false,
            unique_ip: false,
            count: None,
        });
        fs::remove_file(&path).unwrap();
        let mut lane = Counters::default();
        lane.drop_many(DropReason::RxQueueFull, 7);
        lane.drop_many(DropReason::TxTooLong, 2);
        let summary = ReplaySummary { lane, caps: None, report: None, failure: None };
        let replay = replay.unwrap();
        let figures = Figures::of(&summary, &replay, true);
        assert_eq!(figures.refused, BTreeMap::from([(DropReason::TxTooLong, 2)]));
    }
}
