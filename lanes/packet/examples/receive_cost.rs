//! What receiving a frame costs through lane `packet`, beside loops of the same system calls.
//!
//! Question: which share of a frame's cost is the kernel's, the lane's, the engine's and the app's?
//!
//! ```text
//! sudo cargo run --release -p laneway-packet --example receive_cost [-- ROUNDS]
//!
//!   sender ─▶ far ═ near ─▶ a socket per arm, filled with the same frames ─▶ drained one after the other
//! ```
//!
//! Each round sends the frames once; every arm has its own socket and gets them all. Then the arms drain
//! their sockets in turn, another one first in each round, and the thread's CPU time is taken around each.
//! What the kernel does when a frame arrives is in no arm, so a ring's arms show what is left to user space.
//! The arms, each next to the one that it is to be read against:
//!
//! * `recv by hand`: one `recv` per frame, the least a program can do; it loses VLAN tags.
//! * `recvmsg by hand`: one `recvmsg` per frame with PACKET_AUXDATA, which has the tags; before it the same
//!   without that option, for what the call and what the tags cost.
//! * `lane`: `receive` and `settle`; `lane, headers`: an app that reads 64 bytes of each frame on top.
//! * `engine, count`: the engine's loop around it, and an app that counts.
//! * `TPACKET_V3 by hand`: the blocks of a ring walked by their headers; then the same three for the ring.
//!
//! What an app costs on top (its parsing, its records) is the difference between `run features --lane packet`
//! and `engine, count`. The program's own namespaces are removed at its end.
#![expect(clippy::print_stdout, reason = "it is a program")]

use laneway_core::{App, Burst, Counters, FrameApp, FrameLane, PortId, Turn};
use laneway_netns::{Namespace, VethOptions, VethPair};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_spec::IdlePolicy;
use laneway_testkit::engine::{Control, MonotonicClock, run_frames};
use std::{
    error::Error,
    ffi::CString,
    hint::black_box,
    io, mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

const ROUNDS_DEFAULT: usize = 21;
/// Frames of a round: fewer than the lane's default socket queue and ring hold.
const FRAMES: usize = 2_000;
const FRAME_BYTES: usize = 60;
const CPU: usize = 0;
/// Longer than a ring keeps a block that is not full.
const SETTLED: Duration = Duration::from_millis(10);
const RCVBUF_BYTES: libc::c_int = 4 << 20;
const BLOCK_BYTES: usize = 256 << 10;
const BLOCKS: usize = 64;

type Failure = Box<dyn Error + Send + Sync>;

/// A way to drain a socket; gives how many frames it saw.
trait Arm {
    fn drain(&mut self) -> Result<usize, Failure>;
}

/// One `recv` per frame.
struct Recv(OwnedFd, Vec<u8>);

impl Arm for Recv {
    fn drain(&mut self) -> Result<usize, Failure> {
        let (buffer, room) = (self.1.as_mut_ptr().cast(), self.1.len());
        let mut frames = 0;
        loop {
            // SAFETY: the buffer lives across the call and has `room` bytes.
            let got = unsafe { libc::recv(self.0.as_raw_fd(), buffer, room, libc::MSG_DONTWAIT) };
            if got < 0 {
                return is_drained().map(|()| frames);
            }
            black_box(&self.1[..got as usize]);
            frames += 1;
        }
    }
}

/// One `recvmsg` per frame, with what the kernel says beside it.
struct RecvMsg(OwnedFd, Vec<u8>);

impl Arm for RecvMsg {
    fn drain(&mut self) -> Result<usize, Failure> {
        let mut control = [0u64; 12];
        let mut part = libc::iovec { iov_base: self.1.as_mut_ptr().cast(), iov_len: self.1.len() };
        let mut frames = 0;
        loop {
            // SAFETY: integers and pointers; zero is a value of each.
            let mut header: libc::msghdr = unsafe { mem::zeroed() };
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&control);
            let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
            // SAFETY: part, buffer and control area live across the call.
            let got = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut header, flags) };
            if got < 0 {
                return is_drained().map(|()| frames);
            }
            black_box(&control);
            frames += 1;
        }
    }
}

/// The lane alone; with `reads`, 64 bytes of each frame are read.
struct Lane {
    lane: PacketLane,
    reads: bool,
}

impl Arm for Lane {
    fn drain(&mut self) -> Result<usize, Failure> {
        let mut frames = 0;
        loop {
            let burst = self.lane.receive(PortId(0))?;
            let got = burst.len();
            if self.reads {
                (0..got).for_each(|i| look(burst.frame(i).bytes));
            }
            self.lane.settle(PortId(0))?;
            frames += got;
            if got == 0 {
                return Ok(frames);
            }
        }
    }
}

fn look(bytes: &[u8]) {
    let words = bytes[..bytes.len().min(64)].chunks_exact(8);
    let sum: u64 = words.map(|w| u64::from_ne_bytes(w.try_into().expect("chunks of 8"))).sum();
    black_box(sum);
}

/// The lane under the engine, with an app that counts and ends the run when it has all.
struct Engine(PacketLane);

#[derive(Default)]
struct Count(Counters);

impl App for Count {
    fn wants_stop(&self) -> bool {
        self.0.rx_frames >= FRAMES as u64
    }

    fn counters(&self) -> &Counters {
        &self.0
    }
}

impl FrameApp for Count {
    fn on_burst(&mut self, _port: PortId, burst: &mut Burst, _turn: Turn) {
        self.0.rx_frames += burst.len() as u64;
    }
}

impl Arm for Engine {
    fn drain(&mut self) -> Result<usize, Failure> {
        let mut app = Count::default();
        let (clock, control) = (MonotonicClock, Control::default());
        run_frames(&mut self.0, &mut app, &clock, IdlePolicy::Block, &control)
            .map_err(|failed| Box::new(failed.error))?;
        Ok(app.0.rx_frames as usize)
    }
}

/// A ring walked by hand: every block that is ours, header by header.
struct Ring {
    _socket: OwnedFd,
    base: NonNull<u8>,
    block: usize,
}

impl Ring {
    fn open(interface: &str) -> Result<Ring, Failure> {
        let socket = packet_socket()?;
        set(&socket, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as libc::c_int)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (BLOCK_BYTES / 2048 * BLOCKS) as u32,
            tp_retire_blk_tov: 1,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::PACKET_RX_RING, request)?;
        bind(&socket, interface)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let (bytes, fd) = (BLOCK_BYTES * BLOCKS, socket.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice; it lives as long as the program.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, fd, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(at) if base != libc::MAP_FAILED => {
                Ok(Ring { _socket: socket, base: at, block: 0 })
            }
            _ => Err(io::Error::last_os_error().into()),
        }
    }
}

impl Arm for Ring {
    fn drain(&mut self) -> Result<usize, Failure> {
        let mut drained = 0;
        loop {
            // SAFETY: inside the mapping.
            let block = unsafe { self.base.add(self.block * BLOCK_BYTES) };
            // SAFETY: a block starts with its description, whose third word is its status.
            let status = unsafe { block.cast::<u32>().add(2) };
            // SAFETY: aligned and mapped; both sides access it as one word.
            let status = unsafe { AtomicU32::from_ptr(status.as_ptr()) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return Ok(drained);
            }
            // SAFETY: the block is ours; the words behind are its frames and where the first header is.
            let [.., frames, first_at] = unsafe { block.cast::<[u32; 5]>().read() };
            let mut at = first_at as usize;
            for _ in 0..frames {
                // SAFETY: the block is ours, and the kernel says that a header is there.
                let header = unsafe { block.add(at) };
                // SAFETY: aligned, and made of integers.
                let header = unsafe { header.cast::<libc::tpacket3_hdr>().as_ref() };
                // SAFETY: and a frame behind it.
                let frame = unsafe { block.add(at + usize::from(header.tp_mac)) };
                // SAFETY: of so many bytes, which nothing writes while the block is ours.
                black_box(unsafe {
                    std::slice::from_raw_parts(frame.as_ptr(), header.tp_snaplen as usize)
                });
                at += header.tp_next_offset as usize;
                drained += 1;
            }
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.block = (self.block + 1) % BLOCKS;
        }
    }
}

fn main() -> Result<(), Failure> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS_DEFAULT), |text| text.parse())?;
    if rounds == 0 {
        return Err("0 rounds measure nothing; give 1 or more".into());
    }
    let near = Namespace::create("cost-near")?;
    let far = Namespace::create("cost-far")?;
    let mut options = VethOptions::default();
    options.a.addresses.clear();
    options.b.addresses.clear();
    let _cable = VethPair::create(&near, "near0", &far, "far0", &options)?;
    let sender = far.enter(|| -> Result<OwnedFd, Failure> {
        let socket = packet_socket()?;
        bind(&socket, "far0")?;
        Ok(socket)
    })??;
    thread::scope(|scope| {
        let measured = scope.spawn(|| near.enter(|| measure(rounds, &sender)));
        measured.join().expect("it does not panic")
    })?
}

fn measure(rounds: usize, sender: &OwnedFd) -> Result<(), Failure> {
    pin_to_cpu(CPU)?;
    let lane = |spec: &str| -> Result<PacketLane, Failure> {
        Ok(PacketLane::open(&spec.parse()?, &["near0"], OpenOptions::default())?)
    };
    let by_hand = |has_control: bool| -> Result<OwnedFd, Failure> {
        let socket = packet_socket()?;
        if has_control {
            set(&socket, libc::PACKET_AUXDATA, 1)?;
        }
        set_level(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RCVBUF_BYTES)?;
        bind(&socket, "near0")?;
        Ok(socket)
    };
    let room = || vec![0u8; 2048];
    let mut arms: Vec<(&str, Box<dyn Arm>)> = vec![
        ("recv by hand", Box::new(Recv(by_hand(false)?, room()))),
        ("recv by hand, again", Box::new(Recv(by_hand(false)?, room()))),
        ("recvmsg without tags by hand", Box::new(RecvMsg(by_hand(false)?, room()))),
        ("recvmsg by hand", Box::new(RecvMsg(by_hand(true)?, room()))),
        ("packet: lane", Box::new(Lane { lane: lane("packet")?, reads: false })),
        ("packet: lane, headers", Box::new(Lane { lane: lane("packet")?, reads: true })),
        ("packet: engine, count", Box::new(Engine(lane("packet")?))),
        ("TPACKET_V3 by hand", Box::new(Ring::open("near0")?)),
        ("packet:ring: lane", Box::new(Lane { lane: lane("packet:ring")?, reads: false })),
        ("packet:ring: lane, headers", Box::new(Lane { lane: lane("packet:ring")?, reads: true })),
        ("packet:ring: engine, count", Box::new(Engine(lane("packet:ring")?))),
    ];
    let mut costs = vec![Vec::new(); arms.len()];
    // The first round warms up and is not counted.
    for round in 0..=rounds {
        send(sender)?;
        thread::sleep(SETTLED);
        for turn in 0..arms.len() {
            let i = (round + turn) % arms.len();
            let (name, arm) = &mut arms[i];
            let before_ns = cpu_ns();
            let frames = arm.drain()?;
            let ns = cpu_ns() - before_ns;
            if frames != FRAMES {
                return Err(format!("{name} saw {frames} of {FRAMES} frames").into());
            }
            if round > 0 {
                costs[i].push(ns as f64 / frames as f64);
            }
        }
    }
    println!(
        "{rounds} rounds of {FRAMES} frames of {FRAME_BYTES} bytes, CPU {CPU}, CPU time per frame"
    );
    println!("{:<28} {:>8} {:>19} {:>9}", "arm", "ns", "least-most", "ratio");
    let mut base = 0.0;
    for ((name, _), costs) in arms.iter().zip(&mut costs) {
        costs.sort_by(f64::total_cmp);
        let median = costs[costs.len() / 2];
        if matches!(*name, "recv by hand" | "TPACKET_V3 by hand") {
            base = median;
        }
        let (least, most) = (costs[0], costs[costs.len() - 1]);
        println!("{name:<28} {median:>8.1} {least:>9.1}-{most:<9.1} {:>9.3}", median / base);
    }
    Ok(())
}

/// Sends the frames of a round; a full queue is tried again.
fn send(sender: &OwnedFd) -> Result<(), Failure> {
    let mut frame = [0u8; FRAME_BYTES];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5]);
    let mut sent = 0;
    while sent < FRAMES {
        // SAFETY: the frame lives across the call.
        let done = unsafe { libc::send(sender.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        match done {
            0.. => sent += 1,
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS) => {
                thread::yield_now();
            }
            _ => return Err(io::Error::last_os_error().into()),
        }
    }
    Ok(())
}

/// After a failed receive: nothing is there, or why it failed.
fn is_drained() -> Result<(), Failure> {
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        error => Err(error.into()),
    }
}

/// A packet socket that receives nothing until it is bound.
fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: checked; just made, and nothing else has it.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set<T>(socket: &OwnedFd, name: libc::c_int, value: T) -> io::Result<()> {
    set_level(socket, libc::SOL_PACKET, name, value)
}

fn set_level<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    let (at, bytes) = ((&raw const value).cast(), size_of::<T>() as u32);
    // SAFETY: the value lives across the call and `bytes` is its size.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at, bytes) }).map(drop)
}

/// Binds to an interface of this namespace, for frames of every protocol.
fn bind(socket: &OwnedFd, interface: &str) -> Result<(), Failure> {
    let name = CString::new(interface)?;
    set(socket, libc::PACKET_IGNORE_OUTGOING, 1)?;
    // SAFETY: integers; zero is a value of each.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: a string that lives across the call.
    address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
    let bytes = size_of_val(&address) as u32;
    // SAFETY: the address lives across the call and `bytes` is its size.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) })?;
    Ok(())
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
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the number of a processor lies inside the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is ours and the size is its own.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }).map(drop)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
