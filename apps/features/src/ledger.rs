//! What became of every frame: seen = delivered + every named drop, for one run of the extractor.
//!
//! Built from what lane and app counted, each on its own, so that it can be open: then something
//! was counted twice or not at all, and the run is invalid. Frames that no counter of ours can see
//! (a device's own queue) are not in it.

use crate::{Aggregation, Config, Features, KernelFeatures, Level, Sink, offline};
use laneway_core::DropReason;
use laneway_flow::BEHIND_NS;
use laneway_kinds::{Line, Report, RunReport};
use laneway_page::text::aligned;
use serde::Serialize;
use std::collections::BTreeMap;

/// What "late" means, for a person.
const LATE: &str = "by at most 2 s";
const _: () = assert!(BEHIND_NS == 2_000_000_000, "as LATE says");

/// The ledger of a run, in frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Frames that arrived, including those that the lane lost on the way.
    pub seen: u64,
    /// Frames that became a row, or part of one.
    pub delivered: u64,
    /// Of the delivered ones at level `flow`: frames that belong to no flow (not IP).
    pub unflowed: u64,
    /// Frames that went no further, by reason.
    pub drops: BTreeMap<DropReason, u64>,
    /// Frames that the kernel's stack did not take back when the app had looked at them: delivered or dropped
    /// before, so these are no further ones.
    pub pass_refused: u64,
    /// Records that arrived damaged: of another version of the program.
    pub damaged: u64,
    /// How the stamps of flows' frames were ordered.
    pub disorder: Disorder,
}

/// [`laneway_flow::Disorder`] for people and programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disorder {
    /// Stamps before an earlier frame's, in order all the same.
    pub late: u64,
    /// Stamps out of order that the next one did not confirm.
    pub strays: u64,
    /// Times that the stamps stepped back.
    pub steps: u64,
    /// Frames that the capture has no time for.
    pub untimed: u64,
}

impl From<laneway_flow::Disorder> for Disorder {
    fn from(counted: laneway_flow::Disorder) -> Disorder {
        let laneway_flow::Disorder { late, strays, steps, untimed } = counted;
        Disorder { late, strays, steps, untimed }
    }
}

impl Ledger {
    /// Of an extractor in user space: what the lane lost never reached the app.
    pub(crate) fn of_frames<S: Sink>(report: &RunReport, app: &Features<S>) -> Ledger {
        let mut lane = report.counters();
        // Of a frame that has its row.
        let pass_refused = lane.drops(DropReason::PassRefused);
        lane.set_drops(DropReason::PassRefused, 0);
        let lost: u64 = lane.nonzero_drops().map(|(_, n)| n).sum();
        let mut drops = lane.clone();
        drops.merge(&report.app);
        Ledger {
            seen: lane.rx_frames + lost,
            delivered: report.app.rx_frames,
            unflowed: app.unflowed(),
            drops: drops.nonzero_drops().collect(),
            pass_refused,
            damaged: 0,
            disorder: app.disorder().into(),
        }
    }

    /// Of an extractor in the kernel: the program counts what it sees before it leaves anything out.
    pub(crate) fn of_kernel<S: Sink>(
        report: &RunReport,
        app: &KernelFeatures<S>,
        config: &Config,
    ) -> Ledger {
        let lane = report.counters();
        // Where the kernel puts flows together, no record of a frame without one comes up.
        let aggregates = config.level == Level::Flow && config.aggregation == Aggregation::Kernel;
        let stayed = if aggregates { app.unflowed() } else { 0 };
        let mut drops = lane.clone();
        drops.merge(&report.app);
        Ledger {
            seen: lane.rx_frames,
            delivered: report.app.rx_frames + stayed,
            unflowed: app.unflowed(),
            drops: drops.nonzero_drops().collect(),
            pass_refused: 0,
            damaged: app.damaged(),
            disorder: app.disorder().into(),
        }
    }

    /// Of captures: every record of a file was read.
    pub fn of_captures(frames: u64, summary: &offline::Summary) -> Ledger {
        Ledger {
            seen: frames,
            delivered: summary.counters.rx_frames,
            unflowed: summary.unflowed,
            drops: summary.counters.nonzero_drops().collect(),
            pass_refused: 0,
            damaged: 0,
            disorder: summary.disorder.into(),
        }
    }

    /// Adds that of another worker.
    pub fn add(&mut self, other: &Ledger) {
        let Ledger { seen, delivered, unflowed, drops, pass_refused, damaged, disorder } = other;
        let Disorder { late, strays, steps, untimed } = disorder;
        self.disorder.late += late;
        self.disorder.strays += strays;
        self.disorder.steps += steps;
        self.disorder.untimed += untimed;
        self.seen += seen;
        self.delivered += delivered;
        self.unflowed += unflowed;
        self.pass_refused += pass_refused;
        self.damaged += damaged;
        for (reason, n) in drops {
            *self.drops.entry(*reason).or_default() += n;
        }
    }

    /// Frames that are accounted for.
    pub fn accounted(&self) -> u64 {
        self.delivered + self.drops.values().sum::<u64>() + self.damaged
    }

    /// True when every frame is accounted for exactly once.
    pub fn is_closed(&self) -> bool {
        self.seen == self.accounted()
    }

    /// Frames that were lost without being asked for.
    pub fn lost(&self) -> u64 {
        self.losses().values().sum()
    }

    /// The losses by name, for the output's metadata.
    pub fn losses(&self) -> BTreeMap<String, u64> {
        let drops = self.drops.iter().filter(|(reason, _)| !reason.is_asked_for());
        let mut losses: BTreeMap<String, u64> =
            drops.map(|(reason, n)| (reason.name().to_owned(), *n)).collect();
        if self.damaged > 0 {
            losses.insert("damaged_records".to_owned(), self.damaged);
        }
        losses
    }

    /// The heading of what was seen.
    pub(crate) const SEEN_HEADING: &str = "frames seen";

    /// What became of what was seen, a line per figure.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let mut lines = vec![("  delivered".to_owned(), self.delivered, "")];
        if self.unflowed > 0 {
            lines.push(("    of no flow".to_owned(), self.unflowed, "not IP"));
        }
        lines.extend(self.drops.iter().map(|(reason, n)| {
            let note = if reason.is_asked_for() { "as asked" } else { "lost" };
            (format!("  {}", reason.name()), *n, note)
        }));
        if self.damaged > 0 {
            lines.push(("  damaged_records".to_owned(), self.damaged, "lost"));
        }
        if self.pass_refused > 0 {
            lines.push((
                DropReason::PassRefused.name().to_owned(),
                self.pass_refused,
                "seen, but not passed on",
            ));
        }
        let Disorder { late, strays, steps, untimed } = self.disorder;
        let stamps = [
            ("stamped late", late, LATE),
            ("stamped astray", strays, "confirmed by no other"),
            ("steps back", steps, "of the stamps; time went on"),
            ("without a time", untimed, ""),
        ];
        let there = stamps.into_iter().filter(|(_, n, _)| *n > 0);
        lines.extend(there.map(|(name, n, note)| (name.to_owned(), n, note)));
        lines
    }

    /// For a person: one line per figure, right-aligned.
    pub fn table(&self) -> String {
        let lines = self.lines();
        let mut aligned_lines = vec![(Ledger::SEEN_HEADING, self.seen, "")];
        aligned_lines.extend(lines.iter().map(|(name, n, note)| (name.as_str(), *n, *note)));
        aligned(&aligned_lines)
    }

    /// What is wrong with an open ledger.
    pub fn complaint(&self) -> Option<String> {
        (!self.is_closed()).then(|| {
            format!(
                "the ledger is open: {} frames seen, {} accounted for; the rows cannot be trusted, \
                 please report this with the command",
                self.seen,
                self.accounted()
            )
        })
    }
}

impl Report for Ledger {
    fn merge(&mut self, other: &Ledger) {
        self.add(other);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use laneway_core::{
        CapsReport, ClockDomain, Counters, KernelApp, KernelMaps, LaneError, MapValue, PortId, Turn,
    };
    use laneway_flow::{EndedFlow, Record};
    use laneway_kinds::{Ended, PortReport};

    fn ledger() -> Ledger {
        let drops = [(DropReason::RecordRingFull, 3), (DropReason::Sampled, 7)];
        Ledger { seen: 20, delivered: 10, drops: drops.into(), ..Ledger::default() }
    }

    #[test]
    fn a_ledger_is_closed_when_every_frame_is_named_once() {
        let mut ledger = ledger();
        assert!(ledger.is_closed() && ledger.complaint().is_none());
        ledger.delivered += 1;
        let complaint = ledger.complaint().unwrap();
        assert!(complaint.contains("20 frames seen, 21 accounted for"), "{complaint}");
    }

    #[test]
    fn what_was_asked_for_is_named_but_no_loss() {
        let ledger = ledger();
        assert_eq!(ledger.losses(), [("record_ring_full".to_owned(), 3)].into());
        assert_eq!(ledger.lost(), 3);
        assert!(ledger.table().contains("sampled_out"), "{}", ledger.table());
    }

    #[test]
    fn ledgers_of_workers_add_up_and_one_that_is_open_shows() {
        let mut sum = ledger();
        sum.add(&Ledger { seen: 5, delivered: 4, damaged: 1, ..Ledger::default() });
        sum.add(&ledger());
        assert_eq!((sum.seen, sum.delivered, sum.damaged), (45, 24, 1));
        assert_eq!(sum.drops, [(DropReason::RecordRingFull, 6), (DropReason::Sampled, 14)].into());
        assert!(sum.is_closed());
        sum.add(&Ledger { seen: 1, ..Ledger::default() });
        assert!(!sum.is_closed());
    }

    struct Nowhere;

    impl Sink for Nowhere {
        fn packet(&mut self, _: &Record) {}
        fn flow(&mut self, _: &EndedFlow<'_>) {}
    }

    pub(crate) fn report(lane: Counters, app: Counters) -> RunReport {
        RunReport {
            ended: Ended::Stopped,
            ports: vec![PortReport { id: PortId(0), caps: CapsReport::default(), counters: lane }],
            app,
            ..RunReport::begun("lane", ClockDomain::Monotonic)
        }
    }

    fn counters(rx_frames: u64, drops: &[(DropReason, u64)]) -> Counters {
        let mut counters = Counters::default();
        counters.rx_frames = rx_frames;
        drops.iter().for_each(|&(reason, n)| counters.drop_many(reason, n));
        counters
    }

    #[test]
    fn in_user_space_lane_and_app_each_name_their_drops() {
        let lane = counters(20, &[(DropReason::RxQueueFull, 5)]);
        let app = counters(13, &[(DropReason::Sampled, 7)]);
        let features = Features::new(&Config::default(), Vec::new(), Nowhere);
        let ledger = Ledger::of_frames(&report(lane, app), &features);
        assert_eq!((ledger.seen, ledger.delivered, ledger.lost()), (25, 13, 5));
        assert!(ledger.is_closed(), "{ledger:?}");
    }

    #[test]
    fn a_frame_that_the_stack_did_not_take_back_is_a_row_and_no_loss() {
        let lane = counters(20, &[(DropReason::PassRefused, 5)]);
        let app = counters(20, &[]);
        let features = Features::new(&Config::default(), Vec::new(), Nowhere);
        let mut ledger = Ledger::of_frames(&report(lane, app), &features);
        assert_eq!((ledger.seen, ledger.delivered, ledger.lost()), (20, 20, 0));
        assert!(ledger.is_closed() && ledger.losses().is_empty(), "{ledger:?}");
        assert!(ledger.table().contains("pass_refused"), "{}", ledger.table());
        ledger.add(&ledger.clone());
        assert_eq!((ledger.pass_refused, ledger.accounted()), (10, 40));
    }

    /// The maps of a kernel half that saw 4 frames of no flow.
    struct Maps;

    impl KernelMaps for Maps {
        fn visit(&self, map: &str, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), LaneError> {
            if map == "unflowed" {
                each(&[0; 4], &4u64.to_ne_bytes());
            }
            Ok(())
        }

        fn remove(&self, _: &str, _: &[u8]) -> Result<(), LaneError> {
            Ok(())
        }

        fn put(&self, _: &str, _: &[u8], _: &[u8]) -> Result<(), LaneError> {
            Ok(())
        }

        fn set(&self, _: &str, _: &[u8], _: &MapValue) -> Result<(), LaneError> {
            Ok(())
        }
    }

    #[test]
    fn in_the_kernel_frames_of_no_flow_stay_there_and_are_counted() {
        let (level, aggregation) = (Level::Flow, Aggregation::Kernel);
        let config = Config { level, aggregation, ..Config::default() };
        let mut app = KernelFeatures::new(config.clone(), Nowhere);
        app.on_detached(&Maps, Turn::default());
        let lane = counters(20, &[(DropReason::FlowTableFull, 6)]);
        let ledger = Ledger::of_kernel(&report(lane, counters(10, &[])), &app, &config);
        assert_eq!((ledger.seen, ledger.delivered, ledger.unflowed), (20, 14, 4));
        assert!(ledger.is_closed(), "{ledger:?}");
    }

    #[test]
    fn rows_that_the_writer_had_no_room_for_are_a_loss_of_the_app_in_either_placement() {
        let app = || counters(13, &[(DropReason::SinkFull, 7)]);
        let config = Config::default();
        let features = Features::new(&config, Vec::new(), Nowhere);
        let in_user = Ledger::of_frames(&report(counters(20, &[]), app()), &features);
        let features = KernelFeatures::new(config.clone(), Nowhere);
        let in_kernel = Ledger::of_kernel(&report(counters(20, &[]), app()), &features, &config);
        for ledger in [in_user, in_kernel] {
            assert!(ledger.is_closed(), "{ledger:?}");
            assert_eq!((ledger.delivered, ledger.lost()), (13, 7));
            assert_eq!(ledger.drops, [(DropReason::SinkFull, 7)].into());
        }
    }
}
