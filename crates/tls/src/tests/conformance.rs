//! The suite of stream lanes, with TLS between its app and a lane of real sockets: what the suite asks of a lane, the
//! connection with TLS must do.
//!
//! ```text
//!   suite's probe ─ Counted ─ Tls ─ TcpLane ══ loopback ══ TcpStream ─ ClientConnection ─ suite's far end
//! ```
//!
//! An end without `close_notify` is reported to the suite as a reset.

use super::Trust;
use crate::{ClientCertificates, Counts, Settings, Tls};
use laneway_core::{
    App, Bell, CapsReport, Clock, ClockDomain, Close, ConnId, Counters, Lane, LaneError, Opened,
    PortId, StreamApp, StreamLane, StreamOut, Turn, Wake,
};
use laneway_socket::TcpLane;
use laneway_spec::LaneSpec;
use laneway_testkit::service::MonotonicClock;
use laneway_testkit::{PeerId, PeerRead, StreamProperties, StreamRig};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, SupportedProtocolVersion};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Duration;

const PORTS_MAX: usize = 2;

/// The far end of one connection.
struct Peer {
    stream: TcpStream,
    address: SocketAddr,
    tls: ClientConnection,
    is_finishing: bool,
    end: Option<PeerRead>,
}

impl Peer {
    /// Sends what is to be sent, and reads while the handshake is under way.
    fn pump(&mut self) {
        while self.end.is_none() && self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.end = Some(PeerRead::Reset),
            }
        }
        if self.tls.is_handshaking() {
            let was_read = self.take();
            if was_read && self.tls.wants_write() {
                return self.pump();
            }
        }
        if std::mem::take(&mut self.is_finishing) {
            // One that was reset cannot be finished, and need not be.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    /// Takes what has come; true if that was something.
    fn take(&mut self) -> bool {
        match self.tls.read_tls(&mut self.stream) {
            Ok(0) => {
                self.end.get_or_insert(PeerRead::Reset);
                false
            }
            Ok(_) => match self.tls.process_new_packets() {
                Ok(state) => {
                    if state.peer_has_closed() {
                        self.end.get_or_insert(PeerRead::End);
                    }
                    true
                }
                Err(error) => panic!("the server sends what is no TLS: {error}"),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(_) => {
                self.end.get_or_insert(PeerRead::Reset);
                false
            }
        }
    }

    fn read(&mut self, bytes_max: usize) -> PeerRead {
        let mut bytes = vec![0; bytes_max];
        loop {
            match self.tls.reader().read(&mut bytes) {
                Ok(count) if count > 0 => {
                    bytes.truncate(count);
                    return PeerRead::Bytes(bytes);
                }
                _ => {}
            }
            if let Some(end) = &self.end {
                return end.clone();
            }
            if !self.take() && self.end.is_none() {
                return PeerRead::Nothing;
            }
        }
    }
}

type Peers = Rc<RefCell<Vec<Peer>>>;

/// A lane whose connections have TLS.
struct TlsLane {
    lane: TcpLane,
    tls: Option<Tls<()>>,
    peers: Peers,
    counted: BTreeMap<PortId, Counters>,
    ports: BTreeMap<ConnId, PortId>,
}

impl TlsLane {
    /// Does something with the lane and an app that has TLS in front.
    fn over<A: StreamApp, T>(
        &mut self,
        app: &mut A,
        act: impl FnOnce(&mut TcpLane, &mut Tls<Counted<'_, A>>) -> T,
    ) -> T {
        for peer in self.peers.borrow_mut().iter_mut() {
            peer.pump();
        }
        let tls = self.tls.take().expect("it is put back");
        let counted = Counted { app, counted: &mut self.counted, ports: &mut self.ports };
        let ((), mut tls) = tls.with(counted);
        let done = act(&mut self.lane, &mut tls);
        self.tls = Some(tls.with(()).1);
        done
    }
}

impl Lane for TlsLane {
    fn name(&self) -> &'static str {
        self.lane.name()
    }

    fn ports(&self) -> usize {
        self.lane.ports()
    }

    fn clock_domain(&self) -> ClockDomain {
        self.lane.clock_domain()
    }

    fn hear(&mut self, bell: &Bell) {
        self.lane.hear(bell);
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.lane.wait(timeout)
    }

    fn due_ns(&self) -> Option<u64> {
        self.lane.due_ns()
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        self.lane.caps(port)
    }

    /// The lane's, with the bytes that the app has seen and sent.
    fn counters(&mut self, port: PortId) -> Counters {
        let mut counters = self.lane.counters(port);
        let plain = self.counted.entry(port).or_default();
        counters.rx_bytes = plain.rx_bytes;
        counters.tx_bytes = plain.tx_bytes;
        counters
    }
}

impl StreamLane for TlsLane {
    fn serve<A: StreamApp>(&mut self, app: &mut A, clock: &impl Clock) -> Result<usize, LaneError> {
        self.over(app, |lane, tls| lane.serve(tls, clock))
    }

    fn tick<A: StreamApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        self.over(app, |lane, tls| lane.tick(tls, turn))
    }

    fn finish<A: StreamApp>(&mut self, app: &mut A, turn: Turn) {
        self.over(app, |lane, tls| lane.finish(tls, turn));
    }
}

/// The suite's app, and how many bytes it consumes and sends.
struct Counted<'a, A> {
    app: &'a mut A,
    counted: &'a mut BTreeMap<PortId, Counters>,
    ports: &'a mut BTreeMap<ConnId, PortId>,
}

struct CountedOut<'a, O> {
    out: &'a mut O,
    counted: &'a mut BTreeMap<PortId, Counters>,
    ports: &'a BTreeMap<ConnId, PortId>,
}

impl<O: StreamOut> StreamOut for CountedOut<'_, O> {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let taken = self.out.send(conn, bytes);
        if let Some(port) = self.ports.get(&conn) {
            self.counted.entry(*port).or_default().tx_bytes += taken as u64;
        }
        taken
    }

    fn queued(&self, conn: ConnId) -> usize {
        self.out.queued(conn)
    }

    fn close(&mut self, conn: ConnId) {
        self.out.close(conn);
    }

    fn abort(&mut self, conn: ConnId) {
        self.out.abort(conn);
    }

    fn pause(&mut self, conn: ConnId) {
        self.out.pause(conn);
    }

    fn resume(&mut self, conn: ConnId) {
        self.out.resume(conn);
    }
}

impl<A: StreamApp> Counted<'_, A> {
    fn with<O: StreamOut, T>(
        &mut self,
        out: &mut O,
        act: impl FnOnce(&mut A, &mut CountedOut<'_, O>) -> T,
    ) -> T {
        act(self.app, &mut CountedOut { out, counted: self.counted, ports: self.ports })
    }
}

impl<A: StreamApp> App for Counted<'_, A> {
    fn on_bell(&mut self, turn: Turn) {
        self.app.on_bell(turn);
    }

    fn counters(&self) -> &Counters {
        self.app.counters()
    }
}

impl<A: StreamApp> StreamApp for Counted<'_, A> {
    fn on_open<O: StreamOut>(&mut self, opened: Opened, out: &mut O) {
        self.ports.insert(opened.conn, opened.port);
        self.with(out, |app, out| app.on_open(opened, out));
    }

    fn on_bytes<O: StreamOut>(&mut self, conn: ConnId, bytes: &[u8], out: &mut O) -> usize {
        let taken = self.with(out, |app, out| app.on_bytes(conn, bytes, out));
        self.counted.entry(self.ports[&conn]).or_default().rx_bytes += taken as u64;
        taken
    }

    fn on_room<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        self.with(out, |app, out| app.on_room(conn, out));
    }

    fn on_finish<O: StreamOut>(&mut self, conn: ConnId, out: &mut O) {
        self.with(out, |app, out| app.on_finish(conn, out));
    }

    fn on_turn_end<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        self.with(out, |app, out| app.on_turn_end(turn, out));
    }

    fn on_close(&mut self, conn: ConnId, why: Close) {
        self.app.on_close(conn, why);
    }

    fn on_tick<O: StreamOut>(&mut self, turn: Turn, out: &mut O) {
        self.with(out, |app, out| app.on_tick(turn, out));
    }
}

struct Rig {
    trust: Trust,
    settings: Settings,
    version: &'static SupportedProtocolVersion,
    near: Vec<SocketAddr>,
    peers: Peers,
}

impl Rig {
    fn new(version: &'static SupportedProtocolVersion) -> Result<Rig, String> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("no TCP: {e}"))?;
        let trust = Trust::new();
        let mut settings = trust.settings(|_| ClientCertificates::Unasked);
        settings.limits.closing_ns = 300_000_000;
        let near = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); PORTS_MAX];
        Ok(Rig { trust, settings, version, near, peers: Peers::default() })
    }

    /// Another test may have the port for a moment.
    fn open_when_free(&self, spec: &LaneSpec, ports: usize) -> Result<TcpLane, LaneError> {
        /// Of 10 ms each.
        const ATTEMPTS: usize = 3000;
        for _ in 0..ATTEMPTS {
            match TcpLane::open(spec, &self.near[..ports]) {
                Err(LaneError::Busy { .. }) => std::thread::sleep(Duration::from_millis(10)),
                other => return other,
            }
        }
        TcpLane::open(spec, &self.near[..ports])
    }
}

impl StreamRig for Rig {
    type Lane = TlsLane;
    type Clock = MonotonicClock;

    fn properties(&self) -> StreamProperties {
        StreamProperties {
            spec: "socket",
            ports_max: PORTS_MAX,
            peers_max: 40,
            small_queues: "buffer=4k,queue=4k,sndbuf=4k",
            hasty_close: "buffer=4k,queue=4k,sndbuf=4k,close=300",
            few_connections: None,
            impossible: None,
            misspelt: ("backlogs", "backlog"),
        }
    }

    fn queue_slack_bytes(&self) -> usize {
        crate::record::PLAIN_BYTES_MAX
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<TlsLane, LaneError> {
        self.peers.borrow_mut().clear();
        let lane = self.open_when_free(spec, ports)?;
        for port in 0..ports {
            self.near[port] = lane.local_address(PortId(port as u32));
        }
        let tls = Tls::new((), Some(self.settings.clone()), Rc::new(Counts::default()));
        let peers = Rc::clone(&self.peers);
        let (counted, ports) = Default::default();
        Ok(TlsLane { lane, tls: Some(tls), peers, counted, ports })
    }

    fn connect(&mut self, port: PortId) -> PeerId {
        let stream = TcpStream::connect(self.near[port.index()]).expect("the backlog has room");
        stream.set_nonblocking(true).expect("a socket can be non-blocking");
        stream.set_nodelay(true).expect("TCP has this option");
        let address = stream.local_addr().expect("it is connected");
        let tls = self.trust.client(None, &[self.version]);
        let mut peers = self.peers.borrow_mut();
        peers.push(Peer { stream, address, tls, is_finishing: false, end: None });
        PeerId(peers.len() - 1)
    }

    fn address(&self, peer: PeerId) -> SocketAddr {
        self.peers.borrow()[peer.0].address
    }

    fn write(&mut self, peer: PeerId, bytes: &[u8]) -> usize {
        let peer = &mut self.peers.borrow_mut()[peer.0];
        peer.pump();
        if peer.tls.is_handshaking() || peer.tls.wants_write() || peer.end.is_some() {
            return 0;
        }
        let taken = peer.tls.writer().write(bytes).expect("a buffer in memory");
        peer.pump();
        taken
    }

    fn read(&mut self, peer: PeerId, bytes_max: usize) -> PeerRead {
        let peer = &mut self.peers.borrow_mut()[peer.0];
        peer.pump();
        peer.read(bytes_max)
    }

    fn finish(&mut self, peer: PeerId) {
        let peer = &mut self.peers.borrow_mut()[peer.0];
        peer.tls.send_close_notify();
        peer.is_finishing = true;
        peer.pump();
    }

    fn reset(&mut self, peer: PeerId) {
        let peer = &mut self.peers.borrow_mut()[peer.0];
        let at_once = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&peer.stream, at_once)
            .expect("TCP has this option");
        // Another stream in its place closes this one; what it is connected to does not matter.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        peer.stream = TcpStream::connect(address).expect("the backlog has room");
        peer.end = Some(PeerRead::Reset);
    }

    fn arrivals(&mut self, peer: PeerId) -> Option<Box<dyn FnMut() -> bool>> {
        let stream = &self.peers.borrow()[peer.0].stream;
        let stream = stream.try_clone().expect("a descriptor is free");
        Some(Box::new(move || stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)))
    }
}

mod v13 {
    use super::*;
    laneway_testkit::stream_conformance!(|| Rig::new(&TLS13));
}

mod v12 {
    use super::*;
    laneway_testkit::stream_conformance!(|| Rig::new(&TLS12));
}
