//! Rows on their way out: columns, files, whole captures in memory. Needs nothing but a disk; what
//! needs root or `/dev/full` says so.

mod columns;
mod offline;
mod output;
mod support;
mod writer;
