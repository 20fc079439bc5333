//! Pings on raw sockets: any other program that would answer them is kept from it, or the lane does not open.

use crate::place::{Inside, Loopback, run};
use laneway_core::{DatagramLane, Lane, LaneError, PortId};
use laneway_linux::HostSettings;
use laneway_netns::{Namespace, can_create};
use laneway_socket::UdpLane;
use laneway_testkit::{
    service::{DatagramProbe, MonotonicClock},
    skip,
};
use std::{
    fs, io, mem, net::SocketAddr, os::unix::fs::MetadataExt, path::PathBuf, process::Command,
    time::Duration,
};

/// Waits of 10 ms for messages that are on their way.
const WAITS_MAX: usize = 3000;
/// Turns without a message after which no more come.
const QUIET_TURNS: usize = 5;
const V4: &str = "127.0.0.2";
const V6: &str = "fd00::2";
const SETTINGS: [&str; 2] =
    ["/proc/sys/net/ipv4/icmp_echo_ignore_all", "/proc/sys/net/ipv6/icmp/echo_ignore_all"];

fn open(spec: &str, listen: &[&str]) -> Result<UdpLane, LaneError> {
    let listen = listen.iter().map(|ip| SocketAddr::new(ip.parse().expect("an address"), 0));
    UdpLane::open(&spec.parse()?, &listen.collect::<Vec<_>>())
}

/// A namespace whose kernel answers pings, and this thread in it.
fn place() -> Option<Loopback> {
    Loopback::new(&[V6]).map_err(skip).ok()
}

fn settings() -> [String; 2] {
    SETTINGS.map(|path| fs::read_to_string(path).expect("every kernel has it").trim().to_owned())
}

/// How many of two pings to `address` are answered; nothing, and says so, where there is no `ping`.
fn answered(address: &str) -> Option<usize> {
    answered_within(30, address)
}

/// Likewise of two that must get no answer: the kernel would answer at once.
fn answered_at_once(address: &str) -> Option<usize> {
    answered_within(1, address)
}

fn answered_within(seconds: usize, address: &str) -> Option<usize> {
    // Both at once, so that ping has seen no answer when it decides how long it waits for them.
    let output =
        Command::new("ping").args(["-c2", "-l2", &format!("-W{seconds}"), address]).output();
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(!text.contains("DUP!"), "{text}");
            Some(text.matches(" bytes from ").count())
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            skip("there is no program `ping`");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn the_kernel_is_silent_while_the_lane_is_open_and_answers_again_afterwards() {
    let Some(_place) = place() else { return };
    let lane = open("socket:raw,mute", &[V4, V6]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(settings(), ["1", "1"]);
    assert_eq!(lane.caps(PortId(1)).facts["kernel_answers"], "off while this runs");
    let Some(replies) = answered_at_once(V4) else { return };
    assert_eq!((replies, answered_at_once(V6)), (0, Some(0)));
    drop(lane);
    assert_eq!(settings(), ["0", "0"]);
    assert_eq!((answered(V4), answered(V6)), (Some(2), Some(2)));
}

#[test]
fn only_the_family_that_is_answered_for_is_silenced() {
    let Some(_place) = place() else { return };
    let _lane = open("socket:raw,mute", &[V6]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(settings(), ["0", "1"]);
}

#[test]
fn a_socket_for_pings_is_shown_requests_and_nothing_else() {
    let Some(_place) = place() else { return };
    let mut lane = open("socket:raw,mute,ttl=9", &[V4, V6]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(lane.caps(PortId(0)).facts["ttl"], "9");
    // Unreachable ports make errors of the kernel's, which go to the same address.
    let socket = std::net::UdpSocket::bind((V4, 0)).expect("a free port");
    socket.send_to(b"unheard", (V4, 1)).expect("loopback takes it");
    if answered_at_once(V4).is_none() || answered_at_once(V6).is_none() {
        return;
    }
    let mut probe = DatagramProbe::default();
    let mut quiet = 0;
    for _ in 0..WAITS_MAX {
        let served = lane.serve(&mut probe, &MonotonicClock).expect("the lane serves");
        // Once those that must come are there, none that must not may follow.
        quiet = if served > 0 || probe.datagrams().len() < 4 { 0 } else { quiet + 1 };
        if quiet == QUIET_TURNS {
            break;
        }
        lane.wait(Duration::from_millis(10)).expect("it waits");
    }
    let kinds: Vec<u8> = probe.datagrams().iter().map(|message| message[0]).collect();
    assert_eq!(kinds, [8, 8, 128, 128]);
}

#[test]
fn while_the_kernel_answers_the_lane_does_not_open() {
    let Some(_place) = place() else { return };
    for (address, setting) in [(V4, "net.ipv4.icmp_echo_ignore_all=1"), (V6, "net.ipv6.icmp.echo_")]
    {
        let refused = open("socket:raw", &[address]).err().expect("two would answer").to_string();
        let parts = [address, "answered twice", setting, "socket:raw,mute"];
        assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
    }
    fs::write(SETTINGS[0], "1").expect("root may");
    let lane = open("socket:raw,mute", &[V4]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(lane.caps(PortId(0)).facts["kernel_answers"], "off before");
    drop(lane);
    assert_eq!(settings()[0], "1", "what it did not switch off it does not switch on");
}

#[test]
fn what_a_killed_run_switched_off_the_next_one_in_its_namespace_switches_on() {
    let Some(_place) = place() else { return };
    let here = fs::metadata("/proc/thread-self/ns/net").expect("Linux has namespaces").ino();
    let records = || -> Vec<PathBuf> {
        let all = fs::read_dir("/run/laneway/restore").expect("it is there").flatten();
        let line = format!("namespace {here}\n");
        let is_of_here =
            |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(&line));
        all.map(|entry| entry.path()).filter(is_of_here).collect()
    };
    drop(open("socket:raw,mute", &[V4, V6]).unwrap_or_else(|e| panic!("{e}")));
    assert_eq!((settings(), records().len()), (["0", "0"].map(str::to_owned), 0));

    // As if it was killed: nothing is dropped, and the process is gone, for none has an id beyond 4194304.
    mem::forget(open("socket:raw,mute", &[V4, V6]).unwrap_or_else(|e| panic!("{e}")));
    assert_eq!((settings(), records().len()), (["1", "1"].map(str::to_owned), 2));
    for (number, record) in records().iter().enumerate() {
        let gone = record.with_file_name(format!("4194305-{here}-{number}"));
        fs::rename(record, gone).expect("root may");
    }
    HostSettings::of_this_host().give_back().expect("root may");
    assert_eq!((settings(), records().len()), (["0", "0"].map(str::to_owned), 0));
}

#[test]
fn no_lane_silences_the_machines_first_namespace() {
    if let Err(why) = can_create() {
        return skip(why);
    }
    if settings()[0] != "0" || !fs::exists("/proc/sys/net/core/dev_weight").unwrap_or(false) {
        return skip("this is not the first namespace, or its kernel answers no pings");
    }
    let refused = open("socket:raw,mute", &["127.0.0.1"]).err().expect("not ours").to_string();
    assert!(refused.contains("whole machine") && refused.contains("of its own"), "{refused}");
    assert_eq!(settings()[0], "0");
}

#[test]
fn two_runs_do_not_answer_for_one_address_nor_silence_twice() {
    let Some(_place) = place() else { return };
    let first = open("socket:raw,mute", &[V4]).unwrap_or_else(|e| panic!("{e}"));
    let second = open("socket:raw", &[V4]).err().expect("it is taken");
    assert!(matches!(&second, LaneError::Busy { name, .. } if name == V4), "{second}");
    // Another address, whose family is silent already: nothing to do, and nothing done.
    let third = open("socket:raw,mute", &["127.0.0.3"]).unwrap_or_else(|e| panic!("{e}"));
    drop(third);
    assert_eq!(settings()[0], "1");
    drop(first);
    assert_eq!(settings()[0], "0");
    open("socket:raw,mute", &[V4]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn another_namespace_is_another_place() {
    let Some(_place) = place() else { return };
    let _lane = open("socket:raw,mute", &[V4]).unwrap_or_else(|e| panic!("{e}"));
    let other = Namespace::create("socket-other").unwrap_or_else(|e| panic!("{e}"));
    run(&other, "ip", &["link", "set", "dev", "lo", "up"]);
    let _inside = Inside::enter(&other);
    assert_eq!(settings()[0], "0");
    open("socket:raw,mute", &[V4]).unwrap_or_else(|e| panic!("{e}"));
}
