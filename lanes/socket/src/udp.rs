//! The datagram lane: UDP and raw sockets of all ports of one worker, and the datagram contract on
//! top of them.
//!
//! A lane of one port asks its socket in every round. A lane of several asks epoll which of them have
//! something, so that a port that is quiet costs nothing, however many there are.
//!
//! Assumes one thread and the network namespace of the thread that opens it. What must always hold:
//! forwarded bytes leave before their buffers receive again, because every batch is flushed before the
//! next receive.

use crate::{
    config::{Carries, DatagramConfig, NAME},
    inbox::Inbox,
    outbox::{Exit, Kernel, Out, Outbox},
    pings::Alone,
    port::Port,
    sys,
};
use laneway_core::{
    Bell, Cap, CapSet, CapsReport, Clock, ClockDomain, Counters, Datagram, DatagramApp,
    DatagramLane, DatagramPorts, DropReason, Lane, LaneError, Membership, PortId, PortPlan, Turn,
    Wake,
};
use laneway_kinds::Places;
use laneway_linux::{WallClock, is_of_one_host, monotonic_ns};
use laneway_spec::LaneSpec;
use std::{
    io, mem,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// Events that epoll reports at a time; more are reported the next time.
const EVENTS_MAX: usize = 256;
/// How often the kernel is offered what it did not take.
const RETRY_NS: u64 = 1_000_000;
/// The token of the bell: no port has such a number.
const BELL: u64 = u64::MAX;

/// UDP or raw sockets as a datagram lane. See the crate's documentation.
pub struct UdpLane {
    config: DatagramConfig,
    ports: Places<Port>,
    /// What ports have counted that were closed.
    past: Counters,
    /// What is no port's own; reported with the first one's.
    common: Counters,
    /// Has every port's socket, and the bell.
    epoll: OwnedFd,
    events: Vec<sys::Event>,
    /// Of them, those that a wait returned and no round has seen.
    events_pending: usize,
    /// Ports that hear what became of earlier datagrams.
    hearing: usize,
    /// When the kernel is next offered what it did not take.
    retry_at_ns: u64,
    outbox: Outbox<Kernel>,
    inbox: Inbox,
    wall_clock: WallClock,
    /// Kept open for epoll.
    bell: Option<Bell>,
    /// Empty between two rounds; keeps its memory.
    batch: Vec<Datagram<'static>>,
    /// Declared last: the kernel answers pings again when the sockets are closed.
    _alone: Option<Alone>,
}

impl UdpLane {
    /// Opens one socket per address; port `i` is `listen[i]`, in the network namespace of this
    /// thread. With the knob `raw` the sockets are raw and the addresses' ports 0.
    ///
    /// # Errors
    /// A wrong spec; an address that is taken, foreign, or not permitted; no privilege for a raw
    /// socket; something asked for that was not granted; for pings, another program (the kernel
    /// included) that would answer as well.
    pub fn open(spec: &LaneSpec, listen: &[SocketAddr]) -> Result<UdpLane, LaneError> {
        let config = DatagramConfig::read(spec, listen)?;
        // Before there are sockets: what they queued would be answered by the kernel and by us.
        let alone = match config.carries {
            Carries::Pings => Some(Alone::take(listen, config.mute)?),
            _ => None,
        };
        let epoll = sys::epoll()
            .map_err(|e| LaneError::os(NAME, "create an epoll", e, "see `ulimit -n`"))?;
        let messages = if config.many { config.burst } else { 1 };
        let mut lane = UdpLane {
            ports: Places::default(),
            past: Counters::default(),
            common: Counters::default(),
            epoll,
            events: vec![sys::NO_EVENT; EVENTS_MAX],
            events_pending: 0,
            hearing: 0,
            retry_at_ns: 0,
            outbox: Outbox::new(messages, Kernel),
            inbox: Inbox::new(&config),
            wall_clock: WallClock::measure(),
            bell: None,
            batch: Vec::with_capacity(config.burst),
            config,
            _alone: None,
        };
        for address in listen {
            let port = lane.add(&PortPlan::at(*address))?;
            if let (Some(alone), Some(port)) = (&alone, lane.ports.get_mut(port)) {
                port.caps.fact("kernel_answers", alone.kernel_answers(address.is_ipv4()));
            }
        }
        lane._alone = alone;
        Ok(lane)
    }

    /// Opens a port, which is there only if all of it is.
    fn add(&mut self, plan: &PortPlan) -> Result<PortId, LaneError> {
        let port = Port::open(&self.config, self.next(plan)?, plan)?;
        self.watch(&port)?;
        Ok(self.enter(port, plan))
    }

    /// The number of the next port.
    fn next(&self, plan: &PortPlan) -> Result<PortId, LaneError> {
        self.ports.next().ok_or_else(|| LaneError::Refused {
            lane: NAME.to_owned(),
            name: plan.bind.to_string(),
            why: format!("the worker has {} ports", self.ports.len()),
            hint: "close some, or use more workers".to_owned(),
        })
    }

    /// Has epoll tell when a port has something.
    fn watch(&self, port: &Port) -> Result<(), LaneError> {
        let (epoll, socket) = (self.epoll.as_fd(), port.socket.as_fd());
        sys::epoll_add(epoll, socket, libc::EPOLLIN, port.id.0.into()).map_err(|e| {
            let doing = format!("watch the socket at {}", port.local);
            LaneError::os(NAME, doing, e, "raise fs.epoll.max_user_watches")
        })
    }

    /// Makes a port that is open one of the lane's.
    fn enter(&mut self, port: Port, plan: &PortPlan) -> PortId {
        let id = port.id;
        let gso = port.caps.obtained.has(Cap::Gso);
        let has_ports = self.config.carries == Carries::Udp;
        let from = (!is_of_one_host(port.local), plan.source);
        let exit = Exit::new(port.socket.clone(), gso, from, has_ports).with_plan(plan);
        self.hearing += usize::from(port.hears_errors);
        if self.ports.is_empty() {
            self.retire_common();
        }
        assert_eq!(self.outbox.open(exit), id, "exits and ports come and go together");
        self.ports.insert(port)
    }

    /// What belongs to no port, and was counted at the first so far, stays there: another one is the first from now on.
    fn retire_common(&mut self) {
        self.past.merge(&mem::take(&mut self.common));
    }

    /// The address that `port` is bound to, with the UDP port that the kernel chose if it was to.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn local_address(&self, port: PortId) -> SocketAddr {
        self.port_at(port).local
    }

    fn port_at(&self, port: PortId) -> &Port {
        self.ports.get(port).unwrap_or_else(|| panic!("there is no port {}", port.0))
    }

    /// Asks which ports have something, for at most so long.
    fn look(&mut self, timeout: Duration) -> Result<(), LaneError> {
        self.events_pending = sys::epoll_wait(self.epoll.as_fd(), &mut self.events, timeout)
            .map_err(|e| LaneError::os(NAME, "wait for datagrams", e, "see `dmesg`"))?;
        Ok(())
    }

    /// Receives at one port and shows it to the app. Returns how many datagrams it saw.
    fn ask<A: DatagramApp>(
        &mut self,
        id: PortId,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        let Some(port) = self.ports.get_mut(id).filter(|port| !port.is_held) else { return Ok(0) };
        let received = self.inbox.receive(port.socket.as_fd(), &mut port.counters);
        received.map_err(|e| {
            let doing = format!("receive at {}", port.local);
            LaneError::os(NAME, doing, e, "see `dmesg`")
        })?;
        if self.inbox.arrivals().is_empty() {
            port.counters.polls_empty += 1;
            return Ok(0);
        }
        Ok(self.show(id, app, Turn { now_ns: clock.now_ns() }))
    }

    /// Shows one port's arrivals to the app and sends its answers. Returns how many datagrams it saw.
    fn show<A: DatagramApp>(&mut self, id: PortId, app: &mut A, turn: Turn) -> usize {
        let Some(port) = self.ports.get_mut(id) else { return 0 };
        let mut shown = 0;
        // A batch of longer-lived datagrams is one of shorter-lived ones: it is empty.
        let mut batch: Vec<Datagram<'_>> = mem::take(&mut self.batch);
        for (i, arrival) in self.inbox.arrivals().iter().enumerate() {
            let datagrams = arrival.datagrams();
            if let Some(ip) = arrival.destination
                && !port.groups.let_through(ip, arrival.source.ip(), arrival.interface)
            {
                port.counters.drop_many(DropReason::NotForUs, datagrams as u64);
                continue;
            }
            shown += datagrams;
            port.counters.rx_frames += datagrams as u64;
            port.counters.rx_bytes += arrival.bytes as u64;
            let stamp = arrival.real_ns.map(|real_ns| self.wall_clock.monotonic(real_ns));
            let bytes = &self.inbox.memory()[arrival.at..][..arrival.bytes];
            batch.push(Datagram {
                payload: self.outbox.key.mark(bytes, i as u32),
                segment_bytes: arrival.segment_bytes,
                source: arrival.source,
                destination: match arrival.destination {
                    Some(ip) => with_ip(port.local, ip),
                    None => port.local,
                },
                is_broadcast: arrival.is_broadcast,
                ingress: port.id,
                ts_ns: stamp.unwrap_or(turn.now_ns),
            });
        }
        if !batch.is_empty() {
            let mut out = Out::of_batch(&mut self.outbox, &self.inbox, port.id);
            app.on_datagrams(&batch, turn, &mut out);
            port.counters.drop_many(DropReason::TxNoPort, out.finish());
        }
        self.batch = emptied(batch);
        shown
    }

    /// Offers the kernel again what it did not take, if it is time.
    fn retry(&mut self) {
        if !self.outbox.is_delayed() {
            return;
        }
        let now_ns = monotonic_ns();
        if now_ns >= self.retry_at_ns {
            self.outbox.retry();
            self.retry_at_ns = now_ns + RETRY_NS;
        }
    }

    /// Says in the report when the kernel refused trains.
    fn note_gso(&mut self) {
        while let Some((id, error)) = self.outbox.gave_up_gso() {
            if let Some(port) = self.ports.get_mut(id) {
                port.caps.obtained = port.caps.obtained.minus(CapSet::default().with(Cap::Gso));
                let why = io::Error::from_raw_os_error(error);
                port.caps.fact("gso_given_up", format!("the kernel refused a train: {why}"));
            }
        }
    }
}

/// The batch without its datagrams, fit for others.
fn emptied(mut batch: Vec<Datagram<'_>>) -> Vec<Datagram<'static>> {
    batch.clear();
    let mut batch = mem::ManuallyDrop::new(batch);
    let (at, capacity) = (batch.as_mut_ptr(), batch.capacity());
    // SAFETY: memory, capacity and layout are the vector's own, which is not dropped; it holds
    // nothing, so no borrow is made longer.
    unsafe { Vec::from_raw_parts(at.cast(), 0, capacity) }
}

/// `address` with another IP address of the same family.
fn with_ip(mut address: SocketAddr, ip: IpAddr) -> SocketAddr {
    address.set_ip(ip);
    address
}

impl Lane for UdpLane {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ports(&self) -> usize {
        self.ports.len()
    }

    fn port(&self, at: usize) -> PortId {
        self.ports.ports()[at]
    }

    fn past(&self) -> Counters {
        let mut past = self.past.clone();
        if self.ports.is_empty() {
            past.merge(&self.common);
        }
        past
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    fn hear(&mut self, bell: &Bell) {
        // The kernel refuses for want of memory only; then a wait ends when its time is up.
        let _ = sys::epoll_add(self.epoll.as_fd(), bell.as_fd(), libc::EPOLLIN, BELL);
        self.bell = Some(bell.clone());
    }

    /// No event tells that the queue of an interface has room again.
    fn due_ns(&self) -> Option<u64> {
        self.outbox.is_delayed().then_some(self.retry_at_ns)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.common.waits += 1;
        self.look(timeout)?;
        Ok(if self.events_pending > 0 { Wake::Ready } else { Wake::Timeout })
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.port_at(port).caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        let is_first = self.ports.ports().first() == Some(&port);
        let Some(owner) = self.ports.get_mut(port) else { return Counters::default() };
        owner.read_drops();
        let mut counters = owner.counters.clone();
        if let Some(exit) = self.outbox.exit(port) {
            counters.merge(&exit.counters);
        }
        if is_first {
            counters.merge(&self.common);
        }
        counters
    }

    fn drop_unsent(&mut self) {
        self.outbox.drop_unsent();
    }
}

impl DatagramPorts for UdpLane {
    fn open_port(&mut self, plan: &PortPlan) -> Result<PortId, LaneError> {
        if self.config.carries != Carries::Udp {
            return Err(self.fixed(plan.bind.to_string()));
        }
        self.add(plan)
    }

    fn close_port(&mut self, id: PortId) -> Result<Counters, LaneError> {
        if self.config.carries != Carries::Udp {
            return Err(self.fixed(format!("port {}", id.0)));
        }
        let is_first = self.ports.ports().first() == Some(&id);
        let Some(mut port) = self.ports.remove(id) else { return Err(no_port(id)) };
        if is_first {
            self.retire_common();
        }
        if port.is_shared && !port.is_held {
            // Closing our descriptor would not do it.
            let _ = sys::epoll_remove(self.epoll.as_fd(), port.socket.as_fd());
        }
        port.read_drops();
        let mut counters = port.counters;
        if let Some(mut exit) = self.outbox.close(id) {
            exit.drop_unsent();
            counters.merge(&exit.counters);
        }
        self.hearing -= usize::from(port.hears_errors);
        self.ports.free(id);
        self.past.merge(&counters);
        Ok(counters)
    }

    fn join(&mut self, id: PortId, membership: &Membership) -> Result<(), LaneError> {
        self.ports.get_mut(id).ok_or_else(|| no_port(id))?.join(membership)
    }

    fn leave(&mut self, id: PortId, membership: &Membership) -> Result<(), LaneError> {
        self.ports.get_mut(id).ok_or_else(|| no_port(id))?.leave(membership)
    }

    fn share_port(&mut self, id: PortId) -> Result<Option<OwnedFd>, LaneError> {
        let port = self.ports.get_mut(id).ok_or_else(|| no_port(id))?;
        port.is_shared = true;
        let socket = port.socket.try_clone().map_err(|e| {
            let doing = format!("share the socket at {}", port.local);
            LaneError::os(NAME, doing, e, "raise `ulimit -n`")
        })?;
        Ok(Some(socket))
    }

    fn adopt_port(&mut self, plan: &PortPlan, socket: OwnedFd) -> Result<PortId, LaneError> {
        if self.config.carries != Carries::Udp {
            return Err(self.fixed(plan.bind.to_string()));
        }
        let port = Port::adopt(&self.config, self.next(plan)?, plan, socket)?;
        Ok(self.enter(port, plan))
    }

    fn hold_port(&mut self, id: PortId, is_held: bool) -> Result<(), LaneError> {
        let port = self.ports.get(id).ok_or_else(|| no_port(id))?;
        match (port.is_held, is_held) {
            (false, true) => {
                // What it is notified of nevertheless is not asked for.
                let _ = sys::epoll_remove(self.epoll.as_fd(), port.socket.as_fd());
            }
            (true, false) => self.watch(port)?,
            _ => {}
        }
        let port = self.ports.get_mut(id).ok_or_else(|| no_port(id))?;
        port.is_held = is_held;
        Ok(())
    }

    fn has_settled(&mut self) -> bool {
        // What is received is shown and sent in the same round, but for what waits in queues.
        !self.outbox.is_delayed()
    }

    fn bound(&self, port: PortId) -> Option<SocketAddr> {
        self.ports.get(port).map(|port| port.local)
    }
}

fn no_port(port: PortId) -> LaneError {
    LaneError::NotFound {
        lane: NAME.to_owned(),
        what: "port",
        name: port.0.to_string(),
        hint: "it was closed, or never open".to_owned(),
    }
}

impl DatagramLane for UdpLane {
    fn serve<A: DatagramApp>(
        &mut self,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        let mut shown = 0;
        self.retry();
        if let ([only], 0) = (self.ports.ports(), self.hearing) {
            let only = *only;
            // To ask whether it has something costs as much as to ask for it.
            self.events_pending = 0;
            shown = self.ask(only, app, clock)?;
        } else {
            if self.events_pending == 0 {
                self.look(Duration::ZERO)?;
            }
            let pending = mem::take(&mut self.events_pending);
            self.common.polls_empty += u64::from(pending == 0);
            for i in 0..pending {
                let sys::Event { flags, data } = self.events[i];
                let (events, token) = (flags.bits(), data.u64());
                let id = PortId(token as u32);
                if events & libc::EPOLLERR as u32 != 0
                    && let Some(port) = self.ports.get(id).filter(|port| port.hears_errors)
                {
                    sys::drain_errors(port.socket.as_fd());
                }
                if token != BELL {
                    shown += self.ask(id, app, clock)?;
                }
            }
        }
        if shown > 0 {
            self.note_gso();
        }
        Ok(shown)
    }

    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        let mut out = Out::of_tick(&mut self.outbox);
        app.on_tick(turn, &mut out);
        let no_port = out.finish();
        self.common.drop_many(DropReason::TxNoPort, no_port);
        self.note_gso();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_testkit::service::{Answer, DatagramProbe};
    use std::net::{Ipv4Addr, UdpSocket};

    struct Monotonic;

    impl Clock for Monotonic {
        fn now_ns(&self) -> u64 {
            monotonic_ns()
        }

        fn domain(&self) -> ClockDomain {
            ClockDomain::Monotonic
        }
    }

    /// System calls of 20 rounds in silence, and of 20 in which one datagram is there and is answered.
    fn calls_of_rounds(lane: &mut UdpLane, far: &UdpSocket) -> [u64; 2] {
        const ROUNDS: usize = 20;
        let mut app = DatagramProbe::new(Answer::ForwardBack);
        let near = lane.local_address(PortId(0));
        let mut rounds = |sends: bool| {
            let mut calls = 0;
            for _ in 0..ROUNDS {
                if sends {
                    far.send_to(&[7; 100], near).expect("loopback takes it");
                }
                let before = sys::calls::made();
                let served = lane.serve(&mut app, &Monotonic).expect("it serves");
                calls += sys::calls::made() - before;
                assert_eq!(served, usize::from(sends), "loopback delivers within the call");
            }
            calls
        };
        [rounds(false), rounds(true)]
    }

    #[test]
    fn a_thousand_idle_ports_add_no_system_call_to_a_round() {
        let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        for spec in ["socket", "socket:batch=8,gso,gro"] {
            let spec = spec.parse().expect("well formed");
            let mut lane = UdpLane::open(&spec, &[anywhere; 3]).expect("opens");
            let far = UdpSocket::bind(anywhere).expect("a free port");
            let of_three = calls_of_rounds(&mut lane, &far);
            for opened in 0..1000 {
                if let Err(e) = lane.open_port(&PortPlan::at(anywhere)) {
                    return laneway_testkit::skip(format!("after {opened} ports: {e}"));
                }
            }
            assert_eq!(calls_of_rounds(&mut lane, &far), of_three);
            // One for what is ready; and one to receive, one to find no more, one to send.
            assert!(of_three[0] == 20 && of_three[1] <= 80, "{of_three:?}");
        }
    }

    #[test]
    fn a_lane_of_one_port_asks_its_socket_alone() {
        let anywhere: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let mut lane = UdpLane::open(&"socket:batch=8".parse().expect("well formed"), &[anywhere])
            .expect("opens");
        let far = UdpSocket::bind(anywhere).expect("a free port");
        assert_eq!(calls_of_rounds(&mut lane, &far), [20, 40], "receive; receive and send");
    }
}
