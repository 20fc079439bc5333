//! What an analysis of a trace costs: wall and CPU time, all of it and the reading of events only.
//!
//! ```sh
//! cargo run --release -p laneway-trace --example analyze_cost -- TRACE [LISTING] [ROUNDS]
//! ```
//!
//! The same work as `laneway trace analyze TRACE --symbols LISTING`, without printing. Rounds follow one another in
//! one process; the first one also brings the trace into the page cache. `main_cpu_s` is what the thread used that
//! follows the calls and draws the conclusions; the rest of `cpu_s` decodes.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;
use std::{env, fs};

use laneway_trace::{Options, analyze_naming};
use laneway_trace_read::{ListingPlace, Trace};

/// Of the kernel's `stat` files, which Linux fixes at 100 for every architecture.
const TICKS_PER_SECOND: f64 = 100.0;
const ROUNDS: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (path, more) = arguments.split_first().ok_or("give the directory of a trace")?;
    let rounds = more.iter().find_map(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let listing = more.iter().find(|text| text.parse::<u32>().is_err());
    println!("events,read_s,wall_s,main_cpu_s,cpu_s");
    for _ in 0..rounds {
        let start = Instant::now();
        let before = (cpu_s("/proc/thread-self/stat")?, cpu_s("/proc/self/stat")?);
        let mut trace = Trace::open(Path::new(path))?;
        let mut read_s = 0.0;
        let report = analyze_naming(&mut trace, Options::default(), |symbols, functions| {
            read_s = start.elapsed().as_secs_f64();
            if let Some(listing) = listing {
                symbols.add_listing(Path::new(listing), &ListingPlace::Fit(functions))?;
            }
            Ok::<(), Box<dyn Error>>(())
        })?;
        let wall_s = start.elapsed().as_secs_f64();
        let main_s = cpu_s("/proc/thread-self/stat")? - before.0;
        let all_s = cpu_s("/proc/self/stat")? - before.1;
        let events = report.analysis.coverage.events;
        println!("{events},{read_s:.3},{wall_s:.3},{main_s:.2},{all_s:.2}");
    }
    Ok(())
}

/// User and system time that `stat` counts so far.
fn cpu_s(stat: &str) -> Result<f64, Box<dyn Error>> {
    let text = fs::read_to_string(stat)?;
    let (_, fields) = text.rsplit_once(')').ok_or("a stat file without a name")?;
    let ticks: Vec<u64> =
        fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / TICKS_PER_SECOND)
}
