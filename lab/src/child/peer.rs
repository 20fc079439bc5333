//! An arm that is foreign: a program that is started here, asked for its counters, and ended
//! here; the kernel's own bridge; or its own stack, which is given the address that pings go to.
//!
//! The race talks to this process as to any arm; the program's own process is named in
//! [`Ready`](crate::plan::Ready), so that its time is booked as the arm's. What the program does not
//! tell (latency, which frames it got) stays empty.

use super::borrowed_address::BorrowedAddress;
use super::forwarders::{Bridge, XdpBench};
use super::redis::{Knobs, RedisServer};
use super::smcroute::Smcroute;
use super::{ChildEnd, command, memory, pipe};
use crate::addresses::DESTINATION;
use crate::plan::{ArmReport, ArmSetup, Order, Ready, Reply, Shape};
use crate::segment::SegmentSeen;
use crate::testpmd::Testpmd;
use laneway_core::{CapsReport, Counters};
use laneway_kinds::{AppFacts, Peer};
use laneway_netns::Mac;

/// Is the peer's keeper until ordered to stop.
pub(super) fn serve(kind: Peer, setup: &ArmSetup, app: &AppFacts) -> ChildEnd {
    let done = match kind {
        Peer::Testpmd => obey(setup),
        Peer::Stack => lend(setup),
        Peer::Bridge => bridge(setup),
        Peer::XdpBench => redirect(setup),
        Peer::Smcroute => route(setup),
        Peer::RedisServer => answer(setup),
        Peer::Command => command::obey(setup, app),
    };
    match done {
        Ok(()) => ChildEnd::Done,
        Err(sentence) => {
            pipe::reply(&Reply::Failed(sentence));
            ChildEnd::FailureReported
        }
    }
}

fn obey(setup: &ArmSetup) -> Result<(), String> {
    let (lane, interfaces) = (&setup.lane, &setup.interfaces);
    let mode = setup.mode.as_deref().ok_or_else(|| {
        format!("dpdk-testpmd has nothing like app `{}` with these arguments", setup.app)
    })?;
    let mut program = Testpmd::start(mode, lane, interfaces, setup.cpu)?;
    let caps = program.caps();
    pipe::reply(&Reply::Ready(Ready {
        caps: caps.clone(),
        shape: Shape::Frames,
        processes: vec![program.pid()],
    }));
    let mut segment: Option<SegmentSeen> = None;
    let mut received_before = 0;
    loop {
        match pipe::order() {
            Order::Stop => return Ok(()),
            Order::Segment(plan) => {
                received_before = program.counters()?.rx_frames;
                segment = Some(SegmentSeen { segment: plan.segment, ..SegmentSeen::default() });
            }
            Order::Ask(_) => {}
            Order::Report => {
                let lane = program.counters()?;
                if let Some(segment) = &mut segment {
                    segment.delivered = lane.rx_frames - received_before.min(lane.rx_frames);
                }
                pipe::reply(&Reply::Report(Box::new(ArmReport {
                    memory: memory::of_process(&program.pid().to_string(), &caps),
                    records: lane.rx_frames,
                    lane,
                    app: Counters::default(),
                    segment: segment.clone(),
                    foreign: 0,
                    wakeups_ns: Vec::new(),
                })));
            }
        }
    }
}

/// Lends the kernel's stack the addresses, and takes them back at the end.
fn lend(setup: &ArmSetup) -> Result<(), String> {
    let borrowed: Vec<BorrowedAddress<'_>> = setup
        .interfaces
        .iter()
        .zip(&setup.addresses)
        .map(|(interface, address)| BorrowedAddress::new(interface, *address.ip()))
        .collect::<Result<_, _>>()?;
    let mut caps = CapsReport::default();
    caps.fact("program", "none: the kernel's own stack");
    for BorrowedAddress { interface, address } in &borrowed {
        caps.fact("address", format!("{address} on {interface}"));
    }
    keep(caps, Vec::new(), || Ok(()))
}

/// Lays the kernel's bridge over both ports, and takes it away at the end.
fn bridge(setup: &ArmSetup) -> Result<(), String> {
    let _bridge = Bridge::create(&setup.interfaces, &Mac(DESTINATION).to_string())?;
    let mut caps = CapsReport::default();
    caps.fact("program", "none: the kernel's bridge");
    caps.fact("bridge", "a static entry, no learning, no netfilter");
    keep(caps, Vec::new(), || Ok(()))
}

/// Keeps `xdp-bench redirect` running until the end.
fn redirect(setup: &ArmSetup) -> Result<(), String> {
    let mut program = XdpBench::start(&setup.interfaces)?;
    let mut caps = CapsReport::default();
    caps.fact("program", "xdp-bench redirect");
    caps.fact("attach_mode", "native");
    keep(caps, vec![program.pid()], || program.check())
}

/// Has `smcrouted` set up the kernel's multicast routing, and keeps it running until the end.
fn route(setup: &ArmSetup) -> Result<(), String> {
    let plan = setup.fanout.as_ref().ok_or("smcrouted routes groups, and none is sent to")?;
    let mut program = Smcroute::start(plan, &setup.interfaces, setup.cpu)?;
    let mut caps = CapsReport::default();
    caps.fact("program", "smcrouted; the kernel's multicast routing forwards");
    caps.fact("routes", program.routes().to_string());
    keep(caps, vec![program.pid()], || program.check())
}

/// Keeps `redis-server` running at the arm's address until the end. What it answered, the client says.
fn answer(setup: &ArmSetup) -> Result<(), String> {
    let address = *setup.addresses.first().ok_or("it has no address")?;
    let interface = setup.interfaces.first().ok_or("it has no interface")?;
    let _borrowed = BorrowedAddress::new(interface, *address.ip())?;
    let knobs = Knobs::read(&setup.lane)?;
    let mut program = RedisServer::start(knobs, address, setup.cpu)?;
    let mut caps = CapsReport::default();
    for (name, fact) in program.facts(knobs) {
        caps.fact(name, fact);
    }
    let processes = vec![program.pid()];
    pipe::reply(&Reply::Ready(Ready { caps: caps.clone(), shape: Shape::Datagrams, processes }));
    loop {
        match pipe::order() {
            Order::Stop => return Ok(()),
            Order::Segment(_) | Order::Ask(_) => {}
            Order::Report => {
                program.check()?;
                let memory = memory::of_process(&program.pid().to_string(), &caps);
                pipe::reply(&Reply::Report(Box::new(ArmReport { memory, ..ArmReport::default() })));
            }
        }
    }
}

/// Waits until ordered to stop, with what `check`s out at each report. What stands there counts nothing that a segment
/// could be distinguished by; what it did is counted where it comes out.
///
/// # Errors
/// Of a program that has ended: what it forwarded until then is no figure.
fn keep(
    caps: CapsReport,
    processes: Vec<u32>,
    check: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    pipe::reply(&Reply::Ready(Ready { caps, shape: Shape::Frames, processes }));
    obey_with(check, pipe::order, |reply| pipe::reply(&reply))
}

/// The same, once it is ready.
fn obey_with(
    mut check: impl FnMut() -> Result<(), String>,
    mut order: impl FnMut() -> Order,
    mut reply: impl FnMut(Reply),
) -> Result<(), String> {
    loop {
        match order() {
            Order::Stop => return Ok(()),
            Order::Segment(_) | Order::Ask(_) => {}
            Order::Report => {
                check()?;
                reply(Reply::Report(Box::default()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::GENERATOR;
    use crate::child::forwarders::call;
    use crate::command::find;
    use crate::fanout::{Fanout, FanoutPlan};
    use laneway_netns::{Namespace, can_create};
    use laneway_testkit::skip;
    use rustix::process::{Pid, Signal, kill_process};
    use std::fs;

    /// Kills a process, and waits until it has ended.
    fn kill(id: u32) {
        let process = Pid::from_raw(id.cast_signed()).unwrap();
        kill_process(process, Signal::KILL).unwrap();
        let stat = || fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        while !stat().contains(") Z ") {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_program_that_ends_between_two_reports_ends_the_arm() {
        if can_create().and(Ok(())).map_err(skip).is_err()
            || find("smcrouted").map_err(skip).is_err()
        {
            return;
        }
        let fanout = Fanout {
            groups: 2,
            outputs: 1,
            cables: 1,
            limit_mbit: None,
            far_end: Default::default(),
        };
        let plan = FanoutPlan { fanout, payload_bytes: 100, run: 1, source: GENERATOR };
        let interfaces = ["sut0", "sut1"].map(str::to_owned);
        let namespace = Namespace::create("peer").unwrap();
        let done = namespace.enter(|| {
            call("ip", &["link", "add", "sut0", "type", "veth", "peer", "name", "sut1"]).unwrap();
            for (interface, address) in [("sut0", "10.77.0.2/24"), ("sut1", "10.78.0.2/24")] {
                call("ip", &["address", "add", address, "dev", interface]).unwrap();
                call("ip", &["link", "set", "dev", interface, "up"]).unwrap();
            }
            let mut program = Smcroute::start(&plan, &interfaces, 0).unwrap();
            let id = program.pid();
            let (mut orders, mut reports) = (0, 0);
            let order = || {
                orders += 1;
                if orders == 3 {
                    kill(id);
                }
                if orders > 4 { Order::Stop } else { Order::Report }
            };
            let done = obey_with(|| program.check(), order, |_| reports += 1);
            (done, reports)
        });
        let (done, reports) = done.unwrap();
        let why = done.unwrap_err();
        assert!(reports == 2 && why.starts_with("smcrouted ended: "), "{reports}: {why}");
    }
}
