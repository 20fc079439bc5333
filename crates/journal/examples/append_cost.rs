//! What a turn pays for its record: `cargo run --release -p laneway-journal --example append_cost -- [FOLDER]`.
//!
//! Question: how much of the worker's time do an append and a commit take, and how many commits a second are durable?
//! One thread appends as a store would under load, a record per turn; the writer has its own. FOLDER is on the file
//! system to be judged, by default the one of temporary files. A line per policy and length of a record: the time of an
//! append with its commit as the worker sees it, how many turns a write served, and what one client would wait for that
//! sends its next write when the last one is durable.

#![expect(clippy::print_stdout, reason = "an example is there to print")]

use laneway_core::Bell;
use laneway_journal::{Journal, OpenError, Options, Policy, Refused};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TURNS: u32 = 200_000;
const ROUND_TRIPS: u32 = 500;
const BYTES_MAX: usize = 256 << 20;

fn main() -> Result<(), OpenError> {
    let chosen = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = chosen.unwrap_or_else(std::env::temp_dir);
    let folder = folder.join(format!("append-cost-{}", std::process::id()));
    println!("policy    bytes  ns/turn  turns/write  refused  us to durable");
    for policy in [Policy::No, Policy::EverySecond, Policy::Always] {
        for bytes in [64, 1024, 16 << 10] {
            let measured = measure(folder.clone(), policy, bytes);
            // What is there is ours alone, by its name.
            let _ = std::fs::remove_dir_all(&folder);
            let Cost { turn_ns, turns_per_write, refused, durable_us } = measured?;
            let durable = durable_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
            println!(
                "{policy:<9} {bytes:<6} {turn_ns:<8.0} {turns_per_write:<12.1} {refused:<8} {durable}"
            );
        }
    }
    Ok(())
}

struct Cost {
    turn_ns: f64,
    turns_per_write: f64,
    /// Turns that found no room, and waited for the bell.
    refused: u32,
    durable_us: Option<f64>,
}

fn measure(folder: PathBuf, policy: Policy, bytes: usize) -> Result<Cost, OpenError> {
    let bell = Bell::new().map_err(OpenError::Thread)?;
    let options = Options { policy, bell: Some(bell.clone()), ..Options::default() };
    let (mut journal, _) = Journal::open(&folder, options, |_| Ok(()))?;
    let record = vec![7; bytes];
    let turns = TURNS.min((BYTES_MAX / bytes) as u32);
    let (mut refused, mut waited) = (0, Duration::ZERO);
    let start = Instant::now();
    for _ in 0..turns {
        while journal.append(black_box(&record)) == Err(Refused::NoRoom) {
            let since = Instant::now();
            bell.wait(Duration::from_secs(1));
            bell.answer();
            waited += since.elapsed();
            refused += 1;
        }
        journal.commit();
    }
    let turn_ns = (start.elapsed() - waited).as_nanos() as f64 / f64::from(turns);
    while journal.waiting_bytes() > 0 && journal.failed().is_none() {
        bell.wait(Duration::from_millis(1));
        bell.answer();
    }
    let turns_per_write = f64::from(turns) / journal.figures().batches.max(1) as f64;
    let durable_us =
        (policy == Policy::Always).then(|| round_trip_us(&mut journal, &bell, &record));
    Ok(Cost { turn_ns, turns_per_write, refused, durable_us })
}

/// The mean time from an append until it is durable, one at a time.
fn round_trip_us(journal: &mut Journal, bell: &Bell, record: &[u8]) -> f64 {
    let start = Instant::now();
    for _ in 0..ROUND_TRIPS {
        let Ok(sequence) = journal.append(record) else { break };
        journal.commit();
        while journal.durable() < sequence && journal.failed().is_none() {
            bell.wait(Duration::from_secs(1));
            bell.answer();
        }
    }
    start.elapsed().as_micros() as f64 / f64::from(ROUND_TRIPS)
}
