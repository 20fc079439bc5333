//! The tables of what has no offered load: capacities, and those of a race of pings: what the founding report's table
//! had, for both probes, with what it lacked: percentiles, how many were sent and not replied to, and what each arm
//! obtained.

use super::table::{arm_column, counted};
use super::wording::{arm_name, caps, load_name, no_percentile, scheduled, summary_of};
use crate::result::{CapacityRow, CapacitySection, PingRow, PingSection, RaceResult};
use crate::round_trips::Rtt;
use laneway_page::number::{count, figure, percent};
use laneway_page::table::{Cell, Column, Row, Table, column};

/// What a row of these tables was measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// Ours, at this load.
    Load(usize),
    /// The real ping by itself.
    Ping,
    /// The real ping beside a load of ours.
    PingLoaded,
}

impl Probe {
    /// Those of a race, in the order shown.
    fn all(result: &RaceResult, ping: &PingSection) -> Vec<Probe> {
        let mut probes: Vec<Probe> = scheduled(result).map(|(load, _)| Probe::Load(load)).collect();
        probes.extend((!ping.pings.is_empty()).then_some(Probe::Ping));
        probes.extend((!ping.pings_loaded.is_empty()).then_some(Probe::PingLoaded));
        probes
    }

    fn name(self, result: &RaceResult, ping: &PingSection) -> String {
        match self {
            Probe::Load(load) => load_name(result, load),
            Probe::Ping => "ping, idle".to_owned(),
            Probe::PingLoaded => format!("ping beside {}/s", count(ping.ping_load_pps)),
        }
    }

    /// The real pings of an arm.
    fn row(self, ping: &PingSection, arm: usize) -> Option<&PingRow> {
        let rows = match self {
            Probe::Load(_) => return None,
            Probe::Ping => &ping.pings,
            Probe::PingLoaded => &ping.pings_loaded,
        };
        rows.iter().find(|row| row.arm == arm)
    }
}

/// All of them; none for another app.
pub(super) fn tables(result: &RaceResult) -> Vec<Table> {
    if let Some(searched) = &result.capacity {
        return searches(result, searched);
    }
    let Some(ping) = &result.ping else { return Vec::new() };
    let mut tables = vec![round_trips(result, ping), requests(result, ping), per_cpu(result)];
    if !ping.capacities.is_empty() {
        let caption = format!(
            "Capacity: highest rate of requests with at most {} without reply, {}",
            percent(ping.loss_max_share),
            searched(ping.searched_pps)
        );
        tables.push(capacities(result, &ping.capacities, caption));
    }
    tables
}

/// min, avg, max, mdev and percentiles, per probe and arm.
fn round_trips(result: &RaceResult, ping: &PingSection) -> Table {
    let micros = |head: &str, note: &str| column(head, "\u{b5}s", note);
    let columns = vec![
        probe_column(),
        arm_column(),
        column("replies", "", "Round trips behind the figures, all rounds merged."),
        micros("min", "The shortest, exact."),
        micros("avg", "The mean of all."),
        micros("max", "The longest, exact; not to be compared between unequal numbers."),
        micros("mdev", "As ping has it: the root of the mean square minus the squared mean."),
        micros("p50", "Half took at most this long; needs 100 replies."),
        micros("p99", "99 % took at most this long; needs 5,000 replies."),
        micros("p99.9", "99.9 % took at most this long; needs 50,000 replies."),
    ];
    let cells = |rtt: Option<&Rtt>| {
        let Some(Rtt { summary, avg_ns, mdev_ns, .. }) = rtt else {
            return (0..8).map(|_| Cell::Absent("no round trip was measured".to_owned())).collect();
        };
        let cell = |ns: Option<f64>, needed: u64| match ns {
            Some(ns) => Cell::Figure(figure(ns / 1e3), ns),
            None => Cell::Absent(no_percentile(summary, needed)),
        };
        let whole = |ns: Option<u64>| ns.map(|ns| ns as f64);
        vec![
            counted(summary.n),
            cell(whole(summary.min_ns), 1),
            cell(*avg_ns, 1),
            cell(whole(summary.max_ns), 1),
            cell(*mdev_ns, 1),
            cell(whole(summary.p50_ns), 100),
            cell(whole(summary.p99_ns), 5_000),
            cell(whole(summary.p999_ns), 50_000),
        ]
    };
    let caption =
        "Round trips: ours from the scheduled time, ping's as it prints them; never halved";
    per_probe(result, ping, caption, columns, |arm, probe| {
        cells(match probe {
            Probe::Load(load) => summary_of(result, arm, load).and_then(|s| s.rtt.as_ref()),
            real => real.row(ping, arm).map(|row| &row.rtt),
        })
    })
}

/// What became of every request, and what the arm obtained.
fn requests(result: &RaceResult, ping: &PingSection) -> Table {
    let columns = vec![
        probe_column(),
        arm_column(),
        column("mode", "", "How the arm's program is attached, as obtained."),
        column("requests", "", "As the schedule asked for; of ping, as it says."),
        column("replied", "", "Requests with a reply."),
        column("no reply", "%", "Share of the requests without; ours by place in the ledger."),
        column("late", "", "Replies later than 10 ms; not counted of ping."),
        column("twice", "", "Replies to a request that had one; each is a fault."),
    ];
    let cells = |[sent, replied, twice]: [u64; 3], late: Option<u64>| {
        let lost = sent.saturating_sub(replied) as f64 / sent.max(1) as f64;
        vec![
            counted(sent),
            counted(replied),
            Cell::Figure(figure(lost * 100.0), lost),
            late.map_or_else(|| Cell::Absent("ping does not tell".to_owned()), counted),
            counted(twice),
        ]
    };
    let none = || (0..5).map(|_| Cell::Absent("this arm did not run".to_owned())).collect();
    per_probe(result, ping, "Requests, and what each arm obtained", columns, |arm, probe| {
        let mut row = vec![Cell::Words(mode(result, arm))];
        row.extend::<Vec<Cell>>(match probe {
            Probe::Load(load) => summary_of(result, arm, load).map_or_else(none, |s| {
                let ledger = &s.ledger;
                let counts = [ledger.offered, ledger.delivered, ledger.duplicates];
                cells(counts, s.rtt.as_ref().map(|rtt| rtt.late))
            }),
            real => real
                .row(ping, arm)
                .map_or_else(none, |row| cells([row.sent, row.replied, row.duplicates], None)),
        });
        row
    })
}

/// What a second of CPU time brings in replies, the receive stack included.
fn per_cpu(result: &RaceResult) -> Table {
    let columns = vec![
        column("load", "", "Offered requests per second."),
        arm_column(),
        column("replies", "k/s", "Delivered per second: median over rounds."),
        column("CPU per reply", "ns", "Of all CPUs, receive stack included: median over rounds."),
        column("replies per CPU-second", "k", "The same the other way round."),
        column("min\u{2013}max", "k", "The lowest and the highest block."),
    ];
    let mut rows = Vec::new();
    for load in 0..result.loads_pps.len() {
        for arm in 0..result.arms.len() {
            let summary = summary_of(result, arm, load);
            let replies = summary.and_then(|s| s.records_per_s);
            let cost = summary.and_then(|s| s.cpu_ns_per_record).filter(|ns| ns[1] > 0.0);
            let none = || Cell::Absent("no block can be used".to_owned());
            let mut cells =
                vec![Cell::Words(load_name(result, load)), Cell::Words(arm_name(result, arm))];
            let thousands = |n: f64| Cell::Figure(figure(n / 1e3), n);
            cells.push(replies.map_or_else(none, |[median, ..]| thousands(median)));
            cells.push(cost.map_or_else(none, |[median, ..]| Cell::Figure(figure(median), median)));
            cells.push(cost.map_or_else(none, |[median, ..]| thousands(1e9 / median)));
            cells.push(cost.map_or_else(none, |[_, least, most]| {
                // The dearest block brings the fewest.
                let [low, high] = [most, least].map(|ns| 1e6 / ns);
                Cell::Figure(format!("{}\u{2013}{}", figure(low), figure(high)), high - low)
            }));
            rows.push(Row { cells, opens_group: arm == 0 });
        }
    }
    let caption = "Replies per CPU-second, receive stack included, generator left out".to_owned();
    Table { caption, columns, heads: 2, rows }
}

/// The tables of a search of another app's.
fn searches(result: &RaceResult, found: &CapacitySection) -> Vec<Table> {
    let in_each = format!(
        "in each of {} trials of {} ms, {}",
        found.trials,
        count(found.trial_ms),
        searched(found.searched_pps)
    );
    let most = percent(found.loss_max_share);
    vec![
        capacities(
            result,
            &found.capacities,
            format!("Capacity: highest offered rate with at most {most} lost {in_each}"),
        ),
        capacities(
            result,
            &found.zero_loss,
            format!("Zero-loss rate: highest offered rate with nothing lost {in_each}"),
        ),
    ]
}

fn searched([low, high]: [u64; 2]) -> String {
    format!("searched from {}/s to {}/s", count(low), count(high))
}

/// The highest rate carried, per arm.
fn capacities(result: &RaceResult, rows: &[CapacityRow], caption: String) -> Table {
    let mut columns = vec![
        arm_column(),
        column("mode", "", "How the arm's program is attached, as obtained."),
        column("capacity", "k/s", "Highest rate within the limit: median over rounds."),
        column("min\u{2013}max", "k/s", "The lowest and the highest block."),
        column("searches", "", "Blocks searched."),
        column(
            "open",
            "",
            "Searches that ended at the highest rate asked for or at the generator's limit: the \
             capacity is not less than what stands here.",
        ),
    ];
    let has_left_out = rows.iter().any(|row| row.left_out > 0);
    if has_left_out {
        let about = "Searches in no figure: the generator did not keep the rate at which they ended, as it did in \
                     others of the arm, or something disturbed the lowest.";
        columns.push(column("left out", "", about));
    }
    let rows = rows.iter().map(|row| {
        let mut cells =
            vec![Cell::Words(arm_name(result, row.arm)), Cell::Words(mode(result, row.arm))];
        cells.extend(match row.pps {
            Some([median, min, max]) => {
                let range = format!("{}\u{2013}{}", figure(min / 1e3), figure(max / 1e3));
                [Cell::Figure(figure(median / 1e3), median), Cell::Figure(range, max - min)]
            }
            None => {
                let why = "not even the lowest rate was carried";
                [Cell::Absent(why.to_owned()), Cell::Absent(why.to_owned())]
            }
        });
        cells.extend([counted(row.searches as u64), counted(row.open_ended as u64)]);
        cells.extend(has_left_out.then(|| counted(row.left_out as u64)));
        Row { cells, opens_group: false }
    });
    Table { caption, columns, heads: 2, rows: rows.collect() }
}

/// A row for each arm under each load, and then those for each arm that real pings were sent to.
fn per_probe(
    result: &RaceResult,
    ping: &PingSection,
    caption: &str,
    columns: Vec<Column>,
    cells_of: impl Fn(usize, Probe) -> Vec<Cell>,
) -> Table {
    let mut rows = Vec::new();
    for probe in Probe::all(result, ping) {
        let name = probe.name(result, ping);
        for arm in 0..result.arms.len() {
            let mut cells = vec![Cell::Words(name.clone()), Cell::Words(arm_name(result, arm))];
            cells.extend(cells_of(arm, probe));
            rows.push(Row { cells, opens_group: arm == 0 });
        }
    }
    Table { caption: caption.to_owned(), columns, heads: 2, rows }
}

fn probe_column() -> Column {
    let note = "Our own probe at an offered load, open loop; or the machine's own ping, by itself or \
                beside a load.";
    column("probe", "", note)
}

/// How an arm's program is attached, by what its lane reported; else what it obtained.
fn mode(result: &RaceResult, arm: usize) -> String {
    let Some(arm) = result.arms.get(arm) else { return String::new() };
    let facts = ["attach_mode", "xdp_mode", "copy_mode", "driver"];
    let modes: Vec<&str> =
        facts.iter().filter_map(|&fact| arm.caps.facts.get(fact)).map(String::as_str).collect();
    match (modes.is_empty(), arm.caps.facts.get("program")) {
        (false, _) => modes.join(", "),
        (true, Some(program)) => program.clone(),
        (true, None) => caps(arm.caps.obtained),
    }
}
