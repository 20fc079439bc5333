//! What a placement makes of a frame, in a form that all placements share, and the two placements that
//! need no compiler: user space, and the loaded program.

use laneway_bpf::{BpfError, Loaded, RunInput, prog_run};
use laneway_core::{FrameApp, FrameLane, KernelHalf, KernelMaps, PortId, Turn, Verdict};
use laneway_forward::{Fate, Forward};
use laneway_sim::SimLane;
use laneway_testkit::skip;

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) fate: Fate,
    pub(crate) queue: Option<u8>,
    /// Where it left, and how it looked then; nothing of a frame that did not.
    pub(crate) sent: Option<(u32, Vec<u8>)>,
}

pub(crate) const HEADER_BYTES: usize = 8;

impl Outcome {
    /// From a `struct lw_outcome` and the bytes.
    pub(crate) fn read(header: &[u8], bytes: &[u8]) -> Outcome {
        let fate = Fate::ALL[usize::from(header[0])];
        Outcome {
            fate,
            queue: (header[2] != 0xff).then_some(header[2]),
            sent: is_seen(fate).then(|| (header[1].into(), bytes.to_vec())),
        }
    }
}

/// True where the bytes are seen afterwards.
fn is_seen(fate: Fate) -> bool {
    matches!(fate, Fate::Forwarded | Fate::Flooded | Fate::Passed)
}

/// Runs the app on frames that arrive on port 0 of a simulated lane, one by one.
pub(crate) fn in_user_space(app: &mut Forward, ports: usize, frames: &[Vec<u8>]) -> Vec<Outcome> {
    let spec = "sim:burst=1,frames=2,mtu=9216,queue=4".parse().expect("a spec");
    let (mut lane, world) = SimLane::open(&spec, ports).unwrap_or_else(|e| panic!("{e}"));
    let port = PortId(0);
    let mut outcomes = Vec::with_capacity(frames.len());
    for frame in frames {
        let before = app.stats().clone();
        world.inject(port, frame);
        let burst = lane.receive(port).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(burst.len(), 1);
        app.on_burst(port, burst, Turn::default());
        let after = app.stats();
        let fate = *Fate::ALL
            .iter()
            .find(|fate| after.frames(**fate) > before.frames(**fate))
            .expect("every frame has a fate");
        assert_eq!(after.total(), before.total() + 1);
        let queues = after.queue_frames.iter().zip(before.queue_frames);
        let queue = queues.enumerate().find(|(_, (now, was))| *now > was).map(|(at, _)| at as u8);
        let egress = match burst.verdict(0) {
            Verdict::Tx | Verdict::Pass => Some(0),
            Verdict::TxTo(port) => Some(port.0),
            Verdict::Drop => None,
            other => panic!("{other:?} is no verdict of these modes"),
        };
        assert_eq!(egress.is_some(), is_seen(fate), "{fate:?}");
        let sent = egress.map(|egress| (egress, burst.frame(0).bytes.to_vec()));
        outcomes.push(Outcome { fate, queue, sent });
        burst.set_verdict(0, Verdict::Drop);
        lane.settle(port).unwrap_or_else(|e| panic!("{e}"));
    }
    outcomes
}

/// Offset of `tells` in `struct lw_config`.
const TELLS_AT: usize = 12;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;

/// Loads the half so that it tells what it decides; `None`, and says so, where that is not permitted.
pub(crate) fn load(mut half: KernelHalf) -> Option<Loaded> {
    half.config[0].bytes[TELLS_AT] = 1;
    match Loaded::load(&half) {
        Ok(loaded) => Some(loaded),
        Err(BpfError::NotPermitted { doing }) => {
            skip(format!("not permitted to {doing}: loading eBPF programs needs root"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs the loaded program on frames that arrive on port 0 (which is interface 1, the namespace's
/// `lo`, as BPF_PROG_RUN has it).
pub(crate) fn in_the_kernel(loaded: &Loaded, frames: &[Vec<u8>]) -> Vec<Outcome> {
    let run = |frame: &Vec<u8>| {
        let input = RunInput { frame, meta: &[], repeat: 1 };
        let output = prog_run(loaded.program(), input).unwrap_or_else(|e| panic!("{e}"));
        let mut header = Vec::new();
        let read = loaded.maps().visit("outcome", &mut |_, value| header = value.to_vec());
        read.unwrap_or_else(|e| panic!("{e}"));
        let outcome = Outcome::read(&header, &output.frame);
        let verdict = match &outcome {
            Outcome { fate: Fate::Passed, .. } => XDP_PASS,
            Outcome { sent: Some((0, _)), .. } => XDP_TX,
            Outcome { sent: Some(_), .. } => XDP_REDIRECT,
            _ => XDP_DROP,
        };
        assert_eq!(output.verdict, verdict, "{outcome:?}");
        outcome
    };
    frames.iter().map(run).collect()
}
