//! The responder on a simulated link that loses, doubles and reorders: every request that arrives is
//! answered once, and is answered whole.

use crate::{
    build::{Ping4, ping4},
    rows::responder,
};
use laneway_core::{App, Burst, Counters, DropReason, FrameApp, Lane, PortId, Turn};
use laneway_echo::{Config, Echo, Fate, Limits, Rate, TTL_DEFAULT};
use laneway_engine::{Control, run_frames};
use laneway_sim::{Arrival, Direction, Link, SimLane};
use laneway_spec::IdlePolicy;
use std::collections::BTreeMap;

const PORT: PortId = PortId(0);
/// Where the number of a ping lies in its frame.
const NUMBER_AT: usize = 40;

/// The app, and how often it received each number.
struct Watched {
    echo: Echo,
    seen: BTreeMap<u16, usize>,
}

fn number(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[NUMBER_AT], frame[NUMBER_AT + 1]])
}

impl App for Watched {
    fn counters(&self) -> &Counters {
        self.echo.counters()
    }
}

impl FrameApp for Watched {
    fn on_burst(&mut self, port: PortId, burst: &mut Burst, turn: Turn) {
        for i in 0..burst.len() {
            *self.seen.entry(number(burst.frame(i).bytes)).or_default() += 1;
        }
        self.echo.on_burst(port, burst, turn);
    }
}

fn ask(number: u16) -> Ping4 {
    ping4().with(|p| p.number = number)
}

/// Sends `count` pings, one every `interval_ns`, over a rough link; the way back is smooth.
fn ping(
    spec: &str,
    config: &Config,
    count: u16,
    interval_ns: u64,
) -> (Watched, Vec<Arrival>, Counters) {
    let (mut lane, world) = SimLane::open(&spec.parse().expect("well formed"), 1).expect("valid");
    let rough = world.link(PORT, Direction::FromLane);
    let smooth = Link { loss: 0.0, duplicate: 0.0, reorder: 0.0, ..rough };
    world.set_link(PORT, Direction::FromLane, smooth);
    for i in 0..count {
        world.inject_at(PORT, u64::from(i) * interval_ns, &ask(i).frame());
    }
    world.finish();
    let echo = Echo::new(config).unwrap_or_else(|e| panic!("{e}"));
    let mut app = Watched { echo, seen: BTreeMap::new() };
    let clock = world.clock();
    run_frames(&mut lane, &mut app, &clock, IdlePolicy::Block, &Control::default())
        .unwrap_or_else(|e| panic!("{}", e.error));
    world.advance_to(u64::from(count) * interval_ns + 10_000_000_000);
    let replies = world.collect(PORT);
    (app, replies, lane.counters(PORT))
}

#[test]
fn every_request_that_arrives_is_answered_once() {
    for seed in 1..=8 {
        let spec = format!("sim:seed={seed},loss=0.1,dup=0.1,reorder=0.2,delay_us=50,jitter_us=40");
        let (app, replies, counters) = ping(&spec, &responder(), 2000, 10_000);
        let mut answered = BTreeMap::new();
        for reply in &replies {
            let number = number(&reply.bytes);
            assert_eq!(reply.bytes, ask(number).reply(TTL_DEFAULT), "seed {seed}");
            *answered.entry(number).or_insert(0) += 1;
        }
        assert_eq!(answered, app.seen, "seed {seed}");
        assert!(app.seen.len() < 2000 && app.seen.values().any(|&n| n == 2), "seed {seed}");
        let app = app.counters();
        assert_eq!((app.rx_frames, app.tx_frames), (counters.rx_frames, counters.tx_frames));
        assert_eq!(app.tx_bytes, counters.tx_bytes);
    }
}

#[test]
fn requests_beyond_the_limit_are_dropped_under_its_name_and_the_ledger_closes() {
    let limits = Limits {
        per_source: Some(Rate { per_second: 100, burst: 10 }),
        global: None,
        sources_max: 16,
    };
    let config = Config { limits, ..responder() };
    // A second at ten times the rate.
    let (app, replies, _) = ping("sim", &config, 1000, 1_000_000);
    assert_eq!(replies.len(), 10 + 99);
    let dropped = app.counters().drops(DropReason::RateLimited);
    assert_eq!(dropped, 1000 - replies.len() as u64);
    assert_eq!(app.echo.fates().of(Fate::DroppedSourceLimit), dropped);
    assert_eq!(app.counters().lost(), 0, "asked for, so no loss");
}
