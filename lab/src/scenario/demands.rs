//! What a scenario asks of its arms: goals, which are demanded, and claims, which an author made.
//!
//! A claim is a sentence of an author and what answers it: a test by this race, a calculation with the author's own
//! figures, a trace, or nothing that this bench can do, with the reason. Whatever answers it, it has a row wherever the
//! race is reported: a sentence that cannot be answered here is not left out.

use super::arithmetic::Arithmetic;
use super::{CapacityPlan, Extent, Fanout, PingPlan, Scenario, ScenarioError, value};
use laneway_kinds::Metric;
use serde::{Deserialize, Serialize};

/// A demand on one metric of one arm at one load: of its ratio to another arm or to another load, or of its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Which metric.
    pub metric: Metric,
    /// Of which arm.
    pub arm: String,
    /// Against which arm, as a ratio; none: the value itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// Instead: by how much it is more than this arm's, in the metric's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<String>,
    /// At which load; none: at the saturating one, or of a metric of pings, at none. Of a closed loop of so many
    /// requests: that number of `requests`.
    #[serde(default, alias = "requests", skip_serializing_if = "Option::is_none")]
    pub load_pps: Option<u64>,
    /// Against the same arm at which other load.
    #[serde(default, alias = "over_requests", skip_serializing_if = "Option::is_none")]
    pub over_load_pps: Option<u64>,
    /// In which variant only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Upper limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Lower limit; of a claim, both may be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
}

/// A quoted sentence, and what answers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Claim {
    /// The sentence, as short as it can be quoted.
    pub says: String,
    /// The figure that was given with it, with its unit.
    pub then: Option<String>,
    /// What a reader of the answer must know; may be empty.
    pub note: String,
    /// In which variant only.
    pub variant: Option<String>,
    /// What answers it.
    pub answer: Answer,
}

/// What answers a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// This race: confirmed if the demand is met, refuted if it is missed.
    Race(Goal),
    /// A calculation: confirmed if the author's figures come to the claimed value.
    Arithmetic(Arithmetic),
    /// A trace, and no race.
    Trace,
    /// Nothing that can be done here, for this reason.
    Nothing(String),
}

/// A claim as it stands in a file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    says: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    then: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered_by: Option<Answerer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cannot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    test: Option<Goal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arithmetic: Option<Arithmetic>,
}

/// What answers a claim that no race does.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answerer {
    Trace,
}

impl TryFrom<Written> for Claim {
    type Error = String;

    fn try_from(written: Written) -> Result<Claim, String> {
        let Written { says, then, note, variant, answered_by, cannot, test, arithmetic } = written;
        if says.trim().is_empty() {
            return Err("a claim says nothing; quote the sentence".to_owned());
        }
        let answer = match (test, arithmetic, answered_by, cannot) {
            (Some(test), None, None, None) => Answer::Race(test),
            (None, Some(arithmetic), None, None) => Answer::Arithmetic(arithmetic),
            (None, None, Some(Answerer::Trace), None) => Answer::Trace,
            (None, None, None, Some(reason)) => Answer::Nothing(reason),
            _ => {
                return Err(format!(
                    "the claim `{says}` needs one answer: give it `test`, `arithmetic`, `answered_by = \"trace\"` or \
                     `cannot = \"the reason\"`, one of them"
                ));
            }
        };
        answer.check().map_err(|why| format!("the claim `{says}`: {why}"))?;
        Ok(Claim { says, then, note, variant, answer })
    }
}

impl From<Claim> for Written {
    fn from(claim: Claim) -> Written {
        let Claim { says, then, note, variant, answer } = claim;
        let mut written = Written {
            says,
            then,
            note,
            variant,
            answered_by: None,
            cannot: None,
            test: None,
            arithmetic: None,
        };
        match answer {
            Answer::Race(test) => written.test = Some(test),
            Answer::Arithmetic(arithmetic) => written.arithmetic = Some(arithmetic),
            Answer::Trace => written.answered_by = Some(Answerer::Trace),
            Answer::Nothing(reason) => written.cannot = Some(reason),
        }
        written
    }
}

impl Answer {
    /// Checks what can be checked without the scenario.
    fn check(&self) -> Result<(), String> {
        match self {
            Answer::Race(test) if test.variant.is_some() => {
                Err("name the `variant` of a claim beside `says`, not in its test".to_owned())
            }
            Answer::Arithmetic(arithmetic) => {
                let Arithmetic { figure, is, within, .. } = arithmetic;
                arithmetic.value().map_err(|why| format!("figure `{figure}`: {why}"))?;
                if !is.is_finite() || *is == 0.0 || !(0.0..=1.0).contains(within) {
                    return Err(format!(
                        "`is` is {is} and `within` {within}; use a number other than 0, and a share up to 1"
                    ));
                }
                Ok(())
            }
            Answer::Nothing(reason) if reason.trim().is_empty() => {
                Err("`cannot` is empty; give the reason".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl Claim {
    /// What it comes to, for a reader; a test without a rate is one there, and these loads are numbers of requests.
    pub(crate) fn sentence_of(&self, without_rate: &str, counted: &[u64]) -> String {
        match &self.answer {
            Answer::Race(test) => test.sentence_of(without_rate, counted),
            Answer::Arithmetic(arithmetic) => arithmetic.sentence(),
            Answer::Trace => "what a trace shows, and no race".to_owned(),
            Answer::Nothing(_) => "nothing that this bench can measure".to_owned(),
        }
    }

    /// Whether it is one of this variant.
    pub(super) fn is_of(&self, variant: &str) -> bool {
        self.variant.as_ref().is_none_or(|name| name == variant)
    }

    /// Whether all arms that it needs satisfy `has`.
    pub(super) fn runs(&self, has: impl Fn(&String) -> bool) -> bool {
        match &self.answer {
            Answer::Race(test) => test.runs(has),
            _ => true,
        }
    }
}

impl Goal {
    /// The demand for a reader.
    pub fn sentence(&self) -> String {
        self.sentence_of("at the saturating load", &[])
    }

    /// The same, where a demand without a rate is one there, and these loads are numbers of requests of a closed loop.
    pub(crate) fn sentence_of(&self, without_rate: &str, counted: &[u64]) -> String {
        let load_name = |load: u64| match counted.contains(&load) {
            true => format!("in {load} requests"),
            false => format!("at {load}/s"),
        };
        let limits = [("at least", self.at_least), ("at most", self.at_most)];
        let limits = limits.into_iter().filter_map(|(word, limit)| Some((word, limit?)));
        let limits: Vec<String> = limits.map(|(word, limit)| format!("{word} {limit}")).collect();
        let limit = match limits.as_slice() {
            [] => "no limit".to_owned(),
            limits => limits.join(" and "),
        };
        let what = match (&self.over, &self.above, self.over_load_pps) {
            (Some(over), ..) => format!("{limit} times {over}"),
            (None, Some(other), _) => format!("{} above {other}", self.metric.in_unit(&limit)),
            (None, None, Some(pps)) => format!("{limit} times that {}", load_name(pps)),
            (None, None, None) => self.metric.in_unit(&limit),
        };
        let load = match self.load_pps {
            Some(pps) => format!(" {}", load_name(pps)),
            None if self.is_saturating() => format!(" {without_rate}"),
            None => String::new(),
        };
        format!("{} of {}{load}: {what}", self.metric.name(), self.arm)
    }

    /// Whether it is one at the saturating load.
    pub(crate) fn is_saturating(&self) -> bool {
        self.load_pps.is_none() && !self.metric.has_no_load()
    }

    /// Whether it asks what is left of a CPU under a load that arms may not deliver, and not what their work costs.
    pub(crate) fn is_of_overload(&self) -> bool {
        self.metric == Metric::PerCpu && self.is_saturating()
    }

    /// Whether all arms that it needs satisfy `has`.
    pub(super) fn runs(&self, has: impl Fn(&String) -> bool) -> bool {
        has(&self.arm) && self.other_arm().is_none_or(has)
    }

    /// The arm that it is compared with, as a ratio or by difference.
    pub(crate) fn other_arm(&self) -> Option<&String> {
        self.over.as_ref().or(self.above.as_ref())
    }

    /// Checks it as a `kind` (goal, or claim) of this scenario, whose arms have their names.
    ///
    /// # Errors
    /// The first value that cannot be.
    fn check(&self, scenario: &Scenario, kind: &str) -> Result<(), ScenarioError> {
        let refused = |part: &str, hint: &str| {
            Err(value(format!("the {part} of a {kind}"), self.sentence(), hint))
        };
        let saturates = |extent: &Extent| extent.saturate || extent.topspeed || extent.closed_loop;
        if self.metric == Metric::LossOfOthers && !scenario.fanouts().any(|it| it.cables > 1) {
            let hint = "there are no others: give `fanout` more than one of `cables`";
            return refused("metric", hint);
        }
        if self.metric.is_searched() {
            if self.load_pps.is_some() || self.over_load_pps.is_some() {
                return refused("load", "a search has loads of its own: leave it out");
            }
            let by_pings = self.metric == Metric::Capacity
                && scenario.pings().any(|pings| pings.capacity_steps > 0);
            if scenario.capacities().next().is_none() && !by_pings {
                return refused(
                    "metric",
                    "nothing is searched here: the scenario has no `[capacity]`",
                );
            }
        } else if self.metric.is_of_pings() {
            if self.load_pps.is_some() || self.over_load_pps.is_some() {
                return refused("load", "pings have none: leave it out");
            }
            if scenario.ping.is_none() {
                return refused("metric", "no pings are sent here: the scenario has no `[ping]`");
            }
        } else if self.is_saturating() && !scenario.extents().any(saturates) {
            let hint = "give it a `load_pps`, or the scenario `saturate = true`, `topspeed = true` or `closed_loop = true`";
            return refused("load", hint);
        } else if kind == GOAL
            && self.is_saturating()
            && self.metric.is_cost()
            && !self.is_of_overload()
            && !scenario.extents().any(|extent| extent.closed_loop)
        {
            let hint = "an arm that loses packets there has no such cost: give it a `load_pps` that both arms deliver, \
                        or ask what is left of a CPU, `metric = \"replies per CPU-second\"`";
            return refused("load", hint);
        }
        if self.over.is_some() && self.above.is_some() {
            return refused("other arm", "give `over`, a ratio, or `above`, a difference");
        }
        if self.above.is_some() && self.metric.is_searched() {
            let hint = "what a search finds is known to a share of it: give `over`, a ratio";
            return refused("other arm", hint);
        }
        if let Some(other) = self.over_load_pps
            && (self.other_arm().is_some() || self.load_pps.is_none_or(|pps| pps == other))
        {
            let hint =
                "with `over_load_pps` give another `load_pps`, and no `over`: it is the same arm's";
            return refused("load", hint);
        }
        for name in [Some(&self.arm), self.other_arm()].into_iter().flatten() {
            let Some(arm) = scenario.arms.iter().find(|arm| arm.name == *name) else {
                let hint = "it must be the name of an arm";
                return Err(value(format!("an arm of a {kind}"), name, hint));
            };
            if !arm.counts && self.metric.is_of_delivery() {
                let hint = format!("what `{name}` received is unknown (`counts = false`)");
                return refused("metric", &hint);
            }
        }
        match (kind, self.at_least, self.at_most) {
            (_, None, None) | (GOAL, Some(_), Some(_)) => {
                refused("limit", "give `at_most` or `at_least`, one of them")
            }
            (_, Some(least), Some(most)) if least >= most => {
                refused("limit", "`at_least` must be below `at_most`")
            }
            _ => Ok(()),
        }
    }
}

const GOAL: &str = "goal";

impl Scenario {
    /// Every version of every variant.
    pub(super) fn extents(&self) -> impl Iterator<Item = &Extent> {
        let of_variants = self.variants.iter().flat_map(|v| [v.quick.as_ref(), v.full.as_ref()]);
        of_variants.flatten().chain([&self.quick, &self.full])
    }

    /// What is measured of pings, in all variants.
    fn pings(&self) -> impl Iterator<Item = &PingPlan> {
        self.variants.iter().filter_map(|variant| variant.ping.as_ref()).chain(&self.ping)
    }

    /// What is searched, in all variants.
    fn capacities(&self) -> impl Iterator<Item = &CapacityPlan> {
        self.variants.iter().filter_map(|variant| variant.capacity.as_ref()).chain(&self.capacity)
    }

    /// What is copied where, in all variants.
    pub(super) fn fanouts(&self) -> impl Iterator<Item = &Fanout> {
        self.variants.iter().filter_map(|variant| variant.fanout.as_ref()).chain(&self.fanout)
    }

    /// Checks what is asked of the arms, which have their names.
    pub(super) fn check_demands(&self) -> Result<(), ScenarioError> {
        self.goals.iter().try_for_each(|goal| goal.check(self, GOAL))?;
        self.claims.iter().try_for_each(|claim| self.check_claim(claim))
    }

    fn check_claim(&self, claim: &Claim) -> Result<(), ScenarioError> {
        match &claim.answer {
            Answer::Race(test) => test.check(self, "claim"),
            _ => Ok(()),
        }
    }

    /// What is wrong with a claim of this file, and which it is. What the command line may change afterwards, loads and
    /// variants, is looked at here only.
    pub(super) fn stray_claim(&self) -> Option<(usize, ScenarioError)> {
        let wrong = |claim: &Claim| {
            if let Some(name) = &claim.variant
                && !self.variants.iter().any(|variant| variant.name == *name)
            {
                let hint = "it must be the name of a variant";
                return Err(value("the variant of a claim", name, hint));
            }
            let Answer::Race(test) = &claim.answer else { return Ok(()) };
            let offered = |load: &u64| {
                let all =
                    |e: &Extent| e.loads_pps.contains(load) || e.closed_requests.contains(load);
                self.extents().any(all)
            };
            let loads = [test.load_pps, test.over_load_pps];
            if let Some(pps) = loads.into_iter().flatten().find(|pps| !offered(pps)) {
                let hint = "no version of the race offers it: see loads_pps and closed_requests";
                return Err(value("a load of a claim", pps, hint));
            }
            self.check_claim(claim)
        };
        let mut claims = self.claims.iter().enumerate();
        claims.find_map(|(index, claim)| Some((index, wrong(claim).err()?)))
    }
}

/// The claims of a text, each with the line, from 1, on which it begins; none, if it is no scenario.
fn placed(text: &str) -> Vec<(usize, toml::Value)> {
    #[derive(Deserialize)]
    struct Places {
        #[serde(default)]
        claim: Vec<toml::Spanned<toml::Value>>,
    }
    let places = toml::from_str(text).map_or_else(|_| Vec::new(), |Places { claim }| claim);
    let line = |start: usize| 1 + text.get(..start).unwrap_or_default().matches('\n').count();
    places.into_iter().map(|place| (line(place.span().start), place.into_inner())).collect()
}

/// The line of the claim with this index.
pub(super) fn line_of_claim(text: &str, index: usize) -> usize {
    placed(text).get(index).map_or(1, |(line, _)| *line)
}

/// The first claim of a text that is none, in a sentence with its line: a parser's own word is of all of them together.
pub(super) fn wrong_claim(text: &str) -> Option<String> {
    placed(text).into_iter().find_map(|(line, claim)| {
        let why = claim.try_into::<Claim>().err()?;
        Some(format!("line {line}: {}", why.message()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TablesOf;
    use laneway_registry::{Apps, Lanes};
    use std::path::Path;

    const TABLES: TablesOf<Apps, Lanes> = TablesOf::new();
    const HEAD: &str = "title = 't'
app = 'features'
capture = 'c.pcap'
generator = 'live'
burst = 16
late_p99_us_max = 100
matters = 0.05
arm_cpu = 0
generator_cpu = 1
seed = 1
claims_of = 'another'
quick = { loads_pps = [1000, 2000], segment_ms = 100, time_s = 60, generations = 4 }
full = { loads_pps = [1000], segment_ms = 100, time_s = 600, generations = 20 }
[[arm]]
lane = 'packet'
[[arm]]
lane = 'xdp'
[[claim]]
says = 'it is fast'
then = '2 times'
note = 'n'
test = { metric = 'CPU per record', arm = 'xdp', over = 'packet', load_pps = 1000, at_most = 0.5 }
[[claim]]
";

    fn read(claim: &str) -> Result<Scenario, ScenarioError> {
        Scenario::read(&format!("{HEAD}{claim}"), "file.toml", Path::new("."))
    }

    #[test]
    fn every_kind_of_claim_is_read_printed_and_written_again() {
        for (claim, sentence) in [
            (
                "test = { metric = 'CPU used', arm = 'xdp', load_pps = 2000, over_load_pps = 1000, at_most = 1.1 }",
                "CPU used of xdp at 2000/s: at most 1.1 times that at 1000/s",
            ),
            (
                "test = { metric = 'loss', arm = 'packet', load_pps = 1000, at_least = 0.1, at_most = 0.2 }",
                "loss of packet at 1000/s: at least 0.1 and at most 0.2 share",
            ),
            (
                "arithmetic = { figure = '8.22 / 0.01', is = 822 }",
                "8.22 / 0.01 comes to 822, within 1 %",
            ),
            ("answered_by = 'trace'", "what a trace shows, and no race"),
            ("cannot = 'no such NIC is here'", "nothing that this bench can measure"),
        ] {
            let mut scenario = read(&format!("says = 's'\n{claim}")).expect(claim);
            assert_eq!(scenario.claims[1].sentence_of("at the saturating load", &[]), sentence);
            scenario.check(&TABLES).expect(claim);
            let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
            assert_eq!(again, scenario, "{claim}");
        }
    }

    #[test]
    fn a_claim_that_cannot_be_is_refused_with_its_line() {
        let test = |rest: &str| {
            format!("says = 's'\ntest = {{ metric = 'CPU per record', arm = 'xdp', {rest} }}")
        };
        let loaded = |rest: &str| test(&format!("load_pps = 1000, {rest}"));
        for (claim, part) in [
            ("says = 's'".to_owned(), "needs one answer"),
            ("says = 's'\ncannot = 'x'\nanswered_by = 'trace'".to_owned(), "needs one answer"),
            ("says = ' '\ncannot = 'x'".to_owned(), "says nothing"),
            ("says = 's'\ncannot = ''".to_owned(), "give the reason"),
            ("says = 's'\nanswered_by = 'magic'".to_owned(), "expected `trace`"),
            ("says = 's'\ncannot = 'x'\nwhy = 'y'".to_owned(), "unknown field `why`"),
            ("says = 's'\ncannot = 'x'\nvariant = 'live'".to_owned(), "the variant of a claim is live"),
            ("says = 's'\narithmetic = { figure = '1 /', is = 2 }".to_owned(), "a number is missing"),
            ("says = 's'\narithmetic = { figure = '1', is = 0 }".to_owned(), "a number other than 0"),
            (loaded("variant = 'live', at_most = 1"), "beside `says`"),
            (loaded("over = 'xpd', at_most = 1"), "an arm of a claim is xpd"),
            (loaded(""), "the limit of a claim"),
            (loaded("at_most = 1, at_least = 2"), "`at_least` must be below"),
            (loaded("over_load_pps = 1000, at_most = 1"), "another `load_pps`"),
            (loaded("over_load_pps = 2000, over = 'packet', at_most = 1"), "no `over`"),
            (loaded("over_load_pps = 3000, at_most = 1"), "a load of a claim is 3000"),
            (test("load_pps = 1500, at_most = 1"), "a load of a claim is 1500"),
            (test("at_most = 1"), "saturate = true"),
            (
                "says = 's'\ntest = { metric = 'ping avg', arm = 'xdp', load_pps = 1000, at_most = 1 }".to_owned(),
                "pings have none",
            ),
            (
                "says = 's'\ntest = { metric = 'ping avg', arm = 'xdp', at_most = 1 }".to_owned(),
                "no `[ping]`",
            ),
            (
                "says = 's'\ntest = { metric = 'capacity', arm = 'xdp', above = 'packet', at_least = 1 }\n\
                 [capacity]\npps = [1000, 2000]\nsteps = 4\nms = 100"
                    .to_owned(),
                "known to a share of it: give `over`",
            ),
        ] {
            let why = read(&claim).expect_err(&claim).to_string();
            assert!(why.contains(part), "{claim}: {why}");
            // On which the second claim begins.
            assert!(why.contains("file.toml: line 23"), "{why}");
        }
    }

    #[test]
    fn no_goal_is_on_a_cost_at_a_load_that_arms_are_not_to_deliver() {
        let checked = |metric: &str, load: &str| {
            let text = HEAD.replace(
                "segment_ms = 100, time_s = 60",
                "saturate = true, segment_ms = 100, time_s = 60",
            );
            let claim =
                "says = 's'\ntest = { metric = 'CPU per record', arm = 'xdp', at_most = 9 }";
            let goal = format!(
                "[[goal]]\nmetric = '{metric}'\narm = 'xdp'\nover = 'packet'\n{load}at_least = 0.5"
            );
            let text = format!("{text}{claim}\n{goal}");
            Scenario::read(&text, "file.toml", Path::new(".")).expect(&text).check(&TABLES)
        };
        for metric in ["CPU per record", "CPU used", "p99 wire to app"] {
            let why = checked(metric, "").expect_err(metric).to_string();
            assert!(why.contains("give it a `load_pps` that both arms deliver"), "{why}");
            assert!(why.contains("`metric = \"replies per CPU-second\"`"), "{why}");
            checked(metric, "load_pps = 1000\n").expect(metric);
        }
        for metric in ["replies per CPU-second", "records/s", "loss"] {
            checked(metric, "").expect(metric);
        }
    }

    #[test]
    fn what_the_command_line_changes_takes_no_claim_away() {
        let mut scenario = read("says = 's'\nanswered_by = 'trace'").unwrap();
        (scenario.quick.loads_pps, scenario.full.loads_pps) = (vec![7], vec![7]);
        scenario.check(&TABLES).unwrap();
        assert_eq!(scenario.claims.len(), 2);
        scenario.race_these(&["packet".into()]);
        assert_eq!(scenario.claims.len(), 1, "its arm is gone");
    }
}
