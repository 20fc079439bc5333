//! The real binary, as a user meets it: what it says, which code it ends with, what it leaves.
//!
//! Tests that need root, a kernel feature or shared captures say so and pass where those are absent.
#![forbid(unsafe_code)]

mod bad_input;
mod captures;
mod doctor;
mod echo;
mod host;
mod live;
mod metrics;
mod offline;
mod output;
mod workers;
