//! The kernel as generator: `bpf/generate.bpf.c` run in live-frames mode. About 10 million frames
//! per second and core here, and no socket buffer before the wire.

use crate::late::{BINS, Late};
use crate::{
    result::GeneratorReport,
    segment::SegmentPlan,
    timetable::Timetable,
    traffic::{FRAME_BYTES_MAX, Replayable, Template},
    words::{bytes_of, words_of},
};
use laneway_bpf::{BpfError, LiveFrames, Loaded, XdpLink, XdpMode, live_frames};
use laneway_core::{ConfigValue, KernelHalf, KernelMaps, LaneError, MapValue};

/// The compiled program.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/generate.bpf.o"));

/// Bytes of `struct lw_template`.
const TEMPLATE_BYTES: usize = 8 + FRAME_BYTES_MAX + 6;
/// `u64` words of `struct lw_generated` in front of the bins.
const GENERATED_WORDS: usize = 7;

/// A loaded generator: its program runs only while [`send`](Self::send) does.
pub(crate) struct LiveGenerator {
    /// Declared first: detach before the program goes.
    _attached: XdpLink,
    loaded: Loaded,
    times: Timetable,
}

/// Where the program is attached, though no frame ever comes there: the kernel patches its XDP
/// dispatcher, on all CPUs, whenever a program is first used and last used, which would otherwise
/// be the start and the end of every segment.
const NOWHERE: &str = "lo";

impl LiveGenerator {
    /// Loads the program with its templates, to send out of interface `egress_ifindex` of the
    /// thread's network namespace, to `destination` unless they have their own; `to_tap` puts in front what the reader
    /// of a TAP device expects there, which the kernel leaves out for such frames.
    ///
    /// # Errors
    /// Missing privilege or kernel support.
    pub(crate) fn new(
        traffic: &Replayable,
        egress_ifindex: u32,
        destination: [u8; 6],
        to_tap: bool,
    ) -> Result<LiveGenerator, BpfError> {
        let count = traffic.templates.len() as u32;
        let value = |name, bytes: &[u8]| ConfigValue { name, bytes: bytes.to_vec() };
        let loaded = Loaded::load(&KernelHalf {
            config: vec![
                value("lw_ifindex", &egress_ifindex.to_ne_bytes()),
                value("lw_templates", &count.to_ne_bytes()),
                value("lw_run", &traffic.run.to_ne_bytes()),
                value("lw_number_at", &u32::from(number_at(traffic)).to_ne_bytes()),
                value("lw_packet_info", &[u8::from(to_tap)]),
                traffic.times.config(),
            ],
            entries: (0u32..)
                .zip(&traffic.templates)
                .map(|(i, t)| {
                    let value = MapValue::Bytes(template_bytes(t, destination));
                    ("templates", i.to_ne_bytes().to_vec(), value)
                })
                .chain(traffic.times.entries())
                .collect(),
            map_sizes: vec![("templates", count), traffic.times.map_size()],
            ..KernelHalf::new("generate", OBJECT, "generate")
        })?;
        let attached = XdpLink::attach(loaded.program(), NOWHERE, XdpMode::Generic)?;
        Ok(LiveGenerator { _attached: attached, loaded, times: traffic.times.clone() })
    }

    /// Sends one segment; returns when its last frame has left.
    ///
    /// # Errors
    /// When the kernel refuses the run.
    pub(crate) fn send(&mut self, plan: &SegmentPlan) -> Result<GeneratorReport, LaneError> {
        self.expect(plan)?;
        // The first page decides how long a frame may be; the program cuts each to its length.
        let frame = [0; FRAME_BYTES_MAX];
        let run = LiveFrames {
            frame: &frame,
            meta: &[],
            frames: plan.frames,
            batch: plan.burst.clamp(1, 256),
            ingress_ifindex: 0,
        };
        live_frames(self.loaded.program(), run).map_err(|e| e.in_lane("generator"))?;

        let read = words_of(&self.loaded, "generated", GENERATED_WORDS + BINS)?;
        Ok(report(plan, self.times.rate_pps(plan), &read))
    }

    /// Tells the program what to send next.
    fn expect(&self, plan: &SegmentPlan) -> Result<(), LaneError> {
        let what = [u64::from(plan.frames), u64::from(plan.segment)];
        let words = [&what[..], &self.times.words(plan)].concat();
        let zero = 0u32.to_ne_bytes();
        let maps = self.loaded.maps();
        maps.put("generated", &zero, &vec![0; (GENERATED_WORDS + BINS) * 8])?;
        maps.put("plan", &zero, &bytes_of(&words))
    }

    /// Has the program run for each frame that comes to `interface` of `namespace`, and wait there until a frame of
    /// `plan` is due: an XDP program that takes its time.
    #[cfg(test)]
    pub(crate) fn dawdle(
        &self,
        namespace: &laneway_netns::Namespace,
        interface: &str,
        plan: &SegmentPlan,
    ) -> XdpLink {
        self.expect(plan).unwrap();
        let program = self.loaded.program();
        let attach = || XdpLink::attach(program, interface, XdpMode::Native);
        namespace.enter(attach).unwrap().unwrap()
    }
}

/// Where numbers go, the same for all templates; 0: into the source MAC.
fn number_at(traffic: &Replayable) -> u16 {
    traffic.templates.first().and_then(|template| template.number_at).unwrap_or(0)
}

fn report(plan: &SegmentPlan, asked_pps: f64, read: &[u64]) -> GeneratorReport {
    let [next, refused, _bytes, first_ns, last_ns, late_max_ns, early] =
        *read.first_chunk().expect("the header");
    let late = Late::from_bins(*read.last_chunk().expect("the bins"), late_max_ns);
    let sent = next - refused;
    // The last burst's interval belongs to the schedule although nothing follows it.
    let seconds = (last_ns - first_ns + plan.interval_ns) as f64 / 1e9;
    GeneratorReport {
        asked_pps,
        achieved_pps: sent as f64 / seconds,
        sent,
        refused,
        late_p50_ns: late.quantile_ns(0.5),
        late_p99_ns: late.quantile_ns(0.99),
        late_max_ns,
        early,
        cpu_ns: 0,
    }
}

fn template_bytes(template: &Template, destination: [u8; 6]) -> Vec<u8> {
    let goes_to = template.destination.unwrap_or(destination);
    let (source, destination) =
        template.addresses.map_or((0, 0), |at| (at.source_at, at.destination_at));
    let mut bytes = Vec::with_capacity(TEMPLATE_BYTES);
    bytes.extend((template.frame.len() as u32).to_ne_bytes());
    bytes.extend(source.to_ne_bytes());
    bytes.extend(destination.to_ne_bytes());
    bytes.extend(goes_to);
    bytes.extend(&template.frame[goes_to.len()..]);
    bytes.resize(TEMPLATE_BYTES, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permitted::permitted;
    use laneway_core::Clock;
    use laneway_engine::MonotonicClock;
    use laneway_netns::{Namespace, can_create};
    use laneway_testkit::skip;

    /// Longer than one loop lasts, which is 0.3 s where a look at the clock takes 71 ns.
    const INTERVAL_NS: u64 = 1_000_000_000;

    fn plan(t0_ns: u64) -> SegmentPlan {
        SegmentPlan { segment: 1, t0_ns, frames: 2, interval_ns: INTERVAL_NS, burst: 1, entry: 0 }
    }

    #[test]
    fn a_frame_is_waited_for_however_long_a_loop_of_the_kernel_lasts() {
        if can_create().map_err(skip).is_err() {
            return;
        }
        let traffic = Replayable::of(vec![Template::new(&[0; 60])]);
        let send = || {
            // Out of no interface that there is.
            let mut live = permitted(LiveGenerator::new(&traffic, 1 << 20, [2; 6], false))?;
            let t0_ns = MonotonicClock.now_ns();
            let sent = live.send(&plan(t0_ns)).unwrap();
            Some((sent, MonotonicClock.now_ns() - t0_ns))
        };
        let sent = Namespace::create("live").unwrap().enter(send).unwrap();
        let Some((sent, took_ns)) = sent else { return };
        // Not how fast it is: when the last is due.
        assert!(took_ns >= INTERVAL_NS, "{took_ns} ns");
        assert_eq!((sent.sent, sent.early), (2, 0), "{sent:?}");
    }

    #[test]
    fn what_left_early_is_reported() {
        let mut read = vec![0; GENERATED_WORDS + BINS];
        let (next, last_ns, early) = (3, 2, 1);
        (read[0], read[4], read[6]) = (next, last_ns, early);
        let report = report(&plan(0), 1.0, &read);
        assert_eq!((report.sent, report.late_max_ns, report.early), (3, 0, 1));
    }
}
