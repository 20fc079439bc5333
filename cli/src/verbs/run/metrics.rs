//! What a running app counts, put together while a client reads it.
//!
//! A worker publishes a copy of its counters at its next tick, and only when asked ([`Watch`]): nothing is locked or
//! shared where frames are. A worker's last report stays until the next: one that has ended, or takes longer than a
//! look for a turn, is shown as it was last heard of.

use laneway_core::Counters;
use laneway_engine::Watch;
use laneway_kinds::{Page, RunReport};
use laneway_metrics::table;
use laneway_spec::LaneSpec;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longer than a worker takes from tick to tick, however busy the machine is.
const LOOK_WAIT: Duration = Duration::from_secs(1);
/// Ports of a worker that are shown; a port's counters may cost it a system call each time.
const PORTS_MAX: usize = 1024;

/// What is known of a run.
pub(super) struct Figures<'a> {
    app: &'static str,
    spec: &'a LaneSpec,
    places: &'a [String],
    watches: Vec<Watch>,
    /// By worker, what it reported last. One reader at a time: a watch shows one look.
    last: Mutex<Vec<Option<RunReport>>>,
}

impl<'a> Figures<'a> {
    pub(super) fn new(
        app: &'static str,
        spec: &'a LaneSpec,
        places: &'a [String],
        watches: Vec<Watch>,
    ) -> Figures<'a> {
        watches.iter().for_each(|watch| watch.look_at_most(PORTS_MAX + 1));
        let last = Mutex::new(watches.iter().map(|_| None).collect());
        Figures { app, spec, places, watches, last }
    }

    /// The page of now; `own` adds what the app has of its own.
    pub(super) fn page(&self, own: impl FnOnce(&mut Page)) -> String {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        for (last, watch) in last.iter_mut().zip(&self.watches) {
            if let Some(now) = watch.look(LOOK_WAIT).or_else(|| watch.last()) {
                *last = Some(now);
            }
        }
        let mut page = Page::new();
        self.fill(&mut page, &last);
        drop(last);
        own(&mut page);
        page.render()
    }

    fn fill(&self, page: &mut Page, last: &[Option<RunReport>]) {
        let lane = self.spec.to_string();
        let version = env!("CARGO_PKG_VERSION");
        page.add(&table::RUN, &[("app", self.app), ("lane", &lane), ("version", version)], 1);
        let heard = last.iter().flatten().count();
        page.add(&table::WORKERS, &[("heard", "yes")], heard as u64);
        page.add(&table::WORKERS, &[("heard", "no")], (last.len() - heard) as u64);
        let known = last.iter().enumerate().filter_map(|(id, run)| Some((id, run.as_ref()?)));
        let mut all = Counters::default();
        for (id, run) in known {
            let worker = id.to_string();
            let labels = [("worker", worker.as_str())];
            page.add(&table::TURNS, &labels, run.turns);
            page.add(&table::WAITS, &labels, run.waits);
            page.add_ns(&table::BLOCKED, &labels, run.blocked_ns);
            page.add_ns(&table::SPUN, &labels, run.spun_ns);
            page.add_ns(&table::RUNNING, &labels, run.ended_ns.saturating_sub(run.started_ns));
            table::add_app(page, &labels, &run.app);
            // Ports that come and go have labels, and two may have the same one while one takes the other's place.
            let mut labelled: BTreeMap<&str, Counters> = BTreeMap::new();
            for (at, port) in run.ports.iter().take(PORTS_MAX).enumerate() {
                if let Some(label) = &port.caps.label {
                    labelled.entry(label).or_default().merge(&port.counters);
                    continue;
                }
                let place = self.places.get(at).map_or("", String::as_str);
                let port_number = at.to_string();
                let labels = [labels[0], ("port", &port_number), ("place", place)];
                table::add_port(page, &labels, &port.counters);
            }
            for (label, counters) in &labelled {
                table::add_port(page, &[labels[0], ("port", label), ("place", "")], counters);
            }
            if run.past != Counters::default() {
                let labels = [labels[0], ("port", "closed"), ("place", "")];
                table::add_port(page, &labels, &run.past);
            }
            let left_out = run.ports.len() > PORTS_MAX;
            page.add(&table::PORTS_LEFT_OUT, &labels, left_out.into());
            all.merge(&run.counters());
        }
        table::add_drops_of_all(page, &all);
    }
}
