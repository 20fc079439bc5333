//! The lab's own apps, each of them for frames and for datagrams: small enough that what a race of
//! them compares is the lanes.
//!
//! [`Count`] drops every packet; [`Bounce`] sends it back, [`Across`] on and [`Flood`] everywhere. The lab ticks each
//! off in front of the app ([`Eye`]), by the number in its payload, so both shapes do the same work. Frames that carry
//! no number are counted as foreign; wake-up probes are stamped. They assume traffic made by [`crate::traffic`] (no
//! VLAN tag, no IP options); a time is that of the burst, read once by the engine, so there is no scope `app only`.

use crate::tally::{SAMPLE, Tally};
use crate::traffic::{PAYLOAD_AT, Payload, numbered};
use laneway_core::{
    App, Burst, Clock, Counters, Datagram, DatagramApp, DatagramOut, FrameApp, LaneError, PortId,
    PortMask, Turn, Verdict,
};
use laneway_engine::MonotonicClock;
use laneway_kinds::{
    Account, AppCommand, AppFacts, AppKind, ArmPlace, Asks, Conclude, Counted, Failure, FateReport,
    LaneFacts, Metric, NoApp, On, Peer, Place, RaceFacts, RunReport, Service, Shape, Watched,
    WatchedRun, Witness, mix,
};
use std::marker::PhantomData;
use std::net::SocketAddr;

/// Looks at what an arm is handed, and hears of its records.
pub(crate) struct Eye {
    tally: Tally,
    taken_ns: u64,
}

impl Eye {
    pub(crate) fn new(tally: Tally) -> Eye {
        Eye { tally, taken_ns: 0 }
    }

    #[inline]
    fn see(&mut self, payload: &[u8], turn: Turn) {
        match numbered(payload) {
            Some(Payload::Number(seq_no)) => {
                if let Some((due_ns, seen)) = self.tally.arrived(seq_no) {
                    // The segment's number differs where a load was offered again.
                    let number = u64::from(seq_no as u32);
                    let content = mix(&(number << 16 | payload.len() as u64).to_ne_bytes());
                    seen.sample(due_ns, turn.now_ns, None, content);
                }
            }
            Some(Payload::Probe(sent_ns)) => {
                self.tally.woke(turn.now_ns.saturating_sub(sent_ns));
            }
            None => self.tally.stranger(),
        }
    }
}

impl Witness for Eye {
    #[inline]
    fn burst(&mut self, burst: &Burst, turn: Turn) {
        for i in 0..burst.len() {
            let bytes = burst.frame(i).bytes;
            self.see(bytes.get(PAYLOAD_AT..).unwrap_or_default(), turn);
        }
    }

    fn datagrams(&mut self, batch: &[Datagram<'_>], turn: Turn) {
        for train in batch {
            for payload in train.payload.chunks(train.segment_bytes.max(1)) {
                self.see(payload, turn);
            }
        }
    }

    #[inline]
    fn taken(&mut self, seq_no: u64) {
        if (seq_no as u32).is_multiple_of(SAMPLE) {
            self.taken_ns = MonotonicClock.now_ns();
        }
    }

    #[inline]
    fn record(&mut self, seq_no: u64, content: impl FnOnce() -> u64) {
        if let Some((due_ns, seen)) = self.tally.arrived(seq_no) {
            let handled_ns = MonotonicClock.now_ns();
            seen.sample(due_ns, self.taken_ns, Some(handled_ns), content());
        }
    }

    fn tick(&mut self) {
        self.tally.tick();
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposal {
    /// Nowhere.
    Dropped,
    /// Out of the port that it was received on, to its sender.
    Back,
    /// Out of the other of two ports: a frame unchanged, a datagram to this address.
    Across(SocketAddr),
    /// Out of every other port, unchanged.
    Everywhere,
}

/// The arguments of an app of the lab's: where it is.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LabArguments {
    /// Where datagrams are received, one address per port
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// Where datagrams that go across are sent to
    #[arg(long, value_name = "ADDR:PORT")]
    to: Option<SocketAddr>,
}

/// One of the lab's apps.
pub(crate) trait LabApp: 'static {
    const FACTS: AppFacts;
    /// The mode of `dpdk-testpmd` that does the same, if one does.
    const TESTPMD: Option<&'static str>;

    fn way(arguments: &LabArguments) -> Option<Disposal>;
}

/// Drops every packet.
pub(crate) enum Count {}
/// Sends each frame back out of the port that received it, MACs swapped; as a datagram, back to its sender.
pub(crate) enum Bounce {}
/// Sends each frame on, unchanged, out of every port but the one that received it.
pub(crate) enum Flood {}
/// Sends each frame on, unchanged, out of the other of two ports; as a datagram, to the far end of the other cable.
pub(crate) enum Across {}

const COUNTED: RaceFacts = RaceFacts {
    metrics: &[Metric::Rate, Metric::Cpu, Metric::WireToApp, Metric::AppOnly, Metric::Loss],
    peers: &[Peer::Testpmd],
    ..RaceFacts::HANDED
};

impl LabApp for Count {
    const FACTS: AppFacts =
        AppFacts { name: "count", about: "ticks every packet off and drops it", race: COUNTED };
    const TESTPMD: Option<&'static str> = Some("rxonly");

    fn way(_arguments: &LabArguments) -> Option<Disposal> {
        Some(Disposal::Dropped)
    }
}

impl LabApp for Bounce {
    const FACTS: AppFacts = AppFacts {
        name: "bounce",
        about: "ticks every packet off and sends it back",
        race: RaceFacts { counted: Counted::Returned, ..COUNTED },
    };
    const TESTPMD: Option<&'static str> = Some("macswap");

    fn way(_arguments: &LabArguments) -> Option<Disposal> {
        Some(Disposal::Back)
    }
}

impl LabApp for Across {
    const FACTS: AppFacts = AppFacts {
        name: "across",
        about: "ticks every packet off and sends it out of the other port",
        race: RaceFacts {
            counted: Counted::Returned,
            ports: 2,
            metrics: &[
                Metric::Rate,
                Metric::Cpu,
                Metric::WireToApp,
                Metric::AppOnly,
                Metric::ArrivalP50,
                Metric::ArrivalP99,
                Metric::Loss,
            ],
            ..COUNTED
        },
    };
    const TESTPMD: Option<&'static str> = Some("io");

    fn way(arguments: &LabArguments) -> Option<Disposal> {
        arguments.to.map(Disposal::Across)
    }
}

impl LabApp for Flood {
    const FACTS: AppFacts = AppFacts {
        name: "flood",
        about: "sends every frame out of every other port",
        race: RaceFacts::COPIED,
    };
    const TESTPMD: Option<&'static str> = None;

    fn way(_arguments: &LabArguments) -> Option<Disposal> {
        Some(Disposal::Everywhere)
    }
}

/// The row of an app of the lab's.
pub(crate) struct LabKind<A>(PhantomData<A>);

/// A run of an app of the lab's.
pub(crate) struct LabRun {
    way: Disposal,
    listen: Vec<SocketAddr>,
}

/// A worker of an app of the lab's.
pub(crate) struct LabWorker {
    way: Disposal,
    ports: usize,
    counters: Counters,
}

impl LabWorker {
    fn new(way: Disposal, ports: usize) -> LabWorker {
        LabWorker { way, ports, counters: Counters::default() }
    }
}

impl<A: LabApp> AppKind for LabKind<A> {
    const FACTS: AppFacts = A::FACTS;
    type Run = LabRun;
    type Report = FateReport;
    type Frames = LabWorker;
    type Datagrams = LabWorker;
    type Streams = NoApp;
    type Kernel = NoApp;

    fn shape(run: &LabRun, lane: &LaneFacts) -> Result<Shape, LaneError> {
        if run.way == Disposal::Everywhere && lane.is_the_kernels() {
            return Err(LaneError::Refused {
                lane: lane.name.to_owned(),
                name: A::FACTS.name.to_owned(),
                why: "it copies frames, and this lane has none".to_owned(),
                hint: "race it on a lane of frames, such as packet".to_owned(),
            });
        }
        Ok(if lane.is_the_kernels() { Shape::Datagrams } else { Shape::Frames })
    }

    fn asks(run: &LabRun) -> Asks {
        let service = Service { listen: run.listen.clone(), ..Service::default() };
        Asks { service, ..Asks::default() }
    }

    fn frames(run: &LabRun, place: Place<'_>) -> Result<LabWorker, LaneError> {
        Ok(LabWorker::new(run.way, place.interfaces.len()))
    }

    fn datagrams(run: &LabRun, place: Place<'_>) -> Result<LabWorker, LaneError> {
        Ok(LabWorker::new(run.way, place.interfaces.len()))
    }
}

impl<A: LabApp> AppCommand for LabKind<A> {
    type Arguments = LabArguments;
    const HELP: &'static str = "\
It is an arm of `laneway race lanes`.

Example:
  sudo laneway race lanes --variant count-64";
    type Arm<'a, W: Witness + 'a> = Watched<'a, LabKind<A>, W>;

    fn plan(arguments: &LabArguments, _on: On<'_>) -> Result<LabRun, Failure> {
        let way = A::way(arguments);
        let way = way.ok_or_else(|| Failure::input("where to? give --to ADDR:PORT"))?;
        Ok(LabRun { way, listen: arguments.listen.clone() })
    }

    fn begun(_run: &LabRun, _on: On<'_>) -> Option<String> {
        None
    }

    fn account(_: &LabRun, _: On<'_>, lane: &RunReport, _: &FateReport) -> Account {
        let seen = lane.counters().rx_frames;
        Account { one: "packet", seen_heading: "seen", seen, accounted: seen, ..Account::default() }
    }

    fn arm<'a, W: Witness + 'a>(run: &'a LabRun, witness: W) -> WatchedRun<'a, LabKind<A>, W> {
        WatchedRun::new(run, witness)
    }

    fn place(place: &ArmPlace<'_>) -> Vec<String> {
        let listen: Vec<String> = place.addresses.iter().map(ToString::to_string).collect();
        vec!["--listen".to_owned(), listen.join(","), "--to".to_owned(), place.onward.to_string()]
    }

    fn testpmd_mode(_arguments: &LabArguments) -> Option<&'static str> {
        A::TESTPMD
    }
}

impl Conclude<FateReport> for LabWorker {
    fn conclude(self, _run: &RunReport) -> FateReport {
        FateReport::default()
    }
}

/// The other of two ports.
fn other(port: PortId) -> PortId {
    PortId(1 - port.0.min(1))
}

impl App for LabWorker {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl FrameApp for LabWorker {
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, _turn: Turn) {
        match self.way {
            // The verdict of a received burst is drop until an app sets another.
            Disposal::Dropped => {}
            Disposal::Back => {
                for i in 0..burst.len() {
                    let mut frame = burst.frame_mut(i);
                    if let Some(macs) = frame.bytes_mut().first_chunk_mut::<12>() {
                        macs.rotate_left(6);
                    }
                    frame.set_verdict(Verdict::Tx);
                }
            }
            Disposal::Across(_) => {
                let verdict = Verdict::TxTo(other(port));
                (0..burst.len()).for_each(|i| burst.set_verdict(i, verdict));
            }
            Disposal::Everywhere => {
                let verdict = Verdict::Fanout(PortMask::all_but(self.ports, port));
                (0..burst.len()).for_each(|i| burst.set_verdict(i, verdict));
            }
        }
    }
}

impl DatagramApp for LabWorker {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], _turn: Turn, out: &mut O) {
        for datagram in batch {
            match self.way {
                // Copies are of frames: no app is handed datagrams to send everywhere.
                Disposal::Dropped | Disposal::Everywhere => {}
                Disposal::Back => out.forward(datagram, datagram.ingress, datagram.source),
                Disposal::Across(to) => out.forward(datagram, other(datagram.ingress), to),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Plant, SegmentPlan};
    use crate::tally::{Seen, TallyOrder};
    use crate::timetable::Times;
    use crate::traffic::{Payloads, Replayable, TrafficPlan, probe};
    use std::net::SocketAddrV4;
    use std::sync::mpsc::{self, Receiver, Sender};

    const PLAN: SegmentPlan =
        SegmentPlan { segment: 1, t0_ns: 1_000, frames: 16, interval_ns: 100, burst: 1, entry: 0 };

    fn end(last: u8) -> SocketAddrV4 {
        SocketAddrV4::new([10, 77, 0, last].into(), 7000)
    }

    /// The payload of frame `number` of segment 1.
    fn payload(number: u32) -> Vec<u8> {
        let plan =
            TrafficPlan::Udp { payloads: Payloads::Fixed(64), source: end(1), destination: end(2) };
        let traffic = Replayable::prepare(&plan, &Times::Steady).unwrap();
        let mut frame = vec![0; 106];
        traffic.templates[0].write(&mut frame, [2; 6], 1, number, 0);
        frame.split_off(PAYLOAD_AT)
    }

    /// A tally that has [`PLAN`], and how to ask it.
    fn tally() -> (Tally, Sender<TallyOrder>, Receiver<Seen>) {
        let (tell, tells) = mpsc::channel();
        let (answers, answer) = mpsc::channel();
        let mut tally = Tally::new(tells, answers, Plant::None);
        tell.send(TallyOrder::Segment(PLAN)).unwrap();
        tally.tick();
        (tally, tell, answer)
    }

    #[derive(Default)]
    struct Out(Vec<(PortId, SocketAddr)>);

    impl DatagramOut for Out {
        fn forward(&mut self, _: &Datagram<'_>, egress: PortId, destination: SocketAddr) {
            self.0.push((egress, destination));
        }

        fn send(&mut self, _: PortId, _: SocketAddr, _: usize, _: impl FnOnce(&mut [u8]) -> usize) {
            panic!("these apps make nothing new");
        }
    }

    fn datagram<'a>(payload: &'a [u8], segment_bytes: usize) -> Datagram<'a> {
        Datagram {
            payload: laneway_core::Payload::own(payload),
            segment_bytes,
            source: end(1).into(),
            destination: end(2).into(),
            is_broadcast: false,
            ingress: PortId(0),
            ts_ns: 0,
        }
    }

    #[test]
    fn every_datagram_of_a_train_is_ticked_off() {
        let (tally, tell, answer) = tally();
        let mut eye = Eye::new(tally);
        let train = [payload(0), payload(1), payload(2)].concat();
        let (stamped, stranger) = (probe(40), [0; 20]);
        let batch = [datagram(&train, 64), datagram(&stamped, 18), datagram(&stranger, 20)];
        eye.datagrams(&batch, Turn { now_ns: 100 });
        tell.send(TallyOrder::Report).unwrap();
        eye.tick();
        let seen = answer.recv().unwrap();
        let segment = seen.segment.as_ref().expect("one was announced");
        assert_eq!((segment.delivered, segment.duplicates, seen.foreign), (3, 0, 1));
        assert_eq!((segment.samples, seen.wakeups_ns), (1, vec![60]));
    }

    #[test]
    fn a_datagram_goes_back_to_its_sender_or_across_to_the_far_end() {
        for (way, expected) in [
            (Disposal::Back, (PortId(0), end(1).into())),
            (Disposal::Across(end(9).into()), (PortId(1), end(9).into())),
        ] {
            let mut out = Out::default();
            let mut bounce = LabWorker::new(way, 2);
            let bytes = payload(0);
            bounce.on_datagrams(&[datagram(&bytes, bytes.len())], Turn::default(), &mut out);
            assert_eq!(out.0, [expected]);
        }
    }

    #[test]
    fn the_other_of_two_ports_is_the_other() {
        assert_eq!([PortId(0), PortId(1)].map(other), [PortId(1), PortId(0)]);
    }

    /// What is seen of records with these numbers, 200 planned.
    fn seen(numbers: &[(u64, u64)], plant: Plant) -> Seen {
        let (tell, tells) = mpsc::channel();
        let (answers, answer) = mpsc::channel();
        let mut eye = Eye::new(Tally::new(tells, answers, plant));
        tell.send(TallyOrder::Segment(SegmentPlan { frames: 200, ..PLAN })).unwrap();
        eye.tick();
        for &(segment, number) in numbers {
            let seq_no = segment << 32 | number;
            eye.taken(seq_no);
            eye.record(seq_no, || mix(&number.to_ne_bytes()));
        }
        tell.send(TallyOrder::Report).unwrap();
        eye.tick();
        answer.recv().unwrap()
    }

    #[test]
    fn each_record_counts_once_and_the_rest_is_named() {
        let arrived = [0, 1, 3, 2, 3, 199, 200].map(|n| (1, n));
        let seen = seen(&[&arrived[..], &[(0, 0), (2, 5)]].concat(), Plant::None);
        let segment = seen.segment.as_ref().expect("one was announced");
        assert_eq!((segment.delivered, segment.duplicates, segment.reordered), (5, 1, 1));
        assert_eq!((segment.foreign, seen.foreign), (1, 2));
    }

    #[test]
    fn sampled_records_are_stamped_and_mixed_into_the_checksum() {
        let numbers: Vec<(u64, u64)> = (0..200).map(|n| (1, n)).collect();
        let segment = &seen(&numbers, Plant::None).segment.expect("one was announced");
        assert_eq!((segment.samples, segment.wire_to_app.n(), segment.app_only.n()), (25, 25, 25));
        assert!(segment.first_ns > 0 && segment.last_ns >= segment.first_ns);
    }

    #[test]
    fn a_planted_double_count_shows_as_duplicates() {
        let numbers: Vec<(u64, u64)> = (0..200).map(|n| (1, n)).collect();
        let segment =
            &seen(&numbers, Plant::CountTwice { every: 100 }).segment.expect("one was announced");
        assert_eq!((segment.delivered, segment.duplicates), (200, 2));
    }
}
