//! Echo replies that come back to the generator's side: `bpf/replies.bpf.c`, an XDP program that
//! takes those to our own requests, ticks each number off and books its round trip, in the softirq
//! of their sender.
//!
//! A round trip is the time a reply is in the driver of the generator's interface minus the time its
//! request was due: open loop, so a generator that is late does not hide what the arm made wait. It is
//! the whole way, never halved. Everything that is no such reply goes on to the stack.

use crate::error::RaceError;
use crate::round_trips::{LATE_NS, RoundTrips, TRIP_WORDS};
use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use crate::words::{bytes_of, words_of};
use laneway_bpf::{BpfError, Loaded, XdpLink, XdpMode};
use laneway_core::{KernelHalf, KernelMaps, LaneError};
use laneway_netns::Namespace;

/// The compiled program.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/replies.bpf.o"));

/// Most requests of a segment: a bit for each, and an epoch for each 64, are 4 MiB.
pub(crate) const REQUESTS_MAX: u32 = 1 << 24;
/// `u64` words of `struct lw_replies` in front of its trips.
const HEADER_WORDS: usize = 7;

/// The outcome of the segment under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Replied {
    /// Replies to different requests.
    pub(crate) distinct: u64,
    /// Replies to a request that had one.
    pub(crate) duplicates: u64,
    /// Replies to a request sent before one replied to earlier.
    pub(crate) reordered: u64,
    /// Replies to requests of another segment, or with other data than was sent.
    pub(crate) foreign: u64,
    /// When the first and the last arrived, CLOCK_MONOTONIC ns.
    pub(crate) first_ns: u64,
    /// See `first_ns`.
    pub(crate) last_ns: u64,
    /// Of the distinct ones.
    pub(crate) round_trips: RoundTrips,
}

/// The attached program; it detaches when this is dropped.
pub(crate) struct Replies {
    /// Declared first: detach before the program goes.
    _attached: XdpLink,
    loaded: Loaded,
    times: Timetable,
}

impl Replies {
    /// Attaches it to `interface` of `namespace`, for requests that are due when `times` says.
    ///
    /// # Errors
    /// Missing privilege or kernel support.
    pub(crate) fn attach(
        namespace: &Namespace,
        interface: &str,
        times: &Timetable,
    ) -> Result<Replies, RaceError> {
        let loaded = load(REQUESTS_MAX, times)?;
        let program = loaded.program();
        let attached =
            namespace.enter(|| XdpLink::attach(program, interface, XdpMode::Native))??;
        Ok(Replies { _attached: attached, loaded, times: times.clone() })
    }

    /// Begins anew, for the segment `plan`.
    ///
    /// # Errors
    /// When the kernel refuses an update.
    pub(crate) fn expect(&self, plan: &SegmentPlan) -> Result<(), LaneError> {
        expect(&self.loaded, plan, &self.times)
    }

    /// What arrived so far.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn read(&self) -> Result<Replied, LaneError> {
        read(&self.loaded)
    }
}

fn load(requests_max: u32, times: &Timetable) -> Result<Loaded, BpfError> {
    Loaded::load(&KernelHalf {
        config: vec![times.config()],
        entries: times.entries().collect(),
        map_sizes: vec![("ticked", requests_max.div_ceil(64)), times.map_size()],
        ..KernelHalf::new("replies", OBJECT, "take_replies")
    })
}

fn expect(loaded: &Loaded, plan: &SegmentPlan, times: &Timetable) -> Result<(), LaneError> {
    let frames = plan.frames.min(REQUESTS_MAX);
    // No two segments begin at the same time, so that tells their bits apart.
    let what = [plan.t0_ns, u64::from(plan.segment), u64::from(frames), LATE_NS];
    let words = [&what[..], &times.words(plan)].concat();
    let zero = 0u32.to_ne_bytes();
    let maps = loaded.maps();
    maps.put("replies", &zero, &vec![0; (HEADER_WORDS + TRIP_WORDS) * 8])?;
    maps.put("expected", &zero, &bytes_of(&words))
}

fn read(loaded: &Loaded) -> Result<Replied, LaneError> {
    let words = words_of(loaded, "replies", HEADER_WORDS + TRIP_WORDS)?;
    let (header, trips) = words.split_at(HEADER_WORDS);
    let [distinct, duplicates, reordered, foreign, _next, first_ns, last_ns] =
        *header.first_chunk().expect("it was split there");
    let round_trips = RoundTrips::of_words(trips);
    Ok(Replied { distinct, duplicates, reordered, foreign, first_ns, last_ns, round_trips })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permitted::permitted;
    use crate::timetable::Times;
    use crate::traffic::{Replayable, TrafficPlan};
    use laneway_bpf::{RunInput, prog_run};
    use laneway_core::Clock;
    use laneway_engine::MonotonicClock;

    const DROPPED: u32 = 1;
    const PASSED: u32 = 2;

    /// The reply to request `number` of `segment`.
    fn reply(segment: u8, number: u32) -> Vec<u8> {
        let (source, destination) = ([10, 77, 0, 3].into(), [10, 77, 0, 1].into());
        let plan = TrafficPlan::Ping { payload_bytes: 56, source, destination };
        let traffic =
            Replayable::prepare(&plan, &Times::Steady).expect("frames made here need no file");
        let mut frame = vec![0; 98];
        traffic.templates[0].write(&mut frame, [2, 0, 0, 0, 0, 1], segment, number, 0);
        frame[34] = 0;
        frame
    }

    #[test]
    fn a_reply_counts_once_with_its_round_trip_and_the_rest_is_named_or_passed() {
        let times = Timetable::default();
        let Some(loaded) = permitted(load(1_000, &times)) else { return };
        let run = |frame: &[u8]| {
            let input = RunInput { frame, ..RunInput::default() };
            prog_run(loaded.program(), input).expect("it runs").verdict
        };
        // Due 20 ms ago: late.
        let t0_ns = MonotonicClock.now_ns() - 2 * LATE_NS;
        let plan =
            SegmentPlan { segment: 3, t0_ns, frames: 100, interval_ns: 1, burst: 1, entry: 0 };
        expect(&loaded, &plan, &times).expect("the map takes it");
        for number in [0, 1, 3, 2, 3, 99] {
            assert_eq!(run(&reply(3, number)), DROPPED);
        }
        let mut spoilt = reply(3, 7);
        spoilt[48] ^= 1;
        for stranger in [reply(2, 5), reply(3, 100), spoilt] {
            assert_eq!(run(&stranger), DROPPED);
        }
        let mut request = reply(3, 8);
        request[34] = 8;
        for other in [request, vec![0xff; 60]] {
            assert_eq!(run(&other), PASSED);
        }
        let seen = read(&loaded).expect("it is read");
        assert_eq!((seen.distinct, seen.duplicates, seen.reordered, seen.foreign), (5, 1, 1, 3));
        let figures = seen.round_trips.figures();
        assert_eq!((figures.summary.n, figures.late), (5, 5));
        let (shortest_ns, avg_ns) = (figures.summary.min_ns, figures.avg_ns);
        assert!(shortest_ns > Some(LATE_NS) && avg_ns > Some(LATE_NS as f64), "{figures:?}");
        assert!(seen.last_ns >= seen.first_ns && seen.first_ns > t0_ns);

        // The next segment starts from nothing, with the same numbers.
        let next = SegmentPlan { segment: 4, t0_ns: t0_ns + 1, ..plan };
        expect(&loaded, &next, &times).expect("the map takes it");
        run(&reply(4, 0));
        let seen = read(&loaded).expect("it is read");
        assert_eq!((seen.distinct, seen.duplicates, seen.foreign), (1, 0, 0));
    }

    /// Whether a reply to request `number` was booked as due when `times` says: as long ago as that was.
    fn agrees(loaded: &Loaded, plan: &SegmentPlan, times: &Timetable, number: u32) -> bool {
        expect(loaded, plan, times).expect("the map takes it");
        let frame = reply(plan.segment, number);
        let input = RunInput { frame: &frame, ..RunInput::default() };
        let began_ns = MonotonicClock.now_ns();
        prog_run(loaded.program(), input).expect("it runs");
        let figures = read(loaded).expect("it is read").round_trips.figures();
        let due_ns = times.due_ns(plan, number);
        let ago = began_ns - due_ns..=MonotonicClock.now_ns() - due_ns;
        figures.summary.min_ns.is_some_and(|ns| ago.contains(&ns))
    }

    #[test]
    fn the_program_and_the_lab_agree_on_when_each_request_was_due() {
        let stamps: Vec<u64> = (0..150).map(|n| n * n % 151 + n * 40).collect();
        let capture = Timetable::of_stamps(&stamps).expect("it has times");
        let poisson = Timetable::of(&Times::Poisson { seed: 3 }).expect("it needs no file");
        for (times, burst) in [(Timetable::default(), 3), (capture, 1), (poisson, 4)] {
            let Some(loaded) = permitted(load(1_000, &times)) else { return };
            for segment in [1, 77, 255] {
                let t0_ns = MonotonicClock.now_ns() - 100_000_000_000;
                let plan = SegmentPlan {
                    segment,
                    t0_ns,
                    frames: 999,
                    interval_ns: 90_000_001,
                    burst,
                    entry: segment.into(),
                };
                for number in (0..999).step_by(37) {
                    assert!(agrees(&loaded, &plan, &times, number), "{segment}, {number}");
                }
            }
        }
    }
}
