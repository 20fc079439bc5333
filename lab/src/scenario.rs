//! A scenario: a TOML file that fully describes a race.

mod arithmetic;
mod demands;

pub use arithmetic::Arithmetic;
pub use demands::{Answer, Claim, Goal};

use crate::arrivals::ARRIVALS_MAX;
use crate::bench::{ECHO, GENERATOR, SERVICE, SUT};
use crate::child::redis_knobs;
use crate::client::{ClientPlan, Store};
use crate::command::{CommandLine, Task, find, name_of};
use crate::copies;
use crate::fanout::{Fanout, FanoutPlan};
use crate::ping::PINGS_MAX;
use crate::plan::{Plant, SEGMENTS_MAX};
use crate::replies::REQUESTS_MAX;
use crate::tables::Tables;
use crate::testpmd::{DEVICES, Device, is_tap};
use crate::timetable::{Spacing, Times};
use crate::traffic::{
    FRAME_BYTES_MAX, FRAME_BYTES_UNTAGGED_MAX, PAYLOAD_BYTES, Payloads, TrafficPlan,
};
use crate::wire;
use laneway_kinds::{AppFacts, Counted, Peer, Protocol, Shape, Traffic};
use laneway_spec::LaneSpec;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Most arms of a race, the noise floor not counted. A scenario may have more, for variants that have some of them.
pub const ARMS_MAX: usize = 16;
/// Most loads: each may be offered four times in a trial.
pub const LOADS_MAX: usize = SEGMENTS_MAX / 4;
/// Longest segment, ms.
const SEGMENT_MS_MAX: u64 = 600_000;
/// Shortest segment, ms: beside it, what comes before and after each is not to be most of a race.
const SEGMENT_MS_MIN: u64 = 20;
/// Longest race, s, and most generations of it.
const TIME_S_MAX: u64 = 86_400;
const GENERATIONS_MAX: usize = 1_000;
/// Most rounds of a generation.
pub(crate) const ROUNDS_MAX: usize = laneway_stats::limits::PAIRS_PER_GENERATION_MAX;
/// Highest load: what the schedule's nanoseconds can tell apart.
const LOAD_PPS_MAX: u64 = 100_000_000;
/// Most requests of a closed loop.
const CLOSED_REQUESTS_MAX: u64 = 100_000_000;

/// The generator of a scenario in which a client asks.
const SOCKETS: &str = "sockets";

/// What the name of an arm must hold that is traced while it is measured, raced alone, or has no limited output.
const TRACED: &str = "traced";
const ALONE: &str = "alone";
const UNLIMITED: &str = "unlimited";

/// Share of one CPU that everything but arm, generator and kernel may take, unless said otherwise.
pub(crate) const OTHERS_MAX: f64 = 0.1;
/// Most steps of a capacity search: beyond it they are closer together than loss is certain.
const CAPACITY_STEPS_MAX: u32 = 16;
/// Most trials of a rate.
const CAPACITY_TRIALS_MAX: u32 = 20;
/// Highest load that pings are sent beside, requests per second: the generator's CPU is ping's, too.
const PING_LOAD_PPS_MAX: u64 = 200_000;
/// Longest pause between two pings, us.
const PING_INTERVAL_US_MAX: u32 = 1_000_000;

/// A race, described.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is about, in a line.
    pub title: String,
    /// Name of the app raced.
    pub app: String,
    /// What the app is told beyond where it is, as on the command line of `run`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// The capture replayed; a relative path counts from the scenario's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<PathBuf>,
    /// Payload of the UDP frames, or of the echo requests, that are made and sent instead, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u16>,
    /// In its place, of UDP frames: a mix of sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    /// Instead of all these a client asks over TCP connections, and this is what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Asks>,
    /// Its datagrams go to multicast groups, each is to be copied to several outputs, and this is to how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fanout: Option<Fanout>,
    /// How arrivals follow one another: `steady`, `poisson`, or as in the `capture`.
    #[serde(default, skip_serializing_if = "is_steady")]
    pub arrivals: Spacing,
    /// How frames enter the wire: `live` (XDP live frames), or the spec of a lane that transmits. Of a client: `sockets`.
    pub generator: String,
    /// Frames per burst; of requests whose replies are counted, the most: they are sent one by one up to 50,000/s,
    /// and in bursts that grow with the rate beyond.
    pub burst: u32,
    /// Largest p99 of the generator's lateness, us; beyond it a segment is not used.
    pub late_p99_us_max: u64,
    /// Largest share of one CPU that programs which are no part of the race may use; beyond it a
    /// segment is not used.
    #[serde(default = "others_max")]
    pub others_max: f64,
    /// The smallest relative difference that matters: the threshold of every verdict on a ratio.
    pub matters: f64,
    /// CPU of the arm's worker and of the receive stack of its interface.
    pub arm_cpu: usize,
    /// CPU of the generator.
    pub generator_cpu: usize,
    /// TCP segments of up to 64 KiB leave the arm's end of its cable uncut (TSO), for arms whose TCP is the kernel's. The
    /// cable has no threads for them at the client's end: they are received in softirqs that are sent to its CPU (RPS).
    #[serde(default, skip_serializing_if = "is_false")]
    pub tso: bool,
    /// CPU of the receive stack at the generator's end of the cables, in threads of its own. None: what comes out of an
    /// arm is received in a softirq of whoever sends it, so on the arm's CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_napi_cpu: Option<usize>,
    /// Seed of the order of the arms.
    pub seed: u64,
    /// Whose sentences the claims are, and where they stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims_of: Option<String>,
    /// The short version.
    pub quick: Extent,
    /// The long version.
    pub full: Extent,
    /// What is measured without an offered load, of an app whose replies are counted, and only of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingPlan>,
    /// Has the thread that receives for the arm (threaded NAPI) run before the arm's own tasks (SCHED_FIFO), as a softirq
    /// would on a machine whose cables have interrupts. Else the scheduler lets one of them wait for the other, for 2 ms
    /// and more, and the ring in front of the arm overflows meanwhile.
    #[serde(default, skip_serializing_if = "is_false")]
    pub napi_first: bool,
    /// A search for the highest rate that each arm carries, of any other app that is sent packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityPlan>,
    /// The arms; the first is the base of every comparison and runs twice, for the noise floor.
    #[serde(rename = "arm")]
    pub arms: Vec<ArmPlan>,
    /// What is demanded.
    #[serde(rename = "goal", default)]
    pub goals: Vec<Goal>,
    /// What somebody says, put to the test: the answer is a result, whichever it is.
    #[serde(rename = "claim", default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
    /// The same race with another app or payload, each with a result of its own, so that every
    /// comparison is of like with like; none: the scenario as it stands.
    #[serde(rename = "variant", default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// Sizes of UDP frames that are not all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// Of twelve frames seven have 64 bytes, four 594 and one 1518, the frame check sequence included.
    Imix,
}

/// A race of the same arms with something changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Its name, also of its folder: a-z, 0-9 and `-`.
    pub name: String,
    /// The app, if another.
    pub app: Option<String>,
    /// The payload, if another.
    pub payload_bytes: Option<u16>,
    /// A mix of sizes, in place of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    /// How arrivals follow one another, if otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Spacing>,
    /// What a client asks, if otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Asks>,
    /// What is copied where, if otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fanout: Option<Fanout>,
    /// Frames per burst, if otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// How frames enter the wire, if otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<String>,
    /// Whether TCP segments leave the arm uncut, if otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tso: Option<bool>,
    /// Whether the thread that receives for the arm runs before its tasks, if otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_first: Option<bool>,
    /// Names of the arms that run; none given: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<String>,
    /// The short version, if another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<Extent>,
    /// The long version, if another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<Extent>,
    /// What is measured without a load, if otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingPlan>,
    /// How capacities are searched, if otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityPlan>,
}

/// What a client asks over TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asks {
    /// How many connections it has.
    pub connections: u32,
    /// Requests outstanding on each at most: its depth of pipeline.
    #[serde(default = "one")]
    pub in_flight: u32,
    /// The shortest and the longest request, of a store the shortest and the longest value, bytes; the length of each is
    /// drawn between the two, both included.
    pub request_bytes: [u32; 2],
    /// Of an app that keeps values for keys: what is set and got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
    /// How long answers are waited for behind a segment's last request, ms.
    #[serde(default = "second")]
    pub timeout_ms: u32,
}

fn one() -> u32 {
    1
}

fn second() -> u32 {
    1_000
}

/// What a race of pings measures beside its loads, in every trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingPlan {
    /// Pings of the machine's own `ping`, the same for every arm; 0: none.
    pub pings: u32,
    /// Between two of them, us.
    pub ping_interval_us: u32,
    /// As many pings again while so many requests per second are offered; 0: none.
    #[serde(default)]
    pub ping_load_pps: u64,
    /// The loss up to which a rate counts as carried, a share.
    pub loss_max: f64,
    /// Where the capacity is searched, requests per second.
    pub capacity_pps: [u64; 2],
    /// Rates asked per search; 0: none is made.
    pub capacity_steps: u32,
    /// How long each is offered, ms.
    pub capacity_ms: u64,
}

/// How capacities are searched: by bisection, once in a generation, of every arm that says what it received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapacityPlan {
    /// Where, offered packets per second.
    pub pps: [u64; 2],
    /// The loss up to which a rate counts as carried, a share. The rate without any is searched beside it.
    #[serde(default = "thousandth")]
    pub loss_max: f64,
    /// Rates asked per search.
    pub steps: u32,
    /// How long a trial of a rate is, ms.
    pub ms: u64,
    /// Trials of a rate, all of which must carry it.
    #[serde(default = "five")]
    pub trials: u32,
}

fn thousandth() -> f64 {
    0.001
}

fn five() -> u32 {
    5
}

/// How much is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    /// Offered loads, frames per second, rising.
    pub loads_pps: Vec<u64>,
    /// Offer one more beyond them: a step below the highest rate that the generator keeps against every arm, found
    /// out before the first block. What an arm takes of it is what it can do, if it is less.
    #[serde(default, skip_serializing_if = "is_false")]
    pub saturate: bool,
    /// Instead: offer one more beyond them that is no schedule. Every arm is sent the same number of
    /// frames, as fast as the generator can beside it. For rate, loss and CPU time where the replies take
    /// the generator's CPU, so that it keeps no rate that saturates; of latency it says nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub topspeed: bool,
    /// Instead, where a client asks: offer one more that is a closed loop. Each connection has as many requests
    /// outstanding as it may, and asks the next when one was answered. `loads_pps` may then be empty.
    #[serde(default, skip_serializing_if = "is_false")]
    pub closed_loop: bool,
    /// Of that one: in its place one for each of these, rising, which ends when so many requests were due over all
    /// connections, however long that takes, unless nothing is answered any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed_requests: Vec<u64>,
    /// Length of a segment, ms.
    pub segment_ms: u64,
    /// How long arms are measured at most, s: the race ends earlier when every verdict is decided.
    pub time_s: u64,
    /// Generations of fresh processes that this time is divided among.
    pub generations: usize,
    /// Instead of a time: so many rounds in each generation, and every generation, whatever is decided by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<usize>,
}

/// An arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmPlan {
    /// Its name in tables; if left out, the lane spec and the arguments, or the program's.
    #[serde(default)]
    pub name: String,
    /// Lane spec; of a peer, the device it is given. Empty where a command stands in its place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lane: String,
    /// In its place the command line of a program of anybody's, in which `{address}` and the like are filled in; no
    /// shell is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// False for a program that receives and does not say how much: what it delivered is unknown, its CPU time is per
    /// offered packet, and it has no rate, no loss and no capacity. Of no meaning where its packets come out again.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub counts: bool,
    /// Somebody else's program instead of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    /// Left out, with the reason in the notes, where this machine cannot open it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
    /// Run in the long version only, or where it is asked for by name.
    #[serde(default, skip_serializing_if = "is_false")]
    pub full_only: bool,
    /// What becomes of a frame after it was looked at, and whatever else a reader must know.
    #[serde(default)]
    pub note: String,
    /// What the app is told, in place of the scenario's `arguments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Vec<String>>,
    /// A fault to be found.
    #[serde(default, skip_serializing_if = "is_honest")]
    pub plant: Plant,
    /// Traced by our own tracer while it is measured: beside the same arm without, what the tracer costs. Its name
    /// says so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub trace: bool,
    /// Raced while no other arm is alive, in the same generation and as many rounds as those that are alive together
    /// and parked in turn: beside the same arm among them, what parking changes. Its name says so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub alone: bool,
    /// Of a fan-out with `limit_mbit`: this arm has the same outputs, and none of them is limited. Beside the same arm
    /// with the limit, what a slow output costs the others. Its name says so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unlimited: bool,
}

impl ArmPlan {
    /// An arm on this lane, or with this command line.
    fn plain(lane: &str, command: Option<&str>) -> ArmPlan {
        ArmPlan {
            name: String::new(),
            lane: lane.to_owned(),
            command: command.map(str::to_owned),
            counts: true,
            peer: None,
            optional: false,
            full_only: false,
            note: String::new(),
            arguments: None,
            plant: Plant::None,
            trace: false,
            alone: false,
            unlimited: false,
        }
    }

    /// Whose program it is, if it is none of ours.
    pub(crate) fn program(&self) -> Option<Peer> {
        self.command.as_ref().map_or(self.peer, |_| Some(Peer::Command))
    }

    /// Its lane, the device of a peer, or its command line.
    pub(crate) fn what(&self) -> &str {
        self.command.as_deref().unwrap_or(&self.lane)
    }
}

fn others_max() -> f64 {
    OTHERS_MAX
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_steady(spacing: &Spacing) -> bool {
    *spacing == Spacing::Steady
}

fn is_honest(plant: &Plant) -> bool {
    *plant == Plant::None
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_true(value: &bool) -> bool {
    *value
}

fn yes() -> bool {
    true
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("scenario {path}: {source}; give a scenario file, or the name of a shipped one")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is no scenario.
    #[error("scenario {path}: {why}")]
    Parse {
        /// The file.
        path: String,
        /// Where and what.
        why: String,
    },
    /// A value that cannot be.
    #[error("scenario: {what} is {value}; {hint}")]
    Value {
        /// Which.
        what: String,
        /// As given.
        value: String,
        /// What it may be.
        hint: String,
    },
}

fn value(what: impl Into<String>, value: impl ToString, hint: impl Into<String>) -> ScenarioError {
    ScenarioError::Value { what: what.into(), value: value.to_string(), hint: hint.into() }
}

impl Scenario {
    /// Reads a file; a relative capture path is resolved against its folder.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn load(path: &Path) -> Result<Scenario, ScenarioError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: name.clone(), source })?;
        Scenario::read(&text, &name, path.parent().unwrap_or_else(|| Path::new(".")))
    }

    /// Reads a text; a relative capture path is resolved against `folder`. A claim is checked here, where it has a
    /// line; all else when it is known what of it will run.
    ///
    /// # Errors
    /// [`ScenarioError::Parse`], which says where in `name`.
    pub fn read(text: &str, name: &str, folder: &Path) -> Result<Scenario, ScenarioError> {
        let refused = |why: String| ScenarioError::Parse { path: name.to_owned(), why };
        let mut scenario: Scenario = toml::from_str(text).map_err(|error| {
            refused(demands::wrong_claim(text).unwrap_or_else(|| error.to_string()))
        })?;
        scenario.name_arms();
        if let Some((claim, why)) = scenario.stray_claim() {
            let line = demands::line_of_claim(text, claim);
            let says = &scenario.claims[claim].says;
            return Err(refused(format!("line {line}, the claim `{says}`: {why}")));
        }
        if let Some(capture) = scenario.capture.as_mut().filter(|capture| capture.is_relative()) {
            *capture = folder.join(&capture);
        }
        Ok(scenario)
    }

    /// The races that this scenario describes, each under the name of its variant: of those in
    /// `only`, or of all if that is empty. One without a name if there are no variants.
    ///
    /// # Errors
    /// For a name that no variant has.
    pub fn races(&self, only: &[String]) -> Result<Vec<(String, Scenario)>, ScenarioError> {
        let names: Vec<&str> = self.variants.iter().map(|variant| variant.name.as_str()).collect();
        if let Some(stranger) = only.iter().find(|name| !names.contains(&name.as_str())) {
            let hint = match names.as_slice() {
                [] => "this scenario has none".to_owned(),
                names => format!("the variants are {}", names.join(", ")),
            };
            return Err(value("a variant", stranger, hint));
        }
        let is_wanted = |variant: &&Variant| only.is_empty() || only.contains(&variant.name);
        let mut races: Vec<(String, Scenario)> = Vec::new();
        for variant in self.variants.iter().filter(is_wanted) {
            let mut race = Scenario { variants: Vec::new(), ..self.clone() };
            race.title = format!("{}: {}", self.title, variant.name);
            race.app.clone_from(variant.app.as_ref().unwrap_or(&self.app));
            // What a variant says of sizes takes the place of all that the scenario does.
            if variant.payload_bytes.is_some() || variant.sizes.is_some() {
                (race.payload_bytes, race.sizes) = (variant.payload_bytes, variant.sizes);
            }
            race.arrivals = variant.arrivals.unwrap_or(self.arrivals);
            race.client = variant.client.or(self.client);
            race.fanout = variant.fanout.or(self.fanout);
            race.burst = variant.burst.unwrap_or(self.burst);
            race.tso = variant.tso.unwrap_or(self.tso);
            race.napi_first = variant.napi_first.unwrap_or(self.napi_first);
            race.generator.clone_from(variant.generator.as_ref().unwrap_or(&self.generator));
            race.quick.clone_from(variant.quick.as_ref().unwrap_or(&self.quick));
            race.full.clone_from(variant.full.as_ref().unwrap_or(&self.full));
            race.ping = variant.ping.clone().or_else(|| self.ping.clone());
            race.capacity = variant.capacity.clone().or_else(|| self.capacity.clone());
            race.keep_arms(&variant.arms)?;
            let is_of = |goal: &Goal| goal.variant.as_ref().is_none_or(|v| *v == variant.name);
            race.goals.retain(is_of);
            race.claims.retain(|claim| claim.is_of(&variant.name));
            races.push((variant.name.clone(), race));
        }
        if self.variants.is_empty() {
            races.push((String::new(), self.clone()));
        }
        Ok(races)
    }

    /// What is sent to this app.
    pub(crate) fn traffic(&self, app: &AppFacts) -> Result<TrafficPlan, ScenarioError> {
        let kind = self.traffic_kind(app)?;
        Ok(match (kind, &self.capture) {
            (Traffic::Capture { tagged }, Some(path)) => {
                let frame_bytes_max =
                    if tagged { FRAME_BYTES_MAX } else { FRAME_BYTES_UNTAGGED_MAX };
                TrafficPlan::Capture { path: path.clone(), frame_bytes_max }
            }
            (Traffic::Pings, _) => TrafficPlan::Ping {
                payload_bytes: self.payload_bytes.unwrap_or(0),
                source: *GENERATOR.ip(),
                destination: ECHO,
            },
            (Traffic::Tcp(protocol), _) => {
                let asks = self.client.expect("it makes the traffic what it is");
                TrafficPlan::Tcp(asks.plan(protocol, self.seed))
            }
            (Traffic::Fanout, _) => TrafficPlan::Fanout(FanoutPlan {
                fanout: self.fanout.expect("it makes the traffic what it is"),
                payload_bytes: self.payload_bytes.unwrap_or(0),
                run: self.burst,
                source: GENERATOR,
            }),
            _ => TrafficPlan::Udp {
                payloads: match self.sizes {
                    Some(Sizes::Imix) => Payloads::Imix,
                    None => Payloads::Fixed(self.payload_bytes.unwrap_or(0)),
                },
                source: GENERATOR,
                destination: SUT,
            },
        })
    }

    /// When that is due.
    pub(crate) fn times(&self, traffic: &TrafficPlan) -> Times {
        match (self.arrivals, traffic) {
            (Spacing::Poisson, _) => Times::Poisson { seed: self.seed },
            (Spacing::Capture, TrafficPlan::Capture { path, frame_bytes_max }) => {
                Times::Capture { path: path.clone(), frame_bytes_max: *frame_bytes_max }
            }
            (Spacing::Steady | Spacing::Capture, _) => Times::Steady,
        }
    }

    /// Which of an app's kinds of traffic this scenario has.
    fn traffic_kind(&self, app: &AppFacts) -> Result<Traffic, ScenarioError> {
        if let Some(sizes) = self.sizes {
            return self.mixed(sizes, app);
        }
        let kinds = app.race.traffic;
        if let Some(asks) = &self.client {
            return self.asked_kind(app, asks);
        }
        if let Some(fanout) = &self.fanout {
            return self.copied_kind(app, fanout);
        }
        if kinds == [Traffic::Fanout] {
            let hint = "give `[fanout]` with groups, outputs and cables";
            return Err(value(
                format!("the section `[fanout]` of app {}", app.name),
                "missing",
                hint,
            ));
        }
        let is_capture = |kind: &Traffic| matches!(kind, Traffic::Capture { .. });
        let capture = kinds.iter().copied().find(is_capture);
        let is_asked = |kind: &Traffic| matches!(kind, Traffic::Tcp(_) | Traffic::Fanout);
        let made = kinds.iter().copied().find(|kind| !is_capture(kind) && !is_asked(kind));
        let what = format!("the traffic of app {}", app.name);
        match (&self.capture, self.payload_bytes, capture, made) {
            (Some(_), None, Some(kind), _) => Ok(kind),
            (None, Some(bytes), _, Some(kind)) if PAYLOAD_BYTES.contains(&bytes) => Ok(kind),
            (None, Some(bytes), _, Some(_)) => {
                let hint = format!("{} to {}", PAYLOAD_BYTES.start(), PAYLOAD_BYTES.end());
                Err(value("payload_bytes", bytes, hint))
            }
            (_, _, Some(_), Some(_)) => {
                Err(value(what, "both or none", "give `capture` or `payload_bytes`, one of them"))
            }
            (_, _, Some(_), None) => {
                Err(value(what, "not a capture", "give `capture`, and no `payload_bytes`"))
            }
            (_, _, None, _) => {
                let hint = "give `payload_bytes`, and no `capture`: its frames are made here";
                Err(value(what, "a capture", hint))
            }
        }
    }

    /// The same of a mix of sizes.
    fn mixed(&self, sizes: Sizes, app: &AppFacts) -> Result<Traffic, ScenarioError> {
        let Sizes::Imix = sizes;
        if self.capture.is_some() || self.payload_bytes.is_some() {
            let hint = "give `sizes`, `payload_bytes` or `capture`, one of them";
            return Err(value("sizes", "imix", hint));
        }
        if !app.race.traffic.contains(&Traffic::Udp) {
            let hint = format!("app {} is not sent UDP made here: leave it out", app.name);
            return Err(value("sizes", "imix", hint));
        }
        Ok(Traffic::Udp)
    }

    /// The kind of traffic of a scenario with fan-out.
    fn copied_kind(&self, app: &AppFacts, fanout: &Fanout) -> Result<Traffic, ScenarioError> {
        if !app.race.traffic.contains(&Traffic::Fanout) {
            let hint = "this app is sent nothing to copy: take `[fanout]` out";
            return Err(value("app", app.name, hint));
        }
        fanout.check().map_err(|(what, is, hint)| value(format!("fanout.{what}"), is, hint))?;
        if self.capture.is_some() || self.sizes.is_some() || self.client.is_some() {
            let hint = "its datagrams are made here: leave `capture`, `sizes` and `[client]` out";
            return Err(value("the traffic of a scenario with `[fanout]`", "both", hint));
        }
        let hint = || format!("{} to {}", PAYLOAD_BYTES.start(), PAYLOAD_BYTES.end());
        match self.payload_bytes {
            Some(bytes) if PAYLOAD_BYTES.contains(&bytes) => Ok(Traffic::Fanout),
            Some(bytes) => Err(value("payload_bytes", bytes, hint())),
            None => Err(value("payload_bytes", "missing", hint())),
        }
    }

    /// The kind of traffic of a scenario with a client.
    fn asked_kind(&self, app: &AppFacts, asks: &Asks) -> Result<Traffic, ScenarioError> {
        let kind = app.race.traffic.iter().find_map(|&kind| match kind {
            Traffic::Tcp(protocol) => Some((kind, protocol)),
            Traffic::Capture { .. } | Traffic::Udp | Traffic::Pings | Traffic::Fanout => None,
        });
        let Some((kind, protocol)) = kind else {
            let hint = "nothing is asked of this app over connections: take `[client]` out";
            return Err(value("app", app.name, hint));
        };
        if self.capture.is_some() || self.payload_bytes.is_some() || self.sizes.is_some() {
            let hint =
                "a client makes its own requests: leave `capture`, `payload_bytes` and `sizes` out";
            return Err(value("the traffic of a scenario with `[client]`", "both", hint));
        }
        if self.generator != SOCKETS {
            let hint = format!("`{SOCKETS}`: a client asks over the kernel's");
            return Err(value("generator", &self.generator, hint));
        }
        let plan = asks.plan(protocol, self.seed);
        plan.check().map_err(|(what, is, hint)| value(format!("client.{what}"), is, hint))?;
        Ok(kind)
    }

    /// Puts other arms in place of the scenario's; the first is the base. An arm of the scenario
    /// that has the same lane spec or name keeps its name and note. Goals on arms that are gone go,
    /// too.
    pub fn race_these(&mut self, lanes: &[String]) {
        self.name_arms();
        let known = std::mem::take(&mut self.arms);
        self.arms = lanes
            .iter()
            .map(|lane| {
                let same = known.iter().find(|arm| arm.lane == *lane || arm.name == *lane);
                let same = same.map(|arm| ArmPlan { full_only: false, ..arm.clone() });
                same.unwrap_or_else(|| ArmPlan::plain(lane, None))
            })
            .collect();
        if let Some(base) = self.arms.first_mut() {
            base.optional = false;
        }
        // Other arms than the variants knew.
        self.variants.iter_mut().for_each(|variant| variant.arms.clear());
        self.name_arms();
        let has = |name: &String| self.arms.iter().any(|arm| arm.name == *name);
        self.goals.retain(|goal| goal.runs(has));
        self.claims.retain(|claim| claim.runs(has));
    }

    /// Adds arms that are programs, by their command lines, in every variant.
    pub fn race_also(&mut self, commands: &[String]) {
        self.add_programs(commands, true);
    }

    /// The same of programs that receive and do not say how much.
    pub fn race_uncounted(&mut self, commands: &[String]) {
        self.add_programs(commands, false);
    }

    fn add_programs(&mut self, commands: &[String], counts: bool) {
        self.name_arms();
        for command in commands {
            let mut arm = ArmPlan { counts, ..ArmPlan::plain("", Some(command)) };
            let name = name_of(command);
            let numbered = (2..).map(|number| format!("{name} {number}"));
            let mut names = std::iter::once(name.clone()).chain(numbered);
            let is_free = |name: &String| self.arms.iter().all(|arm| arm.name != *name);
            arm.name = names.find(is_free).expect("there are more names than arms");
            let lists = self.variants.iter_mut().map(|variant| &mut variant.arms);
            lists.filter(|names| !names.is_empty()).for_each(|names| names.push(arm.name.clone()));
            self.arms.push(arm);
        }
    }

    /// What the app of an arm is told.
    pub fn arguments_of<'a>(&'a self, arm: &'a ArmPlan) -> &'a [String] {
        arm.arguments.as_deref().unwrap_or(&self.arguments)
    }

    /// Keeps the arms of these names, and the demands on them; all, if there are none.
    fn keep_arms(&mut self, names: &[String]) -> Result<(), ScenarioError> {
        if names.is_empty() {
            return Ok(());
        }
        self.name_arms();
        let stranger = names.iter().find(|name| !self.arms.iter().any(|arm| arm.name == **name));
        if let Some(stranger) = stranger {
            let hint = "it must be the name of an arm";
            return Err(value("an arm of a variant", stranger, hint));
        }
        self.arms.retain(|arm| names.contains(&arm.name));
        let has = |name: &String| names.contains(name);
        self.goals.retain(|goal| goal.runs(has));
        self.claims.retain(|claim| claim.runs(has));
        Ok(())
    }

    fn name_arms(&mut self) {
        let Scenario { arms, arguments, .. } = self;
        for arm in arms.iter_mut().filter(|arm| arm.name.is_empty()) {
            arm.name = match arm.program() {
                Some(Peer::Command) => name_of(arm.what()),
                None => {
                    let told = arm.arguments.as_ref().unwrap_or(arguments);
                    let words = [&arm.lane].into_iter().chain(told);
                    let spec = words.map(String::as_str).collect::<Vec<_>>().join(" ");
                    let marks =
                        [(arm.trace, TRACED), (arm.alone, ALONE), (arm.unlimited, UNLIMITED)];
                    let marks = marks.into_iter().filter(|(is_set, _)| *is_set);
                    marks.fold(spec, |name, (_, mark)| format!("{name}, {mark}"))
                }
                Some(Peer::Testpmd) => format!("testpmd:{}", arm.lane),
                Some(Peer::RedisServer) => arm.lane.clone(),
                Some(Peer::Stack) => "kernel".to_owned(),
                Some(other) => other.name().to_owned(),
            };
        }
    }

    /// The row of the app, as it is raced under this traffic.
    ///
    /// # Errors
    /// For a name that no row has.
    pub fn facts(&self, tables: &dyn Tables) -> Result<AppFacts, ScenarioError> {
        let app = tables.app(&self.app).map_err(|hint| value("app", &self.app, hint))?;
        // What is wrong with the traffic, the check says.
        let race = match (self.traffic_kind(app), &self.fanout) {
            (Ok(Traffic::Fanout), Some(fanout)) => fanout.raced(app.race),
            (Ok(traffic), _) => app.race.under(traffic),
            (Err(_), _) => app.race,
        };
        Ok(AppFacts { race, ..*app })
    }

    /// Checks every value, and names the arms that have no name.
    ///
    /// # Errors
    /// The first value that cannot be.
    pub fn check(&mut self, tables: &dyn Tables) -> Result<(), ScenarioError> {
        let app = self.facts(tables)?;
        self.traffic_kind(&app)?;
        for variant in &self.variants {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if variant.name.is_empty() || !variant.name.chars().all(fits) {
                let hint = "use a-z, 0-9 and `-`: it is the name of a folder";
                return Err(value("the name of a variant", &variant.name, hint));
            }
        }
        self.name_arms();
        self.check_arms()?;
        let mut only_receives = false;
        for (variant, race) in self.races(&[])? {
            let arms = race.arms.len();
            if arms > ARMS_MAX {
                let of =
                    if variant.is_empty() { variant } else { format!(" of variant {variant}") };
                return Err(value(
                    format!("the number of arms{of}"),
                    arms,
                    format!("1 to {ARMS_MAX}"),
                ));
            }
            let app = race.facts(tables)?;
            race.check_app(&app, tables)?;
            only_receives |= Task::of(&app) == Task::Receive;
        }
        if let Some(arm) = self.arms.iter().find(|arm| !arm.counts && !only_receives) {
            let hint = "what such a program delivers is counted where it comes out: leave it out";
            return Err(value(format!("`counts` of arm `{}`", arm.name), arm.counts, hint));
        }
        if !(0.0..=1_000.0).contains(&self.others_max) {
            return Err(value("others_max", self.others_max, "0 to 1000, a share of one CPU"));
        }
        if !(0.001..=1.0).contains(&self.matters) {
            return Err(value("matters", self.matters, "0.001 to 1, a share: 0.05 is 5 %"));
        }
        if self.arm_cpu == self.generator_cpu {
            let hint = "arm_cpu and generator_cpu must differ, or the generator cannot keep time";
            return Err(value("arm_cpu", self.arm_cpu, hint));
        }
        if let Some(cpu) = self.generator_napi_cpu.filter(|_| self.client.is_some()) {
            let hint = "a client's interface is received on the client's CPU: leave it out";
            return Err(value("generator_napi_cpu", cpu, hint));
        }
        if self.generator_napi_cpu == Some(self.arm_cpu) {
            let hint =
                "on the arm's CPU that work is done anyway: leave it out, or name another CPU";
            return Err(value("generator_napi_cpu", self.arm_cpu, hint));
        }
        self.extents().try_for_each(Extent::check)?;
        self.check_demands()
    }
}

impl Scenario {
    /// What is true of the arms whatever the app is.
    fn check_arms(&self) -> Result<(), ScenarioError> {
        if self.arms.is_empty() {
            return Err(value("the number of arms", 0, format!("1 to {ARMS_MAX}")));
        }
        for (i, arm) in self.arms.iter().enumerate() {
            if self.arms[..i].iter().any(|other| other.name == arm.name) {
                let hint = "give each its own `name`";
                return Err(value("the name of two arms", &arm.name, hint));
            }
            if arm.optional && i == 0 {
                let hint = "the base of every comparison must run: leave `optional` out";
                return Err(value("`optional` of the first arm", arm.optional, hint));
            }
            if arm.full_only && i == 0 {
                let hint = "the base of every comparison must run: leave `full_only` out";
                return Err(value("`full_only` of the first arm", arm.full_only, hint));
            }
            if arm.alone && i == 0 {
                let hint =
                    "what is alone is compared with the base among others: leave `alone` out";
                return Err(value("`alone` of the first arm", arm.alone, hint));
            }
            if arm.alone && !arm.name.contains(ALONE) {
                let hint = format!("an arm that is raced alone says `{ALONE}`");
                return Err(value("the name of an arm", &arm.name, hint));
            }
            if arm.unlimited && !self.fanouts().any(|fanout| fanout.limit_mbit.is_some()) {
                let hint =
                    "no output is limited here: give `fanout` a `limit_mbit`, or leave it out";
                return Err(value(format!("`unlimited` of arm `{}`", arm.name), true, hint));
            }
            if arm.unlimited && !arm.name.contains(UNLIMITED) {
                let hint = format!("an arm without the limit of the others says `{UNLIMITED}`");
                return Err(value("the name of an arm", &arm.name, hint));
            }
            check_kind(arm)?;
            if arm.trace && arm.program().is_some() {
                let hint = "our tracer is in our workers only: leave `trace` out";
                return Err(value("`trace` of a peer", &arm.name, hint));
            }
            if arm.trace && !arm.name.contains(TRACED) {
                let hint = format!("an arm that is traced while it is measured says `{TRACED}`");
                return Err(value("the name of an arm", &arm.name, hint));
            }
        }
        Ok(())
    }

    /// What depends on the app: its arguments, its peers, the ports that it can have.
    fn check_app(&self, app: &AppFacts, tables: &dyn Tables) -> Result<(), ScenarioError> {
        let traffic = self.traffic_kind(app)?;
        if !(1..=256).contains(&self.burst) {
            return Err(value("burst", self.burst, "1 to 256"));
        }
        self.check_ping(app)?;
        self.check_capacity(app)?;
        self.check_spacing()?;
        self.check_arrivals(app)?;
        self.check_client(app, tables)?;
        for arm in &self.arms {
            let lane_of = || format!("lane of arm `{}`", arm.name);
            let arguments = self.arguments_of(arm);
            // A peer is told nothing of the app's.
            if arm.program() != Some(Peer::RedisServer) {
                tables.check_arm(app.name, arguments, traffic).map_err(|why| {
                    value(format!("arguments of arm `{}`", arm.name), arguments.join(" "), why)
                })?;
            }
            if arm.plant != Plant::None
                && (arm.program().is_some() || !app.race.counted.by_witness())
            {
                let hint = "faults are planted in our own arms, of apps that tick packets off";
                return Err(value("plant", format!("{:?}", arm.plant), hint));
            }
            if let Plant::Slow { share } = arm.plant
                && !(0.0..=10.0).contains(&share)
            {
                return Err(value("plant.slow.share", share, "0 to 10"));
            }
            match arm.program() {
                Some(Peer::Command) => check_command(arm, app)?,
                None => {
                    if let Err(error) = arm.lane.parse::<LaneSpec>() {
                        return Err(value(lane_of(), &arm.lane, error.to_string()));
                    }
                    // A lane that this program does not know is left out with its reason where the arm is optional.
                    let wiring = match tables.lane(&arm.lane) {
                        Ok((_, wiring)) => wiring,
                        Err(_) if arm.optional => continue,
                        Err(why) => return Err(value(lane_of(), &arm.lane, why)),
                    };
                    if let Some(why) = wire::objection(&wiring, app) {
                        return Err(value(lane_of(), &arm.lane, why));
                    }
                }
                Some(peer) if !app.race.peers.contains(&peer) => {
                    let hint = match app.race.peers {
                        [] => "it has no peers: nothing of others does the same".to_owned(),
                        peers => {
                            let names: Vec<&str> = peers.iter().map(|peer| peer.name()).collect();
                            format!("its peers are {}", names.join(", "))
                        }
                    };
                    return Err(value(format!("a peer of app {}", app.name), peer.name(), hint));
                }
                Some(Peer::Testpmd) => {
                    let device =
                        Device::read(&arm.lane).map_err(|why| value(lane_of(), &arm.lane, why))?;
                    let has_far_end =
                        matches!(app.race.counted, Counted::Forwarded | Counted::Replies);
                    if is_tap(&arm.lane) && !has_far_end {
                        return Err(value(lane_of(), &arm.lane, wire::NO_CABLE));
                    }
                    if !is_tap(&arm.lane) && !DEVICES.contains(&device.driver.as_str()) {
                        let hint = format!("the devices are {}", DEVICES.join(", "));
                        return Err(value(lane_of(), &arm.lane, hint));
                    }
                }
                Some(Peer::RedisServer) => {
                    redis_knobs(&arm.lane).map_err(|why| value(lane_of(), &arm.lane, why))?;
                }
                Some(Peer::Smcroute)
                    if self.fanout.as_ref().is_some_and(|fanout| !fanout.is_over_interfaces()) =>
                {
                    let hint = "the kernel routes groups and rewrites no port: leave this arm out, or give as many \
                                `cables` as `outputs`";
                    return Err(value(format!("peer of arm `{}`", arm.name), "smcroute", hint));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// A capture's own times are those of its frames.
    fn check_spacing(&self) -> Result<(), ScenarioError> {
        let has_its_own = self.arrivals == Spacing::Capture;
        if has_its_own && self.capture.is_none() {
            let hint = "frames made here have no times of their own: use `steady` or `poisson`";
            return Err(value("arrivals", self.arrivals.name(), hint));
        }
        if has_its_own && self.burst != 1 {
            let hint = "with `arrivals = \"capture\"` each frame has its own time: give 1";
            return Err(value("burst", self.burst, hint));
        }
        Ok(())
    }

    /// Frames of a segment for which there is room at the far end, where they are ticked off there.
    fn room(&self, app: &AppFacts) -> Result<Option<u32>, ScenarioError> {
        Ok(match (app.race.counted, self.traffic(app)?.fanout()) {
            (Counted::Forwarded, _) => Some(ARRIVALS_MAX),
            (Counted::Copies, Some(plan)) => Some(copies::frames_max(plan)),
            _ => None,
        })
    }

    /// A search is made of segments of packets, and says something of arms whose packets are counted.
    fn check_capacity(&self, app: &AppFacts) -> Result<(), ScenarioError> {
        let Some(CapacityPlan { pps, loss_max, steps, ms, trials }) = self.capacity else {
            return Ok(());
        };
        if matches!(app.race.counted, Counted::Replies | Counted::Answered) {
            let hint = "of pings it is in `[ping]`, and of a client the closed loop: take `[capacity]` out";
            return Err(value("app", app.name, hint));
        }
        let [low, high] = pps;
        if !(1..high).contains(&low) || high > LOAD_PPS_MAX {
            let hint = format!("two rates in rising order, at most {LOAD_PPS_MAX}");
            return Err(value("capacity.pps", format!("{pps:?}"), hint));
        }
        if !(0.0..=0.5).contains(&loss_max) {
            let hint = "0 to 0.5, a share: 0.001 is 0.1 %";
            return Err(value("capacity.loss_max", loss_max, hint));
        }
        if !(1..=CAPACITY_STEPS_MAX).contains(&steps) {
            return Err(value("capacity.steps", steps, format!("1 to {CAPACITY_STEPS_MAX}")));
        }
        if !(1..=CAPACITY_TRIALS_MAX).contains(&trials) {
            return Err(value("capacity.trials", trials, format!("1 to {CAPACITY_TRIALS_MAX}")));
        }
        if !(50..=60_000).contains(&ms) {
            return Err(value("capacity.ms", ms, "50 to 60000"));
        }
        let most = high.saturating_mul(ms) / 1000;
        let room = self.room(app)?.unwrap_or(u32::MAX);
        if most >= u64::from(room) {
            let hint = format!("below {room}: shorten `ms`, or search lower");
            return Err(value("the number of frames of a trial of the highest rate", most, hint));
        }
        Ok(())
    }

    /// Of what is counted one by one at the far end there is room for so many.
    fn check_arrivals(&self, app: &AppFacts) -> Result<(), ScenarioError> {
        let Some(room) = self.room(app)? else { return Ok(()) };
        for extent in [&self.quick, &self.full] {
            let most =
                extent.loads_pps.last().map_or(0, |pps| pps.saturating_mul(extent.segment_ms));
            if most / 1000 > u64::from(room) {
                let hint = format!("at most {room}: shorten segment_ms, or lower the load");
                return Err(value(
                    "the number of frames of the longest segment",
                    most / 1000,
                    hint,
                ));
            }
        }
        Ok(())
    }

    /// A closed loop is a client's, and what is a generator's is not.
    fn check_client(&self, app: &AppFacts, tables: &dyn Tables) -> Result<(), ScenarioError> {
        let is_asked = app.race.counted == Counted::Answered;
        if self.tso && !is_asked {
            let hint = "what is sent is made frame by frame: give `[client]`, or leave it out";
            return Err(value("tso", true, hint));
        }
        if self.tso {
            for arm in self.arms.iter().filter(|arm| arm.program().is_none()) {
                let Ok((lane, _)) = tables.lane(&arm.lane) else { continue };
                if !lane.carries.has(Shape::Streams) {
                    let hint = "its TCP is our own, and sees segments that no wire carries, without checksums: leave it \
                                out of this variant (`arms`), or `tso`";
                    return Err(value(format!("tso with arm `{}`", arm.name), true, hint));
                }
            }
        }
        for extent in [&self.quick, &self.full] {
            if extent.closed_loop && !is_asked {
                let hint = "only a client waits for answers: give `[client]`, or leave it out";
                return Err(value("closed_loop", true, hint));
            }
            if !extent.closed_requests.is_empty() && !extent.closed_loop {
                let hint = "they are those of a closed loop: give `closed_loop = true`";
                return Err(value(
                    "closed_requests",
                    format!("{:?}", extent.closed_requests),
                    hint,
                ));
            }
            if is_asked && (extent.saturate || extent.topspeed) {
                let hint = "a client has no rate that saturates: give `closed_loop = true` instead";
                return Err(value("saturate or topspeed with `[client]`", true, hint));
            }
        }
        Ok(())
    }

    fn check_ping(&self, app: &AppFacts) -> Result<(), ScenarioError> {
        let has_replies = app.race.counted == Counted::Replies;
        let Some(ping) = &self.ping else {
            return match has_replies {
                true => {
                    let hint = "give `[ping]` with pings, ping_interval_us, loss_max, \
                                capacity_pps, capacity_steps and capacity_ms";
                    Err(value(format!("the section `[ping]` of app {}", app.name), "missing", hint))
                }
                false => Ok(()),
            };
        };
        if !has_replies {
            let hint = "`[ping]` belongs to an app whose replies are counted; take it out";
            return Err(value("app", app.name, hint));
        }
        if ping.pings > PINGS_MAX {
            return Err(value("ping.pings", ping.pings, format!("0 to {PINGS_MAX}")));
        }
        if !(100..=PING_INTERVAL_US_MAX).contains(&ping.ping_interval_us) {
            let hint = format!("100 to {PING_INTERVAL_US_MAX}");
            return Err(value("ping.ping_interval_us", ping.ping_interval_us, hint));
        }
        if ping.ping_load_pps > PING_LOAD_PPS_MAX {
            let hint = format!(
                "0 to {PING_LOAD_PPS_MAX}: beyond it the generator's CPU has no time left for ping"
            );
            return Err(value("ping.ping_load_pps", ping.ping_load_pps, hint));
        }
        if !(0.0..=0.5).contains(&ping.loss_max) {
            let hint = "0 to 0.5, a share: 0.005 is 0.5 %";
            return Err(value("ping.loss_max", ping.loss_max, hint));
        }
        if ping.capacity_steps > CAPACITY_STEPS_MAX {
            let hint = format!("0 to {CAPACITY_STEPS_MAX}");
            return Err(value("ping.capacity_steps", ping.capacity_steps, hint));
        }
        if !(50..=60_000).contains(&ping.capacity_ms) {
            return Err(value("ping.capacity_ms", ping.capacity_ms, "50 to 60000"));
        }
        let [low, high] = ping.capacity_pps;
        if !(1..high).contains(&low) || high > LOAD_PPS_MAX {
            let hint = format!("two rates in rising order, at most {LOAD_PPS_MAX}");
            return Err(value("ping.capacity_pps", format!("{:?}", ping.capacity_pps), hint));
        }
        // Each step of a search may be asked twice.
        let loads_max = (SEGMENTS_MAX - 2 * CAPACITY_STEPS_MAX as usize) / 4;
        for extent in [&self.quick, &self.full] {
            if extent.loads_pps.len() > loads_max {
                let hint = format!("1 to {loads_max} beside a capacity search");
                return Err(value("the number of loads", extent.loads_pps.len(), hint));
            }
        }
        let segments = [&self.quick, &self.full]
            .map(|extent| (extent.loads_pps.last().copied().unwrap_or(0), extent.segment_ms));
        for (pps, ms) in segments.into_iter().chain([(high, ping.capacity_ms)]) {
            let most = pps.saturating_mul(ms) / 1000;
            if most > u64::from(REQUESTS_MAX) {
                let hint = format!("at most {REQUESTS_MAX}: shorten it, or lower the load");
                return Err(value("the number of requests of the longest segment", most, hint));
            }
        }
        Ok(())
    }
}

/// An arm is a lane, a peer or a program.
fn check_kind(arm: &ArmPlan) -> Result<(), ScenarioError> {
    let what = |field: &str| format!("`{field}` of arm `{}`", arm.name);
    if arm.peer == Some(Peer::Command) {
        let hint =
            "give the program's command line instead: command = \"my-server {address} {port}\"";
        return Err(value(what("peer"), Peer::Command.name(), hint));
    }
    let Some(command) = &arm.command else {
        if !arm.counts {
            let hint = "it is for programs that receive, by their `command`: leave it out";
            return Err(value(what("counts"), arm.counts, hint));
        }
        let hint = "give it a `lane`, or a `command`";
        return if arm.lane.is_empty() {
            Err(value(what("lane"), "missing", hint))
        } else {
            Ok(())
        };
    };
    let alone =
        "a program is told what to do by its `command` alone: leave this out, or the command";
    if !arm.lane.is_empty() {
        return Err(value(what("lane"), &arm.lane, alone));
    }
    if let Some(peer) = arm.peer {
        return Err(value(what("peer"), peer.name(), alone));
    }
    if let Some(arguments) = &arm.arguments {
        return Err(value(what("arguments"), format!("{arguments:?}"), alone));
    }
    if command.trim().is_empty() {
        return Err(value(what("command"), "empty", "give the program and its arguments"));
    }
    Ok(())
}

/// The command line of an arm must be one, and its program be there unless it is optional.
fn check_command(arm: &ArmPlan, app: &AppFacts) -> Result<(), ScenarioError> {
    let refused = |why| value(format!("command of arm `{}`", arm.name), arm.what(), why);
    let line = CommandLine::read(arm.what(), app).map_err(refused)?;
    match line.program().filter(|_| !arm.optional) {
        Some(program) => find(program).map(drop).map_err(refused),
        None => Ok(()),
    }
}

impl Asks {
    /// What it says over its connections.
    pub fn protocol(&self) -> Protocol {
        self.store.map_or(Protocol::Echo, |_| Protocol::Resp)
    }

    fn plan(&self, protocol: Protocol, seed: u64) -> ClientPlan {
        ClientPlan {
            to: SERVICE.into(),
            protocol,
            connections: self.connections,
            in_flight: self.in_flight,
            request_bytes: self.request_bytes,
            store: self.store,
            timeout_ms: self.timeout_ms,
            seed,
        }
    }
}

impl Extent {
    fn check(&self) -> Result<(), ScenarioError> {
        let loads = &self.loads_pps;
        let rising = loads.is_sorted_by(|a, b| a < b);
        let possible = loads.iter().all(|load| (1..=LOAD_PPS_MAX).contains(load));
        let needs_load = loads.is_empty() && !self.closed_loop;
        if needs_load || loads.len() > LOADS_MAX || !rising || !possible {
            let hint = format!(
                "1 to {LOADS_MAX} loads in rising order, each 1 to {LOAD_PPS_MAX} frames/s"
            );
            return Err(value("loads_pps", format!("{loads:?}"), hint));
        }
        let counts = &self.closed_requests;
        let first = loads.last().map_or(1, |load| load + 1);
        let rising = counts.is_sorted_by(|a, b| a < b);
        let possible = counts.iter().all(|n| (first..=CLOSED_REQUESTS_MAX).contains(n));
        if counts.len() + loads.len() > LOADS_MAX || !rising || !possible {
            let hint = format!(
                "numbers in rising order, above the last load and at most {CLOSED_REQUESTS_MAX}; with the loads at most \
                 {LOADS_MAX}"
            );
            return Err(value("closed_requests", format!("{counts:?}"), hint));
        }
        if !(SEGMENT_MS_MIN..=SEGMENT_MS_MAX).contains(&self.segment_ms) {
            let hint = format!("{SEGMENT_MS_MIN} to {SEGMENT_MS_MAX}");
            return Err(value("segment_ms", self.segment_ms, hint));
        }
        if !(1..=TIME_S_MAX).contains(&self.time_s) {
            return Err(value("time_s", self.time_s, format!("1 to {TIME_S_MAX} seconds")));
        }
        if let Some(rounds) = self.rounds
            && !(1..=ROUNDS_MAX).contains(&rounds)
        {
            return Err(value("rounds", rounds, format!("1 to {ROUNDS_MAX} in a generation")));
        }
        if !(1..=GENERATIONS_MAX).contains(&self.generations) {
            let hint = format!("1 to {GENERATIONS_MAX}; an interval needs 3");
            return Err(value("generations", self.generations, hint));
        }
        if [self.saturate, self.topspeed, self.closed_loop].iter().filter(|is| **is).count() > 1 {
            let hint = "give `saturate`, `topspeed` or `closed_loop`: a goal without a load means the one there is";
            return Err(value("the loads without a rate", "several", hint));
        }
        let most = loads.last().copied().unwrap_or(0).saturating_mul(self.segment_ms) / 1000;
        if most >= u64::from(u32::MAX) {
            let hint = "frames per segment must stay below 2^32: shorten segment_ms";
            return Err(value("the number of frames of the longest segment", most, hint));
        }
        Ok(())
    }
}

#[cfg(test)]
mod asked;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TablesOf;
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
    fn arrivals_are_steady_unless_said_otherwise_and_a_captures_need_one() {
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
        assert_eq!(
            (of("count-64").app.as_str(), of("across-64").app.as_str()),
            ("count", "across")
        );
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
        let changes: [(Change, &str); 10] = [
            (|s| s.ping.as_mut().unwrap().ping_load_pps = 500_000, "ping.ping_load_pps"),
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
            (
                |s| s.client.as_mut().unwrap().request_bytes = [9, 8],
                "client.request_bytes is [9, 8]",
            ),
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
        scenario.goals = vec![Goal { above: Some("nobody".into()), ..goal }];
        let refused = scenario.check(&TABLES).unwrap_err().to_string();
        assert!(refused.contains("nobody"), "{refused}");
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
        (scenario.app, scenario.capture, scenario.payload_bytes) =
            ("bounce".into(), None, Some(64));
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
            (
                |a| (a.command, a.peer) = (None, Some(Peer::Command)),
                "give the program's command line",
            ),
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
        assert!(silent("count").contains("nobody knows what `sh serve.sh` received"));
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
                |s| {
                    (s.arms[1].peer, s.arms[1].lane) = (Some(Peer::Testpmd), "net_tap:rxq=0".into())
                },
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
    fn an_arm_that_is_told_something_says_so_in_its_name() {
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
}
