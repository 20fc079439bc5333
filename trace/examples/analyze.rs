//! Analyses the trace in a directory and prints how long that took; `--text` prints the analysis too.
//!
//! `cargo run --release -p laneway-trace --example analyze -- DIR [--text]`
#![expect(clippy::print_stdout, reason = "an example is a program: printing is its result")]

use std::time::Instant;

use laneway_trace::{Options, analyze, text};
use laneway_trace_read::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        return Err("give a directory with a trace".into());
    };
    let start = Instant::now();
    let mut trace = Trace::open(&path)?;
    let report = analyze(&mut trace, Options::default())?;
    let seconds = start.elapsed().as_secs_f64();
    let events = report.analysis.coverage.events;
    if arguments.next().as_deref() == Some("--text") {
        println!("{}", text::analysis(&report.analysis));
    }
    println!(
        "{seconds:.3} s, {events} events, {:.1} ns per event",
        seconds * 1e9 / events.max(1) as f64
    );
    Ok(())
}
