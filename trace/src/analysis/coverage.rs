//! What of a trace was read, what is missing, and what is therefore withheld.

use laneway_trace_read::Producer;

use super::Source;
use crate::detect::CUT_SHARE_MAX;
use crate::model::Model;
use crate::result::*;
use crate::worst::Join;

pub(super) fn coverage(model: &Model, source: &Source) -> Coverage {
    let counts = &model.counts;
    let damages = source.damages.iter().take(DAMAGES_MAX);
    let rows = || model.rows.iter().filter(|row| row.calls + row.cut > 0);
    let mut producers: Vec<String> =
        source.producers.iter().map(|&producer| producer_name(producer).to_owned()).collect();
    producers.dedup();
    Coverage {
        producers,
        inputs: source.inputs.clone(),
        span: model.span,
        recorded: [model.since(model.recorded.start_ns), model.recorded.length_ns],
        events: counts.events,
        entries: counts.entries,
        exits: counts.exits,
        points: counts.events - counts.entries - counts.exits,
        kernel_events: counts.kernel,
        discarded: counts.discarded,
        losses: counts.losses,
        losses_uncounted: counts.losses_uncounted,
        holes: holes(model),
        calls: model.calls(),
        cut: counts.cut,
        cut_share: model.cut_share(),
        open: counts.open,
        unmatched: counts.unmatched,
        mismatched: counts.mismatched,
        unsound: counts.unsound,
        clock_backwards: counts.clock_backwards,
        unresolved: rows().filter(|row| !row.known).count() as u64,
        asynchronous: rows().filter(|row| row.asynchronous).map(|row| row.name.clone()).collect(),
        threads: counts.threads,
        damages: damages
            .map(|damage| DamageRow {
                place: damage.place.clone(),
                offset: damage.offset,
                what: damage.what.clone(),
            })
            .collect(),
        damages_total: source.damages_total(),
        limits: limits(model, source),
        withheld: withheld(model),
    }
}

fn holes(model: &Model) -> Vec<HoleRow> {
    let counts = &model.counts;
    let holes = counts.holes.iter().zip(&counts.hole_details);
    let row = |(&(from_ns, to_ns), &(events, thread)): (&(u64, u64), &_)| HoleRow {
        at_ns: model.since(from_ns),
        length_ns: to_ns.saturating_sub(from_ns.max(model.span.start_ns)),
        events,
        thread,
    };
    holes.map(row).collect()
}

/// What such a trace cannot say, and why.
fn withheld(model: &Model) -> Vec<Withheld> {
    let counts = &model.counts;
    let cut_share = model.cut_share();
    let mut withheld = Vec::new();
    let mut withhold = |what: &str, why: String| {
        withheld.push(Withheld { what: what.to_owned(), why });
    };
    if cut_share > CUT_SHARE_MAX {
        let why = format!("{:.2} % of the calls are cut, more than 0.1 %", 100.0 * cut_share);
        withhold("maxima, stalls and periods", why);
    }
    if counts.unsound > 0 {
        withhold(
            "calls after a hole",
            format!("{} exits do not name their function and events are missing", counts.unsound),
        );
    }
    if counts.kernel == 0 {
        withhold("causes of stalls", "no kernel events were recorded".to_owned());
    } else if model.states.iter().all(|state| state.kernel_ns[Join::PageFault as usize] == 0) {
        let why =
            "the kernel's part has none, so it is that of the functions that touched the memory";
        withhold("time in page faults", why.to_owned());
    }
    if counts.samples > 0 {
        let why = format!(
            "{} samples of a profiler: times are their weights, in its unit, not durations",
            counts.samples
        );
        withhold("calls, durations and the time line", why);
    }
    if model.packets.received.is_none() {
        withhold("figures per packet", model.packets.source.clone());
    }
    withheld
}

/// Where a bound of the analysis was reached, behind what the reader noted.
fn limits(model: &Model, source: &Source) -> Vec<String> {
    let counts = &model.counts;
    let mut limits = source.notes.clone();
    let mut limit = |reached: u64, what: String| {
        if reached > 0 {
            limits.push(what);
        }
    };
    let refused = counts.functions_refused;
    limit(
        refused,
        format!("{refused} calls of functions beyond the first {FUNCTIONS_MAX} share one row"),
    );
    let refused = model.refused_contexts;
    limit(
        refused,
        format!(
            "{refused} calls found no room among {CONTEXTS_MAX} contexts and count for their caller"
        ),
    );
    let threads = counts.threads.saturating_sub(THREADS_MAX as u64);
    limit(
        threads,
        format!(
            "{threads} threads beyond the first {THREADS_MAX}, with {} of {} events, are counted, not analysed",
            counts.events_refused, counts.events
        ),
    );
    let jumps = counts.clock_jumps;
    limit(
        jumps,
        format!(
            "{jumps} time stamps lie more than 104 days from the first one, which no clock that is right does: \
             each such event counts at the time of the event before"
        ),
    );
    limit(counts.too_deep, format!("{} calls are deeper than 1,024", counts.too_deep));
    let points: u64 = model.states.iter().map(|state| state.points.refused).sum();
    limit(
        points,
        format!("{points} polls or sends are of queues beyond the first 256 of a thread"),
    );
    let pools = model.pools.refused;
    limit(pools, format!("{pools} pool events are of pools beyond the first 64"));
    limits
}

const fn producer_name(producer: Producer) -> &'static str {
    match producer {
        Producer::Lttng => "lttng",
        Producer::Dpdk => "dpdk",
        Producer::Laneway => "laneway",
        Producer::Chrome => "chrome",
        Producer::Uftrace => "uftrace",
        Producer::Perf => "perf",
    }
}
