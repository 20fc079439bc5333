//! Trace analysis: say why a lane is slow, with evidence.
//!
//! ```text
//!  laneway-trace-read ──events──▶ machine (stacks, per thread) ──▶ tree, series, points, worst
//!                                                                     │ once, at the end
//!            text ◀── Analysis ◀── detectors, advice ◀── model (names, layers, overhead taken off)
//! ```
//!
//! One pass over the events in bounded memory; everything that needs names or statistics comes after it. What a
//! trace cannot show is not reported: see [`result::Coverage::withheld`] and [`result::State`].
//!
//! [`analyze`] reads a trace into a [`Report`]; [`diff`] compares two; [`text`] prints both. The types of results
//! are in [`result`]. It reads no files itself, draws nothing, and writes no format.
#![forbid(unsafe_code)]

mod account;
mod advice;
mod analysis;
mod blocks;
mod calls;
mod causes;
mod common_mode;
mod cores;
mod course;
mod detect;
mod difference;
mod histogram;
mod ledger;
mod levels;
mod machine;
mod model;
mod only;
mod period;
mod points;
mod recurrence;
pub mod result;
mod rules;
mod series;
mod shape;
pub mod text;
mod tree;
mod worst;

pub use analysis::{Analyzer, Options, Report, Source, analyze, analyze_naming};
pub use difference::diff;
pub use model::Name;
pub use only::Only;
pub use rules::Rules;
