//! Decodes a trace and throws its events away: what reading costs, without any analysis.
//!
//! ```text
//! cargo run --release -p laneway-trace-read --example decode -- DIR [--records]
//! ```
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::process::ExitCode;
use std::time::Instant;

use laneway_trace_read::{Consumer, Event, Loss, Thread, ThreadId, Trace};

#[derive(Default)]
struct Nothing {
    batches: u64,
}

impl Consumer for Nothing {
    fn thread(&mut self, id: ThreadId, thread: &Thread) {
        println!("thread {}: pid {} tid {} {}", id.0, thread.pid, thread.tid, thread.name);
    }
    fn events(&mut self, _: ThreadId, _: Option<u32>, _: &[Event]) {
        self.batches += 1;
    }
    fn lost(&mut self, loss: &Loss, threads: &[ThreadId]) {
        println!("lost: {loss:?} of {} threads", threads.len());
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(path) = arguments.next() else {
        println!("usage: decode PATH [--records]");
        return ExitCode::from(2);
    };
    match decode(path.as_ref(), arguments.next().is_some()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn decode(path: &std::path::Path, records: bool) -> Result<(), Box<dyn std::error::Error>> {
    let mut trace = Trace::open(path)?;
    if records {
        trace.records(&mut |record| {
            println!("{} {}: {}", record.time_ns, record.name, record.fields);
        })?;
        return Ok(());
    }
    let mut nothing = Nothing::default();
    let start = Instant::now();
    let read = trace.read(&mut nothing)?;
    let seconds = start.elapsed().as_secs_f64();
    for damage in &read.damages {
        println!("damage: {damage:?}");
    }
    println!(
        "{} records, {} events ({} entries, {} exits), {} discarded, {} threads, {} batches in {seconds:.3} s: {:.1} ns per event",
        read.records,
        read.events,
        read.entries,
        read.exits,
        read.discarded,
        read.threads.len(),
        nothing.batches,
        seconds * 1e9 / read.records.max(1) as f64,
    );
    Ok(())
}
