//! What tracing costs a forwarder on a real lane under a flood.
//!
//! Question: does the tracer take less than 3 % of the rate?
//!
//! ```sh
//! cargo run --release -p laneway-forward --example traced_lane -- [SECONDS [SPEC]]
//! ```
//!
//! One process, one lane of DPDK (`dpdk:net_af_xdp,idle=spin,burst=32` unless another is given) on two cables in a
//! namespace of its own, or with net_tap on two TAP devices; one worker on CPU 0, a flood of short frames from CPU 1.
//! Segments of 100 ms without, with and without a trace take turns in an order drawn at random, so that neither the
//! process nor what the machine does meanwhile is in the ratio. The trace is what `laneway run forward --trace DIR`
//! writes: its thread is not pinned, and shares CPU 0 where the flood leaves it nothing of CPU 1.
//!
//! Printed are the medians of the ratios with their 95 % intervals (order statistics), of the traced segment and of
//! the second untraced one against the first; records and empty polls per frame; and the CPU time of the thread that
//! writes the records. A worker with many empty polls is not full: then the flood is the limit, and the ratio says
//! nothing about the tracer (a TAP device takes some 250,000 frames a second from a socket, which is half of what the
//! worker takes).
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it is a program")]

use laneway_core::{Clock, FrameLane, Lane, PortId, Verdict};
use laneway_dpdk::DpdkLane;
use laneway_engine::{Control, MonotonicClock, Stop, pin_to_cpu, run_frames};
use laneway_forward::{Config, Forward};
use laneway_netns::{Namespace, VethOptions, VethPair, memory_folder};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_spec::IdlePolicy;
use laneway_testkit::{Random, UdpFrame};
use laneway_tracer::{Session, SessionOptions, ThreadInfo, TraceSlot};
use std::{
    env,
    error::Error,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const SPEC: &str = "dpdk:net_af_xdp,idle=spin,burst=32";
const INTERFACES: [&str; 2] = ["traced0", "traced1"];
const FAR_ENDS: [&str; 2] = ["far0", "far1"];
const IN: PortId = PortId(0);
const SEGMENT_NS: u64 = 100_000_000;
/// Each traced segment is a thread of the session, which has at most 256.
const ROUNDS_MAX: u64 = 250;
const FLOOD_BURST: usize = 64;

/// What the rings have kept is taken in this time.
const LEAD_NS: u64 = 10_000_000;

type Failed = Box<dyn Error + Send + Sync>;

/// Runs the worker for so long; frames per second.
fn run(
    lane: &mut DpdkLane,
    app: &mut Forward,
    trace: TraceSlot,
    time_ns: u64,
) -> Result<f64, Failed> {
    let before = lane.counters(IN).rx_frames;
    let began_ns = MonotonicClock.now_ns();
    let stop = Stop::new().with_deadline_ns(began_ns + time_ns);
    let control = Control { stop, trace, ..Control::default() };
    run_frames(lane, app, &MonotonicClock, IdlePolicy::Spin, &control)?;
    let seconds = (MonotonicClock.now_ns() - began_ns) as f64 / 1e9;
    Ok((lane.counters(IN).rx_frames - before) as f64 / seconds)
}

/// One segment, behind a lead that takes what the rings have kept while nothing ran: it takes longer to make a trace
/// than to make none, and a full ring at the begin would pass for speed.
fn segment(lane: &mut DpdkLane, app: &mut Forward, trace: TraceSlot) -> Result<f64, Failed> {
    run(lane, app, TraceSlot::empty(), LEAD_NS)?;
    run(lane, app, trace, SEGMENT_NS)
}

/// The lane makes its devices itself.
fn is_tap(spec: &str) -> bool {
    spec.contains("net_tap")
}

/// Sends copies of a frame by `interface` until it is over.
fn flood(interface: &str, is_over: &AtomicBool) -> Result<(), Failed> {
    pin_to_cpu(1)?;
    let spec = "packet:mmsg=64,qdisc_bypass".parse()?;
    let mut lane = PacketLane::open(&spec, &[interface], OpenOptions::default())?;
    let frame = UdpFrame::default().build();
    while !is_over.load(Ordering::Relaxed) {
        let burst = lane.lend(IN, FLOOD_BURST)?;
        for i in 0..burst.len() {
            let mut copy = burst.frame_mut(i);
            if copy.set_len(frame.len()) {
                copy.bytes_mut().copy_from_slice(&frame);
                copy.set_verdict(Verdict::Tx);
            }
        }
        lane.settle(IN)?;
    }
    Ok(())
}

/// CPU time of the threads of this process that are called `name`, ns.
fn cpu_ns(name: &str) -> u64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_name = tasks.filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    });
    let spent = |path: &Path| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    of_name.filter_map(|task| spent(&task.path())).sum()
}

/// The median and its 95 % interval by order statistics (the normal approximation of the binomial's ranks).
fn median(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let (n, last) = (values.len() as f64, values.len() - 1);
    let half = 1.96 * n.sqrt() / 2.0;
    [n / 2.0, n / 2.0 - half, n / 2.0 + half].map(|rank| values[(rank.max(0.0) as usize).min(last)])
}

fn measure(rounds: u64, spec: &str, folder: &Path) -> Result<(), Failed> {
    // The thread that writes is started before this one is pinned, as in a run.
    let session = Session::create(folder, SessionOptions::default())?;
    pin_to_cpu(0)?;
    let mut lane = DpdkLane::open(&spec.parse()?, &INTERFACES, false)?;
    let mut app = Forward::new(Config::default())?;
    let before = lane.counters(IN);
    let is_over = AtomicBool::new(false);
    let mut random = Random::seeded(MonotonicClock.now_ns());
    let mut order = [0, 1, 2];
    let (mut on, mut again, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let (mut traced_frames, mut writer_ns) = (0.0, 0);
    thread::scope(|scope| {
        let from = if is_tap(spec) { INTERFACES[0] } else { FAR_ENDS[0] };
        let flooding = scope.spawn(|| flood(from, &is_over));
        let measured = (|| {
            segment(&mut lane, &mut app, TraceSlot::empty())?;
            for round in 0..rounds {
                let mut found = [0.0; 3];
                random.shuffle(&mut order);
                for which in order {
                    let trace = match which {
                        1 => {
                            let thread = ThreadInfo::current(format!("worker-{round}"));
                            TraceSlot::holding(session.recorder(&thread)?)
                        }
                        _ => TraceSlot::empty(),
                    };
                    let before_ns = cpu_ns("trace");
                    found[which] = segment(&mut lane, &mut app, trace)?;
                    if which == 1 {
                        writer_ns += cpu_ns("trace") - before_ns;
                        traced_frames += found[which] * SEGMENT_NS as f64 / 1e9;
                    }
                }
                rates.push(found[0]);
                on.push(found[1] / found[0]);
                again.push(found[2] / found[0]);
            }
            Ok::<(), Failed>(())
        })();
        is_over.store(true, Ordering::Relaxed);
        flooding.join().map_err(|_| "the flood panicked")??;
        measured
    })?;
    let records: u64 = session.finish()?.iter().map(|thread| thread.records + thread.lost).sum();
    let [rate, ..] = median(rates);
    println!("{spec}: {rate:.0} frames/s untraced, median of {rounds} segments of 100 ms");
    for (what, ratios) in [("traced", on), ("untraced again", again)] {
        let [ratio, lower, upper] = median(ratios);
        println!("{what}: {ratio:.4} times the rate ({lower:.4} to {upper:.4})");
    }
    let after = lane.counters(IN);
    println!(
        "{:.3} records and {:.3} empty polls a frame; the thread that writes them: {:.2} % of a CPU",
        records as f64 / traced_frames,
        (after.polls_empty - before.polls_empty) as f64
            / (after.rx_frames - before.rx_frames) as f64,
        100.0 * writer_ns as f64 / (rounds * SEGMENT_NS) as f64,
    );
    Ok(())
}

fn main() -> Result<(), Failed> {
    let mut arguments = env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(60), |text| text.parse())?;
    let spec = arguments.next().unwrap_or_else(|| SPEC.to_owned());
    let rounds = (seconds * 1_000_000_000 / (SEGMENT_NS + LEAD_NS) / 3).clamp(1, ROUNDS_MAX);
    // In memory that goes with the process, however it ends.
    let folder = memory_folder()?.join("traced-lane");
    let namespace = Namespace::create("traced")?;
    let cable = |i: usize| {
        let options = VethOptions::default();
        VethPair::create(&namespace, INTERFACES[i], &namespace, FAR_ENDS[i], &options)
    };
    let cables = if is_tap(&spec) { 0..0 } else { 0..INTERFACES.len() };
    let _cables = cables.map(cable).collect::<Result<Vec<_>, _>>()?;
    namespace.enter(|| measure(rounds, &spec, &folder))?
}
