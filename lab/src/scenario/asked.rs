//! Tests of scenarios in which a client asks a store: of an app that speaks RESP, under any name.

use super::*;
use crate::tables::TablesOf;
use laneway_kinds::{Counted, Protocol};
use laneway_kinds::{LaneFacts, RaceFacts, Wiring};
use laneway_registry::{Apps, Lanes};

const TABLES: TablesOf<Apps, Lanes> = TablesOf::new();

/// The tables with one app more, which takes any arguments.
struct WithStore;

static KEEPER: AppFacts = AppFacts {
    name: "keeper",
    about: "keeps values for keys",
    race: RaceFacts { traffic: &[Traffic::Tcp(Protocol::Resp)], ..RaceFacts::HANDED },
};

impl Tables for WithStore {
    fn app(&self, name: &str) -> Result<&'static AppFacts, String> {
        if name == KEEPER.name { Ok(&KEEPER) } else { TABLES.app(name) }
    }

    fn check_arm(&self, app: &str, arguments: &[String], traffic: Traffic) -> Result<(), String> {
        match app == KEEPER.name {
            true => Ok(()),
            false => TABLES.check_arm(app, arguments, traffic),
        }
    }

    fn testpmd_mode(&self, app: &str, arguments: &[String]) -> Option<&'static str> {
        TABLES.testpmd_mode(app, arguments)
    }

    fn lane(&self, spec: &str) -> Result<(&'static LaneFacts, Wiring), String> {
        TABLES.lane(spec)
    }
}

fn scenario() -> Scenario {
    toml::from_str(
        r#"
        title = "t"
        app = "keeper"
        generator = "sockets"
        burst = 1
        late_p99_us_max = 100
        matters = 0.05
        arm_cpu = 0
        generator_cpu = 1
        seed = 1
        client = { connections = 10, in_flight = 16, request_bytes = [64, 64], store = { keys = 1000, get_share = 0.5 } }
        quick = { loads_pps = [500], own_share = 0.5, closed_loop = true, closed_requests = [1000, 9000], segment_ms = 100, time_s = 60, generations = 4 }
        full = { loads_pps = [], closed_loop = true, closed_requests = [90000], segment_ms = 100, time_s = 60, generations = 4 }
        [[variant]]
        name = "whole"
        [[variant]]
        name = "uncut"
        tso = true
        arms = ["socket", "redis-server:appendfsync=always"]
        [[arm]]
        lane = "socket"
        [[arm]]
        lane = "packet"
        [[arm]]
        peer = "redis-server"
        lane = "redis-server"
        [[arm]]
        peer = "redis-server"
        lane = "redis-server:appendfsync=always"
        [[goal]]
        metric = "replies per CPU-second"
        arm = "socket"
        over = "redis-server"
        requests = 1000
        at_least = 1.1
        [[claim]]
        says = "more is better"
        test = { metric = "records/s", arm = "socket", requests = 9000, over_requests = 1000, at_least = 1.0 }
        "#,
    )
    .unwrap()
}

#[test]
fn a_store_is_asked_for_values_beside_a_real_one() {
    let mut scenario = scenario();
    scenario.check(&WithStore).unwrap();
    let app = scenario.facts(&WithStore).unwrap();
    assert_eq!((app.race.counted, app.race.peers), (Counted::Answered, &[Peer::RedisServer][..]));
    let plan = scenario.traffic(&app).unwrap();
    let client = plan.client().unwrap();
    assert_eq!((client.protocol, client.store.unwrap().keys), (Protocol::Resp, 1_000));
    let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
    assert_eq!(again, scenario);
    let races = scenario.races(&[]).unwrap();
    assert_eq!(races.iter().map(|(_, race)| race.tso).collect::<Vec<_>>(), [false, true]);
    let uncut: Vec<&str> = races[1].1.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(uncut, ["socket", "redis-server:appendfsync=always"]);
    let claim = scenario.claims[0].sentence_of("", &[1_000, 9_000]);
    assert_eq!(
        claim,
        "records/s of socket in 9000 requests: at least 1 times that in 1000 requests"
    );
}

#[test]
fn what_does_not_fit_a_store_is_refused_by_name() {
    type Change = fn(&mut Scenario);
    let changes: [(Change, &str); 15] = [
        (|s| s.client.as_mut().unwrap().store = None, "client.store is missing"),
        (|s| s.client.as_mut().unwrap().request_bytes = [8, 64], "each 16 to 1048576"),
        (|s| s.quick.closed_requests = vec![9, 8], "closed_requests is [9, 8]"),
        (|s| s.quick.closed_requests = vec![500], "above the last load"),
        (|s| s.quick.closed_requests = vec![501], "above the last load"),
        (|s| s.quick.closed_loop = false, "give `closed_loop = true`"),
        (|s| s.full.own_share = Some(f64::NAN), "own_share is NaN"),
        (|s| s.full.own_share = Some(1.5), "a share from 0.05 to 1"),
        (
            |s| (s.quick.closed_loop, s.quick.closed_requests) = (false, Vec::new()),
            "own_share is 0.5; it is a share of what an arm answers in a closed loop",
        ),
        (|s| s.variants[1].arms.push("packet".into()), "tso with arm `packet`"),
        (|s| s.arms[2].lane = "redis-server:save=1".into(), "its one knob is appendfsync="),
        (|s| s.arms[2].peer = Some(Peer::Testpmd), "its peers are redis-server"),
        (|s| s.app = "echo".into(), "client.store is given"),
        (|s| s.app = "relay".into(), "take `[client]` out"),
        (|s| (s.client, s.tso) = (None, true), "the traffic of app keeper"),
    ];
    for (change, part) in changes {
        let mut scenario = scenario();
        change(&mut scenario);
        let sentence = scenario.check(&WithStore).expect_err(part).to_string();
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
    let text = toml::to_string(&scenario()).unwrap().replace("load_pps = 9000", "load_pps = 9001");
    let sentence = Scenario::read(&text, "s.toml", Path::new(".")).unwrap_err().to_string();
    assert!(sentence.contains("9001") && sentence.contains("closed_requests"), "{sentence}");
}
