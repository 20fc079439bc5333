//! Made-up races for tests of the report: plausible figures from a fixed generator, judged by the
//! real statistics. Nothing here was measured.

use crate::result::{
    Arm, CapacityRow, ClaimOutcome, ClaimStatus, Cpu, Finding, GeneratorReport, GoalOutcome,
    GoalStatus, Headroom, Ledger, Machine, Memory, Outcome, PingRow, PingSection, Placement,
    RaceResult, SCHEMA, Segment, Summary, Traffic,
};
use crate::round_trips::Rtt;
use crate::why::{Advice, Detection, Explanation, Shares, Stage, TracedArm, TracingCost};
use laneway_core::{Cap, CapSet, CapsReport};
use laneway_random::Random;
use laneway_stats::pairs::{Comparison, Pair};
use laneway_stats::{Direction, Latency, LatencySummary, Look, Rule, quantile};
use std::collections::BTreeMap;
use std::sync::LazyLock;

const BLOCKS: usize = 6;
const WINDOW_NS: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// What one invented arm does.
struct Model {
    name: &'static str,
    lane: &'static str,
    note: &'static str,
    cpu_ns: f64,
    capacity_pps: f64,
    wire_ns: f64,
    app_ns: f64,
    drop_place: &'static str,
    napi_share: f64,
    memory: Memory,
}

fn models() -> Vec<Model> {
    let memory = |rss, locked, huge, bpf, socket| Memory {
        rss_bytes: rss * MIB + 123_456,
        locked_bytes: locked * MIB,
        huge_bytes: huge * MIB,
        bpf_bytes: bpf * MIB,
        socket_bytes: socket * MIB,
    };
    let packet = |name| Model {
        name,
        lane: "packet",
        note: "one recv per frame, row built in user space",
        cpu_ns: 2_450.0,
        capacity_pps: 310_000.0,
        wire_ns: 21_000.0,
        app_ns: 260.0,
        drop_place: "rx_queue_full",
        napi_share: 0.34,
        memory: memory(6, 0, 0, 0, 8),
    };
    vec![
        packet("packet"),
        packet("packet again"),
        Model {
            name: "packet:batch",
            lane: "packet:batch=64",
            note: "TPACKET_V3 blocks, row built in user space",
            cpu_ns: 1_130.0,
            capacity_pps: 620_000.0,
            wire_ns: 64_000.0,
            app_ns: 210.0,
            napi_share: 0.55,
            memory: memory(7, 16, 0, 0, 16),
            ..packet("")
        },
        Model {
            name: "afxdp",
            lane: "afxdp:copy,frames=4096",
            note: "ring of copied frames, row built in user space",
            cpu_ns: 860.0,
            capacity_pps: 780_000.0,
            wire_ns: 14_500.0,
            app_ns: 205.0,
            drop_place: "rx_no_frame",
            napi_share: 0.62,
            memory: memory(12, 8, 8, 1, 1),
        },
        Model {
            name: "xdp",
            lane: "xdp:native",
            note: "row built in the kernel half, read from a ring",
            cpu_ns: 410.0,
            capacity_pps: 2_100_000.0,
            wire_ns: 33_000.0,
            app_ns: 38.0,
            drop_place: "record_ring_full",
            napi_share: 0.81,
            memory: memory(9, 0, 0, 34, 0),
        },
    ]
}

fn segment(
    model: &Model,
    place: (usize, usize, usize, usize),
    offered_pps: u64,
    random: &mut Random,
) -> (Segment, Latency, Latency) {
    let (arm, load, round, order) = place;
    let offered = offered_pps * WINDOW_NS / 1_000_000_000;
    let capacity = model.capacity_pps * (1.0 + 0.012 * random.normal());
    let mut ledger = Ledger { offered, ..Ledger::default() };
    ledger.delivered = (offered as f64).min(capacity) as u64;
    let lost = offered - ledger.delivered;
    ledger.drops.insert("generator: not sent".to_owned(), lost / 50);
    ledger.drops.insert("veth ring full".to_owned(), lost / 5);
    ledger.drops.insert(model.drop_place.to_owned(), lost - lost / 50 - lost / 5);
    ledger.reordered = u64::from(round == 2) * 3;
    ledger.balance();

    let crowding = (offered_pps as f64 / model.capacity_pps).min(1.0);
    let cpu_ns = model.cpu_ns * (1.0 + 0.25 * (1.0 - crowding) + 0.008 * random.normal());
    let delivered = ledger.delivered as f64;
    let busy = cpu_ns * delivered;
    let mut contexts_ns = BTreeMap::new();
    let app_share = 0.92 - model.napi_share;
    for (context, share) in [
        ("arm", app_share),
        ("napi thread", model.napi_share),
        ("softirq net_rx", 0.03),
        ("softirq other", 0.025),
        ("hardirq", 0.015),
        ("other tasks", 0.01),
    ] {
        contexts_ns.insert(context.to_owned(), (busy * share) as u64);
    }

    let (mut wire_to_app, mut app_only) = (Latency::new(), Latency::new());
    // The lowest load gives too few samples for a p99.9: the report must show that.
    for _ in 0..(offered_pps / 20).min(12_000) {
        let tail = if random.unit() < 0.03 { 6.0 } else { 1.0 };
        let queue = 1.0 / (1.02 - crowding);
        let wire = model.wire_ns * queue * tail * 0.25 * random.normal().exp();
        wire_to_app.record(wire as u64 + 1_500);
        app_only.record((model.app_ns * tail * 0.12 * random.normal().exp()) as u64 + 20);
    }
    let segment = Segment {
        arm,
        generation: round / 2,
        round,
        order,
        warm_up: false,
        replaced: false,
        load,
        window_ns: WINDOW_NS,
        records_per_s: delivered / (WINDOW_NS as f64 / 1e9),
        generator: GeneratorReport {
            asked_pps: offered_pps as f64,
            achieved_pps: offered_pps as f64 * (1.0 - random.unit() * 8e-4),
            sent: offered - lost / 50,
            refused: lost / 50,
            late_p50_ns: 300 + (random.unit() * 200.0) as u64,
            late_p99_ns: 2_000 + (random.unit() * 3_000.0) as u64,
            late_max_ns: 90_000 + (random.unit() * 200_000.0) as u64,
            early: 0,
            cpu_ns: (WINDOW_NS as f64 * 0.97) as u64,
        },
        cpu: Cpu {
            own_ns: busy as u64,
            spun_ns: None,
            ns_per_record: (delivered > 0.0).then(|| busy / delivered),
            generator_side_ns: WINDOW_NS,
            unattributed_ns: (9e6 * (1.0 + 0.05 * random.normal())) as u64,
            beside_ns: None,
            foreign_ns: 1_000_000,
            foreigners: vec![("cron".to_owned(), 1_000_000)],
            contexts_ns,
            metering_ns: None,
            closure: 0.998 + 0.001 * random.normal(),
            method: "scheduler, softirq and interrupt tracepoints; the meter costs about 110 ns \
                     per switch, inside these figures"
                .to_owned(),
        },
        wire_to_app: Some(wire_to_app.summary()),
        app_only: Some(app_only.summary()),
        rtt: None,
        due_to_arrival: None,
        connections: None,
        resent: None,
        memory: model.memory.clone(),
        ledger,
        invalid: Vec::new(),
        disturbed: None,
        disturbed_by: None,
    };
    (segment, wire_to_app, app_only)
}

fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let at = |q| quantile(values, q).ok();
    Some([at(0.5)?, at(0.0)?, at(1.0)?])
}

fn summarise(arm: usize, load: usize, segments: &[&Segment], latencies: [Latency; 2]) -> Summary {
    let mut ledger = Ledger::default();
    let mut contexts = BTreeMap::<String, f64>::new();
    for segment in segments {
        ledger.offered += segment.ledger.offered;
        ledger.delivered += segment.ledger.delivered;
        ledger.duplicates += segment.ledger.duplicates;
        ledger.reordered += segment.ledger.reordered;
        for (place, frames) in &segment.ledger.drops {
            *ledger.drops.entry(place.clone()).or_default() += frames;
        }
        for (context, &ns) in &segment.cpu.contexts_ns {
            *contexts.entry(context.clone()).or_default() += ns as f64;
        }
    }
    ledger.balance();
    contexts.values_mut().for_each(|ns| *ns /= ledger.delivered.max(1) as f64);
    let rates: Vec<f64> = segments.iter().map(|s| s.records_per_s).collect();
    let costs: Vec<f64> = segments.iter().filter_map(|s| s.cpu.ns_per_record).collect();
    let [wire_to_app, app_only] = latencies;
    Summary {
        arm,
        load,
        ledger,
        used: None,
        records_per_s: spread(&rates),
        cpu_ns_per_record: spread(&costs),
        contexts_ns_per_record: contexts,
        wire_to_app: Some(wire_to_app.summary()),
        wire_to_app_curve: wire_to_app.curve(),
        app_only: Some(app_only.summary()),
        app_only_curve: app_only.curve(),
        rtt: None,
        rtt_curve: Vec::new(),
        due_to_arrival: None,
        due_to_arrival_curve: Vec::new(),
        memory: segments.first().map(|s| s.memory.clone()).unwrap_or_default(),
    }
}

type Value = fn(&Segment) -> Option<f64>;

fn findings(result: &RaceResult) -> Vec<Finding> {
    let metrics: [(&str, &str, Rule, Value); 5] = [
        ("records/s", "1/s", Rule::RATE, |s| Some(s.records_per_s)),
        ("CPU per record", "ns", Rule::COST, |s| s.cpu.ns_per_record),
        ("p99 wire to app", "ns", Rule::TAIL_LATENCY, |s| {
            s.wire_to_app?.p99_ns.map(|ns| ns as f64)
        }),
        ("p99 app only", "ns", Rule::TAIL_LATENCY, |s| s.app_only?.p99_ns.map(|ns| ns as f64)),
        ("loss", "share", Rule::difference(Direction::LowerIsBetter, 0.001), |s| {
            Some(s.ledger.loss_share())
        }),
    ];
    let mut findings = Vec::new();
    for (metric, unit, rule, value) in metrics {
        for load in 0..result.loads_pps.len() {
            let values = |arm: usize| -> Vec<Option<f64>> {
                (0..result.rounds)
                    .map(|round| {
                        let at = |s: &&Segment| (s.arm, s.load, s.round) == (arm, load, round);
                        value(result.segments.iter().find(at)?)
                    })
                    .collect()
            };
            let base = values(0);
            let compare = |arm: usize| {
                let pairs = base.iter().zip(values(arm)).enumerate();
                let pair = |(round, (&base, arm))| Pair { generation: round / 2, base, arm };
                let pairs: Vec<Pair> = pairs.map(pair).collect();
                Comparison::of_pairs(&pairs, rule, Look::only(0.05)).expect("within limits")
            };
            let noise = (result.arms.len() > 1).then(|| compare(1));
            for arm in 1..result.arms.len() {
                let comparison = compare(arm);
                let yardstick = if arm == 1 { None } else { noise.as_ref() };
                findings.push(Finding {
                    metric: metric.to_owned(),
                    unit: unit.to_owned(),
                    arm,
                    load,
                    judgement: comparison.judge(yardstick),
                    is_decided: comparison.is_decided(yardstick),
                    limit_look: Some(comparison.look),
                    comparison,
                });
            }
        }
    }
    findings
}

/// The same race as one of pings: with round trips, real pings and capacities, one arm without.
pub(crate) fn pings() -> RaceResult {
    let mut result = race();
    result.app = "echo".to_owned();
    let rtt = |s: Option<LatencySummary>| {
        let summary = s?;
        Some(Rtt { summary, avg_ns: Some(8_123.4), mdev_ns: Some(912.0), late: 3 })
    };
    for summary in &mut result.summaries {
        summary.rtt = rtt(summary.wire_to_app.take());
        summary.app_only = None;
        summary.rtt_curve = std::mem::take(&mut summary.wire_to_app_curve);
        summary.app_only_curve.clear();
    }
    for segment in &mut result.segments {
        segment.rtt = rtt(segment.wire_to_app.take());
        segment.app_only = None;
    }
    let loads = result.loads_pps.len();
    result.findings.retain(|finding| !finding.metric.contains("app"));
    for metric in ["ping avg", "ping avg under load", "capacity"] {
        let copied: Vec<Finding> = result
            .findings
            .iter()
            .filter(|f| f.metric == "CPU per record" && f.load == 0)
            .map(|f| Finding { metric: metric.to_owned(), load: loads, ..f.clone() })
            .collect();
        result.findings.extend(copied);
    }
    let figures = result.summaries[0].rtt.expect("it was just given");
    result.ping = Some(PingSection {
        program: Some("ping from iputils 20221126".to_owned()),
        pings_per_trial: 500,
        interval_us: 2_000,
        pings: (0..2)
            .map(|arm| PingRow { arm, sent: 2_000, replied: 1_999, duplicates: 0, rtt: figures })
            .collect(),
        pings_loaded: vec![PingRow {
            arm: 1,
            sent: 2_000,
            replied: 2_000,
            duplicates: 0,
            rtt: figures,
        }],
        ping_load_pps: 50_000,
        loss_max_share: 0.005,
        searched_pps: [20_000, 4_000_000],
        capacities: (0..2)
            .map(|arm| CapacityRow {
                arm,
                pps: (arm == 0).then_some([412_345.0, 400_000.0, 420_000.0]),
                searches: 4,
                open_ended: arm,
                left_out: 0,
            })
            .collect(),
    });
    result
}

fn caps_of(model: &Model) -> CapsReport {
    let mut caps = CapsReport::default();
    match model.name {
        "afxdp" => {
            caps.requested = CapSet::default().with(Cap::ZeroCopy).with(Cap::NeedWakeup);
            caps.obtained = CapSet::default().with(Cap::NeedWakeup);
            caps.allowed_missing = CapSet::default().with(Cap::ZeroCopy);
            caps.fact("UMEM", "4096 frames of 4096 bytes");
            caps.fact("rings", "rx 2048, fill 4096");
        }
        "xdp" => {
            caps.requested = CapSet::default().with(Cap::NativeXdp);
            caps.obtained = caps.requested;
            caps.fact("record ring", "16 MiB per CPU");
        }
        _ => {
            caps.requested = CapSet::default().with(Cap::KernelTimestamps);
            caps.obtained = caps.requested.with(Cap::Transmit);
            caps.fact("receive buffer", "8388608 bytes");
        }
    }
    caps
}

fn race_of(loads_pps: Vec<u64>, rounds: usize, models: &[Model]) -> RaceResult {
    let mut random = Random::seeded(0x1a7e_3a4b);
    let arms = models
        .iter()
        .enumerate()
        .map(|(index, model)| Arm {
            arguments: Vec::new(),
            name: model.name.to_owned(),
            lane: model.lane.to_owned(),
            is_noise_floor: index == 1,
            delivered_unknown: false,
            own_pps: None,
            note: model.note.to_owned(),
            caps: caps_of(model),
        })
        .collect();
    let mut segments = Vec::new();
    let mut latencies = Vec::new();
    for round in 0..rounds {
        for step in 0..models.len() {
            let arm = (step + round) % models.len();
            for (load, &pps) in loads_pps.iter().enumerate() {
                let place = (arm, load, round, segments.len());
                let (segment, wire, app) = segment(&models[arm], place, pps, &mut random);
                segments.push(segment);
                latencies.push((arm, load, [wire, app]));
            }
        }
    }
    let mut summaries = Vec::new();
    for arm in 0..models.len() {
        for load in 0..loads_pps.len() {
            let mine: Vec<&Segment> =
                segments.iter().filter(|s| (s.arm, s.load) == (arm, load)).collect();
            let mut merged = [Latency::new(), Latency::new()];
            for (_, _, parts) in latencies.iter().filter(|(a, l, _)| (*a, *l) == (arm, load)) {
                merged[0].merge(&parts[0]);
                merged[1].merge(&parts[1]);
            }
            summaries.push(summarise(arm, load, &mine, merged));
        }
    }
    let headroom = loads_pps
        .iter()
        .map(|&load_pps| Headroom {
            load_pps,
            asked_pps: load_pps as f64 * 1.5,
            achieved_pps: load_pps as f64 * 1.5,
            late_p99_ns: 9_000,
            missing: Vec::new(),
        })
        .collect();
    let mut result = RaceResult {
        schema: SCHEMA.to_owned(),
        title: "Packet features, kernel sockets against XDP".to_owned(),
        app: "features".to_owned(),
        scenario:
            "title = \"Packet features\"\napp = \"features\"\nloads = [50000, 200000, 400000]\n\n\
                   [[arm]]\nname = \"packet\"\nlane = \"packet\" # <- the base\n"
                .to_owned(),
        command: ["laneway", "race", "features", "--quick", "--out", "/tmp/race"]
            .map(str::to_owned)
            .into(),
        version: "0.1.0 (7c1d2e9)".to_owned(),
        started_unix_ns: 1_795_247_726_000_000_000,
        seconds: 171.6,
        machine: Machine {
            facts: [
                ("kernel", "6.18.44"),
                ("cpu", "Example CPU @ 2.80GHz, 2 cores"),
                ("memory", "24 GiB"),
                ("mitigations", "on"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            findings: vec!["The frequency governor cannot be read in this guest.".to_owned()],
            steal_share: 0.0007,
            load_before: 0.31,
        },
        topology: serde_json::json!({
            "receiver": {"interface": "lw0", "mtu": 1500, "gro": true, "napi threaded": true},
            "sender": {"interface": "lw1", "offloads off": ["tso", "tx-udp-segmentation"]},
        }),
        placement: Placement {
            arm_cpu: 0,
            napi_cpu: 0,
            generator_cpu: 1,
            far_napi_cpu: None,
            sentence: "Arm and receive stack (NAPI thread) on CPU 0, generator alone on CPU 1."
                .to_owned(),
            tso: false,
            napi_first: false,
        },
        traffic: Traffic {
            capture: "scenarios/captures/mixed.pcapng.zst".to_owned(),
            sha256: "9f".repeat(32),
            frames: 18_211,
            replayed: 18_064,
            mean_frame_bytes: 412.7,
            generator: "live".to_owned(),
            spacing: crate::timetable::Spacing::Steady,
            schedule: "constant rate in bursts of 16".to_owned(),
        },
        seed: "18446744073709551557".to_owned(),
        generations: rounds.div_ceil(2),
        rounds,
        arms,
        loads_pps,
        saturating_pps: None,
        topspeed: false,
        closed_loop: false,
        closed_requests: Vec::new(),
        own_share: None,
        segments,
        summaries,
        findings: Vec::new(),
        ping: None,
        capacity: None,
        traces: Vec::new(),
        goals: vec![
            GoalOutcome {
                goal: "CPU per record of xdp at 400000/s: at most 0.2 times packet".to_owned(),
                measured: "0.185 [0.182, 0.189]".to_owned(),
                status: GoalStatus::Met,
            },
            GoalOutcome {
                goal: "CPU per record of afxdp at 400000/s: at most 0.4 times packet".to_owned(),
                measured: "0.401 [0.396, 0.409]".to_owned(),
                status: GoalStatus::Inconclusive,
            },
        ],
        claims_of: None,
        claims: vec![ClaimOutcome {
            says: "XDP is the cure".to_owned(),
            then: Some("3 times".to_owned()),
            test: "records/s of xdp at 400000/s: at least 1.5 times packet".to_owned(),
            measured: "1.02 [0.99, 1.04]".to_owned(),
            note: String::new(),
            status: ClaimStatus::Refuted,
        }],
        drift: None,
        headroom,
        client_shares: Vec::new(),
        too_few: Vec::new(),
        invalid: Vec::new(),
        notes: vec!["CPU cost is the guest's view: work of the host is invisible.".to_owned()],
        interrupted: false,
        ended: None,
        outcome: Outcome::Inconclusive,
    };
    result.findings = findings(&result);
    result
}

/// Made once: the intervals take their time.
static RACE: LazyLock<RaceResult> = LazyLock::new(|| {
    let mut result = race_of(vec![50_000, 200_000, 400_000], BLOCKS, &models());
    // An arm that reports no latency of its own at one load.
    if let Some(summary) = result.summaries.iter_mut().find(|s| (s.arm, s.load) == (4, 0)) {
        summary.app_only = None;
        summary.app_only_curve.clear();
    }
    result
});

/// Five arms, three loads, six blocks: drops, an absent latency, inconclusive verdicts.
pub(crate) fn race() -> RaceResult {
    RACE.clone()
}

/// The same with an open ledger and a late generator.
pub(super) fn invalid() -> RaceResult {
    INVALID.clone()
}

static INVALID: LazyLock<RaceResult> = LazyLock::new(|| {
    let mut result = race();
    for summary in result.summaries.iter_mut().filter(|s| (s.arm, s.load) == (4, 2)) {
        summary.ledger.delivered -= 1_234;
        summary.ledger.duplicates = 17;
        summary.ledger.balance();
    }
    for segment in result.segments.iter_mut().filter(|s| (s.arm, s.load) == (4, 2)) {
        segment.invalid.push("ledger open: +206 frames unexplained".to_owned());
        segment.cpu.ns_per_record = None;
    }
    result.findings = findings(&result);
    result.invalid = vec![
        "The ledger of xdp at 400000/s is open: 1234 frames unexplained, 17 delivered twice; the \
         receive counter or the stamp in the frames is at fault."
            .to_owned(),
        "The generator was late: p99 41.2 us behind schedule in block 3, 10 us allowed; lower the \
         load or free its CPU."
            .to_owned(),
    ];
    result.outcome = Outcome::Invalid;
    result
});

/// One block: every comparison lacks its interval, every spread its width.
pub(super) fn one_block() -> RaceResult {
    race_of(vec![50_000, 200_000, 400_000], 1, &models())
}

/// No arm, no load, no segment: what a race leaves that could not begin.
pub(super) fn empty() -> RaceResult {
    let mut result = race_of(Vec::new(), 0, &[]);
    result.goals.clear();
    result.claims.clear();
    result.invalid = vec!["No arm could be opened.".to_owned()];
    result.outcome = Outcome::Invalid;
    result
}

/// Figures that are no numbers, as a faulty meter gives them.
pub(super) fn not_numbers() -> RaceResult {
    let mut result = race();
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    (result.seconds, result.machine.load_before) = (f64::NAN, f64::INFINITY);
    (result.machine.steal_share, result.traffic.mean_frame_bytes) = (f64::NAN, f64::NAN);
    for (segment, &value) in result.segments.iter_mut().zip(odd.iter().cycle()) {
        (segment.records_per_s, segment.cpu.closure) = (value, value);
        segment.cpu.ns_per_record = Some(value);
        (segment.generator.asked_pps, segment.generator.achieved_pps) = (value, value);
    }
    for (summary, &value) in result.summaries.iter_mut().zip(odd.iter().cycle()) {
        summary.records_per_s = Some([value; 3]);
        summary.cpu_ns_per_record = Some([value, 1.0, value]);
        summary.contexts_ns_per_record.values_mut().for_each(|ns| *ns = value);
        summary.wire_to_app_curve.iter_mut().for_each(|point| point.beyond = value);
    }
    for (finding, &value) in result.findings.iter_mut().zip(odd.iter().cycle()) {
        finding.comparison.estimate = Some(value);
        finding.comparison.p = Some(value);
        finding.judgement.threshold = value;
        finding.comparison.effects.iter_mut().for_each(|effect| effect.value = value);
        if let Some(interval) = &mut finding.comparison.interval {
            (interval.lower, interval.upper) = (value, value);
        }
    }
    result
}

/// One load, two blocks, two arms: no interval, axes with a single point.
pub(super) fn single_point() -> RaceResult {
    let two: Vec<Model> = models().into_iter().step_by(4).collect();
    let mut result = race_of(vec![100_000], 2, &two);
    result.arms[1].is_noise_floor = false;
    result.goals.clear();
    result.claims.clear();
    result.notes.clear();
    result.machine.findings.clear();
    result
}

/// Nothing delivered, nothing compared, nothing known: every figure zero or absent.
pub(super) fn bare() -> RaceResult {
    let mut result = race_of(vec![0, 1_000], 1, &models());
    for summary in &mut result.summaries {
        summary.ledger = Ledger { offered: 1_000, ..Ledger::default() };
        summary.ledger.drops.insert("veth ring full".to_owned(), 1_000);
        summary.ledger.balance();
        summary.records_per_s = Some([0.0; 3]);
        summary.cpu_ns_per_record = None;
        summary.contexts_ns_per_record.clear();
        (summary.wire_to_app, summary.app_only) = (None, None);
        summary.wire_to_app_curve.clear();
        summary.app_only_curve.clear();
    }
    result.summaries.truncate(8);
    result.findings.clear();
    result.segments.clear();
    result.goals.clear();
    result.claims.clear();
    result.topology = serde_json::Value::Null;
    result
}

/// A race whose arms were traced; one cannot be.
pub(super) fn traced() -> RaceResult {
    let mut result = race();
    let stage = |name: &str, is_app: bool, ns_per_frame: f64| Stage {
        name: name.to_owned(),
        is_app,
        ns_per_frame,
    };
    let explanation = Explanation {
        span_ns: 1_990_000_000,
        events: 2_998_766,
        lost: 1_234,
        limits: vec![
            "1,234 of 3,000,000 records found no room in the ring (262,144 records) or in the file \
             (96 MiB): the trace has holes there."
                .to_owned(),
        ],
        shares: Shares {
            application: 0.042,
            lane: 0.613,
            waiting: 0.0,
            empty_polls: 0.304,
            tracer: 0.031,
            other: 0.01,
        },
        frames: Some(412_000),
        polls: 1_000_000,
        empty_polls: 771_111,
        frames_per_productive_poll: Some(1.8),
        stages: vec![
            stage("receive", false, 812.0),
            stage("app", true, 45.0),
            stage("send and release", false, 1_903.0),
        ],
        causes: Some(vec![
            "overload (port 0 queue 0): the queue was full 97 % of the time. [confidence high]"
                .to_owned(),
        ]),
        fired: vec![Detection {
            id: "D1".to_owned(),
            title: "empty polls".to_owned(),
            value: Some(0.304),
            interval: Some([0.297, 0.311]),
            unit: "share of time".to_owned(),
            confidence: "high".to_owned(),
            sentence: "77.1 % of the polls found nothing; they took 30.4 % of the time.".to_owned(),
        }],
        silent: [6, 1, 4],
        advice: vec![Advice {
            text: "Race this lane against af_packet and AF_XDP.".to_owned(),
            because: "D8: 2.1 crossings per frame.".to_owned(),
            expected: "fewer crossings per packet, less time per packet".to_owned(),
            confirm: "laneway race tap".to_owned(),
        }],
    };
    let summary = result.summaries.iter().find(|s| (s.arm, s.load) == (0, 2)).expect("it ran");
    let [median, ..] = summary.records_per_s.expect("it delivered");
    let cost = TracingCost {
        traced_records_per_s: median * 0.98,
        records_per_s: summary.records_per_s,
        traced_cpu_ns_per_record: Some(2_100.0),
        cpu_ns_per_record: summary.cpu_ns_per_record,
        doubts: Vec::new(),
    };
    result.traces = vec![
        TracedArm {
            arm: 0,
            load: 2,
            untraced_reason: None,
            folder: Some("traces/packet".to_owned()),
            page: Some("traces/packet.html".to_owned()),
            cost: Some(cost),
            explanation: Some(explanation),
        },
        TracedArm {
            arm: 2,
            load: 2,
            untraced_reason: Some(
                "the kernel's bridge forwards: there is no worker to trace".to_owned(),
            ),
            folder: None,
            page: None,
            cost: None,
            explanation: None,
        },
    ];
    result
}

/// Strings that try to leave their place, and names far too long.
pub(super) fn hostile() -> RaceResult {
    let mut result = invalid();
    let evil =
        "</title></style><script>alert(1)</script>\" onmouseover=\"x' | `a` \u{1b}[2J\u{202e}\n# b";
    result.title = evil.to_owned();
    result.claims_of = Some(evil.to_owned());
    result.app = evil.to_owned();
    result.scenario = evil.repeat(3);
    result.version = evil.to_owned();
    result.command.push(evil.to_owned());
    result.traffic.capture = evil.to_owned();
    result.traffic.schedule = evil.to_owned();
    result.placement.sentence = evil.to_owned();
    result.topology = serde_json::json!({evil: [evil, {"deep": evil}]});
    result.machine.facts.insert(evil.to_owned(), evil.to_owned());
    result.machine.findings.push(evil.to_owned());
    result.notes.push(evil.to_owned());
    result.invalid.push(evil.to_owned());
    for arm in &mut result.arms {
        arm.name = format!("{} {evil}", arm.name).repeat(2);
        arm.lane = evil.to_owned();
        arm.note = evil.to_owned();
        arm.caps.fact(evil, evil);
    }
    for goal in &mut result.goals {
        (goal.goal, goal.measured) = (evil.to_owned(), evil.to_owned());
    }
    for claim in &mut result.claims {
        let evil = || evil.to_owned();
        (claim.says, claim.test, claim.measured) = (evil(), evil(), evil());
        (claim.then, claim.note) = (Some(evil()), evil());
    }
    for finding in &mut result.findings {
        finding.metric.push_str(evil);
        finding.unit.push_str(evil);
    }
    result.traces = traced().traces;
    for traced in &mut result.traces {
        traced.untraced_reason = traced.untraced_reason.as_ref().map(|_| evil.to_owned());
        traced.page = traced.page.as_ref().map(|_| evil.to_owned());
        traced.folder = traced.folder.as_ref().map(|_| evil.to_owned());
        if let Some(explanation) = &mut traced.explanation {
            explanation.limits.push(evil.to_owned());
            explanation.stages[0].name = evil.to_owned();
            explanation.fired[0].sentence = evil.to_owned();
            explanation.causes = Some(vec![evil.to_owned()]);
            explanation.advice[0].confirm = evil.to_owned();
        }
    }
    for summary in &mut result.summaries {
        summary.ledger.drops.insert(evil.to_owned(), 7);
        summary.contexts_ns_per_record.insert(evil.to_owned(), 7.0);
    }
    result
}
