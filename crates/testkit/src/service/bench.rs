//! A datagram lane on the bench: with an app that answers as asked, and a far end that sends and collects.

use super::{
    Answer, DatagramProbe, DatagramProperties, DatagramRig, SILENT_TURNS, WAIT, WAITS_MAX, ok, spec,
};
use crate::patience::Patience;
use laneway_core::{Clock, DatagramLane, DropReason, Lane, PortId, Turn};
use std::time::Duration;

pub(super) const PORT: PortId = PortId(0);

/// A lane on the bench, with its app and its far end.
pub(super) struct Bench<'r, R: DatagramRig> {
    pub(super) rig: &'r mut R,
    pub(super) lane: R::Lane,
    pub(super) clock: R::Clock,
    pub(super) is: DatagramProperties,
    pub(super) probe: DatagramProbe,
}

impl<'r, R: DatagramRig> Bench<'r, R> {
    pub(super) fn open(rig: &'r mut R, knobs: &str, ports: usize, answer: Answer) -> Self {
        let is = rig.properties();
        let spec = spec(is.spec, knobs);
        let opened = rig.open(&spec, ports);
        let lane = opened.unwrap_or_else(|e| panic!("`{spec}` with {ports} ports: {e}"));
        assert_eq!(lane.ports(), ports, "ports of `{spec}`");
        let clock = rig.clock();
        assert_eq!(clock.domain(), lane.clock_domain(), "the rig's clock and the lane's");
        Bench { rig, lane, clock, is, probe: DatagramProbe::new(answer) }
    }

    /// One round; what it returns equals what the app saw.
    pub(super) fn serve(&mut self) -> usize {
        let seen = self.probe.seen.len();
        let served = ok(self.lane.serve(&mut self.probe, &self.clock));
        let shown: usize = self.probe.seen[seen..].iter().map(|s| s.datagrams().count()).sum();
        assert_eq!(served, shown, "serve counts the datagrams that the app saw");
        served
    }

    pub(super) fn tick(&mut self) {
        let turn = Turn { now_ns: self.clock.now_ns() };
        ok(self.lane.tick(&mut self.probe, turn));
    }

    pub(super) fn arrived(&self) -> usize {
        self.probe.seen.iter().map(|seen| seen.datagrams().count()).sum()
    }

    /// Serves until the app saw `wanted` datagrams in all, or patience ends.
    pub(super) fn serve_until(&mut self, wanted: usize) {
        let mut patience = Patience::new(WAITS_MAX);
        while self.arrived() < wanted && !patience.is_over() {
            if self.serve() == 0 {
                patience.wait(|| ok(self.lane.wait(WAIT)));
            } else {
                patience.note_arrival();
            }
        }
    }

    /// Sends `payloads` to `port`, as many at a time as it can take, and serves them.
    pub(super) fn pump(&mut self, port: PortId, payloads: &[Vec<u8>]) {
        for chunk in payloads.chunks(self.is.send_max) {
            let wanted = self.arrived() + chunk.len();
            let borrowed: Vec<&[u8]> = chunk.iter().map(Vec::as_slice).collect();
            self.rig.send(port, &borrowed);
            self.serve_until(wanted);
        }
    }

    /// Pumps, collecting what comes back to the far end of `egress` meanwhile, so that its queue
    /// need not hold it all.
    pub(super) fn pump_and_collect(
        &mut self,
        payloads: &[Vec<u8>],
        egress: PortId,
    ) -> Vec<Vec<u8>> {
        let mut collected = Vec::new();
        for chunk in payloads.chunks(self.is.send_max) {
            self.pump(PORT, chunk);
            collected.extend(self.collect(egress, chunk.len()));
        }
        collected
    }

    /// Payloads that reached the far end of `port`, all from the address they should come from:
    /// `expected` of them, or as many as patience brings.
    pub(super) fn collect(&mut self, port: PortId, expected: usize) -> Vec<Vec<u8>> {
        let mut collected = Vec::new();
        let near = match self.probe.answer {
            Answer::Nothing | Answer::ForwardTo(..) => self.rig.near_unasked(port),
            _ => self.rig.near(port),
        };
        for _ in 0..WAITS_MAX {
            let missing = expected.saturating_sub(collected.len());
            for (source, payload) in self.rig.collect(port, missing) {
                assert_eq!(source, near, "the source of what left port {}", port.0);
                collected.push(payload);
            }
            if collected.len() >= expected {
                break;
            }
            self.nudge();
        }
        collected
    }

    /// Fails if anything reaches the far end of `port` now.
    pub(super) fn assert_silent(&mut self, port: PortId) {
        for _ in 0..SILENT_TURNS {
            let stray = self.rig.collect(port, 1);
            assert!(stray.is_empty(), "{} datagrams left port {} unasked", stray.len(), port.0);
            self.nudge();
        }
    }

    /// Lets transmissions go on: some lanes need a push, a simulated one needs time.
    pub(super) fn nudge(&mut self) {
        self.serve();
        ok(self.lane.wait(Duration::from_millis(1)));
    }

    pub(super) fn assert_seen(&self, wanted: &[Vec<u8>]) {
        assert_same(self.probe.datagrams(), wanted);
    }

    pub(super) fn drops(&mut self, reason: DropReason) -> u64 {
        (0..self.lane.ports()).map(|at| self.lane.counters(self.lane.port(at)).drops(reason)).sum()
    }
}

/// Compares datagrams one by one, so that a failure names the first that differs.
pub(super) fn assert_same<'a>(got: impl IntoIterator<Item = &'a [u8]>, wanted: &[Vec<u8>]) {
    let got: Vec<&[u8]> = got.into_iter().collect();
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert_eq!(got.len(), wanted.len(), "bytes of datagram {i}");
        assert!(got == wanted, "the bytes of datagram {i} differ");
    }
    assert_eq!(got.len(), wanted.len(), "number of datagrams");
}
