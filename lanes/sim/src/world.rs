//! The far ends of a lane's ports, and the time.
//!
//! A handle, shared with the lane: what is injected here, the lane receives, and the reverse. The
//! memory of the script is the caller's to bound; what arrived at a far end is bounded by
//! [`FAR_FRAMES_MAX`], after which frames stay on the wire until its queue is full.

use crate::link::{Entry, Flight, Link, LinkCounters, Wire};
use laneway_core::{Clock, ClockDomain, PortId};
use laneway_random::Random;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

/// Frames that one far end keeps until they are collected.
pub const FAR_FRAMES_MAX: usize = 1 << 20;

/// Which way frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the far end to the lane.
    ToLane,
    /// From the lane to the far end.
    FromLane,
}

/// A frame that reached a far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, on the virtual clock.
    pub at_ns: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The virtual clock of a world. Starts at 0.
#[derive(Clone, Debug)]
pub struct SimClock(Rc<Cell<u64>>);

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }

    fn domain(&self) -> ClockDomain {
        ClockDomain::Virtual
    }
}

/// A handle to the far ends and the clock. Clones are handles to the same world.
#[derive(Clone)]
pub struct SimWorld {
    clock: SimClock,
    state: Rc<RefCell<State>>,
}

struct State {
    ends: Vec<End>,
    /// Tells apart what was injected for the same time.
    injections: u64,
    finished: bool,
    /// The MTU that the lane's buffers were made for.
    mtu_max: usize,
}

/// The far end of one port.
struct End {
    to_lane: Wire,
    from_lane: Wire,
    /// Frames to be sent to the lane, by time and order of injection.
    script: BTreeMap<(u64, u64), Vec<u8>>,
    arrived: VecDeque<Arrival>,
    /// The lane's interface is gone.
    unplugged: bool,
}

impl End {
    fn wire(&mut self, direction: Direction) -> &mut Wire {
        match direction {
            Direction::ToLane => &mut self.to_lane,
            Direction::FromLane => &mut self.from_lane,
        }
    }

    /// Puts on the wire what the script has for times up to `now_ns`, and takes off the other wire
    /// what has arrived by then.
    fn step(&mut self, now_ns: u64) {
        while let Some(next) = self.script.first_entry().filter(|e| e.key().0 <= now_ns) {
            let ((at_ns, _), bytes) = next.remove_entry();
            self.to_lane.offer(at_ns, &bytes);
        }
        while self.arrived.len() < FAR_FRAMES_MAX {
            let Some(Flight { at_ns, bytes, .. }) = self.from_lane.take(now_ns) else { break };
            self.arrived.push_back(Arrival { at_ns, bytes });
        }
    }

    /// When something next happens on the way to the lane.
    fn next_at_ns(&self) -> Option<u64> {
        let scripted = self.script.first_key_value().map(|((at_ns, _), _)| *at_ns);
        [scripted, self.to_lane.next_at_ns()].into_iter().flatten().min()
    }
}

impl SimWorld {
    pub(crate) fn new(ports: usize, seed: u64, link: Link) -> SimWorld {
        let wire = |stream: usize| Wire::new(link, Random::stream(seed, stream as u64));
        let ends = (0..ports).map(|port| End {
            to_lane: wire(2 * port),
            from_lane: wire(2 * port + 1),
            script: BTreeMap::new(),
            arrived: VecDeque::new(),
            unplugged: false,
        });
        let state =
            State { ends: ends.collect(), injections: 0, finished: false, mtu_max: link.mtu };
        SimWorld { clock: SimClock(Rc::default()), state: Rc::new(RefCell::new(state)) }
    }

    /// The clock that the lane stamps frames with.
    pub fn clock(&self) -> SimClock {
        self.clock.clone()
    }

    /// Sends a frame from the far end of `port` now.
    ///
    /// # Panics
    /// If there is no such port, here and below.
    pub fn inject(&self, port: PortId, frame: &[u8]) {
        self.inject_at(port, self.clock.now_ns(), frame);
    }

    /// Sends a frame from the far end of `port` when the clock reaches `at_ns`; now, if it has
    /// passed.
    pub fn inject_at(&self, port: PortId, at_ns: u64, frame: &[u8]) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.borrow_mut();
        state.injections += 1;
        let key = (at_ns.max(now_ns), state.injections);
        let end = &mut state.ends[port.index()];
        end.script.insert(key, frame.to_vec());
        end.step(now_ns);
    }

    /// Takes what has arrived at the far end of `port`, in order of arrival.
    pub fn collect(&self, port: PortId) -> Vec<Arrival> {
        let end = &mut self.state.borrow_mut().ends[port.index()];
        end.step(self.clock.now_ns());
        end.arrived.drain(..).collect()
    }

    /// Says that nothing will be injected any more: when all is received, the lane is exhausted.
    pub fn finish(&self) {
        self.state.borrow_mut().finished = true;
    }

    /// Takes the lane's interface of `port` away: nothing leaves by it any more, and when what has
    /// arrived is received, the lane ends with [`LaneError::Gone`](laneway_core::LaneError::Gone).
    /// Returns the name that the error tells.
    pub fn unplug(&self, port: PortId) -> String {
        self.state.borrow_mut().ends[port.index()].unplugged = true;
        interface_name(port)
    }

    /// Moves the clock forward; earlier times change nothing.
    pub fn advance_to(&self, now_ns: u64) {
        let now_ns = now_ns.max(self.clock.now_ns());
        self.clock.0.set(now_ns);
        self.state.borrow_mut().ends.iter_mut().for_each(|end| end.step(now_ns));
    }

    /// How one direction of the link of `port` treats frames.
    pub fn link(&self, port: PortId, direction: Direction) -> Link {
        self.state.borrow_mut().ends[port.index()].wire(direction).link
    }

    /// Changes one direction of the link of `port`, from the next frame on.
    ///
    /// # Panics
    /// If the MTU is beyond the spec's `mtu`: the lane's buffers were made for that.
    pub fn set_link(&self, port: PortId, direction: Direction, link: Link) {
        let mut state = self.state.borrow_mut();
        assert!(link.mtu <= state.mtu_max, "MTU {} beyond the spec's {}", link.mtu, state.mtu_max);
        state.ends[port.index()].wire(direction).link = link;
    }

    /// What one direction of the link of `port` did so far.
    pub fn link_counters(&self, port: PortId, direction: Direction) -> LinkCounters {
        self.state.borrow_mut().ends[port.index()].wire(direction).counters()
    }

    /// Lane: puts a frame on the wire to the far end of `port`; nothing if that is unplugged.
    pub(crate) fn send(&self, port: PortId, frame: &[u8]) -> Option<Entry> {
        let now_ns = self.clock.now_ns();
        let end = &mut self.state.borrow_mut().ends[port.index()];
        end.step(now_ns);
        (!end.unplugged).then(|| end.from_lane.offer(now_ns, frame))
    }

    /// Lane: the first port that is unplugged, if any.
    pub(crate) fn unplugged(&self) -> Option<PortId> {
        let position = self.state.borrow().ends.iter().position(|end| end.unplugged);
        position.map(|port| PortId(port as u32))
    }

    /// Lane: true when `port` is unplugged.
    pub(crate) fn is_unplugged(&self, port: PortId) -> bool {
        self.state.borrow().ends[port.index()].unplugged
    }

    /// Lane: takes up to `frames` frames that have arrived on `port`; `each` copies one out.
    pub(crate) fn take(&self, port: PortId, frames: usize, mut each: impl FnMut(u64, &[u8])) {
        let now_ns = self.clock.now_ns();
        let wire = &mut self.state.borrow_mut().ends[port.index()].to_lane;
        for _ in 0..frames {
            let Some(flight) = wire.take(now_ns) else { break };
            each(flight.at_ns, &flight.bytes);
            wire.recycle(flight.bytes);
        }
    }

    /// Lane: moves the clock to the next arrival at the lane, at most to `deadline_ns`. True when
    /// something is there to be received.
    pub(crate) fn advance_to_arrival(&self, deadline_ns: u64) -> bool {
        loop {
            let now_ns = self.clock.now_ns();
            self.advance_to(now_ns);
            let state = self.state.borrow();
            let arrivals = state.ends.iter().filter_map(|end| end.to_lane.next_at_ns());
            if arrivals.min().is_some_and(|at_ns| at_ns <= now_ns) {
                return true;
            }
            let next_ns = state.ends.iter().filter_map(End::next_at_ns).min();
            drop(state);
            let Some(next_ns) = next_ns.filter(|&at_ns| at_ns <= deadline_ns) else {
                self.advance_to(deadline_ns);
                return false;
            };
            // Strictly later than now: step has emptied the script up to now, and nothing has
            // arrived. So the loop ends.
            self.advance_to(next_ns);
        }
    }

    /// Lane: true when nothing will ever be received any more.
    pub(crate) fn exhausted(&self) -> bool {
        let state = self.state.borrow();
        state.finished && state.ends.iter().all(|end| end.next_at_ns().is_none())
    }
}

/// What errors call the lane's interface of `port`.
pub(crate) fn interface_name(port: PortId) -> String {
    format!("link{}", port.0)
}
