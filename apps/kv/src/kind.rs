//! App `kv` as a row of the table of apps: one worker's streams, the data in its memory.

use crate::data::Store;
use crate::serve::{Config, Kv, Setup};
use laneway_core::LaneError;
use laneway_kinds::{
    AppFacts, AppKind, Asks, Conclude, Counted, FateReport, LaneFacts, Metric, NoApp, Place,
    RaceFacts, RunReport, Service, Shape,
};
use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// The row.
#[derive(Debug)]
pub struct KvKind;

/// A run, checked.
#[derive(Debug)]
pub struct KvRun {
    /// Where it listens.
    pub service: Service,
    /// The server's configuration.
    pub config: Config,
    /// The default user's password.
    pub password: Option<String>,
}

impl AppKind for KvKind {
    const FACTS: AppFacts = AppFacts {
        name: "kv",
        about: "a key-value store that speaks Redis's protocol",
        race: RaceFacts {
            traffic: &[],
            counted: Counted::Answered,
            ports: 1,
            metrics: &[Metric::RttP50, Metric::RttP99, Metric::Rate, Metric::Cpu, Metric::Loss],
            peers: &[],
        },
    };
    type Run = KvRun;
    type Report = FateReport;
    type Frames = NoApp;
    type Datagrams = NoApp;
    type Streams = Kv;
    type Kernel = NoApp;

    fn shape(_run: &KvRun, _lane: &LaneFacts) -> Result<Shape, LaneError> {
        Ok(Shape::Streams)
    }

    fn asks(run: &KvRun) -> Asks {
        Asks { service: run.service.clone(), keeps_flows: true, never_transmits: false }
    }

    fn streams(run: &KvRun, _place: Place<'_>) -> Result<Kv, LaneError> {
        Ok(Kv::new(Setup {
            config: run.config.clone(),
            password: run.password.clone(),
            store: Store::default(),
            now_us: Box::new(now_us),
            run_id: run_id(),
        }))
    }
}

/// Microseconds since 1970: times of expiry outlive the server, so no other clock will do.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// 40 letters that no other run has.
fn run_id() -> String {
    let mut letters = String::new();
    while letters.len() < 40 {
        letters += &format!("{:016x}", RandomState::new().hash_one(now_us()));
    }
    letters.truncate(40);
    letters
}

impl Conclude<FateReport> for Kv {
    fn conclude(self, _run: &RunReport) -> FateReport {
        let (accepted, failed) = self.connections();
        FateReport { fates: vec![("ended_well", accepted - failed), ("ended_in_error", failed)] }
    }
}
