//! Over real cables: what is sent into the far end of one comes out of the far end of the other, byte
//! for byte as the mode says, on `packet`, `afxdp` and `xdp`.

use crate::cables::{FarEnds, NEAR, World, on_frames, on_xdp};
use crate::expected::{MODES, after, config, frames, to_port};
use laneway_afxdp::AfXdp;
use laneway_core::KernelApp;
use laneway_engine::{Control, MonotonicClock, run_kernel};
use laneway_forward::{Commit, Config, Fate, Forward, Hits, KernelForward, Mode, RuleSet, Stats};
use laneway_netns::interface_state;
use laneway_packet::{OpenOptions, PacketLane};
use laneway_spec::IdlePolicy;
use laneway_xdp::XdpLane;
use std::{sync::mpsc::Sender, thread, time::Duration};

/// Frames into each end: no more than a veth queue holds.
const FRAMES: usize = 60;
/// How often a commit is tried, with a millisecond in between.
const COMMITS_MAX: usize = 5000;

fn check_modes(lane: &str, run: impl Fn(&Config, &Control, Sender<()>) -> Stats + Sync) {
    let Some(world) = World::new() else { return };
    let sent = frames(FRAMES);
    for mode in MODES {
        let config = config(mode);
        let (stats, received) = world.run(
            |control, ready| run(&config, control, ready),
            |far| {
                (0..).zip(&sent).for_each(|(port, sent)| far.send(port, sent));
                far.collect(2 * FRAMES)
            },
        );
        for (egress, received) in received.iter().enumerate() {
            let expected: Vec<_> =
                sent[1 - egress].iter().map(|f| after(mode, egress, f)).collect();
            assert_eq!(received.len(), expected.len(), "{lane} {mode:?}: out of port {egress}");
            assert!(*received == expected, "{lane} {mode:?}: out of port {egress}");
        }
        assert_eq!(stats.frames(Fate::Forwarded), 2 * FRAMES as u64, "{lane} {mode:?}");
    }
}

#[test]
fn frames_cross_on_packet() {
    check_modes("packet", |config, control, ready| {
        let app = Forward::new(config.clone()).expect("it can run");
        let spec = "packet".parse().expect("a spec");
        let lane = PacketLane::open(&spec, &NEAR, OpenOptions::default());
        on_frames(lane, app, control, &ready)
    });
}

#[test]
fn frames_cross_on_afxdp() {
    check_modes("afxdp", |config, control, ready| {
        let app = Forward::new(config.clone()).expect("it can run");
        let spec = "afxdp".parse().expect("a spec");
        on_frames(AfXdp::open(&spec, &NEAR, false), app, control, &ready)
    });
}

#[test]
fn frames_cross_on_xdp() {
    check_modes("xdp", |config, control, ready| {
        let mut set = RuleSet::for_kernel(config.bounds());
        on_xdp(config, set.kernel_feed(), control, &ready)
    });
}

#[test]
fn rules_decide_in_the_kernel_and_change_under_way() {
    let Some(world) = World::new() else { return };
    let config = config(Mode::Io);
    let mut set = RuleSet::for_kernel(config.bounds());
    let drop =
        "flow create 0 ingress pattern ipv4 / udp dst is 53 / end actions drop / count / end";
    let back = "flow create 0 ingress pattern udp dst is 99 / end actions port_id id 0 / end";
    for line in [drop, back] {
        set.run(line).unwrap_or_else(|e| panic!("{e}"));
    }
    set.commit();
    let ifindexes = world
        .near
        .enter(|| NEAR.map(|name| interface_state(name).unwrap_or_else(|e| panic!("{e}")).ifindex));
    let ifindexes = ifindexes.unwrap_or_else(|e| panic!("{e}"));
    let feed = set.kernel_feed();
    let mut app = KernelForward::new(&config, &ifindexes, feed).unwrap_or_else(|e| panic!("{e}"));
    let (_, set) = world.run(
        move |control, ready| {
            let spec = "xdp:native".parse().expect("a spec");
            let options = laneway_xdp::Options::default();
            let mut lane =
                XdpLane::open(&spec, &NEAR, app.half(), options).unwrap_or_else(|e| panic!("{e}"));
            ready.send(()).expect("the far side waits");
            let idle = IdlePolicy::Block;
            run_kernel(&mut lane, &mut app, &MonotonicClock, idle, control)
                .unwrap_or_else(|e| panic!("{e}"));
        },
        move |far| {
            // Behind the frames goes one that no rule looks at: when it is there, nothing is under way.
            let counts = |far: &mut FarEnds, sent: &[Vec<u8>], expected: usize| {
                far.send(0, sent);
                far.send(0, &to_port(4000, 1));
                let [back, through] = far.collect(expected + 1).map(|received| received.len());
                [back, through.saturating_sub(1)]
            };
            assert_eq!(counts(far, &to_port(53, 20), 0), [0, 0], "dropped");
            assert_eq!(counts(far, &to_port(99, 20), 20), [20, 0], "sent back");
            assert_eq!(counts(far, &to_port(7, 20), 20), [0, 20], "the mode decides");
            set.run("flow destroy 0 rule 0").unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(set.commit(), Commit::Done);
            // The next commit waits until this one is in force.
            set.run("flow create 1 ingress pattern end actions drop / end").expect("a rule");
            let taken = (0..COMMITS_MAX).any(|_| {
                thread::sleep(Duration::from_millis(1));
                set.commit() == Commit::Done
            });
            assert!(taken, "the tick takes it");
            assert_eq!(counts(far, &to_port(53, 20), 20), [0, 20], "no rule any more");
            set
        },
    );
    assert_eq!(set.hits(0, 1).expect("there"), Hits { frames: 20, bytes: 20 * 64 });
}
