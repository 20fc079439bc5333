//! Memberships of a port, over a cable between two namespaces: what comes through, what does not, and what
//! is reported to the network. Shared by the lanes of kernel sockets; a test that includes it says which lane by
//! `crate::kernel_lane`.

use crate::kernel_lane::{self, Lane};
use laneway_core::{
    DatagramLane, DatagramPorts, DropReason, Lane as _, Membership, PortId, PortPlan,
};
use laneway_netns::Mac;
use laneway_netns::{Namespace, VethEnd, VethOptions, VethPair, can_create};
use laneway_testkit::{
    service::{Answer, DatagramProbe, MonotonicClock, Seen},
    skip,
};
use std::{
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket},
    process::{Child, Stdio},
    time::Duration,
};

const UDP_PORT: u16 = 5007;
/// Waits of 10 ms in vain.
const WAITS_MAX: usize = 1000;
/// Of 10 ms each, in which nothing may come.
const SILENT_WAITS: usize = 5;

/// `near0` is the lane's end of the cable; the far end has two addresses of each family.
struct Cable {
    near: Namespace,
    far: Namespace,
    _pair: VethPair,
}

impl Cable {
    fn new() -> Result<Cable, String> {
        can_create().map_err(|e| e.to_string())?;
        let build = || {
            let (near, far) = (Namespace::create("groups-a")?, Namespace::create("groups-b")?);
            let end = |side: u8, addresses: &[&str]| {
                VethEnd::new(Mac([0x02, 0x4c, 0x57, 0x21, 0, side]), addresses).expect("addresses")
            };
            let a = end(1, &["10.78.0.1/24"]);
            let b = end(2, &["10.78.0.2/24", "10.78.0.3/24"]);
            let pair = VethPair::create(
                &near,
                "near0",
                &far,
                "far0",
                &VethOptions { a, b, ..VethOptions::default() },
            )?;
            Ok(Cable { near, far, _pair: pair })
        };
        let cable = build().map_err(|e: laneway_netns::Error| e.to_string())?;
        add_ipv6(&cable.near, "near0", &["fd78::1/64"]);
        add_ipv6(&cable.far, "far0", &["fd78::2/64", "fd78::3/64"]);
        Ok(cable)
    }

    /// A second cable between the two, from `near1` to `far1`.
    fn beside(&self) -> VethPair {
        let end = |side: u8, addresses: &[&str]| {
            VethEnd::new(Mac([0x02, 0x4c, 0x57, 0x22, 0, side]), addresses).expect("addresses")
        };
        let (a, b) = (end(1, &["10.79.0.1/24"]), end(2, &["10.79.0.2/24"]));
        let options = VethOptions { a, b, ..VethOptions::default() };
        let pair = VethPair::create(&self.near, "near1", &self.far, "far1", &options);
        let pair = pair.expect("a cable");
        add_ipv6(&self.near, "near1", &["fd79::1/64"]);
        add_ipv6(&self.far, "far1", &["fd79::2/64"]);
        pair
    }

    /// A socket of the far end at this address.
    fn far(&self, address: &str) -> UdpSocket {
        let at = SocketAddr::new(address.parse().expect("an address"), 0);
        self.far.enter(|| UdpSocket::bind(at)).expect("a namespace").expect("a free port")
    }

    /// A socket of the far end at an address that it gets for it.
    fn far_more(&self, address: &str) -> UdpSocket {
        let arguments = ["address", "add", &format!("{address}/24"), "dev", "far0"];
        let added = self.far.command("ip").args(arguments).status().expect("ip runs");
        assert!(added.success(), "{address}");
        self.far(address)
    }

    /// Runs a test in the near namespace.
    fn near(&self, test: impl FnOnce() + Send) {
        self.near.enter(test).expect("the namespace is there");
    }
}

/// Gives an end of a cable, which is made without IPv6, so that it is quiet, addresses of that.
fn add_ipv6(namespace: &Namespace, end: &str, addresses: &[&str]) {
    let on = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
    namespace.enter(|| fs::write(on, "0")).expect("a namespace").expect("it is ours");
    for address in addresses {
        let arguments = ["address", "add", address, "dev", end, "nodad"];
        let added = namespace.command("ip").args(arguments).status().expect("ip runs");
        assert!(added.success(), "{address}");
    }
}

/// The number of an interface of a namespace.
fn index(namespace: &Namespace, interface: &str) -> u32 {
    let path = format!("/sys/class/net/{interface}/ifindex");
    let text = namespace.enter(|| fs::read_to_string(path)).expect("a namespace");
    text.expect("it is there").trim().parse().expect("a number")
}

fn group(group: IpAddr, source: Option<&str>) -> Membership {
    let source = source.map(|source| source.parse().expect("an address"));
    Membership { group, interface: Some("near0".to_owned()), source }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn at(group: IpAddr) -> SocketAddr {
    SocketAddr::new(group, UDP_PORT)
}

fn everywhere(family_of: IpAddr) -> SocketAddr {
    let any = if family_of.is_ipv4() { "0.0.0.0" } else { "::" };
    SocketAddr::new(ip(any), UDP_PORT)
}

fn lane() -> Lane {
    kernel_lane::open(&[]).unwrap_or_else(|e| panic!("{e}"))
}

/// Serves until the probe has seen so many datagrams, and then while nothing more comes.
fn serve(lane: &mut Lane, probe: &mut DatagramProbe, wanted: usize) {
    let (mut waits, mut silent) = (0, 0);
    while waits < WAITS_MAX && silent < SILENT_WAITS {
        if lane.serve(probe, &MonotonicClock).expect("the lane serves") == 0 {
            lane.wait(Duration::from_millis(10)).expect("the lane waits");
            waits += 1;
            silent += usize::from(probe.datagrams().len() >= wanted);
        }
    }
    assert_eq!(probe.datagrams().len(), wanted, "after {waits} waits");
}

fn to_and_from(seen: &[Seen]) -> Vec<(IpAddr, IpAddr)> {
    seen.iter().map(|seen| (seen.destination.ip(), seen.source.ip())).collect()
}

#[test]
fn a_broadcast_of_a_subnet_is_marked_and_a_datagram_to_this_host_is_not() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    let far = cable.far("10.78.0.2");
    far.set_broadcast(true).expect("a socket may");
    cable.near(|| {
        let (mut lane, mut probe) = (lane(), DatagramProbe::new(Answer::Nothing));
        let plan = PortPlan::at(everywhere(ip("0.0.0.0")));
        lane.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
        for to in ["10.78.0.255", "10.78.0.1", "255.255.255.255"] {
            far.send_to(b"x", at(ip(to))).expect("the far end sends");
        }
        serve(&mut lane, &mut probe, 3);
        let seen: Vec<_> =
            probe.seen.iter().map(|seen| (seen.destination.ip(), seen.is_broadcast)).collect();
        let due = [("10.78.0.255", true), ("10.78.0.1", false), ("255.255.255.255", true)];
        assert_eq!(seen, due.map(|(to, is_broadcast)| (ip(to), is_broadcast)));
    });
}

#[test]
fn a_thousand_groups_are_one_port_and_distinguished_by_destination() {
    const GROUPS: u16 = 1000;
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    let far = cable.far("10.78.0.2");
    cable.near(|| {
        let groups: Vec<IpAddr> = (0..GROUPS)
            .map(|i| Ipv4Addr::new(239, 7, (i / 250) as u8, (i % 250) as u8 + 1).into())
            .collect();
        let plan = PortPlan {
            memberships: groups.iter().map(|at| group(*at, None)).collect(),
            rcvbuf_bytes: Some(4 << 20),
            ..PortPlan::at(everywhere(groups[0]))
        };
        let (mut lane, mut probe) = (lane(), DatagramProbe::new(Answer::Nothing));
        let port = lane.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
        let a_socket_may = fs::read_to_string("/proc/sys/net/ipv4/igmp_max_memberships");
        let a_socket_may: usize = a_socket_may.expect("a sysctl").trim().parse().expect("a number");
        let holders = usize::from(GROUPS).div_ceil(a_socket_may) - 1;
        let facts = &lane.caps(port).facts;
        assert_eq!(
            (&facts["memberships"][..], &facts["membership_holders"]),
            ("1000", &holders.to_string())
        );

        // Another socket here is a member of another group, so that the kernel takes its datagrams.
        let stranger = UdpSocket::bind("0.0.0.0:5008").expect("a free port");
        let foreign = Ipv4Addr::new(239, 9, 9, 1);
        stranger.join_multicast_v4(&foreign, &Ipv4Addr::new(10, 78, 0, 1)).expect("it joins");
        for (i, some) in groups.chunks(50).enumerate() {
            for to in some {
                far.send_to(to.to_string().as_bytes(), at(*to)).expect("the far end sends");
            }
            far.send_to(b"foreign", at(foreign.into())).expect("the far end sends");
            serve(&mut lane, &mut probe, 50 * (i + 1));
        }
        for (seen, group) in probe.seen.iter().zip(&groups) {
            assert_eq!(
                (seen.destination, &seen.payload[..]),
                (at(*group), group.to_string().as_bytes())
            );
        }
        let counters = lane.counters(port);
        assert_eq!(counters.drops(DropReason::NotForUs), 20, "{counters:?}");
        assert_eq!((counters.rx_frames, counters.lost()), (1000, 20), "{counters:?}");

        lane.leave(port, &group(groups[500], None)).unwrap_or_else(|e| panic!("{e}"));
        far.send_to(b"left", at(groups[500])).expect("the far end sends");
        far.send_to(b"still", at(groups[501])).expect("the far end sends");
        serve(&mut lane, &mut probe, 1001);
        assert_eq!(probe.seen[1000].payload, b"still");
    });
}

#[test]
fn a_group_is_heard_on_the_interface_of_its_membership_alone() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    let _second = cable.beside();
    let (near1, far) =
        (index(&cable.near, "near1"), ["far0", "far1"].map(|it| index(&cable.far, it)));
    for (prefix, [one, other]) in
        [("239.8.1.", ["10.78.0.2", "10.79.0.2"]), ("ff12::", ["fd78::2", "fd79::2"])]
    {
        let sockets = [one, other].map(|address| cable.far(address));
        // As many as one socket may be a member of, and so many that others hold some.
        for groups in [1, 20, 21] {
            let groups: Vec<IpAddr> = (1..=groups).map(|i| ip(&format!("{prefix}{i}"))).collect();
            let last = groups[groups.len() - 1];
            let send = |n: usize, what: &[u8]| {
                let to = match last {
                    IpAddr::V4(_) => at(last),
                    IpAddr::V6(last) => SocketAddrV6::new(last, UDP_PORT, 0, far[n]).into(),
                };
                sockets[n].send_to(what, to).expect("the far end sends");
            };
            cable.near(|| {
                // Another socket here is a member of the group on the second cable, so that the kernel takes it there.
                let stranger = UdpSocket::bind(SocketAddr::new(everywhere(last).ip(), 5008));
                let stranger = stranger.expect("a free port");
                match &last {
                    IpAddr::V4(last) => {
                        stranger.join_multicast_v4(last, &Ipv4Addr::new(10, 79, 0, 1))
                    }
                    IpAddr::V6(last) => stranger.join_multicast_v6(last, near1),
                }
                .expect("it joins");
                let memberships = groups.iter().map(|at| group(*at, None)).collect();
                let plan = PortPlan { memberships, ..PortPlan::at(everywhere(last)) };
                let (mut lane, mut probe) = (lane(), DatagramProbe::new(Answer::Nothing));
                lane.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
                send(1, b"other");
                send(0, b"own");
                serve(&mut lane, &mut probe, 1);
                let n = groups.len();
                assert_eq!(probe.seen[0].payload, b"own", "of {n} groups, to {last}");
            });
        }
    }
}

#[test]
fn a_sender_that_is_not_listed_does_not_come_through() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    for (prefix, any, [listed, other]) in [
        ("232.1.1.", "239.1.1.1", ["10.78.0.2", "10.78.0.3"]),
        ("ff35::", "ff15::1", ["fd78::2", "fd78::3"]),
    ] {
        let [from_listed, from_other] = [listed, other].map(|address| cable.far(address));
        // A few, which the port's own socket holds, and so many that others hold some.
        for groups in [1, 25] {
            cable.near(|| {
                let groups: Vec<IpAddr> =
                    (1..=groups).map(|i| ip(&format!("{prefix}{i}"))).collect();
                let mut memberships = vec![group(ip(any), None)];
                memberships.extend(groups.iter().map(|at| group(*at, Some(listed))));
                let plan = PortPlan { memberships, ..PortPlan::at(everywhere(groups[0])) };
                let (mut lane, mut probe) = (lane(), DatagramProbe::new(Answer::Nothing));
                lane.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
                let mut wanted = Vec::new();
                for to in &groups {
                    from_other.send_to(b"other", at(*to)).expect("the far end sends");
                    from_listed.send_to(b"listed", at(*to)).expect("the far end sends");
                    wanted.push((*to, ip(listed)));
                }
                from_other.send_to(b"any", at(ip(any))).expect("the far end sends");
                wanted.push((ip(any), ip(other)));
                serve(&mut lane, &mut probe, wanted.len());
                let mut seen = to_and_from(&probe.seen);
                seen.sort_unstable();
                wanted.sort_unstable();
                assert_eq!(seen, wanted);
            });
        }
    }
}

/// More than one socket may list for a group (igmp_max_msf).
const SENDERS: u8 = 12;

#[test]
fn a_group_is_heard_from_more_senders_than_a_socket_may_list() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    let senders: Vec<String> = (0..=SENDERS).map(|n| format!("10.78.0.{}", 100 + n)).collect();
    let far: Vec<UdpSocket> = senders.iter().map(|sender| cable.far_more(sender)).collect();
    let (one, other) = (ip("232.1.1.1"), ip("232.1.1.2"));
    cable.near(|| {
        let (mut lane, mut probe) = (lane(), DatagramProbe::new(Answer::Nothing));
        let from = |n: usize| group(one, Some(&senders[n]));
        let memberships = vec![from(0), group(other, None)];
        let plan = PortPlan { memberships, ..PortPlan::at(everywhere(one)) };
        let port = lane.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
        let mut heard = 0;
        // Each comes, and goes again, while the others send.
        let coming = (1..=usize::from(SENDERS)).map(|n| (n, n + 1));
        let going = (0..usize::from(SENDERS)).map(|n| (n, usize::from(SENDERS) - n));
        for (turn, (n, listed)) in coming.chain(going).enumerate() {
            match turn < usize::from(SENDERS) {
                true => lane.join(port, &from(n)).unwrap_or_else(|e| panic!("{e}")),
                false => lane.leave(port, &from(n)).unwrap_or_else(|e| panic!("{e}")),
            }
            for far in &far {
                far.send_to(b"one", at(one)).expect("the far end sends");
            }
            far[0].send_to(b"other", at(other)).expect("the far end sends");
            heard += listed + 1;
            serve(&mut lane, &mut probe, heard);
        }
    });
}

#[test]
fn a_sender_more_is_heard_where_a_socket_is_a_member_of_all_groups_that_it_may() {
    /// More than one socket may be a member of (igmp_max_memberships).
    const GROUPS: u8 = 25;
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    let senders = ["10.78.0.2", "10.78.0.3"];
    let far = senders.map(|sender| cable.far(sender));
    cable.near(|| {
        let groups: Vec<IpAddr> = (1..=GROUPS).map(|n| ip(&format!("232.1.1.{n}"))).collect();
        let memberships = groups.iter().map(|it| group(*it, Some(senders[0]))).collect();
        let plan = PortPlan { memberships, ..PortPlan::at(everywhere(groups[0])) };
        let (mut lane, mut probe) = (lane(), DatagramProbe::new(Answer::Nothing));
        let port = lane.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
        for to in &groups {
            lane.join(port, &group(*to, Some(senders[1]))).unwrap_or_else(|e| panic!("{e}"));
        }
        for to in &groups {
            for far in &far {
                far.send_to(b"one", at(*to)).expect("the far end sends");
            }
        }
        serve(&mut lane, &mut probe, 2 * groups.len());
    });
}

#[test]
fn a_membership_comes_and_goes_while_the_lane_runs() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    for (groups, source) in
        [(["239.1.1.1", "239.1.1.2"], "10.78.0.2"), (["ff15::1", "ff15::2"], "fd78::2")]
    {
        let far = cable.far(source);
        cable.near(|| {
            let [first, second] = groups.map(ip);
            let (mut lane, mut probe) = (lane(), DatagramProbe::new(Answer::Nothing));
            let plan = PortPlan::at(everywhere(first));
            let port = lane.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
            let mut shown = 0;
            for members in [&[first][..], &[first, second], &[second], &[]] {
                for (to, is_member) in [first, second].map(|at| (at, members.contains(&at))) {
                    let membership = group(to, None);
                    // Whichever of the two changes it; the other is refused.
                    let _ = match is_member {
                        true => lane.join(port, &membership),
                        false => lane.leave(port, &membership),
                    };
                    far.send_to(b"one", at(to)).expect("the far end sends");
                    shown += usize::from(is_member);
                }
                serve(&mut lane, &mut probe, shown);
            }
            assert_eq!(to_and_from(&probe.seen).len(), 4);
            let nowhere = lane.join(PortId(9999), &group(first, None)).expect_err("refused");
            assert!(nowhere.to_string().contains("9999"), "{nowhere}");
        });
    }
}

#[test]
fn a_port_that_becomes_a_member_lets_another_be_opened_beside_it() {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    cable.near(|| {
        for groups in [["239.1.1.1", "239.1.1.2"], ["ff15::1", "ff15::2"]] {
            let [first, second] = groups.map(ip);
            let mut lane = lane();
            let hosts = PortPlan::at(everywhere(first));
            let port = lane.open_port(&hosts).unwrap_or_else(|e| panic!("{e}"));
            let members = PortPlan { memberships: vec![group(second, None)], ..hosts };
            let busy = lane.open_port(&members).expect_err("hosts are one socket's own");
            assert!(busy.to_string().contains("ss -"), "{busy}");
            lane.join(port, &group(first, None)).unwrap_or_else(|e| panic!("{e}"));
            lane.open_port(&members).unwrap_or_else(|e| panic!("{e}"));
        }
    });
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

#[test]
fn groups_and_senders_of_both_families_are_reported_to_the_network() {
    /// Lines in which the reports must be; others tell of neighbours and routers.
    const LINES_MAX: usize = 200;
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return skip(reason),
    };
    let watch = ["30", "tcpdump", "-i", "far0", "-n", "-l", "-vv", "igmp or ip6"];
    let started = cable
        .far
        .command("timeout")
        .args(watch)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut tcpdump = match started {
        Ok(child) => Ended(child),
        Err(e) => return skip(format!("no timeout: {e}")),
    };
    let mut errors = BufReader::new(tcpdump.0.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        if errors.read_line(&mut line).expect("it is text") == 0 {
            return skip("no tcpdump here");
        }
    }
    let reports = BufReader::new(tcpdump.0.stdout.take().expect("piped"));
    cable.near(|| {
        let mut lane = lane();
        for (address, source) in [("232.5.5.5", "10.78.0.2"), ("ff35::5", "fd78::2")] {
            let memberships = vec![group(ip(address), Some(source))];
            let plan = PortPlan { memberships, ..PortPlan::at(everywhere(ip(address))) };
            lane.open_port(&plan).unwrap_or_else(|e| panic!("{e}"));
        }
        let mut missing =
            vec!["gaddr 232.5.5.5 allow { 10.78.0.2 }", "gaddr ff35::5 allow { fd78::2 }"];
        let mut heard = Vec::new();
        for line in reports.lines().map_while(Result::ok).take(LINES_MAX) {
            missing.retain(|report| !line.contains(report));
            heard.push(line);
            if missing.is_empty() {
                return;
            }
        }
        panic!("no report of {missing:?} in {heard:#?}");
    });
}
