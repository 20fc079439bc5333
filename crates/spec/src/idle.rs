//! What a worker does when there is nothing to do. A knob of every lane: `idle=spin`,
//! `idle=block`, `idle=adaptive` (50 us of spinning) or `idle=adaptive:200` (microseconds).

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};

/// How long `adaptive` spins when no figure is given.
const SPIN_DEFAULT_US: u64 = 50;

/// The idle policy of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum IdlePolicy {
    /// Never leave the core: lowest wake-up latency, 100 % occupied.
    Spin,
    /// Spin this long after the last frame, then block.
    SpinThenBlock(Duration),
    /// Block as soon as there is nothing.
    #[default]
    Block,
}

impl fmt::Display for IdlePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdlePolicy::Spin => f.write_str("spin"),
            IdlePolicy::SpinThenBlock(spin) => write!(f, "adaptive:{}", spin.as_micros()),
            IdlePolicy::Block => f.write_str("block"),
        }
    }
}

impl FromStr for IdlePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let micros = |us| IdlePolicy::SpinThenBlock(Duration::from_micros(us));
        match text.split_once(':') {
            None if text == "spin" => Ok(IdlePolicy::Spin),
            None if text == "block" => Ok(IdlePolicy::Block),
            None if text == "adaptive" => Ok(micros(SPIN_DEFAULT_US)),
            Some(("adaptive", us)) if us.parse::<u64>().is_ok_and(|us| us <= 1_000_000) => {
                Ok(micros(us.parse().expect("just parsed")))
            }
            _ => Err(format!(
                "idle={text} is not an idle policy; use spin, block or adaptive[:MICROSECONDS]"
            )),
        }
    }
}

impl From<IdlePolicy> for String {
    fn from(policy: IdlePolicy) -> String {
        policy.to_string()
    }
}

impl TryFrom<String> for IdlePolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_it_parses() {
        for text in ["spin", "block", "adaptive:50", "adaptive:0"] {
            assert_eq!(text.parse::<IdlePolicy>().unwrap().to_string(), text);
        }
        assert_eq!("adaptive".parse::<IdlePolicy>().unwrap().to_string(), "adaptive:50");
        assert!("adaptive:soon".parse::<IdlePolicy>().unwrap_err().contains("idle=adaptive:soon"));
    }
}
