//! A scenario: a TOML file that fully describes a race.

mod arithmetic;
mod check;
mod demands;
mod traffic;

pub use arithmetic::Arithmetic;
pub use demands::{Answer, Claim, Goal};

use crate::client::Store;
use crate::command::{Task, name_of};
pub use crate::error::ScenarioError;
use crate::fanout::Fanout;
use crate::segment::{Plant, SEGMENTS_MAX};
use crate::tables::Tables;
use crate::timetable::Spacing;
use laneway_kinds::{AppFacts, Peer, Traffic};
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
/// Shares of its own capacity that an arm may be offered. A little more than all of it is a queue that grows.
const OWN_SHARES: std::ops::RangeInclusive<f64> = 0.05..=1.0;

/// The generator of a scenario in which a client asks.
const SOCKETS: &str = "sockets";

/// What the name of an arm must hold that is traced while it is measured, raced alone, or has no limited output.
const TRACED: &str = "traced";
const ALONE: &str = "alone";
const UNLIMITED: &str = "unlimited";
/// What the name of an arm says that is asked by datagrams.
const BY_UDP: &str = "udp";

/// Share of one CPU that everything but arm, generator and kernel may take, unless configured otherwise.
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
    /// The arguments of the app, besides those that state where it is, as on the command line of `run`.
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
    /// How frames enter the wire: `live` (XDP live frames), or the spec of a lane that transmits. Of a client:
    /// `sockets`.
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
    /// TCP segments of up to 64 KiB leave the arm's end of its cable uncut (TSO), for arms whose TCP is the kernel's.
    /// The cable has no threads for them at the client's end: they are received in softirqs that are sent to its CPU
    /// (RPS).
    #[serde(default, skip_serializing_if = "is_false")]
    pub tso: bool,
    /// CPU of the receive stack at the generator's end of the cables, in threads of its own. None: what comes out of an
    /// arm is received in a softirq of its sender, so on the arm's CPU.
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
    /// Has the thread that receives for the arm (threaded NAPI) run before the arm's own tasks (SCHED_FIFO), as a
    /// softirq would on a machine whose cables have interrupts. Else the scheduler lets one of them wait for the other,
    /// for 2 ms and more, and the ring in front of the arm overflows meanwhile.
    #[serde(default, skip_serializing_if = "is_false")]
    pub napi_first: bool,
    /// Keeps every CPU from sleep (`/dev/cpu_dma_latency`): on a virtual machine whose hypervisor is busy, intervals
    /// become narrower. It favours lanes that block, whose CPU else takes time to wake; where waiting itself is
    /// measured (`--wakeup`), it is not heeded.
    #[serde(default, skip_serializing_if = "is_false")]
    pub awake: bool,
    /// A search for the highest rate that each arm carries, of any other app that is sent packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityPlan>,
    /// The arms; the first is the base of every comparison and runs twice, for the noise floor.
    #[serde(rename = "arm")]
    pub arms: Vec<ArmPlan>,
    /// What is demanded.
    #[serde(rename = "goal", default)]
    pub goals: Vec<Goal>,
    /// A statement of an author, put to the test: the answer is a result, whichever it is.
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
    /// The shortest and the longest request, of a store the shortest and the longest value, bytes; the length of each
    /// is drawn between the two, both included.
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
    /// Rates asked per search, 2 or more; 0: none is made.
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
    /// Rates asked per search, 2 or more.
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
    /// Where a client asks: offer one more in front of the closed loops, at which every arm has a rate of its own: this
    /// share of what it answered in a closed loop before the race.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_share: Option<f64>,
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
    /// In its place the command line of any program, in which `{address}` and the like are filled in; no
    /// shell is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// False for a program that receives and does not say how much: what it delivered is unknown, its CPU time is per
    /// offered packet, and it has no rate, no loss and no capacity. Of no meaning where its packets come out again.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub counts: bool,
    /// A foreign program instead of ours.
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
    /// The arguments of the app, in place of the scenario's `arguments`.
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
    /// Of a store: this arm's values are asked for by datagrams, at the address of its connections, over which the keys
    /// are set before that. Its name says so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub datagrams: bool,
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
            datagrams: false,
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

    /// The arguments of the app of an arm.
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
                    let given = arm.arguments.as_ref().unwrap_or(arguments);
                    let words = [&arm.lane].into_iter().chain(given);
                    let spec = words.map(String::as_str).collect::<Vec<_>>().join(" ");
                    let marks = [
                        (arm.trace, TRACED),
                        (arm.alone, ALONE),
                        (arm.unlimited, UNLIMITED),
                        (arm.datagrams, BY_UDP),
                    ];
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
        self.check_races(&[], tables)
    }

    /// As [`check`](Self::check), for a race of these variants: an arm that was put in for them need not fit others.
    ///
    /// # Errors
    /// As [`check`](Self::check), and for a variant that there is not.
    pub fn check_races(
        &mut self,
        variants: &[String],
        tables: &dyn Tables,
    ) -> Result<(), ScenarioError> {
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
        for (variant, race) in self.races(variants)? {
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

#[cfg(test)]
mod asked;

#[cfg(test)]
mod tests;
