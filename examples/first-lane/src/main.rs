//! A lane of one's own: `unix` carries frames over Unix datagram sockets, a frame per datagram, without `unsafe`.
//!
//! `first-lane run echo --lane unix:peer=/tmp/far --on /tmp/near --address 192.0.2.9 --mac 02:00:00:00:00:09` receives
//! at `/tmp/near` and sends to `/tmp/far`. The buffers are core's ([`FramePool`]): each received frame is copied into
//! one, and returns when its burst is settled. A socket's file is removed with its lane.
#![forbid(unsafe_code)]

use laneway_core::{
    Burst, Cap, CapSet, CapsReport, ClockDomain, Counters, DropReason, FrameLane, FramePool, Lane,
    LaneError, PortId, Verdict, Wake,
};
use laneway_kinds::{
    Keeps, LaneFacts, LaneKind, NoLane, Opening, Ports, Request, Shape, Shapes, Sharing, Wiring,
};
use laneway_linux::monotonic_ns;
use laneway_spec::LaneSpec;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

const NAME: &str = "unix";
const BURST: usize = 64;
const FRAME_BYTES_MAX: usize = 9000;
/// How long a wait looks between two tries: the standard library has no poll.
const LOOK: Duration = Duration::from_micros(200);

struct Port {
    socket: UnixDatagram,
    path: PathBuf,
    pool: FramePool,
    caps: CapsReport,
    counters: Counters,
}

struct UnixLane {
    ports: Vec<Port>,
    peer: PathBuf,
    /// Where a datagram is received, because its length is known only then.
    scratch: Box<[u8]>,
}

impl UnixLane {
    fn open(request: &Request) -> Result<UnixLane, LaneError> {
        let knobs = request.spec.knobs();
        knobs.idle()?;
        let peer = PathBuf::from(knobs.text("peer")?.unwrap_or_default());
        knobs.finish()?;
        let open = |path: &str| {
            let failed =
                |e| LaneError::os(NAME, format!("bind `{path}`"), e, "name a path that is free");
            let socket = UnixDatagram::bind(path).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            let set = CapSet::default().with(Cap::Transmit);
            Ok(Port {
                socket,
                path: PathBuf::from(path),
                pool: FramePool::new(2 * BURST, FRAME_BYTES_MAX, BURST),
                caps: CapsReport { requested: set, obtained: set, ..CapsReport::default() },
                counters: Counters::default(),
            })
        };
        let ports = request.interfaces().into_iter().map(open);
        let ports = ports.collect::<Result<Vec<Port>, LaneError>>()?;
        Ok(UnixLane { ports, peer, scratch: vec![0; FRAME_BYTES_MAX].into() })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Another program may have removed it already.
        let _ = fs::remove_file(&self.path);
    }
}

impl Lane for UnixLane {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ports(&self) -> usize {
        self.ports.len()
    }

    fn clock_domain(&self) -> ClockDomain {
        ClockDomain::Monotonic
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, LaneError> {
        std::thread::sleep(timeout.min(LOOK));
        Ok(Wake::Ready)
    }

    fn caps(&self, port: PortId) -> &CapsReport {
        &self.ports[port.index()].caps
    }

    fn counters(&mut self, port: PortId) -> Counters {
        self.ports[port.index()].counters.clone()
    }
}

impl FrameLane for UnixLane {
    fn receive(&mut self, port: PortId) -> Result<&mut Burst, LaneError> {
        let UnixLane { ports, scratch, .. } = self;
        let Port { socket, pool, counters, .. } = &mut ports[port.index()];
        while pool.space() > 0 {
            let bytes = match socket.recv(scratch) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(LaneError::os(NAME, "receive", error, "start it again")),
            };
            if let Some(mut frame) = pool.push(bytes, bytes as u32, monotonic_ns()) {
                frame.bytes_mut().copy_from_slice(&scratch[..bytes]);
                counters.rx_frames += 1;
                counters.rx_bytes += bytes as u64;
            }
        }
        Ok(pool.burst_mut())
    }

    fn lend(&mut self, port: PortId, frames: usize) -> Result<&mut Burst, LaneError> {
        let pool = &mut self.ports[port.index()].pool;
        for _ in 0..frames.min(pool.space()) {
            pool.push(0, 0, monotonic_ns());
        }
        Ok(pool.burst_mut())
    }

    fn settle(&mut self, port: PortId) -> Result<(), LaneError> {
        let UnixLane { ports, peer, .. } = self;
        let Port { socket, pool, counters, .. } = &mut ports[port.index()];
        pool.settle(|verdict, frame| match verdict {
            Verdict::Drop => {}
            Verdict::Pass => counters.passed += 1,
            // One peer: whatever port a frame is to leave by, it goes there.
            Verdict::Tx | Verdict::TxTo(_) | Verdict::Fanout(_) => {
                match socket.send_to(frame.bytes, &*peer) {
                    Ok(bytes) => {
                        counters.tx_frames += 1;
                        counters.tx_bytes += bytes as u64;
                    }
                    Err(_) => counters.drop_many(DropReason::TxRefused, 1),
                }
            }
        });
        Ok(())
    }
}

/// The row.
struct UnixKind;

impl LaneKind for UnixKind {
    const FACTS: LaneFacts = LaneFacts {
        name: NAME,
        about: "frames over Unix datagram sockets",
        readme: "",
        clock: ClockDomain::Monotonic,
        carries: Shapes::FRAMES,
        takes_stack: true,
        ports: Ports::Devices,
        named_ports: |_| Vec::new(),
        confirms_late: false,
        counts_refusals: false,
        passing_costs: None,
        sharing: |_| Sharing::Alone { why: "a path has one socket", hint: "use one worker" },
        modes: &[],
        keeps: |_| Keeps::NOTHING,
        why_not: None,
    };
    type Frames = UnixLane;
    type Datagrams = NoLane;
    type Streams = NoLane;
    type Kernel = NoLane;
    type Shared = Request;

    fn share(opening: &Opening<'_>) -> Result<Request, LaneError> {
        debug_assert!(opening.shape == Shape::Frames, "it carries nothing else");
        Self::refuse_workers(opening)?;
        Ok(opening.to_request())
    }

    fn frames(request: &Request, _worker: usize) -> Result<UnixLane, LaneError> {
        UnixLane::open(request)
    }

    fn wiring(_spec: &LaneSpec) -> Result<Wiring, String> {
        // Without this a race would hand it interfaces, as paths.
        let why =
            "its ports are paths, and what a race sends comes by a cable: race lanes on interfaces";
        Err(why.to_owned())
    }
}

fn main() -> ExitCode {
    laneway_cli::start_with_lane::<UnixKind>(std::env::args_os())
}
