//! The names of what every run counts.
//!
//! Counters and drop reasons are those of `laneway_core`: a field `rx_frames` is `laneway_port_rx_frames_total` of a
//! port and `laneway_app_rx_frames_total` of the app, and a reason is the label of `..._drops_total` under its own
//! name.

use crate::page::{Family, Page};
use laneway_core::{Counters, DropReason};

/// What runs, with app, lane and version as labels; always 1.
pub const RUN: Family =
    Family::gauge("laneway_run_info", "What runs: the app, its lane, the version; always 1.");
/// Workers that answered, of those that there are.
pub const WORKERS: Family = Family::gauge(
    "laneway_workers",
    "Workers of the run, by whether they have been heard of since it began.",
);
/// Turns of a worker.
pub const TURNS: Family =
    Family::counter("laneway_worker_turns_total", "Rounds over all ports, by worker.");
/// Times that a worker blocked.
pub const WAITS: Family =
    Family::counter("laneway_worker_waits_total", "Times the worker blocked.");
/// Time that a worker blocked.
pub const BLOCKED: Family =
    Family::counter("laneway_worker_blocked_seconds_total", "Time blocked, by worker.");
/// Time that a worker spun.
pub const SPUN: Family = Family::counter(
    "laneway_worker_spun_seconds_total",
    "Time in turns that found nothing to do, without the blocking, by worker.",
);
/// How long a run has gone on.
pub const RUNNING: Family =
    Family::gauge("laneway_worker_running_seconds", "Since the worker began, by worker.");
/// Drops over all ports and workers, one sample per reason of the table.
pub const DROPS: Family = Family::counter(
    "laneway_drops_total",
    "Dropped by the lane, over all ports of all workers, by reason; sampled_out, filtered_out and rate_limited \
     were asked for.",
);
/// Whether there are ports that are not shown.
pub const PORTS_LEFT_OUT: Family = Family::gauge(
    "laneway_ports_left_out",
    "1 where a worker has more ports than are shown and summed here, else 0.",
);
/// What became of what the app was given.
pub const FATES: Family = Family::counter(
    "laneway_app_fates_total",
    "What became of what the app was given, each under exactly one fate.",
);

const PORT_DROPS: Family = Family::counter(
    "laneway_port_drops_total",
    "Dropped at a port of the lane, by worker, port and reason.",
);
const LANE_DROPS: Family = Family::counter(
    "laneway_lane_drops_total",
    "Dropped at all ports of a worker's lane, closed ones included, by worker and reason.",
);
const APP_DROPS: Family =
    Family::counter("laneway_app_drops_total", "Dropped by the app, by worker and reason.");

/// A field of [`Counters`], of a port, of all ports and of the app.
struct Field {
    value: fn(&Counters) -> u64,
    port: Family,
    lane: Family,
    app: Family,
}

macro_rules! fields {
    ($($name:ident $help:literal,)+) => {
        const FIELDS: &[Field] = &[$(Field {
            value: |counters| counters.$name,
            port: Family::counter(
                concat!("laneway_port_", stringify!($name), "_total"),
                concat!(
                    $help,
                    " At a port of the lane, by worker and port; at port `closed`, what no page has shown of ports that \
                     were closed."
                ),
            ),
            lane: Family::counter(
                concat!("laneway_lane_", stringify!($name), "_total"),
                concat!($help, " At all ports of a worker's lane, closed ones included, by worker."),
            ),
            app: Family::counter(
                concat!("laneway_app_", stringify!($name), "_total"),
                concat!($help, " As the app counts, by worker."),
            ),
        }),+];
    };
}

fields! {
    rx_frames "Frames or datagrams handed to the app.",
    rx_bytes "Bytes of those handed to the app.",
    tx_frames "Frames or datagrams sent.",
    tx_bytes "Bytes of those sent.",
    tx_retries "Sends tried again because a queue had been full.",
    passed "Passed to the kernel's stack.",
    copies "Copied in user space for want of a copy-free path.",
    polls_empty "Receive calls that found nothing.",
    waits "Times the worker blocked.",
}

/// Every family that any run may have, in the order of a page; an app's own are not among them.
pub fn families() -> Vec<Family> {
    let of_run = [RUN, WORKERS, RUNNING, TURNS, WAITS, BLOCKED, SPUN, DROPS, PORTS_LEFT_OUT];
    let of_ports = FIELDS.iter().map(|field| field.port).chain([PORT_DROPS]);
    let of_lane = FIELDS.iter().map(|field| field.lane).chain([LANE_DROPS]);
    let of_app = FIELDS.iter().map(|field| field.app).chain([APP_DROPS, FATES]);
    of_run.into_iter().chain(of_lane).chain(of_ports).chain(of_app).collect()
}

/// Adds what a port counted. `labels` say which port of which worker.
pub fn add_port(page: &mut Page, labels: &[(&str, &str)], counters: &Counters) {
    for field in FIELDS {
        page.add(&field.port, labels, (field.value)(counters));
    }
    add_drops(page, &PORT_DROPS, labels, counters.nonzero_drops());
}

/// Adds what all ports of a lane counted together. `labels` say which worker.
pub fn add_lane(page: &mut Page, labels: &[(&str, &str)], counters: &Counters) {
    for field in FIELDS {
        page.add(&field.lane, labels, (field.value)(counters));
    }
    add_drops(page, &LANE_DROPS, labels, counters.nonzero_drops());
}

/// Adds what the app counted. `labels` say which worker.
pub fn add_app(page: &mut Page, labels: &[(&str, &str)], counters: &Counters) {
    for field in FIELDS {
        page.add(&field.app, labels, (field.value)(counters));
    }
    add_drops(page, &APP_DROPS, labels, counters.nonzero_drops());
}

/// Adds the drops of all ports together, those that have not occurred included, so that a first one is seen as one.
pub fn add_drops_of_all(page: &mut Page, counters: &Counters) {
    let all = DropReason::ALL.iter().map(|&reason| (reason, counters.drops(reason)));
    add_drops(page, &DROPS, &[], all);
}

fn add_drops(
    page: &mut Page,
    family: &Family,
    labels: &[(&str, &str)],
    drops: impl Iterator<Item = (DropReason, u64)>,
) {
    for (reason, n) in drops {
        page.add(family, &[labels, &[("reason", reason.name())]].concat(), n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_counters_has_a_name() {
        let mut counters = Counters::default();
        counters.drop_one(DropReason::RxQueueFull);
        let value = serde_json::to_value(&counters).unwrap();
        let mut fields: Vec<&String> = value.as_object().unwrap().keys().collect();
        fields.retain(|name| *name != "drops");
        assert_eq!(fields.len(), FIELDS.len());
        for name in fields {
            let wanted = format!("laneway_port_{name}_total");
            assert!(FIELDS.iter().any(|field| field.port.name == wanted), "{wanted}");
        }
    }

    #[test]
    fn every_family_of_the_table_is_listed_once() {
        let source = include_str!("table.rs").split("#[cfg(test)]").next().expect("the table");
        let declared = source.matches(": Family =").count() + 3 * FIELDS.len();
        let mut names: Vec<&str> = families().iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), declared, "{names:?}");
    }

    #[test]
    fn drops_are_reported_by_reason_and_in_total_those_of_none_as_well() {
        let mut counters = Counters::default();
        counters.rx_frames = 7;
        counters.drop_many(DropReason::TxRefused, 3);
        let mut page = Page::new();
        add_port(&mut page, &[("worker", "0"), ("port", "1")], &counters);
        add_lane(&mut page, &[("worker", "0")], &counters);
        add_app(&mut page, &[("worker", "0")], &counters);
        add_drops_of_all(&mut page, &counters);
        let text = page.render();
        for line in [
            "laneway_port_rx_frames_total{worker=\"0\",port=\"1\"} 7",
            "laneway_port_drops_total{worker=\"0\",port=\"1\",reason=\"tx_refused\"} 3",
            "laneway_lane_rx_frames_total{worker=\"0\"} 7",
            "laneway_lane_drops_total{worker=\"0\",reason=\"tx_refused\"} 3",
            "laneway_app_drops_total{worker=\"0\",reason=\"tx_refused\"} 3",
            "laneway_drops_total{reason=\"tx_refused\"} 3",
            "laneway_drops_total{reason=\"rx_queue_full\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
        }
    }
}
