//! What comes out of a fan-out: `bpf/copies.bpf.c` at the far end of every cable on the way out, which ticks off every
//! copy of every datagram at the output that it was sent to, and drops it.
//!
//! An output is a cable, a group and a UDP port, and has a bitmap of its own: so a copy that came twice at one is not
//! taken for one that is missing at another, and what came where no output is, at the wrong group or with other bytes is
//! told apart. The work is done in the softirq of whoever sends, so on the arm's CPU, and is in every arm's figure alike.
//!
//! One number in eight is booked at each output with the time since it was due.

use crate::arrivals::ARRIVALS_MAX;
use crate::error::RaceError;
use crate::fanout::FanoutPlan;
use crate::round_trips::{LATE_NS, RoundTrips, TRIP_WORDS};
use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use crate::words::{bytes_of, words_of};
use laneway_bpf::{BpfError, Loaded, XdpLink, XdpMode};
use laneway_core::{ConfigValue, KernelHalf, KernelMaps, LaneError};
use laneway_netns::Namespace;
use std::collections::BTreeMap;

/// The compiled program.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/copies.bpf.o"));

/// `u64` words of `struct lw_copied` in front of its trips.
const WORDS: usize = 10;
/// `u64` words of `struct lw_output`.
const OUTPUT_WORDS: usize = 3;
/// Numbers that share a word.
const WORD_BITS: u32 = 64;

/// Most datagrams of a segment: there is a bit for each copy, and all cables together have 8 MiB.
pub(crate) fn frames_max(plan: &FanoutPlan) -> u32 {
    let cables = u32::from(plan.fanout.cables.max(1));
    let outputs = u32::from(plan.fanout.outputs_of(0).max(1));
    ARRIVALS_MAX / cables / outputs / WORD_BITS * WORD_BITS
}

/// What came of the segment under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Different copies of it.
    pub(crate) distinct: u64,
    /// Copies that had come to that output already.
    pub(crate) duplicates: u64,
    /// Copies sent before one that came to that output earlier.
    pub(crate) reordered: u64,
    /// Numbered copies of another segment.
    pub(crate) foreign: u64,
    /// Frames that are no copy: the kernel's own talk.
    pub(crate) strangers: u64,
    /// What no relay that does as it is told sends, by name; only what there was.
    pub(crate) wrong: BTreeMap<&'static str, u64>,
    /// When the first and the last sampled one came, CLOCK_MONOTONIC ns.
    pub(crate) first_ns: u64,
    /// See `first_ns`.
    pub(crate) last_ns: u64,
    /// The different copies by output, in the order of [`Fanout::outputs`](crate::fanout::Fanout::outputs).
    pub(crate) by_output: Vec<u64>,
    /// The same by cable.
    pub(crate) by_cable: Vec<u64>,
}

impl Copied {
    /// All that came, whatever it was.
    pub(crate) fn seen(&self) -> u64 {
        self.distinct + self.duplicates + self.foreign + self.wrong.values().sum::<u64>()
    }

    /// Adds what came by the next cable.
    fn add(&mut self, words: &[u64]) {
        let [
            distinct,
            duplicates,
            reordered,
            foreign,
            strangers,
            unknown,
            misled,
            spoilt,
            first_ns,
            last_ns,
        ] = *words.first_chunk::<WORDS>().expect("they were read");
        self.distinct += distinct;
        self.by_cable.push(distinct);
        self.duplicates += duplicates;
        self.reordered += reordered;
        self.foreign += foreign;
        self.strangers += strangers;
        for (what, n) in [(UNKNOWN, unknown), (MISLED, misled), (SPOILT, spoilt)] {
            if n > 0 {
                *self.wrong.entry(what).or_default() += n;
            }
        }
        if first_ns > 0 {
            let is_first = self.first_ns == 0 || first_ns < self.first_ns;
            self.first_ns = if is_first { first_ns } else { self.first_ns };
            self.last_ns = self.last_ns.max(last_ns);
        }
    }
}

/// Names of what is wrong with a copy.
pub(crate) const UNKNOWN: &str = "sent where no output is";
pub(crate) const MISLED: &str = "sent to another group than they came for";
pub(crate) const SPOILT: &str = "with other bytes than were sent";

/// The attached programs.
pub(crate) struct Copies {
    cables: Vec<Cable>,
    plan: FanoutPlan,
    times: Timetable,
}

/// The far end of a cable.
struct Cable {
    /// Declared first: detach before the program goes.
    _attached: Option<XdpLink>,
    loaded: Loaded,
}

impl Copies {
    /// Attaches one to each of `interfaces` of `namespace`, in the order of the cables, for what `plan` sends, due when
    /// `times` says.
    ///
    /// # Errors
    /// Missing privilege or kernel support.
    pub(crate) fn attach(
        namespace: &Namespace,
        interfaces: &[&str],
        plan: FanoutPlan,
        times: &Timetable,
    ) -> Result<Copies, RaceError> {
        let attach = |(cable, interface): (u8, &&str)| {
            let loaded = load(&plan, cable, times)?;
            let program = loaded.program();
            let attached =
                namespace.enter(|| XdpLink::attach(program, interface, XdpMode::Native))??;
            Ok::<_, RaceError>(Cable { _attached: Some(attached), loaded })
        };
        let cables = (0..).zip(interfaces).map(attach).collect::<Result<_, _>>()?;
        Ok(Copies { cables, plan, times: times.clone() })
    }

    /// Begins anew, for the segment `plan`.
    ///
    /// # Errors
    /// When the kernel refuses an update.
    pub(crate) fn expect(&self, plan: &SegmentPlan) -> Result<(), LaneError> {
        let most = frames_max(&self.plan);
        self.cables.iter().try_for_each(|cable| expect(&cable.loaded, plan, &self.times, most))
    }

    /// What came so far by all cables, and how long the sampled ones took since they were due.
    ///
    /// # Errors
    /// When the kernel refuses a look-up.
    pub(crate) fn read(&self) -> Result<(Copied, RoundTrips), LaneError> {
        let mut copied = Copied::default();
        let mut trips = RoundTrips::default();
        let mut outputs = Vec::new();
        for (number, cable) in (0..).zip(&self.cables) {
            let words = words_of(&cable.loaded, "copied", WORDS + TRIP_WORDS)?;
            let (header, of_cable) = words.split_at(WORDS);
            copied.add(header);
            if self.plan.fanout.is_timed(number) {
                trips.merge(&RoundTrips::of_words(of_cable));
            }
            outputs.push(by_port(&cable.loaded)?);
        }
        for output in self.plan.fanout.outputs() {
            let ports = &mut outputs[usize::from(output.cable)];
            let n = ports.remove(&u32::from(output.port - self.plan.fanout.first_group().port()));
            copied.by_output.push(n.unwrap_or(0));
        }
        Ok((copied, trips))
    }
}

/// The different copies of the segment under way, by the output's place on its cable.
fn by_port(loaded: &Loaded) -> Result<BTreeMap<u32, u64>, LaneError> {
    let epoch = words_of(loaded, "coming", 1)?[0];
    let mut by_port = BTreeMap::new();
    loaded.maps().visit("outputs", &mut |key, bytes| {
        let word = |at: usize| {
            let bytes = bytes.get(at * 8..at * 8 + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let place = key.first_chunk().map(|key| u32::from_ne_bytes(*key));
        if let (Some(place), Some(of), Some(distinct)) = (place, word(0), word(1)) {
            by_port.insert(place, if of == epoch { distinct } else { 0 });
        }
    })?;
    Ok(by_port)
}

fn load(plan: &FanoutPlan, cable: u8, times: &Timetable) -> Result<Loaded, BpfError> {
    let group = plan.fanout.first_group();
    let outputs = u32::from(plan.fanout.outputs_of(cable));
    let values = [
        ("lw_group", group.ip().to_bits()),
        ("lw_groups", plan.fanout.groups.into()),
        ("lw_port", group.port().into()),
        ("lw_outputs", outputs),
        ("lw_run", plan.run),
        ("lw_payload_bytes", plan.payload_bytes.into()),
    ];
    let value = |(name, value): (_, u32)| ConfigValue { name, bytes: value.to_ne_bytes().to_vec() };
    let words = (frames_max(plan) / WORD_BITS).max(1) * outputs;
    debug_assert_eq!(OUTPUT_WORDS * 8, 24, "as `struct lw_output`");
    Loaded::load(&KernelHalf {
        name: "copies",
        object: OBJECT,
        program: "take_copies",
        config: values.into_iter().map(value).chain([times.config()]).collect(),
        entries: times.entries().collect(),
        map_sizes: vec![("ticks", words), ("outputs", outputs), times.map_size()],
        records: None,
        drops_map: None,
        seen_map: None,
    })
}

fn expect(
    loaded: &Loaded,
    plan: &SegmentPlan,
    times: &Timetable,
    frames_max: u32,
) -> Result<(), LaneError> {
    let frames = plan.frames.min(frames_max);
    // No two segments begin at the same time, so that tells their bits apart.
    let what = [plan.t0_ns, u64::from(plan.segment), u64::from(frames), LATE_NS];
    let words = [&what[..], &times.words(plan)].concat();
    let zero = 0u32.to_ne_bytes();
    let maps = loaded.maps();
    maps.put("copied", &zero, &vec![0; (WORDS + TRIP_WORDS) * 8])?;
    maps.put("coming", &zero, &bytes_of(&words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fanout::Fanout;
    use crate::timetable::Times;
    use crate::traffic::{PAYLOAD_AT, Replayable, TrafficPlan};
    use laneway_bpf::{RunInput, prog_run};
    use laneway_testkit::skip;

    const FRAMES: u32 = 400;

    fn plan(payload_bytes: u16) -> FanoutPlan {
        let fanout = Fanout { groups: 3, outputs: 5, cables: 2, limit_mbit: None };
        let source = crate::addresses::GENERATOR;
        FanoutPlan { fanout, payload_bytes, run: 4, source }
    }

    fn segment(segment: u8, t0_ns: u64) -> SegmentPlan {
        SegmentPlan { segment, t0_ns, frames: FRAMES, interval_ns: 1, burst: 1, entry: 0 }
    }

    /// The far ends, without cables; `None` where programs cannot be loaded.
    fn copies(plan: FanoutPlan) -> Option<Copies> {
        let times = Timetable::default();
        let cables: Result<_, _> = (0..plan.fanout.cables)
            .map(|cable| Ok(Cable { _attached: None, loaded: load(&plan, cable, &times)? }))
            .collect();
        let cables = cables.map_err(|why: BpfError| skip(why)).ok()?;
        Some(Copies { cables, plan, times })
    }

    /// Datagram `number` of segment 3, as it comes out of an output of this place on its cable.
    fn copy(plan: FanoutPlan, number: u32, place: u16) -> Vec<u8> {
        let traffic = Replayable::prepare(&TrafficPlan::Fanout(plan), &Times::Steady).unwrap();
        let template = traffic.template(number);
        let mut frame = vec![0; template.frame.len()];
        template.write(&mut frame, [0; 6], 3, number, 0);
        let port = plan.fanout.first_group().port() + place;
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    }

    fn run(copies: &Copies, cable: usize, frame: &[u8]) {
        let program = copies.cables[cable].loaded.program();
        let output = prog_run(program, RunInput { frame, ..RunInput::default() });
        assert_eq!(output.expect("it runs").verdict, 1, "dropped");
    }

    #[test]
    fn every_copy_counts_once_at_its_own_output() {
        let plan = plan(100);
        let Some(copies) = copies(plan) else { return };
        copies.expect(&segment(3, 1_000)).unwrap();
        // Cable 0 has outputs 0, 2 and 4, cable 1 has outputs 1 and 3.
        for (cable, place, numbers) in
            [(0, 0, &[0, 1, 8, 5][..]), (0, 2, &[0, 64, 399]), (1, 1, &[0, 0, 1])]
        {
            for &number in numbers {
                run(&copies, cable, &copy(plan, number, place));
            }
        }
        let (copied, trips) = copies.read().unwrap();
        assert_eq!((copied.by_output, copied.by_cable), (vec![4, 0, 0, 2, 3], vec![7, 2]));
        assert_eq!((copied.distinct, copied.duplicates, copied.reordered), (9, 1, 1));
        assert_eq!((copied.foreign, copied.strangers, copied.wrong.len()), (0, 0, 0));
        // Numbers 0, 8, 0, 64 and 0.
        assert_eq!(trips.n(), 5);
        assert!(0 < copied.first_ns && copied.first_ns <= copied.last_ns);
        // What another segment ticked off is forgotten.
        copies.expect(&segment(3, 2_000)).unwrap();
        run(&copies, 0, &copy(plan, 1, 2));
        let (copied, _) = copies.read().unwrap();
        assert_eq!((copied.by_output, copied.duplicates), (vec![0, 0, 0, 0, 1], 0));
    }

    #[test]
    fn copies_of_a_limited_cable_are_counted_and_not_timed() {
        let mut plan = plan(100);
        plan.fanout.limit_mbit = Some(5);
        let Some(copies) = copies(plan) else { return };
        copies.expect(&segment(3, 1_000)).unwrap();
        for (cable, number) in [(0, 0), (0, 8), (1, 0)] {
            run(&copies, cable, &copy(plan, number, 0));
        }
        let (copied, trips) = copies.read().unwrap();
        assert_eq!((copied.by_cable, trips.n()), (vec![2, 1], 1));
    }

    #[test]
    fn what_no_relay_should_send_is_told_apart() {
        let plan = plan(200);
        let Some(copies) = copies(plan) else { return };
        copies.expect(&segment(3, 1_000)).unwrap();
        let whole = copy(plan, 64, 0);
        run(&copies, 0, &whole);
        let changed = |at: usize, bytes: &[u8]| {
            let mut frame = copy(plan, 64, 1);
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            frame
        };
        // A third output is on the first cable only.
        run(&copies, 1, &copy(plan, 64, 2));
        run(&copies, 0, &changed(33, &[4]));
        // It was group 2's turn, not group 3's; its complement off by one; a word spoilt; two bytes too few; a segment that is none.
        run(&copies, 0, &changed(33, &[3]));
        run(&copies, 0, &changed(PAYLOAD_AT + 7, &[0]));
        run(&copies, 0, &changed(PAYLOAD_AT + 16 + 8 * 22, &[1, 2]));
        run(&copies, 0, &changed(38, &[0, 206]));
        run(&copies, 0, &changed(PAYLOAD_AT + 1, &[9, 0, 0, 0, 64, 253, 246]));
        // A fragment, and something that is no IP.
        run(&copies, 0, &changed(20, &[0x20]));
        run(&copies, 0, &[0; 60]);
        let (copied, _) = copies.read().unwrap();
        let wrong = BTreeMap::from([(UNKNOWN, 2), (MISLED, 1), (SPOILT, 3)]);
        assert_eq!((copied.distinct, copied.foreign, copied.strangers), (1, 1, 2));
        assert_eq!(copied.wrong, wrong);
        assert_eq!(copied.seen(), 8);
    }

    #[test]
    fn the_longest_and_the_shortest_payload_are_compared_to_their_end() {
        for payload_bytes in [18, 24, 1_472] {
            let plan = plan(payload_bytes);
            let Some(copies) = copies(plan) else { return };
            copies.expect(&segment(3, 1_000)).unwrap();
            run(&copies, 1, &copy(plan, 128, 0));
            let (copied, _) = copies.read().unwrap();
            assert_eq!((copied.distinct, copied.wrong.len()), (1, 0), "{payload_bytes}");
        }
    }
}
