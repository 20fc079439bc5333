//! Rules come and go, links flap, interfaces go and come, sinks restart; meanwhile numbered datagrams cross in
//! windows. At the end every copy that a rule asked for left or has a name, and every copy that left was seen.
//!
//! ```text
//!   source ── in0 ─▶ relay ─┬─ out0 ─▶ sink   rules come and go, its far end flaps
//!                           ├─ out1 ─▶ sink   as well; removed and made again
//!                           └─ out2 ─▶ sink   rules that stay, and the marker that ends a window
//! ```
//!
//! `make soak APP=relay LANE=socket MINUTES=10`; the seed is drawn anew each time and printed, and `SEED=n` draws
//! the same again. A window is no longer than what sockets and rings hold, so whatever is lost has a cause.

#![expect(clippy::print_stdout, reason = "a soak ends with a table")]

use crate::{Folder, Over, PATIENCE, Running, laneway, text};
use laneway_linux::is_older_than;
use laneway_netns::{
    Mac, Namespace, VethEnd, VethOptions, VethPair, can_create, interface_counters,
};
use laneway_testkit::{Random, skip, soak as asked};
use laneway_xdp::PassGuard;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with,
    sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    process::{self, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// All lanes together, in a run of the tests.
const SECONDS_SHORT: u64 = 8;
/// Groups whose rules stay, and groups whose rules come and go.
const FIXED: u8 = 4;
const CHURNED: u8 = 12;
/// Cables on the way out.
const CABLES: u8 = 3;
/// Datagrams of a window: less than a veth's ring holds when each goes to every output.
const WINDOW: u64 = 32;
/// Stands in front of each payload.
const MAGIC: [u8; 4] = *b"soak";
const MARKER: Ipv4Addr = Ipv4Addr::new(239, 9, 9, 9);
const INPUT: u16 = 5000;
/// After so long a marker that was not seen is sent again: its way was cut.
const MARKER_AGAIN: Duration = Duration::from_millis(200);
/// After the end of the relay nothing more arrives, and what was sent is there.
const SILENCE: Duration = Duration::from_millis(300);
/// What a run may grow by: buffers that are touched for the first time.
const GROWTH_KB_MAX: u64 = 16 * 1024;

/// What a lane can do beside relaying.
#[derive(Clone, Copy)]
struct Lane<'a> {
    spec: &'a str,
    is_the_kernels: bool,
    is_xdp: bool,
}

impl Lane<'_> {
    fn of(spec: &str) -> Lane<'_> {
        let name = spec.split(':').next().unwrap_or_default();
        Lane { spec, is_the_kernels: ["socket", "uring"].contains(&name), is_xdp: name == "xdp" }
    }
}

struct World {
    source: Namespace,
    relay: Namespace,
    sink: Namespace,
    cables: Vec<Option<VethPair>>,
    _way_in: VethPair,
    folder: Folder,
}

fn ip(namespace: &Namespace, arguments: &str) {
    let output = namespace.command("ip").args(arguments.split(' ')).output().expect("iproute2");
    assert!(output.status.success(), "ip {arguments}: {}", text(&output.stderr));
}

fn cable(
    (a, name_a, address_a): (&Namespace, &str, &str),
    (b, name_b, address_b): (&Namespace, &str, &str),
    n: u8,
) -> VethPair {
    let end = |side, address: &str| {
        VethEnd::new(Mac([0x02, 0x4c, 0x57, 0x3a, n, side]), &[address]).expect("an address")
    };
    let options =
        VethOptions { a: end(1, address_a), b: end(2, address_b), ..VethOptions::default() };
    VethPair::create(a, name_a, b, name_b, &options).unwrap_or_else(|e| panic!("{e}"))
}

impl World {
    fn new() -> World {
        let create = |label| Namespace::create(label).unwrap_or_else(|e| panic!("{e}"));
        let (source, relay, sink) = (create("soak-a"), create("soak-b"), create("soak-c"));
        let near = (&relay, "in0", "10.60.0.1/24");
        let way_in = cable((&source, "src0", "10.60.0.7/24"), near, 9);
        ip(&source, "route add 224.0.0.0/4 dev src0");
        let cables = Vec::new();
        let mut world =
            World { source, relay, sink, cables, _way_in: way_in, folder: Folder::new() };
        for n in 0..CABLES {
            let cable = world.way_out(n);
            world.cables.push(Some(cable));
        }
        world
    }

    fn way_out(&self, n: u8) -> VethPair {
        let (near, far) = (format!("10.61.{n}.1/24"), format!("10.61.{n}.4/24"));
        let near = (&self.relay, &*format!("out{n}"), &*near);
        cable(near, (&self.sink, &*format!("dst{n}"), &*far), n)
    }

    fn control(&self) -> String {
        self.folder.file("relay.sock")
    }

    fn ask(&self, arguments: &[&str]) -> process::Output {
        laneway(&[&["relay"], arguments, &["--control", &self.control()]].concat())
    }

    fn status(&self) -> Value {
        let output = self.ask(&["--json", "status"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn start(&self, lane: &Lane<'_>, rules: &str) -> Running {
        let control = self.control();
        let mut command = self.relay.command(crate::LANEWAY);
        command.args(["run", "relay", "--json", "--lane", lane.spec, "--control", &control]);
        command.args(["--config", rules]);
        if !lane.is_the_kernels {
            let own = (0..CABLES).map(|n| format!("10.61.{n}.1/24@out{n}"));
            let own: Vec<String> = own.chain(["10.60.0.1/24@in0".to_owned()]).collect();
            command.args(["--address", &own.join(","), "--on", "in0,out0,out1,out2"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        let mut running = Running { child: Some(child) };
        let begun = Instant::now();
        while !self.ask(&["status"]).status.success() {
            let child = running.child.as_mut().expect("it was just started");
            if child.try_wait().expect("it is ours").is_some() || begun.elapsed() > PATIENCE {
                let output = running.end();
                panic!("{}: {}{}", lane.spec, text(&output.stdout), text(&output.stderr));
            }
            thread::sleep(Duration::from_millis(20));
        }
        running
    }
}

/// Rules that come and go, by group: the text of each.
#[derive(Clone, Default)]
struct Churn(BTreeMap<u8, String>);

impl Churn {
    fn rule(group: u8, lane: &Lane<'_>, draw: &mut Random) -> String {
        let mut outputs = Vec::new();
        for cable in 0..2 {
            let mut options = format!("ttl = {}", 2 + draw.below(60));
            if draw.below(2) == 0 {
                let _ = write!(options, ", dscp = {}", draw.below(64));
            }
            if !lane.is_xdp && draw.below(6) == 0 {
                options.push_str(", sample = 2");
            }
            if !lane.is_xdp && draw.below(6) == 0 {
                options.push_str(", bytes_per_second = 1000");
            }
            if lane.is_the_kernels && draw.below(3) == 0 {
                options.push_str(", when_full = \"oldest\"");
            }
            let to_group = draw.below(3) == 0;
            let to = match to_group {
                true => Ipv4Addr::new(239, 2, cable, group),
                false => Ipv4Addr::new(10, 61, cable, 4),
            };
            if outputs.is_empty() || draw.below(2) == 0 {
                let port = 6000 + u16::from(group);
                outputs.push(format!(
                    "  {{ destination = \"{to}:{port}\", interface = \"out{cable}\", {options} }}"
                ));
            }
        }
        rule([239, 1, 0, group].into(), &outputs)
    }

    /// The whole set as a file, with the rules that stay.
    fn file(&self) -> String {
        let mut text = "allow = [\"10.61.0.0/16\"]\n".to_owned();
        let fixed = (0..FIXED).map(|g| (Ipv4Addr::new(239, 9, 0, g), 7000 + u16::from(g)));
        for (group, port) in fixed.chain([(MARKER, 7999)]) {
            let output =
                format!("  {{ destination = \"10.61.2.4:{port}\", interface = \"out2\" }}");
            text.push_str(&rule(group, &[output]));
        }
        text.extend(self.0.values().map(String::as_str));
        text
    }
}

fn rule(group: Ipv4Addr, outputs: &[String]) -> String {
    format!(
        "[[rule]]\ninput = {{ interface = \"in0\", group = \"{group}\", port = {INPUT} }}\noutputs = [\n{}\n]\n",
        outputs.join(",\n")
    )
}

/// What arrived at the sink's ends of all cables.
#[derive(Default)]
struct Arrived {
    by_output: BTreeMap<(SocketAddrV4, u8), Numbers>,
    copies: u64,
    wrong: Vec<String>,
    /// Those that a later one overtook, of rules that stay and of others.
    late: [u64; 2],
}

/// The numbers of one group at one destination.
#[derive(Default)]
struct Numbers {
    count: u64,
    highest: u64,
    /// A bit for each.
    seen: Vec<u64>,
}

impl Numbers {
    /// Whether it was not seen before.
    fn add(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        self.count += 1;
        is_new
    }
}

/// A frame's destination, group and number, if it is one of ours.
fn read(frame: &[u8]) -> Option<(SocketAddrV4, u8, u64)> {
    if frame.get(12..14)? != [0x08, 0x00] || frame[23] != 17 {
        return None;
    }
    let to: [u8; 4] = frame.get(30..34)?.try_into().ok()?;
    let port = u16::from_be_bytes(frame.get(36..38)?.try_into().ok()?);
    let payload = frame.get(42..)?.strip_prefix(&MAGIC)?;
    let number = u64::from_be_bytes(payload.get(1..9)?.try_into().ok()?);
    Some((SocketAddrV4::new(to.into(), port), payload[0], number))
}

fn payload(group: u8, number: u64) -> Vec<u8> {
    let mut payload = MAGIC.to_vec();
    payload.push(group);
    payload.extend(number.to_be_bytes());
    // Of all lengths.
    payload.resize(payload.len() + (number % 700) as usize, group);
    payload
}

/// Whether a rule sends the datagrams of a group to this UDP port.
fn is_of(port: u16, group: u8) -> bool {
    match group.checked_sub(FIXED) {
        None => port == 7000 + u16::from(group),
        Some(churned) => port == 6000 + u16::from(churned),
    }
}

/// The group of the marker in a payload.
const MARKER_GROUP: u8 = 0xff;

/// Sees every frame that reaches the sink, until it is over.
fn watch(seen: &Mutex<Arrived>, marker: &AtomicU64, is_over: &AtomicBool, ready: &AtomicBool) {
    let socket =
        socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(eth::IP))
            .expect("root may");
    set_socket_recv_buffer_size_force(&socket, 16 << 20).expect("root may");
    set_socket_timeout(&socket, Timeout::Recv, Some(SILENCE)).expect("it has one");
    ready.store(true, Ordering::Release);
    let mut frame = [0; 2048];
    loop {
        let Ok((bytes, _)) = recv(&socket, frame.as_mut_slice(), RecvFlags::empty()) else {
            // Nothing for a while, or an interface that went down, which is reported once.
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            continue;
        };
        let Some((to, group, number)) = read(&frame[..bytes]) else { continue };
        let mut seen = seen.lock().expect("no thread panics with it");
        seen.copies += 1;
        let numbers = seen.by_output.entry((to, group)).or_default();
        let (is_new, highest) = (numbers.add(number), numbers.highest);
        numbers.highest = highest.max(number);
        if group == MARKER_GROUP {
            marker.fetch_max(number, Ordering::Release);
        } else if !is_new || !is_of(to.port(), group) {
            seen.wrong.push(format!("{to}: {number} of group {group} behind {highest}"));
        } else if number < highest {
            seen.late[usize::from(group >= FIXED)] += 1;
        }
    }
}

/// What the kernel says that it lost between the relay's sends and the sink, and sent.
fn kernel_losses(world: &World, n: u8) -> u64 {
    let read = |namespace: &Namespace, name: String| {
        let counters = namespace.enter(|| interface_counters(&name)).expect("a namespace");
        counters.unwrap_or_default()
    };
    let near = read(&world.relay, format!("out{n}"));
    let far = read(&world.sink, format!("dst{n}"));
    near.tx_dropped + near.tx_errors + far.rx_dropped + far.rx_errors
}

/// Resident memory, KiB.
fn resident_kb(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|kb| kb.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0)
}

/// How often each thing was done.
#[derive(Default)]
struct Done {
    changes: u64,
    flaps: u64,
    restarts: u64,
    removals: u64,
}

/// Changes rules, lets far ends flap and sinks restart, until it is over.
fn disturb(
    (world, cables): (&World, &Cables),
    lane: &Lane<'_>,
    seed: u64,
    (is_over, done): (&AtomicBool, &Mutex<Done>),
) {
    let mut draw = Random::seeded(seed);
    let mut churn = Churn::default();
    let mut sinks: Vec<UdpSocket> = Vec::new();
    let mut step = 0;
    while !is_over.load(Ordering::Relaxed) {
        step += 1;
        let count = |what: fn(&mut Done) -> &mut u64| *what(&mut done.lock().expect("sound")) += 1;
        match draw.below(8) {
            0 => {
                let cable = draw.below(2);
                let cables = cables.lock().expect("sound");
                if cables[cable as usize].is_none() {
                    continue;
                }
                ip(&world.sink, &format!("link set dev dst{cable} down"));
                thread::sleep(Duration::from_millis(5 + draw.below(20)));
                ip(&world.sink, &format!("link set dev dst{cable} up"));
                count(|done| &mut done.flaps);
            }
            1 => {
                let ports: BTreeSet<u16> =
                    (0..4).map(|_| 6000 + draw.below(u64::from(CHURNED)) as u16).collect();
                sinks.clear();
                let open = || {
                    ports
                        .into_iter()
                        .filter_map(|port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).ok())
                };
                sinks = world.sink.enter(|| open().collect()).expect("a namespace");
                count(|done| &mut done.restarts);
            }
            what => {
                let mut next = churn.clone();
                for _ in 0..1 + draw.below(4) {
                    let group = draw.below(u64::from(CHURNED)) as u8;
                    if draw.below(3) == 0 {
                        next.0.remove(&group);
                    } else {
                        next.0.insert(group, Churn::rule(group, lane, &mut draw));
                    }
                }
                let path = world.folder.file(&format!("rules-{}.toml", step % 2));
                fs::write(&path, next.file()).expect("a folder of ours");
                // What a file adds is in force beside what is there.
                let verb = if what == 2 { "add" } else { "replace" };
                // The second way out may just be gone; no other interface is ever.
                let wait = lane.is_the_kernels.then_some("--wait");
                let words: Vec<&str> = [verb, &path].into_iter().chain(wait).collect();
                let output = world.ask(&words);
                if output.status.success() {
                    if verb == "add" {
                        let kept = churn.0.iter().filter(|(group, _)| !next.0.contains_key(group));
                        let kept: Vec<_> = kept.map(|(g, rule)| (*g, rule.clone())).collect();
                        next.0.extend(kept);
                    }
                    churn = next;
                } else {
                    panic!("{verb}: {}", text(&output.stderr));
                }
                count(|done| &mut done.changes);
            }
        }
        thread::sleep(Duration::from_millis(draw.below(10)));
    }
}

type Cables = Mutex<Vec<Option<VethPair>>>;

/// The numbers that were sent, by group, and the windows.
#[derive(Default)]
struct Sent {
    numbers: BTreeMap<u8, u64>,
    windows: u64,
    /// What the kernel had lost on interfaces that are gone.
    lost: u64,
}

impl Sent {
    /// Sends windows for some time, each until its marker has arrived, and lets the second way out go and come in
    /// between.
    fn go_on(
        &mut self,
        (world, cables): (&World, &Cables),
        lane: &Lane<'_>,
        (draw, time): (&mut Random, Duration),
        (marker, done): (&AtomicU64, &Mutex<Done>),
    ) {
        let source = world.source.enter(|| UdpSocket::bind("0.0.0.0:0")).expect("a namespace");
        let source = source.expect("a free port");
        let begun = Instant::now();
        loop {
            for _ in 0..draw.below(WINDOW) {
                let group = draw.below(u64::from(FIXED + CHURNED)) as u8;
                let number = self.numbers.entry(group).or_default();
                *number += 1;
                let to = match group.checked_sub(FIXED) {
                    None => Ipv4Addr::new(239, 9, 0, group),
                    Some(churned) => Ipv4Addr::new(239, 1, 0, churned),
                };
                source.send_to(&payload(group, *number), (to, INPUT)).expect("it sends");
            }
            self.windows += 1;
            let window = self.windows;
            let closing = Instant::now();
            while marker.load(Ordering::Acquire) < window {
                let is_late = closing.elapsed() > PATIENCE;
                assert!(!is_late, "{}: window {window} does not end", lane.spec);
                source.send_to(&payload(MARKER_GROUP, window), (MARKER, INPUT)).expect("it sends");
                let again = Instant::now();
                while marker.load(Ordering::Acquire) < window && again.elapsed() < MARKER_AGAIN {
                    thread::yield_now();
                }
            }
            let is_over = begun.elapsed() >= time;
            // Everything is quiet: a cable that is cut now takes nothing along.
            // A far end that flaps just now does so under traffic.
            let cables = if is_over { cables.lock().ok() } else { cables.try_lock().ok() };
            let Some(mut cables) = cables else { continue };
            match cables[1].take() {
                Some(cable) if !is_over && lane.is_the_kernels && draw.below(500) == 0 => {
                    self.lost += kernel_losses(world, 1);
                    drop(cable);
                    done.lock().expect("sound").removals += 1;
                }
                None if is_over || draw.below(100) == 0 => cables[1] = Some(world.way_out(1)),
                unchanged => cables[1] = unchanged,
            }
            if is_over {
                return;
            }
        }
    }
}

fn n(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn soak(spec: &str, seconds: u64, seed: u64) {
    if let Err(why) = can_create() {
        return skip(why);
    }
    println!("soak on {spec}: {seconds} s, seed {seed}");
    let lane = Lane::of(spec);
    let mut world = World::new();
    let cables = Mutex::new(std::mem::take(&mut world.cables));
    let first = world.folder.file("first.toml");
    fs::write(&first, Churn::default().file()).expect("a folder of ours");
    let (seen, done) = (Mutex::new(Arrived::default()), Mutex::new(Done::default()));
    let marker = AtomicU64::new(0);
    let [is_over, is_quiet, is_ready] = [const { AtomicBool::new(false) }; 3];
    let mut draw = Random::seeded(seed);
    let mut sent = Sent::default();
    let world = &world;
    let (memory_kb, status, account) = thread::scope(|scope| {
        // Also where something panics, so that nothing waits for ever.
        let ending = (Over(&is_over), Over(&is_quiet));
        let (seen, marker, over, ready) = (&seen, &marker, &is_over, &is_ready);
        scope.spawn(move || {
            let far = move || {
                let guard =
                    |n| PassGuard::attach(&format!("dst{n}")).unwrap_or_else(|e| panic!("{e}"));
                let _guards: Vec<PassGuard> =
                    if lane.is_xdp { (0..CABLES).map(guard).collect() } else { Vec::new() };
                watch(seen, marker, over, ready);
            };
            world.sink.enter(far).expect("a namespace");
        });
        while !is_ready.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(5));
        }
        let running = world.start(&lane, &first);
        let process = running.child.as_ref().expect("it runs").id();
        let disturbance = draw.below(u64::MAX);
        let (cables, done, quiet) = (&cables, &done, &is_quiet);
        let disturber =
            scope.spawn(move || disturb((world, cables), &lane, disturbance, (quiet, done)));
        let ways = (world, cables);
        let warm = Duration::from_secs(seconds.div_ceil(10));
        sent.go_on(ways, &lane, (&mut draw, warm), (marker, done));
        let at_start = resident_kb(process);
        let rest = Duration::from_secs(seconds).saturating_sub(warm);
        sent.go_on(ways, &lane, (&mut draw, rest), (marker, done));
        is_quiet.store(true, Ordering::Relaxed);
        if let Err(panic) = disturber.join() {
            std::panic::resume_unwind(panic);
        }
        let ready_again = Duration::ZERO;
        sent.go_on(ways, &lane, (&mut draw, ready_again), (marker, done));
        let memory_kb = [at_start, resident_kb(process)];
        let status = world.status();
        let account = running.account(lane.spec);
        drop(ending);
        (memory_kb, status, account)
    });
    let seen = seen.into_inner().expect("no thread panicked with it");
    let done = done.into_inner().expect("no thread panicked with it");
    judge((world, &lane), (&sent, &seen, &done), memory_kb, (&status, &account));
}

/// Reasons under which a lane counts a copy that it was to send and did not.
const NOT_SENT: [&str; 7] = [
    "tx_refused",
    "tx_too_long",
    "tx_no_port",
    "tx_socket_full",
    "tx_interface_full",
    "no_neighbour",
    "no_route",
];

/// Prints its outcome, and fails where something is not accounted for.
fn judge(
    (world, lane): (&World, &Lane<'_>),
    (sent, seen, done): (&Sent, &Arrived, &Done),
    memory_kb: [u64; 2],
    (status, account): (&Value, &Value),
) {
    let copies = &account["copies"];
    let named = ["sampled_out", "rate_limited", "passed_over"].map(|why| (why, n(&copies[why])));
    let dropped = NOT_SENT.map(|why| (why, n(&account["lane_drops"][why])));
    let by_name: u64 = named.iter().chain(&dropped).map(|(_, n)| n).sum();
    let (asked, left) = (n(&copies["asked"]), n(&copies["sent"]));
    let lost: u64 = sent.lost + (0..CABLES).map(|cable| kernel_losses(world, cable)).sum::<u64>();
    println!("  datagrams shown    {:>12}  in {} windows", n(&account["seen"]), sent.windows);
    println!("  copies asked       {asked:>12}");
    println!("  copies sent        {left:>12}");
    for (why, n) in named.iter().chain(&dropped).filter(|(_, n)| *n > 0) {
        println!("    {why:<16} {n:>12}");
    }
    println!("  copies seen        {:>12}  (lost by the kernel, as it says: {lost})", seen.copies);
    println!(
        "  overtaken          {:>12}  and {} where rules come and go",
        seen.late[0], seen.late[1]
    );
    println!(
        "  done               {} changes, {} flaps, {} removals, {} restarts of sinks",
        done.changes, done.flaps, done.removals, done.restarts
    );
    println!("  resident memory    {} KiB, then {} KiB", memory_kb[0], memory_kb[1]);
    let rules = status["rules"].as_array().expect("rules");
    let stay = (0..FIXED).map(|group| {
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 61, 2, 4), 7000 + u16::from(group));
        let rule = rules.iter().find(|rule| rule["outputs"][0]["destination"] == to.to_string());
        let seen = seen.by_output.get(&(to, group)).map_or(0, |numbers| numbers.count);
        (sent.numbers.get(&group).copied().unwrap_or_default(), rule.expect("it stays"), seen)
    });
    let stay: Vec<(u64, &Value, u64)> = stay.collect();
    for (numbers, rule, seen) in &stay {
        let (shown, left) = (n(&rule["datagrams"]), n(&rule["outputs"][0]["sent"]));
        println!(
            "  a rule that stays  {numbers:>12}  given, {shown} shown, {left} sent, {seen} seen"
        );
    }
    let wrong = &seen.wrong[..seen.wrong.len().min(10)];
    assert!(wrong.is_empty(), "twice, or to another receiver: {wrong:?}");
    // A send through io_uring that meets the error of an earlier datagram is made again behind those that were asked
    // for with it. Where a far end flaps, a lane of frames offers again what it refused.
    let [stays, _] = seen.late;
    assert!(stays == 0 || lane.spec.starts_with("uring"), "{stays} were overtaken");
    assert!(asked > 0 && done.changes > 0, "nothing was shown");
    assert_eq!(asked, left + by_name, "asked = sent + every named drop: {account:#}");
    assert!(seen.copies <= left, "more was seen than was sent");
    if done.flaps + done.removals == 0 {
        assert_eq!(seen.copies, left, "nothing was in the way");
    }
    // Older kernels drop what is sent by a cable that is cut without a word.
    if !is_older_than(6, 12) {
        assert!(left - seen.copies <= lost, "sent = seen + what the kernel lost");
    }
    // Of the rules that stay every number was seen, in order, once.
    for (numbers, rule, seen) in stay {
        assert_eq!(seen, numbers, "{rule:#}");
        assert_eq!(n(&rule["datagrams"]), numbers, "{rule:#}");
        assert_eq!(n(&rule["outputs"][0]["sent"]), numbers, "{rule:#}");
    }
    // The interface that nothing else leaves by has counted the same; a stack of our own announces itself there.
    if lane.is_the_kernels {
        let counters = world.relay.enter(|| interface_counters("out2")).expect("a namespace");
        let by_out2: u64 = seen
            .by_output
            .iter()
            .filter(|((to, _), _)| to.ip().octets()[..3] == [10, 61, 2])
            .map(|(_, numbers)| numbers.count)
            .sum();
        assert_eq!(counters.expect("it is there").tx_packets, by_out2, "as the kernel counts");
    }
    let growth_kb = memory_kb[1].saturating_sub(memory_kb[0]);
    assert!(growth_kb <= GROWTH_KB_MAX, "it grew by {growth_kb} KiB");
}

#[test]
fn soak_for_a_moment() {
    for lane in ["socket:batch=64,gso,gro", "uring:gso,gro"] {
        soak(lane, SECONDS_SHORT / 2, asked::seed());
    }
}

#[test]
#[ignore = "runs for LANEWAY_SOAK_SECONDS, 600 by default, on LANEWAY_SOAK_LANE"]
fn soak_for_as_long_as_asked() {
    soak(&asked::lane("socket"), asked::seconds(), asked::seed());
}
