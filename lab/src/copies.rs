//! What comes out of a fan-out: a program at the far end of every cable on the way out, which ticks off every copy of every
//! datagram at the output that it was sent to, and drops it. `bpf/trains.bpf.c` sees what a receiver sees, trains uncut;
//! `bpf/copies.bpf.c` has each copy come as a frame of its own ([`FarEnd`]).
//!
//! An output is a cable, a group and a UDP port, and has a bitmap of its own: so a copy that arrived twice at one is
//! not taken for one that is missing at another. What arrived where no output is, at the wrong group or with other
//! bytes is counted apart. The work is done in the softirq of the sender, so on the arm's CPU, of which it takes some;
//! it is booked on the generator's side.
//!
//! One number in eight is booked at each output with the time since it was due.

use crate::arrivals::ARRIVALS_MAX;
use crate::error::RaceError;
use crate::fanout::{FanoutPlan, FarEnd};
use crate::result::Segment;
use crate::round_trips::{LATE_NS, RoundTrips, TRIP_WORDS};
use crate::segment::SegmentPlan;
use crate::timetable::Timetable;
use crate::words::{bytes_of, words_of};
use laneway_bpf::{BpfError, Loaded, TcIngress, XdpLink, XdpMode};
use laneway_core::{ConfigValue, KernelHalf, KernelMaps, LaneError};
use laneway_netns::Namespace;
use std::collections::BTreeMap;

/// The compiled programs.
static FRAMES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/copies.bpf.o"));
static TRAINS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trains.bpf.o"));

/// `u64` words of `struct lw_copied` in front of its trips.
const WORDS: usize = 12;
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

/// What arrived of the segment under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Different copies of it.
    pub(crate) distinct: u64,
    /// Copies that had come to that output already.
    pub(crate) duplicates: u64,
    /// Copies sent before one that arrived at that output earlier.
    pub(crate) reordered: u64,
    /// Numbered copies of another segment.
    pub(crate) foreign: u64,
    /// Frames that are no copy: the kernel's own talk.
    pub(crate) strangers: u64,
    /// What no relay that follows its configuration sends, by name; only what there was.
    pub(crate) wrong: BTreeMap<&'static str, u64>,
    /// When the first and the last sampled one arrived, CLOCK_MONOTONIC ns.
    pub(crate) first_ns: u64,
    /// See `first_ns`.
    pub(crate) last_ns: u64,
    /// Trains of several that arrived uncut.
    pub(crate) trains: u64,
    /// Copies in these, whatever became of each.
    pub(crate) in_trains: u64,
    /// The different copies by output, in the order of [`Fanout::outputs`](crate::fanout::Fanout::outputs).
    pub(crate) by_output: Vec<u64>,
    /// The same by cable.
    pub(crate) by_cable: Vec<u64>,
}

impl Copied {
    /// All that arrived, whatever it was.
    pub(crate) fn seen(&self) -> u64 {
        self.distinct + self.duplicates + self.foreign + self.wrong.values().sum::<u64>()
    }

    /// Adds what arrived by the next cable.
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
            trains,
            in_trains,
        ] = *words.first_chunk::<WORDS>().expect("they were read");
        self.distinct += distinct;
        self.by_cable.push(distinct);
        self.duplicates += duplicates;
        self.reordered += reordered;
        self.foreign += foreign;
        self.strangers += strangers;
        self.trains += trains;
        self.in_trains += in_trains;
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
pub(crate) const MISLED: &str = "sent to another group than they were received for";
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
    _attached: Attached,
    loaded: Loaded,
}

/// What keeps a program where it is.
enum Attached {
    Driver(#[expect(dead_code, reason = "held")] XdpLink),
    Receiver(#[expect(dead_code, reason = "held")] TcIngress),
    #[cfg(test)]
    Nowhere,
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
            let attach = || match plan.fanout.far_end {
                FarEnd::Trains => TcIngress::attach(program, interface).map(Attached::Receiver),
                FarEnd::Frames => {
                    XdpLink::attach(program, interface, XdpMode::Native).map(Attached::Driver)
                }
            };
            let attached = namespace.enter(attach)??;
            Ok::<_, RaceError>(Cable { _attached: attached, loaded })
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

    /// What arrived so far by all cables, and how long the sampled ones took since they were due.
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

/// How many of each arm's copies arrived in trains, and how long these were.
pub(crate) fn trains_note(segments: &[Segment], names: &[String]) -> String {
    let of = |(arm, name): (usize, &String)| {
        let ledgers = segments.iter().filter(|segment| segment.arm == arm).map(|s| &s.ledger);
        let (mut delivered, mut trains, mut in_trains) = (0, 0, 0);
        for ledger in ledgers {
            delivered += ledger.delivered;
            trains += ledger.trains;
            in_trains += ledger.in_trains;
        }
        match trains {
            0 => format!("`{name}` none"),
            _ => format!(
                "`{name}` {:.0} %, {:.1} in each",
                100.0 * in_trains as f64 / delivered.max(in_trains) as f64,
                in_trains as f64 / trains as f64
            ),
        }
    };
    let arms: Vec<String> = names.iter().enumerate().map(of).collect();
    format!("copies that arrived in trains, uncut: {}", arms.join(", "))
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
    let (name, object, program) = match plan.fanout.far_end {
        FarEnd::Trains => ("trains", TRAINS, "take_trains"),
        FarEnd::Frames => ("copies", FRAMES, "take_copies"),
    };
    let half = KernelHalf {
        config: values.into_iter().map(value).chain([times.config()]).collect(),
        entries: times.entries().collect(),
        map_sizes: vec![("ticks", words), ("outputs", outputs), times.map_size()],
        ..KernelHalf::new(name, object, program)
    };
    match plan.fanout.far_end {
        FarEnd::Trains => Loaded::load_for_tc(&half),
        FarEnd::Frames => Loaded::load(&half),
    }
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
mod tests;
