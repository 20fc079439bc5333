//! Generator and far end in one, for a wire that nothing of the kernel's reaches: frames go in by one
//! port of a lane, and what the arm sends on is ticked off at the other.
//!
//! ```text
//!   port 0   a frame now and then ──(one arrived at port 1)──▶ segments, each on its schedule
//!   port 1   every frame ticked off by its number, for the segment under way
//! ```
//!
//! Assumes that the other ends of both ports are the arm's. What must always hold: no segment is sent
//! before a frame has come through, so every frame that port 0 refuses from then on found no room; every frame
//! that comes counts once, as what it is. What it does not do: it says nothing of the lane's counters,
//! which its caller has.

use super::Replay;
use super::replay::fill_frame;
use crate::arrivals::Arrived;
use crate::result::GeneratorReport;
use crate::round_trips::RoundTrips;
use crate::segment::SegmentPlan;
use crate::tally::{TallyOrder, Ticks};
use crate::traffic::{Payload, Replayable, numbered, split_number};
use laneway_core::{App, Burst, Counters, Fill, FrameApp, PortId, Turn};
use std::sync::mpsc::{Receiver, Sender};

/// The port that frames go in by.
const ENTRY: PortId = PortId(0);
/// The segment of the frames that show whether one comes through; no real one has this number.
const OPENING: u8 = 0;
/// Between two of those, and between two looks for a segment to send.
const PAUSE_NS: u64 = 1_000_000;

/// What it reports to its caller.
#[derive(Clone, Debug)]
pub(crate) enum FarEndMessage {
    /// A frame has come through: segments can be sent.
    Through,
    /// The last frame of a segment has left, or was refused.
    Sent(GeneratorReport),
    /// The outcome of the segment under way, and how long sampled frames of it took since they were due; the answer to
    /// [`TallyOrder::Report`].
    Arrived(Arrived, RoundTrips),
}

/// The app.
pub(crate) struct BothEnds<'a> {
    traffic: &'a Replayable,
    destination: [u8; 6],
    /// Where in a frame its number lies, bytes from its start.
    number_at: usize,
    orders: Receiver<TallyOrder>,
    says: Sender<FarEndMessage>,
    is_through: bool,
    sending: Option<Replay<'a>>,
    under_way: Option<Ticks>,
    /// Of its sampled frames, since they were due.
    trips: RoundTrips,
    counters: Counters,
}

impl<'a> BothEnds<'a> {
    /// Sends `traffic` to `destination`, with each frame's number at byte `number_at`, as `orders` says.
    pub(crate) fn new(
        traffic: &'a Replayable,
        destination: [u8; 6],
        number_at: u16,
        orders: Receiver<TallyOrder>,
        says: Sender<FarEndMessage>,
    ) -> BothEnds<'a> {
        BothEnds {
            traffic,
            destination,
            number_at: usize::from(number_at),
            orders,
            says,
            is_through: false,
            sending: None,
            under_way: None,
            trips: RoundTrips::default(),
            counters: Counters::default(),
        }
    }

    fn send(&self, message: FarEndMessage) {
        // Nothing listens any more when the race is ending.
        let _ = self.says.send(message);
    }

    /// Ticks off what the arm sends on: segment and number, where it had one.
    #[inline]
    fn take(&mut self, number: Option<(u8, u32)>, now_ns: u64) {
        match (&mut self.under_way, number) {
            (Some(ticks), Some((segment, number))) if segment == ticks.seen.segment => {
                if ticks.tick_off(number) {
                    ticks.seen.stamp(now_ns);
                    let due_ns = self.traffic.times.due_ns(ticks.plan(), number);
                    self.trips.record(now_ns.saturating_sub(due_ns));
                }
            }
            // No kernel speaks here of its own accord, so a frame without a number is foreign, too.
            (Some(ticks), _) => ticks.seen.foreign += 1,
            (None, Some((OPENING, _))) if !self.is_through => {
                self.is_through = true;
                self.send(FarEndMessage::Through);
            }
            // The other frames that showed it.
            (None, _) => {}
        }
    }

    fn arrived(&self) -> Arrived {
        self.under_way.as_ref().map_or_else(Arrived::default, |Ticks { seen, .. }| Arrived {
            distinct: seen.delivered,
            duplicates: seen.duplicates,
            reordered: seen.reordered,
            foreign: seen.foreign,
            strangers: 0,
            first_ns: seen.first_ns,
            last_ns: seen.last_ns,
        })
    }
}

impl App for BothEnds<'_> {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for BothEnds<'_> {
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn) {
        for i in 0..burst.len() {
            let bytes = burst.frame(i).bytes.get(self.number_at..).unwrap_or_default();
            let number = match numbered(bytes) {
                Some(Payload::Number(number)) if port != ENTRY => Some(split_number(number)),
                // A frame that returned where it went in was not forwarded.
                _ => None,
            };
            self.take(number, turn.now_ns);
        }
    }

    fn fill(&mut self, port: PortId, burst: &mut Burst, turn: Turn) -> Fill {
        if port != ENTRY {
            return Fill::Never;
        }
        if let Some(replay) = &mut self.sending {
            let next = replay.fill(port, burst, turn);
            if next != Fill::Done {
                return next;
            }
            // What was refused is the ring's count: the arm had no room for it.
            let report = replay.report(&Counters::default());
            self.sending = None;
            self.send(FarEndMessage::Sent(report));
        } else if !self.is_through && !burst.is_empty() {
            fill_frame(self.traffic, &mut burst.frame_mut(0), self.destination, OPENING, 0);
        }
        Fill::At(turn.now_ns + PAUSE_NS)
    }

    fn on_tick(&mut self, _turn: Turn) {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                TallyOrder::Segment(plan) => self.begin(plan),
                TallyOrder::Report => {
                    self.send(FarEndMessage::Arrived(self.arrived(), self.trips.clone()))
                }
            }
        }
    }
}

impl BothEnds<'_> {
    fn begin(&mut self, plan: SegmentPlan) {
        self.sending = Some(Replay::new(self.traffic, self.destination, plan));
        self.under_way = Some(Ticks::of(plan));
        self.trips = RoundTrips::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{NUMBER_IN_MAC_AT, Template};
    use laneway_core::FrameLane;
    use laneway_sim::{SimLane, SimWorld};
    use std::sync::mpsc;

    const EXIT: PortId = PortId(1);
    const FRAME_BYTES: usize = 60;
    const ROOM: usize = 8;

    fn traffic() -> Replayable {
        Replayable::of(vec![Template::new(&[0; FRAME_BYTES])])
    }

    fn plan(segment: u8) -> SegmentPlan {
        SegmentPlan { segment, t0_ns: 1_000, frames: 6, interval_ns: 100, burst: 3, entry: 0 }
    }

    /// Both ends on a simulated wire, whose far side is the test, as the arm.
    struct Bench<'a> {
        app: BothEnds<'a>,
        lane: SimLane,
        world: SimWorld,
        orders: Sender<TallyOrder>,
        messages: Receiver<FarEndMessage>,
    }

    impl<'a> Bench<'a> {
        fn new(traffic: &'a Replayable) -> Bench<'a> {
            let (sender, orders) = mpsc::channel();
            let (says, messages) = mpsc::channel();
            let app = BothEnds::new(traffic, [2; 6], NUMBER_IN_MAC_AT, orders, says);
            let (lane, world) = SimLane::open(&"sim".parse().unwrap(), 2).unwrap();
            Bench { app, lane, world, orders: sender, messages }
        }

        /// One that a frame has come through.
        fn open(traffic: &'a Replayable) -> Bench<'a> {
            let mut bench = Bench::new(traffic);
            let (sent, _) = bench.fill(0);
            bench.comes(EXIT, &sent, 0);
            assert!(matches!(bench.messages.try_recv(), Ok(FarEndMessage::Through)));
            bench
        }

        fn begin(&mut self, plan: SegmentPlan) {
            self.orders.send(TallyOrder::Segment(plan)).unwrap();
            self.app.on_tick(Turn::default());
        }

        /// What it sends when asked at this time, and when it wants to be asked again.
        fn fill(&mut self, now_ns: u64) -> (Vec<Vec<u8>>, Fill) {
            let burst = self.lane.lend(ENTRY, ROOM).unwrap();
            let next = self.app.fill(ENTRY, burst, Turn { now_ns });
            self.lane.settle(ENTRY).unwrap();
            let sent = self.world.collect(ENTRY).into_iter().map(|arrival| arrival.bytes);
            (sent.collect(), next)
        }

        fn comes(&mut self, port: PortId, frames: &[Vec<u8>], now_ns: u64) {
            frames.iter().for_each(|frame| self.world.inject(port, frame));
            let burst = self.lane.receive(port).unwrap();
            assert_eq!(burst.len(), frames.len());
            self.app.on_burst(port, burst, Turn { now_ns });
            self.lane.settle(port).unwrap();
            assert!(self.world.collect(port).is_empty(), "nothing is sent back");
        }

        fn arrived(&mut self) -> Arrived {
            self.orders.send(TallyOrder::Report).unwrap();
            self.app.on_tick(Turn::default());
            match self.messages.try_recv() {
                Ok(FarEndMessage::Arrived(arrived, _)) => arrived,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn nothing_is_sent_but_a_frame_now_and_then_until_one_has_come_through() {
        let traffic = traffic();
        let mut bench = Bench::new(&traffic);
        let (first, next) = bench.fill(5);
        assert_eq!((first.len(), next), (1, Fill::At(5 + PAUSE_NS)));
        assert!(bench.messages.try_recv().is_err(), "it only left");
        let (second, _) = bench.fill(5 + PAUSE_NS);
        bench.comes(ENTRY, &second, 6);
        assert!(bench.messages.try_recv().is_err(), "it returned where it went in");
        bench.comes(EXIT, &[first, second].concat(), 7);
        assert!(matches!(bench.messages.try_recv(), Ok(FarEndMessage::Through)));
        assert!(bench.messages.try_recv().is_err(), "once is enough");
        assert_eq!(bench.fill(9), (Vec::new(), Fill::At(9 + PAUSE_NS)));
    }

    #[test]
    fn a_segment_goes_in_on_its_schedule_and_ends_when_the_last_frame_has_left() {
        let traffic = traffic();
        let mut bench = Bench::open(&traffic);
        bench.begin(plan(3));
        assert_eq!(bench.fill(999), (Vec::new(), Fill::At(1_000)));
        assert_eq!(bench.fill(1_000).0.len(), 3, "no more than the burst that is due");
        assert_eq!(bench.fill(1_050), (Vec::new(), Fill::At(1_100)));
        let (late, _) = bench.fill(1_140);
        assert_eq!(numbered(&late[2][6..]), Some(Payload::Number(3 << 32 | 5)));
        assert!(bench.messages.try_recv().is_err(), "the lane still has them");
        bench.fill(1_150);
        let Ok(FarEndMessage::Sent(report)) = bench.messages.try_recv() else {
            panic!("it is sent")
        };
        assert_eq!((report.sent, report.refused, report.late_max_ns), (6, 0, 40));
        assert_eq!(bench.fill(2_000), (Vec::new(), Fill::At(2_000 + PAUSE_NS)));
    }

    #[test]
    fn every_frame_counts_once_and_the_rest_is_named() {
        let traffic = traffic();
        let mut bench = Bench::open(&traffic);
        bench.begin(plan(3));
        let sent = [bench.fill(1_000).0, bench.fill(1_100).0].concat();
        bench.comes(EXIT, &[0, 2, 1, 2, 4].map(|i| sent[i].clone()), 1_200);
        bench.comes(ENTRY, &sent[5..], 1_200);
        bench.comes(EXIT, &[vec![0; FRAME_BYTES], vec![0; 14]], 1_200);
        let Arrived { distinct, duplicates, reordered, foreign, first_ns, .. } = bench.arrived();
        assert_eq!((distinct, duplicates, reordered, foreign), (4, 1, 1, 3));
        assert_eq!(first_ns, 1_200);
        // Of those number 0 alone is sampled, which was due at 1,000.
        let took = bench.app.trips.figures().summary;
        assert_eq!((took.n, took.min_ns, took.max_ns), (1, Some(200), Some(200)));
    }

    #[test]
    fn what_comes_late_from_another_segment_is_foreign_to_the_next() {
        let traffic = traffic();
        let mut bench = Bench::open(&traffic);
        bench.begin(plan(3));
        let late = bench.fill(1_000).0;
        bench.comes(EXIT, &late[..1], 1_010);
        bench.begin(plan(4));
        assert_eq!(bench.arrived(), Arrived::default());
        bench.comes(EXIT, &late[1..], 1_020);
        assert_eq!((bench.arrived().distinct, bench.arrived().foreign), (0, 2));
    }
}
