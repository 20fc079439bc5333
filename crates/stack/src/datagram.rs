//! UDP over a frame lane: the datagram shape of the contract.
//!
//! ```text
//!   receive ─▶ burst ─▶ sort ─▶ batch (borrows the frames) ─▶ app ─▶ out
//!                                                     forward: the same frame, new headers ─▶ settle
//!                                  forward again, where the lane gathers: a head, the payload ─▶ settle
//!                                               forward again elsewhere, send ─▶ outbox ─▶ lent frames
//! ```
//!
//! The first forward of a datagram goes out in the frame that it came in: headers are rewritten, the
//! checksum follows by difference, and the payload is not touched. All further ones leave by gathering, with
//! heads of their own and the payload read where it lies, on a lane that does that; nothing is copied. On others
//! the payload is kept, once, because the borrowed burst must be settled before the lane can lend another, and
//! then copied into the frame of each: that makes one copy per output, all counted. No payload that
//! came with a checksum is summed again. Datagrams to one destination never overtake each other that
//! way: what goes in place leaves first, then what is gathered, then what is kept; once something for a
//! destination went one of these ways, nothing for it goes an earlier one, until the burst is settled.
//!
//! What it does not do: it fragments nothing (what is longer than the path's MTU is counted as
//! `tx_too_long`), and cuts trains into datagrams.

use crate::{
    HostEvents, StackConfig,
    host::{Audience, Host, Sorted, Way},
    icmp::Refusal,
    ip::{self, Packet},
    limit::RateLimit,
    neighbour::{Account, Place},
    outbox::{Books, Hop, Kept},
    ports::{Heard, Port, Ports},
    reset::Segment,
    turn::{Leaving, Origin, TurnState},
    udp::{self, Headers},
};
use laneway_core::{
    Bell, Burst, CapsReport, Clock, ClockDomain, Counters, Datagram, DatagramApp, DatagramLane,
    DatagramOut, DatagramPorts, DropReason, FrameLane, Lane, LaneError, Membership, PayloadKey,
    PortId, PortPlan, Turn, Verdict, Wake,
};
use laneway_kinds::{GroupHolder, LinkAddresses};
use laneway_wire::{Ethernet, Mac, UDP_BYTES, Udp, protocol};
use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    time::Duration,
};

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
    /// Who makes the kernel a member of groups.
    holder: Option<Box<dyn GroupHolder>>,
}

/// A datagram in a frame of the burst.
#[derive(Clone, Debug)]
struct Arrival {
    frame: usize,
    port: PortId,
    payload: Range<usize>,
    /// What the payload sums up to, where it came with a checksum.
    sum: Option<u16>,
    source: SocketAddr,
    destination: SocketAddr,
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
            ports.tell_more(port, lane.caps(PortId(interface as u32)));
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
                        arrivals.push(Arrival { frame: i, port, ..arrival.clone() });
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
                key,
                interface: interface.0 as u8,
                cursor: 0,
                last: None,
                now_ns,
            };
            app.on_datagrams(&shown, Turn { now_ns }, &mut out);
        }
        *batch = emptied(shown);
        turn.write(burst, interface, ports, &mut host.counters);
        let settled = self.lane.settle(interface);
        for egress in 0..self.lane.ports() {
            let DatagramStack { lane, host, ports, turn, .. } = self;
            let sent = turn.sent_last_first(egress as u8);
            host.outbox.tell_refused(lane, PortId(egress as u32), ports, sent);
        }
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

/// What an app sends with.
struct Out<'a> {
    host: &'a mut Host,
    ports: &'a mut Ports,
    turn: &'a mut TurnState,
    /// The arrivals shown, and the key whose tokens say which of them.
    run: &'a [Arrival],
    key: &'a PayloadKey,
    /// Where they came in.
    interface: u8,
    /// The arrival that the app is probably at.
    cursor: usize,
    /// The way found last, but for an answer: most apps send many datagrams through one port.
    last: Option<(PortId, SocketAddr, Exit)>,
    now_ns: u64,
}

/// A way out, found before anything is written.
#[derive(Clone, Copy)]
struct Exit {
    source: SocketAddr,
    hop_limit: u8,
    traffic_class: u8,
    way: Result<Hop, Place>,
    payload_bytes_max: usize,
}

impl Exit {
    fn headers(&self, destination: SocketAddr, payload_sum: u16) -> Headers {
        let Exit { source, hop_limit, traffic_class, .. } = *self;
        Headers { source, destination, hop_limit, traffic_class, payload_sum }
    }
}

impl Out<'_> {
    fn lose(&mut self, egress: PortId, reason: DropReason) {
        // What names no port of ours is booked on the one that is being served, or on the first.
        let served = self.run.first().map(|arrival| arrival.port);
        let booked = match self.ports.get(egress) {
            Some(_) => Some(egress),
            None => served.or_else(|| self.ports.ids().first().copied()),
        };
        let counters = booked.and_then(|port| self.ports.of(port));
        counters.unwrap_or(&mut self.host.counters).drop_one(reason);
    }

    /// The arrival that `destination` sent, if it is the one that the app is at, or the next.
    fn answered(&mut self, destination: SocketAddr) -> Option<&Arrival> {
        let ahead = self.run.get(self.cursor..)?.iter().take(2);
        let step = ahead.into_iter().position(|arrival| arrival.source == destination)?;
        self.cursor += step;
        self.run.get(self.cursor)
    }

    /// Where the payload of `datagram` came from, if it is of the batch.
    fn origin_of(&mut self, datagram: &Datagram<'_>) -> Option<Origin> {
        let (i, offset) = self.key.find(datagram.payload)?;
        self.cursor = i as usize;
        let Arrival { frame, payload, sum, .. } = &self.run[self.cursor];
        let at = payload.start + offset;
        let is_whole = datagram.payload.len() == payload.len();
        Some(Origin { frame: *frame, at, offset, is_whole, sum: sum.filter(|_| is_whole) })
    }

    /// Finds the way from port `egress` to `destination`, or the reason why there is none.
    fn exit(&mut self, egress: PortId, destination: SocketAddr) -> Result<Exit, DropReason> {
        let exit = self.way_out(egress, destination)?;
        let interface = match exit.way {
            Ok(hop) => hop.interface,
            Err(place) => place.interface,
        };
        if self.host.outbox.is_gone(interface) {
            return Err(DropReason::NoRoute);
        }
        Ok(exit)
    }

    fn way_out(&mut self, egress: PortId, destination: SocketAddr) -> Result<Exit, DropReason> {
        let port = self.ports.get(egress).ok_or(DropReason::TxNoPort)?;
        let bound = port.bound;
        let (hop_limit, traffic_class) = (port.hop_limit, port.traffic_class);
        let (only, planned_source) = (port.interface, port.source);
        if bound.is_ipv4() != destination.is_ipv4() || destination.ip().is_unspecified() {
            return Err(DropReason::NoRoute);
        }
        let interface = self.interface;
        let reply = self.answered(destination).map(|a| (a.destination.ip(), a.from));
        let reply = reply.filter(|_| only.is_none_or(|only| only == interface));
        if let (Some((port, to, exit)), None) = (self.last, reply)
            && (port, to) == (egress, destination)
        {
            return Ok(exit);
        }
        let (way, next_hop) = match reply {
            // Back to where it came from, no lookup.
            Some((_, mac)) => {
                let place = Place { interface, address: destination.ip() };
                (Ok(self.host.hop(interface, mac)), place)
            }
            None => {
                let preferred = only.map(usize::from).or_else(|| {
                    let host = &*self.host;
                    host.interface_of(bound.ip()).or_else(|| host.interface_for(bound.is_ipv4()))
                });
                let out_by = (preferred.unwrap_or(0), only.is_some());
                match self.host.way(destination.ip(), out_by, self.now_ns) {
                    Way::Known(place, hop) => (Ok(hop), place),
                    Way::Asked(place) => (Err(place), place),
                    Way::None => return Err(DropReason::NoRoute),
                }
            }
        };
        let interface = usize::from(next_hop.interface);
        let own = |host: &Host, address: IpAddr| host.is_own(address).then_some(address);
        let source = own(self.host, bound.ip())
            .or(planned_source)
            .or_else(|| reply.and_then(|(asked, _)| own(self.host, asked)))
            .or_else(|| self.host.source_for(interface, next_hop.address))
            .ok_or(DropReason::NoRoute)?;
        let mtu_bytes = self.host.mtu_to(destination.ip(), interface, self.now_ns);
        let payload_bytes_max = mtu_bytes - ip::header_bytes(source) - UDP_BYTES;
        let exit = Exit {
            source: SocketAddr::new(source, bound.port()),
            hop_limit: hop_limit.unwrap_or_else(|| self.host.hop_limit_to(destination.ip())),
            traffic_class,
            way,
            payload_bytes_max: payload_bytes_max.min(PAYLOAD_BYTES_MAX),
        };
        if reply.is_none() {
            self.last = Some((egress, destination, exit));
        }
        Ok(exit)
    }

    /// Posts a datagram whose payload is kept.
    fn post(&mut self, egress: PortId, destination: SocketAddr, exit: &Exit, payload: Kept) {
        let headers = exit.headers(destination, payload.sum);
        let Host { outbox, neighbours, .. } = &mut *self.host;
        match exit.way {
            Ok(hop) if outbox.post_datagram(hop, headers, payload, egress) => {
                self.turn.keeps_for(destination);
            }
            Ok(_) => self.lose(egress, DropReason::TxRefused),
            Err(place) => {
                let account = Account { port: egress, payload_bytes: payload.bytes() as u32 };
                let packet = outbox.assemble(&headers, payload);
                if let Some(lost) = neighbours.wait(place, packet, account) {
                    self.lose(lost.port, DropReason::NoNeighbour);
                }
            }
        }
    }

    /// Keeps one datagram that an app forwards; one that was received, once, however many it goes to.
    fn keep(
        &mut self,
        egress: PortId,
        bytes: &[u8],
        origin: Option<Origin>,
    ) -> Result<Kept, DropReason> {
        let Out { host: Host { outbox, .. }, turn, .. } = self;
        if let Some(Origin { frame, offset, .. }) = origin
            && let Some(kept) = turn.kept(frame)
        {
            return Ok(outbox.part(kept, offset, bytes.len()));
        }
        let sum = origin.map_or_else(|| udp::sum_of(bytes), |origin| turn.sum(&origin, bytes));
        let kept = outbox.keep_copy(bytes, sum)?;
        if let Some(counters) = self.ports.of(egress) {
            counters.copies += 1;
        }
        if let Some(Origin { frame, is_whole: true, .. }) = origin {
            turn.keep(frame, kept);
        }
        Ok(kept)
    }
}

impl DatagramOut for Out<'_> {
    fn forward(&mut self, datagram: &Datagram<'_>, egress: PortId, destination: SocketAddr) {
        let destination = ip::canonical(destination);
        let origin = self.origin_of(datagram);
        let (payload, segment_bytes) = (&datagram.payload[..], datagram.segment_bytes.max(1));
        let count = payload.len().div_ceil(segment_bytes).max(1);
        let exit = match self.exit(egress, destination) {
            Ok(exit) => exit,
            Err(reason) => return (0..count).for_each(|_| self.lose(egress, reason)),
        };
        for i in 0..count {
            let at = i * segment_bytes;
            let segment = &payload[at..payload.len().min(at + segment_bytes)];
            if segment.len() > exit.payload_bytes_max {
                self.lose(egress, DropReason::TxTooLong);
                continue;
            }
            let origin = origin.map(|whole| match count {
                1 => whole,
                _ => Origin {
                    at: whole.at + at,
                    offset: whole.offset + at,
                    is_whole: false,
                    sum: None,
                    ..whole
                },
            });
            if let (Some(origin), Ok(hop)) = (origin, exit.way)
                && let Some(way) = self.turn.way_for(&origin, count == 1, destination)
            {
                let headers = exit.headers(destination, self.turn.sum(&origin, segment));
                let payload = origin.at..origin.at + segment.len();
                self.turn.send(way, origin.frame, Leaving { hop, headers, payload, egress });
                continue;
            }
            match self.keep(egress, segment, origin) {
                Ok(kept) => self.post(egress, destination, &exit, kept),
                Err(reason) => self.lose(egress, reason),
            }
        }
    }

    fn send(
        &mut self,
        egress: PortId,
        destination: SocketAddr,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        let destination = ip::canonical(destination);
        let bytes_max = bytes_max.min(PAYLOAD_BYTES_MAX);
        let kept = self.exit(egress, destination).and_then(|exit| {
            let outbox = &mut self.host.outbox;
            if outbox.is_full() {
                return Err(DropReason::TxRefused);
            }
            Ok((exit, outbox.keep(bytes_max, exit.payload_bytes_max, write)?))
        });
        match kept {
            Ok((exit, kept)) => self.post(egress, destination, &exit, kept),
            Err(reason) => self.lose(egress, reason),
        }
    }
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
            past.merge(&self.host.counters);
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

    /// The first port carries besides its own what belongs to no port: frames that were for nobody,
    /// and the losses, passes, polls and waits of the lane below.
    fn counters(&mut self, port: PortId) -> Counters {
        let Some(owner) = self.ports.get(port) else { return Counters::default() };
        let mut counters = owner.counters.clone();
        if self.ports.ids().first() == Some(&port) {
            let told = self.host.outbox.told();
            merge_below(&mut counters, &self.host.counters, &mut self.lane, told);
        }
        counters
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
        Ok(self.ports.open(ready))
    }

    fn close_port(&mut self, port: PortId) -> Result<Counters, LaneError> {
        let closed = self.ports.close(port).ok_or_else(|| self.no_port(port))?;
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
                name: said(membership),
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

    /// Goes on without an interface that is gone, while there is another.
    fn lose(&mut self, error: LaneError) -> Result<(), LaneError> {
        let LaneError::Gone { name, .. } = &error else { return Err(error) };
        let Some(interface) = self.host.interface_named(name) else { return Err(error) };
        if self.host.outbox.lose(interface) {
            self.lane.give_up(PortId(interface.into()));
        }
        if self.host.outbox.has_lost_all() { Err(error) } else { Ok(()) }
    }

    /// What a membership means that a port is to have.
    fn heard(&self, port: &Port, membership: &Membership) -> Result<Heard, LaneError> {
        let heard = self.meant(port, membership)?;
        if port.is_member(heard) {
            return Err(LaneError::Refused {
                lane: self.lane.name().to_owned(),
                name: said(membership),
                why: "the port is a member already".to_owned(),
                hint: "leave it out".to_owned(),
            });
        }
        Ok(heard)
    }

    /// What a membership of a port means here.
    fn meant(&self, port: &Port, membership: &Membership) -> Result<Heard, LaneError> {
        let Membership { group, interface, source } = membership;
        let (lane, name) = (self.lane.name().to_owned(), said(membership));
        let refused = |why: &str, hint: &str| {
            let (lane, name) = (lane.clone(), name.clone());
            Err(LaneError::Refused { lane, name, why: why.to_owned(), hint: hint.to_owned() })
        };
        let v4 = port.bound.is_ipv4();
        if !group.is_multicast() {
            return refused("that is no group", "groups are 224.0.0.0/4 and ff00::/8");
        }
        if group.is_ipv4() != v4 || source.is_some_and(|source| source.is_ipv4() != v4) {
            let hint = format!("the port is at {}; open one of the other family", port.bound);
            return refused("it is of another family than the port", &hint);
        }
        if source.is_some_and(|source| source.is_multicast() || source.is_unspecified()) {
            return refused("a sender is one host", "name its address, or none for all");
        }
        if !port.bound.ip().is_multicast() && !port.bound.ip().is_unspecified() {
            let hint = "bind to the group, or to all addresses";
            return refused("a port at the address of one host receives no group", hint);
        }
        let by_name = interface.as_ref().map(|name| {
            self.host.interface_named(name).ok_or_else(|| LaneError::NotFound {
                lane: lane.clone(),
                what: "interface",
                name: name.clone(),
                hint: "a stack has the interfaces that its lane was opened with".to_owned(),
            })
        });
        let found = || self.host.interface_for(v4).unwrap_or(0) as u8;
        let interface = by_name.transpose()?.or(port.interface).unwrap_or_else(found);
        Ok((interface, *group, *source))
    }

    /// One more hears a group.
    fn enter(&mut self, heard: Heard, membership: &Membership) -> Result<(), LaneError> {
        let (interface, group, source) = heard;
        if self.host.members.len() >= self.groups_max {
            return Err(LaneError::Refused {
                lane: self.lane.name().to_owned(),
                name: said(membership),
                why: format!("{} groups are heard already", self.host.members.len()),
                hint: "leave some, or use more workers".to_owned(),
            });
        }
        if self.host.members.join(interface, group, source)
            && let Some(holder) = &mut self.holder
            && let Err(error) = holder.join(&named(&self.host, heard))
        {
            self.host.members.leave(interface, group, source);
            return Err(error);
        }
        Ok(())
    }

    /// One hears it no longer.
    fn exit(&mut self, heard: Heard) -> Result<(), LaneError> {
        let (interface, group, source) = heard;
        if self.host.members.leave(interface, group, source)
            && let Some(holder) = &mut self.holder
        {
            return holder.leave(&named(&self.host, heard));
        }
        Ok(())
    }

    /// Forgets all memberships of a port that is no more.
    fn exit_all(&mut self, port: &Port) {
        for heard in port.memberships() {
            // What the kernel does not let go of goes with the holder; nobody here hears it.
            let _ = self.exit(heard);
        }
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

/// What is heard, for those who know interfaces by name.
fn named(host: &Host, (interface, group, source): Heard) -> Membership {
    let interface = Some(host.interfaces[usize::from(interface)].name.clone());
    Membership { group, interface, source }
}

/// A group as people write it: `239.1.1.1 from 192.0.2.7 on eth1`.
fn said(membership: &Membership) -> String {
    let mut said = membership.group.to_string();
    if let Some(source) = membership.source {
        said += &format!(" from {source}");
    }
    if let Some(interface) = &membership.interface {
        said += &format!(" on {interface}");
    }
    said
}

/// Adds what no port of a stack has to the counters of its first one. Frames and bytes are left out:
/// the ports count datagrams, or bytes of streams; and of refusals, by interface, those that the ports were told of.
pub(crate) fn merge_below<L: FrameLane>(
    counters: &mut Counters,
    own: &Counters,
    lane: &mut L,
    told: &[u64],
) {
    counters.merge(own);
    for interface in 0..lane.ports() {
        let mut below = lane.counters(PortId(interface as u32));
        (below.rx_frames, below.rx_bytes, below.tx_frames, below.tx_bytes) = (0, 0, 0, 0);
        let refused = below.drops(DropReason::TxRefused);
        let told = told.get(interface).copied().unwrap_or(0);
        below.set_drops(DropReason::TxRefused, refused.saturating_sub(told));
        counters.merge(&below);
    }
}
