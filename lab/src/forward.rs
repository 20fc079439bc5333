//! What the forwarder of a race does: the section `[forward]` of a scenario.
//!
//! Assumes two ports, and a mode that sends every frame out of the other one; checked before anything
//! is started, rules included, so that a race does not end on its third arm.

use laneway_forward::{Bounds, Config, Mode, RuleSet};
use serde::{Deserialize, Serialize};

/// Modes in which whatever comes in goes out, numbered as it came.
const MODES: [Mode; 4] = [Mode::Io, Mode::Mac, Mode::MacSwap, Mode::FiveTupleSwap];
/// Most rules of an arm: they travel in one line to it.
const RULES_MAX: usize = 256;
/// Queues that rules may name.
const QUEUES: u16 = 16;

/// App `forward`, as raced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardPlan {
    /// `io`, `mac`, `macswap` or `5tswap`; a peer is told the same.
    pub mode: String,
    /// Flow rules, a command each: `flow create 0 ingress pattern ... / end actions ... / end`. A
    /// peer gets none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

impl ForwardPlan {
    /// The app's own configuration, once all of it was checked.
    ///
    /// # Errors
    /// What of it cannot be, as given, and why.
    pub(crate) fn config(&self) -> Result<Config, (&'static str, String, String)> {
        let refused = |what, value: &str, why: String| (what, value.to_owned(), why);
        let mode: Mode = self
            .mode
            .parse()
            .map_err(|why| refused("forward.mode", &self.mode, format!("{why}")))?;
        if !MODES.contains(&mode) {
            let words = MODES.map(Mode::word).join(", ");
            let why = format!("raced are {words}: the others do not send every frame on");
            return Err(refused("forward.mode", &self.mode, why));
        }
        if self.rules.len() > RULES_MAX {
            let count = self.rules.len().to_string();
            return Err(refused("the number of rules", &count, format!("at most {RULES_MAX}")));
        }
        let config = Config { mode, ports: 2, queues: QUEUES, ..Config::default() };
        let mut rules = RuleSet::for_user(Bounds { ports: config.ports, queues: config.queues });
        for line in &self.rules {
            rules.run(line).map_err(|why| refused("a rule", line, why.to_string()))?;
        }
        Ok(config)
    }

    /// Whether frames leave as they came, MACs and all.
    pub(crate) fn keeps_macs(&self) -> bool {
        self.mode == Mode::Io.word()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_mode_are_checked_before_anything_runs() {
        let rule = "flow create 0 ingress pattern eth / ipv4 / udp / end \
                    actions queue index 0 / count / end";
        let plan = |mode: &str, rule: &str| ForwardPlan {
            mode: mode.to_owned(),
            rules: vec![rule.to_owned()],
        };
        assert_eq!(plan("io", rule).config().expect("it can be").mode, Mode::Io);
        let (what, value, why) = plan("i0", rule).config().expect_err("no such mode");
        assert!(what == "forward.mode" && value == "i0" && why.contains("one of"), "{why}");
        let (_, _, why) = plan("l2", rule).config().expect_err("it floods");
        assert!(why.contains("5tswap"), "{why}");
        let (what, value, _) = plan("io", "flow create 0 patern").config().expect_err("no rule");
        assert_eq!((what, value.as_str()), ("a rule", "flow create 0 patern"));
    }
}
