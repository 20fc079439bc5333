//! What the plan of a port says to a kernel socket: which options, in which order, read back into the report.
//!
//! It makes no system call itself: the lane that owns the socket lends it the two that it needs. What must always
//! hold: an option of which the kernel knows another value than was asked for is reported as the kernel has it; a
//! failure names the address, the value and what to try.

use laneway_core::{CapsReport, LaneError, PortPlan, WhenFull};
use std::{ffi::c_int, io, net::SocketAddr};

/// A socket whose options can be set and read.
pub trait SocketOptions {
    /// `setsockopt`.
    ///
    /// # Errors
    /// The kernel's.
    fn set(&self, level: c_int, option: c_int, value: &[u8]) -> io::Result<()>;

    /// `getsockopt` of a number.
    ///
    /// # Errors
    /// The kernel's.
    fn get(&self, level: c_int, option: c_int) -> io::Result<c_int>;
}

/// `IP_PMTUDISC_INTERFACE`, and the same of IPv6: EMSGSIZE beyond the interface's MTU, for all that routers report.
const KEEP_TO_MTU: c_int = 4;
/// Differentiated services code points have six bits.
const DSCP_MAX: u8 = 63;

/// True for a port that hears what became of its datagrams: what waits for the interface's queue must know
/// that it is full.
pub fn hears_errors(plan: &PortPlan) -> bool {
    plan.tells_full_queue || plan.when_full != WhenFull::Newest
}

/// True for the error codes that the kernel makes of ICMP errors. A socket that hears errors returns one of them at its
/// next call, whatever that is for: it is about a datagram that left earlier. The kernel's tables are
/// `icmp_err_convert` (net/ipv4/icmp.c) and `tab_unreach` (net/ipv6/icmp.c), beside them EMSGSIZE and EPROTO.
pub fn is_icmp_error(code: c_int) -> bool {
    matches!(
        code,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EACCES
            | libc::EMSGSIZE
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
    )
}

/// True for errors of a send that are most likely about a datagram that left earlier: one that is too long is mostly
/// the one that is sent.
pub fn is_late_error(code: c_int) -> bool {
    is_icmp_error(code) && code != libc::EMSGSIZE
}

/// True for an address that is that of one host: not that of all, and no group's.
pub fn is_of_one_host(address: SocketAddr) -> bool {
    !address.ip().is_unspecified() && !address.ip().is_multicast()
}

/// Applies what a plan says of a socket, beside address and buffers; to be called before it is bound.
///
/// # Errors
/// What cannot be had, with the value and what to try.
pub fn apply_plan(
    lane: &str,
    socket: &impl SocketOptions,
    plan: &PortPlan,
    caps: &mut CapsReport,
) -> Result<(), LaneError> {
    let planned = Planned { lane, socket, plan };
    planned.check()?;
    planned.keep_to_interface(caps)?;
    if plan.bind.ip().is_multicast() || !plan.memberships.is_empty() {
        // A group is no one's own: each socket at it is given a copy.
        let option = (libc::SO_REUSEADDR, "SO_REUSEADDR");
        planned.number(libc::SOL_SOCKET, option, 1, "see `ss -ulpn`")?;
    }
    if let Some(hops) = plan.hop_limit {
        planned.limit_hops(hops, caps)?;
    }
    if let Some(dscp) = plan.dscp {
        let option =
            planned.by_family((libc::IP_TOS, "IP_TOS"), (libc::IPV6_TCLASS, "IPV6_TCLASS"));
        planned.number(planned.level(), option, c_int::from(dscp) << 2, "see `ip route`")?;
        caps.fact("dscp", planned.read(planned.level(), option.0) >> 2);
    }
    // Behind DSCP, which sets a priority too.
    if let Some(priority) = plan.priority {
        let (level, option) = (libc::SOL_SOCKET, (libc::SO_PRIORITY, "SO_PRIORITY"));
        let value = c_int::try_from(priority).unwrap_or(c_int::MAX);
        planned.number(level, option, value, "above 6 it takes CAP_NET_ADMIN")?;
        caps.fact("priority", planned.read(level, option.0));
    }
    if hears_errors(plan) {
        let option = planned
            .by_family((libc::IP_RECVERR, "IP_RECVERR"), (libc::IPV6_RECVERR, "IPV6_RECVERR"));
        planned.number(planned.level(), option, 1, "leave tells_full_queue out")?;
    }
    if !plan.fragments {
        let option = planned.by_family(
            (libc::IP_MTU_DISCOVER, "IP_MTU_DISCOVER"),
            (libc::IPV6_MTU_DISCOVER, "IPV6_MTU_DISCOVER"),
        );
        planned.number(planned.level(), option, KEEP_TO_MTU, "leave fragments as they are")?;
    }
    if !plan.multicast_loop {
        let option = planned.by_family(
            (libc::IP_MULTICAST_LOOP, "IP_MULTICAST_LOOP"),
            (libc::IPV6_MULTICAST_LOOP, "IPV6_MULTICAST_LOOP"),
        );
        planned.number(planned.level(), option, 0, "leave multicast_loop as it is")?;
        caps.fact("multicast_loop", planned.read(planned.level(), option.0));
    }
    Ok(())
}

/// An option and how the kernel's manual calls it.
type Named = (c_int, &'static str);

struct Planned<'a, S> {
    lane: &'a str,
    socket: &'a S,
    plan: &'a PortPlan,
}

impl<S: SocketOptions> Planned<'_, S> {
    fn level(&self) -> c_int {
        self.by_family((libc::IPPROTO_IP, ""), (libc::IPPROTO_IPV6, "")).0
    }

    fn by_family(&self, v4: Named, v6: Named) -> Named {
        if self.plan.bind.is_ipv4() { v4 } else { v6 }
    }

    fn read(&self, level: c_int, option: c_int) -> c_int {
        self.socket.get(level, option).unwrap_or(-1)
    }

    fn number(
        &self,
        level: c_int,
        (option, name): Named,
        value: c_int,
        hint: &str,
    ) -> Result<(), LaneError> {
        self.socket.set(level, option, &value.to_ne_bytes()).map_err(|e| {
            let doing = format!("set {name} to {value} for the socket at {}", self.plan.bind);
            LaneError::os(self.lane, doing, e, hint)
        })
    }

    fn refused(&self, why: String, hint: &str) -> LaneError {
        LaneError::Refused {
            lane: self.lane.to_owned(),
            name: self.plan.bind.to_string(),
            why,
            hint: hint.to_owned(),
        }
    }

    /// What contradicts itself, before anything is set.
    fn check(&self) -> Result<(), LaneError> {
        let PortPlan { bind, memberships, source, dscp, hop_limit, .. } = self.plan;
        if let Some(dscp) = dscp.filter(|dscp| *dscp > DSCP_MAX) {
            let why = format!("DSCP {dscp} has more than six bits");
            return Err(self.refused(why, "use 0 to 63; expedited forwarding is 46"));
        }
        if *hop_limit == Some(0) {
            return Err(self.refused("nothing leaves with a hop limit of 0".into(), "use 1 to 255"));
        }
        if !memberships.is_empty() && is_of_one_host(*bind) {
            let why = "a socket at the address of one host receives no group".to_owned();
            return Err(self.refused(why, "bind to the group, or to all addresses"));
        }
        let Some(source) = source.filter(|source| *source != bind.ip()) else { return Ok(()) };
        if source.is_ipv4() != bind.is_ipv4() {
            let why = format!("source {source} is of the other family");
            return Err(self.refused(why, "give a source of the address's own family"));
        }
        if is_of_one_host(*bind) {
            let why = format!("what leaves from it cannot come from {source}");
            return Err(self.refused(why, "bind to the source, or to all addresses"));
        }
        Ok(())
    }

    fn keep_to_interface(&self, caps: &mut CapsReport) -> Result<(), LaneError> {
        let Some(name) = &self.plan.interface else { return Ok(()) };
        let set = self.socket.set(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes());
        set.map_err(|e| match e.raw_os_error() {
            Some(libc::ENODEV) => LaneError::no_interface(self.lane, name),
            _ => {
                let doing = format!("keep the socket at {} to `{name}`", self.plan.bind);
                LaneError::os(self.lane, doing, e, "`ip link` lists the interfaces")
            }
        })?;
        caps.fact("interface", name);
        Ok(())
    }

    /// Of what goes to one host, and to a group.
    fn limit_hops(&self, hops: u8, caps: &mut CapsReport) -> Result<(), LaneError> {
        let unicast = self
            .by_family((libc::IP_TTL, "IP_TTL"), (libc::IPV6_UNICAST_HOPS, "IPV6_UNICAST_HOPS"));
        let multicast = self.by_family(
            (libc::IP_MULTICAST_TTL, "IP_MULTICAST_TTL"),
            (libc::IPV6_MULTICAST_HOPS, "IPV6_MULTICAST_HOPS"),
        );
        for option in [unicast, multicast] {
            self.number(self.level(), option, hops.into(), "use 1 to 255")?;
        }
        caps.fact("ttl", self.read(self.level(), unicast.0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Keeps what was set; a device is not there.
    #[derive(Default)]
    struct Recorded(RefCell<Vec<(c_int, c_int, c_int)>>);

    impl SocketOptions for Recorded {
        fn set(&self, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
            let Some(number) = value.first_chunk::<4>().filter(|_| value.len() == 4) else {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            };
            self.0.borrow_mut().push((level, option, c_int::from_ne_bytes(*number)));
            Ok(())
        }

        fn get(&self, level: c_int, option: c_int) -> io::Result<c_int> {
            let set = self.0.borrow();
            let found = set.iter().rev().find(|(l, o, _)| (*l, *o) == (level, option));
            found.map(|(.., value)| *value).ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    fn plan(bind: &str) -> PortPlan {
        PortPlan::at(bind.parse().expect("an address"))
    }

    fn refusal(plan: &PortPlan) -> String {
        let mut caps = CapsReport::default();
        let socket = Recorded::default();
        let refused =
            apply_plan("here", &socket, plan, &mut caps).expect_err("refused").to_string();
        assert!(socket.0.borrow().is_empty(), "something was set before it was refused");
        refused
    }

    #[test]
    fn a_plan_that_says_nothing_sets_nothing() {
        let (socket, mut caps) = (Recorded::default(), CapsReport::default());
        apply_plan("here", &socket, &plan("[::]:5"), &mut caps).expect("nothing to refuse");
        assert!(socket.0.borrow().is_empty() && caps.facts.is_empty());
    }

    #[test]
    fn options_are_those_of_the_family_and_are_read_back() {
        let all = |bind| PortPlan {
            hop_limit: Some(9),
            dscp: Some(34),
            priority: Some(5),
            multicast_loop: false,
            fragments: false,
            ..plan(bind)
        };
        for (bind, level, wanted) in [
            ("0.0.0.0:5", libc::IPPROTO_IP, libc::IP_TOS),
            ("[::]:5", libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        ] {
            let (socket, mut caps) = (Recorded::default(), CapsReport::default());
            apply_plan("here", &socket, &all(bind), &mut caps).expect("all can be had");
            assert_eq!(socket.get(level, wanted).expect("set"), 34 << 2);
            let mtu = if level == libc::IPPROTO_IP {
                libc::IP_MTU_DISCOVER
            } else {
                libc::IPV6_MTU_DISCOVER
            };
            assert_eq!(socket.get(level, mtu).expect("set"), libc::IP_PMTUDISC_INTERFACE);
            let set = socket.0.borrow();
            let priority = set.iter().position(|(_, option, _)| *option == libc::SO_PRIORITY);
            assert!(priority > set.iter().position(|(_, option, _)| *option == wanted));
            let facts = ["ttl", "dscp", "priority", "multicast_loop"].map(|name| &caps.facts[name]);
            assert_eq!(facts, ["9", "34", "5", "0"]);
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_the_value_before_anything_is_set() {
        let source = |bind, source: &str| {
            let source = Some(source.parse().expect("an address"));
            PortPlan { dscp: Some(1), source, ..plan(bind) }
        };
        for (plan, says) in [
            (PortPlan { hop_limit: Some(1), dscp: Some(64), ..plan("0.0.0.0:5") }, "DSCP 64"),
            (PortPlan { dscp: Some(1), hop_limit: Some(0), ..plan("0.0.0.0:5") }, "hop limit of 0"),
            (source("0.0.0.0:5", "::1"), "other family"),
            (source("192.0.2.1:5", "192.0.2.2"), "cannot come from 192.0.2.2"),
            (PortPlan { interface: Some("none0".into()), ..plan("0.0.0.0:5") }, "none0"),
        ] {
            let reason = refusal(&plan);
            assert!(reason.contains(says), "{reason}");
        }
    }
}
