//! The meter on this machine: real tasks, cables and threads.
//!
//! Shares are compared, never times: other programs may run beside these tests.

use super::*;
use crate::child_process::ChildProcess;
use crate::generate::LiveGenerator;
use crate::permitted::permitted;
use crate::plan::{Order, Ready, Reply};
use crate::segment::SegmentPlan;
use crate::traffic::{Replayable, Template};
use io_uring::IoUring;
use laneway_bpf::{Loaded, XdpLink, XdpMode};
use laneway_core::{Clock, KernelHalf};
use laneway_engine::{MonotonicClock, pin_to_cpu};
use laneway_netns::{
    Mac, NapiThread, Offloads, VethEnd, VethOptions, VethPair, can_create, set_threaded,
};
use laneway_testkit::skip;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The arm under test, and one that has nothing to do with it.
const ARM: usize = 5;
const OTHER: usize = 6;
const WINDOW: Duration = Duration::from_millis(400);
/// Says that it is there, and what it does.
const BUSY: &str = "echo there; while :; do :; done";
/// Sends small datagrams as fast as it can.
const SENDER: &str = "exec 3>/dev/udp/$0/7000; echo there; while :; do echo 1 >&3; done";
/// Sends bytes over TCP as fast as they are taken.
const STREAM: &str = "exec 3>/dev/tcp/$0/7001; echo there; exec cat /dev/zero >&3";

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a Python program needs to start a second thread, and to end its first one alone, by the kernel's `exit`.
const THREADS: &str = "
import ctypes, os, platform, sys, threading
def start_second(work):
    print('there', flush=True)
    sys.stdin.readline()
    threading.Thread(target=work).start()
def end_first():
    number = {'x86_64': 60, 'aarch64': 93}[platform.machine()]
    ctypes.CDLL(None).syscall(number, 0)
";

/// A child that is ended when this is dropped.
struct Running(Child);

impl Running {
    /// Starts it on `cpu` and waits for its first line.
    fn start(command: &mut Command, cpu: usize) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let start = || {
            pin_to_cpu(cpu).unwrap();
            command.spawn().unwrap()
        };
        let mut child = thread::scope(|scope| scope.spawn(start).join()).unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Running(child)
    }

    fn input(&mut self) -> &mut ChildStdin {
        self.0.stdin.as_mut().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both can only fail if it has ended meanwhile.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One at a time: they load the same CPUs.
static TURN: Mutex<()> = Mutex::new(());

/// The meter and this test's turn, or `None` with the reason reported.
fn meter() -> Option<(Meter, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Some((permitted(Meter::attach())?, turn))
}

/// What is used in a window that begins when all on `cpu` have had a turn.
fn used(meter: &Meter, cpu: usize) -> Usage {
    thread::spawn(move || pin_to_cpu(cpu)).join().unwrap().unwrap();
    let start = meter.read().unwrap();
    thread::sleep(WINDOW);
    let usage = meter.read().unwrap().since(&start);
    let closure = usage.closure();
    assert!((closure - 1.0).abs() < 0.03, "booked {closure} of the time there was");
    usage
}

#[test]
fn a_foreign_hog_on_the_arms_cpu_is_named_and_never_the_arms() {
    let Some((meter, _turn)) = meter() else { return };
    let hog = std::env::temp_dir().join(format!("lw-hog-{}", std::process::id()));
    symlink("/bin/sh", &hog).unwrap();
    let mut arm = Running::start(Command::new("sh").args(["-c", "echo there; exec cat"]), 0);
    meter.classify(arm.0.id(), Owner::Arm(ARM)).unwrap();
    let _hog = Running::start(Command::new(&hog).args(["-c", BUSY]), 0);
    fs::remove_file(hog).unwrap();
    let start = meter.read().unwrap();
    for _ in 0..20 {
        std::io::Write::write_all(arm.input(), b"work\n").unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    let usage = meter.read().unwrap().since(&start);
    let (own, foreign) = (usage.own_ns(ARM), usage.foreign_ns());
    assert!(foreign >= usage.window_ns * 3 / 10, "foreign: {foreign} of {}", usage.window_ns);
    assert!((1..foreign / 10).contains(&own), "the arm's own: {own}, foreign: {foreign}");
    let names = usage.foreigners();
    let named = names.iter().find(|(name, _)| name.starts_with("lw-hog")).map_or(0, |(_, ns)| *ns);
    assert!(named > own, "the hog is among {names:?}");
    assert!((usage.closure() - 1.0).abs() < 0.03, "booked {}", usage.closure());
}

/// As this kernel does with threads of pid 1: they were switched in, ran for a millisecond, and their switch out was
/// never reported.
#[test]
fn who_runs_is_known_where_the_kernel_leaves_out_a_switch() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let busy = || Running::start(Command::new("sh").args(["-c", BUSY]), 0);
    let (arm, overlooked) = (busy(), busy());
    let id = overlooked.0.id().to_ne_bytes().to_vec();
    let constants = [ConfigValue { name: "overlooked", bytes: id }];
    let Some(meter) = permitted(Meter::attach_with(OBJECT, &constants)) else { return };
    meter.classify(arm.0.id(), Owner::Arm(ARM)).unwrap();
    meter.classify(overlooked.0.id(), Owner::Arm(OTHER)).unwrap();
    let tasks = [&arm, &overlooked].map(|task| PathBuf::from(format!("/proc/{}", task.0.id())));
    let ran_ns = || tasks.each_ref().map(|task| run_time_ns(task));
    let before = ran_ns();
    let usage = used(&meter, 0);
    let after = ran_ns();
    for (arm, at) in [(ARM, 0), (OTHER, 1)] {
        let (own, ran) = (usage.own_ns(arm) as f64, (after[at] - before[at]) as f64);
        // Ticks are 10 ms at most, and so are the edges of the window.
        let edges = 0.05 * usage.window_ns as f64;
        assert!(
            (own - ran).abs() < edges + 0.05 * ran,
            "booked {own} ns of {ran}: {}",
            usage.method()
        );
    }
}

#[test]
fn what_an_arm_forks_is_the_arms_until_it_is_disowned() {
    let Some((meter, _turn)) = meter() else { return };
    // The shell waits for its first line before it starts a busy child, which ends when it does.
    let script = "exec 2>/dev/null; echo there; read go; \
                  sh -c 'while kill -0 $PPID; do :; done' & read end; kill $!; wait $!";
    let mut arm = Running::start(Command::new("sh").args(["-c", script]), 0);
    meter.classify(arm.0.id(), Owner::Arm(ARM)).unwrap();
    std::io::Write::write_all(arm.input(), b"go\n").unwrap();
    thread::sleep(Duration::from_millis(50));
    let usage = used(&meter, 0);
    assert!(usage.own_ns(ARM) > usage.window_ns / 5, "its own: {}", usage.own_ns(ARM));
    meter.disown(OTHER).unwrap();
    meter.disown(ARM).unwrap();
    let usage = used(&meter, 0);
    drop(arm.0.stdin.take());
    arm.0.wait().unwrap();
    assert_eq!(usage.own_ns(ARM), 0);
}

/// Started between the list of an arm's processes and their booking.
#[test]
fn what_a_process_started_before_it_was_booked_is_booked_with_its_pid_namespace() {
    let Some((meter, _turn)) = meter() else { return };
    let script = "sleep 600 & echo there; wait";
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "sh", "-c", script]);
    let arm = Running::start(&mut unshare, 0);
    let namespace = |file: &str| fs::read_link(format!("/proc/{file}")).ok();
    let room = namespace(&format!("{}/ns/pid_for_children", arm.0.id()));
    let inside: Vec<u32> =
        pids().filter(|pid| namespace(&format!("{pid}/ns/pid")) == room).collect();
    assert_eq!(inside.len(), 2);
    meter.classify_all(&[arm.0.id(), inside[0]], Owner::Arm(ARM)).unwrap();
    let booked: BTreeSet<u32> = meter.processes(Owner::Arm(ARM)).unwrap().into_iter().collect();
    assert_eq!(booked, inside.into_iter().chain([arm.0.id()]).collect());
}

#[test]
fn an_arm_that_is_disowned_leaves_the_others_theirs() {
    let Some((meter, _turn)) = meter() else { return };
    let [first, second] =
        [0, 0].map(|cpu| Running::start(Command::new("sh").args(["-c", BUSY]), cpu));
    meter.classify(first.0.id(), Owner::Arm(ARM)).unwrap();
    meter.classify(second.0.id(), Owner::Arm(OTHER)).unwrap();
    meter.disown(ARM).unwrap();
    let usage = used(&meter, 0);
    assert_eq!(usage.own_ns(ARM), 0);
    assert!(usage.own_ns(OTHER) > usage.window_ns / 20, "its own: {}", usage.own_ns(OTHER));
}

#[test]
fn a_process_that_has_ended_leaves_its_place() {
    let Some((meter, _turn)) = meter() else { return };
    // A long race has thousands of them, one or two alive at a time.
    for _ in 0..1_100 {
        let mut process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        meter.classify(process.id(), Owner::Arm(ARM)).unwrap();
        drop(process.stdin.take());
        process.wait().unwrap();
    }
    assert!(meter.processes(Owner::Arm(ARM)).unwrap().is_empty());
}

#[test]
fn a_process_that_finds_no_room_in_the_meter_is_counted() {
    let Some((meter, _turn)) = meter() else { return };
    let mut arm =
        Running::start(Command::new("sh").args(["-c", "echo there; read go; cat & wait"]), 0);
    meter.classify(arm.0.id(), Owner::Arm(ARM)).unwrap();
    let used = |meter: &Meter| meter.read().unwrap().since(&Reading::default());
    assert_eq!(used(&meter).unplaced(ARM), 0);
    // Numbers that no process has.
    let mut others = (1 << 22)..;
    let has_room = |pid: &u32| meter.classify(*pid, Owner::Generator(OTHER)).is_ok();
    assert!(others.by_ref().take_while(has_room).count() > 60_000);
    std::io::Write::write_all(arm.input(), b"go\n").unwrap();
    until(|| used(&meter).unplaced(ARM) > 0);
    assert_eq!([ARM, OTHER].map(|arm| used(&meter).unplaced(arm)), [1, 0]);
    meter.disown(ARM).unwrap();
    assert_eq!(used(&meter).unplaced(ARM), 0);
}

/// Its first thread has ended, or another one has executed a program.
#[test]
fn a_process_is_the_arms_until_its_last_thread_ends() {
    let Some((meter, _turn)) = meter() else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("no python3 in PATH");
    }
    for second in ["while True: pass", "os.execvp('sh', ['sh', '-c', 'while :; do :; done'])"] {
        let python = format!(
            "{THREADS}\nstart_second(lambda: exec({second:?}, {{'os': os}}))\nend_first()\n"
        );
        let mut arm = Running::start(Command::new("python3").args(["-c", &python]), 0);
        meter.classify(arm.0.id(), Owner::Arm(ARM)).unwrap();
        std::io::Write::write_all(arm.input(), b"go\n").unwrap();
        let is_under_way = || match second.starts_with("os.exec") {
            true => of_proc(arm.0.id(), "comm").starts_with("sh"),
            // proc_pid_stat(5): Z of a first thread that has ended.
            false => of_proc(arm.0.id(), "stat").contains(") Z "),
        };
        until(is_under_way);
        let (own, ran) = own_and_ran(&meter, arm.0.id());
        assert!(own >= ran / 2, "{second}: it ran for {ran} ns, and is booked with {own}");
        meter.disown(ARM).unwrap();
    }
}

/// It is in a group of its own, which no signal to the arm's reaches.
#[test]
fn what_an_arm_starts_later_in_a_group_of_its_own_is_parked_with_it() {
    if can_create().map_err(skip).is_err() {
        return;
    }
    let Some((meter, _turn)) = meter() else { return };
    let script = "set -m; read setup; echo \"$0\"; \
                  read go; while kill -0 $$; do :; done & read end; kill $!";
    let ready = serde_json::to_string(&Reply::Ready(Ready::default())).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-c", script, &ready]).process_group(0);
    let room = Namespace::create("parked").unwrap();
    let start = || {
        pin_to_cpu(0).unwrap();
        ChildProcess::start_command("bash".to_owned(), bash, &room, &Ready::default()).unwrap()
    };
    let mut arm = thread::scope(|scope| scope.spawn(start).join()).unwrap();
    meter.classify(arm.pid(), Owner::Arm(ARM)).unwrap();
    arm.order(&Order::Report).unwrap();
    let processes = || meter.processes(Owner::Arm(ARM)).unwrap();
    until(|| processes().len() == 2);
    let worker = processes().into_iter().find(|pid| *pid != arm.pid()).unwrap();
    arm.park(true, &meter, Owner::Arm(ARM)).unwrap();
    // proc_pid_stat(5): T of one that is stopped.
    for pid in [arm.pid(), worker] {
        until(|| of_proc(pid, "stat").contains(") T "));
    }
    assert_eq!(used(&meter, 0).own_ns(ARM), 0);
    arm.park(false, &meter, Owner::Arm(ARM)).unwrap();
    let (own, ran) = own_and_ran(&meter, worker);
    assert!(own >= ran / 2, "it ran for {ran} ns, and is booked with {own}");
    arm.order(&Order::Stop).unwrap();
}

/// What is booked on the arm in a window, and what the threads of a process that runs all the time ran in it, ns.
fn own_and_ran(meter: &Meter, pid: u32) -> (u64, u64) {
    let ran_ns = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        threads.map(|thread| run_time_ns(&thread.unwrap().path())).sum::<u64>()
    };
    let before = ran_ns();
    let own = used(meter, 0).own_ns(ARM);
    let ran = ran_ns() - before;
    assert!(ran > 1_000_000, "it ran for {ran} ns");
    (own, ran)
}

/// Waits for what must come.
fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it did not come");
        thread::sleep(Duration::from_millis(5));
    }
}

fn of_proc(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

#[test]
fn a_thread_that_the_kernel_starts_for_io_uring_is_its_processs() {
    let Some((meter, _turn)) = meter() else { return };
    let ring: IoUring = match IoUring::builder().setup_sqpoll(10_000).build(8) {
        Ok(ring) => ring,
        Err(error) => return skip(format!("io_uring: {error}")),
    };
    let poller = thread_named("iou-sqp-");
    meter.classify(std::process::id(), Owner::Arm(ARM)).unwrap();
    // It sleeps until it is woken for the first time, and then polls for as long as it was configured to.
    for _ in 0..1_000 {
        let ran = run_time_ns(&poller);
        ring.submit().unwrap();
        thread::sleep(Duration::from_millis(10));
        if run_time_ns(&poller) > ran + 1_000_000 {
            break;
        }
    }
    let (start, ran) = (meter.read().unwrap(), run_time_ns(&poller));
    thread::sleep(WINDOW);
    let ran = run_time_ns(&poller) - ran;
    let own = meter.read().unwrap().since(&start).own_ns(ARM);
    assert!(ran > 1_000_000, "it polled for {ran} ns");
    assert!(own >= ran / 2, "it ran for {ran} ns, and its process is booked with {own}");
}

/// The folder of a thread of this process, when it has given itself its name.
fn thread_named(begin: &str) -> PathBuf {
    let name = |thread: &PathBuf| fs::read_to_string(thread.join("comm")).unwrap_or_default();
    let look = || {
        let threads = fs::read_dir("/proc/self/task").unwrap();
        threads.map(|thread| thread.unwrap().path()).find(|thread| name(thread).starts_with(begin))
    };
    for _ in 0..1_000 {
        if let Some(thread) = look() {
            return thread;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("no thread of this process is called {begin}");
}

fn run_time_ns(thread: &Path) -> u64 {
    let text = fs::read_to_string(thread.join("schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// A cable and a socket at its far end that nothing reads.
struct Cable {
    _pair: VethPair,
    near: Namespace,
    far: Namespace,
    address: String,
    _socket: UdpSocket,
}

impl Cable {
    fn lay(net: u8) -> Cable {
        Cable::lay_with(net, true)
    }

    /// On veth, without GRO there is no NAPI: what arrives is put into the backlog of a CPU.
    fn lay_with(net: u8, gro: bool) -> Cable {
        let end = |host: u8| {
            let mac = Mac([0x02, 0x4c, 0x57, 9, net, host]);
            let end = VethEnd::new(mac, &[&format!("10.{net}.0.{host}/24")]).unwrap();
            VethEnd { offloads: Offloads { gro, ..end.offloads }, ..end }
        };
        let rooms = [format!("near{net}"), format!("far{net}")];
        let [near, far] = rooms.map(|label| Namespace::create(&label).unwrap());
        let options = VethOptions { a: end(1), b: end(2), ..VethOptions::default() };
        let pair = VethPair::create(&near, "near0", &far, "far0", &options).unwrap();
        let address = format!("10.{net}.0.2");
        let socket = far.enter(|| UdpSocket::bind((address.as_str(), 7_000)).unwrap()).unwrap();
        Cable { _pair: pair, near, far, address, _socket: socket }
    }

    /// Its ends are an arm's and the generator's.
    fn belongs(&self, meter: &Meter, arm: usize) {
        for (room, name, owner) in
            [(&self.near, "near0", Owner::Generator(arm)), (&self.far, "far0", Owner::Arm(arm))]
        {
            let (netns, ifindex) = key_of(room, name).unwrap();
            meter.own_interface(netns, ifindex, owner).unwrap();
        }
    }

    fn sender(&self) -> Running {
        let start = || {
            let mut bash = Command::new("bash");
            Running::start(bash.args(["-c", SENDER, &self.address]), 0)
        };
        self.near.enter(start).unwrap()
    }

    fn threads(&self) -> Vec<NapiThread> {
        let mut threads = self.far.enter(|| set_threaded("far0", true)).unwrap().unwrap();
        threads.iter_mut().for_each(|thread| thread.pin(1 % cpus()).unwrap());
        threads
    }
}

/// The kernel starts it, outside of any process.
#[test]
fn the_thread_of_a_map_of_cpus_is_the_arms_that_made_the_map() {
    let Some((own, _foreign, meter, _turn)) = cables() else { return };
    let before = cpumap_threads();
    let loaded = Loaded::load(&KernelHalf::new(
        "test_cpus",
        include_bytes!(concat!(env!("OUT_DIR"), "/test_cpus.bpf.o")),
        "to_the_first",
    ));
    let Some(loaded) = permitted(loaded) else { return };
    // struct bpf_cpumap_val: the length of a queue, and no program.
    let value = [64_u32, 0].map(u32::to_ne_bytes).concat();
    loaded.maps().put("cpus", &0_u32.to_ne_bytes(), &value).unwrap();
    meter.claim_cpumap_threads(&before, Owner::Arm(ARM)).unwrap();
    let name = format!("cpumap/0/map:{}", loaded.maps().id("cpus").unwrap());
    let its = |pid: &u32| of_proc(*pid, "comm").trim_end() == name;
    let thread = cpumap_threads().into_iter().find(its).expect("its thread is there");
    let program = loaded.program();
    let attach = || XdpLink::attach(program, "far0", XdpMode::Native);
    let _attached = own.far.enter(attach).unwrap().unwrap();
    let _sender = own.sender();
    let ran_ns = || run_time_ns(Path::new(&format!("/proc/{thread}")));
    let before_ns = ran_ns();
    let booked = used(&meter, 0).contexts_ns(ARM)["napi thread"];
    let ran = ran_ns() - before_ns;
    assert!(ran > 1_000_000, "it ran for {ran} ns");
    assert!(booked >= ran / 2, "it ran for {ran} ns, and its arm is booked with {booked}");
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The meter, an arm's cable and a foreign one; `None` with the reason reported.
fn cables() -> Option<(Cable, Cable, Meter, MutexGuard<'static, ()>)> {
    can_create().map_err(skip).ok()?;
    let (meter, turn) = meter()?;
    let (own, foreign) = (Cable::lay(91), Cable::lay(92));
    own.belongs(&meter, ARM);
    Some((own, foreign, meter, turn))
}

#[test]
fn softirq_work_is_the_arms_when_it_polls_the_arms_interface_and_not_the_senders() {
    let Some((own, _foreign, meter, _turn)) = cables() else { return };
    // Not the generator: any process, whose sending is interrupted by the arm's receiving.
    let _sender = own.sender();
    let usage = used(&meter, 0);
    let contexts = usage.contexts_ns(ARM);
    let net_rx = contexts["softirq net_rx"];
    assert!(net_rx > usage.window_ns / 200, "{contexts:?}");
    assert_eq!((net_rx, contexts["arm"], contexts["napi thread"]), (usage.own_ns(ARM), 0, 0));
    assert_eq!(usage.own_ns(OTHER), 0);
}

#[test]
fn what_an_xdp_program_takes_is_the_arms_whose_interface_it_is_at() {
    let Some((own, _foreign, meter, _turn)) = cables() else { return };
    let traffic = Replayable::of(vec![Template::new(&[0; 60])]);
    // No arm's interface: what it would send on goes nowhere.
    let live = own.far.enter(|| LiveGenerator::new(&traffic, 1 << 20, [2; 6], false));
    let Some(live) = permitted(live.unwrap()) else { return };
    let t0_ns = MonotonicClock.now_ns();
    let plan = SegmentPlan {
        segment: 1,
        t0_ns,
        frames: u32::MAX,
        interval_ns: 2_000_000,
        burst: 1,
        entry: 0,
    };
    let _attached = live.dawdle(&own.far, "far0", &plan);
    let _sender = own.sender();
    let usage = used(&meter, 0);
    let contexts = usage.contexts_ns(ARM);
    // Without the program it is a hundredth; the sender, and the thread that softirqs run in, are interrupted for
    // it.
    assert!(contexts["softirq net_rx"] > usage.window_ns / 5, "{contexts:?}");
    assert_eq!(usage.own_ns(ARM), contexts["softirq net_rx"], "{contexts:?}");
}

#[test]
fn softirq_work_of_a_foreign_interface_is_foreign_though_it_interrupts_the_arm() {
    let Some((_own, foreign, meter, _turn)) = cables() else { return };
    let sender = foreign.sender();
    meter.classify(sender.0.id(), Owner::Arm(ARM)).unwrap();
    let usage = used(&meter, 0);
    let contexts = usage.contexts_ns(ARM);
    assert!(contexts["arm"] > usage.window_ns / 20, "{contexts:?}");
    // The sender itself, and nothing of what its sending made others do.
    let foreign_rx = usage.of(Owner::Foreign, Part::NetRx);
    assert!(foreign_rx > contexts["arm"] / 50, "{foreign_rx} beside {contexts:?}");
    assert!(contexts["softirq net_rx"] < foreign_rx / 10, "{foreign_rx} beside {contexts:?}");
}

/// Whom such a softirq interrupts says nothing of whom it works for.
#[test]
fn what_another_cpu_receives_from_its_backlog_is_the_arms_whose_interface_it_is() {
    if can_create().map_err(skip).is_err() {
        return;
    }
    if cpus() < 2 {
        return skip("one CPU: there is no other to receive");
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let own = Cable::lay_with(93, false);
    let rps = || fs::write("/sys/class/net/far0/queues/rx-0/rps_cpus", "2");
    own.far.enter(rps).unwrap().unwrap();
    for (object, is_seen) in [(OBJECT, false), (PACKETS_OBJECT, true)] {
        let Some(meter) = permitted(Meter::attach_with(object, &[])) else { return };
        own.belongs(&meter, ARM);
        let sender = own.sender();
        meter.classify(sender.0.id(), Owner::Generator(ARM)).unwrap();
        let usage = used(&meter, 0);
        let net_rx = usage.contexts_ns(ARM)["softirq net_rx"];
        // Of whichever task runs there.
        let any = [Owner::Idle, Owner::Foreign, Owner::Lab, Owner::Host];
        let beside: u64 = any.iter().map(|owner| usage.of(*owner, Part::BesideNetRx)).sum();
        let (more, less) = if is_seen { (net_rx, beside) } else { (beside, net_rx) };
        assert!(
            less < more / 5,
            "packets looked at: {is_seen}; the arm's {net_rx} ns, beside other tasks {beside} ns"
        );
        assert_eq!(usage.own_ns(ARM), net_rx);
    }
}

/// TCP queues little at a time, and sends on when the far end took it: in a softirq of the thread that did.
#[test]
fn what_tcp_sends_when_the_far_end_took_a_packet_is_the_arms_that_sends() {
    if can_create().map_err(skip).is_err() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let own = Cable::lay(94);
    let listen = || std::net::TcpListener::bind(("10.94.0.1", 7_001));
    let listener = own.near.enter(listen).unwrap().unwrap();
    // What either end receives is received in threads: no softirq of the arm's but those that send.
    let threads =
        |room: &Namespace, name| room.enter(|| set_threaded(name, true)).unwrap().unwrap();
    let (mut near, mut far) = (threads(&own.near, "near0"), threads(&own.far, "far0"));
    near.iter_mut().for_each(|thread| thread.pin(1 % cpus()).unwrap());
    far.iter_mut().for_each(|thread| thread.pin(0).unwrap());
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        // The end of the sender ends it.
        while let Ok((mut stream, _)) = listener.accept() {
            while std::io::Read::read(&mut stream, &mut buffer).is_ok_and(|bytes| bytes > 0) {}
        }
    });
    let mut sent_ns = Vec::new();
    for object in [OBJECT, PACKETS_OBJECT] {
        let Some(meter) = permitted(Meter::attach_with(object, &[])) else { return };
        own.belongs(&meter, ARM);
        for (threads, owner) in [(&near, Owner::Generator(ARM)), (&far, Owner::Arm(ARM))] {
            for thread in threads {
                meter.classify_napi(thread.pid, owner).unwrap();
            }
        }
        let start = || {
            let mut bash = Command::new("bash");
            Running::start(bash.args(["-c", STREAM, "10.94.0.1"]), 0)
        };
        let sender = own.far.enter(start).unwrap();
        meter.classify(sender.0.id(), Owner::Arm(ARM)).unwrap();
        sent_ns.push(used(&meter, 0).contexts_ns(ARM)["softirq net_rx"]);
    }
    let [unseen, seen] = sent_ns[..] else { unreachable!("two objects") };
    if seen == 0 {
        return skip(
            "TCP sent nothing in a softirq: each acknowledgement found the sender at work",
        );
    }
    assert!(seen > 10 * unseen, "{unseen} ns, and {seen} ns where packets are looked at");
}

#[test]
fn the_threads_of_the_arms_interface_are_the_arms_and_the_sender_is_not() {
    let Some((own, _foreign, meter, _turn)) = cables() else { return };
    for thread in own.threads() {
        meter.classify_napi(thread.pid, Owner::Arm(ARM)).unwrap();
    }
    let sender = own.sender();
    meter.classify(sender.0.id(), Owner::Generator(ARM)).unwrap();
    let usage = used(&meter, 0);
    let contexts = usage.contexts_ns(ARM);
    let napi = contexts["napi thread"];
    assert!(napi > usage.generator_task_ns(ARM) / 50, "{contexts:?}");
    assert!(contexts["softirq net_rx"] < napi / 10 && contexts["arm"] == 0, "{contexts:?}");
    assert!(usage.generator_task_ns(ARM) > usage.window_ns / 20, "{contexts:?}");
    assert!(usage.generator_side_ns(ARM) >= usage.generator_task_ns(ARM));
}

#[test]
fn the_threads_of_a_foreign_interface_are_foreign() {
    let Some((_own, foreign, meter, _turn)) = cables() else { return };
    let threads = foreign.threads();
    let sender = foreign.sender();
    meter.classify(sender.0.id(), Owner::Generator(ARM)).unwrap();
    let usage = used(&meter, 0);
    assert!(usage.generator_task_ns(ARM) > usage.window_ns / 20, "{:?}", usage.contexts_ns(ARM));
    assert_eq!(usage.own_ns(ARM), 0);
    let names = usage.foreigners();
    let cut = |name: &str| name.chars().take(15).collect::<String>();
    assert!(names.iter().any(|(name, _)| *name == cut(&threads[0].name)), "{names:?}");
}
