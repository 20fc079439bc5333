//! The tables of a report as plain data: built once from the result, shown three ways.
//!
//! Tables of latencies exist per scope only, so two scopes never share a column.

use super::wording::{
    RATE_SCOPE, arm_name, doubt, estimated_effect, generator_state, glyph, half_width, interval,
    is_noise_floor, is_scheduled, load_name, no_figure, no_percentile, noise_floor, summary_of,
    threshold,
};
use crate::result::{Ledger, Memory, RaceResult, Segment, Summary};
use laneway_core::DropReason;
use laneway_page::number::{count, duration, figure, percent, signed_count};
use laneway_page::table::{Cell, Column, Row, Table, column};
use laneway_stats::{Direction, LatencySummary, Verdict};

/// The scopes of latency.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// From the scheduled send time to the record in the app's hands.
    WireToApp,
    /// From the frame in user hands to the record handled.
    AppOnly,
    /// From the scheduled time of a request to its reply; of an app whose replies are counted, instead of the others.
    RoundTrip,
    /// From the scheduled time of a frame to its arrival at the far end; of an app that sends on out of a second port.
    DueToArrival,
}

impl Scope {
    /// Those of an app that is handed frames, in the order shown.
    pub(super) const ALL: [Self; 2] = [Self::WireToApp, Self::AppOnly];
    /// The same of one that sends them on.
    const ACROSS: [Self; 3] = [Self::WireToApp, Self::AppOnly, Self::DueToArrival];

    /// Those that a result has.
    pub(super) fn of(result: &RaceResult) -> &'static [Self] {
        let is_inside = result.summaries.iter().any(|it| it.wire_to_app.is_some());
        let is_across = result.summaries.iter().any(|it| it.due_to_arrival.is_some());
        let is_round = result.ping.is_some() || result.summaries.iter().any(|it| it.rtt.is_some());
        match (is_round, is_inside, is_across) {
            (true, ..) => &[Self::RoundTrip],
            (false, true, true) => &Self::ACROSS,
            (false, true, false) => &Self::ALL,
            (false, false, true) => &[Self::DueToArrival],
            (false, false, false) => &[],
        }
    }

    /// Those with a table of latencies; pings have tables of their own.
    pub(super) fn tabled(result: &RaceResult) -> impl Iterator<Item = Self> {
        let is_ping = result.ping.is_some();
        Self::of(result).iter().copied().filter(move |_| !is_ping)
    }

    /// As in the result.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WireToApp => "wire to app",
            Self::AppOnly => "app only",
            Self::RoundTrip => "round trip",
            Self::DueToArrival => "due to arrival",
        }
    }

    /// From where to where.
    pub(super) fn span(self) -> &'static str {
        super::wording::scope(self.name())
    }

    /// This scope's figures.
    pub(super) fn summary(self, summary: &Summary) -> Option<&LatencySummary> {
        match self {
            Self::WireToApp => summary.wire_to_app.as_ref(),
            Self::AppOnly => summary.app_only.as_ref(),
            Self::RoundTrip => summary.rtt.as_ref().map(|rtt| &rtt.summary),
            Self::DueToArrival => summary.due_to_arrival.as_ref().map(|way| &way.summary),
        }
    }
}

/// Rate and CPU per arm and load.
pub(super) fn rates(result: &RaceResult) -> Table {
    let columns = vec![
        load_column(),
        arm_column(),
        column("records", "k/s", &format!("Records {RATE_SCOPE}: median over rounds.")),
        column("records min\u{2013}max", "k/s", "The lowest and the highest segment."),
        column(
            "loss",
            "%",
            "Offered frames whose record did not reach the app, of the segments that the rate is made of.",
        ),
        column(
            "CPU",
            "ns/record",
            "CPU time of the arm's own: its tasks, its NAPI threads and the softirqs of its interfaces, on all CPUs, \
             per delivered record, or per offered packet where the arm's name says so: median over rounds.",
        ),
        column("CPU min\u{2013}max", "ns/record", "The lowest and the highest segment."),
    ];
    let spread = |values: Option<[f64; 3]>, scale: f64, reason: &str| match values {
        Some([median, min, max]) => [
            Cell::Figure(figure(median / scale), median),
            Cell::Figure(
                format!("{}\u{2013}{}", figure(min / scale), figure(max / scale)),
                max - min,
            ),
        ],
        None => [Cell::Absent(reason.to_owned()), Cell::Absent(reason.to_owned())],
    };
    per_arm_and_load(result, "Rate, loss and CPU", columns, |summary| {
        let [records, records_range] = spread(summary.records_per_s, 1e3, no_rate(&summary.ledger));
        let [cpu, cpu_range] =
            spread(summary.cpu_ns_per_record, 1.0, "nothing was delivered, or no CPU was measured");
        let loss = match losses(summary).filter(|ledger| ledger.unknown.is_none()) {
            None => Cell::Absent(no_rate(&summary.ledger).to_owned()),
            Some(ledger) => {
                let loss = ledger.loss_share();
                Cell::Figure(figure(loss * 100.0), loss)
            }
        };
        vec![records, records_range, loss, cpu, cpu_range]
    })
}

/// Where every frame went, one column for each place that lost any.
pub(super) fn ledger(result: &RaceResult) -> Table {
    let places = loss_places(result.summaries.iter().map(|summary| &summary.ledger));
    let mut columns = vec![load_column(), arm_column()];
    columns.extend(ledger_columns());
    let closing = columns.split_off(columns.len() - 1);
    columns.extend(places.iter().map(|place| Column {
        head: place.clone(),
        unit: "frames",
        note: place_note(place).to_owned(),
    }));
    columns.push(column(
        "duplicates",
        "records",
        "Records of a frame that had been delivered already; each is a fault.",
    ));
    columns.push(column(
        "reordered",
        "records",
        "Records whose frame was sent before one delivered earlier; not a loss.",
    ));
    columns.push(column(
        "foreign",
        "records",
        "Records of frames that were not sent in this segment; not counted as delivered.",
    ));
    columns.extend(closing);
    per_arm_and_load(result, "Ledger, all rounds added", columns, |summary| {
        let ledger = &summary.ledger;
        let mut cells = vec![counted(ledger.offered), delivered(ledger)];
        cells.push(counted(ledger.dropped()));
        cells.extend(
            places.iter().map(|place| counted(ledger.drops.get(place).copied().unwrap_or(0))),
        );
        cells.extend([ledger.duplicates, ledger.reordered, ledger.foreign].map(counted));
        cells.push(closing_cell(ledger));
        cells
    })
}

/// The ledger without a column per place, for narrow pages.
pub(super) fn ledger_totals(result: &RaceResult) -> Table {
    let mut columns = vec![load_column(), arm_column()];
    columns.extend(ledger_columns());
    per_arm_and_load(result, "Ledger, all rounds added", columns, |summary| {
        let ledger = &summary.ledger;
        vec![
            counted(ledger.offered),
            delivered(ledger),
            counted(ledger.dropped()),
            closing_cell(ledger),
        ]
    })
}

/// Latency of one scope per arm and load, all rounds merged.
pub(super) fn latency(result: &RaceResult, scope: Scope) -> Table {
    let columns = vec![
        load_column(),
        arm_column(),
        column(
            "samples",
            "",
            "Latencies recorded, all rounds merged. What was lost counts as longer than all of them.",
        ),
        column("p50", "\u{b5}s", "Half of the records took at most this long."),
        column("p90", "\u{b5}s", "90 % took at most this long; needs 500 samples."),
        column("p99", "\u{b5}s", "99 % took at most this long; needs 5,000 samples."),
        column("p99.9", "\u{b5}s", "99.9 % took at most this long; needs 50,000 samples."),
        column(
            "longest",
            "\u{b5}s",
            "The longest seen; not to be compared between arms with unequal samples.",
        ),
        column("variation", "\u{b5}s", "Packet delay variation: p99.9 minus the shortest."),
    ];
    let caption = format!("Latency, {}: {}", scope.name(), scope.span());
    per_arm_and_load(result, &caption, columns, |summary| {
        let Some(s) = scope.summary(summary) else {
            return (0..7).map(|_| Cell::Absent("no latency was recorded".to_owned())).collect();
        };
        let micros = |ns: Option<u64>, needed: u64| match ns {
            Some(ns) => Cell::Figure(figure(ns as f64 / 1e3), ns as f64),
            None => Cell::Absent(no_percentile(s, needed)),
        };
        vec![
            counted(s.n),
            micros(s.p50_ns, 100),
            micros(s.p90_ns, 500),
            micros(s.p99_ns, 5_000),
            micros(s.p999_ns, 50_000),
            micros(s.max_ns, 1),
            micros(s.pdv_ns, 50_000),
        ]
    })
}

/// Memory per arm and load.
pub(super) fn memory(result: &RaceResult) -> Table {
    let mut columns = vec![load_column(), arm_column()];
    columns.extend(memory_columns());
    per_arm_and_load(result, "Memory, the largest seen over rounds", columns, |summary| {
        memory_cells(&summary.memory)
    })
}

/// Memory per arm, the largest over loads.
pub(super) fn memory_per_arm(result: &RaceResult) -> Table {
    let mut columns = vec![arm_column()];
    columns.extend(memory_columns());
    let row = |arm: usize| {
        let mut largest = Memory::default();
        for Summary { memory, .. } in result.summaries.iter().filter(|s| s.arm == arm) {
            largest = Memory {
                rss_bytes: largest.rss_bytes.max(memory.rss_bytes),
                locked_bytes: largest.locked_bytes.max(memory.locked_bytes),
                huge_bytes: largest.huge_bytes.max(memory.huge_bytes),
                bpf_bytes: largest.bpf_bytes.max(memory.bpf_bytes),
                socket_bytes: largest.socket_bytes.max(memory.socket_bytes),
            };
        }
        let mut cells = vec![Cell::Words(arm_name(result, arm))];
        cells.extend(memory_cells(&largest));
        Row { cells, opens_group: false }
    };
    let rows = (0..result.arms.len()).map(row).collect();
    Table { caption: "Memory, the largest seen".to_owned(), columns, heads: 1, rows }
}

/// How the generator did per load, the worst over all arms and rounds.
pub(super) fn generator(result: &RaceResult) -> Table {
    let columns = vec![
        load_column(),
        column("off rate", "%", "Largest distance of the achieved from the asked rate."),
        column("late p50", "\u{b5}s", "Median send time behind schedule, worst segment."),
        column("late p99", "\u{b5}s", "99th percentile behind schedule, worst segment."),
        column("late longest", "\u{b5}s", "The latest single frame."),
        column("sent", "frames", "Frames handed to the kernel."),
        column("refused", "frames", "Frames that the kernel did not take; each is a loss."),
        column("CPU of one", "%", "The generator's own CPU time, not part of any arm's cost."),
        column(
            "headroom",
            "",
            "Whether it kept 1.5 times the load into a sink before the race; without, rates there have no verdict.",
        ),
    ];
    let row = |load: usize| {
        let mut cells = vec![Cell::Words(load_name(result, load))];
        match generator_state(result.segments.iter().filter(|segment| segment.load == load)) {
            Some(state) => {
                let micros = |ns: u64| Cell::Figure(figure(ns as f64 / 1e3), ns as f64);
                let share = |share: f64| Cell::Figure(figure(share * 100.0), share);
                cells.extend([
                    share(state.deviation),
                    micros(state.late_p50_ns),
                    micros(state.late_p99_ns),
                    micros(state.late_max_ns),
                    counted(state.sent),
                    counted(state.refused),
                    share(state.cpu_share),
                ]);
            }
            None => {
                cells.extend((0..7).map(|_| Cell::Absent("no segment at this load".to_owned())));
            }
        }
        cells.push(headroom_cell(result, load));
        Row { cells, opens_group: false }
    };
    let rows = (0..result.loads_pps.len()).map(row).collect();
    Table { caption: "Generator per load, the worst segment".to_owned(), columns, heads: 1, rows }
}

fn headroom_cell(result: &RaceResult, load: usize) -> Cell {
    let pps = result.loads_pps.get(load);
    let tried = result.headroom.iter().find(|kept| Some(&kept.load_pps) == pps);
    match tried.filter(|_| is_scheduled(result, load)) {
        None => Cell::Absent("it was not looked for".to_owned()),
        Some(kept) if kept.is_kept() => Cell::Check("1.5 times".to_owned(), true),
        Some(kept) => Cell::Check(format!("none: {}", kept.missing.join(", ")), false),
    }
}

/// Every comparison with the base, the A/A pair included, with all it rests on.
pub(super) fn findings(result: &RaceResult) -> Table {
    let columns = vec![
        column("metric", "", "What is compared."),
        column("good", "", "Which way is better."),
        arm_column(),
        load_column(),
        column(
            "effect",
            "",
            "Over all generations: arm / base, or arm - base where zero is usual.",
        ),
        column(
            "interval",
            "",
            "Interval of that effect, valid at every look of the race; 95 % if not stated. Arms and loads of a metric share \
             its error rate, so that theirs is higher; the A/A pair has its own.",
        ),
        column("half-width", "", "Half the width of that interval."),
        column("A/A", "", "Half-width of the base against itself at this load: the noise floor."),
        column(
            "verdict",
            "",
            "Better or worse: whole interval beyond the threshold. Same: inside.",
        ),
        column("threshold", "", "The larger of what matters and the half-width of the A/A pair."),
        column("pairs", "", "Pairs of segments that could be compared."),
        column("generations", "", "Generations of fresh processes: the unit of the interval."),
        column("doubt", "", "Why a verdict is inconclusive."),
    ];
    let mut last: Option<&str> = None;
    let mut rows = Vec::new();
    for finding in &result.findings {
        let comparison = &finding.comparison;
        let absent = || Cell::Absent(no_figure(finding));
        let aa = if is_noise_floor(result, finding.arm) { " (A/A pair)" } else { "" };
        rows.push(Row {
            opens_group: last != Some(finding.metric.as_str()),
            cells: vec![
                Cell::Words(finding.metric.clone()),
                Cell::Words(good_way(comparison.rule.direction).to_owned()),
                Cell::Words(format!("{}{aa}", arm_name(result, finding.arm))),
                Cell::Figure(load_name(result, finding.load), finding.load as f64),
                comparison
                    .estimate
                    .map_or_else(absent, |value| Cell::Figure(estimated_effect(finding), value)),
                match (interval(finding), comparison.interval) {
                    (Some(words), Some(ends)) => Cell::Figure(words, ends.lower),
                    _ => absent(),
                },
                match (half_width(finding), comparison.half_width()) {
                    (Some(words), Some(width)) => Cell::Figure(words, width),
                    _ => absent(),
                },
                noise_floor(result, finding).map_or_else(
                    || Cell::Absent("the A/A pair gives no interval here".to_owned()),
                    Cell::Words,
                ),
                verdict_cell(finding.judgement.verdict),
                Cell::Figure(threshold(finding), finding.judgement.threshold),
                counted(comparison.effects.len() as u64),
                comparison
                    .interval
                    .map_or_else(absent, |interval| counted(interval.generations as u64)),
                Cell::Words(doubt(finding).unwrap_or_default()),
            ],
        });
        last = Some(&finding.metric);
    }
    Table { caption: "Every comparison with the base".to_owned(), columns, heads: 1, rows }
}

/// Every segment in time order.
pub(super) fn segments(result: &RaceResult) -> Table {
    let columns = vec![
        column("order", "", "Place in the whole race, from 1: time order."),
        column("block", "", "Block, from 1."),
        load_column(),
        arm_column(),
        column("window", "", "Measured time."),
        column("records", "k/s", &format!("Records {RATE_SCOPE}; not by the window.")),
        column("CPU", "ns/record", "As in the table of rates, for this segment."),
        column(
            "own",
            "",
            "CPU time of the arm: its tasks, its NAPI threads, softirqs of its interfaces.",
        ),
        column("spun", "", "Of that, polls that found nothing, of an arm that polls."),
        column(
            "not attributed",
            "",
            "Interrupts and softirqs that cannot be attributed: in no figure.",
        ),
        column("others", "", "Programs that are no part of the race: in no figure."),
        column(
            "closure",
            "%",
            "All CPU time accounted for, idle and generator included, of CPUs x window: 100 closes.",
        ),
        column("late p99", "\u{b5}s", "The generator's 99th percentile behind schedule."),
        column("scheduled", "frames", "Frames that the schedule asked for."),
        column("delivered", "frames", "Distinct frames whose record reached the app."),
        column("dropped", "frames", "Sum of all named drops."),
        column("ledger", "", "Closed: scheduled = delivered + every named drop, none twice."),
        column("drops by place", "frames", "The named drops, largest first."),
        column("left out", "", "Why this segment, or part of it, is in no figure."),
    ];
    let mut ordered: Vec<_> = result.segments.iter().collect();
    ordered.sort_by_key(|segment| segment.order);
    let mut last_round = None;
    let rows = ordered
        .into_iter()
        .map(|segment| {
            let opens_group = last_round.replace(segment.round) != Some(segment.round);
            let nanoseconds = |ns: u64| Cell::Figure(duration(ns as f64), ns as f64);
            let cells = vec![
                counted(segment.order as u64 + 1),
                counted(segment.round as u64 + 1),
                Cell::Words(load_name(result, segment.load)),
                Cell::Words(arm_name(result, segment.arm)),
                nanoseconds(segment.window_ns),
                match segment.ledger.unknown {
                    Some(_) => Cell::Absent(UNKNOWN.to_owned()),
                    None => {
                        Cell::Figure(figure(segment.records_per_s / 1e3), segment.records_per_s)
                    }
                },
                segment.cpu.ns_per_record.map_or_else(
                    || Cell::Absent("nothing was delivered".to_owned()),
                    |ns| Cell::Figure(figure(ns), ns),
                ),
                nanoseconds(segment.cpu.own_ns),
                segment.cpu.spun_ns.map_or_else(
                    || Cell::Absent("it waits, or does not count its polls".to_owned()),
                    nanoseconds,
                ),
                nanoseconds(segment.cpu.unattributed_ns),
                nanoseconds(segment.cpu.foreign_ns),
                Cell::Figure(figure(segment.cpu.closure * 100.0), segment.cpu.closure),
                Cell::Figure(
                    figure(segment.generator.late_p99_ns as f64 / 1e3),
                    segment.generator.late_p99_ns as f64,
                ),
                counted(segment.ledger.offered),
                delivered(&segment.ledger),
                counted(segment.ledger.dropped()),
                closing_cell(&segment.ledger),
                Cell::Words(drop_list(&segment.ledger).join(", ")),
                left_out_cell(segment),
            ];
            Row { cells, opens_group }
        })
        .collect();
    Table { caption: "Every segment in time order".to_owned(), columns, heads: 2, rows }
}

/// Why a segment, or part of it, is in no figure.
fn left_out_cell(segment: &Segment) -> Cell {
    match (segment.invalid.as_slice(), &segment.disturbed) {
        ([], Some(why)) => Cell::Words(format!("CPU time only: {why}")),
        ([], None) if segment.warm_up => Cell::Words("warm-up".to_owned()),
        ([], None) => Cell::Words(String::new()),
        (reasons, _) => {
            let again = if segment.replaced { "; offered once more" } else { "" };
            Cell::Check(format!("{}{again}", reasons.join("; ")), false)
        }
    }
}

/// The ledger that figures of loss are of; `None` where no segment gives one.
pub(super) fn losses(summary: &Summary) -> Option<&Ledger> {
    let is_given = summary.records_per_s.is_some() || summary.ledger.unknown.is_some();
    is_given.then(|| summary.used())
}

/// Every place that lost a frame in any of these ledgers, sorted by name.
pub(super) fn loss_places<'a>(ledgers: impl Iterator<Item = &'a Ledger>) -> Vec<String> {
    let mut places: Vec<String> = ledgers
        .flat_map(|ledger| ledger.drops.iter())
        .filter(|&(_, &frames)| frames > 0)
        .map(|(place, _)| place.clone())
        .collect();
    places.sort();
    places.dedup();
    places
}

/// Why an arm has no figure of what it delivered.
const UNKNOWN: &str = "nothing of it says what it received";

/// Why there is no rate.
fn no_rate(ledger: &Ledger) -> &'static str {
    if ledger.unknown.is_some() { UNKNOWN } else { "no block gave a valid rate" }
}

fn delivered(ledger: &Ledger) -> Cell {
    match ledger.unknown {
        Some(_) => Cell::Absent(UNKNOWN.to_owned()),
        None => counted(ledger.delivered),
    }
}

/// `closed`, or what keeps the ledger open.
pub(super) fn closing(ledger: &Ledger) -> (String, bool) {
    match ledger.unknown {
        Some(unknown) if ledger.is_closed() => {
            return (format!("{} unknown", count(unknown)), true);
        }
        None if ledger.is_closed() => return ("closed".to_owned(), true),
        _ => {}
    }
    let mut parts = Vec::new();
    if ledger.unexplained != 0 {
        parts.push(format!("{} unexplained", signed_count(ledger.unexplained)));
    }
    if ledger.duplicates > 0 {
        parts.push(format!("{} twice", count(ledger.duplicates)));
    }
    (parts.join(", "), false)
}

/// The named drops of a ledger, largest first: `veth ring full 1 234 (0.5 %)`.
pub(super) fn drop_list(ledger: &Ledger) -> Vec<String> {
    let mut drops: Vec<_> = ledger.drops.iter().filter(|&(_, &frames)| frames > 0).collect();
    drops.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let share = |frames: u64| frames as f64 / ledger.offered.max(1) as f64;
    drops
        .into_iter()
        .map(|(place, &frames)| format!("{place} {} ({})", count(frames), percent(share(frames))))
        .collect()
}

/// What a place of loss means, where the table of drop reasons knows it.
fn place_note(place: &str) -> &'static str {
    DropReason::ALL
        .iter()
        .find(|reason| reason.name() == place)
        .map_or("Frames lost at this place, by its own counter.", |reason| {
            reason.definition().trim()
        })
}

/// The way a metric gets better, in a word.
fn good_way(direction: Direction) -> &'static str {
    match direction {
        Direction::HigherIsBetter => "higher",
        Direction::LowerIsBetter => "lower",
    }
}

fn closing_cell(ledger: &Ledger) -> Cell {
    let (text, good) = closing(ledger);
    Cell::Check(text, good)
}

pub(super) fn counted(n: u64) -> Cell {
    Cell::Figure(count(n), n as f64)
}

/// A verdict, with its colour and its sign.
fn verdict_cell(verdict: Verdict) -> Cell {
    let class = match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Same => "same",
        Verdict::Inconclusive => "inconclusive",
    };
    Cell::Word { class, sign: glyph(verdict), word: verdict.to_string() }
}

fn load_column() -> Column {
    column("offered", "frames/s", "Frames per second that the schedule asks for, lost or not.")
}

pub(super) fn arm_column() -> Column {
    column("arm", "", "The lane and configuration under test.")
}

fn ledger_columns() -> [Column; 4] {
    [
        column("scheduled", "frames", "Frames that the schedule asked for."),
        column("delivered", "frames", "Distinct frames whose record reached the app."),
        column("dropped", "frames", "Sum of all named drops."),
        column("ledger", "", "Closed: scheduled = delivered + every named drop, none twice."),
    ]
}

fn memory_columns() -> [Column; 5] {
    [
        column("resident", "MiB", "Resident set of the arm's process."),
        column("locked", "MiB", "Locked pages, and UMEM where the kernel counts it so."),
        column("huge pages", "MiB", "Held in huge pages."),
        column("BPF maps", "MiB", "Maps of the kernel half, rings included."),
        column("sockets", "MiB", "Socket buffers and rings asked of the kernel."),
    ]
}

fn memory_cells(memory: &Memory) -> Vec<Cell> {
    let Memory { rss_bytes, locked_bytes, huge_bytes, bpf_bytes, socket_bytes } = *memory;
    [rss_bytes, locked_bytes, huge_bytes, bpf_bytes, socket_bytes]
        .map(|bytes| Cell::Figure(figure(bytes as f64 / (1024.0 * 1024.0)), bytes as f64))
        .into()
}

/// A row for each arm at each load, so that arms under the same load are neighbours.
fn per_arm_and_load(
    result: &RaceResult,
    caption: &str,
    columns: Vec<Column>,
    cells_of: impl Fn(&Summary) -> Vec<Cell>,
) -> Table {
    let mut rows = Vec::new();
    for load in 0..result.loads_pps.len() {
        for arm in 0..result.arms.len() {
            let mut cells = vec![
                Cell::Figure(load_name(result, load), result.loads_pps[load] as f64),
                Cell::Words(arm_name(result, arm)),
            ];
            match summary_of(result, arm, load) {
                Some(summary) => cells.extend(cells_of(summary)),
                None => cells.extend(
                    (2..columns.len()).map(|_| Cell::Absent("this arm did not run".to_owned())),
                ),
            }
            rows.push(Row { cells, opens_group: arm == 0 });
        }
    }
    Table { caption: caption.to_owned(), columns, heads: 2, rows }
}
