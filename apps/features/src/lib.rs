//! App `features`: packet and flow features for machine learning, exact to the last integer on
//! every lane and in the kernel.
//!
//! ```text
//!   frame ─▶ admit ─▶ parse ─▶ Record ─▶ Sink::packet          level packet
//!                                 └─▶ FlowTable ─▶ Sink::flow   level flow
//!                                                       └─▶ RowSink ══queue══▶ RowWriter ─▶ Output
//! ```
//!
//! [`Features`] does this in user space on any frame lane; [`KernelFeatures`] describes the same
//! work as an XDP program (`bpf/`) and takes the records that come back; [`offline`] runs whole
//! captures on all cores. The three share the record, the rules and the output, and the tests hold
//! their rows against each other on every capture at hand.
//!
//! [`RowsKind`] is all of it as `laneway run features`, from its arguments to its account; `laneway features` is its
//! own verb. A crate that wants other sinks gives [`FeaturesKind`] some.
//!
//! Every frame is a row, or is counted under the reason why it is none.
#![forbid(unsafe_code)]

mod admit;
mod arguments;
mod arm;
mod arrow_file;
mod assembly;
mod captures;
mod columns;
mod command;
mod config;
mod encode;
mod kernel;
mod kind;
mod ledger;
mod live;
pub mod offline;
mod output;
mod parse;
mod plan;
mod rows;
mod sink;
mod user;
mod verb;
mod writer;

pub use arm::{WitnessedRows, WitnessedSink};
pub use columns::{FlowRow, PacketRow, Profile, Table};
pub use command::{FeaturesArguments, RowsKind};
pub use config::{Aggregation, Config, Disposition, Level};
pub use kernel::{KERNEL_FLOWS_DEFAULT, KernelFeatures, OBJECT, RING_BYTES_DEFAULT, half};
pub use kind::{FeaturesKind, FeaturesRun, Sinks};
pub use ledger::Ledger;
pub use live::{LimitedRows, RowSinks};
pub use output::{Format, Output, OutputError, Provenance};
pub use parse::{Stamp, parse};
pub use rows::Tables;
pub use sink::Sink;
pub use user::Features;
pub use writer::{Queue, RowSink, RowWriter, WhenFull};

/// Whether a configuration can run: its flow table fits memory.
///
/// # Errors
/// One sentence with the value and what to try.
pub fn check(config: &Config) -> Result<(), laneway_flow::TableError> {
    user::table(config).map(drop)
}
