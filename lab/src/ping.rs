//! The machine's own `ping` as a second probe: started where the generator is, on the generator's CPU,
//! once while nothing else is sent and once beside a load of our own, and read line by line.
//!
//! Its round trips are those it prints, in microseconds: from its own send call to the kernel's stamp
//! on the reply, a wake-up of `ping` and the sender's stack included. They are a table of their own and
//! never compared with the round trips of our probe. Beside a load it shares its CPU with a generator
//! that spins, so its own waiting for the CPU is in them, for every arm alike; it has the generator's
//! priority, or it would wait for milliseconds. Assumes `ping` in PATH with `-n -c -i -s -W`, and `setsid` and
//! `setpriv` (util-linux), the latter of which has the kernel kill it when the race is killed.

mod output;

use crate::child::GENERATOR_PRIORITY;
use crate::error::RaceError;
use crate::result::Ledger;
use crate::round_trips::RoundTrips;
use laneway_engine::pin_to_cpu;
use laneway_netns::Namespace;
use output::PingOutput;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

/// The program.
const PROGRAM: &str = "ping";
/// Becomes the program behind it, with a priority in its session and of its session (sched(7)), where it may.
const GO_FIRST: &str = r#"echo "$0" 2>/dev/null >/proc/self/autogroup; exec nice -n "$0" "$@""#;
/// Most pings of a trial: each is a line that is kept until it is read.
pub(crate) const PINGS_MAX: u32 = 10_000;
/// How long `ping` waits where no reply arrived at all, s. Where any arrived, iputils waits for the last one
/// only twice the longest round trip or an interval, whatever `-W` says (`__schedule_exit` in ping_common.c):
/// see [`PingTrial::is_cut`].
const LAST_WAIT_S: u32 = 5;

/// What a trial's pings are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PingOrder {
    pub(crate) destination: Ipv4Addr,
    pub(crate) pings: u32,
    pub(crate) interval_us: u32,
    pub(crate) payload_bytes: u16,
}

/// The result of the pings of a trial: sent = replied + no reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingTrial {
    /// Requests sent, by its own summary.
    pub sent: u64,
    /// Requests replied to, by its lines and its summary alike.
    pub replied: u64,
    /// Replies to a request that had one.
    pub duplicates: u64,
    /// Its own last line, for comparison: min, avg, max, mdev, ms; mdev where it tells.
    #[serde(alias = "said_ms")]
    pub summary_ms: Option<[Option<f64>; 4]>,
    /// As printed, line by line.
    pub round_trips: RoundTrips,
    /// The last request had no reply when `ping` ended, while others had: it may have been lost, or `ping` was
    /// impatient on a host that is busy. The two cannot be distinguished.
    #[serde(skip)]
    pub(crate) is_cut: bool,
    /// What was offered meanwhile, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<PingLoad>,
}

/// What was offered while `ping` ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingLoad {
    /// Requests of ours per second.
    pub pps: u64,
    /// Where every one of them and every ping went: a host that drops one cannot tell them apart.
    pub ledger: Ledger,
}

/// Its version, as it says; `None` where there is none.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(PROGRAM).arg("-V").env("LC_ALL", "C").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default().trim();
    // A ping without -V is one all the same.
    let line = if line.is_empty() { "ping of unknown version" } else { line };
    Some(line.chars().filter(|c| !c.is_control()).take(80).collect())
}

/// Pings from `namespace` on `cpu`, and waits for the end.
pub(crate) fn run(
    namespace: &Namespace,
    cpu: usize,
    order: PingOrder,
) -> Result<PingTrial, RaceError> {
    let failed = |why: String| RaceError::Child { what: PROGRAM.to_owned(), why };
    let output = namespace.enter(|| {
        // The child stays where its parent is.
        pin_to_cpu(cpu)?;
        // Killed with this thread, and so with the race.
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "setsid", "sh", "-c", GO_FIRST])
            .arg(GENERATOR_PRIORITY.to_string())
            .arg(PROGRAM)
            .args(arguments(order))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(format!("{error}; try `apt install iputils-ping`")))
    })??;
    let text = String::from_utf8_lossy(&output.stdout);
    let output = output::read(&text).map_err(|why| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let words: String = stderr.chars().filter(|c| !c.is_control()).take(200).collect();
        failed(format!("{why} ({}; {words})", output.status))
    })?;
    trial(output).map_err(failed)
}

fn arguments(order: PingOrder) -> [String; 10] {
    let interval_s = f64::from(order.interval_us) / 1e6;
    [
        "-n".to_owned(),
        format!("-c{}", order.pings),
        "-i".to_owned(),
        format!("{interval_s:.6}"),
        "-s".to_owned(),
        order.payload_bytes.to_string(),
        "-W".to_owned(),
        LAST_WAIT_S.to_string(),
        "--".to_owned(),
        order.destination.to_string(),
    ]
}

/// Its lines and its summary must tell the same.
fn trial(output: PingOutput) -> Result<PingTrial, String> {
    let replied = output.replies_ns.len() as u64;
    if output.received != replied || output.sent < replied {
        return Err(format!(
            "its summary says {} of {} received, and it printed {replied} replies",
            output.received, output.sent
        ));
    }
    let mut round_trips = RoundTrips::default();
    output.replies_ns.iter().for_each(|&ns| round_trips.record(ns));
    round_trips.miss(output.sent - replied);
    Ok(PingTrial {
        sent: output.sent,
        replied,
        duplicates: output.duplicates,
        summary_ms: output.summary_ms,
        round_trips,
        is_cut: replied > 0 && output.last_replied < output.sent,
        load: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_that_contradicts_the_lines_is_refused() {
        let output = |sent, received| PingOutput {
            sent,
            received,
            duplicates: 0,
            last_replied: 2,
            replies_ns: vec![45_000, 47_000],
            summary_ms: None,
        };
        let kept = trial(output(3, 2)).unwrap();
        assert_eq!((kept.sent, kept.replied, kept.round_trips.n()), (3, 2, 2));
        assert!(kept.is_cut, "the third was not waited for");
        assert!(
            !trial(PingOutput { last_replied: 3, ..output(3, 2) }).unwrap().is_cut,
            "one before was lost"
        );
        assert!(!trial(output(2, 2)).unwrap().is_cut);
        for (sent, received) in [(3, 3), (3, 1), (1, 2)] {
            let refused = trial(output(sent, received)).unwrap_err();
            assert!(refused.contains("printed 2 replies"), "{refused}");
        }
    }
}
