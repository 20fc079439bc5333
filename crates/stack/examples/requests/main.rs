//! What a request costs in stack time, with 10, 100, 1,000 and 10,000 connections open.
//!
//! Question: does the stack's time per request depend on how many connections there are?
//!
//! ```text
//! cargo run --release -p laneway-stack --example requests [-- ROUNDS]
//! ```
//!
//! All counts are served in one process, on simulated links of their own, in rounds that visit each
//! count once, in turn. In a round every connection of a count sends one request of 64 bytes,
//! in bursts of at most 64 frames, and gets a reply of as many. Measured is the thread's CPU time
//! around `serve` alone, which includes the simulated lane's copies and not the far end's work; each
//! figure is the median over rounds, with the extremes. It compares counts with each other; it is no
//! measure of any real lane.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it is a program")]

mod far_ends;

use far_ends::{FarEnds, REQUEST_BYTES};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];
const ROUNDS_DEFAULT: usize = 21;
/// Requests of one count in one round, at least: the small counts go round several times.
const REQUESTS_MIN: usize = 10_000;

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let rounds = rounds.unwrap_or(ROUNDS_DEFAULT).max(1);
    let mut arms = COUNTS.map(|count| FarEnds::open(count, thread_time));
    for arm in &mut arms {
        arm.round(REQUESTS_MIN); // warms caches and buffers; not counted
    }
    let mut figures = COUNTS.map(|_| Vec::with_capacity(rounds));
    for _ in 0..rounds {
        for (arm, figures) in arms.iter_mut().zip(&mut figures) {
            figures.push(arm.round(REQUESTS_MIN.max(arm.connections())));
        }
    }
    println!("stack CPU time per request of {REQUEST_BYTES} bytes, median of {rounds} rounds");
    println!("connections  ns/request  least  most  against {}", COUNTS[0]);
    let mut base = None;
    for (count, figures) in COUNTS.iter().zip(&mut figures) {
        figures.sort_unstable_by(f64::total_cmp);
        let median = figures[figures.len() / 2];
        let ratio = median / *base.get_or_insert(median);
        let (least, most) = (figures[0], figures[figures.len() - 1]);
        println!("{count:>11}  {median:>10.0}  {least:>5.0}  {most:>4.0}  {ratio:>10.2}");
    }
}
