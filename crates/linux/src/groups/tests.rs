//! Memberships of a port against a kernel that makes a socket a member of two groups.

use super::*;
use std::cell::{Cell, RefCell};

/// Of which senders a group is heard: of all, or of these.
type Heard = Option<Vec<Vec<u8>>>;

/// A kernel that makes a socket a member of two groups, each from two senders or from all.
#[derive(Default)]
struct Socket {
    /// The senders of each group; none for all.
    groups: RefCell<BTreeMap<Vec<u8>, Heard>>,
    hears_all: Cell<Option<c_int>>,
}

impl Socket {
    /// What the kernel gives it of a group.
    fn hears(&self, group_: &str, sender: &str) -> bool {
        let of = request(&group(&format!("{group_}@{sender}")), 0);
        // Whichever interface the machine's route chose.
        let (group, sender) = of[GROUP_AT..].split_at(STORAGE_BYTES);
        match self.groups.borrow().get(group) {
            None => self.hears_all.get() == Some(1),
            Some(None) => true,
            Some(Some(senders)) => senders.iter().any(|it| it == sender),
        }
    }
}

impl SocketOptions for Socket {
    fn set(&self, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
        if level == libc::SOL_SOCKET {
            return Ok(());
        }
        let mut groups = self.groups.borrow_mut();
        let (is_full, failed) = (groups.len() == 2, |e| Err(io::Error::from_raw_os_error(e)));
        if ![
            libc::MCAST_JOIN_GROUP,
            libc::MCAST_LEAVE_GROUP,
            libc::MCAST_JOIN_SOURCE_GROUP,
            libc::MCAST_LEAVE_SOURCE_GROUP,
        ]
        .contains(&option)
        {
            let word = value.first_chunk().expect("a number");
            self.hears_all.set(Some(c_int::from_ne_bytes(*word)));
            return Ok(());
        }
        let (group, sender) = value[GROUP_AT..].split_at(STORAGE_BYTES);
        let (group, sender) = (group.to_vec(), sender.to_vec());
        match (option, groups.get_mut(&group)) {
            (libc::MCAST_JOIN_GROUP, Some(_)) => return failed(libc::EADDRINUSE),
            (libc::MCAST_JOIN_GROUP | libc::MCAST_JOIN_SOURCE_GROUP, None) if is_full => {
                return failed(libc::ENOBUFS);
            }
            (libc::MCAST_JOIN_GROUP, None) => drop(groups.insert(group, None)),
            (libc::MCAST_LEAVE_GROUP, None) => return failed(libc::EADDRNOTAVAIL),
            (libc::MCAST_LEAVE_GROUP, Some(_)) => drop(groups.remove(&group)),
            (libc::MCAST_JOIN_SOURCE_GROUP, None) => {
                groups.insert(group, Some(vec![sender]));
            }
            (_, None) => return failed(libc::EINVAL),
            // ip_mc_source: a membership without senders changes from all but none to none but some.
            (libc::MCAST_JOIN_SOURCE_GROUP, Some(of @ None)) => *of = Some(vec![sender]),
            (_, Some(of @ None)) => {
                *of = Some(Vec::new());
                return failed(libc::EADDRNOTAVAIL);
            }
            (libc::MCAST_JOIN_SOURCE_GROUP, Some(Some(senders))) => {
                if senders.len() == 2 {
                    return failed(libc::ENOBUFS);
                }
                if senders.contains(&sender) {
                    return failed(libc::EADDRNOTAVAIL);
                }
                senders.push(sender);
            }
            (_, Some(Some(senders))) => {
                let Some(at) = senders.iter().position(|it| *it == sender) else {
                    return failed(libc::EADDRNOTAVAIL);
                };
                senders.swap_remove(at);
                if senders.is_empty() {
                    groups.remove(&group);
                }
            }
        }
        Ok(())
    }

    fn get(&self, _: c_int, _: c_int) -> io::Result<c_int> {
        Ok(0)
    }
}

fn group(text: &str) -> Membership {
    let (group, source) = text.split_once('@').map_or((text, None), |(g, s)| (g, Some(s)));
    let parse = |text: &str| text.parse().expect("an address");
    Membership { group: parse(group), interface: None, source: source.map(parse) }
}

fn groups() -> Groups<Socket> {
    Groups::new("here", &PortPlan::at("0.0.0.0:5".parse().expect("an address")))
}

fn lets(groups: &Groups<Socket>, destination: &str, source: &str) -> bool {
    let parse = |text: &str| text.parse().expect("an address");
    // Whichever interface the machine's route chose.
    groups.let_through(parse(destination), parse(source), 0)
}

#[test]
fn more_groups_than_a_socket_may_have_go_to_holders_and_others_are_left_out() {
    let (own, mut groups, mut caps) = (Socket::default(), groups(), CapsReport::default());
    let mut join = |groups: &mut Groups<Socket>, text: &str| {
        groups.join(&own, &group(text), || Ok(Socket::default()), &mut caps)
    };
    for text in ["239.0.0.1", "239.0.0.2@10.0.0.1"] {
        join(&mut groups, text).expect("there is room");
    }
    assert_eq!(own.hears_all.get(), Some(0), "the kernel sees to it");
    assert!(lets(&groups, "239.0.0.9", "10.0.0.9"));
    for text in ["239.0.0.3", "239.0.0.4", "239.0.0.2@10.0.0.2", "239.0.0.8"] {
        join(&mut groups, text).expect("holders have room");
    }
    assert_eq!((own.hears_all.get(), groups.holders.len()), (Some(1), 2));
    for (destination, source, through) in [
        ("239.0.0.1", "10.0.0.9", true),
        ("239.0.0.2", "10.0.0.1", true),
        ("239.0.0.2", "10.0.0.2", true),
        ("239.0.0.2", "10.0.0.3", false),
        ("239.0.0.9", "10.0.0.1", false),
        ("192.0.2.1", "10.0.0.1", true),
    ] {
        assert_eq!(lets(&groups, destination, source), through, "{destination} {source}");
    }
    assert_eq!(caps.facts["memberships"], "6");
    assert_eq!(caps.facts["membership_holders"], "2");
    for text in ["239.0.0.3", "239.0.0.1", "239.0.0.2@10.0.0.1"] {
        groups.leave(&own, &group(text), &mut caps).expect("it was joined");
        groups.leave(&own, &group(text), &mut caps).expect_err("it has left");
    }
    assert!(!lets(&groups, "239.0.0.1", "10.0.0.9") && !lets(&groups, "239.0.0.2", "10.0.0.1"));
    // Their room is used again.
    let mut join = |text: &str| groups.join(&own, &group(text), || panic!("room"), &mut caps);
    for text in ["239.0.0.5", "239.0.0.6", "239.0.0.7"] {
        join(text).expect("there is room");
    }
}

#[test]
fn a_membership_is_of_one_interface_where_the_kernel_does_not_see_to_it() {
    let on = |text: &str, index: u32| (group(text), Member { holder: None, index });
    let sender: IpAddr = "10.0.0.1".parse().expect("an address");
    let mut groups = groups();
    for (membership, member) in
        [on("239.0.0.1", 2), on("239.0.0.2", 0), on("239.0.0.3@10.0.0.1", 2), on("239.0.0.4", 2)]
    {
        groups.insert(&membership, member);
    }
    // The same on another interface, as a membership that names one.
    let (mut also, member) = on("239.0.0.4", 3);
    also.interface = Some("eth3".to_owned());
    groups.insert(&also, member);
    let lets = |groups: &Groups<Socket>, to: &str, interface| {
        groups.let_through(to.parse().expect("an address"), sender, interface)
    };
    assert!(lets(&groups, "239.0.0.1", 3), "the kernel sees to it");
    let socket = Socket::default();
    groups.holders.push(Holder { socket, of_group: HashMap::new(), is_full: false });
    for (to, interfaces) in [
        ("239.0.0.1", &[0, 2][..]),
        ("239.0.0.2", &[0, 2, 3, 4]),
        ("239.0.0.3", &[0, 2]),
        ("239.0.0.4", &[0, 2, 3]),
        ("239.0.0.9", &[]),
    ] {
        for interface in [0, 2, 3, 4] {
            let is_due = interfaces.contains(&interface);
            assert_eq!(lets(&groups, to, interface), is_due, "{to} at {interface}");
        }
    }
    let (own, mut caps) = (Socket::default(), CapsReport::default());
    // What it leaves is that of the interface.
    let _ = groups.leave(&own, &also, &mut caps);
    assert!(lets(&groups, "239.0.0.4", 2) && !lets(&groups, "239.0.0.4", 3));
}

/// Whether the port is shown what a host sends to a group: the kernel's filter, and the one here.
fn shows(groups: &Groups<Socket>, own: &Socket, group: &str, sender: &str) -> bool {
    own.hears(group, sender) && lets(groups, group, sender)
}

#[test]
fn a_group_of_more_senders_than_a_socket_may_list_is_heard_from_each() {
    let (own, mut groups, mut caps) = (Socket::default(), groups(), CapsReport::default());
    let sender = |n: u32| format!("10.0.0.{n}");
    let from = |n: u32| group(&format!("232.1.1.1@{}", sender(n)));
    for n in 1..=7 {
        groups.join(&own, &from(n), || Ok(Socket::default()), &mut caps).expect("room");
        for other in 1..=8 {
            let shown = shows(&groups, &own, "232.1.1.1", &sender(other));
            assert_eq!(shown, other <= n, "of {n} senders: {other}");
        }
    }
    assert_eq!(caps.facts["membership_holders"], "4");
    // One that leaves shuts out no other, and another takes its place.
    groups.leave(&own, &from(3), &mut caps).expect("it was joined");
    groups.join(&own, &from(8), || panic!("room"), &mut caps).expect("there is room");
    for n in 1..=9 {
        assert_eq!(shows(&groups, &own, "232.1.1.1", &sender(n)), n != 3 && n != 9, "{n}");
    }
    for n in [1, 2, 4, 5, 6, 7, 8] {
        groups.leave(&own, &from(n), &mut caps).expect("it was joined");
    }
    let left = groups.holders.iter().map(|it| it.socket.groups.borrow().len());
    assert_eq!(left.sum::<usize>() + own.groups.borrow().len(), 0);
}

#[test]
fn a_sender_more_of_a_group_is_heard_where_the_socket_has_no_room_for_groups() {
    let (own, mut groups, mut caps) = (Socket::default(), groups(), CapsReport::default());
    for text in ["232.1.1.1@10.0.0.1", "232.1.1.2", "232.1.1.3", "232.1.1.1@10.0.0.2"] {
        groups.join(&own, &group(text), || Ok(Socket::default()), &mut caps).expect("room");
    }
    for (group, sender, shown) in [
        ("232.1.1.1", "10.0.0.1", true),
        ("232.1.1.1", "10.0.0.2", true),
        ("232.1.1.1", "10.0.0.3", false),
        ("232.1.1.2", "10.0.0.3", true),
        ("232.1.1.3", "10.0.0.3", true),
        ("232.1.1.4", "10.0.0.3", false),
    ] {
        assert_eq!(shows(&groups, &own, group, sender), shown, "{group} {sender}");
    }
    assert_eq!(groups.holders.len(), 1);
}

#[test]
fn a_holder_that_may_list_no_sender_more_has_room_for_other_groups() {
    let (own, mut groups, mut caps) = (Socket::default(), groups(), CapsReport::default());
    for text in ["239.0.0.1", "239.0.0.2", "232.1.1.1@10.0.0.1", "232.1.1.1@10.0.0.2"] {
        groups.join(&own, &group(text), || Ok(Socket::default()), &mut caps).expect("room");
    }
    groups
        .join(&own, &group("232.1.1.1@10.0.0.3"), || Ok(Socket::default()), &mut caps)
        .expect("in a holder more");
    let mut join = |text: &str| groups.join(&own, &group(text), || panic!("room"), &mut caps);
    for text in ["239.0.0.3", "239.0.0.4", "232.1.1.1@10.0.0.4"] {
        join(text).expect("there is room");
    }
    assert_eq!(groups.holders.len(), 2);
}

#[test]
fn to_adopt_a_socket_shuts_out_no_sender_and_more_may_come() {
    for senders in [1, 2, 5] {
        let own = Socket::default();
        let (mut caps, mut before, mut after) = (CapsReport::default(), groups(), groups());
        let all: Vec<_> = (1..=senders).map(|n| group(&format!("232.1.1.1@10.0.0.{n}"))).collect();
        for one in &all {
            before.join(&own, one, || Ok(Socket::default()), &mut caps).expect("room");
        }
        after.adopt(&own, &all, || Ok(Socket::default()), &mut caps).expect("room");
        let more = group("232.1.1.1@10.0.0.9");
        let hear_all = |groups: &Groups<Socket>| {
            for n in 1..=senders {
                let sender = format!("10.0.0.{n}");
                assert!(shows(groups, &own, "232.1.1.1", &sender), "{senders}: {n}");
            }
        };
        hear_all(&before);
        hear_all(&after);
        after.join(&own, &more, || Ok(Socket::default()), &mut caps).expect("room");
        hear_all(&after);
        assert!(shows(&after, &own, "232.1.1.1", "10.0.0.9"), "{senders}");
    }
}

#[test]
fn what_is_no_membership_is_refused_with_the_value() {
    let (own, mut groups, mut caps) = (Socket::default(), groups(), CapsReport::default());
    groups.join(&own, &group("239.0.0.1"), || panic!("room"), &mut caps).expect("there is room");
    for (text, says) in [
        ("192.0.2.1", "no group"),
        ("ff15::1", "another family"),
        ("239.0.0.2@::1", "another family"),
        ("239.0.0.2@239.0.0.3", "one host"),
        ("239.0.0.1", "already"),
        ("239.0.0.1@10.0.0.1", "for all senders already"),
    ] {
        let refused = groups.join(&own, &group(text), || panic!("room"), &mut caps);
        let error = refused.expect_err("refused").to_string();
        let value = group(text).group.to_string();
        assert!(error.contains(says) && error.contains(&value), "{error}");
    }
}

#[test]
fn a_group_is_heard_from_all_senders_or_from_some_whatever_is_asked_for_next() {
    for (first, next, sender) in [
        ("239.0.0.1", "239.0.0.1@10.0.0.1", "10.0.0.2"),
        ("239.0.0.1@10.0.0.1", "239.0.0.1", "10.0.0.1"),
    ] {
        // In the port's own socket, and in a holder.
        for before in [&[][..], &["239.0.0.8", "239.0.0.9"]] {
            let (own, mut groups) = (Socket::default(), groups());
            let mut caps = CapsReport::default();
            let mut join = |groups: &mut Groups<Socket>, text: &str| {
                groups.join(&own, &group(text), || Ok(Socket::default()), &mut caps)
            };
            for text in before.iter().chain(&[first]) {
                join(&mut groups, text).expect("there is room");
            }
            let why = join(&mut groups, next).expect_err("it is one or the other");
            assert!(why.to_string().contains("from all or from some"), "{why}");
            assert!(shows(&groups, &own, "239.0.0.1", sender), "{first}: {sender}");
            // A socket that is handed over so is not touched.
            let all = [group(next), group(first)];
            let mut after = self::groups();
            let adopted =
                after.adopt(&own, &all, || Ok(Socket::default()), &mut CapsReport::default());
            adopted.expect_err("it is one or the other");
            assert!(shows(&groups, &own, "239.0.0.1", sender), "{first}: {sender}");
        }
    }
}

#[test]
fn senders_of_an_ipv6_group_are_those_of_one_interface() {
    let (all, some, other) = ("ff15::1", "ff15::1@fe80::1", "ff15::1@fe80::2");
    for (is_read, first, next, is_refused) in [
        (true, all, all, false),
        (true, all, some, true),
        (true, some, all, true),
        (true, some, other, true),
        (false, some, other, false),
    ] {
        let plan = PortPlan::at("[::]:5".parse().expect("an address"));
        let make = if is_read { Groups::new } else { Groups::unread };
        let mut groups: Groups<Socket> = make("here", &plan);
        groups.insert(&group(first), Member { holder: None, index: 1 });
        let done = groups.refuse_beside(&group(next), 2);
        assert_eq!(done.is_err(), is_refused, "{is_read}: {first}, {next}: {done:?}");
    }
    // The kernel looks for an IPv4 group with its interface.
    let mut groups = groups();
    groups.insert(&group("239.0.0.1"), Member { holder: None, index: 1 });
    groups.refuse_beside(&group("239.0.0.1@10.0.0.1"), 2).expect("they are apart");
}

#[test]
fn a_request_is_laid_out_as_the_kernel_reads_it() {
    let any = request(&group("239.1.2.3"), 7);
    assert_eq!(any[..4], 7u32.to_ne_bytes());
    assert_eq!((any.len(), &any[8..10]), (136, &(libc::AF_INET as u16).to_ne_bytes()[..]));
    assert_eq!(any[12..16], [239, 1, 2, 3]);
    let one = request(&group("ff15::1@fe80::2"), 0);
    assert_eq!((one.len(), one[16], one[31]), (264, 0xff, 1));
    assert_eq!((one[136 + 8], one[136 + 23]), (0xfe, 2));
}
