//! The far end of a simulated link: hosts that open connections, each on an interface of its own,
//! and frames made by hand.

use laneway_core::{Clock, Lane, PortId, StreamApp, StreamLane};
use laneway_sim::{SimLane, SimWorld};
use laneway_stack::{InterfaceConfig, StackConfig, StreamStack};
use laneway_wire::{ETHERNET_BYTES, Ethernet, Mac, ether_type};
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{self, DeviceCapabilities, Medium},
    socket::tcp::{Socket, SocketBuffer, State},
    time::Instant,
    wire::{HardwareAddress, IpCidr, IpEndpoint},
};
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

pub(crate) const PORT: PortId = PortId(0);
pub(crate) const NEAR_MAC: Mac = [2, 0, 0, 0, 0, 1];
pub(crate) const FAR_MAC: Mac = [2, 0, 0, 0, 0, 2];
/// The longest step of the virtual clock between two looks at the far end.
const STEP: Duration = Duration::from_micros(500);

pub(crate) fn near(port: u16) -> SocketAddr {
    SocketAddr::new("10.0.0.1".parse().unwrap(), port)
}

/// A config that is the same in every run.
pub(crate) fn config(listen: &[&str]) -> StackConfig {
    let addresses = vec![("10.0.0.1".parse().unwrap(), 16), ("fd00::1".parse().unwrap(), 64)];
    let listen = listen.iter().map(|text| text.parse().unwrap()).collect();
    let mut config = StackConfig::new(InterfaceConfig::new(NEAR_MAC, addresses), listen);
    config.secret = [0x0123_4567, 0x89ab_cdef];
    config
}

/// A connection of the far end.
pub(crate) struct Far {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    /// Bytes received.
    pub(crate) received: Vec<u8>,
    /// Bytes that are still to be written.
    to_write: Vec<u8>,
    written: usize,
}

/// The device of a far connection: one packet in, packets out.
struct Wire<'a> {
    packet: Option<&'a [u8]>,
    out: &'a mut Vec<Vec<u8>>,
}

struct In<'a>(&'a [u8]);
struct Out<'a>(&'a mut Vec<Vec<u8>>);

impl phy::RxToken for In<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl phy::TxToken for Out<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push(packet);
        result
    }
}

impl phy::Device for Wire<'_> {
    type RxToken<'a>
        = In<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Out<'a>
    where
        Self: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(In<'_>, Out<'_>)> {
        self.packet.take().map(|packet| (In(packet), Out(self.out)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Out<'_>> {
        Some(Out(self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

impl Far {
    fn connect(from: SocketAddr, to: SocketAddr, buffer_bytes: usize, now: Instant) -> Far {
        let mut out = Vec::new();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = u64::from(from.port()) << 16 | 7;
        let mut device = Wire { packet: None, out: &mut out };
        let mut interface = Interface::new(config, &mut device, now);
        let bits = if from.is_ipv4() { 32 } else { 128 };
        interface
            .update_ip_addrs(|own| own.push(IpCidr::new(from.ip().into(), bits)).expect("room"));
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        // Never a closed window at this end: this smoltcp is not corrected as that of the stack is,
        // and may take the acknowledgements of a prober for old ones.
        let [receive, send] =
            [16 * buffer_bytes, buffer_bytes].map(|bytes| SocketBuffer::new(vec![0; bytes]));
        let handle = sockets.add(Socket::new(receive, send));
        let socket = sockets.get_mut::<Socket<'_>>(handle);
        socket
            .connect(interface.context(), IpEndpoint::from(to), IpEndpoint::from(from))
            .expect("a fresh socket connects");
        Far { interface, sockets, handle, received: Vec::new(), to_write: Vec::new(), written: 0 }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    pub(crate) fn state(&self) -> State {
        self.sockets.get::<Socket<'static>>(self.handle).state()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.to_write.extend_from_slice(bytes);
    }

    pub(crate) fn finish(&mut self) {
        assert_eq!(self.written, self.to_write.len(), "everything was written before");
        self.socket().close();
    }

    pub(crate) fn abort(&mut self) {
        self.socket().abort();
    }

    /// Moves bytes between the script and the socket, and packets between the socket and `out`.
    fn poll(&mut self, packet: Option<&[u8]>, out: &mut Vec<Vec<u8>>, now: Instant) {
        let mut device = Wire { packet, out };
        self.interface.poll(now, &mut device, &mut self.sockets);
        let Far { sockets, handle, received, to_write, written, .. } = self;
        let socket = sockets.get_mut::<Socket<'static>>(*handle);
        while socket.can_recv() {
            let read = socket.recv(|bytes| {
                received.extend_from_slice(bytes);
                (bytes.len(), bytes.len())
            });
            assert!(read.is_ok());
        }
        *written += socket.send_slice(&to_write[*written..]).unwrap_or(0);
        self.interface.poll(now, &mut device, &mut self.sockets);
    }

    fn wants_poll(&mut self, now: Instant) -> bool {
        self.interface.poll_at(now, &self.sockets).is_some_and(|at| at <= now)
    }
}

/// A stack on one simulated link, and the connections at its far end.
pub(crate) struct Bench<A> {
    pub(crate) stack: StreamStack<SimLane>,
    pub(crate) world: SimWorld,
    pub(crate) app: A,
    pub(crate) fars: HashMap<SocketAddr, Far>,
    /// Send buffer of new far connections; the receive buffer is 16 times as long.
    pub(crate) far_bytes: usize,
    next_port: u32,
    /// Bytes of the longest frame that reached the far end.
    pub(crate) longest: usize,
}

impl<A: StreamApp> Bench<A> {
    pub(crate) fn new(spec: &str, config: &StackConfig, app: A) -> Bench<A> {
        let (lane, world) = SimLane::open(&spec.parse().unwrap(), 1).unwrap();
        let stack = StreamStack::new(lane, config).unwrap();
        Bench { stack, world, app, fars: HashMap::new(), far_bytes: 4096, next_port: 0, longest: 0 }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.world.clock().now_ns()
    }

    fn now(&self) -> Instant {
        Instant::from_micros((self.now_ns() / 1000) as i64)
    }

    /// Begins a connection from the next free port; 20,000 ports per source address.
    pub(crate) fn connect(&mut self, to: SocketAddr) -> SocketAddr {
        let (host, port) = (self.next_port / 20_000, self.next_port % 20_000);
        self.next_port += 1;
        let ip: IpAddr = match to {
            SocketAddr::V4(_) => [10, 0, 1, host as u8 + 1].into(),
            SocketAddr::V6(_) => format!("fd00::2:{host}").parse().unwrap(),
        };
        let from = SocketAddr::new(ip, 10_000 + port as u16);
        let now = self.now();
        let mut far = Far::connect(from, to, self.far_bytes, now);
        let mut out = Vec::new();
        far.poll(None, &mut out, now);
        self.fars.insert(from, far);
        self.inject(out);
        from
    }

    fn inject(&self, packets: Vec<Vec<u8>>) {
        for packet in packets {
            self.world.inject(PORT, &framed(&packet));
        }
    }

    pub(crate) fn far(&mut self, at: SocketAddr) -> &mut Far {
        self.fars.get_mut(&at).expect("it was connected")
    }

    /// Lets time pass until something arrives, or for a step; then every host works once.
    pub(crate) fn step(&mut self) {
        let clock = self.world.clock();
        let served = self.stack.serve(&mut self.app, &clock).unwrap();
        let now = self.now();
        let mut out = Vec::new();
        for arrival in self.world.collect(PORT) {
            self.longest = self.longest.max(arrival.bytes.len());
            if let Some((to, packet)) = destination(&arrival.bytes)
                && let Some(far) = self.fars.get_mut(&to)
            {
                far.poll(Some(packet), &mut out, now);
            }
        }
        let idle = out.is_empty() && served == 0;
        self.inject(out);
        if idle {
            let mut out = Vec::new();
            for far in self.fars.values_mut() {
                if far.written < far.to_write.len() || far.wants_poll(now) {
                    far.poll(None, &mut out, now);
                }
            }
            self.inject(out);
            self.stack.wait(STEP).unwrap();
        }
    }

    /// Steps until `done`, at most for `limit` of virtual time; true if it was done.
    pub(crate) fn until(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let end_ns = self.now_ns() + limit.as_nanos() as u64;
        while self.now_ns() < end_ns {
            if done(self) {
                return true;
            }
            self.step();
        }
        done(self)
    }
}

/// An IP packet in a frame from the far end.
pub(crate) fn framed(packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
    let mut frame = vec![0; ETHERNET_BYTES];
    let header = Ethernet { destination: NEAR_MAC, source: FAR_MAC, ether_type: kind };
    assert!(header.emit(&mut frame));
    frame.extend_from_slice(packet);
    frame
}

/// The destination of a TCP packet in a frame, and the packet.
fn destination(frame: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let packet = &frame[ETHERNET_BYTES..];
    let (ip, transport): (IpAddr, usize) = match Ethernet::parse(frame).ok()?.ether_type {
        ether_type::IPV4 => (<[u8; 4]>::try_from(&packet[16..20]).ok()?.into(), 20),
        ether_type::IPV6 => (<[u8; 16]>::try_from(&packet[24..40]).ok()?.into(), 40),
        _ => return None,
    };
    let port = u16::from_be_bytes([packet[transport + 2], packet[transport + 3]]);
    Some((SocketAddr::new(ip, port), packet))
}
