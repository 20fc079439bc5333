//! The near end: a frame lane over the wires of a [`SimWorld`].
//!
//! Each port owns a pool of buffers on the heap ([`FramePool`]).

use crate::{
    knobs::SimKnobs,
    link::Entry,
    world::{Direction, SimWorld, interface_name},
};
use laneway_core::{
    Bell, Burst, Cap, CapSet, CapsReport, Clock, ClockDomain, Counters, DropReason, FrameLane,
    FramePool, GATHERED_MAX, Lane, LaneError, PortId, PortMask, Verdict, Wake,
};
use laneway_spec::LaneSpec;
use std::{cell::RefCell, collections::VecDeque, time::Duration};

/// What an empty receive costs in virtual time, so that a worker that only polls gets on.
pub const POLL_NS: u64 = 100;
/// How long frames from `lend` wait for a link that takes nothing, before they are refused.
const STALL_NS_MAX: u64 = 1_000_000_000;

/// A lane of simulated links. See the crate's documentation.
pub struct SimLane {
    world: SimWorld,
    ports: Vec<Port>,
    /// Apart from the ports, because a frame of one port counts on another.
    counters: Vec<Counters>,
    /// Frames from `lend` that a full link refused, in order, with their egress. At most one burst: `lend`
    /// provides none before they have left.
    waiting: VecDeque<(PortId, Vec<u8>)>,
    /// Since when the first of them waits.
    stalled_ns: Option<u64>,
    /// A gathered frame, on its way to the link; keeps its memory.
    gathered: Vec<u8>,
    bell: Option<Bell>,
}

struct Port {
    id: PortId,
    caps: CapsReport,
    pool: FramePool,
    /// The burst was provided by `lend`, not received.
    is_borrowed: bool,
}

impl SimLane {
    /// Opens `ports` simulated links. The world is the other end of all of them.
    ///
    /// # Errors
    /// A wrong spec, or no port, or more than [`PortMask::PORTS_MAX`].
    pub fn open(spec: &LaneSpec, ports: usize) -> Result<(SimLane, SimWorld), LaneError> {
        let knobs = SimKnobs::read(spec)?;
        if !(1..=PortMask::PORTS_MAX).contains(&ports) {
            return Err(LaneError::Refused {
                lane: "sim".to_owned(),
                name: format!("{ports} ports"),
                why: "verdicts can name no others".to_owned(),
                hint: format!("open 1 to {} ports", PortMask::PORTS_MAX),
            });
        }
        let world = SimWorld::new(ports, knobs.seed, knobs.link);
        let can = CapSet::default().with(Cap::Transmit);
        let mut caps = CapsReport {
            requested: can,
            obtained: can,
            allowed_missing: knobs.allowed_missing,
            ..CapsReport::default()
        };
        caps.fact("seed", knobs.seed);
        caps.fact("frames", knobs.frames);
        caps.fact("mtu", knobs.link.mtu);
        caps.fact("queue_frames", knobs.link.queue_frames);
        let open = |port: usize| {
            let pool = FramePool::new(knobs.frames, knobs.link.frame_bytes_max(), knobs.burst)
                .gathering(if knobs.gathers { GATHERED_MAX } else { 0 });
            let mut caps = caps.clone();
            caps.fact("buffer_bytes", pool.buffer_bytes());
            Port { id: PortId(port as u32), caps, pool, is_borrowed: false }
        };
        let lane = SimLane {
            world: world.clone(),
            ports: (0..ports).map(open).collect(),
            counters: vec![Counters::default(); ports],
            waiting: VecDeque::new(),
            stalled_ns: None,
            gathered: Vec::new(),
            bell: None,
        };
        Ok((lane, world))
    }
}

/// Offers a frame to the link of `egress`, which exists. False when the link is full: not counted.
fn offer(world: &SimWorld, counters: &mut Counters, egress: PortId, bytes: &[u8]) -> bool {
    match world.send(egress, bytes) {
        Some(Entry::Sent) => {
            counters.tx_frames += 1;
            counters.tx_bytes += bytes.len() as u64;
        }
        Some(Entry::QueueFull) => return false,
        None => counters.drop_one(DropReason::TxRefused),
        Some(Entry::TooLong) => counters.drop_one(DropReason::TxTooLong),
    }
    true
}

/// Does what `verdict` says with a frame of `ingress`, short of freeing its buffer.
fn act(
    world: &SimWorld,
    counters: &mut [Counters],
    ingress: PortId,
    verdict: Verdict,
    bytes: &[u8],
) {
    let mut send = |egress: PortId| {
        let Some(egress_counters) = counters.get_mut(egress.index()) else {
            return counters[ingress.index()].drop_one(DropReason::TxNoPort);
        };
        if !offer(world, egress_counters, egress, bytes) {
            egress_counters.drop_one(DropReason::TxRefused);
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

impl SimLane {
    /// Offers again what waits, in order, until the link is full again.
    fn offer_again(&mut self) {
        let now_ns = self.world.clock().now_ns();
        if let Some((egress, _)) = self.waiting.front() {
            self.counters[egress.index()].tx_retries += 1;
        }
        while let Some((egress, bytes)) = self.waiting.front() {
            let counters = &mut self.counters[egress.index()];
            if !offer(&self.world, counters, *egress, bytes) {
                let since_ns = *self.stalled_ns.get_or_insert(now_ns);
                if now_ns - since_ns < STALL_NS_MAX {
                    return;
                }
                counters.drop_one(DropReason::TxRefused);
            } else {
                self.stalled_ns = None;
            }
            self.waiting.pop_front();
        }
        self.stalled_ns = None;
    }
}

/// Sends a frame from `lend`, or lets it wait. False when it is none that can wait: one for no port, or for several.
fn send_borrowed(
    world: &SimWorld,
    counters: &mut [Counters],
    waiting: &mut VecDeque<(PortId, Vec<u8>)>,
    ingress: PortId,
    verdict: Verdict,
    bytes: &[u8],
) -> bool {
    let egress = match verdict {
        Verdict::Tx => ingress,
        Verdict::TxTo(egress) => egress,
        _ => return false,
    };
    let Some(counters) = counters.get_mut(egress.index()) else { return false };
    if !waiting.is_empty() || !offer(world, counters, egress, bytes) {
        waiting.push_back((egress, bytes.to_vec()));
    }
    true
}

fn gone(port: PortId) -> LaneError {
    LaneError::Gone { lane: "sim".to_owned(), name: interface_name(port) }
}

impl Lane for SimLane {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn ports(&self) -> usize {
        self.ports.len()
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Virtual
    }

    fn hear(&mut self, bell: &Bell) {
        self.bell = Some(bell.clone());
    }

    /// Takes no real time: moves the virtual clock to the next arrival, at most by `timeout`.
    /// Counted on port 0, as one wait for all ports.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        if self.world.unplugged().is_some() {
            return Ok(Wake::Ready); // receive is to tell, after what has arrived
        }
        if self.bell.as_ref().is_some_and(Bell::is_rung) {
            return Ok(Wake::Ready);
        }
        let now_ns = self.world.clock().now_ns();
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.counters[0].waits += 1;
        let ready = self.world.advance_to_arrival(now_ns.saturating_add(timeout_ns));
        Ok(if ready { Wake::Ready } else { Wake::Timeout })
    }

    fn exhausted(&self) -> bool {
        self.waiting.is_empty() && self.world.exhausted()
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.ports[port.index()].caps
    }

    /// Losses on the way to the lane are the port's; losses on the way from it are the link's
    /// ([`SimWorld::link_counters`]), because the lane did send those frames.
    fn counters(&mut self, port: PortId) -> Counters {
        let link = self.world.link_counters(port, Direction::ToLane);
        let mut counters = self.counters[port.index()].clone();
        counters.set_drops(DropReason::LinkLoss, link.lost);
        counters.set_drops(DropReason::LinkQueueFull, link.queue_full);
        counters.set_drops(DropReason::RxTooLong, link.too_long);
        counters
    }

    fn drop_unsent(&mut self) {
        for (egress, _) in self.waiting.drain(..) {
            self.counters[egress.index()].drop_one(DropReason::TxRefused);
        }
    }
}

impl FrameLane for SimLane {
    /// Settles first what the caller left unsettled.
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        self.settle(port)?;
        let near = &mut self.ports[port.index()];
        near.is_borrowed = false;
        let counters = &mut self.counters[port.index()];
        self.world.take(port, near.pool.space(), |ts_ns, bytes| {
            let frame = near.pool.push(bytes.len(), bytes.len() as u32, ts_ns);
            frame.expect("the space was asked for").bytes_mut().copy_from_slice(bytes);
            counters.rx_frames += 1;
            counters.rx_bytes += bytes.len() as u64;
        });
        if near.pool.burst_mut().is_empty() {
            if self.world.is_unplugged(port) {
                return Err(gone(port));
            }
            counters.polls_empty += 1;
            let now_ns = self.world.clock().now_ns();
            self.world.advance_to(now_ns + POLL_NS);
        }
        Ok(near.pool.burst_mut())
    }

    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        self.settle(port)?;
        let now_ns = self.world.clock().now_ns();
        let Port { pool, is_borrowed, .. } = &mut self.ports[port.index()];
        if !self.waiting.is_empty() {
            return Ok(pool.burst_mut());
        }
        *is_borrowed = true;
        for _ in 0..frames.min(pool.space()) {
            pool.push(0, 0, now_ns);
        }
        Ok(pool.burst_mut())
    }

    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        self.offer_again();
        let SimLane { world, ports, counters, waiting, gathered, .. } = self;
        let Port { id, pool, is_borrowed, .. } = &mut ports[port.index()];
        // Both write to the counters, in turn.
        let counters = RefCell::new(&mut counters[..]);
        pool.settle_gathered(
            |verdict, frame| {
                let counters = &mut **counters.borrow_mut();
                if !(*is_borrowed
                    && send_borrowed(world, counters, waiting, *id, verdict, frame.bytes))
                {
                    act(world, counters, *id, verdict, frame.bytes);
                }
            },
            |egress, head, part| {
                gathered.clear();
                gathered.extend_from_slice(head);
                gathered.extend_from_slice(part);
                let counters = &mut **counters.borrow_mut();
                act(world, counters, *id, Verdict::TxTo(egress), gathered);
            },
        );
        Ok(())
    }

    fn refused(&self, port: PortId) -> u64 {
        self.counters[port.index()].drops(DropReason::TxRefused)
    }
}
