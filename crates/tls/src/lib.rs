//! TLS in front of an app over streams: [`Tls`] is a stream app and has one.
//!
//! ```text
//!   lane ── records ──▶ Tls ── bytes ──▶ app          the lane's bounds are for records,
//!   lane ◀─ records ─── Tls ◀─ bytes ─── app          the app sees the contract of a lane
//! ```
//!
//! So one app serves TLS by the kernel's sockets, by io_uring and by a stack of ours, and knows nothing of it. A port
//! of the lane is either plain or TLS; connections of a plain one pass through. What the app is promised of a lane
//! ([`StreamApp`](laneway_core::StreamApp)) holds for a connection with TLS as well: it opens when the handshake is
//! done, its peer finishes at `close_notify` or at the end of the TCP stream, a send takes what fits.
//!
//! Memory of a connection: rustls's own state, and beside it nothing while it is idle. A record that is not whole is
//! kept (the first 2 KiB of it stay in the lane, where most are completed), what the app leaves up to
//! [`UNREAD_BYTES_MAX`], what the lane does not take of a record up to that record. Handshakes have a limit of number
//! and of time ([`Limits`]). Every connection that ends by TLS is counted by its reason ([`Reason`]).
//!
//! rustls does the protocol (1.2 and 1.3, its safe suites) by its unbuffered interface: a record is decrypted where it
//! lies, and of each only its payload is copied once. The cryptography is ring's.
//!
//! What it does not do: it sends no `close_notify` when the worker stops, because the contract lets an app send nothing
//! then; it takes no early data; certificates are read once, at the start.
#![forbid(unsafe_code)]

mod app;
mod counts;
mod record;
mod session;
mod settings;

#[cfg(test)]
mod tests;

pub use app::{Tls, UNREAD_BYTES_MAX};
pub use counts::{Counts, Reason};
pub use settings::{ClientCertificates, Limits, PemFiles, Settings, SettingsError};
