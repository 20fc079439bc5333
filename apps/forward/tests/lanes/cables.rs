//! Two cables between a near namespace, where the app runs, and a far one, where plain packet sockets
//! send and receive. Everything disappears with the world.

use laneway_core::{FrameLane, KernelApp, Lane, LaneError, PortId, Verdict};
use laneway_engine::{Control, MonotonicClock, UnixClock, run_frames, run_kernel};
use laneway_forward::{Config, Forward, KernelFeed, KernelForward, Stats};
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create, interface_state};
use laneway_packet::{OpenOptions, PacketLane};
use laneway_spec::IdlePolicy;
use laneway_testkit::skip;
use laneway_xdp::{PassGuard, XdpLane};
use std::{
    sync::mpsc::{self, Sender},
    thread,
    time::{Duration, Instant},
};

pub(crate) const NEAR: [&str; 2] = ["near0", "near1"];
const FAR: [&str; 2] = ["far0", "far1"];
/// A far end that has seen nothing for so long gives up. Long, because it ends nothing but a test that
/// fails: a test that waits knows what is to come.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    _cables: Vec<VethPair>,
    pub(crate) near: Namespace,
    far: Namespace,
}

impl World {
    /// Builds it; `None`, and says so, where that cannot be done.
    pub(crate) fn new() -> Option<World> {
        World::with_queues(1)
    }

    /// As [`new`](Self::new), with so many queues at every end.
    pub(crate) fn with_queues(queues: u32) -> Option<World> {
        if let Err(error) = can_create() {
            skip(error);
            return None;
        }
        Some(World::build(queues).unwrap_or_else(|e| panic!("{e}")))
    }

    fn build(queues: u32) -> Result<World, laneway_netns::Error> {
        let near = Namespace::create("forward-near")?;
        let far = Namespace::create("forward-far")?;
        let cable = |port: usize| {
            let end = |side: u8| VethEnd {
                mac: Mac([0x02, 0x4c, 0x57, 0x30, side, port as u8]),
                addresses: Vec::new(),
                ..VethOptions::default().a
            };
            let options = VethOptions { a: end(0), b: end(1), queues, ..VethOptions::default() };
            VethPair::create(&near, NEAR[port], &far, FAR[port], &options)
        };
        let _cables = vec![cable(0)?, cable(1)?];
        Ok(World { _cables, near, far })
    }

    /// Runs the near side until the far side is done with sending and looking. `near` says by the
    /// sender when it is ready.
    pub(crate) fn run<T: Send, R: Send>(
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
pub(crate) struct FarEnds(PacketLane);

impl FarEnds {
    fn open() -> FarEnds {
        let spec = "packet".parse().expect("a spec");
        let lane = PacketLane::open(&spec, &FAR, OpenOptions::default());
        FarEnds(lane.unwrap_or_else(|e| panic!("{e}")))
    }

    pub(crate) fn send(&mut self, port: u8, mut frames: &[Vec<u8>]) {
        let port = PortId(port.into());
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
    pub(crate) fn collect(&mut self, expected: usize) -> [Vec<Vec<u8>>; 2] {
        let mut received = [Vec::new(), Vec::new()];
        self.collect_until(|port, frame| {
            received[port].push(frame.to_vec());
            received.iter().map(Vec::len).sum::<usize>() >= expected
        });
        received
    }

    /// Shows what arrives, with its port, until `is_last` says so of a frame; the frames that arrived with
    /// it are shown, too. False when patience ends before.
    pub(crate) fn collect_until(&mut self, mut is_last: impl FnMut(usize, &[u8]) -> bool) -> bool {
        let (mut done, mut since) = (false, Instant::now());
        while !done {
            let mut found = false;
            for port in 0..FAR.len() {
                let id = PortId(port as u32);
                let burst = self.0.receive(id).unwrap_or_else(|e| panic!("{e}"));
                found |= !burst.is_empty();
                for i in 0..burst.len() {
                    done |= is_last(port, burst.frame(i).bytes);
                }
                self.0.settle(id).unwrap_or_else(|e| panic!("{e}"));
            }
            if found {
                since = Instant::now();
            } else if since.elapsed() > PATIENCE {
                return false;
            } else if !done {
                self.0.wait(Duration::from_millis(20)).unwrap_or_else(|e| panic!("{e}"));
            }
        }
        true
    }
}

/// The app on a frame lane; what became of the frames.
pub(crate) fn on_frames<L: FrameLane>(
    lane: Result<L, LaneError>,
    mut app: Forward,
    control: &Control,
    ready: &Sender<()>,
) -> Stats {
    let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
    ready.send(()).expect("the far side waits");
    let run = match lane.clock_domain() {
        laneway_core::ClockDomain::Unix => {
            run_frames(&mut lane, &mut app, &UnixClock::default(), IdlePolicy::Block, control)
        }
        _ => run_frames(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Block, control),
    };
    run.unwrap_or_else(|e| panic!("{e}"));
    app.stats().clone()
}

/// The kernel half at work; what became of the frames.
pub(crate) fn on_xdp(
    config: &Config,
    feed: Option<KernelFeed>,
    control: &Control,
    ready: &Sender<()>,
) -> Stats {
    let ifindexes =
        NEAR.map(|name| interface_state(name).unwrap_or_else(|e| panic!("{e}")).ifindex);
    let mut app = KernelForward::new(config, &ifindexes, feed).unwrap_or_else(|e| panic!("{e}"));
    let spec = "xdp:native".parse().expect("a spec");
    let lane = XdpLane::open(&spec, &NEAR, app.half(), laneway_xdp::Options::default());
    let mut lane = lane.unwrap_or_else(|e| panic!("{e}"));
    ready.send(()).expect("the far side waits");
    let run = run_kernel(&mut lane, &mut app, &MonotonicClock, IdlePolicy::Block, control);
    run.unwrap_or_else(|e| panic!("{e}"));
    assert!(app.failure().is_none(), "{:?}", app.failure());
    app.stats().clone()
}
