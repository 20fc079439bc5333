//! TCP over a frame lane: the stream shape of the contract.
//!
//! A turn: every received segment goes to its connection, and what TCP answers at once (an
//! acknowledgement, a reset) leaves in the frame that brought it; then the app is shown the bytes of
//! all connections that have some; then its turn ends; then replies are written straight from the
//! send buffers into free frames.
//!
//! A request is shown in one piece. While the app waits for room or has paused a connection, bytes stay
//! in the receive buffer and close the window, which is the back-pressure that the contract wants; when
//! the app just waits for the rest of a request, they are put aside instead, up to `unread_bytes_max`.
//!
//! Replies go to the MAC address that the connection's last effective segment had as source; no
//! neighbour is looked up or remembered for it. What smoltcp does not do is missing here too: selective
//! acknowledgements are sent but not used, no timestamps, no fast open, no urgent data. Its buffers have
//! fixed sizes; a socket with larger ones takes the place of one that holds its stream back.

use crate::{
    ConnectionCounts, HostEvents, StackConfig,
    connections::Connections,
    datagram::below,
    host::{Audience, Host, Refusal, Sorted},
    listen::{self, Listeners},
};
use laneway_core::{
    Bell, CapsReport, Clock, ClockDomain, Counters, DropReason, FrameLane, Lane, LaneError, PortId,
    StreamApp, StreamLane, Turn, Verdict, Wake,
};
use laneway_wire::protocol;
use std::{net::IpAddr, time::Duration};

/// TCP on the ports of a frame lane.
pub struct StreamStack<L> {
    lane: L,
    host: Host,
    listeners: Listeners,
    caps: Vec<CapsReport>,
    connections: Connections,
}

impl<L: FrameLane> StreamStack<L> {
    /// Puts a stack on `lane`. Port `i` of the stack is `config.listen[i]`.
    ///
    /// # Errors
    /// [`LaneError::Refused`] for a config that cannot work, naming the value.
    pub fn new(lane: L, config: &StackConfig) -> Result<StreamStack<L>, LaneError> {
        config.check(lane.name(), lane.ports())?;
        let group = |ip: &IpAddr| ip.is_multicast();
        if let Some(group) = config.listen.iter().map(|a| a.ip()).find(group) {
            return Err(LaneError::Refused {
                lane: format!("{} stack", lane.name()),
                name: group.to_string(),
                why: "a group cannot accept connections".to_owned(),
                hint: "listen to an address of an interface".to_owned(),
            });
        }
        let host = Host::new(config);
        let mut caps = listen::caps(&lane, &config.listen, |address| host.interface_of(address));
        for caps in &mut caps {
            caps.fact("connections_max", config.tcp.connections_max);
            caps.fact("window_bytes", config.tcp.rx_bytes);
            caps.fact("window_bytes_max", config.tcp.window_bytes_max.max(config.tcp.rx_bytes));
            caps.fact("close_ms", config.tcp.linger_ns / 1_000_000);
            caps.fact("keepalive_s", config.tcp.keep_alive_ns / 1_000_000_000);
        }
        Ok(StreamStack {
            caps,
            listeners: Listeners::new(&config.listen),
            connections: Connections::new(
                config.tcp,
                config.secret,
                config.hop_limit,
                config.listen.clone(),
            ),
            host,
            lane,
        })
    }

    /// The lane below.
    pub fn lane(&self) -> &L {
        &self.lane
    }

    /// What happened below the app.
    pub fn events(&self) -> HostEvents {
        self.host.events
    }

    /// How many connections there are.
    pub fn connections(&self) -> ConnectionCounts {
        self.connections.counts()
    }

    /// Takes what has arrived on one interface.
    fn receive(&mut self, interface: PortId, now_ns: u64) -> Result<(), LaneError> {
        let StreamStack { lane, host, listeners, connections, .. } = self;
        let burst = lane.receive(interface)?;
        if burst.is_empty() {
            return Ok(());
        }
        for i in 0..burst.len() {
            let verdict = match host.sort(interface, burst, i, now_ns) {
                Sorted::Done(verdict) => verdict,
                Sorted::TooBig(flow, mtu_bytes) => {
                    if flow.protocol == protocol::TCP {
                        connections.shrink_mtu(flow, mtu_bytes, now_ns);
                    }
                    host.consumed()
                }
                Sorted::Transport(packet, audience) if packet.protocol == protocol::TCP => {
                    let frame = (interface, &mut *burst, i);
                    connections.receive(host, listeners, frame, (&packet, audience), now_ns)
                }
                Sorted::Transport(packet, audience) => {
                    if host.pass_rest || audience != Audience::Us {
                        match host.rest(DropReason::NoListener) {
                            Sorted::Done(verdict) => verdict,
                            Sorted::Transport(..) | Sorted::TooBig(..) => Verdict::Drop,
                        }
                    } else {
                        let frame = &mut burst.frame_mut(i);
                        host.refuse(interface, frame, &packet, Refusal::Port, now_ns)
                    }
                }
            };
            burst.set_verdict(i, verdict);
        }
        lane.settle(interface)
    }

    /// Puts on its way what the turn left to send.
    fn send(&mut self) -> Result<(), LaneError> {
        self.connections.transmit(&mut self.host, &mut self.lane)?;
        self.host.end(&mut self.lane, &mut self.connections.counters)
    }
}

impl<L: FrameLane> Lane for StreamStack<L> {
    /// That of the lane below.
    fn name(&self) -> &'static str {
        self.lane.name()
    }

    fn ports(&self) -> usize {
        self.listeners.len()
    }

    fn clock_domain(&self) -> ClockDomain {
        self.lane.clock_domain()
    }

    fn hear(&mut self, bell: &Bell) {
        self.lane.hear(bell);
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        if self.connections.is_busy() {
            return Ok(Wake::Ready);
        }
        self.lane.wait(timeout)
    }

    fn due_ns(&self) -> Option<u64> {
        if self.connections.is_busy() {
            return Some(0);
        }
        [self.connections.due_ns(), self.host.due_ns()].into_iter().flatten().min()
    }

    fn exhausted(&self) -> bool {
        self.lane.exhausted() && !self.connections.is_busy()
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.caps[port.index()]
    }

    /// Port 0 carries besides its own what belongs to no port: frames for no port, and the
    /// losses, passes, polls and waits of the lane below.
    fn counters(&mut self, port: PortId) -> Counters {
        let mut counters = self.connections.counters[port.index()].clone();
        if port.index() == 0 {
            let StreamStack { host, lane, .. } = self;
            counters.merge(&host.counters);
            let taken_back = |interface: usize, _| host.outbox.sent()[interface].taken_back();
            counters.merge(&below(lane, taken_back));
        }
        counters
    }

    fn drop_unsent(&mut self) {
        self.lane.drop_unsent();
    }
}

impl<L: FrameLane> StreamLane for StreamStack<L> {
    fn serve<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> Result<usize, LaneError> {
        let now_ns = clock.now_ns();
        self.host.begin(&mut self.connections.counters, now_ns);
        self.connections.begin(now_ns);
        for interface in 0..self.lane.ports() {
            self.receive(PortId(interface as u32), now_ns)?;
        }
        let served = self.connections.show(app);
        if std::mem::take(&mut self.connections.called) {
            app.on_turn_end(Turn { now_ns }, &mut self.connections.out());
        }
        self.send()?;
        Ok(served)
    }

    fn tick<A: StreamApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        self.connections.begin(turn.now_ns);
        app.on_tick(turn, &mut self.connections.out());
        app.on_turn_end(turn, &mut self.connections.out());
        self.send()
    }

    /// A reset or a FIN is sent to every peer; losses on the way are not repaired any more.
    fn finish<A: StreamApp>(&mut self, app: &mut A, turn: Turn) {
        self.connections.begin(turn.now_ns);
        self.listeners.close();
        let StreamStack { lane, host, connections, .. } = self;
        if connections.finish(host, lane, app).is_err() {
            // The lane has failed: no answer can leave.
            host.counters.drop_one(DropReason::TxRefused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InterfaceConfig, ends::Ends, isn};
    use laneway_core::{App, Close, ConnId, Opened, StreamOut};
    use laneway_sim::SimLane;
    use laneway_wire::Tcp;
    use std::net::SocketAddr;

    struct IdleApp(Counters);

    impl App for IdleApp {
        fn counters(&self) -> &Counters {
            &self.0
        }
    }

    impl StreamApp for IdleApp {
        fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {}

        fn on_bytes<O: StreamOut>(&mut self, _: ConnId, bytes: &[u8], _: &mut O) -> usize {
            bytes.len()
        }

        fn on_close(&mut self, _conn: ConnId, _why: Close) {}
    }

    /// Looks through smoltcp's generator: fails if a new version makes numbers in another way.
    #[test]
    fn a_syn_is_answered_with_the_number_of_rfc_6528() {
        let own = ("10.0.0.1".parse().unwrap(), 24);
        let near: SocketAddr = "10.0.0.1:7".parse().unwrap();
        let mut config =
            StackConfig::new(InterfaceConfig::new([2, 0, 0, 0, 0, 1], vec![own]), vec![near]);
        config.secret = [5, 6];
        let (lane, world) = SimLane::open(&"sim".parse().unwrap(), 1).unwrap();
        let mut stack = StreamStack::new(lane, &config).unwrap();
        world.advance_to(1_000_000_000);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend_from_slice(&[
            0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, // IP
            0x13, 0x88, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 16, 0, 0, 0, 0, 0, // TCP
        ]);
        assert!(laneway_wire::Ipv4::seal(&mut frame[14..]));
        let remote: SocketAddr = "10.0.0.2:5000".parse().unwrap();
        crate::ip::seal_payload(&mut frame[34..], 16, remote.ip(), near.ip(), protocol::TCP);
        world.inject(PortId(0), &frame);
        let clock = world.clock();
        let now_ns = clock.now_ns();
        stack.serve(&mut IdleApp(Counters::default()), &clock).unwrap();
        let arrivals = world.collect(PortId(0));
        let answer = arrivals.iter().find(|a| a.bytes[12..14] == [8, 0]).expect("a SYN-ACK");
        let ends = Ends { local: near, remote };
        let want = isn::initial_sequence(config.secret, &ends, now_ns);
        assert_eq!(Tcp::parse(&answer.bytes[34..]).unwrap().sequence, want);
    }
}
