//! The conformance suite is worth its name: each planted fault of a lane fails the behaviour that
//! names it.

use laneway_core::{
    Bell, Burst, CapsReport, Clock, ClockDomain, Counters, DropReason, FrameLane, Lane, LaneError,
    PortId, Region, Verdict, Wake,
};
use laneway_sim::{Direction, Link, SimLane, SimWorld};
use laneway_spec::LaneSpec;
use laneway_testkit::{Disturbance, Overload, Properties, Rig, UdpFrame, conformance::*};
use std::{cell::Cell, panic::AssertUnwindSafe, rc::Rc, time::Duration};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Every 30th received frame is damaged.
    Damages,
    /// An empty receive sleeps.
    Blocks,
    /// Wait claims that frames are there.
    NeverTimesOut,
    /// Sends frames that it was not given to send.
    Babbles,
    /// Every receive keeps a buffer for itself.
    Leaks,
    /// Counts one frame too many.
    Miscounts,
    /// Ignores `burst=` and misspelt knobs: opens with its defaults.
    IgnoresKnobs,
    /// Forgets what the link lost.
    HidesLoss,
    /// Gives empty bursts when the interface is gone.
    NeverEnds,
    /// Says that frames may be there, and at once, when the interface is gone.
    Spins,
    /// Starts counting anew when the interface is gone.
    Forgets,
    /// Does not count frames beyond the MTU.
    HidesTooLong,
    /// Waits a thousand times as long as it may.
    Oversleeps,
    /// Hears no bell.
    IsDeaf,
}

struct FaultyLane {
    inner: SimLane,
    fault: Fault,
    received: usize,
    world: SimWorld,
    is_gone: Rc<Cell<bool>>,
    nothing: Burst,
}

impl FaultyLane {
    fn hides_the_end(&self) -> bool {
        self.is_gone.get() && matches!(self.fault, Fault::NeverEnds | Fault::Spins)
    }
}

impl Lane for FaultyLane {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn ports(&self) -> usize {
        self.inner.ports()
    }

    fn clock_domain(&self) -> ClockDomain {
        self.inner.clock_domain()
    }

    fn hear(&mut self, bell: &Bell) {
        if self.fault != Fault::IsDeaf {
            self.inner.hear(bell);
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        if self.fault == Fault::NeverEnds && self.is_gone.get() {
            self.world.advance_to(self.world.clock().now_ns() + timeout.as_nanos() as u64);
            return Ok(Wake::Timeout);
        }
        let factor = if self.fault == Fault::Oversleeps { 1000 } else { 1 };
        let wake = self.inner.wait(timeout * factor)?;
        Ok(if self.fault == Fault::NeverTimesOut { Wake::Ready } else { wake })
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        self.inner.caps(port)
    }

    fn counters(&mut self, port: PortId) -> Counters {
        let mut counters = self.inner.counters(port);
        match self.fault {
            Fault::Miscounts => counters.rx_frames += 1,
            Fault::HidesLoss => {
                counters.set_drops(DropReason::LinkQueueFull, 0);
            }
            Fault::Forgets if self.is_gone.get() => counters = Counters::default(),
            Fault::HidesTooLong => counters.set_drops(DropReason::TxTooLong, 0),
            _ => (),
        }
        counters
    }
}

impl FrameLane for FaultyLane {
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        if self.hides_the_end() {
            // Time goes on, or the test would not.
            self.world.advance_to(self.world.clock().now_ns() + 10_000);
            return Ok(&mut self.nothing);
        }
        if self.fault == Fault::Leaks {
            self.inner.lend(port, 1)?.clear();
        }
        let burst = self.inner.receive(port)?;
        for i in 0..burst.len() {
            self.received += 1;
            if self.fault == Fault::Damages && self.received.is_multiple_of(30) {
                burst.frame_mut(i).bytes_mut()[20] ^= 1;
            }
        }
        if self.fault == Fault::Blocks && burst.is_empty() {
            std::thread::sleep(Duration::from_micros(1));
        }
        Ok(burst)
    }

    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        self.inner.lend(port, frames)
    }

    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        self.inner.settle(port)?;
        if self.fault == Fault::Babbles {
            let burst = self.inner.lend(port, 1)?;
            if !burst.is_empty() {
                let stray = UdpFrame::default().build();
                assert!(burst.frame_mut(0).set_len(stray.len()));
                burst.frame_mut(0).bytes_mut().copy_from_slice(&stray);
                burst.set_verdict(0, Verdict::Tx);
            }
            self.inner.settle(port)?;
        }
        Ok(())
    }
}

struct FaultyRig {
    fault: Fault,
    world: Option<SimWorld>,
    is_gone: Rc<Cell<bool>>,
}

impl FaultyRig {
    fn world(&self) -> &SimWorld {
        self.world.as_ref().expect("opened first")
    }
}

impl Rig for FaultyRig {
    type Lane = FaultyLane;

    fn properties(&self) -> Properties {
        Properties {
            spec: "sim",
            transmits: true,
            ports_max: 2,
            live: true,
            inject_frames_max: 32,
            frame_bytes_max: 1514,
            small_pool: ("frames=64", 64),
            overload: Some(Overload { knobs: "queue=100", frames: 500 }),
            impossible: None,
        }
    }

    fn open(&mut self, spec: &LaneSpec, ports: usize) -> Result<FaultyLane, LaneError> {
        let spec = match self.fault {
            Fault::IgnoresKnobs => "sim".parse()?,
            _ => spec.clone(),
        };
        let (inner, world) = SimLane::open(&spec, ports)?;
        self.world = Some(world.clone());
        self.is_gone = Rc::default();
        Ok(FaultyLane {
            inner,
            fault: self.fault,
            received: 0,
            world,
            is_gone: self.is_gone.clone(),
            nothing: Burst::new(Region::heap(64), 1),
        })
    }

    fn inject(&mut self, port: PortId, frames: &[Vec<u8>]) {
        frames.iter().for_each(|frame| self.world().inject(port, frame));
    }

    fn collect(&mut self, port: PortId, _expected: usize) -> Vec<Vec<u8>> {
        self.world().collect(port).into_iter().map(|arrival| arrival.bytes).collect()
    }

    fn clock(&self) -> Box<dyn Clock> {
        Box::new(self.world().clock())
    }

    fn disturb(&mut self, port: PortId, how: Disturbance) -> Result<String, String> {
        match how {
            Disturbance::Remove => {
                self.is_gone.set(true);
                Ok(self.world().unplug(port))
            }
            Disturbance::Mtu(mtu) => {
                let link = self.world().link(port, Direction::FromLane);
                self.world().set_link(port, Direction::FromLane, Link { mtu, ..link });
                Ok(String::new())
            }
            Disturbance::Down | Disturbance::Up => Err("not simulated".to_owned()),
        }
    }
}

type Behaviour = fn(&mut FaultyRig);

const CAUGHT_BY: &[(Fault, Behaviour)] = &[
    (Fault::Damages, frames_arrive_unchanged_and_in_order),
    (Fault::Blocks, an_empty_receive_returns_at_once),
    (Fault::NeverTimesOut, wait_is_ready_with_traffic_and_times_out_without),
    (Fault::Babbles, only_frames_with_a_verdict_to_leave_leave),
    (Fault::Leaks, no_buffer_leaks),
    (Fault::Miscounts, counters_match_what_was_seen),
    (Fault::IgnoresKnobs, a_burst_never_exceeds_its_knob),
    (Fault::IgnoresKnobs, an_unknown_knob_is_refused_with_a_suggestion),
    (Fault::IgnoresKnobs, every_idle_policy_is_accepted),
    (Fault::HidesLoss, the_ledger_closes_when_the_lane_is_overrun),
    (Fault::NeverEnds, a_removed_interface_ends_the_lane),
    (Fault::Spins, a_removed_interface_ends_the_lane),
    (Fault::Forgets, a_removed_interface_ends_the_lane),
    (Fault::HidesTooLong, a_changed_mtu_loses_no_frame_silently),
    (Fault::Oversleeps, a_request_to_stop_ends_a_blocked_worker),
    (Fault::IsDeaf, a_bell_rung_before_a_wait_ends_it),
    (Fault::IsDeaf, a_bell_rung_during_a_wait_ends_it),
];

fn passes(fault: Fault, behaviour: Behaviour) -> bool {
    let run = AssertUnwindSafe(|| {
        behaviour(&mut FaultyRig { fault, world: None, is_gone: Rc::default() })
    });
    std::panic::catch_unwind(run).is_ok()
}

#[test]
fn each_planted_fault_fails_the_behaviour_that_names_it() {
    for (i, &(fault, behaviour)) in CAUGHT_BY.iter().enumerate() {
        assert!(passes(Fault::None, behaviour), "row {i} fails without a fault");
        assert!(!passes(fault, behaviour), "row {i}: {fault:?} is not caught");
    }
}
