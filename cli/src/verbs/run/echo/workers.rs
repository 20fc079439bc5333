//! `laneway run echo` with several workers: what each did, and what they did together.

use super::{Account, Plan, Shape, failure, say_doing, say_ports};
use crate::arguments::EchoArguments;
use crate::exit::{Exit, Failure};
use crate::ledger::grouped;
use crate::registry::{self, EchoWork, EchoWorkersRun, FateCounts, LaneEntry};
use crate::verbs::run::trace::RunTrace;
use crate::verbs::run::{end_after, lane_failure};
use crate::{interrupt, terminal};
use laneway_core::CapsReport;
use laneway_engine::{Stop, WorkerId, Workers};
use serde_json::{Map, Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A worker on each of `cpus`.
pub(super) fn run(
    arguments: &EchoArguments,
    entry: &LaneEntry,
    shape: Shape,
    plan: &Plan<'_>,
    cpus: &[usize],
    json: bool,
) -> Result<Exit, Failure> {
    let spec = &arguments.lane;
    let interfaces: Vec<&str> = arguments.on.iter().map(String::as_str).collect();
    let work = match plan {
        Plan::Pings(config, _) => EchoWork::Pings(&interfaces, config),
        Plan::Udp(service, config) => EchoWork::Udp(service, config),
        Plan::Tcp(service) => EchoWork::Tcp(service),
    };
    let stop = Stop::default();
    let trace = RunTrace::begin(arguments.trace.as_deref())?;
    let workers = Workers::new(cpus, stop.clone()).map_err(Failure::input)?;
    let workers = workers.traced(trace.slots(cpus)?);
    let to_stop = stop.clone();
    interrupt::on_signal(None, json, move || to_stop.request())?;
    let started = Mutex::new(None);
    let on_open = |worker: WorkerId, caps: &[CapsReport]| {
        let mut started = started.lock().unwrap_or_else(PoisonError::into_inner);
        if !json {
            let who = format!("worker {} on CPU {}: ", worker.0, cpus[worker.0]);
            say_ports(&who, arguments, plan, caps);
        }
        if started.is_none() {
            *started = Some(Instant::now());
            if !json {
                say_doing(arguments, plan);
            }
            end_after(arguments.duration, &stop);
        }
    };
    let run = registry::run_echo_workers(spec, &work, arguments.force, &workers, on_open);
    let run = run.map_err(|error| failure(&error, entry.lane, shape))?;
    let started = started.into_inner().unwrap_or_else(PoisonError::into_inner);
    let elapsed = started.map_or(Duration::ZERO, |started| started.elapsed());
    trace.end(json)?;
    let Some(together) = run.together() else {
        // A run without a failure has the reports of all, and there is at least one.
        let failed = run.failure.map(|(_, error)| lane_failure(&error));
        return failed.map_or(Ok(Exit::Done), Err);
    };
    let account = Account::of(&together, shape, entry.lane);
    if json {
        let each = run.report.workers.iter().zip(&run.fates).map(|(worker, fates)| {
            let fates = fates.as_ref().map(by_name);
            let (id, cpu, run) = (worker.worker, worker.cpu, &worker.run);
            json!({ "worker": id, "cpu": cpu, "fates": fates, "report": run })
        });
        let value = json!({
            "verb": "run",
            "app": "echo",
            "shape": shape.name(),
            "lane": spec.to_string(),
            "interfaces": interfaces,
            "addresses": arguments.address,
            "listen": arguments.listen,
            "seen": account.seen,
            "fates": by_name(&together.fates),
            "lane_drops": account.lane_drops,
            "closed": account.is_closed(),
            "failure": run.failure.as_ref().map(|(_, error)| error.to_string()),
            "elapsed_ns": elapsed.as_nanos() as u64,
            "workers": each.collect::<Vec<Value>>(),
        });
        terminal::print_json(&value, false)?;
    } else {
        terminal::note(account.table(&together, shape, elapsed).trim_end());
        terminal::note(by_worker(&run, shape).trim_end());
    }
    if let Some((_, error)) = &run.failure {
        return Err(lane_failure(error));
    }
    account.judge()
}

fn by_name(fates: &FateCounts) -> Map<String, Value> {
    fates.iter().map(|&(name, n)| (name.to_owned(), n.into())).collect()
}

/// A line per worker: what it saw, what it answered, what was lost on either way.
fn by_worker(run: &EchoWorkersRun, shape: Shape) -> String {
    let (seen, answered) = match shape {
        Shape::Tcp => ("accepted", "bytes sent back"),
        Shape::Pings | Shape::Udp => ("seen", "sent"),
    };
    let mut table =
        format!("{:<6}  {:>3}  {seen:>15}  {answered:>15}  {:>12}\n", "worker", "CPU", "lost");
    for (worker, fates) in run.report.workers.iter().zip(&run.fates) {
        let (id, cpu) = (worker.worker.0, worker.cpu);
        let line = match (&worker.run, fates) {
            (Some(report), Some(fates)) => {
                let counters = report.counters();
                let (seen, answered) = match shape {
                    Shape::Tcp => (fates.iter().map(|(_, n)| n).sum(), report.app.tx_bytes),
                    Shape::Pings | Shape::Udp => (counters.rx_frames, counters.tx_frames),
                };
                format!(
                    "{id:<6}  {cpu:>3}  {:>15}  {:>15}  {:>12}\n",
                    grouped(seen),
                    grouped(answered),
                    grouped(counters.lost()),
                )
            }
            _ => format!("{id:<6}  {cpu:>3}  never began\n"),
        };
        table.push_str(&line);
    }
    table
}
