//! Datagrams to multicast groups by hand: what a race of fan-out sends, on one lane, outside of a race.

use crate::fanout::filler;
use crate::generate::Replay;
use crate::result::GeneratorReport;
use crate::segment::SegmentPlan;
use crate::timetable::{Times, Timetable};
use crate::traffic::{PAYLOAD_BYTES, Replayable, Template};
use laneway_core::{App, Burst, CapsReport, Counters, Fill, FrameApp, PortId, Turn};
use laneway_engine::Control;
use laneway_netns::interface_state;
use laneway_registry::{Crew, LaneTable, Order, run_source};
use laneway_spec::LaneSpec;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// From the lane's opening to the first datagram.
const LEAD_NS: u64 = 1_000_000;
/// UDP port that datagrams are sent from where none is stated.
const SOURCE_PORT: u16 = 7_001;
/// Most groups, and datagrams of a burst, as in a race.
const GROUPS_MAX: u16 = 1_000;
const BURST_MAX: u32 = 256;
/// What their numbers can tell apart, as in a race.
const SEGMENT: u8 = 1;

/// What is sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cast {
    /// The first group and the UDP port of all.
    pub to: SocketAddrV4,
    /// How many groups, one address after the other; a burst is one group's.
    pub groups: u16,
    /// Where from; the interface's first address if not given.
    pub from: Option<SocketAddrV4>,
    /// Payload, bytes: a number of 6 bytes, its complement, and what their places say.
    pub payload_bytes: u16,
    /// Datagrams per second.
    pub per_second: f64,
    /// Datagrams that are due at once.
    pub burst: u32,
    /// Bursts come as a Poisson process of this seed, and not at a constant rate.
    pub poisson: Option<u64>,
    /// Time to live.
    pub hop_limit: u8,
    /// How long.
    pub length: Duration,
}

/// Where it leaves.
#[derive(Clone, Copy, Debug)]
pub struct Outlet<'a> {
    /// The lane.
    pub lane: &'a LaneSpec,
    /// Its interface.
    pub interface: &'a str,
    /// CPU of the sender.
    pub cpu: Option<usize>,
    /// An interface with a default route is used as well.
    pub force: bool,
}

/// Its outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Sent {
    /// The schedule, and how it was kept.
    pub generator: GeneratorReport,
    /// What the lane counted.
    pub lane: Counters,
    /// Where datagrams were sent from.
    pub from: SocketAddrV4,
}

impl Cast {
    fn check(&self) -> Result<(), String> {
        let last = self.to.ip().to_bits().checked_add(u32::from(self.groups).saturating_sub(1));
        let are_groups = |bits: u32| Ipv4Addr::from_bits(bits).is_multicast();
        if !(1..=GROUPS_MAX).contains(&self.groups) {
            return Err(format!("{} groups: use 1 to {GROUPS_MAX}", self.groups));
        }
        if !self.to.ip().is_multicast() || !last.is_some_and(are_groups) {
            return Err(format!(
                "{} with {} groups: use addresses from 224.0.0.0 to 239.255.255.255, such as 239.1.1.1",
                self.to, self.groups
            ));
        }
        if !PAYLOAD_BYTES.contains(&self.payload_bytes) {
            let (least, most) = (PAYLOAD_BYTES.start(), PAYLOAD_BYTES.end());
            return Err(format!("{} bytes of payload: use {least} to {most}", self.payload_bytes));
        }
        if !(1..=BURST_MAX).contains(&self.burst) {
            return Err(format!("bursts of {}: use 1 to {BURST_MAX}", self.burst));
        }
        if self.hop_limit == 0 {
            return Err("a time to live of 0: nothing would leave; use 1 to 255".to_owned());
        }
        let datagrams = self.per_second * self.length.as_secs_f64();
        if !(1.0..f64::from(u32::MAX)).contains(&datagrams) {
            return Err(format!(
                "{datagrams:.1} datagrams at {}/s in {:?}: use a rate and a time that make 1 to 4,000,000,000",
                self.per_second, self.length
            ));
        }
        Ok(())
    }

    /// The sender: the address, and the hardware address.
    fn source(&self, interface: &str) -> Result<(SocketAddrV4, [u8; 6]), String> {
        let state = interface_state(interface).map_err(|error| error.to_string())?;
        let own = state.addresses.iter().find_map(|cidr| match cidr.address() {
            IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, SOURCE_PORT)),
            IpAddr::V6(_) => None,
        });
        let from = self.from.or(own).ok_or_else(|| {
            format!("{interface} has no IPv4 address: say where datagrams come from with --from ADDR:PORT")
        })?;
        Ok((from, state.mac.0))
    }

    fn templates(&self, from: SocketAddrV4, mac: [u8; 6]) -> Vec<Template> {
        let payload = filler(self.payload_bytes);
        let first = self.to.ip().to_bits();
        let to = |at| SocketAddrV4::new(Ipv4Addr::from_bits(first + at), self.to.port());
        let template = |at| Template::group(&payload, from, to(at)).sent_by(mac, self.hop_limit);
        (0..u32::from(self.groups)).map(template).collect()
    }

    fn schedule(&self) -> SegmentPlan {
        let bursts = self.per_second * self.length.as_secs_f64() / f64::from(self.burst);
        let frames = (bursts.ceil() as u32).max(1).saturating_mul(self.burst);
        let interval_ns = (f64::from(self.burst) * 1e9 / self.per_second) as u64;
        let interval_ns = interval_ns.max(1);
        SegmentPlan { segment: SEGMENT, t0_ns: 0, frames, interval_ns, burst: self.burst, entry: 0 }
    }

    /// Sends it, until it is all sent or `control` says stop; `opened` is called when the lane is open.
    ///
    /// # Errors
    /// A sentence: a value that cannot be, a lane that cannot be opened or fails.
    pub fn send<L: LaneTable>(
        &self,
        outlet: Outlet<'_>,
        control: &Control,
        opened: impl FnOnce(&CapsReport),
    ) -> Result<Sent, String> {
        self.check()?;
        let (from, mac) = self.source(outlet.interface)?;
        let times = self.poisson.map_or(Times::Steady, |seed| Times::Poisson { seed });
        let times = Timetable::of(&times).map_err(|error| error.to_string())?;
        let templates = self.templates(from, mac);
        let traffic = Replayable { run: self.burst, times, ..Replayable::of(templates) };
        let mut source = Source {
            traffic: &traffic,
            plan: self.schedule(),
            replay: None,
            counters: Counters::default(),
        };
        let order = Order {
            spec: outlet.lane,
            interfaces: &[outlet.interface],
            force: outlet.force,
            crew: Crew::Here { control, cpu: outlet.cpu },
        };
        let ran = run_source::<_, L>(&mut source, order, opened).map_err(|error| error.to_string());
        let (report, failure) = ran?;
        if let Some(error) = failure {
            return Err(error.to_string());
        }
        let lane = report.counters();
        let generator = source.replay.map(|replay| replay.report(&lane)).unwrap_or_default();
        Ok(Sent { generator, lane, from })
    }
}

/// A replay that begins when its lane is open.
struct Source<'a> {
    traffic: &'a Replayable,
    plan: SegmentPlan,
    replay: Option<Replay<'a>>,
    counters: Counters,
}

impl App for Source<'_> {
    fn wants_stop(&self) -> bool {
        self.replay.as_ref().is_some_and(App::wants_stop)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for Source<'_> {
    fn on_burst(&mut self, _port: PortId, _burst: &mut Burst, _turn: Turn) {
        // What comes in on the interface is of no interest; every verdict stays at drop.
    }

    fn fill(&mut self, port: PortId, burst: &mut Burst, turn: Turn) -> Fill {
        let Source { traffic, plan, replay, .. } = self;
        let begun = replay.get_or_insert_with(|| {
            let plan = SegmentPlan { t0_ns: turn.now_ns + LEAD_NS, ..*plan };
            Replay::new(traffic, [0; 6], plan)
        });
        begun.fill(port, burst, turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_wire::checksum;

    fn cast() -> Cast {
        Cast {
            to: "239.1.1.250:5000".parse().unwrap(),
            groups: 8,
            from: None,
            payload_bytes: 100,
            per_second: 1_000.0,
            burst: 16,
            poisson: None,
            hop_limit: 3,
            length: Duration::from_secs(2),
        }
    }

    #[test]
    fn groups_follow_one_another_and_a_schedule_is_whole_bursts() {
        let cast = cast();
        cast.check().unwrap();
        let from = "10.0.0.1:7001".parse().unwrap();
        let templates = cast.templates(from, [2, 0, 0, 0, 0, 9]);
        let groups: Vec<&[u8]> = templates.iter().map(|it| &it.frame[30..34]).collect();
        assert_eq!((groups[0], groups[7]), (&[239, 1, 1, 250][..], &[239, 1, 2, 1][..]));
        for template in &templates {
            assert_eq!((template.frame[22], &template.frame[6..12]), (3, &[2, 0, 0, 0, 0, 9][..]));
            assert_eq!(checksum::of(&template.frame[14..34]), 0);
        }
        assert_eq!(templates[7].destination, Some([1, 0, 0x5e, 1, 2, 1]));
        let plan = cast.schedule();
        assert_eq!((plan.frames, plan.interval_ns, plan.burst), (2_000, 16_000_000, 16));
    }

    #[test]
    fn what_cannot_be_sent_is_reported_with_its_value() {
        let refused = |change: fn(&mut Cast)| {
            let mut cast = cast();
            change(&mut cast);
            cast.check().unwrap_err()
        };
        for (why, part) in [
            (refused(|c| c.groups = 0), "0 groups"),
            (refused(|c| c.groups = 1_001), "1 to 1000"),
            (refused(|c| c.to = "10.0.0.1:5".parse().unwrap()), "10.0.0.1:5"),
            (refused(|c| c.to = "239.255.255.255:5".parse().unwrap()), "239.255.255.255"),
            (refused(|c| c.payload_bytes = 17), "18 to 1472"),
            (refused(|c| c.burst = 257), "1 to 256"),
            (refused(|c| c.hop_limit = 0), "use 1 to 255"),
            (refused(|c| c.per_second = 0.1), "0.2 datagrams"),
            (refused(|c| c.per_second = 1e10), "1 to 4,000,000,000"),
        ] {
            assert!(why.contains(part), "{why}");
        }
    }
}
