//! The lane: any frame app on capture files.
//!
//! ```text
//!   file ─▶ Input ─▶ ethernet ─copy─▶ buffer ─▶ Burst ─▶ app ─▶ settle ─▶ Output (out=) or nowhere
//!    port's capture  header made up   port's pool                         one capture, all ports
//! ```
//!
//! A port is a capture. Frames are copied out of it, because the contract promises an app that it may write, and 128
//! bytes in front of each frame; the copy is counted (`copies`). Memory is `burst` buffers per port, each as
//! long as the longest frame; pages that no frame reached stay untouched.
//!
//! What must always hold:
//! * Every record of a capture is a frame or a counted drop ([`DropReason::LinkTypeUnknown`]).
//! * Frames carry the capture's times (Unix time); the lane reads no clock. What it sends keeps its time.
//! * An unreadable capture ends the lane, after the frames before the damage were received.
//!
//! It does not pace: frames come as fast as they are asked for. Reading a pipe blocks in `receive`.

use crate::NAME;
use crate::input::Input;
use crate::knobs::PcapKnobs;
use crate::output::{Entry, Output};
use laneway_capture::{Parts, Record};
use laneway_core::{
    Bell, Burst, Cap, CapSet, CapsReport, ClockDomain, Counters, DropReason, Frame, FrameLane,
    FramePool, Lane, LaneError, PortId, PortMask, Verdict, Wake,
};
use laneway_spec::LaneSpec;
use std::{path::Path, time::Duration};

/// Records that one receive looks at, so that a capture full of what is no frame cannot keep the worker.
pub const LOOKS_MAX: usize = 4096;

/// A lane of capture files. See the module.
pub struct PcapLane {
    ports: Vec<Port>,
    /// Apart from the ports, because a frame of one port counts on another.
    counters: Vec<Counters>,
    output: Option<Output>,
    frame_bytes: usize,
    bell: Option<Bell>,
}

struct Port {
    id: PortId,
    input: Input,
    /// Nothing will be received any more.
    ended: bool,
    /// Met behind frames that had to be handed out first.
    pending: Option<LaneError>,
    /// The latest time received: what frames from `lend` carry.
    latest_ns: u64,
    caps: CapsReport,
    pool: FramePool,
}

impl PcapLane {
    /// Opens one port per capture, and the capture to write if the spec says `out=`. `-` is standard input.
    ///
    /// # Errors
    /// A wrong spec; no capture, or more than [`PortMask::PORTS_MAX`]; one that is missing, unreadable, or none; an
    /// output that cannot be written or would replace an input. Nothing is left behind then.
    pub fn open<P: AsRef<Path>>(spec: &LaneSpec, captures: &[P]) -> Result<PcapLane, LaneError> {
        let knobs = PcapKnobs::read(spec)?;
        if !(1..=PortMask::PORTS_MAX).contains(&captures.len()) {
            return Err(LaneError::Refused {
                lane: NAME.to_owned(),
                name: format!("{} captures", captures.len()),
                why: "verdicts can name no others".to_owned(),
                hint: format!("give 1 to {} captures", PortMask::PORTS_MAX),
            });
        }
        let paths: Vec<&Path> = captures.iter().map(AsRef::as_ref).collect();
        let ports: Vec<Port> = paths
            .iter()
            .enumerate()
            .map(|(port, path)| Port::open(PortId(port as u32), path, &knobs))
            .collect::<Result<_, _>>()?;
        // Last, so that a lane that does not open has created nothing.
        let output = match &knobs.out {
            Some(out) => Some(Output::create(out, &paths, knobs.frame_bytes)?),
            None => None,
        };
        let counters = vec![Counters::default(); ports.len()];
        Ok(PcapLane { ports, counters, output, frame_bytes: knobs.frame_bytes, bell: None })
    }

    /// Closes the lane and gives the capture it wrote its name. Dropping the lane does the same (except in a panic,
    /// which removes the partial file), but cannot say what went wrong.
    ///
    /// # Errors
    /// When the capture cannot be completed; no file is left then.
    pub fn finish(mut self) -> Result<(), LaneError> {
        // What was not settled is still to be sent.
        (0..self.ports.len()).try_for_each(|port| self.settle(PortId(port as u32)))?;
        self.output.take().map_or(Ok(()), Output::finish)
    }
}

impl Port {
    fn open(id: PortId, path: &Path, knobs: &PcapKnobs) -> Result<Port, LaneError> {
        let input = Input::open(path, knobs.passes)?;
        let can = CapSet::default().with_if(Cap::Transmit, knobs.out.is_some());
        let mut caps = CapsReport {
            requested: can,
            obtained: can,
            allowed_missing: knobs.allowed_missing,
            ..CapsReport::default()
        };
        caps.fact("capture", path.display());
        caps.fact("format", input.format_name());
        caps.fact("link_types", input.links());
        caps.fact("passes", knobs.passes);
        caps.fact("buffers", knobs.burst);
        let pool = FramePool::new(knobs.burst, knobs.frame_bytes, knobs.burst);
        caps.fact("buffer_bytes", pool.buffer_bytes());
        if let Some(out) = &knobs.out {
            caps.fact("out", out.display());
        }
        Ok(Port { id, input, ended: false, pending: None, latest_ns: 0, caps, pool })
    }

    /// Reads records into the burst until it is full or there are no more.
    fn fill(&mut self, frame_bytes: usize, counters: &mut Counters) -> Result<(), LaneError> {
        if let Some(error) = self.pending.take() {
            self.ended = true;
            return Err(error);
        }
        for _ in 0..LOOKS_MAX {
            if self.ended || self.pool.space() == 0 {
                break;
            }
            let Port { input, pool, latest_ns, .. } = self;
            match input.read(|record| take_in(pool, latest_ns, counters, frame_bytes, &record)) {
                Ok(true) => (),
                Ok(false) => {
                    self.ended = true;
                    // Only now is every interface described, and what it missed.
                    self.caps.fact("link_types", self.input.links());
                    if let Some(dropped) = self.input.dropped() {
                        self.caps.fact("capture_dropped", dropped);
                    }
                }
                Err(error) if self.pool.burst_mut().is_empty() => {
                    self.ended = true;
                    return Err(error);
                }
                Err(error) => {
                    self.pending = Some(error);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Adds `record` to the burst, or counts why it is no frame. The caller made sure that there is space and a buffer.
#[inline]
fn take_in(
    pool: &mut FramePool,
    latest_ns: &mut u64,
    counters: &mut Counters,
    frame_bytes: usize,
    record: &Record<'_>,
) {
    let Ok(parts) = Parts::of(record) else {
        return counters.drop_one(DropReason::LinkTypeUnknown);
    };
    let len = parts.len().min(frame_bytes);
    *latest_ns = (*latest_ns).max(record.ts_ns);
    let frame = pool.push(len, parts.wire_len, record.ts_ns);
    parts.copy_to(frame.expect("the caller asked for the space").bytes_mut());
    counters.rx_frames += 1;
    counters.rx_bytes += len as u64;
    counters.copies += 1;
}

/// Does what `verdict` says with a frame of `ingress`, short of freeing its buffer.
fn act(
    output: &mut Option<Output>,
    counters: &mut [Counters],
    ingress: PortId,
    verdict: Verdict,
    frame: Frame<'_>,
) {
    let mut send = |egress: PortId| {
        let Some(egress_counters) = counters.get_mut(egress.index()) else {
            return counters[ingress.index()].drop_one(DropReason::TxNoPort);
        };
        match output.as_mut().map_or(Entry::Refused, |output| output.send(egress, frame)) {
            Entry::Sent => {
                egress_counters.tx_frames += 1;
                egress_counters.tx_bytes += frame.bytes.len() as u64;
            }
            Entry::TooLong => egress_counters.drop_one(DropReason::TxTooLong),
            Entry::Refused => egress_counters.drop_one(DropReason::TxRefused),
        }
    };
    match verdict {
        Verdict::Drop => (),
        Verdict::Pass => counters[ingress.index()].passed += 1,
        Verdict::Tx => send(ingress),
        Verdict::TxTo(egress) => send(egress),
        Verdict::Fanout(set) => set.iter().for_each(send),
    }
}

impl Lane for PcapLane {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ports(&self) -> usize {
        self.ports.len()
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Unix
    }

    fn hear(&mut self, bell: &Bell) {
        self.bell = Some(bell.clone());
    }

    /// Returns at once while a capture is not at its end; sleeps when all are. Counted on port 0, as one wait for all
    /// ports.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        self.counters[0].waits += 1;
        if self.exhausted() {
            let Some(bell) = &self.bell else {
                std::thread::sleep(timeout);
                return Ok(Wake::Timeout);
            };
            return Ok(if bell.wait(timeout) { Wake::Ready } else { Wake::Timeout });
        }
        Ok(Wake::Ready)
    }

    fn exhausted(&self) -> bool {
        self.ports.iter().all(|port| port.ended)
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.ports[port.index()].caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        self.counters[port.index()].clone()
    }
}

impl FrameLane for PcapLane {
    /// Settles first what the caller left unsettled.
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        self.settle(port)?;
        let counters = &mut self.counters[port.index()];
        let near = &mut self.ports[port.index()];
        near.fill(self.frame_bytes, counters)?;
        let burst = near.pool.burst_mut();
        counters.polls_empty += u64::from(burst.is_empty());
        Ok(burst)
    }

    /// Lends nothing without `out=`. Its frames carry the latest time received on the port.
    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        self.settle(port)?;
        let Port { pool, latest_ns, .. } = &mut self.ports[port.index()];
        let frames = if self.output.is_some() { frames } else { 0 };
        for _ in 0..frames.min(pool.space()) {
            pool.push(0, 0, *latest_ns);
        }
        Ok(pool.burst_mut())
    }

    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        let PcapLane { ports, counters, output, .. } = self;
        let Port { id, pool, .. } = &mut ports[port.index()];
        pool.settle(|verdict, frame| act(output, counters, *id, verdict, frame));
        output.as_mut().map_or(Ok(()), Output::flush)
    }
}
