//! A scenario: a TOML file that fully describes a race.

use crate::plan::{Plant, SEGMENTS_MAX};
use laneway_core::LaneSpec;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Most arms, the noise floor not counted.
pub const ARMS_MAX: usize = 16;
/// Most loads: each may be offered four times in a trial.
pub const LOADS_MAX: usize = SEGMENTS_MAX / 4;
/// Longest segment, ms.
const SEGMENT_MS_MAX: u64 = 600_000;
/// Highest load: what the schedule's nanoseconds can tell apart.
const LOAD_PPS_MAX: u64 = 100_000_000;

/// A race, described.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is about, in a line.
    pub title: String,
    /// The app raced.
    pub app: String,
    /// The capture replayed; a relative path counts from the scenario's folder.
    pub capture: PathBuf,
    /// How frames enter the wire: `live` (XDP live frames), or the spec of a lane that transmits.
    pub generator: String,
    /// Frames per burst.
    pub burst: u32,
    /// Idle control of each trial, ms.
    pub idle_ms: u64,
    /// Largest p99 of the generator's lateness, us; beyond it a segment is not used.
    pub late_p99_us_max: u64,
    /// The smallest relative difference that matters: the threshold of every verdict on a ratio.
    pub matters: f64,
    /// CPU of the arm's worker and of the receive stack of its interface.
    pub arm_cpu: usize,
    /// CPU of the generator.
    pub generator_cpu: usize,
    /// Seed of block order and resampling.
    pub seed: u64,
    /// The short version.
    pub quick: Extent,
    /// The long version.
    pub full: Extent,
    /// The arms; the first is the base of every comparison and runs twice, for the noise floor.
    #[serde(rename = "arm")]
    pub arms: Vec<ArmPlan>,
    /// What is demanded.
    #[serde(rename = "goal", default)]
    pub goals: Vec<Goal>,
}

/// How much is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    /// Offered loads, frames per second, rising.
    pub loads_pps: Vec<u64>,
    /// Length of a segment, ms.
    pub segment_ms: u64,
    /// Fewest and most blocks, both even.
    pub blocks: [usize; 2],
}

/// An arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmPlan {
    /// Its name in tables; the lane spec if left out.
    #[serde(default)]
    pub name: String,
    /// Lane spec.
    pub lane: String,
    /// What becomes of a frame after it was looked at, and whatever else a reader must know.
    #[serde(default)]
    pub note: String,
    /// A fault to be found.
    #[serde(default, skip_serializing_if = "is_honest")]
    pub plant: Plant,
}

fn is_honest(plant: &Plant) -> bool {
    *plant == Plant::None
}

/// A demand on one metric of one arm at one load: of its ratio to another arm, or of its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Which metric.
    pub metric: Metric,
    /// Of which arm.
    pub arm: String,
    /// Against which arm; none: the value itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// At which load.
    pub load_pps: u64,
    /// Upper limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Lower limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Metric {
    /// Records delivered per second.
    #[serde(rename = "records/s")]
    Rate,
    /// CPU time per delivered record, idle control subtracted, ns.
    #[serde(rename = "CPU per record")]
    Cpu,
    /// 99th percentile from the scheduled send time to the app, ns.
    #[serde(rename = "p99 wire to app")]
    WireToApp,
    /// 99th percentile from the frame in user hands to the record handled, ns.
    #[serde(rename = "p99 app only")]
    AppOnly,
    /// Lost frames as a share of the offered.
    #[serde(rename = "loss")]
    Loss,
}

impl Metric {
    /// All.
    pub const ALL: [Metric; 5] =
        [Metric::Rate, Metric::Cpu, Metric::WireToApp, Metric::AppOnly, Metric::Loss];

    /// The name in tables and scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Rate => "records/s",
            Metric::Cpu => "CPU per record",
            Metric::WireToApp => "p99 wire to app",
            Metric::AppOnly => "p99 app only",
            Metric::Loss => "loss",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Rate => "1/s",
            Metric::Cpu | Metric::WireToApp | Metric::AppOnly => "ns",
            Metric::Loss => "share",
        }
    }
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("scenario {path}: {source}; give a scenario file or the name of an app")]
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
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: name(), source })?;
        let mut scenario: Scenario = toml::from_str(&text)
            .map_err(|e| ScenarioError::Parse { path: name(), why: e.to_string() })?;
        if scenario.capture.is_relative() {
            let folder = path.parent().unwrap_or_else(|| Path::new("."));
            scenario.capture = folder.join(&scenario.capture);
        }
        Ok(scenario)
    }

    /// Puts other arms in place of the scenario's; the first is the base. An arm of the scenario
    /// that has the same lane spec or name keeps its name and note. Goals on arms that are gone go,
    /// too.
    pub fn race_these(&mut self, lanes: &[String]) {
        let known = std::mem::take(&mut self.arms);
        self.arms = lanes
            .iter()
            .map(|lane| {
                let same = known.iter().find(|arm| arm.lane == *lane || arm.name == *lane);
                same.cloned().unwrap_or_else(|| ArmPlan {
                    name: String::new(),
                    lane: lane.clone(),
                    note: String::new(),
                    plant: Plant::None,
                })
            })
            .collect();
        self.name_arms();
        let has = |name: &String| self.arms.iter().any(|arm| arm.name == *name);
        self.goals.retain(|goal| has(&goal.arm) && goal.over.as_ref().is_none_or(&has));
    }

    fn name_arms(&mut self) {
        for arm in &mut self.arms {
            if arm.name.is_empty() {
                arm.name.clone_from(&arm.lane);
            }
        }
    }

    /// Checks every value, and names the arms that have no name.
    ///
    /// # Errors
    /// The first value that cannot be.
    pub fn check(&mut self) -> Result<(), ScenarioError> {
        if self.app != "features" {
            let hint = "the app that can be raced is `features`";
            return Err(value("app", &self.app, hint));
        }
        self.name_arms();
        if self.arms.is_empty() || self.arms.len() > ARMS_MAX {
            return Err(value("the number of arms", self.arms.len(), format!("1 to {ARMS_MAX}")));
        }
        for (i, arm) in self.arms.iter().enumerate() {
            if self.arms[..i].iter().any(|other| other.name == arm.name) {
                let hint = "give each its own `name`";
                return Err(value("the name of two arms", &arm.name, hint));
            }
            if let Err(error) = arm.lane.parse::<LaneSpec>() {
                return Err(value(
                    format!("lane of arm `{}`", arm.name),
                    &arm.lane,
                    error.to_string(),
                ));
            }
            if let Plant::Slow { share } = arm.plant
                && !(0.0..=10.0).contains(&share)
            {
                return Err(value("plant.slow.share", share, "0 to 10"));
            }
        }
        if !(1..=256).contains(&self.burst) {
            return Err(value("burst", self.burst, "1 to 256"));
        }
        if !(50..=60_000).contains(&self.idle_ms) {
            return Err(value("idle_ms", self.idle_ms, "50 to 60000"));
        }
        if !(0.001..=1.0).contains(&self.matters) {
            return Err(value("matters", self.matters, "0.001 to 1, a share: 0.05 is 5 %"));
        }
        if self.arm_cpu == self.generator_cpu {
            let hint = "arm_cpu and generator_cpu must differ, or the generator cannot keep time";
            return Err(value("arm_cpu", self.arm_cpu, hint));
        }
        for extent in [&self.quick, &self.full] {
            extent.check()?;
        }
        let known = |name: &String| self.arms.iter().any(|arm| arm.name == *name);
        for goal in &self.goals {
            for arm in [Some(&goal.arm), goal.over.as_ref()].into_iter().flatten() {
                if !known(arm) {
                    return Err(value("an arm of a goal", arm, "it must be the name of an arm"));
                }
            }
            if goal.at_most.is_some() == goal.at_least.is_some() {
                let hint = "give `at_most` or `at_least`, one of them";
                return Err(value("the limit of a goal", goal.sentence(), hint));
            }
        }
        Ok(())
    }
}

impl Extent {
    fn check(&self) -> Result<(), ScenarioError> {
        let loads = &self.loads_pps;
        let rising = loads.is_sorted_by(|a, b| a < b);
        let possible = loads.iter().all(|load| (1..=LOAD_PPS_MAX).contains(load));
        if loads.is_empty() || loads.len() > LOADS_MAX || !rising || !possible {
            let hint = format!(
                "1 to {LOADS_MAX} loads in rising order, each 1 to {LOAD_PPS_MAX} frames/s"
            );
            return Err(value("loads_pps", format!("{loads:?}"), hint));
        }
        if !(100..=SEGMENT_MS_MAX).contains(&self.segment_ms) {
            let hint = format!("100 to {SEGMENT_MS_MAX}");
            return Err(value("segment_ms", self.segment_ms, hint));
        }
        let most = loads[loads.len() - 1].saturating_mul(self.segment_ms) / 1000;
        if most >= u64::from(u32::MAX) {
            let hint = "frames per segment must stay below 2^32: shorten segment_ms";
            return Err(value("the number of frames of the longest segment", most, hint));
        }
        let [min, max] = self.blocks;
        laneway_stats::StopRule::new(min, max)
            .map(drop)
            .map_err(|e| value("blocks", format!("{:?}", self.blocks), e.to_string()))
    }
}

impl Goal {
    /// The demand for a reader.
    pub fn sentence(&self) -> String {
        let limit = match (self.at_most, self.at_least) {
            (Some(limit), _) => format!("at most {limit}"),
            (None, Some(limit)) => format!("at least {limit}"),
            (None, None) => "no limit".to_owned(),
        };
        let what = match &self.over {
            Some(over) => format!("{limit} times {over}"),
            None => format!("{limit} {}", self.metric.unit()),
        };
        format!("{} of {} at {}/s: {what}", self.metric.name(), self.arm, self.load_pps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        toml::from_str(
            r#"
            title = "t"
            app = "features"
            capture = "c.pcap"
            generator = "live"
            burst = 16
            idle_ms = 300
            late_p99_us_max = 100
            matters = 0.05
            arm_cpu = 0
            generator_cpu = 1
            seed = 1
            quick = { loads_pps = [1000, 2000], segment_ms = 1000, blocks = [4, 4] }
            full = { loads_pps = [1000], segment_ms = 1000, blocks = [10, 40] }
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
        scenario.check().unwrap();
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
    fn a_value_that_cannot_be_is_named_with_what_it_may_be() {
        type Change = fn(&mut Scenario);
        let changes: [(Change, &str); 8] = [
            (|s| s.arms.clear(), "number of arms"),
            (|s| s.arms[1].name = "packet".into(), "name of two arms"),
            (|s| s.arms[0].lane = "packet:=".into(), "lane of arm"),
            (|s| s.burst = 0, "burst"),
            (|s| s.generator_cpu = 0, "arm_cpu"),
            (|s| s.quick.loads_pps = vec![2, 1], "loads_pps"),
            (|s| s.quick.blocks = [3, 4], "blocks"),
            (|s| s.goals[0].over = Some("x".into()), "arm of a goal"),
        ];
        for (change, part) in changes {
            let mut scenario = scenario();
            change(&mut scenario);
            let sentence = scenario.check().expect_err(part).to_string();
            assert!(sentence.contains(part), "{sentence}");
        }
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
