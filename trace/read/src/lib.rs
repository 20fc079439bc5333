//! Traces in, events out.
//!
//! What producers write (CTF, JSON, dumps) differs; what an analysis needs is one thing: per thread, in time order, what was
//! entered, left, received, sent, taken from a pool, and where something is missing. This crate turns the one into the
//! other, streaming and in bounded memory. It decides nothing about what events mean together: no stacks, no durations, no
//! causes.
//!
//! A damaged input is read as far as it goes. What was not read is reported ([`Damage`]) with its place, and
//! is never invented.
#![forbid(unsafe_code)]

mod about;
mod block;
mod chrome;
mod ctf;
mod delivery;
mod event;
#[doc(hidden)]
pub mod fuzz;
mod input;
mod merge;
mod own;
mod pairs;
mod perf;
mod shelf;
mod symbols;
#[cfg(test)]
mod testing;
mod trace;
mod uftrace;

pub use about::{About, Clock, DAMAGES_MAX, OpenError, Read, ReadError, Record};
// For the test that compares the analysis' own table of system calls.
#[doc(hidden)]
pub use ctf::syscall_number;
pub use event::{
    Consumer, Damage, Event, FunctionKey, Kind, Loss, PAGE_FAULT, PoolAction, Producer,
    SOFTIRQ_BASE, Thread, ThreadId,
};
pub use pairs::CallPair;
pub use symbols::{Function, ListingError, ListingPlace, Module, Symbols};
pub use trace::{Trace, is_part};
