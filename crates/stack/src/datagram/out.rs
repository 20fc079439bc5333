//! What an app sends in a turn: the way out of a port, the headers, and the frame or the reason that there is none.

use super::{Arrival, PAYLOAD_BYTES_MAX};
use crate::{
    host::{Host, Way},
    ip::{self},
    neighbour::{Account, NeighbourKey},
    outbox::{Books, Hop, Kept},
    ports::Ports,
    turn::{Leaving, Origin, TurnState},
    udp::{self, Headers},
};
use laneway_core::{Datagram, DatagramOut, DropReason, PayloadKey, PortId};
use laneway_wire::UDP_BYTES;
use std::net::{IpAddr, SocketAddr};

/// What an app sends with.
pub(super) struct Out<'a> {
    pub(super) host: &'a mut Host,
    pub(super) ports: &'a mut Ports,
    pub(super) turn: &'a mut TurnState,
    /// The arrivals shown, as the app sees them, and the key whose tokens say which of them.
    pub(super) run: &'a [Arrival],
    pub(super) shown: &'a [Datagram<'a>],
    pub(super) key: &'a PayloadKey,
    /// The interface that received them.
    pub(super) interface: u8,
    /// The arrival that the app is probably at.
    pub(super) cursor: usize,
    /// The way found last, but for an answer: most apps send many datagrams through one port.
    pub(super) last: Option<(PortId, SocketAddr, Exit)>,
    pub(super) now_ns: u64,
}

/// A way out, found before anything is written.
#[derive(Clone, Copy)]
pub(super) struct Exit {
    pub(super) source: SocketAddr,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) way: Result<Hop, NeighbourKey>,
    pub(super) payload_bytes_max: usize,
}

impl Exit {
    pub(super) fn headers(&self, destination: SocketAddr, payload_sum: u16) -> Headers {
        let Exit { source, hop_limit, traffic_class, .. } = *self;
        Headers { source, destination, hop_limit, traffic_class, payload_sum }
    }
}

impl Out<'_> {
    pub(super) fn lose(&mut self, egress: PortId, reason: DropReason) {
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
    pub(super) fn answered(&mut self, destination: SocketAddr) -> Option<&Arrival> {
        let ahead = self.run.get(self.cursor..)?.iter().take(2);
        let step = ahead.into_iter().position(|arrival| arrival.source == destination)?;
        self.cursor += step;
        self.run.get(self.cursor)
    }

    /// The origin of the payload of `datagram`, if it is of the batch.
    pub(super) fn origin_of(&mut self, datagram: &Datagram<'_>) -> Option<Origin> {
        let (i, offset) = self.key.find(datagram.payload)?;
        let arrival = i as usize;
        self.cursor = arrival;
        let Arrival { frame, payload, sum, .. } = &self.run[arrival];
        let at = payload.start + offset;
        let is_whole = datagram.payload.len() == payload.len();
        Some(Origin { frame: *frame, arrival, at, offset, is_whole, whole_sum: *sum })
    }

    /// Finds the way from port `egress` to `destination`, or the reason why there is none.
    pub(super) fn exit(
        &mut self,
        egress: PortId,
        destination: SocketAddr,
    ) -> Result<Exit, DropReason> {
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

    pub(super) fn way_out(
        &mut self,
        egress: PortId,
        destination: SocketAddr,
    ) -> Result<Exit, DropReason> {
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
            // Back to its sender, no lookup.
            Some((_, mac)) => {
                let place = NeighbourKey { interface, address: destination.ip() };
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
    pub(super) fn post(
        &mut self,
        egress: PortId,
        destination: SocketAddr,
        exit: &Exit,
        payload: Kept,
    ) {
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

    /// Keeps one datagram that an app forwards. What was received is kept once, and whole, however many it or parts of
    /// it go to.
    pub(super) fn keep(
        &mut self,
        egress: PortId,
        bytes: &[u8],
        origin: Option<Origin>,
    ) -> Result<Kept, DropReason> {
        let Out { host: Host { outbox, .. }, turn, ports, shown, .. } = self;
        let mut keep_copy = |bytes: &[u8], sum| {
            let kept = outbox.keep_copy(bytes, sum)?;
            if let Some(counters) = ports.of(egress) {
                counters.copies += 1;
            }
            Ok(kept)
        };
        let Some(Origin { frame, arrival, offset, whole_sum, .. }) = origin else {
            return keep_copy(bytes, udp::sum_of(bytes));
        };
        let whole = match turn.kept(frame) {
            Some(kept) => kept,
            None => {
                let payload = &shown[arrival].payload;
                let sum = whole_sum.unwrap_or_else(|| turn.sum_of_whole(frame, payload));
                let kept = keep_copy(payload, sum)?;
                turn.keep(frame, kept);
                kept
            }
        };
        Ok(outbox.part(whole, offset, bytes.len()))
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
