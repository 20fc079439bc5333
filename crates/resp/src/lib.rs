//! RESP, the protocol of Redis (<https://redis.io/docs/latest/develop/reference/protocol-spec/>): version 2, and
//! version 3 after `HELLO 3`. Bytes only: no I/O, no clock, no unsafe.
//!
//! [`Reply`] writes what a server answers, in the version that its client speaks.
#![forbid(unsafe_code)]

mod reply;

pub use reply::{Protocol, Reply, double_text};
