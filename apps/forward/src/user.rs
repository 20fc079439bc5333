//! The user-space placement: a frame app.
//!
//! ```text
//!   frame ─▶ fields ─▶ rules ──(decided)──────────────▶ write back ─▶ verdict
//!                        └──(nothing decided)─▶ mode ─▶ write back ─▶ verdict
//! ```
//! Modes that need no field skip the first two steps on ports without rules. A frame that a rule or the
//! router drops is not written to. Several workers of a run share configuration, routes and stations;
//! rules, counters and what became of the frames are each worker's own, and added up by the console.

use crate::{
    bridge::Stations,
    config::{Config, Mode},
    config_error::ConfigError,
    decide::Decision,
    edit::{ipv4_checksum_fits, write_back},
    fate::{Fate, Stats},
    fields::{Fields, Parsed, at, has},
    live::StatsSlot,
    routes::Routes,
    rules::RuleFeed,
    table::SIDE_BY_SIDE,
    tuple::Found,
};
use laneway_core::{App, Burst, Counters, FrameApp, PortId, PortMask, Turn, Verdict};
use laneway_wire::{ETHERNET_BYTES, Mac, ether_type};
use std::{ops::Range, sync::Arc};

/// The forwarder over frames: what one worker of a run does.
pub struct Forward {
    common: Arc<Common>,
    rules: Option<RuleFeed>,
    stats: Stats,
    /// Mode `l2`: stations that were not learned for want of a place.
    unlearned: u64,
    live: Option<StatsSlot>,
    counters: Counters,
    /// Of a part of a burst; kept for its memory.
    looked_up: Vec<(Parsed, Found)>,
}

/// What the workers of a run share. Only the stations change, and they without waiting.
struct Common {
    config: Config,
    routes: Option<Routes>,
    stations: Option<Stations>,
    /// By port.
    partners: Vec<PortId>,
}

impl Forward {
    /// A forwarder without rules.
    ///
    /// # Errors
    /// [`ConfigError`] with the value and what to try.
    pub fn new(config: Config) -> Result<Forward, ConfigError> {
        let routes = config.tables()?;
        let partners = (0..config.ports as u32).map(|port| config.partner(PortId(port))).collect();
        let stations = (config.mode == Mode::L2)
            .then(|| Stations::new(config.stations_max, config.age_ns, config.hash_seed));
        Ok(Forward::of(Arc::new(Common { config, routes, stations, partners })))
    }

    /// One more worker of the same run: what one learns, both know. It has no rules and no slot yet.
    #[must_use]
    pub fn beside(&self) -> Forward {
        Forward::of(Arc::clone(&self.common))
    }

    fn of(common: Arc<Common>) -> Forward {
        Forward {
            common,
            rules: None,
            stats: Stats::default(),
            unlearned: 0,
            live: None,
            counters: Counters::default(),
            looked_up: Vec::with_capacity(SIDE_BY_SIDE),
        }
    }

    /// With the rules of this feed, and whatever its set commits later.
    #[must_use]
    pub fn with_rules(mut self, rules: RuleFeed) -> Forward {
        self.rules = Some(rules);
        self
    }

    /// Says at its ticks what became of the frames.
    #[must_use]
    pub fn with_live(mut self, live: StatsSlot) -> Forward {
        self.live = Some(live);
        self
    }

    /// What became of the frames.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Mode `l2`: times a station was not learned because its place in the table was taken.
    pub fn unlearned(&self) -> u64 {
        self.unlearned
    }

    /// Decides on a frame and edits it; the port is where it is to leave, if it was forwarded. Under rules
    /// its fields are known, and its first match.
    fn decide(
        &mut self,
        port: PortId,
        frame: &mut [u8],
        bytes: u64,
        looked_up: Option<&(Parsed, Found)>,
        now_ns: u64,
    ) -> (Fate, PortId) {
        let needs_fields = matches!(self.common.config.mode, Mode::L3 | Mode::FiveTupleSwap);
        if looked_up.is_none() && !needs_fields {
            return self.by_mode(port, frame, None, now_ns);
        }
        let before = looked_up.map_or_else(|| Parsed::of(frame), |(parsed, _)| *parsed);
        let mut now = before.fields;
        let decision = match (&self.rules, looked_up) {
            (Some(rules), Some((_, first))) => {
                rules.decide_from(port.index(), *first, &mut now, bytes)
            }
            _ => Decision::default(),
        };
        if let Some(queue) = decision.queue {
            self.stats.queue_frames[usize::from(queue)] += 1;
        }
        if let Some(fate) = decision.fate {
            if fate == Fate::Forwarded {
                write_back(frame, &before, &now);
            }
            return (fate, PortId(decision.port.into()));
        }
        if self.common.config.mode == Mode::L3 {
            let (fate, egress) = self.route(port, frame, &before, &mut now);
            if matches!(fate, Fate::Forwarded | Fate::Passed) {
                write_back(frame, &before, &now);
            }
            return (fate, egress);
        }
        write_back(frame, &before, &now);
        self.by_mode(port, frame, Some(&before), now_ns)
    }

    /// The fields and the first match of each of these frames; nothing where there are no rules.
    fn look_up(
        &self,
        port: PortId,
        burst: &Burst,
        part: Range<usize>,
        looked_up: &mut Vec<(Parsed, Found)>,
    ) {
        looked_up.clear();
        let rules = self.rules.as_ref().filter(|rules| !rules.is_empty(port.index()));
        let Some(rules) = rules else { return };
        looked_up.extend(part.map(|i| (Parsed::of(burst.frame(i).bytes), Found::NONE)));
        let mut found = [Found::NONE; SIDE_BY_SIDE];
        let found = &mut found[..looked_up.len()];
        rules.find_first(port.index(), |i| &looked_up[i].0.fields, found);
        looked_up.iter_mut().zip(found).for_each(|((_, to), found)| *to = *found);
    }

    /// Counts a frame, decides on it, and sets its verdict.
    fn settle(
        &mut self,
        port: PortId,
        burst: &mut Burst,
        i: usize,
        looked_up: Option<&(Parsed, Found)>,
        turn: Turn,
    ) {
        let tails: usize = burst.tails(i).map(<[u8]>::len).sum();
        let mut frame = burst.frame_mut(i);
        let bytes = frame.bytes_mut();
        let captured = (bytes.len() + tails) as u64;
        self.counters.rx_frames += 1;
        self.counters.rx_bytes += captured;
        let (fate, egress) = self.decide(port, bytes, captured, looked_up, turn.now_ns);
        self.stats.count(fate);
        match fate.drop_reason() {
            Some(reason) => self.counters.drop_one(reason),
            None => self.counters.passed += u64::from(fate == Fate::Passed),
        }
        let ports = self.common.config.ports;
        let verdict = match fate {
            Fate::Forwarded if egress == port => Verdict::Tx,
            Fate::Forwarded => Verdict::TxTo(egress),
            Fate::Flooded => Verdict::Fanout(PortMask::all_but(ports, port)),
            Fate::Passed => Verdict::Pass,
            _ => Verdict::Drop,
        };
        burst.set_verdict(i, verdict);
    }

    /// Every mode but `l3`.
    fn by_mode(
        &mut self,
        port: PortId,
        frame: &mut [u8],
        parsed: Option<&Parsed>,
        now_ns: u64,
    ) -> (Fate, PortId) {
        let partner = self.common.partners.get(port.index()).copied().unwrap_or(port);
        match self.common.config.mode {
            Mode::Drop => return (Fate::Consumed, port),
            Mode::Io => return (Fate::Forwarded, partner),
            _ => {}
        }
        let Some(header) = frame.first_chunk_mut::<ETHERNET_BYTES>() else {
            return (Fate::Malformed, port);
        };
        match self.common.config.mode {
            Mode::Mac => {
                header[..6].copy_from_slice(&self.common.config.peer_mac(partner.index()));
                header[6..12].copy_from_slice(&self.common.config.own_mac(partner.index()));
            }
            Mode::L2 => return self.bridge(port, frame, now_ns),
            _ => {
                let (destination, source) = header[..12].split_at_mut(6);
                destination.swap_with_slice(source);
                if let Some(parsed) = parsed
                    && self.common.config.mode == Mode::FiveTupleSwap
                {
                    swap_addresses(frame, parsed);
                }
            }
        }
        (Fate::Forwarded, partner)
    }

    fn bridge(&mut self, port: PortId, frame: &[u8], now_ns: u64) -> (Fate, PortId) {
        let stations = self.common.stations.as_ref().expect("mode l2 has a table");
        let mac = |from: usize| -> Mac {
            let mut mac = [0; 6];
            mac.copy_from_slice(&frame[from..from + 6]);
            mac
        };
        let (destination, source) = (mac(0), mac(6));
        let kind = u16::from_be_bytes([frame[12], frame[13]]);
        let vlan = match frame.get(14..16) {
            Some(&[a, b]) if laneway_wire::is_vlan_type(kind) => u16::from_be_bytes([a, b]),
            _ => 0,
        };
        self.unlearned += u64::from(!stations.learn(vlan, source, port, now_ns));
        // IEEE 802.1D 7.12.6: these end at every bridge.
        if destination[..5] == [0x01, 0x80, 0xc2, 0, 0] && destination[5] < 0x10 {
            return (Fate::Passed, port);
        }
        let known = match destination[0] & 1 {
            1 => None,
            _ => stations.find(vlan, destination, now_ns),
        };
        match known {
            Some(there) if there == port => (Fate::NotForUs, port),
            Some(there) => (Fate::Forwarded, there),
            None if self.common.config.ports < 2 => (Fate::NoPort, port),
            None => (Fate::Flooded, port),
        }
    }

    /// Mode `l3`. Changes the fields; the caller writes them back.
    fn route(
        &self,
        port: PortId,
        frame: &[u8],
        before: &Parsed,
        now: &mut Fields,
    ) -> (Fate, PortId) {
        let gone = |fate: Fate| (fate, port);
        if !now.has(has::ETH) {
            return gone(Fate::Malformed);
        }
        if now.u8(at::ETH_DST) & 1 == 1 {
            return gone(Fate::Passed);
        }
        let own = self.common.config.own.get(port.index());
        if own.is_some_and(|own| now.bytes(at::ETH_DST, 6) != own) {
            return gone(Fate::NotForUs);
        }
        let is_v4 = match now.u16(at::ETH_TYPE) {
            ether_type::IPV4 => true,
            ether_type::IPV6 => false,
            _ => return gone(Fate::Passed),
        };
        if !now.has(if is_v4 { has::IPV4 } else { has::IPV6 }) {
            return gone(Fate::Malformed);
        }
        if is_v4 && !ipv4_checksum_fits(frame, before) {
            return gone(Fate::BadChecksum);
        }
        let address = now.destination();
        let [a, b, ..] = address.to_be_bytes();
        // Multicast, reserved and broadcast; multicast and link-local: never routed.
        if if is_v4 { a >= 224 } else { a == 0xff || (a == 0xfe && b & 0xc0 == 0x80) } {
            return gone(Fate::Passed);
        }
        let ttl = now.u8(at::TTL);
        if ttl <= 1 {
            return gone(Fate::TtlExpired);
        }
        let routes = self.common.routes.as_ref().expect("mode l3 has routes");
        let Some(hop) = routes.find(is_v4, address) else { return gone(Fate::NoRoute) };
        let Some(mac) = routes.mac(hop, is_v4, address) else { return gone(Fate::NoNeighbour) };
        now.set(at::TTL, &[ttl - 1]);
        now.set(at::ETH_DST, &mac);
        now.set(at::ETH_SRC, &self.common.config.own_mac(hop.port.index()));
        (Fate::Forwarded, hop.port)
    }
}

/// Exchanges IP addresses and ports; no sum changes by that.
fn swap_addresses(frame: &mut [u8], parsed: &Parsed) {
    let fields = &parsed.fields;
    let (from, bytes) = match (fields.has(has::IPV4), fields.has(has::IPV6)) {
        (true, _) => (parsed.l3 + 12, 4),
        (_, true) => (parsed.l3 + 8, 16),
        _ => return,
    };
    let mut swap = |from: usize, bytes: usize| {
        if let Some(both) = frame.get_mut(from..from + 2 * bytes) {
            let (source, destination) = both.split_at_mut(bytes);
            source.swap_with_slice(destination);
        }
    };
    swap(from, bytes);
    if fields.has(has::TCP | has::UDP) {
        swap(parsed.l4, 2);
    }
}

impl App for Forward {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Forward {
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn) {
        if let Some(rules) = &mut self.rules {
            rules.take();
        }
        let mut looked_up = std::mem::take(&mut self.looked_up);
        for first in (0..burst.len()).step_by(SIDE_BY_SIDE) {
            let part = first..burst.len().min(first + SIDE_BY_SIDE);
            self.look_up(port, burst, part.clone(), &mut looked_up);
            for i in part {
                self.settle(port, burst, i, looked_up.get(i - first), turn);
            }
        }
        self.looked_up = looked_up;
    }

    fn on_tick(&mut self, _turn: Turn) {
        if let Some(rules) = &mut self.rules {
            rules.take();
        }
        if let Some(live) = &self.live {
            live.publish(&self.stats);
        }
    }
}
