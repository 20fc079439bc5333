//! The lane as the contract has it: waits, counters, ports that come and go, rounds.

use super::out::Out;
use super::port::Port;
use super::{Core, UringUdp, holder, join};
use crate::{
    config::NAME,
    grant::{report_counts, ring_failed},
    socket, sys,
    sys::failed,
};
use laneway_core::{
    Bell, CapsReport, Clock, ClockDomain, Counters, DatagramApp, DatagramLane, DatagramPorts, Lane,
    LaneError, Membership, PortId, PortPlan, Turn, Wake,
};
use laneway_linux::Groups;
use std::{
    mem,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

impl Lane for UringUdp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ports(&self) -> usize {
        self.core.ports.len()
    }

    fn port(&self, at: usize) -> PortId {
        self.core.ports.ports()[at]
    }

    fn past(&self) -> Counters {
        let mut past = self.core.past.clone();
        if self.core.ports.is_empty() {
            past.merge(&self.core.common);
        }
        past
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    fn hear(&mut self, bell: &Bell) {
        self.core.ear.hear(bell);
    }

    /// Counted on the first port, as one wait for all ports.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        let core = &mut self.core;
        core.common.waits += 1;
        core.arm();
        core.ear.ask(&mut core.ring);
        let is_waiting = !core.ready.is_empty();
        let timeout = if is_waiting { Duration::ZERO } else { timeout };
        let is_ready = core.ring.wait(timeout).map_err(ring_failed)?;
        Ok(if is_ready || is_waiting { Wake::Ready } else { Wake::Timeout })
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.core.ring.event())
    }

    fn due_ns(&self) -> Option<u64> {
        let retry_at_ns = if self.core.is_behind { 0 } else { self.core.retry_at_ns };
        (!self.core.delayed.is_empty()).then_some(retry_at_ns)
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.core.port(port).caps
    }

    fn counters(&mut self, id: PortId) -> Counters {
        let Core { ring, ports, common, buffers, zero_copies_copied, .. } = &mut self.core;
        let is_first = ports.ports().first() == Some(&id);
        let Some(port) = ports.get_mut(id) else { return Counters::default() };
        port.read_drops();
        let mut counters = port.counters();
        if is_first {
            counters.merge(common);
        }
        report_counts(ring, &mut port.caps, is_first.then_some(&mut counters));
        port.caps.fact("rearms", port.rearms);
        port.caps.fact("looks", port.receiving.looks);
        port.caps.fact("buffers_in_use", buffers.in_use());
        port.caps.fact("gso_fallbacks", port.fallbacks);
        if port.caps.requested.has(laneway_core::Cap::SendZeroCopy) {
            port.caps.fact("send_zc", port.zero_copies);
            port.caps.fact("send_zc_copied", *zero_copies_copied);
        }
        counters
    }

    fn drop_unsent(&mut self) {
        let Core { ports, delayed, .. } = &mut self.core;
        delayed.retain(|id| ports.get_mut(*id).is_some_and(Port::drop_unsent));
    }
}

impl DatagramPorts for UringUdp {
    fn open_port(&mut self, plan: &PortPlan) -> Result<PortId, LaneError> {
        self.add(plan)
    }

    fn close_port(&mut self, port: PortId) -> Result<Counters, LaneError> {
        self.core.close(port)
    }

    fn join(&mut self, id: PortId, membership: &Membership) -> Result<(), LaneError> {
        let Port { groups, socket, bound, caps, .. } = self.core.find(id)?;
        join(groups, socket, *bound, membership, caps)
    }

    fn leave(&mut self, id: PortId, membership: &Membership) -> Result<(), LaneError> {
        let Port { groups, socket, caps, .. } = self.core.find(id)?;
        groups.leave(&sys::Options(socket.as_fd()), membership, caps)
    }

    fn share_port(&mut self, id: PortId) -> Result<Option<OwnedFd>, LaneError> {
        let Port { socket, bound, .. } = self.core.find(id)?;
        let doing = format!("share the socket at {bound}");
        socket.try_clone().map(Some).map_err(failed(doing, "raise `ulimit -n`"))
    }

    fn adopt_port(&mut self, plan: &PortPlan, socket: OwnedFd) -> Result<PortId, LaneError> {
        let UringUdp { core, config, .. } = self;
        core.check_plan(plan)?;
        let sockets = config.sockets.with_plan(plan);
        let requested = config.requested(&sockets);
        let mut caps = CapsReport { requested, ..CapsReport::default() };
        let bound = socket::adopt(&socket, plan, &sockets, config.extras(), &mut caps)?;
        let mut groups = Groups::new(NAME, plan);
        let options = sys::Options(socket.as_fd());
        groups.adopt(&options, &plan.memberships, || holder(bound), &mut caps)?;
        let id = self.enter(plan, socket, bound, groups, caps)?;
        self.hold_port(id, true)?;
        Ok(id)
    }

    fn hold_port(&mut self, id: PortId, is_held: bool) -> Result<(), LaneError> {
        self.core.find(id)?.receiving.hold(is_held);
        let Core { ports, restless, .. } = &mut self.core;
        if let Some(port) = ports.get_mut(id) {
            port.stir(restless);
        }
        Ok(())
    }

    fn has_settled(&mut self) -> bool {
        let Core { ports, ready, delayed, trains, .. } = &self.core;
        let settled = |id: &PortId| ports.get(*id).is_none_or(|port| port.receiving.has_settled());
        ready.is_empty()
            && delayed.is_empty()
            && !trains.are_under_way()
            && ports.ports().iter().all(settled)
    }

    fn bound(&self, port: PortId) -> Option<SocketAddr> {
        self.core.ports.get(port).map(|port| port.bound)
    }
}

impl DatagramLane for UringUdp {
    fn serve<A: DatagramApp>(
        &mut self,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        self.core.ring.submit().map_err(ring_failed)?;
        self.core.reap().map_err(ring_failed)?;
        self.core.tend().map_err(ring_failed)?;
        let mut datagrams = 0;
        self.core.common.polls_empty += u64::from(self.core.ready.is_empty());
        mem::swap(&mut self.showing, &mut self.core.ready);
        for i in 0..self.showing.len() {
            let id = self.showing[i];
            datagrams += self.show(id, app, clock);
            // What a batch left, or arrived meanwhile.
            if let Some(port) = self.core.ports.get_mut(id) {
                port.is_ready = !port.arrivals.is_empty();
                if port.is_ready {
                    self.core.ready.push(id);
                }
            }
        }
        self.showing.clear();
        if !self.core.closing.is_empty() {
            self.core.bury();
        }
        self.core.receive();
        self.core.tend().map_err(ring_failed)?;
        self.core.flush().map_err(ring_failed)?;
        self.core.check()?;
        Ok(datagrams)
    }

    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        app.on_tick(turn, &mut Out { core: &mut self.core, ingress: None });
        self.core.tend().map_err(ring_failed)?;
        self.core.flush().map_err(ring_failed)?;
        self.core.check()
    }
}
