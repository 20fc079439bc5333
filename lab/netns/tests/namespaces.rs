//! Namespaces, cables and threads on the real kernel, and that nothing of them remains.
//!
//! Every test makes its own namespaces and may run beside the others. Without privilege each prints why it skipped.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use laneway_netns::{
    Error, Mac, Namespace, NapiProof, Offloads, Topology, TopologyOptions, TopologyRecord, VethEnd,
    VethOptions, VethPair, can_create, driver_counters, interface_counters, interface_state,
    napi_threads, read_offloads, set_offloads, set_threaded,
};

/// Whether the test can run; if not, prints why, past the test harness's capture.
fn possible() -> bool {
    match can_create() {
        Ok(()) => true,
        Err(error) => skipped(&error.to_string()),
    }
}

fn skipped(reason: &str) -> bool {
    // One write, so that lines of parallel tests do not mix.
    let _ = io::stderr().write_all(format!("skipped: {reason}\n").as_bytes());
    false
}

fn topology(options: &TopologyOptions) -> Topology {
    Topology::create(options).expect("a topology")
}

/// A topology whose interfaces both have a kernel thread, and those threads: they live exactly as long as the
/// interfaces do, which no name tells of.
fn threaded(prefix: &str) -> (Topology, Vec<u32>) {
    let mut options = TopologyOptions::new(prefix);
    options.generator_napi_cpus = Some(vec![0]);
    options.sut_napi_cpus = Some(vec![0]);
    let topology = topology(&options);
    let sides = [&topology.generator, &topology.sut];
    let pids = sides.iter().flat_map(|side| &side.napi_threads).map(|thread| thread.pid).collect();
    (topology, pids)
}

/// Whether these threads end within the time that the kernel may take to remove a namespace.
fn are_gone(pids: &[u32]) -> bool {
    let until = Instant::now() + Duration::from_secs(60);
    let exists = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    while pids.iter().any(exists) {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Sends one ping from `namespace` and says whether it was answered; `None` without the program.
fn ping(namespace: &Namespace, address: &str) -> Option<bool> {
    if !["/bin/ping", "/usr/bin/ping"].iter().any(|path| Path::new(path).exists()) {
        skipped("no program `ping` (package iputils-ping)");
        return None;
    }
    let output = namespace
        .command("ping")
        .args(["-n", "-c", "1", "-W", "30", address])
        .output()
        .expect("nsenter starts");
    Some(output.status.success())
}

#[test]
fn two_namespaces_ping_each_other_over_both_families() {
    if !possible() {
        return;
    }
    let mut options = TopologyOptions::new("ping");
    let end = |last: u8| {
        let mac = Mac([2, 0, 0, 0, 0, last]);
        VethEnd::new(mac, &[&format!("10.9.0.{last}/24"), &format!("fd00:9::{last}/64")])
            .expect("two good addresses")
    };
    options.veth.a = end(1);
    options.veth.b = end(2);
    let topology = topology(&options);
    for (from, to) in [
        (&topology.generator, ["10.9.0.2", "fd00:9::2"]),
        (&topology.sut, ["10.9.0.1", "fd00:9::1"]),
    ] {
        for address in to {
            let Some(answered) = ping(&from.namespace, address) else { return };
            assert!(answered, "no answer from {address}");
        }
    }
}

#[test]
fn a_cable_carries_nothing_that_was_not_sent() {
    if !possible() {
        return;
    }
    let topology = topology(&TopologyOptions::new("silent"));
    let Some(answered) = ping(&topology.generator.namespace, "10.77.0.2") else { return };
    assert!(answered);
    let counters = topology.sut.namespace.enter(|| interface_counters("sut0"));
    let counters = counters.expect("enters").expect("reads");
    // One request in, one reply out: no ARP, no neighbour discovery, no listener report.
    assert_eq!((counters.rx_packets, counters.tx_packets), (1, 1));
    assert_eq!((counters.rx_dropped, counters.tx_dropped), (0, 0));
}

#[test]
fn inside_a_namespace_sysfs_shows_its_interfaces_and_the_caller_stays_outside() {
    if !possible() {
        return;
    }
    let links = || -> BTreeSet<String> {
        let entries = fs::read_dir("/sys/class/net").expect("sysfs is mounted");
        entries.map(|entry| entry.expect("lists").file_name().to_string_lossy().into()).collect()
    };
    let outside = links();
    let topology = topology(&TopologyOptions::new("sysfs"));
    let inside = topology.sut.namespace.enter(links).expect("enters");
    assert_eq!(inside, BTreeSet::from(["lo".to_owned(), "sut0".to_owned()]));
    assert!(!links().contains("sut0"));
    assert!(links().is_superset(&outside));

    let output = topology.sut.namespace.command("ls").arg("/sys/class/net").output();
    assert_eq!(output.expect("nsenter starts").stdout, b"lo\nsut0\n");
}

/// Started by a thread inside, it was refused: `/sys` was that namespace's already.
#[test]
fn a_command_sees_its_namespaces_interfaces_wherever_it_is_started() {
    if !possible() {
        return;
    }
    let topology = topology(&TopologyOptions::new("started"));
    let listed = |namespace: &Namespace| {
        let output = namespace.command("ls").arg("/sys/class/net").output().expect("ls starts");
        let printed = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&printed));
        let printed = String::from_utf8(printed).expect("names");
        printed
            .split_whitespace()
            .filter(|name| *name != "lo")
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (generator, sut) = (&topology.generator.namespace, &topology.sut.namespace);
    assert_eq!(
        (listed(generator), listed(sut)),
        (vec!["gen0".to_owned()], vec!["sut0".to_owned()])
    );
    let inside = sut.enter(|| (listed(generator), listed(sut))).expect("the namespace is there");
    assert_eq!(inside, (vec!["gen0".to_owned()], vec!["sut0".to_owned()]));
}

#[test]
fn mounts_below_sys_stay_reachable_inside() {
    if !possible() {
        return;
    }
    let device = |path: &str| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let below = ["/sys/fs/bpf", "/sys/fs/cgroup", "/sys/kernel/tracing", "/sys/kernel/debug"];
    let mounted: Vec<&str> = below
        .into_iter()
        .filter(|path| device(path).is_some_and(|it| Some(it) != device("/sys")))
        .collect();
    if mounted.is_empty() {
        skipped("nothing is mounted below /sys here");
        return;
    }
    let namespace = Namespace::create("mounts").expect("a namespace");
    for path in mounted {
        let inside = namespace.enter(|| device(path)).expect("enters");
        assert_eq!(inside, device(path), "file system on {path}");
    }
}

#[test]
fn a_panic_inside_continues_in_the_caller() {
    if !possible() {
        return;
    }
    let namespace = Namespace::create("panic").expect("a namespace");
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        let _ = namespace.enter(|| panic!("planted"));
    }));
    let cause = outcome.expect_err("the panic was passed on");
    assert_eq!(cause.downcast_ref(), Some(&"planted"));
}

#[test]
fn dropping_a_topology_removes_everything() {
    if !possible() {
        return;
    }
    let (topology, threads) = threaded("drop");
    assert_eq!(threads.len(), 2);
    drop(topology);
    assert!(are_gone(&threads));
}

#[test]
fn a_panic_in_the_owner_removes_everything() {
    if !possible() {
        return;
    }
    let mut threads = Vec::new();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        let (_topology, found) = threaded("unwind");
        threads = found;
        panic!("planted");
    }));
    assert_eq!(outcome.expect_err("panicked").downcast_ref(), Some(&"planted"));
    assert_eq!(threads.len(), 2);
    assert!(are_gone(&threads));
}

#[test]
fn dropping_a_namespace_takes_its_cables_from_under_a_straggler() {
    if !possible() {
        return;
    }
    let topology = topology(&TopologyOptions::new("straggler"));
    let started = topology.sut.namespace.command("sleep").arg("600").spawn();
    let mut straggler = started.expect("nsenter starts");
    let links = || fs::read_to_string(format!("/proc/{}/net/dev", straggler.id()));
    let is_inside = || links().expect("it runs").contains("sut0");
    let until = Instant::now() + Duration::from_secs(60);
    while !is_inside() && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(is_inside());
    drop(topology);
    assert!(!is_inside(), "its cable must be gone");
    straggler.kill().and_then(|()| straggler.wait()).expect("own child");
}

#[test]
fn a_cable_can_be_pulled_and_laid_again() {
    if !possible() {
        return;
    }
    let a = Namespace::create("pull-a").expect("a namespace");
    let b = Namespace::create("pull-b").expect("a namespace");
    for _ in 0..2 {
        let pair = VethPair::create(&a, "x", &b, "x", &VethOptions::default());
        drop(pair.expect("a cable"));
        let gone = b.enter(|| Path::new("/sys/class/net/x").exists()).expect("enters");
        assert!(!gone, "the far end outlived the cable");
    }
}

/// What a child process of these tests is to do; see [`child`].
const CHILD_ROLE: &str = "LANEWAY_NETNS_TEST_CHILD";

/// Runs in a process of its own, started by the tests below.
#[test]
#[ignore = "the other half of the tests that kill a process or count its descriptors; they start it themselves"]
fn child() {
    let Ok(role) = std::env::var(CHILD_ROLE) else {
        skipped("this half is started by its parent test");
        return;
    };
    let say = |line: String| {
        writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush()).expect("parent reads");
    };
    if role == "halfway" {
        let mut options = TopologyOptions::new("halfway");
        options.sut_napi_cpus = Some(vec![1023]); // the last step, and no such CPU
        let error = Topology::create(&options).expect_err("there is no CPU 1023 here");
        assert!(matches!(error, Error::NotApplied { .. }), "{error}");
        let open = fs::read_dir("/proc/self/fd").expect("lists").flatten();
        let kept = open.filter(|entry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            target.to_string_lossy().starts_with("net:[")
        });
        say(format!("kept {}", kept.count()));
        return;
    }
    let (_topology, threads) = threaded("child");
    threads.iter().for_each(|pid| say(format!("thread {pid}")));
    say("ready".to_owned());
    // The parent kills this process.
    let _ = io::stdin().read(&mut [0]);
}

fn start_child(role: &str) -> Child {
    Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(CHILD_ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test program starts")
}

#[test]
fn a_topology_that_fails_half_way_leaves_nothing() {
    if !possible() {
        return;
    }
    let output = start_child("halfway").wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("kept 0\n"), "a namespace is still held: {printed}");
}

#[test]
fn a_killed_owner_leaves_nothing() {
    if !possible() {
        return;
    }
    let mut owner = start_child("owner");
    let mut threads: Vec<u32> = Vec::new();
    for line in BufReader::new(owner.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        // The harness may print its own words before, on the same line.
        if let Some((_, pid)) = line.split_once("thread ") {
            threads.push(pid.parse().expect("a process id"));
        } else if line.ends_with("ready") {
            break;
        }
    }
    let run = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    assert_eq!((threads.len(), threads.iter().all(run)), (2, true));
    owner.kill().expect("kills"); // SIGKILL
    owner.wait().expect("ends");
    assert!(are_gone(&threads), "its interfaces are still there");
}

#[test]
fn offloads_read_back_as_set() {
    if !possible() {
        return;
    }
    let topology = topology(&TopologyOptions::new("offloads"));
    let all_on = Offloads {
        gro: true,
        gso: true,
        tso: true,
        tx_checksum: true,
        tx_udp_segmentation: true,
        rx_vlan: true,
        tx_vlan: true,
    };
    let all_off = Offloads { gro: false, ..Offloads::default() };
    topology
        .generator
        .namespace
        .enter(|| {
            assert_eq!(read_offloads("gen0").expect("reads"), Offloads::default());
            for asked in [all_on, all_off] {
                assert_eq!(set_offloads("gen0", asked).expect("sets"), asked);
                assert_eq!(read_offloads("gen0").expect("reads"), asked);
            }
            // The kernel drops TSO when checksums are off; the error reports it.
            let error = set_offloads("gen0", Offloads { tx_checksum: false, ..all_on });
            let sentence = error.expect_err("TSO needs checksums").to_string();
            assert!(sentence.contains("tx-tcp-segmentation of gen0 is `off`"), "{sentence}");
        })
        .expect("enters");
}

#[test]
fn napi_thread_is_found_pinned_and_does_the_receiving() {
    if !possible() {
        return;
    }
    // The last CPU this process may use; on a machine with one, pinning is trivial but still true.
    let cpus = fs::read_to_string("/proc/self/status").expect("reads");
    let cpus = cpus.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = cpus.and_then(|list| list.trim().rsplit([',', '-']).next()).expect("a list");
    let cpu: usize = last.parse().expect("a number");

    let mut options = TopologyOptions::new("napi");
    options.sut_napi_cpus = Some(vec![cpu]);
    let topology = topology(&options);
    let [thread] = topology.sut.napi_threads.as_slice() else {
        panic!("one queue, one thread: {:?}", topology.sut.napi_threads)
    };
    assert_eq!(thread.cpus, [cpu]);
    assert!(thread.name.starts_with("napi/sut0-"), "{}", thread.name);
    assert!(topology.generator.napi_threads.is_empty());

    // It sleeps when idle, so being switched to is work done.
    let switches = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", thread.pid)).expect("lives");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.and_then(|count| count.trim().parse().ok()).expect("a count")
    };
    let bind = |namespace: &Namespace, address: &'static str| {
        namespace.enter(|| UdpSocket::bind(address)).expect("enters").expect("binds")
    };
    let sender = bind(&topology.generator.namespace, "10.77.0.1:0");
    let receiver = bind(&topology.sut.namespace, "10.77.0.2:7000");
    receiver.set_read_timeout(Some(Duration::from_secs(30))).expect("sets");
    let before = switches();
    for _ in 0..100 {
        sender.send_to(b"laneway", "10.77.0.2:7000").expect("sends");
        assert_eq!(receiver.recv(&mut [0; 16]).expect("arrives"), 7);
    }
    assert!(switches() > before, "frames arrived without the thread");
    let stat = fs::read_to_string(format!("/proc/{}/stat", thread.pid)).expect("lives");
    let (_, fields) = stat.rsplit_once(')').expect("has a name");
    let last_cpu = fields.split_ascii_whitespace().nth(36); // field 39: where it ran last
    assert_eq!(last_cpu, Some(cpu.to_string().as_str()));
}

#[test]
fn turning_threading_off_ends_it_and_without_napi_it_is_refused() {
    if !possible() {
        return;
    }
    let mut options = TopologyOptions::new("thrdoff");
    options.sut_napi_cpus = Some(vec![0]);
    let topology = topology(&options);
    topology
        .sut
        .namespace
        .enter(|| {
            assert!(interface_state("sut0").expect("reads").threaded);
            assert!(set_threaded("sut0", false).expect("turns off").is_empty());
            assert!(!interface_state("sut0").expect("reads").threaded);
            let without_gro = Offloads { gro: false, ..Offloads::default() };
            set_offloads("sut0", without_gro).expect("sets");
            let error = set_threaded("sut0", true).expect_err("NAPI is off");
            assert!(matches!(error, Error::NoNapi { .. }), "{error}");
        })
        .expect("enters");
}

#[test]
fn threads_of_equal_interface_names_are_distinguished() {
    if !possible() {
        return;
    }
    let mut options = TopologyOptions::new("twins");
    options.veth.queues = 2;
    options.sut_napi_cpus = Some(vec![0]);
    let twins = [topology(&options), topology(&options)];
    let pids: BTreeSet<u32> = twins
        .iter()
        .flat_map(|twin| twin.sut.napi_threads.iter().map(|thread| thread.pid))
        .collect();
    assert_eq!(pids.len(), 4, "two queues each, no thread counted twice");
    for twin in &twins {
        let found = twin.sut.namespace.enter(|| napi_threads("sut0"));
        if let Some(found) = found.expect("enters").expect("reads") {
            assert_eq!(found, twin.sut.napi_threads);
            assert!(found.iter().all(|thread| thread.proof == NapiProof::Kernel));
        }
    }
}

#[test]
fn the_record_states_what_was_asked_and_survives_json() {
    if !possible() {
        return;
    }
    let mut options = TopologyOptions::new("record");
    options.veth.mtu_bytes = 1_400;
    options.veth.queues = 2;
    options.sut_napi_cpus = Some(vec![0]);
    let topology = topology(&options);
    let record = topology.describe().expect("describes");

    assert!(!record.kernel_release.is_empty());
    for (end, peer, asked) in [
        (&record.generator, &options.veth.b, &options.veth.a),
        (&record.sut, &options.veth.a, &options.veth.b),
    ] {
        let state = &end.state;
        assert_eq!((state.mtu_bytes, state.rx_queues, state.tx_queues), (1_400, 2, 2));
        assert_eq!((state.mac, &state.addresses), (asked.mac, &asked.addresses));
        assert_eq!((state.offloads, state.operstate.as_str()), (asked.offloads, "up"));
        let neighbours: Vec<_> =
            state.neighbours.iter().map(|neighbour| (neighbour.address, neighbour.mac)).collect();
        assert_eq!(neighbours, [(peer.addresses[0].address(), peer.mac)]);
    }
    assert_eq!((record.generator.state.threaded, record.sut.state.threaded), (false, true));
    assert_eq!(record.sut.napi_threads.len(), 2);
    assert!(record.sut.napi_threads.iter().all(|thread| thread.cpus == [0]));

    let text = serde_json::to_string(&record).expect("serialises");
    let back: TopologyRecord = serde_json::from_str(&text).expect("parses");
    assert_eq!(back, record);
}

#[test]
fn driver_counters_of_veth_are_read_per_queue() {
    if !possible() {
        return;
    }
    let mut options = TopologyOptions::new("drivercnt");
    options.veth.queues = 2;
    let topology = topology(&options);
    let counters = topology.sut.namespace.enter(|| driver_counters("sut0"));
    let counters = counters.expect("enters").expect("reads");
    for name in ["rx_queue_0_xdp_drops", "rx_queue_1_drops", "tx_queue_1_xdp_xmit_errors"] {
        assert_eq!(counters.get(name), Some(&0), "{name} in {counters:?}");
    }
    let none = topology.sut.namespace.enter(|| driver_counters("lo"));
    assert!(none.expect("enters").expect("lo has no counters of its own").is_empty());
}

#[test]
fn a_refused_cable_says_why_and_leaves_the_namespaces_usable() {
    if !possible() {
        return;
    }
    let a = Namespace::create("refused").expect("a namespace");
    // Both ends in one namespace under one name.
    let error = VethPair::create(&a, "x", &a, "x", &VethOptions::default());
    let sentence = error.expect_err("the name is taken").to_string();
    assert!(sentence.contains("`ip link add x"), "{sentence}");
    drop(VethPair::create(&a, "x", &a, "y", &VethOptions::default()).expect("a cable"));
}

#[test]
fn neighbours_that_a_program_cost_are_entered_again() {
    if !possible() {
        return;
    }
    let topology = topology(&TopologyOptions::new("again"));
    let known = || {
        let state = topology.sut.describe().unwrap().state;
        state.neighbours.iter().map(|it| it.address.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(known(), ["10.77.0.1"]);
    // As DPDK's net_af_packet does when it starts: the address that it has.
    let mut set = topology.sut.namespace.command("ip");
    set.args(["link", "set", "dev", "sut0", "address", "02:4c:57:00:00:02"]);
    assert!(set.status().unwrap().success());
    assert_eq!(known(), [""; 0], "the kernel forgets its neighbours");
    topology.renew_neighbours().unwrap();
    assert_eq!(known(), ["10.77.0.1"]);
}
