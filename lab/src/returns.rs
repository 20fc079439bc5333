//! The far end of a bounce: `bpf/returns.bpf.c` on the generator's interface, which counts what comes
//! back by segment and drops it.
//!
//! Its work is done in the softirq of the sender, so on the arm's CPU, and is in every arm's
//! figure alike. It detaches when this value drops or the process ends.

use crate::error::RaceError;
use crate::round_trips::{LATE_NS, RoundTrips, TRIP_WORDS};
use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use crate::traffic::PAYLOADS_MAX;
use crate::words::{bytes_of, words_of};
use laneway_bpf::{BpfError, Loaded, XdpLink, XdpMode};
use laneway_core::{ConfigValue, KernelHalf, KernelMaps, LaneError};
use laneway_netns::Namespace;

/// The compiled program.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/returns.bpf.o"));

/// Frames returned, by segment; entry 0 counts what carries no number, [`CHANGED`] what is UDP but not as it was
/// sent.
pub(crate) type Returned = Vec<u64>;

/// As in the program.
pub(crate) const CHANGED: usize = 256;

/// The attached counter.
pub(crate) struct Returns {
    /// Declared first: detach before the program goes.
    _attached: XdpLink,
    loaded: Loaded,
    times: Timetable,
}

impl Returns {
    /// Attaches it to `interface` of `namespace`, where these `payloads` are to come back, in bytes, over and over, due
    /// when `times` says.
    ///
    /// # Errors
    /// Missing privilege or kernel support.
    pub(crate) fn attach(
        namespace: &Namespace,
        interface: &str,
        payloads: &[u16],
        times: &Timetable,
    ) -> Result<Returns, RaceError> {
        let loaded = load(payloads, times)?;
        let program = loaded.program();
        let attached =
            namespace.enter(|| XdpLink::attach(program, interface, XdpMode::Native))??;
        Ok(Returns { _attached: attached, loaded, times: times.clone() })
    }

    /// What was returned so far.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn read(&self) -> Result<Returned, LaneError> {
        counts(&self.loaded)
    }

    /// Begins anew to book how long frames take, of the segment `plan`.
    ///
    /// # Errors
    /// When the kernel refuses an update.
    pub(crate) fn expect(&self, plan: &SegmentPlan) -> Result<(), LaneError> {
        expect(&self.loaded, plan, &self.times)
    }

    /// How long the sampled frames of that segment took since they were due.
    ///
    /// # Errors
    /// When the kernel refuses the look-up.
    pub(crate) fn trips(&self) -> Result<RoundTrips, LaneError> {
        trips(&self.loaded)
    }
}

fn expect(loaded: &Loaded, plan: &SegmentPlan, times: &Timetable) -> Result<(), LaneError> {
    let what = [u64::from(plan.segment), u64::from(plan.frames), LATE_NS];
    let words = [&what[..], &times.words(plan)].concat();
    let zero = 0u32.to_ne_bytes();
    let maps = loaded.maps();
    maps.put("trips", &zero, &vec![0; TRIP_WORDS * 8])?;
    maps.put("under_way", &zero, &bytes_of(&words))
}

fn trips(loaded: &Loaded) -> Result<RoundTrips, LaneError> {
    Ok(RoundTrips::of_words(&words_of(loaded, "trips", TRIP_WORDS)?))
}

fn load(payloads: &[u16], times: &Timetable) -> Result<Loaded, BpfError> {
    let mut bytes: Vec<u8> = payloads.iter().flat_map(|bytes| bytes.to_ne_bytes()).collect();
    bytes.resize(PAYLOADS_MAX * 2, 0);
    let count = (payloads.len().max(1) as u32).to_ne_bytes().to_vec();
    Loaded::load(&KernelHalf {
        config: vec![
            ConfigValue { name: "lw_payload_bytes", bytes },
            ConfigValue { name: "lw_payloads", bytes: count },
            times.config(),
        ],
        entries: times.entries().collect(),
        map_sizes: vec![times.map_size()],
        ..KernelHalf::new("returns", OBJECT, "returns")
    })
}

fn counts(loaded: &Loaded) -> Result<Returned, LaneError> {
    let mut returned = Vec::with_capacity(CHANGED + 1);
    // In the order of the map's index.
    loaded.maps().visit("returned", &mut |_, value| {
        returned.push(value.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)));
    })?;
    Ok(returned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permitted::permitted;
    use crate::timetable::Times;
    use crate::traffic::{Payloads, Replayable, TrafficPlan};
    use laneway_bpf::{RunInput, prog_run};
    use laneway_core::Clock;
    use laneway_engine::MonotonicClock;
    use std::net::SocketAddrV4;

    #[test]
    fn what_comes_back_is_counted_by_segment_with_any_macs() {
        let times = Timetable::default();
        let Some(loaded) = permitted(load(&[64, 18], &times)) else { return };
        let end = |last, port| SocketAddrV4::new([10, 77, 0, last].into(), port);
        let (source, destination) = (end(1, 7001), end(2, 7000));
        let plan = TrafficPlan::Udp { payloads: Payloads::Fixed(64), source, destination };
        let traffic =
            Replayable::prepare(&plan, &Times::Steady).expect("frames made here need no file");
        let t0_ns = MonotonicClock.now_ns() - 1_000_000_000;
        let under_way = SegmentPlan {
            segment: 7,
            t0_ns,
            frames: 9,
            interval_ns: 1_000_000,
            burst: 1,
            entry: 0,
        };
        expect(&loaded, &under_way, &times).expect("the map takes it");
        let mut frame = [0; 106];
        for (segment, number) in [(7, 0), (7, 2), (7, 1), (9, 0)] {
            traffic.templates[0].write(&mut frame, [2, 0, 0, 0, 0, 9], segment, number, 0);
            frame[..12].rotate_left(6);
            let input = RunInput { frame: &frame, ..RunInput::default() };
            let output = prog_run(loaded.program(), input).expect("it runs");
            assert_eq!(output.verdict, 1, "dropped");
        }
        // Of the first, number 1 should have been shorter. Then its number, its end, its length; and a frame of ours
        // too short for a payload.
        let spoilt: [fn(&mut Vec<u8>); 4] =
            [|f| f[42] = 1, |f| f[59] = 1, |f| f[39] -= 1, |f| f.truncate(50)];
        for spoil in spoilt {
            let mut frame = frame.to_vec();
            spoil(&mut frame);
            let input = RunInput { frame: &frame, ..RunInput::default() };
            prog_run(loaded.program(), input).expect("it runs");
        }
        let stranger = RunInput { frame: &[0; 60], ..RunInput::default() };
        prog_run(loaded.program(), stranger).expect("it runs");
        // Of segment 7 number 0 alone is sampled.
        let took = trips(&loaded).expect("they are read").figures().summary;
        assert!(took.n == 1 && took.min_ns > Some(1_000_000_000), "{took:?}");
        let returned = counts(&loaded).expect("it is read");
        assert_eq!((returned[7], returned[9], returned[0], returned[CHANGED]), (2, 1, 1, 5));
    }
}
