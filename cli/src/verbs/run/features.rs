//! `laneway run features`: rows from a live lane, by one worker or several.
//!
//! The output is made before the lane is opened: a program is attached to an interface only when its
//! rows have a place to go. The rows of all workers go through a queue to one thread that writes them: no
//! worker waits for a disk. On a capture, which can wait, a worker does rather than lose rows.

use super::live::{Finished, Live, on};
use super::trace::RunTrace;
use super::worker_cpus;
use crate::arguments::LiveArguments;
use crate::extraction::{Extraction, output_failure, strictly};
use laneway_core::{ClockDomain, LaneError};
use laneway_engine::{Ended, Stop, usable_cpus};
use laneway_features::{
    Aggregation, Disposition, FeaturesKind, FeaturesRun, Ledger, Level, Queue, RowSink, RowWriter,
    Sink, Sinks, WhenFull,
};
use laneway_flow::{EndedFlow, Record};
use laneway_kinds::{LaneFacts, Shape};
use laneway_linux::{starting_on, unix_offset_ns};
use laneway_page::text::grouped;
use laneway_registry::{LaneTable, facts_of};
use laneway_terminal as terminal;
use laneway_terminal::{Exit, Failure};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(super) fn run<L: LaneTable>(arguments: &LiveArguments, json: bool) -> Result<Exit, Failure> {
    let spec = &arguments.lane;
    let lane = facts_of::<L>(spec).map_err(Failure::input)?;
    let mut plan = arguments.extract.plan()?;
    plan.config.disposition = disposition(arguments, lane)?;
    if arguments.in_kernel {
        if !lane.carries.has(Shape::Kernel) || plan.config.level != Level::Flow {
            return Err(Failure::input(format!(
                "--in-kernel puts flows together in an XDP program, and this is lane {} at level \
                 {}; use --lane xdp --level flow",
                lane.name,
                if plan.config.level == Level::Flow { "flow" } else { "packet" },
            )));
        }
        plan.config.aggregation = Aggregation::Kernel;
    }
    let cpus = worker_cpus(arguments.workers, &arguments.cpus)?;
    plan.fact("lane", spec);
    for (index, interface) in arguments.on.iter().enumerate() {
        plan.fact(&format!("interface.{index}"), interface);
    }
    let (offset_ns, when_full) = match lane.clock {
        ClockDomain::Monotonic => (unix_offset_ns(), WhenFull::Lose),
        ClockDomain::Unix | ClockDomain::Virtual => (0, WhenFull::Wait),
    };
    let trace = RunTrace::begin(arguments.trace.as_deref())?;
    let (tables, output) = plan.open_output(offset_ns)?;
    let partial = output.partial_path().map(Path::to_owned);
    let worker_cpus = cpus.as_deref().unwrap_or(arguments.cpu.as_slice());
    let queue = Queue::new(&plan.config, worker_cpus.len(), when_full);
    let writer_cpus = writer_cpus(arguments.writer_cpu, worker_cpus)?;
    let writer = starting_on(&writer_cpus, || RowWriter::start(tables, output, queue))
        .map_err(Failure::from)?
        .map_err(output_failure)?;
    let count = Count::new(arguments.count);
    let stop = Stop::default();
    let to_stop = stop.clone();
    terminal::on_signal(partial, json, move || to_stop.request())?;

    let live = Live {
        spec,
        interfaces: &arguments.on,
        force: arguments.force,
        duration: arguments.duration,
        cpu: arguments.cpu,
        cpus: cpus.as_deref(),
        json,
    };
    let sinks = LimitedRows { writer: &writer, count: &count };
    let run = FeaturesRun { config: plan.config.clone(), sinks };
    let finished = live.run::<FeaturesKind<LimitedRows<'_>>, L>(
        &run,
        &trace,
        &stop,
        &on(&arguments.on),
        || (),
    );
    let finished = finished?.map_err(Failure::from)?;
    let told = Told::of(finished, cpus.as_deref());
    let rows = writer
        .into_output()
        .and_then(|mut output| {
            if let Some(error) = &told.failure {
                output.mark_incomplete(error.to_string());
            }
            output.finish(&told.ledger.losses())
        })
        .map_err(output_failure)?;
    let outcome = told.conclude(arguments, &plan, &count, rows, json);
    trace.end(json)?;
    outcome
}

/// What becomes of a frame that was looked at. Where passing it on has a price, the user says which it is to be.
fn disposition(arguments: &LiveArguments, lane: &LaneFacts) -> Result<Disposition, Failure> {
    match (arguments.drop, arguments.pass, lane.passing_costs) {
        (true, ..) => Ok(Disposition::Drop),
        (false, false, Some(costs)) => Err(Failure::input(format!(
            "lane {} takes frames away from the kernel, and giving one back costs {costs}: say --drop \
             (frames end here, which costs nothing) or --pass (they go on to the kernel's stack)",
            lane.name
        ))),
        _ => Ok(Disposition::Pass),
    }
}

/// Where the writer may run: the CPU asked for, or every CPU that no worker is kept on, if one is left.
fn writer_cpus(asked: Option<usize>, workers: &[usize]) -> Result<Vec<usize>, Failure> {
    if let Some(cpu) = asked {
        return Ok(vec![cpu]);
    }
    let usable = usable_cpus().map_err(Failure::input)?;
    let left: Vec<usize> = usable.iter().copied().filter(|cpu| !workers.contains(cpu)).collect();
    Ok(if left.is_empty() { usable } else { left })
}

/// The rows of every worker to one writer, up to a count.
struct LimitedRows<'a> {
    writer: &'a RowWriter,
    count: &'a Count,
}

impl Sinks for LimitedRows<'_> {
    type Sink = Limited;

    fn open(&self, _worker: usize) -> Limited {
        Limited { rows: self.writer.sink(), count: self.count.clone() }
    }
}

/// What a run left behind.
struct Told {
    ledger: Ledger,
    failure: Option<LaneError>,
    ended: Ended,
    elapsed: Duration,
    /// For a person, below the ledger; empty with one worker.
    table: String,
    /// What the program's JSON holds beside.
    facts: Vec<(&'static str, Value)>,
}

impl Told {
    fn of(finished: Finished<Ledger>, cpus: Option<&[usize]>) -> Told {
        let Finished { ran, ports, elapsed } = finished;
        let (mut ledger, mut ended) = (Ledger::default(), Ended::Failed);
        if let Some((run, sum)) = ran.together() {
            (ledger, ended) = (sum, run.ended);
        }
        let failure = ran.failure.map(|(_, error)| error);
        let (table, facts) = match cpus {
            None => {
                let run = ran.workers.first().and_then(|worker| worker.run.as_ref());
                (String::new(), vec![("ports", json!(ports)), ("report", json!(run))])
            }
            Some(cpus) => {
                let each: Vec<Value> = ran
                    .workers
                    .iter()
                    .enumerate()
                    .map(|(id, worker)| {
                        let (cpu, ledger, run) = (worker.cpu, &worker.report, &worker.run);
                        json!({ "worker": id, "cpu": cpu, "ledger": ledger, "report": run })
                    })
                    .collect();
                let ledgers: Vec<_> = ran.workers.into_iter().map(|worker| worker.report).collect();
                (by_worker(cpus, &ledgers), vec![("workers", Value::Array(each))])
            }
        };
        Told { ledger, failure, ended, elapsed, table, facts }
    }
}

/// A line per worker: what it saw, what became rows, what was lost.
fn by_worker(cpus: &[usize], ledgers: &[Option<Ledger>]) -> String {
    let mut table = format!(
        "{:<6}  {:>3}  {:>15}  {:>15}  {:>12}\n",
        "worker", "CPU", "seen", "delivered", "lost"
    );
    for (worker, (cpu, ledger)) in cpus.iter().zip(ledgers).enumerate() {
        let line = match ledger {
            None => format!("{worker:<6}  {cpu:>3}  never began\n"),
            Some(ledger) => format!(
                "{worker:<6}  {cpu:>3}  {:>15}  {:>15}  {:>12}\n",
                grouped(ledger.seen),
                grouped(ledger.delivered),
                grouped(ledger.lost()),
            ),
        };
        table.push_str(&line);
    }
    table
}

impl Told {
    /// Says what there is to say, and judges.
    fn conclude(
        self,
        arguments: &LiveArguments,
        plan: &Extraction,
        count: &Count,
        rows: u64,
        json: bool,
    ) -> Result<Exit, Failure> {
        let ledger = &self.ledger;
        if json {
            let mut value = json!({
                "verb": "run",
                "app": "features",
                "lane": arguments.lane.to_string(),
                "interfaces": arguments.on,
                "output": plan.output_file().map(terminal::path_json),
                "rows": rows,
                "rows_beyond_count": count.beyond(),
                "ledger": ledger,
                "closed": ledger.is_closed(),
                "failure": self.failure.as_ref().map(ToString::to_string),
                "elapsed_ns": self.elapsed.as_nanos() as u64,
            });
            for (name, fact) in self.facts {
                value[name] = fact;
            }
            terminal::print_json(&value, plan.to_stdout())?;
        } else {
            let why = match self.ended {
                Ended::Exhausted => ", to the end of the input",
                Ended::App if count.is_reached() => ", to the count asked for",
                _ => "",
            };
            terminal::note(&format!(
                "{} rows to {} in {:.1} s{why}",
                grouped(rows),
                plan.output_name(),
                self.elapsed.as_secs_f64(),
            ));
            terminal::note(ledger.table().trim_end());
            if !self.table.is_empty() {
                terminal::note(self.table.trim_end());
            }
        }
        if let Some(error) = &self.failure {
            return Err(error.into());
        }
        if let Some(complaint) = ledger.complaint() {
            return Err(Failure::Because(Exit::Invalid, complaint));
        }
        strictly(ledger, arguments.extract.strict)
    }
}

/// How many rows are wanted, over all workers. Without a limit nothing is shared per row.
#[derive(Clone)]
struct Count(Option<Arc<Wanted>>);

struct Wanted {
    rows: u64,
    offered: AtomicU64,
}

impl Count {
    fn new(rows: Option<u64>) -> Count {
        Count(rows.map(|rows| Arc::new(Wanted { rows, offered: AtomicU64::new(0) })))
    }

    /// True when one more row is wanted; what comes behind the last one is counted.
    #[inline]
    fn admits(&self) -> bool {
        // Relaxed, here and below: only the number counts.
        let offer = |wanted: &Arc<Wanted>| wanted.offered.fetch_add(1, Ordering::Relaxed);
        self.0.as_ref().is_none_or(|wanted| offer(wanted) < wanted.rows)
    }

    fn is_reached(&self) -> bool {
        self.0.as_ref().is_some_and(|w| w.offered.load(Ordering::Relaxed) >= w.rows)
    }

    /// Rows that were made although enough were there.
    fn beyond(&self) -> u64 {
        let beyond = |w: &Arc<Wanted>| w.offered.load(Ordering::Relaxed).saturating_sub(w.rows);
        self.0.as_ref().map_or(0, beyond)
    }
}

/// Rows up to a count.
struct Limited {
    rows: RowSink,
    count: Count,
}

impl Sink for Limited {
    // A row for which there is no room does not count as one of those that were wanted.
    #[inline]
    fn packet(&mut self, record: &Record) {
        if !self.rows.has_room() {
            self.rows.lose_packet();
        } else if self.count.admits() {
            self.rows.packet(record);
        }
    }

    fn flow(&mut self, ended: &EndedFlow<'_>) {
        if !self.rows.has_room() {
            self.rows.lose_flow(ended);
        } else if self.count.admits() {
            self.rows.flow(ended);
        }
    }

    fn tick(&mut self, now_ns: u64) {
        self.rows.tick(now_ns);
    }

    fn take_time(&mut self) {
        self.rows.take_time();
    }

    fn close(self) {
        self.rows.close();
    }

    fn lost_frames(&self) -> u64 {
        self.rows.lost_frames()
    }

    fn is_done(&self) -> bool {
        self.count.is_reached() || self.rows.is_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_one_for_all_workers_and_exact() {
        let count = Count::new(Some(100));
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (count, admitted) = (count.clone(), &admitted);
                scope.spawn(move || {
                    let rows = (0..60).filter(|_| count.admits()).count();
                    admitted.fetch_add(rows as u64, Ordering::Relaxed);
                });
            }
        });
        assert_eq!((admitted.into_inner(), count.beyond()), (100, 80));
        assert!(count.is_reached() && !Count::new(None).is_reached());
    }

    #[test]
    fn each_worker_has_a_line_and_one_that_never_began_says_so() {
        let ledger = Ledger { seen: 1234, delivered: 1230, ..Ledger::default() };
        let table = by_worker(&[0, 5], &[Some(ledger), None]);
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["0", "0", "1,234", "1,230", "0"]);
        assert_eq!(lines[2], ["1", "5", "never", "began"]);
    }
}
