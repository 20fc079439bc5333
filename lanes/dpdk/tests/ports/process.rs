//! What needs a process of its own, because DPDK starts once or because it is killed: huge pages, borrowed
//! interfaces, and silence on the terminal.
//! The tests run this program again with one ignored test, the child.

use crate::world::{Alone, NEAR, World, is_promiscuous, spec};
use laneway_bpf::attachment;
use laneway_core::{Cap, Lane, PortId};
use laneway_dpdk::DpdkLane;
use laneway_linux::HostSettings;
use laneway_testkit::skip;
use std::{
    fs,
    io::{Read, Write},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

const CHILD: &str = "LANEWAY_DPDK_CHILD";
const TOTAL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const SURPLUS: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages";
/// Naps of 10 ms until what a dead process reserved has been given back.
const NAPS_MAX: usize = 3000;

/// Pages that are reserved. Surplus ones are not: they vanish when their last user is gone.
fn pages() -> usize {
    let read = |path| fs::read_to_string(path).ok().and_then(|n| n.trim().parse().ok());
    read(TOTAL).unwrap_or(0usize) - read(SURPLUS).unwrap_or(0usize)
}

fn start(scenario: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "process::child", "--ignored", "--nocapture"])
        .env(CHILD, scenario)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program runs")
}

#[test]
#[ignore = "run by the other tests of this file, in a process of its own"]
fn child() {
    let scenario = std::env::var(CHILD).expect("the parent says what to do");
    let open = |text: &str| DpdkLane::open(&spec(text), &["n0"], false);
    match scenario.as_str() {
        "drop" => {
            let before = pages();
            let lane = open("dpdk:net_null,hugepages=32,mempool=2048").expect("opens");
            assert_eq!(pages(), before + 32);
            assert!(lane.caps(PortId(0)).obtained.has(Cap::HugePages));
            assert_eq!(lane.caps(PortId(0)).facts["memory"], "hugepages");
            drop(lane);
            assert_eq!(pages(), before);
        }
        "killed" => {
            let _lane = open("dpdk:net_null,hugepages=32,mempool=2048").expect("opens");
            wait_to_be_killed();
        }
        "killed, on interfaces" => {
            let borrow = |text: &str, names: &[&str]| DpdkLane::open(&spec(text), names, false);
            let _xdp = borrow("dpdk:net_af_xdp,no-huge,promisc", &NEAR[..1]).expect("opens");
            let _packet = borrow("dpdk:net_af_packet,no-huge,promisc", &NEAR[1..]).expect("opens");
            wait_to_be_killed();
        }
        "noise" => {
            assert!(open("dpdk:net_null,no-huge,args=nonsense=1").is_err());
            assert!(open("dpdk:net_pcap,no-huge,rx_pcap=/nowhere.pcap").is_err());
            assert!(open("dpdk:net_null,no-huge").is_ok());
        }
        other => panic!("no scenario `{other}`"),
    }
}

/// Says that the scenario stands. Ends by itself should the parent die.
fn wait_to_be_killed() {
    let mut output = std::io::stdout();
    output.write_all(b"ready\n").expect("the parent listens");
    output.flush().expect("the parent listens");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Starts a child and comes back when its scenario stands.
fn start_until_ready(scenario: &str) -> Child {
    let mut child = start(scenario);
    let mut output_text = String::new();
    let mut output = child.stdout.take().expect("piped");
    let mut byte = [0];
    while !output_text.contains("ready") && output.read(&mut byte).expect("readable") == 1 {
        output_text.push(char::from(byte[0]));
    }
    assert!(output_text.contains("ready"), "{output_text}");
    child
}

/// Kills a child and waits for its guard to have done its duty.
fn kill_until(mut child: Child, is_undone: impl Fn() -> bool) -> bool {
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    (0..NAPS_MAX).any(|_| {
        thread::sleep(Duration::from_millis(10));
        is_undone()
    })
}

/// The turn of a test that counts the pages of the host, which others must not reserve meanwhile; prints the reason
/// when it cannot run.
fn can_reserve() -> Option<Alone> {
    let turn = Alone::new().map_err(skip).ok()?;
    if fs::write(TOTAL, pages().to_string()).is_err() {
        skip("huge pages cannot be reserved here");
        return None;
    }
    Some(turn)
}

#[test]
fn reserved_huge_pages_go_back_with_the_lane_and_with_a_killed_process() {
    let Some(_turn) = can_reserve() else { return };
    let before = pages();
    let ran = start("drop").wait_with_output().expect("the child ends");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    assert_eq!(pages(), before);

    let child = start_until_ready("killed");
    assert_eq!(pages(), before + 32);
    let went_back = kill_until(child, || pages() == before);
    assert!(went_back, "{} pages instead of {before}", pages());
}

#[test]
fn huge_pages_of_two_runs_all_go_back_though_the_first_ends_first() {
    let Some(_turn) = can_reserve() else { return };
    let before = pages();
    let first = start_until_ready("killed");
    let second = start_until_ready("killed");
    assert_eq!(pages(), before + 64);
    assert!(kill_until(first, || pages() == before + 32), "{} pages", pages());
    assert!(kill_until(second, || pages() == before), "{} pages instead of {before}", pages());
}

#[test]
fn huge_pages_of_a_process_that_was_killed_with_its_guard_go_back_with_the_next_run() {
    let Some(_turn) = can_reserve() else { return };
    let before = pages();
    let mut child = start_until_ready("killed");
    assert_eq!(pages(), before + 32);
    // While it lives, nothing is taken from it.
    let give_back = || HostSettings::of_this_host().give_back().expect("root may");
    let id = child.id();
    let is_ours = |process: u32| process == id;
    assert!(!give_back().iter().any(|change| is_ours(change.process)));
    for guard in guards_of(id) {
        let killed = Command::new("kill").args(["-KILL", &guard]).status().expect("kill runs");
        assert!(killed.success());
    }
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    assert_eq!(pages(), before + 32, "nobody is left to give them back");
    let given = give_back();
    assert!(given.iter().any(|change| is_ours(change.process)), "{given:?}");
    assert_eq!(pages(), before, "{given:?}");
    assert!(!give_back().iter().any(|change| is_ours(change.process)), "the record is gone");
}

/// Ids of the guards that a process has, at least one.
fn guards_of(parent: u32) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("lists").flatten();
    let is_guard = |id: &String| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let rest = stat.split_once(" (laneway-guard) ").map(|(_, rest)| rest.split_whitespace());
        rest.and_then(|mut fields| fields.nth(1)) == Some(&parent.to_string())
    };
    let ids = processes.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let guards: Vec<String> = ids.filter(is_guard).collect();
    assert!(!guards.is_empty(), "the pages have one");
    guards
}

#[test]
fn a_killed_process_leaves_borrowed_interfaces_as_they_were() {
    let Ok(world) = World::cables(3).map_err(skip) else { return };
    let has_program = || attachment(NEAR[0]).expect("it is there") != Default::default();
    // Not the lane's doing, so it stays.
    world.ip(&["link", "set", "dev", NEAR[2], "promisc", "on"]);
    let child = start_until_ready("killed, on interfaces");
    assert!(has_program() && NEAR.map(is_promiscuous) == [true; 3]);
    let is_undone = || !has_program() && NEAR.map(is_promiscuous) == [false, false, true];
    assert!(kill_until(child, is_undone), "{} {:?}", has_program(), NEAR.map(is_promiscuous));
}

#[test]
fn nothing_of_dpdk_is_printed() {
    let _turn = match Alone::new() {
        Ok(turn) => turn,
        Err(reason) => return skip(reason),
    };
    let ran = start("noise").wait_with_output().expect("the child ends");
    let text = [ran.stdout, ran.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(ran.status.success(), "{text}");
    for word in ["EAL", "ETHDEV", "vdev", "pmd", "VDEV", "rte_", "pcap"] {
        assert!(!text.contains(word), "`{word}` in: {text}");
    }
}
