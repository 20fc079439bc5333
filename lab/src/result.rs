//! What a race writes: `result.json` (this schema), one file per trial, and the report made from
//! them. The report reads nothing else, so a result can be shown again anywhere.
//!
//! Units are in the names. Cumulative figures cover one *segment*: one offered load within one
//! trial. A figure that could not be measured is absent, never zero.

pub use crate::round_trips::Rtt;
use crate::timetable::Spacing;
use crate::why::TracedArm;
use laneway_core::CapsReport;
use laneway_stats::pairs::{Comparison, Judgement};
use laneway_stats::{CurvePoint, LatencySummary, Look};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this schema; a reader refuses another major one. 2 has segments in rounds and generations
/// ([`Segment::round`]), CPU time by owner ([`Cpu`]) and intervals over generations ([`Finding::comparison`]).
pub const SCHEMA: &str = "laneway-race/2";

/// Whether this version reads results of `schema`: any minor version of the same major one, since
/// minor ones only add what may be absent.
pub fn is_readable(schema: &str) -> bool {
    let major = |schema: &str| schema.split('.').next().map(str::to_owned);
    major(schema) == major(SCHEMA)
}

/// A whole race.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// The scenario's title: `packet features, kernel sockets against XDP`.
    pub title: String,
    /// The app raced: `features`.
    pub app: String,
    /// The scenario as it ran, as TOML: enough to run it again.
    pub scenario: String,
    /// The command line.
    pub command: Vec<String>,
    /// Version of laneway, with the commit it was built from where known.
    pub version: String,
    /// When it started, ns since 1970.
    pub started_unix_ns: u64,
    /// How long it took, s.
    pub seconds: f64,
    /// The machine, as found.
    pub machine: Machine,
    /// The bench: namespaces, veth, offloads, NAPI thread, as read back.
    pub topology: serde_json::Value,
    /// Which CPU does what.
    pub placement: Placement,
    /// What was sent.
    pub traffic: Traffic,
    /// Seed of the order of the arms, as text (JavaScript loses digits above 2^53).
    pub seed: String,
    /// Generations of fresh processes that ran.
    pub generations: usize,
    /// Rounds that ran, over all generations; in each, every load was offered to every arm once.
    pub rounds: usize,
    /// The arms, in the scenario's order; index 0 is the base of every comparison.
    pub arms: Vec<Arm>,
    /// The offered loads, packets per second, in rising order.
    pub loads_pps: Vec<u64>,
    /// The last of them, if it is the one that was found out to saturate: one step below the highest that the
    /// generator kept against every arm, rounded down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturating_pps: Option<u64>,
    /// That load is no schedule: as many frames as it says, as fast as the generator could. It has no latency.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub topspeed: bool,
    /// Instead: that load is a closed loop of a client's, and its rate is what was answered to the base in one, to put
    /// it behind the others. Every request is sent when the answer to the one before it has arrived.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub closed_loop: bool,
    /// Instead of that one load so many, the last of all: closed loops that end when so many requests were due, which
    /// stand among the loads as their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed_requests: Vec<u64>,
    /// The load in front of the closed loops has no rate of its own either: every arm was offered this share of what it
    /// answered in a closed loop before the race, [`Arm::own_pps`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_share: Option<f64>,
    /// Every segment measured: each is one dot.
    pub segments: Vec<Segment>,
    /// Per arm and load, over all rounds.
    pub summaries: Vec<Summary>,
    /// Per metric, arm and load: the comparison with the base.
    pub findings: Vec<Finding>,
    /// Of a race of pings: what its table has beyond the summaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingSection>,
    /// The search for the highest rates, if one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacitySection>,
    /// Of a race with `--trace`: why each arm is as it is, by a trace behind the last generation. No figure
    /// of it is in any other table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<TracedArm>,
    /// How the base's own cost changed over the race, where that was more than noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<BaseDrift>,
    /// What the generator kept of each load that is a schedule, half as much again, before the race.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headroom: Vec<Headroom>,
    /// Where a client asks in closed loops: how busy it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_shares: Vec<ClientShare>,
    /// What the scenario demanded.
    pub goals: Vec<GoalOutcome>,
    /// Whose sentences the claims are, and where they stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims_of: Option<String>,
    /// A statement of an author, put to the test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimOutcome>,
    /// Why there is no verdict: arms and loads with too few segments that can be used, each with the reason (a busy
    /// machine, or a generator that does not keep the load), a machine that changed too fast, or an arm that ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub too_few: Vec<String>,
    /// Everything that makes the run invalid; empty if it is valid.
    pub invalid: Vec<String>,
    /// What a reader should know but does not make it invalid.
    pub notes: Vec<String>,
    /// It was interrupted, and what was measured until then is judged: generations that were whole.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub interrupted: bool,
    /// An arm ended before the race, and with it the race; what was measured until then is judged: generations that
    /// were whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedArm>,
    /// How it ended.
    pub outcome: Outcome,
}

/// An arm that ended by itself in the middle of a race.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedArm {
    /// Index into `arms`.
    pub arm: usize,
    /// In which generation, from 1: the first that is in no figure.
    pub generation: usize,
    /// How long the race had been measured, s.
    pub seconds: f64,
    /// What was reported of it.
    pub why: String,
}

/// How a race ended; the process exits with [`Outcome::exit_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Measured; all goals met (or none stated).
    Done,
    /// Measured; a stated goal was missed.
    GoalMissed,
    /// Measured; a goal or the A/A pair is inconclusive.
    Inconclusive,
    /// Not to be believed: see `invalid`.
    Invalid,
}

impl Outcome {
    /// 0, 1, 3, 4 (2 is bad usage or input, which leaves no result).
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::GoalMissed => 1,
            Outcome::Inconclusive => 3,
            Outcome::Invalid => 4,
        }
    }
}

/// The machine and what of its state matters to a measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Short lines in the order to show: `kernel` -> `6.18.44`, `cpu` -> model, and so on.
    pub facts: BTreeMap<String, String>,
    /// Findings that can disturb a measurement, each a sentence; empty: clean.
    pub findings: Vec<String>,
    /// Share of CPU time stolen by the hypervisor during the race.
    pub steal_share: f64,
    /// Load average (1 min) before the race.
    pub load_before: f64,
}

/// Which CPU does what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Placement {
    /// CPU of the arm's worker.
    pub arm_cpu: usize,
    /// CPU of the receive stack (the threaded NAPI of the arm's interface).
    pub napi_cpu: usize,
    /// CPU of the generator.
    pub generator_cpu: usize,
    /// CPU of the receive stack of the far ends, where that runs in threads of its own; else the sender has its work
    /// done in a softirq.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_napi_cpu: Option<usize>,
    /// One sentence for the reader.
    pub sentence: String,
    /// TCP segments leave the arm uncut, and what the client receives is received in softirqs sent to its CPU.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub tso: bool,
    /// What the arm receives is received before its own tasks run.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub napi_first: bool,
}

impl Placement {
    /// Whether what leaves an arm waits until the generator lets go of its CPU, so that it is unknown how long it
    /// took.
    pub(crate) fn waits_for_generator(&self) -> bool {
        self.far_napi_cpu == Some(self.generator_cpu)
    }
}

/// What was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Traffic {
    /// Capture file replayed.
    pub capture: String,
    /// SHA-256 of the file, hex.
    pub sha256: String,
    /// Frames in the capture.
    pub frames: usize,
    /// Frames of it that fit the MTU and are replayed.
    pub replayed: usize,
    /// Mean length of a replayed frame, bytes.
    pub mean_frame_bytes: f64,
    /// How frames enter the wire: `live` (XDP live frames), `packet` (AF_PACKET), `afxdp`.
    pub generator: String,
    /// How arrivals follow one another.
    #[serde(default)]
    pub spacing: Spacing,
    /// Schedule in a sentence: `constant rate in bursts of 16`.
    pub schedule: String,
}

/// One arm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arm {
    /// Name in tables and plots.
    pub name: String,
    /// The lane spec as given.
    pub lane: String,
    /// The arguments of its app, besides those that state where it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// True for the second run of the base: the A/A pair that gives the noise floor.
    pub is_noise_floor: bool,
    /// True for a program that does not say what it received: [`Cpu::ns_per_record`] is per offered packet, and it has
    /// no rate and no loss.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub delivered_unknown: bool,
    /// What it was offered per second at the load of which every arm has a rate of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_pps: Option<u64>,
    /// One sentence: what this arm does with a frame after looking at it.
    pub note: String,
    /// Asked for and obtained.
    pub caps: CapsReport,
}

impl Arm {
    /// The lane spec and the arguments of the app, as behind `run`.
    pub fn spec(&self) -> String {
        let words = [&self.lane].into_iter().chain(&self.arguments);
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

/// One load of one trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// Index into `arms`.
    pub arm: usize,
    /// Generation of processes, from 0.
    pub generation: usize,
    /// Round, from 0 over the whole race: every arm has one segment of a load in it that counts, so base and arm
    /// of a round are a pair.
    pub round: usize,
    /// Place in the whole race, from 0: time order.
    pub order: usize,
    /// True while the arms of its generation were warming up: it is in no figure.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub warm_up: bool,
    /// True if it could not be used, so that the arm was offered the same once more in the same round: the segment
    /// behind it counts in its place, and this one is in no figure.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub replaced: bool,
    /// Index into `loads_pps`.
    pub load: usize,
    /// Measured time, ns.
    pub window_ns: u64,
    /// Where every frame went.
    pub ledger: Ledger,
    /// How the generator did.
    pub generator: GeneratorReport,
    /// Records delivered per second of the schedule, or of the time that sending or arriving took if that is more. The
    /// window is longer: it ends when all that is queued is handled.
    pub records_per_s: f64,
    /// CPU over the window.
    pub cpu: Cpu,
    /// From the scheduled send time to the record in the app's hands (scope `wire to app`).
    pub wire_to_app: Option<LatencySummary>,
    /// From the frame (or record) in user hands to the record handled (scope `app only`).
    pub app_only: Option<LatencySummary>,
    /// From the scheduled time of a request to its reply at the generator's driver (scope `round
    /// trip`), of app `echo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Rtt>,
    /// From the scheduled time of a frame to its arrival at the far end's driver (scope `due to arrival`), one way, of
    /// an app that sends on out of a second port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_to_arrival: Option<Rtt>,
    /// Where a client asks: what became of its connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
    /// Where a client asks: what was sent again, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resent: Option<Resent>,
    /// Memory of the arm.
    pub memory: Memory,
    /// Why this segment cannot be used; empty if it can.
    pub invalid: Vec<String>,
    /// Why only its CPU time can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// What took its CPU or its packets, if anything did. Absent in results before 2026-11-28.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed_by: Option<Disturber>,
}

/// What took a CPU, or packets, from a segment, so that only its CPU time can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Disturber {
    /// Other programs of this machine ran.
    Programs,
    /// Another arm of the race ran though it was parked.
    Arms,
    /// The hypervisor gave a CPU to others.
    Hypervisor,
    /// An end of the cable had no room for packets of a client's connections.
    Cable,
}

/// The place of a loss: an end of a cable had no room for a frame.
pub(crate) const VETH_RING: &str = "veth ring full";

/// Packets of a client's connections that were lost on their way, to the arm or back, so that TCP sent them again: 200
/// ms later or more, where nothing behind them shows the loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resent {
    /// What had no room for them, as in a ledger: `veth ring full`, which is the cable's, or `tap queue full`, which is
    /// that of the arm's own device.
    pub place: String,
    /// How many.
    pub packets: u64,
}

impl Resent {
    /// Whether the cable lost them: how long TCP waits for it is no arm's doing.
    pub(crate) fn is_of_cable(&self) -> bool {
        self.place == VETH_RING
    }
}

/// Where every frame of a segment went: offered = delivered + every named drop. Under fan-out it is of copies: offered
/// are as many of each datagram as there are outputs, and what is lost in front of the arm is lost to all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Frames that the schedule asked for.
    pub offered: u64,
    /// Distinct frames whose record reached the app.
    pub delivered: u64,
    /// Records of a frame that had been delivered already.
    pub duplicates: u64,
    /// Records whose frame was sent before one delivered earlier.
    pub reordered: u64,
    /// Records of frames that were never sent in this segment (of no or of another segment).
    pub foreign: u64,
    /// Of copies, and only where there were any: what arrived and should not have been sent, by what is wrong with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wrong: BTreeMap<String, u64>,
    /// Of copies: how many were delivered by each cable on the way out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_cable: Vec<u64>,
    /// Of copies: the bench limits the first cable, so that what that one does not carry says nothing of the arm.
    #[serde(default, skip_serializing_if = "crate::scenario::is_false")]
    pub is_first_limited: bool,
    /// Of copies: trains of several that arrived uncut.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trains: u64,
    /// Copies in these, whatever became of each.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_trains: u64,
    /// Of copies, and only of them: how many there are to be of each packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u64>,
    /// Of closed loops, and only of them: connections that began one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub loops: u64,
    /// Of these, those that asked nothing more because a request had no answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub loops_broken: u64,
    /// Losses by place: `generator: not sent`, `veth ring full`, `rx_queue_full`, ...
    pub drops: BTreeMap<String, u64>,
    /// Of an arm that does not say what it received, and only of it: frames that it may have received or lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<u64>,
    /// offered - delivered - drops - unknown; a closed ledger has 0 here.
    pub unexplained: i64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_none_of_them(n: &usize) -> bool {
    *n == 0
}

/// The places of what the generator did not send: no arm was slow with it.
pub(crate) const NOT_SENT: &str = "generator: not sent";
pub(crate) const REFUSED: &str = "generator: refused";

/// An arm that loses less than this share of a load delivers it.
pub const DELIVERS_LOSS_MAX: f64 = 0.01;

impl Ledger {
    /// Sum over all named drops.
    pub fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }

    /// Recomputes `unexplained` from the other fields.
    pub fn balance(&mut self) {
        let known = self.delivered + self.dropped() + self.unknown.unwrap_or(0);
        self.unexplained = self.offered as i64 - known as i64;
    }

    /// Packets that the schedule asked for, whatever is to come of each.
    pub fn packets(&self) -> u64 {
        self.offered / self.copies.unwrap_or(1).max(1)
    }

    /// What CPU time is divided among: what was delivered, or what was offered where it is not known.
    pub fn paid_for(&self) -> u64 {
        if self.unknown.is_some() { self.offered } else { self.delivered }
    }

    /// Whether it delivered the load, up to [`DELIVERS_LOSS_MAX`]; never of an arm that does not say.
    pub fn delivers(&self) -> bool {
        self.unknown.is_none() && self.delivered > 0 && self.undone_share() < DELIVERS_LOSS_MAX
    }

    /// What it did not do of the load, as a share: of what was offered, or of the connections of closed loops, if that
    /// is more. One that is not answered is one request in thousands there, and one client less from then on.
    pub fn undone_share(&self) -> f64 {
        self.own_loss_share().max(self.loops_broken as f64 / self.loops.max(1) as f64)
    }

    /// Of that, what it lost: where the first cable is limited, of the copies by the others.
    pub fn own_loss_share(&self) -> f64 {
        let of_others = self.loss_share_of_others().filter(|_| self.is_first_limited);
        of_others.unwrap_or_else(|| self.loss_share())
    }

    /// True when every frame is accounted for and none was counted twice.
    pub fn is_closed(&self) -> bool {
        self.unexplained == 0 && self.duplicates == 0
    }

    /// Lost frames as a share of the offered; of no meaning where something is `unknown`.
    pub fn loss_share(&self) -> f64 {
        if self.offered == 0 {
            return 0.0;
        }
        (self.offered - self.delivered.min(self.offered)) as f64 / self.offered as f64
    }

    /// The same of the copies that were to leave by any cable but the first, of theirs; `None` without such.
    pub fn loss_share_of_others(&self) -> Option<f64> {
        let [due, arrived] = self.of_others()?;
        (due > 0).then(|| due.saturating_sub(arrived) as f64 / due as f64)
    }

    /// Copies that were to leave by any cable but the first, and those that did; `None` without such.
    fn of_others(&self) -> Option<[u64; 2]> {
        let copies = self.copies?;
        let cables = u64::try_from(self.by_cable.len()).ok().filter(|cables| *cables > 1)?;
        // Outputs are dealt to the cables in turn.
        let due = self.packets() * (copies - copies.div_ceil(cables));
        Some([due, self.by_cable.iter().skip(1).sum()])
    }

    /// How many latencies are missing beside so many that are known: those of what was sent and not delivered, in
    /// proportion, since some are of samples. Copies that leave by a cable which is limited are not timed.
    pub(crate) fn missing_beside(&self, known: u64) -> u64 {
        let of_all = [self.offered, self.delivered];
        let of_others = self.of_others().filter(|_| self.is_first_limited);
        let [due, delivered] = of_others.unwrap_or(of_all);
        let unsent: u64 = [NOT_SENT, REFUSED].iter().filter_map(|at| self.drops.get(*at)).sum();
        let sent = due as f64 * (1.0 - unsent as f64 / self.offered.max(1) as f64);
        let lost = (sent - delivered as f64).max(0.0);
        match (self.unknown, delivered) {
            (Some(_), _) => 0,
            (None, 0) => lost.round() as u64,
            (None, _) => (known as f64 * lost / delivered as f64).round() as u64,
        }
    }
}

/// How the base's own CPU time per record changed over a race.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaseDrift {
    /// Generations that tell.
    pub generations: usize,
    /// From the first to the last, as a share: 0.05 is 5 % more at the end.
    pub change: f64,
    /// How often chance alone gives as clear a trend (Mann-Kendall).
    pub p: f64,
    /// From one round to the next, as a share.
    pub per_round: f64,
    /// Whether that is less than a difference that matters, so that pairs of a round absorb it.
    pub is_absorbed: bool,
}

/// What a generator did when it was offered 1.5 times a load into a sink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Headroom {
    /// The load, frames per second.
    pub load_pps: u64,
    /// Frames per second asked for.
    pub asked_pps: f64,
    /// Frames per second sent.
    pub achieved_pps: f64,
    /// Send time behind schedule: 99th percentile, ns.
    pub late_p99_ns: u64,
    /// How it missed the schedule; empty if it kept it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// How busy a client was with an arm in a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientShare {
    /// Index into `arms`.
    pub arm: usize,
    /// Index into `loads_pps`.
    pub load: usize,
    /// What its side used of the time in which it asked: the median of the arm's segments.
    pub share: f64,
}

impl Headroom {
    /// Whether the generator could send half as much again.
    pub fn is_kept(&self) -> bool {
        self.missing.is_empty()
    }
}

impl RaceResult {
    /// The requests of a load that is a closed loop of so many.
    pub(crate) fn requests_of(&self, load: usize) -> Option<u64> {
        let first = self.loads_pps.len().checked_sub(self.closed_requests.len())?;
        self.closed_requests.get(load.checked_sub(first)?).copied()
    }

    /// The load at which every arm had a rate of its own.
    pub(crate) fn own_load(&self) -> Option<usize> {
        own_load(self.own_share, self.loads_pps.len(), self.closed_requests.len())
    }

    /// False for a load at which the generator was seen to have no headroom.
    pub(crate) fn has_headroom(&self, load: usize) -> bool {
        let Some(&pps) = self.loads_pps.get(load) else { return true };
        self.headroom.iter().filter(|kept| kept.load_pps == pps).all(Headroom::is_kept)
    }
}

/// Which of so many loads is the one at which every arm has a rate of its own: that in front of the closed loops, of
/// which there are so many with a number of requests, or one without.
pub(crate) fn own_load(share: Option<f64>, loads: usize, counted: usize) -> Option<usize> {
    share.and_then(|_| loads.checked_sub(counted.max(1) + 1))
}

/// The connections of a client in one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// How many it has, open or not.
    pub open: u32,
    /// How often one was lost, or given up for an answer that was wrong or did not come.
    pub lost: u32,
    /// How many were opened again behind the segment.
    pub reopened: u32,
}

/// How well the generator kept its schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorReport {
    /// Frames per second asked for.
    pub asked_pps: f64,
    /// Frames per second sent.
    pub achieved_pps: f64,
    /// Frames handed to the kernel.
    pub sent: u64,
    /// Frames that the kernel refused.
    pub refused: u64,
    /// Send time behind schedule: median, ns.
    pub late_p50_ns: u64,
    /// 99th percentile, ns.
    pub late_p99_ns: u64,
    /// Worst, ns.
    pub late_max_ns: u64,
    /// Frames that left before they were due: the generator in the kernel waits for some seconds and no longer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub early: u64,
    /// CPU time of the generator itself, ns (not part of the arm's cost).
    pub cpu_ns: u64,
}

/// CPU time over a window, by the exact accounting of scheduler, softirq and interrupt tracepoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// What is the arm's, on all CPUs: its tasks, its NAPI threads, softirqs of its interfaces, ns.
    pub own_ns: u64,
    /// Of that, what an arm that polls spent on polls which found nothing; absent of one that waits, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spun_ns: Option<u64>,
    /// `own_ns` / [`Ledger::paid_for`], ns; absent when nothing was delivered.
    pub ns_per_record: Option<f64>,
    /// The generator's own tasks, and what the end of the cables that it is at cost; in no other figure, ns.
    pub generator_side_ns: u64,
    /// Interrupts and softirqs of unknown cause; in no other figure, ns.
    pub unattributed_ns: u64,
    /// Of that, what interrupted the arm's own tasks: some of it may be the arm's doing, ns. Absent in results before
    /// 2026-11-28.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_ns: Option<u64>,
    /// Tasks that are no part of the race; in no other figure, ns.
    pub foreign_ns: u64,
    /// Those that used most of it, by name, ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreigners: Vec<(String, u64)>,
    /// All parts by context, ns. `arm`, `napi thread` and `softirq net_rx` make up `own_ns`; the others stand beside
    /// it.
    pub contexts_ns: BTreeMap<String, u64>,
    /// What the meter itself took of `own_ns`, by the arm's events and what one costs on this machine, ns; absent where
    /// that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metering_ns: Option<u64>,
    /// Sum of all parts, idle and generator included, against CPUs x window: 1 when it closes.
    pub closure: f64,
    /// Cost of the meter itself that is inside these figures, as a sentence.
    pub method: String,
}

/// Memory of an arm's process and what it holds in the kernel, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident set.
    pub rss_bytes: u64,
    /// Locked (mlock, and UMEM where the kernel counts it so).
    pub locked_bytes: u64,
    /// In huge pages.
    pub huge_bytes: u64,
    /// BPF maps (rings included).
    pub bpf_bytes: u64,
    /// Socket buffers and rings asked of the kernel.
    pub socket_bytes: u64,
}

/// One arm at one load, over all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Index into `arms`.
    pub arm: usize,
    /// Index into `loads_pps`.
    pub load: usize,
    /// The ledgers of all rounds, added.
    pub ledger: Ledger,
    /// Those of the segments that rate and loss are made of: no warm-up, and neither left out nor disturbed. Absent
    /// where there are none, and in results before 2026-11-29.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Ledger>,
    /// Records per second: median, minimum, maximum over rounds.
    pub records_per_s: Option<[f64; 3]>,
    /// CPU ns per record: median, minimum, maximum over rounds.
    pub cpu_ns_per_record: Option<[f64; 3]>,
    /// CPU by context, ns per delivered record, over the segments that its CPU time is made of.
    pub contexts_ns_per_record: BTreeMap<String, f64>,
    /// Latencies of all rounds merged, scope `wire to app`.
    pub wire_to_app: Option<LatencySummary>,
    /// Its curve, for the plot.
    pub wire_to_app_curve: Vec<CurvePoint>,
    /// Latencies of all rounds merged, scope `app only`.
    pub app_only: Option<LatencySummary>,
    /// Its curve.
    pub app_only_curve: Vec<CurvePoint>,
    /// Round trips of all rounds merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Rtt>,
    /// Their curve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rtt_curve: Vec<CurvePoint>,
    /// From due to arrival, all rounds merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_to_arrival: Option<Rtt>,
    /// Their curve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub due_to_arrival_curve: Vec<CurvePoint>,
    /// Largest memory seen.
    pub memory: Memory,
}

impl Summary {
    /// Where all went in the segments that figures are made of; in all, where it is not known of them alone.
    pub fn used(&self) -> &Ledger {
        self.used.as_ref().unwrap_or(&self.ledger)
    }
}

/// Of a race of pings, what was measured without an offered load. Its findings stand among the
/// others, with the load index one beyond the last of `loads_pps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingSection {
    /// The real ping's version; `None` if none was run.
    pub program: Option<String>,
    /// Pings per trial, the same for every arm.
    pub pings_per_trial: u32,
    /// Between two, us.
    pub interval_us: u32,
    /// One per arm, all blocks merged; empty if none was run.
    pub pings: Vec<PingRow>,
    /// The same beside a load of ours; empty if none was run.
    #[serde(default)]
    pub pings_loaded: Vec<PingRow>,
    /// That load, requests per second.
    #[serde(default)]
    pub ping_load_pps: u64,
    /// Loss up to which a rate counts as carried.
    pub loss_max_share: f64,
    /// The rates searched between, per second.
    pub searched_pps: [u64; 2],
    /// One per arm; empty if none was searched.
    pub capacities: Vec<CapacityRow>,
}

/// The real pings of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PingRow {
    /// Index into `arms`.
    pub arm: usize,
    /// Requests sent; sent = replied + without reply.
    pub sent: u64,
    /// Requests replied to.
    pub replied: u64,
    /// Replies to a request that had one.
    pub duplicates: u64,
    /// As ping printed them, to the microsecond.
    pub rtt: Rtt,
}

/// The capacity of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityRow {
    /// Index into `arms`.
    pub arm: usize,
    /// Highest rate carried, requests per second: median, minimum, maximum over rounds.
    pub pps: Option<[f64; 3]>,
    /// Blocks searched.
    pub searches: usize,
    /// Of them, those whose end was the highest rate asked for, or, where that is so of most, the generator: the
    /// capacity is not less than what stands here.
    pub open_ended: usize,
    /// Of them, those that are in no figure: the generator did not keep the rate at which they ended, as it did in
    /// others, or something disturbed the lowest. Absent in results before 2026-11-28.
    #[serde(default, skip_serializing_if = "is_none_of_them")]
    pub left_out: usize,
}

/// The highest rates that were carried. Its findings stand among the others, with the load index one beyond the last of
/// `loads_pps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacitySection {
    /// Loss up to which a rate counts as carried.
    pub loss_max_share: f64,
    /// The rates searched between, offered packets per second.
    pub searched_pps: [u64; 2],
    /// Trials of each rate, all of which had to carry it.
    pub trials: u32,
    /// How long each was, ms.
    pub trial_ms: u64,
    /// One per arm.
    pub capacities: Vec<CapacityRow>,
    /// The same with no loss at all.
    pub zero_loss: Vec<CapacityRow>,
}

/// One metric of one arm at one load against the base.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// `records/s`, `CPU per record`, `p99 wire to app`, `p99 app only`, `p50 rtt`, `p99 rtt`,
    /// `p50 due to arrival`, `p99 due to arrival`, `loss`;
    /// without an offered load `ping avg`, `ping p50`, both also `under load`, `capacity` and `zero-loss rate`.
    pub metric: String,
    /// Unit of the values behind the effect: `1/s`, `ns`, `share`.
    pub unit: String,
    /// Index into `arms`.
    pub arm: usize,
    /// Index into `loads_pps`; its length, where no load was offered.
    pub load: usize,
    /// Effects per pair, estimate, interval.
    pub comparison: Comparison,
    /// The verdict and what it rests on.
    pub judgement: Judgement,
    /// Whether more segments would change nothing: the race may stop for it.
    pub is_decided: bool,
    /// The same look at its own part of the error rate alone, with nothing that others handed on: what goals and claims
    /// on this metric rest on. Absent in results before 2026-11-28.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_look: Option<Look>,
}

/// What became of one demand of the scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GoalOutcome {
    /// The demand in a sentence: `CPU per record of xdp at 400000/s: at most 0.2 times packet`.
    pub goal: String,
    /// What was measured, with its interval.
    pub measured: String,
    /// Met, missed, or inconclusive (interval across the limit, or invalid).
    pub status: GoalStatus,
}

/// What became of a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimOutcome {
    /// The sentence.
    pub says: String,
    /// The figure that was given with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<String>,
    /// What it comes to: `records/s of burst=256 at the saturating load: at least 1.05 times base`.
    pub test: String,
    /// What was measured, with its interval, or calculated; or why nothing was.
    pub measured: String,
    /// What a reader of the answer must know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The answer.
    pub status: ClaimStatus,
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimStatus {
    /// The whole interval is on its side of the limit, or the figures come to the claimed value.
    Confirmed,
    /// The whole interval is on the other side, or the figures come to something else.
    Refuted,
    /// The interval holds the limit.
    Inconclusive,
    /// This race does not answer it; [`ClaimOutcome::measured`] says why.
    #[serde(rename = "cannot-tell")]
    Unanswered,
    /// No race answers it, but a trace may.
    ForTrace,
}

/// Whether a goal was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GoalStatus {
    /// The whole interval is on the good side.
    Met,
    /// The whole interval is on the bad side.
    Missed,
    /// The interval holds the limit.
    Inconclusive,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_closes_only_when_every_frame_is_named_once() {
        let mut ledger = Ledger { offered: 100, delivered: 90, ..Ledger::default() };
        ledger.drops.insert("veth ring full".to_owned(), 9);
        ledger.balance();
        assert_eq!((ledger.unexplained, ledger.is_closed()), (1, false));
        ledger.drops.insert("rx_queue_full".to_owned(), 1);
        ledger.balance();
        assert!(ledger.is_closed());
        ledger.duplicates = 1;
        assert!(!ledger.is_closed());
    }

    #[test]
    fn a_closed_loop_is_delivered_to_nearly_all_of_its_connections() {
        let of = |loops_broken| Ledger {
            offered: 20_000,
            delivered: 20_000 - loops_broken,
            loops: 1_000,
            loops_broken,
            ..Ledger::default()
        };
        assert!(of(9).delivers() && of(9).loss_share() < 0.001);
        assert!(!of(10).delivers() && of(10).loss_share() < 0.001);
        // What has no loops is known by its loss alone.
        assert!(Ledger { loops: 0, loops_broken: 0, ..of(10) }.delivers());
    }

    #[test]
    fn what_the_others_lost_is_a_share_of_theirs() {
        let of = |by_cable: &[u64], copies| {
            let (by_cable, copies) = (by_cable.to_vec(), Some(copies));
            Ledger { offered: 800, by_cable, copies, ..Ledger::default() }.loss_share_of_others()
        };
        assert_eq!(of(&[9, 100, 100, 100, 100, 100, 100, 100], 8), Some(0.0));
        assert_eq!(of(&[100, 93, 100, 100, 100, 100, 100, 100], 8), Some(0.01));
        // Eight outputs of three cables: three on the first, and three and two.
        assert_eq!(of(&[0, 300, 100], 8), Some(0.2));
        assert_eq!(of(&[500], 8), None);
        assert_eq!(Ledger::default().loss_share_of_others(), None);
    }

    #[test]
    fn latencies_are_missing_of_what_was_sent_and_lost_in_proportion_to_those_that_are_known() {
        let drops = [(NOT_SENT.to_owned(), 6), (REFUSED.to_owned(), 4), ("a pool".to_owned(), 90)];
        let ledger =
            Ledger { offered: 1_000, delivered: 900, drops: drops.into(), ..Ledger::default() };
        assert_eq!([900, 450].map(|known| ledger.missing_beside(known)), [90, 45]);
        let silent = Ledger { delivered: 0, ..ledger.clone() };
        assert_eq!(silent.missing_beside(0), 990);
        let unknown = Ledger { unknown: Some(1_000), ..silent };
        assert_eq!(unknown.missing_beside(0), 0);
        // 100 packets, copies of which leave by the first cable, which loses half, and the second, which loses none.
        let copies = Ledger {
            offered: 200,
            delivered: 150,
            copies: Some(2),
            by_cable: vec![50, 100],
            ..Ledger::default()
        };
        let limited = Ledger { is_first_limited: true, ..copies.clone() };
        assert_eq!([&copies, &limited].map(|ledger| ledger.missing_beside(60)), [20, 0]);
        assert_eq!([copies, limited].map(|ledger| ledger.delivers()), [false, true]);
    }

    #[test]
    fn results_of_the_same_major_schema_are_read() {
        for (schema, readable) in [
            ("laneway-race/2", true),
            (SCHEMA, true),
            ("laneway-race/2.7", true),
            ("laneway-race/1.3", false),
            ("laneway-race/20", false),
            ("", false),
        ] {
            assert_eq!(is_readable(schema), readable, "{schema}");
        }
    }

    #[test]
    fn exit_codes_are_the_stable_ones() {
        let codes = [Outcome::Done, Outcome::GoalMissed, Outcome::Inconclusive, Outcome::Invalid];
        assert_eq!(codes.map(Outcome::exit_code), [0, 1, 3, 4]);
    }
}
