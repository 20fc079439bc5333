//! A worker that never sleeps: its ports look instead of being armed, lose nothing by that, and are
//! armed again when it does sleep.

use crate::{frames_world, steady::Echo, world::World};
use laneway_core::{CapsReport, DatagramLane, FrameLane, Lane, PortId, Verdict, Wake};
use laneway_testkit::{service::MonotonicClock, skip, udp_frames};
use laneway_uring::{UringFrames, UringUdp};
use std::{thread, time::Duration};

const PORT: PortId = PortId(0);
/// Exchanges: many times those after which a port is busy.
const EXCHANGES: u8 = 250;
/// Turns until what was sent has come back; it crosses within the call that sends it, or a soft
/// interrupt later.
const TURNS_MAX: usize = 1_000_000;
/// Long enough for the worker to be asleep when a frame is sent; nothing is asserted about it.
const ASLEEP: Duration = Duration::from_millis(20);
/// A bound on a wait that is to be ended by an arrival.
const PATIENCE: Duration = Duration::from_secs(20);

fn looks(caps: &CapsReport) -> u64 {
    caps.facts["looks"].parse().expect("a number")
}

#[test]
fn a_busy_datagram_port_looks_and_a_resting_one_is_woken() {
    let Some(world) = World::new().map_err(skip).ok() else { return };
    for text in ["uring", "uring:gso,gro", "uring:depth=2,buffers=2"] {
        let (mut lane, far) = world.udp(text);
        let (near, mut app) = (lane.local_addr(PORT), Echo::default());
        let mut back = [0; 2048];
        let mut exchange = |lane: &mut UringUdp, n: u8| {
            far.send_to(&[n; 300], near).expect("the far end sends");
            let mut answers = 0;
            for _ in 0..TURNS_MAX {
                lane.serve(&mut app, &MonotonicClock).expect("the lane serves");
                while let Ok(bytes) = far.recv(&mut back) {
                    // The datagram itself, then one of the app's own.
                    let expected: &[u8] = if answers == 0 { &[n; 300] } else { &[1; 16] };
                    assert_eq!(&back[..bytes], expected, "{text}: answer {answers} to {n}");
                    answers += 1;
                }
                if answers == 2 {
                    return;
                }
            }
            panic!("{text}: {answers} answers to datagram {n}");
        };
        (0..EXCHANGES).for_each(|n| exchange(&mut lane, n));
        lane.counters(PORT);
        let busy = looks(lane.caps(PORT));
        assert!(busy > 0, "{text}: it never looked");

        // Asleep it is armed: what comes wakes it, and no look takes it.
        for n in 0..3 {
            assert_eq!(lane.wait(Duration::ZERO).expect("it waits"), Wake::Timeout, "{text}");
            far.send_to(&[n; 300], near).expect("the far end sends");
            assert_eq!(lane.wait(PATIENCE).expect("it waits"), Wake::Ready, "{text}");
            assert_eq!(lane.serve(&mut app, &MonotonicClock).expect("it serves"), 1, "{text}");
            while far.recv(&mut back).is_ok() {}
        }
        let counters = lane.counters(PORT);
        assert_eq!(looks(lane.caps(PORT)), busy, "{text}: it looked between rests");
        let exchanged = u64::from(EXCHANGES) + 3;
        assert_eq!((counters.rx_frames, counters.tx_frames), (exchanged, 2 * exchanged), "{text}");
        assert_eq!(counters.lost(), 0, "{text}");
    }
}

#[test]
fn a_busy_frame_port_looks_and_a_resting_one_is_woken() {
    let Some(mut world) = frames_world::World::new().map_err(skip).ok() else { return };
    for text in ["uring", "uring:depth=4,buffers=2"] {
        let spec = text.parse().expect("well formed");
        let mut lane = world.open(&spec, 1).unwrap_or_else(|e| panic!("`{text}`: {e}"));
        let frames = udp_frames(0, 1, 200);
        let take = |lane: &mut UringFrames, turns: usize| {
            let mut seen = 0;
            for _ in 0..turns {
                let burst = lane.receive(PORT).expect("the lane receives");
                seen += burst.len();
                for i in 0..burst.len() {
                    assert_eq!(burst.frame(i).bytes, frames[0], "{text}");
                    burst.set_verdict(i, Verdict::Drop);
                }
                lane.settle(PORT).expect("the lane settles");
                if seen > 0 {
                    break;
                }
            }
            seen
        };
        for _ in 0..EXCHANGES {
            world.far_ends[0].send(&frames);
            assert_eq!(take(&mut lane, TURNS_MAX), 1, "{text}");
        }
        lane.counters(PORT);
        let busy = looks(lane.caps(PORT));
        assert!(busy > 0, "{text}: it never looked");
        for _ in 0..3 {
            let far = &world.far_ends[0];
            let wake = thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(ASLEEP);
                    far.send(&frames);
                });
                lane.wait(PATIENCE).expect("it waits")
            });
            assert_eq!(wake, Wake::Ready, "{text}");
            assert_eq!(take(&mut lane, 1), 1, "{text}");
        }
        let counters = lane.counters(PORT);
        assert_eq!((counters.rx_frames, counters.lost()), (u64::from(EXCHANGES) + 3, 0), "{text}");
    }
}
