//! The lab's own apps, each of them for frames and for datagrams: small enough that what a race of
//! them compares is the lanes.
//!
//! [`Count`] ticks every frame off and drops it; [`Bounce`] does the same and sends it back, or on.
//! Both read the number from the payload, so both shapes do the same work. Frames that carry no
//! number are counted as foreign; wake-up probes are stamped. They assume traffic made by
//! [`crate::traffic`] (no VLAN tag, no IP options); a time is that of the burst, read once by the
//! engine, so there is no scope `app only`.

use crate::tally::{Tally, mix};
use crate::traffic::{PAYLOAD_AT, Payload, numbered};
use laneway_core::{
    App, Burst, Counters, Datagram, DatagramApp, DatagramOut, FrameApp, PortId, Turn, Verdict,
};
use std::net::SocketAddr;

/// Looks at what arrives.
struct Eye {
    tally: Tally,
    counters: Counters,
}

impl Eye {
    fn new(tally: Tally) -> Eye {
        Eye { tally, counters: Counters::default() }
    }

    #[inline]
    fn see_burst(&mut self, burst: &Burst, turn: Turn) {
        for i in 0..burst.len() {
            let bytes = burst.frame(i).bytes;
            self.see(bytes.get(PAYLOAD_AT..).unwrap_or_default(), turn);
        }
    }

    fn see_datagrams(&mut self, batch: &[Datagram<'_>], turn: Turn) {
        for train in batch {
            for payload in train.payload.chunks(train.segment_bytes.max(1)) {
                self.see(payload, turn);
            }
        }
    }

    #[inline]
    fn see(&mut self, payload: &[u8], turn: Turn) {
        match numbered(payload) {
            Some(Payload::Number(seq_no)) => {
                if let Some((plan, seen)) = self.tally.arrived(seq_no) {
                    // The segment's number differs where a load was offered again.
                    let number = u64::from(seq_no as u32);
                    let content = mix(&(number << 16 | payload.len() as u64).to_ne_bytes());
                    seen.sample(plan.due_ns(seq_no as u32), turn.now_ns, None, content);
                }
            }
            Some(Payload::Probe(sent_ns)) => {
                self.tally.woke(turn.now_ns.saturating_sub(sent_ns));
            }
            None => self.tally.stranger(),
        }
    }
}

/// Counts and drops.
pub(crate) struct Count {
    eye: Eye,
}

impl Count {
    /// An app that ticks off on `tally`.
    pub(crate) fn new(tally: Tally) -> Count {
        Count { eye: Eye::new(tally) }
    }
}

impl App for Count {
    fn counters(&self) -> &Counters {
        &self.eye.counters
    }
}

impl FrameApp for Count {
    fn on_burst(&mut self, _port: PortId, burst: &mut Burst, turn: Turn) {
        // The verdict of a received burst is drop until somebody says otherwise.
        self.eye.see_burst(burst, turn);
    }

    fn on_tick(&mut self, _turn: Turn) {
        self.eye.tally.tick();
    }
}

impl DatagramApp for Count {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, _out: &mut O) {
        self.eye.see_datagrams(batch, turn);
    }

    fn on_tick<O: DatagramOut>(&mut self, _turn: Turn, _out: &mut O) {
        self.eye.tally.tick();
    }
}

/// Where [`Bounce`] sends what it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Out of the port it came from, to whom it came from.
    Back,
    /// Out of the other of two ports: a frame unchanged, a datagram to this address.
    Across(SocketAddr),
}

/// Counts and sends back, or on.
pub(crate) struct Bounce {
    eye: Eye,
    way: Way,
}

impl Bounce {
    /// An app that ticks off on `tally`.
    pub(crate) fn new(tally: Tally, way: Way) -> Bounce {
        Bounce { eye: Eye::new(tally), way }
    }
}

/// The other of two ports.
fn other(port: PortId) -> PortId {
    PortId(1 - port.0.min(1))
}

impl App for Bounce {
    fn counters(&self) -> &Counters {
        &self.eye.counters
    }
}

impl FrameApp for Bounce {
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn) {
        self.eye.see_burst(burst, turn);
        match self.way {
            Way::Back => {
                for i in 0..burst.len() {
                    let mut frame = burst.frame_mut(i);
                    if let Some(macs) = frame.bytes_mut().first_chunk_mut::<12>() {
                        macs.rotate_left(6);
                    }
                    frame.set_verdict(Verdict::Tx);
                }
            }
            Way::Across(_) => {
                let verdict = Verdict::TxTo(other(port));
                (0..burst.len()).for_each(|i| burst.set_verdict(i, verdict));
            }
        }
    }

    fn on_tick(&mut self, _turn: Turn) {
        self.eye.tally.tick();
    }
}

impl DatagramApp for Bounce {
    fn on_datagrams<O: DatagramOut>(&mut self, batch: &[Datagram<'_>], turn: Turn, out: &mut O) {
        self.eye.see_datagrams(batch, turn);
        for datagram in batch {
            match self.way {
                Way::Back => out.forward(datagram, datagram.ingress, datagram.source),
                Way::Across(to) => out.forward(datagram, other(datagram.ingress), to),
            }
        }
    }

    fn on_tick<O: DatagramOut>(&mut self, _turn: Turn, _out: &mut O) {
        self.eye.tally.tick();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plant, SegmentPlan};
    use crate::tally::{Seen, Tell};
    use crate::traffic::{Replayable, TrafficPlan, probe};
    use std::net::SocketAddrV4;
    use std::sync::mpsc::{self, Receiver, Sender};

    const PLAN: SegmentPlan =
        SegmentPlan { segment: 1, t0_ns: 1_000, frames: 16, interval_ns: 100, burst: 1 };

    fn end(last: u8) -> SocketAddrV4 {
        SocketAddrV4::new([10, 77, 0, last].into(), 7000)
    }

    /// The payload of frame `number` of segment 1.
    fn payload(number: u32) -> Vec<u8> {
        let plan = TrafficPlan::Udp { payload_bytes: 64, source: end(1), destination: end(2) };
        let traffic = Replayable::prepare(&plan).unwrap();
        let mut frame = vec![0; 106];
        traffic.templates[0].write(&mut frame, [2; 6], 1, number, 0);
        frame.split_off(PAYLOAD_AT)
    }

    /// A tally that has been told of [`PLAN`], and how to ask it.
    fn tally() -> (Tally, Sender<Tell>, Receiver<Seen>) {
        let (tell, tells) = mpsc::channel();
        let (answers, answer) = mpsc::channel();
        let mut tally = Tally::new(tells, answers, Plant::None);
        tell.send(Tell::Segment(PLAN)).unwrap();
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
            ingress: PortId(0),
            ts_ns: 0,
        }
    }

    #[test]
    fn every_datagram_of_a_train_is_ticked_off() {
        let (tally, tell, answer) = tally();
        let mut count = Count::new(tally);
        let train = [payload(0), payload(1), payload(2)].concat();
        let (stamped, stranger) = (probe(40), [0; 20]);
        let batch = [datagram(&train, 64), datagram(&stamped, 18), datagram(&stranger, 20)];
        count.on_datagrams(&batch, Turn { now_ns: 100 }, &mut Out::default());
        tell.send(Tell::Report).unwrap();
        DatagramApp::on_tick(&mut count, Turn::default(), &mut Out::default());
        let seen = answer.recv().unwrap();
        let segment = &seen.segments[0];
        assert_eq!((segment.delivered, segment.duplicates, seen.foreign), (3, 0, 1));
        assert_eq!((segment.samples, seen.wakeups_ns), (1, vec![60]));
    }

    #[test]
    fn a_datagram_goes_back_to_its_sender_or_across_to_the_far_end() {
        for (way, expected) in [
            (Way::Back, (PortId(0), end(1).into())),
            (Way::Across(end(9).into()), (PortId(1), end(9).into())),
        ] {
            let mut out = Out::default();
            let mut bounce = Bounce::new(tally().0, way);
            let bytes = payload(0);
            bounce.on_datagrams(&[datagram(&bytes, bytes.len())], Turn::default(), &mut out);
            assert_eq!(out.0, [expected]);
        }
    }

    #[test]
    fn the_other_of_two_ports_is_the_other() {
        assert_eq!([PortId(0), PortId(1)].map(other), [PortId(1), PortId(0)]);
    }
}
