//! How recordings of two sides differ, as plain data.

use super::Coverage;
use serde::Serialize;

/// Schema of a [`Difference`] as JSON.
pub const DIFF_SCHEMA: &str = "laneway-trace-diff/2";

/// Recordings of two sides compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Always [`DIFF_SCHEMA`].
    pub schema: String,
    /// Recordings of the side to compare with, in the order of time.
    pub before: Vec<Coverage>,
    /// Recordings of the side that is compared.
    pub after: Vec<Coverage>,
    /// In which order they were made.
    pub order: RecordingOrder,
    /// What the tracer costs, one estimate for all recordings; its uncertainty is in every interval.
    pub cost: CommonCost,
    /// The same packets per second were received on both sides, within 5 %; `None` where it is unknown.
    pub same_load: Option<bool>,
    /// What forbids or weakens the comparison, as sentences.
    pub doubts: Vec<String>,
    /// What is compared, by table.
    pub tables: Vec<DifferenceTable>,
    /// In how many recordings each finding fired.
    pub findings: Vec<FiredRow>,
}

/// In which order recordings of two sides were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingOrder {
    /// Recordings of one side lie between those of the other.
    InTurns,
    /// All of one side before all of the other.
    OneByOne,
    /// The clock of a trace tells no date.
    Unknown,
}

/// What the tracer costs per call, over all recordings, ns.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct CommonCost {
    /// Inside the interval of the called function: least, estimate, most.
    pub inside_ns: [f64; 3],
    /// In the caller: least, estimate, most.
    pub outside_ns: [f64; 3],
}

/// Figures of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DifferenceTable {
    /// What they are: "load", "time per packet by layer", ...
    pub title: String,
    /// The largest change first, where the rows have no order of their own.
    pub rows: Vec<DifferenceRow>,
}

/// One figure of two sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DifferenceRow {
    /// Whose figure.
    pub name: String,
    /// Unit of both figures; "share" for parts of a whole, 0 to 1.
    pub unit: String,
    /// Mean over the recordings before (geometric where `scale` is a ratio); `None` if absent from all of them.
    pub before: Option<f64>,
    /// The same after.
    pub after: Option<f64>,
    /// What `change`, `low` and `high` are.
    pub scale: ChangeScale,
    /// How the side after differs.
    pub change: Option<f64>,
    /// Lower end of its 95 % interval, the uncertainty of the tracer's cost included; `None` with too few recordings.
    pub low: Option<f64>,
    /// Upper end of it.
    pub high: Option<f64>,
    /// Two-sided p of no change, after Holm over all rows of all tables.
    pub p: Option<f64>,
    /// What can be concluded.
    pub verdict: ChangeVerdict,
}

/// How two figures are set against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeScale {
    /// After over before.
    Ratio,
    /// After less before, in the unit of the row.
    Difference,
}

/// What can be concluded about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeVerdict {
    /// Less of what is not wanted.
    Better,
    /// More of it.
    Worse,
    /// Higher, where that is neither good nor bad, or the load was not the same.
    Higher,
    /// Lower.
    Lower,
    /// Any change is smaller than what matters.
    Same,
    /// The recordings do not say.
    Unclear,
    /// In every recording before and in none after.
    Gone,
    /// The other way round.
    New,
    /// Too few recordings for any verdict.
    NoVerdict,
}

/// In how many recordings a finding fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FiredRow {
    /// Which finding.
    pub id: String,
    /// Its name.
    pub title: String,
    /// Recordings before in which it fired.
    pub before: u32,
    /// Recordings after in which it fired.
    pub after: u32,
}

impl ChangeVerdict {
    /// As tables and pages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Same => "same",
            Self::Unclear => "unclear",
            Self::Gone => "gone",
            Self::New => "new",
            Self::NoVerdict => "-",
        }
    }
}
