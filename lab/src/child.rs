//! The two kinds of child process of a race. They talk in lines of JSON (see [`crate::plan`]) on
//! standard input and output, and end when their input does, busy or not, so a race that was killed leaves none
//! behind.

mod arm;
mod borrowed_address;
mod both_ends;
mod client;
mod command;
mod forwarders;
mod generator;
mod memory;
mod peer;
mod pipe;
mod priority;
mod redis;
mod smcroute;
mod tracing;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnd {
    /// As ordered by its parent.
    Done,
    /// By a failure that its parent was notified of in a sentence.
    FailureReported,
}

pub use arm::serve as serve_arm;
pub use generator::serve as serve_generator;
pub(crate) use priority::PRIORITY as GENERATOR_PRIORITY;

/// What is wrong with the knobs of a `redis-server`.
pub(crate) fn redis_knobs(text: &str) -> Result<(), String> {
    redis::Knobs::read(text).map(drop)
}
