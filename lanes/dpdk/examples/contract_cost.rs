//! What the frame contract costs per frame on lane `dpdk`, beside a loop written by hand in C.
//!
//! Question: what does a program pay for receiving through [`FrameLane`] instead of calling DPDK?
//!
//! ```text
//! cargo run --release -p laneway-dpdk --example contract_cost [-- ROUNDS]
//! ```
//!
//! One net_null port, whose driver makes 64-byte frames from the pool, so that nothing but the code
//! around it costs. Both arms work on that port, take bursts of 64, read the first 16 bytes of each
//! frame and give all mbufs back: by hand in C, with `rte_eth_rx_burst` and `rte_pktmbuf_free_bulk`;
//! and through `receive` and `settle`, which describe, check, stamp and count each frame. They are
//! visited in turn, one round after the other. Measured is the CPU time of the thread. The first arm
//! runs twice, for the noise floor.
#![expect(clippy::print_stdout, reason = "it is a program")]

use laneway_core::{FrameLane, LaneError, PortId};
use laneway_dpdk::DpdkLane;
use std::{error::Error, hint::black_box, io};

const SPEC: &str = "dpdk:net_null,no-huge";
const PORT: PortId = PortId(0);
const ROUNDS_DEFAULT: usize = 15;
/// Bursts of one round and arm, and frames of a burst: the lane's own default.
const BURSTS: usize = 20_000;
const BURST_FRAMES: usize = 64;
const CPU: usize = 0;

#[derive(Clone, Copy)]
enum Arm {
    ByHand,
    Lane,
}

const ARMS: [(&str, Arm); 3] = [
    ("by hand in C", Arm::ByHand),
    ("by hand in C", Arm::ByHand),
    ("receive and settle", Arm::Lane),
];

impl Arm {
    /// One round: frames seen.
    fn round(self, lane: &mut DpdkLane) -> Result<usize, LaneError> {
        let mut sum = 0;
        let mut frames = 0;
        for _ in 0..BURSTS {
            frames += match self {
                Arm::ByHand => lane.hand_written(PORT, &mut sum),
                Arm::Lane => turn(lane, &mut sum)?,
            };
        }
        black_box(sum);
        Ok(frames)
    }
}

fn turn(lane: &mut DpdkLane, sum: &mut u64) -> Result<usize, LaneError> {
    let burst = lane.receive(PORT)?;
    let frames = burst.len();
    for i in 0..frames {
        if let Some(head) = burst.frame(i).bytes.first_chunk::<16>() {
            let both = u128::from_ne_bytes(*head);
            *sum = sum.wrapping_add(both as u64).wrapping_add((both >> 64) as u64);
        }
    }
    lane.settle(PORT)?;
    Ok(frames)
}

/// This thread's CPU time.
fn cpu_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    // SAFETY: all-zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number of a processor lies inside the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is ours and the size is its own.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS_DEFAULT), |text| text.parse())?;
    if rounds == 0 {
        return Err("0 rounds measure nothing; give 1 or more".into());
    }
    pin_to_cpu(CPU)?;
    let mut lane = DpdkLane::open(&SPEC.parse()?, &["n0"], false)?;
    let mut costs = vec![Vec::new(); ARMS.len()];
    // The first round warms up and is not counted.
    for round in 0..=rounds {
        for turn in 0..ARMS.len() {
            let i = (round + turn) % ARMS.len();
            let before_ns = cpu_ns();
            let frames = ARMS[i].1.round(&mut lane)?;
            let ns = cpu_ns() - before_ns;
            if frames != BURSTS * BURST_FRAMES {
                let want = BURSTS * BURST_FRAMES;
                return Err(format!("net_null gave {frames} frames instead of {want}").into());
            }
            if round > 0 {
                costs[i].push(ns as f64 / frames as f64);
            }
        }
    }
    println!(
        "{rounds} rounds of {} frames of 64 bytes per arm, interleaved, CPU {CPU}",
        BURSTS * BURST_FRAMES
    );
    println!("{:<36} {:>9} {:>17} {:>22}", "arm", "ns", "least-most", "ratio to the first");
    for (i, (name, _)) in ARMS.iter().enumerate() {
        let mut ratios: Vec<f64> =
            costs[i].iter().zip(&costs[0]).map(|(own, base)| own / base).collect();
        let ratio = median(&mut ratios);
        let mut own = costs[i].clone();
        println!(
            "{name:<36} {:>9.2} {:>8.2}-{:<8.2} {ratio:>8.3} [{:.3}, {:.3}]",
            median(&mut own),
            own[0],
            own[own.len() - 1],
            ratios[ratios.len() / 10],
            ratios[ratios.len() - 1 - ratios.len() / 10],
        );
    }
    Ok(())
}
