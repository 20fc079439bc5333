//! App `kv` as a row of the table of apps: streams, and the data in the memory of the worker, or of several by their
//! keys.

use crate::data::Store;
use crate::file_log::{prepare_folders, recover, shard_folder};
use crate::get::{Allowed, cache::CacheSetup};
use crate::serve::{Config, Exchange, Kv, Setup, slot_of};
use crate::tls::TlsRun;
use crate::upstream::{Upstream, UpstreamSettings};
use laneway_core::LaneError;
use laneway_journal::Policy;
use laneway_kinds::{
    AppFacts, AppKind, Asks, Conclude, Counted, FateReport, LaneFacts, Metric, NoApp, Place,
    Protocol, RaceFacts, Report, RunReport, Service, Shape, Traffic,
};
use laneway_terminal as terminal;
use laneway_tls::{Counts, Reason, Tls};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::OnceLock;
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
    /// What has become of the workers' folders: the first worker has all of them there before any opens its log.
    pub folders: OnceLock<Result<(), String>>,
    /// Values that memory has no room for go to a value store beside the log.
    pub spills: bool,
    /// The queues between the workers, if there are several.
    pub exchange: Option<Exchange>,
    /// TLS of the last ports, if some speak it.
    pub tls: Option<TlsRun>,
    /// The cluster that has the data, if they are not the store's own.
    pub upstream: Option<UpstreamSettings>,
}

impl KvRun {
    /// Ports that speak no TLS; they are the first.
    pub(crate) fn plain_ports(&self) -> usize {
        let all = self.service.listen.len();
        self.tls.as_ref().map_or(all, |tls| tls.settings.first_port as usize)
    }
}

/// GET over UDP.
#[derive(Clone, Debug)]
pub struct Udp {
    /// The addresses that are asked.
    pub listen: Vec<SocketAddr>,
    /// The networks that may ask beside this machine.
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
    /// Why not all that was written is durable, where the log has failed.
    pub log_failed: Option<String>,
}

impl Report for KvReport {
    fn merge(&mut self, other: &KvReport) {
        self.connections.merge(&other.connections);
        self.datagrams.merge(&other.datagrams);
        if self.log_failed.is_none() {
            self.log_failed.clone_from(&other.log_failed);
        }
    }

    fn failure(&self) -> Option<LaneError> {
        let why = self.log_failed.clone()?;
        let name = KvKind::FACTS.name.to_owned();
        Some(LaneError::Input { lane: name, name: LOG.to_owned(), why })
    }
}

/// What has failed, in what a person reads.
const LOG: &str = "the log has failed";

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
    type Streams = Tls<Kv>;
    type Kernel = NoApp;

    /// Where the lane runs a half in the kernel, the connections are those of the kernel's sockets behind it.
    fn shape(_run: &KvRun, lane: &LaneFacts) -> Result<Shape, LaneError> {
        Ok(if lane.carries.has(Shape::Kernel) { Shape::Kernel } else { Shape::Streams })
    }

    fn asks(run: &KvRun) -> Asks {
        let datagrams = run.udp.as_ref().map(|udp| udp.listen.clone()).unwrap_or_default();
        Asks { service: run.service.clone(), datagrams, keeps_flows: true, ..Asks::default() }
    }

    fn streams(run: &KvRun, place: Place<'_>) -> Result<Tls<Kv>, LaneError> {
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
        if let Some(exchange) = &run.exchange {
            let seat = exchange.seat(place.worker, place.bell);
            kv.take_seat(seat.expect("a run has each of its workers once"));
        }
        if let Some((folder, policy)) = &run.log {
            let input = |why: String| LaneError::Input {
                lane: Self::FACTS.name.to_owned(),
                name: folder.display().to_string(),
                why,
            };
            let prepared = run.folders.get_or_init(|| prepare_folders(folder, place.workers));
            prepared.clone().map_err(input)?;
            let (own, shard) = shard_folder(folder, place.worker, place.workers);
            recover(&mut kv, &own, *policy, shard, Some(place.bell.clone()), run.spills)
                .map_err(input)?;
            // It goes on and answers reads, so its end may be far.
            kv.when_log_fails(|why| terminal::note(&format!("laneway: kv: {LOG}: {why}")));
        }
        if let Some(settings) = &run.upstream {
            let far = Upstream::start(settings, slot_of, place.bell.clone());
            let far = far.map_err(|error| LaneError::Input {
                lane: Self::FACTS.name.to_owned(),
                name: "the thread that asks the cluster".to_owned(),
                why: error.to_string(),
            })?;
            kv.join_cluster(Box::new(far), settings.bound_us);
        }
        let counts = Rc::new(Counts::default());
        if run.tls.is_some() {
            kv.join_tls(Rc::clone(&counts));
        }
        Ok(Tls::new(kv, run.tls.as_ref().map(|tls| tls.settings.clone()), counts))
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
        let mut connections = vec![("ended_well", accepted - failed), ("ended_in_error", failed)];
        if let Some(counts) = self.tls() {
            let unheard = Reason::ALL.into_iter().filter(|reason| reason.is_before_open());
            connections.extend(unheard.map(|reason| (reason.name(), counts.of(reason))));
        }
        KvReport {
            connections: FateReport { fates: connections },
            datagrams: FateReport { fates: self.datagrams() },
            log_failed: self.log_failed(),
        }
    }
}

#[cfg(test)]
mod tests;
