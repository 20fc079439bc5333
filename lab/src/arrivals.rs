//! What comes out of a forwarder: `bpf/arrivals.bpf.c` at the far end, which ticks off every frame of
//! a segment by its number, and drops it.
//!
//! So every forwarder, ours or a peer, in user space or in the kernel, is held to the same: each frame
//! once, and what arrives twice, late from another segment or out of order is counted as such. The work
//! is done in the softirq (at a TAP device: in the system call) of the sender, so on the arm's CPU,
//! and is in every arm's figure alike. It detaches when this value drops or the process ends.
//!
//! One frame in eight is booked with the time since it was due: open loop, so a generator that is late does not hide
//! what the arm made wait.

use crate::error::RaceError;
use crate::round_trips::{LATE_NS, RoundTrips, TRIP_WORDS};
use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use crate::words::{bytes_of, words_of};
use laneway_bpf::{BpfError, Loaded, XdpLink, XdpMode};
use laneway_core::{ConfigValue, KernelHalf, KernelMaps, LaneError};
use laneway_netns::Namespace;
use serde::{Deserialize, Serialize};

/// The compiled program.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/arrivals.bpf.o"));

/// Most frames of a segment: a bit for each, and an epoch for each 64, are 8 MiB.
pub(crate) const ARRIVALS_MAX: u32 = 1 << 25;
/// `u64` words of `struct lw_arrived` in front of its trips.
const WORDS: usize = 8;

/// The outcome of the segment under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrived {
    /// Different frames of it.
    pub(crate) distinct: u64,
    /// Frames that had come already.
    pub(crate) duplicates: u64,
    /// Frames sent before one that arrived earlier.
    pub(crate) reordered: u64,
    /// Numbered frames of another segment.
    pub(crate) foreign: u64,
    /// Frames without a number: the kernel's own talk.
    pub(crate) strangers: u64,
    /// When the first and the last sampled one arrived, CLOCK_MONOTONIC ns.
    pub(crate) first_ns: u64,
    /// See `first_ns`.
    pub(crate) last_ns: u64,
}

/// The attached program.
pub(crate) struct Arrivals {
    /// Declared first: detach before the program goes.
    _attached: XdpLink,
    loaded: Loaded,
    times: Timetable,
}

impl Arrivals {
    /// Attaches it to `interface` of `namespace`, for frames with their number at byte `number_at`, due when `times`
    /// says.
    ///
    /// # Errors
    /// Missing privilege or kernel support.
    pub(crate) fn attach(
        namespace: &Namespace,
        interface: &str,
        number_at: u16,
        times: &Timetable,
    ) -> Result<Arrivals, RaceError> {
        let loaded = load(number_at, ARRIVALS_MAX, times)?;
        let program = loaded.program();
        let attached =
            namespace.enter(|| XdpLink::attach(program, interface, XdpMode::Native))??;
        Ok(Arrivals { _attached: attached, loaded, times: times.clone() })
    }

    /// Begins anew, for the segment `plan`.
    ///
    /// # Errors
    /// When the kernel refuses an update.
    pub(crate) fn expect(&self, plan: &SegmentPlan) -> Result<(), LaneError> {
        expect(&self.loaded, plan, &self.times)
    }

    /// What arrived so far, and how long the sampled ones took since they were due.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn read(&self) -> Result<(Arrived, RoundTrips), LaneError> {
        read(&self.loaded)
    }
}

fn load(number_at: u16, frames_max: u32, times: &Timetable) -> Result<Loaded, BpfError> {
    let number_at = u32::from(number_at).to_ne_bytes().to_vec();
    Loaded::load(&KernelHalf {
        config: vec![ConfigValue { name: "lw_number_at", bytes: number_at }, times.config()],
        entries: times.entries().collect(),
        map_sizes: vec![("ticks", frames_max.div_ceil(64)), times.map_size()],
        ..KernelHalf::new("arrivals", OBJECT, "take_arrivals")
    })
}

fn expect(loaded: &Loaded, plan: &SegmentPlan, times: &Timetable) -> Result<(), LaneError> {
    let frames = plan.frames.min(ARRIVALS_MAX);
    // No two segments begin at the same time, so that tells their bits apart.
    let what = [plan.t0_ns, u64::from(plan.segment), u64::from(frames), LATE_NS];
    let words = [&what[..], &times.words(plan)].concat();
    let zero = 0u32.to_ne_bytes();
    let maps = loaded.maps();
    maps.put("arrived", &zero, &vec![0; (WORDS + TRIP_WORDS) * 8])?;
    maps.put("coming", &zero, &bytes_of(&words))
}

fn read(loaded: &Loaded) -> Result<(Arrived, RoundTrips), LaneError> {
    let words = words_of(loaded, "arrived", WORDS + TRIP_WORDS)?;
    let (header, trips) = words.split_at(WORDS);
    let [distinct, duplicates, reordered, foreign, strangers, _next, first_ns, last_ns] =
        *header.first_chunk().expect("it was split there");
    let arrived =
        Arrived { distinct, duplicates, reordered, foreign, strangers, first_ns, last_ns };
    Ok((arrived, RoundTrips::of_words(trips)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permitted::permitted;
    use crate::traffic::{PAYLOAD_AT, Template};
    use laneway_bpf::{RunInput, prog_run};

    const FRAMES: u32 = 200;

    fn plan(segment: u8, t0_ns: u64) -> SegmentPlan {
        SegmentPlan { segment, t0_ns, frames: FRAMES, interval_ns: 1, burst: 1, entry: 0 }
    }

    /// Frame `number` of `segment`, as a capture is replayed: the number is in the source MAC.
    fn replayed(segment: u8, number: u32) -> Vec<u8> {
        let mut frame = vec![0; 60];
        Template::new(&[0; 60]).write(&mut frame, [2; 6], segment, number, 0);
        frame
    }

    fn run(loaded: &Loaded, frame: &[u8]) {
        let output = prog_run(loaded.program(), RunInput { frame, ..RunInput::default() });
        assert_eq!(output.expect("it runs").verdict, 1, "dropped");
    }

    #[test]
    fn every_frame_counts_once_and_the_rest_is_named() {
        let Some(loaded) = permitted(load(6, FRAMES, &Timetable::default())) else { return };
        let times = Timetable::default();
        expect(&loaded, &plan(3, 1_000), &times).unwrap();
        for number in [0, 1, 8, 5, 8, FRAMES] {
            run(&loaded, &replayed(3, number));
        }
        run(&loaded, &replayed(4, 7));
        run(&loaded, &[0; 60]);
        let (arrived, trips) = read(&loaded).unwrap();
        let Arrived { distinct, duplicates, reordered, foreign, strangers, .. } = arrived;
        assert_eq!((distinct, duplicates, reordered, foreign, strangers), (4, 1, 1, 2, 1));
        assert!(0 < arrived.first_ns && arrived.first_ns <= arrived.last_ns);
        // Of 0, 1, 8 and 5 those that are sampled, which were due when the machine started.
        assert_eq!(trips.n(), 2);
        let took_ns = trips.figures().summary.min_ns.unwrap();
        assert!(took_ns.abs_diff(arrived.first_ns) < 10_000, "{took_ns}");
        // What another segment ticked off is forgotten.
        expect(&loaded, &plan(5, 2_000), &times).unwrap();
        run(&loaded, &replayed(5, 8));
        let (arrived, trips) = read(&loaded).unwrap();
        assert_eq!((arrived.distinct, arrived.duplicates, trips.n()), (1, 0, 1));
    }

    #[test]
    fn a_number_in_the_payload_is_read_with_any_macs() {
        let loaded = load(PAYLOAD_AT as u16, FRAMES, &Timetable::default());
        let Some(loaded) = permitted(loaded) else { return };
        expect(&loaded, &plan(1, 1), &Timetable::default()).unwrap();
        let mut frame = vec![9; 60];
        frame[PAYLOAD_AT..PAYLOAD_AT + 6].copy_from_slice(&[2, 1, 0, 0, 0, 42]);
        run(&loaded, &frame);
        assert_eq!(read(&loaded).unwrap().0.distinct, 1);
    }
}
