//! What a running app counts, put together while a client reads it.
//!
//! A worker publishes a copy of its counters at its next tick, and only when asked ([`Watch`]): nothing is locked or
//! shared where frames are. A worker's last report stays until the next: one that has ended, or takes longer than a
//! look for a turn, is shown as it was last heard of.
//!
//! What must always hold: no series takes over what another one has shown, or falls because a port was closed. What a
//! port has counted so far stays under its label when it is closed; what it counted behind its last page is shown as
//! that of port `closed`.

use laneway_core::{Counters, PortId};
use laneway_engine::Watch;
use laneway_kinds::{Page, RunReport};
use laneway_metrics::table;
use laneway_spec::LaneSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longer than a worker takes from tick to tick, however busy the machine is.
const LOOK_WAIT: Duration = Duration::from_secs(1);
/// Ports of a worker that are shown; a port's counters may cost it a system call each time.
const PORTS_MAX: usize = 1024;
/// Labels of a worker that are shown although no port has them any more. The series of the one that lost its port
/// first ends.
const CLOSED_LABELS_MAX: usize = 1024;

/// What is known of a run.
pub(super) struct Figures<'a> {
    app: &'static str,
    spec: &'a LaneSpec,
    places: &'a [String],
    watches: Vec<Watch>,
    /// By worker. One reader at a time: a watch shows one look.
    heard: Mutex<Vec<Heard>>,
}

/// What one worker has reported.
#[derive(Default)]
struct Heard {
    /// Its last report.
    last: Option<RunReport>,
    /// What pages have shown of ports that are closed.
    shown: Counters,
    /// The same, of those that had a label.
    closed: BTreeMap<String, ClosedLabel>,
    /// How many reports it has given.
    reports: u64,
}

/// What ports of one label had counted when they were shown last.
#[derive(Default)]
struct ClosedLabel {
    counters: Counters,
    /// Which report was the first without the last of them.
    since: u64,
}

impl Heard {
    fn hear(&mut self, now: RunReport) {
        self.reports += 1;
        let open: BTreeSet<PortId> = now.ports.iter().map(|port| port.id).collect();
        let before = self.last.iter().flat_map(|run| run.ports.iter().take(PORTS_MAX));
        for port in before.filter(|port| !open.contains(&port.id)) {
            self.shown.merge(&port.counters);
            if let Some(label) = &port.caps.label {
                let closed = self.closed.entry(label.clone()).or_default();
                closed.counters.merge(&port.counters);
                closed.since = self.reports;
            }
        }
        self.last = Some(now);
        self.forget_labels();
    }

    /// Ends the series of the labels that have no port for the longest time, if there are too many. One that has a port
    /// stays: it would fall.
    fn forget_labels(&mut self) {
        if self.closed.len() <= CLOSED_LABELS_MAX {
            return;
        }
        let ports = self.last.iter().flat_map(|run| &run.ports);
        let open: BTreeSet<&str> = ports.filter_map(|port| port.caps.label.as_deref()).collect();
        let without = self.closed.iter().filter(|(label, _)| !open.contains(label.as_str()));
        let mut without: Vec<(u64, String)> =
            without.map(|(label, closed)| (closed.since, label.clone())).collect();
        without.sort();
        let beyond = without.len().saturating_sub(CLOSED_LABELS_MAX);
        for (_, label) in &without[..beyond] {
            self.closed.remove(label);
        }
    }

    /// What ports counted by label, those that are closed included.
    fn labelled(&self) -> BTreeMap<&str, Counters> {
        let closed = self.closed.iter();
        let mut sums: BTreeMap<&str, Counters> =
            closed.map(|(label, closed)| (label.as_str(), closed.counters.clone())).collect();
        for port in self.last.iter().flat_map(|run| run.ports.iter().take(PORTS_MAX)) {
            if let Some(label) = &port.caps.label {
                // Two ports may have the same one while one takes the other's place.
                sums.entry(label).or_default().merge(&port.counters);
            }
        }
        sums
    }
}

impl<'a> Figures<'a> {
    pub(super) fn new(
        app: &'static str,
        spec: &'a LaneSpec,
        places: &'a [String],
        watches: Vec<Watch>,
    ) -> Figures<'a> {
        watches.iter().for_each(|watch| watch.look_at_most(PORTS_MAX + 1));
        let heard = Mutex::new(watches.iter().map(|_| Heard::default()).collect());
        Figures { app, spec, places, watches, heard }
    }

    /// The page of now; `own` adds what the app has of its own.
    pub(super) fn page(&self, own: impl FnOnce(&mut Page)) -> String {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        for (heard, watch) in heard.iter_mut().zip(&self.watches) {
            if let Some(now) = watch.look(LOOK_WAIT).or_else(|| watch.last()) {
                heard.hear(now);
            }
        }
        let mut page = Page::new();
        self.fill(&mut page, &heard);
        drop(heard);
        own(&mut page);
        page.render()
    }

    fn fill(&self, page: &mut Page, workers: &[Heard]) {
        let lane = self.spec.to_string();
        let version = env!("CARGO_PKG_VERSION");
        page.add(&table::RUN, &[("app", self.app), ("lane", &lane), ("version", version)], 1);
        let known: Vec<(usize, &Heard, &RunReport)> = workers
            .iter()
            .enumerate()
            .filter_map(|(id, heard)| Some((id, heard, heard.last.as_ref()?)))
            .collect();
        page.add(&table::WORKERS, &[("heard", "yes")], known.len() as u64);
        page.add(&table::WORKERS, &[("heard", "no")], (workers.len() - known.len()) as u64);
        let mut all = Counters::default();
        for (id, heard, run) in known {
            let worker = id.to_string();
            let labels = [("worker", worker.as_str())];
            page.add(&table::TURNS, &labels, run.turns);
            page.add(&table::WAITS, &labels, run.waits);
            page.add_ns(&table::BLOCKED, &labels, run.blocked_ns);
            page.add_ns(&table::SPUN, &labels, run.spun_ns);
            page.add_ns(&table::RUNNING, &labels, run.ended_ns.saturating_sub(run.started_ns));
            table::add_app(page, &labels, &run.app);
            let together = run.counters();
            table::add_lane(page, &labels, &together);
            let unlabelled = run.ports.iter().take(PORTS_MAX).filter(|it| it.caps.label.is_none());
            for port in unlabelled {
                let place = self.places.get(port.id.index()).map_or("", String::as_str);
                let number = port.id.0.to_string();
                let labels = [labels[0], ("port", &number), ("place", place)];
                table::add_port(page, &labels, &port.counters);
            }
            for (label, counters) in &heard.labelled() {
                table::add_port(page, &[labels[0], ("port", label), ("place", "")], counters);
            }
            let unshown = run.past.since(&heard.shown);
            if unshown != Counters::default() {
                let labels = [labels[0], ("port", "closed"), ("place", "")];
                table::add_port(page, &labels, &unshown);
            }
            let left_out = run.ports.len() > PORTS_MAX;
            page.add(&table::PORTS_LEFT_OUT, &labels, left_out.into());
            all.merge(&together);
        }
        table::add_drops_of_all(page, &all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::{CapsReport, ClockDomain};
    use laneway_kinds::PortReport;

    /// Ports by number, label and what they received; and what closed ones did.
    fn report(ports: &[(u32, &str, u64)], past: u64) -> RunReport {
        let received = |frames| {
            let mut counters = Counters::default();
            counters.rx_frames = frames;
            counters
        };
        let port = |&(id, label, frames): &(u32, &str, u64)| PortReport {
            id: PortId(id),
            caps: CapsReport { label: Some(label.to_owned()), ..CapsReport::default() },
            counters: received(frames),
        };
        RunReport {
            ports: ports.iter().map(port).collect(),
            past: received(past),
            ..RunReport::begun("socket", ClockDomain::Monotonic)
        }
    }

    /// What a page shows as received behind this report, by port; all of them together are the worker's.
    fn page(heard: &mut Heard, run: RunReport) -> BTreeMap<String, u64> {
        let spec = "socket".parse().expect("a lane");
        heard.hear(run);
        let mut page = Page::new();
        let figures = Figures::new("relay", &spec, &[], Vec::new());
        figures.fill(&mut page, std::slice::from_ref(heard));
        let page = page.render();
        let value =
            |line: &str| line.rsplit_once(' ').expect("a value").1.parse().expect("a number");
        let series: BTreeMap<String, u64> = page
            .lines()
            .filter(|line| line.starts_with("laneway_port_rx_frames_total{"))
            .map(|line| (line.split('"').nth(3).expect("a port").to_owned(), value(line)))
            .collect();
        let all = page.lines().find(|line| line.starts_with("laneway_lane_rx_frames_total{"));
        let all: u64 = all.map(value).expect("the worker's");
        assert!(series.values().sum::<u64>() <= all, "{page}");
        series
    }

    fn series<const N: usize>(of: [(&str, u64); N]) -> BTreeMap<String, u64> {
        of.map(|(port, received)| (port.to_owned(), received)).into()
    }

    /// All that it had received was then `closed`'s: to Prometheus, a burst of frames that never were.
    #[test]
    fn a_port_that_is_closed_leaves_what_was_shown_of_it_under_its_label() {
        let mut heard = Heard::default();
        let before = page(&mut heard, report(&[(0, "a", 1000), (1, "b", 5)], 0));
        assert_eq!(before, series([("a", 1000), ("b", 5)]));
        // It received three more, and one that no page has shown at all received two.
        let after = page(&mut heard, report(&[(1, "b", 6)], 1003 + 2));
        assert_eq!(after, series([("a", 1000), ("b", 6), ("closed", 5)]));
        // Its label goes on where it was.
        let again = page(&mut heard, report(&[(1, "b", 6), (2, "a", 7)], 1005));
        assert_eq!(again, series([("a", 1007), ("b", 6), ("closed", 5)]));
    }

    #[test]
    fn one_of_two_ports_of_a_label_is_closed_and_its_series_does_not_fall() {
        let mut heard = Heard::default();
        let before = page(&mut heard, report(&[(0, "a", 100), (1, "a", 10)], 0));
        assert_eq!(before, series([("a", 110)]));
        let after = page(&mut heard, report(&[(1, "a", 11)], 100));
        assert_eq!(after, series([("a", 111)]));
    }

    #[test]
    fn labels_without_a_port_are_bounded_and_those_with_one_stay() {
        const MORE: usize = 10;
        let label = |n: usize| format!("{n:05}");
        let mut heard = Heard::default();
        for n in 0..CLOSED_LABELS_MAX + MORE {
            let name = label(n);
            let number = 2 * n as u32;
            let ports = [(0, "stays", 1), (number + 1, "stays", 1), (number + 2, name.as_str(), 1)];
            heard.hear(report(&ports, number.into()));
        }
        let all = 2 * (CLOSED_LABELS_MAX + MORE) as u64;
        let shown = page(&mut heard, report(&[(0, "stays", 1)], all));
        assert_eq!(shown.len(), 1 + CLOSED_LABELS_MAX);
        assert_eq!(shown["stays"], 1 + all / 2);
        assert!(!shown.contains_key(&label(MORE - 1)) && shown.contains_key(&label(MORE)));
        assert!(!shown.contains_key("closed"), "forgotten is not moved");
    }
}
