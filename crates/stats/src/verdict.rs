//! Better, worse, same, or inconclusive.

use serde::{Deserialize, Serialize};

/// What a race says about one metric of one arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The arm is better than the base, by more than the threshold.
    Better,
    /// The arm is worse than the base, by more than the threshold.
    Worse,
    /// Any difference is smaller than the threshold.
    Same,
    /// The data does not say; see the doubt.
    Inconclusive,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Inconclusive => "inconclusive",
        })
    }
}
