//! Scenarios as they are written, and what is refused.

use super::*;
use crate::ping::PINGS_MAX;
use crate::tables::TablesOf;
use crate::timetable::Times;
use crate::traffic::{FRAME_BYTES_MAX, Payloads, TrafficPlan};
use laneway_kinds::Counted;
use laneway_kinds::Metric;
use laneway_registry::{Apps, Lanes};

const TABLES: TablesOf<Apps, Lanes> = TablesOf::new();

fn scenario() -> Scenario {
    toml::from_str(
        r#"
        title = "t"
        app = "features"
        capture = "c.pcap"
        generator = "live"
        burst = 16
        late_p99_us_max = 100
        matters = 0.05
        arm_cpu = 0
        generator_cpu = 1
        seed = 1
        quick = { loads_pps = [1000, 2000], segment_ms = 1000, time_s = 60, generations = 4 }
        full = { loads_pps = [1000], segment_ms = 1000, time_s = 600, generations = 20 }
        arm = [
            { lane = "packet" },
            { lane = "xdp", note = "n", plant = { slow = { share = 0.2 } } },
        ]
        goal = [{ metric = "CPU per record", arm = "xdp", over = "packet", load_pps = 1000, at_most = 0.2 }]
        "#,
    )
    .unwrap()
}

#[test]
fn a_scenario_is_read_and_its_arms_are_named() {
    let mut scenario = scenario();
    scenario.check(&TABLES).unwrap();
    assert_eq!(scenario.arms[1].name, "xdp");
    assert_eq!(scenario.arms[1].plant, Plant::Slow { share: 0.2 });
    assert_eq!(
        scenario.goals[0].sentence(),
        "CPU per record of xdp at 1000/s: at most 0.2 times packet"
    );
    // What ran can be run again.
    let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(again, scenario);
}

#[test]
fn arrivals_are_steady_by_default_and_a_captures_need_one() {
    let mut plain = scenario();
    assert!(!toml::to_string(&plain).unwrap().contains("arrivals"));
    let seeded = |s: &Scenario| s.times(&s.traffic(&s.facts(&TABLES).unwrap()).unwrap());
    assert_eq!(seeded(&plain), Times::Steady);
    plain.arrivals = Spacing::Poisson;
    plain.check(&TABLES).unwrap();
    assert_eq!(seeded(&plain), Times::Poisson { seed: 1 });
    let again: Scenario = toml::from_str(&toml::to_string(&plain).unwrap()).unwrap();
    assert_eq!(again, plain);
    plain.arrivals = Spacing::Capture;
    let refused = plain.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("burst is 16; with `arrivals"), "{refused}");
    plain.burst = 1;
    plain.check(&TABLES).unwrap();
    let path = PathBuf::from("c.pcap");
    assert_eq!(seeded(&plain), Times::Capture { path, frame_bytes_max: FRAME_BYTES_MAX });
    (plain.app, plain.capture, plain.payload_bytes) = ("count".into(), None, Some(64));
    plain.goals.clear();
    let refused = plain.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("arrivals is capture; frames made here"), "{refused}");
    let text = toml::to_string(&scenario()).unwrap();
    let text = format!("arrivals = \"posson\"\n{text}");
    let refused = Scenario::read(&text, "t", Path::new(".")).unwrap_err().to_string();
    assert!(refused.contains("posson") && refused.contains("poisson"), "{refused}");
}

#[test]
fn sizes_may_be_a_mix_in_place_of_a_payload_and_of_nothing_else() {
    let mut mixed = scenario();
    (mixed.app, mixed.capture, mixed.sizes) = ("count".into(), None, Some(Sizes::Imix));
    mixed.goals.clear();
    mixed.check(&TABLES).unwrap();
    let app = mixed.facts(&TABLES).unwrap();
    let TrafficPlan::Udp { payloads, .. } = mixed.traffic(&app).unwrap() else {
        panic!("it is UDP");
    };
    assert_eq!(payloads, Payloads::Imix);
    let again: Scenario = toml::from_str(&toml::to_string(&mixed).unwrap()).unwrap();
    assert_eq!(again, mixed);
    mixed.payload_bytes = Some(64);
    let refused = mixed.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("one of them"), "{refused}");
    let mut pinged = pings();
    (pinged.payload_bytes, pinged.sizes) = (None, Some(Sizes::Imix));
    let refused = pinged.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("app echo is not sent UDP"), "{refused}");
}

#[test]
fn a_value_that_cannot_be_is_named_with_what_it_may_be() {
    type Change = fn(&mut Scenario);
    let changes: [(Change, &str); 13] = [
        (|s| s.arms.clear(), "number of arms"),
        (|s| s.arms[0].optional = true, "`optional` of the first arm"),
        (|s| s.app = "count".into(), "traffic of app count"),
        (|s| s.payload_bytes = Some(64), "traffic of app features"),
        (
            |s| (s.app, s.capture, s.payload_bytes) = ("bounce".into(), None, Some(17)),
            "payload_bytes",
        ),
        (|s| s.arms[1].name = "packet".into(), "name of two arms"),
        (|s| s.arms[0].lane = "packet:=".into(), "lane of arm"),
        (|s| s.burst = 0, "burst"),
        (|s| s.generator_cpu = 0, "arm_cpu"),
        (|s| s.generator_napi_cpu = Some(0), "generator_napi_cpu is 0; on the arm's CPU"),
        (|s| s.quick.loads_pps = vec![2, 1], "loads_pps"),
        (|s| s.quick.time_s = 0, "time_s"),
        (|s| s.goals[0].over = Some("x".into()), "arm of a goal"),
    ];
    for (change, part) in changes {
        let mut scenario = scenario();
        change(&mut scenario);
        let sentence = scenario.check(&TABLES).expect_err(part).to_string();
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn the_shipped_scenarios_are_sound_and_every_variant_has_its_traffic() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios"));
    for name in [
        "features.toml",
        "features-goals.toml",
        "lanes.toml",
        "ping.toml",
        "tap.toml",
        "forward.toml",
        "parked.toml",
        "udp-echo.toml",
        "tcp-echo.toml",
    ] {
        Scenario::load(&folder.join(name)).unwrap().check(&TABLES).unwrap();
    }
    let lanes = Scenario::load(&folder.join("lanes.toml")).unwrap();
    let races = lanes.races(&[]).unwrap();
    let of = |name: &str| &races.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!((of("count-64").app.as_str(), of("across-64").app.as_str()), ("count", "across"));
    assert_eq!(of("bounce-1316").payload_bytes, Some(1316));
    assert!(of("count-64").goals.iter().all(|g| g.variant.as_deref() == Some("count-64")));
    assert!(of("bounce-64").goals.is_empty() && !of("across-64").goals.is_empty());
    for (name, mut race) in races {
        race.check(&TABLES).unwrap();
        let again: Scenario = toml::from_str(&toml::to_string(&race).unwrap()).unwrap();
        assert_eq!(again, race, "{name}");
    }
    let refused = lanes.races(&["count-65".into()]).unwrap_err().to_string();
    assert!(refused.contains("count-64, "), "{refused}");
}

#[test]
fn the_variants_of_pings_have_generators_arms_and_goals_of_their_own() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/ping.toml");
    let mut ping = Scenario::load(Path::new(file)).unwrap();
    ping.check(&TABLES).unwrap();
    let races = ping.races(&[]).unwrap();
    let [(live, of_live), (socket, of_socket)] = &races[..] else { panic!("two variants") };
    assert_eq!([live, socket], ["live", "socket"]);
    assert_eq!((of_live.arms.len(), of_live.goals.len()), (ping.arms.len(), 3));
    let arms: Vec<&str> = of_socket.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!((arms, of_socket.goals.len()), (vec!["kernel", "xdp --no-limits"], 1));
    assert!(of_socket.quick.topspeed && of_live.quick.topspeed);
    assert_eq!(of_socket.ping.as_ref().unwrap().pings, 0);
    for (name, mut race) in races.clone() {
        race.check(&TABLES).unwrap();
        let again: Scenario = toml::from_str(&toml::to_string(&race).unwrap()).unwrap();
        assert_eq!(again, race, "{name}");
    }
    ping.variants[1].arms.push("kernle".into());
    let refused = ping.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("an arm of a variant is kernle"), "{refused}");
}

/// A race of pings.
fn pings() -> Scenario {
    let mut scenario = scenario();
    (scenario.app, scenario.capture, scenario.payload_bytes) = ("echo".into(), None, Some(56));
    (scenario.arms[0].peer, scenario.arms[0].lane) = (Some(Peer::Stack), "kernel".into());
    scenario.arms[1].plant = Plant::None;
    scenario.goals.clear();
    scenario.ping = Some(PingPlan {
        pings: 100,
        ping_interval_us: 2_000,
        ping_load_pps: 50_000,
        loss_max: 0.005,
        capacity_pps: [10_000, 1_000_000],
        capacity_steps: 6,
        capacity_ms: 150,
    });
    scenario
}

#[test]
fn a_race_of_pings_has_the_kernel_as_a_peer_and_a_section_of_its_own() {
    let mut scenario = pings();
    scenario.check(&TABLES).unwrap();
    assert_eq!(scenario.arms[0].name, "kernel");
    let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(again, scenario);
    type Change = fn(&mut Scenario);
    let changes: [(Change, &str); 11] = [
        (|s| s.ping.as_mut().unwrap().ping_load_pps = 500_000, "ping.ping_load_pps"),
        (|s| s.ping.as_mut().unwrap().capacity_steps = 1, "ping.capacity_steps is 1"),
        (|s| s.arms[0].full_only = true, "`full_only` of the first arm"),
        (|s| s.ping = None, "the section `[ping]`"),
        (|s| s.app = "count".into(), "`[ping]` belongs to"),
        (|s| (s.app, s.ping) = ("count".into(), None), "a peer of app count"),
        (|s| s.arms[1].plant = Plant::Slow { share: 0.1 }, "plant"),
        (|s| s.ping.as_mut().unwrap().loss_max = 0.6, "ping.loss_max"),
        (|s| s.ping.as_mut().unwrap().capacity_pps = [2, 1], "ping.capacity_pps"),
        (|s| s.ping.as_mut().unwrap().pings = PINGS_MAX + 1, "ping.pings"),
        (|s| s.quick.loads_pps = vec![20_000_000], "the number of requests"),
    ];
    for (change, part) in changes {
        let mut scenario = pings();
        change(&mut scenario);
        let sentence = scenario.check(&TABLES).expect_err(part).to_string();
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn the_shipped_searches_are_finer_than_what_matters() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/relay.toml");
    let scenario = Scenario::load(Path::new(file)).unwrap();
    let plans = scenario.variants.iter().filter_map(|variant| variant.capacity.as_ref());
    let known_to = plans.map(|plan| crate::search::resolution(plan.pps, plan.steps));
    let known_to: Vec<f64> = known_to.collect();
    assert_eq!(known_to.len(), 5);
    assert!(known_to.iter().all(|share| *share < scenario.matters / 1.9), "{known_to:?}");
}

#[test]
fn a_search_asks_two_rates_at_least() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/relay.toml");
    let mut scenario = Scenario::load(Path::new(file)).unwrap();
    let mut checked = |steps| {
        let plans = scenario.variants.iter_mut().filter_map(|variant| variant.capacity.as_mut());
        plans.for_each(|plan| plan.steps = steps);
        scenario.check(&TABLES)
    };
    let why = checked(1).expect_err("it asks one").to_string();
    assert!(why.contains("capacity.steps is 1") && why.contains("2 to 16"), "{why}");
    checked(2).unwrap();
}

/// A race in which a client asks.
fn asked() -> Scenario {
    let mut scenario = scenario();
    (scenario.app, scenario.capture) = ("echo".into(), None);
    scenario.generator = SOCKETS.into();
    scenario.client = Some(Asks {
        connections: 10,
        in_flight: 1,
        request_bytes: [64, 64],
        store: None,
        timeout_ms: 1_000,
    });
    scenario.arms[1].plant = Plant::None;
    scenario.goals.clear();
    scenario
}

#[test]
fn a_client_makes_another_race_of_the_same_app() {
    let mut scenario = asked();
    scenario.arms[1] = ArmPlan::plain("", Some("sh ./serve.sh {address}:{port}"));
    scenario.check(&TABLES).unwrap();
    let app = scenario.facts(&TABLES).unwrap();
    assert_eq!((app.race.counted, app.race.peers.len()), (Counted::Answered, 0));
    assert_eq!(pings().facts(&TABLES).unwrap().race.counted, Counted::Replies);
    let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(again, scenario);
    // A closed loop needs no other load, and a goal may be one in it.
    (scenario.quick.loads_pps, scenario.quick.closed_loop) = (Vec::new(), true);
    let goal = Goal { load_pps: None, over: None, ..self::scenario().goals[0].clone() };
    scenario.goals.push(Goal { arm: "packet".into(), ..goal });
    scenario.check(&TABLES).unwrap();
    let sentence = scenario.goals[0].sentence_of("in the closed loop", &[]);
    assert_eq!(sentence, "CPU per record of packet in the closed loop: at most 0.2 ns");
    type Change = fn(&mut Scenario);
    let changes: [(Change, &str); 12] = [
        (|s| s.app = "features".into(), "nothing is asked of this app over connections"),
        (|s| s.payload_bytes = Some(64), "a client makes its own requests"),
        (|s| s.generator = "live".into(), "`sockets`"),
        (|s| s.client.as_mut().unwrap().connections = 1_001, "client.connections is 1001"),
        (|s| s.client.as_mut().unwrap().request_bytes = [9, 8], "client.request_bytes is [9, 8]"),
        (|s| s.quick.saturate = true, "closed_loop = true"),
        (|s| s.full.topspeed = true, "closed_loop = true"),
        (|s| s.full.loads_pps.clear(), "loads_pps"),
        (|s| s.ping = pings().ping, "`[ping]` belongs to"),
        (|s| s.arguments = vec!["--udp".into()], "leave --udp out"),
        (|s| s.arms[1].command = Some("sh {port1}".into()), "there is no `{port1}` here"),
        (|s| (s.client, s.payload_bytes) = (None, Some(64)), "the section `[ping]`"),
    ];
    for (change, part) in changes {
        let mut scenario = asked();
        scenario.arms[1] = ArmPlan::plain("", Some("sh ./serve.sh {address}:{port}"));
        change(&mut scenario);
        let sentence = scenario.check(&TABLES).expect_err(part).to_string();
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
    let mut other = self::scenario();
    other.quick.closed_loop = true;
    let sentence = other.check(&TABLES).unwrap_err().to_string();
    assert!(sentence.contains("give `[client]`, or leave it out"), "{sentence}");
}

#[test]
fn an_arm_that_is_traced_while_it_is_measured_says_so_in_its_name() {
    let mut scenario = scenario();
    let twin = ArmPlan { trace: true, name: String::new(), ..scenario.arms[1].clone() };
    scenario.arms.push(twin);
    scenario.check(&TABLES).unwrap();
    let named = scenario.arms.last_mut().unwrap();
    assert_eq!(named.name, format!("{}, traced", named.lane));
    named.name = "fast".into();
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("the name of an arm is fast"), "{refused}");
    let named = scenario.arms.last_mut().unwrap();
    (named.name, named.peer) = ("traced".into(), Some(Peer::Testpmd));
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("`trace` of a peer"), "{refused}");
}

#[test]
fn an_arm_that_is_raced_alone_says_so_in_its_name_and_is_not_the_base() {
    let mut scenario = scenario();
    let base = scenario.arms[0].clone();
    scenario.arms.push(ArmPlan { alone: true, name: String::new(), ..base });
    scenario.check(&TABLES).unwrap();
    assert_eq!(scenario.arms[2].name, "packet, alone");
    let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(again, scenario);
    scenario.arms[2].name = "by itself".into();
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("the name of an arm is by itself"), "{refused}");
    (scenario.arms[2].name, scenario.arms[0].alone) = ("alone".into(), true);
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("`alone` of the first arm"), "{refused}");
}

#[test]
fn a_scenario_has_as_many_arms_as_its_races_have_together() {
    let mut scenario = scenario();
    let base = scenario.arms[0].clone();
    let more = (0..ARMS_MAX).map(|n| ArmPlan { name: format!("arm {n}"), ..base.clone() });
    scenario.arms.extend(more);
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("the number of arms is 18"), "{refused}");
    let some: Vec<String> = scenario.arms[2..].iter().map(|arm| arm.name.clone()).collect();
    let mut text = toml::Table::new();
    text.insert("name".into(), "some".into());
    text.insert("arms".into(), some.into());
    scenario.variants = vec![text.try_into().unwrap()];
    scenario.check(&TABLES).unwrap();
}

#[test]
fn a_demand_is_a_ratio_or_a_difference_and_says_which() {
    let mut scenario = scenario();
    scenario.check(&TABLES).unwrap();
    let [base, other] = [0, 1].map(|i| scenario.arms[i].name.clone());
    let goal = Goal {
        arm: other,
        over: None,
        above: Some(base.clone()),
        at_most: Some(300.0),
        at_least: None,
        metric: Metric::Cpu,
        ..scenario.goals[0].clone()
    };
    assert!(
        goal.sentence().ends_with(&format!("at most 300 ns above {base}")),
        "{}",
        goal.sentence()
    );
    scenario.goals = vec![Goal { over: Some(base), ..goal.clone() }];
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("`above`, a difference"), "{refused}");
    scenario.goals = vec![Goal { above: Some("absent".into()), ..goal }];
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("absent"), "{refused}");
}

#[test]
fn an_arm_without_the_limit_of_the_others_says_so_where_there_is_one() {
    let mut scenario = scenario();
    let base = scenario.arms[0].clone();
    scenario.arms.push(ArmPlan { unlimited: true, name: String::new(), ..base });
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("give `fanout` a `limit_mbit`"), "{refused}");
    scenario.arms[2].name.clear();
    (scenario.app, scenario.capture, scenario.payload_bytes) = ("relay".into(), None, Some(64));
    scenario.goals.clear();
    scenario.arms.iter_mut().for_each(|arm| arm.plant = Plant::None);
    scenario.fanout = Some(Fanout {
        groups: 1,
        outputs: 2,
        cables: 2,
        limit_mbit: Some(5),
        far_end: Default::default(),
    });
    (scenario.arms[0].lane, scenario.arms[1].lane) = ("socket".into(), "socket:gso".into());
    scenario.arms[2].lane = "socket".into();
    scenario.arms.iter_mut().for_each(|arm| arm.name.clear());
    scenario.check(&TABLES).unwrap();
    assert_eq!(scenario.arms[2].name, "socket, unlimited");
    scenario.arms[2].name = "free".into();
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("the name of an arm is free"), "{refused}");
}

#[test]
fn a_peer_is_named_after_its_device_and_runs_only_what_it_has() {
    let mut scenario = scenario();
    scenario.arms[1].peer = Some(Peer::Testpmd);
    scenario.arms[1].plant = Plant::None;
    scenario.arms[1].lane = "net_tap".into();
    scenario.goals.clear();
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("a peer of app features"), "{refused}");
    (scenario.app, scenario.capture, scenario.payload_bytes) = ("count".into(), None, Some(64));
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("no cable leads"), "{refused}");
    scenario.arms[1].lane = "net_af_paket".into();
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("net_af_xdp"), "{refused}");
    scenario.arms[1].lane = "net_af_packet:qdisc_bypass=1".into();
    scenario.arms[1].name.clear();
    scenario.check(&TABLES).unwrap();
    scenario.race_these(&["testpmd:net_af_packet:qdisc_bypass=1".into()]);
    assert_eq!(scenario.arms[0].peer, Some(Peer::Testpmd));
}

#[test]
fn a_program_is_an_arm_by_its_command_line_alone() {
    let mut scenario = scenario();
    (scenario.app, scenario.capture, scenario.payload_bytes) = ("bounce".into(), None, Some(64));
    scenario.goals.clear();
    scenario.arms[1] = ArmPlan::plain("", Some("sh ./serve.sh {address}:{port}"));
    scenario.check(&TABLES).unwrap();
    let arm = &scenario.arms[1];
    assert_eq!((arm.name.as_str(), arm.program()), ("sh serve.sh", Some(Peer::Command)));
    assert_eq!(arm.what(), "sh ./serve.sh {address}:{port}");
    let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(again, scenario);
    type Change = fn(&mut ArmPlan);
    let changes: [(Change, &str); 14] = [
        (|a| a.lane = "packet".into(), "`lane` of arm `sh serve.sh` is packet"),
        (|a| a.peer = Some(Peer::Testpmd), "`peer` of arm `sh serve.sh` is testpmd"),
        (|a| a.arguments = Some(Vec::new()), "`arguments` of arm"),
        (|a| (a.command, a.peer) = (None, Some(Peer::Command)), "give the program's command line"),
        (|a| a.command = None, "give it a `lane`, or a `command`"),
        (|a| a.command = Some(" ".into()), "`command` of arm `sh serve.sh` is empty"),
        (|a| a.command = Some("sh {prot}".into()), "did you mean `{port}`"),
        (|a| a.command = Some("sh {port1}".into()), "there is no `{port1}` here"),
        (|a| a.command = Some("sh 'x".into()), "left open"),
        (|a| a.command = Some("sh & x".into()), "no shell is started"),
        (|a| a.command = Some("no-such-program {port}".into()), "no program `no-such-program`"),
        (|a| a.plant = Plant::Slow { share: 0.1 }, "plant"),
        (|a| a.trace = true, "`trace` of a peer"),
        (
            |a| (a.command, a.lane, a.counts) = (None, "packet".into(), false),
            "`counts` of arm `sh serve.sh` is false; it is for programs",
        ),
    ];
    for (change, part) in changes {
        let mut scenario = scenario.clone();
        change(&mut scenario.arms[1]);
        let sentence = scenario.check(&TABLES).expect_err(part).to_string();
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
    let silent = |app: &str| {
        let mut scenario = scenario.clone();
        (scenario.app, scenario.arms[1].counts) = (app.into(), false);
        scenario.goals = vec![Goal {
            metric: Metric::Loss,
            arm: "sh serve.sh".into(),
            over: None,
            above: None,
            load_pps: Some(1000),
            over_load_pps: None,
            variant: None,
            at_most: Some(0.0),
            at_least: None,
        }];
        scenario.check(&TABLES).unwrap_err().to_string()
    };
    assert!(silent("bounce").contains("`counts` of arm `sh serve.sh` is false; what such"));
    assert!(silent("count").contains("what `sh serve.sh` received is unknown"));
    // An optional one that is not there is left out when it does not start.
    let arm = &mut scenario.arms[1];
    (arm.command, arm.optional) = (Some("no-such-program {port}".into()), true);
    scenario.check(&TABLES).unwrap();
}

#[test]
fn programs_join_every_variant_under_names_of_their_own() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/ping.toml");
    let mut ping = Scenario::load(Path::new(file)).unwrap();
    ping.race_also(&["sh a {interface}".into(), "sh a {address}".into()]);
    ping.check(&TABLES).unwrap();
    for (variant, race) in ping.races(&[]).unwrap() {
        let names: Vec<&str> = race.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert!(names.starts_with(&["kernel"]), "{variant}: {names:?}");
        assert!(names.ends_with(&["sh a", "sh a 2"]), "{variant}: {names:?}");
    }
}

const RULE: &str =
    "flow create 0 ingress pattern eth / ipv4 / udp / end actions queue index 0 / end";

/// A race of forwarders.
fn forwarders() -> Scenario {
    let mut scenario = scenario();
    scenario.app = "forward".into();
    scenario.arms[0].lane = "dpdk:net_tap".into();
    scenario.arms[1].plant = Plant::None;
    scenario.goals.clear();
    scenario.arguments = ["--mode", "io", "--rule", RULE].map(str::to_owned).into();
    scenario
}

#[test]
fn a_race_of_forwarders_has_arguments_and_peers_of_its_own() {
    let mut scenario = forwarders();
    scenario.arms[1].peer = Some(Peer::Bridge);
    scenario.arms[1].arguments = Some(Vec::new());
    scenario.check(&TABLES).unwrap();
    assert_eq!(scenario.arguments_of(&scenario.arms[0]).len(), 4);
    assert!(scenario.arguments_of(&scenario.arms[1]).is_empty());
    let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(again, scenario);
    type Change = fn(&mut Scenario);
    let changes: [(Change, &str); 12] = [
        (|s| s.quick.generations = 0, "generations"),
        (|s| s.app = "features".into(), "unexpected argument '--mode'"),
        (|s| s.app = "foward".into(), "did you mean `forward`"),
        (|s| s.payload_bytes = Some(64), "one of them"),
        (|s| s.arguments[1] = "macswap".into(), "only mode io leaves it there"),
        (|s| s.arguments[1] = "l2".into(), "do not send every frame on"),
        (|s| s.arguments[3] += " / end", "arguments"),
        (
            |s| s.arms[1].arguments = Some(vec!["--rule".into(), "flow flash 0".into()]),
            "flow flash 0",
        ),
        (|s| s.arms[1].plant = Plant::Slow { share: 0.1 }, "plant"),
        (|s| s.quick.segment_ms = 20_000_000, "the number of frames"),
        (|s| s.arms[1].lane = "dpdk:net_memif".into(), "add `,role=server`"),
        (
            |s| (s.arms[1].peer, s.arms[1].lane) = (Some(Peer::Testpmd), "net_tap:rxq=0".into()),
            "rxq= of dpdk-testpmd",
        ),
    ];
    for (change, part) in changes {
        let mut scenario = forwarders();
        change(&mut scenario);
        let sentence = scenario.check(&TABLES).expect_err(part).to_string();
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
}

#[test]
fn an_arm_with_arguments_has_them_in_its_name() {
    let mut scenario = scenario();
    scenario.arguments = vec!["--drop".into()];
    scenario.arms[1].arguments = Some(["--drop", "-o", "none"].map(str::to_owned).into());
    scenario.goals.clear();
    scenario.check(&TABLES).unwrap();
    let names: Vec<&str> = scenario.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["packet --drop", "xdp --drop -o none"]);
}

#[test]
fn a_goal_without_a_load_is_one_at_saturation_and_a_claim_is_no_goal() {
    let mut scenario = scenario();
    let test = Goal { load_pps: None, ..scenario.goals[0].clone() };
    assert!(test.sentence().contains("at the saturating load"), "{}", test.sentence());
    scenario.claims.push(Claim {
        says: "it is cheap".into(),
        then: None,
        note: String::new(),
        variant: None,
        answer: Answer::Race(test),
    });
    let refused = scenario.check(&TABLES).unwrap_err().to_string();
    assert!(refused.contains("saturate = true"), "{refused}");
    scenario.full.saturate = true;
    scenario.check(&TABLES).unwrap();
    let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(again, scenario);
    scenario.race_these(&["packet".into()]);
    assert!(scenario.claims.is_empty(), "its arm is gone");
}

#[test]
fn other_arms_take_the_place_of_the_scenarios() {
    let mut scenario = scenario();
    scenario.race_these(&["xdp".into(), "afxdp:copy".into()]);
    let names: Vec<&str> = scenario.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!((names, scenario.goals.len()), (vec!["xdp", "afxdp:copy"], 0));
    assert_eq!(scenario.arms[0].note, "n");
}
