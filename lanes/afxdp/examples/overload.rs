//! What lane `afxdp` still forwards when more arrives than it can take, and where the rest is lost.
//!
//! Question: does a worker that shares its CPU with the kernel's receive thread keep its rate under overload?
//!
//! ```text
//! sudo cargo run --release -p laneway-afxdp --example overload [-- SECONDS [SPEC]]
//!
//!   CPU 1: sender ─▶ in0 ═ sut0 ─▶ NAPI thread, worker (CPU 0) ─▶ sut1 ═ out0: counted
//! ```
//!
//! Frames of 60 bytes are offered at rising rates, the last as fast as the sender goes. Of each rate it says
//! what left by the second cable, and every loss by its place. Both cables and all threads are the program's
//! own; it needs root and two CPUs. It states no verdict: other programs on the machine move the figures.
#![expect(clippy::print_stdout, reason = "it is a program")]

use laneway_afxdp::AfXdp;
use laneway_core::{DropReason, FrameLane, Lane, PortId, Verdict};
use laneway_netns::{
    Namespace, NapiThread, VethOptions, VethPair, interface_counters, set_threaded,
};
use laneway_spec::LaneSpec;
use std::{
    error::Error,
    ffi::CString,
    io, mem,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

const SPEC: &str = "afxdp";
const SECONDS: u64 = 2;
/// Frames per second; the last is no bound.
const RATES: [u64; 5] = [100_000, 300_000, 600_000, 1_200_000, u64::MAX];
const FRAME_BYTES: usize = 60;
const BATCH_FRAMES: usize = 32;
const WORKER_CPU: usize = 0;
const SENDER_CPU: usize = 1;
const BLOCK: Duration = Duration::from_millis(10);

type Failure = Box<dyn Error + Send + Sync>;

/// What the worker did.
#[derive(Default)]
struct Work {
    turns: u64,
    bursts: u64,
    waits: u64,
    forwarded: u64,
    refused: u64,
    ring_full: u64,
    no_frame: u64,
}

fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(SECONDS), |text| text.parse())?;
    let spec = std::env::args().nth(2).unwrap_or_else(|| SPEC.to_owned());
    let spec: LaneSpec = spec.parse()?;
    let [left, sut, right] = ["ovl-left", "ovl-sut", "ovl-right"].map(Namespace::create);
    let (left, sut, right) = (left?, sut?, right?);
    let _in = VethPair::create(&left, "in0", &sut, "sut0", &options(1))?;
    let _out = VethPair::create(&sut, "sut1", &right, "out0", &options(3))?;
    println!(
        "{spec}: worker and NAPI threads of sut0 and out0 on CPU {WORKER_CPU}; sender on CPU {SENDER_CPU}"
    );
    println!(
        "{:>9} {:>9} {:>9} {:>6} | lost: {:>9} {:>9} {:>9} {:>9} {:>9} | {:>7} {:>7}",
        "offered/s",
        "worker/s",
        "out/s",
        "share",
        "cable in",
        "rx ring",
        "no frame",
        "tx",
        "cable out",
        "waits/s",
        "burst"
    );
    for rate in RATES {
        row(&spec, rate, seconds, (&left, &sut, &right))?;
    }
    Ok(())
}

/// A cable whose receiving ends have a NAPI: generic receive offload is on.
fn options(number: u8) -> VethOptions {
    let mut options = VethOptions::default();
    for (side, end) in [&mut options.a, &mut options.b].into_iter().enumerate() {
        end.mac.0[5] = number + side as u8;
        end.addresses.clear();
        end.offloads.gro = true;
    }
    options
}

fn row(
    spec: &LaneSpec,
    rate: u64,
    seconds: u64,
    (left, sut, right): (&Namespace, &Namespace, &Namespace),
) -> Result<(), Failure> {
    let stop = AtomicBool::new(false);
    let before =
        (left.enter(|| interface_counters("in0"))??, right.enter(|| interface_counters("out0"))??);
    let pin = |interface: &'static str, cpu| -> Result<Vec<NapiThread>, laneway_netns::Error> {
        let mut threads = set_threaded(interface, true)?;
        threads.iter_mut().try_for_each(|thread| thread.pin(cpu))?;
        Ok(threads)
    };
    right.enter(|| pin("out0", WORKER_CPU))??;
    let (work, sent, elapsed) = thread::scope(|scope| -> Result<_, Failure> {
        let (opened, is_open) = std::sync::mpsc::channel();
        let (stop, sut_ref) = (&stop, sut);
        let worker = scope.spawn(move || sut_ref.enter(|| forward(spec, stop, &opened)));
        // Dropped unsent when the lane cannot be opened, which the worker then says.
        if is_open.recv().is_err() {
            return Err(worker.join().expect("it does not panic")?.err().expect("it failed"));
        }
        sut.enter(|| pin("sut0", WORKER_CPU))??;
        let begun = Instant::now();
        let sent = left.enter(|| send(rate, Duration::from_secs(seconds)))??;
        let elapsed = begun.elapsed();
        stop.store(true, Ordering::Relaxed);
        let work = worker.join().expect("it does not panic")??;
        Ok((work, sent, elapsed))
    })?;
    let after =
        (left.enter(|| interface_counters("in0"))??, right.enter(|| interface_counters("out0"))??);
    let per_second = |n: u64| (n as f64 / elapsed.as_secs_f64()) as u64;
    let out = after.1.rx_packets - before.1.rx_packets;
    println!(
        "{:>9} {:>9} {:>9} {:>5.1}% | lost: {:>9} {:>9} {:>9} {:>9} {:>9} | {:>7} {:>7.1}",
        per_second(sent),
        per_second(work.forwarded),
        per_second(out),
        100.0 * out as f64 / sent.max(1) as f64,
        after.0.tx_dropped - before.0.tx_dropped,
        work.ring_full,
        work.no_frame,
        work.refused,
        work.forwarded.saturating_sub(out),
        per_second(work.waits),
        (work.forwarded + work.refused) as f64 / work.bursts.max(1) as f64,
    );
    Ok(())
}

/// Forwards from the first port to the second as the engine does with `idle=block`.
fn forward(
    spec: &LaneSpec,
    stop: &AtomicBool,
    opened: &std::sync::mpsc::Sender<()>,
) -> Result<Work, Failure> {
    pin_to_cpu(WORKER_CPU)?;
    let mut lane = AfXdp::open(spec, &["sut0", "sut1"], false)?;
    opened.send(())?;
    let mut work = Work::default();
    while !stop.load(Ordering::Relaxed) {
        work.turns += 1;
        let burst = lane.receive(PortId(0))?;
        let frames = burst.len();
        (0..frames).for_each(|i| burst.set_verdict(i, Verdict::TxTo(PortId(1))));
        lane.settle(PortId(0))?;
        lane.receive(PortId(1))?;
        lane.settle(PortId(1))?;
        work.bursts += u64::from(frames > 0);
        if frames == 0 {
            work.waits += 1;
            lane.wait(BLOCK)?;
        }
    }
    let [arrived, left] = [0, 1].map(|port| lane.counters(PortId(port)));
    work.forwarded = left.tx_frames;
    work.refused = left.drops(DropReason::TxRefused);
    work.ring_full = arrived.drops(DropReason::RxQueueFull);
    work.no_frame = arrived.drops(DropReason::RxNoFrame);
    Ok(work)
}

/// Sends at `rate` for so long; gives how many frames left the socket.
fn send(rate: u64, time: Duration) -> Result<u64, Failure> {
    pin_to_cpu(SENDER_CPU)?;
    // SAFETY: no pointers.
    let fd =
        check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    let name = CString::new("in0")?;
    // SAFETY: a string that lives across the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    // SAFETY: integers; zero is a value of each.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    let bytes = size_of_val(&address) as u32;
    // SAFETY: the address lives across the call and `bytes` is its size.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), bytes) })?;
    let on: libc::c_int = 1;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS);
    // SAFETY: the value lives across the call and 4 is its size.
    check(unsafe { libc::setsockopt(fd, level, option, (&raw const on).cast(), 4) })?;
    let mut frame = [0u8; FRAME_BYTES];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5]);
    let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
    // SAFETY: integers and pointers; zero is a value of each.
    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
    message.msg_hdr.msg_iov = &raw mut part;
    message.msg_hdr.msg_iovlen = 1;
    let mut messages = [message; BATCH_FRAMES];
    let (begun, mut sent) = (Instant::now(), 0u64);
    while begun.elapsed() < time {
        let due = match rate {
            u64::MAX => u64::MAX,
            rate => (begun.elapsed().as_secs_f64() * rate as f64) as u64,
        };
        if sent >= due {
            std::hint::spin_loop();
            continue;
        }
        let count = (due - sent).min(BATCH_FRAMES as u64) as u32;
        // SAFETY: every header points at one part, and that at the frame; all live across the call.
        let done = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count, 0) };
        // A full queue: what was refused there is in the interface's own count.
        sent += u64::try_from(done).unwrap_or(1);
    }
    // SAFETY: ours, and used no more.
    unsafe { libc::close(fd) };
    Ok(sent)
}

fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    // SAFETY: all-zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the number of a processor lies inside the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is ours and the size is its own.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }).map(drop)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
