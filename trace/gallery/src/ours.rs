//! A recording of our own worker: `laneway run ... --trace`, as a user runs it, under traffic over cables.
//!
//! What is true of it is known from the run's ledger (its `--json` report), the generator's report, and the scheduler.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::traffic::{self, Frames, Pace};
use crate::watch::{Task, Watch};
use crate::world::{Cables, NotMade, Running, World, json, last_words};

/// How long a worker may take until its trace has begun: DPDK looks for its memory first.
const READY: Duration = Duration::from_secs(20);
/// From the opening of its ports until traffic may be sent.
const SETTLE: Duration = Duration::from_millis(80);
/// It is asked to end when the traffic has; this much later it ends in any case, ms.
const SPARE_MS: u64 = 60_000;

/// A program that takes a CPU away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neighbour {
    /// Which.
    pub(crate) cpu: u64,
    /// Busy for so long, us, ...
    pub(crate) busy_us: u64,
    /// ... in every so many.
    pub(crate) period_us: u64,
}

/// What is run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// App and its arguments.
    pub(crate) app: Vec<&'static str>,
    /// Lane, with its knobs.
    pub(crate) lane: String,
    /// Interfaces, at most 2; 0 where the lane makes its own.
    pub(crate) ports: u8,
    /// Workers.
    pub(crate) workers: u64,
    /// The CPU it is kept on.
    pub(crate) cpu: Option<u64>,
    /// With what the kernel does.
    pub(crate) kernel: bool,
    /// How long, ms.
    pub(crate) ms: u64,
    /// Traffic on the first interface, from so many ms after the beginning.
    pub(crate) traffic: Option<(Frames, Pace, u64)>,
    /// What runs beside it.
    pub(crate) neighbour: Option<Neighbour>,
    /// The last interface sends no faster, kbit/s.
    pub(crate) link_kbit: Option<u64>,
}

impl Plan {
    /// App `features` that drops and writes nothing, on one interface for `ms`.
    #[must_use]
    pub(crate) fn features(lane: impl Into<String>, ms: u64) -> Plan {
        Plan {
            app: vec!["features", "-o", "none"],
            lane: lane.into(),
            ports: 1,
            workers: 1,
            cpu: None,
            kernel: false,
            ms,
            traffic: None,
            neighbour: None,
            link_kbit: None,
        }
    }

    /// App `forward` between two interfaces for `ms`.
    #[must_use]
    pub(crate) fn forward(lane: impl Into<String>, ms: u64) -> Plan {
        Plan { app: vec!["forward"], ports: 2, ..Plan::features(lane, ms) }
    }

    fn command(&self, world: &World, trace: &Path) -> Vec<String> {
        let own = world.laneway().display().to_string();
        let folder = trace.display().to_string();
        let mut words = Vec::new();
        if self.kernel {
            words.extend(
                [&own, "trace", "record", "--kernel", "--out", &folder, "--", &own]
                    .map(str::to_owned),
            );
        } else {
            words.push(own);
        }
        words.push("run".to_owned());
        words.extend(self.app.iter().map(|word| (*word).to_owned()));
        let on: Vec<String> = (0..self.ports).map(|n| format!("sut{n}")).collect();
        words.extend(["--lane".to_owned(), self.lane.clone()]);
        if !on.is_empty() {
            words.extend(["--on".to_owned(), on.join(",")]);
        }
        words.extend([
            "--json".to_owned(),
            "--duration".to_owned(),
            format!("{}ms", self.ms + SPARE_MS),
        ]);
        if self.workers > 1 {
            words.extend(["--workers".to_owned(), self.workers.to_string()]);
        }
        if let Some(cpu) = self.cpu {
            words.extend(["--cpu".to_owned(), cpu.to_string()]);
        }
        if !self.kernel {
            words.extend(["--trace".to_owned(), folder]);
        }
        words
    }
}

/// What was recorded, and what else is known of it.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The trace.
    pub(crate) trace: PathBuf,
    /// Frames that the worker took.
    pub(crate) received: u64,
    /// Frames that lane or app dropped, by reason.
    pub(crate) drops: BTreeMap<String, u64>,
    /// Frames that were sent to it and are neither.
    pub(crate) elsewhere: u64,
    /// Frames taken by each worker.
    pub(crate) shares: Vec<u64>,
    /// The run, ns.
    pub(crate) elapsed_ns: u64,
    /// Its threads, by number.
    pub(crate) tasks: BTreeMap<u32, Task>,
}

impl Recorded {
    /// All frames lost, for whatever reason.
    #[must_use]
    pub(crate) fn lost(&self) -> u64 {
        self.drops.values().sum::<u64>() + self.elsewhere
    }

    /// How long its busiest thread was kept off the CPU, ns.
    #[must_use]
    pub(crate) fn delayed_ns(&self) -> u64 {
        self.busiest().map_or(0, |task| task.delayed_ns)
    }

    /// The thread that had most to do: of a worker that spins, the worker.
    #[must_use]
    pub(crate) fn busiest(&self) -> Option<&Task> {
        self.tasks.values().max_by_key(|task| task.ran_ns + task.delayed_ns)
    }
}

/// Records it into `folder`.
///
/// # Errors
/// Whatever failed, with its message.
pub(crate) fn record(world: &World, plan: &Plan, folder: &Path) -> Result<Recorded, NotMade> {
    let cables = Cables::lay(plan.ports)?;
    if let Some(kbit) = plan.link_kbit {
        slow_link(&cables, plan.ports - 1, kbit)?;
    }
    let generator = plan.traffic.map(|(frames, pace, begin_ms)| {
        let send_ms = plan.ms.saturating_sub(begin_ms + plan.ms / 10).max(50);
        let capture = folder.join("sent.pcap");
        let words = traffic::write(&capture, frames, pace, send_ms)?;
        let mut command = cables.generator.command(world.laneway());
        command.args(["gen", "pcap"]).arg(&capture).args(["--on", "gen0", "--json", "--preload"]);
        command.args(words).args(["--duration".to_owned(), format!("{send_ms}ms")]);
        if thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
            command.args(["--cpu", "1"]);
        }
        Ok::<_, NotMade>((command, begin_ms))
    });
    let generator = generator.transpose()?;

    let trace = folder.join("trace");
    let words = plan.command(world, &trace);
    let mut command = cables.worker.command(&words[0]);
    command.args(&words[1..]);
    let mut worker = Running::start("the worker", &mut command)?;
    let watch = Watch::begin(worker.pid(), plan.kernel);
    until_open(&cables, plan, &trace, &mut worker)?;
    let neighbour = plan.neighbour.map(|n| neighbour(world, n, plan.ms)).transpose()?;
    thread::sleep(SETTLE);
    let sent = match generator {
        Some((mut command, begin_ms)) => {
            thread::sleep(Duration::from_millis(begin_ms));
            let output = Running::start("the generator", &mut command)?.end()?;
            thread::sleep(Duration::from_millis(plan.ms / 10));
            json("the generator", &output.stdout)?["sent"].as_u64().unwrap_or(0)
        }
        None => {
            thread::sleep(Duration::from_millis(plan.ms));
            0
        }
    };
    worker.interrupt(plan.kernel)?;
    let output = worker.end()?;
    drop(neighbour);
    let mut recorded = account(&json("the worker", &output.stdout)?, sent)?;
    recorded.tasks = watch.end();
    recorded.trace = trace;
    Ok(recorded)
}

/// What the run's report says.
fn account(report: &Value, sent: u64) -> Result<Recorded, NotMade> {
    let whole = &report["report"];
    let mut drops = BTreeMap::new();
    let mut received = 0;
    let ports = whole["ports"].as_array();
    let ports = ports.ok_or_else(|| NotMade::Failed("a report without ports".to_owned()))?;
    for counters in ports.iter().map(|port| &port["counters"]).chain([&whole["app"]]) {
        for (reason, count) in counters["drops"].as_object().into_iter().flatten() {
            *drops.entry(reason.clone()).or_insert(0) += count.as_u64().unwrap_or(0);
        }
    }
    for port in ports {
        received += port["counters"]["rx_frames"].as_u64().unwrap_or(0);
    }
    let missed: u64 =
        drops.iter().filter(|(reason, _)| reason.starts_with("rx_")).map(|(_, count)| count).sum();
    let shares = report["workers"].as_array().into_iter().flatten();
    let shares = shares.filter_map(|worker| {
        let ports = worker["report"]["ports"].as_array()?;
        Some(ports.iter().filter_map(|port| port["counters"]["rx_frames"].as_u64()).sum())
    });
    Ok(Recorded {
        trace: PathBuf::new(),
        received,
        elsewhere: sent.saturating_sub(received + missed),
        drops,
        shares: shares.collect(),
        elapsed_ns: report["elapsed_ns"].as_u64().unwrap_or(0),
        tasks: BTreeMap::new(),
    })
}

/// Waits until every port hears what comes: its trace begins before that.
fn until_open(
    cables: &Cables,
    plan: &Plan,
    trace: &Path,
    worker: &mut Running,
) -> Result<(), NotMade> {
    let began = Instant::now();
    // One that ends early says why when it is waited for.
    while worker.runs() && began.elapsed() < READY {
        thread::sleep(Duration::from_millis(10));
        if trace.join("worker-0.lwt").exists() && ports_open(cables, plan, trace)? {
            break;
        }
    }
    Ok(())
}

fn ports_open(cables: &Cables, plan: &Plan, trace: &Path) -> Result<bool, NotMade> {
    let ports = usize::from(plan.ports);
    if ports == 0 {
        // A device that always has frames fills the trace as soon as it is there.
        return Ok(fs::metadata(trace.join("worker-0.lwt")).is_ok_and(|file| file.len() > 0));
    }
    if plan.lane.starts_with("afxdp") {
        let output = cables.worker.command("ip").args(["-o", "link", "show"]).output();
        let text = output.map_err(|error| NotMade::Failed(format!("ip link: {error}")))?.stdout;
        let text = String::from_utf8_lossy(&text);
        return Ok(text
            .lines()
            .filter(|line| line.contains("sut") && line.contains("xdp"))
            .count()
            >= ports);
    }
    // A line per packet socket below the heading; a worker has one of each port at least.
    let sockets = cables.worker.enter(|| fs::read_to_string("/proc/thread-self/net/packet"))?;
    Ok(sockets.unwrap_or_default().lines().count() > ports * plan.workers as usize)
}

/// Starts a program that takes `n.cpu` for longer than `ms`.
///
/// # Errors
/// Without a C compiler.
pub(crate) fn neighbour(world: &World, n: Neighbour, ms: u64) -> Result<Running, NotMade> {
    let mut command = Command::new(world.worker()?);
    command.arg("neighbour=1").args([
        format!("cpu={}", n.cpu + 1),
        format!("busy_us={}", n.busy_us),
        format!("period_us={}", n.period_us),
        format!("milliseconds={}", ms * 4 + 5_000),
    ]);
    Running::start("the neighbour", &mut command)
}

fn slow_link(cables: &Cables, port: u8, kbit: u64) -> Result<(), NotMade> {
    let (interface, rate) = (format!("sut{port}"), format!("{kbit}kbit"));
    let words = [
        "qdisc", "add", "dev", &interface, "root", "tbf", "rate", &rate, "burst", "16kb", "limit",
        "32kb",
    ];
    let output = cables.worker.command("tc").args(words).output();
    let output = output.map_err(|error| NotMade::Skipped(format!("no tc (iproute2): {error}")))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(NotMade::Skipped(format!("tc: {}", last_words(&output.stderr))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_sent_and_is_neither_taken_nor_dropped_is_lost_elsewhere() {
        let report = json!({
            "elapsed_ns": 7,
            "report": {
                "app": {"drops": {}},
                "ports": [
                    {"counters": {"rx_frames": 60, "drops": {"rx_queue_full": 30}}},
                    {"counters": {"rx_frames": 0, "drops": {"tx_refused": 5}}},
                ],
            },
        });
        let recorded = account(&report, 100).expect("a report");
        assert_eq!((recorded.received, recorded.elsewhere, recorded.lost()), (60, 10, 45));
        assert_eq!(recorded.drops["tx_refused"], 5);
        assert!(account(&json!({}), 1).is_err());
    }
}
