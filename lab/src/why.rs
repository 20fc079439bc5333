//! Why an arm is as fast as it is: what a trace of one further segment says of its worker, as data.
//!
//! ```text
//!  the last block ─▶ per arm: a fresh, traced trial of the last load ─▶ OUT/traces/ARM/worker-0.lwt
//!                                                                            │ Explain (the binary's)
//!          RaceResult::traces ◀── shares, polls, stages, detectors, advice ◀─┘──▶ OUT/traces/ARM.html
//! ```
//!
//! The lab records and shows; what a trace means is the analysis's business, which is handed in by the program that
//! starts the race ([`Explain`]), as its lanes are. What must always hold: nothing here is measured for a verdict, no
//! figure of a traced segment stands in a table of the race, and an arm without an explanation says why.

use laneway_kinds::Peer;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The folder of all traces, in that of the race.
pub(crate) const TRACES: &str = "traces";

/// The fact of an arm that is traced while it is measured, because its scenario asks what tracing costs.
pub(crate) const TRACER: &str = "tracer";

/// Reads traces. The lab knows no format of theirs.
pub trait Explain {
    /// Reads the trace in a folder and writes its page.
    ///
    /// # Errors
    /// A sentence.
    fn explain(&self, recorded: &Recorded<'_>) -> Result<Explanation, String>;
}

/// A trace that was recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// Its folder.
    pub folder: &'a Path,
    /// Where its page goes.
    pub page: &'a Path,
    /// Frames of the segment that were lost, wherever, by its ledger.
    pub lost_frames: u64,
}

/// One arm in [`RaceResult::traces`](crate::result::RaceResult::traces).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedArm {
    /// Index into `arms`.
    pub arm: usize,
    /// Index into `loads_pps`: what was offered while it was traced.
    pub load: usize,
    /// Why there is no explanation.
    #[serde(default, alias = "untold", skip_serializing_if = "Option::is_none")]
    pub untraced_reason: Option<String>,
    /// The trace's folder, below that of the race.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Its page, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// The arm with a tracer beside the same arm without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<TracingCost>,
    /// What the trace says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
}

/// One traced segment beside the measured ones at the same load. No verdict: it is one segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracingCost {
    /// Records delivered per second while the arm was traced.
    pub traced_records_per_s: f64,
    /// In the measured segments: median, minimum, maximum over rounds.
    pub records_per_s: Option<[f64; 3]>,
    /// CPU ns per record while the arm was traced, the thread that writes the trace included.
    pub traced_cpu_ns_per_record: Option<f64>,
    /// In the measured segments: median, minimum, maximum over rounds.
    pub cpu_ns_per_record: Option<[f64; 3]>,
    /// Why the traced segment could not be used if it were a measured one; empty if it could.
    pub doubts: Vec<String>,
}

/// What the trace of one worker says. Times per frame have the tracer's own cost taken off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// From the first event to the last, ns.
    pub span_ns: u64,
    /// Events read.
    pub events: u64,
    /// Events that found no room in the tracer's ring or in its file.
    pub lost: u64,
    /// What must be known of the trace, and what it therefore does not say; whole sentences.
    pub limits: Vec<String>,
    /// Where the worker's time went.
    pub shares: Shares,
    /// Frames that the worker received.
    pub frames: Option<u64>,
    /// Calls that looked for frames.
    pub polls: u64,
    /// Of them, those that found none.
    pub empty_polls: u64,
    /// Frames per call that found some, mean.
    pub frames_per_productive_poll: Option<f64>,
    /// Time per frame by stage, in order of work.
    pub stages: Vec<Stage>,
    /// What the account of the worker's time names as wrong, whole sentences, losses first, then by share of the time;
    /// `None` where the trace holds no account.
    #[serde(default)]
    pub causes: Option<Vec<String>>,
    /// The detectors whose condition holds.
    pub fired: Vec<Detection>,
    /// Detectors that looked and found nothing; that have too many holes to look through; that need what
    /// such a trace does not hold.
    pub silent: [usize; 3],
    /// What may be worth trying.
    pub advice: Vec<Advice>,
}

/// Shares of the time that the trace covers, 0 to 1; together 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// The app's own work.
    pub application: f64,
    /// The lane and its driver: receiving, sending, giving frames back; system calls included.
    pub lane: f64,
    /// Blocked until something may be there.
    pub waiting: f64,
    /// Looking for frames where there were none.
    pub empty_polls: f64,
    /// The tracer, by its own calibration.
    pub tracer: f64,
    /// Between recorded calls.
    pub other: f64,
}

/// One stage of a frame's way through the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name: `receive`, `app`, `send and release`.
    pub name: String,
    /// True for the app's own work.
    pub is_app: bool,
    /// Time per frame received, ns.
    pub ns_per_frame: f64,
}

/// A detector that fired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// `D1` to `D12`.
    pub id: String,
    /// What it looks for.
    pub title: String,
    /// Its figure.
    pub value: Option<f64>,
    /// The 95 % interval of it.
    pub interval: Option<[f64; 2]>,
    /// Unit of both.
    pub unit: String,
    /// `low`, `medium` or `high`.
    pub confidence: String,
    /// What was found, with figures.
    pub sentence: String,
}

/// Something that may be worth trying.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What to do.
    pub text: String,
    /// The findings that it rests on.
    pub because: String,
    /// What should change if it is right.
    pub expected: String,
    /// The command that tells whether it is.
    pub confirm: String,
}

/// Why an arm that is no worker of ours has no trace.
pub(crate) fn untraced_reason_of_peer(peer: Peer) -> String {
    match peer {
        Peer::Stack => "the kernel's own stack answers: there is no worker to trace".to_owned(),
        Peer::Smcroute => {
            "the kernel routes, as smcrouted set it up: there is no worker to trace".to_owned()
        }
        Peer::Bridge => "the kernel's bridge forwards: there is no worker to trace".to_owned(),
        Peer::XdpBench => "a foreign program, whose work is an XDP program in the kernel; our \
                           tracer is in our workers only"
            .to_owned(),
        Peer::Command | Peer::RedisServer => {
            "a foreign program, and our tracer is in our workers only".to_owned()
        }
        Peer::Testpmd => "a foreign program, and our tracer is in our workers only; \
                          `laneway trace record --help` says how DPDK's own is switched on"
            .to_owned(),
    }
}

/// A folder's name for an arm's trace: the arm's, without what a shell, a path or a link would take for its own.
/// It has no dot: names with one are those of pages, and of what is not whole yet.
pub(crate) fn folder_name(arm: &str, taken: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=,:+".contains(c);
    let plain = arm.chars().map(|c| if is_plain(c) { c } else { '-' }).collect::<String>();
    let plain = plain.trim_matches('-');
    let plain = if plain.is_empty() { "arm" } else { plain };
    let others = (2..).map(|n| format!("{plain}-{n}"));
    let mut names = std::iter::once(plain.to_owned()).chain(others);
    names.find(|name| !taken.contains(name)).expect("there are more names than arms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arms_folder_is_one_folder_whatever_the_arm_is_called() {
        for (arm, folder) in [
            ("tap", "tap"),
            ("burst=256", "burst=256"),
            ("one queue", "one-queue"),
            ("dpdk:net_tap,rxq=2", "dpdk:net_tap,rxq=2"),
            ("../../etc/x", "etc-x"),
            ("..", "arm"),
            ("tap.html", "tap-html"),
            ("", "arm"),
            ("a\n<b>", "a--b"),
        ] {
            assert_eq!(folder_name(arm, &[]), folder, "{arm}");
        }
        let taken = ["one-queue".to_owned(), "one-queue-2".to_owned()];
        assert_eq!(folder_name("one/queue", &taken), "one-queue-3");
    }

    #[test]
    fn every_peer_says_why_it_has_no_trace() {
        for peer in [
            Peer::Testpmd,
            Peer::Stack,
            Peer::Bridge,
            Peer::XdpBench,
            Peer::Smcroute,
            Peer::RedisServer,
            Peer::Command,
        ] {
            let why = untraced_reason_of_peer(peer);
            assert!(why.contains("worker"), "{why}");
        }
    }
}
