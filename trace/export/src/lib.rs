//! What an analysed trace looks like elsewhere.
//!
//! ```text
//!   laneway-trace-read ──events──▶ Nest (calls that nest) ──▶ Chrome, Perfetto, Speedscope, CallTable
//!   laneway-trace ──Analysis──▶ page, flame_graph, difference_graph, write_collapsed, table ──▶ CSV, Parquet
//! ```
//!
//! Exports of events are streams: memory depends on functions and threads, never on the length of the trace, and
//! what is left out is counted and stated in the output itself. Exports of an analysis are pure functions of it.
//!
//! Nothing here reads a trace, computes a figure or names a cause; it shows what others found. Names come from traced
//! programs and are hostile everywhere.
#![forbid(unsafe_code)]

mod chrome;
#[cfg(test)]
mod example;
mod figure;
mod flame;
mod markup;
mod moments;
mod names;
mod nest;
mod output;
mod page;
#[cfg(feature = "parquet")]
mod parquet;
pub mod perfetto;
mod speedscope;
mod survey;
pub mod table;

pub use chrome::{CHROME_BYTES_MAX, Chrome};
pub use flame::{Measure, difference_graph, flame_graph, write_collapsed};
pub use moments::Mark;
pub use names::Names;
pub use nest::{CallFrame, Calls, DEPTH_MAX, Ended, LeftOut, Nest, Selection};
pub use output::{ExportError, Written};
pub use page::{
    PAGE_BUCKETS_MAX, PAGE_CONTEXTS_MAX, PAGE_FUNCTIONS_MAX, PAGE_NAME_CHARS_MAX, page,
};
#[cfg(feature = "parquet")]
pub use parquet::{CallTable, write_parquet};
pub use perfetto::Perfetto;
pub use speedscope::{
    Files, Part, SPEEDSCOPE_BYTES_MAX, SPEEDSCOPE_FILES_MAX, SPEEDSCOPE_THREADS_MAX, Speedscope,
};
pub use survey::{KnownNames, Survey, marks};
