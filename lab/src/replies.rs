//! Echo replies that come back to the generator's side: `bpf/replies.bpf.c`, an XDP program that
//! takes those to our own requests, ticks each number off and books its round trip, in the softirq
//! of whoever sends them.
//!
//! A round trip is the time a reply is in the driver of the generator's interface minus the time its
//! request was due: open loop, so a generator that is late does not hide what the arm made wait. It is
//! the whole way, never halved. Everything that is no such reply goes on to the stack.

use crate::plan::SegmentPlan;
use crate::race::RaceError;
use crate::round_trips::RoundTrips;
use laneway_bpf::{BpfError, Loaded, XdpLink, XdpMode};
use laneway_core::{KernelHalf, KernelMaps, LaneError};
use laneway_netns::Namespace;

/// The compiled program.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/replies.bpf.o"));

/// Most requests of a segment: a bit for each, and an epoch for each 64, are 4 MiB.
pub(crate) const REQUESTS_MAX: u32 = 1 << 24;
/// A reply that takes longer is late: counted, and booked as long as it took.
pub(crate) const LATE_NS: u64 = 10_000_000;
/// `LW_REPLY_BINS`.
const BINS: usize = 2_048;
/// `u64` words of `struct lw_replies` in front of the bins.
const HEADER_WORDS: usize = 13;

/// What came of the segment under way.
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
    /// When the first and the last came, CLOCK_MONOTONIC ns.
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
}

impl Replies {
    /// Attaches it to `interface` of `namespace`.
    ///
    /// # Errors
    /// Missing privilege or kernel support.
    pub(crate) fn attach(namespace: &Namespace, interface: &str) -> Result<Replies, RaceError> {
        let loaded = load(REQUESTS_MAX)?;
        let program = loaded.program();
        let attached =
            namespace.enter(|| XdpLink::attach(program, interface, XdpMode::Native))??;
        Ok(Replies { _attached: attached, loaded })
    }

    /// Begins anew, for the segment `plan`.
    ///
    /// # Errors
    /// When the kernel refuses an update.
    pub(crate) fn expect(&self, plan: &SegmentPlan) -> Result<(), LaneError> {
        expect(&self.loaded, plan)
    }

    /// What came so far.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn read(&self) -> Result<Replied, LaneError> {
        read(&self.loaded)
    }
}

fn load(requests_max: u32) -> Result<Loaded, BpfError> {
    Loaded::load(&KernelHalf {
        name: "replies",
        object: OBJECT,
        program: "take_replies",
        config: Vec::new(),
        entries: Vec::new(),
        map_sizes: vec![("ticked", requests_max.div_ceil(64))],
        records: None,
        drops_map: None,
        seen_map: None,
    })
}

fn expect(loaded: &Loaded, plan: &SegmentPlan) -> Result<(), LaneError> {
    let words = [
        // No two segments begin at the same time, so this tells their bits apart.
        plan.t0_ns,
        u64::from(plan.segment),
        plan.t0_ns,
        u64::from(plan.frames.min(REQUESTS_MAX)),
        plan.interval_ns,
        u64::from(plan.burst),
        LATE_NS,
    ];
    let zero = 0u32.to_ne_bytes();
    let maps = loaded.maps();
    maps.put("replies", &zero, &vec![0; (HEADER_WORDS + BINS) * 8])?;
    maps.put("expected", &zero, &words.map(u64::to_ne_bytes).concat())
}

fn read(loaded: &Loaded) -> Result<Replied, LaneError> {
    let mut words = vec![0u64; HEADER_WORDS + BINS];
    loaded.maps().visit("replies", &mut |_, bytes| {
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of 8"));
        }
    })?;
    Ok(replied(&words))
}

fn replied(words: &[u64]) -> Replied {
    let (header, bins) = words.split_at(HEADER_WORDS);
    let [distinct, duplicates, reordered, foreign, late, _next, first_ns, last_ns, ..] = *header
    else {
        unreachable!("the header has {HEADER_WORDS} words");
    };
    let [shortest_ns, longest_ns, sum_ns, squares_low, squares_high] =
        *header.last_chunk().expect("so has its end 5");
    let filled = bins.iter().enumerate().filter(|(_, n)| **n > 0);
    Replied {
        distinct,
        duplicates,
        reordered,
        foreign,
        first_ns,
        last_ns,
        round_trips: RoundTrips::of_bins(
            filled.map(|(bin, &n)| (middle_ns(bin), n)),
            [shortest_ns, longest_ns],
            sum_ns as f64,
            squares_high as f64 * 2f64.powi(64) + squares_low as f64,
            late,
        ),
    }
}

/// The value in the middle of a bin.
fn middle_ns(bin: usize) -> u64 {
    if bin < 64 {
        return bin as u64;
    }
    let (power, part) = (bin / 64 + 5, bin as u64 % 64);
    let width = 1u64 << (power - 6);
    (1 << power) + part * width + width / 2
}

#[cfg(test)]
#[expect(clippy::print_stdout, reason = "a skipped test says why")]
mod tests {
    use super::*;
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
        let traffic = Replayable::prepare(&plan).expect("frames made here need no file");
        let mut frame = vec![0; 98];
        traffic.templates[0].write(&mut frame, [2, 0, 0, 0, 0, 1], segment, number, 0);
        frame[34] = 0;
        frame
    }

    #[test]
    fn a_reply_counts_once_with_its_round_trip_and_the_rest_is_named_or_passed() {
        let loaded = match load(1_000) {
            Ok(loaded) => loaded,
            Err(why) => return println!("skipped: {why}"),
        };
        let run = |frame: &[u8]| {
            let input = RunInput { frame, ..RunInput::default() };
            prog_run(loaded.program(), input).expect("it runs").verdict
        };
        // Due 20 ms ago: late.
        let t0_ns = MonotonicClock.now_ns() - 2 * LATE_NS;
        let plan = SegmentPlan { segment: 3, t0_ns, frames: 100, interval_ns: 1, burst: 1 };
        expect(&loaded, &plan).expect("it is told");
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
        expect(&loaded, &next).expect("it is told");
        run(&reply(4, 0));
        let seen = read(&loaded).expect("it is read");
        assert_eq!((seen.distinct, seen.duplicates, seen.foreign), (1, 0, 0));
    }

    #[test]
    fn bins_lie_end_to_end_and_hold_their_middle() {
        assert_eq!([0, 63, 64, 65, 127, 128].map(middle_ns), [0, 63, 64, 65, 127, 129]);
        let middles: Vec<u64> = (0..BINS).map(middle_ns).collect();
        assert!(middles.windows(2).all(|pair| pair[0] < pair[1]));
        // The last covers more than 100 s.
        assert!(middles[BINS - 1] > 100_000_000_000);
    }

    #[test]
    fn sums_of_squares_beyond_64_bits_are_kept() {
        let mut words = vec![0; HEADER_WORDS + BINS];
        words[0] = 2;
        (words[8], words[9], words[10]) = (4_000_000_000, 4_000_000_000, 8_000_000_000);
        // 2 * (4e9)^2 = 3.2e19 is beyond 2^64.
        let squares = 2 * 4_000_000_000u128.pow(2);
        (words[11], words[12]) = (squares as u64, (squares >> 64) as u64);
        words[HEADER_WORDS + 1_700] = 2;
        let figures = replied(&words).round_trips.figures();
        assert_eq!((figures.avg_ns, figures.mdev_ns), (Some(4e9), Some(0.0)));
    }
}
