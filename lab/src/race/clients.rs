//! What a race where a client asks has to say beyond its figures: what was asked, whether the client was the limit, and
//! what became of its connections.

use super::analyse::{Side, measured};
use super::entrants::load_names;
use crate::client::ClientPlan;
use crate::result::{ClientShare, RaceResult, Segment, Traffic};
use crate::scenario::{Extent, Scenario};
use laneway_stats::quantile;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// A client whose side uses more than this share of the time in which it asks is what limits a closed loop.
const LIMIT_SHARE_MIN: f64 = 0.9;

/// What is asked, for the result.
pub(super) fn describe(client: &ClientPlan, scenario: &Scenario) -> Traffic {
    let plan = serde_json::to_vec(client).expect("a plan is plain data");
    let sha256: String = Sha256::digest(&plan).iter().map(|byte| format!("{byte:02x}")).collect();
    let [least, most] = client.request_bytes;
    Traffic {
        capture: format!("none: {} over TCP, {}", client.protocol.name(), client.sentence()),
        sha256,
        frames: 0,
        replayed: 0,
        mean_frame_bytes: f64::from(least + most) / 2.0,
        generator: scenario.generator.clone(),
        spacing: scenario.arrivals,
        schedule: format!(
            "open loop, {}, one by one up to 50,000/s, in bursts of up to {} beyond, request n on \
             connection n modulo {}; latency from the time a request is due. In a closed loop the next request is due \
             with the answer to the one before it",
            scenario.arrivals.name(),
            scenario.burst,
            client.connections
        ),
    }
}

/// What a reader must know.
pub(super) fn notes(
    client: &ClientPlan,
    segments: &[Segment],
    names: &[String],
    own_pps: &[u64],
    extent: &Extent,
) -> Vec<String> {
    let mut notes = vec![
        "a record is a request that was answered, every byte of it checked by the client; what the client's side \
         costs, its receive stack included, is on the generator's CPU and in no figure"
            .to_owned(),
    ];
    if client.connections >= 1_000 {
        notes.push(format!(
            "{} connections of one client on one CPU: their latency is that of its queue as well",
            client.connections
        ));
    }
    notes.extend(own_rates(own_pps, names, extent));
    notes.extend(limited(segments, names, extent));
    notes.extend(resent(segments, names));
    for (arm, name) in names.iter().enumerate() {
        let of = segments.iter().filter(|segment| segment.arm == arm);
        let connections = of.filter_map(|segment| segment.connections);
        let [lost, reopened] = connections.fold([0u64; 2], |[lost, reopened], it| {
            [lost + u64::from(it.lost), reopened + u64::from(it.reopened)]
        });
        if lost > 0 {
            notes.push(format!(
                "{name}: connections were lost {lost} times, and opened again {reopened} times, between segments"
            ));
        }
    }
    notes
}

/// What TCP sent again because a ring or a queue on its way was full, arm by arm.
fn resent(segments: &[Segment], names: &[String]) -> Option<String> {
    let of_arm = |(arm, name): (usize, &String)| {
        let mut places = BTreeMap::<&str, u64>::new();
        let of_arm = segments.iter().filter(|segment| segment.arm == arm);
        for it in of_arm.filter_map(|segment| segment.resent.as_ref()) {
            *places.entry(&it.place).or_default() += it.packets;
        }
        let asked = segments.iter().filter(|segment| segment.arm == arm);
        let asked: u64 = asked.map(|segment| segment.ledger.offered).sum();
        places
            .into_iter()
            .map(move |(place, n)| format!("{name} {n} for {asked} requests ({place})"))
            .collect::<Vec<_>>()
    };
    let all: Vec<String> = names.iter().enumerate().flat_map(of_arm).collect();
    (!all.is_empty()).then(|| {
        format!(
            "packets that had no room on their way and that TCP sent again, 200 ms later or more, which is in \
             the tail of their requests: {}",
            all.join(", ")
        )
    })
}

/// What each arm was offered at the load that is a share of its own.
fn own_rates(own_pps: &[u64], names: &[String], extent: &Extent) -> Option<String> {
    let share = extent.own_share?;
    let rate = |(name, pps): (&String, &u64)| format!("{name} {pps}/s");
    let rates: Vec<String> = names.iter().zip(own_pps).map(rate).collect();
    Some(format!(
        "one load is open loop, {:.0} % of what each arm answered in a closed loop before the race: {}; latency and CPU per \
         record there are of different rates",
        share * 100.0,
        rates.join(", ")
    ))
}

/// The arms in a closed loop of which the client had hardly a moment to spare.
fn limited(segments: &[Segment], names: &[String], extent: &Extent) -> Option<String> {
    let loads = load_names(extent);
    let is_limit = |it: &ClientShare| it.share > LIMIT_SHARE_MIN;
    let limited: Vec<String> = shares(segments, names.len(), extent)
        .into_iter()
        .filter(is_limit)
        .map(|it| {
            let at = if extent.closed_requests.len() > 1 { &loads[it.load] } else { "" };
            let space = if at.is_empty() { "" } else { " in a " };
            format!("{}{space}{at} {:.0} %", names[it.arm], it.share * 100.0)
        })
        .collect();
    (!limited.is_empty()).then(|| {
        format!(
            "in the closed loop the client's side was busy all the time, and is the limit rather than the arm: {}; \
             compare CPU per record there: of rates only what is faster than an arm that was the limit itself is called",
            limited.join(", ")
        )
    })
}

/// Whether the client, and not the arm, was the limit in a closed loop.
pub(super) fn is_limit(result: &RaceResult, (arm, load): Side) -> bool {
    let mut of_side = result.client_shares.iter().filter(|it| (it.arm, it.load) == (arm, load));
    of_side.any(|it| it.share > LIMIT_SHARE_MIN)
}

/// How busy the client was with each arm in every closed loop.
pub(super) fn shares(segments: &[Segment], arms: usize, extent: &Extent) -> Vec<ClientShare> {
    let loads = extent.loads_pps.len();
    let closed = match extent.closed_requests.len() {
        0 => usize::from(extent.closed_loop),
        counted => counted,
    };
    let sides = (loads.saturating_sub(closed)..loads)
        .flat_map(|load| (0..arms).map(move |arm| (arm, load)));
    sides
        .filter_map(|(arm, load)| {
            let share = client_share(segments, arm, load, extent)?;
            Some(ClientShare { arm, load, share })
        })
        .collect()
}

/// What the client's side used of the time in which it asked: the median of an arm's segments.
fn client_share(segments: &[Segment], arm: usize, load: usize, extent: &Extent) -> Option<f64> {
    let of = measured(segments, (arm, load));
    let asked_ns = |segment: &Segment| match extent.closed_requests.is_empty() {
        true => extent.segment_ms as f64 * 1e6,
        // Its window is longer, by the time in front of the first request and by a drain where the arm waits.
        false => segment.ledger.delivered as f64 * 1e9 / segment.records_per_s,
    };
    let shares: Vec<f64> = of
        .map(|segment| (segment.cpu.generator_side_ns as f64, asked_ns(segment)))
        // Where nothing was answered that time is not known.
        .filter(|(_, asked_ns)| asked_ns.is_normal())
        .map(|(used_ns, asked_ns)| used_ns / asked_ns)
        .collect();
    quantile(&shares, 0.5).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;
    use crate::result::{Resent, VETH_RING};

    #[test]
    fn how_busy_the_client_was_is_known_of_every_closed_load_and_arm() {
        let result = report::example();
        let mut segments = result.segments.clone();
        for segment in &mut segments {
            // 1000 requests took 10 ms, of a window that has a drain.
            (segment.window_ns, segment.warm_up) = (27_000_000, false);
            (segment.ledger.delivered, segment.records_per_s) = (1_000, 1e5);
            let share = if (segment.arm, segment.load) == (1, 1) { 95 } else { 40 };
            segment.cpu.generator_side_ns = share * 100_000;
        }
        let extent = Extent {
            loads_pps: result.loads_pps.clone(),
            saturate: false,
            topspeed: false,
            closed_loop: false,
            closed_requests: vec![1_000, 2_000],
            own_share: None,
            segment_ms: 100,
            time_s: 1,
            generations: 3,
            rounds: None,
        };
        let names = ["first", "second"].map(str::to_owned);
        let found = shares(&segments, 2, &extent);
        let sides: Vec<(usize, usize)> = found.iter().map(|it| (it.arm, it.load)).collect();
        assert_eq!(sides, [(0, 1), (1, 1), (0, 2), (1, 2)]);
        let limited = RaceResult { client_shares: found, ..result };
        assert!(is_limit(&limited, (1, 1)) && !is_limit(&limited, (0, 1)));
        assert!(!is_limit(&limited, (1, 2)) && !is_limit(&limited, (1, 0)));
        let note = super::limited(&segments, &names, &extent).expect("one is");
        assert!(note.contains(": second in a closed loop of 1000 requests 95 %; "), "{note}");
        let one = Extent { closed_loop: true, closed_requests: Vec::new(), ..extent.clone() };
        assert_eq!(super::limited(&segments, &names, &one), None, "the last load is another");
        for segment in segments.iter_mut().filter(|segment| segment.arm == 0) {
            (segment.ledger.delivered, segment.records_per_s) = (0, 0.0);
        }
        let found = shares(&segments, 2, &extent);
        assert!(found.iter().all(|it| it.arm == 1), "of one that answered nothing it is unknown");
        let open = Extent { closed_requests: Vec::new(), ..extent };
        assert!(shares(&segments, 2, &open).is_empty());
    }

    #[test]
    fn what_was_sent_again_is_summed_up_by_arm_and_place() {
        let names = ["first", "second"].map(str::to_owned);
        let mut segments = report::example().segments;
        segments.truncate(3);
        for (segment, arm) in segments.iter_mut().zip([0, 1, 1]) {
            (segment.arm, segment.ledger.offered) = (arm, 100);
        }
        assert_eq!(resent(&segments, &names), None);
        let lost = |place: &str| Some(Resent { place: place.to_owned(), packets: 7 });
        (segments[1].resent, segments[2].resent) = (lost(VETH_RING), lost(VETH_RING));
        let note = resent(&segments, &names).expect("some was");
        assert!(note.ends_with(": second 14 for 200 requests (veth ring full)"), "{note}");
        segments[2].resent = lost("tap queue full");
        let note = resent(&segments, &names).expect("some was");
        assert!(note.contains("7 for 200 requests (tap queue full), second 7 for"), "{note}");
    }
}
