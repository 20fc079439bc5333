//! Groups that the stack tells of itself, to a switch that listens to reports and asks questions: a bridge of the
//! kernel at the far end. Nothing at the near end tells of any group.

use crate::world::{NEAR, World, config, open_packet};
use laneway_core::{DatagramLane, DatagramPorts, Lane, Membership, PortPlan};
use laneway_stack::DatagramStack;
use laneway_testkit::{
    service::{Answer, DatagramProbe, MonotonicClock},
    skip,
};
use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

const UDP_PORT: u16 = 5007;
/// Waits of 10 ms in vain.
const WAITS_MAX: usize = 6000;
/// Waits between two looks at the bridge.
const WAITS_PER_LOOK: usize = 20;
/// A question each second; a member that does not answer is forgotten after three.
const BRIDGE: &str = "type bridge mcast_snooping 1 mcast_querier 1 mcast_igmp_version 3 mcast_mld_version 2 \
    mcast_query_interval 100 mcast_query_response_interval 50 mcast_startup_query_interval 100 \
    mcast_membership_interval 300";
/// So many that whoever answered none would be forgotten.
const QUESTIONS: u64 = 10;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn group(group: &str, source: Option<&str>) -> Membership {
    Membership { group: ip(group), interface: Some(NEAR.to_owned()), source: source.map(ip) }
}

/// A bridge with the far end as its port; false if this machine has none.
fn bridge(world: &World) -> bool {
    let run = |arguments: &str| {
        let mut command = world.far.command("ip");
        let done = command.args(arguments.split_whitespace()).output();
        done.is_ok_and(|done| done.status.success())
    };
    run(&format!("link add br0 {BRIDGE}"))
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
    let world = match World::new(&[]) {
        Ok(world) => world,
        Err(reason) => return skip(reason),
    };
    if !bridge(&world) || world.far.command("bridge").arg("-V").output().is_err() {
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
            None => line.contains("exclude"),
            Some(from) => line.contains("include") && line.contains(from),
        })
    };
    let all_known = || groups.iter().all(|(_, to, from)| is_known(to, *from));
    serve_until("not every group was told", &mut |_, _| all_known());
    serve_until("nobody asked", &mut |stack, _| stack.events().group_queries_heard >= QUESTIONS);
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
