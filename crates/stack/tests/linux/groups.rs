//! What reports groups to the network. The stack itself does so to a switch that listens to reports and asks questions,
//! a bridge of the kernel at the far end, while the kernel at the near end is silent; and the kernel does so below
//! the lanes of its own interfaces.

use crate::world::{NEAR, World, config, open_packet};
use laneway_afxdp::AfXdpKind;
use laneway_core::{DatagramLane, DatagramPorts, Lane, Membership, PortPlan};
use laneway_kinds::{LaneKind, Opening, Shape};
use laneway_packet::PacketKind;
use laneway_stack::DatagramStack;
use laneway_testkit::{
    service::{Answer, DatagramProbe, MonotonicClock},
    skip,
};
use std::{
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr, UdpSocket},
    process::{Child, Stdio},
    time::Duration,
};

const UDP_PORT: u16 = 5007;
/// Waits of 10 ms in vain.
const WAITS_MAX: usize = 6000;
/// Waits between two looks at the bridge.
const WAITS_PER_LOOK: usize = 20;
/// A question each second; a member that does not answer is forgotten after three.
const BRIDGE: &str = "type bridge mcast_snooping 1 mcast_querier 1 mcast_query_interval 100 \
    mcast_query_response_interval 50 mcast_startup_query_interval 100 mcast_membership_interval 300";
/// So many that a host that answered none would be forgotten.
const QUESTIONS: u64 = 10;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn group(group: &str, source: Option<&str>) -> Membership {
    Membership { group: ip(group), interface: Some(NEAR.to_owned()), source: source.map(ip) }
}

/// A bridge with the far end as its port; false if this machine has none.
fn bridge(world: &World, [igmp, mld]: [u8; 2]) -> bool {
    let run = |arguments: &str| {
        let mut command = world.far.command("ip");
        let done = command.args(arguments.split_whitespace()).output();
        done.is_ok_and(|done| done.status.success())
    };
    run(&format!("link add br0 {BRIDGE} mcast_igmp_version {igmp} mcast_mld_version {mld}"))
        && run("link set far0 master br0")
        && run("address add 10.77.0.2/24 dev br0")
        && run("address add fd77::2/64 dev br0 nodad")
        && run("link set br0 up")
}

/// What the bridge knows of groups behind the far end.
fn known(world: &World) -> String {
    let mut command = world.far.command("bridge");
    let done = command.args(["-d", "mdb", "show", "dev", "br0"]).output();
    let all = String::from_utf8(done.expect("it ran before").stdout).expect("it is text");
    all.lines().filter(|line| line.contains("port far0")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_switch_learns_of_groups_asks_for_them_and_lets_them_through() {
    a_switch_that_speaks([3, 2]);
}

#[test]
fn a_switch_of_the_versions_before_does_so_too() {
    a_switch_that_speaks([2, 1]);
}

fn a_switch_that_speaks(versions: [u8; 2]) {
    let world = match World::new(&[]) {
        Ok(world) => world,
        Err(reason) => return skip(reason),
    };
    if !bridge(&world, versions) || world.far.command("bridge").arg("-V").output().is_err() {
        return skip("no bridge that listens to reports here");
    }
    let lane = world.open(open_packet, &"packet".parse().unwrap());
    let mut config = config(&[]);
    config.interfaces[0].name = NEAR.to_owned();
    let mut stack = DatagramStack::new(lane.unwrap_or_else(|e| panic!("{e}")), &config).unwrap();
    let mut probe = DatagramProbe::new(Answer::Nothing);
    let groups = [
        ("0.0.0.0", "239.7.7.7", None),
        ("0.0.0.0", "232.7.7.7", Some("10.77.0.2")),
        ("::", "ff15::7", None),
        ("::", "ff35::7", Some("fd77::2")),
    ];
    for any in ["0.0.0.0", "::"] {
        let of_family = groups.iter().filter(|(family, ..)| *family == any);
        let memberships = of_family.map(|(_, to, from)| group(to, *from)).collect();
        let plan = PortPlan { memberships, ..PortPlan::at(SocketAddr::new(ip(any), UDP_PORT)) };
        stack.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut serve_until = |what: &str, done: &mut dyn FnMut(&DatagramStack<_>, usize) -> bool| {
        for waited in 0..WAITS_MAX {
            stack.serve(&mut probe, &MonotonicClock).expect("the lane serves");
            let seen = probe.datagrams().len();
            if waited % WAITS_PER_LOOK == 0 && done(&stack, seen) {
                return;
            }
            stack.wait(Duration::from_millis(10)).expect("the lane waits");
        }
        panic!("{what}; the bridge knows\n{}", known(&world));
    };
    let is_known = |to: &str, from: Option<&str>| {
        let known = known(&world);
        let of_group = known.lines().find(|line| line.contains(&format!("grp {to} ")));
        of_group.is_some_and(|line| match from {
            // The versions before know no senders.
            _ if versions == [2, 1] => true,
            None => line.contains("exclude"),
            Some(from) => line.contains("include") && line.contains(from),
        })
    };
    let all_known = || groups.iter().all(|(_, to, from)| is_known(to, *from));
    serve_until("not every group was reported", &mut |_, _| all_known());
    serve_until("no router asked", &mut |stack, _| stack.events().group_queries_heard >= QUESTIONS);
    serve_until("a question was not answered", &mut |_, _| all_known());

    // Only now does the switch let them through, and nothing else that it knows of.
    let far = world.far.enter(|| {
        ["10.77.0.2:0", "[fd77::2]:0"].map(|at| UdpSocket::bind(at).expect("a free port"))
    });
    for (socket, (_, to, _)) in far.expect("a namespace").iter().zip([groups[1], groups[3]]) {
        socket.send_to(b"news", SocketAddr::new(ip(to), UDP_PORT)).expect("the far end sends");
    }
    serve_until("what was sent to the groups did not come", &mut |_, seen| seen == 2);
}

/// A program that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is reported of groups on the cable, line by line; nothing without the program for it.
fn watch(world: &World) -> Option<(Ended, impl Iterator<Item = String> + use<>)> {
    let watch = ["120", "tcpdump", "-i", "far0", "-n", "-l", "-vv", "igmp or ip6"];
    let mut command = world.far.command("timeout");
    command.args(watch).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tcpdump = Ended(command.spawn().ok()?);
    let mut errors = BufReader::new(tcpdump.0.stderr.take()?).lines().map_while(Result::ok);
    errors.find(|line| line.contains("listening on"))?;
    // Its pipe stays open, or it ends at what it says next.
    let lines = BufReader::new(tcpdump.0.stdout.take()?).lines().map_while(Result::ok);
    Some((tcpdump, lines.chain(errors)))
}

/// Reads until all of these were reported.
fn assert_reported(lines: &mut impl Iterator<Item = String>, wanted: &[&str]) {
    /// Others tell of neighbours and routers.
    const LINES_MAX: usize = 400;
    let (mut missing, mut heard) = (wanted.to_vec(), Vec::new());
    while !missing.is_empty() {
        let line = lines.next().filter(|_| heard.len() < LINES_MAX);
        let Some(line) = line else { panic!("no report of {missing:?} in {heard:#?}") };
        missing.retain(|report| !line.contains(report));
        heard.push(line);
    }
}

fn the_kernel_tells_of_groups<K: LaneKind>(spec: &str) {
    let world = match World::new(&["10.77.0.2/24", "10.77.0.3/24"]) {
        Ok(world) => world,
        Err(reason) => return skip(reason),
    };
    // A cable is made without IPv6, so that it is quiet.
    for (namespace, end) in [(&world.near, NEAR), (&world.far, "far0")] {
        let settings = format!("/proc/sys/net/ipv6/conf/{end}");
        let switched = namespace.enter(|| {
            fs::write(format!("{settings}/accept_dad"), "0")?;
            fs::write(format!("{settings}/disable_ipv6"), "0")
        });
        switched.expect("a namespace").expect("it is ours");
    }
    for address in ["fd77::2/64", "fd77::3/64"] {
        let arguments = ["address", "add", address, "dev", "far0", "nodad"];
        let added = world.far.command("ip").args(arguments).status().expect("ip runs");
        assert!(added.success(), "{address}");
    }
    let Some((_tcpdump, mut lines)) = watch(&world) else { return skip("no tcpdump here") };
    let far = world.far.enter(|| {
        ["10.77.0.2:0", "10.77.0.3:0", "[fd77::2]:0", "[fd77::3]:0"]
            .map(|at| UdpSocket::bind(at).expect("a free port"))
    });
    let far = far.expect("a namespace");
    let inside = || {
        let (spec, interfaces) = (spec.parse().expect("a spec"), [NEAR]);
        let shared = K::share(&Opening::on(&spec, Shape::Frames, &interfaces));
        let shared = shared.unwrap_or_else(|e| panic!("{e}"));
        let lane = K::frames(&shared, 0).unwrap_or_else(|e| panic!("{e}"));
        let mut config = config(&[]);
        config.interfaces[0].name = NEAR.to_owned();
        config.pass_rest = true;
        let holder = K::group_holder(&shared).expect("the lane has the kernel's interfaces");
        let stack = DatagramStack::new(lane, &config).and_then(|stack| stack.with_holder(holder));
        let mut stack = stack.unwrap_or_else(|e| panic!("{e}"));
        let mut probe = DatagramProbe::new(Answer::Nothing);
        let mut ports = Vec::new();
        for (any, all, one, from) in [
            ("0.0.0.0", "239.7.7.7", "232.7.7.7", "10.77.0.2"),
            ("::", "ff15::7", "ff35::7", "fd77::2"),
        ] {
            let memberships = vec![group(all, None), group(one, Some(from))];
            let plan = PortPlan { memberships, ..PortPlan::at(SocketAddr::new(ip(any), UDP_PORT)) };
            ports.push(stack.open_port(&plan).unwrap_or_else(|e| panic!("{e}")));
        }
        assert_reported(
            &mut lines,
            &[
                "gaddr 239.7.7.7 to_ex",
                "gaddr 232.7.7.7 allow { 10.77.0.2 }",
                "gaddr ff15::7 to_ex",
                "gaddr ff35::7 allow { fd77::2 }",
            ],
        );
        for (at, to) in ["232.7.7.7", "232.7.7.7", "ff35::7", "ff35::7"].iter().enumerate() {
            let to = SocketAddr::new(ip(to), UDP_PORT);
            far[at ^ 1].send_to(b"news", to).expect("the far end sends");
        }
        for (at, to) in [(1, "239.7.7.7"), (3, "ff15::7")] {
            let to = SocketAddr::new(ip(to), UDP_PORT);
            far[at].send_to(b"last", to).expect("the far end sends");
        }
        for _ in 0..WAITS_MAX {
            stack.serve(&mut probe, &MonotonicClock).expect("the lane serves");
            if probe.datagrams().len() >= 4 {
                break;
            }
            stack.wait(Duration::from_millis(10)).expect("the lane waits");
        }
        let seen = probe.seen.iter().map(|seen| (seen.source.ip(), seen.destination.ip()));
        let wanted = [
            ("10.77.0.2", "232.7.7.7"),
            ("fd77::2", "ff35::7"),
            ("10.77.0.3", "239.7.7.7"),
            ("fd77::3", "ff15::7"),
        ];
        let mut seen: Vec<_> = seen.collect();
        let mut wanted = wanted.map(|(from, to)| (ip(from), ip(to)));
        seen.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(seen, wanted);
        for port in ports {
            stack.close_port(port).unwrap_or_else(|e| panic!("{e}"));
        }
        assert_reported(&mut lines, &["gaddr 239.7.7.7 to_in", "gaddr ff15::7 to_in"]);
        assert_eq!(stack.events().group_reports_sent, 0, "one tells, not two");
    };
    world.near.enter(inside).expect("the namespace is there");
}

#[test]
fn the_kernel_tells_of_groups_below_packet() {
    the_kernel_tells_of_groups::<PacketKind>("packet");
}

#[test]
fn the_kernel_tells_of_groups_below_afxdp() {
    the_kernel_tells_of_groups::<AfXdpKind>("afxdp:copy");
}
