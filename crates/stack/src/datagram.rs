//! UDP over a frame lane: the datagram shape of the contract.
//!
//! ```text
//!   receive ─▶ burst ─▶ sort ─▶ batch (borrows the frames) ─▶ app ─▶ out
//!                                                     forward: the same frame, new headers ─▶ settle
//!                                  forward again, where the lane gathers: a head, the payload ─▶ settle
//!                                               forward again elsewhere, send ─▶ outbox ─▶ borrowed frames
//! ```
//!
//! The first forward of a datagram goes out in the frame that it arrived in: headers are rewritten, the
//! checksum follows by difference, and the payload is not touched. All further ones leave by gathering, with
//! heads of their own and the payload read where it lies, on a lane that does that; nothing is copied. On others
//! the payload is kept, once, because the borrowed burst must be settled before the lane can lend another, and
//! then copied into the frame of each: that makes one copy per output, all counted. No payload that
//! arrived with a checksum is summed again. Datagrams to one destination never overtake each other that
//! way: what goes in place leaves first, then what is gathered, then what is kept; once something for a
//! destination went one of these ways, nothing for it goes an earlier one, until the burst is settled.
//!
//! What it does not do: it fragments nothing (what is longer than the path's MTU is counted as
//! `tx_too_long`), and cuts trains into datagrams.

mod groups;
mod out;

use crate::{
    HostEvents, StackConfig,
    host::{Audience, Host, Refusal, Sorted},
    ip::Packet,
    limit::RateLimit,
    outbox::Books,
    ports::Ports,
    reset::Segment,
    turn::TurnState,
    udp::{self},
};
use groups::{name_of, named};
use laneway_core::{
    Bell, Burst, CapsReport, Clock, ClockDomain, Counters, Datagram, DatagramApp, DatagramLane,
    DatagramPorts, DropReason, FrameLane, Lane, LaneError, Membership, PayloadKey, PortId,
    PortPlan, Turn, Verdict, Wake,
};
use laneway_kinds::{GroupHolder, LinkAddresses};
use laneway_wire::{Ethernet, Mac, UDP_BYTES, Udp, protocol};
use out::Out;
use std::{net::SocketAddr, ops::Range, time::Duration};

/// The longest payload that a UDP header can state over IPv4.
const PAYLOAD_BYTES_MAX: usize = 65_507;

/// UDP on the ports of a frame lane. See the module's drawing.
pub struct DatagramStack<L> {
    lane: L,
    host: Host,
    groups_max: usize,
    ports: Ports,
    turn: TurnState,
    /// The batch's memory between turns, empty.
    batch: Vec<Datagram<'static>>,
    arrivals: Vec<Arrival>,
    /// The ports that a datagram is for.
    found: Vec<PortId>,
    /// Marks a payload with its arrival's place among those of its port.
    key: PayloadKey,
    resets: RateLimit,
    /// What makes the kernel a member of groups.
    holder: Option<Box<dyn GroupHolder>>,
    /// Of what belongs to no port, as much as former first ports have counted.
    retired: Common,
}

/// What belongs to no port, since the start: frames that were for none, and what the lane below lost and did.
#[derive(Default)]
struct Common {
    host: Counters,
    lane: Counters,
}

impl Common {
    fn since(&self, before: &Common) -> Counters {
        let mut both = self.host.since(&before.host);
        both.merge(&self.lane.since(&before.lane));
        both
    }
}

/// A datagram in a frame of the burst.
#[derive(Clone, Debug)]
struct Arrival {
    frame: usize,
    port: PortId,
    payload: Range<usize>,
    /// What the payload sums up to, where it arrived with a checksum.
    sum: Option<u16>,
    source: SocketAddr,
    destination: SocketAddr,
    is_broadcast: bool,
    from: Mac,
}

impl<L: FrameLane> DatagramStack<L> {
    /// Puts a stack on `lane`. Port `i` of the stack is `config.listen[i]`; others come and go.
    ///
    /// # Errors
    /// [`LaneError::Refused`] for a config that cannot work, naming the value.
    pub fn new(lane: L, config: &StackConfig) -> Result<DatagramStack<L>, LaneError> {
        config.check(lane.name(), lane.ports())?;
        let host = Host::new(config);
        let resets = config.tcp.resets_per_second;
        let mut ports = Ports::new(config.secret);
        for address in &config.listen {
            let ready = ports.prepare(&lane, &host, &PortPlan::at(*address))?;
            let port = ports.open(ready);
            let interface = host.interface_of(address.ip()).unwrap_or(0);
            ports.add_facts(port, lane.caps(PortId(interface as u32)));
        }
        Ok(DatagramStack {
            groups_max: config.limits.groups_max,
            ports,
            turn: TurnState::default(),
            batch: Vec::new(),
            arrivals: Vec::new(),
            found: Vec::new(),
            key: PayloadKey::unique(),
            resets: RateLimit::new(resets, resets.min(50)),
            holder: None,
            retired: Common::default(),
            host,
            lane,
        })
    }

    /// From now on the kernel is a member of all groups that are heard here, and tells the network. To
    /// be called before the first turn, where the kernel sees what routers ask and interfaces have its
    /// names.
    ///
    /// # Errors
    /// What the kernel says to the groups of the config.
    pub fn with_holder(mut self, holder: Box<dyn GroupHolder>) -> Result<Self, LaneError> {
        self.host.members.hush();
        let holder = self.holder.insert(holder);
        for heard in self.host.members.all() {
            holder.join(&named(&self.host, heard))?;
        }
        Ok(self)
    }

    /// From now on the kernel's neighbours are asked for before the network is; interfaces have its names.
    #[must_use]
    pub fn with_link_addresses(mut self, known: Box<dyn LinkAddresses>) -> Self {
        self.host.known = Some(known);
        self
    }

    /// The lane below.
    pub fn lane(&self) -> &L {
        &self.lane
    }

    /// What happened below the app.
    pub fn events(&self) -> HostEvents {
        self.host.events
    }

    /// Neighbours known or asked for.
    pub fn neighbours(&self) -> usize {
        self.host.neighbours.len()
    }
}

/// Sorts every frame of a burst; datagrams for us become arrivals, in order.
fn sort_burst(
    host: &mut Host,
    ports: &mut Ports,
    resets: &mut RateLimit,
    (arrivals, found): (&mut Vec<Arrival>, &mut Vec<PortId>),
    (interface, burst, now_ns): (PortId, &mut Burst, u64),
) {
    for i in 0..burst.len() {
        let (packet, audience) = match host.sort(interface, burst, i, now_ns) {
            Sorted::Transport(packet, audience) => (packet, audience),
            Sorted::Done(verdict) => {
                burst.set_verdict(i, verdict);
                continue;
            }
            Sorted::TooBig(..) => {
                burst.set_verdict(i, host.consumed());
                continue;
            }
        };
        let verdict = if packet.protocol == protocol::TCP {
            refuse_tcp(host, interface, burst, i, (&packet, audience), (resets, now_ns))
        } else {
            found.clear();
            let find = |to| {
                let ends = (packet.source, to);
                ports.each(interface.0 as u8, ends, audience, |port| found.push(port));
                found.first().copied()
            };
            match read_udp(burst.frame(i).bytes, &packet, find) {
                Ok(arrival) => {
                    for &port in &*found {
                        if let Some(counters) = ports.of(port) {
                            counters.rx_frames += 1;
                            counters.rx_bytes += arrival.payload.len() as u64;
                        }
                        let is_broadcast = audience == Audience::Everybody;
                        arrivals.push(Arrival { frame: i, port, is_broadcast, ..arrival.clone() });
                    }
                    continue;
                }
                Err(Refused::Broken(port, reason)) => {
                    ports.of(port).unwrap_or(&mut host.counters).drop_one(reason);
                    Verdict::Drop
                }
                Err(Refused::Header) => verdict_of(host.rest(DropReason::Malformed)),
                Err(Refused::NoListener) if host.pass_rest || audience != Audience::Us => {
                    verdict_of(host.rest(DropReason::NoListener))
                }
                Err(Refused::NoListener) => {
                    host.refuse(interface, &mut burst.frame_mut(i), &packet, Refusal::Port, now_ns)
                }
            }
        };
        burst.set_verdict(i, verdict);
    }
}

fn verdict_of(sorted: Sorted) -> Verdict {
    match sorted {
        Sorted::Done(verdict) => verdict,
        Sorted::Transport(..) | Sorted::TooBig(..) => Verdict::Drop,
    }
}

fn refuse_tcp(
    host: &mut Host,
    interface: PortId,
    burst: &mut Burst,
    i: usize,
    (packet, audience): (&Packet, Audience),
    (resets, now_ns): (&mut RateLimit, u64),
) -> Verdict {
    if host.pass_rest || audience != Audience::Us {
        return verdict_of(host.rest(DropReason::NoListener));
    }
    match Segment::parse(burst.frame(i).bytes, packet) {
        Ok(segment) => {
            host.counters.drop_one(DropReason::NoListener);
            let frame = &mut burst.frame_mut(i);
            host.reset(interface, frame, packet, &segment, (resets, now_ns))
        }
        Err(reason) => verdict_of(host.drop(reason)),
    }
}

/// Why a UDP packet is no arrival.
enum Refused {
    /// Its header makes no sense.
    Header,
    NoListener,
    /// It is for this port, and damaged.
    Broken(PortId, DropReason),
}

fn read_udp(
    frame: &[u8],
    packet: &Packet,
    find: impl FnOnce(SocketAddr) -> Option<PortId>,
) -> Result<Arrival, Refused> {
    let udp = Udp::parse(packet.payload(frame)).map_err(|_| Refused::Header)?;
    let total_bytes = usize::from(udp.total_bytes);
    if total_bytes < UDP_BYTES || total_bytes > packet.payload.len() {
        return Err(Refused::Header);
    }
    let destination = SocketAddr::new(packet.destination, udp.destination_port);
    let port = find(destination).ok_or(Refused::NoListener)?;
    let start = packet.payload.start;
    // What the IP packet has behind the datagram is not part of it (RFC 768).
    let datagram = Packet { payload: start..start + total_bytes, ..packet.clone() };
    let unsummed = udp.checksum == 0 && packet.source.is_ipv4();
    if !unsummed && (udp.checksum == 0 || !datagram.payload_sums_up(frame)) {
        return Err(Refused::Broken(port, DropReason::BadChecksum));
    }
    let source = SocketAddr::new(packet.source, udp.source_port);
    let payload = start + UDP_BYTES..start + total_bytes;
    let sum = || udp::payload_sum(udp.checksum, source, destination, payload.len());
    Ok(Arrival {
        frame: 0,
        port,
        sum: (!unsummed).then(sum),
        payload,
        source,
        destination,
        is_broadcast: false,
        from: Ethernet::parse(frame).map_or([0; 6], |ethernet| ethernet.source),
    })
}

impl<L: FrameLane> DatagramStack<L> {
    /// Shows what arrived in the burst of `interface` to the app; returns how many datagrams.
    fn show<A: DatagramApp>(
        &mut self,
        interface: PortId,
        app: &mut A,
        clock: &impl Clock,
        now_ns: u64,
    ) -> Result<usize, LaneError> {
        let burst = self.lane.receive(interface)?;
        if burst.is_empty() {
            return Ok(0);
        }
        let DatagramStack { host, ports, arrivals, found, key, turn, batch, resets, .. } = self;
        arrivals.clear();
        let received = (interface, &mut *burst, now_ns);
        sort_burst(host, ports, resets, (arrivals, found), received);
        if !arrivals.is_sorted_by_key(|arrival| arrival.port) {
            arrivals.sort_unstable_by_key(|arrival| (arrival.port, arrival.frame));
        }
        turn.begin(burst);
        let mut shown: Vec<Datagram<'_>> = std::mem::take(batch);
        for run in arrivals.chunk_by(|a, b| a.port == b.port) {
            shown.clear();
            shown.extend(run.iter().zip(0..).map(|(arrival, i)| {
                let frame = burst.frame(arrival.frame);
                Datagram {
                    payload: key.mark(&frame.bytes[arrival.payload.clone()], i),
                    segment_bytes: arrival.payload.len(),
                    source: arrival.source,
                    destination: arrival.destination,
                    is_broadcast: arrival.is_broadcast,
                    ingress: arrival.port,
                    ts_ns: frame.ts_ns,
                }
            }));
            let now_ns = clock.now_ns();
            let mut out = Out {
                host,
                ports,
                turn,
                run,
                shown: &shown,
                key,
                interface: interface.0 as u8,
                cursor: 0,
                last: None,
                now_ns,
            };
            app.on_datagrams(&shown, Turn { now_ns }, &mut out);
        }
        *batch = emptied(shown);
        turn.write(burst, interface, ports, &mut host.counters, host.outbox.sent_mut());
        let settled = self.lane.settle(interface);
        self.take_back_refused();
        settled?;
        // Before the next burst, so that what is kept is bounded by one.
        self.flush()?;
        Ok(self.arrivals.len())
    }
}

/// The same memory for datagrams of another turn.
fn emptied<'a>(mut batch: Vec<Datagram<'_>>) -> Vec<Datagram<'a>> {
    batch.clear();
    // Collecting an empty vector of the same layout in place keeps its memory.
    batch.into_iter().map(|_| unreachable!("it was cleared")).collect()
}

impl<L: FrameLane> Lane for DatagramStack<L> {
    /// That of the lane below.
    fn name(&self) -> &'static str {
        self.lane.name()
    }

    fn ports(&self) -> usize {
        self.ports.ids().len()
    }

    fn port(&self, at: usize) -> PortId {
        self.ports.ids()[at]
    }

    fn past(&self) -> Counters {
        let mut past = self.ports.past().clone();
        if self.ports.ids().is_empty() {
            past.merge(&self.host.counters.since(&self.retired.host));
        }
        past
    }

    fn clock_domain(&self) -> ClockDomain {
        self.lane.clock_domain()
    }

    fn hear(&mut self, bell: &Bell) {
        self.lane.hear(bell);
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        match self.lane.wait(timeout) {
            Err(error) => self.lose(error).map(|()| Wake::Ready),
            wake => wake,
        }
    }

    fn due_ns(&self) -> Option<u64> {
        self.host.due_ns()
    }

    fn exhausted(&self) -> bool {
        self.lane.exhausted()
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        match self.ports.get(port) {
            Some(port) => &port.caps,
            None => panic!("there is no port {}", port.0),
        }
    }

    /// The first port carries besides its own what belongs to no port: frames that were for no port,
    /// and the losses, passes, polls and waits of the lane below.
    fn counters(&mut self, port: PortId) -> Counters {
        let is_first = self.ports.ids().first() == Some(&port);
        let common = match is_first {
            true => self.common().since(&self.retired),
            false => Counters::default(),
        };
        self.take_back_refused();
        let Some(owner) = self.ports.get(port) else { return Counters::default() };
        let mut counters = owner.counters.clone();
        counters.merge(&common);
        counters
    }

    /// A port has counted it as sent; now it is refused.
    fn drop_unsent(&mut self) {
        self.lane.drop_unsent();
        self.take_back_refused();
    }
}

impl<L: FrameLane> DatagramPorts for DatagramStack<L> {
    fn open_port(&mut self, plan: &PortPlan) -> Result<PortId, LaneError> {
        let mut ready = self.ports.prepare(&self.lane, &self.host, plan)?;
        let port = ready.port_mut();
        for membership in &plan.memberships {
            let entered = self.heard(port, membership).and_then(|heard| {
                self.enter(heard, membership)?;
                Ok(heard)
            });
            match entered {
                Ok(heard) => port.join(heard),
                Err(error) => {
                    self.exit_all(port);
                    return Err(error);
                }
            }
        }
        if self.ports.ids().is_empty() {
            self.retire_common();
        }
        Ok(self.ports.open(ready))
    }

    fn close_port(&mut self, port: PortId) -> Result<Counters, LaneError> {
        let is_first = self.ports.ids().first() == Some(&port);
        let closed = self.ports.close(port).ok_or_else(|| self.no_port(port))?;
        if is_first {
            self.retire_common();
        }
        self.exit_all(&closed);
        Ok(closed.counters)
    }

    fn join(&mut self, port: PortId, membership: &Membership) -> Result<(), LaneError> {
        let there = self.ports.get(port).ok_or_else(|| self.no_port(port))?;
        let heard = self.heard(there, membership)?;
        self.enter(heard, membership)?;
        if let Some(port) = self.ports.get_mut(port) {
            port.join(heard);
        }
        Ok(())
    }

    fn leave(&mut self, port: PortId, membership: &Membership) -> Result<(), LaneError> {
        let there = self.ports.get(port).ok_or_else(|| self.no_port(port))?;
        let heard = self.meant(there, membership)?;
        let port = self.ports.get_mut(port).filter(|port| port.is_member(heard));
        let Some(port) = port else {
            return Err(LaneError::NotFound {
                lane: self.lane.name().to_owned(),
                what: "membership",
                name: name_of(membership),
                hint: "the port was never a member, or has left".to_owned(),
            });
        };
        port.leave(heard);
        self.exit(heard)
    }

    fn bound(&self, port: PortId) -> Option<SocketAddr> {
        self.ports.get(port).map(|port| port.bound)
    }
}

impl<L: FrameLane> DatagramLane for DatagramStack<L> {
    fn serve<A: DatagramApp>(
        &mut self,
        app: &mut A,
        clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        let now_ns = clock.now_ns();
        self.host.begin(&mut self.ports, now_ns);
        let mut served = 0;
        for interface in 0..self.lane.ports() {
            match self.show(PortId(interface as u32), app, clock, now_ns) {
                Ok(shown) => served += shown,
                Err(error) => self.lose(error)?,
            }
        }
        // What the app sent may need neighbours that are not known yet.
        self.host.solicit_due(&mut self.ports, now_ns);
        self.flush()?;
        Ok(served)
    }

    fn tick<A: DatagramApp>(&mut self, app: &mut A, turn: Turn) -> Result<(), LaneError> {
        let mut out = Out {
            host: &mut self.host,
            ports: &mut self.ports,
            turn: &mut self.turn,
            run: &[],
            shown: &[],
            key: &self.key,
            interface: 0,
            cursor: 0,
            last: None,
            now_ns: turn.now_ns,
        };
        app.on_tick(turn, &mut out);
        self.host.solicit_due(&mut self.ports, turn.now_ns);
        self.flush()
    }
}

impl<L: FrameLane> DatagramStack<L> {
    fn flush(&mut self) -> Result<(), LaneError> {
        self.turn.flushed();
        match self.host.end(&mut self.lane, &mut self.ports) {
            Err(error) => self.lose(error),
            Ok(()) => Ok(()),
        }
    }

    /// Takes back from the ports what the lane has refused since this was asked last.
    fn take_back_refused(&mut self) {
        let DatagramStack { lane, host, ports, .. } = self;
        host.outbox.take_back_refused(lane, ports, &mut host.counters);
    }

    /// What belongs to no port. First the ports give up what the lane refused: all that its counters say.
    fn common(&mut self) -> Common {
        let DatagramStack { lane, host, ports, .. } = self;
        let Host { outbox, counters, .. } = host;
        let lane =
            below(lane, |interface, refused| outbox.take_back(interface, refused, ports, counters));
        Common { host: counters.clone(), lane }
    }

    /// What the first port has counted of it stays there: another one is the first from now on.
    fn retire_common(&mut self) {
        let common = self.common();
        self.ports.retire(&common.since(&self.retired));
        self.retired = common;
    }

    /// Goes on without an interface that is gone, while there is another.
    fn lose(&mut self, error: LaneError) -> Result<(), LaneError> {
        let LaneError::Gone { name, .. } = &error else { return Err(error) };
        let Some(interface) = self.host.interface_named(name) else { return Err(error) };
        if self.host.outbox.lose(interface) {
            self.lane.give_up(PortId(interface.into()));
        }
        if self.host.outbox.has_lost_all() { Err(error) } else { Ok(()) }
    }

    fn no_port(&self, port: PortId) -> LaneError {
        LaneError::NotFound {
            lane: self.lane.name().to_owned(),
            what: "port",
            name: port.0.to_string(),
            hint: "it was closed, or never open".to_owned(),
        }
    }
}

/// What the lane below a stack counted and no port of the stack has. Frames and bytes are left out:
/// the ports count datagrams, or bytes of streams; and of an interface's refusals, all of which it is shown, those that
/// `counted_elsewhere` says ports count.
pub(crate) fn below<L: FrameLane>(
    lane: &mut L,
    mut counted_elsewhere: impl FnMut(usize, u64) -> u64,
) -> Counters {
    let mut sum = Counters::default();
    for interface in 0..lane.ports() {
        let mut below = lane.counters(PortId(interface as u32));
        (below.rx_frames, below.rx_bytes, below.tx_frames, below.tx_bytes) = (0, 0, 0, 0);
        let refused = below.drops(DropReason::TxRefused);
        let elsewhere = counted_elsewhere(interface, refused);
        below.set_drops(DropReason::TxRefused, refused.saturating_sub(elsewhere));
        sum.merge(&below);
    }
    sum
}
