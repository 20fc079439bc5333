//! App `kv` as a row of the table of apps: one worker's streams, the data in its memory.

use crate::data::Store;
use crate::file_log::recover;
use crate::get::{Allowed, cache::CacheSetup};
use crate::serve::{Config, Kv, Setup};
use laneway_core::LaneError;
use laneway_journal::Policy;
use laneway_kinds::{
    AppFacts, AppKind, Asks, Conclude, Counted, FateReport, LaneFacts, Metric, NoApp, Place,
    Protocol, RaceFacts, Report, RunReport, Service, Shape, Traffic,
};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
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
    /// Where GET is served over UDP, if it is.
    pub udp: Option<Udp>,
    /// Where writes are logged, and when they are made durable.
    pub log: Option<(PathBuf, Policy)>,
}

/// GET over UDP.
#[derive(Clone, Debug)]
pub struct Udp {
    /// The addresses that are asked.
    pub listen: Vec<SocketAddr>,
    /// Who may ask beside this machine.
    pub allowed: Allowed,
    /// What the kernel half answers from, on a lane that runs one.
    pub cache: Option<CacheSetup>,
}

/// What a worker leaves behind.
#[derive(Clone, Debug, Default)]
pub struct KvReport {
    /// Connections, by how they ended.
    pub connections: FateReport,
    /// Datagrams and frames in the kernel, by what became of them; empty if none were served.
    pub datagrams: FateReport,
}

impl Report for KvReport {
    fn merge(&mut self, other: &KvReport) {
        self.connections.merge(&other.connections);
        self.datagrams.merge(&other.datagrams);
    }
}

impl AppKind for KvKind {
    const FACTS: AppFacts = AppFacts {
        name: "kv",
        about: "a key-value store that speaks Redis's protocol",
        race: RaceFacts {
            traffic: &[Traffic::Tcp(Protocol::Resp)],
            counted: Counted::Answered,
            ports: 1,
            metrics: &[Metric::RttP50, Metric::RttP99, Metric::Rate, Metric::Cpu, Metric::Loss],
            peers: &[],
        },
    };
    type Run = KvRun;
    type Report = KvReport;
    type Frames = NoApp;
    type Datagrams = NoApp;
    type Streams = Kv;
    type Kernel = NoApp;

    /// Where the lane runs a half in the kernel, the connections are those of the kernel's sockets behind it.
    fn shape(_run: &KvRun, lane: &LaneFacts) -> Result<Shape, LaneError> {
        Ok(if lane.carries.has(Shape::Kernel) { Shape::Kernel } else { Shape::Streams })
    }

    fn asks(run: &KvRun) -> Asks {
        let datagrams = run.udp.as_ref().map(|udp| udp.listen.clone()).unwrap_or_default();
        Asks { service: run.service.clone(), datagrams, keeps_flows: true, never_transmits: false }
    }

    fn streams(run: &KvRun, place: Place<'_>) -> Result<Kv, LaneError> {
        let mut kv = Kv::new(Setup {
            config: run.config.clone(),
            password: run.password.clone(),
            store: Store::default(),
            now_us: Box::new(now_us),
            run_id: run_id(),
        });
        if let Some(Udp { allowed, cache, .. }) = &run.udp {
            kv.serve_datagrams(allowed.clone(), cache.clone());
        }
        if let Some((folder, policy)) = &run.log {
            recover(&mut kv, folder, *policy, Some(place.bell.clone())).map_err(|error| {
                LaneError::Input {
                    lane: Self::FACTS.name.to_owned(),
                    name: folder.display().to_string(),
                    why: error.to_string(),
                }
            })?;
        }
        Ok(kv)
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

impl Conclude<KvReport> for Kv {
    fn conclude(self, _run: &RunReport) -> KvReport {
        let (accepted, failed) = self.connections();
        let connections = vec![("ended_well", accepted - failed), ("ended_in_error", failed)];
        KvReport {
            connections: FateReport { fates: connections },
            datagrams: FateReport { fates: self.datagrams() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_core::Bell;

    #[test]
    fn what_was_logged_is_there_again_at_the_next_start() {
        let folder = std::env::temp_dir().join(format!("laneway-kv-{}", run_id()));
        let run = KvRun {
            service: Service::default(),
            config: Config::default(),
            password: None,
            udp: None,
            log: Some((folder.clone(), Policy::Always)),
        };
        let bell = Bell::new().expect("a descriptor");
        let place = || Place {
            worker: 0,
            workers: 1,
            interfaces: &[],
            ifindexes: &[],
            caps: &[],
            bell: &bell,
        };
        let first = KvKind::streams(&run, place()).expect("a new folder");
        let second = KvKind::streams(&run, place()).map(|_| ());
        let why = second.expect_err("one server at a time").to_string();
        assert!(why.contains("is in use by another server"), "{why}");
        let said = crate::serve::answer(first, &[b"SET", b"k", b"v"]);
        assert_eq!(said, "+OK\r\n");
        let again = KvKind::streams(&run, place()).expect("the same folder");
        assert_eq!(crate::serve::answer(again, &[b"GET", b"k"]), "$1\r\nv\r\n");
        std::fs::remove_dir_all(folder).expect("it was made here");
    }
}
