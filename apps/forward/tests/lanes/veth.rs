//! Over real cables: what is sent into the far end of one comes out of the far end of the other, byte
//! for byte as the mode says, on `packet`, `afxdp` and `xdp`.
//!
//! Two cables between a near namespace, where the app runs, and a far one, where plain packet sockets
//! send and receive. Everything disappears with the world.

use crate::expected::{MODES, after, config, frames, to_port};
use laneway_afxdp::AfXdp;
use laneway_core::{FrameLane, IdlePolicy, KernelApp, LaneError, PortId, Verdict};
use laneway_engine::{Control, MonotonicClock, UnixClock, run_frames, run_kernel};
use laneway_forward::{Commit, Config, Fate, Forward, Hits, KernelForward, Mode, RuleSet};
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create, interface_state};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_testkit::skip;
use laneway_xdp::{PassGuard, XdpLane};
use std::{
    sync::mpsc::{self, Sender},
    thread,
    time::Duration,
};

const NEAR: [&str; 2] = ["near0", "near1"];
const FAR: [&str; 2] = ["far0", "far1"];
/// Frames into each end: no more than a veth queue holds.
const FRAMES: usize = 60;
/// Waits in vain of 20 ms before the far end gives up.
const WAITS_MAX: usize = 25;
/// How often a commit is tried, with a millisecond in between.
const COMMITS_MAX: usize = 5000;

struct World {
    _cables: Vec<VethPair>,
    near: Namespace,
    far: Namespace,
}

impl World {
    /// Builds it; `None`, and says so, where that cannot be done.
    fn new() -> Option<World> {
        if let Err(error) = can_create() {
            skip(error);
            return None;
        }
        Some(World::build().unwrap_or_else(|e| panic!("{e}")))
    }

    fn build() -> Result<World, laneway_netns::Error> {
        let near = Namespace::create("forward-near")?;
        let far = Namespace::create("forward-far")?;
        let cable = |port: usize| {
            let end = |side: u8| VethEnd {
                mac: Mac([0x02, 0x4c, 0x57, 0x30, side, port as u8]),
                addresses: Vec::new(),
                ..VethOptions::default().a
            };
            let options = VethOptions { a: end(0), b: end(1), ..VethOptions::default() };
            VethPair::create(&near, NEAR[port], &far, FAR[port], &options)
        };
        let _cables = vec![cable(0)?, cable(1)?];
        Ok(World { _cables, near, far })
    }

    /// Runs the near side until the far side is done with sending and looking. `near` says by the
    /// sender when it is ready.
    fn run<T: Send, R: Send>(
        &self,
        near: impl FnOnce(&Control, Sender<()>) -> T + Send,
        far: impl FnOnce(&mut FarEnds) -> R + Send,
    ) -> (T, R) {
        let control = Control::default();
        let (ready, is_ready) = mpsc::channel();
        thread::scope(|scope| {
            let inside = control.clone();
            let worker = scope.spawn(move || {
                self.near.enter(|| near(&inside, ready)).unwrap_or_else(|e| panic!("{e}"))
            });
            let seen = self.far.enter(move || {
                // A veth end to which frames are redirected takes them only with a program of its own.
                let _guards = FAR.map(PassGuard::attach);
                let mut ends = FarEnds::open();
                is_ready.recv().ok().map(|()| far(&mut ends))
            });
            control.stop.request();
            let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let seen = seen.unwrap_or_else(|e| panic!("{e}"));
            (done, seen.expect("the near side says that it is ready or panics"))
        })
    }
}

/// The far ends of both cables.
struct FarEnds(PacketLane);

impl FarEnds {
    fn open() -> FarEnds {
        let spec = "packet".parse().expect("a spec");
        let lane = PacketLane::open(&spec, &FAR, OpenOptions::default());
        FarEnds(lane.unwrap_or_else(|e| panic!("{e}")))
    }

    fn send(&mut self, port: u8, mut frames: &[Vec<u8>]) {
        let port = PortId(port);
        while !frames.is_empty() {
            let burst = self.0.lend(port, frames.len()).unwrap_or_else(|e| panic!("{e}"));
            let sent = burst.len().min(frames.len());
            for (i, bytes) in frames[..sent].iter().enumerate() {
                let mut frame = burst.frame_mut(i);
                assert!(frame.set_len(bytes.len()));
                frame.bytes_mut().copy_from_slice(bytes);
                frame.set_verdict(Verdict::Tx);
            }
            frames = &frames[sent..];
            self.0.settle(port).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// What comes, by port, until there are as many frames as expected or patience ends.
    fn collect(&mut self, expected: usize) -> [Vec<Vec<u8>>; 2] {
        let mut received = [Vec::new(), Vec::new()];
        let mut waits = 0;
        while received.iter().map(Vec::len).sum::<usize>() < expected && waits < WAITS_MAX {
            let mut found = false;
            for (port, received) in (0..).zip(&mut received) {
                let burst = self.0.receive(PortId(port)).unwrap_or_else(|e| panic!("{e}"));
                found |= !burst.is_empty();
                received.extend((0..burst.len()).map(|i| burst.frame(i).bytes.to_vec()));
                self.0.settle(PortId(port)).unwrap_or_else(|e| panic!("{e}"));
            }
            if !found {
                waits += 1;
                self.0.wait(Duration::from_millis(20)).unwrap_or_else(|e| panic!("{e}"));
            }
        }
        received
    }
}

/// The app on a frame lane; what its counters say at the end.
fn on_frames<L: FrameLane>(
    lane: Result<L, LaneError>,
    mut app: Forward,
    control: &Control,
    ready: &Sender<()>,
) -> u64 {
    let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
    ready.send(()).expect("the far side waits");
    let run = match lane.clock_domain() {
        laneway_core::ClockDomain::Unix => {
            run_frames(&mut lane, &mut app, &UnixClock::default(), IdlePolicy::Block, control)
        }
        _ => run_frames(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Block, control),
    };
    run.unwrap_or_else(|e| panic!("{e}"));
    app.stats().frames(Fate::Forwarded)
}

fn check_modes(lane: &str, run: impl Fn(&Config, &Control, Sender<()>) -> u64 + Sync) {
    let Some(world) = World::new() else { return };
    let sent = frames(FRAMES);
    for mode in MODES {
        let config = config(mode);
        let (forwarded, received) = world.run(
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
        assert_eq!(forwarded, 2 * FRAMES as u64, "{lane} {mode:?}");
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

/// The kernel half at work; its user side at the end.
fn on_xdp(
    config: &Config,
    set: &mut RuleSet,
    control: &Control,
    ready: &Sender<()>,
) -> KernelForward {
    let ifindexes =
        NEAR.map(|name| interface_state(name).unwrap_or_else(|e| panic!("{e}")).ifindex);
    let feed = set.kernel_feed();
    let mut app = KernelForward::new(config, &ifindexes, feed).unwrap_or_else(|e| panic!("{e}"));
    let spec = "xdp:native".parse().expect("a spec");
    let lane = XdpLane::open(&spec, &NEAR, app.half(), laneway_xdp::Options::default());
    let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
    ready.send(()).expect("the far side waits");
    let run = run_kernel(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Block, control);
    run.unwrap_or_else(|e| panic!("{e}"));
    assert!(app.failure().is_none(), "{:?}", app.failure());
    app
}

#[test]
fn frames_cross_on_xdp() {
    check_modes("xdp", |config, control, ready| {
        let mut set = RuleSet::for_kernel(config.bounds());
        on_xdp(config, &mut set, control, &ready).stats().frames(Fate::Forwarded)
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
            let counts = |far: &mut FarEnds, sent: &[Vec<u8>], expected| {
                far.send(0, sent);
                far.collect(expected).map(|received| received.len())
            };
            assert_eq!(counts(far, &to_port(53, 20), 20), [0, 0], "dropped");
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
