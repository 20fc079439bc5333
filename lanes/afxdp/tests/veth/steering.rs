//! Several workers on one interface of two queues: flows, what is attached, and which worker ends what.

use crate::{
    cables::{NEAR, give_up_capabilities},
    world::World,
};
use laneway_afxdp::{AfXdp, Steering};
use laneway_bpf::{Attachment, attachment};
use laneway_core::{FrameLane, Lane, LaneError, PortId};
use laneway_spec::LaneSpec;
use laneway_testkit::{
    UdpFrame,
    conformance::{WorkersRig, flows_stay_with_one_worker},
    sequence, skip, udp_frames,
};
use std::time::Duration;

const PORT: PortId = PortId(0);
/// Waits of 10 ms that a test is ready to do for its frames.
const TURNS_MAX: usize = 3000;
const TURN: Duration = Duration::from_millis(10);
const NOTHING: Attachment = Attachment { native: None, generic: None, offloaded: None };

fn spec(text: &str) -> LaneSpec {
    text.parse().expect("a spec")
}

/// A world of `cables` cables with two queues each, or a skip that says why not.
macro_rules! two_queues {
    ($cables:expr) => {
        match World::new($cables, 1500, 2) {
            Ok(world) => world,
            Err(reason) => return skip(reason),
        }
    };
}

fn steer(text: &str) -> Steering {
    Steering::attach(&spec(text), &NEAR[..1], 2, false).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn worker(steering: &Steering, worker: usize) -> AfXdp {
    AfXdp::open_steered(steering, worker).unwrap_or_else(|e| panic!("worker {worker}: {e}"))
}

/// Frames of ours that the lanes have received when there are `expected` of them and nothing more
/// comes for some turns.
fn received(lanes: &mut [&mut AfXdp], expected: usize) -> Vec<u64> {
    const QUIET_TURNS: usize = 5;
    let (mut seen, mut quiet) = (Vec::new(), 0);
    for _ in 0..TURNS_MAX {
        if quiet == QUIET_TURNS {
            break;
        }
        let before = seen.len();
        for lane in &mut *lanes {
            lane.wait(TURN).expect("the interface is there");
            let burst = lane.receive(PORT).expect("the interface is there");
            seen.extend((0..burst.len()).filter_map(|i| sequence(burst.frame(i).bytes)));
            lane.settle(PORT).expect("the interface is there");
        }
        quiet = if seen.len() > before || seen.len() < expected { 0 } else { quiet + 1 };
    }
    seen
}

/// One frame of each of 64 flows.
fn flows() -> Vec<Vec<u8>> {
    let flow = |i: u16| UdpFrame {
        sequence: u64::from(i),
        source_port: 2000 + 13 * i,
        ..UdpFrame::default()
    };
    (0..64).map(|i| flow(i).build()).collect()
}

struct SteeredRig<'a> {
    world: &'a World,
    steering: Steering,
}

impl WorkersRig for SteeredRig<'_> {
    type Lane = AfXdp;

    fn open(&self, worker: usize) -> Result<AfXdp, LaneError> {
        AfXdp::open_steered(&self.steering, worker)
    }

    fn inject(&self, frames: &[Vec<u8>]) {
        self.world.inject(0, frames);
    }
}

#[test]
fn workers_share_an_interface_and_leave_nothing_behind() {
    let world = two_queues!(1);
    for text in ["afxdp", "afxdp:sg,busy_poll=20,need_wakeup=off"] {
        flows_stay_with_one_worker(&SteeredRig { world: &world, steering: steer(text) });
        assert_eq!(attachment(NEAR[0]).unwrap(), NOTHING, "{text}");
    }
}

#[test]
fn in_generic_mode_workers_share_what_the_core_says_of_queues() {
    let world = two_queues!(1);
    let steering = steer("afxdp:generic");
    let mut lanes = [worker(&steering, 0), worker(&steering, 1)];
    world.inject(0, &flows());
    // On veth the core is given no queue and takes the first one.
    let mut seen = received(&mut lanes.each_mut(), 64);
    seen.sort_unstable();
    assert_eq!(seen, (0..64).collect::<Vec<u64>>());
    drop((lanes, steering));
    assert_eq!(attachment(NEAR[0]).unwrap(), NOTHING);
}

#[test]
fn the_program_stays_until_the_last_of_its_users_is_gone() {
    let world = two_queues!(1);
    let steering = steer("afxdp");
    let id = attachment(NEAR[0]).unwrap().native.expect("attached before any worker opens");
    let mut one = worker(&steering, 0);
    let two = worker(&steering, 1);
    for (lane, queue) in [(&one, "0"), (&two, "1")] {
        let facts = &lane.caps(PORT).facts;
        assert_eq!((&*facts["queue"], &*facts["rx_queues"]), (queue, "2"));
        assert!(lane.caps(PORT).notes.is_empty(), "both queues are served");
        assert_eq!(
            (&*facts["xdp_program_id"], &*facts["xdp_program_shared"]),
            (&*id.to_string(), "yes")
        );
    }
    drop(steering);
    drop(two);
    assert_eq!(attachment(NEAR[0]).unwrap().native, Some(id));
    // The frames of the queue that was left go to the stack, those of the other still arrive.
    world.inject(0, &flows());
    let seen = received(&mut [&mut one], 1);
    assert!(!seen.is_empty() && seen.len() < 64, "{} of 64 flows", seen.len());
    drop(one);
    assert_eq!(attachment(NEAR[0]).unwrap(), NOTHING);
}

#[test]
fn a_worker_that_comes_back_gets_its_queue_again() {
    let world = two_queues!(1);
    let steering = steer("afxdp");
    let mut one = worker(&steering, 0);
    for _ in 0..2 {
        let mut two = worker(&steering, 1);
        world.inject(0, &flows());
        let mut seen = received(&mut [&mut one, &mut two], 64);
        seen.sort_unstable();
        assert_eq!(seen, (0..64).collect::<Vec<u64>>());
        assert_eq!(one.counters(PORT).lost() + two.counters(PORT).lost(), 0);
    }
}

#[test]
fn a_queue_serves_one_worker() {
    let _world = two_queues!(1);
    let steering = steer("afxdp");
    let _first = worker(&steering, 1);
    let error = AfXdp::open_steered(&steering, 1).err().expect("the queue is taken");
    assert!(matches!(&error, LaneError::Busy { name, .. } if name == NEAR[0]), "{error}");
    assert!(error.to_string().contains("queue 1"), "{error}");
    // The attempt has taken nothing from the lane that was there first.
    assert!(AfXdp::open_steered(&steering, 0).is_ok());
}

#[test]
fn a_worker_too_many_is_refused_with_the_number_of_queues() {
    let _world = two_queues!(1);
    let steering = steer("afxdp:queue=1");
    let _only = worker(&steering, 0);
    let refusal = |worker| AfXdp::open_steered(&steering, worker).err().expect("no queue");
    let message = refusal(1).to_string();
    assert!(message.contains("`near0`: it has 2 receive queues, so no queue 2"), "{message}");
    for worker in [63, usize::MAX] {
        let message = refusal(worker).to_string();
        assert!(message.contains("64 queues") && message.contains("fewer workers"), "{message}");
    }
}

#[test]
fn two_steerings_of_one_interface_do_not_fit() {
    let _world = two_queues!(1);
    let _first = steer("afxdp");
    for second in [
        Steering::attach(&spec("afxdp"), &NEAR[..1], 2, false).err(),
        AfXdp::open(&spec("afxdp:queue=1"), &NEAR[..1], false).err(),
    ] {
        assert!(matches!(second, Some(LaneError::Busy { .. })), "{second:?}");
    }
}

#[test]
fn steering_of_several_interfaces_gives_each_worker_a_port_on_each() {
    let world = two_queues!(2);
    let steering = Steering::attach(&spec("afxdp"), &NEAR[..2], 2, false).unwrap();
    let mut lane = worker(&steering, 1);
    assert_eq!(lane.ports(), 2);
    drop(worker(&steering, 0));
    world.inject(1, &flows());
    let mut seen = 0;
    for _ in 0..TURNS_MAX {
        lane.wait(TURN).unwrap();
        seen += lane.receive(PortId(1)).unwrap().len();
        lane.settle(PortId(1)).unwrap();
        if seen > 0 {
            break;
        }
    }
    assert!(seen > 0, "no flow arrived by queue 1 of the second interface");
}

#[test]
fn an_interface_that_goes_ends_every_worker() {
    let mut world = two_queues!(1);
    let steering = steer("afxdp");
    let mut lanes = [worker(&steering, 0), worker(&steering, 1)];
    world.disturb(PortId(0), laneway_testkit::Disturbance::Remove);
    for lane in &mut lanes {
        let error = lane.wait(Duration::from_secs(60)).err();
        assert!(
            matches!(&error, Some(LaneError::Gone { name, .. }) if name == NEAR[0]),
            "{error:?}"
        );
    }
    let error = AfXdp::open_steered(&steering, 0).err();
    assert!(matches!(error, Some(LaneError::NotFound { .. })), "{error:?}");
}

#[test]
fn steering_is_refused_for_the_same_reasons_as_a_lane() {
    let world = two_queues!(1);
    let refusal = |text: &str, names: &[&str]| {
        Steering::attach(&spec(text), names, 2, false).err().expect(text).to_string()
    };
    assert!(refusal("afxdp", &["nowhere0"]).contains("no interface `nowhere0`"));
    assert!(refusal("afxdp", &[]).contains("no interface was given"));
    assert!(refusal("afxdp:queue=2", &NEAR[..1]).contains("no queue 2"));
    assert!(refusal("afxdp:frames=1", &NEAR[..1]).contains("umem too small"));
    let unprivileged = std::thread::spawn(|| {
        give_up_capabilities();
        Steering::attach(&spec("afxdp"), &NEAR[..1], 2, false).err()
    });
    let unprivileged = unprivileged.join().expect("no panic");
    assert!(matches!(unprivileged, Some(LaneError::NotPermitted { .. })), "{unprivileged:?}");
    assert_eq!(attachment(NEAR[0]).unwrap(), NOTHING);
    // No lane is open: what arrives goes to the stack, and nothing is in the way of a plain lane.
    world.inject(0, &udp_frames(0, 4, 64));
    assert!(AfXdp::open(&spec("afxdp"), &NEAR[..1], false).is_ok());
}
